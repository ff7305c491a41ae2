"""The beginnings that most requests share, and those that save most; who shares with whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ttftdoctor.measure.caches import Cached, caches
from ttftdoctor.measure.trie import Index, Trie
from ttftdoctor.prefixes.records import Leaders, Prefix
from ttftdoctor.stats import Array

#: How many are shown of each.
TOP = 10


def leaders(
    trie: Trie, one: Cached, session: Index, place: Callable[[int], tuple[str, int]],
    top: int = TOP,
) -> Leaders:  # fmt: skip
    """Rank shared beginnings.

    A beginning is the way from the root to a node of the tree. It saves what all but its first
    request find of it, each token counted at the deepest beginning it belongs to for the ranking by
    tokens; of beginnings that the same requests share, the longest stands for all.

    Parameters
    ----------
    session
        A number per request, -1 where none is known.
    place
        Gives path and line of a request, to look the first one up.
    """
    nodes = len(trie.tokens)
    times = trie.times
    first = np.full(nodes, trie.n, dtype=np.int64)
    np.minimum.at(first, trie.nodes, trie.owner)
    depth = _depths(trie)
    shared = times > 1
    saves = (times - 1) * trie.tokens
    known = bool((session >= 0).any())
    by_requests = _ranked(np.where(shared, times, 0), depth, top)
    by_tokens = _ranked(np.where(shared, saves, 0), depth, top)

    def record(node: int) -> Prefix:
        path, line = place(int(first[node]))
        return Prefix(
            id=f"P{node}",
            tokens=int(depth[node]),
            requests=int(times[node]),
            sessions=_sessions_of(trie, node, session) if known else None,
            reusable_tokens=int(saves[node]),
            first_line=line,
            first_path=path,
        )

    within = None
    if known:
        alone = session.max(initial=-1) + 1 + np.arange(trie.n)
        _, own = np.unique(np.where(session >= 0, session, alone), return_inverse=True)
        within = int(caches(trie, own.astype(np.int64)).hits().sum())
    total = int(one.hits().sum())
    return Leaders(
        by_requests=tuple(record(int(node)) for node in by_requests),
        by_tokens=tuple(record(int(node)) for node in by_tokens),
        within_session_tokens=within,
        across_sessions_tokens=None if within is None else total - within,
        top_tenth_of_reuse=_top_tenth(trie, times),
        never_reused_share=_never(trie, times),
    )


def _depths(trie: Trie) -> Index:
    """Tokens from the root to the end of each node."""
    lengths = trie.tokens[trie.nodes]
    until = np.cumsum(lengths)
    before = np.concatenate([[0], until])[trie.offsets[:-1]]
    depth = np.zeros(len(trie.tokens), dtype=np.int64)
    depth[trie.nodes] = until - np.repeat(before, np.diff(trie.offsets))
    return depth


def _ranked(values: Array | Index, depth: Index, top: int) -> Index:
    """The nodes with the largest values, the deeper first of equal ones; none of zero."""
    order = np.lexsort((-depth, -values))[:top]
    return order[values[order] > 0]


def _sessions_of(trie: Trie, node: int, session: Index) -> int:
    rows = trie.owner[trie.nodes == node]
    found = session[rows]
    return len(np.unique(found[found >= 0])) + int((found < 0).sum())


def _top_tenth(trie: Trie, times: Index) -> float | None:
    """Part of all reuses of blocks that the most used tenth of the blocks gets."""
    sizes = trie.tokens // np.maximum(trie.block, 1)
    reuses = (times - 1).astype(np.float64)
    total = float((reuses * sizes).sum())
    if total <= 0:
        return None
    order = np.argsort(-reuses, kind="stable")
    blocks = np.cumsum(sizes[order])
    tenth = blocks[-1] / 10
    got = np.cumsum(reuses[order] * sizes[order])
    return (
        float(np.interp(tenth, np.concatenate([[0], blocks]), np.concatenate([[0], got]))) / total
    )


def _never(trie: Trie, times: Index) -> float:
    """Part of the distinct blocks that one request alone has."""
    sizes = trie.tokens // np.maximum(trie.block, 1)
    return float(sizes[times == 1].sum()) / max(int(sizes.sum()), 1)
