"""The gate: nothing is found in traffic, what was planted is found, and hostile files are told."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import simulator
from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.gate.baseline import LIMIT_BYTES, SCHEMA, TALLIES, Baseline, merged
from ttftdoctor.gate.estimate import Estimate, holm, rates
from ttftdoctor.gate.even import aligned, cut, figure_of, freedom_of, level_of, whole
from ttftdoctor.gate.judge import judge
from ttftdoctor.gate.lines import Part, line_estimate
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.packed import coarse, pack, unpack
from ttftdoctor.gate.records import Check, Checked, Scope
from ttftdoctor.gate.rules import DEFAULT_METRICS, Budget, Policy, Rule, default_policy
from ttftdoctor.gate.sketch import Sketch, counts_of, crowd_of, fresh_tokens, sketch_of
from ttftdoctor.gate.warmup import BATCH, WarmUp, mser, warm_up_of
from ttftdoctor.measure.mix import Cell, Tally, pooled, summed
from ttftdoctor.measure.rows import Rows, prepare
from ttftdoctor.measure.rows import Scope as Column
from ttftdoctor.measure.weigh import set_beside
from ttftdoctor.remedies import Settings
from ttftdoctor.run import read
from ttftdoctor.study import study

SERVICE = """
title = "gate"
[causes]
primary = "healthy"
[load]
utilisation = {utilisation}
spans = {spans}
[[server]]
replicas = 2
ms_per_1k = {slope}
ms_per_1k_per_1k = 0.8
decode_ms = {decode}
cache_share = {cache_share}
[[traffic]]
sessions = {sessions}
turns = {{ median = 6, sigma = 0.4, min = 2, max = 20 }}
system_tokens = 800
user_tokens = {{ median = {user}, sigma = 0.8, min = 5, max = 4000 }}
document_tokens = {{ median = {document}, sigma = 0.6, min = 100, max = 20000 }}
document_first = 0.5
output_tokens = {{ median = 200, sigma = 0.6, min = 5, max = 1500 }}
[gateway]
ms = {fixed}
jitter_ms = 6
"""
USUAL: dict[str, float] = {
    "slope": 100, "decode": 18, "cache_share": 0, "sessions": 300, "user": 150, "document": 2000,
    "fixed": 40, "utilisation": 0.1, "spans": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate")


def sketched(path: Path, **options: Any) -> Sketch:
    log = read(str(path))
    return sketch_of(log, *study(log, "LOG", Settings()), **options)


@cache
def served(place: Path, seed: int, *changed: tuple[str, float]) -> Sketch:
    """About 2,000 requests of a service, summed up."""
    text = SERVICE.format(**{**USUAL, **dict(changed)})
    path = place / f"{seed}-{abs(hash(changed))}.jsonl"
    simulator.write_log(simulator.serve(simulator.parse(text, "gate"), seed), path, "full")
    return sketched(path)


def side(place: Path, seeds: Sequence[int], **changed: float) -> Baseline:
    return Baseline("runs", tuple(served(place, s, *sorted(changed.items())) for s in seeds))


@pytest.fixture(scope="module")
def good(place: Path) -> Baseline:
    return side(place, range(1, 6))


def one(check: Check, metric: str) -> Checked:
    return next(m for m in check.metrics if m.metric == metric)


# --- tests by number ------------------------------------------------------------------------------


def slow_holm(p_values: list[float]) -> list[float]:
    """By the definition: the largest of what all smaller ones were multiplied by."""
    m = len(p_values)
    out = []
    for at, p in enumerate(p_values):
        before = [other for other, q in enumerate(p_values) if q < p or (q == p and other <= at)]
        ranks = sorted(before, key=lambda o: (p_values[o], o))
        out.append(max(min(1.0, (m - rank) * p_values[o]) for rank, o in enumerate(ranks)))
    return out


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_the_one_of_the_definition(p_values: list[float]) -> None:
    found = holm(p_values)
    assert found == pytest.approx(slow_holm(p_values))
    assert all(a >= p for a, p in zip(found, p_values, strict=True))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(
    st.floats(0.01, 10), st.floats(0.01, 10), st.floats(1e-4, 1), st.floats(2, 200), st.booleans()
)
def test_an_interval_and_its_p_value_agree(
    was: float, now: float, error: float, freedom: float, relative: bool
) -> None:
    """Zero lies at the end of a two-sided interval where the one-sided p-value is half of it."""
    e = Estimate(was, now, error, freedom, relative, 100)
    p = e.p_value("up")
    assert p is not None
    assert p + (e.p_value("down") or 0) == pytest.approx(1)
    if not 1e-6 < p < 0.5 - 1e-6:
        return
    low, high = e.interval(1 - 2 * p) or (0, 0)
    assert low == pytest.approx(0, abs=1e-6 * max(was, now) + 1e-9)
    assert low <= e.change <= high + 1e-12
    assert (e.bad_end("up", 0.025) or 0) == pytest.approx(max((e.interval() or (0, 0))[1], 0))


def test_an_estimate_by_hand() -> None:
    e = Estimate(1.0, 1.1, 0.04, 10.0, relative=False, n=500)
    assert e.p_value("up") == pytest.approx(stats.t.sf(2.5, 10))
    assert e.interval() == pytest.approx((0.1 - 2.228 * 0.04, 0.1 + 2.228 * 0.04), abs=1e-4)
    # t(0.95; 10) = 1.812 and t(0.8; 10) = 0.879
    assert e.smallest("up", 0.05) == pytest.approx((1.812 + 0.879) * 0.04, abs=1e-4)
    unknown = replace(e, error=None)
    assert [unknown.p_value("up"), unknown.interval(), unknown.smallest("up", 0.05)] == [None] * 3


def test_the_smallest_change_is_seen_four_times_in_five() -> None:
    """The promise of ``smallest``, kept by drawing."""
    rng = np.random.default_rng(3)
    freedom, error, alpha = 400.0, 0.03, 0.01
    size = Estimate(1, 1, error, freedom, False, 100).smallest("up", alpha)
    assert size is not None
    seen = [
        (Estimate(1, 1 + size + error * z, error, freedom, False, 100).p_value("up") or 1) <= alpha
        for z in rng.standard_normal(4000)
    ]
    assert np.mean(seen) == pytest.approx(0.8, abs=0.03)


def table(total: int, failed: list[int]) -> np.ndarray:
    return np.array([[total, f, 0, 0] for f in failed], dtype=float)


def test_failures_that_are_spread_evenly_are_judged_as_trials() -> None:
    before, after = table(100, [1] * 20), table(100, [3] * 20)
    found = rates([before], [after], 1, 3)
    assert found is not None
    assert (found.baseline, found.current) == pytest.approx((0.01, 0.03))
    exact = stats.fisher_exact([[60, 1940], [20, 1980]], alternative="greater").pvalue
    assert found.p is not None
    assert exact <= found.p < 1e-4


def test_failures_in_one_burst_prove_little() -> None:
    """Forty failures in one stretch are one event; forty over all of the run are not."""
    before = table(100, [1] * 20)
    burst = rates([before], [table(100, [0] * 19 + [60])], 1, 3)
    even = rates([before], [table(100, [3] * 20)], 1, 3)
    assert burst is not None
    assert even is not None
    assert burst.current == even.current
    assert (burst.p or 0) > 0.1 > 0.001 > (even.p or 1)


def test_no_failure_at_all_still_has_an_interval() -> None:
    found = rates([table(25, [0] * 20)], [table(25, [0] * 20)], (1, 2), 3)
    assert found is not None
    assert found.p == 1
    assert 0 < (found.bad_end("up", 0.05) or 0) < 0.01


@given(
    st.tuples(st.floats(1e-6, 1), st.integers(1, 30)),
    st.tuples(st.floats(1e-6, 1), st.integers(1, 30)),
)
def test_degrees_of_freedom_lie_between_the_smaller_and_the_sum(
    a: tuple[float, int], b: tuple[float, int]
) -> None:
    found = freedom_of((a[0], float(a[1])), (b[0], float(b[1])))
    assert min(a[1], b[1]) - 1e-6 <= found <= a[1] + b[1] + 1e-6


# --- warm-up --------------------------------------------------------------------------------------


def slow_mser(values: list[float]) -> int:
    batches = [
        np.mean(values[i : i + BATCH]) for i in range(0, len(values) // BATCH * BATCH, BATCH)
    ]
    if len(batches) <= BATCH:
        return 0
    scores = []
    for at in range(len(batches) - BATCH):
        rest = np.array(batches[at:])
        scores.append(((rest - rest.mean()) ** 2).sum() / len(rest) ** 2)
    return int(np.argmin(scores)) * BATCH


@given(st.lists(st.integers(0, 50), max_size=150))
def test_mser_is_the_one_of_the_definition(values: list[int]) -> None:
    found = mser(np.array(values, dtype=float))
    slow = slow_mser([float(v) for v in values])
    if found != slow:  # two cuts that are equally good

        def score(cut: int) -> float:
            rest = np.array(values[cut : len(values) // BATCH * BATCH], dtype=float)
            means = rest.reshape(-1, BATCH).mean(axis=1)
            return float(((means - means.mean()) ** 2).sum() / len(means) ** 2)

        assert score(found) == pytest.approx(score(slow))


def noisy(rng: np.random.Generator, n: int) -> np.ndarray:
    return 0.1 * np.exp(0.2 * rng.standard_normal(n))


def test_a_slow_head_is_set_aside_and_noise_is_not() -> None:
    rng = np.random.default_rng(1)
    ttft, cost = noisy(rng, 500), np.full(500, 0.1)
    ttft[:60] += np.linspace(0.5, 0.1, 60)
    found = warm_up_of(ttft, cost)
    assert 45 <= found.cut <= 75
    assert not found.only
    cuts = [warm_up_of(noisy(np.random.default_rng(s), 500), cost) for s in range(100)]
    assert all(c == WarmUp(0, only=False) for c in cuts)


def test_a_head_with_long_prompts_is_no_warm_up() -> None:
    """What is looked at is TTFT over cost: long prompts at first are traffic."""
    rng = np.random.default_rng(2)
    cost = np.full(400, 0.1)
    cost[:60] = 0.6
    assert warm_up_of(cost * np.exp(0.1 * rng.standard_normal(400)), cost).cut == 0


def test_a_run_that_is_nearly_all_warm_up_is_told() -> None:
    rng = np.random.default_rng(4)
    ttft = noisy(rng, 200)
    ttft[:150] += 1.0
    assert warm_up_of(ttft, np.full(200, 0.1)) == WarmUp(0, only=True)


# --- what is summed -------------------------------------------------------------------------------


def rows_of(**columns: Any) -> Rows:
    """A log as arrays; seconds and tokens."""
    path_free = pl.DataFrame(columns)
    n = path_free.height
    text = "\n".join(json.dumps(row) for row in path_free.to_dicts())
    return read_rows(text) if n else read_rows("")


def read_rows(text: str) -> Rows:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_text(text)
        return prepare(read(str(path)).requests)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_crowd_is_that_of_a_slow_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 40))
    start = np.sort(np.round(rng.uniform(0, 20, n), 3))
    ttft, rest = np.round(rng.uniform(0.05, 2, n), 3), np.round(rng.uniform(0.1, 5, n), 3)
    rows = rows_of(
        timestamp=(1.7e9 + start).tolist(), ttft_ms=(1e3 * ttft).tolist(),
        latency_ms=(1e3 * (ttft + rest)).tolist(),
        prompt_tokens=rng.integers(10, 500, n).tolist(), replica=["a"] * n,
    )  # fmt: skip
    running, beside = crowd_of(rows)
    first, last = rows.start + rows.ttft, rows.start + rows.e2e
    for i in range(n):
        others = [j for j in range(n) if j != i]
        overlap = sum(max(0.0, min(last[i], last[j]) - max(first[i], first[j])) for j in others)
        assert running[i] == pytest.approx(overlap / (last[i] - first[i]), abs=1e-3)
        tokens = sum(rows.inputs[j] for j in others if first[i] < first[j] <= last[i])
        assert beside[i] == pytest.approx(tokens / (last[i] - first[i]), rel=1e-6)


def test_fresh_tokens_are_what_a_session_had_not_sent() -> None:
    rows = rows_of(
        timestamp=[1.7e9, 1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 5, 1.7e9 + 15], ttft_ms=[100.0] * 5,
        session_id=["a", "a", "a", "b", "b"], turn=[1, 2, 3, 1, 2],
        prompt_tokens=[1000, 1300, 400, 500, 760], completion_tokens=[200, 100, 50, 200, 20],
    )  # fmt: skip
    by = {(int(s), int(t)): f for s, t, f in zip(rows.session, rows.turn, fresh_tokens(rows),
                                                 strict=True)}  # fmt: skip
    # All of a first turn; what is beyond prompt and answer of the last one; all after a cut.
    assert by == {(0, 1): 1000, (0, 2): 100, (0, 3): 400, (1, 1): 500, (1, 2): 60}


def synthetic(seed: int, n: int, *, histogram: bool = True, clusters: int = 16) -> Tally:
    """A tally of values drawn at random; slow in cell 2."""
    rng = np.random.default_rng(seed)
    rows = replace(
        rows_of(ttft_ms=[100.0] * n, prompt_tokens=[10] * n),
        session=rng.integers(0, max(n // 4, 1), n),
        scopes={"model": Column(rng.integers(0, 2, n), ("m", "näme"))},
    )
    value = rng.lognormal(-2, 0.5, n)
    classes = {"turn": rng.integers(-1, 4, n), "length": rng.integers(0, 9, n)}
    classes["fresh"] = classes["length"] // 2
    return summed(
        rows, np.arange(n), value, rng.uniform(10, 5000, n), classes, clusters=clusters,
        histogram=histogram,
    )  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 300), st.booleans())
def test_a_packed_tally_comes_back(seed: int, n: int, histogram: bool) -> None:
    tally = synthetic(seed, n, histogram=histogram)
    back = unpack(json.loads(json.dumps(pack(tally))))
    assert back.cells == tally.cells
    assert (back.n, back.sessions, back.mark) == (tally.n, tally.sessions, tally.mark)
    assert back.sizes == pytest.approx(tally.sizes)
    for mine, theirs in ((back.by_session, tally.by_session), (back.by_time, tally.by_time)):
        if theirs is None or mine is None:
            assert mine is theirs
            continue
        assert mine.moments.sum(axis=0) == pytest.approx(theirs.moments.sum(axis=0), rel=1e-6)
        assert mine.moments[:, :, 0] == pytest.approx(theirs.moments[:, :, 0])
        assert mine.moments[:, :, 1] == pytest.approx(theirs.moments[:, :, 1], rel=0.02)
        for name in ("cluster", "cell", "bin", "count"):
            order = [np.lexsort((s.bin, s.cluster, s.cell)) for s in (mine, theirs)]
            a, b = (getattr(s, name)[o] for s, o in zip((mine, theirs), order, strict=True))
            assert a.tolist() == b.tolist()
    assert unpack(pack(back)).by_session.moments == pytest.approx(back.by_session.moments, rel=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 300))
def test_wider_classes_lose_no_request(seed: int, n: int) -> None:
    tally = synthetic(seed, n)
    total = tally.by_session.moments.sum(axis=(0, 1))
    steps = {"length": 2, "turn": 2}
    wide = tally.coarser(steps)
    assert len(wide.cells) <= len(tally.cells)
    assert wide.by_session.moments.sum(axis=(0, 1)) == pytest.approx(total)
    assert wide.by_session.count.sum() == n
    # In one go or one after the other: the same cells; fine and coarse meet in the wide ones.
    again = tally.coarser({"length": 2}).coarser(steps | {"length": 4})
    assert again.cells == tally.coarser(steps | {"length": 4}).cells
    small = coarse(wide, 4, 8, 4)
    assert small.by_session.moments.sum(axis=(0, 1)) == pytest.approx(total)
    assert small.by_session.clusters == 4
    assert wide.coarser(steps) is wide
    forgotten = tally.coarser({"length": 0})
    assert {c.length for c in forgotten.cells} == {-1}
    assert forgotten.sizes.sum() == n


def test_fine_and_coarse_classes_are_never_mixed_up() -> None:
    """A wide class of one side is not set beside the narrow one that lends it its number."""
    tally = synthetic(11, 3000)
    wide = tally.coarser({"turn": 4, "length": 4}).coarser({"model": 0})
    for pair in ((tally, wide), (wide, tally)):
        found = cut(*aligned(*pair), "sent")
        assert found is not None
        beside, _ = found
        assert beside.covered == (1.0, 1.0)
        even = figure_of(beside, lambda pair: pair.means(), relative=True)
        assert even.current == pytest.approx(even.baseline)
        direct = set_beside(*pair, lambda cell: (cell.model, cell.turn, cell.length), None)
        assert direct is not None
        assert direct.b.sizes == pytest.approx(direct.a.sizes)
    both = tally.plus(wide)
    assert both.n == both.sizes.sum() == 6000
    assert both.cells == wide.cells


def test_a_part_of_a_tally_is_that_part() -> None:
    tally = synthetic(5, 400)
    part = tally.only(lambda cell: cell.model == "m")
    assert {c.model for c in part.cells} == {"m"}
    rest = tally.only(lambda cell: cell.model != "m")
    assert part.n + rest.n == 400
    assert tally.only(lambda cell: True) is tally


def test_shards_of_a_run_add_up(place: Path) -> None:
    """Whole sessions in two files, and in one: the same sums."""
    path = place / "whole.jsonl"
    text = SERVICE.format(**{**USUAL, "sessions": 60})
    simulator.write_log(simulator.serve(simulator.parse(text, "gate"), 4), path, "full")
    lines = path.read_text().splitlines()
    halves = [place / "half-a.jsonl", place / "half-b.jsonl"]
    for number, half in enumerate(halves):
        half.write_text(
            "\n".join(t for t in lines if hash_of(json.loads(t)["session_id"]) % 2 == number)
        )
    all_, a, b = (sketched(p, warm_up=False) for p in (path, *halves))
    both = a.plus(b)
    assert both.facts.requests == all_.facts.requests == len(lines)
    assert both.facts.sessions == all_.facts.sessions
    assert sum(v[:, 0].sum() for v in both.counts.by.values()) == len(lines)
    # Demand and who decodes beside whom are those of the shard: what else is in a cell adds up.
    for name in ("ttft", "queue", "hits"):
        one_, two = (getattr(s, name).coarser({"demand": 0}) for s in (all_, both))
        assert one_.cells == two.cells
        assert one_.by_session.moments == pytest.approx(two.by_session.moments)
        assert (one_.by_session.count.sum(), one_.n) == (two.by_session.count.sum(), two.n)
    assert both.decode is not None
    assert all_.decode is not None
    assert both.decode.by_session.moments[:, :, :2].sum(axis=1) == pytest.approx(
        all_.decode.by_session.moments[:, :, :2].sum(axis=1)
    )
    assert both.lines[0].n == all_.lines[0].n


def hash_of(text: str) -> int:
    return sum(text.encode())


def test_what_failed_is_counted_by_stretch(place: Path) -> None:
    path = place / "failed.jsonl"
    rows = [
        {"timestamp": 1.7e9 + k, "ttft_ms": 100.0, "prompt_tokens": 10, "model": "m" * (k % 2 + 1),
         "status": "error" if k >= 300 else "rate_limited" if k in (3, 5) else "ok"}
        for k in range(320)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    counts = counts_of(read(str(path)))
    assert counts.known
    assert sorted(counts.by) == [("m", ""), ("mm", "")]
    total = np.sum(list(counts.by.values()), axis=0)
    assert total.sum(axis=0).tolist() == [320, 20, 2, 0]
    assert total[-2:, 1].tolist() == [10, 10]
    assert total[0, 2] == 2
    twice = counts.plus(counts)
    assert {sums.shape for sums in twice.by.values()} == {(64, 4)}


# --- figures at equal mix -------------------------------------------------------------------------


def test_runs_left_out_one_by_one_give_the_error() -> None:
    """The jackknife over runs, against one that leaves them out for real."""
    before = [synthetic(s, 200) for s in range(4)]
    after = [synthetic(s, 200) for s in range(10, 15)]
    beside = whole(pooled(before), pooled(after))
    assert beside is not None
    found = figure_of(beside, lambda pair: pair.means(), relative=True)

    def mean(runs: list[Tally]) -> float:
        n, t = np.sum([r.by_session.moments.sum(axis=(0, 1))[:2] for r in runs], axis=0)
        return math.log(t / n)

    parts = []
    for runs in (before, after):
        left = np.array([mean(runs[:k] + runs[k + 1 :]) for k in range(len(runs))])
        k = len(runs)
        parts.append((float((k - 1) / k * ((left - left.mean()) ** 2).sum()), k - 1.0))
    assert found.by_runs
    assert found.error == pytest.approx(math.sqrt(parts[0][0] + parts[1][0]), rel=1e-3)
    assert found.freedom == pytest.approx(freedom_of(*parts), rel=1e-3)
    assert math.log(found.current / found.baseline) == pytest.approx(mean(after) - mean(before))


def test_one_run_beside_many_is_as_uncertain_as_one_run() -> None:
    many = pooled([synthetic(s, 150) for s in range(6)])
    alone = synthetic(20, 150)
    beside = whole(*aligned(many, alone))
    assert beside is not None
    found = figure_of(beside, lambda pair: pair.means(), relative=True)
    both = figure_of(
        whole(many, pooled([synthetic(s, 150) for s in range(20, 26)])),  # type: ignore[arg-type]
        lambda pair: pair.means(), relative=True,
    )  # fmt: skip
    assert found.error is not None
    assert both.error is not None
    assert found.error > both.error


def test_a_share_within_a_limit_is_that_of_the_values() -> None:
    tally = synthetic(7, 2000)
    found = level_of(tally, lambda pair: pair.within(0.15), relative=False)
    values = np.random.default_rng(7)
    values.integers(0, 500, 2000), values.integers(0, 2, 2000)
    exact = (values.lognormal(-2, 0.5, 2000) <= 0.15).mean()
    assert found is not None
    assert found.current == pytest.approx(exact, abs=0.01)
    assert found.error == pytest.approx(math.sqrt(exact * (1 - exact) / 2000), rel=0.6)


def test_cells_are_as_narrow_as_the_traffic_allows() -> None:
    tally = synthetic(8, 3000)
    found = cut(tally, tally, "sent")
    assert found is not None
    beside, words = found
    assert beside.covered[0] >= 0.9
    assert {"model", "turn", "input length"} <= set(words)
    sparse = synthetic(9, 40)
    rough = cut(sparse, sparse, "sent")
    assert rough is None or len(rough[0].at_b) < len(beside.at_b)
    assert cut(tally, tally, "met") is None  # nobody knows demand


# --- baselines as files ---------------------------------------------------------------------------


def test_a_baseline_comes_back(good: Baseline) -> None:
    small = good.fit_in()
    text = small.to_text()
    assert len(text.encode()) <= LIMIT_BYTES
    back = Baseline.from_text(text)
    assert (back.label, back.runs, back.models, back.lost) == (
        small.label, small.runs, small.models, small.lost,
    )  # fmt: skip
    for mine, theirs in zip(back.sketches, small.sketches, strict=True):
        assert mine.facts == theirs.facts
        assert mine.ttft.cells == theirs.ttft.cells
        assert mine.lines[0].coef == pytest.approx(theirs.lines[0].coef)
        assert mine.counts.by.keys() == theirs.counts.by.keys()
    assert json.loads(text)["schema"] == SCHEMA
    # One cell a line, for whoever reads a diff.
    cells = sum(len(getattr(s, name).cells) for s in small.sketches for name in TALLIES)
    assert sum(line.lstrip().startswith("[[") for line in text.splitlines()) == cells


def test_a_file_says_the_same_as_the_log(place: Path, good: Baseline) -> None:
    """Three runs from a small file and from memory: figures agree within their errors."""
    now = side(place, range(11, 16))
    full = judge(good, now, default_policy())
    filed = judge(Baseline.from_text(good.fit_in().to_text()), now, default_policy())
    for metric in ("ttft_mean", "ttft_p50", "decode_per_token", "hit_share", "prefill_slope"):
        a, b = one(full, metric), one(filed, metric)
        assert a.change is not None
        assert b.change is not None
        assert a.interval is not None
        half = (a.interval[1] - a.interval[0]) / 2
        assert abs(a.change - b.change) <= half + 0.01 * abs(a.baseline or 0), metric
        assert "fail" not in (a.outcome, b.outcome)


def test_a_hundred_thousand_requests_fit(place: Path) -> None:
    """Many models, routes and turns: still under 200 KB, and still to be judged."""
    rng = np.random.default_rng(6)
    n = 100_000
    session = rng.integers(0, 12_000, n)
    order = np.argsort(session, kind="stable")
    turn = np.empty(n, dtype=int)
    first = np.searchsorted(session[order], session[order])
    turn[order] = np.arange(n) - first + 1
    tokens = (rng.lognormal(6.5, 1, n) + 700 * turn).astype(int)
    ttft = 40 + 0.03 * tokens * np.exp(0.2 * rng.standard_normal(n))
    pl.DataFrame(
        {
            "timestamp": 1.7e9 + np.sort(rng.uniform(0, 86_400, n)),
            "session_id": [f"s{k}" for k in session], "turn": turn,
            "model": [f"model-{k}" for k in session % 8],
            "route": [f"/v1/route-{k}" for k in rng.integers(0, 10, n)],
            "prompt_tokens": tokens, "cached_tokens": (0.5 * tokens).astype(int),
            "completion_tokens": rng.integers(20, 400, n), "ttft_ms": ttft,
            "latency_ms": ttft + 4000, "queue_ms": 0.1 * ttft, "status": ["ok"] * n,
        }
    ).write_ndjson(place / "large.jsonl")  # fmt: skip
    large = Baseline("large", (sketched(place / "large.jsonl"),))
    small = large.fit_in()
    assert len(small.to_text().encode()) <= LIMIT_BYTES
    assert small.lost
    assert small.sketches[0].ttft.n == n
    check = judge(small, large, default_policy())
    assert check.outcome == "pass", check.headline
    assert check.baseline.covered_share == pytest.approx(1, abs=0.05)
    tight = large.fit_in(20_000)
    assert {"routes are not told apart", "models are not told apart"} <= set(tight.lost)
    again = judge(tight, large, default_policy())
    assert again.outcome != "fail", again.headline


def test_baselines_merge(good: Baseline) -> None:
    a, b = Baseline("a", good.sketches[:2]), Baseline("b", good.sketches[2:], ("x",))
    both = merged([a, b])
    assert (both.label, both.runs, both.lost) == ("a", 5, ("x",))
    assert merged([a], "other").label == "other"
    with pytest.raises(InputError):
        merged([])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"schema": 3}', '{"schema": "ttftdoctor.baseline/2"}',
     '{"schema": "ttftdoctor.baseline/1"}', "[" * 100_000,
     '{"schema": "ttftdoctor.baseline/1", "label": "x", "lost": [], "runs": []}',
     '{"schema": "ttftdoctor.baseline/1", "label": "x", "lost": [], "runs": [1]}'],
)  # fmt: skip
def test_what_is_no_baseline_is_told(text: str) -> None:
    with pytest.raises(InputError):
        Baseline.from_text(text, "file.json")


def test_another_version_is_named() -> None:
    with pytest.raises(InputError, match="another version"):
        Baseline.from_dict({"schema": "ttftdoctor.baseline/9"})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value[:6]):
            found += places(inner, (*path, at))
    return found


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_hostile_baseline_is_an_input_error_or_harmless(place: Path, seed: int) -> None:
    """Any one value replaced by any other: told, or read and judged without a crash."""
    rng = random.Random(seed)
    small = hostile_source(place)
    data = copy.deepcopy(small)
    path = rng.choice(places(data))
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = rng.choice(
        [None, -1, 0, 1e308, float("nan"), float("inf"), 10**30, "", "x" * 10_000, [], {}, True,
         [[]], "0:99999999", "1:2*3;", {"a": []}, "\x1b[31m", -5.5, 2**63]
    )  # fmt: skip
    try:
        found = Baseline.from_dict(data)
    except InputError:
        return
    check = judge(found, Baseline.from_dict(small), default_policy())
    json.dumps(check.to_dict(), allow_nan=False)
    assert "\x1b" not in check.headline + "".join(m.says for m in check.metrics)


@cache
def hostile_source(place: Path) -> dict[str, Any]:
    small = Baseline("x", (served(place, 1),)).fit_in(60_000)
    data: dict[str, Any] = json.loads(small.to_text())
    return data


# --- verdicts -------------------------------------------------------------------------------------


def test_the_same_service_twice_passes(place: Path, good: Baseline) -> None:
    check = judge(good, side(place, range(11, 16)), default_policy(), version="9")
    assert check.outcome == "pass", check.headline
    assert check.exit_code == 0
    assert check.headline.startswith("No regression")
    assert {m.metric for m in check.metrics} == set(DEFAULT_METRICS)
    assert not check.failed()
    assert check.baseline.runs == 5
    assert (check.baseline.covered_share or 0) > 0.9
    json.dumps(check.to_dict(), allow_nan=False)


def test_longer_prompts_do_not_fail(place: Path, good: Baseline) -> None:
    """A quarter longer: raw figures rise by a tenth, those at equal mix do not fail."""
    check = judge(good, side(place, range(21, 26), user=188, document=2500), default_policy())
    assert check.outcome in ("pass", "inconclusive"), check.headline
    mean = one(check, "ttft_mean")
    assert mean.raw_change_share is not None
    assert mean.change_share is not None
    assert mean.raw_change_share > 0.07
    assert mean.change_share < 0.05
    assert mean.outcome != "fail"
    assert "raw +" in mean.says
    assert "at equal mix" in mean.says
    assert one(check, "prefill_slope").outcome == "pass"


def test_twice_the_arrivals_do_not_fail(place: Path, good: Baseline) -> None:
    """Below saturation: steps are shared with more, and at equal company they take as long."""
    busy = side(place, range(51, 54), utilisation=0.2, spans=0)
    for one_, other in ((good.sketches[0], busy.sketches[0]), (good.sketches[1], busy.sketches[2])):
        check = judge(Baseline("a", (one_,)), Baseline("b", (other,)), default_policy())
        assert check.outcome != "fail", check.headline
        decode = one(check, "decode_per_token")
        assert decode.raw_change_share is not None
        assert decode.change_share is not None
        assert decode.raw_change_share > 0.08
        assert abs(decode.change_share) < 0.03
        assert any("demand differs" in note for note in check.notes)


@pytest.mark.parametrize(
    ("changed", "metric"),
    [({"slope": 110}, "prefill_slope"), ({"fixed": 60}, "prefill_fixed"),
     ({"decode": 18.9}, "decode_per_token")],
)  # fmt: skip
def test_what_was_planted_fails(
    place: Path, good: Baseline, changed: dict[str, float], metric: str
) -> None:
    check = judge(good, side(place, range(31, 36), **changed), default_policy())
    assert check.outcome == "fail"
    assert check.exit_code == 1
    found = one(check, metric)
    assert found.outcome == "fail", found.says
    assert found.p_adjusted is not None
    assert found.p_adjusted <= 0.05
    assert found.change is not None
    assert found.interval is not None
    truth = {"prefill_slope": 10.0, "prefill_fixed": 0.020, "decode_per_token": 0.9}[metric]
    assert found.interval[0] <= truth * 1.15
    assert found.interval[1] >= truth * 0.85
    assert found.title in check.headline or "more" in check.headline


def test_a_lost_cache_fails_and_is_no_other_traffic(place: Path, good: Baseline) -> None:
    """A dead cache leaves the same traffic to compare: input and turns are what clients do."""
    check = judge(good, side(place, range(41, 46), cache_share=0.6), default_policy())
    hits = one(check, "hit_share")
    assert hits.outcome == "fail", hits.says
    assert hits.change is not None
    assert hits.change < -0.08
    assert "points" in hits.says
    assert (check.baseline.covered_share or 0) > 0.9


def test_improvements_pass(place: Path, good: Baseline) -> None:
    check = judge(good, side(place, range(31, 36), slope=70), default_policy())
    assert check.outcome == "pass", check.headline
    slope = one(check, "prefill_slope")
    assert slope.change_share is not None
    assert slope.change_share < -0.2


def test_few_requests_cannot_tell_and_say_what_it_takes(place: Path) -> None:
    a, b = (side(place, [s], sessions=12) for s in (1, 2))
    check = judge(a, b, default_policy())
    assert check.outcome in ("inconclusive", "pass")
    tail = one(check, "ttft_p95")
    assert tail.outcome == "inconclusive"
    assert tail.requests_needed == 400
    assert "too few requests lie beyond it" in tail.says
    mean = one(check, "ttft_mean")
    assert mean.outcome == "inconclusive"
    assert mean.smallest is not None
    assert mean.smallest > 0
    assert mean.requests_needed is not None
    assert mean.requests_needed > 70
    assert "would have been seen" in mean.says
    strict = replace(default_policy(), inconclusive="fail", source="ttftdoctor.toml")
    told = judge(a, b, strict)
    assert told.outcome == "inconclusive"
    assert told.exit_code == 3
    assert replace(told, inconclusive_fails=False).exit_code == 0


def altered(side_: Baseline, **facts: Any) -> Baseline:
    return Baseline(
        side_.label, tuple(replace(s, facts=replace(s.facts, **facts)) for s in side_.sketches)
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"models": ("other",)}, "models differ"), ({"vantage": "server"}, "clock"),
     ({"cause": "measurement_artifact", "headline": "buffered \x1b[1m"}, "no TTFT"),
     ({"settled": False}, "warm-up")],
)  # fmt: skip
def test_what_must_not_be_compared_is_invalid(
    good: Baseline, facts: dict[str, Any], words: str
) -> None:
    check = judge(good, altered(good, **facts), default_policy())
    assert check.outcome == "invalid"
    assert check.exit_code == 4
    assert words in check.headline
    assert "\x1b" not in check.headline
    assert check.metrics == ()


def test_other_lengths_altogether_are_invalid(place: Path, good: Baseline) -> None:
    def longer(tally: Tally | None) -> Tally | None:
        if tally is None:
            return None
        return replace(
            tally, cells=tuple(c._replace(length=c.length + 30, turn=6) for c in tally.cells)
        )

    far = Baseline(
        "far",
        tuple(replace(s, ttft=longer(s.ttft)) for s in good.sketches),  # type: ignore[arg-type]
    )
    check = judge(good, far, default_policy())
    assert check.outcome == "invalid"
    assert "counterpart" in check.headline


def test_too_few_requests_are_invalid(place: Path, good: Baseline) -> None:
    few = side(place, [3], sessions=2)
    assert judge(good, few, default_policy()).outcome == "invalid"


def test_a_log_beside_itself_passes(good: Baseline) -> None:
    check = judge(good, good, default_policy())
    assert check.outcome == "pass"
    assert all(abs(m.change or 0) < 1e-9 for m in check.metrics)
    assert "both sides hold the same requests" in check.warnings


def test_more_demand_is_not_blamed_on_the_server(good: Baseline) -> None:
    """A change that more demand explains is no failure, one that it does not is."""

    def crowded(factor: float) -> Baseline:
        out = []
        for s in good.sketches:
            assert s.facts.demand is not None
            moments = s.ttft.by_session.moments.copy()
            moments[:, :, 1] *= factor
            up = round(math.log(factor) / math.log(1.01))
            old = s.ttft.by_session
            sums = replace(old, moments=moments, bin=old.bin + up)
            cells = tuple(c._replace(demand=c.demand + 1 if c.demand >= 0 else -1)
                          for c in s.ttft.cells)  # fmt: skip
            tally = replace(s.ttft, cells=cells, by_session=sums)
            out.append(replace(s, ttft=tally, facts=replace(s.facts, demand=s.facts.demand + 1)))
        return Baseline("crowded", tuple(out))

    slightly = one(judge(good, crowded(1.12), default_policy()), "ttft_mean")
    assert slightly.outcome == "inconclusive"
    assert "demand" in slightly.says
    twice = one(judge(good, crowded(3.0), default_policy()), "ttft_mean")
    assert twice.outcome == "fail"


# --- policies -------------------------------------------------------------------------------------


def policy(*rules: Rule, budgets: tuple[Budget, ...] = (), **more: Any) -> Policy:
    return Policy(rules, budgets, source="ttftdoctor.toml", **more)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_every_metric_is_computed(place: Path, good: Baseline, metric: str) -> None:
    asked = policy(Rule(metric, slo_s=0.2))
    check = judge(good, side(place, range(11, 16)), asked)
    (found,) = check.metrics
    assert found.outcome == "pass" or metric in ("ttft_p95", "ttft_p99")
    assert found.baseline is not None
    assert found.current is not None
    assert found.interval is not None
    assert found.p_value is not None
    assert found.interval[0] <= (found.change or 0) <= found.interval[1]


def test_wider_limits_let_a_change_pass(place: Path, good: Baseline) -> None:
    slower = side(place, range(31, 36), slope=110)
    assert judge(good, slower, policy(Rule("prefill_slope"))).outcome == "fail"
    assert judge(good, slower, policy(Rule("prefill_slope", limit_share=0.2))).outcome == "pass"
    # Both limits must be exceeded.
    both = Rule("prefill_slope", limit_share=0.01, limit=30.0)
    assert judge(good, slower, policy(both)).outcome == "pass"


def test_an_unknown_metric_and_a_missing_target_are_usage(good: Baseline) -> None:
    for asked in (
        policy(Rule("speed")), policy(Rule("goodput")),
        policy(budgets=(Budget("x", "ttft_p95"),)),
        policy(budgets=(Budget("x", "ttft_p95", below=1.0, above=0.5),)),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            judge(good, good, asked)


def test_budgets_bound_the_current_side(place: Path, good: Baseline) -> None:
    now = side(place, range(11, 16))

    def outcome(**bound: Any) -> Checked:
        (found,) = judge(good, now, policy(budgets=(Budget("as written", **bound),))).metrics
        assert found.budget == "as written"
        assert "as written" in found.says
        return found

    assert outcome(metric="ttft_p95", below=0.8).outcome == "pass"
    assert outcome(metric="ttft_p95", below=0.1).outcome == "fail"
    mean = outcome(metric="ttft_mean", below=10.0).current
    assert mean is not None
    close = outcome(metric="ttft_mean", below=0.995 * mean)
    assert close.outcome == "inconclusive"
    assert "too uncertain" in close.says
    assert outcome(metric="attainment", above=0.9, slo_s=1.0).outcome == "pass"
    assert outcome(metric="attainment", above=0.9, slo_s=0.08).outcome == "fail"
    assert outcome(metric="hit_share", above=0.99).outcome == "fail"
    assert outcome(metric="error_rate", below=0.01).outcome == "pass"
    assert outcome(metric="prefill_slope", below=50.0).outcome == "fail"
    assert outcome(metric="decode_per_token", below=30.0).outcome == "pass"
    assert outcome(metric="queue", below=1.0).outcome == "pass"
    short = outcome(metric="ttft_p99", below=0.2, max_input_tokens=1400)
    whole_ = outcome(metric="ttft_p99", below=0.2)
    assert short.current is not None
    assert whole_.current is not None
    assert short.current < whole_.current
    assert outcome(metric="ttft_p95", below=0.8, max_input_tokens=100).outcome == "inconclusive"


def test_a_rule_looks_at_its_scope_only(place: Path, good: Baseline) -> None:
    now = side(place, range(11, 16))
    there = Scope(model="chat-70b", route="/v1/chat")
    (found,) = judge(good, now, policy(Rule("ttft_mean", there))).metrics
    assert found.outcome == "pass"
    assert "chat-70b" in found.says
    (found,) = judge(good, now, policy(Rule("ttft_mean", Scope(route="/nowhere")))).metrics
    assert found.outcome == "inconclusive"
    assert "no requests" in found.says
    (found,) = judge(good, now, policy(Rule("prefill_slope", Scope(route="/v1/chat")))).metrics
    assert found.outcome == "inconclusive"
    (found,) = judge(good, now, policy(Rule("prefill_slope", Scope(model="chat-70b")))).metrics
    assert found.outcome == "pass"


def test_lines_are_compared_at_the_work_of_the_baseline(good: Baseline) -> None:
    """Ten per cent on every coefficient is ten per cent of the slope, whatever the terms."""
    dearer = [
        replace(s, lines=tuple(replace(one_, coef=1.1 * one_.coef) for one_ in s.lines))
        for s in good.sketches
    ]
    parts: tuple[Part, ...] = ("prefill_slope", "prefill_fixed")
    for part in parts:
        found = line_estimate(good.sketches, dearer, part, None)
        assert isinstance(found, Estimate)
        assert found.current / found.baseline == pytest.approx(1.1)
        alone = line_estimate(good.sketches[:1], dearer[:1], part, None)
        assert isinstance(alone, Estimate)
        assert alone.error
        assert found.error
        assert alone.error > found.error
    assert isinstance(line_estimate(good.sketches, dearer, "prefill_slope", "none"), str)


def test_cells_know_their_names() -> None:
    """Cells of two kinds never mix: what is not classed is unknown, not zero."""
    tally = synthetic(1, 50)
    assert all(isinstance(c, Cell) and c.demand == c.running == c.beside == -1
               for c in tally.cells)  # fmt: skip


def test_what_users_feel_most_leads_and_a_release_in_mid_log_shows_in_the_slope(
    tmp_path: Path,
) -> None:
    """The service becomes dearer half way through the log: the line before it is not all of it."""
    main, canary = tmp_path / "main.jsonl", tmp_path / "canary.jsonl"
    for path, treatment in ((main, ["--treatment", "rollback"]), (canary, [])):
        served = CliRunner().invoke(
            app, ["simulate", "release_slower", "--seed", "3", *treatment, "-o", str(path)]
        )
        assert served.exit_code == 0, served.output
    found = ttftdoctor.check(str(canary), str(main))
    assert found.outcome == "fail"
    assert "mean TTFT" in found.headline
    slope = next(m for m in found.metrics if m.metric == "prefill_slope")
    assert slope.outcome == "fail"
    assert slope.change_share is not None
    assert slope.change_share > 0.2


def test_one_run_a_side_says_that_starts_differ(place: Path) -> None:
    """Decode 5 % slower, run against run: sure of the runs, not yet of the server."""
    a, b = side(place, [1]), side(place, [2], decode=18.9)
    found = one(judge(a, b, default_policy()), "decode_per_token")
    assert found.outcome == "inconclusive"
    assert found.interval is not None
    assert found.interval[0] > 0
    assert "starts of one server are taken to differ by 2.0 %" in found.says
    assert "3 runs a side would tell" in found.says
