"""Levels and changes of a metric, in its unit."""

from __future__ import annotations

from ttftdoctor.units import figure, milliseconds, seconds, share


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
        return f"{sign}{abs(100 * value):.1f} points"
    return f"{sign}{shown(abs(value), unit)}"
