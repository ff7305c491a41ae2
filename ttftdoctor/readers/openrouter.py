"""OpenRouter: the activity CSV, and generations from ``/api/v1/generation``.

The CSV has a time to first token; the API has none: its ``latency`` is the whole request in some
rows and not in others, and is never read as a first token. Native token counts are those of the
model that answered; the normalised ones are of one tokenizer for all models, and are used only
where there are no others. ``created_at`` is UTC, and in some rows the end of the request: the id
names the second of the start, which counts where the two disagree.

It cannot tell: queue and prefill, sessions in the CSV, and which server of a provider answered
(the provider stands in for it). ``/activity`` gives sums a day, which are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "id", "generation_id", "session_id", "created_at", "model", "model_permaslug", "provider_name",
    "app_name", "api_key_name", "streamed", "cancelled", "tokens_prompt", "tokens_completion",
    "tokens_reasoning", "tokens_cached", "native_tokens_prompt", "native_tokens_completion",
    "native_tokens_reasoning", "native_tokens_cached", "generation_time_ms", "generation_time",
    "time_to_first_token_ms", "response_cache_source_id", "finish_reason",
    "finish_reason_normalized", "provider_responses",
)  # fmt: skip
_SAME_US = 1000
_SECOND_US = 1_000_000

FIELDS = {
    "request_id": Field("generation_id, id", "", mark("OpenRouter's names")),
    "session_id": Field("session_id", "", mark("OpenRouter's name")),
    "start": Field("created_at, id", "", mark("the earlier of the stamp and the second in the id")),
    "model": Field("model_permaslug, model", "", mark("OpenRouter's names")),
    "replica": Field("provider_name", "", mark("the provider that answered")),
    "tenant": Field("api_key_name, app_name", "", mark("OpenRouter's names")),
    "input_tokens": Field(
        "native_tokens_prompt, tokens_prompt", "tokens", mark("OpenRouter's names")
    ),
    "cached_tokens": Field(
        "native_tokens_cached, tokens_cached", "tokens", mark("OpenRouter's names")
    ),
    "output_tokens": Field(
        "native_tokens_completion, tokens_completion", "tokens", mark("OpenRouter's names")
    ),
    "reasoning_tokens": Field(
        "native_tokens_reasoning, tokens_reasoning", "tokens", mark("OpenRouter's names")
    ),
    "ttft_us": Field("time_to_first_token_ms", "ms", mark("by its name")),
    "e2e_us": Field("generation_time_ms, generation_time", "ms", mark("OpenRouter's names")),
    "attempts": Field("provider_responses", "", mark("their number"), "derived"),
    "status": Field("cancelled, finish_reason", "", mark("OpenRouter's names")),
    "streamed": Field("streamed", "", mark("OpenRouter's name")),
    "vantage": Field("", "", mark("the router's own log"), "assumed"),
}


def _is_generation(record: Mapping[str, Any]) -> bool:
    if "tokens_prompt" not in record:
        return False
    return bool(record.keys() & {"generation_id", "native_tokens_prompt"})


def _wrapped(head: Head) -> bool:
    return any(isinstance(r.get("data"), dict) and _is_generation(r["data"]) for r in head.records)


def _recognise(head: Head) -> str | None:
    if any(_is_generation(record) for record in head.records):
        return tr("tokens_prompt and generation_id or native_tokens_prompt")
    if any(_is_generation(record) for record in head.inner.get("data", ())):
        return tr("tokens_prompt and native_tokens_prompt in data")
    if _wrapped(head):
        return tr("data with tokens_prompt and native_tokens_prompt")
    days = (set(head.columns), *(record.keys() for record in head.inner.get("data", ())))
    if any({"date", "requests", "model_permaslug"} <= names for names in days):
        return tr("sums of a day: date, requests and model_permaslug")
    return None


def _convert(raw: Raw, wrapped: bool) -> Batch:
    names = [n for n in _TEXTS if wrapped or not raw.has(n)]
    raw.frame = raw.frame.with_columns(
        (raw.text("data", f"$.{n}") if wrapped else pl.lit(None, pl.String)).alias(n) for n in names
    )

    def count(name: str) -> pl.Expr:
        return pl.coalesce(raw.count(f"native_{name}"), raw.count(name))

    name = pl.coalesce(raw.text("generation_id"), raw.text("id"))
    second = name.str.extract(r"^gen-(\d{10})-", 1).cast(pl.Int64, strict=False) * _SECOND_US
    stamp = raw.instant("created_at")
    late = stamp >= second + _SECOND_US
    ttft = raw.duration("time_to_first_token_ms", "ms")
    e2e = pl.coalesce(
        raw.duration("generation_time_ms", "ms"), raw.duration("generation_time", "ms")
    )
    tokens = count("tokens_prompt")
    tries = raw.text("provider_responses").str.count_matches(r'"status"\s*:')
    finish = pl.coalesce(raw.text("finish_reason_normalized"), raw.text("finish_reason"))
    frame = raw.select(
        {
            "request_id": name,
            "session_id": raw.text("session_id"),
            "start": pl.when(late.fill_null(False)).then(second).otherwise(stamp),
            "model": pl.coalesce(raw.text("model_permaslug"), raw.text("model")),
            "replica": raw.text("provider_name"),
            "tenant": pl.coalesce(raw.text("api_key_name"), raw.text("app_name")),
            "input_tokens": pl.when(tokens != 0).then(tokens),
            "cached_tokens": count("tokens_cached"),
            "output_tokens": count("tokens_completion"),
            "reasoning_tokens": count("tokens_reasoning"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "attempts": pl.when(tries > 0).then(tries),
            "status": pl.when(raw.boolean("cancelled"))
            .then(pl.lit("aborted"))
            .when(finish.str.to_lowercase() == "error")
            .then(status_of(finish))
            .otherwise(pl.lit("ok")),
            "streamed": raw.boolean("streamed"),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when(raw.text("response_cache_source_id").is_not_null()).then(
            pl.lit("response_cache_hit")
        ),
        set_aside=pl.when((e2e > 0) & (ttft >= e2e - _SAME_US)).then(pl.lit("not_streamed")),
    )
    return Batch(
        frame,
        {k: v for k, v in FIELDS.items() if frame[k].count()},
        (tr("a change of replica is a change of the provider OpenRouter chose"),),
    )


def _plan(head: Head, options: Options) -> Plan:
    del options
    inner = "data" in head.inner and any(_is_generation(r) for r in head.inner["data"])
    wrapped = not inner and _wrapped(head)
    if not inner and not wrapped and not any(_is_generation(r) for r in head.records):
        raise InputError(
            "the file holds sums of a day, and no single request",
            where=head.path,
            why="there are no generation ids and no tokens_prompt",
            help="export the activity page as CSV, which has a row a generation",
        )
    return Plan(
        dict.fromkeys(("data",) if wrapped else _TEXTS, pl.String),
        partial(_convert, wrapped=wrapped),
        unwrap="data" if inner else None,
    )


READER = Reader(
    name="openrouter",
    title="OpenRouter activity CSV and generations",
    shapes=(Shape.JSON, Shape.CSV),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "OpenRouter has no queue and no prefill time; generations of its API have no first token: "
        "export the activity page as CSV (time_to_first_token_ms)"
    ),
)
