"""The check as the ``ttftdoctor.check/1`` document."""

from __future__ import annotations

from ttftdoctor.gate.records import Check
from ttftdoctor.gate.reports import Form
from ttftdoctor.report.json_report import text_of


def render(check: Check) -> str:
    """The document as text; unknown is null, and no invisible character stands in it raw."""
    return text_of(check.to_dict())


FORM = Form("json", "JSON document, ttftdoctor.check/1", render)
