"""Chunked prefill."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
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
    title=mark("Chunked prefill"),
    treat=treat,
    assumptions=(
        mark("each step shares prefill out equally among all requests that are there"),
        mark("the total work stays: who waits changes; short prompts gain what long ones lose"),
    ),
    cost=mark("a little throughput; long prompts finish later"),
    helps=("queueing_saturation", "organic_long_input"),
    acts_on=("queue_behind_repeated", "queue_behind_new"),
    always=True,
    fits=fits,
)
