"""What the rows of a log are like, before any of them is set beside another.

Surveys of the parts of a log add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import polars as pl

from ttftdoctor.table import COVERED, MOST_SINGLE, REJECT, SCHEMA

SECOND_US = 1_000_000
#: Stretches of time in which rows are counted, seconds: the shortest of which there are not more
#: than ``MOST_BINS``.
WIDTHS = (1, 60, 3600, 86_400)
MOST_BINS = 200_000


@dataclass(frozen=True)
class Survey:
    """Counts of rows.

    ``rows`` can be used, ``failed`` are those that the service failed or refused. ``known`` counts
    values by column. ``starts`` has ``bin`` and ``n``: how many rows start in each ``width``
    seconds since 1970 (or since the log's zero). ``lasting`` is how long requests took together.
    Instants and durations are in microseconds.
    """

    rows: int
    failed: int
    known: Mapping[str, int]
    least_turn: int | None
    first_start: int | None
    last_start: int | None
    lasting: int
    width: int
    starts: pl.DataFrame

    @property
    def in_flight(self) -> float:
        """Requests in flight at once, on average: all of their time over that of the log."""
        if self.first_start is None or self.last_start is None:
            return 0.0
        return self.lasting / max(self.last_start - self.first_start, SECOND_US)

    @property
    def order_known(self) -> bool:
        """Whether the log tells when requests came."""
        return self.rows - self.known.get("start", 0) < (1 - COVERED) * self.rows

    def covered(self, column: str) -> bool:
        """Whether enough rows have the column for it to count as logged."""
        return self.rows > 0 and self.rows - self.known.get(column, 0) <= (1 - COVERED) * self.rows

    def names_sessions(self, single_share: Callable[[], float]) -> bool:
        """Whether the log names its sessions, of which such a share have one request.

        As :func:`ttftdoctor.measure.rows.prepare` has it; the share is asked for where it decides.
        """
        if not self.covered("session_id"):
            return False
        return self.known.get("turn", 0) > 0 or single_share() <= MOST_SINGLE

    def plus(self, other: Survey) -> Survey:
        """The survey of two parts together."""
        width = max(self.width, other.width)
        starts = pl.concat([one.starts_by(width) for one in (self, other)])
        return _no_finer(
            Survey(
                self.rows + other.rows,
                self.failed + other.failed,
                {name: self.known.get(name, 0) + other.known.get(name, 0) for name in SCHEMA},
                _least(self.least_turn, other.least_turn),
                _least(self.first_start, other.first_start),
                _most(self.last_start, other.last_start),
                self.lasting + other.lasting,
                width,
                _counted(starts),
            )
        )

    def starts_by(self, width: int) -> pl.DataFrame:
        """Rows by stretches that are at least as wide as its own."""
        if width == self.width:
            return self.starts
        return _counted(self.starts.with_columns(pl.col("bin") // (width // self.width)))


def survey_of(rows: pl.DataFrame) -> Survey:
    """Survey checked rows, usable ones and failed ones."""
    used = rows.filter(pl.col(REJECT).is_null())
    start, turn = used["start"].drop_nulls(), used["turn"].drop_nulls()
    seconds = (start // SECOND_US).alias("bin").to_frame().with_columns(pl.lit(1).alias("n"))
    return _no_finer(
        Survey(
            used.height,
            rows.height - used.height,
            {
                name: used.height - used[name].null_count() if name in used.columns else 0
                for name in SCHEMA
            },
            _int(turn.min()),
            _int(start.min()),
            _int(start.max()),
            int(rows.select(lasting().sum()).item() or 0),
            WIDTHS[0],
            _counted(seconds),
        )
    )


def lasting() -> pl.Expr:
    """How long a request took, as far as that is known; microseconds."""
    return pl.max_horizontal(pl.col("e2e_us").fill_null(0), pl.col("ttft_us").fill_null(0))


def surveyed(parts: Iterable[Survey]) -> Survey:
    """The survey of any number of parts."""
    none = pl.DataFrame(schema={"bin": pl.Int64, "n": pl.Int64})
    return reduce(Survey.plus, parts, Survey(0, 0, {}, None, None, None, 0, WIDTHS[0], none))


def _counted(bins: pl.DataFrame) -> pl.DataFrame:
    counted = bins.group_by("bin").agg(pl.col("n").sum()).sort("bin")
    return counted.cast({"bin": pl.Int64, "n": pl.Int64})


def _no_finer(survey: Survey) -> Survey:
    """Wider stretches where there would be too many.

    A part that needs them has stretches enough for the whole to need them too: so the width does
    not depend on how a log was dealt out.
    """
    for width in WIDTHS:
        if width < survey.width:
            continue
        starts = survey.starts_by(width)
        if starts.height <= MOST_BINS or width == WIDTHS[-1]:
            return Survey(
                survey.rows, survey.failed, survey.known, survey.least_turn, survey.first_start,
                survey.last_start, survey.lasting, width, starts,
            )  # fmt: skip
    raise AssertionError("the last width holds any log")


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _least(one: int | None, other: int | None) -> int | None:
    return min((v for v in (one, other) if v is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((v for v in (one, other) if v is not None), default=None)
