"""What SGLang says of a finished request, alike in its text log, JSON log and metrics file.

The clock is the server's. Prompt tokens include the cached ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ttftdoctor.language import mark
from ttftdoctor.readers import Raw
from ttftdoctor.spans import SAME_US
from ttftdoctor.table import Field

#: Figures of ``meta_info``.
FIGURES = (
    "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "e2e_latency",
    "queue_time", "first_token_latency", "request_received_ts", "request_finished_ts",
    "forward_entry_time", "prefill_finished_time", "prefill_finished_ts", "dp_rank",
)  # fmt: skip
SESSIONS = ("session_id", "conversation_id", "routing_key")

CLOCK = mark(
    "the TTFT is the server's: it ends when the first output leaves the scheduler, before the "
    "network"
)


def named(source: str, unit: str = "") -> Field:
    """A field that is read under the engine's own name of it."""
    return Field(source, unit, mark("SGLang's name"))


#: Where columns come from, but for what each form of the log has in its own way.
FIELDS = {
    "request_id": named("rid"),
    "session_id": named(", ".join(SESSIONS)),
    "replica": named("dp_rank"),
    "input_tokens": named("prompt_tokens"),
    "cached_tokens": named("cached_tokens"),
    "output_tokens": named("completion_tokens"),
    "reasoning_tokens": named("reasoning_tokens"),
    "e2e_us": named("e2e_latency", "s"),
    "queue_us": named("queue_time", "s"),
    "streamed": named("stream"),
    "status": named("finish_reason"),
}
PREFILL = Field(
    "prefill_finished_time - forward_entry_time", "s", mark("end of prefill less entry"), "derived"
)
VANTAGE = Field("", "", mark("the server's own log"), "assumed")


def counts(raw: Raw) -> dict[str, pl.Expr]:
    """The replica and the tokens of finished requests, from the columns of :data:`FIGURES`."""
    return {
        "replica": raw.text("dp_rank"),
        "input_tokens": raw.count("prompt_tokens"),
        "cached_tokens": raw.count("cached_tokens"),
        "output_tokens": raw.count("completion_tokens"),
        "reasoning_tokens": raw.count("reasoning_tokens"),
    }


@dataclass(frozen=True)
class Times:
    """When a request came and what of it took how long, as expressions (us; start since 1970).

    ``streamed`` is null where an answer was not streamed and its first token is known all the
    same: the server knows it, and it is no "false" then.
    """

    start: pl.Expr
    ttft: pl.Expr
    e2e: pl.Expr
    prefill: pl.Expr
    streamed: pl.Expr


def times(raw: Raw, *, stamp: str, stream: pl.Expr) -> Times:
    """The times of finished requests, from the columns of :data:`FIGURES`.

    Parameters
    ----------
    stamp
        The column that tells when the row was written, for builds that log no arrival.
    stream
        Whether the client asked for a stream.
    """
    received = raw.instant("request_received_ts", "s")
    e2e = raw.duration("e2e_latency", "s")
    ended = pl.coalesce(raw.instant("request_finished_ts", "s"), raw.instant(stamp))
    prefilled = pl.coalesce(
        raw.instant(n, "s") for n in ("prefill_finished_time", "prefill_finished_ts")
    )
    prefill = prefilled - raw.instant("forward_entry_time", "s")
    logged = raw.duration("first_token_latency", "s")
    # Builds that know no better give the end of an unstreamed answer as its first token.
    alike = (logged >= e2e - SAME_US).fill_null(False)
    whole = ~stream.fill_null(raw.count("completion_tokens") <= 1) & alike
    first = pl.coalesce(pl.when(~whole).then(logged), prefilled - received)
    return Times(
        start=pl.coalesce(received, ended - e2e),
        ttft=pl.coalesce(first, logged),
        e2e=e2e,
        prefill=pl.when(prefill >= 0).then(prefill),
        streamed=pl.when(stream | first.is_null()).then(
            pl.when(stream.is_null() & whole).then(False).otherwise(stream)
        ),
    )
