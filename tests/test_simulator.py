"""The modelled service: its arithmetic, its limits with known answers, its remedies, its files."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import simulator
from ttftdoctor.cli import app
from ttftdoctor.errors import UsageError
from ttftdoctor.simulator.cache import PrefixCache
from ttftdoctor.simulator.scenario import CAUSES, Spread, stream
from ttftdoctor.simulator.server import Loop, Replica, _duration, _steps_by
from ttftdoctor.simulator.truth import ACCOUNTS, Run, accounts_ps, ttft_ps
from ttftdoctor.simulator.workload import plan

NAMES = simulator.names()

SMALL = """
title = "small"
[causes]
primary = "healthy"
[load]
utilisation = {utilisation}
spans = {spans}
[[server]]
replicas = {replicas}
routing = "{routing}"
slots = {slots}
chunk_tokens = {chunk}
sharing = "{sharing}"
cache = {cache}
cache_tokens = {room}
ttl_s = {ttl}
block_tokens = {block}
unload_after_s = {unload}
load_s = {load}
[[traffic]]
sessions = {sessions}
turns = {{ median = 4, sigma = 0.6, max = 9 }}
system_tokens = {system}
user_tokens = {{ median = 300, sigma = 1.0, min = 1, max = 6000 }}
document_tokens = {{ median = 2000, sigma = 0.8, max = 9000 }}
document_later = 0.2
output_tokens = {{ median = 40, sigma = 1.0, min = 1, max = 300 }}
thinking_tokens = {thinking}
think_s = {{ median = 3, sigma = 1.0, max = 60 }}
changing_tokens = {changing}
changing_at = 20
compact_at = {compact}
compact_to = {compact_to}
[faults]
gate = {gate}
buffered = {buffered}
hold_tokens = 10
[limit]
allowed = {limit}
[upstream]
failing_share = {failing}
[release]
factor = {factor}
"""

USUAL = {
    "utilisation": 0.5, "spans": 1, "replicas": 2, "routing": "session", "slots": 8,
    "chunk": 512, "sharing": "fcfs", "cache": "true", "room": 0, "ttl": 0, "block": 16,
    "unload": 0, "load": 0, "sessions": 12, "system": 100, "thinking": 0, "changing": 0,
    "compact": 0, "compact_to": 0, "gate": 0, "buffered": 0.0, "limit": 0.0, "failing": 0.0,
    "factor": 1.0,
}  # fmt: skip


def small(**kw) -> simulator.Scenario:
    return simulator.parse(SMALL.format(**{**USUAL, **kw}), "small")


def one(server: str = "", traffic: str = "", rest: str = "") -> simulator.Scenario:
    """One session, nothing on the way but what is said."""
    text = f"""
