"""Arize Phoenix: spans from its REST API and command line, or from a data frame of spans.

REST pages hold spans under ``data``, with dotted names inside ``attributes``; a data frame saved
as CSV or Parquet has a column ``attributes.NAME`` for each name that any span has. Only spans of
kind LLM are calls of a model, and of two nested ones (a framework and a client library) the inner
is the call. The first token is the time of the event ``First Token Stream Event``; in a CSV the
events are Python text, from which its time is taken.

Prompt tokens include cached ones (OpenAI and Anthropic instrumentations) but those of Bedrock
Converse do not: rows with more cached than prompt tokens are added up. The cumulative counts of
parents are not read. It cannot tell: queue and prefill, and first tokens of instrumentations that
send no event.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of, complete, page_of, pages
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, no_first_token, told_before, turned_away, whole_prompt
from ttftdoctor.table import Field

_ATTRIBUTES = {
    "kind": ("openinference.span.kind",),
    "session_id": ("session.id",),
    "model": ("llm.response.model_name", "llm.model_name", "llm.request.model_name"),
    "input_tokens": ("llm.token_count.prompt",),
    "cached_tokens": ("llm.token_count.prompt_details.cache_read",),
    "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
    "output_tokens": ("llm.token_count.completion",),
    "reasoning_tokens": ("llm.token_count.completion_details.reasoning",),
}
_TEXTS = (
    "id", "name", "context", "context.span_id", "span_kind", "parent_id", "start_time", "end_time",
    "status_code", "status_message", "attributes", "events",
    *(f"attributes.{name}" for names in _ATTRIBUTES.values() for name in names),
)  # fmt: skip
_EVENT = "First Token Stream Event"
#: The time of that event where events are Python text: a quoted stamp, or a call that makes one.
_PYTHON = (
    r"First Token Stream Event'[^{}]*?'timestamp': (?:Timestamp\()?'([^']+)'",
    r"'timestamp': (?:Timestamp\()?'([^']+)'[^{}]*?First Token Stream Event",
)
_NUMBERS = r"datetime\((\d+), (\d+), (\d+)(?:, (\d+))?(?:, (\d+))?(?:, (\d+))?(?:, (\d+))?"
_CALLED = (
    rf"First Token Stream Event'[^{{}}]*?'timestamp': (?:datetime\.)?{_NUMBERS}",
    rf"'timestamp': (?:datetime\.)?{_NUMBERS}[^{{}}]*?First Token Stream Event",
)


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        for record in records:
            context = record.get("context")
            if "span_kind" not in record or "start_time" not in record:
                continue
            if isinstance(context, dict) and {"trace_id", "span_id"} <= context.keys():
                return tr("span_kind and context.trace_id{where}", where=where)
    if {"context.span_id", "span_kind"} <= set(head.columns):
        return tr("columns context.span_id and span_kind")
    return None


def _made(events: pl.Expr, pattern: str) -> pl.Expr:
    """The stamp that a call of Python's datetime stands for, in UTC."""
    parts = [
        events.str.extract(pattern, at).fill_null("0").str.zfill(6 if at == 7 else 2)
        for at in range(1, 8)
    ]
    stamp = pl.format("{}-{}-{}T{}:{}:{}.{}Z", *parts)
    return pl.when(events.str.extract(pattern, 1).is_not_null()).then(stamp)


def _convert(raw: Raw, nested: bool) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)

    def place(name: str) -> tuple[str, str | None]:
        return ("attributes", f"$['{name}']") if nested else (f"attributes.{name}", None)

    def text(key: str) -> pl.Expr:
        return pl.coalesce([raw.text(*place(name)) for name in _ATTRIBUTES[key]])

    def count(key: str) -> pl.Expr:
        return pl.coalesce([raw.count(*place(n), strict=False) for n in _ATTRIBUTES[key]])

    stamp = pl.coalesce(
        raw.text("events", f'$[?(@.name=="{_EVENT}")].timestamp'),
        *(raw.text("events").str.extract(pattern) for pattern in _PYTHON),
        *(_made(raw.text("events"), pattern) for pattern in _CALLED),
    )
    span = pl.coalesce(
        raw.text("context", "$.span_id"), raw.text("context.span_id"), raw.text("id")
    )
    kind = pl.coalesce(raw.text("span_kind"), text("kind")).str.to_uppercase()
    raw.frame = raw.frame.with_columns(
        stamp.alias("first_token"),
        span.alias("span"),
        (kind == "LLM").fill_null(False).alias("llm"),
    )
    start, end = raw.instant("start_time"), raw.instant("end_time")
    ttft, e2e = raw.instant("first_token", strict=False) - start, end - start
    said, read, write = count("input_tokens"), count("cached_tokens"), count("cache_write_tokens")
    name, parent = pl.col("span"), raw.text("parent_id")
    # Bedrock's Converse counts cached tokens apart.
    apart = raw.text("name").str.contains(r"(?i)bedrock.*converse").fill_null(False)
    frame = raw.select(
        {
            "request_id": name,
            "session_id": text("session_id"),
            "start": start,
            "model": text("model"),
            "input_tokens": whole_prompt(said, read, write, apart=apart),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": count("output_tokens"),
            "reasoning_tokens": count("reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": e2e,
            "status": pl.when(raw.text("status_code").str.to_uppercase() == "ERROR")
            .then(failure(raw.text("status_message")))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, pl.col("llm"), name, parent, told_before(name)),
        set_aside=no_first_token(ttft, e2e),
    )
    fields = {
        key: Field(", ".join(names), "", mark("OpenInference's names"))
        for key, names in _ATTRIBUTES.items()
    } | {
        "request_id": Field("context.span_id", "", mark("Phoenix's name")),
        "start": Field("start_time", "", mark("Phoenix's name")),
        "ttft_us": Field(f"events ({_EVENT})", "", mark("first chunk less start"), "derived"),
        "e2e_us": Field("end_time - start_time", "", mark("the span's length"), "derived"),
        "status": Field("status_code", "", mark("Phoenix's name")),
        "vantage": Field("", "", mark("spans of an instrumented client"), "assumed"),
    }
    del fields["kind"]
    return batch_of(frame, fields, raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    unwrap = page_of(head, "data", unless="span_kind")
    nested = unwrap is not None or "attributes" in head.columns
    return Plan(
        dict.fromkeys(_TEXTS, pl.String),
        partial(_convert, nested=nested),
        whole=True,
        unwrap=unwrap,
    )


READER = Reader(
    name="phoenix",
    title="Arize Phoenix spans (REST, command line, data frame)",
    shapes=(Shape.JSON, Shape.CSV, Shape.PARQUET),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Phoenix has no queue and no prefill time, and a first token only of instrumentations that "
        "send First Token Stream Event (OpenAI, Mistral, LlamaIndex, with stream=True)"
    ),
)
