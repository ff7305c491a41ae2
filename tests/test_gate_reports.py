"""What the gate writes: every form of every outcome, held to published schemas, and hostile text.

The XML schema is checked where ``xmlschema`` is installed; all else always is.
"""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from checks import ALL, FAIL, HITS, INCONCLUSIVE, INVALID, NASTY, P95, PASS, STRICT, hostile, many
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ttftdoctor.diagnosis import Input
from ttftdoctor.gate.forms import FORMS
from ttftdoctor.gate.records import EXIT_CODES, Check, Scope
from ttftdoctor.gate.reports import fingerprint, moved_by, place, points, shown, span
from ttftdoctor.gate.reports.github import command
from ttftdoctor.gate.reports.sarif import uri_of
from ttftdoctor.gate.reports.terminal import print_to
from ttftdoctor.report.json_report import schema

SCHEMAS = Path(__file__).parent / "data" / "schemas"
SUFFIXES = {
    "json": "json", "markdown": "md", "junit": "xml", "sarif": "sarif", "codequality": "json",
    "github": "txt", "summary": "md", "terminal": "txt",
}  # fmt: skip
#: Anything that a terminal would obey.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def render(form: str, check: Check) -> str:
    return FORMS[form].render(check)


# --- goldens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["fail", "pass", "inconclusive", "invalid"])
def test_golden(form: str, name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"gate/{name}.{form}.{SUFFIXES[form]}", render(form, ALL[name]))


def test_every_form_has_its_goldens() -> None:
    assert set(SUFFIXES) == set(FORMS)


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_json_keeps_to_the_schema(name: str) -> None:
    document = json.loads(render("json", ALL[name]))
    jsonschema.validate(document, schema("check-1"), cls=jsonschema.Draft202012Validator)
    assert document["schema"] == "ttftdoctor.check/1"
    assert document["exit_code"] == ALL[name].exit_code


def test_the_schema_forbids_what_it_does_not_name() -> None:
    document = json.loads(render("json", FAIL))
    document["metrics"][0]["extra"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema("check-1"))


def test_exit_codes() -> None:
    codes = {name: check.exit_code for name, check in ALL.items()}
    assert codes == {"fail": 1, "pass": 0, "inconclusive": 0, "strict": 3, "invalid": 4}
    assert set(EXIT_CODES.values()) == {0, 1, 3, 4}


# --- JUnit ----------------------------------------------------------------------------------------


def junit(check: Check) -> ET.Element:
    root = ET.fromstring(render("junit", check).split("\n", 1)[1])
    suite = root.find("testsuite")
    assert suite is not None
    return suite


@pytest.mark.parametrize("name", [*ALL, "hostile", "many"])
def test_junit_keeps_to_the_schema_of_jenkins(name: str) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    xsd = xmlschema.XMLSchema(str(SCHEMAS / "junit-jenkins.xsd"))
    check = {**ALL, "hostile": hostile(), "many": many(30)}[name]
    xsd.validate(render("junit", check))
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        xsd.validate(render("junit", check).replace("<testcase name=", "<testcase title=", 1))


@pytest.mark.parametrize(
    ("check", "numbers"),
    [(FAIL, (4, 1, 0, 1)), (PASS, (2, 0, 0, 0)), (INCONCLUSIVE, (2, 0, 0, 1)),
     (STRICT, (2, 1, 0, 0)), (INVALID, (1, 0, 1, 0))],
)  # fmt: skip
def test_junit_counts_what_it_holds(check: Check, numbers: tuple[int, ...]) -> None:
    suite = junit(check)
    words = ("tests", "failures", "errors", "skipped")
    assert tuple(int(suite.get(w, "-1")) for w in words) == numbers
    tags = ("testcase", "testcase/failure", "testcase/error", "testcase/skipped")
    assert tuple(len(suite.findall(tag)) for tag in tags) == numbers


# --- SARIF ----------------------------------------------------------------------------------------


