"""More cache room or lifetime."""

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
    id="more_cache",
    order=20,
    title=mark("More cache room or lifetime"),
    treat=treat,
    assumptions=(
        mark("no entry is lost between two turns of a session"),
        mark("the rest as for a prefix cache"),
    ),
    cost=mark("memory (device, host or disk), or the price of a longer lifetime"),
    helps=("cache_eviction",),
    acts_on=("prefill_repeated", "queue_behind_repeated"),
    always=False,
    fits=fits,
)
