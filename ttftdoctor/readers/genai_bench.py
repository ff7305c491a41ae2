"""genai-bench: the result of one scenario at one concurrency, with ``individual_request_metrics``.

One JSON document a file. Times are seconds unless ``_time_unit`` says ``ms``. A failed request has
nothing but its error code. A request that was not streamed has its end in place of its first
token, and a backend that never sees the first token writes one and the same small number for every
request, which is left to the diagnosis to name.

The clock is the client's. There are no stamps, ids or sessions: load at arrival, and which requests
belong together, cannot be told.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_LIST = "individual_request_metrics"
_TEXTS = (
    "ttft", "e2e_latency", "num_input_tokens", "num_output_tokens", "num_reasoning_tokens",
    "error_code", "error_message",
)  # fmt: skip
#: A first token this close to the end of an answer of several tokens is the answer itself.
_SAME_US = 1000


def _recognise(head: Head) -> str | None:
    outer = head.outer or {}
    if _LIST in outer and "aggregated_metrics" in outer:
        return tr("aggregated_metrics beside {list}", list=_LIST)
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    outer = head.outer or {}
    if not isinstance(outer.get(_LIST), list):
        raise InputError(
            "the file holds the averages of a benchmark, and no single request",
            where=head.path,
            why=f"{_LIST} is no list",
            help="read the file genai-bench wrote for one scenario and one concurrency",
        )
    unit = "ms" if outer.get("_time_unit") == "ms" else "s"

    def convert(raw: Raw) -> Batch:
        return _convert(raw, unit)

    return Plan(dict.fromkeys(_TEXTS, pl.String), convert, unwrap=_LIST)


def _convert(raw: Raw, unit: str) -> Batch:
    ttft, e2e = raw.duration("ttft", unit), raw.duration("e2e_latency", unit)
    output = raw.count("num_output_tokens")
    code = raw.text("error_code")
    kind = status_of(code)
    failed = (
        code.is_not_null()
        | raw.text("error_message").is_not_null()
        | (ttft.is_null() & e2e.is_null())
    )
    frame = raw.select(
        {
            "input_tokens": raw.count("num_input_tokens"),
            "output_tokens": output,
            "reasoning_tokens": raw.count("num_reasoning_tokens", strict=False),
            "ttft_us": ttft,
            "e2e_us": e2e,
            "status": pl.when(~failed)
            .then(pl.lit("ok"))
            .when(kind.is_in(["rate_limited", "aborted"]))
            .then(kind)
            .otherwise(pl.lit("error")),
            "streamed": pl.when((output > 1) & (ttft >= e2e - _SAME_US)).then(False),
            "vantage": pl.lit("client"),
        }
    )
    why = mark("as _time_unit says")
    if unit != "ms":
        why = mark("seconds where no _time_unit says otherwise")
    fields = {
        "input_tokens": Field("num_input_tokens", "tokens", mark("genai-bench's name")),
        "output_tokens": Field("num_output_tokens", "tokens", mark("genai-bench's name")),
        "reasoning_tokens": Field("num_reasoning_tokens", "tokens", mark("genai-bench's name")),
        "ttft_us": Field("ttft", unit, why),
        "e2e_us": Field("e2e_latency", unit, why),
        "status": Field(
            "error_code, error_message", "", mark("a failure has no figures"), "derived"
        ),
        "streamed": Field(
            "ttft, e2e_latency", "", mark("the end in place of the first token"), "inferred"
        ),
        "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
    }
    note = tr("the benchmark result has no start times: load at arrival cannot be told")
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()}, (note,))


READER = Reader(
    "genai-bench",
    "genai-bench results (individual_request_metrics)",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "a genai-bench result has no start times, no sessions and no cached tokens: log the "
        "requests at the server or a gateway for those"
    ),
)
