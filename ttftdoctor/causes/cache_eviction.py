"""Reuse exists, but entries are gone when the next turn comes: too little room, or expired."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "cache_eviction")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return (
        "Cached prefixes are gone when the next turn comes: "
        f"{share(1 - e.reuse.hit_share if e.reuse else None)} of the turns that could have reused "
        f"one got little or nothing, and {count(e.repeated.recomputed_tokens)} tokens were "
        f"computed again ({seconds(j.seconds)} of the mean TTFT of {seconds(e.mean)})"
    )


CAUSE = Cause(
    id="cache_eviction",
    family="prefix",
    order=20,
    judge=judge,
    headline=headline,
    next_steps=(
        "Give the prefix cache more room (KV memory, host tier, more slots) or a longer lifetime, "
        "and watch the misses by pause.",
        "Log evictions or cache use beside the requests to size it.",
    ),
    remedies=("more_cache",),
    experiment=Experiment(
        text="Give one replica more cache, or its entries more time, and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy more_cache",
    ),
)
