"""Measuring, held against logs of a server whose truth is known, and against brute force."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ttftdoctor import simulator
from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, LedgerRow
from ttftdoctor.examine import Examined, examine
from ttftdoctor.intake import read_log
from ttftdoctor.measure import links
from ttftdoctor.measure.lines import fit_line
from ttftdoctor.measure.load import load_of
from ttftdoctor.measure.queues import waits_of
from ttftdoctor.measure.rows import Rows, prepare
from ttftdoctor.run import diagnose
from ttftdoctor.stats import auc, mean_interval, pinball, quantile_fit, rank_correlation, two_levels
from ttftdoctor.treatment import Treatment

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
DATA = Path(__file__).parent / "data"

Records = list[dict[str, Any]]


@cache
def truth(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.truth.json").read_text())


@cache
def diagnosis(name: str) -> Diagnosis:
    return diagnose(str(SAMPLES / f"{name}.jsonl"))


@cache
def examined(name: str) -> Examined:
    return examine(read_log([str(SAMPLES / f"{name}.jsonl")]))


def records(name: str) -> Records:
    lines = (SAMPLES / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rediagnosed(folder: Path, rows: Records) -> Diagnosis:
    path = folder / "changed.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return diagnose(str(path))


def rows_of(folder: Path, rows: Records) -> Rows:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return prepare(read_log([str(path)]).requests)


def group(d: Diagnosis, name: str) -> LedgerRow:
    return next(row for row in d.ledger if row.group == name)


def figures(d: Diagnosis) -> dict[str, Any]:
    """The document without what a change of names or order may change."""
    document = d.to_dict()
    document.pop("inputs")
    document["evidence"].pop("notes")
    document.pop("warnings")
    document["verdict"].pop("experiment")  # its command has the path, its words the intervals
    for cause in document["causes"]:
        for row in cause["rows"]:
            for name in ("path", "line", "session_id"):
                row.pop(name)
        if cause["worked_example"] is not None:
            cause["worked_example"].pop("text")
    return document


# --- the peak hour, against its truth -----------------------------------------------------------


def test_true_coefficients_lie_inside_the_intervals() -> None:
    cost = truth("peak_hour")["cost"]
    line = diagnosis("peak_hour").cost_lines.prefill
    assert line is not None
    for interval, value, true in (
        (line.fixed_ms_interval, line.fixed_ms, cost["fixed_ms"]),
        (line.ms_per_1k_tokens_interval, line.ms_per_1k_tokens, cost["ms_per_1k_tokens"]),
        (
            line.ms_per_1k_tokens_per_1k_context_interval,
            line.ms_per_1k_tokens_per_1k_context,
            cost["ms_per_1k_tokens_per_1k_context"],
        ),
    ):
        assert interval is not None
        low, high = interval
        assert low <= true <= high
        assert value is not None
        assert low <= value <= high
        # An interval that says nothing would also contain the truth.
        assert high - low < 0.2 * true


def test_true_decode_rate() -> None:
    line = diagnosis("peak_hour").cost_lines.decode
    assert line is not None
    assert line.ms_per_token == pytest.approx(truth("peak_hour")["decode_ms_per_token"], rel=0.01)
    assert abs(line.slope_per_1k_context_ms or 0) < 0.02
    assert abs(line.slope_per_running_ms or 0) < 0.02


@pytest.mark.parametrize(
    ("ours", "theirs"), [("all", "overall"), ("off_peak", "off_peak"), ("peak", "peak")]
)
def test_waiting_and_what_is_waited_for(ours: str, theirs: str) -> None:
    """Queue, and its parts behind repeated and new prefill, within ten per cent of the truth."""
    true = truth("peak_hour")["as_served"][theirs]
    row = group(diagnosis("peak_hour"), ours)
    assert row.n == true["requests"]
    assert row.ttft_mean_s * 1e3 == pytest.approx(true["ttft_ms"]["mean"], rel=1e-4)
    a = {name: 1e3 * value for name, value in row.accounts.items()}
    waited = a["queue_behind_repeated"] + a["queue_behind_new"] + a["queue_other"]
    assert waited == pytest.approx(true["mean_queue_ms"], rel=0.1)
    assert a["queue_behind_repeated"] == pytest.approx(
        true["mean_queue_behind_repeated_ms"], rel=0.1
    )
    assert a["queue_behind_new"] == pytest.approx(true["mean_queue_behind_new_ms"], rel=0.1)
    work = a["fixed"] + a["prefill_repeated"] + a["prefill_new"]
    assert work == pytest.approx(true["mean_prefill_ms"], rel=0.02)
    assert abs(a["unexplained"]) < 0.02 * true["ttft_ms"]["mean"]


@pytest.mark.parametrize("name", ["peak_hour", "eight_turns", "healthy"])
def test_repeated_tokens_are_exact(name: str) -> None:
    """The history is the last input and the last output: sums must agree to the token."""
    true = truth(name)["as_served"]["overall"]
    found = diagnosis(name).repeated_prefix
    assert found.input_tokens == true["input_tokens"]
    assert found.repeated_tokens == true["repeated_tokens"]
    assert found.bounds is not None
    assert found.bounds[0] <= true["repeated_tokens"] <= found.bounds[1]
    assert found.cached_tokens == truth(name).get("cached_tokens", 0)


def test_the_repeated_prefix_is_the_root_and_the_queue_amplifies() -> None:
    d = diagnosis("peak_hour")
    assert d.verdict.primary_cause == "repeated_prefix_no_reuse"
    assert [a.id for a in d.verdict.amplifiers] == ["queueing_saturation"]
    share = d.verdict.amplifiers[0].share_of_ttft
    assert share == pytest.approx(truth("peak_hour")["as_served"]["overall"]["queue_share_of_ttft"],
                                  rel=0.1)  # fmt: skip


def test_a_prefix_cache_is_predicted_as_it_would_be() -> None:
    """Mean, median and 95th percentile within ten per cent of the same arrivals served with one."""
    true = truth("peak_hour")["ttft_ms_if_repeated_cached"]["overall"]
    gain = next(g for g in diagnosis("peak_hour").remedies if g.id == "prefix_cache")
    assert gain.ttft_mean_s is not None
    assert gain.ttft_p50_s is not None
    assert gain.ttft_p95_s is not None
    assert gain.ttft_mean_s * 1e3 == pytest.approx(true["mean"], rel=0.1)
    assert gain.ttft_p50_s * 1e3 == pytest.approx(true["p50"], rel=0.1)
    assert gain.ttft_p95_s * 1e3 == pytest.approx(true["p95"], rel=0.1)
    now = truth("peak_hour")["as_served"]["overall"]["ttft_ms"]["mean"]
    assert gain.gain_share == pytest.approx(1 - true["mean"] / now, abs=0.03)
    assert gain.interval is not None
    assert gain.interval[0] <= 1 - true["mean"] / now <= gain.interval[1]


def test_together_is_served_and_not_summed() -> None:
    gains = {g.id: g.gain_share or 0.0 for g in diagnosis("peak_hour").remedies}
    together = gains.pop("all_together")
    assert max(gains.values()) <= together < min(1.0, sum(gains.values()))


@pytest.mark.parametrize("name", ["peak_hour", "eight_turns", "healthy"])
def test_the_ledger_adds_up_in_every_group(name: str) -> None:
    d = diagnosis(name)
    assert {"all", "early_turns", "late_turns"} <= {row.group for row in d.ledger}
    for row in d.ledger:
        assert set(row.accounts) == set(ACCOUNTS)
        assert sum(row.accounts.values()) == pytest.approx(row.ttft_mean_s, abs=1e-6)
        assert all(row.accounts[a] >= -1e-12 for a in ACCOUNTS if a != "unexplained")


def test_every_eighth_turn_repeats_all_but_eighty_tokens() -> None:
    rows = examined("eight_turns").rows
    last = rows.turn == 8
    assert last.sum() == 12
    assert set(rows.inputs[last]) == {99_840}
    assert set(rows.repeated[last]) == {99_760}
    assert set(rows.repeated[rows.turn == 1]) == {0}
    line = diagnosis("eight_turns").cost_lines.prefill
    assert line is not None
    assert line.ms_per_1k_tokens == pytest.approx(100, rel=0.03)
    assert diagnosis("eight_turns").verdict.primary_cause == "repeated_prefix_no_reuse"


def test_the_healthy_log_blames_nobody() -> None:
    d = diagnosis("healthy")
    assert (d.verdict.primary_cause, d.verdict.contributing) == ("healthy", ())
    assert {f.status for f in d.causes} <= {"primary", "ruled_out", "minor", "unjudged"}
    cost = truth("healthy")["cost"]
    line = d.cost_lines.prefill
    assert line is not None
    assert line.ms_per_1k_tokens == pytest.approx(cost["ms_per_1k_tokens"], rel=0.05)
    assert line.fixed_ms == pytest.approx(cost["fixed_ms"], rel=0.1)


# --- what must change nothing, or one thing -----------------------------------------------------


def test_ten_milliseconds_more_are_found_in_the_constant_alone(tmp_path: Path) -> None:
    rows = records("peak_hour")
    for row in rows:
        row["ttft_ms"] = round(row["ttft_ms"] + 10, 1)
        row["e2e_ms"] = round(row["e2e_ms"] + 10, 1)
    before, after = diagnosis("peak_hour"), rediagnosed(tmp_path, rows)
    assert before.cost_lines.prefill is not None
    assert after.cost_lines.prefill is not None
    moved = after.cost_lines.prefill.fixed_ms - before.cost_lines.prefill.fixed_ms
    assert moved == pytest.approx(10, abs=0.5)
    for row in before.ledger:
        other = group(after, row.group)
        for account in ACCOUNTS:
            change = other.accounts[account] - row.accounts[account]
            expected = 0.010 if account == "fixed" else 0.0
            assert change == pytest.approx(expected, abs=0.01 * row.ttft_mean_s), account


def test_another_unit_changes_nothing(tmp_path: Path) -> None:
    rows = records("peak_hour")
    for row in rows:
        row["ttft_us"] = round(row.pop("ttft_ms") * 1000)
        row["e2e_us"] = round(row.pop("e2e_ms") * 1000)
    assert figures(rediagnosed(tmp_path, rows)) == figures(diagnosis("peak_hour"))


def test_the_order_of_the_rows_changes_nothing(tmp_path: Path) -> None:
    """Rows of the same stamp keep their order: the log has no other word on who was first."""
    rows = records("peak_hour")
    want = figures(diagnosis("peak_hour"))
    place = {stamp: i for i, stamp in enumerate({row["timestamp"]: None for row in rows})}
    keys = list(range(len(place)))
    random.Random(3).shuffle(keys)
    mixed = sorted(rows, key=lambda row: keys[place[row["timestamp"]]])
    assert mixed != rows
    assert_close(figures(rediagnosed(tmp_path, mixed)), want, 1e-9)


def test_rows_of_the_same_instant_may_change_places(tmp_path: Path) -> None:
    """Who of two was first is then another guess, which must not matter."""
    rows = records("peak_hour")
    random.Random(3).shuffle(rows)
    d, want = rediagnosed(tmp_path, rows), diagnosis("peak_hour")
    assert (d.verdict.primary_cause, d.verdict.confidence) == (
        want.verdict.primary_cause, want.verdict.confidence,
    )  # fmt: skip
    for row in want.ledger:
        accounts = group(d, row.group).accounts
        assert accounts == pytest.approx(dict(row.accounts), abs=1e-4 * row.ttft_mean_s)


def assert_close(one: Any, other: Any, rel: float, at: str = "") -> None:
    """Equal documents, numbers up to a relative difference."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            assert_close(one[key], other[key], rel, f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_close(a, b, rel, f"{at}[{i}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=rel, abs=1e-9), at
    else:
        assert one == other, at