def sarif(check: Check) -> dict[str, Any]:
    document = json.loads(render("sarif", check))
    rules = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, rules, cls=jsonschema.Draft4Validator)
    (run,) = document["runs"]
    assert isinstance(run, dict)
    for result in run["results"]:
        (found,) = result["locations"]
        # RFC 3986: what may stand in a reference, with every % the head of an escape.
        assert re.fullmatch(
            r"(?:[A-Za-z0-9._~!$&'()*+,;=@:/-]|%[0-9A-F]{2})+",
            found["physicalLocation"]["artifactLocation"]["uri"],
        )
    return run


@pytest.mark.parametrize("name", [*ALL, "hostile", "many"])
def test_sarif_keeps_to_the_schema(name: str) -> None:
    run = sarif({**ALL, "hostile": hostile(), "many": many(30)}[name])
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]


def test_sarif_has_a_result_for_what_failed_only() -> None:
    run = sarif(FAIL)
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [("ttft_p95", "error")]
    (place_,) = run["results"][0]["locations"]
    assert place_["physicalLocation"]["artifactLocation"]["uri"] == "ttftdoctor.toml"
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)
    assert any("route /chat" in n["message"]["text"]
               for n in invocation["toolExecutionNotifications"])  # fmt: skip
    assert sarif(PASS)["results"] == []
    assert sarif(INCONCLUSIVE)["results"] == []
    assert [r["level"] for r in sarif(STRICT)["results"]] == ["warning"]
    assert [r["ruleId"] for r in sarif(INVALID)["results"]] == ["comparison"]
    assert sarif(INVALID)["invocations"][0]["executionSuccessful"] is False


def test_the_sarif_schema_can_refuse() -> None:
    document = json.loads(render("sarif", FAIL))
    document["runs"][0]["results"][0]["level"] = "fatal"
    rules = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, rules, cls=jsonschema.Draft4Validator)


@pytest.mark.parametrize(
    ("path", "uri"),
    [("logs/a b.jsonl", "logs/a%20b.jsonl"), ("/var/log/a.jsonl", "file:///var/log/a.jsonl"),
     ("C:\\logs\\a.jsonl", "file:///C%3A/logs/a.jsonl"), ("//host/a", "file:///host/a"),
     ("a:b#c?d%", "a%3Ab%23c%3Fd%25"), ("\ud800", "%3F")],
)  # fmt: skip
def test_paths_become_uris(path: str, uri: str) -> None:
    assert uri_of(path) == uri


def test_the_place_of_a_finding() -> None:
    assert place(FAIL) == "ttftdoctor.toml"
    assert place(replace(FAIL, policy=None)) == "logs/canary.jsonl"
    piped = replace(FAIL.current, inputs=(Input("-", "flat", 1, 1),))
    assert place(replace(FAIL, policy=None, current=piped)) == "ttftdoctor.toml"


# --- GitHub ---------------------------------------------------------------------------------------


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_workflow_command_is_one_line_that_reads_back(title: str, message: str) -> None:
    line = command("error", title, message)
    assert "\n" not in line
    assert "\r" not in line
    match = re.fullmatch(r"::error title=([^:,]*)::(.*)", line, re.DOTALL)
    assert match is not None
    data = [re.sub("%(0A|0D|3A|2C|25)", lambda m: chr(int(m[1], 16)), v) for v in match.groups()]
    assert data == [title, message]


def test_annotations_say_what_happened() -> None:
    lines = render("github", FAIL).splitlines()
    assert lines[0].startswith("::error title=TTFT gate%3A FAIL::TTFT p95 +18 %25")
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::notice"]
    assert render("github", PASS).startswith("::notice title=TTFT gate%3A PASS::")
    assert render("github", INCONCLUSIVE).startswith("::warning ")
    assert {line[:8] for line in render("github", STRICT).splitlines()} == {"::error "}
    assert render("github", INVALID).startswith("::error ")


def test_there_are_no_more_annotations_than_github_shows() -> None:
    assert len(render("github", many(50)).splitlines()) == 10


# --- GitLab ---------------------------------------------------------------------------------------


