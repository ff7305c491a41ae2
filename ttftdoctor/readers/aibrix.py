"""AIBrix's benchmark client: JSON lines, one a request.

Seconds of the event loop's monotonic clock, so there are no dates; ``start_time`` is read after the
wait for the moment a request was due. An empty delta counts as the first token, so a server that
names the role at once looks faster than it is. Files of early 2025 have no ``ttft``. ``target_pod``
is the replica that answered. ``tpot`` divides by all tokens, the first one included.

The clock is the client's. Prompts are in the file (``input``); answers are never read.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Prompts
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.reading import batch_of, plan_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed
from ttftdoctor.table import Field

_TEXTS = (
    "request_id", "session_id", "status", "prompt_tokens", "output_tokens", "latency",
    "start_time", "ttft", "target_pod", "error_type", "error_message",
)  # fmt: skip

FIELDS = {
    "request_id": Field("request_id", "", mark("the client's name")),
    "session_id": Field("session_id", "", mark("the client's name")),
    "start": Field("start_time", "s", mark("a clock of unknown origin: no date")),
    "replica": Field("target_pod", "", mark("the pod that answered")),
    "input_tokens": Field("prompt_tokens", "tokens", mark("the server's count")),
    "output_tokens": Field("output_tokens", "tokens", mark("the server's count")),
    "ttft_us": Field("ttft", "s", mark("from sending to the first chunk, even an empty one")),
    "e2e_us": Field("latency", "s", mark("from sending to the end")),
    "status": Field("status, error_type", "", mark("the client's name")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    rows = [
        r
        for r in head.records
        if "status" in r and "request_id" in r and ("target_pod" in r or "target_request_id" in r)
    ]
    if rows and 2 * len(rows) >= len(head.records) and any("latency" in r for r in rows):
        return tr("status and latency beside target_pod")
    return None


def _plan(head: Head, options: Options) -> Plan:
    return plan_of(head, options, _TEXTS, _convert)


def _convert(raw: Raw, prompts: Prompts | None) -> Batch:
    status = status_of(raw.text("status"))
    kind = pl.coalesce(
        pl.when(k.is_in(["rate_limited", "aborted"])).then(k)
        for k in (status_of(raw.text("error_type")), status_of(raw.text("error_message")))
    )
    ttft, e2e = raw.duration("ttft", "s"), raw.duration("latency", "s")
    output = raw.count("output_tokens")
    frame = raw.select(
        {
            "request_id": raw.text("request_id"),
            "session_id": raw.text("session_id"),
            "start": raw.instant("start_time", "s"),
            "replica": raw.text("target_pod"),
            "input_tokens": raw.count("prompt_tokens"),
            "output_tokens": output,
            "ttft_us": ttft,
            "e2e_us": e2e,
            "status": pl.when(status == "error").then(pl.coalesce(kind, status)).otherwise(status),
            "vantage": pl.lit("client"),
        },
        set_aside=pl.when(output > 1).then(not_streamed(ttft, e2e)),
    )
    return batch_of(frame, FIELDS, raw=raw, prompts=prompts)


READER = Reader(
    "aibrix",
    "AIBrix benchmark client results",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "the AIBrix client logs no cached tokens and no queue, and a first token only with "
        "--streaming; read the engines' request logs beside it for the others"
    ),
)
