"""Cloudflare AI Gateway: logs of its REST API (``result``), and Logpush lines.

Both are written when an answer has ended: the request started its duration (ms) before, to the
second where the stamp has no more. There is no first token and no count of a provider's cached
tokens; ``cached`` means a stored response. A fallback is a log of its own, whose ``step`` tells
which try it was. Bodies in Logpush are encrypted and never read.

It cannot tell: first token, queue, prefill, cached tokens; whether ``tokens_in`` of a provider
includes cached tokens. Sessions are there only if the caller put one into the metadata.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, complete, page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "id", "created_at", "provider", "model", "model_type", "path", "cached", "duration",
    "tokens_in", "tokens_out", "metadata", "success", "status_code", "step", "Timestamp", "Cached",
    "Endpoint", "Provider", "Model", "Metrics", "StatusCode", "RateLimited", "RayID",
)  # fmt: skip
_SESSIONS = ("session", "session_id", "sessionId", "conversation_id", "thread_id")
_OTHERS = r"embed|rerank|moderation|image|audio|speech|transcri"

FIELDS = {
    "request_id": Field("id, RayID", "", mark("Cloudflare's names")),
    "session_id": Field("metadata", "", mark("what the caller attached")),
    "start": Field(
        "created_at - duration, Timestamp - Metrics.durationMs",
        "",
        mark("stamped at the end"),
        "assumed",
    ),
    "model": Field("model, Model", "", mark("Cloudflare's names")),
    "route": Field("provider, Provider", "", mark("Cloudflare's names")),
    "input_tokens": Field("tokens_in", "tokens", mark("by the gateway's count")),
    "output_tokens": Field("tokens_out", "tokens", mark("by the gateway's count")),
    "e2e_us": Field("duration, Metrics.durationMs", "ms", mark("Cloudflare's names")),
    "attempts": Field("step", "", mark("the step of the fallback"), "derived"),
    "status": Field("status_code, StatusCode, success", "", mark("Cloudflare's names")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "result"):
        for record in records:
            if {"tokens_in", "tokens_out", "cached", "duration"} <= record.keys():
                return tr("tokens_in, tokens_out, cached and duration{where}", where=where)
            metrics = record.get("Metrics")
            if "Timestamp" in record and isinstance(metrics, dict) and "durationMs" in metrics:
                return tr("Timestamp and Metrics.durationMs")
    return None


def _convert(raw: Raw) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)
    e2e = pl.coalesce(
        raw.duration("duration", "ms"), raw.duration("Metrics", "ms", "$.durationMs", strict=False)
    )
    end = pl.coalesce(raw.instant("created_at"), raw.instant("Timestamp"))
    code = pl.coalesce(raw.text("status_code"), raw.text("StatusCode"))
    failed = (~raw.boolean("success")).fill_null(False)
    tokens = raw.count("tokens_in")
    kind = pl.coalesce(raw.text("model_type"), raw.text("path"), raw.text("Endpoint"))
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text("id"), raw.text("RayID")),
            "session_id": pl.coalesce(raw.text("metadata", f"$.{n}") for n in _SESSIONS),
            "start": end - e2e.fill_null(0),
            "model": pl.coalesce(raw.text("model"), raw.text("Model")),
            "route": pl.coalesce(raw.text("provider"), raw.text("Provider")),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "output_tokens": raw.count("tokens_out"),
            "e2e_us": e2e,
            "attempts": raw.count("step", strict=False) + 1,
            "status": pl.when(raw.boolean("RateLimited"))
            .then(pl.lit("rate_limited"))
            .when(failed & (status_of(code) == "ok").fill_null(True))
            .then(pl.lit("error"))
            .otherwise(status_of(code)),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(pl.coalesce(raw.boolean("cached"), raw.boolean("Cached")))
        .then(pl.lit("response_cache_hit"))
        .when(kind.str.to_lowercase().str.contains(_OTHERS))
        .then(pl.lit("not_a_chat_call")),
    )
    return batch_of(frame, FIELDS, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert, unwrap=page_of(head, "result"))


READER = Reader(
    name="cloudflare",
    title="Cloudflare AI Gateway logs (REST, Logpush; no TTFT)",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Cloudflare's gateway logs no first token and no cached tokens: measure them at the client "
        "(stream_options.include_usage), and send cf-aig-metadata with a session"
    ),
)
