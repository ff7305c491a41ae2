"""vLLM's multi-turn benchmark: the array of ``--stats-json-output``, or its table as CSV.

``start_time_ms`` is a monotonic clock: no dates, and one host only. ``input_num_turns`` counts
messages (1, 3, 5, ...). Where the first chunk held several tokens, the tool takes the time of the
others off the TTFT and stops at 0.1 ms: such a row was clamped, not measured. Where nothing was
streamed, the TTFT is the latency; -1 stands for an unknown one. The cached per cent is the share of
history in the prompt, a bound and no measurement. Tokens are the client's count of
the texts, without the chat template.

SGLang's ``bench_multiturn.py`` writes averages of each round only, and is refused.

The clock is the client's. Failed requests are not in the file, nor the rest of their conversation,
nor what a warm-up step sent.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.reading import batch_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "ttft_ms", "latency_ms", "start_time_ms", "input_num_turns", "input_num_tokens",
    "output_num_tokens", "conversation_id",
)  # fmt: skip
_NEEDED = {"ttft_ms", "latency_ms", "input_num_turns", "conversation_id"}
_CLAMP_US = 100
_UNKNOWN_US = -1000

FIELDS = {
    "session_id": Field("conversation_id", "", mark("a conversation of the data set, sent once")),
    "turn": Field("(input_num_turns + 1) / 2", "", mark("messages come in pairs"), "derived"),
    "start": Field("start_time_ms", "ms", mark("a clock of unknown origin: no date")),
    "input_tokens": Field("input_num_tokens", "tokens", mark("counted without the chat template")),
    "output_tokens": Field("output_num_tokens", "tokens", mark("counted by the client")),
    "ttft_us": Field(
        "ttft_ms", "ms", mark("from sending to the first token, as the tool corrects it")
    ),
    "e2e_us": Field("latency_ms", "ms", mark("from sending to the end")),
    "streamed": Field(
        "ttft_ms, latency_ms", "", mark("the same where nothing was streamed"), "inferred"
    ),
    "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
}
_NOTE = mark(
    "approx_cached_percent is the share of history in a prompt, not what the server reused; it is "
    "not used"
)


def _recognise(head: Head) -> str | None:
    if set(head.columns) >= _NEEDED:
        return tr("ttft_ms and latency_ms beside input_num_turns")
    return tr("averages of rounds") if _is_average(head) else None


def _is_average(head: Head) -> bool:
    summaries = [r.get("summary") for r in head.records]
    return any(isinstance(s, dict) and "average_ttft" in s for s in summaries)


def _convert(raw: Raw) -> Batch:
    logged, e2e = raw.duration("ttft_ms", "ms"), raw.duration("latency_ms", "ms")
    ttft = pl.when(logged != _UNKNOWN_US).then(logged)
    output = raw.count("output_num_tokens")
    # Of several tokens, the first does not come with the last.
    whole = ((ttft == e2e) & (output > 1)).fill_null(False)
    frame = raw.select(
        {
            "session_id": raw.text("conversation_id"),
            "turn": (raw.count("input_num_turns", strict=False) + 1) // 2,
            "start": raw.instant("start_time_ms", "ms"),
            "input_tokens": raw.count("input_num_tokens"),
            "output_tokens": output,
            "ttft_us": ttft,
            "e2e_us": pl.when(e2e != _UNKNOWN_US).then(e2e),
            "streamed": ~whole,
            "vantage": pl.lit("client"),
        },
        set_aside=pl.when(ttft == _CLAMP_US).then(pl.lit("ttft_clamped")),
    )
    return batch_of(frame, FIELDS, (tr(_NOTE),), raw=raw)


def _plan(head: Head, options: Options) -> Plan:
    del options
    if _is_average(head):
        raise InputError(
            "the file holds the averages of rounds, and no single request",
            where=head.path,
            why="each line is a summary with average_ttft",
            help="start SGLang with --log-requests --log-requests-format json and read its log",
        )
    return Plan(dict.fromkeys(_TEXTS, pl.String), _convert)


READER = Reader(
    "vllm-multiturn",
    "vLLM multi-turn benchmark statistics",
    (Shape.JSON, Shape.CSV, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "the multi-turn benchmark leaves out failed requests and knows no cached tokens: start "
        "vLLM with --enable-prompt-tokens-details and log the answers' usage for those"
    ),
)
