"""Two tallies at equal mix: cells of one, weighted by the sizes of the other.

Post-stratification (Holt and Smith 1979, J. R. Stat. Soc. A 142:33): figures of after are
averaged over cells with the weights of before. What is left of a difference in length inside a
cell is taken out along the slope of TTFT on length, turn by turn (regression estimation; Cochran
1977, chapter 7). Intervals come from resampling: whole sessions, since turns of one are alike,
and whole stretches of time, since requests wait together; the wider spread counts. Clusters of
both sides are drawn together, so that one workload served twice is compared in pairs; where
clusters of a number have nothing to do with each other, drawing them together changes nothing on
average.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from ttftdoctor.measure.mix import BIN_FROM_S, BIN_STEP, EXTRAS, Cell, Sums, Tally, alike
from ttftdoctor.measure.rows import Array, Index
from ttftdoctor.stats import SEED

METRICS = ("mean", "p50", "p95", "p99")
QUANTILES = (0.5, 0.95, 0.99)
DRAWS = 400
#: A cell counts as common to both sides with this many requests on each.
LEAST_ROWS = 5
#: Fewer clusters than this on a side give no interval.
LEAST_CLUSTERS = 5

Key = Callable[[Cell], Hashable]


@dataclass(frozen=True)
class Weighed:
    """Figures of both sides over their common cells, at the mix of before.

    ``levels`` has shape (``METRICS``, 2): before and after in seconds. ``spread`` is the standard
    error of the logarithm of after over before, per metric, with ``freedom`` degrees; None where
    there are too few clusters. ``covered`` is the share of the requests of each side in common
    cells. ``common`` is the mean of the requests in common cells, each side at its own mix;
    ``extras`` has shape (2, ``EXTRAS``), means over the rows that have them, at the mix of before.
    """

    cells: int
    covered: tuple[float, float]
    levels: Array
    common: tuple[float, float]
    spread: Array | None
    freedom: float
    extras: Array

    def half_width(self, metric: int, level: float = 0.95) -> float | None:
        """Half of the interval of log(after / before)."""
        if self.spread is None:
            return None
        return float(stdtrit(self.freedom, 0.5 + level / 2) * self.spread[metric])

    def smallest(self, metric: int, power: float = 0.8) -> float | None:
        """The rise, as a share, that would have been seen with this power at 5 %."""
        if self.spread is None:
            return None
        reach = stdtrit(self.freedom, 0.975) + stdtrit(self.freedom, power)
        return float(np.expm1(min(reach * self.spread[metric], 20.0)))


def covered(before: Tally, after: Tally, key: Key) -> tuple[float, float]:
    """The share of the requests of each side in cells that both have."""
    before, after = alike(before, after)
    b, a = _sizes(before, key), _sizes(after, key)
    both = [k for k, size in b.items() if min(size, a.get(k, 0.0)) >= LEAST_ROWS]
    return (
        sum(b[k] for k in both) / max(before.n, 1),
        sum(a[k] for k in both) / max(after.n, 1),
    )


def _sizes(tally: Tally, key: Key) -> dict[Hashable, float]:
    """Requests of each key."""
    out: dict[Hashable, float] = {}
    for cell, size in zip(tally.cells, tally.sizes.tolist(), strict=True):
        name = key(cell)
        if name is not None:
            out[name] = out.get(name, 0.0) + size
    return out


@dataclass(frozen=True)
class Beside:
    """Two tallies cut into the same cells, of which some are common to both.

    ``b`` and ``a`` are before and after over the cut cells; ``at_b`` and ``at_a`` the common ones
    in each, shape (cells,). ``weights`` are the requests of before in them, ``shared`` the group
    whose slope on length a cell uses (None: nothing is taken out). ``covered`` is the share of the
    requests of each side in common cells.
    """

    b: Tally
    a: Tally
    at_b: Index
    at_a: Index
    weights: Array
    shared: Index | None
    covered: tuple[float, float]

    def extras(self) -> Array:
        """Means of the extra sums at the mix of before, shape (2, ``EXTRAS``); NaN where one side
        has none.
        """
        b, a = _totals(self.b.by_session, self.at_b), _totals(self.a.by_session, self.at_a)
        factor = _factors(b[None], a[None], self.shared)[0]
        return _extras(self.b.extras[self.at_b], self.a.extras[self.at_a], self.weights, factor)

    def axes(self, draws: int) -> list[Pair]:
        """One pair of resampled sides for each way of clustering: sessions, stretches of time."""
        axes = [(self.b.by_session, self.a.by_session)]
        if self.b.by_time is not None and self.a.by_time is not None:
            axes.append((self.b.by_time, self.a.by_time))
        return [self._pair(*axis, draws) for axis in axes]

    def _pair(self, b: Sums, a: Sums, draws: int) -> Pair:
        once = _drawn(max(b.clusters, a.clusters), draws)
        return self.drawn(b, a, once[:, : b.clusters], once[:, : a.clusters])

    def drawn(self, b: Sums, a: Sums, once_b: Array, once_a: Array) -> Pair:
        """Both sides, each cluster counted as often as a line of ``once`` says."""
        return Pair(b, a, self.at_b, self.at_a, self.weights, self.shared, once_b, once_a)


def set_beside(before: Tally, after: Tally, key: Key, slope: Key | None) -> Beside | None:
    """Cut two tallies into cells of one key each; None where they have no cell in common.

    Parameters
    ----------
    key
        What has to be equal: cells with one key are one.
    slope
        Cells with one key share a slope of TTFT on length; None takes nothing out.
    """
    before, after = alike(before, after)
    names_b, b = before.regrouped(key)
    names_a, a = after.regrouped(key)
    place = {k: at for at, k in enumerate(names_a)}
    sizes_b, sizes_a = b.sizes, a.sizes
    pairs = [
        (at, place[k])
        for at, k in enumerate(names_b)
        if k in place and min(sizes_b[at], sizes_a[place[k]]) >= LEAST_ROWS
    ]
    if not pairs:
        return None
    at_b, at_a = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    shared = None if slope is None else _numbered([slope(b.cells[at]) for at in at_b])
    weights, own = sizes_b[at_b], sizes_a[at_a]
    shares = float(weights.sum()) / max(before.n, 1), float(own.sum()) / max(after.n, 1)
    return Beside(b, a, at_b, at_a, weights, shared, shares)


def weigh(
    before: Tally, after: Tally, key: Key, slope: Key | None, *, draws: int = DRAWS
) -> Weighed | None:
    """Set two tallies beside each other, cell by cell; None where they have no cell in common.

    Parameters are those of :func:`set_beside`.
    """
    beside = set_beside(before, after, key, slope)
    if beside is None:
        return None
    b, a, at_b, at_a = beside.b, beside.a, beside.at_b, beside.at_a
    results, freedom = [], []
    for pair in beside.axes(draws):
        results.append(pair.levels())
        filled = min(pair.filled)
        if filled >= LEAST_CLUSTERS:
            freedom.append((pair.spread(results[-1]), filled - 1.0))
    levels = results[0][0]
    spread, free = None, 1.0
    if freedom:
        spread = np.max([s for s, _ in freedom], axis=0)
        free = min(f for _, f in freedom)
    totals_b, totals_a = _totals(b.by_session, at_b), _totals(a.by_session, at_a)
    return Weighed(
        cells=len(at_b),
        covered=beside.covered,
        levels=levels,
        common=(
            float(totals_b[:, 1].sum() / totals_b[:, 0].sum()),
            float(totals_a[:, 1].sum() / totals_a[:, 0].sum()),
        ),
        spread=spread,
        freedom=free,
        extras=beside.extras(),
    )


def _drawn(clusters: int, draws: int) -> Array:
    """How often each cluster is drawn; the first line is the log as it is."""
    rng = np.random.default_rng(SEED)
    # Weights of mean one and variance one (the Bayesian bootstrap, Rubin 1981) never leave a
    # cell empty, as counts of drawn clusters do.
    weights = rng.exponential(1.0, size=(draws, clusters))
    return np.concatenate([np.ones((1, clusters)), weights])


def _numbered(keys: list[Hashable]) -> Index:
    known = {k: at for at, k in enumerate(dict.fromkeys(keys))}
    return np.array([known[k] for k in keys], dtype=np.int64)


def _totals(sums: Sums, at: Index) -> Array:
    total: Array = sums.moments[:, at].sum(axis=0)
    return total


def _factors(b: Array, a: Array, shared: Index | None) -> Array:
    """By what TTFT of after is multiplied in each cell to stand at the lengths of before.

    ``b`` and ``a`` have shape (draws, cells, moments).
    """
    if shared is None:
        return np.ones(a.shape[:2])
    n, t, x, xx, xt = np.moveaxis(a, -1, 0)
    n = np.maximum(n, 1e-12)
    sxy, sxx = xt - x * t / n, xx - x * x / n
    groups = int(shared.max()) + 1
    into = np.zeros((len(shared), groups))
    into[np.arange(len(shared)), shared] = 1.0
    over, under = sxy @ into, sxx @ into
    slope = np.divide(over, under, out=np.zeros_like(over), where=under > 1e-9)[:, shared]
    mean = t / n
    gap = x / n - b[:, :, 2] / np.maximum(b[:, :, 0], 1e-12)
    factor = np.divide(mean - slope * gap, mean, out=np.ones_like(mean), where=mean > 0)
    # A cell is narrow: what would more than halve or double it is noise.
    clipped: Array = np.clip(factor, 0.5, 2.0)
    return clipped


class Pair:
    """Both sides along one way of clustering, with the weights of all draws.

    The first draw is the log as it is. ``filled`` counts the clusters of each side that have a
    request in a common cell.
    """

    def __init__(
        self, b: Sums, a: Sums, at_b: Index, at_a: Index, weights: Array, shared: Index | None,
        once_b: Array, once_a: Array,
    ) -> None:  # fmt: skip
        self.weights, self.shared = weights, shared
        self.b, self.a, self.at_b, self.at_a = b, a, at_b, at_a
        self.once_b, self.once_a = once_b, once_a
        self.filled = tuple(
            int((side.moments[:, at, 0].sum(axis=1) > 0).sum())
            for side, at in ((b, at_b), (a, at_a))
        )
        self.moments_b = self._draw(b, at_b, once_b)
        self.moments_a = self._draw(a, at_a, once_a)

    def _draw(self, sums: Sums, at: Index, once: Array) -> Array:
        flat = sums.moments[:, at].reshape(sums.clusters, -1)
        drawn: Array = (once @ flat).reshape(len(once), len(at), -1)
        return drawn

    def levels(self) -> Array:
        """Figures of each draw, shape (draws, ``METRICS``, 2)."""
        return np.concatenate([self.means()[:, None], self.quantiles(QUANTILES)], axis=1)

    def means(self) -> Array:
        """Means at the mix of before in each draw, shape (draws, 2)."""
        factor = _factors(self.moments_b, self.moments_a, self.shared)
        share = self.weights / self.weights.sum()
        mean_b = (self.moments_b[:, :, 1] / np.maximum(self.moments_b[:, :, 0], 1e-12)) @ share
        means_a = self.moments_a[:, :, 1] / np.maximum(self.moments_a[:, :, 0], 1e-12) * factor
        return np.stack([mean_b, means_a @ share], axis=-1)

    def ratios(self) -> Array:
        """Value over x, where each cell has the x of before; shape (draws, 2)."""
        x = self.moments_b[0, :, 2]
        share = x / max(float(x.sum()), 1e-12)
        sides = [
            (m[:, :, 1] / np.maximum(m[:, :, 2], 1e-12)) @ share
            for m in (self.moments_b, self.moments_a)
        ]
        return np.stack(sides, axis=-1)

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles at the mix of before in each draw, shape (draws, levels, 2)."""
        nothing = np.ones(len(self.at_b))
        factor = _factors(self.moments_b[:1], self.moments_a[:1], self.shared)[0]
        b = self._quantiles(self.b, self.at_b, self.moments_b, self.once_b, nothing, levels)
        a = self._quantiles(self.a, self.at_a, self.moments_a, self.once_a, factor, levels)
        return np.stack([b, a], axis=-1)

    def within(self, limit_s: float) -> Array:
        """Shares of the requests that took no longer than a limit, shape (draws, 2)."""
        nothing = np.ones(len(self.at_b))
        factor = _factors(self.moments_b[:1], self.moments_a[:1], self.shared)[0]
        sides = []
        for sums, at, moments, once, scale in (
            (self.b, self.at_b, self.moments_b, self.once_b, nothing),
            (self.a, self.at_a, self.moments_a, self.once_a, factor),
        ):
            step = np.log(BIN_STEP) * sums.width
            cell, cluster, count, place = self._placed(sums, at, scale, step)
            edge = np.log(max(limit_s, BIN_FROM_S) / BIN_FROM_S) / step
            sides.append(self._below(sums, at, moments, once, cell, cluster, count, edge - place))
        return np.stack(sides, axis=-1)

    def _placed(
        self, sums: Sums, at: Index, factor: Array, step: float
    ) -> tuple[Index, Index, Array, Array]:
        """Entries of the histogram in common cells: cell, cluster, count, lower end in bins."""
        to = np.full(sums.moments.shape[1], -1)
        to[at] = np.arange(len(at))
        cell = to[sums.cell]
        kept = np.flatnonzero(cell >= 0)
        cell = cell[kept]
        place = sums.bin[kept] + (np.log(factor) / step)[cell]
        return cell, sums.cluster[kept], sums.count[kept], place

    def _below(
        self, sums: Sums, at: Index, moments: Array, once: Array, cell: Index, cluster: Index,
        count: Array, part: Array,
    ) -> Array:  # fmt: skip
        """The share below a level in each draw; ``part`` of an entry, clipped, lies below it."""
        under = count * np.clip(part, 0.0, 1.0)
        below = np.bincount(cluster * len(at) + cell, under, sums.clusters * len(at))
        drawn = once @ below.reshape(sums.clusters, len(at))
        share = self.weights / self.weights.sum()
        found: Array = (drawn / np.maximum(moments[:, :, 0], 1e-12)) @ share
        return found

    def _quantiles(
        self, sums: Sums, at: Index, moments: Array, once: Array, factor: Array,
        levels: Sequence[float],
    ) -> Array:  # fmt: skip
        """Quantiles of the weighted cells in each draw, shape (draws, levels).

        Draws are linear in the distribution function (Bahadur 1966, Ann. Math. Stat. 37:577): where
        a draw has more mass below the quantile, its own lies as much further down.
        """
        share = self.weights / self.weights.sum()
        step = np.log(BIN_STEP) * sums.width
        # Lower ends of bins, in bins; one that lies across two is shared out to both.
        cell, cluster, count, place = self._placed(sums, at, factor, step)
        whole = np.floor(place).astype(np.int64)
        low = int(whole.min())
        mass = count * (share / moments[0, :, 0])[cell]
        part = place - whole
        size = int(whole.max()) - low + 2
        bins = np.bincount(whole - low, mass * (1 - part), size)
        bins += np.bincount(whole - low + 1, mass * part, size)
        upto = np.concatenate([[0.0], np.cumsum(bins) / bins.sum()])
        ends = low + np.arange(size + 1.0)
        out = np.empty((len(once), len(levels)))
        for column, q in enumerate(levels):
            found = np.interp(q, upto, ends)
            below = self._below(sums, at, moments, once, cell, cluster, count, found - place)
            level = np.clip(q + below[0] - below, 0.0, 1.0)
            out[:, column] = np.interp(level, upto, ends)
        values: Array = BIN_FROM_S * np.exp(step * out)
        return values

    def spread(self, levels: Array) -> Array:
        """Standard error of log(after / before) of each metric over the draws."""
        safe = np.log(np.maximum(levels[1:], 1e-12))
        error: Array = (safe[:, :, 1] - safe[:, :, 0]).std(axis=0, ddof=1)
        return error


def _extras(b: Array, a: Array, weights: Array, factor: Array) -> Array:
    """Means of the extra sums at the mix of before; NaN where one side has none.

    Accounts are over the rows with accounts, tokens over those with cached tokens; both over the
    cells that have them on both sides. Accounts of after are taken to the lengths of before.
    """
    out = np.full((2, len(EXTRAS)), np.nan)
    accounts, tokens = EXTRAS.index("accounts_n"), EXTRAS.index("cached_n")
    for first, last in ((accounts, tokens), (tokens, len(EXTRAS))):
        both = np.flatnonzero((b[:, first] > 0) & (a[:, first] > 0))
        if not len(both):
            continue
        share = weights[both] / weights[both].sum()
        scale = factor[both, None] if first == accounts else 1.0
        out[0, first:last] = share @ (b[both, first:last] / b[both, first : first + 1])
        out[1, first:last] = share @ (a[both, first:last] / a[both, first : first + 1] * scale)
    return out
