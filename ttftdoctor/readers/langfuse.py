"""Langfuse: generations from the UI's export, the blob-storage integration or the public API.

The three write the same observations under different names: the UI and the API in camel case with
zoned stamps, the blob integration in snake case with UTC stamps that carry no zone (JSON, JSON
lines, CSV, Parquet). Only observations of type GENERATION are calls of a model, and of two nested
ones the inner is the call. ``latency`` and ``timeToFirstToken`` are s or ms by the age of an
integration, so both times are worked out from the stamps.

Langfuse keeps usage in buckets that do not overlap (``input`` is without what was read from or
written to a cache), but a client that posts a map of its own is stored as it is; which of the two
a row has shows in its ``total``. Blob windows overlap: of an id that comes again, the row with the
latest end counts.

It cannot tell: the session, unless the rows have one (traces are exported apart); queue and
prefill; the first token of a call whose integration set none (at times it set the end).
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, complete, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, no_first_token, outdated, turned_away
from ttftdoctor.table import Field

_TEXTS = (
    "id", "type", "level", "parentObservationId", "parent_observation_id", "startTime",
    "start_time", "completionStartTime", "completion_start_time", "endTime", "end_time", "model",
    "providedModelName", "provided_model_name", "usageDetails", "usage_details", "inputUsage",
    "promptTokens", "prompt_tokens", "outputUsage", "completionTokens", "completion_tokens",
    "sessionId", "session_id", "statusMessage", "status_message", "version", "release", "metadata",
)  # fmt: skip
_MAPS = ("usageDetails", "usage_details")
_READ = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens")
_WRITE = ("input_cache_creation", "input_cache_write", "cache_creation_input_tokens")
_WRITE_BY_AGE = ("input_cache_creation_5m", "input_cache_creation_1h")
_REASONING = ("output_reasoning_tokens", "output_reasoning")
#: Seconds from the start, where the stamp of the first token was not filled in.
_CHUNKS = (
    "$.attributes['gen_ai.response.time_to_first_chunk']",
    "$.attributes['gen_ai.client.operation.time_to_first_chunk']",
)

FIELDS = {
    "request_id": Field("id", "", mark("Langfuse's name")),
    "session_id": Field("sessionId, session_id", "", mark("Langfuse's names")),
    "start": Field("startTime, start_time", "", mark("Langfuse's names")),
    "model": Field("providedModelName, provided_model_name, model", "", mark("Langfuse's names")),
    "version": Field("version, release", "", mark("Langfuse's names")),
    "input_tokens": Field(
        "usageDetails", "tokens", mark("buckets of the prompt, added up"), "derived"
    ),
    "cached_tokens": Field("usageDetails", "tokens", mark("bucket of cached input")),
    "cache_write_tokens": Field("usageDetails", "tokens", mark("buckets of written input")),
    "output_tokens": Field("usageDetails", "tokens", mark("buckets of the output"), "derived"),
    "reasoning_tokens": Field("usageDetails", "tokens", mark("bucket of reasoning")),
    "ttft_us": Field(
        "completionStartTime - startTime", "", mark("first token less start"), "derived"
    ),
    "e2e_us": Field("endTime - startTime", "", mark("end less start"), "derived"),
    "status": Field("level", "", mark("ERROR is a failure")),
    "vantage": Field("", "", mark("stamps of the instrumented client"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        seen = {key for record in records for key in record}
        if "type" not in seen:
            continue
        if {"traceId", "startTime"} <= seen and seen & {"usageDetails", "completionStartTime"}:
            return tr(
                "traceId, type, startTime and usageDetails or completionStartTime{where}",
                where=where,
            )
        if {"trace_id", "start_time"} <= seen and seen & {"usage_details", "provided_model_name"}:
            return tr("trace_id, type, start_time and usage_details{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None, pairs: bool) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)
    usage = pl.coalesce(raw.text("usageDetails"), raw.text("usage_details"))
    calls = (raw.text("type").str.to_uppercase() == "GENERATION").fill_null(False)
    parent = pl.coalesce(raw.text("parentObservationId"), raw.text("parent_observation_id"))
    raw.frame = raw.frame.with_columns(usage.alias("usage"))

    def bucket(*names: str) -> pl.Expr:
        # Parquet keeps the map as a list of pairs.
        places = (f'$[?(@.key=="{name}")].value' if pairs else f"$.{name}" for name in names)
        return pl.coalesce([raw.count("usage", place, strict=False) for place in places])

    def count(*names: str) -> pl.Expr:
        return pl.coalesce([raw.count(name, strict=False) for name in names])

    read = bucket(*_READ)
    aged = pl.sum_horizontal([bucket(name) for name in _WRITE_BY_AGE])
    write = pl.coalesce(bucket(*_WRITE), pl.when(aged > 0).then(aged))
    cache = read.fill_null(0) + write.fill_null(0)
    said, made, total = bucket("input"), bucket("output"), bucket("total")
    as_posted = ((total == said + made) & (cache <= said)).fill_null(False)
    reasoning = bucket(*_REASONING)
    other = bucket("input_audio_tokens").fill_null(0)
    whole = pl.when(as_posted).then(said).otherwise(said + cache + other)
    tokens = pl.coalesce(whole, count("inputUsage", "promptTokens", "prompt_tokens"))
    whole_output = as_posted | (total == tokens + made).fill_null(False)
    output = pl.coalesce(
        pl.when(whole_output).then(made), made + reasoning.fill_null(0),
        count("outputUsage", "completionTokens", "completion_tokens"),
    )  # fmt: skip
    start = pl.coalesce(raw.instant("startTime"), raw.instant("start_time"))
    end = pl.coalesce(raw.instant("endTime"), raw.instant("end_time"))
    first = pl.coalesce(
        raw.instant("completionStartTime", strict=False),
        raw.instant("completion_start_time", strict=False),
    )
    told = (raw.duration("metadata", "s", path, strict=False) for path in _CHUNKS)
    ttft = pl.coalesce(first - start, *told)
    name = raw.text("id")
    again = outdated(raw.frame, name, pl.coalesce(end, start))
    raw.frame = raw.frame.with_columns(again.alias("again"))
    failed = failure(pl.coalesce(raw.text("statusMessage"), raw.text("status_message")))
    frame = raw.select(
        {
            "request_id": name,
            "session_id": pl.coalesce(raw.text("sessionId"), raw.text("session_id")),
            "start": start,
            "model": pl.coalesce(
                raw.text("providedModelName"), raw.text("provided_model_name"), raw.text("model")
            ),
            "version": pl.coalesce(raw.text("version"), raw.text("release")),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": output,
            "reasoning_tokens": reasoning,
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": end - start,
            "status": pl.when(raw.text("level").str.to_uppercase() == "ERROR")
            .then(failed)
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, calls, name, parent, pl.col("again")),
        set_aside=no_first_token(ttft, end - start),
    )
    notes = (
        tr("tokens are the buckets of each row, added up where its total says they are apart"),
    )
    return batch_of(frame, FIELDS, notes, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    maps = [record.get(name) for record in head.records for name in _MAPS]
    pairs = head.shape is Shape.PARQUET and any(isinstance(value, list) for value in maps)
    unwrap = page_of(head, "data", unless="type")
    convert = partial(_convert, pairs=pairs)
    return plan_of(head, options, _TEXTS, convert, unwrap=unwrap, whole=True)


READER = Reader(
    name="langfuse",
    title="Langfuse observations (UI export, blob storage, public API)",
    shapes=(Shape.JSON, Shape.CSV, Shape.PARQUET),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Langfuse has no queue and no prefill time; a first token only where the integration sets "
        "completion_start_time on a streamed generation; sessions only in observations_v2 and the "
        "API (session_id), not in the UI's export"
    ),
)
