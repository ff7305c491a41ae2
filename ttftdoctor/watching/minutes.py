"""The cheap figures of the last while: sums and histograms by ten seconds of the log's own clock.

Quantiles are those of a histogram whose bins are two per cent wide: they are right to one per cent
or so. Old cells are dropped, so that this never grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: Seconds of a cell; so many are the last while, and so many before it are what it is compared to.
CELL_S = 10
LATELY, BEFORE = 30, 360
#: Cells that are drawn as one.
DRAWN = 6
#: Rows that begin so much later than now are not counted here.
AHEAD_S = 86_400
#: A bin is so much wider than the one before it; the first begins at 10 µs.
WIDTH = 0.02
LEAST_US = 10.0
BINS = 1200

Counts = NDArray[np.int32]
Bins = NDArray[np.int64]


@dataclass
class Cell:
    """Requests that began within the same ten seconds."""

    n: int = 0
    input_tokens: int = 0  # of those whose cached tokens are known
    cached_tokens: int = 0
    lasted_us: int = 0
    timed: int = 0  # of which it is known how long they lasted
    ttft: Counts = field(default_factory=lambda: np.zeros(BINS, np.int32))


@dataclass(frozen=True)
class Figures:
    """What some cells amount to; None is unknown."""

    n: int
    per_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    cached_share: float | None
    in_flight: float | None


class Minutes:
    """The cells of one log, or of several."""

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self.newest_us: int | None = None

    def add(self, requests: pl.DataFrame) -> None:
        """Count rows that are used, with the columns of the request table."""
        rows = requests.select("start", "ttft_us", "e2e_us", "input_tokens", "cached_tokens")
        # One clock that runs far ahead must not make all other rows old.
        rows = rows.filter(pl.col("start") <= (time() + AHEAD_S) * 1e6)
        if not rows.height:
            return
        ends = pl.max_horizontal("start", pl.col("start") + pl.col("e2e_us"))
        newest = rows.select(ends.max()).item()
        self.newest_us = newest if self.newest_us is None else max(newest, self.newest_us)
        rows = rows.with_columns((pl.col("start") // (CELL_S * 1_000_000)).alias("cell"))
        latest = max(rows.select(pl.col("cell").max()).item(), *self.cells, 0)
        oldest = latest - LATELY - BEFORE
        known = pl.col("cached_tokens").is_not_null() & pl.col("input_tokens").is_not_null()
        sums = (
            rows.filter(pl.col("cell") > oldest)
            .group_by("cell")
            .agg(
                pl.len(), pl.col("input_tokens").filter(known).sum(),
                pl.col("cached_tokens").filter(known).sum(),
                pl.col("e2e_us").sum(), pl.col("e2e_us").count().alias("timed"),
                pl.col("ttft_us").drop_nulls(),
            )
        )  # fmt: skip
        for at, n, inputs, cached, lasted, timed, ttft in sums.iter_rows():
            cell = self.cells.setdefault(at, Cell())
            cell.n += n
            cell.input_tokens += inputs
            cell.cached_tokens += cached
            cell.lasted_us += lasted
            cell.timed += timed
            cell.ttft += np.bincount(_bins(ttft), minlength=BINS).astype(np.int32)
        self.forget(oldest)

    def forget(self, oldest: int) -> None:
        """Drop the cells up to this one."""
        for at in [at for at in self.cells if at <= oldest]:
            del self.cells[at]


class Lately:
    """The last while of several generations, and what came before it."""

    def __init__(self, several: Sequence[Minutes]) -> None:
        self._several = several
        self._last = max((at for one in several for at in one.cells), default=0)
        for one in several:
            one.forget(self._last - LATELY - BEFORE)
        self._first = min((at for one in several for at in one.cells), default=0)

    @property
    def newest_us(self) -> int | None:
        """When the newest request began or ended, in microseconds."""
        return max((n for one in self._several if (n := one.newest_us) is not None), default=None)

    def lately(self) -> Figures:
        """The last five minutes."""
        return self._figures(self._last - LATELY + 1, self._last)

    def before(self) -> Figures:
        """The hour before these."""
        return self._figures(self._last - LATELY - BEFORE + 1, self._last - LATELY)

    def drawn(self) -> list[float | None]:
        """The median TTFT minute by minute, oldest first."""
        first = max(self._first, self._last - LATELY - BEFORE + 1)
        starts = range(self._last - DRAWN + 1, first - DRAWN, -DRAWN)
        told = (self._figures(at, at + DRAWN - 1) for at in reversed(starts))
        return [one.ttft_p50_s for one in told]

    def _figures(self, first: int, last: int) -> Figures:
        first = max(first, self._first)
        cells = [c for one in self._several for at, c in one.cells.items() if first <= at <= last]
        if not cells:
            return Figures(0, None, None, None, None, None)
        n = sum(cell.n for cell in cells)
        span = (last - first + 1) * CELL_S
        inputs = sum(cell.input_tokens for cell in cells)
        cached = sum(cell.cached_tokens for cell in cells)
        timed = sum(cell.timed for cell in cells)
        lasted = sum(cell.lasted_us for cell in cells) / 1e6
        ttft: Bins = np.sum([cell.ttft for cell in cells], axis=0, dtype=np.int64)
        return Figures(
            n, n / span, _quantile(ttft, 0.5), _quantile(ttft, 0.95),
            cached / inputs if inputs else None,
            # By Little's law: arrivals a second times how long one lasts.
            n / span * lasted / timed if timed else None,
        )  # fmt: skip


def _bins(ttft_us: Sequence[int]) -> Bins:
    values = np.maximum(np.asarray(ttft_us, np.float64), LEAST_US)
    bins: Bins = np.minimum(np.log(values / LEAST_US) / np.log1p(WIDTH), BINS - 1).astype(np.int64)
    return bins


def _quantile(counts: Bins, share: float) -> float | None:
    total = int(counts.sum())
    if not total:
        return None
    at = int(np.searchsorted(np.cumsum(counts), share * total))
    middle = LEAST_US * (1 + WIDTH) ** (min(at, BINS - 1) + 0.5)
    return float(middle) / 1e6
