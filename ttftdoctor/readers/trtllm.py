"""TensorRT-LLM: the performance metrics of ``trtllm-serve``, one record a finished request.

What ``GET /perf_metrics`` returned (an array), or the lines of ``perf_metrics_output_dir``. Times
are seconds of a steady clock: differences count, and there is no date. Zero, less than that, or
null stands for "not reached". A record of a split service has one such record inside for each
stage, ``ctx_perf_metrics`` and ``gen_perf_metrics``, and the stamps of the server before them.

The TTFT is what the HTTP server saw, from the arrival there; for an answer that was not streamed
the server's first token is the whole answer, and the engine's first token is taken instead. The
endpoint gives each record once, and forgets the oldest beyond ``perf_metrics_max_requests``.

It cannot tell: prompt and generated tokens (only cache blocks, of a size that is not in the
record), the client's id, sessions, and requests that were broken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, REJECT, Field
from ttftdoctor.units import count, digits

_OUTER = (
    "request_id", "status", "ctx_server", "disagg_server_arrival_time",
    "disagg_server_first_token_time",
)  # fmt: skip
_STAMPS = (
    "server_arrival_time", "arrival_time", "first_scheduled_time", "first_token_time",
    "server_first_token_time", "last_token_time",
)  # fmt: skip
_BLOCKS = ("num_reused_blocks", "num_missed_blocks")
_METRICS = pl.Struct(
    {
        "timing_metrics": pl.Struct(dict.fromkeys(_STAMPS, pl.String)),
        "kv_cache_metrics": pl.Struct(dict.fromkeys(_BLOCKS, pl.String)),
    }
)
_STAGE = pl.Struct({"request_id": pl.String, "perf_metrics": _METRICS})
_SCHEMA = {
    **dict.fromkeys(_OUTER, pl.String),
    "perf_metrics": _METRICS,
    "ctx_perf_metrics": _STAGE,
    "gen_perf_metrics": _STAGE,
}
#: Where the figures of an engine that is alone lie, and those of the two stages of a split one.
_ENGINES = {
    "alone": pl.col("perf_metrics"),
    "ctx": pl.col("ctx_perf_metrics").struct.field("perf_metrics"),
    "gen": pl.col("gen_perf_metrics").struct.field("perf_metrics"),
}

FIELDS = {
    "request_id": Field("request_id", "", mark("the engine's number, not the client's id")),
    "start": Field("server_arrival_time", "s", mark("a steady clock of unknown origin: no date")),
    "replica": Field("ctx_server", "", mark("the server of the prefill stage")),
    "ttft_us": Field(
        "server_first_token_time - server_arrival_time",
        "s",
        mark("or to first_token_time of the engine, where nothing was streamed"),
        "derived",
    ),
    "e2e_us": Field(
        "last_token_time - server_arrival_time", "s", mark("to the last token"), "derived"
    ),
    "queue_us": Field("first_scheduled_time - arrival_time", "s", mark("in the engine"), "derived"),
    "prefill_us": Field(
        "first_token_time - first_scheduled_time", "s", mark("in the engine"), "derived"
    ),
    "decode_us": Field("last_token_time - first_token_time", "s", mark("in the engine"), "derived"),
    "status": Field(
        "status, last_token_time", "", mark("records are of finished requests"), "assumed"
    ),
    "vantage": Field("", "", mark("the server's own clock"), "assumed"),
}
_NO_DATE = mark(
    "TensorRT-LLM metrics have no date and no tokens: starts count from an unknown origin, and "
    "prefill cannot be set against the length of prompts"
)


def _timed(record: Mapping[str, Any]) -> bool:
    metrics = record.get("perf_metrics")
    return isinstance(metrics, Mapping) and isinstance(metrics.get("timing_metrics"), Mapping)


def _split(record: Mapping[str, Any]) -> bool:
    return "gen_perf_metrics" in record and "ctx_perf_metrics" in record


def _recognise(head: Head) -> str | None:
    if any(_timed(record) for record in head.records):
        return tr("records with perf_metrics.timing_metrics")
    if any(_split(record) for record in head.records):
        return tr("records with ctx_perf_metrics and gen_perf_metrics")
    return None


def _flat(raw: Raw) -> Raw:
    """The figures of all stages in columns of their own."""
    columns = []
    for stage, place in _ENGINES.items():
        times, blocks = (place.struct.field(n) for n in ("timing_metrics", "kv_cache_metrics"))
        columns += [times.struct.field(n).alias(f"{stage}_{n}") for n in _STAMPS]
        columns += [blocks.struct.field(n).alias(f"{stage}_{n}") for n in _BLOCKS]
    ids = [pl.col(f"{s}_perf_metrics").struct.field("request_id") for s in ("gen", "ctx")]
    # A null object becomes one of nulls on its way here.
    anything = pl.any_horizontal(pl.col(f"{s}_arrival_time").is_not_null() for s in _ENGINES)
    frame = raw.frame.with_columns(*columns, pl.coalesce("request_id", *ids).alias("request_id"))
    return Raw(frame.with_columns(anything.alias("anything")), raw.options)


def _convert(chunk: Raw) -> Batch:
    raw = _flat(chunk)
    stamps = [f"{stage}_{name}" for stage in _ENGINES for name in _STAMPS]
    stamps += ["disagg_server_arrival_time", "disagg_server_first_token_time"]
    told = {"request_id": raw.text("request_id"), "replica": raw.text("ctx_server")}
    # Zero and less stand for a moment that was not reached.
    times = raw.select(
        told | {name: raw.instant(name, "s") for name in stamps} | {"status": raw.text("status")},
        reject=pl.when(~pl.col("anything")).then(pl.lit("no_metrics")),
    ).with_columns(pl.when(pl.col(name) > 0).then(pl.col(name)).alias(name) for name in stamps)

    def first_of(name: str, *stages: str) -> pl.Expr:
        return pl.coalesce(f"{stage}_{name}" for stage in stages)

    # Without a stage of its own for prefill, the other one did it.
    arrived, scheduled, token = (
        first_of(name, "alone", "ctx", "gen")
        for name in ("arrival_time", "first_scheduled_time", "first_token_time")
    )
    came = pl.coalesce(first_of("server_arrival_time", "alone", "ctx", "gen"), arrived)
    decoding = first_of("last_token_time", "alone", "gen") - first_of(
        "first_token_time", "alone", "gen"
    )
    engine = token - came
    # The stages of a split service have clocks of their own: only spans of one clock are added.
    before = pl.col("disagg_server_arrival_time")
    served = pl.coalesce(
        pl.col("disagg_server_first_token_time") - before,
        pl.col("alone_server_first_token_time") - came,
    )
    # Of an unstreamed answer the server sees nothing before the end.
    shown = pl.coalesce(
        pl.when((served < engine + decoding) | (decoding == 0)).then(served), engine
    )
    one_clock = before.is_null() & (decoding != 0)
    status = status_of(pl.col("status"))
    frame = times.select(
        LINE,
        "request_id",
        pl.coalesce(before, came).alias("start"),
        "replica",
        shown.alias("ttft_us"),
        (pl.when(one_clock).then(engine).otherwise(shown) + decoding).alias("e2e_us"),
        (scheduled - arrived).alias("queue_us"),
        (token - scheduled).alias("prefill_us"),
        decoding.alias("decode_us"),
        pl.when(status.is_in(["aborted", "rate_limited"]))
        .then(status)
        .when(token.is_null())
        .then(pl.lit("aborted"))
        .otherwise(pl.lit("ok"))
        .alias("status"),
        pl.lit("server").alias("vantage"),
        REJECT,
    )
    notes = [tr(_NO_DATE)]
    blocks = _blocks(raw)
    if blocks is not None:
        notes.append(blocks)
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, tuple(notes))


def _blocks(raw: Raw) -> str | None:
    """How many cache blocks were reused, in all; their size in tokens is not in the records."""
    counts = [
        pl.coalesce(f"{s}_{name}" for s in ("alone", "ctx")).cast(pl.Int64, strict=False)
        for name in _BLOCKS
    ]
    fair = pl.all_horizontal(c.is_between(0, 10**9) for c in counts)
    reused, missed = raw.frame.select(
        pl.when(fair).then(c).sum().alias(n) for c, n in zip(counts, "rm", strict=True)
    ).row(0)
    if reused + missed == 0:
        return None
    part = f"{digits(100 * reused / (reused + missed), 1)}%"
    return tr(
        "TensorRT-LLM reused {reused} of {all} cache blocks of the prompts ({share}); "
        "tokens_per_block of the server says how many tokens",
        reused=count(reused), all=count(reused + missed), share=part,
    )  # fmt: skip


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(_SCHEMA, _convert, whole=True)


READER = Reader(
    name="trtllm",
    title="TensorRT-LLM performance metrics",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "TensorRT-LLM metrics need return_perf_metrics: true and perf_metrics_max_requests above 0 "
        "in the server's YAML, and have no tokens and no session: only the request trace "
        "(TRTLLM_REQUEST_TRACE_DIR) or a client's log has those"
    ),
)
