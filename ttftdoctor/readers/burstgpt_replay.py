"""BurstGPT's replay client: ``detail_log_*.json``, an object with one entry an event.

Seconds. ``record_time`` is a monotonic clock read when the answer had ended, so a request started
``total_chunk_time`` before it; there are no dates. The first chunk is the first bytes of the body.
``out_len`` counts characters, not tokens, and is not used. Rows stand in the order in which
answers ended, under the id of their event.

The clock is the client's. There are no sessions, no outcomes and no cached tokens.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed
from ttftdoctor.table import Field

_TEXTS = ("event_id", "in_len", "first_chunk_time", "total_chunk_time", "record_time")

FIELDS = {
    "request_id": Field("event_id", "", mark("the client's name")),
    "start": Field(
        "record_time - total_chunk_time", "s",
        mark("read at the end of the answer; a clock of unknown origin: no date"), "derived",
    ),
    "input_tokens": Field("in_len", "tokens", mark("counted by the client")),
    "ttft_us": Field("first_chunk_time", "s", mark("from sending to the first bytes")),
    "e2e_us": Field("total_chunk_time", "s", mark("from sending to the end")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}  # fmt: skip
_NOTE = mark("out_len counts characters, not tokens: the length of answers is not known")


def _records(head: Head) -> tuple[str | None, tuple[str, ...]]:
    if head.outer is None:
        return None, head.columns
    inner = head.inner.get("*", ())
    return "*", tuple(inner[0]) if inner else ()


def _recognise(head: Head) -> str | None:
    for columns in (head.columns, _records(head)[1]):
        if set(columns) >= set(_TEXTS):
            return tr("first_chunk_time and total_chunk_time beside record_time")
    return None


def _convert(raw: Raw) -> Batch:
    ttft, e2e = raw.duration("first_chunk_time", "s"), raw.duration("total_chunk_time", "s")
    frame = raw.select(
        {
            "request_id": raw.text("event_id"),
            "start": raw.instant("record_time", "s") - e2e,
            "input_tokens": raw.count("in_len"),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "vantage": pl.lit("client"),
        },
        set_aside=not_streamed(ttft, e2e),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_NOTE),))


def _plan(head: Head, options: Options) -> Plan:
    del options
    single = set(_TEXTS) <= set(head.columns)
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert, unwrap=None if single else "*")


READER = Reader(
    "burstgpt-replay",
    "BurstGPT replay client logs (detail_log)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "the replay client logs no answer tokens, no outcomes, no sessions and no cached tokens; "
        "read the engine's request log beside it for those"
    ),
)
