"""The command: exit codes, one clear message on stderr, no traceback, clean output for pipes."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app

ROOT = Path(__file__).parents[1]
SAMPLES = sorted(p for p in (ROOT / "sample_logs").iterdir() if p.is_file() and p.suffix != ".py")
HEALTHY = str(ROOT / "sample_logs" / "healthy.jsonl")
FLAT = str(ROOT / "sample_logs" / "flat.jsonl")
SCHEMA = Path(ttftdoctor.__file__).parent / "schema" / "diagnosis-1.schema.json"
#: An escape sequence, or any other control character that a terminal would obey.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def run(*arguments: str, stdin: bytes | None = None) -> Any:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def real(
    *arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "ttftdoctor", *arguments],
        capture_output=True, input=stdin, timeout=120, check=False, env=env,
    )  # fmt: skip


def refused(result: Any, *words: str) -> str:
    """Exit code 2, nothing on stdout, and one message on stderr with these words."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("error:") == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    return result.stderr


def flat(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


# --- exit codes and messages --------------------------------------------------------------------


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_the_work_done_is_exit_code_0_whatever_the_verdict(path: Path) -> None:
    for command in ("diagnose", "inspect"):
        result = run(command, str(path))
        assert result.exit_code == 0
        assert result.stdout.strip()
        assert result.stderr == ""


def test_a_missing_file() -> None:
    refused(run("diagnose", "no/such/log.jsonl"), "no/such/log.jsonl", "no such file")


def test_an_empty_file(tmp_path: Path) -> None:
    for name, content in (("a", b""), ("b", b" \n\n"), ("c.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        refused(run("diagnose", str(tmp_path / name)), str(tmp_path / name), "empty")


def test_a_folder_without_logs(tmp_path: Path) -> None:
    refused(run("diagnose", str(tmp_path)), "the folder holds no log")
    refused(run("diagnose", str(tmp_path / "*.jsonl")), "no file matches")


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF\x02\x01\x01" + bytes(64), b"SQLite format 3\x00" + bytes(90), b"PAR1" + bytes(60)],
    ids=["elf", "sqlite", "torn parquet"],
)
def test_a_binary_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    refused(run("diagnose", str(tmp_path / "log")), str(tmp_path / "log"))


@pytest.mark.parametrize("keep", [20, 200])
def test_a_torn_gzip_file_is_read_as_far_as_it_goes_or_refused(tmp_path: Path, keep: int) -> None:
    packed = gzip.compress(Path(HEALTHY).read_bytes())
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) * keep // 400])
    result = run("diagnose", str(tmp_path / "log.gz"), "--json", "-")
    if result.exit_code == 0:
        (warning,) = [w for w in json.loads(result.stdout)["warnings"] if "damaged" in w]
        assert "what came before was read" in warning
    else:
        refused(result, "damaged")


def test_an_unknown_format(tmp_path: Path) -> None:
    text = refused(
        run("diagnose", flat(tmp_path / "log", {"colour": 1}, {"colour": 2})),
        "no reader knows this log", "colour", "--map", "--format",
    )  # fmt: skip
    for reader in ("flat", "otlp", "vllm-bench"):
        assert reader in text


def test_a_format_that_does_not_exist() -> None:
    refused(run("diagnose", HEALTHY, "--format", "nonsense"), "'nonsense'", "available:", "flat")


def test_a_file_of_prose(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dear diary,\ntoday the first token was late.\n")
    refused(run("diagnose", str(tmp_path / "notes.txt")), "no reader knows this log")


def test_an_ambiguous_unit(tmp_path: Path) -> None:
    log = flat(tmp_path / "log", *[{"ttft": v, "prompt_tokens": 90} for v in (22, 31, 48, 40)])
    refused(run("diagnose", log), "'ttft'", "--unit ttft=ms")
    assert run("diagnose", log, "--unit", "ttft=ms").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--unit", "ttft_ms=fortnight"], ["'fortnight'", "ns, us, ms, s"]),
        (["--unit", "ttft_ms"], ["--unit", "NAME=VALUE"]),
        (["--map", "ttft_us"], ["--map", "NAME=VALUE"]),
        (["--map", "ttft_us=nowhere"], ["'nowhere'", "ttft_ms"]),
        (["--map", "nothing=ttft_ms"], ["'nothing'", "input_tokens"]),
        (["--slo-ttft", "soon"], ["--slo-ttft", "800ms"]),
        (["--slo-ttft", "800"], ["wants a unit", "800ms"]),
        (["--params", "7e9"], ["belong together"]),
        (["--params", "-1", "--flops", "1", "--bandwidth", "1"], ["--params", "above zero"]),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], words: list[str]) -> None:
    refused(run("diagnose", FLAT, *arguments), *words)


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in (["diagnose"], ["nonsense"], ["diagnose", FLAT, "--compact-to", "0"]):
        result = real(*arguments)
        assert result.returncode == 2
        assert b"Traceback" not in result.stderr
        assert result.stderr


