"""What decoding takes from first tokens: the slots it holds, and the steps it fills.

A server that decodes as many requests as it may gives the next one a slot when one of them ends:
then first tokens come right after the ends of others. And where prompts and decoding share steps,
a newcomer waits for the running step, and each step that works on its prompt decodes for all the
others as well. Both can be seen with nothing but the start, first token and end of each request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ttftdoctor.evidence import Gate
from ttftdoctor.measure.lines import FIT_ROWS, model_groups, part_of, tpot
from ttftdoctor.measure.load import Load, by_server
from ttftdoctor.measure.rows import Array, Index, Mask, Rows
from ttftdoctor.stats import MOST_ROWS, median, or_zero, pinball, quantile_fit, thin

#: Moments of each wait at which the time since the last end is looked up.
MOMENTS = 16
#: Requests whose waits are looked at; of more, a sample is.
LOOKED_AT = 5000
#: Fewer waits than this prove nothing: the mean of ten even draws is 0.5 give or take 0.09.
FEWEST = 10
#: First tokens at most this far into the time between two ends, on average, come after ends.
AFTER_END = 0.25
#: ... and from here on, they come as if by chance.
CHANCE = 0.35
#: ... All slots are taken before and after a wait for one, in this part of them at least. (After
#: a server has stood still first tokens and ends come together too, but it was not full.)
CAPPED = 0.5
#: ... give or take one, or this part of many.
ABOUT = 0.05
#: A slot is taken before the first token: nobody's own prefill takes less than what the quickest
#: request of the server took, of which this part is looked at.
QUICKEST = 0.8
#: ... Waits for ends must make up this part of all the seconds to first tokens.
HELD_SHARE = 0.25
#: A request that finds others decoding waits for half a step and is decoded in one; more than
#: twice that is no step.
MOST_STEPS = 2.0
#: Steps for each 1,000 tokens of a prompt: no engine takes it in smaller pieces than 128 tokens.
MOST_PIECES = 8.0
#: Steps must bring the loss of the fit down to this part of what it is without them.
HELPS = 0.98
#: Requests that share steps, at least, for a fit.
FEWEST_SHARED = 20
#: Parts of the log that may each have a cost of their own.
STRETCHES = 4
#: A log with a gate has at most this part of its TTFT in the engine's queue.
GATE_QUEUE = 0.1


@dataclass(frozen=True)
class Slots:
    """Waits that end when another request ends.

    ``n`` requests had another one end while they waited for their first token; theirs is
    ``share`` of all seconds to first tokens. ``after_end`` is where their first tokens lie in the
    time since the last end, among all moments of the same waits and weighed by their length: 0
    right after it, 0.5 by chance. ``most`` were decoding at a server at once; ``capped`` of the
    waits began and ended with so many (give or take one). ``full``: rows that found all slots
    taken when they arrived; none unless slots are ``held``.
    """

    n: int
    share: float
    after_end: float | None
    most: int
    capped: float
    full: Mask

    @property
    def held(self) -> bool:
        """Whether most of the waiting is for others to end."""
        return (
            self.n >= FEWEST
            and self.after_end is not None
            and self.after_end <= AFTER_END
            and self.share >= HELD_SHARE
            and self.capped >= CAPPED
        )

    @property
    def by_chance(self) -> bool:
        """Whether first tokens are seen not to come with the ends of others."""
        return self.n >= FEWEST and self.after_end is not None and self.after_end > CHANCE


def slots_of(rows: Rows) -> Slots:
    """Look whether first tokens come when other requests end, at the same server.

    Of a huge log the middle decides whether there is anything to look for.
    """
    at = _middle(rows)
    if at is not None:
        probe = _closer(rows.take(at))
        if not probe.held:
            return replace(probe, full=np.zeros(rows.n, dtype=bool))
    return _closer(rows)


def _closer(rows: Rows) -> Slots:
    """Slots that are taken just before the first token, or one quickest TTFT before it.

    What makes up that TTFT is not known: prefill comes after the slot was taken, but of two times
    that a client sees, both are late by the way back. What lies closer to the ends is right.
    """
    found = [_slots(rows, part) for part in (0.0, QUICKEST)]
    return min(found, key=lambda one: 1.0 if one.after_end is None else one.after_end)


def _middle(rows: Rows) -> Index | None:
    """The rows in the middle of a log of more than ``MOST_ROWS``, one after another."""
    if rows.n <= 2 * MOST_ROWS:
        return None
    first = (rows.n - MOST_ROWS) // 2
    return np.arange(first, first + MOST_ROWS)


def _slots(rows: Rows, part: float) -> Slots:
    """Slots taken such a part of its server's quickest TTFT before each first token."""
    ranks, spent, beside = [], [], []
    full = np.zeros(rows.n, dtype=bool)
    most = 0
    known = rows.measured & np.isfinite(rows.start) & np.isfinite(rows.e2e)
    for at in by_server(rows, known):
        start = rows.start[at]
        own = part * float(rows.ttft[at].min())
        taken = start + rows.ttft[at] - own
        last = np.sort(start + np.maximum(rows.e2e[at], rows.ttft[at]))
        since_when = np.sort(taken)
        holders = _holders(since_when, last, taken)
        # Who stands in line for a slot has taken those that are free for the moment.
        ahead = _holders(np.sort(start), last, start) - 1
        there = int(holders.max(initial=0))
        most = max(most, there)
        full[at] = ahead >= max(there - int(ABOUT * there), 1)
        ended = np.searchsorted(last, taken, "left") > np.searchsorted(last, start, "right")
        some = np.flatnonzero(ended)
        some = some[thin(len(some), LOOKED_AT)]
        if len(some) == 0:
            continue
        places = (np.arange(MOMENTS) + 0.5) / MOMENTS
        wait = rows.ttft[at][some] - own
        moments = start[some, None] + wait[:, None] * places[None, :]
        since, usual = _since_end(last, taken[some]), _since_end(last, moments)
        less = (usual < since[:, None]).mean(axis=1)
        ranks.append(less + 0.5 * (usual == since[:, None]).mean(axis=1))
        spent.append(wait * (ended.sum() / len(some)))
        least = max(there - max(int(ABOUT * there), 1), 1)
        beside.append((holders[some] >= least) & (ahead[some] >= least))
    if not ranks:
        return Slots(0, 0.0, None, most, 0.0, np.zeros(rows.n, dtype=bool))
    weight = np.concatenate(spent)
    total = max(float(weight.sum()), 1e-12)
    found = Slots(
        n=len(weight),
        share=total / max(float(rows.ttft[known].sum()), 1e-12),
        after_end=float((np.concatenate(ranks) * weight).sum() / total),
        most=most,
        capped=float((np.concatenate(beside) * weight).sum() / total),
        full=full,
    )
    if not found.held:
        return replace(found, full=np.zeros(rows.n, dtype=bool))
    return found


