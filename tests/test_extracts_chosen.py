"""Rows that are chosen of a log larger than memory: as they are where all rows are at hand."""

from __future__ import annotations

import itertools
import json
import pickle
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from reading import SAMPLES
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.choose import Only, clock_of, clocked, kept
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.engines import Asked, Taken
from ttftdoctor.engines.local import take
from ttftdoctor.errors import UsageError
from ttftdoctor.extracts import Budget
from ttftdoctor.extracts import spool as spools
from ttftdoctor.extracts.chosen import (
    OF_THE_LOAD,
    Learned,
    Report,
    Rule,
    chosen,
    learn,
    learned,
    nothing_before,
    reported,
    rule_of,
    valued,
    values_of,
)
from ttftdoctor.extracts.facts import nothing_carried
from ttftdoctor.intake import Log, read_log
from ttftdoctor.mapping.manner import reading_as
from ttftdoctor.measure.rows import prepare
from ttftdoctor.remedies import Settings
from ttftdoctor.study import study
from ttftdoctor.table import LINE

PEAK = SAMPLES / "peak_hour.jsonl"
DAY = datetime(2026, 8, 1, tzinfo=UTC)
ROOMY = 8 * 2**30


def stamp(second: float) -> str:
    return (DAY + timedelta(seconds=second)).isoformat()


def row(n: int, draw: random.Random, **kind: Any) -> dict[str, Any]:
    """A request of a log that has everything that real ones have."""
    second = draw.uniform(0, kind.get("span", 200_000))
    made: dict[str, Any] = {
        "request_id": f"r{n}", "start_time": stamp(second), "ttft_ms": draw.randint(1, 900),
        "e2e_ms": 1000 + n, "prompt_tokens": draw.randint(1, 5000),
        "cached_tokens": 0, "output_tokens": draw.choice([1, 10, 300]),
        "model": draw.choice("xy"), "replica": draw.choice("ab"), "session_id": f"s{n % 40}",
        "status": draw.choices(["ok", "error", "rate_limited"], [8, 1, 1])[0],
    }  # fmt: skip
    for name in ("start_time", "session_id", "ttft_ms", "prompt_tokens", "replica", "status"):
        if draw.random() < kind.get("missing", 0.1):
            made[name] = None
    return made


#: Logs by what is particular about them.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "growing": {"growing": True},
    "side_calls": {"growing": True, "calls": True, "without": ["cached_tokens"]},
    "no_cache": {"without": ["cached_tokens"]},
    "few_cached": {"part": ("cached_tokens", 0.3)},
    "turns": {"turns": 0},
    "turns_from_one_few": {"turns": 1, "part": ("turn", 0.4)},
    "few_sessions": {"part": ("session_id", 0.3)},
    "requests_for_sessions": {"single": True},
    "no_times": {"without": ["start_time"]},
    "hardly_times": {"part": ("start_time", 0.4)},
    "one_day": {"span": 20_000},
    "no_status": {"without": ["status"]},
    "never_set": {"never": True},
    "no_input": {"without": ["prompt_tokens"]},
    "many_replicas": {"fleet": True},
}  # fmt: skip


