"""Incidents retold from public reports: the cause that was found in the end must be named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ttftdoctor.diagnosis import DecodeLine, Diagnosis, PrefillLine
from ttftdoctor.run import diagnose

CASES = Path(__file__).parents[2] / "shared" / "cases"
NAMES = sorted(path.name.removesuffix(".expect.json") for path in CASES.glob("*.expect.json"))

pytestmark = pytest.mark.skipif(not NAMES, reason="the folder of cases is not here")


@cache
def expected(name: str) -> dict[str, Any]:
    return json.loads((CASES / f"{name}.expect.json").read_text())


@cache
def found(name: str) -> Diagnosis:
    return diagnose(str(CASES / f"{name}.jsonl"))


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the whole table once (shown with -s, or beside a failure)."""
    yield
    if not NAMES:
        return
    lines = ["", f"{'case':34} {'found':26} {'sure':>5}  expected"]
    for name in NAMES:
        d, e = found(name), expected(name)
        mark = " " if d.verdict.primary_cause == e["expected_primary"] else "~"
        if d.verdict.primary_cause in e["must_not_be_primary"]:
            mark = "!"
        lines.append(
            f"{name:34} {d.verdict.primary_cause:26} {d.verdict.confidence:5.2f} {mark}"
            f"{e['expected_primary']}"
        )
    print("\n".join(lines))


@pytest.mark.parametrize("name", NAMES)
def test_the_cause_is_the_one_that_was_found(name: str) -> None:
    e, d = expected(name), found(name)
    cause = d.verdict.primary_cause
    assert cause not in e["must_not_be_primary"], d.verdict.headline
    assert cause in (e["expected_primary"], *e["acceptable_alternates"]), d.verdict.headline


def test_at_most_two_are_only_acceptable() -> None:
    """An acceptable answer is not the best one."""
    second = [n for n in NAMES if found(n).verdict.primary_cause != expected(n)["expected_primary"]]
    assert len(second) <= 2, second


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_accounted_for(name: str) -> None:
    (one,) = found(name).inputs
    assert one.rows_read == expected(name)["rows"]
    assert one.rows_read == one.rows_used + sum(one.rows_rejected.values())


@pytest.mark.parametrize("name", [n for n in NAMES if expected(n).get("scope")])
def test_the_sick_part_is_named(name: str) -> None:
    """The values of the scope are those of the report; the columns have our names."""
    scope = found(name).verdict.scope
    sick = {v for k, v in expected(name)["scope"].items() if not k.startswith("healthy")}
    assert scope is not None
    assert set(scope.values()) <= sick


def figure(d: Diagnosis, name: str) -> float:
    """A figure of the evidence of the primary cause."""
    primary = next(f for f in d.causes if f.status == "primary")
    value = next(s.figures[name] for s in primary.evidence if name in s.figures)
    assert isinstance(value, (int, float))
    return float(value)


def prefill(d: Diagnosis) -> PrefillLine:
    assert d.cost_lines.prefill is not None
    return d.cost_lines.prefill


def decode(d: Diagnosis) -> DecodeLine:
    assert d.cost_lines.decode is not None
    return d.cost_lines.decode


def slope(d: Diagnosis, uncached: float, cached: float = 0.0) -> float:
    """ms a thousand uncached tokens, at so many of them (thousands)."""
    line = prefill(d)
    return line.ms_per_1k_tokens + (line.ms_per_1k_tokens_per_1k_context or 0.0) * (
        cached + uncached / 2
    )


def tpot_ms(d: Diagnosis, tokens_from: int) -> float:
    by = {s.key["input_tokens_from"]: s for s in d.splits.by_input_length}
    return 1e3 * (by[tokens_from].tpot_p50_s or 0.0)


