"""What ``inspect`` says: invariants, unused fields, switches, and the document's schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import catalog
from ttftdoctor.cli import app
from ttftdoctor.inspection import Inspection, inspect_log
from ttftdoctor.inspection.invariants import Check, check_log
from ttftdoctor.intake import read_log
from ttftdoctor.switches import ELSEWHERE, INSTEAD, NEVER, OPEN, SWITCHES, switch_for
from ttftdoctor.table import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_logs"
SCHEMA = json.loads(
    (Path(ttftdoctor.__file__).parent / "schema" / "inspection-1.schema.json").read_text()
)


def row(k: int, **more: Any) -> dict[str, Any]:
    """A request like those of a healthy log; ``more`` changes it."""
    return {
        "request_id": f"r{k}", "session_id": f"s{k // 4}", "turn": k % 4 + 1,
        "start": f"2026-05-01T10:{k // 60:02}:{k % 60:02}Z", "input_tokens": 900 + 7 * k,
        "cached_tokens": 64 * (k % 3), "output_tokens": 40 + k, "ttft_ms": 100.5 + k,
        "e2e_ms": 1500.0 + 31 * k, **more,
    }  # fmt: skip


def checks(tmp_path: Path, *logs: list[dict[str, Any]]) -> dict[str, Check]:
    for number, rows in enumerate(logs):
        text = "\n".join(map(json.dumps, rows)) + "\n"
        (tmp_path / f"log{number}.jsonl").write_text(text)
    paths = [str(tmp_path / f"log{number}.jsonl") for number in range(len(logs))]
    return {check.id: check for check in check_log(read_log(paths))}


def broken(found: dict[str, Check]) -> set[str]:
    return {check.id for check in found.values() if check.outcome in ("broken", "noted")}


# --- what must hold -----------------------------------------------------------------------------


def test_all_holds_in_a_healthy_log(tmp_path: Path) -> None:
    found = checks(tmp_path, [row(k) for k in range(40)])
    assert broken(found) == set()
    held = {check.id for check in found.values() if check.outcome == "holds"}
    assert {
        "cached_dropped", "ttft_after_e2e", "start_dropped", "time_goes_back", "duplicate_ids",
        "clock_skew", "units_disagree",
    } <= held  # fmt: skip
    assert all(check.of == 40 for check in found.values() if check.id == "duplicate_ids")


def test_a_check_without_its_column_says_so(tmp_path: Path) -> None:
    found = checks(tmp_path, [{"ttft_ms": 20 + k, "input_tokens": 5 + k} for k in range(20)])
    assert found["duplicate_ids"].outcome == "not_checked"
    assert found["duplicate_ids"].needs == ("request_id",)
    assert found["ttft_after_e2e"].needs == ("e2e_us",)
    assert found["time_goes_back"].needs == ("start",)


def test_more_cached_than_input(tmp_path: Path) -> None:
    rows = [row(k) for k in range(40)]
    rows[7]["cached_tokens"] = 10**6
    check = checks(tmp_path, rows)["cached_dropped"]
    assert (check.outcome, check.rows, check.of, check.share) == ("broken", 1, 40, 1 / 40)
    assert check.first == ((str(tmp_path / "log0.jsonl"), 8),)


def test_shares_are_of_all_rows_where_only_some_are_wanted(tmp_path: Path) -> None:
    rows = [row(k, cached_tokens=10**6 if k < 2 else 64) for k in range(40)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    result = CliRunner().invoke(app, ["inspect", str(path), "--where", "input > 1160", "--json"])
    document = json.loads(result.stdout)
    jsonschema.validate(document, SCHEMA)
    (check,) = [c for c in document["invariants"] if c["id"] == "cached_dropped"]
    assert (check["rows"], check["of"]) == (2, 40)


def test_a_first_token_after_the_end(tmp_path: Path) -> None:
    rows = [row(k) for k in range(40)]
    rows[3]["ttft_ms"] = rows[9]["ttft_ms"] = 99_999.0
    check = checks(tmp_path, rows)["ttft_after_e2e"]
    assert (check.outcome, check.rows) == ("broken", 2)
    assert [line for _, line in check.first] == [4, 10]


def test_a_log_in_the_order_of_its_ends_runs_forward(tmp_path: Path) -> None:
    """A long request is written after short ones that started later."""
    rows = [row(k) for k in range(40)]
    late = row(1, e2e_ms=20_000.0, request_id="late")
    assert checks(tmp_path, [*rows[:20], late, *rows[20:]])["time_goes_back"].outcome == "holds"
    late["e2e_ms"] = 700.0
    check = checks(tmp_path, [*rows[:20], late, *rows[20:]])["time_goes_back"]
    assert (check.outcome, check.rows, check.first[0][1]) == ("broken", 1, 21)


def test_each_file_has_an_order_of_its_own(tmp_path: Path) -> None:
    rows = [row(k) for k in range(40)]
    assert checks(tmp_path, rows[20:], rows[:20])["time_goes_back"].outcome == "holds"


def test_an_id_that_comes_again(tmp_path: Path) -> None:
    rows = [row(k) for k in range(30)]
    rows[12]["request_id"] = rows[20]["request_id"] = "r3"
    check = checks(tmp_path, rows)["duplicate_ids"]
    assert (check.outcome, check.rows, [line for _, line in check.first]) == ("broken", 2, [13, 21])


def test_clocks_that_are_apart(tmp_path: Path) -> None:
    """Every other turn is served by a replica whose clock is 90 seconds behind."""
    rows = []
    for k in range(40):
        second = k - 90 * (k % 2) + 600
        moment = f"2026-05-01T10:{second // 60:02}:{second % 60:02}Z"
        rows.append(row(k, start=moment, replica=f"gpu-{k % 2}"))
    check = checks(tmp_path, rows)["clock_skew"]
    assert check.outcome == "broken"
    assert check.rows == 20
    assert "where the replica changed" in check.text
    assert "89.0 s" in check.text


def test_turns_that_run_backwards_at_one_replica_are_no_skew(tmp_path: Path) -> None:
    rows = [row(k, turn=4 - k % 4) for k in range(40)]
    check = checks(tmp_path, rows)["clock_skew"]
    assert check.outcome == "broken"
    assert "numbered otherwise" in check.text


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_parts_in_another_unit(tmp_path: Path, factor: float) -> None:
    rows = [row(k, prefill_ms=60.0 * min(factor, 1) + k / 99) for k in range(40)]
    for one in rows:
        one["decode_ms"] = 1300.0 * factor
    check = checks(tmp_path, rows)["units_disagree"]
    assert check.outcome == "broken"
    assert "another unit" in check.text


def test_a_file_in_another_unit(tmp_path: Path) -> None:
    seconds = [{"ttft_s": (100.5 + k), "input_tokens": 50 + k} for k in range(20)]
    millis = [{"ttft_ms": 100.5 + k, "input_tokens": 50 + k} for k in range(20)]
    check = checks(tmp_path, millis, seconds)["units_disagree"]
    assert (check.outcome, check.rows, check.of) == ("broken", 20, 40)
    assert "log1.jsonl is 1,000 times" in check.text


def test_counters_that_never_count_and_columns_that_never_change(tmp_path: Path) -> None:
    rows = [row(k, cached_tokens=0, output_tokens=128, session_id="same") for k in range(20)]
    found = checks(tmp_path, rows)
    assert broken(found) >= {"always_zero:cached_tokens", "constant:output_tokens"}
    assert "constant:session_id" in found
    assert found["always_zero:cached_tokens"].outcome == "noted"
    assert "constant:cached_tokens" not in found


# --- fields that are not used -------------------------------------------------------------------


def inspected(tmp_path: Path, rows: list[dict[str, Any]]) -> Inspection:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return inspect_log(read_log([str(path)]))


def test_unused_fields_are_listed_without_their_text(tmp_path: Path) -> None:
    rows = [
        row(k, conv="x", colour="a secret", depth={"of": k, "why": [1]}, cost=0.5 + k)
        for k in range(20)
    ]
    for one in rows:
        del one["session_id"]
    found = inspected(tmp_path, rows)
    by_name = {field.name: field for field in found.unused}
    assert set(by_name) == {"conv", "colour", "depth.of", "depth.why", "cost"}
    assert by_name["conv"].guess == "session_id"
    assert (by_name["depth.of"].kind, by_name["depth.of"].low) == ("whole number", 0)
    assert (by_name["cost"].kind, by_name["cost"].high) == ("number", 19.5)
    assert by_name["depth.why"].kind == "list"
    assert "a secret" not in json.dumps(found.to_dict())
    assert found.proposal is not None
    assert 'session_id = "conv"' in found.proposal.text


def test_a_log_that_is_used_whole_has_no_unused_fields(tmp_path: Path) -> None:
    found = inspected(tmp_path, [row(k) for k in range(20)])
    assert found.unused == ()
    assert found.proposal is None


def test_diagnose_tells_of_unused_fields_where_important_columns_lack(tmp_path: Path) -> None:
    rows = [row(k, conv="x", colour=1) for k in range(40)]
    path = tmp_path / "log.jsonl"
    for one in rows:
        del one["session_id"]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    text = CliRunner().invoke(app, ["diagnose", str(path), "--no-color"]).stdout
    read = " ".join(text[text.index("What was read") :].split())
    assert "2 fields of the log are not used: conv (looks like session_id), colour;" in read
    for one in rows:
        one["session_id"] = "s"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert "not used" not in CliRunner().invoke(app, ["diagnose", str(path)]).stdout


# --- units and reasons --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("2026-05-01T10:00:00Z", "date, its own zone"),
        ("2026-05-01 10:00:00+02", "date, its own zone"),
        ("2026-05-01 10:00:00", "date, no zone: read as UTC"),
        (1_777_629_600, "s since 1970"),
        (1_777_629_600_000, "ms since 1970"),
        (1_777_629_600_000_000, "us since 1970"),
        (1_777_629_600_000_000_000, "ns since 1970"),
        (81234.5, "s, no date"),
    ],
)
def test_the_unit_of_a_start_is_that_of_the_log(tmp_path: Path, value: Any, unit: str) -> None:
    found = inspected(tmp_path, [row(k, start=value) for k in range(12)])
    (start,) = [c for c in found.columns if c.column == "start"]
    assert start.unit == unit


def test_columns_that_were_mapped_say_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"a": 20 + k, "b": 9 * k}) + "\n" for k in range(20)))
    result = CliRunner().invoke(
        app, ["inspect", str(path), "--map", "ttft_us=a", "--unit", "a=ms", "--json"]
    )
    document = json.loads(result.stdout)
    assert document["recognised"] == [f"{path}: flat (its columns are mapped by --map)"]
    assert document["columns"]["ttft_us"]["why"] == "mapped with --map, given with --unit"


def test_no_cause_needs_more_rows() -> None:
    """A cause that no column would help says why instead."""
    for path in sorted(SAMPLES.glob("*.jsonl"))[:6]:
        text = CliRunner().invoke(app, ["inspect", str(path), "--no-color"]).stdout
        assert "more rows" not in text


# --- the switch of each stack -------------------------------------------------------------------


def sample(name: str) -> Path:
    (path,) = (p for p in SAMPLES.iterdir() if p.stem == name)
    return path


@pytest.mark.parametrize("reader", catalog.readers(), ids=lambda r: r.name)
def test_every_column_is_there_or_has_its_switch(reader: Any) -> None:
    """A column that some row of the sample lacks has a switch, or is named as never there."""
    frame = read_log([str(sample(reader.name))]).requests
    switched = " ".join(SWITCHES.get(reader.name, {})).split()
    never = NEVER.get(reader.name, "").split()
    for column in COLUMNS:
        empty = frame[column].null_count()
        if empty and reader.name not in OPEN and column != "turn":
            assert column in switched or column in never, column
        assert switch_for(reader.name, column) is not None
        if column in never:
            assert empty == frame.height, f"{column} is said never to be there"


def test_the_table_of_switches_is_sound() -> None:
    names = {reader.name for reader in catalog.readers()}
    assert set(ELSEWHERE) == set(COLUMNS)
    assert set(SWITCHES) | set(NEVER) | set(INSTEAD) | set(OPEN) <= names
    for table in (SWITCHES, INSTEAD):
        for name, entries in table.items():
            columns = [column for key in entries for column in key.split()]
            assert len(columns) == len(set(columns)), name
            assert set(columns) <= set(COLUMNS), name
            assert all(0 < len(text) < 200 and "\n" not in text for text in entries.values())
    for name, text in NEVER.items():
        told = {column for key in SWITCHES.get(name, {}) for column in key.split()}
        assert set(text.split()) <= set(COLUMNS), name
        assert not told & set(text.split()), name
    for name, entries in INSTEAD.items():
        for column in " ".join(entries).split():
            assert column in NEVER[name].split(), (name, column)


@pytest.mark.parametrize(
    ("format", "column", "words"),
    [
        ("vllm-engine", "cached_tokens", "--enable-prompt-tokens-details"),
        ("sglang-log", "queue_us", "--enable-metrics"),
        ("otlp", "cached_tokens", "gen_ai.usage.cache_read.input_tokens"),
        ("tgi", "ttft_us", "at the client"),
        ("bedrock", "ttft_us", "InvokeModelWithResponseStream"),
    ],
)
def test_known_switches(format: str, column: str, words: str) -> None:
    switch = switch_for(format, column)
    assert switch is not None
    assert words in switch.text


def test_diagnose_says_how_the_format_comes_to_have_what_is_missing() -> None:
    text = CliRunner().invoke(app, ["diagnose", str(sample("tgi")), "--no-color"]).stdout
    assert "tgi cannot say; measure it at the client" in " ".join(text.split())


# --- the document -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flat", "peak_hour", "vllm-log", "tgi", "mooncake", "codex"])
def test_the_document_follows_its_schema(name: str) -> None:
    document = inspect_log(read_log([str(sample(name))])).to_dict()
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document)))


def test_the_schema_is_sound_and_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = inspect_log(read_log([str(sample("flat"))])).to_dict()
    for change in ({"more": 1}, {"schema": "ttftdoctor.inspection/2"}, {"notes": "text"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, **change}, SCHEMA)


def test_numbers_of_a_column_are_of_the_whole_log(tmp_path: Path) -> None:
    found = inspected(tmp_path, [row(k) for k in range(300)])
    (ttft,) = [c for c in found.columns if c.column == "ttft_us"]
    assert (ttft.low, ttft.high) == (100_500, 399_500)
    assert COLUMNS["ttft_us"].dtype == pl.Int64


def test_a_proposal_never_takes_the_place_of_other_tables(tmp_path: Path) -> None:
    log = tmp_path / "odd.jsonl"
    lines = [json.dumps({"fst_tok_ms": 35 + k, "ptok": 9 * k + 1}) for k in range(40)]
    log.write_text("\n".join(lines) + "\n")
    for text in ("[gate]\ndefaults = true\n", "[project]\nname = 'x'\n", "no toml ["):
        target = tmp_path / "ttftdoctor.toml"
        target.write_text(text)
        done = CliRunner().invoke(app, ["inspect", str(log), "--propose", str(target)])
        assert done.exit_code == 2
        assert target.read_text() == text
    target.write_text('[map]\nttft_us = "old"\n')
    done = CliRunner().invoke(app, ["inspect", str(log), "--propose", str(target)])
    assert done.exit_code == 0, done.stderr
    assert "fst_tok_ms" in target.read_text()


@pytest.mark.parametrize("folder", ["", "-"])
def test_tables_want_a_folder_with_a_name(folder: str, tmp_path: Path) -> None:
    log = str(tmp_path / "log.jsonl")
    Path(log).write_text('{"ttft_ms": 100}\n' * 40)
    done = CliRunner().invoke(app, ["diagnose", log, "--csv", folder])
    assert done.exit_code == 2
    assert "--csv wants the name of a folder" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.jsonl"]
