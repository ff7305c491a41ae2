"""Request traces with block hashes: Mooncake, and the formats that took over its field names.

Each row is an arrival with two lengths and the ``hash_ids`` of the prompt's blocks; nobody measured
a latency, so only what the prompts share can be told. The same names mean different things:

* Mooncake: ``timestamp`` in ms from the start of the trace, 512 tokens a block, the last block may
  be partial. No sessions.
* Bailian: ``timestamp`` in seconds, 16 tokens a block, ``chat_id`` and ``parent_chat_id``; the
  session is the root of the chain of parents.
* GMI: ``timestamp`` is epoch nanoseconds, mostly as a text, rows are in no order, blocks are near
  32 tokens.
* AIPerf sessions: the first turn has a ``timestamp``, later ones a ``delay`` in ms after the answer
  before, and give only their new tokens and blocks. Whole prompts are put together again: what was
  sent and answered before, then what is new. The time of the answers is not known, so later turns
  really started later than it is said here.

Whether an id stands for a block and all before it is looked up in the data; where it does not, ids
are made that do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from ttftdoctor.chains import chained
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field
from ttftdoctor.units import count, digits

#: Blocks of whole prompts put together at a time, and in all: 1.6 GB.
_STEP = 2**22
_MOST_BLOCKS = 200_000_000
_SIZES = (512, 256, 128, 64, 32, 16)


@dataclass(frozen=True)
class _Dialect:
    name: str
    unit: str
    block: int
    block_why: str


def _recognise(head: Head) -> str | None:
    rows = [r for r in head.records if isinstance(r.get("hash_ids"), list)]
    if len(rows) * 2 > len(head.records) and all("input_length" in r for r in rows):
        return tr("rows with hash_ids and input_length ({name})", name=_dialect(head).name)
    return None


def _block(head: Head, usual: int) -> tuple[int, str]:
    """Tokens a block stands for: the size by which most rows have the right number of blocks."""
    pairs = [
        (int(r["input_length"]), len(r["hash_ids"]))
        for r in head.records
        if isinstance(r.get("input_length"), int | float)
        and 0 < r["input_length"] < 1e12  # no NaN, no infinity
        and isinstance(r.get("hash_ids"), list)
        and r["hash_ids"]
    ]
    if not pairs:
        return usual, mark("as usual for this kind of trace")
    best, share = usual, 0.0
    for size in (usual, *_SIZES):
        hits = sum(n in (length // size, -(-length // size)) for length, n in pairs)
        if hits / len(pairs) > share:
            best, share = size, hits / len(pairs)
    if share >= 0.8:
        part = f"{digits(100 * share)}%"
        return best, tr(
            "{share} of the first rows have the right number of blocks for it", share=part
        )
    ratios = sorted(length / n for length, n in pairs)
    return max(1, round(ratios[len(ratios) // 2])), mark("median of input_length / blocks")


def _dialect(head: Head) -> _Dialect:
    columns = set(head.columns)
    stamps = [r["timestamp"] for r in head.records if r.get("timestamp") is not None]
    if "chat_id" in columns:
        return _Dialect("Bailian", "s", *_block(head, 16))
    if "session_id" in columns:
        return _Dialect("AIPerf sessions", "ms", *_block(head, 512))
    if stamps and all(re.fullmatch(r"\d{19}", str(s)) for s in stamps):
        return _Dialect("GMI", "ns", *_block(head, 32))
    return _Dialect("Mooncake", "ms", *_block(head, 512))


def _plan(head: Head, options: Options) -> Plan:
    del options
    dialect = _dialect(head)
    names = (
        "timestamp", "input_length", "output_length", "chat_id", "parent_chat_id", "turn",
        "session_id", "delay",
    )  # fmt: skip
    lists = [r["hash_ids"] for r in head.records if isinstance(r.get("hash_ids"), list)]
    below = any(isinstance(i, int) and i < 0 for ids in lists for i in ids)
    schema: dict[str, Any] = dict.fromkeys(names, pl.String)
    schema["hash_ids"] = pl.List(pl.Int64 if below else pl.UInt64)

    def convert(raw: Raw) -> Batch:
        return _convert(raw, dialect)

    return Plan(schema, convert, whole=True)


def _roots(frame: pl.DataFrame) -> pl.DataFrame:
    """``root`` of the chain of parents of each ``chat_id``, by doubling the step each time."""
    up = (
        frame.select("chat_id", "parent_chat_id")
        .drop_nulls("chat_id")
        .unique("chat_id", keep="first", maintain_order=True)
        .select(
            "chat_id",
            pl.when(pl.col("parent_chat_id").cast(pl.Float64, strict=False) >= 0)
            .then("parent_chat_id")
            .otherwise("chat_id")
            .alias("root"),
        )
    )
    for _ in range(64):  # a chain of 2**64 chats, or a circle, has no end
        above = up.select(pl.col("chat_id").alias("root"), pl.col("root").alias("above"))
        step = up.join(above, on="root", how="left", maintain_order="left").with_columns(
            pl.coalesce("above", "root").alias("above")
        )
        done = (step["above"] == step["root"]).all()
        up = step.select("chat_id", pl.col("above").alias("root"))
        if done:
            break
    return frame.join(up, on="chat_id", how="left", maintain_order="left")


def _sessions(frame: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Whole prompts of AIPerf sessions, and whether rows were deltas at all."""
    over = "session_id"
    first = pl.col("blocks").list.first()
    later = pl.col("place") > 0
    frame = frame.with_columns(pl.int_range(pl.len()).over(over).alias("place"))
    repeated = frame.select(
        (later & (first == first.first().over(over))).sum().alias("same"), later.sum().alias("all")
    ).row(0)
    deltas = repeated[0] * 2 < repeated[1] or repeated[1] == 0
    anchor = pl.col("stamp").is_not_null().cum_sum().over(over)
    frame = frame.with_columns(anchor.alias("anchor")).with_columns(
        (
            pl.col("stamp").drop_nulls().first().over(over, "anchor")
            + pl.when(pl.col("stamp").is_null())
            .then(pl.col("pause").fill_null(0))
            .otherwise(0)
            .cum_sum()
            .over(over, "anchor")
        ).alias("stamp")
    )
    if not deltas:
        return frame, False
    frame = frame.with_columns(
        (
            pl.col("input").cum_sum().over(over)
            + pl.col("output").fill_null(0).cum_sum().over(over)
            - pl.col("output").fill_null(0)
        ).alias("input")
    )
    return frame.with_columns(_whole(frame, over)), True