def _holders(taken: Array, last: Array, moment: Array) -> Index:
    """How many hold a slot at each moment; ``taken`` and ``last`` (sorted) are its two ends."""
    held: Index = np.searchsorted(taken, moment, "right") - np.searchsorted(last, moment, "right")
    return held


def _since_end(last: Array, moment: Array) -> Array:
    """Seconds from the latest end before each moment, infinite before the first."""
    before = np.searchsorted(last, moment, "left") - 1
    since: Array = np.where(before >= 0, moment - last[np.maximum(before, 0)], np.inf)
    return since


def queued(load: Load, full: Mask) -> Load:
    """The load in which a request that found all slots taken has somebody ahead of it."""
    if not full.any():
        return load
    waiting = np.where(full, np.maximum(load.waiting, 1.0), load.waiting)
    return Load(waiting, load.decoding, load.backlog, load.backlog_repeated, load.idle)


def gate_of(rows: Rows, slots: Slots) -> Gate | None:
    """A wait that ends when other requests end, of which the engine's queue knows nothing.

    Then requests are held back before the server (by the client that measures, or a limit on the
    way), and the server is not what is waited for.
    """
    if not slots.held:
        return None
    known = rows.measured & np.isfinite(rows.queue) & ~(rows.attempts > 1)
    if known.sum() < max(20, 0.5 * rows.measured.sum()):
        return None
    ttft, inside = rows.ttft[known], rows.queue[known] + or_zero(rows.prefill[known])
    outside = np.clip(ttft - inside - or_zero(rows.load[known]), 0.0, None)
    mean, held = float(ttft.mean()), float(outside.mean())
    if held < 0.5 * mean or float(rows.queue[known].mean()) > GATE_QUEUE * held:
        return None
    return Gate(seconds=held, share=held / mean, queue_s=float(rows.queue[known].mean()),
                most=slots.most, n=int(known.sum()))  # fmt: skip


