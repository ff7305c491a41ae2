"""Serve the log's own arrivals again, with the prompts or the server treated.

Less prefill also means less waiting, so the cost line alone cannot tell a gain. A model of the
servers (:mod:`ttftdoctor.measure.servers`) is set so that today's waits come out; then the treated
work runs through it. What the model does not explain of a request stays with it, except for the
part that grows with its own prefill (steps shared with decoding), which shrinks as that does.

Where a session's next turn is sent after the last answer, as the log shows, the loop is closed:
answers that end sooner bring the next turns forward, and slower ones put them back. The waits and
the arrivals that follow from each other are found by repeating both a few times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ttftdoctor.language import tr
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.lines import Lines, Prefill
from ttftdoctor.measure.queues import Loop, between, loop_of
from ttftdoctor.measure.rows import Array, Index, Mask, Rows, clusters_of
from ttftdoctor.measure.servers import Servers, Traffic, fit
from ttftdoctor.stats import mean_interval, median, or_zero, quantile
from ttftdoctor.treatment import Treatment

#: Of a log of more than ``STRETCHES * STRETCH_ROWS`` rows, this many stretches of this many
#: requests in a row are served again, spread evenly from the first request to the last.
STRETCHES, STRETCH_ROWS = 20, 750
#: Of more than four times as many rows, so many from the middle are served with resampled lines.
WINDOW_ROWS = 2_500
#: A wait of less than this in the model is none.
NO_WAIT_S = 1e-3
#: How often waits and arrivals are worked out from each other, in short logs and in long ones.
ROUNDS, ROUNDS_LONG, LONG = 8, 2, 6_000
#: A history is compacted once it exceeds its target by this factor: not at every turn anew.
COMPACT_AT = 1.25
#: More of the turns than this moved to another server: sessions are not kept.
MOVES = 0.05
#: More of the turns than this came before the answer: turns do not wait for answers.
EARLY = 0.05
#: Parts of the log's time in which new sessions are counted, to say what the peak has too much.
SHED_BINS = 240
#: What the model itself is off by, by the field of the treatment: half widths of a 95 % interval
#: as a part of the gain and as a part of today's mean. They were set on some 360 logs of simulated
#: services (two simulators, three levels of detail) that were served again with the remedy, so
#: that the intervals hold what then came in about 95 of 100 of them.
OFF: dict[str, tuple[float, float]] = {
    "reuse": (0.08, 0.01),
    "compact_to": (0.25, 0.07),
    "servers": (0.15, 0.04),
    "seqs": (0.1, 0.08),
    "shed": (0.1, 0.06),
    "fair": (0.25, 0.1),
    "decode_apart": (0.3, 0.1),
    "warm": (0.4, 0.1),
    "no_retries": (0.25, 0.05),
    "rolled_back": (0.2, 0.1),
    "no_constant": (0.1, 0.1),
}
#: What it cannot know of is added as far as it is there: a part of the TTFT that nothing explains;
#: and, where servers are added or decode apart, of what decode steps and cold starts cost (fewer
#: may be met, or more), and of repeated tokens computed again in spite of a cache (more room).
OFF_LOOSE, OFF_UNSEEN = 0.5, 0.7
#: ... Of a server that is busy it decides by how much decoding slowed its steps down: of the waits.
OFF_BUSY = 0.45
#: The same, where sessions already move between servers, for servers that are added.
OFF_MOVES = 0.15


@dataclass(frozen=True)
class Outcome:
    """TTFT of the treated log, seconds, and the gain as a share of today's mean.

    ``prefill_s_saved`` and ``tokens_saved`` are seconds of prefill and prompt tokens that are no
    longer computed, over the whole log (of a huge one scaled up from the rows served); below zero
    where a treatment computes more.
    """

    mean: float
    p50: float
    p95: float
    gain_share: float
    interval: tuple[float, float]
    prefill_s_saved: float = 0.0
    tokens_saved: float = 0.0


@dataclass(frozen=True)
class Work:
    """What is left to prefill under a treatment, per row.

    Seconds, computed tokens, and seconds of extra requests right before it (compactions).
    """

    own: Array
    tokens: Array
    extra: Array | None = None


@dataclass(frozen=True)
class Replay:
    """Calibrated servers on which treatments can be tried.

    The ``rows`` lie by server and arrival; the first ``queued`` of them have a start and a TTFT.
    ``blamed`` holds seconds per row laid to causes outside prefill: ``cold_start``,
    ``retry_or_ratelimit``, ``deploy_regression``, ``fixed_overhead``. ``nearby`` is tokens per row
    that its own server computed before, where sessions move between servers; ``peak`` marks the
    arrivals of the busy hours. Where the rows are a sample (``sampled``), ``scale`` is mean, median
    and 95th percentile of today's TTFT in the whole log over those in the rows served here, and
    ``parts`` how many times the prefill seconds and the computed tokens of those rows it has.
    """

    rows: Rows
    lines: Lines
    ledger: Ledger
    blamed: dict[str, Array]
    queued: int
    servers: Servers
    nearby: Array | None = None
    further: Array | None = None
    peak: Mask | None = None
    block_tokens: int = 16
    sampled: bool = False
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    parts: tuple[float, float] = (1.0, 1.0)
    tried: dict[Treatment, Outcome] = field(default_factory=dict, repr=False, compare=False)

    @property
    def stretch(self) -> float:
        """Seconds of server time per second of prefill."""
        return self.servers.stretch

    @property
    def slots(self) -> int | None:
        """Requests that a server takes at once, where that limit was met."""
        return self.servers.slots

    @property
    def closed(self) -> bool:
        """Whether turns are taken to follow the answers before them."""
        return self._loop is not None

    @property
    def assumes(self) -> tuple[str, ...]:
        """What was assumed of when requests are sent, where sessions are known."""
        if self.closed:
            return (tr("the next turn is sent as long after the answer as it was"),)
        if self.rows.session_grade == "none" or not self.rows.order_known:
            return ()
        return (tr("requests are sent when they were: no turn is seen to wait for an answer"),)

    def try_(self, treatment: Treatment) -> Outcome:
        """Serve the log again under a treatment.

        The interval joins three spreads: of the gain over sessions, of the cost line, and of the
        model itself (``OFF_GAIN`` and the like, measured on simulated services).
        """
        if treatment not in self.tried:
            self.tried[treatment] = self._try(treatment)
        return self.tried[treatment]

    def _try(self, treatment: Treatment) -> Outcome:
        before = self.rows.ttft
        after = self.serve(treatment, None)
        counted = np.isfinite(after) & np.isfinite(before)
        gain = (before - after)[counted]
        mean_before = float(before[counted].mean())
        centre = float(gain.mean())
        share = centre / mean_before
        if self.sampled:  # stretches differ in load: what matters is how their shares differ
            low, high = mean_interval(gain - share * before[counted], self._stretches[counted])
        else:
            low, high = mean_interval(gain, clusters_of(self.rows.session[counted], 9))
        half = np.hypot((high - low) / 2, self._line_spread(treatment, centre)) / mean_before
        half = float(np.hypot(half, self._off(treatment, share)))
        mean, p50, p95 = (
            a * b for a, b in zip(_mean_p50_p95(after[counted]), self.scale, strict=True)
        )
        work = self._prefill(treatment, None)
        extra = 0.0 if work.extra is None else float(work.extra.sum())
        return Outcome(
            mean=mean,
            p50=p50,
            p95=p95,
            gain_share=share,
            interval=(share - half, min(share + half, 1.0)),
            prefill_s_saved=self.parts[0] * (float(np.nansum(self._own - work.own)) - extra),
            tokens_saved=self.parts[1] * float(np.nansum(self.rows.uncached - work.tokens)),
        )

    def _off(self, t: Treatment, share: float) -> float:
        """What the model itself is off by, in shares of today's mean."""
        usual = Treatment()
        changed = [name for name in OFF if getattr(t, name) != getattr(usual, name)]
        if not changed or (abs(share) < 1e-9 and not t.queues):
            return 0.0
        squares = [OFF_LOOSE * self._loose if t.queues or share else 0.0]
        for name in changed:
            part, whole = OFF[name]
            squares += [part * share, whole]
        if t.servers != 1 or t.decode_apart:
            squares.append(OFF_UNSEEN * self._unseen)
        if t.servers != 1 and self.moves:
            squares.append(OFF_MOVES)
        if t.decode_apart:
            total = max(float(np.nansum(self.rows.ttft)), 1e-9)
            squares.append(OFF_BUSY * float(np.nansum(self._behind)) / total)
        return float(np.linalg.norm(squares))

    @cached_property
    def _unseen(self) -> float:
        """Share of today's TTFT that added servers change in ways that the log cannot tell."""
        total = max(float(np.nansum(self.rows.ttft)), 1e-9)
        seconds = float(np.nansum(self.ledger.decoding))
        cold = self.blamed.get("cold_start")
        if cold is not None:
            seconds += float(np.nansum(cold))
        if np.nansum(self.rows.cached) > 0:
            for name in ("prefill_repeated", "queue_behind_repeated"):
                seconds += float(np.nansum(self.ledger.accounts[name]))
        return min(seconds / total, 1.0)

    def _line_spread(self, treatment: Treatment, centre: float) -> float:
        """Half width of the gain over four resampled lines, enough for an error's size."""
        if self.lines.main.draws.shape[0] < 20:
            return 0.05 * abs(centre)
        some = self.window
        gains = []
        for index in (3, 11, 17, 19):
            gain = some.rows.ttft - some.serve(treatment, index)
            known = np.isfinite(gain)
            gains.append(float(gain[known].mean()) if known.any() else 0.0)
        return 1.96 * float(np.std(gains, ddof=1))

    @cached_property
    def window(self) -> Replay:
        """All of a short log; of a longer one the ``WINDOW_ROWS`` in its middle."""
        n = self.rows.n
        if n <= 4 * WINDOW_ROWS:
            return self
        place = np.empty(n, dtype=np.int64)
        place[np.argsort(self.rows.start, kind="stable")] = np.arange(n)
        at = np.flatnonzero(np.abs(place - n // 2) < WINDOW_ROWS // 2)
        queued = int(np.searchsorted(at, self.queued))
        part = replace(
            _taken(self, at), queued=queued, servers=replace(self.servers, waits=np.zeros(0))
        )
        traffic = part.traffic
        waits = self.servers.serve(
            traffic.start, traffic.work, or_zero(traffic.hold), traffic.server
        )
        return replace(part, servers=replace(self.servers, waits=waits))

    @cached_property
    def _stretches(self) -> Index:
        """The number of the stretch that a row of the sample lies in."""
        order = np.argsort(self.rows.start, kind="stable")
        out = np.empty(self.rows.n, dtype=np.int64)
        out[order] = np.arange(self.rows.n) // STRETCH_ROWS
        return out

    # ------------------------------------------------------------------------- what is known

    @cached_property
    def _own(self) -> Array:
        """Seconds of prefill of each row."""
        accounts = self.ledger.accounts
        return accounts["prefill_new"] + accounts["prefill_repeated"]

    @cached_property
    def _behind(self) -> Array:
        """Seconds that each row waited for the prefill of others."""
        accounts = self.ledger.accounts
        return accounts["queue_behind_repeated"] + accounts["queue_behind_new"]

    @cached_property
    def _left(self) -> Array:
        """Seconds per row that nothing explains and no cause was blamed for, never below zero."""
        left = or_zero(self.ledger.accounts["unexplained"])
        for seconds in self.blamed.values():
            left = left - or_zero(seconds)
        return np.maximum(left, 0.0)

    @cached_property
    def _shared(self) -> Array:
        """Seconds per row of steps that also decode for others, or that nothing explains."""
        result: Array = self._left + or_zero(self.ledger.steps)
        return result

    @cached_property
    def _loose(self) -> float:
        """Share of today's TTFT that nothing explains."""
        if self.slots is not None:
            return 0.0
        return float(self._left.sum() / max(float(np.nansum(self.rows.ttft)), 1e-9))

    @cached_property
    def _drag(self) -> float:
        """Seconds per second of own prefill that steps take longer since others decode in them.

        The slope of a least-squares line, the largest values cut off at their 98 % quantile.
        """
        known = np.isfinite(self._own)
        x, y = self._own[known], self._shared[known]
        if len(x) < 20 or np.ptp(x) == 0:
            return 0.0
        y = np.minimum(y, quantile(y, 0.98))
        x = x - x.mean()
        return float(np.clip((x * (y - y.mean())).sum() / (x * x).sum(), 0.0, 1.0))

    @cached_property
    def traffic(self) -> Traffic:
        """What came to the servers."""
        rows, at = self.rows, slice(0, self.queued)
        behind = or_zero(self._behind[at])
        other = or_zero(self.ledger.accounts["queue_other"][at])
        return Traffic(
            start=rows.start[at],
            ttft=rows.ttft[at],
            work=or_zero(self._own[at]),
            hold=np.maximum(rows.e2e - rows.ttft, 0.0)[at],
            tokens=or_zero(rows.outputs)[at],
            server=rows.server[at],
            behind=behind,
            waited=behind + other + self._left[at],
        )

    @cached_property
    def _held(self) -> Array:
        """Seconds from first to last token of the rows that queue, 0 where unknown."""
        return or_zero(self.traffic.hold)

    @cached_property
    def _stalled(self) -> Array:
        t = self.traffic
        first = t.start + t.ttft
        return between(first, first + self._held, t.work, t.server)

    @cached_property
    def _loop(self) -> Loop | None:
        """The loop of sessions; None where turns do not wait for answers, or that is unknown."""
        rows, at = self.rows, slice(0, self.queued)
        session, gap = rows.session[at], rows.gap[at]
        if not rows.order_known or session.max(initial=-1) < 0:
            return None
        known = np.flatnonzero(np.isfinite(gap))
        if len(known) < 2 or float(np.isfinite(rows.e2e[at]).mean()) < 0.8:
            return None
        if float((gap[known] < -1e-3).mean()) > EARLY:
            return None
        return loop_of(session, rows.start[at], gap)

    @cached_property
    def _first(self) -> Index:
        """For each row the first row of its session; itself where it has none."""
        order = self._by_session
        session = self.rows.session[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (session[1:] != session[:-1]) | (session[1:] < 0)
        out = np.empty(len(order), dtype=np.int64)
        out[order] = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
        return out

    @cached_property
    def _lot(self) -> Index:
        """A number per session, or lone request, that looks drawn at random.

        It comes from when the session began, so that names and numbers of sessions do not matter.
        """
        place = np.empty(self.rows.n, dtype=np.uint64)
        place[np.argsort(self.rows.start, kind="stable")] = np.arange(self.rows.n, dtype=np.uint64)
        mixed = place[self._first] * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> np.uint64(40)).astype(np.int64)

    # ------------------------------------------------------------------------- treated

    @cached_property
    def _now(self) -> Array:
        return self._seconds(self.rows.uncached, self.rows.context, None)

    def _seconds(self, uncached: Array, context: Array, draw: int | None) -> Array:
        """Seconds of prefill of these tokens by the line of each row, or by one resampled."""
        out = np.zeros(self.rows.n)
        for at, line in self._lines:
            used = line if draw is None else _drawn(line, draw)
            out[at] = used.work(uncached[at], context[at])
        return out

    @cached_property
    def _lines(self) -> list[tuple[Index, Prefill]]:
        return [(np.flatnonzero(mask), line) for mask, line in self.lines.each()]

    def _prefill(self, t: Treatment, draw: int | None) -> Work:
        """Seconds of prefill and computed tokens of each row under a treatment."""
        rows = self.rows
        scattered = self.moves and t.servers > 1 and not t.pinned
        if not (t.reuse or t.compact_to is not None or scattered):
            return Work(self._own, rows.uncached)
        inputs, repeated, cached = rows.inputs, or_zero(rows.repeated), rows.context
        history = None
        if t.compact_to is not None:
            cut, history = compacted(rows, self._by_session, t.compact_to, self._head)
            inputs = inputs - cut
            # A summary is new text: nothing of it was computed before, except for the head.
            head = np.minimum(repeated, self._head)
            repeated = np.where(history > 0, head, np.clip(repeated - cut, head, None))
            head = np.minimum(cached, self._head)
            cached = np.where(history > 0, head, np.clip(cached - cut, head, None))
        if t.reuse:
            there = repeated
            if self.nearby is not None and not t.pinned:
                there = np.minimum(repeated, np.maximum(self.nearby, self._head))
            whole = np.floor(there / self.block_tokens) * self.block_tokens
            cached = np.maximum(cached, np.minimum(whole, np.maximum(inputs - 1, 0)))
        if scattered and self.further is not None:
            # Each server's visits are drawn among ``servers``: with a chance of one in so many the
            # last one was here, or else the one before; further back only the shared head counts.
            same = 1 / t.servers
            earlier = same * np.minimum(cached, self.further)
            never = (1 - same) * np.minimum(cached, self._head)
            cached = same * cached + (1 - same) * (earlier + never)
        then = self._seconds(inputs - cached, cached, draw)
        now = self._now if draw is None else self._seconds(rows.uncached, rows.context, draw)
        extra = None
        if history is not None and history.any():
            # What is summarised is read once more, from the cache as far as it lies there.
            part = np.clip(rows.context / np.maximum(or_zero(rows.repeated), 1.0), 0.0, 1.0)
            again = history * (1.0 if t.reuse else part)
            extra = np.where(history > 0, self._seconds(history - again, again, draw), 0.0)
        return Work(np.clip(self._own + then - now, 0.0, None), inputs - cached, extra)

    @cached_property
    def moves(self) -> bool:
        """Whether sessions go from server to server."""
        return self.nearby is not None

    @cached_property
    def _head(self) -> float:
        """Tokens that even first turns find in a cache: a head that sessions share."""
        found = self.rows.cached[(self.rows.turn <= 1) & np.isfinite(self.rows.cached)]
        return median(found) if len(found) >= 3 else 0.0

    @cached_property
    def _decoding(self) -> Array:
        """Requests between first and last token at each row's server when it arrived."""
        t, out = self.traffic, np.zeros(self.rows.n)
        first = t.start + t.ttft
        last = first + self._held
        apart = float(last.max(initial=0.0)) + 1.0
        shift = t.server * apart
        begun = np.searchsorted(np.sort(first + shift), t.start + shift, side="right")
        ended = np.searchsorted(np.sort(last + shift), t.start + shift, side="right")
        out[: self.queued] = np.maximum(begun - ended, 0)
        return out

    @cached_property
    def _step(self) -> tuple[float, float]:
        """Seconds of a decode step, and by how much each request that decodes makes it longer."""
        t = self.traffic
        known = (self._held > 0) & (t.tokens > 1)
        if known.sum() < 20:
            return 0.0, 0.0
        each = self._held[known] / (t.tokens[known] - 1)
        many = self._decoding[: self.queued][known]
        each = np.minimum(each, quantile(each, 0.9))
        spread = float(many.var())
        slope = float(((many - many.mean()) * (each - each.mean())).mean()) / max(spread, 1e-9)
        slope = max(slope, 0.0) if spread > 0 else 0.0
        return max(float(each.mean()) - slope * float(many.mean()), 0.0), slope

    def _steps_left(self, servers: float) -> Array:
        """Part of the waits for steps of others' decoding that is left among more servers.

        With a chance of one in ``servers`` each of those who decode is at the same one; and the
        steps of fewer are shorter, as far as the log shows that.
        """
        many = self._decoding
        met = np.where(many > 0, 1 - servers**-many, 1.0)
        level, slope = self._step
        whole = level + slope * many
        shorter = np.divide(
            level + slope * many / servers, whole, out=np.ones(len(many)), where=whole > 0
        )
        result: Array = met * shorter
        return result

    @cached_property
    def _by_session(self) -> Index:
        """All rows by session and start."""
        return np.lexsort((self.rows.start, self.rows.session))

    def serve(self, t: Treatment, draw: int | None = None) -> Array:
        """TTFT of each request under a treatment, by the fitted line or one resample of it."""
        rows, q = self.rows, slice(0, self.queued)
        fixed = or_zero(self.ledger.accounts["fixed"])
        work = self._prefill(t, draw)
        alone = fixed + work.own + self._rest(t, work.own)
        paid = 0.0 if t.no_constant else fixed
        floor = np.minimum(rows.ttft, 0.25 * (paid + work.own))
        slower = self.blamed.get("deploy_regression") if t.rolled_back else None
        if work.own is self._own and not t.queues and slower is None:
            after: Array = np.maximum(alone + self._waited, floor)
            return after
        needs = or_zero(work.own[q])
        if slower is not None:  # others wait less behind what costs less again
            needs = needs * needs / np.maximum(needs + or_zero(slower[q]), 1e-9)
        extra = None if work.extra is None else work.extra[q]
        base = self._moved(t)
        held = np.zeros(self.queued) if t.decode_apart else self._held
        start, hold = base, held
        server = self._home if t.pinned and self.moves else rows.server[q]
        rounds = ROUNDS if self.queued <= LONG else ROUNDS_LONG
        follows = self.slots is not None or self.queued <= LONG
        for step in range(rounds):
            waits = np.zeros(rows.n)
            waits[q] = self._waits(
                t, start, needs if extra is None else needs + extra, hold, server
            )
            after = np.maximum(alone + self._carry(waits), floor)
            late = or_zero(after - rows.ttft)[q]
            kept = hold
            if self.servers.stall > 0 and follows and not t.decode_apart:
                first = start + after[q].clip(0.0)
                first = np.where(np.isfinite(first), first, start)
                others = between(first, first + hold, needs, server)
                held_up = self.servers.stall * (others - self._stalled)
                kept = np.maximum(held + held_up, 0.02 * held)
            then = base
            if self._loop is not None:
                late = late + (kept - held)
                then = base + self._loop.shift(late if extra is None else late + extra)
            if step == rounds - 1 or (
                float(np.abs(then - start).max(initial=0.0)) < 1e-3
                and (self.slots is None or float(np.abs(kept - hold).max(initial=0.0)) < 1e-3)
            ):
                break
            half = 1.0 if step == 0 else 0.5
            start = start + half * (then - start)
            hold = hold + half * (kept - hold)
        return after

    @property
    def _waited(self) -> Array:
        """What each waited today, as far as the model of the servers speaks of it."""
        if self.slots is None:
            return self._behind
        return self._behind + self.ledger.accounts["queue_other"] + self._left

    def _rest(self, t: Treatment, work: Array) -> Array:
        """What the model of the servers does not speak of, per row."""
        ledger, own = self.ledger, self._own
        other, rest = ledger.accounts["queue_other"], ledger.accounts["unexplained"]
        if self.slots is not None:
            rest = rest - self._left
            other = np.zeros(self.rows.n)
        else:
            if t.decode_apart:
                other = other - ledger.decoding
            steps = ledger.steps
            if t.servers != 1 and not t.decode_apart:
                other = (other - steps) / t.servers + steps * self._steps_left(t.servers)
            if t.seqs != 1:
                taken = np.clip(ledger.decoding - steps, 0.0, None)
                other = other - taken * (1 - 1 / t.seqs)
            if work is not own:
                rest = rest - self._freed(work)
        for flag, cause in (
            (t.warm, "cold_start"),
            (t.no_retries, "retry_or_ratelimit"),
            (t.rolled_back, "deploy_regression"),
            (t.no_constant, "fixed_overhead"),
        ):
            if flag and cause in self.blamed:
                rest = rest - self.blamed[cause]
        return other + rest

    def _freed(self, work: Array) -> Array:
        """Seconds of steps that go with the prefill: in all, drag times what is saved."""
        own = or_zero(self._own)
        fewer = np.clip(1 - or_zero(work) / np.maximum(own, 1e-9), 0.0, 1.0)
        loose = self._shared * fewer
        total = float(loose.sum())
        if total <= 0:
            return loose
        return loose * min(1.0, max(self._drag * float(np.nansum(own - work)) / total, 0.0))

    def _waits(self, t: Treatment, start: Array, needs: Array, hold: Array, server: Index) -> Array:
        """Waits in the model of the servers, of the rows that queue.

        How arrivals are shared out among added servers is not known: halfway between one line
        for all and sessions that are drawn to one server each.
        """
        serve = self.servers.serve
        if t.servers == 1:
            return serve(start, needs, hold, server, seqs=t.seqs, fair=t.fair)
        speed = t.servers
        pooled = serve(start, needs, hold, server, speed=speed, seqs=t.seqs * speed, fair=t.fair)
        many = int(np.ceil(speed))
        apart = server * many + self._lot[: self.queued] % many
        split = serve(start, needs, hold, apart, speed=speed / many, seqs=t.seqs, fair=t.fair)
        return (pooled + split) / 2

    @cached_property
    def _home(self) -> Index:
        """The server on which each session began."""
        return self.rows.server[self._first][: self.queued]

    def _moved(self, t: Treatment) -> Array:
        """When each is sent, with what the peak has too much moved out of it."""
        start = self.rows.start[: self.queued]
        if not t.shed or self.peak is None:
            return start
        return start + _shed(self.rows, self._first, self._lot, self.peak)[: self.queued]

    def _carry(self, waits: Array) -> Array:
        """Today's wait, scaled as the model's wait changes; where it saw none, as it adds."""
        today, modelled = self._waited, self._modelled
        whole = float(modelled.sum())
        ratio = float(waits.sum()) / whole if whole > 0 else 1.0
        own = np.full(len(modelled), ratio)
        np.divide(waits, modelled, out=own, where=modelled > NO_WAIT_S)
        result: Array = today * np.clip(own, 0.0, 10.0, out=own)
        fresh = np.flatnonzero((modelled <= NO_WAIT_S) & (today <= 0))
        result[fresh] += waits[fresh]
        return result

    @cached_property
    def _modelled(self) -> Array:
        out = np.zeros(self.rows.n)
        out[: self.queued] = self.servers.waits
        return out


def _shed(rows: Rows, head: Index, lot: Index, peak: Mask) -> Array:
    """Seconds by which each row moves when the peak keeps only the usual rate of new sessions.

    Sessions that began in the peak beyond the rate outside it begin at other times instead, spread
    evenly over them; a session moves as a whole.
    """
    begins = np.flatnonzero(head == np.arange(rows.n))
    begins = begins[np.isfinite(rows.start[begins])]
    moved = np.zeros(rows.n)
    inside = peak[begins]
    known = np.isfinite(rows.start)
    low, high = float(rows.start[known].min()), float(rows.start[known].max())
    edges = np.linspace(low, high + 1e-6, SHED_BINS + 1)
    bins = np.clip(np.searchsorted(edges, rows.start[begins], side="right") - 1, 0, SHED_BINS - 1)
    busy = np.bincount(bins[inside], minlength=SHED_BINS) > 0.5 * np.bincount(
        bins, minlength=SHED_BINS
    )
    if busy.all() or not busy.any() or inside.all() or not inside.any():
        return moved
    excess = 1 - (float((~inside).sum()) / float((~busy).sum())) / (
        float(inside.sum()) / float(busy.sum())
    )
    if excess <= 0:
        return moved
    luck = (lot % 65_536) / 65_536
    goes = begins[inside & (luck[begins] < excess)]
    quiet = np.flatnonzero(~busy)
    place = luck[goes] / excess * len(quiet)
    which = quiet[np.minimum(place.astype(np.int64), len(quiet) - 1)]
    width = edges[1] - edges[0]
    moved[goes] = edges[which] + (place - np.floor(place)) * width - rows.start[goes]
    result: Array = moved[head]
    return result


def compacted(rows: Rows, order: Index, target: int, head: float) -> tuple[Array, Array]:
    """Tokens that each row's input lost to compaction, and the history summarised right before it.

    A later turn whose input exceeds ``target`` by ``COMPACT_AT`` is cut to it, as far as the
    ``head`` that all sessions share and the turn's new text allow; the turns after it stay shorter
    by as much. ``order`` is the rows by session and start.
    """
    cut, history = np.zeros(rows.n), np.zeros(rows.n)
    inputs = or_zero(rows.inputs)
    session = rows.session[order]
    at = np.flatnonzero(session >= 0)
    if not len(at) or float(inputs.max(initial=0.0)) <= COMPACT_AT * target:
        return cut, history
    ordered = order[at]
    code = session[at]
    first = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))
    size = np.diff(np.append(first, len(at)))
    long = np.maximum.reduceat(inputs[ordered], first) > COMPACT_AT * target
    first, size = first[long], size[long]
    lost = np.zeros(len(first))
    fresh = inputs - or_zero(rows.previous_input) - or_zero(rows.previous_output)
    for turn in range(int(size.max(initial=0))):
        going = size > turn
        row = ordered[first[going] + turn]
        less = lost[going]
        # What was cut short today already has nothing left of the older history.
        less = np.where(inputs[row] < 0.98 * or_zero(rows.previous_input)[row], 0.0, less)
        left = inputs[row] - less
        over = (left > COMPACT_AT * target) & (rows.turn[row] > 1)
        new = np.clip(fresh[row], 0.0, None)
        kept = np.maximum(target, head + new)
        over &= left > kept
        history[row] = np.where(over, np.clip(left - new, 0.0, None), 0.0)
        less = np.where(over, inputs[row] - kept, less)
        cut[row] = less
        lost[going] = less
    return cut, history


