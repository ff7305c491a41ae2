"""Many baselines in order of time: how the server went, and where it changed.

Every baseline is held against the newest as ``check`` does it (:mod:`ttftdoctor.gate.judge`), with
the newest in the place of the baseline: its mix is what all are weighted to. The change at
equal mix, put on the newest one's own level, is the level of a baseline; so levels differ by what
the server did and not by who came. What a plain reading says stands beside.

What cannot be set beside the newest (another model, another format, another clock, hardly a
request in common) is set aside by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ttftdoctor.diagnosis import Interval, plain
from ttftdoctor.errors import InputError
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.judge import LEAST_ROWS, TOO_LITTLE, demand_differs, judge, no_ttft
from ttftdoctor.gate.metrics import METRICS, Metric
from ttftdoctor.gate.records import Check, Checked, Unit
from ttftdoctor.gate.rules import Policy, Rule, default_policy
from ttftdoctor.gate.trend import (
    ALPHA,
    LEAST_POINTS,
    LEAST_SIDE,
    Found,
    Line,
    change_points,
    is_drift,
    slides,
    slope_of,
)
from ttftdoctor.gate.words import baseline_of, clock_at, shown, signed
from ttftdoctor.language import mark, tr, tr_n
from ttftdoctor.measure.rows import Array
from ttftdoctor.report import clean
from ttftdoctor.units import count, share, signed_share

SCHEMA = "ttftdoctor.history/1"
WEEK_S = 7 * 86_400.0
#: Baselines over less time than this have no slope a week.
LEAST_SPAN_WEEKS = 3 / 7
#: Metrics that count requests against a target.
_OF_SLO = ("attainment", "goodput")


@dataclass(frozen=True)
class Entry:
    """A baseline and where it was found."""

    name: str
    baseline: Baseline


@dataclass(frozen=True)
class Kept:
    """One baseline of the history. ``start`` is ISO 8601 UTC, or None where it is unknown.

    ``covered_share`` is the share of the newest one's requests that have a counterpart in it.
    """

    label: str
    name: str
    start: str | None
    requests: int
    sessions: int | None
    runs: int
    covered_share: float | None


@dataclass(frozen=True)
class SetAside:
    """A baseline or a file that is not in the history, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Level:
    """A metric in one baseline, in its unit.

    ``level`` is at the mix of the newest, ``raw`` as logged. ``interval`` is the 95 % interval of
    the difference from the newest, put on the level; the newest itself has none.
    """

    level: float
    interval: Interval | None
    raw: float | None


@dataclass(frozen=True)
class Step:
    """A lasting change of a level between two baselines.

    ``at`` is the place of the first baseline with the new level. ``before`` and ``after`` are
    means of the levels up to the neighbouring steps. ``change_share`` is None for shares, which
    move in points. ``p_adjusted`` is over all metrics and places; None for a step that is only
    suspected.
    """

    at: int
    label: str
    start: str | None
    before: float
    after: float
    change: float
    change_share: float | None
    direction: Literal["worse", "better"]
    p_adjusted: float | None


@dataclass(frozen=True)
class Slope:
    """How a level moves a week, from baseline ``since`` on, with its 95 % interval."""

    per_week: float
    interval: Interval
    since: int


@dataclass(frozen=True)
class Trend:
    """One metric over all baselines; a level is None where a baseline does not have it.

    ``drift``: the level moves, and a straight line says as much of it as steps would.
    ``suspected`` is a step that so few baselines can show but not prove.
    """

    metric: str
    title: str
    unit: Unit
    worse: Literal["up", "down"]
    limit: float
    limit_share: float | None
    levels: tuple[Level | None, ...]
    slope: Slope | None
    drift: Literal["worse", "better"] | None
    steps: tuple[Step, ...]
    suspected: Step | None
    says: str

    @property
    def direction(self) -> Literal["worse", "better"] | None:
        """Which way it went at last; None where it did not move."""
        return self.steps[-1].direction if self.steps else self.drift

    @property
    def last(self) -> Level | None:
        """The newest level there is."""
        return next((level for level in reversed(self.levels) if level is not None), None)


