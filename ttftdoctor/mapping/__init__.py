"""Mapping files: which field of a log of unknown shape holds which column, written once in TOML.

A file of its own (``--mapping FILE``), or the same tables in ``ttftdoctor.toml`` or below
``[tool.ttftdoctor]`` in ``pyproject.toml``, which are found beside the log, or in the working
folder and above it up to the root of a repository::

    [map]                           # column = field; keys of nested objects apart by points
    ttft_us = "timing.first_tok"
    session_id = ["conv", "chat"]   # the first of them that the log has
    [unit]                          # of a duration or a stamp, by column or by field
    ttft_us = "ms"
    [time]                          # of stamps that are text
    format = "%d.%m.%Y %H:%M:%S"
    timezone = "Europe/Berlin"
    [constant]                      # what the log does not say, and is so in every row
    vantage = "client"
    [values.status]                 # words of the log for ok, error, aborted, rate_limited
    finished = "ok"

Whatever is not understood is refused with its line and key: a mapping with a typing error in it
would make a wrong diagnosis in silence.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from ttftdoctor.errors import UsageError
from ttftdoctor.prompts import PARTS_NAMED
from ttftdoctor.table import COLUMNS
from ttftdoctor.units import UNIT_WORDS
from ttftdoctor.zones import check_zone

FILE = "ttftdoctor.toml"
PROJECT = "pyproject.toml"
#: A mapping is a page of text; whatever is longer is something else.
MOST_BYTES = 2**20

#: What is no column, but makes one: the moment of the first token, of the end, and so on.
HELPERS = {
    "first_token": "_first", "end": "_end", "tpot": "_tpot", "retries": "_retries",
    "success": "_success", "error": "_error",
}  # fmt: skip
#: Columns that are moments.
STAMPS = ("start", "_end", "_first")
#: The words that a column can hold, where it cannot hold any.
WORDS: dict[str, tuple[str, ...]] = {
    "status": ("ok", "error", "aborted", "rate_limited"),
    "vantage": ("client", "gateway", "server"),
    "streamed": ("true", "false"),
}
#: Tables of a mapping file.
TABLES = ("map", "unit", "time", "constant", "values", "optional")
#: Tables of ``ttftdoctor.toml`` that others read.
_OTHERS = ("gate",)
_TIME = ("format", "timezone")


def names() -> tuple[str, ...]:
    """Everything that a field can be mapped to."""
    return (*COLUMNS, *HELPERS, *PARTS_NAMED)


def column_named(word: str) -> str | None:
    """The column (or helper, or part of a prompt) of a name; ``ttft`` is short for ``ttft_us``.

    >>> column_named("ttft"), column_named("first_token"), column_named("colour")
    ('ttft_us', '_first', None)
    """
    for name in (word, f"{word}_us"):
        if name in COLUMNS:
            return name
    if word in PARTS_NAMED:
        return word
    return HELPERS.get(word)


@dataclass(frozen=True)
class MappingFile:
    """What a mapping says. Columns are keyed as :func:`column_named` names them.

    ``name`` is the file as messages show it; ``asked`` whether the user named it. ``columns`` has
    the fields of each column, best first; ``units`` a unit by column or by field; ``values`` the
    words of the log for those of a column; ``lines`` the line of each key.
    """

    name: str
    asked: bool = True
    prefix: str = ""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    time_format: str | None = None
    timezone: str | None = None
    constants: Mapping[str, str | int | bool] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)

    def where(self, *key: str) -> str:
        """``mapping.toml line 7, map.ttft_us``; without a line where it is unclear."""
        line = self.lines.get(key)
        at = "" if line is None else f" line {line}"
        return f"{self.name}{at}, {self.prefix}{'.'.join(key)}"

    def place(self, column: str) -> str:
        """Where a column is mapped: ``mapping.toml line 7``."""
        line = self.lines.get(("map", self.keys.get(column, column)))
        return self.name if line is None else f"{self.name} line {line}"

    def fits(self, records: Iterable[Mapping[str, Any]]) -> bool:
        """Whether any field that is mapped occurs in the records."""
        labels = [label for fields in self.columns.values() for label in fields]
        return any(_occurs(record, label) for record in records for label in labels)


def _occurs(record: Mapping[str, Any], label: str) -> bool:
    if label in record:
        return True
    value: Any = record
    for key in label.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def find_mapping(log: str, working: Path | None = None) -> MappingFile | None:
    """The mapping that holds for a log: beside it, else in the working folder and above.

    Of the two names in one folder ``ttftdoctor.toml`` goes first. Files without a table of ours
    are passed over; above the root of a repository none is looked for.

    Raises
    ------
    UsageError
        If the file that is found says something that is not understood.
    """
    folders: list[Path] = []
    here = Path(log)
    if log != "-" and here.is_file():
        folders.append(here.parent)
    try:
        working = Path.cwd() if working is None else working
    except OSError:  # the working folder is gone
        working = here.parent
    for folder in (working, *working.parents):
        folders.append(folder)
        if (folder / ".git").exists():
            break
    for folder in folders:
        for name in (FILE, PROJECT):
            path = folder / name
            if not path.is_file():
                continue
            status = path.stat()
            found = _ours(path, (status.st_mtime_ns, status.st_size))
            if found is not None:
                return found
    return None


@lru_cache(maxsize=64)
def _ours(path: Path, version: tuple[int, int]) -> MappingFile | None:
    """The mapping of a configuration file; None if it has none.

    Read once for a folder of logs; ``version`` changes with the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, ValueError, RecursionError):
        # A project that cannot be read is not ours to complain about until it is named.
        if path.name == PROJECT:
            return None
        return read_mapping(path, asked=False)
    tables: Any = document
    if path.name == PROJECT:
        tool = document.get("tool")
        tables = tool.get("ttftdoctor") if isinstance(tool, dict) else None
    if not isinstance(tables, dict) or not set(tables) - set(_OTHERS):
        return None
    return read_mapping(path, asked=False)


