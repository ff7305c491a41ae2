"""Public traces of arrivals and lengths: Azure, BurstGPT, Vidur/Sarathi and Splitwise.

Nobody measured a first token in them, and nothing says what prompts share: they tell load and
lengths, and serve to be replayed. What the columns of each mean:

* Azure LLM 2023 and 2024, LMM 2025: ``TIMESTAMP`` without a zone, ``ContextTokens``,
  ``GeneratedTokens``; the multimodal one also counts images.
* BurstGPT: ``Timestamp`` in seconds from the first midnight, tokens, in newer files a ``Session
  ID`` (of conversations only) and ``Elapsed time``, which is that of the whole answer. A request
  without answer tokens failed.
* Vidur, Sarathi: ``arrived_at`` in seconds, ``num_prefill_tokens``, ``num_decode_tokens``.
* Splitwise: ``arrival_timestamp`` in seconds, ``prompt_size``, ``token_size``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field


@dataclass(frozen=True)
class _Dialect:
    """The columns of one trace; ``unit`` of its start is None where it is a date."""

    name: str
    start: str
    unit: str | None
    input: str
    output: str
    texts: dict[str, str] = field(default_factory=dict)
    e2e: str | None = None
    empty_failed: bool = False


_DIALECTS = (
    _Dialect("Azure", "TIMESTAMP", None, "ContextTokens", "GeneratedTokens"),
    _Dialect(
        "BurstGPT", "Timestamp", "s", "Request tokens", "Response tokens",
        {"session_id": "Session ID", "model": "Model", "route": "Log Type"}, "Elapsed time", True,
    ),
    _Dialect("Vidur", "arrived_at", "s", "num_prefill_tokens", "num_decode_tokens"),
    _Dialect(
        "Splitwise", "arrival_timestamp", "s", "prompt_size", "token_size",
        {"request_id": "request_id"},
    ),
)  # fmt: skip


def _dialect(head: Head) -> _Dialect | None:
    have = set(head.columns)
    return next((d for d in _DIALECTS if {d.start, d.input, d.output} <= have), None)


def _recognise(head: Head) -> str | None:
    dialect = _dialect(head)
    if dialect is None or any("ttft" in name.lower() for name in head.columns):
        return None
    return tr(
        "{start}, {input} and {output} ({name})",
        start=dialect.start, input=dialect.input, output=dialect.output, name=dialect.name,
    )  # fmt: skip


def _convert(raw: Raw, dialect: _Dialect) -> Batch:
    output = raw.count(dialect.output)
    start = raw.instant(dialect.start, dialect.unit)
    columns = {
        **{name: raw.text(source) for name, source in dialect.texts.items()},
        "start": start,
        "input_tokens": raw.count(dialect.input),
        "output_tokens": output,
    }
    dated = mark("from the start of the trace")
    if dialect.unit is None:
        dated = mark("a date without a zone")
    named = tr("{name}'s name", name=dialect.name)
    fields = {
        **{n: Field(source, "", named) for n, source in dialect.texts.items()},
        "start": Field(dialect.start, dialect.unit or "", dated),
        "input_tokens": Field(dialect.input, "tokens", named),
        "output_tokens": Field(dialect.output, "tokens", named),
    }
    if dialect.e2e is not None:
        columns["e2e_us"] = raw.duration(dialect.e2e, "s")
        fields["e2e_us"] = Field(dialect.e2e, "s", mark("until the whole answer was there"))
    if dialect.empty_failed:
        columns["status"] = pl.when(output == 0).then(pl.lit("error")).otherwise(pl.lit("ok"))
        fields["status"] = Field(dialect.output, "", mark("a failure has no answer"), "derived")
    frame = raw.select(columns)
    note = tr(
        "{name}: the trace tells arrivals and lengths, and nothing of first tokens",
        name=dialect.name,
    )
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()}, (note,))


def _plan(head: Head, options: Options) -> Plan:
    del options
    dialect = _dialect(head) or _DIALECTS[0]
    names = (dialect.start, dialect.input, dialect.output, *dialect.texts.values())
    wanted = (*names, dialect.e2e) if dialect.e2e is not None else names
    return Plan(dict.fromkeys(wanted, pl.String), partial(_convert, dialect=dialect))


READER = Reader(
    "length-traces",
    "Traces of arrivals and lengths (Azure, BurstGPT, Vidur, Splitwise; no TTFT)",
    (Shape.CSV, Shape.JSON, Shape.PARQUET),
    _recognise,
    _plan,
    lacks=mark(
        "these traces hold no first tokens and nothing of the prompts: replay one against your "
        "server (aiperf --custom-dataset-type, vllm bench serve --dataset-name) and read that log"
    ),
)
