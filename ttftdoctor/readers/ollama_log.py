"""Ollama's server log: access lines of its web framework, with what the engine printed between.

A request is one ``[GIN]`` line of a generating route, written when the answer has ended: status,
duration, client and path, in whole seconds of local time without a zone; that of Ollama's other
lines (``time=...+02:00``) is theirs. Durations are Go's (``6.203911042s``, ``1m3s``); from a minute
on they are cut to whole seconds.

The lines of the engine name no request. Since 0.30 the engine is llama-server, which prints its
timings just before the access line: where exactly one task ended between two access lines, and did
not take longer than the request, they are one. Earlier engines, with ``OLLAMA_DEBUG=1``, log the
cache slot when a prompt begins, with a time: it belongs to the one request that was being served
then. All other lines of the engine are left alone, for one request must not be counted twice.

The TTFT is the duration less the decoding, and so has the queue and the loading of the model in it;
it is known only where timings are. It cannot tell: the model, sessions, whether an answer was
streamed. What a client kept of the responses (``total_duration`` and so on) tells more.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_PATHS = r"/api/generate|/api/chat|/v1/chat/completions|/v1/completions|/v1/responses|/v1/messages"
_ACCESS = (
    r"\[GIN\] (\d{4})/(\d\d)/(\d\d) - (\d\d:\d\d:\d\d) \|\s*(\d{3}) \|\s*(\S+) \|\s*\S* \|"
    rf'\s*POST\s+"({_PATHS})"'
)
_TORN = rf'\[GIN\].*POST\s+"(?:{_PATHS})"'
_GO = r"^(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)(ns|us|µs|μs|ms|s))?$"
_UNITS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_SLOT = r"slot\s+\S+: id\s+(-?\d+) \| task (-?\d+) \| ?(.*)$"
_CACHE = r'msg="loading cache slot".* prompt=(\d+) used=(\d+)'
_LOGGED = r"\btime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)"
_ZONE = r"\btime=\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)\s"
_OLLAMA = r"^(?:.*\s)?time=\S+ level=\w+ source=\S+\.go:\d+"

#: Access lines tell whole seconds: an end may be this much later than it says.
_SECOND_US = 1_000_000
#: From here on, durations are cut to whole seconds.
_CUT_US = 60_000_000

FIELDS = {
    "start": Field(
        "[GIN] time - duration",
        mark("local time"),
        mark("the line is written at the end, in whole seconds: arrivals are coarse"),
        "derived",
    ),
    "route": Field("[GIN] path", "", mark("which of Ollama's calls it was")),
    "e2e_us": Field(
        "[GIN] duration", mark("with its unit"), mark("the whole request, loading included")
    ),
    "status": Field("[GIN] status", "", mark("HTTP code")),
    "input_tokens": Field("task.n_tokens, prompt", "tokens", mark("cached ones are in it")),
    "cached_tokens": Field(
        "task.n_tokens - prompt eval tokens, used",
        "tokens",
        mark("input less tokens processed"),
        "derived",
    ),
    "output_tokens": Field("eval time", "tokens", mark("the first token is counted")),
    "ttft_us": Field(
        "[GIN] duration - eval time",
        "ms",
        mark("all but the decoding; queue and loading are in it"),
        "derived",
    ),
    "prefill_us": Field("prompt eval time", "ms", mark("from the start of the slot")),
    "decode_us": Field("eval time", "ms", mark("first to last token")),
    "vantage": Field("", "", mark("the server's own log"), "assumed"),
}
_SECONDS = mark(
    "Ollama's access lines are in whole seconds of local time, taken as UTC unless a time zone is "
    "named; durations over a minute are cut to whole seconds"
)
_ZONED = mark(
    "Ollama's access lines are in whole seconds of local time, in the zone of its other lines; "
    "durations over a minute are cut to whole seconds"
)
_APART = mark(
    "timings of {n} engine tasks of the Ollama log belong to no one request, and are not used"
)


def _recognise(head: Head) -> str | None:
    lines = pl.Series("text", head.lines, dtype=pl.String)
    access = lines.filter(lines.str.contains(_TORN))
    native = access.str.contains('"/api/', literal=True).any()
    ollama = lines.str.contains(_OLLAMA).any()
    if len(access) and (native or ollama):
        return tr("[GIN] lines of Ollama's routes")
    if ollama and lines.str.contains(r"\[GIN\]|ollama|llama").any():
        return tr("lines of Ollama's log, and none of a request so far")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del head, options
    return Plan({}, _convert, whole=True)


def _micros(go: str) -> pl.Expr:
    """A duration as Go writes it, in microseconds."""
    parts = pl.col(go).str.extract_groups(_GO)
    hours, minutes, rest, unit = (parts.struct.field(str(n)) for n in range(1, 5))
    scale = unit.replace_strict(_UNITS, default=None, return_dtype=pl.Float64)
    whole = hours.cast(pl.Int64, strict=False).fill_null(0) * 60
    whole = (whole + minutes.cast(pl.Int64, strict=False).fill_null(0)) * _CUT_US
    some = pl.any_horizontal(hours.is_not_null(), minutes.is_not_null(), rest.is_not_null())
    fine = (rest.cast(pl.Float64, strict=False) * scale).round(0).cast(pl.Int64, strict=False)
    return pl.when(some).then(whole + pl.when(rest.is_null()).then(0).otherwise(fine))


def _requests(chunk: Raw) -> pl.DataFrame:
    """One row an access line of a generating route, and the zone of the lines around it."""
    ours = pl.col("text").str.contains(_TORN)
    zone = pl.col("text").str.extract(_ZONE, 1)
    told = chunk.frame.with_columns(zone.alias("zone")).filter(ours | zone.is_not_null())
    near = pl.coalesce(pl.col("zone").forward_fill(), pl.col("zone").backward_fill())
    lines = told.with_columns(near.alias("zone")).filter(ours)
    parts = pl.col("text").str.extract_groups(_ACCESS)
    found = lines.select(
        LINE,
        pl.concat_str(
            [parts.struct.field("1"), pl.lit("-"), parts.struct.field("2"), pl.lit("-"),
             parts.struct.field("3"), pl.lit("T"), parts.struct.field("4")]
        ).alias("ended"),
        parts.struct.field("5").alias("code"),
        parts.struct.field("6").alias("go"),
        parts.struct.field("7").alias("route"),
        "zone",
    )  # fmt: skip
    return found.with_columns(
        _micros("go").alias("took"),
        pl.col("ended").str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
        .dt.epoch("us").alias("naive_end"),
    )  # fmt: skip


def _number(pattern: str, dtype: type[pl.DataType] = pl.Int64) -> pl.Expr:
    value = pl.col("tail").str.extract(pattern, 1).cast(dtype, strict=False)
    if dtype == pl.Float64:
        return pl.when(value.is_finite() & value.is_between(0, 1e9)).then(value)
    return value


def _tasks(chunk: Raw) -> pl.DataFrame:
    """One row a finished task of llama-server: where it ended, its timings and its prompt."""
    parts = pl.col("text").str.extract_groups(_SLOT)
    starting = pl.col("text").str.contains(r"starting llama-server|starting llama server")
    tag = ["server", "slot", "task"]
    lines = (
        chunk.frame.filter(pl.col("text").str.contains_any(["slot ", "starting llama"]))
        .select(
            LINE,
            starting.cum_sum().alias("server"),
            parts.struct.field("1").alias("slot"),
            parts.struct.field("2").alias("task"),
            parts.struct.field("3").alias("tail"),
        )
        .drop_nulls("task")
    )
    prompt = pl.col("tail").str.contains("prompt eval time", literal=True)
    ms = r"eval time\s*=\s*([\d.]+) ms /"
    counted = r"eval time\s*=\s*[\d.]+ ms /\s*(\d+) tokens"
    events = lines.with_columns(
        _number(r"new prompt.*(?:n_prompt_tokens|task\.n_tokens) = (\d+)").alias("total"),
        pl.when(prompt).then(_number(ms, pl.Float64)).alias("prompt_ms"),
        pl.when(prompt).then(_number(counted)).alias("prompt_n"),
        pl.when(~prompt).then(_number(ms, pl.Float64)).alias("eval_ms"),
        pl.when(~prompt).then(_number(counted)).alias("eval_n"),
        _number(r"stop processing: (?:n_past|n_tokens) = (\d+), truncated = 0").alias("stop"),
    )
    values = ("prompt_ms", "prompt_n", "eval_ms", "eval_n", "stop")
    tasks = events.group_by(tag, maintain_order=True).agg(
        pl.col(LINE).filter(pl.col("prompt_ms").is_not_null()).last().alias("done"),
        pl.col("total").drop_nulls().last(),
        pl.col("prompt_ms").count().alias("ends"),
        *(pl.col(c).drop_nulls().last() for c in values),
    )
    # Two servers at once may both have a task of this number: their lines cannot be told apart.
    tasks = tasks.filter(pl.col("ends") == 1)
    at_stop = pl.col("stop") - (pl.col("eval_n") - 1)
    total = pl.coalesce("total", at_stop)
    sound = total >= pl.col("prompt_n")
    return tasks.select(
        pl.col("done"),
        pl.when(sound).then(total).alias("total"),
        pl.when(sound).then(total - pl.col("prompt_n")).alias("cached"),
        pl.col("eval_n").alias("made"),
        (pl.col("prompt_ms") * 1000).round(0).cast(pl.Int64).alias("prefill"),
        (pl.col("eval_ms") * 1000).round(0).cast(pl.Int64).alias("decode"),
    )


def _with_tasks(requests: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Give a request the one task that ended between the access line before and its own."""
    ends = requests.select(pl.col(LINE).alias("done"), pl.col(LINE).alias("ender"))
    placed = tasks.sort("done").join_asof(ends.sort("done"), on="done", strategy="forward")
    alone = placed.drop_nulls("ender").filter(pl.len().over("ender") == 1).drop("done")
    joined = requests.join(alone, left_on=LINE, right_on="ender", how="left", maintain_order="left")
    work = pl.col("prefill") + pl.col("decode").fill_null(0)
    longest = pl.col("took") + pl.when(pl.col("took") >= _CUT_US).then(_SECOND_US).otherwise(1000)
    fits = work <= longest
    return joined.with_columns(
        pl.when(fits).then(pl.col(c)).alias(c)
        for c in ("total", "cached", "made", "prefill", "decode")
    )


