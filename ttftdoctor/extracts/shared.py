"""What prompts share, of rows in buckets on disk: which of them first had each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ttftdoctor.extracts.prompts import (
    REFERENCE,
    WAYS,
    Way,
    chained,
    first_of,
    first_references,
    new_blocks,
    with_seen,
)
from ttftdoctor.extracts.runs import Runs
from ttftdoctor.table import LINE, REJECT

#: Buckets of references to blocks, and the memory that one reference takes on its way.
PARTS, REFERENCE_BYTES = 256, 400
#: This part of the memory is for references.
PART = 4
#: By what they are dealt out.
_HASH = pl.col("id").hash(seed=0)
#: A row is counted once: its number, and the bucket that it is in.
_WHO = ("row", "bucket")
_REFERENCES: dict[str, Any] = {**REFERENCE, "row": pl.Int64, "bucket": pl.UInt8}


@dataclass(frozen=True)
class Shared:
    """How many blocks each row was the first to have (``row``, ``new``), where there are any.

    They lie in the buckets of their rows, and may have to be added up. ``way`` is what ids stand
    for.
    """

    new: Runs
    way: Way

    def seen(self, rows: pl.DataFrame, buckets: tuple[int, int]) -> pl.DataFrame:
        """Rows of some buckets with ``seen_tokens``, in place of ``row`` and ``blocks``."""
        columns = {"row": pl.Int64, "new": pl.Int64}
        none = pl.LazyFrame(schema=columns)
        mine = rows.lazy().select("row")
        counts = (
            pl.concat([none, *self.new.scans(buckets, columns)])
            .join(mine, on="row", how="semi")
            .group_by("row")
            .agg(pl.col("new").sum())
            .collect(engine="streaming")
        )
        return with_seen(rows.join(counts, on="row", how="left", maintain_order="left")).drop("row")


def shared_of(
    rows: Runs, schema: Mapping[str, Any], order_known: bool, inputs: int, memory: int
) -> Shared | None:
    """Find out what prompts share; None if no row has blocks that are those of its prompt.

    Parameters
    ----------
    rows
        With the columns of ``PROMPT``, and ``row``, which numbers those that have blocks.
    schema
        The columns of rows.
    order_known
        Whether the log tells when requests came.
    inputs
        How many files and the like the rows are of.
    memory
        Bytes, of which a part is taken.
    """
    for way in WAYS:
        if way == "by_source" and inputs < 2:
            continue
        new = _first_to_have(rows, schema, way, order_known, memory // REFERENCE_BYTES // PART)
        if new is not None:
            return Shared(new, way) if new.files else None
    return None


def _first_to_have(
    rows: Runs, schema: Mapping[str, Any], way: Way, order_known: bool, most: int
) -> Runs | None:
    """How many blocks each row was the first to have; None if ids do not chain this way."""
    references = Runs(rows.folder, PARTS, "blocks")
    new = Runs(rows.folder, rows.many, "new")
    try:
        for piece in _prompts(rows, schema, most):
            some = first_references(piece, way, _WHO, order_known)
            if not chained(some):
                return None
            references.add(some, some.select((_HASH % PARTS).cast(pl.UInt8)).to_series())
        for found in _together(references, most):
            if not chained(found):
                new.clear()
                return None
            counts = new_blocks(found, _WHO)
            if counts.height:
                new.add(counts.drop("bucket"), counts["bucket"])
    finally:
        references.clear()
    return new


def _prompts(rows: Runs, schema: Mapping[str, Any], most: int) -> Iterator[pl.DataFrame]:
    """Blocks of the prompts of usable rows, in pieces of about ``most``, or of one row."""
    columns = ("row", "blocks", "prefix_blocks", "source", LINE, "start", REJECT)
    for run in rows.files:
        every = run.scan({c: schema[c] for c in columns})
        sizes = every.select(pl.col("blocks").fill_null(0)).collect().to_series()
        buckets = np.repeat(np.arange(rows.many), np.diff(run.ends, prepend=0))
        numbers = pl.Series("bucket", buckets, dtype=pl.UInt8)
        first = 0
        for length in (sizes.cum_sum() // most).rle().struct.field("len"):
            some = every.slice(first, length).collect()
            some = some.with_columns(numbers.slice(first, length))
            first += length
            some = some.filter(pl.col(REJECT).is_null())
            if some.height:
                yield some


def _together(references: Runs, most: int) -> Iterator[pl.DataFrame]:
    """The first references to blocks, those of some blocks at a time: about ``most`` are read."""
    for buckets, rows in references.groups(most):
        many = max(-(-rows // most), 1)
        for share in range(many):
            inside = None if many == 1 else _HASH // PARTS % many == share
            yield first_of(references.read(buckets, _REFERENCES, inside), _WHO)
