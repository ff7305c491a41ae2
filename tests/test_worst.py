"""The worst requests of a cause, their arithmetic, what was ruled out, and the next experiment."""

from __future__ import annotations

import json
import math
import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import plant
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import catalog
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, Experiment, Finding, WorstRow
from ttftdoctor.experiment import MOST_PATHS, arguments, filled
from ttftdoctor.measure import worst
from ttftdoctor.measure.worst import MOST, Scale, name_of
from ttftdoctor.run import diagnose

SAMPLES = Path(__file__).parents[1] / "sample_logs"
CASES = Path(__file__).parents[2] / "shared" / "cases"
LOGS = sorted(
    [path for path in SAMPLES.iterdir() if path.suffix in (".jsonl", ".json", ".log")]
    + list(CASES.glob("*.jsonl"))
)
EVERY = pytest.mark.parametrize("log", LOGS, ids=[path.name for path in LOGS])
AT_WORK = ("primary", "contributing", "minor")
TERM = re.compile(r"([=+-]) (\d+(?:\.\d+)?) (ms|s)\b")


@cache
def found(log: Path) -> Diagnosis:
    return diagnose(str(log))


def at_work(d: Diagnosis) -> list[Finding]:
    return [f for f in d.causes if f.status in AT_WORK]


def finding(d: Diagnosis, cause: str) -> Finding:
    return next(f for f in d.causes if f.id == cause)


def sum_of(text: str) -> tuple[float, float]:
    """The TTFT that a sentence names, and the sum of the parts it gives, in seconds."""
    flat = re.sub(r"\([^()]*\)", "", text)
    whole = re.search(r": (\d+(?:\.\d+)?) (ms|s)(?: logged)? =", flat)
    assert whole is not None, text
    unit = {"ms": 1e-3, "s": 1.0}
    parts = [
        (-1 if sign == "-" else 1) * float(number) * unit[name]
        for sign, number, name in TERM.findall(flat.split(";")[0])
    ]
    assert parts, text
    return float(whole[1]) * unit[whole[2]], math.fsum(parts)


@EVERY
def test_the_arithmetic_adds_up(log: Path) -> None:
    """The figures to the last digit, and the words as they are read."""
    for f in at_work(found(log)):
        if f.worked_example is None:
            assert not f.rows
            continue
        figures = f.worked_example.figures
        ttft = figures["ttft_s"]
        assert isinstance(ttft, float)
        names = ["not_a_ttft_s"] if f.id == "measurement_artifact" else [f"{a}_s" for a in ACCOUNTS]
        assert math.fsum(float(figures[name] or 0.0) for name in names) == pytest.approx(ttft)
        shown, summed = sum_of(f.worked_example.text)
        assert summed == pytest.approx(shown, abs=1e-9)
        assert shown == pytest.approx(ttft, rel=0.006)
        assert f.rows[0].ttft_s == ttft
        assert f.worked_example.text.startswith(name_of(f.rows[0]))


@EVERY
def test_the_rows_are_the_worst(log: Path) -> None:
    d = found(log)
    for f in at_work(d):
        assert len(f.rows) <= MOST
        seconds = [row.seconds for row in f.rows if row.seconds is not None]
        assert len(seconds) == (0 if f.id == "healthy" else len(f.rows))
        for first, second in pairwise(f.rows):  # of equal ones the slower request comes first
            assert (first.seconds or 0) >= (second.seconds or 0) - 1e-5 * second.ttft_s
        for row in f.rows:
            assert row.ttft_s > 0
            assert row.seconds is None or 0 < row.seconds <= row.ttft_s
            assert row.path in {record.path for record in d.inputs}
            assert row.request_id or row.line is not None
        if f.seconds and f.status == "primary":
            assert f.rows
            assert f.rows[0].seconds is not None
            # The worst of them has more than the mean has, but for what is more than was measured.
            assert f.rows[0].seconds >= 0.8 * f.seconds
    for f in d.causes:
        if f.status not in AT_WORK:
            assert not f.rows
            assert f.worked_example is None


def test_a_row_is_found_again_in_the_log() -> None:
    """By its id and by its line; the log's own order does not matter."""
    path = SAMPLES / "peak_hour.jsonl"
    lines = path.read_text().splitlines()
    for f in at_work(found(path)):
        for row in f.rows:
            assert row.line is not None
            logged = json.loads(lines[row.line - 1])
            assert row.request_id == logged["request_id"]
            assert row.session_id == logged["session_id"]
            assert row.ttft_s == pytest.approx(logged["ttft_ms"] / 1e3)


