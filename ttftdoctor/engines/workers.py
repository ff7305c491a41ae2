"""What the workers of a cluster do with batches of Arrow: read pieces of logs, gather sessions.

Each function takes and gives batches, and knows nothing of the cluster that carries them.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from ttftdoctor import catalog
from ttftdoctor.choose import clock_of, clocked
from ttftdoctor.errors import InputError, TTFTDoctorError, UsageError
from ttftdoctor.extracts.chosen import Report as Choosing
from ttftdoctor.extracts.chosen import Rule, chosen, nothing_before, reported, rest_of
from ttftdoctor.extracts.facts import nothing_carried, of_session
from ttftdoctor.extracts.gather import gather
from ttftdoctor.extracts.prompts import (
    LONG,
    PROMPT,
    REFERENCE,
    Way,
    first_references,
    with_prompts,
    with_seen,
)
from ttftdoctor.extracts.spool import bytes_of
from ttftdoctor.extracts.stretches import Choice, lot
from ttftdoctor.extracts.survey import Survey, survey_of, surveyed
from ttftdoctor.extracts.tally import HELD, Manner, Tally, tallied
from ttftdoctor.intake import Log, read_log
from ttftdoctor.intake.account import Account, tagged
from ttftdoctor.intake.kept import COLUMNS
from ttftdoctor.intake.mixed import Part
from ttftdoctor.language import Language, speaking
from ttftdoctor.mapping.manner import Manner as Reading
from ttftdoctor.mapping.manner import reading_so
from ttftdoctor.readers import Clock, Options
from ttftdoctor.sources import CHUNK_BYTES, Head, Shape, Source
from ttftdoctor.sources.known import Known, KnownRows, bytes_between
from ttftdoctor.table import LINE

T = TypeVar("T")

#: Rows that a worker puts on their way at once.
BATCH_ROWS = 20_000
#: Rows of sessions that are worked on at once.
GATHER_ROWS = 100_000
#: Bytes of a file that one task reads, or rows of a table.
RANGE_BYTES, RANGE_ROWS = 64 * 2**20, 500_000

#: Where a row was read: file and piece of it by their numbers, and its place in the piece. ``key``
#: is by what rows come together; ``note`` is a report in place of a row.
PLACES = {"file": pl.Int64, "block": pl.Int64, "at": pl.Int64, "key": pl.Int64}
NOTE = "note"


def _carried(kind: Any) -> Any:
    """The type in which a column travels: there are only signed numbers on the way."""
    if kind == pl.List(pl.UInt64):
        return pa.list_(pa.int64())
    if kind == pl.String:
        return pa.string()
    return pa.bool_() if kind == pl.Boolean else pa.int64()


def _fields(columns: Mapping[str, Any], *more: tuple[str, Any]) -> pa.Schema:
    return pa.schema([*((name, _carried(kind)) for name, kind in columns.items()), *more])


def _schema(columns: Mapping[str, Any]) -> pa.Schema:
    return _fields(columns, (NOTE, pa.binary()))


#: Rows as they are read, and as they come together.
ROWS = _schema({**PLACES, **COLUMNS, **PROMPT})
#: By what a row is known, and references to blocks of prompts.
WHO = ("file", "block", "at")
REFERENCES = _fields({**REFERENCE, **{name: PLACES[name] for name in WHO}})
#: What is needed of a row to find them.
REFERRING = (*WHO, "source", LINE, "start", "blocks", *LONG)
#: What comes back to who asked: small, since all of it arrives in one place. ``data`` are rows as
#: a packed Parquet file, or what else is of a ``kind``.
PARCEL = pa.schema([("kind", pa.string()), ("data", pa.binary())])


@dataclass(frozen=True)
class Plain:
    """How pieces of one file are read that was recognised by its beginning."""

    path: str
    head: Head
    reader: str
    evidence: str
    options: Options


@dataclass(frozen=True)
class Job:
    """What the workers must know to read.

    ``plain`` are the files, by number, that are read in pieces; the others are read whole, by
    their names. ``reading`` and ``language`` are what holds for all of the run.
    """

    plain: Mapping[int, Plain]
    names: Mapping[int, str]
    format: str | None
    options: Options
    reading: Reading
    language: Language


@dataclass
class Report:
    """What is said of a piece: counts, or a log without its rows, or why there is none.

    ``survey``, ``bytes`` and ``slim`` (bytes without blocks of prompts) are of its rows, used and
    failed; ``chosen`` is what became of those that these were chosen from.
    """

    account: Account = field(default_factory=Account)
    lines: int = 0
    clock: Clock = field(default_factory=Clock)
    notes: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    log: Log | None = None
    problem: TTFTDoctorError | None = None
    survey: Survey | None = None
    bytes: int = 0
    slim: int = 0
    chosen: Choosing | None = None


def read(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Read the pieces that batches name (``file``, ``block``, ``end``) or hold.

    Pieces that are named are those of files that the worker can open, from the byte ``block`` to
    ``end`` (-1: all of the file), or from row to row of a table; others come as their lines
    (``value``), in order.
    """
    with reading_so(job.reading), speaking(job.language):
        piece: _Piece | None = None  # lines of which more may come
        for batch in batches:
            rows = _frame(batch)
            if "end" in rows.columns:
                for file, block, end in rows.select("file", "block", "end").iter_rows():
                    yield from _named(file, block, end, job)
                continue
            runs = rows.with_columns(pl.struct("file", "block").rle_id().alias("run"))
            for part in runs.partition_by("run", maintain_order=True):
                file, block = part["file"][0], part["block"][0]
                if piece is not None and (piece.file, piece.block) != (file, block):
                    yield from piece.done()
                    piece = None
                piece = piece or _Piece(job.plain[file], file, block)
                yield from piece.add(part["value"].to_list())
        if piece is not None:
            yield from piece.done()


