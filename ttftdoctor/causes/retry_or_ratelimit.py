"""Attempts, back-off and limits: the clock started with a try that failed."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Attempts, Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame what requests with several attempts cost beyond the others."""
    a = e.attempts
    logged = e.coverage.get("attempts", 0.0) > 0
    status = e.coverage.get("status", 0.0) > 0
    if a is None or not (logged or status or a.near_s > 0):
        return lacking(
            "attempts", "status", text=tr("the log counts no attempts and has no status")
        )
    if not logged and a.n_retried == 0:
        return _without_attempts(a)
    text = tr(
        "{n} requests needed more than one attempt: TTFT {slow} against {others} for the others",
        n=count(a.n_retried), slow=seconds(a.retried_p50_s), others=seconds(a.once_p50_s),
    )  # fmt: skip
    if not logged:
        text += tr("; the log has their earlier tries as refused or failed rows of the same id")
    strength = 0.0
    slower = a.retried_p50_s is not None and a.once_p50_s is not None
    if a.n_retried >= 2 and slower and (a.retried_p50_s or 0) > 1.5 * (a.once_p50_s or 0):
        strength = 0.93
    return Judgement(
        strength=strength, seconds=a.seconds,
        evidence=(say(text, n=a.n_retried, retried_p50_s=a.retried_p50_s,
                      once_p50_s=a.once_p50_s),),
        against="" if a.n_retried else tr("no request needed more than one attempt"),
    )  # fmt: skip


def _without_attempts(a: Attempts) -> Judgement:
    """Only the refusals beside a slow request, or a timer, can speak."""
    text = tr(
        "{limited} requests were refused by a limit, {failed} failed",
        limited=count(a.rate_limited), failed=count(a.failed),
    )  # fmt: skip
    refused = say(text, rate_limited=a.rate_limited, failed=a.failed)
    if a.near_s > 0:
        text = _near(a)
        near = say(text, n=a.near_n, near_share=a.near_share, near_chance=a.near_chance)
        return Judgement(
            strength=0.8, seconds=a.near_s, evidence=(near, refused), needs=("attempts",)
        )
    return Judgement(
        strength=0.1, seconds=0.0, evidence=(refused,), needs=("attempts",), judged=False
    )


def _near(a: Attempts) -> str:
    """How refusals go with slow requests."""
    figures = {"n": count(a.near_n), "part": share(a.near_share), "chance": share(a.near_chance)}
    if a.near_arrival:
        return tr(
            "{n} requests were slow that arrived just where others were refused or failed ({part} "
            "of the slow ones did, {chance} of the others): TTFT holds tries that failed",
            **figures,
        )
    return tr(
        "{n} requests were slow while requests beside them were refused or failed ({part} of "
        "the slow ones, {chance} by chance): TTFT holds tries that failed",
        **figures,
    )


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    a = e.attempts
    if a is None:
        return tr("Retries")
    if a.n_retried == 0:
        return tr(
            "Retries: {n} slow requests hold tries that were refused or failed, {part} of all TTFT",
            n=count(a.near_n), part=share(e.share(j.seconds)),
        )  # fmt: skip
    return tr(
        "Retries: {retried} of the requests needed more than one attempt and took {slow} instead "
        "of {usual}, {part} of all TTFT",
        retried=share(a.share), slow=seconds(a.retried_p50_s), usual=seconds(a.once_p50_s),
        part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="retry_or_ratelimit",
    family="service",
    order=110,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Take the failing upstream out, set a first-token deadline and fail fast; log each try."
        ),
    ),
    remedies=("backoff_fix",),
    experiment=Experiment(
        text=mark("Take the failing upstream out for an hour and log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl --remedy backoff_fix",
    ),
)
