"""The fields of raw records: where each one lies, and what kind of values it holds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

Kind = Literal[
    "nothing", "true or false", "whole number", "number", "moment", "text", "list", "object",
    "mixed",
]  # fmt: skip

#: Objects in objects are looked into as deep as this.
DEPTH = 4
#: Fields that are told apart; a log that names fields by their values has any number.
MOST_FIELDS = 1000

_MOMENT = re.compile(
    r"\d{4}[-/]\d\d?[-/]\d\d?([T ]\d\d:\d\d.*)?|\d\d?[./]\d\d?[./]\d{4}([T ,].*)?|"
    r"\d\d?/[A-Z][a-z]{2}/\d{4}[: ].*"
)


@dataclass(frozen=True)
class Place:
    """Where a value lies in a raw record: a top-level field, or a path inside its JSON."""

    column: str
    path: str | None = None

    @property
    def label(self) -> str:
        """The field as people write it: ``usage.prompt_tokens``."""
        return self.column if self.path is None else self.column + self.path[1:]

    def of(self, record: Mapping[str, Any]) -> Any:
        """The value in a record; None where there is none."""
        value: Any = record.get(self.column)
        if self.path is None:
            return value
        for key in self.path[2:].split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def columns_of(records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The top-level fields of the records, in the order in which they come."""
    return tuple(dict.fromkeys(key for record in records for key in record))


def places(records: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[Place]:
    """Every place of the records: the columns, then what lies inside their objects."""
    found: dict[Place, None] = {Place(c): None for c in columns}

    def walk(column: str, path: str, value: Any, depth: int) -> None:
        if isinstance(value, Mapping) and depth < DEPTH:
            for key, inner in value.items():
                if isinstance(key, str) and re.fullmatch(r"\w+", key):
                    walk(column, f"{path}.{key}", inner, depth + 1)
        elif path != "$" and len(found) < MOST_FIELDS:
            found[Place(column, path)] = None

    for record in records:
        for column, value in record.items():
            walk(column, "$", value, 0)
    return list(found)


def leaves(records: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> list[Place]:
    """The places that hold values of their own, not objects whose insides are places."""
    found = places(records, columns)
    outer = {place.column for place in found if place.path is not None}
    return [place for place in found if place.path is not None or place.column not in outer]


@dataclass(frozen=True)
class Trait:
    """What the values of a place are like in the first records.

    ``filled`` is the share of records that have one, ``low`` and ``high`` bound the numbers,
    ``distinct`` counts different values, and ``rising`` says that no number or moment is below the
    one before it.
    """

    kind: Kind
    filled: float
    low: float | None = None
    high: float | None = None
    distinct: int = 0
    rising: bool = False


def number_of(value: Any) -> float | None:
    """A finite number, also where it is written as text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def trait(place: Place, records: Sequence[Mapping[str, Any]]) -> Trait:
    """Look at the values of a place."""
    values = [v for v in (place.of(record) for record in records) if v is not None and v != ""]
    if not values:
        return Trait("nothing", 0.0)
    filled = len(values) / len(records)
    kinds = {_kind(value) for value in values}
    if kinds == {"whole number", "number"}:
        kinds = {"number"}
    kind: Kind = kinds.pop() if len(kinds) == 1 else "mixed"
    if kind in ("list", "object", "mixed"):
        return Trait(kind, filled)
    distinct = len({str(value) for value in values})
    if kind not in ("whole number", "number"):
        texts = [str(value) for value in values]
        return Trait(kind, filled, distinct=distinct, rising=texts == sorted(texts))
    numbers = [n for n in map(number_of, values) if n is not None]
    rising = all(a <= b for a, b in pairwise(numbers))
    return Trait(kind, filled, min(numbers), max(numbers), distinct, rising)


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, (list, tuple)):
        return "list"
    if isinstance(value, datetime):
        return "moment"
    number = number_of(value)
    if number is not None:
        return "whole number" if number == round(number) else "number"
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return "true or false"
    return "moment" if len(text) < 40 and _MOMENT.fullmatch(text) else "text"
