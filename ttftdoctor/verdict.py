"""The causes set against each other: one primary, what contributes, what only amplifies.

Measurement comes first: if the number is no TTFT, or says too little, nothing else is judged.
Otherwise the cause with the most seconds, each weighed by how sure it is, is the primary one; a
cost that every healthy service has (its own prefill, a constant) counts less than a disease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ttftdoctor.causes import BELIEVED, Cause, Judgement
from ttftdoctor.diagnosis import Amplifier, Experiment, Finding, Status, Verdict
from ttftdoctor.evidence import Evidence, Scoped
from ttftdoctor.language import spoken, tr
from ttftdoctor.units import seconds, share

#: A disease must account for this share of the mean TTFT to be the primary cause.
PRIMARY_SHARE = 0.15
CONTRIBUTING_SHARE = 0.08
MINOR_SHARE = 0.02
#: ... and for this long, below which nobody complains.
NOTICED_S = 0.08
#: ... and for rare but long delays (starts, retries) this long on average.
RARE_S = 0.03
#: Prompts up to so many tokens are quick to compute, repeated or not.
LONG_PROMPT = 1500
#: So sure at most that work is new, or all is well, where prompts are of unknown ancestry.
UNKNOWN_ANCESTRY = 0.55
#: With this 95th percentile of TTFT a service is quick whatever it computes again.
QUICK_S = 0.4
#: A part of the log is the scope when it holds this share of the cause's seconds.
SCOPE_SHARE = 0.8
#: ... of an hour this share, since any peak has most of the waiting.
HOUR_SHARE = 0.9
#: ... and its rows crowd there by at least this many standard deviations.
SCOPE_CHANCE = 2.2

#: How often verdicts of such a strength are right on logs whose cause is known (two simulators of
#: different authors; ``benchmarks/diagnosis``); between the points it is read off a straight line.
STRENGTH = (0.0, 0.5, 0.65, 0.75, 0.85, 0.95, 1.0)
RIGHT = (0.0, 0.5, 0.67, 0.84, 0.92, 0.96, 0.98)

Judged = tuple[Cause, Judgement]


def decide(e: Evidence, causes: Sequence[Cause]) -> tuple[Verdict, tuple[Finding, ...]]:
    """Judge every cause and name the primary one.

    Parameters
    ----------
    causes
        All causes of the vocabulary, in its order.
    """
    judged = [(c, c.judge(e)) for c in causes]
    settled = [(c, j) for c, j in judged if j.settles and j.judged]
    if settled:
        primary = max(settled, key=lambda pair: (pair[0].id == "measurement_artifact",
                                                 pair[1].strength))  # fmt: skip
        return _settled(e, judged, primary)
    primary = _primary(e, judged)
    hidden = None
    if primary[0].id == "healthy":
        hidden = _hidden(e, judged)
        if hidden is not None:
            primary = hidden[0]
    scope = hidden[1] if hidden else _scope(e, primary)
    findings = tuple(_finding(e, c, j, primary[0].id, scope) for c, j in judged)
    amplifiers = _amplifiers(e, judged, primary)
    contributing = tuple(f.id for f in findings if f.status == "contributing")
    headline = primary[0].headline(e, primary[1])
    if scope is not None:
        where = tr(", ").join(f"{k} {v}" for k, v in scope.items())
        if where not in headline:
            if spoken() == "en":  # elsewhere a sentence may begin with a name: TTFT
                headline = headline[0].lower() + headline[1:]
            headline = tr("On {where}: {headline}", where=where, headline=headline)
    confidence = _confidence(e, judged, primary)
    findings = tuple(
        replace(f, confidence=confidence) if f.id == primary[0].id else f for f in findings
    )
    return Verdict(
        primary_cause=primary[0].id,
        family=primary[0].family,
        confidence=confidence,
        headline=headline,
        contributing=contributing,
        scope=scope,
        amplifiers=amplifiers,
        next_steps=_next_steps(e, *primary),
        experiment=_experiment(*primary),
    ), findings


def _next_steps(e: Evidence, cause: Cause, j: Judgement) -> tuple[str, ...]:
    """The steps that this log calls for, in the language spoken."""
    if j.next_steps:
        return j.next_steps
    steps = (s if isinstance(s, str) else s.text if s.where(e) else None for s in cause.next_steps)
    return tuple(tr(text) for text in steps if text is not None)


def _experiment(cause: Cause, j: Judgement) -> Experiment | None:
    """The experiment in the language spoken."""
    chosen = j.experiment or cause.experiment
    if chosen is None or j.proven:
        return None
    return replace(chosen, text=tr(chosen.text))


def _settled(
    e: Evidence, judged: Sequence[Judged], primary: Judged
) -> tuple[Verdict, tuple[Finding, ...]]:
    """Only one thing can be said; the rest is not judged from such a log."""
    findings = []
    for c, j in judged:
        if c.id == primary[0].id:
            findings.append(_finding(e, c, j, c.id, None))
        elif c.id in ("measurement_artifact", "insufficient_data") and j.judged:
            # From a number that is no TTFT, or from too few, no seconds can be laid to the other.
            other = _finding(e, c, j, primary[0].id, None)
            plainer = tr("the log has a plainer fault: {cause}", cause=primary[0].id)
            why = j.evidence[0].text if j.evidence and j.strength < BELIEVED else plainer
            findings.append(replace(other, status="ruled_out", seconds=None, share_of_ttft=None,
                                    ruled_out_because=j.against or why))  # fmt: skip
        else:
            needs = _missing(e, j.needs) or _missing(e, primary[1].needs) or ("ttft_us",)
            findings.append(Finding(id=c.id, family=c.family, status="unjudged", needs=needs,
                                    evidence=() if j.judged else j.evidence))  # fmt: skip
    c, j = primary
    there = e.artifact.scope if c.id == "measurement_artifact" else None
    return Verdict(
        primary_cause=c.id,
        family=c.family,
        confidence=_calibrated(j.strength),
        headline=c.headline(e, j),
        scope=None if there is None else dict([there]),
        next_steps=_next_steps(e, c, j),
        experiment=_experiment(c, j),
    ), tuple(findings)


def _score(e: Evidence, pair: Judged) -> float:
    c, j = pair
    if not j.judged or j.strength < BELIEVED or j.seconds is None:
        return 0.0
    extra = j.seconds
    if c.family == "prefix":
        extra += _amplified(pair, e)
    tail = e.tail.get(c.id)
    if tail is not None and c.family in ("input", "service", "load"):
        extra *= 0.4 + 0.6 * min(max(tail, 0.0), 1.0) * 1.5
    return extra * j.strength * c.weight


def _amplified(pair: Judged, e: Evidence) -> float:
    """The wait behind repeated prefill belongs to what is repeated."""
    return e.wait.behind_repeated if e.wait is not None and pair[0].family == "prefix" else 0.0


def _primary(e: Evidence, judged: Sequence[Judged]) -> Judged:
    healthy = next(p for p in judged if p[0].id == "healthy")
    mean = e.mean or 0.0
    able = []
    for pair in judged:
        c, j = pair
        if c.id == "healthy" or not j.judged or j.strength < BELIEVED or not j.seconds:
            continue
        total = j.seconds + _amplified(pair, e)
        noticed = RARE_S if c.family == "service" else NOTICED_S
        if total >= max(PRIMARY_SHARE * mean, noticed):
            able.append(pair)
    if not able:
        unknown = next(p for p in judged if p[0].id == "insufficient_data")
        # A log that is mostly unexplained is no healthy one, whatever else was not found.
        return healthy if healthy[1].strength >= BELIEVED else unknown
    return max(able, key=lambda pair: _score(e, pair))


def _hidden(e: Evidence, judged: Sequence[Judged]) -> tuple[Judged, dict[str, str]] | None:
    """A sick part in a log that is well as a whole."""
    by_id = {c.id: (c, j) for c, j in judged}
    best: tuple[float, Judged, Scoped] | None = None
    for s in e.scoped:
        pair = by_id.get(s.cause)
        if pair is None or not pair[1].judged or pair[1].strength < BELIEVED:
            continue
        if pair[0].id == "organic_long_input" or s.column == "hour":
            continue
        sick = (
            s.share_in_scope >= 0.3
            and s.seconds_in_scope >= max(0.25, NOTICED_S)
            and s.share_of_cause >= 0.6
            and s.affected_share >= 0.6
            and s.chance >= SCOPE_CHANCE
            and s.share_in_scope >= 2.5 * s.share_elsewhere
        )
        if sick and (best is None or s.seconds_in_scope > best[0]):
            best = s.seconds_in_scope, pair, s
    if best is None:
        return None
    return best[1], {best[2].column: best[2].value}


def _scope(e: Evidence, primary: Judged) -> dict[str, str] | None:
    """The value of one column in which nearly all of the primary cause's seconds lie."""
    c = e.contrast
    if primary[0].id == "fixed_overhead" and c is not None:
        return {c.column: c.value}
    best: Scoped | None = None
    for s in e.scoped:
        if s.cause != primary[0].id or s.share_of_cause < SCOPE_SHARE:
            continue
        if s.share_of_rows > 0.85 or s.share_in_scope < 2.5 * s.share_elsewhere:
            continue
        if s.affected_share < SCOPE_SHARE or s.chance < SCOPE_CHANCE:
            continue
        if s.column == "hour" and not _of_an_hour(s, primary[0]):
            continue
        if best is not None and (s.column == "hour") != (best.column == "hour"):
            # Who is sick says more than when.
            best = s if best.column == "hour" else best
            continue
        if best is None or s.share_of_rows < best.share_of_rows:
            best = s
    return None if best is None else {best.column: best.value}


