"""From the request table to evidence: every measuring step, in order, spelled once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import (
    NOT_CHOSEN,
    Charts,
    CostLines,
    DecodeLine,
    Grades,
    LedgerRow,
    ModelLine,
    Population,
    PrefillLine,
    RepeatedPrefix,
    Splits,
)
from ttftdoctor.evidence import Artifact, Change, Cold, Contrast, Evidence, ReusePattern, Wait
from ttftdoctor.intake import Log
from ttftdoctor.language import carry, mark, tr
from ttftdoctor.measure import ledger as ledgers
from ttftdoctor.measure import lines as fits
from ttftdoctor.measure import pace, refusals, replay, reuse, signs, splits, spread
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.lines import Decode, Lines, Prefill
from ttftdoctor.measure.load import Load, load_of
from ttftdoctor.measure.rows import Around, Array, Index, Mask, Rows, Scope, clusters_of, prepare
from ttftdoctor.measure.slots import Sharing, Slots, gate_of, queued, sharing_of, slots_of
from ttftdoctor.measure.stamps import held_on
from ttftdoctor.stats import mean_interval, median, or_zero, quantile, thin, where
from ttftdoctor.table import BEFORE_START, REJECT, SCHEMA, SET_ASIDE


@dataclass(frozen=True)
class Examined:
    """The evidence, and what is needed to draw and to try remedies."""

    evidence: Evidence
    charts: Charts
    replay: replay.Replay | None
    rows: Rows
    ledger: Ledger | None = None
    load: Load | None = None
    charged: Mapping[str, Array] = field(default_factory=dict)  # seconds by cause, per row
    lines: Lines | None = None


def examine(
    log: Log,
    *,
    draw: bool = True,
    beside: ThreadPoolExecutor | None = None,
    known: Callable[[Rows, Lines | None], None] | None = None,
    around: Around | None = None,
    more: Mapping[str, Scope] | None = None,
) -> Examined:
    """Measure one log.

    Parameters
    ----------
    around
        What is known of the rest of the log, where its rows are only a part of it.
    draw
        Whether to make the tables for drawings (``charts``).
    beside
        The second thread, in which is worked out what nothing else waits for.
    known
        Called once the rows and their cost lines will not change any more, with more to do for
        the second thread when it has done the rest.
    more
        Grouping columns beside those of the table, each with a code for every row of the rows.
    """
    if beside is not None:
        return _examine(log, beside, draw, known, around, more)
    with ThreadPoolExecutor(max_workers=1) as own:
        return _examine(log, own, draw, known, around, more)


def _examine(
    log: Log,
    beside: ThreadPoolExecutor,
    draw: bool,
    known: Callable[[Rows, Lines | None], None] | None,
    around: Around | None,
    more: Mapping[str, Scope] | None,
) -> Examined:
    rows = refusals.with_tries(prepare(log.requests, around), log.requests, log.failed)
    if more is not None:
        rows = replace(rows, scopes={**rows.scopes, **more})
    coverage = _coverage(log)
    looked_at = beside.submit(carry(signs.artifact_of), rows, _aside(log), _unit_mixed(log))
    people = beside.submit(carry(_population), rows)
    grouped = beside.submit(carry(ledgers.groups_of), rows)
    nobody = np.zeros(rows.n)
    counted = load_of(rows, nobody, nobody)
    artifact = _before_start(log, looked_at.result())
    if artifact.thinking_share >= 0.4 and artifact.thinking_ms_per_token is not None:
        # Whatever else is measured must not take thinking for prefill or waiting.
        rows = replace(rows, notes=(*rows.notes, tr("TTFT contains thinking time")))
    rows = _infer_reuse(rows, counted)
    tables = beside.submit(carry(splits.split), rows)
    contrast, extra = signs.contrast_of(rows, counted)
    contrast, extra, artifact = _no_path(rows, contrast, extra, artifact)
    slots = slots_of(rows)
    artifact = replace(artifact, gate=gate_of(rows, slots))
    # A constant that one path pays is taken out before the line is fitted, and put back as such.
    # So are steps that decode for others; who found all slots taken waited for somebody.
    sharing = sharing_of(rows, queued(counted, slots.full), rows.ttft - extra)
    held = _Held(slots, sharing)
    paid = replace(rows, ttft=rows.ttft - extra - sharing.seconds)
    lines = fits.fit_lines(paid, queued(counted, slots.full))
    # Two fits at once would only stand in each other's way: they are many small steps of Python.
    decoding = beside.submit(carry(fits.fit_decode), rows, counted)
    population = people.result()
    base = Evidence(
        population=replace(population, vantage=_vantage(log)),
        grades=_grades(rows, coverage, lines is not None),
        lines=CostLines(_prefill_record(lines.main) if lines else None),
        repeated=_repeated(rows),
        ledger=(),
        splits=Splits(),
        coverage=coverage,
        artifact=artifact,
        attempts=None,
        unrelated=rows.unrelated,
    )
    if lines is None:
        base = replace(
            base,
            lines=_with_decode(base.lines, decoding.result()),
            reuse=_pattern(rows, None, None),
            splits=tables.result(),
        )
        charts = splits.charts(rows, None, counted, None) if draw else Charts()
        if known is not None:
            known(rows, None)
        return Examined(base, charts, None, rows)
    charge = _Extra(extra)
    costs = _costs(rows, lines, charge, counted, held)
    slow = None if contrast is not None else _slow_part(rows, paid, counted, held, costs)
    slow_waits = nobody
    if slow is not None:
        # All other parts are as this one should be: theirs are the lines of the log.
        contrast, charge, lines, costs = slow.contrast, slow.charge, slow.lines, slow.costs
        paid = replace(paid, ttft=paid.ttft - charge.seconds)
        extra, slow_waits = slow.seconds, slow.waits
        base = replace(base, lines=CostLines(_prefill_record(lines.main)))
    groups = grouped.result()
    starts = _starts(rows, costs, beside)
    change, dearer = _change(rows, costs.ledger, costs.load, costs.predicted + sharing.seconds)
    spared, change_waits, since = nobody, nobody, None
    if change is not None and change.of_service:
        # Two services in one log: each has its own line, and what the later one costs more is
        # neither long prompts nor a queue.
        both = fits.fit_lines(paid, counted, dearer > 0)
        since = None if both is None else _since(rows, both, charge, counted, held, dearer > 0)
        if both is not None and since is not None:
            lines, costs = both, since.costs
            starts = _starts(rows, costs, beside)
            spared, change_waits, dearer = since.new, since.waits, since.seconds
            change = replace(change, ratio=since.ratio)
            base = replace(base, lines=CostLines(_prefill_record(lines.main)))
    fixed, new, again, load, ledger, predicted = (
        costs.fixed, costs.new, costs.again, costs.load, costs.ledger, costs.predicted
    )  # fmt: skip
    drawn = (
        beside.submit(carry(splits.charts), rows, lines.main, load, groups.peak) if draw else None
    )
    summed = beside.submit(carry(ledgers.summarise), rows, ledger, groups)
    blamed: dict[str, Array] = {"deploy_regression": nobody}
    cold, blamed["cold_start"] = starts.cold, starts.seconds
    repeated_again = ledger.accounts["prefill_repeated"]
    if since is not None:
        repeated_again = repeated_again - since.again
    if cold is not None and cold.kind == "restart":
        # History computed again because the caches went with the server is the start's doing.
        emptied = np.where(starts.reset, or_zero(repeated_again), 0.0)
        # ... and so is what others wait behind it, in proportion.
        part = float(emptied.sum()) / max(float(np.nansum(repeated_again)), 1e-9)
        behind = or_zero(ledger.accounts["queue_behind_repeated"]) * min(part, 1.0)
        blamed["cold_start"] = blamed["cold_start"] + emptied + behind
        repeated_again = repeated_again - emptied
        counted_rows = np.isfinite(ledger.accounts["unexplained"])
        cold = replace(cold, seconds=float(blamed["cold_start"][counted_rows].mean()))
    attempts, blamed["retry_or_ratelimit"] = signs.attempts_of(
        rows, predicted, *_failures(log, around)
    )
    timer, late = signs.timer_of(rows, ledger, predicted)
    if attempts.n_retried > 0:
        timer = None  # whatever the late ones have in common, it is that they were retried
    else:
        left = ledger.accounts["unexplained"] - blamed["cold_start"]
        near = refusals.near_refusals(rows, left, predicted, _refused(log, rows))
        if near is not None:
            attempts = replace(
                attempts, near_n=near.n, near_s=float(near.seconds[np.isfinite(left)].mean()),
                near_share=near.found, near_chance=near.chance, near_arrival=near.arrival,
            )  # fmt: skip
            blamed["retry_or_ratelimit"], timer = near.seconds, None
    if cold is not None and timer is not None:
        timer = None if cold.seconds >= 0.5 * timer.seconds else timer
    blamed["fixed_overhead"] = np.clip(fixed - 0.1, 0, None) if contrast is None else extra
    if contrast is None and timer is not None:
        blamed["fixed_overhead"] = late
    blamed["deploy_regression"] = dearer
    served = beside.submit(carry(replay.calibrate), rows, lines, ledger, blamed, peak=groups.peak)
    foretold = beside.submit(carry(spread.spread_of), rows, ledger, load, predicted)
    if known is not None:
        known(rows, lines)
    cold, change = _dispute(cold, change)
    everything = {
        **blamed,
        "organic_long_input": ledger.accounts["prefill_new"] - spared,
        "queueing_saturation": ledger.wait
        - ledger.accounts["queue_behind_repeated"]
        - change_waits
        - slow_waits,
        "decode_contention": ledger.decoding,
    }
    for cause in ("repeated_prefix_no_reuse", "cache_eviction", "cache_busting_prefix",
                  "affinity_loss"):  # fmt: skip
        everything[cause] = repeated_again
    summary = summed.result()
    growth_s, growth, kind = _growth(summary)
    whole = np.isfinite(ledger.accounts["unexplained"])
    new_s = np.maximum((ledger.accounts["prefill_new"] - spared)[where(whole)], 0.0)
    inside_s, outside_s = _inside(rows, ledger)
    again_s = repeated_again[where(whole)]
    if change is not None:
        change = replace(change, seconds=float(dearer[whole].mean()) if whole.any() else 0.0)
    clusters = _clusters(rows, whole)
    evidence = replace(
        base,
        lines=replace(_with_decode(base.lines, decoding.result()), by_model=_by_model(rows, lines)),
        repeated=_wasted(base.repeated, float(np.nansum(ledger.accounts["prefill_repeated"]))),
        ledger=summary,
        wait=_wait(
            rows, ledger, load, whole, clusters, new + again, change_waits + slow_waits, held
        ),
        cold=cold,
        change=change,
        attempts=attempts,
        contrast=contrast,
        timer=timer if contrast is None else None,
        scoped=signs.scoped_of(rows, everything),
        fixed_s=lines.main.fixed,
        fixed_separable=lines.main.separable,
        prefill_repeated_s=float(again_s.mean()) if len(again_s) else 0.0,
        prefill_repeated_interval=_interval(again_s, clusters, lines.main),
        # A median line may predict a little more than all TTFTs together.
        prefill_new_s=min(float(new_s.mean()), base.mean or 0.0) if len(new_s) else 0.0,
        prefill_new_p95_s=quantile(new_s, 0.95) if len(new_s) else 0.0,
        inside_s=inside_s,
        outside_s=outside_s,
        context_s=_context_s(rows, lines, new_s, where(whole)),
        uncached_p95=_uncached_p95(rows, where(whole)),
        unexplained_s=_left_over(ledger, blamed, whole, None if timer is None else late),
        growth_s=growth_s,
        growth_accounts=growth,
        growth_kind=kind,
        tail=_tail(rows, everything, whole),
        reuse=starts.pattern.result(),
        splits=tables.result(),
        spread=foretold.result(),
    )
    charts = Charts() if drawn is None else drawn.result()
    return Examined(evidence, charts, served.result(), rows, ledger, load, everything, lines)


@dataclass(frozen=True)
class _Costs:
    """What each row costs by its line, and how its TTFT splits; seconds."""

    fixed: Array
    new: Array
    again: Array
    load: Load
    ledger: Ledger

    @property
    def predicted(self) -> Array:
        return self.fixed + self.new + self.again


@dataclass(frozen=True)
class _Starts:
    """Cold starts, with their seconds and the turns whose caches were emptied; and, since it must
    leave these out, the pattern of reuse.
    """

    cold: Cold | None
    seconds: Array
    reset: Mask
    pattern: Future[ReusePattern | None]


def _starts(rows: Rows, costs: _Costs, beside: ThreadPoolExecutor) -> _Starts:
    ledger, predicted = costs.ledger, costs.predicted
    sick = _sick_part(rows, costs.again)
    reset = signs.resets_of(rows, ledger, predicted)
    cold, seconds = signs.cold_of(rows, ledger, costs.load, predicted, reset)
    restarted = cold is not None and cold.kind == "restart"
    if restarted:
        repeats = or_zero(rows.repeated) >= signs.REUSABLE
        missed = repeats & (rows.cached < 0.2 * or_zero(rows.repeated))
        reset = reset | (missed & (seconds > 0))
    pattern = beside.submit(carry(_pattern), rows, sick, reset if restarted else None)
    return _Starts(cold, seconds, reset, pattern)


@dataclass(frozen=True)
class _Held:
    """What decoding takes: slots and steps."""

    slots: Slots
    sharing: Sharing


@dataclass(frozen=True)
class _Extra:
    """What one path pays beyond the line, seconds per row.

    A ``busy`` one is prefill that takes longer there, so that others wait behind it.
    """

    seconds: Array
    busy: bool = False


def _costs(rows: Rows, lines: Lines, extra: _Extra, counted: Load, held: _Held) -> _Costs:
    fixed, new, again = _parts(rows, lines)
    fixed = fixed + extra.seconds
    work = new + again + extra.seconds if extra.busy else new + again
    load = load_of(rows, work, again, counted)
    shared = held.sharing.seconds
    ledger = ledgers.split(rows, fixed, new, again, load, shared, held.slots)
    return _Costs(fixed, new, again, load, ledger)


@dataclass(frozen=True)
class _Since:
    """What a change of the service costs: in all, and of it new tokens, repeated ones, waits."""

    costs: _Costs
    seconds: Array
    new: Array
    again: Array
    waits: Array
    ratio: float


#: The same work must cost this many times as much after a change to be a change of the service.
DEARER = 1.15


def _since(
    rows: Rows, lines: Lines, extra: _Extra, counted: Load, held: _Held, after: Mask
) -> _Since | None:
    """Hold the lines after a change against those before it; None if they cost no more."""
    costs = _costs(rows, lines, extra, counted, held)
    fixed, new, again = _parts(rows, lines.before())
    after = after & np.isfinite(costs.predicted)
    was = (fixed + extra.seconds + new + again)[after]
    if not after.any() or costs.predicted[after].sum() < DEARER * was.sum():
        return None
    ratio = float(costs.predicted[after].sum() / max(was.sum(), 1e-9))

    def more(now: Array, before: Array) -> Array:
        return np.where(after, np.clip(now - before, 0.0, None), 0.0)

    dearer_new, dearer_again = more(costs.new, new), more(costs.again, again)
    work = costs.new + costs.again
    part = np.divide(dearer_new + dearer_again, work, out=np.zeros(rows.n), where=work > 0)
    accounts = costs.ledger.accounts
    behind = or_zero(accounts["queue_behind_new"] + accounts["queue_behind_repeated"])
    waits = np.where(after, behind * np.clip(part, 0.0, 1.0), 0.0)
    own = more(costs.fixed, fixed + extra.seconds) + dearer_new + dearer_again
    return _Since(costs, own + waits, dearer_new, dearer_again, waits, ratio)


@dataclass(frozen=True)
class _SlowPart:
    """A part of the service that takes longer for the same work.

    ``charge`` is what its own requests take beyond the ``lines`` of all others, ``waits`` what
    others wait behind that, and ``seconds`` both together.
    """

    contrast: Contrast
    lines: Lines
    charge: _Extra
    costs: _Costs
    seconds: Array
    waits: Array


def _slow_part(
    rows: Rows, paid: Rows, counted: Load, held: _Held, costs: _Costs
) -> _SlowPart | None:
    """The part that has been slower than all others for the whole log, if there is one."""
    for seen in pace.candidates(rows, counted, costs.predicted):
        both = fits.fit_lines(paid, counted, seen.part)
        if both is None:
            continue
        lines = both.before()
        usual = np.sum(_parts(rows, lines), axis=0)
        found = pace.confirmed(rows, counted, seen, usual)
        if found is None or _changed(rows, costs, found.part):
            continue
        beyond = or_zero(np.sum(_parts(rows, both), axis=0) - usual)
        beyond = np.where(found.part, np.clip(beyond, 0.0, or_zero(rows.ttft)), 0.0)
        charge = _Extra(beyond, busy=True)
        now = _costs(rows, lines, charge, counted, held)
        without = load_of(rows, now.new + now.again, now.again, counted)
        accounts = now.ledger.accounts
        behind = or_zero(accounts["queue_behind_new"] + accounts["queue_behind_repeated"])
        waits = behind * _dearer_backlog(without.backlog, now.load.backlog)
        seconds = beyond + waits
        at = where(rows.measured & found.part)
        contrast = Contrast(
            column=found.column, value=found.value, n=found.n,
            level_s=median(rows.ttft[at]), best=tr("the others"),
            best_level_s=median(np.maximum(rows.ttft - seconds, 0.0)[at]),
            constant_s=float(beyond[at].mean()), seconds=float(seconds[rows.measured].mean()),
            ratio=found.ratio,
        )  # fmt: skip
        return _SlowPart(contrast, lines, charge, now, seconds, waits)
    return None


def _changed(rows: Rows, costs: _Costs, part: Mask) -> bool:
    """Whether a part became slow within the log: that is a change, whoever it befell."""
    at = np.flatnonzero(part)
    change, _ = signs.change_of(
        rows.take(at), costs.ledger.take(at), fits.part_of(costs.load, at), costs.predicted[at]
    )
    return change is not None and change.of_service


def _dearer_backlog(before: Array, now: Array) -> Array:
    """The part of the work ahead that would not be there but for the slow part."""
    now = or_zero(now)
    kept = np.divide(or_zero(before), now, out=np.ones(len(now)), where=now > 0)
    result: Array = 1.0 - np.clip(kept, 0.0, 1.0)
    return result


#: What one path holds back must be this part of the mean TTFT of all, or it is not judged first.
HELD_PATH = 0.25


def _no_path(
    rows: Rows, contrast: Contrast | None, extra: Array, artifact: Artifact
) -> tuple[Contrast | None, Array, Artifact]:
    """A slow path that is none: there the number is not a TTFT, or is in another unit."""
    if contrast is None:
        return contrast, extra, artifact
    scope = rows.scopes[contrast.column]
    there = scope.codes == scope.names.index(contrast.value)
    found = replace(
        signs.artifact_of(rows.take(there), {}, None),
        negative_n=artifact.negative_n, negative_share=artifact.negative_share,
    )  # fmt: skip
    path = contrast.column, contrast.value
    where = " ".join(path)
    none = np.zeros(rows.n)
    if found.equal_share >= 0.8:
        return None, none, replace(found, scope=path)
    if contrast.seconds >= HELD_PATH * float(rows.ttft[rows.measured].mean()):
        held = held_on(rows, contrast) or found.held
        if held is not None:
            return None, none, replace(artifact, held=held, scope=path)
    ratio = contrast.level_s / max(contrast.best_level_s, 1e-9)
    if 400 <= ratio <= 2500 and contrast.best_level_s < 0.01:
        text = tr(
            "{where} is about 1,000 times {best}: the rows are not all in one unit",
            where=where, best=contrast.best,
        )  # fmt: skip
        return None, none, replace(artifact, unit_mixed=text, scope=path)
    return contrast, extra, artifact


def _change(
    rows: Rows, ledger: Ledger, load: Load, predicted: Array
) -> tuple[Change | None, Array]:
    """A lasting jump in the cost of the same work: of the whole log, or of one part of it."""
    found, seconds = signs.change_of(rows, ledger, load, predicted)
    if found is not None or not rows.order_known:
        return found, seconds
    best: tuple[float, Change, Array] | None = None
    for column in ("model", "replica", "tenant", "route"):
        scope = rows.scopes.get(column)
        if scope is None or not 2 <= len(scope.names) <= 12:
            continue
        for code, name in enumerate(scope.names):
            mask = scope.codes == code
            if (mask & rows.measured).sum() < 40 or mask.sum() > 0.95 * rows.n:
                continue
            at = np.flatnonzero(mask)
            for some in (at[thin(len(at))], at):  # of a huge part, first a sample is looked at
                part, cost = signs.change_of(
                    rows.take(some), ledger.take(some), fits.part_of(load, some), predicted[some]
                )
                if part is None or len(some) == len(at):
                    break
            if part is None or part.p_value * 40 > 1e-3:
                continue
            total = np.zeros(rows.n)
            total[mask] = cost
            share = float(total[rows.measured].mean())
            if best is None or share > best[0]:
                best = share, replace(part, seconds=share, scope=f"{column} {name}"), total
    return (best[1], best[2]) if best is not None else (None, seconds)


def _refused(log: Log, rows: Rows) -> Array:
    """Starts of refused and failed requests on the clock of the rows, sorted."""
    if rows.epoch_us is None or log.failed.height == 0:
        return np.empty(0)
    starts = log.failed["start"].drop_nulls().to_numpy()
    return np.sort((starts - rows.epoch_us) / 1e6)


def _tail(rows: Rows, blamed: dict[str, Array], whole: Mask) -> dict[str, float]:
    """Which cause the slowest tenth of the requests has more of than the typical request.

    People complain of what is late, not of what everybody pays: a share of how much later than
    the median those requests are.
    """
    at = where(whole)
    ttft = rows.ttft[at]
    if len(ttft) < 10:
        return {}
    middle, high = median(ttft), quantile(ttft, 0.9)
    late = np.flatnonzero(ttft >= high)
    excess = float((ttft[late] - middle).sum())
    if excess <= 0:
        return {}
    out: dict[str, float] = {}
    shared: dict[int, float] = {}  # by identity: some causes share their seconds
    for cause, seconds in blamed.items():
        if id(seconds) not in shared:
            value = or_zero(seconds[at])
            middle = 0.0 if 2 * np.count_nonzero(value) < len(value) else median(value)
            shared[id(seconds)] = float((value[late] - middle).sum() / excess)
        out[cause] = shared[id(seconds)]
    return out


def _left_over(ledger: Ledger, blamed: dict[str, Array], whole: Mask, late: Array | None) -> float:
    """Unexplained seconds less what cold starts, retries and changes were found to cost."""
    if not whole.any():
        return 0.0
    found = np.maximum.reduce(
        [blamed[c] for c in ("cold_start", "retry_or_ratelimit", "deploy_regression")]
    )
    if late is not None:
        found = np.maximum(found, late)
    return float((ledger.accounts["unexplained"] - found)[whole].mean())


def _dispute(cold: Cold | None, change: Change | None) -> tuple[Cold | None, Change | None]:
    """A cold head of the log is no release: the later, larger part decides."""
    if cold is not None and change is not None and cold.kind == "start" and change.ratio < 1:
        return cold, None
    return cold, change


def _coverage(log: Log) -> dict[str, float]:
    n = max(log.requests.height, 1)
    out = {c: 1 - log.requests[c].null_count() / n for c in SCHEMA if c in log.requests.columns}
    failed = log.failed.height
    if failed and out.get("status", 0.0) == 0:
        out["status"] = failed / (failed + n)
    return out


def _aside(log: Log) -> dict[str, int]:
    """Rows with a logged TTFT that must not be used, by reason; all of them if none has one."""
    frame = log.requests.select(SET_ASIDE, "ttft_logged_us")
    frame = frame.filter(pl.col(SET_ASIDE).is_not_null())
    logged = frame.filter(pl.col("ttft_logged_us").is_not_null())
    return dict(logged.group_by(SET_ASIDE).len().iter_rows())


def _before_start(log: Log, artifact: Artifact) -> Artifact:
    """The same, with the rows that were turned away because their TTFT was less than nothing.

    What is left of such a log are the rows whose TTFT was longer than the clocks are apart. They
    were turned away on reading, so they are a share of all rows, also of those not asked for.
    """
    n = used = 0
    for one in log.inputs:
        n += one.rows_rejected.get(BEFORE_START, 0)
        used += one.rows_used + sum(one.rows_rejected.get(why, 0) for why in NOT_CHOSEN)
    return replace(artifact, negative_n=n, negative_share=n / (n + used)) if n else artifact


def _unit_mixed(log: Log) -> str | None:
    first, last = log.fields.get("ttft_us"), log.fields.get("e2e_us")
    if first is None or last is None or first.kind != "inferred" or last.kind != "inferred":
        return None
    if first.unit == last.unit:
        return None
    return tr(
        "{first} makes sense only as {unit} and {last} only as {other}, and neither says so: "
        "whoever reads both in one unit is off by a factor of 1,000",
        first=first.source, unit=first.unit, last=last.source, other=last.unit,
    )  # fmt: skip


def _failures(log: Log, around: Around | None) -> tuple[int, int]:
    """Rows that a limit refused, and that failed; of an extract those that lie in it."""
    limited = failed = 0
    if around is not None:
        reasons = Counter(log.failed[REJECT])
        return reasons["rate_limited"], reasons["failed_request"]
    for record in log.inputs:
        limited += record.rows_rejected.get("rate_limited", 0)
        failed += record.rows_rejected.get("failed_request", 0)
    return limited, failed


def _infer_reuse(rows: Rows, load: Load) -> Rows:
    """Fill cached tokens by the timing, model by model, where the log has none."""
    if rows.cached_logged:
        return _dead_counter(rows, load)
    groups = fits.model_groups(rows)
    parts = [reuse.infer(rows.take(mask), fits.part_of(load, mask)) for mask in groups]
    parts = reuse.lend(parts)
    cached = rows.cached.copy()
    for mask, (part, _) in zip(groups, parts, strict=True):
        cached[mask] = part.cached
    known = [part for part, _ in parts if part.cached_basis != "unknown"]
    if not known:
        return rows
    bases = {part.cached_basis for part in known}
    return replace(
        rows,
        cached=cached,
        cached_basis=bases.pop() if len(bases) == 1 else mark("inferred: differs by model"),
        cached_sure=min(part.cached_sure for part in known),
    )


def _dead_counter(rows: Rows, load: Load) -> Rows:
    """Cached tokens that are always 0 though TTFT follows only the new tokens are not counted."""
    if rows.session_grade == "none" or np.nansum(rows.cached) > 0 or np.nansum(rows.written) > 0:
        return rows
    blank = replace(
        rows, cached=np.full(rows.n, np.nan), cached_logged=False, reuse_grade="inferred"
    )
    part, found = reuse.infer(blank, load)
    if found.answer != "full" or found.loss_full is None or found.loss_none is None:
        return rows
    if found.loss_full > 0.5 * found.loss_none:
        return rows
    note = tr(
        "cached tokens are always 0 in the log, but TTFT follows only what is new in each turn: "
        "the counter is not reported"
    )
    return replace(part, notes=(*rows.notes, note))


def _parts(rows: Rows, lines: Lines) -> tuple[Array, Array, Array]:
    fixed, new, again = (np.full(rows.n, np.nan) for _ in range(3))
    for mask, line in lines.each():
        at = np.flatnonzero(mask)
        fixed[at] = line.fixed
        new[at], again[at] = ledgers.parts(
            line, rows.uncached[at], rows.context[at], rows.recomputed[at]
        )
    if lines.main.per_1k == 0 and not np.isfinite(rows.inputs).any():
        new, again = np.zeros(rows.n), np.zeros(rows.n)
    return fixed, new, again


def _inside(rows: Rows, ledger: Ledger) -> tuple[float | None, float | None]:
    """Mean seconds in the engine by its own times, and elsewhere, of requests that have them."""
    at = where(np.isfinite(ledger.inside) & rows.measured)
    inside, ttft = ledger.inside[at], rows.ttft[at]
    if not len(inside):
        return None, None
    return float(inside.mean()), float(np.clip(ttft - inside, 0.0, None).mean())


def _context_s(rows: Rows, lines: Lines, new: Array, at: Index | slice) -> float:
    """Mean seconds of the prefill of new tokens that are the price of what was cached."""
    price = np.zeros(rows.n)
    for mask, line in lines.each():
        price[mask] = line.per_1k_context * or_zero(rows.context[mask]) / 1e3
    return float(np.minimum(price[at], np.maximum(new, 0.0)).mean()) if len(new) else 0.0


def _uncached_p95(rows: Rows, at: Index | slice) -> float | None:
    """The 95th percentile of the tokens that had to be computed; None where lengths are unknown."""
    tokens = rows.uncached[at]
    tokens = tokens[np.isfinite(tokens)]
    return quantile(tokens, 0.95) if len(tokens) else None


def _sick_part(rows: Rows, again: Array) -> Mask | None:
    """Rows of the groups that never hit, where other groups of the same column nearly always do."""
    could = np.isfinite(rows.cached) & (or_zero(rows.repeated) >= signs.REUSABLE)
    could &= np.isfinite(rows.previous_input)
    if could.sum() < 6:
        return None
    kept = np.divide(rows.cached, rows.repeated, out=np.zeros(rows.n), where=could)
    lost = or_zero(again)
    for column, scope in rows.scopes.items():
        if not 2 <= len(scope.names) <= 100:
            continue
        if column == "replica" and np.nanmean(np.where(could, rows.moved, np.nan)) > 0.1:
            continue
        sick = np.zeros(rows.n, dtype=bool)
        well = np.zeros(rows.n, dtype=bool)
        for code in range(len(scope.names)):
            mask = could & (scope.codes == code)
            if mask.sum() < 3:
                continue
            miss = float((kept[mask] < 0.2).mean())
            if miss >= 0.9:
                sick |= scope.codes == code
            elif miss <= 0.35:
                well |= scope.codes == code
        if sick.any() and well.any() and lost[sick].sum() >= 0.8 * lost.sum() > 0:
            return sick
    return None


def _pattern(rows: Rows, sick: Mask | None, reset: Mask | None) -> ReusePattern | None:
    whole = signs.reuse_pattern(rows, reset)
    if sick is None or _released(whole):
        return whole
    found = signs.reuse_pattern(rows.take(sick), None if reset is None else reset[sick])
    return whole if found is None else found


def _released(pattern: ReusePattern | None) -> bool:
    """Whether the sick part is a release, which took the place of a sound one at one moment."""
    switched = None if pattern is None else pattern.switched
    return switched is not None and switched.version is not None


def _clusters(rows: Rows, whole: Mask) -> Index | None:
    return clusters_of(rows.session[where(whole)], 8)


def _interval(values: Array, clusters: Index | None, line: Prefill) -> tuple[float, float] | None:
    """Interval of a mean that comes through the line: sessions and slope together."""
    if len(values) < 2:
        return None
    low, high = mean_interval(values, clusters)
    centre = float(values.mean())
    slope = 0.0
    if line.draws.shape[0] >= 20 and line.per_1k > 0:
        slope = 1.96 * float(line.draws[:, 1].std()) / line.per_1k * centre
    half = float(np.hypot((high - low) / 2, slope))
    return max(centre - half, 0.0), centre + half


def _wait(
    rows: Rows, ledger: Ledger, load: Load, whole: Mask, clusters: Index | None, work: Array,
    behind_change: Array, held: _Held,
) -> Wait | None:  # fmt: skip
    logged = np.isfinite(rows.queue).sum() >= 0.5 * max(rows.n, 1)
    if not rows.order_known and not logged:
        return None
    a, at = ledger.accounts, where(whole)
    wait = ledger.wait[at]
    if len(wait) == 0:
        return None
    running = load.running[where(np.isfinite(load.running))]
    alone = whole & (load.running == 0)
    if alone.sum() < 10:
        alone = whole & (load.waiting == 0)
    busy = whole & (load.waiting > 0)
    utilisation = None
    known = where(np.isfinite(rows.start) & rows.measured)
    if len(rows.start[known]) >= 10:
        span = float(np.ptp(rows.start[known]))
        servers = int(np.count_nonzero(np.bincount(rows.server[known])))
        if span > 0:
            utilisation = float(np.nansum(work[known]) / span / servers)
    return Wait(
        mean=float(wait.mean()),
        behind_repeated=float(a["queue_behind_repeated"][at].mean()),
        behind_new=float(a["queue_behind_new"][at].mean()),
        other=float(a["queue_other"][at].mean()),
        logged_mean=float(np.nanmean(rows.queue[rows.measured])) if logged else None,
        per_backlog=ledger.per_backlog,
        follows_backlog=ledger.follows_backlog,
        follows_decoding=ledger.follows_decoding,
        follows_running=ledger.follows_running,
        decoding_mean=float(ledger.decoding[at].mean()),
        running_p50=median(running) if len(running) else None,
        running_p95=quantile(running, 0.95) if len(running) else None,
        utilisation=utilisation,
        idle_level_s=median(rows.ttft[alone]) if alone.sum() >= 3 else None,
        busy_level_s=median(rows.ttft[busy]) if busy.sum() >= 3 else None,
        rows_with_wait=int((wait > 0.01).sum()),
        interval=mean_interval(wait, clusters) if len(wait) > 2 else None,
        behind_change=float(behind_change[at].mean()),
        steps_mean=float(ledger.steps[at].mean()),
        steps=held.sharing.steps,
        step_s=held.sharing.level,
        step_alone_s=held.sharing.alone,
        after_end=held.slots.after_end,
        ended_n=held.slots.n,
        slots_held=held.slots.held,
        slots_most=held.slots.most,
        slots_capped=held.slots.capped,
    )


def _growth(summary: tuple[LedgerRow, ...]) -> tuple[float | None, dict[str, float], str]:
    """Late turns against early ones, or else peak against off-peak, account by account."""
    by = {row.group: row for row in summary}
    for low, high, kind in (
        ("early_turns", "late_turns", "late turns against first turns"),
        ("off_peak", "peak", "peak against off-peak"),
    ):
        if low in by and high in by:
            grown = by[high].ttft_mean_s - by[low].ttft_mean_s
            if grown > 0.05 * by[low].ttft_mean_s:
                accounts = {
                    a: by[high].accounts[a] - by[low].accounts[a] for a in by[high].accounts
                }
                return grown, accounts, kind
    return None, {}, ""


def _vantage(log: Log) -> str | None:
    """Where the clock stood; several, where the log has several."""
    names = sorted(log.requests["vantage"].drop_nulls().unique().to_list())
    return ", ".join(names) or None


def _population(rows: Rows) -> Population:
    ttft = rows.ttft[rows.measured]
    sessions = rows.session[rows.session >= 0]
    turns = rows.turn[np.isfinite(rows.turn)]
    start = end = None
    known = np.flatnonzero(np.isfinite(rows.start))
    if rows.epoch_us is not None and len(known):
        start = signs.moment(rows, int(known[np.argmin(rows.start[known])]))
        end = signs.moment(rows, int(known[np.argmax(rows.start[known])]))
    return Population(
        requests=rows.n,
        sessions=int(np.count_nonzero(np.bincount(sessions))) if len(sessions) else None,
        turns_max=int(turns.max()) if len(turns) else None,
        start=start,
        end=end,
        with_ttft=len(ttft),
        vantage=None,
        ttft_mean_s=float(ttft.mean()) if len(ttft) else None,
        ttft_p50_s=quantile(ttft, 0.5) if len(ttft) else None,
        ttft_p95_s=quantile(ttft, 0.95) if len(ttft) else None,
    )


def _grades(rows: Rows, coverage: Mapping[str, float], measured: bool) -> Grades:
    queue = "none"
    if coverage.get("queue_us", 0.0) >= 0.5:
        queue = "logged"
    elif rows.order_known and measured:
        queue = "inferred"
    notes = list(rows.notes)
    if rows.cached_basis.startswith("inferred"):
        notes.append(
            tr("cached tokens are not logged; {basis} (by the timing of turns)",
               basis=tr(rows.cached_basis))
        )  # fmt: skip
    return Grades(rows.session_grade, rows.reuse_grade, queue, tuple(notes))  # type: ignore[arg-type]


def _prefill_record(line: Prefill) -> PrefillLine:
    def interval(index: int, factor: float = 1e3) -> tuple[float, float] | None:
        if line.draws.shape[0] < 20:
            return None
        low, high = np.quantile(line.draws[:, index], [0.025, 0.975]) * factor
        value = (line.fixed, line.per_1k, line.per_1k_1k, line.per_1k_context)[index] * factor
        return min(float(low), value), max(float(high), value)

    return PrefillLine(
        fixed_ms=line.fixed * 1e3,
        ms_per_1k_tokens=line.per_1k * 1e3,
        fixed_ms_interval=interval(0),
        ms_per_1k_tokens_interval=interval(1),
        ms_per_1k_tokens_per_1k_context=line.per_1k_1k * 1e3 if line.has_attention else None,
        ms_per_1k_tokens_per_1k_context_interval=interval(2) if line.has_attention else None,
        ms_per_1k_context=line.per_1k_context * 1e3 if line.has_context else None,
        n=line.n,
        method=line.method,
        residual_p50_ms=line.noise_s * 1e3,
    )


def _by_model(rows: Rows, lines: Lines) -> tuple[ModelLine, ...]:
    """Each model's line beside what a cache did for it, most requests first."""
    scope = rows.scopes.get("model")
    if len(lines.by_model) < 2:
        return ()
    out = []
    for code, line in lines.by_model.items():
        at = np.flatnonzero((lines.codes == code) & rows.measured)
        name = "" if scope is None else scope.names[code % fits.AFTER]
        if code >= fits.AFTER:
            name = tr("{model}, since the change", model=name) if name else tr("since the change")
        repeated = float(np.nansum(rows.repeated[at]))
        known = np.isfinite(rows.cached[at]).any() and repeated > 0
        hits = np.minimum(or_zero(rows.cached[at]), or_zero(rows.repeated[at]))
        part = float(hits.sum()) / repeated if known else None
        record = _prefill_record(line)
        cost = _context_interval(line)
        out.append(
            ModelLine(
                model=name or tr("before the change"),
                requests=len(at),
                ttft_p50_s=median(rows.ttft[at]),
                fixed_ms=record.fixed_ms,
                ms_per_1k_tokens=record.ms_per_1k_tokens,
                ms_per_1k_context=record.ms_per_1k_context,
                ms_per_1k_context_interval=cost,
                from_cache=part,
                says=_hits_said(part, record, cost, rows.cached_logged),
            )
        )
    return tuple(sorted(out, key=lambda one: -one.requests))


