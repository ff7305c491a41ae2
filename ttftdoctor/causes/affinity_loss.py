"""The next turn lands on another replica, which has never seen the conversation."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "affinity_loss")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    lost = 1 - e.reuse.hit_share if e.reuse else None
    return (
        "Turns seem to land on replicas that do not hold their history: "
        f"{share(lost)} of the turns that could have reused a prefix got little or nothing, at "
        f"short pauses; that is {seconds(j.seconds)} of the mean TTFT of {seconds(e.mean)}"
    )


CAUSE = Cause(
    id="affinity_loss",
    family="prefix",
    order=40,
    judge=judge,
    headline=headline,
    next_steps=(
        "Route by session id or by prefix (consistent hashing, a session header, a KV-aware "
        "router).",
        "Log the replica that served each request: misses on the same replica would be eviction.",
    ),
    remedies=("session_affinity",),
    experiment=Experiment(
        text="Route by session for an hour and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy session_affinity",
    ),
)
