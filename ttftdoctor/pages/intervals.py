"""Changes with their intervals, one below the other: the drawing of comparisons and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Figure, figure, rounded
from ttftdoctor.pages.markup import label
from ttftdoctor.units import signed_share


def intervals(
    names: Sequence[str], values: Sequence[float], ends: Sequence[tuple[float, float]], x: str
) -> Figure:
    """Changes as shares of one, drawn in per cent with their intervals, the first on top."""
    places = list(range(len(names)))
    notes = [
        [label(name, 120), signed_share(v), signed_share(low), signed_share(high)]
        for name, v, (low, high) in zip(names, values, ends, strict=True)
    ]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([100 * v for v in values]),
        "y": places,
        "marker": {"color": "@accent", "size": 9},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rounded(
                [max(0.0, 100 * (e[1] - v)) for v, e in zip(values, ends, strict=True)]
            ),
            "arrayminus": rounded(
                [max(0.0, 100 * (v - e[0])) for v, e in zip(values, ends, strict=True)]
            ),
            "color": "@accent",
            "thickness": 2,
            "width": 5,
        },
        "customdata": notes,
        "hovertemplate": tr(
            "%{customdata[0]}: %{customdata[1]}<br>%{customdata[2]} to "
            "%{customdata[3]}<extra></extra>"
        ),
    }
    return figure(
        [trace], x, "", height=90 + 34 * len(names), showlegend=False,
        xaxis={"zeroline": True, "zerolinecolor": "@text", "zerolinewidth": 1.5},
        yaxis={
            "tickmode": "array", "tickvals": places, "ticktext": [label(n, 40) for n in names],
            "range": [len(names) - 0.5, -0.5], "zeroline": False,
        },
    )  # fmt: skip
