"""Jaeger: traces saved from its page (JSON) or fetched from ``/api/traces``.

One document with traces under ``data``; stamps and durations are microseconds, and a span's tags
are the attributes it was sent with: the GenAI conventions of every generation, OpenInference,
Vercel's ``ai.*``. Each span is a row; spans that are no call of a model are turned away by name,
and of two nested calls the outer one is. A first token is a tag in seconds (``gen_ai.*``) or ms
(``ttft_ms``, Vercel's), or the time of a log with the name of a first-token event. Spans of vLLM
and SGLang are the server's own; SGLang's ``time_in_model_prefill`` begins before its queue.

It cannot tell: what the instrumentation does not send (often the first token and cached tokens),
and which spans were sampled away. int64 tags beyond 2^53 come as text, which is read alike.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, no_first_token, turned_away, whole_prompt
from ttftdoctor.table import LINE, Field

#: Which tags mean what; the first that is there counts.
NAMES: dict[str, tuple[str, ...]] = {
    "request_id": ("gen_ai.request.id", "rid", "gen_ai.response.id"),
    "session_id": (
        "gen_ai.conversation.id", "session.id", "langfuse.session.id",
        "ai.telemetry.metadata.sessionId", "traceloop.association.properties.session_id",
    ),
    "model": (
        "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.response.model",
        "ai.model.id", "model",
    ),
    "route": ("server.address",),
    "input_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
        "llm.token_count.prompt", "ai.usage.inputTokens", "ai.usage.promptTokens", "input_tokens",
    ),
    "fresh_tokens": ("ai.usage.inputTokenDetails.noCacheTokens",),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.cached_tokens",
        "llm.token_count.prompt_details.cache_read", "ai.usage.inputTokenDetails.cacheReadTokens",
        "ai.usage.cachedInputTokens", "cache_read_tokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.details.cache_write_tokens",
        "gen_ai.usage.cache_write_input_tokens", "llm.token_count.prompt_details.cache_write",
        "ai.usage.inputTokenDetails.cacheWriteTokens", "cache_creation_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens", "llm.token_count.completion", "ai.usage.outputTokens",
        "ai.usage.completionTokens", "output_tokens",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
    ),
    "ttft_us": (
        "gen_ai.response.time_to_first_chunk", "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.latency.time_to_first_token", "ttft_ms", "ai.response.msToFirstChunk",
        "ai.stream.msToFirstChunk",
    ),
    "queue_us": ("gen_ai.latency.time_in_queue",),
    "prefill_us": ("gen_ai.latency.time_in_model_prefill",),
    "decode_us": ("gen_ai.latency.time_in_model_decode",),
    "total_tokens": (
        "gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total",
    ),
    "resends": ("http.request.resend_count",),
    "attempts": ("attempt",),
    "scope": ("otel.scope.name", "otel.library.name"),
    "streamed": ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"),
    "operation": ("gen_ai.operation.name", "llm.request.type"),
    "kind": ("openinference.span.kind", "langfuse.observation.type", "span.type"),
    "workflow": ("traceloop.span.kind",),
    "module": ("module",),
    "finish": ("gen_ai.response.finish_reasons",),
    "error": ("error.type", "http.response.status_code"),
    "failed": ("error", "otel.status_code"),
}  # fmt: skip
_WANTED = sorted({name for names in NAMES.values() for name in names})
_MS = ("ttft_ms", "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
_OPERATIONS = (
    "chat", "generate_content", "text_completion", "completion",
    # LiteLLM names the call it serves, Semantic Kernel the service.
    "acompletion", "atext_completion", "responses", "aresponses", "anthropic_messages",
    "agenerate_content", "generate_content_stream", "agenerate_content_stream",
    "chat.completions", "text.completions",
)  # fmt: skip
_KINDS = ("llm", "generation", "llm_request")
_EVENTS = ("First Token Stream Event", "ai.stream.firstChunk", "mlflow.chunk.item.0")


def _texts(*names: str) -> dict[str, pl.DataType]:
    return {name: pl.String() for name in names}


_TAGS = pl.List(pl.Struct(_texts("key", "value")))
_SPAN = {
    **_texts("spanID", "operationName", "startTime", "duration"),
    "references": pl.List(pl.Struct(_texts("refType", "spanID"))),
    "tags": _TAGS,
    "logs": pl.List(pl.Struct({"timestamp": pl.String(), "fields": _TAGS})),
}
_SCHEMA: dict[str, Any] = {
    "spans": pl.List(pl.Struct(_SPAN)),
    # Elasticsearch holds a document a span, which its own exports wrap.
    **_SPAN,
    "_source": pl.Struct(_SPAN),
}
_NAMED = {"traceID", "spanID", "operationName"}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        for record in records:
            spans = record.get("spans")
            first = spans[0] if isinstance(spans, list) and spans else None
            if isinstance(first, dict) and first.keys() >= _NAMED:
                return tr(
                    "traces with spans that have traceID and operationName{where}", where=where
                )
    for record in head.records:
        inside = record.get("_source", record)
        if isinstance(inside, dict) and inside.keys() >= _NAMED | {"startTime", "tags"}:
            return tr("spans with traceID, spanID and operationName")
    return None


def _flatten(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a span with its wanted tags as text columns; a trace without spans stays."""
    bare = pl.struct(*_SPAN)
    alone = pl.coalesce(
        pl.when(pl.col("spanID").is_not_null()).then(bare),
        pl.when(pl.col("_source").struct.field("spanID").is_not_null()).then(pl.col("_source")),
    )
    spans = (
        frame.select(LINE, pl.col("spans").alias("span"), alone.alias("alone"))
        .explode("span", empty_as_null=True)
        .select(LINE, pl.coalesce("span", "alone").alias("span"))
        .with_columns(pl.col("span").is_not_null().alias("real"))
        .unnest("span")
        .with_row_index("row")
    )
    tags = (
        spans.select("row", pl.col("tags").alias("tag"))
        .explode("tag")
        .select(
            "row",
            pl.col("tag").struct.field("key").alias("key"),
            pl.col("tag").struct.field("value").alias("value"),
        )
        .filter(pl.col("key").is_in(_WANTED))
        .pivot(on="key", index="row", values="value", aggregate_function="first")
    )
    log = pl.element().struct
    named = log.field("fields").list.eval(
        pl.element().struct.field("value").is_in(_EVENTS)
    ).list.any()  # fmt: skip
    first = (
        pl.col("logs")
        .list.eval(pl.when(named).then(log.field("timestamp")))
        .list.drop_nulls()
        .list.first()
    )
    ref = pl.element().struct
    parent = (
        pl.col("references")
        .list.eval(pl.when(ref.field("refType") == "CHILD_OF").then(ref.field("spanID")))
        .list.drop_nulls()
        .list.first()
    )
    return spans.select(
        LINE, "row", "real", "spanID", "operationName", "startTime", "duration",
        first.alias("first_token"), parent.alias("parent"),
    ).join(tags, on="row", how="left", maintain_order="left")  # fmt: skip


