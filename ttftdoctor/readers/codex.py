"""Codex CLI: the rollout of a session, JSON lines of ``timestamp``, ``type`` and ``payload``.

A call of the model is an ``event_msg`` of type ``token_count`` with usage in ``info``; its input
counts cached tokens, its output reasoning. The other lines say whose it was: ``session_meta`` (id,
release, provider), ``turn_context`` (model), and the items that went into it.

Three things would count calls twice, and do not: a ``token_count`` is written again unchanged
(then the running total stands still); one may hold rate limits alone (``info`` is null); and a
fork or a sub-agent begins with a copy of its parent's lines, all written within a second.

It cannot tell: the first token of a call. ``time_to_first_token_ms`` is a turn's, from its start
to the first output of any kind, and a turn has many calls; it stands beside the first of them as
logged and is never used. A call ends where its ``token_count`` is written; it is placed at the last
item that went into it (question, result of a tool, start of the turn), but not before the end of
the call before. Nothing is read of what was said. The provider counts no cache writes.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

#: Members of a payload that are read; what was said is not among them.
_PAYLOAD = (
    "type", "id", "role", "model", "model_provider", "cli_version", "forked_from_id", "source",
    "info", "time_to_first_token_ms",
)  # fmt: skip
_SCHEMA = {
    **dict.fromkeys(("timestamp", "type"), pl.String),
    "payload": pl.Struct(dict.fromkeys(_PAYLOAD, pl.String)),
}
_TYPES = frozenset(
    {"session_meta", "turn_context", "event_msg", "response_item", "compacted", "world_state"}
)
#: A fork writes the copy of its parent's lines at once.
_COPIED_US = 1_000_000

FIELDS = {
    "session_id": Field("session_meta.id", "", mark("of the rollout"), "derived"),
    "start": Field("timestamp", "us", mark("of the last item that went into the call"), "derived"),
    "model": Field("turn_context.model", "", mark("as asked for, from the line before"), "derived"),
    "route": Field("session_meta.model_provider", "", mark("whose endpoint"), "derived"),
    "version": Field(
        "session_meta.cli_version",
        "",
        mark("release of the client, which decides what prompts begin with"),
        "derived",
    ),
    "input_tokens": Field("last_token_usage.input_tokens", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field("last_token_usage.cached_input_tokens", "tokens", mark("as billed")),
    "output_tokens": Field("last_token_usage.output_tokens", "tokens", mark("with reasoning")),
    "reasoning_tokens": Field(
        "last_token_usage.reasoning_output_tokens", "tokens", mark("part of the output")
    ),
    "ttft_us": Field("time_to_first_token_ms", "ms", mark("of a whole turn: never used")),
    "status": Field("token_count", "", mark("usage comes with an answer only"), "assumed"),
    "vantage": Field("", "", mark("the client's own record"), "assumed"),
}
_NOTES = (
    mark("time_to_first_token_ms is a turn's, not a call's: it is not used as a TTFT"),
    mark(
        "calls are placed at the last item that went into them: good for pauses between turns, not "
        "for latency"
    ),
)


def _recognise(head: Head) -> str | None:
    found = [
        r
        for r in head.records
        if isinstance(r.get("payload"), dict) and "timestamp" in r and str(r.get("type")) in _TYPES
    ]
    if not found or 2 * len(found) < len(head.records):
        return None
    kinds = {r["type"] for r in found}
    if "session_meta" in kinds:
        return tr("lines of timestamp, type and payload with a session_meta")
    if any(r["payload"].get("type") == "token_count" for r in found):
        return tr("lines of timestamp, type and payload with token_count events")
    return None


def _sessions(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with what the lines before say of each line.

    Adds ``session``, ``version`` and ``route`` (of the last header that is no copy), ``model``,
    and ``copied``: whether the line is a copy of a parent's.
    """
    meta = pl.col("type") == "session_meta"
    heads = frame.filter(meta).select(LINE, "at").with_columns(
        # Headers within a second of one before them came with a parent's lines.
        (pl.col("at") - pl.col("at").shift()).is_between(0, _COPIED_US)
        .fill_null(False).alias("copy")
    )  # fmt: skip
    frame = frame.join(heads.drop("at"), on=LINE, how="left", maintain_order="left")
    own = meta & ~pl.col("copy").fill_null(False)
    frame = frame.with_columns(
        own.cum_sum().alias("file"),
        (
            (meta & pl.col("copy").fill_null(False))
            | (own & pl.col("forked_from_id").is_not_null())
            | (own & pl.col("source").str.contains("subagent", literal=True).fill_null(False))
        ).alias("fork"),
    )
    first = [
        pl.when(own).then(pl.col(source)).drop_nulls().first().over("file").alias(name)
        for name, source in (
            ("session", "id"), ("version", "cli_version"), ("route", "model_provider"),
            ("began", "at"),
        )
    ]  # fmt: skip
    asked = pl.when(pl.col("type") == "turn_context").then(pl.col("model"))
    return frame.with_columns(
        *first,
        asked.forward_fill().over("file").alias("model"),
        pl.col("fork").any().over("file").alias("fork"),
    ).with_columns(
        (pl.col("fork") & (pl.col("at") - pl.col("began")).is_between(0, _COPIED_US))
        .fill_null(False)
        .alias("copied")
    )


