"""An anonymised trace of the log that can be replayed: Mooncake's or Bailian's JSON lines.

Of a request the trace keeps when it came, how many tokens went in and out, and which beginnings
it shares with which others. Nothing else is written: no id, name, model or text of the log, and
nothing of its hashes. Blocks are numbered 0, 1, 2, ... in the order in which they first occur, so
that only *where* prompts are alike is told, and no salt is needed.

What is kept, and how exactly:

* the order of arrival, and the arrivals themselves to the ms (Mooncake) or µs (Bailian);
* both lengths, as logged;
* sessions and turns (Bailian), as logged or as linked; Mooncake's format has none;
* shared beginnings. A block of the trace is shared where all blocks of the log that cover it are.
  If the log's blocks are of the trace's size, or a multiple of it, every request has as many
  reusable tokens as before; if they are smaller, less than one block of the trace fewer.

A prompt has a block for each ``block_tokens`` begun, as the formats want it. Where the log's blocks
end before the prompt does, the rest is taken to be the same in prompts of one length that are alike
in all known blocks, if it is short (less than a block of the log, or an eighth of the prompt), and
to be new otherwise. So whole prompts that recur, recur in the trace.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.intake import Log
from ttftdoctor.measure.kernels import dense
from ttftdoctor.measure.rows import prepare

Format = Literal["mooncake", "bailian"]
Index = NDArray[np.int64]
Counts = NDArray[np.int32]

#: Tokens that a block of each format stands for.
BLOCK_TOKENS: Final[Mapping[str, int]] = {"mooncake": 512, "bailian": 16}
#: Blocks are written this many at a time, as far as rows allow.
STEP = 2**20
#: Part of a prompt that may lie behind its last known block and still be judged by that.
REST = 8

#: Rows whose blocks are measured at a time.
ROWS = 2**13
#: So many tokens behind the last known block may be made up in any prompt.
LITTLE = 512

#: Why a request is not in the trace, in this order, and what the log would have to say.
NEEDS: Final[Mapping[str, tuple[str, str]]] = {
    "no_blocks": (
        "prefix_blocks and block_tokens",
        "text of prompts (messages, prompt), their token ids, or hashes of their blocks",
    ),
    "no_input_tokens": ("input_tokens", "the number of prompt tokens of each request"),
    "no_output_tokens": ("output_tokens", "the number of generated tokens of each request"),
    "no_start": ("start", "the time at which each request began"),
    "few_blocks": ("prefix_blocks", "blocks that cover at least half of the prompt"),
}


@dataclass(frozen=True)
class Export:
    """A trace, ready to be written.

    Attributes
    ----------
    format, block_tokens
        Whose layout it has, and the tokens that a block stands for.
    table
        One row a request in order of arrival: the columns of the format but ``hash_ids``.
    left_out
        Requests of the log that are not in the trace, by reason (a key of :data:`NEEDS`).
    blocks
        Different blocks in the trace: they are numbered from 0 to one less.
    notes
        Sentences on what was made of the log.
    runs, first, count
        The blocks of all rows as runs of consecutive numbers: row ``i`` has the runs from
        ``runs[i]`` to ``runs[i + 1]``, and run ``k`` the blocks ``first[k]``, ``first[k] + 1``,
        ..., ``count[k]`` of them.
    """

    format: Format
    block_tokens: int
    table: pl.DataFrame
    left_out: Mapping[str, int]
    blocks: int
    notes: tuple[str, ...]
    runs: Index
    first: Index
    count: Counts

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows of the trace with ``hash_ids`` (``List(Int64)``), a bounded part at a time."""
        after = np.append(0, np.cumsum(self.count, dtype=np.int64))[self.runs]
        begin = 0
        while begin < self.table.height:
            end = int(np.searchsorted(after, after[begin] + STEP, side="right")) - 1
            end = min(max(end, begin + 1), self.table.height)
            some = slice(self.runs[begin], self.runs[end])
            count = self.count[some]
            place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            rows = np.repeat(
                np.arange(end - begin, dtype=np.uint32), np.diff(after[begin : end + 1])
            )
            ids = (
                pl.DataFrame(
                    {
                        "row": pl.Series(rows, dtype=pl.UInt32).set_sorted(),
                        "hash_ids": np.repeat(self.first[some], count) + place,
                    }
                )
                .group_by("row", maintain_order=True)
                .agg("hash_ids")
            )
            yield self.table.slice(begin, end - begin).with_columns(ids["hash_ids"])
            begin = end

    def text(self) -> Iterator[str]:
        """The trace as JSON lines, a bounded number of whole lines at a time."""
        for frame in self.frames():
            lines = io.BytesIO()
            frame.write_ndjson(lines)
            yield lines.getvalue().decode("ascii")


