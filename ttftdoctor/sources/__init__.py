"""Where bytes come from: paths, globs, folders, standard input, addresses; plain or packed.

Every JSON shape (lines, one document, an array, objects one after another) is brought to lines
with one record each, so that a reader meets one shape only. Nothing is lost without a name: a
line that cannot be read is returned as a reject with its number.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import glob
import io
import itertools
import json
import lzma
import os
import re
import sys
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import tr
from ttftdoctor.sources.addresses import (
    STORES,
    held_whole,
    is_address,
    is_database,
    scheme_of,
    shown,
)
from ttftdoctor.sources.archives import BEGINS, is_archive, members, open_member, split_member
from ttftdoctor.sources.piles import place_reader
from ttftdoctor.sources.wrappings import SERVICE, Wrapping, wrapping_of
from ttftdoctor.table import LINE

#: Bytes of log text turned into one raw frame at a time; bounds memory for any log size.
CHUNK_BYTES = 16 * 2**20
#: Blocks of lines that are parsed at the same time: Polars parses each of them in one thread.
PARSERS = 2
#: Into how many parts lines are cut that cannot be read together.
PIECES = 16
#: How far before the end of a block the end of a line is looked for, to read no more than that.
TAIL_BYTES = 2**16
#: A single line longer than this is rejected by name, and CSV with such a line is refused.
MAX_LINE_BYTES = 64 * 2**20
#: A pretty-printed JSON document must fit in memory; beyond this it is refused.
MAX_DOCUMENT_BYTES = 2**30
#: CSV, and Parquet from a pipe, must fit in memory; beyond this they are refused.
MAX_TABLE_BYTES = 4 * 2**30
#: ... and so are more cells of CSV than this, each of which takes at least 16 bytes.
MAX_CELLS = 2**29
#: How much of the log is looked at to recognise it.
HEAD_BYTES = 2**20
HEAD_RECORDS = 200
#: Where else a long log is looked at, and how much of it, for records of another format.
PROBES = 8
PROBE_BYTES = 2**15

_SUFFIXES = (
    ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".pq", ".log", ".txt",
    ".db", ".sqlite", ".sqlite3",
)  # fmt: skip
#: How an SQLite file begins.
SQLITE = b"SQLite format 3\x00"
_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")


#: How terminals are told colours.
_COLOUR = r"\x1b\[[0-9;?]*[A-Za-z]"

T = TypeVar("T")
U = TypeVar("U")
#: Types of the raw fields, to be tried in this order.
Schemas = tuple[Mapping[str, Any], ...]


#: Rows of a table that are read at once.
PARQUET_ROWS = 100_000


class Shape(Enum):
    """What the bytes look like, whatever the file is called."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


@dataclass(frozen=True)
class Head:
    """The first records of a log, for recognising it.

    ``records`` are parsed JSON objects or CSV rows (text cells); ``lines`` the first text lines
    without terminal colours. ``outer`` is the whole document when the file is a single JSON
    object; ``inner`` maps the name of each list (or mapping) of objects in it to its first
    records, so that a reader can ask for those (``Plan.unwrap``).
    """

    path: str
    shape: Shape
    columns: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[str, ...] = ()
    outer: Mapping[str, Any] | None = None
    inner: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    separator: str = ","


