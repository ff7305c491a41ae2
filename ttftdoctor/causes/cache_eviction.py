"""Reuse exists, but entries are gone when the next turn comes: too little room, or expired."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "cache_eviction")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return tr(
        "Cached prefixes are gone when the next turn comes: {lost} of the turns that could have "
        "reused one got little or nothing, and {n} tokens were computed again ({time} of the mean "
        "TTFT of {mean})",
        lost=share(1 - e.reuse.hit_share if e.reuse else None),
        n=count(e.repeated.recomputed_tokens), time=seconds(j.seconds), mean=seconds(e.mean),
    )  # fmt: skip


CAUSE = Cause(
    id="cache_eviction",
    family="prefix",
    order=20,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Give the prefix cache more room (KV memory, host tier, more slots) or a longer "
            "lifetime, and watch the misses by pause."
        ),
        mark("Log evictions or cache use beside the requests to size it."),
    ),
    remedies=("more_cache",),
    experiment=Experiment(
        text=mark(
            "Give one replica more cache, or its entries more time, and log it as after.jsonl."
        ),
        command="ttftdoctor compare {log} after.jsonl --remedy more_cache",
    ),
)
