"""Datadog LLM Observability: spans from its search API.

Pages hold spans under ``data``, each with its values in ``attributes``; bare span events are read
as well. Only spans of kind ``llm`` are calls of a model, and of two nested ones the inner is the
call. ``start_ns`` is in nanoseconds, ``duration`` too, but ``metrics.time_to_first_token`` is in
seconds. Where vLLM's integration writes a span, its queue and prefill are there and the clock is
the engine's. LiteLLM's exporter gives the whole time as the first token of a call that was not
streamed: such a first token is set aside.

Input tokens include cached ones. It cannot tell: first tokens of most client integrations, and
what was sampled away.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, not_streamed, told_before, turned_away
from ttftdoctor.table import Field

_NAMES = (
    "span_id", "parent_id", "span_kind", "ml_app", "model_name", "status", "start_ns", "duration",
    "metrics", "metadata", "tags", "session_id", "error", "meta",
)  # fmt: skip

FIELDS = {
    "request_id": Field("span_id", "", mark("Datadog's name")),
    "session_id": Field("session_id, tags", "", mark("Datadog's names")),
    "start": Field("start_ns", "ns", mark("by its name")),
    "model": Field("model_name", "", mark("Datadog's name")),
    "tenant": Field("ml_app", "", mark("the application")),
    "input_tokens": Field("metrics.input_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field("metrics.cache_read_input_tokens", "tokens", mark("Datadog's name")),
    "cache_write_tokens": Field(
        "metrics.cache_write_input_tokens", "tokens", mark("Datadog's name")
    ),
    "output_tokens": Field("metrics.output_tokens", "tokens", mark("Datadog's name")),
    "reasoning_tokens": Field("metrics.reasoning_output_tokens", "tokens", mark("Datadog's name")),
    "ttft_us": Field("metrics.time_to_first_token", "s", mark("Datadog's unit of it")),
    "e2e_us": Field("duration", "ns", mark("Datadog's unit of it")),
    "queue_us": Field("metrics.time_in_queue", "s", mark("vLLM's integration")),
    "prefill_us": Field("metrics.time_in_model_prefill", "s", mark("vLLM's integration")),
    "decode_us": Field("metrics.time_in_model_decode", "s", mark("vLLM's integration")),
    "status": Field("status", "", mark("Datadog's name")),
    "vantage": Field(
        "metrics", "", mark("spans with a queue time are the engine's own"), "inferred"
    ),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        for record in records:
            inside = record.get("attributes")
            if isinstance(inside, dict) and {"ml_app", "span_kind"} <= inside.keys():
                return tr("attributes with ml_app and span_kind{where}", where=where)
            if {"ml_app", "start_ns", "metrics"} <= record.keys():
                return tr("ml_app, start_ns and metrics{where}", where=where)
    return None


def _convert(raw: Raw, wrapped: bool) -> Batch:
    names = [n for n in _NAMES if wrapped or not raw.has(n)]
    raw.frame = raw.frame.with_columns(
        (
            raw.text("attributes", f"$.{n}") if wrapped else pl.lit(None, pl.String)
        ).alias(n)
        for n in names
    )  # fmt: skip

    def count(name: str) -> pl.Expr:
        return raw.count("metrics", f"$.{name}", strict=False)

    def seconds(name: str) -> pl.Expr:
        value = raw.duration("metrics", "s", f"$.{name}", strict=False)
        return pl.when(value >= 0).then(value)

    llm = (raw.text("span_kind").str.to_lowercase() == "llm").fill_null(False)
    raw.frame = raw.frame.with_columns(llm.alias("llm"))
    span = raw.text("span_id")
    e2e = raw.duration("duration", "ns")
    told = raw.duration("metadata", "ms", "$.time_to_first_token_ms", strict=False)
    ttft = pl.coalesce(seconds("time_to_first_token"), pl.when(told >= 0).then(told))
    aged = [count(f"ephemeral_{kept}_input_tokens") for kept in ("5m", "1h")]
    aged_writes = pl.when(pl.any_horizontal(one.is_not_null() for one in aged)).then(
        pl.sum_horizontal(aged)
    )
    queue, said = seconds("time_in_queue"), count("input_tokens")
    why = pl.coalesce(raw.text("error"), raw.text("meta", "$['error.message']"))
    frame = raw.select(
        {
            "request_id": span,
            "session_id": pl.coalesce(
                raw.text("session_id"),
                raw.text("tags").str.extract(r'"session_id:([^"]+)"'),
            ),
            "start": raw.exact("start_ns") // 1000,
            "model": raw.text("model_name"),
            "tenant": raw.text("ml_app"),
            "input_tokens": pl.when(said != 0).then(said),
            "cached_tokens": count("cache_read_input_tokens"),
            "cache_write_tokens": pl.coalesce(count("cache_write_input_tokens"), aged_writes),
            "output_tokens": count("output_tokens"),
            "reasoning_tokens": count("reasoning_output_tokens"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "queue_us": queue,
            "prefill_us": seconds("time_in_model_prefill"),
            "decode_us": seconds("time_in_model_decode"),
            "status": pl.when(raw.text("status").str.to_lowercase() == "error")
            .then(failure(why))
            .otherwise(pl.lit("ok")),
            "vantage": pl.when(queue.is_not_null())
            .then(pl.lit("server"))
            .otherwise(pl.lit("client")),
        },
        reject=turned_away(raw.frame, pl.col("llm"), span, pl.col("parent_id"), told_before(span)),
        set_aside=not_streamed(ttft, e2e),
    )
    return batch_of(frame, FIELDS, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    paged = not {"attributes", "ml_app"} & set(head.columns) and "data" in head.inner
    records = head.inner["data"] if paged else head.records
    wrapped = any("ml_app" not in record and "attributes" in record for record in records)
    names = ("attributes",) if wrapped else _NAMES
    return Plan(
        dict.fromkeys(names, pl.String),
        partial(_convert, wrapped=wrapped),
        whole=True,
        unwrap="data" if paged else None,
    )


READER = Reader(
    name="datadog",
    title="Datadog LLM Observability spans",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Datadog has a first token, a queue and a prefill time only from vLLM's integration "
        "(ddtrace-run with DD_LLMOBS_ENABLED=1 on the server), and a first token from LiteLLM's"
    ),
)
