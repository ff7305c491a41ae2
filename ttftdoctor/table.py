"""The request table: one row a request. What each column means, and when a row can be used.

Null means "the log does not say"; zero means "the log says none". Durations are integer
microseconds, so that sums are exact; instants are microseconds since 1970 in UTC (or since an
unknown origin, where the log's clock is relative).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from ttftdoctor.language import mark

US: Final = "us"


@dataclass(frozen=True)
class Column:
    """One column of the request table."""

    name: str
    dtype: Any  # a Polars data type, class or instance
    unit: str
    meaning: str


_COLUMNS: Final = (
    Column("request_id", pl.String, "", "the request's own id"),
    Column("session_id", pl.String, "", "conversation, logged or linked by us"),
    Column("turn", pl.UInt32, "", "1-based place in the session, logged or derived"),
    Column("start", pl.Int64, US, "when the measuring side began to wait (UTC)"),
    Column("model", pl.String, "", "model that answered"),
    Column("replica", pl.String, "", "server instance that did the prefill"),
    Column("tenant", pl.String, "", "customer, team or key"),
    Column("route", pl.String, "", "path, gateway or endpoint"),
    Column("version", pl.String, "", "build or release that served the request"),
    Column("input_tokens", pl.Int64, "tokens", "all prompt tokens, cached ones included"),
    Column("cached_tokens", pl.Int64, "tokens", "prompt tokens served from a prefix cache"),
    Column("cache_write_tokens", pl.Int64, "tokens", "prompt tokens written to a prefix cache"),
    Column("output_tokens", pl.Int64, "tokens", "tokens generated, reasoning included"),
    Column("reasoning_tokens", pl.Int64, "tokens", "tokens of hidden thinking in the output"),
    Column("ttft_us", pl.Int64, US, "start to first token"),
    Column("e2e_us", pl.Int64, US, "start to last token"),
    Column("queue_us", pl.Int64, US, "waiting before prefill, as the server says"),
    Column("prefill_us", pl.Int64, US, "prefill, as the server says"),
    Column("decode_us", pl.Int64, US, "first to last token, as the server says"),
    Column("load_us", pl.Int64, US, "loading the model before prefill, as the server says"),
    Column("attempts", pl.UInt32, "", "tries behind this row"),
    Column("status", pl.String, "", "ok, error, aborted or rate_limited"),
    Column("streamed", pl.Boolean, "", "false: the first token is the whole answer"),
    Column("prefix_blocks", pl.List(pl.UInt64), "", "chained hashes of the prompt's blocks"),
    Column("block_tokens", pl.UInt32, "tokens", "tokens a block stands for"),
    Column("vantage", pl.String, "", "client, gateway or server: where the clock stood"),
)

COLUMNS: Final[dict[str, Column]] = {c.name: c for c in _COLUMNS}

#: Where a row came from and why it was turned away; beside the canonical columns.
LINE: Final = "line"
REJECT: Final = "reject"
SET_ASIDE: Final = "ttft_set_aside"
#: Why a row is turned away whose first token would come before its request was sent.
BEFORE_START: Final = "negative_ttft"
#: Fields of the row whose value could not be read, a line each.
UNREAD: Final = "unread"

SCHEMA: Final[dict[str, Any]] = {c.name: c.dtype for c in _COLUMNS}

#: A column counts as logged when at least this share of the rows has it.
COVERED: Final = 0.5

#: Of ids of sessions, more than this part that occur once are ids of requests.
MOST_SINGLE: Final = 0.9

#: What a row owes to the turn before it, for rows whose sessions are not all there: place in the
#: session from 1; input, output (0 if unknown), end and replica of the request that it goes on
#: from; and how many of the session are between the two.
FACTS: Final[dict[str, Any]] = {
    "place_in_session": pl.Int64,
    "before_input": pl.Int64,
    "before_output": pl.Int64,
    "before_end": pl.Int64,
    "before_replica": pl.String,
    "passed_over": pl.Int64,
}

#: What a prompt owes to all those before it, for rows that are not all there: its first block, and
#: how many of its tokens are in blocks that an earlier request had.
PROMPT_FACTS: Final[dict[str, Any]] = {"first_block": pl.UInt64, "seen_tokens": pl.Int64}

#: Columns by which rows may be grouped to find a sick part of a healthy fleet.
SCOPE_COLUMNS: Final = ("model", "tenant", "route", "replica", "version")

#: A first token a day late is no measurement (retries and queues give up long before).
ABSURD_US: Final = 24 * 3600 * 1_000_000

#: A stamp that is not there is logged as minus one, in one unit or another.
_UNSET_US: Final = [-1, -1_000, -1_000_000]

#: No model has a context of a hundred million tokens.
ABSURD_TOKENS: Final = 10**8

#: An instant larger than this is meant as a date, not as a clock that starts somewhere (1973).
_EPOCH_US: Final = 10**14
#: Rows read together have dates if this part of their starts are such.
_DATES: Final = 0.9
_YEAR_2000_US: Final = 946_684_800_000_000
_YEAR_2100_US: Final = 4_102_444_800_000_000

#: Why a value of a usable row was not used, by the name of the test in the checked frame.
DOUBTS: Final[dict[str, str]] = {
    "cached_dropped": mark("say more cached than input tokens; their cached count was not used"),
    "start_dropped": mark("start before 2000 or after 2100; their start was not used"),
    "queue_dropped": mark(
        "say they queued for longer than their TTFT; their queue time was not used"
    ),
    "prefill_dropped": mark("say their prefill took longer than their TTFT; it was not used"),
    "output_dropped": mark("say more than 100 million output tokens; their output was not used"),
    "reasoning_dropped": mark("say more reasoning than output tokens; the former was not used"),
}

Grade = Literal["logged", "derived", "inferred", "assumed"]


@dataclass(frozen=True)
class Field:
    """Where a canonical column came from.

    ``kind`` tells how far to trust it: ``logged`` as is, ``derived`` by arithmetic on logged
    fields, ``inferred`` from the data, ``assumed`` by convention.
    """

    source: str
    unit: str
    why: str
    kind: Grade = "logged"


def ended_at() -> pl.Expr:
    """When a request of the table ended, microseconds; its start where that is unknown."""
    return pl.col("start") + pl.coalesce("e2e_us", "ttft_us", pl.lit(0))


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """Give a reader's frame every canonical column, in order and type; absent ones are null.

    Parameters
    ----------
    frame
        Has ``line`` and any of the canonical columns, ``reject`` and ``ttft_set_aside``.
    """
    have = set(frame.columns)
    columns = [pl.col(LINE).cast(pl.Int64)]
    for name, dtype in SCHEMA.items():
        if name in have:
            columns.append(pl.col(name).cast(dtype, strict=False))
        else:
            columns.append(pl.lit(None, dtype=dtype).alias(name))
    for name in (REJECT, SET_ASIDE, UNREAD):
        if name in have:
            columns.append(pl.col(name).cast(pl.String))
        else:
            columns.append(pl.lit(None, dtype=pl.String).alias(name))
    return frame.select(columns)


def check(frame: pl.DataFrame) -> pl.DataFrame:
    """Judge each conformed row: fill ``reject``, or set its TTFT aside by name.

    A rejected row cannot be used at all. A row whose TTFT is set aside still counts as load and
    as a prompt. The first reason that holds is given. TTFT is nulled where it is set aside.
    """
    durations = ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "load_us")
    counts = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
              "reasoning_tokens")  # fmt: skip
    known = ("ttft_us", "e2e_us", "input_tokens", "start")
    start, ttft, status = pl.col("start"), pl.col("ttft_us"), pl.col("status").fill_null("ok")
    reason = _first_that_holds(
        frame,
        REJECT,
        {
            # Of a request that was answered, and not the mark of a stamp that was never set, a
            # first token before the request tells of the clocks.
            BEFORE_START: (ttft < 0)
            & (ttft >= -ABSURD_US)
            & ~ttft.is_in(_UNSET_US)
            & (status == "ok"),
            "negative_duration": pl.any_horizontal([pl.col(c) < 0 for c in durations]),
            "absurd_duration": pl.any_horizontal([pl.col(c) > ABSURD_US for c in durations]),
            "negative_tokens": pl.any_horizontal([pl.col(c) < 0 for c in counts]),
            "absurd_tokens": pl.any_horizontal(
                [pl.col(c) > ABSURD_TOKENS for c in ("input_tokens", "cache_write_tokens")]
            ),
            "rate_limited": status == "rate_limited",
            "aborted_request": status == "aborted",
            "failed_request": ~status.is_in(["ok", "rate_limited", "aborted"]),
            "nothing_to_use": pl.all_horizontal([pl.col(c).is_null() for c in known]),
        },
    )
    late = (ttft > pl.col("e2e_us") + 1000) & (ttft > pl.col("e2e_us") * 1.01)
    aside = _first_that_holds(
        frame,
        SET_ASIDE,
        {
            "not_streamed": pl.col("streamed") == False,  # noqa: E712  (null must stay null)
            "ttft_after_e2e": late,
            "ttft_zero": ttft == 0,
            "ttft_missing": ttft.is_null(),
        },
    )
    measured = aside.is_null() & ttft.is_not_null()
    output_bad = pl.col("output_tokens") > ABSURD_TOKENS
    doubtful = {
        ("cached_tokens", "cached_dropped"): pl.col("cached_tokens")
        > pl.col("input_tokens").fill_null(ABSURD_TOKENS),
        ("start", "start_dropped"): (start < -_EPOCH_US)
        | start.is_between(_EPOCH_US, _YEAR_2000_US, closed="left")
        | (start > _YEAR_2100_US)
        # A zero among dates is a stamp that was never set, not a clock that starts somewhere.
        | ((start < _YEAR_2000_US) & ((start >= _YEAR_2000_US).mean() >= _DATES)),
        ("queue_us", "queue_dropped"): measured & (pl.col("queue_us") > ttft * 1.05 + 1000),
        ("prefill_us", "prefill_dropped"): measured & (pl.col("prefill_us") > ttft * 1.05 + 1000),
        ("output_tokens", "output_dropped"): output_bad,
        ("reasoning_tokens", "reasoning_dropped"): pl.col("reasoning_tokens")
        > pl.min_horizontal("output_tokens", pl.lit(ABSURD_TOKENS)),
    }
    names = {name: test.fill_null(False) for (_, name), test in doubtful.items()}
    held = _held(frame, names)
    bad = {key: names[key[1]] for key in doubtful if key[1] in held}
    frame = frame.with_columns(
        reason.alias(REJECT),
        ttft.alias("ttft_logged_us"),
        aside.alias(SET_ASIDE),
        *(pl.when(~test).then(pl.col(column)).alias(column) for (column, _), test in bad.items()),
        *((names[name] if name in held else pl.lit(False)).alias(name) for name in names),
    )
    if frame[SET_ASIDE].null_count() == frame.height:
        return frame
    return frame.with_columns(pl.when(pl.col(SET_ASIDE).is_null()).then(ttft).alias("ttft_us"))


def _held(frame: pl.DataFrame, tests: Mapping[str, pl.Expr]) -> set[str]:
    """The tests that hold in some row; most never do, and need not be made into columns."""
    found = frame.select(test.any().alias(name) for name, test in tests.items())
    return {name for name, holds in zip(found.columns, found.row(0), strict=True) if holds}


def _first_that_holds(frame: pl.DataFrame, column: str, tests: Mapping[str, pl.Expr]) -> pl.Expr:
    """What the column says already, or else the name of the first test that holds."""
    held = _held(frame, tests)
    out: Any = pl.when(pl.col(column).is_not_null()).then(pl.col(column))
    for name, test in tests.items():
        if name in held:
            out = out.when(test.fill_null(False)).then(pl.lit(name))
    result: pl.Expr = out
    return result if held else pl.col(column)
