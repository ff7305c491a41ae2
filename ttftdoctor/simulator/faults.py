"""The columns of the log, and what is wrong with them: faults of measuring are made here.

Held-back first tokens (not streamed, buffered, thinking, a gate in the client) are timed by the
server's loop; what is wrong only in writing the number down is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ttftdoctor.simulator.server import Job
from ttftdoctor.simulator.workload import Plan

#: Columns by name, a plain value (or None) a request.
Columns = dict[str, list[Any]]

#: The first day on which anything is served; each seed has a day of its own.
FIRST_DAY = datetime(2026, 3, 2, 8, tzinfo=UTC)
US = 10**6  # picoseconds


def ms(duration: int | None) -> float | None:
    """Picoseconds as milliseconds, to the microsecond."""
    return None if duration is None else round(duration / US) / 1000


def stamp(plan: Plan, instant: int) -> str:
    """An instant as UTC date and time."""
    day = FIRST_DAY + timedelta(days=plan.seed % 28)
    moment = day + timedelta(microseconds=round(instant / US))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def columns_of(plan: Plan, jobs: Sequence[Job]) -> Columns:
    """All columns but prefix blocks, in the order of the canonical table, for all rows logged."""
    service = plan.service
    faults, shape = service.faults, service.log
    single = len(service.server) == 1
    out: Columns = {name: [] for name in (
        "request_id", "session_id", "turn", "start", "model", "replica", "tenant", "route",
        "version", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "ttft_ms",
        "e2e_ms", "queue_ms", "prefill_ms", "decode_ms", "load_ms", "attempts", "status",
        "streamed", "vantage",
    )}  # fmt: skip
    whole = {
        "thinking": any(t.thinking_tokens.median for t in service.traffic),
        "loads": any(s.unload_after_s for s in service.server),
    }
    for number, job in enumerate(jobs):
        traffic, turn = job.session.traffic, job.turn
        ok = job.status == "ok"
        ttft = ms(job.visible + job.way_out - job.wanted) if ok else None
        if ttft is not None and job.session.spare < faults.unit_mixed:
            ttft = round(ttft / 1000, 6)
        prefix = "" if single else f"{traffic.model}-"
        row = {
            "request_id": f"r{number:06d}",
            "session_id": job.session.id,
            "turn": job.index + 1,
            "start": stamp(plan, job.wanted),
            "model": traffic.model,
            "replica": f"{prefix}r{job.replica}" if job.replica >= 0 else None,
            "tenant": traffic.tenant,
            "route": traffic.route,
            "version": job.version or None,
            "input_tokens": job.input,
            "cached_tokens": (0 if faults.dead_cached else job.cached) if ok else None,
            "output_tokens": turn.output_tokens if ok else 0,
            "reasoning_tokens": turn.thinking_tokens if ok and whole["thinking"] else None,
            "ttft_ms": ttft,
            "e2e_ms": ms(job.last + job.way_out - job.wanted) if ok else None,
            "queue_ms": ms(job.scheduled - job.arrived - job.loading) if ok else None,
            "prefill_ms": ms(job.first - job.scheduled) if ok else None,
            "decode_ms": ms(job.last - job.first) if ok else None,
            "load_ms": ms(job.loading) if ok and whole["loads"] else None,
            "attempts": job.attempts,
            "status": job.status,
            "streamed": not (turn.fault < faults.not_streamed) if faults.streamed_logged else None,
            "vantage": shape.vantage,
        }
        for name, value in row.items():
            out[name].append(value)
    return out


def logged(plan: Plan, columns: Columns) -> Columns:
    """What of it gets into the log: the columns that hold anything and the first rows."""
    shape = plan.service.log
    rows = shape.rows or None
    return {
        name: values[:rows]
        for name, values in columns.items()
        if name not in shape.drop and any(value is not None for value in values)
    }
