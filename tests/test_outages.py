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


def restarted(seed: int) -> tuple[list[Row], float]:
    """Chats on a server that prefills one prompt at a time and restarts twice, its caches empty.

    And the mean seconds that requests waited behind history which was computed again for that.
    """
    rng = np.random.default_rng(seed)
    turns = []
    for chat in range(40):
        now, history = float(rng.uniform(0, 900)), 1500
        for turn in range(1, int(rng.integers(8, 16))):
            new, outputs = int(rng.integers(80, 300)), int(rng.integers(20, 120))
            turns.append((now, chat, turn, history + new, new, outputs))
            history += new + outputs
            now += 8 + outputs * 0.01 + float(rng.exponential(25))
    turns.sort()
    down = [(300.0, 320.0), (700.0, 720.0)]
    free, born, rows, behind = 0.0, 0.0, [], []
    held: dict[int, tuple[float, int]] = {}
    filling: list[tuple[float, float]] = []  # when history was computed again, from and to
    for now, chat, turn, inputs, new, outputs in turns:
        begin = max(now, free)
        for low, high in down:
            if low <= begin < high:
                begin, born = high, high
        when, known = held.get(chat, (-1.0, 0))
        kept = known if when >= born else 0
        again = 0 if turn == 1 or kept else inputs - new
        free = begin + 0.02 + 0.5 * (inputs - kept) / 1e3
        behind.append(sum(max(min(b, begin) - max(a, now), 0.0) for a, b in filling[-60:]))
        if again:
            filling.append((free - 0.5 * again / 1e3, free))
        held[chat] = free, inputs
        more = {"session_id": f"c{chat}", "turn": turn, "cached_tokens": kept}
        ttft = free - now + float(rng.exponential(0.004))
        rows.append(plant.row(now, inputs, outputs, ttft, **more))
    return rows, float(np.mean(behind))


@pytest.mark.parametrize("seed", [1, 2])
def test_waits_behind_emptied_caches_are_the_restarts(tmp_path: Path, seed: int) -> None:
    rows, behind = restarted(seed)
    found = diagnosis(tmp_path, rows)
    assert found.verdict.primary_cause == "cold_start"
    parts = found.ledger[0].accounts
    seconds = cold(found).seconds
    assert seconds is not None
    own = parts["unexplained"] + parts["prefill_repeated"]  # waiting for it, and filling caches
    assert own + 0.7 * behind <= seconds <= own + 1.7 * behind
