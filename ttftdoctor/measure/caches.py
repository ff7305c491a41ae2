"""What caches keep of each prompt: one walk over the tree answers for every size and lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from ttftdoctor.chains import believable
from ttftdoctor.measure import kernels
from ttftdoctor.measure.trie import Index, Trie, trie_of
from ttftdoctor.stats import Array


@dataclass(frozen=True)
class Cached:
    """What each reference of the tree would find, whatever the size and lifetime of the caches.

    ``last`` is the request that touched the node before in the same cache (-1: none), ``ahead`` the
    tokens touched since, which a cache has to hold before it (:func:`.kernels.recency`).
    """

    trie: Trie
    last: kernels.Ints32
    ahead: Index

    @cached_property
    def tokens(self) -> Index:
        """Tokens of each reference, whole blocks."""
        return self.trie.tokens[self.trie.nodes]

    @cached_property
    def gap_s(self) -> Array:
        """Seconds since each reference was last touched; infinite where it never was."""
        seen = self.last >= 0
        gap = np.full(len(self.last), np.inf)
        start = self.trie.start_s
        gap[seen] = start[self.trie.owner[seen]] - start[self.last[seen]]
        return np.where(np.isnan(gap), 0.0, gap)  # without a clock nothing grows old

    @cached_property
    def counted(self) -> Index:
        """Tokens of each reference that are in the prompt: the last block may not be full."""
        until = np.cumsum(self.tokens)
        trie = self.trie
        first = np.concatenate([[0], until])[trie.offsets[:-1]]
        before = until - self.tokens - first[trie.owner]
        counted: Index = np.clip(trie.inputs[trie.owner] - before, 0, self.tokens)
        return counted

    def hits(self, ttl_s: float | None = None, capacity_tokens: int | None = None) -> Index:
        """Prompt tokens of each request that are found in the cache.

        Parameters
        ----------
        ttl_s
            Blocks are let go this many seconds after they were last used; None: never.
        capacity_tokens
            Size of each cache; None: endless.
        """
        found = np.where(self.last >= 0, self.tokens, 0)
        if capacity_tokens is not None:
            block = self.trie.block[self.trie.nodes]
            room = np.clip(capacity_tokens - self.ahead, 0, found)
            found = room // np.maximum(block, 1) * block
        if ttl_s is not None:
            found = np.where(self.gap_s <= ttl_s, found, 0)
        total = self.trie.per_request(found).astype(np.int64)
        return np.minimum(total, self.trie.inputs)


@dataclass(frozen=True)
class Shared:
    """What the prompts of a log share: the rows (in order) that have blocks, and one cache.

    ``chained``: the ids of the blocks are those of the log, else they were made from them.
    """

    at: Index
    one: Cached
    chained: bool = True

    @property
    def trie(self) -> Trie:
        """The tree of their prompts."""
        return self.one.trie


def shared_of(frame: pl.DataFrame) -> Shared | None:
    """What the prompts of requests in order of arrival share; None if none of them has blocks.

    Parameters
    ----------
    frame
        ``prefix_blocks``, ``block_tokens``, ``input_tokens``, ``start`` and ``source``; a request
        that lacks one of the first three is left out, and so is one with far more blocks than its
        length has room for.
    """
    has = frame.select(believable()).to_series()
    if not has.any():
        return None
    trie, chained = trie_of(frame.filter(has))
    return Shared(np.flatnonzero(has.to_numpy()), one_cache(trie), chained)


def one_cache(trie: Trie) -> Cached:
    """All requests share one cache."""
    order = np.arange(trie.n, dtype=np.int64)
    return _cached(trie, order, np.zeros(trie.n, dtype=np.int64))


def caches(trie: Trie, replica: Index) -> Cached:
    """Each replica (a number per request) has a cache of its own."""
    order = np.argsort(replica, kind="stable").astype(np.int64)
    ordered = replica[order]
    since = np.searchsorted(ordered, ordered).astype(np.int64)
    return _cached(trie, order, since)


def _cached(trie: Trie, order: Index, since: Index) -> Cached:
    return Cached(trie, *kernels.recency(trie.offsets, trie.nodes, trie.tokens, order, since))
