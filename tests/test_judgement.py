"""Faults of judgement that were found and mended; each log here once got a wrong verdict."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest
from reading import SAMPLES

import ttftdoctor
from ttftdoctor.catalog import causes
from ttftdoctor.examine import examine

Rng = np.random.Generator
Row = dict[str, Any]


def written(tmp_path: Path, rows: list[Row]) -> str:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


def verdict(tmp_path: Path, rows: list[Row]) -> ttftdoctor.Diagnosis:
    return ttftdoctor.diagnose(written(tmp_path, rows))


def chat(
    rng: Rng, cached: Callable[[int, int, int], int], *, sessions: int = 30, turns: int = 8
) -> list[Row]:
    """Quiet sessions; ``cached(session, turn, history)`` says what the cache holds of a turn."""
    rows = []
    for session in range(sessions):
        history, now = 0, float(rng.uniform(0, 5000))
        for turn in range(1, turns + 1):
            inputs = history + int(rng.integers(600, 1400))
            hit = min(cached(session, turn, history), inputs)
            ttft = 0.08 + 0.1 * (inputs - hit) / 1e3 + float(rng.normal(0, 0.003))
            out = int(rng.integers(60, 200))
            rows.append(
                plant.row(now, inputs, out, ttft, session_id=f"s{session}", turn=turn,
                          cached_tokens=hit)
            )  # fmt: skip
            history = inputs + out
            now += ttft + 0.02 * out + float(rng.uniform(10, 40))
    return sorted(rows, key=lambda r: r["timestamp"])


def test_a_prompt_that_changes_at_a_place_of_its_own_in_each_session(tmp_path: Path) -> None:
    """The stuck place differs by session, so no one number stands out in the log."""
    rng = np.random.default_rng(1)
    place = {s: int(rng.integers(2, 40)) * 16 for s in range(30)}
    rows = chat(rng, lambda s, turn, history: min(place[s], history))
    assert verdict(tmp_path, rows).verdict.primary_cause == "cache_busting_prefix"


def test_eviction_behind_a_shared_system_prompt_is_no_changing_prompt(tmp_path: Path) -> None:
    """Misses all end at the system prompt, but the same sessions also hit deep."""
    rng = np.random.default_rng(2)

    def cached(session: int, turn: int, history: int) -> int:
        if history == 0:
            return 0
        return 592 if rng.random() < 0.7 else history // 16 * 16

    found = verdict(tmp_path, chat(rng, cached)).verdict
    assert found.primary_cause in ("cache_eviction", "affinity_loss")


def test_a_history_cut_at_its_head_busts_the_prefix(tmp_path: Path) -> None:
    """A window that rolls: once the prompt stops growing, nothing behind the cut is reused."""
    rng = np.random.default_rng(3)
    rows = []
    for session in range(30):
        history, now = 0, float(rng.uniform(0, 5000))
        for turn in range(1, 13):
            whole = history + int(rng.integers(600, 1400))
            inputs = min(whole, 6000)
            hit = history if whole <= 6000 else 400
            ttft = 0.08 + 0.1 * (inputs - hit) / 1e3
            rows.append(
                plant.row(now, inputs, 100, ttft, session_id=f"s{session}", turn=turn,
                          cached_tokens=hit)
            )  # fmt: skip
            history = inputs + 100
            now += 30.0
    rows.sort(key=lambda r: r["timestamp"])
    assert verdict(tmp_path, rows).verdict.primary_cause == "cache_busting_prefix"


def test_a_server_that_restarts_in_mid_log_is_a_cold_start(tmp_path: Path) -> None:
    """Clients stand in line while it loads, and their caches are gone when it is back."""
    rng = np.random.default_rng(4)
    rows = chat(rng, lambda s, turn, history: history, sessions=80)
    for down in (900.0, 2100.0, 3300.0, 4200.0):
        back, emptied = down + 25, set()
        for r in rows:
            at = r["timestamp"] - plant.EPOCH_S
            if at < down or r["session_id"] in emptied:
                continue
            emptied.add(r["session_id"])
            extra = max(back - at, 0.0) + 0.1 * r["cached_tokens"] / 1e3
            r["cached_tokens"] = 0
            plant.slower(r, extra)
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "cold_start"


def test_delays_of_one_size_are_a_timer(tmp_path: Path) -> None:
    """A third of the requests are 5 s late whatever they are: not queueing, not unknown."""
    rng = np.random.default_rng(5)
    rows = chat(rng, lambda s, turn, history: history)
    for r in rows:
        if rng.random() < 0.3:
            r["ttft_ms"] += 5000.0
            r["latency_ms"] += 5000.0
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "fixed_overhead"
    assert "5.0" in found.verdict.headline or "5 s" in found.verdict.headline


def test_an_overload_is_no_constant(tmp_path: Path) -> None:
    """Hardly any request finds the server free; the queue must not be read as a constant."""
    rng = np.random.default_rng(6)
    now, free, rows = 0.0, 0.0, []
    for _ in range(400):
        now += float(rng.exponential(0.28))
        inputs = int(rng.integers(500, 5000))
        work = 0.05 + 0.1 * inputs / 1e3
        free = max(free, now) + work
        rows.append(plant.row(now, inputs, 100, free - now, session_id=None))
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "queueing_saturation"
    whole = next(r for r in found.ledger if r.group == "all")
    waits = sum(v for k, v in whole.accounts.items() if k.startswith("queue"))
    assert waits > 0.8 * whole.ttft_mean_s


def test_waiting_for_slots_is_waiting(tmp_path: Path) -> None:
    """Tiny prompts behind few slots: the wait is far more than the prefill that was ahead."""
    rng = np.random.default_rng(7)
    slots = [0.0] * 8
    now, rows = 0.0, []
    for _ in range(400):
        now += float(rng.exponential(0.9))
        slot = int(np.argmin(slots))
        start = max(now, slots[slot])
        inputs, out = int(rng.integers(100, 400)), int(rng.integers(200, 600))
        ttft = start - now + 0.05 + 0.1 * inputs / 1e3
        slots[slot] = now + ttft + 0.02 * (out - 1)
        rows.append(plant.row(now, inputs, out, ttft))
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause in ("queueing_saturation", "decode_contention")


@pytest.mark.parametrize("kind", ["uniform", "exponential", "falling"])
def test_noise_has_no_cause(tmp_path: Path, kind: str) -> None:
    """TTFT that follows nothing in the log must not be given a confident cause."""
    rng = np.random.default_rng(8)
    rows = []
    for i in range(300):
        inputs = int(rng.integers(100, 20_000))
        ttft = {
            "uniform": float(rng.uniform(0.01, 10)),
            "exponential": float(rng.exponential(0.8)) + 0.001,
            "falling": 2.0 - inputs * 8e-5 + float(rng.uniform(0, 0.01)),
        }[kind]
        rows.append(plant.row(2.0 * i, inputs, 100, ttft, session_id=f"s{i // 6}", turn=i % 6 + 1))
    found = verdict(tmp_path, rows).verdict
    assert found.primary_cause == "insufficient_data" or found.confidence <= 0.55


def test_without_sessions_nobody_knows_whether_long_prompts_repeat(tmp_path: Path) -> None:
    """The columns of the peak-hour log that say nothing of conversations: no claim of newness."""
    source = Path(__file__).parents[1] / "sample_logs" / "peak_hour.jsonl"
    rows = [
        {k: r[k] for k in ("ttft_ms", "input_tokens")}
        for r in map(json.loads, source.read_text().splitlines())
    ]
    found = verdict(tmp_path, rows).verdict
    assert found.confidence <= 0.6
    assert "repeats nothing" not in found.headline


@pytest.mark.parametrize("inputs", ["constant", "random"])
def test_a_session_id_that_names_no_conversation(tmp_path: Path, inputs: str) -> None:
    """One id for all, and inputs that do not grow: nothing is history."""
    rng = np.random.default_rng(9)
    rows = []
    for i in range(200):
        n = 4000 if inputs == "constant" else int(rng.integers(200, 8000))
        ttft = 0.1 + 0.1 * n / 1e3 + float(rng.normal(0, 0.003))
        rows.append(plant.row(3.0 * i, n, 50, ttft, session_id="default", cached_tokens=0))
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause != "repeated_prefix_no_reuse"
    assert not found.repeated_prefix.recomputed_tokens


def test_a_counter_that_is_always_zero_is_not_believed_over_the_timing(tmp_path: Path) -> None:
    """Cached tokens 0 everywhere, yet TTFT follows only what is new: the cache works."""
    rng = np.random.default_rng(10)
    rows = chat(rng, lambda s, turn, history: history)
    for r in rows:
        r["cached_tokens"] = 0
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "healthy"
    assert any("not reported" in note for note in found.evidence.notes)


def test_a_path_in_another_unit_is_no_slow_path(tmp_path: Path) -> None:
    """Rows of one service a thousand times the other's: a unit, not an overhead."""
    rng = np.random.default_rng(11)
    rows = []
    for i in range(200):
        inputs = int(rng.integers(200, 4000))
        ttft = 0.1 + 0.1 * inputs / 1e3
        other = i % 2 == 0
        r = plant.row(5.0 * i, inputs, 100, ttft, route="a" if other else "b")
        if other:
            r["ttft_ms"] = round(r["ttft_ms"] / 1e3, 6)
        rows.append(r)
    assert verdict(tmp_path, rows).verdict.primary_cause == "measurement_artifact"