[causes]
primary = "healthy"
{rest if rest.startswith("[load]") else ""}
[gateway]
ms = 30
jitter_ms = 0
[[server]]
step_overhead_ms = 5
ms_per_1k = 120
ms_per_1k_per_1k = 3
hit_ms_per_1k = 2
decode_ms = 20
decode_ms_per_running = 1
decode_ms_per_1k_context = 0.5
{server}
[[traffic]]
{traffic}
{"" if rest.startswith("[load]") else rest}
"""
    return simulator.parse(text, "one")


services = st.fixed_dictionaries(
    {
        "utilisation": st.sampled_from([0.1, 0.7, 1.5]),
        "spans": st.sampled_from([0, 1]),
        "replicas": st.integers(1, 4),
        "routing": st.sampled_from(
            ["session", "random", "round_robin", "least_load", "prefix_aware"]
        ),
        "slots": st.sampled_from([1, 2, 5, 40]),
        "chunk": st.sampled_from([0, 64, 512, 4096]),
        "sharing": st.sampled_from(["fcfs", "fair"]),
        "cache": st.sampled_from(["true", "false"]),
        "room": st.sampled_from([0, 500, 20_000]),
        "ttl": st.sampled_from([0, 5]),
        "block": st.sampled_from([1, 16, 100]),
        "unload": st.sampled_from([0, 4]),
        "load": st.sampled_from([0, 7]),
        "sessions": st.integers(1, 14),
        "system": st.sampled_from([0, 7, 600]),
        "thinking": st.sampled_from([0, 50]),
        "changing": st.sampled_from([0, 9]),
        "compact": st.sampled_from([0, 3000]),
        "compact_to": st.just(500),
        "gate": st.sampled_from([0, 2]),
        "buffered": st.sampled_from([0.0, 0.5]),
        "limit": st.sampled_from([0.0, 0.7]),
        "failing": st.sampled_from([0.0, 0.3]),
        "factor": st.sampled_from([1.0, 2.5]),
    }
)
remedies = st.sampled_from([None, *simulator.REMEDIES, "prefix_cache+session_affinity"])
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# ------------------------------------------------------------------ conservation


@thorough
@given(service=services, seed=st.integers(0, 50), treatment=remedies)
def test_every_part_is_there_and_adds_up(service, seed, treatment) -> None:
    scenario = small(**service)
    run = simulator.serve(scenario, seed, treatment)
    planned = sum(len(s.turns) for s in run.plan.sessions)
    refused = [job for job in run.jobs if job.status != "ok"]
    assert len(run.jobs) == planned or refused
    assert run.jobs == tuple(sorted(run.jobs, key=lambda job: job.wanted))
    for job in run.done:
        parts = accounts_ps(job)
        assert sum(parts) == ttft_ps(job)
        assert min(parts) >= 0, dict(zip(ACCOUNTS, parts, strict=True))
        assert job.wanted <= job.sent <= job.accepted <= job.arrived <= job.scheduled
        assert job.scheduled < job.first <= job.visible <= job.last
        assert 0 <= job.cached <= job.repeated < job.input
        assert job.cached % run.plan.service.server[0].block_tokens == 0
        assert job.left == 0
    assert all(n <= run.plan.service.server[0].slots for n in run.most_taken.values())
    turns: dict[int, int] = {}
    for job in run.jobs:
        assert job.index == turns.get(job.session.number, 0)
        turns[job.session.number] = job.index + 1


@thorough
@given(service=services, seed=st.integers(0, 50))
def test_first_come_is_first_scheduled(service, seed) -> None:
    run = simulator.serve(small(**service), seed)
    for number in range(service["replicas"]):
        here = sorted((j for j in run.done if j.replica == number), key=lambda j: j.arrived)
        scheduled = [job.scheduled for job in here]
        assert scheduled == sorted(scheduled)
        if service["chunk"] == 0 or service["sharing"] == "fcfs":
            first = [job.first for job in here]
            assert first == sorted(first)


class StepByStep(Loop):
    """The same server, but each decode step is an event of its own."""

    def _begin(self, now, replica: Replica, repeated, new, cold, whole) -> None:
        if replica.run > 1:
            replica.run = 1
            whole = replica.first_step
        super()._begin(now, replica, repeated, new, cold, whole)


@thorough
@given(service=services, seed=st.integers(0, 50), treatment=remedies)
def test_skipping_decode_steps_changes_nothing(service, seed, treatment) -> None:
    from ttftdoctor.simulator.treat import treat

    treated = treat(plan(small(**service), seed), treatment)

    def seen(loop: Loop) -> list[tuple[object, ...]]:
        return [
            (
                j.session.number,
                j.index,
                j.replica,
                j.cached,
                j.scheduled,
                j.first,
                j.visible,
                j.last,
            )
            for j in loop.serve()
        ]

    assert seen(Loop(treated)) == seen(StepByStep(treated))


@given(gone=st.integers(0, 10**15), first=st.integers(1, 10**12), part=st.integers(0, 1000))
def test_steps_by_is_the_least_number(gone: int, first: int, part: int) -> None:
    growth = first * part // 1000
    steps = _steps_by(gone, first, growth)
    assert steps >= 1
    assert _duration(steps, first, growth) >= gone
    assert steps == 1 or _duration(steps - 1, first, growth) < gone


def test_the_frame_adds_up_and_the_log_says_the_same() -> None:
    run = simulator.serve(simulator.load("repeated_prefix_peak"), 4)
    frame = run.frame()
    total = sum(frame[name] for name in ACCOUNTS)
    assert (total - frame["ttft_s"]).abs().max() < 1e-9
    assert (frame["ttft_ms"] / 1e3 - frame["ttft_s"]).abs().max() < 1e-6
    assert (frame["true_queue_s"] + frame["true_prefill_s"] <= frame["ttft_s"] + 1e-9).all()
    truth = run.truth()
    assert truth["today"]["mean"] == pytest.approx(frame["ttft_s"].mean())
    assert sum(truth["accounts_mean_s"].values()) == pytest.approx(truth["today"]["mean"])
    assert json.loads(json.dumps(truth, allow_nan=False)) == truth


# ------------------------------------------------------------------ limits with known answers


def steps_of(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk) if chunk else 1


@pytest.mark.parametrize("chunk", [0, 500, 2048])
@pytest.mark.parametrize("tokens", [1, 1999, 2048, 2049, 30_000])
def test_a_request_alone_takes_what_the_formula_says(chunk: int, tokens: int) -> None:
    scenario = one(
        f"chunk_tokens = {chunk}",
        f"sessions = 1\nsystem_tokens = 0\nuser_tokens = {tokens}\noutput_tokens = 50",
    )
    (job,) = simulator.serve(scenario).jobs
    u = Fraction(tokens, 1000)
    ms = 30 + 5 * steps_of(tokens, chunk) + 120 * u + 3 * u * u / 2 + 2 * u
    assert Fraction(ttft_ps(job), 10**9) == ms
    decode = sum(
        (Fraction(20) + 1 + Fraction(tokens + n, 1000) / 2 for n in range(1, 50)), Fraction(0)
    )
    assert Fraction(job.last - job.first, 10**9) == decode


def test_a_cached_turn_takes_what_the_formula_says() -> None:
    scenario = one(
        "chunk_tokens = 0\nblock_tokens = 16",
        "sessions = 1\nturns = 3\nsystem_tokens = 100\nuser_tokens = 1000\noutput_tokens = 50",
    )
    jobs = simulator.serve(scenario).jobs
    assert [job.input for job in jobs] == [1100, 2150, 3200]
    assert [job.cached for job in jobs] == [0, 1150 // 16 * 16, 2200 // 16 * 16]
    assert [job.repeated for job in jobs] == [0, 1150, 2200]
    for job in jobs:
        c = Fraction(job.cached, 1000)
        u = Fraction(job.input, 1000) - c
        ms = 35 + 120 * u + 3 * u * (c + u / 2) + 2 * (c + u)
        assert Fraction(ttft_ps(job), 10**9) == ms


def test_the_wait_of_a_single_server_is_that_of_an_m_d_1_queue() -> None:
    """Each wait by Lindley's recursion, exactly; their mean by Pollaczek and Khinchine.

    The latter is rho * S / (2 * (1 - rho)) for equal services S, within what 16,000 arrivals vary.
    """
    scenario = one(
        "chunk_tokens = 0\nslots = 1\ncache = false",
        "sessions = 16000\nsystem_tokens = 0\nuser_tokens = 1000\noutput_tokens = 1",
        "[load]\nutilisation = 0.6\nspans = 0",
    )
    run = simulator.serve(scenario, 4)
    service = 128_500_000_000  # 5 + 120 + 3 / 2 + 2 ms
    free = 0
    for job in run.jobs:
        assert job.scheduled == max(job.arrived, free)
        free = job.scheduled + service
        assert job.last == free
    rho = len(run.jobs) * service / run.plan.end
    waits = [job.scheduled - job.arrived for job in run.jobs]
    assert sum(waits) / len(waits) == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.04)
    # And all of it is behind new prefill, or the overhead of the steps before it.
    parts = [accounts_ps(job) for job in run.jobs]
    assert [p[5] + p[6] for p in parts] == waits


def test_with_a_full_cache_only_new_tokens_are_computed() -> None:
    run = simulator.serve(small(block=1, replicas=1, sessions=20))
    for job in run.jobs:
        if job.index:
            assert job.input - job.cached == job.turn.new_tokens


def test_slots_that_decode_are_waited_for() -> None:
    """Two at once on one slot: the second waits for all of the first answer."""
    scenario = one(
        "slots = 1\nchunk_tokens = 0\ncache = false",
        "sessions = 2\nsystem_tokens = 0\nuser_tokens = 100\noutput_tokens = 200\n"
        "burst = 2\nburst_s = 0.001",
    )
    first, second = simulator.serve(scenario).jobs
    assert second.scheduled == first.last
    parts = dict(zip(ACCOUNTS, accounts_ps(second), strict=True))
    decoding = first.last - first.first
    assert parts["true_wait_other_s"] >= decoding
    assert parts["true_wait_other_s"] <= decoding + 5 * 10**9  # and the overhead of its step


# ------------------------------------------------------------------ the cache


class Blocks:
    """A prefix cache written down block by block."""

    def __init__(self, block: int, room: int, ttl: int) -> None:
        self.block, self.room, self.ttl = block, room, ttl
        self.used: dict[tuple[int, ...], int] = {}  # a head of whole blocks: last use

    def forget(self, now: int) -> None:
        if self.ttl:
            self.used = {k: v for k, v in self.used.items() if v >= now - self.ttl}

    def heads(self, prompt: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(prompt[:n]) for n in range(self.block, len(prompt) + 1, self.block)]

    def use(self, prompt: Sequence[int], now: int) -> int:
        self.forget(now)
        n = 0
        for head in self.heads(prompt):
            if head not in self.used:
                break
            self.used[head] = now
            n += self.block
        return n

    def add(self, prompt: Sequence[int], now: int) -> None:
        self.forget(now)
        for head in self.heads(prompt):
            self.used[head] = now
        while self.room and len(self.used) * self.block > self.room:
            del self.used[min(self.used, key=lambda head: (self.used[head], -len(head)))]


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    room=st.sampled_from([0, 12, 40, 100]),
    ttl=st.sampled_from([0, 3, 8]),
)
def test_the_cache_is_the_one_written_block_by_block(data, room: int, ttl: int) -> None:
    """Prompts share heads, parts are whole blocks; each instant is used once, so order is clear."""
    block = 4
    cache, blocks = PrefixCache(block, room, ttl), Blocks(block, room, ttl)
    lengths: list[int] = [0]
    numbers: dict[tuple[int, int, int], int] = {}
    prompts: list[tuple[list[int], list[int]]] = []
    now = 0
    for _ in range(data.draw(st.integers(1, 14))):
        base: tuple[list[int], list[int]] = ([], [])
        if prompts and data.draw(st.booleans()):
            old = data.draw(st.sampled_from(prompts))
            keep = data.draw(st.integers(0, len(old[0])))
            path = old[0][:keep]
            base = (path, old[1][: sum(lengths[p] for p in path)])
        path, tokens = list(base[0]), list(base[1])
        for _ in range(data.draw(st.integers(0, 3))):
            kind, n = data.draw(st.integers(1, 3)), block * data.draw(st.integers(1, 4))
            key = (path[-1] if path else 0, kind, n)
            if key not in numbers:
                numbers[key] = len(lengths)
                lengths.append(n)
            path.append(numbers[key])
            tokens.extend(10_000 * numbers[key] + i for i in range(n))
        prompts.append((path, tokens))
        now += data.draw(st.integers(1, 4))
        does = data.draw(st.sampled_from(["use", "add", "both"]))
        if does != "add":
            assert cache.use(path, lengths, now) == blocks.use(tokens, now)
            now += 1
        if does != "use":
            cache.add(path, lengths, now)
            blocks.add(tokens, now)
        assert not room or cache.tokens <= room
        cache.add([], lengths, now)  # forgets what has expired, as the other one did
        blocks.add([], now)
        assert cache.tokens == len(blocks.used) * block


@given(data=st.data(), room=st.sampled_from([0, 50, 300]), block=st.sampled_from([1, 7, 16]))
def test_the_cache_counts_its_tokens(data, room: int, block: int) -> None:
    """Parts of any length: the sum is right, and what was just added is there while it fits."""
    lengths = [0, *data.draw(st.lists(st.integers(1, 60), min_size=6, max_size=6))]
    chains = [[1], [1, 2], [1, 2, 3], [1, 4], [1, 4, 5], [6]]
    cache = PrefixCache(block, room)
    for now in range(1, 20):
        path = data.draw(st.sampled_from(chains))
        before = cache.match(path, lengths, now)
        cache.add(path, lengths, now)
        tokens = sum(lengths[part] for part in path)
        after = cache.match(path, lengths, now)
        assert cache.tokens == sum(held for held, _ in cache._parts.values())
        if not room:
            assert after == tokens // block * block >= before
        else:
            assert cache.tokens <= room


def test_of_a_prompt_the_tail_goes_before_the_head() -> None:
    cache = PrefixCache(10, 60)
    lengths = [0, 20, 20, 30]
    cache.add([1, 2], lengths, 1)
    assert cache.use([1, 2], lengths, 2) == 40
    cache.add([3], lengths, 3)
    assert cache.match([1, 2], lengths, 4) == 30


def test_only_whole_blocks_are_kept_and_hit() -> None:
    cache = PrefixCache(16)
    lengths = [0, 100, 50, 70]
    cache.add([1, 2], lengths, 1)
    assert cache.match([1, 2], lengths, 2) == 144
    assert cache.match([1, 3], lengths, 2) == 96
    assert cache.match([3], lengths, 2) == 0


# ------------------------------------------------------------------ same seed, same bytes


def test_same_seed_same_bytes_whatever_the_hash_seed() -> None:
    code = (
        "import hashlib; from ttftdoctor import simulator as s\n"
        "for name in ('healthy_fleet', 'ratelimit_backoff'):\n"
        "    run = s.serve(s.load(name), 7)\n"
        "    print(hashlib.sha256(s.log_bytes(run, 'blocks')).hexdigest())\n"
    )
    out = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "77")
    }  # fmt: skip
    assert len(out) == 1


def test_other_seeds_are_other_services() -> None:
    scenario = simulator.load("repeated_prefix_no_reuse")
    costs = [scenario.settle(seed).server[0].ms_per_1k for seed in range(20)]
    assert len(set(costs)) == 20
    assert min(costs) < 60 < 200 < max(costs)


def test_draws_are_promised_numbers() -> None:
    """Golden: a change here changes every shipped log."""
    assert [round(stream("a", 1).random(), 6) for _ in range(2)] == [0.935404, 0.935404]
    rng = stream("b")
    drawn = [Spread(100, 0.5, 10, 400).draw(rng) for _ in range(3)]
    assert [round(x, 3) for x in drawn] == [38.043, 127.851, 84.673]


def test_nobody_meets_another_fate_under_a_remedy() -> None:
    """Common random numbers: same people, words, think times and jitter."""
    scenario = simulator.load("repeated_prefix_peak")
    before, after = (simulator.serve(scenario, 2, t) for t in (None, "prefix_cache"))
    assert len(before.jobs) == len(after.jobs)

    def fate(run: Run) -> dict[tuple[int, int], tuple[int, int, int]]:
        return {
            (j.session.number, j.index): (j.input, j.turn.output_tokens, j.way_in + j.way_out)
            for j in run.jobs
        }

    assert fate(before) == fate(after)


def test_no_change_gains_exactly_nothing() -> None:
    scenario = simulator.load("healthy_single_shot")
    idle = ("rollback", "backoff_fix", "warm_pool", "stable_prefix", "session_affinity",
            "more_cache", "shed_peak", "prefix_cache", "history_compaction")  # fmt: skip
    gains = simulator.remedies_truth(scenario, 3, idle)
    assert {name: level["gain_share"] for name, level in gains.items()} == dict.fromkeys(idle, 0.0)


# ------------------------------------------------------------------ remedies


@pytest.mark.parametrize(
    ("scenario", "treatment", "least"),
    [
        ("repeated_prefix_no_reuse", "prefix_cache", 0.4),
        ("repeated_prefix_peak", "prefix_cache", 0.5),
        ("repeated_prefix_agents", "history_compaction", 0.1),
        ("eviction_capacity", "more_cache", 0.4),
        ("eviction_expiry", "more_cache", 0.4),
        ("busting_each_turn", "stable_prefix", 0.4),
        ("busting_clock", "stable_prefix", 0.4),
        ("affinity_random", "session_affinity", 0.4),
        ("affinity_round_robin", "session_affinity", 0.4),
        ("queueing_new_content", "double_capacity", 0.5),
        ("queueing_peak", "shed_peak", 0.4),
        ("queueing_whole_prompts", "chunked_prefill", 0.05),
        ("decode_slots", "more_seqs", 0.5),
        ("decode_slots", "disaggregated_prefill", 0.5),
        ("decode_steps", "disaggregated_prefill", 0.5),
        ("cold_idle_unload", "warm_pool", 0.8),
        ("cold_scale_up", "warm_pool", 0.7),
        ("fixed_everywhere", "faster_gateway", 0.9),
        ("fixed_one_route", "faster_gateway", 0.7),
        ("release_slower", "rollback", 0.2),
        ("ratelimit_backoff", "backoff_fix", 0.3),
        ("failing_upstream", "backoff_fix", 0.8),
    ],
)
def test_each_remedy_helps_where_its_cause_is_planted(scenario, treatment, least) -> None:
    loaded = simulator.load(scenario)
    got = simulator.remedies_truth(loaded, 1, [treatment])[treatment]
    assert got["gain_share"] is not None
    assert got["gain_share"] >= least


def missed(run: Run) -> float:
    """The share of repeated tokens that was computed again."""
    again = sum(max(job.repeated - job.cached, 0) for job in run.jobs)
    return again / sum(job.repeated for job in run.jobs)


def test_what_each_remedy_changes() -> None:
    def served(name: str, treatment: str | None = None) -> Run:
        return simulator.serve(simulator.load(name), 5, treatment)

    cached = served("repeated_prefix_no_reuse", "prefix_cache")
    assert missed(cached) < 0.03
    stable = served("busting_each_turn", "stable_prefix")
    assert missed(stable) < 0.03
    loyal = served("affinity_round_robin", "session_affinity")
    assert len({(j.session.number, j.replica) for j in loyal.jobs}) == len(loyal.plan.sessions)
    short = served("repeated_prefix_agents", "history_compaction")
    for job in short.jobs:
        least = job.session.traffic.system_tokens + job.turn.new_tokens + 64
        assert not job.index or job.input <= max(1.25 * 8000, least)
    assert not any(job.cold for job in served("cold_restarts", "warm_pool").jobs)
    assert all(job.attempts == 1 for job in served("failing_upstream", "backoff_fix").jobs)
    old = served("release_slower", "rollback")
    assert {job.version for job in old.jobs} == {"1.8.2", "1.9.0"}
    twice = served("queueing_new_content", "double_capacity")
    assert len(twice.most_taken) == 2 * len(served("queueing_new_content").most_taken)


def test_shedding_moves_only_the_excess_of_the_peak() -> None:
    scenario = simulator.load("queueing_peak")
    before, after = (simulator.serve(scenario, 1, t) for t in (None, "shed_peak"))
    load = before.plan.service.load

    def inside(run: Run) -> int:
        first, last = (part * run.plan.end for part in (load.peak_from, load.peak_to))
        return sum(first <= s.start < last for s in run.plan.sessions)

    assert len(after.plan.sessions) == len(before.plan.sessions)
    assert inside(after) == pytest.approx(inside(before) / load.peak_factor, rel=0.2)
    moved = sum(a.start != b.start for a, b in zip(
        before.plan.sessions, after.plan.sessions, strict=True))  # fmt: skip
    assert moved == inside(before) - inside(after)


def test_several_remedies_at_once() -> None:
    run = simulator.serve(simulator.load("mixed_affinity_eviction"), 1)
    both = simulator.serve(
        simulator.load("mixed_affinity_eviction"), 1, "session_affinity+more_cache"
    )
    assert missed(run) > 0.3
    assert missed(both) < 0.05
    with pytest.raises(UsageError, match="no remedy 'aspirin'"):
        simulator.serve(simulator.load("healthy_chat"), 1, "aspirin")


# ------------------------------------------------------------------ scenarios


def test_every_cause_has_a_scenario() -> None:
    planted = Counter(simulator.load(name).causes.primary for name in NAMES)
    assert set(planted) == set(CAUSES)
    assert planted["healthy"] >= 5
    assert sum(bool(simulator.load(name).causes.contributing) for name in NAMES) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_what_is_planted_is_what_makes_first_tokens_late(name: str) -> None:
    scenario = simulator.load(name)
    run = simulator.serve(scenario, 11)
    truth = run.truth()
    mean = truth["today"]["mean"]
    share = {k: v / mean for k, v in truth["accounts_mean_s"].items()}
    primary = scenario.causes.primary
    again = share["true_prefill_repeated_s"] + share["true_wait_behind_repeated_s"]
    if primary in ("repeated_prefix_no_reuse", "cache_eviction", "cache_busting_prefix",
                   "affinity_loss"):  # fmt: skip
        assert again > 0.35
    elif primary == "queueing_saturation":
        assert share["true_wait_behind_new_s"] > 0.4
    elif primary == "decode_contention":
        assert share["true_wait_other_s"] > 0.6
    elif primary == "organic_long_input":
        assert share["true_prefill_new_s"] > 0.5
    elif primary == "cold_start":
        assert share["true_cold_s"] > 0.5
    elif primary == "fixed_overhead":
        assert share["true_fixed_s"] > 0.6
    elif primary == "retry_or_ratelimit":
        assert share["true_retry_s"] > 0.5
    elif primary == "deploy_regression":
        back = simulator.remedies_truth(scenario, 11, ["rollback"])["rollback"]
        assert (back["gain_share"] or 0) > 0.15
    elif primary == "healthy":
        assert again < 0.1
        assert share["true_wait_behind_new_s"] < 0.35
        assert mean < 1.5
    for column, value in scenario.causes.scope.items():
        assert value in run.columns()[column]


def test_faults_are_in_the_log() -> None:
    def columns(name: str):
        return simulator.serve(simulator.load(name), 3).frame()

    frame = columns("fault_not_streamed")
    assert (frame["ttft_ms"] == frame["e2e_ms"]).all()
    frame = columns("fault_buffered").filter(pl_col("output_tokens") > 1)
    assert (frame["ttft_ms"] == frame["e2e_ms"]).mean() > 0.6
    frame = columns("fault_thinking")
    assert (frame["true_hold_s"] > 0.7 * frame["ttft_s"]).all()
    frame = columns("fault_unit_mixed")
    wrong = (frame["ttft_ms"] / frame["ttft_s"] - 1).abs() < 0.01
    assert 0.1 < wrong.mean() < 0.6
    frame = columns("fault_client_gate")
    assert (frame["true_gate_s"] > 0).mean() > 0.3
    frame = columns("healthy_dead_counter")
    assert frame["cached_tokens"].sum() == 0 < frame["true_cached_tokens"].sum()
    run = simulator.serve(simulator.load("insufficient_few_rows"), 3)
    assert 3 <= simulator.log_bytes(run).count(b"\n") <= 7


def pl_col(name: str):
    import polars as pl

    return pl.col(name)


# ------------------------------------------------------------------ the log


LACKING = {
    "full": {"prefix_blocks"},
    "no_queue": {"queue_us", "prefill_us", "prefix_blocks"},
    "no_cached": {"cached_tokens", "prefix_blocks"},
    "client": {"cached_tokens", "queue_us", "prefill_us", "decode_us", "prefix_blocks"},
    "no_sessions": {"session_id", "turn", "prefix_blocks"},
    "blocks": set(),
}


@pytest.mark.parametrize("detail", simulator.DETAILS)
def test_each_level_of_detail_is_read_as_meant(detail: str, tmp_path: Path) -> None:
    run = simulator.serve(simulator.load("healthy_fleet"), 1)
    path = tmp_path / "log.jsonl.gz"
    simulator.write_log(run, path, detail)
    log = ttftdoctor.read(str(path))
    wanted = {
        "request_id", "session_id", "turn", "start", "model", "replica", "tenant", "route",
        "version", "input_tokens", "cached_tokens", "output_tokens", "ttft_us", "e2e_us",
        "queue_us", "prefill_us", "decode_us", "attempts", "status", "streamed", "vantage",
        "prefix_blocks",
    } - LACKING[detail]  # fmt: skip
    present = {c for c in log.requests.columns if log.requests[c].null_count() < len(log.requests)}
    assert wanted <= present
    assert not LACKING[detail] & present
    assert log.requests["ttft_us"].to_list() == [round(ttft_ps(j) / 1e6) for j in run.jobs]
    assert log.requests["input_tokens"].to_list() == [j.input for j in run.jobs]


def test_blocks_repeat_as_far_as_prompts_do() -> None:
    run = simulator.serve(simulator.load("repeated_prefix_no_reuse"), 2)
    rows = [json.loads(line) for line in simulator.log_bytes(run, "blocks").splitlines()]
    size = rows[0]["block_tokens"]
    last: dict[str, tuple[int, list[int]]] = {}
    for row in rows:
        blocks = row["prefix_blocks"]
        assert len(blocks) == row["input_tokens"] // size
        assert len(set(blocks)) == len(blocks)
        before = last.get(row["session_id"])
        if before is not None:
            whole = len(before[1])
            assert blocks[:whole] == before[1]
        last[row["session_id"]] = (row["input_tokens"], blocks)
    busted = simulator.serve(simulator.load("busting_each_turn"), 2)
    at = busted.plan.service.traffic[0].changing_at
    rows = [json.loads(line) for line in simulator.log_bytes(busted, "blocks").splitlines()]
    for row in rows:
        before = last.get("b" + row["session_id"])
        if before is not None:
            common = sum(a == b for a, b in zip(row["prefix_blocks"], before[1], strict=False))
            assert common == at // row["block_tokens"]
        last["b" + row["session_id"]] = (row["input_tokens"], row["prefix_blocks"])


def test_a_packed_log_holds_the_same_lines(tmp_path: Path) -> None:
    run = simulator.serve(simulator.load("insufficient_few_rows"))
    simulator.write_log(run, tmp_path / "a.jsonl")
    simulator.write_log(run, tmp_path / "a.jsonl.gz")
    packed = (tmp_path / "a.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.jsonl").read_bytes()
    with pytest.raises(UsageError, match="no level of detail"):
        simulator.write_log(run, tmp_path / "b", "some")
    with pytest.raises(UsageError, match="cannot write the log"):
        simulator.write_log(run, tmp_path / "no" / "b")


# ------------------------------------------------------------------ wrong scenarios


GOOD = """
[causes]
primary = "healthy"
[[server]]
[[traffic]]
sessions = 3
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "causes is missing"),
        ("x = [", "not TOML"),
        (GOOD.replace("healthy", "bad luck"), "bad luck"),
        (GOOD + "sesions = 3", "unknown key 'sesions'"),
        (GOOD.replace("sessions = 3", ""), "sessions is missing"),
        (GOOD.replace("= 3", "= 0"), "out of range"),
        (GOOD.replace("= 3", "= 3.5"), "no whole number"),
        (GOOD.replace("= 3", "= true"), "a number or a range"),
        (GOOD.replace("= 3", "= [5, 3]"), "upside down"),
        (GOOD.replace("= 3", "= [1, 2, 3]"), "a number or a range"),
        (GOOD + "turns = { sigma = 1 }", "median is missing"),
        (GOOD + "turns = { median = 1, mean = 2 }", "unknown key 'mean'"),
        (GOOD + "turns = { median = 1, min = 4, max = 2 }", "min is above max"),
        (GOOD + "turns = nan", "a number or a range"),
        (GOOD + 'model = "other"', "nobody serves 'other'"),
        (GOOD + "compact_at = 100", "compact_to must lie between"),
        (GOOD + 'peak = "yes"', "true or false is wanted"),
        (GOOD + "[limit]\ntenant = 3", "is not wanted here"),
        (GOOD.replace("[[server]]", "[server]"), "a list of tables"),
        (GOOD.replace("[[server]]", '[[server]]\nrouting = "dice"'), "'dice'"),
        (GOOD.replace("[[server]]", "[[server]]\n[[server]]"), "the same model"),
        (GOOD.replace("[[server]]", "[[server]]\n[[server.restart]]\nreplica=1\nat=0.5"), "count"),
        (GOOD.replace("[[server]]", "[[server]]\n[[server.start]]\nreplica=0\nat=0.5"), "be there"),
        (GOOD + "[load]\npeak_from = 0.8", "peak_to must be later"),
        (GOOD + "[load]\nutilisation = 0", "out of range"),
        ('[causes]\nprimary = "healthy"', "needs"),
        (GOOD.replace('"healthy"', '"healthy"\nscope = { shoe = "9" }'), "COLUMN = VALUE"),
        ("causes = 3", "a table is wanted"),
    ],
)  # fmt: skip
def test_a_wrong_scenario_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulator.parse(text, "mine")
    assert said in str(caught.value)
    assert "mine" in str(caught.value)


