"""The verdict: two baselines in, one answer out; no row is looked at here.

Rules, and where they come from:

* Figures are compared at the baseline's mix (:mod:`ttftdoctor.gate.even`), those of TTFT at equal
  demand as well where demand differs by 5 % or more and enough requests met alike demand. Which
  of the two is decided by demand alone, never by what it would say.
* FAIL: the change for the worse exceeds the limit, in share and in amount, *and* its one-sided
  p-value after Holm (1979) is at most ``alpha``: it is both large and certain. Testing for more
  than zero and asking for a size besides is the rule of practical significance (Kirk 1996,
  Educ. Psychol. Meas. 56:746).
* PASS: the bad end of the one-sided interval is within the limit (the confidence-interval form of
  the non-inferiority test; Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657), or the change is
  within it and a change as large as the limit would have been seen four times in five.
* INCONCLUSIVE: anything else, with the smallest change that would have been seen; errors shrink
  with the root of the number of requests. So is a TTFT whose change more demand alone explains,
  where it cannot be held equal.
* INVALID: the two sides cannot be compared at all.

The whole fails if any metric does. It is inconclusive if a headline metric is (mean or median of
TTFT, or, where neither is asked for, any): a tail or a metric for which the log is too short does
not take back what these prove, and is named in the answer. Under a policy file by which an
inconclusive answer fails, every metric that it asks for must be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.errors import UsageError
from ttftdoctor.gate.baseline import Baseline, lost_said
from ttftdoctor.gate.estimate import Estimate, holm, rates
from ttftdoctor.gate.even import (
    ENOUGH_RUNS,
    Figure,
    aligned,
    cut,
    figure_of,
    level_of,
    whole,
)
from ttftdoctor.gate.lines import Part, line_estimate
from ttftdoctor.gate.metrics import METRICS, QUANTILE, Metric
from ttftdoctor.gate.records import Check, Checked, Outcome, Population, Scope
from ttftdoctor.gate.rules import Budget, Policy, Rule
from ttftdoctor.gate.words import clock_at, shown, signed
from ttftdoctor.language import listed, spoken, tr
from ttftdoctor.measure.mix import EXTRAS, LENGTH_FROM, MOMENTS, Cell, Tally
from ttftdoctor.measure.rows import Array
from ttftdoctor.measure.weigh import Beside, Pair
from ttftdoctor.report import clean
from ttftdoctor.units import count, figure, share, signed_share

#: Requests with a TTFT that each side must have.
LEAST_ROWS = 30
#: ... and beyond a quantile that is judged: fewer make no interval that holds.
LEAST_BEYOND = 20
#: Runs of one service differ by this share, if nothing is known of it (2 % is what machines that
#: serve nothing else show).
RUN_SPREAD = 0.02
#: With less of the baseline's requests in common, nothing is compared.
TOO_LITTLE = 0.3
#: With less than this in common the answer says so.
MUCH = 0.8
#: From this difference in demand on, it is held equal if that can be.
HELD_SHARE = 0.05
#: From this one on, what less demand may hide counts as well.
LOAD_SHARE = 0.2
#: Of this share of the requests at alike demand, the answer may rest on them.
ENOUGH_ALIKE = 0.5
#: Waiting grows with at most this power of the load, short of saturation.
STEEP = 5
#: Waiting as a share of TTFT where the log does not tell.
SOME_WAIT = 0.3
#: How much larger a part waiting is of the slow requests than of all.
IN_TAIL = {"ttft_p95": 2.0, "ttft_p99": 3.0}
_QUEUE = ("queue_behind_repeated", "queue_behind_new", "queue_other")
#: What of an error rate counts as a failure, by column of the counts.
_FAILED = {"error_rate": (1, 2), "abort_rate": (3,)}


def judge(baseline: Baseline, current: Baseline, policy: Policy, *, version: str = "0") -> Check:
    """Hold the current side against the baseline.

    Raises
    ------
    UsageError
        If the policy names a metric that there is not, or leaves out a target that it needs.
    """
    everything: tuple[Rule | Budget, ...] = (*policy.rules, *policy.budgets)
    for asked in everything:
        _known(asked)
    sides = _Sides(baseline, current)
    empty = Check(
        version=version, outcome="invalid", headline="", metrics=(), policy=policy.source,
        baseline=_population(baseline, None), current=_population(current, None),
        inconclusive_fails=policy.inconclusive == "fail",
    )  # fmt: skip
    reasons = _refusals(sides)
    if reasons:
        text = tr("Not compared: {why}", why=reasons[0])
        return replace(empty, headline=text, reasons=tuple(reasons[1:]))
    found = [_unsure(sides, _checked(sides, rule)) for rule in policy.rules]
    found += [_budgeted(sides, budget) for budget in policy.budgets]
    if policy.source is None:
        # The built-in rules ask for whatever there is.
        found = [f for f in found if f.estimate or f.asked.budget is not None or f.needed]
    judged = _decided(found, policy)
    covered = sides.covered
    notes = _notes(sides, policy)
    outcome = _overall(judged, policy)
    return replace(
        empty,
        outcome=outcome,
        headline=_headline(outcome, judged, policy),
        metrics=tuple(judged),
        baseline=_population(baseline, covered[0]),
        current=_population(current, covered[1]),
        notes=tuple(notes),
        warnings=tuple(_guards(sides)),
    )


def _unsure(sides: _Sides, found: _Found) -> _Found:
    """The same with its test allowing for what starts of one service differ by.

    Nothing within a run tells how much faster or slower the same server is when it is started
    again. Where there are too few runs to show it, so much is assumed of every figure that is a
    time before anybody is blamed; the interval is that of these runs.
    """
    e, runs = found.estimate, (sides.baseline.runs, sides.current.runs)
    if e is None or e.error is None or min(runs) >= ENOUGH_RUNS:
        return found
    if found.asked.metric.kind not in ("ttft", "queue", "decode", "line"):
        return found
    spread = RUN_SPREAD * math.sqrt(sum(1 / n for n in runs))
    wider = math.hypot(e.error, spread * (1.0 if e.relative else abs(e.baseline)))
    # What is assumed has no degrees of freedom to lose (Satterthwaite 1946, Biometrics 2:110).
    freedom = e.freedom * (wider / e.error) ** 4 if e.error > 0 else math.inf
    p = replace(e, error=wider, freedom=min(freedom, 1e6)).p_value(found.asked.worse)
    return replace(found, estimate=replace(e, p=p))


# --- both sides -----------------------------------------------------------------------------------


class _Sides:
    """Both sides, and what was worked out of them already."""

    def __init__(self, baseline: Baseline, current: Baseline) -> None:
        self.baseline, self.current = baseline, current
        self.pairs: dict[tuple[str, Scope], tuple[Tally, Tally] | None] = {}
        self.cuts: dict[tuple[str, Scope, str], tuple[Beside, tuple[str, ...]] | None] = {}

    def tallies(self, name: str, scope: Scope) -> tuple[Tally, Tally] | None:
        """One tally of each side within a scope."""
        key = name, scope
        if key not in self.pairs:
            # Where runs are the clusters, nobody asks for those within a run.
            only = min(self.baseline.runs, self.current.runs) >= ENOUGH_RUNS
            both = tuple(s.tally(name, runs_only=only) for s in (self.baseline, self.current))
            found = None
            if both[0] is not None and both[1] is not None:
                wanted = _within(scope)
                found = aligned(*(t.only(wanted) for t in both if t is not None))
                found = found if min(t.n for t in found) else None
            self.pairs[key] = found
        return self.pairs[key]

    def cut(self, name: str, scope: Scope, what: str) -> tuple[Beside, tuple[str, ...]] | None:
        """Both sides in common cells."""
        key = name, scope, what
        if key not in self.cuts:
            both = self.tallies(name, scope)
            self.cuts[key] = None if both is None else cut(*both, what)
        return self.cuts[key]

    @property
    def named(self) -> tuple[tuple[str, Baseline], tuple[str, Baseline]]:
        """Both, with what each is called in a sentence."""
        return (tr("baseline"), self.baseline), (tr("current side"), self.current)

    @cached_property
    def covered(self) -> tuple[float, float]:
        """The share of each side's requests that have a counterpart."""
        found = self.cut("ttft", Scope(), "sent")
        return (0.0, 0.0) if found is None else found[0].covered

    @cached_property
    def demand_ratio(self) -> float | None:
        """Demand that the typical request met, current over baseline; None where unknown.

        In runs too short for it (a request's demand is what came in the minute before), what came
        in a second over the whole run.
        """
        levels = []
        for side in (self.baseline, self.current):
            known = [(s.facts.demand, s.facts.with_ttft) for s in side.sketches]
            if any(d is None for d, _ in known):
                rates = [_tokens_a_second(side) for side in (self.baseline, self.current)]
                return rates[1] / rates[0] if rates[0] and rates[1] else None
            total = max(sum(n for _, n in known), 1)
            levels.append(sum((d or 0.0) * n for d, n in known) / total)
        return float(2 ** ((levels[1] - levels[0]) / 2))

    def waits(self, scope: Scope) -> float:
        """Waiting as a share of TTFT at equal mix, on the side that waits more."""
        found = self.cut("ttft", scope, "sent")
        if found is None:
            return SOME_WAIT
        place = {name: at for at, name in enumerate(EXTRAS)}
        out = []
        for side in found[0].extras():
            total = sum(float(side[place[a]]) for a in ACCOUNTS)
            waited = sum(float(side[place[a]]) for a in _QUEUE)
            out.append(waited / total if math.isfinite(total) and total > 0 else SOME_WAIT)
        return max(out)


