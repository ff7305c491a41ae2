"""The check as SARIF 2.1.0, for code scanning.

A regression is a result; what could not be decided is a notification of the run, so that no alert
stands for it, unless the policy is strict. Results are pinned to the policy file, or to the log
that was checked.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import Form, called, fingerprint, place, said
from ttftdoctor.language import spoken, tr
from ttftdoctor.report import clean
from ttftdoctor.report.json_report import text_of

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
REFUSED = "comparison"


def render(check: Check) -> str:
    """One run with a rule a metric."""
    bad = [m for m in check.metrics if m.outcome == "fail" or _undecided(m, check)]
    results = [_result(m, check) for m in bad]
    rules = list(dict.fromkeys(m.metric for m in check.metrics))
    titles = {m.metric: m.title for m in check.metrics}
    described = [_rule(rule, titles[rule]) for rule in rules]
    if check.outcome == "invalid":
        described.append(_rule(REFUSED, tr("The two logs can be compared")))
        text = tr(". ").join([check.headline, *check.reasons])
        results.append(
            {
                "ruleId": REFUSED,
                "level": "error",
                "message": {"text": clean(text)},
                "locations": [_location(check)],
                "partialFingerprints": {"ttftdoctor/v1": REFUSED},
            }
        )
    index = {rule["id"]: at for at, rule in enumerate(described)}
    for result in results:
        result["ruleIndex"] = index[result["ruleId"]]
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ttftdoctor",
                        "version": clean(check.version, 40),
                        "rules": described,
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": check.outcome != "invalid",
                        "exitCode": check.exit_code,
                        "toolExecutionNotifications": _notes(check),
                    }
                ],
                # What a run does not say otherwise is English.
                **({} if spoken() == "en" else {"language": spoken()}),
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return text_of(document)


def _undecided(metric: Checked, check: Check) -> bool:
    return metric.outcome == "inconclusive" and check.inconclusive_fails


def _rule(ident: str, title: str) -> dict[str, Any]:
    name = clean(title, 120)
    return {
        "id": clean(ident, 60),
        "shortDescription": {"text": name},
        "fullDescription": {
            "text": tr("{metric}, held against a baseline at equal traffic mix.", metric=name)
        },
        "help": {"text": tr("What moved, and by how much, stands in the report of the check.")},
        "defaultConfiguration": {"level": "error"},
    }


def _result(metric: Checked, check: Check) -> dict[str, Any]:
    text = said(metric)
    if metric.outcome == "fail" and check.moved:
        moved = tr("; ").join(clean(m.says, 300) for m in check.moved[:3])
        text = tr("{says}. What moved: {moved}.", says=text.rstrip("."), moved=moved)
    figures = {
        "baseline": metric.baseline, "current": metric.current, "change": metric.change,
        "changeShare": metric.change_share, "rawChangeShare": metric.raw_change_share,
        "unit": metric.unit, "scope": clean(str(metric.scope), 200),
    }  # fmt: skip
    if metric.budget is None:
        text = tr("{metric}: {says}", metric=called(metric), says=text)
    return {
        "ruleId": clean(metric.metric, 60),
        "level": "error" if metric.outcome == "fail" else "warning",
        "message": {"text": text},
        "locations": [_location(check)],
        "partialFingerprints": {"ttftdoctor/v1": fingerprint(metric)},
        "properties": {k: v for k, v in figures.items() if v is not None},
    }


def _location(check: Check) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri_of(place(check))},
            "region": {"startLine": 1},
        }
    }


def uri_of(path: str) -> str:
    """A path as a URI: relative ones stay relative, everything unusual is percent-encoded."""
    text = path.replace("\\", "/")
    if text[1:3] == ":/" and text[0].isalpha():
        text = "/" + text
    encoded = quote(text.encode("utf-8", "replace"), safe="/")
    # Two slashes at the head would name a host.
    return "file:///" + encoded.lstrip("/") if text.startswith("/") else encoded


def _notes(check: Check) -> list[dict[str, Any]]:
    notes = [
        (said(m), "note")
        for m in check.metrics
        if m.outcome in ("inconclusive", "invalid") and not _undecided(m, check)
    ]
    notes += [(clean(line), "warning") for line in check.warnings]
    return [{"level": level, "message": {"text": text}} for text, level in notes]


FORM = Form("sarif", "SARIF 2.1.0", render)
