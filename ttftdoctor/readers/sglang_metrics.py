"""SGLang: the metrics file of ``--export-metrics-to-file``, and ``--log-requests`` as JSON.

Both hold the same figures once a request has finished; the log puts them into ``out.meta_info``
of ``request.finished`` events, often behind a stamp in brackets (``[2026-..] {...}``), which
makes the file text. The clock is the server's. Prompt tokens include the cached ones.

It cannot tell: queue and first-token times without ``--enable-metrics``; requests whose client
went away (they never finish); sessions, unless the client sent an id or a routing key. With
``SGLANG_LOG_REQUEST_EXCEEDED_MS`` set, the log holds slow requests only, and does not say so.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_META = (
    "id", "finish_reason", "prompt_tokens", "completion_tokens", "reasoning_tokens",
    "cached_tokens", "e2e_latency", "queue_time", "first_token_latency", "request_received_ts",
    "request_finished_ts", "forward_entry_time", "prefill_finished_time", "prefill_finished_ts",
    "dp_rank",
)  # fmt: skip
_OUTER = ("event", "timestamp", "rid", "obj", "out", "headers", "request_parameters")
_SESSIONS = ("session_id", "conversation_id", "routing_key")

#: A first token this close to the end of an unstreamed answer is the answer itself.
_SAME_US = 1000

_SOURCES = {
    "request_id": ("rid, id", ""),
    "session_id": (", ".join(_SESSIONS), ""),
    "replica": ("dp_rank", ""),
    "input_tokens": ("prompt_tokens", ""),
    "cached_tokens": ("cached_tokens", ""),
    "output_tokens": ("completion_tokens", ""),
    "reasoning_tokens": ("reasoning_tokens", ""),
    "e2e_us": ("e2e_latency", "s"),
    "queue_us": ("queue_time", "s"),
    "streamed": ("obj.stream", ""),
    "status": ("finish_reason", ""),
}
FIELDS = {name: Field(*said, "SGLang's name") for name, said in _SOURCES.items()} | {
    "prefill_us": Field(
        "prefill_finished_time - forward_entry_time", "s", "end of prefill less entry", "derived"
    ),
    "start": Field("request_received_ts", "s", "SGLang's name"),
    "ttft_us": Field("first_token_latency", "s", "from the handler's start to the first output"),
    "vantage": Field("", "", "the server's own log", "assumed"),
}
_STAMPED = {
    "ttft_us": Field(
        "prefill_finished_ts - request_received_ts", "s", "end of prefill less arrival", "derived"
    )
}
_CLOCK = (
    "the TTFT is the server's: it ends when the first output leaves the scheduler, before the "
    "network"
)


def _recognise(head: Head) -> str | None:
    if head.shape is Shape.TEXT:
        found = any(
            '"event"' in line and ('"request.finished"' in line or '"request.received"' in line)
            for line in head.lines
        )
        return "lines with request.finished events behind a stamp" if found else None
    if any("request_parameters" in r and "e2e_latency" in r for r in head.records):
        return "e2e_latency beside request_parameters"
    events = [r for r in head.records if str(r.get("event", "")).startswith("request.")]
    if any("rid" in r or "obj" in r for r in events):
        return "request.received and request.finished events"
    return None


def _unfold(raw: Raw) -> Raw:
    """Bring both layouts and both shapes to text columns of the same names."""
    frame = raw.frame
    if raw.has("text"):
        body = pl.col("text").str.extract(r"^[^{]*(\{.*)$", 1)
        frame = frame.with_columns(body.alias("body")).with_columns(
            pl.col("body").str.json_path_match(f"$.{name}").alias(name) for name in _OUTER
        )
    frame = frame.with_columns(Raw(frame).text("out", "$.meta_info").alias("meta"))
    both = Raw(frame)
    return Raw(
        frame.with_columns(
            *(pl.coalesce(both.text(n), both.text("meta", f"$.{n}")).alias(n) for n in _META),
            pl.coalesce(both.text("obj"), both.text("request_parameters")).alias("obj"),
        ),
        raw.options,
    )


def _reject(raw: Raw, rid: pl.Expr) -> pl.Expr:
    event = raw.text("event")
    finished = (event == "request.finished") | (event.is_null() & raw.text("obj").is_not_null())
    other = pl.lit("not_a_finish_event")
    if raw.has("text"):  # a server log: most lines are of another kind, and one may be torn
        ours = pl.col("text").str.contains('"request.', literal=True)
        other = (
            pl.when(event.is_not_null())
            .then(other)
            .when(ours)
            .then(pl.lit("not_json"))
            .otherwise(pl.lit("not_a_request_line"))
        )
    return (
        pl.when(~finished.fill_null(False))
        .then(other)
        .when(rid.str.contains("HEALTH_CHECK", literal=True))
        .then(pl.lit("health_check"))
    )


def _convert(chunk: Raw) -> Batch:
    raw = _unfold(chunk)
    rid = pl.coalesce(raw.text("rid"), raw.text("id"))
    received = raw.instant("request_received_ts", "s")
    e2e = raw.duration("e2e_latency", "s")
    ended = pl.coalesce(raw.instant("request_finished_ts", "s"), raw.instant("timestamp"))
    prefilled = pl.coalesce(
        raw.instant(n, "s") for n in ("prefill_finished_time", "prefill_finished_ts")
    )
    prefill = prefilled - raw.instant("forward_entry_time", "s")
    logged = raw.duration("first_token_latency", "s")
    stream = raw.boolean("obj", "$.stream")
    # Builds that know no better give the end of an unstreamed answer as its first token.
    whole = (~stream & (logged >= e2e - _SAME_US)).fill_null(False)
    first = pl.coalesce(pl.when(~whole).then(logged), prefilled - received)
    reason = raw.text("finish_reason")
    frame = raw.select(
        {
            "request_id": rid,
            "session_id": pl.coalesce(
                *(raw.text("obj", f"$.{name}") for name in _SESSIONS),
                raw.text("headers", "$['x-smg-routing-key']"),
            ),
            "start": pl.coalesce(received, ended - e2e),
            "replica": raw.text("dp_rank"),
            "input_tokens": raw.count("prompt_tokens"),
            "cached_tokens": raw.count("cached_tokens"),
            "output_tokens": raw.count("completion_tokens"),
            "reasoning_tokens": raw.count("reasoning_tokens"),
            "ttft_us": pl.coalesce(first, logged),
            "e2e_us": e2e,
            "queue_us": raw.duration("queue_time", "s"),
            "prefill_us": pl.when(prefill >= 0).then(prefill),
            "status": pl.when(
                pl.coalesce(raw.text("finish_reason", "$.type"), reason).str.contains("abort")
            )
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("ok")),
            # The server knows the first token of an unstreamed answer too: it is no "false" then.
            "streamed": pl.when(stream | first.is_null()).then(stream),
            "vantage": pl.lit("server"),
        },
        reject=_reject(raw, rid),
    )
    fields = {k: v for k, v in FIELDS.items() if frame[k].count()}
    if raw.frame["first_token_latency"].count() == 0:
        fields = fields | {k: v for k, v in _STAMPED.items() if frame[k].count()}
    return Batch(frame, fields, (_CLOCK,))


def _plan(head: Head, options: Options) -> Plan:
    names = () if head.shape is Shape.TEXT else (*_OUTER, *_META)
    return Plan(schema=dict.fromkeys(names, pl.String), convert=_convert)


READER = Reader(
    name="sglang-metrics",
    title="SGLang request metrics and request logs",
    shapes=(Shape.JSON, Shape.TEXT),
    recognise=_recognise,
    plan=_plan,
    lacks=(
        "SGLang logs queue and first-token times only with --enable-metrics, and a session only "
        "if the client sends session_id, conversation_id or the header X-SMG-Routing-Key"
    ),
)
