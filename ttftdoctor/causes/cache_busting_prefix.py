"""The prompt changes near its head, so nothing after that place can be reused."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import count, seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "cache_busting_prefix")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    if e.reuse and e.reuse.stuck_at:
        return tr(
            "The prompt changes near its head (after {n} tokens), so the history behind it is "
            "prefilled again: {time} of the mean TTFT of {mean} ({part})",
            n=count(e.reuse.stuck_at), time=seconds(j.seconds), mean=seconds(e.mean),
            part=share(e.share(j.seconds)),
        )  # fmt: skip
    return tr(
        "The prompt changes near its head, so the history behind it is prefilled again: {time} of "
        "the mean TTFT of {mean} ({part})",
        time=seconds(j.seconds), mean=seconds(e.mean), part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="cache_busting_prefix",
    family="prefix",
    order=30,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Compare the prompts of two turns of one session byte by byte and move what differs "
            "(clock, id, tool order) behind what stays."
        ),
        mark(
            "See what first differs with ttftdoctor prefix, from prompts, token ids or block "
            "hashes in the log."
        ),
    ),
    remedies=("stable_prefix",),
    experiment=Experiment(
        text=mark(
            "Move what changes (dates, ids, sorted tools) behind the history and log it as "
            "after.jsonl."
        ),
        command="ttftdoctor compare {log} after.jsonl --remedy stable_prefix",
    ),
)