#: Whole lines: bytes, number of the first line, lines, and lines before it too long to hold.
Block = tuple[bytes, int, int, tuple[tuple[int, str], ...]]
#: Lines that are JSON objects, each behind its number.
Numbered = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Chunk:
    """Some raw rows with their line numbers, and the lines among them that could not be read."""

    frame: pl.DataFrame
    rejects: tuple[tuple[int, str], ...] = ()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each one made in another thread while the one before it is worked on."""
    made: list[T] = []
    failed: list[BaseException] = []

    def make() -> None:
        try:
            made.extend(itertools.islice(items, 1))
        except BaseException as error:  # noqa: BLE001  (raised below, in the thread that asked)
            failed.append(error)

    def start() -> threading.Thread:
        thread = threading.Thread(target=copy_context().run, args=(make,), daemon=True)
        thread.start()
        return thread

    maker = start()
    try:
        while True:
            maker.join()
            if failed:
                raise failed.pop()  # what held it here would hold all that was read
            if not made:
                return
            item = made.pop()
            maker = start()
            yield item
            del item  # not held while the next one is awaited
    finally:
        # One Ctrl-C can arrive twice, from Polars and from Python: the first is on its way.
        with contextlib.suppress(KeyboardInterrupt):
            maker.join()


def side_by_side(work: Callable[[T], U], items: Iterator[T], most: int) -> Iterator[U]:
    """``work`` done on each item, in their order, on up to ``most`` of them at the same time."""
    with ThreadPoolExecutor(most) as workers:
        begun: deque[Future[U]] = deque()
        for item in items:
            begun.append(workers.submit(work, item))
            if len(begun) == most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def expand(paths: list[str]) -> list[str]:
    """Turn paths, globs, folders and addresses into a list of files; ``-`` is standard input.

    Raises
    ------
    InputError
        If a path does not exist, or a glob or folder holds nothing that could be a log.
    """
    out: list[str] = []
    for path in paths:
        if path == "-":
            out.append(path)
            continue
        if is_address(path):
            out.extend(_objects(path) if scheme_of(path) in STORES else [path])
            continue
        place = Path(path)
        if place.is_dir():
            found = [
                str(p)
                for p in sorted(place.rglob("*"))
                if p.is_file() and not p.name.startswith(".") and _looks_like_log(p)
            ]
            if not found:
                raise InputError("the folder holds no log", where=path, available="nothing to read")
            out.extend(found)
        elif place.is_file() or split_member(path) is not None:
            out.append(path)
        elif glob.has_magic(path):
            found = sorted(p for p in glob.glob(path, recursive=True) if Path(p).is_file())
            if not found:
                raise InputError("no file matches", where=path)
            out.extend(found)
        elif place.exists():
            out.append(path)  # a pipe or a device: read as a stream
        else:
            raise InputError("no such file", where=path)
    return [one for path in out for one in _members(path)]


def _members(path: str) -> list[str]:
    """The logs in an archive; any other file is itself."""
    if path == "-" or is_address(path) or not is_archive(Path(path)):
        return [path]
    return members(path, lambda name: _looks_like_log(Path(name)))


def _objects(path: str) -> list[str]:
    from ttftdoctor.sources.stores import expand as objects

    return objects(path, lambda key: _looks_like_log(Path(key)))


def open_address(address: str, query: str | None = None) -> io.BufferedReader:
    """Open what lies at an address as a stream of bytes; the rows of a database as JSON lines.

    Raises
    ------
    InputError
        If it is not there or may not be read.
    """
    if is_database(address):
        from ttftdoctor.sources.databases import open_rows

        return open_rows(address, query)
    if scheme_of(address) in STORES:
        from ttftdoctor.sources.stores import open_object

        return open_object(address)
    from ttftdoctor.sources.web import open_page

    return open_page(address)


def _looks_like_log(path: Path) -> bool:
    name = path.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return name.endswith(_SUFFIXES)


class _Packed:
    """Unpacks a stream piece by piece; where it is damaged it ends, and ``damage`` says why."""

    #: Small, because a piece may unpack to ten thousand times its size, and is lost if damaged.
    STEP = 4096

    def __init__(self, file: IO[bytes], begins: bytes, make: Callable[[], Any]) -> None:
        self.damage: str | None = None
        self.given = 0  # bytes that were unpacked so far
        self._pieces = self._unpack(file, begins, make)
        self._left = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts = [self._left]
        got = len(self._left)
        while got < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(memoryview(piece))
            got += len(piece)
        # The last one is cut before they are joined: it may be much longer than what is asked for.
        cut = len(parts[-1]) - max(got - size, 0)
        parts[-1], self._left = parts[-1][:cut], parts[-1][cut:]
        data = b"".join(parts)
        self.given += len(data)
        return data

    def _unpack(self, file: IO[bytes], begins: bytes, make: Callable[[], Any]) -> Iterator[bytes]:
        unpacker: Any = make()
        data = file.read(self.STEP)
        while True:
            if unpacker is None:  # between two members of one file
                data = data.lstrip(b"\x00")
                if len(data) < 6:
                    data += file.read(self.STEP)
                if not data.strip(b"\x00"):
                    return
                if not data.startswith(begins) and data[1:4] != b"\x2a\x4d\x18":
                    self.damage = "something else follows the packed data"
                    return
                unpacker = make()
            if not data:
                self.damage = "it ends too early"
                return
            try:
                piece = unpacker.decompress(data)
            except Exception as error:  # noqa: BLE001  (every library has a class of its own)
                self.damage = str(error)
                return
            if piece:
                yield piece
            if unpacker.eof:
                data, unpacker = unpacker.unused_data, None
            else:
                data = file.read(self.STEP)


def _zstandard() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": _zstandard,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
}


class Source:
    """One opened log: its head, and its rows in chunks. Standard input is read once.

    With ``table``, text that could be CSV is CSV, however odd its header. ``given`` is read in
    place of the file, whose name the log keeps; with ``lines`` it is known to be lines of text.
    ``query`` is what a database is asked.
    """

    def __init__(
        self,
        path: str,
        *,
        table: bool = False,
        given: IO[bytes] | None = None,
        lines: bool = False,
        query: str | None = None,
    ) -> None:
        #: The name as it may be shown: an address without its password.
        self.path = shown(path)
        self._address = path if is_address(path) else None
        self._query = query
        self._table = table
        self._given = given
        self._lines = lines
        #: How each line is wrapped, if most are: the head is then that of the wrapped lines.
        self.wrapping: Wrapping | None = None
        self._bare = False
        self._stream: IO[bytes] | None = None
        self._packed: _Packed | None = None
        self._old_mac = False  # lines end in a carriage return alone
        self._comments = False
        self._whole: bytes | None = None  # a Parquet file that is no file of its own
        #: Why the packed stream ended early, if it did; what came before is still read.
        self.damage: str | None = None
        #: Sentences on what of the file was not used, and on how it was read.
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self._file: Any = None
        self._buffer = b""
        self._document: list[Any] | None = None
        try:
            self.head = self._read_head()
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------- opening

    @property
    def is_document(self) -> bool:
        """Whether the file is a single JSON document, an array, or objects one after another."""
        return self._document is not None

    @property
    def is_packed(self) -> bool:
        """Whether the file is packed."""
        return self._packed is not None

    @property
    def is_old(self) -> bool:
        """Whether its lines end in a carriage return alone."""
        return self._old_mac

    def close(self) -> None:
        """Close the file; standard input is left open."""
        kept = self.path == "-" and self._given is None
        if self._stream is not None and not kept:
            self._stream.close()
        if self._file is not None and not kept:
            self._file.close()

    def _open(self) -> IO[bytes]:
        """Open for reading from the start, unpacked by content, not by name."""
        try:
            if self._given is not None:
                self._file = self._given
            elif self._address is not None:
                self._file = open_address(self._address, self._query)
            elif split_member(self.path) is not None:
                self._file = open_member(self.path)
            else:
                here = self.path == "-"
                self._file = sys.stdin.buffer if here else open(self.path, "rb")  # noqa: SIM115
        except OSError as error:
            raise InputError(
                "the file cannot be opened", where=self.path, why=error.strerror
            ) from None
        file = self._file
        buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)
        magic = buffered.peek(6)[:6]
        if magic.startswith(BEGINS):
            raise InputError(
                "an archive of files is read from a file only", where=self.path,
                help="save it, and give its name",
            )  # fmt: skip
        for begins, make in _UNPACKERS.items():
            if magic.startswith(begins):
                self._packed = _Packed(buffered, begins, make)
        return buffered

    def _read(self, size: int) -> bytes:
        if self._stream is None:
            self._stream = self._open()
        # A read of a packed file ends quietly where the file is damaged: what came before counts.
        if self._packed is not None:
            data = self._packed.read(size)
            self.damage = self._packed.damage
            if self.damage is not None and not self._packed.given:
                raise InputError("the packed file is damaged", where=self.path, why=self.damage)
        else:
            parts: list[bytes] = []
            got = 0
            try:
                while got < size and (part := self._stream.read(min(size - got, CHUNK_BYTES))):
                    parts.append(part)
                    got += len(part)
            except OSError as error:
                raise InputError(
                    "the file cannot be read", where=self.path, why=error.strerror
                ) from None
            data = parts[0] if len(parts) == 1 else b"".join(parts)
        return data.replace(b"\r", b"\n") if self._old_mac else data

    def _everything(self, most: int) -> bytes | None:
        """Everything that is left; None if that is more bytes than this."""
        parts = [self._buffer]
        size = len(self._buffer)
        while size <= most and (part := self._read(CHUNK_BYTES)):
            parts.append(part)
            size += len(part)
        return b"".join(parts) if size <= most else None

    def _rest(self, what: str) -> bytes:
        """Everything that is left, for a format that must be held in memory."""
        data = self._everything(MAX_TABLE_BYTES)
        if data is None:
            raise InputError(
                f"more than {MAX_TABLE_BYTES / 2**30:.3g} GiB of {what} cannot be held",
                where=self.path,
                help="split it, or write Parquet (to a file) or JSON lines, which take less memory",
            )
        return data

    # ------------------------------------------------------------------- head

    def _read_head(self) -> Head:
        data = self._read(HEAD_BYTES)
        self._buffer = data
        return self._head_of(data)

    def as_it_is(self) -> None:
        """Take the lines for what they are, though they look wrapped."""
        self.wrapping = None
        self._bare = True
        self.head = self._head_of(self._buffer)

    def _head_of(self, data: bytes) -> Head:
        if not data.strip():
            raise InputError("the file is empty", where=self.path, help="give a log with requests")
        if data[:4] == b"PAR1":
            if self._packed is not None:
                raise InputError("this is a packed Parquet file: unpack it first", where=self.path)
            return self._parquet_head()
        if data.startswith(SQLITE):
            return self._database_head()
        if b"\x00" in data[:4096]:
            raise InputError(
                "this is a binary file, not a log",
                where=self.path,
                available="JSON, JSON lines, CSV, text lines, Parquet; plain, gzip or Zstandard",
            )
        if data.startswith(b"\xef\xbb\xbf"):
            data = self._buffer = data[3:]
        if b"\r" in data and b"\n" not in data:
            self._old_mac = True
            data = self._buffer = data.replace(b"\r", b"\n")
        text = plain_text(data.decode("utf-8", errors="replace"))
        lines = text.splitlines()
        whole = len(data) < HEAD_BYTES
        if not whole and len(lines) > 1:
            lines = lines[:-1]
        filled = [line for line in lines if line.strip()]
        self.wrapping = None if self._bare else wrapping_of(filled[:HEAD_RECORDS])
        if self.wrapping is SERVICE and _is_table(filled[:HEAD_RECORDS]):
            self.wrapping = None
        if self.wrapping is not None or self._lines:
            return Head(self.path, Shape.TEXT, lines=tuple(filled[: 20 * HEAD_RECORDS]))
        first = text.lstrip()[:1]
        parsed = [_object(line) for line in filled[:HEAD_RECORDS]]
        good = [p for p in parsed if p is not None]
        # A torn first line must not hide that the rest are JSON lines.
        if good and (len(good) >= 0.5 * len(parsed) or (first == "{" and len(good) >= 3)):
            if len(filled) == 1 and whole:
                return self._document_head([good[0]])
            return Head(
                self.path, Shape.JSON, records=tuple(good), columns=_keys(good),
                lines=tuple(filled[:HEAD_RECORDS]),
            )  # fmt: skip
        if first == "{" or _ARRAY.match(text):
            document = self._parse_document(text if whole else None)
            if document is not None:
                return self._document_head(document)
        self._comments = bool(filled) and filled[0].startswith("#")
        rows = [line for line in lines if line.strip() and not line.startswith("#")]
        separator = _csv_separator(rows if self._comments else filled, force=self._table)
        if separator is not None:
            return self._csv_head(separator, filled, "\n".join(lines))
        return Head(self.path, Shape.TEXT, lines=tuple(filled[: 20 * HEAD_RECORDS]))

    def _database_head(self) -> Head:
        """The head of a table in an SQLite file, which is read as JSON lines."""
        from ttftdoctor.sources.sqlite_rows import open_table

        if self._packed is None and self._given is None and os.path.isfile(self.path):
            rows = open_table(self.path, self.path)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "log.db")
                with open(file, "wb") as copy:
                    copy.write(self._buffer)
                    while piece := self._read(CHUNK_BYTES):
                        copy.write(piece)
                rows = open_table(file, self.path)
        self.close()
        self._given, self._stream, self._packed = rows, None, None
        return self._read_head()

    def _document_head(self, document: list[Any]) -> Head:
        records = [d for d in document if isinstance(d, dict)]
        outer = records[0] if len(document) == 1 and records else None
        inner: dict[str, tuple[Mapping[str, Any], ...]] = {}
        if outer is not None:
            for key, value in outer.items():
                if isinstance(value, list) and value and isinstance(value[0], dict):
                    inner[key] = tuple(v for v in value[:HEAD_RECORDS] if isinstance(v, dict))
            values = list(outer.values())
            alike = all(isinstance(v, dict) and v.keys() == values[0].keys() for v in values)
            if len(values) > 1 and alike:
                inner["*"] = tuple(values[:HEAD_RECORDS])
        self._document = document
        return Head(
            self.path, Shape.JSON, records=tuple(records[:HEAD_RECORDS]),
            columns=_keys(records[:HEAD_RECORDS]), outer=outer, inner=inner,
        )  # fmt: skip

    def _parse_document(self, text: str | None) -> list[Any] | None:
        """Parse one document, an array, or objects one after another; None if it is no JSON."""
        if text is None:
            everything = self._everything(MAX_DOCUMENT_BYTES)
            if everything is None:
                raise InputError(
                    "a JSON document of more than 1 GiB cannot be read",
                    where=self.path,
                    help="write one record a line (JSON lines), which is read in parts",
                )
            self._buffer = everything
            text = plain_text(everything.decode("utf-8", errors="replace"))
        text = _paired(text)
        decoder = json.JSONDecoder()
        values: list[Any] = []
        at, end = 0, len(text)
        try:
            while True:
                while at < end and text[at] in " \t\r\n,":
                    at += 1
                if at >= end:
                    break
                value, at = decoder.raw_decode(text, at)
                values.append(value)
        except (ValueError, RecursionError):
            if not values:
                return _listed(text, decoder)
        if values and all(isinstance(value, list) for value in values):
            return [item for value in values for item in value]
        return values

    def _csv_head(self, separator: str, filled: list[str], text: str) -> Head:
        rows = _csv_rows(text.split("\n"), separator, HEAD_RECORDS + 1, comments=self._comments)
        if not rows:
            return Head(self.path, Shape.TEXT, lines=tuple(filled))
        columns: list[str] = []
        repeated: list[str] = []
        for at, cell in enumerate(rows[0]):
            name = cell.strip() or f"column_{at + 1}"
            if name in columns:
                repeated.append(name)
                name = f"{name}_{at + 1}"
            columns.append(name)
        if repeated:
            self.notes.append(
                tr(
                    "the header names {fields} more than once; the first one is used",
                    fields=tr(", ").join(repeated),
                )
            )
        return Head(
            self.path, Shape.CSV, columns=tuple(columns), lines=tuple(filled[:20]),
            records=tuple(
                dict(itertools.zip_longest(columns, (c or None for c in row[: len(columns)])))
                for row in rows[1:]
            ),
            separator=separator,
        )  # fmt: skip

    def _parquet_head(self) -> Head:
        try:
            frame = _plain_types(self._parquet().head(HEAD_RECORDS).collect(), nested=True)
            records = tuple(frame.to_dicts())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise InputError(
                "the Parquet file is damaged", where=self.path, why=str(error).splitlines()[0][:200]
            ) from None
        return Head(self.path, Shape.PARQUET, records=records, columns=tuple(frame.columns))

    def _parquet(self) -> pl.LazyFrame:
        given = self._given is not None
        if given or held_whole(self.path) or split_member(self.path) is not None:
            if self._whole is None:
                self._whole = self._rest("Parquet")
            return pl.scan_parquet(io.BytesIO(self._whole))
        if self._address is not None:
            from ttftdoctor.sources.stores import scan_options

            return pl.scan_parquet(
                self._address, glob=False, storage_options=scan_options(self._address)
            )
        return pl.scan_parquet(self.path)

    # ------------------------------------------------------------------- rows

    def chunks(
        self,
        schema: Mapping[str, Any],
        *,
        whole: bool = False,
        unwrap: str | None = None,
        numbers: Mapping[str, Any] | None = None,
    ) -> Iterator[Chunk]:
        """Yield the rows as raw frames with ``line`` and the fields of ``schema``.

        Parameters
        ----------
        schema
            Raw field to Polars type. Fields that do not occur are null. Ignored for text.
        whole
            One chunk with everything in it.
        unwrap
            Name of the list inside a single document whose elements are the records.
        numbers
            Other types for fields of ``schema`` (JSON only): tried first, block by block. A block
            where a value is of another type is read by ``schema``.
        """
        if LINE in schema:
            raise InputError(
                f"a field named `{LINE}` cannot be read: rows are numbered by that name",
                where=self.path, help="give it another name",
            )  # fmt: skip
        schemas = ({**schema, **numbers}, schema) if numbers else (schema,)
        shape = self.head.shape
        if shape is Shape.PARQUET:
            yield from self._parquet_chunks(schema, whole)
        elif shape is Shape.CSV:
            yield self._csv_chunk(schema)
        elif shape is Shape.TEXT:
            yield from self._text_chunks(whole)
        elif self._document is not None:
            yield self._document_chunk(schemas, unwrap)
        else:
            parts = list(self._held(self._json_chunks(schemas))) if whole else None
            if parts is None:
                yield from self._json_chunks(schemas)
            elif parts:
                yield Chunk(
                    _stack([p.frame for p in parts]), tuple(r for p in parts for r in p.rejects)
                )

    def _parquet_chunks(self, schema: Mapping[str, Any], whole: bool) -> Iterator[Chunk]:
        have = set(self.head.columns)
        nested = {c for c, kind in schema.items() if isinstance(kind, pl.List)}
        wanted = self._parquet().select([pl.col(c) for c in schema if c in have] or [pl.first()])
        before = 0
        for raw in self._pieces(wanted, whole):
            try:
                frame = _plain_types(raw, nested=nested)
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise self._damaged(error) from None
            frame = frame.with_row_index(LINE, offset=1).with_columns(
                pl.col(LINE).cast(pl.Int64) + before
            )
            before += frame.height
            odd = [c for c in nested if c in have and not _is_list(frame.schema[c])]
            if not odd:
                yield Chunk(frame)
                continue
            bad = pl.any_horizontal([pl.col(c).is_not_null() for c in odd])
            none = (pl.lit(None, dtype=schema[c]).alias(c) for c in odd)
            wrong = tuple((line, "wrong_shape") for line in frame.filter(bad)[LINE])
            yield Chunk(frame.filter(~bad).with_columns(none), wrong)

    def _pieces(self, table: pl.LazyFrame, whole: bool) -> Iterator[pl.DataFrame]:
        """The rows of a table, piece by piece; one of none where it has none."""
        try:
            if whole:
                yield table.collect()
                return
            one = None
            for one in table.collect_batches(chunk_size=PARQUET_ROWS, maintain_order=True):
                yield one
            if one is None:
                yield table.head(0).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: BaseException) -> InputError:
        return InputError(
            "the Parquet file is damaged", where=self.path, why=str(error).splitlines()[0][:200]
        )

    def _csv_chunk(self, schema: Mapping[str, Any]) -> Chunk:
        names = self.head.columns
        wanted = [c for c in names if c in schema] or [names[0]]
        # Under a header of our own with one more column, a field too many shows; the file's own
        # header is then the first row.
        beyond = "\x00beyond"
        header = io.StringIO()
        csv.writer(header, delimiter=self.head.separator, lineterminator="\n").writerow(
            [*names, beyond]
        )
        data = re.sub(_COLOUR.encode(), b"", self._rest("CSV"))
        body = data.lstrip(b"\r\n")
        above = data.count(b"\n", 0, len(data) - len(body))
        if body.count(b"\n") * (len(wanted) + 1) > MAX_CELLS:
            raise InputError(
                f"more than {MAX_CELLS:,} cells of CSV cannot be held", where=self.path,
                help="split it, or write Parquet, and leave blank lines out",
            )  # fmt: skip
        if _has_long_line(body):
            raise InputError(
                f"a line of CSV of more than {MAX_LINE_BYTES / 2**20:.3g} MiB cannot be held",
                where=self.path, help="leave columns of long texts out",
            )  # fmt: skip
        tail = b"" if body.endswith(b"\n") else b"\n"
        data = b"".join((header.getvalue().encode(), body, tail))
        del body

        def table(columns: list[str]) -> pl.DataFrame:
            return pl.read_csv(
                data, infer_schema=False, separator=self.head.separator,
                truncate_ragged_lines=True, encoding="utf8-lossy",
                comment_prefix="#" if self._comments else None, columns=columns,
            )  # fmt: skip

        try:
            frame = table([*wanted, beyond])
            empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
            if empty.any():  # blank lines, or values only in columns that are not read
                empty &= (
                    table([*names, beyond])
                    .select(pl.all_horizontal(pl.all().is_null()))
                    .to_series()
                )
        except pl.exceptions.PolarsError as error:
            raise InputError(
                "the CSV file cannot be read",
                where=self.path,
                why=str(error).splitlines()[0][:200],
                help="check the quoting near the place named",
            ) from None
        if frame.height != data.count(b"\n") - 1:
            self.notes.append(tr("some cells hold line breaks: line numbers count the rows"))
        frame = frame.with_row_index(LINE, offset=1 + above).with_columns(
            pl.col(LINE).cast(pl.Int64)
        )
        frame = frame.filter(~empty)[1:]
        many = frame.filter(pl.col(beyond).is_not_null())[LINE]
        frame = frame.filter(pl.col(beyond).is_null()).drop(beyond)
        return Chunk(frame, tuple((line, "too_many_fields") for line in many))

    def _document_chunk(self, schemas: Schemas, unwrap: str | None) -> Chunk:
        document = self._document or []
        values: list[Any] = document
        if unwrap is not None and self.head.outer is not None:
            inside = self.head.outer if unwrap == "*" else self.head.outer[unwrap]
            values = list(inside.values()) if isinstance(inside, dict) else list(inside)
        good: Numbered = []
        rejects: list[tuple[int, str]] = []
        for number, value in enumerate(values, start=1):
            if not isinstance(value, dict):
                rejects.append((number, "not_an_object"))
                continue
            try:
                good.append((number, json.dumps(_finite(value), separators=(",", ":")).encode()))
            except (RecursionError, ValueError):
                rejects.append((number, "too_deep"))
        frame, more = _frame_of(good, schemas)
        return Chunk(frame, tuple(rejects + more))

    def _text_chunks(self, whole: bool) -> Iterator[Chunk]:
        if not whole:
            yield from self._texts()
        elif parts := list(self._held(self._texts())):
            yield Chunk(
                pl.concat([p.frame for p in parts]), tuple(r for p in parts for r in p.rejects)
            )

    def _texts(self) -> Iterator[Chunk]:
        """The lines of text that hold anything."""
        for data, number, _, rejects in self.blocks():
            # A run of blank lines may be long.
            lines = [] if data.isspace() else data.decode("utf-8", errors="replace").split("\n")
            frame = pl.DataFrame(
                {LINE: range(number, number + len(lines)), "text": lines},
                schema={LINE: pl.Int64, "text": pl.String},
            ).with_columns(pl.col("text").str.strip_chars_end("\r"))
            yield Chunk(frame.filter(pl.col("text").str.strip_chars() != ""), rejects)

    def _held(self, parts: Iterator[Chunk]) -> Iterator[Chunk]:
        """The same parts of a log that must be in memory as a whole."""
        size = 0.0
        for part in parts:
            size += part.frame.estimated_size()
            if size > MAX_TABLE_BYTES:
                raise InputError(
                    f"more than {MAX_TABLE_BYTES / 2**30:.3g} GiB of a log whose requests are "
                    "spread over several lines cannot be held",
                    where=self.path, help="split it",
                )  # fmt: skip
            yield part

    def _json_chunks(self, schemas: Schemas) -> Iterator[Chunk]:
        def parse(block: Block) -> Chunk:
            nonlocal schemas
            data, number, lines, rejects = block
            frame, more = parse_block(data, number, lines, schemas)
            if any(frame.schema[name] != kind for name, kind in schemas[0].items()):
                schemas = schemas[-1:]
            return Chunk(frame, rejects + tuple(more))

        return side_by_side(parse, ahead(self.blocks()), PARSERS)

    def blocks(self) -> Iterator[Block]:
        """The lines of the log in blocks of whole ones, without the colours of a terminal."""
        for data, number, lines, rejects in self._line_blocks():
            # One byte is found several times as fast as two.
            coloured = b"\x1b" in data and b"\x1b[" in data
            plain = re.sub(_COLOUR.encode(), b"", data) if coloured else data
            yield plain, number, lines, rejects

    def elsewhere(self) -> list[str]:
        """Lines from behind those of the head: the rest of its bytes, and pieces of a plain file.

        A log may go on in another format. Nothing of what is read of a log in parts is used up.
        """
        data = self._buffer.decode("utf-8", errors="replace")
        found = [line for line in plain_text(data).split("\n")[:-1] if line.strip()]
        found = found[HEAD_RECORDS:]
        if self._stream is None or self._packed is not None:
            return found
        try:
            size, read_at = place_reader(self._stream) or _plain_file(self._stream)
            step = max((size - HEAD_BYTES) // PROBES, PROBE_BYTES)
            # The last piece is the end of the file: a format that came last is there.
            places = [*range(HEAD_BYTES, size - PROBE_BYTES, step), size - PROBE_BYTES]
            for at in places if size > HEAD_BYTES else ():
                piece = read_at(at, PROBE_BYTES)
                text = plain_text(piece.decode("utf-8", errors="replace"))
                found += [line for line in text.split("\n")[1:-1] if line.strip()]
        except (OSError, ValueError):  # a pipe, or something that only looks like a file
            pass
        return found

    def _line_blocks(self) -> Iterator[Block]:
        number = 1
        rest, self._buffer = self._buffer, b""
        rejects: list[tuple[int, str]] = []
        while True:
            part = self._read(self._to_line_end(CHUNK_BYTES))
            if not part:
                if rest or rejects:
                    lines = rest.count(b"\n") + (bool(rest) and not rest.endswith(b"\n"))
                    yield rest, number, lines, tuple(rejects)
                return
            cut = part.rfind(b"\n") + 1
            if cut == 0:
                cut, part, rest = rest.rfind(b"\n") + 1, rest + part, b""
            if cut == 0:
                rest = part
                if len(rest) > MAX_LINE_BYTES:
                    rejects.append((number, "line_too_long"))
                    rest = self._skip_line()
                    number += 1
                continue
            whole = not rest and cut == len(part)  # as nearly always: nothing is copied
            block = part if whole else b"".join((rest, memoryview(part)[:cut]))
            rest = part[cut:]
            lines = _newlines(block)
            yield block, number, lines, tuple(rejects)
            rejects = []
            number += lines

    def _to_line_end(self, size: int) -> int:
        """How many of the next ``size`` bytes of a plain file are whole lines; else, ``size``."""
        if self._stream is None or self._packed is not None or not hasattr(os, "pread"):
            return size
        try:
            end = self._stream.tell() + size
            tail = os.pread(self._stream.fileno(), TAIL_BYTES, end - TAIL_BYTES)
        except (OSError, ValueError):  # a pipe, or something that only looks like a file
            return size
        cut = tail.rfind(b"\n") + 1
        return size - TAIL_BYTES + cut if cut and len(tail) == TAIL_BYTES else size

    def _skip_line(self) -> bytes:
        while True:
            part = self._read(2**22)
            if not part:
                return b""
            cut = part.find(b"\n")
            if cut >= 0:
                return part[cut + 1 :]


def _plain_file(stream: IO[bytes]) -> tuple[int, Callable[[int, int], bytes]]:
    """The size of a file and a function that reads at a place of it.

    Raises
    ------
    OSError
        If it is none.
    """
    if not hasattr(os, "pread"):
        raise OSError
    number = stream.fileno()
    return os.fstat(number).st_size, lambda at, size: os.pread(number, size, at)


def _newlines(block: bytes) -> int:
    """How many lines end in the block; several times as fast as counting them as text."""
    cells, step = np.frombuffer(block, np.uint8), 2**18
    pieces = (cells[at : at + step] for at in range(0, len(cells), step))
    return sum(int(np.count_nonzero(piece == 10)) for piece in pieces)


def _has_long_line(data: bytes) -> bool:
    """Whether a line is longer than may be; only one place in so many bytes is looked at."""
    at, end = 0, len(data)
    while end - at > MAX_LINE_BYTES:
        cut = data.rfind(b"\n", at, at + MAX_LINE_BYTES + 1)
        if cut < 0:
            return True
        at = cut + 1
    return False


def _plain_types(frame: pl.DataFrame, *, nested: bool | set[str]) -> pl.DataFrame:
    """Parquet columns as the readers know them: text, numbers, instants.

    Structs and lists become JSON text (except where ``nested``), durations text with their unit,
    bytes ``0x...``. Dates outside the calendar become null.
    """
    exprs: list[pl.Expr] = []
    for name, dtype in frame.schema.items():
        column = pl.col(name)
        if isinstance(dtype, pl.Duration):
            micros = column.dt.total_microseconds().cast(pl.String)
            exprs.append(pl.concat_str(micros, pl.lit("us")).alias(name))
        elif isinstance(dtype, pl.Decimal):
            exprs.append(column.cast(pl.Float64))
        elif isinstance(dtype, pl.Date):
            days = column.to_physical().is_between(-719_162, 2_932_896)
            exprs.append(pl.when(days).then(column).cast(pl.Datetime("us")).alias(name))
        elif isinstance(dtype, pl.Datetime) and nested is True:
            scale = {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.time_unit]
            inside = column.to_physical().is_between(
                -62_135_596_800 * scale, 253_402_300_799 * scale
            )
            exprs.append(pl.when(inside).then(column).alias(name))
        elif dtype == pl.Binary:
            hexed = pl.concat_str(pl.lit("0x"), column.bin.encode("hex"))
            exprs.append(hexed.alias(name))
        elif dtype.is_nested():
            if nested is True or (nested is not False and name in nested):
                continue
            if "Binary" in str(dtype) or "Object" in str(dtype):
                exprs.append(pl.when(column.is_not_null()).then(pl.lit("[bytes]")).alias(name))
                continue
            inner = column.arr.to_list() if isinstance(dtype, pl.Array) else column
            text = pl.struct(inner.alias("v")).struct.json_encode().str.json_path_match("$.v")
            exprs.append(pl.when(column.is_not_null()).then(text).alias(name))
        elif not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean, pl.Datetime)):
            exprs.append(column.cast(pl.String, strict=False))
    return frame.with_columns(exprs)


def _is_list(dtype: Any) -> bool:
    """Whether a type is that of lists of single values."""
    return isinstance(dtype, pl.List) and not (dtype.inner and dtype.inner.is_nested())


#: How an array begins. A stamp, a number or a word in brackets before a line of text is none.
_ARRAY = re.compile(
    r"\s*\[\s*(?:\Z|[\[{\"\],]|"
    r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|-?Infinity|NaN|true|false|null)\s*,)"
)


def _listed(text: str, decoder: json.JSONDecoder) -> list[Any] | None:
    """The members of an array that ends with a comma, with or without its bracket; else None."""
    values: list[Any] = []
    at, end = len(text) - len(text.lstrip()), len(text)
    if text[at : at + 1] != "[":
        return None
    at += 1
    try:
        while True:
            while at < end and text[at] in " \t\r\n,":
                at += 1
            if at >= end or (text[at] == "]" and not text[at + 1 :].strip()):
                return values or None
            value, at = decoder.raw_decode(text, at)
            values.append(value)
    except (ValueError, RecursionError):
        return None


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(_paired(line))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _keys(records: list[Any]) -> tuple[str, ...]:
    keys: dict[str, None] = {}
    for record in records:
        if isinstance(record, dict):
            keys.update(dict.fromkeys(record))
    return tuple(keys)


def plain_text(text: str) -> str:
    """The text without the colours of a terminal, which no format has inside a record."""
    return re.sub(_COLOUR, "", text) if "\x1b[" in text else text


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|"
    r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|(\\.)"
)


def _paired(text: str) -> str:
    """JSON without the escapes of half a character, which is no text: U+FFFD stands for each."""
    if _SURROGATE.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: found[1] or found[2] or "\\ufffd", text)


def _csv_rows(
    lines: list[str], separator: str, limit: int, *, comments: bool = False
) -> list[list[str]]:
    """The first rows of a CSV text, without blank lines; fewer where the quoting is broken."""
    kept = (line for line in lines if not (comments and line.startswith("#")))
    rows: list[list[str]] = []
    try:
        for row in csv.reader((f"{line}\n" for line in kept), delimiter=separator):
            if row:
                rows.append(row)
            if len(rows) == limit:
                break
    except csv.Error:
        pass
    return rows


def _csv_separator(lines: list[str], *, force: bool = False) -> str | None:
    """The separator, if the first line can be a header; ``force`` takes what is likeliest."""
    if not lines:
        return None
    odd: str | None = None
    for separator in (",", "\t", ";", "|"):
        rows = _csv_rows(lines, separator, 20)
        if not rows or len(rows[0]) < 2:
            continue
        header, body = [n.strip() for n in rows[0]], rows[1:]
        # A table with an index has no name for it.
        names = header[1:] if header[0] == "" else header
        named = all(n and not n[0].isdigit() and len(n) < 80 and n.isprintable() for n in names)
        if not named or not all(len(row) > 1 for row in body):
            continue
        usual = all(len(n.split()) <= 3 and not any(c in n for c in "[]{}|=") for n in header)
        if usual and separator != "|":
            return separator
        # A line of prose has commas, too: an odd header wants rows alike, with numbers in them.
        alike = bool(body) and all(len(row) == len(header) for row in body)
        if alike and any(all(_is_number(row[at]) for row in body) for at in range(len(header))):
            odd = odd or separator
    if odd is not None:
        return odd
    single = len(lines) > 1 and re.fullmatch(r"\"?[A-Za-z]\w*\"?", lines[0].strip()) is not None
    if single and all(_is_number(line) for line in lines[1:20]):
        return ","
    if force and not lines[0].lstrip().startswith(("{", "[")):
        return max((",", "\t", ";", "|"), key=lines[0].count)
    return None


def _is_table(lines: list[str]) -> bool:
    """Whether the first line is the header of a table, whatever a bar in its cells looks like.

    The name of a service stands before many lines; that of a column only in the header.
    """
    separator = _csv_separator(lines)
    if separator is None:
        return False
    rows = _csv_rows(lines, separator, HEAD_RECORDS)
    header, body = rows[0], rows[1:]
    return (
        bool(body)
        and all(len(row) == len(header) for row in body)
        and len(set(header)) == len(header)
        and all(row[0].strip() != header[0].strip() for row in body)
    )


def _is_number(text: str) -> bool:
    try:
        float(text.strip().strip('"'))
    except ValueError:
        return False
    return True


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON has no word for, by their names."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value


def _stack(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Put raw frames on top of each other; a field read as numbers here and text there is text."""
    # In one piece: thousands of small ones with nested columns take gigabytes.
    return pl.concat(frames, how="vertical_relaxed").rechunk()


