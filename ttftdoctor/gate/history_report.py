"""A history as text for a terminal, as Markdown and as JSON, from the same tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.gate.history import History, Level, Trend, called, moved_by
from ttftdoctor.gate.words import shown, signed
from ttftdoctor.language import mark, tr, tr_n
from ttftdoctor.report import Severity, Table, as_text, clean, table
from ttftdoctor.report.json_report import text_of
from ttftdoctor.report.markdown import escape, fitted, fold, listed, table_of
from ttftdoctor.report.terminal import STYLE, Page, cut, show, wrap
from ttftdoctor.units import count, share, signed_share

_BARS, _PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*#@"
#: From this width on, tables have all columns.
WIDE = 104
#: The newest baselines of the table of levels; the rest is in the JSON document.
ROWS = 40
#: Metrics of the table of levels, in order; as many as there is room for.
_LEVELS = ("ttft_mean", "ttft_p95", "prefill_slope", "decode_per_token", "hit_share")
_SHORT = {
    "ttft_mean": mark("mean"), "ttft_p95": "p95", "prefill_slope": mark("per 1k tok"),
    "decode_per_token": mark("decode"), "hit_share": mark("cached"),
}  # fmt: skip


def badge(found: History) -> tuple[str, Severity, str]:
    """The answer in a word, how it is coloured, and its sign."""
    if not found.judged:
        return tr("TREND ONLY"), "unknown", "❔"
    if found.moved("worse"):
        return tr("WORSE"), "bad", "🔴"
    if found.moved("better"):
        return tr("BETTER"), "good", "✅"
    if found.unproved:
        return tr("NOT PROVED"), "unknown", "❔"
    return tr("STEADY"), "good", "✅"


def sparkline(trend: Trend, width: int, *, plain: bool = False) -> str:
    """The levels of a metric as bars, the newest at the right; ``·`` where there is none.

    The lowest and the highest bar are at least twice the limits of the metric apart: what is less
    than may be lost looks level. More levels than ``width`` are averaged.
    """
    values = [math.nan if level is None else level.level for level in trend.levels]
    if len(values) > width:
        edges = [round(at * len(values) / width) for at in range(width + 1)]
        values = [_mean(values[a:b]) for a, b in pairwise(edges)]
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return ""
    low, high = min(known), max(known)
    middle = (low + high) / 2
    half = max((high - low) / 2, trend.limit, (trend.limit_share or 0.0) * abs(middle))
    bars = _PLAIN if plain else _BARS
    return "".join(
        ("." if plain else "·") if not math.isfinite(v) else bars[_bar(v, middle, half, len(bars))]
        for v in values
    )


def _bar(value: float, middle: float, half: float, bars: int) -> int:
    if half <= 0:
        return bars // 2
    return min(int((value - middle + half) / (2 * half) * bars), bars - 1)


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


# --- tables ---------------------------------------------------------------------------------------


def trend_table(found: History, *, spark: int, wide: bool = True, plain: bool = False) -> Table:
    """A row a metric: its course, where it began and where it is, and what it does a week."""
    columns = [
        tr("metric"), tr("trend"), tr("first"), tr("now"), *([tr("raw now")] if wide else []),
        tr("a week"), tr("since"),
    ]  # fmt: skip
    rows = []
    for t in sorted(found.metrics, key=_order):
        first = next((level for level in t.levels if level is not None), None)
        rows.append(
            [
                clean(t.title, 60),
                sparkline(t, spark, plain=plain),
                _shown(t, first),
                _shown(t, t.last),
                *([_raw(t)] if wide else []),
                _a_week(t),
                _since(found, t, 40 if wide else 22),
            ]
        )
    return table("trends", tr("Metrics at equal mix"), columns, rows, left=(0, 1, len(columns) - 1))


def _order(trend: Trend) -> int:
    """What got worse first."""
    return {"worse": 0, "better": 1, None: 2}[trend.direction]


def _shown(trend: Trend, level: Level | None) -> str | None:
    return None if level is None else shown(level.level, trend.unit)


def _raw(trend: Trend) -> str | None:
    last = trend.last
    return None if last is None or last.raw is None else shown(last.raw, trend.unit)


def _a_week(trend: Trend) -> str | None:
    """The slope, in per cent of the newest level where that says anything; ``~0`` if unclear."""
    slope, last = trend.slope, trend.last
    if slope is None or last is None:
        return None
    if slope.interval[0] <= 0 <= slope.interval[1]:
        return "~0"
    if trend.limit_share is not None and last.level > 0:
        return signed_share(slope.per_week / last.level)
    return signed(slope.per_week, trend.unit)


def _since(found: History, trend: Trend, room: int) -> str | None:
    if trend.drift is not None:
        return tr("drifts, worse") if trend.drift == "worse" else tr("drifts, better")
    step = trend.steps[-1] if trend.steps else trend.suspected
    if step is None:
        return None
    label = cut(clean(found.baselines[step.at].label, 60), room - 12)
    text = tr("{change} since {baseline}", change=moved_by(step, trend.unit), baseline=label)
    return text if trend.steps else f"? {text}"


def level_table(found: History, *, columns: int, intervals: bool = True) -> Table:
    """A row a baseline, the newest first: levels with intervals, and the raw mean beside."""
    chosen = [t for name in _LEVELS for t in found.metrics if t.metric == name][:columns]
    heads = [tr("baseline"), tr("from"), tr("requests"), tr("matched")]
    for t in chosen:
        heads.append(tr(_SHORT[t.metric]))
        if t.metric == "ttft_mean":
            heads += [*([tr("95 %")] if intervals else []), tr("raw")]
    rows: list[list[str | None]] = []
    places = range(len(found.baselines) - 1, max(-1, len(found.baselines) - 1 - ROWS), -1)
    for at in places:
        one = found.baselines[at]
        row: list[str | None] = [
            cut(clean(one.label, 60), 24),
            None if one.start is None else one.start[:10],
            count(one.requests),
            share(one.covered_share),
        ]
        for t in chosen:
            level = t.levels[at]
            row.append(_shown(t, level))
            if t.metric == "ttft_mean":
                if intervals:
                    row.append(_interval(t, level))
                raw = None if level is None or level.raw is None else shown(level.raw, t.unit)
                row.append(raw)
        rows.append(row)
    hidden = len(found.baselines) - len(rows)
    note = tr("{n} older ones are in the JSON document.", n=hidden) if hidden else ""
    return table("levels", tr("Baselines"), heads, rows, left=(0, 1), note=note)


def _interval(trend: Trend, level: Level | None) -> str | None:
    if level is None or level.interval is None:
        return None
    low, high = (shown(end, trend.unit) for end in level.interval)
    return tr("{low} to {high}", low=low, high=high)


def changes(found: History) -> list[str]:
    """The sentence of every metric that changed or may have, what got worse first."""
    moved = [t for t in found.metrics if t.steps or t.drift or t.suspected]
    return [clean(t.says, 1000) for t in sorted(moved, key=_order)]


def left_out(found: History) -> list[str]:
    """What is not in the history, and why."""
    return [
        tr("{name}: {why}", name=clean(s.name, 200), why=clean(s.why, 400)) for s in found.set_aside
    ]


def who(found: History) -> str:
    """The history in a few words."""
    first, last = found.baselines[0], found.baselines[-1]
    n = len(found.baselines)
    text = tr_n("{n} baseline", "{n} baselines", n, n=count(n))
    if first is last:
        return text
    return tr("{baselines}, {first} to {last}", baselines=text,
              first=called(first.label, first.start),
              last=called(last.label, last.start))  # fmt: skip


def _without_word(found: History) -> str:
    """The headline without the answer, which stands before it already."""
    word, _, _ = badge(found)
    text = found.headline
    if text.upper().startswith(word):
        text = text[len(word) :].lstrip(" ,:，：")
    return clean(text[:1].upper() + text[1:])


# --- forms ----------------------------------------------------------------------------------------


def render_text(found: History) -> str:
    """Plain text at 80 columns, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, found))


