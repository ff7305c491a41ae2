"""What work costs: the prefill line and the decode line, robust to waiting.

TTFT = fixed + a*U + b*U*(C + U/2) + d*(C + U) + wait, with U uncached and C cached thousands of
tokens; a, b and d are not negative. The wait is one-sided, so the line is fitted to requests that
found nobody's prefill ahead of them: their median, or a low quantile where even those show a
one-sided tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.language import tr
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Index, Mask, Rows
from ttftdoctor.stats import (
    MOST_ROWS,
    Array,
    QuantileFit,
    median,
    pinball,
    quantile,
    quantile_fit,
    rank,
    rank_correlation,
    ranks_correlation,
    where,
)

#: A slope for all requests, or one for each.
Slope = float | Array

#: Rows used for one fit; more would only cost time.
FIT_ROWS = 3000
RESAMPLES = 160
#: Lengths must spread by this ratio (90th to 10th percentile) to tell slope from constant.
LENGTH_SPREAD = 1.25
#: Attention to 1,000 tokens of context costs at most this part of the rest of a token's prefill:
#: even in tiny models the two meet at more than 600 tokens, in large ones at tens of thousands.
MOST_ATTENTION = 1.5
#: The context has a price of its own if it varies by this part of what new tokens do.
FEWEST_CONTEXT = 0.1
#: New tokens are few where the 95th percentile of them is below this: on their own they are no
#: reason to wait for.
FEW_TOKENS = 1500.0
#: A line that lays this part of TTFT to few tokens must tell the requests apart ...
MOSTLY = 0.5
#: ... it must bring the loss down to this part of what a constant alone leaves ...
TELLS = 0.8
#: ... unless they lie within this part of it on average, and there is little to tell.
STEADY = 0.25
#: With fewer free requests than this, all are used at a low quantile.
FEWEST_FREE = 5


@dataclass(frozen=True)
class Prefill:
    """A fitted prefill line; coefficients in seconds and thousands of tokens.

    ``draws`` (resamples, 4) are the bootstrapped fixed, a, b, d. ``separable`` is false where the
    lengths hardly vary: then all is counted as slope and ``fixed`` is 0.
    """

    fixed: float
    per_1k: float
    per_1k_1k: float
    per_1k_context: float
    draws: Array
    has_attention: bool
    has_context: bool
    separable: bool
    n: int
    method: str
    noise_s: float
    noise_share: float

    def work(self, uncached: Array, context: Array) -> Array:
        """Seconds of prefill without the constant part; arguments in tokens."""
        return _work(uncached, context, self.per_1k, self.per_1k_1k, self.per_1k_context)

    def predict(self, uncached: Array, context: Array) -> Array:
        """TTFT in seconds of a request that waits for nobody."""
        return self.fixed + self.work(uncached, context)

    def with_draw(self, index: int) -> Prefill:
        """The line of one resample."""
        fixed, a, b, d = (float(v) for v in self.draws[index])
        return replace(self, fixed=fixed, per_1k=a, per_1k_1k=b, per_1k_context=d)


def _work(
    uncached: Array, context: Array, per_1k: Slope, per_1k_1k: Slope, per_1k_context: Slope
) -> Array:
    """Seconds of prefill by the slopes of one line, or by those of each request's own."""
    u, c = uncached / 1e3, context / 1e3
    total: Array = per_1k * u + per_1k_1k * u * (c + u / 2) + per_1k_context * (c + u)
    return total


@dataclass(frozen=True)
class Decode:
    """Decode per token, and how it moves with context and load; seconds."""

    per_token: float
    interval: tuple[float, float] | None
    per_1k_context: float | None
    per_running: float | None
    n: int
    method: str