@pytest.mark.parametrize("option", ["--html", "--json", "--markdown"])
def test_a_target_that_cannot_be_written(tmp_path: Path, option: str) -> None:
    for target in (tmp_path, tmp_path / "no" / "such" / "folder" / "x"):
        refused(run("diagnose", FLAT, option, str(target)), str(target), "cannot write")


@pytest.mark.parametrize(
    "arguments",
    [["diagnose", "no/such/log"], ["diagnose", FLAT, "--html", "/no/such/folder/x.html"]],
)
def test_a_refusal_in_a_process_of_its_own(arguments: list[str]) -> None:
    done = real(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m ttftdoctor diagnose {HEALTHY} --html - | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr
    assert b"Error" not in done.stderr
    assert len(done.stdout) == 10


# --- output -------------------------------------------------------------------------------------


@cache
def schema() -> dict[str, Any]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_json_keeps_to_the_schema(path: Path) -> None:
    result = run("diagnose", str(path), "--json", "-")
    assert result.exit_code == 0
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    jsonschema.validate(document, schema())
    assert document["schema"] == "ttftdoctor.diagnosis/1"
    assert document["inputs"][0]["path"] == str(path)


def test_json_with_all_options_keeps_to_the_schema() -> None:
    result = run(
        "diagnose", HEALTHY, "--json", "-", "--slo-ttft", "0.25s", "--params", "70e9",
        "--flops", "3.2e15", "--bandwidth", "1.3e13", "--compact-to", "2000",
    )  # fmt: skip
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema())
    assert document["slo"]["target_s"] == 0.25
    assert 0.4 < document["slo"]["attainment"] < 0.7
    assert document["floor"]["prefill_times_floor"] > 1


def test_standard_input_plain_and_packed() -> None:
    data = Path(HEALTHY).read_bytes()
    want = json.loads(run("diagnose", HEALTHY, "--json", "-").stdout)
    for content in (data, gzip.compress(data)):
        done = real("diagnose", "-", "--json", "-", stdin=content)
        assert (done.returncode, done.stderr) == (0, b"")
        got = json.loads(done.stdout)
        assert got["inputs"][0].pop("path") == "-"
        assert HEALTHY not in json.dumps(got)
        named = json.loads(json.dumps(want).replace(json.dumps(HEALTHY)[1:-1], "-"))
        named["inputs"][0].pop("path")
        said = got["verdict"]["experiment"].pop("text")
        assert said.startswith(named["verdict"]["experiment"].pop("text"))
        assert "pipe it in again" in said
        for cause in (*got["causes"], *named["causes"]):
            if cause["worked_example"] is not None:
                cause["worked_example"].pop("text")
        assert got == named


def test_files_are_written_and_the_report_still_shown(tmp_path: Path) -> None:
    targets = {name: tmp_path / f"out.{name}" for name in ("html", "json", "markdown")}
    options = [word for name, path in targets.items() for word in (f"--{name}", str(path))]
    result = run("diagnose", HEALTHY, *options)
    assert result.exit_code == 0
    assert "healthy" in result.stdout
    for path in targets.values():
        assert path.stat().st_size > 1000
        assert str(path) in result.stderr
    assert targets["html"].read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    json.loads(targets["json"].read_text(encoding="utf-8"))


def test_quiet_says_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    result = run("diagnose", HEALTHY, "--quiet", "--json", str(target))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert target.stat().st_size > 1000
    # What was asked for on stdout is no noise, and neither is an error.
    assert json.loads(run("diagnose", HEALTHY, "-q", "--json", "-").stdout)
    assert run("diagnose", "no/such", "--quiet").stderr.startswith("error:")


@pytest.mark.parametrize(
    "arguments",
    [["diagnose", HEALTHY], ["inspect", FLAT], ["formats"],
     ["roofline", "--params", "7e9", "--flops", "312e12", "--bandwidth", "2e12"]],
    ids=lambda a: a[0],
)  # fmt: skip
def test_no_color_means_none(arguments: list[str]) -> None:
    """Not even where the surroundings ask for colour."""
    import os

    loud = {**os.environ, "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"}
    done = real(*arguments, "--no-color", env=loud)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
    plain = real(*arguments, env={**os.environ, "TERM": "xterm-256color"})
    assert b"\x1b" not in plain.stdout + plain.stderr


