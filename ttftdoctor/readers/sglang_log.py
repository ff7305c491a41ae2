"""SGLang's server log: the text lines of ``--log-requests``, and those of request time stats.

A finished request is one line, ``Finish: obj=GenerateReqInput(...), out={'text': ..., 'meta_info':
{...}}``, written as Python writes its objects: texts are quoted and escaped, and from level 2 on
cut in the middle. Whatever stands in quotes is put aside before a figure is looked for, so that no
prompt can pass for one. Token ids that are whole (level 3) give blocks. ``Receive:`` lines are the
same requests before; those that never finish lost their client. ``ReqTimeStats(...)`` lines
(``--enable-request-time-stats-logging``) have the queue time, and stand alone or beside the others;
a request in both is one row.

``Prefill batch`` and ``Decode batch`` lines are sums over batches and name no request. The same
events as JSON are read by another reader. The clock is the server's; the date of the line is local.
With ``SGLANG_LOG_REQUEST_EXCEEDED_MS`` set, the log holds slow requests only, and does not say so.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ttftdoctor import sglang
from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, UNREAD, Field

_FINISH, _RECEIVE, _STATS = "Finish: obj=", "Receive: obj=", "ReqTimeStats("
_BATCH = r"(?:Prefill|Decode) batch.*#(?:new-token|token):"
_STAMP = r"^[^\[]*\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)"
#: Texts in quotes: short ones of one word are kept, for names and ids are among them.
_QUOTED = r"""('[\w.:/@+=-]{0,120}')|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_META = r"^.*'meta_info': (\{.*)$"
_NUMBER = r"(-?\d[\d.]*(?:e[+-]?\d+)?)"
_TIMES = ("input_len", "cached_input_len", "output_len", "entry_time")
_SPANS = ("queue_duration", "forward_duration")

#: A smaller stamp counts from the start of the machine.
_EPOCH_S = 1e9

FIELDS = sglang.FIELDS | {
    "input_tokens": sglang.named("prompt_tokens, input_len"),
    "cached_tokens": sglang.named("cached_tokens, cached_input_len"),
    "output_tokens": sglang.named("completion_tokens, output_len"),
    "queue_us": sglang.named("queue_time, queue_duration", "s, ms"),
    "ttft_us": sglang.named("first_token_latency", "s"),
    "start": Field("request_received_ts", "s", mark("or the time of the line less e2e_latency")),
    "prefill_us": sglang.PREFILL,
    "vantage": sglang.VANTAGE,
}
_ALONE = FIELDS | {
    "start": Field("entry_time", "s", mark("when the scheduler got the request")),
    "e2e_us": Field(
        "queue_duration + forward_duration", "ms", mark("in the scheduler alone"), "derived"
    ),
    "status": Field("", "", mark("lines are of finished requests"), "assumed"),
}  # fmt: skip
_COARSE = mark(
    "without --enable-metrics an SGLang log has no arrival: starts are the time of the line, in "
    "whole seconds of local time, less the latency"
)
_NO_TTFT = mark("SGLang request time stats have no first-token time")


def _recognise(head: Head) -> str | None:
    lines = pl.Series("text", head.lines, dtype=pl.String)
    if lines.str.contains_any(['"request.finished"', '"request.received"']).any():
        return None
    if lines.str.contains(f"{_FINISH}Generate", literal=True).any():
        return tr("lines with Finish: obj=GenerateReqInput")
    if lines.str.contains(_STATS, literal=True).any():
        return tr("ReqTimeStats lines")
    if lines.str.contains(f"{_RECEIVE}Generate", literal=True).any():
        return tr("lines with Receive: obj=GenerateReqInput, and none of a finished request so far")
    if lines.str.contains(_BATCH).any():
        return tr(
            "Prefill batch and Decode batch lines: sums over batches, none of a single request"
        )
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    lines = pl.Series("text", head.lines, dtype=pl.String)
    stats = bool(lines.str.contains(_STATS, literal=True).any())
    finish = bool(lines.str.contains_any([_FINISH, _RECEIVE]).any())
    if not stats and not finish:  # what the log holds of requests comes later
        return Plan({}, _from_any, whole=True)
    if stats and not finish:
        return Plan({}, _from_stats)
    # One request is then spread over two lines.
    return Plan({}, _from_both if stats else _from_finish, whole=stats)


def _lines(chunk: Raw, *signs: str) -> pl.DataFrame:
    ours = pl.col("text").str.contains_any(list(signs))
    return chunk.frame.filter(ours)


def _finished(chunk: Raw) -> pl.DataFrame:
    """Each ``Receive`` and ``Finish`` line in text columns."""
    bare = pl.col("text").str.replace_all(_QUOTED, "${1}")
    lines = _lines(chunk, _FINISH, _RECEIVE).with_columns(bare.alias("bare"))
    lines = lines.with_columns(
        pl.col("bare").str.extract(_META, 1).alias("meta"),
        pl.col("bare").str.extract(r"^(.*?)(?:, out=\{|$)", 1).alias("asked"),
    )
    meta, asked = pl.col("meta").str, pl.col("asked").str
    return lines.select(
        LINE,
        pl.col("text").str.extract(_STAMP, 1).alias("stamp"),
        pl.col("bare").str.contains(_FINISH, literal=True).alias("finish"),
        pl.col("meta").is_not_null().alias("whole"),
        pl.coalesce(
            asked.extract(r"\brid='([^']*)'", 1), meta.extract(r"'id': '([^']*)'", 1)
        ).alias("rid"),
        pl.coalesce(
            *(asked.extract(rf"\b{name}='([^']*)'", 1) for name in sglang.SESSIONS),
            pl.col("bare").str.extract(r"'x-smg-routing-key': '([^']*)'", 1),
        ).alias("session"),
        asked.extract(r"\bstream=(True|False)", 1).alias("stream"),
        asked.extract(r"\binput_ids=(\[[\d,\s]+\])[,)]", 1).alias("ids"),
        meta.extract(r"'finish_reason': \{[^}]*'type': '([a-z_]+)'", 1).alias("finish_reason"),
        *(meta.extract(rf"'{name}': {_NUMBER}", 1).alias(name) for name in sglang.FIGURES),
    )


