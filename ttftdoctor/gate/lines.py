"""The prefill line of two sides: what the same work costs, free of the traffic.

Coefficients of two fits cannot be set beside each other one by one: they trade off against each
other, and one fit may have a term that the other lacks. What is compared is what the lines say of
the same work, that of the baseline: the slope between its typical short and long prompts, and
the cost of a prompt without new tokens at its typical cached context. Both are sums of
coefficients, so that their error follows from the covariance of each fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ttftdoctor.gate.estimate import Estimate
from ttftdoctor.gate.even import ENOUGH_RUNS, freedom_of
from ttftdoctor.gate.sketch import Line, Sketch
from ttftdoctor.language import tr
from ttftdoctor.measure.rows import Array

Part = Literal["prefill_slope", "prefill_fixed"]

#: Degrees of freedom of an error that comes from resampled fits.
FREEDOM = 60.0


def line_estimate(
    baseline: Sequence[Sketch], current: Sequence[Sketch], part: Part, model: str | None
) -> Estimate | str:
    """Compare one part of the prefill lines; a text says why it cannot be.

    Returns
    -------
    Estimate or str
        ``prefill_slope`` in ms per 1,000 tokens, ``prefill_fixed`` in seconds.
    """
    sides = [_of_model(side, model) for side in (baseline, current)]
    if not all(sides):
        which = tr("baseline") if not sides[0] else tr("current side")
        return tr("the {side} has no prefill line", side=which)
    names = set.intersection(*({name for run in side for name in run} for side in sides))
    if not names:
        return tr("no model has a line on both sides")
    lines = [[run[name] for run in side if name in run] for side in sides for name in names]
    if part == "prefill_fixed" and not all(one.separable for some in lines for one in some):
        return tr("the lengths hardly vary: no constant part can be told from the rest")
    wanted = _functional(sides[0], sorted(names), part)
    runs = [_values(side, wanted) for side in sides]
    if not all(runs):
        return tr("no model has a line on both sides")
    scale = 1e3 if part == "prefill_slope" else 1.0
    levels = [float(np.mean([v for v, _ in side])) for side in runs]
    n = min(sum(one.n for run in side for one in run.values()) for side in sides)
    error, freedom = _error([np.array(side) for side in runs])
    return Estimate(
        levels[0] * scale, levels[1] * scale, error * scale, freedom, relative=False, n=n
    )


_Run = dict[str, Line]


@dataclass(frozen=True)
class _Wanted:
    """What is asked of the line of one model: its weight, and how often each coefficient counts."""

    weight: float
    counts: Array


def _of_model(side: Sequence[Sketch], model: str | None) -> list[_Run]:
    runs = [
        {line.model: line for line in sketch.lines if model in (None, line.model)}
        for sketch in side
    ]
    return [run for run in runs if run]


def _functional(runs: Sequence[_Run], names: Sequence[str], part: Part) -> dict[str, _Wanted]:
    """What is asked of each model's line; all of the baseline."""
    out = {}
    for name in names:
        lines = [run[name] for run in runs if name in run]
        sizes = np.array([line.n for line in lines], dtype=float)
        low, _, high, context = np.average([line.points for line in lines], axis=0, weights=sizes)
        size = float(sizes.sum())
        if part == "prefill_slope":
            counts = np.array([0.0, 1.0, context + (low + high) / 2, 1.0])
            out[name] = _Wanted(size, counts)
        else:
            out[name] = _Wanted(size, np.array([1.0, 0.0, 0.0, context]))
    return out


def _values(side: Sequence[_Run], wanted: dict[str, _Wanted]) -> list[tuple[float, float]]:
    """What each run says, and its variance; runs that lack a model are left out."""
    total = sum(w.weight for w in wanted.values())
    out = []
    for run in side:
        if any(name not in run for name in wanted):
            continue
        value = variance = 0.0
        for name, w in wanted.items():
            line = run[name]
            value += w.weight / total * float(w.counts @ line.coef)
            own = float(w.counts @ line.covariance @ w.counts)
            variance += (w.weight / total) ** 2 * own
        out.append((value, max(variance, 0.0)))
    return out


def _error(runs: Sequence[Array]) -> tuple[float, float]:
    """The standard error of the difference, and its degrees of freedom."""
    within = sum(float(side[:, 1].mean()) / len(side) for side in runs)
    between = [
        (float(side[:, 0].var(ddof=1)) / len(side), len(side) - 1.0)
        for side in runs
        if len(side) >= ENOUGH_RUNS
    ]
    if len(between) == 2:
        # The variance of few runs may come out next to nothing by chance.
        total = max(between[0][0] + between[1][0], 0.25 * within)
        return math.sqrt(max(total, 1e-18)), freedom_of(*between)
    if len(between) == 1:
        sizes = sorted(len(side) for side in runs)
        variance = between[0][0] * (1 + sizes[1] / sizes[0])
        if variance > within:
            return math.sqrt(variance), between[0][1]
    return math.sqrt(max(within, 1e-18)), FREEDOM
