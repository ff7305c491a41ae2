"""The engine of a cluster: Spark carries the rows, the same steps run in its workers.

Files are cut into pieces where they can be; a worker reads each by the reader that was recognised
here. Rows that fit in memory come here all of them, and the diagnosis is that of one machine. Of
more rows, those of a session are brought together by Spark, in the order of their turns, and of
each part of them come its tally and its part of the extract.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import polars as pl

from ttftdoctor.choose import Only
from ttftdoctor.engines import Asked, Taken, wanted
from ttftdoctor.engines.local import budget_of
from ttftdoctor.engines.shuffles import Rows, Shelf, chosen_from, ddl
from ttftdoctor.engines.workers import (
    NOTE,
    PLACES,
    RANGE_BYTES,
    RANGE_ROWS,
    ROWS,
    Job,
    Plain,
    Report,
    notes_in,
    placed,
    read,
    read_table,
)
from ttftdoctor.errors import InputError, TTFTDoctorError, UsageError
from ttftdoctor.extracts import Budget
from ttftdoctor.extracts.gather import in_order
from ttftdoctor.extracts.survey import surveyed
from ttftdoctor.guide import for_part, for_path, format_of, in_manner, is_table
from ttftdoctor.intake import Log, Reading, joined, log_of
from ttftdoctor.intake.account import Account
from ttftdoctor.intake.kept import COLUMNS, is_kept
from ttftdoctor.intake.mixed import Part, parts_of
from ttftdoctor.language import spoken
from ttftdoctor.mapping.manner import manner
from ttftdoctor.readers import Clock, Options, Plan, Raw
from ttftdoctor.sources import CHUNK_BYTES, HEAD_BYTES, Shape, Source
from ttftdoctor.sources.addresses import DATABASES, WEB, is_address
from ttftdoctor.sources.known import Known
from ttftdoctor.table import REJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where a run is done unless somebody says otherwise: in processes of this machine.
MASTER = "local[*]"
#: A table of the session in place of a file: ``table:sales.requests``, ``table:delta.`/path```.
TABLE = "table:"
#: Rows of a table that are looked at to recognise it.
TABLE_ROWS = 1000
_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+):/")
#: Addresses that workers open as one machine does.
OURS = ("s3", "gs", "az", "azure", *WEB, *DATABASES)
#: Packed files that Spark unpacks, by their names, which is all that it looks at; and how others
#: begin that it would take for text.
PACKED = (".gz", ".bz2", ".zst")

#: The line of a traceback that says what was raised.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Format|User|Interrupt)\b")

_SETTINGS = {
    "spark.app.name": "ttftdoctor",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.maxResultSize": "0",
    # A master that is out of memory would be waited for until the end of days.
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    "spark.sql.files.maxPartitionBytes": str(RANGE_BYTES),
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.minPartitionNum": "1",
}


def take(asked: Asked, only: Only | None = None) -> Taken:
    """Read logs on a cluster; all rows by default, or those that are wanted ``only``.

    Raises
    ------
    UsageError
        If PySpark is not installed, or a log cannot be read by a cluster.
    InputError
        If a log cannot be read.
    """
    if find_spec("pyspark") is None:
        raise UsageError("PySpark is not installed", help="pip install 'ttftdoctor[spark]'")
    budget = budget_of(asked.budget)
    with _told(), _session(asked.settings.get("master"), asked.logs) as spark:
        work = _Work(spark, asked, in_manner(asked.options))
        try:
            log: Any = asked.logs[0] if len(asked.logs) == 1 else None
            if hasattr(log, "mapInArrow"):
                work.table(log, "the table")
            elif isinstance(log, str) and log.startswith(TABLE):
                work.table(spark.table(log.removeprefix(TABLE)), log)
            else:
                work.files([str(path) for path in asked.logs])
            return work.taken(budget, only)
        finally:
            work.shelf.clear()


@contextmanager
def _told() -> Iterator[None]:
    """What Spark raises, as an error that says what is wrong, where, and what to do."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise InputError("Spark cannot read this", why=_why(error)) from None
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise TTFTDoctorError(
            "the cluster could not do it",
            why=_why(error),
            help="its workers need ttftdoctor in the Python that PYSPARK_PYTHON names, and must be "
            "able to open the log under the same name",
        ) from None