def calibrate(
    rows: Rows,
    lines: Lines,
    ledger: Ledger,
    blamed: dict[str, Array],
    block_tokens: int = 16,
    peak: Mask | None = None,
) -> Replay:
    """Set the model of the servers so that today's waits come out.

    Of a huge log only stretches are served; what still waits at the end of one is worked off
    before the next begins.
    """
    scale, parts = (1.0, 1.0, 1.0), (1.0, 1.0)
    nearby, further = _nearby(rows)
    sampled = rows.n > STRETCHES * STRETCH_ROWS
    at = np.arange(rows.n)
    if sampled:
        whole, sums = _levels(rows, ledger), _sums(rows, ledger)
        first = np.linspace(0, rows.n - STRETCH_ROWS, STRETCHES).astype(np.int64)
        at = (first[:, None] + np.arange(STRETCH_ROWS)).ravel()
    lies = at[np.isfinite(rows.start[at]) & rows.measured[at]]
    if not rows.order_known:
        lies = lies[:0]
    lies = lies[np.argsort(rows.server[lies], kind="stable")]
    apart = np.ones(rows.n, dtype=bool)
    apart[lies] = False
    at = np.concatenate([lies, at[apart[at]]])
    empty = Servers(0.0, None, False, 0.0, np.zeros(len(lies)))
    model = Replay(
        rows, lines, ledger, blamed, len(lies), empty, nearby, further, peak, block_tokens, sampled
    )
    model = _taken(model, at)
    if sampled:
        some, fewer = _levels(model.rows, model.ledger), _sums(model.rows, model.ledger)
        scale = whole[0] / some[0], whole[1] / some[1], whole[2] / some[2]
        parts = sums[0] / max(fewer[0], 1e-9), sums[1] / max(fewer[1], 1.0)
    if len(lies):
        model = replace(model, servers=fit(model.traffic))
    return replace(model, scale=scale, parts=parts, tried={})


