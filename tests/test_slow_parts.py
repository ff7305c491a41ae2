"""A part of the service that is slow for the same work, and parts that only seem to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

Rng = np.random.Generator
Row = dict[str, Any]


def spread_out(
    rng: Rng,
    factor: Callable[[int, int], float],
    *,
    parts: int = 4,
    n: int = 400,
    every_s: float = 4.0,
    share: Callable[[], int] | None = None,
    lengths: Callable[[int], float] = lambda part: 7.4,
) -> list[Row]:
    """Requests over servers with one line each; ``factor(i, part)`` stretches their prefill."""
    rows, now, free = [], 0.0, [0.0] * parts
    for i in range(n):
        now += float(rng.exponential(every_s))
        part = share() if share is not None else int(rng.integers(parts))
        inputs = int(rng.lognormal(lengths(part), 0.6))
        own = 0.00018 * inputs * factor(i, part) * float(rng.lognormal(0, 0.04))
        wait = max(0.0, free[part] - now)
        free[part] = now + wait + own
        ttft = wait + own + 0.06 * float(rng.lognormal(0, 0.1))
        rows.append(plant.row(now, inputs, int(rng.integers(60, 300)), ttft, replica=f"gpu-{part}"))
    return rows


@pytest.mark.parametrize(("parts", "times"), [(2, 3.0), (4, 2.0), (4, 4.0), (10, 4.0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_throttled_replica_is_named(tmp_path: Path, parts: int, times: float, seed: int) -> None:
    rng = np.random.default_rng([seed, parts])
    rows = spread_out(rng, lambda i, part: times if part == 1 else 1.0, parts=parts)
    own = [0.00018 * r["prompt_tokens"] * (times - 1) * (r["replica"] == "gpu-1") for r in rows]
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"replica": "gpu-1"}
    assert "gpu-1" in found.verdict.next_steps[0]
    cause = next(f for f in found.causes if f.id == "fixed_overhead")
    assert cause.seconds == pytest.approx(float(np.mean(own)), rel=0.35)
    # Nothing is left over, and the line is that of the replicas that are well.
    whole = next(r for r in found.ledger if r.group == "all")
    assert abs(whole.accounts["unexplained"]) < 0.1 * whole.ttft_mean_s
    assert found.cost_lines.prefill is not None
    assert found.cost_lines.prefill.ms_per_1k_tokens == pytest.approx(180, rel=0.1)


def test_what_waits_behind_a_slow_replica_is_laid_to_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    rows = spread_out(rng, lambda i, part: 4.0 if part == 2 else 1.0, every_s=0.8)
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"replica": "gpu-2"}
    own = [0.00018 * r["prompt_tokens"] * 3 * (r["replica"] == "gpu-2") for r in rows]
    cause = next(f for f in found.causes if f.id == "fixed_overhead")
    assert cause.seconds is not None
    assert cause.seconds > 1.1 * float(np.mean(own))


@pytest.mark.parametrize("seed", range(3))
def test_a_busier_replica_is_not_slow(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([seed, 21])
    rows = spread_out(
        rng,
        lambda i, part: 3.0,
        every_s=0.6,
        share=lambda: int(rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])),
    )
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "queueing_saturation"
    assert found.verdict.scope == {"replica": "gpu-0"}


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_gets_the_long_prompts_is_not_slow(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([seed, 22])
    rows = spread_out(
        rng, lambda i, part: 1.0, lengths=lambda part: 9.2 if part == 1 else 7.4, every_s=30.0
    )
    cause = plant.diagnosed(tmp_path, rows).verdict.primary_cause
    assert cause in ("healthy", "organic_long_input")


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_of_a_larger_model_is_not_slow(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([seed, 23])
    rows = spread_out(rng, lambda i, part: 4.0 if part == 1 else 1.0, every_s=20.0)
    for r in rows:
        r["model"] = "large" if r["replica"] == "gpu-1" else "small"
    cause = plant.diagnosed(tmp_path, rows).verdict.primary_cause
    assert cause in ("healthy", "organic_long_input")


def test_a_slow_replica_among_two_models(tmp_path: Path) -> None:
    """Each model is dearer or cheaper as such; the replica is slow for both."""
    rng = np.random.default_rng(24)
    large = rng.random(600) < 0.4
    rows = spread_out(
        rng, lambda i, part: (3.0 if large[i] else 1.0) * (3.0 if part == 1 else 1.0), n=600,
        every_s=20.0,
    )  # fmt: skip
    for r, big in zip(rows, large, strict=True):
        r["model"] = "large" if big else "small"
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"replica": "gpu-1"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("since", [120, 200])
def test_a_replica_that_became_slow_is_a_change(tmp_path: Path, seed: int, since: int) -> None:
    rng = np.random.default_rng([seed, 25])
    rows = spread_out(rng, lambda i, part: 4.0 if part == 1 and i >= since else 1.0)
    assert plant.diagnosed(tmp_path, rows).verdict.primary_cause == "deploy_regression"


def test_two_sorts_of_servers_are_no_slow_part(tmp_path: Path) -> None:
    """Half of the servers are of an older sort: no one of them is slower than all others."""
    rng = np.random.default_rng(26)
    rows = spread_out(rng, lambda i, part: 2.5 if part < 2 else 1.0, every_s=20.0)
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.scope is None


def test_a_replica_whose_cache_is_off_is_not_slow(tmp_path: Path) -> None:
    """Its prompts are computed again, and no count of cached tokens shows it."""
    rng = np.random.default_rng(27)
    rows, _ = plant.chats(
        rng, lambda t: 0 if t.replica == 1 else t.history, replicas=4, sessions=60, turns=10
    )
    for r in rows:
        del r["cached_tokens"]
    assert plant.diagnosed(tmp_path, rows).verdict.primary_cause != "fixed_overhead"
