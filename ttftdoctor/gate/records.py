"""What the gate says: the document ``ttftdoctor.check/1``, as frozen records.

Times are float seconds unless a name says otherwise; shares are of one; unknown is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ttftdoctor.diagnosis import Input, Interval, plain

SCHEMA = "ttftdoctor.check/1"

Outcome = Literal["pass", "fail", "inconclusive", "invalid"]
Unit = Literal["s", "ms", "share", "per_s", "ms_per_1k_tokens"]

#: Exit codes of ``check``; 2 is for usage and unreadable input, as everywhere.
EXIT_CODES: dict[str, int] = {"pass": 0, "fail": 1, "inconclusive": 3, "invalid": 4}


@dataclass(frozen=True)
class Scope:
    """The part of the traffic that a rule looks at; None is all of it."""

    model: str | None = None
    route: str | None = None

    def __str__(self) -> str:
        parts = [f"{k} {v}" for k, v in (("model", self.model), ("route", self.route)) if v]
        return ", ".join(parts) or "all"


@dataclass(frozen=True)
class Checked:
    """One metric held against the baseline, or against a budget.

    ``change`` is at equal mix, in the unit of the metric; ``change_share`` the same as a share of
    the baseline (None for shares and rates, which move in points); ``raw_change_share`` (or
    ``raw_change``) is what a plain comparison of the two logs would say. ``interval`` is of
    ``change``, 95 %; ``p_value`` one-sided, ``p_adjusted`` after Holm over all metrics.
    ``limit_share`` and ``limit`` are what may be lost, both of which a regression must exceed.
    ``smallest`` is the smallest change (unit of the metric) that would have been seen four times in
    five, ``requests_needed`` how many requests a side it takes to see one of the limit.
    """

    metric: str
    title: str
    unit: Unit
    scope: Scope
    outcome: Outcome
    worse: Literal["up", "down"]
    says: str
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    change_share: float | None = None
    interval: Interval | None = None
    raw_baseline: float | None = None
    raw_current: float | None = None
    raw_change: float | None = None
    raw_change_share: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    limit: float | None = None
    limit_share: float | None = None
    smallest: float | None = None
    requests_needed: int | None = None
    budget: str | None = None


@dataclass(frozen=True)
class Population:
    """One side: its files, requests, runs, and what was set aside."""

    label: str
    inputs: tuple[Input, ...]
    requests: int
    sessions: int | None
    runs: int
    warm_up_requests: int
    covered_share: float | None
    models: tuple[str, ...]
    start: str | None
    end: str | None


@dataclass(frozen=True)
class Moved:
    """What moved inside the service where the gate fails: a cause, by how much, and since when."""

    cause: str
    says: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Check:
    """The whole answer.

    ``covered_share`` of a population is the part of its requests that have a counterpart of the
    same turn, length and cached part on the other side.
    """

    version: str
    outcome: Outcome
    headline: str
    baseline: Population
    current: Population
    metrics: tuple[Checked, ...]
    moved: tuple[Moved, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    policy: str | None = None
    inconclusive_fails: bool = False

    @property
    def exit_code(self) -> int:
        """What ``check`` returns: an inconclusive answer passes unless the policy is strict."""
        if self.outcome == "inconclusive" and not self.inconclusive_fails:
            return 0
        return EXIT_CODES[self.outcome]

    def failed(self) -> tuple[Checked, ...]:
        """The metrics that regressed."""
        return tuple(m for m in self.metrics if m.outcome == "fail")

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``: plain types, no NaN, unknown is None."""
        body: dict[str, Any] = plain(self)
        version = body.pop("version")
        return {
            "schema": SCHEMA,
            "tool": {"name": "ttftdoctor", "version": version},
            "exit_code": self.exit_code,
            **body,
        }
