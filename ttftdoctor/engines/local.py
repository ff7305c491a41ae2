"""The engine of one machine: rows beyond memory go through files in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from ttftdoctor.engines import Asked, Taken
from ttftdoctor.extracts import LEAST_BYTES, Budget
from ttftdoctor.extracts.facts import nothing_carried
from ttftdoctor.extracts.gather import gather, in_order, with_facts
from ttftdoctor.extracts.spool import Spool
from ttftdoctor.extracts.stretches import choose
from ttftdoctor.extracts.tally import Manner, Tally, tallied
from ttftdoctor.extracts.whole import Whole
from ttftdoctor.intake import Log, read_log
from ttftdoctor.sources import side_by_side

#: The part of the machine's memory that is taken if nothing is said.
PART = 0.5
#: Rows that are counted at once, by each worker, are this part of those that can be diagnosed.
AT_ONCE, WORKERS = 5, 2
#: Tallies that are held before they are put together.
HELD = 8
#: Where a container's limit is written, in two editions of the kernel's interface.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def take(asked: Asked) -> Taken:
    """Read logs; of one that is larger than memory, tally it and extract a part.

    Raises
    ------
    TTFTDoctorError
        As :func:`ttftdoctor.intake.read_log`; or if the disk is full.
    """
    paths = [str(path) for path in asked.logs]
    budget = asked.budget or Budget(max(LEAST_BYTES, int(PART * memory_bytes())))
    with Spool(budget) as spool:
        log = read_log(
            paths, format=asked.format, options=asked.options, progress=asked.progress, spool=spool
        )
        if not spool.spilling:
            return Taken(log)
        return _extracted(log, spool)


def _extracted(log: Log, spool: Spool) -> Taken:
    survey = spool.survey()
    fits = spool.fits or 0
    choice, manner = choose(survey, fits), Manner.of(survey)
    tallies: list[Tally] = []

    def work(pieces: Iterator[pl.DataFrame]) -> list[Tally]:
        carry, parts = nothing_carried(), []
        for piece in pieces:
            part, carry = gather(piece, carry, manner, choice)
            spool.keep(part.requests, "requests")
            spool.keep(part.failed, "failed")
            parts.append(part.tally)
        return parts

    for parts in side_by_side(work, spool.buckets(max(fits // AT_ONCE, 1)), WORKERS):
        tallies += parts
        if len(tallies) > HELD:
            tallies = [tallied(tallies)]
    tally = tallied(tallies)
    requests = in_order(spool.kept("requests"), with_facts(log.requests.schema))
    failed = in_order(spool.kept("failed"), log.failed.schema)
    found = replace(log, requests=requests, failed=failed)
    return Taken(found, Whole(survey, tally, choice, requests.height, spool.left_out))


def memory_bytes() -> int:
    """What this process may take: the machine's memory, or the limit of its container."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for place in LIMITS:
        try:
            text = Path(place).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            known.append(int(text))
    return min(known)