def _with_slots(requests: pl.DataFrame, chunk: Raw) -> pl.DataFrame:
    """Give a request the cache slot that was loaded while it alone was being served."""
    text = pl.col("text").str
    stamp = text.extract(_LOGGED, 1).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False
    )
    slots = (
        chunk.frame.filter(text.contains("loading cache slot", literal=True))
        .select(
            stamp.dt.epoch("us").alias("loaded"),
            text.extract(_CACHE, 1).cast(pl.Int64, strict=False).alias("slot_total"),
            text.extract(_CACHE, 2).cast(pl.Int64, strict=False).alias("slot_used"),
        )
        .drop_nulls()
        .sort("loaded")
    )
    if slots.is_empty():
        null = pl.lit(None, pl.Int64)
        return requests.with_columns(null.alias("slot_total"), null.alias("slot_used"))
    spans = requests.select(
        LINE,
        (pl.col("naive_end") - pl.col("took") - _SECOND_US).alias("low"),
        (pl.col("naive_end") + _SECOND_US).alias("high"),
    ).drop_nulls()
    # How many requests had begun, and how many had ended, when the slot was loaded.
    begun = spans["low"].sort().search_sorted(slots["loaded"], side="right")
    ended = spans["high"].sort().search_sorted(slots["loaded"], side="left")
    lone = slots.filter(begun.cast(pl.Int64) - ended.cast(pl.Int64) == 1)
    owners = lone.join_asof(spans.sort("low"), left_on="loaded", right_on="low")
    owners = owners.filter((pl.col("loaded") <= pl.col("high")) & (pl.len().over(LINE) == 1))
    return requests.join(
        owners.select(LINE, "slot_total", "slot_used"), on=LINE, how="left", maintain_order="left"
    )


