"""Whether prefixes were reused, where the log counts no cached tokens: the timing tells.

If history is prefilled again, TTFT follows the whole input; if it is reused, TTFT follows the
tokens that are new. Both lines are fitted, and each later turn is asked which it is nearer to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.language import mark
from ttftdoctor.measure.lines import MOST_ATTENTION
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Rows
from ttftdoctor.stats import Array, quantile_fit

#: A later turn must repeat at least this many tokens to be worth asking.
WORTH = 64
#: How sure the timing alone can make of reuse, at best.
SURE_AT_BEST = 0.93
#: A first turn counts for this many later ones at most.
MOST_WEIGHT = 10.0
#: ... where there are this many of them; one or two may be anything.
FEWEST_FIRST = 8
#: A line that is right misses by no more than this part of the TTFT, on average.
CLOSE = 0.14
#: Standard errors by which one line must be nearer to the TTFTs, request by request.
STEADY = 2.3
#: How sure one is of a model by the others of its log.
LENT_SURE = 0.7
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
    # First turns say what new tokens cost, the others what repeated ones do: both must be heard.
    few, many = np.sum(~again), np.sum(again)
    fair = np.clip(many / few, 1.0, MOST_WEIGHT) if few >= FEWEST_FIRST else 1.0
    weight = np.where(again, 1.0, fair)
    loss_none, none = _best(inputs, np.zeros_like(inputs), ttft, weight)
    loss_full, full = _best(inputs - repeated, repeated, ttft, weight)
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
                rows, cached=cached, cached_basis=mark("inferred: mixed"), cached_sure=0.78
            ), found
    sure = SURE_AT_BEST
    if answer == "unknown" and _as_slow_as_first(inputs, repeated, ttft, again):
        answer, sure = "none", 0.78
    elif answer == "unknown" and _cheap_hits(inputs, repeated, ttft, rows.session[index]):
        answer, sure = "full", 0.85
    elif answer == "unknown":
        answer, sure = _steadily_nearer(ttft, none, full, weight), 0.72
    elif answer != "unknown":
        low, high = sorted((loss_none, loss_full))
        sure = 0.78 + (SURE_AT_BEST - 0.78) * min((0.75 - low / high) / 0.5, 1.0)
    found = Reuse(answer, loss_none, loss_full, hits, len(index))
    if answer == "full":
        cached = np.where(np.isfinite(rows.repeated), rows.repeated, np.nan)
        return replace(
            rows, cached=cached, cached_basis=mark("inferred: reused"), cached_sure=sure
        ), found
    if answer == "none":
        return replace(
            rows, cached=np.where(np.isfinite(rows.inputs), 0.0, np.nan),
            cached_basis=mark("inferred: not reused"), cached_sure=sure,
        ), found  # fmt: skip
    return rows, found


def lend(parts: list[tuple[Rows, Reuse]]) -> list[tuple[Rows, Reuse]]:
    """Let a model whose timing says nothing be read as all the others of the log are.

    Only where all that could be told reuse their prefixes, as one provider's models do, and the
    model's own timing does not speak against it.
    """
    told = [(rows, found) for rows, found in parts if found.answer != "unknown"]
    if not told or any(found.answer != "full" for _, found in told):
        return parts
    seen = sum(int(rows.measured.sum()) for rows, _ in told)
    if seen < 0.5 * sum(int(rows.measured.sum()) for rows, _ in parts):
        return parts
    out = []
    for part, answer in parts:
        rows, found = part, answer
        alike = found.loss_none is None or (found.loss_full or 0.0) <= 1.2 * found.loss_none
        if found.answer == "unknown" and rows.reuse_grade != "none" and alike:
            cached = np.where(np.isfinite(rows.repeated), rows.repeated, np.nan)
            rows = replace(
                rows, cached=cached, cached_basis=mark("inferred: reused"), cached_sure=LENT_SURE
            )
            found = replace(found, answer="full")
        out.append((rows, found))
    return out


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


def _cheap_hits(inputs: Array, repeated: Array, ttft: Array, session: NDArray[np.int64]) -> bool:
    """Repeated tokens cost something, but much less than new ones: hits that are not free.

    Where a large constant and noise hide the rest, neither line of :func:`infer` wins. Then the
    median of TTFT is fitted on new tokens, all tokens and the square of all tokens: computed
    again, history costs what new tokens cost, and new tokens have nothing of their own.
    """
    new, whole = (inputs - repeated) / 1e3, inputs / 1e3
    if len(ttft) < 20 or np.median(repeated / np.maximum(inputs, 1.0)) < 0.5:
        return False
    if np.ptp(np.quantile(new, [0.1, 0.9])) < 0.25:
        return False
    middle = float(np.median(whole))
    square = whole * np.maximum(whole - middle, 0.0)
    square *= middle / max(float(np.quantile(square, 0.95)), 1e-9)  # a column as large as the rest
    x = np.column_stack([np.ones(len(new)), new, whole, square])
    alone = np.where(session < 0, session.max(initial=0) + 1 + np.arange(len(session)), session)
    _, codes = np.unique(alone, return_inverse=True)
    clusters = codes.astype(np.int64) if codes.max() >= 8 else None
    fit = quantile_fit(x, ttft, tau=0.5, clusters=clusters, resamples=100)
    own, old = float(fit.coef[1]), float(fit.coef[2])
    if fit.draws.shape[0] < 20:
        return False
    return bool(np.quantile(fit.draws[:, 1], 0.02) > 0 and own >= old)


def _steadily_nearer(ttft: Array, none: Array, full: Array, weight: Array) -> str:
    """Which line is nearer by a tenth at least, and request by request so, not in a few alone."""
    scale = ttft + float(np.median(ttft))
    far_none, far_full = np.abs(ttft - none) / scale, np.abs(ttft - full) / scale
    nearer = far_none - far_full
    spread = float(nearer.std())
    if len(ttft) < 20 or spread == 0.0:
        return "unknown"
    worth = float(weight.sum()) ** 2 / float((weight**2).sum())  # rows of equal weight
    score = float(np.average(nearer, weights=weight)) / spread * worth**0.5
    mean_none, mean_full = (float(np.average(far, weights=weight)) for far in (far_none, far_full))
    if min(mean_none, mean_full) > CLOSE:
        return "unknown"  # neither line is one: some turns hit, others do not
    if score >= STEADY and mean_full <= 0.9 * mean_none:
        return "full"
    if score <= -STEADY and mean_none <= 0.9 * mean_full:
        return "none"
    return "unknown"


def _best(uncached: Array, context: Array, ttft: Array, weight: Array) -> tuple[float, Array]:
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
        fit = quantile_fit(x, ttft, tau=0.5, scale=scale / weight)
        if len(columns) > 2 and fit.coef[2] > MOST_ATTENTION * fit.coef[1]:
            # No attention is that dear: a line that needs it fits whatever is left over.
            x = np.column_stack([columns[0], work + MOST_ATTENTION * columns[2]])
            fit = quantile_fit(x, ttft, tau=0.5, scale=scale / weight)
        loss = float(np.average(np.abs(fit.residual) / scale, weights=weight))
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
