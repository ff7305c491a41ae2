"""LMDeploy's server log: a line when a request begins, and one when it is finished.

``session=7, input_tokens=12000, max_new_tokens=512, ...`` and ``session 7 finished, reason "stop",
input_tokens 12000, output_tokens 160``, both at level INFO and with milliseconds of local time; the
server's default level is WARNING, so most logs have neither. A session is the engine's: a new one
for each request, unless the client names it, and no conversation. Where a number comes again, an
end goes with the last beginning before it. Older versions say ``history_tokens`` before the input:
what is kept of an interactive session.

``Avg thr (in/out)`` lines are averages of ten seconds. It cannot tell: the first token, queue,
prefill and cached tokens, for those are only in the ``/metrics`` of the server.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_PREFIX = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - lmdeploy - \w+ - \S+:\d+ -(?: \[[^\]]*\])? "
_BEGIN = rf"{_PREFIX}session=(\d+), (?:history_tokens=(\d+), )?input_tokens=(\d+), max_new_tokens="
_END = (
    rf'{_PREFIX}session (\d+) finished,(?: [^"]*?,)? reason "(\w+)"'
    r"(?:, input_tokens (\d+), out\w+_tokens (\d+))?"
)
_SIGNS = ["session=", " finished,"]
_AVERAGES = "Avg thr (in/out):"

FIELDS = {
    "request_id": Field("session", "", mark("the engine's number")),
    "start": Field("time of the first line", mark("local time"), mark("milliseconds")),
    "input_tokens": Field("input_tokens", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field("history_tokens", "tokens", mark("kept of an interactive session")),
    "output_tokens": Field("output_tokens", "tokens", mark("LMDeploy's name")),
    "e2e_us": Field("time of the last line less that of the first", "ms", "", "derived"),
    "status": Field("reason", "", mark("LMDeploy's name")),
    "vantage": Field("", "", mark("the server's own log"), "assumed"),
}
_LOCAL = mark(
    "LMDeploy writes local time, taken as UTC unless a time zone is named; its log has no first "
    "token"
)


def _recognise(head: Head) -> str | None:
    lines = pl.Series("text", head.lines, dtype=pl.String)
    if lines.str.contains(_BEGIN).any() or lines.str.contains(_END).any():
        return tr("lines of LMDeploy sessions")
    if lines.str.contains(" - lmdeploy - ", literal=True).any():
        return tr("lines of LMDeploy's log, and none of a request so far")
    if lines.str.contains(_AVERAGES, literal=True).any():
        return tr("Avg thr (in/out) lines: averages of ten seconds, none of a single request")
    return None


def _convert(chunk: Raw) -> Batch:
    lines = chunk.frame.filter(pl.col("text").str.contains_any(_SIGNS))
    begin = pl.col("text").str.extract_groups(_BEGIN)
    end = pl.col("text").str.extract_groups(_END)

    def of(parts: pl.Expr, number: int) -> pl.Expr:
        return parts.struct.field(str(number))

    events = lines.select(
        LINE,
        pl.coalesce(of(begin, 2), of(end, 2)).alias("session"),
        of(begin, 1).str.replace(",", ".", literal=True).alias("begun"),
        of(begin, 3).alias("history"),
        of(begin, 4).alias("asked"),
        of(end, 1).str.replace(",", ".", literal=True).alias("ended"),
        of(end, 3).alias("reason"),
        of(end, 4).alias("input"),
        of(end, 5).alias("output"),
    ).drop_nulls("session")
    is_end = pl.col("ended").is_not_null()
    # An end goes with the line of its session before it, if that was a beginning.
    before = [pl.col(c).shift(1).over("session") for c in ("begun", "history", "asked")]
    rows = events.with_columns(
        *(pl.when(is_end).then(b).otherwise(b.meta.output_name()) for b in before),
        (is_end.shift(-1).over("session").fill_null(False) & ~is_end).alias("goes_on"),
    ).filter(~pl.col("goes_on"))
    raw = Raw(rows, chunk.options)
    begun, finished = raw.instant("begun"), raw.instant("ended")
    reason = raw.text("reason").str.to_lowercase()
    # What an interactive session said before is kept, and is not in its input.
    kept = pl.when(raw.count("history") > 0).then(raw.count("history"))
    said = pl.coalesce(raw.count("input"), raw.count("asked"))
    frame = raw.select(
        {
            "request_id": raw.text("session"),
            "start": begun,
            "input_tokens": said + kept.fill_null(0),
            "cached_tokens": kept,
            "output_tokens": raw.count("output"),
            "e2e_us": finished - begun,
            "status": pl.when(reason.is_in(["stop", "length", "tool_calls"]))
            .then(pl.lit("ok"))
            .when(reason.str.contains("abort|cancel"))
            .then(pl.lit("aborted"))
            .otherwise(pl.lit("error")),
            "vantage": pl.lit("server"),
        },
        reject=pl.when(raw.text("ended").is_null()).then(pl.lit("unfinished_request")),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_LOCAL),))


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan({}, _convert, whole=True)


READER = Reader(
    name="lmdeploy",
    title="LMDeploy server log (no TTFT)",
    shapes=(Shape.TEXT,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "LMDeploy logs single requests only with --log-level INFO, and never their first token: "
        "measure that at the client, and save /metrics for cached tokens"
    ),
)
