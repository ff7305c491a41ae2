"""LightLLM: the line its server logs when a request is finished.

``... X-Request-Id:... X-Session-Id:... start_time:2026-08-01 10:00:00 lightllm_req_id:8
first_token_cost:840.0ms total_cost_time:3240.0ms,out_token_counter:160 ... prompt_token_num:12000
prompt_cache_len:9000 ...``; other lines of the server stand between them and are passed over. The
clock is the server's, from the start of its handler, so queueing is inside the TTFT. The server
sees the first token of an unstreamed answer too. Prompt tokens include the cached ones.

``start_time`` is local time in whole seconds without a zone. A request without any token has the
largest float there is as ``first_token_cost``, which stands for none.

It cannot tell: queue and prefill apart, the model, requests that were broken off (they never
finish), and a session, unless the client sent the header ``X-Session-Id``.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_SIGN = "first_token_cost:"
#: A figure of a line, by its name; the last one counts, since what the client sent comes first.
_FIGURES = {
    "started": r".*start_time:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)",
    "number": r".*lightllm_req_id:(\S+)",
    "first_token_cost": r".*first_token_cost:(\S+?)ms",
    "total_cost_time": r".*total_cost_time:(\S+?)ms",
    "out_token_counter": r".*out_token_counter:(\S+)",
    "prompt_token_num": r".*prompt_token_num:(\S+)",
    "prompt_cache_len": r".*prompt_cache_len:(\S+)",
    "x_request_id": r"X-Request-Id:(\S*?) X-Session-Id:",
    "x_session_id": r"X-Session-Id:(\S*?) start_time:",
}
#: Figures that older versions do not write.
_NEW = ("prompt_cache_len",)
#: No wait lasts this long; the largest float, which is written for "no token", does.
_NEVER_MS = 1e15

FIELDS = {
    "request_id": Field(
        "X-Request-Id, lightllm_req_id", "", mark("the client's id, or the server's")
    ),
    "session_id": Field("X-Session-Id", "", mark("as the client sent it")),
    "start": Field("start_time", mark("local time"), mark("whole seconds: arrivals are coarse")),
    "input_tokens": Field("prompt_token_num", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field("prompt_cache_len", "tokens", mark("as the server says")),
    "output_tokens": Field("out_token_counter", "tokens", mark("the first token is counted")),
    "ttft_us": Field("first_token_cost", "ms", mark("from the handler's start to the first token")),
    "e2e_us": Field("total_cost_time", "ms", mark("from the handler's start to the last token")),
    "vantage": Field("", "", mark("the server's own log"), "assumed"),
}
_SECONDS = mark(
    "LightLLM writes start times in whole seconds of local time; they are taken as UTC unless a "
    "time zone is named"
)


def _recognise(head: Head) -> str | None:
    if any(_SIGN in line and "lightllm_req_id:" in line for line in head.lines):
        return tr("lines with lightllm_req_id and first_token_cost")
    return None


def _convert(chunk: Raw) -> Batch:
    ours = chunk.frame.filter(pl.col("text").str.contains(_SIGN, literal=True))
    raw = Raw(
        ours.select(
            LINE, *(pl.col("text").str.extract(p, 1).alias(name) for name, p in _FIGURES.items())
        ),
        chunk.options,
    )
    first_ms = raw.number("first_token_cost")
    frame = raw.select(
        {
            "request_id": pl.coalesce(raw.text("x_request_id"), raw.text("number")),
            "session_id": raw.text("x_session_id"),
            "start": raw.instant("started"),
            "input_tokens": raw.count("prompt_token_num"),
            "cached_tokens": raw.count("prompt_cache_len"),
            "output_tokens": raw.count("out_token_counter"),
            "ttft_us": pl.when(first_ms < _NEVER_MS).then((first_ms * 1000).round(0)),
            "e2e_us": raw.duration("total_cost_time", "ms"),
            "status": pl.lit("ok"),
            "vantage": pl.lit("server"),
        },
        reject=pl.when(
            pl.any_horizontal(
                pl.col(c).is_null() for c in _FIGURES if not c.startswith("x_") and c not in _NEW
            )
        ).then(pl.lit("torn_line")),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_SECONDS),))


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan({}, _convert)


READER = Reader(
    name="lightllm",
    title="LightLLM server log (lines of finished requests)",
    shapes=(Shape.TEXT,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "the LightLLM log does not part queue from prefill, and has a session only if the client "
        "sends the header X-Session-Id"
    ),
)
