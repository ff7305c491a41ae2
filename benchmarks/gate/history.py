"""How often a history of a server that never changed shows a change, and what it sees of one.

Baselines of one simulated service on 75 days, from the 51st on with a tenth more prefill cost. On
each day other people come, their texts are longer or shorter by some 20 %, and the machine is
faster or slower by some 2 %: the noise that a real baseline has. Their levels at equal mix are then
put in other orders, at random or so that neighbours are alike.

    python benchmarks/gate/history.py
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from ttftdoctor import simulator
from ttftdoctor.gate import trend
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.history import Entry, _drift, _large, _scaled, history_of
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.sketch import sketch_of
from ttftdoctor.remedies import Settings
from ttftdoctor.run import read
from ttftdoctor.study import study

SERVICE = """
title = "history"
[causes]
primary = "healthy"
[load]
utilisation = 0.1
[[server]]
replicas = 2
ms_per_1k = {slope}
ms_per_1k_per_1k = 0.8
decode_ms = {decode}
[[traffic]]
sessions = 160
turns = {{ median = 6, sigma = 0.4, min = 2, max = 20 }}
system_tokens = 800
user_tokens = {{ median = {user}, sigma = 0.8, min = 5, max = 4000 }}
document_tokens = {{ median = {document}, sigma = 0.6, min = 100, max = 20000 }}
document_first = 0.5
output_tokens = {{ median = 200, sigma = 0.6, min = 5, max = 1500 }}
[gateway]
ms = 40
jitter_ms = 6
"""
SAME, SLOWER = 50, 25
HISTORIES, STEPS = 200, 100
ORDERS = 999


def served(place: Path, rng: np.random.Generator, day: int) -> Entry:
    """About 1,000 requests of one day, summed up."""
    machine, user, document = np.exp(np.array([0.02, 0.2, 0.2]) * rng.standard_normal(3))
    slope = 100 * machine * (1.1 if day >= SAME else 1.0)
    text = SERVICE.format(
        slope=slope, decode=18 * machine, user=150 * user, document=2000 * document
    )
    path = place / "log.jsonl"
    run = simulator.serve(simulator.parse(text, "history"), 100 + day)
    simulator.write_log(run, str(path), "full")
    log = read(str(path))
    sketch = sketch_of(log, *study(log, "LOG", Settings()))
    start = f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T00:00:00Z"
    sketch = replace(sketch, facts=replace(sketch.facts, start=start))
    return Entry(f"day {day}", Baseline(f"day {day}", (sketch,)).fit_in(60_000))


def alike(rng: np.random.Generator, days: np.ndarray, key: np.ndarray, r: float) -> np.ndarray:
    """The days in an order in which the autocorrelation of ``key`` is about ``r``."""
    if not r:
        return rng.permutation(days)
    wave = rng.standard_normal(len(days))
    for at in range(1, len(days)):
        wave[at] = r * wave[at - 1] + np.sqrt(1 - r * r) * wave[at]
    out = np.empty(len(days), dtype=np.int64)
    out[np.argsort(wave)] = days[np.argsort(key[days])]
    return out


def judged(levels: dict[str, np.ndarray], days: np.ndarray) -> dict[str, tuple[list[int], bool]]:
    """Steps, and whether it drifts, of each metric over some days: what a history does."""
    values = [levels[name][days] for name in levels]
    scaled = [_scaled(METRICS[name], v) for name, v in zip(levels, values, strict=True)]
    out = {}
    for name, v, s, found in zip(levels, values, scaled, trend.change_points(scaled), strict=True):
        points = _large(METRICS[name], v, [f.at for f in found])
        drift = None
        if points and trend.is_drift(s, points):
            points, drift = [], _drift(METRICS[name], v)
        elif not found and trend.slides(s, metrics=len(levels)):
            drift = _drift(METRICS[name], v)
        out[name] = points, drift is not None
    return out


def main() -> None:
    trend.ORDERS = ORDERS
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as place:
        entries = [served(Path(place), rng, day) for day in range(SAME + SLOWER)]
    metrics = history_of(entries).metrics
    levels = {t.metric: np.array([v.level for v in t.levels if v]) for t in metrics}
    raw = {t.metric: np.array([v.raw for v in t.levels if v]) for t in metrics}
    for name in ("ttft_mean", "ttft_p95", "prefill_slope", "decode_per_token"):
        noise = [np.std(v[name][:SAME]) / np.mean(v[name][:SAME]) for v in (levels, raw)]
        print(f"{name}: noise at equal mix {noise[0]:.1%}, raw {noise[1]:.1%}")
    key = levels["prefill_slope"]
    for n in (20, 50, 100):
        again = n > SAME
        for r in (0.0, 0.3, 0.6):
            false = drifts = seen = 0
            for _ in range(HISTORIES):
                days = alike(rng, rng.choice(SAME, n, replace=again), key, r)
                answer = judged(levels, days).values()
                false += any(points for points, _ in answer)
                drifts += any(drift for _, drift in answer)
            k = int(0.6 * n)
            for _ in range(STEPS):
                first = alike(rng, rng.choice(SAME, k, replace=again), key, r)
                then = alike(rng, SAME + rng.choice(SLOWER, n - k, replace=again), key, r)
                points = judged(levels, np.concatenate([first, then]))["prefill_slope"][0]
                seen += any(abs(at - k) <= 1 for at in points)
            print(
                f"{n} baselines, autocorrelation {r}: false change points in "
                f"{false / HISTORIES:.1%} of histories, false drifts {drifts / HISTORIES:.1%}, "
                f"a tenth seen within one baseline in {seen / STEPS:.0%}"
            )


if __name__ == "__main__":
    main()
