"""fmperf (IBM): ``results`` with one element a token; a request is all elements of its numbers.

``duration_ms`` is the gap since the element before; that of ``response_idx`` 0 is the TTFT.
``timestamp`` is epoch nanoseconds at the token, so a request started a gap before its first one. A
chunk of several tokens gives several elements with the same stamp. A stream that failed ends with
``ok`` false. Elements after the grace window (``exclude``) are left out by the tool: a request is,
too, if its first token is one. ``results_widN`` of one worker is the list alone.

The clock is the client's. Prompt tokens are not in the file; texts are never read.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_TEXTS = (
    "timestamp", "duration_ms", "response_idx", "worker_idx", "request_idx", "ok", "exclude",
)  # fmt: skip
_KEY = ("worker_idx", "request_idx")

FIELDS = {
    "request_id": Field("worker_idx, request_idx", "", mark("fmperf's numbers"), "derived"),
    "start": Field("timestamp - duration_ms", "ns", mark("of the first token"), "derived"),
    "output_tokens": Field("results", "tokens", mark("one element a token"), "derived"),
    "ttft_us": Field("duration_ms", "ms", mark("of response_idx 0")),
    "e2e_us": Field("duration_ms", "ms", mark("sum over the tokens"), "derived"),
    "status": Field("ok", "", mark("fmperf's name")),
    "streamed": Field("", "", mark("the tool asks for streams only"), "assumed"),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    for element in (*head.inner.get("results", ()), *head.records):
        if {"response_idx", "duration_ms", "request_idx"} <= element.keys():
            return tr("results with response_idx and duration_ms")
    return None


def _convert(raw: Raw) -> Batch:
    gap = raw.duration("duration_ms", "ms")
    tokens = raw.select(
        {
            **{name: raw.text(name) for name in _KEY},
            "place": raw.count("response_idx"),
            "stamp": raw.instant("timestamp", "ns"),
            "gap": gap,
            "good": raw.boolean("ok").fill_null(True),
            "late": raw.boolean("exclude").fill_null(False),
        }
    )
    numbered = pl.all_horizontal(pl.col(name).is_not_null() for name in _KEY)
    sound = pl.col("reject").is_null() & numbered
    first = (pl.col("place") == 0) & pl.col("gap").is_not_null()
    requests = (
        tokens.filter(sound)
        .group_by(_KEY, maintain_order=True)
        .agg(
            pl.col(LINE).min(),
            pl.col("gap").filter(first).first().alias("ttft_us"),
            pl.col("gap").sum().alias("e2e_us"),
            (pl.col("stamp") - pl.col("gap")).filter(first).first().alias("start"),
            pl.col("good").sum().cast(pl.Int64).alias("output_tokens"),
            pl.col("good").all(),
            # Of one that came before the end, later tokens are as they would be anyway.
            pl.col("late").filter(first).first().fill_null(pl.col("late").any()),
        )
    )
    frame = requests.select(
        LINE,
        pl.concat_str(_KEY, separator="/").alias("request_id"),
        "start",
        "output_tokens",
        "ttft_us",
        pl.when(pl.col("ttft_us").is_not_null()).then(pl.col("e2e_us")).alias("e2e_us"),
        pl.when("good").then(pl.lit("ok")).otherwise(pl.lit("error")).alias("status"),
        pl.lit(True).alias("streamed"),
        pl.lit("client").alias("vantage"),
        pl.when("late").then(pl.lit("after_grace_window")).alias("reject"),
    )
    lost = tokens.filter(~sound).select(
        LINE, pl.coalesce("reject", pl.lit("no_request_number")).alias("reject")
    )
    frame = pl.concat([frame, lost], how="diagonal").sort(LINE, maintain_order=True)
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()})


def _plan(head: Head, options: Options) -> Plan:
    del options
    unwrap = "results" if "results" in head.inner else None
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert, whole=True, unwrap=unwrap)


READER = Reader(
    "fmperf",
    "fmperf results (one element a token)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "fmperf writes no prompt tokens, no sessions and no cached tokens; read the engine's "
        "request log beside it for those"
    ),
)
