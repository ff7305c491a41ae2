"""Braintrust: rows of a project's logs or an experiment, from its API, BTQL or JSON export.

Rows whose ``span_attributes.type`` is ``llm`` are calls of a model; scores, tasks and functions
are not. All is in ``metrics``: ``start`` and ``end`` in epoch seconds, ``time_to_first_token`` in
seconds, token counts with cached ones included. The session is what the application put into the
metadata.

It cannot tell: queue and prefill, and the first token of calls that were not streamed.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed, status_by_error, told_before, turned_away, whole_prompt
from ttftdoctor.table import Field

_TEXTS = (
    "id", "span_id", "root_span_id", "span_parents", "span_attributes", "metrics", "metadata",
    "error", "project_id",
)  # fmt: skip
_PAGES = ("events", "data", "rows")
_SESSIONS = ("session_id", "thread_id", "conversation_id", "sessionId", "threadId")

FIELDS = {
    "request_id": Field("span_id, id", "", mark("Braintrust's names")),
    "session_id": Field("metadata", "", mark("what the application attached")),
    "start": Field("metrics.start", "s", mark("Braintrust's unit of it")),
    "model": Field("metadata.model", "", mark("Braintrust's name")),
    "input_tokens": Field("metrics.prompt_tokens", "tokens", mark("cached ones included")),
    "cached_tokens": Field("metrics.prompt_cached_tokens", "tokens", mark("Braintrust's name")),
    "cache_write_tokens": Field(
        "metrics.prompt_cache_creation_tokens", "tokens", mark("Braintrust's name")
    ),
    "output_tokens": Field("metrics.completion_tokens", "tokens", mark("Braintrust's name")),
    "reasoning_tokens": Field(
        "metrics.completion_reasoning_tokens", "tokens", mark("Braintrust's name")
    ),
    "ttft_us": Field("metrics.time_to_first_token", "s", mark("Braintrust's unit of it")),
    "e2e_us": Field("metrics.end - metrics.start", "s", mark("end less start"), "derived"),
    "status": Field("error", "", mark("a row with an error failed")),
    "vantage": Field("", "", mark("stamps of the traced application"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, *_PAGES):
        if any({"span_attributes", "metrics", "root_span_id"} <= r.keys() for r in records):
            return tr("span_attributes, metrics and root_span_id{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    def count(name: str) -> pl.Expr:
        return raw.count("metrics", f"$.{name}", strict=False)

    calls = (raw.text("span_attributes", "$.type").str.to_lowercase() == "llm").fill_null(False)
    parent = raw.text("span_parents", "$[0]")
    name = raw.text("span_id")
    start = raw.instant("metrics", "s", "$.start", strict=False)
    e2e = raw.instant("metrics", "s", "$.end", strict=False) - start
    ttft = raw.duration("metrics", "s", "$.time_to_first_token", strict=False)
    said, read, write = (
        count("prompt_tokens"), count("prompt_cached_tokens"),
        count("prompt_cache_creation_tokens"),
    )  # fmt: skip
    frame = raw.select(
        {
            "request_id": pl.coalesce(name, raw.text("id")),
            "session_id": pl.coalesce(raw.text("metadata", f"$.{n}") for n in _SESSIONS),
            "start": start,
            "model": raw.text("metadata", "$.model"),
            "input_tokens": whole_prompt(said, read, write),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("completion_tokens"),
            "reasoning_tokens": count("completion_reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "status": status_by_error(raw.text("error")),
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, calls, name, parent, told_before(name)),
        set_aside=not_streamed(ttft, e2e),
    )
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, *_PAGES, unless="span_attributes")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap, whole=True)


READER = Reader(
    name="braintrust",
    title="Braintrust spans",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Braintrust has no queue and no prefill time, and a first token only of streamed calls "
        "(wrap the client and call it with stream=True)"
    ),
)
