"""Double capacity."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(servers=2.0)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.wait is not None


REMEDY = Remedy(
    id="double_capacity",
    order=80,
    title=mark("Double capacity"),
    treat=treat,
    assumptions=(
        mark(
            "twice the replicas share the arrivals, halfway between one line for all and drawn lots"
        ),
        mark(
            "a single request is prefilled no faster; sessions that move find their history less "
            "often"
        ),
        mark("more room for caches is not counted"),
    ),
    cost=mark("twice the machines"),
    helps=("queueing_saturation", "decode_contention"),
    acts_on=("queue_behind_repeated", "queue_behind_new", "queue_other"),
    always=True,
    fits=fits,
)
