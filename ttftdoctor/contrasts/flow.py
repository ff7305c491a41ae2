"""From a log and an expression to a contrast, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ttftdoctor.choose import Only
from ttftdoctor.contrasts.columns import ALIASES, RESTATES, Table, columns_of
from ttftdoctor.contrasts.rank import MOST_ROWS, Sides, rank
from ttftdoctor.contrasts.records import ITSELF, Contrasted, Example
from ttftdoctor.contrasts.select import Rows, select, worded
from ttftdoctor.errors import UsageError
from ttftdoctor.intake import Log
from ttftdoctor.language import tr, tr_n
from ttftdoctor.measure.rows import Index
from ttftdoctor.report import clean
from ttftdoctor.run import one_log
from ttftdoctor.units import count
from ttftdoctor.version import tool_version

EXAMPLES = 5


def contrast(
    *logs: str | Path | Log,
    select: str,
    against: str | None = None,
    min_rows: int = 10,
    top: int = 12,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Contrasted:
    """Say why some rows are different from the rest: every column ranked, with effect sizes.

    Parameters
    ----------
    logs
        Paths, or one :class:`Log` from :func:`ttftdoctor.read`.
    select
        Which rows, for example ``ttft > p95 and turn >= 3``; see :mod:`.select`.
    against
        Which rows they are compared with; all others by default.
    min_rows
        Fewest rows on either side.
    top
        Columns that a report shows; the record holds all.
    only
        Which rows there are at all; all of the log by default.

    Raises
    ------
    UsageError
        If an expression is wrong, or means too few rows.

    Examples
    --------
    >>> found = contrast("sample_logs/peak_hour.jsonl", select="ttft > p95")
    >>> found.findings[0].column
    'backlog'
    """
    log = one_log(*logs, format=format, columns=columns, units=units, progress=progress, only=only)
    return contrast_log(log, select, against, min_rows=max(min_rows, 1), top=top)


def contrast_log(
    log: Log, expression: str, against: str | None, *, min_rows: int, top: int
) -> Contrasted:
    """The same for a log that was read."""
    table = columns_of(log)
    rows = Rows(table.n, table.named, ALIASES, table.absent, table.rows.epoch_us)
    chosen = select(expression, rows)
    selected = chosen.rows
    means, named, unsure = [chosen.means], chosen.named, chosen.unsure
    rest = ~selected & ~unsure
    if against is not None:
        other = select(against, rows, "--against")
        rest = other.rows & ~selected
        unsure = ~selected & ~rest & (unsure | other.unsure)
        named = tuple(dict.fromkeys((*named, *other.named)))
        means.append(other.means)
    sides = Sides(np.flatnonzero(selected), np.flatnonzero(rest))
    _enough(sides, table, named, "; against ".join(means), min_rows)
    restated = dict.fromkeys(named, tr(ITSELF))
    for name in named:
        for other_name, why in RESTATES.get(name, {}).items():
            restated.setdefault(other_name, tr(why, column=name))
    found = rank(table, sides, restated, min_rows)
    notes = list(table.notes)
    if found.sampled:
        notes.append(
            tr(
                "ranks are taken from {n} rows of a side, spread evenly; counts and shares from "
                "all",
                n=count(MOST_ROWS),
            )
        )
    sessions = None
    if table.rows.session_grade != "none":
        sessions = len(np.unique(table.cluster[sides.selected]))
        if sessions < 5:
            notes.append(
                tr_n(
                    "the selected rows are from {n} session: no intervals and no tests from fewer "
                    "than five",
                    "the selected rows are from {n} sessions: no intervals and no tests from fewer "
                    "than five",
                    sessions,
                    n=sessions,
                )
            )
    return Contrasted(
        version=tool_version(),
        inputs=log.inputs,
        select=expression,
        against=against,
        means=tr("; against ").join(means),
        rows=table.n,
        selected=len(sides.selected),
        rest=len(sides.rest),
        undecided=int(unsure.sum()),
        outside=int(table.n - len(sides.selected) - len(sides.rest) - unsure.sum()),
        sessions=table.rows.session_grade,
        sessions_selected=sessions,
        columns=found.columns,
        cut=found.cut,
        held=found.held,
        tests=found.tests,
        left_out=found.left_out,
        lacking=table.lacking,
        examples=_examples(log, table, sides.selected),
        notes=tuple(notes),
        warnings=log.warnings,
        epoch_s=None if table.rows.epoch_us is None else table.rows.epoch_us / 1e6,
        shown=top,
    )


def _enough(sides: Sides, table: Table, named: tuple[str, ...], means: str, min_rows: int) -> None:
    m, k = len(sides.selected), len(sides.rest)
    if m >= min_rows and k >= min_rows:
        return
    ranges = []
    for name in named:
        column = table.numbers.get(name)
        if column is not None:
            known = column.values[np.isfinite(column.values)]
            epoch = table.rows.epoch_us
            low, high = (worded(float(v), column.unit, epoch) for v in (known.min(), known.max()))
            ranges.append(f"{name} goes from {low} to {high}")
    what = f"only {_rows(m)} selected" if m else "no row is selected"
    if m >= min_rows:
        what = f"only {_rows(k)} left to compare with" if k else "all rows are selected"
    raise UsageError(
        f"{what} by: {clean(means, 600)}",
        why=f"fewer than {min_rows} rows say nothing (--min-rows)",
        help="; ".join(ranges) or None,
    )


def _rows(n: int) -> str:
    return "1 row is" if n == 1 else f"{n:,} rows are"


def _examples(log: Log, table: Table, selected: Index) -> tuple[Example, ...]:
    """The selected rows with the longest TTFT, or the first ones, to look up."""
    ttft = table.rows.ttft[selected]
    order = np.argsort(-np.where(np.isfinite(ttft), ttft, -1.0), kind="stable")[:EXAMPLES]
    out = []
    for at in selected[order]:
        row = log.requests.row(int(table.rows.line[at]), named=True)
        value = float(table.rows.ttft[at])
        out.append(
            Example(
                path=log.inputs[row["source"]].path,
                line=row["line"],
                request_id=row["request_id"],
                ttft_s=value if np.isfinite(value) else None,
            )
        )
    return tuple(out)
