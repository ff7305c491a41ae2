"""Portkey: logs exported from its Logs page or its export API, one JSON object a line.

The gateway's clock: ``response_time`` (ms) is the whole request, and there is no first token.
Cached tokens are only inside ``response.usage``, in the provider's own words; where these are
Anthropic's (``input_tokens`` beside ``cache_read_input_tokens``) the prompt is their sum. A row
whose ``cache_status`` is a hit was answered from a stored response. ``trace_id`` stands for a
session where the metadata has none.

It cannot tell: first token, queue and prefill; what ``response_time`` of a stream ends with.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, complete, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "id", "trace_id", "created_at", "response", "ai_org", "ai_provider", "ai_model", "req_units",
    "res_units", "request_tokens", "response_tokens", "request_url", "response_time",
    "response_status_code", "metadata", "cache_status", "stream_mode", "retry_success_count",
)  # fmt: skip
_SESSIONS = ("session_id", "_session", "session", "conversation_id", "thread_id")

FIELDS = {
    "request_id": Field("id", "", mark("Portkey's name")),
    "session_id": Field("metadata, trace_id", "", mark("the trace where metadata has no session")),
    "start": Field("created_at", "", mark("Portkey's name")),
    "model": Field("ai_model", "", mark("Portkey's name")),
    "tenant": Field("metadata._user", "", mark("Portkey's name")),
    "route": Field("ai_org, ai_provider", "", mark("the provider")),
    "input_tokens": Field("req_units, response.usage", "tokens", mark("cached ones included")),
    "cached_tokens": Field("response.usage", "tokens", mark("the provider's count")),
    "cache_write_tokens": Field("response.usage", "tokens", mark("the provider's count")),
    "output_tokens": Field("res_units, response.usage", "tokens", mark("Portkey's names")),
    "e2e_us": Field("response_time", "ms", mark("Portkey's unit of it")),
    "attempts": Field("retry_success_count", "", mark("retries and the first try"), "derived"),
    "streamed": Field("stream_mode", "", mark("Portkey's name")),
    "status": Field("response_status_code", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        for record in records:
            if {"ai_model", "response_time"} <= record.keys() and record.keys() & {
                "ai_org",
                "ai_provider",
            }:
                return tr("ai_org or ai_provider, ai_model and response_time{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)
    usage = pl.coalesce(raw.text("response", "$.usage"), raw.text("response", "$.body.usage"))
    raw.frame = raw.frame.with_columns(usage.alias("usage"))

    def counted(*paths: str) -> pl.Expr:
        return pl.coalesce([raw.count("usage", f"$.{path}", strict=False) for path in paths])

    read = counted("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
                   "cache_read_input_tokens")  # fmt: skip
    write = counted("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens")
    cache = read.fill_null(0) + write.fill_null(0)
    units = pl.coalesce(raw.count("req_units"), raw.count("request_tokens"))
    said = pl.coalesce(counted("prompt_tokens"), units)
    anthropic = counted("cache_read_input_tokens", "cache_creation_input_tokens").is_not_null()
    given = counted("input_tokens")
    # Anthropic's usage in OpenAI's words leaves cached tokens out of the prompt; the total tells.
    beside = counted("total_tokens") == said + cache + counted("completion_tokens")
    tokens = pl.coalesce(
        pl.when(counted("prompt_tokens").is_null())
        .then(pl.when(anthropic).then(given + cache).otherwise(given)),
        pl.when((cache > said) | ((cache > 0) & beside)).then(said + cache).otherwise(said),
    )  # fmt: skip
    made = pl.coalesce(raw.count("res_units"), raw.count("response_tokens"),
                       counted("completion_tokens", "output_tokens"))  # fmt: skip
    frame = raw.select(
        {
            "request_id": raw.text("id"),
            "session_id": pl.coalesce(
                *(raw.text("metadata", f"$.{name}") for name in _SESSIONS), raw.text("trace_id")
            ),
            "start": raw.instant("created_at"),
            "model": raw.text("ai_model"),
            "tenant": raw.text("metadata", "$._user"),
            "route": pl.coalesce(raw.text("ai_org"), raw.text("ai_provider")),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": made,
            "e2e_us": raw.duration("response_time", "ms"),
            "attempts": raw.count("retry_success_count", strict=False) + 1,
            "streamed": raw.boolean("stream_mode"),
            "status": status_of(raw.text("response_status_code")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(
            raw.text("cache_status").str.to_lowercase().str.contains(r"hit$").fill_null(False)
        ).then(pl.lit("response_cache_hit")),
    )
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, "data", unless="ai_model")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap)


READER = Reader(
    name="portkey",
    title="Portkey gateway logs (no TTFT)",
    shapes=(Shape.JSON, Shape.CSV),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Portkey logs no first token, no queue and no prefill time: measure the first token at the "
        "client, and export the field response, whose usage has the cached tokens"
    ),
)
