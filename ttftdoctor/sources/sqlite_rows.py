"""A table of requests in an SQLite file, as JSON lines.

The file is opened so that nothing beside it or in it is written, no extension, view or trigger of
it is run, and nothing but the one table is read. What a tool pickled is never touched: such
columns are not even selected, and binary cells are left out.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from ttftdoctor.errors import InputError

#: A cell longer than this is refused by SQLite.
MOST_CELL_BYTES = 64 * 2**20
_BATCH = 1000
#: Such a table is a program's, not a table of values.
_VIRTUAL = re.compile(r"\s*create\s+virtual\b", re.IGNORECASE)

#: Tables of requests that are known: columns that mark them, and columns that are never read.
_KNOWN = {"result": ({"first_chunk_latency", "success"}, {"request", "response_messages"})}


def open_table(file: str, path: str) -> IO[bytes]:
    """The rows of the table of requests, each a JSON object on a line.

    Parameters
    ----------
    file
        The database.
    path
        The name that it has for the user.

    Raises
    ------
    InputError
        If it is damaged, cannot be opened, or it is not clear which table holds requests.
    """
    out = tempfile.TemporaryFile()  # noqa: SIM115  (closed by whoever reads it)
    try:
        uri = f"{Path(file).absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as link:
            link.execute("PRAGMA trusted_schema = OFF")
            link.execute("PRAGMA cell_size_check = ON")
            _whole(link, file)
            _harmless(link)
            name = _table(link, path)
            _write(link, name, out)
    except (sqlite3.Error, UnicodeError) as error:
        out.close()
        raise InputError(
            "the SQLite database cannot be read: it is damaged, or was copied while it was written",
            where=path,
            why=str(error)[:200],
        ) from None
    except BaseException:
        out.close()
        raise
    out.seek(0)
    return out


def _harmless(link: sqlite3.Connection) -> None:
    """Let the file be read as a table of values, and do nothing else."""

    def allow(action: int, *_: Any) -> int:
        reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY

    link.text_factory = lambda data: data.decode("utf-8", "replace")
    if hasattr(link, "setlimit"):
        link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_CELL_BYTES)
    link.set_authorizer(allow)


def _whole(link: sqlite3.Connection, file: str) -> None:
    """Refuse a file that was cut off: SQLite takes what is missing for zeros.

    Pages are then looked at one by one, as far as they can contradict themselves.
    """
    size, pages = (link.execute(f"PRAGMA page_{n}").fetchone()[0] for n in ("size", "count"))
    with Path(file).open("rb") as header:
        said = int.from_bytes(header.read(32)[28:], "big")
        length = header.seek(0, 2)
    if length < size * max(pages, said) or length % size:
        raise sqlite3.DatabaseError("the file is shorter than it says")
    (found,) = link.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(str(found))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(link: sqlite3.Connection, table: str) -> list[str]:
    told = link.execute(f"select * from {_quoted(table)} limit 0")  # noqa: S608  (its own name)
    return [column[0] for column in told.description]


def _table(link: sqlite3.Connection, path: str) -> str:
    """The table that holds requests: a known one, or the only one there is."""
    found = link.execute("select name, sql from sqlite_master where type = 'table'").fetchall()
    tables = [
        str(name)
        for name, sql in found
        if not str(name).startswith("sqlite_") and not _VIRTUAL.match(str(sql))
    ]
    for name, (marks, _) in _KNOWN.items():
        if name in tables and marks <= set(_columns(link, name)):
            return name
    if len(tables) == 1:
        return tables[0]
    raise InputError(
        "no table of this SQLite database is known to hold requests",
        where=path,
        why=f"it has the tables {', '.join(sorted(tables)[:12])}" if tables else "it has no table",
        help="export one as CSV: sqlite3 -header -csv FILE 'select * from TABLE'",
    )


def _write(link: sqlite3.Connection, table: str, out: IO[bytes]) -> None:
    never = _KNOWN[table][1] if table in _KNOWN else set()
    names = [name for name in _columns(link, table) if name not in never]
    chosen = ", ".join(map(_quoted, names))
    rows = link.execute(f"select {chosen} from {_quoted(table)}")  # noqa: S608  (names of its own)
    while batch := rows.fetchmany(_BATCH):
        lines = (
            json.dumps(
                {n: None if isinstance(v, bytes) else v for n, v in zip(names, row, strict=True)}
            )
            for row in batch
        )
        out.write(("\n".join(lines) + "\n").encode())
