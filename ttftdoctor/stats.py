"""Statistics over plain numbers: a thin, named layer over NumPy and Polars.

Nothing here knows what a request is. All functions are deterministic: random resampling uses a
fixed seed unless another is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[np.float64]

SEED = 20260310
#: From this many values on, Polars finds one by its rank several times as fast as NumPy.
MANY = 10_000
#: Beyond this many rows, ranks and fits are taken from a sample of as many (:func:`thin`).
MOST_ROWS = 50_000


@dataclass(frozen=True)
class QuantileFit:
    """Result of :func:`quantile_fit`.

    ``coef`` has shape (p,), ``draws`` (resamples, p); ``residual`` (n,) is y minus the fit.
    """

    coef: Array
    draws: Array
    residual: Array

    def interval(self, index: int, level: float = 0.95) -> tuple[float, float] | None:
        """Percentile interval of one coefficient over the resamples, containing the estimate."""
        if self.draws.shape[0] < 20:
            return None
        tail = (1 - level) / 2
        low, high = np.quantile(self.draws[:, index], [tail, 1 - tail])
        value = float(self.coef[index])
        return min(float(low), value), max(float(high), value)


def or_zero(values: Array) -> Array:
    """The values, with 0 for NaN; the very same array where there is nothing to replace."""
    missing = np.isnan(values)
    return np.where(missing, 0.0, values) if missing.any() else values


def where(mask: NDArray[np.bool_]) -> NDArray[np.int64] | slice:
    """An index of the rows where the mask holds; a slice, which copies nothing, if in all."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def quantile(values: Array, q: float) -> float:
    """``np.quantile`` of finite values, to the last bit: between neighbours in a straight line.

    Parameters
    ----------
    values
        Shape (n,); NaN if any of them is, or there are none.
    q
        Between 0 and 1.
    """
    low, high, between = _around(values, q)
    if low == high:
        return low  # both may be infinite
    # From the middle on NumPy counts from above, so that both ends are met exactly.
    return high - (high - low) * (1 - between) if between >= 0.5 else low + (high - low) * between


def median(values: Array) -> float:
    """The same as ``np.median``, to the last bit; see :func:`quantile`."""
    low, high, between = _around(values, 0.5)
    return (low + high) / 2 if between else low


def _around(values: Array, q: float) -> tuple[float, float, float]:
    """The two neighbours of a quantile, and how far it lies from the first to the second."""
    if not len(values):
        return np.nan, np.nan, 0.0
    place = (len(values) - 1) * q
    below = int(place)
    if len(values) < MANY or values.dtype != np.float64:
        above = min(below + 1, len(values) - 1)
        parted = np.partition(values, sorted({below, above, len(values) - 1}))
        low, high = float(parted[below]), float(parted[above])
        return (low, high, place - below) if parted[-1] == parted[-1] else (np.nan, np.nan, 0.0)
    if np.isnan(values.max()):
        return np.nan, np.nan, 0.0
    column = pl.Series(values)
    lower, upper = (column.quantile(q, interpolation=side) for side in ("lower", "higher"))
    assert isinstance(lower, float)
    assert isinstance(upper, float)
    return lower, upper, place - below


def thin(n: int, most: int = MOST_ROWS, seed: int = SEED) -> NDArray[np.int64]:
    """Row numbers of a sample that is spread evenly: one row of each of ``most`` equal stretches.

    The same for the same ``n`` and seed; in ascending order; all rows where there are no more
    than ``most``.
    """
    if n <= most:
        return np.arange(n)
    place = np.arange(most) + np.random.default_rng(seed).random(most)
    return np.minimum(place * (n / most), n - 1).astype(np.int64)


