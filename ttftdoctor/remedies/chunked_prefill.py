"""Chunked prefill."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(fair=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.wait is not None and evidence.has("input_tokens")


REMEDY = Remedy(
    id="chunked_prefill",
    order=60,
    title="Chunked prefill",
    treat=treat,
    assumptions=(
        "prefill is shared out in step with the work of each request",
        "the total work stays: who waits changes, not how much",
    ),
    cost="a little throughput; long prompts finish later",
    helps=("queueing_saturation", "organic_long_input"),
    always=True,
    fits=fits,
)