#: Quantities of the reports that the document states, and where.
STATED: dict[tuple[str, str], Callable[[Diagnosis], float]] = {
    ("accelerator_plugin_upgrade", "ttft_before_ms"): lambda d: 1e3 * figure(d, "before_p50_s"),
    ("accelerator_plugin_upgrade", "ttft_after_ms"): lambda d: 1e3 * figure(d, "after_p50_s"),
    ("attribution_line_pins_cache", "cached_floor_tokens"): lambda d: figure(d, "stuck_at_tokens"),
    ("attribution_line_pins_cache", "prefill_slope_ms_per_1k_uncached_tokens"): lambda d: slope(
        d, 11.7, 16.3
    ),
    ("batch_prefill_collapses_ttft", "single_ttft_ms"): lambda d: 1e3 * figure(d, "alone_p50_s"),
    ("batch_prefill_collapses_ttft", "last_of_four_ttft_ms"): lambda d: (
        1e3 * figure(d, "busy_p50_s")
    ),
    ("concurrency_ladder_queue", "ttft_idle_s"): lambda d: figure(d, "alone_p50_s"),
    ("concurrency_ladder_queue", "decode_ms_per_token_c1"): lambda d: decode(d).ms_per_token,
    ("concurrency_ladder_queue", "decode_ms_per_token_c64"): lambda d: (
        decode(d).ms_per_token + 63 * (decode(d).slope_per_running_ms or 0.0)
    ),
    ("dead_upstream_then_fallback", "failed_attempt_wait_s"): lambda d: figure(d, "retried_p50_s"),
    ("gateway_adds_five_seconds", "constant_overhead_s"): lambda d: figure(d, "constant_s"),
    ("gateway_adds_five_seconds", "direct_ttft_s"): lambda d: figure(d, "best_level_s"),
    ("hidden_replicas_random_cold", "prefill_slope_ms_per_1k_uncached_tokens"): lambda d: slope(
        d, 20
    ),
    ("idle_gap_cache_expiry", "miss_rate_gap_over_60_min"): lambda d: figure(d, "miss_after"),
    ("idle_gap_cache_expiry", "expiry_minutes"): lambda d: figure(d, "expiry_s") / 60,
    ("idle_unload_reload", "warm_s"): lambda d: figure(d, "warm_p50_s"),
    ("idle_unload_reload", "reload_from_page_cache_s"): lambda d: figure(d, "cold_p50_s"),
    ("idle_unload_reload", "idle_threshold_s"): lambda d: figure(d, "idle_s"),
    ("isl_sweep_single_stream", "prefill_slope_ms_per_1k_tokens_to_16k"): lambda d: slope(d, 16),
    ("isl_sweep_single_stream", "decode_ms_per_token_short"): lambda d: tpot_ms(d, 0),
    ("isl_sweep_single_stream", "decode_ms_per_token_32k"): lambda d: tpot_ms(d, 32_000),
    ("milliseconds_read_as_seconds", "unit_factor"): lambda d: figure(d, "factor"),
    ("mlx_hybrid_two_turn", "prefill_slope_ms_per_1k_tokens"): lambda d: slope(d, 9.9),
    ("multiturn_healthy_reuse", "prefill_slope_ms_per_1k_new_tokens"): lambda d: slope(d, 1),
    ("multiturn_no_reuse", "prefill_slope_ms_per_1k_tokens"): lambda d: slope(d, 17),
    ("multiturn_no_reuse", "intercept_ms"): lambda d: prefill(d).fixed_ms,
    ("multiturn_no_reuse", "decode_ms_per_token"): lambda d: decode(d).ms_per_token,
    ("only_a_number", "ttft_s"): lambda d: d.population.ttft_p50_s or 0.0,
    ("per_second_timestamp_head", "token_hit_ratio"): lambda d: float(
        d.repeated_prefix.cached_tokens or 0
    ),
    ("per_second_timestamp_head", "prefill_slope_ms_per_1k_uncached_tokens"): lambda d: slope(
        d, 55
    ),
    ("reasoning_counted_as_wait", "decode_ms_per_token"): lambda d: figure(d, "ms_per_token"),
}


@pytest.mark.parametrize(("name", "quantity"), sorted(STATED) if NAMES else [])
def test_a_quantity_of_the_report_is_found(name: str, quantity: str) -> None:
    wanted = expected(name)["quantities"][quantity]
    value = STATED[name, quantity](found(name))
    assert value == pytest.approx(wanted["value"], rel=max(wanted["rel_tol"], 1e-9), abs=1e-9)
