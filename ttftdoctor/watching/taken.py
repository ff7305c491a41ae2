"""What one generation of a log came to so far, read by the very readers of ``diagnose``.

Until enough of it is there to be recognised for good, its lines are kept and read anew as they get
more. From then on a format with one record a line is read piece by piece: of each piece the
reader's rows are kept, not its text. Where a request is spread over lines, or the file is wrapped
or of several formats, the lines are kept and read anew to the end.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import process_time
from typing import IO, Any

import polars as pl

from ttftdoctor import catalog
from ttftdoctor.errors import InputError, TTFTDoctorError
from ttftdoctor.guide import Beside, for_part, for_path, format_of, is_table
from ttftdoctor.intake import Log, read_part, read_parts
from ttftdoctor.intake.account import FIRST_REJECTS
from ttftdoctor.intake.mixed import Part, Parts, parts_of
from ttftdoctor.mapping.proposal import Unused, unused_fields
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import CHUNK_BYTES, HEAD_BYTES, Chunk, Head, Shape, Source
from ttftdoctor.sources.known import Known
from ttftdoctor.sources.wrappings import replica_of_path
from ttftdoctor.table import LINE, Field, conform

#: From so many bytes on a log is known for what it is: its readers look at no more to recognise it.
SETTLED_BYTES = HEAD_BYTES
#: Text is cut into blocks by a measure that is taken from so much of a log.
MEASURED_BYTES = HEAD_BYTES + CHUNK_BYTES
#: Where a line stands of which only is known that it was rejected: behind all others.
SOMEWHERE = 2**62


class Replayed(Known):
    """Rows that were read already, given out again."""

    def __init__(self, path: str, head: Head, chunks: list[Chunk]) -> None:
        super().__init__(path, head, b"")
        self._again = chunks

    def chunks(self, *_: Any, **__: Any) -> Iterator[Chunk]:
        """The rows, piece by piece."""
        yield from self._again


@dataclass
class Block:
    """Rows of a reader, and the file of the state that holds them."""

    frame: pl.DataFrame
    file: str | None = None


@dataclass
class Rows:
    """The rows of a log that is read piece by piece, and all that was said of them."""

    path: str
    reader: Reader
    head: Head
    options: Options
    evidence: str
    plan: Plan | None = None
    reading: Options = field(default_factory=Options)  # those of the reader, with its clock
    blocks: list[Block] = field(default_factory=list)
    lines: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    first: list[tuple[int, str]] = field(default_factory=list)
    fields: dict[str, Field] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    bytes_per_token: float | None = None
    said: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    unused: tuple[Unused, ...] = ()

    def planned(self) -> None:
        """Make the reader's plan from the head of the log."""
        self.reading, _ = for_part(self.reader, self.head, self.evidence, self.options)
        self.plan = self.reader.plan(self.head, self.reading)

    def take(self, data: bytes) -> pl.DataFrame:
        """Read the next lines; what they came to."""
        table = self.head.shape is Shape.CSV
        if table:
            data = _header(self.head) + data
        with closing(Known(self.path, self.head, data)) as source:
            frame = self.take_all(source, self.lines - 1 if table else self.lines)
        self.lines += _lines(data) - table
        return frame

    def take_all(self, source: Source, before: int) -> pl.DataFrame:
        """Read all chunks of a source whose first line has so many ``before`` it."""
        assert self.plan is not None
        frames = []
        for chunk in source.chunks(self.plan.schema, numbers=self.plan.numbers):
            raw = chunk.frame.with_columns(pl.col(LINE) + before) if before else chunk.frame
            batch = self.plan.convert(Raw(raw, self.reading))
            self.fields.update({k: v for k, v in batch.fields.items() if k not in self.fields})
            self.notes.update(dict.fromkeys(batch.notes))
            self.bytes_per_token = batch.bytes_per_token or self.bytes_per_token
            self.rejects.update(reason for _, reason in chunk.rejects)
            first = ((line + before, reason) for line, reason in chunk.rejects)
            self.first = sorted([*self.first, *first])[:FIRST_REJECTS]
            frames.append(_slim(conform(batch.frame)))
        for some, more in zip(self.said, (source.notes, source.warnings), strict=True):
            some += [text for text in more if text not in some]
        frame = pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
        if frame.height:
            self.blocks.append(Block(frame))
        return frame

    def compact(self) -> None:
        """Put the newest blocks together, so that there are never many of them."""
        while len(self.blocks) > 1 and self.blocks[-2].frame.height <= 2 * self.new_rows():
            last, before = self.blocks.pop(), self.blocks.pop()
            self.blocks.append(Block(_slim(pl.concat([before.frame, last.frame], how="diagonal"))))

    def new_rows(self) -> int:
        """Rows of the last block."""
        return self.blocks[-1].frame.height

    def log(self) -> Log:
        """All of it as a log, as if it had been read at once."""
        rejects = list(self.first)
        for reason, n in (self.rejects - Counter(reason for _, reason in self.first)).items():
            rejects += [(SOMEWHERE, reason)] * n
        chunks = [Chunk(conform(block.frame)) for block in self.blocks]
        if rejects or not chunks:
            none = conform(pl.DataFrame(schema={LINE: pl.Int64}))
            chunks.append(Chunk(none, tuple(rejects)))
        clock = self.reading.clock

        def plan(head: Head, options: Options) -> Plan:
            options.clock.read, options.clock.twice = clock.read, clock.twice
            options.clock.never = clock.never
            return replace(self.plan or Plan({}, _nothing), convert=convert)

        def convert(raw: Raw) -> Batch:
            return Batch(raw.frame, self.fields, tuple(self.notes), None, self.bytes_per_token)

        with closing(Replayed(self.path, self.head, chunks)) as source:
            source.notes, source.warnings = self.said
            part = Part(source, replace(self.reader, plan=plan), self.evidence,
                        [replica_of_path(self.path)])  # fmt: skip
            log = read_part(part, self.options, 0, None)
        if self.plan is not None:
            self.unused = log.beside.unused
            return log
        return replace(log, beside=replace(log.beside, unused=self.unused))