def test_code_quality_names_what_did_not_pass() -> None:
    issues = json.loads(render("codequality", FAIL))
    assert [(i["check_name"], i["severity"]) for i in issues] == [
        ("ttftdoctor.ttft_p95", "critical"), ("ttftdoctor.hit_share", "info"),
    ]  # fmt: skip
    for issue in issues:
        assert issue["location"] == {"path": "ttftdoctor.toml", "lines": {"begin": 1}}
        assert issue["description"]
    assert json.loads(render("codequality", PASS)) == []
    assert [i["severity"] for i in json.loads(render("codequality", STRICT))] == ["major"]
    assert len(json.loads(render("codequality", INVALID))) == 1


def test_fingerprints_are_stable_and_tell_questions_apart() -> None:
    moved = replace(P95, says="other words", current=9.0, outcome="pass")
    assert fingerprint(moved) == fingerprint(P95)
    others = [P95, HITS, replace(P95, scope=Scope(route="/chat")), replace(P95, budget="b")]
    assert len({fingerprint(m) for m in others}) == len(others)


# --- Markdown and the terminal --------------------------------------------------------------------


@pytest.mark.parametrize("form", ["markdown", "summary"])
def test_markdown_stays_below_the_limits(form: str) -> None:
    assert len(render(form, many(400)).encode()) <= 64 * 1024
    assert "FAIL" in render(form, many(400))


@pytest.mark.parametrize("width", [60, 80, 104, 140])
@pytest.mark.parametrize("name", [*ALL, "hostile"])
def test_the_terminal_report_fits(width: int, name: str) -> None:
    check = {**ALL, "hostile": hostile()}[name]
    file = io.StringIO()
    print_to(Console(file=file, width=width, color_system=None), check)
    lines = file.getvalue().splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert not CONTROL.search(file.getvalue())


def test_raw_and_equal_mix_stand_side_by_side() -> None:
    for form in ("terminal", "markdown", "summary"):
        (row,) = [line for line in render(form, PASS).splitlines()
                  if "TTFT p95" in line and "pass" in line]  # fmt: skip
        assert row.index("+22 %") < row.index("+0.4 %")


# --- hostile text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_a_log_is_obeyed(form: str) -> None:
    text = render(form, hostile())
    assert not CONTROL.search(text.replace("\n", ""))
    assert "\x1b" not in text
    text.encode("utf-8")
    if form in ("markdown", "summary"):
        assert "<b>" not in text
        assert not re.search(r"@(?=\w)|(?<!`)https?://|#(?=\d)", text)
    if form == "github":
        assert all(re.match(r"::(error|warning|notice) title=", line) for line in text.splitlines())
    if form == "junit":
        assert junit(hostile()).find(".//b") is None
        assert not re.search("[\ufffe\uffff]", text)


@given(st.text(max_size=60))
def test_any_route_makes_a_whole_document(route: str) -> None:
    check = replace(FAIL, metrics=(replace(P95, scope=Scope(route=route), says=route),),
                    headline=route, policy=route)  # fmt: skip
    for form in FORMS:
        text = render(form, check)
        text.encode("utf-8")
        assert not CONTROL.search(text.replace("\n", ""))
    junit(check)
    sarif(check)
    json.loads(render("codequality", check))


def test_the_hostile_text_is_really_there() -> None:
    assert NASTY in hostile().headline
    assert NASTY in hostile().metrics[0].scope.__dict__.values()


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(2.1, "s", "2.10 s"), (72.13, "ms_per_1k_tokens", "72.1 ms"), (0.81, "share", "81 %"),
     (4.2, "per_s", "4.2/s"), (None, "s", "-"), (30.0, "ms", "30 ms")],
)  # fmt: skip
def test_figures(value: float | None, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_changes() -> None:
    assert moved_by(0.3, 0.18, "s") == "+18 %"
    assert moved_by(-0.1, None, "share") == "−10 pt"
    assert moved_by(0.004, None, "share") == "+0.4 pt"
    assert moved_by(-1.5, None, "per_s") == "−1.5/s"
    assert moved_by(0.0, None, "ms") == "0 ms"
    assert moved_by(None, None, "s") == "-"
    assert points(0.0002) == "0 pt"
    assert span(P95) == "+12 to +25 %"
    assert span(HITS) == "−9.0 to +1.0 pt"
    assert span(replace(P95, interval=None)) == "-"
