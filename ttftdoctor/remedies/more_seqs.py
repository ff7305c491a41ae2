"""More sequences at once."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(seqs=2.0)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.wait is not None and evidence.has("e2e_us")


REMEDY = Remedy(
    id="more_seqs",
    order=75,
    title=mark("More sequences at once"),
    treat=treat,
    assumptions=(
        mark("each replica takes twice as many requests at once, and has the memory for them"),
        mark("an answer takes as long as now: larger batches decode no slower"),
    ),
    cost=mark("KV memory, and slower decoding in larger batches"),
    helps=("decode_contention", "queueing_saturation"),
    acts_on=("queue_other",),
    always=False,
    fits=fits,
)
