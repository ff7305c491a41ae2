"""Serve the log's own arrivals again, with the prompts or the server treated.

Less prefill also means less waiting, so the cost line alone cannot tell a gain. Each server is a
queue of prefill work (Lindley's recursion), its speed set so that today's waits come out; then
the treated work runs through it. What the model does not explain of a request stays with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.lines import Lines, Prefill
from ttftdoctor.measure.rows import Array, Mask, Rows
from ttftdoctor.stats import mean_interval
from ttftdoctor.treatment import Treatment


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
    ``retry_or_ratelimit``, ``deploy_regression``, ``fixed_overhead``.
    """

    rows: Rows
    lines: Lines
    ledger: Ledger
    blamed: dict[str, Array]
    stretch: float
    modelled: Array
    block_tokens: int = 16

    def try_(self, treatment: Treatment) -> Outcome:
        """Serve the log again under a treatment.

        The interval joins the spread of the gain over sessions with that of the cost line.
        """
        before = self.rows.ttft
        after = self._serve(treatment, None)
        counted = np.isfinite(after) & np.isfinite(before)
        gain = (before - after)[counted]
        mean_before = float(before[counted].mean())
        sessions = self.rows.session[counted]
        clusters = None
        if (sessions >= 0).all():
            _, clusters = np.unique(sessions, return_inverse=True)
            if clusters.max() < 8:
                clusters = None
        low, high = mean_interval(gain, clusters)
        centre = float(gain.mean())
        spread = self._line_spread(treatment, counted, centre)
        half = float(np.hypot((high - low) / 2, spread)) / mean_before
        share = centre / mean_before
        treated = after[counted]
        return Outcome(
            mean=float(treated.mean()),
            p50=float(np.quantile(treated, 0.5)),
            p95=float(np.quantile(treated, 0.95)),
            gain_share=share,
            interval=(max(share - half, -1.0), min(share + half, 1.0)),
        )

    def _line_spread(self, treatment: Treatment, counted: Mask, centre: float) -> float:
        """Half width of the gain over four resampled lines, enough for an error's size."""
        if self.lines.main.draws.shape[0] < 20 or self.rows.n > 200_000:
            return 0.05 * abs(centre)
        gains = []
        for index in (3, 11, 17, 19):
            after = self._serve(treatment, index)
            gains.append(float((self.rows.ttft - after)[counted].mean()))
        return 1.96 * float(np.std(gains, ddof=1))

    def _serve(self, t: Treatment, draw: int | None) -> Array:
        rows, ledger = self.rows, self.ledger
        fixed = np.nan_to_num(ledger.accounts["fixed"])
        own = ledger.accounts["prefill_new"] + ledger.accounts["prefill_repeated"]
        inputs, cached = _treated_tokens(rows, t, self.block_tokens)
        work = own.copy()
        if t.reuse or t.compact_to is not None:
            now, then = np.zeros(rows.n), np.zeros(rows.n)
            for mask, line in self.lines.each():
                used = line if draw is None else _drawn(line, draw)
                now[mask] = used.work(rows.uncached[mask], rows.context[mask])
                then[mask] = used.work((inputs - cached)[mask], cached[mask])
            work = own + then - now
            work = np.clip(work, 0.0, None)
        stretch = self.stretch / t.servers
        waits = _queue(rows, np.nan_to_num(work) * stretch)
        behind = ledger.accounts["queue_behind_repeated"] + ledger.accounts["queue_behind_new"]
        wait = _carry(behind, self.modelled, waits)
        if t.fair:
            wait = _share_out(rows, wait, waits, np.nan_to_num(work))
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
    hide behind one name, over one where decoding slows prefill down.
    """
    own = np.nan_to_num(ledger.accounts["prefill_new"] + ledger.accounts["prefill_repeated"])
    behind = ledger.accounts["queue_behind_repeated"] + ledger.accounts["queue_behind_new"]
    target = float(np.nansum(behind))
    counted = np.isfinite(behind)

    def total(stretch: float) -> float:
        return float(_queue(rows, own * stretch)[counted].sum())

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
    modelled = _queue(rows, own * stretch)
    return Replay(rows, lines, ledger, blamed, stretch, modelled, block_tokens)


def _drawn(line: Prefill, draw: int) -> Prefill:
    return line.with_draw(draw) if line.draws.shape[0] > draw else line


def _treated_tokens(rows: Rows, t: Treatment, block: int) -> tuple[Array, Array]:
    inputs = rows.inputs.copy()
    repeated = np.nan_to_num(rows.repeated)
    cached = np.nan_to_num(rows.cached)
    if t.compact_to is not None:
        later = (np.nan_to_num(rows.turn, nan=1.0) > 1) & (inputs > t.compact_to)
        factor = np.where(later, t.compact_to / np.maximum(inputs, 1.0), 1.0)
        inputs, repeated, cached = inputs * factor, repeated * factor, cached * factor
    if t.reuse:
        whole = np.floor(repeated / block) * block
        cached = np.maximum(cached, np.minimum(whole, np.maximum(inputs - 1, 0)))
    return inputs, cached


def _queue(rows: Rows, service: Array) -> Array:
    """Waits of a first-come, first-served queue per server (Lindley 1952, by running minima)."""
    waits = np.zeros(rows.n)
    if not service.any():
        return waits
    known = np.isfinite(rows.start) & rows.measured
    for server in np.unique(rows.server[known]):
        at = np.flatnonzero(known & (rows.server == server))
        at = at[np.argsort(rows.start[at], kind="stable")]
        ahead = np.concatenate([[0.0], np.cumsum(service[at])[:-1]])
        slack = ahead - rows.start[at]
        waits[at] = slack - np.minimum.accumulate(slack)
    return waits


def _share_out(rows: Rows, waits: Array, modelled: Array, work: Array) -> Array:
    """Spread the waiting of each busy period over its requests in proportion to their work.

    A busy period ends where the modelled server runs empty. The sum of all waits stays.
    """
    out = waits.copy()
    known = np.isfinite(rows.start) & np.isfinite(waits)
    for server in np.unique(rows.server[known]):
        at = np.flatnonzero(known & (rows.server == server))
        at = at[np.argsort(rows.start[at], kind="stable")]
        period = np.cumsum(modelled[at] <= 1e-12)
        total = np.bincount(period, weights=waits[at])
        mass = np.bincount(period, weights=work[at])
        rate = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
        out[at] = work[at] * rate[period]
    return out


def _carry(observed: Array, modelled: Array, treated: Array) -> Array:
    """Today's wait, scaled as the model's wait changes; where the model saw none, as it adds."""
    whole = float(np.nansum(modelled))
    ratio = float(np.nansum(treated)) / whole if whole > 0 else 1.0
    own = np.divide(treated, modelled, out=np.full(len(modelled), ratio), where=modelled > 1e-3)
    scaled: Array = np.nan_to_num(observed) * np.clip(own, 0.0, 10.0)
    fresh = np.where((modelled <= 1e-3) & (np.nan_to_num(observed) <= 0), treated, 0.0)
    result: Array = np.where(np.isfinite(observed), scaled + fresh, np.nan)
    return result
