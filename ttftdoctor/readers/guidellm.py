"""GuideLLM: the ``benchmarks.json`` report, in its three layouts.

* 0.1: ``benchmarks[].benchmarks[].results``; ``first_token_time`` is a duration.
* 0.2 and 0.3: ``benchmarks[].requests`` by outcome; ``first_token_time`` is a stamp, the TTFT has a
  field of its own in ms, beside a latency in seconds.
* 0.4 and later: the same lists, with ``info.timings``, conversations and cached tokens.

The clock is the client's. A sweep holds several benchmarks, each with a load of its own. Requests
of the warm-up and cool-down stay in the lists although the report's own figures leave them out:
they count as load here, but their TTFT is set aside. What was cut off at the end of a run
(``incomplete``) repeats the tokens that were asked for, not those that came, and is not used.
``queued`` is the load generator's own queue, before the clock starts, and may lie before the moment
a request was due. Prompts, answers and request arguments are never read. The CSV of a report holds
averages and its YAML is not read: both are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_LISTS = ("successful", "errored", "incomplete")
#: Field of a request in the lists of 0.2 and later; the first place that has it counts.
_LATER: dict[str, tuple[str, ...]] = {
    "request_id": ("request_id",),
    "session": ("info.conversation_id",),
    "turn": ("info.turn_index",),
    "began": ("request_start_time", "info.timings.request_start", "start_time"),
    "ended": ("request_end_time", "info.timings.request_end", "end_time"),
    "input": ("prompt_tokens", "input_metrics.text_tokens"),
    "cached": ("cached_tokens", "input_metrics.cached_tokens"),
    "output": ("output_tokens", "output_metrics.text_tokens"),
    "ttft_ms": ("time_to_first_token_ms",),
    "latency_s": ("request_latency",),
    "told": ("info.status",),
    "error": ("error", "info.error"),
}
_FIRST: dict[str, tuple[str, ...]] = {
    "request_id": ("request.id",),
    "began": ("start_time",),
    "ended": ("end_time",),
    "input": ("prompt_token_count", "request.prompt_token_count"),
    "output": ("output_token_count",),
    "ttft_s": ("first_token_time",),
    "error": ("error", "message"),
}
#: Where a benchmark names its model.
_MODEL = ("config.backend.model", "worker.backend_model", "args.model")
_ROW: dict[str, Any] = {
    "odd": pl.Boolean,
    "run": pl.Int64,
    "model": pl.String,
    "window_start": pl.Int64,
    "window_end": pl.Int64,
    "outcome": pl.String,
    **dict.fromkeys((*_LATER, "ttft_s"), pl.String),
}
_SAME_US = 1000

FIELDS = {
    "request_id": Field("request_id", "", mark("GuideLLM's name")),
    "session_id": Field("info.conversation_id", "", mark("GuideLLM's name")),
    "turn": Field("info.turn_index + 1", "", mark("counted from 0"), "derived"),
    "start": Field("request_start_time", "s", mark("when the request was sent")),
    "model": Field("model", "", mark("one model a report")),
    "input_tokens": Field("prompt_tokens", "tokens", mark("the server's count where it sent one")),
    "cached_tokens": Field("cached_tokens", "tokens", mark("as the server reported")),
    "output_tokens": Field("output_tokens", "tokens", mark("the server's count where it sent one")),
    "ttft_us": Field("time_to_first_token_ms", "ms", mark("from sending to the first token")),
    "e2e_us": Field("request_latency", "s", mark("from sending to the end")),
    "status": Field("successful, errored, incomplete", "", mark("the list the request is in")),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}
_OLD = {
    "request_id": Field("request.id", "", mark("GuideLLM's name")),
    "start": Field("start_time", "s", mark("when the request was sent")),
    "input_tokens": Field("prompt_token_count", "tokens", mark("counted by the client")),
    "output_tokens": Field("output_token_count", "tokens", mark("counted by the client")),
    "ttft_us": Field("first_token_time", "s", mark("a duration in this layout")),
    "e2e_us": Field("end_time - start_time", "s", mark("difference of two stamps"), "derived"),
    "status": Field("results, errors", "", mark("the list the request is in")),
}


def _other(head: Head) -> str | None:
    """The form of a report that is no JSON."""
    if head.shape is Shape.CSV:
        first = head.columns[:4]
        table = first[0] == "Run Info" or first == ("Type", "Run Id", "Id", "Name")
        return "CSV" if table else None
    if head.shape is not Shape.TEXT or not head.lines:
        return None
    if head.lines[0].startswith("Run Info,Run Info,"):
        return "CSV"
    kinds = ("type_: generative_benchmark", "type_: generative_request_stats")
    found = any(line.lstrip(" -").startswith(kinds) for line in head.lines)
    return "YAML" if found else None


def _recognise(head: Head) -> str | None:
    if (form := _other(head)) is not None:
        return tr("a report as {form}", form=form)
    for benchmark in head.inner.get("benchmarks", ()):
        if isinstance(benchmark.get("benchmarks"), list):
            return tr("benchmarks inside benchmarks, with results")
        requests = benchmark.get("requests")
        if isinstance(requests, dict) and "successful" in requests and "incomplete" in requests:
            return tr("benchmarks with successful and incomplete requests")
        if str(benchmark.get("type_", "")).startswith("generative_benchmark"):
            return tr("benchmarks of type generative_benchmark")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    if (form := _other(head)) is not None:
        raise InputError(
            "a GuideLLM report is read as JSON only",
            where=head.path,
            why=f"this one is {form}",
            help="run guidellm again with --output-path benchmarks.json",
        )
    benchmarks = head.inner.get("benchmarks", ())
    old = any(isinstance(b.get("benchmarks"), list) for b in benchmarks)
    if not old and not any("requests" in b for b in benchmarks):
        raise InputError(
            "the report holds the averages of benchmarks, and no single request",
            where=head.path,
            why="there are no benchmarks with requests in it",
            help="run guidellm again with --output-path benchmarks.json",
        )
    outer = head.outer or {}

    def convert(raw: Raw) -> Batch:
        return _convert(Raw(_requests(outer, old=old), raw.options), old=old)

    # Requests lie deeper than records do: they are taken from the document itself.
    return Plan({"type_": pl.String}, convert, whole=True, unwrap="benchmarks")


def _at(value: Any, path: str) -> Any:
    """A member of a member of a value; None where there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _cell(element: Any, paths: tuple[str, ...]) -> str | None:
    """A member as the text a raw field would have; of several, the first that is there."""
    value = next((v for path in paths if (v := _at(element, path)) is not None), None)
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _runs(outer: Mapping[str, Any], *, old: bool) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Each benchmark, what tells its model, and its lists of requests by outcome."""
    for benchmark in outer["benchmarks"]:
        if not old:
            yield benchmark, benchmark, {n: _at(benchmark, f"requests.{n}") for n in _LISTS}
            continue
        inner = _at(benchmark, "benchmarks")
        for run in inner if isinstance(inner, list) else ():
            lists = {"successful": _at(run, "results"), "errored": _at(run, "errors")}
            yield run, benchmark, lists


def _requests(outer: Mapping[str, Any], *, old: bool) -> pl.DataFrame:
    """One row a request, numbered through, with what is read of it as text."""
    paths = _FIRST if old else _LATER
    parts = [pl.DataFrame(schema=_ROW)]
    for number, (run, told, lists) in enumerate(_runs(outer, old=old)):
        named = (*(_at(told, path) for path in _MODEL), _at(outer, "args.model"))
        told_of = [_at(run, name) for name in ("warmup_duration", "cooldown_duration")]
        # Newer reports that do not say are about their window all the same.
        trimmed = any(told_of) or (told_of == [None, None] and _at(outer, "metadata") is not None)
        same = {
            "run": number,
            "model": next((name for name in named if isinstance(name, str)), None),
            "window_start": _us(_at(run, "start_time")) if trimmed else None,
            "window_end": _us(_at(run, "end_time")) if trimmed else None,
        }
        for outcome, elements in lists.items():
            if not isinstance(elements, list):
                continue
            cells = {name: [_cell(e, where) for e in elements] for name, where in paths.items()}
            odd = [not isinstance(element, Mapping) for element in elements]
            part = pl.DataFrame({"odd": odd, **cells}, {k: _ROW[k] for k in ("odd", *cells)})
            about = {**same, "outcome": outcome}
            parts.append(part.with_columns(pl.lit(v, _ROW[k]).alias(k) for k, v in about.items()))
    rows = pl.concat(parts, how="diagonal")
    return rows.with_columns(pl.int_range(1, pl.len() + 1).alias(LINE))


def _us(value: Any) -> int | None:
    known = isinstance(value, int | float) and abs(value) < 1e12
    return round(value * 1e6) if known else None


def _convert(rows: Raw, *, old: bool) -> Batch:
    began, ended = rows.instant("began", "s"), rows.instant("ended", "s")
    latency = pl.coalesce(rows.duration("latency_s", "s"), ended - began)
    ttft = pl.coalesce(rows.duration("ttft_ms", "ms"), rows.duration("ttft_s", "s"))
    output = rows.count("output")
    cause = status_of(rows.text("error"))
    named = pl.when(cause == "rate_limited").then(cause).otherwise(pl.lit("error"))
    cut = status_of(rows.text("told")) == "aborted"
    outside = (ended < pl.col("window_start")) | (ended > pl.col("window_end"))
    frame = rows.select(
        {
            "request_id": rows.text("request_id"),
            "session_id": rows.text("session"),
            "turn": rows.count("turn", strict=False) + 1,
            "start": began,
            "model": rows.text("model"),
            "input_tokens": rows.count("input"),
            "cached_tokens": rows.count("cached", strict=False),
            "output_tokens": output,
            "ttft_us": ttft,
            "e2e_us": latency,
            "status": pl.when((pl.col("outcome") == "incomplete") | cut)
            .then(pl.lit("aborted"))
            .when(pl.col("outcome") == "errored")
            .then(named)
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        reject=pl.when("odd").then(pl.lit("not_an_object")),
        # An answer that came in one piece has its end for a first token.
        set_aside=pl.when((ttft >= latency - _SAME_US) & (output > 1))
        .then(pl.lit("not_streamed"))
        .when(outside)
        .then(pl.lit("outside_measured_window")),
    )
    fields = {**FIELDS, **_OLD} if old else FIELDS
    notes = []
    runs = rows.frame["run"].n_unique()
    if runs > 1:
        notes.append(
            tr(
                "the report holds {n} benchmarks, each with a load of its own; all are read as one "
                "log",
                n=runs,
            )
        )
    left = int((frame["ttft_set_aside"] == "outside_measured_window").sum())
    if left:
        notes.append(
            tr(
                "{n} of {all} requests ended in the warm-up or cool-down: they count as load, but "
                "their first tokens do not, as in GuideLLM's own figures",
                n=left, all=frame.height,
            )
        )  # fmt: skip
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()}, tuple(notes))


READER = Reader(
    "guidellm",
    "GuideLLM benchmark reports",
    (Shape.JSON, Shape.CSV, Shape.TEXT),
    _recognise,
    _plan,
    lacks=mark(
        "GuideLLM knows no queue of the server; from 0.4 on it writes cached tokens if the server "
        "reports them (vLLM --enable-prompt-tokens-details), and with sampled requests the report "
        "lists only some"
    ),
)
