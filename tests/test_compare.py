"""Comparing two logs: nothing is found in traffic, and what was planted is found."""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.comparisons import report
from ttftdoctor.comparisons.hindcast import foreseen_in
from ttftdoctor.comparisons.judge import LEAST_SHARE, SAME_SHARE, Portrait, demand_ratio, judge
from ttftdoctor.comparisons.records import (
    Change,
    Comparison,
    Hindcast,
    Inside,
    Mechanism,
    Parts,
    Prediction,
    Score,
    Side,
    View,
)
from ttftdoctor.diagnosis import CostLines, Input, Population
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.examine import examine
from ttftdoctor.measure.mix import EXTRAS, MOMENTS, Cell, Sums, Tally, tally_of
from ttftdoctor.measure.rows import prepare
from ttftdoctor.measure.weigh import METRICS, weigh
from ttftdoctor.run import read

EPOCH_S = 1_777_629_600.0
SAMPLES = Path(__file__).parent.parent / "sample_logs"
Row = dict[str, Any]


def day(
    seed: int,
    *,
    sessions: int = 300,
    turns: tuple[int, int] = (2, 9),
    span_s: float = 7200.0,
    first: tuple[int, int] = (1500, 3500),
    new: tuple[int, int] = (100, 600),
    cache: bool = False,
    speed: float = 1.0,
    more_s: float = 0.0,
    servers: int = 1,
    model: str = "m1",
) -> list[Row]:
    """A day of conversations on servers that prefill one prompt at a time, in order of arrival."""
    rng = np.random.default_rng(seed)
    events = [
        (float(rng.uniform(0, span_s)), k, 1, 0, int(rng.integers(*turns))) for k in range(sessions)
    ]
    heapq.heapify(events)
    free = [0.0] * servers
    rows: list[Row] = []
    while events:
        at, k, turn, history, last = heapq.heappop(events)
        inputs = history + int(rng.integers(*first) if turn == 1 else rng.integers(*new))
        outputs = int(rng.integers(60, 300))
        hit = history // 16 * 16 if cache else 0
        work = (0.06 + 0.09 * (inputs - hit) / 1e3) * speed + more_s
        work *= float(np.exp(0.1 * rng.standard_normal()))
        where = k % servers
        wait = max(0.0, free[where] - at)
        free[where] = at + wait + work
        ttft = wait + work
        rows.append(
            {
                "timestamp": round(EPOCH_S + at, 4), "session_id": f"s{seed}-{k:04}", "turn": turn,
                "prompt_tokens": inputs, "completion_tokens": outputs, "cached_tokens": hit,
                "ttft_ms": round(1e3 * ttft, 2),
                "latency_ms": round(1e3 * (ttft + 0.02 * (outputs - 1)), 2),
                "status": "ok", "model": model, "replica": f"gpu-{where}",
            }
        )  # fmt: skip
        if turn < last:
            then = at + ttft + 0.02 * outputs + float(rng.uniform(5, 60))
            heapq.heappush(events, (then, k, turn + 1, inputs + outputs, last))
    return rows


