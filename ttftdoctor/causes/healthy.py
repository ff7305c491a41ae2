"""Nothing is wrong: first tokens take what their new tokens cost."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import hits_cost
from ttftdoctor.units import count, seconds, share

#: So much may be lost per request without anybody being the worse for it.
UNNOTICED_S = 0.05


def judge(e: Evidence) -> Judgement:
    """The complement: strong where little is lost and much is explained."""
    if e.mean is None:
        return Judgement(judged=False, needs=("ttft_us",))
    waiting = e.wait.mean if e.wait else 0.0
    lost = e.prefill_repeated_s + waiting + max(e.unexplained_s, 0.0)
    part = min(max(e.share(lost) or 0.0, 0.0), 1.0)
    noticed = min(max(e.share(lost - UNNOTICED_S) or 0.0, 0.0), 1.0)
    text = (
        f"{share(1 - part)} of TTFT is a constant and the prefill of new tokens; "
        f"p50 {seconds(e.population.ttft_p50_s)}, p95 {seconds(e.population.ttft_p95_s)}"
    )
    evidence = [say(text, lost_share=part)]
    needs: tuple[str, ...] = ()
    works = hits_cost(e)
    evidence += works
    if not works and e.reuse is not None and e.reuse.hit_share >= 0.5:
        evidence.append(
            say(f"{share(e.reuse.hit_share)} of the turns that could reuse a prefix did",
                hit_share=e.reuse.hit_share)
        )  # fmt: skip
    if e.unknown_ancestry >= 0.3 and e.longest_prompts > 1500:
        text = (
            f"prompts reach {count(e.longest_prompts)} tokens, and of {share(e.unknown_ancestry)} "
            "of all prompt tokens nothing tells whether they repeat earlier ones: session ids "
            "would decide"
        )
        evidence.append(say(text, unknown_share=e.unknown_ancestry))
        needs = ("session_id",)
    return Judgement(
        strength=max(0.0, 0.95 - noticed), seconds=0.0, evidence=tuple(evidence), needs=needs
    )


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    known = ""
    if j.needs:
        known = "; session ids would decide whether long prompts are computed again"
    return (
        f"Nothing {'seems' if j.needs else 'is'} wrong: "
        f"TTFT is {seconds(e.population.ttft_p50_s)} at the median and "
        f"{seconds(e.population.ttft_p95_s)} at the 95th percentile, and "
        f"{j.evidence[0].text.split(';')[0]}{known}"
    )


CAUSE = Cause(
    id="healthy",
    family="none",
    order=200,
    judge=judge,
    headline=headline,
    next_steps=("Keep this log as a baseline.",),
    experiment=Experiment(
        text="See what the slowest requests differ in: where nothing is wrong, in no more than "
        "their new tokens.",
        command="ttftdoctor contrast {log} --select 'ttft > p95'",
    ),
)