def _context_interval(line: Prefill) -> tuple[float, float] | None:
    if not line.has_context or line.draws.shape[0] < 20:
        return None
    low, high = np.quantile(line.draws[:, 3], [0.025, 0.975]) * 1e3
    value = line.per_1k_context * 1e3
    return min(float(low), value), max(float(high), value)


def _hits_said(
    part: float | None, line: PrefillLine, cost: tuple[float, float] | None, logged: bool
) -> str:
    if part is None:
        return tr("whether history is reused, the log does not tell")
    hits = f"{part:.0%}"
    if part < 0.5:
        if logged:
            return tr("{part} of what repeats comes from a cache", part=hits)
        return tr("{part} of what repeats comes from a cache, by the timing", part=hits)
    if logged:
        text = tr("the cache works ({part} of what repeats comes from it)", part=hits)
    else:
        text = tr(
            "the cache works ({part} of what repeats comes from it, by the timing)", part=hits
        )
    old = line.ms_per_1k_context
    if old is None or cost is None:
        return text + tr("; what a hit costs is lost in the spread")
    return text + tr(
        ", but hits are not free: 1,000 cached tokens cost {cached} ms [{low}, {high}], 1,000 new "
        "ones {new} ms",
        cached=format(old, ".3g"), low=format(cost[0], ".3g"), high=format(cost[1], ".3g"),
        new=format(old + line.ms_per_1k_tokens, ".3g"),
    )  # fmt: skip