def write(path: Path, rows: list[Row], *without: str) -> str:
    kept = [{k: v for k, v in row.items() if k not in without} for row in rows]
    path.write_text("\n".join(map(json.dumps, kept)) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def logs(place: Path) -> dict[str, str]:
    made = {
        "before": day(1),
        "cached": day(2, cache=True),
        "longer": day(3, turns=(4, 13), sessions=190),
        "slow": day(4, speed=1.25),
        "few": day(5, sessions=4),
        "other_model": day(6, model="m2"),
    }
    return {name: write(place / f"{name}.jsonl", rows) for name, rows in made.items()}


@pytest.fixture(scope="module")
def helped(logs: dict[str, str]) -> Comparison:
    return ttftdoctor.compare(logs["before"], logs["cached"], remedy="prefix_cache")


def portrait(rows: list[Row], path: Path) -> Portrait:
    """One side without a verdict."""
    log = read(write(path, rows))
    found = examine(log)
    e = found.evidence
    names = log.requests["session_id"].drop_nulls().unique().sort().to_list()
    side = Side(
        inputs=log.inputs, population=e.population, ttft_p99_s=None, primary_cause="healthy",
        headline="", cost_lines=e.lines, models=(), replicas=None, arrivals_per_s=None,
        input_tokens_per_s=None, peak_share=None, in_flight_mean=None, utilisation=None,
    )  # fmt: skip
    return Portrait(side, tally_of(found.rows, found.ledger, names))


# --- the sums -------------------------------------------------------------------------------------


def tally_from(frame: pl.DataFrame) -> Tally:
    """The same sums as ``tally_of`` makes, by other means."""
    cells = tuple(Cell("", "", k, -1, -1) for k in sorted(frame["cell"].unique()))
    place = {cell.turn: at for at, cell in enumerate(cells)}
    moments = np.zeros((16, len(cells), len(MOMENTS)))
    entries: Counter[tuple[int, int, int]] = Counter()
    for ttft, cell, cluster, x in frame.select("ttft", "cell", "cluster", "x").iter_rows():
        at = place[cell]
        moments[cluster, at] += [1, ttft, x, x * x, x * ttft]
        entries[cluster, at, math.floor(math.log(ttft / 1e-4) / math.log(1.01))] += 1
    keys = np.array(sorted(entries), dtype=np.int64)
    counts = np.array([entries[tuple(k)] for k in keys.tolist()], dtype=float)
    sums = Sums(moments, keys[:, 0], keys[:, 1], keys[:, 2], counts)
    return Tally(
        cells, sums, None, np.zeros((len(cells), len(EXTRAS))), frame.height, 16, None, "x"
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_quantiles_of_the_histogram_are_those_of_the_values(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n = data.draw(st.integers(200, 900))
    ttft = rng.lognormal(data.draw(st.floats(-3, 3)), data.draw(st.floats(0.2, 1.2)), n)
    frame = pl.DataFrame(
        {"ttft": ttft, "cell": rng.integers(0, 3, n), "cluster": rng.integers(0, 16, n),
         "x": np.ones(n)}
    )  # fmt: skip
    tally = tally_from(frame)
    found = weigh(tally, tally, lambda cell: cell.turn, None, draws=10)
    assert found is not None
    assert found.levels[0, 0] == pytest.approx(ttft.mean())
    ordered = np.sort(ttft)
    for at, q in ((1, 0.5), (2, 0.95), (3, 0.99)):
        low, high = ordered[max(0, int(q * n) - 2)], ordered[min(n - 1, int(q * n) + 2)]
        assert low / 1.01 <= found.levels[at, 0] <= high * 1.01
    assert found.spread is not None
    assert (found.spread < 1e-12).all()  # a log beside itself, drawn in pairs


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_tallies_add_up(data: st.DataObject) -> None:
    """Two halves put together give what the whole gives."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n = data.draw(st.integers(60, 300))
    frame = pl.DataFrame(
        {"ttft": rng.lognormal(-1, 1, n), "cell": rng.integers(0, 3, n),
         "cluster": rng.integers(0, 16, n), "x": rng.uniform(0.1, 9, n)}
    )  # fmt: skip
    cut = data.draw(st.integers(1, n - 1))
    whole = tally_from(frame)
    joined = tally_from(frame[:cut]).plus(tally_from(frame[cut:]))
    assert joined.n == whole.n
    assert joined.cells == whole.cells
    np.testing.assert_allclose(joined.by_session.moments, whole.by_session.moments)
    for name in ("cluster", "cell", "bin", "count"):
        np.testing.assert_array_equal(
            getattr(joined.by_session, name), getattr(whole.by_session, name)
        )


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_mix_alone_changes_nothing(data: st.DataObject) -> None:
    """The same times in each cell, however often they occur, are no change at equal mix."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    values = [rng.lognormal(k, 0.3, 400) for k in range(3)]
    times = data.draw(st.tuples(*[st.integers(1, 5)] * 3))

    def table(repeat: tuple[int, ...]) -> Tally:
        ttft = np.concatenate([np.tile(v, r) for v, r in zip(values, repeat, strict=True)])
        cell = np.repeat(range(3), [400 * r for r in repeat])
        cluster = np.arange(len(ttft)) % 16
        return tally_from(
            pl.DataFrame({"ttft": ttft, "cell": cell, "cluster": cluster, "x": ttft * 0})
        )

    found = weigh(table((1, 1, 1)), table(times), lambda cell: cell.turn, None, draws=20)
    assert found is not None
    np.testing.assert_allclose(found.levels[0, 1], found.levels[0, 0], rtol=1e-9)
    # A quantile that falls into a gap may come out at either end of a bin.
    np.testing.assert_allclose(found.levels[1:, 1], found.levels[1:, 0], rtol=0.06)
    assert found.covered == (1.0, 1.0)


def test_longer_prompts_inside_a_cell_are_taken_out() -> None:
    """TTFT on one line in the length: however lengths lie in the cell, nothing changed."""
    rng = np.random.default_rng(1)

    def table(low: float, high: float) -> Tally:
        x = rng.uniform(low, high, 2000)
        ttft = 0.05 + 0.09 * x
        cluster = np.arange(2000) % 16
        return tally_from(
            pl.DataFrame({"ttft": ttft, "cell": cluster * 0, "cluster": cluster, "x": x})
        )

    a, b = table(4, 6), table(4.5, 7)
    raw = weigh(a, b, lambda cell: 0, None, draws=10)
    fair = weigh(a, b, lambda cell: 0, lambda cell: 0, draws=10)
    assert raw is not None
    assert fair is not None
    assert raw.levels[0, 1] / raw.levels[0, 0] > 1.1
    assert fair.levels[0, 1] == pytest.approx(fair.levels[0, 0], rel=1e-6)


def test_a_tally_survives_a_file_and_shrinks(tmp_path: Path) -> None:
    tally = portrait(day(8), tmp_path / "a.jsonl").tally
    again = Tally.from_dict(json.loads(json.dumps(tally.to_dict())))
    key = lambda cell: (cell.turn, cell.length)  # noqa: E731
    other = portrait(day(9, speed=1.1), tmp_path / "b.jsonl").tally
    full, back = weigh(tally, other, key, None), weigh(again, other, key, None)
    assert full is not None
    assert back is not None
    np.testing.assert_allclose(back.levels, full.levels, rtol=1e-6)
    small = weigh(tally.smaller(64, 5), other.smaller(64, 5), key, None)
    assert small is not None
    np.testing.assert_allclose(small.levels[0], full.levels[0])
    np.testing.assert_allclose(small.levels[1:3], full.levels[1:3], rtol=0.02)
    assert small.spread is not None
    assert full.spread is not None
    assert small.spread[0] == pytest.approx(full.spread[0], rel=0.5)
    assert len(json.dumps(tally.smaller(64, 5).to_dict())) < len(json.dumps(tally.to_dict()))


# --- what is said of traffic and of changes -------------------------------------------------------


QUIET = {"sessions": 300, "span_s": 14_400.0}
SEEDS = 8
Sides = Callable[..., Portrait]


@pytest.fixture(scope="module")
def side(place: Path) -> Sides:
    """A day as a side of a comparison; each is made once."""

    @cache
    def made(seed: int, **how: Any) -> Portrait:
        return portrait(day(seed, **how), place / "side.jsonl")

    return made


def answers(side: Sides, before: dict[str, Any], after: dict[str, Any], n: int) -> Counter[str]:
    return Counter(
        judge(side(2 * seed, **before), side(2 * seed + 1, **after)).answer for seed in range(n)
    )


def test_two_days_of_one_service_are_no_change(side: Sides) -> None:
    found = answers(side, QUIET, QUIET, SEEDS)
    found += Counter(
        judge(side(2 * seed, **QUIET), side(2 * seed + 2, **QUIET)).answer
        for seed in range(SEEDS - 1)
    )
    assert found["better"] + found["worse"] <= 1, found
    assert found["no_difference"] >= SEEDS, found


def test_a_longer_day_is_no_regression(side: Sides) -> None:
    found = answers(side, QUIET, {**QUIET, "turns": (4, 13), "sessions": 190}, SEEDS)
    assert found["better"] + found["worse"] == 0, found


def test_longer_prompts_are_no_regression(side: Sides) -> None:
    longer = {**QUIET, "first": (1875, 4375), "new": (125, 750)}
    found = answers(side, QUIET, longer, SEEDS)
    assert found["better"] + found["worse"] == 0, found


def test_ten_per_cent_slower_is_found(side: Sides) -> None:
    found = answers(side, QUIET, {**QUIET, "speed": 1.1}, SEEDS)
    assert found["worse"] >= SEEDS - 2, found
    assert found["better"] == 0, found


def test_half_the_load_is_no_gain(side: Sides) -> None:
    busy = {"sessions": 500, "span_s": 3600.0}
    found = answers(side, busy, {**busy, "sessions": 250}, 3)
    assert found["better"] == 0, found
    for seed in range(3):
        told = judge(side(2 * seed, **busy), side(2 * seed + 1, **{**busy, "sessions": 250}))
        assert any("load differs" in reason for reason in told.reasons)


def test_the_interval_holds_the_truth(place: Path) -> None:
    """Coverage of the 95 % interval of a planted factor; alone on the server, it is the change."""

    def tally(seed: int, speed: float) -> Tally:
        rows = day(seed, sessions=60, span_s=200_000.0, speed=speed)
        return tally_of(prepare(read(write(place / "alone.jsonl", rows)).requests), None)

    inside = 0
    for seed in range(20):
        found = weigh(
            tally(2 * seed, 1.0), tally(2 * seed + 1, 1.1),
            lambda cell: (cell.turn, cell.length), lambda cell: cell.turn,
        )  # fmt: skip
        assert found is not None
        half = found.half_width(0)
        assert half is not None
        change = math.log(found.levels[0, 1] / found.levels[0, 0])
        inside += abs(change - math.log(1.1)) <= half
    assert inside >= 17, inside


def test_demand_is_told(tmp_path: Path) -> None:
    a = portrait(day(1, sessions=200), tmp_path / "a.jsonl")
    b = portrait(day(2, sessions=400), tmp_path / "b.jsonl")
    ratio = demand_ratio(a.tally, b.tally)
    assert ratio is not None
    assert 1.4 < ratio < 2.2


# --- the whole comparison -------------------------------------------------------------------------


def test_a_prefix_cache_helped(helped: Comparison) -> None:
    assert helped.answer == "better"
    inside = {i.id: i for i in helped.inside}
    assert inside["cached_share"].moved == "up"
    assert inside["prefill_repeated"].moved == "down"
    assert inside["prefill_per_1k"].moved == "unchanged"
    accounts = ("fixed", "queue_behind_repeated", "queue_behind_new", "queue_other",
                "prefill_repeated", "prefill_new", "unexplained")  # fmt: skip
    mean = helped.view("equal_mix").of("mean")  # type: ignore[union-attr]
    assert mean is not None
    assert sum(inside[a].before or 0 for a in accounts) == pytest.approx(mean.before_s)
    assert sum(inside[a].after or 0 for a in accounts) == pytest.approx(mean.after_s, rel=1e-3)


def test_the_prediction_is_scored(helped: Comparison) -> None:
    assert helped.hindcast is not None
    assert helped.hindcast.source == "before"
    (done,) = [p for p in helped.hindcast.predictions if p.done]
    assert done.id == "prefix_cache"
    assert done.match in ("within", "overlaps")
    assert done.mechanism is not None
    assert done.mechanism.seen is True
    mean = next(s for s in done.scores if s.metric == "mean")
    assert abs(mean.error_share) < 0.1
    assert mean.error_share == pytest.approx((mean.predicted_s - mean.measured_s) / mean.before_s)


def test_without_a_remedy_none_is_marked(logs: dict[str, str]) -> None:
    foretold = ttftdoctor.diagnose(logs["before"])
    found = ttftdoctor.compare(logs["before"], logs["cached"], prediction=foretold)
    assert found.hindcast is not None
    assert len(found.hindcast.predictions) > 1
    assert not any(p.done for p in found.hindcast.predictions)
    assert any("--remedy" in note for note in found.hindcast.notes)


def test_what_nobody_foretold_is_not_scored(logs: dict[str, str]) -> None:
    assert ttftdoctor.compare(logs["before"], logs["slow"]).hindcast is None


def test_a_remedy_that_was_not_done_is_told(logs: dict[str, str]) -> None:
    found = ttftdoctor.compare(logs["before"], logs["slow"], remedy="prefix_cache")
    assert found.answer == "worse"
    assert found.hindcast is not None
    (done,) = [p for p in found.hindcast.predictions if p.done]
    assert done.match == "missed"
    assert done.mechanism is not None
    assert done.mechanism.seen is False


@pytest.mark.parametrize("after", ["cached", "longer", "slow", "before"])
def test_the_parts_add_up(logs: dict[str, str], after: str) -> None:
    found = ttftdoctor.compare(logs["before"], logs[after])
    p = found.parts
    assert p is not None
    total = p.like_for_like_s + p.load_s + p.mix_s + p.outside_s
    assert total == pytest.approx(p.raw_s, abs=1e-12)
    raw = found.view("raw")
    assert raw is not None
    assert p.raw_s == pytest.approx(raw.changes[0].change_s)


def test_the_same_log_twice(logs: dict[str, str]) -> None:
    found = ttftdoctor.compare(logs["before"], logs["before"])
    assert found.answer == "no_difference"
    assert "same requests" in found.headline
    for view in found.views:
        for change in view.changes:
            assert change.share == 0
            assert change.interval == (0, 0)


def test_too_few_rows(logs: dict[str, str]) -> None:
    found = ttftdoctor.compare(logs["before"], logs["few"])
    assert found.answer == "cannot_tell"
    assert "after" in found.headline
    assert found.views == ()


def test_what_is_no_ttft_is_refused(logs: dict[str, str], place: Path) -> None:
    rows = day(7)
    for row in rows:
        row["ttft_ms"] = row["latency_ms"]
    found = ttftdoctor.compare(logs["before"], write(place / "buffered.jsonl", rows))
    assert found.answer == "refused"
    assert "after" in found.headline
    assert found.views == ()


def test_other_models_are_warned_of(logs: dict[str, str]) -> None:
    found = ttftdoctor.compare(logs["before"], logs["other_model"])
    assert any("models differ" in warning for warning in found.warnings)
    assert found.answer != "refused"


def test_models_of_one_side_alone_are_left_out(place: Path) -> None:
    a = day(1, sessions=150) + day(2, sessions=150, model="m2", speed=3)
    b = day(3, sessions=150)
    found = ttftdoctor.compare(write(place / "two.jsonl", a), write(place / "one.jsonl", b))
    view = found.view("equal_mix")
    assert view is not None
    assert "model" in view.held
    assert 0.35 < view.covered_before < 0.65
    assert found.answer in ("no_difference", "cannot_tell")
    assert found.parts is not None
    assert found.parts.raw_s < -0.2
    assert found.parts.outside_s < -0.2


@pytest.mark.parametrize(
    "without",
    [
        ("session_id", "turn"), ("timestamp",), ("prompt_tokens", "cached_tokens"), ("model",),
        ("latency_ms", "completion_tokens"), ("cached_tokens", "replica"),
        ("session_id", "turn", "timestamp", "prompt_tokens", "cached_tokens"),
    ],
    ids=lambda names: "+".join(names),
)  # fmt: skip
def test_poor_logs_are_compared_as_far_as_they_go(place: Path, without: tuple[str, ...]) -> None:
    a = write(place / "a.jsonl", day(11, sessions=150), *without)
    b = write(place / "b.jsonl", day(12, sessions=150, speed=1.6), *without)
    found = ttftdoctor.compare(a, b)
    assert found.answer in ("worse", "cannot_tell")
    check(found)
    report.render_text(found)


def test_clocks_at_different_places_are_warned_of(helped: Comparison) -> None:
    side = helped.before
    moved = dataclasses.replace(side, population=dataclasses.replace(side.population, vantage="x"))
    other = dataclasses.replace(side, population=dataclasses.replace(side.population, vantage="y"))
    tally = Tally((), *[Sums(np.zeros((0, 0, 5)), *[np.zeros(0, int)] * 3, np.zeros(0))] * 2,
                  np.zeros((0, len(EXTRAS))), 0, 0, None, "")  # fmt: skip
    found = judge(Portrait(moved, tally), Portrait(other, tally))
    assert any("clock" in warning for warning in found.warnings)
    assert found.answer == "cannot_tell"


# --- predictions ----------------------------------------------------------------------------------


def test_a_document_gives_the_same_score(logs: dict[str, str], helped: Comparison) -> None:
    document = json.loads(ttftdoctor.to_json(ttftdoctor.diagnose(logs["before"])))
    found = ttftdoctor.compare(
        logs["before"], logs["cached"], prediction=document, remedy="prefix_cache"
    )
    assert found.hindcast is not None
    assert helped.hindcast is not None
    assert found.hindcast.source == "document"
    assert found.hindcast.predictions == helped.hindcast.predictions


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: [], "no diagnosis"),
        (lambda d: {**d, "schema": "other/1"}, "other/1"),
        (lambda d: {k: v for k, v in d.items() if k != "schema"}, "no schema"),
        (lambda d: {**d, "population": 3}, "no population"),
        (lambda d: {**d, "population": {"requests": 3}}, "mean TTFT"),
        (lambda d: {**d, "population": {"ttft_mean_s": "1"}}, "no number"),
        (lambda d: {**d, "population": {"ttft_mean_s": True}}, "no number"),
        (lambda d: {**d, "remedies": None}, "list of remedies"),
        (lambda d: {**d, "remedies": [{"title": "x"}]}, "no id"),
        (lambda d: {**d, "remedies": [{"id": "x", "gain_share": "a"}]}, "gain_share"),
        (lambda d: {**d, "remedies": [{"id": "x", "gain_share": math.inf}]}, "gain_share"),
        (lambda d: {**d, "remedies": [{"id": "x", "interval": [1]}]}, "pair"),
    ],
)
def test_what_is_no_prediction_is_refused(change: Callable[[Any], Any], words: str) -> None:
    good = {
        "schema": "ttftdoctor.diagnosis/1",
        "population": {"requests": 1, "with_ttft": 1, "ttft_mean_s": 1.0},
        "remedies": [],
    }
    assert foreseen_in(good).population.ttft_mean_s == 1.0
    with pytest.raises(InputError, match=words):
        foreseen_in(change(good))


