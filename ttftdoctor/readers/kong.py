"""Kong's AI gateway: records of file-log, http-log or tcp-log with AI statistics, one a request.

The AI block lies under ``ai.proxy`` (older releases: under the plugin's own name). The first token
is ``usage.time_to_first_token`` (ms, from 3.12, enterprise). ``latencies.proxy`` ends with the
headers of the server, which many send before they have read the prompt, and is never used. A row
that the semantic cache answered tells nothing of the model. Anthropic's ``prompt_tokens`` leave
out cached ones, which are added. Statistics must be on: ``logging.log_statistics=true``.

It cannot tell: queue, prefill and sessions; first tokens of older or open-source releases.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = ("started_at", "latencies", "request", "response", "tries", "ai", "consumer", "route")
_SAME_US = 1000

FIELDS = {
    "request_id": Field("request.id", "", mark("Kong's name")),
    "start": Field("started_at", "ms", mark("Kong's unit of it")),
    "model": Field("ai.proxy.meta.response_model, request_model", "", mark("Kong's names")),
    "replica": Field("tries.ip", "", mark("the server of the last try")),
    "tenant": Field("consumer.username", "", mark("Kong's name")),
    "route": Field("route.name", "", mark("Kong's name")),
    "input_tokens": Field("ai.proxy.usage.prompt_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field(
        "ai.proxy.usage.prompt_tokens_details.cached_tokens", "tokens", mark("Kong's name")
    ),
    "output_tokens": Field("ai.proxy.usage.completion_tokens", "tokens", mark("Kong's name")),
    "reasoning_tokens": Field(
        "ai.proxy.usage.completion_tokens_details.reasoning_tokens", "tokens", mark("Kong's name")
    ),
    "ttft_us": Field("ai.proxy.usage.time_to_first_token", "ms", mark("Kong's unit of it")),
    "e2e_us": Field("latencies.request", "ms", mark("Kong's unit of it")),
    "attempts": Field("tries", "", mark("their number"), "derived"),
    "streamed": Field("ai.proxy.meta.request_mode", "", mark("oneshot is not streamed")),
    "status": Field("response.status", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for record in head.records:
        ai, latencies = record.get("ai"), record.get("latencies")
        if isinstance(ai, dict) and isinstance(latencies, dict) and "request" in latencies:
            return tr("latencies.request and an ai block")
    return None


def _convert(raw: Raw) -> Batch:
    parts = {
        name: pl.coalesce(raw.text("ai", f"$.proxy.{name}"), raw.text("ai", f"$.*.{name}"))
        for name in ("meta", "usage", "cache")
    }
    raw.frame = raw.frame.with_columns(part.alias(name) for name, part in parts.items())

    def count(path: str) -> pl.Expr:
        return raw.count("usage", f"$.{path}", strict=False)

    said, read = count("prompt_tokens"), count("prompt_tokens_details.cached_tokens")
    cache = read.fill_null(0)
    provider = raw.text("meta", "$.provider_name").str.to_lowercase()
    apart = provider.str.contains("anthropic").fill_null(False) | (cache > said)
    tokens = pl.when(apart).then(said + cache).otherwise(said)
    mode = raw.text("meta", "$.request_mode").str.to_lowercase()
    ttft = raw.duration("usage", "ms", "$.time_to_first_token", strict=False)
    ttft = pl.when(ttft > 0).then(ttft)
    e2e = raw.duration("latencies", "ms", "$.request", strict=False)
    tries = raw.text("tries")
    told = raw.text("meta").is_not_null() | raw.text("usage").is_not_null()
    frame = raw.select(
        {
            "request_id": raw.text("request", "$.id"),
            "start": raw.instant("started_at", "ms"),
            "model": pl.coalesce(
                raw.text("meta", "$.response_model"), raw.text("meta", "$.request_model")
            ),
            "replica": tries.str.extract(r'(?s).*"ip"\s*:\s*"([^"]+)"'),
            "tenant": raw.text("consumer", "$.username"),
            "route": raw.text("route", "$.name"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "output_tokens": count("completion_tokens"),
            "reasoning_tokens": count("completion_tokens_details.reasoning_tokens"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "attempts": pl.when(tries.str.contains('"ip"', literal=True)).then(
                tries.str.count_matches(r'"ip"\s*:')
            ),
            "streamed": pl.when(mode.is_in(["stream", "oneshot"])).then(mode == "stream"),
            "status": status_of(raw.text("response", "$.status")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(~told)
        .then(pl.lit("not_a_model_call"))
        .when((raw.text("cache", "$.cache_status").str.to_lowercase() == "hit").fill_null(False))
        .then(pl.lit("response_cache_hit")),
        set_aside=pl.when(ttft >= e2e - _SAME_US).then(pl.lit("not_streamed")),
    )
    return Batch(
        frame,
        {k: v for k, v in FIELDS.items() if frame[k].count()},
        (tr("latencies.proxy ends with the server's headers, not with a token, and was not used"),),
    )


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    name="kong",
    title="Kong AI gateway logs",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Kong logs no session, no queue and no prefill time, and a first token only from 3.12 on "
        "with logging.log_statistics=true on the AI plugin"
    ),
)
