"""Did the change help? Two small records in, one answer out; no row is looked at here.

A :class:`Portrait` is all that is known of one side. It holds a tally of TTFT by cell and the
small facts of a diagnosis, so it may come from a log or from a file that was written earlier.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from ttftdoctor.comparisons.hindcast import COMPACTION, Foreseen, score
from ttftdoctor.comparisons.records import (
    ANSWERS,
    VIEWS,
    Answer,
    Change,
    Comparison,
    Hindcast,
    Inside,
    Moved,
    Parts,
    Side,
    View,
    ViewName,
    figure_name,
    two_lines,
)
from ttftdoctor.diagnosis import ACCOUNTS, Interval
from ttftdoctor.language import listed, mark, tr
from ttftdoctor.measure.mix import EXTRAS, Cell, Tally
from ttftdoctor.measure.weigh import METRICS, Key, Weighed, covered, weigh
from ttftdoctor.report import clean, title
from ttftdoctor.units import count, figure, milliseconds, seconds, share, signed_share

#: A change is called better or worse from these on, both of them, if its interval leaves out zero.
LEAST_SHARE, LEAST_S = 0.02, 0.002
#: Where the whole interval lies within this, there is no difference.
SAME_SHARE = 0.05
#: Requests with a TTFT that each side must have.
LEAST_ROWS = 30
#: Fewer than this are told.
FEW_ROWS = 300
#: Cells are as narrow as leaves this share of the requests of before with a counterpart.
ENOUGH = 0.9
#: With less in common, the answer does not stand for the log.
TOO_LITTLE = 0.3
#: Waiting grows with at most this power of the load, short of saturation.
STEEP = 5
#: Waiting as a share of TTFT where the log does not tell.
SOME_WAIT = 0.3
#: A difference in demand of this share is told even where it does not matter.
LOAD_SHARE = 0.2
#: A quantity moved if it did by more than this share of before's mean TTFT.
MOVED_SHARE = 0.03
#: Coefficients known closer than this, as a share, are called unchanged where they agree.
PLAIN_SHARE = 0.1

_QUEUE = ("queue_behind_repeated", "queue_behind_new", "queue_other")


@dataclass(frozen=True)
class Portrait:
    """One side of a comparison."""

    side: Side
    tally: Tally


@dataclass(frozen=True)
class _Held:
    """A way to cut cells: what is held equal, the key of a cell, and of a slope on length.

    The words are English: they are names in the document, and translated where they are said.
    """

    words: tuple[str, ...]
    key: Key
    slope: Key | None


def judge(
    before: Portrait,
    after: Portrait,
    *,
    version: str = "0",
    foreseen: Foreseen | None = None,
    remedy: str | None = None,
    warnings: Sequence[str] = (),
) -> Comparison:
    """Compare two sides at equal mix, and score a prediction.

    Parameters
    ----------
    foreseen
        Predictions made for before.
    remedy
        The remedy that was applied; it decides which prediction is marked, and, for a compaction
        of histories, that length is not held equal (it is what the change changes).
    """
    a, b = before.side, after.side
    told = [*warnings, *_guards(before, after)]
    nothing = Comparison(
        version=version, answer="cannot_tell", headline="", reasons=(), basis=None, before=a,
        after=b, views=(), parts=None, inside=_inside(a, b, None), said=(),
        hindcast=None, warnings=tuple(told),
    )  # fmt: skip
    refused = _refusal(a, b)
    if refused:
        return _with(nothing, "refused", tr("Not compared: {why}", why=refused))
    fewest = min(before.tally.n, after.tally.n)
    if fewest < LEAST_ROWS:
        which = tr("before") if before.tally.n <= after.tally.n else tr("after")
        text = tr("Cannot tell: only {n} requests {side} have a TTFT", n=count(fewest), side=which)
        if fewest == 0:
            text = tr("Cannot tell: no request {side} has a TTFT", side=which)
        needed = tr("at least {n} are needed on each side", n=LEAST_ROWS)
        return _with(nothing, "cannot_tell", text, needed)
    by_length = remedy != COMPACTION
    same = before.tally.mark == after.tally.mark
    raw = weigh(before.tally, after.tally, _everything, None)
    mix, held = _best(before.tally, after.tally, by_length=by_length, load=False)
    loaded, held_too = _best(before.tally, after.tally, by_length=by_length, load=True)
    views = []
    for name, found, words in (
        ("raw", raw, ()), ("equal_mix", mix, held), ("equal_mix_and_load", loaded, held_too)
    ):  # fmt: skip
        if found is not None:
            exact = (before.tally.ttft, after.tally.ttft) if name == "raw" else (None, None)
            views.append(_view(name, found, words, exact, same=same))  # type: ignore[arg-type]
    if mix is None or mix.covered[0] < TOO_LITTLE:
        got = 0.0 if mix is None else mix.covered[0]
        text = tr(
            "Cannot tell: only {part} of the requests before have a counterpart after of the same "
            "{held}",
            part=share(got), held=listed([tr(w) for w in held or ("turn", "input length")]),
        )  # fmt: skip
        return _with(nothing, "cannot_tell", text, tr("the two logs hold different traffic"),
                     views=tuple(views))  # fmt: skip
    inside = _inside(a, b, mix)
    basis, reasons, spoilt = _basis(before, after, mix, loaded, tuple(views), inside)
    view = next(v for v in views if v.name == basis)
    parts = _parts(before.tally, after.tally, mix, view)
    answer, headline = _answer(view, spoilt)
    if same:
        headline = tr("No difference: both sides are the same requests")
        told.append(tr("before and after hold the same requests"))
    hindcast: Hindcast | None = None
    if foreseen is not None:
        hindcast = score(foreseen, remedy, view, {i.id: i for i in inside}, a)
    return Comparison(
        version=version,
        answer=answer,
        headline=headline,
        reasons=(*_why(view, parts, before.tally), *reasons),
        basis=basis,
        before=a,
        after=b,
        views=tuple(views),
        parts=parts,
        inside=inside,
        said=_said(inside),
        hindcast=hindcast,
        warnings=tuple(dict.fromkeys(told)),
    )


def _everything(cell: Cell) -> Hashable:
    return ""


def _with(
    empty: Comparison, answer: Answer, headline: str, *reasons: str, views: tuple[View, ...] = ()
) -> Comparison:
    return replace(empty, answer=answer, headline=headline, reasons=reasons, views=views)


# --- what may be compared -------------------------------------------------------------------------


def _refusal(a: Side, b: Side) -> str:
    """Why these logs must not be compared; empty if they may."""
    for name, side in ((tr("before"), a), (tr("after"), b)):
        if side.primary_cause == "measurement_artifact":
            why = clean(side.headline).rstrip(tr("."))
            return tr("what {side} logs is no TTFT ({headline})", side=name, headline=why)
    return ""


def _guards(before: Portrait, after: Portrait) -> list[str]:
    """What makes the two sides less alike than they should be."""
    a, b = before.side, after.side
    fewest = min(before.tally.n, after.tally.n)
    out = []
    formats = [sorted({i.format for i in s.inputs}) for s in (a, b)]
    if formats[0] != formats[1]:
        out.append(
            tr(
                "the logs are of different formats ({before}; {after}): what counts as first token "
                "may differ",
                before=clean(tr(", ").join(formats[0])), after=clean(tr(", ").join(formats[1])),
            )
        )  # fmt: skip
    clocks = [s.population.vantage for s in (a, b)]
    if clocks[0] != clocks[1] and None not in clocks:
        out.append(
            tr(
                "the clock stood at the {before} before and at the {after} after: the network is "
                "in one and not in the other",
                before=tr(clean(clocks[0])), after=tr(clean(clocks[1])),
            )
        )  # fmt: skip
    if a.models and b.models and not set(a.models) & set(b.models):
        out.append(
            tr(
                "the models differ ({before}; {after}): this compares two models, not one before "
                "and after a change",
                before=clean(tr(", ").join(a.models), 80), after=clean(tr(", ").join(b.models), 80),
            )
        )  # fmt: skip
    if a.replicas and b.replicas and a.replicas != b.replicas:
        out.append(
            tr(
                "{before} replicas before and {after} after served the traffic",
                before=a.replicas, after=b.replicas,
            )
        )  # fmt: skip
    rates = a.arrivals_per_s, b.arrivals_per_s
    unknown = demand_ratio(before.tally, after.tally) is None
    if fewest and unknown and rates[0] and rates[1] and abs(rates[1] / rates[0] - 1) > LOAD_SHARE:
        out.append(
            tr(
                "{before} requests a second before and {after} after: load differs and cannot be "
                "held equal without input tokens",
                before=figure(rates[0]), after=figure(rates[1]),
            )
        )  # fmt: skip
    paths = {i.path for i in a.inputs} & {i.path for i in b.inputs}
    out += [tr("{path} is on both sides", path=clean(path, 200)) for path in sorted(paths)]
    for name, portrait in ((tr("before"), before), (tr("after"), after)):
        n = portrait.tally.n
        if LEAST_ROWS <= n < FEW_ROWS:
            out.append(
                tr("only {n} requests {side} have a TTFT: intervals are wide", n=n, side=name)
            )
    return out


def _best(
    before: Tally, after: Tally, *, by_length: bool, load: bool
) -> tuple[Weighed | None, tuple[str, ...]]:
    """The narrowest cells in which enough of before has a counterpart, weighed.

    The choice looks at sizes only, never at TTFT.
    """
    ways = _ways(before, after, by_length=by_length, load=load)
    if not ways:
        return None, ()
    shares = [covered(before, after, way.key)[0] for way in ways]
    at = next((at for at, got in enumerate(shares) if got >= ENOUGH), None)
    if at is None:
        # Wide cells hold less equal: they must bring much to be taken.
        at = max(range(len(ways)), key=lambda i: (round(shares[i], 1), -i))
    return weigh(before, after, ways[at].key, ways[at].slope), ways[at].words


def _ways(before: Tally, after: Tally, *, by_length: bool, load: bool) -> list[_Held]:
    """Ways to cut cells, narrowest first, from what both logs know."""
    both = (before, after)
    turn = all(_known(t, [c.turn >= 0 for c in t.cells]) for t in both)
    length = by_length and all(_known(t, [c.length >= 0 for c in t.cells]) for t in both)
    demand = all(_known(t, [c.demand >= 0 for c in t.cells]) for t in both)
    model, route = (
        bool({getattr(c, n) for c in before.cells} & {getattr(c, n) for c in after.cells} - {""})
        for n in ("model", "route")
    )
    if load and not (demand and by_length):
        return []

    def way(of_route: bool, of_model: bool, turns: int, lengths: int, demands: int) -> _Held:
        words = [
            *([mark("model")] if of_model else []), *([mark("route")] if of_route else []),
            *([mark("turn")] if turn and turns else []),
            *([mark("input length")] if length and lengths else []),
            *(["demand"] if demands else []),
        ]  # fmt: skip

        def group(cell: Cell) -> Hashable:
            return (
                cell.model if of_model else "",
                cell.route if of_route else "",
                (cell.turn + turns - 1) // turns if turn and turns else 0,
            )

        def key(cell: Cell) -> Hashable:
            if (demands and cell.demand < 0) or (length and lengths and cell.length < 0):
                return None
            return (
                group(cell),
                (cell.length + lengths - 1) // lengths if length and lengths else 0,
                cell.demand // demands if demands else 0,
            )

        return _Held(tuple(words), key, group if length and lengths else None)

    steps: tuple[tuple[int, int, int], ...]
    steps = ((1, 1, 0), (1, 2, 0), (3, 2, 0), (6, 4, 0))
    if load:
        steps = ((3, 2, 1), (3, 4, 1), (3, 4, 2), (6, 4, 4))
    out = []
    for of_route in (True, False) if route else (False,):
        out += [way(of_route, model, *step) for step in steps]
    return out


def _known(tally: Tally, mask: list[bool]) -> bool:
    sizes = tally.sizes
    return bool(sum(s for s, m in zip(sizes, mask, strict=True) if m) >= 0.5 * max(tally.n, 1))


# --- figures --------------------------------------------------------------------------------------


def _view(
    name: ViewName,
    found: Weighed,
    held: tuple[str, ...],
    exact: tuple[tuple[float, ...] | None, tuple[float, ...] | None],
    *,
    same: bool,
) -> View:
    changes = []
    for at, metric in enumerate(METRICS):
        was, now = (float(v) for v in found.levels[at])
        if exact[0] is not None and exact[1] is not None:
            was, now = exact[0][at], exact[1][at]
        ratio = math.log(max(now, 1e-9) / max(was, 1e-9))
        half = 0.0 if same else found.half_width(at)
        interval = None
        if half is not None:
            half = min(half, 20.0)
            interval = math.expm1(ratio - half), math.expm1(ratio + half)
        change = math.expm1(ratio)
        changes.append(
            Change(
                metric=metric,  # type: ignore[arg-type]
                before_s=was,
                after_s=now,
                change_s=now - was,
                share=change,
                interval=interval,
                answer=_called(change, now - was, was, interval),
                smallest_share=None if same else found.smallest(at),
            )
        )
    return View(name, held, found.cells, *found.covered, tuple(changes))


def _called(change: float, change_s: float, was: float, interval: Interval | None) -> Answer:
    """The answer that an interval gives."""
    if interval is None:
        return "cannot_tell"
    low, high = interval
    large = abs(change) >= LEAST_SHARE and abs(change_s) >= LEAST_S
    if large and (low > 0 or high < 0):
        return "worse" if low > 0 else "better"
    margin = max(SAME_SHARE, LEAST_S / max(was, 1e-9))
    return "no_difference" if -margin <= low and high <= margin else "cannot_tell"


def _parts(before: Tally, after: Tally, mix: Weighed, view: View) -> Parts | None:
    """The raw change of the mean; the parts add up by construction."""
    if before.ttft is None or after.ttft is None:
        return None
    raw = after.ttft[0] - before.ttft[0]
    at_mix = float(mix.levels[0, 1] - mix.levels[0, 0])
    alike, load = at_mix, 0.0
    if view.name == "equal_mix_and_load":
        alike = view.changes[0].share * float(mix.levels[0, 0])
        load = at_mix - alike
    other = mix.common[1] - float(mix.levels[0, 1])
    return Parts(
        raw_s=raw,
        like_for_like_s=alike,
        load_s=load,
        mix_s=other,
        outside_s=raw - alike - load - other,
    )


def _basis(
    before: Portrait,
    after: Portrait,
    mix: Weighed,
    loaded: Weighed | None,
    views: tuple[View, ...],
    inside: tuple[Inside, ...],
) -> tuple[ViewName, list[str], str]:
    """Which view the answer rests on, why, and what spoils it (empty if nothing does)."""
    ratio = demand_ratio(before.tally, after.tally)
    if ratio is None:
        return "equal_mix", [], ""
    waits = _waits(mix)
    factor = max(ratio, 1 / ratio)
    # More load adds to the wait at most so much, less load takes at most so much of it away.
    was, now = (SOME_WAIT, SOME_WAIT) if waits is None else waits
    reach = max(was, now) * (factor**STEEP - 1)
    if ratio < 1:
        reach = was * (1 - factor**-STEEP)
    text = _demand(ratio)
    if reach < LEAST_SHARE:
        if factor < 1 + LOAD_SHARE or waits is None:
            return "equal_mix", [], ""
        text = tr(
            "{differs}, but waiting is at most {part} of TTFT on either side",
            differs=text, part=share(max(waits)),
        )  # fmt: skip
        return "equal_mix", [text], ""
    name: ViewName = "equal_mix"
    if loaded is not None and loaded.covered[0] >= 0.5:
        name = "equal_mix_and_load"
        text = tr(
            "{differs}; the answer rests on the {part} of before that met like demand",
            differs=text, part=share(loaded.covered[0]),
        )  # fmt: skip
    change = next(v for v in views if v.name == name).changes[0]
    # Requests also wait for what came earlier than a minute before: what is left of a
    # difference in load looks like a change, but only where requests wait.
    pushed = change.answer == ("worse" if ratio > 1 else "better")
    if pushed and abs(change.share) <= reach and not _cost_moved(inside, change):
        spoilt = tr("load went the same way, and little but waiting got worse")
        if change.answer == "better":
            spoilt = tr("load went the same way, and little but waiting got better")
        return name, [text], spoilt
    if name == "equal_mix" and abs(change.share) <= reach:
        spoilt = tr("load differs, and too few requests met like demand on both sides")
        return name, [text], spoilt
    return name, [text], ""


def _demand(ratio: float) -> str:
    """By how much demand after differs from that before."""
    if ratio >= 2:
        return tr(
            "load differs: the typical request met {n} times the demand after", n=figure(ratio)
        )
    part = share(abs(ratio - 1))
    if ratio > 1:
        return tr("load differs: the typical request met {part} more demand after", part=part)
    return tr("load differs: the typical request met {part} less demand after", part=part)


def _cost_moved(inside: tuple[Inside, ...], change: Change) -> bool:
    """Whether what requests cost by themselves explains half of a change of the mean."""
    by = {i.id: i for i in inside}
    own = 0.0
    for name in ("fixed", "prefill_repeated", "prefill_new"):
        i = by.get(name)
        if i is None or i.before is None or i.after is None:
            return False
        own += i.after - i.before
    moved = own / change.before_s * math.copysign(1.0, change.share)
    return moved >= max(LEAST_SHARE, abs(change.share) / 2)


def demand_ratio(before: Tally, after: Tally) -> float | None:
    """Demand that the typical request met after, over before; None where it is not known."""
    levels = []
    for tally in (before, after):
        sizes = tally.sizes
        known = [(n, c.demand) for n, c in zip(sizes, tally.cells, strict=True) if c.demand >= 0]
        total = sum(n for n, _ in known)
        if total < 0.5 * max(tally.n, 1):
            return None
        levels.append(sum(n * d for n, d in known) / total)
    return float(2 ** ((levels[1] - levels[0]) / 2))


def _waits(mix: Weighed) -> tuple[float, float] | None:
    """Waiting as a share of TTFT on each side."""
    place = {name: at for at, name in enumerate(EXTRAS)}
    out = []
    for side in (0, 1):
        total = sum(float(mix.extras[side, place[a]]) for a in ACCOUNTS)
        if not math.isfinite(total) or total <= 0:
            return None
        out.append(sum(float(mix.extras[side, place[a]]) for a in _QUEUE) / total)
    return out[0], out[1]


# --- what moved inside ----------------------------------------------------------------------------


def _inside(a: Side, b: Side, mix: Weighed | None) -> tuple[Inside, ...]:
    out = []
    if mix is not None:
        was = {name: float(v) for name, v in zip(EXTRAS, mix.extras[0], strict=True)}
        now = {name: float(v) for name, v in zip(EXTRAS, mix.extras[1], strict=True)}
        level = float(mix.levels[0, 0])
        for name in ACCOUNTS:
            out.append(_account(name, title(name), was[name], now[name], level))
        out.append(
            _account("wait", tr("all waiting"), sum(was[q] for q in _QUEUE),
                     sum(now[q] for q in _QUEUE), level)
        )  # fmt: skip
        for ident, words, over in (
            ("cached_share", tr("input served from a cache"), "cached"),
            ("recomputed_share", tr("input computed again"), "recomputed"),
        ):
            x, y = (side[over] / side["input"] if side["input"] > 0 else None
                    for side in (was, now))  # fmt: skip
            out.append(Inside(ident, words, "share", x, y, _moved(x, y, 0.02), equal_mix=True))
    # A log with a release in it has two lines, and its own is that of the first part.
    line = _untold if two_lines(a, b) else _line
    p, q = a.cost_lines.prefill, b.cost_lines.prefill
    if p is not None and q is not None:
        out += [
            line("prefill_fixed", tr("fixed part of the line"), "ms",
                  (p.fixed_ms, p.fixed_ms_interval), (q.fixed_ms, q.fixed_ms_interval)),
            line("prefill_per_1k", tr("per 1,000 new tokens"), "ms_per_1k_tokens",
                  (p.ms_per_1k_tokens, p.ms_per_1k_tokens_interval),
                  (q.ms_per_1k_tokens, q.ms_per_1k_tokens_interval)),
        ]  # fmt: skip
    d, e = a.cost_lines.decode, b.cost_lines.decode
    if d is not None and e is not None:
        fit_d, fit_e = ((f.ms_per_token, f.ms_per_token_interval) for f in (d, e))
        out.append(_line("decode_per_token", tr("decode, per token"), "ms", fit_d, fit_e))
    return tuple(i for i in out if i.before is not None or i.after is not None)


def _account(ident: str, words: str, was: float, now: float, level: float) -> Inside:
    x, y = (v if math.isfinite(v) else None for v in (was, now))
    least = max(MOVED_SHARE * level, LEAST_S)
    return Inside(ident, words, "s", x, y, _moved(x, y, least), equal_mix=True)


def _moved(was: float | None, now: float | None, least: float) -> Moved:
    if was is None or now is None:
        return "unknown"
    return "unchanged" if abs(now - was) <= least else "up" if now > was else "down"


_Fit = tuple[float, Interval | None]


def _line(ident: str, words: str, unit: str, a: _Fit, b: _Fit) -> Inside:
    """A coefficient with its intervals: moved where they cannot both be right.

    Unchanged is what a change of a tenth would have shown against; wider intervals say nothing.
    """
    (was, of_was), (now, of_now) = a, b
    moved: Moved = "unknown"
    if abs(now - was) <= 0.02 * abs(was):
        moved = "unchanged"
    elif of_was is not None and of_now is not None:
        half = math.hypot((of_was[1] - of_was[0]) / 2, (of_now[1] - of_now[0]) / 2)
        if abs(now - was) > half:
            moved = "up" if now > was else "down"
        elif half <= PLAIN_SHARE * abs(was):
            moved = "unchanged"
    return Inside(ident, words, unit, was, now, moved, False, of_was, of_now)


def _untold(ident: str, words: str, unit: str, a: _Fit, b: _Fit) -> Inside:
    return replace(_line(ident, words, unit, a, b), moved="unknown")


# --- words ----------------------------------------------------------------------------------------


def _answer(view: View, spoilt: str) -> tuple[Answer, str]:
    mean = view.changes[0]
    size = signed_share(mean.share)
    if mean.interval is not None:
        low, high = (signed_share(end) for end in mean.interval)
        size = tr("{change} ({low} to {high})", change=size, low=low, high=high)
    change = tr(
        "mean TTFT {before} → {after} {view}, {change}",
        before=seconds(mean.before_s), after=seconds(mean.after_s), view=tr(VIEWS[view.name]),
        change=size,
    )  # fmt: skip
    if spoilt and mean.answer in ("better", "worse", "no_difference"):
        text = tr("Cannot tell: {change}; but {spoilt}", change=change, spoilt=spoilt)
        return "cannot_tell", text
    if mean.answer == "better":
        return mean.answer, tr("Better: {change}", change=change)
    if mean.answer == "worse":
        return mean.answer, tr("Worse: {change}", change=change)
    if mean.answer == "no_difference":
        return mean.answer, tr("No difference: {change}", change=change)
    if mean.interval is None:
        text = tr("Cannot tell: {change}; too few sessions for an interval", change=change)
        return "cannot_tell", text
    return "cannot_tell", tr(
        "Cannot tell: {change}; the interval holds both a change that matters and none",
        change=change,
    )


def _why(view: View, parts: Parts | None, before: Tally) -> list[str]:
    out = []
    if parts is not None and before.ttft is not None and before.ttft[0] > 0:
        was = before.ttft[0]
        told = [
            tr("like for like {change}", change=signed_share(parts.like_for_like_s / was)),
            tr("other traffic {change}", change=signed_share(parts.mix_s / was)),
        ]
        if parts.load_s:
            told.append(tr("other load {change}", change=signed_share(parts.load_s / was)))
        if abs(parts.outside_s) >= 0.001 * was:
            alone = signed_share(parts.outside_s / was)
            told.append(tr("requests without a counterpart {change}", change=alone))
        raw = signed_share(parts.raw_s / was)
        out.append(tr("raw {change}: {parts}", change=raw, parts=tr(", ").join(told)))
    others = [
        tr(
            "{figure} {change} ({answer})",
            figure=figure_name(c.metric), change=signed_share(c.share),
            answer=tr(ANSWERS[c.answer]),
        )
        for c in view.changes[1:]
        if c.answer in ("better", "worse") and c.answer != view.changes[0].answer
    ]  # fmt: skip
    if others:
        out.append(tr("the mean is not all: {others}", others=tr(", ").join(others)))
    smallest = view.changes[0].smallest_share
    if view.changes[0].answer == "cannot_tell" and smallest is not None:
        out.append(
            tr(
                "the smallest slow-down these logs would have shown four times in five is {part}; "
                "intervals shrink with the root of the number of sessions",
                part=share(smallest),
            )
        )
    return out


def _said(inside: Sequence[Inside]) -> tuple[str, ...]:
    """What moved, largest first, and what did not."""
    by = {i.id: i for i in inside}
    out = []
    accounts = [by[a] for a in ACCOUNTS if a in by and by[a].moved in ("up", "down")]
    accounts.sort(key=lambda i: -abs((i.after or 0) - (i.before or 0)))
    if accounts:
        moves = (f"{i.title} {seconds(i.before)} → {seconds(i.after)}" for i in accounts[:4])
        out.append(tr("; ").join(moves))
    elif any(a in by and by[a].moved == "unchanged" for a in ACCOUNTS):
        out.append(tr("no account of the TTFT moved"))
    for ident in ("cached_share", "recomputed_share"):
        i = by.get(ident)
        if i is not None and i.moved in ("up", "down"):
            out.append(f"{i.title} {share(i.before)} → {share(i.after)}")
    lines = []
    for ident in ("prefill_per_1k", "prefill_fixed", "decode_per_token"):
        i = by.get(ident)
        if i is None or i.before is None or i.after is None:
            continue
        figures = f"{milliseconds(i.before)} → {milliseconds(i.after)}"
        text = f"{i.title} {figures}"
        if i.moved == "unchanged":
            text = tr("{name} unchanged ({figures})", name=i.title, figures=figures)
        elif i.moved == "unknown":
            text = tr("{name} not told apart ({figures})", name=i.title, figures=figures)
        lines.append(text)
    if lines:
        out.append(tr("; ").join(lines))
    return tuple(out)
