"""vLLM's server log: the lines of ``--enable-log-requests``, and LMCache's lines among them.

``Received request ID: ...`` when a request comes (up to 0.7 by default), ``Generated response ID
...`` (``--enable-log-outputs``), ``Finished request``, ``Aborted request`` or ``Request ID failed``
when it ends. vLLM stamps lines in whole seconds of local time **without a year**; where LMCache
writes as well, which stamps in full, the year is known. Up to 0.11 the line has the prompt, from
0.33 on only a DEBUG line has it. Its token ids, or else its text, give blocks. ``--max-log-len``
cuts both to the same number, so as many ids as letters are ids that were cut.

LMCache's ``Reqid: ...`` line at the first look-up has the prompt's length and what the engine and
LMCache hold of it: both are prefixes, so the longer one counts, not the sum. What is found but not
retrieved does not count. A request that is scheduled again prints it again: the first one counts.
Several engine ids belong to one request: an id with a number before it, or eight more hexadecimal
digits behind it, is that of the request without. The body of a request is logged under the bare id
that its name for the client has behind a word (``chatcmpl-ID``); one that fits none is passed over.

``Avg prompt throughput`` lines are averages of ten seconds and name no request. It cannot tell:
the first token, the queue and prefill of a request, nor its end more finely than to a second.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.prompts import Place, Prompts, Where
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, UNREAD, Field

_TEXTS = r"""(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|None)"""
_RECEIVED = (
    rf"\bReceived request (\S+): (?:prompt: {_TEXTS}, ?)?(?:prefix_pos: \w+, ?)?"
    r"(?:sampling[_ ])?params: (.*)$"
)
_DETAILS = rf"\bRequest (\S+) details: prompt: {_TEXTS}, (.*)$"
_BODY = r"\bRequest (\S+) JSON body: (\{.*\})\s*$"
#: The last one: what came before may be words to stop at.
_IDS = r".*\bprompt[_ ]token[_ ]ids: (\[[\d,\s]*\]|None)"
#: What a client knows a request by, whose bare id the body is logged under.
_NAMED = ("chatcmpl-{}", "cmpl-{}", "cmpl-{}-0")
_ADDED = r"\bAdded request (\S+?)\.\s*$"
_DONE = r"\bGenerated response (\S+?)(?: \((streaming complete)\))?: output: "
_FINISHED = r"\bFinished request (\S+?)\.\s*$"
_ABORTED = r"(?:\bRequest (\S+) aborted\.|\bAborted request(?:\(s\))? (\S+?)\.?\s*$)"
_FAILED = r"\bRequest (\S+) failed\b"
_LOOKUP = (
    r"Reqid: (\S+), Total tokens (\d+)(?:, Inference Engine computed tokens: (\d+))?"
    r", LMCache hit tokens: (\d+), need to load: (-?\d+)"
)
_LEVEL = r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
_FULL = rf"(?:^|\[|{_LEVEL})(\d{{4}}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_SHORT = rf"{_LEVEL}(\d\d-\d\d) (\d\d:\d\d:\d\d)\b"
_WORDS = [
    "Received request ", "Request ", "Added request ", "Generated response ", "Finished request ",
    "Aborted request", "Reqid: ",
]  # fmt: skip
_AVERAGES = "Avg prompt throughput:"
_MANAGER = r"LMCache (?:INFO|DEBUG|WARNING|ERROR):"
_FOREIGN = ["Finish: obj=Generate", "Receive: obj=Generate", "Prefill batch"]
_ESCAPE = r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)"
_RECORD = ("asctime", "levelname", "message")

#: A year that has all days, when the log names none; it is taken away again.
_LEAP = 1972
_ORIGIN_US = 63_072_000_000_000

_CUT = mark(
    "some prompts of the vLLM log are cut (--max-log-len): their length is not known, and their "
    "blocks are those of the head"
)
_NO_YEAR = mark(
    "vLLM stamps its lines without a year: starts count from the first of January, in whole "
    "seconds of local time"
)
_LOCAL = mark("vLLM stamps its lines in local time, taken as UTC unless a time zone is named")
_NO_TTFT = mark("a vLLM log has no first-token times")


def _texts(head: Head) -> pl.Series:
    if head.shape is Shape.TEXT:
        return pl.Series("text", head.lines, dtype=pl.String)
    texts = [str(r["message"]) for r in head.records if "levelname" in r and "message" in r]
    return pl.Series("text", texts, dtype=pl.String)


def _recognise(head: Head) -> str | None:
    lines = _texts(head)
    if lines.str.contains_any(_FOREIGN).any():
        return None
    if lines.str.contains(r"\bReceived request \S+: (?:prompt|params): ").any():
        return tr("Received request lines of vLLM")
    ends = lines.str.contains(_ADDED) | lines.str.contains(_FINISHED)
    if (ends | lines.str.contains(_DONE)).any():
        return tr("Added, Finished or Generated lines of vLLM requests")
    if lines.str.contains(_LOOKUP).any():
        return tr("look-up lines of LMCache")
    if lines.str.contains(_AVERAGES, literal=True).any():
        return tr("Avg prompt throughput lines of vLLM: averages, none of a single request so far")
    if lines.str.contains(_MANAGER).any():
        return tr("LMCache lines, none of a single request so far")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    names = () if head.shape is Shape.TEXT else _RECORD
    return Plan(dict.fromkeys(names, pl.String), _convert, whole=True)


def _lines(chunk: Raw) -> pl.DataFrame:
    """Lines that may speak of a request, with a stamp in front, however they were wrapped."""
    frame = chunk.frame
    if not chunk.has("text"):
        front = [pl.col("levelname").fill_null("INFO"), pl.col("asctime").fill_null("")]
        text = pl.concat_str([*front, pl.col("message").fill_null("")], separator=" ")
        frame = frame.select(LINE, text.alias("text"))
    return frame.filter(pl.col("text").str.contains_any(_WORDS))


def _stamped(lines: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Add ``stamp`` (ISO text), and tell whether the year is known."""
    # A date in the text of a prompt is none of the line.
    front = pl.col("text").str.head(160).str
    full, short = (front.extract_groups(p) for p in (_FULL, _SHORT))
    early = short.struct.field("1").is_null()
    lines = lines.with_columns(
        pl.when(early).then(full.struct.field("1")).alias("date"),
        pl.when(early)
        .then(full.struct.field("2").str.replace(",", ".", literal=True))
        .otherwise(short.struct.field("2"))
        .alias("clock"),
        short.struct.field("1").alias("day"),
    )
    month = pl.coalesce(pl.col("date").str.slice(5, 2), pl.col("day").str.slice(0, 2))
    lines = lines.with_columns(month.cast(pl.Int64, strict=False).forward_fill().alias("month"))
    turned = (pl.col("month").diff() <= -6).fill_null(False).cum_sum()
    lines = lines.with_columns(turned.alias("turned"))
    # The year at the first line, by any line that has one.
    year = pl.col("date").str.slice(0, 4).cast(pl.Int64, strict=False) - pl.col("turned")
    first = lines.select(year.drop_nulls().first()).item()
    base = _LEAP if first is None else int(first)
    built = pl.format("{}-{}", (pl.col("turned") + base).cast(pl.String), pl.col("day"))
    stamp = pl.concat_str([pl.coalesce("date", built), pl.col("clock")], separator="T")
    return lines.with_columns(stamp.alias("stamp")), first is not None