def fit_prefill(
    rows: Rows, load: Load, within: Mask | None = None, *, resamples: int = RESAMPLES
) -> Prefill | None:
    """Fit the prefill line.

    Parameters
    ----------
    rows
        With ``uncached`` and ``context`` as far as known.
    load
        Who was ahead; NaN where the log has no times.
    within
        The rows to fit; all by default.

    Returns
    -------
    Prefill or None
        None with fewer than five usable rows.

    Notes
    -----
    A quantile fit moves only its constant when every TTFT grows by the same amount. Each term is
    kept only if its resampled interval stays above zero and it matters at the long end.
    """
    usable = rows.measured & np.isfinite(rows.inputs) & (rows.inputs > 0)
    usable &= ~(rows.attempts > 1)
    if within is not None:
        usable &= within
    if usable.sum() < 5:
        return None
    free = usable & (load.waiting == 0)
    quiet = free & (load.decoding == 0)
    ttft = rows.ttft
    if quiet.sum() >= min(25, 0.3 * free.sum()) > 0 and _same_lengths(rows, quiet, usable):
        chosen, how = quiet, tr("requests that found the server idle")
    elif free.sum() >= FEWEST_FREE:
        chosen, how = free, tr("requests that found no prefill ahead of them")
    else:
        chosen, how = usable, tr("all requests (hardly any found the server free)")
        # What the engine calls queueing is no prefill, though it is not all of the wait.
        ttft = np.maximum(ttft - np.nan_to_num(rows.queue), 0.0)
    index = np.flatnonzero(chosen)
    if len(index) > FIT_ROWS:
        index = np.sort(np.random.default_rng(7).choice(index, FIT_ROWS, replace=False))
    line = fit_line(
        rows.uncached[index], rows.context[index], ttft[index],
        clusters=_clusters(rows.session[index]), how=how,
        lonely=chosen is not usable, resamples=resamples,
    )  # fmt: skip
    return _bounded(line, rows, usable, ttft, lonely=chosen is not usable)


def _bounded(
    line: Prefill, rows: Rows, usable: NDArray[np.bool_], ttft: Array, *, lonely: bool
) -> Prefill:
    """Hold a line to what cannot be: a constant is paid by all, and prefill is part of TTFT.

    Where no free request was seen, the constant is at most what the fastest requests took beyond
    their own work; and all predictions together are at most all TTFTs together, since waits are
    never negative (a few long prompts refute a slope fitted to short ones).
    """
    at = where(usable)
    work = line.work(rows.uncached[at], rows.context[at])
    took = ttft[at]
    beyond = took - work
    fixed = line.fixed
    if not lonely:
        fixed = min(fixed, max(quantile(beyond, 0.02), 0.0))
    elif (
        len(took) >= 10
        and fixed > 0.3 * float(took.mean())
        and fixed > 1.5 * max(quantile(beyond, 0.1), 1e-3)
    ):
        # Many requests do without most of it: it is no constant, but something some of them pay.
        fixed = max(quantile(beyond, 0.15), 0.0)
    total, own = float(took.sum()), float(work.sum())
    spare = total - fixed * len(took)
    factor = 1.0
    if own > 0 and own + fixed * len(took) > 1.03 * total:
        factor = max(spare, 0.0) / own
    if factor == 1.0 and fixed == line.fixed:
        return line
    draws = line.draws * np.array([1.0, factor, factor, factor])
    draws[:, 0] = np.minimum(draws[:, 0], fixed)
    return replace(
        line,
        fixed=fixed,
        per_1k=line.per_1k * factor,
        per_1k_1k=line.per_1k_1k * factor,
        per_1k_context=line.per_1k_context * factor,
        draws=draws,
        method=line.method + tr(", bounded by the TTFTs themselves"),
    )


