"""What was recognised in a log, column by column, and which causes it lets be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Input
from ttftdoctor.examine import examine
from ttftdoctor.inspection.invariants import Check, check_log
from ttftdoctor.intake import Log
from ttftdoctor.language import tr
from ttftdoctor.mapping.proposal import Proposal, Unused, propose
from ttftdoctor.switches import Switch, switch_for
from ttftdoctor.table import COLUMNS
from ttftdoctor.verdict import decide

SCHEMA = "ttftdoctor.inspection/1"


@dataclass(frozen=True)
class ColumnView:
    """One canonical column: where it came from, in which unit and why, how much of it there is."""

    column: str
    source: str | None
    unit: str | None
    why: str | None
    kind: str | None
    coverage: float
    low: Any
    high: Any


@dataclass(frozen=True)
class Inspection:
    """All columns of a log, what was rejected, and what can be judged from it.

    ``unjudged`` has the columns that each cause would need, and ``because`` why it cannot be
    judged where no column is to blame. ``switches`` say, for each column that is missing or
    patchy, by format how it is logged there. ``checks`` are what must hold in any log; ``unused``
    are the log's fields that no column uses, and ``proposal`` a mapping file that would use them.
    """

    recognised: tuple[str, ...]
    inputs: tuple[Input, ...]
    columns: tuple[ColumnView, ...]
    judged: tuple[str, ...]
    unjudged: Mapping[str, tuple[str, ...]]
    lacks: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    because: Mapping[str, str]
    switches: Mapping[str, Mapping[str, Switch]]
    checks: tuple[Check, ...]
    unused: tuple[Unused, ...]
    proposal: Proposal | None

    def to_dict(self) -> dict[str, Any]:
        """The document of ``inspect --json`` (``ttftdoctor.inspection/1``)."""
        return {
            "schema": SCHEMA,
            "recognised": list(self.recognised),
            "inputs": [
                {
                    "path": i.path,
                    "format": i.format,
                    "rows_read": i.rows_read,
                    "rows_used": i.rows_used,
                    "rows_rejected": dict(i.rows_rejected),
                    "first_rejects": [{"line": n, "reason": r} for n, r in i.first_rejects],
                    "ttft_set_aside": dict(i.ttft_set_aside),
                }
                for i in self.inputs
            ],
            "columns": {
                c.column: {
                    "source": c.source,
                    "unit": c.unit,
                    "why": c.why,
                    "kind": c.kind,
                    "coverage": c.coverage,
                    "range": None if c.low is None else [c.low, c.high],
                }
                for c in self.columns
            },
            "unused_fields": [asdict(field) for field in self.unused],
            "invariants": [
                {
                    **asdict(check),
                    "share": check.share,
                    "first": [{"path": path, "line": line} for path, line in check.first],
                    "needs": list(check.needs),
                }
                for check in self.checks
            ],
            "causes": {
                "judged": list(self.judged),
                "unjudged": {k: list(v) for k, v in self.unjudged.items()},
                "because": dict(self.because),
            },
            "switches": {
                column: {
                    name: {"possible": switch.possible, "text": switch.text}
                    for name, switch in by_format.items()
                }
                for column, by_format in self.switches.items()
            },
            "proposed_mapping": None if self.proposal is None else self.proposal.text,
            "lacks": list(self.lacks),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def inspect_log(log: Log) -> Inspection:
    """Describe a log that was read."""
    columns = tuple(_view(log, name) for name in COLUMNS)
    _, findings = decide(examine(log, draw=False).evidence, catalog.causes())
    unjudged = [f for f in findings if f.status == "unjudged"]
    thin = [c.column for c in columns if c.coverage < 1]
    formats = dict.fromkeys(record.format for record in log.inputs)
    proposal = proposal_of(log) if log.beside.unused else None
    return Inspection(
        recognised=log.recognised,
        inputs=log.inputs,
        columns=columns,
        judged=tuple(f.id for f in findings if f.status != "unjudged"),
        unjudged={f.id: f.needs for f in unjudged},
        lacks=tuple(map(tr, log.lacks)),
        notes=log.notes,
        warnings=log.warnings,
        because={f.id: f.evidence[0].text for f in unjudged if f.evidence and not f.needs},
        switches={column: told for column in thin if (told := _switches(column, formats))},
        checks=check_log(log),
        unused=log.beside.unused,
        proposal=proposal if proposal is not None and proposal.columns else None,
    )


def proposal_of(log: Log) -> Proposal | None:
    """A mapping file for a flat log that could be read; None for logs of other formats."""
    return None if log.beside.sample is None else propose(log.beside.sample)


def _switches(column: str, formats: Mapping[str, None]) -> dict[str, Switch]:
    found = {name: switch_for(name, column) for name in formats}
    return {name: switch for name, switch in found.items() if switch is not None}


def _said(unit: str) -> str:
    """A unit in the language spoken, where it is said in words; ``ms`` is ``ms`` in any."""
    return tr(unit) if " " in unit else unit


def _view(log: Log, name: str) -> ColumnView:
    found = log.fields.get(name)
    values = log.requests[name].drop_nulls()
    low = high = None
    if len(values) and COLUMNS[name].dtype in (pl.Int64, pl.UInt32):
        low, high = values.min(), values.max()
    return ColumnView(
        column=name,
        source=found.source if found else None,
        unit=_said(found.unit) if found else None,
        why=tr(found.why) if found else None,
        kind=found.kind if found else None,
        coverage=len(values) / log.requests.height if log.requests.height else 0.0,
        low=low,
        high=high,
    )
