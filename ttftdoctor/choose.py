"""Which rows of a log are wanted: those of a window of time, those that an expression means.

Everything that a row owes to others (its session, its turn, the load that it met) is worked out on
the whole log; only then are rows left out. So turns do not begin anew at the edge of a window. The
expressions are those of :mod:`ttftdoctor.contrasts.select`.

Rows that are left out are accounted for by reasons of their own, and are no fault of the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.contrasts.columns import ALIASES, Number, Text, columns_of
from ttftdoctor.contrasts.select import Rows as Selectable
from ttftdoctor.contrasts.select import select
from ttftdoctor.diagnosis import NOT_CHOSEN, Input
from ttftdoctor.errors import UsageError
from ttftdoctor.intake import Log
from ttftdoctor.language import tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.measure.rows import Array, Index, Mask, Rows, prepare
from ttftdoctor.table import COVERED, LINE, MOST_SINGLE, REJECT, SET_ASIDE, Field
from ttftdoctor.units import UNIT_WORDS, US_PER
from ttftdoctor.units import count as number
from ttftdoctor.zones import local, moment_of

#: Why a row was left out, in the order in which that is asked; the number is the place.
REASONS = ("", *NOT_CHOSEN)
BEFORE, AFTER, NO_START, NOT, UNKNOWN = range(1, len(REASONS))

#: A clock that shows more has dates; others count from somewhere.
DATED_US = 10**14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = re.compile(r"(\d+\.?\d*|\.\d+)\s*([a-zµμ]+)\s*")
_UNITS = {**{word: US_PER[unit] for word, unit in UNIT_WORDS.items()}, "d": 24 * US_PER["h"]}

#: Columns of requests that failed which the log itself tells; others follow from neighbours.
OWN = (
    "ttft", "e2e", "queue", "prefill", "decode", "load", "input", "uncached", "cached",
    "cached_share", "cache_write", "output", "reasoning", "attempts", "hour", "model", "replica",
    "tenant", "route", "version", "weekday", "streamed", "status", "vantage", "file", "session",
    "request",
)  # fmt: skip


Codes = NDArray[np.int8]
#: Columns by name, and the places of their rows among all rows.
Placed = tuple[Mapping[str, Number | Text], Index]


@dataclass(frozen=True)
class Only:
    """Which rows are wanted; all by default.

    Attributes
    ----------
    since, until
        Rows that start at this moment or later, and before that one: a date or a time in ISO 8601
        (UTC, or the zone of this run, where it names none), ``14:00`` on the last day of the log,
        or ``2h`` before its last row.
    where
        An expression such as ``model == "x" and input > 4000``; see :mod:`.contrasts.select`.
    query
        What a database is asked (``--query``).
    """

    since: str | None = None
    until: str | None = None
    where: str | None = None
    query: str | None = None

    @property
    def every_row(self) -> bool:
        """Whether nothing is said of which rows are wanted."""
        return self.since is None and self.until is None and self.where is None

    def arguments(self) -> list[str]:
        """The same as arguments of a command."""
        given = {"since": self.since, "until": self.until, "where": self.where, "query": self.query}
        return [
            word for name, text in given.items() if text is not None for word in (f"--{name}", text)
        ]


@dataclass(frozen=True)
class Clock:
    """Which of two clocks most rows of a log go by: one with dates, or one that begins somewhere.

    ``used`` are the rows that can be used; of each clock, that without dates first: how many of
    them have a start by it (``used_known``), how many of all rows (``known``), and the first and
    last of these in microseconds (``spans``). The clocks of parts add up to that of the log.
    """

    used: int = 0
    used_known: tuple[int, int] = (0, 0)
    known: tuple[int, int] = (0, 0)
    spans: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None)

    def plus(self, other: Clock) -> Clock:
        """The clock of two parts together."""
        relative, dated = (_spanned(*both) for both in zip(self.spans, other.spans, strict=True))
        return Clock(
            self.used + other.used,
            _added(self.used_known, other.used_known),
            _added(self.known, other.known),
            (relative, dated),
        )

    @property
    def dated(self) -> bool:
        """Whether it is the clock with dates."""
        return self.known[1] >= self.known[0]

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and last start by it, microseconds."""
        return self.spans[self.dated]

    @property
    def order_known(self) -> bool:
        """Whether enough rows have a start by it to tell in which order they came."""
        return self.used - self.used_known[self.dated] < (1 - COVERED) * self.used

    def of(self, start: pl.Series) -> pl.Series:
        """The starts by this clock, null where the other one ran.

        A zero, or another stamp that was never set, must not make a clock with dates a relative
        one.
        """
        return start.set(((start >= DATED_US) != self.dated).fill_null(False), None)

    @property
    def expr(self) -> pl.Expr:
        """The same of a column ``start``."""
        return pl.when((pl.col("start") >= DATED_US) == self.dated).then(pl.col("start"))


