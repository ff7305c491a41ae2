"""TTFT and decode along the conversation and by prompt length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttftdoctor.diagnosis import Diagnosis, Slice
from ttftdoctor.pages.figures import Drawing, Figure, figure, line, rounded, second_axis
from ttftdoctor.pages.markup import label, table_of, tinted
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
    hover = (
        "turn %{x}<br>TTFT p50 %{customdata[3]}, p95 %{customdata[4]}<br>"
        "%{customdata[1]} prompt tokens, %{customdata[2]} uncached<br>"
        "%{customdata[0]} requests<extra></extra>"
    )
    thin = {"color": "@muted", "width": 1.5, "dash": "dot"}
    traces = [
        line("TTFT p95", x, rounded([s.ttft_p95_s for s in rows]), "@muted", hover,
             customdata=notes, line=thin),
        line("TTFT median", x, rounded([s.ttft_p50_s for s in rows]), "@accent", hover,
             customdata=notes),
    ]  # fmt: skip
    lengths = any(s.input_p50 is not None for s in rows)
    layout: Figure = {"xaxis": _whole_turns(rows)}
    if lengths:
        traces += [_bars(name, x, values, colour, hover, notes) for name, values, colour in (
            ("input tokens", [s.input_p50 for s in rows], "@new-soft"),
            ("of them uncached", [s.uncached_p50 for s in rows], "@new"),
        )]  # fmt: skip
        layout = {
            "xaxis": {**_whole_turns(rows), "anchor": "y2"},
            "yaxis": {"domain": [0.42, 1.0]},
            "yaxis2": {**second_axis("input tokens", 0.0, 0.34), "tickformat": "~s"},
            "barmode": "overlay",
            "bargap": 0.35,
        }
    made = figure(
        traces, "turn of the conversation", "TTFT, seconds", height=440 if lengths else 340,
        **layout,
    )  # fmt: skip
    return Drawing("by_turn", "TTFT by turn", _turn_reading(rows), made, _figures(d, "by_turn"))


def decode_by_turn(d: Diagnosis) -> Drawing | None:
    """Milliseconds a token by turn."""
    rows = [s for s in _turns(d) if s.tpot_p50_s is not None]
    if not rows:
        return None
    x = [s.key["turn"] for s in rows]
    made = _decode(rows, x, "turn of the conversation", "turn %{x}", _whole_turns(rows))
    y = [_ms(s) for s in rows]
    if len(rows) == 1:
        reading = f"A token takes {milliseconds(y[0])} at the median."
    else:
        ends = f"{milliseconds(y[0])} at turn {clean(x[0])}, {milliseconds(y[-1])} at turn "
        ends += clean(x[-1])
        reading = _decode_reading(rows, ends, "along the conversation")
    return Drawing("decode", "Decode time per token by turn", reading, made, _figures(d, "by_turn"))


def decode_by_context(d: Diagnosis) -> Drawing | None:
    """Milliseconds a token by the length of the prompt, which is the context it decodes in."""
    rows = [s for s in d.splits.by_input_length if s.tpot_p50_s is not None]
    if len(rows) < 2:
        return None
    names = [length_band(s.key) for s in rows]
    ticks = {"type": "category", "tickmode": "array", "tickvals": names,
             "ticktext": [_short(s) for s in rows]}  # fmt: skip
    made = _decode(rows, names, "prompt tokens", "%{x} prompt tokens", ticks)
    y = [_ms(s) for s in rows]
    ends = f"{milliseconds(y[0])} with {names[0]} prompt tokens, {milliseconds(y[-1])} with "
    ends += names[-1]
    reading = _decode_reading(rows, ends, "with the context", ttft=False)
    return Drawing(
        "decode_context", "Decode time per token by context", reading, made,
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
    reading = (
        f"{matrix.note} The stronger the tint, the later the first token, up to {seconds(top)}; "
        f"fewer than {FEWEST} requests have none."
    )
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
    rows: Sequence[Slice], x: Sequence[object], axis: str, where: str, ticks: Figure
) -> Figure:
    hover = where + "<br>%{customdata[0]} per token<br>%{customdata[1]} requests<extra></extra>"
    notes = [[milliseconds(_ms(s)), count(s.n)] for s in rows]
    trace = line("median", x, rounded([_ms(s) for s in rows]), "@new", hover, customdata=notes)
    return figure([trace], axis, "ms per token", height=300, showlegend=False, xaxis=ticks)


def _decode_reading(rows: Sequence[Slice], ends: str, along: str, *, ttft: bool = True) -> str:
    y = [_ms(s) for s in rows]
    change = y[-1] / y[0] - 1 if y[0] else 0.0
    if abs(change) < 0.1:
        reading = f"Decode is level: {ends}."
        first, last = rows[0].ttft_p50_s, rows[-1].ttft_p50_s
        if ttft and first and last and last > 1.25 * first:
            reading += " So the server is not slower in general as TTFT grows."
        return reading
    if change > 0:
        return f"Decode slows down by {share(change)} {along}: {ends}."
    return f"Decode speeds up {along}: {ends}."


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
        return f"The median TTFT is {seconds(a)}; there is one turn only."
    ratio = b / a
    ends = (
        f"from {seconds(a)} at turn {clean(first.key['turn'])} to {seconds(b)} at turn "
        f"{clean(last.key['turn'])}"
    )
    if ratio >= 1.25:
        text = f"The median TTFT grows {ratio:.1f} times, {ends}"
    elif ratio <= 0.8:
        text = f"The median TTFT falls, {ends}"
    else:
        text = f"The median TTFT stays about level, {ends}"
    if first.uncached_p50 is not None and last.uncached_p50 is not None:
        text += (
            f"; uncached tokens go from {count(first.uncached_p50)} to {count(last.uncached_p50)}"
        )
    return text + "."
