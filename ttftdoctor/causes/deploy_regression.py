"""The same work costs more since a moment in time: a release, a setting, a driver."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame a lasting jump in the cost of the same work."""
    c = e.change
    if c is None:
        if not e.has("start"):
            return lacking("start", text=tr("without times no moment can be found"))
        return Judgement(evidence=(say(tr("the cost of the same work does not jump and stay up")),))
    text = tr(
        "since {at} (line {row}) the same work takes {ratio} times as long: {before} before, "
        "{after} after",
        at=c.at or tr("a moment"), row=c.row, ratio=format(c.ratio, ".2f"),
        before=seconds(c.before_p50_s), after=seconds(c.after_p50_s),
    )  # fmt: skip
    if c.scope:
        text = tr("on {where}: {sentence}", where=c.scope, sentence=text)
    if c.version:
        text += tr("; the version changed from {versions}", versions=c.version)
    strength = 0.95 if c.version else 0.8
    if not c.of_service:
        strength = 0.25
        text += tr(
            "; but {ratio} times as many requests were in flight", ratio=format(c.load_ratio, ".1f")
        )
    return Judgement(
        strength=strength, seconds=c.seconds,
        evidence=(say(text, ratio=c.ratio, before_p50_s=c.before_p50_s, after_p50_s=c.after_p50_s,
                      p_value=c.p_value, version=c.version),),
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.change
    if c is None:
        return tr("The service changed")
    return tr(
        "Since {at}{release}{where} the same work takes {ratio} times as long: TTFT {before} "
        "before and {after} after, {part} of all TTFT",
        at=c.at or tr("one moment"),
        release=tr(" ({versions})", versions=c.version) if c.version else "",
        where=tr(" on {where}", where=c.scope) if c.scope else "",
        ratio=format(c.ratio, ".1f"), before=seconds(c.before_p50_s), after=seconds(c.after_p50_s),
        part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="deploy_regression",
    family="service",
    order=100,
    judge=judge,
    headline=headline,
    next_steps=(
        mark(
            "See what was released at that moment; roll back one replica and compare on the same "
            "load."
        ),
    ),
    remedies=("rollback",),
    weight=1.2,
    experiment=Experiment(
        text=mark("Roll one replica back, send it the same traffic and log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl --remedy rollback",
    ),
)
