"""What the engine of one machine does with rows that are more than memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import polars as pl

from ttftdoctor.choose import Clock, Only, clock_of
from ttftdoctor.engines import Taken
from ttftdoctor.extracts.chosen import (
    Carry,
    Learned,
    Report,
    Rule,
    choose_from,
    chosen,
    learn,
    nothing_before,
    reported,
    values_of,
)
from ttftdoctor.extracts.facts import nothing_carried
from ttftdoctor.extracts.gather import Gathered, gather, in_order, with_facts
from ttftdoctor.extracts.prompts import place
from ttftdoctor.extracts.spool import Spool
from ttftdoctor.extracts.stretches import Choice, choose
from ttftdoctor.extracts.tally import Manner, Tally, tallied
from ttftdoctor.extracts.whole import Whole
from ttftdoctor.intake import Log, keep
from ttftdoctor.sources import side_by_side
from ttftdoctor.table import REJECT

T = TypeVar("T")
C = TypeVar("C")

#: Rows that are counted at once, by each worker, are this part of those that can be diagnosed.
AT_ONCE, WORKERS = 5, 2
#: ... and this part where they are held against an expression, which takes all of their columns.
CHOSEN_AT_ONCE = 16


def extracted(log: Log, spool: Spool, state: str | None) -> Taken:
    """The tally of all rows of a spool and the extract of them; the rows are kept in ``state``."""
    if state is not None:
        keep(log, state, spool.in_order(spool.at_once(AT_ONCE, long=True)))
    survey = spool.survey()
    # Where no session is named they are looked for by the blocks of the prompts.
    long = spool.content and not survey.names_sessions(spool.single_share)
    choice, manner = choose(survey, spool.room(long=long)), Manner.of(survey)
    spool.look(manner.order_known, len(log.inputs))
    step = partial(_gathered, manner=manner, choice=choice, spool=spool)
    order = pl.col("start") if manner.order_known else place()
    tally = tallied(_each(spool, nothing_carried, step, order, long=long))
    schema = with_facts(log.requests.schema, content=spool.way is not None)
    requests = in_order(spool.kept("requests"), schema)
    failed = in_order(spool.kept("failed"), log.failed.schema)
    found = replace(log, requests=requests, failed=failed)
    return Taken(found, Whole(survey, tally, choice, requests.height, spool.way))


def _gathered(
    rows: pl.DataFrame, carry: pl.DataFrame, manner: Manner, choice: Choice, spool: Spool
) -> tuple[Tally, pl.DataFrame]:
    """The tally of a piece, whose part of the extract is laid by."""
    part: Gathered
    part, carry = gather(rows, carry, manner, choice)
    spool.keep(part.requests, "requests")
    spool.keep(part.failed, "failed")
    return part.tally, carry


def chosen_from(log: Log, only: Only, spool: Spool, wanted: Spool) -> Log:
    """Put the rows that are wanted into a spool of their own; the log with what is said of them.

    Raises
    ------
    UsageError
        As :func:`ttftdoctor.extracts.chosen.choose_from`.
    """
    return choose_from(_Pieces(spool, wanted), log, only, content=spool.content)


class _Pieces:
    """The rows of a spool; those that are wanted are put into another one."""

    def __init__(self, spool: Spool, wanted: Spool) -> None:
        self.spool, self.wanted = spool, wanted

    def clocks(self) -> Iterator[Clock]:
        return (clock_of(rows) for rows in self.spool.starts())

    def learned(self, clock: Clock) -> Iterator[Learned]:
        return _each(self.spool, nothing_carried, partial(learn, clock=clock), _order(clock))

    def values(self, rule: Rule) -> Iterator[Mapping[str, pl.DataFrame]]:
        step = partial(values_of, rule=rule)
        return _each(self.spool, nothing_carried, step, _order(rule.clock), CHOSEN_AT_ONCE)

    def put(self, rule: Rule) -> Report:
        self.wanted.clear()

        def step(rows: pl.DataFrame, carry: Carry) -> tuple[Report, Carry]:
            part, carry = chosen(rows, carry, rule)
            self.wanted.put(part.requests)
            self.wanted.put(part.failed)
            return part.report, carry

        part, long = AT_ONCE if rule.where is None else CHOSEN_AT_ONCE, self.spool.content
        order = _order(rule.clock)
        report = reported(_each(self.spool, nothing_before, step, order, part, long=long))
        self.wanted.spilling = self.wanted.too_large(report.wanted)
        return report


def _each(
    spool: Spool,
    begin: Callable[[], C],
    step: Callable[[pl.DataFrame, C], tuple[T, C]],
    order: pl.Expr,
    part: int = AT_ONCE,
    *,
    long: bool = False,
) -> Iterator[T]:
    """What a step makes of each piece of the rows, with what it carries from piece to piece.

    ``long``: the pieces have the blocks of the prompts.
    """

    def work(pieces: Iterator[pl.DataFrame]) -> list[T]:
        carry, parts = begin(), []
        for piece in pieces:
            part, carry = step(piece, carry)
            parts.append(part)
        return parts

    pieces = spool.buckets(spool.at_once(part, long=long), order, long=long)
    for parts in side_by_side(work, pieces, WORKERS):
        yield from parts


def _order(clock: Clock) -> pl.Expr:
    """In which order the pieces of a session must come."""
    return clock.expr if clock.order_known else place()


def held(log: Log, spool: Spool) -> Log:
    """The log with all rows of a spool."""
    most = spool.at_once(AT_ONCE, long=True)
    rows = [piece for pieces in spool.buckets(most, long=True) for piece in pieces]
    good = pl.col(REJECT).is_null()
    return replace(
        log,
        requests=in_order([some.filter(good) for some in rows], log.requests.schema),
        failed=in_order([some.filter(~good) for some in rows], log.failed.schema),
    )
