"""llama.cpp ``llama-server``: its text log, or responses that carry a ``timings`` object.

The text log is written to the terminal (or ``--log-file``); three generations of it are read: JSON
or ``key=value`` records with ``print_timings`` (early 2024), ``slot ...: id | task |`` lines with a
timing block of several lines (late 2024 and 2025), and the same with a prefix that counts minutes,
seconds, milliseconds and microseconds since the start (2026). One request is one task in one slot
of one server start; its lines are scattered, so the log is read whole.

The engine's clock starts when it begins with the prompt. Where the log shows the arrival of
requests (lines of the HTTP threads, printed before the slot is chosen), the wait for a slot, and in
it for room in a batch, is added; where it does not, the time to first token is the prefill alone.
Task numbers are given on arrival and arrivals are logged in order, so the two are paired in order;
where more arrivals than tasks are known, a task gets the latest arrival that it can have.

The log has no session: a slot number is not one. It has no replica, no route, and no wall clock,
except for a first line ``# spawn epoch=SECONDS``, which is used if something wrote it.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_SLOT = r"slot\s+\S+: id\s+(-?\d+) \| task (-?\d+) \| ?(.*)$"
_OLD_SLOT = r"(?:id_slot|slot_id)\"?[=:]\s*(-?\d+)"
_OLD_TASK = r"(?:id_task|task_id)\"?[=:]\s*(-?\d+)"
_CLOCK = r"(?:^|\s)(\d+)\.(\d\d)\.(\d{3})\.(\d{3})\s"
_EPOCH = r"\btimestamp\"?[=:]\s*(\d{9,11})\b"
_BOOT = (
    r"(?:\]|:|\"msg\":\s?\")\s*(?:initializing\b|model loaded|(?:HTTP )?server (?:is )?listening)"
    r"|^# spawn "
)
#: A line without any of these words says nothing we use.
_WORDS = (
    "task", " time ", "initializing", "model loaded", "loading model", "listening", "# spawn",
    "hat format: ", "conv_id=", "slots are idle", "build", "general.name",
)  # fmt: skip
#: Fields of a record of the oldest generation, written back as ``key=value``.
_OLD_FIELDS = (
    "timestamp", "slot_id", "id_slot", "task_id", "id_task", "p0", "n_past", "truncated", "build",
)  # fmt: skip


# --------------------------------------------------------------------------- recognising


def _recognise(head: Head) -> str | None:
    if head.shape is Shape.TEXT:
        lines = pl.Series("text", head.lines, dtype=pl.String)
        ollama = lines.str.contains(r"\[GIN\] \d")
        ollama |= lines.str.contains(r"(?:^|\s)time=\S+ level=\w+ source=")
        if ollama.any():  # it carries the engine's lines in its own
            return None
        if lines.str.contains(_SLOT).any():
            return tr("slot and task lines of llama-server")
        if lines.str.contains(r"print_timings|t_prompt_processing").any():
            return tr("print_timings records of an early llama-server")
        if lines.str.contains(r"(?:^|\s)srv\s+(?:llama_server|load_model|init):").any():
            return tr("srv lines of llama-server")
        return None
    kind = _json_kind(head)
    kinds = {
        "timings": mark("timings with prompt_n and prompt_ms"),
        "old": mark("print_timings records of an early llama-server"),
        "log": mark("log records of llama-server --log-jsonl"),
    }
    return tr(kinds[kind]) if kind in kinds else None


def _json_kind(head: Head) -> str:
    for record in head.records:
        timings = record.get("timings")
        if isinstance(timings, dict) and {"prompt_n", "prompt_ms"} <= timings.keys():
            return "timings"
        if "t_prompt_processing" in record or record.get("function") in (
            "print_timings", "launch_slot_with_task",
        ):  # fmt: skip
            return "old"
        message = str(record.get("msg", ""))
        if record.get("type") == "log" and message.startswith(("slot", "srv")):
            return "log"
    return ""


def _plan(head: Head, options: Options) -> Plan:
    del options
    if head.shape is Shape.TEXT:
        return Plan({}, _from_text, whole=True)
    kind = _json_kind(head)
    fields: tuple[str, ...]
    if kind == "old":
        fields = ("function", "msg", *_OLD_FIELDS)
        return Plan(dict.fromkeys(fields, pl.String), _from_old_records, whole=True)
    if kind == "log":
        fields = ("type", "time", "msg")
        return Plan(dict.fromkeys(fields, pl.String), _from_log_records, whole=True)
    fields = (
        "timings", "usage", "id", "id_slot", "object", "model", "created", "system_fingerprint",
        "tokens_evaluated", "stop",
    )  # fmt: skip
    return Plan(dict.fromkeys(fields, pl.String), _from_timings, whole=True)


# --------------------------------------------------------------------------- text log


def _from_text(raw: Raw) -> Batch:
    keep = pl.col("text").str.contains_any(list(_WORDS))
    return _tasks(raw.frame.filter(keep).with_columns(pl.lit(None, pl.Int64).alias("micros")))


def _from_log_records(raw: Raw) -> Batch:
    return _tasks(
        raw.frame.select(
            LINE,
            pl.col("msg").fill_null("").str.strip_chars_end().alias("text"),
            pl.col("time").cast(pl.Int64, strict=False).alias("micros"),
        )
    )


def _from_old_records(raw: Raw) -> Batch:
    pairs = [
        pl.when(pl.col(c).is_not_null()).then(pl.format(" {}={}", pl.lit(c), pl.col(c)))
        for c in _OLD_FIELDS
    ]
    words = pl.format("[{}] {}", pl.col("function").fill_null(""), pl.col("msg").fill_null(""))
    text = pl.concat_str([words, *pairs], ignore_nulls=True)
    return _tasks(
        raw.frame.select(LINE, text.alias("text"), pl.lit(None, pl.Int64).alias("micros"))
    )


def _number(column: str, pattern: str, dtype: Any = pl.Int64) -> pl.Expr:
    value = pl.col(column).str.extract(pattern, 1).cast(dtype, strict=False)
    if dtype == pl.Float64:
        return pl.when(value.is_finite() & (value >= 0)).then(value)
    return value


def _events(lines: pl.DataFrame) -> pl.DataFrame:
    """What each line says, in columns; null where it does not speak of it."""
    slot = pl.col("text").str.extract_groups(_SLOT)
    clock = pl.col("text").str.extract_groups(_CLOCK)
    parts = [clock.struct.field(str(n)).cast(pl.Int64, strict=False) for n in range(1, 5)]
    relative = ((parts[0] * 60 + parts[1]) * 1000 + parts[2]) * 1000 + parts[3]
    old = pl.col("text").str.contains(_OLD_TASK)
    frame = lines.with_columns(
        pl.coalesce("micros", relative).alias("clock"),
        (_number("text", _EPOCH) * 1_000_000).alias("epoch"),
        pl.coalesce(
            slot.struct.field("1").cast(pl.Int64, strict=False), _number("text", _OLD_SLOT)
        ).alias("slot"),
        pl.coalesce(
            slot.struct.field("2").cast(pl.Int64, strict=False), _number("text", _OLD_TASK)
        ).alias("task"),
        pl.when(old).then(pl.col("text")).otherwise(slot.struct.field("3")).alias("tail"),
        (_number("text", r"^# spawn epoch=([\d.]+)", pl.Float64) * 1e6)
        .round(0)
        .cast(pl.Int64, strict=False)
        .alias("spawn"),
        pl.col("text").str.contains(_BOOT).alias("boot"),
    )
    # The timing block of 2025 is one record of several lines; only the first names the slot.
    opens = pl.col("tail").str.strip_chars() == ""
    inside = pl.col("slot").is_null() & pl.col("text").str.contains(
        r"^[\s\r]*(?:prompt eval|eval|total) time\s*="
    )
    frame = frame.with_columns(
        pl.when(inside).then(pl.col("text")).otherwise("tail").alias("tail"),
        *(
            pl.when(inside)
            .then(
                pl.when(pl.col("slot").is_not_null())
                .then(pl.when(opens).then(pl.col(c)).otherwise(-1))
                .forward_fill()
            )
            .otherwise(c)
            .alias(c)
            for c in ("slot", "task")
        ),
    )
    prompt = pl.col("tail").str.contains("prompt eval time", literal=True)
    spans = r"eval time\s*=\s*(\S+) ms /"
    counts = r"eval time\s*=\s*\S+ ms /\s*(-?\d+) (?:tokens|runs)"
    service = pl.col("slot").is_null()
    return frame.with_columns(
        pl.col("tail").str.contains("processing task", literal=True).alias("launch"),
        pl.col("tail").str.contains(r"is_child = 1").alias("child"),
        _number("tail", r"new prompt.*(?:n_prompt_tokens|task\.n_tokens) = (\d+)").alias("total"),
        pl.coalesce(
            _number("tail", r"(?:kv cache rm|memory_seq_rm) \[(\d+), end\)"),
            _number("tail", r"kv cache rm \[p0, end\).*\bp0\"?[=:]\s*(\d+)"),
        ).alias("cached"),
        pl.when(prompt).then(_number("tail", spans, pl.Float64)).alias("prompt_ms"),
        pl.when(prompt).then(_number("tail", counts)).alias("prompt_n"),
        pl.when(~prompt).then(_number("tail", spans, pl.Float64)).alias("eval_ms"),
        pl.when(~prompt).then(_number("tail", counts)).alias("eval_n"),
        pl.coalesce(
            _number("tail", r"stop processing: (?:n_past|n_tokens) = (\d+)"),
            _number("tail", r"slot released.*\bn_past\"?[=:]\s*(\d+)"),
        ).alias("stop"),
        pl.col("tail").str.contains(r"stop processing|slot released").alias("released"),
        pl.col("tail").str.contains(r"truncated\"?\s?[=:]\s*(?:1|true)").alias("truncated"),
        _number("tail", r"LCP similarity, f_sim_best = ([\d.]+)", pl.Float64).alias("f_sim"),
        _number("text", r"cancel task, id_task = (\d+)").alias("cancelled"),
        _number("text", r"send_error: task id = (\d+), error: ").alias("failed"),
        (service & pl.col("text").str.contains("conv_id=", literal=True)).alias("seen"),
        (service & pl.col("text").str.contains(r"[Cc]hat format: ")).alias("templated"),
        pl.col("text").str.contains("all slots are idle", literal=True).alias("idle"),
        pl.coalesce(
            pl.col("text").str.extract(r"loading model '(?:[^']*[/\\])?([^'/\\]+)'"),
            pl.col("text").str.extract(r"general\.name\s*(?:str\s*)?=\s*(.+?)\s*$"),
        )
        .str.strip_suffix(".gguf")
        .alias("model"),
        pl.col("text").str.extract(r"\bbuild(?::? |\"?[=:]\s?)(\d+)\b").alias("build"),
        pl.col("boot").cum_sum().alias("generation"),
    ).with_columns(_restarted().alias("generation"))


def _restarted() -> pl.Expr:
    """The number of the server start, also where the log does not show one.

    A number that was launched before, and is less than the last one, is that of another start.
    """
    launch, number = pl.col("launch").fill_null(False), pl.when("launch").then(pl.col("task"))
    again = launch & (launch.cum_sum().over("generation", "task") > 1)
    last = number.forward_fill().shift(1).over("generation")
    hidden = again & (pl.col("task") <= last).fill_null(False)
    return pl.col("generation") + hidden.cum_sum()


def _clocked(events: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Put ``at`` (µs) on each line, and tell what kind of clock it is."""
    events = events.with_columns(pl.col("clock").forward_fill().alias("_last"))
    restarted = (pl.col("clock") < pl.col("_last").shift(1) - 1_000_000).fill_null(False)
    events = events.with_columns(
        (restarted | pl.col("spawn").is_not_null()).cum_sum().alias("process")
    )
    if events["spawn"].count():
        origin = pl.col("spawn").forward_fill()
        return events.with_columns((origin + pl.col("clock")).alias("at")), "spawn"
    if events["clock"].count() == 0 and events["epoch"].count():
        return events.with_columns(pl.col("epoch").alias("at")), "epoch"
    spans = (
        events.group_by("process")
        .agg(pl.col("clock").max().fill_null(0).alias("span"))
        .sort("process")
        .select("process", pl.col("span").cum_sum().shift(1, fill_value=0).alias("origin"))
    )
    events = events.join(spans, on="process", how="left", maintain_order="left")
    kind = "relative" if events["clock"].count() else "none"
    if spans.height > 1 and kind == "relative":
        kind = "chained"
    return events.with_columns((pl.col("origin") + pl.col("clock")).alias("at")), kind


