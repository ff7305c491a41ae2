"""What can be added up of a log exactly: whole numbers, by group.

Times and lengths are counted in classes whose upper end is two per cent above the lower one, so a
median or a percentile of any number of rows is known to one per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.extracts.survey import Survey
from ttftdoctor.measure.rows import MOST_NAMES, history, is_torn, known_before
from ttftdoctor.measure.splits import LENGTH_EDGES, WIDTH

#: Each class of a histogram ends so many times above where it begins.
STEP = 1.02
#: The class of values that are not above nothing.
NONE = -1
#: The figures of a group. ``rows`` are its requests, in one class.
FIGURES = ("rows", "input", "uncached", "ttft", "tpot")
#: What rows are counted by: numbers, and names. The first has all of them in one group; that by
#: turn and length has those by turn and by length in it.
NUMBERED, NAMED = ("all", "turn_by_length", "hour"), ("replica", "model")
SPLITS = (*NUMBERED, *NAMED)
HOUR_US = 3_600_000_000

#: A cell is a number: the class in its lowest bits, then figure, split and group. Names are groups
#: by their hash, of which this many bits are used.
_BIN_BITS, _FIGURE_BITS, _SPLIT_BITS, NAME_BITS = 12, 3, 3, 40
_FIGURE, _SPLIT = _BIN_BITS, _BIN_BITS + _FIGURE_BITS
_GROUP = _SPLIT + _SPLIT_BITS
CELLS: dict[str, Any] = {"cell": pl.Int64, "n": pl.Int64}
#: Cells, and how many rows each has.
Cells = tuple[NDArray[np.int64], NDArray[np.int64]]
#: Tallies that are held before they are put together.
HELD = 8
#: Up to so many groups and classes are counted in an array of them all.
MOST_DENSE = 4_000_000


@dataclass(frozen=True)
class Manner:
    """How rows are counted: what the survey of the whole log decides.

    ``turn_shift`` is added to the logged turns, None where turns are places in sessions; ``zero``
    is where hours are counted from, microseconds.
    """

    order_known: bool
    turn_shift: int | None
    zero: int

    @classmethod
    def of(cls, survey: Survey) -> Manner:
        """The manner for the log of a survey."""
        shift = (1 if survey.least_turn == 0 else 0) if survey.covered("turn") else None
        first = survey.first_start or 0
        return cls(survey.order_known, shift, 0 if first > 10**14 else first)


@dataclass(frozen=True)
class Tally:
    """Sums over rows. ``sums`` add up; ``cells`` count rows by split, group, figure and class.

    ``names`` are those of the groups that have names, by their number. A split that has more names
    than are told apart in any report is not counted (``crowded``).
    """

    sums: Mapping[str, int]
    turns_most: int | None
    cells: pl.DataFrame
    names: Mapping[str, Mapping[int, str]]
    crowded: frozenset[str]

    def by(self, split: str) -> pl.DataFrame:
        """Counts of one split: ``group``, ``figure`` (its place), ``bin`` and ``n``."""
        cell = pl.col("cell")

        def bits(at: int, many: int) -> pl.Expr:
            part: pl.Expr = cell // 2**at % 2**many
            return part

        return (
            self.cells.filter(bits(_SPLIT, _SPLIT_BITS) == SPLITS.index(split))
            .select(
                (cell // 2**_GROUP).alias("group"),
                bits(_FIGURE, _FIGURE_BITS).alias("figure"),
                (bits(0, _BIN_BITS) + NONE).alias("bin"),
                "n",
            )
            .sort("group", "figure", "bin")
        )

    @property
    def sessions(self) -> int:
        """Sessions that the log names."""
        return self.sums["sessions"]

    @property
    def single_share(self) -> float:
        """Share of the sessions that have one request."""
        return (self.sums["sessions"] - self.sums["second_turns"]) / max(self.sums["sessions"], 1)


def tallied(parts: Iterable[Tally]) -> Tally:
    """The tally of any number of parts together, of which only a few are held at a time."""
    held: list[Tally] = []
    for part in parts:
        held.append(part)
        if len(held) > HELD:
            held = [_together(held)]
    return _together(held)


def _together(every: list[Tally]) -> Tally:
    crowded = frozenset[str]().union(*(one.crowded for one in every))
    names: dict[str, dict[int, str]] = {}
    for split in NAMED:
        together: dict[int, str] = {}
        for one in every:
            together.update(one.names.get(split, {}))
        if len(together) > MOST_NAMES:
            crowded |= {split}
        else:
            names[split] = together
    cells = pl.concat([pl.DataFrame(schema=CELLS), *(one.cells for one in every)])
    cells = cells.group_by("cell").agg(pl.col("n").sum())
    for split in crowded:
        names.pop(split, None)
        cells = cells.filter(pl.col("cell") // 2**_SPLIT % 2**_SPLIT_BITS != SPLITS.index(split))
    return Tally(
        {name: sum(one.sums.get(name, 0) for one in every) for name in SUMS},
        max((one.turns_most for one in every if one.turns_most is not None), default=None),
        cells.sort("cell"),
        names,
        crowded,
    )


SUMS = (
    "requests", "with_ttft", "ttft_us", "sessions", "second_turns", "input_tokens",
    "cached_tokens", "reported", "reported_low", "reported_high", "again", "inferred",
    "inferred_low", "inferred_high", "content", "content_again", "later",
    "torn", "torn_tokens",
)  # fmt: skip


def tally_of(rows: pl.DataFrame, manner: Manner) -> Tally:
    """Count usable rows that have their facts."""
    rows = rows.rename({"before_input": "previous_input", "before_output": "previous_output"})
    sums = rows.select(_sums("seen_tokens" in rows.columns)).row(0, named=True)
    turn = pl.col("place_in_session")
    if manner.turn_shift is not None:
        turn = pl.col("turn").cast(pl.Int64) + manner.turn_shift
    length = pl.Series(list(LENGTH_EDGES[1:-1])).search_sorted(rows["input_tokens"], side="right")
    total, cached = pl.col("input_tokens"), pl.col("cached_tokens").fill_null(0)
    steps = pl.col("output_tokens") - 1
    figures = rows.select(
        turn=turn,
        length=pl.when(total.is_not_null()).then(length.cast(pl.Int64)),
        hour=pl.when(manner.order_known).then((pl.col("start") - manner.zero) // HOUR_US),
        replica="replica",
        model="model",
        input=class_of(total),
        uncached=class_of(total - cached),
        ttft=class_of(pl.col("ttft_us")),
        tpot=class_of(pl.when(steps >= 1).then((pl.col("e2e_us") - pl.col("ttft_us")) / steps)),
    ).with_columns(
        # One number for both, so that rows are counted once for three tables.
        turn_by_length=(pl.col("turn").fill_null(-1) + 1) * WIDTH
        + pl.col("length").fill_null(-1)
        + 1,
        rows=pl.lit(0, dtype=pl.Int16),
        all=pl.lit(0, dtype=pl.Int64),
    )
    # In arrays: each step of Polars waits for its threads, which have the pieces of others to do.
    cells: list[Cells] = []
    names, crowded = {}, set()
    for at, split in enumerate(SPLITS):
        group, numbers = figures[split], None
        if split in NAMED:
            known = group.drop_nulls().unique()
            if len(known) > MOST_NAMES:
                crowded.add(split)
                continue
            group = group.cast(pl.Enum(known)).to_physical()
            # Any part gives the same name this number.
            numbers = (known.hash(seed=0).to_numpy() >> np.uint64(64 - NAME_BITS)).astype(np.int64)
            names[split] = dict(zip(numbers.tolist(), known.to_list(), strict=True))
        for place, figure in enumerate(FIGURES if split != "all" else ("ttft",)):
            where = place if split != "all" else FIGURES.index("ttft")
            head = at * 2**_SPLIT + where * 2**_FIGURE - NONE
            cells.append(_counted(group, figures[figure], head, numbers))
    turns = figures["turn"].max()
    cell, n = (np.concatenate(each) for each in zip(*cells, strict=True))
    return Tally(
        {name: int(sums.get(name) or 0) for name in SUMS},
        turns if isinstance(turns, int) else None,
        pl.DataFrame({"cell": cell, "n": n}, schema=CELLS),
        names,
        frozenset(crowded),
    )


def _counted(
    group: pl.Series, bins: pl.Series, head: int, numbers: NDArray[np.int64] | None
) -> Cells:
    """Rows by group and class, both known, as cells; ``numbers`` are those of the groups, if not
    they themselves.
    """
    if group.null_count() or bins.null_count():
        both = group.is_not_null() & bins.is_not_null()
        group, bins = group.filter(both), bins.filter(both)
    if not len(group):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    places = group.to_numpy().astype(np.int64)
    classes = bins.to_numpy().astype(np.int64)
    first, least = int(places.min()), int(classes.min())
    wide = int(classes.max()) - least + 1
    classes -= least
    if (int(places.max()) - first + 1) * wide <= MOST_DENSE:
        counts = np.bincount((places - first) * wide + classes)
        found = np.flatnonzero(counts)
        groups, counts = found // wide + first, counts[found]
    else:  # hours of stamps far apart
        different, place = np.unique(places, return_inverse=True)
        found, counts = np.unique(place * wide + classes, return_counts=True)
        groups = different[found // wide]
    if numbers is not None:
        groups = numbers[groups]
    return groups * 2**_GROUP + found % wide + least + head, counts


def _sums(content: bool) -> list[pl.Expr]:
    total, cached = pl.col("input_tokens"), pl.col("cached_tokens").fill_null(0)
    place = pl.col("place_in_session")
    best, low, high = history(place.is_not_null() & pl.col("previous_input").is_null())
    floor = pl.min_horizontal(cached, total)

    def at_least_cached(value: pl.Expr) -> pl.Expr:
        return pl.when(total.is_not_null()).then(pl.max_horizontal(value.fill_null(0), floor))

    def known(value: pl.Expr) -> pl.Expr:
        return pl.when(total.is_not_null()).then(value)

    columns = {
        "requests": pl.len(),
        "with_ttft": pl.col("ttft_us").count(),
        "ttft_us": pl.col("ttft_us").sum(),
        "sessions": (place == 1).sum(),
        "second_turns": (place == 2).sum(),
        "input_tokens": total.sum(),
        "cached_tokens": known(pl.col("cached_tokens")).sum(),
        "reported": at_least_cached(best).sum(),
        "reported_low": at_least_cached(low).sum(),
        "reported_high": at_least_cached(high).sum(),
        "again": (at_least_cached(best) - cached).clip(lower_bound=0).sum(),
        "inferred": known(best).sum(),
        "inferred_low": known(low).sum(),
        "inferred_high": known(high).sum(),
    }
    if content:
        columns["content"] = known(known_before()).sum()
        columns["content_again"] = known(known_before() - cached).clip(lower_bound=0).sum()
        torn = is_torn(best, known_before())
        columns["later"] = (best > 0).sum()
        columns["torn"] = torn.sum()
        columns["torn_tokens"] = pl.when(torn).then(best - known_before()).sum()
    return [value.alias(name) for name, value in columns.items()]


def class_of(value: pl.Expr) -> pl.Expr:
    """The class of a value; values of less than one are taken together."""
    number = (value.clip(lower_bound=1).cast(pl.Float64).log() / math.log(STEP)).floor()
    return pl.when(value > 0).then(number).when(value.is_not_null()).then(NONE).cast(pl.Int16)


def value_of(number: int) -> float:
    """The middle of a class."""
    return 0.0 if number == NONE else STEP ** (number + 0.5)


def quantiles(bins: pl.DataFrame, wanted: Iterable[float]) -> list[float | None]:
    """Quantiles of counts by class (``bin``, ``n``); None where there are none."""
    bins = bins.group_by("bin").agg(pl.col("n").sum()).sort("bin")
    ends = bins["n"].cum_sum().to_numpy()
    if not len(ends):
        return [None for _ in wanted]
    places = [int(np.searchsorted(ends, (ends[-1] - 1) * q, side="right")) for q in wanted]
    return [value_of(bins["bin"][place]) for place in places]
