"""Which rows are wanted of a log that is larger than memory: :mod:`ttftdoctor.choose`, in pieces.

The rows come as whole sessions, or as pieces of sessions in order. What the log as a whole decides
(by which clock it goes, whether it names sessions, how far it can be trusted on cached tokens) is
learned first; then each piece is chosen from, and what is left is a log like any other, with the
turns of the whole. What is said of a row is what is said of it where all rows are at hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, Protocol

import numpy as np
import polars as pl

from ttftdoctor.choose import (
    DATED_US,
    NOT,
    OWN,
    UNKNOWN,
    Account,
    Clock,
    Codes,
    Only,
    account_of,
    accounted,
    choose_by,
    clocked,
    hardly_named,
    nothing_left,
    outside,
    said,
    started,
    together,
    unseen,
    went_on,
    window,
    with_turn,
)
from ttftdoctor.contrasts.columns import (
    ALIASES,
    DAYS,
    Number,
    Text,
    numbers_of,
    texts_of,
    weekdays,
)
from ttftdoctor.contrasts.select import Rows as Selectable
from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import UsageError
from ttftdoctor.extracts.facts import facts_of, nothing_carried, of_session
from ttftdoctor.extracts.survey import Survey, survey_of, surveyed
from ttftdoctor.intake import Log
from ttftdoctor.language import tr
from ttftdoctor.mapping.manner import manner, reading_as
from ttftdoctor.measure.rows import MOST_SERVERS, Array, Index, history, prepare
from ttftdoctor.measure.turns import grows, growth
from ttftdoctor.table import COVERED, FACTS, LINE, MOST_SINGLE, REJECT, SCHEMA

#: Columns that follow from all rows that were in flight at the time, and from the sessions where
#: these must be found.
OF_THE_LOAD = ("backlog", "running", "waiting", "decoding", "server_idle")
OF_SESSIONS = ("turn", "gap", "moved", "repeated", "recomputed")
OF_CONTENT = ("repeated", "recomputed")

DAY_US = 86_400_000_000
_PERCENTILE = re.compile(r"\bp(\d+(?:\.\d+)?)\b|\bmedian\b")
#: Percentiles that are closer together than this part of a per cent are not told apart.
CLOSEST = 0.01

#: Which turn a row is given: that of the whole log; where it has none, its place in the session;
#: that place in any case; or what was logged.
Turns = Literal["told", "filled", "placed", "logged"]


# ------------------------------------------------------------------- what the log decides


@dataclass(frozen=True)
class Learned:
    """What rows are like, by one clock: those that can be used, and those that failed.

    ``sums``: sessions, those of more than one request, and those of :func:`growth`.
    """

    used: Survey
    failed: Survey
    sums: Mapping[str, int]

    def plus(self, other: Learned) -> Learned:
        """The same of two parts together."""
        return Learned(
            self.used.plus(other.used),
            self.failed.plus(other.failed),
            {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in other.sums},
        )


def learned(parts: Iterable[Learned]) -> Learned:
    """The same of any number of parts."""
    return reduce(Learned.plus, parts, Learned(surveyed(()), surveyed(()), {}))


def learn(rows: pl.DataFrame, carry: pl.DataFrame, clock: Clock) -> tuple[Learned, pl.DataFrame]:
    """Learn from a piece of the rows of some sessions; see :func:`facts_of` for carry."""
    good, failed = _timed(rows, clock)
    good, carry = facts_of(good, carry, clock.order_known)
    place = pl.col("place_in_session")
    sums = (
        good.rename({"before_input": "previous_input"})
        .select(sessions=(place == 1).sum(), several=(place == 2).sum(), **growth())
        .row(0, named=True)
    )
    usable = failed.with_columns(pl.lit(None, dtype=pl.String).alias(REJECT))
    return Learned(
        survey_of(good), survey_of(usable), {name: int(n or 0) for name, n in sums.items()}
    ), carry


def _timed(rows: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that can be used and those that failed, by one clock; ``logged_start`` stays."""
    rows = rows.with_columns(clock.of(rows["start"]), rows["start"].alias("logged_start"))
    good = pl.col(REJECT).is_null()
    return rows.filter(good), rows.filter(~good)


@dataclass(frozen=True)
class Side:
    """What decides on the columns of the rows that can be used, or of those that failed.

    ``origin`` is the first start, microseconds; ``dated``: it is a date. ``days``: there are
    several; ``status``: some row has one; ``turns``: some row says its own.
    """

    origin: int
    dated: bool
    days: bool
    cached: bool
    status: bool
    turns: bool


