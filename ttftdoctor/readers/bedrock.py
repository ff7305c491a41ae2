"""Amazon Bedrock: model invocation logs from S3 or CloudWatch, one JSON object a line.

The stamp has whole seconds. Input counts leave out what was read from or written to a cache, so
the three are added up. The first byte is known only for ``InvokeModelWithResponseStream`` of
models that close their stream with invocation metrics (``firstByteLatency``, ms; the first chunk
of any kind); ``ConverseStream`` has the total alone. Bodies beyond a limit are moved to files of
their own, and the metrics with them.

It cannot tell: queue and prefill, sessions (but for one in ``requestMetadata``), and arrivals finer
than a second, so that bursts within a second look as if they came at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, page_of, pages, prompts_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed, status_by_error
from ttftdoctor.table import Field

_TEXTS = (
    "schemaType", "timestamp", "region", "inferenceRegion", "requestId", "operation", "modelId",
    "input", "output", "requestMetadata", "errorCode",
)  # fmt: skip
#: Where an event of CloudWatch (of its API, or of a query) holds a record.
_EVENT_TEXTS = ("message", "@message")
_METRICS = "$.outputBodyJson[*]['amazon-bedrock-invocationMetrics']"
_USAGE = "$.outputBodyJson.usage"
#: Where a stream keeps the usage of Anthropic's models.
_STREAMED_USAGE = "$.outputBodyJson[*].message.usage"
_CALLS = ("converse", "conversestream", "invokemodel", "invokemodelwithresponsestream")
#: Models that generate no text.
_OTHERS = r"embed|rerank|image|canvas|reel|sonic|stable-|stability\."
_SESSIONS = ("session_id", "sessionId", "session", "conversation_id", "conversationId")

FIELDS = {
    "request_id": Field("requestId", "", mark("Bedrock's name")),
    "session_id": Field("requestMetadata", "", mark("what the caller attached")),
    "start": Field("timestamp", "", mark("to a whole second")),
    "model": Field("modelId", "", mark("Bedrock's name")),
    "replica": Field("inferenceRegion, region", "", mark("the region that answered")),
    "route": Field("operation", "", mark("Bedrock's name")),
    "input_tokens": Field(
        "input.inputTokenCount and cache counts",
        "tokens",
        mark("fresh, read and written"),
        "derived",
    ),
    "cached_tokens": Field("input.cacheReadInputTokenCount", "tokens", mark("Bedrock's name")),
    "cache_write_tokens": Field(
        "input.cacheWriteInputTokenCount", "tokens", mark("Bedrock's name")
    ),
    "output_tokens": Field("output.outputTokenCount", "tokens", mark("Bedrock's name")),
    "ttft_us": Field("output (firstByteLatency)", "ms", mark("first byte of the stream")),
    "e2e_us": Field("output (invocationLatency, latencyMs)", "ms", mark("Bedrock's names")),
    "streamed": Field("operation", "", mark("operations that stream")),
    "status": Field("errorCode", "", mark("Bedrock's name")),
    "vantage": Field("", "", mark("the provider's own log"), "assumed"),
}


def _is_call(record: Mapping[str, Any]) -> bool:
    return record.get("schemaType") == "ModelInvocationLog"


def _in_event(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The record inside the text of an event of CloudWatch, or nothing."""
    text = record.get(name)
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return {}
    try:
        inside = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return inside if isinstance(inside, dict) else {}


def _wrapped(head: Head) -> str | None:
    """The member of CloudWatch's events that holds the records; None where they stand alone."""
    for _, records in pages(head, "events"):
        for name in _EVENT_TEXTS:
            if any(_is_call(_in_event(record, name)) for record in records):
                return name
    return None


def _recognise(head: Head) -> str | None:
    if any(map(_is_call, head.records)) or _wrapped(head) is not None:
        return tr("records of schemaType ModelInvocationLog")
    return None