def _tokens_a_second(side: Baseline) -> float | None:
    """Input tokens (thousands) a second of a side; None where it has no times or lengths."""
    tally = side.tally("ttft")
    spans = [s.facts.span_s for s in side.sketches]
    if tally is None or not all(spans):
        return None
    tokens = float(tally.by_session.moments[:, :, MOMENTS.index("x")].sum())
    return tokens / sum(span or 0.0 for span in spans) or None


def no_ttft(text: str, headline: str) -> str:
    """That a number is no TTFT, and why: a baseline keeps that in English, for English only."""
    if spoken() != "en":
        return text
    return f"{text} ({clean(headline, 200).rstrip('.')})"


def demand_differs(baseline: Baseline, current: Baseline) -> bool:
    """Whether one side met so much more demand than the other that the answer says so."""
    return _far(_Sides(baseline, current).demand_ratio)


def _far(ratio: float | None) -> bool:
    return ratio is not None and max(ratio, 1 / ratio) >= 1 + LOAD_SHARE


def _within(scope: Scope) -> Callable[[Cell], bool]:
    def wanted(cell: Cell) -> bool:
        return scope.model in (None, cell.model) and scope.route in (None, cell.route)

    return wanted


def _refusals(sides: _Sides) -> list[str]:
    """Why these two must not be compared; empty if they may."""
    out = []
    both = sides.named
    for name, side in both:
        sick = [s.facts for s in side.sketches if s.facts.cause == "measurement_artifact"]
        if sick:
            out.append(no_ttft(tr("what the {side} logs is no TTFT", side=name), sick[0].headline))
    for name, side in both:
        n = sum(s.ttft.n for s in side.sketches)
        if n < LEAST_ROWS:
            out.append(
                tr(
                    "only {n} requests of the {side} have a TTFT; at least {least} are needed",
                    n=count(n), side=name, least=LEAST_ROWS,
                )
            )  # fmt: skip
    models = [set(side.models) for _, side in both]
    if all(models) and not models[0] & models[1]:
        names = [clean(tr(", ").join(sorted(m)), 80) for m in models]
        out.append(tr("the models differ ({before}; {after})", before=names[0], after=names[1]))
    clocks = [{s.facts.vantage for s in side.sketches} for _, side in both]
    if all(len(c) == 1 and None not in c for c in clocks) and clocks[0] != clocks[1]:
        names = [clean(clock_at(next(iter(c))), 40) for c in clocks]
        out.append(
            tr(
                "the clock stood at the {before} of the baseline and at the {after} of the "
                "current side: the network is in one and not in the other",
                before=names[0], after=names[1],
            )
        )  # fmt: skip
    for name, side in both:
        if not all(s.facts.settled for s in side.sketches):
            out.append(tr("the {side} is nearly all warm-up", side=name))
    if not out and sides.covered[0] < TOO_LITTLE:
        out.append(
            tr(
                "only {part} of the baseline's requests have a counterpart of the same turn and "
                "length on the current side",
                part=share(sides.covered[0]),
            )
        )
    return out


