"""Agentic coding traces published by WEKA: one JSON document a session, from a proxy.

A document is a file, or a line of ``traces.jsonl``, or a row of Parquet; the latter two hold many.
It holds ``requests``; an entry of type ``subagent`` is no request but a nest of them, with a clock
that starts with the nest (or goes on, where none of them comes before it). Lengths, the ids of
64-token blocks (a partial last block has none), the time of the whole call and the pause before it
are given for each request, and the time to first token for some streaming ones (to 10 ms, network
and proxy included). Requests of type ``n`` were not streamed.

Block ids stand for a block and all before it, but only inside one session (unless
``hash_id_scope`` is ``global``), so they are made different for each. There are no dates, no
tenants, and no counts of cached tokens: the provider's cache has a lifetime, so what prompts share
is not always what was reused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_BLOCK = 64
_ODD = 0x9E3779B97F4A7C15
#: How deep sub-agents of sub-agents are looked for.
_DEPTH = 3
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
    entries = list(head.inner.get("requests", ()))
    if head.outer is None:
        lists = [r["requests"] for r in head.records if isinstance(r.get("requests"), list)]
        few = 2 * len(lists) < len(head.records)
        entries = [] if few else [e for one in lists for e in one if isinstance(e, dict)]
    seen = {key for entry in entries for key in entry}
    if {"t", "type", "in", "out", "hash_ids"} <= seen:
        return tr("a session with requests that have in, out and hash_ids")
    return None


def _entry(depth: int) -> dict[str, Any]:
    """The members of an entry of a list of requests."""
    if depth == 0:
        return _REQUEST
    nest = pl.List(pl.Struct(_entry(depth - 1)))
    return {**_REQUEST, "agent_id": pl.String, "requests": nest}


def _plan(head: Head, options: Options) -> Plan:
    del options
    members = _entry(_DEPTH)
    path = head.path
    if head.outer is None:
        many: dict[str, Any] = dict.fromkeys(("id", "block_size", "hash_id_scope"), pl.String)
        # Parquet has lists of objects as text.
        text = head.shape is Shape.PARQUET
        many["requests"] = pl.String if text else pl.List(pl.Struct(members))
        return Plan(many, lambda raw: _convert_many(raw, path))
    session = _Session.of(head.outer, path)
    schema: dict[str, Any] = {
        **dict.fromkeys(members, pl.String),
        "hash_ids": members["hash_ids"],
        "requests": members["requests"],
    }
    return Plan(schema, lambda raw: _convert(raw, session), whole=True, unwrap="requests")


@dataclass(frozen=True)
class _Session:
    """What a document says of all its requests; ``salt`` makes its block ids its own (0: not)."""

    name: str
    block: int
    salt: int

    @classmethod
    def of(cls, document: Mapping[str, Any], place: str) -> _Session:
        """That of a document, which is found at a place if it has no name."""
        name = str(document.get("id") or "")
        size = str(document.get("block_size") or "")
        block = int(size) if re.fullmatch(r"[1-9]\d{0,8}", size) else _BLOCK
        local = document.get("hash_id_scope") != "global"
        return cls(name, block, _salt(name or place) if local else 0)


def _salt(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") | 1


def _flat(raw: Raw, name: str) -> tuple[pl.DataFrame, int]:
    """One row a request, also those inside sub-agent entries, and how many of these there are."""
    level = raw.frame.with_columns(
        *(raw.number(c, strict=False).alias(c) for c in ("t", "in", "out", "ttft", "api_time")),
        *(raw.text(c).alias(c) for c in ("type", "model", "agent_id")),
        pl.lit(name or None, pl.String).alias("session_id"),
        pl.lit(0.0).alias("base"),
    )
    found, nests = [], 0
    for depth in range(_DEPTH, -1, -1):
        kind = pl.col("type").eq("subagent").fill_null(False)
        nest = kind | pl.col("requests").is_not_null() if depth else kind
        own = level.filter(~nest).with_columns((pl.col("base") + pl.col("t")).alias("t"))
        found.append(own.select(LINE, *_REQUEST, "session_id"))
        entries = level.filter(nest)
        nests += entries.height
        if not entries.height or not depth:
            break
        start = pl.col("requests").list.eval(pl.element().struct.field("t")).list.min()
        # None of them comes before the nest: then its clock goes on.
        same = ((pl.col("t") > 0) & (start >= pl.col("t"))).fill_null(False)
        inner = pl.coalesce("agent_id", pl.format("entry {}", pl.col(LINE)))
        level = (
            entries.select(
                LINE,
                pl.when(same).then("base").otherwise(pl.col("base") + pl.col("t").fill_null(0)),
                pl.concat_str([pl.col("session_id").fill_null(""), inner], separator="/").alias(
                    "session_id"
                ),
                "requests",
            )
            .explode("requests")
            .filter(pl.col("requests").is_not_null())
            .unnest("requests")
        )
    return pl.concat(found).sort(LINE, maintain_order=True), nests


def _convert(raw: Raw, session: _Session) -> Batch:
    frame, nests = _read(raw, session)
    note = tr(
        "sub-agent entries: {n}; their requests are read as sessions of their own, each "
        "started at its entry",
        n=nests,
    )
    return _batch(frame, note if nests else None, derived=session.salt != 0)


def _convert_many(raw: Raw, path: str) -> Batch:
    """Rows that are sessions."""
    derived, some = False, False
    frames = [pl.DataFrame(schema={LINE: pl.Int64, "reject": pl.String})]
    for row in raw.frame.iter_slices(1):
        document = row.drop("requests").row(0, named=True)
        session = _Session.of(document, f"{path}:{document[LINE]}")
        try:
            entries = _entries(row)
        except pl.exceptions.PolarsError:
            frames.append(row.select(LINE, pl.lit("wrong_shape").alias("reject")))
            continue
        frame, nests = _read(Raw(entries, raw.options), session)
        frames.append(frame)
        derived, some = derived or session.salt != 0, some or nests > 0
    # Without their number: this is one of several parts of the log.
    note = tr("requests of sub-agents are read as sessions of their own, each started at its entry")
    return _batch(pl.concat(frames, how="diagonal"), note if some else None, derived=derived)


def _entries(row: pl.DataFrame) -> pl.DataFrame:
    """The entries of a document, one a row."""
    if row.schema["requests"] == pl.String:
        kind = pl.List(pl.Struct(_entry(_DEPTH)))
        row = row.with_columns(pl.col("requests").str.json_decode(kind))
    entries = row.select(LINE, "requests").explode("requests")
    return entries.filter(pl.col("requests").is_not_null()).unnest("requests")


def _read(raw: Raw, session: _Session) -> tuple[pl.DataFrame, int]:
    """The requests of a session, and how many entries are sub-agents."""
    frame, nests = _flat(raw, session.name)
    ids = pl.col("hash_ids")
    if session.salt:
        spread = (pl.element() + pl.lit(session.salt, pl.UInt64)) * pl.lit(_ODD, pl.UInt64)
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
            "block_tokens": pl.lit(session.block),
            "vantage": pl.lit("gateway"),
        }
    )
    return frame, nests


def _batch(frame: pl.DataFrame, note: str | None, *, derived: bool) -> Batch:
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
            "derived" if derived else "logged",
        ),
        "block_tokens": Field("block_size", "tokens", mark("a partial last block has no id")),
    }
    notes = [
        tr(
            "the trace says nothing of cached tokens: what prompts share is known, what the "
            "provider reused is not"
        )
    ]
    if note is not None:
        notes.append(note)
    return Batch(frame, fields, tuple(notes))


READER = Reader(
    "weka",
    "WEKA agentic coding traces",
    (Shape.JSON, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "these traces have the time to first token of some requests only, and no cached tokens; "
        "replay one (kv-cache-tester trace_replay_tester.py) for more"
    ),
)
