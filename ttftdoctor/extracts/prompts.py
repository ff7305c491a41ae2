"""Which blocks of a prompt an earlier request had, for logs that are larger than memory.

Of all references to a block one is the first; to every other request that has the block it is not
new. So it is enough to find the first reference to each block, and to count how many of them a
request has: it repeats the rest. Parts of a log give the first references that they know, and of
these the first one counts: neither a prompt that all requests share nor a log with many prompts
asks for more than a part at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl

from ttftdoctor.chains import believable, sums
from ttftdoctor.extracts.facts import turn_order
from ttftdoctor.table import LINE

#: What is known of the prompt of a row: how many of its blocks are used (null: none are told), and
#: the first one as it was logged.
PROMPT = {"blocks": pl.Int64, "first_block": pl.UInt64}
#: The columns that are left out of rows whose prompts have been looked at, since they are long.
LONG = ("prefix_blocks",)

#: How ids are used: as they are; those of each file by themselves, since traces number their
#: blocks from nothing; or as sums of all up to there, since equal ids do not mean equal beginnings.
Way = Literal["kept", "by_source", "made"]
WAYS: tuple[Way, ...] = ("kept", "by_source", "made")
_SALT = 0x9E3779B97F4A7C15
#: Bits that the line of a row takes in the number of its place.
LINE_BITS = 40
_LAST = int(np.iinfo(np.int64).max)
#: What decides which of two references is the first one.
ORDER = ("start", "place")
#: What a reference is made of, but for who it is that refers.
REFERENCE = {
    "id": pl.UInt64, "least": pl.Int64, "most": pl.Int64, "start": pl.Int64, "place": pl.Int64,
}  # fmt: skip


def place() -> pl.Expr:
    """Source and line of a row in one number."""
    number: pl.Expr = pl.col("source").cast(pl.Int64) * 2**LINE_BITS + pl.col(LINE)
    return number.alias("place")


def with_prompts(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of ``PROMPT``, also to rows without the ``LONG`` columns."""
    if "prefix_blocks" not in rows.columns or rows["prefix_blocks"].null_count() == rows.height:
        return rows.with_columns(pl.lit(None, dtype=kind).alias(c) for c, kind in PROMPT.items())
    blocks = pl.col("prefix_blocks")
    used = pl.when(believable()).then(blocks.list.len()).otherwise(0).cast(pl.Int64)
    return rows.with_columns(
        pl.when(blocks.is_not_null()).then(used).alias("blocks"),
        blocks.list.first().alias("first_block"),
    )


def first_references(
    rows: pl.DataFrame, way: Way, who: Sequence[str], order_known: bool
) -> pl.DataFrame:
    """Of each block the first reference among some requests.

    Parameters
    ----------
    rows
        ``prefix_blocks``, ``blocks``, ``source``, ``line``, ``start`` and what tells ``who`` a row
        is; of one place in the log in order.
    way
        What ids stand for.
    order_known
        Whether the log tells when requests came.

    Returns
    -------
    DataFrame
        ``id``; ``least`` and ``most``, which are equal if it always comes after the same id;
        ``start``, ``place`` and ``who`` of the first reference.
    """
    rows = rows.filter(pl.col("blocks") > 0)
    rows = rows.sort(turn_order(order_known), nulls_last=True, maintain_order=True)
    start = pl.col("start").fill_null(_LAST) if order_known else pl.lit(0, dtype=pl.Int64)
    ids = sums(rows["prefix_blocks"]) if way == "made" else rows["prefix_blocks"]
    references = (
        rows.select(pl.int_range(pl.len()).alias("request"), start.alias("start"), place(), *who)
        .with_columns(ids.alias("id"), rows["source"])
        .explode("id")
    )
    if way == "by_source":
        salt = pl.col("source").cast(pl.UInt64) * pl.lit(_SALT, dtype=pl.UInt64)
        references = references.with_columns((pl.col("id") ^ salt).alias("id"))
    first = pl.col("request") != pl.col("request").shift(1)
    # The first of a prompt has itself before it; one that really has, something else: it is no
    # beginning that chains.
    last = pl.col("id").shift(1)
    itself = pl.when(first.fill_null(True)).then("id").when(last == pl.col("id")).then(~last)
    before = itself.otherwise(last)
    return (
        references.with_columns(before.reinterpret(signed=True).alias("least"))
        .with_columns(pl.col("least").alias("most"))
        .pipe(_first, who)
    )


def first_of(references: pl.DataFrame, who: Sequence[str]) -> pl.DataFrame:
    """Of each block the first reference among those of several parts."""
    return _first(references.sort(*ORDER, *who), who)


def _first(references: pl.DataFrame, who: Sequence[str]) -> pl.DataFrame:
    return references.group_by("id").agg(
        pl.col("least").min(), pl.col("most").max(), *(pl.col(c).first() for c in (*ORDER, *who))
    )


def chained(references: pl.DataFrame) -> bool:
    """Whether each id always comes after the same one, as far as these show."""
    return bool((references["least"] == references["most"]).all())


def new_blocks(references: pl.DataFrame, who: Sequence[str]) -> pl.DataFrame:
    """How many blocks each request was the first to have (``new``)."""
    return references.group_by(who).agg(pl.len().cast(pl.Int64).alias("new"))


def with_seen(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``seen_tokens`` to rows that know their ``new`` blocks, null for none."""
    seen = (pl.col("blocks") - pl.col("new").fill_null(0)) * pl.col("block_tokens").fill_null(0)
    total = pl.col("input_tokens").fill_null(0)
    known = pl.when(pl.col("blocks").is_not_null()).then(pl.min_horizontal(seen, total))
    return rows.with_columns(known.cast(pl.Int64).alias("seen_tokens")).drop("new", "blocks")
