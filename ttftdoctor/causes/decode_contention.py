"""Batch slots or steps are taken by decoding, so that prefill has to wait for them.

What it is
    Engines decode many requests in one step. A newcomer waits for a free slot, or its prefill
    shares each step with the others.
Why the first token waits
    For a slot, or because steps full of decoding (or of others' prefill) take longer.
How it is told from its neighbours
    The wait goes with the number of requests that are decoding at arrival, not with the prefill
    work ahead, and decode itself slows down with load.
When it cannot be told
    Without the end of each request nobody knows who was decoding.
What helps
    More slots if memory allows, prefill and decode in separate pools, smaller chunks.
"""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.evidence import Evidence
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame the part of the wait that goes with requests decoding."""
    w = e.wait
    if w is None or not e.has("e2e_us"):
        return lacking("e2e_us", "start", text="without the end of each request nobody knows who "
                       "was decoding")  # fmt: skip
    part = w.decoding_mean
    slope = e.lines.decode.slope_per_running_ms if e.lines.decode else None
    evidence = [
        say(f"{seconds(part)} of the mean TTFT ({share(e.share(part))}) goes with the number of "
            "requests decoding", decoding_s=part)
    ]  # fmt: skip
    if slope is not None:
        evidence.append(
            say(f"decode slows by {slope:.2g} ms a token for each request running",
                slope_per_running_ms=slope)
        )  # fmt: skip
    follows = w.follows_decoding or 0.0
    strength = 0.1
    if part > 0:
        ahead = follows - (w.follows_backlog or 0.0)
        strength = min(0.85, 0.3 + 0.5 * min(max(follows, 0.0) / 0.5, 1.0) + 0.3 * max(ahead, 0.0))
    return Judgement(strength=strength, seconds=part, evidence=tuple(evidence))


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return (
        f"First tokens wait for slots and steps that decoding holds: {seconds(j.seconds)} of the "
        f"mean TTFT of {seconds(e.mean)} ({share(e.share(j.seconds))})"
    )


CAUSE = Cause(
    id="decode_contention",
    family="load",
    order=60,
    judge=judge,
    headline=headline,
    next_steps=(
        "Raise the number of sequences if KV memory allows (vLLM: --max-num-seqs), or split "
        "prefill and decode into separate pools.",
    ),
    remedies=("disaggregated_prefill", "double_capacity"),
)
