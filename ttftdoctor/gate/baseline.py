"""The baseline: one or several runs of a service that was fine, small enough to be committed.

The document ``ttftdoctor.baseline/1`` is JSON with one cell a line, so that what changed from one
baseline to the next is to be seen in a diff. It holds sums and names of models and routes: no
prompt, no session id, no single request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import InputError
from ttftdoctor.gate.packed import coarse, exactly, number, pack, text, unpack, whole_number
from ttftdoctor.gate.sketch import KINDS, WIDER, Counts, Facts, Line, Sketch
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.mix import TEXTS, Tally, pooled

SCHEMA = "ttftdoctor.baseline/1"
LIMIT_BYTES = 200_000
MOST_RUNS = 500
MOST_INPUTS = 10_000
MOST_STRETCHES = 100_000

#: Tallies of a sketch, by their name in the file.
TALLIES = ("ttft", "decode", "queue", "hits", "again")

#: How classes are made wider for a file: a mix by turn and length says more than one by route.
STEPS: tuple[dict[str, int], ...] = (*WIDER[:6], {"route": 0}, *WIDER[6:], {"model": 0})
#: Ever smaller: clusters, stretches of time, width of bins, and how often classes are made wider.
#: Quantiles come before detail of the mix: bins grow no wider than 8 % before the last resort.
SIZES = (
    (64, 32, 1, 0), (32, 16, 2, 0), (32, 16, 2, 1), (16, 16, 4, 1), (16, 16, 4, 2),
    (16, 8, 4, 3), (16, 8, 4, 4), (8, 8, 8, 4), (8, 8, 8, 5), (8, 8, 8, 6), (8, 8, 8, 7),
    (8, 8, 8, 8), (8, 8, 8, 9), (8, 8, 8, 10), (8, 8, 16, 10), (8, 8, 16, 11),
)  # fmt: skip
#: The same for at least three runs: these are the clusters, and what is alike inside one of them
#: hardly matters.
OF_RUNS = (
    (64, 32, 1, 0), (8, 0, 2, 0), (2, 0, 4, 0), (1, 0, 4, 0), (1, 0, 4, 1), (1, 0, 4, 2),
    (1, 0, 4, 3), (1, 0, 8, 3), (1, 0, 8, 4), (1, 0, 8, 5), (1, 0, 8, 6), (1, 0, 8, 7),
    (1, 0, 8, 8), (1, 0, 8, 9), (1, 0, 8, 10), (1, 0, 16, 10), (1, 0, 16, 11),
)  # fmt: skip
#: So many steps ahead are the classes of what is not TTFT.
AHEAD = {"decode": 1, "queue": 2, "hits": 1, "again": 2}
ENOUGH_RUNS = 3

#: What may be given up to make a baseline small; a file keeps it in English, whoever writes it.
_IN_CLUSTERS = mark("sessions in {clusters} clusters, {stretches} stretches of time a run")
_IN_BINS = mark("TTFT in bins of {width} %")
_WIDER = mark("classes of the mix made wider {n} times")
_NOT_APART = {
    "model": mark("models are not told apart"),
    "route": mark("routes are not told apart"),
}


@dataclass(frozen=True)
class Baseline:
    """Runs under one name. ``lost`` says what was given up to make it small."""

    label: str
    sketches: tuple[Sketch, ...]
    lost: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The files of all runs."""
        return tuple(one for sketch in self.sketches for one in sketch.facts.inputs)

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.sketches)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The models of all runs."""
        return tuple(sorted({m for s in self.sketches for m in s.facts.models}))

    def tallies(self, name: str) -> tuple[Tally, ...] | None:
        """One tally of each run; None where a run lacks it."""
        found = tuple(getattr(sketch, name) for sketch in self.sketches)
        return None if not found or any(t is None for t in found) else found

    def tally(self, name: str, *, runs_only: bool = False) -> Tally | None:
        """All runs in one tally, in which runs are clusters too; if asked, the only ones."""
        found = self.tallies(name)
        if found is None:
            return None
        if runs_only:
            found = tuple(coarse(t, 1, 0, t.by_session.width) for t in found)
        return pooled(found)

    def fit_in(self, limit_bytes: int = LIMIT_BYTES) -> Baseline:
        """The same, made small enough for a file of this size.

        Clusters, stretches of time and bins become fewer, then classes wider, then routes and at
        last models are no longer told apart.
        """
        sizes = OF_RUNS if self.runs >= ENOUGH_RUNS else SIZES
        small, at = self, 0
        while True:
            # Each is made from the one before: all steps are nested.
            small = replace(
                small,
                sketches=tuple(_smaller(s, *sizes[at]) for s in small.sketches),
                lost=_lost(self.lost, *sizes[at]),
            )
            size = sum(_bytes(sketch) for sketch in small.sketches)
            if size < 1.5 * limit_bytes:  # near enough to be written for a look
                size = len(small.to_text().encode())
            if size <= limit_bytes or at == len(sizes) - 1:
                return small
            at += 1

    def to_dict(self) -> dict[str, Any]:
        """The document as plain types."""
        return {
            "schema": SCHEMA,
            "label": self.label,
            "lost": list(self.lost),
            "runs": [_run(sketch) for sketch in self.sketches],
        }

    def to_text(self) -> str:
        """The document as JSON, one cell a line; ends with a line break."""
        return _lines_of(self.to_dict(), "") + "\n"

    @classmethod
    def from_dict(cls, data: Any, where: str | None = None) -> Baseline:
        """The baseline that :meth:`to_dict` wrote.

        Raises
        ------
        InputError
            If it is none, is of another version, or holds what cannot be.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema != SCHEMA:
            if isinstance(schema, str) and schema.startswith(SCHEMA.partition("/")[0]):
                raise InputError(
                    mark("this baseline is of another version"),
                    where=where,
                    why=f"it is {schema[:40]!r}, and this version reads {SCHEMA!r}",
                    help="write it again with: ttftdoctor baseline LOG",
                )
            raise InputError(
                mark("this is no baseline"),
                where=where,
                why=f"it has no schema {SCHEMA!r}",
                help="write one with: ttftdoctor baseline LOG -o ttft-baseline.json",
            )
        try:
            runs = _listed(data["runs"], MOST_RUNS)
            lost = tuple(text(v) for v in _listed(data["lost"], 100))
            found = cls(text(data["label"]), tuple(_sketch(run) for run in runs), lost)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            raise InputError(
                mark("this baseline is damaged"), where=where, why=f"{type(e).__name__}: {e}"[:200]
            ) from None
        if not found.sketches:
            raise InputError(mark("this baseline holds no run"), where=where)
        return found

    @classmethod
    def from_text(cls, written: str, where: str | None = None) -> Baseline:
        """The baseline in a JSON text.

        Raises
        ------
        InputError
            If it is none.
        """
        try:
            data = json.loads(written)
        except (ValueError, RecursionError):
            raise InputError(mark("this is no JSON document"), where=where) from None
        return cls.from_dict(data, where)


