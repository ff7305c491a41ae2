"""Rows that a cluster keeps: sessions and blocks of prompts are brought together by its shuffles.

What is asked of all rows at once on one machine is asked here of each part, by the same steps, and
what comes of them is added up where the question was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
import pyarrow as pa

from ttftdoctor.choose import DATED_US, Clock, Only
from ttftdoctor.engines import Taken
from ttftdoctor.engines.workers import (
    NOTE,
    PARCEL,
    REFERENCES,
    REFERRING,
    ROWS,
    WHO,
    Report,
    chosen_rows,
    clocks,
    gathered,
    notes_in,
    packed,
    parts_in,
    references,
    stepped,
    tallies_in,
    unpacked,
)
from ttftdoctor.extracts import Budget
from ttftdoctor.extracts.chosen import (
    Learned,
    Rule,
    choose_from,
    counted,
    learn,
    learned,
    reported,
    values_of,
)
from ttftdoctor.extracts.chosen import Report as ChosenReport
from ttftdoctor.extracts.gather import in_order, with_facts
from ttftdoctor.extracts.prompts import LONG, WAYS, Way
from ttftdoctor.extracts.stretches import choose
from ttftdoctor.extracts.survey import Survey, surveyed
from ttftdoctor.extracts.tally import Manner, tallied
from ttftdoctor.extracts.whole import Whole
from ttftdoctor.intake import Log
from ttftdoctor.intake.kept import COLUMNS
from ttftdoctor.table import LINE, REJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

#: Rows of sessions that one task gathers, of logs of no more than so many times as many: each task
#: sends one answer, whatever its rows.
TASK_ROWS, MOST_TASKS = 500_000, 256


class Shelf:
    """Tables that the cluster keeps until the run is over."""

    def __init__(self) -> None:
        self._kept: list[DataFrame] = []

    def put(self, table: DataFrame) -> DataFrame:
        """The same, worked out once."""
        from pyspark import StorageLevel

        self._kept.append(table.persist(StorageLevel.MEMORY_AND_DISK))
        return self._kept[-1]

    def clear(self) -> None:
        """Let the cluster forget them."""
        for table in self._kept:
            table.unpersist()


@dataclass(frozen=True)
class Rows:
    """Rows of a log that a cluster keeps, and reports of them.

    ``sources`` are the inputs before those of a file, ``lines`` the lines of a file before a piece
    of it; ``held`` are the bytes of all rows, ``slim`` those without the blocks of their prompts.
    """

    table: DataFrame
    shelf: Shelf
    survey: Survey
    held: int
    slim: int
    sources: Mapping[int, int]
    lines: Mapping[tuple[int, int], int]
    inputs: int

    @property
    def content(self) -> bool:
        """Whether the rows have blocks of their prompts."""
        return self.survey.known.get("prefix_blocks", 0) > 0

    def fit(self, budget: Budget) -> bool:
        """Whether all of them can be diagnosed at once."""
        return self.survey.rows <= budget.fits and self.held <= budget.held

    @property
    def own(self) -> DataFrame:
        """The rows, without reports."""
        return self.table.filter(f"{NOTE} is null")

    def collected(self) -> list[pl.DataFrame]:
        """All rows, as they lie."""
        return unpacked(self.own.mapInArrow(packed, ddl(PARCEL)).toArrow(), "rows")

    def sessions(self, rows: DataFrame, start: Any) -> DataFrame:
        """The rows, those of a session together and in order: of ``start``, where it is known."""
        every = self.survey.rows + self.survey.failed
        tasks = min(max(-(-every // TASK_ROWS), 1), MOST_TASKS)
        order = ["file", "source", "block", LINE]
        by = () if start is None else (start.asc_nulls_last(),)
        return rows.repartition(tasks, "key").sortWithinPartitions("key", *by, *order)

    def taken(self, log: Log, budget: Budget) -> Taken:
        """The log, with an extract of these rows and what is known of all of them."""
        from pyspark.sql import functions as f

        # Where no session is named they are looked for by the blocks of the prompts.
        long = self.content and not self.survey.names_sessions(self._single_share)
        room = budget.room(self.held if long else self.slim, self.survey.rows + self.survey.failed)
        choice, turns = choose(self.survey, room), Manner.of(self.survey)
        rows, way = self.own.drop(NOTE, *(() if long else LONG)), None
        if self.content:
            new, way = self._first_to_have(turns.order_known)
            rows = rows if new is None else rows.join(new, [*WHO], "left")
        work = partial(
            gathered, manner=turns, choice=choice, sources=self.sources, lines=self.lines
        )
        start = f.col("start") if turns.order_known else None
        table = self.sessions(rows, start).mapInArrow(work, ddl(PARCEL)).toArrow()
        schema = pl.Schema(COLUMNS)
        facts = with_facts(schema, content=way is not None)
        requests = in_order(unpacked(table, "requests"), facts)
        failed = in_order(unpacked(table, "failed"), schema)
        found = replace(log, requests=requests, failed=failed)
        tally = tallied(tallies_in(table))
        return Taken(found, Whole(self.survey, tally, choice, requests.height, way))

    def _single_share(self) -> float:
        """Share of the sessions that are named which have one usable row."""
        from pyspark.sql import functions as f

        sizes = self.own.filter(f"{REJECT} is null and session_id is not null")
        sizes = sizes.groupBy("session_id").count()
        (found,) = sizes.agg(
            f.count("*").alias("every"), f.count_if(f.col("count") == 1).alias("single")
        ).collect()
        return float(found["single"]) / max(int(found["every"]), 1)

    def _first_to_have(self, order_known: bool) -> tuple[DataFrame | None, Way | None]:
        """How many blocks of prompts each row was the first to have, and what ids stand for.

        The cluster brings the references to a block together; each task sends one of them at most.
        """
        from pyspark.sql import functions as f

        rows = self.own.filter(f"{REJECT} is null and blocks > 0").select(*REFERRING)
        if rows.isEmpty():
            return None, None
        for way in WAYS:
            if way == "by_source" and self.inputs < 2:
                continue
            work = partial(
                references, way=way, order_known=order_known, sources=self.sources,
                lines=self.lines,
            )  # fmt: skip
            first = self.shelf.put(
                rows.mapInArrow(work, ddl(REFERENCES))
                .groupBy("id")
                .agg(
                    f.min("least").alias("least"),
                    f.max("most").alias("most"),
                    f.min(f.struct("start", "place", *WHO)).alias("first"),
                )
            )
            if first.filter("least <> most").isEmpty():
                who = [f.col(f"first.{name}").alias(name) for name in WHO]
                return first.groupBy(*who).agg(f.count("*").alias("new")), way
        return None, None


def chosen_from(rows: Rows, log: Log, only: Only) -> tuple[Log, Rows]:
    """The rows that are wanted, which the cluster keeps, and the log with what is said of them.

    Raises
    ------
    UsageError
        As :func:`ttftdoctor.extracts.chosen.choose_from`.
    """
    pieces = _Pieces(rows)
    log = choose_from(pieces, log, only, content=rows.content)
    assert pieces.wanted is not None
    return log, pieces.wanted


class _Pieces:
    """The rows of a cluster; those that are wanted are kept by it as well."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.wanted: Rows | None = None

    def clocks(self) -> Iterator[Clock]:
        some = self.rows.own.select("start", REJECT).mapInArrow(clocks, ddl(PARCEL))
        return parts_in(some.toArrow())

    def learned(self, clock: Clock) -> Iterator[Learned]:
        return self._each(partial(learn, clock=clock), learned, clock)

    def values(self, rule: Rule) -> Iterator[Mapping[str, pl.DataFrame]]:
        return self._each(partial(values_of, rule=rule), counted, rule.clock)

    def put(self, rule: Rule) -> ChosenReport:
        work = partial(chosen_rows, rule=rule, sources=self.rows.sources, lines=self.rows.lines)
        rows = self.rows.own.drop(NOTE)
        table = self._sessions(rows, rule.clock).mapInArrow(work, ddl(ROWS))
        table = self.rows.shelf.put(table)
        notes = table.filter(f"{NOTE} is not null").select("file", "block", NOTE).toArrow()
        reports: dict[int, Report] = {block: note for _, block, note in notes_in(notes)}
        for report in reports.values():
            if report.problem is not None:
                raise report.problem
        every = reports.values()
        self.wanted = replace(
            self.rows,
            table=table,
            survey=surveyed(one.survey for one in every if one.survey is not None),
            held=sum(one.bytes for one in every),
            slim=sum(one.slim for one in every),
            # They know already where they are in the log as a whole.
            sources={0: 0},
            lines={(0, block): 0 for block in reports},
        )
        return reported(one.chosen for one in every if one.chosen is not None)

    def _each(
        self,
        step: Callable[[pl.DataFrame, pl.DataFrame], tuple[T, pl.DataFrame]],
        together: Callable[[Iterable[T]], T],
        clock: Clock,
    ) -> Iterator[T]:
        work = partial(
            stepped, step=step, together=together, sources=self.rows.sources,
            lines=self.rows.lines,
        )  # fmt: skip
        rows = self.rows.own.drop(NOTE, *LONG)
        return parts_in(self._sessions(rows, clock).mapInArrow(work, ddl(PARCEL)).toArrow())

    def _sessions(self, rows: DataFrame, clock: Clock) -> DataFrame:
        from pyspark.sql import functions as f

        by = f.when((f.col("start") >= DATED_US) == f.lit(clock.dated), f.col("start"))
        return self.rows.sessions(rows, by if clock.order_known else None)


def ddl(schema: pa.Schema) -> str:
    """The columns of a schema as Spark writes them."""
    names = {
        pa.int64(): "bigint", pa.bool_(): "boolean", pa.binary(): "binary", pa.string(): "string",
    }  # fmt: skip
    return ", ".join(f"`{one.name}` {names.get(one.type, 'array<bigint>')}" for one in schema)
