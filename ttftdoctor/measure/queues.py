"""Queues by running sums: who waits how long, and who comes when if answers come sooner.

Plain arrays in, plain arrays out; nothing here knows a log. All arrays have shape (n,), seconds,
finite and not negative; servers are numbered from 0. The servers are laid one behind the other in
time, so far apart that none is still busy when the next one begins: then one sort and a few
running sums do for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np

from ttftdoctor.measure.rows import Array, Index


def waits_of(arrive: Array, service: Array, server: Index) -> Array:
    """Waits of a first-come, first-served queue per server (Lindley 1952, by running minima).

    ``arrive`` need not be in order; who comes at the same moment is served in the order given.
    """
    waits = np.zeros(len(arrive))
    if not service.any():
        return waits
    apart = float(arrive.max()) + float(service.sum()) + 1.0
    begin = arrive + server * apart
    if (begin[1:] >= begin[:-1]).all():
        return _lindley(begin, service)
    order = np.argsort(begin, kind="stable")
    waits[order] = _lindley(begin[order], service[order])
    return waits


def _lindley(begin: Array, service: Array) -> Array:
    slack = np.cumsum(service)
    slack -= service
    slack -= begin
    slack -= np.minimum.accumulate(slack)
    return slack


def slotted(arrive: Array, service: Array, hold: Array, server: Index, slots: int) -> Array:
    """Waits where each server, besides, has only so many slots.

    A request holds a slot from its admission until ``hold`` seconds after its first token; it is
    admitted when one is free, and prefilled when those before it are (first come, first served:
    the recursion of Kiefer and Wolfowitz 1955 for the slots, Lindley's for prefill).
    """
    waits = np.zeros(len(arrive))
    if not len(arrive):
        return waits
    apart = float(arrive.max()) + 1.0
    order = np.argsort(arrive + server * apart, kind="stable")
    out = []
    held: list[float] = []
    last, idle = -1, 0.0
    for at, came, needs, stays in zip(
        server[order].tolist(), arrive[order].tolist(), service[order].tolist(),
        hold[order].tolist(), strict=True,
    ):  # fmt: skip
        if at != last:
            held, idle, last = [0.0] * slots, 0.0, at
        begin = held[0]
        if begin < idle:
            begin = idle
        if begin < came:
            begin = came
        out.append(begin - came)
        idle = begin + needs
        heapreplace(held, idle + stays)
    waits[order] = out
    return waits


def shared(arrive: Array, service: Array, server: Index) -> Array:
    """Waits where each server works on all that is there at once, in equal parts.

    Processor sharing (Kleinrock 1967): a wait is the time until the end, less ``service``. In the
    time of a single request's progress, everyone ends when the clock shows the moment of arrival
    plus ``service``; the clock runs at the speed of one part. Whoever is alone in a busy period
    waits for nobody and is left out.
    """
    waits = np.zeros(len(arrive))
    if not service.any():
        return waits
    apart = float(arrive.max()) + float(service.sum()) + 1.0
    begin = arrive + server * apart
    order = np.argsort(begin, kind="stable")
    behind = _lindley(begin[order], service[order]) > 0
    company = behind.copy()
    company[:-1] |= behind[1:]
    order = order[company]
    left: list[tuple[float, int]] = []  # the clock's end, and whose
    ends = [0.0] * len(order)
    now = clock = 0.0
    last = -1

    def until(moment: float, now: float, clock: float) -> tuple[float, float]:
        while left:
            then = now + (left[0][0] - clock) * len(left)
            if then > moment:
                return moment, clock + (moment - now) / len(left)
            clock, who = heappop(left)
            ends[who] = now = then
        return moment, clock

    came, needs, where = arrive[order].tolist(), service[order].tolist(), server[order].tolist()
    for who, (at, moment, work) in enumerate(zip(where, came, needs, strict=True)):
        if at != last:
            until(math.inf, now, clock)
            now, clock, last = moment, 0.0, at
        now, clock = until(moment, now, clock)
        heappush(left, (clock + work, who))
    until(math.inf, now, clock)
    waits[order] = np.maximum(np.array(ends) - arrive[order] - service[order], 0.0)
    return waits


def between(first: Array, last: Array, work: Array, server: Index) -> Array:
    """Seconds of prefill that each server did between the first and last token of each request.

    A prefill ends with its first token, and none begins before the one ahead of it has ended.
    """
    apart = float(last.max(initial=0.0)) + 1.0
    shift = server * apart
    ended = first + shift
    order = np.argsort(ended, kind="stable")
    end, took = ended[order], work[order]
    begin = end - took
    begin[1:] = np.maximum(begin[1:], end[:-1])
    done = np.cumsum(took)
    knots = np.stack([begin, end], axis=1).ravel()
    level = np.stack([done - took, done], axis=1).ravel()
    until = np.interp(last + shift, knots, level)
    since = np.empty(len(first))
    since[order] = done
    result: Array = np.maximum(until - since, 0.0)
    return result


def most_at_once(begin: Array, end: Array, server: Index) -> int:
    """The most intervals that overlap at any moment at one server."""
    if not len(begin):
        return 0
    apart = float(end.max()) + 1.0
    edges = np.concatenate([end + server * apart, begin + server * apart])
    step = np.ones(len(edges), dtype=np.int64)
    step[: len(end)] = -1
    return int(np.cumsum(step[np.argsort(edges, kind="stable")]).max())


@dataclass(frozen=True)
class Loop:
    """Which requests are sent only after another was answered.

    ``order`` sorts the rows by session and start, ``head`` is the place (in that order) of the
    first row of each row's session, and ``passes`` is 1 where the next row of the session waits
    for the end of this one, else 0.
    """

    order: Index
    head: Index
    passes: Array

    def shift(self, change: Array) -> Array:
        """Seconds by which each is sent later if each answer ends ``change`` later."""
        moved = change[self.order] * self.passes
        before = np.cumsum(moved)
        before -= moved
        out = np.empty(len(change))
        out[self.order] = before - before[self.head]
        return out


def loop_of(session: Index, start: Array, gap: Array) -> Loop:
    """The loop of sessions; ``gap`` is seconds from the previous answer's end, as logged.

    A row without a session (-1) stands alone. Who came before the answer did not wait for it.
    """
    n = len(session)
    code = session.copy()
    alone = np.flatnonzero(session < 0)
    code[alone] = session.max(initial=-1) + 1 + np.arange(len(alone))
    order = np.lexsort((start, code))
    ordered = code[order]
    new = np.ones(n, dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    head = np.repeat(first, np.diff(np.append(first, n)))
    passes = np.zeros(n)
    passes[:-1] = ~new[1:] & (gap[order][1:] >= -1e-3)
    return Loop(order, head, passes)
