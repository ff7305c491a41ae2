"""The case review in five parts: background, operation, result, reading, variations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.pages.figures import Drawing, drawn
from ttftdoctor.pages.gains import before_and_after, remedies
from ttftdoctor.pages.ledger import accounts
from ttftdoctor.pages.load import over_time
from ttftdoctor.pages.markup import (
    box,
    card,
    defined,
    esc,
    folded,
    listed,
    sentence,
    table_of,
)
from ttftdoctor.pages.reuse import breaks, ladder
from ttftdoctor.pages.tokens import against_uncached
from ttftdoctor.pages.turns import by_turn, decode_by_context, decode_by_turn, heat
from ttftdoctor.pages.waste import by_session
from ttftdoctor.report import (
    about,
    cause_table,
    clean,
    cost_sentences,
    findings,
    grades,
    ledger_groups,
    prefix_sentences,
    primary,
    read_sentences,
    ruled_out,
    split_tables,
    title,
    ttft_figures,
    who,
    worked_examples,
    worst_table,
)
from ttftdoctor.units import count

#: The parts: how they are reached, what they are called, and what they answer.
PARTS = (
    ("background", "Background", "What was logged, when, and how much."),
    ("operation", "Operation", "How the time to first token was taken apart."),
    ("result", "Result", "What was found."),
    ("reading", "Reading", "Why this is the answer, and what was ruled out."),
    ("variations", "Variations", "What each remedy would gain, cost and leave as it is."),
)


def review(d: Diagnosis) -> tuple[str, list[Drawing]]:
    """The five parts as HTML, without those that are empty, and what is drawn in them."""
    shown = _result(d)
    helped = [one for one in [before_and_after(d)] if one is not None]
    bodies = {
        "background": _background(d),
        "operation": _operation(d),
        "result": drawn(shown) + breaks(d) + _found(d),
        "reading": _reading(d),
        "variations": drawn(helped)
        + card("Remedies, what they cost, leave and assume", remedies(d)),
    }
    there = [part for part in PARTS if bodies[part[0]]]
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in there)
    sections = "".join(
        f'<section class="part" id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{heading}</h2><p class="lead">{lead}</p>{bodies[name]}</section>'
        for name, heading, lead in there
    )
    nav = f'<nav class="parts" aria-label="Parts of this report"><ul>{links}</ul></nav>'
    return nav + sections, [*shown, *helped]


# --- background -----------------------------------------------------------------------------------


def _background(d: Diagnosis) -> str:
    p = d.population
    said = [sentence(", ".join(who(d)))]
    if p.with_ttft:
        said.append(sentence(ttft_figures(d)))
    lines = read_sentences(d)[:-1]  # the last one tells how the evidence was come by
    rejects = [line for line in lines if line.startswith("  line ")]
    read = [line for line in lines if line not in rejects]
    out = [
        f"<p>{esc(' '.join(said))}</p><h3>What was read</h3>",
        listed((line.strip() for line in read), "read"),
        folded("The first rows that were rejected, and why",
               listed((line.strip() for line in rejects), "read")),
    ]  # fmt: skip
    return box("".join(out))


# --- operation ------------------------------------------------------------------------------------


def _operation(d: Diagnosis) -> str:
    groups = ledger_groups(d)
    out = []
    if groups and d.cost_lines.prefill is not None:
        sides = ", ".join(f"{title(g.group)} ({count(g.n)})" for g in groups[1:])
        text = (
            f"The TTFT of {count(groups[0].n)} requests was split into accounts that add up to it: "
            "the constant and the prefill of new and of repeated tokens by the lines below, the "
            "work that was ahead as waiting, and what is left as unexplained."
        )
        if sides:
            text += f" Then groups were set beside each other: {sides}."
        out.append(f"<p>{esc(text)}</p>")
    out.append(f"<p>{esc(grades(d))}</p>")
    if d.evidence.notes:
        out.append(f"<h3>Notes on the evidence</h3>{listed(d.evidence.notes)}")
    two = (
        f'<div class="two"><div><h3>Cost of a token</h3>{listed(cost_sentences(d))}</div>'
        f"<div><h3>Repeated prefix</h3>{listed(prefix_sentences(d))}</div></div>"
    )
    tables = [t for t in split_tables(d) if t.rows]
    splits = "".join(table_of(t) for t in tables)
    names = ", ".join(t.title.lower() for t in tables)
    return box("".join(out) + two + folded(f"All splits: {names}", splits), "card splits")


# --- result ---------------------------------------------------------------------------------------


def _result(d: Diagnosis) -> list[Drawing]:
    """The charts, those that answer first first, as far as the log allows."""
    return _known(
        (
            accounts(d),
            by_turn(d),
            against_uncached(d),
            heat(d),
            decode_by_turn(d),
            decode_by_context(d),
            over_time(d),
            by_session(d),
            *ladder(d),
        )
    )


def _known(made: Iterable[Drawing | None]) -> list[Drawing]:
    """Those that the log allows; one of a narrow pair that is left alone takes the whole width."""
    out = [one for one in made if one is not None]
    rows: list[list[int]] = []
    for at, one in enumerate(out):
        if not one.wide and rows and len(rows[-1]) == 1 and not out[rows[-1][0]].wide:
            rows[-1].append(at)
        else:
            rows.append([at])
    for row in rows:
        if len(row) == 1:
            out[row[0]] = replace(out[row[0]], wide=True)
    return out


def _found(d: Diagnosis) -> str:
    """The requests to look up, and the worst of them spelled out."""
    rows, examples = worst_table(d), worked_examples(d)
    if rows is None and not examples:
        return ""
    heading = rows.title if rows is not None else "The worst requests"
    body = table_of(rows, named=False) if rows is not None else ""
    return card(heading, body + listed(examples))


# --- reading --------------------------------------------------------------------------------------


def _reading(d: Diagnosis) -> str:
    v = d.verdict
    if not d.causes and v.experiment is None:
        return ""
    out = []
    first = primary(d)
    if first is not None and about(first):
        out.append(
            f"<h3>Why <code>{esc(first.id)}</code></h3>{listed(map(sentence, about(first)))}"
        )
    if v.experiment is not None:
        out.append(f"<h3>To prove it</h3><p>{esc(v.experiment.text)}</p>")
        if v.experiment.command:
            out.append(f'<p class="command"><code>{esc(v.experiment.command)}</code></p>')
    out.append(_others(d, None if first is None else first.id))
    ruled = [(f"<code>{esc(name)}</code>", esc(sentence(text))) for name, text in ruled_out(d)]
    if ruled:
        out.append(f"<h3>Ruled out</h3>{defined(ruled)}")
    if d.causes:
        out.append(folded("All causes and their figures", table_of(cause_table(d), named=False)))
    return box("".join(out))


def _others(d: Diagnosis, first: str | None) -> str:
    """Causes that are at work as well, and those that could not be judged and why."""
    at_work, unjudged = [], dict[tuple[str, ...], list[str]]()
    for f in findings(d):
        if f.status == "unjudged":
            unjudged.setdefault(f.needs, []).append(f"<code>{esc(f.id)}</code>")
        elif f.status != "ruled_out" and f.id != first and about(f):
            said = " ".join(map(sentence, about(f)))
            at_work.append((f"<code>{esc(f.id)}</code> {esc(title(f.status))}", esc(said, 20_000)))
    out = f"<h3>At work as well</h3>{defined(at_work)}" if at_work else ""
    if unjudged:
        out += "<h3>Not judged</h3>" + _unjudged(unjudged)
    return out


def _unjudged(unjudged: dict[tuple[str, ...], list[str]]) -> str:
    items: Sequence[str] = [
        f"<li>{esc(', '.join(clean(n, 60) for n in needs) or 'more than this log has')} would "
        f"decide {', '.join(names)}</li>"
        for needs, names in unjudged.items()
    ]
    return f"<ul>{''.join(items)}</ul>"
