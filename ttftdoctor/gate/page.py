"""A check as one page that opens offline: the answer, every metric with its interval and limit."""

from __future__ import annotations

from ttftdoctor.gate.records import Check, Checked
from ttftdoctor.gate.reports import (
    BADGES,
    asked,
    budget_table,
    called,
    limit_of,
    metric_table,
    moved_by,
    open_questions,
    policy_of,
    read_sentences,
    side_table,
    who,
    without_word,
)
from ttftdoctor.gate.words import shown
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
    word, severity = BADGES[c.outcome]
    drawings = [one for one in [_metrics(c)] if one is not None]
    lists = (
        ("What moved", [sentence(m.says) for m in c.moved]),
        ("Why", [sentence(reason) for reason in c.reasons]),
        ("Open questions" if c.outcome != "fail" else "Details", open_questions(c)),
    )
    boxes = "".join(
        f"<section><h2>{name}</h2>{listed(lines, 'evidence')}</section>"
        for name, lines in lists
        if lines
    )
    tables = [found for found in (metric_table(c), budget_table(c)) if found is not None]
    sides = side_table(c)
    body = [
        brand(c.version, [f"{who(c.current)}, against {who(c.baseline)}"]),
        heading(word, severity, without_word(c), [esc(f"Policy: {policy_of(c)}")], _proofs(c)),
        f'<div class="answer">{boxes}</div>' if boxes else "",
        f'<section class="warnings"><h2>Warnings</h2>{listed(c.warnings)}</section>'
        if c.warnings
        else "",
        f'<section class="part"><h2>Result</h2>{drawn(drawings)}'
        if drawings or tables
        else "<section>",
        *(card(found.title, table_of(found, named=False)) for found in tables),
        "</section>",
        '<section class="part"><h2>Background</h2>',
        card(sides.title, table_of(sides, named=False) + listed(read_sentences(c), "read")),
        card("Notes", listed(map(sentence, c.notes))),
        "</section>",
    ]
    return page(f"{word.capitalize()}: TTFT against a baseline", "\n".join(body), drawings)


def _proofs(c: Check) -> list[Proof]:
    """The metric that says most, equal and raw, and how many of all failed."""
    metrics = asked(c)
    if not metrics:
        return []
    out = []
    first = metrics[0]
    change = moved_by(first.change, first.change_share, first.unit)
    if change != "-":
        ends = f"{shown(first.baseline, first.unit)} to {shown(first.current, first.unit)}"
        out.append(Proof(change, f"{called(first)} at equal mix, from {ends}"))
        raw = moved_by(first.raw_change, first.raw_change_share, first.unit)
        if raw != "-":
            out.append(Proof(raw, "the same as logged, whatever the traffic"))
    failed = len(c.failed())
    out.append(Proof(count(failed), f"of {count(len(c.metrics))} metrics and budgets failed"))
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
        "change at equal mix, % of the baseline",
    )
    limits = [_limit(m) for m in rows]
    known = [(at, value) for at, value in enumerate(limits) if value is not None]
    made["data"].append(
        {
            "type": "scatter", "mode": "markers", "name": "limit", "hoverinfo": "skip",
            "x": [100 * value for _, value in known], "y": [at for at, _ in known],
            "marker": {
                "symbol": "line-ns-open", "size": 18, "color": "@bad",
                "line": {"width": 2.5, "color": "@bad"},
            },
        }
    )  # fmt: skip
    failed = [m for m in rows if m.outcome == "fail"]
    reading = (
        f"{count(len(failed))} of {count(len(rows))} changes are worse than their limit allows"
        if failed
        else "No change is worse than its limit allows"
    )
    reading += (
        "; lines are 95 % intervals at equal mix, upright strokes the limits"
        f" (here {limit_of(rows[0])} for {called(rows[0])})."
    )
    return Drawing("metrics", "Changes against their limits", reading, made, wide=True)


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
