"""The prefix report for a terminal: the answer, then the ladder, then what lies behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.language import tr
from ttftdoctor.prefixes import sections as words
from ttftdoctor.prefixes.document import PrefixReport
from ttftdoctor.prefixes.records import Ladder, Rung
from ttftdoctor.prefixes.sections import Section
from ttftdoctor.report import Table, as_text, clean
from ttftdoctor.report.terminal import STYLE, Page, cut, show, wrap
from ttftdoctor.units import share

#: Cells that a column of words needs at least.
LEAST = 10
#: From this width on the ladder has columns for who can act, and where the limit comes from.
WIDE = 112
#: Below this one it has no bars.
NARROW = 60


def render(report: PrefixReport, width: int = 80) -> str:
    """Plain text, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, report), width)


def print_to(console: Console, report: PrefixReport) -> None:
    """Print the report to a console, at its width."""
    page = _Page(console.width, plain=console.options.ascii_only)
    show(console, page.all(report))


class _Page(Page):
    """The pages of a diagnosis, filled with a prefix report."""

    def all(self, r: PrefixReport) -> list[RenderableType]:
        found = r.found
        out = self._top(r)
        worst = words.worst_break(found)
        if worst:
            out.append(self._listed(tr("Breaks"), [worst]))
        ladder = words.shown(found)
        if ladder is not None:
            out += [Text(), self._rungs(ladder), Text(), self._limits(ladder)]
            out += [self._paragraph(text) for text in words.basis_sentences(ladder)]
        for section in (*words.sections(found), *words.closing(found)):
            out += self._part(section)
        read = tuple(words.read_sentences(r.inputs))
        out += self._part(Section(tr("What was read"), said=read))
        if r.warnings:
            out += self._section(tr("Warnings"))
            out += [self._paragraph(f"! {clean(line)}", hang=2) for line in r.warnings]
        # The end is what a terminal shows when the report has run through.
        out += self._section(tr("In short"))
        out.append(self._paragraph(words.headline(found)))
        return out

    def _top(self, r: PrefixReport) -> list[RenderableType]:
        banner = Text()
        banner.append(f"ttftdoctor {clean(r.version, 20)}", style="bold")
        banner.append(f"  {cut(words.who(r.found), self.measure - banner.cell_len - 2)}")
        word, severity = words.badge(r.found)
        mark = f" {word} "
        room = max(12, self.measure - cell_len(mark) - 1)
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(words.headline(r.found), 4 * self.measure), room)
        grid.add_row(Text(mark, style=STYLE[severity]), Text(said, style="bold"))
        return [banner, Rule(style="dim", characters="─"), grid]

    def _part(self, section: Section) -> list[RenderableType]:
        out = self._section(section.title)
        if section.table is not None:
            out.append(self._fitted(section.table, section.limit))
        for line in section.said:
            indent = len(line) - len(line.lstrip())
            out.append(self._paragraph(line.strip(), indent=indent, hang=2))
        return out

    def _fitted(self, table: Table, limit: int) -> RenderableType:
        """A table in the width: heads and words fold first, then last columns are left out."""
        full = self._sizes(table)
        if self._folded(full, table) < self._words(full, table):
            heads = tuple(
                head if at in table.left else head.replace(" ", "\n")
                for at, head in enumerate(table.columns)
            )
            table = dataclasses.replace(table, columns=heads)
            full = self._sizes(table)
        kept = len(full)
        while kept > 2 and self._folded(full[:kept], table) < min(LEAST, self._words(full, table)):
            kept -= 1
        if kept < len(full):
            gone = tr(", ").join(head.replace("\n", " ") for head in table.columns[kept:])
            note = tr("More in --json: {columns}. {note}", columns=gone, note=table.note)
            table = dataclasses.replace(
                table,
                columns=table.columns[:kept],
                rows=tuple(row[:kept] for row in table.rows),
                left=frozenset(at for at in table.left if at < kept),
                note=note.strip(),
            )
        return self._table(table, limit=limit, widest=max(8, self._folded(full[:kept], table)))

    def _sizes(self, table: Table) -> list[int]:
        """The widest cell of each column."""
        heads = (max(head.split("\n"), key=cell_len) for head in table.columns)
        return [
            max(cell_len(cell) for cell in column)
            for column in zip(heads, *table.rows, strict=True)
        ]

    def _words(self, full: Sequence[int], table: Table) -> int:
        return max((size for at, size in enumerate(full) if at in table.left), default=0)

    def _folded(self, full: Sequence[int], table: Table) -> int:
        """How wide a column of words may be so that all columns go into the width.

        Narrower columns of words leave their room to the wider ones.
        """
        room = (
            self.width + 1 - sum(size + 2 for at, size in enumerate(full) if at not in table.left)
        )
        words_ = sorted(size for at, size in enumerate(full) if at in table.left)
        room -= 2 * len(words_)
        for place, size in enumerate(words_):
            even = room // (len(words_) - place)
            if size > even:
                return even
            room -= size
        # Without words it goes in or it does not.
        return self._words(full, table) or room + 2

    # the ladder

    def _rungs(self, ladder: Ladder) -> RenderableType:
        """One line a rung: what is left of the prompt tokens, and what this rung took."""
        rungs = ladder.rungs
        cells = [words.loss_cells(rung) for rung in rungs]
        timed = self.width >= NARROW and any(rung.lost_seconds is not None for rung in rungs)
        priced = self.width >= 76 and any(rung.lost_money is not None for rung in rungs)
        wide = self.width >= WIDE
        heads = [tr("left"), tr("lost pts")]
        heads += [tr("tokens")] if self.width >= NARROW else []
        heads += [tr("time")] if timed else []
        heads += [words.currency(ladder)] if priced else []
        columns = [
            [share(rung.share) for rung in rungs],
            [words.points(rung) for rung in rungs],
        ]
        columns += [[cell[0] for cell in cells]] if self.width >= NARROW else []
        columns += [[cell[1] or "-" for cell in cells]] if timed else []
        columns += [[cell[2] or "-" for cell in cells]] if priced else []
        tail: list[list[str]] = []
        if wide:
            heads += [tr("limit is"), tr("who can act")]
            tail = [
                [words.basis_of(rung) for rung in rungs],
                [words.owner(rung) for rung in rungs],
            ]
        names = [clean(rung.title, 24) for rung in rungs]
        first = tr("of the prompt tokens") if self.width >= NARROW else ""
        taken = max(map(cell_len, (first, *names))) + 2
        for head, column in zip(heads, (*columns, *tail), strict=True):
            taken += max(map(cell_len, (head, *column))) + 2
        room = min(40, max(0, self.width - taken))
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        grid.add_column(first, no_wrap=True)
        bars = room >= 6
        if bars:
            grid.add_column("", no_wrap=True, width=room)
        for at, head in enumerate(heads):
            right = at < len(columns)
            grid.add_column(Text(head), justify="right" if right else "left", no_wrap=True)
        top = max(rung.share for rung in rungs)
        for place, rung in enumerate(rungs):
            dim = "dim" if rung.basis == "unknown" else ""
            heavy = rung.basis != "unknown" and rung.lost_share >= words.WARN and place > 0
            row = [Text(names[place], style=dim or ("bold" if heavy else ""))]
            if bars:
                row.append(self._bar(rung, rungs[place - 1] if place else None, top, room))
            for at, column in enumerate(columns):
                style = "bold red" if heavy and at > 0 else dim
                row.append(Text(column[place], style=style))
            row += [Text(column[place], style=dim) for column in tail]
            grid.add_row(*row)
        return grid

    def _bar(self, rung: Rung, before: Rung | None, top: float, room: int) -> Text:
        full, gone = words.bar(rung, before, top, room)
        text = Text(self.full * full, style="dim" if rung.basis == "unknown" else "cyan")
        text.append(("-" if self.full == "#" else "░") * gone, style="red")
        return text

    def _limits(self, ladder: Ladder) -> RenderableType:
        """Where each limit comes from; those that are not known say how to give them."""
        rows = words.limit_rows(ladder)
        if self.width < NARROW:
            lines = [
                tr("{rung}: {basis}; {says}", rung=title, basis=basis, says=says)
                for title, basis, says, _ in rows
            ]
            return Group(*(self._paragraph(f"{self.dot} {line}", hang=2) for line in lines))
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        wide = self.width >= WIDE
        for rung, (title, basis, says, owner) in zip(ladder.rungs, rows, strict=True):
            style = "dim" if rung.basis == "unknown" else ""
            text = says if wide or style else f"{says} · {owner}"
            grid.add_row(
                Text(title, style=style), Text(basis, style=style), Text(text, style=style)
            )
        return grid