def test_a_row_is_found_again_in_a_log_out_of_order(tmp_path: Path) -> None:
    text = (SAMPLES / "peak_hour.jsonl").read_text().splitlines()
    backwards = tmp_path / "backwards.jsonl"
    backwards.write_text("\n".join(reversed(text)) + "\n")
    turned = finding(diagnose(str(backwards)), "repeated_prefix_no_reuse")
    straight = finding(found(SAMPLES / "peak_hour.jsonl"), "repeated_prefix_no_reuse")
    assert [r.request_id for r in turned.rows] == [r.request_id for r in straight.rows]
    assert [len(text) + 1 - (r.line or 0) for r in turned.rows] == [r.line for r in straight.rows]


def test_the_file_is_named_where_there_are_several(tmp_path: Path) -> None:
    rows = [dict(row) for row in plant.plant("cold_start", 0).rows]
    for row in rows:
        row.pop("request_id", None)
    names = []
    for at in range(2):
        path = tmp_path / f"part {at}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows[at::2])) + "\n")
        names.append(str(path))
    d = diagnose(*names)
    shown = finding(d, d.verdict.primary_cause).rows
    assert shown
    for row in shown:
        assert row.path in names
        assert row.line is not None
        logged = json.loads(Path(row.path or "").read_text().splitlines()[row.line - 1])
        assert row.ttft_s == pytest.approx(logged["ttft_ms"] / 1e3, abs=1e-6)


def test_names_of_a_row() -> None:
    row = WorstRow("r-1", "logs/a.jsonl", 7, "s1", 3, None, 1.0, 0.5)
    assert name_of(row) == "request r-1 (session s1, turn 3)"
    bare = WorstRow(None, "logs/a.jsonl", 7, None, None, None, 1.0, 0.5)
    assert name_of(bare) == "line 7 of a.jsonl"
    assert len(name_of(WorstRow("x" * 5000, None, None, "y" * 5000, 1, None, 1.0, None))) < 200


PARTS = st.lists(st.floats(0.0, 400.0), min_size=1, max_size=4)


@given(PARTS, st.floats(-20.0, 20.0))
def test_rounded_parts_add_up_to_the_rounded_whole(parts: list[float], left: float) -> None:
    every = [*parts, left]
    whole = math.fsum(every)
    if whole <= 0:
        return
    scale = Scale.of(whole)
    units = scale.shares(every, whole)
    assert sum(units) == scale.units(whole)
    for unit, part in zip(units, every, strict=True):
        assert abs(unit * scale.step - part) <= scale.step * 1.000001
        if part == 0:
            assert unit == 0


@given(st.floats(1e-4, 5000.0))
def test_what_is_shown_is_what_was_counted(seconds: float) -> None:
    scale = Scale.of(seconds)
    text = scale.show(scale.units(seconds))
    number, unit = text.split(" ")
    shown = float(number) * (1e-3 if unit == "ms" else 1.0)
    assert shown == pytest.approx(scale.units(seconds) * scale.step, abs=1e-9)
    assert abs(shown - seconds) <= scale.step


@given(
    st.lists(
        st.tuples(st.one_of(st.just(math.nan), st.just(0.0), st.floats(-1, 5)),
                  st.one_of(st.just(math.nan), st.floats(0.01, 5))),
        max_size=40,
    ),
    st.integers(1, 7),
)  # fmt: skip
def test_the_most_are_found_piece_by_piece(pairs: list[tuple[float, float]], block: int) -> None:
    seconds, ttft = (np.array([pair[at] for pair in pairs], dtype=float) for at in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worst, "BLOCK_ROWS", block)
        got = worst._most(seconds, ttft)
    value = {
        i: min(s, t) + 1e-6 * t for i, (s, t) in enumerate(pairs) if s > 0 and not math.isnan(t)
    }
    assert len(set(got)) == len(got)
    assert [value[i] for i in got] == sorted(value.values(), reverse=True)[:MOST]


# --- ruled out ------------------------------------------------------------------------------------


