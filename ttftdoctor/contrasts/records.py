"""The record types of a contrast: everything its report shows, and nothing else.

``Contrasted.to_dict`` is the ``--json`` document (``ttftdoctor.contrast/1``). Durations are
seconds, shares are of one, unknown is None, never NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ttftdoctor.diagnosis import Input, Interval, plain
from ttftdoctor.language import mark, tr

SCHEMA = "ttftdoctor.contrast/1"

#: ``finding``: differs; ``same``: no difference to be seen; ``selection``: what was selected by,
#: or what contains it; ``unjudged``: too few values.
Role = Literal["finding", "same", "selection", "unjudged"]
#: Why a column that was selected by is part of the selection.
ITSELF = mark("selected by it")


@dataclass(frozen=True)
class Value:
    """One value of a category, among the selected rows and among the others.

    ``value`` is None for rows without one. ``lift`` is its share among the selected over its share
    among all; ``risk`` is the part of its rows that is selected, with a 95 % interval.
    """

    value: str | None
    n: int
    selected: int
    share_selected: float
    share_rest: float
    lift: float
    risk: float
    risk_interval: Interval | None
    p_value: float | None
    p_adjusted: float | None
    found: bool = False


@dataclass(frozen=True)
class Column:
    """What one column has to do with the selection.

    ``superiority`` is the chance that a selected row has more than another one (ties count half);
    ``effect`` is Cliff's delta, twice that less one: from -1 to 1, 0 is no difference. For a
    category it tells how well its values alone tell the selected rows from the others (0 to 1).
    ``own`` is what is left of the effect among rows alike in the other columns held equal
    (:class:`Held`); ``through`` names the one after which little was left.
    """

    column: str
    kind: Literal["number", "category"]
    unit: str
    meaning: str
    role: Role
    why: str = ""
    after_first_token: bool = False
    known_selected: float = 0.0
    known_rest: float = 0.0
    median_selected: float | None = None
    median_rest: float | None = None
    superiority: float | None = None
    effect: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    own: float | None = None
    own_interval: Interval | None = None
    through: str | None = None
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Cut:
    """The one condition that tells the selected rows from the others best.

    ``bound`` is in the unit of the column, ``value`` a text; one of them is None. ``risk`` is the
    part of the rows meeting it that is selected.
    """

    column: str
    op: Literal[">=", "<", "=="]
    bound: float | None
    value: str | None
    unit: str
    share_selected: float
    share_rest: float
    risk: float
    n: int


@dataclass(frozen=True)
class Held:
    """The columns held equal for all others, strongest first, and the strata they make."""

    columns: tuple[str, ...]
    strata: int


@dataclass(frozen=True)
class Example:
    """One of the selected rows, to look up in the log."""

    path: str
    line: int
    request_id: str | None
    ttft_s: float | None


@dataclass(frozen=True)
class Contrasted:
    """The whole answer. ``selected + rest + undecided + outside`` are the rows used.

    ``undecided`` rows lack a value that the expression asks for; ``outside`` rows are neither
    selected nor meant by ``--against``. ``epoch_s`` is the zero of instants in seconds since 1970,
    None on a relative clock.
    """

    version: str
    inputs: tuple[Input, ...]
    select: str
    against: str | None
    means: str
    rows: int
    selected: int
    rest: int
    undecided: int
    outside: int
    sessions: Literal["logged", "linked", "none"]
    sessions_selected: int | None
    columns: tuple[Column, ...]
    cut: Cut | None
    held: Held | None
    tests: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    epoch_s: float | None = None
    shown: int = 12

    @property
    def findings(self) -> tuple[Column, ...]:
        """The columns that differ, strongest first."""
        return tuple(c for c in self.columns if c.role == "finding")

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``: plain types, no NaN, unknown is None."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "tool": {"name": "ttftdoctor", "version": self.version},
        }
        data.update({f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)})
        for name in ("version", "shown"):
            data.pop(name)
        data["method"] = {name: tr(text) for name, text in METHOD.items()}
        return data


#: How the figures come about; part of the document, so that they travel with them.
METHOD: dict[str, str] = {
    "effect": mark(
        "Cliff's delta (2 x probability of superiority - 1), ties count half; for a category the "
        "same of its values put in order by their risk on the other sessions (five folds)"
    ),
    "interval": mark(
        "95 %, from placement values summed by session (delete-a-session jackknife in its linear "
        "form; DeLong 1988, Obuchowski 1997), on the logit scale"
    ),
    "p_value": mark(
        "Mann-Whitney with correction for ties, its variance raised by the design effect of "
        "sessions"
    ),
    "p_adjusted": mark("Holm over all columns and all values tested (`tests` of them)"),
    "own": mark(
        "the effect among rows alike in the columns held equal (up to 16, 12 and 4 parts), strata "
        "weighted by m*k/(m+k)"
    ),
    "finding": mark(
        "adjusted p of at most 0.05 and an effect of at least 0.147 (Romano 2006: below it is "
        "negligible), or a value with a lift of 1.5 (with less than 5 % of the selected rows: 3)"
    ),
}