def merged(baselines: Sequence[Baseline], label: str | None = None) -> Baseline:
    """The runs of several baselines under one name, that of the first by default.

    Raises
    ------
    InputError
        If there is none.
    """
    if not baselines:
        raise InputError("there is no baseline to merge")
    return Baseline(
        label or baselines[0].label,
        tuple(sketch for one in baselines for sketch in one.sketches),
        tuple(dict.fromkeys(text for one in baselines for text in one.lost)),
    )


def without_copies(baseline: Baseline) -> tuple[Baseline, int]:
    """The baseline with each run once, by the requests it holds, and how many were copies.

    A copy adds no knowledge, and two alike would pass for proof that runs do not differ.
    """
    once = {sketch.ttft.mark: sketch for sketch in reversed(baseline.sketches)}
    kept = tuple(s for s in baseline.sketches if not s.ttft.mark or s is once[s.ttft.mark])
    copies = len(baseline.sketches) - len(kept)
    return (replace(baseline, sketches=kept) if copies else baseline), copies


# --- smaller --------------------------------------------------------------------------------------


def _smaller(sketch: Sketch, clusters: int, stretches: int, width: int, step: int) -> Sketch:
    def small(name: str) -> Tally | None:
        tally: Tally | None = getattr(sketch, name)
        if tally is None:
            return None
        found = coarse(tally, clusters, stretches, width)
        # What is not TTFT is a few steps ahead, but never gives up a name before it does.
        for at, wider in enumerate(STEPS[: step + AHEAD.get(name, 0) if step else 0]):
            if at < step or not set(wider) & set(TEXTS):
                found = found.coarser(wider)
        return found

    changed = {name: small(name) for name in TALLIES}
    return replace(sketch, **changed)  # type: ignore[arg-type]