def test_the_names_of_sessions_change_nothing(tmp_path: Path) -> None:
    rows = records("peak_hour")
    names = sorted({row["session_id"] for row in rows})
    mixed = names.copy()
    random.Random(4).shuffle(mixed)
    new = {old: f"{i:x}-{m[::-1]}" for i, (old, m) in enumerate(zip(names, mixed, strict=True))}
    for row in rows:
        row["session_id"] = new[row["session_id"]]
    one, other = figures(rediagnosed(tmp_path, rows)), figures(diagnosis("peak_hour"))
    # Whole sessions are drawn for the intervals, so another order of names moves those a little.
    assert drop_intervals(one) == drop_intervals(other)


def drop_intervals(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: drop_intervals(v) for k, v in value.items() if "interval" not in k}
    if isinstance(value, list):
        return [drop_intervals(v) for v in value]
    return round(value, 9) if isinstance(value, float) else value


def test_the_same_log_gives_the_same_document_twice(tmp_path: Path) -> None:
    rows = records("healthy")
    assert rediagnosed(tmp_path, rows).to_dict() == rediagnosed(tmp_path, rows).to_dict()


# --- links --------------------------------------------------------------------------------------


def conversations(
    seed: int, sessions: int, turns: int, *, blocks: bool
) -> tuple[Records, list[int]]:
    """Interleaved conversations without session ids or turns, and whose each row is."""
    rng = np.random.default_rng(seed)
    events: list[tuple[float, int, dict[str, Any]]] = []
    for k in range(sessions):
        at, length = 1_777_629_600 + float(rng.uniform(0, 40)), int(rng.integers(800, 3000))
        ids: list[int] = []
        for _ in range(turns):
            output = int(rng.integers(40, 300))
            row: dict[str, Any] = {
                "timestamp": at, "prompt_tokens": length, "completion_tokens": output,
                "ttft_ms": 60 + 0.07 * length, "latency_ms": 60 + 0.07 * length + 20 * output,
            }  # fmt: skip
            if blocks:
                while len(ids) < -(-length // 16):
                    ids.append(int(rng.integers(1, 2**62)))
                row["block_hashes"], row["block_tokens"] = list(ids), 16
                del ids[length // 16 :]  # the last, partial block is another one next time
            events.append((at, k, row))
            length += output + int(rng.integers(60, 700))
            at += row["latency_ms"] / 1e3 + float(rng.uniform(5, 60))
    events.sort(key=lambda event: event[0])
    return [row for _, _, row in events], [k for _, k, _ in events]


def agreement(found: np.ndarray, true: list[int]) -> float:
    """Share of rows whose predecessor in the session found is the true one."""

    def before(sessions: list[int]) -> list[int | None]:
        last: dict[int, int] = {}
        out = []
        for i, session in enumerate(sessions):
            out.append(last.get(session))
            last[session] = i
        return out

    pairs = list(zip(before(list(map(int, found))), before(true), strict=True))
    return sum(a == b for a, b in pairs) / len(pairs)


def test_sessions_are_linked_by_their_blocks(tmp_path: Path) -> None:
    """Blocks settle it: not one link may be wrong or lacking, however much is interleaved."""
    rows, true = conversations(1, 12, 8, blocks=True)
    found = rows_of(tmp_path, rows)
    assert (found.session_grade, found.reuse_grade) == ("linked", "content")
    assert agreement(found.session, true) == 1.0
    assert int(np.nanmax(found.turn)) == 8


@pytest.mark.parametrize("seed", range(4))
def test_few_sessions_are_linked_by_what_was_cached(tmp_path: Path, seed: int) -> None:
    """Where history is reused, the cached tokens say whose it was. (A first turn with none looks
    like a miss, so a few of those may be taken for a continuation.)
    """
    rows, true = conversations(10 + seed, 4, 9, blocks=False)
    last: dict[int, int] = {}
    for row, session in zip(rows, true, strict=True):
        row["cached_tokens"] = last.get(session, 0)
        last[session] = row["prompt_tokens"] + row["completion_tokens"]
    found = rows_of(tmp_path, rows)
    assert (found.session_grade, found.reuse_grade) == ("linked", "reported")
    assert agreement(found.session, true) >= 0.9


@pytest.mark.parametrize("seed", range(4))
def test_lengths_alone_link_one_conversation_and_never_guess_among_many(
    tmp_path: Path, seed: int
) -> None:
    """Growing lengths settle a lone conversation; of several at once they may link none, but what
    they link must be mostly right.
    """
    rows, true = conversations(20 + seed, 1, 14, blocks=False)
    lone = rows_of(tmp_path, rows)
    assert lone.session_grade == "linked"
    assert agreement(lone.session, [0] * 14) == 1.0
    rows, true = conversations(30 + seed, 5, 9, blocks=False)
    many = rows_of(tmp_path, rows)
    before: dict[int, int] = {}
    right = made = 0
    for row in np.flatnonzero(many.session >= 0):
        if (session := int(many.session[row])) in before:
            made += 1
            right += true[row] == true[before[session]]
        before[session] = int(row)
    assert right >= 0.75 * made


@pytest.mark.parametrize("seed", range(4))
def test_unrelated_requests_are_not_linked(tmp_path: Path, seed: int) -> None:
    """Lengths drawn without regard to each other hold no conversation, whatever their spread."""
    rng = np.random.default_rng(seed)
    at, rows = 1_777_629_600.0, []
    for _ in range(150):
        at += float(rng.exponential(2.0))
        length, output = int(np.exp(rng.normal(7.3, 0.8))) + 20, int(rng.integers(20, 400))
        rows.append(
            {
                "timestamp": at,
                "prompt_tokens": length,
                "completion_tokens": output,
                "ttft_ms": 50 + 0.08 * length,
                "latency_ms": 50 + 0.08 * length + 15 * output,
            }
        )
    found = rows_of(tmp_path, rows)
    assert found.session_grade == "none"
    assert (found.session == -1).all()


@pytest.mark.parametrize("step", [64, 512, 1000])
def test_a_sweep_of_lengths_is_not_linked(tmp_path: Path, step: int) -> None:
    """A load test that asks for longer and longer prompts grows too, and is no conversation."""
    rows = []
    for i in range(60):
        length = step * (1 + i // 3)
        rows.append(
            {
                "timestamp": 1_777_629_600 + 9 * i,
                "prompt_tokens": length,
                "completion_tokens": 64,
                "ttft_ms": 40 + 0.1 * length,
                "latency_ms": 40 + 0.1 * length + 64 * 20,
            }
        )
    assert rows_of(tmp_path, rows).session_grade == "none"


def test_a_shared_system_prompt_links_nobody(tmp_path: Path) -> None:
    """Many requests whose whole prompt is the same text do not make one conversation."""
    rng = np.random.default_rng(5)
    head = [int(x) for x in rng.integers(1, 2**62, 20)]
    rows = []
    for i in range(40):
        own = [int(x) for x in rng.integers(1, 2**62, 12)] if i % 2 else []
        ids = head + own
        rows.append(
            {
                "timestamp": 1_777_629_600 + 5 * i,
                "prompt_tokens": 16 * len(ids),
                "ttft_ms": 90.0,
                "block_hashes": ids,
                "block_tokens": 16,
            }
        )
    found = rows_of(tmp_path, rows)
    assert len(np.unique(found.session)) == found.n
    # ... and yet the repeated head is counted: 20 blocks in every row but the first.
    assert np.nansum(found.repeated) == 39 * 320


def test_ids_of_requests_are_no_sessions(tmp_path: Path) -> None:
    rows, _ = conversations(2, 3, 8, blocks=True)
    for i, row in enumerate(rows):
        row["session_id"] = f"call-{i}"
    found = rows_of(tmp_path, rows)
    assert found.session_grade == "linked"
    assert any("look like ids of requests" in note for note in found.notes)


# --- load ---------------------------------------------------------------------------------------


def plain_rows(start: np.ndarray, ttft: np.ndarray, e2e: np.ndarray, server: np.ndarray) -> Rows:
    """Rows in order of start with nothing but times."""
    n = len(start)
    empty = {f.name: np.full(n, np.nan) for f in dataclasses.fields(Rows) if f.type == "Array"}
    index = {
        f.name: np.zeros(n, dtype=np.int64) for f in dataclasses.fields(Rows) if f.type == "Index"
    }
    return Rows(
        n=n, epoch_us=None,
        **{**empty, **index, "start": start, "ttft": ttft, "e2e": e2e, "server": server},
    )  # fmt: skip


TIMES = st.lists(
    st.tuples(
        st.integers(0, 40), st.integers(1, 15), st.integers(0, 15), st.integers(0, 1),
        st.integers(0, 9), st.booleans(),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(TIMES)
def test_load_equals_a_count_by_hand(times: list[tuple[int, int, int, int, int, bool]]) -> None:
    """Earlier rows at the same server without a first token wait; those without an end decode."""
    times = sorted(times)
    start = np.array([float(t[0]) for t in times])
    ttft = np.array([float(t[1]) if t[5] else np.nan for t in times])
    e2e = np.array([float(t[1] + t[2]) for t in times])
    server = np.array([t[3] for t in times])
    work = np.array([float(t[4]) for t in times])
    found = load_of(plain_rows(start, ttft, e2e, server), work, work / 2)
    for i in range(len(times)):
        if not np.isfinite(ttft[i]):
            assert np.isnan(found.waiting[i])
            continue
        ahead = [j for j in range(i) if server[j] == server[i] and np.isfinite(ttft[j])]
        wait = [j for j in ahead if start[j] + ttft[j] > start[i]]
        decode = [j for j in ahead if start[j] + ttft[j] <= start[i] < start[j] + e2e[j]]
        assert found.waiting[i] == len(wait)
        assert found.decoding[i] == len(decode)
        assert found.running[i] == len(wait) + len(decode)
        assert found.backlog[i] == pytest.approx(sum(work[j] for j in wait), abs=1e-9)
        assert found.backlog_repeated[i] == pytest.approx(found.backlog[i] / 2, abs=1e-9)
        last = max((start[j] + e2e[j] for j in ahead), default=-np.inf)
        assert found.idle[i] == pytest.approx(max(start[i] - last, 0))


# --- replay -------------------------------------------------------------------------------------


def by_hand(start: np.ndarray, service: np.ndarray, server: np.ndarray) -> np.ndarray:
    """First come, first served, one at a time."""
    free: dict[int, float] = {}
    waits = np.zeros(len(start))
    for i in range(len(start)):
        begin = max(start[i], free.get(int(server[i]), -np.inf))
        waits[i] = begin - start[i]
        free[int(server[i])] = begin + service[i]
    return waits


@settings(max_examples=100, deadline=None)
@given(TIMES)
def test_waits_of_the_replay_equal_a_queue_by_hand(
    times: list[tuple[int, int, int, int, int, bool]],
) -> None:
    times = sorted(times)
    start = np.array([float(t[0]) for t in times])
    service = np.array([t[4] / 3 for t in times])
    server = np.array([t[3] for t in times])
    expected = by_hand(start, service, server)
    assert waits_of(start, service, server) == pytest.approx(expected, abs=1e-9)
    shuffled = np.random.default_rng(len(times)).permutation(len(times))
    if len(np.unique(np.stack([start, server]), axis=1).T) == len(times):
        found = waits_of(start[shuffled], service[shuffled], server[shuffled])
        assert found == pytest.approx(expected[shuffled], abs=1e-9)


def test_fair_sharing_leaves_the_work_and_changes_who_waits() -> None:
    model = examined("peak_hour").replay
    assert model is not None
    before = model.try_(Treatment())
    fair = model.try_(Treatment(fair=True))
    assert before.gain_share == pytest.approx(0, abs=1e-9)
    assert before.mean == pytest.approx(diagnosis("peak_hour").population.ttft_mean_s)
    assert fair.prefill_s_saved == fair.tokens_saved == 0
    assert abs(fair.p95 - before.p95) + abs(fair.p50 - before.p50) > 1e-4


def test_more_servers_never_make_it_slower() -> None:
    model = examined("peak_hour").replay
    assert model is not None
    means = [model.try_(Treatment(servers=k)).mean for k in (1.0, 2.0, 4.0)]
    assert means[0] > means[1] > means[2]
    own = group(diagnosis("peak_hour"), "all").accounts
    assert means[2] > own["fixed"] + own["prefill_repeated"] + own["prefill_new"] - 1e-3


def test_treatments_join() -> None:
    one, other = Treatment(reuse=True, servers=2, compact_to=9), Treatment(servers=3, compact_to=7)
    assert one.join(other) == Treatment(reuse=True, servers=6, compact_to=7)
    assert one.join(other) == other.join(one)


# --- statistics ---------------------------------------------------------------------------------


def best_loss(x: np.ndarray, y: np.ndarray, tau: float, free: tuple[int, ...]) -> float:
    """The least pinball loss there is, by linear programming."""
    n, p = x.shape
    cost = np.concatenate([np.zeros(p), np.full(n, tau), np.full(n, 1 - tau)])
    equal = np.hstack([x, np.eye(n), -np.eye(n)])
    bounds = [(None if j in free else 0, None) for j in range(p)] + [(0, None)] * (2 * n)
    done = linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs")
    assert done.success
    return float(done.fun) / n


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("tau", [0.25, 0.5, 0.9])
def test_a_quantile_fit_is_as_good_as_linear_programming(seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(15, 80))
    u = rng.uniform(0, 4, n)
    x = np.column_stack([np.ones(n), u, u * rng.uniform(0, 3, n)])
    y = x @ rng.uniform(-0.3, 2, 3) + rng.exponential(0.4, n)
    free = (0,) if seed % 3 == 0 else ()
    fit = quantile_fit(x, y, tau=tau, free=free)
    assert all(fit.coef[j] >= 0 for j in range(3) if j not in free)
    best = best_loss(x, y, tau, free)
    assert best - 1e-9 <= pinball(fit.residual, tau) <= best * 1.005 + 1e-6


def test_a_shift_moves_the_constant_alone() -> None:
    rng = np.random.default_rng(1)
    u = rng.uniform(0, 5, 200)
    x = np.column_stack([np.ones(200), u])
    y = 0.3 + 0.8 * u + rng.exponential(0.3, 200)
    one, other = quantile_fit(x, y, tau=0.3), quantile_fit(x, y + 2.0, tau=0.3)
    assert other.coef - one.coef == pytest.approx([2.0, 0.0], abs=2e-3)


def test_an_interval_contains_its_estimate_and_narrows() -> None:
    rng = np.random.default_rng(2)
    widths = []
    for n in (60, 600):
        u = rng.uniform(0, 5, n)
        x = np.column_stack([np.ones(n), u])
        fit = quantile_fit(x, 0.3 + 0.8 * u + rng.normal(0, 0.3, n), resamples=80)
        interval = fit.interval(1)
        assert interval is not None
        assert interval[0] <= fit.coef[1] <= interval[1]
        assert interval[0] <= 0.8 <= interval[1]
        widths.append(interval[1] - interval[0])
    assert widths[1] < 0.6 * widths[0]
    assert quantile_fit(x, u, resamples=5).interval(0) is None


SMALL = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=15)


@settings(max_examples=100, deadline=None)
@given(SMALL, SMALL)
def test_auc_equals_counting_pairs(a: list[float], b: list[float]) -> None:
    pairs = [(x > y) + 0.5 * (x == y) for x in a for y in b]
    assert auc(np.array(a), np.array(b)) == pytest.approx(sum(pairs) / len(pairs))


def test_auc_of_nothing_is_unknown() -> None:
    assert auc(np.array([]), np.array([1.0])) is None


@settings(max_examples=100, deadline=None)
@given(SMALL)
def test_two_levels_is_the_best_split(values: list[float]) -> None:
    """No other threshold leaves less variance within the two levels."""
    found = two_levels(np.array(values))
    if len(set(values)) < 2:
        assert found is None
        return

    def within(threshold: float) -> float:
        parts = [[v for v in values if v <= threshold], [v for v in values if v > threshold]]
        return sum(float(np.var(part)) * len(part) for part in parts)

    assert found is not None
    threshold, low, high = found
    distinct = sorted(set(values))
    assert within(threshold) == pytest.approx(min(within(v) for v in distinct[:-1]), abs=1e-9)
    assert low == pytest.approx(np.mean([v for v in values if v <= threshold]))
    assert high == pytest.approx(np.mean([v for v in values if v > threshold]))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2, 3, 4, 5], [2, 4, 6, 8, 100], 1.0),
        ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 3, 4], None),
        ([1, 1, 1, 1, 1], [1, 2, 3, 4, 5], None),
    ],
)
def test_rank_correlation(x: list[float], y: list[float], expected: float | None) -> None:
    found = rank_correlation(np.array(x, float), np.array(y, float))
    assert found == (None if expected is None else pytest.approx(expected))