# --- what is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """One metric that is asked for, whether as a rule or as a budget."""

    metric: Metric
    scope: Scope
    slo_s: float | None
    limit_share: float | None = None
    limit: float = 0.0
    budget: Budget | None = None

    @property
    def worse(self) -> str:
        """Which way is worse."""
        if self.budget is None:
            return self.metric.worse
        return "up" if self.budget.below is not None else "down"


@dataclass(frozen=True)
class _Found:
    """What was measured of it. ``why`` says why nothing was, ``spoilt`` what a change proves less
    by. ``raw`` are both levels of a plain comparison; ``basis`` is what was held equal, in English.
    """

    asked: _Asked
    estimate: Estimate | None
    raw: tuple[float, float] | None = None
    why: str = ""
    basis: tuple[str, ...] = ()
    spoilt: str = ""
    reach: float = 0.0
    needed: int | None = None
    notes: tuple[str, ...] = field(default=())


def _known(asked: Rule | Budget) -> Metric:
    metric = METRICS.get(asked.metric)
    if metric is None:
        raise UsageError(
            f"there is no metric {clean(asked.metric, 60)!r}", available=", ".join(METRICS)
        )
    if metric.needs_slo and not (asked.slo_s and asked.slo_s > 0):
        raise UsageError(f"{metric.id} needs a target for TTFT", help="set one with: --slo-ttft")
    if isinstance(asked, Budget) and (asked.below is None) == (asked.above is None):
        raise UsageError(
            f"the budget {clean(asked.text, 80)!r} needs one bound, either below or above"
        )
    return metric


def _checked(sides: _Sides, rule: Rule) -> _Found:
    metric = _known(rule)
    own = rule.limit_share is None and rule.limit is None
    asked = _Asked(
        metric=metric,
        scope=rule.scope,
        slo_s=rule.slo_s,
        limit_share=metric.limit_share if own else rule.limit_share,
        limit=metric.limit if own else rule.limit or 0.0,
    )
    return _MEASURES[metric.kind](sides, asked)


# --- measuring ------------------------------------------------------------------------------------


def _quantile(level: float) -> Figure:
    def of(pair: Pair) -> Array:
        found: Array = pair.quantiles((level,))[:, 0]
        return found

    return of


def _mean(pair: Pair) -> Array:
    return pair.means()


def _in_ms(pair: Pair) -> Array:
    return 1e3 * pair.means()


def _ratio(pair: Pair) -> Array:
    return pair.ratios()


def _within_slo(slo_s: float, scale: tuple[float, float] = (1.0, 1.0)) -> Figure:
    def of(pair: Pair) -> Array:
        found: Array = pair.within(slo_s) * np.array(scale)
        return found

    return of


def _ttft_figure(metric: str) -> Figure:
    level = QUANTILE[metric]
    return _mean if level is None else _quantile(level)


