"""The diagnosis for a terminal: the answer on the first screen, the evidence below it.

Colours are the terminal's own (so they fit light and dark ones) and never carry meaning alone.
"""

from __future__ import annotations

import dataclasses
import io
import re
import textwrap
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.prefixes.sections import ladder_table, short, shown
from ttftdoctor.report import (
    Renderer,
    Severity,
    Table,
    about,
    as_text,
    badge,
    best_remedy,
    cause_table,
    clean,
    confidence,
    cost_sentences,
    findings,
    gain_sentence,
    how_to_log,
    ledger_table,
    missing,
    prefix_sentences,
    primary,
    read_sentences,
    remedies_by_gain,
    remedy_name,
    remedy_table,
    ruled_out,
    saving_sentence,
    scope,
    severity,
    slo_sentence,
    split_tables,
    spread_sentence,
    title,
    ttft_figures,
    turn_by_length,
    who,
    worked_examples,
    worst_table,
)
from ttftdoctor.units import seconds, share

_UNIT = re.compile(r"(\d) (%|µs|ms|s|min|h|M|G)(?!\w)")

#: A word of a command that :func:`shlex.join` quoted.
_SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")

#: The lines of the first screen, and the lines a reader's eye follows without losing its place.
SCREEN = 24
MEASURE = 100
ROWS = 12

#: A target met by fewer requests than this is told beside a clean bill of health.
MET = 0.99

STYLE: dict[Severity, str] = {
    "good": "bold reverse green",
    "warn": "bold reverse yellow",
    "bad": "bold reverse red",
    "unknown": "bold reverse",
}


def render(diagnosis: Diagnosis) -> str:
    """Plain text at 80 columns, without colour and without trailing blanks."""
    return as_text(lambda console: print_to(console, diagnosis))


def print_to(console: Console, diagnosis: Diagnosis) -> None:
    """Print the report to a console, at its width."""
    page = Page(console.width, plain=console.options.ascii_only)
    show(console, (*page.first_screen(diagnosis), *page.below(diagnosis)))


