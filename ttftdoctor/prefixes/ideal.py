"""What could be reused at best, by every definition in use: one trace has many hit rates."""

from __future__ import annotations

import numpy as np

from ttftdoctor.language import tr
from ttftdoctor.measure import kernels
from ttftdoctor.measure.caches import Cached
from ttftdoctor.measure.trie import Index, Trie
from ttftdoctor.prefixes.records import Ancestry, Definition, Generation

#: What more than this part of the requests begin with makes none of them a later turn.
MOST = 0.5
#: Turns that are shown one by one; the last stands for all later ones.
SHOWN = 10


def definitions(trie: Trie, endless: Cached) -> tuple[Definition, ...]:
    """The shares that people call the hit rate, of one endless cache that starts empty.

    Parameters
    ----------
    endless
        One cache for all requests.
    """
    hits = endless.hits()
    blocks = _block_hits(endless)
    known = trie.inputs > 0
    half = np.arange(trie.n) >= trie.n // 2
    full = trie.blocks > 0
    return (
        Definition(
            "token_share", _part(hits, trie.inputs, known),
            tr("prompt tokens found in the cache / all prompt tokens; the cache starts empty"),
        ),
        Definition(
            "block_share", _part(blocks, trie.blocks, full),
            tr("blocks found / all blocks; a block that is not full counts as one"),
        ),
        Definition(
            "mean_token_ratio", _mean(hits, trie.inputs, known),
            tr("mean over requests of (tokens found / tokens of the prompt): short prompts weigh "
               "as much as long ones"),
        ),
        Definition(
            "mean_block_ratio", _mean(blocks, trie.blocks, full),
            tr("mean over requests of (blocks found / blocks of the prompt)"),
        ),
        Definition(
            "second_half_token_share", _part(hits, trie.inputs, known & half),
            tr("token share over the second half of the requests: the cache is warm"),
        ),
        Definition(
            "second_half_block_share", _part(blocks, trie.blocks, full & half),
            tr("block share over the second half of the requests"),
        ),
    )  # fmt: skip


def ancestry(trie: Trie, endless: Cached) -> Ancestry | None:
    """Turns by content alone, whatever ids the log has; None of an empty log."""
    if not trie.n:
        return None
    common = trie.common(MOST)
    turn = kernels.generations(trie.offsets, trie.nodes, endless.last, common)
    hits = endless.hits()
    later = turn > 1
    held = int(trie.inputs[later].sum())
    return Ancestry(
        first_share=float((~later).mean()),
        deepest=int(turn.max()),
        later_input_share=held / max(int(trie.inputs.sum()), 1),
        later_hit_share=float(hits[later].sum()) / held if held else None,
        generations=tuple(
            Generation(
                number, int(some.sum()), int(trie.inputs[some].sum()),
                float(hits[some].sum()) / max(int(trie.inputs[some].sum()), 1),
            )
            for number in range(1, min(int(turn.max()), SHOWN) + 1)
            for some in [turn == number if number < SHOWN else turn >= number]
        ),
    )  # fmt: skip


def _block_hits(endless: Cached) -> Index:
    trie = endless.trie
    size = (trie.tokens // np.maximum(trie.block, 1))[trie.nodes]
    return trie.per_request(np.where(endless.last >= 0, size, 0)).astype(np.int64)


def _part(hits: Index, of: Index, rows: np.ndarray) -> float:
    total = int(of[rows].sum())
    return float(hits[rows].sum()) / total if total else 0.0


def _mean(hits: Index, of: Index, rows: np.ndarray) -> float:
    return float((hits[rows] / of[rows]).mean()) if rows.any() else 0.0
