"""Whether what was stamped is the first token when it is made: neither held back nor too early."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.evidence import Contrast, Early, Held
from ttftdoctor.measure.rows import Rows
from ttftdoctor.stats import Array, median, or_zero, quantile_fit, rank_correlation, thin

Mask = NDArray[np.bool_]

#: Rows that are looked at; of more, a sample is.
STAMP_ROWS = 10_000
#: Fewer tokens than this come together wherever several are decoded in one step.
HELD_TOKENS = 10
#: What is held back must be this part of the mean TTFT: otherwise something else is the matter.
HELD_SHARE = 0.4
#: So many requests at least on either side of what is compared.
ENOUGH = 5
#: New tokens that are no little: nobody computes so many in less than a step takes.
MANY_TOKENS = 1000
#: A first token in less than this part of the time of one more is none.
STEP_PART = 0.1
#: ... if so many of those with many new tokens come so early.
QUICK_SHARE = 0.6
#: Prefill that comes after the stamp is at least so many times what comes before it.
AFTER_TIMES = 3.0
#: ... and so long, from short prompts to long ones.
AFTER_S = 0.2


def early_of(rows: Rows) -> Early | None:
    """Signs that something was stamped before any token was made; None without.

    A first token takes a pass over the model, as each further one does, and before it all that is
    new must be computed. So it does not come in a small part of a step; and where its time does
    not grow with the prompt while the time after it does, prefill lay behind the stamp.
    """
    at = _timed(rows)
    at = at[np.isfinite(rows.uncached[at]) & (rows.outputs[at] >= 8)]
    if len(at) < 4 * ENOUGH:
        return None
    ttft, rest = rows.ttft[at], rows.e2e[at] - rows.ttft[at]
    if median(rest) <= 0:
        return None
    after = _prefill_after(rows.uncached[at], rows.inputs[at], rows.outputs[at], ttft, rest)
    # The quickest steps of the log: where prefill lies behind the stamp, others hold part of it.
    step = float(np.quantile(rest / (rows.outputs[at] - 1), 0.1))
    many = rows.uncached[at] >= MANY_TOKENS
    quick = 0.0
    if many.sum() >= 2 * ENOUGH and many.mean() >= 0.3:
        quick = float((ttft[many] < STEP_PART * step).mean())
    if after is None and quick < QUICK_SHARE:
        return None
    some = many if many.any() else np.ones(len(at), dtype=bool)
    return Early(
        ttft_s=median(ttft[some]),
        tokens=median(rows.uncached[at][some]),
        step_s=step,
        quick_share=quick,
        after_per_1k_s=after,
    )


def _prefill_after(
    uncached: Array, inputs: Array, outputs: Array, ttft: Array, rest: Array
) -> float | None:
    """Seconds that 1,000 new tokens add to the time after the stamp, where they add none before.

    Steps that read a long context are slower, too, but each of them is: that grows with the length
    of the answer, and is told from prefill where answers are of many lengths.
    """
    u = uncached / 1e3
    low, high = np.quantile(u, [0.1, 0.9])
    short, long = np.quantile(outputs, [0.1, 0.9])
    if high - low < MANY_TOKENS / 1e3 or long < 1.5 * short:
        return None
    ones = np.ones(len(u))
    design = np.column_stack([ones, u, outputs / 1e2, outputs * inputs / 1e6])
    fit = quantile_fit(design, rest, tau=0.5, scale=rest + 0.1 * median(rest))
    after = float(fit.coef[1])
    if after * (high - low) < max(AFTER_S, AFTER_TIMES * median(ttft)):
        return None
    before = quantile_fit(np.column_stack([ones, u]), ttft, tau=0.5).coef[1]
    follows = rank_correlation(u, rest - design[:, 2:] @ fit.coef[2:])
    if before > 0.1 * after or follows is None or follows < 0.7:
        return None
    return after


def held_of(rows: Rows) -> Held | None:
    """Tokens that something on the way holds back until it has so many, or all; None without.

    Answers shorter than that come whole, and of longer ones only what is over takes any time after
    the first token. Where short answers are merely not streamed, long ones take the time of all
    their tokens; where decoding is only quick beside the wait, so do the short ones.
    """
    at = _timed(rows)
    if len(at) < 4 * ENOUGH:
        return None
    outputs, decode = rows.outputs[at], rows.e2e[at] - rows.ttft[at]
    rate = _rate(outputs, decode, rows.e2e[at])
    if rate is None:
        return None
    tokens, per_token, off = rate
    # Steps that grow with the answer bend the line, and so does traffic: then it says nothing.
    if tokens < HELD_TOKENS or off > 0.25 * tokens * per_token:
        return None
    at_once = decode <= 0.1 * per_token * outputs
    # Buffers count bytes: near the edge an answer may fall on either side.
    short, long = outputs <= 0.8 * tokens, outputs >= 1.25 * tokens
    if long.sum() < ENOUGH or at_once[long].mean() > 0.1:
        return None
    if short.any() and at_once[short].mean() < 0.9:
        return None
    seen = bool(short.sum() >= ENOUGH)
    if not seen and not _straight(outputs, decode, rows.e2e[at], tokens, per_token):
        return None
    if not seen and np.quantile(rows.ttft[at], 0.05) < 0.8 * tokens * per_token:
        return None
    return _held(rows, at, tokens, per_token, seen=seen)


def held_on(rows: Rows, contrast: Contrast) -> Held | None:
    """The same of a path that is slower to the first token than another, but not to the last.

    A constant that a path really costs delays the end of the answer as well. Who holds tokens back
    gives them out together, so that they take no time after the first.
    """
    scope = rows.scopes[contrast.column]
    slow = scope.codes == scope.names.index(contrast.value)
    quick = scope.codes == scope.names.index(contrast.best)
    at = _timed(rows)
    there, here = at[slow[at]], at[quick[at]]
    if min(len(there), len(here)) < 2 * ENOUGH:
        return None
    late, usual = (
        _rate(rows.outputs[some], rows.e2e[some] - rows.ttft[some], rows.e2e[some])
        for some in (there, here)
    )
    if late is None or usual is None:
        return None
    tokens, per_token, _ = late
    if tokens < HELD_TOKENS or usual[0] > 0.3 * tokens:
        return None
    # What is held is what the first token is later by.
    level = median(per_token * np.minimum(rows.outputs[there], tokens))
    if not 0.6 <= level / max(contrast.constant_s, 1e-9) <= 1.6:
        return None
    if _later(rows, there, here) > 0.3 * level:
        return None
    return _held(rows, there, tokens, per_token, seen=True)


def _timed(rows: Rows) -> NDArray[np.int64]:
    """Rows with a TTFT, an end and several tokens, none of them thought in silence; a sample."""
    known = rows.measured & np.isfinite(rows.e2e) & (rows.outputs >= 2)
    known &= (rows.e2e >= rows.ttft) & (or_zero(rows.reasoning) == 0)
    at = np.flatnonzero(known)
    return at[thin(len(at), STAMP_ROWS)]


def _rate(outputs: Array, decode: Array, e2e: Array) -> tuple[float, float, float] | None:
    """Tokens that had come with the first one, and seconds for each after them; None if unclear.

    It is told from the answers that came by and by: the line of their time after the first token
    over their tokens, and where it meets the axis. The third is how far answers are off that line.
    """
    streamed = decode > 0.03 * e2e
    if streamed.sum() < ENOUGH or np.ptp(outputs[streamed]) < 2 * HELD_TOKENS:
        return None
    x, y = outputs[streamed], decode[streamed]
    design = np.column_stack([np.ones(len(x)), x])
    fit = quantile_fit(design, y, tau=0.5, scale=y + 0.1 * median(y), free=(0,))
    before, per_token = float(fit.coef[0]), float(fit.coef[1])
    if per_token <= 0:
        return None
    tokens = max(-before / per_token, 0.0)
    # Where steps differ much, it takes many answers to see where their line meets the axis.
    off = median(np.abs(fit.residual))
    if tokens >= HELD_TOKENS and off > 0.1 * len(x) ** 0.5 * tokens * per_token:
        return None
    return tokens, per_token, off


def _straight(outputs: Array, decode: Array, e2e: Array, tokens: float, per_token: float) -> bool:
    """Whether the shorter half of the answers tells of as many tokens: the line does not bend."""
    low = outputs <= median(outputs)
    part = _rate(outputs[low], decode[low], e2e[low])
    if part is None or abs(part[0] - tokens) > 0.3 * tokens:
        return False
    off = np.abs(decode[low] - per_token * (outputs[low] - tokens))
    return median(off) <= 0.15 * tokens * per_token


def _later(rows: Rows, there: NDArray[np.int64], here: NDArray[np.int64]) -> float:
    """Seconds by which whole requests take longer there than here for the same tokens."""
    at = np.concatenate([there, here])
    at = at[np.isfinite(rows.uncached[at])]
    path = np.isin(at, there).astype(np.float64)
    design = np.column_stack(
        [np.ones(len(at)), path, rows.uncached[at] / 1e3, rows.outputs[at] / 1e2]
    )
    e2e = rows.e2e[at]
    fit = quantile_fit(design, e2e, tau=0.5, scale=e2e + 0.1 * median(e2e), free=(1,))
    return float(fit.coef[1])


def _held(
    rows: Rows, at: NDArray[np.int64], tokens: float, per_token: float, *, seen: bool
) -> Held | None:
    seconds = float(np.minimum(rows.outputs[at] - 1, tokens).mean()) * per_token
    share = seconds / max(float(rows.ttft[at].mean()), 1e-9)
    if share < HELD_SHARE:
        return None
    return Held(tokens=tokens, seconds=seconds, share=min(share, 1.0), n=len(at), seen=seen)
