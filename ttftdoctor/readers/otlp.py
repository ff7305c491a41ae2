"""OpenTelemetry spans as OTLP/JSON: lines of the collector's file exporter, or one document.

Spans come in requests of exporters, traces of Tempo, pages of Phoenix (``otlpv1``), or one by one
as Python's console exporter prints them. Of log records those are read that tell of a call (Claude
Code's ``api_request``, ``api_response`` of Qwen Code and Gemini CLI), unless a span tells of it.

Written by engines (vLLM ``llm_request``, SGLang ``Req ...``) and by instrumented clients (GenAI
conventions of every generation, OpenInference, Vercel ``ai.*``, Claude Code). Each span is a row;
spans that are no call of a model are turned away by name, and so are client spans that are the
parent of another client's call (a framework's around its library's). The span of an engine beside
that of its client is kept: they are two clocks.

It cannot tell: cached tokens, model and session of a vLLM span; the queue of an SGLang span (its
``time_in_model_prefill`` begins before the queue, so it is no prefill time either); requests the
client gave up on in vLLM, which make no span.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import no_first_token
from ttftdoctor.table import LINE, Field

#: Which attributes of a span or its resource mean what; the first that is there counts.
NAMES: dict[str, tuple[str, ...]] = {
    "request_id": ("gen_ai.request.id", "rid", "request_id", "gen_ai.response.id"),
    "session_id": (
        "gen_ai.conversation.id", "session.id", "langfuse.session.id",
        "ai.telemetry.metadata.sessionId", "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
        "langfuse.observation.metadata.langfuse_session_id",
    ),
    "model": (
        "gen_ai.response.model", "gen_ai.request.model", "llm.response.model_name",
        "llm.model_name", "llm.request.model_name", "ai.response.model", "ai.model.id",
        "langfuse.observation.model.name", "model",
    ),
    "replica": ("service.instance.id", "k8s.pod.name", "host.name"),
    "route": ("server.address",),
    "version": ("service.version",),
    "input_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
        "llm.token_count.prompt", "ai.usage.inputTokens", "ai.usage.promptTokens", "input_tokens",
        "input_token_count",
    ),
    "fresh_tokens": ("ai.usage.inputTokenDetails.noCacheTokens",),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.cached_tokens",
        "llm.token_count.prompt_details.cache_read", "ai.usage.inputTokenDetails.cacheReadTokens",
        "ai.usage.cachedInputTokens", "cache_read_tokens", "cached_content_token_count",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_write_input_tokens",
        "gen_ai.usage.details.cache_write_tokens",
        "llm.token_count.prompt_details.cache_write",
        "ai.usage.inputTokenDetails.cacheWriteTokens", "cache_creation_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens", "llm.token_count.completion", "ai.usage.outputTokens",
        "ai.usage.completionTokens", "output_tokens", "output_token_count",
    ),
    "total_tokens": (
        "gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total",
        "total_token_count",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
        "thoughts_token_count",
    ),
    "usage": ("langfuse.observation.usage_details",),
    "provider": ("ai.model.provider",),
    "provider_metadata": ("ai.response.providerMetadata",),
    "ttft_us": (
        "gen_ai.latency.time_to_first_token", "gen_ai.response.time_to_first_chunk",
        "gen_ai.client.operation.time_to_first_chunk", "gen_ai.server.time_to_first_token",
        "ttft_ms", "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk",
    ),
    "completion_start": ("langfuse.observation.completion_start_time",),
    "e2e_us": ("gen_ai.latency.e2e", "duration_ms"),
    "queue_us": ("gen_ai.latency.time_in_queue",),
    "prefill_us": ("gen_ai.latency.time_in_model_prefill",),
    "decode_us": ("gen_ai.latency.time_in_model_decode",),
    "resends": ("http.request.resend_count",),
    "attempts": ("attempt",),
    "streamed": ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"),
    "operation": ("gen_ai.operation.name", "llm.request.type"),
    "kind": ("openinference.span.kind", "langfuse.observation.type", "span.type"),
    "workflow": ("traceloop.span.kind",),
    "module": ("module",),
    "finish": ("gen_ai.response.finish_reasons", "stop_reason"),
    "error": ("error.type", "http.response.status_code", "status_code"),
    "success": ("success",),
    "event": ("event.name",),
    "service": ("service.name",),
    "messages": ("gen_ai.input.messages", "ai.prompt.messages"),
    "system": ("gen_ai.system_instructions",),
    "tools": ("gen_ai.tool.definitions",),
}  # fmt: skip
_WANTED = sorted({name for names in NAMES.values() for name in names})
_SERVER_TTFT = "gen_ai.server.time_to_first_token"
_MS = ("ttft_ms", "duration_ms", "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")

#: Operations and kinds that are one call of a model; other operations only wrap or serve one.
OPERATIONS = (
    "chat", "generate_content", "text_completion", "completion",
    # LiteLLM names the call it serves, Semantic Kernel the service.
    "acompletion", "atext_completion", "responses", "aresponses", "anthropic_messages",
    "agenerate_content", "generate_content_stream", "agenerate_content_stream",
    "chat.completions", "text.completions",
)  # fmt: skip
KINDS = ("llm", "generation", "llm_request")
#: What makes up a prompt, under the names it has in :data:`NAMES`.
PROMPT = ("messages", "system", "tools")
#: Prompts with an attribute for the role and the content of each message, by their numbers.
NUMBERED = ("gen_ai.prompt.", "llm.input_messages.")
_NUMBERED = (
    r"^(?:gen_ai\.prompt\.(\d{1,6})|llm\.input_messages\.(\d{1,6})\.message)\.(role|content)$"
)
FIRST_TOKEN_EVENTS = ("First Token Stream Event", "ai.stream.firstChunk", "mlflow.chunk.item.0")

# Fields have two spellings in the wild: that of OTLP/JSON and that of the protocol file.
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue",
           "string_value", "int_value", "double_value", "bool_value")  # fmt: skip
_TIMES = ("startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano")
_PARENTS = ("parentSpanId", "parent_span_id")
_EVENT_TIMES = ("timeUnixNano", "time_unix_nano")
_LOG_TIMES = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano")


def _texts(*names: str) -> dict[str, pl.DataType]:
    return {name: pl.String() for name in names}


_ATTRIBUTES = pl.List(pl.Struct({"key": pl.String(), "value": pl.Struct(_texts(*_VALUES))}))
_SPAN = pl.Struct(
    {
        **_texts("name", "spanId", "span_id", *_PARENTS, *_TIMES),
        "attributes": _ATTRIBUTES,
        "events": pl.List(pl.Struct(_texts("name", *_EVENT_TIMES))),
        "status": pl.Struct(_texts("code")),
    }
)
_SCOPE = pl.List(pl.Struct({"scope": pl.Struct(_texts("name")), "spans": pl.List(_SPAN)}))
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_RESOURCE = pl.List(
    pl.Struct(
        {"resource": pl.Struct({"attributes": _ATTRIBUTES}), **dict.fromkeys(_SCOPES, _SCOPE)}
    )
)
_ROOTS = ("resourceSpans", "resource_spans", "batches")
_TRACE = pl.Struct(dict.fromkeys(_ROOTS, _RESOURCE))
_LOGGED = pl.Struct(
    {
        **_texts("eventName", "event_name", *_LOG_TIMES),
        "body": pl.Struct(_texts("stringValue", "string_value")),
        "attributes": _ATTRIBUTES,
    }
)
_RECORDS = ("logRecords", "log_records")
_LOG_SCOPE = pl.List(
    pl.Struct({"scope": pl.Struct(_texts("name")), **dict.fromkeys(_RECORDS, pl.List(_LOGGED))})
)
_LOG_SCOPES = ("scopeLogs", "scope_logs")
_LOG_RESOURCE = pl.List(
    pl.Struct(
        {
            "resource": pl.Struct({"attributes": _ATTRIBUTES}),
            **dict.fromkeys(_LOG_SCOPES, _LOG_SCOPE),
        }
    )
)
_LOG_ROOTS = ("resourceLogs", "resource_logs")
_METRICS = ("resourceMetrics", "resource_metrics")
#: Events in which coding agents log a call that has ended.
_CALL_EVENT = r"^(?:[\w-]+\.)?api_(?:request|response|error)$"
#: A span as Python's console exporter prints it, an object of many lines.
_PRINTED: dict[str, Any] = {
    **_texts("name", "parent_id", "start_time", "end_time", "attributes", "resource"),
    "context": pl.Struct(_texts("span_id")),
    "status": pl.Struct(_texts("status_code")),
    "events": pl.List(pl.Struct(_texts("name", "timestamp"))),
}


def _recognise(head: Head) -> str | None:
    traces = [r["trace"] for r in head.records if isinstance(r.get("trace"), dict)]
    for root in _ROOTS:
        spans = [r[root] for r in (*head.records, *traces) if isinstance(r.get(root), list)]
        if any(
            isinstance(part, dict) and any(scope in part for scope in _SCOPES)
            for parts in spans
            for part in parts
        ):
            return tr("records with {root} that hold spans", root=root)
    for where, records in pages(head, "data"):
        if any(_is_span(record) for record in records):
            return tr("spans with times in Unix nanoseconds{where}", where=where)
    if any(_is_printed(record) for record in head.records):
        return tr("spans as OpenTelemetry's console exporter prints them")
    # The lines of a collector hold spans, logs and metrics as they came.
    for root in (*_LOG_ROOTS, *_METRICS):
        if any(isinstance(record.get(root), list) for record in head.records):
            return tr("records with {root}", root=root)
    return None


def _is_span(record: Mapping[str, Any]) -> bool:
    """Whether a record is a span on its own, in either spelling."""
    return isinstance(record.get("attributes"), list) and (
        {"startTimeUnixNano", "spanId"} <= record.keys()
        or {"start_time_unix_nano", "span_id"} <= record.keys()
    )


def _is_printed(record: Mapping[str, Any]) -> bool:
    context = record.get("context")
    return (
        isinstance(context, dict)
        and {"trace_id", "span_id"} <= context.keys()
        and {"kind", "parent_id", "start_time", "attributes"} <= record.keys()
        and str(record["kind"]).startswith("SpanKind.")
    )


def _inside(column: str, *names: str) -> pl.Expr:
    return pl.coalesce([pl.col(column).struct.field(name) for name in names])


def _unnested(
    frame: pl.DataFrame, parts: pl.Expr, scopes: tuple[str, ...], items: tuple[str, ...]
) -> pl.DataFrame:
    """One row an item: its line, the attributes of its resource, the name of its scope."""
    return (
        frame.select(LINE, parts.alias("part"))
        .explode("part", empty_as_null=True)
        .select(
            LINE,
            _inside("part", *scopes).alias("scope"),
            pl.col("part").struct.field("resource").struct.field("attributes").alias("about"),
        )
        .explode("scope", empty_as_null=True)
        .select(
            LINE, "about", _inside("scope", *items).alias("span"),
            pl.col("scope").struct.field("scope").struct.field("name").alias("scope"),
        )
        .explode("span", empty_as_null=True)
    )  # fmt: skip


def _as_span(**fields: pl.Expr) -> pl.Expr:
    """A span of these fields; the others are null."""
    empty = [
        pl.lit(None, dtype=part.dtype).alias(part.name)
        for part in _SPAN.fields
        if part.name not in fields
    ]
    given = [value.alias(name) for name, value in fields.items()]
    whole = pl.struct([*given, *empty])
    return pl.struct(whole.struct.field(part.name) for part in _SPAN.fields)


def _logged(frame: pl.DataFrame) -> pl.DataFrame:
    """The log records that tell of a call, as spans that have an end alone."""
    logs = _unnested(frame, pl.coalesce(_LOG_ROOTS), _LOG_SCOPES, _RECORDS)
    log, pair = pl.col("span").struct, pl.element().struct
    times = (log.field(name) for name in _LOG_TIMES)
    body = pl.coalesce(log.field("body").struct.field(n) for n in ("stringValue", "string_value"))
    event = (
        log.field("attributes").list.eval(
            pl.when(pair.field("key") == "event.name")
            .then(pl.coalesce(pair.field("value").struct.field(name) for name in _VALUES))
        ).list.drop_nulls().list.first()
    )  # fmt: skip
    name = pl.coalesce(
        pl.when(body.str.contains(_CALL_EVENT)).then(body),
        log.field("eventName"), log.field("event_name"), event,
    )  # fmt: skip
    ended = pl.coalesce(pl.when(time != "0").then(time) for time in times)
    return (
        logs.with_columns(name.alias("name"))
        .filter(pl.col("name").str.contains(_CALL_EVENT))
        .select(
            LINE, "about",
            _as_span(
                name=pl.col("name"), endTimeUnixNano=ended, attributes=log.field("attributes")
            ).alias("span"),
            "scope",
        )
    )  # fmt: skip


def _object(text: str | None) -> dict[str, Any]:
    """The object of a JSON text; an empty one if it is none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _printed(raw: Raw) -> pl.DataFrame:
    """What the console exporter printed, as the spans of a request."""

    def nanoseconds(stamp: pl.Expr) -> pl.Expr:
        return (stamp * 1000).cast(pl.String)

    def pairs(texts: pl.Series) -> pl.Series:
        made = []
        for text in texts:
            given = _object(text)
            given = given.get("attributes", given)
            told = given.items() if isinstance(given, dict) else ()
            made.append([
                {"key": key, "value": {"stringValue": value if isinstance(value, str)
                                       else json.dumps(value)}}
                for key, value in told if value is not None
            ])  # fmt: skip
        return pl.Series(made, dtype=_ATTRIBUTES)

    event = pl.element().struct
    moment = event.field("timestamp").str.to_datetime(
        "%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", strict=False
    )
    events = pl.col("events").list.eval(
        pl.struct(
            event.field("name").alias("name"),
            nanoseconds(moment.dt.epoch("us")).alias(_EVENT_TIMES[0]),
            pl.lit(None, pl.String).alias(_EVENT_TIMES[1]),
        )
    )
    code = pl.col("status").struct.field("status_code")
    span = _as_span(
        name=pl.col("name"),
        spanId=pl.col("context").struct.field("span_id").str.strip_prefix("0x"),
        parentSpanId=pl.col("parent_id").str.strip_prefix("0x"),
        startTimeUnixNano=nanoseconds(raw.instant("start_time")),
        endTimeUnixNano=nanoseconds(raw.instant("end_time")),
        attributes=pl.col("attributes").map_batches(pairs, return_dtype=_ATTRIBUTES),
        events=events,
        status=pl.struct(pl.format("STATUS_CODE_{}", code).alias("code")),
    )
    about = pl.col("resource").map_batches(pairs, return_dtype=_ATTRIBUTES)
    return raw.frame.select(
        LINE, about.alias("about"), span.alias("span"), pl.lit(None, pl.String).alias("scope")
    )


