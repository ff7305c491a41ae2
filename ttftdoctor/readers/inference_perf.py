"""inference-perf (llm-d): ``per_request_lifecycle_metrics.json``, an array of requests.

Seconds of a monotonic clock, so there are no dates. There is no TTFT: it is the first of
``output_token_times`` less ``start_time``. ``chunk_times`` also hold chunks without text and are
not used. All tokens of a chunk share its time, so that an answer in one piece would have its end
for a first token; that is set aside. The server's own token counts (``server_usage``) go before
the client's, which leave out the chat template.

The clock is the client's. Stage, session and the moment a request was due are not in the file. The
stage and summary reports hold averages only and are refused.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = ("start_time", "end_time", "info", "error")
_SAME_US = 1000
#: The pieces of an answer, which are long and are not needed.
_CHUNKS = r'(?s)"response_chunks":\s*\[.*\],\s*"chunk_times"'

FIELDS = {
    "start": Field("start_time", "s", mark("a clock of unknown origin: no date")),
    "input_tokens": Field(
        "server_usage.prompt_tokens, input_tokens", "tokens",
        mark("the server's count where it sent one, else the client's"),
    ),
    "cached_tokens": Field(
        "server_usage.prompt_tokens_details.cached_tokens", "tokens", mark("as the server reported")
    ),
    "output_tokens": Field(
        "server_usage.completion_tokens, output_tokens", "tokens",
        mark("the server's count where it sent one, else the client's"),
    ),
    "ttft_us": Field(
        "output_token_times[0] - start_time", "s", mark("difference of two stamps"), "derived"
    ),
    "e2e_us": Field("end_time - start_time", "s", mark("difference of two stamps"), "derived"),
    "status": Field("error", "", mark("set where the request failed")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}  # fmt: skip


def _recognise(head: Head) -> str | None:
    rows = [
        r
        for r in head.records
        if isinstance(r.get("info"), dict) and "start_time" in r and "end_time" in r
    ]
    if rows and 2 * len(rows) >= len(head.records) and any("request" in r for r in rows):
        return tr("start_time, end_time, request and info")
    if {"load_summary", "successes", "failures"} <= set(head.outer or {}):
        return tr("a report with load_summary, successes and failures")
    return None


def _plan(head: Head, options: Options) -> Plan:
    if "load_summary" in (head.outer or {}):
        raise InputError(
            "the report holds the averages of a stage, and no single request",
            where=head.path,
            why="there are load_summary and successes, but no list of requests",
            help="switch on report.request_lifecycle.per_request and read "
            "per_request_lifecycle_metrics.json",
        )
    return plan_of(head, options, _TEXTS, _convert)


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    info = raw.frame["info"].str.replace(_CHUNKS, '"chunk_times"')
    raw.frame = raw.frame.with_columns(info).with_columns(
        raw.text("info", "$.response_metrics").alias("response")
    )
    times = pl.coalesce(
        raw.text("response", "$.output_token_times"), raw.text("info", "$.output_token_times")
    )
    raw.frame = raw.frame.with_columns(
        times.str.extract(r"^\[\s*([^,\]\s]+)", 1).alias("first"),
        raw.text("response", "$.server_usage").alias("usage"),
    )
    start, end = raw.instant("start_time", "s"), raw.instant("end_time", "s")
    first = raw.instant("first", "s", strict=False)
    output = pl.coalesce(
        raw.count(column, path, strict=False)
        for column, path in (
            ("usage", "$.completion_tokens"), ("response", "$.output_tokens"),
            ("info", "$.output_tokens"),
        )
    )  # fmt: skip
    failure = raw.text("error")
    kind = pl.coalesce(
        pl.when(k.is_in(["rate_limited", "aborted"])).then(k)
        for k in (status_of(raw.text("error", f"$.{key}")) for key in ("error_type", "error_msg"))
    )
    frame = raw.select(
        {
            "start": start,
            "input_tokens": pl.coalesce(
                raw.count(column, path, strict=False)
                for column, path in (
                    ("usage", "$.prompt_tokens"),
                    ("info", "$.request_metrics.text.input_tokens"), ("info", "$.input_tokens"),
                )
            ),
            "cached_tokens": raw.count(
                "usage", "$.prompt_tokens_details.cached_tokens", strict=False
            ),
            "output_tokens": output,
            "ttft_us": first - start,
            "e2e_us": end - start,
            "status": pl.when(failure.is_not_null())
            .then(pl.coalesce(kind, pl.lit("error")))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        set_aside=pl.when((output > 1) & (first >= end - _SAME_US)).then(pl.lit("not_streamed")),
    )  # fmt: skip
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


READER = Reader(
    "inference-perf",
    "inference-perf per-request reports",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "inference-perf writes no session, no stage and no date beside its requests, no server "
        "queue, and cached tokens only if the server reports them (vLLM "
        "--enable-prompt-tokens-details)"
    ),
)