def _pair(tasks: pl.DataFrame, arrivals: pl.DataFrame, part: str) -> pl.DataFrame:
    """Give each task the number of its arrival within its ``part``; null where there is none.

    Both come in order of arrival. Task k cannot have an arrival later than its launch, nor the
    arrival of a later task: with r(k) arrivals before its launch, the latest one it can have is
    k + min over j >= k of (r(j) - j).
    """
    before = (
        pl.concat(
            [
                arrivals.select(part, pl.col(LINE).alias("seen_by"), pl.lit(1).alias("one")),
                tasks.select(part, "seen_by", pl.lit(0).alias("one")),
            ]
        )
        .sort("seen_by")
        .with_columns(pl.col("one").cum_sum().over(part).alias("r"))
        .filter(pl.col("one") == 0)
        .select("seen_by", "r")
    )
    place = pl.int_range(1, pl.len() + 1).over(part)
    slack = (pl.col("r") - pl.col("k")).cum_min(reverse=True).over(part)
    enough = pl.col("slack").min().over(part) >= 0
    return (
        tasks.join(before, on="seen_by", how="left", maintain_order="left")
        .with_columns(place.alias("k"))
        .with_columns(slack.alias("slack"))
        .with_columns(pl.when(enough).then(pl.col("k") + pl.col("slack")).alias("nth"))
        .join(
            arrivals.select(
                part,
                pl.int_range(1, pl.len() + 1).over(part).cast(pl.Int64).alias("nth"),
                pl.col("at").alias("arrived"),
            ),
            on=[part, "nth"],
            how="left",
            maintain_order="left",
        )
    )