def _named(file: int, block: int, end: int, job: Job) -> Iterator[pa.RecordBatch]:
    """Read a piece that lies where the worker can open it."""
    if end < 0:
        yield from _whole(file, job)
        return
    plain = job.plain[file]
    piece = _Piece(plain, file, block)
    if plain.head.shape is Shape.PARQUET:
        with closing(KnownRows(plain.path, plain.head, block, end - block)) as source:
            yield from piece.take(source, end - block)
    else:
        yield from piece.take_lines(bytes_between(plain.path, block, end))
    yield from piece.done()


def read_table(
    batches: Iterable[pa.RecordBatch], plain: Plain, reading: Reading, language: Language
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a table, of which a task has one part."""
    block = _number()
    with reading_so(reading), speaking(language):
        piece = _Piece(plain, 0, block)
        for rows in _joined(batches):
            data = io.BytesIO()
            rows.write_parquet(data, compression="uncompressed", statistics=False)
            data.seek(0)
            with closing(Source(plain.path, given=data)) as source:
                yield from piece.take(source, rows.height)
        yield from piece.done()


def _number() -> int:
    """Of which part of a table this task has the rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


class _Piece:
    """A piece of a file that is read in pieces, and the report of it."""

    def __init__(self, plain: Plain, file: int, block: int) -> None:
        self.plain, self.file, self.block = plain, file, block
        self.options = replace(plain.options, clock=Clock())
        self.reader = catalog.reader_named(plain.reader)
        self.plan = self.reader.plan(plain.head, self.options)
        self.report = Report(clock=self.options.clock)
        self._surveys: list[Survey] = []
        self._rows = 0
        self._held: list[bytes] = []
        self._bytes = 0

    def add(self, lines: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Take the next lines; they are read when there are enough of them."""
        self._held += lines
        self._bytes += sum(map(len, lines))
        if self._bytes >= CHUNK_BYTES:
            yield from self._read_held()

    def _read_held(self) -> Iterator[pa.RecordBatch]:
        # Each ends, the last one as well, or an empty one would not be counted.
        data = b"".join(line + b"\n" for line in self._held)
        self._held, self._bytes = [], 0
        yield from self.take_lines(data)

    def take_lines(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Rows of the next lines of the piece."""
        lines = data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
        with closing(Known(self.plain.path, self.plain.head, data)) as source:
            del data
            yield from self.take(source, lines)

    def take(self, source: Source, lines: int) -> Iterator[pa.RecordBatch]:
        """Rows of a source, which has the next so many lines of the piece."""
        before = self.report.lines
        self.report.lines += lines
        part = Part(source, self.reader, self.plain.evidence, [None])
        for chunk in source.chunks(self.plan.schema, numbers=self.plan.numbers):
            moved = (
                replace(
                    chunk,
                    frame=chunk.frame.with_columns(pl.col(LINE) + before),
                    rejects=tuple((line + before, reason) for line, reason in chunk.rejects),
                )
                if before
                else chunk
            )
            found = self.report.account.take(moved, self.plan, self.options, part)
            rows = pl.concat([tagged(found.good, 0), tagged(found.failed, 0)])
            self._surveys.append(survey_of(rows))
            self.report.bytes += bytes_of(rows)
            self.report.slim += bytes_of(rows.drop(LONG))
            yield from _placed(rows, self.file, self.block, self._rows)
            self._rows += rows.height
        for mine, said in (
            (self.report.notes, source.notes),
            (self.report.warnings, source.warnings),
        ):
            mine.update(dict.fromkeys(said))

    def done(self) -> Iterator[pa.RecordBatch]:
        """What is still to be read, and the report, when all has come."""
        if self._held:
            yield from self._read_held()
        self.report.survey = surveyed(self._surveys)
        yield _note(self.file, self.block, self.report)


def _whole(file: int, job: Job) -> Iterator[pa.RecordBatch]:
    """A file that cannot be cut into pieces, read as it would be anywhere."""
    try:
        log = read_log([job.names[file]], format=job.format, options=job.options)
    except InputError as error:
        yield _note(file, 0, Report(problem=error))
        return
    rows = pl.concat([log.requests, log.failed])
    yield from _placed(rows, file, 0, 0)
    bare = replace(log, requests=log.requests.clear(), failed=log.failed.clear(), prompts=None)
    yield _note(
        file,
        0,
        Report(
            log=bare,
            survey=survey_of(rows),
            bytes=bytes_of(rows),
            slim=bytes_of(rows.drop(LONG)),
        ),
    )


def gathered(
    batches: Iterable[pa.RecordBatch],
    manner: Manner,
    choice: Choice,
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
) -> Iterator[pa.RecordBatch]:
    """Gather whole sessions, whose rows come in order: see :func:`ttftdoctor.extracts.gather`.

    Parameters
    ----------
    sources
        How many inputs there are before those of a file.
    lines
        How many lines of a file there are before a piece of it.
    """
    carry = nothing_carried()
    tallies: list[Tally] = []
    for rows in _sessions(batches, sources, lines):
        found, carry = gather(rows, carry, manner, choice)
        carry = of_session(carry, rows["session_id"][-1])
        tallies.append(found.tally)
        if len(tallies) > HELD:
            tallies = [tallied(tallies)]
        yield from _parcel("requests", found.requests)
        yield from _parcel("failed", found.failed)
    yield _sent("tally", zlib.compress(pickle.dumps(tallied(tallies)), 1))


def _sessions(
    batches: Iterable[pa.RecordBatch],
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
) -> Iterator[pl.DataFrame]:
    """Pieces of whole sessions, which come one after the other: only the last of them may go on."""
    for rows in _joined(batches):
        if "new" in rows.columns:
            yield with_seen(placed(rows, sources, lines, {**PROMPT, "new": pl.Int64}))
        else:
            yield placed(rows, sources, lines)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    held: list[pl.DataFrame] = []
    for batch in batches:
        held.append(_frame(batch))
        if sum(frame.height for frame in held) >= GATHER_ROWS:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


def clocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """By which clock rows go (``start``, ``reject``)."""
    yield _part(clocked(clock_of(_frame(batch)) for batch in batches))


def stepped(
    batches: Iterable[pa.RecordBatch],
    step: Callable[[pl.DataFrame, pl.DataFrame], tuple[T, pl.DataFrame]],
    together: Callable[[Iterable[T]], T],
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
) -> Iterator[pa.RecordBatch]:
    """What a step makes of pieces of whole sessions, ``together`` one part."""
    carry = nothing_carried()
    parts: list[T] = []
    for rows in _sessions(batches, sources, lines):
        part, carry = step(rows, carry)
        carry = of_session(carry, rows["session_id"][-1])
        parts = [together([*parts, part])]
    for part in parts:
        yield _part(part)


def chosen_rows(
    batches: Iterable[pa.RecordBatch],
    rule: Rule,
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
) -> Iterator[pa.RecordBatch]:
    """The rows that stay of whole sessions, which know their place in the log; and a report."""
    block = _number()
    carry = nothing_before()
    report, before = Report(), 0
    surveys: list[Survey] = []
    reports: list[Choosing] = []
    try:
        for rows in _sessions(batches, sources, lines):
            found, carry = chosen(rows, carry, rule)
            carry = rest_of(carry, rows["session_id"][-1])
            reports = [reported([*reports, found.report])]
            stay = pl.concat([found.requests, found.failed]).select(*COLUMNS)
            surveys.append(survey_of(stay))
            report.bytes += bytes_of(stay)
            report.slim += bytes_of(stay.drop(LONG))
            yield from _placed(stay, 0, block, before)
            before += stay.height
    except UsageError as error:  # said where it was asked, as on one machine
        report.problem = error
    report.survey = surveyed(surveys)
    report.chosen = reports[0] if reports else None
    yield _note(0, block, report)


def references(
    batches: Iterable[pa.RecordBatch],
    way: Way,
    order_known: bool,
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
) -> Iterator[pa.RecordBatch]:
    """The first references to blocks of prompts, as far as each of some rows knows them."""
    for batch in batches:
        rows = placed(_frame(batch), sources, lines, {**PROMPT, **{c: PLACES[c] for c in WHO}})
        found = first_references(rows, way, WHO, order_known)
        signed = found.with_columns(pl.col("id").reinterpret(signed=True))
        yield from signed.select(REFERENCES.names).to_arrow().cast(REFERENCES).to_batches()


def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as they were read, in few and small parcels."""
    for rows in _joined(batches):
        yield from _parcel("rows", _as_read(rows))


def unpacked(table: pa.Table, kind: str) -> list[pl.DataFrame]:
    """The rows of one kind that came back."""
    return [pl.read_parquet(io.BytesIO(data)) for data in _data(table, kind)]


def parts_in(table: pa.Table) -> Iterator[Any]:
    """What steps made of parts, as it came back."""
    for data in _data(table, "part"):
        yield pickle.loads(zlib.decompress(data))  # noqa: S301  (made by our own workers)


def tallies_in(table: pa.Table) -> Iterator[Tally]:
    """The tallies that came back."""
    for data in _data(table, "tally"):
        # Made by our own workers.
        yield pickle.loads(zlib.decompress(data))  # noqa: S301


def _data(table: pa.Table, kind: str) -> Iterator[bytes]:
    for batch in table.to_batches():
        for which, data in zip(*(batch.column(name) for name in ("kind", "data")), strict=True):
            if which.as_py() == kind:
                yield data.as_py()


def _parcel(kind: str, rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    if rows.height:
        data = io.BytesIO()
        rows.write_parquet(data, compression="zstd", statistics=False)
        yield _sent(kind, data.getvalue())


def _part(part: object) -> pa.RecordBatch:
    return _sent("part", zlib.compress(pickle.dumps(part), 1))


def _sent(kind: str, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "data": data}], PARCEL)


def placed(
    rows: pl.DataFrame,
    sources: Mapping[int, int],
    lines: Mapping[tuple[int, int], int],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> pl.DataFrame:
    """Rows that know input and line in the log as a whole, in place of those in their piece.

    They keep those of a log, and ``more`` columns, as far as they have them.
    """
    known = pl.DataFrame(
        [(file, block, n) for (file, block), n in lines.items()],
        schema={"file": pl.Int64, "block": pl.Int64, "before": pl.Int64}, orient="row",
    )  # fmt: skip
    moved = rows.join(known, on=["file", "block"], how="left", maintain_order="left")
    base = pl.col("file").replace_strict(dict(sources), return_dtype=pl.Int64)
    rows = moved.with_columns(
        (pl.col("source") + base).alias("source"),
        (pl.col(LINE) + pl.col("before").fill_null(0)).alias(LINE),
    ).drop("before")
    kinds = {**COLUMNS, **more}
    return _unsigned(rows).select(pl.col(c).cast(k) for c, k in kinds.items() if c in rows.columns)


def rows_in(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Rows as they came, without reports, in the types of a log."""
    return _as_read(_frame(table))


def _as_read(rows: pl.DataFrame) -> pl.DataFrame:
    kinds = {**PLACES, **COLUMNS}
    if NOTE in rows.columns:
        rows = rows.filter(pl.col(NOTE).is_null())
    return _unsigned(rows).select(pl.col(c).cast(kinds[c]) for c in rows.columns if c in kinds)


def _unsigned(rows: pl.DataFrame) -> pl.DataFrame:
    """Ids of blocks as they were sent."""
    ids = [c for c in ("first_block",) if rows.schema.get(c) == pl.Int64]
    return rows.with_columns(pl.col(c).reinterpret(signed=False) for c in ids)


def notes_in(table: pa.Table) -> Iterator[tuple[int, int, Any]]:
    """The reports, by file and block."""
    rows = _frame(table).filter(pl.col(NOTE).is_not_null())
    for file, block, note in rows.select("file", "block", NOTE).iter_rows():
        yield file, block, pickle.loads(note)  # noqa: S301  (made by our own workers)


def _frame(batch: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(batch)
    assert isinstance(frame, pl.DataFrame)
    blocks = [c for c, kind in frame.schema.items() if kind == pl.List(pl.Int64)]
    return frame.with_columns(
        pl.col(c).list.eval(pl.element().reinterpret(signed=False)) for c in blocks
    )


def _placed(rows: pl.DataFrame, file: int, block: int, before: int) -> Iterator[pa.RecordBatch]:
    at = pl.int_range(before, before + rows.height, dtype=pl.Int64, eager=True)
    key = lot(pl.struct("file", "block", "at").hash(seed=0))
    rows = rows.with_columns(
        pl.lit(file, dtype=pl.Int64).alias("file"),
        pl.lit(block, dtype=pl.Int64).alias("block"),
        at.alias("at"),
    ).with_columns(key.reinterpret(signed=True).alias("key"))
    yield from _batches(with_prompts(rows))


def _batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    for some in rows.iter_slices(BATCH_ROWS):
        if not some.height:
            continue
        lists = [c for c, kind in some.schema.items() if kind == pl.List(pl.UInt64)]
        signed = some.with_columns(
            *(pl.col(c).list.eval(pl.element().reinterpret(signed=True)) for c in lists),
            pl.col("first_block").reinterpret(signed=True),
            pl.lit(None, dtype=pl.Binary).alias(NOTE),
        )
        yield from signed.select(ROWS.names).to_arrow().cast(ROWS).to_batches()


def _note(file: int, block: int, report: Report) -> pa.RecordBatch:
    row = {"file": file, "block": block, "at": -1, "key": block, NOTE: pickle.dumps(report)}
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in ROWS.names}], ROWS)
