"""Pieces of a log whose beginning was seen before."""

from __future__ import annotations

import io

import polars as pl

from ttftdoctor.sources import Head, Source


class Known(Source):
    """Bytes of a log whose head is known already."""

    def __init__(self, path: str, head: Head, data: bytes) -> None:
        self._known = head
        super().__init__(path, given=io.BytesIO(data))

    def _read_head(self) -> Head:
        lines = self._known.lines
        self._comments = bool(lines) and lines[0].startswith("#")
        return self._known


class KnownRows(Source):
    """Some rows of a table whose head is known already: ``many`` of them from ``first`` on."""

    def __init__(self, path: str, head: Head, first: int, many: int) -> None:
        self._known, self._span = head, (first, many)
        super().__init__(path)

    def _read_head(self) -> Head:
        return self._known

    def _parquet(self) -> pl.LazyFrame:
        return super()._parquet().slice(*self._span)


def bytes_between(path: str, start: int, end: int) -> bytes:
    """The lines of a file that begin from one byte on and before another."""
    with open(path, "rb") as stream:
        first = start
        if start:
            stream.seek(start - 1)
            first = start - 1 + len(stream.readline())
        if first >= end:
            return b""
        stream.seek(first)
        data = stream.read(end - first)
        return data if data.endswith(b"\n") else data + stream.readline()
