"""Logs in which one cause is planted, so that the truth is known. All draws are seeded.

A small server: each replica prefills one prompt at a time in order of arrival, decoding runs
beside it. Every log has all the columns a cause may ask for, unless the cause is their absence.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ttftdoctor

Row = dict[str, Any]
Random = np.random.Generator

EPOCH_S = 1_777_629_600.0
FIXED_S = 0.06
PER_1K_S = 0.09
DECODE_S = 0.02
BLOCK = 16


@dataclass(frozen=True)
class Planted:
    """A log, the seconds of the mean TTFT that the cause accounts for, and what it needs.

    ``needs`` are the fields without which the cause cannot be judged.
    """

    rows: list[Row]
    seconds: float | None
    needs: tuple[str, ...]

    def write(self, path: Path, *, without: Iterable[str] = ()) -> str:
        gone = set(without)
        kept = [{k: v for k, v in row.items() if k not in gone} for row in self.rows]
        path.write_text("\n".join(map(json.dumps, kept)) + "\n")
        return str(path)


@dataclass(frozen=True)
class Turn:
    """What a cache may know of a turn: history tokens, the pause before it, and where it lands."""

    session: int
    turn: int
    history: int
    gap_s: float
    replica: int
    known: int


def diagnosed(folder: Path, rows: Iterable[Row]) -> ttftdoctor.Diagnosis:
    """The diagnosis of a log of these rows, as they are."""
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ttftdoctor.diagnose(str(path))


def row(start: float, inputs: int, outputs: int, ttft: float, **more: Any) -> Row:
    return {
        "timestamp": round(EPOCH_S + start, 4),
        "prompt_tokens": inputs,
        "completion_tokens": outputs,
        "ttft_ms": round(1e3 * ttft, 2),
        "latency_ms": round(1e3 * (ttft + DECODE_S * (outputs - 1)), 2),
        "status": "ok",
        "attempts": 1,
        **more,
    }


def chats(
    rng: Random,
    cached: Callable[[Turn], int],
    *,
    sessions: int = 40,
    turns: int = 8,
    replicas: int = 1,
    gap: Callable[[], float] | None = None,
    scatter: bool = False,
    over_s: float = 7200.0,
) -> tuple[list[Row], float]:
    """Conversations that send their whole history; the rows, and seconds of history prefilled."""
    events = [(float(rng.uniform(0, over_s)), k, 1, 0, 0.0) for k in range(sessions)]
    heapq.heapify(events)
    free = [0.0] * replicas
    holds: dict[tuple[int, int], int] = {}
    rows: list[Row] = []
    lost = 0.0
    while events:
        at, k, turn, history, pause = heapq.heappop(events)
        where = int(rng.integers(replicas)) if scatter else k % replicas
        inputs = history + int(rng.integers(1500, 3500) if turn == 1 else rng.integers(100, 600))
        outputs = int(rng.integers(60, 300))
        seen = Turn(k, turn, history, pause, where, holds.get((k, where), 0))
        hit = min(cached(seen), inputs - 1) // BLOCK * BLOCK
        work = FIXED_S + PER_1K_S * (inputs - hit) / 1e3
        work *= 1 + 0.02 * float(rng.standard_normal())
        lost += PER_1K_S * max(history - hit, 0) / 1e3
        wait = max(0.0, free[where] - at)
        free[where] = at + wait + work
        holds[k, where] = inputs + outputs
        rows.append(
            row(at, inputs, outputs, wait + work, session_id=f"s{k:03}", turn=turn,
                cached_tokens=hit, replica=f"gpu-{where}")
        )  # fmt: skip
        if turn < turns:
            pause = gap() if gap is not None else float(rng.uniform(5, 40))
            then = at + wait + work + DECODE_S * (outputs - 1) + pause
            heapq.heappush(events, (then, k, turn + 1, inputs + outputs, pause))
    return rows, lost / len(rows)


def singles(
    rng: Random,
    n: int,
    every_s: float,
    *,
    lengths: tuple[int, int] = (300, 3000),
    replicas: int = 1,
) -> list[Row]:
    """Requests that have nothing to do with each other."""
    at, rows = 0.0, []
    free = [0.0] * replicas
    for i in range(n):
        at += float(rng.exponential(every_s))
        where = i % replicas
        inputs, outputs = int(rng.integers(*lengths)), int(rng.integers(40, 160))
        work = (FIXED_S + PER_1K_S * inputs / 1e3) * (1 + 0.02 * float(rng.standard_normal()))
        wait = max(0.0, free[where] - at)
        free[where] = at + wait + work
        rows.append(row(at, inputs, outputs, wait + work, cached_tokens=0, replica=f"gpu-{where}"))
    return rows


def slower(row: Row, seconds: float) -> None:
    """Let a row's first token, and all after it, come later."""
    row["ttft_ms"] = round(row["ttft_ms"] + 1e3 * seconds, 2)
    row["latency_ms"] = round(row["latency_ms"] + 1e3 * seconds, 2)


