"""The charts as images for chat and slides: the same figures, light, with their titles."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.pages.figures import Drawing, Figure
from ttftdoctor.pages.markup import label
from ttftdoctor.pages.review import review

#: Every figure there may be.
NAMES = (
    "ledger", "by_turn", "uncached", "decode", "decode_context", "load", "waste", "remedies",
    "prefix_ladder", "prefix_capacity", "prefix_expiry",
)  # fmt: skip
#: Pixels, before the scale of the image.
WIDTH = 1000


def images(d: Diagnosis) -> dict[str, Figure]:
    """Figures by their names, ready to be drawn: colours filled in, and a title on top."""
    palette = light()
    return {
        one.name: _picture(one, palette) for one in review(d)[1] if one.figure is not None
    }  # fmt: skip


def light() -> dict[str, str]:
    """The colours of the light page by their names."""
    place = resources.files("ttftdoctor") / "pages" / "assets" / "page.css"
    block = place.read_text(encoding="utf-8").split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+):([^;]+);", block))


def _picture(drawing: Drawing, palette: dict[str, str]) -> Figure:
    made = _painted(drawing.figure, palette)
    layout = made["layout"]
    wide = drawing.legend or layout.get("showlegend", True)
    top = 84 if wide else 56
    layout |= {
        "width": WIDTH,
        "height": drawing.height + top,
        "margin": {**layout["margin"], "t": top},
        "paper_bgcolor": palette["card"],
        "plot_bgcolor": palette["card"],
        "showlegend": bool(wide),
        "title": {
            "text": label(drawing.title), "x": 0.02, "y": 0.985, "yanchor": "top",
            "xanchor": "left", "font": {"size": 19},
        },
    }  # fmt: skip
    return made  # type: ignore[no-any-return]


def _painted(value: Any, palette: dict[str, str]) -> Any:
    """A copy with a colour in the place of each name."""
    if isinstance(value, dict):
        return {key: _painted(inner, palette) for key, inner in value.items()}
    if isinstance(value, list):
        return [_painted(inner, palette) for inner in value]
    if isinstance(value, str) and value.startswith("@"):
        return palette.get(value[1:], value)
    return value
