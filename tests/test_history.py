from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.history import Entry, History, _large, _natural, history_of
from ttftdoctor.gate.history_report import (
    render_json,
    render_markdown,
    render_text,
    sparkline,
    trend_table,
)
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.shelf import append, history, read_entries
from ttftdoctor.gate.sketch import sketch_of
from ttftdoctor.gate.trend import (
    LEAST_SIDE,
    alike,
    candidates,
    change_points,
    decorrelated,
    is_drift,
    min_p,
    slope_of,
)
from ttftdoctor.measure.mix import BIN_STEP, Sums, Tally
from ttftdoctor.remedies import Settings
from ttftdoctor.report import as_text
from ttftdoctor.report.json_report import schema
from ttftdoctor.run import read
from ttftdoctor.simulator import load, serve, write_log
from ttftdoctor.study import study

# --- baselines of one service, as it might have been on other days -------------------------------


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    """A run of a service that is fine."""
    path = tmp_path_factory.mktemp("history") / "log.jsonl"
    write_log(serve(load("healthy_chat"), 0), str(path), "full")
    log = read(str(path))
    diagnosis, examined = study(log, "LOG", Settings())
    return Baseline("origin", (sketch_of(log, diagnosis, examined),)).fit_in(60_000)


def slower(tally: Tally, bins: int, mark: str) -> Tally:
    """Every time longer by so many bins, of one per cent each."""
    factor = BIN_STEP**bins

    def sums(old: Sums) -> Sums:
        moments = old.moments.copy()
        moments[:, :, [1, 4]] *= factor
        return replace(old, moments=moments, bin=old.bin + bins // old.width)

    raw = None if tally.ttft is None else tuple(v * factor for v in tally.ttft)
    return replace(
        tally, by_session=sums(tally.by_session), mark=mark, ttft=raw,
        by_time=None if tally.by_time is None else sums(tally.by_time),
    )  # fmt: skip


def crowded(tally: Tally, wanted: Callable[[int], bool], times: int) -> Tally:
    """The requests of some turns so many times over: another mix, the same server."""
    weight = np.array([times if wanted(cell.turn) else 1 for cell in tally.cells])

    def sums(old: Sums) -> Sums:
        return replace(
            old, moments=old.moments * weight[None, :, None], count=old.count * weight[old.cell]
        )

    by_session = sums(tally.by_session)
    return replace(
        tally, by_session=by_session, extras=tally.extras * weight[:, None], ttft=None,
        by_time=None if tally.by_time is None else sums(tally.by_time),
        n=round(float(by_session.moments[:, :, 0].sum())),
    )  # fmt: skip


def day(origin: Baseline, number: int, bins: int = 0, **changed: object) -> Baseline:
    """The service on another day, slower by so many per cent."""
    sketch = origin.sketches[0]
    start = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T08:00:00Z"
    facts = replace(sketch.facts, **({"start": start} | changed))
    ttft = slower(sketch.ttft, bins * sketch.ttft.by_session.width, f"{number}-{bins}")
    return Baseline(f"v{number}", (replace(sketch, facts=facts, ttft=ttft),))


def entries(days: Sequence[Baseline]) -> list[Entry]:
    return [Entry(f"{one.label}.json", one) for one in days]


def trend(found: History, metric: str = "ttft_mean"):
    return next(t for t in found.metrics if t.metric == metric)


@pytest.fixture(scope="module")
def jumped(origin: Baseline) -> History:
    """Level for ten days with noise of a bin, then slower by some twenty per cent."""
    width = origin.sketches[0].ttft.by_session.width
    noise = np.random.default_rng(3).integers(-1, 2, 20)
    step = math.ceil(20 / width)
    days = [day(origin, n, int(noise[n]) + (step if n >= 12 else 0)) for n in range(20)]
    order = np.random.default_rng(4).permutation(20)
    return history_of(entries([days[at] for at in order]), version="1")


@pytest.fixture(scope="module")
def few(origin: Baseline) -> list[Baseline]:
    return [day(origin, n, n % 2) for n in range(3)]


# --- change points and slopes -----------------------------------------------------------------


def noise(n: int, seed: int, r: float = 0.0) -> np.ndarray:
    fresh = np.random.default_rng(seed).standard_normal(n)
    out = fresh.copy()
    for at in range(1, n):
        out[at] = r * out[at - 1] + math.sqrt(1 - r * r) * fresh[at]
    return out


def naive_min_p(scores: np.ndarray) -> list[float]:
    """The definition: for each test the chance that the smallest p-value of it and of all weaker
    ones is as small, made monotone.
    """
    lines, tests = scores.shape
    single = [[np.mean(scores[:, t] >= scores[b, t]) for t in range(tests)] for b in range(lines)]
    order = sorted(range(tests), key=lambda t: single[0][t])
    out, worst = [0.0] * tests, 0.0
    for rank, test in enumerate(order):
        weaker = order[rank:]
        hits = [min(single[b][t] for t in weaker) <= single[0][test] for b in range(lines)]
        worst = max(worst, float(np.mean(hits)))
        out[test] = worst
    return out


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(5, 40))
@settings(max_examples=40, deadline=None)
def test_min_p_is_its_definition(seed: int, tests: int, orders: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 8, (orders, tests)).astype(float)
    raw, adjusted = min_p(scores)
    assert adjusted == pytest.approx(naive_min_p(scores))
    assert (adjusted >= raw - 1e-12).all()
    assert adjusted.max() <= 1


