"""The check as workflow commands of GitHub: a line on standard output becomes an annotation.

A value cannot end its command: ``%`` and line breaks are encoded, in properties ``:`` and ``,``
too, as the runner decodes them.
"""

from __future__ import annotations

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import Form, badge, called, in_order, said, without_word
from ttftdoctor.language import tr
from ttftdoctor.report import clean

#: GitHub shows ten annotations of a kind for a step; the headline takes one.
MOST = 9


def render(check: Check) -> str:
    """The headline, and a line for each metric that failed or could not be decided."""
    word, _ = badge(check)
    level = {"pass": "notice", "fail": "error", "invalid": "error"}.get(check.outcome, "warning")
    if check.outcome == "inconclusive" and check.inconclusive_fails:
        level = "error"
    text = tr(". ").join([without_word(check), *(clean(m.says, 300) for m in check.moved[:3])])
    if check.outcome == "invalid":
        text = tr(". ").join([without_word(check), *(clean(line, 300) for line in check.reasons)])
    lines = [command(level, tr("TTFT gate: {word}", word=word), text)]
    counts: dict[str, int] = {level: 1}
    for metric in in_order(check.metrics):
        kind = _level(metric, check)
        if kind is None or counts.get(kind, 0) > MOST:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        name = clean(metric.budget, 120) if metric.budget else called(metric)
        lines.append(command(kind, name, said(metric)))
    return "\n".join(lines) + "\n"


def _level(metric: Checked, check: Check) -> str | None:
    if metric.outcome == "inconclusive":
        return "error" if check.inconclusive_fails else "notice"
    return {"fail": "error", "invalid": "warning"}.get(metric.outcome)


def command(level: str, title: str, message: str) -> str:
    r"""One workflow command, on one line whatever the text.

    Examples
    --------
    >>> command("error", "a:b,c", "50 %\n::set-output::x")
    '::error title=a%3Ab%2Cc::50 %25%0A::set-output::x'
    """
    name = _data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORM = Form("github", "GitHub workflow commands", render)