def _events(lines: pl.DataFrame) -> pl.DataFrame:
    """What each line says of which request, in columns; null where it does not speak of it."""
    text = pl.col("text").str

    received, details = text.extract_groups(_RECEIVED), text.extract_groups(_DETAILS)
    lookup, aborted = text.extract_groups(_LOOKUP), text.extract_groups(_ABORTED)
    done = text.extract_groups(_DONE)

    def of(found: pl.Expr, number: int) -> pl.Expr:
        return found.struct.field(str(number))

    came = pl.coalesce(of(received, 1), text.extract(_ADDED, 1))
    broken = pl.coalesce(of(aborted, 1), of(aborted, 2))
    ended = pl.coalesce(of(done, 1), text.extract(_FINISHED, 1))
    failed = text.extract(_FAILED, 1)
    told = pl.coalesce(of(details, 1), text.extract(_BODY, 1))
    rest = pl.coalesce(of(received, 4), of(details, 4))
    return lines.select(
        LINE,
        "stamp",
        pl.coalesce(came, told, of(lookup, 1), ended, broken, failed).str.split(",").alias("id"),
        of(received, 1).is_not_null().alias("received"),
        text.contains(_BODY).alias("bare"),
        came.is_not_null().alias("came"),
        pl.coalesce(
            pl.when(ended.is_not_null()).then(pl.lit("ok")),
            pl.when(failed.is_not_null()).then(pl.lit("error")),
            pl.when(broken.is_not_null()).then(pl.lit("aborted")),
        ).alias("end"),
        pl.when(of(done, 1).is_not_null()).then(of(done, 2).is_not_null()).alias("streaming"),
        pl.coalesce(
            of(received, 2), of(received, 3), of(details, 2), of(details, 3)
        ).alias("prompt"),
        rest.str.extract(_IDS, 1).replace("None", None).alias("ids"),
        text.extract(_BODY, 2).alias("body"),
        of(lookup, 1).is_not_null().alias("looked"),
        *(
            of(lookup, n).cast(pl.Int64, strict=False).alias(name)
            for n, name in ((2, "total"), (3, "computed"), (4, "hit"), (5, "load"))
        ),
        text.contains("skip retrieve", literal=True).alias("skipped"),
    ).explode("id").drop_nulls("id").filter(pl.col("id") != "")  # fmt: skip