def in_order(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The stable order of whole numbers from -1 on, (n,): ``np.argsort(codes, kind="stable")``.

    Sorts by 16 bits at a time, which NumPy does by counting: in a third of the time for codes of
    a few thousand groups.
    """
    digits = codes + 1
    order = np.argsort((digits & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, int(digits.max(initial=0)).bit_length(), 16):
        digit = (digits[order] >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order


def passed(moments: Array, until: Array) -> NDArray[np.int64]:
    """How many of the moments, (m,), are no later than each of the rising ``until``, (n,).

    Places each moment among ``until`` and counts, so that the moments need not be sorted.
    """
    place = np.searchsorted(until, moments, side="left")
    counts: NDArray[np.int64] = np.bincount(place, minlength=len(until) + 1)
    return np.cumsum(counts)[:-1]


def quantile_fit(
    x: Array,
    y: Array,
    *,
    tau: float = 0.5,
    scale: Array | None = None,
    clusters: NDArray[np.int64] | None = None,
    resamples: int = 0,
    free: tuple[int, ...] = (),
    seed: int = SEED,
) -> QuantileFit:
    """Linear quantile regression with coefficients of at least zero.

    Minimises the sum of pinball losses of ``(y - x @ coef) / scale`` by the
    majorise-minimise iteration of Hunter and Lange (2000, J. Comp. Graph. Stat. 9:60), with an
    active set for the signs. Exact shifts of ``y`` move the constant's coefficient alone.

    Parameters
    ----------
    x, y
        Shapes (n, p) and (n,). Columns should be of like size.
    tau
        The quantile, between 0 and 1.
    scale
        Expected spread of each row, (n,); rows with a large spread count less.
    clusters
        Cluster of each row, (n,), integers from 0; resampling draws whole clusters.
    resamples
        Number of bootstrap draws.
    free
        Columns whose coefficient may be negative.

    Returns
    -------
    QuantileFit
        Of more than ``MOST_ROWS`` rows the coefficients are those of a sample (:func:`thin`).
    """
    n, p = x.shape
    if n > MOST_ROWS:
        some = thin(n)
        part = quantile_fit(
            x[some], y[some], tau=tau, scale=None if scale is None else scale[some],
            clusters=None if clusters is None else clusters[some], resamples=resamples, free=free,
            seed=seed,
        )  # fmt: skip
        return QuantileFit(part.coef, part.draws, y - x @ part.coef)
    weight = np.ones(n) if scale is None else 1.0 / scale
    xs, ys = x * weight[:, None], y * weight
    rng = np.random.default_rng(seed)
    start = np.zeros((1, p))
    coef = _majorise(xs, ys, tau, np.ones((1, n)), start, free, iterations=60, warm=False)[0]
    draws = np.empty((0, p))
    if resamples:
        groups = np.arange(n) if clusters is None else clusters
        size = int(groups.max()) + 1
        counts = rng.multinomial(size, np.full(size, 1.0 / size), size=resamples)
        parts = []
        step = max(1, int(3e4 // max(n, 1)))  # small enough for one core and its cache
        for at in range(0, resamples, step):
            rows = counts[at : at + step][:, groups].astype(float)
            first = np.repeat(coef[None, :], rows.shape[0], axis=0)
            parts.append(_majorise(xs, ys, tau, rows, first, free, iterations=20, warm=True))
        draws = np.concatenate(parts)
    return QuantileFit(coef, draws, y - x @ coef)


def _majorise(
    x: Array,
    y: Array,
    tau: float,
    counts: Array,
    coef: Array,
    free: tuple[int, ...],
    *,
    iterations: int,
    warm: bool,
) -> Array:
    """Run the iteration for several weightings of the rows at once; counts is (draws, n)."""
    n, p = x.shape
    outer = (x[:, :, None] * x[:, None, :]).reshape(n, p * p)
    tilt = (2 * tau - 1) * (counts @ x)
    size = float(np.median(np.abs(y))) or 1.0
    smooth = size * (1e-3 if warm else 0.3)
    if not warm:
        coef = _solve(_gram(counts, outer, p), counts @ (x * y[:, None]), free)
    a = np.empty_like(counts)
    for _ in range(iterations):
        np.matmul(coef, x.T, out=a)
        np.abs(np.subtract(y, a, out=a), out=a)
        np.divide(counts, np.add(a, smooth, out=a), out=a)
        gram = _gram(a, outer, p)
        coef = _solve(gram, np.multiply(a, y, out=a) @ x + tilt, free)
        smooth = max(smooth * 0.7, size * 1e-5)
    return coef


def _gram(weights: Array, outer: Array, p: int) -> Array:
    result: Array = (weights @ outer).reshape(-1, p, p)
    return result


def _solve(gram: Array, right: Array, free: tuple[int, ...]) -> Array:
    """Solve each small system with coefficients held at zero where they would turn negative.

    Changes the diagonals of ``gram``, by next to nothing, so that every system has a solution.
    """
    draws, p = right.shape
    diagonal = gram.reshape(draws, p * p)[:, :: p + 1]
    diagonal += 1e-10 * diagonal.sum(axis=1, keepdims=True) + 1e-300
    coef: Array = np.linalg.solve(gram, right[:, :, None]).astype(float, copy=False)[:, :, 0]
    if coef.min() >= -1e-12:
        return coef  # as nearly always
    signed = np.ones(p, dtype=bool)
    signed[list(free)] = False
    if not (coef[:, signed] < -1e-12).any():
        return coef
    active = np.ones((draws, p), dtype=bool)
    for _ in range(p + 1):
        both = active[:, :, None] & active[:, None, :]
        system = np.where(both, gram, np.eye(p)[None, :, :])
        coef = np.linalg.solve(system, np.where(active, right, 0.0)[:, :, None])[:, :, 0]
        negative = (coef < -1e-12) & signed[None, :] & active
        if not negative.any():
            break
        worst = np.argmin(np.where(negative, coef, np.inf), axis=1)
        rows = negative.any(axis=1)
        active[rows, worst[rows]] = False
    return np.where(active, coef, 0.0)


def pinball(residual: Array, tau: float) -> float:
    """Mean pinball loss of residuals."""
    return float(np.mean(np.maximum(tau * residual, (tau - 1) * residual)))


def auc(positive: Array, negative: Array) -> float | None:
    """Chance that a value of the first sample exceeds one of the second (ties count half).

    The Mann-Whitney statistic over the number of pairs; None if a sample is empty. A sample of
    more than ``MOST_ROWS`` values is thinned (:func:`thin`).
    """
    positive, negative = positive[thin(len(positive))], negative[thin(len(negative))]
    a, b = len(positive), len(negative)
    if a == 0 or b == 0:
        return None
    ranks = rank(np.concatenate([positive, negative]))
    return float((ranks[:a].sum() - a * (a + 1) / 2) / (a * b))


def rank(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of their ranks. No value may be NaN."""
    if (counted := _counted(values)) is not None:
        return counted
    order = np.argsort(values)
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(values)])
    size = np.diff(np.append(first, len(values)))
    out = np.empty(len(values))
    out[order] = np.repeat(first + (size + 1) / 2, size)
    return out