def rows_of(kind: dict[str, Any], many: int = 500) -> list[dict[str, Any]]:
    draw = random.Random(5)
    rows = [row(n, draw, **kind) for n in range(many)]
    for n, one in enumerate(rows):
        if kind.get("growing"):
            # A session goes on with all that was said.
            one["start_time"] = stamp(400 * n)
            one["prompt_tokens"] = 200 * (n // 40 + 1)
            one["cached_tokens"] = draw.choice([0, 100, None])
            if kind.get("calls"):  # every other request is a short one, and no turn
                turn = 2000 + 300 * (n // 40)
                one["prompt_tokens"] = draw.randint(50, 900) if n // 40 % 2 else turn
        else:
            one["cached_tokens"] = draw.randint(0, one["prompt_tokens"] or 0)
        if "turns" in kind:
            one["turn"] = n // 40 + kind["turns"]
        if kind.get("single"):
            one["session_id"] = f"s{n}"
        if kind.get("never") and n % 9 == 0:
            one["start_time"] = "1970-01-01T00:00:00Z"
        if kind.get("fleet"):
            one["replica"] = f"pod-{n}"
        name, share = kind.get("part", (None, 1))
        if name is not None and draw.random() > share:
            one[name] = None
        for name in kind.get("without", ()):
            del one[name]
    return rows


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Two files of each kind, one of them with torn lines."""
    folder = tmp_path_factory.mktemp("logs")
    found = {}
    for name, kind in KINDS.items():
        lines = [json.dumps(one) + "\n" for one in rows_of(kind)]
        paths = folder / f"{name}-a.jsonl", folder / f"{name}-b.jsonl"
        paths[0].write_text("".join(lines[:300]) + '{"torn": \n[1]\n')
        paths[1].write_text("".join(lines[300:]))
        found[name] = (str(paths[0]), str(paths[1]))
    return found


WINDOWS = [
    (None, None), (stamp(50_000), None), (None, stamp(120_000)), (stamp(4000), stamp(90_000)),
    ("20h", "2h"), (stamp(10**6), None), ("09:00", None),
]  # fmt: skip
WHERES = [
    None, 'model == "x"', "input > 2500", "not (ttft > median) or turn == 1", "turn >= 3",
    "cached_share < 30% and output > 5", "uncached > 1000 or uncached is null", "gap > 1h",
    "moved", "moved == 'no' and ttft < p90", "repeated > p50", "recomputed > 0",
    "hour in (3, 4, 5, 20) or weekday == 'Saturday'", 'status != "ok"', 'status == "ok"',
    'start < "2026-08-01 12:00"', "start > 3h", "tpot > 1ms", "session is null",
    "file == 'nowhere' or replica is not null", "p10 < input < p90.5", "cached >= 31",
    "request in ('r3', 'r77', 'r400')", "ttft > e2e", "vantage is null", "queue > 1s",
    "nothing == 1", "ttft >", "turn", "hour == '04:00'", "replica == 'a' and not moved",
]  # fmt: skip
#: What cannot be told where conversations must be found among all rows.
LINKED = ("turn", "gap", "moved", "repeated", "recomputed")


def in_pieces(paths: tuple[str, ...], only: Only, most: int) -> Log | UsageError:
    """The log as it is chosen from on disk, though all that is left may be held."""
    try:
        taken = take(Asked(paths, budget=Budget(ROOMY, most_rows=most)), only)
    except UsageError as error:
        return error
    assert taken.whole is None
    return taken.log


def at_once(log: Log, only: Only) -> Log | UsageError:
    try:
        return kept(log, only)
    except UsageError as error:
        return error


def assert_same(found: Log | UsageError, wanted: Log | UsageError, named: bool = True) -> None:
    if isinstance(wanted, UsageError) or isinstance(found, UsageError):
        assert isinstance(found, UsageError)
        assert isinstance(wanted, UsageError)
        if wanted.what.startswith("--where"):
            # Of several things that are wrong with an expression either may be told.
            assert found.what.startswith("--where")
        else:
            assert (found.what, found.why) == (wanted.what, wanted.why)
        return
    assert found.inputs == wanted.inputs
    left = [] if named else ["session_id", "turn"]
    for one, other in ((found.requests, wanted.requests), (found.failed, wanted.failed)):
        assert_frame_equal(one.drop(left), other.sort("source", LINE).drop(left))
    assert found.warnings == wanted.warnings
    if named:
        assert found.notes == wanted.notes
        assert found.fields == wanted.fields


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_is_that_of_all_rows_at_hand(
    kind: str, logs: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, turns, accounts, notes and errors, for windows and expressions.

    Though sessions come in several pieces.
    """
    monkeypatch.setattr(spools, "BUCKETS", 8)
    log = read_log(list(logs[kind]))
    most = log.requests.height - 1
    ids = ("requests_for_sessions", "few_sessions")
    draw = random.Random(kind)
    pairs = list(itertools.product(WINDOWS, WHERES))
    for (since, until), where in draw.sample(pairs, 3):
        only = Only(since, until, where)
        if only.every_row:
            continue
        found, wanted = in_pieces(logs[kind], only, most), at_once(log, only)
        refused = isinstance(found, UsageError) and "larger than the memory" in str(found)
        if refused:
            assert where is not None
            assert kind in ids
            assert any(name in where for name in LINKED)
            continue
        try:
            assert_same(found, wanted, named=kind not in ids)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {only}: {error}") from error


# ------------------------------------------------------------------- parts


def learned_of(log: Log) -> tuple[pl.DataFrame, Rule]:
    """All rows of a log, and the rule of an expression that asks for everything."""
    rows = pl.concat([log.requests, log.failed]).drop("prefix_blocks")
    clock = clock_of(rows)
    only = Only(
        stamp(30_000), stamp(150_000), "turn > 1 or repeated > p60 or moved or ttft < median"
    )
    found, _ = learn(rows, nothing_carried(), clock)
    rule = rule_of(found, clock, only, log.inputs, content=False)
    values, _ = values_of(rows, nothing_carried(), rule)
    return rows, valued(rule, [values])


@pytest.mark.parametrize("kind", ["plain", "growing", "side_calls", "no_cache", "turns"])
def test_how_repeated_tokens_are_known_is_that_of_all_rows_at_hand(
    kind: str, logs: dict[str, tuple[str, str]]
) -> None:
    log = read_log(list(logs[kind]))
    _, rule = learned_of(log)
    assert rule.sessions
    assert rule.reuse == prepare(log.requests).reuse_grade
    assert kind != "side_calls" or rule.reuse == "inferred"


def as_data(report: Report) -> tuple[Any, ...]:
    account = report.account
    return (
        sorted(map(str, account.moved.rows())), sorted(map(str, account.aside.rows())),
        account.asked, dict(report.turns), report.identified, report.went_on,
        sorted(map(str, report.servers.rows())), report.crowded, report.present,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "turns", "growing", "side_calls", "never_set"])
@settings(max_examples=5, deadline=None)
@given(hands=st.lists(st.integers(0, 3), min_size=1, max_size=20),
       cuts=st.lists(st.integers(0, 200_000), max_size=3))  # fmt: skip
def test_parts_add_up_to_the_whole(
    kind: str, logs: dict[str, tuple[str, str]], hands: list[int], cuts: list[int]
) -> None:
    """For any dealing of whole sessions, each part in any number of pieces by time."""
    log = read_log(list(logs[kind]))
    rows, rule = learned_of(log)
    rule = pickle.loads(pickle.dumps(rule))
    whole, _ = chosen(rows, nothing_before(), rule)
    lot = rows.select(pl.coalesce(pl.col("session_id").hash(), pl.col(LINE).hash()) % len(hands))
    dealt = rows.with_columns(pl.Series("hand", [hands[at] for at in lot.to_series()]))
    edges = [int(DAY.timestamp() * 1e6) + 10**6 * cut for cut in sorted(set(cuts))]
    start = pl.col("start")
    if kind == "never_set":  # such rows are out of the order of time
        edges = []
    parts, knowledge, clocks = [], [], []
    for part in dealt.partition_by("hand"):
        carry, last = nothing_before(), nothing_carried()
        for low, high in zip([None, *edges], [*edges, None], strict=True):
            inside = (start >= low) if low else pl.lit(True)
            inside = inside & ((start < high) if high else pl.lit(True))
            inside = inside.fill_null(False) | (start.is_null() & (high is None))
            piece = part.drop("hand").filter(inside)
            one, carry = chosen(piece, carry, rule)
            found, last = learn(piece, last, rule.clock)
            parts.append(one)
            knowledge.append(found)
            clocks.append(clock_of(piece))
    assert clocked(clocks) == rule.clock
    assert as_data(reported(one.report for one in parts)) == as_data(whole.report)
    for name in ("requests", "failed"):
        mine = pl.concat([getattr(one, name) for one in parts]).sort("source", LINE)
        assert_frame_equal(mine, getattr(whole, name).sort("source", LINE))
    again = rule_of(
        learned(knowledge), rule.clock, Only(where=rule.where), log.inputs, content=False
    )
    assert (again.used, again.failed, again.reuse, again.shift, again.sessions) == (
        rule.used, rule.failed, rule.reuse, rule.shift, rule.sessions
    )  # fmt: skip
    assert isinstance(learned([]), Learned)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 50), max_size=20), min_size=1, max_size=4),
       st.lists(st.sampled_from([0.0, 1.0, 5.0, 50.0, 90.0, 99.9, 99.99, 100.0]),
                min_size=1, max_size=4, unique=True))  # fmt: skip
