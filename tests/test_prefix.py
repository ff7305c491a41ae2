"""The prefix ladder: figures of a real trace, of one worked out by hand, and what must add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttftdoctor
from ttftdoctor.errors import UsageError
from ttftdoctor.prefixes.kv import kv_shape
from ttftdoctor.prefixes.limits import threshold
from ttftdoctor.prefixes.records import PrefixFindings

TRACE = Path(__file__).parents[2] / "shared/real/trace_mooncake/conversation_trace.jsonl"
SAMPLES = Path(__file__).parents[1] / "sample_logs"

needs_trace = pytest.mark.skipif(not TRACE.exists(), reason="the conversation trace is not here")


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def found(*logs: str, **options: Any) -> PrefixFindings:
    return ttftdoctor.prefix(*logs, **options).found


def value_of(report: PrefixFindings, name: str) -> float:
    return next(d.value for d in report.definitions if d.id == name)


# --- a real trace, with the figures that others found in it --------------------------------------


@pytest.fixture(scope="module")
def conversation() -> PrefixFindings:
    if not TRACE.exists():
        pytest.skip("the conversation trace is not here")
    return found(str(TRACE), kv="llama-3.1-70b")


@needs_trace
def test_one_trace_has_many_hit_rates(conversation: PrefixFindings) -> None:
    assert conversation.looked_at == 12_031
    assert conversation.input_tokens == 144_793_823
    ladder = conversation.ladder
    assert ladder is not None
    assert ladder.rungs[0].hit_tokens == 54_098_411
    rounded = {d.id: round(100 * d.value, 1) for d in conversation.definitions}
    assert rounded["block_share"] == 36.6
    assert rounded["token_share"] == 37.4
    assert rounded["mean_block_ratio"] == 38.4
    assert rounded["second_half_token_share"] == 39.8
    assert rounded["mean_token_ratio"] == 40.9


@needs_trace
@pytest.mark.parametrize(("millions", "kept"), [(1, 15), (3, 37), (10, 78), (30, 98), (50, 99)])
def test_what_a_cache_of_a_size_keeps(
    conversation: PrefixFindings, millions: int, kept: int
) -> None:
    report = found(str(TRACE), cache_tokens=millions * 1_000_000)
    ladder = report.ladder
    assert ladder is not None
    assert ladder.rungs[0].hit_tokens == 54_098_411
    assert round(100 * ladder.rungs[2].hit_tokens / 54_098_411) == kept
    assert report.capacity is not None
    size = next(s for s in report.capacity.sizes if s.capacity_tokens == millions * 1_000_000)
    assert round(100 * size.lru_of_ideal) == kept
    assert size.optimal_of_ideal > size.lru_of_ideal


@needs_trace
def test_what_a_lifetime_keeps(conversation: PrefixFindings) -> None:
    assert conversation.expiry is not None
    by = {life.ttl_s: round(100 * life.share, 1) for life in conversation.expiry.lifetimes}
    assert [by[s] for s in (60, 300, 600, 1800)] == [10.5, 29.3, 35.0, 37.1]
    for ttl in (60.0, 1800.0):
        ladder = found(str(TRACE), ttl_s=ttl).ladder
        assert ladder is not None
        assert round(100 * ladder.rungs[1].share, 1) == by[ttl]


@needs_trace
def test_what_routers_keep(conversation: PrefixFindings) -> None:
    assert conversation.routing is not None
    by = {(r.policy, r.replicas): round(100 * r.share, 1) for r in conversation.routing.policies}
    assert [by["round_robin", n] for n in (2, 4, 8, 16)] == [27.6, 19.6, 13.9, 10.1]
    assert [by["prefix_affinity", n] for n in (2, 4, 8, 16)] == [37.4] * 4
    busy = {r.replicas: r.busiest_share for r in conversation.routing.policies
            if r.policy == "prefix_affinity"}  # fmt: skip
    assert busy[16] < 1.1 / 16


@needs_trace
def test_turns_by_ancestry(conversation: PrefixFindings) -> None:
    turns = conversation.ancestry
    assert turns is not None
    assert round(100 * turns.first_share, 1) == 61.3
    assert turns.generations[0].requests == 7_373
    assert round(100 * turns.generations[0].hit_share, 1) == 4.8
    assert round(100 * turns.later_input_share, 1) == 45.2
    assert turns.later_hit_share is not None
    assert round(100 * turns.later_hit_share, 1) == 76.9


@needs_trace
def test_how_reuse_is_spread(conversation: PrefixFindings) -> None:
    leaders, expiry = conversation.leaders, conversation.expiry
    assert leaders is not None
    assert expiry is not None
    assert round(100 * leaders.never_reused_share, 1) == 75.8
    assert leaders.top_tenth_of_reuse is not None
    assert round(100 * leaders.top_tenth_of_reuse, 1) == 75.1
    # All requests of the trace begin with the same block.
    first = leaders.by_requests[0]
    assert (first.tokens, first.requests) == (512, 12_031)


# --- a trace worked out by hand ------------------------------------------------------------------

#: Blocks of 512 tokens; the last one of a prompt may be partial. Seconds, tokens, blocks.
BY_HAND = [
    (0, 1024, [1, 2]),
    (10, 1500, [1, 2, 3]),  # finds 1, 2: 1,024 tokens
    (20, 600, [1, 4]),  # finds 1: 512
    (100, 1024, [5, 6]),  # finds nothing
    (110, 2000, [1, 2, 3, 7]),  # finds 1, 2, 3: 1,536
    (500, 1024, [5, 6]),  # finds 5, 6: 1,024
]


@pytest.fixture
def by_hand(tmp_path: Path) -> str:
    rows = [
        {"timestamp": s * 1000, "input_length": n, "output_length": 1, "hash_ids": blocks}
        for s, n, blocks in BY_HAND
    ]
    return written(tmp_path / "trace.jsonl", rows)


def test_definitions_by_hand(by_hand: str) -> None:
    report = found(by_hand)
    hits, inputs = [0, 1024, 512, 0, 1536, 1024], [n for _, n, _ in BY_HAND]
    assert value_of(report, "token_share") == pytest.approx(sum(hits) / sum(inputs))
    assert value_of(report, "block_share") == pytest.approx((2 + 1 + 3 + 2) / 15)
    assert value_of(report, "mean_token_ratio") == pytest.approx(
        np.mean([h / n for h, n in zip(hits, inputs, strict=True)])
    )
    assert value_of(report, "mean_block_ratio") == pytest.approx(
        np.mean([0, 2 / 3, 1 / 2, 0, 3 / 4, 1])
    )
    assert value_of(report, "second_half_token_share") == pytest.approx(2560 / 4048)
    assert value_of(report, "second_half_block_share") == pytest.approx(5 / 8)


@pytest.mark.parametrize(
    ("options", "rung", "hits"),
    [
        # Idle times: 1 and 2 for 10 s, 1 for 10 s, then 1 for 90 s, 2 and 3 for 100 s, 5, 6 400 s.
        ({"ttl_s": 50}, "expiry", 1536),
        ({"ttl_s": 95}, "expiry", 2048),
        ({"ttl_s": 100}, "expiry", 3072),
        ({"ttl_s": 400}, "expiry", 4096),
        # Three blocks, leaves first: [1 2], [1 2 3], [1 4 2] (3 gone), [5 6 1], 1 is found and
        # [1 2 3] kept, 5 and 6 are not found.
        ({"cache_tokens": 3 * 512}, "capacity", 1024 + 512 + 512),
        # Five blocks: [5 6 1 4 2] before the fifth request, which finds 1, 2 and leaves
        # [1 2 3 7 5] to the sixth, which finds 5.
        ({"cache_tokens": 5 * 512}, "capacity", 1024 + 512 + 1024 + 512),
        # In turn over two replicas: 1st, 3rd and 5th request at one, the others at the other.
        ({"replicas": 2, "policy": "round_robin"}, "routing", 512 + 1024 + 1024),
        ({"block_tokens": 1024}, "rounding", 1024 + 1024 + 1024),
        ({"block_tokens": 512, "least_tokens": 1536}, "rounding", 1536),
    ],
)
def test_rungs_by_hand(by_hand: str, options: dict[str, Any], rung: str, hits: int) -> None:
    ladder = found(by_hand, **options).ladder
    assert ladder is not None
    by = {r.id: r for r in ladder.rungs}
    assert by[rung].hit_tokens == hits
    assert by[rung].basis == "given"
    assert by["ideal"].hit_tokens - sum(r.lost_tokens for r in ladder.rungs) == (
        ladder.rungs[-1].hit_tokens
    )


def test_leaders_by_hand(by_hand: str) -> None:
    leaders = found(by_hand).leaders
    assert leaders is not None
    # [1] in 4 requests; [1 2] in 3; [5 6] and [1 2 3] in 2.
    assert [(p.tokens, p.requests) for p in leaders.by_requests] == [
        (512, 4), (1024, 3), (1536, 2), (1024, 2),
    ]  # fmt: skip
    best = leaders.by_tokens[0]
    assert (best.tokens, best.reusable_tokens) == (512, 3 * 512)
    assert [p.first_line for p in leaders.by_requests] == [1, 1, 2, 4]
    assert leaders.never_reused_share == pytest.approx(2 / 7)


def test_seconds_and_money_by_hand(by_hand: str) -> None:
    report = found(
        by_hand, ttl_s=95, ms_per_1k_tokens=100,
        pricing=ttftdoctor.Pricing(gpu_hour=3.6, gpus=2),
    )  # fmt: skip
    ladder = report.ladder
    assert ladder is not None
    expiry = ladder.rungs[1]
    assert expiry.lost_tokens == 2048
    assert expiry.lost_seconds == pytest.approx(0.2048)
    assert expiry.lost_money == pytest.approx(0.2048 * 3.6 * 2 / 3600)


def test_what_has_no_price_costs_nothing_that_is_known(by_hand: str) -> None:
    report = ttftdoctor.prefix(by_hand, ttl_s=95, pricing=ttftdoctor.Pricing(listed=True))
    ladder = report.found.ladder
    assert ladder is not None
    assert {rung.lost_money for rung in ladder.rungs} == {None}
    assert any("no price" in text for text in report.warnings)


def test_a_flat_log_with_blocks_has_its_ladder_in_the_diagnosis(tmp_path: Path) -> None:
    document = ttftdoctor.diagnose(served_log(tmp_path, ttl_s=None)).to_dict()
    assert document["prefix"]["grade"] == "content"
    assert [rung["id"] for rung in document["prefix"]["ladder"]["rungs"]] == [
        "ideal", "expiry", "capacity", "routing", "rounding", "actual",
    ]  # fmt: skip


# --- limits read off an engine's counts ----------------------------------------------------------


def served_log(
    folder: Path,
    *,
    ttl_s: float | None,
    room: int | None = None,
    replicas: int = 1,
    step: int = 16,
    seed: int = 5,
    sessions: int = 60,
) -> str:
    """Chats at replicas whose caches have these limits; TTFT is 50 ms and 0.2 ms a new token.

    Each turn goes to a random replica. Counts are those of plain LRU, by
    blocks of 16 tokens.
    """
    rng = np.random.default_rng(seed)
    turns = []
    for session in range(sessions):
        at, words = float(rng.uniform(0, 3000)), int(rng.integers(20, 80))
        for turn in range(int(rng.integers(2, 8))):
            turns.append((at, session, turn + 1, words))
            at += float(rng.lognormal(4.5, 1.2))
            words += int(rng.integers(5, 40))
    turns.sort()
    stores: list[dict[int, float]] = [{} for _ in range(replicas)]
    rows = []
    for at, session, turn, blocks in turns:
        replica = int(rng.integers(replicas))
        store = stores[replica]
        path = [1, 2, 3] + [1000 * (session + 1) + i for i in range(blocks)]
        hits = 0
        while hits < len(path) and path[hits] in store:
            if ttl_s is not None and at - store[path[hits]] > ttl_s:
                break
            hits += 1
        for block in reversed(path):  # the root is the newest
            store.pop(block, None)
            store[block] = at
        while room is not None and len(store) * 16 > room:
            del store[next(iter(store))]
        cached = hits * 16 // step * step
        tokens = 16 * len(path)
        rows.append(
            {
                "start": 1_700_000_000 + at, "session_id": f"s{session}", "turn": turn,
                "replica": f"r{replica}", "model": "m", "input_tokens": tokens,
                "output_tokens": 10, "cached_tokens": cached,
                "ttft_ms": 50 + 0.2 * (tokens - cached), "e2e_ms": 400 + 0.2 * (tokens - cached),
                "prefix_blocks": path, "block_tokens": 16,
            }
        )  # fmt: skip
    return written(folder / f"served-{ttl_s}-{room}-{replicas}-{step}.jsonl", rows)


def test_a_lifetime_is_seen_in_the_counts(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=120.0)).ladder
    assert ladder is not None
    assert ladder.limits.ttl_s == pytest.approx(120, rel=0.1)
    by = {r.id: r for r in ladder.rungs}
    assert by["expiry"].basis == "inferred"
    assert by["capacity"].basis == "unknown"
    assert abs(by["actual"].lost_tokens) < 0.02 * by["ideal"].hit_tokens
    assert by["expiry"].lost_tokens > 0.1 * by["ideal"].hit_tokens


def test_a_size_is_seen_in_the_counts(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=None, room=20_000)).ladder
    assert ladder is not None
    by = {r.id: r for r in ladder.rungs}
    assert by["capacity"].basis == "inferred"
    assert ladder.limits.capacity_tokens == pytest.approx(20_000, rel=0.05)
    assert by["expiry"].basis == "unknown"
    assert abs(by["actual"].lost_tokens) < 0.02 * by["ideal"].hit_tokens


def test_what_routing_takes_is_told_from_the_rest(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=None, replicas=4)).ladder
    assert ladder is not None
    by = {r.id: r for r in ladder.rungs}
    assert by["routing"].basis == "logged"
    assert by["routing"].lost_tokens > 0.3 * by["ideal"].hit_tokens
    assert (by["expiry"].lost_tokens, by["capacity"].lost_tokens) == (0, 0)
    assert by["actual"].lost_tokens == 0


def test_rounding_is_seen_in_the_counts(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=None, step=128)).ladder
    assert ladder is not None
    assert ladder.limits.round_to_tokens == 128
    by = {r.id: r for r in ladder.rungs}
    assert by["rounding"].lost_tokens > 0
    assert by["actual"].lost_tokens == 0


def test_seconds_come_from_the_line_of_the_log(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=None, replicas=4)).ladder
    assert ladder is not None
    routing = next(r for r in ladder.rungs if r.id == "routing")
    assert routing.lost_seconds == pytest.approx(routing.lost_tokens * 0.2e-3, rel=0.03)


def test_groups_add_up(tmp_path: Path) -> None:
    ladder = found(served_log(tmp_path, ttl_s=None, replicas=4)).ladder
    assert ladder is not None
    total = ladder.rungs[0].hit_tokens - ladder.rungs[-1].hit_tokens
    for column in ("replica", "turn"):
        groups = ladder.groups[column]
        assert sum(g.lost_tokens for g in groups) == total
        assert sum(g.hit_tokens["ideal"] for g in groups) == ladder.rungs[0].hit_tokens


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30
    )
)
def test_a_threshold_puts_as_little_as_can_be_on_the_wrong_side(
    rows: list[tuple[int, int, int]],
) -> None:
    values, got, missed = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    best = threshold(values, got, missed, np.arange(len(values)))
    if best is None:
        return
    wrong = missed[values <= best.limit].sum() + got[values > best.limit].sum()
    every = [missed[values <= c].sum() + got[values > c].sum() for c in [-1, *values]]
    assert wrong == min(every)
    assert best.explains == pytest.approx(1 - wrong / missed.sum())


# --- from counts alone ---------------------------------------------------------------------------


def without_blocks(path: str) -> str:
    frame = pl.read_ndjson(path).drop("prefix_blocks", "block_tokens")
    out = path.replace(".jsonl", "-counts.jsonl")
    frame.write_ndjson(out)
    return out


def test_counts_alone_tell_a_coarser_ladder(tmp_path: Path) -> None:
    exact = found(served_log(tmp_path, ttl_s=120.0))
    coarse = found(without_blocks(served_log(tmp_path, ttl_s=120.0)))
    assert coarse.grade == "reported"
    assert exact.ladder is not None
    assert coarse.ladder is not None
    assert coarse.ladder.rungs[0].basis == "inferred"
    assert coarse.ladder.limits.ttl_s == pytest.approx(120, rel=0.15)
    last = coarse.ladder.rungs[-1]
    assert last.hit_tokens == exact.ladder.rungs[-1].hit_tokens
    assert coarse.capacity is None
    assert any("block hashes" in text for text in coarse.lacks)


def test_counts_alone_tell_what_routing_takes(tmp_path: Path) -> None:
    coarse = found(without_blocks(served_log(tmp_path, ttl_s=None, replicas=3))).ladder
    assert coarse is not None
    by = {r.id: r for r in coarse.rungs}
    assert by["routing"].basis == "logged"
    assert by["routing"].lost_tokens > 0.3 * by["ideal"].hit_tokens


def test_an_earlier_turn_at_the_same_replica_still_serves(tmp_path: Path) -> None:
    """Turns come to a random one of three replicas: the one before is not the only one of use."""
    log = served_log(tmp_path, ttl_s=None, replicas=3, sessions=150)
    exact, coarse = found(log).ladder, found(without_blocks(log)).ladder
    assert exact is not None
    assert coarse is not None
    (true,) = (r.lost_tokens for r in exact.rungs if r.id == "routing")
    (said,) = (r.lost_tokens for r in coarse.rungs if r.id == "routing")
    assert said == pytest.approx(true, rel=0.1)


def test_nobody_who_stays_loses_by_routing(tmp_path: Path) -> None:
    """First turns find what others left: no router took that from them."""
    log = served_log(tmp_path, ttl_s=None)
    frame = pl.read_ndjson(log).drop("prefix_blocks", "block_tokens").with_columns(
        replica=pl.format("r{}", pl.col("session_id").str.slice(1).cast(pl.Int64) % 3)
    )  # fmt: skip
    frame.write_ndjson(log)
    ladder = found(log).ladder
    assert ladder is not None
    (routing,) = (r for r in ladder.rungs if r.id == "routing")
    assert routing.basis == "logged"
    assert routing.lost_tokens == 0


@pytest.mark.parametrize("blocks", [True, False])
def test_misses_without_a_rule_are_no_limit(tmp_path: Path, blocks: bool) -> None:
    log = served_log(tmp_path, ttl_s=None, sessions=150)
    frame = pl.read_ndjson(log).with_row_index()
    missed = pl.col("index").hash(3) % 10 < 4
    frame = frame.with_columns(
        cached_tokens=pl.when(missed).then(0).otherwise("cached_tokens")
    ).drop("index")
    frame.write_ndjson(log)
    ladder = found(log if blocks else without_blocks(log)).ladder
    assert ladder is not None
    assert ladder.limits.ttl_s is None
    assert ladder.limits.capacity_tokens is None
    assert ladder.rungs[-1].lost_tokens > 0.2 * ladder.rungs[0].hit_tokens


def test_a_log_that_tells_nothing_says_so() -> None:
    report = found(str(SAMPLES / "vllm-bench.json"))
    assert report.ladder is None or report.grade != "content"
    assert report.lacks


# --- what the user may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "per_token"),
    [("llama-3.1-70b", 327_680), ("LLAMA-3.1-8B", 131_072), ("80x8x128", 327_680),
     ("80x8x128x1", 163_840)],
)  # fmt: skip
def test_kv_shapes(text: str, per_token: int) -> None:
    assert kv_shape(text).bytes_per_token == per_token


@pytest.mark.parametrize(
    "text", ["", "x", "80x8", "80x8x128x2x2", "0x8x128", "1.5x8x128", "nanx8x128", "infx1x1", "gpt"]
)
def test_wrong_kv_shapes(text: str) -> None:
    with pytest.raises(UsageError, match="--kv-shape"):
        kv_shape(text)


@pytest.mark.parametrize(
    "options",
    [{"ttl_s": 0}, {"cache_tokens": -5}, {"replicas": 0}, {"replicas": 10**6},
     {"block_tokens": 0}, {"ms_per_1k_tokens": float("nan")}, {"policy": "best", "replicas": 2},
     {"cache_gb": 40.0}, {"cache_gb": float("nan"), "kv": "80x8x128"}, {"policy": "random"}],
)  # fmt: skip
def test_wrong_limits(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ttftdoctor.prefix(str(SAMPLES / "mooncake.jsonl"), **options)


def test_gigabytes_are_tokens_of_a_shape(by_hand: str) -> None:
    ladder = found(by_hand, cache_gb=5 * 512 * 327_680 / 1e9, kv="80x8x128").ladder
    assert ladder is not None
    assert ladder.limits.capacity_tokens == 5 * 512
    assert ladder.rungs[2].hit_tokens == 3072