def _counted(values: Array) -> Array | None:
    """Ranks of small whole numbers, by counting; None of any others."""
    if not len(values) or not (values.min() >= 0 and values.max() < len(values)):
        return None
    whole = values.astype(np.int64)
    if (whole != values).any():
        return None
    size = np.bincount(whole)
    last = np.cumsum(size)
    return (last - size + (size + 1) / 2)[whole]


def rank_correlation(x: Array, y: Array) -> float | None:
    """Spearman's rank correlation; None with fewer than five pairs or without spread.

    Of more than ``MOST_ROWS`` pairs a sample is taken (:func:`thin`).
    """
    some = thin(len(x))
    return ranks_correlation(rank(x[some]), rank(y[some]))


def ranks_correlation(a: Array, b: Array) -> float | None:
    """:func:`rank_correlation` of what has these ranks."""
    if len(a) < 5 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def two_levels(values: Array, weights: Array | None = None) -> tuple[float, float, float] | None:
    """Split values into a low and a high level (Otsu 1979): threshold, low mean, high mean.

    None if there are fewer than two distinct values.
    """
    order = np.argsort(values, kind="stable")
    v = values[order]
    w = np.ones(len(v)) if weights is None else weights[order]
    if len(v) < 2 or v[0] == v[-1]:
        return None
    mass = np.cumsum(w)
    moment = np.cumsum(w * v)
    total, whole = mass[-1], moment[-1]
    low = moment[:-1] / mass[:-1]
    high = (whole - moment[:-1]) / np.maximum(total - mass[:-1], 1e-300)
    between = mass[:-1] * (total - mass[:-1]) * (high - low) ** 2
    between[v[1:] == v[:-1]] = -1
    at = int(np.argmax(between))
    return float((v[at] + v[at + 1]) / 2), float(low[at]), float(high[at])


def mean_interval(
    values: Array, clusters: NDArray[np.int64] | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Interval of a mean, allowing for rows of one cluster being alike.

    The cluster-robust (sandwich) standard error of a ratio mean with the normal quantile.
    """
    n = len(values)
    centre = float(values.mean()) if n else 0.0
    if n < 2:
        return centre, centre
    if clusters is None:
        error = float(values.std(ddof=1)) / n**0.5
    else:
        size = int(clusters.max()) + 1
        sums = np.bincount(clusters, weights=values - centre, minlength=size)
        used = int((np.bincount(clusters, minlength=size) > 0).sum())
        error = float(np.sqrt(np.sum(sums**2) * used / max(used - 1, 1))) / n
    z = NormalDist().inv_cdf(0.5 + level / 2)
    return centre - z * error, centre + z * error
