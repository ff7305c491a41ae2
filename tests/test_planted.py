"""Logs of the simulator, whose causes are known: what the benchmark measures at length, in short.

Each case was once wrong. What is asserted is the name of the cause, and the evidence that told it.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

import ttftdoctor
from ttftdoctor import simulator

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "diagnosis"))
import score

WEKA = Path(__file__).parents[2] / "shared" / "real" / "agentic_traces_weka"
needs_weka = pytest.mark.skipif(not WEKA.exists(), reason="the real traces are not here")


@cache
def served(scenario: str, seed: int) -> simulator.Run:
    return simulator.serve(simulator.load(scenario), seed)


def diagnosed(
    folder: Path, scenario: str, seed: int = 1, detail: str = "full"
) -> ttftdoctor.Diagnosis:
    path = folder / f"{scenario}.{detail}.jsonl"
    simulator.write_log(served(scenario, seed), path, detail)
    return ttftdoctor.diagnose(str(path))


def said(diagnosis: ttftdoctor.Diagnosis) -> str:
    """Everything that is said for the causes."""
    return " ".join(s.text for f in diagnosis.causes for s in f.evidence)


@pytest.mark.parametrize(
    ("scenario", "detail"),
    [
        ("affinity_random", "full"),
        ("busting_each_turn", "full"),
        ("cold_idle_unload", "full"),
        ("cold_restarts", "full"),  # seven of them, each as long as the others
        ("decode_slots", "full"),
        ("eviction_capacity", "full"),
        ("eviction_expiry", "no_queue"),
        ("fault_not_streamed", "client"),
        ("fixed_one_route", "client"),
        ("healthy_busy", "client"),
        ("healthy_fleet", "no_sessions"),
        ("organic_rag", "full"),
        ("queueing_new_content", "client"),
        ("repeated_prefix_agents", "client"),
        ("repeated_prefix_no_reuse", "no_sessions"),
        ("repeated_prefix_peak", "client"),
    ],
)
def test_the_planted_cause_is_named(tmp_path: Path, scenario: str, detail: str) -> None:
    found = diagnosed(tmp_path, scenario, 1 if scenario != "repeated_prefix_agents" else 5, detail)
    truth = served(scenario, 1).truth()["causes"]
    assert found.verdict.primary_cause == truth["primary"], found.verdict.headline


# --- a release ----------------------------------------------------------------------------------


def test_a_release_gets_a_line_of_its_own(tmp_path: Path) -> None:
    """The later cost is laid to the release, and not to long prompts or a queue."""
    found = diagnosed(tmp_path, "release_single_shot")
    assert found.verdict.primary_cause == "deploy_regression"
    run = served("release_single_shot", 1)
    change = next(f for f in found.causes if f.id == "deploy_regression")
    organic = next(f for f in found.causes if f.id == "organic_long_input")
    mean = run.levels()["mean"]
    assert mean is not None
    assert (change.seconds or 0) + (organic.seconds or 0) < 1.05 * mean
    # Prefill that takes ``factor`` times as long since half of the log: that much of it is new.
    gone = simulator.serve(simulator.load("release_single_shot"), 1, "rollback").levels()["mean"]
    assert gone is not None
    assert change.seconds == pytest.approx(mean - gone, rel=0.2)
    lines = found.cost_lines.by_model
    assert len(lines) == 2
    assert lines[0].ms_per_1k_tokens != pytest.approx(lines[1].ms_per_1k_tokens, rel=0.3)


def test_a_release_that_changes_nothing_is_no_cause(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "healthy_release")
    assert found.verdict.primary_cause == "healthy"
    assert found.cost_lines.by_model == ()


# --- prompts that change ------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["busting_clock", "busting_each_few_turns"])
def test_blocks_show_that_the_prompt_changed(tmp_path: Path, scenario: str) -> None:
    found = diagnosed(tmp_path, scenario, 1, "blocks")
    assert found.verdict.primary_cause == "cache_busting_prefix"
    assert "the blocks of the prompt differ" in said(found)


def test_misses_that_keep_time_with_a_clock(tmp_path: Path) -> None:
    """Without blocks: just the turns after a minute has passed miss, however short the pause."""
    found = diagnosed(tmp_path, "busting_clock", 1)
    assert found.verdict.primary_cause == "cache_busting_prefix"
    assert "a clock of 60.0 s ticked" in said(found) or "a clock of 60 s ticked" in said(found)


def test_entries_that_expire_are_no_changing_prompt(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "eviction_expiry", 1, "blocks")
    assert found.verdict.primary_cause == "cache_eviction"


# --- starts -------------------------------------------------------------------------------------


def test_replicas_that_join_while_they_load(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "cold_scale_up")
    assert found.verdict.primary_cause == "cold_start"
    cold = next(f for f in found.causes if f.id == "cold_start")
    true = served("cold_scale_up", 1).truth()["accounts_mean_s"]["true_cold_s"]
    assert cold.seconds == pytest.approx(true, rel=0.1)


def test_a_warm_up_is_no_illness(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "healthy_warm_up")
    assert found.verdict.primary_cause == "healthy"
    cold = next(f for f in found.causes if f.id == "cold_start")
    assert cold.status == "ruled_out"
    assert "warm-up" in (cold.ruled_out_because or "")


# --- the number itself --------------------------------------------------------------------------


def test_rows_in_two_units(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "fault_unit_mixed")
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "1,000 times smaller than the rest" in found.verdict.headline


def test_what_nobody_notices_is_healthy(tmp_path: Path) -> None:
    """Most of 65 ms may well be unexplained."""
    assert diagnosed(tmp_path, "healthy_compaction").verdict.primary_cause == "healthy"


# --- where a cause is at home ---------------------------------------------------------------------


def chats(heads: int, sick: int) -> list[dict[str, Any]]:
    """Quiet chats with one of several system prompts; those with one of them are never cached."""
    rng = np.random.default_rng(5)
    rows = []
    for session in range(60):
        head, now, history = session % heads, float(rng.uniform(0, 7200)), 1024
        for turn in range(1, 8):
            inputs = history + int(rng.integers(600, 1400))
            blocks = [1000 * (head + 1) + i for i in range(16)]
            blocks += [10**6 * (session + 1) + i for i in range(inputs // 64 - 16)]
            hit = 0 if head == sick else (history // 64) * 64
            out = int(rng.integers(60, 200))
            ttft = 0.08 + 0.2 * (inputs - hit) / 1e3 + float(rng.normal(0, 0.003))
            rows.append(
                plant.row(now, inputs, out, ttft, session_id=f"s{session}", turn=turn,
                          cached_tokens=hit, prefix_blocks=blocks, block_tokens=64)
            )  # fmt: skip
            history = inputs + out
            now += ttft + 0.02 * out + float(rng.uniform(10, 40))
    return sorted(rows, key=lambda row: row["timestamp"])


def test_a_sick_prompt_head_is_named(tmp_path: Path) -> None:
    """No column names it, but the first block does."""
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, chats(5, 3))) + "\n")
    found = ttftdoctor.diagnose(str(path))
    assert found.verdict.family == "prefix"
    assert found.verdict.scope == {"prefix_group": "4000"}


def test_an_hour_of_queueing_is_named(tmp_path: Path) -> None:
    """All waits lie in one hour of five."""
    rng = np.random.default_rng(6)
    rows, free = [], 0.0
    usual, peak = rng.uniform(0, 18_000, 3000), rng.uniform(7300, 10_700, 1100)
    arrivals = [(now, 200, 900) for now in usual] + [(now, 5000, 15_000) for now in peak]
    for now, low, high in sorted(arrivals):
        inputs, out = int(rng.integers(low, high)), int(rng.integers(50, 400))
        work = 0.26 * inputs / 1e3
        begin = max(float(now), free)
        free = begin + work
        rows.append(plant.row(float(now), inputs, out, 0.06 + begin - float(now) + work))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    found = ttftdoctor.diagnose(str(path))
    assert found.verdict.primary_cause == "queueing_saturation"
    assert set(found.verdict.scope or {}) == {"hour"}


# --- a cache that works, whose hits are not free --------------------------------------------------


@needs_weka
def test_agentic_traces_blame_no_repeated_prefill() -> None:
    """A floor of two seconds, and hits that cost something, model by model."""
    found = ttftdoctor.diagnose(str(WEKA))
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.family != "prefix"
    assert "the prefix cache works" in said(found)
    assert "hits are not free" in said(found)
    assert found.repeated_prefix.repeated_tokens is not None
    share = found.repeated_prefix.repeated_tokens / found.repeated_prefix.input_tokens
    assert share == pytest.approx(0.96, abs=0.02)
    lines = {line.model: line for line in found.cost_lines.by_model}
    assert len(lines) >= 4
    for line in lines.values():
        assert line.from_cache == pytest.approx(1.0)
        assert "the cache works" in line.says
    dear = [line for line in lines.values() if line.ms_per_1k_context]
    assert len(dear) >= 2
    for line in dear:
        assert line.ms_per_1k_context < line.ms_per_1k_tokens + line.ms_per_1k_context


@needs_weka
def test_no_agentic_trace_alone_blames_the_prefix() -> None:
    for path in sorted(WEKA.rglob("*.json")):
        found = ttftdoctor.diagnose(str(path))
        assert found.verdict.family != "prefix", path.name


# --- the benchmark's own arithmetic --------------------------------------------------------------


def record(planted: str, named: str, confidence: float, **more: Any) -> dict[str, Any]:
    causes = {"primary": planted, "alternatives": more.pop("alike", [])}
    truth = {
        "causes": causes,
        "today": {"mean": 1.0, "p50": 1.0, "p95": 2.0},
        "accounts_mean_s": dict.fromkeys(sum(score.ACCOUNTS.values(), ()), 0.1),
    }
    return {
        "scenario": planted, "seed": 1, "detail": "full", "said": named, "truth": truth,
        "confidence": confidence, "remedies": [], "served": {}, **more,
    }  # fmt: skip


def test_the_scores_are_what_they_say() -> None:
    some = [
        record("healthy", "healthy", 0.9),
        record("healthy", "cold_start", 0.85),
        record("cold_start", "cold_start", 0.85),
        record("cache_eviction", "affinity_loss", 0.3),
        record("cache_eviction", "organic_long_input", 0.3, alike=["organic_long_input"]),
    ]
    text = score.report(some, misses=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["full", "5", "40.0 %", "60.0 %", "80.0 %", "50.0 %"] in rows
    assert ["80% to 90%", "2", "85.0 %", "50.0 %", "50.0 %"] in rows
    assert ["cold_start", "1", "100.0 %", "100.0 %", "2", "50.0 %", "50.0 %"] in rows


def test_the_error_of_a_gain_is_a_share_of_today() -> None:
    gain = {
        "id": "prefix_cache", "served": "prefix_cache", "ttft_mean_s": 0.6, "ttft_p95_s": 1.0,
        "gain_share": 0.4, "interval": [0.3, 0.5],
    }  # fmt: skip
    real = {"ttft_mean_s": 0.5, "ttft_p50_s": 0.5, "ttft_p95_s": 1.2, "gain_share": 0.5}
    one = record("cache_eviction", "cache_eviction", 0.9, remedies=[gain])
    one["served"] = {"prefix_cache": real}
    row = next(line for line in score.gains([one]).splitlines() if "prefix_cache" in line)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == [
        "prefix_cache", "1", "50.0 %", "10.0 %", "10.0 %", "10.0 %", "10.0 %", "10.0 %", "100.0 %",
    ]  # fmt: skip


def test_results_survive_being_written_down() -> None:
    one = record("healthy", "healthy", 0.9)
    assert score.report([json.loads(json.dumps(one))]) == score.report([one])
