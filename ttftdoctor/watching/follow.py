"""Files that grow, as pieces of whole lines: each line is given once, whatever becomes of its file.

A *generation* is what one file held from its first byte until it was rotated away, or cut short.
Known by device and inode, it is read through a descriptor that stays open, so that a file which is
renamed or deleted is still read to its end. By its first bytes, and by those before the place it
was read up to, a file is known again after a restart, and one that was cut short and has grown
again is told from one that only grew. A copy that a rotation makes before it cuts a file short is
no new log: what the file did not show any more is read from it.

A last line without its end waits until it has one. Of a file that was rotated away it is given as
it is, once nothing has come for a while; of one that was cut short it is gone.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.language import tr
from ttftdoctor.sources import expand
from ttftdoctor.sources.addresses import is_address

#: Bytes read at a time.
PIECE_BYTES = 16 * 2**20
#: By so many of its first bytes, and of those before the place it was read up to, a file is known.
HEAD_KEPT, TAIL_KEPT = 1024, 64
#: A file that was rotated away and has not grown for so long is done with.
PATIENCE_S = 30.0
#: ... and the descriptor of one that is still there is given back after so long.
IDLE_S = 600.0
#: Files with the same beginning of fewer bytes may only have the same header.
LEAST_COPY = 256
#: How files begin that do not grow line by line.
PACKED = (
    b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04", b"PAR1",
    b"SQLite format 3\x00",
)  # fmt: skip

#: Device and inode.
Key = tuple[int, int]


@dataclass
class Generation:
    """One file until it was rotated away or cut short.

    ``offset`` is the end of what was given of it; ``head`` and ``tail`` are its first bytes and
    those before ``offset``. It begins at ``begin``: behind another one, whose file was away for so
    long that it was thought to be done with.
    """

    number: int
    path: str
    key: Key
    offset: int = 0
    ended: bool = False
    begin: int = 0
    head: bytes = b""
    tail: bytes = b""
    #: What the state says of ``head`` and ``tail``, until its file is seen again.
    digests: tuple[list[Any], list[Any]] | None = field(default=None, repr=False)
    file: int | None = field(default=None, repr=False)
    current: bool = True  # a path that is watched leads to it
    size: int = -1
    still_since: float = 0.0

    def grown(self, data: bytes) -> None:
        """Put data that was given behind what was given before."""
        self.offset += len(data)
        self.head = (self.head + data[: HEAD_KEPT - len(self.head)])[:HEAD_KEPT]
        self.tail = (self.tail + data[-TAIL_KEPT:])[-TAIL_KEPT:]

    def marks(self) -> tuple[list[Any], list[Any]]:
        """What its first and its last bytes amount to."""
        return self.digests or (_digest(self.head), _digest(self.tail))

    def record(self) -> dict[str, Any]:
        """What the state keeps of it: no byte of the log, only what they amount to."""
        return {
            "number": self.number, "path": self.path, "key": list(self.key),
            "offset": self.offset, "ended": self.ended, "begin": self.begin,
            **dict(zip(("head", "tail"), self.marks(), strict=True)),
        }  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Whole lines of a generation, to be handed back by ``Follower.taken``; ``last`` of it."""

    of: Generation
    data: bytes
    last: bool = False


def _digest(data: bytes) -> list[Any]:
    return [len(data), hashlib.sha256(data).hexdigest()]


