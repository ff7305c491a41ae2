"""Who was ahead of whom: requests in flight, and prefill work not yet done, at each arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.measure.rows import Rows

Array = NDArray[np.float64]


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


def load_of(rows: Rows, work: Array, repeated_work: Array) -> Load:
    """Count, for each arrival, what was ahead of it at the same server.

    Parameters
    ----------
    work, repeated_work
        Seconds of prefill of each row, and the part of it that repeats earlier work.

    Notes
    -----
    What has arrived less what has had its first token is what is still waiting; both are running
    sums, so the cost is one sort per server.
    """
    nan = np.full(rows.n, np.nan)
    waiting, decoding, backlog, again, idle = (nan.copy() for _ in range(5))
    known = np.isfinite(rows.start) & rows.measured
    lasting = np.where(np.isfinite(rows.e2e), rows.e2e, rows.ttft)
    for server in np.unique(rows.server[known]):
        at = np.flatnonzero(known & (rows.server == server))
        at = at[np.argsort(rows.start[at], kind="stable")]
        arrive = rows.start[at]
        first = arrive + rows.ttft[at]
        last = arrive + np.maximum(lasting[at], rows.ttft[at])
        order = np.arange(len(at), dtype=float)
        by_first, by_last = np.argsort(first, kind="stable"), np.argsort(last, kind="stable")
        done = np.searchsorted(first[by_first], arrive, side="right")
        gone = np.searchsorted(last[by_last], arrive, side="right")
        waiting[at] = np.maximum(order - done, 0)
        decoding[at] = np.maximum(done - gone, 0)
        for target, value in ((backlog, work[at]), (again, repeated_work[at])):
            value = np.nan_to_num(value)
            ahead = np.concatenate([[0.0], np.cumsum(value)])[:-1]
            served = np.concatenate([[0.0], np.cumsum(value[by_first])])[done]
            target[at] = np.maximum(ahead - served, 0)
        latest = np.concatenate([[-np.inf], np.maximum.accumulate(last)])[:-1]
        idle[at] = np.maximum(arrive - latest, 0)
    return Load(waiting, decoding, backlog, again, idle)
