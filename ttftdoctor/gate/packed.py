"""Tallies in few bytes: what a baseline file says of a cell, on one line.

A line is ``[cell, sums, accounts, sessions, stretches]``. The cell is model and route by their
number in ``names``, then the classes that ``classes`` lists. Sums are those of the whole cell;
accounts those of the ledger (0: none). Then follows what each cluster of sessions, and each stretch
of time, has of it. Of TTFT this is the histogram alone, written as ``cluster:bin*count,...`` with
each bin as the step from the one before (a count of 1 is left out): its sums are those of the
bins, scaled to the sums of the cell. Other values have no histogram: there a cluster keeps number,
value and x. One cluster alone is the cell itself, and without a histogram it is not written.

What is read here may be anybody's file. Every number is bounded before it is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.measure.mix import BIN_FROM_S, BIN_STEP, EXTRAS, MOMENTS, TEXTS, Cell, Sums, Tally
from ttftdoctor.measure.rows import Array, Index

MOST_CLUSTERS = 4096
MOST_CELLS = 20_000
MOST_SUMS = 4_000_000
MOST_CLASS = 200
MOST_BIN = 4000
MOST_WIDTH = 64
MOST_NUMBER = 1e15
MOST_TEXT = 400
_STEPS = (0, 1, 2, 4, 8, 16)
_ENTRY = re.compile(r"(\d{1,6})(?:\*(\d{1,12}))?")


def pack(tally: Tally) -> dict[str, Any]:
    """Plain types; :func:`unpack` reads them back."""
    axes = [tally.by_session, *([] if tally.by_time is None else [tally.by_time])]
    whole = tally.by_session.moments.sum(axis=0)
    histogram = len(tally.by_session.count) > 0
    names = {name: sorted({getattr(c, name) for c in tally.cells}) for name in TEXTS}
    place = {name: {text: at for at, text in enumerate(some)} for name, some in names.items()}
    classes = [
        name
        for name in Cell._fields
        if name not in TEXTS and any(getattr(c, name) >= 0 for c in tally.cells)
    ]
    parts = [_texts(sums, len(whole)) if histogram else _triples(sums) for sums in axes]
    cells = []
    for at, cell in enumerate(tally.cells):
        accounts = tally.extras[at, : len(ACCOUNTS) + 1]
        cells.append(
            [
                [*(place[name][getattr(cell, name)] for name in TEXTS),
                 *(getattr(cell, name) for name in classes)],
                [_short(v, 7) for v in whole[at]],
                [_short(v, 4) for v in accounts] if histogram and accounts.any() else 0,
                *(part[at] for part in parts),
            ]
        )  # fmt: skip
    return {
        "n": tally.n,
        "sessions": tally.sessions,
        "raw": None if tally.ttft is None else [_short(v, 9) for v in tally.ttft],
        "mark": tally.mark,
        "histogram": histogram,
        "width": tally.by_session.width,
        "clusters": tally.by_session.clusters,
        "stretches": 0 if tally.by_time is None else tally.by_time.clusters,
        "names": names,
        "classes": classes,
        "grain": dict(tally.grain),
        "cells": cells,
    }


def unpack(data: Mapping[str, Any]) -> Tally:
    """The tally that :func:`pack` wrote.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is not one.
    """
    lines = data["cells"]
    if not isinstance(lines, list) or len(lines) > MOST_CELLS:
        raise ValueError("too many cells")
    clusters = whole_number(data["clusters"], 1, MOST_CLUSTERS)
    stretches = whole_number(data["stretches"], 0, MOST_CLUSTERS)
    width = whole_number(data["width"], 1, MOST_WIDTH)
    if (clusters + stretches) * len(lines) > MOST_SUMS:
        raise ValueError("too many sums")
    lines = [exactly(line, 4 + (stretches > 0)) for line in lines]
    cells = _cells([line[0] for line in lines], data["names"], data["classes"])
    whole = np.array(
        [[number(v) for v in exactly(line[1], len(MOMENTS))] for line in lines], dtype=float
    ).reshape(len(cells), len(MOMENTS))
    if (whole < 0).any():
        raise ValueError("a sum is negative")
    extras = np.zeros((len(cells), len(EXTRAS)))
    for at, line in enumerate(lines):
        if line[2] != 0:
            accounts = [number(v) for v in exactly(line[2], len(ACCOUNTS) + 1)]
            extras[at, : len(accounts)] = accounts
    found: list[Sums] = []
    for column, size in ((3, clusters), (4, stretches)):
        if size:
            parts = [line[column] for line in lines]
            read = _from_texts if data["histogram"] else _from_triples
            found.append(read(parts, whole, size, width))
    raw = data["raw"]
    n = whole_number(data["n"], 0, 10**12)
    if abs(float(whole[:, 0].sum()) - n) > 0.5 + 1e-6 * n:
        raise ValueError("the cells do not add up to the requests")
    return Tally(
        cells=cells,
        by_session=found[0],
        by_time=found[1] if stretches else None,
        extras=extras,
        n=n,
        sessions=whole_number(data["sessions"], 0, 10**12),
        ttft=None if raw is None else tuple(number(v) for v in exactly(raw, 4)),  # type: ignore[arg-type]
        mark=text(data["mark"]),
        grain=_grain(data["grain"]),
    )


def coarse(tally: Tally, clusters: int, stretches: int, width: int) -> Tally:
    """Fewer clusters and stretches, and wider bins; never more or narrower than there are."""
    sums = tally.by_session
    small = tally.smaller(min(clusters, sums.clusters), max(width, sums.width))
    times = small.by_time
    if times is None or stretches >= times.clusters:
        return small
    if not stretches:
        return replace(small, by_time=None)
    # Neighbours in time go together: they are alike, strangers would hide it.
    order = np.arange(times.clusters) * stretches // times.clusters
    moments = np.zeros((stretches, *times.moments.shape[1:]))
    np.add.at(moments, order, times.moments)
    joined = replace(times, moments=moments, cluster=order[times.cluster])
    return replace(small, by_time=joined)


# --- numbers that may be trusted ------------------------------------------------------------------


def number(value: Any, most: float = MOST_NUMBER) -> float:
    """A finite number of bounded size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("a number is no number")
    if not (math.isfinite(value) and abs(value) <= most):
        raise ValueError("a number is out of range")
    return float(value)