def test_percentiles_are_those_of_one_array(parts: list[list[int]], asked: list[float]) -> None:
    """And the rows that stand for all of them have the very same."""
    from ttftdoctor.extracts.chosen import _percentile, _standing_in

    every = [value / 7 for part in parts for value in part]
    counted = [
        pl.Series("value", [v / 7 for v in part], dtype=pl.Float64).value_counts(name="n")
        for part in parts
    ]
    both = pl.concat(counted).group_by("value").agg(pl.col("n").sum())
    shares = sorted(percentile / 100 for percentile in asked)
    found = [_percentile(both, share) for share in shares]
    if not every:
        assert np.isnan(found).all()
        return
    assert found == [np.quantile(every, share) for share in shares]
    stand_in = _standing_in(tuple(zip(shares, found, strict=True)))
    assert [np.quantile(stand_in, share) for share in shares] == found


# ------------------------------------------------------------------- the whole way


def diagnosed(paths: tuple[str, ...], only: Only, most: int) -> tuple[Diagnosis, Taken]:
    taken = take(Asked(paths, budget=Budget(ROOMY, most_rows=most)), only)
    made, _ = study(taken.log, "log", Settings(), draw=False, whole=taken.whole)
    return made, taken


@pytest.mark.parametrize(
    "only", [Only("11:00", "14:00"), Only(where="turn > 1"), Only("12:00", None, "input > median")]
)
def test_what_is_left_may_be_larger_than_memory_as_well(only: Only) -> None:
    """Counts, tables and tokens are those of all rows that are wanted."""
    whole = ttftdoctor.diagnose(kept(read_log([str(PEAK)]), only))
    made, taken = diagnosed((str(PEAK),), only, 400)
    assert taken.whole is not None
    assert 200 < taken.log.requests.height <= 400
    assert made.inputs == whole.inputs
    assert set(whole.evidence.notes[-2:]) & set(made.evidence.notes)
    one, other = made.population, whole.population
    assert (one.requests, one.sessions, one.turns_max, one.start, one.end, one.with_ttft) == (
        other.requests, other.sessions, other.turns_max, other.start, other.end, other.with_ttft
    )  # fmt: skip
    assert one.ttft_mean_s == pytest.approx(other.ttft_mean_s, rel=1e-9)
    mine, theirs = made.repeated_prefix, whole.repeated_prefix
    assert (mine.input_tokens, mine.repeated_tokens, mine.bounds, mine.grade) == (
        theirs.input_tokens, theirs.repeated_tokens, theirs.bounds, theirs.grade
    )  # fmt: skip
    first, last = taken.log.requests["start"].min(), taken.log.requests["start"].max()
    left = kept(read_log([str(PEAK)]), only).requests["start"]
    assert left.min() <= first
    assert last <= left.max()


