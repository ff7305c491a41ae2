"""Weave (Weights & Biases): calls from ``calls/stream_query``, one JSON object a line.

Every traced function is a call; those that have usage and hold no other call with usage are calls
of a model (the usage of a parent is the sum of its children's). Usage is kept by model in the
provider's own words: ``input_tokens`` beside ``cache_read_input_tokens`` are Anthropic's, which
leave out cached tokens and are added up. A streamed OpenAI call has ``time_to_first_token`` in its
output, in seconds.

It cannot tell: queue and prefill, and first tokens of other providers.
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
    "id", "parent_id", "op_name", "thread_id", "started_at", "ended_at", "output", "summary",
    "exception",
)  # fmt: skip

FIELDS = {
    "request_id": Field("id", "", mark("Weave's name")),
    "session_id": Field("thread_id", "", mark("Weave's name")),
    "start": Field("started_at", "", mark("Weave's name")),
    "model": Field("summary.usage", "", mark("the model its usage is kept under")),
    "route": Field("op_name", "", mark("the traced function")),
    "input_tokens": Field("summary.usage", "tokens", mark("cached ones included")),
    "cached_tokens": Field("summary.usage", "tokens", mark("the provider's count")),
    "cache_write_tokens": Field("summary.usage", "tokens", mark("the provider's count")),
    "output_tokens": Field("summary.usage", "tokens", mark("the provider's count")),
    "reasoning_tokens": Field("summary.usage", "tokens", mark("the provider's count")),
    "ttft_us": Field("output.time_to_first_token", "s", mark("Weave's unit of it")),
    "e2e_us": Field("ended_at - started_at", "", mark("end less start"), "derived"),
    "status": Field("exception", "", mark("a call with an exception failed")),
    "vantage": Field("", "", mark("stamps of the traced application"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "calls"):
        if any({"op_name", "started_at", "summary"} <= record.keys() for record in records):
            return tr("op_name, started_at and summary{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    usage = raw.text("summary", "$.usage.*")
    model = raw.text("summary", "$.usage").str.extract(r'^\s*\{\s*"((?:[^"\\]|\\.)+)"\s*:')
    # The name of an operation at times comes as the address of its version.
    op = raw.text("op_name").str.replace(r"^weave:.*/op/", "").str.replace(r":[^:]*$", "")
    raw.frame = raw.frame.with_columns(usage.alias("usage"), model.alias("model"), op.alias("op"))

    def count(*paths: str) -> pl.Expr:
        return pl.coalesce([raw.count("usage", f"$.{path}", strict=False) for path in paths])

    read = count("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
                 "cache_read_input_tokens", "cached_content_token_count")  # fmt: skip
    write = count("cache_creation_input_tokens", "prompt_tokens_details.cache_write_tokens")
    said = count("prompt_tokens", "input_tokens", "prompt_token_count")
    # Gemini counts its thoughts beside the answer.
    thoughts = count("thoughts_token_count")
    answer = count("candidates_token_count") + thoughts.fill_null(0)
    apart = (
        count("input_tokens").is_not_null()
        & count("cache_read_input_tokens", "cache_creation_input_tokens").is_not_null()
    )
    calls = raw.text("usage").is_not_null()
    name = raw.text("id")
    start, end = raw.instant("started_at"), raw.instant("ended_at")
    e2e = end - start
    ttft = raw.duration("output", "s", "$.time_to_first_token", strict=False)
    frame = raw.select(
        {
            "request_id": name,
            "session_id": raw.text("thread_id"),
            "start": start,
            "model": raw.text("model"),
            "route": raw.text("op"),
            "input_tokens": whole_prompt(said, read, write, apart=apart),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": pl.coalesce(count("completion_tokens", "output_tokens"), answer),
            "reasoning_tokens": pl.coalesce(
                count(
                    "completion_tokens_details.reasoning_tokens",
                    "output_tokens_details.reasoning_tokens",
                ),
                thoughts,
            ),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "status": status_by_error(raw.text("exception")),
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, calls, name, raw.text("parent_id"), told_before(name)),
        set_aside=not_streamed(ttft, e2e),
    )
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, "calls", unless="op_name")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap, whole=True)


READER = Reader(
    name="weave",
    title="Weave calls",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Weave has no queue and no prefill time, and a first token only of streamed OpenAI calls "
        "(stream=True with stream_options.include_usage)"
    ),
)
