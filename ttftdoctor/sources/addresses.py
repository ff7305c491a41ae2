"""How a log at an address is named: what kind of address it is, and what of it may be shown.

Nothing that an address keeps secret is ever shown: names in messages and reports come from
:func:`shown`.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import SplitResult, urlsplit

from ttftdoctor.errors import InputError, hidden

#: How an address begins, and whose it is.
STORES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az",
}  # fmt: skip
WEB = ("http", "https")
DATABASES = ("postgresql", "postgres", "clickhouse")

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(path: str) -> str | None:
    """How the address begins, in lower case; None for what is a path."""
    match = _ADDRESS.match(path)
    return None if match is None else match[1].lower()


def is_address(path: str) -> bool:
    """Whether this is an address that can be read, and no path.

    Raises
    ------
    InputError
        If it is an address of a kind that cannot be read.
    """
    scheme = scheme_of(path)
    if scheme is None:
        return False
    if scheme in STORES or scheme in WEB or scheme in DATABASES:
        return True
    raise InputError(
        f"addresses that begin with {scheme}:// cannot be read",
        where=shown(path),
        available="s3://, gs://, az://, abfss://, https://, postgresql://, clickhouse://",
    )


def is_database(path: str) -> bool:
    """Whether it is the address of a database."""
    return scheme_of(path) in DATABASES


def shown(path: str) -> str:
    """The path, or the address without its password and without the values of its query."""
    scheme = scheme_of(path)
    if scheme is None:
        return path
    bare = hidden(path, whole=True)
    if scheme in DATABASES:
        return re.split(r"[?#]", bare, maxsplit=1)[0]
    return bare


def label(path: str) -> str:
    """A short name: of a path or an address its last part, of a database all that is shown."""
    return shown(path) if is_database(path) else PurePosixPath(shown(path)).name or shown(path)


def lacking(package: str, extra: str, where: str) -> InputError:
    """What to say where a driver is not installed."""
    return InputError(
        f"the package {package} is needed to read this",
        where=where,
        why="it is not installed",
        help=f"pip install 'ttftdoctor[{extra}]'",
    )


def split(path: str) -> SplitResult:
    """The parts of an address.

    Raises
    ------
    InputError
        If it is none; its text is not repeated.
    """
    try:
        parts = urlsplit(path)
        parts.port  # noqa: B018  (a wrong one is told here)
        torn = is_database(path) and "@" in path and "@" not in parts.netloc
    except ValueError:
        torn = True
    if torn:
        raise InputError(
            "this address makes no sense",
            where=shown(path),
            help="signs such as : / ? # @ [ ] in a password are written as %3A %2F %3F %23 %40 "
            "%5B %5D",
        )
    return parts


def held_whole(path: str) -> bool:
    """Whether it can only be read from its beginning, as a pipe."""
    return path == "-" or scheme_of(path) in (*WEB, *DATABASES)