@EVERY
def test_each_cause_that_is_ruled_out_says_why(log: Path) -> None:
    d = found(log)
    text = re.sub(r"\s+", "", ttftdoctor.to_text(d))
    for f in d.causes:
        if f.status != "ruled_out":
            assert f.ruled_out_because is None
            continue
        why = f.ruled_out_because
        assert why
        assert "\n" not in why
        assert not why.endswith(".")
        assert 15 <= len(why) <= 300
        assert re.sub(r"\s+", "", f"{f.id}: {why}") in text


# --- the experiment -------------------------------------------------------------------------------


def test_each_cause_has_an_experiment() -> None:
    known = {remedy.id for remedy in catalog.remedies()}
    for cause in catalog.causes():
        assert cause.experiment is not None
        command = cause.experiment.command
        assert command is not None
        assert command.count("{log}") == 1
        words = shlex.split(command)
        assert words[0] == "ttftdoctor"
        if "--remedy" in words:
            assert words[words.index("--remedy") + 1] in known
            assert "after.jsonl" in cause.experiment.text


@pytest.mark.parametrize("name", ["peak hour", 'it\'s; $(x) `y` "z"', "-dash", "*"])
@pytest.mark.parametrize("cause", ["repeated_prefix_no_reuse", "queueing_saturation", "healthy"])
def test_the_command_can_be_run_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cause: str
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path(f"{name}.jsonl")
    planted = plant.plant(cause, 0).write(tmp_path / log)
    Path("after.jsonl").write_text(Path(planted).read_text())
    d = diagnose(str(log))
    assert d.verdict.primary_cause == cause
    assert d.verdict.experiment is not None
    words = shlex.split(d.verdict.experiment.command or "")
    assert words[0] == "ttftdoctor"
    if words[1] not in {c.callback.__name__ for c in app.registered_commands if c.callback}:
        pytest.skip(f"there is no {words[1]} yet")
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code in (0, 1), done.output + done.stderr
    assert done.stdout


def test_the_command_reads_the_log_as_it_was_read() -> None:
    said = arguments(["a b.csv"], "flat", {"ttft_us": "first token"}, {"first token": "ms"})
    assert shlex.split(said) == [
        "a b.csv", "--format", "flat", "--map", "ttft_us=first token", "--unit", "first token=ms",
    ]  # fmt: skip
    many = [f"/logs/day/{at}.jsonl" for at in range(MOST_PATHS + 1)]
    assert arguments(many) == "/logs/day"
    assert arguments(["-"]) == "-"
    several = ["/logs/day/a.jsonl", "/logs/day/b.jsonl"]
    for command, want in (
        ("compare {log} after.jsonl", "compare /logs/day --format flat after.jsonl"),
        ("inspect {log}", "inspect /logs/day/a.jsonl /logs/day/b.jsonl --format flat"),
    ):
        done = filled(Experiment("", f"ttftdoctor {command}"), arguments(several, "flat"))
        assert done is not None
        assert done.command == f"ttftdoctor {want}"


def test_the_experiment_says_what_must_come_out() -> None:
    d = found(SAMPLES / "peak_hour.jsonl")
    assert d.verdict.experiment is not None
    gain = next(r for r in d.remedies if r.id == "prefix_cache")
    assert f"{round((gain.ttft_mean_s or 0) * 1e3)} ms" in d.verdict.experiment.text
    assert "--remedy prefix_cache" in (d.verdict.experiment.command or "")


# --- hostile names --------------------------------------------------------------------------------

BAD = "\x1b[31m<script>alert(1)</script>\u202e[x](http://evil.example)|`"


def test_ids_of_an_enemy_stay_text(tmp_path: Path) -> None:
    rows = [dict(row) for row in plant.plant("repeated_prefix_no_reuse", 0).rows]
    for at, row in enumerate(rows):
        row["request_id"] = f"{BAD}{at}"
        row["session_id"] = f"{BAD}{row['session_id']}"
    log = tmp_path / "enemy.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)) + "\n")
    d = diagnose(str(log))
    first = finding(d, "repeated_prefix_no_reuse").rows[0]
    assert first.request_id is not None
    assert first.request_id.startswith(BAD)
    terminal = ttftdoctor.to_text(d)
    assert all(line.isprintable() for line in terminal.splitlines())
    assert "alert(1)" in terminal
    assert "<script>alert" not in ttftdoctor.to_html(d)
    markdown = ttftdoctor.to_markdown(d)
    assert "<script" not in markdown
    assert "http://" not in markdown
    json.loads(ttftdoctor.to_json(d))