def export(log: Log, format: str = "mooncake", *, keep_times: bool = True) -> Export:
    """Make an anonymised trace of a log.

    Parameters
    ----------
    log
        Needs ``prefix_blocks`` with ``block_tokens``, and both lengths. Without any ``start`` the
        rows stay in the order of the log and all come at 0.
    format
        ``mooncake``: ``timestamp`` in ms, blocks of 512 tokens, no sessions. ``bailian``:
        ``timestamp`` in s, blocks of 16 tokens, ``chat_id`` with ``parent_chat_id`` (-1: none) and
        ``turn``; the ``type`` of every row is ``text``.
    keep_times
        If false, the same number of requests comes in the same order and time, evenly spaced: the
        ups and downs of a load may tell whose it was.

    Raises
    ------
    UsageError
        If there is no such format.
    InputError
        If no request of the log can be written.
    """
    if format not in BLOCK_TOKENS:
        raise UsageError(f"there is no trace format {format}", available=", ".join(BLOCK_TOKENS))
    size = BLOCK_TOKENS[format]
    name: Format = "bailian" if format == "bailian" else "mooncake"
    timeless = log.requests["start"].null_count() == log.requests.height
    frame = _in_order(log.requests, sessions=name == "bailian").with_columns(
        _reason(timeless).alias("reason")
    )
    counts = frame["reason"].drop_nulls().value_counts()
    left_out = dict(sorted(counts.iter_rows(), key=lambda pair: [*NEEDS].index(pair[0])))
    rows = frame.filter(pl.col("reason").is_null()).drop("reason")
    if rows.height == 0:
        raise _nothing(left_out)
    runs, first, count, blocks = _numbered(rows, size)
    notes = []
    if timeless:
        notes.append("the log has no times: all requests come at 0, in the order of the log")
    known = sorted(rows["block_tokens"].unique().to_list())
    if known != [size]:
        notes.append(
            f"blocks of {', '.join(map(str, known))} tokens were brought to {size}"
            + (
                ": what prompts share is rounded down to whole blocks of those"
                if any(b % size for b in known)
                else ", which keeps all that prompts share"
            )
        )
    times = _times(rows, keep_times=keep_times)
    table = _bailian(rows, times) if name == "bailian" else _mooncake(rows, times)
    return Export(name, size, table, left_out, blocks, tuple(notes), runs, first, count)


def _in_order(requests: pl.DataFrame, *, sessions: bool) -> pl.DataFrame:
    """What is needed of the request table, in order of arrival; of sessions number and turn."""
    needed = ("start", "input_tokens", "output_tokens", "prefix_blocks", "block_tokens")
    if sessions:
        rows = prepare(requests)
        order = requests.select(needed)
        if rows.place is not None:
            order = order[rows.place]
        return order.with_columns(
            pl.Series("session", rows.session), pl.Series("turn", rows.turn).fill_nan(None)
        )
    return requests.sort("start", "source", "line", nulls_last=True).select(needed)


