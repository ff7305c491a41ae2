"""Hugging Face TGI (text-generation-inference): its router's log, JSON lines or text.

One ``Success`` event is a finished generation; its figures are fields of the span around it, and
texts with a unit (``720.114µs``, ``3.12s``). The line is written at the end, so the request came
``total_time`` before. Failures are ERROR lines of the same spans, or of others inside them, without
figures. Where a span is recorded twice, the last value of a field counts. Embedding servers log
alike, under another name, and are not meant.

It cannot tell: **the first token** (it lies somewhere between ``validation_time + queue_time`` and
``total_time``), prompt and cached tokens, ids, sessions, and requests whose client went away. The
number of generated tokens is not logged either; it is what ``inference_time / time_per_token``
gives, rounded. A call with several prompts logs one event a prompt.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_SPANS = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")
_TARGET = "text_generation_router"
_OUTER = ("timestamp", "level", "message", "target", "span", "spans", *_SPANS)
_ROUTES = (
    "generate", "generate_stream", "compat_generate", "chat_completions", "completions",
    "sagemaker_compatibility", "vertex_compatibility",
)  # fmt: skip
_STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"
_STREAMS = {"generate_stream": True, "generate": False}

FIELDS = {
    "start": Field("timestamp - total_time", "", mark("the line is written at the end"), "derived"),
    "route": Field("span name", "", mark("which of the server's calls it was")),
    "output_tokens": Field(
        "inference_time / time_per_token", "tokens", mark("rounded to a whole number"), "derived"
    ),
    "e2e_us": Field(
        "total_time", mark("with its unit"), mark("from the router's start to the end")
    ),
    "queue_us": Field(
        "queue_time", mark("with its unit"), mark("from queueing to the first batch")
    ),
    "status": Field("level, message", "", mark("Success, or an error")),
    "streamed": Field("span name", "", mark("generate_stream streams, generate does not")),
    "vantage": Field("", "", mark("the server's own log"), "assumed"),
}
_NO_TTFT = mark(
    "TGI does not log the first token: it lies between validation_time + queue_time and total_time"
)


def _is_ours(line: str) -> bool:
    timed = "time_per_token" in line and "inference_time" in line
    return _TARGET in line and timed


def _recognise(head: Head) -> str | None:
    if head.shape is Shape.TEXT:
        found = any(_is_ours(line) for line in head.lines)
        return tr("Success lines of text_generation_router") if found else None
    for record in head.records:
        span = record.get("span")
        fields = span if isinstance(span, dict) else record
        target = str(record.get("target", ""))
        if target.startswith(_TARGET) and {"inference_time", "time_per_token"} <= fields.keys():
            return tr("events of text_generation_router with inference_time")
    return None


def _route(inner: pl.Expr, outer: pl.Expr) -> pl.Expr:
    """The name of a span, or that of the outermost around it if only this one is a call."""
    return pl.when(~inner.is_in(_ROUTES) & outer.is_in(_ROUTES)).then(outer).otherwise(inner)


def _from_text(chunk: Raw) -> Batch:
    """Lines as the router prints them; those that are JSON among them, too."""
    text = pl.col("text").str
    routed = text.contains(_TARGET, literal=True)
    calls = text.contains(rf"\b(?:{'|'.join(_ROUTES)})\b")
    lines = chunk.frame.filter(routed & calls)
    body = text.extract(r"(\{\"timestamp\".*\})\s*$", 1)
    event = pl.col("body").str.json_path_match
    lines = lines.with_columns(body.alias("body"))
    bare = pl.when(pl.col("body").is_null())
    rows = lines.select(
        LINE,
        pl.coalesce(event("$.timestamp"), bare.then(text.extract(_STAMP, 1))).alias("timestamp"),
        pl.coalesce(
            event("$.level"), bare.then(text.extract(r"Z\s+([A-Z]+)\s+\w+[:{]", 1))
        ).alias("level"),
        pl.coalesce(
            event("$.message"),
            bare.then(text.extract(r".*\btext_generation_router\S*: \S+:\d+: (.*?)\s*$", 1)),
        ).alias("message"),
        pl.lit(_TARGET).alias("target"),
        pl.coalesce(
            _route(event("$.span.name"), event("$.spans[0].name")),
            # Fields may hold texts that look like names: of a failure, the outermost span counts.
            bare.then(text.extract(rf"^.*[\s:]({'|'.join(_ROUTES)})\{{.*\btotal_time=", 1)),
            bare.then(text.extract(rf"Z\s+[A-Z]+\s+({'|'.join(_ROUTES)})[:{{]", 1)),
        ).alias("name"),
        *(
            pl.coalesce(
                event(f"$.span.{f}"), event(f"$.{f}"),
                bare.then(text.extract(rf".*\b{f}=\"([^\"]*)\"", 1)),
            ).alias(f)
            for f in _SPANS
        ),
    )  # fmt: skip
    return _batch(Raw(rows, chunk.options))


def _from_json(raw: Raw) -> Batch:
    spans = [
        pl.coalesce(raw.text("span", f"$.{name}"), raw.text(name)).alias(name) for name in _SPANS
    ]
    names = _route(raw.text("span", "$.name"), raw.text("spans", "$[0].name")).alias("name")
    return _batch(Raw(raw.frame.with_columns(*spans, names), raw.options))


def _batch(raw: Raw) -> Batch:
    total, inference = raw.duration("total_time", "s"), raw.duration("inference_time", "s")
    nanos = _nanos(raw, "time_per_token")
    made = pl.when(nanos > 0).then(_nanos(raw, "inference_time") / nanos)
    ours = raw.text("target").str.starts_with(_TARGET).fill_null(False)
    done = (raw.text("message") == "Success").fill_null(False)
    failed = ((raw.text("level") == "ERROR") & raw.text("name").is_in(_ROUTES)).fill_null(False)
    busy = raw.text("message").str.to_lowercase().str.contains("overloaded")
    stamp = raw.instant("timestamp")
    frame = raw.select(
        {
            "start": pl.coalesce(stamp - total, pl.when(failed).then(stamp)),
            "route": raw.text("name"),
            "output_tokens": made.round(0).cast(pl.Int64, strict=False),
            "e2e_us": total,
            "queue_us": raw.duration("queue_time", "s"),
            "status": pl.when(done)
            .then(pl.lit("ok"))
            .when(busy)
            .then(pl.lit("rate_limited"))
            .otherwise(pl.lit("error")),
            "streamed": raw.text("name").replace_strict(
                _STREAMS, default=None, return_dtype=pl.Boolean
            ),
            "vantage": pl.lit("server"),
        },
        reject=pl.when(~ours | (~done & ~failed))
        .then(pl.lit("not_a_request_line"))
        .when(done & pl.any_horizontal(total.is_null(), inference.is_null(), nanos.is_null()))
        .then(pl.lit("torn_line")),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_NO_TTFT),))


def _nanos(raw: Raw, name: str) -> pl.Expr:
    """A text with a unit, in nanoseconds."""
    parts = raw.text(name).str.extract_groups(r"^([\d.]+)(ns|us|µs|μs|ms|s)$")
    scale = parts.struct.field("2").replace_strict(
        {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9},
        default=None, return_dtype=pl.Float64,
    )  # fmt: skip
    return parts.struct.field("1").cast(pl.Float64, strict=False) * scale


def _plan(head: Head, options: Options) -> Plan:
    del options
    if head.shape is Shape.TEXT:
        return Plan({}, _from_text)
    return Plan(dict.fromkeys(_OUTER, pl.String), _from_json)


READER = Reader(
    name="tgi",
    title="Hugging Face TGI router log (no TTFT)",
    shapes=(Shape.JSON, Shape.TEXT),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "TGI logs no first token, no prompt tokens and no session: measure at the client or the "
        "gateway (for example with guidellm or aiperf), and read the queue from this log"
    ),
)
