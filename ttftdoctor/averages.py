"""Rows that stand for several requests each: figures of a minute, as dashboards export them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any

from ttftdoctor.mapping.fields import number_of

#: Fields that say of how many requests a row tells.
COUNTS = (
    "requests", "request_count", "requests_count", "num_requests", "n_requests", "total_requests",
    "requests_total", "samples", "sample_count", "count",
)  # fmt: skip
#: Stamps at even steps of so many seconds or more are no moments of requests.
LEAST_STEP_S = 5.0
#: Fewer different stamps than this do not show a step.
FEWEST = 5
#: From so large a number on a date of our time is counted in so small a part of a second.
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


def counting_field(records: Sequence[Mapping[str, Any]], starts: Sequence[object]) -> str | None:
    """The field with the number of requests of each row, if the rows stand for several.

    Both must hold: a field of that name counts two or more as a rule, and the rows come at even
    steps of time, as no requests do.

    Parameters
    ----------
    records
        The first rows of a flat log.
    starts
        The stamp of each of them, a number of seconds or more, or a text in ISO 8601.
    """
    found = next((name for name in COUNTS if _counts([r.get(name) for r in records])), None)
    return None if found is None or _step(starts) is None else found


def _counts(values: Sequence[object]) -> bool:
    """Whether all values are whole numbers, of two or more as a rule."""
    known = [n for n in map(number_of, values) if n is not None]
    if not known or len(known) < len(values) or any(n < 0 or n != int(n) for n in known):
        return False
    return median(known) >= 2


def _step(starts: Sequence[object]) -> float | None:
    """The seconds of which all gaps between stamps are whole multiples; None if there are none."""
    moments = sorted({m for m in map(_seconds, starts) if m is not None})
    if len(moments) < FEWEST:
        return None
    per_second = next((unit for size, unit in _EPOCHS if moments[0] >= size), 1.0)
    gaps = [(later - one) / per_second for one, later in pairwise(moments)]
    step = min(gaps)
    if step < LEAST_STEP_S or step != int(step):
        return None
    return step if all(gap % step == 0 for gap in gaps) else None


def _seconds(stamp: object) -> float | None:
    number = number_of(stamp)
    if number is not None or not isinstance(stamp, str):
        return number
    try:
        moment = datetime.fromisoformat(stamp.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