def _even(
    sides: _Sides, asked: _Asked, name: str, figure: Figure, what: str
) -> tuple[Estimate, tuple[float, float], tuple[str, ...]] | str:
    """A figure at equal mix, as logged, and in English words what was held equal."""
    both = sides.tallies(name, asked.scope)
    if both is None:
        return _missing(sides, name, asked.scope)
    found = sides.cut(name, asked.scope, what)
    plain = whole(*both)
    if found is None or plain is None or found[0].covered[0] < TOO_LITTLE:
        return tr("too few requests have a counterpart on the other side")
    beside, words = found
    got = figure_of(beside, figure, relative=asked.metric.relative)
    raw = figure(_once(plain))
    estimate = Estimate(
        got.baseline, got.current, got.error, got.freedom, asked.metric.relative,
        n=min(both[0].n, both[1].n), note="runs" if got.by_runs else "",
    )  # fmt: skip
    return estimate, (float(raw[0, 0]), float(raw[0, 1])), words


def _once(beside: Beside) -> Pair:
    """Both sides as they are, without a draw."""
    b, a = beside.b.by_session, beside.a.by_session
    return beside.drawn(b, a, np.ones((1, b.clusters)), np.ones((1, a.clusters)))


def _missing(sides: _Sides, name: str, scope: Scope) -> str:
    what = {
        "ttft": "TTFT", "decode": tr("time per output token"), "queue": tr("queueing"),
        "hits": tr("cached tokens"), "again": tr("tokens computed again"),
    }[name]  # fmt: skip
    for words, side in sides.named:
        tally = side.tally(name)
        if tally is None:
            return tr("the {side} has no {what}", side=words, what=what)
        if not tally.only(_within(scope)).n:
            return tr("the {side} has no requests of {scope}",
                      side=words, scope=clean(str(scope), 80))  # fmt: skip
    return tr("there is no {what}", what=what)


def _of_ttft(sides: _Sides, asked: _Asked) -> _Found:
    level, both = QUANTILE[asked.metric.id], sides.tallies("ttft", asked.scope)
    if level is not None and both is not None:
        beyond = min(t.n for t in both) * (1 - level)
        if beyond < LEAST_BEYOND:
            needed = math.ceil(LEAST_BEYOND / (1 - level))
            return _Found(
                asked, None, needed=needed,
                why=tr("too few requests lie beyond it (it takes {n} a side)", n=count(needed)),
            )  # fmt: skip
    return _loaded(sides, asked, "ttft", _ttft_figure(asked.metric.id))


def _of_queue(sides: _Sides, asked: _Asked) -> _Found:
    return _loaded(sides, asked, "queue", _mean)


def _of_slo(sides: _Sides, asked: _Asked) -> _Found:
    assert asked.slo_s is not None
    scale = (1.0, 1.0)
    if asked.metric.id == "goodput":
        rate = _arrivals(sides.baseline, asked.scope)
        if rate is None:
            return _Found(asked, None, why=tr("the baseline has no times"))
        scale = tuple(  # type: ignore[assignment]  # two of them
            rate * _served(side, asked.scope) for side in (sides.baseline, sides.current)
        )
    return _loaded(sides, asked, "ttft", _within_slo(asked.slo_s, scale))


def _loaded(sides: _Sides, asked: _Asked, name: str, figure: Figure) -> _Found:
    """A figure that waiting is part of: at equal demand as well, where demand differs."""
    ratio = sides.demand_ratio
    factor = 1.0 if ratio is None else max(ratio, 1 / ratio)
    differs = factor >= 1 + LOAD_SHARE
    what = "sent"
    if factor >= 1 + HELD_SHARE:
        held = sides.cut(name, asked.scope, "met")
        if held is not None and held[0].covered[0] >= ENOUGH_ALIKE:
            what = "met"
    got = _even(sides, asked, name, figure, what)
    if isinstance(got, str):
        return _Found(asked, None, why=got)
    estimate, raw, basis = got
    reach, spoilt = 0.0, ""
    if ratio is not None:
        reach = _reach(sides, asked, ratio, differs) * abs(estimate.baseline)
        spoilt = _met(ratio)
    if name == "ttft" and (factor >= 1 + HELD_SHARE or _other_traffic(estimate, raw)):
        waited = _waited(sides, asked, what) * abs(estimate.baseline)
        if waited > reach:
            reach = waited
            spoilt = tr("requests waited longer, and the traffic is not the same")
    return _Found(asked, estimate, raw, basis=basis, spoilt=spoilt, reach=reach)


def _other_traffic(estimate: Estimate, raw: tuple[float, float]) -> bool:
    """Whether the mix differs so much that it moves the figure: as logged against at equal mix."""
    if min(raw[0], estimate.baseline) <= 0:
        return False
    return abs(raw[1] / raw[0] - estimate.current / estimate.baseline) >= HELD_SHARE


def _waited(sides: _Sides, asked: _Asked, what: str) -> float:
    """What more waiting adds to the figure, as a share of the baseline's; none if it is less.

    Who waits behind others waits for what they sent: cells hold equal what a request is, not whom
    it meets. So where the traffic differs, waiting proves nothing; what the server does to the
    request itself still does (:mod:`.lines`, decode, reuse).
    """
    found = sides.cut("ttft", asked.scope, what)
    if found is None:
        return 0.0
    place = {name: at for at, name in enumerate(EXTRAS)}
    before, after = found[0].extras()
    total = sum(float(before[place[a]]) for a in ACCOUNTS)
    more = sum(float(after[place[a]] - before[place[a]]) for a in _QUEUE)
    if not (math.isfinite(total) and math.isfinite(more) and total > 0):
        return 0.0
    return max(more / total, 0.0) * IN_TAIL.get(asked.metric.id, 1.0)


