"""Nothing is wrong: first tokens take what their new tokens cost.

What it is
    No repeated work, no waiting to speak of, no constant, no jump.
Why the first token waits
    Only for its own prefill.
How it is told from its neighbours
    TTFT follows uncached tokens with little left over. It may still grow a little with context.
When it cannot be told
    When the log lacks the columns that would show a cause.
What helps
    Nothing is needed.
"""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, say
from ttftdoctor.evidence import Evidence
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """The complement: strong where little is lost and much is explained."""
    if e.mean is None:
        return Judgement(judged=False, needs=("ttft_us",))
    waiting = e.wait.mean if e.wait else 0.0
    lost = e.prefill_repeated_s + waiting + max(e.unexplained_s, 0.0)
    part = min(max(e.share(lost) or 0.0, 0.0), 1.0)
    text = (
        f"{share(1 - part)} of TTFT is a constant and the prefill of new tokens; "
        f"p50 {seconds(e.population.ttft_p50_s)}, p95 {seconds(e.population.ttft_p95_s)}"
    )
    evidence = [say(text, lost_share=part)]
    if e.reuse is not None and e.reuse.hit_share >= 0.5:
        evidence.append(
            say(f"{share(e.reuse.hit_share)} of the turns that could reuse a prefix did",
                hit_share=e.reuse.hit_share)
        )  # fmt: skip
    return Judgement(strength=max(0.0, 0.95 - part), seconds=0.0, evidence=tuple(evidence))


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    return (
        f"Nothing is wrong: TTFT is {seconds(e.population.ttft_p50_s)} at the median and "
        f"{seconds(e.population.ttft_p95_s)} at the 95th percentile, and "
        f"{j.evidence[0].text.split(';')[0]}"
    )


CAUSE = Cause(
    id="healthy",
    family="none",
    order=200,
    judge=judge,
    headline=headline,
    next_steps=("Keep this log as a baseline.",),
)
