"""Two tallies at equal mix: one figure, its standard error, and how much of the traffic counted.

Cells are as narrow as leaves 90 % of the baseline's requests with a counterpart, as ``compare``
has it (:mod:`ttftdoctor.measure.weigh`): the choice looks at sizes, never at times.

Standard errors. With at least three runs on each side, runs are the clusters: what differs from
one start of a server to the next is in no log of one start (Georges, Buytaert and Eeckhout 2007,
OOPSLA; Kalibera and Jones 2013, ISMM). Each run is left out in turn (jackknife; Miller 1974,
Biometrika 61:1) and the two variances are joined with the degrees of freedom of Welch (1947,
Biometrika 34:28). With fewer, whole sessions and whole stretches of time are resampled and the
wider spread counts; where one side has at least three runs, what these show of the spread from run
to run stands for both sides, if it is wider still.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from ttftdoctor.gate.packed import MOST_CLUSTERS, coarse
from ttftdoctor.language import mark
from ttftdoctor.measure.mix import Cell, Sums, Tally, alike
from ttftdoctor.measure.rows import Array
from ttftdoctor.measure.weigh import (
    DRAWS,
    LEAST_CLUSTERS,
    Beside,
    Key,
    Pair,
    covered,
    set_beside,
)

#: From so many runs on a side on, runs are the clusters.
ENOUGH_RUNS = 3
#: Cells are as narrow as leaves this share of the baseline's requests with a counterpart.
ENOUGH = 0.9
#: The same for decode: a step that is shared with twice as many is another one, so that its cells
#: stay narrow, and answer for the requests that met like company.
ENOUGH_COMPANY = 0.6
#: A run left out keeps this part of its weight, so that cells of one run alone are not empty.
LEFT = 1e-6
#: No logarithm of a ratio is known better than this: bins and rounding.
LEAST_ERROR = 0.002

#: Neighbouring classes that count as one, narrowest first; 0 holds nothing equal.
_SENT = (
    {"turn": 1, "length": 1, "fresh": 1}, {"turn": 1, "length": 2, "fresh": 2},
    {"turn": 2, "length": 2, "fresh": 2}, {"turn": 2, "length": 2, "fresh": 4},
    {"turn": 4, "length": 4, "fresh": 4}, {"turn": 4, "length": 4, "fresh": 0},
)  # fmt: skip
_STEPS = {
    "sent": _SENT,
    "met": tuple(
        steps | {"demand": demand}
        for demand in (1, 2, 4)
        for steps in (_SENT[1], _SENT[3], _SENT[4])
    ),
    "decode": (
        {"running": 1, "beside": 1, "length": 2}, {"running": 1, "beside": 2, "length": 2},
        {"running": 1, "beside": 2, "length": 4}, {"running": 2, "beside": 2, "length": 4},
        {"running": 2, "beside": 4, "length": 4}, {"running": 2, "beside": 4, "length": 0},
    ),
}  # fmt: skip
_WORDS = {
    "model": mark("model"), "route": mark("route"), "turn": mark("turn"),
    "length": mark("input length"), "fresh": mark("new tokens"), "demand": mark("demand"),
    "running": mark("concurrency"), "beside": mark("prefill beside it"),
}  # fmt: skip

#: From both sides along one way of clustering to a figure of each draw, shape (draws, 2).
Figure = Callable[[Pair], Array]


@dataclass(frozen=True)
class Even:
    """A figure of both sides.

    ``error`` is the standard error of the difference, or of the logarithm of current over
    baseline, with ``freedom`` degrees; None where there are too few clusters.
    """

    baseline: float
    current: float
    error: float | None
    freedom: float
    by_runs: bool


def aligned(before: Tally, after: Tally) -> tuple[Tally, Tally]:
    """Both with the same classes, clusters and bins; what they share is drawn together."""
    before, after = alike(before, after)
    clusters = min(before.by_session.clusters, after.by_session.clusters)
    width = max(before.by_session.width, after.by_session.width)
    a, b = (coarse(t, clusters, MOST_CLUSTERS, width) for t in (before, after))
    return a, b


def cut(before: Tally, after: Tally, what: str) -> tuple[Beside, tuple[str, ...]] | None:
    """Both sides in the narrowest cells in which enough of the baseline has a counterpart.

    Parameters
    ----------
    what
        ``sent``, ``met`` (demand as well) or ``decode``: what is held equal.

    Returns
    -------
    The cells, and in English words what is equal in them; None where nothing is common.
    """
    enough = ENOUGH_COMPANY if what == "decode" else ENOUGH
    best: tuple[float, Key, Key, tuple[str, ...]] | None = None
    for steps, names in _ways(before, after, what):
        key, slope = _key(steps, names, what), _slope(names, what)
        got = covered(before, after, key)[0]
        words = tuple(_WORDS[n] for n in (*names, *(k for k, v in steps.items() if v)))
        # Wider cells hold less equal: they must bring much to be taken.
        if best is None or round(got, 1) > round(best[0], 1) or got >= enough:
            best = got, key, slope, words
        if got >= enough:
            break
    if best is None:
        return None
    _, key, slope, words = best
    beside = set_beside(before, after, key, slope)
    return None if beside is None else (beside, words)


def whole(before: Tally, after: Tally) -> Beside | None:
    """Both sides with all requests in one cell: what a plain comparison looks at."""
    return set_beside(before, after, _everything, None)


def figure_of(beside: Beside, figure: Figure, *, relative: bool) -> Even:
    """A figure of both sides with its standard error; the module says how."""
    level: tuple[float, float] | None = None
    within: tuple[float, float] | None = None
    runs = _runs(beside.b), _runs(beside.a)
    if min(runs) < ENOUGH_RUNS:
        for pair in beside.axes(DRAWS):
            drawn = figure(pair)
            level = level or (float(drawn[0, 0]), float(drawn[0, 1]))
            filled = min(pair.filled)
            if filled < LEAST_CLUSTERS:
                continue
            error = float(_contrast(drawn[1:], relative).std(ddof=1))
            if within is None or error > within[0]:
                within = error, filled - 1.0
    between, by_runs = None, False
    if max(runs) >= ENOUGH_RUNS:
        level, between = _between(beside, figure, runs, relative)
    assert level is not None
    found = within
    if between is not None and (within is None or between[0] > within[0]):
        found, by_runs = between, True
    least = LEAST_ERROR if relative else LEAST_ERROR * abs(level[0])
    error_, freedom = (None, 1.0) if found is None else (max(found[0], least), found[1])
    return Even(*level, error_, freedom, by_runs)


def level_of(tally: Tally, figure: Figure, *, relative: bool) -> Even | None:
    """A figure of one side by itself, at its own mix; both fields of it are equal."""
    beside = whole(tally, tally)
    if beside is None:
        return None
    runs = _runs(tally)
    if runs >= ENOUGH_RUNS and tally.by_run is not None:
        ones = np.concatenate([np.ones((1, runs)), _left_out(runs)])
        drawn = figure(beside.drawn(tally_runs(beside.b), tally_runs(beside.a), ones, ones))
        values = _one(drawn[:, 0], relative)
        error = float(np.sqrt((runs - 1) / runs * ((values[1:] - values[1:].mean()) ** 2).sum()))
        return Even(float(drawn[0, 0]), float(drawn[0, 0]), error, runs - 1.0, by_runs=True)
    best: tuple[float, float] | None = None
    level = 0.0
    for pair in beside.axes(DRAWS):
        drawn = figure(pair)
        level = float(drawn[0, 0])
        filled = min(pair.filled)
        if filled >= LEAST_CLUSTERS:
            error = float(_one(drawn[1:, 0], relative).std(ddof=1))
            if best is None or error > best[0]:
                best = error, filled - 1.0
    error_, freedom = (None, 1.0) if best is None else best
    return Even(level, level, error_, freedom, by_runs=False)


def tally_runs(tally: Tally) -> Sums:
    """The sums by run; all in one where there is one run."""
    if tally.by_run is not None:
        return tally.by_run
    return coarse(tally, 1, 0, tally.by_session.width).by_session


def freedom_of(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of two variances, each given with its own (Welch 1947)."""
    (v, f), (w, g) = first, second
    whole_ = v + w
    return max(whole_**2 / max(v**2 / f + w**2 / g, 1e-300), 1.0) if whole_ > 0 else f + g