def read_mapping(path: Path, *, asked: bool = True) -> MappingFile:
    """Read a mapping from a file of its own, ``ttftdoctor.toml`` or a ``pyproject.toml``.

    Raises
    ------
    UsageError
        If it cannot be read, maps nothing, or says anything that is not understood.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError("cannot read the mapping", where=name, why=error.strerror) from None
    if len(data) > MOST_BYTES:
        raise UsageError("a mapping is no longer than 1 MiB", where=name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("the mapping is no UTF-8 text", where=name) from None
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the mapping is no TOML", where=name, why=str(error)) from None
    prefix: tuple[str, ...] = ()
    tool = document.get("tool")
    if path.name == PROJECT or (isinstance(tool, dict) and not set(document) & set(TABLES)):
        prefix = ("tool", "ttftdoctor")
        ours = tool.get("ttftdoctor", {}) if isinstance(tool, dict) else {}
        document = ours if isinstance(ours, dict) else {}
    lines = {
        key[len(prefix) :]: line
        for key, line in lines_of(text).items()
        if key[: len(prefix)] == prefix
    }
    return _Parser(MappingFile(name, asked, "".join(f"{p}." for p in prefix), lines=lines)).all(
        document
    )


@dataclass(frozen=True)
class _Parser:
    """Turns the tables of a file into a mapping; refuses with the place."""

    file: MappingFile

    def refuse(self, what: str, *key: str, **more: str | None) -> UsageError:
        return UsageError(what, where=self.file.where(*key), **more)

    def all(self, document: Mapping[str, Any]) -> MappingFile:
        for key in document:
            if key not in (*TABLES, *_OTHERS):
                raise self.refuse("no such table", key, available=", ".join(TABLES))
        columns: dict[str, tuple[str, ...]] = {}
        keys: dict[str, str] = {}
        for word, value in self.table(document, "map").items():
            column = self.column(word, "map", word)
            if column in columns:
                raise self.refuse(f"{column} is mapped twice", "map", word)
            columns[column], keys[column] = self.fields(value, word), word
        constants = {
            self.plain(word, "constant"): self.constant(word, value)
            for word, value in self.table(document, "constant").items()
        }
        if not columns and not constants and self.file.asked:
            raise UsageError(
                "the mapping has no [map] table", where=self.file.name,
                help=f"it begins with [{self.file.prefix}map]; "
                "ttftdoctor inspect LOG --propose FILE writes one to start from",
            )  # fmt: skip
        time_format, timezone = self.time(document)
        return MappingFile(
            name=self.file.name,
            asked=self.file.asked,
            prefix=self.file.prefix,
            columns=columns,
            units=self.units(document, columns),
            optional=self.optional(document, columns),
            time_format=time_format,
            timezone=timezone,
            constants=constants,
            values=self.values(document),
            lines=self.file.lines,
            keys=keys,
        )

    def table(self, document: Mapping[str, Any], name: str) -> dict[str, Any]:
        value = document.get(name, {})
        if not isinstance(value, dict):
            raise self.refuse("must be a table", name, help=f"write [{self.file.prefix}{name}]")
        return value

    def column(self, word: str, *key: str) -> str:
        column = column_named(word)
        if column is None:
            raise self.refuse("there is no such column", *key, available=", ".join(names()))
        return column

    def plain(self, word: str, table: str) -> str:
        """A column of the request table that can be given as it is."""
        column = self.column(word, table, word)
        kind = COLUMNS[column].dtype if column in COLUMNS else None
        if kind not in (pl.String, pl.UInt32, pl.Boolean) and not column.endswith("_tokens"):
            raise self.refuse("cannot be the same in every row", table, word)
        return column

    def fields(self, value: Any, word: str) -> tuple[str, ...]:
        labels = value if isinstance(value, list) else [value]
        if not labels or not all(isinstance(label, str) and label for label in labels):
            raise self.refuse(
                "must be the name of a field, or a list of names", "map", word,
                help='such as "timing.first_tok" or ["conv", "chat"]',
            )  # fmt: skip
        return tuple(labels)

    def units(
        self, document: Mapping[str, Any], columns: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        out: dict[str, str] = {}
        labels = {label for fields in columns.values() for label in fields}
        for word, unit in self.table(document, "unit").items():
            if not isinstance(unit, str) or unit not in UNIT_WORDS:
                raise self.refuse(
                    f"{_shown(unit)} is no unit", "unit", word, available="ns, us, ms, s"
                )
            column = None if word in labels else column_named(word)
            timed = column is None or column.endswith("_us") or column in (*STAMPS, "_tpot")
            if not timed:
                raise self.refuse(f"{word} has no unit of time", "unit", word)
            if column is None and word not in labels:
                raise self.refuse(
                    "is neither a column nor a field that is mapped", "unit", word,
                    available=", ".join([*columns, *sorted(labels)]) or None,
                )  # fmt: skip
            out[column or word] = UNIT_WORDS[unit]
        return out

    def optional(
        self, document: Mapping[str, Any], columns: Mapping[str, tuple[str, ...]]
    ) -> frozenset[str]:
        value = document.get("optional", [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.refuse("must be a list of columns", "optional")
        found = {self.column(word, "optional") for word in value}
        for column in found - set(columns):
            raise self.refuse(f"{column} is not in [map]", "optional")
        return frozenset(found)

    def time(self, document: Mapping[str, Any]) -> tuple[str | None, str | None]:
        table = self.table(document, "time")
        for key, value in table.items():
            if key not in _TIME:
                raise self.refuse("no such key", "time", key, available=", ".join(_TIME))
            if not isinstance(value, str) or not value.strip():
                raise self.refuse("must be text", "time", key)
        form, zone = table.get("format"), table.get("timezone")
        if form is not None:
            form = self.format(form)
        if zone is not None:
            check_zone(zone, self.file.where("time", "timezone"))
        return form, zone

    def format(self, form: str) -> str:
        """The format as Polars reads it, if it is one."""
        if not _is_format(form):
            raise self.refuse(
                f"{_shown(form)} is no format of dates", "time", "format",
                help='such as "%d.%m.%Y %H:%M:%S%.f"; %z stands for an offset such as +02:00',
            )  # fmt: skip
        translated = _with_fractions(form)
        if translated is None:
            raise self.refuse(
                f"%f in {_shown(form)} could be nanoseconds or a fraction", "time", "format",
                help="write %.f for a point and any number of digits, "
                "or %3f, %6f or %9f for so many digits after a comma",
            )  # fmt: skip
        why = _refused(translated)
        if why is not None:
            raise self.refuse(
                f"{_shown(form)} does not make a moment", "time", "format", why=why,
                help="%H and %M go together, and so do %I, %M and %p",
            )  # fmt: skip
        return translated

    def constant(self, word: str, value: Any) -> str | int | bool:
        column = self.plain(word, "constant")
        kind = COLUMNS[column].dtype
        if kind == pl.Boolean:
            right = isinstance(value, bool)
        elif kind == pl.String:
            right = isinstance(value, str) and bool(value.strip())
        else:
            right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
        if not right:
            wanted = {pl.Boolean: "true or false", pl.String: "text"}.get(kind, "a whole number")
            raise self.refuse(f"must be {wanted}, not {_shown(value)}", "constant", word)
        if column in WORDS and kind == pl.String and value not in WORDS[column]:
            raise self.refuse(
                f"{_shown(value)} is no {column}", "constant", word,
                available=", ".join(WORDS[column]),
            )  # fmt: skip
        return value  # type: ignore[no-any-return]

    def values(self, document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        out: dict[str, dict[str, str]] = {}
        table = self.table(document, "values")
        for column, words in table.items():
            if column not in WORDS:
                raise self.refuse(
                    "has no words of its own", "values", column, available=", ".join(WORDS)
                )
            if not isinstance(words, dict):
                raise self.refuse("must be a table", "values", column)
            for word, meant in words.items():
                text = str(meant).lower() if isinstance(meant, bool) else meant
                if text not in WORDS[column]:
                    raise self.refuse(
                        f"{_shown(meant)} is no {column}", "values", column, word,
                        available=", ".join(WORDS[column]),
                    )  # fmt: skip
                out.setdefault(column, {})[word] = text
        return out


def _shown(value: Any) -> str:
    plain = isinstance(value, (str, int, float, bool))
    return repr(value) if plain else f"a {type(value).__name__}"


#: The words of a format of dates that Polars knows.
_DIRECTIVE = re.compile(
    r"%(?:[-_0]?[YCymdeHkIlMSjUWuwGgVsf]|[bBhaADxFvRTXrpPZzcnt+%]|:{1,3}z|#z|\.f|\.?[369]f)"
)


def _is_format(text: str) -> bool:
    return "%" in text and "%" not in _DIRECTIVE.sub("", text)


#: Digits of a fraction as Python counts them; Polars takes the bare ones for nanoseconds.
_FRACTION = re.compile(r"%[-_0]?f")


def _with_fractions(form: str) -> str | None:
    """The format with Python's ``.%f`` put as ``%.f``; None where a bare ``%f`` is left."""
    out: list[str] = []
    at = 0
    for found in _DIRECTIVE.finditer(form):
        between = form[at : found.start()]
        at = found.end()
        directive = found[0]
        if _FRACTION.fullmatch(directive):
            if not between.endswith("."):
                return None
            between, directive = between[:-1], "%.f"
        out += [between, directive]
    return "".join([*out, form[at:]])


def _refused(form: str) -> str | None:
    """Why Polars reads no moment by a format; None where it would."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pl.Series(["2026"]).str.to_datetime(form, time_unit="us", strict=False)
    except (pl.exceptions.PolarsError, Warning, ValueError) as error:
        said = str(error).partition("\n")[0].strip()
        return said.removeprefix("Invalid format string: ") or "it is not understood"
    return None


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key of a TOML text, by its full path; the parser keeps no places.

    A line that looks like a key within a text of several lines would fool it.
    """
    out: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("["):
            found = _path(bare)
            table = table if found is None else found
            out.setdefault(table, number)
            continue
        for at in (at for at, letter in enumerate(bare) if letter == "="):
            found = _path(f"{bare[:at]}= 0")
            if found is not None:
                out.setdefault((*table, *found), number)
                break
    return out


def _path(line: str) -> tuple[str, ...] | None:
    """The keys of a line by itself, from the outermost in."""
    try:
        value: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return None
    keys: list[str] = []
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        key, value = next(iter(value.items()))
        keys.append(key)
    return tuple(keys) or None


def pick(labels: Sequence[str], known: Iterable[str]) -> str | None:
    """The first of the fields that the log has."""
    have = set(known)
    return next((label for label in labels if label in have), None)