def _spans(raw: Raw) -> pl.DataFrame:
    """One row a span, or a log record that tells of a call: its line, resource and scope."""
    if raw.has("context"):
        return _printed(raw)
    if raw.has("spanId"):
        fields = {part.name: pl.col(part.name) for part in _SPAN.fields}
        return raw.frame.select(
            LINE,
            pl.lit(None, _ATTRIBUTES).alias("about"),
            _as_span(**fields).alias("span"),
            pl.lit(None, pl.String).alias("scope"),
        )
    trace = pl.col("trace").struct
    parts = pl.coalesce(*_ROOTS, *(trace.field(root) for root in _ROOTS))
    spans = _unnested(raw.frame, parts, _SCOPES, ("spans",))
    logs = _logged(raw.frame)
    return pl.concat([spans, logs]).sort(LINE, maintain_order=True) if logs.height else spans


def _flatten(raw: Raw) -> pl.DataFrame:
    """One row a span with the wanted attributes as text columns; a line without spans stays."""
    spans = (
        _spans(raw)
        .with_columns(pl.col("span").is_not_null().alias("real"))
        .filter(pl.col("real") | ~pl.col("real").any().over(LINE))
        .filter(pl.col("real") | pl.col(LINE).is_first_distinct())
        .with_row_index("row")
    )
    seen = pl.concat(
        [
            spans.select("row", pl.col("span").struct.field("attributes").alias("pair")),
            spans.select("row", pl.col("about").alias("pair")),
        ]
    ).explode("pair")
    named = seen.select(
        "row",
        pl.col("pair").struct.field("key").alias("key"),
        pl.coalesce(
            [pl.col("pair").struct.field("value").struct.field(name) for name in _VALUES]
        ).alias("value"),
    )
    attributes = named.filter(pl.col("key").is_in(_WANTED)).pivot(
        on="key", index="row", values="value", aggregate_function="first"
    )
    event = pl.element().struct
    first_token = (
        pl.col("span").struct.field("events").list.eval(
            pl.when(event.field("name").is_in(FIRST_TOKEN_EVENTS))
            .then(pl.coalesce([event.field(name) for name in _EVENT_TIMES]))
        ).list.drop_nulls().list.first()
    )  # fmt: skip
    return spans.select(
        LINE, "row", "scope", "real",
        pl.col("span").struct.field("name").fill_null("").alias("span_name"),
        _inside("span", "spanId", "span_id").alias("span_id"),
        _inside("span", *_PARENTS).alias("parent_id"),
        _inside("span", *_TIMES[:2]).alias("span_start"),
        _inside("span", *_TIMES[2:]).alias("span_end"),
        pl.col("span").struct.field("status").struct.field("code").alias("span_status"),
        first_token.alias("first_token"),
    ).join(attributes, on="row", how="left", maintain_order="left").join(
        _numbered(named), on="row", how="left", maintain_order="left"
    )  # fmt: skip


