"""Whether prefixes were reused, where the log counts no cached tokens: the timing tells.

If history is prefilled again, TTFT follows the whole input; if it is reused, TTFT follows the
tokens that are new. Both lines are fitted, and each later turn is asked which it is nearer to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Rows
from ttftdoctor.stats import Array, quantile_fit

#: A later turn must repeat at least this many tokens to be worth asking.
WORTH = 64
#: How sure the timing alone can make of reuse, at best.
SURE_AT_BEST = 0.93
#: Reused tokens cost at most this part of new ones in the trial (hits are cheap, not free).
HIT_COSTS = (0.0, 0.03, 0.1, 0.2)


@dataclass(frozen=True)
class Reuse:
    """The answer: ``none``, ``full``, ``mixed`` or ``unknown``.

    ``loss_none`` and ``loss_full`` are the mean absolute residuals (relative to TTFT) of the two
    lines over ``n`` unloaded requests; ``hit_share`` the part of later turns nearer to "reused".
    """

    answer: str
    loss_none: float | None
    loss_full: float | None
    hit_share: float | None
    n: int


def infer(rows: Rows, load: Load) -> tuple[Rows, Reuse]:
    """Fill ``cached`` from the timing where the log has no such column and the timing is clear.

    Returns the rows unchanged where cached tokens are logged, where no request repeats anything,
    or where the two lines fit alike.
    """
    if rows.cached_logged or rows.reuse_grade == "none":
        return rows, Reuse("unknown", None, None, None, 0)
    later = np.nan_to_num(rows.repeated) >= WORTH
    usable = rows.measured & np.isfinite(rows.inputs) & np.isfinite(rows.repeated)
    free = usable & ~(load.waiting > 0)
    if free.sum() < 8 or (free & later).sum() < 4:
        free = usable
    if free.sum() < 6 or (free & later).sum() < 3:
        return rows, Reuse("unknown", None, None, None, int(free.sum()))
    index = np.flatnonzero(free)
    if len(index) > 3000:
        index = np.sort(np.random.default_rng(9).choice(index, 3000, replace=False))
    inputs, repeated = rows.inputs[index], np.nan_to_num(rows.repeated[index])
    ttft, again = rows.ttft[index], later[index]
    loss_none, none = _best(inputs, np.zeros_like(inputs), ttft)
    loss_full, full = _best(inputs - repeated, repeated, ttft)
    gap = none - full
    clear = again & (np.abs(gap) > 0.25 * ttft)
    hits = None
    if clear.any():
        nearer = np.abs(ttft - full)[clear] < np.abs(ttft - none)[clear]
        hits = float(nearer.mean())
    answer = "unknown"
    if loss_none < 0.75 * loss_full:
        answer = "none"
    elif loss_full < 0.75 * loss_none:
        answer = "full"
    if answer in ("unknown", "full", "none"):
        mixed, cached = _mixed(rows, load, index, loss_none, loss_full)
        if mixed:
            found = Reuse("mixed", loss_none, loss_full, hits, len(index))
            return replace(
                rows, cached=cached, cached_basis="inferred: mixed", cached_sure=0.78
            ), found
    sure = SURE_AT_BEST
    if answer == "unknown" and _as_slow_as_first(inputs, repeated, ttft, again):
        answer, sure = "none", 0.78
    elif answer != "unknown":
        low, high = sorted((loss_none, loss_full))
        sure = 0.78 + (SURE_AT_BEST - 0.78) * min((0.75 - low / high) / 0.5, 1.0)
    found = Reuse(answer, loss_none, loss_full, hits, len(index))
    if answer == "full":
        cached = np.where(np.isfinite(rows.repeated), rows.repeated, np.nan)
        return replace(
            rows, cached=cached, cached_basis="inferred: reused", cached_sure=sure
        ), found
    if answer == "none":
        return replace(
            rows, cached=np.where(np.isfinite(rows.inputs), 0.0, np.nan),
            cached_basis="inferred: not reused", cached_sure=sure,
        ), found  # fmt: skip
    return rows, found


def _as_slow_as_first(
    inputs: Array, repeated: Array, ttft: Array, again: NDArray[np.bool_]
) -> bool:
    """Long prompts of one length: later turns, nearly all history, take as long as first ones.

    The two lines fit such a log alike; that thousands of new tokens cost nothing and all of the
    TTFT were a constant is the less likely reading.
    """
    first, later = ~again, again
    if first.sum() < 3 or later.sum() < 3:
        return False
    mostly_old = np.median(repeated[later] / inputs[later]) >= 0.7
    same_length = 0.8 <= np.median(inputs[later]) / np.median(inputs[first]) <= 1.25
    long = np.median(inputs) >= 1500 and np.median(ttft) >= 0.4
    ratio = np.median(ttft[later]) / np.median(ttft[first])
    return bool(mostly_old and same_length and long and 0.85 <= ratio <= 1.3)


def _best(uncached: Array, context: Array, ttft: Array) -> tuple[float, Array]:
    """Best line over the trial costs of a hit: mean relative residual, and the fitted TTFT."""
    u, c = np.maximum(uncached, 1.0) / 1e3, context / 1e3
    scale = ttft + float(np.median(ttft))
    best: tuple[float, Array] | None = None
    costs = HIT_COSTS if c.any() else (0.0,)
    for cost in costs:
        work = u + cost * c
        columns = [np.ones(len(u)), work]
        if len(u) >= 12:
            columns.append(work * (c + u / 2))
        x = np.column_stack(columns)
        fit = quantile_fit(x, ttft, tau=0.5, scale=scale)
        loss = float(np.mean(np.abs(fit.residual) / scale))
        if best is None or loss < best[0]:
            best = (loss, x @ fit.coef)
    assert best is not None
    return best


def _mixed(
    rows: Rows, load: Load, index: NDArray[np.int64], loss_none: float, loss_full: float
) -> tuple[bool, Array]:
    """Some later turns reused, others not: two clear groups under the line of first turns."""
    nothing = rows.cached
    first = np.zeros(rows.n, dtype=bool)
    first[index] = np.nan_to_num(rows.repeated[index]) < WORTH
    u = rows.inputs / 1e3
    if first.sum() < 8:
        return False, nothing
    low, high = np.quantile(u[first], [0.1, 0.9])
    if high < 1.5 * low:
        return False, nothing
    x = np.column_stack([np.ones(first.sum()), u[first]])
    fit = quantile_fit(x, rows.ttft[first], tau=0.5, scale=u[first] + float(np.median(u[first])))
    fixed, slope = fit.coef
    if slope <= 0:
        return False, nothing
    known = np.isfinite(rows.repeated) & rows.measured & (np.nan_to_num(rows.repeated) >= WORTH)
    new = fixed + slope * (rows.inputs - np.nan_to_num(rows.repeated)) / 1e3
    whole = fixed + slope * u
    clear = known & (whole > 1.8 * new)
    clear_free = clear & ~(load.waiting > 0)
    if clear_free.sum() < 12:
        return False, nothing
    part = (whole - rows.ttft) / np.maximum(whole - new, 1e-9)
    seen = part[clear_free]
    hit, miss = float(np.mean(seen > 0.65)), float(np.mean(seen < 0.35))
    if min(hit, miss) < 0.1 or hit + miss < 0.8:
        return False, nothing
    cached = np.where(np.isfinite(rows.inputs), 0.0, np.nan)
    majority = hit >= miss
    reused = np.where(clear, part > 0.5, majority)
    cached = np.where(known & reused, rows.repeated, cached)
    return True, cached
