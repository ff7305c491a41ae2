"""Mapping files: what they say, where they are found, what is refused, and those proposed."""

from __future__ import annotations

import json
import random
import tomllib
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.choose import Only, kept
from ttftdoctor.cli import app
from ttftdoctor.contrasts.flow import contrast_log
from ttftdoctor.errors import InputError, UnknownFormat, UsageError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.local_time import in_zone
from ttftdoctor.mapping import find_mapping, lines_of, read_mapping
from ttftdoctor.mapping.manner import manner, reading_as
from ttftdoctor.mapping.proposal import Proposal, propose, quoted
from ttftdoctor.sources import Source

ROOT = Path(__file__).resolve().parents[1]
PEAK = ROOT / "sample_logs" / "peak_hour.jsonl"

ODD = {
    "request_id": "rid_x", "session_id": "conv", "turn": "nth", "timestamp": "began",
    "model": "llm", "input_tokens": "ptok", "output_tokens": "gtok", "ttft_ms": "first_tok",
    "e2e_ms": "whole", "status": "outcome",
}  # fmt: skip
#: Formats of dates that Polars refuses.
REFUSED = ("%I", "%M", "%p %H", "%S %p", "%l", "%d.%m.%Y %I:%M:%S", "%d.%m.%Y %H")
MAPPING = """
[map]
ttft_us = "first_tok"
e2e_us = "whole"
start = "began"
session_id = ["chat", "conv"]
turn = "nth"
input_tokens = "ptok"
output_tokens = "gtok"
request_id = "rid_x"
model = "llm"

[unit]
first_tok = "ms"
e2e_us = "ms"
"""


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return str(path)


def peak(names: dict[str, str], most: int | None = None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()[:most]]
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


