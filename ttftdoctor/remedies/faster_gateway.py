"""Remove the constant, or mend the slow path."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(no_constant=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


REMEDY = Remedy(
    id="faster_gateway",
    order=120,
    title=mark("Remove the constant, or mend the slow path"),
    treat=treat,
    assumptions=(mark("the slow path costs what the fast one costs"),),
    cost=mark("work on the gateway, the network or the slow replica"),
    helps=("fixed_overhead",),
    acts_on=("fixed",),
    always=False,
    fits=fits,
)