def _reach(sides: _Sides, asked: _Asked, ratio: float, differs: bool) -> float:
    """How much of the baseline's figure a difference in demand alone may add or take; signed.

    Without a difference to speak of, relief is not counted on: only what more demand may add is.
    """
    if ratio < 1 and not differs:
        return 0.0
    waits = 1.0 if asked.metric.kind == "queue" else sides.waits(asked.scope)
    waits = min(waits * IN_TAIL.get(asked.metric.id, 1.0), 1.0)
    return waits * (ratio**STEEP - 1)


def _met(ratio: float) -> str:
    """How much more or less demand the typical request met."""
    if ratio >= 2:
        return tr("the typical request met {n} times the demand", n=figure(ratio))
    part = share(abs(ratio - 1))
    if ratio > 1:
        return tr("the typical request met {part} more demand", part=part)
    return tr("the typical request met {part} less demand", part=part)


def _of_decode(sides: _Sides, asked: _Asked) -> _Found:
    found = _simple(sides, asked, "decode", _in_ms, "decode")
    both, ratio = sides.tallies("decode", asked.scope), sides.demand_ratio
    if both is None or ratio is None or not _far(ratio):
        return found
    if both[0].grain.get("running", 1) in (1, 2):
        return found
    # A small baseline does not tell concurrency well enough to hold it equal.
    return replace(found, spoilt=_met(ratio), reach=math.copysign(math.inf, ratio - 1))


def _of_reuse(sides: _Sides, asked: _Asked) -> _Found:
    name = "hits" if asked.metric.id == "hit_share" else "again"
    return _simple(sides, asked, name, _ratio, "sent")


def _simple(sides: _Sides, asked: _Asked, name: str, figure: Figure, what: str) -> _Found:
    got = _even(sides, asked, name, figure, what)
    if isinstance(got, str):
        return _Found(asked, None, why=got)
    estimate, raw, basis = got
    return _Found(asked, estimate, raw, basis=basis)


def _of_line(sides: _Sides, asked: _Asked) -> _Found:
    if asked.scope.route is not None:
        why = tr("the prefill line is that of a model, not of a route")
        return _Found(asked, None, why=why)
    part: Part = "prefill_slope" if asked.metric.id == "prefill_slope" else "prefill_fixed"
    got = line_estimate(
        sides.baseline.sketches, sides.current.sketches, part, asked.scope.model
    )  # fmt: skip
    if isinstance(got, str):
        return _Found(asked, None, why=got)
    return _Found(asked, got, (got.baseline, got.current))


def _of_failures(sides: _Sides, asked: _Asked) -> _Found:
    both = [_counts(side, asked.scope) for side in (sides.baseline, sides.current)]
    if both[0] is None or both[1] is None:
        which, _ = sides.named[0 if both[0] is None else 1]
        why = tr("the {side} does not say which requests failed", side=which)
        return _Found(asked, None, why=why)
    got = rates(both[0], both[1], _FAILED[asked.metric.id], ENOUGH_RUNS)
    if got is None:
        return _Found(asked, None, why=tr("there are no requests"))
    return _Found(asked, got, (got.baseline, got.current))


def _counts(side: Baseline, scope: Scope) -> list[Array] | None:
    """Counts of each run within a scope; None where failures are not logged."""
    if not all(s.counts.known for s in side.sketches):
        return None
    out = []
    for sketch in side.sketches:
        some = [
            v for (model, route), v in sketch.counts.by.items()
            if scope.model in (None, model) and scope.route in (None, route)
        ]  # fmt: skip
        if some:
            out.append(np.sum(some, axis=0))
    return out or None


def _served(side: Baseline, scope: Scope) -> float:
    """The share of the requests that did not fail."""
    counts = _counts(side, scope)
    if counts is None:
        return 1.0
    total = np.concatenate(counts).sum(axis=0)
    return float(1 - total[1:].sum() / max(total[0], 1))


def _arrivals(side: Baseline, scope: Scope) -> float | None:
    """Requests a second, failed ones included."""
    span = sum(s.facts.span_s or 0.0 for s in side.sketches)
    if not span or any(s.facts.span_s is None for s in side.sketches):
        return None
    total = sum(
        float(v[:, 0].sum())
        for s in side.sketches
        for (model, route), v in s.counts.by.items()
        if scope.model in (None, model) and scope.route in (None, route)
    )
    return total / span


_MEASURES: dict[str, Callable[[_Sides, _Asked], _Found]] = {
    "ttft": _of_ttft, "line": _of_line, "decode": _of_decode, "reuse": _of_reuse,
    "queue": _of_queue, "failures": _of_failures, "slo": _of_slo,
}  # fmt: skip


# --- budgets --------------------------------------------------------------------------------------


