"""The traffic mix: TTFT summed by cell, so that two logs can be set beside each other.

A :class:`Tally` is all that a comparison needs of a log: for each cell (model, route, turn, input
length, demand) the moments of TTFT and length and a histogram of TTFT, held apart by clusters
of sessions and by stretches of time, so that both can be resampled. Everything in it is a sum:
tallies of parts of a log add up (:meth:`Tally.plus`), and fewer clusters or wider bins make a
smaller one (:meth:`Tally.smaller`) that fits a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.rows import Array, Index, Mask, Rows
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
    """

    model: str
    route: str
    turn: int
    length: int
    demand: int


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
    equal rows.
    """

    cells: tuple[Cell, ...]
    by_session: Sums
    by_time: Sums | None
    extras: Array
    n: int
    sessions: int
    ttft: tuple[float, float, float, float] | None
    mark: str

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
            extras=extras,
        )

    def plus(self, other: Tally) -> Tally:
        """Two parts of one log as one. Stretches of time are set side by side."""
        cells = tuple(sorted({*self.cells, *other.cells}))
        place = {cell: at for at, cell in enumerate(cells)}
        parts = []
        for part in (self, other):
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
        )

    def smaller(self, clusters: int, width: int) -> Tally:
        """A smaller tally: fewer clusters of sessions, and bins of ``width`` narrow ones."""
        times = self.by_time
        return replace(
            self,
            by_session=_coarse(self.by_session, clusters, width),
            by_time=None if times is None else _coarse(times, times.clusters, width),
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
    n = len(at)
    ttft, inputs = rows.ttft[at], rows.inputs[at]
    keys = np.stack(
        [
            _values(rows, "model", at),
            _values(rows, "route", at),
            _turns(rows, at),
            _lengths(inputs),
            _demands(rows, at),
        ],
        axis=1,
    )
    unique, cell = np.unique(keys, axis=0, return_inverse=True)
    cell = cell.reshape(n)
    x = or_zero(inputs) / 1e3
    moments = np.stack([np.ones(n), ttft, x, x * x, x * ttft])
    bins = _bins(ttft)
    cluster, sessions = _clusters(rows, at, names)
    times = None
    if rows.order_known and n:
        order = np.argsort(or_zero(rows.start[at]), kind="stable")
        block = np.empty(n, dtype=np.int64)
        block[order] = np.arange(n) * BLOCKS // n
        times = _sum_up(block, cell, bins, moments, BLOCKS, len(unique))
    raw = None
    if n:
        p50, p95, p99 = (float(v) for v in np.quantile(ttft, [0.5, 0.95, 0.99]))
        raw = float(ttft.mean()), p50, p95, p99
    mark = zlib.crc32(np.stack([ttft, x]).tobytes())
    return Tally(
        cells=tuple(
            Cell(_name(rows, "model", a), _name(rows, "route", b), int(c), int(d), int(e))
            for a, b, c, d, e in unique.tolist()
        ),
        by_session=_sum_up(cluster, cell, bins, moments, CLUSTERS, len(unique)),
        by_time=times,
        extras=_extras(rows, ledger, at, cell, len(unique)),
        n=n,
        sessions=sessions,
        ttft=raw,
        mark=f"{n}-{mark:08x}",
    )


def _bins(ttft: Array) -> Index:
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


def _turns(rows: Rows, at: Index) -> Index:
    turn = rows.turn[at]
    if rows.session_grade == "none" and not np.isfinite(turn).any():
        return np.full(len(at), -1)
    place = np.searchsorted(TURN_EDGES, or_zero(turn), side="right") - 1
    return np.where(np.isfinite(turn), np.maximum(place, 0), -1)


def _lengths(inputs: Array) -> Index:
    place = np.floor(2 * np.log2(np.maximum(or_zero(inputs), 1) / LENGTH_FROM)) + 1
    return np.where(np.isfinite(inputs), np.maximum(place, 0), -1).astype(np.int64)


def _demands(rows: Rows, at: Index) -> Index:
    """Half doublings of input tokens a second that arrived in the minute before, at all servers.

    What arrives does not depend on how fast it is served, as a backlog does: held equal, it
    leaves the relief of the queue to the change that brought it.
    """
    if not rows.order_known or not np.isfinite(rows.inputs).any():
        return np.full(len(at), -1)
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
    return out[at]


def _clusters(rows: Rows, at: Index, names: Sequence[str] | None) -> tuple[Index, int]:
    """The cluster of each row, and the number of sessions (rows, where there are none)."""
    session = rows.session[at]
    alone = session < 0
    # A request that belongs to no session is one of its own.
    number = np.where(alone, at * 2_654_435_761 % 2**32, session * 40_503 + 7)
    if names is not None and len(names) > (int(session.max()) if len(session) else -1):
        hashed = np.array([zlib.crc32(name.encode("utf-8", "replace")) for name in names] or [0])
        number = np.where(alone, number, hashed[np.maximum(session, 0)])
    # 16807 mod a prime spreads what the hash leaves in the low bits.
    cluster = number * 16_807 % 2_147_483_647 % CLUSTERS
    count = int(alone.sum()) + len(np.unique(session[~alone]))
    return cluster, count


def _sum_up(
    cluster: Index, cell: Index, bins: Index, moments: Array, clusters: int, cells: int
) -> Sums:
    both = cluster * cells + cell
    sums: Array = (
        np.stack(
            [np.bincount(both, weights=row, minlength=clusters * cells) for row in moments], axis=-1
        )
        .reshape(clusters, cells, len(MOMENTS))
        .astype(float)
    )
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
    moments = np.zeros((sums.clusters, cells, len(MOMENTS)))
    for at in kept:
        moments[:, to[at]] += sums.moments[:, at]
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
