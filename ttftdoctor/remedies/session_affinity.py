"""Session affinity."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(reuse=True, pinned=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.repeated.repeated_tokens is not None and evidence.has("input_tokens")


REMEDY = Remedy(
    id="session_affinity",
    order=40,
    title=mark("Session affinity"),
    treat=treat,
    assumptions=(
        mark("a session stays on the replica it began on, which still has its history"),
        mark("sessions are spread as evenly as they began"),
    ),
    cost=mark("a router that keeps sessions; hot sessions may unbalance replicas"),
    helps=("affinity_loss",),
    acts_on=("prefill_repeated", "queue_behind_repeated"),
    always=False,
    fits=fits,
)