def _budgeted(sides: _Sides, budget: Budget) -> _Found:
    """The current side alone against a bound: the estimate's baseline is the bound."""
    metric = _known(budget)
    asked = _Asked(metric, budget.scope, budget.slo_s, budget=budget)
    bound = budget.below if budget.below is not None else budget.above
    assert bound is not None
    if metric.kind in ("line", "failures"):
        return _budget_of(sides, asked, bound)
    name = {"decode": "decode", "queue": "queue"}.get(metric.kind, "ttft")
    if metric.kind == "reuse":
        name = "hits" if metric.id == "hit_share" else "again"
    tally = sides.current.tally(name)
    if tally is None:
        return _Found(asked, None, why=_missing(sides, name, asked.scope))
    part = tally.only(_within(budget.scope))
    notes: tuple[str, ...] = ()
    if budget.max_input_tokens is not None:
        part, notes = _up_to(part, budget.max_input_tokens)
    if part.n < 5:
        return _Found(asked, None, why=tr("too few requests are in its scope"))
    relative = metric.relative and bound > 0
    got = level_of(part, _own_figure(sides, asked), relative=relative)
    if got is None:
        return _Found(asked, None, why=tr("too few requests are in its scope"))
    estimate = Estimate(bound, got.current, got.error, got.freedom, relative, n=part.n)
    return _Found(asked, estimate, notes=notes)


def _own_figure(sides: _Sides, asked: _Asked) -> Figure:
    metric = asked.metric
    if metric.kind == "ttft":
        return _ttft_figure(metric.id)
    if metric.kind == "slo":
        assert asked.slo_s is not None
        rate = 1.0
        if metric.id == "goodput":
            rate = (_arrivals(sides.current, asked.scope) or 0.0) * _served(
                sides.current, asked.scope
            )
        return _within_slo(asked.slo_s, (rate, rate))
    return {"decode": _in_ms, "reuse": _ratio}.get(metric.kind, _mean)


def _budget_of(sides: _Sides, asked: _Asked, bound: float) -> _Found:
    """A bound on what is no tally: the current side is held against itself for its error."""
    alone = _Sides(sides.current, sides.current)
    got = _MEASURES[asked.metric.kind](alone, asked)
    if got.estimate is None:
        return got
    e = got.estimate
    error = None if e.error is None else e.error / math.sqrt(2)
    return _Found(asked, replace(e, baseline=bound, error=error, p=None, relative=False))


def _up_to(tally: Tally, tokens: int) -> tuple[Tally, tuple[str, ...]]:
    """The requests of at most so many input tokens, as far as classes of length tell."""
    steps = 2 * math.log2(max(tokens, 1) * 1.02 / LENGTH_FROM)
    last = math.floor(steps)
    part = tally.only(lambda cell: 0 <= cell.length <= last)
    edge = LENGTH_FROM * 2 ** (last / 2)
    if last < 0 or abs(edge / tokens - 1) > 0.02:
        edge_ = count(max(edge, 0))
        return part, (tr("counted up to {n} input tokens, the edge of a class", n=edge_),)
    return part, ()


# --- deciding -------------------------------------------------------------------------------------


def _decided(found: Sequence[_Found], policy: Policy) -> list[Checked]:
    """The outcome of each, all of them taken together."""
    p_values: list[float | None] = [
        None if f.estimate is None else f.estimate.p_value(f.asked.worse) for f in found
    ]
    known = [at for at, p in enumerate(p_values) if p is not None]
    adjusted = dict(zip(known, holm([p_values[at] or 0.0 for at in known]), strict=True))
    level = policy.alpha / max(len(known), 1)
    return [
        _one(f, p_values[at], adjusted.get(at), policy.alpha, level) for at, f in enumerate(found)
    ]


def _one(
    found: _Found, p: float | None, adjusted: float | None, alpha: float, level: float
) -> Checked:
    asked, e, metric = found.asked, found.estimate, found.asked.metric
    title = tr(metric.title)
    record = Checked(
        metric=metric.id, title=title, unit=metric.unit, scope=asked.scope,
        outcome="inconclusive", worse=asked.worse,  # type: ignore[arg-type]
        says=tr("{metric}: {why}", metric=title, why=found.why),
        limit=None if asked.budget else asked.limit,
        limit_share=None if asked.budget else asked.limit_share,
        budget=None if asked.budget is None else asked.budget.text, requests_needed=found.needed,
    )  # fmt: skip
    if e is None:
        if asked.budget is not None:
            said = tr("{metric}: {why}, the budget is {budget}", metric=title, why=found.why,
                      budget=clean(asked.budget.text, 120))  # fmt: skip
            return replace(record, says=said)
        return record
    allowed = 0.0
    if asked.budget is None:
        allowed = max(asked.limit, (asked.limit_share or 0.0) * abs(e.baseline))
    bad = e.change if asked.worse == "up" else -e.change
    smallest = e.smallest(asked.worse, level)
    end = e.bad_end(asked.worse, alpha)
    outcome: Outcome = "inconclusive"
    if bad > allowed:
        outcome = "fail" if adjusted is not None and adjusted <= alpha else "inconclusive"
    elif asked.budget is not None or any(v is not None and v <= allowed for v in (end, smallest)):
        outcome = "pass"
    spoilt = ""
    # What more demand may have added, or less of it hidden.
    push = found.reach if asked.worse == "up" else -found.reach
    if metric.kind == "slo":
        push = math.inf if abs(found.reach) > 0.05 * abs(e.baseline) else 0.0
    explained = outcome == "fail" and push > 0 and bad - push <= allowed
    if explained or (outcome == "pass" and -push > allowed > 0):
        outcome, spoilt = "inconclusive", found.spoilt
    if outcome == "inconclusive" and bad > allowed and not spoilt and metric.kind != "failures":
        alone = replace(e, p=None).p_value(asked.worse)
        if alone is not None and alone <= level:
            spoilt = tr(
                "starts of one server are taken to differ by {part} ({n} runs a side would tell)",
                part=share(RUN_SPREAD), n=ENOUGH_RUNS,
            )  # fmt: skip
    raw = found.raw
    share_ = None
    if metric.unit != "share" and e.baseline > 0 and asked.budget is None:
        share_ = e.change / e.baseline
    raw_change = None if raw is None else raw[1] - raw[0]
    raw_share = None
    if raw is not None and raw_change is not None and metric.unit != "share" and raw[0] > 0:
        raw_share = raw_change / raw[0]
    needed = None
    if outcome == "inconclusive" and not spoilt and smallest is not None and allowed > 0:
        needed = math.ceil(e.n * max(smallest / allowed, 1.0) ** 2)
    record = replace(
        record,
        outcome=outcome,
        baseline=None if asked.budget else e.baseline,
        current=e.current,
        change=None if asked.budget else e.change,
        change_share=share_,
        interval=None if asked.budget else e.interval(),
        raw_baseline=None if raw is None else raw[0],
        raw_current=None if raw is None else raw[1],
        raw_change=raw_change,
        raw_change_share=raw_share,
        p_value=p,
        p_adjusted=adjusted,
        smallest=smallest,
        requests_needed=needed,
    )
    return replace(record, says=_says(record, found, allowed, spoilt))


