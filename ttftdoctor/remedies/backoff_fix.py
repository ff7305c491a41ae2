"""Fail fast on retries."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(no_retries=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


def doubt(evidence: Evidence) -> str | None:
    """A limit that refuses does not rise because clients wait more cleverly."""
    attempts = evidence.attempts
    if attempts is None or (attempts.rate_limited == 0 and attempts.near_n == 0):
        return None
    return tr(
        "a limit refused requests: only what clients wait beyond its own pace goes away, and the "
        "log does not say how much that is"
    )


REMEDY = Remedy(
    id="backoff_fix",
    order=100,
    title=mark("Fail fast on retries"),
    treat=treat,
    assumptions=(mark("requests that were retried cost what the others cost"),),
    cost=mark("a first-token deadline and health checks on upstreams"),
    helps=("retry_or_ratelimit",),
    acts_on=("unexplained",),
    always=False,
    doubt=doubt,
    fits=fits,
)