def test_an_unknown_remedy_is_refused(logs: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="prefix_cash"):
        ttftdoctor.compare(logs["before"], logs["cached"], remedy="prefix_cash")


# --- forms ----------------------------------------------------------------------------------------


def check(found: Comparison) -> None:
    name = resources.files("ttftdoctor") / "schema" / "compare-1.schema.json"
    jsonschema.validate(
        json.loads(report.render_json(found)),
        json.loads(name.read_text()),
        cls=jsonschema.Draft202012Validator,
    )


def test_json_keeps_to_the_schema(helped: Comparison, logs: dict[str, str]) -> None:
    check(helped)
    check(ttftdoctor.compare(logs["before"], logs["few"]))
    document = json.loads(report.render_json(helped))
    assert document["schema"] == "ttftdoctor.compare/1"
    assert document["answer"] == "better"


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_terminal_report_fits(helped: Comparison, width: int) -> None:
    console = Console(width=width, color_system=None, force_terminal=False, record=True)
    with console.capture() as caught:
        report.print_to(console, helped)
    lines = caught.get().splitlines()
    assert max(map(len, lines)) <= width
    assert "BETTER" in lines[2]
    for name in ("TTFT at equal mix", "What changed inside", "Was the prediction right?"):
        assert any(line.startswith(name) for line in lines)


