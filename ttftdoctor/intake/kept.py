"""A log that was read, kept in one file, so that it need not be read again.

The file is Parquet: the rows that were used and those that failed, as the reader made them, and in
its metadata all that was said of the log. There is no text of a prompt in it, only ids of blocks.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.mapping.proposal import Unused
from ttftdoctor.table import LINE, REJECT, SCHEMA, SET_ASIDE, Field

#: The key of the metadata under which a state tells of itself.
KEY = "ttftdoctor.state"
#: Raised where a state can no longer be read as it was written.
VERSION = 1
_PARQUET = b"PAR1"
#: The columns of a log's rows.
COLUMNS = {
    LINE: pl.Int64, **SCHEMA, REJECT: pl.String, SET_ASIDE: pl.String, "ttft_logged_us": pl.Int64,
    "source": pl.Int32,
}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """All of a log but its prompts: ``said`` are the tuples of sentences, by their name."""

    requests: pl.DataFrame
    failed: pl.DataFrame
    inputs: tuple[Input, ...]
    fields: Mapping[str, Field]
    said: Mapping[str, tuple[str, ...]]
    bytes_per_token: float | None
    linked: bool
    unused: tuple[Unused, ...]
    doubts: Mapping[str, tuple[int, tuple[tuple[int, int], ...]]]
    rows: int


def write(kept: Kept, path: str) -> None:
    """Write a state; whoever reads the file meanwhile sees the old one or the new one.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    told = {
        "version": VERSION,
        "inputs": [dataclasses.asdict(one) for one in kept.inputs],
        "fields": {name: dataclasses.asdict(one) for name, one in kept.fields.items()},
        "said": kept.said,
        "bytes_per_token": kept.bytes_per_token,
        "linked": kept.linked,
        "unused": [dataclasses.asdict(one) for one in kept.unused],
        "doubts": kept.doubts,
        "rows": kept.rows,
    }
    rows = pl.concat([kept.requests, kept.failed.select(kept.requests.columns)])
    place = Path(path)
    new = place.with_name(f"{place.name}.{os.getpid()}.new")
    try:
        try:
            rows.write_parquet(new, statistics=False, metadata={KEY: json.dumps(told)})
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError("the state cannot be written", where=path, why=error.strerror) from None


def is_kept(path: str) -> bool:
    """Whether the file is a state; false where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            if file.read(len(_PARQUET)) != _PARQUET:
                return False
        return KEY in pl.read_parquet_metadata(path)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return False


def read(path: str) -> Kept:
    """Read a state.

    Raises
    ------
    InputError
        If it is damaged, or of another version.
    """
    anew = "save it anew from its log"
    try:
        told = json.loads(pl.read_parquet_metadata(path)[KEY])
        rows = pl.read_parquet(path)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        why = str(error).splitlines()[0]
        raise InputError("the state is damaged", where=path, why=why, help=anew) from None
    version = told.get("version") if isinstance(told, dict) else None
    if version != VERSION:
        raise InputError(
            "the state is of another version of ttftdoctor", where=path,
            why=f"version {version}, this reads {VERSION}", help=anew,
        )  # fmt: skip
    try:
        return _kept(told, rows)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError("the state is damaged", where=path, why=repr(error), help=anew) from None


def _kept(told: Mapping[str, Any], rows: pl.DataFrame) -> Kept:
    used = pl.col(REJECT).is_null()
    counted = sum(one["rows_used"] for one in told["inputs"])
    sources = rows["source"].is_between(0, len(told["inputs"]) - 1)
    if dict(rows.schema) != COLUMNS or counted != rows.filter(used).height or not sources.all():
        raise ValueError("its rows are not those that it tells of")
    return Kept(
        requests=rows.filter(used),
        failed=rows.filter(~used),
        inputs=tuple(
            Input(**{**one, "first_rejects": tuple((n, why) for n, why in one["first_rejects"])})
            for one in told["inputs"]
        ),
        fields={name: Field(**one) for name, one in told["fields"].items()},
        said={name: tuple(texts) for name, texts in told["said"].items()},
        bytes_per_token=told["bytes_per_token"],
        linked=told["linked"],
        unused=tuple(Unused(**one) for one in told["unused"]),
        doubts={
            name: (n, tuple((source, line) for source, line in places))
            for name, (n, places) in told["doubts"].items()
        },
        rows=told["rows"],
    )