def fit_line(
    uncached: Array,
    context: Array,
    ttft: Array,
    *,
    clusters: NDArray[np.int64] | None,
    how: str,
    lonely: bool,
    resamples: int = RESAMPLES,
) -> Prefill:
    """Fit the line to given rows (tokens and seconds, shape (n,)); see :func:`fit_prefill`."""
    u, c = np.maximum(uncached, 0) / 1e3, context / 1e3
    n = len(u)
    low, high = np.quantile(u, [0.1, 0.9])
    spread_u = high / max(low, 1e-3)
    spread_c = float(np.quantile(c, 0.9) - np.quantile(c, 0.1))
    if spread_u < LENGTH_SPREAD and spread_c < 0.25 * max(float(np.median(u)), 1e-3):
        return _flat(u, ttft, how, lonely)
    scale = _spread(u, ttft)
    attention = u * (c + u / 2)
    names = ["fixed", "a"]
    columns = [np.ones(n), u]
    if np.quantile(attention, 0.95) > 0.6 * np.quantile(u, 0.95) and n >= 20:
        names.append("b")
        columns.append(attention)
    # Where the context hardly varies, a price of all tokens is one of the new ones.
    varies = _width(c) >= FEWEST_CONTEXT * _width(u)
    if np.mean(c > 0.05) >= 0.1 and n >= 20 and varies:
        names.append("d")
        columns.append(c + u)

    known: dict[tuple[str, ...], QuantileFit] = {}

    def fit(tau: float, resamples: int) -> tuple[Array, Array, Array]:
        x = np.column_stack(columns)
        key = (f"{tau}", *names)  # most terms are kept, and then the last fit was made before
        result = known.get(key)
        if result is None or len(result.draws) < resamples:
            result = known[key] = quantile_fit(
                x, ttft, tau=tau, scale=scale, clusters=clusters, resamples=resamples
            )
        return result.coef, result.draws[:resamples], result.residual / scale

    tau = 0.5 if lonely else 0.25
    _, _, residual = fit(tau, 0)
    below, middle, above = np.quantile(residual, [0.1, 0.5, 0.9])
    if lonely and (above - middle) > 2.5 * max(middle - below, 1e-9) and n >= 20:
        tau = 0.25
    for name in ("b", "d"):
        if name not in names:
            continue
        coef, draws, _ = fit(tau, 60)
        at = names.index(name)
        part = coef[at] * np.quantile(columns[at], 0.95)
        whole = float(np.quantile(np.column_stack(columns) @ coef, 0.95))
        sure = draws.shape[0] > 0 and np.quantile(draws[:, at], 0.05) > 0
        if name == "b" and coef[at] > MOST_ATTENTION * coef[1]:
            sure = False
        if not sure or part < 0.02 * max(whole, 1e-9):
            del names[at], columns[at]
    coef, draws, residual = fit(tau, resamples)
    if lonely and _told_by_few(u, ttft, np.column_stack(columns) @ coef, coef[0], tau, scale):
        return _unmoved(ttft, tau, clusters, how, resamples)
    values = dict(zip(names, coef, strict=True))
    full = np.zeros((draws.shape[0], 4))
    for at, name in enumerate(("fixed", "a", "b", "d")):
        if name in names:
            full[:, at] = draws[:, names.index(name)]
    raw = residual * scale
    middle = float(np.median(raw))
    noise = 1.4826 * float(np.median(np.abs(raw - middle)))
    word = tr("median") if tau == 0.5 else tr("{share} quantile", share=format(tau, ".0%"))
    fitted = np.maximum(np.column_stack(columns) @ coef, 1e-9)
    return Prefill(
        fixed=float(values["fixed"]),
        per_1k=float(values["a"]),
        per_1k_1k=float(values.get("b", 0.0)),
        per_1k_context=float(values.get("d", 0.0)),
        draws=full,
        has_attention="b" in names,
        has_context="d" in names,
        separable=True,
        n=n,
        method=tr("{quantile} of {requests}", quantile=word, requests=how),
        noise_s=noise,
        noise_share=1.4826 * float(np.median(np.abs(raw - middle) / fitted)),
    )


def _told_by_few(
    u: Array, ttft: Array, fitted: Array, fixed: float, tau: float, scale: Array
) -> bool:
    """Whether a line lays most of TTFT to few tokens that do not tell the requests apart.

    Two levels of TTFT that lie anyhow among a few hundred tokens still have a steep best line, and
    by it a prefill of seconds. Where the lengths are large, or where it foretells the times, a
    line may be as steep as it likes: servers without an accelerator are that slow.
    """
    if float(np.quantile(u, 0.95)) >= FEW_TOKENS / 1e3:
        return False
    middle = float(np.median(fitted))
    if middle - fixed < MOSTLY * middle:
        return False
    left = ttft - fitted
    if float(np.mean(np.abs(left))) < STEADY * middle:
        return False
    alone = quantile_fit(np.ones((len(u), 1)), ttft, tau=tau, scale=scale).residual
    return pinball(left / scale, tau) > TELLS * pinball(alone / scale, tau)


def _unmoved(
    ttft: Array, tau: float, clusters: NDArray[np.int64] | None, how: str, resamples: int
) -> Prefill:
    """A constant alone: TTFT does not follow the new tokens."""
    fit = quantile_fit(
        np.ones((len(ttft), 1)), ttft, tau=tau, clusters=clusters, resamples=resamples
    )
    level = float(fit.coef[0])
    draws = np.zeros((fit.draws.shape[0], 4))
    draws[:, 0] = fit.draws[:, 0]
    noise = 1.4826 * float(np.median(np.abs(fit.residual - np.median(fit.residual))))
    return Prefill(
        fixed=level, per_1k=0.0, per_1k_1k=0.0, per_1k_context=0.0, draws=draws,
        has_attention=False, has_context=False, separable=True, n=len(ttft),
        method=tr("level of {requests}: new tokens do not tell them apart", requests=how),
        noise_s=noise, noise_share=noise / max(level, 1e-9),
    )  # fmt: skip


