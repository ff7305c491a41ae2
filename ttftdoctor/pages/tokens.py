"""TTFT against the tokens that prefill had to compute: density, fitted line and its interval."""

from __future__ import annotations

import math

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, Figure, figure, rounded
from ttftdoctor.pages.markup import paragraph, table_of
from ttftdoctor.report import Table
from ttftdoctor.units import count, milliseconds, seconds


def against_uncached(d: Diagnosis) -> Drawing | None:
    """The chart; None where the log has no lengths or no TTFT."""
    points = d.charts.line_points
    density = _density(d)
    if density is None and not points:
        return None
    traces = [density] if density is not None else []
    if points:
        traces += _line(d)
    made = figure(
        traces, tr("uncached prompt tokens"), tr("TTFT, seconds"), height=440,
        xaxis={"rangemode": "tozero", "tickformat": ",d", "tickangle": 0, "nticks": 6},
    )  # fmt: skip
    figures = Table(
        "line",
        tr("Fitted line"),
        (tr("uncached tokens"), "TTFT", tr("low"), tr("high")),
        tuple((count(p[0]), seconds(p[1]), seconds(p[2]), seconds(p[3])) for p in points),
        frozenset(),
    )
    return Drawing(
        "uncached", tr("TTFT against uncached tokens"), _reading(d, density is not None), made,
        table_of(figures, named=False) if points else "",
    )  # fmt: skip


def _density(d: Diagnosis) -> Figure | None:
    """Cells of the plane, the more requests in one the darker; however many there are in all."""
    bins = [b for b in d.charts.ttft_by_uncached if b.n > 0]
    if not bins:
        return None
    weight = [round(math.log10(b.n), 2) for b in bins]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": tr("requests"),
        "x": rounded([b.x for b in bins], 4),
        "y": rounded([b.y for b in bins], 4),
        "marker": {
            "symbol": "square",
            "size": 6,
            "color": weight,
            "cmin": 0,
            "cmax": max(*weight, 0.5),
            "colorscale": [[0, "@sparse"], [1, "@dense"]],
            "line": {"width": 0},
        },
        "customdata": [b.n for b in bins],
        "hovertemplate": tr(
            "about %{x:,.0f} uncached tokens, %{y:.3g} s<br>"
            "%{customdata:,d} requests<extra></extra>"
        ),
    }


def _line(d: Diagnosis) -> list[Figure]:
    points = d.charts.line_points
    plain: Figure = {
        "type": "scatter", "mode": "lines", "x": rounded([p[0] for p in points], 6),
        "hoverinfo": "skip", "showlegend": False, "line": {"width": 0},
    }  # fmt: skip
    return [
        {**plain, "y": rounded([p[2] for p in points])},
        {**plain, "y": rounded([p[3] for p in points]), "fill": "tonexty", "fillcolor": "@band"},
        {
            **plain,
            "y": rounded([p[1] for p in points]),
            "name": tr("fitted, without waiting"),
            "line": {"color": "@repeated", "width": 2.5},
            "hoverinfo": "all",
            "showlegend": True,
            "customdata": [
                [count(p[0]), seconds(p[1]), seconds(p[2]), seconds(p[3])] for p in points
            ],
            "hovertemplate": tr(
                "%{customdata[0]} uncached tokens: %{customdata[1]}"
                "<br>(%{customdata[2]} to %{customdata[3]})<extra></extra>"
            ),
        },
    ]


def _reading(d: Diagnosis, dense: bool) -> str:
    line = d.cost_lines.prefill
    if line is None:
        said = [tr("The log does not determine a cost per token.")]
    else:
        said = [
            tr(
                "Each 1,000 uncached tokens cost {cost}, on top of {fixed} that every request "
                "pays; what lies above the line is waiting.",
                cost=milliseconds(line.ms_per_1k_tokens), fixed=milliseconds(line.fixed_ms),
            )
        ]  # fmt: skip
    if dense:
        said.append(tr("The stronger its colour, the more requests lie at a place."))
    above, top_s = d.charts.ttft_above
    if above:
        said.append(
            tr("Above {ttft} lie {n} more, which are not drawn.",
               ttft=seconds(top_s), n=count(above))
        )  # fmt: skip
    return paragraph(said)