PREFIX_NEEDS = ("session_id", "turn", "cached_tokens")


def repeated_prefix_no_reuse(rng: Random) -> Planted:
    """No cache at all."""
    rows, lost = chats(rng, lambda t: 0)
    return Planted(rows, lost, PREFIX_NEEDS)


def cache_eviction(rng: Random) -> Planted:
    """Entries live for five minutes; every third pause is longer."""

    def gap() -> float:
        return float(rng.uniform(400, 1500) if rng.random() < 0.4 else rng.uniform(10, 120))

    rows, lost = chats(rng, lambda t: t.history if t.gap_s < 300 else 0, gap=gap)
    return Planted(rows, lost, PREFIX_NEEDS)


def cache_busting_prefix(rng: Random) -> Planted:
    """A clock stands behind the first 512 tokens."""
    rows, lost = chats(rng, lambda t: min(t.history, 512) if t.turn > 1 else 0)
    return Planted(rows, lost, PREFIX_NEEDS)


def affinity_loss(rng: Random) -> Planted:
    """Six replicas, each with a cache of its own, and a router that draws lots."""
    rows, lost = chats(rng, lambda t: t.known, replicas=6, scatter=True, turns=7)
    return Planted(rows, lost, PREFIX_NEEDS)


def queueing_saturation(rng: Random) -> Planted:
    """Arrivals in bursts that come faster than one server prefills."""
    rows = singles(rng, 400, 0.24)
    alone = [FIXED_S + PER_1K_S * r["prompt_tokens"] / 1e3 for r in rows]
    wait = float(np.mean([r["ttft_ms"] / 1e3 - a for r, a in zip(rows, alone, strict=True)]))
    return Planted(rows, wait, ("timestamp",))


def decode_contention(rng: Random) -> Planted:
    """Twelve slots, mostly held by long answers: who finds none waits until somebody ends."""
    at, rows, free, waits = 0.0, [], [0.0] * 12, []
    for _ in range(400):
        at += float(rng.exponential(0.5))
        inputs, outputs = int(rng.integers(100, 700)), int(rng.integers(100, 450))
        slot = int(np.argmin(free))
        waits.append(max(free[slot] - at, 0.0))
        work = (FIXED_S + PER_1K_S * inputs / 1e3) * (1 + 0.02 * float(rng.standard_normal()))
        ttft = waits[-1] + work
        rows.append(row(at, inputs, outputs, ttft, cached_tokens=0, replica="gpu-0"))
        free[slot] = at + rows[-1]["latency_ms"] / 1e3
    return Planted(rows, float(np.mean(waits)), ("latency_ms",))


def organic_long_input(rng: Random) -> Planted:
    """New documents of up to 40,000 tokens on an idle server."""
    rows = singles(rng, 250, 60.0, lengths=(1000, 40_000))
    own = float(np.mean([PER_1K_S * r["prompt_tokens"] / 1e3 for r in rows]))
    return Planted(rows, own, ("prompt_tokens", "cached_tokens"))


