"""Opik: spans from ``opik export`` (JSON) or its REST API.

Spans of type ``llm`` are calls of a model, and of two nested ones the inner is the call. ``ttft``
and ``duration`` are in milliseconds; data that was imported again keeps ``ttft`` in the metadata.
``usage`` has the usual counts, cached tokens included, and the provider's own under
``original_usage.*``, where cached tokens are.

It cannot tell: queue and prefill, and first tokens of integrations that do not set ``ttft``.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, complete, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed, status_by_error, told_before, turned_away, whole_prompt
from ttftdoctor.table import Field

_TEXTS = (
    "id", "parent_span_id", "type", "start_time", "end_time", "duration", "ttft", "model",
    "provider", "usage", "thread_id", "metadata", "error_info", "project_name",
)  # fmt: skip
_PAGES = ("content", "spans", "data")

FIELDS = {
    "request_id": Field("id", "", mark("Opik's name")),
    "session_id": Field("thread_id, metadata.thread_id", "", mark("Opik's name")),
    "start": Field("start_time", "", mark("Opik's name")),
    "model": Field("model", "", mark("Opik's name")),
    "tenant": Field("project_name", "", mark("Opik's name")),
    "route": Field("provider", "", mark("Opik's name")),
    "input_tokens": Field("usage.prompt_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field("usage (original_usage.*)", "tokens", mark("the provider's count")),
    "cache_write_tokens": Field("usage (original_usage.*)", "tokens", mark("the provider's count")),
    "output_tokens": Field("usage.completion_tokens", "tokens", mark("Opik's name")),
    "reasoning_tokens": Field("usage (original_usage.*)", "tokens", mark("the provider's count")),
    "ttft_us": Field("ttft", "ms", mark("Opik's unit of it")),
    "e2e_us": Field("end_time - start_time", "", mark("end less start"), "derived"),
    "status": Field("error_info", "", mark("a span with an error failed")),
    "vantage": Field("", "", mark("stamps of the traced application"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, *_PAGES):
        seen = {key for record in records for key in record}
        if {"parent_span_id", "start_time", "usage"} <= seen and seen & {
            "ttft",
            "total_estimated_cost",
        }:
            return tr(
                "parent_span_id, start_time, usage and ttft or total_estimated_cost{where}",
                where=where,
            )
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)

    def count(*names: str) -> pl.Expr:
        paths = [f"$['{name}']" for name in names]
        paths += [f"$['original_usage.{name}']" for name in names]
        return pl.coalesce([raw.count("usage", path, strict=False) for path in paths])

    read = count("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
                 "cache_read_input_tokens", "cacheReadInputTokens")  # fmt: skip
    write = count("cache_creation_input_tokens", "cacheWriteInputTokens")
    said = count("prompt_tokens")
    calls = (raw.text("type").str.to_lowercase() == "llm").fill_null(False)
    name = raw.text("id")
    start, end = raw.instant("start_time"), raw.instant("end_time")
    e2e = pl.coalesce(end - start, raw.duration("duration", "ms"))
    ttft = pl.coalesce(
        raw.duration("ttft", "ms"), raw.duration("metadata", "ms", "$._import_ttft", strict=False)
    )
    frame = raw.select(
        {
            "request_id": name,
            "session_id": pl.coalesce(raw.text("thread_id"), raw.text("metadata", "$.thread_id")),
            "start": start,
            "model": raw.text("model"),
            "tenant": raw.text("project_name"),
            "route": raw.text("provider"),
            "input_tokens": whole_prompt(said, read, write),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("completion_tokens"),
            "reasoning_tokens": count(
                "completion_tokens_details.reasoning_tokens",
                "output_tokens_details.reasoning_tokens",
            ),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "status": status_by_error(raw.text("error_info")),
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, calls, name, raw.text("parent_span_id"), told_before(name)),
        set_aside=not_streamed(ttft, e2e),
    )
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, *_PAGES, unless="parent_span_id")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap, whole=True)


READER = Reader(
    name="opik",
    title="Opik spans",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Opik has no queue and no prefill time, and a first token only where the integration sets "
        "ttft on the span of a streamed call"
    ),
)
