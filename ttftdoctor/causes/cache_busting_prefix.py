"""The prompt changes near its head, so nothing after that place can be reused."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "cache_busting_prefix")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return (
        "The prompt changes near its head"
        + (f" (after {count(e.reuse.stuck_at)} tokens)" if e.reuse and e.reuse.stuck_at else "")
        + f", so the history behind it is prefilled again: {seconds(j.seconds)} of the mean TTFT "
        f"of {seconds(e.mean)} ({share(e.share(j.seconds))})"
    )


CAUSE = Cause(
    id="cache_busting_prefix",
    family="prefix",
    order=30,
    judge=judge,
    headline=headline,
    next_steps=(
        "Compare the prompts of two turns of one session byte by byte and move what differs "
        "(clock, id, tool order) behind what stays.",
        "See what first differs with ttftdoctor prefix, from prompts, token ids or block hashes "
        "in the log.",
    ),
    remedies=("stable_prefix",),
    experiment=Experiment(
        text="Move what changes (dates, ids, sorted tools) behind the history and log it as "
        "after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy stable_prefix",
    ),
)