@dataclass(frozen=True)
class Sharing:
    """Seconds of each TTFT that go to decoding for others in the same steps.

    ``steps`` are waited by every request that finds others decoding, ``pieces`` more for each
    1,000 tokens of its own; None where the log does not determine them. ``level`` is the median
    time of a step among those who find somebody decoding, ``alone`` what it would be with hardly
    anybody: without what grows with their number.
    """

    seconds: Array
    steps: float | None = None
    pieces: float | None = None
    level: float | None = None
    alone: float | None = None


def sharing_of(rows: Rows, load: Load, ttft: Array) -> Sharing:
    """How many decoding steps a first token takes, from requests with nobody's prefill ahead.

    Parameters
    ----------
    ttft
        Seconds, (n,): what is to be explained.

    Notes
    -----
    The time S of a step is what a token takes those who are decoding when the request arrives, as
    a line in their number: so it moves with the load alone, and not with a release or with the
    prompts of others, which would be taken for decoding. The medians of TTFT follow constant +
    a*U + steps*S + pieces*S*U with U uncached thousands of tokens. Of a huge log the middle decides
    whether there is anything to look for.
    """
    at = _middle(rows)
    if at is not None:
        probe = _sharing(rows.take(at), part_of(load, at), ttft[at])
        if probe.steps is None:
            return Sharing(np.zeros(rows.n))
    return _sharing(rows, load, ttft)


def _sharing(rows: Rows, load: Load, ttft: Array) -> Sharing:
    seen, step = _steps(rows), np.full(rows.n, np.nan)
    seconds = np.zeros(rows.n)
    steps = pieces = level = alone = None
    most = 0
    for mask in model_groups(rows):
        found = _line(seen, load.decoding, mask)
        if found is None:
            continue
        others = load.decoding[mask]
        step[mask] = np.where(others > 0, found[0] + found[1] * (others - 1), 0.0)
        free = mask & rows.measured & np.isfinite(rows.uncached) & np.isfinite(step)
        free &= ~(load.waiting > 0) & ~(rows.attempts > 1)
        shared = free & (step > 0)
        if shared.sum() < FEWEST_SHARED:
            continue
        at = np.flatnonzero(free)
        at = at[thin(len(at), FIT_ROWS)]
        fitted = _fit(rows.uncached[at] / 1e3, step[at], ttft[at], _stretches(rows.start[at]))
        if fitted is None:
            continue
        part = (fitted[0] + fitted[1] * rows.uncached / 1e3) * step
        seconds = np.where(mask & np.isfinite(part), part, seconds)
        if shared.sum() > most:
            most, (steps, pieces) = int(shared.sum()), fitted
            level, alone = median(step[shared]), found[0]
    # A first token costs something beside the steps of others.
    seconds = np.clip(np.minimum(seconds, 0.95 * or_zero(ttft)), 0.0, None)
    return Sharing(seconds, steps, pieces, level, alone)


