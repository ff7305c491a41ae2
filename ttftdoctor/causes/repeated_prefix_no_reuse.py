"""History that was prefilled before is prefilled again on every turn: there is no reuse at all.

What it is
    Each turn sends the whole conversation; without a prefix cache every turn computes all of it.
Why the first token waits
    Prefill grows with the input, so the first token comes later with every turn; the same work
    also fills the queue of everybody else.
How it is told from its neighbours
    Turn 2 costs what its whole input costs, not what is new in it. Long new inputs cost as much
    but repeat nothing. A prompt that changes at one place leaves a constant number of cached
    tokens, or writes to the cache without reading; expiry and routing leave some hits.
When it cannot be told
    Without session ids, prompt blocks or cached tokens nothing says what is repeated. With
    cached tokens always 0, only prompt blocks can tell it from a prompt that changes at its head.
What helps
    Prefix caching: computed once, used on every turn. Compacting the history computes less, at
    the price of one more inference and of detail. Chunked prefill and separate pools only change
    who waits.
"""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import judge_prefix
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame recomputed history if its pattern is this cause's."""
    return judge_prefix(e, "repeated_prefix_no_reuse")


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return (
        f"History is prefilled again on every turn: {share(e.repeated.recomputed_share)} of all "
        f"prompt tokens were computed before, which is {seconds(j.seconds)} of the mean TTFT "
        f"of {seconds(e.mean)} ({share(e.share(j.seconds))})"
    )


CAUSE = Cause(
    id="repeated_prefix_no_reuse",
    family="prefix",
    order=10,
    judge=judge,
    headline=headline,
    next_steps=(
        "Switch on prefix caching and compare turn 2 with turn 1 (vLLM: "
        "--enable-prefix-caching; llama.cpp: cache_prompt).",
        "Log cached tokens per request, so that reuse is counted and not inferred.",
    ),
    remedies=("prefix_cache", "history_compaction"),
    experiment=Experiment(
        text="Serve the same traffic for an hour with prefix caching on and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy prefix_cache",
    ),
)
