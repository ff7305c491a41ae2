"""Rows in files of a temporary folder, dealt out into buckets: each file has some of every bucket.

So all rows of a bucket are read without the others, whoever wrote them and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.errors import TTFTDoctorError

#: Rows of a file that are read together: fewer, where they take more than so many bytes.
GROUP_ROWS, GROUP_BYTES = 16_384, 8 * 2**20
#: Files that are being written when their folder is removed are waited for, seconds at a time.
PATIENCE, PAUSE_S = 100, 0.02


class Folder:
    """A folder that is made when it is first written to; ``close`` removes it for good."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._closed = False
        self._number = count()
        self._lock = Lock()

    def close(self) -> None:
        """Remove all files, also those that a thread is writing; nothing is written any more."""
        with self._lock:
            self._closed = True
        if self._path is None:
            return
        import shutil  # of a log that fits, nothing is ever put here

        for _ in range(PATIENCE):
            shutil.rmtree(self._path, ignore_errors=True)
            if not self._path.exists():
                return
            sleep(PAUSE_S)

    def _place(self, name: str) -> Path:
        import tempfile

        with self._lock:
            if self._closed:
                raise OSError("the run is over")
            if self._path is None:
                self._path = Path(tempfile.mkdtemp(prefix="ttftdoctor-"))
            return self._path / f"{name}{next(self._number)}.parquet"

    def write(self, rows: pl.DataFrame, name: str) -> Path:
        """Put rows into a new file, whose name begins so.

        Raises
        ------
        TTFTDoctorError
            If the disk is full, or there is no place for such files.
        """
        import tempfile

        try:
            path = self._place(name)
            rows.write_parquet(
                path, compression="uncompressed", statistics=False, row_group_size=group_rows(rows)
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            raise TTFTDoctorError(
                "there is no room on disk for a log that is larger than memory",
                where=str(self._path or tempfile.gettempdir()),
                why=str(error).splitlines()[0],
                help="set TMPDIR to a folder with more room, or give more --memory",
            ) from None
        return path


def group_rows(rows: pl.DataFrame) -> int:
    """How many rows of a file are read together, as long as these are."""
    each = rows.estimated_size() / max(rows.height, 1)
    return int(min(max(GROUP_BYTES // max(each, 1), 1), GROUP_ROWS))


@dataclass(frozen=True)
class Run:
    """A file of rows by bucket; those of bucket ``b`` are from ``ends[b-1]`` up to ``ends[b]``."""

    path: Path
    ends: tuple[int, ...]
    columns: frozenset[str]

    def scan(self, schema: Mapping[str, Any]) -> pl.LazyFrame:
        """Its rows with the columns of the schema, null where it does not have them."""
        return pl.scan_parquet(self.path).select(
            pl.col(c) if c in self.columns else pl.lit(None, dtype=kind).alias(c)
            for c, kind in schema.items()
        )

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Where the rows of some buckets begin, and how many there are."""
        first = self.ends[low - 1] if low else 0
        return first, self.ends[high - 1] - first


class Runs:
    """Rows in ``many`` buckets. Columns without a value in a file are not in it."""

    def __init__(self, folder: Folder, many: int, name: str) -> None:
        self.folder, self.many, self.name = folder, many, name
        self.files: list[Run] = []

    def add(self, rows: pl.DataFrame, bucket: pl.Series) -> None:
        """Put rows into a file, each into the bucket of its number."""
        numbers = bucket.to_numpy()
        order = np.argsort(numbers, kind="stable")
        held = rows.select(s.name for s in rows if s.null_count() < rows.height)
        counts = np.bincount(numbers, minlength=self.many)
        ends = tuple(int(n) for n in np.cumsum(counts))
        path = self.folder.write(held[order], self.name)
        self.files.append(Run(path, ends, frozenset(held.columns)))

    def clear(self) -> None:
        """Forget all rows."""
        for run in self.files:
            run.path.unlink(missing_ok=True)
        self.files.clear()

    def groups(self, most: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Buckets that follow each other and have no more rows than this together, or one alone.

        Each as its first and the one after its last, with how many rows there are.
        """
        sizes: NDArray[np.int64] = np.zeros(self.many, dtype=np.int64)
        for run in self.files:
            sizes += np.diff(run.ends, prepend=0)
        first = 0
        while first < self.many:
            last = first + 1
            while last < self.many and sizes[first : last + 1].sum() <= most:
                last += 1
            yield (first, last), int(sizes[first:last].sum())
            first = last

    def scans(self, buckets: tuple[int, int], schema: Mapping[str, Any]) -> list[pl.LazyFrame]:
        """The rows of some buckets with the columns of the schema, those of each file."""
        spans = [(run, *run.span(*buckets)) for run in self.files]
        return [run.scan(schema).slice(first, n) for run, first, n in spans if n]

    def read(
        self, buckets: tuple[int, int], schema: Mapping[str, Any], inside: pl.Expr | None = None
    ) -> pl.DataFrame:
        """The rows of some buckets for which ``inside`` holds, with the columns of the schema."""
        parts = self.scans(buckets, schema)
        if not parts:
            return pl.DataFrame(schema=dict(schema))
        rows = pl.concat(parts)
        return (rows if inside is None else rows.filter(inside)).collect()
