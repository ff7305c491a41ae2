"""Units: what a unit word means in microseconds, and how a number is printed."""

from __future__ import annotations

import math
import re

#: Microseconds in one of each unit of time.
US_PER: dict[str, float] = {
    "ns": 1e-3,
    "us": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "min": 60e6,
    "h": 3600e6,
}

#: Less than this is printed as nothing: 1 µs.
LEAST_MS = 1e-3

#: Spellings of a unit at the end of a field's name or after a number.
UNIT_WORDS: dict[str, str] = {
    "ns": "ns",
    "nanos": "ns",
    "nanoseconds": "ns",
    "us": "us",
    "µs": "us",
    "μs": "us",
    "micros": "us",
    "microseconds": "us",
    "ms": "ms",
    "msec": "ms",
    "millis": "ms",
    "milliseconds": "ms",
    "s": "s",
    "sec": "s",
    "secs": "s",
    "seconds": "s",
    "min": "min",
    "m": "min",
    "h": "h",
}


def minus(text: str) -> str:
    """A printed number with the sign for minus, and none before a zero: ``−2.5 ms``, ``0.0 %``."""
    if not text.startswith("-"):
        return text
    return "−" + text[1:] if re.search(r"[1-9]", text) else text[1:]


def seconds(value: float | None) -> str:
    """Print a duration given in seconds with about three figures: ``280 ms``, ``2.10 s``.

    Unknown (``None``) prints as ``-``.
    """
    if value is None or not math.isfinite(value):
        return "-"
    return minus(_seconds(value))


def _seconds(value: float) -> str:
    size = abs(value)
    if size >= 3600:
        return f"{value / 3600:.1f} h"
    if size >= 120:
        return f"{value / 60:.1f} min"
    if size >= 9.995:
        return f"{value:.1f} s"
    if size >= 0.9995:
        return f"{value:.2f} s"
    if size >= 0.01:
        return f"{value * 1e3:.0f} ms"
    if size >= 0.001:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs" if size >= 1e-6 else "0"


def milliseconds(value: float | None) -> str:
    """Print a figure in milliseconds with three figures: ``76.3 ms``."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < LEAST_MS:
        return "0 ms"
    return minus(f"{value:.3g} ms" if abs(value) < 1000 else f"{value:,.0f} ms")


def figure(value: float) -> str:
    """Print a bare number with three figures and never with an exponent: ``1,330``, ``0.0512``."""
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 999.5:
        return minus(f"{value:,.0f}")
    text = f"{value:.3g}"
    # Python writes small numbers with an exponent; what is below 1e-12 is nothing.
    return minus(f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text)


def count(value: float | None) -> str:
    """Print a count with thousands separated: ``99,760``."""
    if value is None or not math.isfinite(value):
        return "-"
    return minus(f"{value:,.0f}")


def tokens(value: float | None) -> str:
    """Print a number of tokens, short from ten million up: ``14.2 M``."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 1e9:
        return minus(f"{value / 1e9:.2f} G")
    if abs(value) >= 1e7:
        return minus(f"{value / 1e6:.1f} M")
    return minus(f"{value:,.0f}")


def share(value: float | None) -> str:
    """Print a share of one as per cent: ``81 %``; under ten per cent with a decimal."""
    if value is None or not math.isfinite(value):
        return "-"
    per_cent = 100 * value
    if per_cent == 0 or abs(per_cent) >= 9.95:
        return minus(f"{per_cent:.0f} %")
    return minus(f"{per_cent:.1f} %")


def signed_share(value: float | None) -> str:
    """Print a change as a share of one with its sign: ``+4.1 %``, ``−74 %``."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < 0.0005:
        return "0 %"
    if value >= 9.995:
        return f"{value + 1:,.0f} times"
    return f"{'+' if value > 0 else '−'}{share(abs(value))}"
