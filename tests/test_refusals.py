"""Limits that refuse, seen by the rows of the tries they refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

import ttftdoctor

Row = dict[str, Any]


def diagnosis(tmp_path: Path, rows: list[Row]) -> ttftdoctor.Diagnosis:
    rows.sort(key=lambda r: r["timestamp"])
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ttftdoctor.diagnose(str(path))


def request(now: float, inputs: int, ttft: float, **more: Any) -> Row:
    made = plant.row(now, inputs, 100, ttft, **more)
    del made["attempts"]
    return made


def refusal(now: float, inputs: int, **more: Any) -> Row:
    return {
        "timestamp": round(plant.EPOCH_S + now, 4),
        "prompt_tokens": inputs,
        "status": 429,
        **more,
    }


def limited(budget: int, *, ids: bool, seed: int = 1) -> list[Row]:
    """So many tokens a minute; who is over it is refused, and tries again after longer pauses."""
    rng = np.random.default_rng(seed)
    now, window, used, rows = 0.0, -np.inf, 0, []
    for i in range(200):
        now += float(rng.exponential(4))
        inputs = int(rng.integers(1500, 6000))
        name = {"request_id": f"r{i}"} if ids else {}
        if now - window > 60:
            window, used = now, 0
        used += inputs
        then, pause = now, 1.0
        while used > budget and then < window + 60 and pause <= 32:
            rows.append(refusal(then, inputs, **name))
            then += pause * float(rng.uniform(1, 1.1))
            pause *= 2
        own = 0.45 * float(np.exp(rng.normal(0, 0.12))) + 0.04 * inputs / 1e3
        rows.append(request(now, inputs, then - now + own, **name))
    return rows


@pytest.mark.parametrize("budget", [35_000, 45_000, 60_000])
@pytest.mark.parametrize("ids", [True, False])
def test_the_more_a_limit_refuses_the_surer_it_is(tmp_path: Path, budget: int, ids: bool) -> None:
    found = diagnosis(tmp_path, limited(budget, ids=ids))
    assert found.verdict.primary_cause == "retry_or_ratelimit"
    said = next(f for f in found.causes if f.id == "retry_or_ratelimit").evidence[0].text
    assert ("rows of the same id" if ids else "arrived just where others were refused") in said


def test_a_wait_for_nothing_known_is_no_retry_because_a_log_has_refusals(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    now, rows = 0.0, []
    for _ in range(300):
        now += float(rng.exponential(5))
        waits = float(rng.lognormal(2, 0.7)) if rng.random() < 0.25 else 0.0
        rows.append(request(now, 3000, waits + 0.5 * float(np.exp(rng.normal(0, 0.1)))))
        rows.append(refusal(now + float(rng.uniform(0, 5)), 3000))
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "insufficient_data"


def test_a_queue_is_one_also_where_some_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    now, free, rows = 0.0, 0.0, []
    for _ in range(400):
        now += float(rng.exponential(1.3))
        inputs = int(rng.integers(1500, 6000))
        free = max(now, free) + 0.3 * inputs / 1e3
        rows.append(request(now, inputs, free - now + 0.1))
        if rng.random() < 0.3:
            rows.append(refusal(now + float(rng.random()), inputs))
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "queueing_saturation"


@pytest.mark.parametrize("way", ["before", "shared"])
def test_a_try_that_the_clock_does_not_hold_proves_nothing(tmp_path: Path, way: str) -> None:
    """The row of the last try begins after those before it; or the id is that of a conversation."""
    rng = np.random.default_rng(4)
    now, rows = 0.0, []
    for i in range(120):
        now += 10.0
        inputs = int(rng.integers(1500, 6000))
        name = {"request_id": f"r{i}" if way == "before" else f"r{i // 10}"}
        if i % 4 == 0:
            rows.append(refusal(now - (1.5 if way == "before" else -0.05), inputs, **name))
        rows.append(request(now, inputs, 0.5 + 0.04 * inputs / 1e3, **name))
    found = diagnosis(tmp_path, rows)
    assert next(f for f in found.causes if f.id == "retry_or_ratelimit").status == "unjudged"