def test_min_p_knows_what_goes_together() -> None:
    """Ten copies of one test cost nothing, ten independent ones cost what Holm would take."""
    one = np.random.default_rng(0).standard_normal((1000, 1))
    one[0] = np.sort(one[:, 0])[-10]  # p = 0.01
    raw, adjusted = min_p(np.repeat(one, 10, axis=1))
    assert adjusted == pytest.approx(raw)
    apart = np.random.default_rng(1).standard_normal((1000, 10))
    apart[0] = np.sort(apart[1:], axis=0)[-9]
    assert min_p(apart)[1].min() > 0.05


def test_a_step_is_found_where_it_is() -> None:
    values = noise(40, 1)
    values[25:] += 4
    quiet = [noise(40, seed) for seed in range(2, 6)]
    found = change_points([values, *quiet])
    assert [f.at for f in found[0]] == [25]
    assert found[0][0].p_adjusted <= 0.01
    assert not any(found[1:])


def test_a_step_up_and_back_is_two() -> None:
    values = noise(50, 8)
    values[20:35] += 4
    assert [f.at for f in change_points([values])[0]] == [20, 35]


def test_unknown_values_keep_their_places() -> None:
    values = noise(40, 1)
    values[25:] += 5
    values[[2, 9, 27]] = np.nan
    assert [f.at for f in change_points([values])[0]] == [25]


def test_one_bad_run_is_no_change() -> None:
    for at in (3, 10, 19):
        values = noise(20, at)
        values[at] += 30
        assert not any(change_points([values, noise(20, 77)]))


def test_too_few_or_constant_values_show_nothing() -> None:
    assert change_points([]) == []
    assert change_points([np.r_[np.zeros(4), np.ones(3)]]) == [[]]
    assert change_points([np.full(30, 2.0), np.full(30, np.nan)]) == [[], []]


def test_constant_levels_with_a_step_are_seen() -> None:
    values = np.r_[np.zeros(12), np.full(12, 0.1)]
    assert [f.at for f in change_points([values])[0]] == [12]


@pytest.mark.parametrize(("n", "r", "most"), [(20, 0.0, 3), (50, 0.0, 3), (50, 0.3, 4)])
def test_stationary_noise_is_left_alone(n: int, r: float, most: int) -> None:
    """Of twenty histories of eight metrics without a change hardly any shows one."""
    seen = 0
    for seed in range(20):
        common = noise(n, 1000 + seed, r)
        metrics = [0.8 * common + 0.6 * noise(n, 10 * seed + m, r) for m in range(8)]
        seen += any(change_points(metrics))
    assert seen <= most