def print_to(console: Console, found: History) -> None:
    """Print the history to a console, at its width."""
    page = _Sheet(console.width, plain=console.options.ascii_only)
    show(console, page.all(found))


class _Sheet(Page):
    """The pages of a diagnosis, filled with a history."""

    def all(self, h: History) -> list[RenderableType]:
        wide = self.width >= WIDE
        plain = self.full == "#"
        out = self._top(h)
        if h.metrics:
            trends = trend_table(h, spark=24 if wide else 12, wide=wide, plain=plain)
            out += [Text(), self._table(trends, limit=100, widest=44 if wide else 24)]
        said = changes(h)
        if said:
            out += [Text(), self._listed(tr("Changes"), said, marks=True)]
        levels = level_table(h, columns=5 if wide else 2, intervals=wide)
        out += self._section(levels.title)
        out.append(self._table(levels, limit=100))
        out += [self._paragraph(f"{self.dot} {clean(note)}", hang=2) for note in h.notes]
        skipped = left_out(h)
        if skipped:
            out += self._section(tr("Set aside"))
            out += [self._paragraph(f"! {line}", hang=2) for line in skipped]
        if h.warnings:
            out += self._section(tr("Warnings"))
            out += [self._paragraph(f"! {clean(line)}", hang=2) for line in h.warnings]
        out += self._section(tr("In short"))
        out.append(self._paragraph(clean(h.headline)))
        return out

    def _top(self, h: History) -> list[RenderableType]:
        word, severity, _ = badge(h)
        banner = Text()
        banner.append(f"ttftdoctor {clean(h.version, 20)}", style="bold")
        banner.append(f"  {cut(who(h), self.measure - banner.cell_len - 2)}")
        sign = f" {word} "
        room = self.measure - cell_len(sign) - 1
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(_without_word(h), 4 * self.measure), room)
        grid.add_row(Text(sign, style=STYLE[severity]), Text(said, style="bold"))
        return [banner, Rule(style="dim", characters="─"), grid]


def render_markdown(found: History) -> str:
    """A comment or a page of a wiki: the answer and the metrics, the levels folded below."""
    word, _, sign = badge(found)
    head = [
        tr("### {sign} {word}: {headline}", sign=sign, word=word,
           headline=escape(_without_word(found))),
        escape(who(found)),
    ]  # fmt: skip
    said = changes(found)
    if said:
        head.append("**" + tr("Changes") + "**\n\n" + listed(said))
    details = []
    if found.metrics:
        trends = trend_table(found, spark=24)
        details.append((trends.title, table_of(trends, 60)))
    levels = level_table(found, columns=5)
    body = table_of(levels, ROWS) + "\n\n" + listed(found.notes)
    details.append((levels.title, fold(levels.title, body)))
    skipped = left_out(found)
    if skipped:
        details.append((tr("Set aside"), fold(tr("Set aside"), listed(skipped[:50]))))
    if found.warnings:
        details.append((tr("Warnings"), "**" + tr("Warnings") + "**\n\n" + listed(found.warnings)))
    details.append((tr("version"), f"ttftdoctor {escape(found.version, 40)}"))
    return fitted(head, details)


def render_json(found: History) -> str:
    """The ``ttftdoctor.history/1`` document; no invisible character stands in it raw."""
    return text_of(found.to_dict())


FORMS: dict[str, Callable[[History], str]] = {
    "json": render_json,
    "markdown": render_markdown,
    "terminal": render_text,
}
