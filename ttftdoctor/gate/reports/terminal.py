"""The check for a terminal: the answer and the table on the first screen, the rest below."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.gate.records import Check
from ttftdoctor.gate.reports import (
    Form,
    badge,
    both,
    budget_table,
    metric_table,
    open_questions,
    policy_sentence,
    read_sentences,
    side_table,
    verdict,
    without_word,
)
from ttftdoctor.language import tr
from ttftdoctor.report import Table, as_text, clean
from ttftdoctor.report.terminal import STYLE, Page, cut, show, wrap

#: From this width on, the table has the limits too.
WIDE = 104


def render(check: Check) -> str:
    """Plain text at 80 columns, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, check))


def print_to(console: Console, check: Check) -> None:
    """Print the check to a console, at its width."""
    page = _Sheet(console.width, plain=console.options.ascii_only)
    show(console, page.all(check))


class _Sheet(Page):
    """The pages of a diagnosis, filled with a check."""

    def all(self, c: Check) -> list[RenderableType]:
        out = self._top(c)
        for found in (metric_table(c, wide=self.width >= WIDE), budget_table(c)):
            if found is not None:
                out += [Text(), self._judged(found)]
        moved = [clean(m.says, 600) for m in c.moved]
        lists = (
            (tr("Moved"), moved),
            (tr("Why"), [clean(line) for line in c.reasons]),
            (tr("Details"), open_questions(c)),
        )
        if any(lines for _, lines in lists):
            out.append(Text())
        for name, lines in lists:
            if lines:
                out.append(self._listed(name, lines, marks=True))
        sides = side_table(c)
        out += self._section(sides.title)
        out.append(self._table(sides, limit=100))
        out += [self._paragraph(line, hang=2) for line in read_sentences(c)]
        out.append(self._paragraph(policy_sentence(c), hang=2))
        out += [self._paragraph(f"{self.dot} {clean(note)}", hang=2) for note in c.notes]
        if c.warnings:
            out += self._section(tr("Warnings"))
            out += [self._paragraph(f"! {clean(line)}", hang=2) for line in c.warnings]
        out += self._section(tr("In short"))
        out.append(self._paragraph(clean(c.headline)))
        return out

    def _top(self, c: Check) -> list[RenderableType]:
        word, severity = badge(c)
        banner = Text()
        banner.append(f"ttftdoctor {clean(c.version, 20)}", style="bold")
        banner.append(f"  {cut(both(c), self.measure - banner.cell_len - 2)}")
        mark = f" {word} "
        room = self.measure - cell_len(mark) - 1
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(max_width=room, overflow="fold")
        said = wrap(cut(without_word(c), 4 * self.measure), room)
        grid.add_row(Text(mark, style=STYLE[severity]), Text(said, style="bold"))
        return [banner, Rule(style="dim", characters="─"), grid]

    def _judged(self, found: Table) -> RenderableType:
        """A table with its verdicts in the last column; names fold, figures do not."""
        gap = 2 if self.width >= WIDE else 1
        taken = sum(
            max(cell_len(row[at]) for row in (found.columns, *found.rows)) + gap
            for at in range(1, len(found.columns))
        )
        name = max(12, self.width - taken)
        grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        last = len(found.columns) - 1
        for at, head in enumerate(found.columns):
            grid.add_column(
                Text(head),
                justify="left" if at in found.left else "right",
                overflow="fold",
                max_width=name if at == 0 else None,
                no_wrap=at > 0,
            )
        styles = {
            verdict("fail"): "bold red",
            verdict("inconclusive"): "yellow",
            verdict("pass"): "green",
        }
        for row in found.rows:
            style = styles.get(row[last], "bold")
            first = wrap(cut(row[0], 160), name)
            grid.add_row(Text(first), *map(Text, row[1:last]), Text(row[last], style=style))
        return grid


FORM = Form("terminal", "text for a terminal", render)
