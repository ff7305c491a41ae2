"""Stable prompt head."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(reuse=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.repeated.repeated_tokens is not None and evidence.has("input_tokens")


REMEDY = Remedy(
    id="stable_prefix",
    order=30,
    title=mark("Stable prompt head"),
    treat=treat,
    assumptions=(mark("what changes is moved behind what does not, and the cache does the rest"),),
    cost=mark("a change in the client or its prompt template"),
    helps=("cache_busting_prefix",),
    acts_on=("prefill_repeated", "queue_behind_repeated"),
    always=False,
    fits=fits,
)