class Taken:
    """One generation: lines that are read anew, or rows of pieces.

    ``covered`` bytes of it are in ``log`` or ``rows``. ``problem`` says why it cannot be read yet.
    ``kept`` is a log that an earlier run made of more of its lines than were read again so far.
    """

    def __init__(self, path: str, format: str | None, options: Options) -> None:
        self.path = path
        self.format = format
        self.options = options
        self.raw = bytearray()
        self.rows: Rows | None = None
        self.log: Log | None = None
        self.covered = 0
        self.kept: tuple[int, Log] | None = None
        self.problem: InputError | None = None
        self.cost = 0.0
        self.spread = False
        self._least = SETTLED_BYTES
        self._log_of = -1

    def add(self, data: bytes) -> pl.DataFrame | None:
        """Take whole lines; the rows, if they are read piece by piece."""
        if self.rows is None:
            self.raw += data
            return None
        self.covered += len(data)
        return self.rows.take(data) if data else None

    @property
    def stale(self) -> bool:
        """Whether there are lines that were not read."""
        return self.rows is None and len(self.raw) > self.covered

    @property
    def ready(self) -> bool:
        """Whether enough is there to go on piece by piece, if that can be."""
        return self.stale and not self.spread and len(self.raw) >= self._least

    def refresh(self, bytes_per_token: float | None) -> bool:
        """Read anew what lines there are; whether it is now another log than before."""
        if not self.stale or (self.kept is not None and len(self.raw) < self.kept[0]):
            return False
        began = process_time()
        options = self.options
        if bytes_per_token is not None:
            options = replace(options, bytes_per_token=bytes_per_token)
        try:
            self._look(options)
            self.problem, self.kept = None, None
        except InputError as error:
            self.problem = error
        self.covered = len(self.raw) if self.rows is None else self.covered
        self.cost = process_time() - began
        return True

    def whole(self) -> Log | None:
        """The log of all that was read; None if it is no log yet."""
        if self.kept is not None:
            return self.kept[1]
        if self.rows is not None and self._log_of != self.covered:
            try:
                self.log, self.problem = self.rows.log(), None
            except InputError as error:
                self.log, self.problem = None, error
            self._log_of = self.covered
        return self.log

    def finish(self) -> None:
        """Nothing more will come: what was kept to go on with it is not needed."""
        self.raw = bytearray()
        if self.rows is not None and self.whole() is not None:
            self.rows.blocks = [Block(pl.DataFrame(), one.file) for one in self.rows.blocks]

    def _look(self, options: Options) -> None:
        options = for_path(self.path, self.format, options)
        table = is_table(self.format, options)
        with (
            closing(Source(self.path, table=table, given=_held(self.raw))) as source,
            parts_of(source, format_of(source.head, self.format, options)) as found,
        ):
            settled = len(self.raw) >= self._least and not self.spread
            rows = self._rows_of(source, found, options) if settled else None
            if not settled:
                self.log = read_parts(found, options, None)
        if rows is not None:
            self.rows, self.covered = rows, len(self.raw)
            self.raw, self.log = bytearray(), None
        elif settled:
            self._look(options)  # as before: its source is used up

    def _rows_of(self, source: Source, found: Parts, options: Options) -> Rows | None:
        """Read the log piece by piece from now on, if that can be."""
        (part, *others) = found.parts
        plain = part.source is source and part.pile is None and not others
        if not plain or source.wrapping is not None or source.is_document:
            self.spread = True
            return None
        rows = Rows(self.path, part.reader, source.head, options, part.evidence)
        rows.planned()
        assert rows.plan is not None
        if rows.plan.whole or rows.plan.unwrap is not None or source.head.shape is Shape.PARQUET:
            self.spread = True
            return None
        rows.take_all(source, 0)
        rows.lines = _lines(self.raw)
        if source.head.shape is Shape.CSV and source.notes:
            self.spread = True  # line breaks in cells: a line is no row
            return None
        measured = rows.bytes_per_token is not None and options.bytes_per_token is None
        if measured and len(self.raw) < MEASURED_BYTES:
            self._least = MEASURED_BYTES
            return None
        return rows