@contextmanager
def _session(master: str | None, logs: tuple[Any, ...]) -> Iterator[SparkSession]:
    """The session to work in: that of a table, the one that there is, or one of our own."""
    # Of pandas nothing is used here: that a new edition is not yet known to Spark is no matter.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        from pyspark.sql import SparkSession

        own = logs[0].sparkSession if logs and hasattr(logs[0], "mapInArrow") else None
        there = own or SparkSession.getActiveSession()
        if there is not None:
            yield there
            return
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder: Any = SparkSession.builder.master(master or MASTER)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        spark: SparkSession = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


class _Work:
    """One run: rows are read once, and kept by the cluster until the run is over."""

    def __init__(self, spark: SparkSession, asked: Asked, options: Options) -> None:
        self.spark = spark
        self.asked = asked
        self.options = options
        self.reading: Reading | None = None
        #: The files by number, and those of them that are read in pieces.
        self._names: dict[int, str] = {}
        self._plainly: dict[int, Plain] = {}
        self._measured: set[str] = set()
        self._rows: DataFrame | None = None
        self.shelf = Shelf()

    # ------------------------------------------------------------------- what is read

    def files(self, paths: list[str]) -> None:
        """Have files read."""
        far = [path for path in paths if _is_far(path)]
        self.reading = Reading([path for path in paths if path not in far])
        names = [*self.reading.files, *self._listed(far)]
        self.reading.files = names
        self._names = dict(enumerate(names))
        items: list[tuple[int, int, int]] = []
        parts = []
        for file, path in self._names.items():
            away = _is_far(path)
            plain = self._plain(path, self._head(path) if away else None)
            if plain is not None:
                self._plainly[file] = plain
            if away:
                if plain is None:
                    raise UsageError(
                        "of this file system only lines of text are read, plain or packed",
                        where=path,
                        help=f"give a table: {TABLE}parquet.`{path}`",
                    )
                parts.append(self._lines(file, path))
            elif plain is not None:
                size, step = _size(path, plain)
                items += [
                    (file, low, min(low + step, size)) for low in range(0, max(size, 1), step)
                ]
            else:
                items.append((file, 0, -1))
        if items:
            named = self.spark.createDataFrame(items, "file bigint, block bigint, end bigint")
            parts.append(named.repartition(len(items)))
        job = Job(
            self._plainly, self._names, self.asked.format, self.options, manner(),
            spoken(),
        )  # fmt: skip
        found = [part.mapInArrow(partial(read, job=job), ddl(ROWS)) for part in parts]
        rows = found[0]
        for other in found[1:]:
            rows = rows.unionAll(other)
        self._keep(rows)

    def table(self, table: DataFrame, name: str) -> None:
        """Have the rows of a table read."""
        self.reading = None
        sample = pl.from_arrow(table.limit(TABLE_ROWS).toArrow())
        assert isinstance(sample, pl.DataFrame)
        data = BytesIO()
        sample.write_parquet(data)
        data.seek(0)
        plain = self._plain(name, data, whole=True)
        if plain is None:
            raise InputError("the table is not one of requests", where=name)
        self._names, self._plainly = {0: name}, {0: plain}
        work = partial(read_table, plain=plain, reading=manner(), language=spoken())
        self._keep(table.mapInArrow(work, ddl(ROWS)))

    def _keep(self, rows: DataFrame) -> None:
        self._rows = self.shelf.put(rows)

    def _plain(self, path: str, given: BytesIO | None, *, whole: bool = False) -> Plain | None:
        """How a file is read in pieces; None if it cannot be.

        ``given`` are its first bytes, where it cannot be opened here; all of it if ``whole``.
        """
        if given is None and (path == "-" or is_address(path) or is_kept(path)):
            return None
        try:
            options = for_path(path, self.asked.format, self.options)
            table = is_table(self.asked.format, options)
            with closing(Source(path, table=table, given=given)) as source:
                asked = format_of(source.head, self.asked.format, options)
                with parts_of(source, asked) as found:
                    if not _in_pieces(source, found.parts, whole, given is not None):
                        return None
                    (part,) = found.parts
                    head, reader = source.head, part.reader
                    if head.shape not in reader.shapes:
                        return None
                    options, evidence = for_part(reader, head, part.evidence, options)
                    plan = reader.plan(head, options)
                    if plan.whole or plan.unwrap is not None:
                        return None
                    measure = self._measure(source, plan, options, reader.name)
        except InputError:
            if given is not None:
                raise
            return None  # the worker that reads it says what is wrong
        if measure is not None:
            # Text is cut alike in all pieces and files, or equal prompts would not be equal.
            self.options = replace(self.options, bytes_per_token=measure)
        options = replace(options, bytes_per_token=measure, clock=Clock())
        return Plain(path, head, reader.name, evidence, options)

    def _measure(self, source: Source, plan: Plan, options: Options, name: str) -> float | None:
        """The measure by which text is cut, taken from the first rows as one machine does it.

        It is looked for in one file of each format only: many have no text.
        """
        if self.options.bytes_per_token is not None or name in self._measured:
            return self.options.bytes_per_token
        self._measured.add(name)
        first = next(source.chunks(plan.schema, numbers=plan.numbers), None)
        return None if first is None else plan.convert(Raw(first.frame, options)).bytes_per_token

    # ------------------------------------------------------------------- other file systems

    def _listed(self, paths: Iterable[str]) -> list[str]:
        """The files that are meant by paths which only Spark can open, in order of their names."""
        out: list[str] = []
        for path in paths:
            place, system = self._place(path)
            try:
                found = [place] if system.exists(place) else _globbed(system, place)
                for one in found:
                    files = system.listFiles(one, True)
                    names = []
                    while files.hasNext():
                        names.append(files.next().getPath().toString())
                    out += sorted(n for n in names if not _base(n).startswith(("_", ".")))
            except Exception as error:  # noqa: BLE001  (the gateway's own, of no common kind)
                raise InputError("the file cannot be opened", where=path, why=_why(error)) from None
            if not found:
                raise InputError("no such file", where=path)
        return list(dict.fromkeys(out))

    def _head(self, path: str) -> BytesIO:
        """The first bytes of a file that only Spark can open."""
        place, system = self._place(path)
        try:
            stream = system.open(place)
            try:
                return BytesIO(bytes(stream.readNBytes(HEAD_BYTES + CHUNK_BYTES)))
            finally:
                stream.close()
        except Exception as error:  # noqa: BLE001
            raise InputError("the file cannot be opened", where=path, why=_why(error)) from None

    def _place(self, path: str) -> tuple[Any, Any]:
        context: Any = self.spark.sparkContext
        # There is no other way to Spark's file systems from Python, nor has it changed in years.
        place = context._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001
        return place, place.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001

    def _lines(self, file: int, path: str) -> DataFrame:
        """The lines of a file, those of a block in their order, as bytes."""
        escaped = re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
        return (
            self.spark.read.option("lineSep", "\n")
            .text(escaped)
            .selectExpr(
                f"{file}L as file", "_metadata.file_block_start as block",
                "cast(value as binary) as value",
            )
        )  # fmt: skip

    # ------------------------------------------------------------------- what came of it

    def taken(self, budget: Budget, only: Only | None) -> Taken:
        """All rows that are wanted, or a tally of them and an extract."""
        assert self._rows is not None
        notes = self._rows.filter(f"{NOTE} is not null").select("file", "block", NOTE).toArrow()
        reports: dict[int, dict[int, Report]] = {}
        for file, block, report in notes_in(notes):
            reports.setdefault(file, {})[block] = report
        every = [one for of in reports.values() for one in of.values()]
        sources, inputs = self._sources(reports)
        rows = Rows(
            self._rows, self.shelf,
            survey=surveyed(one.survey for one in every if one.survey is not None),
            held=sum(one.bytes for one in every),
            slim=sum(one.slim for one in every),
            sources=sources,
            lines=_lines_before(reports),
            inputs=inputs,
        )  # fmt: skip
        if rows.fit(budget):
            return Taken(wanted(self._together(reports, self._collected(rows)), only))
        log = self._together(reports, {})
        if only is not None and not only.every_row:
            log, rows = chosen_from(rows, log, only)
            if rows.fit(budget):
                return Taken(_with_rows(log, rows.collected()))
        return rows.taken(log, budget)

    def _sources(self, reports: dict[int, dict[int, Report]]) -> tuple[dict[int, int], int]:
        """How many inputs there are before those of each file, and in all."""
        sources, many = {}, 0
        for file in self._names:
            sources[file] = many
            one = next(iter(reports[file].values()))
            many += len(one.log.inputs) if one.log is not None else one.problem is None
        return sources, many

    def _collected(self, rows: Rows) -> dict[int, pl.DataFrame]:
        """The rows of each file in the order in which they were read."""
        none = pl.DataFrame(schema={**PLACES, **COLUMNS})
        every = pl.concat([none, *rows.collected()]).sort("file", "block", "at")
        nothing = dict.fromkeys(self._names, 0)
        whole = placed(every, nothing, rows.lines).with_columns(every["file"])
        return {
            int(file): part.drop("file")
            for (file,), part in whole.partition_by("file", as_dict=True).items()
        }

    def _together(
        self, reports: dict[int, dict[int, Report]], rows: dict[int, pl.DataFrame]
    ) -> Log:
        """The log of all files, with these rows of each."""
        none = pl.DataFrame(schema=COLUMNS)
        good = pl.col(REJECT).is_null()
        reading = self.reading
        logs = []
        for file, name in self._names.items():
            every = rows.get(file, none)
            try:
                log = self._log(file, reports[file], every.filter(good), every.filter(~good))
            except InputError as error:
                if reading is None:
                    raise
                reading.refuse(name, error)
                continue
            logs.append(log)
            if reading is not None:
                reading.take(log)
        return joined(logs) if reading is None else reading.log()

    def _log(
        self, file: int, reports: dict[int, Report], requests: pl.DataFrame, failed: pl.DataFrame
    ) -> Log:
        plain = self._plainly.get(file)
        if plain is None:
            (report,) = reports.values()
            if report.problem is not None:
                raise report.problem
            assert report.log is not None
            return replace(report.log, requests=requests, failed=failed)
        account, before, clock = Account(), 0, Clock()
        with closing(Known(plain.path, plain.head, b"")) as source:
            for _, report in sorted(reports.items()):
                account.add(report.account, before)
                before += report.lines
                clock.read += report.clock.read
                clock.twice += report.clock.twice
                clock.never += report.clock.never
                source.notes += [t for t in report.notes if t not in source.notes]
                source.warnings += [t for t in report.warnings if t not in source.warnings]
            reader = _reader(plain)
            options = replace(plain.options, clock=clock)
            part = Part(source, reader, plain.evidence, [None])
            plan = reader.plan(plain.head, options)
            return log_of(account, part, plan, options, plain.evidence, 0, requests, failed)


