"""The diagnosis as a comment under a pull request: GitHub's Markdown, under its size limit.

Text is escaped so that nothing in a log becomes markup, a link, a mention or a reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ttftdoctor.diagnosis import Amplifier, Diagnosis, Gain
from ttftdoctor.language import tr, tr_n
from ttftdoctor.prefixes.sections import ladder_table, short, shown
from ttftdoctor.report import (
    CLAUSES,
    STOPS,
    Renderer,
    Table,
    about,
    badge,
    best_remedy,
    cause_table,
    clean,
    confidence,
    cost_sentences,
    findings,
    gain_sentence,
    how_to_log,
    joined,
    ledger_table,
    missing,
    prefix_sentences,
    primary,
    read_sentences,
    remedies_by_gain,
    remedy_name,
    remedy_table,
    ruled_out,
    saving_sentence,
    scope,
    severity,
    slo_sentence,
    split_tables,
    spread_sentence,
    title,
    ttft_figures,
    turn_by_length,
    who,
    worked_examples,
    worst_table,
)
from ttftdoctor.units import count, share

#: Bytes; a comment may have 65,536 characters.
LIMIT = 60_000
ROWS = 24
#: Lines of a list whose length follows the log: warnings and notes, and inputs with first rejects.
LINES = 40
READ_LINES = 100

_SIGN = {"good": "✅", "warn": "⚠️", "bad": "🔴", "unknown": "❔"}
_PUNCTUATION = re.compile(r"[\\`*\[\]|~]")
_LOOSE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LINE_START = re.compile(r"^(\s*)([#+\-=]|\d+[.)](?=\s|$))")
_NO_BREAK = "\u200b"  # after a sign, so that no link, mention or reference is recognised


def render(diagnosis: Diagnosis) -> str:
    """The report; what does not fit is named and left to ``--json``."""
    return fitted(_head(diagnosis), _details(diagnosis))


def fitted(head: Sequence[str], details: Sequence[tuple[str, str]]) -> str:
    """Parts with an empty line between them, under the limit.

    The largest of ``details`` (name, text) are left out until it all fits, and named with the
    number of their lines.
    """
    details = list(details)
    left_out: list[str] = []
    while True:
        parts = [*head, *(text for _, text in details)]
        if left_out:
            names = tr(", ").join(left_out)
            parts.append(tr("Left out here for size: {parts}; see `--json`.", parts=names))
        text = "\n\n".join(part for part in parts if part) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
        if not details:
            return _cut(text)
        name, part = max(details, key=lambda item: len(item[1].encode()))
        details = [item for item in details if item[0] != name]
        left_out.append(tr("{name} ({lines})", name=name, lines=_lines(part)))


def _lines(text: str) -> str:
    n = sum(1 for line in text.splitlines() if line.strip())
    return tr_n("{n} line", "{n} lines", n, n=count(n))


def _cut(text: str) -> str:
    kept, size = [], 200
    lines = text.splitlines()
    for line in lines:
        size += len(line.encode()) + 1
        if size > LIMIT:
            break
        kept.append(line)
    rest = tr("{lines} more are left out here for size; see `--json`.",
              lines=_lines("\n".join(lines[len(kept) :])))  # fmt: skip
    return "\n".join([*kept, "", rest]) + "\n"


def escape(text: object, limit: int = 1_000) -> str:
    """Text that Markdown shows as it is, at the start of a line too."""
    return _LINE_START.sub(_quiet, _inline(text, limit))


def _inline(text: object, limit: int) -> str:
    out = clean(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    out = _PUNCTUATION.sub(lambda m: "\\" + m.group(), out)
    out = _LOOSE_UNDERSCORE.sub(r"\\_", out)
    out = out.replace("@", "@" + _NO_BREAK)
    out = out.replace("://", ":" + _NO_BREAK + "//")
    out = re.sub(r"(?i)\b(www)\.", r"\1" + _NO_BREAK + ".", out)
    out = re.sub(r"(#|GH-)(?=\d)", r"\1" + _NO_BREAK, out)
    return out.replace("$", "&#36;")


def _quiet(start: re.Match[str]) -> str:
    space, sign = start.groups()
    return f"{space}\\{sign}" if len(sign) == 1 else f"{space}{sign[:-1]}\\{sign[-1]}"


def _code(ident: str) -> str:
    plain = clean(ident, 60)
    return f"`{plain}`" if re.fullmatch(r"[A-Za-z0-9_.-]+", plain) else escape(plain)


def _head(d: Diagnosis) -> list[str]:
    v = d.verdict
    said = tr("{name}: {text}", name=badge(v), text=escape(v.headline))
    out = [f"### {_SIGN[severity(v)]} {said}"]
    cause = (_code(v.primary_cause), title(v.primary_cause))
    facts = [tr("**Cause:** {text}", text=joined(cause, CLAUSES))]
    if v.primary_cause != "insufficient_data":
        facts.append(joined((confidence(v.confidence), escape(scope(d))), CLAUSES))
    whole = tr("{sentence}.", sentence=tr("; ").join(facts))
    out.append(f"{whole}  \n" + escape(" · ".join([*who(d), ttft_figures(d)])))
    worse = [tr("**Amplifier:** {text}", text=_amplifier(a)) for a in v.amplifiers]
    known = {a.id for a in v.amplifiers}
    others = [_code(c) for c in v.contributing if c not in known]
    if others:
        worse.append(tr("**Also:** {causes}", causes=tr(", ").join(others)))
    out.append("  \n".join(worse))
    finding = primary(d)
    evidence = [s.text for s in finding.evidence] if finding else []
    out.append(_under(tr("Why"), listed(evidence[:5] or prefix_sentences(d))))
    remedy = best_remedy(d)
    if remedy is not None:
        first = tr(
            "**Do first:** {id}, {remedy}: {gain}.",
            id=_code(remedy.id), remedy=escape(remedy_name(remedy)),
            gain=gain_sentence(remedy, d.population.ttft_mean_s),
        )  # fmt: skip
        out.append(first)
    if v.next_steps:
        steps = "\n".join(f"{at}. {escape(step)}" for at, step in enumerate(v.next_steps, 1))
        out.append(_under(tr("Next"), steps))
    if v.experiment is not None:
        text = tr("**To prove it:** {text}", text=escape(v.experiment.text))
        if v.experiment.command:
            text += f"  \n{escape(v.experiment.command, 2_000)}"
        out.append(text)
    want = missing(d) if v.primary_cause == "insufficient_data" else []
    if want:
        columns = tr(", ").join(_code(name) for name in want)
        out.append(tr("**Missing:** {columns}", columns=columns))
    target = slo_sentence(d)
    if target:
        out.append(tr("**Target:** {text}", text=target))
    if d.warnings:
        out.append(_under(tr("Warnings"), listed(d.warnings, LINES)))
    if d.evidence.notes:
        out.append(_under(tr("Notes on the evidence"), listed(d.evidence.notes, LINES)))
    return out


def _under(heading: str, body: str) -> str:
    return f"**{heading}**\n\n{body}"


def _amplifier(one: Amplifier) -> str:
    """A cause that makes the primary one worse: its part of TTFT, and what it does."""
    text = _code(one.id)
    if one.share_of_ttft is not None:
        part = tr("{part} of TTFT", part=share(one.share_of_ttft))
        text = joined((text, part), CLAUSES)
    return tr("{name}: {text}", name=text, text=escape(one.text)) if one.text else text


def _statement(said: str) -> str:
    """A statement among others; in English a blank is enough between them."""
    return escape(said) if said.endswith(STOPS) else tr("{statement}", statement=escape(said))


def _remedy(d: Diagnosis, remedy: Gain) -> str:
    """What a remedy costs, saves and assumes."""
    said = [tr("{sentence}.", sentence=_code(remedy.id))]
    if remedy.cost:
        said.append(tr("Cost: {text}.", text=escape(remedy.cost)))
    saving = saving_sentence(d, remedy)
    if saving:
        said.append(tr("Over this log it {saves}.", saves=escape(saving)))
    if remedy.assumptions:
        assumed = tr("; ").join(escape(a) for a in remedy.assumptions)
        said.append(tr("Assumes: {text}.", text=assumed))
    return joined(said)


def _details(d: Diagnosis) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if d.ledger:
        ledger = ledger_table(d)
        spread = spread_sentence(d)
        body = table_of(ledger) + (f"\n\n{escape(spread)}" if spread else "")
        out.append((ledger.title, fold(ledger.title, body)))
    ladder = shown(d.prefix) if d.prefix is not None else None
    if d.prefix is not None and ladder is not None:
        rungs = ladder_table(ladder, known=True)
        body = (table_of(rungs) + "\n\n" if len(rungs.rows) > 1 else "") + listed(short(d.prefix))
        out.append((rungs.title, fold(rungs.title, body)))
    if d.remedies:
        remedies = remedy_table(d)
        lines = "\n".join(f"- {_remedy(d, r)}" for r in remedies_by_gain(d))
        body = f"{table_of(remedies)}\n\n{lines}"
        out.append((remedies.title, fold(remedies.title, body)))
    tables = split_tables(d)
    matrix = turn_by_length(d)
    for table in [*tables, *([matrix] if matrix else [])]:
        out.append((table.title, fold(table.title, table_of(table))))
    costs = listed([*cost_sentences(d), joined(prefix_sentences(d))], LINES)
    out.append((tr("Cost of a token"), fold(tr("Cost of a token, repeated prefix"), costs)))
    rows, examples = worst_table(d), listed(worked_examples(d))
    if rows is not None or examples:
        name = rows.title if rows is not None else tr("The worst requests")
        body = "\n\n".join(part for part in (table_of(rows) if rows else "", examples) if part)
        out.append((name, fold(name, body)))
    if d.causes:
        causes = cause_table(d)
        said = [
            "- " + tr("{name}: {text}", name=_code(f.id), text=joined(map(_statement, about(f))))
            for f in findings(d)
            if about(f) and f.status != "ruled_out"
        ]
        said += ["- " + tr("To have {text}", text=escape(text)) for text in how_to_log(d)]
        body = table_of(causes, 100) + "\n\n" + "\n".join(said)
        why = "\n".join(
            "- " + tr("{name}: {text}", name=_code(name), text=escape(text))
            for name, text in ruled_out(d)
        )
        if why:
            body += "\n\n" + _under(tr("Ruled out"), why)
        out.append((causes.title, fold(causes.title, body)))
    read = tr("What was read")
    out.append((read, fold(read, _read(read_sentences(d)))))
    out.append((tr("version"), f"ttftdoctor {escape(d.version, 40)}"))
    return out


def _read(sentences: Sequence[str]) -> str:
    """What was read; of many inputs the first, and what is said of all of them."""
    last = 2  # how many TTFTs are usable, and how the evidence was come by
    lines = [
        ("  - " if line.startswith(" ") else "- ") + escape(line.strip()) for line in sentences
    ]
    more = len(lines) - READ_LINES - last
    if more > 0:
        lines[READ_LINES:-last] = ["- " + tr("… {n} more in `--json`.", n=count(more))]
    return "\n".join(lines)


def listed(lines: Iterable[str], limit: int | None = None) -> str:
    """A list, escaped, of at most ``limit`` lines, with what is left out counted below them."""
    lines = list(lines)
    kept = [f"- {escape(line)}" for line in lines[:limit]]
    if len(kept) < len(lines):
        kept.append("- " + tr("… {n} more in `--json`.", n=count(len(lines) - len(kept))))
    return "\n".join(kept)


def fold(name: str, body: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{name}</summary>\n\n{body}\n\n</details>"


def table_of(table: Table, limit: int = ROWS) -> str:
    """A table of at most ``limit`` rows, with what is left out counted below it."""
    marks = ["---" if at in table.left else "---:" for at in range(len(table.columns))]
    rows = [table.columns, marks, *table.rows[:limit]]
    lines = [
        "| "
        + " | ".join(row if row is marks else [_inline(cell, 200) or " " for cell in row])
        + " |"
        for row in rows
    ]
    text = "\n".join(lines)
    if len(table.rows) > limit:
        text += "\n\n" + tr("… {n} more in `--json`.", n=len(table.rows) - limit)
    return text + (f"\n\n{escape(table.note)}" if table.note else "")


RENDERER = Renderer(
    name="markdown",
    title="Markdown for a comment",
    suffixes=(".md", ".markdown"),
    render=render,
)