def _side(of: Survey) -> Side:
    first, last = of.first_start or 0, of.last_start or 0
    dated = of.order_known and first > DATED_US
    return Side(
        first, dated, dated and last - first > DAY_US, of.covered("cached_tokens"),
        of.known.get("status", 0) > 0, of.known.get("turn", 0) > 0,
    )  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """Everything by which a piece is chosen from; plain values.

    ``named`` are the columns of the expression. ``sessions``: the log names them; ``unlinked``: it
    does not, and they could be found if all rows were at hand. ``shift`` is added to logged turns;
    None where turns are places in sessions. ``reuse`` is how repeated tokens are known.
    ``few_ids``: some rows name a session, too few for the whole log. ``percentiles`` are pairs of
    share and value by column.
    """

    clock: Clock
    window: tuple[int | None, int | None]
    where: str | None
    named: tuple[str, ...]
    inputs: tuple[Input, ...]
    timezone: str | None
    used: Side
    failed: Side
    sessions: bool
    unlinked: bool
    shift: int | None
    reuse: Literal["reported", "inferred", "none"]
    by_replica: bool
    few_ids: bool
    percentiles: Mapping[str, tuple[tuple[float, float], ...]]
    turns: Turns = "told"

    @property
    def stamped(self) -> bool:
        """Whether the starts of all rows can be set beside each other."""
        return self.clock.order_known and (self.used.dated or len(self.inputs) == 1)

    @property
    def shares(self) -> tuple[float, ...]:
        """The percentiles that the expression asks for, from 0 to 1; none twice."""
        found = _PERCENTILE.finditer(self.where or "")
        return tuple(sorted({min(float(one[1] or 50), 100.0) / 100 for one in found}))


def rule_of(
    found: Learned, clock: Clock, only: Only, inputs: tuple[Input, ...], *, content: bool
) -> Rule:
    """The rule for a log; ``content``: it has blocks of its prompts, which are not at hand.

    Raises
    ------
    UsageError
        If a moment or the expression is wrong, or names a column that needs all rows at once.
    """
    used, sums = found.used, found.sums
    alone = used.rows - used.known.get("session_id", 0)
    names = sums.get("sessions", 0)
    single = names - sums.get("several", 0)
    # Rows without a session count as one more.
    share = (single + (alone == 1)) / max(names + (alone > 0), 1)
    numbered = used.known.get("turn", 0) > 0
    covered = used.covered("session_id")
    sessions = covered and (share <= MOST_SINGLE or numbered)
    shift = (1 if used.least_turn == 0 else 0) if used.covered("turn") else None
    side = _side(used)
    rule = Rule(
        clock=clock,
        window=window(only, clock, len(inputs)),
        where=only.where,
        named=(),
        inputs=inputs,
        timezone=manner().timezone,
        used=side,
        failed=_side(found.failed),
        sessions=sessions,
        unlinked=not sessions
        and (content or (not numbered and used.covered("input_tokens"))),
        shift=shift,
        reuse="none" if sessions and not grows(sums) else "reported" if side.cached
        else "inferred" if sessions else "none",
        by_replica=used.covered("replica"),
        few_ids=not numbered and not covered and single <= MOST_SINGLE * names,
        percentiles={},
    )  # fmt: skip
    if only.where is None:
        return rule
    named = choose_by(only.where, _held(None, None, rule), _nobody())
    _refuse(named, rule, content)
    return replace(rule, named=named)


def _nobody() -> Codes:
    return np.zeros(0, dtype=np.int8)


def _refuse(named: Iterable[str], rule: Rule, content: bool) -> None:
    """Raise for columns that do not follow from a session alone."""
    for name in named:
        if name in OF_THE_LOAD:
            why = tr("it follows from all requests that were in flight")
        elif name in OF_SESSIONS and rule.unlinked:
            why = tr("the log names no sessions, and they are found among all of its rows")
        elif name in OF_CONTENT and content:
            why = tr("it follows from the blocks of all prompts")
        else:
            continue
        raise UsageError(
            f"--where: rows of a log that is larger than the memory given cannot be chosen by "
            f"`{name}`",
            why=why,
            help="give more --memory, or choose by other columns",
        )


# ------------------------------------------------------------------- the columns of a piece

Columns = dict[str, Number | Text]


