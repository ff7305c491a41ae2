"""A comparison as one page that opens offline: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttftdoctor.comparisons.records import VIEWS, Comparison, Prediction, View, figure_name
from ttftdoctor.comparisons.report import (
    BADGES,
    TITLES,
    first_lists,
    sections,
    smallest_seen,
    who,
    without_word,
)
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, Figure, drawn, figure, rounded
from ttftdoctor.pages.heading import Proof, heading
from ttftdoctor.pages.intervals import intervals
from ttftdoctor.pages.markup import card, esc, listed, sentence, table_of
from ttftdoctor.pages.shell import brand, page
from ttftdoctor.report import clean
from ttftdoctor.units import seconds, share, signed_share


def render(c: Comparison) -> str:
    """The whole page."""
    badge, severity = BADGES[c.answer]
    word = tr(badge)
    made = (_levels(c), _changes(c), _parts(c), _hindcast(c))
    drawings = [one for drawing in made for one in _with_tables(c, drawing)]
    boxes = "".join(
        f"<section><h2>{esc(name)}</h2>{listed(map(sentence, lines), 'evidence')}</section>"
        for name, lines in first_lists(c)
    )
    body = [
        brand(c.version, [who(c)]),
        heading(word, severity, without_word(c), _facts(c), _proofs(c)),
        f'<div class="answer">{boxes}</div>' if boxes else "",
        _section("warnings", tr("Warnings"), listed(c.warnings)),
        _section("part", tr("Result"), drawn(drawings) if drawings else ""),
        _section("part", tr("Figures"), _figures(c, drawings)),
    ]
    name = tr("{answer}: TTFT before and after", answer=word.capitalize())
    return page(name, "\n".join(body), drawings)


def _section(css: str, name: str, body: str) -> str:
    """A part of the page; empty without a body."""
    return f'<section class="{css}"><h2>{esc(name)}</h2>{body}</section>' if body else ""


def _behind(c: Comparison, name: str) -> tuple[str, ...]:
    """The names of the tables that stand behind a chart."""
    level = c.basis or "raw"
    return {
        "levels": (level,),
        "changes": tuple(view for view in VIEWS if view != level),
        "parts": ("parts",),
        "hindcast": ("hindcast",),
    }.get(name, ())


def _with_tables(c: Comparison, drawing: Drawing | None) -> list[Drawing]:
    """A chart with its tables; none of a chart that there is not."""
    if drawing is None:
        return []
    names = _behind(c, drawing.name)
    tables = [s.table for s in sections(c) if s.table is not None and s.table.name in names]
    return [replace(drawing, table="".join(table_of(t, named=len(tables) > 1) for t in tables))]


def _figures(c: Comparison, drawings: Sequence[Drawing]) -> str:
    """The sections, without the tables that stand behind a chart already."""
    shown = {name for one in drawings for name in _behind(c, one.name)}
    return "".join(
        card(
            section.title,
            (
                table_of(section.table, named=False)
                if section.table is not None and section.table.name not in shown
                else ""
            )
            + listed((line.strip() for line in section.said), "read"),
        )
        for section in sections(c)
    )


def _basis(c: Comparison) -> View | None:
    return c.view(c.basis) if c.basis is not None else None


def _facts(c: Comparison) -> list[str]:
    view = _basis(c)
    if view is None:
        return []
    out = [tr(TITLES[view.name])]
    if view.name != "raw":
        out.append(
            tr(
                "{before} of before and {after} of after compared",
                before=share(view.covered_before), after=share(view.covered_after),
            )
        )  # fmt: skip
    return [esc(fact) for fact in out]


def _proofs(c: Comparison) -> list[Proof]:
    """The change of the mean and of p95 with their intervals, and what the log shows raw."""
    view, raw = _basis(c), c.view("raw")
    out = []
    for metric in ("mean", "p95"):
        change = view.of(metric) if view is not None else None
        if change is None:
            continue
        name = tr("{figure} of TTFT", figure=figure_name(metric))
        if change.interval is not None:
            low, high = (signed_share(end) for end in change.interval)
            name = tr("{name}, 95 % interval {low} to {high}", name=name, low=low, high=high)
        out.append(Proof(signed_share(change.share), name))
    plain = raw.of("mean") if raw is not None else None
    if plain is not None:
        name = tr(
            "mean TTFT as logged, from {before} to {after}",
            before=seconds(plain.before_s), after=seconds(plain.after_s),
        )  # fmt: skip
        out.append(Proof(signed_share(plain.share), name))
    return out


def _levels(c: Comparison) -> Drawing | None:
    """Before and after side by side, by what the answer rests on."""
    view = _basis(c) or c.view("raw")
    if view is None or not view.changes:
        return None
    names = [figure_name(change.metric) for change in view.changes]
    notes = [[seconds(v.before_s), seconds(v.after_s), signed_share(v.share)] for v in view.changes]
    hover = tr(
        "{name}: {before} before, {after} after",
        name="%{x}", before="%{customdata[0]}", after="%{customdata[1]}",
    )  # fmt: skip
    bars: list[Figure] = [
        {
            "type": "bar", "name": name, "x": names, "y": rounded(values),
            "marker": {"color": colour}, "customdata": notes,
            "hovertemplate": hover + "<br>%{customdata[2]}<extra></extra>",
        }
        for name, values, colour in (
            (tr("before"), [v.before_s for v in view.changes], "@fixed"),
            (tr("after"), [v.after_s for v in view.changes], "@new"),
        )
    ]  # fmt: skip
    mean = view.of("mean") or view.changes[0]
    return Drawing(
        "levels", tr(TITLES[view.name]),
        tr("The {figure} of TTFT is {before} before and {after} after.",
           figure=figure_name(mean.metric), before=seconds(mean.before_s),
           after=seconds(mean.after_s)),
        figure(bars, "", tr("TTFT, seconds"), height=320, barmode="group", bargap=0.35),
    )  # fmt: skip


def _changes(c: Comparison) -> Drawing | None:
    """Every change with its interval, raw and at equal mix."""
    rows = [
        (view, change)
        for view in c.views
        for change in view.changes
        if change.interval is not None and view.name in (c.basis, "raw")
    ]
    if not rows:
        return None
    names = [
        tr("{figure}, {view}", figure=figure_name(change.metric), view=tr(VIEWS[view.name]))
        for view, change in rows
    ]
    made = intervals(
        names,
        [change.share for _, change in rows],
        [change.interval or (change.share, change.share) for _, change in rows],
        tr("change of TTFT, % of before"),
    )
    reading = tr("Each line is a 95 % interval; one that does not meet 0 is a change.")
    reading += smallest_seen(_basis(c))
    return Drawing("changes", tr("Changes and their intervals"), reading, made)


def _parts(c: Comparison) -> Drawing | None:
    """The raw change of the mean in parts that add up to it."""
    if c.parts is None:
        return None
    p = c.parts
    rows = [
        (tr("the same traffic"), p.like_for_like_s),
        *([(tr("other load"), p.load_s)] if p.load_s else []),
        (tr("other turns and lengths"), p.mix_s),
        (tr("without a counterpart"), p.outside_s),
        (tr("raw change"), p.raw_s),
    ]
    names = [name for name, _ in rows]
    trace = {
        "type": "bar", "orientation": "h", "y": names, "x": rounded([v for _, v in rows]),
        "marker": {"color": [*("@new" for _ in rows[1:]), "@fixed"]},
        "customdata": [_signed(v) for _, v in rows],
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
    }  # fmt: skip
    largest = max(rows[:-1], key=lambda row: abs(row[1]))
    return Drawing(
        "parts", tr("Where the change of the mean comes from"),
        tr("Of the raw change of {raw} the largest part is {part}, by {name}.",
           raw=_signed(p.raw_s), part=_signed(largest[1]), name=largest[0]),
        figure([trace], tr("mean TTFT, seconds"), "", height=90 + 40 * len(rows), showlegend=False,
               bargap=0.35, yaxis={"autorange": "reversed", "title": {"text": ""}}),
    )  # fmt: skip


def _signed(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + seconds(abs(value))


def _hindcast(c: Comparison) -> Drawing | None:
    """What was predicted of each remedy, and what was measured."""
    rows = [p for p in c.hindcast.predictions if p.gain_share is not None] if c.hindcast else []
    if not rows:
        return None
    names, values, ends = [], [], []
    for p in rows:
        names.append(("» " if p.done else "") + clean(p.title, 60))
        values.append(-(p.gain_share or 0.0))
        ends.append(_turned(p))
    done = next((p for p in rows if p.done and p.measured_share is not None), None)
    if done is not None:
        names.append(tr("measured"))
        values.append(-(done.measured_share or 0.0))
        low, high = done.measured or (done.measured_share or 0.0, done.measured_share or 0.0)
        ends.append((-high, -low))
    reading = " ".join(sentence(p.text) for p in rows if p.done) or tr(
        "What was predicted of each remedy; which of them was done was not said (--remedy)."
    )
    made = intervals(names, values, ends, tr("change of the mean TTFT, %"))
    return Drawing("hindcast", tr("Predicted and measured"), reading, made)


def _turned(p: Prediction) -> tuple[float, float]:
    """An interval of a gain as one of a change."""
    gain = p.gain_share or 0.0
    low, high = p.predicted or (gain, gain)
    return -high, -low