def _convert(chunk: Raw) -> Batch:
    raw = Raw(_flatten(chunk.frame), chunk.options)
    have = {key: [n for n in names if raw.has(n)] for key, names in NAMES.items()}

    def text(key: str) -> pl.Expr:
        return pl.coalesce([raw.text(n) for n in have[key]] or pl.lit(None, dtype=pl.String))

    def count(key: str) -> pl.Expr:
        parts = [raw.count(n, strict=False) for n in have[key]]
        return pl.coalesce(parts or pl.lit(None, dtype=pl.Int64))

    def duration(key: str) -> pl.Expr:
        parts = [raw.duration(n, "ms" if n in _MS else "s", strict=False) for n in have[key]]
        return pl.coalesce(parts or pl.lit(None, dtype=pl.Int64))

    said, read, write = count("input_tokens"), count("cached_tokens"), count("cache_write_tokens")
    # Claude Code's own span counts fresh tokens only.
    claude = pl.col("operationName").str.starts_with("claude_code.").fill_null(False)
    converse = text("scope").str.contains("(?i)bedrock") & pl.col("operationName").str.contains(
        "(?i)converse"
    )
    cache, made = read.fill_null(0) + write.fill_null(0), count("output_tokens")
    beside = (cache > 0) & (count("total_tokens") == said + cache + made)
    apart = pl.any_horizontal(claude, converse, beside)
    leaf = pl.col("operationName").str.contains(r"^ai\..*\.do(Stream|Generate)\b")
    wraps = pl.col("operationName").str.contains(r"^ai\.(generate|stream|embed|toolCall)") & ~leaf
    kind, operation = text("kind").str.to_lowercase(), text("operation")
    measured = said.is_not_null() | text("ttft_us").is_not_null()
    sglang = ((text("module") == "sglang::request") & measured).fill_null(False)
    vllm = (pl.col("operationName") == "llm_request").fill_null(False) & measured & kind.is_null()
    calls = (
        pl.when(~pl.col("real") | text("workflow").is_not_null() | wraps)
        .then(False)
        .when(vllm | sglang)
        .then(True)
        .when(kind.is_not_null())
        .then(kind.is_in(_KINDS))
        .when(operation.is_not_null())
        .then(operation.is_in(_OPERATIONS))
        .otherwise(said.is_not_null())
    )
    raw.frame = raw.frame.with_columns(calls.fill_null(False).alias("calls"))
    no_span = pl.when(~pl.col("real")).then(pl.lit("no_span"))
    start, e2e = raw.instant("startTime", "us"), raw.duration("duration", "us")
    first = raw.instant("first_token", "us", strict=False)
    ttft = pl.coalesce(duration("ttft_us"), first - start)

    server = vllm | sglang
    # The span of an engine beside that of its client is kept: they are two clocks.
    parent = pl.when(~server).then(pl.col("parent"))

    def within(value: pl.Expr) -> pl.Expr:
        # An engine that never scheduled a request reports nonsense from its monotonic clock.
        return pl.when((value >= 0) & (value <= pl.coalesce(e2e, value))).then(value)

    failed = text("failed").str.to_lowercase().is_in(["true", "error"]).fill_null(False)
    frame = raw.select(
        {
            "request_id": pl.coalesce(text("request_id"), raw.text("spanID")),
            "session_id": text("session_id"),
            "start": start,
            "model": text("model"),
            "route": text("route"),
            "input_tokens": pl.coalesce(
                count("fresh_tokens") + cache, whole_prompt(said, read, write, apart=apart)
            ),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": made,
            "reasoning_tokens": count("reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "queue_us": within(duration("queue_us")),
            "prefill_us": pl.when(~sglang).then(within(duration("prefill_us"))),
            "decode_us": within(duration("decode_us")),
            "status": pl.when(failed)
            .then(failure(text("error")))
            .when(text("finish").str.contains("abort"))
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("ok")),
            "attempts": pl.coalesce(count("resends") + 1, count("attempts")),
            "streamed": pl.when(pl.col("operationName").str.contains(r"\.doGenerate\b"))
            .then(False)
            .otherwise(pl.coalesce([raw.boolean(n) for n in have["streamed"]] or pl.lit(None))),
            "vantage": pl.when(server).then(pl.lit("server")).otherwise(pl.lit("client")),
        },
        reject=pl.coalesce(
            no_span,
            turned_away(raw.frame, pl.col("calls"), raw.text("spanID"), parent),
        ),
        set_aside=no_first_token(ttft, e2e),
    )
    fields = {
        column: Field(", ".join(names), "", mark("the conventions' names of it"))
        for column, names in have.items()
        if names and column in frame.columns and frame[column].count()
    }
    fields["request_id"] = Field("spanID", "", mark("the span's own id, where no request has one"))
    fields["start"] = Field("startTime", "us", mark("Jaeger's name"))
    fields["e2e_us"] = Field("duration", "us", mark("Jaeger's name"))
    if "ttft_us" not in fields:
        fields["ttft_us"] = Field("logs", "us", mark("first-token event less start"), "derived")
    fields["status"] = Field("error, otel.status_code", "", mark("tags of a span that failed"))
    fields["vantage"] = Field(
        "operationName", "", mark("engines write their own spans"), "inferred"
    )
    return batch_of(frame, fields, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    return Plan(_SCHEMA, _convert, whole=True, unwrap=page_of(head, "data", unless="spans"))


READER = Reader(
    name="jaeger",
    title="Jaeger traces (JSON)",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Jaeger has what the instrumentation sends: a first token needs "
        "gen_ai.response.time_to_first_chunk or a first-token event on the span of a streamed "
        "call, cached tokens gen_ai.usage.cache_read.input_tokens"
    ),
)
