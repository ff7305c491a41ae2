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

from ttftdoctor import sglang
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_META = ("id", "finish_reason", *sglang.FIGURES)
_OUTER = ("event", "timestamp", "rid", "obj", "out", "headers", "request_parameters")

FIELDS = sglang.FIELDS | {
    "request_id": sglang.named("rid, id"),
    "streamed": sglang.named("obj.stream"),
    "prefill_us": sglang.PREFILL,
    "start": sglang.named("request_received_ts", "s"),
    "ttft_us": Field(
        "first_token_latency", "s", mark("from the handler's start to the first output")
    ),
    "vantage": sglang.VANTAGE,
}
_STAMPED = {
    "ttft_us": Field(
        "prefill_finished_ts - request_received_ts",
        "s",
        mark("end of prefill less arrival"),
        "derived",
    )
}


def _recognise(head: Head) -> str | None:
    if head.shape is Shape.TEXT:
        found = any(
            '"event"' in line and ('"request.finished"' in line or '"request.received"' in line)
            for line in head.lines
        )
        return tr("lines with request.finished events behind a stamp") if found else None
    if any("request_parameters" in r and "e2e_latency" in r for r in head.records):
        return tr("e2e_latency beside request_parameters")
    events = [r for r in head.records if str(r.get("event", "")).startswith("request.")]
    if any("rid" in r or "obj" in r for r in events):
        return tr("request.received and request.finished events")
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
    times = sglang.times(raw, stamp="timestamp", stream=raw.boolean("obj", "$.stream"))
    reason = raw.text("finish_reason")
    frame = raw.select(
        {
            "request_id": rid,
            "session_id": pl.coalesce(
                *(raw.text("obj", f"$.{name}") for name in sglang.SESSIONS),
                raw.text("headers", "$['x-smg-routing-key']"),
            ),
            "start": times.start,
            **sglang.counts(raw),
            "ttft_us": times.ttft,
            "e2e_us": times.e2e,
            "queue_us": raw.duration("queue_time", "s"),
            "prefill_us": times.prefill,
            "status": pl.when(
                pl.coalesce(raw.text("finish_reason", "$.type"), reason).str.contains("abort")
            )
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("ok")),
            "streamed": times.streamed,
            "vantage": pl.lit("server"),
        },
        reject=_reject(raw, rid),
    )
    fields = {k: v for k, v in FIELDS.items() if frame[k].count()}
    if raw.frame["first_token_latency"].count() == 0:
        fields = fields | {k: v for k, v in _STAMPED.items() if frame[k].count()}
    return Batch(frame, fields, (tr(sglang.CLOCK),))


def _plan(head: Head, options: Options) -> Plan:
    names = () if head.shape is Shape.TEXT else (*_OUTER, *_META)
    return Plan(schema=dict.fromkeys(names, pl.String), convert=_convert)


READER = Reader(
    name="sglang-metrics",
    title="SGLang request metrics and request logs",
    shapes=(Shape.JSON, Shape.TEXT),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "SGLang logs queue and first-token times only with --enable-metrics, and a session only "
        "if the client sends session_id, conversation_id or the header X-SMG-Routing-Key"
    ),
)