def _of_an_hour(s: Scoped, cause: Cause) -> bool:
    """Whether a cause that comes and goes with the traffic is one of a single hour."""
    comes_and_goes = cause.family == "load" or cause.id == "retry_or_ratelimit"
    return comes_and_goes and s.share_of_cause >= HOUR_SHARE and s.share_of_rows <= 0.5


def _amplifiers(e: Evidence, judged: Sequence[Judged], primary: Judged) -> tuple[Amplifier, ...]:
    """Queueing behind repeated prefill makes the primary cause worse and would go with it."""
    w = e.wait
    if w is None or primary[0].family != "prefix" or w.mean <= 0:
        return ()
    part = e.share(w.mean)
    if (part or 0.0) < MINOR_SHARE:
        return ()
    text = tr(
        "amplifies, is not the root: {time}, {part} of it behind repeated prefill",
        time=seconds(w.mean), part=share(w.behind_repeated / w.mean),
    )  # fmt: skip
    by_id = {c.id: j for c, j in judged}
    if by_id["queueing_saturation"].strength < BELIEVED:
        return ()
    return (Amplifier("queueing_saturation", part, text),)


def _finding(
    e: Evidence, c: Cause, j: Judgement, primary: str, scope: dict[str, str] | None
) -> Finding:
    part = e.share(j.seconds)
    growth = None
    if j.growth_seconds is not None and e.growth_s and e.growth_s >= 0.2 * (e.mean or 0.0):
        growth = j.growth_seconds / e.growth_s  # of a growth worth the name
    status = _status(e, c, j, primary, part)
    return Finding(
        id=c.id, family=c.family, status=status, seconds=j.seconds if j.judged else None,
        share_of_ttft=part if j.judged else None, share_of_growth=growth,
        interval=j.interval, evidence=j.evidence, needs=_missing(e, j.needs),
        confidence=round(j.strength, 2),
        ruled_out_because=_reason(e, c, j, primary, part) if status == "ruled_out" else None,
    )  # fmt: skip