def _in_pieces(source: Source, parts: list[Part], whole: bool, given: bool) -> bool:
    """Whether a file has one record a line, all of one format, and lines can be cut anywhere."""
    if len(parts) != 1 or parts[0].source is not source or parts[0].pile is not None:
        return False
    if whole:
        return True
    if source.wrapping is not None or source.is_document or source.is_old or any(parts[0].writers):
        return False
    if source.is_packed and not (given and source.path.endswith(PACKED)):
        return False
    if source.head.shape is Shape.PARQUET:
        return not given
    return source.head.shape in (Shape.JSON, Shape.TEXT)


def _size(path: str, plain: Plain) -> tuple[int, int]:
    """How large a file is, and how much of it one task reads: bytes, or rows of a table."""
    if plain.head.shape is Shape.PARQUET:
        return int(pl.scan_parquet(path).select(pl.len()).collect().item()), RANGE_ROWS
    return os.stat(path).st_size, RANGE_BYTES


def _lines_before(reports: dict[int, dict[int, Report]]) -> dict[tuple[int, int], int]:
    out = {}
    for file, of in reports.items():
        before = 0
        for block, report in sorted(of.items()):
            out[file, block] = before
            before += report.lines
    return out


def _with_rows(log: Log, rows: list[pl.DataFrame]) -> Log:
    """The log with rows that know their place in it."""
    good = pl.col(REJECT).is_null()
    own = [some.drop(PLACES) for some in rows]
    return replace(
        log,
        requests=in_order([some.filter(good) for some in own], log.requests.schema),
        failed=in_order([some.filter(~good) for some in own], log.failed.schema),
    )


def _reader(plain: Plain) -> Any:
    from ttftdoctor import catalog

    return catalog.reader_named(plain.reader)


def _is_far(path: str) -> bool:
    """Whether Spark opens a path, by the connectors that it has: ``hdfs://``, ``s3a://``."""
    scheme = _SCHEME.match(path)
    return scheme is not None and scheme[1] not in OURS


def _globbed(system: Any, place: Any) -> list[Any]:
    return [status.getPath() for status in system.globStatus(place) or ()]


def _base(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _why(error: Exception) -> str:
    """The line in an error of Spark or Java that tells most: of a worker's traceback its end."""
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traceback = [n for n, line in enumerate(lines) if line.startswith("File ")]
    told = [line for line in lines[traceback[-1] + 1 :] if _RAISED.match(line)] if traceback else []
    return (told or lines or [type(error).__name__])[0]
