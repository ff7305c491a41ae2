"""NVIDIA Dynamo: the request trace of its frontend, the frontend's own log, or its answers.

The trace (``DYN_REQUEST_TRACE=1``) wraps each record into ``{"timestamp": ..., "event": {...}}``,
except to some sinks; both are read, and packed segments too. A ``request_end`` record has the
figures (milliseconds from the arrival at the frontend) and chained hashes of the prompt's full
blocks; ``request_payload`` and tool records of the same request are passed over. Records without a
session have no times at all. Older names of the schema are the same.

The frontend's log, text or JSON lines (``DYN_LOGGING_JSONL=true``), has a ``request completed``
event a request, with the TTFT as a text and 0 tokens where no token came. Answers have
``nvext.timing`` where the client asked for it; of a stream, one chunk has it.

``prefill_wait_time_ms`` is the wait until the router sends the prompt to a worker: the worker's own
queue is inside ``prefill_time_ms``. With routing by cache, ``cached_tokens`` is the router's
estimate, not what the worker did. It cannot tell: the worker's queue; requests with several
samples or images, which the trace leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import polars as pl

from ttftdoctor.chains import chained
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_SCHEMAS = ("dynamo.request.trace.", "dynamo.agent.trace.")
_SESSIONS = ("session_id", "trajectory_id", "program_id")
_FIGURES = (
    "request_id", "x_request_id", "model", "input_tokens", "output_tokens", "cached_tokens",
    "request_received_ms", "prefill_wait_time_ms", "ttft_ms", "total_time_ms",
)  # fmt: skip
_REPLAY: dict[str, Any] = {
    "trace_block_size": pl.String,
    "input_length": pl.String,
    "input_sequence_hashes": pl.List(pl.UInt64),
}
_RECORD: dict[str, Any] = {
    "schema": pl.String,
    "event_type": pl.String,
    "event_time_unix_ms": pl.String,
    "agent_context": pl.Struct(dict.fromkeys(_SESSIONS, pl.String)),
    "request": pl.Struct(
        {
            **dict.fromkeys(_FIGURES, pl.String),
            "worker": pl.Struct({"prefill_worker_id": pl.String}),
            "replay": pl.Struct(_REPLAY),
        }
    ),
}
_TRACE = {"event": pl.Struct(_RECORD), **_RECORD}
_LOG = (
    "message", "timestamp", "time", "level", "target", "request_id", "x_request_id", "model",
    "endpoint", "request_type", "status", "elapsed_ms", "input_tokens", "output_tokens", "ttft_ms",
    "prefill_worker_id",
)  # fmt: skip
_DONE = "request completed"
_STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))"
_ANSWER = ("id", "object", "model", "usage", "nvext", "error")

_TRACE_FIELDS = {
    "request_id": Field("x_request_id, request_id", "", mark("the client's id, or the frontend's")),
    "session_id": Field("agent_context.session_id", "", mark("from the client's headers")),
    "start": Field("request_received_ms", mark("ms since 1970"), mark("arrival at the frontend")),
    "model": Field("model", "", mark("Dynamo's name")),
    "replica": Field("worker.prefill_worker_id", "", mark("the worker of the prefill")),
    "input_tokens": Field("input_tokens", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field(
        "cached_tokens", "tokens", mark("with routing by cache: the router's estimate")
    ),
    "output_tokens": Field("output_tokens", "tokens", mark("Dynamo's name")),
    "ttft_us": Field("ttft_ms", "ms", mark("from the arrival at the frontend")),
    "e2e_us": Field("total_time_ms", "ms", mark("from the arrival at the frontend")),
    "queue_us": Field("prefill_wait_time_ms", "ms", mark("until the router sent it to a worker")),
    "status": Field("event_type", "", mark("the trace does not tell failures apart"), "assumed"),
    "prefix_blocks": Field(
        "replay.input_sequence_hashes", "", mark("hashes stand for a block and all before it")
    ),
    "block_tokens": Field("replay.trace_block_size", "tokens", mark("as logged")),
    "vantage": Field("", "", mark("the frontend is a gateway before the workers"), "assumed"),
}
_LOG_FIELDS = {
    "request_id": Field("x_request_id, request_id", "", mark("the client's id, or the frontend's")),
    "start": Field(
        "timestamp - elapsed_ms", "", mark("the event is written at the end"), "derived"
    ),
    "model": Field("model", "", mark("Dynamo's name")),
    "replica": Field("prefill_worker_id", "", mark("the worker of the prefill")),
    "route": Field("endpoint", "", mark("Dynamo's name")),
    "input_tokens": Field("input_tokens", "tokens", mark("0 stands for unknown")),
    "output_tokens": Field("output_tokens", "tokens", mark("Dynamo's name")),
    "ttft_us": Field("ttft_ms", "ms", mark("from the arrival at the frontend")),
    "e2e_us": Field("elapsed_ms", "ms", mark("from the arrival at the frontend")),
    "status": Field("status", "", mark("Dynamo's name")),
    "streamed": Field("request_type", "", mark("stream or unary")),
    "vantage": Field("", "", mark("the frontend is a gateway before the workers"), "assumed"),
}
_ANSWER_FIELDS = {
    "request_id": Field("id", "", mark("Dynamo's name")),
    "start": Field(
        "nvext.timing.request_received_ms", mark("ms since 1970"), mark("arrival at the frontend")
    ),
    "model": Field("model", "", mark("Dynamo's name")),
    "input_tokens": Field("usage.prompt_tokens", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field(
        "usage.prompt_tokens_details.cached_tokens", "tokens", mark("as the engine reported")
    ),
    "output_tokens": Field("usage.completion_tokens", "tokens", mark("Dynamo's name")),
    "ttft_us": Field("nvext.timing.ttft_ms", "ms", mark("from the arrival at the frontend")),
    "e2e_us": Field("nvext.timing.total_time_ms", "ms", mark("from the arrival at the frontend")),
    "queue_us": Field(
        "nvext.timing.prefill_wait_time_ms", "ms", mark("until the router sent it to a worker")
    ),
    "status": Field("error", "", mark("set where the call failed")),
    "streamed": Field("object", "", mark("a chunk belongs to a stream")),
    "vantage": _TRACE_FIELDS["vantage"],
}
_ESTIMATE = mark(
    "cached tokens of a Dynamo trace may be the router's estimate: what the worker reused is in "
    "the worker's own log"
)
_UNTIMED = mark("Dynamo traces have times only for requests with a session in their headers")


def _inner(record: Mapping[str, Any]) -> Mapping[str, Any]:
    event = record.get("event")
    return event if isinstance(event, Mapping) else record


def _fields_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    inside = record.get("fields")
    return inside if isinstance(inside, Mapping) else record


def _kind(head: Head) -> str:
    if any(_DONE in line and " elapsed_ms=" in line for line in head.lines):
        return "text"
    for record in head.records:
        extension = record.get("nvext")
        if isinstance(extension, Mapping) and isinstance(extension.get("timing"), Mapping):
            return "answer"
        if str(_inner(record).get("schema", "")).startswith(_SCHEMAS):
            return "trace"
        fields = _fields_of(record)
        if fields.get("message") == _DONE and {"elapsed_ms", "request_type"} <= fields.keys():
            return "log"
    return ""


def _recognise(head: Head) -> str | None:
    kinds = {
        "trace": mark("records of the schema dynamo.request.trace"),
        "log": mark("request completed events with elapsed_ms and request_type"),
        "text": mark("request completed lines with elapsed_ms"),
        "answer": mark("answers with nvext.timing"),
    }
    found = kinds.get(_kind(head))
    return None if found is None else tr(found)


def _plan(head: Head, options: Options) -> Plan:
    del options
    kind = _kind(head)
    if head.shape is Shape.TEXT:
        return Plan({}, _from_text)
    if kind == "log":
        return Plan(dict.fromkeys((*_LOG, "fields", "span"), pl.String), _from_log)
    if kind == "answer":
        return Plan(dict.fromkeys(_ANSWER, pl.String), _from_answers, whole=True)
    return Plan(_TRACE, _from_trace, whole=True)


def _flat(chunk: Raw) -> tuple[Raw, bool]:
    """One column a figure, whether a record was wrapped or not, and whether its hashes chain."""
    event = pl.col("event").struct
    top = {name: (event.field(name), pl.col(name)) for name in _RECORD}

    def of(name: str, *path: str) -> pl.Expr:
        return pl.coalesce(
            reduce(lambda place, key: place.struct.field(key), path, place) for place in top[name]
        )

    replay = ("request", "replay")
    hashes = of(*replay, "input_sequence_hashes")
    frame = chunk.frame.select(
        LINE,
        *(of(name).alias(name) for name in ("schema", "event_type", "event_time_unix_ms")),
        pl.coalesce(of("agent_context", name) for name in _SESSIONS).alias("session"),
        *(of("request", name).alias(name) for name in _FIGURES),
        of("request", "worker", "prefill_worker_id").alias("worker"),
        of(*replay, "trace_block_size").alias("block"),
        of(*replay, "input_length").alias("length"),
        # One hash that is no hash makes what comes after it worthless.
        pl.when(~hashes.list.eval(pl.element().is_null()).list.any()).then(hashes).alias("ids"),
    )
    frame, kept = chained(frame, "ids")
    return Raw(frame, chunk.options), kept


def _from_trace(chunk: Raw) -> Batch:
    raw, kept = _flat(chunk)
    kind = raw.text("event_type")
    size = raw.count("block")
    sized = size > 0
    total = raw.duration("total_time_ms", "ms")
    ended = raw.instant("event_time_unix_ms", "ms")
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text("x_request_id"), raw.text("request_id")),
            "session_id": raw.text("session"),
            "start": pl.coalesce(raw.instant("request_received_ms", "ms"), ended - total),
            "model": raw.text("model"),
            "replica": raw.text("worker"),
            "input_tokens": pl.coalesce(raw.count("input_tokens"), raw.count("length")),
            "cached_tokens": raw.count("cached_tokens"),
            "output_tokens": raw.count("output_tokens"),
            "ttft_us": raw.duration("ttft_ms", "ms"),
            "e2e_us": total,
            "queue_us": raw.duration("prefill_wait_time_ms", "ms"),
            "status": pl.lit("ok"),
            "prefix_blocks": pl.when(sized).then("prefix_blocks"),
            "block_tokens": pl.when(sized).then(size),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(~raw.text("schema").str.starts_with("dynamo.").fill_null(False))
        .then(pl.lit("not_a_trace_record"))
        .when((kind != "request_end").fill_null(True))
        .then(pl.lit("not_a_request_end"))
        .when(raw.text("request_id").is_null() & raw.text("request_received_ms").is_null())
        .then(pl.lit("no_request")),
    )
    notes = []
    if frame["cached_tokens"].count():
        notes.append(tr(_ESTIMATE))
    if frame.filter(pl.col("reject").is_null())["ttft_us"].null_count():
        notes.append(tr(_UNTIMED))
    fields = {k: v for k, v in _TRACE_FIELDS.items() if frame[k].count()}
    if not kept and "prefix_blocks" in fields:
        fields["prefix_blocks"] = Field(
            "replay.input_sequence_hashes", "",
            mark("hashes do not say what lies before a block; sums that do were made"), "derived",
        )  # fmt: skip
    return Batch(frame, fields, tuple(notes))


def _from_text(chunk: Raw) -> Batch:
    """Lines of the log as text: the fields of the event and of its span are ``name=value``."""
    text = pl.col("text").str
    lines = chunk.frame.filter(text.contains(_DONE, literal=True))

    def value(name: str) -> pl.Expr:
        forms = (rf'\b{name}="([^"]*)"', rf"\b{name}=([^\s\",}}]+)")
        return pl.coalesce(text.extract(form) for form in forms).alias(name)

    told = [value(name) for name in _LOG if name not in ("message", "time", "timestamp")]
    done = pl.when(text.contains(r"\selapsed_ms=\d")).then(pl.lit(_DONE)).alias("message")
    rows = lines.select(LINE, done, text.extract(_STAMP).alias("time"), *told)
    return _from_log(Raw(rows, chunk.options))


def _from_log(chunk: Raw) -> Batch:
    places = [
        pl.coalesce(
            chunk.text(name), chunk.text("fields", f"$.{name}"), chunk.text("span", f"$.{name}")
        ).alias(name)
        for name in _LOG
    ]
    raw = Raw(chunk.frame.with_columns(places), chunk.options)
    elapsed = raw.duration("elapsed_ms", "ms")
    ended = pl.coalesce(raw.instant("time"), raw.instant("timestamp"))
    tokens = raw.count("input_tokens")
    word = raw.text("status").str.to_lowercase()
    kind = raw.text("request_type").str.to_lowercase()
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text("x_request_id"), raw.text("request_id")),
            "start": ended - elapsed,
            "model": raw.text("model"),
            "replica": raw.text("prefill_worker_id"),
            "route": raw.text("endpoint"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "output_tokens": raw.count("output_tokens"),
            "ttft_us": raw.duration("ttft_ms", "ms"),
            "e2e_us": elapsed,
            "status": pl.when(word == "success")
            .then(pl.lit("ok"))
            .when(word == "cancelled")
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("error")),
            # The frontend sees all of an unstreamed answer at once.
            "streamed": pl.when(kind == "stream").then(True).when(kind == "unary").then(False),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when((raw.text("message") != _DONE).fill_null(True)).then(
            pl.lit("not_a_request_line")
        ),
    )
    return Batch(frame, {k: v for k, v in _LOG_FIELDS.items() if frame[k].count()}, ())


def _from_answers(chunk: Raw) -> Batch:
    # Of a stream, one chunk may have the times and another one the tokens.
    of_stream = chunk.text("object").str.ends_with(".chunk").fill_null(False)
    one = pl.coalesce("id", pl.col(LINE).cast(pl.String))
    last = pl.when(of_stream).then(pl.col("usage").drop_nulls().last().over(one))
    frame = chunk.frame.with_columns(pl.coalesce(last, "usage").alias("usage"))
    raw = Raw(frame, chunk.options)
    failed = raw.text("error").is_not_null()

    def span(name: str) -> pl.Expr:
        return raw.duration("nvext", "ms", f"$.timing.{name}")

    frame = raw.select(
        {
            "request_id": raw.text("id"),
            "start": raw.instant("nvext", "ms", "$.timing.request_received_ms"),
            "model": raw.text("model"),
            "input_tokens": raw.count("usage", "$.prompt_tokens"),
            "cached_tokens": raw.count("usage", "$.prompt_tokens_details.cached_tokens"),
            "output_tokens": raw.count("usage", "$.completion_tokens"),
            "ttft_us": span("ttft_ms"),
            "e2e_us": span("total_time_ms"),
            "queue_us": span("prefill_wait_time_ms"),
            "status": pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
            # The frontend sees the first token of a worker whether or not it streams the answer.
            "streamed": pl.when(of_stream).then(True),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(of_stream & raw.text("nvext", "$.timing").is_null()).then(
            pl.lit("not_final")
        ),
    )
    return Batch(frame, {k: v for k, v in _ANSWER_FIELDS.items() if frame[k].count()}, ())


READER = Reader(
    name="dynamo",
    title="NVIDIA Dynamo request trace, or frontend log",
    shapes=(Shape.JSON, Shape.TEXT),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Dynamo writes times into its trace (DYN_REQUEST_TRACE=1) only for requests with the "
        "header X-Dynamo-Session-ID, and not what waits in a worker's own queue"
    ),
)
