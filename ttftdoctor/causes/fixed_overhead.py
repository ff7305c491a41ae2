"""A constant paid by every request: gateway, network, tokenising, templates, a timer."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.lost_reuse import hits_cost
from ttftdoctor.units import count, seconds, share

#: A constant below this is what networks and front ends usually cost.
USUAL_S = 0.3


def judge(e: Evidence) -> Judgement:
    """Blame a constant that one path pays and another does not, or a large one all pay."""
    c = e.contrast
    if c is not None:
        text = (
            f"{c.column} {c.value} takes {seconds(c.level_s)} where {c.best} takes "
            f"{seconds(c.best_level_s)} for the same tokens: a constant of {seconds(c.constant_s)}"
        )
        return Judgement(
            strength=0.9, seconds=c.seconds,
            evidence=(say(text, constant_s=c.constant_s, level_s=c.level_s,
                          best_level_s=c.best_level_s),),
        )  # fmt: skip
    t = e.timer
    if t is not None:
        text = (
            f"{count(t.n)} requests ({share(t.share)}) are late by {seconds(t.step_s)} or whole "
            "multiples of it, whatever their length and the load: a timer on the path"
        )
        return Judgement(
            strength=0.75, seconds=t.seconds, evidence=(say(text, step_s=t.step_s, n=t.n),)
        )
    if e.fixed_s is None or not e.fixed_separable:
        return lacking("input_tokens", text="the lengths hardly vary (or are not logged), so a "
                       "constant cannot be told from prefill")  # fmt: skip
    extra = max(0.0, e.fixed_s - USUAL_S)
    part = e.share(extra) or 0.0
    evidence = (
        say(f"the constant part of TTFT is {seconds(e.fixed_s)} ({share(e.share(e.fixed_s))})",
            fixed_s=e.fixed_s),
        *hits_cost(e),
    )  # fmt: skip
    strength = 0.0
    if extra > 0.2 and part >= 0.3:
        strength = 0.45 + 0.4 * min(part, 1.0)
        line = e.lines.prefill
        if line is not None and (line.residual_p50_ms or 0.0) > 0.5e3 * e.fixed_s:
            strength *= 0.5  # what spreads that widely is no constant
    against = f"the constant part of TTFT is {seconds(e.fixed_s)}: "
    against += "what any service pays" if extra <= USUAL_S else "too little, or too unsteady"
    return Judgement(strength=strength, seconds=extra, evidence=evidence, against=against)


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.contrast
    if c is not None:
        return (
            f"A constant of {seconds(c.constant_s)} on {c.column} {c.value}: {seconds(c.level_s)} "
            f"there against {seconds(c.best_level_s)} on {c.best}, whatever the tokens"
        )
    t = e.timer
    if t is not None:
        return (
            f"A timer: {share(t.share)} of the requests are late by {seconds(t.step_s)} or a "
            f"multiple of it, {share(e.share(j.seconds))} of all TTFT"
        )
    return (
        f"Every request pays a constant of {seconds(e.fixed_s)}, whatever its length: "
        f"{share(e.share(e.fixed_s))} of the mean TTFT of {seconds(e.mean)}"
    )


CAUSE = Cause(
    id="fixed_overhead",
    family="service",
    order=90,
    judge=judge,
    headline=headline,
    next_steps=(
        "Send the same short request around the gateway and compare; look for timers, DNS and "
        "database calls on the slow path.",
    ),
    remedies=("faster_gateway",),
    weight=0.8,
    experiment=Experiment(
        text="Send the same traffic around the slow path (the gateway, a lookup) and log it as "
        "after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy faster_gateway",
    ),
)
