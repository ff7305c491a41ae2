"""Change points and slopes of short series: one value a baseline, several metrics side by side.

Where a level changes is proposed by PELT and proved by a permutation test; only what holds in the
test, family-wise over all metrics, is called a change.

1. Noise of neighbours is alike (autocorrelation), which a test of independent values would take
   for a change. Its first-order part is estimated about levels that may change, and taken out
   (an AR(1) process whose mean changes: Chakar, Lebarbier, Levy-Leduc and Robin 2017, Bernoulli
   23:1408).
2. Candidates: PELT (Killick, Fearnhead and Eckley 2012, J. Am. Stat. Assoc. 107:1590) for changes
   of the mean, by the package ``ruptures`` (Truong, Oudre and Vayatis 2020, Signal Processing
   167:107299), with the penalty of the modified Schwarz criterion, 3 log n times the variance
   (Zhang and Siegmund 2007, Biometrics 63:22). The variance is a robust one, of differences; single
   values that stand out are drawn in first.
3. Test: the Mann-Whitney statistic between both sides, the largest over all places of a change
   between the neighbouring candidates (Pettitt 1979, J. R. Stat. Soc. C 28:126, here standardised
   at each place), against orders of the same values at random. As the largest is taken there as
   well, that the place was chosen by looking costs nothing.
4. Family: step-down minP (Westfall and Young 1993, "Resampling-based multiple testing"; Ge, Dudoit
   and Speed 2003, Test 12:1). It is Holm's procedure with the dependence between metrics, which
   are the same requests, taken from the orders: each is applied to all metrics alike. A metric
   without a candidate stands in the family with all its places, and a change of it is where the
   statistic is largest.
5. A level that slides makes steps, too, or looks like autocorrelation: where a straight line says
   as much as all steps (Schwarz criterion), it is a drift and no change point. Where no step is
   proved, the slope must be: Theil-Sen, Bonferroni over metrics (:func:`slides`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata, theilslopes

from ttftdoctor.measure.rows import Array, Index
from ttftdoctor.stats import SEED

#: Fewer values than this show no change point.
LEAST_POINTS = 8
#: Values on each side of a change.
LEAST_SIDE = 3
#: Orders at random in the test.
ORDERS = 1999
#: Chance of a false change point over all metrics.
ALPHA = 0.05
#: Penalty of a change, times log n and the variance.
PENALTY = 3.0
#: The same where it is asked whether changes or autocorrelation explain more.
EVIDENCE = 5.0
#: More autocorrelation than this is no noise about a level.
MOST_ALIKE = 0.9
#: Median of the size of a normal value of deviation one.
_MEDIAN = 0.6744897501960817


@dataclass(frozen=True)
class Found:
    """A change of level before the value at ``at``; ``p_adjusted`` is over the whole family."""

    at: int
    p_value: float
    p_adjusted: float


@dataclass(frozen=True)
class Line:
    """The Theil-Sen slope in units a week, with its interval (95 % by default)."""

    per_week: float
    low: float
    high: float


def change_points(series: Sequence[Array], *, alpha: float = ALPHA) -> list[list[Found]]:
    """Where the level of each series changes.

    Parameters
    ----------
    series
        One array of shape (n,) for each metric, in order of time, over the same n baselines; NaN
        where a metric is not known.
    alpha
        Chance that anything at all is found in series that have no change.

    Returns
    -------
    list of list of Found
        For each series its change points in order; ``at`` counts all n baselines.
    """
    known = [np.flatnonzero(np.isfinite(values)) for values in series]
    able = [
        number
        for number, (values, at) in enumerate(zip(series, known, strict=True))
        if len(at) >= LEAST_POINTS and np.ptp(values[at]) > 0
    ]
    out: list[list[Found]] = [[] for _ in series]
    if not able:
        return out
    own = [alike(series[number][known[number]]) for number in able]
    # What makes neighbours alike is the place they ran at, the same for all metrics, and each
    # estimate by itself is rough.
    common = float(np.median(own))
    tests: list[_Test] = []
    for number, r in zip(able, own, strict=True):
        at = known[number]
        tests += _tests(number, series[number][at], at, max(r, common))
    keys = np.random.default_rng(SEED).random((ORDERS, len(series[0])))
    orders: dict[bytes, Index] = {}  # sorting takes longest, and most tests are of all baselines
    for test in tests:
        key = test.members.tobytes()
        if key not in orders:
            orders[key] = np.argsort(keys[:, test.members], axis=1)
    scores = [_scores(test, orders[test.members.tobytes()]) for test in tests]
    raw, adjusted = min_p(np.stack(scores, axis=1))
    for place, test in enumerate(tests):
        if adjusted[place] <= alpha:
            found = Found(test.at, float(raw[place]), float(adjusted[place]))
            out[test.series].append(found)
    return out


def min_p(scores: Array) -> tuple[Array, Array]:
    """Step-down minP of Westfall and Young.

    Parameters
    ----------
    scores
        Shape (1 + orders, tests): the first line as observed; larger is stronger.

    Returns
    -------
    raw, adjusted
        P-values of each test by itself and in the family, shape (tests,).
    """
    count = len(scores)
    # Of each score the share of scores at least as large, itself among them.
    single = rankdata(-scores, method="max", axis=0) / count
    raw: Array = single[0].copy()
    order = np.argsort(raw, kind="stable")
    # The smallest of a test and all that are weaker.
    least = np.minimum.accumulate(single[:, order[::-1]], axis=1)[:, ::-1]
    stepped = (least <= raw[order] + 1e-12).mean(axis=0)
    adjusted = np.empty(len(raw))
    adjusted[order] = np.maximum.accumulate(stepped)
    return raw, adjusted


def alike(values: Array) -> float:
    """The first-order autocorrelation about a level that may change, from 0 to ``MOST_ALIKE``.

    It is that of what is left of the best fit with one change, or with more of them where these
    explain more than autocorrelation does (the penalised likelihood of the decorrelated rest). A
    fit with s levels takes about (s + 3 s r) / n of it away (Kendall 1954, Biometrika 41:403, for
    each level), which is put back.
    """
    from ruptures import KernelCPD

    n = len(values)
    values = tamed(values)
    if n < 2 * LEAST_POINTS or np.ptp(values) <= 0:
        return 0.0
    scaled = (values - values.mean()) / values.std()
    search = KernelCPD(kernel="linear", min_size=LEAST_SIDE).fit(scaled)
    best, found = np.inf, 0.0
    for changes in range(1, 2 + n // 20):
        ends = search.predict(n_bkps=changes)
        rest = np.concatenate([scaled[a:b] - scaled[a:b].mean() for a, b in pairwise([0, *ends])])
        squares = float(rest @ rest)
        if squares <= 1e-12 * n:
            return 0.0
        levels = changes + 1
        r = (float(rest[1:] @ rest[:-1]) / squares * n + levels) / max(n - 3 * levels, 1)
        r = float(np.clip(r, 0.0, MOST_ALIKE))
        left = float((decorrelated(rest, r) ** 2).sum())
        score = n * np.log(left / n) + EVIDENCE * changes * np.log(n)
        if score < best:
            best, found = float(score), r
    return found


def decorrelated(values: Array, r: float) -> Array:
    """Each value less ``r`` times the one before; the first is scaled to the same variance."""
    level = float(np.median(values))
    about = values - level
    out: Array = np.concatenate([about[:1] * np.sqrt(1 - r * r), about[1:] - r * about[:-1]])
    return out


def candidates(values: Array) -> list[int]:
    """Places of changes by PELT: each is the first value of a new level."""
    from ruptures import KernelCPD

    spread = _spread(values)
    if spread <= 0 or len(values) < 2 * LEAST_SIDE:
        return []
    scaled = (tamed(values) - values.mean()) / spread
    # With the linear kernel its cost is the sum of squares about the mean; it is the fast one.
    search = KernelCPD(kernel="linear", min_size=LEAST_SIDE).fit(scaled)
    return [int(at) for at in search.predict(pen=PENALTY * np.log(len(values)))[:-1]]


def tamed(values: Array) -> Array:
    """The values with single ones that stand out drawn in: to three deviations from the median of
    the five around each (Hampel's filter; Pearson 2002, IEEE Trans. Control Syst. Technol. 10:55).
    """
    from scipy.ndimage import median_filter

    around = median_filter(values, size=5, mode="nearest")
    reach = 3 * _spread(values)
    out: Array = np.clip(values, around - reach, around + reach)
    return out


def _spread(values: Array) -> float:
    """The deviation about a level that may change, from differences of neighbours."""
    steps = np.abs(np.diff(values))
    if not len(steps):
        return 0.0
    middle = float(np.median(steps)) / (_MEDIAN * float(np.sqrt(2)))
    return middle if middle > 0 else float(np.sqrt((steps**2).mean() / 2))


def is_drift(values: Array, at: Sequence[int]) -> bool:
    """Whether a straight line says at least as much of a series as levels that change there."""
    n = len(values)
    edges = [0, *at, n]
    steps = sum(float(((values[a:b] - values[a:b].mean()) ** 2).sum()) for a, b in pairwise(edges))
    x = np.arange(n) - (n - 1) / 2
    slope = float(x @ values) / float(x @ x)
    line = float(((values - values.mean() - slope * x) ** 2).sum())
    tiny = 1e-12 * float(((values - values.mean()) ** 2).sum()) + 1e-300

    def criterion(squares: float, parameters: int) -> float:
        return n * float(np.log(max(squares, tiny) / n)) + parameters * float(np.log(n))

    return criterion(line, 2) <= criterion(steps, 2 * len(at) + 1)


def slides(values: Array, *, metrics: int, alpha: float = ALPHA) -> bool:
    """Whether a level that has no steps moves all along.

    A line says as much as steps at the candidates would, and its slope is not zero at ``alpha``
    over so many metrics (Bonferroni).
    """
    line = slope_of(np.arange(len(values), dtype=float), values, level=1 - alpha / max(metrics, 1))
    if line is None or line.low <= 0 <= line.high:
        return False
    return is_drift(values, candidates(values))


def slope_of(weeks: Array, values: Array, *, level: float = 0.95) -> Line | None:
    """How a level moves a week; None for fewer than ``LEAST_POINTS`` values or without a span.

    Theil (1950) and Sen (1968): the median of the slopes between all pairs, which a run that went
    wrong does not tilt. The interval is Kendall's, made wider as autocorrelation leaves fewer
    independent values: by the root of (1 + r) / (1 - r).
    """
    if len(values) < LEAST_POINTS or np.ptp(weeks) <= 0:
        return None
    found = theilslopes(values, weeks, alpha=level)
    slope = float(found.slope)
    r = alike(values - slope * weeks)
    wider = float(np.sqrt((1 + r) / (1 - r)))
    return Line(
        slope,
        slope - wider * (slope - float(found.low_slope)),
        slope + wider * (float(found.high_slope) - slope),
    )


# --- the test -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Test:
    """Values of a stretch, which baselines they are of, and the place of the change in it."""

    series: int
    values: Array
    members: Index
    at: int


def _tests(number: int, values: Array, known: Index, r: float) -> list[_Test]:
    values = decorrelated(values, r)
    places = candidates(values)
    if not places:
        strongest = int(np.argmax(_statistic(rankdata(values)[None])[0]))
        return [_Test(number, values, known, int(known[strongest + LEAST_SIDE]))]
    edges = [0, *places, len(values)]
    return [
        _Test(number, values[a:c], known[a:c], int(known[b]))
        for a, b, c in zip(edges[:-2], edges[1:-1], edges[2:], strict=True)
    ]


def _scores(test: _Test, order: Index) -> Array:
    """The largest statistic as observed and of every order, shape (1 + orders,)."""
    ranks = rankdata(test.values)
    largest: Array = _statistic(np.concatenate([ranks[None], ranks[order]])).max(axis=1)
    # Sums of the same ranks in another order differ in the last digits.
    return np.round(largest, 9)


def _statistic(ranks: Array) -> Array:
    """Mann-Whitney between both sides of each place, in deviations; (lines, n) to (lines, places).

    The first place has ``LEAST_SIDE`` values before it.
    """
    n = ranks.shape[1]
    before = np.cumsum(ranks, axis=1)[:, LEAST_SIDE - 1 : n - LEAST_SIDE]
    k = np.arange(LEAST_SIDE, n - LEAST_SIDE + 1, dtype=float)
    found: Array = np.abs(before - k * (n + 1) / 2) / np.sqrt(k * (n - k) * (n + 1) / 12)
    return found
