"""The charts of the prefix findings: what is drawn, as plain data, and how it is read.

Traces are Plotly's; a colour such as ``@new`` is one of the page's. No text of a log is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ttftdoctor.language import tr
from ttftdoctor.prefixes import sections as words
from ttftdoctor.prefixes.records import Capacity, Expiry, Ladder, PrefixFindings
from ttftdoctor.report import Table, clean, money
from ttftdoctor.units import seconds, share, tokens


@dataclass(frozen=True)
class Chart:
    """One chart: its traces and axes, a sentence that reads it, and its figures as a table."""

    name: str
    title: str
    reading: str
    traces: tuple[dict[str, Any], ...]
    x: str
    y: str
    table: Table | None
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 340


def charts(found: PrefixFindings) -> list[Chart]:
    """The ladder, the capacity curve and the expiry curve, as far as they are known."""
    out = []
    ladder = words.shown(found)
    if ladder is not None:
        out.append(_ladder(found, ladder))
    if found.capacity is not None and len(found.capacity.sizes) > 1:
        asked = found.ladder.limits.capacity_tokens if found.ladder is not None else None
        out.append(_capacity(found.capacity, asked))
    if found.expiry is not None and len(found.expiry.lifetimes) > 1:
        asked_s = found.ladder.limits.ttl_s if found.ladder is not None else None
        out.append(_expiry(found.expiry, asked_s))
    return out


def _ladder(found: PrefixFindings, ladder: Ladder) -> Chart:
    rungs = ladder.rungs
    names = [clean(rung.title, 40) for rung in rungs]
    known = [rung.basis != "unknown" for rung in rungs]
    gone = [max(0.0, rung.lost_share) if place else 0.0 for place, rung in enumerate(rungs)]
    left = {
        "type": "bar",
        "orientation": "h",
        "name": tr("left"),
        "y": names,
        "x": [round(100 * rung.share, 3) for rung in rungs],
        "marker": {"color": ["@new" if sure else "@new-soft" for sure in known]},
        "text": [share(rung.share) for rung in rungs],
        "textposition": "auto",
        "insidetextanchor": "start",
        "customdata": [
            [tokens(rung.hit_tokens), share(rung.share), words.basis_of(rung)] for rung in rungs
        ],
        "hovertemplate": tr(
            "%{y}: %{customdata[1]} of the prompt tokens left, %{customdata[0]}<br>"
            "limit: %{customdata[2]}<extra></extra>"
        ),
    }
    notes = []
    for place, rung in enumerate(rungs):
        parts = [tr("{n} tokens", n=tokens(rung.lost_tokens))]
        if rung.lost_seconds is not None:
            parts.append(tr("{time} of prefill", time=seconds(rung.lost_seconds)))
        if rung.lost_money is not None:
            parts.append(f"{money(rung.lost_money)} {words.currency(ladder)}")
        notes.append([words.points(rung) if place else "-", tr(", ").join(parts)])
    lost = {
        "type": "bar",
        "orientation": "h",
        "name": tr("lost here"),
        "y": names,
        "x": [round(100 * value, 3) for value in gone],
        "marker": {"color": "@repeated"},
        "text": [
            note[0] if value >= 0.005 else "" for note, value in zip(notes, gone, strict=True)
        ],
        "textposition": "auto",
        "cliponaxis": False,
        "customdata": [[_escaped(cell) for cell in note] for note in notes],
        "hovertemplate": tr(
            "%{y}: %{customdata[0]} points lost<br>%{customdata[1]}<extra></extra>"
        ),
    }
    reading = words.together([words.headline(found), *words.basis_sentences(ladder)])
    return Chart(
        "prefix_ladder",
        tr("Where reusable work is lost"),
        reading,
        (left, lost),
        tr("of the prompt tokens, %"),
        "",
        words.ladder_table(ladder, room=0),
        {
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "bargap": 0.3,
            "yaxis": {"autorange": "reversed", "title": {"text": ""}, "fixedrange": True},
            # Room for a figure beside the longest bar.
            "xaxis": {"range": [0, round(125 * max((r.share for r in rungs), default=0), 3) or 1]},
        },
        height=110 + 40 * len(rungs),
    )


def _capacity(c: Capacity, asked: int | None) -> Chart:
    x = [size.capacity_tokens for size in c.sizes]
    notes = [
        [
            tokens(s.capacity_tokens),
            tr(" ({n} GB)", n=words.gigabytes(s.capacity_gb))
            if s.capacity_gb is not None else "",
            share(s.lru_share), share(s.optimal_share),
        ]
        for s in c.sizes
    ]  # fmt: skip
    hover = tr(
        "%{customdata[0]} tokens%{customdata[1]}<br>least recently used leaves first: "
        "%{customdata[2]}<br>clairvoyant: %{customdata[3]}<extra></extra>"
    )
    traces = (
        _curve(tr("optimal (clairvoyant)"), x, [s.optimal_share for s in c.sizes], "@muted", hover,
               notes, dash="dot"),
        _curve("LRU", x, [s.lru_share for s in c.sizes], "@accent", hover, notes),
    )  # fmt: skip
    marks = []
    if c.flat_tokens is not None:
        marks.append((c.flat_tokens, tr("flattens")))
    if asked is not None:
        marks.append((asked, tr("as in the ladder")))
    section = next(s for s in words.sections(_only(capacity=c)) if s.table is not None)
    return Chart(
        "prefix_capacity",
        tr("Hit share by cache size"),
        words.together(section.said),
        traces,
        tr("tokens in the cache"),
        tr("of the prompt tokens, %"),
        section.table,
        {
            "xaxis": {
                "type": "log",
                "tickformat": "~s",
                "dtick": 1 if x[-1] > 100 * x[0] else "D2",
            },
            **_marked([(value, text) for value, text in marks if value > 0]),
        },
    )


def _expiry(e: Expiry, asked_s: float | None) -> Chart:
    x = [t.ttl_s for t in e.lifetimes]
    notes = [[seconds(t.ttl_s), share(t.share), share(t.of_ideal)] for t in e.lifetimes]
    hover = tr(
        "let go %{customdata[0]} after the last use<br>%{customdata[1]} of the prompt tokens, "
        "%{customdata[2]} of the ideal<extra></extra>"
    )
    section = next(s for s in words.sections(_only(expiry=e)) if s.table is not None)
    said = words.together([*section.said, *words.sentences([e.says] if e.says else [])])
    ticks = _apart(x)
    marks = [(asked_s, tr("as in the ladder"))] if asked_s is not None and asked_s > 0 else []
    return Chart(
        "prefix_expiry",
        tr("Hit share by lifetime"),
        said,
        (_curve(tr("kept"), x, [t.share for t in e.lifetimes], "@accent", hover, notes),),
        tr("time from the last use to the end"),
        tr("of the prompt tokens, %"),
        section.table,
        {
            "showlegend": False,
            "xaxis": {
                "type": "log", "tickmode": "array", "tickvals": ticks,
                "ticktext": [_short(value) for value in ticks],
            },
            **_marked(marks),
        },
    )  # fmt: skip


def _only(capacity: Capacity | None = None, expiry: Expiry | None = None) -> PrefixFindings:
    """Findings with one part, for the words that belong to it."""
    return PrefixFindings(
        "content", 0, 0, {}, 0, None, "none", "", capacity=capacity, expiry=expiry
    )


def _curve(
    name: str, x: list[Any], y: list[float], colour: str, hover: str, notes: list[list[str]],
    dash: str = "solid",
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": [round(100 * value, 3) for value in y],
        "line": {"color": colour, "width": 2.5, "dash": dash},
        "marker": {"color": colour, "size": 6},
        "customdata": notes,
        "hovertemplate": hover,
    }


def _marked(marks: list[tuple[float, str]]) -> dict[str, Any]:
    """Upright lines with a word beside them; on a logarithmic axis a note stands at the log."""
    from math import log10

    return {
        "shapes": [
            {
                "type": "line", "xref": "x", "yref": "paper", "x0": value, "x1": value,
                "y0": 0, "y1": 1, "line": {"color": "@repeated", "width": 1.5, "dash": "dash"},
            }
            for value, _ in marks
        ],
        "annotations": [
            {
                "x": log10(value), "xref": "x", "y": 0.04, "yref": "paper",
                "text": text, "showarrow": False, "xanchor": "right", "yanchor": "bottom",
                "font": {"size": 12, "color": "@repeated"}, "textangle": -90,
            }
            for value, text in marks
        ],
    }  # fmt: skip


def _apart(x: list[float], most: int = 6) -> list[float]:
    """Those of some rising values that are far enough apart on a logarithmic axis for labels."""
    from math import log

    least = log(x[-1] / x[0]) / most
    out = [x[0]]
    for value in x[1:]:
        if log(value / out[-1]) >= least:
            out.append(value)
    return out


def _short(value_s: float) -> str:
    """A lifetime in few characters: ``5 min``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value_s >= size:
            return f"{value_s / size:.3g} {unit}"
    return f"{value_s:.3g} s"


def _escaped(text: str) -> str:
    """Text for Plotly, which reads tags and entities in its labels."""
    from html import escape

    return escape(text, quote=False)