def _width(values: Array) -> float:
    """From the 5th to the 95th percentile."""
    return float(np.ptp(np.quantile(values, [0.05, 0.95])))


def _spread(u: Array, ttft: Array) -> Array:
    """How far TTFTs of a length lie apart, relative to the middle one; constants do not matter.

    What the residuals of a rough line show (Glejser 1969, JASA 64:316), and a tenth of what they
    would be if all spread grew with the work, so that a log without noise has a scale as well.
    """
    x = np.column_stack([np.ones(len(u)), u])
    rough = quantile_fit(x, ttft, tau=0.4)
    grown = rough.coef[1] * u
    seen = x @ quantile_fit(x, np.abs(rough.residual - np.median(rough.residual))).coef
    scale: Array = seen + 0.1 * (grown + 0.25 * max(float(np.median(grown)), 1e-9)) + 1e-6
    return scale / float(np.median(scale))


@dataclass(frozen=True)
class Middle:
    """A plain line through the middle of TTFT, to be set beside another (:func:`middle_of`).

    ``coef`` is (4,): constant, per uncached, attention, per context token, as in :class:`Prefill`;
    ``draws`` (n, 4) of fits to resampled sessions; thousands of tokens, seconds.
    """

    coef: Array
    draws: Array


def middle_of(rows: Rows, load: Load, mask: Mask, *, attention: bool) -> Middle | None:
    """A line whose figures are the same in each log of one service; None of too few requests.

    The lines of a diagnosis follow the log: terms are kept where it can tell them, the quantile
    and the rows are chosen by it, and steps that decode for others are taken out where they show.
    So two logs of one service may have lines that differ in all of their terms and agree only in
    sum. Here nothing is chosen: the median of requests that found nobody waiting, and of prompts
    so short that attention hardly counts (or of the shorter half).
    """
    used = mask & rows.measured & (rows.inputs > 0) & np.isfinite(rows.uncached)
    free = used & (load.waiting == 0) if rows.order_known else used
    if not used.any():
        return None
    most = max(SHORT_TOKENS, float(np.median(rows.uncached[used])))
    at = np.flatnonzero(free & (rows.uncached <= most))
    if len(at) < FEWEST_FREE:
        at = np.flatnonzero(used & (rows.uncached <= most))
    u, c, ttft = rows.uncached[at] / 1e3, rows.context[at] / 1e3, rows.ttft[at]
    curved = attention and most > SHORT_TOKENS
    terms = [np.ones(len(u)), u, *([u * (c + u / 2)] if curved else [])]
    clusters = _clusters(rows.session[at])
    if len(at) < FEWEST_FREE or clusters is None:
        return None
    fit = quantile_fit(
        np.column_stack(terms), ttft, tau=0.5, scale=_spread(u, ttft), clusters=clusters,
        resamples=MIDDLE_DRAWS,
    )  # fmt: skip
    coef, draws = np.zeros(4), np.zeros((len(fit.draws), 4))
    coef[: len(terms)] = fit.coef
    draws[:, : len(terms)] = fit.draws
    return Middle(coef, draws)


#: Of prompts up to so many new tokens attention hardly counts.
SHORT_TOKENS = 2000.0
#: Fewer requests than this make no line through the middle.
FEWEST_FREE = 20
#: Resamples of such a line.
MIDDLE_DRAWS = 60


def _flat(u: Array, ttft: Array, how: str, lonely: bool) -> Prefill:
    """All lengths alike: the level is known, the split between constant and slope is not."""
    level = float(np.quantile(ttft, 0.5 if lonely else 0.1))
    per_1k = level / max(float(np.median(u)), 1e-3)
    noise = 1.4826 * float(np.median(np.abs(ttft - np.median(ttft)))) if lonely else 0.1 * level
    return Prefill(
        fixed=0.0, per_1k=per_1k, per_1k_1k=0.0, per_1k_context=0.0, draws=np.zeros((0, 4)),
        has_attention=False, has_context=False, separable=False, n=len(u),
        method=tr(
            "level of {requests}: the lengths hardly vary, so constant and slope cannot be told "
            "apart and all is counted as prefill",
            requests=how,
        ),
        noise_s=noise, noise_share=noise / max(level, 1e-9),
    )  # fmt: skip


