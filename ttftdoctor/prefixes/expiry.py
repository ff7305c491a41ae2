"""How long reusable work lies idle, what a time to live keeps of it, and when a longer one pays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ttftdoctor.language import tr
from ttftdoctor.measure.caches import Cached
from ttftdoctor.measure.trie import Trie
from ttftdoctor.prefixes.records import Expiry, Lifetime, TtlPrice
from ttftdoctor.stats import Array
from ttftdoctor.units import seconds, share

#: Lifetimes that are shown, seconds.
LIFETIMES_S = (30, 60, 120, 300, 600, 1200, 1800, 3600, 4 * 3600, 24 * 3600)
#: Lifetimes that providers sell, with what a written and a read token costs in input prices.
#: Anthropic's price page, 2026: five minutes or one hour, refreshed by every hit.
SOLD = ((300.0, 1.25, 0.1), (3600.0, 2.0, 0.1))


def expiry_curve(trie: Trie, cached: Cached, asked_s: float | None = None) -> Expiry | None:
    """Hit share by time to live in one endless cache; None without a clock or without reuse.

    A hit starts the life of a block anew, as engines and providers do it.

    Parameters
    ----------
    asked_s
        A lifetime that must be among those shown.
    """
    seen = cached.last >= 0
    total, ideal = float(trie.inputs.sum()), float(cached.hits().sum())
    if np.isnan(trie.start_s).mean() > 0.5 or ideal <= 0 or total <= 0:
        return None
    gaps, tokens = cached.gap_s[seen], cached.counted[seen].astype(np.float64)
    order = np.argsort(gaps)
    gaps, kept = gaps[order], np.cumsum(tokens[order])

    def within(ttl_s: float) -> float:
        at = int(np.searchsorted(gaps, ttl_s, side="right"))
        return float(kept[at - 1]) if at else 0.0

    times = sorted({*map(float, LIFETIMES_S), *([] if asked_s is None else [asked_s])})
    shown = [t for t in times if t <= 2 * gaps[-1] or t == asked_s] or times[:1]
    prices, even, says = _prices(within, total)
    return Expiry(
        tuple(Lifetime(t, within(t) / total, within(t) / ideal) for t in shown),
        _quantile(gaps, kept, 0.5),
        _quantile(gaps, kept, 0.8),
        _quantile(gaps, kept, 0.9),
        _quantile(gaps, kept, 0.99),
        prices,
        even,
        says,
    )


def _quantile(gaps: Array, kept: Array, part: float) -> float:
    """The idle time within which this part of the reused tokens was used again."""
    return float(gaps[min(int(np.searchsorted(kept, part * kept[-1])), len(gaps) - 1)])


def _prices(
    within: Callable[[float], float], total: float
) -> tuple[tuple[TtlPrice, ...], float | None, str]:
    """What each sold lifetime costs, the write price at which the longer breaks even, in words.

    Every prompt token is either read, or computed and written (all of it: the dearest case).
    """
    costs = [
        ((total - within(ttl)) * write + within(ttl) * read) / total for ttl, write, read in SOLD
    ]
    best = min(range(len(costs)), key=lambda i: costs[i])
    prices = tuple(
        TtlPrice(ttl, write, read, cost, i == best and cost < 1.0)
        for i, ((ttl, write, read), cost) in enumerate(zip(SOLD, costs, strict=True))
    )
    (short, _, _), (long, _, read) = SOLD
    missed = total - within(long)
    even = (costs[0] * total - within(long) * read) / missed if missed > 0 else None
    more = (within(long) - within(short)) / total
    says = tr(
        "living {long} instead of {short} keeps {more} more of the prompt tokens and costs {dear} "
        "instead of {cheap} input prices a token (no cache: 1.00)",
        long=seconds(long), short=seconds(short), more=share(more), dear=format(costs[1], ".2f"),
        cheap=format(costs[0], ".2f"),
    )  # fmt: skip
    if even is not None:
        says = tr("{says}; it pays if writing costs less than {price} input prices",
                  says=says, price=format(even, ".2f"))  # fmt: skip
    return prices, even, says
