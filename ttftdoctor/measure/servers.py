"""A server that waits as today's did: how fast it prefills, and whether its slots run out.

Three models are held against the waits of the log. In the first, prefill is served first come,
first served, and its speed (``stretch``) is set so that the waits have today's mean. The second
shares prefill out to all that are there (``fair``). The third has slots as well, as many as were
ever seen decoding at once at one server: where slots run out, all of them are taken. The others
are believed only where they fit the waits, request by request, clearly better than the first; on
simulated servers that had too few slots the third was mostly off by under a tenth of all waits.

Decoding and prefill share the steps of an engine. By how much a second of other people's prefill
holds up decoding (``stall``: near 1 where prefill stops it, as in most engines) comes from the
time between first and last token, so that slots are given back sooner when less is prefilled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ttftdoctor.measure.queues import between, most_at_once, shared, slotted, waits_of
from ttftdoctor.measure.rows import Array, Index

#: The model with slots must bring the summed error of the waits down to this part.
BETTER = 0.8
#: Slots are looked into where waits are at least this part of TTFT,
FEWEST = 0.01
#: and the model without them errs by more than this part of their sum.
GOOD = 0.12
#: Of more rows than this the slots are fitted to as many from the middle.
MOST = 6_000
#: Seconds of server time per second of prefill are looked for up to this.
SLOWEST = 8.0
#: Rows with a decoding time that it takes to say how prefill holds it up.
FEWEST_DECODES = 20


@dataclass(frozen=True)
class Traffic:
    """What came to the servers, by server and arrival; all seconds.

    ``behind`` is what each waited for the prefill of others, as the ledger says; ``waited`` all
    that it waited for anything but its own work. ``hold`` is first to last token, NaN if unknown.
    """

    start: Array
    ttft: Array
    work: Array
    hold: Array
    tokens: Array
    server: Index
    behind: Array
    waited: Array

    def take(self, at: slice) -> Traffic:
        """The same for some of the rows."""
        return Traffic(**{name: value[at] for name, value in self.__dict__.items()})


@dataclass(frozen=True)
class Servers:
    """The model; ``waits`` are those of today in it, ``slots`` None where none ever ran out."""

    stretch: float
    slots: int | None
    fair: bool
    stall: float
    waits: Array

    def serve(
        self,
        start: Array,
        work: Array,
        hold: Array,
        server: Index,
        *,
        speed: float = 1.0,
        seqs: float = 1.0,
        fair: bool = False,
    ) -> Array:
        """Waits of this traffic; ``speed`` times as fast, with ``seqs`` times the slots.

        Where slots run out, sharing prefill out changes little, and the slots are what counts.
        """
        service = work * (self.stretch / speed)
        if (self.fair or fair) and self.slots is None:
            return shared(start, service, server)
        if self.slots is None:
            return waits_of(start, service, server)
        return slotted(start, service, hold, server, max(round(self.slots * seqs), 1))


def fit(traffic: Traffic) -> Servers:
    """The model whose waits are those of the log."""
    t = traffic
    stretch = _stretch(waits_of, t, float(t.behind.sum()))
    waits = waits_of(t.start, t.work * stretch, t.server)
    plain = Servers(stretch, None, False, _stall(t), waits)
    total = float(t.waited.sum())
    if len(t.start) < 20 or total < FEWEST * float(t.ttft.sum()):
        return plain
    n = len(t.start)
    some = t if n <= MOST else t.take(slice((n - MOST) // 2, (n + MOST) // 2))
    best = _stretch(waits_of, some, float(some.waited.sum()))
    missed = _missed(waits_of(some.start, some.work * best, some.server), some)
    if missed < GOOD:
        return plain
    hold = np.where(np.isfinite(t.hold), t.hold, 0.0)
    few = np.where(np.isfinite(some.hold), some.hold, 0.0)
    first = t.start + t.ttft
    known = float(np.isfinite(t.hold).mean()) >= 0.8
    slots = most_at_once(first, first + hold, t.server) if known else 0
    found = plain
    if slots:

        def limited(start: Array, service: Array, server: Index) -> Array:
            return slotted(start, service, few, server, slots)

        stretch = _stretch(limited, some, float(some.waited.sum()), 2.0)
        off = _missed(limited(some.start, some.work * stretch, some.server), some)
        if off < BETTER * missed:
            missed = off / BETTER
            found = replace(plain, stretch=stretch, slots=slots)
    stretch = _stretch(shared, some, float(some.behind.sum()))
    if _missed(shared(some.start, some.work * stretch, some.server), some) < BETTER * missed:
        found = replace(plain, stretch=stretch, fair=True)
    if found is plain:
        return plain
    return replace(found, waits=found.serve(t.start, t.work, hold, t.server))


def _missed(waits: Array, t: Traffic) -> float:
    """By how much these waits are off, request by request, as a part of all waits."""
    return float(np.abs(waits - t.waited).sum() / t.waited.sum())


def _stretch(
    queue: Callable[[Array, Array, Index], Array], t: Traffic, target: float, high: float = 1.0
) -> float:
    """Seconds of server time per second of prefill at which the waits sum up to ``target``."""
    if target <= 0:
        return 0.0

    def total(stretch: float) -> float:
        return float(queue(t.start, t.work * stretch, t.server).sum())

    low = 0.0
    while high < SLOWEST and total(high) < target:
        low, high = high, 2 * high
    for _ in range(20 if queue is waits_of else 9):
        middle = (low + high) / 2
        if total(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _stall(t: Traffic) -> float:
    """Part of a second by which a second of prefill at the same server holds up decoding."""
    first = t.start + t.ttft
    hold = np.where(np.isfinite(t.hold), t.hold, 0.0)
    used = np.flatnonzero((t.tokens > 1) & (hold > 0))
    if len(used) < FEWEST_DECODES:
        return 0.0
    others = between(first, first + hold, t.work, t.server)[used]
    x = np.stack([t.tokens[used] - 1, others], axis=1)
    y = hold[used]
    # Long answers are off by more seconds than short ones: each counts by its own length.
    weight = 1 / np.maximum(y, 0.1 * float(np.median(y)))
    x, y = x * weight[:, None], y * weight
    solved = np.linalg.lstsq(x, y, rcond=None)[0]
    return float(np.clip(solved[1], 0.0, 1.0))
