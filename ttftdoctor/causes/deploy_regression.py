"""The same work costs more since a moment in time: a release, a setting, a driver."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.units import seconds, share


def judge(e: Evidence) -> Judgement:
    """Blame a lasting jump in the cost of the same work."""
    c = e.change
    if c is None:
        if not e.has("start"):
            return lacking("start", text="without times no moment can be found")
        return Judgement(evidence=(say("the cost of the same work does not jump and stay up"),))
    text = (
        f"since {c.at or 'a moment'} (line {c.row}) the same work takes {c.ratio:.2f} times as "
        f"long: {seconds(c.before_p50_s)} before, {seconds(c.after_p50_s)} after"
    )
    if c.scope:
        text = f"on {c.scope}: {text}"
    if c.version:
        text += f"; the version changed from {c.version}"
    strength = 0.95 if c.version else 0.8
    if not c.of_service:
        strength = 0.25
        text += f"; but {c.load_ratio:.1f} times as many requests were in flight"
    return Judgement(
        strength=strength, seconds=c.seconds,
        evidence=(say(text, ratio=c.ratio, before_p50_s=c.before_p50_s, after_p50_s=c.after_p50_s,
                      p_value=c.p_value, version=c.version),),
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.change
    if c is None:
        return "The service changed"
    release = f" ({c.version})" if c.version else ""
    where = f" on {c.scope}" if c.scope else ""
    return (
        f"Since {c.at or 'one moment'}{release}{where} the same work takes {c.ratio:.1f} times "
        f"as long: TTFT {seconds(c.before_p50_s)} before and {seconds(c.after_p50_s)} after, "
        f"{share(e.share(j.seconds))} of all TTFT"
    )


CAUSE = Cause(
    id="deploy_regression",
    family="service",
    order=100,
    judge=judge,
    headline=headline,
    next_steps=(
        "See what was released at that moment; roll back one replica and compare on the same load.",
    ),
    remedies=("rollback",),
    weight=1.2,
    experiment=Experiment(
        text="Roll one replica back, send it the same traffic and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy rollback",
    ),
)
