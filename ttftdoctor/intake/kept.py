"""A log that was read, kept in one file, so that it need not be read again.

The file is Parquet: the rows that were used and those that failed, as the reader made them, and in
its metadata all that was said of the log. There is no text of a prompt in it, only ids of blocks.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.mapping.proposal import Unused
from ttftdoctor.table import LINE, REJECT, SCHEMA, SET_ASIDE, Field

#: The key of the metadata under which a state tells of itself.
KEY = "ttftdoctor.state"
#: Raised where a state can no longer be read as it was written.
VERSION = 1
_PARQUET = b"PAR1"
#: What to do with a state that cannot be read.
ANEW = "save it anew from its log"
#: Rows that are read at once of a state that may be larger than memory: fewer, where they take more
#: than so many bytes. A few at its head tell how long they are.
PIECE_ROWS, PIECE_BYTES, HEAD_ROWS = 65_536, 32 * 2**20, 200
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


def write(kept: Kept, path: str, pieces: Iterable[pl.DataFrame] | None = None) -> None:
    """Write a state; whoever reads the file meanwhile sees the old one or the new one.

    Parameters
    ----------
    kept
        The log.
    path
        The file.
    pieces
        Its rows, used and failed, where they are more than can be held; columns may be missing.

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
    meta = {KEY: json.dumps(told)}
    place = Path(path)
    new = place.with_name(f"{place.name}.{os.getpid()}.new")
    try:
        try:
            if pieces is None:
                rows = pl.concat([kept.requests, kept.failed.select(kept.requests.columns)])
                rows.write_parquet(
                    new, statistics=False, metadata=meta, row_group_size=_at_once(rows)
                )
            else:
                first, pieces = _begun(pieces)
                _streamed(pieces).sink_parquet(
                    new,
                    statistics=False,
                    metadata=meta,
                    maintain_order=True,
                    row_group_size=_at_once(first),
                )
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError("the state cannot be written", where=path, why=error.strerror) from None


def _at_once(rows: pl.DataFrame) -> int:
    """How many rows are read together, as long as these are."""
    each = rows.estimated_size() / max(rows.height, 1)
    return int(min(max(PIECE_BYTES // max(each, 1), 1), PIECE_ROWS))


def _begun(pieces: Iterable[pl.DataFrame]) -> tuple[pl.DataFrame, Iterable[pl.DataFrame]]:
    """The first piece, and all of them."""
    rest = iter(pieces)
    first = next(rest, pl.DataFrame(schema=COLUMNS))
    return first, itertools.chain([first], rest)


def _streamed(pieces: Iterable[pl.DataFrame]) -> pl.LazyFrame:
    """Rows that are fetched one piece after the other, with all columns of a state."""

    def fetch(
        columns: list[str] | None, where: pl.Expr | None, most: int | None, at_once: int | None
    ) -> Iterator[pl.DataFrame]:
        for piece in pieces:
            yield piece.select(
                pl.col(name) if name in piece.columns else pl.lit(None, dtype=kind).alias(name)
                for name, kind in COLUMNS.items()
            )

    return register_io_source(fetch, schema=pl.Schema(COLUMNS))


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
    with _damage(path):
        rows = pl.read_parquet(path)
        return _kept(_told(path), rows, rows.lazy())


def opened(path: str) -> tuple[Kept, Iterator[pl.DataFrame]]:
    """A state without its rows, and these one piece after the other, used and failed ones.

    Raises
    ------
    InputError
        As :func:`read`; of damage within a column, when that piece is fetched.
    """
    with _damage(path):
        rows = pl.scan_parquet(path)
        return _kept(_told(path), pl.DataFrame(schema=COLUMNS), rows), _pieces(path, rows)


def _pieces(path: str, rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    with _damage(path):
        most = _at_once(rows.head(HEAD_ROWS).collect())
        yield from rows.collect_batches(chunk_size=most, maintain_order=True)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Say of what goes wrong inside that the state is damaged."""
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        why = (str(error) or repr(error)).splitlines()[0]
        raise InputError("the state is damaged", where=path, why=why, help=ANEW) from None


def _told(path: str) -> Mapping[str, Any]:
    """What a state says of its log."""
    told = json.loads(pl.read_parquet_metadata(path)[KEY])
    version = told.get("version") if isinstance(told, dict) else None
    if not isinstance(told, dict) or version != VERSION:
        raise InputError(
            "the state is of another version of ttftdoctor", where=path,
            why=f"version {version}, this reads {VERSION}", help=ANEW,
        )  # fmt: skip
    return told


def _kept(told: Mapping[str, Any], rows: pl.DataFrame, every: pl.LazyFrame) -> Kept:
    """The log of some ``rows``; what it tells must be so of ``every`` row."""
    used = pl.col(REJECT).is_null()
    counted = sum(one["rows_used"] for one in told["inputs"])
    sources = pl.col("source").is_between(0, len(told["inputs"]) - 1).all()
    if dict(every.collect_schema()) != COLUMNS or every.select(
        used.sum(), sources.alias("known")
    ).collect(engine="streaming").row(0) != (counted, True):
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
