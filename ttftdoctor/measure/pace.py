"""A part of the service that takes longer for the same work, all through the log.

A throttled GPU, a wrong power limit or a noisy neighbour stretches every prefill by a factor: no
constant, and nothing that began within the log. What is compared is the cost of the same tokens,
among requests that found nobody ahead: a part that is busier, gets longer prompts, serves another
model or finds less in its cache is not slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Array, Index, Mask, Rows
from ttftdoctor.stats import auc, median, or_zero, quantile, thin

#: Columns whose values are parts of the service. Tenants and models differ in what they ask for.
PARTS = ("replica", "route")
#: The same work takes at least this many times as long there,
SLOWER = 1.5
#: ... for quick requests and for either half of the lengths at least this many times,
THROUGHOUT = 1.3
#: ... while the dearest and the cheapest of the others differ by no more than this.
ALIKE = 1.35
#: Fewest requests of a part, and of all others, that can be compared.
FEWEST, FEWEST_OTHERS = 12, 20
#: A request of the part takes longer than one of the others with this probability at least,
ABOVE = 0.85
#: ... which is so many standard deviations from chance (Mann and Whitney 1947).
SURE = 4.5
#: Requests compared at most.
MOST_COMPARED = 10_000
#: A prompt of which an earlier one had more than this part may be served from an unseen cache.
MOST_REPEATED = 0.2


@dataclass(frozen=True)
class Slow:
    """One slow part; ``ratio`` is how many times as long it takes, of ``n`` requests compared."""

    column: str
    value: str
    part: Mask
    ratio: float
    n: int


def comparable(rows: Rows, load: Load) -> Mask:
    """Requests whose TTFT is their own work: nobody ahead, one attempt, known tokens."""
    used = rows.measured & (rows.uncached > 0) & ~(load.waiting > 0) & ~(rows.attempts > 1)
    used &= ~(rows.load > 0)
    if not rows.cached_logged:
        # What a cache served is not known: only prompts that could find next to nothing count.
        used &= or_zero(rows.repeated) <= MOST_REPEATED * rows.inputs
    return used


def candidates(rows: Rows, load: Load, predicted: Array) -> list[Slow]:
    """Parts that seem to be slow, each the one of its column; to be held to :func:`confirmed`.

    Parameters
    ----------
    predicted
        What each row costs by one line for all parts, seconds.
    """
    used = comparable(rows, load) & (predicted > 0)
    out = []
    for column in PARTS:
        scope = rows.scopes.get(column)
        if scope is None or not 2 <= len(scope.names) <= 200:
            continue
        at = np.flatnonzero(used & (scope.codes >= 0))
        codes = scope.codes[at]
        counts = np.bincount(codes, minlength=len(scope.names))
        many = np.flatnonzero(counts >= FEWEST)
        if len(many) < 2:
            continue
        times = rows.ttft[at] / predicted[at]
        level = {int(code): median(times[codes == code]) for code in many}
        worst = max(level, key=lambda code: level[code])
        rest = [value for code, value in level.items() if code != worst]
        # The line was drawn through all parts, so the factor may come out too small here.
        if level[worst] >= THROUGHOUT * median(np.array(rest)):
            out.append(
                Slow(column, scope.names[worst], scope.codes == worst,
                     level[worst] / median(np.array(rest)), int(counts[worst]))
            )  # fmt: skip
    return sorted(out, key=lambda one: -one.ratio)


def confirmed(rows: Rows, load: Load, slow: Slow, usual: Array) -> Slow | None:
    """The part with its factor, if it is slow beyond chance and all through, and the others alike.

    Parameters
    ----------
    usual
        What each row costs by the lines of the others alone, seconds.
    """
    scope = rows.scopes[slow.column]
    used = comparable(rows, load) & (usual > 0) & (scope.codes >= 0)
    there, others = _same_lengths(rows, np.flatnonzero(used & slow.part),
                                  np.flatnonzero(used & ~slow.part))  # fmt: skip
    there, others = there[thin(len(there), MOST_COMPARED)], others[thin(len(others), MOST_COMPARED)]
    times = rows.ttft / np.where(usual > 0, usual, np.nan)
    there, others, times = _same_load(load, there, others, times)
    if len(there) < FEWEST or len(others) < FEWEST_OTHERS:
        return None
    x, y = times[there], times[others]
    ratio = median(x) / max(median(y), 1e-9)
    above = auc(x, y)
    spread = ((len(x) + len(y) + 1) / (12 * len(x) * len(y))) ** 0.5
    if ratio < SLOWER or above is None or above < max(ABOVE, 0.5 + SURE * spread):
        return None
    if quantile(x, 0.1) < THROUGHOUT * quantile(y, 0.1):
        return None  # its quick requests are as quick: the others of it wait for something
    if not (_alike(scope.codes[others], y) and _throughout(rows, there, x, median(y))):
        return None
    return Slow(slow.column, slow.value, slow.part, float(ratio), len(there))


def _same_lengths(rows: Rows, there: Index, others: Index) -> tuple[Index, Index]:
    """Those of both whose new tokens and context the other side has too."""
    for tokens in (rows.uncached, rows.context):
        if not len(there) or not len(others):
            break
        low = max(quantile(tokens[there], 0.02), quantile(tokens[others], 0.02))
        high = min(quantile(tokens[there], 0.98), quantile(tokens[others], 0.98))
        there = there[(tokens[there] >= low) & (tokens[there] <= high)]
        others = others[(tokens[others] >= low) & (tokens[others] <= high)]
    return there, others


def _same_load(load: Load, there: Index, others: Index, times: Array) -> tuple[Index, Index, Array]:
    """Those of both that met as many in flight, as multiples of what the others take there.

    Steps that decode for many take longer on any server.
    """
    met = np.nan_to_num(load.running, nan=0.0)
    crowd = np.where(met > 3, 2.0 + np.floor(np.log2(np.maximum(met, 1.0))), met)
    times = times.copy()
    kept: tuple[list[Index], list[Index]] = [], []
    for level in np.unique(crowd[there]):
        here, beside = there[crowd[there] == level], others[crowd[others] == level]
        if len(beside) < 5:
            continue
        usual = max(median(times[beside]), 1e-9)
        times[here], times[beside] = times[here] / usual, times[beside] / usual
        kept[0].append(here)
        kept[1].append(beside)
    if not kept[0]:
        return there[:0], others[:0], times
    return np.concatenate(kept[0]), np.concatenate(kept[1]), times


def _alike(codes: Index, times: Array) -> bool:
    """Whether all other parts cost about the same."""
    counts = np.bincount(codes)
    level = [median(times[codes == code]) for code in np.flatnonzero(counts >= FEWEST)]
    return not level or max(level) <= ALIKE * max(min(level), 1e-9)


def _throughout(rows: Rows, there: Index, times: Array, usual: float) -> bool:
    """Whether short and long prompts, early and late ones are all slow."""
    least = THROUGHOUT * usual
    for order in (rows.uncached[there], rows.start[there]):
        if not np.isfinite(order).all():
            continue
        ranked = times[np.argsort(order, kind="stable")]
        for part in np.array_split(ranked, 3):
            if median(part) < least:
                return False
    return True
