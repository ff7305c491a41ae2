"""An inspection as text for a terminal. Names of the log are cleaned before they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ttftdoctor.inspection import ColumnView, Inspection
from ttftdoctor.inspection.invariants import Check
from ttftdoctor.language import mark, spoken, tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.mapping.proposal import Proposal, Unused
from ttftdoctor.report import clean
from ttftdoctor.report.terminal import wrap as wrap_by_cell
from ttftdoctor.switches import sentence
from ttftdoctor.units import count, digits, figure, seconds, share
from ttftdoctor.zones import local

if TYPE_CHECKING:
    from rich.console import Console

#: Unused fields that are listed one by one.
MOST_UNUSED = 40
#: Columns that most causes want: where one is missing, its switch is shown.
WANTED = (
    "session_id", "start", "input_tokens", "cached_tokens", "output_tokens", "ttft_us", "e2e_us",
    "queue_us",
)  # fmt: skip
#: What the values of an unused field are, as people read it.
_KINDS = {
    "true or false": mark("true or false"),
    "whole number": mark("whole number"),
    "number": mark("number"),
    "moment": mark("moment"),
    "text": mark("text"),
    "list": mark("list"),
    "object": mark("object"),
    "mixed": mark("mixed"),
}
#: How far a column can be trusted, as people read it.
_GRADES = {
    "logged": mark("logged"),
    "derived": mark("derived"),
    "inferred": mark("inferred"),
    "assumed": mark("assumed"),
}


def print_to(console: Console, found: Inspection) -> None:
    """Print all of an inspection."""
    for line in found.recognised:
        console.print(Text(clean(line), style="bold"))
    _print_inputs(console, found)
    _print_columns(console, found)
    _print_checks(console, found.checks, several=len(found.inputs) > 1)
    _print_unused(console, found.unused)
    _print_causes(console, found)
    for line in (*found.lacks, *found.notes, *found.warnings):
        _line(console, tr("note: {text}", text=clean(line)))
    if found.proposal is not None:
        console.print()
        print_proposal(console, found.proposal)


def print_proposal(console: Console, proposal: Proposal) -> None:
    """Print a mapping file that was made for a log, whole, to be copied."""
    _head(console, tr("A mapping for this log (--propose FILE writes it)"))
    for line in proposal.text.splitlines():
        console.print(Text(line), soft_wrap=True)


def _head(console: Console, title: str) -> None:
    console.print(Text(title, style="bold"))


def _print_inputs(console: Console, found: Inspection) -> None:
    for record in found.inputs:
        rejected = sum(record.rows_rejected.values())
        console.print(
            tr(
                "rows read {read} = used {used} + rejected {rejected}",
                read=count(record.rows_read), used=count(record.rows_used),
                rejected=count(rejected),
            )
        )  # fmt: skip
        for reason, n in record.rows_rejected.items():
            lines = [str(at) for at, why in record.first_rejects if why == reason][:3]
            text = tr("rejected {n}: {reason}", n=count(n), reason=clean(reason))
            if lines:
                text = tr(
                    "rejected {n}: {reason} (first at {lines})",
                    n=count(n), reason=clean(reason), lines=tr(", ").join(lines),
                )  # fmt: skip
            console.print(Text(f"  {text}"))
        for reason, n in record.ttft_set_aside.items():
            text = tr("TTFT not used in {n}: {reason}", n=count(n), reason=clean(reason))
            console.print(Text(f"  {text}"))


def _print_columns(console: Console, found: Inspection) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in tr("column|from|unit|rows|range|why").split("|"):
        table.add_column(title, overflow="fold")
    for c in found.columns:
        if c.source is None and c.coverage == 0:
            continue
        span = "" if c.low is None else " .. ".join(shown(c.column, v) for v in (c.low, c.high))
        table.add_row(
            c.column, clean(c.source or ""), clean(c.unit or ""),
            f"{digits(100 * c.coverage)}%", span, clean(_why(c)),
        )  # fmt: skip
    console.print(table)
    missing = [c.column for c in found.columns if c.source is None and c.coverage == 0]
    if missing:
        columns = tr(", ").join(missing)
        _line(console, tr("not in this log: {columns}", columns=columns))


def _why(c: ColumnView) -> str:
    if not c.why or c.kind is None:
        return ""
    return tr("{kind}: {why}", kind=tr(_GRADES[c.kind]), why=c.why)


def shown(column: str, value: int) -> str:
    """A value of a column as people read it: durations with a unit, dates as dates."""
    if column.endswith("_us"):
        return seconds(value / 1e6)
    if column == "start":
        if not 10**14 < value < 10**17:  # a clock that starts somewhere
            return f"{value / 1e6:,.3f} s"
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        zone = manner().timezone
        moment = moment if zone is None else local(moment, zone)
        return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    return f"{value:,}"


def _print_checks(console: Console, checks: Sequence[Check], *, several: bool) -> None:
    """What does not hold first, then what does, then what could not be looked at."""
    console.print()
    _head(console, tr("What must hold"))
    for check in checks:
        if check.outcome not in ("broken", "noted"):
            continue
        sign, text = "·", clean(check.text)
        if check.outcome == "broken":
            sign = "!"
            text = tr(
                "{title}: not in {n} of {all} rows ({share}); {text}",
                title=check.title, n=count(check.rows), all=count(check.of),
                share=share(check.share), text=text,
            )  # fmt: skip
        where = tr(", ").join(
            f"{clean(Path(path).name, 60)}:{line}" if several else str(line)
            for path, line in check.first
        )
        if where and several:
            text = tr("{text}; first at {places}", text=text, places=where)
        elif where:
            text = tr("{text}; first at line {lines}", text=text, lines=where)
        _item(console, sign, text)
    held = [check.title for check in checks if check.outcome == "holds"]
    if held:
        _item(console, "·", tr("holds: {checks}", checks=tr("; ").join(held)))
    left = [
        tr("{title} (no {columns})", title=check.title, columns=tr(", ").join(check.needs))
        for check in checks
        if check.outcome == "not_checked"
    ]
    if left:
        _item(console, "·", tr("not checked: {checks}", checks=tr("; ").join(left)))


def _line(console: Console, text: str) -> None:
    """A paragraph; Rich breaks only at spaces, of which some languages have few."""
    if spoken() != "en":
        text = wrap_by_cell(text, max(console.width, 20))
    console.print(Text(text))


def _item(console: Console, sign: str, text: str) -> None:
    """A paragraph whose further lines are set under its first word."""
    width = max(console.width, 20)
    if spoken() == "en":
        lines = wrap(f"{sign} {text}", width, subsequent_indent="  ", break_on_hyphens=False)
    else:
        # Letters may be two cells wide, and lines end between any two of them.
        lines = wrap_by_cell(f"{sign} {text}", width, 2).splitlines()
    for line in lines:
        console.print(Text(line))


def _print_unused(console: Console, unused: Sequence[Unused]) -> None:
    if not unused:
        return
    console.print()
    _head(console, tr("Fields that no column uses: {n}", n=len(unused)))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in tr("field|holds|rows|range|looks like").split("|"):
        table.add_column(title, overflow="fold")
    for field in sorted(unused, key=lambda field: field.guess is None)[:MOST_UNUSED]:
        span = ""
        if field.low is not None and field.high is not None:
            span = f"{figure(field.low)} .. {figure(field.high)}"
        filled = f"{digits(100 * field.filled)}%"
        table.add_row(clean(field.name, 60), tr(_KINDS[field.kind]), filled, span,
                      field.guess or "")  # fmt: skip
    console.print(table)
    if len(unused) > MOST_UNUSED:
        console.print(tr("and {n} more (--json lists all)", n=len(unused) - MOST_UNUSED))


def _print_causes(console: Console, found: Inspection) -> None:
    console.print()
    _head(console, tr("What can be judged"))
    judged = tr(", ").join(found.judged) or tr("nothing")
    _item(console, "·", tr("can be judged: {causes}", causes=judged))
    for why, causes in _by_reason(found).items():
        text = tr("cannot be judged: {causes}; {why}", causes=tr(", ").join(causes), why=why)
        _item(console, "·", text)
    wanted = dict.fromkeys(name for needs in found.unjudged.values() for name in needs)
    missing = {c.column for c in found.columns if c.coverage < 0.5}
    wanted.update(dict.fromkeys(name for name in WANTED if name in missing))
    _print_switches(console, found, wanted)


def _by_reason(found: Inspection) -> dict[str, list[str]]:
    """The causes that cannot be judged by what they need, or else why not."""
    out: dict[str, list[str]] = {}
    for cause, needs in found.unjudged.items():
        why = clean(found.because.get(cause, ""))
        if needs:
            why = tr("needs {columns}", columns=tr(", ").join(needs))
        out.setdefault(why or tr("there is too little of it"), []).append(cause)
    return out


def _print_switches(console: Console, found: Inspection, columns: Iterable[str]) -> None:
    named = [column for column in columns if column in found.switches]
    if not named:
        return
    console.print()
    _head(console, tr("How to log what is missing"))
    alike = {field.guess: field.name for field in found.unused if field.guess}
    said: dict[str, list[str]] = {}
    for column in named:
        if column in alike:
            text = tr(
                "the field {field} looks like it, and is not used", field=clean(alike[column], 60)
            )
            said.setdefault(text, []).append(column)
            continue
        for name, switch in found.switches[column].items():
            shown_as = column
            if len(found.switches[column]) > 1:
                shown_as = tr("{column} ({format})", column=column, format=name)
            said.setdefault(sentence(name, switch), []).append(shown_as)
    for text, columns in said.items():
        _item(console, "·", tr("{columns}: {text}", columns=tr(", ").join(columns), text=text))