def show(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print the parts of a page; nothing in them is markup."""
    for part in parts:
        console.print(part, markup=False, highlight=False, emoji=False, no_wrap=False)


class Page:
    """Lays out a report for one width. All text passes :func:`clean` and is never markup."""

    def __init__(self, width: int, *, plain: bool) -> None:
        self.width = max(40, width)
        self.measure = min(self.width, MEASURE)
        self.full, self.sliver, self.dot = ("#", ".", "-") if plain else ("█", "▏", "•")

    # the first screen

    def first_screen(self, d: Diagnosis) -> list[RenderableType]:
        """Verdict, why, what to do first and the next step, in 24 rows at 80 columns."""
        v = d.verdict
        head = self._head(d)
        remedy = best_remedy(d)
        first: list[str] = []
        if remedy is not None:
            first = [
                f"{clean(remedy.id)}: {remedy_name(remedy)}",
                gain_sentence(remedy, d.population.ttft_mean_s),
            ]
        elif v.primary_cause == "healthy":
            first = ["nothing needs to be done"]
        steps = [clean(step) for step in v.next_steps]
        tail: list[RenderableType] = []
        if v.primary_cause == "healthy" and d.slo is not None and d.slo.attainment < MET:
            tail.append(self._listed("Target", [slo_sentence(d)], bold=True))
        if first:
            tail.append(self._listed("Do first", first, bold=True))
        if steps:
            tail.append(self._listed("Next", [cut(steps[0], 2 * self.measure - 24)]))
        command = self._command(d)
        if command and len(command) <= self.measure - 10:
            tail.append(self._listed("Prove it", [command]))
        want = missing(d) if v.primary_cause == "insufficient_data" else []
        if want:
            tail.append(self._listed("Missing", [cut(", ".join(want), 2 * self.measure - 24)]))
        if d.warnings:
            n = len(d.warnings)
            tail.append(self._listed("Beware", [f"{n} warning{'s' if n > 1 else ''}, at the end"]))
        finding = primary(d)
        evidence = [clean(s.text) for s in finding.evidence] if finding else []
        if not evidence:
            evidence = prefix_sentences(d)
        room = SCREEN - 2 - self._rows(head) - self._rows(tail)
        kept: list[str] = []
        for sentence in (cut(s, 4 * self.measure) for s in evidence[:5]):
            if kept and self._rows([self._listed("Why", [*kept, sentence])]) > room:
                break
            kept.append(sentence)
        self._shown = len(kept)
        why: list[RenderableType] = [self._listed("Why", kept, marks=True)] if kept else []
        return [*head, Text(), *why, Text(), *tail]

    def _head(self, d: Diagnosis) -> list[RenderableType]:
        v = d.verdict
        mark = f" {badge(v)} "
        banner = Text()
        banner.append(f"ttftdoctor {clean(d.version, 20)}", style="bold")
        room = self.measure - len(banner) - 2
        figures = ttft_figures(d)
        short = figures.replace(f", p50 {seconds(d.population.ttft_p50_s)}", "")
        whom = who(d)[:2]
        ways = ([*whom, figures], [*whom, short], [whom[0], short])
        lines = [" · ".join(parts) for parts in ways]
        fitting = next((line for line in lines if len(line) <= room), cut(lines[-1], room))
        banner.append(f"  {fitting}")
        headline = Grid.grid(padding=(0, 1))
        headline.add_column(no_wrap=True)
        headline.add_column(max_width=self.measure - len(mark) - 1, overflow="fold")
        said = wrap(cut(clean(v.headline), 4 * self.measure), self.measure - len(mark) - 1)
        headline.add_row(Text(mark, style=STYLE[severity(v)]), Text(said, style="bold"))
        facts = [f"{clean(v.primary_cause)}: {title(v.primary_cause)}"]
        if v.primary_cause != "insufficient_data":
            facts.append(f"{confidence(v.confidence)} · {cut(scope(d), self.measure)}")
        rows: list[RenderableType] = [banner, Rule(style="dim", characters="─"), headline, Text()]
        rows.append(self._listed("Cause", facts))
        worse = [
            f"{clean(a.id)}"
            + (f", {share(a.share_of_ttft)} of TTFT" if a.share_of_ttft is not None else "")
            + (f": {clean(a.text)}" if a.text else "")
            for a in v.amplifiers
        ]
        if worse:
            rows.append(self._listed("Amplifier", [cut(w, 2 * self.measure - 30) for w in worse]))
        others = [c for c in v.contributing if c not in {a.id for a in v.amplifiers}]
        if others:
            rows.append(self._listed("Also", [", ".join(clean(c) for c in others)]))
        return rows

    def _listed(
        self, name: str, lines: Sequence[str], *, bold: bool = False, marks: bool = False
    ) -> RenderableType:
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(width=9, no_wrap=True)
        if marks:
            grid.add_column(width=1)
        room = self.measure - (12 if marks else 10)
        grid.add_column(max_width=room, overflow="fold")
        for at, line in enumerate(lines):
            style = "bold" if bold and at == 0 else ""
            cells = [Text(name if at == 0 else "", style="bold cyan")]
            if marks:
                cells.append(Text(self.dot))
            grid.add_row(*cells, Text(wrap(line, room), style=style))
        return grid

    def _rows(self, parts: Iterable[RenderableType]) -> int:
        console = Console(
            file=io.StringIO(), width=self.width, color_system=None, legacy_windows=False
        )
        return sum(len(console.render_lines(part)) for part in parts)

    # below

    def below(self, d: Diagnosis) -> list[RenderableType]:
        """Everything else, from the ledger to the warnings."""
        out: list[RenderableType] = []
        if d.ledger:
            out += self._section("Where the mean TTFT goes")
            out.append(self._table(self._ledger(d), totals=2))
            spread = spread_sentence(d)
            if spread:
                out.append(self._paragraph(spread))
        for split in split_tables(d):
            out += self._section(split.title)
            out.append(self._table(split))
        matrix = turn_by_length(d)
        if matrix is not None:
            out += self._section(matrix.title)
            out.append(self._table(self._narrow(matrix)))
        out += self._section("Cost of a token")
        out += [self._paragraph(s) for s in cost_sentences(d)]
        out += self._section("Repeated prefix")
        out.append(self._paragraph(" ".join(prefix_sentences(d))))
        ladder = shown(d.prefix) if d.prefix is not None else None
        if d.prefix is not None and ladder is not None:
            rungs = ladder_table(ladder, room=0, wide=False, known=True)
            out += self._section(rungs.title)
            if len(rungs.rows) > 1:
                out.append(self._table(rungs))
            out += [self._paragraph(text) for text in short(d.prefix)]
        if d.remedies:
            table = remedy_table(d)
            out += self._section(table.title)
            out.append(self._table(table))
            for remedy in remedies_by_gain(d):
                text = f"{self.dot} {clean(remedy.id)}."
                if remedy.cost:
                    text += f" Cost: {_stop(clean(remedy.cost))}"
                saving = saving_sentence(d, remedy)
                if saving:
                    text += f" Over this log it {saving}."
                if remedy.assumptions:
                    text += f" Assumes: {_stop('; '.join(clean(a) for a in remedy.assumptions))}"
                out.append(self._paragraph(text, hang=2))
        target = slo_sentence(d)
        if target:
            out += self._section("Target")
            out.append(self._paragraph(target))
        out += self._worst(d)
        out += self._causes(d)
        experiment = d.verdict.experiment
        out += self._section("Next steps")
        out += [
            self._paragraph(f"{at}. {clean(step)}", hang=3)
            for at, step in enumerate(d.verdict.next_steps, 1)
        ]
        if experiment is not None:
            out.append(self._paragraph(f"To prove it: {clean(experiment.text)}", hang=3))
            if experiment.command:
                lines = _continued(self._command(d), self.width - 3)
                out += [Text(f"   {line}", style="bold", overflow="fold") for line in lines]
        out.append(
            self._paragraph(f"More about it: ttftdoctor explain {clean(d.verdict.primary_cause)}")
        )
        out += self._section("What was read")
        out.append(self._paragraph(" · ".join(who(d)) + "."))
        for sentence in read_sentences(d):
            indent = len(sentence) - len(sentence.lstrip())
            out.append(self._paragraph(sentence.strip(), indent=indent, hang=2))
        for note in d.evidence.notes:
            out.append(self._paragraph(f"{self.dot} {clean(note)}", hang=2))
        if d.warnings:
            out += self._section("Warnings")
            for warning in d.warnings:
                out.append(self._paragraph(f"! {clean(warning)}", hang=2))
        # The end is what a terminal shows when the report has run through.
        out += self._section("In short")
        out.append(self._paragraph(clean(d.verdict.headline)))
        v = d.verdict
        if v.primary_cause not in ("healthy", "insufficient_data"):
            out.append(self._paragraph(f"{clean(v.primary_cause)}, {confidence(v.confidence)}"))
        best = best_remedy(d)
        if best is not None:
            gain = gain_sentence(best, d.population.ttft_mean_s)
            out.append(self._paragraph(f"Do first: {remedy_name(best)}, {gain}", hang=2))
        return out

    def _command(self, d: Diagnosis) -> str:
        """The command of the experiment, whole: it is there to be copied."""
        experiment = d.verdict.experiment
        return clean(experiment.command or "") if experiment is not None else ""

    def _worst(self, d: Diagnosis) -> list[RenderableType]:
        rows, examples = worst_table(d), worked_examples(d)
        if rows is None and not examples:
            return []
        out = self._section(rows.title if rows is not None else "The worst requests")
        if rows is not None:
            out.append(self._table(rows))
        return out + [self._paragraph(f"{self.dot} {text}", hang=2) for text in examples]

    def _causes(self, d: Diagnosis) -> list[RenderableType]:
        if not d.causes:
            return []
        out = self._section("Causes considered")
        out.append(self._table(cause_table(d), limit=100))
        unjudged: dict[tuple[str, ...], list[str]] = {}
        for finding in findings(d):
            if finding.status == "unjudged":
                unjudged.setdefault(finding.needs, []).append(clean(finding.id))
                continue
            if finding.status == "ruled_out":
                continue
            said = about(finding)
            if finding.id == d.verdict.primary_cause and not finding.needs:
                said = said[self._shown :]
            if said:
                text = f"{self.dot} {clean(finding.id)}: " + " ".join(_stop(s) for s in said)
                out.append(self._paragraph(text, hang=2))
        for needs, names in unjudged.items():
            want = ", ".join(clean(n, 60) for n in needs) or "more than this log has"
            text = f"{self.dot} {want} would decide: {', '.join(names)}"
            out.append(self._paragraph(text, hang=2))
        out += [self._paragraph(f"{self.dot} to have {said}", hang=2) for said in how_to_log(d)]
        why = ruled_out(d)
        if why:
            out += [Text(), Text("Ruled out", style="bold")]
            out += [self._paragraph(f"{self.dot} {name}: {text}", hang=2) for name, text in why]
        return out

    def _section(self, name: str) -> list[RenderableType]:
        return [
            Text(),
            Rule(Text(name, style="bold cyan"), align="left", style="dim", characters="─"),
        ]

    def _paragraph(self, text: str, *, indent: int = 0, hang: int = 0) -> RenderableType:
        body = Text(wrap(text, self.measure - indent, hang), overflow="fold")
        return Padding(body, (0, 0, 0, indent)) if indent else body

    def _ledger(self, d: Diagnosis) -> Table:
        table = ledger_table(d, short=self.width < 110)
        heads = tuple(head.replace(" turns", "\nturns") for head in table.columns)
        return dataclasses.replace(table, columns=heads)

    def _narrow(self, table: Table) -> Table:
        room = max(2, (self.width - 8) // 15)
        if len(table.columns) <= room + 1:
            return table
        left_out = len(table.columns) - 1 - room
        note = f"Longer prompts left out here: {left_out} columns. {table.note}"
        return dataclasses.replace(
            table,
            columns=table.columns[: room + 1],
            rows=tuple(row[: room + 1] for row in table.rows),
            note=note,
        )

    def _table(
        self, table: Table, *, totals: int = 0, limit: int = ROWS, widest: int | None = None
    ) -> RenderableType:
        """A table of at most ``limit`` rows; words fold in columns of ``widest`` cells."""
        rows, values = list(table.rows), list(table.values)
        hidden = max(0, len(rows) - limit) if not totals else 0
        rows = rows[: len(rows) - hidden]
        top = max((v for v in values if v is not None), default=0.0)
        widest = widest or max(24, self.width // 2)
        taken = sum(
            min(max(cell_len(cell) for cell in column), widest) + 2
            for column in zip(*rows, self._heads(table), strict=True)
        )
        bar = min(24, self.width - taken - 1)
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for at, head in enumerate(table.columns):
            left = at in table.left
            grid.add_column(
                Text(head),
                justify="left" if left else "right",
                overflow="fold",
                max_width=widest if left else None,
                no_wrap=not left,
            )
        bars = top > 0 and bar >= 5
        if bars:
            grid.add_column("", no_wrap=True)
        for at, row in enumerate(rows):
            whole = at >= len(rows) - totals
            cells = [Text(cut(cell, 200), style="bold" if whole else "") for cell in row]
            if bars:
                value = values[at] if at < len(values) else None
                size = bar * max(0.0, value or 0.0) / top
                drawn = self.full * round(size) or (self.sliver if size > 0 else "")
                cells.append(Text(drawn, style="red" if "repeated" in row[0] else "cyan"))
            grid.add_row(*cells)
        parts: list[RenderableType] = [grid]
        if hidden:
            parts.append(Text(f"… {hidden} more in --json", style="dim"))
        if table.note:
            parts.append(self._paragraph(table.note))
        return Group(*parts)

    def _heads(self, table: Table) -> tuple[str, ...]:
        return tuple(max(head.split("\n"), key=len) for head in table.columns)


def wrap(text: str, width: int, hang: int = 0) -> str:
    """Break a sentence into lines, keeping a number and its unit together."""
    if cell_len(text) != len(text):
        return text  # wide characters: the console itself breaks them
    glued = _UNIT.sub("\\1\xa0\\2", text)
    lines = textwrap.wrap(
        glued,
        width,
        subsequent_indent=" " * hang,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\xa0", " ")


def _continued(command: str, width: int) -> list[str]:
    """A command in lines that a shell reads as one; a longer word is left whole."""
    words = [word for word in _SHELL_WORD.findall(command) if word]
    lines: list[str] = []
    for word in words:
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _stop(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def cut(text: str, limit: int) -> str:
    """The text, or as much of it as goes into ``limit`` characters."""
    return text if len(text) <= limit else text[: max(1, limit - 1)] + "…"


RENDERER = Renderer(
    name="terminal",
    title="text for a terminal",
    suffixes=(".txt",),
    render=render,
)