def _nearby(rows: Rows) -> tuple[Array, Array] | tuple[None, None]:
    """Tokens of the session at its last visit to each row's server, and at the one before that.

    None where sessions stay on their server, or nothing is known of what repeats.
    """
    moved = rows.moved[np.isfinite(rows.moved)]
    if rows.reuse_grade == "none" or not len(moved) or float(moved.mean()) < MOVES:
        return None, None
    order = np.lexsort((rows.start, rows.server, rows.session))
    session, server = rows.session[order], rows.server[order]
    same = np.zeros(rows.n, dtype=bool)
    same[1:] = (session[1:] == session[:-1]) & (server[1:] == server[:-1]) & (session[1:] >= 0)
    said = (or_zero(rows.inputs) + or_zero(rows.outputs))[order]
    before = np.zeros(rows.n)
    before[1:] = np.where(same[1:], said[:-1], 0.0)
    earlier = np.zeros(rows.n)
    earlier[2:] = np.where(same[2:] & same[1:-1], said[:-2], 0.0)
    out, more = np.empty(rows.n), np.empty(rows.n)
    out[order], more[order] = before, earlier
    return out, more


def _taken(model: Replay, at: Index) -> Replay:
    """Everything for some of the rows."""
    return replace(
        model,
        rows=model.rows.take(at),
        lines=replace(model.lines, codes=model.lines.codes[at]),
        ledger=model.ledger.take(at),
        blamed={cause: seconds[at] for cause, seconds in model.blamed.items()},
        nearby=None if model.nearby is None else model.nearby[at],
        further=None if model.further is None else model.further[at],
        peak=None if model.peak is None else model.peak[at],
        tried={},
    )


def _levels(rows: Rows, ledger: Ledger) -> tuple[float, float, float]:
    """Mean, median and 95th percentile of the TTFTs that can be accounted for."""
    known = np.isfinite(ledger.accounts["unexplained"])
    return _mean_p50_p95(rows.ttft[known]) if known.any() else (1.0, 1.0, 1.0)


def _sums(rows: Rows, ledger: Ledger) -> tuple[float, float]:
    """Seconds of prefill and computed tokens of all rows together."""
    accounts = ledger.accounts
    seconds = float(np.nansum(accounts["prefill_new"]) + np.nansum(accounts["prefill_repeated"]))
    return seconds, float(np.nansum(rows.uncached))


def _mean_p50_p95(values: Array) -> tuple[float, float, float]:
    return float(values.mean()), quantile(values, 0.5), quantile(values, 0.95)


def _drawn(line: Prefill, draw: int) -> Prefill:
    return line.with_draw(draw) if line.draws.shape[0] > draw else line
