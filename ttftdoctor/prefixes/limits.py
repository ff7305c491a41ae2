"""The lifetime and the size of the caches, read off what the engine found and what it did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ttftdoctor.measure.rows import Index
from ttftdoctor.stats import Array, or_zero

if TYPE_CHECKING:
    from ttftdoctor.measure.caches import Cached

#: A limit is believed if it explains this part of what an endless cache would have found more.
EXPLAINS = 0.25
#: ... if up to it at least this part was found,
FOUND = 0.5
#: ... and if that was at least this part of the reusable tokens.
WORTH = 0.02
#: ... and if what it denies of the finds is at most this part of the misses that it explains.
DENIES = 0.1
#: On either side of a limit at least so many requests must have found and missed something.
FEWEST = 5


@dataclass(frozen=True)
class Found:
    """A limit (seconds or tokens), and the part of the misses that it explains."""

    limit: float
    explains: float


@dataclass(frozen=True)
class Inferred:
    """What the caches' limits seem to be; None where the log shows none."""

    ttl: Found | None
    capacity: Found | None


def infer(cached: Cached, actual: Array) -> Inferred:
    """Look for a lifetime and a size beyond which the engine found nothing.

    For every reference it is known how long its block had not been used, how much was used since,
    and whether the engine found it. The best limit is the one that puts fewest tokens on the wrong
    side; of two that do alike the one that explains more is kept alone, as both may say the same.

    Parameters
    ----------
    cached
        The caches as the log's replicas had them.
    actual
        Tokens that the engine found, per request; NaN where it does not say.
    """
    trie = cached.trie
    seen = np.flatnonzero((cached.last >= 0) & np.isfinite(actual)[trie.owner])
    if not len(seen):
        return Inferred(None, None)
    owner = trie.owner[seen]
    until = np.cumsum(cached.counted)
    before = np.concatenate([[0], until])[trie.offsets[:-1]]
    place = (until - cached.counted)[seen] - before[owner]
    tokens = cached.counted[seen].astype(np.float64)
    # A reference was found as far as the engine's count reaches into it.
    got = np.clip(or_zero(actual)[owner] - place, 0.0, tokens)
    missed = tokens - got
    if missed.sum() < WORTH * tokens.sum():
        return Inferred(None, None)
    ttl = threshold(cached.gap_s[seen], got, missed, owner)
    capacity = threshold((cached.ahead + cached.counted)[seen].astype(float), got, missed, owner)
    if ttl is not None and capacity is not None:
        first_ttl = ttl.explains >= capacity.explains
        # What the better one leaves must still be explained by the other.
        kept = (
            cached.gap_s[seen] <= ttl.limit if first_ttl
            else (cached.ahead + cached.counted)[seen] <= capacity.limit
        )  # fmt: skip
        other = threshold(
            ((cached.ahead + cached.counted)[seen].astype(float) if first_ttl
             else cached.gap_s[seen])[kept],
            got[kept], missed[kept], owner[kept],
        )  # fmt: skip
        worth = missed[kept].sum() >= WORTH * tokens.sum()
        if first_ttl:
            capacity = other if worth else None
        else:
            ttl = other if worth else None
    return Inferred(ttl, capacity)


def threshold(values: Array, got: Array, missed: Array, owner: Index) -> Found | None:
    """The value beyond which nothing is found, if there is one."""
    total = float(missed.sum())
    if total <= 0 or not np.isfinite(values).all():
        return None
    order = np.argsort(values, kind="stable")
    # Wrong are the misses up to the limit and the finds beyond it.
    wrong = np.cumsum(missed[order]) + got.sum() - np.cumsum(got[order])
    same = np.append(values[order][1:] > values[order][:-1], True)
    candidates = np.flatnonzero(same)
    best = candidates[int(np.argmin(wrong[candidates]))]
    explains = 1.0 - float(wrong[best]) / total
    within, beyond = order[: best + 1], order[best + 1 :]
    enough = (
        _different(owner[within][got[within] > 0]) >= FEWEST
        and _different(owner[beyond][missed[beyond] > 0]) >= FEWEST
    )
    denied, explained = float(got[beyond].sum()), float(missed[beyond].sum())
    kept, lost = float(got[within].sum()), float(missed[within].sum())
    if denied > DENIES * explained or kept < FOUND * (kept + lost):
        return None
    if explains < EXPLAINS or not enough:
        return None
    ordered = values[order]
    # Between the last that was found and the first that was not lies the limit.
    limit = float((ordered[best] + ordered[best + 1]) / 2)
    return Found(limit, explains)


def _different(owner: Index) -> int:
    return int(np.count_nonzero(np.bincount(owner))) if len(owner) else 0
