"""The engine of one machine: rows beyond memory go through files in a temporary folder.

What is done with such rows is loaded where there are any, so that reading begins at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ttftdoctor.engines import Asked, Taken, wanted
from ttftdoctor.extracts import LEAST_BYTES, Budget
from ttftdoctor.extracts.spool import Spool
from ttftdoctor.intake import Log, read_log

if TYPE_CHECKING:
    from ttftdoctor.choose import Only

#: The part of the machine's memory that is taken if nothing is said.
PART = 0.5
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
        return _taken(log, spool, only, state) if spool.spilling else Taken(wanted(log, only))


def _taken(log: Log, spool: Spool, only: Only | None, state: str | None) -> Taken:
    from ttftdoctor.engines.beyond import chosen_from, extracted, held

    if only is None or only.every_row:
        return extracted(log, spool, state)
    with Spool(spool.budget) as left:
        log = chosen_from(log, only, spool, left)
        return extracted(log, left, state) if left.spilling else Taken(held(log, left))


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