def test_progress_is_for_terminals() -> None:
    done = real("diagnose", HEALTHY)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"reading" not in done.stdout


def test_inspect_as_json() -> None:
    document = json.loads(run("inspect", FLAT, "--json").stdout)
    assert document["schema"] == "ttftdoctor.inspection/1"
    assert document["columns"]["ttft_us"]["source"] == "ttft_ms"
    assert document["columns"]["ttft_us"]["unit"] == "ms"
    (one,) = document["inputs"]
    assert one["rows_read"] == one["rows_used"] + sum(one["rows_rejected"].values()) == 24
    assert one["rows_rejected"] == {
        "failed_request": 1, "negative_ttft": 1, "not_a_number:ttft_ms": 1, "not_json": 1,
        "wrong_type:prompt_tokens": 1,
    }  # fmt: skip


def test_inspect_names_the_place_of_each_reject() -> None:
    text = run("inspect", FLAT, "--no-color").stdout
    for line in (
        "rows read 24 = used 19 + rejected 5",
        "not_json (first at 13)",
        "negative_ttft (first at 15)",
        "TTFT not used in 1: not_streamed",
    ):
        assert line in text


def test_formats_lists_every_reader() -> None:
    from ttftdoctor.catalog import readers

    names = [r.name for r in readers()]
    assert [row["name"] for row in json.loads(run("formats", "--json").stdout)] == names
    text = run("formats").stdout
    assert all(name in text for name in names)


def test_version() -> None:
    assert re.fullmatch(r"ttftdoctor \d+(\.\d+)*\S*\n", run("--version").stdout)


# --- roofline -----------------------------------------------------------------------------------


def test_roofline_of_the_usual_example() -> None:
    """7e9 parameters of 2 bytes on 312 TFLOP/s and 2 TB/s; 2,000 tokens in, 500 out."""
    machine = ["--params", "7e9", "--flops", "312e12", "--bandwidth", "2e12"]
    r = json.loads(run("roofline", *machine, "--json").stdout)
    assert r["prefill_flop"] == pytest.approx(2.8e13)
    assert r["prefill_ideal_s"] == pytest.approx(0.0897, abs=5e-4)
    low, high = r["prefill_usual_s"]
    assert low == pytest.approx(2 * r["prefill_ideal_s"])
    assert 0.17 < low < high == pytest.approx(0.224, abs=1e-3)
    assert r["decode_flop_per_token"] == pytest.approx(14e9)
    assert r["decode_bytes_per_token"] == pytest.approx(15e9, rel=0.04)
    assert 0.007 < r["decode_ideal_s"] < 0.008
    assert r["decode_flops_use"] < 0.01
    # Bound by arithmetic: the weights are read in a fraction of the prefill.
    assert r["prefill_bandwidth_use"] < 0.1
    text = run("roofline", *machine, "--no-color").stdout
    for words in ("2.8e+13 FLOP", "90 ms", "14 GFLOP", "bound by arithmetic", "bound by bandwidth"):
        assert words in text


def test_a_long_history_takes_as_long_as_its_tokens() -> None:
    """At 200 ms per 2,000 tokens, 99,760 tokens take ten seconds."""
    machine = ["--params", "7e9", "--flops", "312e12", "--bandwidth", "2e12", "--json"]
    short = json.loads(run("roofline", *machine, "--input", "2000").stdout)
    long = json.loads(run("roofline", *machine, "--input", "99760").stdout)
    at_200_ms = 0.2 / short["prefill_ideal_s"] * long["prefill_ideal_s"]
    assert at_200_ms == pytest.approx(10, rel=0.01)
    low, high = long["prefill_usual_s"]
    assert low < 10 < high


@pytest.mark.parametrize("value", ["0", "-5", "nan", "inf"])
@pytest.mark.parametrize("option", ["--params", "--flops", "--bandwidth", "--input", "--output"])
def test_roofline_refuses_what_is_no_quantity(option: str, value: str) -> None:
    good = {"--params": "7e9", "--flops": "312e12", "--bandwidth": "2e12"} | {option: value}
    refused(run("roofline", *[word for pair in good.items() for word in pair]), option)


# --- hostile logs -------------------------------------------------------------------------------