def _same_request(events: pl.DataFrame) -> pl.DataFrame:
    """Bring the ids of an engine to those of the requests that came."""
    known = events.filter("received").select("id").unique().with_columns(pl.lit(True).alias("is"))
    if known.is_empty():
        known = events.filter("came").select("id").unique().with_columns(pl.lit(True).alias("is"))
    out = events.with_row_index("_row")
    tries = {
        "self": pl.col("id"),
        "child": pl.col("id").str.replace(r"^\d+_", ""),
        "inner": pl.col("id").str.replace(r"-[0-9a-f]{8}$", ""),
        "both": pl.col("id").str.replace(r"^\d+_", "").str.replace(r"-[0-9a-f]{8}$", ""),
        **{f: pl.when("bare").then(pl.format(f, "id")) for f in _NAMED},
    }
    for name, tried in tries.items():
        out = out.with_columns(tried.alias("_try")).join(
            known.rename({"is": name}), left_on="_try", right_on="id", how="left",
            maintain_order="left",
        )  # fmt: skip
    best = pl.coalesce(pl.when(pl.col(name)).then(tried) for name, tried in tries.items())
    out = out.with_columns(best.alias("best"))
    out = out.filter(~pl.col("bare") | pl.col("best").is_not_null())
    return out.with_columns(pl.coalesce("best", "id").alias("id")).drop("_row", "_try", *tries)


def _requests(events: pl.DataFrame) -> pl.DataFrame:
    """One row a request. An id that comes again after its end is another request."""
    started = pl.col("received") | (pl.col("came") & ~pl.col("received").any().over("id"))
    again = started.cast(pl.Int64).cum_sum().over("id").clip(lower_bound=1)
    ends = pl.col("end").is_not_null()
    return (
        events.with_columns(again.alias("nth"), started.alias("started"))
        .group_by("id", "nth", maintain_order=True)
        .agg(
            pl.col(LINE).first(),
            pl.col("stamp").filter(pl.col("started")).first().alias("came"),
            pl.col("stamp").filter("looked").first().alias("looked"),
            pl.col("stamp").filter(ends).last().alias("ended"),
            pl.col("end").drop_nulls().last(),
            pl.col("started").any(),
            pl.col("looked").any().alias("known"),
            *(pl.col(c).drop_nulls().first() for c in ("streaming", "prompt", "ids", "body")),
            *(
                pl.col(c).filter("looked").first()
                for c in ("total", "computed", "hit", "load", "skipped")
            ),
        )
    )


