"""The tests of the gate: p-values, intervals, several metrics at once, rates of failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ttftdoctor.measure.rows import Array

LEVEL = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Estimate:
    """A figure of both sides, and how well their difference is known.

    ``error`` is the standard error of the difference, or, if ``relative``, of the logarithm of
    current over baseline; None where it is unknown. ``n`` is the smaller number of requests of the
    two sides. ``p`` overrides the test by t.
    """

    baseline: float
    current: float
    error: float | None
    freedom: float
    relative: bool
    n: int
    p: float | None = None
    note: str = ""

    @property
    def change(self) -> float:
        """Current less baseline."""
        return self.current - self.baseline

    @property
    def moved(self) -> float:
        """The change on the scale of the error."""
        if self.relative:
            return math.log(max(self.current, 1e-12) / max(self.baseline, 1e-12))
        return self.change

    def amount(self, moved: float) -> float:
        """A change on the scale of the error as one in the unit of the metric."""
        return self.baseline * math.expm1(min(moved, 20.0)) if self.relative else moved

    def p_value(self, worse: str) -> float | None:
        """One-sided: how likely so large a change for the worse is if nothing changed."""
        if self.p is not None:
            return self.p
        if self.error is None:
            return None
        bad = self.moved if worse == "up" else -self.moved
        if self.error <= 0:
            return 1.0 if bad <= 0 else 0.0
        return float(stats.t.sf(bad / self.error, self.freedom))

    def reach(self, tail: float) -> float | None:
        """So many units lie between the estimate and its bound with this much beyond it."""
        if self.error is None:
            return None
        return float(stats.t.isf(tail, self.freedom)) * self.error

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """The interval of the change."""
        half = self.reach((1 - level) / 2)
        if half is None:
            return None
        return self.amount(self.moved - half), self.amount(self.moved + half)

    def bad_end(self, worse: str, alpha: float) -> float | None:
        """How large a change for the worse may still be, at one-sided ``alpha``; at least 0."""
        half = self.reach(alpha)
        if half is None:
            return None
        end = self.amount(self.moved + half if worse == "up" else self.moved - half)
        return max(end if worse == "up" else -end, 0.0)

    def smallest(self, worse: str, alpha: float, power: float = POWER) -> float | None:
        """The smallest change for the worse that would be seen with this power, as a size."""
        if self.error is None:
            return None
        both = float(stats.t.isf(alpha, self.freedom) + stats.t.ppf(power, self.freedom))
        moved = both * self.error
        return abs(self.amount(moved if worse == "up" else -moved))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979, Scand. J. Stat. 6:65), in the given order.

    The chance that any true hypothesis is rejected at ``alpha`` is at most ``alpha``, however
    they depend on each other.
    """
    m = len(p_values)
    order = sorted(range(m), key=lambda at: p_values[at])
    out = [1.0] * m
    running = 0.0
    for rank, at in enumerate(order):
        running = max(running, min(1.0, (m - rank) * p_values[at]))
        out[at] = running
    return out


def rates(
    baseline: Sequence[Array], current: Sequence[Array], column: int | tuple[int, ...], runs: int
) -> Estimate | None:
    """Compare a rate of failure.

    Parameters
    ----------
    baseline, current
        Counts of each run, shape (stretches, kinds), all requests in column 0.
    column
        What counts as a failure.
    runs
        From so many runs on each side, these are the clusters; else stretches of time are.

    Notes
    -----
    Failures come in bursts, so that requests are no independent trials: the error of each rate is
    that of a ratio over clusters (Cochran 1977, chapter 6), and never less than that of Agresti
    and Caffo (2000, Am. Stat. 54:280), which holds where hardly anything failed. The p-value is the
    larger one of that test and of Fisher's exact one, which is right for rare independent
    failures.
    """
    columns = [column] if isinstance(column, int) else list(column)
    by_run = min(len(baseline), len(current)) >= runs
    figures = []
    for side in (baseline, current):
        table = np.stack([s.sum(axis=0) for s in side]) if by_run else np.concatenate(side)
        total, failed = table[:, 0], table[:, columns].sum(axis=1)
        some = total > 0
        total, failed = total[some], failed[some]
        if not len(total):
            return None
        n, x = float(total.sum()), float(failed.sum())
        rate, k = x / n, len(total)
        left = failed - rate * total
        spread = k / max(k - 1, 1) * float((left**2).sum()) / n**2
        smoothed = (x + 1) / (n + 2)
        figures.append((n, x, rate, max(spread, smoothed * (1 - smoothed) / (n + 2)), k))
    (n, x, was, v, k), (m, y, now, w, j) = figures
    error = math.sqrt(v + w)
    freedom = (v + w) ** 2 / max(v**2 / max(k - 1, 1) + w**2 / max(j - 1, 1), 1e-300)
    by_t = float(stats.t.sf((now - was) / error, freedom))
    exact = float(stats.fisher_exact([[y, m - y], [x, n - x]], alternative="greater").pvalue)
    return Estimate(was, now, error, freedom, relative=False, n=int(min(n, m)), p=max(by_t, exact))