def _numbered(named: pl.DataFrame) -> pl.DataFrame:
    """The numbered messages of each row that has any, as one JSON text ``numbered``."""
    key = pl.col("key")
    parts = (
        named.filter(pl.any_horizontal([key.str.starts_with(start) for start in NUMBERED]))
        .with_columns(key.str.extract_groups(_NUMBERED).struct.rename_fields(["a", "b", "part"]))
        .unnest("key")
        .with_columns(pl.coalesce("a", "b").cast(pl.Int64, strict=False).alias("number"))
        .filter(pl.col("part").is_not_null() & pl.col("number").is_not_null())
    )

    def value(part: str) -> pl.Expr:
        return pl.col("value").filter(pl.col("part") == part).first().alias(part)

    return (
        parts.group_by("row", "number")
        .agg(value("role"), value("content"))
        .sort("row", "number")
        .group_by("row", maintain_order=True)
        .agg(pl.struct("role", "content").alias("messages"))
        .select(
            "row",
            pl.struct("messages").struct.json_encode().str.json_path_match("$.messages")
            .alias("numbered"),
        )
    )  # fmt: skip


def _bucketed(raw: Raw) -> tuple[dict[str, pl.Expr], pl.Expr]:
    """Counts out of Langfuse's map of usage, and whether its input leaves cached tokens out."""

    def count(*names: str) -> pl.Expr:
        return pl.coalesce([raw.count("usage", f"$.{name}", strict=False) for name in names])

    apart = count("input", "input_tokens")
    counts = {
        "input_tokens": pl.coalesce(count("prompt_tokens"), apart),
        "cached_tokens": count(
            "input_cached_tokens", "input_cache_read", "cache_read_input_tokens",
            "prompt_tokens_details.cached_tokens",
        ),
        "cache_write_tokens": count("input_cache_creation", "cache_creation_input_tokens"),
        "output_tokens": count("output", "completion_tokens", "output_tokens"),
        "total_tokens": count("total", "total_tokens"),
        "reasoning_tokens": count("output_reasoning_tokens", "output_reasoning"),
    }  # fmt: skip
    summed = counts["total_tokens"] == counts["input_tokens"] + counts["output_tokens"]
    return counts, count("prompt_tokens").is_null() & ~summed.fill_null(False)