def _overall(judged: Sequence[Checked], policy: Policy) -> Outcome:
    outcomes = [m.outcome for m in judged]
    if "fail" in outcomes:
        return "fail"
    strict = policy.inconclusive == "fail" and policy.source is not None
    first = [
        m.outcome for m in judged if strict or m.budget is not None or METRICS[m.metric].headline
    ] or outcomes
    return "inconclusive" if not first or "inconclusive" in first else "pass"


# --- words ----------------------------------------------------------------------------------------


def _moved(record: Checked) -> str:
    if record.change_share is not None:
        return signed_share(record.change_share)
    return signed(record.change or 0.0, record.unit)


def _says(record: Checked, found: _Found, allowed: float, spoilt: str) -> str:
    e, unit = found.estimate, record.unit
    assert e is not None
    name = record.title
    if str(record.scope) != "all":
        name = tr("{metric} ({scope})", metric=name, scope=clean(str(record.scope), 80))
    if record.budget is not None:
        parts = [tr("{metric} is {now}, the budget is {budget}", metric=name,
                    now=shown(e.current, unit), budget=clean(record.budget, 120))]  # fmt: skip
        if record.outcome == "inconclusive":
            parts.append(tr("over it, but too uncertain to be sure"))
        return tr("; ").join([*parts, *found.notes])
    parts = [_levels(record, found, name)]
    if record.outcome == "fail":
        parts.append(tr("at most {amount} may be lost", amount=signed(allowed, unit).lstrip("+")))
    if spoilt:
        parts.append(tr("{why}, which may explain as much", why=spoilt))
    elif record.outcome == "inconclusive":
        parts.append(_unseen(record, e.n))
    return tr("; ").join([*parts, *found.notes])


def _levels(record: Checked, found: _Found, name: str) -> str:
    """Both levels of a metric and its change, equal and raw."""
    e, unit, kind = found.estimate, record.unit, METRICS[record.metric].kind
    assert e is not None
    basis = tr("at equal mix")
    if kind == "line":
        basis = tr("for the same work")
    elif kind == "failures":
        basis = tr("as logged")
    elif "demand" in found.basis:
        basis = tr("at equal mix and demand")
    change = _moved(record)
    if record.interval is not None:
        low, high = record.interval
        if record.change_share is not None:
            ends = signed_share(low / e.baseline), signed_share(high / e.baseline)
        else:
            ends = signed(low, unit), signed(high, unit)
        change = tr("{change} ({low} to {high})", change=change, low=ends[0], high=ends[1])
    values = {
        "metric": name, "before": shown(e.baseline, unit), "after": shown(e.current, unit),
        "basis": basis, "change": change,
    }  # fmt: skip
    if kind in ("line", "failures") or record.raw_change is None:
        return tr("{metric} {before} → {after} {basis}, {change}", **values)
    raw = record.raw_change_share
    plain = signed(record.raw_change, unit) if raw is None else signed_share(raw)
    return tr("{metric} {before} → {after} {basis}, {change}, raw {raw}", **values, raw=plain)


def _unseen(record: Checked, n: int) -> str:
    """Why nothing can be told: how large a change would have been seen, and what it takes."""
    if record.smallest is None:
        return tr("too few sessions for an interval")
    size, needed = _size(record), record.requests_needed
    if needed is None or needed <= n:
        return tr("the smallest change that would have been seen is {size}", size=size)
    return tr(
        "the smallest change that would have been seen is {size}, the limit takes about {n} "
        "requests a side",
        size=size, n=count(needed),
    )  # fmt: skip


def _size(record: Checked) -> str:
    assert record.smallest is not None
    if record.unit != "share" and record.baseline and record.baseline > 0:
        return share(record.smallest / record.baseline)
    return signed(record.smallest, record.unit).lstrip("+")


