"""A cache that stops or begins to work at one moment, and what only looks like it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

import ttftdoctor

Row = dict[str, Any]
#: The sessions begin within this time, and last about 200 s.
OVER_S = 1500.0


def chats(
    cached: Callable[[float, float, int], int],
    *,
    seed: int = 1,
    gap: Callable[[np.random.Generator, float], float] | None = None,
    first: int = 6000,
    **more: Callable[[float], Any],
) -> list[Row]:
    """Sessions; ``cached(now, before, history)`` is told the time of this turn and of the last."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(26):
        history, before, now = 0, 0.0, float(rng.uniform(0, OVER_S))
        for turn in range(int(rng.integers(6, 12))):
            inputs = history + int(rng.integers(500, 900)) + (first if turn == 0 else 0)
            hit = cached(now, before, history) if turn else 0
            hit = hit // 16 * 16
            ttft = (0.09 + 0.25 * (inputs - hit) / 1e3) * float(np.exp(rng.normal(0, 0.04)))
            out = int(rng.integers(60, 300))
            said = {name: value(now) for name, value in more.items()}
            rows.append(
                plant.row(now, inputs, out, ttft, session_id=f"s{session}", cached_tokens=hit,
                          **said)
            )  # fmt: skip
            history, before = inputs + out, now
            pause = float(rng.exponential(30)) + 4 if gap is None else gap(rng, now)
            now += ttft + plant.DECODE_S * out + pause
    return sorted(rows, key=lambda r: r["timestamp"])


def diagnosis(tmp_path: Path, rows: list[Row]) -> ttftdoctor.Diagnosis:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ttftdoctor.diagnose(str(path))


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7])
def test_a_cache_lost_at_a_moment_is_no_router(tmp_path: Path, part: float) -> None:
    moment = part * OVER_S
    found = diagnosis(tmp_path, chats(lambda now, before, history: history * (now < moment)))
    assert found.verdict.primary_cause == "repeated_prefix_no_reuse"
    assert found.verdict.headline.startswith("Since 2026-")
    assert "--enable-prefix-caching" in found.verdict.next_steps[0]
    assert found.verdict.experiment is not None


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7])
def test_a_cache_that_works_since_a_moment_is_repaired(tmp_path: Path, part: float) -> None:
    moment = part * OVER_S
    rows = chats(lambda now, before, history: history * (before >= moment))
    found = diagnosis(tmp_path, rows)
    assert found.verdict.primary_cause == "repeated_prefix_no_reuse"
    assert "since then the cache works" in found.verdict.headline
    assert "nothing is left to do" in found.verdict.next_steps[0]
    assert found.verdict.experiment is None
    gain = next(r for r in found.remedies if r.id == "prefix_cache")
    assert gain.gain_share == pytest.approx(0)
    assert "the cache works" in (gain.note or "")


def test_the_release_that_came_with_it_is_named(tmp_path: Path) -> None:
    rows = chats(
        lambda now, before, history: history * (now < 700),
        version=lambda now: "1.8" if now < 700 else "1.9",
    )
    found = diagnosis(tmp_path, rows).verdict
    assert found.primary_cause in ("repeated_prefix_no_reuse", "deploy_regression")
    assert "1.8 to 1.9" in found.headline


def test_what_is_written_and_never_read_is_a_prompt_that_changed(tmp_path: Path) -> None:
    rows = chats(lambda now, before, history: history * (now < 700))
    for r in rows:
        r["cache_write_tokens"] = r["prompt_tokens"] - r["cached_tokens"]
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "cache_busting_prefix"


def test_turns_that_come_and_go_are_still_a_router(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows = chats(lambda now, before, history: history * (rng.random() < 0.4))
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "affinity_loss"


def test_pauses_that_grow_during_the_log_are_still_expiry(tmp_path: Path) -> None:
    """Whoever types slowly in the second half finds his entries expired."""

    def gap(rng: np.random.Generator, now: float) -> float:
        return float(rng.uniform(5, 60) if now < 700 else rng.uniform(400, 900))

    rows = chats(lambda now, before, history: history * (now - before < 330), gap=gap)
    assert diagnosis(tmp_path, rows).verdict.primary_cause == "cache_eviction"


def test_prompts_too_short_to_be_cached_are_no_loss(tmp_path: Path) -> None:
    """All sessions begin together, so that length goes with time: nothing was repaired."""
    rng = np.random.default_rng(9)
    rows = []
    for session in range(20):
        history, now = 0, float(rng.uniform(0, 30))
        for _ in range(10):
            inputs = history + 300
            hit = history // 16 * 16 if inputs >= 1600 else 0
            rows.append(
                plant.row(now, inputs, 40, 0.09 + 0.25 * (inputs - hit) / 1e3,
                          session_id=f"s{session}", cached_tokens=hit)
            )  # fmt: skip
            history = inputs + 40
            now += 60.0
    found = diagnosis(tmp_path, sorted(rows, key=lambda r: r["timestamp"]))
    assert "since then the cache works" not in found.verdict.headline


def test_a_counter_that_is_no_longer_filled_is_no_lost_cache(tmp_path: Path) -> None:
    rows = chats(lambda now, before, history: history)
    for r in rows:
        if r["timestamp"] - plant.EPOCH_S > 700:
            r["cached_tokens"] = 0
    assert not diagnosis(tmp_path, rows).verdict.headline.startswith("Since")


def test_habits_of_a_few_sessions_are_no_moment() -> None:
    from ttftdoctor.measure.onset import onset_of

    start = np.arange(40.0)
    hit, gap = start < 20, np.full(40, 0.5)
    few, many = np.repeat(np.arange(4), 10), np.tile(np.arange(10), 4)
    found = onset_of(start, gap, hit, hit, many, ())
    assert found is not None
    assert found.lost
    assert found.first == 20
    assert onset_of(start, gap, hit, hit, few, ()) is None
    assert onset_of(start, gap, hit, hit, many, (np.where(hit, 1.0, 2.0),)) is None
    back = onset_of(start, gap, ~hit, ~hit, many, ())
    assert back is not None
    assert not back.lost
