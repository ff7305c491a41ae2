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

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from ttftdoctor.mapping import MappingFile
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, REJECT, UNREAD, Field
from ttftdoctor.units import US_PER

#: Texts that stand for "no value" in JSON strings and CSV cells.
NO_VALUE = ("", "null", "none", "nil", "-", "n/a", "na", "undefined")

#: The first and the last second of the calendar that Polars and Python share (years 1 to 9999).
CALENDAR = (-62_135_596_800, 253_402_300_799)
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_INT_LIMIT = 2.0**63

#: From this many rows on, columns are looked at before they are read, to read them faster.
LARGE = 2000

_NUMBER_WITH_UNIT = (
    r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
    r"(ns|us|µs|μs|ms|milliseconds|msec|s|sec|secs|seconds|min|m|h)\s*$"
)


@dataclass
class Clock:
    """Stamps that were read in a zone which they do not name.

    Of the ``read`` ones the clocks of the zone show ``twice`` so many; ``never`` were shown.
    """

    read: int = 0
    twice: int = 0
    never: int = 0


@dataclass(frozen=True)
class Options:
    """What the user said about the log.

    ``columns`` maps a canonical column to a raw field; ``units`` a raw field or canonical column
    to its unit; ``mapping`` is a file that says so for every run (the former win); ``timezone``
    is for stamps that carry none, ``zoned`` says who named it, and ``clock`` counts where it leaves
    a stamp open. ``text`` asks for the prompts themselves (``Batch.prompts``); ``tokenizer`` is the
    path of a local tokenizer file, and ``bytes_per_token`` the measure by which text is cut where
    there is none (by default calibrated on the log). ``query`` is what a database is asked.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    timezone: str = "UTC"
    zoned: str | None = None
    clock: Clock = field(default_factory=Clock, compare=False)
    mapping: MappingFile | None = None
    text: bool = False
    tokenizer: str | None = None
    bytes_per_token: float | None = None
    query: str | None = None


@dataclass(frozen=True)
class Batch:
    """What a reader made of some raw rows.

    ``frame`` has ``line`` and any canonical columns, ``reject`` (why a row cannot be a request)
    and ``ttft_set_aside`` (why its TTFT must not be used). ``fields`` tells where each canonical
    column came from; ``notes`` are sentences for the report. ``prompts`` is None unless
    ``Options.text`` asks for it; it has ``line`` and ``parts``, the rendered prompt in pieces (see
    :mod:`ttftdoctor.prompts`). ``bytes_per_token`` is the measure by which text was cut.
    """

    frame: pl.DataFrame
    fields: Mapping[str, Field]
    notes: tuple[str, ...] = ()
    prompts: pl.DataFrame | None = None
    bytes_per_token: float | None = None


@dataclass(frozen=True)
class Plan:
    """How one log will be read.

    ``schema`` names the raw fields (name to Polars type; text unless nested); for the ``TEXT``
    shape the raw frame has ``line`` and ``text`` and the schema stays empty. ``whole`` asks for
    all rows in one frame, because one request is spread over several. ``unwrap`` is where the
    records lie inside a single document (see :class:`ttftdoctor.sources.Head`). ``context`` of
    that document is kept by the reader in the closure of ``convert``. ``numbers`` names fields
    (name to numeric type) that hold only numbers as far as seen, which are read faster as such;
    where one holds anything else, it arrives by its type in ``schema``. ``used`` are the labels
    of all fields that are read, where the reader takes any field by its name.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Raw], Batch]
    whole: bool = False
    unwrap: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    used: frozenset[str] | None = None


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
        self._unread: dict[str, pl.Expr] = {}
        self._texts: dict[str, pl.Series] = {}
        self._clocks: list[tuple[pl.Expr, pl.Expr, pl.Expr]] = []

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
        if path is not None:
            # A column of Parquet that is no text, list or struct has nothing inside.
            inside = pl.col(name) if dtype == pl.String else pl.lit(None, dtype=pl.String)
            return _value(inside.str.json_path_match(path))
        if isinstance(dtype, pl.Datetime):
            return _in_calendar(name, dtype).cast(pl.String)
        if dtype != pl.String:
            return pl.col(name).cast(pl.String, strict=False)
        if self.frame.height < LARGE:
            return _value(pl.col(name))
        if name not in self._texts:
            self._texts[name] = _values(self.frame[name])
        return pl.lit(self._texts[name])

    def each(self, text: pl.Expr, work: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
        """``work`` done on a text; in a large frame once for each different text.

        Only for work that makes null of null.
        """
        if self.frame.height < LARGE:
            return work(text)
        return pl.lit(_by_value(self.frame.select(text).to_series(), work))

    def number(self, name: str, path: str | None = None, *, strict: bool = True) -> pl.Expr:
        """The column as Float64. With ``strict`` a cell that is no finite number rejects its row
        (``wrong_type:NAME``, ``not_a_number:NAME``); otherwise it becomes null.
        """
        if self.has(name) and path is None and self.frame.schema[name].is_numeric():
            value = pl.col(name).cast(pl.Float64)
            given = pl.col(name).is_not_null()
        elif (plain := self._plain(name, path)) is not None:
            value, given = pl.lit(plain), pl.lit(plain).is_not_null()
        else:
            text = self.text(name, path)
            value = text.cast(pl.Float64, strict=False)
            given = text.is_not_null()
        return self._finite(value, given, name, strict, path)

    def _plain(self, name: str, path: str | None) -> pl.Series | None:
        """The numbers of a large column of text that holds nothing but plain numbers."""
        if path is not None or not self.has(name) or self.frame.height < LARGE:
            return None
        texts = self.frame[name]
        if (
            texts.dtype != pl.String
            or texts.head(LARGE).cast(pl.Float64, strict=False).is_null().any()
        ):
            return None
        numbers = texts.cast(pl.Float64, strict=False)
        return numbers if numbers.null_count() == texts.null_count() else None

    def _lost(self, name: str, path: str | None, test: pl.Expr) -> None:
        """Remember the cells of a column that hold a value of which nothing can be made."""
        label = name if path is None else name + path[1:]
        known = self._unread.get(label)
        self._unread[label] = test if known is None else known | test

    def _finite(
        self, value: pl.Expr, given: pl.Expr, name: str, strict: bool, path: str | None
    ) -> pl.Expr:
        finite = value.is_finite().fill_null(False)
        if not strict:
            self._lost(name, path, given & ~finite)
        if strict:
            self._problems.append((given & value.is_null(), f"wrong_type:{name}"))
            self._problems.append((value.is_not_null() & ~finite, f"not_a_number:{name}"))
        return pl.when(finite).then(value)

    def count(self, name: str, path: str | None = None, *, strict: bool = True) -> pl.Expr:
        """The column as a whole number (Int64), rounded; one out of range is of a wrong type."""
        return self._whole(self.number(name, path, strict=strict), name, path, strict)

    def _whole(self, value: pl.Expr, name: str, path: str | None, strict: bool) -> pl.Expr:
        outside = value.abs() >= _INT_LIMIT
        if strict:
            self._problems.append((outside, f"wrong_type:{name}"))
        else:
            self._lost(name, path, outside)
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
        elif (numbers := self._plain(name, path)) is not None:
            value, given = pl.lit(numbers) * US_PER[unit], pl.lit(numbers).is_not_null()
        else:
            text = self.text(name, path)
            plain = text.cast(pl.Float64, strict=False) * US_PER[unit]
            number = text.str.extract(_NUMBER_WITH_UNIT, 1).cast(pl.Float64, strict=False)
            word = text.str.extract(_NUMBER_WITH_UNIT, 2)
            factor = word.replace_strict(_FACTORS, default=None, return_dtype=pl.Float64)
            value = pl.coalesce(plain, number * factor)
            given = text.is_not_null()
        value = self._finite(value, given, name, strict, path)
        return self._whole(value, name, path, strict)

    def instant(
        self, name: str, unit: str | None = None, path: str | None = None, *, strict: bool = True
    ) -> pl.Expr:
        """An instant in microseconds since 1970 (or since the log's own origin).

        A number is read in ``unit``, or, without one, by its size as epoch seconds, ms, µs or ns;
        a text as ISO 8601, with the time zone of the options where it carries none.
        """
        dtype = self.frame.schema.get(name) if path is None else pl.String
        if dtype is not None and isinstance(dtype, pl.Datetime):
            stamp = _in_calendar(name, dtype)
            self._lost(name, path, pl.col(name).is_not_null() & stamp.is_null())
            if dtype.time_zone is None:
                stamp = self._zoned(stamp)
            return stamp.dt.epoch("us")
        if dtype is not None and dtype.is_numeric():
            number = pl.col(name)
            given = pl.col(name).is_not_null()
            iso: pl.Expr = pl.lit(None, dtype=pl.Int64)
        else:
            text = self.text(name, path)
            if self.frame.height >= LARGE:
                texts = self.frame.select(text).to_series()
                stamps = None
                if self.options.timezone == "UTC" or _carry_zone(texts):
                    stamps = read_alike(texts)
                    if stamps is None:
                        stamps = read_one_format(texts)
                if stamps is not None:
                    return pl.lit(stamps)
                text = pl.lit(texts)
                if (plain := self._plain(name, path)) is not None:
                    exact = pl.lit(texts.cast(pl.Int64, strict=False))
                    value = self._epoch(pl.lit(plain), exact, unit)
                    self._lost(name, path, pl.lit(plain).is_not_null() & value.is_null())
                    return value
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
            else:
                self._lost(name, path, given & value.is_null())
            return value
        value = self._epoch(
            number.cast(pl.Float64),
            number.cast(pl.Int64, strict=False) if dtype.is_integer() else pl.lit(None, pl.Int64),
            unit,
        )
        self._lost(name, path, given & value.is_null())
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
        local = self._zoned(
            pl.coalesce(
                naive.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False),
                naive.str.to_datetime("%Y%m%d-%H%M%S", time_unit="us", strict=False),
            )
        ).dt.epoch("us")
        return pl.coalesce(aware, local)

    def _zoned(self, naive: pl.Expr) -> pl.Expr:
        """Stamps without a zone as moments in that of the options.

        A time that the clocks show twice (as they are put back) is taken for the first of the two;
        one that they never show (as they are put forward) is null. Both are counted.
        """
        zone = self.options.timezone
        first = naive.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        if zone != "UTC":
            last = naive.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
            never = naive.is_not_null() & first.is_null()
            self._clocks.append((naive.is_not_null(), first != last, never))
        return first

    def stamp(self, name: str, form: str, path: str | None = None) -> pl.Expr:
        """A text by a format of dates, in microseconds since 1970 (Int64); else null.

        ``form`` is one of Polars' (``%d.%m.%Y %H:%M:%S%.f``). With ``%z`` in it a stamp says its
        offset; without, it is read in the time zone of the options.
        """
        text = self.text(name, path)
        moment = text.str.to_datetime(form, time_unit="us", strict=False)
        zoned = moment if "%z" in form or "%:z" in form else self._zoned(moment)
        value = zoned.dt.epoch("us")
        self._lost(name, path, text.is_not_null() & value.is_null())
        return value

    def boolean(
        self, name: str, path: str | None = None, *, words: Mapping[str, str] | None = None
    ) -> pl.Expr:
        """True/false in any usual spelling; anything else is null.

        ``words`` are other spellings, each for ``true`` or ``false``.
        """
        if self.has(name) and path is None and self.frame.schema[name] == pl.Boolean:
            return pl.col(name)
        text = self.text(name, path)
        if words:
            text = text.replace_strict(dict(words), default=text)
        text = text.str.to_lowercase()
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
        self._count_clocks()
        tests = {f"{UNREAD} {label}": test for label, test in self._unread.items()}
        # Lazily, so that an expression that several columns share is worked out once.
        frame = (
            self.frame.lazy()
            .select(
                pl.col(LINE),
                *(expr.alias(name) for name, expr in columns.items()),
                first.alias(REJECT),
                aside.alias("ttft_set_aside"),
                *(test.fill_null(False).alias(name) for name, test in tests.items()),
            )
            .collect()
        )
        return _name_unread(frame, list(tests))

    def _count_clocks(self) -> None:
        """Count the stamps that were read in a zone, and those that it leaves open."""
        clock = self.options.clock
        for tests in self._clocks:
            sums = self.frame.select(test.sum().alias(str(at)) for at, test in enumerate(tests))
            read, twice, never = (int(n or 0) for n in sums.row(0))
            clock.read += read
            clock.twice += twice
            clock.never += never
        self._clocks = []


