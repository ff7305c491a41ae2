"""Folder to members: what this build can read, blame, prescribe and print. No list to forget."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ttftdoctor.errors import UnknownFormat, UsageError

if TYPE_CHECKING:
    from ttftdoctor.causes import Cause
    from ttftdoctor.readers import Reader
    from ttftdoctor.remedies import Remedy
    from ttftdoctor.report import Renderer
    from ttftdoctor.sources import Head


def _members(folder: str, attribute: str, wanted: Callable[[str], bool] = bool) -> Iterator[Any]:
    package = importlib.import_module(f"ttftdoctor.{folder}")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        if not module.name.startswith("_") and wanted(module.name):
            yield getattr(importlib.import_module(f"{package.__name__}.{module.name}"), attribute)


@cache
def readers() -> tuple[Reader, ...]:
    """Every log format this build can read, by name."""
    return tuple(_members("readers", "READER"))


@cache
def causes() -> tuple[Cause, ...]:
    """Every cause this build can blame, in the order of the vocabulary."""
    return tuple(sorted(_members("causes", "CAUSE"), key=lambda c: c.order))


@cache
def remedies() -> tuple[Remedy, ...]:
    """Every remedy this build can predict, in the order in which they compose."""
    return tuple(sorted(_members("remedies", "REMEDY"), key=lambda r: r.order))


@cache
def renderers() -> dict[str, Renderer]:
    """Every form a diagnosis can be written in, by name."""
    return {r.name: r for r in _members("report", "RENDERER")}


@cache
def renderer(name: str) -> Renderer:
    """One form by its name, without loading the others."""
    (found,) = _members("report", "RENDERER", lambda file: file.removesuffix("_report") == name)
    form: Renderer = found
    return form


def formats_in_markdown() -> str:
    """The table of all formats as the README has it: a row a reader, each line ended."""
    rows = (f"| `{reader.name}` | {reader.title.replace('|', '&#124;')} |" for reader in readers())
    return "\n".join(("| format | what it is |", "|---|---|", *rows, ""))


def reader_named(name: str) -> Reader:
    """The reader of a format the user named.

    Raises
    ------
    UsageError
        If there is no such format.
    """
    for reader in readers():
        if reader.name == name:
            return reader
    raise UsageError(f"there is no format {name!r}", available=", ".join(r.name for r in readers()))


def claimants(head: Head) -> list[tuple[Reader, str]]:
    """The readers that claim a log, each with its evidence; generic ones only if no other does."""
    claims = []
    for generic in (False, True):
        for reader in readers():
            if reader.generic is generic and head.shape in reader.shapes:
                evidence = reader.recognise(head)
                if evidence is not None:
                    claims.append((reader, evidence))
        if claims:
            break
    return claims


def reader_for(head: Head) -> tuple[Reader, str]:
    """The one reader that claims a log, and its evidence.

    Raises
    ------
    UnknownFormat
        If none claims it, or several do.
    """
    claims = claimants(head)
    if len(claims) == 1:
        return claims[0]
    if not claims:
        seen = ", ".join(head.columns[:12]) or "text lines"
        raise UnknownFormat(
            "no reader knows this log",
            where=head.path,
            why=f"it holds: {seen}",
            available=", ".join(r.name for r in readers()),
            help="name the columns with --map, for example --map ttft_us=my_column "
            "--unit my_column=ms, or in a mapping file (inspect --propose FILE writes one where "
            "names tell enough), or name a format with --format",
        )
    raise UnknownFormat(
        f"{len(claims)} formats claim this log",
        where=head.path,
        available="; ".join(f"{r.name} ({why})" for r, why in claims),
        help="say which with --format",
    )