class Follower:
    """Follows files and globs.

    ``records`` are of generations known from an earlier run (:meth:`Generation.record`).
    """

    def __init__(
        self,
        paths: Iterable[str],
        *,
        records: Iterable[Mapping[str, Any]] = (),
        patience: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paths = list(paths)
        self.patience = patience
        self.clock = clock
        self.generations: list[Generation] = []
        #: What is to be said of files that are not read, or not to their end.
        self.remarks: dict[str, None] = {}
        self._aside: dict[Key, str] = {}  # files that are not read
        self._copies: dict[Key, int] = {}  # files that are copies of a generation
        records = list(records)
        known = {record["path"] for record in records}
        for path in self.paths:
            if path not in known or os.path.exists(path):  # it may be away for a moment
                _refuse(path)
        found = self._found()
        for record in records:
            self.generations.append(self._again(record, found))

    def close(self) -> None:
        """Close all files."""
        for one in self.generations:
            _shut(one)

    def poll(self) -> Iterator[Piece]:
        """What has come since the last time; what is not handed back as taken comes again."""
        found = self._found()
        # Of generations of one file the last one is it.
        known = {one.key: one for one in self.generations}
        for key, path in found.items():
            if key in known:
                self._revive(known[key], path)
            elif (
                key not in self._aside
                and key not in self._copies
                and not self._is_copy(key, path, found)
            ):
                self._begin(path, key)
        for one in list(self.generations):
            if not one.ended:
                was, one.current = one.current, one.key in found
                if was and not one.current:
                    one.still_since = self.clock()  # who writes it may not know yet
                yield from self._read(one, found)

    def taken(self, piece: Piece) -> None:
        """The piece is read: what comes next is behind it."""
        piece.of.grown(piece.data)
        if piece.last:
            piece.of.ended = True
            _shut(piece.of)

    def again(self, one: Generation) -> None:
        """Give a generation from its beginning."""
        _rewind(one)

    def unread(self, one: Generation) -> dict[str, Any]:
        """The record of a generation of which nothing counts yet."""
        fresh = replace(one)
        _rewind(fresh)
        return fresh.record()

    # --- which files

    def _found(self) -> dict[Key, str]:
        found: dict[Key, str] = {}
        for given in self.paths:
            paths: list[str] = []
            if glob.has_magic(given) and not os.path.exists(given):
                paths = sorted(glob.glob(given, recursive=True))
            elif os.path.isdir(given):
                with contextlib.suppress(InputError):  # it may be empty now
                    paths = expand([given])
            else:
                paths = [given]
            for path in paths:
                with contextlib.suppress(OSError):
                    what = os.stat(path)
                    if stat.S_ISREG(what.st_mode):
                        found.setdefault((what.st_dev, what.st_ino), path)
        return found

    def _begin(self, path: str, key: Key) -> None:
        file = _opened(path, key)
        if file is None:
            return
        self.generations.append(
            Generation(self._next(), path, key, file=file, still_since=self.clock())
        )

    def _next(self) -> int:
        return max((one.number for one in self.generations), default=-1) + 1

    def _revive(self, one: Generation, path: str) -> None:
        """A file that was away is back: renamed, or made anew in the same place of the disk."""
        if not one.ended or one.key in self._aside:
            return
        file = _opened(path, one.key)
        if file is None:
            return
        size = os.fstat(file).st_size
        if size == one.offset and _same(file, one):
            os.close(file)
        elif size > one.offset and _same(file, one):
            rest = Generation(self._next(), path, one.key, file=file, still_since=self.clock())
            rest.begin = one.offset
            _rewind(rest)
            self.generations.append(rest)
        else:
            os.close(file)
            self._begin(path, one.key)

    def _again(self, record: Mapping[str, Any], found: Mapping[Key, str]) -> Generation:
        """A generation of an earlier run: at its path, under another name beside it, or gone."""
        device, inode = record["key"]
        one = Generation(
            record["number"], record["path"], (device, inode), record["offset"], record["ended"],
            record["begin"], digests=(record["head"], record["tail"]),
        )  # fmt: skip
        if one.ended:
            return one
        beside = _beside(one.path)
        file = None
        for path in (found.get(one.key, one.path), *beside):
            file = file or self._known(path, one, same_key=True)
        for path in (one.path, *beside):
            if file is None and one.offset >= LEAST_COPY and _kin(path, one.path):
                file = self._known(path, one, same_key=False)
        if file is None:
            if one.offset:
                self._missed(one)
            one.ended = True
            return one
        one.key = _key(os.fstat(file))
        one.file, one.still_since, one.current = file, self.clock(), one.key in found
        return one

    def _known(self, path: str, one: Generation, *, same_key: bool) -> int | None:
        file = _opened(path, one.key if same_key else None)
        if file is not None and not _same(file, one):
            os.close(file)
            return None
        return file

    def _missed(self, one: Generation) -> None:
        self.remarks[
            tr("{path}: was rotated away or cut short while nobody watched; lines at its end may "
               "be missing", path=one.path)
        ] = None  # fmt: skip

    # --- copies

    def _is_copy(self, key: Key, path: str, found: Mapping[Key, str]) -> bool:
        """Whether a new file holds what was read already: a copy, which is set aside, or the log
        itself, written anew as editors do.
        """
        for one in self.generations:
            if one.ended or one.offset < LEAST_COPY or not _kin(path, one.path):
                continue
            if path == one.path and one.key in found:
                continue  # what a log was renamed to is matched as well
            file = _opened(path, key)
            if file is None:
                return True
            if not _same(file, one):
                os.close(file)
            elif path == one.path:
                _shut(one)
                one.key, one.file, one.size = key, file, -1
                return True
            else:
                os.close(file)
                self._copies[key] = one.number
                return True
        return False

    def _copy_of(self, one: Generation) -> int | None:
        """The descriptor of a copy of a generation that was cut short."""
        if one.offset < LEAST_COPY:
            return None
        known = {other.key for other in self.generations}
        for path in _beside(one.path):
            file = _opened(path) if _kin(path, one.path) else None
            if file is None:
                continue
            if _key(os.fstat(file)) not in known and _same(file, one):
                return file
            os.close(file)
        return None

    # --- reading

    def _read(self, one: Generation, found: Mapping[Key, str]) -> Iterator[Piece]:
        if one.file is None:
            path = found.get(one.key, one.path)
            with contextlib.suppress(OSError):
                what = os.stat(path)
                if _key(what) == one.key and what.st_size == one.size:
                    return
            for name in (path, *_beside(one.path)):
                one.file = one.file or _opened(name, one.key)
            if one.file is None:
                yield Piece(one, b"", last=True)
                return
        size = os.fstat(one.file).st_size
        if size != one.size:
            one.size, one.still_since = size, self.clock()
        while True:
            data = _whole_lines(one.file, one.offset)
            # After it was read: what is the same now was the same then.
            if not _same(one.file, one):
                yield from self._cut_short(one, found)
                return
            if one.offset == 0 and os.pread(one.file, 16, 0).startswith(PACKED):
                self._set_aside(one)
                return
            if not data:
                break
            before = one.offset
            yield Piece(one, data)
            if one.offset == before:
                return  # not taken: it comes again
        still = self.clock() - one.still_since
        if not one.current and still >= self.patience:
            waits = os.fstat(one.file).st_size - one.offset
            yield Piece(one, os.pread(one.file, max(waits, 0), one.offset), last=True)
        elif one.current and still >= IDLE_S:
            _shut(one)

    def _cut_short(self, one: Generation, found: Mapping[Key, str]) -> Iterator[Piece]:
        key, path = one.key, found.get(one.key, one.path)
        again = one.key in found
        copy = self._copy_of(one)
        if copy is None:
            yield Piece(one, b"", last=True)
        else:
            _shut(one)
            one.file, one.key, one.size = copy, _key(os.fstat(copy)), -1
            one.current = one.key in found
            self._copies.pop(one.key, None)
            yield from self._read(one, found)
        if again:
            before = len(self.generations)
            self._begin(path, key)
            for new in self.generations[before:]:
                yield from self._read(new, found)

    def _set_aside(self, one: Generation) -> None:
        self.remarks[
            tr("{path}: is packed or a table, which does not grow line by line; it is not followed",
               path=one.path)
        ] = None  # fmt: skip
        self._aside[one.key] = one.path
        _shut(one)
        self.generations.remove(one)


def _refuse(path: str) -> None:
    """Say what cannot be followed."""
    if path == "-" or is_address(path):
        raise UsageError(
            "only files can be followed", where=path,
            help="diagnose reads standard input and addresses once, to their end",
        )  # fmt: skip
    if not hasattr(os, "pread"):
        raise UsageError("files cannot be followed on this system")
    if glob.has_magic(path) and not os.path.exists(path):
        return
    try:
        what = os.stat(path)
    except OSError:
        raise InputError(
            "no such file", where=path, help="a glob may match files that are still to come"
        ) from None
    if stat.S_ISDIR(what.st_mode):
        return
    if not stat.S_ISREG(what.st_mode):
        raise UsageError("a pipe or device cannot be followed: it is read once", where=path)
    try:
        with Path(path).open("rb") as file:
            begins = file.read(16)
    except OSError as error:
        raise InputError("the file cannot be opened", where=path, why=error.strerror) from None
    if begins.startswith(PACKED):
        raise UsageError(
            "a packed file or a table cannot be followed: it does not grow line by line",
            where=path, help="name the log that is being written; diagnose reads this one",
        )  # fmt: skip


def _key(what: os.stat_result) -> Key:
    return what.st_dev, what.st_ino


def _opened(path: str, key: Key | None = None) -> int | None:
    """The descriptor of a regular file, if it is (still) the one meant."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | os.O_NONBLOCK)
    except OSError:
        return None
    what = os.fstat(file)
    if not stat.S_ISREG(what.st_mode) or (key is not None and _key(what) != key):
        os.close(file)
        return None
    return file


def _rewind(one: Generation) -> None:
    if one.file is not None:
        one.offset, one.digests = one.begin, None
        one.head, one.tail = _ends(one.file, one.begin)


def _shut(one: Generation) -> None:
    if one.file is not None:
        os.close(one.file)
        one.file = None


def _ends(file: int, offset: int) -> tuple[bytes, bytes]:
    """The first bytes of a file, and those before a place; fewer where it is shorter."""
    tail = min(offset, TAIL_KEPT)
    return os.pread(file, min(offset, HEAD_KEPT), 0), os.pread(file, tail, offset - tail)


def _same(file: int, one: Generation) -> bool:
    """Whether a file holds all that was given of a generation."""
    head, tail = _ends(file, one.offset)
    if one.digests is None:
        return (head, tail) == (one.head, one.tail)
    if (_digest(head), _digest(tail)) != one.digests:
        return False
    one.head, one.tail, one.digests = head, tail, None
    return True


def _beside(path: str) -> list[str]:
    """The files in the same folder, newest first."""
    try:
        with os.scandir(os.path.dirname(path) or ".") as entries:
            files = [(one.stat().st_mtime, one.path) for one in entries if one.is_file()]
    except OSError:
        return []
    return [os.path.normpath(name) for _, name in sorted(files, reverse=True)]


def _kin(path: str, log: str) -> bool:
    """Whether a file is called as a rotation calls what it makes of a log."""
    if os.path.abspath(os.path.dirname(path)) != os.path.abspath(os.path.dirname(log)):
        return False
    name = os.path.basename(log)
    stem = name.partition(".")[0] or name
    return os.path.basename(path).startswith(stem)


def _whole_lines(file: int, offset: int) -> bytes:
    """What stands behind a place, up to the end of the last line that has one."""
    size = PIECE_BYTES
    while True:
        data = os.pread(file, size, offset)
        cut = data.rfind(b"\n") + 1
        if cut or len(data) < size:
            return data[:cut]
        size *= 4