def _convert(chunk: Raw) -> Batch:
    tasks = _tasks(chunk)
    found = _with_slots(_with_tasks(_requests(chunk), tasks), chunk)
    # A zone that someone named is that of the access lines.
    named = chunk.options.zoned is not None or chunk.options.timezone != "UTC"
    zoned = not named and found["zone"].count() > 0
    if zoned:
        ended = pl.concat_str(["ended", pl.col("zone").fill_null("")])
        found = found.with_columns(ended.alias("ended"))
    raw = Raw(found, chunk.options)
    took = pl.col("took")
    status = status_of(raw.text("code"))
    frame = raw.select(
        {
            "start": raw.instant("ended") - took,
            "route": raw.text("route"),
            "input_tokens": pl.coalesce("total", "slot_total"),
            "cached_tokens": pl.coalesce("cached", "slot_used"),
            "output_tokens": pl.col("made"),
            # A duration that was cut can make it too short, but never shorter than the prefill.
            "ttft_us": pl.max_horizontal(
                took - pl.col("decode"), pl.when(pl.col("decode").is_not_null()).then("prefill")
            ),
            "e2e_us": took,
            "prefill_us": pl.col("prefill"),
            "decode_us": pl.col("decode"),
            "status": status,
            "vantage": pl.lit("server"),
        },
        reject=pl.when(pl.any_horizontal(pl.col("code").is_null(), took.is_null())).then(
            pl.lit("torn_line")
        ),
    )
    notes = [tr(_ZONED if zoned else _SECONDS)]
    lost = tasks.height - int(found["prefill"].count())
    if lost > 0:
        notes.append(tr(_APART, n=lost))
    return Batch(frame, {k: v for k, v in FIELDS.items() if frame[k].count()}, tuple(notes))


READER = Reader(
    name="ollama-log",
    title="Ollama server log",
    shapes=(Shape.TEXT,),
    recognise=_recognise,
    plan=_plan,
    lacks=mark(
        "Ollama's log has one access line a request and no first token: engine timings are in it "
        "since 0.30, cached tokens before that with OLLAMA_DEBUG=1; to have all of it, keep the "
        "final objects of /api/chat"
    ),
)
