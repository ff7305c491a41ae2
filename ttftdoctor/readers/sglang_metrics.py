"""SGLang: the metrics file of ``--export-metrics-to-file``, and ``--log-requests`` as JSON.

Both hold the same figures once a request has finished; the log puts them into ``out.meta_info``
of ``request.finished`` events, often behind a stamp in brackets (``[2026-..] {...}``), which
makes the file text. Answers of ``/generate`` have them in ``meta_info``; of a stream, the last one.
The clock is the server's. Prompt tokens include the cached ones. Token ids, or else the text, give
blocks, where they are whole: up to level 2 the log cuts them in the middle.

It cannot tell: queue and first-token times without ``--enable-metrics``; requests whose client
went away (they never finish); sessions, unless the client sent an id or a routing key. With
``SGLANG_LOG_REQUEST_EXCEEDED_MS`` set, the log holds slow requests only, and does not say so.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor import sglang
from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import UNREAD, Field

_META = ("id", "finish_reason", *sglang.FIGURES)
_OUTER = ("event", "timestamp", "rid", "obj", "out", "headers", "request_parameters", "meta_info")
#: How much of each end is left of a text that was cut.
_LEFT = 1024

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
    answers = [r["meta_info"] for r in head.records if isinstance(r.get("meta_info"), dict)]
    if any("finish_reason" in a and "prompt_tokens" in a for a in answers):
        return tr("answers with meta_info")
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
    outer = Raw(frame)
    meta = pl.coalesce(outer.text("out", "$.meta_info"), outer.text("meta_info"))
    frame = frame.with_columns(meta.alias("meta"))
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
    answer = event.is_null() & raw.text("meta_info").is_not_null()
    finished = (event == "request.finished") | answer
    finished |= event.is_null() & raw.text("obj").is_not_null()
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
        .when(answer & raw.text("finish_reason").is_null())
        .then(pl.lit("not_final"))
        .when(rid.str.contains("HEALTH_CHECK", literal=True))
        .then(pl.lit("health_check"))
    )


def _whole(raw: Raw, used: pl.Series) -> pl.DataFrame:
    """The token ids and the text of each used row, where the log did not cut them."""
    ids, text = raw.text("obj", "$.input_ids"), raw.text("obj", "$.text")
    # Of several prompts of one call, each has a row of its own.
    alone = pl.lit(used) & ~raw.text("obj", "$.rid").str.starts_with("[").fill_null(False)
    cut = text.str.slice(_LEFT, 8).str.contains("...", literal=True)
    return raw.frame.select(
        pl.when(alone & ~ids.str.contains('"', literal=True)).then(ids).alias("ids"),
        pl.when(alone & ~cut).then(text).alias("prompt"),
    )


def _convert(chunk: Raw, of_ids: Prompts, of_text: Prompts) -> Batch:
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
    notes = (tr(sglang.CLOCK),)
    told = _whole(raw, frame["reject"].is_null())
    if not told["ids"].count() and not told["prompt"].count():
        return Batch(frame, fields, notes)
    if UNREAD not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias(UNREAD))
    prompts = of_ids if told["ids"].count() else of_text
    made = prompts.read(frame, told)
    return Batch(
        made.frame, {**fields, **made.fields}, (*notes, *made.notes), made.parts,
        prompts.bytes_per_token,
    )  # fmt: skip


def _plan(head: Head, options: Options) -> Plan:
    names = () if head.shape is Shape.TEXT else (*_OUTER, *_META)
    ids, prompt = Place("ids"), Place("prompt")
    of_ids = Prompts(Where(ids=ids, prompt=prompt), parts=options.text)
    of_text = Prompts(
        Where(prompt=prompt), bytes_per_token=options.bytes_per_token,
        tokenizer=options.tokenizer, parts=options.text,
    )  # fmt: skip
    convert = partial(_convert, of_ids=of_ids, of_text=of_text)
    return Plan(schema=dict.fromkeys(names, pl.String), convert=convert)


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
