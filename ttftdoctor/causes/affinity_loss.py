"""The next turn lands on another replica, which has never seen the conversation."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, unlogged
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "affinity_loss")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    lost = 1 - e.reuse.hit_share if e.reuse else None
    return tr(
        "Turns seem to land on replicas that do not hold their history: {lost} of the turns that "
        "could have reused a prefix got little or nothing, at short pauses; that is {time} of the "
        "mean TTFT of {mean}",
        lost=share(lost), time=seconds(j.seconds), mean=seconds(e.mean),
    )  # fmt: skip


CAUSE = Cause(
    id="affinity_loss",
    family="prefix",
    order=40,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Route by session id or by prefix (consistent hashing, a session header, a KV-aware "
            "router)."
        ),
        unlogged(
            mark(
                "Log the replica that served each request: misses on the same replica would be "
                "eviction."
            ),
            "replica",
        ),
    ),
    remedies=("session_affinity",),
    experiment=Experiment(
        text=mark("Route by session for an hour and log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl --remedy session_affinity",
    ),
)
