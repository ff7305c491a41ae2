"""Load and TTFT through the day, with the peak marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import spoken, tr
from ttftdoctor.pages.figures import (
    Drawing,
    Figure,
    figure,
    line,
    number,
    rounded,
    second_axis,
    shade,
)
from ttftdoctor.pages.markup import label, table_of
from ttftdoctor.report import Table, clean, split_tables
from ttftdoctor.units import seconds

#: Rows of the table behind the chart where the log has no hours to sum up by.
MOST = 60


def over_time(d: Diagnosis) -> Drawing | None:
    """The chart; None where the log has no times, or all in one moment."""
    rows = [p for p in d.charts.load if p.get("t") is not None]
    if len(rows) < 2:
        return None
    relative = all(isinstance(p["t"], (int, float)) for p in rows)
    x = [p["t"] if relative else _stamp(p["t"]) for p in rows]
    rows = [p for p, at in zip(rows, x, strict=True) if at is not None]
    x = [at for at in x if at is not None]
    if len(rows) < 2:
        return None
    running = [number(p.get("running")) for p in rows]
    ttft = [number(p.get("ttft_p50_s")) for p in rows]
    hover = tr(
        "%{customdata[0]}<br>%{customdata[1]} in flight, TTFT p50 %{customdata[2]}<extra></extra>"
    )
    notes = [
        [label(p["t"], 40), "-" if r is None else f"{r:.3g}", seconds(s)]
        for p, r, s in zip(rows, running, ttft, strict=True)
    ]
    traces = [
        line(tr("requests in flight"), x, rounded(running, 4), "@muted", hover, customdata=notes,
             mode="lines", fill="tozeroy", fillcolor="@shade", yaxis="y2",
             line={"color": "@muted", "width": 1.5}),
        line("TTFT p50", x, rounded(ttft, 4), "@accent", hover, customdata=notes, mode="lines",
             line={"color": "@accent", "width": 2}),
    ]  # fmt: skip
    peaks = _peaks(rows, x)
    made = figure(
        traces,
        tr("seconds since the start") if relative else tr("time, UTC"),
        tr("TTFT, s"),
        height=380,
        xaxis={"anchor": "y2", "tickangle": 0, "nticks": 7, **({} if relative else _dates())},
        yaxis={"domain": [0.54, 1.0]},
        shapes=[shade(start, end) for start, end in peaks],
        annotations=[_named(*max(peaks, key=lambda p: _length(x, *p)))] if peaks else [],
        yaxis2=second_axis(tr("in flight"), 0.0, 0.46),
    )
    hours = "".join(table_of(t, named=False) for t in split_tables(d) if t.name == "by_hour")
    return Drawing(
        "load", tr("Load and TTFT over time"), _reading(rows), made, hours or _table(rows),
        wide=True,
    )  # fmt: skip


def _stamp(value: object) -> str | None:
    """An ISO instant as Plotly reads it, or None for anything else."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")


def _dates() -> Figure:
    """How the axis writes its times; nothing in English, which Plotly does by itself.

    What stands after a line break is written where it changes.
    """
    if spoken() == "en":
        return {}
    minute, day = 60_000, 86_400_000
    stops = (
        (None, minute - 1, tr("%H:%M:%S\n%b %-d, %Y")),
        (minute, day - 1, tr("%H:%M\n%b %-d, %Y")),
        (day, "M1", tr("%b %-d\n%Y")),
    )
    return {
        "tickformatstops": [{"dtickrange": [low, high], "value": text} for low, high, text in stops]
    }


def _peaks(rows: Sequence[Mapping[str, Any]], x: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Where the peak begins and ends; of many the first fifty."""
    out: list[tuple[Any, Any]] = []
    start: Any = None
    for at, row in zip(x, rows, strict=True):
        if row.get("peak") and start is None:
            start = at
        if not row.get("peak") and start is not None:
            out.append((start, at))
            start = None
    if start is not None:
        out.append((start, x[-1]))
    return out[:50]


def _length(x: Sequence[Any], start: Any, end: Any) -> int:
    return x.index(end) - x.index(start)


def _named(start: Any, end: Any) -> dict[str, Any]:
    return {
        "x": start, "xref": "x", "y": 0.5, "yref": "paper", "text": tr("peak"), "showarrow": False,
        "xanchor": "left", "yanchor": "middle", "font": {"size": 12, "color": "@muted"},
    }  # fmt: skip


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every so manieth point, for logs of less than two hours."""
    some = rows[:: max(1, -(-len(rows) // MOST))]
    cells = tuple(
        (
            f"{p['t']:,.0f} s" if isinstance(p["t"], (int, float)) else clean(p["t"], 40),
            "-" if (r := number(p.get("running"))) is None else f"{r:.3g}",
            seconds(number(p.get("ttft_p50_s"))),
            tr("peak") if p.get("peak") else "",
        )
        for p in some
    )
    columns = (tr("from"), tr("in flight"), "TTFT p50", "")
    return table_of(Table("load", tr("Load over time"), columns, cells), named=False)


def _reading(rows: Sequence[Mapping[str, Any]]) -> str:
    def known(name: str, peak: bool) -> list[float]:
        chosen = [
            number(r.get(name))
            for r in rows
            if bool(r.get("peak")) is peak and r.get("ttft_p50_s") is not None
        ]
        return sorted(v for v in chosen if v is not None)

    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    def median(values: list[float]) -> float | None:
        return values[len(values) // 2] if values else None

    a, b = mean(known("running", False)), mean(known("running", True))
    s, t = median(known("ttft_p50_s", False)), median(known("ttft_p50_s", True))
    if a is None or b is None:
        return tr("There is no peak that stands out from the rest.")
    peak, other = f"{b:.3g}", f"{a:.3g}"
    if s is None or t is None:
        return tr(
            "In the peak (shaded) {peak} requests are in flight on average, {other} otherwise.",
            peak=peak, other=other,
        )  # fmt: skip
    return tr(
        "In the peak (shaded) {peak} requests are in flight on average, {other} otherwise; the "
        "median TTFT is {ttft} against {other_ttft}.",
        peak=peak, other=other, ttft=seconds(t), other_ttft=seconds(s),
    )  # fmt: skip