EVIL = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\x1b[2J\x1b]0;owned\x07red\x1b[31m",
    "[bold red]markup[/]",
    "</title></style><!--",
    "line\nbreak\r\x9b31m\u202edrow",
    "| a | b |\n|---|---|",
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def hostile(path: Path, names: Sequence[str] = EVIL) -> str:
    """A log whose every name is an attack, sick enough for all names to be printed."""
    rows = []
    for turn in range(1, 9):
        for k, evil in enumerate(names):
            start = 1_777_629_600 + 60 * turn + 7 * k
            length = 3000 * turn
            rows.append({
                "request_id": evil + str(turn), "session_id": evil, "turn": turn,
                "timestamp": start, "model": evil, "replica": evil, "tenant": evil, "route": evil,
                "version": evil, "prompt_tokens": length, "cached_tokens": 0 if k < 2 else
                max(0, length - 3100), "completion_tokens": 50,
                "ttft_ms": 50 + 0.4 * (length if k < 2 else min(length, 3100)) + k,
                "latency_ms": 9000 + k, evil: evil, "status": "ok",
            })  # fmt: skip
    return flat(path, *rows, {"ttft_ms": "<b>evil</b>\x1b[5m"})


def test_names_of_a_hostile_log_stay_text(tmp_path: Path) -> None:
    log = hostile(tmp_path / "<i>evil\x1b[1m.jsonl")
    page = tmp_path / "page.html"
    shown = run("diagnose", log, "--html", str(page), "--no-color")
    assert shown.exit_code == 0
    checked = run("inspect", log, "--no-color")
    assert checked.exit_code == 0
    for text in (shown.stdout, shown.stderr, checked.stdout, checked.stderr):
        assert CONTROL.search(text) is None, CONTROL.search(text)
        assert "\u202e" not in text
    tags, ours = Tags(), Tags()
    html = page.read_text(encoding="utf-8")
    tags.feed(html)
    # The same log under harmless names gives the same elements, one by one.
    twin = hostile(tmp_path / "twin.jsonl", [f"{i}name" for i in range(len(EVIL))])
    clean = tmp_path / "clean.html"
    assert run("diagnose", twin, "--html", str(clean), "-q").exit_code == 0
    ours.feed(clean.read_text(encoding="utf-8"))
    assert tags.found == ours.found
    assert len(tags.found) > 50
    assert "alert(1)</script>" not in html
    assert "\x1b" not in html


def test_a_hostile_message_of_failure_is_clean(tmp_path: Path) -> None:
    name = "no\x1b[31m<b>\nsuch"
    for arguments in (
        ["diagnose", name],
        ["diagnose", FLAT, "--format", name],
        ["diagnose", FLAT, "--unit", f"{name}=x"],
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert CONTROL.search(result.stderr) is None
    log = flat(tmp_path / "log", {"\x1b[31mred": 1}, {"\x1b[31mred": 2})
    assert CONTROL.search(refused(run("inspect", log))) is None


def test_hostile_names_are_kept_in_json(tmp_path: Path) -> None:
    """JSON is data: it holds the names as they are, escaped by the form itself."""
    result = run("diagnose", hostile(tmp_path / "log"), "--json", "-")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema())
    models = {row["model"] for row in document["splits"]["by_model"]}
    assert models == set(EVIL)
    assert CONTROL.search(result.stdout) is None


@pytest.mark.parametrize(
    "command",
    [
        ["diagnose", "LOG", "--json", "LOG"],
        ["diagnose", "LOG", "--html", "LINK"],
        ["prefix", "LOG", "--markdown", "LOG"],
        ["compare", "LOG", "OTHER", "--json", "OTHER"],
    ],
)
def test_no_report_is_written_over_its_log(tmp_path: Path, command: list[str]) -> None:
    log, other, link = (tmp_path / name for name in ("log.jsonl", "other.jsonl", "link.html"))
    text = (ROOT / "sample_logs" / "healthy.jsonl").read_text(encoding="utf-8")
    log.write_text(text, encoding="utf-8")
    other.write_text(text, encoding="utf-8")
    link.symlink_to(log)
    names = {"LOG": str(log), "OTHER": str(other), "LINK": str(link)}
    result = run(*[names.get(word, word) for word in command])
    assert result.exit_code == 2
    assert "written over what is read" in result.output
    assert log.read_text(encoding="utf-8") == other.read_text(encoding="utf-8") == text


def test_a_target_that_many_miss_is_told_on_the_first_screen() -> None:
    log = str(ROOT / "sample_logs" / "healthy.jsonl")
    missed = run("diagnose", log, "--slo-ttft", "50ms").output.splitlines()[:24]
    assert any(line.startswith("Target") and "met by" in line for line in missed)
    met = run("diagnose", log, "--slo-ttft", "3600s").output.splitlines()[:24]
    assert not any(line.startswith("Target") for line in met)
