"""What is sequential by nature, compiled: dense codes, recency, the clairvoyant cache, routing.

All of them walk the requests in order of arrival over the tree of :mod:`.trie`: ``offsets`` cuts
``nodes`` into one path a request, root first; ``tokens`` is what each node stands for. A node is
touched by a request at once with all that lies above it, so the request that touched it last is
never older than the one that touched its children last: what the walks rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]

#: Tokens ahead of what was never there before: more than any cache holds.
NEVER = 1 << 62

_Function = TypeVar("_Function", bound=Callable[..., object])


def _compiled(function: _Function) -> _Function:
    """Compile on first use and keep the result on disk; threads may run it side by side."""
    made: Any = numba.njit(cache=True, nogil=True)(function)
    return cast(_Function, made)


@_compiled
def recency(
    offsets: Ints, nodes: Ints32, tokens: Ints, order: Ints, since: Ints
) -> tuple[Ints32, Ints]:
    """For each reference, who touched its node last, and how much was touched since then.

    LRU stack distances (Mattson et al. 1970) of whole paths: leaves are let go before what lies
    above them, and a path is looked up before it is put back. As the paths form a tree, what a
    request left untouched by later ones is the end of its path, so one Fenwick tree over requests
    (not over blocks) knows all distances.

    Parameters
    ----------
    order
        Requests in order of arrival, those of one cache together.
    since
        For each place in ``order``, the first place of the same cache.

    Returns
    -------
    last, ahead
        Per reference: the request that touched the node before in the same cache (-1: none), and
        the distinct tokens touched since, before its own first token (:data:`NEVER`: none). A cache
        of ``c`` tokens holds ``clip(c - ahead, 0, tokens)`` of the node.
    """
    n = len(order)
    left = np.zeros(n + 1, dtype=np.int64)  # Fenwick tree: tokens that place left untouched since
    held = np.full(len(tokens), -1, dtype=np.int64)
    last = np.full(len(nodes), -1, dtype=np.int32)
    ahead = np.full(len(nodes), NEVER, dtype=np.int64)
    total = 0
    for place in range(n):
        row = order[place]
        run, within, whole = -1, 0, 0
        base = 0
        for ref in range(offsets[row], offsets[row + 1]):
            node = nodes[ref]
            whole += tokens[node]
            before = held[node]
            held[node] = place
            if before < since[place]:
                continue
            if before != run:
                if within:
                    total -= within
                    at = run + 1
                    while at <= n:
                        left[at] -= within
                        at += at & -at
                run, within = before, 0
                base = total
                at = before + 1
                while at > 0:
                    base -= left[at]
                    at -= at & -at
                # What lies above in this path was taken off the sum already: it is newer.
                base += whole - tokens[node]
            last[ref] = order[before]
            ahead[ref] = base + within
            within += tokens[node]
        if within:
            total -= within
            at = run + 1
            while at <= n:
                left[at] -= within
                at += at & -at
        total += whole
        at = place + 1
        while at <= n:
            left[at] += whole
            at += at & -at
    return last, ahead


@_compiled
def follows(offsets: Ints, nodes: Ints32, n_nodes: int) -> Ints32:
    """The next request that touches the node of each reference; the number of requests if none."""
    n = len(offsets) - 1
    coming = np.full(n_nodes, n, dtype=np.int32)
    out = np.empty(len(nodes), dtype=np.int32)
    for row in range(n - 1, -1, -1):
        for ref in range(offsets[row], offsets[row + 1]):
            out[ref] = coming[nodes[ref]]
            coming[nodes[ref]] = row
    return out


@_compiled
def clairvoyant(
    offsets: Ints, nodes: Ints32, tokens: Ints, following: Ints32, capacity: int
) -> Ints:
    """Tokens that a cache of ``capacity`` tokens can give each request at best.

    Belady's rule: what is used again last goes first, and what is never used again is not stored.
    What lies above is used again no later than what lies below it, so paths stay whole and it is
    enough to know how many tokens are held for each coming request.
    """
    n = len(offsets) - 1
    held = np.zeros(n + 1, dtype=np.int64)
    heap = np.empty(
        1024, dtype=np.int64
    )  # coming requests for which tokens are held, farthest first
    size = 0
    used = 0
    hits = np.zeros(n, dtype=np.int64)
    for row in range(n):
        hits[row] = held[row]
        used -= held[row]
        held[row] = 0
        ref = offsets[row]
        end = offsets[row + 1]
        while ref < end:
            coming = following[ref]
            more = 0
            while ref < end and following[ref] == coming:
                more += tokens[nodes[ref]]
                ref += 1
            if coming == n:
                continue
            if held[coming] == 0:
                if size == len(heap):
                    grown = np.empty(2 * size, dtype=np.int64)
                    grown[:size] = heap
                    heap = grown
                at = size
                size += 1
                while at > 0 and heap[(at - 1) // 2] < coming:
                    heap[at] = heap[(at - 1) // 2]
                    at = (at - 1) // 2
                heap[at] = coming
            held[coming] += more
            used += more
        while used > capacity:
            far = heap[0]
            out = min(held[far], used - capacity)
            held[far] -= out
            used -= out
            if held[far] > 0:
                break
            size -= 1
            moved = heap[size]
            at = 0
            while 2 * at + 1 < size:
                child = 2 * at + 1
                if child + 1 < size and heap[child + 1] > heap[child]:
                    child += 1
                if heap[child] <= moved:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = moved
    return hits


@_compiled
def nearest(
    offsets: Ints,
    nodes: Ints32,
    tokens: Ints,
    inputs: Ints,
    common: NDArray[np.bool_],
    replicas: int,
    least: float,
) -> Ints:
    """Replica of each request if it goes where the longest part of its prompt was last.

    Caches are unbounded. ``common`` nodes (what most prompts begin with) draw nobody: they would
    send all requests to one replica. Where less than ``least`` of the prompt was there before, the
    replica that was given the least new work so far takes it.
    """
    n = len(offsets) - 1
    where = np.full(len(tokens), -1, dtype=np.int64)
    work = np.zeros(replicas, dtype=np.int64)
    out = np.empty(n, dtype=np.int64)
    for row in range(n):
        found, chosen = 0, -1
        for ref in range(offsets[row], offsets[row + 1]):
            node = nodes[ref]
            if where[node] < 0:
                break
            found += tokens[node]
            if not common[node]:
                chosen = where[node]
        found = min(found, inputs[row])
        if chosen < 0 or found < least * inputs[row]:
            chosen, found = 0, 0
            for replica in range(1, replicas):
                if work[replica] < work[chosen]:
                    chosen = replica
        work[chosen] += inputs[row] - found
        out[row] = chosen
        for ref in range(offsets[row], offsets[row + 1]):
            where[nodes[ref]] = chosen
    return out


@_compiled
def generations(offsets: Ints, nodes: Ints32, last: Ints32, common: NDArray[np.bool_]) -> Ints:
    """How many requests lie behind each one in a line of descent, itself included.

    A request descends from the one that last touched the deepest node of its path that was there
    before; ``common`` nodes (what most prompts begin with) make no descent.
    """
    n = len(offsets) - 1
    out = np.ones(n, dtype=np.int64)
    for row in range(n):
        for ref in range(offsets[row], offsets[row + 1]):
            if last[ref] < 0:
                break
            if not common[nodes[ref]]:
                out[row] = out[last[ref]] + 1
    return out


@_compiled
def parents(offsets: Ints, nodes: Ints32, heads: Ints, n_nodes: int) -> Ints:
    """For each request the one before whose whole prompt it begins with; -1 if there is none.

    ``heads`` is the node that ends the prompt of each request (-1: it is nobody's parent). Of
    several parents the one with the longest prompt is taken, and of these the latest.
    """
    n = len(offsets) - 1
    ends = np.full(n_nodes, -1, dtype=np.int64)
    out = np.full(n, -1, dtype=np.int64)
    for row in range(n):
        for ref in range(offsets[row + 1] - 1, offsets[row] - 1, -1):
            if ends[nodes[ref]] >= 0:
                out[row] = ends[nodes[ref]]
                break
        if heads[row] >= 0:
            ends[heads[row]] = row
    return out


def dense(ids: NDArray[np.uint64]) -> tuple[Ints32, int]:
    """Numbers 0, 1, ... in order of first appearance in place of ids, and how many there are."""
    # Ids come from the log: places that nobody can foretell keep them from piling up on purpose.
    return _numbered(ids, np.random.default_rng().integers(2**64, dtype=np.uint64))


@_compiled
def _numbered(ids: NDArray[np.uint64], seed: np.uint64) -> tuple[Ints32, int]:
    """Open addressing; the places are those of the mixer of splitmix64 (Steele et al. 2014)."""
    bits = 10
    while (1 << bits) < 2 * len(ids):
        bits += 1
    mask = np.uint64((1 << bits) - 1)
    slots = np.full(1 << bits, -1, dtype=np.int32)
    seen = np.empty(len(ids), dtype=np.uint64)
    out = np.empty(len(ids), dtype=np.int32)
    n = 0
    for place in range(len(ids)):
        value = ids[place]
        at = value ^ seed
        at = (at ^ (at >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        at = (at ^ (at >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        at = (at ^ (at >> np.uint64(31))) & mask
        while slots[at] >= 0 and seen[slots[at]] != value:
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = n
            seen[n] = value
            n += 1
        out[place] = slots[at]
    return out, n