def clock_of(rows: pl.DataFrame) -> Clock:
    """The clock of rows with ``start``, those with a ``reject`` being of no use."""
    start, used = rows["start"], rows[REJECT].is_null()
    dated = start >= DATED_US
    clocks = [start.filter(~dated), start.filter(dated)]  # a filter leaves nulls out
    relative, with_dates = (_span(some) for some in clocks)
    counted = [int((used & one.fill_null(False)).sum()) for one in (~dated, dated)]
    return Clock(
        int(used.sum()), (counted[0], counted[1]), (len(clocks[0]), len(clocks[1])),
        (relative, with_dates),
    )  # fmt: skip


def clocked(parts: Iterable[Clock]) -> Clock:
    """The clock of any number of parts."""
    return reduce(Clock.plus, parts, Clock())


def _span(start: pl.Series) -> tuple[int, int] | None:
    low, high = start.min(), start.max()
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _spanned(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def kept(log: Log, only: Only | None) -> Log:
    """The log with only the rows that are wanted; the others are counted by reason.

    Raises
    ------
    UsageError
        If a moment or the expression is wrong, or no row is left.
    """
    if only is None or only.every_row or not log.requests.height:
        return log
    every = pl.concat([log.requests, log.failed])
    n = log.requests.height
    clock = clock_of(every)
    every = every.with_columns(clock.of(every["start"]))
    # What is worked out of the order of the rows goes by that clock; the rows stay as they are.
    timed = replace(log, requests=every.head(n), failed=every.slice(n))
    first, last = window(only, clock, len(log.inputs))
    reason = outside(every["start"], first, last)
    table = None if only.where is None else columns_of(timed)
    rows = prepare(timed.requests) if table is None else table.rows
    if only.where is not None and table is not None:
        parts = _parts(timed, table.named, table.rows)
        found = together(every.height, parts)
        if "start" in table.named:
            origin = timed.requests["start"].min()
            assert isinstance(origin, int)
            found["start"] = started(every["start"], origin)
        lacking = [name for name in table.absent if name not in found]
        counted = (reason == 0) & (np.arange(every.height) < n)
        choose_by(
            only.where,
            Selectable(every.height, found, ALIASES, lacking, table.rows.epoch_us, counted),
            reason,
        )
    account = account_of(every, np.arange(every.height) < n, reason, log.inputs)
    if reason[:n].all():
        raise nothing_left(account, only, clock)
    whole, linked = _with_turns(log, rows, reason[:n] == 0)
    notes = [said(only, first, last, account)]
    if first is not None:
        notes += _begun_before(timed, rows, first, reason[:n] == 0)
    return replace(
        whole,
        requests=whole.requests.filter(pl.Series(reason[:n] == 0)),
        failed=log.failed.filter(pl.Series(reason[n:] == 0)),
        inputs=accounted(log.inputs, account),
        notes=(*whole.notes, *notes),
        warnings=(*log.warnings, *_unseen_load(rows, reason[:n])),
        prompts=_prompts(log, every, reason),
        linked=log.linked or linked,
    )


# ------------------------------------------------------------------- the window


def window(only: Only, clock: Clock, files: int) -> tuple[int | None, int | None]:
    """The first moment that is wanted and the first that is no longer, microseconds.

    Raises
    ------
    UsageError
        If they are no moments of a log of so many ``files``.
    """
    if only.since is None and only.until is None:
        return None, None
    option = "--since" if only.since is not None else "--until"
    if clock.span is None:
        raise UsageError(f"{option}: this log does not say when its requests came")
    low, high = clock.span
    if low < DATED_US and files > 1:
        raise UsageError(
            f"{option}: the clocks of these logs each begin somewhere of their own",
            help="give one log at a time",
        )
    first = None if only.since is None else _moment(only.since, "--since", low, high)
    last = None if only.until is None else _moment(only.until, "--until", low, high)
    if first is not None and last is not None and first >= last:
        raise UsageError(
            "--since must be before --until",
            why=f"they mean {_stamp(first)} and {_stamp(last)}",
        )
    return first, last


def outside(start: pl.Series, first: int | None, last: int | None) -> Codes:
    """Why each row is not in a window, 0 where it is; ``start`` by one clock."""
    reason = np.zeros(len(start), dtype=np.int8)
    if first is None and last is None:
        return reason
    at = start.fill_null(0).to_numpy()
    if last is not None:
        reason[at >= last] = AFTER
    if first is not None:
        reason[at < first] = BEFORE
    reason[start.is_null().to_numpy()] = NO_START
    return reason


def _moment(text: str, option: str, low: int, high: int) -> int:
    """A moment in microseconds, by the clock of a log that goes from ``low`` to ``high``."""
    text = text.strip()
    zone = manner().timezone or "UTC"
    span = _span_us(text)
    if span is not None:
        return high - span
    if low < DATED_US:
        raise UsageError(
            f"{option}: the clock of this log is relative: it has no dates",
            help="say how long before its end, for example 30min",
        )
    try:
        if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
            day = local(_EPOCH + timedelta(microseconds=high), zone).date()
            moment = datetime.combine(day, time.fromisoformat(text))
        else:
            moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is no moment",
            available='2026-01-31, "2026-01-31 14:00", 2026-01-31T14:00:00+02:00, 14:00 on the '
            "last day of the log, or 2h before its end",
        ) from None
    if moment.tzinfo is None:
        known = moment_of(moment, zone)
        if known is None:
            raise UsageError(f"{option}: the clocks of {zone} never show {text}")
        moment = known
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _span_us(text: str) -> int | None:
    """A length of time such as ``2h`` or ``1h 30min``; None where it is none."""
    pieces = _SPAN.findall(text)
    if not pieces or _SPAN.sub("", text) or any(unit not in _UNITS for _, unit in pieces):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    return round(min(total, 1e18))


