"""Model load, compilation or wake-up from idle stands before the first token."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, lacking, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Cold, Evidence
from ttftdoctor.language import mark, tr, tr_n
from ttftdoctor.units import count, seconds, share

#: Slow requests at the head of a log that are no more than this part of it are its warm-up.
WARM_UP_SHARE = 0.02

#: What helps where no silence unloads the model: a warm replica would load it as often.
STEPS = {
    "swap": (
        mark(
            "Models take turns in memory: let them stay side by side (Ollama: "
            "OLLAMA_MAX_LOADED_MODELS, more memory, smaller models or contexts), or give each "
            "model a server of its own."
        ),
    ),
    "reload": (
        mark(
            "No silence unloads the model: see what makes the server load it again. Ollama does "
            "so when options such as num_ctx differ from the request before, or with keep_alive "
            "0; send the same options from all clients, or set them in the model."
        ),
    ),
}
EXPERIMENTS = {
    "swap": Experiment(
        text=mark("Give each model a server of its own for an hour and log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl",
    ),
    "reload": Experiment(
        text=mark("Send the same options with all requests for an hour; log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl",
    ),
}


def judge(e: Evidence) -> Judgement:
    """Blame slow requests after a silence or a start."""
    c = e.cold
    if c is None:
        if not e.has("start"):
            return lacking("start", text=tr("without times nobody knows who came first"))
        return Judgement(evidence=(say(tr("no request is slow just because it came first")),))
    text = _slow(c)
    strength = min(0.95, 0.55 + 0.4 * c.separation) if c.n >= 2 or c.kind == "load" else 0.6
    against = ""
    if c.kind == "start" and c.n <= WARM_UP_SHARE * e.population.with_ttft:
        # Once, at the very beginning, and nobody after that: whoever measured warmed it up.
        strength = 0.35
        against = tr(
            "{slow}: so few, and only there, are a warm-up; leave them out of the log", slow=text
        )
    return Judgement(
        against=against,
        strength=strength,
        seconds=c.seconds,
        evidence=(say(text, n=c.n, cold_p50_s=c.cold_p50_s, warm_p50_s=c.warm_p50_s,
                      idle_s=c.idle_s),),
        next_steps=tuple(tr(step) for step in STEPS.get(c.why, ())),
        experiment=EXPERIMENTS.get(c.why),
    )  # fmt: skip


def _slow(c: Cold) -> str:
    """Which requests were slow, and by how much."""
    n, slow, worst = count(c.n), seconds(c.cold_p50_s), seconds(c.worst_s)
    others = seconds(c.warm_p50_s)
    if c.kind == "idle":
        return tr(
            "{n} requests after a silence of {idle} or more took {slow} (worst {worst}); the "
            "others {others}",
            n=n, idle=seconds(c.idle_s), slow=slow, worst=worst, others=others,
        )  # fmt: skip
    if c.kind == "restart":
        text = tr(
            "{n} requests waited {slow} (worst {worst}) while their server gave no token to "
            "anybody, and then all got theirs: it was starting",
            n=n, slow=slow, worst=worst,
        )  # fmt: skip
        if c.resets:
            text += tr("; {n} turns found every cache emptied at once", n=count(c.resets))
        return text
    if c.kind == "swap":
        return tr(
            "{n} requests for another model than the request before took {slow} (worst {worst}); "
            "the others {others}",
            n=n, slow=slow, worst=worst, others=others,
        )  # fmt: skip
    if c.kind == "load":
        text = tr(
            "the server logs that it loaded the model before {n} requests: {slow} against {others}",
            n=n, slow=slow, others=others,
        )  # fmt: skip
        if c.why == "swap":
            text += tr("; they ask for another model than the request before")
        if c.why == "reload":
            text += tr("; no silence came before them")
        return text
    return tr_n(
        "the first request took {slow} (worst {worst}); later ones {others}",
        "the first {n} requests took {slow} (worst {worst}); later ones {others}",
        c.n, n=n, slow=slow, worst=worst, others=others,
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence with the figures that prove it."""
    c = e.cold
    if c is None:
        return tr("Cold starts")
    when = {
        "idle": tr("after a silence of {idle} or more", idle=seconds(c.idle_s)),
        "start": tr("at the start"),
        "restart": tr("while their server was starting"),
        "load": tr("while the model is loaded"),
        "swap": tr("while one model takes the place of another"),
    }["swap" if c.why == "swap" else c.kind]
    if c.why == "reload":
        when = tr("while the model is loaded again")
    return tr(
        "Cold starts: {n} requests {when} took {slow} instead of {usual}, {part} of all TTFT",
        n=count(c.n), when=when, slow=seconds(c.cold_p50_s), usual=seconds(c.warm_p50_s),
        part=share(e.share(j.seconds)),
    )  # fmt: skip


CAUSE = Cause(
    id="cold_start",
    family="service",
    order=80,
    judge=judge,
    headline=headline,
    next_steps=(
        mark("Keep one replica warm (keep-alive, minimum replicas) and send warm-up requests."),
    ),
    remedies=("warm_pool",),
    experiment=Experiment(
        text=mark("Keep one replica warm for a day and log it as after.jsonl."),
        command="ttftdoctor compare {log} after.jsonl --remedy warm_pool",
    ),
)
