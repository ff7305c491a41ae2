"""The check as a GitLab code-quality report: one issue a metric that failed or is undecided."""

from __future__ import annotations

import json
from pathlib import PurePath

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import Form, called, fingerprint, place, said
from ttftdoctor.language import tr
from ttftdoctor.report import clean
from ttftdoctor.report.json_report import UNSEEN


def render(check: Check) -> str:
    """A list of issues; it is empty where everything passed."""
    path = _path(place(check))
    issues = [
        _issue(
            clean(m.metric, 60),
            said(m) if m.budget is not None
            else tr("{metric}: {says}", metric=called(m), says=said(m)),
            fingerprint(m), _severity(m, check), path,
        )
        for m in check.metrics
        if m.outcome != "pass"
    ]  # fmt: skip
    if check.outcome == "invalid" and not issues:
        text = tr(". ").join(clean(line) for line in (check.headline, *check.reasons))
        issues.append(_issue("comparison", text, "ttftdoctor-comparison", "critical", path))
    text = json.dumps(issues, ensure_ascii=False, indent=2)
    return UNSEEN.sub(lambda m: f"\\u{ord(m.group()):04x}", text) + "\n"


def _issue(name: str, text: str, mark: str, severity: str, path: str) -> dict[str, object]:
    return {
        "type": "issue",
        "check_name": f"ttftdoctor.{name}",
        "description": text,
        "categories": ["Performance"],
        "fingerprint": mark,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": 1}},
    }


def _severity(metric: Checked, check: Check) -> str:
    if metric.outcome == "inconclusive":
        return "major" if check.inconclusive_fails else "info"
    return "critical" if metric.outcome == "fail" else "major"


def _path(path: str) -> str:
    """A path relative to the repository, as GitLab wants it: no ``./`` at its head."""
    return clean(PurePath(path).as_posix(), 300)


FORM = Form("codequality", "GitLab code quality", render)