@dataclass(frozen=True)
class History:
    """The whole answer; ``baselines`` in order of time, the newest last."""

    version: str
    headline: str
    baselines: tuple[Kept, ...]
    metrics: tuple[Trend, ...]
    judged: bool
    set_aside: tuple[SetAside, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def moved(self, direction: Literal["worse", "better"]) -> tuple[Trend, ...]:
        """The metrics whose latest step, or drift, goes that way."""
        return tuple(t for t in self.metrics if t.direction == direction)

    @property
    def unproved(self) -> bool:
        """Nothing is proved, and something may have moved all the same."""
        nothing = not any(t.direction for t in self.metrics)
        return nothing and any(t.suspected for t in self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``: plain types, no NaN, unknown is None."""
        body: dict[str, Any] = plain(self)
        version = body.pop("version")
        return {"schema": SCHEMA, "tool": {"name": "ttftdoctor", "version": version}, **body}


def history_of(
    entries: Sequence[Entry],
    *,
    slo_s: float | None = None,
    version: str = "0",
    set_aside: Sequence[SetAside] = (),
) -> History:
    """Set baselines in order and say where the server changed.

    Parameters
    ----------
    entries
        In any order.
    slo_s
        Target for TTFT in seconds; adds attainment and goodput.
    set_aside
        What could not be read at all; named in the answer.

    Raises
    ------
    InputError
        If no baseline is left.

    Notes
    -----
    Below ``LEAST_POINTS`` baselines nothing is called a change. From there on change points are
    those of :func:`ttftdoctor.gate.trend.change_points` on the logarithms of levels (on the levels
    themselves for shares and where a level is zero) that also exceed the limits of the metric, the
    same as in ``check``: the share *and* the amount.
    """
    left = list(set_aside)
    warnings: list[str] = []
    ordered, dated = _in_order(entries)
    if not dated and len(ordered) > 1:
        warnings.append(
            tr(
                "not every baseline knows when its log began: they are in order of their names, "
                "and there is no slope a week"
            )
        )
    usable: list[Entry] = []
    for entry in ordered:
        why = _defect(entry.baseline) or _twice(entry, usable)
        if why:
            left.append(SetAside(entry.name, why))
        else:
            usable.append(entry)
    if not usable:
        raise InputError(
            "no baseline is left for a history",
            why=tr("; ").join(f"{s.name}: {s.why}" for s in left[:5]) or None,
            help="write baselines with: ttftdoctor baseline LOG -o FILE",
        )
    newest = usable[-1]
    policy = _policy(slo_s)
    kept: list[Entry] = []
    checks: list[Check] = []
    for entry in usable:
        why = _unlike(newest.baseline, entry.baseline)
        if not why:
            check = judge(newest.baseline, entry.baseline, policy, version=version)
            if check.outcome == "invalid":
                why = tr(
                    "under {part} of the newest one's requests have a counterpart of the same turn "
                    "and length in it",
                    part=share(TOO_LITTLE),
                )
            else:
                kept.append(entry)
                checks.append(check)
        if why:
            left.append(SetAside(entry.name, why))
    times = [_start(entry.baseline) for entry in kept] if dated else []
    weeks = np.array([t.timestamp() / WEEK_S for t in times if t is not None])
    baselines = tuple(_kept(e, c) for e, c in zip(kept, checks, strict=True))
    metrics = _trends(baselines, checks, weeks if dated else None)
    judged = len(kept) >= LEAST_POINTS
    busy = sum(demand_differs(newest.baseline, entry.baseline) for entry in kept)
    return History(
        version=version,
        headline=_headline(metrics, baselines, judged=judged),
        baselines=baselines,
        metrics=metrics,
        judged=judged,
        set_aside=tuple(left),
        notes=tuple(_notes(baselines, busy, metrics, judged=judged)),
        warnings=tuple(warnings),
    )


def earliest(starts: Iterable[object]) -> str | None:
    """The earliest of some moments, as ISO 8601 UTC; what is none is passed over."""
    found = _earliest(starts)
    return None if found is None else found.isoformat().replace("+00:00", "Z")


def _start(baseline: Baseline) -> datetime | None:
    return _earliest(sketch.facts.start for sketch in baseline.sketches)


def _earliest(starts: Iterable[object]) -> datetime | None:
    known = []
    for start in starts:
        try:
            moment = datetime.fromisoformat(start if isinstance(start, str) else "")
        except ValueError:
            continue
        try:
            zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except OverflowError:
            continue
        known.append(zoned)
    return min(known, default=None)


# --- which belong together ------------------------------------------------------------------------


def _in_order(entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
    """By the start of their logs where all are known, else by label and name."""
    starts = [_start(entry.baseline) for entry in entries]
    if all(start is not None for start in starts):
        pairs = sorted(
            zip(starts, entries, strict=True), key=lambda p: (p[0], p[1].baseline.label, p[1].name)
        )
        return [entry for _, entry in pairs], True
    return sorted(entries, key=lambda e: (_natural(e.baseline.label), _natural(e.name))), False


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts ``v9`` before ``v10``."""
    return tuple(
        (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
        if part
    )


def _defect(baseline: Baseline) -> str:
    """Why a baseline says nothing by itself; empty if it does."""
    facts = [sketch.facts for sketch in baseline.sketches]
    sick = [f for f in facts if f.cause == "measurement_artifact"]
    if sick:
        return no_ttft(tr("what it holds is no TTFT"), sick[0].headline)
    n = sum(sketch.ttft.n for sketch in baseline.sketches)
    if n < LEAST_ROWS:
        return tr("only {n} of its requests have a TTFT; at least {least} are needed",
                  n=count(n), least=LEAST_ROWS)  # fmt: skip
    return "" if all(f.settled for f in facts) else tr("it is nearly all warm-up")


def _twice(entry: Entry, others: Sequence[Entry]) -> str:
    """Whether another one holds the same requests, by what they sum up to."""
    marks = _marks(entry.baseline)
    same = next((o for o in others if marks == _marks(o.baseline)), None)
    if same is None:
        return ""
    return tr("it holds the same requests as {other}", other=clean(same.name, 200))


def _marks(baseline: Baseline) -> list[str]:
    return sorted(sketch.ttft.mark for sketch in baseline.sketches)


def _unlike(newest: Baseline, other: Baseline) -> str:
    """Why a baseline must not be set beside the newest; empty if it may."""
    models = set(newest.models), set(other.models)
    if all(models) and not models[0] & models[1]:
        names = [clean(tr(", ").join(sorted(m)), 80) for m in models]
        return tr("its model is {own}, that of the newest {newest}",
                  own=names[1], newest=names[0])  # fmt: skip
    formats = [{i.format for i in side.inputs} for side in (newest, other)]
    if all(formats) and not formats[0] & formats[1]:
        names = [clean(tr(", ").join(sorted(f)), 80) for f in formats]
        return tr(
            "its log is of format {own}, that of the newest {newest}: what counts as first token "
            "may differ",
            own=names[1], newest=names[0],
        )  # fmt: skip
    clocks = [{s.facts.vantage for s in side.sketches} - {None} for side in (newest, other)]
    if all(clocks) and not clocks[0] & clocks[1]:
        names = [clean(tr(", ").join(clock_at(v) for v in sorted(map(str, c))), 40) for c in clocks]
        return tr("its clock stood at the {own}, that of the newest at the {newest}",
                  own=names[1], newest=names[0])  # fmt: skip
    return ""


def _policy(slo_s: float | None) -> Policy:
    rules = default_policy().rules
    if slo_s is not None:
        rules = (*rules, *(Rule(metric, slo_s=slo_s) for metric in _OF_SLO))
    return Policy(rules)


def _kept(entry: Entry, check: Check) -> Kept:
    side = check.current
    return Kept(
        label=entry.baseline.label,
        name=entry.name,
        start=earliest(s.facts.start for s in entry.baseline.sketches),
        requests=side.requests,
        sessions=side.sessions,
        runs=side.runs,
        covered_share=check.baseline.covered_share,
    )


# --- levels ---------------------------------------------------------------------------------------


def _trends(
    baselines: Sequence[Kept], checks: Sequence[Check], weeks: Array | None
) -> tuple[Trend, ...]:
    """Every metric that at least one baseline has beside the newest."""
    tables = [{m.metric: m for m in check.metrics} for check in checks]
    levels: dict[str, tuple[Level | None, ...]] = {}
    for name, metric in METRICS.items():
        own = tables[-1].get(name)
        if own is None or own.baseline is None:
            continue
        found = [_level(metric, own.baseline, table.get(name)) for table in tables]
        # The newest is what all others are held against.
        found[-1] = Level(own.baseline, None, own.raw_baseline)
        levels[name] = tuple(found)
    series = {name: _numbers(metric_levels) for name, metric_levels in levels.items()}
    scaled = [_scaled(METRICS[name], values) for name, values in series.items()]
    judged = change_points(scaled) if len(baselines) >= LEAST_POINTS else [[] for _ in scaled]
    return tuple(
        _trend(
            METRICS[name],
            levels[name],
            series[name],
            scaled[at],
            judged[at],
            baselines,
            weeks,
            len(levels),
        )
        for at, name in enumerate(levels)
    )


def _level(metric: Metric, own: float, found: Checked | None) -> Level | None:
    """What a baseline's difference from the newest makes of the newest one's own level."""
    if found is None or found.baseline is None or found.current is None:
        return None
    ends = (
        (found.current,)
        if found.interval is None
        else (found.current, *(found.baseline + end for end in found.interval))
    )
    if metric.unit != "share" and found.baseline > 0 and own > 0:
        values = [max(own * end / found.baseline, 0.0) for end in ends]
    else:
        values = [max(own + end - found.baseline, 0.0) for end in ends]
    if metric.unit == "share":
        values = [min(value, 1.0) for value in values]
    interval = None if found.interval is None else (values[1], values[2])
    return Level(values[0], interval, found.raw_current)


def _numbers(levels: Sequence[Level | None]) -> Array:
    return np.array([math.nan if level is None else level.level for level in levels])


def _scaled(metric: Metric, values: Array) -> Array:
    """Logarithms where a metric moves in per cent, else the values."""
    known = values[np.isfinite(values)]
    if metric.limit_share is None or not (known > 0).all():
        return values
    out: Array = np.log(values)
    return out


# --- steps and slopes -----------------------------------------------------------------------------


def _trend(
    metric: Metric, levels: tuple[Level | None, ...], values: Array, scaled: Array,
    found: Sequence[Found], baselines: Sequence[Kept], weeks: Array | None, metrics: int,
) -> Trend:  # fmt: skip
    known = np.flatnonzero(np.isfinite(values))
    many = len(baselines) >= LEAST_POINTS
    place = {int(at): number for number, at in enumerate(known)}
    points = _large(metric, values[known], [place[f.at] for f in found])
    drift: Literal["worse", "better"] | None = None
    if points and is_drift(scaled[known], points):
        drift = _drift(metric, values[known])
        points = []
    elif not found and many and slides(scaled[known], metrics=metrics):
        drift = _drift(metric, values[known])
    proved = {f.at: f.p_adjusted for f in found}
    steps = tuple(
        _step(metric, values[known], points, number, proved, known, baselines)
        for number in range(len(points))
    )
    suspected = None
    apart = _apart(metric, values[known]) if many and not points and drift is None else None
    if apart is not None:
        suspected = _step(metric, values[known], [apart], 0, {}, known, baselines)
    slope = None
    if weeks is not None:
        first = points[-1] if points else 0
        line = _line(weeks[known[first:]], values[known[first:]])
        if line is not None:
            slope = Slope(line.per_week, (line.low, line.high), int(known[first]))
    trend = Trend(
        metric=metric.id, title=tr(metric.title), unit=metric.unit, worse=metric.worse,
        limit=metric.limit, limit_share=metric.limit_share, levels=levels, slope=slope,
        drift=drift, steps=steps, suspected=suspected, says="",
    )  # fmt: skip
    return _with_words(trend, len(known), judged=many)


def _apart(metric: Metric, values: Array) -> int | None:
    """Where all that follows lies beyond all that was before, by more than the limits.

    Of several such places the one with the largest step. It proves nothing: ten values in any
    order have such a place about once in seventeen times.
    """
    places = range(LEAST_SIDE, len(values) - LEAST_SIDE + 1)
    steps = {
        at: _excess(metric, *_means(values, [at]))
        for at in places
        if values[:at].max() < values[at:].min() or values[:at].min() > values[at:].max()
    }
    best = max(steps, key=steps.__getitem__, default=None)
    return best if best is not None and steps[best] >= 1 else None


def _large(metric: Metric, values: Array, points: list[int]) -> list[int]:
    """The change points across which the level moves by more than the limits of the metric.

    The smallest one goes first, and its neighbours are looked at again.
    """
    points = sorted(points)
    while points:
        means = _means(values, points)
        excess = [_excess(metric, a, b) for a, b in pairwise(means)]
        least = int(np.argmin(excess))
        if excess[least] >= 1:
            return points
        del points[least]
    return points


def _means(values: Array, points: Sequence[int]) -> list[float]:
    edges = [0, *points, len(values)]
    return [float(values[a:b].mean()) for a, b in pairwise(edges)]


def _excess(metric: Metric, before: float, after: float) -> float:
    """A change in units of what may be lost: above 1 it exceeds both limits."""
    allowed = max(metric.limit, (metric.limit_share or 0.0) * abs(before), 1e-12)
    return abs(after - before) / allowed


def _direction(metric: Metric, change: float) -> Literal["worse", "better"]:
    return "worse" if (change > 0) == (metric.worse == "up") else "better"


def _drift(metric: Metric, values: Array) -> Literal["worse", "better"] | None:
    """Which way a level slides, if from end to end it exceeds the limits."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    rise = float(x @ values) / float(x @ x) * (len(values) - 1)
    middle = float(values.mean())
    if _excess(metric, middle - rise / 2, middle + rise / 2) < 1:
        return None
    return _direction(metric, rise)


def _step(
    metric: Metric, values: Array, points: Sequence[int], number: int,
    proved: Mapping[int, float], known: Any, baselines: Sequence[Kept],
) -> Step:  # fmt: skip
    means = _means(values, points)
    before, after = means[number], means[number + 1]
    at = int(known[points[number]])
    share_ = None
    if metric.limit_share is not None and before > 0:
        share_ = after / before - 1
    return Step(
        at=at,
        label=baselines[at].label,
        start=baselines[at].start,
        before=before,
        after=after,
        change=after - before,
        change_share=share_,
        direction=_direction(metric, after - before),
        p_adjusted=proved.get(at),
    )


def _line(weeks: Array, values: Array) -> Line | None:
    if len(weeks) < LEAST_POINTS or np.ptp(weeks) < LEAST_SPAN_WEEKS:
        return None
    return slope_of(weeks, values)


# --- words ----------------------------------------------------------------------------------------


def moved_by(step: Step, unit: str) -> str:
    """A step in per cent, or in points of a share."""
    if step.change_share is not None:
        return signed_share(step.change_share)
    return signed(step.change, unit)


def called(label: str, start: str | None) -> str:
    """A baseline in words: ``v1.4 (2026-03-12)``."""
    return baseline_of(clean(label, 60), start)


_SINCE = {
    "worse": mark("worse since {baseline}: {change}, {before} → {after}"),
    "better": mark("better since {baseline}: {change}, {before} → {after}"),
}
_MAY_BE = {
    "worse": mark("may be worse since {baseline}: {change}, {before} → {after}, not proved"),
    "better": mark("may be better since {baseline}: {change}, {before} → {after}, not proved"),
}
_DRIFTS = {
    "worse": mark("drifts, and gets worse"),
    "better": mark("drifts, and gets better"),
}
_HEADLINES = {
    "worse": mark("Worse since {baseline}: {metric} {change} at equal mix"),
    "better": mark("Better since {baseline}: {metric} {change} at equal mix"),
}
_SLOWLY = {
    "worse": mark("Worse, slowly: {metric} drifts over {baselines}"),
    "better": mark("Better, slowly: {metric} drifts over {baselines}"),
}
_NOT_PROVED = {
    "worse": mark(
        "Not proved: {metric} may be worse since {baseline} ({change} at equal mix); over "
        "{baselines} that can still be chance"
    ),
    "better": mark(
        "Not proved: {metric} may be better since {baseline} ({change} at equal mix); over "
        "{baselines} that can still be chance"
    ),
}


def _moving(text: str, step: Step, unit: str) -> str:
    """A sentence about a step, with its figures."""
    return tr(
        text, baseline=called(step.label, step.start), change=moved_by(step, unit),
        before=shown(step.before, unit), after=shown(step.after, unit),
    )  # fmt: skip


def _with_words(trend: Trend, known: int, *, judged: bool) -> Trend:
    parts = [_moving(_SINCE[step.direction], step, trend.unit) for step in trend.steps]
    if trend.suspected is not None:
        step = trend.suspected
        parts.append(_moving(_MAY_BE[step.direction], step, trend.unit))
    if trend.drift is not None:
        parts.append(tr(_DRIFTS[trend.drift]))
    if not parts:
        if known < LEAST_POINTS:
            parts.append(
                tr_n(
                    "{n} baseline: no change point is looked for below {least}",
                    "{n} baselines: no change point is looked for below {least}",
                    known, n=known, least=LEAST_POINTS,
                )
            )  # fmt: skip
        elif judged:
            parts.append(tr("no change"))
    slope = trend.slope
    if slope is not None and not slope.interval[0] <= 0 <= slope.interval[1]:
        low, high = (signed(end, trend.unit) for end in slope.interval)
        change = signed(slope.per_week, trend.unit)
        if slope.since and trend.steps:
            text = tr("{change} a week since then ({low} to {high})",
                      change=change, low=low, high=high)  # fmt: skip
        else:
            text = tr("{change} a week ({low} to {high})", change=change, low=low, high=high)
        parts.append(text)
    return replace(
        trend, says=tr("{metric}: {says}", metric=trend.title, says=tr("; ").join(parts))
    )


def _headline(metrics: Sequence[Trend], baselines: Sequence[Kept], *, judged: bool) -> str:
    n = len(baselines)
    over = tr_n("{n} baseline", "{n} baselines", n, n=n)
    if not judged:
        return tr("Trend only: {baselines}; change points are looked for from {least} on",
                  baselines=over, least=LEAST_POINTS)  # fmt: skip
    steps = [(t, t.steps[-1]) for t in metrics if t.steps]
    # The latest change first, of these what moved most in units of its limit.
    steps.sort(key=lambda p: (-p[1].at, -_moved(*p)))
    for direction in ("worse", "better"):
        mine = [(t, s) for t, s in steps if s.direction == direction]
        sliding = [t for t in metrics if t.drift == direction]
        if not mine and not sliding:
            continue
        if mine:
            trend, step = mine[0]
            text = tr(
                _HEADLINES[direction], baseline=called(step.label, step.start), metric=trend.title,
                change=moved_by(step, trend.unit),
            )  # fmt: skip
        else:
            text = tr(_SLOWLY[direction], metric=sliding[0].title, baselines=over)
        more = len({t.metric for t, _ in mine} | {t.metric for t in sliding}) - 1
        if not more:
            return text
        return tr_n("{headline} (and {n} more metric)", "{headline} (and {n} more metrics)",
                    more, headline=text, n=more)  # fmt: skip
    doubts = [(t, t.suspected) for t in metrics if t.suspected is not None]
    if doubts:
        doubts.sort(key=lambda p: (p[1].direction != "worse", -_moved(*p)))
        trend, step = doubts[0]
        return tr(
            _NOT_PROVED[step.direction], metric=trend.title,
            baseline=called(step.label, step.start), change=moved_by(step, trend.unit),
            baselines=over,
        )  # fmt: skip
    return tr("No change in {n} metrics over {baselines}", n=len(metrics), baselines=over)


def _moved(trend: Trend, step: Step) -> float:
    """A step in units of the limit of its metric."""
    return _excess(METRICS[trend.metric], step.before, step.after)


def _notes(
    baselines: Sequence[Kept], busy: int, metrics: Sequence[Trend], *, judged: bool
) -> list[str]:
    """How to read it; ``busy`` baselines met other demand than the newest."""
    newest = baselines[-1]
    out = [
        tr(
            "levels are at the traffic mix of {baseline}; intervals are of the difference from it",
            baseline=called(newest.label, newest.start),
        )
    ]
    if busy:
        out.append(
            tr(
                "{n} of {all} baselines met other demand than the newest; where enough requests "
                "met alike demand it is held equal",
                n=busy, all=len(baselines),
            )
        )  # fmt: skip
    least = min((k.covered_share for k in baselines if k.covered_share is not None), default=1.0)
    if least < 1:
        out.append(
            tr("at least {part} of the newest one's requests have a counterpart in each",
               part=share(least))
        )  # fmt: skip
    if judged:
        text = tr(
            "a change point holds in a permutation test over all {metrics} metrics (a false one in "
            "{n} histories at most), lasts for {least} baselines, and exceeds the limits of its "
            "metric",
            metrics=len(metrics), n=round(1 / ALPHA), least=LEAST_SIDE,
        )  # fmt: skip
    else:
        text = tr("below {n} baselines levels are shown, and nothing is judged", n=LEAST_POINTS)
    return [*out, text]