def _headline(outcome: Outcome, judged: Sequence[Checked], policy: Policy) -> str:
    worst = sorted(
        (m for m in judged if m.outcome == outcome),
        key=lambda m: (not METRICS[m.metric].headline, -_times_limit(m)),
    )
    if outcome == "fail":
        says = worst[0].says
        if len(worst) > 1:
            return tr("Regression: {says} (and {n} more)", says=says, n=len(worst) - 1)
        return tr("Regression: {says}", says=says)
    if outcome == "inconclusive":
        if not worst:
            return tr("Cannot tell: nothing that the policy asks for is in these logs")
        first = [m for m in worst if METRICS[m.metric].headline] or worst
        return tr("Cannot tell: {why}", why=first[0].says)
    lead = next((m for m in judged if METRICS[m.metric].headline), judged[0])
    doubt = [m.title for m in judged if m.outcome == "inconclusive"]
    if not doubt:
        return tr("No regression: {says}", says=lead.says)
    return tr("No regression: {says}; cannot tell: {metrics}",
              says=lead.says, metrics=tr(", ").join(doubt))  # fmt: skip


def _times_limit(checked: Checked) -> float:
    """How many times what may be lost is lost; both limits count."""
    pairs = ((checked.change, checked.limit), (checked.change_share, checked.limit_share))
    times = [abs(change) / limit for change, limit in pairs if change is not None and limit]
    return min(times, default=0.0)


def _notes(sides: _Sides, policy: Policy) -> list[str]:
    out = []
    found = sides.cut("ttft", Scope(), "sent")
    if found is not None and found[1]:
        out.append(
            tr("equal mix means: the same {what}", what=listed([tr(word) for word in found[1]]))
        )
    covered = sides.covered
    if min(covered) < 1:
        out.append(
            tr(
                "without a counterpart, and not compared: {before} of the baseline's requests, "
                "{after} of the current ones",
                before=share(1 - covered[0]), after=share(1 - covered[1]),
            )
        )  # fmt: skip
    ratio = sides.demand_ratio
    if ratio is not None and _far(ratio):
        out.append(_met_before(ratio))
    runs = sides.baseline.runs, sides.current.runs
    if min(runs) >= ENOUGH_RUNS:
        text = tr(
            "certainty is judged from run to run ({before} and {after} runs)",
            before=runs[0], after=runs[1],
        )  # fmt: skip
    else:
        text = tr(
            "certainty is judged within runs ({before} and {after}); what differs from start to "
            "start of a server shows from {n} runs a side on",
            before=runs[0], after=runs[1], n=ENOUGH_RUNS,
        )  # fmt: skip
    out.append(text)
    for name, side in sides.named:
        cut_off = sum(s.facts.warm_up for s in side.sketches)
        if cut_off:
            out.append(
                tr("{n} requests of the {side} were set aside as warm-up",
                   n=count(cut_off), side=name)
            )  # fmt: skip
        out += [
            tr("{side}: {lost}", side=name, lost=clean(lost_said(text), 120)) for text in side.lost
        ]
    asked = len(policy.rules) + len(policy.budgets)
    out.append(
        tr("false alarms: at most {part} over all {n} checks (Holm)",
           part=share(policy.alpha), n=asked)
    )  # fmt: skip
    return out


def _met_before(ratio: float) -> str:
    if ratio >= 2:
        return tr("demand differs: the typical request met {n} times as much as before",
                  n=figure(ratio))  # fmt: skip
    part = share(abs(ratio - 1))
    if ratio > 1:
        return tr("demand differs: the typical request met {part} more than before", part=part)
    return tr("demand differs: the typical request met {part} less than before", part=part)


def _guards(sides: _Sides) -> list[str]:
    """What makes the two sides less alike than they should be."""
    out = []
    if sides.covered[0] < MUCH:
        out.append(
            tr(
                "only {part} of the baseline's requests have a counterpart: the answer is about "
                "these",
                part=share(sides.covered[0]),
            )
        )
    formats = [{i.format for i in side.inputs} for side in (sides.baseline, sides.current)]
    if formats[0] != formats[1]:
        names = [clean(tr(", ").join(sorted(f)), 80) for f in formats]
        out.append(
            tr(
                "the logs are of different formats ({before}; {after}): what counts as first token "
                "may differ",
                before=names[0], after=names[1],
            )
        )  # fmt: skip
    marks = [{s.ttft.mark for s in side.sketches} for side in (sides.baseline, sides.current)]
    if marks[0] & marks[1]:
        out.append(tr("both sides hold the same requests"))
    return out


def _population(side: Baseline, covered: float | None) -> Population:
    facts = [sketch.facts for sketch in side.sketches]
    sessions = [f.sessions for f in facts]
    starts = [f.start for f in facts if f.start is not None]
    ends = [f.end for f in facts if f.end is not None]
    return Population(
        label=side.label,
        inputs=side.inputs,
        requests=sum(f.requests for f in facts),
        sessions=None if None in sessions else sum(s or 0 for s in sessions),
        runs=side.runs,
        warm_up_requests=sum(f.warm_up for f in facts),
        covered_share=covered,
        models=side.models,
        start=min(starts, default=None),
        end=max(ends, default=None),
    )
