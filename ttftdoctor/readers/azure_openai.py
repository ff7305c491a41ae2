"""Azure OpenAI: diagnostic logs of category ``RequestResponse``, from a workspace or a blob.

A workspace writes ``properties_s`` as JSON inside text, a blob ``properties`` as an object under
``records``. ``requestTime`` and ``responseTime`` are .NET ticks: tenths of microseconds since the
year 1. There are no tokens and no first token, so such a log only shows load: how many requests
were under way, to which deployment, and for how long.

It cannot tell: tokens, first token, cached tokens, sessions.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, complete, page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "Category", "category", "OperationName", "operationName", "ResultSignature", "resultSignature",
    "DurationMs", "durationMs", "CorrelationId", "correlationId", "properties_s", "properties",
    "TimeGenerated", "time",
)  # fmt: skip
_EPOCH_US = 62_135_596_800 * 10**6
_CALLS = r"completion|responses|messages|generate"

FIELDS = {
    "request_id": Field("CorrelationId", "", mark("Azure's name")),
    "start": Field("properties.requestTime", mark(".NET ticks"), mark("Azure's unit of it")),
    "model": Field("properties.modelName", "", mark("Azure's name")),
    "route": Field("properties.modelDeploymentName", "", mark("the deployment")),
    "version": Field("properties.modelVersion", "", mark("Azure's name")),
    "e2e_us": Field("responseTime - requestTime, DurationMs", "", mark("Azure's names"), "derived"),
    "streamed": Field("properties.streamType", "", mark("Azure's name")),
    "status": Field("ResultSignature", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the provider's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "records"):
        for record in records:
            kind = record.get("Category", record.get("category"))
            inside = record.get("properties_s", record.get("properties"))
            if kind == "RequestResponse" and inside is not None:
                return tr("category RequestResponse with properties{where}", where=where)
    return None


def _convert(raw: Raw) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)

    def text(*names: str) -> pl.Expr:
        return pl.coalesce([raw.text(name) for name in names])

    raw.frame = raw.frame.with_columns(text("properties_s", "properties").alias("inside"))

    def ticks(name: str) -> pl.Expr:
        value = raw.exact("inside", f"$.{name}")
        return pl.when(value > 0).then(value // 10 - _EPOCH_US)

    start, end = ticks("requestTime"), ticks("responseTime")
    logged = pl.coalesce(raw.duration("DurationMs", "ms"), raw.duration("durationMs", "ms"))
    stream = raw.text("inside", "$.streamType").str.to_lowercase()
    operation = text("OperationName", "operationName").str.to_lowercase()
    frame = raw.select(
        {
            "request_id": text("CorrelationId", "correlationId"),
            "start": start,
            "model": raw.text("inside", "$.modelName"),
            "route": raw.text("inside", "$.modelDeploymentName"),
            "version": raw.text("inside", "$.modelVersion"),
            "e2e_us": pl.coalesce(end - start, logged),
            "streamed": pl.when(stream.is_not_null()).then(stream == "streaming"),
            "status": status_of(text("ResultSignature", "resultSignature")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when((text("Category", "category") != "RequestResponse").fill_null(True))
        .then(pl.lit("another_category"))
        .when(~operation.str.contains(_CALLS))
        .then(pl.lit("not_a_chat_call")),
    )
    return batch_of(frame, FIELDS, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert, unwrap=page_of(head, "records"))


READER = Reader(
    name="azure-openai",
    title="Azure OpenAI diagnostic logs (RequestResponse; no TTFT)",
    shapes=(Shape.JSON, Shape.CSV),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Azure OpenAI logs no tokens and no first token of a request: measure both at the client "
        "(stream_options.include_usage), or log them in a gateway before it"
    ),
)