def test_the_least_scenario_is_served() -> None:
    assert len(simulator.serve(simulator.parse(GOOD, "least")).jobs) == 3


# ------------------------------------------------------------------ the command


def call(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_the_command_writes_log_and_truth(tmp_path: Path) -> None:
    log, truth = str(tmp_path / "log.jsonl"), str(tmp_path / "truth.json")
    done = call("fixed_one_route", "-o", log, "--truth", truth, "--seed", "4", "--detail", "client",
                "--treatment", "faster_gateway")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "planted: fixed_overhead, on route /v1/edge" in done.output
    said = json.loads(Path(truth).read_text())
    assert said["schema"] == "ttftdoctor.truth/1"
    assert said["treatment"] == "faster_gateway"
    assert said["requests"] == len(Path(log).read_text().splitlines())
    run = simulator.serve(simulator.load("fixed_one_route"), 4, "faster_gateway")
    assert Path(log).read_bytes() == simulator.log_bytes(run, "client")


def test_the_command_gives_the_gains(tmp_path: Path) -> None:
    truth = str(tmp_path / "truth.json")
    done = call("fixed_one_route", "-o", str(tmp_path / "x"), "--truth", truth, "--remedies")
    assert done.exit_code == 0, done.output
    gains = json.loads(Path(truth).read_text())["remedies"]
    assert set(gains) == set(simulator.REMEDIES)
    assert gains["faster_gateway"]["gain_share"] > 0.7
    assert gains["rollback"]["gain_share"] == 0
    assert "faster_gateway" in done.output


def test_a_shown_scenario_is_a_scenario_of_ones_own(tmp_path: Path) -> None:
    shown = call("--show", "cold_scale_up")
    own = tmp_path / "own.toml"
    own.write_text(shown.output)
    assert simulator.load(str(own)).table == simulator.load("cold_scale_up").table
    done = call(str(own), "-o", "-")
    assert done.exit_code == 0
    assert json.loads(done.output.splitlines()[0])["request_id"] == "r000000"
    again = call(str(own), "-o", str(own))
    assert again.exit_code == 2
    assert simulator.load(str(own))


def test_the_command_lists_all() -> None:
    done = call("--list")
    assert done.exit_code == 0
    for name in NAMES:
        assert name in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "wants a SCENARIO"),
        (("healthy_chat",), "wants a SCENARIO"),
        (("nowhere", "-o", "x"), "no scenario 'nowhere'"),
        (("healthy_chat", "-o", "-", "--detail", "all"), "no level of detail 'all'"),
        (("healthy_chat", "-o", "-", "--treatment", "prayer"), "no remedy 'prayer'"),
        (("healthy_chat", "-o", "x", "--truth", "x"), "different files"),
        (("healthy_chat", "-o", "/nowhere/x"), "cannot write the log"),
    ],
)
def test_the_command_refuses_in_words(arguments: tuple[str, ...], said: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output
