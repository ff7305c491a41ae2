"""Block ids that chain: each stands for one block of a prompt and for all that lies before it.

With such ids two prompts share what is before the first id that differs, and a set of ids is
enough to say what a cache holds. Traces are published with ids that chain and with ids that only
name the text of their own block; which of the two it is has to be looked up in the data.

Ids chain if each one always comes after the same id, or always first. Its place then is the same
wherever it occurs: by going back from id to id every occurrence comes to one and the same first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ids = NDArray[np.uint64]

#: References worked on at a time, as far as rows allow; bounds memory beside the column itself.
STEP = 2**18
#: A table over all ids up to the largest is worth its memory if it has so many places a reference.
ROOMY = 4
#: ... or no more than this anyway.
SMALL = 2**16

_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODDER = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)


def chained(frame: pl.DataFrame, column: str) -> tuple[pl.DataFrame, bool]:
    """Add ``prefix_blocks``, where equal ids mean equal prompts up to there.

    It is the column as it stands if its ids chain in all rows; else it is :func:`sums`. All rows
    of a log must be in the frame: what chains in a part of them need not chain in all. A reader
    that sees its rows part by part takes :func:`sums` for all of them.

    Parameters
    ----------
    frame
        One row a request.
    column
        Lists of integers or texts, a block each, in order of the prompt; null or empty where there
        are none. Nulls within a list are dropped; a list of nothing else becomes null.

    Returns
    -------
    DataFrame and bool
        The frame with ``prefix_blocks`` (``List(UInt64)``), and whether the ids were kept.
    """
    blocks = _clean(frame[column])
    kept = chain(blocks)
    return frame.with_columns((blocks if kept else sums(blocks)).alias("prefix_blocks")), kept


def believable() -> pl.Expr:
    """Whether the blocks of a request are those of its prompt.

    Of columns ``prefix_blocks``, ``block_tokens`` and ``input_tokens``: false where one of them is
    missing, and where there are far more blocks than the prompt's length has room for.
    """
    blocks = pl.col("prefix_blocks").list.len().cast(pl.Float64) * pl.col("block_tokens")
    return (
        (pl.col("block_tokens") > 0).fill_null(False)
        & (pl.col("input_tokens") > 0).fill_null(False)
        # The size of a block may be a mean, so a little too many may be right.
        & (blocks <= 1.5 * pl.col("input_tokens") + pl.col("block_tokens")).fill_null(False)
    )


def chain(blocks: pl.Series) -> bool:
    """Whether each id of the lists always comes after the same id, or always first.

    Time and memory grow as the references do. Lists are as in :func:`chained`.
    """
    blocks = _clean(blocks)
    total = int(blocks.list.len().sum() or 0)
    if total == 0:
        return True
    most = int(blocks.list.max().max())  # type: ignore[arg-type]
    if most < max(ROOMY * total, SMALL):
        return _dense(blocks, most)
    return _sparse(blocks, total)


def sums(blocks: pl.Series) -> pl.Series:
    """Ids that chain, made of any: the sum of all ids so far, each spread over 64 bits.

    Each is spread together with its place, so that the same ids in another order have another
    sum. It depends on nothing but the list: equal beginnings have equal ids in every row, part and
    run, and two different ones have the same by chance only (1 in 2**64 for a pair).

    Parameters
    ----------
    blocks
        Lists as in :func:`chained`.

    Returns
    -------
    Series
        ``List(UInt64)``, as long as ``blocks``: null for null, empty for empty.
    """
    blocks = _clean(blocks)
    made = [_lists(_sums(ids, starts), part) for part, ids, starts in _pieces(blocks)]
    if not made:
        return blocks
    return (
        pl.DataFrame({"blocks": blocks, "sums": pl.concat(made)})
        .select(pl.when(pl.col("blocks").list.len() == 0).then("blocks").otherwise("sums"))
        .to_series()
        .alias(blocks.name)
    )


def _clean(blocks: pl.Series) -> pl.Series:
    """The lists without a sign and without nulls in them; null where there is nothing else."""
    blocks = _unsigned(blocks)
    filled = blocks.list.drop_nulls()
    if filled.list.len().sum() == blocks.list.len().sum():
        return blocks
    lost = (filled.list.len() == 0) & (blocks.list.len() > 0)
    return filled.to_frame("ids").select(pl.when(~lost).then("ids")).to_series().alias(blocks.name)


def _unsigned(blocks: pl.Series) -> pl.Series:
    """The lists with ids of 64 bits without a sign; negative ones keep their bits.

    Texts become their hashes; what is no whole number in another way becomes null.
    """
    inner: Any = blocks.dtype.inner if isinstance(blocks.dtype, pl.List) else None
    if inner == pl.UInt64:
        return blocks
    if inner is not None and inner.is_signed_integer():
        signed = blocks.cast(pl.List(pl.Int64))
        return signed.list.eval(pl.element().reinterpret(signed=False))
    if inner == pl.String:
        known = pl.element().is_not_null()
        return blocks.list.eval(pl.when(known).then(pl.element().hash(seed=0)))
    return blocks.cast(pl.List(pl.UInt64), strict=False)


def _pieces(blocks: pl.Series) -> Iterator[tuple[pl.Series, Ids, NDArray[np.int64]]]:
    """Some rows at a time: the lists, their ids end to end, and where each one with ids begins.

    Together the pieces are all rows, in order.
    """
    lengths = blocks.list.len().fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    # A row longer than a step is cut off once, behind it.
    cuts = np.unique(np.searchsorted(ends, np.arange(STEP, total, STEP)) + 1)
    edges = [0, *cuts[cuts < len(ends)].tolist(), len(ends)] if len(ends) else []
    for first, last in pairwise(edges):
        part = blocks.slice(first, last - first)
        ids = part.explode(empty_as_null=False, keep_nulls=False).to_numpy()
        inside = lengths[first:last]
        starts = np.cumsum(inside) - inside
        yield part, ids, starts[inside > 0]


def _before(ids: Ids, starts: NDArray[np.int64]) -> Ids | None:
    """The id before each; the first of a list has itself. None if another one has itself, too."""
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    before[starts] = ids[starts]
    return before if np.count_nonzero(before == ids) == len(starts) else None


def _dense(blocks: pl.Series, most: int) -> bool:
    """:func:`chain` by a table over all ids: each occurrence must find what the last one left."""
    table = np.empty(most + 1, dtype=np.uint32 if most < 2**32 else np.uint64)
    for _, ids, starts in _pieces(blocks):
        before = _before(ids, starts)
        if before is None:
            return False
        table[ids] = before
    for _, ids, starts in _pieces(blocks):
        before = _before(ids, starts)
        if before is None or (table[ids] != before).any():
            return False
    return True


def _sparse(blocks: pl.Series, total: int) -> bool:
    """:func:`chain` for ids of any size: those that are alike are brought side by side.

    The references are dealt out by some bits of their ids, and each part is sorted on its own.
    """
    bits = min(8, max(1, (total // STEP).bit_length()))
    dealt: list[list[tuple[Ids, Ids]]] = [[] for _ in range(2**bits)]
    for _, ids, starts in _pieces(blocks):
        before = _before(ids, starts)
        if before is None:
            return False
        part = ((ids * _ODD) >> np.uint64(64 - bits)).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        edges = np.cumsum(np.bincount(part, minlength=2**bits))[:-1]
        halves = np.split(ids[order], edges), np.split(before[order], edges)
        for mine, both in zip(dealt, zip(*halves, strict=True), strict=True):
            mine.append(both)
    while dealt:
        mine = dealt.pop()
        ids = np.concatenate([some for some, _ in mine])
        before = np.concatenate([some for _, some in mine])
        order = np.argsort(ids)
        ids, before = ids[order], before[order]
        if ((ids[1:] == ids[:-1]) & (before[1:] != before[:-1])).any():
            return False
    return True


def _sums(ids: Ids, starts: NDArray[np.int64]) -> Ids:
    """Sum from the start of its list to each id; integer arithmetic wraps, the same everywhere."""
    lengths = np.diff(np.append(starts, len(ids)))
    place = np.arange(len(ids)) - np.repeat(starts, lengths)
    value = ids * _ODD + place.astype(np.uint64) * _ODDER
    value = (value ^ (value >> _HALF)) * _ODDER
    value = (value ^ (value >> _HALF)) * _ODD
    total = np.cumsum(value, dtype=np.uint64)
    earlier: Ids = total[starts] - value[starts]  # all that was summed before the list began
    return total - np.repeat(earlier, lengths)


def _lists(flat: Ids, like: pl.Series) -> pl.Series:
    """``flat`` cut into lists as long as those of ``like``; null for those that are empty."""
    lengths = like.list.len().fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
    lists = (
        pl.DataFrame({"row": pl.Series(rows, dtype=pl.UInt32).set_sorted(), "list": flat})
        .group_by("row", maintain_order=True)
        .agg("list")["list"]
    )
    if len(lists) == len(lengths):
        return lists
    place = np.cumsum(lengths > 0) - 1
    wanted = pl.Series(place, dtype=pl.Int64).set(pl.Series(lengths == 0), None)
    return lists.gather(wanted.cast(pl.UInt32))
