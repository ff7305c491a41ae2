"""Which rows of a log are wanted: those of a window of time, those that an expression means.

Everything that a row owes to others (its session, its turn, the load that it met) is worked out on
the whole log; only then are rows left out. So turns do not begin anew at the edge of a window. The
expressions are those of :mod:`ttftdoctor.contrasts.select`.

Rows that are left out are accounted for by reasons of their own, and are no fault of the log.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.contrasts.columns import ALIASES, Number, Table, Text, columns_of
from ttftdoctor.contrasts.select import Rows as Selectable
from ttftdoctor.contrasts.select import select
from ttftdoctor.diagnosis import NOT_CHOSEN, Input
from ttftdoctor.errors import UsageError
from ttftdoctor.intake import Log
from ttftdoctor.language import tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.measure.rows import COVERED, Array, Index, Mask, Rows, prepare
from ttftdoctor.table import LINE, REJECT, SET_ASIDE, Field
from ttftdoctor.units import UNIT_WORDS, US_PER
from ttftdoctor.units import count as number
from ttftdoctor.zones import local, moment_of

#: Why a row was left out, in the order in which that is asked; the number is the place.
REASONS = ("", *NOT_CHOSEN)
_BEFORE, _AFTER, _NO_START, _NOT, _UNKNOWN = range(1, len(REASONS))

#: Ids of which more than this share occur once are those of requests, not of sessions.
MOST_SINGLE = 0.9

#: A clock that shows more has dates; others count from somewhere.
_DATED_US = 10**14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = re.compile(r"(\d+\.?\d*|\.\d+)\s*([a-zµμ]+)\s*")
_UNITS = {**{word: US_PER[unit] for word, unit in UNIT_WORDS.items()}, "d": 24 * US_PER["h"]}

#: Columns of requests that failed which the log itself tells; others follow from neighbours.
_OWN = (
    "ttft", "e2e", "queue", "prefill", "decode", "load", "input", "uncached", "cached",
    "cached_share", "cache_write", "output", "reasoning", "attempts", "hour", "model", "replica",
    "tenant", "route", "version", "weekday", "streamed", "status", "vantage", "file", "session",
    "request",
)  # fmt: skip


Codes = NDArray[np.int8]


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

    def arguments(self) -> list[str]:
        """The same as arguments of a command."""
        given = {"since": self.since, "until": self.until, "where": self.where, "query": self.query}
        return [
            word for name, text in given.items() if text is not None for word in (f"--{name}", text)
        ]


def kept(log: Log, only: Only | None) -> Log:
    """The log with only the rows that are wanted; the others are counted by reason.

    Raises
    ------
    UsageError
        If a moment or the expression is wrong, or no row is left.
    """
    if only is None or (only.since is None and only.until is None and only.where is None):
        return log
    if not log.requests.height:
        return log
    every = pl.concat([log.requests, log.failed])
    n = log.requests.height
    every = every.with_columns(_by_one_clock(every["start"]))
    # What is worked out of the order of the rows goes by that clock; the rows stay as they are.
    timed = replace(log, requests=every.head(n), failed=every.slice(n))
    reason = np.zeros(every.height, dtype=np.int8)
    first, last = _window(every, only, len(log.inputs))
    if first is not None or last is not None:
        start = every["start"]
        known = start.is_not_null().to_numpy()
        at = start.fill_null(0).to_numpy()
        if last is not None:
            reason[at >= last] = _AFTER
        if first is not None:
            reason[at < first] = _BEFORE
        reason[~known] = _NO_START
    table = None if only.where is None else columns_of(timed)
    rows = prepare(timed.requests) if table is None else table.rows
    if only.where is not None and table is not None:
        inside = reason == 0
        chosen = select(only.where, _selectable(timed, table, every, inside), "--where")
        reason[inside & ~chosen.rows] = _NOT
        reason[inside & chosen.unsure] = _UNKNOWN
    if reason[:n].all():
        raise _nothing_left(reason, n, every, only)
    whole, linked = _with_turns(log, rows, reason[:n] == 0)
    notes = [_said(only, first, last, reason)]
    if first is not None:
        notes += _begun_before(timed, rows, first, reason[:n] == 0)
    return replace(
        whole,
        requests=whole.requests.filter(pl.Series(reason[:n] == 0)),
        failed=log.failed.filter(pl.Series(reason[n:] == 0)),
        inputs=_accounted(log, every, reason, n),
        notes=(*whole.notes, *notes),
        warnings=(*log.warnings, *_unseen_load(rows, reason[:n])),
        prompts=_prompts(log, every, reason),
        linked=log.linked or linked,
    )


# ------------------------------------------------------------------- the window


def _window(every: pl.DataFrame, only: Only, files: int) -> tuple[int | None, int | None]:
    """The first moment that is wanted and the first that is no longer, microseconds."""
    if only.since is None and only.until is None:
        return None, None
    option = "--since" if only.since is not None else "--until"
    known = every["start"].drop_nulls()
    if not len(known):
        raise UsageError(f"{option}: this log does not say when its requests came")
    low, high = int(known.min()), int(known.max())  # type: ignore[arg-type]
    if low < _DATED_US and files > 1:
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


def _by_one_clock(start: pl.Series) -> pl.Series:
    """The starts by the clock of most rows, with dates or without; null where another one ran.

    A zero, or another stamp that was never set, must not make a clock with dates a relative one.
    """
    dated = start >= _DATED_US
    most = 2 * int(dated.sum()) >= len(start) - start.null_count()
    return start.set((dated != most).fill_null(False), None)


def _moment(text: str, option: str, low: int, high: int) -> int:
    """A moment in microseconds, by the clock of a log that goes from ``low`` to ``high``."""
    text = text.strip()
    zone = manner().timezone or "UTC"
    span = _span_us(text)
    if span is not None:
        return high - span
    if low < _DATED_US:
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
    if abs(moment) < _DATED_US:
        return f"{moment / 1e6:,.3f} s"
    try:
        stamp = _EPOCH + timedelta(microseconds=moment)
        zone = manner().timezone
        text = (stamp if zone is None else local(stamp, zone)).isoformat(" ", "seconds")
    except OverflowError:
        return "a moment out of the calendar"
    return text.replace("+00:00", "Z")


# --------------------------------------------------------------- the expression


def _selectable(log: Log, table: Table, every: pl.DataFrame, inside: Mask) -> Selectable:
    """All rows, those that failed as well, with their columns; percentiles are of ``inside``."""
    n, total = log.requests.height, every.height
    named: dict[str, Number | Text] = dict(table.named)
    other: dict[str, Number | Text] = {}
    place = _places(table.rows)
    behind: Index = np.zeros(0, dtype=np.int64)
    if log.failed.height:
        beside = columns_of(replace(log, requests=log.failed))
        other = {name: column for name, column in beside.named.items() if name in _OWN}
        behind = _places(beside.rows) + n
        turns = named.get("turn")
        if isinstance(turns, Number) and log.failed["turn"].null_count() < log.failed.height:
            logged = _logged_turns(log)
            if logged is not None:
                other["turn"] = replace(turns, values=logged[_places(beside.rows)])
    found: dict[str, Number | Text] = {}
    for name in dict.fromkeys((*named, *other)):
        column = named.get(name) or other[name]
        parts = [(named.get(name), place), (other.get(name), behind)]
        if isinstance(column, Number):
            values = np.full(total, np.nan)
            for part, at in parts:
                if isinstance(part, Number):
                    values[at] = part.values
            found[name] = replace(column, values=values)
        else:
            found[name] = replace(column, series=_texts(parts, total))
    if "start" in named:
        origin = log.requests["start"].min()
        since = (every["start"] - origin).cast(pl.Float64).to_numpy() / 1e6
        found["start"] = Number("start", "instant", "when the request arrived", since)
    lacking = tuple(name for name in table.absent if name not in found)
    counted = inside & (np.arange(total) < n)
    return Selectable(total, found, ALIASES, lacking, table.rows.epoch_us, counted)


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


def _texts(parts: list[tuple[Number | Text | None, Index]], total: int) -> pl.Series:
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
        note = tr("most rows cannot be linked to conversations: turns are counted in what was kept")
        return replace(log, notes=(*log.notes, note)), False
    if few:
        # Where too few of what is kept have a turn, it would be counted anew there.
        counted = _counted(pl.Series(rows.session).replace(-1, None), place)
        turn = np.where(np.isfinite(turn), turn, counted)
        if np.isfinite(turn[wanted]).sum() < COVERED * wanted.sum():
            note = tr(
                "most of the rows that were kept name no conversation: their turns are not known"
            )
            log = replace(log, notes=(*log.notes, note))
    turned = _turned(log, turn)
    if not linked:
        return turned, False
    names = ("linked-" + pl.Series("session_id", session).cast(pl.String)).alias("session_id")
    named = turned.requests.with_columns(names.set(pl.Series(session < 0), None))
    source = Field("", "", tr("linked on the whole log"), "inferred")
    return replace(turned, requests=named, fields={**turned.fields, "session_id": source}), True


def _counted(sessions: pl.Series, place: Index) -> Array:
    """Places in the sessions, from 1, (n,); NaN without one. Row ``k`` goes to ``place[k]``."""
    frame = sessions.to_frame("session")
    counted = frame.select(pl.int_range(1, pl.len() + 1).over("session").cast(pl.Float64))
    turn = np.full(len(sessions), np.nan)
    turn[place] = np.where(sessions.is_null().to_numpy(), np.nan, counted.to_series().to_numpy())
    return turn


def _turned(log: Log, turn: Array) -> Log:
    """The log with these turns, NaN where unknown."""
    fields = dict(log.fields)
    fields.setdefault(
        "turn", Field("", "", tr("place in the session, counted on the whole log"), "derived")
    )
    told = pl.Series("turn", turn, nan_to_null=True).cast(pl.UInt32)
    return replace(log, requests=log.requests.with_columns(told), fields=fields)


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
    if not n:
        return []
    return [
        tr(
            "{n} of the {rows} rows belong to conversations that began before --since; their turns "
            "are counted from there",
            n=number(n), rows=number(int(wanted.sum())),
        )
    ]  # fmt: skip


def _unseen_load(rows: Rows, reason: Codes) -> list[str]:
    """A warning where rows that an expression left out stood in one queue with those that stay."""
    asked = reason[_places(rows)]
    stay, gone = rows.server[asked == 0], rows.server[(asked == _NOT) | (asked == _UNKNOWN)]
    if not rows.order_known or not np.isin(stay, gone).any():
        return []
    return [
        tr(
            "rows that --where left out were served beside these: the load that they made is "
            "not seen, and waiting for them stays unexplained"
        )
    ]


def _accounted(log: Log, every: pl.DataFrame, reason: Codes, n: int) -> tuple[Input, ...]:
    """The files with the rows that were left out moved from used (or failed) to their reasons."""
    names = pl.Series("why", REASONS).gather(reason.astype(np.int64))
    rows = every.select("source", LINE, REJECT, SET_ASIDE).with_columns(
        names, (pl.int_range(pl.len()) < n).alias("used")
    )
    moved = rows.filter(pl.col("why") != "").group_by("source", "why", "used", REJECT).len()
    aside = rows.filter(pl.col("used") & (pl.col("why") == "")).group_by("source", SET_ASIDE).len()
    # Lines that were shown as failed, and are now left out for another reason.
    asked = set(
        rows.filter(~pl.col("used") & (pl.col("why") != ""))
        .select("source", LINE, REJECT)
        .iter_rows()
    )
    out = []
    for index, record in enumerate(log.inputs):
        rejected: Counter[str] = Counter(record.rows_rejected)
        used = record.rows_used
        for _, why, was_used, was, count in moved.filter(pl.col("source") == index).iter_rows():
            rejected[why] += count
            if was_used:
                used -= count
            else:
                rejected[was] -= count
        mine = aside.filter((pl.col("source") == index) & pl.col(SET_ASIDE).is_not_null())
        out.append(
            replace(
                record,
                rows_used=used,
                rows_rejected={name: count for name, count in sorted(rejected.items()) if count},
                first_rejects=tuple(
                    one for one in record.first_rejects if (index, *one) not in asked
                ),
                ttft_set_aside=dict(sorted(mine.select(SET_ASIDE, "len").iter_rows())),
            )
        )
    return tuple(out)


def _said(only: Only, first: int | None, last: int | None, reason: Codes) -> str:
    """What was asked for, and what it meant."""
    parts = []
    if first is not None:
        parts.append(tr("from {moment} on (--since {said})", moment=_stamp(first), said=only.since))
    if last is not None:
        parts.append(tr("before {moment} (--until {said})", moment=_stamp(last), said=only.until))
    if only.where is not None:
        parts.append(tr("where {expression}", expression=only.where))
    return tr(
        "only rows {wanted}: {out} of {all} were left out as asked",
        wanted=tr(", ").join(parts), out=number(int((reason > 0).sum())), all=number(len(reason)),
    )  # fmt: skip


def _nothing_left(reason: Codes, n: int, every: pl.DataFrame, only: Only) -> UsageError:
    failed = int((reason[n:] == 0).sum())
    if failed:
        return UsageError(
            "only rows that failed are left by " + " ".join(only.arguments()),
            why=f"{failed:,} of them, which have no TTFT to diagnose; none of the {n:,} others",
        )
    counts = Counter(reason[:n].tolist())
    why = ", ".join(f"{n:,} {REASONS[code]}" for code, n in sorted(counts.items()))
    known = every["start"].drop_nulls()
    low, high = known.min(), known.max()
    return UsageError(
        "no row is left by " + " ".join(only.arguments()),
        why=why,
        available=f"the log goes from {_stamp(low)} to {_stamp(high)}"
        if isinstance(low, int) and isinstance(high, int)
        else None,
    )


def _prompts(log: Log, every: pl.DataFrame, reason: Codes) -> pl.DataFrame | None:
    if log.prompts is None:
        return None
    rows = every.select("source", LINE).filter(pl.Series(reason == 0))
    return log.prompts.join(rows, on=["source", LINE], how="semi", maintain_order="left")
