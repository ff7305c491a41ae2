"""Move work out of the peak."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(shed=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.wait is not None and any(row.group == "peak" for row in evidence.ledger)


REMEDY = Remedy(
    id="shed_peak",
    order=85,
    title=mark("Move work out of the peak"),
    treat=treat,
    assumptions=(
        mark(
            "sessions that begin in the peak beyond the rate outside it begin at other times, "
            "evenly"
        ),
        mark("a session moves as a whole, and asks for the same"),
    ),
    cost=mark("batch work that waits, or people who are asked to come back: they are served later"),
    helps=("queueing_saturation", "decode_contention"),
    acts_on=("queue_behind_repeated", "queue_behind_new", "queue_other"),
    always=False,
    fits=fits,
)
