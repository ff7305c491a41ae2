"""What only the log itself can tell where a gate fails: since when, where, and by what cause.

A baseline file holds sums; the log that is checked is still there, with its clock, its prompts and
its diagnosis. :func:`seen_in` keeps the little of it that :mod:`.gate.moved` puts into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.evidence import Change
from ttftdoctor.examine import Examined
from ttftdoctor.measure.rows import Array, Rows
from ttftdoctor.measure.signs import moment
from ttftdoctor.prefixes.records import BreakerRecord
from ttftdoctor.stats import or_zero

#: A log is cut into so many stretches of equally many requests to look for a step.
STRETCHES = 48
#: Fewer requests than this, or stretches on a side of the step, show none.
LEAST_ROWS, LEAST_SIDE = 96, 4
#: A replica of at least so many requests stands apart by this much of the cached share.
LEAST_OF_REPLICA, LEAST_APART = 30, 0.3
#: A step of the cached share is at least this high, and explains at least this much of the spread.
LEAST_STEP, LEAST_EXPLAINED = 0.1, 0.6


@dataclass(frozen=True)
class Step:
    """The cached share of the input before and after one moment (as ISO 8601 UTC, or in words)."""

    at: str
    before: float
    after: float


@dataclass(frozen=True)
class Apart:
    """The replica whose cached share of the input is furthest below that of all others."""

    replica: str
    share: float
    of_rest: float


@dataclass(frozen=True)
class Named:
    """A cause that the diagnosis holds to be at work, with the sentence that proves it."""

    cause: str
    says: str


@dataclass(frozen=True)
class Seen:
    """What the log that is checked tells beyond its sums.

    ``steps`` are lasting falls of the cached share, of all requests under the empty name and of
    each route. ``shared`` is what the prompts share, as a share of their tokens, where they are
    known by content; ``breaker`` is the place where most of it is lost. ``apart`` is a replica that
    finds less than the others do.
    """

    causes: tuple[Named, ...]
    change: Change | None
    steps: dict[str, Step]
    shared: float | None
    breaker: BreakerRecord | None
    apart: Apart | None = None


def seen_in(diagnosis: Diagnosis, examined: Examined) -> Seen:
    """Keep of one log what tells why it got slower."""
    rows = examined.rows
    steps: dict[str, Step] = {}
    apart = None
    if rows.cached_logged and rows.order_known and rows.one_clock:
        every = np.isfinite(rows.cached) & np.isfinite(rows.inputs) & np.isfinite(rows.start)
        masks = {"": every}
        scope = rows.scopes.get("route")
        if scope is not None:
            masks |= {name: every & (scope.codes == n) for n, name in enumerate(scope.names[:12])}
        for name, mask in masks.items():
            step = step_of(rows, mask)
            if step is not None:
                steps[name] = step
        apart = apart_from(rows, every)
    change = examined.evidence.change
    prefix = diagnosis.prefix
    ideal = None
    if prefix is not None and prefix.grade == "content" and prefix.ladder is not None:
        ideal = next((r.share for r in prefix.ladder.rungs if r.id == "ideal"), None)
    breakers = () if prefix is None else prefix.breakers
    return Seen(
        causes=tuple(
            Named(f.id, f.evidence[0].text)
            for f in diagnosis.causes
            if f.status in ("primary", "contributing") and f.evidence
        ),
        change=change if change is not None and change.of_service else None,
        steps=steps,
        shared=ideal,
        breaker=max(breakers, key=lambda b: b.tokens_lost, default=None),
        apart=apart,
    )


def apart_from(rows: Rows, mask: np.ndarray) -> Apart | None:
    """The replica that finds ``LEAST_APART`` less of its input than the others; None without one.

    Of several the one that lost most tokens by it.
    """
    scope = rows.scopes.get("replica")
    if scope is None or len(scope.names) < 2:
        return None
    at = np.flatnonzero(mask & (scope.codes >= 0))
    codes, size = scope.codes[at], len(scope.names)
    requests = np.bincount(codes, minlength=size)
    inputs = np.bincount(codes, or_zero(rows.inputs[at]), size)
    cached = np.bincount(codes, or_zero(rows.cached[at]), size)
    rest = inputs.sum() - inputs
    known = (requests >= LEAST_OF_REPLICA) & (inputs > 0) & (rest > 0)
    own = np.divide(cached, inputs, out=np.ones(size), where=known)
    others = np.divide(cached.sum() - cached, rest, out=np.zeros(size), where=known)
    lost = np.where(known & (others - own >= LEAST_APART), (others - own) * inputs, 0.0)
    worst = int(np.argmax(lost))
    if lost[worst] <= 0:
        return None
    return Apart(scope.names[worst], float(own[worst]), float(others[worst]))


def step_of(rows: Rows, mask: np.ndarray) -> Step | None:
    """A moment at which the cached share of some rows fell for good; None where there is none.

    Notes
    -----
    The split of the stretches that leaves the smallest sum of squares, each stretch counting by its
    tokens (Hawkins 1977, J. Am. Stat. Assoc. 72:180), then within its neighbours the row at which
    the cumulative sum about the mean is furthest out.
    """
    at = np.flatnonzero(mask)
    if len(at) < LEAST_ROWS:
        return None
    at = at[np.argsort(rows.start[at], kind="stable")]
    inputs, cached = or_zero(rows.inputs[at]), or_zero(rows.cached[at])
    edges = np.arange(STRETCHES + 1) * len(at) // STRETCHES
    size = np.add.reduceat(inputs, edges[:-1])
    if (size <= 0).any():
        return None
    ratio = np.add.reduceat(cached, edges[:-1]) / size
    best = _split(ratio, size)
    if best is None:
        return None
    low, high = edges[max(best - 1, 0)], edges[min(best + 1, STRETCHES)]
    window = slice(low, high)
    drift = np.cumsum(cached[window] - cached[window].sum() / inputs[window].sum() * inputs[window])
    # Before the fall the sum climbs, after it sinks: its top is the last row of before.
    row = int(low) + int(np.argmax(drift)) + 1
    row = min(max(row, 1), len(at) - 1)
    stamp = moment(rows, int(at[row]))
    if stamp is None:
        return None
    before = float(cached[:row].sum() / inputs[:row].sum())
    after = float(cached[row:].sum() / inputs[row:].sum())
    return Step(stamp, before, after) if before - after >= LEAST_STEP else None


def _split(ratio: Array, weight: Array) -> int | None:
    """The first stretch after the fall; None where no single step explains the ratios."""
    n = np.cumsum(weight)
    total = np.cumsum(weight * ratio)
    whole = n[-1], total[-1]
    spread = float((weight * (ratio - whole[1] / whole[0]) ** 2).sum())
    if spread <= 0:
        return None
    k = np.arange(LEAST_SIDE, len(ratio) - LEAST_SIDE + 1)
    before = total[k - 1] / n[k - 1]
    after = (whole[1] - total[k - 1]) / (whole[0] - n[k - 1])
    between = n[k - 1] * (whole[0] - n[k - 1]) / whole[0] * (before - after) ** 2
    best = int(np.argmax(between))
    fell = before[best] - after[best] >= LEAST_STEP
    return int(k[best]) if fell and between[best] >= LEAST_EXPLAINED * spread else None
