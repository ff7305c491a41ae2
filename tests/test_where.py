"""Which rows of a log are wanted: windows of time, expressions, and an account of the rest."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import SAMPLES
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import simulator
from ttftdoctor.choose import REASONS, Only, kept
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.errors import UsageError
from ttftdoctor.experiment import arguments, filled
from ttftdoctor.intake import Log, read_log
from ttftdoctor.measure.rows import prepare
from ttftdoctor.readers import Options
from ttftdoctor.run import read_by

PEAK = str(SAMPLES / "peak_hour.jsonl")
DAY = datetime(2026, 8, 1, tzinfo=UTC)
#: What a log may turn away by itself, and what the user may.
ASKED = set(REASONS[1:])


def _stamp(second: float) -> str:
    return (DAY + timedelta(seconds=second)).isoformat()


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _log(path: Path, rows: list[dict[str, Any]]) -> Log:
    path.write_text(_lines(rows))
    return read_log([str(path)])


def _row(n: int, second: float | None, **more: Any) -> dict[str, Any]:
    return {
        "request_id": f"r{n}", "start_time": None if second is None else _stamp(second),
        "ttft_ms": 100 + n, "e2e_ms": 1000 + n, "prompt_tokens": 100 + n, "output_tokens": 10,
        "model": "x" if n % 2 else "y", **more,
    }  # fmt: skip


def _accounted(before: Log, after: Log) -> None:
    """Every row is used, was turned away before, or was left out for one of our reasons."""
    for old, new in zip(before.inputs, after.inputs, strict=True):
        assert new.rows_read == old.rows_read
        assert new.rows_read == new.rows_used + sum(new.rows_rejected.values())
        assert all(n > 0 for n in new.rows_rejected.values())
        assert set(new.first_rejects) <= set(old.first_rejects)
        assert {reason for _, reason in new.first_rejects} <= new.rows_rejected.keys()
        assert sum(new.ttft_set_aside.values()) <= new.rows_used
    assert after.requests.height == sum(one.rows_used for one in after.inputs)
    failed = after.failed["reject"].value_counts()
    for reason, n in failed.iter_rows():
        assert n == sum(one.rows_rejected.get(reason, 0) for one in after.inputs)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two files: rows in no order, some that failed, have no start, are torn or are no requests."""
    folder = tmp_path_factory.mktemp("logs")
    random.seed(7)
    rows = []
    for n in range(400):
        row = _row(n, random.uniform(0, 86_400) if n % 11 else None, session_id=f"s{n % 60}")
        row["status"] = "error" if n % 13 == 0 else "rate_limited" if n % 17 == 0 else "ok"
        if n % 19 == 0:
            row["ttft_ms"] = None
        rows.append(row)
    (folder / "a.jsonl").write_text(_lines(rows[:250]) + '{"torn": \n[1]\n')
    (folder / "b.jsonl").write_text(_lines(rows[250:]))
    return read_log([str(folder / "a.jsonl"), str(folder / "b.jsonl")])


def test_the_log_of_these_tests_has_all_kinds_of_rows(mixed: Log) -> None:
    assert mixed.failed.height > 20
    assert mixed.requests["start"].null_count() > 20
    assert sum(n for one in mixed.inputs for n in one.rows_rejected.values()) > 30


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.none(), st.floats(-1000, 90_000)),
    st.one_of(st.none(), st.floats(-1000, 90_000)),
    st.sampled_from([None, 'model == "x"', "input > 250", "not (ttft > median) or turn == 1"]),
)
def test_any_window_is_kept_exactly(
    mixed: Log, since: float | None, until: float | None, where: str | None
) -> None:
    only = Only(
        None if since is None else _stamp(since), None if until is None else _stamp(until), where
    )
    timed = since is not None or until is not None
    low = -(2**62) if since is None else _us(since)
    high = 2**62 if until is None else _us(until)
    start = pl.col("start")
    inside = start.is_between(low, high, closed="left") if timed else pl.lit(True)
    left = mixed.requests.filter(inside)
    try:
        found = kept(mixed, only)
    except UsageError:
        found = None
    torn = since is not None and until is not None and low >= high
    if found is None or torn or left.height == 0:
        assert found is None
        assert torn or left.height == 0 or where is not None
        return
    _accounted(mixed, found)
    reasons = {name for one in found.inputs for name in one.rows_rejected}
    assert reasons - ASKED <= {name for one in mixed.inputs for name in one.rows_rejected}
    keys = ["source", "line"]
    if where is None:
        assert found.requests.select(keys).equals(left.select(keys))
        assert found.failed.select(keys).equals(mixed.failed.filter(inside).select(keys))
    else:
        assert found.requests.join(left, on=keys, how="anti").height == 0
    if where == 'model == "x"':
        assert (found.requests["model"] == "x").all()
        assert (found.failed["model"] == "x").all()
        assert found.requests.height == left.filter(pl.col("model") == "x").height
    if where == "input > 250":
        assert found.requests.height == left.filter(pl.col("input_tokens") > 250).height
    more = found.warnings[len(mixed.warnings) :]
    assert found.warnings[: len(mixed.warnings)] == mixed.warnings
    assert all(text.startswith("rows that --where left out were served beside") for text in more)
    if where is None:
        assert not more


