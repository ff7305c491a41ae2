"""evalscope perf: the table ``result`` of ``benchmark_data.db``, as it is or as CSV or JSON.

Seconds of a monotonic clock, so there are no dates. A request that was not streamed has its whole
latency in place of the first chunk (``is_stream`` in newer versions says which); a failed one has
no latency. The first chunk may be one that only names the role. Tables of 2024 have ``chunk_times``
and ``n_chunks`` instead of gaps. ``response_messages`` (and ``request`` in old tables) hold pickled
data: neither is ever read.

The clock is the client's. Cached tokens and turns are known to the tool and not stored. The files
beside the table (``benchmark_summary.json``, ``benchmark_percentile.json``) hold averages and
percentiles, and are refused.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "request_id", "start_time", "success", "latency", "first_chunk_latency", "prompt_tokens",
    "completion_tokens", "is_stream",
)  # fmt: skip
_NEEDED = {"first_chunk_latency", "latency", "success", "completed_time"}
_SAME_US = 1000

FIELDS = {
    "request_id": Field("request_id", "", mark("evalscope's name")),
    "start": Field("start_time", "s", mark("a clock of unknown origin: no date")),
    "input_tokens": Field("prompt_tokens", "tokens", mark("the server's count where it sent one")),
    "output_tokens": Field(
        "completion_tokens", "tokens", mark("the server's count where it sent one")
    ),
    "ttft_us": Field("first_chunk_latency", "s", mark("from sending to the first chunk")),
    "e2e_us": Field("latency", "s", mark("from sending to the end")),
    "status": Field("success", "", mark("evalscope's name")),
    "streamed": Field(
        "is_stream, first_chunk_latency", "", mark("evalscope's name, or the end as a first chunk")
    ),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    if set(head.columns) >= _NEEDED:
        return tr("first_chunk_latency and success beside completed_time")
    return tr("averages of a run") if _is_average(head) else None


def _is_average(head: Head) -> bool:
    return any(
        {"Percentiles", "Latency (s)"} <= r.keys() or "Time taken for tests (s)" in r
        for r in head.records
    )


def _convert(raw: Raw) -> Batch:
    ttft, e2e = raw.duration("first_chunk_latency", "s"), raw.duration("latency", "s")
    output = raw.count("completion_tokens")
    good = raw.boolean("success")
    frame = raw.select(
        {
            "request_id": raw.text("request_id"),
            "start": raw.instant("start_time", "s"),
            "input_tokens": raw.count("prompt_tokens"),
            "output_tokens": output,
            "ttft_us": ttft,
            "e2e_us": e2e,
            "status": pl.when(good & e2e.is_not_null())
            .then(pl.lit("ok"))
            .otherwise(pl.lit("error")),
            "streamed": pl.coalesce(
                raw.boolean("is_stream"),
                pl.when((output > 1) & (ttft >= e2e - _SAME_US)).then(False),
            ),
            "vantage": pl.lit("client"),
        }
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()})


def _plan(head: Head, options: Options) -> Plan:
    del options
    if _is_average(head):
        raise InputError(
            "the file holds the averages of a run, and no single request",
            where=head.path,
            why="its figures are averages or percentiles",
            help="read benchmark_data.db of the same run",
        )
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    "evalscope",
    "evalscope perf: benchmark_data.db (SQLite), or its table result as CSV or JSON",
    (Shape.CSV, Shape.JSON, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "evalscope stores no sessions and no cached tokens, and a first chunk only with --stream"
    ),
)