def test_rows_of_one_cluster_count_as_one() -> None:
    values = np.repeat(np.random.default_rng(3).normal(0, 1, 40), 25)
    clusters = np.repeat(np.arange(40), 25)
    narrow, wide = mean_interval(values), mean_interval(values, clusters)
    assert wide[1] - wide[0] == pytest.approx(5 * (narrow[1] - narrow[0]), rel=0.1)


def test_arithmetic_links_need_times_and_variety() -> None:
    n = 20
    start, outputs, none = np.arange(n, dtype=float), np.full(n, 50.0), np.full(n, np.nan)
    group_ = np.zeros(n, dtype=np.int64)
    grown: Callable[[np.ndarray], Any] = lambda inputs: links.by_arithmetic(  # noqa: E731
        start, start + 0.5, inputs, outputs, none, group_
    )
    assert grown(np.full(n, 900.0)) is None
    chain = 900.0 + 170.0 * np.arange(n)
    linked = grown(chain)
    assert linked is not None
    assert len(np.unique(linked.session)) == 1
    assert links.by_arithmetic(none, none, chain, outputs, none, group_) is None


def test_a_context_that_hardly_varies_has_no_price(tmp_path: Path) -> None:
    """All prompts have one cached head: a price of all tokens would be one of new ones."""
    run = simulator.serve(simulator.load("queueing_peak"), seed=1)
    (planted,) = run.truth()["cost_lines"].values()
    path = tmp_path / "log.jsonl"
    simulator.write_log(run, str(path), "full")
    line = diagnose(str(path)).cost_lines.prefill
    assert line is not None
    assert line.ms_per_1k_context is None
    assert line.ms_per_1k_tokens == pytest.approx(planted["ms_per_1k_tokens"], rel=0.15)


def test_a_context_that_varies_keeps_its_price() -> None:
    rng = np.random.default_rng(4)
    uncached, context = rng.uniform(500, 9_000, 600), rng.uniform(0, 60_000, 600)
    ttft = 0.06 + 0.07 * uncached / 1e3 + 0.004 * (uncached + context) / 1e3
    ttft *= rng.normal(1, 0.01, 600)
    line = fit_line(uncached, context, ttft, clusters=None, how="all", lonely=True)
    assert line.per_1k_context == pytest.approx(0.004, rel=0.1)
    assert line.per_1k == pytest.approx(0.07, rel=0.03)