def _convert(chunk: Raw, prompts: Prompts, outer: set[str], told: set[str]) -> Batch:
    raw = Raw(_flatten(chunk), chunk.options)
    have = {key: [n for n in names if raw.has(n)] for key, names in NAMES.items()}

    def text(key: str) -> pl.Expr:
        return pl.coalesce([raw.text(n) for n in have[key]] or pl.lit(None, dtype=pl.String))

    raw.frame = raw.frame.with_columns(
        text(key).alias(key) for key in ("usage", "provider_metadata")
    )
    bucketed, apart = _bucketed(raw)

    def count(key: str, *, strict: bool = True) -> pl.Expr:
        parts = [raw.count(n, strict=strict) for n in have[key]]
        if have["usage"] and key in bucketed:
            parts.append(bucketed[key])
        return pl.coalesce(parts or pl.lit(None, dtype=pl.Int64))

    def span_duration(name: str) -> pl.Expr:
        value = raw.duration(name, "ms" if name in _MS else "s")
        if name != _SERVER_TTFT:
            return value
        # Strands gives milliseconds under a name that stands for seconds.
        return pl.when(scope.str.contains("strands")).then(value // 1000).otherwise(value)

    def duration(key: str) -> pl.Expr:
        return pl.coalesce([span_duration(n) for n in have[key]] or pl.lit(None, dtype=pl.Int64))

    def stamp(name: str) -> pl.Expr:
        return pl.when(raw.exact(name) > 0).then(raw.exact(name))

    # An ISO text, at times in quotes of its own.
    unquoted = text("completion_start").str.strip_chars('"')
    raw.frame = raw.frame.with_columns(unquoted.alias("completion_start"))
    name, scope = pl.col("span_name"), pl.col("scope").fill_null("").str.to_lowercase()
    measured = text("ttft_us").is_not_null() | text("e2e_us").is_not_null()
    counted = text("input_tokens").is_not_null() | text("fresh_tokens").is_not_null()
    vllm = (name == "llm_request") & (measured | counted | scope.str.starts_with("vllm"))
    sglang = (text("module") == "sglang::request").fill_null(False) & (
        measured | counted | name.str.contains(r"(^|\s)Req \S+$")
    )
    logged = pl.col("span_start").is_null() & name.str.contains(_CALL_EVENT)
    claude = name.str.starts_with("claude_code.") & (name.str.contains("llm_request") | logged)
    leaf = name.str.contains(r"^ai\..*\.do(Stream|Generate)\b")
    wraps = name.str.contains(r"^ai\.(generate|stream|embed|rerank|toolCall)") & ~leaf
    operation, kind = text("operation"), text("kind").str.to_lowercase()
    calls = (
        pl.when(logged)
        .then(counted | name.str.contains(r"api_(?:response|error)$"))
        .when(vllm | sglang | claude)
        .then(True)
        .when(text("workflow").is_not_null() | wraps)
        .then(False)
        .when(kind.is_not_null() & ~kind.is_in(KINDS))
        .then(False)
        .when(operation.is_not_null())
        .then(operation.is_in(OPERATIONS))
        .otherwise(kind.is_not_null() | leaf | counted)
    )
    start, end = stamp("span_start"), stamp("span_end")
    e2e = pl.coalesce(duration("e2e_us"), (end - start) // 1000)
    # A log record is written when its call has ended.
    start = pl.when(logged).then(end - e2e.fill_null(0) * 1000).otherwise(start)
    first = pl.coalesce(
        duration("ttft_us"),
        raw.instant("completion_start", strict=False) - start // 1000,
        (stamp("first_token") - start) // 1000,
    )

    def within(value: pl.Expr) -> pl.Expr:
        # An engine that never scheduled a request reports nonsense from its monotonic clock.
        return pl.when((value >= 0) & (value <= pl.coalesce(e2e, value))).then(value)

    def told_by_provider(path: str) -> pl.Expr:
        return raw.count("provider_metadata", f"$.{path}", strict=False)

    said = count("input_tokens")
    read = pl.coalesce(
        count("cached_tokens"), told_by_provider("anthropic.cacheReadInputTokens"),
        told_by_provider("anthropic.usage.cache_read_input_tokens"),
        told_by_provider("openai.cachedPromptTokens"),
    )  # fmt: skip
    write = pl.coalesce(
        count("cache_write_tokens"), told_by_provider("anthropic.cacheCreationInputTokens")
    )
    cache = read.fill_null(0) + write.fill_null(0)
    converse = scope.str.contains("bedrock") & name.str.contains("(?i)converse")
    output, thought = count("output_tokens"), count("reasoning_tokens", strict=False)
    total = count("total_tokens", strict=False)
    beside = (total == said + cache + output) & (cache > 0)
    in_buckets = pl.col("usage").is_not_null() & apart
    # Vercel's kit took Anthropic's input as it came until it counted the parts of it.
    anthropic = leaf & text("provider").str.contains("(?i)anthropic") & (
        said == told_by_provider("anthropic.usage.input_tokens").fill_null(said)
    )  # fmt: skip
    exclusive = (
        claude | converse | anthropic.fill_null(False) | in_buckets | (cache > said) | beside
    )
    # Gemini counts its thoughts beside the answer; the total tells.
    outside = (logged & (total == said + output + thought)).fill_null(False)
    output = pl.when(outside).then(output + thought).otherwise(output)
    tokens = pl.coalesce(
        count("fresh_tokens") + cache, pl.when(exclusive).then(said + cache).otherwise(said)
    )
    code = raw.text("span_status").str.to_lowercase()
    why = status_of(text("error"))
    failed = (
        code.is_in(["2", "2.0", "status_code_error"])
        | (text("success").str.to_lowercase() == "false")
        | (logged & name.str.ends_with("api_error"))
    )
    status = (
        pl.when(failed.fill_null(False))
        .then(pl.when(why != "ok").then(why).otherwise(pl.lit("error")))
        .when(text("finish").str.contains("abort"))
        .then(pl.lit("aborted"))
        .otherwise(pl.lit("ok"))
    )
    server = vllm | sglang
    # A call ends, and so is written, before the span of a framework around it.
    platform = (text("service") == _PLATFORM).fill_null(False)
    inner = raw.frame.select(pl.col("parent_id").filter(calls & ~server & ~platform)).to_series()
    outer.update(inner.drop_nulls().unique())
    wrapping = pl.col("span_id").is_in(list(outer)).fill_null(False) & ~server
    clients = raw.frame.select(pl.col("span_id").filter(calls & ~platform & ~logged)).to_series()
    inside = platform & pl.col("parent_id").is_in(clients.drop_nulls().implode())
    # Of an agent that sends both, spans tell more than log records.
    both = [text("request_id"), text("session_id")]
    known = raw.frame.select(pl.concat_list(both).filter(claude & ~logged)).to_series().explode()
    told.update(known.drop_nulls())
    again = logged & pl.any_horizontal(one.is_in(list(told)) for one in both)
    frame = raw.select(
        {
            "request_id": pl.coalesce(text("request_id"), pl.col("span_id")),
            "session_id": text("session_id"),
            "start": start // 1000,
            "model": text("model"),
            "replica": pl.when(server).then(text("replica")),
            "route": text("route"),
            "version": text("version"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": output,
            "reasoning_tokens": thought,
            "ttft_us": pl.when(server | (first >= 0)).then(first),
            "e2e_us": e2e,
            "queue_us": within(duration("queue_us")),
            "prefill_us": pl.when(~sglang).then(within(duration("prefill_us"))),
            "decode_us": within(duration("decode_us")),
            "attempts": pl.coalesce(
                count("resends", strict=False) + 1, count("attempts", strict=False)
            ),
            "status": status,
            "streamed": pl.when(name.str.contains(r"\.doGenerate\b"))
            .then(False)
            .otherwise(pl.coalesce([raw.boolean(n) for n in have["streamed"]] or pl.lit(None))),
            "vantage": pl.when(server)
            .then(pl.lit("server"))
            .when(scope.str.contains("litellm"))
            .then(pl.lit("gateway"))
            .otherwise(pl.lit("client")),
        },
        reject=pl.when(~pl.col("real"))
        .then(pl.lit("no_span"))
        .when(~calls)
        .then(pl.lit("not_an_llm_span"))
        .when(wrapping)
        .then(pl.lit("wraps_another_call"))
        .when(inside | again.fill_null(False))
        .then(pl.lit("repeated_row")),
        # Clients at times give the whole answer for the first token of a call without a stream.
        set_aside=pl.when(~server).then(no_first_token(first, e2e)),
    )
    added = raw.frame.select((exclusive & calls).any()).item()
    fields = _fields(frame, have)
    notes = (tr(_ADDED),) if added else ()
    sums = [chunk.frame[root].count() for root in _METRICS if chunk.has(root)]
    if any(sums) and not raw.frame["real"].any():
        notes = (tr(_SUMS),)
    numbered = raw.frame["numbered"].count() > 0
    if not have["messages"] and not numbered:
        return Batch(frame, fields, notes)
    parts = {key: text(key) for key in PROMPT}
    parts["messages"] = pl.coalesce(parts["messages"], raw.text("numbered"))
    made = prompts.read(frame, raw.frame.select(part.alias(key) for key, part in parts.items()))
    names = [name for key in PROMPT for name in have[key]]
    source = ", ".join([*names, *(f"{start}N" for start in NUMBERED if numbered)])
    named = {key: replace(field, source=source) for key, field in made.fields.items()}
    return Batch(
        made.frame, fields | named, (*notes, *made.notes), made.parts, prompts.bytes_per_token
    )


_ADDED = mark(
    "cached and written tokens were added to the input tokens of Claude Code and Bedrock Converse "
    "spans, and of spans whose counts show that their input leaves them out"
)
_SUMS = mark("metrics are sums over many requests: turn on traces, which have a span a request")
#: The service of the provider's own spans in the traces of its customers.
_PLATFORM = "claude-platform"


def _fields(frame: pl.DataFrame, have: dict[str, list[str]]) -> dict[str, Field]:
    read = frame.filter(pl.col("reject").is_null())
    fields = {}
    for column, names in have.items():
        if names and column in read.columns and read[column].count():
            timed = column.endswith("_us")
            unit = "" if not timed else "ms" if all(n in _MS for n in names) else "s"
            fields[column] = Field(", ".join(names), unit, mark("the conventions' names of it"))
    fields["start"] = Field("startTimeUnixNano", "ns", mark("the span's own start"))
    if "e2e_us" not in fields and read["e2e_us"].count():
        fields["e2e_us"] = Field(
            "endTimeUnixNano - startTimeUnixNano", "ns", mark("the span's length"), "derived"
        )
    if "ttft_us" not in fields and read["ttft_us"].count():
        fields["ttft_us"] = Field("events", "ns", mark("first-token event less start"), "derived")
    fields["vantage"] = Field("name, scope", "", mark("engines write their own spans"), "inferred")
    return fields


def _plan(head: Head, options: Options) -> Plan:
    prompts = Prompts(
        Where(**{key: Place(key) for key in PROMPT}), bytes_per_token=options.bytes_per_token,
        tokenizer=options.tokenizer, parts=options.text,
    )  # fmt: skip
    # Of this file so far: ids of spans around calls; requests and sessions of an agent's spans.
    outer: set[str] = set()
    told: set[str] = set()
    unwrap = None
    if any(_is_printed(record) for record in head.records):
        schema: dict[str, Any] = _PRINTED
    elif any(_is_span(record) for _, records in pages(head, "data") for record in records):
        schema = {part.name: part.dtype for part in _SPAN.fields}
        unwrap = page_of(head, "data", unless="attributes")
    else:
        schema = {
            **dict.fromkeys(_ROOTS, _RESOURCE), "trace": _TRACE,
            **dict.fromkeys(_LOG_ROOTS, _LOG_RESOURCE), **dict.fromkeys(_METRICS, pl.String),
        }  # fmt: skip
    return Plan(
        schema=schema,
        convert=partial(_convert, prompts=prompts, outer=outer, told=told),
        unwrap=unwrap,
    )


READER = Reader(
    name="otlp",
    title="OpenTelemetry spans (OTLP/JSON): vLLM, SGLang, GenAI conventions, OpenInference",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "vLLM spans have no cached tokens and no session, SGLang spans no queue time: log the "
        "usage at the client with vLLM --enable-prompt-tokens-details, or give the file of SGLang "
        "--export-metrics-to-file --enable-metrics"
    ),
)
