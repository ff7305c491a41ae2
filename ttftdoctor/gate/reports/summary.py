"""The check as the summary of a job: Markdown with nothing folded away, far below 1 MiB."""

from __future__ import annotations

from ttftdoctor.gate.records import Check
from ttftdoctor.gate.reports import (
    SIGNS,
    Form,
    badge,
    budget_table,
    metric_table,
    open_questions,
    policy_sentence,
    read_sentences,
    side_table,
    without_word,
)
from ttftdoctor.language import tr
from ttftdoctor.report.markdown import escape, fitted, listed, table_of

#: Rows of a table; the rest is counted below it.
ROWS = 120


def render(check: Check) -> str:
    """The answer and everything it rests on."""
    word, _ = badge(check)
    head = [
        tr("## {sign} TTFT gate, {word}: {headline}", sign=SIGNS[check.outcome], word=word,
           headline=escape(without_word(check)))
    ]  # fmt: skip
    if check.moved:
        head.append("### " + tr("What moved") + "\n\n" + listed(m.says for m in check.moved[:20]))
    lists = (
        (tr("Why"), check.reasons),
        (tr("Details"), open_questions(check)[:200]),
        (tr("Warnings"), check.warnings[:50]),
    )
    details = []
    for found in (metric_table(check), budget_table(check)):
        if found is not None:
            details.append((found.title, f"### {found.title}\n\n{table_of(found, ROWS)}"))
    details += [(name, f"### {name}\n\n{listed(lines)}") for name, lines in lists if lines]
    sides = side_table(check)
    read = [*read_sentences(check), policy_sentence(check), *check.notes]
    text = f"### {sides.title}\n\n{table_of(sides, 100)}\n\n{listed(read)}"
    details.append((sides.title, text))
    return fitted(head, details)


FORM = Form("summary", "Markdown for the summary of a job", render)