def _stretches(start: Array) -> Array:
    """One column for each part of the log, of equal numbers of requests; (n, ``STRETCHES``)."""
    place = np.argsort(np.argsort(start, kind="stable"), kind="stable")
    part = place * STRETCHES // max(len(start), 1)
    columns: Array = (part[:, None] == np.arange(STRETCHES)[None, :]).astype(float)
    return columns


def _fit(u: Array, step: Array, ttft: Array, when: Array) -> tuple[float, float] | None:
    """Steps a request and steps a thousand tokens; None if neither clearly helps.

    They must hold in a second fit, in which every part of the log (``when``) has a constant and a
    cost of its own, or what changed between them would be taken for decoding: where that gives
    less than half, it is believed.
    """
    one = np.ones(len(u))
    scale = ttft + float(np.median(ttft))
    plain = quantile_fit(np.column_stack([one, u]), ttft, scale=scale)
    enough = HELPS * pinball(plain.residual / scale, 0.5)
    whole = quantile_fit(np.column_stack([one, u, step, step * u]), ttft, scale=scale)
    if pinball(whole.residual / scale, 0.5) > enough:
        return None  # fewer terms cannot do better
    for terms in ((step, step * u), (step,)):
        x = np.column_stack([one, u, *terms])
        fit = quantile_fit(x, ttft, scale=scale, resamples=60)
        low = np.quantile(fit.draws[:, 2:], 0.05, axis=0)
        if (low > 0).all():
            break
    else:
        return None
    if pinball(fit.residual / scale, 0.5) > enough:
        return None
    within = np.column_stack([when, when * u[:, None], *terms])
    part = quantile_fit(within, ttft, scale=scale).coef[-len(terms) :]
    least = np.where(part < 0.5 * fit.coef[2:], part, fit.coef[2:])
    pieces = min(float(least[1]), MOST_PIECES) if len(terms) > 1 else 0.0
    return min(float(least[0]), MOST_STEPS), pieces


def _line(step: Array, decoding: Array, within: Mask) -> tuple[float, float] | None:
    """Seconds of a step with one that decodes, and more for each other one."""
    at = np.flatnonzero(within & np.isfinite(step) & (step > 0) & (decoding > 0))
    at = at[thin(len(at), FIT_ROWS)]
    if len(at) < FEWEST_SHARED:
        return None
    others = decoding[at] - 1
    if np.ptp(np.quantile(others, [0.05, 0.95])) < 1:
        return float(np.median(step[at])), 0.0
    fit = quantile_fit(np.column_stack([np.ones(len(at)), others]), step[at])
    return float(fit.coef[0]), float(fit.coef[1])


def _steps(rows: Rows) -> Array:
    """Mean seconds a token of those who are decoding at each arrival; 0 if nobody is."""
    out = np.full(rows.n, np.nan)
    each = tpot(rows)
    for at in by_server(rows, rows.measured & np.isfinite(rows.start)):
        one = at[np.isfinite(each[at]) & (rows.e2e[at] > rows.ttft[at])]
        if len(one) == 0:
            continue
        first, last = rows.start[one] + rows.ttft[one], rows.start[one] + rows.e2e[one]
        started, cost_started = _running(first, each[one], rows.start[at])
        ended, cost_ended = _running(last, each[one], rows.start[at])
        there = started - ended
        cost = np.maximum(cost_started - cost_ended, 0.0)
        out[at] = np.divide(cost, there, out=np.zeros(len(at)), where=there > 0)
    return out


def _running(moment: Array, value: Array, until: Array) -> tuple[Array, Array]:
    """How many moments lie before each of ``until``, and the sum of their values."""
    order = np.argsort(moment)
    count = np.searchsorted(moment[order], until, "right")
    return count.astype(float), np.concatenate([[0.0], np.cumsum(value[order])])[count]
