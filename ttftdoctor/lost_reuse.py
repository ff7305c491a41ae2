"""Which of the four ways reuse was lost: none at all, a changing head, expiry, or routing.

All four recompute history that was computed before; they differ in which turns are missed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttftdoctor.causes import Judgement, lacking, say
from ttftdoctor.diagnosis import Statement
from ttftdoctor.evidence import Evidence, ReusePattern, Rhythm, Switched
from ttftdoctor.language import tr
from ttftdoctor.units import count, figure, seconds, share

NO_REUSE = "repeated_prefix_no_reuse"
EVICTION = "cache_eviction"
BUSTING = "cache_busting_prefix"
AFFINITY = "affinity_loss"

#: Under this share of turns with a hit, there is no reuse to speak of.
NO_HITS = 0.05
#: Providers keep entries for minutes; a miss after less than this has another reason.
SHORTEST_EXPIRY_S = 60.0


@dataclass(frozen=True)
class Lost:
    """The kind, how sure, and what speaks for it; others that cannot be excluded."""

    kind: str
    strength: float
    reasons: tuple[Statement, ...]
    alternatives: tuple[str, ...] = ()


def hits_cost(e: Evidence) -> tuple[Statement, ...]:
    """That the cache works, and what a hit costs, where both can be told."""
    r, line = e.reuse, e.lines.prefill
    if r is None or r.hit_share < 0.8 or e.repeated.cached_tokens is None:
        return ()
    part = share(r.hit_share)
    if r.basis == "logged":
        text = tr(
            "the prefix cache works: {part} of the turns that repeat history find it there",
            part=part,
        )
    else:
        text = tr(
            "the prefix cache works: {part} of the turns that repeat history find it there (by the "
            "timing)",
            part=part,
        )
    out = [say(text, hit_share=r.hit_share)]
    costs = [(m.model, m.ms_per_1k_context, m.ms_per_1k_tokens) for m in e.lines.by_model]
    if not costs and line is not None:
        costs = [("", line.ms_per_1k_context, line.ms_per_1k_tokens)]
    for model, old, new in costs:
        if old is not None:
            text = tr(
                "hits are not free: 1,000 cached tokens cost {cached} ms, 1,000 new ones {new} ms",
                cached=figure(old), new=figure(old + new),
            )  # fmt: skip
            if model:
                text = tr("{model}: {sentence}", model=model, sentence=text)
            out.append(say(text, ms_per_1k_cached=old, ms_per_1k_new=old + new))
    return tuple(out)


def kind_of(e: Evidence) -> Lost | None:
    """Tell the kind from the pattern of hits and misses; None if nothing shows reuse was lost."""
    r = e.reuse
    if r is None or e.repeated.recomputed_tokens in (None, 0):
        return None
    sure = {"content": 0.95, "reported": 0.92, "inferred": 0.93, "none": 0.0}[e.repeated.grade]
    sure = min(sure, r.basis_sure)
    if r.hit_share < NO_HITS:
        return _never(r, sure)
    if r.miss_share + r.partial_share < 0.03:
        return None
    if r.broken_share is not None:
        if r.broken_share >= 0.6:
            return Lost(BUSTING, 0.97 * sure, (_broken(r),))
    elif r.rhythm is not None:
        return Lost(BUSTING, 0.9 * sure, (_in_step(r.rhythm),), (EVICTION,))
    if r.switched is not None and not _follows_moves(r):
        return _since(r.switched, sure)
    # A conversation that never gets past one place is stuck; one that hits deep and then misses
    # lost its entries, whatever all prompts share at their head.
    if r.stuck_sessions >= 0.5 and r.mixed_sessions < 0.2:
        return Lost(BUSTING, 0.9 * sure, (_stuck_sessions(r),), (NO_REUSE,))
    if r.trimmed_misses >= 0.6 and r.trimmed_hits <= 0.2 and r.miss_share >= 0.1:
        text = tr(
            "{misses} of the misses are turns whose prompt did not grow ({hits} of the hits): the "
            "history is cut at its head, and nothing behind the cut can be reused",
            misses=share(r.trimmed_misses), hits=share(r.trimmed_hits),
        )  # fmt: skip
        reason = say(text, trimmed_misses=r.trimmed_misses, trimmed_hits=r.trimmed_hits)
        return Lost(BUSTING, 0.85 * sure, (reason,), (EVICTION,))
    return _sometimes(r, sure, e.grades.session == "linked")


def _broken(r: ReusePattern) -> Statement:
    text = tr(
        "in {part} of the turns that found nothing, the blocks of the prompt differ from those of "
        "the turn before although the history is the same: something near the head changed",
        part=share(r.broken_share),
    )
    return say(text, broken_share=r.broken_share)


def _in_step(rhythm: Rhythm) -> Statement:
    if rhythm.kind == "clock":
        text = tr(
            "just the turns between which and the last a clock of {period} ticked found nothing "
            "({part} of hits and misses keep this time): the prompt changes with it",
            period=seconds(rhythm.period), part=share(rhythm.told),
        )  # fmt: skip
    else:
        text = tr(
            "just every {n}th turn found nothing ({part} of hits and misses keep this time): the "
            "prompt changes with it",
            n=format(rhythm.period, ".0f"), part=share(rhythm.told),
        )  # fmt: skip
    return say(text, period=rhythm.period, told=rhythm.told)


def _since(s: Switched, sure: float) -> Lost:
    """The cache worked on one side of a moment only."""
    figures = {
        "at": s.at or tr("one moment"), "row": count(s.row), "hits": share(s.hits_working),
        "few": share(s.hits_idle), "n": count(s.n_idle), "m": count(s.n_working),
    }  # fmt: skip
    if s.lost:
        text = tr(
            "until {at} (line {row}) {hits} of the {m} turns that could reuse a prefix did, since "
            "then {few} of {n}: the cache was lost at that moment",
            **figures,
        )
    else:
        text = tr(
            "until {at} (line {row}) {few} of the {n} turns that could reuse a prefix did, since "
            "then {hits} of {m}: it was repaired at that moment",
            **figures,
        )
    if s.version:
        text += tr("; the version changed from {versions}", versions=s.version)
    busted = s.write_share is not None and s.write_share >= 0.3
    if busted:
        text += tr(
            "; {part} of the prompts that found nothing was written to the cache: it was the "
            "prompt that changed near its head",
            part=share(s.write_share),
        )
    reason = say(
        text, row=s.row, hits_working=s.hits_working, hits_idle=s.hits_idle,
        turns_working=s.n_working, turns_idle=s.n_idle, version=s.version,
        write_share=s.write_share,
    )  # fmt: skip
    if busted:
        return Lost(BUSTING, 0.9 * sure, (reason,), (NO_REUSE,))
    return Lost(NO_REUSE, 0.95 * sure, (reason,), (BUSTING,))


def _steps_since(s: Switched) -> tuple[str, ...]:
    """What to do about a cache that was lost, or repaired, at a moment."""
    if s.lost:
        return (
            tr(
                "See what was released, restarted or set at that moment: whether prefix caching "
                "was switched off (vLLM: --enable-prefix-caching; llama.cpp: cache_prompt), or "
                "the head of the prompts changed; undo it and compare turn 2 with turn 1."
            ),
        )
    return (
        tr(
            "The cache works since then, and nothing is left to do about it: diagnose what came "
            "after that moment by itself (--since)."
        ),
    )


def _follows_moves(r: ReusePattern) -> bool:
    """Whether turns miss where they land on another replica, and hit where they stay."""
    moved, stayed = r.miss_when_moved, r.miss_when_stayed
    return moved is not None and stayed is not None and moved - stayed >= 0.4


def _never(r: ReusePattern, sure: float) -> Lost:
    if r.broken_share is not None and r.broken_share >= 0.6:
        return Lost(BUSTING, 0.97 * sure, (_broken(r),))
    if r.stuck_at is not None and r.stuck_at > 0 and r.stuck_share >= 0.5:
        return Lost(BUSTING, 0.95 * sure, (_stuck(r),), (NO_REUSE,))
    if r.stuck_sessions >= 0.5 and r.cached_share >= 0.01:
        return Lost(BUSTING, 0.9 * sure, (_stuck_sessions(r),), (NO_REUSE,))
    if r.write_share is not None and r.write_share >= 0.3:
        if r.gap_p50_s:
            text = tr(
                "{part} of the prompt is written to the cache on every later turn and none of it "
                "is read back, with a median pause of {pause}: the prompt changes near its head",
                part=share(r.write_share), pause=seconds(r.gap_p50_s),
            )  # fmt: skip
        else:
            text = tr(
                "{part} of the prompt is written to the cache on every later turn and none of it "
                "is read back: the prompt changes near its head",
                part=share(r.write_share),
            )
        reason = say(text, write_share=r.write_share, gap_p50_s=r.gap_p50_s)
        late = r.gap_p50_s is not None and r.gap_p50_s > 3600
        return Lost(BUSTING, (0.6 if late else 0.9) * sure, (reason,), (NO_REUSE, EVICTION))
    if r.basis == "logged":
        text = tr(
            "none of the {n} turns that could have reused a prefix did: the log counts their "
            "cached tokens",
            n=count(r.n),
        )
    else:
        text = tr(
            "none of the {n} turns that could have reused a prefix did: their TTFT follows the "
            "whole input, not the new part of it",
            n=count(r.n),
        )
    alternatives: tuple[str, ...] = (BUSTING,)
    if r.gap_p50_s is not None and r.gap_p50_s > 300:
        alternatives = (BUSTING, EVICTION)
    return Lost(NO_REUSE, sure, (say(text, turns=r.n, hit_share=r.hit_share),), alternatives)


def _stuck_sessions(r: ReusePattern) -> Statement:
    if r.stuck_at is not None and r.stuck_at > 0 and r.stuck_share >= 0.4:
        text = tr(
            "{part} of what was computed again lies in sessions whose cached tokens stay at one "
            "place (most at {n} tokens) while their prompts grow: the prompt changes there",
            part=share(r.stuck_sessions), n=count(r.stuck_at),
        )  # fmt: skip
    else:
        text = tr(
            "{part} of what was computed again lies in sessions whose cached tokens stay at one "
            "place while their prompts grow: the prompt changes there",
            part=share(r.stuck_sessions),
        )
    return say(text, stuck_sessions=r.stuck_sessions, stuck_at_tokens=r.stuck_at)


def _stuck(r: ReusePattern) -> Statement:
    text = tr(
        "cached tokens stay at {n} in {part} of the later turns while the prompts grow: the prompt "
        "changes at that place",
        n=count(r.stuck_at), part=share(r.stuck_share),
    )  # fmt: skip
    return say(text, stuck_at_tokens=r.stuck_at, stuck_share=r.stuck_share)


def _sometimes(r: ReusePattern, sure: float, linked: bool) -> Lost:
    text = tr(
        "of {n} turns that could have reused a prefix {hit} did, {partly} in part, {missed} found "
        "nothing of their history",
        n=count(r.n), hit=share(r.hit_share), partly=share(r.partial_share),
        missed=share(r.miss_share),
    )  # fmt: skip
    mixed = say(text, turns=r.n, hit_share=r.hit_share, miss_share=r.miss_share)
    moved, stayed = r.miss_when_moved, r.miss_when_stayed
    if _follows_moves(r):
        text = tr(
            "{moved} of the turns that landed on another replica missed, {stayed} of those that "
            "stayed",
            moved=share(moved), stayed=share(stayed),
        )  # fmt: skip
        reason = say(text, miss_when_moved=moved, miss_when_stayed=stayed)
        return Lost(AFFINITY, 0.97 * sure, (mixed, reason))
    expiry, after, before = r.expiry_s, r.miss_after_expiry, r.miss_before_expiry
    by_gap = r.gap_auc or 0.5
    by_load = r.between_auc or 0.5
    timed = (
        expiry is not None
        and after is not None
        and before is not None
        and expiry >= SHORTEST_EXPIRY_S
        and after - before >= 0.4
        and by_gap >= 0.7
    )
    if timed and by_gap >= by_load - 0.03:
        text = tr(
            "{after} of the turns after a pause of {pause} or more missed, {before} of the others: "
            "entries expire",
            after=share(after), pause=seconds(expiry), before=share(before),
        )  # fmt: skip
        reason = say(text, expiry_s=expiry, miss_after=after, miss_before=before)
        return Lost(EVICTION, 0.95 * sure, (mixed, reason))
    if by_load >= 0.65 and by_load >= by_gap - 0.1:
        text = tr(
            "misses follow the tokens that other sessions sent in between (they tell misses from "
            "hits in {part} of pairs): entries are pushed out",
            part=share(by_load),
        )
        reason = say(text, between_auc=by_load, gap_auc=by_gap)
        return Lost(EVICTION, 0.85 * sure, (mixed, reason), (AFFINITY,))
    if timed:
        reason = say(tr("misses follow the idle gap"), gap_auc=by_gap, expiry_s=expiry)
        return Lost(EVICTION, 0.8 * sure, (mixed, reason), (AFFINITY,))
    if stayed is not None and moved is None:  # nobody moved: no router took it
        text = tr(
            "{part} of the turns missed although they stayed on their replica: entries are gone "
            "when the next turn comes",
            part=share(stayed),
        )
        reason = say(text, miss_when_stayed=stayed)
        return Lost(EVICTION, 0.75 * sure, (mixed, reason), (BUSTING,))
    if linked and r.moved_share is None:
        # Links blur what goes with the misses, and no column speaks for other replicas.
        text = tr(
            "which entries are gone is blurred, as the turns are linked by their lengths only"
        )
        if by_load >= 0.58 and by_load >= by_gap:
            text += tr(
                "; tokens sent in between tell misses from hits in {part} of pairs",
                part=share(by_load),
            )
            reason = say(text, between_auc=by_load, gap_auc=by_gap)
            return Lost(EVICTION, 0.78 * sure, (mixed, reason), (AFFINITY,))
        reason = say(text, between_auc=r.between_auc, gap_auc=r.gap_auc)
        return Lost(EVICTION, 0.65 * sure, (mixed, reason), (AFFINITY, BUSTING))
    short = r.gap_p50_s is None or r.gap_p50_s < 600
    if r.gap_p50_s is None:
        text = tr(
            "neither the pause nor the traffic in between tells misses from hits: the turns seem "
            "to land on different replicas"
        )
    else:
        text = tr(
            "neither the pause nor the traffic in between tells misses from hits (median pause "
            "{pause}): the turns seem to land on different replicas",
            pause=seconds(r.gap_p50_s),
        )
    reason = say(text, gap_p50_s=r.gap_p50_s, gap_auc=r.gap_auc, between_auc=r.between_auc)
    # Nothing speaks for routing but that nothing else does: enough whole misses at short pauses.
    likely = short and r.miss_share >= 0.1 and r.miss_share >= r.partial_share
    return Lost(AFFINITY, (0.75 if likely else 0.5) * sure, (mixed, reason), (EVICTION,))


def judge_prefix(e: Evidence, cause: str) -> Judgement:
    """The judgement of one of the four causes."""
    if e.repeated.grade == "none":
        return lacking(
            "session_id", "prefix_blocks", "cached_tokens",
            text=tr("the log names no sessions, prompt blocks or cached tokens"),
        )  # fmt: skip
    if e.reuse is None:
        if e.repeated.repeated_tokens in (None, 0) or not e.repeated.repeated_tokens:
            return Judgement(
                strength=0.0, seconds=0.0,
                evidence=(say(tr("no request repeats what an earlier one had computed")),),
            )  # fmt: skip
        return lacking(
            "cached_tokens",
            text=tr("the log counts no cached tokens and the timing does not tell reuse from none"),
        )
    lost = kind_of(e)
    repeated = _repeated_statement(e)
    if lost is None:
        return Judgement(
            strength=0.0, seconds=0.0,
            evidence=(say(_reused(e.reuse), hit_share=e.reuse.hit_share),),
        )  # fmt: skip
    if lost.kind == cause:
        growth = e.growth_accounts.get("prefill_repeated")
        switched = e.reuse.switched if lost.kind == NO_REUSE else None
        return Judgement(
            strength=lost.strength,
            seconds=e.prefill_repeated_s,
            interval=e.prefill_repeated_interval,
            evidence=(*lost.reasons, repeated, *by_turn(e)),
            needs=("cached_tokens",) if e.reuse.basis != "logged" else (),
            growth_seconds=growth,
            next_steps=() if switched is None else _steps_since(switched),
            proven=switched is not None and not switched.lost,
        )
    if cause in lost.alternatives:
        return Judgement(
            strength=min(0.3, 1 - lost.strength),
            seconds=None,
            evidence=(say(tr("not excluded, but {reason}", reason=lost.reasons[-1].text)),),
            needs=_separators(cause),
            judged=e.has("cached_tokens"),
        )
    return Judgement(strength=0.02, seconds=0.0, evidence=(say(_excluded(cause, e.reuse)),))


def _repeated_statement(e: Evidence) -> Statement:
    p = e.repeated
    figures = {
        "n": count(p.recomputed_tokens), "all": count(p.input_tokens),
        "part": share(p.recomputed_share), "time": seconds(e.prefill_repeated_s),
        "mean": seconds(e.mean),
    }  # fmt: skip
    if p.grade == "inferred":
        text = tr(
            "{n} of {all} prompt tokens ({part}) had been computed before and were computed again "
            "(inferred from the lengths of turns): {time} of the mean TTFT of {mean}",
            **figures,
        )
    else:
        text = tr(
            "{n} of {all} prompt tokens ({part}) had been computed before and were computed again: "
            "{time} of the mean TTFT of {mean}",
            **figures,
        )
    return say(
        text, recomputed_tokens=p.recomputed_tokens, recomputed_share=p.recomputed_share,
        seconds=e.prefill_repeated_s,
    )  # fmt: skip


def by_turn(e: Evidence) -> tuple[Statement, ...]:
    """First turns beside late ones: TTFT, input, and decode, which does not grow."""
    turns = [s for s in e.splits.by_turn if s.ttft_p50_s and s.input_p50]
    if len(turns) < 2:
        return ()
    first = turns[0]
    filled = [s for s in turns if s.n >= 0.25 * first.n]
    last = max(filled, key=lambda s: s.ttft_p50_s or 0.0)
    if last is first:
        return ()
    text = tr(
        "turn {early} takes {quick} with {few} input tokens, turn {late} {slow} with {many}",
        early=first.key["turn"], quick=seconds(first.ttft_p50_s), few=count(first.input_p50),
        late=last.key["turn"], slow=seconds(last.ttft_p50_s), many=count(last.input_p50),
    )  # fmt: skip
    per_token = [s.tpot_p50_s for s in filled if s.tpot_p50_s]
    if per_token and max(per_token) <= 1.25 * min(per_token):
        middle = sorted(per_token)[len(per_token) // 2]
        text += tr("; decode stays at {time} ms a token", time=figure(middle * 1e3))
    return (
        say(text, first_ttft_p50_s=first.ttft_p50_s, last_ttft_p50_s=last.ttft_p50_s,
            last_input_p50=last.input_p50),
    )  # fmt: skip


def _separators(cause: str) -> tuple[str, ...]:
    return {
        AFFINITY: ("replica",),
        EVICTION: ("replica", "prefix_blocks"),
        BUSTING: ("prefix_blocks", "cache_write_tokens"),
        NO_REUSE: ("cached_tokens",),
    }[cause]


def _reused(r: ReusePattern) -> str:
    return tr("{part} of the turns that could reuse a prefix did", part=share(r.hit_share))


def _excluded(cause: str, r: ReusePattern) -> str:
    if cause == NO_REUSE:
        return _reused(r)
    if cause == BUSTING:
        return tr("cached tokens do not stay at one place of the prompt")
    if cause == EVICTION:
        return (
            tr("there are no hits that later turn into misses")
            if r.hit_share < NO_HITS
            else tr("misses do not go with pauses or with the traffic in between")
        )
    return (
        tr("there are no hits that come and go")
        if r.hit_share < NO_HITS
        else tr("misses do not go with a change of replica")
    )
