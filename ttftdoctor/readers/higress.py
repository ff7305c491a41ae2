"""Higress: the JSON access log, with what the ai-statistics plugin adds in ``ai_log``.

``ai_log`` is JSON inside text; its numbers at times are text again, and a bare ``-`` stands for a
request that was no call of a model. ``llm_first_token_duration`` (ms, streams only) ends with the
first bytes of the body. ``duration`` (ms) is the whole request. Cached tokens are part of
``input_token``; a row with more of them is of a provider that leaves them out, and is added up.

It cannot tell: queue and prefill. ``upstream_service_time`` ends with headers and is never used.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed, whole_prompt
from ttftdoctor.table import Field

_TEXTS = (
    "start_time", "duration", "response_code", "request_id", "upstream_host", "route_name",
    "ai_log",
)  # fmt: skip

FIELDS = {
    "request_id": Field("request_id", "", mark("Higress's name")),
    "session_id": Field("ai_log.session_id", "", mark("Higress's name")),
    "start": Field("start_time", "", mark("Higress's name")),
    "model": Field("ai_log.model", "", mark("Higress's name")),
    "replica": Field("upstream_host", "", mark("Higress's name")),
    "route": Field("route_name", "", mark("Higress's name")),
    "input_tokens": Field("ai_log.input_token", "tokens", mark("cached ones included")),
    "cached_tokens": Field("ai_log.cached_tokens", "tokens", mark("Higress's name")),
    "output_tokens": Field("ai_log.output_token", "tokens", mark("Higress's name")),
    "reasoning_tokens": Field("ai_log.reasoning_tokens", "tokens", mark("Higress's name")),
    "ttft_us": Field("ai_log.llm_first_token_duration", "ms", mark("first bytes of the body")),
    "e2e_us": Field("duration, ai_log.llm_service_duration", "ms", mark("Higress's names")),
    "streamed": Field("ai_log.response_type", "", mark("normal is not streamed")),
    "status": Field("response_code", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for record in head.records:
        inside = record.get("ai_log")
        if isinstance(inside, str) and inside.lstrip().startswith("{"):
            return tr("ai_log with JSON inside text")
    return None


def _convert(raw: Raw) -> Batch:
    def count(name: str) -> pl.Expr:
        return raw.count("ai_log", f"$.{name}", strict=False)

    details = {
        name: raw.text("ai_log", f"$.{name}")
        for name in ("input_token_details", "output_token_details")
    }
    raw.frame = raw.frame.with_columns(text.alias(name) for name, text in details.items())

    def detail(side: str, name: str) -> pl.Expr:
        return raw.count(f"{side}_token_details", f"$.{name}", strict=False)

    said = count("input_token")
    read = pl.coalesce(count("cached_tokens"), detail("input", "cached_tokens"))
    ttft = raw.duration("ai_log", "ms", "$.llm_first_token_duration", strict=False)
    ttft = pl.when(ttft > 0).then(ttft)
    e2e = pl.coalesce(
        raw.duration("duration", "ms"),
        raw.duration("ai_log", "ms", "$.llm_service_duration", strict=False),
    )
    kind = raw.text("ai_log", "$.response_type").str.to_lowercase()
    frame = raw.select(
        {
            "request_id": raw.text("request_id"),
            "session_id": raw.text("ai_log", "$.session_id"),
            "start": raw.instant("start_time"),
            "model": raw.text("ai_log", "$.model"),
            "replica": raw.text("upstream_host"),
            "route": raw.text("route_name"),
            "input_tokens": whole_prompt(said, read),
            "cached_tokens": read,
            "output_tokens": count("output_token"),
            "reasoning_tokens": pl.coalesce(
                count("reasoning_tokens"), detail("output", "reasoning_tokens")
            ),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "streamed": pl.when(kind.is_in(["stream", "normal"])).then(kind == "stream"),
            "status": status_of(raw.text("response_code")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(raw.text("ai_log").is_null()).then(pl.lit("not_a_model_call")),
        set_aside=not_streamed(ttft, e2e),
    )
    return batch_of(frame, FIELDS, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    name="higress",
    title="Higress access logs with ai_log",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Higress logs no queue and no prefill time; a first token and cached tokens need the "
        "ai-statistics plugin with use_default_attributes: true"
    ),
)
