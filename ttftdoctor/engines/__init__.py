"""Who reads a log and works on all of its rows: this machine, or a cluster.

An engine is a module with ``take``, which gives a :class:`Taken`; what comes after it is the same
for all of them, and runs here. It runs the steps of :mod:`ttftdoctor.extracts` over rows that lie
where it likes. To add one, write the module, name it in ``Engine``, and call it in ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ttftdoctor.extracts import Budget
from ttftdoctor.intake import Log
from ttftdoctor.readers import Options

if TYPE_CHECKING:
    from ttftdoctor.choose import Only
    from ttftdoctor.extracts.whole import Whole

Engine = Literal["local", "spark"]


@dataclass(frozen=True)
class Asked:
    """What is to be read, and in how much memory; ``settings`` are the engine's own."""

    logs: tuple[Any, ...]
    format: str | None = None
    options: Options = field(default_factory=Options)
    budget: Budget | None = None
    progress: Callable[[str, int], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """A log that was read. Where it is larger than memory its rows are an extract of the whole."""

    log: Log
    whole: Whole | None = None


def wanted(log: Log, only: Only | None) -> Log:
    """The log with the rows that are wanted of it, which are at hand; all by default."""
    if only is None:
        return log
    from ttftdoctor.choose import kept  # loaded where it is used, so that reading begins at once

    return kept(log, only)
