"""The check as a comment under a pull request: GitHub's Markdown, under its size limit."""

from __future__ import annotations

from ttftdoctor.gate.records import Check
from ttftdoctor.gate.reports import (
    BADGES,
    SIGNS,
    Form,
    budget_table,
    metric_table,
    open_questions,
    policy_of,
    read_sentences,
    side_table,
    who,
    without_word,
)
from ttftdoctor.report.markdown import escape, fitted, fold, listed, table_of

#: Rows of a table; the rest is counted below it.
ROWS = 60


def render(check: Check) -> str:
    """The answer, what moved and the metrics; the rest is folded below."""
    word, _ = BADGES[check.outcome]
    head = [
        f"### {SIGNS[check.outcome]} {word}: {escape(without_word(check))}",
        escape(f"{who(check.current)}, against {who(check.baseline)}"),
    ]
    if check.moved:
        head.append("**What moved**\n\n" + listed(m.says for m in check.moved[:8]))
    if check.reasons:
        head.append("**Why**\n\n" + listed(check.reasons[:12]))
    metrics, budgets = metric_table(check), budget_table(check)
    details = [
        (found.title, table_of(found, ROWS)) for found in (metrics, budgets) if found is not None
    ]
    questions = open_questions(check)
    if questions:
        details.append(("Details", fold("Details", listed(questions[:100]))))
    if check.warnings:
        details.append(("Warnings", "**Warnings**\n\n" + listed(check.warnings[:20])))
    sides = side_table(check)
    body = table_of(sides, 100) + "\n\n" + listed(
        [*read_sentences(check), f"Policy: {policy_of(check)}.", *check.notes]
    )  # fmt: skip
    details.append((sides.title, fold(sides.title, body)))
    details.append(("version", f"ttftdoctor {escape(check.version, 40)}"))
    return fitted(head, details)


FORM = Form("markdown", "Markdown for a comment", render)