def _stamp(moment: int) -> str:
    """A moment as people read it: a date in the zone of this run, or seconds of a clock."""
    if abs(moment) < DATED_US:
        return f"{moment / 1e6:,.3f} s"
    try:
        stamp = _EPOCH + timedelta(microseconds=moment)
        zone = manner().timezone
        text = (stamp if zone is None else local(stamp, zone)).isoformat(" ", "seconds")
    except OverflowError:
        return "a moment out of the calendar"
    return text.replace("+00:00", "Z")


# --------------------------------------------------------------- the expression


def choose_by(where: str, rows: Selectable, reason: Codes) -> tuple[str, ...]:
    """Say of the rows that have no reason yet why the expression leaves them out.

    The rows may be fewer than those that it is held against. Gives the columns that it names.
    """
    chosen = select(where, rows, "--where")
    n = len(reason)
    inside = reason == 0
    reason[inside & ~chosen.rows[:n]] = NOT
    reason[inside & chosen.unsure[:n]] = UNKNOWN
    return chosen.named


def _parts(log: Log, named: Mapping[str, Number | Text], rows: Rows) -> list[Placed]:
    """The columns of the rows that can be used, and of those that failed."""
    place = _places(rows)
    if not log.failed.height:
        return [(named, place)]
    beside = columns_of(replace(log, requests=log.failed))
    behind = _places(beside.rows)
    other = {name: column for name, column in beside.named.items() if name in OWN}
    turns = named.get("turn")
    if isinstance(turns, Number) and log.failed["turn"].null_count() < log.failed.height:
        logged = _logged_turns(log)
        if logged is not None:
            other["turn"] = replace(turns, values=logged[behind])
    return [(named, place), (other, behind + log.requests.height)]


