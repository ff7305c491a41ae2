"""A constant that requests pay (gateway, network, tokenising, a timer), or one slow path."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment, Statement
from ttftdoctor.evidence import Contrast, Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.lost_reuse import hits_cost
from ttftdoctor.splitting import next_step, told
from ttftdoctor.units import count, seconds, share

#: A constant below this is what networks and front ends usually cost.
USUAL_S = 0.3


def judge(e: Evidence) -> Judgement:
    """Blame a constant that one path pays and another does not, or a large one all pay."""
    c = e.contrast
    if c is not None and c.ratio is not None:
        return _slow_part(c)
    if c is not None:
        text = tr(
            "{column} {value} takes {slow} where {best} takes {quick} for the same tokens: a "
            "constant of {constant}",
            column=c.column, value=c.value, slow=seconds(c.level_s), best=c.best,
            quick=seconds(c.best_level_s), constant=seconds(c.constant_s),
        )  # fmt: skip
        return Judgement(
            strength=0.9, seconds=c.seconds,
            evidence=(say(text, constant_s=c.constant_s, level_s=c.level_s,
                          best_level_s=c.best_level_s), *_beside(e)),
            next_steps=() if e.splitter is None else (next_step(e.splitter),),
        )  # fmt: skip
    t = e.timer
    if t is not None:
        text = tr(
            "{n} requests ({part}) are late by {step} or whole multiples of it, whatever their "
            "length and the load: a timer on the path",
            n=count(t.n), part=share(t.share), step=seconds(t.step_s),
        )  # fmt: skip
        return Judgement(
            strength=0.75, seconds=t.seconds, evidence=(say(text, step_s=t.step_s, n=t.n),)
        )
    if e.fixed_s is None or not e.fixed_separable:
        return lacking(
            "input_tokens",
            text=tr(
                "the lengths hardly vary (or are not logged), so a constant cannot be told from "
                "prefill"
            ),
        )
    extra = max(0.0, e.fixed_s - USUAL_S)
    part = e.share(extra) or 0.0
    evidence = (
        say(tr("the constant part of TTFT is {constant} ({part})", constant=seconds(e.fixed_s),
               part=share(e.share(e.fixed_s))),
            fixed_s=e.fixed_s),
        *hits_cost(e),
    )  # fmt: skip
    strength = 0.0
    if extra > 0.2 and part >= 0.3:
        strength = 0.45 + 0.4 * min(part, 1.0)
        line = e.lines.prefill
        if line is not None and (line.residual_p50_ms or 0.0) > 0.5e3 * e.fixed_s:
            strength *= 0.5  # what spreads that widely is no constant
    constant = seconds(e.fixed_s)
    if extra <= USUAL_S:
        against = tr(
            "the constant part of TTFT is {constant}: what any service pays", constant=constant
        )
    else:
        against = tr(
            "the constant part of TTFT is {constant}: too little, or too unsteady",
            constant=constant,
        )
    return Judgement(strength=strength, seconds=extra, evidence=evidence, against=against)


def _beside(e: Evidence) -> tuple[Statement, ...]:
    """What a field says of it that no column uses."""
    s = e.splitter
    return () if s is None else (say(told(s), more_s=s.more_s, n=s.n, seconds=s.seconds),)


def _slow_part(c: Contrast) -> Judgement:
    """Blame one part of the service, all of whose work takes longer than elsewhere."""
    text = tr(
        "{column} {value} takes {ratio} times as long as the others for the same tokens with "
        "nobody ahead, for short and long prompts alike, all through the log: {slow} where they "
        "take {quick}",
        column=c.column, value=c.value, ratio=format(c.ratio, ".1f"), slow=seconds(c.level_s),
        quick=seconds(c.best_level_s),
    )  # fmt: skip
    step = tr(
        "Take {column} {value} out of the rotation and send it the same prompts as one of the "
        "others: compare clock speed, temperature and power limit, driver and settings, and what "
        "else runs on the machine.",
        column=c.column, value=c.value,
    )  # fmt: skip
    return Judgement(
        strength=0.9, seconds=c.seconds,
        evidence=(say(text, ratio=c.ratio, level_s=c.level_s, best_level_s=c.best_level_s, n=c.n),),
        next_steps=(step,),
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.contrast
    if c is not None and c.ratio is not None:
        return tr(
            "A slow path: {column} {value} takes {ratio} times as long as the others for the same "
            "tokens, {slow} where they take {quick}: {part} of all TTFT",
            column=c.column, value=c.value, ratio=format(c.ratio, ".1f"), slow=seconds(c.level_s),
            quick=seconds(c.best_level_s), part=share(e.share(j.seconds)),
        )  # fmt: skip
    if c is not None:
        return tr(
            "A constant of {constant} on {column} {value}: {slow} there against {quick} on {best}, "
            "whatever the tokens",
            constant=seconds(c.constant_s), column=c.column, value=c.value,
            slow=seconds(c.level_s), quick=seconds(c.best_level_s), best=c.best,
        )  # fmt: skip
    t = e.timer
    if t is not None:
        return tr(
            "A timer: {late} of the requests are late by {step} or a multiple of it, {part} of all "
            "TTFT",
            late=share(t.share), step=seconds(t.step_s), part=share(e.share(j.seconds)),
        )  # fmt: skip
    return tr(
        "Every request pays a constant of {constant}, whatever its length: {part} of the mean TTFT "
        "of {mean}",
        constant=seconds(e.fixed_s), part=share(e.share(e.fixed_s)), mean=seconds(e.mean),
    )  # fmt: skip


CAUSE = Cause(
    id="fixed_overhead",
    family="service",
    order=90,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "Send the same short request around the gateway and compare; look for timers, DNS and "
            "database calls on the slow path."
        ),
    ),
    remedies=("faster_gateway",),
    weight=0.8,
    experiment=Experiment(
        text=mark(
            "Send the same traffic around the slow path (the gateway, a lookup) and log it as "
            "after.jsonl."
        ),
        command="ttftdoctor compare {log} after.jsonl --remedy faster_gateway",
    ),
)
