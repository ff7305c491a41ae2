"""What moved inside the service where a gate fails, as sentences with their figures.

Everything here is measured on both sides: the metrics at equal mix, and the accounts of the ledger
at equal mix. What only the log that is checked can tell (a moment, a route, a place in the prompt)
is added to a sentence, never made into one. The largest in seconds of TTFT comes first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.metrics import QUANTILE
from ttftdoctor.gate.records import Checked, Moved
from ttftdoctor.gate.seen import Seen, Step
from ttftdoctor.gate.words import moment_of
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.mix import EXTRAS, Cell, Tally
from ttftdoctor.measure.weigh import covered, weigh
from ttftdoctor.prefixes.records import BreakerRecord
from ttftdoctor.prefixes.words import kind_of
from ttftdoctor.report import clean, title
from ttftdoctor.units import count, milliseconds, seconds, share

#: An account of the ledger has moved if its mean grew by both: seconds, and a share of the mean.
LEAST_S, LEAST_SHARE = 0.005, 0.03
#: A metric has moved if its change is as sure as this by itself (no correction: it explains a
#: failure that was found already) and not smaller than this.
SURE, LEAST_POINTS, LEAST_COST = 0.05, 0.02, 0.02
#: A route is named where this part of the cached tokens that were lost lies on it.
ON_ONE_ROUTE = 0.8
#: How wide the classes of the mix may become: turns, lengths and fresh tokens a class.
_WIDTHS = ((1, 1, 1), (1, 2, 2), (3, 2, 4), (6, 4, 0), (0, 4, 0), (0, 0, 0))

_QUEUES = ("queue_behind_repeated", "queue_behind_new", "queue_other")


def moved(
    baseline: Baseline, current: Baseline, metrics: Sequence[Checked], seen: Seen | None
) -> tuple[Moved, ...]:
    """Say what moved, the largest first.

    Parameters
    ----------
    metrics
        All metrics judged over all traffic.
    seen
        What the log that is checked tells by itself; None where only its sums are known.
    """
    by = {m.metric: m for m in metrics if m.scope.model is None and m.scope.route is None}
    accounts = accounts_beside(baseline, current)
    found = [
        *_reuse(by, baseline, current, seen),
        *_costs(by, seen),
        *_change(by, seen),
        *_waiting(by, accounts),
        *_others(by),
    ]
    found.sort(key=lambda m: -m.figures.get("ttft_s", 0.0))
    return tuple(found)


# --- reuse ----------------------------------------------------------------------------------------


def _reuse(
    by: Mapping[str, Checked], baseline: Baseline, current: Baseline, seen: Seen | None
) -> list[Moved]:
    """The cached share fell: from what, since when, on which route, and why."""
    hits = by.get("hit_share")
    if not _worse(hits) or hits is None or hits.baseline is None or hits.current is None:
        return []
    if hits.baseline - hits.current < LEAST_POINTS:
        return []
    was, now = hits.baseline, hits.current
    figures = {"before": was, "after": now}
    route = route_of_loss(baseline.tally("hits"), current.tally("hits"))
    step = None if seen is None else _step_of(seen, route, was)
    shown = was, now
    if route is not None:
        shown = route[1], route[2]
        figures |= {"route_before": route[1], "route_after": route[2]}
    if step is not None:
        shown = step.before, step.after
        figures |= {"step_before": step.before, "step_after": step.after}
    parts = [_fall(shown, step, None if route is None else clean(route[0], 80))]
    cause = "hit_share"
    if seen is not None:
        said, named = _why_lost(seen, was, figures)
        parts += said
        cause = named or cause
    slope, tokens = by.get("prefill_slope"), _input_tokens(baseline)
    if slope is not None and slope.baseline is not None and tokens is not None:
        figures["ttft_s"] = (was - now) * tokens / 1e3 * slope.baseline / 1e3
        parts.append(tr("worth about {time} of prefill a request", time=seconds(figures["ttft_s"])))
    return [Moved(cause, tr("; ").join(parts), figures)]


def _fall(levels: tuple[float, float], step: Step | None, route: str | None) -> str:
    """The cached share then and now, since when and where."""
    was, now = share(levels[0]), share(levels[1])
    if step is None and route is None:
        return tr("cached share fell from {before} to {after}", before=was, after=now)
    if step is None:
        return tr("cached share fell from {before} to {after} on route {route}",
                  before=was, after=now, route=route)  # fmt: skip
    when = _clock(step.at)
    if route is None:
        return tr("cached share fell from {before} to {after} after {when}",
                  before=was, after=now, when=when)  # fmt: skip
    return tr("cached share fell from {before} to {after} after {when} on route {route}",
              before=was, after=now, when=when, route=route)  # fmt: skip


def _why_lost(seen: Seen, was: float, figures: dict[str, float]) -> tuple[list[str], str | None]:
    """What the prompts themselves say about a lost cache."""
    parts: list[str] = []
    cause = None
    named = next((c for c in seen.causes if c.cause in _OF_REUSE), None)
    if named is not None:
        cause = named.cause
    apart = seen.apart
    if apart is not None:
        figures |= {"replica": apart.share, "replica_rest": apart.of_rest}
        parts.append(
            tr("{part} on replica {replica}, {rest} on the others", part=share(apart.share),
               replica=clean(apart.replica, 80), rest=share(apart.of_rest))
        )  # fmt: skip
        if apart.of_rest >= was - LEAST_POINTS:
            return parts, cause  # what the others still find, the prompts still hold
    same = []
    if seen.shared is not None:
        figures["shared"] = seen.shared
        if seen.shared >= was - LEAST_POINTS:
            same = [tr("same content: the prompts still share {part} of their tokens",
                       part=share(seen.shared))]  # fmt: skip
    parts += same
    b = seen.breaker
    if b is not None and b.habit != "once":
        figures["position_tokens"] = float(b.position_tokens)
        parts.append(_broken(b))
    elif seen.shared is not None and not same:
        parts.append(tr("the prompts share no more than {part} of their tokens",
                        part=share(seen.shared)))  # fmt: skip
    elif named is not None:
        parts.append(clean(title(named.cause), 120))
    return parts, cause


def _broken(b: BreakerRecord) -> str:
    """Where the prefix changes, and by what if that is known."""
    what = [] if "unknown" in b.kind else [kind_of(b.kind)]
    if "unknown" not in b.section:
        what.append(tr("in {section}", section=clean(b.section, 40)))
    place = count(b.position_tokens)
    if not what:
        return tr("the prefix changes at token {place}", place=place)
    return tr("the prefix changes at token {place} ({what})",
              place=place, what=tr(", ").join(what))  # fmt: skip


_OF_REUSE = (
    "cache_busting_prefix", "cache_eviction", "affinity_loss", "repeated_prefix_no_reuse",
)  # fmt: skip


def _step_of(seen: Seen, route: tuple[str, float, float] | None, was: float) -> Step | None:
    """The moment of the fall, if what came before it looks like the baseline."""
    step = seen.steps.get(route[0] if route is not None else "")
    level = was if route is None else route[1]
    return step if step is not None and abs(step.before - level) <= 0.1 else None


def route_of_loss(before: Tally | None, after: Tally | None) -> tuple[str, float, float] | None:
    """The one of several routes on which the cached share fell: name, share then, share now.

    Both tallies are sums of cached tokens over input tokens, in thousands.
    """
    if before is None or after is None:
        return None
    was, now = _by_route(before), _by_route(after)
    both = sorted(was.keys() & now.keys())
    if len(both) < 2:
        return None
    lost = {
        name: max(was[name][0] / was[name][1] - now[name][0] / now[name][1], 0.0) * now[name][1]
        for name in both
    }
    total = sum(lost.values())
    first = max(both, key=lambda name: lost[name])
    everything = sum(now[name][1] for name in both)
    # A route that is nearly all of the traffic says nothing about where.
    if total <= 0 or lost[first] < ON_ONE_ROUTE * total or now[first][1] >= 0.9 * everything:
        return None
    return first, was[first][0] / was[first][1], now[first][0] / now[first][1]


def _by_route(tally: Tally) -> dict[str, tuple[float, float]]:
    """Cached and input tokens of each route, in thousands."""
    out: dict[str, tuple[float, float]] = {}
    sums = tally.by_session.moments.sum(axis=0)
    for cell, (_, cached, size, *_) in zip(tally.cells, sums.tolist(), strict=True):
        had = out.get(cell.route, (0.0, 0.0))
        out[cell.route] = had[0] + cached, had[1] + size
    return {name: pair for name, pair in out.items() if pair[1] > 0}


def _input_tokens(side: Baseline) -> float | None:
    """Mean input tokens of a request."""
    tally = side.tally("hits")
    if tally is None or not tally.n:
        return None
    return float(tally.by_session.moments[:, :, 2].sum()) * 1e3 / tally.n


# --- costs ----------------------------------------------------------------------------------------


def _costs(by: Mapping[str, Checked], seen: Seen | None) -> list[Moved]:
    """What the same work costs: prefill by the token and by the request, decode by the token."""
    out = []
    slope, mean = by.get("prefill_slope"), by.get("ttft_mean")
    # A slope over both sides of a moment is that of neither: :func:`_change` tells of it.
    within = seen is not None and seen.change is not None
    if not within and _dearer(slope) and slope is not None and slope.baseline is not None:
        figures = _figures(slope)
        if slope.change_share is not None and mean is not None and mean.baseline is not None:
            # Prefill is at most all of TTFT: the rest of the sum is in other sentences.
            figures["ttft_s"] = min(slope.change_share, 10.0) * mean.baseline
            if mean.change is not None:
                figures["ttft_s"] = min(figures["ttft_s"], max(mean.change, 0.0))
        out.append(
            Moved(
                "prefill_slope",
                tr("prefill costs {after} per 1,000 tokens instead of {before}",
                   after=milliseconds(slope.current), before=milliseconds(slope.baseline)),
                figures,
            )
        )  # fmt: skip
    fixed = by.get("prefill_fixed")
    size = 1.0 if fixed is not None and fixed.unit == "s" else 1e-3
    if (
        fixed is not None
        and fixed.change is not None
        and _dearer(fixed)
        and fixed.change * size >= LEAST_S
    ):
        figures = _figures(fixed) | {"ttft_s": fixed.change * size}
        was, now = (
            seconds(None if v is None else v * size) for v in (fixed.baseline, fixed.current)
        )
        out.append(
            Moved(
                "fixed_overhead",
                tr("every request pays {after} before prefill instead of {before}",
                   after=now, before=was),
                figures,
            )
        )  # fmt: skip
    decode = by.get("decode_per_token")
    if _dearer(decode) and decode is not None:
        size = 1e3 if decode.unit == "s" else 1.0
        was, now = (
            milliseconds(None if v is None else v * size) for v in (decode.baseline, decode.current)
        )
        out.append(
            Moved(
                "decode_per_token",
                tr("decode takes {after} a token instead of {before}", after=now, before=was),
                _figures(decode),
            )
        )
    return out


def _change(by: Mapping[str, Checked], seen: Seen | None) -> list[Moved]:
    """The same work takes longer since a moment within the log that is checked."""
    if seen is None or seen.change is None or not _late(by):
        return []
    c = seen.change
    when = _clock(c.at) or tr("one moment")
    if c.version is not None:
        when = tr("{moment} (version {version})", moment=when, version=clean(c.version, 80))
    ratio, cost = f"{c.ratio:.2f}", seconds(c.seconds)
    if c.scope is None:
        text = tr("since {when} the same work takes {n} times as long, worth {cost} a request",
                  when=when, n=ratio, cost=cost)  # fmt: skip
    else:
        text = tr(
            "since {when} on {where} the same work takes {n} times as long, worth {cost} a request",
            when=when, where=clean(c.scope, 80), n=ratio, cost=cost,
        )  # fmt: skip
    figures = {"ratio": c.ratio, "ttft_s": c.seconds}
    return [Moved("deploy_regression", text, figures)]


def _late(by: Mapping[str, Checked]) -> bool:
    """Whether a metric of TTFT or of the queue failed."""
    return any(name in by and by[name].outcome == "fail" for name in (*QUANTILE, "queue"))


def _figures(metric: Checked) -> dict[str, float]:
    named = {"before": metric.baseline, "after": metric.current, "change": metric.change}
    return {name: value for name, value in named.items() if value is not None}


def _worse(metric: Checked | None) -> bool:
    """Whether a metric got worse as surely as one test alone must be."""
    if metric is None or metric.change is None:
        return False
    sure = metric.outcome == "fail" or (metric.p_value is not None and metric.p_value <= SURE)
    return sure and (metric.change > 0) == (metric.worse == "up") and metric.change != 0


def _dearer(metric: Checked | None) -> bool:
    if metric is None or not _worse(metric):
        return False
    return metric.outcome == "fail" or (metric.change_share or 0.0) >= LEAST_COST


# --- waiting --------------------------------------------------------------------------------------


def accounts_beside(baseline: Baseline, current: Baseline) -> dict[str, tuple[float, float]]:
    """Mean seconds of each account of the ledger then and now, at the mix of the baseline.

    Empty where a side has no ledger. Cells are as narrow as leaves nine tenths of the baseline's
    requests with a counterpart.
    """
    before, after = baseline.tally("ttft"), current.tally("ttft")
    if before is None or after is None or not before.n or not after.n:
        return {}
    key = _key(*_WIDTHS[-1])
    for widths in _WIDTHS:
        key = _key(*widths)
        if covered(before, after, key)[0] >= 0.9:
            break
    found = weigh(before, after, key, None, draws=2)
    if found is None:
        return {}
    pairs = {name: found.extras[:, EXTRAS.index(name)].tolist() for name in ACCOUNTS}
    return {
        name: (was, now)
        for name, (was, now) in pairs.items()
        if math.isfinite(was) and math.isfinite(now)
    }


class _key:  # noqa: N801  (reads as a function where it is used)
    """The wider cell that a cell belongs to."""

    def __init__(self, turns: int, lengths: int, fresh: int) -> None:
        self.steps = (("turn", turns), ("length", lengths), ("fresh", fresh))

    def __call__(self, cell: Cell) -> Hashable:
        classes = tuple(
            -(-getattr(cell, name) // step) if step and getattr(cell, name) >= 0 else -1
            for name, step in self.steps
        )
        return cell.model, cell.route, *classes


def _waiting(by: Mapping[str, Checked], accounts: Mapping[str, tuple[float, float]]) -> list[Moved]:
    """Waiting grew, behind what; the logged queue where there is no ledger.

    Nothing is said where no TTFT failed: more waiting at more demand is no finding by itself.
    """
    if not _late(by):
        return []
    found = {name: accounts[name] for name in _QUEUES if name in accounts}
    if found:
        was, now = (sum(pair[side] for pair in found.values()) for side in (0, 1))
        level = sum(pair[0] for pair in accounts.values())
        if now - was < max(LEAST_S, LEAST_SHARE * level):
            return []
        grew = max(found, key=lambda name: found[name][1] - found[name][0])
        part = (found[grew][1] - found[grew][0]) / (now - was)
        return [
            Moved(
                "queueing_saturation",
                _waited(seconds(was), seconds(now), grew if part >= 0.5 else ""),
                {"before": was, "after": now, "ttft_s": now - was},
            )
        ]
    queue = by.get("queue")
    if not _worse(queue) or queue is None or queue.change is None or queue.change < LEAST_S:
        return []
    return [
        Moved(
            "queueing_saturation",
            tr("time in the queue rose from {before} to {after} a request",
               before=seconds(queue.baseline), after=seconds(queue.current)),
            _figures(queue) | {"ttft_s": queue.change},
        )
    ]  # fmt: skip


def _waited(was: str, now: str, behind: str) -> str:
    """Waiting then and now, and behind what most of the increase is."""
    if behind == "queue_behind_repeated":
        return tr("waiting rose from {before} to {after} a request behind repeated prefill",
                  before=was, after=now)  # fmt: skip
    if behind == "queue_behind_new":
        return tr("waiting rose from {before} to {after} a request behind new prefill",
                  before=was, after=now)  # fmt: skip
    return tr("waiting rose from {before} to {after} a request", before=was, after=now)


# --- the rest -------------------------------------------------------------------------------------


def _others(by: Mapping[str, Checked]) -> list[Moved]:
    """More requests fail, or are given up."""
    words = {
        "error_rate": mark("requests that fail: {after} instead of {before}"),
        "abort_rate": mark("requests that are given up: {after} instead of {before}"),
    }
    out = []
    for name, text in words.items():
        m = by.get(name)
        if m is not None and _worse(m) and m.outcome == "fail":
            said = tr(text, after=share(m.current), before=share(m.baseline))
            out.append(Moved(name, said, _figures(m)))
    return out


def _clock(stamp: str | None) -> str:
    """``14:05`` of a time of day; anything else as it is."""
    if stamp is None:
        return ""
    text = clean(moment_of(stamp), 40)
    return text[11:16] + "Z" if len(text) == 20 and text[10] == "T" else text
