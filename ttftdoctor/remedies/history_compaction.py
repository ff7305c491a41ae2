"""History compaction."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(compact_to=settings.compact_to)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.has("input_tokens")


REMEDY = Remedy(
    id="history_compaction",
    order=50,
    title="History compaction",
    treat=treat,
    assumptions=(
        "inputs of later turns are cut to the length given with --compact-to",
        "prefill falls with the tokens; the inference that compacts is not in the gain",
    ),
    cost="one more inference at each compaction, and detail of the history",
    helps=("repeated_prefix_no_reuse", "organic_long_input"),
    always=True,
    fits=fits,
)
