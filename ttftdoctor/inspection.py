"""What was recognised in a log, column by column, and which causes it lets be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Input
from ttftdoctor.examine import examine
from ttftdoctor.intake import Log
from ttftdoctor.table import COLUMNS
from ttftdoctor.verdict import decide


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
    """All columns of a log, what was rejected, and what can be judged from it."""

    recognised: tuple[str, ...]
    inputs: tuple[Input, ...]
    columns: tuple[ColumnView, ...]
    judged: tuple[str, ...]
    unjudged: Mapping[str, tuple[str, ...]]
    lacks: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The document of ``inspect --json``."""
        return {
            "schema": "ttftdoctor.inspection/1",
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
            "causes": {
                "judged": list(self.judged),
                "unjudged": {k: list(v) for k, v in self.unjudged.items()},
            },
            "lacks": list(self.lacks),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def inspect_log(log: Log) -> Inspection:
    """Describe a log that was read."""
    frame = log.requests
    views = []
    for name, column in COLUMNS.items():
        found = log.fields.get(name)
        values = frame[name].drop_nulls()
        coverage = len(values) / frame.height if frame.height else 0.0
        low = high = None
        if len(values) and column.dtype in (pl.Int64, pl.UInt32):
            low, high = values.min(), values.max()
        views.append(
            ColumnView(
                column=name,
                source=found.source if found else None,
                unit=found.unit if found else None,
                why=found.why if found else None,
                kind=found.kind if found else None,
                coverage=coverage,
                low=low,
                high=high,
            )
        )
    _, findings = decide(examine(log, draw=False).evidence, catalog.causes())
    return Inspection(
        recognised=log.recognised,
        inputs=log.inputs,
        columns=tuple(views),
        judged=tuple(f.id for f in findings if f.status != "unjudged"),
        unjudged={f.id: f.needs for f in findings if f.status == "unjudged"},
        lacks=log.lacks,
        notes=log.notes,
        warnings=log.warnings,
    )
