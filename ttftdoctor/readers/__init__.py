"""The contract of a reader: one log format, one file.

To add a format:

1. ``readers/NAME.py`` with ``READER = Reader("NAME", ...)``; its docstring says what writes this
   log and what the log cannot tell.
2. ``sample_logs/NAME.EXT``, ten to fifty requests, claimed by this reader and by no other.
3. ``tests/golden/readers/NAME.csv``, written by ``pytest --update-golden`` and read by a person.

A reader declares the raw fields it uses; nothing about types is guessed from the first rows.
JSON fields arrive as text (nested ones as JSON text), so that ``"12"``, ``12`` and ``null`` in
one column are all told apart; :class:`Raw` turns them into numbers and instants by the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, REJECT, Field
from ttftdoctor.units import US_PER

#: Texts that stand for "no value" in JSON strings and CSV cells.
NO_VALUE = ("", "null", "none", "nil", "-", "n/a", "na", "undefined")

_NUMBER_WITH_UNIT = (
    r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
    r"(ns|us|µs|μs|ms|milliseconds|msec|s|sec|secs|seconds|min|m|h)\s*$"
)


@dataclass(frozen=True)
class Options:
    """What the user said about the log.

    ``columns`` maps a canonical column to a raw field; ``units`` a raw field or canonical column
    to its unit; ``timezone`` is for stamps that carry none.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    timezone: str = "UTC"


