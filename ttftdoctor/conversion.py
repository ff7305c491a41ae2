"""Any log as one plain table: the canonical columns, as Parquet, CSV or JSON lines.

The table has a row a request in the order of the log, with the columns of :mod:`ttftdoctor.table`
in their order: durations in microseconds, instants in microseconds since 1970. Failed requests are
in it with their status; rows that are no request are counted and left out. It is read again by
the flat reader, with the same rows and the same diagnosis. What must not be used as a TTFT is not
in ``ttft_us``, unless the row itself says why (``streamed`` is false, say).

Anonymised, it holds nothing of the log that names or quotes somebody:

* ids of requests and sessions are drawn at random, new in every run, the same for the same id;
* tenants, routes, replicas, versions and models are numbered in the order of their appearance;
* hashes of blocks are drawn at random, too, so that only *where* prompts are alike is told.

Nothing of an old name goes into a new one, and no key is kept: there is no way back by guessing.
Tokens, durations and pauses stay as they are, or it would not be the same log: whoever holds the
log itself can tell that this is it. ``shift_times`` moves all of it by whole days, so that hours of
the day still mean something.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.choose import Only
from ttftdoctor.errors import UsageError
from ttftdoctor.intake import Log
from ttftdoctor.run import one_log
from ttftdoctor.table import COLUMNS, LINE, REJECT, SCHEMA, SET_ASIDE, check, conform

#: Columns of ids, and of names that a few rows or many may share.
IDS: Final = ("request_id", "session_id")
NAMES: Final = ("model", "replica", "tenant", "route", "version")
#: What ``vantage`` means; other words are the log's own.
VANTAGES: Final = ("client", "gateway", "server")
#: What intake calls a failed request, and the status that says so.
STATUS: Final = {
    "failed_request": "error", "aborted_request": "aborted", "rate_limited": "rate_limited",
}  # fmt: skip

#: Ends of file names, and what they stand for.
FORMS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip

#: A cell that begins like this is a formula to a spreadsheet; the apostrophe makes it text, and
#: is itself guarded, so that taking one away always gives the text back.
_FORMULA = r"^[=+\-@']"
#: Characters that are not text but commands: to a terminal, to a reader of lines, to the eye.
_CONTROLS = r"[\p{Cc}\x{2028}-\x{202E}\x{2066}-\x{2069}]"

_DAY_US: Final = 86_400_000_000
#: Smaller instants have no date: they count from somewhere.
_DATED_US: Final = 10**14
#: Shifted logs begin on some day of these years (days since 1970).
_FIRST_DAYS: Final = (11_323, 16_436)


@dataclass(frozen=True)
class Converted:
    """What was written.

    Attributes
    ----------
    path
        Where it is.
    rows
        Rows of the table, ``failed`` ones included.
    read, rejected
        Rows of the log, and those that are not in the table, by reason:
        ``read == rows + sum(rejected.values())``.
    notes
        Sentences on what was made of the log.
    """

    path: str
    rows: int
    failed: int
    read: int
    rejected: Mapping[str, int]
    notes: tuple[str, ...]


def convert(
    *logs: str | Path | Log,
    output: str | Path,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    anonymize: bool = False,
    keep_models: bool = False,
    shift_times: bool = False,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Converted:
    """Write logs of any format as one table in canonical columns.

    Parameters
    ----------
    logs
        Paths, or one :class:`Log` that was read already.
    output
        A file; the end of its name (``.parquet``, ``.csv``, ``.jsonl``) decides its form.
    format, columns, units
        As for reading: name of the format, canonical column to field, and field to unit.
    anonymize
        Replace ids, names and hashes; see the module.
    keep_models
        Leave the names of models, which decide prices.
    shift_times
        Move all instants by one random number of whole days.
    only
        Which rows are written; all by default.

    Raises
    ------
    UsageError
        If the form is not known, the file cannot be written, or is one of the logs.
    InputError
        If the logs cannot be read.
    """
    form = form_of(output)
    if keep_models and not anonymize:
        raise UsageError("--keep-models is for --anonymize: names are kept without it")
    log = one_log(*logs, format=format, columns=columns, units=units, progress=progress, only=only)
    target = os.path.realpath(output)
    if any(os.path.realpath(one.path) == target for one in log.inputs if one.path != "-"):
        raise UsageError("the table would be written over the log", where=str(output))
    frame = table(log)
    notes = []
    if shift_times:
        frame, moved = shifted(frame)
        notes.append(moved)
    if anonymize:
        frame = anonymous(frame, keep_models=keep_models)
        notes.append(
            "tokens, durations and pauses are those of the log: whoever holds it can recognise it"
        )
    if frame["start"].is_not_null().any() and not _dated(frame["start"]):
        # Nothing but its name tells the unit of an instant that is no date.
        frame = frame.rename({"start": "start_us"})
        notes.append("the log's clock has no date: its column is named start_us")
    _write(frame, Path(output), form)
    rejected: Counter[str] = Counter()
    for one in log.inputs:
        rejected.update(one.rows_rejected)
    kept = log.failed[REJECT].value_counts()
    rejected.subtract(dict(kept.iter_rows()))
    return Converted(
        path=str(output),
        rows=frame.height,
        failed=log.failed.height,
        read=sum(one.rows_read for one in log.inputs),
        rejected={reason: n for reason, n in sorted(rejected.items()) if n},
        notes=tuple(notes),
    )


def form_of(output: str | Path) -> str:
    """``parquet``, ``csv`` or ``jsonl``, by the end of a file's name.

    Raises
    ------
    UsageError
        If it ends in anything else.
    """
    end = Path(output).suffix.lower()
    if end not in FORMS:
        raise UsageError(
            "the end of the file's name must say what is written", where=str(output),
            available=", ".join(FORMS),
        )  # fmt: skip
    return FORMS[end]


def table(log: Log) -> pl.DataFrame:
    """The requests of a log, failed ones included, in canonical columns and the order of the log.

    A TTFT that was set aside is given as logged where the row says by itself that it must not be
    used, and is null otherwise; so it is set aside again when the table is read.
    """
    # Of failed rows, what makes them fail is their status; it is written even where it was not.
    failed = log.failed.with_columns(
        pl.col(REJECT).replace_strict(STATUS, default=pl.col("status")).alias("status")
    )
    rows = pl.concat([log.requests, failed]).sort("source", LINE, maintain_order=True)
    bare = rows.with_columns(
        pl.col("ttft_logged_us").alias("ttft_us"),
        pl.lit(None, pl.String).alias(SET_ASIDE),
        pl.lit(None, pl.String).alias(REJECT),
    )
    again = check(conform(bare))
    used = again["ttft_us"].is_not_null() & rows["ttft_us"].is_null()
    return bare.select(
        pl.when(~used).then("ttft_us").alias("ttft_us") if name == "ttft_us" else name
        for name in SCHEMA
    )


def anonymous(frame: pl.DataFrame, *, keep_models: bool = False) -> pl.DataFrame:
    """The table with other ids, names and hashes, equal where they were equal.

    Parameters
    ----------
    frame
        Has the canonical columns (:func:`table`).
    """
    renamed = [_drawn(frame[name]) for name in IDS]
    renamed += [_numbered(frame[name]) for name in NAMES if not (keep_models and name == "model")]
    known = pl.col("vantage").is_in(VANTAGES)
    return frame.with_columns(
        *renamed, _blocks(frame["prefix_blocks"]), pl.when(known).then("vantage").alias("vantage")
    )


def shifted(frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The table some whole days earlier or later, and a sentence about it.

    A clock that has no date has nothing to hide, and stays.
    """
    dated = pl.col("start").abs() >= _DATED_US
    first = frame.select(pl.col("start").filter(dated).min()).item()
    if first is None:
        return frame, "the log has no dates: its times were not moved"
    low, high = _FIRST_DAYS
    day = low + secrets.randbelow(high - low)
    moved = (day - first // _DAY_US) * _DAY_US
    return (
        frame.with_columns(pl.when(dated).then(pl.col("start") + moved).otherwise("start")),
        "times were moved by a number of whole days that is not kept",
    )


def _dated(starts: pl.Series) -> bool:
    """Whether all instants are dates."""
    return bool((starts.drop_nulls().abs() >= _DATED_US).all())


def _draw(n: int) -> NDArray[np.uint64]:
    """``n`` different numbers of 64 bits, from the system's source of randomness."""
    drawn = np.frombuffer(secrets.token_bytes(8 * n), dtype=np.uint64)
    while len(np.unique(drawn)) < n:  # once in many lives
        drawn = np.frombuffer(secrets.token_bytes(8 * n), dtype=np.uint64)
    return drawn


def _drawn(ids: pl.Series) -> pl.Series:
    """Other ids of 16 hexadecimal digits; none reads as a number."""
    kinds = ids.drop_nulls().unique()
    digits = _draw(len(kinds)).tobytes().hex()
    names = np.frombuffer(digits.encode(), dtype="S16").astype(str)
    return _renamed(ids, kinds, "x" + pl.Series(names, dtype=pl.String))


def _numbered(names: pl.Series) -> pl.Series:
    """``tenant-01``, ``tenant-02``, ... in the order of appearance."""
    kinds = names.drop_nulls().unique(maintain_order=True)
    width = len(str(len(kinds)))
    number = pl.Series(np.arange(1, len(kinds) + 1)).cast(pl.String).str.zfill(max(width, 2))
    return _renamed(names, kinds, f"{names.name}-" + number)


def _renamed(old: pl.Series, kinds: pl.Series, names: pl.Series) -> pl.Series:
    if not len(kinds):
        return old
    return old.replace_strict(kinds, names, default=None, return_dtype=pl.String)


def _blocks(blocks: pl.Series) -> pl.Series:
    """Lists of other hashes."""
    size = blocks.list.len()
    flat = blocks.filter(size > 0).explode()
    if not len(flat):
        return blocks
    kinds, at = np.unique(flat.to_numpy(), return_inverse=True)
    rows = pl.Series(np.arange(len(blocks), dtype=np.uint32)).filter((size > 0).fill_null(False))
    new = (
        pl.DataFrame(
            {
                "row": rows.gather(
                    np.repeat(np.arange(len(rows)), size.filter(size > 0).to_numpy())
                ).set_sorted(),
                "block": _draw(len(kinds))[at],
            }
        )
        .group_by("row", maintain_order=True)
        .agg("block")
    )
    every = pl.DataFrame({"row": np.arange(len(blocks), dtype=np.uint32), "old": blocks})
    return (
        every.join(new, on="row", how="left", maintain_order="left")
        # A prompt without a block is not one of which nothing is known.
        .select(pl.coalesce("block", pl.when(pl.col("old").list.len() == 0).then("old")))
        .to_series()
        .alias(blocks.name)
    )


def _write(frame: pl.DataFrame, path: Path, form: str) -> None:
    """Write the table beside its place, then put it there: no half of it is ever seen."""
    place = Path(os.path.realpath(path))
    part = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        try:
            with part.open("wb") as file:
                if form == "parquet":
                    frame.write_parquet(file)
                elif form == "csv":
                    _guarded(frame).write_csv(file)
                else:
                    frame.write_ndjson(file)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise UsageError("the table cannot be written", where=str(path), why=why) from None


def _guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Cells for CSV: lists as JSON, no text that a spreadsheet would run or a terminal obey."""
    ids = pl.col("prefix_blocks")
    joined = pl.concat_str(pl.lit("["), ids.cast(pl.List(pl.String)).list.join(","), pl.lit("]"))
    texts = pl.col(name for name, column in COLUMNS.items() if column.dtype == pl.String)
    return frame.with_columns(
        joined.alias("prefix_blocks"), texts.str.replace_all(_CONTROLS, "\N{REPLACEMENT CHARACTER}")
    ).with_columns(texts.str.replace(_FORMULA, "'${0}"))
