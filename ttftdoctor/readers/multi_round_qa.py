"""multi-round-qa (LMCache, vLLM production-stack, LMBench): the summary CSV, one row a question.

Seconds; ``launch_time`` and ``finish_time`` are epoch. Rows stand by session, and finished ones
first, not by time. ``question_id`` counts from 1 in each session. The ShareGPT variant has neither
user nor question. A question without an answer has zeros and no error. The first token is the first
content, reasoning included; setting up the connection is inside.

The clock is the client's. What was under way when the run ended is not in the file, and a user asks
the next question only after the last answer, so that a slow server is asked less.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "prompt_tokens", "generation_tokens", "ttft", "generation_time", "user_id", "question_id",
    "launch_time", "finish_time",
)  # fmt: skip
_NEEDED = {"generation_tokens", "ttft", "generation_time", "launch_time", "finish_time"}

FIELDS = {
    "session_id": Field("user_id", "", mark("a user is one conversation")),
    "turn": Field("question_id", "", mark("counted from 1")),
    "start": Field("launch_time", "s", mark("when the question was sent")),
    "input_tokens": Field("prompt_tokens", "tokens", mark("the server's count")),
    "output_tokens": Field("generation_tokens", "tokens", mark("the server's count")),
    "ttft_us": Field("ttft", "s", mark("from sending to the first content")),
    "e2e_us": Field(
        "ttft + generation_time", "s", mark("first token and what came after"), "derived"
    ),
    "status": Field("ttft", "", mark("no answer leaves a zero"), "derived"),
    "streamed": Field("", "", mark("the tool asks for streams only"), "assumed"),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}


def _recognise(head: Head) -> str | None:
    return tr("generation_time beside launch_time") if set(head.columns) >= _NEEDED else None


def _convert(raw: Raw) -> Batch:
    ttft = raw.duration("ttft", "s")
    frame = raw.select(
        {
            "session_id": raw.text("user_id"),
            "turn": raw.count("question_id", strict=False),
            "start": raw.instant("launch_time", "s"),
            "input_tokens": raw.count("prompt_tokens"),
            "output_tokens": raw.count("generation_tokens"),
            "ttft_us": ttft,
            "e2e_us": ttft + raw.duration("generation_time", "s"),
            "status": pl.when((ttft > 0).fill_null(False))
            .then(pl.lit("ok"))
            .otherwise(pl.lit("error")),
            "streamed": pl.lit(True),
            "vantage": pl.lit("client"),
        }
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()})


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    "multi-round-qa",
    "multi-round-qa summaries (LMCache, production-stack, LMBench)",
    (Shape.CSV, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "multi-round-qa writes no cached tokens, no queue and no replica; read the engines' "
        "request logs beside it for those"
    ),
)
