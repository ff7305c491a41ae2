"""A check as one page that opens offline: the answer, every metric with its interval and limit."""

from __future__ import annotations

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import (
    asked,
    badge,
    both,
    budget_table,
    called,
    limit_of,
    metric_table,
    moved_by,
    open_questions,
    policy_of,
    read_sentences,
    side_table,
    without_word,
)
from ttftdoctor.gate.words import shown
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, drawn
from ttftdoctor.pages.heading import Proof, heading
from ttftdoctor.pages.intervals import intervals
from ttftdoctor.pages.markup import card, esc, listed, sentence, table_of
from ttftdoctor.pages.shell import brand, page
from ttftdoctor.units import count

#: Metrics drawn; all of them stand in the table.
MOST = 40


def render(c: Check) -> str:
    """The whole page."""
    word, severity = badge(c)
    drawings = [one for one in [_metrics(c)] if one is not None]
    lists = (
        (tr("What moved"), [sentence(m.says) for m in c.moved]),
        (tr("Why"), [sentence(reason) for reason in c.reasons]),
        (tr("Open questions") if c.outcome != "fail" else tr("Details"), open_questions(c)),
    )
    boxes = "".join(
        f"<section><h2>{name}</h2>{listed(lines, 'evidence')}</section>"
        for name, lines in lists
        if lines
    )
    tables = [found for found in (metric_table(c), budget_table(c)) if found is not None]
    sides = side_table(c)
    policy = tr("Policy: {policy}", policy=policy_of(c))
    warnings, result, background = tr("Warnings"), tr("Result"), tr("Background")
    body = [
        brand(c.version, [both(c)]),
        heading(word, severity, without_word(c), [esc(policy)], _proofs(c)),
        f'<div class="answer">{boxes}</div>' if boxes else "",
        f'<section class="warnings"><h2>{warnings}</h2>{listed(c.warnings)}</section>'
        if c.warnings
        else "",
        f'<section class="part"><h2>{result}</h2>{drawn(drawings)}'
        if drawings or tables
        else "<section>",
        *(card(found.title, table_of(found, named=False)) for found in tables),
        "</section>",
        f'<section class="part"><h2>{background}</h2>',
        card(sides.title, table_of(sides, named=False) + listed(read_sentences(c), "read")),
        card(tr("Notes"), listed(map(sentence, c.notes))),
        "</section>",
    ]
    title = tr("{word}: TTFT against a baseline", word=word.capitalize())
    return page(title, "\n".join(body), drawings)


def _proofs(c: Check) -> list[Proof]:
    """The metric that says most, equal and raw, and how many of all failed."""
    metrics = asked(c)
    if not metrics:
        return []
    out = []
    first = metrics[0]
    change = moved_by(first.change, first.change_share, first.unit)
    if change != "-":
        name = tr("{metric} at equal mix, from {before} to {after}", metric=called(first),
                  before=shown(first.baseline, first.unit),
                  after=shown(first.current, first.unit))  # fmt: skip
        out.append(Proof(change, name))
        raw = moved_by(first.raw_change, first.raw_change_share, first.unit)
        if raw != "-":
            out.append(Proof(raw, tr("the same as logged, whatever the traffic")))
    failed = len(c.failed())
    name = tr("of {n} metrics and budgets failed", n=count(len(c.metrics)))
    out.append(Proof(count(failed), name))
    return out


def _metrics(c: Check) -> Drawing | None:
    """Changes at equal mix with their intervals, what failed first."""
    rows = [m for m in asked(c) if m.change_share is not None and m.interval is not None]
    rows = rows[:MOST]
    if not rows:
        return None
    made = intervals(
        [called(m) for m in rows],
        [m.change_share or 0.0 for m in rows],
        [_ends(m) for m in rows],
        tr("change at equal mix, % of the baseline"),
    )
    limits = [_limit(m) for m in rows]
    known = [(at, value) for at, value in enumerate(limits) if value is not None]
    made["data"].append(
        {
            "type": "scatter", "mode": "markers", "name": tr("limit"), "hoverinfo": "skip",
            "x": [100 * value for _, value in known], "y": [at for at, _ in known],
            "marker": {
                "symbol": "line-ns-open", "size": 18, "color": "@bad",
                "line": {"width": 2.5, "color": "@bad"},
            },
        }
    )  # fmt: skip
    failed = [m for m in rows if m.outcome == "fail"]
    reading = (
        tr("{n} of {all} changes are worse than their limit allows",
           n=count(len(failed)), all=count(len(rows)))
        if failed
        else tr("No change is worse than its limit allows")
    )  # fmt: skip
    reading = tr(
        "{changes}; lines are 95 % intervals at equal mix, upright strokes the limits (here "
        "{limit} for {metric}).",
        changes=reading, limit=limit_of(rows[0]), metric=called(rows[0]),
    )  # fmt: skip
    return Drawing("metrics", tr("Changes against their limits"), reading, made, wide=True)


def _ends(m: Checked) -> tuple[float, float]:
    """The interval as shares of the baseline."""
    low, high = m.interval or (0.0, 0.0)
    whole = m.baseline or 1.0
    return low / whole, high / whole


def _limit(m: Checked) -> float | None:
    """What may be lost as a share of the baseline: both limits must be exceeded."""
    parts = [] if m.limit_share is None else [m.limit_share]
    if m.limit is not None and m.baseline:
        parts.append(m.limit / m.baseline)
    if not parts:
        return None
    return max(parts) if m.worse == "up" else -max(parts)
