"""Separate prefill and decode pools."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(decode_apart=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.wait is not None and evidence.has("input_tokens")


REMEDY = Remedy(
    id="disaggregated_prefill",
    order=70,
    title=mark("Separate prefill and decode pools"),
    treat=treat,
    assumptions=(
        mark(
            "as many replicas as now prefill, and others decode: slots and steps are no longer "
            "shared"
        ),
        mark("the total prefill work stays: who waits changes; moving the KV cache costs nothing"),
    ),
    cost=mark("a second pool and the transfer of the KV cache; the total work stays"),
    helps=("decode_contention",),
    acts_on=("queue_other",),
    always=True,
    fits=fits,
)
