"""kv-cache-tester: the CSV results of its trace replay, its cache-rate test and its single prompts.

Three headers, one a test:

* trace replay: ``user_id``, ``request_idx`` (from 0), ``trace_id``, stamps in epoch seconds;
  ``cache_hit_blocks`` are the client's own model of a cache.
* cache rate: ``phase_id``, ``context_size``, ``concurrency_level``; ``cached_tokens`` is what the
  test was set up to repeat.
* single prompts: ``prompt_type`` says which prompts were sent before; no stamps at all.

None of these counts comes from the server, so none is read as cached tokens. A failed request of
the replay has zeros for its times and often no message; one that claims success without a first
token has failed as well. Rows stand in the order in which requests ended. The clock is the
client's; a wait before sending (``dispatch_delay``) is not in the TTFT. The columns with a stamp
for each token are never read.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_REPLAY, _RATE, _SINGLE = "trace replay", "cache-rate test", "single prompts"
#: What only the header of each test has.
_HEADERS = {
    _REPLAY: {"cache_hit_blocks", "request_idx", "ttft", "ttlt", "request_start_time"},
    _RATE: {"phase_id", "context_size", "ttft", "ttlt", "launch_time"},
    _SINGLE: {"prompt_type", "context_size", "iteration", "ttft", "total_time"},
}
#: Canonical column to raw field, by test.
_NAMES = {
    _REPLAY: {
        "input_tokens": "input_tokens", "output_tokens": "output_tokens_actual",
        "start": "request_start_time", "ttft_us": "ttft", "e2e_us": "ttlt",
    },
    _RATE: {
        "request_id": "request_id", "input_tokens": "context_size",
        "output_tokens": "output_tokens", "start": "launch_time", "ttft_us": "ttft",
        "e2e_us": "ttlt",
    },
    _SINGLE: {
        "input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "ttft_us": "ttft",
        "e2e_us": "total_time",
    },
}  # fmt: skip
_WHY = {
    "request_id": ("", mark("kv-cache-tester's name")),
    "input_tokens": ("tokens", mark("as the client made the prompt")),
    "output_tokens": ("tokens", mark("as received, which may be far from what was asked for")),
    "start": ("s", mark("when the request was sent")),
    "ttft_us": ("s", mark("from sending to the first content")),
    "e2e_us": ("s", mark("from sending to the last content")),
}
_EVIDENCE = {
    _REPLAY: mark("the columns of the trace replay"),
    _RATE: mark("the columns of the cache-rate test"),
    _SINGLE: mark("the columns of the single prompts"),
}
_NOTES = {
    _REPLAY: mark(
        "cache_hit_blocks are the client's own model of a cache, not what the server reused; "
        "they are not used"
    ),
    _RATE: mark(
        "cached_tokens are what the test was set up to repeat, not what the server reused; they "
        "are not used"
    ),
    _SINGLE: mark(
        "prompt_type says what was sent before, not what the server reused, and there are no "
        "start times"
    ),
}


def _test(head: Head) -> str | None:
    return next((t for t, needed in _HEADERS.items() if needed <= set(head.columns)), None)


def _recognise(head: Head) -> str | None:
    test = _test(head)
    return None if test is None else tr(_EVIDENCE[test])


def _convert(raw: Raw, test: str) -> Batch:
    columns: dict[str, pl.Expr] = {"vantage": pl.lit("client")}
    fields = {"vantage": Field("", "", mark("the load generator's own clock"), "assumed")}
    for name, source in _NAMES[test].items():
        if name == "request_id":
            columns[name] = raw.text(source)
        elif name == "start":
            columns[name] = raw.instant(source, "s")
        elif name.endswith("_us"):
            columns[name] = raw.duration(source, "s")
        else:
            columns[name] = raw.count(source)
        unit, why = _WHY[name]
        fields[name] = Field(source, unit, why)
    answered = (columns["ttft_us"] > 0).fill_null(False)
    error = raw.text("error_message")
    kind = status_of(error)
    columns["status"] = (
        pl.when(raw.boolean("success").fill_null(True) & answered & error.is_null())
        .then(pl.lit("ok"))
        .when(kind.is_in(["rate_limited", "aborted"]))
        .then(kind)
        .otherwise(pl.lit("error"))
    )
    fields["status"] = Field(
        "success, ttft, error_message", "", mark("a failure has zeros for its times"), "derived"
    )
    if test == _REPLAY:
        columns["session_id"] = pl.concat_str(
            [raw.text("user_id"), raw.text("trace_id")], separator="/"
        )
        columns["turn"] = raw.count("request_idx", strict=False) + 1
        columns["streamed"] = raw.text("request_type").str.to_lowercase() == "streaming"
        fields["session_id"] = Field(
            "user_id, trace_id", "", mark("a user replays traces one by one")
        )
        fields["turn"] = Field("request_idx + 1", "", mark("counted from 0"), "derived")
        fields["streamed"] = Field("request_type", "", mark("kv-cache-tester's name"))
    frame = raw.select(columns)
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()}, (tr(_NOTES[test]),))


def _plan(head: Head, options: Options) -> Plan:
    del options
    test = _test(head) or _REPLAY
    names = (
        *_NAMES[test].values(), "user_id", "trace_id", "request_idx", "request_type", "success",
        "error_message",
    )  # fmt: skip
    return Plan(dict.fromkeys(names, pl.String), partial(_convert, test=test))


READER = Reader(
    "kv-cache-tester",
    "kv-cache-tester results (trace replay, cache rate, single prompts)",
    (Shape.CSV, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "kv-cache-tester does not know what the server reused: its cache columns are a model or a "
        "setting; read the server's log beside it, or its /metrics"
    ),
)
