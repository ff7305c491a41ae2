"""Sessions for logs that name none: by prompt blocks, or by the arithmetic of growing inputs."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: Beyond this many rows the one-by-one search of arithmetic links is not tried.
MAX_ARITHMETIC_ROWS = 100_000

#: New text of one turn, beyond the history, that still counts as the same conversation.
MAX_SURPLUS_TOKENS = 4096


@dataclass(frozen=True)
class Links:
    """A session number per row (row order), and how it was come by."""

    session: NDArray[np.int64]
    linked: int
    note: str


def by_blocks(frame: pl.DataFrame) -> Links | None:
    """Link a request to the earlier one whose whole prompt it begins with.

    Parameters
    ----------
    frame
        Sorted by start; ``row`` (0-based), ``prefix_blocks``, ``block_tokens``,
        ``input_tokens``. Hashes are chained, so that one block stands for all before it.

    Returns
    -------
    Links or None
        None if no row has blocks. A parent's last *full* block must occur in the child; of
        several parents the deepest and latest is taken. A prefix that ends many prompts (a bare
        system prompt) links nobody.
    """
    usable = frame.filter(
        pl.col("prefix_blocks").list.len() > 0, pl.col("block_tokens") > 0
    ).select("row", "prefix_blocks", "block_tokens", "input_tokens")
    if usable.height == 0:
        return None
    full = (pl.col("input_tokens") // pl.col("block_tokens").cast(pl.Int64)).clip(
        upper_bound=pl.col("prefix_blocks").list.len().cast(pl.Int64)
    )
    heads = (
        usable.with_columns(full.alias("full"))
        .filter(pl.col("full") > 0)
        .select(
            pl.col("row").alias("parent"),
            pl.col("prefix_blocks").list.get(pl.col("full") - 1).alias("block"),
            "full",
        )
    )
    # A block that ends many prompts is shared text, not one conversation's history.
    common = heads.group_by("block").len().filter(pl.col("len") > 3).select("block")
    heads = heads.join(common, on="block", how="anti").sort("parent")
    children = (
        usable.select("row", pl.col("prefix_blocks").alias("block")).explode("block").sort("row")
    )
    pairs = (
        children.join(heads, on="block", how="inner")
        .filter(pl.col("parent") < pl.col("row"))
        .sort("row", "full", "parent")
        .group_by("row", maintain_order=True)
        .last()
    )
    return _chains(frame.height, pairs["row"].to_numpy(), pairs["parent"].to_numpy(), "blocks")


def by_arithmetic(
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    inputs: NDArray[np.float64],
    outputs: NDArray[np.float64],
    cached: NDArray[np.float64],
    group: NDArray[np.int64],
) -> Links | None:
    """Link turns because inputs grow by what was said: input >= last input + last output.

    All arrays are in order of start, shape (n,); ``cached`` may be NaN; ``group`` keeps models
    and tenants apart. Cached tokens that equal the earlier total settle a match. The links are
    kept only if they are no accident: run backwards in time, a log of unrelated requests links
    as well as forwards, a log of conversations does not.
    """
    n = len(inputs)
    if n < 6 or n > MAX_ARITHMETIC_ROWS or not np.isfinite(start_s).all():
        return None
    known = np.isfinite(inputs)
    if known.mean() < 0.9 or len(np.unique(inputs[known])) < 0.7 * known.sum():
        return None  # repeated lengths are the mark of a synthetic load, not of chats
    parent, settled = _match(start_s, end_s, inputs, outputs, cached, group)
    links = int((parent >= 0).sum())
    back = np.arange(n)[::-1]
    mirrored, _ = _match(
        -end_s[back], -start_s[back], inputs[back], outputs[back],
        np.full(n, np.nan), group[back],
    )  # fmt: skip
    chance = int((mirrored >= 0).sum())
    # Of the requests that were served from a cache, most should continue what was said before.
    hits = cached[np.isfinite(cached) & (cached > 32)]
    base = float(np.median(hits)) if len(hits) else 0.0
    deep = int((hits > 1.05 * float(np.quantile(hits, 0.1))).sum()) if len(hits) else 0
    sure = settled >= 3 and settled >= 0.5 * max(deep, 1) and base > 0
    if links < 0.25 * n or not (sure or links >= 2.5 * chance + 2):
        return None
    rows = np.flatnonzero(parent >= 0)
    note = f"{links} of {n} requests continue an earlier one by the arithmetic of their lengths"
    if settled:
        note += f"; {settled} of them settled by their cached tokens"
    found = _chains(n, rows, parent[rows], "arithmetic")
    return Links(found.session, links, note)


def _match(
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    inputs: NDArray[np.float64],
    outputs: NDArray[np.float64],
    cached: NDArray[np.float64],
    group: NDArray[np.int64],
) -> tuple[NDArray[np.int64], int]:
    parent = np.full(len(inputs), -1, dtype=np.int64)
    settled = 0
    totals = np.nan_to_num(inputs) + np.nan_to_num(outputs)
    # Open conversations by total length; entries join once their request has ended.
    open_: dict[int, list[tuple[float, int]]] = {}
    waiting: list[tuple[float, int]] = []
    for i in np.argsort(start_s, kind="stable"):
        now = start_s[i]
        while waiting and waiting[0][0] <= now + 1e-3:
            _, j = waiting.pop(0)
            bisect.insort(open_.setdefault(int(group[j]), []), (totals[j], j))
        heads = open_.get(int(group[i]), [])
        chosen = -1
        if np.isfinite(cached[i]) and cached[i] > 32:
            # The cache holds what was said, less the last token or part of a block.
            at = bisect.bisect_left(heads, (cached[i] - 2, -1))
            if at < len(heads) and heads[at][0] <= cached[i] + 66 and heads[at][0] <= inputs[i] + 2:
                chosen = at
                settled += 1
        if chosen < 0:
            at = bisect.bisect_right(heads, (inputs[i] + 2, len(inputs))) - 1
            if at >= 0 and heads[at][0] > 32:
                surplus = inputs[i] - heads[at][0]
                if surplus <= min(MAX_SURPLUS_TOKENS, 64 + 0.5 * heads[at][0]):
                    chosen = at
        if chosen >= 0:
            parent[i] = heads.pop(chosen)[1]
        bisect.insort(waiting, (float(end_s[i]), int(i)))
    return parent, settled


def _chains(n: int, rows: NDArray[np.int64], parents: NDArray[np.int64], how: str) -> Links:
    """Number the conversations: every row takes the number of its first ancestor."""
    root = np.arange(n, dtype=np.int64)
    root[rows] = parents
    while True:  # halves every path; logarithmic in the longest conversation
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    return Links(root, len(rows), f"{len(rows)} of {n} requests continue an earlier one by {how}")
