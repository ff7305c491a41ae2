"""The check as a comment under a pull request: GitHub's Markdown, under its size limit."""

from __future__ import annotations

from ttftdoctor.gate.records import Check
from ttftdoctor.gate.reports import (
    SIGNS,
    Form,
    badge,
    both,
    budget_table,
    metric_table,
    open_questions,
    policy_sentence,
    read_sentences,
    side_table,
    without_word,
)
from ttftdoctor.language import tr
from ttftdoctor.report.markdown import escape, fitted, fold, listed, table_of

#: Rows of a table; the rest is counted below it.
ROWS = 60


def render(check: Check) -> str:
    """The answer, what moved and the metrics; the rest is folded below."""
    word, _ = badge(check)
    head = [
        tr("### {sign} {word}: {headline}", sign=SIGNS[check.outcome], word=word,
           headline=escape(without_word(check))),
        escape(both(check)),
    ]  # fmt: skip
    if check.moved:
        head.append("**" + tr("What moved") + "**\n\n" + listed(m.says for m in check.moved[:8]))
    if check.reasons:
        head.append("**" + tr("Why") + "**\n\n" + listed(check.reasons[:12]))
    metrics, budgets = metric_table(check), budget_table(check)
    details = [
        (found.title, table_of(found, ROWS)) for found in (metrics, budgets) if found is not None
    ]
    questions = open_questions(check)
    if questions:
        details.append((tr("Details"), fold(tr("Details"), listed(questions[:100]))))
    if check.warnings:
        details.append(
            (tr("Warnings"), "**" + tr("Warnings") + "**\n\n" + listed(check.warnings[:20]))
        )
    sides = side_table(check)
    body = table_of(sides, 100) + "\n\n" + listed(
        [*read_sentences(check), policy_sentence(check), *check.notes]
    )  # fmt: skip
    details.append((sides.title, fold(sides.title, body)))
    details.append((tr("version"), f"ttftdoctor {escape(check.version, 40)}"))
    return fitted(head, details)


FORM = Form("markdown", "Markdown for a comment", render)