def resumed(
    path: str, format: str | None, options: Options, record: Mapping[str, Any],
    frames: list[tuple[str, pl.DataFrame]], head: bytes | None,
) -> Taken:  # fmt: skip
    """A generation as the state holds it; ``head`` are its first bytes, if it is still there."""
    taken = Taken(path, format, options)
    if record["kind"] == "log":
        log = _log_from(record, dict(frames))
        if head is None:
            taken.log = log
        else:
            taken.kept = (record["covered"], log)
        return taken
    measure = record["bytes_per_token"]
    options = for_path(path, format, replace(options, bytes_per_token=measure))
    shape = Shape(record["shape"])
    rows = Rows(
        path, catalog.reader_named(record["format"]), Head(path, shape), options,
        record["evidence"], lines=record["lines"], rejects=Counter(record["rejects"]),
        first=[(line, reason) for line, reason in record["first"]],
        fields={name: Field(**one) for name, one in record["fields"].items()},
        notes=dict.fromkeys(record["notes"]), bytes_per_token=measure,
        said=(record["said"][0], record["said"][1]),
        unused=tuple(Unused(**one) for one in record["unused"]),
        blocks=[Block(frame, name) for name, frame in frames],
    )  # fmt: skip
    if head is not None:
        table = is_table(format, options)
        with closing(Source(path, table=table, given=io.BytesIO(head))) as source:
            rows.head = source.head
        rows.planned()
    rows.reading.clock.read, rows.reading.clock.twice, rows.reading.clock.never = record["clock"]
    taken.rows, taken.covered = rows, record["covered"]
    return taken


def record_of(taken: Taken) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """What the state keeps beside the rows of a generation, and the frames of one read anew."""
    if taken.rows is not None:
        rows = taken.rows
        clock = rows.reading.clock
        if not rows.unused and rows.plan is not None:
            sources = [one.source for one in rows.fields.values()]
            rows.unused = unused_fields(rows.head, rows.plan, sources)
        return {
            "kind": "rows", "covered": taken.covered, "format": rows.reader.name,
            "shape": rows.head.shape.value, "evidence": rows.evidence, "lines": rows.lines,
            "rejects": dict(rows.rejects), "first": rows.first,
            "fields": {name: vars(one) for name, one in rows.fields.items()},
            "notes": list(rows.notes), "bytes_per_token": rows.bytes_per_token,
            "said": rows.said, "unused": [vars(one) for one in rows.unused],
            "clock": [clock.read, clock.twice, clock.never],
        }, {}  # fmt: skip
    log = taken.log
    if log is None:
        return {"kind": "none"}, {}
    return {
        "kind": "log", "covered": taken.covered,
        "inputs": [{**vars(one), "first_rejects": list(one.first_rejects)} for one in log.inputs],
        "fields": {name: vars(one) for name, one in log.fields.items()},
        "recognised": log.recognised, "lacks": log.lacks, "notes": log.notes,
        "warnings": log.warnings, "bytes_per_token": log.bytes_per_token,
        "unused": [vars(one) for one in log.beside.unused], "rows": log.beside.rows,
        "generic": log.beside.sample is not None,
    }, {"requests": log.requests, "failed": log.failed}  # fmt: skip


def _log_from(record: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> Log:
    from ttftdoctor.diagnosis import Input

    inputs = tuple(
        Input(**{**one, "first_rejects": tuple((n, why) for n, why in one["first_rejects"])})
        for one in record["inputs"]
    )
    sample = Head(inputs[0].path, Shape.JSON) if record["generic"] else None
    return Log(
        requests=frames["requests"], failed=frames["failed"], inputs=inputs,
        fields={name: Field(**one) for name, one in record["fields"].items()},
        recognised=tuple(record["recognised"]), lacks=tuple(record["lacks"]),
        notes=tuple(record["notes"]), warnings=tuple(record["warnings"]),
        bytes_per_token=record["bytes_per_token"],
        beside=Beside(
            tuple(Unused(**one) for one in record["unused"]), sample, {}, record["rows"]
        ),
    )  # fmt: skip


def _nothing(raw: Raw) -> Batch:
    raise TTFTDoctorError("there is no plan")


def _slim(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without the columns in which nothing is, in one piece of memory."""
    empty = [c for c in frame.columns if c != LINE and frame[c].null_count() == frame.height]
    return frame.drop(empty).rechunk()


def _lines(data: bytes | bytearray) -> int:
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def _header(head: Head) -> bytes:
    """The first row of a table, which a piece of it must have as well."""
    names = (line for line in head.lines if line.strip() and not line.startswith("#"))
    return next(names, "").encode() + b"\n"


def _held(data: bytearray) -> IO[bytes]:
    """The bytes as a file that is on no disk, where the system can do that."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("log", os.MFD_CLOEXEC), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  (closed by its source)
    file.write(data)
    file.seek(0)
    return file
