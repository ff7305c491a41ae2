"""Claude Code: the transcript of a session, JSON lines as the client keeps them on disk.

A line is a message or an event of the client (``user``, ``assistant``, ``system``, ``summary``,
...). Only ``assistant`` lines stand for calls of the model, and one call is written as one line
for each block of its answer: all of them repeat its usage, the early ones with a first guess of
the output. So a call is counted once, by the ids of message and request, with its largest
output. ``input_tokens`` leave cached tokens out: reads and writes are added.

A sub-agent (``isSidechain``) has prompts of its own, so it is a session of its own: by ``agentId``,
or, in files of older releases, by the line its chain of parents begins with. Lines of model
``<synthetic>`` were made by the client; those with ``isApiErrorMessage`` are calls that failed.

It cannot tell: any latency. A stamp is when a line was written, so the time from a question to
its answer includes the answer; a call is placed at the last line before it, which is a question
or the result of a tool. Nothing is read of what was said. The layout is no contract of
the vendor; it was seen in captures of releases 1 and 2.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

#: Members of a message that are read; what was said is not among them.
_MESSAGE = ("id", "model", "usage")
_SCHEMA = {
    **dict.fromkeys(
        ("type", "uuid", "parentUuid", "sessionId", "agentId", "timestamp", "requestId",
         "isSidechain", "isApiErrorMessage", "error", "version"),
        pl.String,
    ),
    "message": pl.Struct(dict.fromkeys(_MESSAGE, pl.String)),
}  # fmt: skip
_SYNTHETIC = "<synthetic>"

FIELDS = {
    "request_id": Field("requestId, message.id", "", mark("the provider's name of the call")),
    "session_id": Field("sessionId, agentId", "", mark("a sub-agent is a session of its own")),
    "start": Field(
        "timestamp",
        "us",
        mark("of the last line before the answer (question or tool result)"),
        "derived",
    ),
    "model": Field("message.model", "", mark("as the provider answered")),
    "version": Field(
        "version", "", mark("release of the client, which decides what prompts begin with")
    ),
    "input_tokens": Field(
        "usage.input_tokens + cache reads and writes",
        "tokens",
        mark("input leaves cached tokens out"),
        "derived",
    ),
    "cached_tokens": Field("usage.cache_read_input_tokens", "tokens", mark("as billed")),
    "cache_write_tokens": Field("usage.cache_creation_input_tokens", "tokens", mark("as billed")),
    "output_tokens": Field(
        "usage.output_tokens", "tokens", mark("the largest of the lines of one answer"), "derived"
    ),
    "status": Field("isApiErrorMessage, error", "", mark("set where the call failed")),
    "vantage": Field("", "", mark("the client's own transcript"), "assumed"),
}
_NOTES = (
    mark(
        "calls are placed at the last line before their answer: good for pauses between turns, "
        "not for latency"
    ),
    mark(
        "the transcript holds what one client sent: another session or machine may have filled the "
        "same cache"
    ),
)


def _recognise(head: Head) -> str | None:
    signs = {"sessionId", "uuid", "parentUuid", "message"}
    found = [r for r in head.records if signs <= r.keys() and isinstance(r["message"], dict)]
    if any(r.get("type") in ("user", "assistant") for r in found):
        return tr("sessionId, uuid, parentUuid and message")
    return None


def _roots(uuids: pl.Series, parents: pl.Series) -> pl.Series:
    """The uuid that the chain of parents of each line begins with, within these lines.

    By doubling: after k rounds every line points 2**k parents back, so that circles end, too.
    """
    n = len(uuids)
    known = pl.DataFrame({"uuid": uuids, "at": np.arange(n)}).unique("uuid", keep="first")
    up = (
        pl.DataFrame({"uuid": parents}).join(known, on="uuid", how="left", maintain_order="left")
    )["at"]
    at = np.where(up.is_null(), np.arange(n), up.fill_null(0).to_numpy())
    for _ in range(max(n, 2).bit_length()):
        at = at[at]
    return uuids.gather(at)


def _sessions(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with ``session``: the client's session, or the sub-agent's within it."""
    side = pl.col("side") & pl.col("agentId").is_null()
    unnamed = frame.filter(side)
    if unnamed.height:
        roots = _roots(unnamed["uuid"], unnamed["parentUuid"])
        frame = frame.join(
            unnamed.select(LINE, roots.alias("root")), on=LINE, how="left", maintain_order="left"
        )
    else:
        frame = frame.with_columns(pl.lit(None, pl.String).alias("root"))
    part = pl.when(pl.col("side")).then(pl.coalesce("agentId", "root", pl.lit("sidechain")))
    return frame.with_columns(
        pl.concat_str(["sessionId", part], separator="/", ignore_nulls=True)
        .replace("", None)
        .alias("session")
    )


