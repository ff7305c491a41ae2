"""Fail fast on retries."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(no_retries=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


REMEDY = Remedy(
    id="backoff_fix",
    order=100,
    title="Fail fast on retries",
    treat=treat,
    assumptions=("requests that were retried cost what the others cost",),
    cost="a first-token deadline and health checks on upstreams",
    helps=("retry_or_ratelimit",),
    always=False,
    fits=fits,
)