def _timed(chunk: Raw) -> pl.DataFrame:
    """Each ``ReqTimeStats`` line in text columns."""
    text = pl.col("text").str
    return _lines(chunk, _STATS).select(
        pl.col(LINE),
        text.extract(r"ReqTimeStats\(rid='?([^,')]+)", 1).alias("rid"),
        text.extract(r"\btype=([a-z]+)\)", 1).alias("kind"),
        *(text.extract(rf"\b{name}={_NUMBER}", 1).alias(name) for name in _TIMES),
        *(text.extract(rf"\b{name}={_NUMBER}ms", 1).alias(name) for name in _SPANS),
    )


def _from_any(chunk: Raw) -> Batch:
    return _from_both(chunk) if _lines(chunk, _FINISH, _RECEIVE).height else _from_stats(chunk)


def _from_finish(chunk: Raw) -> Batch:
    return _requests(Raw(_finished(chunk), chunk.options), None)


def _from_both(chunk: Raw) -> Batch:
    """Requests with their queue time from the other line; of both lines one is counted."""
    times = _timed(chunk)
    # A tie would be a request told twice, as by two stages of a split service: taken from neither.
    known = times.filter(pl.len().over("rid") == 1).select(
        "rid", pl.col("queue_duration").alias("queued")
    )
    joined = _finished(chunk).join(known, on="rid", how="left", maintain_order="left")
    raw = Raw(joined, chunk.options)
    return _requests(raw, lambda r: r.duration("queued", "ms"))


def _requests(raw: Raw, queued: Callable[[Raw], pl.Expr] | None) -> Batch:
    rid = raw.text("rid")
    times = sglang.times(raw, stamp="stamp", stream=raw.boolean("stream"))
    queue = raw.duration("queue_time", "s")
    reason = raw.text("finish_reason")
    frame = raw.select(
        {
            "request_id": rid,
            "session_id": raw.text("session"),
            "start": times.start,
            **sglang.counts(raw),
            "ttft_us": times.ttft,
            "e2e_us": times.e2e,
            "queue_us": queue if queued is None else pl.coalesce(queue, queued(raw)),
            "prefill_us": times.prefill,
            "status": pl.when(reason.str.contains("abort"))
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("ok")),
            "streamed": times.streamed,
            "vantage": pl.lit("server"),
        },
        reject=pl.when(rid.str.contains("HEALTH_CHECK", literal=True).fill_null(False))
        .then(pl.lit("health_check"))
        .when(~pl.col("finish"))
        .then(pl.lit("not_a_finish_line"))
        .when(~pl.col("whole") | rid.is_null())
        .then(pl.lit("torn_line")),
    )
    fields = {k: v for k, v in FIELDS.items() if frame[k].count()}
    notes = [tr(sglang.CLOCK)] if frame["ttft_us"].count() else []
    used = frame["reject"].is_null() & (frame["status"] == "ok") & frame["start"].is_not_null()
    if (used & raw.frame["request_received_ts"].is_null()).any():
        notes.append(tr(_COARSE))
    if not raw.frame["ids"].count():
        return Batch(frame, fields, tuple(notes))
    # Lists of ids that were cut in the middle have dots there or behind, and are not among them.
    if UNREAD not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias(UNREAD))
    made = Prompts(Where(ids=Place("ids"))).read(frame, raw.frame)
    return Batch(made.frame, {**fields, **made.fields}, (*notes, *made.notes), made.parts)


def _from_stats(chunk: Raw) -> Batch:
    raw = Raw(_timed(chunk), chunk.options)
    queue, forward = raw.duration("queue_duration", "ms"), raw.duration("forward_duration", "ms")
    entered = raw.number("entry_time")
    rid = raw.text("rid")
    frame = raw.select(
        {
            "request_id": rid,
            "start": pl.when(entered > _EPOCH_S).then(raw.instant("entry_time", "s")),
            "input_tokens": raw.count("input_len"),
            "cached_tokens": raw.count("cached_input_len"),
            "output_tokens": raw.count("output_len"),
            # The decode stage of a split service goes on after the other one is done.
            "e2e_us": pl.when(pl.col("kind").is_null() | (pl.col("kind") != "prefill")).then(
                queue + forward
            ),
            "queue_us": queue,
            "status": pl.lit("ok"),
            "vantage": pl.lit("server"),
        },
        reject=pl.when(rid.str.contains("HEALTH_CHECK", literal=True).fill_null(False))
        .then(pl.lit("health_check"))
        .when(rid.is_null() | queue.is_null())
        .then(pl.lit("torn_line"))
        # The same request is told by the other stage of the service, too.
        .when((pl.col("kind") == "decode").fill_null(False))
        .then(pl.lit("decode_stage")),
    )
    fields = {k: v for k, v in _ALONE.items() if k in frame.columns and frame[k].count()}
    return Batch(frame, fields, (tr(_NO_TTFT),))


READER = Reader(
    name="sglang-log",
    title="SGLang server log (request lines as text)",
    shapes=(Shape.TEXT,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "an SGLang server log names single requests only with --log-requests, and has their queue "
        "and first-token times only with --enable-metrics beside it"
    ),
)
