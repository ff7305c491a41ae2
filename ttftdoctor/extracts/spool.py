"""Rows on disk: where those of a log go that is larger than memory, until it has been read.

Rows lie in files of the order in which they were read, and within a file by bucket. A session is
in one bucket, so that buckets can be worked on one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Self

import polars as pl

from ttftdoctor.extracts import Budget
from ttftdoctor.extracts.prompts import LONG, PROMPT, Way, place, with_prompts
from ttftdoctor.extracts.runs import Folder, Runs
from ttftdoctor.extracts.shared import Shared, shared_of
from ttftdoctor.extracts.stretches import lot
from ttftdoctor.extracts.survey import Survey, survey_of, surveyed
from ttftdoctor.table import LINE, REJECT

#: So many buckets; each should hold less than fits in memory at once.
BUCKETS = 64
#: Rows that are put into one file, if they do not take more than this part of the memory.
FILE_ROWS, FILE_PART = 250_000, 8
#: Of so many rows one is looked at to see where rows lie in their order.
SAMPLED = 500


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
        #: Whether the rows have blocks of their prompts.
        self.content = False
        self._held = self._bytes = self._rows = self._slim = self._long = 0
        self._waiting: list[pl.DataFrame] = []
        self._waits = 0
        self._survey = surveyed(())
        self._schema: dict[str, Any] = {}
        self._folder = Folder()
        self._all = Runs(self._folder, BUCKETS, "rows")
        self._shared: Shared | None = None
        self._laid: defaultdict[str, list[Path]] = defaultdict(list)
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        self._folder.close()

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
        rows = rows.with_columns(moved)
        size = bytes_of(rows)
        most = self.budget.total // FILE_PART
        for piece in rows.iter_slices(max(rows.height * most // max(size, 1), 1)):
            self._put(piece)

    def _put(self, rows: pl.DataFrame) -> None:
        slim, size = bytes_of(rows.drop(LONG, strict=False)), bytes_of(rows)
        rows = with_prompts(rows)
        with self._lock:
            numbers = pl.int_range(self._rows, self._rows + rows.height, dtype=pl.Int64)
            if rows["blocks"].null_count() == rows.height:
                numbers = pl.lit(None, dtype=pl.Int64)
            elif not self.content:
                used = rows.filter(pl.col(REJECT).is_null())
                self.content = bool((used["blocks"] > 0).any())
            rows = rows.with_columns(numbers.alias("row"))
            self._schema = dict(rows.schema)
            self._slim += slim
            self._long += size - slim
            self._rows += rows.height
            self._waiting.append(rows)
            self._waits += size
            if (
                sum(frame.height for frame in self._waiting) >= FILE_ROWS
                or self._waits > self.budget.total // FILE_PART
            ):
                self._write()

    def clear(self) -> None:
        """Forget all rows that were put here."""
        self._waiting.clear()
        self._all.clear()
        self._survey, self.spilling = surveyed(()), False
        self._held = self._bytes = self._rows = self._slim = self._long = self._waits = 0

    def keep(self, rows: pl.DataFrame, name: str) -> None:
        """Lay some rows of an extract by: filtered texts would hold on to all they came from."""
        if rows.height:
            self._laid[name].append(self._folder.write(rows, name))

    def kept(self, name: str) -> list[pl.DataFrame]:
        """What was laid by under a name, once."""
        paths, self._laid[name] = self._laid[name], []
        return [pl.read_parquet(path, memory_map=False) for path in paths]

    def too_large(self, rows: int) -> bool:
        """Whether the rows that were put here, of which so many are used, cannot be held."""
        return rows > self.fits or self._slim + self._long > self.budget.held

    def room(self, *, long: bool) -> int:
        """How many of the rows that were put here can be diagnosed at once, as long as they are.

        ``long``: with the blocks of their prompts.
        """
        size = self._slim + self._long if long else self._slim
        return min(self.fits, self.budget.room(size, self._rows))

    def at_once(self, part: int, *, long: bool) -> int:
        """How many of the rows are worked on at once: a ``part`` of those that can be diagnosed."""
        return max(self.room(long=long) // part, 1)

    def survey(self) -> Survey:
        """What all rows are like."""
        self._write()
        return self._survey

    def single_share(self) -> float:
        """Share of the sessions that are named which have one usable row."""
        self._write()
        columns = {c: self._schema[c] for c in ("session_id", REJECT)}
        single = every = 0
        for buckets, _ in self._all.groups(self.fits):
            used = self._all.read(buckets, columns, pl.col(REJECT).is_null())["session_id"]
            sizes = used.drop_nulls().value_counts()["count"]
            single, every = single + int((sizes == 1).sum()), every + len(sizes)
        return single / max(every, 1)

    def starts(self) -> Iterator[pl.DataFrame]:
        """``start`` and ``reject`` of all rows, those of one file at a time."""
        self._write()
        columns = {c: self._schema[c] for c in ("start", REJECT)}
        for run in self._all.files:
            yield run.scan(columns).collect()

    def in_order(self, most: int) -> Iterator[pl.DataFrame]:
        """All rows in the order of source and line, in pieces of about ``most`` rows."""
        self._write()
        some = [
            pl.scan_parquet(run.path).select(place()).collect().to_series().sort()
            .gather_every(SAMPLED)
            for run in self._all.files
        ]  # fmt: skip
        if not some:
            return
        each = max(most // SAMPLED, 1)
        edges = pl.concat(some).sort().gather_every(each, offset=each)
        runs = Runs(self._folder, len(edges) + 1, "in_order")
        for run in self._all.files:
            rows = pl.read_parquet(run.path, memory_map=False)
            at = edges.search_sorted(rows.select(place()).to_series(), side="right")
            runs.add(rows, at)
        for number in range(len(edges) + 1):
            yield runs.read((number, number + 1), self._columns(long=True)).sort(place())
        runs.clear()

    def buckets(
        self, most: int, order: pl.Expr | None = None, *, long: bool = False
    ) -> Iterator[Iterator[pl.DataFrame]]:
        """All rows, those of some buckets at a time, in pieces of about ``most`` rows in order.

        Buckets that are no larger together come in one piece. The ``order`` is that of a whole
        number, by default the start; pieces begin where it differs, rows without it come last.
        ``long``: with the blocks of their prompts.
        """
        order = pl.col("start") if order is None else order
        self._write()
        for buckets, rows in self._all.groups(most):
            yield self._pieces(buckets, rows, most, order, long)

    def _pieces(
        self, buckets: tuple[int, int], rows: int, most: int, start: pl.Expr, long: bool
    ) -> Iterator[pl.DataFrame]:
        columns = self._columns(long=long)
        if rows <= most:
            yield self._seen(self._all.read(buckets, columns), buckets)
            return
        by = {c: columns[c] for c in ("start", "source", LINE)}
        starts = self._all.read(buckets, by).select(start).to_series().drop_nulls().sort()
        many = -(-rows // most)
        places = [int(len(starts) * k / many) for k in range(1, many)] if len(starts) else []
        edges = sorted({int(starts[place]) for place in places})
        for low, high in zip([None, *edges], [*edges, None], strict=True):
            inside = pl.lit(True) if low is None else start >= low
            inside = inside if high is None else inside & (start < high)
            inside = inside | start.is_null() if high is None else inside & start.is_not_null()
            yield self._seen(self._all.read(buckets, columns, inside), buckets)

    def _columns(self, *, long: bool) -> dict[str, Any]:
        left = () if long else LONG
        ours = (*PROMPT, "row") if self._shared is None else ()
        return {c: kind for c, kind in self._schema.items() if c not in (*left, *ours)}

    def look(self, order_known: bool, inputs: int) -> None:
        """Find out what each prompt has in common with all those before it.

        From then on pieces of the rows have the columns of ``PROMPT_FACTS``, if any of them has
        blocks that are those of its prompt.
        """
        self._write()
        if self.content:
            memory = self.budget.total
            self._shared = shared_of(self._all, self._schema, order_known, inputs, memory)

    @property
    def way(self) -> Way | None:
        """What the ids of blocks stand for, if that was looked for and there are any."""
        return None if self._shared is None else self._shared.way

    def _seen(self, rows: pl.DataFrame, buckets: tuple[int, int]) -> pl.DataFrame:
        return rows if self._shared is None else self._shared.seen(rows, buckets)

    def _write(self) -> None:
        """Put what is waiting into a file, the rows of each bucket together."""
        if not self._waiting:
            return
        rows = pl.concat(self._waiting)
        self._waiting.clear()
        self._waits = 0
        self._survey = self._survey.plus(survey_of(rows))
        self._all.add(rows, rows.select((lot() % BUCKETS).cast(pl.UInt8)).to_series())


def bytes_of(rows: pl.DataFrame) -> int:
    """About how much memory rows take: that of the columns in which there is something."""
    return int(sum(s.estimated_size() for s in rows if s.null_count() < rows.height))