def test_one_sick_replica_after_a_release(tmp_path: Path) -> None:
    """One of four replicas is three times slower since mid-log; the whole log hardly moves."""
    rng = np.random.default_rng(12)
    rows = []
    for i in range(600):
        inputs = int(rng.integers(300, 3000))
        pod = f"pod-{i % 4}"
        ttft = 0.1 + 0.1 * inputs / 1e3
        if pod == "pod-2" and i > 300:
            ttft *= 3
        rows.append(plant.row(6.0 * i, inputs, 100, ttft, replica=pod))
    found = verdict(tmp_path, rows)
    finding = next(f for f in found.causes if f.id == "deploy_regression")
    assert finding.status in ("primary", "contributing")
    assert "pod-2" in finding.evidence[0].text


@pytest.mark.parametrize("lost", [0.4, 1.0])
def test_a_replica_that_loses_its_cache_is_no_router_and_no_prompt(
    tmp_path: Path, lost: float
) -> None:
    """Sessions stay where they are; on one of three replicas most or all turns find nothing."""
    rng = np.random.default_rng(13)

    def cached(session: int, turn: int, history: int) -> int:
        gone = session % 3 == 2 and rng.random() < lost
        return 0 if gone else history // 16 * 16

    rows = chat(rng, cached, sessions=60, turns=24)
    for r in rows:
        r["replica"] = f"pod-{int(r['session_id'][1:]) % 3}"
    found = verdict(tmp_path, rows).verdict
    assert found.primary_cause in ("cache_eviction", "repeated_prefix_no_reuse")