def _arrivals(events: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """(generation, slot, task) with ``arrived``: when the HTTP thread first spoke of the task."""
    keys = ["generation", "slot", "task"]
    none = tasks.select(*keys, pl.lit(None, pl.Int64).alias("arrived"))
    sign = "seen" if events["seen"].sum() >= events["templated"].sum() else "templated"
    waiting = tasks.filter(~pl.col("child") & pl.col("seen_by").is_not_null())
    if not events[sign].any() or waiting.is_empty():
        return none
    # A server that is idle, with the next thing an arrival, has nothing waiting: pairs never
    # reach across such a moment.
    starts = events.join(
        waiting.select(pl.col("seen_by").alias(LINE), pl.lit(True).alias("starts")),
        on=LINE, how="left", maintain_order="left",
    )  # fmt: skip
    word = pl.when(sign).then(pl.lit("A")).when(pl.col("starts")).then(pl.lit("L"))
    following = word.backward_fill().shift(-1)
    calm = pl.col("idle") & (following == "A").fill_null(False)
    starts = starts.with_columns((calm | pl.col("boot")).cum_sum().alias("calm"))
    arrivals = starts.filter(sign)
    ordered = (
        waiting.join(starts.select(pl.col(LINE).alias("seen_by"), "calm"), on="seen_by")
        .sort("generation", "task")
        .select(*keys, "seen_by", "calm")
    )
    # Where every launch has enough arrivals before it, a server start is one part.
    whole = _pair(ordered, arrivals, "generation").select(*keys, "arrived")
    parts = _pair(ordered, arrivals, "calm").select(*keys, pl.col("arrived").alias("in_part"))
    paired = whole.join(parts, on=keys, how="left").select(
        *keys, pl.coalesce("arrived", "in_part").alias("arrived")
    )
    if paired["arrived"].count() * 2 < paired.height:
        return none
    return paired


def _tasks(lines: pl.DataFrame) -> Batch:
    events, clock = _clocked(_events(lines))
    events = events.with_columns(
        pl.col("model").forward_fill(), pl.col("build").forward_fill().alias("build")
    )
    keys = ["generation", "slot", "task"]
    similar = (
        events.filter(pl.col("f_sim").is_not_null() | pl.col("launch"))
        .with_columns(pl.col("f_sim").shift(1).over("generation", "slot").alias("similar"))
        .filter("launch")
        .select(*keys, "similar")
        .unique(keys, keep="first")
    )
    spoken = events.filter((pl.col("slot") >= 0) & (pl.col("task") >= 0))

    def first(column: str) -> pl.Expr:
        return pl.col(column).drop_nulls().first()

    launched = pl.col("launch").fill_null(False)
    tasks = (
        spoken.group_by(keys, maintain_order=True)
        .agg(
            pl.coalesce(pl.col(LINE).filter(launched).first(), pl.col(LINE).first()).alias(LINE),
            pl.col(LINE).filter(launched).first().alias("seen_by"),
            pl.col("at").filter(launched).first().alias("launched"),
            pl.col("at").filter(pl.col("total").is_not_null()).first().alias("began"),
            pl.col("at").filter(pl.col("prompt_ms").is_not_null()).first().alias("printed"),
            pl.col("child").fill_null(False).any().alias("child"),
            *(first(c) for c in ("total", "cached", "prompt_ms", "prompt_n", "eval_ms", "eval_n")),
            first("stop"),
            *(pl.col(c).fill_null(False).any() for c in ("truncated", "released")),
            first("model"),
            first("build"),
        )
        .filter(pl.col("seen_by").is_not_null() | pl.col("prompt_ms").is_not_null())
        .join(similar, on=keys, how="left", maintain_order="left")
    )
    ends = {
        name: events.filter(pl.col(name).is_not_null()).select(
            "generation", pl.col(name).alias("task"), pl.col(LINE).alias(f"{name}_by"),
        ).unique(["generation", "task"], keep="first", maintain_order=True)
        for name in ("cancelled", "failed")
    }  # fmt: skip
    never = ends["cancelled"].join(tasks, on=["generation", "task"], how="anti")
    given_up = never.select(
        "generation", pl.lit(-1, pl.Int64).alias("slot"), "task",
        pl.col("cancelled_by").alias(LINE), pl.col("cancelled_by").alias("seen_by"),
        pl.lit(False).alias("child"),
    )  # fmt: skip
    tasks = pl.concat([tasks, given_up], how="diagonal")
    for end in ends.values():
        tasks = tasks.join(end, on=["generation", "task"], how="left", maintain_order="left")
    tasks = tasks.join(_arrivals(events, tasks), on=keys, how="left", maintain_order="left")
    return _batch(tasks.sort(LINE), clock)


def _batch(tasks: pl.DataFrame, clock: str) -> Batch:
    arrivals = tasks["arrived"].count() > 0
    prefill = (pl.col("prompt_ms") * 1000).round(0).cast(pl.Int64, strict=False)
    decode = (pl.col("eval_ms") * 1000).round(0).cast(pl.Int64, strict=False)
    printed = pl.col("printed") - decode.fill_null(0) - prefill
    # A prompt that has a slot waits until those of other slots leave room in a batch for it.
    began = pl.coalesce("began", "launched")
    wait = pl.max_horizontal(began - pl.col("arrived"), pl.lit(0)).alias("wait")
    known = pl.when(pl.col("prompt_n") >= 0).then(pl.col("prompt_n"))
    shifted = pl.col("truncated").fill_null(False)
    made = pl.when(pl.col("eval_n") > 0).then(pl.col("eval_n"))
    at_stop = pl.when(~shifted).then(pl.col("stop") - (made - 1))
    by_share = pl.when(pl.col("similar") < 1).then(
        (known / (1 - pl.col("similar"))).round(0).cast(pl.Int64, strict=False)
    )
    total = pl.coalesce(
        "total", pl.col("cached") + known, pl.when(at_stop >= known).then(at_stop), by_share
    )
    timed = pl.col("prompt_ms").is_not_null()
    status = (
        pl.when(timed)
        .then(pl.lit("ok"))
        .when(pl.col("failed_by").is_not_null())
        .then(pl.lit("error"))
        .when(pl.col("cancelled_by").is_not_null())
        .then(pl.lit("aborted"))
    )
    queue = pl.when(pl.col("arrived").is_not_null()).then(wait)
    ttft = prefill + queue.fill_null(0)
    restarts = tasks["generation"].n_unique() > 1
    name = pl.format("{}", pl.col("task"))
    if restarts:
        name = pl.format("{}/{}", pl.col("generation").rank("dense"), pl.col("task"))
    aside = (
        pl.when(pl.col("child"))
        .then(pl.lit("child_of_another_task"))
        .when(pl.col("arrived").is_null() & timed & pl.lit(arrivals))
        .then(pl.lit("arrival_unknown"))
    )
    frame = tasks.select(
        LINE,
        name.alias("request_id"),
        pl.coalesce("arrived", "launched", printed).alias("start"),
        "model",
        (pl.lit("b") + pl.col("build")).alias("version"),
        total.alias("input_tokens"),
        pl.coalesce("cached", total - known).alias("cached_tokens"),
        made.alias("output_tokens"),
        ttft.alias("ttft_us"),
        (ttft + decode).alias("e2e_us"),
        queue.alias("queue_us"),
        prefill.alias("prefill_us"),
        decode.alias("decode_us"),
        status.alias("status"),
        pl.lit("server").alias("vantage"),
        pl.when(status.is_null())
        .then(
            pl.when("released").then(pl.lit("no_timing_lines")).otherwise(pl.lit("unfinished_task"))
        )
        .alias("reject"),
        aside.alias("ttft_set_aside"),
    )
    return Batch(frame, _text_fields(tasks, arrivals, clock), _text_notes(tasks, arrivals, clock))


def _text_fields(tasks: pl.DataFrame, arrivals: bool, clock: str) -> dict[str, Field]:
    if arrivals:
        why = mark(
            "wait from the arrival of the request to its prefill, plus that; arrivals are "
            "paired with tasks in order; network and reading the request are not in it"
        )
        source = "arrival line + prompt eval time"
    else:
        why = mark("from the slot's start to the first token: queueing for a slot is not in it")
        source = "prompt eval time"
    fields = {
        "ttft_us": Field(source, "ms", why, "derived"),
        "e2e_us": Field(
            f"{source} + eval time", "ms", mark("first token plus decoding"), "derived"
        ),
        "prefill_us": Field(
            "prompt eval time",
            "ms",
            mark("wall time: with several slots it holds others' work too"),
        ),
        "decode_us": Field("eval time", "ms", mark("first to last token")),
        "output_tokens": Field("eval time", "tokens", mark("the first token is counted")),
        "request_id": Field("task", "", mark("numbers start again with each server start")),
    }
    if arrivals:
        fields["queue_us"] = Field(
            "arrival line, launch_slot_", "us",
            mark("from arrival to slot: waiting, and reading the text into tokens"), "derived",
        )  # fmt: skip
    if tasks["total"].count():
        fields["input_tokens"] = Field("new prompt", "tokens", mark("cached ones are in it"))
    elif tasks["cached"].count():
        fields["input_tokens"] = Field(
            "cached + prompt eval", "tokens", mark("kept plus processed tokens"), "derived"
        )
    else:
        fields["input_tokens"] = Field(
            "stop processing", "tokens", mark("tokens at the end less those generated"), "derived"
        )
    if tasks["cached"].count():
        fields["cached_tokens"] = Field(
            "memory_seq_rm / kv cache rm", "tokens", mark("first of a task")
        )
    else:
        fields["cached_tokens"] = Field(
            "input - prompt eval", "tokens", mark("input less tokens processed"), "derived"
        )
    starts = {
        "spawn": ("# spawn epoch + prefix", mark("the prefix counts from the start of the server")),
        "epoch": ("timestamp", mark("whole seconds: arrivals are coarse")),
        "relative": ("line prefix", mark("counts from the start of the server: no date")),
        "chained": (
            "line prefix",
            mark("server starts laid end to end: no date, no gap between them"),
        ),
    }
    if clock in starts:
        text, because = starts[clock]
        fields["start"] = Field(text, "us", because, "logged" if clock == "epoch" else "derived")
    if tasks["model"].count():
        fields["model"] = Field("loading model", "", mark("file name of the model"))
    if tasks["build"].count():
        fields["version"] = Field("build", "", mark("build number of the server"))
    return fields


def _text_notes(tasks: pl.DataFrame, arrivals: bool, clock: str) -> tuple[str, ...]:
    notes = []
    if not arrivals:
        notes.append(
            tr(
                "the llama.cpp log does not show when requests arrived: time to first token is the "
                "prefill alone, without any wait for a slot"
            )
        )
    else:
        lost = int((tasks["arrived"].is_null() & tasks["prompt_ms"].is_not_null()).sum())
        if lost:
            notes.append(tr("the arrival of {n} llama.cpp tasks could not be told", n=lost))
    generations = tasks["generation"].n_unique()
    if generations > 1:
        notes.append(tr("the llama.cpp log holds {n} server starts with requests", n=generations))
    if clock == "chained":
        notes.append(
            tr(
                "the llama.cpp log has no date: server starts are laid end to end, and the time "
                "between them is unknown"
            )
        )
    return tuple(notes)


# --------------------------------------------------------------------------- responses


def _from_timings(raw: Raw) -> Batch:
    processed = raw.text("timings", "$.prompt_n")
    frame = raw.frame.with_columns(processed.is_not_null().alias("_timed"))
    # Of a stream, the chunk with the timings is the request; with timings on every chunk, the last.
    chunk = pl.col("object").is_in(["chat.completion.chunk", "text_completion"]).fill_null(False)
    streamed = chunk & pl.col("id").is_not_null()
    frame = frame.with_columns(
        pl.when(streamed)
        .then(pl.format("id {}", pl.col("id")))
        .otherwise(pl.format("line {}", pl.col(LINE)))
        .alias("_key")
    )
    order = pl.when("_timed").then(pl.col(LINE)).otherwise(-pl.col(LINE))
    frame = frame.filter(order == order.max().over("_key"))
    raw = Raw(frame, raw.options)

    def timing(name: str) -> pl.Expr:
        value = raw.count("timings", f"$.{name}", strict=False)
        return pl.when(value >= 0).then(value)

    def span(name: str) -> pl.Expr:
        value = raw.duration("timings", "ms", f"$.{name}", strict=False)
        return pl.when(timing("prompt_n").is_not_null() & (value >= 0)).then(value)

    prefill, decode = span("prompt_ms"), span("predicted_ms")
    usage = raw.count("usage", "$.prompt_tokens", strict=False)
    total = pl.coalesce(
        usage, timing("cache_n") + timing("prompt_n"), raw.count("tokens_evaluated", strict=False)
    )
    ended = raw.instant("created", "s", strict=False)
    has_created = raw.frame["created"].count() > 0
    made = timing("predicted_n")
    columns = {
        "request_id": raw.text("id"),
        "start": ended - prefill - decode.fill_null(0),
        "model": raw.text("model"),
        "version": raw.text("system_fingerprint"),
        "input_tokens": total,
        "cached_tokens": pl.coalesce(
            timing("cache_n"),
            raw.count("usage", "$.prompt_tokens_details.cached_tokens", strict=False),
            total - timing("prompt_n"),
        ),
        "output_tokens": made,
        "ttft_us": prefill,
        "e2e_us": prefill + decode,
        "prefill_us": prefill,
        "decode_us": decode,
        "vantage": pl.lit("server"),
    }
    # The pieces of a native stream have no id.
    piece = (~raw.boolean("stop")).fill_null(False)
    without = (
        pl.when(~pl.col("_timed")).then(pl.lit("no_timings")).when(piece).then(pl.lit("not_final"))
    )
    fields: dict[str, Field] = {
        "ttft_us": Field(
            "timings.prompt_ms",
            "ms",
            mark("from the slot's start to the first token: queueing for a slot is not in it"),
            "derived",
        ),
        "e2e_us": Field("timings.prompt_ms + predicted_ms", "ms", mark("in the slot"), "derived"),
        "prefill_us": Field(
            "timings.prompt_ms", "ms", mark("with several slots, others' work too")
        ),
        "decode_us": Field("timings.predicted_ms", "ms", mark("first to last token")),
        "input_tokens": Field(
            "usage.prompt_tokens, or timings.cache_n + prompt_n",
            "tokens",
            mark("cached ones are in it"),
        ),
        "cached_tokens": Field(
            "timings.cache_n, or usage, or input - prompt_n", "tokens", mark("kept in the slot")
        ),
        "output_tokens": Field("timings.predicted_n", "tokens", mark("the first token is counted")),
    }
    if has_created:
        fields["start"] = Field(
            "created - timings",
            "s",
            mark("created is when the answer was built, in whole seconds"),
            "derived",
        )
    notes = (
        tr(
            "llama.cpp timings start in the slot: time to first token is the prefill alone, "
            "without any wait for a slot"
        ),
    )
    return Batch(raw.select(columns, reject=without), fields, notes)


READER = Reader(
    "llamacpp",
    "llama.cpp llama-server log, or responses with timings",
    (Shape.TEXT, Shape.JSON),
    _recognise,
    _plan,
    lacks=mark(
        "the llama.cpp server log has no session, and shows arrivals and cached tokens only when "
        "llama-server runs with -lv 4 --log-timestamps --log-prefix"
    ),
)
