"""All that the gate keeps of one run: sums by cell, the cost lines, counts of what failed.

A sketch is small whatever the size of the log, and nothing in it is a request: tallies of TTFT,
decode, queueing and reuse (:mod:`ttftdoctor.measure.mix`), the prefill line of each model with its
covariance, and how many requests failed in each stretch of time. Sketches of the shards of one
run add up.

What is held equal is what clients do, never what the server did with it: turn, input length,
the tokens that a session had not sent before (``fresh``), and demand. Cached tokens are the
server's doing; were they held equal, a cache that stopped working would leave nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import Diagnosis, Input
from ttftdoctor.examine import Examined
from ttftdoctor.gate.warmup import WarmUp, warm_up_of
from ttftdoctor.intake import Log
from ttftdoctor.measure.lines import AFTER, Lines, Prefill, middle_of
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.mix import (
    BLOCKS,
    MOST_VALUES,
    Tally,
    demand_classes,
    length_classes,
    session_clusters,
    session_names,
    summed,
    turn_classes,
)
from ttftdoctor.measure.rows import Array, Index, Rows
from ttftdoctor.stats import or_zero
from ttftdoctor.table import REJECT

#: Sessions are spread over this many clusters.
CLUSTERS = 64
#: A tally has no more cells than this: classes are made wider until it does.
MOST_CELLS = 2000
#: How classes are made wider, one after the other.
WIDER: tuple[dict[str, int], ...] = (
    {"demand": 2, "beside": 2},
    {"fresh": 2, "running": 2},
    {"demand": 0},
    {"length": 2},
    {"fresh": 4, "beside": 4},
    {"turn": 2},
    {"length": 4, "running": 4},
    {"turn": 4, "beside": 0},
    {"fresh": 0},
)
#: Prefill of others beside a decode is classed by half doublings from this many tokens a second.
BESIDE_FROM = 50.0
#: Answers of fewer tokens have no decode to speak of, where there are longer ones.
LEAST_STEPS = 15
#: What is counted in each stretch of time.
KINDS = ("all", "failed", "rate_limited", "aborted")
_KINDS = {"failed_request": 1, "rate_limited": 2, "aborted_request": 3}


@dataclass(frozen=True)
class Line:
    """The prefill line of one model; seconds, and thousands of tokens.

    ``coef`` are constant, per uncached, attention, per token of context; ``covariance`` (4, 4) of
    the resampled fits. ``points`` are the lower quartile, median and 90th percentile of uncached
    tokens and the median of cached ones, in thousands.
    """

    model: str
    coef: Array
    covariance: Array
    separable: bool
    n: int
    points: tuple[float, float, float, float]


@dataclass(frozen=True)
class Counts:
    """Requests by stretch of time, shape (stretches, ``KINDS``), for each model and route.

    ``known``: the log says of its requests whether they failed.
    """

    by: dict[tuple[str, str], Array]
    known: bool

    def plus(self, other: Counts) -> Counts:
        """Stretches of two parts set side by side."""
        sizes = [next((len(v) for v in c.by.values()), 0) for c in (self, other)]
        out = {}
        for key in sorted({*self.by, *other.by}):
            parts = [
                c.by.get(key, np.zeros((size, len(KINDS))))
                for c, size in zip((self, other), sizes, strict=True)
            ]
            out[key] = np.concatenate(parts)
        return Counts(out, self.known and other.known)


@dataclass(frozen=True)
class Facts:
    """What is known of a run besides its sums. ``start`` and ``end`` are ISO 8601 UTC or None.

    ``warm_up`` requests were set aside; ``settled`` is false where nearly all of it is warm-up.
    ``cause`` and ``headline`` are those of its diagnosis. ``demand`` is the mean of what requests
    met, in half doublings of input tokens a second (:class:`~ttftdoctor.measure.mix.Cell`).
    """

    inputs: tuple[Input, ...]
    requests: int
    with_ttft: int
    sessions: int | None
    start: str | None
    end: str | None
    span_s: float | None
    vantage: str | None
    models: tuple[str, ...]
    warm_up: int
    settled: bool
    cause: str
    headline: str
    demand: float | None


@dataclass(frozen=True)
class Sketch:
    """One run. A tally is None where the log does not have what it sums.

    ``ttft``: seconds, regressed on fresh tokens. ``decode``: seconds per output token after the
    first, regressed on tokens that were prefilled beside it. ``queue``: logged queueing, seconds.
    ``hits`` and ``again``: thousands of tokens cached, and computed again, with all input tokens
    as x.
    """

    facts: Facts
    ttft: Tally
    decode: Tally | None
    queue: Tally | None
    hits: Tally | None
    again: Tally | None
    lines: tuple[Line, ...]
    counts: Counts

    def plus(self, other: Sketch) -> Sketch:
        """Two shards of one run as one; what only one of them knows is left out."""
        a, b = self, other
        return Sketch(
            facts=_joined(a.facts, b.facts),
            ttft=a.ttft.plus(b.ttft),
            decode=_sum(a.decode, b.decode),
            queue=_sum(a.queue, b.queue),
            hits=_sum(a.hits, b.hits),
            again=_sum(a.again, b.again),
            lines=_lines_together((*a.lines, *b.lines)),
            counts=a.counts.plus(b.counts),
        )


def sketch_of(
    log: Log, diagnosis: Diagnosis, examined: Examined, *, warm_up: bool | float = True
) -> Sketch:
    """Sum up one log.

    Parameters
    ----------
    warm_up
        True looks for a slow head and sets it aside, False keeps everything, a number sets so
        many seconds from the first arrival aside.
    """
    rows = examined.rows
    names = session_names(log.requests, rows)
    cost = _cost(rows, examined.lines)
    settled = _settled(rows, cost, warm_up)
    kept = np.ones(rows.n, dtype=bool)
    measured = np.flatnonzero(rows.measured)
    kept[_by_time(rows, measured)[: settled.cut]] = False
    turn, length, demand = turn_classes(rows), length_classes(rows.inputs), demand_classes(rows)
    fresh = fresh_tokens(rows)
    sent = {"turn": turn, "length": length, "fresh": length_classes(fresh)}
    met = sent | {"demand": demand}

    everybody = session_clusters(rows, np.arange(rows.n), names, CLUSTERS)[0]

    def tally(
        value: Array, x: Array, classes: Mapping[str, Index] = sent, *, histogram: bool = False
    ) -> Tally | None:
        at = np.flatnonzero(kept & np.isfinite(value))
        if not len(at):
            return None
        session = rows.session[at]
        count = int((session < 0).sum()) + int(np.count_nonzero(np.bincount(session[session >= 0])))
        return summed(
            rows, at, value[at], x[at], {name: codes[at] for name, codes in classes.items()},
            clusters=CLUSTERS, drawn=(everybody[at], count),
            histogram=histogram, ledger=examined.ledger, wider=WIDER, most=MOST_CELLS,
        )  # fmt: skip

    regressor = np.where(np.isfinite(fresh), fresh, rows.inputs)
    ttft = tally(rows.ttft, regressor, met, histogram=True)
    if ttft is None:
        nothing = np.zeros(0, dtype=np.int64)
        empty = np.zeros(0)
        ttft = summed(rows, nothing, empty, empty, {}, clusters=CLUSTERS)
    hits = again = None
    if rows.cached_logged:
        input_k = np.where(np.isfinite(rows.cached), rows.inputs, np.nan)
        hits = tally(np.where(np.isfinite(input_k), rows.cached / 1e3, np.nan), rows.inputs)
        if rows.reuse_grade != "none":
            again = tally(np.where(np.isfinite(input_k), rows.recomputed / 1e3, np.nan),
                          rows.inputs)  # fmt: skip
    return Sketch(
        facts=_facts(diagnosis, rows, settled, demand[measured]),
        ttft=ttft,
        decode=_decode(rows, tally),
        queue=tally(rows.queue, regressor, met) if _covered(rows.queue) else None,
        hits=hits,
        again=again,
        lines=_lines(rows, examined.lines, examined.load),
        counts=counts_of(log),
    )


def fresh_tokens(rows: Rows) -> Array:
    """Tokens of each prompt that its session had not sent or got before; NaN where unknown.

    A property of the traffic: it does not depend on what was served from a cache. Where prompts
    are known by content, what any earlier request had counts as sent.
    """
    if rows.reuse_grade == "content":
        return np.clip(rows.inputs - or_zero(rows.repeated), 0.0, None)
    alone = np.full(rows.n, np.nan) if rows.session_grade == "none" else rows.inputs
    before = rows.previous_input + or_zero(rows.previous_output)
    grown = rows.inputs >= 0.98 * rows.previous_input
    known = np.where(grown, np.clip(rows.inputs - before, 0.0, None), rows.inputs)
    return np.where(np.isfinite(rows.previous_input), known, alone)


def crowd_of(rows: Rows) -> tuple[Array, Array]:
    """Who decoded, and what was prefilled, while each request decoded: at its server.

    Returns
    -------
    running, beside
        The mean number of others between their first and last token, and uncached tokens a second
        whose prefill ended meanwhile; NaN where the log has no times or ends.

    Notes
    -----
    The time that all intervals have spent in progress up to t is a sum of t less their starts and
    less their ends, so two sorts a server give every mean exactly.
    """
    running, beside = np.full(rows.n, np.nan), np.full(rows.n, np.nan)
    known = rows.measured & np.isfinite(rows.start) & np.isfinite(rows.e2e)
    if not rows.order_known:
        return running, beside
    for every in rows.arrivals:
        at = every[known[every]]
        if not len(at):
            continue
        first = rows.start[at] + rows.ttft[at]
        last = rows.start[at] + np.maximum(rows.e2e[at], rows.ttft[at])
        lasting = last - first
        begun, ended = _progress(first), _progress(last)
        spent = begun(last) - ended(last) - begun(first) + ended(first)
        tokens = or_zero(rows.uncached[at])
        order = np.argsort(first, kind="stable")
        total = np.concatenate([[0.0], np.cumsum(tokens[order])])
        ordered = first[order]
        until = total[np.searchsorted(ordered, last, side="right")]
        since = total[np.searchsorted(ordered, first, side="right")]
        some = lasting > 0
        running[at[some]] = np.clip(spent[some] / lasting[some] - 1.0, 0.0, None)
        beside[at[some]] = (until - since)[some] / lasting[some]
    return running, beside


class _progress:  # noqa: N801  (a function that remembers a sort)
    """Seconds passed since each of some moments, summed, at other moments."""

    def __init__(self, moments: Array) -> None:
        self.moments = np.sort(moments)
        self.total = np.concatenate([[0.0], np.cumsum(self.moments)])

    def __call__(self, when: Array) -> Array:
        past = np.searchsorted(self.moments, when, side="right")
        summed: Array = past * when - self.total[past]
        return summed


def counts_of(log: Log) -> Counts:
    """Count requests and failures by stretch of time with the same number of requests."""
    columns = ("model", "route", "start", "source", "line")
    ok = log.requests.select(*columns, kind=pl.lit(0, dtype=pl.Int8))
    kinds = pl.col(REJECT).replace_strict(_KINDS, default=1, return_dtype=pl.Int8)
    bad = log.failed.select(*columns, kind=kinds)
    frame = pl.concat([ok, bad]) if bad.height else ok
    known = "status" in log.fields or bad.height > 0
    if not frame.height:
        return Counts({}, known)
    if frame["start"].null_count() < frame.height:
        frame = frame.sort("start", "source", "line", nulls_last=True)
    for name in ("model", "route"):
        few = frame[name].n_unique() <= MOST_VALUES + 1
        text = pl.col(name).fill_null("") if few else pl.lit("")
        frame = frame.with_columns(text.alias(name))
    stretch = (pl.int_range(pl.len(), dtype=pl.Int64) * BLOCKS // pl.len()).alias("stretch")
    found = frame.with_columns(stretch).group_by("model", "route", "stretch", "kind").len()
    by: dict[tuple[str, str], Array] = {}
    for model, route, at, kind, n in found.sort("model", "route").iter_rows():
        sums = by.setdefault((model, route), np.zeros((BLOCKS, len(KINDS))))
        sums[at, 0] += n
        if kind:
            sums[at, kind] += n
    return Counts(by, known)


# --- parts of it ----------------------------------------------------------------------------------


def _cost(rows: Rows, lines: Lines | None) -> Array:
    """Seconds that each row takes by its line; the median TTFT where there is none."""
    cost = np.full(rows.n, float(np.median(rows.ttft[rows.measured])) if rows.measured.any() else 0)
    if lines is None:
        return cost
    for mask, line in lines.each():
        expected = line.predict(rows.uncached[mask], rows.context[mask])
        cost[mask] = np.where(np.isfinite(expected), expected, cost[mask])
    return cost


def _by_time(rows: Rows, at: Index) -> Index:
    if not rows.order_known or not rows.one_clock:
        return at[:0]
    order: Index = at[np.argsort(rows.start[at], kind="stable")]
    return order


def _settled(rows: Rows, cost: Array, warm_up: bool | float) -> WarmUp:
    at = _by_time(rows, np.flatnonzero(rows.measured))
    if warm_up is True:
        return warm_up_of(rows.ttft[at], cost[at])
    if warm_up is False or not len(at):
        return WarmUp(0, only=False)
    early = rows.start[at] < rows.start[at[0]] + warm_up
    return WarmUp(int(early.sum()), only=bool(early.all()))


def _decode(rows: Rows, tally: Callable[..., Tally | None]) -> Tally | None:
    steps = rows.outputs - 1
    known = rows.measured & (rows.e2e > rows.ttft) & (steps >= 1)
    longer = known & (steps >= LEAST_STEPS)
    if longer.sum() >= 0.3 * known.sum():
        known = longer
    if known.sum() < 5:
        return None
    running, beside = crowd_of(rows)
    pace = np.where(known, (rows.e2e - rows.ttft) / np.maximum(steps, 1), np.nan)
    classes = {
        "length": -(-length_classes(rows.inputs + or_zero(rows.outputs) / 2) // 2) * 2,
        "running": _halves(running, 1.0),
        "beside": _halves(beside, BESIDE_FROM),
    }
    return tally(pace, beside, classes)


def _halves(values: Array, unit: float) -> Index:
    """Half doublings from one unit on, 0 below it; -1 unknown."""
    place = np.floor(2 * np.log2(np.maximum(or_zero(values), unit / 2) / unit)) + 1
    return np.where(np.isfinite(values), np.maximum(place, 0), -1).astype(np.int64)


def _covered(values: Array) -> bool:
    return len(values) > 0 and bool(np.isfinite(values).mean() >= 0.5)


def _lines(rows: Rows, lines: Lines | None, load: Load | None) -> tuple[Line, ...]:
    """A line for each model that the diagnosis has one of."""
    if lines is None or load is None:
        return ()
    scope = rows.scopes.get("model")
    names = () if scope is None else scope.names
    if not lines.by_model:
        every = np.ones(rows.n, dtype=bool)
        return _line(rows, lines.main, load, every, names[0] if len(names) == 1 else "")
    out: list[Line] = []
    for code, line in sorted(lines.by_model.items()):
        # Where the service changed in mid-log, each stretch has a line and counts by its requests.
        model = code % AFTER
        name = names[model] if model < len(names) else ""
        out += _line(rows, line, load, lines.codes == code, name)
    return _lines_together(out)


def _line(rows: Rows, line: Prefill, load: Load, mask: np.ndarray, name: str) -> tuple[Line, ...]:
    used = mask & rows.measured & np.isfinite(rows.inputs)
    middle = middle_of(rows, load, mask, attention=line.has_attention)
    if middle is None or used.sum() < 5:
        return ()
    low, centre, high = np.quantile(rows.uncached[used], [0.25, 0.5, 0.9]) / 1e3
    context = float(np.median(rows.context[used])) / 1e3
    return (
        Line(
            model=name,
            coef=middle.coef,
            covariance=np.cov(middle.draws, rowvar=False),
            separable=line.separable,
            n=int(used.sum()),
            points=(float(low), float(centre), float(high), context),
        ),
    )


def _facts(diagnosis: Diagnosis, rows: Rows, settled: WarmUp, demand: Index) -> Facts:
    people = diagnosis.population
    start = rows.start[np.isfinite(rows.start)]
    span = float(np.ptp(start)) if rows.order_known and len(start) > 1 else None
    scope = rows.scopes.get("model")
    met = demand[demand >= 0]
    return Facts(
        inputs=diagnosis.inputs,
        requests=people.requests,
        with_ttft=people.with_ttft,
        sessions=people.sessions,
        start=people.start,
        end=people.end,
        span_s=span or None,
        vantage=people.vantage,
        models=() if scope is None else scope.names[:MOST_VALUES],
        warm_up=settled.cut,
        settled=not settled.only,
        cause=diagnosis.verdict.primary_cause,
        headline=diagnosis.verdict.headline,
        demand=float(met.mean()) if len(met) >= 0.5 * max(len(demand), 1) and len(met) else None,
    )


# --- adding up ------------------------------------------------------------------------------------


def _sum(a: Tally | None, b: Tally | None) -> Tally | None:
    return None if a is None or b is None else a.plus(b)


def _joined(a: Facts, b: Facts) -> Facts:
    starts = [f.start for f in (a, b) if f.start is not None]
    ends = [f.end for f in (a, b) if f.end is not None]
    sick = a if a.cause == "measurement_artifact" else b
    demand = None
    if a.demand is not None and b.demand is not None:
        part = a.with_ttft / max(a.with_ttft + b.with_ttft, 1)
        demand = part * a.demand + (1 - part) * b.demand
    return replace(
        a if a.requests >= b.requests else b,
        inputs=(*a.inputs, *b.inputs),
        requests=a.requests + b.requests,
        with_ttft=a.with_ttft + b.with_ttft,
        sessions=None if None in (a.sessions, b.sessions) else a.sessions + b.sessions,  # type: ignore[operator]
        start=min(starts, default=None),
        end=max(ends, default=None),
        span_s=None if a.span_s is None or b.span_s is None else max(a.span_s, b.span_s),
        vantage=a.vantage if a.vantage == b.vantage else None,
        models=tuple(sorted({*a.models, *b.models})),
        warm_up=a.warm_up + b.warm_up,
        settled=a.settled and b.settled,
        cause=sick.cause,
        headline=sick.headline,
        demand=demand,
    )


def _lines_together(lines: Sequence[Line]) -> tuple[Line, ...]:
    """One line a model: the mean of the fits, each counting by its requests."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.model, []).append(line)
    return tuple(reduce(_mean_line, group) for _, group in sorted(groups.items()))


def _mean_line(a: Line, b: Line) -> Line:
    part = a.n / (a.n + b.n)
    points = tuple(part * x + (1 - part) * y for x, y in zip(a.points, b.points, strict=True))
    return Line(
        model=a.model,
        coef=part * a.coef + (1 - part) * b.coef,
        covariance=part**2 * a.covariance + (1 - part) ** 2 * b.covariance,
        separable=a.separable and b.separable,
        n=a.n + b.n,
        points=points,  # type: ignore[arg-type]
    )
