"""Where the warm-up of a run ends: MSER-5 on TTFT relative to what the requests should cost.

White (1997), "An effective truncation heuristic for bias reduction in simulation output",
Simulation 69:323: cut as many batches of five off the head as makes the standard error of the mean
of the rest smallest. A cut in the second half is no warm-up but a run that never settled (White,
Cobb and Spratt 2000, WSC): it is used only to tell a run that is nothing but warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure.rows import Array
from ttftdoctor.stats import auc

BATCH = 5
#: At most this part of a run is set aside.
MOST_SHARE = 0.2
#: What is cut must have taken this many times as long as the rest, relative to its cost,
SLOWER = 1.3
#: and a request of it be slower than one of the rest this often (Mann-Whitney).
MORE_OFTEN = 0.75
#: From these on the rest of a run is too short to be called settled.
ONLY_SLOWER, ONLY_MORE_OFTEN = 2.0, 0.9
#: Fewer requests than this are no run with a head and a tail.
LEAST_ROWS = 50
#: Nothing is taken as slow that is within this of its cost.
LEAST_S = 0.005


@dataclass(frozen=True)
class WarmUp:
    """``cut`` requests from the head are warm-up; ``only``: the run hardly holds anything else."""

    cut: int
    only: bool


def mser(values: Array) -> int:
    """The number of values to cut off the head by MSER-5; shape (n,), in order of time.

    Notes
    -----
    Minimises ``sum of squares about the mean of the rest / (size of the rest)**2`` over the
    batches; the last five batches are never a rest by themselves.
    """
    size = len(values) // BATCH
    if size <= BATCH:
        return 0
    means = values[: size * BATCH].reshape(size, BATCH).mean(axis=1)
    # Sums from the tail, so that each place knows what is left behind it.
    left = np.arange(size, 0, -1.0)
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    score = (squares - total * total / left) / left**2
    return int(np.argmin(score[: size - BATCH])) * BATCH


def warm_up_of(ttft: Array, cost: Array) -> WarmUp:
    """What to set aside of a run.

    Parameters
    ----------
    ttft, cost
        Seconds: as measured, and what a warm and free server would take; in order of arrival.

    Notes
    -----
    The number looked at is the logarithm of one over the other, winsorised at the 99th percentile:
    a single outlier late in the run would otherwise decide the cut.
    """
    n = len(ttft)
    if n < LEAST_ROWS:
        return WarmUp(0, only=False)
    ratio = np.log(np.maximum(ttft, 1e-6) + LEAST_S) - np.log(np.maximum(cost, 1e-6) + LEAST_S)
    ratio = np.minimum(ratio, np.quantile(ratio, 0.99))
    cut = mser(ratio)
    if cut < 2 * BATCH:
        return WarmUp(0, only=False)
    head, rest = ratio[:cut], ratio[cut:]
    slower = float(np.exp(np.median(head) - np.median(rest)))
    often = auc(head, rest) or 0.0
    if cut <= MOST_SHARE * n:
        clear = slower >= SLOWER and often >= MORE_OFTEN
        return WarmUp(cut if clear else 0, only=False)
    only = cut > n / 2 and slower >= ONLY_SLOWER and often >= ONLY_MORE_OFTEN
    return WarmUp(0, only=only)
