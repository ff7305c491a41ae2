"""The metrics of the gate: what each is called, which way is worse, and how much may be lost.

A regression must exceed both limits of a metric, a share of the baseline and an amount in its own
unit: a share alone fails builds over a microsecond, an amount alone over noise in a slow service
(the practical-significance rule of Georges, Buytaert and Eeckhout 2007, OOPSLA, made explicit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ttftdoctor.gate.records import Unit
from ttftdoctor.language import mark

#: What a metric is computed from.
Kind = Literal["ttft", "line", "decode", "reuse", "queue", "failures", "slo"]


@dataclass(frozen=True)
class Metric:
    """One metric; its ``title`` is English, and is translated where it is said.

    ``limit_share`` is a share of the baseline, None for those that move in points; ``limit`` is in
    the unit. ``headline``: an inconclusive answer on it makes the whole inconclusive, whatever the
    policy. ``relative``: judged on the logarithm of current over baseline.
    """

    id: str
    title: str
    unit: Unit
    worse: Literal["up", "down"]
    kind: Kind
    limit_share: float | None
    limit: float
    headline: bool = False
    relative: bool = True
    needs_slo: bool = False


METRICS: dict[str, Metric] = {
    m.id: m
    for m in (
        Metric("ttft_mean", mark("mean TTFT"), "s", "up", "ttft", 0.05, 0.010, headline=True),
        Metric("ttft_p50", mark("median TTFT"), "s", "up", "ttft", 0.05, 0.010, headline=True),
        Metric("ttft_p95", mark("p95 of TTFT"), "s", "up", "ttft", 0.10, 0.025),
        Metric("ttft_p99", mark("p99 of TTFT"), "s", "up", "ttft", 0.15, 0.050),
        Metric("prefill_slope", mark("prefill per 1,000 tokens"), "ms_per_1k_tokens", "up", "line",
               0.05, 0.5, relative=False),
        Metric("prefill_fixed", mark("constant part of TTFT"), "s", "up", "line",
               0.05, 0.010, relative=False),
        Metric("decode_per_token", mark("decode per token"), "ms", "up", "decode", 0.03, 0.2),
        Metric("hit_share", mark("input served from a cache"), "share", "down", "reuse",
               None, 0.03, relative=False),
        Metric("recomputed_share", mark("input computed again"), "share", "up", "reuse",
               None, 0.03, relative=False),
        Metric("queue", mark("logged queueing"), "s", "up", "queue", 0.10, 0.020, relative=False),
        Metric("error_rate", mark("requests failed or refused"), "share", "up", "failures",
               None, 0.01, relative=False),
        Metric("abort_rate", mark("requests aborted"), "share", "up", "failures",
               None, 0.01, relative=False),
        Metric("attainment", mark("requests within the SLO"), "share", "down", "slo",
               None, 0.02, relative=False, needs_slo=True),
        Metric("goodput", mark("requests a second within the SLO, at the baseline's traffic"),
               "per_s", "down", "slo", 0.03, 0.0, relative=False, needs_slo=True),
    )
}  # fmt: skip

#: Quantile of each TTFT metric; None is the mean.
QUANTILE: dict[str, float | None] = {
    "ttft_mean": None, "ttft_p50": 0.5, "ttft_p95": 0.95, "ttft_p99": 0.99
}  # fmt: skip
