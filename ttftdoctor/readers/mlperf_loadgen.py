"""MLPerf LoadGen: the timeline ``mlperf_log_trace.json``; the other logs hold no single request.

Events of a Chrome trace. A ``Sample`` begins at the moment it was due, and its arguments say, in
nanoseconds from there, when it was issued and when it had ended. With token latencies switched on,
the first token is an event of its own: ``Token`` with the sample's number, or in the Server
scenario a counter ``Token_Latency`` at the moment the sample was due. So a sample that LoadGen
could not issue in time has that wait inside its TTFT, as MLPerf counts it.

``mlperf_log_detail.txt`` and ``_summary.txt`` hold averages and are refused, as is the accuracy
log, which has tokens but no times. There are no token counts, sessions or outcomes.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import not_streamed
from ttftdoctor.table import LINE, Field

_TEXTS = ("name", "ph", "ts", "id", "args")
_SAMPLE, _TOKEN, _COUNTER = "Sample", "Token", "Token_Latency"

FIELDS = {
    "request_id": Field("args.sample_seq", "", mark("LoadGen's number of the sample")),
    "start": Field(
        "ts", "us", mark("when the sample was due, from the start of the trace: no date")
    ),
    "ttft_us": Field(
        "Token, Token_Latency", "ns", mark("from when the sample was due to its first token")
    ),
    "e2e_us": Field("args.complete_ns", "ns", mark("from when the sample was due to its end")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}
_NOTE = mark(
    "the TTFT starts when a sample was due: a wait of LoadGen before it was issued is inside, as "
    "MLPerf counts it"
)


def _recognise(head: Head) -> str | None:
    if head.shape is Shape.TEXT:
        if any(line.lstrip().startswith(":::MLLOG") for line in head.lines):
            return tr("lines of :::MLLOG")
        summary = any(line.strip() == "MLPerf Results Summary" for line in head.lines)
        return tr("averages of a run") if summary else None
    if any({"seq_id", "qsl_idx", "data"} <= record.keys() for record in head.records):
        return tr("answers of an accuracy run")
    events = head.inner.get("traceEvents", ()) or (head.records if head.outer is None else ())
    for event in events:
        args = event.get("args")
        if event.get("name") == _SAMPLE and isinstance(args, dict) and "sample_seq" in args:
            return tr("trace events of samples")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    again = (
        "run again with LogSettings.enable_trace = True and TestSettings.use_token_"
        "latencies = True, and read mlperf_log_trace.json"
    )
    if head.shape is Shape.TEXT:
        raise InputError(
            "the log holds the averages of a LoadGen run, and no single request",
            where=head.path,
            why="it is a list of results",
            help=again,
        )
    if any("qsl_idx" in record for record in head.records):
        raise InputError(
            "the log holds the answers of an accuracy run, and no times",
            where=head.path,
            why="there are seq_id and qsl_idx, but no events",
            help=again,
        )
    return Plan(
        dict.fromkeys(_TEXTS, pl.String),
        _convert,
        whole=True,
        unwrap="traceEvents" if "traceEvents" in head.inner else None,
    )


def _counted(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Events with a second key: which one of those that share the first."""
    return frame.with_columns(pl.int_range(pl.len()).over(key).alias("nth"))


def _convert(raw: Raw) -> Batch:
    args = [
        raw.text("args", f"$.{name}").alias(name)
        for name in ("sample_seq", "complete_ns", "issue_delay", "issue_to_done")
    ]
    events = raw.frame.with_columns(
        raw.text("ts").alias("ts"), raw.text("name").alias("name"), *args
    )
    samples = events.filter(
        (pl.col("name") == _SAMPLE) & (pl.col("ph") == "b").fill_null(True)
    ).drop("issue_delay", "issue_to_done")
    tokens = (
        events.filter((pl.col("name") == _TOKEN) & pl.col("complete_ns").is_not_null())
        .drop_nulls("sample_seq")
        .unique("sample_seq", keep="first", maintain_order=True)
        .select("sample_seq", pl.col("complete_ns").alias("token_ns"))
    )
    counters = _counted(events.filter(pl.col("name") == _COUNTER).drop_nulls("ts"), "ts").select(
        "ts", "nth", "issue_delay", "issue_to_done"
    )
    joined = (
        _counted(samples, "ts")
        .join(tokens, on="sample_seq", how="left", maintain_order="left")
        .join(counters, on=["ts", "nth"], how="left", maintain_order="left")
    )
    rows = Raw(joined, raw.options)
    first = pl.coalesce(
        rows.duration("token_ns", "ns"),
        rows.duration("issue_delay", "ns") + rows.duration("issue_to_done", "ns"),
    )
    done = rows.duration("complete_ns", "ns")
    frame = rows.select(
        {
            "request_id": rows.text("sample_seq"),
            "start": rows.instant("ts", "us"),
            "ttft_us": first,
            "e2e_us": done,
            "vantage": pl.lit("client"),
        },
        set_aside=not_streamed(first, done),
    )
    fields = {k: v for k, v in FIELDS.items() if frame[k].count()}
    return Batch(frame.sort(LINE, maintain_order=True), fields, (tr(_NOTE),))


READER = Reader(
    "mlperf-loadgen",
    "MLPerf LoadGen timelines (mlperf_log_trace.json)",
    (Shape.JSON, Shape.TEXT),
    _recognise,
    _plan,
    lacks=mark(
        "LoadGen writes no token counts and no sessions, and single requests only with "
        "LogSettings.enable_trace, their first tokens with TestSettings.use_token_latencies"
    ),
)
