"""Warm replicas."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(warm=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.population.with_ttft > 0


def spoilt(evidence: Evidence, primary: str) -> str | None:
    """Why a warm replica would load its model as often: no silence unloads it."""
    cold = evidence.cold
    if primary != "cold_start" or cold is None or cold.why not in ("swap", "reload"):
        return None
    if cold.why == "swap":
        return tr("no gain: models take turns in memory, and a warm replica would change them too")
    return tr("no gain: no silence unloads the model, and a warm replica would load it again too")


REMEDY = Remedy(
    id="warm_pool",
    order=90,
    title=mark("Warm replicas"),
    treat=treat,
    assumptions=(mark("no request meets a cold replica"),),
    cost=mark("idle replicas kept up"),
    helps=("cold_start",),
    acts_on=("unexplained",),
    spoilt=spoilt,
    always=False,
    fits=fits,
)
