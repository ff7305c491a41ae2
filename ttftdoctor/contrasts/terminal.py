"""A contrast for a terminal: the answer first, then the table, then what qualifies it."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.contrasts import words
from ttftdoctor.contrasts.records import Column, Contrasted, Value
from ttftdoctor.language import tr
from ttftdoctor.report import as_text, clean
from ttftdoctor.report.terminal import show, wrap
from ttftdoctor.units import share

MEASURE = 100
WIDE = 112
ROWS = 12


def render(c: Contrasted, width: int = 80) -> str:
    """Plain text, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, c), width)


def print_to(console: Console, c: Contrasted) -> None:
    """Print the contrast to a console, at its width."""
    page = _Page(console.width, plain=console.options.ascii_only)
    show(console, page.parts(c))


class _Page:
    def __init__(self, width: int, *, plain: bool) -> None:
        self.width = max(40, width)
        self.measure = min(self.width, MEASURE)
        self.full, self.light = ("#", "-") if plain else ("█", "░")

    def parts(self, c: Contrasted) -> list[RenderableType]:
        banner = Text()
        banner.append(f"ttftdoctor {clean(c.version, 20)}", style="bold")
        banner.append(f"  {words.who(c)}")
        out: list[RenderableType] = [banner, Rule(style="dim", characters="─")]
        out.append(self._named(tr("Selected"), clean(c.means, 600), style="bold"))
        beside = words.aside(c)
        if beside:
            out.append(self._named("", beside))
        found = bool(c.findings)
        out.append(self._named(tr("Found"), words.headline(c), style="bold" if found else ""))
        if c.cut is not None:
            out.append(self._named(tr("Best cut"), words.cut_sentence(c.cut, c)))
        if found:
            out += self._section(tr("What tells them apart"))
            out.append(self._columns(c))
            hidden = len(c.findings) - c.shown
            if hidden > 0:
                more = tr("… {n} more: --top, or --json", n=hidden)
                out.append(Text(more, style="dim"))
            held = words.held_sentence(c)
            if held:
                out.append(self._paragraph(held))
        if words.telling(c):
            out += self._section(tr("Values with more than their share"))
            out.append(self._values(c))
        if c.examples:
            out += self._section(tr("Selected rows to look at"))
            out.append(self._paragraph(words.example_sentence(c)))
        named = words.groups(c)
        if named:
            out += self._section(tr("Other columns"))
            for name, text in named:
                said = tr("{name}: {text}.", name=name, text=text)
                out.append(self._paragraph(said, hang=2))
        out += self._section(tr("What was read"))
        out += [self._paragraph(text, hang=2) for text in words.read_sentences(c)]
        out.append(self._paragraph(words.tests_sentence(c)))
        out += [self._paragraph(f"• {clean(note)}", hang=2) for note in c.notes]
        out += [self._paragraph(f"! {clean(warning)}", hang=2) for warning in c.warnings]
        out += [Text(), self._paragraph(tr(words.CAUTION))]
        return out

    def _columns(self, c: Contrasted) -> RenderableType:
        wide = self.width >= WIDE
        shown = c.findings[: c.shown]
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        grid.add_column(tr("column"), no_wrap=True, overflow="ellipsis", max_width=20)
        for head in (tr("selected"), tr("others"), tr("effect")):
            grid.add_column(head, justify="right", no_wrap=True)
        bar = 16 if wide else 8
        grid.add_column("", no_wrap=True, width=bar)
        if wide:
            grid.add_column(tr("95 % interval"), justify="right", no_wrap=True)
            grid.add_column("p", justify="right", no_wrap=True)
        grid.add_column(tr("own"), justify="right", no_wrap=True)
        grid.add_column("", overflow="fold")
        for column in shown:
            held = c.held is not None and column.column in c.held.columns
            cells = [
                Text(self._name(column), style="bold" if held else ""),
                *(Text(text) for text in self._middle(column, c)),
                Text(words.signed(column.effect)),
                self._bar(column, bar, held=held),
            ]
            if wide:
                cells += [
                    Text(words.between(column.interval)),
                    Text(words.chance(column.p_adjusted)),
                ]
            own = words.own(column)
            note = words.note_of(column, c, short=not wide)
            cells += [Text(own), Text(note, style="dim")]
            grid.add_row(*cells)
        return grid

    def _name(self, column: Column) -> str:
        """The column, and of one that holds names the values whose shares are shown."""
        name, told = clean(column.column, 40), self._told(column)
        if column.kind == "number" or not told:
            return name
        value = words.value_name(told[0]) if len(told) == 1 else tr("{n} values", n=len(told))
        return tr("{name}: {text}", name=name, text=value)

    def _told(self, column: Column) -> list[Value]:
        """The values that have more than their share, or the strongest one."""
        return [v for v in column.values if v.found] or list(column.values[:1])

    def _middle(self, column: Column, c: Contrasted) -> tuple[str, str]:
        if column.kind == "number":
            pair = (column.median_selected, column.median_rest)
            one, other = (words.cell(value, column, c) for value in pair)
            if column.unit == "instant" and len(one) == 19 and len(other) == 19:
                one, other = (text[5:16] for text in (one, other))
            return one, other
        told = self._told(column)
        if not told:
            return "-", "-"
        both = sum(v.share_selected for v in told), sum(v.share_rest for v in told)
        return share(both[0]), share(both[1])

    def _bar(self, column: Column, room: int, *, held: bool) -> Text:
        size = abs(column.effect or 0.0)
        cells = max(1, round(room * size))
        kept = 0.0 if words.doubtful(column) else abs(column.own or 0.0)
        left = cells if column.own is None else min(cells, round(room * kept))
        colour = "cyan" if held or column.through is None else "dim"
        text = Text(self.full * left, style=colour)
        text.append(self.light * (cells - left), style="dim")
        return text

    def _values(self, c: Contrasted) -> RenderableType:
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        grid.add_column(tr("column"), no_wrap=True)
        grid.add_column(tr("value"), overflow="fold", max_width=max(16, self.width // 4))
        for head in (tr("selected"), tr("others"), tr("lift"), tr("of its rows selected")):
            grid.add_column(head, justify="right", no_wrap=True)
        found = words.telling(c)
        for column, v in found[:ROWS]:
            risk = share(v.risk)
            if v.risk_interval is not None:
                low, high = (f"{100 * end:.0f}" for end in v.risk_interval)
                risk = tr("{part} ({low} to {high} %)", part=risk, low=low, high=high)
            grid.add_row(
                Text(clean(column.column, 40)), Text(words.value_name(v)),
                Text(share(v.share_selected)), Text(share(v.share_rest)),
                Text(f"{v.lift:.1f}"), Text(risk),
            )  # fmt: skip
        if len(found) > ROWS:
            grid.add_row(Text(tr("… {n} more in --json", n=len(found) - ROWS), style="dim"))
        return grid

    def _named(self, name: str, text: str, *, style: str = "") -> RenderableType:
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(width=9, no_wrap=True)
        room = self.measure - 10
        grid.add_column(max_width=room, overflow="fold")
        grid.add_row(Text(name, style="bold cyan"), Text(wrap(text, room), style=style))
        return grid

    def _section(self, name: str) -> list[RenderableType]:
        return [
            Text(),
            Rule(Text(name, style="bold cyan"), align="left", style="dim", characters="─"),
        ]

    def _paragraph(self, text: str, *, hang: int = 0) -> RenderableType:
        return Text(wrap(text, self.measure, hang), overflow="fold")