def _bytes(sketch: Sketch) -> int:
    """About how large a run will be in a file: a guess from how much there is to write."""
    total = 0
    for name in TALLIES:
        tally: Tally | None = getattr(sketch, name)
        if tally is None:
            continue
        total += 60 * len(tally.cells)
        axes = [tally.by_session, *([] if tally.by_time is None else [tally.by_time])]
        for sums in axes:
            if len(sums.count):
                total += 4 * len(sums.count)
            elif sums.clusters > 1:
                total += 20 * int(np.count_nonzero(sums.moments[:, :, 0]))
    return total


def _lost(had: tuple[str, ...], clusters: int, stretches: int, width: int, step: int) -> tuple[
    str, ...
]:  # fmt: skip
    out = list(had)
    if clusters < SIZES[0][0]:
        out.append(_IN_CLUSTERS.format(clusters=clusters, stretches=stretches))
    if width > 1:
        out.append(_IN_BINS.format(width=width))
    if step:
        out.append(_WIDER.format(n=step))
    for name in TEXTS:
        if any(name in wider for wider in STEPS[:step]):
            out.append(_NOT_APART[name])
    return tuple(dict.fromkeys(out))


def lost_said(kept: str) -> str:
    """What was given up, from the English that a file keeps to the language spoken.

    What no version of ours wrote is given as it is.
    """
    for made in (_IN_CLUSTERS, _IN_BINS, _WIDER, *_NOT_APART.values()):
        found = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>\\d+)", re.escape(made)), kept)
        if found is not None:
            return tr(made, **found.groupdict())
    return kept


# --- reading and writing --------------------------------------------------------------------------


def _lines_of(value: Any, indent: str, depth: int = 1) -> str:
    """JSON with records and their lists over several lines, and cells on one line each."""
    inner = indent + " "
    if isinstance(value, dict) and ("runs" in value or any(t in value for t in TALLIES)
                                    or "cells" in value):  # fmt: skip
        parts = [f"{inner}{json.dumps(k)}: {_lines_of(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)) and depth:
        parts = [inner + _lines_of(v, inner, depth - 1) for v in value]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _run(sketch: Sketch) -> dict[str, Any]:
    facts = sketch.facts
    out: dict[str, Any] = {
        "facts": {
            **{name: getattr(facts, name) for name in _FACTS},
            "models": list(facts.models),
            "inputs": [
                {
                    "path": i.path, "format": i.format, "rows_read": i.rows_read,
                    "rows_used": i.rows_used,
                    "rows_rejected": dict(i.rows_rejected),
                    "ttft_set_aside": dict(i.ttft_set_aside),
                }
                for i in facts.inputs
            ],
        },
        "lines": [
            {
                "model": line.model, "coef": _floats(line.coef),
                "covariance": [_floats(row) for row in line.covariance],
                "separable": line.separable, "n": line.n, "points": _floats(line.points),
            }
            for line in sketch.lines
        ],
        "counts": {
            "known": sketch.counts.known,
            "by": [
                [model, route, sums.astype(np.int64).tolist()]
                for (model, route), sums in sorted(sketch.counts.by.items())
            ],
        },
    }  # fmt: skip
    for name in TALLIES:
        tally = getattr(sketch, name)
        out[name] = None if tally is None else pack(tally)
    return out


def _floats(values: Any) -> list[float]:
    return [float(f"{v:.9g}") for v in values]


def _optional(read: Callable[..., Any], *bounds: Any) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value, *bounds)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("a flag is neither true nor false")
    return value


