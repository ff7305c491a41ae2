"""Helicone: requests from its export tool (``--format jsonl`` or ``json``) or its query API.

The gateway's clock: ``delay_ms`` is the whole request and ``time_to_first_token`` (ms too) the
first chunk, null where nothing was streamed. ``response_created_at`` is about when the row was
written and is not used. A row with ``cache_reference_id`` was answered from a stored response and
tells nothing of the model. Sessions are the property ``Helicone-Session-Id``.

Whether ``prompt_tokens`` includes cached ones differs by provider and year: Anthropic's never do;
for others, rows with more cached than prompt tokens prove that they do not. A count of -1 stands
for a stream without usage.

It cannot tell: queue and prefill. The CSV form has no first token and no cached tokens at all.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, complete, page_of, pages, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "request_id", "response_id", "request_created_at", "response_status", "delay_ms",
    "time_to_first_token", "prompt_tokens", "completion_tokens", "prompt_cache_read_tokens",
    "prompt_cache_write_tokens", "request_model", "response_model", "model", "model_override",
    "provider", "target_url", "request_path", "request_properties", "properties",
    "cache_reference_id", "reasoning_tokens",
)  # fmt: skip
_NO_REFERENCE = "00000000-0000-0000-0000-000000000000"
_SESSION = "$['Helicone-Session-Id']"
_SAME_US = 1000

FIELDS = {
    "request_id": Field("request_id", "", mark("Helicone's name")),
    "session_id": Field("request_properties.Helicone-Session-Id", "", mark("Helicone's name")),
    "start": Field("request_created_at", "", mark("Helicone's name")),
    "model": Field("response_model, model, request_model", "", mark("Helicone's names")),
    "route": Field("request_path, target_url", "", mark("Helicone's names")),
    "input_tokens": Field(
        "prompt_tokens", "tokens", mark("with the cached ones added where apart")
    ),
    "cached_tokens": Field("prompt_cache_read_tokens", "tokens", mark("Helicone's name")),
    "cache_write_tokens": Field("prompt_cache_write_tokens", "tokens", mark("Helicone's name")),
    "output_tokens": Field("completion_tokens", "tokens", mark("Helicone's name")),
    "reasoning_tokens": Field("reasoning_tokens", "tokens", mark("Helicone's name")),
    "ttft_us": Field("time_to_first_token", "ms", mark("first chunk at the gateway")),
    "e2e_us": Field("delay_ms", "ms", mark("by its name")),
    "status": Field("response_status", "", mark("HTTP status")),
    "vantage": Field("", "", mark("the gateway's own log"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for where, records in pages(head, "data"):
        if any({"request_created_at", "response_id"} <= record.keys() for record in records):
            return tr("request_created_at and response_id{where}", where=where)
    return None


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    raw.frame = complete(raw.frame, _TEXTS)

    def count(name: str) -> pl.Expr:
        value = raw.count(name)
        return pl.when(value >= 0).then(value)

    said, made = count("prompt_tokens"), count("completion_tokens")
    read, write = count("prompt_cache_read_tokens"), count("prompt_cache_write_tokens")
    cache = read.fill_null(0) + write.fill_null(0)
    anthropic = raw.text("provider").str.to_lowercase().str.contains("anthropic")
    apart = anthropic.fill_null(False) | (cache > said)
    tokens = pl.when(apart).then(said + cache).otherwise(said)
    ttft, e2e = raw.duration("time_to_first_token", "ms"), raw.duration("delay_ms", "ms")
    reference = raw.text("cache_reference_id")
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text("request_id"), raw.text("response_id")),
            "session_id": pl.coalesce(
                raw.text("request_properties", _SESSION), raw.text("properties", _SESSION)
            ),
            "start": raw.instant("request_created_at"),
            "model": pl.coalesce(
                raw.text(n) for n in ("model_override", "response_model", "model", "request_model")
            ),
            "route": pl.coalesce(raw.text("request_path"), raw.text("target_url")),
            "input_tokens": pl.when(tokens > 0).then(tokens),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": made,
            "reasoning_tokens": count("reasoning_tokens"),
            "ttft_us": pl.when(ttft >= 0).then(ttft),
            "e2e_us": pl.when(e2e >= 0).then(e2e),
            "status": status_of(raw.text("response_status")),
            "vantage": pl.lit("gateway"),
        },
        reject=pl.when((reference != _NO_REFERENCE).fill_null(False)).then(
            pl.lit("response_cache_hit")
        ),
        set_aside=pl.when((e2e > 0) & (ttft >= e2e - _SAME_US)).then(pl.lit("not_streamed")),
    )
    notes: tuple[str, ...] = ()
    if raw.frame.select((apart & (cache > 0)).any()).item():
        notes = (
            tr(
                "cached and written tokens were added to prompt_tokens of Anthropic's rows, and of "
                "rows with more of them than prompt tokens"
            ),
        )
    return batch_of(frame, FIELDS, notes, raw=raw, prompts=prompts)


def _plan(head: Head, options: Options) -> Plan:
    unwrap = page_of(head, "data", unless="request_created_at")
    return plan_of(head, options, _TEXTS, _convert, unwrap=unwrap)


READER = Reader(
    name="helicone",
    title="Helicone requests (export tool, query API)",
    shapes=(Shape.JSON, Shape.CSV),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Helicone has no queue and no prefill time; its CSV export has no first token and no "
        "cached tokens: export again with npx @helicone/export --format jsonl"
    ),
)
