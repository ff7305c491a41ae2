"""NVIDIA AIPerf: ``profile_export.jsonl``, one line a request.

Written at export level ``records`` or ``raw``; the ``.json`` export (GenAI-Perf has one like it)
holds averages and is refused, and so is ``profile_export_raw.jsonl``, which repeats the requests of
the file beside it with what was sent and received. Each metric carries its unit, and one that could
not be worked out is absent (a failed request, an answer in one piece): no unit is taken for
granted, and nothing absent is zero. Before October 2025 the names were ``ttft``, ``timestamp_ns``
and ``credit_phase``.

The clock is the client's. The TTFT ends with the first piece of content, reasoning included; the
headers (``request_ack_ns``) come earlier and are no token. A request that the client held back
before sending (``credit_issued_ns``) does not show that wait in its TTFT. Warm-up requests are load
and fill the cache, but are not measured. A replayed session may begin in the middle of a
conversation: its first request is cold, whatever its turn.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_METADATA = (
    "x_request_id", "x_correlation_id", "turn_index", "request_start_ns", "timestamp_ns",
    "credit_issued_ns", "benchmark_phase", "credit_phase", "was_cancelled", "context_overflow_skip",
)  # fmt: skip
_METRICS = (
    "time_to_first_token", "ttft", "request_latency", "usage_prompt_tokens",
    "input_sequence_length", "usage_prompt_cache_read_tokens", "usage_prompt_cache_write_tokens",
    "usage_completion_tokens", "output_sequence_length", "usage_reasoning_tokens",
    "reasoning_token_count",
)  # fmt: skip
_METRIC = pl.Struct({"value": pl.String, "unit": pl.String})
_OBJECTS = {
    "metadata": pl.Struct(dict.fromkeys(_METADATA, pl.String)),
    "metrics": pl.Struct(dict.fromkeys(_METRICS, _METRIC)),
}
#: A client that waits longer than this before it sends is worth a word.
_LATE_US = 100_000

FIELDS = {
    "request_id": Field("metadata.x_request_id", "", mark("AIPerf's name")),
    "session_id": Field("metadata.x_correlation_id", "", mark("one user's conversation")),
    "turn": Field("metadata.turn_index + 1", "", mark("counted from 0"), "derived"),
    "start": Field("metadata.request_start_ns", "ns", mark("when the worker sent the request")),
    "input_tokens": Field(
        "usage_prompt_tokens, input_sequence_length",
        "tokens",
        mark("the server's count where it sent one, else the client's"),
    ),
    "cached_tokens": Field(
        "usage_prompt_cache_read_tokens", "tokens", mark("as the server reported")
    ),
    "cache_write_tokens": Field(
        "usage_prompt_cache_write_tokens", "tokens", mark("as the server reported")
    ),
    "output_tokens": Field(
        "usage_completion_tokens, output_sequence_length",
        "tokens",
        mark("the server's count where it sent one; reasoning is in it"),
    ),
    "reasoning_tokens": Field(
        "usage_reasoning_tokens, reasoning_token_count", "tokens", mark("AIPerf's name")
    ),
    "ttft_us": Field(
        "time_to_first_token", mark("as written"), mark("from sending to the first content")
    ),
    "e2e_us": Field(
        "request_latency", mark("as written"), mark("from sending to the last content")
    ),
    "status": Field("error, metadata.was_cancelled", "", mark("AIPerf's name")),
    "streamed": Field(
        "time_to_first_token", "", mark("AIPerf works it out for streams only"), "inferred"
    ),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    rows = [
        r
        for r in head.records
        if isinstance(r.get("metadata"), dict) and isinstance(r.get("metrics"), dict)
    ]
    measured = any(
        isinstance(metric, dict) and "value" in metric and "unit" in metric
        for r in rows
        for metric in r["metrics"].values()
    )
    # A log of failures alone has metrics without any of a request.
    known = any("benchmark_phase" in r["metadata"] or "credit_phase" in r["metadata"] for r in rows)
    if rows and 2 * len(rows) >= len(head.records) and (measured or known):
        return tr("metadata beside metrics with a value and a unit")
    if _is_raw(head):
        return tr("metadata beside what was sent and received")
    return tr("averages of a run") if _is_average(head) else None


def _is_raw(head: Head) -> bool:
    return any(
        isinstance(r.get("metadata"), dict)
        and "request_start_ns" in r["metadata"]
        and {"start_perf_ns", "responses"} <= r.keys()
        for r in head.records
    )


def _is_average(head: Head) -> bool:
    metric = (head.outer or {}).get("time_to_first_token")
    return isinstance(metric, dict) and "avg" in metric and "unit" in metric


def _decoded(frame: pl.DataFrame) -> pl.DataFrame:
    """The objects of a line with their members: at once, or one by one where some are odd."""
    try:
        return frame.with_columns(
            pl.col(name).str.json_decode(kind) for name, kind in _OBJECTS.items()
        )
    except pl.exceptions.PolarsError:
        return frame.with_columns(
            _members(pl.col(name), kind).alias(name) for name, kind in _OBJECTS.items()
        )


def _members(text: pl.Expr, kind: pl.Struct) -> pl.Expr:
    members = []
    for member in kind.fields:
        inner = text.str.json_path_match(f"$.{member.name}")
        nested = isinstance(member.dtype, pl.Struct)
        value = _members(inner, member.dtype) if nested else inner  # type: ignore[arg-type]
        members.append(value.alias(member.name))
    return pl.when(text.str.starts_with("{")).then(pl.struct(members))


def _with_unit(name: str) -> pl.Expr:
    """The metric as a text with its unit, which is how a duration is read."""
    metric = pl.col("metrics").struct.field(name).struct
    return pl.concat_str(metric.field("value"), metric.field("unit").fill_null("ms"))


def _flat(raw: Raw) -> Raw:
    metadata, metrics = pl.col("metadata").struct, pl.col("metrics").struct
    times = ("time_to_first_token", "ttft", "request_latency")
    return Raw(
        _decoded(raw.frame).select(
            LINE,
            raw.text("error").alias("error"),
            *(metadata.field(name) for name in _METADATA),
            *(_with_unit(name).alias(name) for name in times),
            *(
                metrics.field(name).struct.field("value").alias(name)
                for name in _METRICS
                if name not in times
            ),
            (pl.col("metadata").is_null() | pl.col("metrics").is_null()).alias("bare"),
        ),
        raw.options,
    )


def _convert(chunk: Raw) -> Batch:
    raw = _flat(chunk)
    start = pl.coalesce(raw.instant(n, "ns") for n in ("request_start_ns", "timestamp_ns"))
    ttft = pl.coalesce(raw.duration("time_to_first_token", "ms"), raw.duration("ttft", "ms"))
    phase = pl.coalesce(raw.text("benchmark_phase"), raw.text("credit_phase"))
    failure = raw.text("error")
    # By its place and not as JSON: the message beside it may quote anything.
    code = status_of(failure.str.extract(r'"code":\s*"?(\d{3})\b', 1))
    kind = pl.when(code.is_in(["rate_limited", "aborted"])).then(code).otherwise(pl.lit("error"))
    frame = raw.select(
        {
            "request_id": raw.text("x_request_id"),
            "session_id": raw.text("x_correlation_id"),
            "turn": raw.count("turn_index", strict=False) + 1,
            "start": start,
            "input_tokens": pl.coalesce(
                raw.count("usage_prompt_tokens"), raw.count("input_sequence_length")
            ),
            "cached_tokens": raw.count("usage_prompt_cache_read_tokens", strict=False),
            "cache_write_tokens": raw.count("usage_prompt_cache_write_tokens", strict=False),
            "output_tokens": pl.coalesce(
                raw.count("usage_completion_tokens"), raw.count("output_sequence_length")
            ),
            "reasoning_tokens": pl.coalesce(
                raw.count("usage_reasoning_tokens", strict=False),
                raw.count("reasoning_token_count", strict=False),
            ),
            "ttft_us": ttft,
            "e2e_us": raw.duration("request_latency", "ms"),
            "status": pl.when(raw.boolean("was_cancelled"))
            .then(pl.lit("aborted"))
            .when(failure.is_not_null())
            .then(kind)
            .otherwise(pl.lit("ok")),
            "streamed": pl.when(ttft.is_not_null()).then(True),
            "vantage": pl.lit("client"),
        },
        reject=pl.when("bare")
        .then(pl.lit("no_record"))
        .when(raw.boolean("context_overflow_skip"))
        .then(pl.lit("skipped_by_client")),
        set_aside=pl.when(phase.str.to_lowercase() == "warmup").then(pl.lit("warmup")),
    )
    wait = start - raw.instant("credit_issued_ns", "ns", strict=False)
    late = raw.frame.select((wait > _LATE_US).mean()).item()
    notes = []
    if late is not None and late > 0.05:
        notes.append(
            tr(
                "the load generator itself was late: many requests were sent over 0.1 s after they "
                "were due, a wait that is not in their TTFT"
            )
        )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, tuple(notes))


def _plan(head: Head, options: Options) -> Plan:
    del options
    if _is_raw(head):
        raise InputError(
            "the file holds what was sent and received, and no figures",
            where=head.path,
            why="its records have responses, but no metrics",
            help="read profile_export.jsonl of the same run, which has the same requests",
        )
    if _is_average(head):
        raise InputError(
            "the file holds the averages of a run, and no single request",
            where=head.path,
            why="its metrics have avg and percentiles",
            help="read profile_export.jsonl of the same run (AIPerf, --export-level records) or "
            "profile_export.json (GenAI-Perf)",
        )
    return Plan(dict.fromkeys((*_OBJECTS, "error"), pl.String), _convert)


READER = Reader(
    "aiperf",
    "NVIDIA AIPerf request records (profile_export.jsonl)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "AIPerf knows no queue of the server, and cached tokens only if the server reports them "
        "(vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report); single requests are "
        "written with --export-level records"
    ),
)
