"""Waits that hold tries which were refused or failed, where the log does not count attempts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ttftdoctor.measure.rows import Array, Mask, Rows
from ttftdoctor.stats import or_zero, thin
from ttftdoctor.table import REJECT

#: A refusal so close to an arrival may be that of its first try, seconds.
BESIDE_S = 1.0
#: So many of the slow requests must be near a refusal, and so many more than of the others.
FOUND, BEYOND = 0.6, 0.3
#: So many requests that are also in the log as a refused try prove that waits hold tries.
PROOF = 2


@dataclass(frozen=True)
class Near:
    """Slow requests beside refusals; ``seconds`` per row are what is left unexplained of them.

    ``found`` is their part of the slow ones. ``chance`` is what refusals at that rate would bring
    about in waits of that length, or, with ``arrival``, the part of the *other* requests that
    arrived beside a refusal as well.
    """

    n: int
    seconds: Array
    found: float
    chance: float
    arrival: bool


def near_refusals(rows: Rows, left: Array, predicted: Array, refused: Array) -> Near | None:
    """Slow requests during which, or at whose arrival, others were refused; None without a sign.

    Where a limit refuses nearly always, any long wait holds refusals, so that waits say nothing;
    but a request that finds the limit open is fast and has none beside it.

    Parameters
    ----------
    refused
        Sorted starts of refused or failed requests, seconds on the clock of ``rows.start``.
    """
    known = np.isfinite(left) & np.isfinite(rows.start)
    if len(refused) < 3 or known.sum() < 10:
        return None
    slow = known & (left > np.maximum(0.5, 1.5 * or_zero(predicted)))
    if slow.sum() < 3:
        return None
    span = max(float(np.ptp(rows.start[known])), 1e-9)
    at = np.flatnonzero(slow)
    waits = or_zero(rows.ttft[at])
    by_wait = np.mean(1 - np.exp(-len(refused) / span * (waits + BESIDE_S)))
    signs = [(_within(rows.start[at], refused, waits), float(by_wait), False)]
    fast = np.flatnonzero(known & ~slow)
    fast = fast[thin(len(fast))]
    if len(fast) >= 10:
        by_chance = float(_within(rows.start[fast], refused, BESIDE_S).mean())
        signs.append((_within(rows.start[at], refused, BESIDE_S), by_chance, True))
    near, chance, arrival = max(signs, key=lambda sign: float(sign[0].mean()) - sign[1])
    found = float(near.mean())
    if found < FOUND or found - chance < BEYOND:
        return None
    seconds = np.zeros(rows.n)
    seconds[at[near]] = np.clip(left[at[near]], 0, None)
    return Near(int(near.sum()), seconds, found, chance, arrival)


def _within(start: Array, refused: Array, after: Array | float) -> Mask:
    """Whether there was a refusal from shortly before each start until so long after it."""
    begin = np.searchsorted(refused, start - BESIDE_S)
    near: Mask = np.searchsorted(refused, start + after, side="right") > begin
    return near


def with_tries(rows: Rows, requests: pl.DataFrame, failed: pl.DataFrame) -> Rows:
    """Count two attempts at least where the log has one that was refused as a row of its own.

    It is one if it has the id of a single request and began while that waited: a TTFT whose clock
    started later does not hold it. Where attempts are logged, they are believed.
    """
    if rows.place is None or np.isfinite(rows.attempts).any() or failed.height == 0:
        return rows
    tries = failed.filter(
        pl.col(REJECT).is_in(["rate_limited", "failed_request"]), pl.col("request_id").is_not_null()
    ).select("request_id", pl.col("start").alias("tried"))
    if tries.height == 0:
        return rows
    ended = pl.col("start") + pl.col("ttft_us")
    places = (
        requests.lazy()
        .select("request_id", "start", "ttft_us")
        .with_row_index("place")
        .filter(pl.col("request_id").is_in(tries["request_id"].unique().implode()))
        .filter(pl.col("request_id").is_unique())  # an id of several names none of them
        .join(tries.lazy(), on="request_id")
        .filter(pl.col("tried").is_between(pl.col("start"), ended))
        .select(pl.col("place").unique())
        .collect()["place"]
    )
    if len(places) < PROOF:
        return rows
    tried = np.isin(rows.place, places.to_numpy())
    return replace(rows, attempts=np.where(tried, 2.0, rows.attempts))
