"""Marks by which the causes are told apart: artefacts, reuse, cold starts, changes, retries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.evidence import (
    Artifact,
    Attempts,
    Change,
    Cold,
    Contrast,
    ReusePattern,
    Rhythm,
    Scoped,
    Switched,
    Timer,
)
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.load import Load, by_server
from ttftdoctor.measure.onset import onset_of
from ttftdoctor.measure.outages import outage_of
from ttftdoctor.measure.rows import Index, Rows, Scope
from ttftdoctor.measure.stamps import early_of, held_of
from ttftdoctor.stats import (
    MOST_ROWS,
    Array,
    auc,
    in_order,
    median,
    or_zero,
    quantile,
    quantile_fit,
    rank,
    rank_correlation,
    thin,
    where,
)

Mask = NDArray[np.bool_]

#: A first token in the last 3 % of the request came with the last one.
EQUAL = 0.97
#: Idle times tried as the start of "cold", seconds.
IDLE_STEPS = (30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0)
#: Lifetimes tried for expiry, seconds; providers use five minutes and an hour.
EXPIRY_STEPS = (60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
#: A later turn must be able to reuse this many tokens to say something about the cache.
REUSABLE = 128
#: Rows whose hits and misses are looked at; of more, those of some sessions are.
PATTERN_ROWS = 50_000
#: Rows of one group that are compared with those of another; of more, a sample is.
CONTRAST_ROWS = 10_000


def artifact_of(rows: Rows, aside: dict[str, int], unit_mixed: str | None) -> Artifact:
    """Look for signs that the logged number is not a time to first token.

    Parameters
    ----------
    aside
        Rows with a logged TTFT that was set aside on reading, by reason.
    unit_mixed
        A sentence, if two unlabelled columns were found to need different units.
    """
    logged = np.isfinite(rows.ttft_logged)
    n = int(logged.sum())
    if n == 0:
        return Artifact(unit_mixed=unit_mixed)
    both = logged & np.isfinite(rows.e2e) & (rows.e2e > 0) & ~(rows.outputs <= 4)
    equal = both & (rows.ttft_logged >= EQUAL * rows.e2e) & (rows.ttft_logged <= 1.03 * rows.e2e)
    late = both & (rows.ttft_logged > 1.03 * rows.e2e)
    constant_share, constant = 0.0, None
    if n >= 10:
        some = np.flatnonzero(logged)
        some = some[thin(n)]
        values, counts = np.unique(np.round(rows.ttft_logged[some], 5), return_counts=True)
        lengths = rows.inputs[some]
        varied = len(np.unique(lengths[np.isfinite(lengths)])) > 3
        if varied or n >= 20:
            constant_share = float(counts.max() / len(some))
            constant = float(values[counts.argmax()])
        spread = np.ptp(np.quantile(rows.ttft_logged[some], [0.05, 0.95]))
        level = median(rows.ttft_logged[some])
        # A simulator or a timer answers within a per cent whatever the length.
        wide = varied and _spread(lengths) > 1.5
        if wide and spread < 0.004 * level:
            constant_share, constant = 0.95, level
    thinking, per_token, basis = _thinking(rows)
    if unit_mixed is None:
        unit_mixed = _two_units(rows.ttft_logged[logged])
    factor = None
    if late.any():
        factor = median(rows.ttft_logged[late] / rows.e2e[late])
    return Artifact(
        n=n,
        equal_share=float(equal.sum() / max(both.sum(), 1)) if both.sum() >= 5 else 0.0,
        not_streamed_share=aside.get("not_streamed", 0) / n if n else 0.0,
        after_share=float(late.sum() / max(both.sum(), 1)) if both.sum() >= 5 else 0.0,
        after_factor=factor,
        constant_share=constant_share,
        constant_s=constant,
        unit_mixed=unit_mixed,
        thinking_share=thinking,
        thinking_ms_per_token=per_token,
        thinking_basis=basis,
        held=held_of(rows),
        early=early_of(rows),
        ttft_logged_p50_s=median(rows.ttft_logged[logged]),
        e2e_p50_s=median(rows.e2e[both]) if both.any() else None,
    )


def _two_units(ttft: Array) -> str | None:
    """Whether some TTFTs are in a unit 1,000 times as large as that of the rest; a sentence then.

    The logarithms fall into two heaps three decades apart with nothing in between, and the lower
    one is shorter than the way to any server and back.
    """
    values = ttft[ttft > 0]
    if len(values) < 20:
        return None
    decades = np.sort(np.log10(values[thin(len(values))]))
    n = len(decades)
    first = max(1, n // 50)
    gaps = np.diff(decades)[first - 1 : n - first]
    cut = first + int(np.argmax(gaps))
    low, high = decades[:cut], decades[cut:]
    apart = median(high) - median(low)
    if gaps.max() < 0.5 or not 2.4 <= apart <= 3.6 or np.quantile(low, 0.9) > np.log10(0.003):
        return None
    return tr(
        "{part} % of the TTFTs are about 1,000 times smaller than the rest ({low} ms against "
        "{high} ms): they are in another unit",
        part=format(100 * len(low) / n, ".0f"), low=format(10 ** median(low) * 1e3, ".2g"),
        high=format(10 ** median(high) * 1e3, ".3g"),
    )  # fmt: skip


def _spread(values: Array) -> float:
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return 1.0
    low, high = quantile(known, 0.1), quantile(known, 0.9)
    return float(high / max(low, 1.0))


def _thinking(rows: Rows) -> tuple[float, float | None, str]:
    """Part of the mean TTFT that grows with tokens made *before* the first visible one."""
    base = rows.measured & np.isfinite(rows.outputs)
    if np.isfinite(rows.reasoning).sum() >= 8:
        hidden, basis = rows.reasoning, mark("reasoning tokens")
    else:
        hidden, basis = rows.outputs, mark("output tokens")
    known = base & np.isfinite(hidden) & np.isfinite(rows.inputs)
    if known.sum() < 10 or np.ptp(hidden[known]) < 50:
        return 0.0, None, basis
    y, h, u = rows.ttft[known], hidden[known], rows.uncached[known] / 1e3
    rank = rank_correlation(h, y)
    if rank is None or rank < 0.6:
        return 0.0, None, basis
    scale = y + median(y)
    fit = quantile_fit(np.column_stack([np.ones(len(y)), u, h / 1e3]), y, tau=0.5, scale=scale)
    slope = float(fit.coef[2]) / 1e3
    explained = slope * float(h.mean()) / float(y.mean())
    close = median(np.abs(fit.residual) / scale) < 0.15
    if not close or explained < 0.2:
        return 0.0, None, basis
    if basis == "output tokens":
        # Long answers to long prompts correlate too: the slope must look like a decode rate,
        # and the time after the first token must not grow with the output in turn.
        rest = rows.e2e[known] - y
        after = np.isfinite(rest)
        follows = rank_correlation(h[after], rest[after]) if after.sum() >= 8 else None
        inputs = rank_correlation(u, y)
        if follows is None or follows > 0.5 or (inputs is not None and inputs > rank - 0.1):
            return 0.0, None, basis
    return explained, slope * 1e3, basis


def reuse_pattern(rows: Rows, reset: Mask | None = None) -> ReusePattern | None:
    """How turns that could have reused a prefix were served; None if there are none.

    Turns that missed because all caches were emptied at once (``reset``) are left out. Of a huge
    log, only every so manieth session is looked at, so that about ``PATTERN_ROWS`` rows remain.
    """
    repeated = or_zero(rows.repeated)
    cached = rows.cached
    could = (repeated >= REUSABLE) & np.isfinite(cached) & np.isfinite(rows.inputs)
    if rows.reuse_grade != "content":
        # Of a linked log, turns without a number continue somebody, though not a certain one.
        lone = rows.session_grade == "linked"
        could &= np.isfinite(rows.previous_input) | (lone & ~np.isfinite(rows.turn))
    if reset is not None:
        could &= ~reset
    n = int(could.sum())
    chosen = np.ones(rows.n, dtype=bool)
    every = n // PATTERN_ROWS
    if every > 1:
        some = np.where(rows.session >= 0, rows.session, np.arange(rows.n)) % every == 0
        if (could & some).sum() >= PATTERN_ROWS // 4:  # not where few sessions are most of the log
            could, chosen = could & some, some
    at = np.flatnonzero(could)
    if len(at) < 3:
        return None
    first = np.isfinite(cached) & np.isfinite(rows.inputs) & (rows.turn == 1)
    first_turn_cached, first_turn_input = cached[first].sum(), rows.inputs[first].sum()
    cached, repeated, inputs = cached[at], repeated[at], rows.inputs[at]
    # What every prompt shares (a system prompt) may stay cached when the history is gone.
    base = _shared_base(cached, repeated)
    telling = repeated - base >= REUSABLE  # others have too little beyond it to be asked
    if 3 <= telling.sum() < len(at):
        at, cached, repeated, inputs = (
            at[telling],
            cached[telling],
            repeated[telling],
            inputs[telling],
        )
    kept = np.clip((cached - base) / np.maximum(repeated - base, 1.0), 0.0, None)
    hit, miss = kept >= 0.5, kept < 0.2
    stuck_at, stuck_share = _stuck(cached, repeated, inputs)
    stuck_sessions, mixed_sessions = _within_sessions(
        rows.session[at], cached, inputs, repeated, kept
    )
    gap = rows.gap[at]
    between = _between(rows, chosen)[at]
    written = rows.written[at]
    write_share = None
    if np.isfinite(written).sum() >= 0.5 * len(at) and inputs.sum() > 0:
        write_share = float(np.nansum(written) / inputs.sum())
    expiry = _expiry(gap, miss)
    # An input that no longer grows although something was said has lost its oldest part.
    trimmed = inputs < rows.previous_input[at] + 0.5 * rows.previous_output[at]
    moved = rows.moved[at]
    changed, stayed = moved == 1, moved == 0
    known_gap = np.isfinite(gap)
    return ReusePattern(
        n=n,
        hit_share=float(hit.mean()),
        miss_share=float(miss.mean()),
        partial_share=float((~hit & ~miss).mean()),
        cached_share=float((np.clip(cached / repeated, 0, 1) * repeated).sum() / repeated.sum()),
        stuck_at=stuck_at,
        stuck_share=stuck_share,
        stuck_sessions=stuck_sessions,
        trimmed_misses=float(trimmed[miss].mean()) if miss.any() else 0.0,
        trimmed_hits=float(trimmed[hit].mean()) if hit.any() else 0.0,
        mixed_sessions=mixed_sessions,
        write_share=write_share,
        gap_p50_s=median(gap[known_gap]) if known_gap.any() else None,
        gap_auc=_auc(gap, miss, hit),
        expiry_s=expiry[0] if expiry else None,
        miss_after_expiry=expiry[1] if expiry else None,
        miss_before_expiry=expiry[2] if expiry else None,
        between_auc=_auc(between, miss, hit),
        between_p50=float(np.nanmedian(between)) if np.isfinite(between).any() else None,
        miss_when_moved=float(miss[changed].mean()) if changed.sum() >= 3 else None,
        miss_when_stayed=float(miss[stayed].mean()) if stayed.sum() >= 3 else None,
        moved_share=float(changed.mean()) if np.isfinite(moved).any() else None,
        basis=rows.cached_basis,
        basis_sure=rows.cached_sure,
        ever_hit=bool(hit.any()),
        broken_share=_broken(rows.broken[at], miss),
        rhythm=_rhythm(rows, at, np.flatnonzero(chosen)),
        switched=_switched(rows, at, hit, between),
        first_turn_cached_share=float(first_turn_cached / max(first_turn_input, 1.0)),
    )


def _broken(broken: Array, miss: Mask) -> float | None:
    known = miss & np.isfinite(broken)
    return float(broken[known].mean()) if known.sum() >= 3 else None


#: Periods of stamps that people put into prompts, seconds.
CLOCKS = (60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 86400.0)
#: Misses keep time when this part of misses and hits, on average, falls into step.
IN_STEP = 0.93


def _rhythm(rows: Rows, at: Index, some: Index) -> Rhythm | None:
    """Whether just those turns miss between which and the last a clock ticked or a count was full.

    A prompt that holds the minute or the day changes at the tick; one whose summary or memory is
    rewritten every so manieth turn changes with that turn. Neither cares for pauses or traffic,
    so a rhythm must tell hits from misses better than any pause does. ``some`` are all rows of the
    sessions looked at.
    """
    cached, repeated = rows.cached[at], rows.repeated[at]
    short = cached < 0.8 * repeated
    if rows.session_grade == "none" or not short.any():
        return None
    # What all prompts share up to the change stays cached: turns with little more say nothing.
    places, counts = np.unique(np.round(cached[short] / 16), return_counts=True)
    telling = repeated - 16 * float(places[counts.argmax()]) >= 2 * REUSABLE
    at, miss = at[telling], short[telling]
    hit = ~miss
    if miss.sum() < 5 or hit.sum() < 5:
        return None

    def told(flags: Mask) -> float:
        return 0.5 * float(flags[miss].mean() + (~flags)[hit].mean())

    best: Rhythm | None = None
    if rows.epoch_us is not None:
        # A turn is stamped when it is sent.
        order = some[np.lexsort((rows.start[some], rows.session[some]))]
        same = rows.session[order[1:]] == rows.session[order[:-1]]
        before = np.full(rows.n, np.nan)
        before[order[1:][same]] = rows.start[order[:-1][same]]
        known = np.isfinite(before[at])
        if known.mean() >= 0.9:
            now = rows.epoch_us / 1e6 + rows.start[at]
            then = rows.epoch_us / 1e6 + np.where(known, before[at], rows.start[at])
            for period in CLOCKS:
                score = told(np.floor(now / period) != np.floor(then / period))
                if best is None or score > best.told:
                    best = Rhythm("clock", period, score)
    turn = rows.turn[at]
    if np.isfinite(turn).all():
        number = turn.astype(np.int64)
        for period in range(2, 7):
            for place in range(period):
                score = told(number % period == place)
                if best is None or score > best.told:
                    best = Rhythm("turns", float(period), score)
    if best is None or best.told < IN_STEP:
        return None
    gap = rows.gap[at]
    pauses = np.quantile(gap[np.isfinite(gap)], np.linspace(0.02, 0.98, 49))
    return best if best.told >= 0.03 + max(told(gap > pause) for pause in pauses) else None


def _switched(rows: Rows, at: Index, hit: Mask, between: Array) -> Switched | None:
    """Whether the cache stopped or began to work at one moment, by the turns ``at``."""
    if not rows.order_known or not rows.one_clock:
        return None
    # Prompts under the least length that is cached, or over a window, may miss all together.
    others = rows.gap[at], between, rows.inputs[at], rows.turn[at]
    start, found = rows.start[at], rows.cached[at] > 0
    known = np.isfinite(start)
    if not known.all():
        return None
    onset = onset_of(start, rows.gap[at], hit, found, rows.session[at], others)
    if onset is None:
        return None
    # A counter that is no longer filled makes nothing slower.
    ttft, measured = rows.ttft[at], rows.measured[at]
    slower = auc(ttft[onset.idle & measured], ttft[onset.working & measured])
    if slower is None or slower < 0.6:
        return None
    written = rows.written[at][onset.idle]
    writes = None
    if np.isfinite(written).mean() >= 0.5:
        writes = float(np.nansum(written) / max(float(rows.inputs[at][onset.idle].sum()), 1.0))
    row = int(at[onset.first])
    order = np.argsort(start, kind="stable")
    return Switched(
        lost=onset.lost, at=moment(rows, row), row=int(rows.line[row]),
        n_working=int(onset.working.sum()), n_idle=int(onset.idle.sum()),
        hits_working=float(hit[onset.working].mean()), hits_idle=float(hit[onset.idle].mean()),
        write_share=writes,
        version=_version(rows, at[order], int((start < rows.start[row]).sum()) - 1),
    )  # fmt: skip


def _auc(values: Array, miss: Mask, hit: Mask) -> float | None:
    known = np.isfinite(values)
    a, b = values[known & miss], values[known & hit]
    if len(a) < 3 or len(b) < 3:
        return None
    return auc(a, b)


def _shared_base(cached: Array, repeated: Array) -> float:
    """Cached tokens that even cold turns get: the level at which missing turns end up."""
    low = cached[cached < 0.7 * repeated]
    if len(low) < 5:
        return 0.0
    rounded = np.round(low / 16) * 16
    unique, counts = np.unique(rounded, return_counts=True)
    top = counts.argmax()
    sure = counts[top] >= 0.6 * len(low) and unique[top] > 0 and len(low) < 0.8 * len(cached)
    return float(unique[top]) if sure else 0.0


def _stuck(cached: Array, repeated: Array, inputs: Array) -> tuple[float | None, float]:
    """Cached tokens that stay put while prompts grow: the place where prompts change."""
    short = cached < 0.85 * repeated
    if not short.any():
        return None, 0.0
    rounded = np.round(cached[short])
    unique, counts = np.unique(rounded, return_counts=True)
    at = float(unique[counts.argmax()])
    near = short & (np.abs(cached - at) <= max(16.0, 0.01 * at))
    varied = float(np.ptp(inputs[near])) > 0.05 * float(inputs.mean())
    share = float(near.mean()) if varied or near.sum() >= 5 else 0.0
    return at, share


def _within_sessions(
    session: Index, cached: Array, inputs: Array, repeated: Array, kept: Array
) -> tuple[float, float]:
    """Sessions that never reuse past one place, and sessions that hit and miss by turns.

    The place at which a prompt changes may differ from session to session, and a system prompt
    that all share may hide it; what tells is whether the *same* conversation ever gets deeper.
    """
    lost = np.clip(repeated - cached, 0.0, None)
    named = session >= 0
    if named.sum() < 3:
        return 0.0, 0.0
    code = session[named]
    size = int(code.max()) + 1
    cached, inputs, lost, part = cached[named], inputs[named], lost[named], kept[named]
    turns = np.bincount(code, minlength=size)
    top = np.full(size, -np.inf)
    low, long, short = np.full(size, np.inf), np.full(size, -np.inf), np.full(size, np.inf)
    np.maximum.at(top, code, cached)
    np.minimum.at(low, code, cached)
    np.maximum.at(long, code, inputs)
    np.minimum.at(short, code, inputs)
    deep = np.bincount(code, weights=part >= 0.5, minlength=size)
    missed = np.bincount(code, weights=part < 0.2, minlength=size)
    several = turns >= 2
    grown = long - short > np.maximum(64.0, 2 * (top - low))
    # A conversation that never finds anything changes at no place: its cache may be gone.
    stuck = several & grown & (top > 0) & (top - low <= np.maximum(32.0, 0.02 * top))
    tokens = np.bincount(code, weights=lost, minlength=size)
    mixed = several & ~stuck & (deep > 0) & (missed > 0)
    return (
        float(tokens[stuck].sum() / max(tokens.sum(), 1.0)),
        float(mixed.sum() / max(int(several.sum()), 1)),
    )


def _expiry(gap: Array, miss: Mask) -> tuple[float, float, float] | None:
    """The gap that best parts hits from misses: gap, miss share after it and before it."""
    known = np.isfinite(gap)
    g, m = gap[known], miss[known]
    if len(g) < 8 or m.sum() < 2 or (~m).sum() < 2:
        return None
    best: tuple[float, float, float, float] | None = None
    after, missed = _at_least(g, EXPIRY_STEPS), _at_least(g[m], EXPIRY_STEPS)
    for step, n, bad in zip(EXPIRY_STEPS, after, missed, strict=True):
        if n < 2 or len(g) - n < 2:
            continue
        high, low = float(bad / n), float((m.sum() - bad) / (len(g) - n))
        if best is None or high - low > best[0] + 0.02:
            best = (high - low, step, high, low)
    if best is None or best[0] < 0.3:
        return None
    return best[1], best[2], best[3]


def _at_least(values: Array, steps: tuple[float, ...]) -> Index:
    """How many values reach each of the rising steps."""
    reached = np.searchsorted(steps, values, side="right")
    counts = np.bincount(reached, minlength=len(steps) + 1)
    return counts[::-1].cumsum()[-2::-1]


def _between(rows: Rows, chosen: Mask) -> Array:
    """Input tokens other sessions sent to the same server since this session's last request.

    Worked out for the chosen rows, which must be whole sessions.
    """
    out = np.full(rows.n, np.nan)
    if not rows.order_known:
        return out
    for at in by_server(rows, np.ones(rows.n, dtype=bool)):
        total = np.concatenate([[0.0], np.cumsum(or_zero(rows.inputs[at]))])
        place = np.flatnonzero(chosen[at])
        session = rows.session[at[place]]
        order = np.argsort(session * len(at) + place)
        ordered, place = session[order], place[order]
        same = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
        now, before = place[1:][same], place[:-1][same]
        out[at[now]] = total[now] - total[before + 1]
    return out


def cold_of(
    rows: Rows, ledger: Ledger, load: Load, predicted: Array, reset: Mask
) -> tuple[Cold | None, Array]:
    """Slow requests after a silence or another model, at the head of the log, or with a load time.

    Returns the signs and the seconds laid to it per row (zeros without any).
    """
    left = ledger.accounts["unexplained"]
    none = np.zeros(rows.n)
    known = np.isfinite(left)
    n = int(known.sum())
    if np.isfinite(rows.load).sum() >= 3:
        found = _loading(rows, load, known)
        if found is not None:
            return found
    if n < 6 or not rows.order_known:
        return None, none
    every = where(known)
    warm = median(rows.ttft[every])
    outage = outage_of(rows, ledger, predicted, reset, _slow_and_empty(rows, predicted))
    if outage is not None:
        return outage
    spread = 1.4826 * median(np.abs(left[every] - median(left[every])))
    slow = known & (left > np.maximum.reduce([0.6 * predicted, np.full(rows.n, 5 * spread),
                                              np.full(rows.n, 0.25)]))  # fmt: skip
    turns = _turns(rows, left, predicted, known)
    if not slow.any() and turns is None:
        return None, none
    best: tuple[float, float] | None = None
    counted = known & np.isfinite(load.waiting)
    all_slow = max(int(slow.sum()), 1)
    reached = _at_least(load.idle[counted], IDLE_STEPS)
    reached_slow = _at_least(load.idle[counted & slow], IDLE_STEPS)
    for step, after, both in zip(IDLE_STEPS, reached, reached_slow, strict=True):
        if after < 2 or after > 0.6 * n:
            continue
        true = float(both / all_slow)
        false = float((after - both) / max(n - all_slow, 1))
        if both / after >= 0.5 and (best is None or true - false > best[0] + 0.01):
            best = true - false, step
    if turns is not None and (best is None or turns[0] > best[0] + 0.05):
        cold, seconds = _cold("swap", rows, turns[1], left, known, warm, None, turns[0])
        return replace(cold, why="swap"), seconds
    if best is not None and best[0] >= 0.5:
        rows_cold = slow & (load.idle >= best[1])
        if rows_cold.sum() >= 2:
            return _cold("idle", rows, rows_cold, left, known, warm, best[1], best[0])
    return _head(rows, slow, left, known, warm)


def resets_of(rows: Rows, ledger: Ledger, predicted: Array) -> Mask:
    """Turns that missed because every cache was emptied at once: the server was started anew.

    A moment is such a reset if nearly all sessions whose turns lie on either side of it miss at
    their next turn, in a log where turns otherwise hit, and a slow request or a silence marks it.
    """
    none = np.zeros(rows.n, dtype=bool)
    repeated = or_zero(rows.repeated)
    could = (repeated >= REUSABLE) & np.isfinite(rows.cached) & np.isfinite(rows.gap)
    if could.sum() < 12 or not rows.order_known:
        return none
    miss = rows.cached < 0.2 * repeated
    usual = float(miss[could].mean())
    if not 0 < usual <= 0.4:
        return none
    at = np.flatnonzero(could)
    begin, end, lost = rows.start[at] - rows.gap[at], rows.start[at], miss[at]
    spans = begin, end
    # The misses themselves bound the moment: it lies just before the first of them.
    moments = np.sort(end[lost])[:400] - 1e-6
    total = float(lost.sum())
    at, begin, end = at[lost], begin[lost], end[lost]
    across, across_lost = _across(*spans, moments), _across(begin, end, moments)
    found = np.zeros(len(at), dtype=bool)
    for moment in moments[(across >= 3) & (across_lost >= 0.8 * across)]:
        found |= (begin < moment) & (end >= moment)
    if found.sum() < 3 or found.sum() < 0.5 * total:
        return none
    none[at[found]] = True
    return none


def _across(begin: Array, end: Array, moments: Array) -> NDArray[np.int64]:
    """How many spans hold each moment: they have begun before it and end at it or later.

    The moments are rising.
    """
    if not len(moments):
        return np.zeros(0, dtype=np.int64)
    # Spans that end before all moments, or begin after them, hold none.
    real = np.flatnonzero((begin < end) & (end >= moments[0]) & (begin < moments[-1]))
    begun, ended = (
        np.bincount(np.searchsorted(moments, edge[real], side="right"), minlength=len(moments) + 1)
        for edge in (begin, end)
    )
    return np.cumsum(begun - ended)[:-1]


def _slow_and_empty(rows: Rows, predicted: Array) -> bool:
    """Whether the unexplained slow turns are just those that find their cache gone, as after a
    start of the server, in a log whose turns otherwise hit.
    """
    could = (or_zero(rows.repeated) >= REUSABLE) & np.isfinite(rows.cached)
    could &= rows.measured & np.isfinite(predicted)
    late = rows.ttft - predicted
    slow = could & (late > np.maximum(1.0, 1.5 * or_zero(predicted)))
    rest = could & ~slow
    if slow.sum() < 2 or rest.sum() < 10:
        return False
    miss = rows.cached < 0.2 * or_zero(rows.repeated)
    return bool(miss[slow].mean() >= 0.7 and miss[rest].mean() <= 0.15)


def _cold(
    kind: str, rows: Rows, cold: Mask, left: Array, known: Mask, warm: float,
    idle: float | None, separation: float,
) -> tuple[Cold, Array]:  # fmt: skip
    seconds = np.where(cold, np.clip(left, 0, None), 0.0)
    return Cold(
        kind=kind, n=int(cold.sum()), seconds=float(seconds[known].mean()),
        cold_p50_s=median(rows.ttft[cold]),
        warm_p50_s=median(rows.ttft[known & ~cold]) if (known & ~cold).any() else warm,
        idle_s=idle, separation=separation, worst_s=float(rows.ttft[cold].max()),
    ), seconds  # fmt: skip


def _head(
    rows: Rows, slow: Mask, left: Array, known: Mask, warm: float
) -> tuple[Cold | None, Array]:
    """The first requests of a server (or of the log) slow, and hardly any later one."""
    none = np.zeros(rows.n)
    cold = np.zeros(rows.n, dtype=bool)
    for at in by_server(rows, known):
        flags = slow[at][: max(1, len(at) // 5)]
        share = np.cumsum(flags) / np.arange(1, len(flags) + 1)
        runs = np.flatnonzero(flags & (share >= 0.8))
        if len(runs):
            cold[at[: runs[-1] + 1]] = True
    cold &= slow
    later = known & ~cold
    if not cold.any() or later.sum() < 5:
        return None, none
    stray = float((slow & later).sum() / later.sum())
    excess = median(left[cold])
    if stray > 0.05 or excess < max(1.0, 2 * warm):
        return None, none
    return _cold("start", rows, cold, left, known, warm, None, 1 - stray)


def _loading(rows: Rows, load: Load, known: Mask) -> tuple[Cold, Array] | None:
    took = or_zero(rows.load)
    loaded = rows.measured & (took > np.maximum(0.5, 0.3 * or_zero(rows.ttft)))
    if not loaded.any():
        return None
    seconds = np.where(loaded, took, 0.0)
    warm = rows.measured & ~loaded
    # Where every request loads the model, what is left of it is what it would take without.
    usual = rows.ttft[warm] if warm.any() else np.clip(rows.ttft[loaded] - took[loaded], 0, None)
    return Cold(
        kind="load", n=int(loaded.sum()), seconds=float(seconds[rows.measured].mean()),
        cold_p50_s=median(rows.ttft[loaded]),
        warm_p50_s=median(usual),
        idle_s=None, separation=1.0, worst_s=float(rows.ttft[loaded].max()),
        why=_why_loaded(rows, load, loaded, warm),
    ), seconds  # fmt: skip


#: So many slow changes of the model speak for models that take turns in memory.
SWAPS = 5


def _turns(rows: Rows, left: Array, predicted: Array, known: Mask) -> tuple[float, Mask] | None:
    """Slow requests for another model than the one before, and how well that tells the slow ones.

    What is slow is measured by those for the same model: changes may be half of the log.
    """
    other = _other_model(rows)
    swapped, stayed = known & (other == 1), known & (other == 0)
    if swapped.sum() < SWAPS or stayed.sum() < SWAPS:
        return None
    usual = left[stayed]
    spread = 1.4826 * median(np.abs(usual - median(usual)))
    slow = known & (left - median(usual) > np.maximum(0.6 * predicted, max(5 * spread, 0.25)))
    if (slow & swapped).sum() < SWAPS or slow[swapped].mean() < 0.7:
        return None
    told = float(swapped[slow].mean() - slow[stayed].mean())
    return (told, slow & swapped) if told >= 0.5 else None


#: A model is not given up for silence sooner than this, unless it is told to be, seconds.
SHORTEST_SILENCE_S = 60.0


def _why_loaded(rows: Rows, load: Load, loaded: Mask, warm: Mask) -> str:
    """Whether models take turns (``swap``), silence came before, or neither (``reload``)."""
    other = _other_model(rows)
    told = np.isfinite(other)
    if (told & loaded).sum() >= 3 and other[told & loaded].mean() >= 0.8:
        stayed = other[told & warm]
        if not len(stayed) or stayed.mean() <= 0.2:
            return "swap"
    idle = load.idle
    asked = np.isfinite(idle)  # infinite for the first request of all
    if not (asked & loaded).any():
        return ""
    before = idle[asked & loaded]
    kept = idle[asked & warm]
    apart = auc(before, kept) if len(kept) >= 3 else None
    if apart is not None and apart >= 0.75:
        return "silence"
    return "reload" if quantile(before, 0.25) < SHORTEST_SILENCE_S else "silence"


def _other_model(rows: Rows) -> Array:
    """1 where the request before at the machine asked for another model, 0 for the same one.

    Models are taken for servers of their own where no replica is named, but share a machine here.
    """
    out = np.full(rows.n, np.nan)
    scope, machine = rows.scopes.get("model"), rows.scopes.get("replica")
    if scope is None or len(scope.names) < 2 or not (rows.order_known and rows.one_clock):
        return out
    known = np.flatnonzero((scope.codes >= 0) & np.isfinite(rows.start))
    at = known  # the rows are in order of start
    if machine is not None:
        at = known[in_order(machine.codes[known])]
    before, now = at[:-1], at[1:]
    changed = (scope.codes[now] != scope.codes[before]).astype(np.float64)
    if machine is not None:
        changed[machine.codes[now] != machine.codes[before]] = np.nan
    out[now] = changed
    return out


def change_of(
    rows: Rows, ledger: Ledger, load: Load, predicted: Array
) -> tuple[Change | None, Array]:
    """A moment since which the same work costs more (Pettitt's rank test, 1979).

    The work a request waited for is taken out first; a change that goes with the load is no
    change of the service.
    """
    none = np.zeros(rows.n)
    if not rows.order_known or not rows.one_clock:
        return None, none
    # Steps that decode for others are part of what any request takes, and are foretold as such.
    net = rows.ttft - or_zero(ledger.wait - ledger.steps)
    known = np.isfinite(net) & np.isfinite(predicted) & (predicted > 0) & ~(rows.attempts > 1)
    every = np.flatnonzero(known)
    # Where a constant is most of TTFT, only long prefills show that their cost has changed.
    work = predicted - or_zero(ledger.accounts["fixed"])
    heavy = every[work[every] >= 0.6 * predicted[every]]
    for index in (every, heavy):
        x = net[index] / predicted[index]
        if len(index) > MOST_ROWS and _jump(x[thin(len(index))]) is None:
            continue  # of a huge log a sample decides whether there is anything to find
        jump = _jump(x) if len(index) >= 30 else None
        if jump is not None:
            break
    else:
        return None, none
    at, p, ratio = jump
    running = load.running[index]
    load_ratio = None
    if np.isfinite(running).all():
        low, high = running[: at + 1].mean(), running[at + 1 :].mean()
        load_ratio = float((high + 0.5) / (low + 0.5))
    row = int(index[at + 1])
    seconds = np.zeros(rows.n)
    late = every[every >= row]
    # More than nothing for each of them: it marks who came after.
    seconds[late] = np.clip(net[late] * (1 - 1 / ratio), 1e-9, None)
    whole = np.isfinite(ledger.accounts["unexplained"])
    return Change(
        at=moment(rows, row), row=int(rows.line[row]), ratio=ratio, p_value=p,
        before_p50_s=median(rows.ttft[every[every < row]]),
        after_p50_s=median(rows.ttft[late]),
        n_before=int((every < row).sum()), n_after=len(late), seconds=float(seconds[whole].mean()),
        version=_version(rows, index, at), load_ratio=load_ratio,
    ), seconds  # fmt: skip


def _jump(x: Array) -> tuple[int, float, float] | None:
    """The last value before a lasting rise, its p value and the ratio of the medians."""
    n = len(x)
    k = np.arange(1, n)
    u = 2 * np.cumsum(rank(x))[:-1] - k * (n + 1)
    at = int(np.argmax(np.abs(u)))
    p = float(min(1.0, 2 * np.exp(-6.0 * u[at] ** 2 / (float(n) ** 3 + float(n) ** 2))))
    before, after = x[: at + 1], x[at + 1 :]
    if min(len(before), len(after)) < max(10, 0.05 * n):
        return None
    low = max(median(before), 1e-9)
    ratio = median(after) / low
    lasting = median(after[-max(5, len(after) // 4) :]) / low
    steady = median(before[: max(5, len(before) // 4)]) / low
    if p > 1e-3 or ratio < 1.25 or lasting < 1 + 0.6 * (ratio - 1) or not 0.75 < steady < 1.3:
        return None
    return at, p, ratio


def _version(rows: Rows, index: NDArray[np.int64], at: int) -> str | None:
    scope = rows.scopes.get("version")
    if scope is None or len(scope.names) < 2:
        return None
    before, after = scope.codes[index[: at + 1]], scope.codes[index[at + 1 :]]
    old, new = int(np.bincount(before + 1).argmax()) - 1, int(np.bincount(after + 1).argmax()) - 1
    if old == new or old < 0 or new < 0:
        return None
    return tr("{old} to {new}", old=scope.names[old], new=scope.names[new])


def moment(rows: Rows, row: int) -> str | None:
    """When a row arrived, as ISO 8601 UTC, or seconds from the start of a relative clock."""
    if not np.isfinite(rows.start[row]):
        return None
    if rows.epoch_us is None:
        return tr("{n} s after the start", n=format(rows.start[row], ".0f"))
    stamp = rows.epoch_us / 1e6 + float(rows.start[row])
    try:
        return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def attempts_of(
    rows: Rows, predicted: Array, rate_limited: int, failed: int
) -> tuple[Attempts, Array]:
    """Requests tried more than once, and what that cost them beyond the line."""
    retried = rows.measured & (rows.attempts > 1)
    once = rows.measured & ~(rows.attempts > 1)
    excess = np.where(retried, np.clip(or_zero(rows.ttft - predicted), 0, None), 0.0)
    total = rows.n + rate_limited + failed
    return Attempts(
        n_retried=int(retried.sum()),
        share=float(retried.sum() / max(rows.measured.sum(), 1)),
        once_p50_s=median(rows.ttft[once]) if once.any() else None,
        retried_p50_s=median(rows.ttft[retried]) if retried.any() else None,
        seconds=float(excess[rows.measured].mean()) if rows.measured.any() else 0.0,
        rate_limited=rate_limited,
        failed=failed,
        failed_share=(rate_limited + failed) / max(total, 1),
    ), excess


def timer_of(rows: Rows, ledger: Ledger, predicted: Array) -> tuple[Timer | None, Array]:
    """Slow requests late by one constant (or whole multiples), whatever their length and load."""
    none = np.zeros(rows.n)
    left = ledger.accounts["unexplained"]
    known = np.isfinite(left)
    slow = known & (left > np.maximum(0.8, 2 * or_zero(predicted)))
    n = int(slow.sum())
    if n < 4 or n > 0.8 * known.sum():
        return None, none
    late = left[slow]
    best: tuple[float, float] | None = None
    for step in np.unique(np.round(np.quantile(late, [0.05, 0.1, 0.25, 0.5]), 2)):
        times = np.round(late / step)
        good = (times >= 1) & (times <= 8) & (np.abs(late - times * step) <= 0.06 * step)
        if good.any() and (best is None or good.mean() > best[0] + 0.02):
            best = float(good.mean()), median(late[good] / times[good])
    if best is None or best[0] < 0.8:
        return None, none
    seconds = np.where(slow, np.clip(or_zero(left), 0, None), 0.0)
    return Timer(
        step_s=best[1], n=n, share=n / int(known.sum()), seconds=float(seconds[known].mean())
    ), seconds


def contrast_of(rows: Rows, load: Load) -> tuple[Contrast | None, Array]:
    """A group of one column that pays a constant more for the same work than another group.

    Only requests that found nobody ahead and needed one attempt are compared: a hot replica is
    no slow path. One that is slower by a factor is for ``measure.pace``.
    Returns the constant per row beside it (zeros without any).
    """
    free = rows.measured & np.isfinite(rows.inputs) & ~(load.waiting > 0) & ~(rows.attempts > 1)
    best: tuple[float, Contrast, Array] | None = None
    for column, scope in rows.scopes.items():
        if column == "prefix_group":
            continue  # a prompt is no path
        if column in ("model", "version") or not 2 <= len(scope.names) <= 50:
            continue
        fits: dict[int, tuple[int, float, float]] = {}
        for code in range(len(scope.names)):
            at = np.flatnonzero(free & (scope.codes == code))
            if len(at) < 6:
                continue
            n, at = len(at), at[thin(len(at), CONTRAST_ROWS)]
            u = rows.uncached[at] / 1e3
            x = np.column_stack([np.ones(len(at)), u])
            coef = quantile_fit(x, rows.ttft[at], tau=0.5).coef if np.ptp(u) > 0.05 else (
                np.array([median(rows.ttft[at]), 0.0]))  # fmt: skip
            fits[code] = (n, float(coef[0]), float(coef[1]))
        if len(fits) < 2:
            continue
        middle = float(np.nanmedian(rows.uncached[rows.measured])) / 1e3
        level = {c: f + s * middle for c, (_, f, s) in fits.items()}
        low = min(level, key=lambda c: level[c])
        for code, (count, fixed, _) in fits.items():
            extra = level[code] - level[low]
            constant = fixed - fits[low][1]
            # A thousandfold is no path but a unit; the caller tells them apart.
            unit = level[low] < 0.01 and 400 <= level[code] / max(level[low], 1e-9) <= 2500
            if extra < max(0.15, level[low]) or (constant < 0.6 * extra and not unit):
                continue
            mask = rows.measured & (scope.codes == code)
            row_seconds = np.where(mask, min(extra, constant), 0.0)
            row_seconds = np.minimum(row_seconds, or_zero(rows.ttft))
            seconds = float(row_seconds[rows.measured].mean())
            if best is None or seconds > best[0]:
                best = seconds, Contrast(
                    column=column, value=scope.names[code], n=count, level_s=level[code],
                    best=scope.names[low], best_level_s=level[low], constant_s=constant,
                    seconds=seconds,
                ), row_seconds  # fmt: skip
    return (best[1], best[2]) if best else (None, np.zeros(rows.n))


def _by_chance(inside: int, affected: int, size: int, total: int) -> float:
    """Standard deviations by which affected rows crowd into a group (hypergeometric)."""
    if total <= 1 or affected == 0:
        return 0.0
    share = size / total
    mean = affected * share
    spread = affected * share * (1 - share) * (total - affected) / (total - 1)
    return float((inside - mean) / max(spread, 0.25) ** 0.5)


def _hours(rows: Rows) -> Scope | None:
    """The hours of a log of more than one and at most four days; None without a calendar."""
    if rows.epoch_us is None or rows.n == 0:
        return None
    known = np.isfinite(rows.start)
    hour = np.floor((rows.epoch_us / 1e6 + np.where(known, rows.start, 0.0)) / 3600)
    hour = hour.astype(np.int64)
    first = int(hour[known].min())
    span = int(hour[known].max()) - first + 1
    if not 2 <= span <= 96:
        return None
    names = tuple(
        datetime.fromtimestamp(3600 * (first + i), UTC).strftime("%Y-%m-%dT%H:00Z")
        for i in range(span)
    )
    return Scope(np.where(known, hour - first, -1), names)


def scoped_of(rows: Rows, blamed: dict[str, Array]) -> tuple[Scoped, ...]:
    """Where the seconds of each cause lie: one value of a column with nearly all of them.

    Parameters
    ----------
    blamed
        Cause to seconds per row.
    """
    out: list[Scoped] = []
    counted = where(rows.measured)
    total_rows = len(rows.ttft[counted])
    # By identity: some causes share their seconds. Most rows have nothing of most causes.
    spread_out: dict[int, tuple[Index | slice, Array]] = {}
    for seconds in blamed.values():
        if id(seconds) not in spread_out:
            value = or_zero(seconds[counted])
            some = where(value != 0)
            spread_out[id(seconds)] = some, value[some]
    hours = _hours(rows)
    scopes = rows.scopes if hours is None else {**rows.scopes, "hour": hours}
    for column, scope in scopes.items():
        if not 2 <= len(scope.names) <= 200 or total_rows == 0:
            continue
        codes = scope.codes[counted] + 1
        size = len(scope.names) + 1
        n = np.bincount(codes, minlength=size)
        spent = np.bincount(codes, weights=rows.ttft[counted], minlength=size)
        shared: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        for cause, seconds in blamed.items():
            if id(seconds) not in shared:
                some, value = spread_out[id(seconds)]
                there = codes[some]
                sums = np.bincount(there, weights=value, minlength=size)
                # Few huge rows must not make a scope: the affected rows, too, must lie there.
                affected = value > 0.25 * sums[1:].sum() / max(np.count_nonzero(value > 0), 1)
                shared[id(seconds)] = sums, np.bincount(there[where(affected)], minlength=size)
            sums, hits = shared[id(seconds)]
            whole = float(sums[1:].sum())
            if whole <= 0:
                continue
            for code in np.argsort(-sums)[:3]:
                if code == 0 or n[code] < 6:
                    continue
                rest_n, rest = n[1:].sum() - n[code], spent[1:].sum() - spent[code]
                if rest_n < 5:
                    continue
                out.append(
                    Scoped(
                        cause=cause,
                        column=column,
                        value=scope.names[code - 1],
                        n=int(n[code]),
                        seconds_in_scope=float(sums[code] / n[code]),
                        share_in_scope=float(sums[code] / max(spent[code], 1e-9)),
                        share_of_cause=float(sums[code] / whole),
                        share_of_rows=float(n[code] / n[1:].sum()),
                        share_elsewhere=float((whole - sums[code]) / max(rest, 1e-9)),
                        affected_share=float(hits[code] / max(hits[1:].sum(), 1)),
                        chance=_by_chance(
                            int(hits[code]), int(hits[1:].sum()), int(n[code]), int(n[1:].sum())
                        ),
                    )
                )
    return tuple(out)