def _us(second: float) -> int:
    return (DAY + timedelta(seconds=second) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


def test_each_row_has_one_reason(mixed: Log) -> None:
    """The parts before, in and after a window are the whole; rows without a start are in none."""
    windows = (
        (None, _stamp(20_000)), (_stamp(20_000), _stamp(50_000)), (_stamp(50_000), None),
    )  # fmt: skip
    found = [kept(mixed, Only(*window)) for window in windows]
    unplaced = mixed.requests["start"].null_count()
    assert sum(one.requests.height for one in found) + unplaced == mixed.requests.height
    reasons = [one.rows_rejected.get("without_start", 0) for one in found[1].inputs]
    assert sum(reasons) == unplaced + mixed.failed["start"].null_count()


def test_what_cannot_be_told_has_a_reason_of_its_own(tmp_path: Path) -> None:
    rows = [_row(n, n, cached_tokens=None if n % 3 == 0 else n) for n in range(90)]
    log = _log(tmp_path / "log.jsonl", rows)
    (one,) = kept(log, Only(where="cached >= 31")).inputs
    assert one.rows_rejected == {"not_where": 20, "where_unknown": 30}
    assert one.rows_used == 40


def test_turns_go_on_over_the_edge_of_a_window(tmp_path: Path) -> None:
    """Ten turns an hour apart; a window of the last three hours begins with turn 8."""
    rows = [
        _row(n, 3600 * turn + 60 * s, session_id=f"s{s}", prompt_tokens=1000 * (turn + 1))
        for s in range(8)
        for n, turn in enumerate(range(10), start=10 * s)
    ]
    log = _log(tmp_path / "log.jsonl", rows)
    whole = prepare(log.requests)
    assert whole.session_grade == "logged"
    found = kept(log, Only(since=_stamp(7 * 3600)))
    rows_kept = prepare(found.requests)
    assert sorted(set(rows_kept.turn)) == [8, 9, 10]
    assert rows_kept.session_grade == "logged"
    assert found.notes[-1].startswith("24 of the 24 rows belong to conversations that began before")
    # Each session has but one row here: without turns its ids would look like ids of requests.
    last = prepare(kept(log, Only(since=_stamp(9 * 3600))).requests)
    assert set(last.turn) == {10.0}
    assert last.session_grade == "logged"


@pytest.mark.parametrize(("name", "cut"), [("healthy", True), ("eight_turns", False)])
def test_sessions_that_were_linked_stay_linked(name: str, cut: bool) -> None:
    """No session is named: who goes on with whom is found in the whole log."""
    log = ttftdoctor.read(str(SAMPLES / f"{name}.jsonl"))
    bare = replace(
        log,
        requests=log.requests.with_columns(
            pl.lit(None, pl.String).alias("session_id"), pl.lit(None, pl.UInt32).alias("turn")
        ),
        fields={k: v for k, v in log.fields.items() if k not in ("session_id", "turn")},
    )
    whole = prepare(bare.requests)
    assert whole.session_grade == "linked"
    middle = float(bare.requests["start"].drop_nulls().median()) / 1e6
    found = kept(bare, Only(since=datetime.fromtimestamp(middle, UTC).isoformat()))
    assert found.linked
    assert found.fields["session_id"].kind == "inferred"
    assert ("belong to conversations that began before" in found.notes[-1]) is cut
    assert ttftdoctor.diagnose(found).evidence.session == "linked"
    place, part = whole.place, prepare(found.requests)
    assert place is not None
    assert part.place is not None
    turns = np.full(whole.n, np.nan)
    turns[place] = whole.turn
    want = pl.DataFrame({"line": bare.requests["line"], "turn": turns})
    got = pl.DataFrame({"line": found.requests["line"].gather(part.place), "turn": part.turn})
    both = got.join(want, on="line", suffix="_whole")
    assert both.height == found.requests.height
    np.testing.assert_array_equal(both["turn"].to_numpy(), both["turn_whole"].to_numpy())


def test_turns_that_are_counted_from_zero(tmp_path: Path) -> None:
    """In a window without a turn 0 nothing says any more that they are."""
    rows = [_row(n, n, turn=n % 10) for n in range(200)]
    log = _log(tmp_path / "log.jsonl", rows)
    whole = prepare(log.requests)
    assert (whole.session_grade, set(whole.turn)) == ("none", set(range(1, 11)))
    part = prepare(kept(log, Only(since=_stamp(105), until=_stamp(110))).requests)
    assert set(part.turn) == {6, 7, 8, 9, 10}


def test_sessions_that_can_hardly_be_linked_are_told(tmp_path: Path) -> None:
    run = simulator.serve(simulator.load("repeated_prefix_no_reuse"), 0, None)
    simulator.write_log(run, str(tmp_path / "log.jsonl"), "no_sessions")
    log = ttftdoctor.read(str(tmp_path / "log.jsonl"))
    assert prepare(log.requests).session_grade == "linked"
    found = kept(log, Only(since="1h"))
    assert not found.linked
    assert any(note.startswith("most rows cannot be linked") for note in found.notes)


def test_a_clock_without_dates(tmp_path: Path) -> None:
    rows = [{**_row(n, 0), "start_time": None, "start_s": 10.0 * n} for n in range(100)]
    for row in rows:
        del row["start_time"]
    log = _log(tmp_path / "log.jsonl", rows)
    assert log.requests["start"].max() == 990_000_000
    assert kept(log, Only(since="5min")).requests.height == 31
    assert kept(log, Only(until="5min")).requests.height == 69
    for text in ("2026-08-01", "14:00"):
        with pytest.raises(UsageError, match="relative"):
            kept(log, Only(since=text))
    (tmp_path / "two.jsonl").write_text((tmp_path / "log.jsonl").read_text())
    two = read_log([str(tmp_path / "log.jsonl"), str(tmp_path / "two.jsonl")])
    with pytest.raises(UsageError, match="each begin somewhere"):
        kept(two, Only(since="5min"))


@pytest.mark.parametrize(
    ("since", "height"),
    [
        ("2026-08-01", 100), ("2026-08-02", 0), ("2026-08-01T12:00:00Z", 50),
        ("2026-08-01 12:00", 50), ("2026-08-01T14:00:00+02:00", 50), ("12:00", 50),
        ("12:00:00.5", 49), ("0s", 1), ("1h", 5), ("1.5 h", 7), ("1h 30min", 7), ("1d", 100),
    ],
)  # fmt: skip
def test_moments(tmp_path: Path, since: str, height: int) -> None:
    """A hundred rows, one each 14.4 minutes, from midnight on."""
    log = _log(tmp_path / "log.jsonl", [_row(n, 864 * n) for n in range(100)])
    if height:
        assert kept(log, Only(since=since)).requests.height == height
    else:
        with pytest.raises(UsageError, match="no row is left") as caught:
            kept(log, Only(since=since))
        assert "2026-08-01 00:00:00Z to 2026-08-01 23:45:36Z" in str(caught.value.available)
    if 0 < height < 100:
        assert kept(log, Only(until=since)).requests.height == 100 - height


@pytest.mark.parametrize(
    "only",
    [
        Only(since="yesterday"), Only(since=""), Only(since="5"), Only(until="25:00"),
        Only(since="2026-13-01"), Only(since="3 parsecs"), Only(since="12:00", until="11:00"),
        Only(since="0001-01-01T00:00:00+14:00", until="9999-12-31T23:59:59-14:00", where="x"),
        Only(where="ttft >"), Only(where="nothing == 1"), Only(where="ttft > 5"),
        Only(since="9" * 400 + "h", where="ttft"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_told(tmp_path: Path, only: Only) -> None:
    log = _log(tmp_path / "log.jsonl", [_row(n, 864 * n) for n in range(100)])
    with pytest.raises(UsageError):
        kept(log, only)


def test_the_language_is_that_of_contrast(tmp_path: Path) -> None:
    """What ``contrast --select`` selects is what ``--where`` keeps."""
    log = ttftdoctor.read(PEAK)
    for expression in (
        "ttft > p95",
        "turn >= 3 and backlog > 1000",
        "hour in (10, 15)",
        "gap > 60s",
    ):
        found = ttftdoctor.contrast(log, select=expression)
        assert kept(log, Only(where=expression)).requests.height == found.selected


def test_load_that_is_not_seen_is_told(tmp_path: Path) -> None:
    """Two models on one server queue together; on servers of their own they do not."""
    for replicas, unseen in ((["a"], True), (["a", "b"], False)):
        rows = [_row(n, n, replica=replicas[n % len(replicas)]) for n in range(90)]
        log = _log(tmp_path / "log.jsonl", rows)
        found = kept(log, Only(where='model == "x"'))
        assert any("is not seen" in text for text in found.warnings) is unseen
        assert kept(log, Only(since=_stamp(50))).warnings == log.warnings


def test_percentiles_are_of_the_window() -> None:
    log = ttftdoctor.read(PEAK)
    window = kept(log, Only(since="13:00"))
    both = kept(log, Only(since="13:00", where="ttft >= median"))
    ttft = window.requests["ttft_us"].drop_nulls()
    assert both.requests.height == (ttft >= ttft.median()).sum()


def test_texts_of_prompts_go_with_their_rows() -> None:
    path = str(SAMPLES / "vllm-log.log")
    whole = read_by(Options(text=True), path)
    part = read_by(Options(text=True), path, only=Only(where="input > median"))
    assert whole.prompts is not None
    assert part.prompts is not None
    assert 0 < part.prompts.height < whole.prompts.height
    assert set(part.prompts["line"]) <= set(part.requests["line"])


COMMANDS = {
    "diagnose": [], "inspect": [], "contrast": ["--select", "ttft > p90"], "prefix": [],
    "baseline": ["-o", "OUT.json"], "check": ["--baseline", PEAK], "convert": ["-o", "OUT.csv"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_them(command: str, tmp_path: Path) -> None:
    more = [word.replace("OUT", str(tmp_path / "out")) for word in COMMANDS[command]]
    done = CliRunner().invoke(
        app, [command, PEAK, "--since", "14:00", "--where", "turn > 1", *more, "--no-color"]
        if command != "convert" else
        [command, PEAK, "--since", "14:00", "--where", "turn > 1", *more],
    )  # fmt: skip
    assert done.exit_code in (0, 1), done.output
    said = done.output.replace("\n", " ")
    if command == "baseline":
        kept_rows = json.loads((tmp_path / "out.json").read_text())
        assert "before_since" in json.dumps(kept_rows)
    else:
        assert "before_since" in said, said[-3000:]
        assert "not_where" in said
    assert "rows were rejected" not in said


def test_compare_and_export_take_them(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compare", PEAK, PEAK, "--since", "2h", "--no-color"])
    assert done.exit_code == 0, done.output
    assert "before_since" in done.output.replace("\n", "")
    target = tmp_path / "trace.jsonl"
    mooncake = str(SAMPLES / "mooncake.jsonl")
    done = CliRunner().invoke(
        app, ["export", mooncake, "--where", "input > 3000", "-o", str(target)]
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert lines
    assert min(line["input_length"] for line in lines) > 3000


@pytest.mark.parametrize("stamp", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_stamp_that_was_never_set_leaves_the_clock_its_dates(tmp_path: Path, stamp: str) -> None:
    rows = [_row(n, float(60 * n)) for n in range(40)]
    rows[5]["start_time"] = stamp
    log = _log(tmp_path / "log.jsonl", rows)
    after = kept(log, Only(since="2026-08-01 00:20", where=f'start < "{_stamp(1800)[:19]}"'))
    _accounted(log, after)
    assert after.requests.height == 10
    assert after.inputs[0].rows_rejected["without_start"] == 1
    assert kept(log, Only(since="10min", where="hour == 0")).requests.height == 11


def test_turns_do_not_begin_anew_where_few_rows_name_their_session(tmp_path: Path) -> None:
    rows = [_row(n, float(10 * n)) for n in range(60)]
    for n in range(0, 60, 3):
        rows[n]["session_id"] = f"s{n % 4}"
    log = _log(tmp_path / "log.jsonl", rows)
    every = kept(log, Only(where="session is not null"))
    late = kept(log, Only(since=_stamp(300), where="session is not null"))
    assert sorted(every.requests["turn"]) == sorted([1, 2, 3, 4, 5] * 4)
    assert late.requests["turn"].min() == 3
    assert prepare(late.requests).turn.tolist() == late.requests["turn"].to_list()
    assert late.fields["turn"].why == "place in the session, counted on the whole log"


def test_turns_are_not_made_up_where_what_is_kept_names_few_sessions(tmp_path: Path) -> None:
    rows = [_row(n, float(10 * n)) for n in range(60)]
    for n in range(60):
        if n % 10 > 3:
            rows[n]["session_id"] = f"s{n % 2}"
    log = _log(tmp_path / "log.jsonl", rows)
    part = kept(log, Only(where="session is null or request == 'r59'"))
    assert not np.isfinite(prepare(part.requests).turn).any()
    assert any("their turns are not known" in note for note in part.notes)


@pytest.mark.parametrize("base", [0, 1])
def test_turns_that_failed_rows_say_themselves(tmp_path: Path, base: int) -> None:
    rows = [
        _row(n, float(n), session_id=f"s{n // 5}", turn=n % 5 + base,
             status="error" if n % 3 == 0 else "ok")
        for n in range(60)
    ]  # fmt: skip
    log = _log(tmp_path / "log.jsonl", rows)
    assert log.failed.height == 20
    after = kept(log, Only(where="turn > 2"))
    _accounted(log, after)
    wanted = sum(n % 5 + 1 > 2 for n in range(0, 60, 3))
    assert after.failed.height == wanted
    assert "where_unknown" not in after.inputs[0].rows_rejected


def test_only_failed_rows_match(tmp_path: Path) -> None:
    rows = [_row(n, float(n), status="error" if n % 3 == 0 else "ok") for n in range(60)]
    log = _log(tmp_path / "log.jsonl", rows)
    with pytest.raises(UsageError, match="only rows that failed are left") as caught:
        kept(log, Only(where='status == "error"'))
    assert caught.value.why is not None
    assert caught.value.why.startswith("20 of them")


def test_a_file_by_its_last_name(tmp_path: Path) -> None:
    for name in ("one.jsonl", "other.jsonl"):
        (tmp_path / name).write_text(_lines([_row(n, float(n)) for n in range(20)]))
    log = read_log([str(tmp_path / "one.jsonl"), str(tmp_path / "other.jsonl")])
    for text in ("one.jsonl", str(tmp_path / "one.jsonl")):
        assert kept(log, Only(where=f'file == "{text}"')).requests.height == 20
    assert kept(log, Only(where='file in ("one.jsonl", "other.jsonl")')).requests.height == 40
    assert kept(log, Only(where='file != "one.jsonl"')).inputs[0].rows_used == 0


@pytest.mark.parametrize("sign", ["&", "&&", " and ", " & "])
def test_signs_need_no_blanks(tmp_path: Path, sign: str) -> None:
    log = _log(tmp_path / "log.jsonl", [_row(n, float(n)) for n in range(20)])
    assert kept(log, Only(where=f"input>104{sign}input<108")).requests.height == 3
    either = "|" * max(1, len(sign.strip()) % 3)
    assert kept(log, Only(where=f"input<104{either}input>118")).requests.height == 5


@pytest.mark.parametrize(
    ("only", "said"),
    [
        (Only(since="2026-01-01"), ""),
        (Only(until="2099-01-01T00:00:00Z", where="turn > 0"), "--where 'turn > 0'"),
        (Only(where='turn > 0 and start > "2026-01-01"'), ""),
        (Only(since="90d", until="0s"), "--since 90d --until 0s"),
    ],
)
def test_an_experiment_asks_for_no_date_of_a_later_log(only: Only, said: str) -> None:
    command = "ttftdoctor compare {log} after.jsonl --remedy prefix_cache"
    log = arguments([PEAK], more=only.arguments())
    found = filled(Experiment("Do it.", command), log)
    assert found is not None
    assert found.command == command.replace("{log}", f"{PEAK} {said}".strip())
    assert ("all times" in found.text) == ("-01-01" in log)
    # Other commands look at the same log.
    same = filled(Experiment("Look.", "ttftdoctor inspect {log}"), log)
    assert same is not None
    assert same.command == f"ttftdoctor inspect {log}"


def test_an_experiment_names_the_same_rows() -> None:
    found = ttftdoctor.diagnose(PEAK, only=Only(since="13:00", where="turn > 0"))
    experiment = found.verdict.experiment
    assert experiment is not None
    assert experiment.command is not None
    assert "--since 13:00 --where 'turn > 0'" in experiment.command
