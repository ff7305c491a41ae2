"""Time zones by their IANA names: which there are, and a moment as clocks show it there.

The names and rules are those of Polars, so that stamps are read and shown by the same.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

from ttftdoctor.errors import UsageError


def check_zone(name: str, where: str) -> str:
    """The name of a time zone, if there is such a zone.

    Raises
    ------
    UsageError
        If there is none; ``where`` says who asked for it.
    """
    if not name or not _known(name):
        raise UsageError(
            f"there is no time zone {name!r}", where=where, available=_alike(name),
            help="use a name of the IANA database, such as Europe/Berlin, or UTC",
        )  # fmt: skip
    return name


@cache
def _known(name: str) -> bool:
    import polars as pl

    try:
        pl.Series([0], dtype=pl.Datetime("us")).dt.replace_time_zone(name)
    except pl.exceptions.PolarsError:
        return False
    return True


def _alike(name: str) -> str | None:
    """The names that look like it; None where the system has no list of them."""
    from zoneinfo import available_timezones

    zones = {zone.lower(): zone for zone in available_timezones()}
    near = difflib.get_close_matches(name.lower(), zones, n=3, cutoff=0.6)
    place = name.lower().rpartition("/")[2].replace(" ", "_")
    ends = [zone for low, zone in sorted(zones.items()) if place and low.endswith(f"/{place}")]
    return ", ".join(dict.fromkeys([*ends[:3], *(zones[n] for n in near)])) or None


def moment_of(naive: datetime, zone: str) -> datetime | None:
    """The moment at which the clocks of a zone show this, the first where they do so twice.

    None where they never do. At the edge of the calendar, where the moment would lie beyond it,
    the clocks are taken for those of UTC.
    """
    import polars as pl

    shown = pl.Series([naive], dtype=pl.Datetime("us"))
    found = shown.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    try:
        moment: datetime | None = found.dt.convert_time_zone("UTC")[0]
    except (OverflowError, ValueError):
        return naive.replace(tzinfo=UTC)
    return moment


def local(moment: datetime, zone: str) -> datetime:
    """A moment with the offset that the zone has then; without one of its own it is UTC."""
    import polars as pl

    aware = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    shown = pl.Series([aware.replace(tzinfo=None)], dtype=pl.Datetime("us"))
    found = shown.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    offset = found.dt.base_utc_offset()[0] + found.dt.dst_offset()[0]
    return aware.astimezone(timezone(offset if isinstance(offset, timedelta) else timedelta(0)))
