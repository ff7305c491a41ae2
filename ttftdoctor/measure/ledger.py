"""The ledger: each TTFT split into accounts that add up to it.

A request's own prefill comes from the line; what is left is a wait as far as work ahead of it, a
logged queue time or slots taken by decoding can explain it, and is called unexplained otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.diagnosis import ACCOUNTS, LedgerRow
from ttftdoctor.measure.lines import Prefill, all_follow, follows
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Index, Rows
from ttftdoctor.measure.slots import Slots
from ttftdoctor.stats import Array, median, or_zero, quantile, quantile_fit, thin, two_levels, where

#: A wait may exceed the fitted one by this factor before the rest is called unexplained.
SLACK = 1.5
#: More seconds waited than this per second of prefill ahead are not explained by prefill.
MOST_PER_BACKLOG = 3.0

#: The server's own prefill times are held against the line where they are known of this part of
#: the rows, and of so many at least.
KNOWN, FEWEST_KNOWN = 0.5, 20
#: ... they must follow the tokens (rank correlation), or they are another number, ...
FOLLOW = 0.3
#: ... and correct the line only where it has more than this many times as much.
MORE = 1.3
#: What the server's own times may be off by: a part, and seconds.
OFF, OFF_S = 1.1, 0.02

#: With all slots taken, prefill is what is waited for when it takes this part of the wait.
AHEAD = 0.85

#: Steps that decode for others are the rule when they make up this part of such waiting.
STEPS_FROM = 0.3


@dataclass(frozen=True)
class Ledger:
    """Accounts per row, seconds, NaN where TTFT or tokens are unknown.

    They add up to TTFT row by row. ``decoding`` is the part of ``queue_other`` laid to decoding:
    to the slots it holds, and (``steps``) to steps that decode for others as well. ``inside`` is
    what the server's own times say that passed in its engine, NaN where they do not tell.
    """

    accounts: dict[str, Array]
    decoding: Array
    steps: Array
    residual: Array
    inside: Array
    per_backlog: float | None
    per_decoding: float | None
    follows_backlog: float | None
    follows_decoding: float | None
    follows_running: float | None

    def take(self, index: NDArray[np.bool_] | Index) -> Ledger:
        """The same for some of the rows."""
        return replace(
            self,
            accounts={name: value[index] for name, value in self.accounts.items()},
            decoding=self.decoding[index],
            steps=self.steps[index],
            residual=self.residual[index],
            inside=self.inside[index],
        )

    @cached_property
    def wait(self) -> Array:
        """All waiting of each row."""
        a = self.accounts
        total: Array = a["queue_behind_repeated"] + a["queue_behind_new"] + a["queue_other"]
        return total


def split(
    rows: Rows,
    fixed: Array,
    new: Array,
    repeated: Array,
    load: Load,
    shared: Array | None = None,
    slots: Slots | None = None,
) -> Ledger:
    """Split each TTFT.

    Parameters
    ----------
    fixed, new, repeated
        Seconds of the constant part, and of prefill of new and of repeated tokens, per row.
    load
        Backlog in seconds of prefill work.
    shared
        Seconds that steps take which decode for others as well, per row.
    slots
        Whether waits are for others to end.
    """
    residual = rows.ttft - fixed - new - repeated
    known = np.isfinite(residual)
    backlog = or_zero(load.backlog)
    decoding = or_zero(load.decoding)
    shared = np.zeros(rows.n) if shared is None else shared
    held = slots is not None and slots.held
    per_backlog, per_decoding = _waiting_costs(residual - shared, backlog, decoding, known)
    spare = np.clip(or_zero(residual), 0.0, None)
    # Nobody waits longer than the work ahead takes, unless decoding slows that work down; with
    # several servers behind one name most wait for nothing and a few for all of it.
    most = 0.0 if per_backlog is None else max(SLACK * min(per_backlog, MOST_PER_BACKLOG), 1.0)
    # Where a slot is what is waited for, the work ahead takes no longer than it takes.
    behind = np.minimum(spare, min(most, 1.0) * backlog if held else most * backlog)
    if slots is not None and held and behind[slots.full].sum() < AHEAD * spare[slots.full].sum():
        # Prefill that is done while all slots are taken holds nobody up: not it is waited for.
        behind = np.where(slots.full, 0.0, behind)
    spare = spare - behind
    steps = np.minimum(spare, shared)
    spare = spare - steps
    taken = np.minimum(spare, SLACK * (per_decoding or 0.0) * decoding)
    spare = spare - taken
    logged = np.clip(or_zero(rows.queue) - behind - taken, 0.0, None)
    told = np.minimum(spare, logged)
    spare = spare - told
    crowded = _crowding(spare, load, known)
    spare = spare - crowded
    other = steps + taken + told + crowded
    if slots is not None and held:
        # Whoever found all slots taken waited for one; nothing else is left to wait for.
        other = other + np.where(slots.full, spare, 0.0)
    some = thin(rows.n)
    follows_decoding, follows_waiting, follows_backlog, follows_running = all_follow(
        (column[some] for column in (load.decoding, load.waiting, load.backlog, load.running)),
        residual[some],
    )
    ahead = (follows_decoding or 0.0) - (follows_waiting or 0.0)
    by_chance = slots is not None and slots.by_chance
    if ahead > 0.1 and (follows_decoding or 0.0) > 0.6:
        by_chance = False  # no slots, but something that goes with those who decode
    laid = _decoding(steps, taken, told, crowded, behind, by_chance)
    decoded = other if held else steps + laid
    if not held and not laid.any():
        # Prompts that share batches wait for each other, though not in the order in which they
        # came: what goes with the crowd is a wait for the work ahead, where there is any.
        most_ahead = SLACK * MOST_PER_BACKLOG * backlog
        shared_ahead = np.minimum(crowded, np.clip(most_ahead - behind, 0.0, None))
        behind, other = behind + shared_ahead, other - shared_ahead
    inside = inside_of(rows)
    by_line = new + repeated
    own = within_prefill(rows, by_line)
    if own is not by_line:
        part = np.divide(own, by_line, out=np.ones(rows.n), where=by_line > 0)
        new, repeated = new * part, repeated * part
    spare_inside = np.clip(OFF * inside + OFF_S - own, 0.0, None)
    outside = np.clip(behind - np.where(np.isfinite(spare_inside), spare_inside, np.inf), 0.0, None)
    behind, other = behind - outside, other + outside
    again = np.divide(
        or_zero(load.backlog_repeated), backlog, out=np.zeros(rows.n), where=backlog > 0
    )
    again = np.clip(again, 0.0, 1.0)
    values = {
        "fixed": fixed,
        "queue_behind_repeated": behind * again,
        "queue_behind_new": behind * (1 - again),
        "queue_other": other,
        "prefill_repeated": repeated,
        "prefill_new": new,
    }
    unknown = np.flatnonzero(~known)

    def masked(value: Array) -> Array:
        if not len(unknown):
            return value  # no array is written to, and so it need not be a copy
        out = value.copy()
        out[unknown] = np.nan
        return out

    accounts = {name: masked(value) for name, value in values.items()}
    accounts["unexplained"] = rows.ttft - sum(accounts.values())
    return Ledger(
        accounts=accounts,
        decoding=masked(decoded),
        steps=masked(steps),
        residual=residual,
        inside=inside,
        per_backlog=per_backlog,
        per_decoding=per_decoding,
        follows_backlog=follows_backlog,
        follows_decoding=follows_decoding,
        follows_running=follows_running,
    )


def told_prefill(rows: Rows) -> NDArray[np.bool_]:
    """Rows whose prefill time the server tells; none where that number follows no tokens."""
    told = rows.measured & np.isfinite(rows.uncached) & (or_zero(rows.prefill) > 0)
    none = np.zeros(rows.n, dtype=bool)
    if told.sum() < max(FEWEST_KNOWN, KNOWN * rows.measured.sum()):
        return none
    some = np.flatnonzero(told)
    some = some[thin(len(some))]
    rank = follows(rows.uncached[some], rows.prefill[some])
    return told if rank is not None and rank >= FOLLOW else none


def within_prefill(rows: Rows, own: Array) -> Array:
    """Seconds of prefill by the line, but no more than the server itself says prefill took.

    The line is fitted to TTFT, and so has all that grows with the prompt: also what is tokenised,
    moved to another server or waited for outside. What the server tells of most rows corrects the
    others in proportion.
    """
    told = told_prefill(rows) & np.isfinite(own)
    by_line, by_server = float(own[told].sum()), float(rows.prefill[told].sum())
    if by_line <= MORE * by_server:
        return own
    rest = own * (by_server / by_line)
    return np.where(told, np.minimum(own, or_zero(rows.prefill)), rest)


def inside_of(rows: Rows) -> Array:
    """Seconds that a request was in the engine before its first token, by the engine's own times.

    NaN where its queue or prefill is not told. A queue that is always 0 is not counted.
    """
    told = told_prefill(rows) & np.isfinite(rows.queue)
    known = told.sum() >= max(FEWEST_KNOWN, KNOWN * rows.measured.sum())
    if not known or float((rows.queue[told] > 0).mean()) < 0.1:
        return np.full(rows.n, np.nan)
    return np.where(told, rows.queue + rows.prefill + or_zero(rows.load), np.nan)


def _decoding(
    steps: Array, taken: Array, told: Array, crowded: Array, behind: Array, by_chance: bool
) -> Array:
    """The part of the wait that goes with others in flight which is laid to their decoding.

    Where a good part of it is steps that decode for others, and prefill ahead takes little, more
    such steps are what fills the rest. Otherwise a count of requests is no proof: it also grows
    with every queue, and first tokens that come whatever requests end wait for no slot.
    """
    rest = taken + told + crowded
    stepped, ahead = float(steps.sum()), float(behind.sum())
    whole = stepped + float(rest.sum())
    if stepped >= STEPS_FROM * whole and ahead < STEPS_FROM * whole:
        return rest
    return np.zeros(len(steps)) if by_chance else taken


def _crowding(spare: Array, load: Load, known: NDArray[np.bool_]) -> Array:
    """What is left of the TTFT and follows the requests in flight, beyond their prefill.

    Slots, steps shared with decoding, or work the cost line does not see. Only where requests
    that find the server empty are well explained, and the rest clearly follows the crowd.
    """
    none = np.zeros(len(spare))
    some = np.flatnonzero(known)
    some = some[thin(len(some))]
    best: tuple[float, Array] | None = None
    for count in (or_zero(load.waiting), or_zero(load.running)):
        crowd, alone = known & (count > 0), known & (count == 0)
        if crowd.sum() < 8 or alone.sum() < 3:
            continue
        rank = follows(count[some], spare[some])
        if rank is None or rank < 0.5:
            continue
        level, high = median(spare[alone]), float(np.mean(spare[crowd]))
        if high < 3 * max(level, 0.02):
            continue
        if best is None or rank > best[0]:
            best = rank, count
    if best is None:
        return none
    count = best[1]
    crowd = known & (count > 0)
    each = float(spare[crowd].sum() / count[crowd].sum())
    return np.where(crowd, np.minimum(spare, 2 * SLACK * each * count), 0.0)


def parts(line: Prefill, uncached: Array, context: Array, again: Array) -> tuple[Array, Array]:
    """Seconds of new and of repeated prefill of each row under one line; arguments in tokens.

    Repeated is what the prefill would have saved had the repeated tokens been cached.
    """
    total = line.work(uncached, context)
    fewer = line.work(uncached - again, context + again)
    repeated = np.clip(total - fewer, 0.0, None)
    return total - repeated, repeated


def _waiting_costs(
    residual: Array, backlog: Array, decoding: Array, known: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    """Seconds waited per second of prefill ahead, and per request decoding."""
    loaded = known & ((backlog > 0) | (decoding > 0))
    if loaded.sum() < 4:
        return None, None
    index = np.flatnonzero(loaded)
    if len(index) > 5000:
        index = np.sort(np.random.default_rng(11).choice(index, 5000, replace=False))
    r, b, d = residual[index], backlog[index], decoding[index]
    behind = b > 0
    per_backlog = None
    if behind.sum() >= 3:
        ratio = float(np.clip(r[behind], 0, None).sum() / b[behind].sum())
        rank = follows(b, r)
        if len(index) < 8 or (rank is not None and rank > 0.15):
            per_backlog = ratio
    left = r - min(per_backlog or 0.0, MOST_PER_BACKLOG) * b
    per_decoding = None
    rank = follows(d, left)
    if d.max() >= 2 and rank is not None and rank > 0.25:
        per_decoding = float(quantile_fit(d[:, None], left, tau=0.5).coef[0])
    return per_backlog, per_decoding


@dataclass(frozen=True)
class Groups:
    """Masks of the groups that are set beside each other; a missing one is not in the log."""

    masks: dict[str, NDArray[np.bool_]]
    late_from: int | None
    peak: NDArray[np.bool_] | None


def groups_of(rows: Rows) -> Groups:
    """All, early and late turns, off-peak and peak."""
    masks = {"all": rows.measured}
    turn = np.where(rows.measured, rows.turn, np.nan)
    late_from = None
    several = turn[np.isfinite(turn)]
    if len(several) and np.ptp(several) >= 1 and rows.session_grade != "none":
        late_from = int(max(2, np.ceil(quantile(several, 0.75))))
        early, late = turn <= 1, turn >= late_from
        if early.sum() >= 1 and late.sum() >= 1:
            masks["early_turns"], masks["late_turns"] = early, late
        else:
            late_from = None
    peak = _peak(rows)
    if peak is not None:
        masks["off_peak"], masks["peak"] = rows.measured & ~peak, rows.measured & peak
    return Groups(masks, late_from, peak)


def bin_width(rows: Rows) -> float | None:
    """Width in seconds of the time bins in which load is looked at: an hour, or less."""
    known = np.isfinite(rows.start)
    if known.sum() < 20:
        return None
    span = float(np.ptp(rows.start[known]))
    if span <= 60:
        return None
    for width in (3600.0, 1800.0, 900.0, 600.0, 300.0, 120.0, 60.0, 30.0, 10.0, 5.0):
        if span / width >= 4:
            return width
    return None


def _peak(rows: Rows) -> NDArray[np.bool_] | None:
    """Rows that arrived in the busy bins, where some bins are clearly busier than others."""
    width = bin_width(rows)
    if width is None:
        return None
    offset = 0.0
    if rows.epoch_us is not None:
        offset = (rows.epoch_us / 1e6) % width
    bins = np.floor((or_zero(rows.start) + offset) / width).astype(np.int64)
    unique, coded, counts = np.unique(bins, return_inverse=True, return_counts=True)
    if len(unique) < 3:
        return None
    # A bin cut short by the start or end of the log has few rows for another reason.
    levels = two_levels(counts[1:-1].astype(float) if len(unique) > 4 else counts.astype(float))
    if levels is None:
        return None
    threshold, low, high = levels
    # Bins well above the usual level belong to the peak, though it may have a higher crest.
    usual = float(np.median(counts[counts <= threshold]))
    busy = (counts > min(threshold, 1.5 * usual))[coded] & np.isfinite(rows.start)
    both = (busy & rows.measured).sum(), (~busy & rows.measured).sum()
    if high < 1.6 * max(low, 1.0) or min(both) < 15:
        return None
    return busy


def summarise(rows: Rows, ledger: Ledger, groups: Groups) -> tuple[LedgerRow, ...]:
    """Mean of each account in each group; the means add up to the mean TTFT of the same rows."""
    out = []
    at = where(np.isfinite(ledger.accounts["unexplained"]))
    figures = np.stack([rows.ttft[at], *(ledger.accounts[a][at] for a in ACCOUNTS)])
    for name, mask in groups.masks.items():
        used = mask[at]
        n = int(used.sum())
        if n == 0:
            continue
        mean, *means = (float(v) for v in np.einsum("ij,j->i", figures, used.astype(float)) / n)
        out.append(LedgerRow(name, n, mean, dict(zip(ACCOUNTS, means, strict=True))))
    return tuple(out)
