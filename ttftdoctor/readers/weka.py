"""Agentic coding traces published by WEKA: one JSON document a session, from a proxy.

The document holds ``requests``; an entry of type ``subagent`` is no request but a nest of them,
with a clock that starts with the nest. Lengths, the ids of 64-token blocks (a partial last block
has none), the time of the whole call and the pause before it are given for each request, and the
time to first token for some streaming ones (to 10 ms, network and proxy included). Requests of
type ``n`` were not streamed.

Block ids stand for a block and all before it, but only inside one file, so they are made different
for each file. There are no dates, no tenants, and no counts of cached tokens: the provider's cache
has a lifetime, so what prompts share is not always what was reused.
"""

from __future__ import annotations

import hashlib
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_BLOCK = 64
_ODD = 0x9E3779B97F4A7C15
_REQUEST: dict[str, Any] = {
    "t": pl.Float64,
    "type": pl.String,
    "model": pl.String,
    "in": pl.Float64,
    "out": pl.Float64,
    "hash_ids": pl.List(pl.UInt64),
    "ttft": pl.Float64,
    "api_time": pl.Float64,
}


def _recognise(head: Head) -> str | None:
    entries = head.inner.get("requests", ())
    if head.outer is None or not entries:
        return None
    seen = {key for entry in entries for key in entry}
    if {"t", "type", "in", "out", "hash_ids"} <= seen:
        return tr("a session with requests that have in, out and hash_ids")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    outer = head.outer or {}
    name = str(outer.get("id") or "")
    size = outer.get("block_size")
    block = size if isinstance(size, int) and 0 < size < 2**31 else _BLOCK
    local = outer.get("hash_id_scope", "local") != "global"
    salt = _salt(name or head.path) if local else 0
    schema: dict[str, Any] = {
        **dict.fromkeys((*_REQUEST, "agent_id"), pl.String),
        "hash_ids": pl.List(pl.UInt64),
        "requests": pl.List(pl.Struct(_REQUEST)),
    }

    def convert(raw: Raw) -> Batch:
        return _convert(raw, name, block, salt)

    return Plan(schema, convert, whole=True, unwrap="requests")


def _salt(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") | 1


def _flat(raw: Raw, name: str) -> pl.DataFrame:
    """One row a request: those of the session, then those inside sub-agent entries."""
    nest = pl.col("requests").is_not_null()
    entries = raw.frame.with_columns(
        nest.alias("nest"),
        *(raw.number(c, strict=False).alias(c) for c in ("t", "in", "out", "ttft", "api_time")),
        *(raw.text(c).alias(c) for c in ("type", "model", "agent_id")),
    )
    own = entries.filter(~pl.col("nest")).select(
        LINE, *_REQUEST, pl.lit(name or None, pl.String).alias("session_id")
    )
    session = pl.concat_str(
        [pl.lit(name), pl.coalesce("agent_id", pl.format("entry {}", pl.col(LINE)))], separator="/"
    )
    nested = (
        entries.filter("nest")
        .select(LINE, pl.col("t").alias("base"), session.alias("session_id"), "requests")
        .explode("requests")
        .filter(pl.col("requests").is_not_null())
        .unnest("requests")
        .with_columns((pl.col("base").fill_null(0) + pl.col("t")).alias("t"))
        .select(LINE, *_REQUEST, "session_id")
    )
    return pl.concat([own, nested]).sort(LINE, maintain_order=True)


def _convert(raw: Raw, name: str, block: int, salt: int) -> Batch:
    frame = _flat(raw, name)
    ids = pl.col("hash_ids")
    if salt:
        spread = (pl.element() + pl.lit(salt, pl.UInt64)) * pl.lit(_ODD, pl.UInt64)
        ids = ids.list.eval(spread ^ (spread // pl.lit(2**32, pl.UInt64)))
    rows = Raw(frame, raw.options)
    known = pl.when(pl.col("ttft") > 0).then(pl.col("ttft"))
    frame = rows.select(
        {
            "session_id": pl.col("session_id"),
            "turn": pl.int_range(1, pl.len() + 1).over("session_id"),
            "start": rows.instant("t", "s"),
            "model": pl.col("model"),
            "input_tokens": rows.count("in"),
            "output_tokens": rows.count("out"),
            "ttft_us": (known * 1e6).round(0).cast(pl.Int64, strict=False),
            "e2e_us": rows.duration("api_time", "s"),
            "streamed": pl.when(pl.col("type").is_in(["n", "s"])).then(pl.col("type") == "s"),
            "prefix_blocks": ids,
            "block_tokens": pl.lit(block),
            "vantage": pl.lit("gateway"),
        }
    )
    fields = {
        "session_id": Field(
            "id, agent_id", "", mark("the file; a sub-agent is a session of its own")
        ),
        "turn": Field("requests", "", mark("place in the session"), "derived"),
        "start": Field("t", "s", mark("from the start of the session: no date")),
        "model": Field("model", "", mark("as asked for")),
        "input_tokens": Field("in", "tokens", mark("cached ones are in it")),
        "output_tokens": Field("out", "tokens", mark("of the answer")),
        "ttft_us": Field(
            "ttft", "s", mark("at the proxy, in steps of 10 ms; only where it was caught")
        ),
        "e2e_us": Field("api_time", "s", mark("the whole call")),
        "streamed": Field("type", "", mark("n is not streamed")),
        "prefix_blocks": Field(
            "hash_ids",
            "",
            mark("ids chain and hold inside one file only: made different for each file"),
            "derived" if salt else "logged",
        ),
        "block_tokens": Field("block_size", "tokens", mark("a partial last block has no id")),
    }
    notes = [
        tr(
            "the trace says nothing of cached tokens: what prompts share is known, what the "
            "provider reused is not"
        )
    ]
    nests = int(raw.frame["requests"].is_not_null().sum())
    if nests:
        notes.append(
            tr(
                "sub-agent entries: {n}; their requests are read as sessions of their own, each "
                "started at its entry",
                n=nests,
            )
        )
    return Batch(frame, fields, tuple(notes))


READER = Reader(
    "weka",
    "WEKA agentic coding traces",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "these traces have the time to first token of some requests only, and no cached tokens; "
        "replay one (kv-cache-tester trace_replay_tester.py) for more"
    ),
)
