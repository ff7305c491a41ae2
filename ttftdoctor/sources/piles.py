"""Lines of a log laid aside in one temporary file, whatever the number of their writers.

A pile is a list of places in that file. So a log of many writers opens no more files than one of
a single writer, and piles are put together without being copied.
"""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.table import LINE

#: Bytes that are read of a pile at a time.
STEP = 2**20
#: Bytes of a line's number and of its writer.
ROW = 16

#: Where something lies: its beginning, and its length.
Extent = tuple[int, int]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class _Store:
    """Bytes one behind another in a file without a name, read from any place of it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the spool)
        self._lock = threading.Lock()
        self._end = 0

    def add(self, data: bytes) -> int:
        with self._lock:
            try:
                self._file.seek(self._end)
                self._file.write(data)
            except OSError as error:
                raise InputError(
                    "lines cannot be laid aside", where=tempfile.gettempdir(), why=error.strerror
                ) from None
            begin = self._end
            self._end += len(data)
        return begin

    def read(self, at: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(at)
            return self._file.read(size)

    def close(self) -> None:
        self._file.close()


class Spool:
    """Where the lines of all piles lie, with their numbers in the log and their writers."""

    def __init__(self) -> None:
        self.texts = _Store()
        self.rows = _Store()

    def close(self) -> None:
        """Give up all piles."""
        self.texts.close()
        self.rows.close()

    def lay(self, frame: pl.DataFrame, whose: Numbers) -> Iterable[tuple[int, Pile]]:
        """Lay lines aside.

        Parameters
        ----------
        frame
            ``line`` (its number in the log), ``text`` and ``writer`` (a whole number).
        whose
            For each line the pile that it belongs to.

        Returns
        -------
        pairs of a pile's number and its lines, which keep their order.
        """
        if not frame.height:
            return []
        if (whose != whose[0]).any():
            order = np.argsort(whose, kind="stable")
            frame, whose = frame[order], whose[order]
        texts = frame["text"]
        sizes = texts.str.len_bytes().to_numpy().astype(np.int64) + 1
        ends = np.cumsum(sizes)
        text_at = self.texts.add("\n".join(texts.to_list()).encode() + b"\n")
        rows = frame.select(LINE, "writer").cast(pl.Int64).to_numpy()
        row_at = self.rows.add(np.ascontiguousarray(rows).tobytes())
        begins = np.flatnonzero(np.diff(whose, prepend=whose[0] - 1))
        found = []
        for begin, end in zip(begins, [*begins[1:], frame.height], strict=True):
            at, till = int(ends[begin] - sizes[begin]), int(ends[end - 1])
            pile = Pile(
                self,
                [(text_at + at, till - at)],
                [(row_at + ROW * int(begin), ROW * int(end - begin))],
            )
            found.append((int(whose[begin]), pile))
        return found


class Pile:
    """Lines that were laid aside; ``count`` of them."""

    def __init__(
        self, spool: Spool, texts: list[Extent] | None = None, rows: list[Extent] | None = None
    ) -> None:
        self._spool = spool
        self._texts = texts or []
        self._rows = rows or []
        self.count = sum(size for _, size in self._rows) // ROW
        self._ends: Numbers | None = None  # of the rows, in bytes

    def add(self, other: Pile) -> None:
        """Put the lines of another pile behind these."""
        self._texts += other._texts
        self._rows += other._rows
        self.count += other.count
        self._ends = None

    def begin(self, size: int) -> bytes:
        """The first bytes of the lines, at most so many."""
        return _View(self._spool.texts, self._texts).at(0, size)

    def opened(self) -> IO[bytes]:
        """The lines, to be read from the first on."""
        return io.BufferedReader(_View(self._spool.texts, self._texts), STEP)

    def rows(self, first: int, count: int) -> tuple[Numbers, Numbers]:
        """Numbers in the log, and writers, of ``count`` lines from line ``first`` (from 0) on.

        Of lines behind the last one, those of the last.
        """
        first = min(first, self.count - 1)
        if self._ends is None:
            self._ends = np.cumsum([size for _, size in self._rows], dtype=np.int64)
        data = _gather(
            self._spool.rows, self._rows, self._ends, ROW * first, ROW * min(count, self.count)
        )
        found = np.frombuffer(data, np.int64).reshape(-1, 2)
        lack = count - len(found)
        if lack > 0:
            found = np.concatenate((found, np.repeat(found[-1:], lack, axis=0)))
        return found[:, 0], found[:, 1]

    def rows_at(self, lines: Numbers) -> tuple[Numbers, Numbers]:
        """Numbers in the log, and writers, of these lines of the pile (from 1)."""
        if not len(lines):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = np.clip(lines - 1, 0, self.count - 1)
        low = int(at.min())
        numbers, writers = self.rows(low, int(at.max()) - low + 1)
        return numbers[at - low], writers[at - low]


def together(piles: Iterable[Pile]) -> Pile:
    """One pile of several, in the order in which their lines were laid aside."""
    piles = list(piles)
    pairs = [
        (text, row)
        for pile in piles
        for text, row in zip(pile._texts, pile._rows, strict=True)  # noqa: SLF001
    ]
    pairs.sort()
    found = Pile(piles[0]._spool)  # noqa: SLF001
    for text, row in pairs:
        found.add(Pile(found._spool, [text], [row]))  # noqa: SLF001
    return found


def _gather(store: _Store, extents: list[Extent], ends: Numbers, at: int, size: int) -> bytes:
    """``size`` bytes from place ``at`` of the extents, as if these lay one behind another."""
    parts: list[bytes] = []
    nth = int(np.searchsorted(ends, at, side="right"))
    while size > 0 and nth < len(extents):
        begin, length = extents[nth]
        inside = at - (int(ends[nth]) - length)
        # Extents that lie side by side are read at once.
        till = nth
        reach = length
        while (
            reach - inside < size
            and till + 1 < len(extents)
            and extents[till + 1][0] == begin + reach
        ):
            till += 1
            reach += extents[till][1]
        data = store.read(begin + inside, min(reach - inside, size))
        parts.append(data)
        size -= len(data)
        at += len(data)
        nth = till + 1
        if not data:
            break
    return b"".join(parts)


class _View(io.RawIOBase):
    """The extents of a store as one file, that is read from its beginning."""

    def __init__(self, store: _Store, extents: list[Extent]) -> None:
        super().__init__()
        self._store = store
        self._extents = extents
        self._ends: Numbers = np.cumsum([size for _, size in extents], dtype=np.int64)
        self.size = int(self._ends[-1]) if extents else 0
        self._at = 0

    def readable(self) -> bool:
        return True

    def at(self, place: int, size: int) -> bytes:
        """Some bytes from the middle."""
        return _gather(self._store, self._extents, self._ends, place, size)

    def readinto(self, buffer: Any) -> int:
        data = self.at(self._at, len(buffer))
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)


def place_reader(stream: object) -> tuple[int, Any] | None:
    """Size of an opened pile and a function that reads at a place of it; None of other streams."""
    raw = getattr(stream, "raw", None)
    return (raw.size, raw.at) if isinstance(raw, _View) else None
