"""Contrast: the expression means what it says, and effects, intervals and tests can be trusted."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.contrasts.columns import Number, columns_of
from ttftdoctor.contrasts.rank import _round_between, superiority
from ttftdoctor.contrasts.records import Contrasted
from ttftdoctor.contrasts.select import Chosen, Rows, select
from ttftdoctor.contrasts.terminal import render
from ttftdoctor.errors import UsageError
from ttftdoctor.stats import auc

ROOT = Path(__file__).parents[1]
PEAK = str(ROOT / "sample_logs" / "peak_hour.jsonl")
HEALTHY = str(ROOT / "sample_logs" / "healthy.jsonl")
SCHEMA = json.loads(
    (Path(ttftdoctor.__file__).parent / "schema" / "contrast-1.schema.json").read_text()
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


# --- the expression -----------------------------------------------------------------------------


class Words:
    """A column of texts."""

    unit = "text"

    def __init__(self, *values: str | None) -> None:
        self.values = values

    def numbers(self) -> Any:
        return np.full(len(self.values), np.nan)

    def is_any(self, texts: Any) -> Any:
        return np.array([v in texts for v in self.values])

    def known(self) -> Any:
        return np.array([v is not None for v in self.values])


NAN = math.nan
TTFT = Number("ttft", "s", "", np.array([0.1, 0.5, 2.0, NAN]))
FOUR = Rows(
    n=4,
    columns={
        "ttft": TTFT,
        "input": Number("input", "tokens", "", np.array([100.0, 12300.0, 5000.0, 7.0])),
        "uncached": Number("uncached", "tokens", "", np.array([100.0, 300.0, 5000.0, NAN])),
        "share": Number("share", "share", "", np.array([0.0, 0.8, 0.5, NAN])),
        "turn": Number("turn", "count", "", np.array([1.0, 2.0, 3.0, 4.0])),
        "start": Number("start", "instant", "", np.array([0.0, 60.0, 3600.0, 7200.0])),
        "model": Words("a", "b", 'c"d', None),
        "moved": Words("yes", "no", "yes", None),
    },
    aliases={"ttft_us": "ttft", "input_tokens": "input"},
    lacking=("replica",),
    epoch_us=1_767_261_600_000_000,  # 2026-01-01 10:00 UTC
)


def chosen(expression: str) -> Chosen:
    return select(expression, FOUR)


@pytest.mark.parametrize(
    ("expression", "rows", "unsure"),
    [
        ("ttft > 800ms", [2], [3]),
        ("ttft > 0.8 s", [2], [3]),
        ("800 ms < ttft", [2], [3]),
        ("ttft <= 500000us", [0, 1], [3]),
        ("ttft == 500ms", [1], [3]),
        ("ttft_us != 0.5s", [0, 2], [3]),
        ("100ms < ttft < 2s", [1], [3]),
        ("ttft > median", [2], [3]),
        ("ttft >= p50", [1, 2], [3]),
        ("ttft > p99.5", [2], [3]),
        ("input > 12_000", [1], []),
        ("input_tokens = 12.3k", [1], []),
        ("uncached < input", [1], [3]),
        ("share >= 80%", [1], [3]),
        ("share >= 0.5", [1, 2], [3]),
        ("turn in (1, 3)", [0, 2], []),
        ("turn not in (1, 3)", [1, 3], []),
        ('model == "a"', [0], []),
        ("model != 'a'", [1, 2, 3], []),
        ('model in ("b", "c\\"d")', [1, 2], []),
        ("model is null", [3], []),
        ("model is not null", [0, 1, 2], []),
        ("ttft is null", [3], []),
        ("moved", [0, 2], [3]),
        ("not moved", [1], [3]),
        ("moved == false", [1], []),
        ('start >= "2026-01-01 11:00"', [2, 3], []),
        ('start < "2026-01-01T12:00:00+01:00"', [0, 1], []),
        ("start > 30min", [2, 3], []),
        ("not ttft > 1s", [0, 1], [3]),
        ("ttft > 1s or turn == 4", [2, 3], []),
        ("ttft > 1s and turn == 4", [], [3]),
        ("ttft > 1s and turn == 3", [2], []),
        ("turn == 1 or turn == 2 and ttft > 1s", [0], []),
        ("(turn == 1 or turn == 3) and ttft > 1s", [2], []),
        ("!(turn == 1) && turn < 3 || turn == 4", [1, 3], []),
        ("turn > -1", [0, 1, 2, 3], []),
    ],
)
def test_what_an_expression_means(expression: str, rows: list[int], unsure: list[int]) -> None:
    found = chosen(expression)
    assert np.flatnonzero(found.rows).tolist() == rows
    assert np.flatnonzero(found.unsure).tolist() == unsure


@pytest.mark.parametrize(
    ("expression", "words", "place"),
    [
        ("", "no condition", 0),
        ("tttft > 2s", "did you mean ttft", 0),
        ("ttft > 2", "say 2s or 2ms", 7),
        ("ttft > 2k", "another unit", 7),
        ("ttft > 2parsecs", "no unit parsecs", 8),
        ("input > 12,300", "without a comma", 10),
        ("input > 3s", "another unit", 8),
        ("ttft > ", "was expected here", 7),
        ("ttft", "a comparison was expected", 4),
        ("ttft > 2s turn", "not expected here", 10),
        ("(ttft > 2s", "closing parenthesis", 10),
        ("model > 'a'", "it has no order", 6),
        ("model == p95", "no percentiles", 9),
        ("model == gpt", 'in quotes: "gpt"', 9),
        ("model == 'a", "never closed", 9),
        ("input == 'a'", "a number, not a text", 9),
        ("ttft > p101", "between p0 and p100", 7),
        ("replica == 'x'", "this log does not say `replica`", 0),
        ("start > 'noon'", "this is no time", 8),
        ("ttft ; 3", "no part of an expression", 5),
        ("turn in 3", "opening parenthesis", 8),
        ("turn in (turn)", "values are listed", 9),
        ("ttft < input", "cannot be compared", 7),
        ("3 < 4", "must be a column", 0),
        ("model", "a comparison was expected", 5),
        ("__import__('os')", "there is no column", 0),
        ("(" * 100 + "turn > 1", "too many parentheses", 60),
        ("not " * 100 + "turn > 1", "too many negations", 240),
        ("turn > 1 or " * 500 + "turn > 1", "longer than", None),
        ("turn > " + "9" * 400, "too large", 7),
    ],
)
def test_a_wrong_expression_is_told_where_it_is_wrong(
    expression: str, words: str, place: int | None
) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(expression)
    text = str(caught.value)
    assert words in text
    if place is not None:
        shown, marks = text.splitlines()[1:3]
        shift = max(0, place - 60)
        assert marks.index("^") == 4 + place - shift
        assert shown[4:] == expression[shift:][: len(shown) - 4]


def test_names_that_are_there_are_listed() -> None:
    with pytest.raises(UsageError, match=r"available: ttft, input, uncached"):
        chosen("nothing > 3")


def test_a_relative_clock_has_no_dates() -> None:
    rows = Rows(4, FOUR.columns, {}, (), None)
    with pytest.raises(UsageError, match="the clock of this log is relative"):
        select('start > "2026-01-01"', rows)


@given(st.text(max_size=60) | st.text("turnofia d()<>=!'\"0123.p%", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_an_expression_or_a_usage_error(text: str) -> None:
    found = said = None
    try:
        found = chosen(text)
    except UsageError as error:
        said = str(error)
    if found is None:
        assert said is not None
        assert not CONTROL.search(said)
    else:
        assert not (found.rows & found.unsure).any()


masks = st.lists(st.sampled_from(["turn > 2", "ttft > 1s", "share > 0.6", "moved"]), min_size=2,
                 max_size=2)  # fmt: skip


@settings(deadline=None)
@given(masks)
def test_the_laws_of_logic_hold_with_unknowns(pair: list[str]) -> None:
    a, b = pair
    for one, other in (
        (f"not ({a} and {b})", f"not {a} or not {b}"),
        (f"not ({a} or {b})", f"not {a} and not {b}"),
        (f"not not {a}", a),
    ):
        x, y = chosen(one), chosen(other)
        assert (x.rows == y.rows).all()
        assert (x.unsure == y.unsure).all()


# --- the statistics -----------------------------------------------------------------------------

patient = settings(deadline=None)
numbers = st.lists(st.integers(0, 6), min_size=1, max_size=40)

several = st.lists(st.integers(0, 6), min_size=5, max_size=40)


@patient
@given(numbers, numbers)
def test_superiority_is_the_share_of_pairs(a: list[int], b: list[int]) -> None:
    values = np.array(a + b, dtype=float)
    selected = np.arange(len(values)) < len(a)
    found = superiority(values, selected, np.arange(len(values)))
    assert found is not None
    pairs = [(x > y) + 0.5 * (x == y) for x in a for y in b]
    assert found.chance == pytest.approx(sum(pairs) / len(pairs))
    assert found.chance == pytest.approx(auc(values[selected], values[~selected]))
    if found.interval is not None:
        low, high = found.interval
        assert -1 <= low <= found.effect + 1e-12
        assert found.effect - 1e-12 <= high <= 1


@patient
@given(numbers, numbers, st.integers(0, 2**32 - 1))
def test_order_and_monotone_change_of_the_values_do_not_matter(
    a: list[int], b: list[int], seed: int
) -> None:
    values = np.array(a + b, dtype=float)
    selected = np.arange(len(values)) < len(a)
    cluster = np.arange(len(values)) // 2
    order = np.random.default_rng(seed).permutation(len(values))
    one = superiority(values, selected, cluster)
    other = superiority(np.exp(values)[order], selected[order], cluster[order])
    assert one is not None
    assert other is not None
    assert one.chance == pytest.approx(other.chance)
    assert one.error == pytest.approx(other.error, abs=1e-12)
    swapped = superiority(values, ~selected, cluster)
    assert swapped is not None
    assert swapped.chance == pytest.approx(1 - one.chance)


@patient
@given(several, several)
def test_the_p_value_is_that_of_mann_and_whitney(a: list[int], b: list[int]) -> None:
    from scipy.stats import mannwhitneyu

    assume(len(set(a + b)) > 1)
    values = np.array(a + b, dtype=float)
    found = superiority(values, np.arange(len(values)) < len(a), np.arange(len(values)))
    want = mannwhitneyu(a, b, method="asymptotic", use_continuity=False).pvalue
    assert found is not None
    assert found.p_value == pytest.approx(want, abs=1e-9)


def test_strata_compare_like_with_like() -> None:
    """Within strata the chance is the weighted mean of those of the strata."""
    rng = np.random.default_rng(1)
    n = 600
    layer = rng.integers(0, 4, n)
    values = layer * 10 + rng.normal(size=n)
    selected = rng.random(n) < 0.1 + 0.2 * layer
    found = superiority(values, selected, np.arange(n), layer)
    assert found is not None
    chances, weights = [], []
    for at in range(4):
        x, y = values[(layer == at) & selected], values[(layer == at) & ~selected]
        chances.append(auc(x, y))
        weights.append(len(x) * len(y) / (len(x) + len(y)))
    assert found.chance == pytest.approx(np.average(np.array(chances, float), weights=weights))
    whole = superiority(values, selected, np.arange(n))
    assert whole is not None
    assert whole.effect > 0.3  # as the strata differ
    assert abs(found.effect) < 0.15  # within them nothing does


def test_the_error_is_that_of_resampled_sessions() -> None:
    """Sessions of like rows: the error is that of a bootstrap of sessions, not of rows."""
    rng = np.random.default_rng(7)
    sessions, turns = 80, 8
    cluster = np.repeat(np.arange(sessions), turns)
    values = np.repeat(rng.normal(size=sessions), turns) + 0.2 * rng.normal(size=len(cluster))
    selected = np.repeat(rng.random(sessions) < 0.3, turns)
    found = superiority(values, selected, cluster)
    alone = superiority(values, selected, np.arange(len(values)))
    assert found is not None
    assert alone is not None
    draws = []
    for _ in range(400):
        pick = rng.integers(0, sessions, sessions)
        at = (pick[:, None] * turns + np.arange(turns)).ravel()
        some = auc(values[at][selected[at]], values[at][~selected[at]])
        assert some is not None
        draws.append(some)
    assert found.error == pytest.approx(np.std(draws), rel=0.2)
    assert found.error > 2 * alone.error
    assert found.design > 4


def test_intervals_cover_and_tests_are_level() -> None:
    """Of 400 logs where nothing differs, about 5 % have p below 0.05 and an interval without 0."""
    rng = np.random.default_rng(3)
    small = outside = 0
    for _ in range(400):
        cluster = np.repeat(np.arange(60), 5)
        values = np.repeat(rng.normal(size=60), 5) + rng.normal(size=300)
        selected = np.repeat(rng.random(60) < 0.3, 5) & (rng.random(300) < 0.8)
        found = superiority(values, selected, cluster)
        assert found is not None
        if found.p_value is None or found.interval is None:
            continue
        small += found.p_value < 0.05
        outside += not found.interval[0] <= 0 <= found.interval[1]
    assert 6 <= small <= 40
    assert 6 <= outside <= 40


@patient
@given(st.floats(-1e6, 1e6, allow_nan=False), st.floats(1e-6, 1e6, allow_nan=False), st.booleans())
def test_a_cut_is_round_and_between(low: float, more: float, whole: bool) -> None:
    high = low + more
    assume(high > low)
    if whole:
        low, high = math.floor(low), math.floor(low) + math.ceil(more)
    bound = _round_between(low, high, whole=whole)
    assert low < bound <= high
    if whole:
        assert bound == int(bound)


# --- whole logs ---------------------------------------------------------------------------------


@cache
def peak() -> Contrasted:
    return ttftdoctor.contrast(PEAK, select="ttft > p95")


def column(c: Contrasted, name: str) -> Any:
    return next(x for x in c.columns if x.column == name)


def test_the_slowest_of_the_peak_hour() -> None:
    c = peak()
    assert (c.rows, c.selected, c.rest, c.undecided, c.outside) == (3075, 154, 2921, 0, 0)
    assert c.findings[0].column == "backlog"
    assert c.held is not None
    assert c.held.columns == ("backlog", "input")
    turn = column(c, "turn")
    assert turn.effect > 0.3
    assert abs(turn.own) < 0.1
    assert turn.through == "input"
    assert column(c, "input").own > 0.4
    assert column(c, "ttft").role == column(c, "e2e").role == "selection"
    assert column(c, "output").role == "same"
    assert [v.value for v in column(c, "hour").values if v.found] == ["15:00"]
    assert c.cut is not None
    assert c.cut.column == "backlog"
    assert c.cut.share_selected > 0.9
    assert c.cut.share_rest < 0.2
    assert "replica" in c.lacking
    assert set(c.left_out) >= {"session", "request"}
    assert c.examples[0].ttft_s == pytest.approx(7.4591)


def test_the_cut_can_be_selected_again() -> None:
    cut = peak().cut
    assert cut is not None
    assert cut.bound is not None
    again = ttftdoctor.contrast(PEAK, select=f"{cut.column} {cut.op} {cut.bound:.0f}")
    assert again.selected == cut.n


def test_the_slowest_of_a_healthy_log_have_the_most_new_tokens() -> None:
    c = ttftdoctor.contrast(HEALTHY, select="ttft > p90")
    assert c.findings[0].column == "uncached"
    assert c.findings[0].interval is not None
    assert c.findings[0].interval[0] > 0.9
    assert column(c, "input").through == "uncached"


def test_rows_by_chance_are_different_in_nothing() -> None:
    """A selection by a column that has to do with nothing: said plainly, no finding made up."""
    c = ttftdoctor.contrast(PEAK, select="output in (" + ", ".join(map(str, range(150, 160))) + ")")
    assert [x for x in c.findings if x.column not in ("e2e", "decode")] == []
    assert "Nothing distinguishes the selected rows" in render(c)
    assert c.cut is None
    assert c.held is None


def planted(path: Path, *, replicas: int = 4, sick: int = 1, rows: int = 1200) -> str:
    """A log in which one replica is slow, and one tenant lives mostly there."""
    rng = np.random.default_rng(5)
    lines = []
    for at in range(rows):
        replica = int(rng.integers(0, replicas))
        slow = replica < sick
        tenant = "acme" if rng.random() < (0.7 if slow else 0.1) else None
        lines.append(
            json.dumps(
                {
                    "request_id": f"r{at}",
                    "timestamp": 1_767_261_600 + at * 10,
                    "replica": f"node-{replica}",
                    **({} if tenant is None else {"tenant": tenant}),
                    "input_tokens": int(rng.integers(500, 3000)),
                    "output_tokens": int(rng.integers(10, 300)),
                    "ttft_ms": float(rng.lognormal(math.log(900 if slow else 200), 0.3)),
                }
            )
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_sick_replica_is_found_and_the_tenant_goes_with_it(tmp_path: Path) -> None:
    c = ttftdoctor.contrast(planted(tmp_path / "log.jsonl"), select="ttft > 600ms")
    replica = column(c, "replica")
    (value,) = [v for v in replica.values if v.found]
    assert value.value == "node-0"
    assert value.share_selected > 0.9
    assert value.lift == pytest.approx(value.risk / (c.selected / (c.selected + c.rest)))
    assert value.risk_interval[0] < value.risk < value.risk_interval[1]
    tenant = column(c, "tenant")
    assert {v.value for v in tenant.values} == {"acme", None}  # null is a value of its own
    assert tenant.through == "replica"
    assert tenant.own < 0.147
    assert c.cut is not None
    assert (c.cut.column, c.cut.value) == ("replica", "node-0")
    assert column(c, "input").role == "same"


def test_many_replicas_are_told_apart_and_ids_are_left_out(tmp_path: Path) -> None:
    path = planted(tmp_path / "log.jsonl", replicas=100, sick=4, rows=4000)
    c = ttftdoctor.contrast(path, select="ttft > 600ms")
    found = [v.value for v in column(c, "replica").values if v.found]
    assert sorted(found) == ["node-0", "node-1", "node-2", "node-3"]
    assert len(column(c, "replica").values) <= 50
    path = planted(tmp_path / "many.jsonl", replicas=3000, sick=300, rows=4000)
    c = ttftdoctor.contrast(path, select="ttft > 600ms")
    assert "different values: ids" in c.left_out["replica"]


def test_against_narrows_the_others(tmp_path: Path) -> None:
    path = planted(tmp_path / "log.jsonl")
    c = ttftdoctor.contrast(
        path, select='replica == "node-0"', against='replica in ("node-1", "node-2")'
    )
    assert c.selected + c.rest + c.undecided + c.outside == c.rows
    assert c.outside > 200
    assert column(c, "replica").role == "selection"
    assert column(c, "ttft").role == "finding"
    assert column(c, "ttft").effect > 0.9
    assert "against replica in" in c.means


def test_rows_that_do_not_say_are_on_neither_side(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"input_tokens": 100 + i, "ttft_ms": 100 + i} for i in range(40)]
    rows += [{"input_tokens": 500} for _ in range(7)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    c = ttftdoctor.contrast(str(path), select="ttft > 120ms")
    assert (c.selected, c.rest, c.undecided) == (19, 21, 7)
    assert "7 do not say" in render(c)


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ("ttft > 1h", "no row is selected by: ttft > 1.0 h"),
        ("ttft > 7.4s", "only 1 row is selected"),
        ("ttft > 0s", "all rows are selected"),
        ("replica == 'x'", "this log does not say `replica`"),
    ],
)
def test_too_few_rows_and_unknown_columns_are_refused(select: str, words: str) -> None:
    result = CliRunner().invoke(app, ["contrast", PEAK, "--select", select])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_the_ranges_of_what_was_asked_for_are_told() -> None:
    result = CliRunner().invoke(app, ["contrast", PEAK, "--select", "ttft > 1h"])
    assert "ttft goes from" in result.stderr


# --- the document and the page ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "select"),
    [
        (PEAK, "ttft > p95"),
        (HEALTHY, "turn == 1"),
        (HEALTHY, "uncached > median and not hour == 12"),
        (str(ROOT / "sample_logs" / "eight_turns.jsonl"), "turn >= 6"),
        (str(ROOT / "sample_logs" / "mooncake.jsonl"), "input > median"),
        (str(ROOT / "sample_logs" / "llamacpp.log"), "ttft > median"),
        (str(ROOT / "sample_logs" / "otlp.jsonl"), "ttft > median"),
        (str(ROOT / "sample_logs" / "litellm.jsonl"), "ttft > median"),
    ],
)
def test_the_document_follows_its_schema(path: str, select: str) -> None:
    arguments = ["contrast", path, "--select", select, "--json", "--min-rows", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["rows"] == sum(i["rows_used"] for i in document["inputs"])
    sides = (document[name] for name in ("selected", "rest", "undecided", "outside"))
    assert sum(sides) == document["rows"]


def test_the_schema_forbids_what_it_does_not_name() -> None:
    document = peak().to_dict()
    document["more"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


@pytest.mark.parametrize("width", [80, 140])
def test_the_page_fits(width: int) -> None:
    for line in render(peak(), width).splitlines():
        assert len(line) <= width


def test_the_page_equals_its_golden(
    golden: Callable[[str | Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(PEAK).parent)  # lines are wrapped by the length of the path
    log = ttftdoctor.read(Path(PEAK).name)
    c = dataclasses.replace(ttftdoctor.contrast(log, select="ttft > p95"), version="1.2.3")
    golden("contrast/peak_hour.txt", render(c))


def test_hostile_text_is_shown_harmless(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    evil = "\x1b[31mred\u202e [bold]x[/bold]\n"
    rows = [
        {"model": evil if i % 2 else "fine", "ttft_ms": 900 + i if i % 2 else 100 + i,
         "request_id": evil + str(i)}
        for i in range(60)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    result = CliRunner().invoke(app, ["contrast", str(path), "--select", "ttft > 500ms"])
    assert result.exit_code == 0
    assert not CONTROL.search(result.stdout)
    assert "\u202e" not in result.stdout
    assert "\\x1b[31mred\\u202e [bold]x[/bold]\\n" in result.stdout
    expression = f'model == "{evil.strip()}"'
    result = CliRunner().invoke(app, ["contrast", str(path), "--select", expression])
    assert result.exit_code == 0
    assert not CONTROL.search(result.stdout)
    wrong = CliRunner().invoke(app, ["contrast", str(path), "--select", f"{evil} > 3"])
    assert wrong.exit_code == 2
    assert not CONTROL.search(wrong.stderr)


def test_the_columns_of_a_log_keep_to_their_rows() -> None:
    """After sorting, every column still tells of the same request."""
    log = ttftdoctor.read(PEAK)
    shuffled = ttftdoctor.read(PEAK)
    order = np.random.default_rng(0).permutation(log.requests.height)
    object.__setattr__(shuffled, "requests", shuffled.requests[order])
    for one in (log, shuffled):
        table = columns_of(one)
        ids = table.texts["request"].series.to_list()
        ttft = dict(zip(ids, table.numbers["ttft"].values.tolist(), strict=True))
        logged = dict(one.requests.select("request_id", "ttft_us").iter_rows())
        assert ttft == {name: value / 1e6 for name, value in logged.items()}
