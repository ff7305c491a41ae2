"""LLMPerf: ``*_individual_responses.json``, an array with one object a request.

Seconds throughout. A failed request has zeros for its times (most of the rows in some public
files), and its error code is an HTTP status, -1, or a complaint of the harness: -100, too few
tokens, is about the length of an answer whose times are sound, and stays. ``inter_token_latency_s``
has the first token in it. Token counts come from one fixed tokenizer, whatever the model.

The clock is the client's. There are no stamps, ids or sessions, and rows stand in the order in
which requests ended.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.spans import failure, not_streamed
from ttftdoctor.table import Field

_TEXTS = (
    "error_code", "error_msg", "ttft_s", "end_to_end_latency_s", "number_input_tokens",
    "number_output_tokens",
)  # fmt: skip
#: The harness's own complaint about the number of tokens of an answer that did come.
_TOO_FEW_TOKENS = "-100"

FIELDS = {
    "input_tokens": Field("number_input_tokens", "tokens", mark("counted by one fixed tokenizer")),
    "output_tokens": Field(
        "number_output_tokens", "tokens", mark("counted by one fixed tokenizer")
    ),
    "ttft_us": Field("ttft_s", "s", mark("from sending to the first content")),
    "e2e_us": Field("end_to_end_latency_s", "s", mark("from sending to the end")),
    "status": Field("error_code, ttft_s", "", mark("a failure has zeros for its times"), "derived"),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}
_NOTE = mark("the benchmark result has no start times: load at arrival cannot be told")


def _recognise(head: Head) -> str | None:
    rows = [r for r in head.records if "ttft_s" in r and "end_to_end_latency_s" in r]
    if rows and 2 * len(rows) >= len(head.records):
        return tr("ttft_s and end_to_end_latency_s")
    return tr("averages of a run") if _is_average(head) else None


def _is_average(head: Head) -> bool:
    return any(key.startswith("results_ttft_s") for key in head.outer or ())


def _convert(raw: Raw) -> Batch:
    ttft, e2e = raw.duration("ttft_s", "s"), raw.duration("end_to_end_latency_s", "s")
    code = raw.text("error_code").str.replace(r"\.0$", "")
    sound = (ttft > 0) & (e2e > 0)
    failed = ~sound.fill_null(False) | (code.is_not_null() & (code != _TOO_FEW_TOKENS))
    output = raw.count("number_output_tokens")
    frame = raw.select(
        {
            "input_tokens": raw.count("number_input_tokens"),
            "output_tokens": output,
            "ttft_us": ttft,
            "e2e_us": e2e,
            "status": pl.when(failed).then(failure(code)).otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        },
        set_aside=pl.when(output > 1).then(not_streamed(ttft, e2e)),
    )
    return batch_of(frame, FIELDS, (tr(_NOTE),), raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    if _is_average(head):
        raise InputError(
            "the file holds the averages of a run, and no single request",
            where=head.path,
            why="there are keys such as results_ttft_s_mean",
            help="read the file of the same run that ends in _individual_responses.json",
        )
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    "llmperf",
    "LLMPerf individual responses",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "an LLMPerf result has no start times, no sessions and no cached tokens, and no option to "
        "add them: log the requests at the server or a gateway"
    ),
)
