"""LiteLLM's proxy: standard logging payloads, and rows of its spend table.

Payloads come from the callbacks ``s3_v2``, ``gcs_bucket`` and ``generic_api`` (one object, JSON
lines, or arrays); spend rows from ``/spend/logs/v2`` pages or a copy of ``LiteLLM_SpendLogs``
(JSON or CSV, stamps in UTC without a zone). The clock starts where the proxy takes the request
in, so routing, retries and LiteLLM's own work are inside the TTFT.

It cannot tell: queue or prefill times of the server behind, how many tries a row took, the first
token of a call that was not streamed (the proxy then writes the end in its place), and, where
callers send no session, which requests belong together (each then has a session of its own).
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "id", "request_id", "litellm_call_id", "call_type", "stream", "status", "session_id",
    "trace_id", "startTime", "endTime", "completionStartTime", "model", "model_group", "model_id",
    "api_base", "api_key", "team_id", "end_user", "prompt_tokens", "completion_tokens",
    "cache_hit", "metadata", "request_tags", "error_information",
)  # fmt: skip

#: Calls that generate text. Pass-through calls count where the proxy saw tokens of both sides.
_CHAT = r"^a?(text_)?completion$|^a?responses$|anthropic_messages|generate_content"
_PASSED = r"pass_?through"
_PROBE = "litellm-internal-health-check"

#: The proxy writes the end as the first token of a call it did not stream; both are rounded.
_SAME_US = 1000

_SOURCES = {
    "request_id": "request_id, id, litellm_call_id",
    "session_id": "session_id, trace_id",
    "start": "startTime",
    "model": "model_group, model",
    "replica": "model_id",
    "tenant": "metadata.user_api_key_team_alias, team_id, metadata.user_api_key_alias",
    "route": "api_base",
    "input_tokens": "prompt_tokens",
    "cached_tokens": "metadata.usage_object",
    "cache_write_tokens": "metadata.usage_object",
    "output_tokens": "completion_tokens",
    "reasoning_tokens": "metadata.usage_object",
    "streamed": "stream",
    "status": "status",
}
FIELDS = {name: Field(source, "", mark("LiteLLM's name")) for name, source in _SOURCES.items()} | {
    "ttft_us": Field(
        "completionStartTime - startTime", "s", mark("first chunk less start"), "derived"
    ),
    "e2e_us": Field("endTime - startTime", "s", mark("end less start"), "derived"),
    "vantage": Field("", "", mark("the proxy's own log"), "assumed"),
}
_NOTES = (
    mark(
        "the TTFT starts where LiteLLM takes the request in: its routing, retries and overhead "
        "count"
    ),
    mark("prompt_tokens include the cached ones for every provider (LiteLLM adds them)"),
)


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        if records and sum("call_type" in r and "startTime" in r for r in records) * 2 > len(
            records
        ):
            if any("completionStartTime" in r and "request_id" not in r for r in records):
                return tr("call_type, startTime and completionStartTime{where}", where=where)
            if any("request_id" in r and "spend" in r for r in records):
                return tr("call_type, startTime, request_id and spend{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    usage = pl.coalesce(
        raw.text("metadata", "$.usage_object"), raw.text("metadata", "$.additional_usage_values")
    )
    failure = pl.coalesce(
        raw.text("error_information"), raw.text("metadata", "$.error_information")
    )
    raw.frame = raw.frame.with_columns(usage.alias("usage"), failure.alias("failure"))

    def counted(*paths: str) -> pl.Expr:
        return pl.max_horizontal([raw.count("usage", path, strict=False) for path in paths])

    start, end = raw.instant("startTime"), raw.instant("endTime")
    first = raw.instant("completionStartTime")
    ttft = first - start
    call = raw.text("call_type").str.to_lowercase()
    given, made = raw.count("prompt_tokens"), raw.count("completion_tokens")
    passed = call.str.contains(_PASSED) & (given > 0) & (made > 0)
    probe = pl.any_horizontal(
        [
            raw.text(name).str.contains(_PROBE, literal=True).fill_null(False)
            for name in ("api_key", "metadata", "request_tags")
        ]
    )
    cause = pl.coalesce(
        status_of(raw.text("failure", f"$.{key}"))
        for key in ("error_code", "error_class", "error_message")
    )
    status = status_of(raw.text("status"))
    status = (
        pl.when(status == "error")
        .then(pl.when(cause.is_in(["rate_limited", "aborted"])).then(cause).otherwise(status))
        .otherwise(status)
    )
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text(n) for n in ("request_id", "id", "litellm_call_id")),
            "session_id": pl.coalesce(raw.text("session_id"), raw.text("trace_id")),
            "start": start,
            "model": pl.coalesce(raw.text("model_group"), raw.text("model")),
            "replica": raw.text("model_id"),
            "tenant": pl.coalesce(
                raw.text("metadata", "$.user_api_key_team_alias"),
                raw.text("team_id"),
                raw.text("metadata", "$.user_api_key_team_id"),
                raw.text("metadata", "$.user_api_key_alias"),
            ),
            "route": raw.text("api_base"),
            "input_tokens": pl.when(given != 0).then(given),
            "cached_tokens": counted(
                "$.prompt_tokens_details.cached_tokens", "$.cache_read_input_tokens"
            ),
            "cache_write_tokens": counted(
                "$.prompt_tokens_details.cache_creation_tokens",
                "$.prompt_tokens_details.cache_write_tokens",
                "$.cache_creation_input_tokens",
            ),
            "output_tokens": made,
            "reasoning_tokens": counted("$.completion_tokens_details.reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": end - start,
            "status": status,
            "streamed": raw.boolean("stream"),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(probe)
        .then(pl.lit("health_check"))
        .when(~(call.str.contains(_CHAT) | passed))
        .then(pl.lit("not_a_chat_call"))
        .when(raw.boolean("cache_hit"))
        .then(pl.lit("response_cache_hit")),
        set_aside=pl.when(first.is_null() | (first >= end - _SAME_US))
        .then(pl.lit("not_streamed"))
        .when(ttft < 0)
        .then(pl.lit("first_token_before_start")),
    )
    return batch_of(frame, FIELDS, tuple(map(tr, _NOTES)), raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, "data", unless="call_type")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap)


READER = Reader(
    name="litellm",
    title="LiteLLM logging payloads and spend logs",
    shapes=(Shape.JSON, Shape.CSV),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "LiteLLM logs no queue and no prefill time, a first token only for streamed calls, and "
        "cached tokens only if the server reports them (vLLM --enable-prompt-tokens-details, "
        "SGLang --enable-cache-report)"
    ),
)