def _convert(raw: Raw, prompts: Prompts | None, event: str | None) -> Batch:
    if event is not None:
        raw.frame = raw.frame.with_columns(raw.text(event, f"$.{n}").alias(n) for n in _TEXTS)

    def count(column: str, *paths: str) -> pl.Expr:
        return pl.coalesce([raw.count(column, path, strict=False) for path in paths])

    def ms(*paths: str) -> pl.Expr:
        return pl.coalesce([raw.duration("output", "ms", path, strict=False) for path in paths])

    said = count("input", "$.inputTokenCount")
    read = pl.coalesce(
        count("input", "$.cacheReadInputTokenCount"),
        count(
            "output",
            f"{_USAGE}.cacheReadInputTokens",
            f"{_USAGE}.cache_read_input_tokens",
            f"{_STREAMED_USAGE}.cache_read_input_tokens",
        ),
    )
    write = pl.coalesce(
        count("input", "$.cacheWriteInputTokenCount"),
        count(
            "output",
            f"{_USAGE}.cacheWriteInputTokens",
            f"{_USAGE}.cache_creation_input_tokens",
            f"{_STREAMED_USAGE}.cache_creation_input_tokens",
        ),
    )
    operation = raw.text("operation").str.to_lowercase()
    ttft = ms(f"{_METRICS}.firstByteLatency")
    e2e = ms(f"{_METRICS}.invocationLatency", "$.outputBodyJson.metrics.latencyMs",
             "$.outputBodyJson[*].metadata.metrics.latencyMs")  # fmt: skip
    tokens = said + read.fill_null(0) + write.fill_null(0)
    frame = raw.select(
        {
            "request_id": raw.text("requestId"),
            "session_id": pl.coalesce(raw.text("requestMetadata", f"$.{n}") for n in _SESSIONS),
            "start": raw.instant("timestamp"),
            "model": raw.text("modelId"),
            "replica": pl.coalesce(raw.text("inferenceRegion"), raw.text("region")),
            "route": raw.text("operation"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("output", "$.outputTokenCount"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "streamed": operation.str.ends_with("stream"),
            "status": status_by_error(raw.text("errorCode")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when((raw.text("schemaType") != "ModelInvocationLog").fill_null(True))
        .then(pl.lit("not_an_invocation"))
        .when(~operation.is_in(_CALLS) | raw.text("modelId").str.contains(_OTHERS))
        .then(pl.lit("not_a_model_call")),
        set_aside=not_streamed(ttft, e2e),
    )
    notes = (tr("read and written tokens were added to inputTokenCount, which leaves them out"),)
    return batch_of(frame, FIELDS, notes, raw=raw, prompts=prompts)


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    inside = record.get("input")
    body = inside.get("inputBodyJson") if isinstance(inside, dict) else None
    return body if isinstance(body, dict) else {}


def _plan(head: Head, options: Options) -> Plan:
    where, event = None, None if any(map(_is_call, head.records)) else _wrapped(head)
    unwrap = page_of(head, "events") if event else None
    records = head.inner[unwrap] if unwrap else head.records
    if event:
        records = tuple(_in_event(record, event) for record in records)
    if any(isinstance(_body(record).get("messages"), list) for record in records):
        where = Where(
            messages=Place("input", ("inputBodyJson", "messages")),
            system=Place("input", ("inputBodyJson", "system")),
            tools=Place("input", ("inputBodyJson", "tools")),
        )
    prompts = prompts_of(where, options)
    return Plan(
        dict.fromkeys(_TEXTS if event is None else (event,), pl.String),
        partial(_convert, prompts=prompts, event=event),
        unwrap=unwrap,
    )


READER = Reader(
    name="bedrock",
    title="Amazon Bedrock model invocation logs",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Bedrock logs have no queue, no prefill time and no session (attach requestMetadata), and "
        "a first byte only for InvokeModelWithResponseStream with text data delivery on; for "
        "Converse measure the first token at the client"
    ),
)
