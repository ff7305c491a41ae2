"""Rows on disk: where those of a log go that is larger than memory, until it has been read.

Rows lie in files of the order in which they were read, and within a file by bucket. A session is
in one bucket, so that buckets can be worked on one after the other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import polars as pl

from ttftdoctor.errors import TTFTDoctorError
from ttftdoctor.extracts import Budget
from ttftdoctor.extracts.stretches import lot
from ttftdoctor.extracts.survey import Survey, survey_of, surveyed
from ttftdoctor.table import LINE, REJECT

#: So many buckets; each should hold less than fits in memory at once.
BUCKETS = 64
#: Rows that are put into one file.
FILE_ROWS = 250_000
#: Of so many rows one is looked at to see where rows lie in their order.
SAMPLED = 500
#: Bits that the line of a row takes in the number of its place.
LINE_BITS = 40
#: Content is not looked at in an extract: what of a prompt was computed before the extract begins
#: cannot be seen in it.
LEFT_OUT = ("prefix_blocks", "block_tokens")


@dataclass(frozen=True)
class _Run:
    """A file of rows by bucket; those of bucket ``b`` are from ``ends[b-1]`` up to ``ends[b]``."""

    path: Path
    ends: tuple[int, ...]


class Spool:
    """Takes rows once there are more of them than can be diagnosed at once.

    Use as a context manager: the files are gone when it is left, however that comes about.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        #: Rows that can be diagnosed at once.
        self.fits = budget.fits
        #: Inputs that were read before the one that is being read.
        self.before = 0
        self.spilling = False
        self.left_out = False
        self._held = self._bytes = self._slim = self._rows = 0
        self._waiting: list[pl.DataFrame] = []
        self._runs: list[_Run] = []
        self._survey = surveyed(())
        self._schema: pl.Schema | None = None
        self._folder: Path | None = None
        self._number = count()
        self._laid: defaultdict[str, list[Path]] = defaultdict(list)
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def full(self, rows: pl.DataFrame) -> bool:
        """Whether rows that were read are to be put here, with all that came before them."""
        self._held += rows.height
        self._bytes += bytes_of(rows)
        self.spilling = self.spilling or self._held > self.fits or self._bytes > self.budget.held
        return self.spilling

    def put(self, rows: pl.DataFrame, before: int | None = None) -> None:
        """Take rows, used or failed, whose ``source`` counts from the inputs ``before`` them.

        Threads may do so at the same time.
        """
        if not rows.height:
            return
        moved = (pl.col("source") + (self.before if before is None else before)).cast(pl.Int32)
        slim = rows.drop(LEFT_OUT, strict=False).with_columns(moved)
        with self._lock:
            self._schema = slim.schema
            self._slim += bytes_of(slim)
            self._rows += slim.height
            if not self.left_out and "prefix_blocks" in rows.columns:
                self.left_out = rows["prefix_blocks"].null_count() < rows.height
            self._waiting.append(slim)
            if sum(frame.height for frame in self._waiting) >= FILE_ROWS:
                self._write()

    def clear(self) -> None:
        """Forget all rows that were put here."""
        self._waiting.clear()
        for run in self._runs:
            run.path.unlink(missing_ok=True)
        self._runs.clear()
        self._survey, self.spilling = surveyed(()), False
        self._held = self._bytes = self._slim = self._rows = 0

    def keep(self, rows: pl.DataFrame, name: str) -> None:
        """Lay some rows of an extract by: filtered texts would hold on to all they came from."""
        if rows.height:
            self._laid[name].append(self._written(rows, f"{name}{next(self._number)}"))

    def kept(self, name: str) -> list[pl.DataFrame]:
        """What was laid by under a name, once."""
        paths, self._laid[name] = self._laid[name], []
        return [pl.read_parquet(path, memory_map=False) for path in paths]

    def room(self) -> int:
        """How many of the rows that were put here can be diagnosed at once, as long as they are."""
        return min(self.fits, self.budget.room(self._slim, self._rows))

    def survey(self) -> Survey:
        """What all rows are like."""
        self._write()
        return self._survey

    def starts(self) -> Iterator[pl.DataFrame]:
        """``start`` and ``reject`` of all rows, those of one file at a time."""
        self._write()
        for run in self._runs:
            assert self._schema is not None
            columns = {c: self._schema[c] for c in ("start", REJECT)}
            yield _with_all(pl.scan_parquet(run.path), columns).collect()

    def in_order(self, most: int) -> Iterator[pl.DataFrame]:
        """All rows in the order of source and line, in pieces of about ``most`` rows."""
        self._write()
        some = [
            pl.scan_parquet(run.path).select(place()).collect().to_series().sort()
            .gather_every(SAMPLED)
            for run in self._runs
        ]  # fmt: skip
        if not some:
            return
        each = max(most // SAMPLED, 1)
        edges = pl.concat(some).sort().gather_every(each, offset=each)
        runs = [self._cut(run, edges) for run in self._runs]
        for number in range(len(edges) + 1):
            yield self._read((number, number + 1), None, runs=runs).sort(place())
        for run in runs:
            run.path.unlink(missing_ok=True)

    def _cut(self, run: _Run, edges: pl.Series) -> _Run:
        """The rows of a file in order, in a file by the pieces that begin at the edges."""
        rows = pl.read_parquet(run.path, memory_map=False).sort(place())
        at = edges.search_sorted(rows.select(place()).to_series(), side="right").to_numpy()
        ends = np.cumsum(np.bincount(at, minlength=len(edges) + 1))
        path = self._written(rows, f"in_order{next(self._number)}")
        return _Run(path, tuple(int(n) for n in ends))

    def buckets(self, most: int, order: pl.Expr | None = None) -> Iterator[Iterator[pl.DataFrame]]:
        """All rows, those of some buckets at a time, in pieces of about ``most`` rows in order.

        Buckets that are no larger together come in one piece. The ``order`` is that of a whole
        number, by default the start; pieces begin where it differs, rows without it come last.
        """
        order = pl.col("start") if order is None else order
        self._write()
        sizes = np.zeros(BUCKETS, dtype=np.int64)
        for run in self._runs:
            sizes += np.diff(run.ends, prepend=0)
        first = 0
        while first < BUCKETS:
            last = first + 1
            while last < BUCKETS and sizes[first : last + 1].sum() <= most:
                last += 1
            yield self._pieces((first, last), int(sizes[first:last].sum()), most, order)
            first = last

    def _pieces(
        self, number: tuple[int, int], rows: int, most: int, start: pl.Expr
    ) -> Iterator[pl.DataFrame]:
        if rows <= most:
            yield self._read(number, None)
            return
        keys = self._read(number, None, ["start", "source", LINE]).select(start)
        starts = keys.to_series().drop_nulls().sort()
        many = -(-rows // most)
        places = [int(len(starts) * k / many) for k in range(1, many)] if len(starts) else []
        edges = sorted({int(starts[place]) for place in places})
        for low, high in zip([None, *edges], [*edges, None], strict=True):
            inside = pl.lit(True) if low is None else start >= low
            inside = inside if high is None else inside & (start < high)
            inside = inside | start.is_null() if high is None else inside & start.is_not_null()
            yield self._read(number, inside)

    def _read(
        self,
        number: tuple[int, int],
        inside: pl.Expr | None,
        columns: list[str] | None = None,
        runs: list[_Run] | None = None,
    ) -> pl.DataFrame:
        assert self._schema is not None
        parts = []
        for run in self._runs if runs is None else runs:
            first, n = self._span(run, number)
            if not n:
                continue
            part = pl.scan_parquet(run.path).slice(first, n)
            if columns is not None:
                part = part.select(c for c in columns if c in part.collect_schema())
            if inside is not None:
                part = _with_all(part, self._schema).filter(inside)
            parts.append(part.collect())
        schema = self._schema if columns is None else {c: self._schema[c] for c in columns}
        # A column without a value in one file has some in another.
        filled = [_with_all(frame.lazy(), schema).collect() for frame in parts]
        return pl.concat(filled) if filled else pl.DataFrame(schema=schema)

    @staticmethod
    def _span(run: _Run, number: tuple[int, int]) -> tuple[int, int]:
        first = run.ends[number[0] - 1] if number[0] else 0
        return first, run.ends[number[1] - 1] - first

    def _write(self) -> None:
        """Put what is waiting into a file, the rows of each bucket together."""
        if not self._waiting:
            return
        rows = pl.concat(self._waiting)
        self._waiting.clear()
        self._survey = self._survey.plus(survey_of(rows))
        bucket = (lot() % BUCKETS).cast(pl.UInt8).alias("bucket")
        rows = rows.select(s.name for s in rows if s.null_count() < rows.height)
        missing = [c for c in ("session_id",) if c not in rows.columns]
        none = (pl.lit(None, dtype=pl.String).alias(c) for c in missing)
        rows = rows.with_columns(none).with_columns(bucket).sort("bucket", maintain_order=True)
        counts = np.bincount(rows["bucket"].to_numpy(), minlength=BUCKETS)
        path = self._written(rows.drop("bucket", *missing), str(next(self._number)))
        self._runs.append(_Run(path, tuple(int(n) for n in np.cumsum(counts))))

    def _written(self, rows: pl.DataFrame, name: str) -> Path:
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="ttftdoctor-"))
            path = self._folder / f"{name}.parquet"
            rows.write_parquet(
                path, compression="uncompressed", statistics=False, row_group_size=16_384
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            raise TTFTDoctorError(
                "there is no room on disk for a log that is larger than memory",
                where=str(self._folder or tempfile.gettempdir()),
                why=str(error).splitlines()[0],
                help="set TMPDIR to a folder with more room, or give more --memory",
            ) from None
        return path


def place() -> pl.Expr:
    """Source and line of a row in one number."""
    number: pl.Expr = pl.col("source").cast(pl.Int64) * 2**LINE_BITS + pl.col(LINE)
    return number.alias("place")


def bytes_of(rows: pl.DataFrame) -> int:
    """About how much memory rows take: that of the columns in which there is something."""
    return int(sum(s.estimated_size() for s in rows if s.null_count() < rows.height))


def _with_all(rows: pl.LazyFrame, schema: pl.Schema | dict[str, pl.DataType]) -> pl.LazyFrame:
    """All columns of the schema, null where the rows do not have them."""
    have = rows.collect_schema()
    return rows.select(
        pl.col(c) if c in have else pl.lit(None, dtype=kind).alias(c) for c, kind in schema.items()
    )
