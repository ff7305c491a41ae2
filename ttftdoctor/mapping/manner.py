"""How the logs of one run are read where the user said so: a mapping file, a time zone.

Every command reads logs, some of them through several hands. What is said here once holds for all
that is read inside ``with reading_as(...)``, whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttftdoctor.mapping import MappingFile


@dataclass(frozen=True)
class Manner:
    """``mapping`` for flat logs; ``timezone`` (IANA) of stamps that carry none."""

    mapping: MappingFile | None = None
    timezone: str | None = None

    def arguments(self) -> tuple[str, ...]:
        """The same as arguments of a command."""
        words: tuple[str, ...] = ()
        if self.mapping is not None:
            words += ("--mapping", self.mapping.name)
        if self.timezone is not None:
            words += ("--timezone", self.timezone)
        return words


_MANNER: ContextVar[Manner] = ContextVar("manner")


def manner() -> Manner:
    """How logs are read now."""
    return _MANNER.get(Manner())


@contextmanager
def reading_so(said: Manner) -> Iterator[Manner]:
    """Read all logs inside in a manner that was worked out before."""
    token = _MANNER.set(said)
    try:
        yield said
    finally:
        _MANNER.reset(token)


@contextmanager
def reading_as(*, mapping: str | None = None, timezone: str | None = None) -> Iterator[Manner]:
    """Read all logs inside by a mapping file and with a time zone.

    Parameters
    ----------
    mapping
        Path of a mapping file (see :mod:`ttftdoctor.mapping`).
    timezone
        IANA name of the zone of stamps that carry none.

    Raises
    ------
    UsageError
        If the mapping says something that is not understood, or there is no such zone.
    """
    said = manner()
    if mapping is not None:
        from pathlib import Path

        from ttftdoctor.mapping import read_mapping

        said = Manner(read_mapping(Path(mapping)), said.timezone)
    if timezone is not None:
        from ttftdoctor.zones import check_zone

        said = Manner(said.mapping, check_zone(timezone, "--timezone"))
    with reading_so(said):
        yield said
