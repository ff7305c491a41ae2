"""The state of a watch on disk: numbered parts of rows, and one journal that says which count.

A part is written under a name of its own and made safe before the journal names it; the journal is
replaced in one rename. Whatever is killed at whatever moment, the journal on disk names parts that
are whole, and says up to which byte of each log their rows go. Parts that it does not name are of
no journal, and are taken away. No text of a log is kept: rows of figures and names, ids of blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import polars as pl

from ttftdoctor.errors import InputError, UsageError

#: Raised when a state can no longer be read as it was written.
VERSION = 1
SCHEMA = "ttftdoctor.watch"
JOURNAL = "journal.json"
#: How the files begin of rows, and of what is said of a log that is done with.
PART, DONE = "part-", "done-"


class Store:
    """A folder of parts and their journal.

    ``asked`` is all that decides what rows come to: a state that was asked otherwise is an error.
    """

    def __init__(self, folder: str, tool: str, asked: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.asked = json.loads(json.dumps(asked))
        self.tool = tool
        self._number = 0
        self._lock: int | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._alone()
            self.generations: list[dict[str, Any]] = self._read()
        except OSError as error:
            raise UsageError("--state cannot be used", where=folder, why=error.strerror) from None
        named = _named(self.generations)
        for place in self.folder.iterdir():
            ours = place.name.startswith((PART, DONE)) and place.name not in named
            if ours or place.name == f"{JOURNAL}.new":
                place.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _alone(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such lock on this system
            return
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise UsageError(
                "another watch uses this state", where=str(self.folder),
                help="end it, or give each a folder of its own",
            ) from None  # fmt: skip

    def _read(self) -> list[dict[str, Any]]:
        place = self.folder / JOURNAL
        where = str(self.folder)
        fresh = "give --state another folder, or remove this one to begin anew"
        try:
            told = json.loads(place.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except ValueError:
            raise InputError("the journal is damaged", where=str(place), help=fresh) from None
        if not isinstance(told, dict) or told.get("schema") != SCHEMA:
            raise InputError("this is no journal of a watch", where=str(place), help=fresh)
        if told.get("version") != VERSION or told.get("tool") != self.tool:
            raise InputError(
                "the state is of another version of ttftdoctor", where=where,
                why=f"{told.get('tool')} (state {told.get('version')}); this is "
                f"{self.tool} ({VERSION})",
                help=fresh,
            )  # fmt: skip
        differ = [name for name, value in self.asked.items() if told["asked"].get(name) != value]
        if differ:
            raise InputError(
                "the state is of a watch with other options", where=where,
                why=", ".join(differ), help=f"use the same ones, or {fresh}",
            )  # fmt: skip
        self._number = told["number"]
        return [self._told(one) for one in told["generations"]]

    def _told(self, entry: dict[str, Any]) -> dict[str, Any]:
        """What the journal says of a generation, itself or in a file of its own."""
        name = entry.get("file")
        if name is None:
            return entry
        try:
            told = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                "a part of the state cannot be read", where=str(self.folder / name),
                why=str(error), help="remove the folder to begin anew",
            ) from None  # fmt: skip
        return {**told, "file": name}

    def frame(self, name: str) -> pl.DataFrame:
        """The rows of a part."""
        try:
            return pl.read_parquet(self.folder / name)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(
                "a part of the state cannot be read", where=str(self.folder / name),
                why=str(error).splitlines()[0], help="remove the folder to begin anew",
            ) from None  # fmt: skip

    def write(self, frame: pl.DataFrame) -> str:
        """Write a part; its name, which counts only once it is in the journal."""
        name = self._next(PART, ".parquet")
        self._put(name, lambda file: frame.write_parquet(file, compression="zstd"))
        return name

    def _next(self, begin: str, end: str) -> str:
        self._number += 1
        return f"{begin}{self._number:08d}{end}"

    def _put(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Write a file so that it is there as a whole, or not at all."""
        place = self.folder / name
        new = place.with_name(f"{name}.new")
        try:
            with new.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(place)
        except OSError as error:
            raise UsageError(
                "--state: a file cannot be written", where=str(place), why=error.strerror
            ) from None

    def commit(self, generations: list[dict[str, Any]]) -> None:
        """Make these generations what the state holds, in one rename.

        Each has ``parts``: what they are to it, and their names.
        """
        before = _named(self.generations)
        entries = []
        for one in generations:
            if not one["generation"]["ended"]:
                one.pop("file", None)
                entries.append(one)
                continue
            # It changes no more, and there may be many of them.
            if "file" not in one:
                name = self._next(DONE, ".json")
                self._put(name, _as_json(dict(one)))
                one["file"] = name
            entries.append({"file": one["file"]})
        told = {
            "schema": SCHEMA, "version": VERSION, "tool": self.tool, "asked": self.asked,
            "number": self._number, "generations": entries,
        }  # fmt: skip
        _synced(self.folder)  # all that it names is there
        self._put(JOURNAL, _as_json(told))
        _synced(self.folder)
        # As they are now: what holds them goes on to change.
        self.generations = [dict(one) for one in generations]
        for name in before - _named(self.generations):
            (self.folder / name).unlink(missing_ok=True)


def _named(generations: Iterable[Mapping[str, Any]]) -> set[str]:
    """The files that these need."""
    parts = {name for one in generations for name in one["parts"].values()}
    return parts | {one["file"] for one in generations if "file" in one}


def _as_json(told: Mapping[str, Any]) -> Callable[[IO[bytes]], object]:
    text = json.dumps(told, separators=(",", ":")).encode()
    return lambda file: file.write(text)


def _synced(folder: Path) -> None:
    """What is named in a folder is safe against a loss of power, where the system can do that."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        pass
    finally:
        os.close(number)