def _whole(frame: pl.DataFrame, over: str) -> pl.Series:
    """``blocks`` of each row after those of the rows before it in its session.

    They grow with the square of a session's length: from :data:`_MOST_BLOCKS` in all rows on,
    later rows have none.
    """
    ordered = frame.select(over, pl.col("blocks").list.drop_nulls()).with_row_index("row")
    ordered = ordered.sort(over, maintain_order=True)
    lengths = pl.col("blocks").list.len().fill_null(0).cast(pl.Int64)
    told = ordered.select(
        "row", lengths.cum_sum().over(over).alias("until"), lengths.cum_sum().alias("end")
    )
    ids = ordered["blocks"].explode(empty_as_null=False, keep_nulls=False).to_numpy()
    del ordered
    # Where the session of each row begins in the ids, and how many of them it has.
    begin, until = np.empty(frame.height, np.int64), np.empty(frame.height, np.int64)
    begin[told["row"].to_numpy()] = (told["end"] - told["until"]).to_numpy()
    until[told["row"].to_numpy()] = told["until"].to_numpy()
    until[np.cumsum(until) > _MOST_BLOCKS] = 0
    total = np.cumsum(until)
    edges = np.searchsorted(total, np.arange(0, until.sum() + _STEP, _STEP))
    made: list[pl.Series] = []
    for first, last in pairwise([*np.unique(edges).tolist(), len(until)]):
        some = until[first:last]
        shift = begin[first:last] - (np.cumsum(some) - some)
        taken = ids[np.arange(some.sum()) + np.repeat(shift, some)]
        rows = np.arange(len(some), dtype=np.uint32)
        lists = pl.DataFrame({"row": np.repeat(rows, some), "blocks": taken})
        made.append(
            pl.DataFrame({"row": rows})
            .join(
                lists.group_by("row", maintain_order=True).agg("blocks"), on="row", how="left",
                maintain_order="left",
            )["blocks"]
        )  # fmt: skip
    return pl.concat(made)


