"""History compaction."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
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
    title=mark("History compaction"),
    treat=treat,
    assumptions=(
        mark(
            "an input a quarter longer than --compact-to is cut to it, and grows again from there"
        ),
        mark(
            "each compaction reads its history once more as a request of its own, which others "
            "wait behind; writing the summary is not counted"
        ),
        mark("nothing of a summary is in a cache before it is first sent"),
    ),
    cost=mark("an inference of its own at each compaction, and detail of the history is lost"),
    helps=("repeated_prefix_no_reuse", "organic_long_input"),
    acts_on=("prefill_repeated", "prefill_new", "queue_behind_repeated", "queue_behind_new"),
    always=True,
    fits=fits,
)
