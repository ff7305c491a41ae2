"""Prompts as paths in a tree of what they share.

Blocks that every request has together are one node, so that a long prompt that nobody shares is one
reference, not hundreds: a walk over the tree costs a tenth of one over the blocks, and gives the
same figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.chains import sums
from ttftdoctor.measure import kernels
from ttftdoctor.stats import Array

Index = kernels.Ints


@dataclass(frozen=True)
class Trie:
    """The prompts of ``n`` requests in order of arrival.

    ``offsets`` (n + 1) cuts ``nodes`` into one path a request, root first. ``tokens`` is what a
    cache needs to hold a node, whole blocks; ``block`` the tokens of one of its blocks. ``inputs``
    is the length of each prompt in tokens, ``blocks`` its number of blocks, ``start_s`` seconds
    from the first start (NaN: not known).
    """

    offsets: Index
    nodes: kernels.Ints32
    tokens: Index
    block: Index
    inputs: Index
    blocks: Index
    start_s: Array

    @property
    def n(self) -> int:
        """Requests."""
        return len(self.inputs)

    @cached_property
    def owner(self) -> Index:
        """The request of each reference."""
        return np.repeat(np.arange(self.n), np.diff(self.offsets))

    @cached_property
    def times(self) -> Index:
        """Requests that each node belongs to."""
        return np.bincount(self.nodes, minlength=len(self.tokens))

    def common(self, part: float) -> NDArray[np.bool_]:
        """Nodes that more than this part of the requests share: a system prompt, a template."""
        held: NDArray[np.bool_] = self.times > max(part * self.n, 1)
        return held

    def per_request(self, values: Array | Index) -> Array:
        """Sums over the path of each request."""
        sums = np.bincount(self.owner, weights=values, minlength=self.n)
        return sums.astype(np.float64, copy=False)

    def share(self, hits: Index) -> float:
        """Part of all prompt tokens that ``hits`` (tokens per request) are."""
        return float(hits.sum()) / max(int(self.inputs.sum()), 1)


def trie_of(frame: pl.DataFrame) -> tuple[Trie, bool]:
    """The tree of a log, and whether its block ids were those of the log.

    Ids that stand for a block and all before it always follow the same id. Traces number their
    blocks from zero, so where the ids of several files contradict each other, equal ids of two
    files mean nothing. Where those of one file do, they only name the text of their own block,
    and ids that chain are made from them.

    Parameters
    ----------
    frame
        Requests in order of arrival: ``prefix_blocks``, ``block_tokens``, ``input_tokens``,
        ``source`` and, where known, ``start`` (us).
    """
    lengths = frame["prefix_blocks"].list.len().cast(pl.Int64).to_numpy()
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    first = starts[:-1][lengths > 0]
    ids = frame["prefix_blocks"].explode(empty_as_null=False).to_numpy()
    codes, n_codes = kernels.dense(ids)
    kept = True
    if not _chain(codes, first, n_codes) and frame["source"].n_unique() > 1:
        salts = frame["source"].cast(pl.UInt64).to_numpy() * np.uint64(0x9E3779B97F4A7C15)
        codes, n_codes = kernels.dense(np.bitwise_xor(ids, np.repeat(salts, lengths)))
    if not _chain(codes, first, n_codes):
        kept = False
        made = sums(frame["prefix_blocks"]).explode(empty_as_null=False).to_numpy()
        codes, n_codes = kernels.dense(made)
    return _compressed(frame, codes, n_codes, starts), kept


def _chain(codes: kernels.Ints32, first: Index, n_codes: int) -> bool:
    """Whether each code always comes after the same one, or always first.

    What :func:`ttftdoctor.chains.chain` asks of ids; of numbers from zero one table answers it.
    """
    before = np.empty(len(codes), dtype=np.int32)
    before[1:] = codes[:-1]
    before[first] = -1
    usual = np.empty(n_codes, dtype=np.int32)
    usual[codes] = before
    return bool((usual[codes] == before).all())


def _compressed(frame: pl.DataFrame, codes: kernels.Ints32, n_codes: int, starts: Index) -> Trie:
    """The tree of chained codes; ``starts`` cuts them into one prompt a request."""
    lengths = np.diff(starts)
    times = np.bincount(codes, minlength=n_codes)
    # A block begins a node unless exactly those have it that have the block before it.
    begins = np.ones(len(codes), dtype=bool)
    begins[1:] = times[codes[1:]] != times[codes[:-1]]
    begins[starts[:-1][lengths > 0]] = True
    at = np.flatnonzero(begins)
    heads = codes[at]
    sizes = np.diff(np.append(at, len(codes)))
    numbers = np.full(n_codes, -1, dtype=np.int32)
    numbers[heads] = 0
    kept = np.flatnonzero(numbers == 0)
    numbers[kept] = np.arange(len(kept), dtype=np.int32)
    nodes = numbers[heads]
    offsets = np.searchsorted(at, starts)
    block_of = frame["block_tokens"].cast(pl.Int64).to_numpy()
    blocks, block = np.zeros((2, len(kept)), dtype=np.int64)
    blocks[nodes] = sizes
    block[nodes] = np.repeat(block_of, np.diff(offsets))
    start = frame["start"]
    first = start.min()
    return Trie(
        offsets=offsets.astype(np.int64),
        nodes=nodes,
        tokens=blocks * block,
        block=block,
        inputs=frame["input_tokens"].cast(pl.Int64).to_numpy(),
        blocks=lengths,
        start_s=((start - first) / 1e6).cast(pl.Float64).to_numpy()
        if first is not None
        else np.full(len(lengths), np.nan),
    )