def _name_unread(frame: pl.DataFrame, tests: list[str]) -> pl.DataFrame:
    """One text column with the fields of a row that could not be read, instead of a test each.

    There is no such column where all could be read.
    """
    hit = [name for name in tests if frame[name].any()]
    if not hit:
        return frame.drop(tests)
    labels = [pl.when(pl.col(name)).then(pl.lit(name[len(UNREAD) + 1 :])) for name in hit]
    # Joined nulls are an empty text, not null.
    named = pl.concat_str(labels, separator="\n", ignore_nulls=True).replace("", None)
    return frame.with_columns(named.cast(pl.String).alias(UNREAD)).drop(tests)


def _in_calendar(name: str, dtype: pl.Datetime) -> pl.Expr:
    """The column of instants; those that Polars cannot write as a date are null."""
    low, high = (limit * _PER_SECOND[dtype.time_unit] for limit in CALENDAR)
    return pl.when(pl.col(name).to_physical().is_between(low, high)).then(pl.col(name))


def _value(text: pl.Expr) -> pl.Expr:
    """Text without space around it; null for the spellings of "no value"."""
    text = text.str.strip_chars()
    return pl.when(~text.str.to_lowercase().is_in(NO_VALUE)).then(text)


def _values(texts: pl.Series) -> pl.Series:
    """:func:`_value` for a large column: where all texts are long, they are only stripped."""
    if not _recur(texts):
        stripped = texts.str.strip_chars()
        shortest = stripped.str.len_bytes().min()
        if isinstance(shortest, int) and shortest > max(map(len, NO_VALUE)):
            return stripped
    return _by_value(texts, _value)