def parse_block(
    data: bytes, number: int, lines: int, schemas: Schemas
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Parse a block of JSON lines at once; where that fails, halve it until the bad lines show."""
    if data.isspace():
        data = b""  # a run of blank lines may be long
    if data:
        try:
            frame = _read_lines(data, schemas)
            if frame.height == lines:
                lined = pl.Series(LINE, np.arange(number, number + lines))
                # In one piece: Polars leaves one for every few hundred kilobytes.
                return frame.rechunk().insert_column(0, lined), []
        except (pl.exceptions.PolarsError, UnicodeDecodeError):
            pass
        if len(data) > 2**18 and lines > 64:
            middle = data.find(b"\n", len(data) // 2) + 1
            if 0 < middle < len(data):
                some = data.count(b"\n", 0, middle)
                a, bad_a = parse_block(data[:middle], number, some, schemas)
                b, bad_b = parse_block(data[middle:], number + some, lines - some, schemas)
                return _stack([a, b]), bad_a + bad_b
    good: Numbered = []
    rejects: list[tuple[int, str]] = []
    for offset, line in enumerate(data.split(b"\n")):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8", errors="replace"))
        except RecursionError:
            rejects.append((number + offset, "too_deep"))
        except ValueError:
            rejects.append((number + offset, "not_json"))
        else:
            if isinstance(value, dict):
                try:
                    plain = json.dumps(_finite(value), separators=(",", ":"))
                    good.append((number + offset, plain.encode()))
                except (RecursionError, ValueError):
                    rejects.append((number + offset, "too_deep"))
            else:
                rejects.append((number + offset, "not_an_object"))
    frame, more = _frame_of(good, schemas)
    return frame, rejects + more


def _read_lines(data: bytes, schemas: Schemas) -> pl.DataFrame:
    """Read JSON lines by the first schema that fits.

    Declared structs are read as text and decoded: over ten times as fast.
    """
    for schema in schemas[:-1]:
        try:
            return _read_lines(data, (schema,))
        except pl.exceptions.PolarsError:
            pass
    schema = schemas[-1]
    if _structs(schema):
        try:
            return _decoded(data, schema)
        except pl.exceptions.PolarsError:
            # Decoding is the stricter way; a few lines can afford the slow one.
            if len(data) > 2**16:
                raise
    return _unbroken(data, pl.read_ndjson(data, schema=dict(schema)))


def _decoded(data: bytes, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Read JSON lines with declared structs as text first."""
    structs = _structs(schema)
    texts = {**schema, **dict.fromkeys(structs, pl.String)}
    frame = _unbroken(data, pl.read_ndjson(data, schema=texts))
    return frame.with_columns(pl.col(name).str.json_decode(kind) for name, kind in structs.items())


def _structs(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are declared as structs, or lists of them."""
    return {name: kind for name, kind in schema.items() if _of_structs(kind)}


def _of_structs(kind: Any) -> bool:
    """Whether a type is a struct, or a list of structs however deep."""
    while isinstance(kind, (pl.List, pl.Array)):
        kind = kind.inner
    return isinstance(kind, pl.Struct)


#: An escape that is lost where an object or array is read as text (those of quotes and line ends
#: are kept).
_LOST_ESCAPE = re.compile(rb'\\[^"n]')


def _unbroken(data: bytes, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the JSON of nested values as it stands in the lines.

    Read as text, nested values come without most of the escapes in their strings: a tab or a
    backslash in a prompt would make it no JSON any more. Such values are taken from the lines.
    """
    if b"\\" not in data or _LOST_ESCAPE.search(data) is None:
        return frame
    opens = r"^\s*[\[{]"
    nested = [
        column.name
        for column in frame
        if column.dtype == pl.String
        and "'" not in column.name
        and "\\" not in column.name
        and column.str.contains(opens).any()
    ]
    lines = [line for line in data.decode("utf-8", "replace").split("\n") if line.strip()]
    if not nested or len(lines) != frame.height:
        return frame
    whole = pl.Series(lines)
    return frame.with_columns(
        pl.when(pl.col(name).str.contains(opens))
        .then(pl.coalesce(whole.str.json_path_match(f"$['{name}']"), pl.col(name)))
        .otherwise(pl.col(name))
        .alias(name)
        for name in nested
    )


def _frame_of(lines: Numbered, schemas: Schemas) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Frame of lines known to be JSON objects; a field of another shape than declared rejects."""
    none = pl.DataFrame(schema={LINE: pl.Int64, **schemas[-1]})
    frame = _together(lines, schemas) if lines else none
    if frame is not None:
        return frame, []
    looks = {number: _look(line, schemas) for number, line in lines}
    failed: set[tuple[int, int]] = set()
    while True:
        parts = _Parts(schemas, looks, failed)
        parts.take(lines, tried=True)
        found = [_strictly(some, schemas) for some in parts.right.values() if some]
        odd = [number for _, bad in found for number in bad]
        if not odd:
            break
        looks.update(dict.fromkeys(odd))  # they are not what they looked like
        del parts, found
    frames = [frame for more, _ in found for frame in more] + parts.frames
    if not frames or (parts.wrong and len(schemas) > 1):
        frames.append(none)
    return _stack(frames).sort(LINE), [(number, "wrong_shape") for number in parts.wrong]


def _strictly(lines: Numbered, schemas: Schemas) -> tuple[list[pl.DataFrame], list[int]]:
    """Frames of the lines that :func:`_decoded` reads, and the numbers of the others."""
    frame = _together(lines, schemas, strict=True)
    if frame is not None:
        return [frame], []
    if len(lines) == 1:
        return [], [lines[0][0]]
    found = [_strictly(some, schemas) for some in _cut(lines)]
    return [frame for more, _ in found for frame in more], [n for _, bad in found for n in bad]


def _cut(lines: Numbered) -> list[Numbered]:
    """Many parts at once: where bad lines are many, each depth costs a reading of them all."""
    step = -(-len(lines) // PIECES)
    return [lines[at : at + step] for at in range(0, len(lines), step)]


def _together(lines: Numbered, schemas: Schemas, *, strict: bool = False) -> pl.DataFrame | None:
    """The frame of lines that can be read all at once; None where one of them cannot.

    ``strict``: as :func:`_decoded` reads them, or not at all.
    """
    data = b"\n".join(line for _, line in lines)
    try:
        frame = _decoded(data, schemas[-1]) if strict else _read_lines(data, schemas)
    except pl.exceptions.PolarsError:
        return None
    if frame.height != len(lines):
        return None
    numbers = [number for number, _ in lines]
    return frame.insert_column(0, pl.Series(LINE, numbers, dtype=pl.Int64))


@dataclass
class _Parts:
    """Lines that cannot be read together: taken apart until each part can be, or is one line.

    How lines look saves most of the tries: a part with a wrong one cannot be read, and parts
    whose lines all look right are left to be read at once; those that :func:`_unbroken` mends are
    kept apart (``right``). ``failed`` are parts that were tried, by their first and last number.
    """

    schemas: Schemas
    looks: Mapping[int, bool | None]
    failed: set[tuple[int, int]]
    frames: list[pl.DataFrame] = field(default_factory=list)
    right: dict[bool, Numbered] = field(default_factory=lambda: {False: [], True: []})
    wrong: list[int] = field(default_factory=list)

    def take(self, lines: Numbered, *, tried: bool = False) -> None:
        """Sort these lines; ``tried`` where it is known that they cannot be read together."""
        looks = {self.looks[number] for number, _ in lines}
        if False not in looks and not tried:
            if None not in looks:
                self.right[any(_LOST_ESCAPE.search(line) for _, line in lines)] += lines
                return
            ends = lines[0][0], lines[-1][0]
            frame = _together(lines, self.schemas) if ends not in self.failed else None
            if frame is not None:
                self.frames.append(frame)
                return
            self.failed.add(ends)
        if len(lines) == 1:
            self.wrong.append(lines[0][0])
            return
        first = len(self.frames)
        for some in _cut(lines):
            self.take(some)
        if len(self.frames) > first + 1:
            self.frames[first:] = [_stack(self.frames[first:])]


def _look(line: bytes, schemas: Schemas) -> bool | None:
    """Whether :func:`_decoded` reads a line; None where only trying tells.

    False is certain, and holds for the slower way of reading it, too. A try costs as much as a
    hundred looks.
    """
    structs = _structs(schemas[-1]) if len(schemas) == 1 else {}
    if not structs or _SURROGATE.search(line.decode()) is not None:
        return None
    record = json.loads(line)
    found = {_decodes(record[name], kind) for name, kind in structs.items() if name in record}
    return False if False in found else None if None in found else True


def _decodes(value: Any, kind: Any) -> bool | None:
    """:func:`_has_shape` of a field of a line, where a text may be the JSON of the value."""
    if isinstance(value, str):
        return None if value.lstrip().startswith(("{", "[", "null")) else False
    return _has_shape(value, kind)


def _has_shape(value: Any, kind: Any) -> bool | None:
    """Whether a value of JSON is of this type; None where only reading it tells.

    It is not where an object, or a list of objects, is declared and something else there. Nothing
    else is surely wrong: texts hold other values, too, and a list may be a single one.
    """
    if value is None:
        return True
    found: Iterator[bool | None]
    if isinstance(kind, pl.Struct):
        if not isinstance(value, dict):
            return False
        found = (_has_shape(value[f.name], f.dtype) for f in kind.fields if f.name in value)
    elif isinstance(kind, pl.List):
        if not isinstance(value, list):
            return False if isinstance(kind.inner, pl.Struct) else None
        found = (_has_shape(one, kind.inner) for one in value)
    elif kind == pl.String:
        return None if isinstance(value, (dict, list)) or _is_huge(value) else True
    elif kind.is_numeric() and isinstance(value, (int, float)):
        return None if _is_huge(value) else True
    else:
        return None
    told: bool | None = True
    for one in found:
        if one is False:
            return False
        told = told and one
    return told


def _is_huge(value: Any) -> bool:
    """Whether a value is a number of so many digits that it may not be one to other programs."""
    return isinstance(value, (int, float)) and abs(value) >= 1e18