def _columns(rows: pl.DataFrame, rule: Rule, side: Side) -> Columns:
    """All columns of some rows, at least one, in their order, as the whole log decides them."""
    # What a table by itself would decide is left out of it, and put in place afterwards.
    bare = rows.select(
        pl.lit(None, dtype=kind).alias(name)
        if name in ("session_id", "start") or name not in rows.columns
        else pl.lit(1, dtype=kind).alias(name) if name == "turn"
        else name
        for name, kind in SCHEMA.items()
    ).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(LINE), rows["source"], rows["ttft_logged_us"]
    )  # fmt: skip
    read = prepare(bare)
    start = (rows["start"] - side.origin).cast(pl.Float64).to_numpy() / 1e6
    values = _of_sessions(rows, rule)
    read = replace(
        read,
        start=start,
        epoch_us=side.origin if side.dated else None,
        turn=values["turn"],
        gap=values["gap"] / 1e6,
        moved=values["moved"],
        repeated=values["repeated"],
        session_grade="logged" if rule.sessions else "none",
        reuse_grade=rule.reuse,
        cached_logged=side.cached,
    )
    log = Log(rows.clear(), rows.clear(), rule.inputs, {}, ())
    texts = {text.name: text for text in texts_of(log, rows, read)}
    if side.status:
        texts["status"] = replace(texts["status"], series=texts["status"].series.fill_null("ok"))
    if side.days:
        days = pl.Series(weekdays(start, side.origin), nan_to_null=True).cast(pl.Int64)
        texts["weekday"] = replace(texts["weekday"], series=pl.Series(DAYS).gather(days))
    numbers = {number.name: number for number in numbers_of(read, len(rule.inputs))}
    return {**numbers, **{name: text for name, text in texts.items() if name not in numbers}}


def _of_sessions(rows: pl.DataFrame, rule: Rule) -> dict[str, Array]:
    """What follows from the turns before; unknown where the log names no sessions."""
    if not rule.sessions or "before_input" not in rows.columns:
        rows = rows.with_columns(pl.lit(None, dtype=k).alias(name) for name, k in FACTS.items())
    rows = rows.rename({"before_input": "previous_input", "before_output": "previous_output"})
    total, cached = pl.col("input_tokens"), pl.col("cached_tokens").fill_null(0)
    first = pl.col("place_in_session").is_not_null() & pl.col("previous_input").is_null()
    repeated, _, _ = history(first)
    if rule.reuse == "reported":
        repeated = pl.max_horizontal(repeated.fill_null(0), pl.min_horizontal(cached, total))
    found = rows.select(
        turn=_turn(rule),
        gap=pl.col("start") - pl.col("before_end"),
        moved=pl.col("replica") != pl.col("before_replica"),
        repeated=repeated,
    ).cast(pl.Float64)
    return {name: found[name].to_numpy() for name in found.columns}


def _turn(rule: Rule) -> pl.Expr:
    """The turn of a row as the whole log tells it."""
    if rule.shift is not None:
        return pl.col("turn").cast(pl.Int64) + rule.shift
    return pl.col("place_in_session") if rule.sessions else pl.lit(None, dtype=pl.Int64)


def _held(good: pl.DataFrame | None, failed: pl.DataFrame | None, rule: Rule) -> Selectable:
    """What the expression is held against: these rows, and behind them some that stand for all.

    The latter have the percentiles of the whole log, and nothing else is asked of them.
    """
    n, m = (0 if some is None else some.height for some in (good, failed))
    stand_ins = {name: _standing_in(pairs) for name, pairs in rule.percentiles.items()}
    behind = max((len(values) for values in stand_ins.values()), default=1)
    total = n + m + behind
    parts: list[tuple[Columns, Index]] = [(_kinds(rule), np.zeros(0, dtype=np.int64))]
    if good is not None and n:
        parts.append((_columns(good, rule, rule.used), np.arange(n)))
    if failed is not None and m:
        parts.append((_failed(failed, rule), np.arange(n, n + m)))
    found = together(total, parts)
    if rule.stamped:
        known = [some["start"] for some in (good, failed) if some is not None and some.height]
        none = pl.Series("start", [None], dtype=pl.Int64).new_from_index(0, behind)
        found["start"] = started(pl.concat([*known, none]), rule.used.origin)
    for name, column in found.items():
        if isinstance(column, Number):
            column.values[n + m :] = stand_ins.get(name, np.nan if stand_ins else 1.0)
    return Selectable(
        total, found, ALIASES, (), rule.used.origin if rule.used.dated else None,
        np.arange(total) >= n + m,
    )  # fmt: skip