def _same_lengths(rows: Rows, some: NDArray[np.bool_], all_: NDArray[np.bool_]) -> bool:
    """Whether the quiet rows reach as far in length as the rest, so nothing is extrapolated."""
    reach = quantile(rows.uncached[where(some)], 0.95)
    return reach >= 0.7 * quantile(rows.uncached[where(all_)], 0.95)


def _clusters(session: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Cluster numbers from 0; lone rows are their own; None with too few sessions to resample."""
    alone = session < 0
    codes = session.astype(np.int64).copy()
    codes[alone] = session.max(initial=0) + 1 + np.arange(alone.sum())
    unique, coded = np.unique(codes, return_inverse=True)
    return coded.astype(np.int64) if len(unique) >= 8 else None


def fit_decode(rows: Rows, load: Load) -> Decode | None:
    """Time per output token after the first: its level alone, and slopes in context and load.

    TPOT = (E2E - TTFT) / (output - 1). Short answers are left out where there are enough others:
    the first steps after a prefill are slower.
    """
    steps = rows.outputs - 1
    known = rows.measured & np.isfinite(rows.e2e) & (steps >= 1) & (rows.e2e > rows.ttft)
    if known.sum() < 5:
        return None
    longer = known & (steps >= 15)
    used = longer if longer.sum() >= max(20, 0.3 * known.sum()) else known
    index = np.flatnonzero(used)
    if len(index) > FIT_ROWS:
        index = np.sort(np.random.default_rng(8).choice(index, FIT_ROWS, replace=False))
    per_token = (rows.e2e[index] - rows.ttft[index]) / steps[index]
    columns, names = [np.ones(len(index))], ["level"]
    context = (np.nan_to_num(rows.inputs[index]) + rows.outputs[index] / 2) / 1e3
    running = load.running[index]
    if np.isfinite(rows.inputs[index]).all() and np.ptp(context) > 0.2:
        columns.append(context - np.median(context))
        names.append("context")
    if np.isfinite(running).all() and np.ptp(running) >= 2:
        columns.append(running)
        names.append("running")
    slopes: dict[str, float | None] = {"context": None, "running": None}
    if len(names) > 1 and len(index) >= 10:
        free = tuple(range(1, len(names)))
        fit = quantile_fit(np.column_stack(columns), per_token, free=free)
        slopes.update(zip(names[1:], (float(v) for v in fit.coef[1:]), strict=True))
    # The cost of a token is what a request pays that shares its steps with nobody.
    alone = running == 0
    few = alone.sum() < max(10, 0.02 * len(index))
    chosen = np.ones(len(index), dtype=bool) if few else alone
    level = quantile_fit(
        np.ones((int(chosen.sum()), 1)),
        per_token[chosen],
        clusters=_clusters(rows.session[index][chosen]),
        resamples=100,
    )
    who = tr("all requests") if few else tr("requests that found nobody in flight")
    return Decode(
        per_token=float(np.median(per_token[chosen])),
        interval=level.interval(0),
        per_1k_context=slopes["context"],
        per_running=slopes["running"],
        n=int(chosen.sum()),
        method=tr("median of (E2E - TTFT) / (output tokens - 1) of {requests}", requests=who),
    )


def tpot(rows: Rows) -> Array:
    """Seconds per output token after the first, NaN where unknown."""
    steps = np.where(rows.outputs >= 2, rows.outputs - 1, np.nan)
    values: Array = (rows.e2e - rows.ttft) / steps
    return values


def follows(x: Array, y: Array) -> float | None:
    """Rank correlation over the rows where both are known."""
    both = where(np.isfinite(x) & np.isfinite(y))
    return rank_correlation(x[both], y[both])


def all_follow(columns: Iterable[Array], y: Array) -> list[float | None]:
    """:func:`follows` of each column; ``y`` is ranked once, as far as all of it is known."""
    known = len(y) <= MOST_ROWS and np.isfinite(y).all()
    ranked = rank(y) if known else y
    return [
        ranks_correlation(rank(x), ranked) if known and np.isfinite(x).all() else follows(x, y)
        for x in columns
    ]


@dataclass(frozen=True)
class Lines:
    """The line of each model, and the one that stands for the log (most requests)."""

    main: Prefill
    by_model: dict[int, Prefill]
    codes: NDArray[np.int64]

    def before(self) -> Lines:
        """The same with the lines from before a change for all rows."""
        early = {code: line for code, line in self.by_model.items() if code < AFTER}
        return Lines(self.main, early, self.codes % AFTER)

    def each(self) -> list[tuple[NDArray[np.bool_], Prefill]]:
        """Masks that cover all rows, each with its line."""
        rest = np.ones(len(self.codes), dtype=bool)
        out = []
        for code, line in self.by_model.items():
            mask = self.codes == code
            out.append((mask, line))
            rest &= ~mask
        if rest.any():
            out.append((rest, self.main))
        return out

    def work(self, at: Index) -> Callable[[Array, Array], Array]:
        """What gives, for uncached tokens and context of these rows, their seconds of prefill.

        Each by its own line, without the constant part.
        """
        lines = self.each()
        if len(lines) == 1:
            return lines[0][1].work
        slopes = np.empty((3, len(at)))
        for mask, line in lines:
            own = np.array([line.per_1k, line.per_1k_1k, line.per_1k_context])
            slopes[:, mask[at]] = own[:, None]

        def work(uncached: Array, context: Array) -> Array:
            return _work(uncached, context, *slopes)

        return work


def model_groups(rows: Rows) -> list[NDArray[np.bool_]]:
    """Models served here that have enough rows for a line of their own; one group if none."""
    scope = rows.scopes.get("model")
    if scope is not None and len(scope.names) > 1:
        masks = []
        for code in range(len(scope.names)):
            mask = scope.codes == code
            if (mask & rows.measured).sum() >= 6:
                masks.append(mask)
        if len(masks) > 1:
            return masks[:12]
    return [np.ones(rows.n, dtype=bool)]


#: Added to the code of a model for the rows after a change.
AFTER = 1 << 20


def fit_lines(rows: Rows, load: Load, after: Mask | None = None) -> Lines | None:
    """Fit one prefill line a model, or one for all; a bare level where tokens are unknown.

    ``after`` are rows since a change of the service: they get lines of their own, and the main
    line is one from before. None without any usable TTFT.
    """
    scope = rows.scopes.get("model")
    codes = scope.codes if scope is not None else np.zeros(rows.n, dtype=np.int64)
    groups = model_groups(rows)
    if after is not None:
        if len(groups) == 1:
            codes = np.zeros(rows.n, dtype=np.int64)
        halves = [(mask & ~after, mask & after) for mask in groups]
        enough = [all((half & rows.measured).sum() >= 6 for half in pair) for pair in halves]
        groups = [
            part
            for mask, pair, both in zip(groups, halves, enough, strict=True)
            for part in (pair if both else (mask,))
        ]
        split = [pair[1] for pair, both in zip(halves, enough, strict=True) if both]
        codes = codes + AFTER * np.any(split, axis=0) if split else codes
    if len(groups) > 1:
        fitted: dict[int, tuple[int, Prefill]] = {}
        for mask in groups:
            line = _fit_or_level(rows, load, mask, RESAMPLES // 2)
            if line is not None:
                code = int(codes[np.argmax(mask)])
                fitted[code] = (int((mask & rows.measured).sum()), line)
        if fitted:
            early = {k: pair for k, pair in fitted.items() if k < AFTER} or fitted
            main = max(early.values(), key=lambda pair: pair[0])[1]
            return Lines(main, {k: line for k, (_, line) in fitted.items()}, codes)
    line = _fit_or_level(rows, load, None, RESAMPLES)
    return None if line is None else Lines(line, {}, codes)


def part_of(load: Load, mask: NDArray[np.bool_] | NDArray[np.intp]) -> Load:
    """The load of some of the rows."""
    return Load(**{name: value[mask] for name, value in load.__dict__.items()})


def _fit_or_level(rows: Rows, load: Load, within: Mask | None, resamples: int) -> Prefill | None:
    line = fit_prefill(rows, load, within, resamples=resamples)
    measured = rows.measured if within is None else rows.measured & within
    if line is not None or not measured.any():
        return line
    free = measured & ~(load.waiting > 0) & ~(rows.attempts > 1)
    used = free if free.sum() >= 3 else measured
    level = quantile(rows.ttft[used], 0.25)
    noise = 1.4826 * median(np.abs(rows.ttft[used] - median(rows.ttft[used])))
    return Prefill(
        fixed=level, per_1k=0.0, per_1k_1k=0.0, per_1k_context=0.0, draws=np.zeros((0, 4)),
        has_attention=False, has_context=False, separable=False, n=int(used.sum()),
        method=tr("level only: the log has too few rows with input tokens for a line"),
        noise_s=noise, noise_share=noise / max(level, 1e-9),
    )  # fmt: skip
