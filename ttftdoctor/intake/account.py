"""What is counted while the rows of one input are read. Accounts of its pieces add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import polars as pl

from ttftdoctor.intake.mixed import Part
from ttftdoctor.readers import Options, Plan, Raw
from ttftdoctor.sources import Chunk
from ttftdoctor.table import DOUBTS, LINE, REJECT, SET_ASIDE, UNREAD, Field, check, conform

#: How many rejects are shown with their line.
FIRST_REJECTS = 10

#: Rows that failed or were refused by the service: no requests to measure, but worth counting.
FAILED = ("failed_request", "aborted_request", "rate_limited")


@dataclass(frozen=True)
class Rows:
    """What a chunk came to: checked rows that can be used, those that failed, and texts."""

    good: pl.DataFrame
    failed: pl.DataFrame
    prompts: pl.DataFrame | None


@dataclass
class Account:
    """Counts of rows, and what was said of them, in the order in which they were read.

    ``first`` are the first rejects by line, ``doubtful`` the first lines of each doubt. ``placed``:
    some row names its replica.
    """

    rows: int = 0
    used: int = 0
    placed: bool = False
    rejected: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)
    first: list[tuple[int, str]] = field(default_factory=list)
    fields: dict[str, Field] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    bytes_per_token: float | None = None
    doubts: Counter[str] = field(default_factory=Counter)
    doubtful: dict[str, list[int]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)

    def take(self, chunk: Chunk, plan: Plan, options: Options, part: Part) -> Rows:
        """Convert, check and count the rows of a chunk."""
        batch = plan.convert(Raw(chunk.frame, options))
        self.fields.update({k: v for k, v in batch.fields.items() if k not in self.fields})
        self.notes.update(dict.fromkeys(batch.notes))
        self.bytes_per_token = batch.bytes_per_token or self.bytes_per_token
        frame = _from(check(conform(batch.frame)), part)
        self.rows += frame.height + len(chunk.rejects)
        bad_lines = part.place(pl.Series([line for line, _ in chunk.rejects], dtype=pl.Int64))
        for line, (_, reason) in zip(bad_lines, chunk.rejects, strict=True):
            self.rejected[reason] += 1
            self.first.append((line, reason))
        bad = known(frame, REJECT)
        for reason, n in bad.group_by(REJECT).len().iter_rows():
            self.rejected[reason] += n
        self.first.extend(bad.select(LINE, REJECT).head(FIRST_REJECTS).iter_rows())
        self.first = sorted(self.first)[:FIRST_REJECTS]
        for labels, n in known(frame, UNREAD).group_by(UNREAD).len().iter_rows():
            self.unread.update(dict.fromkeys(labels.split("\n"), n))
        good = frame.filter(pl.col(REJECT).is_null()) if bad.height else frame
        found = {name: int(good[name].sum()) for name in DOUBTS}
        self.doubts.update(found)
        for name in (name for name, n in found.items() if n):
            lines = good.filter(pl.col(name))[LINE].head(FIRST_REJECTS).to_list()
            self.doubtful[name] = [*self.doubtful.get(name, ()), *lines][:FIRST_REJECTS]
        for reason, n in known(good, SET_ASIDE).group_by(SET_ASIDE).len().iter_rows():
            self.aside[reason] += n
        self.used += good.height
        self.placed = self.placed or good["replica"].null_count() < good.height
        said = None if batch.prompts is None else _placed(batch.prompts, part)
        return Rows(good, bad.filter(pl.col(REJECT).is_in(FAILED)), said)

    def add(self, later: Account, before: int) -> None:
        """Take in what was counted of a later piece, which has so many lines ``before`` it."""
        self.rows += later.rows
        self.used += later.used
        self.placed = self.placed or later.placed
        for mine, others in (
            (self.rejected, later.rejected), (self.aside, later.aside),
            (self.doubts, later.doubts), (self.unread, later.unread),
        ):  # fmt: skip
            mine.update(others)
        first = ((line + before, reason) for line, reason in later.first)
        self.first = sorted([*self.first, *first])[:FIRST_REJECTS]
        self.fields.update({k: v for k, v in later.fields.items() if k not in self.fields})
        self.notes.update(later.notes)
        self.bytes_per_token = later.bytes_per_token or self.bytes_per_token
        for name, lines in later.doubtful.items():
            moved = (line + before for line in lines)
            self.doubtful[name] = [*self.doubtful.get(name, ()), *moved][:FIRST_REJECTS]


def known(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows that have a value in the column; often none, which costs nothing to see."""
    if frame[column].null_count() == frame.height:
        return frame.clear()
    return frame.filter(pl.col(column).is_not_null())


def tagged(frame: pl.DataFrame, index: int) -> pl.DataFrame:
    """Checked rows as rows of a log, which say of which of its inputs they are."""
    return frame.drop(UNREAD, *DOUBTS).with_columns(source_of(index))


def source_of(index: int) -> pl.Expr:
    """The number of an input as a column."""
    return pl.lit(index, dtype=pl.Int32).alias("source")


def _placed(frame: pl.DataFrame, part: Part) -> pl.DataFrame:
    """The frame with the lines of the file, where the part has its own."""
    return frame if part.pile is None else frame.with_columns(part.place(frame[LINE]))


def _from(frame: pl.DataFrame, part: Part) -> pl.DataFrame:
    """The checked rows of a part with the lines of the file, and who wrote them as the replica.

    Only a server's own log is written where prefill is done; a gateway's name is no replica.
    """
    if not any(part.writers):
        return _placed(frame, part)
    writers = part.replica(frame[LINE])
    frame = _placed(frame, part)
    mine = pl.col("replica").is_null() & (pl.col("vantage") == "server")
    return frame.with_columns(
        pl.when(mine.fill_null(False)).then(writers).otherwise("replica")
        .alias("replica")
    )  # fmt: skip
