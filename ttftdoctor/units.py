"""Units: what a unit word means in microseconds, and how a number is printed."""

from __future__ import annotations

import math
import re

from ttftdoctor.language import spoken, tr

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


def digits(value: float, places: int = 0) -> str:
    """Print a number with its thousands apart, as the language spoken writes it: ``1,234.5``."""
    if spoken() == "en":
        return minus(f"{value:,.{places}f}")
    from babel.numbers import format_decimal

    pattern = "#,##0" + ("." + "0" * places if places else "")
    return minus(format_decimal(value, format=pattern, locale=spoken()))


def seconds(value: float | None) -> str:
    """Print a duration given in seconds with about three figures: ``280 ms``, ``2.10 s``.

    Unknown (``None``) prints as ``-``.
    """
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 3600:
        return f"{digits(value / 3600, 1)} h"
    if size >= 120:
        return f"{digits(value / 60, 1)} min"
    if size >= 9.995:
        return f"{digits(value, 1)} s"
    if size >= 0.9995:
        return f"{digits(value, 2)} s"
    if size >= 0.01:
        return f"{digits(value * 1e3)} ms"
    if size >= 0.001:
        return f"{digits(value * 1e3, 1)} ms"
    return f"{digits(value * 1e6)} µs" if size >= 1e-6 else "0"


def milliseconds(value: float | None) -> str:
    """Print a figure in milliseconds with three figures: ``76.3 ms``."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < LEAST_MS:
        return "0 ms"
    return minus(f"{value:.3g} ms") if abs(value) < 1000 else f"{digits(value)} ms"


def figure(value: float) -> str:
    """Print a bare number with three figures and never with an exponent: ``1,330``, ``0.0512``."""
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 999.5:
        return digits(value)
    text = f"{value:.3g}"
    # Python writes small numbers with an exponent; what is below 1e-12 is nothing.
    return minus(f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text)


def count(value: float | None) -> str:
    """Print a count with thousands separated: ``99,760``."""
    if value is None or not math.isfinite(value):
        return "-"
    return digits(value)


def tokens(value: float | None) -> str:
    """Print a number of tokens, short from ten million up: ``14.2 M``."""
    if value is None or not math.isfinite(value):
        return "-"
    if spoken() != "en" and abs(value) >= 1e7:
        from babel.numbers import format_compact_decimal

        short = format_compact_decimal(value, locale=spoken(), fraction_digits=1)
        number = short.rstrip("".join(char for char in short if char.isalpha()))
        places = len(number.partition(".")[2])
        return f"{digits(float(number), places)} {short[len(number) :]}"
    if abs(value) >= 1e9:
        return f"{digits(value / 1e9, 2)} G"
    if abs(value) >= 1e7:
        return f"{digits(value / 1e6, 1)} M"
    return digits(value)


def share(value: float | None) -> str:
    """Print a share of one as per cent: ``81 %``; under ten per cent with a decimal."""
    if value is None or not math.isfinite(value):
        return "-"
    places = 0 if value == 0 or abs(100 * value) >= 9.95 else 1
    if spoken() == "en":
        return f"{digits(100 * value, places)} %"
    from babel.numbers import format_percent

    pattern = "#,##0" + (".0" if places else "") + "%"
    return minus(format_percent(value, format=pattern, locale=spoken()))


def signed_share(value: float | None) -> str:
    """Print a change as a share of one with its sign: ``+4.1 %``, ``−74 %``."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < 0.0005:
        return share(0.0)
    if value >= 9.995:
        return tr("{n} times", n=digits(value + 1))
    return f"{'+' if value > 0 else '−'}{share(abs(value))}"