def together(total: int, parts: Sequence[Placed]) -> dict[str, Number | Text]:
    """Columns of ``total`` rows, each part's at its places; unknown elsewhere.

    The first part that has a column says what kind it is of.
    """
    found: dict[str, Number | Text] = {}
    for name in dict.fromkeys(name for columns, _ in parts for name in columns):
        of = [(columns[name], at) for columns, at in parts if name in columns]
        column, _ = of[0]
        if isinstance(column, Number):
            values = np.full(total, np.nan)
            for part, at in of:
                if isinstance(part, Number):
                    values[at] = part.values
            found[name] = replace(column, values=values)
        else:
            found[name] = replace(column, series=_texts(of, total))
    return found


def started(start: pl.Series, origin: int) -> Number:
    """The column of starts, seconds since ``origin`` (microseconds)."""
    since = (start - origin).cast(pl.Float64).to_numpy() / 1e6
    return Number("start", "instant", "when the request arrived", since)


def _logged_turns(log: Log) -> Array | None:
    """The turns that the rows that failed say themselves, from 1, (failed,).

    None where those of the other rows are counted, and so may be others.
    """
    known = log.requests["turn"]
    if known.null_count() > (1 - COVERED) * len(known):
        return None
    shift = 1 if known.min() == 0 else 0
    return log.failed["turn"].cast(pl.Float64).to_numpy() + shift


def _places(rows: Rows) -> Index:
    """The row of the request table that each row was made from, (n,)."""
    assert rows.place is not None
    return rows.place.astype(np.int64)


def _texts(parts: Sequence[tuple[Number | Text, Index]], total: int) -> pl.Series:
    """Texts of several parts, each at its places; null elsewhere."""
    pieces = [
        pl.DataFrame({"at": at, "text": part.series.cast(pl.String)})
        for part, at in parts
        if isinstance(part, Text)
    ]
    every = pl.DataFrame({"at": np.arange(total)})
    return every.join(pl.concat(pieces), on="at", how="left", maintain_order="left")["text"]


# ------------------------------------------------------------------- what is left


def _with_turns(log: Log, rows: Rows, wanted: Mask) -> tuple[Log, bool]:
    """The log with the turns of the whole in its table, and whether its sessions were linked.

    Sessions that the log does not name are named, so that they are the same in a part of it.
    """
    place = _places(rows)
    turn, session = np.full(rows.n, np.nan), np.full(rows.n, -1, dtype=np.int64)
    turn[place], session[place] = rows.turn, rows.session
    linked = rows.session_grade == "linked"
    told = wanted & np.isfinite(turn)
    few = told.sum() < COVERED * wanted.sum()
    if few and (linked or not told.any()):
        numbered = _numbered(log, place, wanted)
        if numbered is not None:
            return _turned(log, numbered), False
        if not told.any():
            return log, False
        # Too few to go by: they are found again, in what is left.
        return replace(log, notes=(*log.notes, hardly_linked())), False
    if few:
        # Where too few of what is kept have a turn, it would be counted anew there.
        counted = _counted(pl.Series(rows.session).replace(-1, None), place)
        turn = np.where(np.isfinite(turn), turn, counted)
        if np.isfinite(turn[wanted]).sum() < COVERED * wanted.sum():
            log = replace(log, notes=(*log.notes, hardly_named()))
    turned = _turned(log, turn)
    if not linked:
        return turned, False
    names = ("linked-" + pl.Series("session_id", session).cast(pl.String)).alias("session_id")
    named = turned.requests.with_columns(names.set(pl.Series(session < 0), None))
    source = Field("", "", tr("linked on the whole log"), "inferred")
    return replace(turned, requests=named, fields={**turned.fields, "session_id": source}), True


def hardly_linked() -> str:
    """The note where sessions are found again in what is left."""
    return tr("most rows cannot be linked to conversations: turns are counted in what was kept")


def hardly_named() -> str:
    """The note where what is left has few turns."""
    return tr("most of the rows that were kept name no conversation: their turns are not known")


def _counted(sessions: pl.Series, place: Index) -> Array:
    """Places in the sessions, from 1, (n,); NaN without one. Row ``k`` goes to ``place[k]``."""
    frame = sessions.to_frame("session")
    counted = frame.select(pl.int_range(1, pl.len() + 1).over("session").cast(pl.Float64))
    turn = np.full(len(sessions), np.nan)
    turn[place] = np.where(sessions.is_null().to_numpy(), np.nan, counted.to_series().to_numpy())
    return turn