def _placed(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with ``start``, when the last item that went into a call was written.

    What a call made (reasoning, answer, calls of tools) comes before its ``token_count``; the
    result of a tool may, too, so only what lies before the first thing it made counts.
    """
    kind, item = pl.col("kind"), pl.col("type") == "response_item"
    answer = kind.is_in(["reasoning"]) | (
        kind.str.ends_with("_call") | ((kind == "message") & (pl.col("role") == "assistant"))
    )
    given = (
        (item & kind.str.ends_with("_output"))
        | (item & (kind == "message") & (pl.col("role") != "assistant"))
        | (pl.col("type").is_in(["turn_context", "compacted"]))
        | kind.is_in(["user_message", "task_started", "turn_started"])
    ).fill_null(False)
    call = pl.col("is_call")
    return (
        frame.with_columns(
            (call.cum_sum() - call.cast(pl.UInt32)).over("file").alias("part"),
            pl.when(given).then("at").forward_fill().over("file").alias("given"),
            (item & answer).fill_null(False).alias("made"),
        )
        .with_columns(
            pl.coalesce(
                pl.when("made").then("given").drop_nulls().first(),
                pl.col("given").last(),
            ).over("file", "part").alias("given")
        )
        .with_columns(
            # Calls of a session come one after another.
            pl.max_horizontal(
                "given", pl.when(call).then("at").forward_fill().shift().over("file")
            ).alias("given")
        )
        .with_columns(
            pl.when(pl.col("given") <= pl.col("at")).then("given").otherwise("at").alias("start")
        )
    )  # fmt: skip


def _convert(raw: Raw) -> Batch:
    payload = pl.col("payload").struct
    names = {name: "kind" if name == "type" else name for name in _PAYLOAD}
    said = Raw(
        raw.frame.with_columns(payload.field(p).alias(name) for p, name in names.items()),
        raw.options,
    )
    frame = said.frame.with_columns(
        *(said.text(name).alias(name) for name in (*names.values(), "type")),
        said.instant("timestamp", strict=False).alias("at"),
    )
    event = pl.col("type") == "event_msg"
    frame = frame.with_columns(
        (event & (pl.col("kind") == "token_count")).fill_null(False).alias("counted"),
        pl.col("info").str.json_path_match("$.total_token_usage").alias("total"),
        pl.col("info").str.json_path_match("$.last_token_usage").alias("usage"),
    )
    frame = _sessions(frame)
    known = pl.when("counted").then("total")
    before = known.forward_fill().shift().over("file")
    frame = frame.with_columns(
        (pl.col("counted") & (known == before)).fill_null(False).alias("again")
    ).with_columns(
        (
            pl.col("counted") & pl.col("usage").is_not_null()
            & ~pl.col("again") & ~pl.col("copied")
        ).alias("is_call")
    )  # fmt: skip
    frame = _placed(frame)
    begins = event & pl.col("kind").is_in(["task_started", "turn_started"])
    ends = event & pl.col("kind").is_in(["task_complete", "turn_complete"])
    frame = frame.with_columns(begins.fill_null(False).cum_sum().alias("turn_number"))
    rows = Raw(frame, raw.options)
    told = rows.duration("time_to_first_token_ms", "ms", strict=False)
    frame = frame.with_columns(told.alias("told")).with_columns(
        pl.when(ends).then("told")
        .drop_nulls().first().over("file", "turn_number").alias("of_turn"),
        (pl.col("is_call") & (pl.col("is_call").cum_sum().over("file", "turn_number") == 1))
        .alias("first_of_turn"),
    )  # fmt: skip
    rows = Raw(frame, raw.options)
    ttft = pl.when("first_of_turn").then("of_turn")
    given = rows.count("usage", "$.input_tokens", strict=False)
    out = rows.select(
        {
            "session_id": pl.col("session"),
            "start": pl.col("start"),
            "model": pl.col("model"),
            "route": pl.col("route"),
            "version": pl.col("version"),
            "input_tokens": pl.when(given != 0).then(given),
            "cached_tokens": rows.count("usage", "$.cached_input_tokens", strict=False),
            "output_tokens": rows.count("usage", "$.output_tokens", strict=False),
            "reasoning_tokens": rows.count("usage", "$.reasoning_output_tokens", strict=False),
            "ttft_us": ttft,
            "status": pl.lit("ok"),
            "vantage": pl.lit("client"),
        },
        reject=pl.when(~pl.col("counted"))
        .then(pl.lit("not_a_request"))
        .when(pl.col("copied"))
        .then(pl.lit("copied_history"))
        .when(pl.col("usage").is_null())
        .then(pl.lit("no_usage"))
        .when(pl.col("again"))
        .then(pl.lit("repeated_usage")),
        set_aside=pl.when(ttft.is_not_null()).then(pl.lit("turn_level")),
    )
    return Batch(out, {k: v for k, v in FIELDS.items() if out[k].count()}, tuple(map(tr, _NOTES)))


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    # Header, model and turn of a call stand in lines of their own, anywhere before or after it.
    return Plan(_SCHEMA, _convert, whole=True)


READER = Reader(
    name="codex",
    title="Codex CLI session rollouts (tokens, turns, cached tokens; no TTFT of a call)",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Codex rollouts hold no first token of a call, only of a turn: set base_url of a "
        "[model_providers.NAME] in config.toml to a gateway that logs one"
    ),
)
