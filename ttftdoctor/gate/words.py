"""Levels and changes of a metric, in its unit, and other words that the gate says often."""

from __future__ import annotations

import re

from ttftdoctor.language import mark, tr
from ttftdoctor.units import figure, milliseconds, seconds, share

#: Where a clock stands; a log may have other words of its own.
_CLOCKS = {"client": mark("client"), "gateway": mark("gateway"), "server": mark("server")}
#: A moment on a clock that knows no day, as it is kept.
_AFTER_START = re.compile(r"(-?\d+) s after the start")


def shown(value: float | None, unit: str) -> str:
    """A level in its unit: ``2.10 s``, ``76.3 ms``, ``81 %``, ``4.2/s``; ``-`` where unknown."""
    if value is None:
        return "-"
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return share(value)
    if unit == "per_s":
        return f"{figure(value)}/s"
    return milliseconds(value)


def signed(value: float, unit: str) -> str:
    """A change in its unit, with its sign; shares move in points."""
    sign = "+" if value > 0 else "−" if value < 0 else ""
    if unit == "share":
        return tr("{change} points", change=f"{sign}{abs(100 * value):.1f}")
    return f"{sign}{shown(abs(value), unit)}"


def clock_at(vantage: str | None) -> str:
    """Where the clock stood."""
    name = str(vantage)
    return tr(_CLOCKS[name]) if name in _CLOCKS else name


def moment_of(stamp: str) -> str:
    """A moment as it is kept, in the language spoken; a time of day is in none."""
    found = _AFTER_START.fullmatch(stamp)
    return stamp if found is None else tr("{n} s after the start", n=found[1])


def baseline_of(label: str, start: str | None) -> str:
    """A baseline by its name and day: ``v1.4 (2026-03-12)``."""
    return label if start is None else tr("{baseline} ({day})", baseline=label, day=start[:10])
