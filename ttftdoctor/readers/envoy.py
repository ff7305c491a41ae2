"""Envoy AI gateway: JSON access logs with the keys of its documented template.

The operator chooses the keys, so the usual ones are read: GenAI names for models and tokens,
``token_latency_ttft`` (ms) for the gateway's first token, ``duration`` (ms) for the whole request.
``x-envoy-upstream-service-time`` and ``%RESPONSE_DURATION%`` end with the server's headers, which
many send before they have read the prompt: they are never used. ``-`` stands for no value. Retries
are inside the times.

It cannot tell: queue, prefill and (but for a header the operator logs) sessions.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

#: Canonical column to the keys that mean it; the first that is there counts.
_KEYS: dict[str, tuple[str, ...]] = {
    "request_id": ("x-request-id", "request_id"),
    "session_id": ("gen_ai.conversation.id", "session.id", "x-session-id", "session_id"),
    "start": ("start_time",),
    "model": ("gen_ai.response.model", "gen_ai.request.model", "response_model", "request_model"),
    "replica": ("upstream_host",),
    "route": ("route_name", "gen_ai.provider.name"),
    "input_tokens": ("gen_ai.usage.input_tokens", "llm_input_token"),
    "cached_tokens": (
        "gen_ai.usage.cached_input_tokens", "gen_ai.usage.cache_read.input_tokens",
        "llm_cached_input_token",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_creation.input_tokens",
        "llm_cache_creation_input_token",
    ),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm_output_token"),
    "reasoning_tokens": ("gen_ai.usage.reasoning_tokens", "llm_reasoning_token"),
    "ttft_us": ("token_latency_ttft", "time_to_first_token"),
    "e2e_us": ("duration",),
    "attempts": ("upstream_request_attempt_count",),
    "status": ("response_code",),
}  # fmt: skip
_FLAGS = "response_flags"
_HEADERS = "x-envoy-upstream-service-time"
_TEXTS = (*dict.fromkeys(key for keys in _KEYS.values() for key in keys), _FLAGS)
#: The client went away before the end.
_GONE = r"\bDC\b|\bDR\b"
_SAME_US = 1000


def _recognise(head: Head) -> str | None:
    seen = set(head.columns)
    if "ai_log" in seen or "start_time" not in seen:
        return None
    if "token_latency_ttft" in seen:
        return tr("start_time and token_latency_ttft")
    tokens = {"gen_ai.usage.input_tokens", "llm_input_token"} & seen
    if tokens and {_FLAGS, _HEADERS} & seen:
        return tr("start_time, response_flags and {tokens}", tokens=tokens.pop())
    return None


def _convert(raw: Raw) -> Batch:
    def text(column: str) -> pl.Expr:
        return pl.coalesce([raw.text(key) for key in _KEYS[column]])

    def count(column: str) -> pl.Expr:
        return pl.coalesce([raw.count(key, strict=False) for key in _KEYS[column]])

    def ms(column: str) -> pl.Expr:
        value = pl.coalesce([raw.duration(key, "ms", strict=False) for key in _KEYS[column]])
        return pl.when(value > 0).then(value)

    said, read, write = count("input_tokens"), count("cached_tokens"), count("cache_write_tokens")
    cache = read.fill_null(0) + write.fill_null(0)
    tokens = pl.when(cache > said).then(said + cache).otherwise(said)
    ttft, e2e = ms("ttft_us"), ms("e2e_us")
    frame = raw.select(
        {
            **{c: text(c) for c in ("request_id", "session_id", "model", "replica", "route")},
            "start": raw.instant("start_time"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("output_tokens"),
            "reasoning_tokens": count("reasoning_tokens"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "attempts": count("attempts"),
            "status": pl.when(raw.text(_FLAGS).str.contains(_GONE))
            .then(pl.lit("aborted"))
            .otherwise(status_of(text("status"))),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(said.is_null() & text("model").is_null() & ttft.is_null()).then(
            pl.lit("not_a_model_call")
        ),
        set_aside=pl.when(ttft >= e2e - _SAME_US).then(pl.lit("not_streamed")),
    )
    fields = {
        column: Field(", ".join(keys), "ms" if column in ("ttft_us", "e2e_us") else "",
                      mark("the documented template's keys"))
        for column, keys in _KEYS.items()
    } | {"vantage": Field("", "", mark("the gateway's own log"), "assumed")}  # fmt: skip
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()})


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    name="envoy",
    title="Envoy AI gateway access logs (JSON)",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Envoy logs a first token only as token_latency_ttft: "
        "%DYNAMIC_METADATA(io.envoy.ai_gateway:token_latency_ttft)% in the access log's format; "
        "its other times end with headers"
    ),
)
