"""The diagnosis for a terminal: the answer on the first screen, the evidence below it.

Colours are the terminal's own (so they fit light and dark ones) and never carry meaning alone.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from ttftdoctor.diagnosis import Amplifier, Diagnosis, Slice
from ttftdoctor.language import tr, tr_n
from ttftdoctor.prefixes.sections import ladder_table, short, shown
from ttftdoctor.report import (
    CLAUSES,
    STOPS,
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
    joined,
    ledger_table,
    missing,
    of_repeated,
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
    span,
    split_tables,
    spread_sentence,
    title,
    ttft_figures,
    turn_by_length,
    who,
    worked_examples,
    worst_table,
)
from ttftdoctor.units import count, seconds, share

_UNIT = re.compile(r"(\d) (%|µs|ms|s|min|h|M|G)(?!\w)")

#: Signs that no line of Chinese begins with, and those that none ends with.
_CLOSING = frozenset("，。、：；！？）】》」』”’…％·")
_OPENING = frozenset("（【《「『“‘")

#: A word of a command that :func:`shlex.join` quoted.
_SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")

#: The lines of the first screen, and the lines a reader's eye follows without losing its place.
SCREEN = 24
MEASURE = 100
ROWS = 12

#: Hours with a figure that a line of bars is drawn of.
LEAST_HOURS = 6

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
        self.levels, self.gap = ("_-~=+*#@", ".") if plain else ("▁▂▃▄▅▆▇█", "·")

    # the first screen

    def first_screen(self, d: Diagnosis) -> list[RenderableType]:
        """Verdict, why, what to do first and the next step, in 24 rows at 80 columns."""
        v = d.verdict
        head = self._head(d)
        remedy = best_remedy(d)
        first: list[str] = []
        if remedy is not None:
            first = [
                tr("{name}: {text}", name=clean(remedy.id), text=remedy_name(remedy)),
                gain_sentence(remedy, d.population.ttft_mean_s),
            ]
        elif v.primary_cause == "healthy":
            first = [tr("nothing needs to be done")]
        steps = [clean(step) for step in v.next_steps]
        tail: list[RenderableType] = []
        if v.primary_cause == "healthy" and d.slo is not None and d.slo.attainment < MET:
            tail.append(self._listed(tr("Target"), [slo_sentence(d)], bold=True))
        if first:
            tail.append(self._listed(tr("Do first"), first, bold=True))
        if steps:
            tail.append(self._listed(tr("Next"), [cut(steps[0], 2 * self.measure - 24)]))
        command = self._command(d)
        if command and cell_len(command) <= self.measure - 10:
            tail.append(self._listed(tr("Prove it"), [command]))
        want = missing(d) if v.primary_cause == "insufficient_data" else []
        if want:
            tail.append(
                self._listed(tr("Missing"), [cut(tr(", ").join(want), 2 * self.measure - 24)])
            )
        if d.warnings:
            n = len(d.warnings)
            said = tr_n("{n} warning, at the end", "{n} warnings, at the end", n, n=n)
            tail.append(self._listed(tr("Beware"), [said]))
        finding = primary(d)
        evidence = [clean(s.text) for s in finding.evidence] if finding else []
        if not evidence:
            evidence = prefix_sentences(d)
        room = SCREEN - 2 - self._rows(head) - self._rows(tail)
        kept: list[str] = []
        for sentence in (cut(s, 4 * self.measure) for s in evidence[:5]):
            if kept and self._rows([self._listed(tr("Why"), [*kept, sentence])]) > room:
                break
            kept.append(sentence)
        self._shown = len(kept)
        why: list[RenderableType] = [self._listed(tr("Why"), kept, marks=True)] if kept else []
        return [*head, Text(), *why, Text(), *tail]

    def _head(self, d: Diagnosis) -> list[RenderableType]:
        v = d.verdict
        mark = f" {badge(v)} "
        banner = Text()
        banner.append(f"ttftdoctor {clean(d.version, 20)}", style="bold")
        room = self.measure - banner.cell_len - 2
        figures, short = ttft_figures(d), ttft_figures(d, short=True)
        whom = who(d)[:2]
        ways = ([*whom, figures], [*whom, short], [whom[0], short])
        told = [" · ".join(parts) for parts in ways]
        fitting = next((line for line in told if cell_len(line) <= room), cut(told[-1], room))
        banner.append(f"  {fitting}")
        room = self.measure - cell_len(mark) - 1
        headline = Grid.grid(padding=(0, 1))
        headline.add_column(no_wrap=True)
        headline.add_column(max_width=room, overflow="fold")
        said = wrap(cut(clean(v.headline), 4 * self.measure), room)
        headline.add_row(Text(mark, style=STYLE[severity(v)]), Text(said, style="bold"))
        cause = clean(v.primary_cause)
        facts = [tr("{name}: {text}", name=cause, text=title(v.primary_cause))]
        if v.primary_cause != "insufficient_data":
            facts.append(f"{confidence(v.confidence)} · {cut(scope(d), self.measure)}")
        rows: list[RenderableType] = [banner, Rule(style="dim", characters="─"), headline, Text()]
        rows.append(self._listed(tr("Cause"), facts))
        worse = [_amplifier(a) for a in v.amplifiers]
        if worse:
            lines = [cut(w, 2 * self.measure - 30) for w in worse]
            rows.append(self._listed(tr("Amplifier"), lines))
        others = [c for c in v.contributing if c not in {a.id for a in v.amplifiers}]
        if others:
            rows.append(self._listed(tr("Also"), [tr(", ").join(clean(c) for c in others)]))
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
            out += self._section(tr("Where the mean TTFT goes"))
            out.append(self._table(self._ledger(d), totals=2))
            spread = spread_sentence(d)
            if spread:
                out.append(self._paragraph(spread))
        for split in split_tables(d):
            out += self._section(split.title)
            out.append(self._table(split))
            if split.name == "by_hour":
                out += self._through_hours(d.splits.by_hour)
        matrix = turn_by_length(d)
        if matrix is not None:
            out += self._section(matrix.title)
            out.append(self._table(self._narrow(matrix)))
        out += self._section(tr("Cost of a token"))
        out += [self._paragraph(s) for s in cost_sentences(d)]
        out += self._section(tr("Repeated prefix"))
        out.append(self._paragraph(joined(prefix_sentences(d))))
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
                said = [tr("{sentence}.", sentence=clean(remedy.id))]
                if remedy.cost:
                    said.append(tr("Cost: {text}", text=_stop(clean(remedy.cost))))
                saving = saving_sentence(d, remedy)
                if saving:
                    said.append(tr("Over this log it {saves}.", saves=saving))
                if remedy.assumptions:
                    assumed = tr("; ").join(clean(a) for a in remedy.assumptions)
                    said.append(tr("Assumes: {text}", text=_stop(assumed)))
                out.append(self._paragraph(f"{self.dot} {joined(said)}", hang=2))
        target = slo_sentence(d)
        if target:
            out += self._section(tr("Target"))
            out.append(self._paragraph(target))
        out += self._worst(d)
        out += self._causes(d)
        experiment = d.verdict.experiment
        out += self._section(tr("Next steps"))
        out += [
            self._paragraph(f"{at}. {clean(step)}", hang=3)
            for at, step in enumerate(d.verdict.next_steps, 1)
        ]
        if experiment is not None:
            text = tr("To prove it: {text}", text=clean(experiment.text))
            out.append(self._paragraph(text, hang=3))
            if experiment.command:
                lines = _continued(self._command(d), self.width - 3)
                out += [Text(f"   {line}", style="bold", overflow="fold") for line in lines]
        more = tr("More about it: {command}",
                  command=f"ttftdoctor explain {clean(d.verdict.primary_cause)}")  # fmt: skip
        out.append(self._paragraph(more))
        out += self._section(tr("What was read"))
        out.append(self._paragraph(tr("{sentence}.", sentence=" · ".join(who(d)))))
        for sentence in read_sentences(d):
            indent = len(sentence) - len(sentence.lstrip())
            out.append(self._paragraph(sentence.strip(), indent=indent, hang=2))
        for note in d.evidence.notes:
            out.append(self._paragraph(f"{self.dot} {clean(note)}", hang=2))
        if d.warnings:
            out += self._section(tr("Warnings"))
            for warning in d.warnings:
                out.append(self._paragraph(f"! {clean(warning)}", hang=2))
        # The end is what a terminal shows when the report has run through.
        out += self._section(tr("In short"))
        out.append(self._paragraph(clean(d.verdict.headline)))
        v = d.verdict
        if v.primary_cause not in ("healthy", "insufficient_data"):
            sure = (clean(v.primary_cause), confidence(v.confidence))
            out.append(self._paragraph(joined(sure, CLAUSES)))
        best = best_remedy(d)
        if best is not None:
            gain = gain_sentence(best, d.population.ttft_mean_s)
            text = tr("Do first: {remedy}, {gain}", remedy=remedy_name(best), gain=gain)
            out.append(self._paragraph(text, hang=2))
        return out

    def _command(self, d: Diagnosis) -> str:
        """The command of the experiment, whole: it is there to be copied."""
        experiment = d.verdict.experiment
        return clean(experiment.command or "") if experiment is not None else ""

    def _worst(self, d: Diagnosis) -> list[RenderableType]:
        rows, examples = worst_table(d), worked_examples(d)
        if rows is None and not examples:
            return []
        out = self._section(rows.title if rows is not None else tr("The worst requests"))
        if rows is not None:
            out.append(self._table(rows))
        return out + [self._paragraph(f"{self.dot} {text}", hang=2) for text in examples]

    def _causes(self, d: Diagnosis) -> list[RenderableType]:
        if not d.causes:
            return []
        out = self._section(tr("Causes considered"))
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
                out.append(self._named(finding.id, joined(_stop(s) for s in said)))
        for needs, names in unjudged.items():
            want = tr(", ").join(clean(n, 60) for n in needs) or tr("more than this log has")
            decides = tr("{columns} would decide: {causes}",
                         columns=want, causes=tr(", ").join(names))  # fmt: skip
            out.append(self._paragraph(f"{self.dot} {decides}", hang=2))
        for how in how_to_log(d):
            log = tr("to have {text}", text=how)
            out.append(self._paragraph(f"{self.dot} {log}", hang=2))
        why = ruled_out(d)
        if why:
            out += [Text(), Text(tr("Ruled out"), style="bold")]
            out += [self._named(name, text) for name, text in why]
        return out

    def _named(self, ident: str, text: str) -> RenderableType:
        said = tr("{name}: {text}", name=clean(ident), text=text)
        return self._paragraph(f"{self.dot} {said}", hang=2)

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
        note = tr_n(
            "Longer prompts left out here: {n} column. {note}",
            "Longer prompts left out here: {n} columns. {note}",
            left_out, n=left_out, note=table.note,
        )  # fmt: skip
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
                cells.append(Text(drawn, style="red" if of_repeated(row[0]) else "cyan"))
            grid.add_row(*cells)
        parts: list[RenderableType] = [grid]
        if hidden:
            parts.append(Text(tr("… {n} more in --json", n=hidden), style="dim"))
        if table.note:
            parts.append(self._paragraph(table.note))
        return Group(*parts)

    def _through_hours(self, slices: Sequence[Slice]) -> list[RenderableType]:
        """TTFT and load through the log, a line of bars each; nothing where hours are few."""
        hours = {at: one for one in slices if (at := hour_of(one)) is not None}
        ttft = {
            at: one.ttft_p50_s
            for at, one in hours.items()
            if one.ttft_p50_s is not None and math.isfinite(one.ttft_p50_s)
        }
        load = {at: float(one.n) for at, one in hours.items()}
        lines = [
            (name, values, span((min(values.values()), max(values.values())), show))
            for name, values, show in (
                ("TTFT p50", ttft, seconds),
                (tr("requests"), load, count),
            )
            if len(values) >= LEAST_HOURS
        ]
        if not lines:
            return []
        taken = max(cell_len(n) for n, _, _ in lines) + max(cell_len(e) for _, _, e in lines) + 4
        first, whole = min(hours), max(hours) - min(hours) + 1
        each = -(-whole // max(1, self.measure - taken))
        bars = -(-whole // each)
        grid = Grid.grid(padding=(0, 2, 0, 0))
        gaps = False
        for name, values, ends in lines:
            drawn = self._bars([_mean(values, first + at * each, each) for at in range(bars)])
            gaps = gaps or self.gap in drawn
            grid.add_row(Text(name), Text(drawn, style="cyan"), Text(ends))
        notes = [tr("Each bar is the mean of up to {n} hours.", n=each)] if each > 1 else []
        if gaps:
            notes.append(tr("{sign} marks hours without a figure.", sign=self.gap))
        return [grid, self._paragraph(joined(notes))] if notes else [grid]

    def _bars(self, values: Sequence[float | None]) -> str:
        """Values as bars of one cell, from zero up to the highest of them."""
        top = max((v for v in values if v is not None), default=0.0) or 1.0
        steps = len(self.levels)
        return "".join(
            self.gap if v is None else self.levels[max(0, round(steps * v / top) - 1)]
            for v in values
        )

    def _heads(self, table: Table) -> tuple[str, ...]:
        return tuple(max(head.split("\n"), key=cell_len) for head in table.columns)


def hour_of(one: Slice) -> int | None:
    """The hour of a slice as a number, so that it shows where hours are left out."""
    hour = one.key.get("hour")
    if isinstance(hour, str):
        try:
            moment = datetime.fromisoformat(hour)
        except ValueError:
            return None
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) // 3600
    return hour if isinstance(hour, int) else None


def _mean(values: Mapping[int, float], first: int, hours: int) -> float | None:
    """The mean of the values that are known of some hours; None of none."""
    known = [v for at, v in values.items() if first <= at < first + hours]
    return sum(known) / len(known) if known else None


def wrap(text: str, width: int, hang: int = 0) -> str:
    """Break a sentence into lines of so many cells, keeping a number and its unit together."""
    glued = _UNIT.sub("\\1\xa0\\2", text)
    if cell_len(text) != len(text):
        lines = _wrapped_by_cell(glued, width, " " * hang)
    else:
        lines = textwrap.wrap(
            glued,
            width,
            subsequent_indent=" " * hang,
            break_on_hyphens=False,
        )
    return "\n".join(lines).replace("\xa0", " ")


def _wrapped_by_cell(text: str, width: int, indent: str) -> list[str]:
    """Lines of a text with characters two cells wide, each of which may end a line."""
    bare = text.lstrip(" ")
    lines, line, gap = list[str](), text[: len(text) - len(bare)], ""
    for piece in _unbroken(bare, width - len(indent)):
        if piece == " ":
            gap = piece
        elif line.strip() and cell_len(line + gap + piece) > width:
            lines.append(line)
            line, gap = indent + piece, ""
        else:
            line, gap = line + gap + piece, ""
    return [*lines, line]


def _unbroken(text: str, width: int) -> list[str]:
    """A text in pieces of which a line is made: blanks, words, and single wide characters.

    Signs stay with what they close or open; what is wider than a line is taken apart.
    """
    pieces: list[str] = []
    for char in text:
        before = pieces[-1] if pieces else " "
        alone = get_character_cell_size(char) > 1 or char in _OPENING
        if char in "\t\n ":
            pieces += [] if before == " " else [" "]
        elif before == " " or (
            char not in _CLOSING
            and before[-1] not in _OPENING
            and (alone or get_character_cell_size(before[-1]) > 1 or before[-1] in _CLOSING)
        ):
            pieces.append(char)
        else:
            pieces[-1] += char
    return [part for piece in pieces for part in (piece if cell_len(piece) > width else (piece,))]


def _amplifier(one: Amplifier) -> str:
    """A cause that makes the primary one worse: its part of TTFT, and what it does."""
    text = clean(one.id)
    if one.share_of_ttft is not None:
        part = tr("{part} of TTFT", part=share(one.share_of_ttft))
        text = joined((text, part), CLAUSES)
    return tr("{name}: {text}", name=text, text=clean(one.text)) if one.text else text


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
    return sentence if sentence.endswith(STOPS) else tr("{sentence}.", sentence=sentence)


def cut(text: str, limit: int) -> str:
    """The text, or as much of it as goes into ``limit`` cells."""
    if cell_len(text) <= limit:
        return text
    kept = set_cell_size(text, max(1, limit - 1))
    # Half of a wide character is a blank.
    return (kept if text.startswith(kept) else kept[:-1]) + "…"


RENDERER = Renderer(
    name="terminal",
    title="text for a terminal",
    suffixes=(".txt",),
    render=render,
)