def _convert(raw: Raw) -> Batch:
    message = pl.col("message").struct
    said = Raw(
        raw.frame.with_columns(message.field(name).alias(f"message.{name}") for name in _MESSAGE),
        raw.options,
    )
    names = ("uuid", "parentUuid", "sessionId", "agentId")
    frame = _sessions(
        said.frame.with_columns(
            *(said.text(name).alias(name) for name in names),
            said.boolean("isSidechain").fill_null(False).alias("side"),
            said.instant("timestamp", strict=False).alias("at"),
            said.text("message.id").alias("message.id"),
            said.text("message.usage").alias("usage"),
            (said.text("type") == "assistant").fill_null(False).alias("answer"),
            said.boolean("isApiErrorMessage").fill_null(False).alias("failed"),
        )
    )
    # A call goes by the ids of message and request; where there are none, each line is one.
    call = pl.concat_str(
        pl.coalesce("message.id", "uuid", pl.format("line {}", pl.col(LINE))),
        pl.col("requestId").fill_null(""),
        separator=" ",
    )
    frame = frame.with_columns(
        pl.when("answer").then(call).otherwise(pl.format("line {}", pl.col(LINE))).alias("call"),
        # What came last before a line: a question, the result of a tool, or another answer.
        pl.when(pl.col("type").is_in(["user", "assistant"]))
        .then("at")
        .forward_fill()
        .shift()
        .over("session")
        .alias("asked"),
    )
    rows = Raw(frame, raw.options)
    output = rows.count("usage", "$.output_tokens", strict=False)
    frame = frame.with_columns(output.alias("output")).with_columns(
        pl.col("at").first().over("call").alias("first"),
        pl.col("asked").first().over("call").alias("asked"),
        (
            pl.int_range(pl.len())
            == pl.col("output").fill_null(-1).arg_max()
        ).over("call").alias("fullest"),
    )  # fmt: skip
    rows = Raw(frame, raw.options)
    fresh = rows.count("usage", "$.input_tokens", strict=False)
    read = rows.count("usage", "$.cache_read_input_tokens", strict=False)
    parts = [
        rows.count("usage", f"$.cache_creation.ephemeral_{kept}_input_tokens", strict=False)
        for kept in ("5m", "1h")
    ]
    both = pl.when(pl.any_horizontal(p.is_not_null() for p in parts)).then(pl.sum_horizontal(parts))
    write = pl.coalesce(rows.count("usage", "$.cache_creation_input_tokens", strict=False), both)
    total = fresh + read.fill_null(0) + write.fill_null(0)
    failed, made = pl.col("failed"), rows.text("message.model") == _SYNTHETIC
    kind = status_of(rows.text("error"))
    out = rows.select(
        {
            "request_id": pl.coalesce(rows.text("requestId"), "message.id"),
            "session_id": pl.col("session"),
            "start": pl.when(pl.col("asked") <= pl.col("first"))
            .then("asked")
            .otherwise(pl.coalesce("first", "at")),
            "model": pl.when(~made).then(rows.text("message.model")),
            "version": rows.text("version"),
            "input_tokens": pl.when(total != 0).then(total),
            "cached_tokens": read,
            "cache_write_tokens": write,
            "output_tokens": pl.col("output"),
            "status": pl.when(failed)
            .then(pl.when(kind.is_in(["rate_limited", "aborted"])).then(kind)
                  .otherwise(pl.lit("error")))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        reject=pl.when(~pl.col("answer"))
        .then(pl.lit("not_a_request"))
        .when(~pl.col("fullest"))
        .then(pl.lit("repeated_usage"))
        .when(made.fill_null(False) & ~failed)
        .then(pl.lit("made_by_client"))
        .when(pl.col("usage").is_null() & ~failed)
        .then(pl.lit("no_usage")),
    )  # fmt: skip
    return Batch(out, {k: v for k, v in FIELDS.items() if out[k].count()}, tuple(map(tr, _NOTES)))


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    # The lines of one call may lie apart, with results of tools between them.
    return Plan(_SCHEMA, _convert, whole=True)


READER = Reader(
    name="claude-code",
    title="Claude Code session transcripts (tokens, turns, cache reads and writes; no TTFT)",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Claude Code transcripts hold no latency: CLAUDE_CODE_ENABLE_TELEMETRY=1 with "
        "OTEL_LOGS_EXPORTER=otlp and a collector that writes a file gives ttft_ms a request"
    ),
)
