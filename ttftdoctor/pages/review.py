"""The case review in five parts: background, operation, result, reading, variations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import mark, tr
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
    head,
    listed,
    paragraph,
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
    ("background", mark("Background"), mark("What was logged, when, and how much.")),
    ("operation", mark("Operation"), mark("How the time to first token was taken apart.")),
    ("result", mark("Result"), mark("What was found.")),
    ("reading", mark("Reading"), mark("Why this is the answer, and what was ruled out.")),
    (
        "variations",
        mark("Variations"),
        mark("What each remedy would gain, cost and leave as it is."),
    ),
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
        + card(tr("Remedies, what they cost, leave and assume"), remedies(d)),
    }
    there = [
        (name, esc(tr(heading)), esc(tr(lead))) for name, heading, lead in PARTS if bodies[name]
    ]
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in there)
    sections = "".join(
        f'<section class="part" id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{heading}</h2><p class="lead">{lead}</p>{bodies[name]}</section>'
        for name, heading, lead in there
    )
    name = esc(tr("Parts of this report"))
    nav = f'<nav class="parts" aria-label="{name}"><ul>{links}</ul></nav>'
    return nav + sections, [*shown, *helped]


# --- background -----------------------------------------------------------------------------------


def _background(d: Diagnosis) -> str:
    p = d.population
    said = [sentence(tr(", ").join(who(d)))]
    if p.with_ttft:
        said.append(sentence(ttft_figures(d)))
    read, rejects = _read(d)
    out = [
        f"<p>{esc(paragraph(said))}</p>",
        head("h3", tr("What was read")),
        listed((line.strip() for line in read), "read"),
        folded(tr("The first rows that were rejected, and why"),
               listed((line.strip() for line in rejects), "read")),
    ]  # fmt: skip
    return box("".join(out))


def _read(d: Diagnosis) -> tuple[list[str], list[str]]:
    """What was read, and apart from it the lines of the first rejects of each input."""
    lines = read_sentences(d)[:-1]  # the last one tells how the evidence was come by
    read, rejects = list[str](), list[str]()
    for item in d.inputs:
        first = 1 + len(item.first_rejects)
        read.append(lines[0])
        rejects += lines[1:first]
        lines = lines[first:]
        if item.ttft_set_aside:
            read.append(lines.pop(0))
    return read + lines, rejects


# --- operation ------------------------------------------------------------------------------------


def _operation(d: Diagnosis) -> str:
    groups = ledger_groups(d)
    out = []
    if groups and d.cost_lines.prefill is not None:
        text = tr(
            "The TTFT of {n} requests was split into accounts that add up to it: the constant and "
            "the prefill of new and of repeated tokens by the lines below, the work that was ahead "
            "as waiting, and what is left as unexplained.",
            n=count(groups[0].n),
        )
        sides = tr(", ").join(
            tr("{group} ({n})", group=title(g.group), n=count(g.n)) for g in groups[1:]
        )
        beside = tr("Then groups were set beside each other: {groups}.", groups=sides)
        out.append(f"<p>{esc(paragraph([text, beside if sides else '']))}</p>")
    out.append(f"<p>{esc(grades(d))}</p>")
    if d.evidence.notes:
        out += [head("h3", tr("Notes on the evidence")), listed(d.evidence.notes)]
    cost = head("h3", tr("Cost of a token")) + listed(cost_sentences(d))
    repeated = head("h3", tr("Repeated prefix")) + listed(prefix_sentences(d))
    two = f'<div class="two"><div>{cost}</div><div>{repeated}</div></div>'
    tables = [t for t in split_tables(d) if t.rows]
    splits = "".join(table_of(t) for t in tables)
    names = tr(", ").join(t.title.lower() for t in tables)
    every = folded(tr("All splits: {names}", names=names), splits)
    return box("".join(out) + two + every, "card splits")


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
    heading = rows.title if rows is not None else tr("The worst requests")
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
        name = f"<code>{esc(first.id)}</code>"
        heading = tr("Why {cause}", cause=name)
        out.append(f"<h3>{heading}</h3>{listed(map(sentence, about(first)))}")
    if v.experiment is not None:
        out.append(head("h3", tr("To prove it")) + f"<p>{esc(v.experiment.text)}</p>")
        if v.experiment.command:
            out.append(f'<p class="command"><code>{esc(v.experiment.command)}</code></p>')
    out.append(_others(d, None if first is None else first.id))
    ruled = [(f"<code>{esc(name)}</code>", esc(sentence(text))) for name, text in ruled_out(d)]
    if ruled:
        out += [head("h3", tr("Ruled out")), defined(ruled)]
    if d.causes:
        every = table_of(cause_table(d), named=False)
        out.append(folded(tr("All causes and their figures"), every))
    return box("".join(out))


def _others(d: Diagnosis, first: str | None) -> str:
    """Causes that are at work as well, and those that could not be judged and why."""
    at_work, unjudged = [], dict[tuple[str, ...], list[str]]()
    for f in findings(d):
        if f.status == "unjudged":
            unjudged.setdefault(f.needs, []).append(f"<code>{esc(f.id)}</code>")
        elif f.status != "ruled_out" and f.id != first and about(f):
            said = paragraph(map(sentence, about(f)))
            at_work.append((f"<code>{esc(f.id)}</code> {esc(title(f.status))}", esc(said, 20_000)))
    out = head("h3", tr("At work as well")) + defined(at_work) if at_work else ""
    if unjudged:
        out += head("h3", tr("Not judged")) + _unjudged(unjudged)
    return out


def _unjudged(unjudged: dict[tuple[str, ...], list[str]]) -> str:
    items = []
    for needs, names in unjudged.items():
        columns = tr(", ").join(clean(n, 60) for n in needs) or tr("more than this log has")
        said = tr(
            "{columns} would decide {causes}", columns=esc(columns), causes=tr(", ").join(names)
        )
        items.append(f"<li>{said}</li>")
    return f"<ul>{''.join(items)}</ul>"
