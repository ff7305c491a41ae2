"""What a drawing is, and the ground that all of them stand on.

Traces are Plotly's, as plain data. A colour such as ``@new`` is one of the page's and is filled in
by its script, so that light and dark pages hold the same data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttftdoctor.language import Language, spoken, tr
from ttftdoctor.pages.markup import esc, folded

Figure = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """One chart: what it shows, the sentence that reads it, and its figures as a table.

    ``table`` and ``legend`` are HTML. Without a ``figure`` the table is the drawing itself, and is
    not folded away. ``wide`` ones take the whole width of the page.
    """

    name: str
    title: str
    reading: str
    figure: Figure | None
    table: str = ""
    legend: str = ""
    wide: bool = False

    @property
    def height(self) -> int:
        """Pixels that the page keeps free for it."""
        return int(self.figure["layout"]["height"]) if self.figure else 0


_AXIS = {
    "gridcolor": "@grid",
    "zerolinecolor": "@grid",
    "linecolor": "@grid",
}
#: Typefaces of charts, which in an image have no style sheet to help them.
FONTS: dict[Language, str] = {
    "en": "system-ui, sans-serif",
    "zh": "system-ui, PingFang SC, Microsoft YaHei, Noto Sans CJK SC, sans-serif",
}
#: Pixels for a title and figures at the side, as long as they get; names make their own room.
LEFT, LEFT_OF_NAMES = 66, 12
#: Seconds, shares and tokens less than this are none.
DUST = 1e-9


def figure(traces: Sequence[Figure], x: str, y: str, *, height: int = 340, **layout: Any) -> Figure:
    """A figure with the page's type, colours and axes; ``layout`` adds to it, part by part.

    Figures at the side have a fixed room: were it made for them, the room would decide on the
    figures and the figures on the room, which need not end. Names do not change with their room.
    """
    side = layout.get("yaxis", {})
    names = "ticktext" in side or side.get("autorange") == "reversed"
    room: Figure = {"automargin": "left"} if names else {}
    base: Figure = {
        "height": height,
        "margin": {"l": LEFT_OF_NAMES if names else LEFT, "r": 14, "t": 12, "b": 46},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONTS[spoken()], "size": 13, "color": "@text"},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@grid", "font": {"color": "@text"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        "xaxis": {**_AXIS, "automargin": "bottom", "title": {"text": x}},
        "yaxis": {**_AXIS, **room, "title": {"text": y}, "rangemode": "tozero"},
        "dragmode": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@accent"},
    }
    for key, value in layout.items():
        old = base.get(key)
        base[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return {"data": list(traces), "layout": base}


def second_axis(title: str, low: float, high: float) -> Figure:
    """A further axis of heights, for a strip of the figure from ``low`` to ``high``."""
    return {**_AXIS, "domain": [low, high], "rangemode": "tozero", "title": {"text": title}}


def line(
    name: str, x: Sequence[Any], y: Sequence[float | None], colour: str, hover: str, **more: Any
) -> Figure:
    """A line with markers; ``more`` replaces parts of it."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": hover,
        **more,
    }


def shade(start: Any, end: Any) -> Figure:
    """A shaded stretch of time, below the lines."""
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "fillcolor": "@shade",
        "line": {"width": 0},
        "layer": "below",
    }


def number(value: object) -> float | None:
    """A finite number, or None for anything else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def rounded(values: Sequence[float | None], figures: int = 5) -> list[float | None]:
    """Numbers with a few figures: a page needs no more, and stays small.

    What is below ``DUST`` is the rounding of sums, and would be drawn with powers of ten.
    """

    def short(value: float) -> float:
        return float(f"{value:.{figures}g}") if abs(value) > DUST else 0.0

    return [None if v is None or not math.isfinite(v) else short(v) for v in values]


def data_of(drawings: Sequence[Drawing]) -> Mapping[str, Figure]:
    """What the page's script draws, by the names of the places."""
    return {d.name: d.figure for d in drawings if d.figure is not None}


_WIDE = re.compile("[\u2e80-\u9fff\uff00-\uffef]")
#: A label is broken between words, and between Chinese characters: not before what closes there.
_PIECE = re.compile(
    " ?(?:[（“]*[\u2e80-\u9fff\uff00-\uffef][、。，；：）”]*|[^ \u2e80-\u9fff\uff00-\uffef]+)"
)


def wrapped(name: str, width: int = 18, most: int = 2) -> list[str]:
    """A label broken into short lines."""
    out, row = [], ""
    for piece in _PIECE.findall(" ".join(name.split())):
        if row and _columns(row + piece) > width:
            out.append(row)
            row = piece.lstrip()
        else:
            row += piece
    out.append(row)
    cut = [part if len(part) <= width + 4 else part[: width + 3] + "…" for part in out]
    if len(cut) > most:
        cut = [*cut[: most - 1], cut[most - 1].rstrip("…") + "…"]
    return cut


def _columns(text: str) -> int:
    """How wide a text is; a Chinese character takes two columns."""
    return len(text) + len(_WIDE.findall(text))


def drawn(drawings: Sequence[Drawing]) -> str:
    """The places of the drawings, each with its reading below it and its table behind a toggle."""
    out = []
    for d in drawings:
        css = "chart wide" if d.wide else "chart"
        ident = esc(d.name, 40)
        place = table = ""
        if d.figure is None:
            place = d.table
        else:
            place = (
                f'<div class="plot" id="plot-{ident}" role="group" '
                f'aria-labelledby="title-{ident}" aria-describedby="reading-{ident}"></div>'
            )
            table = folded(tr("The figures"), d.table)
        out.append(
            f'<figure class="{css}"><h3 id="title-{ident}">{esc(d.title)}</h3>{d.legend}{place}'
            f'<figcaption class="reading" id="reading-{ident}">{esc(d.reading)}</figcaption>'
            f"{table}</figure>"
        )
    return f'<div class="charts">{"".join(out)}</div>' if out else ""
