"""Attempts, back-off and limits: the clock started with a try that failed."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Attempts, Evidence
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame what requests with several attempts cost beyond the others."""
    a = e.attempts
    logged = e.coverage.get("attempts", 0.0) > 0
    status = e.coverage.get("status", 0.0) > 0
    if a is None or not (logged or status or a.near_s > 0):
        return lacking("attempts", "status", text="the log counts no attempts and has no status")
    if not logged:
        return _without_attempts(a)
    text = (
        f"{count(a.n_retried)} requests needed more than one attempt: TTFT "
        f"{seconds(a.retried_p50_s)} against {seconds(a.once_p50_s)} for the others"
    )
    strength = 0.0
    slower = a.retried_p50_s is not None and a.once_p50_s is not None
    if a.n_retried >= 2 and slower and (a.retried_p50_s or 0) > 1.5 * (a.once_p50_s or 0):
        strength = 0.93
    return Judgement(
        strength=strength, seconds=a.seconds,
        evidence=(say(text, n=a.n_retried, retried_p50_s=a.retried_p50_s,
                      once_p50_s=a.once_p50_s),),
        against="" if a.n_retried else "no request needed more than one attempt",
    )  # fmt: skip


def _without_attempts(a: Attempts) -> Judgement:
    """Only the refusals beside a slow request, or a timer, can speak."""
    refused = say(
        f"{count(a.rate_limited)} requests were refused by a limit, {count(a.failed)} failed",
        rate_limited=a.rate_limited,
        failed=a.failed,
    )
    if a.near_s > 0:
        text = (
            f"{count(a.near_n)} requests were slow while requests beside them were refused or "
            f"failed ({share(a.near_share)} of the slow ones, {share(a.near_chance)} by chance): "
            "TTFT holds tries that failed"
        )
        near = say(text, n=a.near_n, near_share=a.near_share)
        return Judgement(
            strength=0.8, seconds=a.near_s, evidence=(near, refused), needs=("attempts",)
        )
    return Judgement(
        strength=0.1, seconds=0.0, evidence=(refused,), needs=("attempts",), judged=False
    )


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    a = e.attempts
    if a is None:
        return "Retries"
    if a.n_retried == 0:
        return (
            f"Retries: {count(a.near_n)} slow requests hold tries that were refused or failed, "
            f"{share(e.share(j.seconds))} of all TTFT"
        )
    return (
        f"Retries: {share(a.share)} of the requests needed more than one attempt and took "
        f"{seconds(a.retried_p50_s)} instead of {seconds(a.once_p50_s)}, "
        f"{share(e.share(j.seconds))} of all TTFT"
    )


CAUSE = Cause(
    id="retry_or_ratelimit",
    family="service",
    order=110,
    judge=judge,
    headline=headline,
    next_steps=(
        "Take the failing upstream out, set a first-token deadline and fail fast; log each try.",
    ),
    remedies=("backoff_fix",),
    experiment=Experiment(
        text="Take the failing upstream out for an hour and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy backoff_fix",
    ),
)
