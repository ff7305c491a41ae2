"""Roll back."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(rolled_back=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


REMEDY = Remedy(
    id="rollback",
    order=110,
    title=mark("Roll back"),
    treat=treat,
    assumptions=(mark("the earlier version does the same work at its earlier cost"),),
    cost=mark("whatever the new version brought"),
    helps=("deploy_regression",),
    acts_on=("prefill_new", "prefill_repeated", "unexplained"),
    always=False,
    fits=fits,
)
