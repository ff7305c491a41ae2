"""vLLM's own figures of single requests: dumped by an offline script, or sent with the response.

Three layouts of them:

* ``RequestStateStats`` (V1 engine): ``arrival_time`` is epoch seconds, while ``queued_ts``,
  ``scheduled_ts``, ``first_token_ts`` and ``last_token_ts`` are seconds of a monotonic clock. One
  is never subtracted from the other. 0.0 stands for "never". ``first_token_latency``, where there
  is one, counts from the arrival and so holds the work of the front end; without it the TTFT
  starts when the engine queued the request.
* ``RequestMetrics`` (V0 engine): all epoch seconds, ``first_scheduled_time`` and
  ``first_token_time`` among them, null for "never".
* The ``metrics`` object of an OpenAI response (``--enable-per-request-metrics``), milliseconds.
  There ``time_to_first_token_ms`` starts when the request is first scheduled: the queue comes on
  top. Of a stream only the chunk with the usage has it; ``created`` is whole seconds.

The first two lie at the top of a record or under ``metrics``; token ids beside them give the length
of the prompt and its blocks. Prompt tokens include the cached ones. It cannot tell: sessions; the
answer of a stream without ``include_usage``; anything of several samples of one prompt (``n`` above
1), for which vLLM gives no figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import UNREAD, Field

_V1 = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
_V0 = ("first_scheduled_time", "first_token_time", "last_token_time")
_SENT = ("queue_time_ms", "time_to_first_token_ms")
_STATS = (
    "arrival_time", *_V1, "first_token_latency", "num_generation_tokens", "first_scheduled_time",
    "first_token_time", "last_token_time", "finished_time", "time_in_queue",
)  # fmt: skip
#: The one name or another of what a dump keeps beside the stamps, best first.
_BESIDE = {
    "request_id": ("request_id", "req_id", "id"),
    "session_id": ("session_id", "conversation_id"),
    "model": ("model", "model_name"),
    "input_tokens": ("input_toks", "num_prompt_tokens", "prompt_tokens", "input_tokens"),
    "cached_tokens": ("num_cached_tokens", "cached_tokens"),
    "output_tokens": (
        "output_toks", "num_output_tokens", "completion_tokens", "output_tokens",
        "num_generation_tokens",
    ),
}  # fmt: skip
_IDS = "prompt_token_ids"
_RESPONSE = ("id", "object", "created", "model", "usage", "metrics", "error")

_QUEUED = mark("difference of two stamps of the engine's monotonic clock")
_CREATED = mark("vLLM responses say in whole seconds when they were begun: arrivals are coarse")
_FRONT = mark(
    "the TTFT is what the engine took, from its queue to the first token: reading the request and "
    "sending the answer are not in it"
)


def _inside(record: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    metrics = record.get("metrics")
    places = [record, metrics] if isinstance(metrics, Mapping) else [record]
    return any(all(name in place for name in names) for place in places)


def _kind(head: Head) -> str:
    inner = (record for records in head.inner.values() for record in records)
    for record in (*head.records, *inner):
        if _inside(record, _V1):
            return "v1"
        if _inside(record, ("arrival_time", *_V0)):
            return "v0"
        metrics = record.get("metrics")
        if isinstance(metrics, Mapping) and all(name in metrics for name in _SENT):
            return "sent"
    return ""


def _recognise(head: Head) -> str | None:
    kinds = {
        "v1": mark("queued_ts, scheduled_ts and first_token_ts of a vLLM engine"),
        "v0": mark("arrival_time, first_scheduled_time and first_token_time of a vLLM engine"),
        "sent": mark("responses with metrics.queue_time_ms and metrics.time_to_first_token_ms"),
    }
    found = kinds.get(_kind(head))
    return None if found is None else tr(found)


def _plan(head: Head, options: Options) -> Plan:
    del options
    kind = _kind(head)
    if kind == "sent":
        return Plan(dict.fromkeys(_RESPONSE, pl.String), _sent)
    names = {"metrics", _IDS, *_STATS, *(name for names in _BESIDE.values() for name in names)}
    unwrap = None
    if head.outer is not None and not _inside(head.outer, ("arrival_time",)):
        stamps = _V1 if kind == "v1" else _V0
        found = (key for key, rows in head.inner.items() if any(_inside(r, stamps) for r in rows))
        unwrap = next(found, None)
    convert = _monotonic if kind == "v1" else _epoch
    schema: dict[str, Any] = dict.fromkeys(sorted(names), pl.String)
    if head.shape is Shape.JSON:
        schema["metrics"] = pl.Struct(dict.fromkeys(_STATS, pl.String))
    return Plan(schema, convert, unwrap=unwrap)


def _flattened(raw: Raw) -> Raw:
    """The figures at the top, wherever they lay."""
    inside = isinstance(raw.frame.schema.get("metrics"), pl.Struct)

    def deep(name: str) -> pl.Expr:
        return pl.col("metrics").struct.field(name) if inside else raw.text("metrics", f"$.{name}")

    top = [pl.coalesce(raw.text(name), deep(name)).alias(name) for name in _STATS]
    return Raw(raw.frame.with_columns(top), raw.options)


def _beside(raw: Raw) -> dict[str, pl.Expr]:
    columns: dict[str, pl.Expr] = {}
    for name, places in _BESIDE.items():
        number = name.endswith("_tokens")
        each = [raw.count(p) if number else raw.text(p) for p in places if raw.has(p)]
        columns[name] = pl.coalesce(*each, pl.lit(None))
    return columns


def _beside_fields(raw: Raw) -> dict[str, Field]:
    fields = {}
    for name, places in _BESIDE.items():
        used = [p for p in places if raw.has(p) and raw.frame[p].count()]
        if used:
            unit = "tokens" if name.endswith("_tokens") else ""
            fields[name] = Field(", ".join(used), unit, mark("as the dump has it"))
    return fields


def _monotonic(chunk: Raw) -> Batch:
    raw = _flattened(chunk)
    queued, scheduled, first, last = (
        pl.when(raw.instant(name, "s") > 0).then(raw.instant(name, "s")) for name in _V1
    )
    latency = raw.duration("first_token_latency", "s")
    whole = pl.when(latency > 0).then(latency)
    decode = last - first
    ttft = pl.coalesce(whole, first - queued)
    columns = _beside(raw) | {
        "start": raw.instant("arrival_time", "s"),
        "ttft_us": ttft,
        "e2e_us": pl.coalesce(whole + decode, last - queued),
        "queue_us": scheduled - queued,
        "prefill_us": first - scheduled,
        "decode_us": decode,
        "status": pl.when(first.is_not_null()).then(pl.lit("ok")).otherwise(pl.lit("aborted")),
        "vantage": pl.lit("server"),
    }
    fields = _beside_fields(raw) | {
        "start": Field("arrival_time", mark("s since 1970"), mark("the engine's name")),
        "ttft_us": Field("first_token_ts - queued_ts", "s", _QUEUED, "derived"),
        "e2e_us": Field("last_token_ts - queued_ts", "s", _QUEUED, "derived"),
        "queue_us": Field("scheduled_ts - queued_ts", "s", _QUEUED, "derived"),
        "prefill_us": Field("first_token_ts - scheduled_ts", "s", _QUEUED, "derived"),
        "decode_us": Field("last_token_ts - first_token_ts", "s", _QUEUED, "derived"),
        "status": Field("first_token_ts", "", mark("0 where no token came"), "inferred"),
        "vantage": Field("", "", mark("the engine's own clock"), "assumed"),
    }
    notes: tuple[str, ...] = (tr(_FRONT),)
    if raw.frame["first_token_latency"].count():
        fields["ttft_us"] = Field(
            "first_token_latency", "s", mark("from the arrival to the first token")
        )
        source = "first_token_latency + last_token_ts - first_token_ts"
        fields["e2e_us"] = Field(
            source, "s", mark("from the arrival to the first token, and what came after"), "derived"
        )
        notes = ()
    return _batch(raw, columns, fields, notes)


def _epoch(chunk: Raw) -> Batch:
    raw = _flattened(chunk)
    arrived, scheduled, first, last, finished = (
        raw.instant(name, "s") for name in ("arrival_time", *_V0, "finished_time")
    )
    columns = _beside(raw) | {
        "start": arrived,
        "ttft_us": first - arrived,
        "e2e_us": pl.coalesce(last, finished) - arrived,
        "queue_us": pl.coalesce(raw.duration("time_in_queue", "s"), scheduled - arrived),
        "prefill_us": first - scheduled,
        "decode_us": last - first,
        "status": pl.when(first.is_not_null()).then(pl.lit("ok")).otherwise(pl.lit("aborted")),
        "vantage": pl.lit("server"),
    }
    why = mark("difference of two stamps")
    fields = _beside_fields(raw) | {
        "start": Field("arrival_time", mark("s since 1970"), mark("the engine's name")),
        "ttft_us": Field("first_token_time - arrival_time", "s", why, "derived"),
        "e2e_us": Field("last_token_time - arrival_time", "s", why, "derived"),
        "queue_us": Field("time_in_queue", "s", mark("from arrival to the first schedule")),
        "prefill_us": Field("first_token_time - first_scheduled_time", "s", why, "derived"),
        "decode_us": Field("last_token_time - first_token_time", "s", why, "derived"),
        "status": Field("first_token_time", "", mark("null where no token came"), "inferred"),
        "vantage": Field("", "", mark("the engine's own clock"), "assumed"),
    }
    return _batch(raw, columns, fields, ())


def _sent(raw: Raw) -> Batch:
    def span(name: str) -> pl.Expr:
        return raw.duration("metrics", "ms", f"$.{name}")

    queue, prefill, decode = (
        span(n) for n in ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms")
    )
    usage = raw.text("usage")
    failed = raw.text("error").is_not_null()
    columns = {
        "request_id": raw.text("id"),
        "start": raw.instant("created", "s"),
        "model": raw.text("model"),
        "input_tokens": raw.count("usage", "$.prompt_tokens"),
        "cached_tokens": raw.count("usage", "$.prompt_tokens_details.cached_tokens"),
        "output_tokens": raw.count("usage", "$.completion_tokens"),
        "ttft_us": queue + prefill,
        "e2e_us": queue + prefill + decode.fill_null(0),
        "queue_us": queue,
        "prefill_us": prefill,
        "decode_us": decode,
        "status": pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        # The engine knows the first token of an unstreamed answer too: it is no "false" then.
        "streamed": pl.when(raw.text("object").str.ends_with(".chunk")).then(True),
        "vantage": pl.lit("server"),
    }
    fields = {
        "request_id": Field("id", "", mark("vLLM's name")),
        "start": Field("created", mark("s since 1970"), mark("whole seconds: arrivals are coarse")),
        "model": Field("model", "", mark("vLLM's name")),
        "input_tokens": Field("usage.prompt_tokens", "tokens", mark("cached ones are in it")),
        "cached_tokens": Field(
            "usage.prompt_tokens_details.cached_tokens", "tokens", mark("as the engine reported")
        ),
        "output_tokens": Field("usage.completion_tokens", "tokens", mark("vLLM's name")),
        "ttft_us": Field(
            "metrics.queue_time_ms + metrics.time_to_first_token_ms",
            "ms",
            mark("the latter starts when the request is scheduled"),
            "derived",
        ),
        "e2e_us": Field(
            "the same + metrics.generation_time_ms", "ms", mark("to the end"), "derived"
        ),
        "queue_us": Field("metrics.queue_time_ms", "ms", mark("vLLM's name")),
        "prefill_us": Field("metrics.time_to_first_token_ms", "ms", mark("without the queue")),
        "decode_us": Field("metrics.generation_time_ms", "ms", mark("first to last token")),
        "status": Field("error", "", mark("set where the call failed")),
        "streamed": Field("object", "", mark("a chunk belongs to a stream")),
        "vantage": Field("", "", mark("the engine's own figures"), "assumed"),
    }
    piece = ~failed & usage.is_null() & raw.text("metrics").is_null()
    reject = pl.when(piece).then(pl.lit("not_final"))
    return _batch(raw, columns, fields, (tr(_FRONT), tr(_CREATED)), reject)


def _batch(
    raw: Raw,
    columns: dict[str, pl.Expr],
    fields: dict[str, Field],
    notes: tuple[str, ...],
    reject: pl.Expr | None = None,
) -> Batch:
    frame = raw.select(columns, reject=reject)
    told = {k: v for k, v in fields.items() if frame[k].count()}
    if raw.frame.schema.get(_IDS) != pl.String or not raw.frame[_IDS].count():
        return Batch(frame, told, notes)
    if UNREAD not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias(UNREAD))
    made = Prompts(Where(ids=Place(_IDS))).read(frame, raw.frame)
    return Batch(made.frame, told | made.fields, (*notes, *made.notes))


READER = Reader(
    name="vllm-engine",
    title="vLLM's own figures: RequestStateStats, RequestMetrics, response metrics",
    shapes=(Shape.JSON, Shape.CSV, Shape.PARQUET),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "vLLM's figures of a request have no session; cached tokens are in the usage only with "
        "--enable-prompt-tokens-details, and a stream has the figures only with include_usage"
    ),
)