def test_markdown_says_the_same(helped: Comparison) -> None:
    text = report.render_markdown(helped)
    assert text.startswith("### ✅ BETTER: Mean TTFT")
    assert text.count("<details>") == text.count("</details>") >= 6
    assert len(text.encode()) < 60_000


EVIL = "m\x1b[31m|<b>@x`\u202e[a](http://b)"


def test_hostile_names_stay_text(place: Path) -> None:
    a, b = day(1, sessions=60, model=EVIL), day(2, sessions=60, model=EVIL + "2")
    found = ttftdoctor.compare(write(place / "e1.jsonl", a), write(place / "e2.jsonl", b))
    for form in (report.render_text, report.render_markdown, report.render_json):
        text = form(found)
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<b>" not in report.render_markdown(found)
    assert any("models differ" in warning for warning in found.warnings)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compare", *arguments])


def test_the_command(logs: dict[str, str], place: Path) -> None:
    target = place / "out.json"
    done = run(logs["before"], logs["slow"], "--json", str(target), "--no-color")
    assert done.exit_code == 0
    assert "WORSE" in done.stdout
    assert "rows read = " in re.sub(r"\s+", " ", done.stdout)
    assert json.loads(target.read_text())["answer"] == "worse"
    quiet = run(logs["before"], logs["slow"], "--json", str(target), "--quiet")
    assert quiet.exit_code == 0
    assert quiet.stdout == ""
    assert run(logs["before"], logs["slow"], "--markdown", "-").stdout.startswith("### ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--remedy", "nothing"], "there is no remedy"),
        (["--prediction", "no-such-file.json"], "cannot be read"),
        (["--json", "-", "--markdown", "-"], "both go to standard output"),
    ],
)
def test_refusals_of_the_command(logs: dict[str, str], arguments: list[str], words: str) -> None:
    done = run(logs["before"], logs["before"], *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_prediction_that_is_no_json_is_refused(logs: dict[str, str], place: Path) -> None:
    for name, content in (("log.json", b"{"), ("deep.json", b"[" * 100_000), ("x.json", b"\xff")):
        (place / name).write_bytes(content)
        done = run(logs["before"], logs["before"], "--prediction", str(place / name))
        assert done.exit_code == 2
        assert "no JSON document" in done.stderr


def test_the_words_fit_the_numbers() -> None:
    assert 0 < LEAST_SHARE < SAME_SHARE < 0.1
    assert METRICS[0] == "mean"


# --- goldens --------------------------------------------------------------------------------------


def by_hand() -> Comparison:
    """A comparison with a bit of everything, and names that try to be markup."""
    changes = tuple(
        Change(metric, was, now, now - was, now / was - 1, (now / was - 1.04, now / was - 0.97),
               answer, 0.058)
        for metric, was, now, answer in (
            ("mean", 1.39, 0.362, "better"), ("p50", 1.21, 0.350, "better"),
            ("p95", 3.36, 3.30, "cannot_tell"), ("p99", 5.35, 6.1, "worse"),
        )
    )  # fmt: skip
    a, b = (
        Side(
            inputs=(Input(f"{name}.jsonl", "flat", 3075, 3070, {"failed_request": 5}),),
            population=Population(3070, 484, 10, None, None, 3070, None, mean, None, None),
            ttft_p99_s=None, primary_cause=cause, headline="Said <b>of</b> it: 74 %.",
            cost_lines=CostLines(), models=("m",), replicas=3, arrivals_per_s=0.108,
            input_tokens_per_s=1512.0, peak_share=0.62, in_flight_mean=4.2, utilisation=0.12,
        )
        for name, mean, cause in (
            ("before", 1.39, "queueing_saturation"), ("after", 0.362, "healthy")
        )
    )  # fmt: skip
    prediction = Prediction(
        "prefix_cache", "Prefix cache", True, 0.74, (0.71, 0.78), 0.738, (0.72, 0.76), "within",
        (Score("mean", 1.39, 0.355, 0.362, -0.005), Score("p95", 3.36, 0.631, 3.3, -1.92)),
        Mechanism(True, "it worked the way it should: input served from a cache 0 % → 74 %"),
        "predicted −74 % (−78 % to −71 %), measured −74 % (−76 % to −72 %): what was measured lies "
        "within the prediction",
    )  # fmt: skip
    other = Prediction("double_capacity", "Double capacity", False, 0.15, None, 0.738, None,
                       "unknown", (), None, "no interval")  # fmt: skip
    return Comparison(
        version="0.0.0", answer="better",
        headline="Better: mean TTFT 1.39 s → 362 ms at equal mix and load, −74 % (−76 % to −72 %)",
        reasons=("raw −80 %: like for like −74 %, other traffic −5 %, other load −1 %",
                 "load differs: the typical request met 12 % less demand after"),
        basis="equal_mix_and_load", before=a, after=b,
        views=(View("raw", (), 1, 1.0, 1.0, changes),
               View("equal_mix", ("model", "turn", "input length"), 33, 0.93, 0.99, changes),
               View("equal_mix_and_load", ("turn", "input length", "demand"), 70, 0.81, 0.9,
                    changes)),
        parts=Parts(-1.112, -1.03, -0.01, -0.07, -0.002),
        inside=(
            Inside("prefill_repeated", "prefill of repeated tokens", "s", 0.79, 0.0, "down", True),
            Inside("unexplained", "unexplained", "s", -0.0019, 0.0, "unchanged", True),
            Inside("cached_share", "input served from a cache", "share", 0.0, 0.74, "up", True),
            Inside("prefill_per_1k", "per 1,000 new tokens", "ms_per_1k_tokens", 72.0, 72.1,
                   "unchanged", False, (70.0, 74.0), (71.0, 73.0)),
        ),
        said=("prefill of repeated tokens 790 ms → 0", "input served from a cache 0 % → 74 %"),
        hindcast=Hindcast("document", "prefix_cache", "equal_mix_and_load", (prediction, other)),
        warnings=("the logs are of different formats (flat; \x1b[31m<i>x</i>): be careful",),
    )  # fmt: skip


@pytest.mark.parametrize("form", sorted(report.FORMS))
def test_golden(form: str, golden: Callable[[str | Path, str], None]) -> None:
    text = report.FORMS[form](by_hand())
    ending = {"terminal": "txt", "markdown": "md", "json": "json"}[form]
    golden(f"compare/by_hand.{ending}", text)


def test_the_golden_keeps_to_the_schema() -> None:
    check(by_hand())
