"""Prefix cache."""

from __future__ import annotations

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.remedies import Remedy, Settings
from ttftdoctor.treatment import Treatment


def treat(settings: Settings) -> Treatment:
    """How the log is served with it."""
    return Treatment(reuse=True)


def fits(evidence: Evidence) -> bool:
    """Whether the log knows enough to predict it."""
    return evidence.repeated.repeated_tokens is not None and evidence.has("input_tokens")


def spoilt(evidence: Evidence, primary: str) -> str | None:
    """Why a cache would change nothing: there is one, and it is not what fails."""
    if primary == "cache_busting_prefix":
        return tr(
            "no gain: the prompt changes near its head, and no cache can serve what comes behind "
            "that; see stable_prefix"
        )
    switched = None if evidence.reuse is None else evidence.reuse.switched
    if primary == "repeated_prefix_no_reuse" and switched is not None and not switched.lost:
        return tr("no gain: since {at} the cache works", at=switched.at or tr("one moment"))
    works = evidence.reuse is not None and evidence.reuse.hit_share >= 0.5
    if primary == "cold_start" and works:
        return tr("no gain: there is a cache already, which is empty when a server starts")
    return None


REMEDY = Remedy(
    id="prefix_cache",
    order=10,
    title=mark("Prefix cache"),
    treat=treat,
    assumptions=(
        mark("every repeated token that its replica had is served from the cache, in blocks of 16"),
        mark("cached tokens cost what the fitted line says of them"),
    ),
    cost=mark(
        "KV memory for the histories between turns; computes once and collects on every turn"
    ),
    helps=("repeated_prefix_no_reuse",),
    acts_on=("prefill_repeated", "queue_behind_repeated"),
    spoilt=spoilt,
    always=True,
    fits=fits,
)