def cold_start(rng: Random) -> Planted:
    """After ten minutes of silence the model is loaded again, which takes nine seconds."""
    rows, at, extra = [], 0.0, []
    for i in range(240):
        silent = i % 12 == 0
        at += float(rng.uniform(900, 1500)) if silent else float(rng.uniform(8, 60))
        inputs, outputs = int(rng.integers(200, 2000)), int(rng.integers(40, 120))
        work = (FIXED_S + PER_1K_S * inputs / 1e3) * (1 + 0.02 * float(rng.standard_normal()))
        extra.append(float(rng.normal(9, 0.3)) if silent and i else 0.0)
        rows.append(row(at, inputs, outputs, work + extra[-1], cached_tokens=0, replica="gpu-0"))
    return Planted(rows, float(np.mean(extra)), ("timestamp",))


def fixed_overhead(rng: Random) -> Planted:
    """Half of the requests take a gateway that adds about two seconds and a half."""
    rows, extra = singles(rng, 300, 20.0), []
    for i, r in enumerate(rows):
        r["route"] = "gateway" if i % 2 else "direct"
        extra.append(float(rng.normal(2.5, 0.2)) if i % 2 else 0.0)
        slower(r, extra[-1])
    return Planted(rows, float(np.mean(extra)), ("route", "prompt_tokens", "cached_tokens"))


def deploy_regression(rng: Random) -> Planted:
    """A release makes the same work take three times as long."""
    rows = singles(rng, 300, 20.0)
    extra = []
    for i, r in enumerate(rows):
        r["version"] = "1.4.0" if i < 140 else "1.5.0"
        extra.append(2 * r["ttft_ms"] / 1e3 if i >= 140 else 0.0)
        slower(r, extra[-1])
    return Planted(rows, float(np.mean(extra)), ("timestamp",))


def retry_or_ratelimit(rng: Random) -> Planted:
    """One request in five meets a dead upstream first and waits six seconds for it."""
    rows = singles(rng, 300, 20.0)
    extra = []
    for r in rows:
        r["attempts"] = int(rng.integers(2, 4)) if rng.random() < 0.2 else 1
        extra.append(6.0 * (r["attempts"] - 1))
        slower(r, extra[-1])
    return Planted(rows, float(np.mean(extra)), ("attempts",))


def measurement_artifact(rng: Random) -> Planted:
    """Something on the way holds the answer back until it is complete."""
    rows = singles(rng, 200, 20.0)
    for r in rows:
        r["ttft_ms"] = round(r["latency_ms"] - float(rng.uniform(0, 4)), 2)
    return Planted(rows, None, ("ttft_ms",))


def insufficient_data(rng: Random) -> Planted:
    """Twenty times to first token, and nothing else."""
    rows = [{"ttft_ms": round(float(rng.lognormal(7, 0.7)), 1)} for _ in range(20)]
    return Planted(rows, None, ())


def healthy(rng: Random) -> Planted:
    """A cache that works, on a server with time to spare."""
    rows, _ = chats(rng, lambda t: t.history)
    return Planted(rows, None, ("ttft_ms",))


PLANTS: dict[str, Callable[[Random], Planted]] = {
    plant.__name__: plant
    for plant in (
        repeated_prefix_no_reuse, cache_eviction, cache_busting_prefix, affinity_loss,
        queueing_saturation, decode_contention, organic_long_input, cold_start, fixed_overhead,
        deploy_regression, retry_or_ratelimit, measurement_artifact, insufficient_data, healthy,
    )
}  # fmt: skip


def plant(cause: str, seed: int = 0) -> Planted:
    """The log of one cause."""
    return PLANTS[cause](np.random.default_rng([seed, sorted(PLANTS).index(cause)]))