def _reason(e: Evidence, c: Cause, j: Judgement, primary: str, part: float | None) -> str:
    """Why a cause is ruled out, in one sentence."""
    if c.id == "healthy":
        return tr("a cause was found: {cause}", cause=primary)
    nothing = tr("nothing in the log speaks for it")
    said = j.against or (j.evidence[0].text if j.evidence else nothing)
    if j.against or not j.seconds or part is None:
        return said
    if part < MINOR_SHARE:
        return tr("{said}: under {part} of the mean TTFT", said=said, part=share(MINOR_SHARE))
    if j.strength < BELIEVED:
        return tr("{said}, but without the signs of this cause", said=said)
    return said


def _missing(e: Evidence, needs: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the needed columns that the log does not have."""
    return tuple(c for c in needs if e.coverage.get(c, 0.0) < 0.5)


def _status(e: Evidence, c: Cause, j: Judgement, primary: str, part: float | None) -> Status:
    if c.id == primary:
        return "primary"
    if not j.judged:
        return "unjudged"
    if c.id == "healthy":
        return "ruled_out"
    amplified = j.amplified if c.id == "queueing_saturation" else 0.0
    total = (part or 0.0) + (e.share(amplified) or 0.0)
    if j.strength < BELIEVED:
        return "ruled_out"
    if total >= CONTRIBUTING_SHARE and (j.seconds or 0.0) + amplified >= 0.03:
        return "contributing"
    return "minor" if total >= MINOR_SHARE else "ruled_out"


def _unsure_of_ancestry(e: Evidence, c: Cause) -> float:
    """The most that can be said where long prompts may well repeat one another, unseen.

    Work that is taken for new may be repeated, and so may what others wait behind.
    """
    unknown = e.unknown_ancestry
    if e.longest_prompts <= LONG_PROMPT or unknown <= 0.1:
        return 1.0
    if c.id == "queueing_saturation":
        return 1.0 - 0.12 * unknown
    if c.id not in ("healthy", "organic_long_input"):
        return 1.0
    # A cache that is counted speaks a little for new work where it serves nothing.
    least = UNKNOWN_ANCESTRY + (0.05 if e.has("cached_tokens") else 0.0)
    # Conversations would show in the lengths; documents that many ask about would not.
    least = max(least, 0.65) if e.unrelated else least
    most = max(least, 0.95 - 0.8 * unknown)
    if c.id == "healthy" and (e.population.ttft_p95_s or 1.0) < QUICK_S:
        most = max(most, 0.75)  # whatever they repeat, hardly anybody waits for it
    return most


def _confidence(e: Evidence, judged: Sequence[Judged], primary: Judged) -> float:
    """The strength of the primary, less for a close second and for what could not be judged."""
    c, j = primary
    confidence = j.strength
    if c.id != "healthy":
        mine = _score(e, primary)
        others = [_score(e, p) for p in judged if p[0].id not in (c.id, "healthy")]
        second = max(others, default=0.0)
        if mine > 0:
            confidence *= 1.0 - 0.45 * min(second / mine, 1.0) ** 2
    else:
        blind = sum(not x.judged for k, x in judged if k.family in ("prefix", "load"))
        confidence *= 0.97**blind
    confidence = min(confidence, _unsure_of_ancestry(e, c))
    n = e.population.with_ttft
    confidence *= min(1.0, 0.75 + 0.25 * min(n / 30, 1.0))
    return _calibrated(confidence)


def _calibrated(strength: float) -> float:
    """The part of verdicts of this strength that is right."""
    for (low, below), (high, above) in pairwise(zip(STRENGTH, RIGHT, strict=True)):
        if strength <= high:
            value = below + (above - below) * (strength - low) / (high - low)
            return round(max(value, 0.05), 2)
    return RIGHT[-1]
