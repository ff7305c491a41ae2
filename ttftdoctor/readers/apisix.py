"""Apache APISIX: records of any logger plugin with an ``llm_summary`` block, one a request.

Despite its name, ``llm_summary.duration`` of a streamed request is its time to first token (ms);
of one that was not streamed it is the whole answer, and of a failed one the time of the failure:
neither is used. ``"0"`` stands for no value. ``latency`` (ms) is the whole request. Counters start
again with each try, so tries that failed do not show. Counts in Anthropic's protocol leave out
cached tokens, those in OpenAI's do not: they are added for Claude models, and where there are more
of them than prompt tokens.

It cannot tell: queue, prefill, sessions and retries.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "start_time", "latency", "upstream", "llm_summary", "request", "response", "route_id",
    "service_id", "consumer",
)  # fmt: skip
_SAME_US = 1000

FIELDS = {
    "request_id": Field("request.headers.x-request-id", "", mark("by its name")),
    "start": Field("start_time", "ms", mark("APISIX's unit of it")),
    "model": Field("llm_summary.model, request_model", "", mark("APISIX's names")),
    "replica": Field("upstream", "", mark("APISIX's name")),
    "tenant": Field("consumer.username, llm_summary.end_user_id", "", mark("APISIX's names")),
    "route": Field("route_id", "", mark("APISIX's name")),
    "input_tokens": Field("llm_summary.prompt_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field("llm_summary.cache_read_input_tokens", "tokens", mark("APISIX's name")),
    "cache_write_tokens": Field(
        "llm_summary.cache_creation_input_tokens", "tokens", mark("APISIX's name")
    ),
    "output_tokens": Field("llm_summary.completion_tokens", "tokens", mark("APISIX's name")),
    "reasoning_tokens": Field("llm_summary.reasoning_tokens", "tokens", mark("APISIX's name")),
    "ttft_us": Field("llm_summary.duration", "ms", mark("the first token of a streamed request")),
    "e2e_us": Field("latency", "ms", mark("APISIX's unit of it")),
    "streamed": Field("llm_summary.stream", "", mark("APISIX's name")),
    "status": Field("response.status", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    if any(isinstance(record.get("llm_summary"), dict) for record in head.records):
        return tr("records with llm_summary")
    return None


def _convert(raw: Raw) -> Batch:
    def count(name: str) -> pl.Expr:
        return raw.count("llm_summary", f"$.{name}", strict=False)

    said, read = count("prompt_tokens"), count("cache_read_input_tokens")
    write = count("cache_creation_input_tokens")
    cache = read.fill_null(0) + write.fill_null(0)
    model = pl.coalesce(
        raw.text("llm_summary", "$.model"), raw.text("llm_summary", "$.request_model")
    )
    apart = model.str.to_lowercase().str.contains("claude").fill_null(False) | (cache > said)
    tokens = pl.when(apart).then(said + cache).otherwise(said)
    streamed = raw.boolean("llm_summary", "$.stream")
    duration = raw.duration("llm_summary", "ms", "$.duration", strict=False)
    ttft = pl.when(streamed & (duration > 0)).then(duration)
    e2e = raw.duration("latency", "ms")
    frame = raw.select(
        {
            "request_id": raw.text("request", "$.headers['x-request-id']"),
            "start": raw.instant("start_time", "ms"),
            "model": model,
            "replica": raw.text("upstream"),
            "tenant": pl.coalesce(
                raw.text("consumer", "$.username"), raw.text("llm_summary", "$.end_user_id")
            ),
            "route": pl.coalesce(raw.text("route_id"), raw.text("service_id")),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("completion_tokens"),
            "reasoning_tokens": count("reasoning_tokens"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "streamed": streamed,
            "status": status_of(raw.text("response", "$.status")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(raw.text("llm_summary").is_null()).then(pl.lit("not_a_model_call")),
        set_aside=pl.when(ttft >= e2e - _SAME_US).then(pl.lit("not_streamed")),
    )
    return Batch(
        frame,
        {k: v for k, v in FIELDS.items() if frame[k].count()},
        (tr("tries that failed do not show: APISIX starts its counters again with each"),),
    )


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    name="apisix",
    title="Apache APISIX AI gateway logs",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "APISIX logs no session, no queue and no prefill time; llm_summary needs the ai-proxy "
        "plugin with logging.summaries: true"
    ),
)