def _reason(timeless: bool) -> pl.Expr:
    """Why a row cannot be written, null where it can."""
    inputs, size = pl.col("input_tokens"), pl.col("block_tokens").cast(pl.Int64)
    covered = pl.col("prefix_blocks").list.len().cast(pl.Int64) * size
    tests = {
        "no_blocks": pl.col("prefix_blocks").is_null() | ~(size > 0).fill_null(False),
        "no_input_tokens": inputs.is_null() | (inputs <= 0),
        "no_output_tokens": pl.col("output_tokens").is_null(),
        "no_start": pl.col("start").is_null() & (not timeless),
        # The rest would be made up, and might be any amount of it.
        "few_blocks": inputs - covered > pl.max_horizontal(inputs // 2, pl.lit(LITTLE)),
    }
    return pl.coalesce(*(pl.when(test).then(pl.lit(name)) for name, test in tests.items()))


def _nothing(left_out: Mapping[str, int]) -> InputError:
    """The error for a log of which nothing can be written, by what most of its rows lack."""
    if not left_out:
        return InputError("the log has no request to export")
    reason = max(left_out, key=lambda name: left_out[name])
    field, help_ = NEEDS[reason]
    return InputError(
        "no request of the log can be exported",
        why=", ".join(f"{n:,} {name}" for name, n in left_out.items()),
        help=f"a trace needs {field}: log {help_}",
    )


def _numbered(rows: pl.DataFrame, size: int) -> tuple[Index, Index, Counts, int]:
    """The blocks of the trace as runs (see :class:`Export`), and how many are different.

    Block ``j`` of the trace ends at token ``j * size``. The block of the log in which that token
    lies stands for everything up to there, and so for block ``j``: each block of the log stands for
    a run of blocks of the trace, often an empty one.
    """
    n = rows["input_tokens"].to_numpy()
    tokens = rows["block_tokens"].to_numpy().astype(np.int64)
    clean = rows["prefix_blocks"].list.drop_nulls()
    # Blocks beyond the end of the prompt are of no use.
    known = np.minimum(clean.list.len().to_numpy().astype(np.int64), -(-n // tokens))
    ids = (
        pl.DataFrame({"ids": clean, "known": known})
        .select(pl.col("ids").list.head("known"))["ids"]
        .explode(empty_as_null=False, keep_nulls=False)
        .to_numpy()
    )
    ends = np.cumsum(known)
    count = np.concatenate(
        [
            _lengths(known[at : at + ROWS], tokens[at : at + ROWS], n[at : at + ROWS], size)
            for at in range(0, len(n), ROWS)
        ]
    )
    used = np.flatnonzero(count)
    codes, kinds = _codes(ids, used, ends, tokens)
    # Behind its blocks each row has a run of those that the log does not know.
    rest = -(-n // size) - _ended(known, tokens, n, size)
    last = np.zeros(len(n), dtype=np.uint64)
    last[known > 0] = ids[ends[known > 0] - 1]
    open_ = np.flatnonzero(rest)
    open_codes, more = _alike(open_, n[open_], tokens[open_], known[open_], last[open_])
    behind = np.searchsorted(used, ends[open_])
    if len(open_) or len(used) < len(count):
        codes = np.insert(codes, behind, open_codes + kinds)
        count = np.insert(count[used], behind, rest[open_])
    runs = np.searchsorted(used, np.append(0, ends)) + np.append(0, np.cumsum(rest > 0))
    first, blocks = _appearing(codes, count, kinds + more)
    return runs, first, count, blocks


def _ended(places: Index, tokens: Index, inputs: Index, size: int) -> Index:
    """Blocks of the trace that end within the first ``places`` blocks of the log."""
    ended: Index = np.minimum(places * tokens // size, -(-inputs // size))
    return ended


def _lengths(known: Index, tokens: Index, inputs: Index, size: int) -> Counts:
    """How many blocks of the trace each known block of some rows stands for."""
    b, length = np.repeat(tokens, known), np.repeat(inputs, known)
    place = np.arange(len(b)) - np.repeat(np.cumsum(known) - known, known)
    count = _ended(place + 1, b, length, size) - _ended(place, b, length, size)
    return count.astype(np.int32)


def _codes(ids: NDArray[np.uint64], used: Index, ends: Index, tokens: Index) -> tuple[Counts, int]:
    """A number for each different block that is used, and how many there are.

    Blocks of different sizes are different, whatever their ids.
    """
    mine = ids[used] if len(used) < len(ids) else ids
    sizes = np.unique(tokens)
    if len(sizes) == 1:
        numbered: tuple[Counts, int] = dense(np.array(mine))
        return numbered
    size = tokens[np.searchsorted(ends, used, side="right")]
    codes, total = np.empty(len(mine), dtype=np.int32), 0
    for one in sizes:
        at = np.flatnonzero(size == one)
        found, kinds = dense(mine[at])
        codes[at] = found + total
        total += kinds
    return codes, total


def _alike(
    row: Index, inputs: Index, tokens: Index, known: Index, last: NDArray[np.uint64]
) -> tuple[Index, int]:
    """A number for each different rest of a prompt behind its ``last`` known block."""
    unknown = inputs - known * tokens
    told = (known > 0) & ((unknown < tokens) | (unknown * REST <= inputs))
    rests = pl.DataFrame(
        {"last": last, "tokens": tokens, "inputs": inputs, "alone": np.where(told, -1, row)}
    )
    keys = rests.columns
    kinds = rests.unique(maintain_order=True).with_row_index("code")
    codes = rests.join(kinds, on=keys, how="left", maintain_order="left")["code"]
    return codes.cast(pl.Int64).to_numpy(), kinds.height


def _appearing(codes: Counts, count: Counts, kinds: int) -> tuple[Index, int]:
    """The first number of each run, by the order in which runs appear, and how many there are.

    Where a run is longer at one place than at another, its numbers are those of the longest.
    """
    heads = np.empty(kinds, dtype=np.int64)
    heads[codes[::-1]] = np.arange(len(codes))[::-1]  # of several the one written last stays
    most = np.ones(kinds, dtype=np.int32)
    if (count > 1).any():
        np.maximum.at(most, codes, count)
    order = np.argsort(heads)
    first = np.empty(kinds, dtype=np.int64)
    ends = np.cumsum(most[order], dtype=np.int64)
    first[order] = ends - most[order]
    return first[codes], int(ends[-1])


def _times(rows: pl.DataFrame, *, keep_times: bool) -> Index:
    """Microseconds from the first arrival to each."""
    start = rows["start"].fill_null(0).to_numpy()
    since: Index = start - start[0]
    if keep_times or len(since) < 2:
        return since
    evenly: Index = np.arange(len(since)) * int(since[-1]) // (len(since) - 1)
    return evenly


def _mooncake(rows: pl.DataFrame, times: Index) -> pl.DataFrame:
    return rows.select(
        pl.Series("timestamp", times // 1000),
        pl.col("input_tokens").alias("input_length"),
        pl.col("output_tokens").alias("output_length"),
    )


def _bailian(rows: pl.DataFrame, times: Index) -> pl.DataFrame:
    """Chats are numbered by arrival; the parent is the request before in the session."""
    chat = pl.int_range(pl.len(), dtype=pl.Int64)
    in_session = pl.col("session") >= 0
    place = pl.when(in_session).then(pl.int_range(1, pl.len() + 1).over("session")).otherwise(1)
    return rows.with_columns(chat.alias("chat_id")).select(
        "chat_id",
        pl.when(in_session)
        .then(pl.col("chat_id").shift(1).over("session"))
        .fill_null(-1)
        .alias("parent_chat_id"),
        pl.Series("timestamp", times / 1e6),
        pl.col("input_tokens").alias("input_length"),
        pl.col("output_tokens").alias("output_length"),
        pl.lit("text").alias("type"),
        pl.coalesce(pl.col("turn").cast(pl.Int64), place).alias("turn"),
    )
