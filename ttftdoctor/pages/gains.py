"""What would help: the same requests before and after, and what each remedy leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, Gain
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, Figure, figure, rounded, wrapped
from ttftdoctor.pages.markup import defined, esc, label, table_of
from ttftdoctor.report import (
    best_remedy,
    clean,
    gain,
    gain_sentence,
    ledger_groups,
    remedies_by_gain,
    remedy_name,
    remedy_table,
    saving_sentence,
    title,
)
from ttftdoctor.units import seconds, share

#: An account smaller than this part of the mean is not worth naming.
SMALL = 0.02


def before_and_after(d: Diagnosis) -> Drawing | None:
    """Where the TTFT of the same requests lies today and with each remedy."""
    today = d.population.ttft_mean_s
    rows = [r for r in remedies_by_gain(d) if r.ttft_mean_s is not None]
    if not rows or today is None:
        return None
    p = d.population
    levels = [
        _Level("today", tr("today"), today, p.ttft_p50_s, p.ttft_p95_s),
        *(_Level(r.id, remedy_name(r), r.ttft_mean_s, r.ttft_p50_s, r.ttft_p95_s) for r in rows),
    ]
    made = figure(
        [*_spreads(d, levels), *_marks(levels)],
        tr("TTFT, seconds"),
        "",
        height=110 + 54 * len(levels),
        xaxis={"rangemode": "tozero"},
        yaxis={
            "tickmode": "array",
            "tickvals": list(range(len(levels))),
            "ticktext": [tr("today"), *(_tick(r) for r in rows)],
            "title": {"text": ""},
            "range": [len(levels) - 0.5, -0.5],
            "zeroline": False,
        },
    )
    best = best_remedy(d)
    if best is None or best.ttft_mean_s is None:
        best = rows[0]
    reading = tr(
        "{remedy}: {gain}. Each line is the log's own arrivals served again with what it names; "
        "gains must not be added up.",
        remedy=remedy_name(best), gain=gain_sentence(best, today),
    )  # fmt: skip
    return Drawing(
        "remedies",
        tr("What would help: before and after"),
        reading,
        made,
        table_of(remedy_table(d), named=False),
        wide=True,
    )


class _Level(NamedTuple):
    """One line of the chart; seconds."""

    ident: str
    name: str
    mean: float | None
    p50: float | None
    p95: float | None


def _spreads(d: Diagnosis, levels: Sequence[_Level]) -> list[Figure]:
    """Nine in ten requests as a thin line, the middle half as a thick one."""
    known = [_spread(d, level.ident, level.p95) for level in levels]
    out = []
    for name, width, ends in (
        (tr("nine in ten"), 2, (0, 3)),
        (tr("the middle half"), 12, (1, 2)),
    ):
        x, y = _ranges(known, ends)
        if x:
            out.append(
                {
                    "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y,
                    "line": {"color": "@new-soft", "width": width}, "hoverinfo": "skip",
                }
            )  # fmt: skip
    return out


def _marks(levels: Sequence[_Level]) -> list[Figure]:
    """95th percentile, median and mean, each with a shape of its own."""
    notes = [[label(v.name), seconds(v.mean), seconds(v.p50), seconds(v.p95)] for v in levels]
    hover = tr(
        "%{customdata[0]}<br>mean %{customdata[1]}, median %{customdata[2]}, p95 %{customdata[3]}"
        "<extra></extra>"
    )
    shapes = (
        ("p95", [v.p95 for v in levels], "line-ns-open", 11, "@accent", "@accent"),
        (tr("median"), [v.p50 for v in levels], "circle", 9, "@accent", "@card"),
        (tr("mean"), [v.mean for v in levels], "diamond", 10, "@text", "@card"),
    )
    return [
        {
            "type": "scatter", "mode": "markers", "name": name, "x": rounded(values),
            "y": list(range(len(levels))), "customdata": notes, "hovertemplate": hover,
            "marker": {
                "symbol": symbol, "size": size, "color": colour,
                "line": {"width": 1.5, "color": edge},
            },
        }
        for name, values, symbol, size, colour, edge in shapes
        if any(v is not None for v in values)
    ]  # fmt: skip


def remedies(d: Diagnosis) -> str:
    """Every remedy: its gain, its cost, what it leaves as it is, and what is assumed."""
    items = []
    for r in remedies_by_gain(d):
        said = [esc(gain_sentence(r, d.population.ttft_mean_s))]
        if r.note:
            said.append(esc(r.note))
        if r.cost:
            said.append(esc(tr("Cost: {cost}", cost=r.cost)))
        saving = saving_sentence(d, r)
        if saving:
            said.append(esc(tr("Over this log it {saving}.", saving=saving)))
        left = unchanged(d, r)
        if left:
            said.append(esc(tr("Leaves as it is: {accounts}", accounts=left)))
        if r.assumptions:
            assumed = tr("; ").join(clean(a) for a in r.assumptions)
            said.append(esc(tr("Assumes: {assumed}", assumed=assumed)))
        name = f"{esc(remedy_name(r))} <code>{esc(r.id)}</code>"
        items.append((name, "</dd><dd>".join(said)))
    return defined(items, "remedies")


def unchanged(d: Diagnosis, remedy: Gain) -> str:
    """The accounts of the mean TTFT that a remedy cannot shrink; empty where that is not known."""
    acts = d.charts.acts_on.get(remedy.id)
    groups = ledger_groups(d)
    if not acts or not groups:
        return ""
    whole = groups[0]
    left = {
        name: whole.accounts.get(name, 0.0)
        for name in ACCOUNTS
        # Waiting goes with the work of others: no remedy leaves it quite as it is.
        if name not in acts and not name.startswith("queue")
        if whole.accounts.get(name, 0.0) > SMALL * whole.ttft_mean_s
    }
    if not left or not whole.ttft_mean_s:
        return ""
    parts = [f"{title(name)} {seconds(value)}" for name, value in left.items()]
    return tr(
        "{accounts} ({part} of the mean TTFT)",
        accounts=tr(", ").join(parts), part=share(sum(left.values()) / whole.ttft_mean_s),
    )  # fmt: skip


def _tick(r: Gain) -> str:
    """A name in short lines, and its gain below."""
    lines = [label(part) for part in wrapped(remedy_name(r), 22)]
    return "<br>".join([*lines, label(gain(r.gain_share))] if r.gain_share is not None else lines)


def _spread(d: Diagnosis, ident: str, p95: float | None) -> tuple[float, ...] | None:
    """5 %, 25 %, 75 % and 95 % of TTFT, rising; None where they are not known."""
    found = d.charts.spreads.get(ident)
    if found is None or p95 is None:
        return None
    low, middle, high = found
    return low, middle, min(high, p95), p95


def _ranges(
    spreads: Sequence[tuple[float, ...] | None], ends: tuple[int, int]
) -> tuple[list[Any], list[Any]]:
    """Lines from end to end at the height of each row, with gaps in between."""
    x: list[Any] = []
    y: list[Any] = []
    for at, spread in enumerate(spreads):
        if spread is not None:
            x += [*rounded([spread[ends[0]], spread[ends[1]]]), None]
            y += [at, at, None]
    return x, y