def _turned(log: Log, turn: Array) -> Log:
    """The log with these turns, NaN where unknown."""
    told = pl.Series("turn", turn, nan_to_null=True).cast(pl.UInt32)
    return replace(log, requests=log.requests.with_columns(told), fields=with_turn(log.fields))


def with_turn(fields: Mapping[str, Field]) -> dict[str, Field]:
    """Where the columns come from, once turns are those of the whole log."""
    why = tr("place in the session, counted on the whole log")
    return {**fields, "turn": fields.get("turn") or Field("", "", why, "derived")}


def _numbered(log: Log, place: Index, wanted: Mask) -> Array | None:
    """Places in the sessions that some rows name, too few of the whole log, but most of the wanted.

    Without them turns would begin anew among these. None where they are no such few, where turns
    are logged, or where the ids look like those of requests. ``place`` has the rows in order.
    """
    ids = log.requests["session_id"]
    known = ids.is_not_null().to_numpy()
    if log.requests["turn"].null_count() < len(ids):
        return None
    if known.sum() >= COVERED * len(ids) or known[wanted].sum() < COVERED * wanted.sum():
        return None
    sizes = ids.drop_nulls().value_counts()["count"]
    if int((sizes == 1).sum()) > MOST_SINGLE * len(sizes):
        return None
    return _counted(ids.gather(place), place)


def _begun_before(log: Log, rows: Rows, first: int, wanted: Mask) -> list[str]:
    """How many of the wanted rows go on with conversations that began before the window."""
    place = _places(rows)
    known = pl.DataFrame(
        {
            "session": rows.session,
            "start": log.requests["start"].gather(place),
            "wanted": wanted[place],
        }
    ).filter(pl.col("session") >= 0)
    began = known.group_by("session").agg(pl.col("start").min(), pl.col("wanted").sum())
    n = int(began.filter(pl.col("start") < first)["wanted"].sum())
    return went_on(n, int(wanted.sum()))


def went_on(n: int, wanted: int) -> list[str]:
    """The note that ``n`` of the wanted rows go on with conversations of before the window."""
    if not n:
        return []
    return [
        tr(
            "{n} of the {rows} rows belong to conversations that began before --since; their turns "
            "are counted from there",
            n=number(n), rows=number(wanted),
        )
    ]  # fmt: skip


def _unseen_load(rows: Rows, reason: Codes) -> list[str]:
    """A warning where rows that an expression left out stood in one queue with those that stay."""
    asked = reason[_places(rows)]
    stay, gone = rows.server[asked == 0], rows.server[(asked == NOT) | (asked == UNKNOWN)]
    return unseen() if rows.order_known and np.isin(stay, gone).any() else []


def unseen() -> list[str]:
    """The warning where rows that an expression left out were served with those that stay."""
    return [
        tr(
            "rows that --where left out were served beside these: the load that they made is "
            "not seen, and waiting for them stays unexplained"
        )
    ]


@dataclass(frozen=True)
class Account:
    """How many rows were left out and why, and what became of them.

    ``moved`` has ``source``, ``why``, ``used`` (or failed), ``reject`` and ``len``; ``why`` is
    empty for rows that stay. ``aside`` has ``source``, ``ttft_set_aside`` and ``len`` of the used
    rows that stay. ``asked`` are those of the lines that are shown as failed which were left out.
    The accounts of parts add up to that of the log.
    """

    moved: pl.DataFrame
    aside: pl.DataFrame
    asked: frozenset[tuple[int, int, str]]

    def plus(self, other: Account) -> Account:
        """The account of two parts together."""
        return Account(
            _summed(self.moved, other.moved),
            _summed(self.aside, other.aside),
            self.asked | other.asked,
        )

    def rows(self, *, used: bool | None = None) -> Counter[str]:
        """Rows by reason, those that stay by the empty one; all, only used or only failed ones."""
        some = self.moved if used is None else self.moved.filter(pl.col("used") == used)
        counts: Counter[str] = Counter()
        for why, n in some.select("why", "len").iter_rows():
            counts[why] += n
        return counts


