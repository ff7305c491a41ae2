"""Warm replicas."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(warm=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


REMEDY = Remedy(
    id="warm_pool",
    order=90,
    title=mark("Warm replicas"),
    treat=treat,
    assumptions=(mark("no request meets a cold replica"),),
    cost=mark("idle replicas kept up"),
    helps=("cold_start",),
    acts_on=("unexplained",),
    always=False,
    fits=fits,
)