def _with_decode(lines: CostLines, decode: Decode | None) -> CostLines:
    return lines if decode is None else replace(lines, decode=_decode_record(decode))


def _decode_record(line: Decode) -> DecodeLine:
    def ms(value: float | None) -> float | None:
        return None if value is None else value * 1e3

    return DecodeLine(
        ms_per_token=line.per_token * 1e3,
        ms_per_token_interval=None
        if line.interval is None
        else (line.interval[0] * 1e3, line.interval[1] * 1e3),
        slope_per_1k_context_ms=ms(line.per_1k_context),
        slope_per_running_ms=ms(line.per_running),
        n=line.n,
        method=line.method,
    )


def _wasted(repeated: RepeatedPrefix, seconds: float) -> RepeatedPrefix:
    """The same with the seconds that computing again took, where it is known what was."""
    if repeated.recomputed_tokens is None:
        return repeated
    return replace(repeated, prefill_seconds_wasted=seconds)


def _repeated(rows: Rows) -> RepeatedPrefix:
    total = int(np.nansum(rows.inputs))
    if rows.reuse_grade == "none":
        return RepeatedPrefix("none", total, None, None, None, None, None, None)
    known = np.isfinite(rows.inputs)
    repeated = int(np.nansum(rows.repeated[known]))
    cached_known = np.isfinite(rows.cached[known]).any()
    again = int(np.nansum(rows.recomputed[known])) if cached_known else None
    basis = {
        "content": tr("prompt blocks that an earlier request had, at any replica"),
        "reported": tr("the previous turn of the session and the cached tokens of the log"),
        "inferred": tr("the previous turn of the session: its input and output (an upper bound)"),
    }[rows.reuse_grade]
    return RepeatedPrefix(
        grade=rows.reuse_grade,
        input_tokens=total,
        repeated_tokens=repeated,
        cached_tokens=int(np.nansum(rows.cached[known])) if cached_known else None,
        recomputed_tokens=again,
        recomputed_share=again / total if again is not None and total else None,
        bounds=(
            int(np.nansum(rows.repeated_low[known])),
            int(np.nansum(rows.repeated_high[known])),
        ),
        prefill_seconds_wasted=None,
        basis=basis,
    )
