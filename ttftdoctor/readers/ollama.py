"""Ollama: the final objects of ``/api/chat`` and ``/api/generate``, kept by a client.

Whole NDJSON streams are fine too: only objects with ``"done": true`` carry the figures. The
clock is the server's, from the start of its handler, so loading the model is inside the TTFT and
has a column of its own. A figure of zero is left out by Ollama, so an absent one stays unknown.

It cannot tell: cached tokens (a large count with a tiny ``prompt_eval_duration`` hints at them),
the conversation, and how the wait that is neither loading nor prefill came about.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import Field

_TEXTS = (
    "model", "created_at", "done", "done_reason", "error", "total_duration", "load_duration",
    "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration",
)  # fmt: skip

FIELDS = {
    "start": Field(
        "created_at - total_duration", "ns", mark("the object is made at the end"), "derived"
    ),
    "model": Field("model", "", mark("Ollama's name")),
    "input_tokens": Field("prompt_eval_count", "", mark("Ollama's name")),
    "output_tokens": Field("eval_count", "", mark("Ollama's name")),
    "ttft_us": Field(
        "total_duration - eval_duration", "ns", mark("all but the decoding"), "derived"
    ),
    "e2e_us": Field("total_duration", "ns", mark("Ollama's name")),
    "prefill_us": Field("prompt_eval_duration", "ns", mark("Ollama's name")),
    "decode_us": Field("eval_duration", "ns", mark("Ollama's name")),
    "load_us": Field("load_duration", "ns", mark("Ollama's name")),
    "status": Field("error", "", mark("set where the call failed")),
    "vantage": Field("", "", mark("the server's own figures"), "assumed"),
}
_VERSIONS = mark(
    "what Ollama counts in prompt_eval_count changed by version: up to 0.3 and in 0.30.0 only the "
    "tokens it computed, otherwise the whole prompt; from 0.4 to 0.12 prompt_eval_duration may "
    "include the wait for a runner"
)


def _recognise(head: Head) -> str | None:
    chunks = [r for r in head.records if "done" in r and "created_at" in r and "model" in r]
    if not chunks or 2 * len(chunks) < len(head.records):
        return None
    if any("total_duration" in r for r in chunks):
        return tr("done, created_at and total_duration")
    if any("message" in r or "response" in r for r in chunks):
        return tr("done, created_at and pieces of an answer")
    return None


def _convert(raw: Raw) -> Batch:
    failed = raw.text("error").is_not_null()
    total, decode = raw.duration("total_duration", "ns"), raw.duration("eval_duration", "ns")
    # Subtracted before rounding, so that the sum of the parts is exact.
    wait = (raw.exact("total_duration") - raw.exact("eval_duration")) // 1000
    frame = raw.select(
        {
            "start": raw.instant("created_at") - total,
            "model": raw.text("model"),
            "input_tokens": raw.count("prompt_eval_count"),
            "output_tokens": raw.count("eval_count"),
            "ttft_us": wait,
            "e2e_us": total,
            "prefill_us": raw.duration("prompt_eval_duration", "ns"),
            "decode_us": decode,
            "load_us": raw.duration("load_duration", "ns"),
            "status": pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
            "vantage": pl.lit("server"),
        },
        reject=pl.when(~failed & ~raw.boolean("done").fill_null(False))
        .then(pl.lit("not_final"))
        .when(raw.text("done_reason").is_in(["load", "unload"]))
        .then(pl.lit("load_call")),
    )
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, (tr(_VERSIONS),))


def _plan(head: Head, options: Options) -> Plan:
    return Plan(schema=dict.fromkeys(_TEXTS, pl.String), convert=_convert)


READER = Reader(
    name="ollama",
    title="Ollama final responses",
    shapes=(Shape.JSON,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Ollama reports no cached tokens and no conversation: OLLAMA_DEBUG=1 writes the used cache "
        "into the server log, and a client must log a session_id of its own"
    ),
)