def test_a_tenth_is_seen_in_three_per_cent_of_noise() -> None:
    seen = 0
    for seed in range(20):
        values = np.log(0.3) + 0.03 * noise(30, seed)
        values[20:] += math.log(1.1)
        quiet = [0.03 * noise(30, 500 + 8 * seed + m) for m in range(7)]
        seen += any(abs(f.at - 20) <= 1 for f in change_points([values, *quiet])[0])
    assert seen >= 17


@given(st.integers(0, 1000), st.floats(0.1, 50), st.floats(-5, 5))
@settings(max_examples=20, deadline=None)
def test_scale_and_place_do_not_matter(seed: int, scale: float, shift: float) -> None:
    values = noise(24, seed)
    values[15:] += 3
    first = [f.at for f in change_points([values])[0]]
    assert [f.at for f in change_points([scale * values + shift])[0]] == first


def test_autocorrelation_is_estimated_about_levels() -> None:
    for r in (0.0, 0.3, 0.6):
        flat = np.mean([alike(noise(100, seed, r)) for seed in range(30)])
        step = np.r_[np.zeros(60), np.full(40, 4.0)]
        stepped = np.mean([alike(noise(100, seed, r) + step) for seed in range(30)])
        assert flat == pytest.approx(r, abs=0.12)
        assert stepped == pytest.approx(r, abs=0.12)


def test_decorrelated_by_hand() -> None:
    out = decorrelated(np.array([1.0, 2.0, 4.0]), 0.5)  # about the median of 2
    assert out == pytest.approx([-math.sqrt(0.75), 0.5, 2.0])


def test_candidates_keep_their_distance() -> None:
    values = noise(60, 5)
    values[20:40] += 6
    places = candidates(values)
    assert {20, 40} <= set(places)
    assert min(np.diff([0, *places, 60])) >= LEAST_SIDE


def test_a_slope_is_no_step() -> None:
    rising = 0.2 * np.arange(40) + noise(40, 2)
    step = np.r_[np.zeros(20), np.full(20, 6.0)] + noise(40, 2)
    assert is_drift(rising, [20])
    assert not is_drift(step, [20])


def test_slope_is_the_median_of_all_pairs() -> None:
    weeks, values = np.arange(12) / 7, noise(12, 3)
    pairs = [
        (values[b] - values[a]) / (weeks[b] - weeks[a]) for a in range(12) for b in range(a + 1, 12)
    ]
    line = slope_of(weeks, values)
    assert line is not None
    assert line.per_week == pytest.approx(np.median(pairs))
    assert line.low < line.per_week < line.high
    assert slope_of(weeks[:7], values[:7]) is None
    assert slope_of(np.zeros(12), values) is None


# --- a whole history --------------------------------------------------------------------------


def test_the_step_is_named_whatever_the_order_of_files(jumped: History) -> None:
    assert [k.label for k in jumped.baselines] == [f"v{n}" for n in range(20)]
    mean = trend(jumped)
    assert [(s.at, s.label, s.start, s.direction) for s in mean.steps] == [
        (12, "v12", "2026-01-13T08:00:00Z", "worse")
    ]
    assert "v12 (2026-01-13)" in jumped.headline
    assert jumped.headline.startswith("Worse since")
    levels = [level.level for level in mean.levels]
    assert mean.steps[0].before == pytest.approx(np.mean(levels[:12]))
    assert mean.steps[0].after == pytest.approx(np.mean(levels[12:]))
    assert mean.steps[0].change_share == pytest.approx(
        np.mean(levels[12:]) / np.mean(levels[:12]) - 1
    )
    # What did not change is not said to.
    for name in ("decode_per_token", "hit_share", "prefill_slope"):
        assert not trend(jumped, name).steps
    assert "since then" not in trend(jumped, "decode_per_token").says


