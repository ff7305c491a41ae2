"""llm-load-test (openshift-psap): ``output.json`` with ``results`` beside ``config``.

Stamps are epoch seconds and ``ttft`` (``TTFT`` in 2023) is ms; ``response_time`` was seconds in
2023 and is ms now, so the end is taken from the stamps. ``tt_ack`` ends with the headers or an
empty chunk and is no first token. A request that was not streamed has no ``ttft``; a failed one has
no times at all. ``tpot`` has the first token in it. Texts are never read.

The clock is the client's. ``user_id`` (``worker_id``) is a worker that sends one request after
another, not a conversation.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "start_time", "end_time", "first_token_time", "ttft", "start", "end", "TTFT", "input_tokens",
    "output_tokens", "error_code", "error_text",
)  # fmt: skip


def _is_result(record: object) -> bool:
    if not isinstance(record, dict):
        return False
    new = {"ttft", "tt_ack", "start_time"} <= record.keys()
    return new or {"TTFT", "TT_ack", "start"} <= record.keys()


def _recognise(head: Head) -> str | None:
    if any(_is_result(r) for r in head.inner.get("results", ())):
        return tr("results with ttft and tt_ack")
    return None


def _convert(raw: Raw) -> Batch:
    start = pl.coalesce(raw.instant("start_time", "s"), raw.instant("start", "s"))
    end = pl.coalesce(raw.instant("end_time", "s"), raw.instant("end", "s"))
    logged = pl.coalesce(raw.duration("ttft", "ms"), raw.duration("TTFT", "ms"))
    code, error = raw.text("error_code"), raw.text("error_text")
    kind = pl.coalesce(
        pl.when(k.is_in(["rate_limited", "aborted"])).then(k)
        for k in (status_of(code), status_of(error))
    )
    failed = (code.is_not_null() & (code != "0")) | error.is_not_null()
    frame = raw.select(
        {
            "start": start,
            "input_tokens": raw.count("input_tokens"),
            "output_tokens": raw.count("output_tokens"),
            "ttft_us": pl.coalesce(logged, raw.instant("first_token_time", "s") - start),
            "e2e_us": end - start,
            "status": pl.when(failed)
            .then(pl.coalesce(kind, pl.lit("error")))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        }
    )
    old = raw.frame["start"].count() > 0
    fields = {
        "start": Field("start" if old else "start_time", "s", mark("when the request was sent")),
        "input_tokens": Field("input_tokens", "tokens", mark("counted by the client")),
        "output_tokens": Field(
            "output_tokens", "tokens", mark("the server's count where it sent one")
        ),
        "ttft_us": Field("TTFT" if old else "ttft", "ms", mark("from sending to the first text")),
        "e2e_us": Field(
            "end - start" if old else "end_time - start_time",
            "s",
            mark("difference of two stamps"),
            "derived",
        ),
        "status": Field("error_code, error_text", "", mark("set where the request failed")),
        "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
    }
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()})


def _plan(head: Head, options: Options) -> Plan:
    del options
    unwrap = "results" if "results" in head.inner else None
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert, unwrap=unwrap)


READER = Reader(
    "llm-load-test",
    "llm-load-test results (output.json)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "llm-load-test knows no sessions, no cached tokens and no queue of the server, and a first "
        "token only with streaming: true in its plugin options"
    ),
)
