"""The engine of one machine: rows beyond memory go through files in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from ttftdoctor.choose import Clock, Only, clock_of, kept
from ttftdoctor.engines import Asked, Taken
from ttftdoctor.extracts import LEAST_BYTES, Budget
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
from ttftdoctor.intake import Log, keep, read_log
from ttftdoctor.sources import side_by_side
from ttftdoctor.table import REJECT

T = TypeVar("T")
C = TypeVar("C")

#: The part of the machine's memory that is taken if nothing is said.
PART = 0.5
#: Rows that are counted at once, by each worker, are this part of those that can be diagnosed.
AT_ONCE, WORKERS = 5, 2
#: ... and this part where they are held against an expression, which takes all of their columns.
CHOSEN_AT_ONCE = 16
#: Where a container's limit is written, in two editions of the kernel's interface.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def take(asked: Asked, only: Only | None = None, state: str | None = None) -> Taken:
    """Read logs; of one that is larger than memory, tally it and extract a part.

    Parameters
    ----------
    asked
        What is read, and in how much memory.
    only
        Which rows are wanted; all by default.
    state
        A file in which the rows are kept, if they are more than fit; of others nothing is written.

    Raises
    ------
    TTFTDoctorError
        As :func:`ttftdoctor.intake.read_log` and :func:`ttftdoctor.choose.kept`; or if the disk is
        full.
    """
    paths = [str(path) for path in asked.logs]
    budget = budget_of(asked.budget)
    with Spool(budget) as spool:
        log = read_log(
            paths, format=asked.format, options=asked.options, progress=asked.progress, spool=spool
        )
        if not spool.spilling:
            return Taken(kept(log, only))
        if only is None or only.every_row:
            return _extracted(log, spool, state)
        with Spool(budget) as wanted:
            log = choose_from(_Pieces(spool, wanted), log, only, content=spool.content)
            if wanted.spilling:
                return _extracted(log, wanted, state)
            return Taken(_held(log, wanted))


def _extracted(log: Log, spool: Spool, state: str | None) -> Taken:
    if state is not None:
        keep(log, state, spool.in_order(spool.at_once(AT_ONCE, long=True)))
    survey = spool.survey()
    # Where no session is named they are looked for by the blocks of the prompts.
    long = spool.content and not survey.covered("session_id")
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


def _held(log: Log, spool: Spool) -> Log:
    """The log with all rows of a spool."""
    most = spool.at_once(AT_ONCE, long=True)
    rows = [piece for pieces in spool.buckets(most, long=True) for piece in pieces]
    good = pl.col(REJECT).is_null()
    return replace(
        log,
        requests=in_order([some.filter(good) for some in rows], log.requests.schema),
        failed=in_order([some.filter(~good) for some in rows], log.failed.schema),
    )


def budget_of(budget: Budget | None) -> Budget:
    """The budget that was given, or a part of what this machine has."""
    return budget or Budget(max(LEAST_BYTES, int(PART * memory_bytes())))


def memory_bytes() -> int:
    """What this process may take: the machine's memory, or the limit of its container."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in LIMITS:
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            known.append(int(text))
    return min(known)
