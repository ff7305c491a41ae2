"""Which request of its session each one goes on from, and whether sessions are conversations.

Chat applications send short calls of their own (titles, suggestions, routing) under the session of
the chat. A turn goes on from the turn before it, not from such a call: so rows that are less than
half as long as those before and behind them are passed over. What is less than half as long and
stays so is a history that was compacted; only what comes back tells the two apart.

What a request goes on from follows from the few rows before it alone, whatever comes later: rows
of a session may be looked at in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: A side call is shorter than the turns around it by more than this factor; a turn that passes it
#: over is shorter than the one before it by no more.
FACTOR: Final = 2
#: So many side calls at most come between two turns.
SIDE_CALLS: Final = 8
#: Fewer pairs of turns do not tell whether inputs grow, fewer pairs around side calls neither.
FEW_PAIRS, FEW_PASSING = 8, 12
#: Of a log of conversations this part of the requests is longer than what they go on from ...
GROWN: Final = 0.6
#: ... or this part of those that pass side calls over and are about as long as it.
GROWN_PASSING: Final = 0.8


def steps_back(nth: Index, inputs: Array) -> Index:
    """How many rows before each one is that which it goes on from; 0 for first rows.

    Parameters
    ----------
    nth
        Rows of one session after the other, in order of time: the place of each in its session,
        from 1.
    inputs
        Input tokens of these rows, NaN where unknown.
    """
    back = np.minimum(nth - 1, 1)
    leaps = np.flatnonzero(inputs[1:] > FACTOR * inputs[:-1]) + 1
    leaps = leaps[nth[leaps] > 2]
    if len(leaps):
        back[leaps] = _passing(nth[leaps], leaps, inputs[leaps], inputs)
    return back


def steps_open(nth: Index, ends: Index, inputs: Array) -> Index:
    """How many rows back from the end of each session a later row may reach, at least 1.

    ``ends`` are the last rows of sessions. Where no row is passed over it is the last one alone.
    """
    return _passing(nth[ends] + 1, ends + 1, np.full(len(ends), np.inf), inputs)


def _passing(nth: Index, at: Index, own: Array, inputs: Array) -> Index:
    """Steps back from places ``at`` to the farthest row that all between are much shorter than.

    ``own`` are the inputs at these places: those between must be much shorter than them as well.
    """
    found = np.ones(len(at), dtype=np.int64)
    going = np.arange(len(at))
    longest = inputs[at - 1]  # of those between
    for back in range(2, SIDE_CALLS + 2):
        still = (own[going] > FACTOR * longest) & (nth[going] > back)
        going, longest = going[still], longest[still]
        if not len(going):
            break
        before = inputs[at[going] - back]
        found[going[(before > FACTOR * longest) & (FACTOR * own[going] >= before)]] = back
        longest = np.maximum(longest, before)
    return found


def growth() -> dict[str, pl.Expr]:
    """The sums by which :func:`grows` judges.

    Of columns ``input_tokens``, ``cached_tokens``, ``previous_input`` and ``passed_over``.
    """
    total, previous = pl.col("input_tokens"), pl.col("previous_input")
    grown = total > previous
    passing = pl.col("passed_over") > 0
    alike = passing & (total <= FACTOR * previous)
    return {
        "pairs": grown.count(),
        "grown": grown.sum(),
        "cached": (grown.is_not_null() & (pl.col("cached_tokens") > 64)).sum(),
        "falls": (FACTOR * total < previous).sum(),
        "passing": passing.sum(),
        "alike": alike.sum(),
        "grown_alike": (alike & grown).sum(),
    }


def grows(sums: Mapping[str, int]) -> bool:
    """Whether later inputs are longer than earlier ones of their session, as histories are.

    Session ids that are one for all, or drawn at random, name no conversations. Cached tokens in
    the log vouch for them all the same. Side calls are no turns: where most inputs that fall come
    back behind them, those are asked that pass calls over. Lengths drawn at random are as often
    shorter as longer than what they seem to go on from.
    """
    pairs = sums.get("pairs", 0)
    if pairs < FEW_PAIRS or sums["grown"] / pairs >= GROWN or sums["cached"] / pairs >= 0.1:
        return True
    return (
        sums["alike"] >= FEW_PASSING
        and 2 * sums["passing"] >= sums["falls"]
        and sums["grown_alike"] >= GROWN_PASSING * sums["alike"]
    )