def account_of(every: pl.DataFrame, used: Mask, reason: Codes, inputs: Sequence[Input]) -> Account:
    """Count rows by why they are left out; ``used`` are those that did not fail."""
    names = pl.Series("why", REASONS).gather(reason.astype(np.int64))
    rows = every.select(pl.col("source").cast(pl.Int64), LINE, REJECT, SET_ASIDE).with_columns(
        names, pl.Series("used", used)
    )
    shown = {(at, *one) for at, record in enumerate(inputs) for one in record.first_rejects}
    gone = rows.filter(~pl.col("used") & (pl.col("why") != "")) if shown else rows.clear()
    return Account(
        _counts(rows, "source", "why", "used", REJECT),
        _counts(
            rows.filter("used", pl.col("why") == "", pl.col(SET_ASIDE).is_not_null()),
            "source", SET_ASIDE,
        ),
        frozenset(shown.intersection(gone.select("source", LINE, REJECT).iter_rows())),
    )  # fmt: skip


def _counts(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    return rows.group_by(by).agg(pl.len().cast(pl.Int64))


def _summed(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    by = [name for name in one.columns if name != "len"]
    return pl.concat([one, other]).group_by(by).agg(pl.col("len").sum())


def accounted(inputs: Sequence[Input], account: Account) -> tuple[Input, ...]:
    """The files with the rows that were left out moved from used (or failed) to their reasons."""
    left = account.moved.filter(pl.col("why") != "").partition_by("source", as_dict=True)
    aside = account.aside.partition_by("source", as_dict=True)
    out = []
    for index, record in enumerate(inputs):
        rejected: Counter[str] = Counter(record.rows_rejected)
        used = record.rows_used
        moved = left.get((index,))
        for _, why, was_used, was, n in () if moved is None else moved.iter_rows():
            rejected[why] += n
            if was_used:
                used -= n
            else:
                rejected[was] -= n
        mine = aside.get((index,))
        out.append(
            replace(
                record,
                rows_used=used,
                rows_rejected={name: count for name, count in sorted(rejected.items()) if count},
                # Lines that were shown as failed may now be left out for another reason.
                first_rejects=tuple(
                    one for one in record.first_rejects if (index, *one) not in account.asked
                ),
                ttft_set_aside={}
                if mine is None
                else dict(sorted(mine.select(SET_ASIDE, "len").iter_rows())),
            )
        )
    return tuple(out)


def said(only: Only, first: int | None, last: int | None, account: Account) -> str:
    """What was asked for, and what it meant."""
    parts = []
    if first is not None:
        parts.append(tr("from {moment} on (--since {said})", moment=_stamp(first), said=only.since))
    if last is not None:
        parts.append(tr("before {moment} (--until {said})", moment=_stamp(last), said=only.until))
    if only.where is not None:
        parts.append(tr("where {expression}", expression=only.where))
    counts = account.rows()
    return tr(
        "only rows {wanted}: {out} of {all} were left out as asked",
        wanted=tr(", ").join(parts), out=number(counts.total() - counts[""]),
        all=number(counts.total()),
    )  # fmt: skip


def nothing_left(account: Account, only: Only, clock: Clock) -> UsageError:
    """What to raise where no row that can be used is left."""
    failed, counts = account.rows(used=False)[""], account.rows(used=True)
    if failed:
        return UsageError(
            "only rows that failed are left by " + " ".join(only.arguments()),
            why=f"{failed:,} of them, which have no TTFT to diagnose; none of the "
            f"{counts.total():,} others",
        )
    why = ", ".join(f"{counts[name]:,} {name}" for name in REASONS if counts[name])
    return UsageError(
        "no row is left by " + " ".join(only.arguments()),
        why=why,
        available=None
        if clock.span is None
        else f"the log goes from {_stamp(clock.span[0])} to {_stamp(clock.span[1])}",
    )


def _prompts(log: Log, every: pl.DataFrame, reason: Codes) -> pl.DataFrame | None:
    if log.prompts is None:
        return None
    rows = every.select("source", LINE).filter(pl.Series(reason == 0))
    return log.prompts.join(rows, on=["source", LINE], how="semi", maintain_order="left")