def test_levels_are_those_of_the_server(origin: Baseline) -> None:
    """Each baseline is slower than the newest by exactly so many bins."""
    found = history_of(entries([day(origin, n, n) for n in range(3)]))
    width = origin.sketches[0].ttft.by_session.width
    for name in ("ttft_mean", "ttft_p50", "ttft_p95"):
        levels = [level.level for level in trend(found, name).levels]
        for a, b in pairwise(levels):
            assert b / a == pytest.approx(BIN_STEP**width, rel=0.01)
    newest = trend(found).levels[-1]
    assert newest is not None
    assert newest.interval is None
    older = trend(found).levels[0]
    assert older is not None
    assert older.interval is not None
    assert older.interval[0] <= older.level <= older.interval[1]


def test_other_traffic_is_no_change(origin: Baseline) -> None:
    """From the sixth day on late turns come three times as often: raw moves, the level does not."""
    days = []
    for n in range(12):
        one = day(origin, n)
        if n >= 6:
            sketch = one.sketches[0]
            late = max(cell.turn for cell in sketch.ttft.cells) / 2
            crowd = crowded(sketch.ttft, lambda turn, late=late: turn >= late, 4)
            one = replace(one, sketches=(replace(sketch, ttft=crowd),))
        days.append(one)
    found = history_of(entries(days))
    mean = trend(found)
    raw = [level.raw for level in mean.levels]
    assert abs(raw[0] / raw[-1] - 1) > 0.02
    levels = [level.level for level in mean.levels]
    assert max(levels) / min(levels) - 1 < 0.005
    assert not mean.steps
    assert not found.moved("worse")


