"""The diagnosis as a comment under a pull request: GitHub's Markdown, under its size limit.

Text is escaped so that nothing in a log becomes markup, a link, a mention or a reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.prefixes.sections import ladder_table, short, shown
from ttftdoctor.report import (
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
from ttftdoctor.units import share

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
            parts.append("Left out here for size: " + ", ".join(left_out) + "; see `--json`.")
        text = "\n\n".join(part for part in parts if part) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
        if not details:
            return _cut(text)
        name, part = max(details, key=lambda item: len(item[1].encode()))
        details = [item for item in details if item[0] != name]
        left_out.append(f"{name} ({_lines(part)})")


def _lines(text: str) -> str:
    n = sum(1 for line in text.splitlines() if line.strip())
    return f"{n:,} line" if n == 1 else f"{n:,} lines"


def _cut(text: str) -> str:
    kept, size = [], 200
    lines = text.splitlines()
    for line in lines:
        size += len(line.encode()) + 1
        if size > LIMIT:
            break
        kept.append(line)
    rest = _lines("\n".join(lines[len(kept) :]))
    return "\n".join([*kept, "", f"{rest} more are left out here for size; see `--json`."]) + "\n"


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
    out = [f"### {_SIGN[severity(v)]} {badge(v)}: {escape(v.headline)}"]
    facts = [f"**Cause:** {_code(v.primary_cause)}, {title(v.primary_cause)}"]
    if v.primary_cause != "insufficient_data":
        facts.append(f"{confidence(v.confidence)}, {escape(scope(d))}")
    out.append("; ".join(facts) + ".  \n" + escape(" · ".join([*who(d), ttft_figures(d)])))
    worse = [
        f"**Amplifier:** {_code(a.id)}"
        + (f", {share(a.share_of_ttft)} of TTFT" if a.share_of_ttft is not None else "")
        + (f": {escape(a.text)}" if a.text else "")
        for a in v.amplifiers
    ]
    known = {a.id for a in v.amplifiers}
    others = [_code(c) for c in v.contributing if c not in known]
    if others:
        worse.append("**Also:** " + ", ".join(others))
    out.append("  \n".join(worse))
    finding = primary(d)
    evidence = [s.text for s in finding.evidence] if finding else []
    out.append("**Why**\n\n" + listed(evidence[:5] or prefix_sentences(d)))
    remedy = best_remedy(d)
    if remedy is not None:
        out.append(
            f"**Do first:** {_code(remedy.id)}, {escape(remedy_name(remedy))}: "
            f"{gain_sentence(remedy, d.population.ttft_mean_s)}."
        )
    if v.next_steps:
        steps = "\n".join(f"{at}. {escape(step)}" for at, step in enumerate(v.next_steps, 1))
        out.append("**Next**\n\n" + steps)
    if v.experiment is not None:
        text = f"**To prove it:** {escape(v.experiment.text)}"
        if v.experiment.command:
            text += f"  \n{escape(v.experiment.command, 2_000)}"
        out.append(text)
    want = missing(d) if v.primary_cause == "insufficient_data" else []
    if want:
        out.append("**Missing:** " + ", ".join(_code(name) for name in want))
    target = slo_sentence(d)
    if target:
        out.append(f"**Target:** {target}")
    if d.warnings:
        out.append("**Warnings**\n\n" + listed(d.warnings, LINES))
    if d.evidence.notes:
        out.append("**Notes on the evidence**\n\n" + listed(d.evidence.notes, LINES))
    return out


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
        lines = []
        for r in remedies_by_gain(d):
            line = f"{_code(r.id)}."
            if r.cost:
                line += f" Cost: {escape(r.cost)}."
            saving = saving_sentence(d, r)
            if saving:
                line += f" Over this log it {escape(saving)}."
            if r.assumptions:
                line += " Assumes: " + "; ".join(escape(a) for a in r.assumptions) + "."
            lines.append(f"- {line}")
        body = table_of(remedies) + "\n\n" + "\n".join(lines)
        out.append((remedies.title, fold(remedies.title, body)))
    tables = split_tables(d)
    matrix = turn_by_length(d)
    for table in [*tables, *([matrix] if matrix else [])]:
        out.append((table.title, fold(table.title, table_of(table))))
    costs = listed([*cost_sentences(d), " ".join(prefix_sentences(d))], LINES)
    out.append(("Cost of a token", fold("Cost of a token, repeated prefix", costs)))
    rows, examples = worst_table(d), listed(worked_examples(d))
    if rows is not None or examples:
        name = rows.title if rows is not None else "The worst requests"
        body = "\n\n".join(part for part in (table_of(rows) if rows else "", examples) if part)
        out.append((name, fold(name, body)))
    if d.causes:
        causes = cause_table(d)
        said = [
            f"- {_code(f.id)}: " + " ".join(escape(s) for s in about(f))
            for f in findings(d)
            if about(f) and f.status != "ruled_out"
        ]
        said += [f"- To have {escape(text)}" for text in how_to_log(d)]
        body = table_of(causes, 100) + "\n\n" + "\n".join(said)
        why = "\n".join(f"- {_code(name)}: {escape(text)}" for name, text in ruled_out(d))
        if why:
            body += "\n\n**Ruled out**\n\n" + why
        out.append((causes.title, fold(causes.title, body)))
    out.append(("What was read", fold("What was read", _read(read_sentences(d)))))
    out.append(("version", f"ttftdoctor {escape(d.version, 40)}"))
    return out


def _read(sentences: Sequence[str]) -> str:
    """What was read; of many inputs the first, and what is said of all of them."""
    last = 2  # how many TTFTs are usable, and how the evidence was come by
    lines = [
        ("  - " if line.startswith(" ") else "- ") + escape(line.strip()) for line in sentences
    ]
    more = len(lines) - READ_LINES - last
    if more > 0:
        lines[READ_LINES:-last] = [f"- … {more:,} more in `--json`."]
    return "\n".join(lines)


def listed(lines: Iterable[str], limit: int | None = None) -> str:
    """A list, escaped, of at most ``limit`` lines, with what is left out counted below them."""
    lines = list(lines)
    kept = [f"- {escape(line)}" for line in lines[:limit]]
    if len(kept) < len(lines):
        kept.append(f"- … {len(lines) - len(kept):,} more in `--json`.")
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
        text += f"\n\n… {len(table.rows) - limit} more in `--json`."
    return text + (f"\n\n{escape(table.note)}" if table.note else "")


RENDERER = Renderer(
    name="markdown",
    title="Markdown for a comment",
    suffixes=(".md", ".markdown"),
    render=render,
)