def test_the_ledger_never_books_more_than_was_measured(tmp_path: Path) -> None:
    """A slope fitted to short prompts is refuted by one long prompt that was quick."""
    rng = np.random.default_rng(13)
    rows = [
        plant.row(9.0 * i, n, 100, 0.2 + 0.3 * n / 1e3)
        for i, n in enumerate(int(x) for x in rng.integers(100, 900, 30))
    ]
    rows.append(plant.row(500.0, 120_000, 100, 4.0))
    found = verdict(tmp_path, rows)
    whole = next(r for r in found.ledger if r.group == "all")
    assert whole.accounts["unexplained"] > -0.1 * whole.ttft_mean_s


def batch(
    rng: Rng, n: int, every: float, slots: int, *, gate: int | None = None, queue: bool = False
) -> list[Row]:
    """Short prompts and long answers in so many slots; a gate lets through fewer at a time."""
    free = [0.0] * (slots if gate is None else gate)
    now, rows = 0.0, []
    for _ in range(n):
        now += float(rng.exponential(every))
        slot = int(np.argmin(free))
        start = max(now, free[slot])
        inputs, out = int(rng.integers(100, 400)), int(rng.integers(200, 600))
        own = 0.05 + 0.1 * inputs / 1e3 + float(rng.normal(0, 0.002))
        row = plant.row(now, inputs, out, start - now + own)
        if queue:
            held = start - now if gate is None else 0.0
            row |= {"queue_ms": round(1e3 * held, 3), "prefill_ms": round(1e3 * own, 3)}
        free[slot] = start + own + 0.02 * (out - 1)
        rows.append(row)
    return rows


@pytest.mark.parametrize("queue", [False, True])
def test_slots_that_decoding_holds_are_no_queue_of_prefill(tmp_path: Path, queue: bool) -> None:
    """First tokens come when others end, and all slots were taken; with a queue time it is sure."""
    found = verdict(tmp_path, batch(np.random.default_rng(21), 400, 0.9, 8, queue=queue))
    assert found.verdict.primary_cause == "decode_contention"
    assert found.verdict.confidence >= 0.75
    whole = next(r for r in found.ledger if r.group == "all")
    assert whole.accounts["queue_other"] > 0.8 * whole.ttft_mean_s
    assert "end of another request" in " ".join(s.text for f in found.causes for s in f.evidence)


def test_a_gate_before_an_idle_server_is_a_matter_of_measuring(tmp_path: Path) -> None:
    """The clock starts before the client sends: the engine knows of no queue."""
    rows = batch(np.random.default_rng(22), 300, 2.0, 64, gate=4, queue=True)
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "before the request is at the server" in found.verdict.headline


def test_a_gate_that_cannot_be_seen_is_named_as_alike(tmp_path: Path) -> None:
    """Without the engine's queue time few slots and a gate look the same, and it is said."""
    rows = batch(np.random.default_rng(22), 300, 2.0, 64, gate=4)
    found = verdict(tmp_path, rows)
    cause = next(f for f in found.causes if f.id == "decode_contention")
    assert cause.status == "primary"
    assert "queue_us" in cause.needs
    assert any("client" in s.text for s in cause.evidence)
    assert found.verdict.confidence <= 0.8


def stepped(rng: Rng, n: int, every: float, per_running: float) -> list[Row]:
    """A first token takes half a step and one more; a step takes longer with more that decode."""
    now, ends, rows = 0.0, [], []
    for _ in range(n):
        now += float(rng.exponential(every))
        ends = [end for end in ends if end > now]
        step = 0.02 + per_running * len(ends)
        inputs, out = int(rng.integers(50, 800)), int(rng.integers(200, 500))
        wait = step * (1 + float(rng.uniform())) if ends else 0.0
        ttft = 0.02 + 0.02 * inputs / 1e3 + wait
        row = plant.row(now, inputs, out, ttft)
        row["latency_ms"] = round(1e3 * (ttft + step * (out - 1)), 3)
        ends.append(now + ttft + step * (out - 1))
        rows.append(row)
    return rows


def test_slow_steps_are_decoding_and_no_constant(tmp_path: Path) -> None:
    """Steps that slow down with those who share them are what first tokens wait for."""
    found = verdict(tmp_path, stepped(np.random.default_rng(23), 500, 0.9, 0.002))
    assert found.verdict.primary_cause == "decode_contention"
    whole = next(r for r in found.ledger if r.group == "all")
    assert whole.accounts["queue_other"] > 0.5 * whole.ttft_mean_s
    assert whole.accounts["fixed"] < 0.4 * whole.ttft_mean_s


def test_steps_that_do_not_slow_down_are_no_contention(tmp_path: Path) -> None:
    """Any batching server decodes in the steps that first tokens come from."""
    found = verdict(tmp_path, stepped(np.random.default_rng(24), 500, 2.0, 0.0))
    assert found.verdict.primary_cause == "healthy"


