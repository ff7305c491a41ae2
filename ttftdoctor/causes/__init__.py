"""The contract of a cause: one reason why the first token is late, one file.

To add a cause:

1. ``causes/NAME.py`` with ``CAUSE = Cause("NAME", ...)``.
2. Its page in ``manual/causes/NAME.md``: what it is, how it is told apart, what helps.
3. A log in ``tests/test_causes.py`` in which just this cause is planted.
4. Its title in ``report.TITLES``.

A cause sees the evidence, never a frame. It says what it would account for and how sure it is;
``verdict`` sets the causes against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ttftdoctor.diagnosis import Experiment, Interval, Statement
from ttftdoctor.evidence import Evidence
from ttftdoctor.language import tr
from ttftdoctor.units import seconds

#: Under this strength a cause is not believed to be at work.
BELIEVED = 0.4
#: So much of TTFT outside of the engine is worth a word.
ELSEWHERE = 0.25


@dataclass(frozen=True)
class Judgement:
    """What one cause makes of the evidence.

    ``strength`` is how likely it is that the cause is at work at all, from 0 to 1; ``seconds``
    what it accounts for, per request on average; ``amplified`` the part of a wait that would go
    away with another cause's work. ``needs`` non-empty and ``judged`` false: the log lacks them.
    ``settles`` means the TTFT is no TTFT (or says too little) and nothing else can be judged.
    ``against`` is the sentence to say where the cause is ruled out (by default the first of the
    evidence). ``next_steps`` and ``experiment`` are those of this log, where the cause's own would
    mislead; a log that holds the experiment itself is ``proven``, and none is proposed.
    """

    strength: float = 0.0
    seconds: float | None = None
    interval: Interval | None = None
    evidence: tuple[Statement, ...] = ()
    needs: tuple[str, ...] = ()
    judged: bool = True
    settles: bool = False
    growth_seconds: float | None = None
    amplified: float = 0.0
    against: str = ""
    next_steps: tuple[str, ...] = ()
    experiment: Experiment | None = None
    proven: bool = False


@dataclass(frozen=True)
class Step:
    """A next step that only some logs call for: those of whose evidence ``where`` holds."""

    text: str
    where: Callable[[Evidence], bool]


@dataclass(frozen=True)
class Cause:
    """One cause: identity, what it needs, and the judge.

    ``weight`` discounts costs that every healthy service has too (its own prefill, a constant)
    when causes are ranked. ``headline`` and ``next_steps`` are the words of the verdict.
    ``experiment`` would prove or disprove it: in its command ``{log}`` stands for the log, and
    ``after.jsonl`` for a log of the same traffic with the change.
    """

    id: str
    family: str
    order: int
    judge: Callable[[Evidence], Judgement]
    headline: Callable[[Evidence, Judgement], str]
    next_steps: tuple[str | Step, ...]
    remedies: tuple[str, ...] = ()
    weight: float = 1.0
    experiment: Experiment | None = None


def unlogged(text: str, column: str) -> Step:
    """A step that asks for a column to be logged, where it is not."""
    return Step(text, lambda e: not e.has(column))


def say(text: str, **figures: float | str | None) -> Statement:
    """A sentence of evidence with its figures."""
    return Statement(text, figures)


def elsewhere(e: Evidence) -> tuple[Statement, ...]:
    """That much of TTFT passes outside of the engine, where its own times tell so."""
    if e.inside_s is None or (e.share(e.outside_s) or 0.0) < ELSEWHERE:
        return ()
    text = tr(
        "by the engine's own times its queue and prefill take {inside} on average: {outside} "
        "passes before or outside the engine",
        inside=seconds(e.inside_s), outside=seconds(e.outside_s),
    )  # fmt: skip
    return (say(text, inside_s=e.inside_s, outside_s=e.outside_s),)


def lacking(*needs: str, text: str) -> Judgement:
    """A judgement that could not be made, and the columns that would let it be."""
    return Judgement(judged=False, needs=needs, evidence=(Statement(text),))
