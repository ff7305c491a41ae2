"""Locust with Fireworks' ``llm_bench``: the console log, one line an answer.

``Response received: total 1803.17 ms, first token 191.07 ms, 2273 chars, 500 tokens``, between
Locust's tables, with or without a logger's prefix. Without streaming the first token is the whole
answer. The stamp of a prefix is the end of the answer in local time, and not every version has one,
so nothing is placed in time.

The clock is the client's. Prompt tokens, failures and sessions are not in the lines. Locust's own
CSV files (``*_stats.csv``, ``*_stats_history.csv``) are averages and are refused: in its METRIC
rows, counts of tokens stand in columns of milliseconds.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_LINE = (
    r"Response received: total (\d+(?:\.\d+)?) ms, first token (\d+(?:\.\d+)?) ms, "
    r"\d+ chars, (\d+) tokens"
)
_START = "Response received: total "
_AVERAGES = {"Request Count", "Failure Count", "Median Response Time"}
_HISTORY = {"Timestamp", "User Count", "Total Request Count"}
#: How the headers of both begin; further columns are named after percentiles.
_HEADERS = ("Type,Name,Request Count,", "Timestamp,User Count,Type,Name,")
_SAME_US = 1000

FIELDS = {
    "output_tokens": Field("tokens", "tokens", mark("the server's count where it sent one")),
    "ttft_us": Field("first token", "ms", mark("from sending to the first token")),
    "e2e_us": Field("total", "ms", mark("from sending to the end")),
    "streamed": Field(
        "first token, total", "", mark("the end in place of the first token"), "inferred"
    ),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}
_NOTE = mark("the console log has no start times: load at arrival cannot be told")


def _recognise(head: Head) -> str | None:
    if _is_average(head):
        return tr("a table of Locust's statistics")
    if head.shape is Shape.CSV:
        return None
    found = any(_START in line for line in head.lines)
    return tr("lines of Response received: total ... first token") if found else None


def _is_average(head: Head) -> bool:
    if head.shape is Shape.TEXT:
        return bool(head.lines) and head.lines[0].replace('"', "").startswith(_HEADERS)
    columns = set(head.columns)
    return columns >= _AVERAGES or columns >= _HISTORY


def _plan(head: Head, options: Options) -> Plan:
    del options
    if _is_average(head):
        raise InputError(
            "the file holds Locust's averages, and no single request",
            where=head.path,
            why="it is a table of request counts and percentiles",
            help="read the console log of llm_bench, or write a line a request from the test",
        )
    return Plan({}, _convert)


def _convert(raw: Raw) -> Batch:
    parts = pl.col("text").str.extract_groups(_LINE)
    names = ("total", "first", "tokens")
    rows = Raw(
        raw.frame.with_columns(
            parts.struct.field(str(n)).alias(name) for n, name in enumerate(names, start=1)
        ),
        raw.options,
    )
    ttft, e2e = rows.duration("first", "ms"), rows.duration("total", "ms")
    output = rows.count("tokens")
    ours = pl.col("text").str.contains(_START, literal=True)
    frame = rows.select(
        {
            "output_tokens": pl.when(output > 0).then(output),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "streamed": pl.when((output > 1) & (ttft >= e2e - _SAME_US)).then(False),
            "vantage": pl.lit("client"),
        },
        reject=pl.when(~ours)
        .then(pl.lit("not_a_request_line"))
        .when(pl.col("total").is_null())
        .then(pl.lit("torn_line")),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_NOTE),))


READER = Reader(
    "locust",
    "Locust console logs of Fireworks llm_bench",
    (Shape.TEXT, Shape.CSV),
    _recognise,
    _plan,
    lacks=mark(
        "the console log has no start times, no prompt tokens, no sessions and no failures; log "
        "the requests at the server or a gateway for those"
    ),
)
