"""LangSmith: runs from ``client.list_runs``, ``POST /runs/query`` or a bulk export to Parquet.

Only runs of type ``llm`` are calls of a model: chains and agents carry the tokens and first tokens
of what they wrap. Stamps without a zone are UTC. ``session_id`` is the project, never the
conversation, which is in the metadata. Where ``first_token_time`` is missing, the first
``new_token`` event stands for it: the first chunk of any kind that the application pulled.

It cannot tell: queue and prefill, and the first token of a run that did not stream with callbacks.
Tokens include the cached ones by LangChain's convention; a row with more of these than input is of
an application that posted its provider's own counts, and is added up.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, complete, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import no_first_token, outdated, turned_away, whole_prompt
from ttftdoctor.table import Field

_TEXTS = (
    "id", "parent_run_id", "run_type", "start_time", "end_time", "first_token_time", "events",
    "prompt_tokens", "completion_tokens", "prompt_token_details", "completion_token_details",
    "extra", "status", "error", "session_id", "project_id", "thread_id",
)  # fmt: skip
_PAGES = ("runs", "data")
_SESSIONS = ("session_id", "thread_id", "conversation_id")
_USAGE = "$.metadata.usage_metadata"
_MODELS = (
    "$.metadata.ls_model_name", "$.invocation_params.model", "$.invocation_params.model_name",
)  # fmt: skip

FIELDS = {
    "request_id": Field("id", "", mark("LangSmith's name")),
    "session_id": Field("extra.metadata, thread_id", "", mark("the conversation of the metadata")),
    "start": Field("start_time", "", mark("LangSmith's name")),
    "model": Field(
        "extra.metadata.ls_model_name, extra.invocation_params", "", mark("LangSmith's names")
    ),
    "tenant": Field("session_id, project_id", "", mark("the project, by LangSmith's name for it")),
    "input_tokens": Field(
        "prompt_tokens", "tokens", mark("cached ones included, as LangChain counts")
    ),
    "cached_tokens": Field("prompt_token_details.cache_read", "tokens", mark("LangSmith's name")),
    "cache_write_tokens": Field(
        "prompt_token_details.cache_creation", "tokens", mark("LangSmith's name")
    ),
    "output_tokens": Field("completion_tokens", "tokens", mark("LangSmith's name")),
    "reasoning_tokens": Field(
        "completion_token_details.reasoning", "tokens", mark("LangSmith's name")
    ),
    "ttft_us": Field(
        "first_token_time - start_time", "", mark("first token less start"), "derived"
    ),
    "e2e_us": Field("end_time - start_time", "", mark("end less start"), "derived"),
    "status": Field("status, error", "", mark("LangSmith's names")),
    "vantage": Field("", "", mark("stamps of the traced application"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, *_PAGES):
        if any({"run_type", "start_time"} <= r.keys() for r in records) and any(
            r.keys() & {"dotted_order", "parent_run_id", "first_token_time"} for r in records
        ):
            return tr("run_type, start_time and dotted_order{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)

    def detail(side: str, name: str, usage: str) -> pl.Expr:
        column = f"{side}_token_details"
        paths = [(column, f"$.{name}"), (column, f"$.raw.{name}"), ("extra", f"{_USAGE}.{usage}")]
        return pl.coalesce([raw.count(c, path, strict=False) for c, path in paths])

    def count(name: str, usage: str) -> pl.Expr:
        return pl.coalesce(raw.count(name), raw.count("extra", f"{_USAGE}.{usage}", strict=False))

    start, end = raw.instant("start_time"), raw.instant("end_time")
    event = '$[?(@.name=="new_token")].time'
    first = pl.coalesce(
        raw.instant("first_token_time", strict=False),
        raw.instant("events", None, event, strict=False),
    )
    ttft = first - start
    said, made = count("prompt_tokens", "input_tokens"), count("completion_tokens", "output_tokens")
    read = detail("prompt", "cache_read", "input_token_details.cache_read")
    # LangChain counts no writes at all where it counts them by how long they are kept.
    aged = [
        detail("prompt", name, f"input_token_details.{name}")
        for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
    ]
    written = detail("prompt", "cache_creation", "input_token_details.cache_creation")
    by_age = pl.sum_horizontal(aged)
    write = pl.when(by_age > written.fill_null(0)).then(by_age).otherwise(written)
    name = raw.text("id")
    calls = (raw.text("run_type").str.to_lowercase() == "llm").fill_null(False)
    again = outdated(raw.frame, name, pl.coalesce(end, start))
    raw.frame = raw.frame.with_columns(again.alias("again"))
    status, why = status_of(raw.text("status")), status_of(raw.text("error"))
    status = (
        pl.when(why.is_in(["rate_limited", "aborted"]))
        .then(why)
        .when(raw.text("error").is_not_null() | (status == "error"))
        .then(pl.lit("error"))
        .otherwise(pl.lit("ok"))
    )
    frame = raw.select(
        {
            "request_id": name,
            "session_id": pl.coalesce(
                *(raw.text("extra", f"$.metadata.{key}") for key in _SESSIONS),
                raw.text("thread_id"),
            ),
            "start": start,
            "model": pl.coalesce(raw.text("extra", path) for path in _MODELS),
            "tenant": pl.coalesce(raw.text("session_id"), raw.text("project_id")),
            "input_tokens": whole_prompt(said, read, write),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": made,
            "reasoning_tokens": detail("completion", "reasoning", "output_token_details.reasoning"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": end - start,
            "status": status,
            "vantage": pl.lit("client"),
        },
        reject=turned_away(raw.frame, calls, name, raw.text("parent_run_id"), pl.col("again")),
        set_aside=no_first_token(ttft, end - start),
    )
    notes = (tr("session_id of a LangSmith run is its project: it is read as the tenant"),)
    return batch_of(frame, FIELDS, notes, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, *_PAGES, unless="run_type")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap, whole=True)


READER = Reader(
    name="langsmith",
    title="LangSmith runs",
    shapes=(Shape.JSON, Shape.CSV, Shape.PARQUET),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "LangSmith has no queue and no prefill time; a first token only of llm runs that stream "
        "(streaming=True), and a conversation only where metadata has thread_id or session_id"
    ),
)