# --- parts of it ----------------------------------------------------------------------------------


def _everything(_: Cell) -> Hashable:
    return ""


def _runs(tally: Tally) -> int:
    return 1 if tally.by_run is None else tally.by_run.clusters


def _one(values: Array, relative: bool) -> Array:
    return np.log(np.maximum(values, 1e-12)) if relative else values


def _contrast(drawn: Array, relative: bool) -> Array:
    found: Array = _one(drawn[:, 1], relative) - _one(drawn[:, 0], relative)
    return found


def _left_out(runs: int) -> Array:
    return np.ones((runs, runs)) - (1 - LEFT) * np.eye(runs)


def _between(
    beside: Beside, figure: Figure, runs: tuple[int, int], relative: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The figure of both sides, and the spread from run to run with its degrees of freedom."""
    one, other = (n if n >= ENOUGH_RUNS else 0 for n in runs)
    draws = 1 + one + other
    once_b, once_a = np.ones((draws, runs[0])), np.ones((draws, runs[1]))
    if one:
        once_b[1 : 1 + one] = _left_out(one)
    if other:
        once_a[1 + one :] = _left_out(other)
    drawn = figure(beside.drawn(tally_runs(beside.b), tally_runs(beside.a), once_b, once_a))
    sides = []
    for at, n, first in ((0, one, 1), (1, other, 1 + one)):
        if n:
            values = _one(drawn[first : first + n, at], relative)
            sides.append((float((n - 1) / n * ((values - values.mean()) ** 2).sum()), n - 1.0))
    level = float(drawn[0, 0]), float(drawn[0, 1])
    if len(sides) == 2:
        return level, (float(np.sqrt(sides[0][0] + sides[1][0])), freedom_of(*sides))
    # One side has runs: the other is as uncertain as its number of runs leaves it.
    (variance, freedom), many, few = sides[0], max(one, other), min(runs)
    return level, (float(np.sqrt(variance * (1 + many / few))), freedom)


def _ways(
    before: Tally, after: Tally, what: str
) -> Iterator[tuple[dict[str, int], tuple[str, ...]]]:
    """What to hold equal, narrowest first, from what both sides know."""
    known = {
        name
        for name in ("turn", "length", "fresh", "demand", "running", "beside")
        if all(_known(t, name) for t in (before, after))
    }
    if what == "met" and "demand" not in known:
        return
    names = tuple(
        name
        for name in ("model", "route")
        if ({getattr(c, name) for c in before.cells} & {getattr(c, name) for c in after.cells})
        - {""}
    )
    for held in (names, tuple(n for n in names if n != "route")) if "route" in names else (names,):
        for steps in _STEPS[what]:
            yield {k: v for k, v in steps.items() if k in known}, held


def _known(tally: Tally, name: str) -> bool:
    sizes = tally.sizes
    there = np.array([getattr(cell, name) >= 0 for cell in tally.cells], dtype=bool)
    return bool(len(sizes) and sizes[there].sum() >= 0.5 * sizes.sum())


def _key(steps: dict[str, int], names: tuple[str, ...], what: str) -> Key:
    must = ("demand",) if what == "met" else ()

    def key(cell: Cell) -> Hashable:
        if any(getattr(cell, name) < 0 for name in must):
            return None
        values = ((getattr(cell, name), step) for name, step in steps.items() if step)
        # A class that is not known stays apart from the lowest one.
        classes = tuple(-1 if v < 0 else -(-v // step) for v, step in values)
        return (*(getattr(cell, name) for name in names), *classes)

    return key


def _slope(names: tuple[str, ...], what: str) -> Key:
    def slope(cell: Cell) -> Hashable:
        by_turn = () if what == "decode" else (min(cell.turn, 1),)
        return (*(getattr(cell, name) for name in names), *by_turn)

    return slope
