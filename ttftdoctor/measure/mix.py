"""The traffic mix: TTFT summed by cell, so that two logs can be set beside each other.

A :class:`Tally` is all that a comparison needs of a log: for each cell (model, route, turn, input
length, demand) the moments of TTFT and length and a histogram of TTFT, held apart by clusters
of sessions and by stretches of time, so that both can be resampled. Everything in it is a sum:
tallies of parts of a log add up (:meth:`Tally.plus`), and fewer clusters or wider bins make a
smaller one (:meth:`Tally.smaller`) that fits a file. What is summed need not be TTFT:
:func:`summed` makes a tally of any value of the rows, over any cells; :func:`pooled` makes one of
several runs, in which the runs are clusters as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.rows import MOST_ORDERED, Array, Index, Mask, Rows
from ttftdoctor.stats import or_zero

#: Sessions are spread over this many clusters by a hash of their id, the same in every log.
CLUSTERS = 256
#: Stretches of time with the same number of requests.
BLOCKS = 32
#: Logarithmic bins of TTFT: from a tenth of a millisecond, each one per cent wider.
BIN_FROM_S, BIN_STEP = 1e-4, 1.01
#: First turns of the classes of turns.
TURN_EDGES = (1, 2, 3, 5, 8, 13, 21)
#: Input lengths are classed by half doublings from this many tokens.
LENGTH_FROM = 250.0
#: Seconds before an arrival in which the input tokens of all arrivals are its demand.
DEMAND_WINDOW_S = 60.0
#: Fields of a cell that are texts.
TEXTS = ("model", "route")
#: More values of a column than this are no mix to hold equal.
MOST_VALUES = 12

#: What is summed in every cluster and cell, x being the input length in thousands of tokens.
MOMENTS = ("n", "ttft", "x", "xx", "xt")
#: What is summed in every cell. Accounts are those of the ledger, over ``accounts_n`` rows.
EXTRAS = ("accounts_n", *ACCOUNTS, "cached_n", "input", "cached", "recomputed")


class Cell(NamedTuple):
    """What the requests of a cell have in common; -1, or an empty text, where it is unknown.

    ``turn`` is an index into ``TURN_EDGES``, ``length`` the half doublings above ``LENGTH_FROM``
    (0 below it), ``demand`` the half doublings of input tokens a second that arrived just before.
    ``fresh`` classes the tokens that the session had not sent before as ``length`` does all,
    ``running`` the requests that decoded at the same time, ``beside`` the tokens a second that
    were prefilled meanwhile.
    """

    model: str
    route: str
    turn: int
    length: int
    demand: int
    fresh: int = -1
    running: int = -1
    beside: int = -1


@dataclass(frozen=True)
class Sums:
    """Sums by cluster and cell.

    ``moments`` has shape (clusters, cells, ``MOMENTS``). The histogram is a list of what is not
    zero: ``count`` requests of one cluster, cell and bin of TTFT, where a bin is ``width`` of the
    narrow ones.
    """

    moments: Array
    cluster: Index
    cell: Index
    bin: Index
    count: Array
    width: int = 1

    @property
    def clusters(self) -> int:
        """Number of clusters, empty ones included."""
        return len(self.moments)


@dataclass(frozen=True)
class Tally:
    """The TTFT of one log by cell.

    ``by_session`` and ``by_time`` sum the same rows; ``by_time`` is None where the log has no
    times. ``extras`` has shape (cells, ``EXTRAS``). ``ttft`` is mean, p50, p95 and p99 in seconds
    as computed from all rows, None in a tally that was put together. ``mark`` is equal for
    equal rows. ``by_run`` is there where several runs were put together. ``grain`` says of the
    fields of the cells how many classes were made one (:meth:`coarser`).
    """

    cells: tuple[Cell, ...]
    by_session: Sums
    by_time: Sums | None
    extras: Array
    n: int
    sessions: int
    ttft: tuple[float, float, float, float] | None
    mark: str
    by_run: Sums | None = None
    grain: Mapping[str, int] = field(default_factory=dict)

    @property
    def sizes(self) -> Array:
        """Requests of each cell."""
        size: Array = self.by_session.moments[:, :, 0].sum(axis=0)
        return size

    def regrouped(self, key: Callable[[Cell], Hashable]) -> tuple[list[Hashable], Tally]:
        """The same over wider cells: those with one key become one; the keys in order.

        Cells whose key is None are left out.
        """
        keys = [key(cell) for cell in self.cells]
        named = sorted({k for k in keys if k is not None}, key=repr)
        place = {k: at for at, k in enumerate(named)}
        to = np.array([place.get(k, -1) for k in keys], dtype=np.int64)
        first = {to[at]: cell for at, cell in reversed(list(enumerate(self.cells))) if to[at] >= 0}
        kept = np.flatnonzero(to >= 0)
        extras = np.zeros((len(named), len(EXTRAS)))
        np.add.at(extras, to[kept], self.extras[kept])
        return list(named), replace(
            self,
            cells=tuple(first[at] for at in range(len(named))),
            by_session=_merge(self.by_session, to, len(named)),
            by_time=None if self.by_time is None else _merge(self.by_time, to, len(named)),
            by_run=None if self.by_run is None else _merge(self.by_run, to, len(named)),
            extras=extras,
        )

    def only(self, wanted: Callable[[Cell], bool]) -> Tally:
        """The part of it in some cells; ``sessions`` and ``ttft`` of a part are not known."""
        kept = [cell if wanted(cell) else None for cell in self.cells]
        if None not in kept:
            return self
        place = {cell: cell for cell in kept if cell is not None}
        _, part = self.regrouped(place.get)
        return replace(part, n=int(part.sizes.sum()), sessions=0, ttft=None)

    def coarser(self, steps: Mapping[str, int]) -> Tally:
        """The same over wider classes: so many neighbours become one, 0 makes all of them unknown.

        Model and route are texts, and can only be made unknown. Steps must be powers of two, so
        that wide classes hold whole narrow ones. Classes keep the numbers of the fine ones (the
        last of those put together). Two tallies can only be set beside each other in classes that
        are as wide as the wider ones of both (:func:`alike`).
        """
        steps = _wider_of(self.grain, steps)
        if steps == dict(self.grain):
            return self

        def wider(cell: Cell) -> Cell:
            now: dict[str, Any] = {}
            for name, step in steps.items():
                was = getattr(cell, name)
                if name in TEXTS:
                    now[name] = was if step else ""
                else:
                    now[name] = -1 if not step or was < 0 else -(-was // step) * step
            return cell._replace(**now)

        names, part = self.regrouped(wider)
        return replace(part, cells=tuple(names), grain=steps)  # type: ignore[arg-type]  # cells

    def plus(self, other: Tally) -> Tally:
        """Two parts of one log as one. Stretches of time are set side by side."""
        sides = alike(self, other)
        cells = tuple(sorted({cell for side in sides for cell in side.cells}))
        place = {cell: at for at, cell in enumerate(cells)}
        parts = []
        for part in sides:
            to = np.array([place[c] for c in part.cells], dtype=np.int64)
            extras = np.zeros((len(cells), len(EXTRAS)))
            extras[to] = part.extras
            parts.append((to, extras, part))
        (to_a, extras_a, a), (to_b, extras_b, b) = parts
        times = None
        if a.by_time is not None and b.by_time is not None:
            times = _join(
                _merge(a.by_time, to_a, len(cells)), _merge(b.by_time, to_b, len(cells)), aside=True
            )
        return Tally(
            cells=cells,
            by_session=_join(
                _merge(a.by_session, to_a, len(cells)), _merge(b.by_session, to_b, len(cells))
            ),
            by_time=times,
            extras=extras_a + extras_b,
            n=a.n + b.n,
            sessions=a.sessions + b.sessions,
            ttft=None,
            mark=f"{a.mark}+{b.mark}",
            grain=a.grain,
        )

    def smaller(self, clusters: int, width: int) -> Tally:
        """A smaller tally: fewer clusters of sessions, and bins of ``width`` narrow ones."""
        times = self.by_time
        return replace(
            self,
            by_session=_coarse(self.by_session, clusters, width),
            by_time=None if times is None else _coarse(times, times.clusters, width),
            by_run=None
            if self.by_run is None
            else _coarse(self.by_run, self.by_run.clusters, width),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for a file; :meth:`from_dict` reads them back."""
        return {
            "cells": [list(cell) for cell in self.cells],
            "by_session": _plain(self.by_session),
            "by_time": None if self.by_time is None else _plain(self.by_time),
            "extras": self.extras.tolist(),
            "n": self.n,
            "sessions": self.sessions,
            "ttft": None if self.ttft is None else list(self.ttft),
            "mark": self.mark,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Tally:
        """The tally that :meth:`to_dict` wrote."""
        cells = tuple(Cell(*cell) for cell in data["cells"])
        return cls(
            cells=cells,
            by_session=_sums(data["by_session"], len(cells)),
            by_time=None if data["by_time"] is None else _sums(data["by_time"], len(cells)),
            extras=np.array(data["extras"], dtype=float).reshape(len(cells), len(EXTRAS)),
            n=data["n"],
            sessions=data["sessions"],
            ttft=None if data["ttft"] is None else tuple(data["ttft"]),
            mark=data["mark"],
        )


def tally_of(rows: Rows, ledger: Ledger | None, names: Sequence[str] | None = None) -> Tally:
    """Sum the rows that have a TTFT.

    Parameters
    ----------
    ledger
        Accounts of the rows, where there is a cost line.
    names
        Id of each session by its number, where sessions are logged: sessions of the same id in
        two logs then fall into the same cluster, so that logs of one workload served twice are
        resampled in pairs.
    """
    at = np.flatnonzero(rows.measured)
    classes = {
        "turn": turn_classes(rows)[at],
        "length": length_classes(rows.inputs[at]),
        "demand": demand_classes(rows)[at],
    }
    return summed(rows, at, rows.ttft[at], rows.inputs[at], classes, ledger=ledger, names=names)


def summed(
    rows: Rows,
    at: Index,
    value: Array,
    x: Array,
    classes: Mapping[str, Index],
    *,
    ledger: Ledger | None = None,
    names: Sequence[str] | None = None,
    clusters: int = CLUSTERS,
    drawn: tuple[Index, int] | None = None,
    histogram: bool = True,
    wider: Sequence[Mapping[str, int]] = (),
    most: int | None = None,
) -> Tally:
    """Sum a value of some rows by cell.

    Parameters
    ----------
    at
        The rows that have the value.
    value, x
        Seconds, and what it may be regressed on, in tokens (summed in thousands, unknown as 0);
        shape (len(at),). What stands as ``ttft`` in the tally is the value.
    classes
        Fields of :class:`Cell` to the class of each of these rows; model and route are added.
    drawn
        The cluster of each of these rows and the number of sessions, where it is known already.
    histogram
        Whether quantiles will be asked for; without, there are no extras either.
    wider, most
        How to make classes wider (:meth:`Tally.coarser`), one step after the other, until there
        are no more cells than ``most``.
    """
    n = len(at)
    columns = {name: _values(rows, name, at) for name in TEXTS} | dict(classes)
    fields = [name for name in Cell._fields if name in columns]
    unique, cell = _unique([columns[name] for name in fields])
    unique, cell, grain = _narrowed(unique, cell, fields, wider, most)
    x = or_zero(x) / 1e3
    moments = np.stack([np.ones(n), value, x, x * x, x * value])
    bins = bins_of(value) if histogram else None
    cluster, sessions = drawn or session_clusters(rows, at, names, clusters)
    times = None
    if rows.order_known and n:
        order = np.argsort(or_zero(rows.start[at]), kind="stable")
        block = np.empty(n, dtype=np.int64)
        block[order] = np.arange(n) * BLOCKS // n
        times = _sum_up(block, cell, bins, moments, BLOCKS, len(unique))
    raw = None
    if n and histogram:
        p50, p95, p99 = (float(v) for v in np.quantile(value, [0.5, 0.95, 0.99]))
        raw = float(value.mean()), p50, p95, p99
    mark = zlib.crc32(np.stack([value, x]).tobytes())
    return Tally(
        cells=tuple(_cell(rows, fields, codes) for codes in unique.tolist()),
        by_session=_sum_up(cluster, cell, bins, moments, clusters, len(unique)),
        by_time=times,
        extras=_extras(rows, ledger, at, cell, len(unique))
        if histogram
        else np.zeros((len(unique), len(EXTRAS))),
        n=n,
        sessions=sessions,
        ttft=raw,
        mark=f"{n}-{mark:08x}",
        grain=grain,
    )


def alike(first: Tally, second: Tally) -> tuple[Tally, Tally]:
    """Both over classes as wide as the wider ones of the two."""
    steps = _wider_of(first.grain, second.grain)
    return first.coarser(steps), second.coarser(steps)


def _wider_of(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The wider step of each field; 0 is the widest."""
    out = dict(one)
    for name, step in other.items():
        was = out.get(name, 1)
        out[name] = max(was, step) if was and step else 0
    return out


def pooled(runs: Sequence[Tally]) -> Tally:
    """Several runs as one tally; ``by_run`` has one cluster for each of them."""
    whole = reduce(Tally.plus, runs)
    if len(runs) < 2:
        return whole
    runs = [run.coarser(whole.grain) for run in runs]
    place = {cell: at for at, cell in enumerate(whole.cells)}
    sums = None
    for run in runs:
        to = np.array([place[c] for c in run.cells], dtype=np.int64)
        one = _merge(_coarse(run.by_session, 1, 1), to, len(whole.cells))
        sums = one if sums is None else _join(sums, one, aside=True)
    return replace(whole, by_run=sums)


def _unique(columns: Sequence[Index]) -> tuple[Index, Index]:
    """The different rows of some columns in order, and the place of each row among them.

    All columns as one number: ten times as fast as sorting rows. No class is below -1.
    """
    n = len(columns[0])
    key, sizes = np.zeros(n, dtype=np.int64), []
    for column in columns:
        sizes.append(int(column.max()) + 2 if n else 1)
        key = key * sizes[-1] + column + 1
    left, place = np.unique(key, return_inverse=True)
    out = np.empty((len(left), len(columns)), dtype=np.int64)
    for number in range(len(columns) - 1, -1, -1):
        out[:, number] = left % sizes[number] - 1
        left = left // sizes[number]
    return out, place.reshape(n)


def _narrowed(
    unique: Index,
    cell: Index,
    fields: Sequence[str],
    wider: Sequence[Mapping[str, int]],
    most: int | None,
) -> tuple[Index, Index, dict[str, int]]:
    """Cells made wider step by step, the cell of each row among them, and how wide they are."""
    steps: dict[str, int] = {}
    for step in wider:
        if most is None or len(unique) <= most:
            break
        steps = _wider_of(steps, step)
        columns = [
            _wider(unique[:, number], steps.get(name, 1)) for number, name in enumerate(fields)
        ]
        unique, to = _unique(columns)
        cell = to[cell]
    return unique, cell, steps


def _wider(classes: Index, step: int) -> Index:
    """Each class as the last one of so many neighbours; unknown stays so, 0 forgets them all."""
    if not step:
        return np.full(len(classes), -1)
    return np.where(classes < 0, -1, -(-classes // step) * step)


def _cell(rows: Rows, fields: Sequence[str], codes: Sequence[int]) -> Cell:
    values: dict[str, Any] = {"turn": -1, "length": -1, "demand": -1}
    values |= dict(zip(fields, codes, strict=True))
    for name in TEXTS:
        values[name] = _name(rows, name, values[name])
    return Cell(**values)


def session_names(requests: pl.DataFrame, rows: Rows) -> list[str] | None:
    """Ids of the sessions in the order of their numbers, as long as these are in order."""
    if rows.session_grade != "logged":
        return None
    names: list[str] = requests["session_id"].drop_nulls().unique().sort().to_list()
    return names if len(names) < MOST_ORDERED else None


def bins_of(ttft: Array) -> Index:
    """The narrow bin of each time in seconds."""
    size = np.log(np.maximum(ttft, BIN_FROM_S) / BIN_FROM_S) / np.log(BIN_STEP)
    found: Index = np.floor(size).astype(np.int64)
    return found


def _values(rows: Rows, column: str, at: Index) -> Index:
    """Codes of a grouping column; all unknown where it has too many values."""
    scope = rows.scopes.get(column)
    if scope is None or not 1 <= len(scope.names) <= MOST_VALUES:
        return np.full(len(at), -1)
    return scope.codes[at]


def _name(rows: Rows, column: str, code: int) -> str:
    return "" if code < 0 else rows.scopes[column].names[code]


def turn_classes(rows: Rows) -> Index:
    """The class of the turn of each row; -1 unknown."""
    turn = rows.turn
    if rows.session_grade == "none" and not np.isfinite(turn).any():
        return np.full(rows.n, -1)
    place = np.searchsorted(TURN_EDGES, or_zero(turn), side="right") - 1
    return np.where(np.isfinite(turn), np.maximum(place, 0), -1)


def length_classes(inputs: Array) -> Index:
    """Half doublings of tokens above ``LENGTH_FROM``, 0 below it; -1 unknown."""
    place = np.floor(2 * np.log2(np.maximum(or_zero(inputs), 1) / LENGTH_FROM)) + 1
    return np.where(np.isfinite(inputs), np.maximum(place, 0), -1).astype(np.int64)


def demand_classes(rows: Rows) -> Index:
    """Half doublings of input tokens a second that arrived in the minute before, at all servers.

    What arrives does not depend on how fast it is served, as a backlog does: held equal, it
    leaves the relief of the queue to the change that brought it.
    """
    if not rows.order_known or not np.isfinite(rows.inputs).any():
        return np.full(rows.n, -1)
    order = np.argsort(np.where(np.isfinite(rows.start), rows.start, np.inf), kind="stable")
    start, tokens = rows.start[order], or_zero(rows.inputs[order])
    total = np.concatenate([[0.0], np.cumsum(tokens)])
    since = np.searchsorted(start, start - DEMAND_WINDOW_S, side="left")
    rate = (total[:-1] - total[since]) / DEMAND_WINDOW_S
    out = np.full(rows.n, -1, dtype=np.int64)
    out[order] = np.floor(2 * np.log2(np.maximum(rate, 1.0))).astype(np.int64)
    # In the first minute nobody knows what came before.
    early = rows.start < start[0] + DEMAND_WINDOW_S if len(start) else np.zeros(0, dtype=bool)
    out[early | ~np.isfinite(rows.start)] = -1
    return out


def session_clusters(
    rows: Rows, at: Index, names: Sequence[str] | None, clusters: int
) -> tuple[Index, int]:
    """The cluster of each of some rows, and the number of sessions (rows, where there are none)."""
    session = rows.session[at]
    alone = session < 0
    # A request that belongs to no session is one of its own.
    number = np.where(alone, at * 2_654_435_761 % 2**32, session * 40_503 + 7)
    if names is not None and len(names) > (int(session.max()) if len(session) else -1):
        hashed = np.array([zlib.crc32(name.encode("utf-8", "replace")) for name in names] or [0])
        number = np.where(alone, number, hashed[np.maximum(session, 0)])
    # 16807 mod a prime spreads what the hash leaves in the low bits.
    cluster = number * 16_807 % 2_147_483_647 % clusters
    count = int(alone.sum()) + len(np.unique(session[~alone]))
    return cluster, count


def _sum_up(
    cluster: Index, cell: Index, bins: Index | None, moments: Array, clusters: int, cells: int
) -> Sums:
    both = cluster * cells + cell
    sums: Array = (
        np.stack(
            [np.bincount(both, weights=row, minlength=clusters * cells) for row in moments], axis=-1
        )
        .reshape(clusters, cells, len(MOMENTS))
        .astype(float)
    )
    if bins is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Sums(sums, nothing, nothing, nothing, np.zeros(0), 1)
    return _entries(sums, cluster, cell, bins, np.ones(len(cell)), 1)


def _entries(
    moments: Array, cluster: Index, cell: Index, bins: Index, count: Array, width: int
) -> Sums:
    """Sums in which each cluster, cell and bin stands once."""
    wide = int(bins.max()) + 1 if len(bins) else 1
    cells = max(moments.shape[1], 1)
    keys, place = np.unique((cluster * cells + cell) * wide + bins, return_inverse=True)
    total: Array = np.bincount(place.reshape(-1), weights=count, minlength=len(keys)).astype(float)
    return Sums(moments, keys // wide // cells, keys // wide % cells, keys % wide, total, width)


def _extras(rows: Rows, ledger: Ledger | None, at: Index, cell: Index, cells: int) -> Array:
    columns: dict[str, Array] = {}
    nothing = np.zeros(len(at))
    if ledger is not None:
        whole: Mask = np.isfinite(ledger.accounts["unexplained"][at])
        columns["accounts_n"] = whole.astype(float)
        for name in ACCOUNTS:
            columns[name] = np.where(whole, or_zero(ledger.accounts[name][at]), 0.0)
    known = np.isfinite(rows.inputs[at]) & np.isfinite(rows.cached[at])
    columns["cached_n"] = known.astype(float)
    columns["input"] = np.where(known, or_zero(rows.inputs[at]), 0.0)
    columns["cached"] = np.where(known, or_zero(rows.cached[at]), 0.0)
    columns["recomputed"] = np.where(known, rows.recomputed[at], 0.0)
    return np.stack(
        [np.bincount(cell, weights=columns.get(name, nothing), minlength=cells) for name in EXTRAS],
        axis=-1,
    )


def _merge(sums: Sums, to: Index, cells: int) -> Sums:
    """The same over other cells; ``to`` is the new place of each, -1 for none."""
    kept = np.flatnonzero(to >= 0)
    kept = kept[np.argsort(to[kept], kind="stable")]
    moments = np.zeros((sums.clusters, cells, len(MOMENTS)))
    if len(kept):
        target = to[kept]
        first = np.flatnonzero(np.concatenate([[True], target[1:] != target[:-1]]))
        moments[:, target[first]] = np.add.reduceat(sums.moments[:, kept], first, axis=1)
    cell = to[sums.cell]
    inside = np.flatnonzero(cell >= 0)
    return _entries(
        moments, sums.cluster[inside], cell[inside], sums.bin[inside], sums.count[inside],
        sums.width,
    )  # fmt: skip


def _join(a: Sums, b: Sums, *, aside: bool = False) -> Sums:
    """Two sums over the same cells as one; ``aside`` keeps their clusters apart."""
    a, b = _coarse(a, a.clusters, b.width), _coarse(b, b.clusters, a.width)
    moments = np.concatenate([a.moments, b.moments]) if aside else a.moments + b.moments
    return _entries(
        moments,
        np.concatenate([a.cluster, b.cluster + (a.clusters if aside else 0)]),
        np.concatenate([a.cell, b.cell]),
        np.concatenate([a.bin, b.bin]),
        np.concatenate([a.count, b.count]),
        a.width,
    )


def _coarse(sums: Sums, clusters: int, width: int) -> Sums:
    """Fewer clusters, and bins of at least a width (the next multiple of theirs)."""
    if clusters == sums.clusters and width <= sums.width:
        return sums
    moments = np.zeros((clusters, *sums.moments.shape[1:]))
    for first in range(0, sums.clusters, clusters):
        part = sums.moments[first : first + clusters]
        moments[: len(part)] += part
    times = max(1, -(-width // sums.width))
    return _entries(
        moments, sums.cluster % clusters, sums.cell, sums.bin // times, sums.count,
        sums.width * times,
    )  # fmt: skip


def _plain(sums: Sums) -> dict[str, Any]:
    """Only what is not zero: rows of cluster, cell, moments; and of cluster, cell, bin, count."""
    cluster, cell = np.nonzero(sums.moments[:, :, 0])
    return {
        "clusters": sums.clusters,
        "width": sums.width,
        "moments": [
            [int(a), int(b), *(float(f"{v:.9g}") for v in sums.moments[a, b])]
            for a, b in zip(cluster, cell, strict=True)
        ],
        "histogram": np.stack(
            [sums.cluster, sums.cell, sums.bin, sums.count.astype(np.int64)], axis=1
        ).tolist(),
    }


def _sums(data: dict[str, Any], cells: int) -> Sums:
    moments = np.zeros((data["clusters"], cells, len(MOMENTS)))
    for cluster, cell, *values in data["moments"]:
        moments[cluster, cell] = values
    entries = np.array(data["histogram"], dtype=np.int64).reshape(-1, 4)
    cluster, cell, bins, count = entries.T
    return Sums(moments, cluster, cell, bins, count.astype(float), data["width"])
