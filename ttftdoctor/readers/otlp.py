"""OpenTelemetry spans as OTLP/JSON: lines of the collector's file exporter, or one document.

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

from dataclasses import replace
from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
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
        "llm.token_count.prompt_details.cache_write",
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
        "gen_ai.latency.time_to_first_token", "gen_ai.response.time_to_first_chunk",
        "gen_ai.client.operation.time_to_first_chunk", "ttft_ms", "ai.response.msToFirstChunk",
        "ai.stream.msToFirstChunk",
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
    "error": ("error.type", "http.response.status_code"),
    "success": ("success",),
    "messages": ("gen_ai.input.messages", "ai.prompt.messages"),
    "system": ("gen_ai.system_instructions",),
    "tools": ("gen_ai.tool.definitions",),
}  # fmt: skip
_WANTED = sorted({name for names in NAMES.values() for name in names})
_MS = ("ttft_ms", "duration_ms", "ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")

#: Operations and kinds that are one call of a model; other operations only wrap or serve one.
OPERATIONS = ("chat", "generate_content", "text_completion", "completion")
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


def _recognise(head: Head) -> str | None:
    for root in _ROOTS:
        spans = [r[root] for r in head.records if isinstance(r.get(root), list)]
        if any(
            isinstance(part, dict) and any(scope in part for scope in _SCOPES)
            for parts in spans
            for part in parts
        ):
            return tr("records with {root} that hold spans", root=root)
    return None


def _inside(column: str, *names: str) -> pl.Expr:
    return pl.coalesce([pl.col(column).struct.field(name) for name in names])


def _flatten(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a span with the wanted attributes as text columns; a line without spans stays."""
    spans = (
        frame.select(LINE, pl.coalesce(_ROOTS).alias("part"))
        .explode("part", empty_as_null=True)
        .select(
            LINE,
            _inside("part", *_SCOPES).alias("scope"),
            pl.col("part").struct.field("resource").struct.field("attributes").alias("about"),
        )
        .explode("scope", empty_as_null=True)
        .select(
            LINE, "about", pl.col("scope").struct.field("spans").alias("span"),
            pl.col("scope").struct.field("scope").struct.field("name").alias("scope"),
        )
        .explode("span", empty_as_null=True)
        .with_columns(pl.col("span").is_not_null().alias("real"))
        .filter(pl.col("real") | ~pl.col("real").any().over(LINE))
        .filter(pl.col("real") | pl.col(LINE).is_first_distinct())
        .with_row_index("row")
    )  # fmt: skip
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


def _convert(chunk: Raw, prompts: Prompts, outer: set[str]) -> Batch:
    raw = Raw(_flatten(chunk.frame), chunk.options)
    have = {key: [n for n in names if raw.has(n)] for key, names in NAMES.items()}

    def text(key: str) -> pl.Expr:
        return pl.coalesce([raw.text(n) for n in have[key]] or pl.lit(None, dtype=pl.String))

    def count(key: str, *, strict: bool = True) -> pl.Expr:
        parts = [raw.count(n, strict=strict) for n in have[key]]
        return pl.coalesce(parts or pl.lit(None, dtype=pl.Int64))

    def duration(key: str) -> pl.Expr:
        parts = [raw.duration(n, "ms" if n in _MS else "s") for n in have[key]]
        return pl.coalesce(parts or pl.lit(None, dtype=pl.Int64))

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
    claude = name.str.starts_with("claude_code.") & name.str.contains("llm_request")
    leaf = name.str.contains(r"^ai\..*\.do(Stream|Generate)\b")
    wraps = name.str.contains(r"^ai\.(generate|stream|embed|rerank|toolCall)") & ~leaf
    operation, kind = text("operation"), text("kind").str.to_lowercase()
    calls = (
        pl.when(vllm | sglang | claude)
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
    first = pl.coalesce(
        duration("ttft_us"),
        raw.instant("completion_start", strict=False) - start // 1000,
        (stamp("first_token") - start) // 1000,
    )

    def within(value: pl.Expr) -> pl.Expr:
        # An engine that never scheduled a request reports nonsense from its monotonic clock.
        return pl.when((value >= 0) & (value <= pl.coalesce(e2e, value))).then(value)

    read, write, said = count("cached_tokens"), count("cache_write_tokens"), count("input_tokens")
    cache = read.fill_null(0) + write.fill_null(0)
    converse = scope.str.contains("bedrock") & name.str.contains("(?i)converse")
    exclusive = claude | converse | (cache > said)
    tokens = pl.coalesce(
        count("fresh_tokens") + cache, pl.when(exclusive).then(said + cache).otherwise(said)
    )
    code = raw.text("span_status").str.to_lowercase()
    why = status_of(text("error"))
    failed = code.is_in(["2", "2.0", "status_code_error"]) | (
        text("success").str.to_lowercase() == "false"
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
    inner = raw.frame.select(pl.col("parent_id").filter(calls & ~server)).to_series()
    outer.update(inner.drop_nulls().unique())
    wrapping = pl.col("span_id").is_in(list(outer)).fill_null(False) & ~server
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
            "output_tokens": count("output_tokens"),
            "reasoning_tokens": count("reasoning_tokens", strict=False),
            "ttft_us": first,
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
        .then(pl.lit("wraps_another_call")),
    )
    added = raw.frame.select((exclusive & calls).any()).item()
    fields = _fields(frame, have)
    notes = (tr(_ADDED),) if added else ()
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
    "spans, and of spans with more of them than input tokens"
)


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
    outer: set[str] = set()  # ids of spans around calls, in this file so far
    return Plan(
        schema=dict.fromkeys(_ROOTS, _RESOURCE),
        convert=partial(_convert, prompts=prompts, outer=outer),
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