def _kinds(rule: Rule) -> Columns:
    """All columns of no rows: what each of them is."""
    kinds = {**SCHEMA, "ttft_logged_us": pl.Int64}
    row = pl.DataFrame({name: pl.Series([None], dtype=kind) for name, kind in kinds.items()})
    row = row.with_columns(pl.lit(0, dtype=pl.Int32).alias("source"))
    return {
        name: replace(column, values=column.values[:0])
        if isinstance(column, Number)
        else replace(column, series=column.series.clear())
        for name, column in _columns(row, rule, rule.used).items()
    }


def _failed(rows: pl.DataFrame, rule: Rule) -> Columns:
    """The columns that rows that failed tell themselves."""
    every = _columns(rows, rule, rule.failed)
    own = {name: column for name, column in every.items() if name in OWN}
    # Turns that are counted in the other rows may be others than these say.
    if rule.shift is not None and rule.sessions and rule.failed.turns:
        own["turn"] = every["turn"]
    return own


# ------------------------------------------------------------------- percentiles


def values_of(
    rows: pl.DataFrame, carry: pl.DataFrame, rule: Rule
) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Count the values (``value``, ``n``) of the columns whose percentiles are asked for."""
    with reading_as(timezone=rule.timezone):
        good, _ = _timed(rows, rule.clock)
        good, carry = facts_of(good, carry, rule.clock.order_known)
        good = good.filter(pl.Series(outside(good["start"], *rule.window) == 0))
        held = _held(good, None, rule).columns
    values = {
        name: pl.Series("value", column.numbers()[: good.height]).drop_nans().value_counts(name="n")
        for name in rule.named
        if isinstance(column := held[name], Number)
    }
    return {name: some.cast({"n": pl.Int64}) for name, some in values.items()}, carry


def counted(parts: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """The values of any number of parts, counted together."""
    every: dict[str, pl.DataFrame] = {}
    for part in parts:
        for name, some in part.items():
            both = some if name not in every else pl.concat([every[name], some])
            every[name] = both.group_by("value").agg(pl.col("n").sum())
    return every


def valued(rule: Rule, parts: Iterable[Mapping[str, pl.DataFrame]]) -> Rule:
    """The rule with the percentiles of the values that parts have together."""
    return replace(
        rule,
        percentiles={
            name: tuple((share, _percentile(some, share)) for share in rule.shares)
            for name, some in counted(parts).items()
        },
    )


def _percentile(values: pl.DataFrame, share: float) -> float:
    """The percentile of counted values, to the last bit that of all of them in one array."""
    values = values.filter(pl.col("value").is_finite()).sort("value")
    ends = values["n"].cum_sum().to_numpy()
    if not len(ends):
        return float("nan")
    at = (int(ends[-1]) - 1) * share
    low = int(at)
    pair = np.searchsorted(ends, [low, min(low + 1, int(ends[-1]) - 1)], side="right")
    return float(np.quantile(values["value"].to_numpy()[pair], at - low))


def _standing_in(pairs: tuple[tuple[float, float], ...]) -> Array:
    """Few values that have these percentiles: of each, as many as lie nearest to its share."""
    shares, values = (np.array(one) for one in zip(*pairs, strict=True))
    if len(shares) == 1:
        return values
    gap = max(float(np.diff(shares).min()), CLOSEST / 100)
    between = (shares[1:] + shares[:-1]) / 2
    places = np.linspace(0, 1, int(4 / gap) + 2)
    found: Array = values[np.searchsorted(between, places)]
    return found


# ------------------------------------------------------------------- choosing


@dataclass(frozen=True)
class Carry:
    """What the next piece of the same sessions needs: their last rows, which of them began before
    the window, and how many rows stay (``n``) of those that are not known to.
    """

    last: pl.DataFrame
    begun: pl.Series
    others: pl.DataFrame


def nothing_before() -> Carry:
    """The carry before the first piece."""
    none = pl.DataFrame(schema={"session_id": pl.String, "n": pl.Int64})
    return Carry(nothing_carried(), none["session_id"], none)


def rest_of(carry: Carry, session: str | None) -> Carry:
    """What is needed of a carry where only this session may go on."""
    begun = carry.begun.filter(carry.begun == session)
    return Carry(of_session(carry.last, session), begun, of_session(carry.others, session))


@dataclass(frozen=True)
class Report:
    """What became of some rows. Reports of parts add up.

    Of the used rows that stay, ``turns`` counts those that have a turn by each way of counting,
    ``identified`` those that name a session and ``went_on`` those whose session began before the
    window. ``servers`` has ``clock`` and ``name`` of each, and whether rows of it ``stay`` or are
    ``gone`` by the expression; a name is null if there are too many (``crowded``). ``present`` are
    the columns in which some row has a value.
    """

    account: Account
    turns: Mapping[str, int]
    identified: int
    went_on: int
    servers: pl.DataFrame
    crowded: bool
    present: frozenset[str]

    @property
    def wanted(self) -> int:
        """How many of the rows that can be used stay."""
        return self.account.rows(used=True)[""]

    def plus(self, other: Report) -> Report:
        """The report of two parts together."""
        both = pl.concat([self.servers, other.servers])
        crowded = self.crowded or other.crowded
        return Report(
            self.account.plus(other.account),
            {name: n + other.turns[name] for name, n in self.turns.items()},
            self.identified + other.identified,
            self.went_on + other.went_on,
            *_crowded(both, crowded),
            self.present | other.present,
        )


def reported(parts: Iterable[Report]) -> Report:
    """The report of any number of parts, at least one."""
    return reduce(Report.plus, parts)


@dataclass(frozen=True)
class Chosen:
    """Rows that stay, with their turns, and a report of all rows of a piece."""

    requests: pl.DataFrame
    failed: pl.DataFrame
    report: Report


def chosen(rows: pl.DataFrame, carry: Carry, rule: Rule) -> tuple[Chosen, Carry]:
    """Choose from a piece of the rows of some sessions.

    Raises
    ------
    UsageError
        If the expression cannot be held against these rows.
    """
    good, failed = _timed(rows, rule.clock)
    good, last = facts_of(good, carry.last, rule.clock.order_known)
    n = good.height
    every = pl.concat([good.drop(FACTS), failed])
    reason = outside(every["start"], *rule.window)
    present: frozenset[str] = frozenset()
    if rule.where is not None:
        with reading_as(timezone=rule.timezone):
            held = _held(good, failed, rule)
            choose_by(rule.where, held, reason)
        present = frozenset(
            name for name, column in held.columns.items() if column.known()[: len(every)].any()
        )
    begun = _begun(good, carry.begun, rule)
    stays = pl.Series(reason[:n] == 0)
    ways = good.filter(stays).select(
        told=_turn(rule), placed="place_in_session", logged=pl.col("turn").cast(pl.Int64)
    )
    filled = pl.coalesce("told", "placed") if rule.sessions else pl.col("told")
    ways = ways.with_columns(filled=filled)
    left = good.filter(stays).with_columns(ways[rule.turns].cast(pl.UInt32).alias("turn"))
    # Without an order of time a session may be seen to have begun before after rows that stay.
    named = left.filter(pl.col("session_id").is_not_null()).group_by("session_id")
    both = pl.concat([carry.others, named.agg(pl.len().cast(pl.Int64).alias("n"))])
    both = both.group_by("session_id").agg(pl.col("n").sum())
    began = pl.col("session_id").is_in(begun.implode())
    report = Report(
        account_of(every, np.arange(len(every)) < n, reason, rule.inputs),
        {name: len(ways) - ways[name].null_count() for name in ways.columns},
        left.height - left["session_id"].null_count(),
        int(both.filter(began)["n"].sum()),
        *_crowded(_servers(good, reason[:n], rule), False),
        present,
    )
    return Chosen(
        _as_logged(left.drop(FACTS)), _as_logged(failed.filter(pl.Series(reason[n:] == 0))), report
    ), Carry(last, begun, both.filter(~began))


def _as_logged(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("logged_start").alias("start")).drop("logged_start")


def _begun(good: pl.DataFrame, before: pl.Series, rule: Rule) -> pl.Series:
    """The sessions that began before the window, as far as is seen by now."""
    first, _ = rule.window
    if first is None or not rule.sessions:
        return before
    some = good.filter(pl.col("start") < first)["session_id"].drop_nulls()
    return pl.concat([before, some]).unique()


def _servers(good: pl.DataFrame, reason: Codes, rule: Rule) -> pl.DataFrame:
    """The servers of rows, as they stand in one queue: see the ``server`` of prepared rows."""
    # Relative clocks of several files are not set beside each other.
    relative = (pl.col("start") < DATED_US).fill_null(True)
    rows = good.select(
        clock=pl.when(relative).then(pl.col("source").cast(pl.Int64) + 1).otherwise(0),
        name=pl.col("replica" if rule.by_replica else "model"),
    ).with_columns(
        pl.Series("stay", reason == 0), pl.Series("gone", (reason == NOT) | (reason == UNKNOWN))
    )
    return rows if rule.where is not None and rule.clock.order_known else rows.clear()


def _crowded(servers: pl.DataFrame, crowded: bool) -> tuple[pl.DataFrame, bool]:
    """Each server once; without names if there are more than a fleet has."""
    crowded = crowded or servers["name"].drop_nulls().n_unique() > MOST_SERVERS
    if crowded:
        servers = servers.with_columns(pl.lit(None, dtype=pl.String).alias("name"))
    return servers.group_by("clock", "name").agg(pl.col("stay", "gone").any()), crowded


# ------------------------------------------------------------------- the whole way


class Pieces(Protocol):
    """The rows of a log beyond memory, wherever an engine has them."""

    def clocks(self) -> Iterable[Clock]:
        """The clocks of all rows, those of some at a time."""

    def learned(self, clock: Clock) -> Iterable[Learned]:
        """What :func:`learn` says of each piece of whole sessions."""

    def values(self, rule: Rule) -> Iterable[Mapping[str, pl.DataFrame]]:
        """What :func:`values_of` says of each piece."""

    def put(self, rule: Rule) -> Report:
        """Choose by a rule (:func:`chosen`); put the rows that stay where there is room, in place
        of those that were put there before.
        """


def choose_from(pieces: Pieces, log: Log, only: Only, *, content: bool) -> Log:
    """Choose rows; the log, which has none at hand, with all that is said of them.

    Raises
    ------
    UsageError
        If a moment or the expression is wrong, needs all rows at once, or leaves none.
    """
    clock = clocked(pieces.clocks())
    rule = rule_of(learned(pieces.learned(clock)), clock, only, log.inputs, content=content)
    if rule.shares:
        rule = valued(rule, pieces.values(rule))
    report = pieces.put(rule)
    turns = turns_of(rule, report)
    if turns != rule.turns and report.wanted:
        rule = replace(rule, turns=turns)
        report = pieces.put(rule)
    return left_of(log, only, rule, report)


# ------------------------------------------------------------------- what is left


def turns_of(rule: Rule, report: Report) -> Turns:
    """How the rows that stay are given their turns: otherwise than told, if too few were."""
    enough = COVERED * report.wanted
    if report.turns["told"] >= enough:
        return "told"
    if report.turns["told"]:
        return "filled"
    return "placed" if rule.few_ids and report.identified >= enough else "logged"


def left_of(log: Log, only: Only, rule: Rule, report: Report) -> Log:
    """The log, which has no rows at hand, with all that is said of those that were chosen.

    Raises
    ------
    UsageError
        If no row is left, or the log has no value in a column that the expression names.
    """
    if only.where is not None:
        with reading_as(timezone=rule.timezone):
            _ask(only.where, rule, report)
    if not report.wanted:
        raise nothing_left(report.account, only, rule.clock)
    notes = list(log.notes)
    if rule.turns == "filled" and report.turns["filled"] < COVERED * report.wanted:
        notes.append(hardly_named())
    if rule.unlinked:
        notes.append(
            tr("the log names no sessions: they are looked for among the rows that were kept")
        )
    notes.append(said(only, *rule.window, report.account))
    if rule.window[0] is not None:
        notes += went_on(report.went_on, report.wanted)
    both = report.servers.select((pl.col("stay") & pl.col("gone")).any()).item()
    return replace(
        log,
        inputs=accounted(log.inputs, report.account),
        fields=log.fields if rule.turns == "logged" else with_turn(log.fields),
        notes=tuple(notes),
        warnings=(*log.warnings, *(unseen() if both else ())),
    )


def _ask(where: str, rule: Rule, report: Report) -> None:
    """Let the expression say itself what is wrong if it names a column without a value."""
    held = _held(None, None, rule)
    lacking = [name for name in held.columns if name not in report.present]
    there = {name: column for name, column in held.columns.items() if name not in lacking}
    choose_by(where, replace(held, columns=there, lacking=lacking), _nobody())