def whole_number(value: Any, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a count is no whole number")
    if not least <= value <= most:
        raise ValueError("a count is out of range")
    return value


def text(value: Any, most: int = MOST_TEXT) -> str:
    """A text that is not too long."""
    if not isinstance(value, str):
        raise TypeError("a name is no text")
    if len(value) > most:
        raise ValueError("a name is too long")
    return value


def exactly(values: Any, size: int) -> Sequence[Any]:
    """A list of a known length."""
    if not isinstance(values, list) or len(values) != size:
        raise ValueError("a list has the wrong length")
    return values


# --- parts of it ----------------------------------------------------------------------------------


def _short(value: float, digits: int) -> float | int:
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _cells(
    codes: Sequence[Any], names: Mapping[str, Any], classes: Sequence[Any]
) -> tuple[Cell, ...]:
    known = [[text(v) for v in _listed(names[name])] for name in TEXTS]
    fields = [text(name) for name in _listed(classes)]
    if len(set(fields)) != len(fields) or not set(fields) <= set(Cell._fields) - set(TEXTS):
        raise ValueError("there is no such class")
    out = []
    for code in codes:
        first, second, *rest = exactly(code, len(TEXTS) + len(fields))
        values: dict[str, Any] = {"turn": -1, "length": -1, "demand": -1}
        for name, texts, at in zip(TEXTS, known, (first, second), strict=True):
            values[name] = texts[whole_number(at, 0, len(texts) - 1)]
        for name, at in zip(fields, rest, strict=True):
            values[name] = whole_number(at, -1, MOST_CLASS)
        out.append(Cell(**values))
    if len(set(out)) != len(out):
        raise ValueError("a cell stands twice")
    return tuple(out)


def _grain(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not set(value) <= set(Cell._fields):
        raise ValueError("there is no such class")
    if not all(type(step) is int and step in _STEPS for step in value.values()):
        raise ValueError("classes cannot be so wide")
    return dict(value)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST_CELLS:
        raise ValueError("a list is none, or too long")
    return value


def _texts(sums: Sums, cells: int) -> list[str]:
    """The histogram of each cell."""
    order = np.lexsort((sums.bin, sums.cluster, sums.cell))
    out: list[list[str]] = [[] for _ in range(cells)]
    seen: tuple[int, int] | None = None
    last = 0
    rows = zip(
        sums.cell[order].tolist(), sums.cluster[order].tolist(), sums.bin[order].tolist(),
        sums.count[order].astype(np.int64).tolist(), strict=True,
    )  # fmt: skip
    for cell, cluster, at, count in rows:
        times = "" if count == 1 else f"*{count}"
        if seen == (cell, cluster):
            out[cell][-1] += f",{at - last}{times}"
        else:
            out[cell].append(f"{cluster}:{at}{times}")
        seen, last = (cell, cluster), at
    return [";".join(parts) for parts in out]


def _from_texts(parts: Sequence[Any], whole: Array, clusters: int, width: int) -> Sums:
    entries: list[tuple[int, int, int, int]] = []
    for number_, part in enumerate(parts):
        for piece in text(part, 10**7).split(";") if part else ():
            head, _, rest = piece.partition(":")
            place = _digits(head, clusters - 1)
            at = 0
            for entry in rest.split(","):
                match = _ENTRY.fullmatch(entry)
                if match is None:
                    raise ValueError("a histogram cannot be read")
                at += int(match[1])
                if at * width > MOST_BIN:
                    raise ValueError("a bin is out of range")
                entries.append((place, number_, at, int(match[2] or 1)))
    cluster, cell, bins, counts = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    count = counts.astype(float)
    cells = len(whole)
    both = cluster * cells + cell
    size = clusters * cells
    step = math.log(BIN_STEP) * width
    middle = BIN_FROM_S * np.exp(step * (bins + 0.5))
    n: Array = np.bincount(both, count, size).astype(float).reshape(clusters, cells)
    value: Array = np.bincount(both, count * middle, size).astype(float).reshape(clusters, cells)
    if np.abs(n.sum(axis=0) - whole[:, 0]).max(initial=0.0) > 0.5:
        raise ValueError("a histogram does not add up to its cell")
    return Sums(_shared_out(n, value, n, whole), cluster, cell, bins, count, width)


def _digits(value: str, most: int) -> int:
    if not re.fullmatch(r"\d{1,6}", value):
        raise ValueError("a cluster is no number")
    return whole_number(int(value), 0, most)


def _shared_out(n: Array, value: Array, x: Array, whole: Array) -> Array:
    """Moments of each cluster (clusters, cells, ``MOMENTS``) that add up to the exact sums.

    What goes with x grows with a cluster's x, what goes with the value by its value.
    """
    out = np.zeros((*n.shape, len(MOMENTS)))
    for at, like in enumerate((n, value, x, x, value)):
        total = like.sum(axis=0)
        scale = np.divide(whole[:, at], total, out=np.zeros(len(total)), where=total > 0)
        out[:, :, at] = like * scale
    return out


def _triples(sums: Sums) -> list[Any]:
    """Cluster, number, value and x of each cell; 0 where there is one cluster."""
    if sums.clusters == 1:
        return [0] * sums.moments.shape[1]
    out: list[list[list[float | int]]] = [[] for _ in range(sums.moments.shape[1])]
    clusters, cells = np.nonzero(sums.moments[:, :, 0])
    for cluster, cell in zip(clusters.tolist(), cells.tolist(), strict=True):
        n, value, x = (_short(v, 4) for v in sums.moments[cluster, cell, :3].tolist())
        out[cell].append([cluster, n, value, x])
    return out


def _from_triples(parts: Sequence[Any], whole: Array, clusters: int, width: int) -> Sums:
    sums = np.zeros((3, clusters, len(whole)))
    if clusters == 1:
        sums[:, 0] = whole[:, :3].T
        parts = []
    for cell, part in enumerate(parts):
        if not isinstance(part, list) or len(part) > clusters:
            raise ValueError("a cell has too many clusters")
        for entry in part:
            cluster, *values = exactly(entry, 4)
            at = whole_number(cluster, 0, clusters - 1)
            sums[:, at, cell] = [max(number(v), 0.0) for v in values]
    nothing: Index = np.zeros(0, dtype=np.int64)
    n, value, x = sums
    moments = _shared_out(n, value, x, whole)
    return Sums(moments, nothing, nothing, nothing, np.zeros(0), width)
