"""The record types of a comparison: what two logs say beside each other.

``Comparison.to_dict`` is the document of ``ttftdoctor compare --json``
(``ttftdoctor.compare/1``). Durations are float seconds unless the name says otherwise; shares are
of one; unknown is None, never NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ttftdoctor.diagnosis import CostLines, Input, Interval, Population, plain
from ttftdoctor.language import mark, tr

SCHEMA = "ttftdoctor.compare/1"

Answer = Literal["better", "worse", "no_difference", "cannot_tell", "refused"]
ViewName = Literal["raw", "equal_mix", "equal_mix_and_load"]
Moved = Literal["up", "down", "unchanged", "unknown"]
Match = Literal["within", "overlaps", "missed", "unknown"]

#: What the answers are called in a sentence or a cell.
ANSWERS: dict[Answer, str] = {
    "better": mark("better"),
    "worse": mark("worse"),
    "no_difference": mark("no difference"),
    "cannot_tell": mark("cannot tell"),
}
#: What TTFT is seen by, behind a figure of it.
VIEWS: dict[ViewName, str] = {
    "raw": mark("as logged"),
    "equal_mix": mark("at equal mix"),
    "equal_mix_and_load": mark("at equal mix and load"),
}


def figure_name(metric: str) -> str:
    """What people call a figure of TTFT: the mean has a name, percentiles are their own."""
    return tr("mean") if metric == "mean" else metric


@dataclass(frozen=True)
class Change:
    """One figure of TTFT before and after.

    ``share`` is the change as a share of before, ``interval`` its 95 % interval; ``smallest_share``
    is the smallest change that these logs would have shown four times in five.
    """

    metric: Literal["mean", "p50", "p95", "p99"]
    before_s: float
    after_s: float
    change_s: float
    share: float
    interval: Interval | None
    answer: Answer
    smallest_share: float | None


@dataclass(frozen=True)
class View:
    """TTFT before and after over the same cells, weighted by the mix of before.

    ``held`` names what is held equal; ``covered_before`` and ``covered_after`` are the shares of
    the requests of each side that have a counterpart on the other.
    """

    name: ViewName
    held: tuple[str, ...]
    cells: int
    covered_before: float
    covered_after: float
    changes: tuple[Change, ...]

    def of(self, metric: str) -> Change | None:
        """The change of one figure."""
        return next((c for c in self.changes if c.metric == metric), None)


@dataclass(frozen=True)
class Parts:
    """The raw change of the mean, in parts that add up to it.

    ``like_for_like_s`` is what the same traffic would show, ``load_s`` what other load brings
    (where the answer holds load equal, else 0), ``mix_s`` what other turns and lengths bring,
    ``outside_s`` what the requests bring that have no counterpart.
    """

    raw_s: float
    like_for_like_s: float
    load_s: float
    mix_s: float
    outside_s: float


@dataclass(frozen=True)
class Side:
    """One of the two logs. Rates are over the time from the first to the last arrival."""

    inputs: tuple[Input, ...]
    population: Population
    ttft_p99_s: float | None
    primary_cause: str
    headline: str
    cost_lines: CostLines
    models: tuple[str, ...]
    replicas: int | None
    arrivals_per_s: float | None
    input_tokens_per_s: float | None
    peak_share: float | None
    in_flight_mean: float | None
    utilisation: float | None


def two_lines(before: Side, after: Side) -> bool:
    """Whether one of the logs has a release in it, before and after which other lines hold."""
    return "deploy_regression" in (before.primary_cause, after.primary_cause)


@dataclass(frozen=True)
class Inside:
    """One quantity of the service before and after, and whether it moved.

    ``equal_mix`` says that both are weighted by the mix of before. ``unit`` is s, share,
    tokens, ms, or ms_per_1k_tokens.
    """

    id: str
    title: str
    unit: str
    before: float | None
    after: float | None
    moved: Moved
    equal_mix: bool
    before_interval: Interval | None = None
    after_interval: Interval | None = None


@dataclass(frozen=True)
class Score:
    """One predicted figure beside the measured one.

    Both are levels in seconds for the traffic of before; ``error_share`` is predicted less
    measured as a share of before's mean.
    """

    metric: Literal["mean", "p50", "p95"]
    before_s: float
    predicted_s: float
    measured_s: float
    error_share: float


@dataclass(frozen=True)
class Mechanism:
    """Whether what the remedy works through was seen to move."""

    seen: bool | None
    text: str


@dataclass(frozen=True)
class Prediction:
    """One remedy's prediction beside what was measured.

    ``predicted`` and ``measured`` are intervals of the gain as a share of before's mean TTFT.
    ``done`` marks the remedy that was named as the change.
    """

    id: str
    title: str
    done: bool
    gain_share: float | None
    predicted: Interval | None
    measured_share: float | None
    measured: Interval | None
    match: Match
    scores: tuple[Score, ...]
    mechanism: Mechanism | None
    text: str


@dataclass(frozen=True)
class Hindcast:
    """Predictions and what came of them; ``source`` is document or before (made now)."""

    source: Literal["document", "before"]
    remedy: str | None
    basis: ViewName
    predictions: tuple[Prediction, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The whole answer; the ``--json`` document is :meth:`to_dict`.

    ``basis`` is the view that the answer rests on.
    """

    version: str
    answer: Answer
    headline: str
    reasons: tuple[str, ...]
    basis: ViewName | None
    before: Side
    after: Side
    views: tuple[View, ...]
    parts: Parts | None
    inside: tuple[Inside, ...]
    said: tuple[str, ...]
    hindcast: Hindcast | None
    warnings: tuple[str, ...]

    def view(self, name: str) -> View | None:
        """A view by its name."""
        return next((v for v in self.views if v.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``: plain types, no NaN, unknown is None."""
        body: dict[str, Any] = plain(self)
        version = body.pop("version")
        return {"schema": SCHEMA, "tool": {"name": "ttftdoctor", "version": version}, **body}
