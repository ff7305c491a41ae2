"""TTFT and decode along the conversation and by prompt length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttftdoctor.diagnosis import Diagnosis, Slice
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, Figure, figure, line, rounded, second_axis
from ttftdoctor.pages.markup import label, paragraph, table_of, tinted
from ttftdoctor.report import clean, length_band, split_tables, turn_by_length
from ttftdoctor.units import count, milliseconds, seconds, share

#: Fewer requests than this have a median and no tint.
FEWEST = 5


def by_turn(d: Diagnosis) -> Drawing | None:
    """TTFT by turn, with the length of the prompts beside it; None without a TTFT."""
    rows = [s for s in _turns(d) if s.ttft_p50_s is not None]
    if not rows:
        return None
    x = [s.key["turn"] for s in rows]
    notes = [
        [
            count(s.n), count(s.input_p50), count(s.uncached_p50), seconds(s.ttft_p50_s),
            seconds(s.ttft_p95_s),
        ]
        for s in rows
    ]  # fmt: skip
    hover = tr(
        "turn %{x}<br>TTFT p50 %{customdata[3]}, p95 %{customdata[4]}<br>"
        "%{customdata[1]} prompt tokens, %{customdata[2]} uncached<br>"
        "%{customdata[0]} requests<extra></extra>"
    )
    thin = {"color": "@muted", "width": 1.5, "dash": "dot"}
    traces = [
        line("TTFT p95", x, rounded([s.ttft_p95_s for s in rows]), "@muted", hover,
             customdata=notes, line=thin),
        line(tr("TTFT median"), x, rounded([s.ttft_p50_s for s in rows]), "@accent", hover,
             customdata=notes),
    ]  # fmt: skip
    lengths = any(s.input_p50 is not None for s in rows)
    layout: Figure = {"xaxis": _whole_turns(rows)}
    if lengths:
        traces += [_bars(name, x, values, colour, hover, notes) for name, values, colour in (
            (tr("input tokens"), [s.input_p50 for s in rows], "@new-soft"),
            (tr("of them uncached"), [s.uncached_p50 for s in rows], "@new"),
        )]  # fmt: skip
        layout = {
            "xaxis": {**_whole_turns(rows), "anchor": "y2"},
            "yaxis": {"domain": [0.42, 1.0]},
            "yaxis2": {**second_axis(tr("input tokens"), 0.0, 0.34), "tickformat": "~s"},
            "barmode": "overlay",
            "bargap": 0.35,
        }
    made = figure(
        traces, tr("turn of the conversation"), tr("TTFT, seconds"),
        height=440 if lengths else 340, **layout,
    )  # fmt: skip
    reading = _turn_reading(rows)
    return Drawing("by_turn", tr("TTFT by turn"), reading, made, _figures(d, "by_turn"))


def decode_by_turn(d: Diagnosis) -> Drawing | None:
    """Milliseconds a token by turn."""
    rows = [s for s in _turns(d) if s.tpot_p50_s is not None]
    if not rows:
        return None
    x = [s.key["turn"] for s in rows]
    hover = tr(
        "turn %{x}<br>%{customdata[0]} per token<br>%{customdata[1]} requests<extra></extra>"
    )
    made = _decode(rows, x, tr("turn of the conversation"), hover, _whole_turns(rows))
    y = [_ms(s) for s in rows]
    if len(rows) == 1:
        reading = tr("A token takes {time} at the median.", time=milliseconds(y[0]))
    else:
        ends = tr(
            "{first} at turn {a}, {last} at turn {b}",
            first=milliseconds(y[0]), a=clean(x[0]), last=milliseconds(y[-1]), b=clean(x[-1]),
        )  # fmt: skip
        reading = _decode_reading(rows, ends, by_turn=True)
    title = tr("Decode time per token by turn")
    return Drawing("decode", title, reading, made, _figures(d, "by_turn"))


def decode_by_context(d: Diagnosis) -> Drawing | None:
    """Milliseconds a token by the length of the prompt, which is the context it decodes in."""
    rows = [s for s in d.splits.by_input_length if s.tpot_p50_s is not None]
    if len(rows) < 2:
        return None
    names = [length_band(s.key) for s in rows]
    ticks = {"type": "category", "tickmode": "array", "tickvals": names,
             "ticktext": [_short(s) for s in rows]}  # fmt: skip
    hover = tr(
        "%{x} prompt tokens<br>%{customdata[0]} per token<br>%{customdata[1]} requests"
        "<extra></extra>"
    )
    made = _decode(rows, names, tr("prompt tokens"), hover, ticks)
    y = [_ms(s) for s in rows]
    ends = tr(
        "{first} with {a} prompt tokens, {last} with {b}",
        first=milliseconds(y[0]), a=names[0], last=milliseconds(y[-1]), b=names[-1],
    )  # fmt: skip
    reading = _decode_reading(rows, ends, by_turn=False)
    return Drawing(
        "decode_context", tr("Decode time per token by context"), reading, made,
        _figures(d, "by_input_length"),
    )  # fmt: skip


def heat(d: Diagnosis) -> Drawing | None:
    """The matrix of turn and length with a tint by TTFT: a table, which is read as it stands."""
    matrix = turn_by_length(d)
    if matrix is None:
        return None
    # A median of a few requests is no level, however late they were.
    many = [s for s in d.splits.turn_by_length if s.n >= FEWEST]
    top = max((s.ttft_p50_s or 0.0 for s in many), default=0.0) or 1.0
    known = {seconds(s.ttft_p50_s): s.ttft_p50_s or 0.0 for s in many}
    levels = [
        [None if cell == "-" or at == 0 else round(9 * known.get(cell, 0.0) / top)
         for at, cell in enumerate(row)]
        for row in matrix.rows
    ]  # fmt: skip
    tint = tr(
        "The stronger the tint, the later the first token, up to {top}; fewer than {n} requests "
        "have none.",
        top=seconds(top), n=FEWEST,
    )  # fmt: skip
    reading = paragraph([matrix.note, tint])
    body = tinted(replace(matrix, note=""), levels, named=False, heads=True).replace(
        "<table>", '<table class="heat">'
    )
    return Drawing("turn_by_length", matrix.title, reading, None, body, wide=True)


def _turns(d: Diagnosis) -> list[Slice]:
    rows = [s for s in d.splits.by_turn if isinstance(s.key.get("turn"), (int, float))]
    return sorted(rows, key=lambda s: float(s.key["turn"] or 0))


def _figures(d: Diagnosis, name: str) -> str:
    return "".join(table_of(t, named=False) for t in split_tables(d) if t.name == name)


def _short(s: Slice) -> str:
    """A range of lengths by its upper end: ``<4k``; the open one by its lower end."""
    low, high = s.key.get("input_tokens_from"), s.key.get("input_tokens_to")
    value, sign = (high, "<") if isinstance(high, (int, float)) else (low, "≥")
    if not isinstance(value, (int, float)):
        return "?"
    size = f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
    return label(f"{sign}{size}")


def _ms(s: Slice) -> float:
    return 1e3 * (s.tpot_p50_s or 0.0)


def _bars(
    name: str, x: Sequence[object], y: Sequence[float | None], colour: str, hover: str,
    notes: list[list[str]],
) -> Figure:  # fmt: skip
    return {
        "type": "bar", "name": name, "x": list(x), "y": rounded(y), "yaxis": "y2",
        "marker": {"color": colour}, "customdata": notes, "hovertemplate": hover,
    }  # fmt: skip


def _decode(
    rows: Sequence[Slice], x: Sequence[object], axis: str, hover: str, ticks: Figure
) -> Figure:
    notes = [[milliseconds(_ms(s)), count(s.n)] for s in rows]
    trace = line(tr("median"), x, rounded([_ms(s) for s in rows]), "@new", hover, customdata=notes)
    return figure([trace], axis, tr("ms per token"), height=300, showlegend=False, xaxis=ticks)


def _decode_reading(rows: Sequence[Slice], ends: str, *, by_turn: bool) -> str:
    y = [_ms(s) for s in rows]
    change = y[-1] / y[0] - 1 if y[0] else 0.0
    if abs(change) < 0.1:
        said = [tr("Decode is level: {ends}.", ends=ends)]
        first, last = rows[0].ttft_p50_s, rows[-1].ttft_p50_s
        if by_turn and first and last and last > 1.25 * first:
            said.append(tr("So the server is not slower in general as TTFT grows."))
        return paragraph(said)
    if change > 0:
        part = share(change)
        if by_turn:
            return tr(
                "Decode slows down by {part} along the conversation: {ends}.", part=part, ends=ends
            )
        return tr("Decode slows down by {part} with the context: {ends}.", part=part, ends=ends)
    if by_turn:
        return tr("Decode speeds up along the conversation: {ends}.", ends=ends)
    return tr("Decode speeds up with the context: {ends}.", ends=ends)


def _whole_turns(rows: Sequence[Slice]) -> Figure:
    return {"dtick": 1} if len(rows) <= 12 else {"tickformat": "d"}


def _turn_reading(rows: Sequence[Slice]) -> str:
    first = rows[0]
    # Late turns are few, and those of short chats: the highest well-filled turn tells the growth.
    filled = [r for r in rows if r.n >= 0.05 * first.n] or list(rows)
    last = max(filled, key=lambda r: r.ttft_p50_s or 0.0)
    if last is first:
        last = filled[-1]
    a, b = first.ttft_p50_s or 0.0, last.ttft_p50_s or 0.0
    if len(rows) == 1 or not a:
        return tr("The median TTFT is {ttft}; there is one turn only.", ttft=seconds(a))
    ratio = b / a
    times = f"{ratio:.1f}"
    text = tr(
        "from {low} at turn {a} to {high} at turn {b}",
        low=seconds(a), a=clean(first.key["turn"]), high=seconds(b), b=clean(last.key["turn"]),
    )  # fmt: skip
    if first.uncached_p50 is not None and last.uncached_p50 is not None:
        text = tr(
            "{text}; uncached tokens go from {low} to {high}",
            text=text, low=count(first.uncached_p50), high=count(last.uncached_p50),
        )  # fmt: skip
    if ratio >= 1.25:
        return tr("The median TTFT grows {n} times, {ends}.", n=times, ends=text)
    if ratio <= 0.8:
        return tr("The median TTFT falls, {ends}.", ends=text)
    return tr("The median TTFT stays about level, {ends}.", ends=text)
