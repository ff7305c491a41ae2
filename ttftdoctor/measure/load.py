"""Who was ahead of whom: requests in flight, and prefill work not yet done, at each arrival."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure.rows import Array, Index, Mask, Rows
from ttftdoctor.stats import or_zero, passed


@dataclass(frozen=True)
class Load:
    """Per row, at its arrival and at its server; all NaN where the log has no times.

    ``waiting`` earlier requests without a first token; ``decoding`` those between first and last
    token; ``backlog`` seconds of prefill work of the waiting ones, of which
    ``backlog_repeated`` computes tokens that were computed before; ``idle`` seconds since the
    server last had something to do (infinite for its first request).
    """

    waiting: Array
    decoding: Array
    backlog: Array
    backlog_repeated: Array
    idle: Array

    @property
    def running(self) -> Array:
        """Requests in flight at arrival."""
        return self.waiting + self.decoding


def by_server(rows: Rows, counted: Mask) -> Iterator[Index]:
    """The counted rows of each server in order of arrival."""
    whole = bool(counted.all())
    for every in rows.arrivals:
        at = every if whole else every[counted[every]]
        if len(at):
            yield at


def load_of(rows: Rows, work: Array, repeated_work: Array, counted: Load | None = None) -> Load:
    """Count, for each arrival, what was ahead of it at the same server.

    Parameters
    ----------
    work, repeated_work
        Seconds of prefill of each row, and the part of it that repeats earlier work.
    counted
        A load of the same rows for other work: what does not depend on the work is taken from it.

    Notes
    -----
    What has arrived less what has had its first token is what is still waiting; both are running
    sums over the arrivals of a server.
    """
    nan = np.full(rows.n, np.nan)
    backlog, again = nan.copy(), nan.copy()
    waiting, decoding, idle = (
        (counted.waiting, counted.decoding, counted.idle)
        if counted is not None
        else (nan.copy(), nan.copy(), nan.copy())
    )
    lasting = np.where(np.isfinite(rows.e2e), rows.e2e, rows.ttft)
    for at in by_server(rows, np.isfinite(rows.start) & rows.measured):
        arrive = rows.start[at]
        first = arrive + rows.ttft[at]
        order = np.arange(len(at))
        if counted is None:
            done = passed(first, arrive)
        else:
            done = order - counted.waiting[at].astype(np.int64)
        if work.any():
            by_first = np.argsort(first, kind="stable")
        for target, seconds in ((backlog, work), (again, repeated_work)):
            value = or_zero(seconds[at])
            if not value.any():
                target[at] = 0.0
                continue
            ahead = np.concatenate([[0.0], np.cumsum(value)])[:-1]
            served = np.concatenate([[0.0], np.cumsum(value[by_first])])[done]
            target[at] = np.maximum(ahead - served, 0)
        if counted is not None:
            continue
        last = arrive + np.maximum(lasting[at], rows.ttft[at])
        gone = passed(last, arrive)
        waiting[at] = np.maximum(order - done, 0)
        decoding[at] = np.maximum(done - gone, 0)
        latest = np.concatenate([[-np.inf], np.maximum.accumulate(last)])[:-1]
        idle[at] = np.maximum(arrive - latest, 0)
    return Load(waiting, decoding, backlog, again, idle)