def test_what_fits_is_looked_at_as_a_whole() -> None:
    only = Only("13:00", None, "turn > 1")
    made, taken = diagnosed((str(PEAK),), only, 1600)
    assert taken.whole is None
    wanted, _ = study(kept(read_log([str(PEAK)]), only), "log", Settings(), draw=False)
    assert made.to_dict() == wanted.to_dict()


def test_files_are_gone_and_pieces_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spools, "FILE_ROWS", 500)
    diagnosed((str(PEAK),), Only("11:00"), 300)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", OF_THE_LOAD)
def test_columns_of_the_load_are_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be chosen by `{name}`"):
        diagnosed((str(PEAK),), Only(where=f"turn > 1 and {name} is not null"), 400)


def test_sessions_that_would_have_to_be_found_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        for line in PEAK.read_text().splitlines():
            one = json.loads(line)
            one = {k: v for k, v in one.items() if k not in ("session_id", "turn")}
            file.write(json.dumps(one) + "\n")
    for name in LINKED:
        with pytest.raises(UsageError, match=f"cannot be chosen by `{name}`"):
            diagnosed((str(path),), Only(where=f"{name} is not null"), 400)
    made, _ = diagnosed((str(path),), Only("12:00", None, "input > 4000"), 400)
    assert any("looked for among the rows that were kept" in note for note in made.evidence.notes)


def test_the_zone_of_a_run_is_that_of_every_piece() -> None:
    only = Only("14:00", None, 'hour == 15 or start > "2026-08-01 16:30"')
    log = read_log([str(PEAK)])
    with reading_as(timezone="Asia/Shanghai"):
        assert_same(in_pieces((str(PEAK),), only, log.requests.height - 1), at_once(log, only))


def test_the_command_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttftdoctor.engines import local

    monkeypatch.setattr(local, "budget_of", lambda _: Budget(ROOMY, most_rows=500))
    out = tmp_path / "out.json"
    done = CliRunner().invoke(
        app,
        [
            "diagnose",
            str(PEAK),
            "--since",
            "12:00",
            "--where",
            "turn > 1",
            "--json",
            str(out),
            "-q",
        ],
    )
    assert done.exit_code == 0, done.output
    made = json.loads(out.read_text())
    assert made["inputs"][0]["rows_rejected"].keys() == {"before_since", "not_where"}
    assert made["extract"]["requests"] <= 500
    refused = CliRunner().invoke(app, ["diagnose", str(PEAK), "--where", "waiting > 2"])
    assert refused.exit_code == 2
    assert "waiting" in refused.output
