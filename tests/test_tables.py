"""CSV tables, the page of metrics, and the size of the Markdown: whatever a log calls itself."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import diagnoses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families as metrics_of
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, Input, Slice
from ttftdoctor.outputs import csv_tables, openmetrics
from ttftdoctor.outputs.csv_tables import COLUMNS, guarded
from ttftdoctor.report import clean, markdown

ROOT = Path(__file__).parents[1]
PEAK = str(ROOT / "sample_logs" / "peak_hour.jsonl")
HEALTHY = str(ROOT / "sample_logs" / "healthy.jsonl")
EVERY = pytest.mark.parametrize("name", sorted(diagnoses.ALL))
FORMULA = re.compile(r"\s*[=+\-@\t\r＝＋－＠]")
#: What a comment on GitHub may have.
COMMENT = 65_536


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- CSV ----------------------------------------------------------------------------------------


@EVERY
def test_every_table_is_there_with_its_columns(name: str) -> None:
    made = csv_tables.tables(diagnoses.ALL[name]())
    assert list(made) == list(COLUMNS)
    for file, text in made.items():
        rows = list(csv.reader(io.StringIO(text)))
        assert tuple(rows[0]) == COLUMNS[file], file
        assert all(len(row) == len(COLUMNS[file]) for row in rows), file
        assert "\r" not in text


@EVERY
def test_numbers_are_those_of_the_json_document(name: str) -> None:
    d = diagnoses.ALL[name]()
    made, document = csv_tables.tables(d), d.to_dict()

    def numbers(file: str, rows: list[dict[str, Any]], *columns: str) -> None:
        found = read(made[file])
        assert len(found) == len(rows), file
        for got, want in zip(found, rows, strict=True):
            for column in columns:
                value = want[column]
                assert got[column] == ("" if value is None else str(value)), (file, column)

    for split in ("by_turn", "by_input_length", "turn_by_length", "by_hour"):
        columns = ("n", "input_p50", "ttft_p50_s", "ttft_p95_s", "tpot_p50_s")
        numbers(f"{split}.csv", document["splits"][split], *columns)
    order = {row["id"]: row for row in document["causes"]}
    rows = [order[row["id"]] for row in read(made["causes.csv"])]
    numbers("causes.csv", rows, "status", "seconds", "share_of_ttft", "confidence")
    for row in read(made["ledger.csv"]):
        want = document["ledger"][row["group"]]
        accounts = [float(row[account]) for account in ACCOUNTS if row[account]]
        assert accounts == [want["accounts"][a] for a in ACCOUNTS if a in want["accounts"]]
        assert sum(accounts) == pytest.approx(float(row["ttft_mean_s"]), abs=2e-3)
    (summary,) = read(made["summary.csv"])
    assert summary["primary_cause"] == document["verdict"]["primary_cause"]
    assert summary["requests"] == str(document["population"]["requests"])
    for row in read(made["inputs.csv"]):
        used = int(row["rows_used"]) + int(row["rows_rejected"])
        assert int(row["rows_read"]) == used


@EVERY
def test_no_cell_is_a_formula_or_a_command(name: str) -> None:
    for file, text in csv_tables.tables(diagnoses.ALL[name]()).items():
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                if FORMULA.match(cell):
                    float(cell)  # a number below zero is none
                assert cell.isprintable(), (file, cell)


@given(st.text(max_size=60) | st.from_regex(r"\A[=+\-@'\t\r\n \u00a0＝＋－＠][^\x00]{0,20}\Z"))
def test_any_text_becomes_text(text: str) -> None:
    cell = guarded(text)
    assert not FORMULA.match(cell)
    assert cell.isprintable()
    # Taking one apostrophe away gives the text back, with what cannot be seen spelled out.
    bare = cell.removeprefix("'")
    assert clean(text) in (cell, bare)
    if cell != clean(text):
        assert bare == clean(text)


@pytest.mark.parametrize(
    "bad", ["=1+1", "+1", "-1", "@SUM(A1)", "'=1", "\t=1", "\r=1", " =1", "＝1"]
)
def test_formulas_are_guarded(bad: str) -> None:
    assert guarded(bad)[0] in "'\\"
    assert guarded("a=1") == "a=1"
    assert guarded("−74 %") == "−74 %"
    assert guarded("") == ""


def hostile_log(path: Path) -> str:
    """A log whose names are formulas, escapes and quotes, with sessions, replicas and models."""
    bad = ['=cmd|"/C calc"!A0', "+1", "@x", '"a","b', "x\ny", "\x1b[31mred", '{a="b"}\\', "-2+3"]
    rows = []
    for at in range(240):
        turn = at % 6 + 1
        rows.append(
            {"request_id": f"{bad[at % 8]}{at}", "session_id": f"{bad[at // 6 % 8]}{at // 6}",
             "turn": turn, "timestamp": 1_767_261_600 + 40 * at, "model": bad[at // 6 % 3],
             "replica": bad[at % 8], "tenant": bad[at % 5], "route": bad[at % 7],
             "input_tokens": 900 * turn + at % 13, "output_tokens": 60 + at % 7,
             "ttft_ms": 80 + 90 * turn + at % 11, "e2e_ms": 2_000 + 90 * turn}
        )  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)) + "\nno JSON\n", encoding="utf-8")
    return str(path)


def test_tables_of_a_hostile_log(tmp_path: Path) -> None:
    log = hostile_log(tmp_path / "log.jsonl")
    result = run("diagnose", log, "--csv", str(tmp_path / "new" / "tables"), "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    made = {path.name: path.read_text("utf-8") for path in (tmp_path / "new/tables").iterdir()}
    assert set(made) == set(COLUMNS)
    for text in made.values():
        for row in csv.reader(io.StringIO(text)):
            assert all(cell.isprintable() for cell in row)
            assert not [c for c in row if FORMULA.match(c) and not re.fullmatch(r"-[\d.e+-]+", c)]
    assert read(made["rejected.csv"]) == [
        {"path": log, "what": "row", "reason": "not_json", "rows": "1"}
    ]
    assert len(read(made["by_replica.csv"])) == 8
    assert read(made["worst_requests.csv"])
    sessions = [float(row["prefill_s"]) for row in read(made["worst_sessions.csv"])]
    assert sessions == sorted(sessions, reverse=True)


def test_the_report_is_printed_beside_the_tables(tmp_path: Path) -> None:
    result = run("diagnose", HEALTHY, "--csv", str(tmp_path / "t"), "--json", str(tmp_path / "j"))
    assert "HEALTHY" in result.stdout
    assert f"written: {tmp_path / 't'}" in result.stderr
    assert f"written: {tmp_path / 'j'}" in result.stderr


def test_tables_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        result = run("diagnose", HEALTHY, "--csv", str(target))
        assert result.exit_code == 2
        assert "cannot write the tables" in result.stderr
    (tmp_path / "t").mkdir()
    log = tmp_path / "t" / "causes.csv"
    log.write_bytes(Path(HEALTHY).read_bytes())
    result = run("diagnose", str(log), "--csv", str(tmp_path / "t"))
    assert result.exit_code == 2
    assert "would be written over what is read" in result.stderr


# --- metrics ------------------------------------------------------------------------------------


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of a page, read by the parser of OpenMetrics."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in openmetrics_of(page):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


@EVERY
def test_the_page_is_openmetrics_and_the_older_text(name: str) -> None:
    page = openmetrics.render(diagnoses.ALL[name]())
    assert page.endswith("\n# EOF\n")
    found = samples(page)
    older = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in metrics_of(page)
        for sample in family.samples
    }
    assert found == older
    assert all(re.fullmatch(r"ttftdoctor_[a-z0-9_]+", series) for series, _ in found)
    # The collector that reads the older text knows no other type and refuses time stamps.
    types = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
    assert {kind for _, kind in types} == {"gauge"}
    assert len({family for family, _ in types}) == len(types)
    for line in page.splitlines():
        assert line.startswith("# ") or re.fullmatch(r"\w+(\{.*\})? -?[\d.e+-]+", line), line
        assert line.isprintable()


def test_the_figures_of_the_page() -> None:
    d = diagnoses.sick()
    found = samples(openmetrics.render(d))

    def value(name: str, **labels: str) -> float | None:
        return found.get((f"ttftdoctor_{name}", frozenset(labels.items())))

    p = d.population
    assert value("ttft_seconds", quantile="0.5") == p.ttft_p50_s
    assert value("ttft_seconds", quantile="0.95") == p.ttft_p95_s
    assert value("ttft_mean_seconds") == p.ttft_mean_s
    assert value("requests") == p.requests
    assert value("primary_cause", cause="repeated_prefix_no_reuse") == 1
    causes = [v for (name, _), v in found.items() if name == "ttftdoctor_primary_cause"]
    assert sum(causes) == 1
    assert len(causes) == len(d.causes)
    assert value("verdict_confidence_ratio") == d.verdict.confidence
    for row in d.ledger:
        parts = [value("ledger_seconds", group=row.group, account=a) or 0 for a in row.accounts]
        assert sum(parts) == pytest.approx(row.ttft_mean_s, abs=2e-3)
        shares = [value("ledger_share_ratio", group=row.group, account=a) for a in row.accounts]
        assert sum(share or 0 for share in shares) == pytest.approx(1, abs=2e-3)
    rejected = [v for (name, _), v in found.items() if name == "ttftdoctor_rows_rejected"]
    assert value("rows_read") == (value("rows_used") or 0) + sum(rejected)
    assert value("log_start_timestamp_seconds") is not None
    for remedy in d.remedies:
        assert value("remedy_gain_ratio", remedy=remedy.id) == remedy.gain_share
    assert "nan" not in openmetrics.render(d).lower()


def test_the_number_of_series_does_not_grow_with_the_log() -> None:
    d = diagnoses.sick()
    many = dataclasses.replace(
        d,
        inputs=tuple(
            Input(f"log-{i}.jsonl", "flat", 30, 10, {f"reason {i}": 20 - i % 7, "same": i % 7})
            for i in range(2_000)
        ),
    )
    found = samples(openmetrics.render(many))
    assert len(found) < len(samples(openmetrics.render(d))) + openmetrics.MOST_REASONS + 1
    rejected = {
        dict(labels)["reason"]: v for (name, labels), v in found.items()
        if name == "ttftdoctor_rows_rejected"
    }  # fmt: skip
    assert len(rejected) == openmetrics.MOST_REASONS + 1
    assert sum(rejected.values()) == 40_000
    assert rejected["same"] == sum(i % 7 for i in range(2_000))


def test_metrics_of_a_hostile_log(tmp_path: Path) -> None:
    log = hostile_log(tmp_path / "log.jsonl")
    target = tmp_path / "ttft.prom"
    result = run("diagnose", log, "--openmetrics", str(target), "--slo-ttft", "300ms", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    page = target.read_text("utf-8")
    assert all(line.isprintable() for line in page.splitlines())
    found = samples(page)
    assert found["ttftdoctor_rows_read", frozenset()] == 241
    assert found["ttftdoctor_slo_target_seconds", frozenset()] == 0.3


@pytest.mark.parametrize("scope", ['a"b\\', "x\ny", '{le="1"} 5', "\x1b[0m", "中文"])
def test_labels_are_escaped(scope: str) -> None:
    d = diagnoses.sick()
    verdict = dataclasses.replace(d.verdict, scope={"tenant": scope}, family=scope)
    page = openmetrics.render(dataclasses.replace(d, verdict=verdict))
    assert all(line.isprintable() for line in page.splitlines())
    found = samples(page)
    (labels,) = [dict(labels) for name, labels in found if name == "ttftdoctor_verdict"]
    assert labels["scope"] == f"only tenant {clean(scope)}"
    assert labels["family"] == clean(scope)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    target = tmp_path / "ttft.prom"
    target.write_text("# EOF\n")
    page = openmetrics.render(diagnoses.sick())
    from ttftdoctor.cli.output import put_at_once

    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(target.read_text())

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(50):
        put_at_once(page, str(target))
        put_at_once("# EOF\n", str(target))
    done.set()
    watcher.join()
    assert seen <= {page, "# EOF\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["ttft.prom"]


def test_a_new_file_may_be_read_by_others(tmp_path: Path) -> None:
    # The collector is another user: a temporary file's own mode would shut it out.
    before = os.umask(0o022)
    try:
        run("diagnose", HEALTHY, "--openmetrics", str(tmp_path / "t.prom"), "-q")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "t.prom").stat().st_mode) == 0o644


def test_metrics_to_standard_output_and_through_a_link(tmp_path: Path) -> None:
    result = run("diagnose", HEALTHY, "--openmetrics", "-")
    assert result.exit_code == 0
    assert samples(result.stdout)
    (tmp_path / "real.prom").write_text("old")
    (tmp_path / "link.prom").symlink_to(tmp_path / "real.prom")
    run("diagnose", HEALTHY, "--openmetrics", str(tmp_path / "link.prom"), "-q")
    assert (tmp_path / "link.prom").is_symlink()
    assert (tmp_path / "real.prom").read_text("utf-8") == result.stdout


def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "no" / "such" / "x.prom"):
        result = run("diagnose", HEALTHY, "--openmetrics", str(target))
        assert result.exit_code == 2
        assert "cannot write" in result.stderr
    result = run("diagnose", HEALTHY, "--openmetrics", "-", "--json", "-")
    assert result.exit_code == 2


# --- Markdown that fits a comment ---------------------------------------------------------------


def many(d: Diagnosis, n: int) -> Diagnosis:
    """The same with so many of everything that a log can have many of, in long names."""
    name = "@team [x](https://example.org) <b>" + "ж" * 200
    slices = tuple(
        Slice({"replica": f"{name}{i}"}, 5, 100.0, 90.0, 0.3, 0.9, 0.03) for i in range(n)
    )
    models = tuple(dataclasses.replace(s, key={"model": s.key["replica"]}) for s in slices)
    turns = tuple(dataclasses.replace(s, key={"turn": i}) for i, s in enumerate(slices))
    return dataclasses.replace(
        d,
        inputs=tuple(
            Input(f"{name}{i}.jsonl", "flat", 9, 7, {f"{name}": 2}, ((3, name), (4, name)))
            for i in range(n)
        ),
        splits=dataclasses.replace(
            d.splits, by_replica=slices, by_model=models, by_turn=turns, by_hour=turns
        ),
        warnings=tuple(f"{name} {i}" for i in range(n)),
        evidence=dataclasses.replace(d.evidence, notes=tuple(f"{name} {i}" for i in range(n))),
    )


@EVERY
@pytest.mark.parametrize("n", [50, 3_000])
def test_markdown_fits_a_comment_whatever_the_log(name: str, n: int) -> None:
    text = markdown.render(many(diagnoses.ALL[name](), n))
    assert len(text) <= COMMENT
    assert len(text.encode("utf-16-le")) // 2 <= COMMENT
    assert len(text.encode()) <= markdown.LIMIT
    # What is left out is counted.
    assert re.search(r"… [\d,]+ more", text) or re.search(r"Left out here .*\(\d[\d,]* line", text)
    assert f"… {n - markdown.LINES:,} more in `--json`." in text
    assert text.count("<details>") == text.count("</details>")
    assert "@team" not in text
    assert "https://" not in text


def test_the_largest_parts_are_left_out_and_named_with_their_lines() -> None:
    details = [(f"Part {i}", "\n".join([f"line {j} of {i}" for j in range(900 * i)]))
               for i in range(1, 6)]  # fmt: skip
    text = markdown.fitted(["head"], details)
    assert len(text.encode()) <= markdown.LIMIT
    assert text.startswith("head\n\nline 0 of 1\n")
    assert "Left out here for size: Part 5 (4,500 lines)" in text
    assert text.endswith("; see `--json`.\n")


def test_a_head_that_is_too_long_is_cut_and_the_rest_counted() -> None:
    lines = [f"- {'x' * 600} {i}" for i in range(300)]
    text = markdown.fitted(["\n".join(lines)], [])
    assert len(text.encode()) <= markdown.LIMIT
    kept = text.count("xxx ")
    assert f"\n{300 - kept} lines more are left out here for size; see `--json`.\n" in text


def test_a_log_of_thousands_of_replicas_models_and_tenants(tmp_path: Path) -> None:
    rows = [
        {"request_id": f"r{i}", "session_id": f"s{i // 3}", "timestamp": 1_767_261_600 + i,
         "model": f"model-{i % 1_500}-" + "m" * 80, "replica": f"replica-{i % 2_000}-" + "r" * 80,
         "tenant": f"tenant-{i % 2_500}-" + "t" * 80, "input_tokens": 500 + i % 900,
         "output_tokens": 40, "ttft_ms": 100 + i % 300, "e2e_ms": 1_500}
        for i in range(6_000)
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)) + "\n")
    target = tmp_path / "report.md"
    result = run("diagnose", str(log), "--markdown", str(target), "--quiet")
    assert result.exit_code == 0
    text = target.read_text("utf-8")
    assert len(text) <= COMMENT
    assert len(text) > 2_000


# --- without being asked ------------------------------------------------------------------------


def test_neither_is_loaded_unless_asked_for() -> None:
    code = (
        "import sys\nfrom ttftdoctor.cli import app\nfrom typer.testing import CliRunner\n"
        f"CliRunner().invoke(app, ['diagnose', {HEALTHY!r}, '--json', '-'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('ttftdoctor.outputs.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_tables_from_python() -> None:
    d = ttftdoctor.diagnose(PEAK)
    assert samples(ttftdoctor.to_openmetrics(d))
    turns = read(ttftdoctor.to_csv(d)["by_turn.csv"])
    assert [row["turn"] for row in turns] == [str(n) for n in range(1, 11)]
    sessions = read(csv_tables.tables(d)["worst_sessions.csv"])
    assert sessions[0]["session_id"] == "chat-0220"