@pytest.mark.parametrize("seed", range(4))
def test_a_wait_for_each_that_decodes(tmp_path: Path, seed: int) -> None:
    """Each request that decodes costs a newcomer 0.1 s, and hardly anybody prefills."""
    rng = np.random.default_rng(seed)
    now, rows, ends, extra = 0.0, [], [], []
    for i in range(400):
        now += float(rng.exponential(0.5 if i // 50 % 2 else 12.0))
        inputs, out = int(rng.integers(100, 700)), int(rng.integers(60, 400))
        extra.append(0.1 * sum(end > now for end in ends))
        own = plant.FIXED_S + plant.PER_1K_S * inputs / 1e3
        ttft = (own + extra[-1]) * (1 + 0.02 * float(rng.standard_normal()))
        rows.append(plant.row(now, inputs, out, ttft))
        ends.append(now + rows[-1]["latency_ms"] / 1e3)
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "decode_contention"
    cause = next(f for f in found.causes if f.id == "decode_contention")
    assert cause.seconds == pytest.approx(float(np.mean(extra)), rel=0.4)


def test_too_few_requests_ask_for_more_of_the_log_and_not_for_columns(tmp_path: Path) -> None:
    lines = (SAMPLES / "peak_hour.jsonl").read_text().splitlines()[:3]
    path = tmp_path / "three.jsonl"
    path.write_text("\n".join(lines) + "\n")
    verdict = ttftdoctor.diagnose(str(path)).verdict
    assert verdict.primary_cause == "insufficient_data"
    assert verdict.next_steps[0].startswith("Give more of the log")


def skewed(rng: Rng, apart_s: float, *, n: int = 200) -> list[Row]:
    """Healthy requests whose first token is stamped by a clock that is ``apart_s`` behind."""
    rows = plant.singles(rng, n, 20.0)
    for r in rows:
        r["ttft_ms"] = round(r["ttft_ms"] - 1e3 * apart_s, 2)
    return rows


@pytest.mark.parametrize("apart_s", [0.12, 0.2, 0.3])
def test_first_tokens_before_their_requests_are_of_another_clock(
    tmp_path: Path, apart_s: float
) -> None:
    """The rows that survive are those that waited longer than the clocks are apart."""
    rows = skewed(np.random.default_rng(25), apart_s)
    negative = sum(r["ttft_ms"] < 0 for r in rows)
    assert 10 <= negative < 190
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "before the request" in found.verdict.headline
    assert "one clock" in found.verdict.next_steps[0]
    (read,) = found.inputs
    assert read.rows_rejected == {"negative_ttft": negative}
    assert read.rows_read == read.rows_used + negative


def test_few_first_tokens_before_their_requests_are_a_warning(tmp_path: Path) -> None:
    rows = skewed(np.random.default_rng(26), 0.0)
    for r in rows[:4]:
        r["ttft_ms"] = -3.5
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "healthy"
    assert any("before the request" in text for text in found.warnings)


def test_few_of_all_are_few_also_where_few_rows_are_asked_for(tmp_path: Path) -> None:
    rows = skewed(np.random.default_rng(26), 0.0)
    for i, r in enumerate(rows):
        r["route"] = "a" if i % 5 else "b"
        if i < 8:
            r["ttft_ms"] = -3.5
    only = ttftdoctor.Only(where="route == 'b'")
    found = ttftdoctor.diagnose(written(tmp_path, rows), only=only)
    assert found.verdict.primary_cause == "healthy"


@pytest.mark.parametrize("unset", [-1, -1000, -1.7e12])
def test_marks_of_stamps_that_were_never_set_tell_of_no_clock(tmp_path: Path, unset: float) -> None:
    """Nor do the odd times of requests that failed."""
    rows = skewed(np.random.default_rng(27), 0.0)
    for r in rows[::4]:
        r["ttft_ms"] = unset
    for r in rows[1::4]:
        r.update(ttft_ms=-250.5, status="error")
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "healthy"
    assert not any("before the request" in text for text in found.warnings)


def answers(
    rng: Rng, n: int, outs: tuple[int, int], *, held: int = 1, whole_below: int = 0
) -> list[Row]:
    """A streaming service on whose way the first ``held`` tokens are kept until all are there.

    Answers of less than ``whole_below`` tokens are not streamed at all.
    """
    rows = []
    for i in range(n):
        inputs = int(rng.integers(200, 2500))
        out = int(np.exp(rng.uniform(*np.log(outs))))
        step = 0.03 * (1 + 0.03 * float(rng.standard_normal()))
        first = 0.09 + 0.1 * inputs / 1e3 * (1 + 0.03 * float(rng.standard_normal()))
        end = first + step * (out - 1)
        ttft = end if out < whole_below else min(first + step * (held - 1), end)
        r = plant.row(15.0 * i, inputs, out, ttft)
        r["latency_ms"] = round(1e3 * end + 2, 2)
        rows.append(r)
    return rows


@pytest.mark.parametrize("outs", [(20, 400), (30, 1000), (90, 900)])
def test_a_buffer_on_the_way_is_no_constant(tmp_path: Path, outs: tuple[int, int]) -> None:
    """The first 60 tokens come together: short answers whole, long ones after 1.8 s."""
    found = verdict(tmp_path, answers(np.random.default_rng(28), 160, outs, held=60))
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "buffer" in found.verdict.headline
    assert "proxy_buffering" in found.verdict.next_steps[0]
    assert found.verdict.scope is None


@pytest.mark.parametrize("outs", [(12, 150), (30, 500), (100, 900)])
def test_a_buffer_on_one_path(tmp_path: Path, outs: tuple[int, int]) -> None:
    """Later to the first token than the other path, and no later to the last."""
    rng = np.random.default_rng(29)
    rows = answers(rng, 90, outs, held=60) + answers(rng, 60, outs)
    for i, r in enumerate(rows):
        r["route"] = "gateway" if i < 90 else "direct"
        r["timestamp"] = plant.EPOCH_S + 15.0 * int(rng.integers(5000))
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert found.verdict.scope == {"route": "gateway"}
    assert "proxy_buffering" in found.verdict.next_steps[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_buffer_on_one_path_where_steps_differ_much(tmp_path: Path, seed: int) -> None:
    """Each request decodes at a speed of its own, and the buffer counts bytes, not tokens."""
    rng = np.random.default_rng([38, seed])
    rows = []
    for i in range(150):
        inputs, out = int(rng.integers(200, 3000)), int(300 * np.exp(0.7 * rng.standard_normal()))
        step = 0.03 * float(np.exp(0.15 * rng.standard_normal()))
        first = 0.1 + 0.1 * inputs / 1e3
        held = int(rng.normal(60, 8)) if i % 2 else 1
        r = plant.row(9.0 * i, inputs, out, first + step * (min(held, out) - 1))
        r["latency_ms"] = round(1e3 * (first + step * (out - 1)), 2)
        rows.append({**r, "route": "gateway" if i % 2 else "direct"})
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert found.verdict.scope == {"route": "gateway"}


def test_a_path_that_costs_a_constant_to_the_end_holds_nothing_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(30)
    rows = answers(rng, 160, (20, 400))
    for i, r in enumerate(rows):
        r["route"] = "gateway" if i % 2 else "direct"
        plant.slower(r, 1.8 if i % 2 else 0.0)
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"route": "gateway"}


def test_a_constant_that_all_pay_is_no_buffer(tmp_path: Path) -> None:
    rows = answers(np.random.default_rng(31), 160, (20, 400))
    for r in rows:
        plant.slower(r, 1.8)
    assert verdict(tmp_path, rows).verdict.primary_cause == "fixed_overhead"


def test_short_answers_that_come_whole_are_no_buffer(tmp_path: Path) -> None:
    """Calls of tools are often sent when complete; long answers tell that nothing is held."""
    found = verdict(tmp_path, answers(np.random.default_rng(32), 200, (20, 900), whole_below=45))
    assert not any("buffer on the way holds" in s.text for f in found.causes for s in f.evidence)


def test_steps_that_grow_with_the_answer_are_no_buffer(tmp_path: Path) -> None:
    """The line of a bent curve meets the axis at a hundred tokens; none of them is held back."""
    rng = np.random.default_rng(33)
    rows = answers(rng, 200, (60, 4000))
    for r in rows:
        plant.slower(r, 2.5)
        r["latency_ms"] += 4e-3 * r["completion_tokens"] ** 2
    assert verdict(tmp_path, rows).verdict.primary_cause == "fixed_overhead"


def alone(
    rng: Rng, n: int, ttft: Callable[[int], float], step: Callable[[int], float],
    outs: tuple[int, int] = (40, 400), behind: Callable[[int], float] = lambda inputs: 0.0,
) -> list[Row]:  # fmt: skip
    """Requests on an idle server; what a first token, each further one and the gap between cost."""
    rows = []
    for i in range(n):
        inputs = int(np.exp(rng.uniform(np.log(400), np.log(30_000))))
        out = int(rng.integers(*outs)) if outs[0] < outs[1] else outs[0]
        noise = 1 + 0.05 * rng.standard_normal(3)
        r = plant.row(20.0 * i, inputs, out, 0.0)
        first = ttft(inputs) * float(noise[0])
        rest = (out - 1) * step(inputs) * float(noise[1]) + behind(inputs) * float(noise[2])
        r.update(ttft_ms=round(1e3 * first, 4), latency_ms=round(1e3 * (first + rest), 2))
        rows.append(r)
    return rows


@pytest.mark.parametrize("chunk_s", [0.004, 0.02, 0.15])
def test_an_empty_first_chunk_is_no_token(tmp_path: Path, chunk_s: float) -> None:
    """The chunk that names the role comes at once, and prefill after it."""
    rows = alone(
        np.random.default_rng(34), 150, lambda n: chunk_s, lambda n: 0.021,
        behind=lambda n: 0.15 + 0.25 * n / 1e3,
    )  # fmt: skip
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "prefill comes after" in found.verdict.headline
    assert "role" in found.verdict.next_steps[0]


@pytest.mark.parametrize("outs", [(40, 400), (128, 128)])
def test_seconds_under_the_name_of_milliseconds(tmp_path: Path, outs: tuple[int, int]) -> None:
    """A first token in a twentieth of a step, also where all answers are of one length."""
    rows = alone(
        np.random.default_rng(35), 80, lambda n: 2e-4 + 2e-7 * n, lambda n: 0.03, outs,
        behind=lambda n: 0.2 + 2e-4 * n,
    )  # fmt: skip
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "measurement_artifact"
    assert "another unit" in found.verdict.headline


@pytest.mark.parametrize(
    ("ttft", "step", "behind"),
    [
        pytest.param(
            lambda n: 0.05, lambda n: 0.01 + 1e-6 * n, lambda n: 0.0,
            id="cached but not counted, and each step reads the context",
        ),
        pytest.param(
            lambda n: 0.003 + 4e-7 * n, lambda n: 0.004, lambda n: 0.0, id="a tiny model",
        ),
        pytest.param(
            lambda n: 0.05 + 6e-6 * n, lambda n: 0.02, lambda n: 2e-5 * n,
            id="what was computed is sent to another server for decoding",
        ),
    ],
)  # fmt: skip
def test_quick_first_tokens_are_believed(
    tmp_path: Path, ttft: Callable[[int], float], step: Callable[[int], float],
    behind: Callable[[int], float],
) -> None:  # fmt: skip
    rows = alone(np.random.default_rng(36), 200, ttft, step, behind=behind)
    assert verdict(tmp_path, rows).verdict.primary_cause != "measurement_artifact"


def test_first_tokens_of_cached_prompts_may_be_quicker_than_a_step(tmp_path: Path) -> None:
    """Of a prompt that is all cached next to nothing is computed, and a step may serve many."""
    rows = alone(np.random.default_rng(37), 200, lambda n: 0.003, lambda n: 0.04)
    for r in rows:
        r["cached_tokens"] = r["prompt_tokens"] - 20
    assert verdict(tmp_path, rows).verdict.primary_cause == "healthy"


def flagged(rng: Rng, n: int = 140) -> list[Row]:
    """A flag costs three seconds and makes the prompt longer; nearly all of it is cached."""
    rows = []
    for i in range(n):
        flag = int(rng.choice([0, 0, 1, 8, 60]))
        inputs = 15_456 + flag * 60 + int(rng.integers(0, 300))
        cached = (15_456 + flag * 60) // 64 * 64
        ttft = 0.75 * float(rng.normal(1, 0.06)) + (3 * float(rng.normal(1, 0.06)) if flag else 0)
        rows.append(plant.row(20.0 * i, inputs, 100, ttft, cached_tokens=cached))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_two_levels_are_no_price_of_a_few_new_tokens(tmp_path: Path, seed: int) -> None:
    """Some 200 tokens are new: the steepest line through two levels is no prefill of seconds."""
    found = verdict(tmp_path, flagged(np.random.default_rng(seed)))
    organic = next(f for f in found.causes if f.id == "organic_long_input")
    assert organic.status == "ruled_out"
    assert found.verdict.primary_cause in ("fixed_overhead", "insufficient_data")
    assert found.cost_lines.prefill is not None
    assert found.cost_lines.prefill.ms_per_1k_tokens < 1000


def test_a_slow_server_may_take_seconds_for_few_tokens(tmp_path: Path) -> None:
    """The neighbour: 250 tokens a second without an accelerator, and TTFT follows the tokens."""
    rng = np.random.default_rng(5)
    rows = [
        plant.row(30.0 * i, n, 80, 0.1 + n * 0.004 * float(rng.normal(1, 0.05)), cached_tokens=0,
                  session_id=f"s{i}")
        for i, n in enumerate(int(v) for v in rng.integers(150, 1400, 150))
    ]  # fmt: skip
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "organic_long_input"
    assert found.cost_lines.prefill is not None
    assert found.cost_lines.prefill.ms_per_1k_tokens == pytest.approx(4000, rel=0.1)


def test_what_cached_context_costs_is_not_called_new(tmp_path: Path) -> None:
    """Entries are loaded from a slow store: TTFT follows the cached tokens, not the new ones."""
    rng = np.random.default_rng(6)
    rows, now = [], 0.0
    for session in range(30):
        history = 0
        for _ in range(8):
            new = int(rng.integers(1500, 6000))
            ttft = 0.1 + new * 1e-4 + history * 1.5e-4 * float(rng.normal(1, 0.03))
            rows.append(plant.row(now, history + new, 50, ttft, session_id=f"s{session}",
                                  cached_tokens=history))  # fmt: skip
            history += new
            now += ttft + 20
    found = verdict(tmp_path, rows)
    assert "repeats nothing" not in found.verdict.headline
    organic = next(f for f in found.causes if f.id == "organic_long_input")
    spoken = [s for s in organic.evidence if "cached context" in s.text]
    price = 1.5e-4 * np.mean([r["cached_tokens"] for r in rows])
    assert spoken[0].figures["context_s"] == pytest.approx(price, rel=0.15)


@pytest.mark.parametrize("seed", range(2))
def test_a_line_that_tells_little_is_not_believed_much(tmp_path: Path, seed: int) -> None:
    """Some 2,000 new tokens, but a flag decides: what could be told, and is not, counts."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(160):
        flag, new = int(rng.choice([0, 0, 1, 8, 60])), int(rng.integers(1500, 2500))
        cached = (15_456 + flag * 60) // 64 * 64
        ttft = 0.75 * float(rng.normal(1, 0.06)) + (3 * float(rng.normal(1, 0.06)) if flag else 0)
        rows.append(plant.row(20.0 * i, cached + new, 100, ttft, cached_tokens=cached))
    found = verdict(tmp_path, rows)
    organic = next(f for f in found.causes if f.id == "organic_long_input")
    assert organic.confidence <= 0.5
    assert any("something else moves TTFT" in s.text for s in organic.evidence)


def told(rows: list[Row], queue: list[float], prefill: list[float]) -> list[Row]:
    """The same with the times that the engine tells of itself."""
    for r, q, p in zip(rows, queue, prefill, strict=True):
        r["queue_time_ms"], r["prefill_time_ms"] = round(1e3 * q, 2), round(1e3 * p, 2)
    return rows


def test_what_the_server_says_prefill_took_bounds_it(tmp_path: Path) -> None:
    """Most of TTFT is the way of the entries to another server, which grows with the prompt."""
    rng = np.random.default_rng(7)
    lengths = [int(v) for v in rng.integers(2500, 16_000, 160)]
    prefill = [0.03 + n * 3e-5 for n in lengths]
    rows = [
        plant.row(6.0 * i, n, 100, p + 0.05 + n * 2.1e-4 * float(rng.normal(1, 0.06)))
        for i, (n, p) in enumerate(zip(lengths, prefill, strict=True))
    ]
    found = verdict(tmp_path, told(rows, [0.001] * 160, prefill))
    accounts = found.ledger[0].accounts
    assert accounts["prefill_new"] == pytest.approx(float(np.mean(prefill)), rel=0.05)
    assert found.verdict.primary_cause == "insufficient_data"
    reasons = next(f for f in found.causes if f.id == "insufficient_data").evidence
    assert any("before or outside the engine" in s.text for s in reasons)


def test_prefill_times_that_agree_with_the_line_change_nothing(tmp_path: Path) -> None:
    """The neighbour: long documents, and the server says that prefill is what takes so long."""
    rng = np.random.default_rng(8)
    lengths = [int(v) for v in rng.integers(2500, 30_000, 160)]
    prefill = [n * 2.4e-4 * float(rng.normal(1, 0.04)) for n in lengths]
    rows = [
        plant.row(30.0 * i, n, 100, p + 0.06, cached_tokens=0, session_id=f"s{i}")
        for i, (n, p) in enumerate(zip(lengths, prefill, strict=True))
    ]
    found = verdict(tmp_path, told(rows, [0.001] * 160, prefill))
    assert found.verdict.primary_cause == "organic_long_input"


@pytest.mark.parametrize("inside", [False, True])
def test_the_engine_tells_where_the_queue_is(tmp_path: Path, inside: bool) -> None:
    """One lane before the engine, or the engine's own: both queue, but not in the same place."""
    rng = np.random.default_rng(9)
    rows, queue, prefill = [], [], []
    now = free = 0.0
    for i in range(300):
        now += float(rng.exponential(0.9 if i // 50 % 2 else 3.0))
        n = int(rng.integers(2000, 16_000))
        lane, own = n * 1e-4 * float(rng.normal(1, 0.03)), n * 2e-5
        wait = max(0.0, free - now)
        free = now + wait + lane
        rows.append(plant.row(now, n, 60, wait + lane + (0.0 if inside else own) + 0.03))
        queue.append(wait + 1e-4 if inside else 0.002 + 0.001 * float(rng.random()))
        prefill.append(lane if inside else own)
    found = verdict(tmp_path, told(rows, queue, prefill))
    accounts = found.ledger[0].accounts
    cause = next(f for f in found.causes if f.id == "queueing_saturation")
    assert found.verdict.primary_cause == "queueing_saturation"
    assert any("before or outside" in s.text for s in cause.evidence) is not inside
    if inside:
        assert accounts["queue_behind_new"] > 0.8 * float(np.mean(queue))
    else:
        assert accounts["queue_behind_new"] < 0.05
        assert accounts["prefill_new"] == pytest.approx(float(np.mean(prefill)), rel=0.05)


def closed(rng: Rng, n: int, slots: int, clients: int) -> list[Row]:
    """Clients that ask again when they are answered, one lane of prefill, and so many slots."""
    asks = [(0.01 * i, i) for i in range(clients)]
    ends: list[float] = []
    free, rows = 0.0, []
    while len(rows) < n:
        now, who = heapq.heappop(asks)
        start = max(now, free)
        while ends and ends[0] <= start:
            heapq.heappop(ends)
        while len(ends) >= slots:
            start = max(start, heapq.heappop(ends))
        inputs, out = int(rng.integers(900, 1500)), int(rng.integers(250, 550))
        free = start + inputs * 6e-5 * float(rng.normal(1, 0.04))
        rows.append(plant.row(now, inputs, out, free + 0.06 - now))
        heapq.heappush(ends, now + rows[-1]["latency_ms"] / 1e3)
        heapq.heappush(asks, (now + rows[-1]["latency_ms"] / 1e3 + 0.005, who))
    return sorted(rows, key=lambda r: r["timestamp"])[: n // 2]


@pytest.mark.parametrize("clients", [36, 90])
def test_slots_are_seen_through_the_prefill_that_follows(tmp_path: Path, clients: int) -> None:
    """A slot is taken one prefill and a constant before the first token, when others end often."""
    found = verdict(tmp_path, closed(np.random.default_rng(2), 800, 24, clients))
    assert found.verdict.primary_cause == "decode_contention"
    assert found.verdict.confidence >= 0.8
    cause = next(f for f in found.causes if f.id == "queueing_saturation")
    assert cause.status in ("ruled_out", "minor")
    more = next(r for r in found.remedies if r.id == "more_seqs")
    assert (more.gain_share or 0.0) > 0.3


def test_a_lane_of_prefill_with_free_slots_is_a_queue(tmp_path: Path) -> None:
    """The neighbour: the same clients, but slots for all of them, and prefill is what is short."""
    rows = closed(np.random.default_rng(3), 800, 1000, 90)
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "queueing_saturation"


@pytest.mark.parametrize("held", [True, False])
def test_a_wait_falls_between_no_two_causes(tmp_path: Path, held: bool) -> None:
    """What is taken off queueing for decoding is queueing's again where decoding is ruled out."""
    path = written(tmp_path, closed(np.random.default_rng(2), 800, 24, 36))
    e = examine(ttftdoctor.read(path)).evidence
    assert e.wait is not None
    wait = e.wait if held else replace(e.wait, slots_held=False, follows_decoding=0.3)
    e = replace(e, wait=wait)
    judge = {c.id: c.judge for c in causes()}
    queueing = judge["queueing_saturation"](e).seconds or 0.0
    decoding = judge["decode_contention"](e)
    believed = (decoding.seconds or 0.0) if decoding.strength >= 0.4 else 0.0
    assert queueing + believed == pytest.approx(wait.mean, rel=0.02)
    assert (believed > 0) is held


def with_side_calls(rng: Rng, rows: list[Row], share: float, model: str | None) -> list[Row]:
    """The same log, and short calls under the same sessions beside this ``share`` of its turns."""
    called = []
    for r in rows:
        del r["turn"]
        if model is not None:
            r["model"] = "large"
        if rng.random() < share:
            n = int(rng.integers(150, 900))
            start = r["timestamp"] - plant.EPOCH_S + float(rng.uniform(0.5, 3))
            call = plant.row(start, n, int(rng.integers(10, 60)), 0.06 + 0.02 * n / 1e3)
            called.append(call | {"session_id": r["session_id"], "cached_tokens": 0})
            if model is not None:
                called[-1]["model"] = model
    return sorted([*rows, *called], key=lambda r: r["timestamp"])


def long_chat(rng: Rng, cached: Callable[[int], int]) -> list[Row]:
    """Quiet sessions behind a system prompt of 6,000 tokens; ``cached`` of a history of so many."""
    rows = chat(rng, lambda s, turn, history: 0, sessions=20)
    history: dict[str, int] = {}
    for r in rows:
        r["prompt_tokens"] += 6000
        r["cached_tokens"] = cached(history.get(r["session_id"], 6000))
        plant.slower(r, 0.1 * (6000 - r["cached_tokens"]) / 1e3)
        history[r["session_id"]] = r["prompt_tokens"] + r["completion_tokens"]
    return rows


@pytest.mark.parametrize("share", [0.6, 1.0])
@pytest.mark.parametrize("model", [None, "small"])
def test_side_calls_do_not_hide_a_prompt_that_changes(
    tmp_path: Path, share: float, model: str | None
) -> None:
    """Titles and suggestions of 150 to 900 tokens come between turns, under the same session."""
    rng = np.random.default_rng(31)
    rows = long_chat(rng, lambda history: 4608)
    alone = verdict(tmp_path, [{**r} for r in rows])
    found = verdict(tmp_path, with_side_calls(rng, rows, share, model))
    assert found.verdict.primary_cause == "cache_busting_prefix"
    one, other = alone.repeated_prefix, found.repeated_prefix
    assert other.recomputed_tokens == pytest.approx(one.recomputed_tokens, rel=0.02)


def test_side_calls_do_not_hide_that_nothing_is_reused(tmp_path: Path) -> None:
    """Every second request is a side call, and the log has no cached tokens."""
    rng = np.random.default_rng(32)
    rows = with_side_calls(rng, long_chat(rng, lambda history: 0), 1.0, None)
    for r in rows:
        del r["cached_tokens"]
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause == "repeated_prefix_no_reuse"
    assert found.repeated_prefix.grade == "inferred"


def test_side_calls_beside_a_cache_that_works_are_no_fault_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(33)
    rows = long_chat(rng, lambda history: history)
    found = verdict(tmp_path, with_side_calls(rng, rows, 1.0, None))
    assert found.repeated_prefix.recomputed_share < 0.1
    assert found.verdict.primary_cause in ("healthy", "organic_long_input", "fixed_overhead")


@pytest.mark.parametrize("seed", range(3))
def test_two_kinds_of_requests_under_one_id_are_no_turns(tmp_path: Path, seed: int) -> None:
    """Long ones come back to their length behind short ones, and repeat nothing all the same."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(240):
        n = int(rng.normal(9000, 1200) if rng.random() < 0.6 else rng.integers(200, 900))
        ttft = 0.1 + 0.1 * n / 1e3 + float(rng.normal(0, 0.003))
        rows.append(plant.row(5.0 * i, n, 50, ttft, session_id=f"user{i % 6}"))
    found = verdict(tmp_path, rows)
    assert found.verdict.primary_cause != "repeated_prefix_no_reuse"
    assert not found.repeated_prefix.recomputed_tokens
