"""The log cannot tell."""

from __future__ import annotations

from ttftdoctor.causes import Cause, Judgement, elsewhere, say
from ttftdoctor.diagnosis import Experiment
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import mark, tr
from ttftdoctor.splitting import next_step, told
from ttftdoctor.units import count, seconds, share

#: Fewer first-token times than this say nothing about a service.
FEWEST = 8
USEFUL = ("input_tokens", "start", "session_id", "cached_tokens", "e2e_us", "replica", "queue_us")


def judge(e: Evidence) -> Judgement:
    """Hold back when there is too little to go by, or too little is explained."""
    n = e.population.with_ttft
    missing = tuple(c for c in USEFUL if e.coverage.get(c, 0.0) < 0.5)
    if n == 0:
        text = tr("the log has no time to first token")
        if e.repeated.repeated_tokens:
            text += tr(
                "; of its {n} prompt tokens {part} repeat what an earlier request had",
                n=count(e.repeated.input_tokens),
                part=share(e.repeated.repeated_tokens / max(e.repeated.input_tokens, 1)),
            )
        return Judgement(
            strength=0.97, evidence=(say(text, with_ttft=0),), needs=("ttft_us", *missing[:3]),
            settles=True,
        )  # fmt: skip
    if n < FEWEST:
        text = tr("only {n} requests have a first-token time", n=n)
        step = tr(
            "Give more of the log: at least {n} requests with a first-token time, and a hundred or "
            "more for narrow intervals.",
            n=FEWEST,
        )
        return Judgement(
            strength=0.95, evidence=(say(text, n=n),), needs=missing, settles=True,
            next_steps=(step,),
        )  # fmt: skip
    blind = not e.has("input_tokens") and n < 30
    if blind and not (e.cold or e.change or e.contrast):
        text = tr("{n} first-token times without input tokens explain nothing", n=n)
        return Judgement(strength=0.85, needs=missing, settles=True, evidence=(say(text, n=n),))
    left = e.unexplained_s + e.untold_s
    part = e.share(left) or 0.0
    strength = 0.0
    if part >= 0.25:
        strength = 0.4 + 0.5 * min(part, 1.0)
    text = tr(
        "{time} of the mean TTFT ({part}) is explained by nothing in the log",
        time=seconds(left), part=share(part),
    )  # fmt: skip
    steps: tuple[str, ...] = ()
    if strength > 0 and e.splitter is not None:
        text = tr(
            "no column explains {time} of the mean TTFT ({part}), but a field that none uses "
            "does: {found}",
            time=seconds(left), part=share(part), found=told(e.splitter),
        )  # fmt: skip
        steps = (next_step(e.splitter),)
    return Judgement(
        strength=strength, seconds=max(left, 0.0), needs=missing, next_steps=steps,
        against=tr("all of the mean TTFT is accounted for") if part <= 0 else
        tr("{part} of the mean TTFT is accounted for", part=share(1 - part)),
        evidence=(say(text, unexplained_share=part), *(elsewhere(e) if strength else ())),
    )  # fmt: skip


def headline(e: Evidence, j: Judgement) -> str:
    """One sentence that says what is missing."""
    return tr("The log cannot tell why: {reason}", reason=j.evidence[0].text)


CAUSE = Cause(
    id="insufficient_data",
    family="data",
    order=2,
    judge=judge,
    headline=headline,
    next_steps=(
        mark("Log the columns named below for each request, and run the diagnosis again."),
    ),
    weight=0.7,
    experiment=Experiment(
        text=mark(
            "See which columns were found, and which causes each missing one would let be judged."
        ),
        command="ttftdoctor inspect {log}",
    ),
)
