"""From a log that was examined to the small record that a comparison works on."""

from __future__ import annotations

import numpy as np

from ttftdoctor.comparisons.judge import Portrait
from ttftdoctor.comparisons.records import Side
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.examine import Examined
from ttftdoctor.intake import Log
from ttftdoctor.measure.mix import session_names, tally_of
from ttftdoctor.measure.rows import Rows


def portrait_of(log: Log, diagnosis: Diagnosis, examined: Examined) -> Portrait:
    """Everything a comparison needs of one side."""
    rows, load = examined.rows, examined.load
    tally = tally_of(rows, examined.ledger, session_names(log.requests, rows))
    groups = {row.group: row.n for row in diagnosis.ledger}
    peak = groups.get("peak")
    span = _span(rows)
    running = load.running[np.isfinite(load.running)] if load is not None else np.empty(0)
    wait = examined.evidence.wait
    tokens = float(np.nansum(rows.inputs)) if np.isfinite(rows.inputs).any() else None
    model, replica = rows.scopes.get("model"), rows.scopes.get("replica")
    side = Side(
        inputs=diagnosis.inputs,
        population=diagnosis.population,
        ttft_p99_s=None if tally.ttft is None else tally.ttft[3],
        primary_cause=diagnosis.verdict.primary_cause,
        headline=diagnosis.verdict.headline,
        cost_lines=diagnosis.cost_lines,
        models=() if model is None else model.names,
        replicas=None if replica is None else len(replica.names),
        arrivals_per_s=None if span is None else rows.n / span,
        input_tokens_per_s=None if span is None or tokens is None else tokens / span,
        peak_share=None if peak is None else peak / max(peak + groups.get("off_peak", 0), 1),
        in_flight_mean=float(running.mean()) if len(running) else None,
        utilisation=None if wait is None else wait.utilisation,
    )
    return Portrait(side, tally)


def _span(rows: Rows) -> float | None:
    """Seconds from the first to the last arrival; None without times."""
    start = rows.start[np.isfinite(rows.start)]
    if not rows.order_known or len(start) < 2:
        return None
    return float(np.ptp(start)) or None
