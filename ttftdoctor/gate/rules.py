"""What a gate asks: which metrics count, for which traffic, and how much may be lost.

A policy is plain data: a file reader makes one, :func:`default_policy` is what holds without a
file, and the judge only looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ttftdoctor.gate.records import Scope

#: All of the traffic.
ALL = Scope()


@dataclass(frozen=True)
class Rule:
    """One metric that may get worse by a limited amount.

    A regression exceeds both limits. None takes the default of the metric; ``limit`` is in the
    unit of the metric (seconds, shares of one, ms per 1,000 tokens). ``slo_s`` is the TTFT that
    ``goodput`` and ``attainment`` count against.
    """

    metric: str
    scope: Scope = ALL
    limit_share: float | None = None
    limit: float | None = None
    slo_s: float | None = None


@dataclass(frozen=True)
class Budget:
    """A bound on the current side alone: the metric stays below it, or above it.

    ``text`` is the bound as it was written. ``max_input_tokens`` leaves out longer prompts.
    """

    text: str
    metric: str
    below: float | None = None
    max_input_tokens: int | None = None
    scope: Scope = ALL
    above: float | None = None
    slo_s: float | None = None


@dataclass(frozen=True)
class Policy:
    """All rules and budgets, and what an inconclusive answer counts as.

    ``alpha`` is the chance of a false alarm over all of them together. ``source`` says where the
    policy was written; None for the default one.
    """

    rules: tuple[Rule, ...]
    budgets: tuple[Budget, ...] = ()
    inconclusive: Literal["pass", "fail"] = "pass"
    alpha: float = 0.05
    source: str | None = None


#: What is judged where no policy says otherwise; what needs an SLO is not among it.
DEFAULT_METRICS = (
    "ttft_mean", "ttft_p50", "ttft_p95", "ttft_p99", "prefill_slope", "prefill_fixed",
    "decode_per_token", "hit_share", "recomputed_share", "queue", "error_rate", "abort_rate",
)  # fmt: skip


def default_policy() -> Policy:
    """The rules that hold without a policy file."""
    return Policy(tuple(Rule(metric) for metric in DEFAULT_METRICS))