def test_a_slide_is_a_drift(origin: Baseline) -> None:
    found = history_of(entries([day(origin, n, n // 2) for n in range(24)]))
    mean = trend(found)
    assert mean.drift == "worse"
    assert not mean.steps
    assert mean.slope is not None
    assert mean.slope.interval[0] > 0
    assert "drifts" in found.headline
    width = origin.sketches[0].ttft.by_session.width
    last = mean.last
    assert last is not None
    # Half a bin a day.
    assert mean.slope.per_week / last.level == pytest.approx(
        3.5 * math.log(BIN_STEP) * width * 0.66, rel=0.35
    )


def test_what_got_better_again_is_not_worse(origin: Baseline) -> None:
    found = history_of(entries([day(origin, n, 4 if 10 <= n < 20 else 0) for n in range(30)]))
    steps = trend(found).steps
    assert [(s.at, s.direction) for s in steps] == [(10, "worse"), (20, "better")]
    assert trend(found).direction == "better"
    assert not any(t.metric == "ttft_mean" for t in found.moved("worse"))


def test_a_step_that_cannot_be_proved_yet_is_not_called_steady(origin: Baseline) -> None:
    found = history_of(entries([day(origin, n, n % 2 + (3 if n >= 5 else 0)) for n in range(8)]))
    mean = trend(found)
    assert not mean.steps
    assert mean.suspected is not None
    assert (mean.suspected.at, mean.suspected.direction) == (5, "worse")
    assert mean.suspected.p_adjusted is None
    assert not found.moved("worse")
    assert found.headline.startswith("Not proved: ")
    assert "may be worse since v5" in found.headline
    text = render_text(found)
    assert "NOT PROVED" in text
    assert "STEADY" not in text
    jsonschema.validate(json.loads(render_json(found)), schema("history-1"))


def test_noise_is_steady(origin: Baseline) -> None:
    found = history_of(entries([day(origin, n, n % 2) for n in range(10)]))
    assert not any(t.suspected for t in found.metrics)
    assert "STEADY" in render_text(found)


def test_few_baselines_are_shown_and_not_judged(few: list[Baseline]) -> None:
    found = history_of(entries(few))
    assert not found.judged
    assert found.headline.startswith("Trend only: 3 baselines")
    assert not any(t.steps or t.drift or t.slope for t in found.metrics)
    assert "TREND ONLY" in render_text(found)
    assert "below 8" in trend(found).says


def test_one_baseline_is_a_history(origin: Baseline) -> None:
    found = history_of(entries([origin]))
    assert len(found.baselines) == 1
    assert "1 baseline;" in found.headline


def test_small_steps_are_left_out() -> None:
    metric = METRICS["ttft_mean"]  # 5 % and 10 ms
    long = np.r_[np.full(10, 1.0), np.full(10, 1.04), np.full(10, 1.2)]
    assert _large(metric, long, [10, 20]) == [20]
    short = np.r_[np.full(10, 0.050), np.full(10, 0.058)]  # 16 %, 8 ms
    assert _large(metric, short, [10]) == []
    assert _large(METRICS["hit_share"], np.r_[np.full(5, 0.8), np.full(5, 0.7)], [5]) == [5]


def test_an_slo_adds_its_metrics(few: list[Baseline]) -> None:
    plain_ = {t.metric for t in history_of(entries(few)).metrics}
    with_slo = {t.metric for t in history_of(entries(few), slo_s=0.2).metrics}
    assert with_slo - plain_ == {"attainment", "goodput"}


# --- what does not belong ---------------------------------------------------------------------


def test_others_are_set_aside_by_name(origin: Baseline, few: list[Baseline]) -> None:
    inputs = tuple(replace(i, format="other_format") for i in origin.sketches[0].facts.inputs)
    strangers = {
        "model": day(origin, 3, models=("another",)),
        "format": day(origin, 4, inputs=inputs),
        "clock": day(origin, 5, vantage="elsewhere"),
        "no TTFT": day(origin, 6, cause="measurement_artifact", headline="not streamed"),
        "warm-up": day(origin, 7, settled=False),
    }
    # Set days apart, so that none of them is the newest.
    newest = day(origin, 20)
    all_ = [*few, *(replace(b, label=name) for name, b in strangers.items()), newest]
    found = history_of(entries(all_))
    why = {s.name.removesuffix(".json"): s.why for s in found.set_aside}
    assert why.keys() == strangers.keys()
    for name, text in why.items():
        assert name in text
    assert "another" in why["model"]
    assert [k.label for k in found.baselines] == ["v0", "v1", "v2", "v20"]


def test_the_newest_that_can_be_used_leads(origin: Baseline, few: list[Baseline]) -> None:
    broken = day(origin, 25, cause="measurement_artifact", headline="not streamed")
    found = history_of(entries([*few, broken]))
    assert found.baselines[-1].label == "v2"
    assert [s.name for s in found.set_aside] == ["v25.json"]


def test_the_same_requests_count_once(few: list[Baseline]) -> None:
    again = replace(few[0], label="again")
    found = history_of([*entries(few), Entry("copy.json", again)])
    assert len(found.baselines) == 3
    assert "same requests" in found.set_aside[0].why


def test_without_starts_names_give_the_order(origin: Baseline) -> None:
    days = [replace(day(origin, n, n, start=None), label=f"v{n}") for n in (10, 9, 2)]
    found = history_of(entries(days))
    assert [k.label for k in found.baselines] == ["v2", "v9", "v10"]
    assert any("order of their names" in w for w in found.warnings)
    assert all(t.slope is None for t in found.metrics)


def test_numbers_in_names_are_numbers() -> None:
    names = ["v10", "v9", "", "9", "v9.2", "v9.10", "9" * 30, "²", "v"]
    assert sorted(names, key=_natural) == [
        "", "9", "9" * 30, "v", "v9", "v9.2", "v9.10", "v10", "²"
    ]  # fmt: skip


def test_nothing_left_is_an_error(origin: Baseline) -> None:
    with pytest.raises(InputError, match="no baseline is left"):
        history_of([])
    with pytest.raises(InputError, match="no baseline is left"):
        history_of(entries([day(origin, 1, cause="measurement_artifact", headline="x")]))


# --- files ------------------------------------------------------------------------------------


def test_folder_lines_and_files(tmp_path: Path, few: list[Baseline]) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for one in few[:2]:
        (folder / f"{one.label}.json").write_text(one.to_text())
    (folder / "notes.txt").write_text("nothing")
    (folder / "package.json").write_text("{}")
    (folder / "binary.json").write_bytes(b"\xff\xfe")
    lines = tmp_path / "more.jsonl"
    whole = json.dumps(few[2].to_dict())
    other = json.dumps({"schema": "ttftdoctor.baseline/9"})
    torn = whole[: len(whole) // 2]
    lines.write_text(f"{whole}\n\nnot json\n{other}\n{torn}")
    found = history(folder, lines)
    assert [k.label for k in found.baselines] == ["v0", "v1", "v2"]
    why = {s.name.rpartition("/")[2]: s.why for s in found.set_aside}
    assert why.keys() == {
        "package.json", "binary.json", "more.jsonl line 3", "more.jsonl line 4",
        "more.jsonl line 5",
    }  # fmt: skip
    assert "another version" in why["more.jsonl line 4"]
    assert found.baselines[-1].name.endswith("more.jsonl line 1")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "null", "[]", '{"schema": 1}',
        '{"schema": "ttftdoctor.baseline/1", "label": 3, "lost": [], "runs": []}',
        '{"schema": "ttftdoctor.baseline/1", "label": "x", "lost": [], "runs": [{}]}',
    ],
)  # fmt: skip
def test_hostile_lines_are_skipped(tmp_path: Path, few: list[Baseline], text: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text + "\n" + json.dumps(few[0].to_dict()) + "\n")
    found, broken = read_entries(path)
    assert [e.baseline.label for e in found] == ["v0"]
    assert [b.name for b in broken] == [f"{path} line 1"]


def test_a_line_without_an_end_is_skipped(
    tmp_path: Path, few: list[Baseline], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(few[0].to_dict())
    monkeypatch.setattr("ttftdoctor.gate.shelf.MOST_LINE_BYTES", len(line) + 10)
    path = tmp_path / "history.jsonl"
    path.write_text("x" * (5 * len(line)) + "\n" + line + "\n")
    found, broken = read_entries(path)
    assert [e.name for e in found] == [f"{path} line 2"]
    assert "too long" in broken[0].why


def test_append_once_each(tmp_path: Path, few: list[Baseline]) -> None:
    path = tmp_path / "history.jsonl"
    assert append(path, few[0])
    assert append(path, few[1])
    before = path.read_bytes()
    assert not append(path, few[0])
    assert path.read_bytes() == before
    # Another start under the same label is another run.
    assert append(path, replace(few[2], label=few[0].label))
    assert len(path.read_text().splitlines()) == 3
    assert [e.baseline.label for e in read_entries(path)[0]] == ["v0", "v1", "v0"]
    assert [p.name for p in tmp_path.iterdir()] == ["history.jsonl"]


def test_appends_at_the_same_time_lose_nothing(tmp_path: Path, origin: Baseline) -> None:
    path = tmp_path / "history.jsonl"
    days = [day(origin, n) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda one: append(path, one), days))
    found, broken = read_entries(path)
    assert not broken
    assert {e.baseline.label for e in found} == {d.label for d in days}


def test_append_after_a_torn_line(tmp_path: Path, few: list[Baseline]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"schema": "ttftdoctor.base')
    assert append(path, few[0])
    found, broken = read_entries(path)
    assert [e.baseline.label for e in found] == ["v0"]
    assert len(broken) == 1


def test_a_failed_append_leaves_the_old_file(
    tmp_path: Path, few: list[Baseline], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    append(path, few[0])
    before = path.read_bytes()

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(UsageError, match="cannot write"):
        append(path, few[1])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["history.jsonl"]


def test_append_wants_json_lines(tmp_path: Path, few: list[Baseline]) -> None:
    with pytest.raises(UsageError, match="JSON lines"):
        append(tmp_path / "baseline.json", few[0])
    with pytest.raises(UsageError, match="cannot write"):
        append(tmp_path / "nowhere" / "history.jsonl", few[0])


# --- reports ----------------------------------------------------------------------------------


def test_json_keeps_to_the_schema(jumped: History, few: list[Baseline]) -> None:
    for found in (jumped, history_of(entries(few), slo_s=0.2)):
        document = json.loads(render_json(found))
        jsonschema.validate(document, schema("history-1"), cls=jsonschema.Draft202012Validator)
        assert document["schema"] == "ttftdoctor.history/1"
        for metric in document["metrics"]:
            assert len(metric["levels"]) == len(document["baselines"])


def test_terminal_and_markdown(jumped: History, golden: Callable[[str, str], None]) -> None:
    golden("gate/history.txt", render_text(jumped))
    golden("gate/history.md", render_markdown(jumped))


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_reports_keep_to_their_width(jumped: History, width: int) -> None:
    from ttftdoctor.gate.history_report import print_to

    text = as_text(lambda console: print_to(console, jumped), width)
    assert "v12" in text
    if width >= 80:
        assert max(cell_len(line) for line in text.splitlines()) <= width


def test_sparklines_show_what_matters(jumped: History) -> None:
    line = sparkline(trend(jumped), 20)
    assert len(line) == 20
    assert max(line[:12]) < min(line[12:])
    assert len(sparkline(trend(jumped), 7)) == 7
    assert sparkline(trend(jumped), 20, plain=True).isascii()
    # What moves by less than may be lost looks level.
    still = trend(jumped, "decode_per_token")
    assert len(set(sparkline(still, 20))) == 1
    hole = replace(still, levels=(None, *still.levels[1:]))
    assert sparkline(hole, 20)[0] == "·"


def test_what_got_worse_stands_first(jumped: History) -> None:
    rows = trend_table(jumped, spark=10).rows
    assert rows[0][0] == "mean TTFT"
    moved = [row[-1] != "-" for row in rows]
    assert moved == sorted(moved, reverse=True)


def test_hostile_labels_are_shown_as_text(origin: Baseline) -> None:
    evil = "\x1b[31m<img src=x>|`@you` [a](http://b)\n# h"
    days = [replace(day(origin, n, 4 * (n >= 6)), label=f"{evil}{n}") for n in range(12)]
    found = history_of([Entry(evil, b) for b in days])
    assert trend(found).steps
    text, marked = render_text(found), render_markdown(found)
    for out in (text, marked, render_json(found)):
        assert "\x1b" not in out
    assert "<img" not in marked
    assert "@you" not in marked
    assert "\\[a\\](http:\u200b" in marked


# --- command line -----------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(app, ["history", *arguments])


def test_command(tmp_path: Path, few: list[Baseline]) -> None:
    for one in few:
        (tmp_path / f"{one.label}.json").write_text(one.to_text())
    target, kept = tmp_path / "out.txt", tmp_path / "history.jsonl"
    done = run(str(tmp_path), "--json", str(target), "--no-color")
    assert done.exit_code == 0, done.output
    assert "TREND ONLY" in done.output
    assert json.loads(target.read_text())["headline"].startswith("Trend only")
    for _ in range(2):
        done = run("--append", str(kept), str(tmp_path / "v0.json"), str(tmp_path / "v1.json"))
        assert done.exit_code == 0, done.output
    assert "already" in done.output
    assert len(kept.read_text().splitlines()) == 2
    done = run(str(kept), "--markdown", "-")
    assert done.exit_code == 0
    assert done.output.startswith("### ")


def test_command_names_what_it_skips(tmp_path: Path, few: list[Baseline]) -> None:
    (tmp_path / "good.json").write_text(few[0].to_text())
    (tmp_path / "bad.json").write_text('{"schema": "ttftdoctor.baseline/2"}')
    done = run(str(tmp_path), "--json", "-")
    assert done.exit_code == 0
    assert "bad.json" in done.stderr
    assert "another version" in done.stderr


def test_command_refuses(tmp_path: Path, few: list[Baseline]) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for arguments, said in (
        ([str(tmp_path)], "no baseline is left"),
        ([str(tmp_path / "gone")], "no such file"),
        (["--append", str(tmp_path / "h.jsonl"), str(tmp_path / "bad.json")], "no baseline"),
        (["--append", str(tmp_path / "h.jsonl"), "x", "--json", "-"], "--append only adds"),
        ([str(tmp_path), "--slo-ttft", "fast"], "--slo-ttft"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, arguments
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "h.jsonl").exists()