@dataclass(frozen=True)
class Batch:
    """What a reader made of some raw rows.

    ``frame`` has ``line`` and any canonical columns, ``reject`` (why a row cannot be a request)
    and ``ttft_set_aside`` (why its TTFT must not be used). ``fields`` tells where each canonical
    column came from; ``notes`` are sentences for the report.
    """

    frame: pl.DataFrame
    fields: Mapping[str, Field]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """How one log will be read.

    ``schema`` names the raw fields (name to Polars type; text unless nested); for the ``TEXT``
    shape the raw frame has ``line`` and ``text`` and the schema stays empty. ``whole`` asks for
    all rows in one frame, because one request is spread over several. ``unwrap`` is where the
    records lie inside a single document (see :class:`ttftdoctor.sources.Head`). ``context`` of
    that document is kept by the reader in the closure of ``convert``.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Raw], Batch]
    whole: bool = False
    unwrap: str | None = None


@dataclass(frozen=True)
class Reader:
    """One log format.

    ``recognise`` returns the evidence, as a sentence, or None. ``generic`` readers are asked only
    when no other claims the log. ``lacks`` says in one sentence what this log cannot tell and how
    to switch it on.
    """

    name: str
    title: str
    shapes: tuple[Shape, ...]
    recognise: Callable[[Head], str | None]
    plan: Callable[[Head, Options], Plan]
    lacks: str = ""
    generic: bool = False


class Raw:
    """A raw frame and the ways to read its columns; remembers which cells made no sense.

    All methods return Polars expressions. ``problems`` names, per row, the first cell that had a
    value which could not be read as asked; :meth:`select` puts it into ``reject``.
    """

    def __init__(self, frame: pl.DataFrame, options: Options | None = None) -> None:
        self.frame = frame
        self.options = options or Options()
        self._problems: list[tuple[pl.Expr, str]] = []

    def has(self, name: str) -> bool:
        """Whether the raw frame has the column at all."""
        return name in self.frame.columns

    def text(self, name: str, path: str | None = None) -> pl.Expr:
        """The column as text; spellings of "no value" become null.

        ``path`` is a JSONPath (``$.a.b``) into a column that holds JSON text.
        """
        if not self.has(name):
            return pl.lit(None, dtype=pl.String)
        dtype = self.frame.schema[name]
        expr = pl.col(name)
        if path is not None:
            expr = expr.str.json_path_match(path)
        elif dtype != pl.String:
            return expr.cast(pl.String, strict=False)
        expr = expr.str.strip_chars()
        return pl.when(~expr.str.to_lowercase().is_in(NO_VALUE)).then(expr)

    def number(self, name: str, path: str | None = None, *, strict: bool = True) -> pl.Expr:
        """The column as Float64. With ``strict`` a cell that is no finite number rejects its row
        (``wrong_type:NAME``, ``not_a_number:NAME``); otherwise it becomes null.
        """
        if self.has(name) and path is None and self.frame.schema[name].is_numeric():
            value = pl.col(name).cast(pl.Float64)
            given = pl.col(name).is_not_null()
        else:
            text = self.text(name, path)
            value = text.cast(pl.Float64, strict=False)
            given = text.is_not_null()
        return self._finite(value, given, name, strict)

    def _finite(self, value: pl.Expr, given: pl.Expr, name: str, strict: bool) -> pl.Expr:
        finite = value.is_finite().fill_null(False)
        if strict:
            self._problems.append((given & value.is_null(), f"wrong_type:{name}"))
            self._problems.append((value.is_not_null() & ~finite, f"not_a_number:{name}"))
        return pl.when(finite).then(value)

    def count(self, name: str, path: str | None = None, *, strict: bool = True) -> pl.Expr:
        """The column as a whole number (Int64), rounded; out of range becomes null."""
        value = self.number(name, path, strict=strict)
        return value.round(0).cast(pl.Int64, strict=False)

    def exact(self, name: str, path: str | None = None) -> pl.Expr:
        """The column as Int64 without passing through a float (nanosecond stamps)."""
        if self.has(name) and path is None and self.frame.schema[name].is_integer():
            return pl.col(name).cast(pl.Int64, strict=False)
        text = self.text(name, path)
        value = text.cast(pl.Int64, strict=False)
        return pl.coalesce(value, text.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False))

    def duration(
        self, name: str, unit: str, path: str | None = None, *, strict: bool = True
    ) -> pl.Expr:
        """A duration in microseconds (Int64). A cell may carry its own unit (``49.3s``)."""
        if self.has(name) and path is None and self.frame.schema[name].is_numeric():
            value = pl.col(name).cast(pl.Float64) * US_PER[unit]
            given = pl.col(name).is_not_null()
        else:
            text = self.text(name, path)
            plain = text.cast(pl.Float64, strict=False) * US_PER[unit]
            number = text.str.extract(_NUMBER_WITH_UNIT, 1).cast(pl.Float64, strict=False)
            word = text.str.extract(_NUMBER_WITH_UNIT, 2)
            factor = word.replace_strict(_FACTORS, default=None, return_dtype=pl.Float64)
            value = pl.coalesce(plain, number * factor)
            given = text.is_not_null()
        value = self._finite(value, given, name, strict)
        return value.round(0).cast(pl.Int64, strict=False)

    def instant(
        self, name: str, unit: str | None = None, path: str | None = None, *, strict: bool = True
    ) -> pl.Expr:
        """An instant in microseconds since 1970 (or since the log's own origin).

        A number is read in ``unit``, or, without one, by its size as epoch seconds, ms, µs or ns;
        a text as ISO 8601, with the time zone of the options where it carries none.
        """
        dtype = self.frame.schema.get(name) if path is None else pl.String
        if dtype is not None and isinstance(dtype, pl.Datetime):
            stamp = pl.col(name)
            if dtype.time_zone is None:
                stamp = stamp.dt.replace_time_zone(self.options.timezone)
            return stamp.dt.epoch("us")
        if dtype is not None and dtype.is_numeric():
            number = pl.col(name)
            given = pl.col(name).is_not_null()
            iso: pl.Expr = pl.lit(None, dtype=pl.Int64)
        else:
            text = self.text(name, path)
            given = text.is_not_null()
            number = pl.coalesce(
                text.cast(pl.Int64, strict=False).cast(pl.Float64),
                text.cast(pl.Float64, strict=False),
            )
            exact = text.cast(pl.Int64, strict=False)
            iso = self._iso(text)
            value = self._epoch(number, exact, unit)
            value = pl.coalesce(value, iso)
            if strict:
                self._problems.append((given & value.is_null(), f"wrong_type:{name}"))
            return value
        value = self._epoch(
            number.cast(pl.Float64),
            number.cast(pl.Int64, strict=False) if dtype.is_integer() else pl.lit(None, pl.Int64),
            unit,
        )
        return value

    def _epoch(self, number: pl.Expr, exact: pl.Expr, unit: str | None) -> pl.Expr:
        finite = pl.when(number.is_finite()).then(number)
        if unit is not None and unit != "ns":
            return (finite * US_PER[unit]).round(0).cast(pl.Int64, strict=False)
        if unit == "ns":
            return pl.coalesce(exact // 1000, (finite / 1000).round(0).cast(pl.Int64, strict=False))
        size = finite.abs()
        return (
            pl.when(size >= 1e17)
            .then(pl.coalesce(exact // 1000, (finite / 1e3).round(0).cast(pl.Int64, strict=False)))
            .when(size >= 1e14)
            .then(pl.coalesce(exact, finite.round(0).cast(pl.Int64, strict=False)))
            .when(size >= 1e11)
            .then((finite * 1e3).round(0).cast(pl.Int64, strict=False))
            .otherwise((finite * 1e6).round(0).cast(pl.Int64, strict=False))
        )

    def _iso(self, text: pl.Expr) -> pl.Expr:
        clean = text.str.replace(" UTC", "Z", literal=True).str.replace(r"Z$", "+00:00")
        # Polars keeps at most nanoseconds; seven fractional digits (Azure) are fine for it.
        zoned = clean.str.replace(r"^(\d{4}-\d\d-\d\d) ", "${1}T").str.replace(
            r"([+-]\d\d)(\d\d)$", "${1}:${2}"
        )
        # PostgreSQL writes whole-hour zones as two digits.
        zoned = zoned.str.replace(r"(:\d\d(?:\.\d+)?[+-]\d\d)$", "${1}:00")
        with_zone = pl.when(zoned.str.contains(r"[+-]\d\d:\d\d$")).then(zoned)
        naive = pl.when(~zoned.str.contains(r"[+-]\d\d:\d\d$")).then(zoned)
        aware = pl.coalesce(
            with_zone.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", strict=False),
            with_zone.str.to_datetime("%Y-%m-%dT%H:%M%:z", time_unit="us", strict=False),
        ).dt.epoch("us")
        local = (
            pl.coalesce(
                naive.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False),
                naive.str.to_datetime("%Y%m%d-%H%M%S", time_unit="us", strict=False),
            )
            .dt.replace_time_zone(self.options.timezone, ambiguous="earliest", non_existent="null")
            .dt.epoch("us")
        )
        return pl.coalesce(aware, local)

    def boolean(self, name: str, path: str | None = None) -> pl.Expr:
        """True/false in any usual spelling; anything else is null."""
        if self.has(name) and path is None and self.frame.schema[name] == pl.Boolean:
            return pl.col(name)
        text = self.text(name, path).str.to_lowercase()
        return (
            pl.when(text.is_in(["true", "1", "yes", "t", "1.0"]))
            .then(True)
            .when(text.is_in(["false", "0", "no", "f", "0.0"]))
            .then(False)
        )

    def select(
        self,
        columns: Mapping[str, pl.Expr],
        *,
        reject: pl.Expr | None = None,
        set_aside: pl.Expr | None = None,
    ) -> pl.DataFrame:
        """Build the canonical frame; a reader's own ``reject`` comes before unreadable cells."""
        verdict: Any = pl.when(pl.lit(False)).then(pl.lit(None, dtype=pl.String))
        for test, name in self._problems:
            verdict = verdict.when(test.fill_null(False)).then(pl.lit(name))
        problem = verdict.otherwise(pl.lit(None, dtype=pl.String))
        first = problem if reject is None else pl.coalesce(reject, problem)
        aside = pl.lit(None, dtype=pl.String) if set_aside is None else set_aside
        # Lazily, so that an expression that several columns share is worked out once.
        return (
            self.frame.lazy()
            .select(
                pl.col(LINE),
                *(expr.alias(name) for name, expr in columns.items()),
                first.alias(REJECT),
                aside.alias("ttft_set_aside"),
            )
            .collect()
        )


_FACTORS = {
    "ns": US_PER["ns"],
    "us": 1.0,
    "µs": 1.0,
    "μs": 1.0,
    "ms": US_PER["ms"],
    "milliseconds": US_PER["ms"],
    "msec": US_PER["ms"],
    "s": US_PER["s"],
    "sec": US_PER["s"],
    "secs": US_PER["s"],
    "seconds": US_PER["s"],
    "min": US_PER["min"],
    "m": US_PER["min"],
    "h": US_PER["h"],
}


def status_of(text: pl.Expr) -> pl.Expr:
    """Map the usual words and HTTP codes to ok, error, aborted or rate_limited."""
    word = text.str.to_lowercase().str.strip_chars().str.replace(r"\.0$", "")
    code = word.str.extract(r"^(\d{3})$", 1).cast(pl.Int64, strict=False)
    return (
        pl.when(word.is_null())
        .then(None)
        .when((code == 429) | word.str.contains(r"rate.?limit|too.?many|throttl"))
        .then(pl.lit("rate_limited"))
        .when((code == 499) | word.str.contains(r"cancel|abort|disconnect"))
        .then(pl.lit("aborted"))
        .when(
            ((code >= 200) & (code < 400)).fill_null(False)
            | word.is_in(
                [
                    "ok",
                    "success",
                    "succeeded",
                    "successful",
                    "completed",
                    "complete",
                    "done",
                    "true",
                    "1",
                    "stop",
                    "length",
                    "finished",
                    "status_code_ok",
                    "unset",
                    "0",
                ]
            )
        )
        .then(pl.lit("ok"))
        .otherwise(pl.lit("error"))
    )
