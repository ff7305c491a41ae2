"""Braintrust: rows of a project's logs or an experiment, from its API, BTQL or JSON export.

Rows whose ``span_attributes.type`` is ``llm`` are calls of a model; scores, tasks and functions
are not. All is in ``metrics``: ``start`` and ``end`` in epoch seconds, ``time_to_first_token`` in
seconds, token counts with cached ones included. The session is what the application put into the
metadata.

It cannot tell: queue and prefill, and the first token of calls that were not streamed.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor.prompts import Prompts, find
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "id", "span_id", "root_span_id", "span_parents", "span_attributes", "metrics", "metadata",
    "error", "project_id",
)  # fmt: skip
_PAGES = ("events", "data", "rows")
_SESSIONS = ("session_id", "thread_id", "conversation_id", "sessionId", "threadId")
_SAME_US = 1000

FIELDS = {
    "request_id": Field("span_id, id", "", "Braintrust's names"),
    "session_id": Field("metadata", "", "what the application attached"),
    "start": Field("metrics.start", "s", "Braintrust's unit of it"),
    "model": Field("metadata.model", "", "Braintrust's name"),
    "input_tokens": Field("metrics.prompt_tokens", "tokens", "cached ones included"),
    "cached_tokens": Field("metrics.prompt_cached_tokens", "tokens", "Braintrust's name"),
    "cache_write_tokens": Field(
        "metrics.prompt_cache_creation_tokens", "tokens", "Braintrust's name"
    ),
    "output_tokens": Field("metrics.completion_tokens", "tokens", "Braintrust's name"),
    "reasoning_tokens": Field("metrics.completion_reasoning_tokens", "tokens", "Braintrust's name"),
    "ttft_us": Field("metrics.time_to_first_token", "s", "Braintrust's unit of it"),
    "e2e_us": Field("metrics.end - metrics.start", "s", "end less start", "derived"),
    "status": Field("error", "", "a row with an error failed"),
    "vantage": Field("", "", "stamps of the traced application", "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in (
        ("", head.records),
        *((f" in {key}", head.inner.get(key, ())) for key in _PAGES),
    ):
        if any({"span_attributes", "metrics", "root_span_id"} <= r.keys() for r in records):
            return f"span_attributes, metrics and root_span_id{where}"
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    def count(name: str) -> pl.Expr:
        return raw.count("metrics", f"$.{name}", strict=False)

    calls = (raw.text("span_attributes", "$.type").str.to_lowercase() == "llm").fill_null(False)
    parent = raw.text("span_parents", "$[0]")
    inner = raw.frame.select(parent.filter(calls)).to_series().drop_nulls()
    name = raw.text("span_id")
    start = raw.instant("metrics", "s", "$.start", strict=False)
    e2e = raw.instant("metrics", "s", "$.end", strict=False) - start
    ttft = raw.duration("metrics", "s", "$.time_to_first_token", strict=False)
    said, read, write = (
        count("prompt_tokens"), count("prompt_cached_tokens"),
        count("prompt_cache_creation_tokens"),
    )  # fmt: skip
    cache = read.fill_null(0) + write.fill_null(0)
    tokens = pl.when(cache > said).then(said + cache).otherwise(said)
    why = status_of(raw.text("error"))
    frame = raw.select(
        {
            "request_id": pl.coalesce(name, raw.text("id")),
            "session_id": pl.coalesce(raw.text("metadata", f"$.{n}") for n in _SESSIONS),
            "start": start,
            "model": raw.text("metadata", "$.model"),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("completion_tokens"),
            "reasoning_tokens": count("completion_reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "status": pl.when(raw.text("error").is_null())
            .then(pl.lit("ok"))
            .when(why.is_in(["rate_limited", "aborted"]))
            .then(why)
            .otherwise(pl.lit("error")),
            "vantage": pl.lit("client"),
        },
        reject=pl.when(~calls)
        .then(pl.lit("not_a_model_call"))
        .when(name.is_in(inner.implode()).fill_null(False))
        .then(pl.lit("wraps_another_call"))
        .when(name.is_not_null() & ~name.is_first_distinct())
        .then(pl.lit("repeated_row")),
        set_aside=pl.when(ttft >= e2e - _SAME_US).then(pl.lit("not_streamed")),
    )
    fields = {k: v for k, v in FIELDS.items() if frame[k].count()}
    if prompts is None:
        return Batch(frame, fields)
    told = prompts.read(frame, raw.frame)
    return Batch(told.frame, fields | told.fields, told.notes, told.parts, prompts.bytes_per_token)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = None
    if "span_attributes" not in head.columns:
        unwrap = next((key for key in _PAGES if key in head.inner), None)
    where = find(head.inner[unwrap] if unwrap else head.records)
    prompts = None
    if where is not None:
        prompts = Prompts(
            where, bytes_per_token=options.bytes_per_token, tokenizer=options.tokenizer,
            parts=options.text,
        )  # fmt: skip
    names = (*_TEXTS, *(prompts.where.columns if prompts else ()))
    return Plan(
        dict.fromkeys(names, pl.String),
        partial(_convert, prompts=prompts),
        whole=True,
        unwrap=unwrap,
    )


READER = Reader(
    name="braintrust",
    title="Braintrust spans",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=(
        "Braintrust has no queue and no prefill time, and a first token only of streamed calls "
        "(wrap the client and call it with stream=True)"
    ),
)
