"""History that was prefilled before is prefilled again on every turn: there is no reuse at all."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, unlogged
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "repeated_prefix_no_reuse")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    switched = e.reuse.switched if e.reuse is not None else None
    if switched is not None:
        figures = {
            "at": switched.at or tr("one moment"), "time": seconds(j.seconds),
            "release": tr(" ({versions})", versions=switched.version) if switched.version else "",
            "mean": seconds(e.mean), "part": share(e.share(j.seconds)),
        }  # fmt: skip
        if switched.lost:
            return tr(
                "Since {at}{release} the cache finds nothing, and history is prefilled again on "
                "every turn: {time} of the mean TTFT of {mean} ({part})",
                **figures,
            )
        return tr(
            "Until {at}{release} history was prefilled again on every turn, {time} of the mean "
            "TTFT of {mean} ({part}); since then the cache works",
            **figures,
        )
    return tr(
        "History is prefilled again on every turn: {again} of all prompt tokens were computed "
        "before, which is {time} of the mean TTFT of {mean} ({part})",
        again=share(e.repeated.recomputed_share), time=seconds(j.seconds), mean=seconds(e.mean),
        part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="repeated_prefix_no_reuse",
    family="prefix",
    order=10,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Switch on prefix caching and compare turn 2 with turn 1 (vLLM: "
            "--enable-prefix-caching; llama.cpp: cache_prompt)."
        ),
        unlogged(
            mark("Log cached tokens per request, so that reuse is counted and not inferred."),
            "cached_tokens",
        ),
    ),
    remedies=("prefix_cache", "history_compaction"),
    experiment=Experiment(
        text=mark(
            "Serve the same traffic for an hour with prefix caching on and log it as after.jsonl."
        ),
        command="ttftdoctor compare {log} after.jsonl --remedy prefix_cache",
    ),
)
