"""Logs inside zip archives: each member is a log of its own, read as it is unpacked.

A member is named ``ARCHIVE!/MEMBER``. Archives are read in place, and only as files, since what one
holds stands at its end. Nothing is ever unpacked to disk.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ttftdoctor.errors import InputError

#: How an archive begins, and one that holds nothing.
BEGINS = (b"PK\x03\x04", b"PK\x05\x06")
#: Between the archive and the member.
INSIDE = "!/"
#: More members than this are no logs that somebody put together.
MOST_MEMBERS = 10_000


def is_archive(path: Path) -> bool:
    """Whether a file begins as a zip archive does."""
    try:
        with path.open("rb") as file:
            return file.read(4) in BEGINS
    except OSError:
        return False  # told where it is read


def split_member(path: str) -> tuple[str, str] | None:
    """The archive and the member that a name stands for; None for any other path."""
    archive, inside, member = path.partition(INSIDE)
    if not inside or not member or not Path(archive).is_file():
        return None
    return archive, member


def members(path: str, looks_like_log: Callable[[str], bool]) -> list[str]:
    """The names of all logs in an archive; of what looks like none, all that there is.

    Raises
    ------
    InputError
        If it is no sound archive, or holds nothing.
    """
    with _telling(path), zipfile.ZipFile(path) as archive:
        names = [
            one.filename
            for one in archive.infolist()
            if not one.is_dir() and not one.filename.startswith("__MACOSX/")
            and not one.filename.rpartition("/")[2].startswith(".")
        ]  # fmt: skip
    if not names:
        raise InputError("the archive holds no file", where=path)
    if len(names) > MOST_MEMBERS:
        raise InputError(f"the archive holds more than {MOST_MEMBERS:,} files", where=path)
    return [path + INSIDE + name for name in [n for n in names if looks_like_log(n)] or names]


def open_member(path: str) -> io.BufferedReader:
    """Open a member of an archive as a stream of its bytes.

    Raises
    ------
    InputError
        If it is not there, is encrypted or packed in a way that is not known; if it is damaged,
        while reading.
    """
    return io.BufferedReader(_Member(path), 2**20)


class _Member(io.RawIOBase):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        found = split_member(path)
        if found is None:
            raise InputError("no such file in the archive", where=path)
        with _telling(path):
            self._archive = zipfile.ZipFile(found[0])
            try:
                self._file = self._archive.open(found[1])
            except KeyError:
                self._archive.close()
                raise InputError("no such file in the archive", where=path) from None
            except BaseException:
                self._archive.close()
                raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _telling(self._path):
            data = self._file.read(len(buffer))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
            self._archive.close()
        super().close()


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """Say in our words what is wrong with an archive."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError("the archive is damaged", where=path, why=_line(error)) from None
    except RuntimeError as error:  # encrypted, or NotImplementedError: packed in another way
        raise InputError(
            "the archive cannot be unpacked", where=path, why=_line(error),
            help="unpack it yourself, and give what was in it",
        ) from None  # fmt: skip
    except OSError as error:
        raise InputError("the file cannot be opened", where=path, why=error.strerror) from None


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
