"""What is seen while logs are watched: a page on a terminal, a line at a time elsewhere.

All text of a log passes :func:`ttftdoctor.report.clean` and is never markup; colour never carries
meaning alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.diagnosis import Diagnosis, Slice
from ttftdoctor.language import tr, tr_n
from ttftdoctor.report import (
    badge,
    clean,
    confidence,
    ledger_groups,
    scope,
    severity,
    slice_label,
    title,
)
from ttftdoctor.report.terminal import STYLE, cut, wrap
from ttftdoctor.units import count, figure, milliseconds, seconds, share
from ttftdoctor.watching.flow import View
from ttftdoctor.watching.minutes import Figures

#: A page wider than this has two columns; a column is no wider than the measure.
WIDE, MEASURE = 120, 100
#: Turns that are shown, and remarks.
MOST_TURNS, MOST_REMARKS = 8, 2
#: Widest bar.
BAR = 24


def line(view: View) -> str:
    """One line for where no page can be drawn."""
    now = view.lately
    parts = [_clock(view.now), rows_sentence(view)]
    if view.age_s is not None:
        parts.append(tr("newest {age} old", age=_while(view.age_s)))
    if now.per_s is not None:
        parts.append(tr("{n} requests/s", n=figure(now.per_s)))
    if now.ttft_p50_s is not None:
        parts.append(f"TTFT p50 {seconds(now.ttft_p50_s)}, p95 {seconds(now.ttft_p95_s)}")
    if now.cached_share is not None:
        parts.append(tr("{share} cached", share=share(now.cached_share)))
    if view.diagnosis is not None:
        v = view.diagnosis.verdict
        parts.append(f"{clean(v.primary_cause)}: {confidence(v.confidence)}")
    parts += [clean(text) for text in view.remarks if view.diagnosis is None]
    return " · ".join(parts)


def rows_sentence(view: View) -> str:
    """What became of the rows: those read are those used and those rejected."""
    return tr("{read} rows = {used} used + {rejected} rejected",
              read=count(view.read), used=count(view.used),
              rejected=count(view.read - view.used))  # fmt: skip


class Page:
    """Lays out the page for one size of the terminal."""

    def __init__(self, width: int, height: int, *, plain: bool) -> None:
        self.wide = width >= WIDE
        self.width = max(40, width)
        self.column = (self.width - 4) // 2 if self.wide else min(self.width, MEASURE)
        self.height = height
        self.full, self.sliver = ("#", ".") if plain else ("█", "▏")
        self.levels, self.gap = ("_-~=+*#@", ".") if plain else ("▁▂▃▄▅▆▇█", "·")

    def page(self, view: View) -> RenderableType:
        """Verdict, the last minutes, TTFT by turn, costs and rows."""
        d = view.diagnosis
        head = [self._banner(view), Rule(style="dim", characters="─"), *self._verdict(view)]
        lately = self._lately(view)
        facts = self._facts(view)
        turns = [] if d is None else self._turns(d, self._room(head, lately, facts))
        if not self.wide:
            return Group(*head, *_apart(lately, turns, facts))
        beside = Grid.grid(padding=(0, 2, 0, 0))
        for _ in range(2):
            beside.add_column(width=self.column, overflow="crop")
        beside.add_row(Group(*_apart(lately, facts)), Group(*_apart(turns)))
        return Group(*head, beside)

    def _room(self, *parts: Sequence[RenderableType]) -> int:
        """How many turns there is room for, beside all else."""
        if self.wide:
            return MOST_TURNS
        console = Console(
            file=io.StringIO(), width=self.width, color_system=None, legacy_windows=False
        )
        taken = sum(len(console.render_lines(one)) for part in parts for one in part)
        # The head of the table, blank lines, and the row that a terminal keeps for itself.
        return max(3, min(MOST_TURNS, self.height - taken - len(parts) - 2))

    def _banner(self, view: View) -> RenderableType:
        files = tr_n("{n} file", "{n} files", view.files, n=count(view.files))
        text = Text("ttftdoctor watch", style="bold")
        names = ", ".join(clean(path, 200) for path in view.paths)
        tail = f"  {files} · {_clock(view.now)}"
        room = self.width - text.cell_len - cell_len(tail) - 2
        text.append(f"  {cut(names, max(room, 8))}", style="not bold")
        text.append(" " * max(self.width - text.cell_len - cell_len(tail), 0))
        text.append(tail, style="dim not bold")
        return text

    def _verdict(self, view: View) -> list[RenderableType]:
        d = view.diagnosis
        if d is None:
            said = tr("Nothing to diagnose yet: waiting for rows")
            return [Text(said, style="bold"), *self._remarks(view)]
        v = d.verdict
        mark = f" {badge(v)} "
        room = min(self.width, MEASURE) - cell_len(mark) - 1
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(clean(v.headline), 2 * room - 8), room)
        grid.add_row(Text(mark, style=STYLE[severity(v)]), Text(said, style="bold"))
        cause = tr("{name}: {text}", name=clean(v.primary_cause), text=title(v.primary_cause))
        sure = f"{confidence(v.confidence)} · {cut(scope(d), 60)}"
        rows = [(tr("Cause"), cause)]
        if v.primary_cause != "insufficient_data":
            rows.append(("", sure))
        requests = count(d.population.requests)
        made = tr("{ago} ago, of {n} requests", ago=_while(view.old_s), n=requests)
        if view.next_s is not None and view.next_s >= 1:
            made += tr("; again in {time} at the earliest", time=_while(view.next_s))
        rows.append((tr("Diagnosed"), made))
        return [grid, self._named(rows, min(self.width, MEASURE)), *self._remarks(view)]

    def _remarks(self, view: View) -> list[RenderableType]:
        shown = [clean(text) for text in view.remarks[:MOST_REMARKS]]
        return [Text(f"! {cut(text, self.width - 2)}") for text in shown]

    def _named(self, rows: Iterable[tuple[str, str]], width: int) -> Grid:
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(width=9, no_wrap=True)
        grid.add_column(max_width=width - 10, overflow="fold")
        for name, text in rows:
            grid.add_row(Text(name, style="bold cyan"), Text(wrap(text, width - 10)))
        return grid

    def _lately(self, view: View) -> list[RenderableType]:
        now, before = view.lately, view.before
        if not now.n:
            return []
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        heads = (tr("requests/s"), "TTFT p50", "p95", tr("cached"), tr("in flight"))
        for _ in heads:
            grid.add_column(justify="right", no_wrap=True)
        grid.add_row("", *(Text(head, style="dim") for head in heads))
        for name, one in ((tr("last 5 min"), now), (tr("hour before"), before)):
            if one.n:
                grid.add_row(Text(name, style="bold"), *map(Text, _cells(one)))
        out: list[RenderableType] = [grid]
        known = [v for v in view.drawn if v is not None]
        if len(known) >= 2:
            ends = tr("{low} to {high}", low=seconds(min(known)), high=seconds(max(known)))
            name = tr("p50 by minute")
            room = self.column - cell_len(name) - cell_len(ends) - 4
            text = Text(f"{name}  ", style="bold")
            text.append(self._spark(view.drawn[-max(room, 1) :]), style="not bold cyan")
            text.append(f"  {ends}", style="dim not bold")
            out.append(text)
        return out

    def _turns(self, d: Diagnosis, room: int) -> list[RenderableType]:
        turns = d.splits.by_turn
        if not turns:
            return []
        grid = Grid.grid(padding=(0, 2, 0, 0))
        heads = (tr("turn"), tr("requests"), "TTFT p50", "p95")
        for _ in heads:
            grid.add_column(justify="right", no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_row(*(Text(head, style="dim") for head in heads), "")
        most = max((s.ttft_p50_s or 0.0 for s in turns), default=0.0)
        shown = turns if len(turns) <= room else (*turns[: room - 2], None, turns[-1])
        bar = max(4, min(BAR, self.column - 44))
        for one in shown:
            if one is None:
                grid.add_row(Text("…", style="dim"))
                continue
            cells = (slice_label(one.key), count(one.n), seconds(one.ttft_p50_s),
                     seconds(one.ttft_p95_s))  # fmt: skip
            grid.add_row(*map(Text, cells), Text(self._bar(one, most, bar), style="cyan"))
        return [grid]

    def _facts(self, view: View) -> list[RenderableType]:
        d = view.diagnosis
        rows = [] if d is None else [*_costs(d), *_waits(d), *_cached(d)]
        said = rows_sentence(view)
        if view.age_s is not None:
            said = f"{said} · {tr('newest {age} old', age=_while(view.age_s))}"
        rows.append((tr("Rows"), said))
        return [self._named(rows, self.column)]

    def _spark(self, values: Sequence[float | None]) -> str:
        top = max((v for v in values if v is not None), default=0.0) or 1.0
        steps = len(self.levels)
        return "".join(
            self.gap if v is None else self.levels[max(0, math.ceil(steps * v / top) - 1)]
            for v in values
        )

    def _bar(self, one: Slice, most: float, width: int) -> str:
        if not one.ttft_p50_s or not most:
            return ""
        return self.full * round(width * one.ttft_p50_s / most) or self.sliver


def _apart(*parts: Sequence[RenderableType]) -> list[RenderableType]:
    """Parts with a blank line before each."""
    return [one for part in parts if part for one in (Text(), *part)]


def _cells(one: Figures) -> tuple[str, ...]:
    return (
        "-" if one.per_s is None else figure(one.per_s),
        seconds(one.ttft_p50_s), seconds(one.ttft_p95_s), share(one.cached_share),
        "-" if one.in_flight is None else figure(one.in_flight),
    )  # fmt: skip


def _costs(d: Diagnosis) -> list[tuple[str, str]]:
    prefill, decode = d.cost_lines.prefill, d.cost_lines.decode
    parts = []
    if prefill is not None:
        parts += [
            tr("{ms} fixed", ms=milliseconds(prefill.fixed_ms)),
            tr("{ms} per 1,000 uncached tokens", ms=milliseconds(prefill.ms_per_1k_tokens)),
        ]
    if decode is not None:
        parts.append(tr("{ms} per output token", ms=milliseconds(decode.ms_per_token)))
    return [(tr("Cost"), " · ".join(parts))] if parts else []


def _waits(d: Diagnosis) -> list[tuple[str, str]]:
    rows = [row for row in ledger_groups(d) if row.group == "all"]
    if not rows or not rows[0].ttft_mean_s:
        return []
    (row,) = rows
    waited = sum(value for name, value in row.accounts.items() if name.startswith("queue_"))
    text = tr("{wait} in queues on average, {part} of the mean TTFT",
              wait=seconds(waited), part=share(waited / row.ttft_mean_s))  # fmt: skip
    return [(tr("Wait"), text)]


def _cached(d: Diagnosis) -> list[tuple[str, str]]:
    r = d.repeated_prefix
    parts = []
    if r.cached_tokens is not None and r.input_tokens:
        parts.append(
            tr("{share} of the prompt tokens came from a cache",
               share=share(r.cached_tokens / r.input_tokens))
        )  # fmt: skip
    if r.recomputed_share is not None:
        parts.append(tr("{share} were computed again", share=share(r.recomputed_share)))
    return [(tr("Cache"), " · ".join(parts))] if parts else []


def _while(value: float | None) -> str:
    """A time as a clock that runs shows it: ``35 s``, ``12 min``, ``3.5 h``."""
    if value is None:
        return "-"
    value = max(round(value), 0)
    if value < 120:
        return f"{value} s"
    return f"{round(value / 60)} min" if value < 7200 else f"{value / 3600:.1f} h"


def _clock(now: float) -> str:
    return datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S")
