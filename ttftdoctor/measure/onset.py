"""A moment at which the cache stopped or began to work, for everybody at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure.rows import Array, Index, Mask

#: While the cache works, this part of the turns hits at least.
WORKS = 0.8
#: While it does not, no more of them find anything at all.
FINDS = 0.05
#: The moment foretells hits and misses as well as this, and better by so much than anything else.
TOLD, BETTER = 0.93, 0.03
#: Turns on either side: so many, and this part of all.
TURNS, PART = 8, 0.1
#: Sessions on either side: habits of a few might fall on the two sides by chance.
SESSIONS = 5


@dataclass(frozen=True)
class Onset:
    """``working`` and ``idle`` are the turns while the cache worked and while it did not.

    ``first`` is the first turn after the moment.
    """

    lost: bool
    first: int
    working: Mask
    idle: Mask


def onset_of(
    start: Array, gap: Array, hit: Mask, found: Mask, session: Index, others: tuple[Array, ...]
) -> Onset | None:
    """The moment since which no turn finds anything, or before which none did; None without one.

    A turn finds its history if the cache worked when the turn before was computed and still does:
    a loss shows in turns sent after it, a repair in those whose last turn lies behind it.

    Parameters
    ----------
    hit, found
        Turns that found most of their history, and those that found any token.
    others
        What may tell hits from misses as well (pauses, traffic, lengths): then time says nothing.
    """
    short = ~hit
    n = len(hit)
    fewest = max(TURNS, PART * n)
    if hit.sum() < fewest or short.sum() < fewest:
        return None
    begun = start - np.where(np.isfinite(gap), gap, 0.0)
    best: tuple[float, Onset] | None = None
    for lost, clock in ((True, start), (False, begun)):
        told, at = parted(clock, short, above=lost)
        if told < TOLD or (best is not None and told <= best[0]):
            continue
        later = clock >= at
        # Turns that cross the moment of a repair are on neither side: they had nothing to find.
        working = ~later if lost else later
        idle = later if lost else start < at
        if not _sides(working, idle, hit, found, session, fewest):
            continue
        after = np.flatnonzero(start >= at)
        best = told, Onset(lost, int(after[np.argmin(start[after])]), working, idle)
    if best is None:
        return None
    rivals = [parted(values, short, above=up)[0] for values in others for up in (True, False)]
    rival = max(rivals, default=0.0)
    return best[1] if best[0] >= rival + BETTER else None


def _sides(
    working: Mask, idle: Mask, hit: Mask, found: Mask, session: Index, fewest: float
) -> bool:
    """Whether the cache worked on the one side and gave nothing on the other."""
    for side in (working, idle):
        named = session[side]
        several = np.count_nonzero(np.bincount(named[named >= 0])) + (named < 0).sum()
        if side.sum() < fewest or several < SESSIONS:
            return False
    return bool(hit[working].mean() >= WORKS and found[idle].mean() <= FINDS)


def parted(values: Array, miss: Mask, *, above: bool) -> tuple[float, float]:
    """How well one cut tells misses from hits, and where: the mean of the parts of both told.

    ``above`` says that those from the cut on miss. Values that are unknown are left out.
    """
    known = np.isfinite(values)
    value, missed = values[known], miss[known]
    m = int(missed.sum())
    h = len(value) - m
    if m == 0 or h == 0:
        return 0.0, np.nan
    order = np.argsort(value, kind="stable")
    value, missed = value[order], missed[order]
    below = np.cumsum(missed)[:-1] / m
    hits_below = np.cumsum(~missed)[:-1] / h
    told = 0.5 * (1 - below + hits_below) if above else 0.5 * (below + 1 - hits_below)
    told = np.where(value[1:] > value[:-1], told, 0.0)
    if not len(told):
        return 0.0, np.nan
    at = int(np.argmax(told))
    return float(told[at]), float(value[at + 1])