def _recur(texts: pl.Series) -> bool:
    """Whether a few texts make up the column, by its first rows."""
    return texts.head(LARGE).n_unique() <= LARGE // 10


def _by_value(texts: pl.Series, work: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
    """``work`` on each text; where a few texts recur, on these alone."""
    column = pl.col(texts.name)
    if _recur(texts):
        kinds = texts.unique().drop_nulls()
        if len(kinds) <= LARGE:
            done = kinds.to_frame().select(work(column)).to_series()
            if done.dtype == kinds.dtype and done.equals(kinds, null_equal=True):
                return texts
            return done.gather(texts.cast(pl.Enum(kinds)).to_physical()).alias(texts.name)
    return texts.to_frame().select(work(column)).to_series()


_ALIKE = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.(\d{1,9}))?(?:Z|\+00:00| UTC)?")


def read_alike(texts: pl.Series) -> pl.Series | None:
    """ISO 8601 stamps in UTC that are all written alike, as microseconds since 1970.

    Reads digits instead of formats, which is several times as fast. None where one is missing,
    of another length or shape, before 1970, after 2999 or no moment of the calendar.
    """
    size = texts.str.len_bytes()
    width, longest = size.min(), size.max()
    if texts.null_count() or not isinstance(width, int) or width != longest:
        return None
    shape = _ALIKE.fullmatch(texts[0].encode())
    if shape is None:
        return None
    letters = texts.cast(pl.Binary).bin.reinterpret(dtype=pl.Array(pl.UInt8, width)).to_numpy()
    digits: list[Any] = []
    for letter, column in zip(shape.group(), np.ascontiguousarray(letters.T), strict=True):
        if (column == letter).all():
            digits.append(letter - 48)  # years hardly change: one number for all rows
        elif 48 <= letter < 58 and (column - 48 < 10).all():
            digits.append((column - 48).astype(np.int32))
        else:
            return None

    def number(start: int, stop: int) -> Any:
        out = digits[start]
        for digit in digits[start + 1 : stop]:
            out = out * 10 + digit
        return out

    year, month, day = number(0, 4), number(5, 7), number(8, 10)
    hour, minute, second = number(11, 13), number(14, 16), number(17, 19)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _DAYS[np.minimum(month, 13)] + (leap & (month == 2))
    good = (year >= 1970) & (year < 3000) & (day >= 1) & (day <= last)
    good &= (hour < 24) & (minute < 60) & (second < 60)
    if not np.all(good):
        return None
    # Days since 1970 by counting from March, so that leap days come last.
    march = year - (month < 3)
    days = (
        365 * march + march // 4 - march // 100 + march // 400
        + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469
    )  # fmt: skip
    micro = np.zeros(len(texts), np.int64)
    micro += (days * 24 + hour) * 60 + minute
    micro *= 60
    micro += second
    micro *= 1_000_000
    fraction = shape.group(1)
    if fraction is not None:
        kept = min(len(fraction), 6)
        micro += number(20, 20 + kept) * 10 ** (6 - kept)
    return pl.Series(texts.name, micro)


def _carry_zone(texts: pl.Series) -> bool:
    """Whether every stamp ends in its zone, so that no other is needed."""
    return bool(texts.str.contains(r"(?:Z|UTC|[+-]\d\d:?\d\d)$").all())


_ONE_FORMAT = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(?:\.\d+)?(?:(Z)|[+-](\d\d:\d\d))?")


def read_one_format(texts: pl.Series) -> pl.Series | None:
    """ISO 8601 stamps as microseconds since 1970 by the format of the first; None if one differs.

    The general way tries several formats on each stamp, and knows other zones than UTC.
    """
    filled = texts.drop_nulls()
    shape = _ONE_FORMAT.fullmatch(filled[0]) if len(filled) else None
    if shape is None:
        return None
    space, utc, offset = shape.groups()
    zone = "Z" if utc else "%:z" if offset else ""
    found = texts.str.to_datetime(f"%Y-%m-%d{space}%H:%M:%S%.f{zone}", time_unit="us", strict=False)
    return found.dt.epoch("us") if found.null_count() == texts.null_count() else None


#: Days of the months; none of months 0 and 13, which stand for any other number.
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0])

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
