"""The contract of a remedy: one thing one can turn on or do, one file.

To add a remedy:

1. ``remedies/NAME.py`` with ``REMEDY = Remedy("NAME", ...)``: how it treats the log, what it
   assumes and costs, and which causes it helps.
2. A case in ``tests/test_remedies.py`` that checks its gain against a server that has it.
3. Its title in ``report.TITLES``.

A remedy never computes a gain itself: it changes the :class:`Treatment`, and the log is served
again with it, so that several remedies compose and their joint gain is computed, never summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ttftdoctor.evidence import Evidence
from ttftdoctor.treatment import Treatment


@dataclass(frozen=True)
class Settings:
    """What the user chose: the length that history is compacted to."""

    compact_to: int = 8000


@dataclass(frozen=True)
class Remedy:
    """One remedy.

    ``always`` remedies are predicted for every log; the others only where one of ``helps`` is
    present. ``fits`` says whether the log knows enough to predict it.
    """

    id: str
    order: int
    title: str
    treat: Callable[[Settings], Treatment]
    assumptions: tuple[str, ...]
    cost: str
    helps: tuple[str, ...]
    always: bool = False
    fits: Callable[[Evidence], bool] | None = None
