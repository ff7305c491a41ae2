"""MLflow: traces from ``trace.to_json()`` or ``search_traces()``, one object a trace.

A span of type ``CHAT_MODEL`` or ``LLM`` is a call of a model; the values of its attributes are
JSON inside text. Stamps are nanoseconds. The first token of a streamed call is the time of the
event ``mlflow.chunk.item.0``. ``mlflow.chat.tokenUsage`` includes cached tokens; the usage of the
trace as a whole is a sum and is never read. The session is in the metadata of the trace.

It cannot tell: queue and prefill, cached tokens of providers that MLflow does not ask for them, and
first tokens of calls that were not streamed.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, no_first_token, turned_away
from ttftdoctor.table import LINE, Field

_USAGE = "mlflow.chat.tokenUsage"
_MODELS = ("mlflow.llm.model", "mlflow.chat.model", "model")
_INPUTS = "mlflow.spanInputs"
_FIRST_CHUNK = "mlflow.chunk.item.0"
_KINDS = ("CHAT_MODEL", "LLM")


def _texts(*names: str) -> dict[str, pl.DataType]:
    return {name: pl.String() for name in names}


_SPAN = pl.Struct(
    {
        **_texts("span_id", "parent_span_id", "start_time_unix_nano", "end_time_unix_nano"),
        # As releases before 3.2 wrote them.
        **_texts("parent_id", "start_time", "end_time", "status_code", "status_message"),
        "context": pl.Struct(_texts("span_id")),
        "events": pl.List(pl.Struct(_texts("name", "time_unix_nano", "timestamp"))),
        "status": pl.Struct(_texts("code", "message")),
        "attributes": pl.Struct(_texts("mlflow.spanType", _USAGE, *_MODELS, _INPUTS)),
    }
)
_SCHEMA: dict[str, Any] = {"info": pl.String, "data": pl.Struct({"spans": pl.List(_SPAN)})}

FIELDS = {
    "request_id": Field("span_id", "", mark("MLflow's name")),
    "session_id": Field("info.trace_metadata.mlflow.trace.session", "", mark("MLflow's name")),
    "start": Field("start_time_unix_nano", "ns", mark("the span's own start")),
    "model": Field("mlflow.llm.model, mlflow.chat.model", "", mark("MLflow's names")),
    "input_tokens": Field(f"{_USAGE}.input_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field(f"{_USAGE}.cache_read_input_tokens", "tokens", mark("MLflow's name")),
    "cache_write_tokens": Field(
        f"{_USAGE}.cache_creation_input_tokens", "tokens", mark("MLflow's name")
    ),
    "output_tokens": Field(f"{_USAGE}.output_tokens", "tokens", mark("MLflow's name")),
    "ttft_us": Field(f"events ({_FIRST_CHUNK})", "ns", mark("first chunk less start"), "derived"),
    "e2e_us": Field(
        "end_time_unix_nano - start_time_unix_nano", "ns", mark("span's length"), "derived"
    ),
    "status": Field("status.code", "", mark("MLflow's name")),
    "vantage": Field("", "", mark("spans of the traced application"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "traces"):
        for record in records:
            data = record.get("data")
            spans = data.get("spans") if isinstance(data, dict) else None
            first = spans[0] if isinstance(spans, list) and spans else None
            if not isinstance(first, dict) or "info" not in record:
                continue
            if "start_time" in first and "context" in first:
                return tr("info and data.spans with start_time and context{where}", where=where)
            if "start_time_unix_nano" in first:
                return tr("info and data.spans with start_time_unix_nano{where}", where=where)
    return None


def _flatten(raw: Raw) -> pl.DataFrame:
    """One row a span; a trace without spans stays."""
    session = pl.coalesce(
        raw.text("info", f"$.{place}['mlflow.trace.session']")
        for place in ("trace_metadata", "request_metadata")
    )
    event = pl.element().struct
    first = (
        pl.col("events")
        .list.eval(
            pl.when(event.field("name") == _FIRST_CHUNK).then(
                pl.coalesce(event.field("time_unix_nano"), event.field("timestamp"))
            )
        )
        .list.drop_nulls()
        .list.first()
    )
    attribute = pl.col("attributes").struct
    # Values are JSON in text: a name comes in quotes of its own.
    models = [attribute.field(name).str.strip_chars('"') for name in _MODELS]
    return (
        raw.frame.select(
            LINE, session.alias("session"), pl.col("data").struct.field("spans").alias("span")
        )
        .explode("span", empty_as_null=True)
        .with_columns(pl.col("span").is_not_null().alias("real"))
        .unnest("span")
        .with_columns(
            first.alias("first_chunk"),
            attribute.field("mlflow.spanType").str.strip_chars('"').alias("kind"),
            attribute.field(_USAGE).alias("usage"),
            pl.coalesce(*models, attribute.field(_INPUTS).str.json_path_match("$.model")).alias(
                "model"
            ),
            pl.coalesce("span_id", pl.col("context").struct.field("span_id")).alias("span_id"),
            pl.coalesce("parent_span_id", "parent_id").alias("parent_span_id"),
            pl.coalesce("start_time_unix_nano", "start_time").alias("start_time_unix_nano"),
            pl.coalesce("end_time_unix_nano", "end_time").alias("end_time_unix_nano"),
            pl.coalesce(pl.col("status").struct.field("code"), "status_code").alias("code"),
            pl.coalesce(pl.col("status").struct.field("message"), "status_message").alias(
                "message"
            ),
        )
    )


def _convert(chunk: Raw) -> Batch:
    raw = Raw(_flatten(chunk), chunk.options)

    def count(name: str) -> pl.Expr:
        return raw.count("usage", f"$.{name}", strict=False)

    calls = pl.col("kind").str.to_uppercase().is_in(_KINDS).fill_null(False)
    no_span = pl.when(~pl.col("real")).then(pl.lit("no_span"))
    start, end = raw.exact("start_time_unix_nano"), raw.exact("end_time_unix_nano")
    ttft, e2e = (raw.exact("first_chunk") - start) // 1000, (end - start) // 1000
    said, read = count("input_tokens"), count("cache_read_input_tokens")
    write = count("cache_creation_input_tokens")
    failed = raw.text("code").str.to_uppercase().str.contains("ERROR").fill_null(False)
    frame = raw.select(
        {
            "request_id": raw.text("span_id"),
            "session_id": raw.text("session"),
            "start": start // 1000,
            "model": raw.text("model"),
            "input_tokens": pl.when(said != 0).then(said),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("output_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "status": pl.when(failed)
            .then(failure(raw.text("message")))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        reject=pl.coalesce(
            no_span, turned_away(raw.frame, calls, raw.text("span_id"), pl.col("parent_span_id"))
        ),
        set_aside=no_first_token(ttft, e2e),
    )  # fmt: skip
    return batch_of(frame, FIELDS, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    return Plan(_SCHEMA, _convert, whole=True, unwrap=page_of(head, "traces", unless="info"))


READER = Reader(
    name="mlflow",
    title="MLflow traces",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "MLflow has no queue and no prefill time, and a first token only of streamed calls "
        "(stream=True under autologging records the event mlflow.chunk.item.0)"
    ),
)
