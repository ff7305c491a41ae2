"""Every form a check can be written in, by name."""

from __future__ import annotations

from ttftdoctor.gate.reports import (
    Form,
    codequality,
    github,
    json_report,
    junit,
    markdown,
    sarif,
    summary,
    terminal,
)

FORMS: dict[str, Form] = {
    module.FORM.name: module.FORM
    for module in (
        json_report, markdown, junit, sarif, codequality, github, summary, terminal,
    )
}  # fmt: skip