def _convert(chunk: Raw) -> Batch:
    lines, dated = _stamped(_lines(chunk))
    found = _requests(_same_request(_events(lines)))
    letters = pl.col("prompt").str.replace_all(_ESCAPE, "_").str.len_chars()
    counted = pl.col("ids").str.count_matches(r"\d+")
    cut = (counted == letters).fill_null(False)
    found = found.with_columns(
        pl.when(~cut).then(pl.col("ids")).alias("ids"), cut.alias("cut"),
        pl.when(~cut & (counted > 0)).then(counted).alias("counted"),
    )  # fmt: skip
    raw = Raw(found, chunk.options)
    shift = 0 if dated else _ORIGIN_US
    came, looked, ended = (raw.instant(c) - shift for c in ("came", "looked", "ended"))
    took = ended - came
    # The engine's part of the prefix: older lines say only how much LMCache adds to it.
    engine = pl.coalesce("computed", pl.col("hit") - pl.col("load"))
    added = pl.when(pl.col("skipped").fill_null(False)).then(0).otherwise("load")
    reused = engine + added.clip(lower_bound=0)
    columns = {
        "request_id": raw.text("id"),
        "session_id": pl.coalesce(
            raw.text("body", "$.session_id"), raw.text("body", "$.vllm_xargs.session_id")
        ),
        "model": raw.text("body", "$.model"),
        "start": pl.coalesce(came, looked),
        "input_tokens": pl.coalesce("total", "counted"),
        "cached_tokens": reused,
        # In whole seconds, a short request ends when it began: that is no duration.
        "e2e_us": pl.when(took > 0).then(took),
        "status": pl.col("end"),
        "streamed": pl.coalesce("streaming", raw.boolean("body", "$.stream")),
        "vantage": pl.lit("server"),
    }
    # Lines of requests that came before the log began.
    headless = pl.when(~pl.col("started") & ~pl.col("known")).then(pl.lit("no_arrival"))
    frame = raw.select(columns, reject=headless)
    fields = _fields(frame, found, dated)
    notes = [tr(_NO_TTFT), tr(_LOCAL if dated else _NO_YEAR)]
    if found["cut"].any():
        notes.append(tr(_CUT))
    where = Where(**{c: Place(c) for c in ("ids", "prompt") if found[c].count()})
    if not where.places:
        return Batch(frame, fields, tuple(notes))
    options = chunk.options
    prompts = Prompts(
        where, bytes_per_token=options.bytes_per_token, tokenizer=options.tokenizer,
        parts=options.text,
    )  # fmt: skip
    made = prompts.read(_with_unread(frame), found)
    return Batch(
        made.frame, {**fields, **made.fields}, (*notes, *made.notes), made.parts,
        prompts.bytes_per_token,
    )  # fmt: skip


def _with_unread(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the field of unread values, which is left out where all were read."""
    none = [] if UNREAD in frame.columns else [pl.lit(None, pl.String).alias(UNREAD)]
    return frame.with_columns(none)


def _fields(frame: pl.DataFrame, found: pl.DataFrame, dated: bool) -> dict[str, Field]:
    when = mark("local time") if dated else mark("no year: counts from the first of January")
    fields = {
        "request_id": Field("request", "", mark("vLLM's id")),
        "session_id": Field("JSON body: session_id", "", mark("as the client sent it")),
        "start": Field("Received request", when, mark("whole seconds: arrivals are coarse")),
        "input_tokens": Field(
            "prompt_token_ids", "tokens", mark("as many as there are ids"), "derived"
        ),
        "cached_tokens": Field(
            "LMCache: computed tokens, need to load",
            "tokens",
            mark("the engine's prefix and what LMCache adds to it"),
            "derived",
        ),
        "e2e_us": Field(
            "Generated response - Received request",
            "s",
            mark("to a second more or less"),
            "derived",
        ),
        "status": Field("last line of the request", "", mark("finished, aborted or failed")),
        "model": Field("JSON body: model", "", mark("as the client sent it")),
        "streamed": Field(
            "Generated response, JSON body: stream", "", mark("streaming complete, or not")
        ),
        "vantage": Field("", "", mark("the server's own log"), "assumed"),
    }
    if found["total"].count():
        fields["input_tokens"] = Field(
            "LMCache: Total tokens", "tokens", mark("at the first look-up")
        )
        if not found["came"].count():
            fields["start"] = Field(
                "LMCache: Reqid line", when, mark("when it was first scheduled")
            )
    return {k: v for k, v in fields.items() if frame[k].count()}


READER = Reader(
    name="vllm-log",
    title="vLLM server log (request lines, LMCache lines; no TTFT)",
    shapes=(Shape.TEXT, Shape.JSON),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "a vLLM log names single requests only with --enable-log-requests, and never their first "
        "token: send spans (--otlp-traces-endpoint), or keep responses with "
        "--enable-per-request-metrics"
    ),
)
