"""An inspection as text for a terminal. Names of the log are cleaned before they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ttftdoctor.inspection import Inspection
from ttftdoctor.inspection.invariants import Check
from ttftdoctor.mapping.manner import manner
from ttftdoctor.mapping.proposal import Proposal, Unused
from ttftdoctor.report import clean
from ttftdoctor.switches import sentence
from ttftdoctor.units import figure, seconds, share
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
        console.print(Text("note: " + clean(line)))
    if found.proposal is not None:
        console.print()
        print_proposal(console, found.proposal)


def print_proposal(console: Console, proposal: Proposal) -> None:
    """Print a mapping file that was made for a log, whole, to be copied."""
    _head(console, "A mapping for this log (--propose FILE writes it)")
    for line in proposal.text.splitlines():
        console.print(Text(line), soft_wrap=True)


def _head(console: Console, title: str) -> None:
    console.print(Text(title, style="bold"))


def _print_inputs(console: Console, found: Inspection) -> None:
    for record in found.inputs:
        rejected = sum(record.rows_rejected.values())
        console.print(
            f"rows read {record.rows_read:,} = used {record.rows_used:,} + rejected {rejected:,}"
        )
        for reason, n in record.rows_rejected.items():
            lines = [str(at) for at, why in record.first_rejects if why == reason][:3]
            where = f" (first at {', '.join(lines)})" if lines else ""
            console.print(Text(f"  rejected {n:,}: {clean(reason)}{where}"))
        for reason, n in record.ttft_set_aside.items():
            console.print(Text(f"  TTFT not used in {n:,}: {clean(reason)}"))


def _print_columns(console: Console, found: Inspection) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("column", "from", "unit", "rows", "range", "why"):
        table.add_column(title, overflow="fold")
    for c in found.columns:
        if c.source is None and c.coverage == 0:
            continue
        span = "" if c.low is None else " .. ".join(shown(c.column, v) for v in (c.low, c.high))
        table.add_row(
            c.column, clean(c.source or ""), clean(c.unit or ""), f"{c.coverage:.0%}", span,
            clean(f"{c.kind}: {c.why}" if c.why else ""),
        )  # fmt: skip
    console.print(table)
    missing = [c.column for c in found.columns if c.source is None and c.coverage == 0]
    if missing:
        console.print(Text("not in this log: " + ", ".join(missing)))


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
    _head(console, "What must hold")
    for check in checks:
        if check.outcome not in ("broken", "noted"):
            continue
        mark = "!" if check.outcome == "broken" else "·"
        part = f"{check.rows:,} of {check.of:,} rows ({share(check.share)})"
        lead = f"{check.title}: not in {part}; " if check.outcome == "broken" else ""
        where = ", ".join(
            f"{clean(Path(path).name, 60)}:{line}" if several else str(line)
            for path, line in check.first
        )
        at = f"; first at {'' if several else 'line '}{where}" if where else ""
        _item(console, mark, f"{lead}{clean(check.text)}{at}")
    held = [check.title for check in checks if check.outcome == "holds"]
    if held:
        _item(console, "·", "holds: " + "; ".join(held))
    left = [
        f"{check.title} (no {', '.join(check.needs)})"
        for check in checks
        if check.outcome == "not_checked"
    ]
    if left:
        _item(console, "·", "not checked: " + "; ".join(left))


def _item(console: Console, mark: str, text: str) -> None:
    """A paragraph whose further lines are set under its first word."""
    width = max(console.width, 20)
    lines = wrap(f"{mark} {text}", width, subsequent_indent="  ", break_on_hyphens=False)
    for line in lines:
        console.print(Text(line))


def _print_unused(console: Console, unused: Sequence[Unused]) -> None:
    if not unused:
        return
    console.print()
    _head(console, f"Fields that no column uses: {len(unused)}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("field", "holds", "rows", "range", "looks like"):
        table.add_column(title, overflow="fold")
    for field in sorted(unused, key=lambda field: field.guess is None)[:MOST_UNUSED]:
        span = ""
        if field.low is not None and field.high is not None:
            span = f"{figure(field.low)} .. {figure(field.high)}"
        table.add_row(clean(field.name, 60), field.kind, f"{field.filled:.0%}", span,
                      field.guess or "")  # fmt: skip
    console.print(table)
    if len(unused) > MOST_UNUSED:
        console.print(f"and {len(unused) - MOST_UNUSED} more (--json lists all)")


def _print_causes(console: Console, found: Inspection) -> None:
    console.print()
    _head(console, "What can be judged")
    _item(console, "·", "can be judged: " + (", ".join(found.judged) or "nothing"))
    for why, causes in _by_reason(found).items():
        _item(console, "·", f"cannot be judged: {', '.join(causes)}; {why}")
    wanted = dict.fromkeys(name for needs in found.unjudged.values() for name in needs)
    missing = {c.column for c in found.columns if c.coverage < 0.5}
    wanted.update(dict.fromkeys(name for name in WANTED if name in missing))
    _print_switches(console, found, wanted)


def _by_reason(found: Inspection) -> dict[str, list[str]]:
    """The causes that cannot be judged by what they need, or else why not."""
    out: dict[str, list[str]] = {}
    for cause, needs in found.unjudged.items():
        why = f"needs {', '.join(needs)}" if needs else clean(found.because.get(cause, ""))
        out.setdefault(why or "there is too little of it", []).append(cause)
    return out


def _print_switches(console: Console, found: Inspection, columns: Iterable[str]) -> None:
    named = [column for column in columns if column in found.switches]
    if not named:
        return
    console.print()
    _head(console, "How to log what is missing")
    alike = {field.guess: field.name for field in found.unused if field.guess}
    said: dict[str, list[str]] = {}
    for column in named:
        if column in alike:
            text = f"the field {clean(alike[column], 60)} looks like it, and is not used"
            said.setdefault(text, []).append(column)
            continue
        for name, switch in found.switches[column].items():
            several = f" ({name})" if len(found.switches[column]) > 1 else ""
            said.setdefault(sentence(name, switch), []).append(f"{column}{several}")
    for text, columns in said.items():
        _item(console, "·", f"{', '.join(columns)}: {text}")