#: Facts that are plain values, and how each is read.
_FACTS: dict[str, Callable[[Any], Any]] = {
    "requests": lambda v: whole_number(v, 0, 10**12),
    "with_ttft": lambda v: whole_number(v, 0, 10**12),
    "sessions": _optional(whole_number, 0, 10**12),
    "start": _optional(text),
    "end": _optional(text),
    "span_s": _optional(number),
    "vantage": _optional(text),
    "warm_up": lambda v: whole_number(v, 0, 10**12),
    "settled": _flag,
    "cause": text,
    "headline": lambda v: text(v, 2000),
    "demand": _optional(number, 1000.0),
}


def _listed(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is none, or too long")
    return value


def _sketch(run: Mapping[str, Any]) -> Sketch:
    tallies = {name: None if run[name] is None else unpack(run[name]) for name in TALLIES}
    ttft = tallies.pop("ttft")
    if ttft is None:
        raise ValueError("a run has no TTFT")
    facts = run["facts"]
    plain = {name: read(facts[name]) for name, read in _FACTS.items()}
    return Sketch(
        facts=Facts(
            inputs=tuple(_input(i) for i in _listed(facts["inputs"], MOST_INPUTS)),
            models=tuple(text(m) for m in _listed(facts["models"], 1000)),
            **plain,
        ),
        ttft=ttft,
        lines=tuple(_line(line) for line in _listed(run["lines"], 1000)),
        counts=_counts(run["counts"]),
        **tallies,
    )


def _input(data: Mapping[str, Any]) -> Input:
    tables = [
        {text(k): whole_number(v, 0, 10**12) for k, v in data[name].items()}
        for name in ("rows_rejected", "ttft_set_aside")
    ]
    return Input(
        path=text(data["path"], 5000),
        format=text(data["format"]),
        rows_read=whole_number(data["rows_read"], 0, 10**12),
        rows_used=whole_number(data["rows_used"], 0, 10**12),
        rows_rejected=tables[0],
        ttft_set_aside=tables[1],
    )


def _line(data: Mapping[str, Any]) -> Line:
    covariance = [[number(v) for v in exactly(row, 4)] for row in exactly(data["covariance"], 4)]
    points = tuple(number(v) for v in exactly(data["points"], 4))
    return Line(
        model=text(data["model"]),
        coef=np.array([number(v) for v in exactly(data["coef"], 4)]),
        covariance=np.array(covariance),
        separable=_flag(data["separable"]),
        n=whole_number(data["n"], 1, 10**12),
        points=points,  # type: ignore[arg-type]  # four of them
    )


def _counts(data: Mapping[str, Any]) -> Counts:
    by = {}
    size: int | None = None
    for model, route, sums in (exactly(v, 3) for v in _listed(data["by"], 10_000)):
        rows = _listed(sums, MOST_STRETCHES)
        size = len(rows) if size is None else size
        if len(rows) != size:
            raise ValueError("stretches of time differ in number")
        values = [
            [float(whole_number(v, 0, 10**12)) for v in exactly(row, len(KINDS))] for row in rows
        ]
        by[text(model), text(route)] = np.array(values).reshape(size, len(KINDS))
    return Counts(by, _flag(data["known"]))
