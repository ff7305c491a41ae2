"""The irreducible spread: how much of TTFT any model of these columns could explain.

The ledger says where the mean goes; this says how far the differences between requests can be
told from the log at all. What no flexible model can predict for sessions it has not seen is not in
these columns, and no better arithmetic would find it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.diagnosis import Spread
from ttftdoctor.language import tr
from ttftdoctor.measure.ledger import MOST_PER_BACKLOG, Ledger
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Array, Index, Rows
from ttftdoctor.stats import SEED, or_zero, thin

Single = NDArray[np.float32]

#: Fewer requests than this, or sessions, and nothing is said.
FEWEST_ROWS, FEWEST_SESSIONS = 100, 20
#: Of more rows an even sample.
MOST_ROWS = 2000
FOLDS = 5
ROUNDS = 32
RATE = 0.25
#: Thresholds a column, values a category, fewest rows a leaf, and rows' worth of shrinkage.
BINS, VALUES, LEAF, SHRINK = 14, 8, 8, 4.0
BLOCK = 500


def spread_of(rows: Rows, ledger: Ledger, load: Load, predicted: Array) -> Spread | None:
    """How much of the spread the ledger predicts, and how much could be predicted.

    Parameters
    ----------
    predicted
        Seconds of the constant part and of the prefill of each row, (n,).

    Returns
    -------
    Spread or None
        None from a log that is too small, or where all TTFT are the same.

    Notes
    -----
    The ledger's prediction is what can be said before the TTFT is known: constant, prefill, and
    waiting at its fitted rate per second of work ahead and per request decoding. The bound is
    trees of two levels, boosted on least squares (Friedman 2001, Ann. Stat. 29:1189) on top of
    that prediction, each row predicted by the trees of the sessions in the other folds; the number
    of rounds with the best prediction counts, and that may be none. It is a bound from below: what
    these trees find is there, what they miss may be. The interval takes sessions as the unit.
    """
    at = np.flatnonzero(rows.measured & np.isfinite(predicted))
    at = at[thin(len(at), MOST_ROWS)]
    if len(at) < FEWEST_ROWS:
        return None
    cluster = _clusters(rows.session[at])
    if int(cluster.max()) + 1 < FEWEST_SESSIONS:
        return None
    y = rows.ttft[at]
    away = y - y.mean()
    total = float((away**2).sum())
    if total <= 0 or float(np.ptp(y)) < 1e-6:
        return None
    model = _foretold(ledger, load, predicted)[at]
    indicators, columns = _indicators(rows, load, model, at)
    if not columns:
        return None
    fold = np.random.default_rng(SEED).permutation(int(cluster.max()) + 1)[cluster] % FOLDS
    best, of_rounds = _boosted(indicators, y, model, fold)
    missed = y - best
    told = y - model
    told = told - told.mean()
    explained = 1 - float((told**2).sum()) / total
    explainable = 1 - float((missed**2).sum()) / total
    share = 1 - explainable
    pull = np.bincount(cluster, weights=missed**2 - share * away**2) / total
    groups = len(pull)
    half = 1.96 * math.sqrt(float((pull**2).sum()) * groups / (groups - 1))
    middle = float(np.abs(y - np.median(y)).sum())
    by_model = 1 - float(np.abs(told - np.median(told)).sum()) / middle
    by_any = 1 - float(np.abs(missed - np.median(missed)).sum()) / middle
    if rows.session_grade != "none":
        method = tr(
            "trees of two levels boosted on the ledger's prediction ({n} rounds), five folds by "
            "session",
            n=of_rounds,
        )
    else:
        method = tr(
            "trees of two levels boosted on the ledger's prediction ({n} rounds), five folds by "
            "request",
            n=of_rounds,
        )
    if len(at) < int(rows.measured.sum()):
        method += tr(", {n} of them", n=format(len(at), ","))
    return Spread(
        n=len(at),
        explained_by_model=_unit(explained),
        explainable=_unit(max(explainable, explained)),
        interval=(
            _unit(explainable - half),
            _unit(max(explainable + half, explained)),
        ),
        deviation_by_model=_unit(by_model),
        deviation_explainable=_unit(max(by_any, by_model)),
        method=method,
        columns=columns,
    )


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _clusters(session: Index) -> Index:
    """Sessions numbered as they appear, whatever they are called; a row without one is alone."""
    own = np.where(session >= 0, session, session.max() + 1 + np.arange(len(session)))
    _, first, codes = np.unique(own, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[codes]


def _foretold(ledger: Ledger, load: Load, predicted: Array) -> Array:
    """TTFT as the ledger would predict it at arrival."""
    waiting = min(ledger.per_backlog or 0.0, MOST_PER_BACKLOG) * or_zero(load.backlog)
    total: Array = predicted + waiting + (ledger.per_decoding or 0.0) * or_zero(load.decoding)
    return total


def _columns(rows: Rows, load: Load, at: Index) -> Iterator[tuple[str, Array]]:
    """What is known of a request when it arrives."""
    yield "input", rows.inputs[at]
    yield "uncached", rows.uncached[at]
    yield "context", rows.context[at]
    yield "repeated", rows.repeated[at]
    yield "turn", rows.turn[at]
    yield "gap", rows.gap[at]
    yield "moved", rows.moved[at]
    yield "attempts", rows.attempts[at]
    yield "backlog", load.backlog[at]
    yield "waiting", load.waiting[at]
    yield "running", load.running[at]
    yield "decoding", load.decoding[at]
    yield "server_idle", np.where(np.isfinite(load.idle[at]), load.idle[at], np.nan)
    if rows.order_known:
        yield "hour", np.floor(rows.start[at] / 3600)


def _indicators(rows: Rows, load: Load, model: Array, at: Index) -> tuple[Single, tuple[str, ...]]:
    """Every threshold and value as a column of zeros and ones, (n, p); the names of the columns."""
    parts: list[NDArray[np.bool_]] = []
    names: list[str] = []
    levels = np.append(np.arange(1, BINS) / BINS, 0.98)
    seen: set[bytes] = set()

    def add(column: NDArray[np.bool_]) -> bool:
        key = np.packbits(column).tobytes()
        n = int(np.count_nonzero(column))
        if min(n, len(column) - n) < LEAF:
            return False
        if key not in seen:
            seen.add(key)
            parts.append(column)
        return True

    def thresholds(values: Array) -> bool:
        known = np.isfinite(values)
        if not known.any():
            return False
        cuts = np.unique(np.quantile(values[known], levels))
        with np.errstate(invalid="ignore"):
            above = values[None, :] > cuts[:, None]
        # No generator: every column is to be added.
        added = [add(column) for column in above]
        return any([*added, add(~known)])

    thresholds(model)
    for name, values in _columns(rows, load, at):
        if thresholds(values):
            names.append(name)
    for name, scope in rows.scopes.items():
        codes = scope.codes[at]
        counts = np.bincount(codes + 1)
        large = np.argsort(-counts, kind="stable")[:VALUES] - 1
        added = [add(codes == code) for code in large]
        if any(added):
            names.append(name)
    if not parts:
        return np.empty((len(at), 0), dtype=np.float32), ()
    return np.stack(parts, axis=1).astype(np.float32), tuple(names)


def _boosted(x: Single, y: Array, model: Array, fold: Index) -> tuple[Array, int]:
    """Each row predicted from the other folds, after the best number of rounds.

    All folds are fitted at once: with sums over leaves as products of matrices, a round takes a
    fraction of a millisecond.
    """
    n = len(y)
    size = float(y.std())
    train = (fold[:, None] != np.arange(FOLDS)[None, :]).astype(np.float32)
    own = (np.arange(n), fold)
    guess = _straight(model, y, train)
    left = ((y[:, None] - guess) / size).astype(np.float32)
    best, best_loss, best_round = guess[own], float((left[own] ** 2).sum()), 0
    worse = 0
    blocks = [np.ascontiguousarray(x[at : at + BLOCK].T) for at in range(0, n, BLOCK)]
    count = _sums(blocks, train)
    whole = train.sum(0)
    place = np.arange(FOLDS)
    for number in range(1, ROUNDS + 1):
        target = left * train
        summed, total = _sums(blocks, target), target.sum(0)
        first = _best_split(summed, count, total, whole)
        right = x[:, first]
        both = _sums(blocks, np.concatenate([target * right, train * right], axis=1))
        s_right, n_right = both[:, :FOLDS], both[:, FOLDS:]
        t_right, w_right = summed[first, place], count[first, place]
        step = np.zeros_like(left)
        for s, c, t, w, side in (
            (s_right, n_right, t_right, w_right, right),
            (summed - s_right, count - n_right, total - t_right, whole - w_right, 1 - right),
        ):
            split = _best_split(s, c, t, w)
            high_s, high_n = s[split, place], c[split, place]
            high = high_s / (high_n + SHRINK)
            low = (t - high_s) / (w - high_n + SHRINK)
            step += side * (low + (high - low) * x[:, split])
        left -= RATE * step
        loss = float((left[own].astype(float) ** 2).sum())
        if loss < best_loss:
            best, best_loss, best_round, worse = y - size * left[own], loss, number, 0
        else:
            worse += 1
            if worse >= 8:
                break
    return best, best_round


def _sums(blocks: list[Single], values: Single) -> Single:
    """Sums of each value (n, q) over the rows of each indicator: (p, q).

    In blocks that the library of matrices leaves to one core: several would wait for each other
    longer than the product takes.
    """
    total: Single = blocks[0] @ values[:BLOCK]
    for at, block in enumerate(blocks[1:], start=1):
        total += block @ values[at * BLOCK : (at + 1) * BLOCK]
    return total


def _straight(model: Array, y: Array, train: Single) -> Array:
    """The prediction of the ledger, moved and scaled to fit each fold's training rows."""
    w = train.astype(float)
    n = w.sum(0)
    mx, my = model @ w / n, y @ w / n
    dx = model[:, None] - mx
    variance = (w * dx**2).sum(0)
    slope = (w * dx * (y[:, None] - my)).sum(0) / np.where(variance > 0, variance, 1.0)
    guess: Array = my + np.clip(slope, 0.0, None) * dx
    return guess


def _best_split(summed: Single, count: Single, total: Single, whole: Single) -> Index:
    """For each fold the column that splits best; arguments (p, folds) and (folds,)."""
    rest = whole - count
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = summed**2 / (count + SHRINK) + (total - summed) ** 2 / (rest + SHRINK)
    gain[(count < LEAF) | (rest < LEAF)] = -1.0
    best: Index = np.argmax(gain, axis=0)
    return best
