"""Serve the log's own arrivals again, with the prompts or the server treated.

Less prefill also means less waiting, so the cost line alone cannot tell a gain. Each server is a
queue of prefill work (Lindley's recursion), its speed set so that today's waits come out; then
the treated work runs through it. What the model does not explain of a request stays with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.lines import Lines, Prefill
from ttftdoctor.measure.load import by_server
from ttftdoctor.measure.rows import Array, Index, Rows, clusters_of
from ttftdoctor.stats import MOST_ROWS, mean_interval, or_zero
from ttftdoctor.treatment import Treatment

#: Of a log of more than ``STRETCHES * STRETCH_ROWS`` rows, this many stretches of this many
#: requests in a row are served again, spread evenly from the first request to the last.
STRETCHES, STRETCH_ROWS = 20, 2_500
#: Rows of a longer log that are served again with resampled lines: as many from its middle.
WINDOW_ROWS = 10_000
#: A wait of less than this in the model is none.
NO_WAIT_S = 1e-3


@dataclass(frozen=True)
class Outcome:
    """TTFT of the treated log, seconds, and the gain as a share of today's mean."""

    mean: float
    p50: float
    p95: float
    gain_share: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Replay:
    """A calibrated server on which treatments can be tried.

    ``blamed`` holds seconds per row laid to causes outside prefill: ``cold_start``,
    ``retry_or_ratelimit``, ``deploy_regression``, ``fixed_overhead``. Where the rows are a sample
    (``sampled``), ``scale`` is mean, median
    and 95th percentile of today's TTFT in the whole log over those in the rows served here.
    """

    rows: Rows
    lines: Lines
    ledger: Ledger
    blamed: dict[str, Array]
    stretch: float
    modelled: Array
    block_tokens: int = 16
    sampled: bool = False
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    tried: dict[Treatment, Outcome] = field(default_factory=dict, repr=False, compare=False)

    def try_(self, treatment: Treatment) -> Outcome:
        """Serve the log again under a treatment.

        The interval joins the spread of the gain over sessions with that of the cost line.
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
        spread = self._line_spread(treatment, centre)
        half = float(np.hypot((high - low) / 2, spread)) / mean_before
        treated = after[counted]
        mean, p50, p95 = (a * b for a, b in zip(_mean_p50_p95(treated), self.scale, strict=True))
        return Outcome(
            mean=mean,
            p50=p50,
            p95=p95,
            gain_share=share,
            interval=(max(share - half, -1.0), min(share + half, 1.0)),
        )

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
        """All of the log, or, of more than ``MOST_ROWS``, the ``WINDOW_ROWS`` in its middle."""
        n = self.rows.n
        if n <= MOST_ROWS and not self.sampled:
            return self
        at = np.arange((n - WINDOW_ROWS) // 2, (n + WINDOW_ROWS) // 2)
        rows, lines, ledger, blamed = _taken(self.rows, self.lines, self.ledger, self.blamed, at)
        modelled = _queue(rows, or_zero(self._own[at]) * self.stretch)
        return replace(
            self, rows=rows, lines=lines, ledger=ledger, blamed=blamed, modelled=modelled
        )

    @cached_property
    def _stretches(self) -> Index:
        """The number of the stretch that a row of the sample lies in."""
        return np.repeat(np.arange(STRETCHES), STRETCH_ROWS)

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
    def _servers(self) -> list[Index]:
        return _servers(self.rows)

    @cached_property
    def _now(self) -> Array:
        return self._work(self.rows.uncached, self.rows.context, None)

    def _work(self, uncached: Array, context: Array, draw: int | None) -> Array:
        """Seconds of prefill of these tokens by the line of each row, or by one resampled."""
        out = np.zeros(self.rows.n)
        for at, line in self._lines:
            used = line if draw is None else _drawn(line, draw)
            out[at] = used.work(uncached[at], context[at])
        return out

    @cached_property
    def _lines(self) -> list[tuple[Index, Prefill]]:
        return [(np.flatnonzero(mask), line) for mask, line in self.lines.each()]

    def serve(self, t: Treatment, draw: int | None = None) -> Array:
        """TTFT of each request under a treatment, by the fitted line or one resample of it."""
        rows, ledger = self.rows, self.ledger
        fixed = or_zero(ledger.accounts["fixed"])
        own = work = self._own
        if t.reuse or t.compact_to is not None:
            inputs, cached = _treated_tokens(rows, t, self.block_tokens)
            then = self._work(inputs - cached, cached, draw)
            now = self._now if draw is None else self._work(rows.uncached, rows.context, draw)
            work = np.clip(own + then - now, 0.0, None)
        waits = self.modelled
        if work is not own or t.servers != 1:
            waits = _queue(rows, or_zero(work) * (self.stretch / t.servers), self._servers)
        wait = _carry(self._behind, self.modelled, waits)
        if t.fair:
            wait = _share_out(rows, wait, waits, or_zero(work))
        other = ledger.accounts["queue_other"]
        if t.decode_apart:
            other = other - ledger.decoding
        if t.servers != 1:
            other = other / t.servers
        elif (t.reuse or t.compact_to is not None) and float(np.nansum(own)) > 0:
            # Slots are given back sooner when less is prefilled.
            other = other * (0.5 + 0.5 * float(np.nansum(work)) / float(np.nansum(own)))
        rest = ledger.accounts["unexplained"]
        for flag, cause in (
            (t.warm, "cold_start"),
            (t.no_retries, "retry_or_ratelimit"),
            (t.rolled_back, "deploy_regression"),
            (t.no_constant, "fixed_overhead"),
        ):
            if flag and cause in self.blamed:
                rest = rest - self.blamed[cause]
        after = fixed + work + wait + other + rest
        floor = np.minimum(rows.ttft, 0.25 * (fixed + work))
        result: Array = np.maximum(after, floor)
        return result


def calibrate(
    rows: Rows, lines: Lines, ledger: Ledger, blamed: dict[str, Array], block_tokens: int = 16
) -> Replay:
    """Set the server's speed so that the modelled waits have today's mean.

    ``stretch`` is seconds of server time per second of prefill: under one where several servers
    hide behind one name, over one where decoding slows prefill down. Of a huge log only stretches
    are served; what still waits at the end of one is worked off before the next begins.
    """
    scale = (1.0, 1.0, 1.0)
    sampled = rows.n > STRETCHES * STRETCH_ROWS
    if sampled:
        whole = _levels(rows, ledger)
        first = np.linspace(0, rows.n - STRETCH_ROWS, STRETCHES).astype(np.int64)
        at = (first[:, None] + np.arange(STRETCH_ROWS)).ravel()
        rows, lines, ledger, blamed = _taken(rows, lines, ledger, blamed, at)
        some = _levels(rows, ledger)
        scale = whole[0] / some[0], whole[1] / some[1], whole[2] / some[2]
    own = or_zero(ledger.accounts["prefill_new"] + ledger.accounts["prefill_repeated"])
    behind = ledger.accounts["queue_behind_repeated"] + ledger.accounts["queue_behind_new"]
    target = float(np.nansum(behind))
    counted = np.isfinite(behind)
    servers = _servers(rows)
    # Per server: who counts, the work that came before each arrival, and when it came.
    queues = [(counted[at], _ahead(own[at]), rows.start[at]) for at in servers]

    def total(stretch: float) -> float:
        waits = 0.0
        for count, ahead, start in queues:
            slack = ahead * stretch - start
            slack -= np.minimum.accumulate(slack)
            waits += float(slack.sum() if count.all() else slack[count].sum())
        return waits

    low, high = 0.0, 1.0
    if target <= 0 or not rows.order_known:
        stretch = 0.0
    else:
        while total(high) < target and high < 8:
            high *= 2
        for _ in range(24):
            middle = (low + high) / 2
            if total(middle) < target:
                low = middle
            else:
                high = middle
        stretch = (low + high) / 2
    modelled = _queue(rows, own * stretch, servers)
    return Replay(rows, lines, ledger, blamed, stretch, modelled, block_tokens, sampled, scale)


def _levels(rows: Rows, ledger: Ledger) -> tuple[float, float, float]:
    """Mean, median and 95th percentile of the TTFTs that can be accounted for."""
    known = np.isfinite(ledger.accounts["unexplained"])
    return _mean_p50_p95(rows.ttft[known]) if known.any() else (1.0, 1.0, 1.0)


def _mean_p50_p95(values: Array) -> tuple[float, float, float]:
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return float(values.mean()), float(p50), float(p95)


def _taken(
    rows: Rows, lines: Lines, ledger: Ledger, blamed: dict[str, Array], at: Index
) -> tuple[Rows, Lines, Ledger, dict[str, Array]]:
    """Everything for some of the rows."""
    return (
        rows.take(at),
        replace(lines, codes=lines.codes[at]),
        ledger.take(at),
        {cause: seconds[at] for cause, seconds in blamed.items()},
    )


def _drawn(line: Prefill, draw: int) -> Prefill:
    return line.with_draw(draw) if line.draws.shape[0] > draw else line


def _treated_tokens(rows: Rows, t: Treatment, block: int) -> tuple[Array, Array]:
    inputs, repeated, cached = rows.inputs, or_zero(rows.repeated), rows.context
    if t.compact_to is not None:
        later = (rows.turn > 1) & (inputs > t.compact_to)
        factor = np.where(later, t.compact_to / np.maximum(inputs, 1.0), 1.0)
        inputs, repeated, cached = inputs * factor, repeated * factor, cached * factor
    if t.reuse:
        whole = np.floor(repeated / block) * block
        cached = np.maximum(cached, np.minimum(whole, np.maximum(inputs - 1, 0)))
    return inputs, cached


def _servers(rows: Rows) -> list[Index]:
    """The rows of each server in order of arrival."""
    return list(by_server(rows, np.isfinite(rows.start) & rows.measured))


def _ahead(service: Array) -> Array:
    """What all earlier ones need, in order of arrival."""
    out = np.zeros(len(service))
    np.cumsum(service[:-1], out=out[1:])
    return out


def _queue(rows: Rows, service: Array, servers: list[Index] | None = None) -> Array:
    """Waits of a first-come, first-served queue per server (Lindley 1952, by running minima)."""
    waits = np.zeros(rows.n)
    if not service.any():
        return waits
    for at in _servers(rows) if servers is None else servers:
        slack = _ahead(service[at]) - rows.start[at]
        waits[at] = slack - np.minimum.accumulate(slack)
    return waits


def _share_out(rows: Rows, waits: Array, modelled: Array, work: Array) -> Array:
    """Spread the waiting of each busy period over its requests in proportion to their work.

    A busy period ends where the modelled server runs empty. The sum of all waits stays.
    """
    out = waits.copy()
    for at in by_server(rows, np.isfinite(rows.start) & np.isfinite(waits)):
        period = np.cumsum(modelled[at] <= 1e-12)
        total = np.bincount(period, weights=waits[at])
        mass = np.bincount(period, weights=work[at])
        rate = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
        out[at] = work[at] * rate[period]
    return out


def _carry(observed: Array, modelled: Array, treated: Array) -> Array:
    """Today's wait, scaled as the model's wait changes; where the model saw none, as it adds."""
    whole = float(modelled.sum())
    ratio = float(treated.sum()) / whole if whole > 0 else 1.0
    own = np.full(len(modelled), ratio)
    np.divide(treated, modelled, out=own, where=modelled > NO_WAIT_S)
    result: Array = observed * np.clip(own, 0.0, 10.0, out=own)
    fresh = np.flatnonzero((modelled <= NO_WAIT_S) & (observed <= 0))
    result[fresh] += treated[fresh]
    return result