def _convert(raw: Raw, dialect: _Dialect) -> Batch:
    frame = raw.frame.select(
        LINE,
        raw.instant("timestamp", dialect.unit).alias("stamp"),
        raw.count("input_length").alias("input"),
        raw.count("output_length").alias("output"),
        raw.duration("delay", "ms").alias("pause"),
        raw.count("turn").alias("turn"),
        raw.text("chat_id").alias("chat_id"),
        raw.text("parent_chat_id").alias("parent_chat_id"),
        raw.text("session_id").alias("session_id"),
        pl.col("hash_ids").alias("blocks"),
    )
    unread = raw.select({})["reject"]
    deltas = False
    has_sessions = frame["session_id"].count() > 0
    if has_sessions:
        alone = pl.format("line {}", pl.col(LINE))
        frame = frame.with_columns(pl.coalesce("session_id", alone).alias("session_id"))
        frame, deltas = _sessions(frame)
    if frame["chat_id"].count():
        frame = _roots(frame).with_columns(pl.col("root").alias("session_id"))
    frame, kept = chained(frame, "blocks")
    result = frame.select(
        LINE,
        pl.col("chat_id").alias("request_id"),
        "session_id",
        pl.coalesce("turn", pl.col("place") + 1 if has_sessions else None).alias("turn"),
        pl.col("stamp").alias("start"),
        pl.col("input").alias("input_tokens"),
        pl.col("output").alias("output_tokens"),
        "prefix_blocks",
        pl.lit(dialect.block).alias("block_tokens"),
        unread,
    )
    origin = mark("from the start of the trace: no date")
    if dialect.name == "GMI":
        origin = mark("epoch")
    fields = {
        "start": Field("timestamp", dialect.unit, origin),
        "input_tokens": Field("input_length", "tokens", mark("the whole prompt")),
        "output_tokens": Field("output_length", "tokens", mark("of the answer")),
        "prefix_blocks": Field(
            "hash_ids", "", mark("ids stand for a block and all before it"), "logged"
        ),
        "block_tokens": Field("hash_ids", "tokens", dialect.block_why, "inferred"),
    }  # fmt: skip
    notes = [
        tr(
            "a trace of arrivals and prompts ({name}): nobody measured a latency, so only what "
            "prompts share can be told",
            name=dialect.name,
        )
    ]
    if not kept:
        fields["prefix_blocks"] = Field(
            "hash_ids", "", mark("ids do not say what lies before a block; sums that do were made"),
            "derived",
        )  # fmt: skip
        notes.append(tr("block ids of this trace do not chain; ids that do were made from them"))
    if "chat_id" in raw.frame.columns and frame["chat_id"].count():
        fields["session_id"] = Field(
            "chat_id, parent_chat_id", "", mark("first chat of the chain of parents"), "derived"
        )
        fields["request_id"] = Field("chat_id", "", mark("one row a chat turn"))
        fields["turn"] = Field("turn", "", mark("as logged"))
    if has_sessions:
        fields["session_id"] = Field("session_id", "", mark("as logged"))
        fields["turn"] = Field("session_id", "", mark("place of the row in its session"), "derived")
        fields["start"] = Field(
            "timestamp + delay",
            "ms",
            mark("later turns: the turn before plus the pause; the time of its answer is unknown"),
            "derived",
        )
    if deltas:
        fields["input_tokens"] = Field(
            "input_length, output_length", "tokens",
            mark("rows give new tokens only: earlier turns and answers are added"), "derived",
        )  # fmt: skip
        fields["prefix_blocks"] = Field(
            "hash_ids",
            "",
            mark("rows give new blocks only: blocks of earlier turns come before them"),
            "derived",
        )
        notes.append(
            tr(
                "rows of a session give only what is new: whole prompts were put together from the "
                "turns before, and answers count in their length but have no blocks"
            )
        )
        notes.append(tr("starts of later turns are too early by the time of the answers before"))
        lost = frame["blocks"].null_count() - raw.frame["hash_ids"].null_count()
        if lost > 0:
            notes.append(
                tr(
                    "whole prompts of all turns would be more than {most} blocks: {n} rows have "
                    "none",
                    most=count(_MOST_BLOCKS), n=count(lost),
                )
            )  # fmt: skip
    return Batch(result, fields, tuple(notes))


READER = Reader(
    "mooncake",
    "Mooncake, Bailian, GMI and AIPerf traces with block hashes (no TTFT)",
    (Shape.JSON, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "a trace of arrivals has no time to first token, so only the prefix part can be told; "
        "replay it (aiperf profile --custom-dataset-type mooncake_trace) and give the result"
    ),
)
