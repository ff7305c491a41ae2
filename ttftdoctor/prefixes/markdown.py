"""The prefix report as a comment under a pull request: the ladder open, the rest folded."""

from __future__ import annotations

from ttftdoctor.language import tr
from ttftdoctor.prefixes import sections as words
from ttftdoctor.prefixes.document import PrefixReport
from ttftdoctor.prefixes.sections import Section
from ttftdoctor.report.markdown import escape, fitted, fold, listed, table_of

_SIGN = {"good": "✅", "warn": "⚠️", "bad": "🔴", "unknown": "❔"}


def render(report: PrefixReport) -> str:
    """GitHub's Markdown under its size limit; what does not fit is named and left to ``--json``."""
    found = report.found
    word, severity = words.badge(found)
    head = [
        f"### {_SIGN[severity]} "
        + tr("{badge}: {headline}", badge=word, headline=escape(words.headline(found))),
        escape(words.who(found)),
    ]
    ladder = words.shown(found)
    if ladder is not None:
        head.append(table_of(words.ladder_table(ladder)))
        limits = [
            tr("{rung} ({basis}): {says}", rung=title, basis=basis, says=says)
            for title, basis, says, _ in words.limit_rows(ladder)
        ]
        head.append(listed([*limits, *words.basis_sentences(ladder)]))
    parts = words.sections(found)
    head += [f"**{escape(part.title)}**\n\n{_body(part)}" for part in parts if part.first]
    closing = words.closing(found)
    head += [f"**{escape(part.title)}**\n\n{listed(part.said)}" for part in closing]
    if report.warnings:
        head.append(f"**{tr('Warnings')}**\n\n{listed(report.warnings)}")
    details = [(escape(part.title), fold(escape(part.title), _body(part))) for part in parts
               if not part.first]  # fmt: skip
    title, read = tr("What was read"), listed(words.read_sentences(report.inputs))
    details.append((title, fold(title, read)))
    details.append((tr("version"), f"ttftdoctor {escape(report.version, 40)}"))
    return fitted(head, details)


def _body(section: Section) -> str:
    body = [table_of(section.table, section.limit)] if section.table is not None else []
    if section.said:
        body.append(listed(line.strip() for line in section.said))
    return "\n\n".join(body)
