"""What rows can be selected and compared by: columns of the log and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from ttftdoctor.intake import Log
from ttftdoctor.language import mark, tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.measure.lines import tpot
from ttftdoctor.measure.load import Load, load_of
from ttftdoctor.measure.rows import Array, Index, Mask, Rows, prepare
from ttftdoctor.stats import or_zero

#: Other names of a column: the canonical ones, and what people write.
ALIASES: dict[str, str] = {
    "ttft_us": "ttft", "ttft_s": "ttft", "ttft_ms": "ttft", "e2e_us": "e2e", "latency": "e2e",
    "input_tokens": "input", "prompt_tokens": "input", "cached_tokens": "cached",
    "uncached_tokens": "uncached", "output_tokens": "output", "reasoning_tokens": "reasoning",
    "cache_write_tokens": "cache_write", "queue_us": "queue", "prefill_us": "prefill",
    "decode_us": "decode", "load_us": "load", "session_id": "session", "request_id": "request",
    "start_us": "start", "time": "start",
}  # fmt: skip

#: How one column comes out of another.
INSIDE, CONTAINS = mark("inside {column}"), mark("contains {column}")
PART, FROM, GROWS = mark("part of {column}"), mark("from {column}"), mark("grows with {column}")
AT_MOST, AT_LEAST = mark("at most {column}"), mark("at least {column}")

#: Selecting by a column selects by these as well: they contain it, are inside it, or follow from
#: it. The words say which; ``column`` in them is the one that was selected by.
RESTATES: dict[str, dict[str, str]] = {
    "ttft": {"e2e": CONTAINS, "queue": INSIDE, "prefill": INSIDE, "load": INSIDE},
    "e2e": {
        "ttft": INSIDE, "decode": INSIDE, "tpot": FROM, "queue": INSIDE, "prefill": INSIDE,
        "load": INSIDE, "output": mark("e2e grows with it"),
    },
    "queue": {"ttft": CONTAINS, "e2e": CONTAINS},
    "prefill": {"ttft": CONTAINS, "e2e": CONTAINS},
    "load": {"ttft": CONTAINS, "e2e": CONTAINS},
    "decode": {"tpot": mark("decode per token"), "e2e": CONTAINS},
    "tpot": {"decode": mark("tpot times output"), "e2e": mark("contains decode")},
    "output": {"e2e": GROWS, "decode": GROWS},
    "input": {
        "uncached": mark("input less cached"), "cached": AT_MOST, "repeated": AT_MOST,
        "recomputed": AT_MOST,
    },
    "uncached": {
        "input": AT_LEAST, "cached_share": FROM, "cached": mark("input less it"),
        "recomputed": AT_MOST,
    },
    "cached": {"cached_share": FROM, "uncached": mark("input less cached"), "recomputed": FROM},
    "cached_share": {
        "cached": mark("from it"), "uncached": mark("from it"), "recomputed": mark("from it"),
    },
    "repeated": {"recomputed": mark("repeated less cached")},
    "recomputed": {"repeated": AT_LEAST, "uncached": AT_LEAST},
    "start": {"hour": FROM, "weekday": FROM},
    "hour": {"start": mark("hour is from it")},
    "running": {"waiting": PART, "decoding": PART},
    "waiting": {"running": CONTAINS, "backlog": mark("the prompts of the waiting")},
    "decoding": {"running": CONTAINS},
    "backlog": {
        "waiting": mark("whose prompts it counts"), "running": mark("contains the waiting"),
    },
}  # fmt: skip

#: More different values than this, and more than one for ``ROWS_A_VALUE`` rows, are ids.
MOST_VALUES = 50
ROWS_A_VALUE = 5
#: Values that are selected by, as those of a log are: they are not translated.
#: Days of the week by their place in it.
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Unit = Literal["s", "tokens", "share", "count", "instant", "text"]


@dataclass(frozen=True)
class Number:
    """A column of numbers, (n,), NaN where unknown. ``ranked`` is false where only selected by."""

    name: str
    unit: Unit
    meaning: str
    values: Array
    after: bool = False
    ranked: bool = True

    def numbers(self) -> Array:
        """The values."""
        return self.values

    def is_any(self, texts: Sequence[str]) -> Mask:  # noqa: ARG002  (as a column of texts)
        """No number is a text."""
        return np.zeros(len(self.values), dtype=bool)

    def known(self) -> Mask:
        """Rows with a value."""
        known: Mask = np.isfinite(self.values)
        return known


@dataclass(frozen=True)
class Text:
    """A column of texts; ``codes`` are numbered by the rows of ``names``, -1 where unknown."""

    name: str
    meaning: str
    series: pl.Series
    ranked: bool = True
    after: bool = False
    unit: Unit = "text"

    def numbers(self) -> Array:
        """No text is a number."""
        return np.full(len(self.series), np.nan)

    def is_any(self, texts: Sequence[str]) -> Mask:
        """Rows with one of the texts; a row without a text has none of them."""
        return self.series.is_in(list(texts)).fill_null(False).to_numpy()

    def known(self) -> Mask:
        """Rows with a value."""
        return self.series.is_not_null().to_numpy()

    @cached_property
    def coded(self) -> tuple[Index, pl.Series]:
        """A number for each row (the last for no text) and the texts by number.

        Texts are told apart by hashes of 64 bits.
        """
        hashes = self.series.hash(seed=0).to_numpy()
        _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
        names = self.series.gather(first)
        return codes.astype(np.int64, copy=False), names


@dataclass(frozen=True)
class File(Text):
    """A column of paths, which go by their last names as well."""

    def is_any(self, texts: Sequence[str]) -> Mask:
        """Rows whose path, or the last name of it, is one of the texts."""
        last = self.series.str.split("/").list.last()
        known = self.series.is_in(list(texts)) | last.is_in(list(texts))
        return known.fill_null(False).to_numpy()


@dataclass(frozen=True)
class Table:
    """All columns of a log, in order of start; ``cluster`` numbers sessions from 0.

    A row without a session is a cluster of its own. ``absent`` are all columns that the log does
    not tell, ``lacking`` those of them that a log may hold.
    """

    n: int
    rows: Rows
    numbers: dict[str, Number]
    texts: dict[str, Text]
    cluster: Index
    lacking: tuple[str, ...]
    absent: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def named(self) -> dict[str, Number | Text]:
        """Every column by name; a number goes before a text of the same name."""
        texts = {name: text for name, text in self.texts.items() if name not in self.numbers}
        return {**self.numbers, **texts}


def columns_of(log: Log) -> Table:
    """Work out every column that the log tells."""
    frame = log.requests
    # The place in the table stands for the line: it finds the rest of the row after sorting.
    rows = prepare(frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("line")))
    figures = numbers_of(rows, len(log.inputs))
    words = texts_of(log, frame, rows)
    every_column: tuple[Number | Text, ...] = (*figures, *words)
    numbers = {c.name: c for c in figures if np.isfinite(c.values).any()}
    texts = {c.name: c for c in words if c.series.null_count() < len(c.series)}
    named = numbers.keys() | texts.keys()
    every = ("ttft", "input", "cached", "output", "e2e", "session", "turn", "start", "replica",
             "model", "tenant", "route", "version", "queue", "attempts", "reasoning")  # fmt: skip
    have = named | ({"session"} if rows.session_grade == "linked" else set())
    notes = list(rows.notes)
    if manner().timezone is not None and rows.epoch_us is not None:
        notes.append(tr("times and hours are those of {zone}", zone=_zone()))
    if "backlog" in numbers and not rows.cached_logged:
        notes.append(tr("backlog counts whole prompts: the log does not say what was cached"))
    return Table(
        n=rows.n,
        rows=rows,
        numbers=numbers,
        texts=texts,
        cluster=_clusters(rows.session),
        lacking=tuple(name for name in every if name not in have),
        absent=tuple(c.name for c in every_column if c.name not in named),
        notes=tuple(notes),
    )


def _clusters(session: Index) -> Index:
    """Sessions numbered without gaps, every row without one by itself."""
    own = session.copy()
    alone = np.flatnonzero(session < 0)
    own[alone] = (session.max() if len(session) else 0) + 1 + np.arange(len(alone))
    _, codes = np.unique(own, return_inverse=True)
    return codes.astype(np.int64, copy=False)


def numbers_of(rows: Rows, files: int) -> list[Number]:
    """The columns of numbers, of rows of a log of so many files."""
    load = _load(rows)
    cached = rows.cached if rows.cached_logged else np.full(rows.n, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(rows.inputs > 0, cached / rows.inputs, np.nan)
    # A wait since the last answer is none where the next request came before it.
    gap = np.maximum(rows.gap, 0.0)
    idle = np.where(np.isfinite(load.idle), load.idle, np.nan)
    reuse = rows.reuse_grade != "none"
    nothing = np.full(rows.n, np.nan)
    # Relative clocks of several files do not start together.
    timed = rows.order_known and (rows.epoch_us is not None or files == 1)
    return [
        Number("ttft", "s", tr("time to first token"), rows.ttft),
        Number("e2e", "s", tr("time to last token"), rows.e2e, after=True),
        Number("tpot", "s", tr("time per output token after the first"), tpot(rows), after=True),
        Number("queue", "s", tr("queue time, as the server says"), rows.queue),
        Number("prefill", "s", tr("prefill time, as the server says"), rows.prefill),
        Number("decode", "s", tr("decode time, as the server says"), rows.decode, after=True),
        Number("load", "s", tr("time to load the model, as the server says"), rows.load),
        Number("input", "tokens", tr("prompt tokens, cached ones included"), rows.inputs),
        Number("uncached", "tokens", tr("prompt tokens not served from a cache"),
               rows.inputs - cached),
        Number("cached", "tokens", tr("prompt tokens served from a cache"), cached),
        Number("cached_share", "share", tr("part of the prompt served from a cache"), part),
        Number("cache_write", "tokens", tr("prompt tokens written to a cache"), rows.written),
        Number("repeated", "tokens", tr("prompt tokens an earlier request had computed"),
               rows.repeated if reuse else nothing),
        Number("recomputed", "tokens", tr("repeated prompt tokens that were computed again"),
               rows.repeated - cached if reuse else nothing),
        Number("output", "tokens", tr("tokens generated"), rows.outputs, after=True),
        Number("reasoning", "tokens", tr("tokens of hidden thinking"), rows.reasoning, after=True),
        Number("turn", "count", tr("place in the session"),
               rows.turn if rows.session_grade != "none" else nothing),
        Number("gap", "s", tr("idle time since the session's last answer"), gap),
        Number("backlog", "tokens", tr("uncached tokens ahead at arrival, same server"),
               load.backlog),
        Number("running", "count", tr("requests in flight at arrival, same server"), load.running),
        Number("waiting", "count", tr("of these, without a first token yet"), load.waiting),
        Number("decoding", "count", tr("of these, between first and last token"), load.decoding),
        Number("server_idle", "s", tr("time the server had had nothing to do"), idle),
        Number("attempts", "count", tr("tries behind the request"), rows.attempts),
        Number("start", "instant", tr("when the request arrived"),
               rows.start if timed else nothing),
        Number("hour", "count", tr("hour of the day, {zone}", zone=_zone()), _hours(rows),
               ranked=False),
    ]  # fmt: skip


def _zone() -> str:
    return manner().timezone or "UTC"


def _load(rows: Rows) -> Load:
    """The load at arrival; its backlog in uncached tokens."""
    nobody = np.zeros(rows.n)
    if not rows.order_known:
        nan = np.full(rows.n, np.nan)
        return Load(nan, nan, nan, nan, nan)
    work = or_zero(rows.uncached)
    found = load_of(rows, work, nobody)
    if not np.isfinite(rows.inputs).any():
        return Load(found.waiting, found.decoding, nobody * np.nan, nobody, found.idle)
    return found


def _hours(rows: Rows) -> Array:
    if rows.epoch_us is None:
        return np.full(rows.n, np.nan)
    return hours(rows.start, rows.epoch_us)


def hours(start: Array, epoch_us: int) -> Array:
    """The hour of the day, 0 to 23, that clocks in the zone of this run show, (n,).

    ``start`` is in seconds since ``epoch_us``; NaN, where it is not known, stays NaN.
    """
    if manner().timezone is None:
        return np.floor((start + epoch_us / 1e6) % 86400 / 3600)
    return _shown(start, epoch_us).dt.hour().cast(pl.Float64).to_numpy()


def weekdays(start: Array, epoch_us: int) -> Array:
    """The day of the week, 0 for Monday, as :func:`hours` gives the hour."""
    if manner().timezone is None:
        return np.floor((start + epoch_us / 1e6) / 86400 + 3) % 7
    return _shown(start, epoch_us).dt.weekday().cast(pl.Float64).to_numpy() - 1


def _shown(start: Array, epoch_us: int) -> pl.Series:
    """Moments by the clocks of the zone of this run."""
    moments = (pl.Series(start, nan_to_null=True) * 1e6).round().cast(pl.Int64) + epoch_us
    stamps = moments.cast(pl.Datetime("us", "UTC"))
    return stamps.dt.convert_time_zone(_zone())


def texts_of(log: Log, frame: pl.DataFrame, rows: Rows) -> list[Text]:
    """The columns of texts, of rows in the order of ``frame``."""

    def logged(column: str) -> pl.Series:
        values = frame[column]
        if values.null_count() == len(values):
            return pl.Series([None], dtype=pl.String).extend_constant(None, max(rows.n - 1, 0))
        return values.gather(rows.line)

    def numbered(values: Array, names: Sequence[str]) -> pl.Series:
        known = np.isfinite(values)
        index = pl.Series(np.where(known, values, 0).astype(np.int64))
        texts = pl.Series(list(names), dtype=pl.String).gather(index)
        return texts.set(pl.Series(~known), None)

    streamed = logged("streamed").cast(pl.Float64).to_numpy()
    days = np.full(rows.n, np.nan)
    known = rows.start[np.isfinite(rows.start)]
    if rows.epoch_us is not None and len(known) and np.ptp(known) > 86400:
        days = weekdays(rows.start, rows.epoch_us)
    status = logged("status")
    if status.null_count() < len(status):
        status = status.fill_null("ok")
    source = pl.Series([record.path for record in log.inputs], dtype=pl.String)
    file = source.gather(logged("source").cast(pl.Int64))
    return [
        Text("model", tr("model that answered"), logged("model")),
        Text("replica", tr("server instance that did the prefill"), logged("replica")),
        Text("tenant", tr("customer, team or key"), logged("tenant")),
        Text("route", tr("path, gateway or endpoint"), logged("route")),
        Text("version", tr("build or release"), logged("version")),
        Text("hour", tr("hour of the day, {zone}", zone=_zone()),
             numbered(_hours(rows), [f"{h:02d}:00" for h in range(24)])),
        Text("weekday", tr("day of the week, {zone}", zone=_zone()), numbered(days, DAYS)),
        Text("moved", tr("whether the replica is another than in the turn before"),
             numbered(rows.moved, ("no", "yes"))),
        Text("streamed", tr("whether the answer was streamed"), numbered(streamed, ("no", "yes"))),
        Text("status", tr("how the request ended"), status, after=True),
        Text("vantage", tr("where the clock stood"), logged("vantage")),
        File("file", tr("the file the row is from"), file),
        Text("session", tr("conversation"), logged("session_id"), ranked=False),
        Text("request", tr("the request's own id"), logged("request_id"), ranked=False),
    ]  # fmt: skip