@pytest.fixture
def odd(tmp_path: Path) -> str:
    return write(tmp_path / "odd.jsonl", *peak(ODD, 400))


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that is a repository of its own, so that nothing above it is found."""
    folder = tmp_path / "away"
    folder.mkdir()
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments])


def toml(tmp_path: Path, text: str, name: str = "mapping.toml") -> str:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


def read(log: str, mapping: str, timezone: str | None = None) -> Log:
    return ttftdoctor.read(log, mapping=mapping, timezone=timezone)


# --- what a mapping says ------------------------------------------------------------------------


def test_a_mapped_log_is_the_log_under_its_usual_names(odd: str, tmp_path: Path) -> None:
    usual = read_log([write(tmp_path / "usual.jsonl", *peak({}, 400))])
    found = read(odd, toml(tmp_path, MAPPING))
    assert_frame_equal(found.requests, usual.requests)
    assert found.fields["session_id"].source == "conv"
    assert found.fields["session_id"].why.endswith("mapping.toml line 6")
    assert found.fields["ttft_us"].why.startswith("mapped by ")


def test_options_win_over_the_file(odd: str, tmp_path: Path) -> None:
    file = toml(tmp_path, '[map]\nttft_us = "whole"\ninput_tokens = "ptok"\n[unit]\nttft = "s"\n')
    found = ttftdoctor.read(
        odd, columns={"ttft_us": "first_tok"}, units={"ttft_us": "ms"}, mapping=file
    )
    assert found.fields["ttft_us"].source == "first_tok"
    assert found.requests["ttft_us"][0] == 408_300
    assert found.fields["input_tokens"].source == "ptok"
    assert found.recognised[0].endswith(f"mapped by --map and {file})")


def test_nested_fields_constants_and_words(tmp_path: Path) -> None:
    rows = [
        {"t": {"ft": 20.5 + k}, "use": {"in": {"n": 100 + k}}, "how": "sse", "end": "fine",
         "where": "edge"}
        for k in range(20)
    ]  # fmt: skip
    rows[3]["end"], rows[4]["how"] = "gave up", "block"
    file = toml(tmp_path, """
        [map]
        ttft = "t.ft"
        input_tokens = "use.in.n"
        streamed = "how"
        status = "end"
        vantage = "where"
        [unit]
        ttft = "ms"
        [constant]
        model = "chat-8b"
        turn = 1
        [values.streamed]
        sse = true
        block = false
        [values.status]
        fine = "ok"
        "gave up" = "aborted"
        [values.vantage]
        edge = "gateway"
        """)  # fmt: skip
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert found.requests["input_tokens"].to_list()[:3] == [100, 101, 102]
    assert found.requests["ttft_us"][0] == 20_500
    assert set(found.requests["model"]) == {"chat-8b"}
    assert set(found.requests["turn"]) == {1}
    assert set(found.requests["vantage"]) == {"gateway"}
    assert found.inputs[0].rows_rejected == {"aborted_request": 1}
    assert found.inputs[0].ttft_set_aside == {"not_streamed": 1}
    assert found.fields["model"].why.endswith("mapping.toml")


def test_a_constant_fills_what_a_mapped_field_leaves_empty(tmp_path: Path) -> None:
    rows = [{"ttft_ms": 20 + k, "m": None if k % 2 else "a"} for k in range(20)]
    file = toml(tmp_path, '[map]\nmodel = "m"\n[constant]\nmodel = "b"\n')
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert found.requests["model"].to_list()[:4] == ["a", "b", "a", "b"]


def test_moments_of_the_first_token_and_the_end(tmp_path: Path) -> None:
    rows = [
        {"a": 1_777_629_600_000 + 10 * k, "b": 1_777_629_600_250 + 10 * k,
         "c": 1_777_629_602_000 + 10 * k, "latency": 7}
        for k in range(20)
    ]  # fmt: skip
    file = toml(
        tmp_path, '[map]\nstart = "a"\nfirst_token = "b"\nend = "c"\n[unit]\nstart = "ms"\n'
    )
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert set(found.requests["ttft_us"]) == {250_000}
    assert set(found.requests["e2e_us"]) == {2_000_000}


def test_a_field_that_is_mapped_is_no_other_column(tmp_path: Path) -> None:
    rows = [{"latency": 20 + k, "prompt_tokens": 9 * k} for k in range(20)]
    file = toml(tmp_path, '[map]\nttft_us = "latency"\n[unit]\nlatency = "ms"\n')
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert found.requests["e2e_us"].null_count() == 20
    assert found.requests["ttft_us"][0] == 20_000


def test_records_inside_a_document_are_found_by_the_mapped_fields(tmp_path: Path) -> None:
    (tmp_path / "doc.json").write_text(
        json.dumps({"run": {"id": 1}, "rows": [{"ft": 20 + k, "n": 100} for k in range(20)]})
    )
    file = toml(tmp_path, '[map]\nttft_us = "ft"\ninput_tokens = "n"\n[unit]\nft = "ms"\n')
    assert read(str(tmp_path / "doc.json"), file).requests.height == 20


def test_csv_with_odd_names(tmp_path: Path) -> None:
    lines = ["zeit;dauer;woerter"]
    lines += [f"01.05.2026 10:00:{k:02};{20 + k};{100 + k}" for k in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    file = toml(tmp_path, """
        [map]
        start = "zeit"
        ttft_us = "dauer"
        input_tokens = "woerter"
        [unit]
        dauer = "ms"
        [time]
        format = "%d.%m.%Y %H:%M:%S"
        timezone = "Europe/Berlin"
        """)  # fmt: skip
    found = read(str(tmp_path / "log.csv"), file)
    moment = datetime(2026, 5, 1, 10, tzinfo=ZoneInfo("Europe/Berlin"))
    assert found.requests["start"][0] == round(moment.timestamp() * 1e6)
    assert found.fields["start"].unit == "%d.%m.%Y %H:%M:%S, Europe/Berlin"
    assert any("read in Europe/Berlin" in note for note in found.notes)


def test_a_format_with_an_offset_needs_no_zone(tmp_path: Path) -> None:
    rows = [{"ttft_ms": 20, "at": f"01/May/2026:10:00:{k:02} +0200"} for k in range(20)]
    file = toml(tmp_path, '[map]\nstart = "at"\n[time]\nformat = "%d/%b/%Y:%H:%M:%S %z"\n')
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert found.requests["start"][0] == 1_777_622_400_000_000


def test_a_fraction_as_python_writes_it_is_a_fraction(tmp_path: Path) -> None:
    rows = [{"ttft_ms": 20, "at": f"01.05.2026 10:00:{k:02}.25"} for k in range(20)]
    text = '[map]\nstart = "at"\n[time]\nformat = "%d.%m.%Y %H:%M:%S.%f"\n'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(write(tmp_path / "log.jsonl", *rows), toml(tmp_path, text))
    assert found.requests["start"][0] == 1_777_629_600_250_000


def test_stamps_that_do_not_fit_the_format_are_counted(tmp_path: Path) -> None:
    rows = [{"ttft_ms": 20, "at": f"10:00:{k:02} 01.05.2026"} for k in range(20)]
    rows[5]["at"] = "yesterday"
    file = toml(tmp_path, '[map]\nstart = "at"\n[time]\nformat = "%H:%M:%S %d.%m.%Y"\n')
    found = read(write(tmp_path / "log.jsonl", *rows), file)
    assert found.requests["start"].null_count() == 1
    assert any("1 values of `at` could not be read" in text for text in found.warnings)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('[map]\nttfft = "a"', "line 2, map.ttfft", "no such column"),
        ("[map]\nttft_us = 3", "line 2, map.ttft_us", "name of a field"),
        ("[map]\nttft_us = []", "line 2, map.ttft_us", "name of a field"),
        ('[map]\nttft = "a"\nttft_us = "b"', "line 3, map.ttft_us", "mapped twice"),
        ('map = "a"', "line 1, map", "must be a table"),
        ('[mapp]\nttft_us = "a"', "line 1, mapp", "no such table"),
        ('[map]\nttft = "a"\n[unit]\nttft = "fortnight"', "line 4, unit.ttft", "no unit"),
        ('[map]\nttft = "a"\n[unit]\nttft = 7', "line 4, unit.ttft", "no unit"),
        ('[map]\nttft = "a"\n[unit]\nb = "ms"', "line 4, unit.b", "neither a column nor a field"),
        ('[map]\nmodel = "a"\n[unit]\nmodel = "ms"', "line 4, unit.model", "no unit of time"),
        ('[map]\nttft = "a"\n[time]\nzone = "UTC"', "line 4, time.zone", "no such key"),
        ('[map]\nttft = "a"\n[time]\ntimezone = "Mars"', "line 4, time.timezone", "no time zone"),
        ('[map]\nttft = "a"\n[time]\nformat = "%Q"', "line 4, time.format", "no format of dates"),
        ('[map]\nttft = "a"\n[time]\nformat = "Y"', "line 4, time.format", "no format of dates"),
        *(
            (f'[map]\nttft = "a"\n[time]\nformat = "{form}"', "line 4, time.format", what)
            for form, what in [
                *((form, "does not make a moment") for form in REFUSED),
                ("%d.%m.%Y %H:%M:%S,%f", "%f in"),
                ("%d.%m.%Y %H:%M:%S %-f", "%f in"),
            ]
        ),
        ("[constant]\nttft_us = 3", "line 2, constant.ttft_us", "the same in every row"),
        ('[constant]\nvantage = "moon"', "line 2, constant.vantage", "no vantage"),
        ("[constant]\nmodel = 3", "line 2, constant.model", "must be text"),
        ("[constant]\nturn = -1", "line 2, constant.turn", "a whole number"),
        ('[map]\nttft = "a"\n[values.status]\nx = "good"', "line 4, values.status.x", "no status"),
        ('[map]\nttft = "a"\n[values.model]\nx = "y"', "line 3, values.model", "no words"),
        ('optional = ["model"]\n[map]\nttft = "a"', "line 1, optional", "not in [map]"),
        ("[time]\ntimezone = 'UTC'", "mapping.toml", "no [map] table"),
        ("[map\n", "mapping.toml", "no TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    odd: str, tmp_path: Path, text: str, where: str, what: str
) -> None:
    file = toml(tmp_path, text + "\n")
    with pytest.raises(UsageError) as caught:
        read_mapping(Path(file))
    assert where in str(caught.value)
    assert what in str(caught.value)
    result = run("inspect", odd, "--mapping", file)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_mapping_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the mapping"):
        read_mapping(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe[map]")
    with pytest.raises(UsageError, match="no UTF-8"):
        read_mapping(tmp_path / "bytes.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(UsageError, match="no longer than"):
        read_mapping(tmp_path / "long.toml")


def test_a_field_that_the_log_lacks(odd: str, tmp_path: Path) -> None:
    file = toml(tmp_path, MAPPING + '\n[constant]\nvantage = "client"\n')
    Path(file).write_text(MAPPING.replace('"nth"', '"step"'))
    with pytest.raises(InputError, match="no field 'step'") as caught:
        read(odd, file)
    assert "line 7, map.turn" in str(caught.value)
    Path(file).write_text('optional = ["turn"]\n' + MAPPING.replace('"nth"', '"step"'))
    assert read(odd, file).requests["turn"].null_count() == 400


def test_a_mapping_is_for_flat_logs(odd: str, tmp_path: Path) -> None:
    result = run("inspect", odd, "--mapping", toml(tmp_path, MAPPING), "--format", "litellm")
    assert result.exit_code == 2
    assert "--mapping is for flat logs" in result.stderr


def test_lines_of_keys() -> None:
    text = 'a = 1\n[b."c.d"]\n"e=f" = [\n 1,\n]\n[[g.h]]\nx = 2\n'
    found = lines_of(text)
    assert found["a",] == 1
    assert found["b", "c.d"] == 2
    assert found["b", "c.d", "e=f"] == 3
    assert found["g", "h", "x"] == 7


# --- where it is found --------------------------------------------------------------------------


def test_beside_the_log_before_the_working_folder(odd: str, tmp_path: Path, away: Path) -> None:
    toml(tmp_path, MAPPING, "ttftdoctor.toml")
    toml(away, '[map]\nttft_us = "whole"\n[unit]\nwhole = "ms"\n', "ttftdoctor.toml")
    found = read_log([odd])
    assert found.fields["ttft_us"].source == "first_tok"
    assert found.recognised == (
        f"{odd}: flat (its columns are mapped by {tmp_path / 'ttftdoctor.toml'})",
    )


def test_above_the_working_folder_up_to_the_repository(
    odd: str, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = away / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    toml(away.parent, MAPPING, "pyproject.toml")  # above the root, and beside the log
    Path(odd).rename(deep / "odd.jsonl")
    with pytest.raises(UnknownFormat):
        read_log(["odd.jsonl"])
    nested = MAPPING.replace("[map]", "[tool.ttftdoctor.map]").replace(
        "[unit]", "[tool.ttftdoctor.unit]"
    )
    toml(away, "[project]\nname = 'x'\n" + nested, "pyproject.toml")
    assert read_log(["odd.jsonl"]).requests.height == 400
    toml(away, MAPPING.replace("first_tok", "whole"), "ttftdoctor.toml")
    assert read_log(["odd.jsonl"]).fields["ttft_us"].source == "whole"


def test_files_that_say_nothing_of_logs_are_passed_over(
    odd: str, tmp_path: Path, away: Path
) -> None:
    toml(away, "[gate]\ninconclusive = 'pass'\n", "ttftdoctor.toml")
    toml(tmp_path, "this is no TOML", "pyproject.toml")
    assert find_mapping(odd) is None
    toml(tmp_path, "[gate]\n" + MAPPING, "ttftdoctor.toml")
    found = find_mapping(odd)
    assert found is not None
    assert not found.asked
    toml(tmp_path, "this is no TOML", "ttftdoctor.toml")
    with pytest.raises(UsageError, match="no TOML"):
        find_mapping(odd)


def test_a_mapping_that_is_found_leaves_other_logs_alone(tmp_path: Path, away: Path) -> None:
    """Neither a log of a known format nor a flat one without its fields is touched."""
    toml(away, MAPPING + '[time]\ntimezone = "Asia/Tokyo"\n', "ttftdoctor.toml")
    for name in ("litellm.jsonl", "flat.jsonl", "vllm-log.log"):
        path = str(ROOT / "sample_logs" / name)
        found = read_log([path])
        assert "ttftdoctor.toml" not in found.recognised[0]
        assert not any("Tokyo" in text for text in (*found.notes, *found.warnings))


def test_what_a_mapping_that_is_found_names_in_vain_is_no_error(
    odd: str, tmp_path: Path, away: Path
) -> None:
    toml(tmp_path, MAPPING.replace('"nth"', '"step"'), "ttftdoctor.toml")
    assert read_log([odd]).requests["turn"].null_count() == 400


def test_standard_input_is_mapped_too(odd: str, tmp_path: Path) -> None:
    file = toml(tmp_path, MAPPING)
    given = Path(odd).read_bytes()
    result = CliRunner().invoke(app, ["inspect", "-", "--mapping", file, "--json"], input=given)
    assert json.loads(result.stdout)["columns"]["turn"]["source"] == "nth"


# --- proposals ----------------------------------------------------------------------------------


def proposal(log: str) -> Proposal:
    source = Source(log, table=True)
    try:
        found = propose(source.head)
    finally:
        source.close()
    assert found is not None
    return found


def test_a_proposed_mapping_reads_the_log_like_its_usual_names(tmp_path: Path) -> None:
    """The whole way: names that nobody knows, a proposal, and the same diagnosis."""
    odd = write(tmp_path / "odd.jsonl", *peak(ODD))
    usual = write(tmp_path / "usual.jsonl", *peak({}))
    file = str(tmp_path / "mapping.toml")
    asked = run("inspect", odd, "--propose", file)
    assert asked.exit_code == 0, asked.output
    one, other = (
        json.loads(run("diagnose", *arguments, "--json", "-", "-q").stdout)
        for arguments in ([odd, "--mapping", file], [usual])
    )
    for key in ("verdict", "ledger", "splits", "repeated_prefix", "cost_lines", "population"):
        left, right = one[key], other[key]
        if key == "verdict":
            left, right = ({k: v for k, v in d.items() if k != "experiment"} for d in (left, right))
        assert left == right, key


@pytest.mark.parametrize(
    "names",
    [
        {"session_id": "thread", "ttft_ms": "time_to_first_byte_ms", "input_tokens": "ctx_len"},
        {"ttft_ms": "first_chunk_millis", "e2e_ms": "took", "timestamp": "when"},
        {"session_id": "dialogue", "turn": "step", "output_tokens": "reply_tokens"},
        {"ttft_ms": "tt1st_token", "e2e_ms": "overall", "input_tokens": "req_toks"},
        {"e2e_ms": "call_duration_ms", "output_tokens": "generated_toks", "model": "llm_name"},
    ],
)
def test_other_odd_names(tmp_path: Path, names: dict[str, str]) -> None:
    rows = peak(names, 300)
    log = write(tmp_path / "log.jsonl", *rows)
    found = proposal(log)
    said = tomllib.loads(found.text)["map"]
    for column, name in names.items():
        key = {"ttft_ms": "ttft_us", "e2e_ms": "e2e_us", "timestamp": "start"}.get(column, column)
        assert said[key] == name, found.text
    file = toml(tmp_path, found.text)
    usual = read_log([write(tmp_path / "usual.jsonl", *peak({}, 300))])
    columns = [c for c in usual.requests.columns if c in said]
    assert_frame_equal(read(log, file).requests.select(columns), usual.requests.select(columns))


@pytest.mark.parametrize(
    ("first", "whole", "unit"),
    [("first_s", "total_s", "s"), ("wait_first", "wait_all", "ms"), ("lat.first", "lat.all", "ms")],
)
def test_two_times_of_one_name_are_the_first_and_the_whole(
    tmp_path: Path, first: str, whole: str, unit: str
) -> None:
    rng = random.Random(1)
    rows = []
    for at in range(60):
        ttft = rng.uniform(0.2, 2)
        times = [ttft, ttft + rng.uniform(1, 5)]
        row: dict[str, Any] = {"wann": f"2026-01-01T00:{at:02d}:00Z", "n_prompt": 900 + at}
        for name, value in zip((first, whole), times, strict=True):
            outer, _, inner = name.rpartition(".")
            held = row.setdefault(outer, {}) if outer else row
            held[inner] = round(value * (1000 if unit == "ms" else 1), 3)
        rows.append(row)
    said = tomllib.loads(proposal(write(tmp_path / "odd.jsonl", *rows)).text)
    assert said["map"]["ttft_us"] == first
    assert said["map"]["e2e_us"] == whole
    assert said["map"]["start"] == "wann"
    assert said["unit"]["ttft_us"] == unit


def test_nested_and_csv_logs_have_proposals(tmp_path: Path) -> None:
    rows = [
        {"req": {"id": f"q{k}", "conv": f"c{k // 5}"},
         "tok": {"prompt": 100 + k, "answer": 20 + k},
         "ms": {"first": 80 + k, "total": 2000 + k}, "at": f"2026-05-01 10:00:{k:02}"}
        for k in range(40)
    ]  # fmt: skip
    log = write(tmp_path / "log.jsonl", *rows)
    found = proposal(log)
    said = tomllib.loads(found.text)
    assert said["map"]["session_id"] == "req.conv"
    assert said["map"]["input_tokens"] == "tok.prompt"
    assert said["time"]["timezone"] == "UTC"
    assert read(log, toml(tmp_path, found.text)).requests.height == 40
    lines = ["wann,sitzung,ptok,ttfb_ms"]
    lines += [f"2026-05-01T10:00:{k:02}Z,s{k // 4},{90 + k},{30 + k}" for k in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    found = proposal(str(tmp_path / "log.csv"))
    assert tomllib.loads(found.text)["map"] == {
        "start": "wann", "input_tokens": "ptok", "ttft_us": "ttfb_ms",
    }  # fmt: skip


def test_a_duration_without_any_unit_is_a_guess_that_says_so(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", *({"fst_tok": 35 + k, "ptok": 9 * k} for k in range(40)))
    found = proposal(log)
    assert 'ttft_us = "ms"' in found.text
    assert "a guess by its size" in found.text
    assert read(log, toml(tmp_path, found.text)).requests["ttft_us"][0] == 35_000


def test_an_unknown_log_is_shown_its_proposal(odd: str, tmp_path: Path, away: Path) -> None:
    result = run("inspect", odd)
    assert result.exit_code == 0
    assert "no reader knows this log" in result.stderr
    text = result.stdout[result.stdout.index("[map]") :]
    assert tomllib.loads(text)["map"]["session_id"] == "conv"
    assert tomllib.loads(run("inspect", odd, "--propose", "-").stdout)["map"]["turn"] == "nth"
    assert run("diagnose", odd).exit_code == 2


def test_objects_and_ids_of_conversations_are_not_taken_for_others(tmp_path: Path) -> None:
    rows = [
        {
            "conv": {"id": f"c{k % 7}"}, "t": {"first_tok": 150.7 + k},
            "usage": {"ptok": 1000 + 10 * k}, "when": f"2026-03-10T09:00:{k:02}.010Z",
        }
        for k in range(40)
    ]  # fmt: skip
    log = write(tmp_path / "log.jsonl", *rows)
    found = tomllib.loads(proposal(log).text)
    assert found["map"] == {
        "session_id": "conv.id", "start": "when", "input_tokens": "usage.ptok",
        "ttft_us": "t.first_tok",
    }  # fmt: skip
    read_so = read(log, toml(tmp_path, proposal(log).text))
    assert read_so.requests["start"].null_count() == 0
    assert read_so.requests["request_id"].null_count() == 40


def test_an_object_that_is_an_error_is_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"ttft_ms": 20 + k, "input_tokens": 9} for k in range(20)]
    rows[3]["error"] = {"message": "no"}
    found = read_log([write(tmp_path / "log.jsonl", *rows)])
    assert (found.requests.height, found.failed.height) == (19, 1)


def test_counts_and_places_are_no_times(tmp_path: Path) -> None:
    rows = [
        {
            "queue_position": k % 5, "first_token_count": 3, "ptok": 1000 + 10 * k,
            "latency_first": 151.7 + k, "when": 1_773_133_200 + k,
        }
        for k in range(40)
    ]  # fmt: skip
    found = tomllib.loads(proposal(write(tmp_path / "log.jsonl", *rows)).text)
    assert found["map"] == {
        "start": "when", "input_tokens": "ptok", "ttft_us": "latency_first",
    }  # fmt: skip


@pytest.mark.parametrize("unit", [1, 1000])
def test_the_moment_of_the_first_token_by_its_bare_name(tmp_path: Path, unit: int) -> None:
    rows = [
        {
            "started": (1_773_133_200 + k) * unit, "first": (1_773_133_200.3 + k) * unit,
            "ended": (1_773_133_200.9 + k) * unit, "ptok": 1000 + 10 * k,
        }
        for k in range(40)
    ]  # fmt: skip
    log = write(tmp_path / "log.jsonl", *rows)
    text = proposal(log).text
    assert tomllib.loads(text)["map"] == {
        "start": "started", "input_tokens": "ptok", "first_token": "first", "end": "ended",
    }  # fmt: skip
    assert read(log, toml(tmp_path, text)).requests["ttft_us"][0] == pytest.approx(3e5, abs=1)


def test_rates_and_counters_are_no_columns(tmp_path: Path) -> None:
    rows = [
        {"ttft_ms": 50 + k, "prompt_tokens": 90 + k, "hit_ratio": k, "cached_pct": k % 90,
         "decode_rate": 30 + k, "answer_tokens_total": 400 + 9 * k, "wait_count": k}
        for k in range(40)
    ]  # fmt: skip
    said = tomllib.loads(proposal(write(tmp_path / "log.jsonl", *rows)).text)["map"]
    assert said == {"ttft_us": "ttft_ms", "input_tokens": "prompt_tokens"}


def test_nothing_is_proposed_where_nothing_looks_right(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", *({"colour": "red", "size": k} for k in range(9)))
    result = run("inspect", log)
    assert result.exit_code == 2
    assert "no reader knows this log" in result.stderr


def test_a_proposal_is_not_written_over_the_log(odd: str) -> None:
    before = Path(odd).read_bytes()
    result = run("inspect", odd, "--propose", odd)
    assert result.exit_code == 2
    assert Path(odd).read_bytes() == before


@given(st.text())
def test_a_name_survives_toml(text: str) -> None:
    line = quoted(text)
    assert line.isascii()
    assert line.isprintable()
    if not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        assert tomllib.loads(f"a = {line}")["a"] == text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).map(lambda s: s + "_tok"),
        min_size=1, max_size=6, unique=True,
    )
)  # fmt: skip
def test_hostile_names_make_sound_proposals(names: list[str]) -> None:
    from ttftdoctor.sources import Head, Shape

    rows = tuple(
        {"ttft_ms": 20 + k, **dict.fromkeys(names, k), "secret": "\x1b[31m"} for k in range(12)
    )
    head = Head("log", Shape.JSON, columns=tuple(rows[0]), records=rows)
    found = propose(head)
    assert found is not None
    assert found.text.isascii()
    assert all(line.isprintable() for line in found.text.splitlines())
    said = tomllib.loads(found.text)
    assert set(said["map"].values()) <= set(rows[0])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=6), min_size=1, max_size=8))
def test_any_records_have_a_sound_proposal_or_none(rows: list[dict[str, Any]]) -> None:
    from ttftdoctor.sources import Head, Shape

    head = Head("log", Shape.JSON, columns=tuple(dict.fromkeys(k for r in rows for k in r)),
                records=tuple(rows))  # fmt: skip
    found = propose(head)
    if found is not None:
        assert tomllib.loads(found.text)["map"]
        assert found.text.isascii()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(MAPPING)), st.integers(0, 12), st.text(max_size=6))
def test_a_damaged_mapping_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: int, put: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    text = MAPPING[:at] + put + MAPPING[at + cut :]
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    said = ""
    try:
        assert read_mapping(path).columns
    except UsageError as error:
        said = str(error)
    assert not said or "damaged.toml" in said


# --- time zones ---------------------------------------------------------------------------------


def stamped(tmp_path: Path, *stamps: str) -> str:
    return write(tmp_path / "t.jsonl", *({"ttft_ms": 20, "start": s} for s in stamps))


def starts(log: Log) -> list[str | None]:
    return [
        None if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%d %H:%M")
        for us in log.requests["start"]
    ]


def test_stamps_without_a_zone_are_read_in_the_one_given(tmp_path: Path) -> None:
    path = stamped(tmp_path, "2026-07-01 10:00:00", "2026-01-01 10:00:00", "2026-07-01T10:00:00Z")
    found = ttftdoctor.read(path, timezone="America/New_York")
    assert starts(found) == ["01 14:00", "01 15:00", "01 10:00"]
    assert any("were read in America/New_York (--timezone)" in note for note in found.notes)
    assert starts(read_log([path])) == ["01 10:00", "01 10:00", "01 10:00"]


@pytest.mark.parametrize("copies", [1, 1500])
def test_hours_that_come_twice_or_never_are_told(tmp_path: Path, copies: int) -> None:
    """In a small log and in one that is read by whole columns."""
    stamps = ["2026-10-25 02:30:00", "2026-03-29 02:30:00", "2026-03-29 12:00:00"] * copies
    found = ttftdoctor.read(stamped(tmp_path, *stamps), timezone="Europe/Berlin")
    assert starts(found)[:3] == ["25 00:30", None, "29 10:00"]
    twice, never = (f"{copies:,} stamps lie in the hour that the clocks of Europe/Berlin {end}"
                    for end in ("show twice", "leave out"))  # fmt: skip
    assert any(twice in text for text in found.warnings)
    assert any(never in text for text in found.warnings)


def test_a_zone_that_nobody_needs_is_told(tmp_path: Path) -> None:
    found = ttftdoctor.read(stamped(tmp_path, "2026-07-01T10:00:00Z"), timezone="Asia/Tokyo")
    assert any("none lacks a zone" in note for note in found.notes)


def test_other_formats_are_read_in_the_zone_too() -> None:
    """LightLLM stamps its lines in local time."""
    path = str(ROOT / "sample_logs" / "lightllm.log")
    east, utc = (ttftdoctor.read(path, timezone=zone) for zone in ("Asia/Tokyo", None))
    shift = utc.requests["start"] - east.requests["start"]
    assert set(shift.drop_nulls()) == {9 * 3_600_000_000}


@pytest.mark.parametrize("zone", ["Mars/Berlin", "berlin", "", "../etc/passwd"])
def test_an_unknown_zone(tmp_path: Path, zone: str) -> None:
    result = run("inspect", stamped(tmp_path, "2026-07-01"), "--timezone", zone)
    assert result.exit_code == 2
    assert "there is no time zone" in result.stderr


def test_the_option_wins_over_the_zone_of_the_mapping(tmp_path: Path) -> None:
    path = stamped(tmp_path, "2026-07-01 10:00:00")
    file = toml(tmp_path, '[map]\nstart = "start"\n[time]\ntimezone = "Asia/Tokyo"\n')
    assert starts(read(path, file)) == ["01 01:00"]
    assert starts(read(path, file, "UTC")) == ["01 10:00"]


def test_reports_show_times_in_the_zone_and_name_it() -> None:
    shown = run("diagnose", str(PEAK), "--timezone", "Asia/Kolkata", "--no-color").stdout
    assert "2026-03-10 14:30+05:30" in shown
    assert "times are shown in Asia/Kolkata" in shown
    assert "09:00Z" not in shown
    plain = json.loads(
        run("diagnose", str(PEAK), "--timezone", "Asia/Kolkata", "--json", "-").stdout
    )
    assert plain["population"]["start"].endswith("Z")


@pytest.mark.parametrize("since", ["2026-03-10 17:00", "17:00", "2026-03-10T16:00:00Z"])
def test_windows_are_read_in_the_zone(since: str) -> None:
    """An hour later in Berlin than in London is the same hour."""
    found = json.loads(run("inspect", str(PEAK), "--since", since, "--timezone", "Europe/Berlin",
                           "--json").stdout)  # fmt: skip
    plain = json.loads(run("inspect", str(PEAK), "--since", "16:00", "--json").stdout)
    assert found["inputs"][0]["rows_used"] == plain["inputs"][0]["rows_used"]


def test_a_window_at_an_hour_that_never_was() -> None:
    result = run("inspect", str(PEAK), "--since", "2026-03-29 02:30", "--timezone", "Europe/Berlin")
    assert result.exit_code == 2
    assert "the clocks of Europe/Berlin never show" in result.stderr


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "Asia/Kolkata"])
def test_expressions_are_read_in_the_zone(zone: str) -> None:
    whole = read_log([str(PEAK)])
    hours = Counter(
        datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)).hour for at in whole.requests["start"]
    )
    hour, n = hours.most_common(1)[0]
    first = datetime.fromtimestamp(min(whole.requests["start"]) / 1e6, ZoneInfo(zone))
    bound = (first + timedelta(minutes=30)).replace(microsecond=0)
    later = sum(at >= bound.timestamp() * 1e6 for at in whole.requests["start"])
    naive = bound.replace(tzinfo=None).isoformat(" ")
    with reading_as(timezone=zone):
        assert kept(whole, Only(where=f"hour == {hour}")).requests.height == n
        assert kept(whole, Only(where=f'start >= "{naive}"')).requests.height == later
        window = kept(whole, Only(since=naive))
        found = contrast_log(whole, f'start >= "{naive}"', None, min_rows=1, top=5)
    assert window.requests.height == later
    offset = f"{bound:%z}"
    assert any(f"{naive}{offset[:3]}:{offset[3:]} on" in note for note in window.notes)
    assert found.selected == later
    assert f"times and hours are those of {zone}" in found.notes


def test_an_expression_at_an_hour_that_never_was() -> None:
    with reading_as(timezone="Europe/Berlin"), pytest.raises(UsageError, match="never show"):
        kept(read_log([str(PEAK)]), Only(where='start > "2026-03-29 02:30"'))


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_windows_to_the_edges_of_the_calendar(zone: str) -> None:
    log = read_log([str(PEAK)])
    with reading_as(timezone=zone):
        for only in (Only(until="9999-12-31T23:59"), Only(since="0001-01-01")):
            assert kept(log, only).requests.height == log.requests.height
        for only in (Only(since="9999-12-31T23:59"), Only(until="0001-01-01")):
            with pytest.raises(UsageError, match="no row is left"):
                kept(log, only)


def test_in_zone_follows_the_clocks() -> None:
    diagnosis = ttftdoctor.diagnose(str(PEAK), draw=False)
    moved = in_zone(diagnosis, "America/New_York")  # two days after its clocks changed
    assert moved.population.start == "2026-03-10T05:04:51-04:00"
    assert in_zone(diagnosis, None) is diagnosis


# --- one run ------------------------------------------------------------------------------------


def test_what_was_said_holds_for_one_run_only(odd: str, tmp_path: Path, away: Path) -> None:
    file = toml(tmp_path, MAPPING)
    with reading_as(mapping=file, timezone="Asia/Tokyo"):
        assert manner().arguments() == ("--mapping", file, "--timezone", "Asia/Tokyo")
        assert read_log([odd]).requests.height == 400
    assert manner().arguments() == ()
    with pytest.raises(UnknownFormat):
        read_log([odd])


def test_the_experiment_names_the_mapping(odd: str, tmp_path: Path) -> None:
    file = toml(tmp_path, MAPPING)
    found = json.loads(run("diagnose", odd, "--mapping", file, "--json", "-", "-q").stdout)
    experiment = found["verdict"]["experiment"]
    if experiment is not None and experiment["command"] is not None:
        assert f"--mapping {file}" in experiment["command"]


@pytest.mark.parametrize(
    "command",
    [
        ["diagnose", "LOG"], ["inspect", "LOG"], ["contrast", "LOG", "--select", "ttft > p90"],
        ["compare", "LOG", "LOG"], ["prefix", "LOG"], ["convert", "LOG", "-o", "OUT"],
        ["baseline", "LOG", "-o", "BASE"],
    ],
)  # fmt: skip
def test_every_command_reads_by_the_mapping(odd: str, tmp_path: Path, command: list[str]) -> None:
    names = {"LOG": odd, "OUT": str(tmp_path / "o.csv"), "BASE": str(tmp_path / "b.json")}
    result = run(*(names.get(word, word) for word in command), "--mapping", toml(tmp_path, MAPPING))
    assert result.exit_code == 0, result.output


def test_the_example_is_sound() -> None:
    found = read_mapping(ROOT / "examples" / "mapping.toml")
    assert found.columns["ttft_us"]
    assert found.timezone is not None
