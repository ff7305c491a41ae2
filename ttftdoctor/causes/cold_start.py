"""Model load, compilation or wake-up from idle stands before the first token."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.units import count, seconds, share

#: Slow requests at the head of a log that are no more than this part of it are its warm-up.
WARM_UP_SHARE = 0.02


def judge(e: Evidence) -> Judgement:
    """Blame slow requests after a silence or a start."""
    c = e.cold
    if c is None:
        if not e.has("start"):
            return lacking("start", text="without times nobody knows who came first")
        return Judgement(evidence=(say("no request is slow just because it came first"),))
    if c.kind == "idle":
        text = (
            f"{count(c.n)} requests after a silence of {seconds(c.idle_s)} or more took "
            f"{seconds(c.cold_p50_s)} (worst {seconds(c.worst_s)}); the others "
            f"{seconds(c.warm_p50_s)}"
        )
    elif c.kind == "restart":
        text = (
            f"{count(c.n)} requests waited {seconds(c.cold_p50_s)} (worst {seconds(c.worst_s)}) "
            "while their server gave no token to anybody, and then all got theirs: it was starting"
        )
        if c.resets:
            text += f"; {count(c.resets)} turns found every cache emptied at once"
    elif c.kind == "load":
        text = (
            f"the server logs that it loaded the model before {count(c.n)} requests: "
            f"{seconds(c.cold_p50_s)} against {seconds(c.warm_p50_s)}"
        )
    else:
        text = (
            f"{_first(c.n)} took {seconds(c.cold_p50_s)} "
            f"(worst {seconds(c.worst_s)}); later ones {seconds(c.warm_p50_s)}"
        )
    strength = min(0.95, 0.55 + 0.4 * c.separation) if c.n >= 2 or c.kind == "load" else 0.6
    against = ""
    if c.kind == "start" and c.n <= WARM_UP_SHARE * e.population.with_ttft:
        # Once, at the very beginning, and nobody after that: whoever measured warmed it up.
        strength = 0.35
        against = f"{text}: so few, and only there, are a warm-up; leave them out of the log"
    return Judgement(
        against=against,
        strength=strength,
        seconds=c.seconds,
        evidence=(say(text, n=c.n, cold_p50_s=c.cold_p50_s, warm_p50_s=c.warm_p50_s,
                      idle_s=c.idle_s),),
    )  # fmt: skip


def _first(n: int) -> str:
    return "the first request" if n == 1 else f"the first {count(n)} requests"


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.cold
    if c is None:
        return "Cold starts"
    when = {
        "idle": f"after a silence of {seconds(c.idle_s)} or more",
        "start": "at the start",
        "restart": "while their server was starting",
        "load": "while the model is loaded",
    }[c.kind]
    return (
        f"Cold starts: {count(c.n)} requests {when} took {seconds(c.cold_p50_s)} instead of "
        f"{seconds(c.warm_p50_s)}, {share(e.share(j.seconds))} of all TTFT"
    )


CAUSE = Cause(
    id="cold_start",
    family="service",
    order=80,
    judge=judge,
    headline=headline,
    next_steps=("Keep one replica warm (keep-alive, minimum replicas) and send warm-up requests.",),
    remedies=("warm_pool",),
    experiment=Experiment(
        text="Keep one replica warm for a day and log it as after.jsonl.",
        command="ttftdoctor compare {log} after.jsonl --remedy warm_pool",
    ),
)
