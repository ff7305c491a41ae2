"""Which stretches of a log's time are looked at, and which rows belong to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ttftdoctor.extracts.survey import SECOND_US, Survey, lasting
from ttftdoctor.stats import SEED
from ttftdoctor.table import LINE

#: So many stretches, spread evenly over the rows; but none of fewer than ``LEAST_ROWS``.
STRETCHES, LEAST_ROWS = 48, 250
#: Stretches take this part of the rows that fit; the others are in flight when one begins.
FILLED = 0.9
#: Where so many come at once that stretches of whole bins hold more than this part of the rows
#: that fit, rows are drawn instead.
CROWDED = 1.2
#: ... and where those in flight when stretches begin would be more than this part.
IN_FLIGHT = 0.3


@dataclass(frozen=True)
class Choice:
    """Which rows are looked at.

    ``stretches`` are pairs of moments, microseconds, the second one not included; they do not
    touch. Of the rows without a start this share is looked at: of all rows, where there are no
    stretches at all.
    """

    stretches: tuple[tuple[int, int], ...]
    share: float


def choose(survey: Survey, fits: int) -> Choice:
    """Choose stretches that hold about as many rows as fit; the same for the same counts.

    The log is cut into equal numbers of rows; in each of these parts one stretch is looked at,
    which begins at a place drawn at random (with a fixed seed).
    """
    total = survey.rows + survey.failed
    share = min(FILLED * fits / max(total, 1), 1.0)
    if not survey.order_known or share >= 1:
        return Choice((), share)
    bins, counts = survey.starts["bin"].to_numpy(), survey.starts["n"].to_numpy()
    ends = np.cumsum(counts)
    whole = int(ends[-1])
    flying = max(survey.in_flight, 1.0)
    many = int(min(FILLED * fits // LEAST_ROWS, IN_FLIGHT * fits // flying, STRETCHES))
    if many < 1:
        return Choice((), share)
    part, wanted = whole / many, min(share, (fits - many * flying) / total) * whole / many
    draws = np.random.default_rng(SEED).random(many)
    found: list[list[int]] = []
    held = 0
    for number in range(many):
        begin = number * part + draws[number] * (part - wanted)
        first = int(np.searchsorted(ends, begin, side="right"))
        before = int(ends[first] - counts[first])
        # As many whole bins as come nearest to the rows wanted; at least one.
        last = max(int(np.searchsorted(ends, before + wanted, side="right")), first + 1)
        low, high = int(bins[first]), int(bins[last - 1]) + 1
        held += int(ends[last - 1]) - before
        if found and low <= found[-1][1]:
            found[-1][1] = max(high, found[-1][1])
        else:
            found.append([low, high])
    if held > CROWDED * fits:
        return Choice((), share)
    unit = survey.width * SECOND_US
    return Choice(tuple((low * unit, high * unit) for low, high in found), share)


def row_lot() -> pl.Expr:
    """A number per row that looks drawn at random."""
    return pl.struct("source", LINE).hash(seed=0)


def lot(row: pl.Expr | None = None) -> pl.Expr:
    """The same per session; of a row without one that of the ``row``."""
    # What is not known has a hash as well: the same for all rows.
    named = pl.col("session_id").is_not_null()
    alone = row_lot() if row is None else row
    return pl.when(named).then(pl.col("session_id").hash(seed=0)).otherwise(alone)


def belonging(rows: pl.DataFrame, choice: Choice) -> pl.DataFrame:
    """The rows of a request table that are looked at."""
    drawn = row_lot() <= int(choice.share * (2**64 - 1))
    if not choice.stretches:
        return rows.filter(drawn)
    start = rows["start"]
    lows, highs = (pl.Series(ends, dtype=pl.Int64) for ends in zip(*choice.stretches, strict=True))
    # Of the stretches that end after it starts, a row is in the first, or ends before that.
    next_ = highs.search_sorted(start.fill_null(0), side="right")
    begins = lows.extend_constant(None, 1).gather(next_)
    inside = (pl.col("start") + lasting() >= begins).fill_null(False)
    if start.null_count():
        inside = pl.when(pl.col("start").is_null()).then(drawn).otherwise(inside)
    return rows.filter(inside)
