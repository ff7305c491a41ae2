"""How much of the reuse a cache of each size keeps, and at what size more stops to help."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ttftdoctor.measure import kernels
from ttftdoctor.measure.caches import Cached
from ttftdoctor.measure.trie import Index, Trie
from ttftdoctor.prefixes.kv import KvShape
from ttftdoctor.prefixes.records import Capacity, Size
from ttftdoctor.stats import Array

#: A size is where the curve flattens if it keeps this much of what an endless cache does.
FLAT = 0.95
#: Sizes of the curve, in even steps of the logarithm.
POINTS = 24
#: ... of which the clairvoyant cache is tried at so many.
OPTIMAL_POINTS = 12


@dataclass(frozen=True)
class Ramps:
    """Hit tokens of LRU caches of every size at once.

    A reference gives nothing up to the size of what lies ahead of it and all of its tokens once
    these fit too, so the hits of a size are a sum of ramps: sorted once, read off anywhere.
    ``edges`` are the sizes at which one begins or ends, ``risen`` the hits there, ``slope`` how
    many rise from there on.
    """

    edges: Index
    risen: Array
    slope: Array

    def hits(self, sizes: Index) -> Array:
        """Hit tokens of a cache of each size (tokens)."""
        if not len(self.edges):
            return np.zeros(len(sizes))
        at = np.searchsorted(self.edges, sizes, side="right") - 1
        value = self.risen[at] + self.slope[at] * (sizes - self.edges[at])
        return np.where(at >= 0, value, 0.0)


def ramps_of(cached: Cached) -> Ramps:
    """The ramps of one cache that all requests share."""
    seen = cached.last >= 0
    begins = np.sort(cached.ahead[seen])
    ends = np.sort(cached.ahead[seen] + cached.counted[seen])
    # Two sorted halves: a stable sort merges them in one run.
    edges = np.concatenate([begins, ends])
    order = np.argsort(edges, kind="stable")
    steps = np.where(order < len(begins), 1.0, -1.0)
    edges, slope = edges[order], np.cumsum(steps)
    risen = np.zeros(len(edges))
    if len(edges) > 1:
        np.cumsum(slope[:-1] * np.diff(edges), out=risen[1:])
    return Ramps(edges, risen, slope)


def capacity_curve(
    trie: Trie, cached: Cached, shape: KvShape | None, asked: tuple[int, ...] = ()
) -> Capacity | None:
    """Hit share by size, of LRU and of the clairvoyant optimum; None where nothing is reused.

    Parameters
    ----------
    cached
        One cache for all requests.
    asked
        Sizes in tokens that must be among those shown.
    """
    ideal = float(cached.hits().sum())
    total = max(float(trie.inputs.sum()), 1.0)
    seen = cached.last >= 0
    if ideal <= 0 or not seen.any():
        return None
    needed = int((cached.ahead + cached.tokens)[seen].max())
    block = int(np.median(trie.block))
    sizes = _sizes(block, needed, asked)
    ramps = ramps_of(cached)
    lru = np.minimum(ramps.hits(sizes), ideal)
    optimal = _optimal(trie, sizes, set(asked), ideal)
    per_token = None if shape is None else shape.bytes_per_token

    def gb(tokens: int) -> float | None:
        return None if per_token is None else tokens * per_token / 1e9

    flat = _least(ramps, ideal, block, needed)
    return Capacity(
        sizes=tuple(
            Size(int(c), gb(int(c)), float(a) / total, float(a) / ideal,
                 float(b) / total, float(b) / ideal)
            for c, a, b in zip(sizes, lru, optimal, strict=True)
        ),
        working_set_tokens=int(trie.tokens.sum()),
        flat_tokens=flat,
        flat_gb=gb(flat),
        flat_of_ideal=FLAT,
        kv_bytes_per_token=per_token,
        kv_shape=None if shape is None else shape.name,
    )  # fmt: skip


def _sizes(block: int, needed: int, asked: tuple[int, ...]) -> Index:
    """Sizes from a block to what the whole log needs, in whole blocks."""
    low, high = max(block, needed / 10_000), max(needed, block)
    even = np.geomspace(low, high, POINTS)
    whole = np.ceil(even / block).astype(np.int64) * block
    return np.unique(np.concatenate([whole, np.array(asked, dtype=np.int64)]))


def _optimal(trie: Trie, sizes: Index, asked: set[int], ideal: float) -> Array:
    """Hits of the clairvoyant cache: served at some sizes, read off a line between them.

    What it keeps never falls with the size and never by more than in proportion (its hits are
    concave in the size), so lines between sizes err little and always below.
    """
    following = kernels.follows(trie.offsets, trie.nodes, len(trie.tokens))
    step = max(1, len(sizes) // OPTIMAL_POINTS)
    chosen = np.array(
        [i for i, c in enumerate(sizes) if i % step == 0 or i == len(sizes) - 1 or int(c) in asked]
    )

    def serve(capacity: int) -> float:
        hits = kernels.clairvoyant(trie.offsets, trie.nodes, trie.tokens, following, capacity)
        return float(np.minimum(hits, trie.inputs).sum())

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = np.array(list(pool.map(serve, (int(c) for c in sizes[chosen]))))
    out: Array = np.minimum(np.interp(sizes, sizes[chosen], found), ideal)
    return out


def _least(ramps: Ramps, ideal: float, block: int, needed: int) -> int:
    """The least whole number of blocks with which LRU keeps :data:`FLAT` of the ideal."""
    low, high = 0, -(-needed // block)
    while high - low > 1:
        middle = (low + high) // 2
        kept = float(ramps.hits(np.array([middle * block]))[0])
        low, high = (low, middle) if kept >= FLAT * ideal else (middle, high)
    return high * block
