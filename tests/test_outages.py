"""Servers that start in mid-log, and waits that only look like it."""

from __future__ import annotations

import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

import ttftdoctor

Row = dict[str, Any]


def diagnosis(tmp_path: Path, rows: list[Row]) -> ttftdoctor.Diagnosis:
    rows = [{k: v for k, v in r.items() if k not in ("status", "attempts")} for r in rows]
    rows.sort(key=lambda r: r["timestamp"])
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ttftdoctor.diagnose(str(path))


def cold(found: ttftdoctor.Diagnosis) -> ttftdoctor.Finding:
    return next(f for f in found.causes if f.id == "cold_start")


def traffic(seed: int, n: int, every_s: float) -> list[Row]:
    rng = np.random.default_rng(seed)
    now, rows = 0.0, []
    for _ in range(n):
        now += float(rng.exponential(every_s))
        inputs, outputs = int(rng.integers(1500, 6000)), int(rng.integers(50, 300))
        ttft = 0.45 * float(np.exp(rng.normal(0, 0.12))) + 0.04 * inputs / 1e3
        rows.append(plant.row(now, inputs, outputs, ttft))
    return rows


def backing_off(seed: int, every_s: float) -> list[Row]:
    """A budget of tokens a minute; who is over it tries again after pauses that double."""
    rng = np.random.default_rng(seed)
    rows = traffic(seed, 220, every_s)
    window, used = -np.inf, 0
    for r in rows:
        now = r["timestamp"]
        if now - window > 60:
            window, used = now, 0
        used += r["prompt_tokens"]
        waited, pause = 0.0, 0.5
        while used > 45_000 and now + waited < window + 60 and pause < 32:
            waited += min(8.0, pause) * float(rng.uniform(0.75, 1.0)) + 0.12
            pause *= 2
        plant.slower(r, waited)
    return rows


@pytest.mark.parametrize("every_s", [2.0, 4.0, 6.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_that_back_off_wait_for_no_start(tmp_path: Path, seed: int, every_s: float) -> None:
    found = diagnosis(tmp_path, backing_off(seed, every_s))
    assert found.verdict.primary_cause != "cold_start"
    assert cold(found).status == "ruled_out"


def test_a_server_whose_slots_are_taken_is_running(tmp_path: Path) -> None:
    """256 clients and 72 slots: nobody gets a first token for a while, but 72 are decoding."""
    rng = np.random.default_rng(3)
    clients = [(0.01 * i, i) for i in range(256)]
    heapq.heapify(clients)
    ends: list[float] = []
    free, rows = 0.0, []
    while len(rows) < 600:
        now, client = heapq.heappop(clients)
        begin = max(now, free)
        while ends and (ends[0] <= begin or len(ends) >= 72):
            begin = max(begin, heapq.heappop(ends))
        inputs, outputs = int(rng.integers(900, 1500)), int(rng.integers(250, 550))
        free = begin + 0.06 * inputs / 1e3
        end = free + 0.06 + outputs * 0.058
        r = plant.row(now, inputs, outputs, free + 0.06 - now)
        r["latency_ms"] = 1e3 * (end - now)
        rows.append(r)
        heapq.heappush(ends, end)
        heapq.heappush(clients, (end + 0.005, client))
    found = diagnosis(tmp_path, rows)
    assert found.verdict.primary_cause in ("queueing_saturation", "decode_contention")
    assert cold(found).status == "ruled_out"
    assert not any("it was starting" in s.text for s in cold(found).evidence)


def down(rows: list[Row], at_s: float, for_s: float) -> None:
    """The server is away for a while: who comes then waits for it, and is served in turn."""
    back = at_s + for_s
    for r in rows:
        at = r["timestamp"] - plant.EPOCH_S
        if at_s <= at < back:
            plant.slower(r, back - at)
            back += 0.2


@pytest.mark.parametrize("times", [1, 3])
def test_a_restart_is_still_one_without_a_word_of_caches(tmp_path: Path, times: int) -> None:
    rows = traffic(4, 300, 4.0)
    for k in range(times):
        down(rows, 200.0 + 300 * k, 45.0)
    found = diagnosis(tmp_path, rows)
    assert found.verdict.primary_cause == "cold_start"
    assert "while their server was starting" in found.verdict.headline


def test_a_stream_that_stands_still_with_its_server_is_no_sign_of_life(tmp_path: Path) -> None:
    """Answers begun before a stall end after it, each token of them late."""
    rows = traffic(5, 300, 4.0)
    down(rows, 400.0, 45.0)
    for r in rows:
        at = r["timestamp"] - plant.EPOCH_S
        first, last = at + r["ttft_ms"] / 1e3, at + r["latency_ms"] / 1e3
        if first < 400.0 < last:
            r["latency_ms"] += 45e3
    # One more that certainly flows across the moment.
    rows.append(plant.row(398.0, 2000, 200, 0.5))
    rows[-1]["latency_ms"] += 45e3
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "cold_start"
