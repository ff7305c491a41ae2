"""Where reusable work is lost: the ladder, the curves behind it, and where prompts break."""

from __future__ import annotations

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.pages.figures import Drawing, figure
from ttftdoctor.pages.markup import card, listed, table_of
from ttftdoctor.prefixes.charts import charts
from ttftdoctor.prefixes.sections import sections


def ladder(d: Diagnosis) -> list[Drawing]:
    """The charts of the prefix findings, as far as they are known."""
    return [
        Drawing(
            one.name,
            one.title,
            one.reading,
            figure(one.traces, one.x, one.y, height=one.height, **one.layout),
            table_of(one.table, named=False) if one.table is not None else "",
            wide=one.name == "prefix_ladder",
        )
        for one in (charts(d.prefix) if d.prefix is not None else ())
    ]


def breaks(d: Diagnosis) -> str:
    """Where prompts break that should share a beginning."""
    parts = [part for part in sections(d.prefix) if part.first] if d.prefix is not None else []
    return "".join(
        card(
            part.title,
            (table_of(part.table, named=False) if part.table is not None else "")
            + listed(line.strip() for line in part.said),
        )
        for part in parts
    )
