"""The same figures for every turn, length, hour, replica and model."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import Bin, Charts, Slice, Splits
from ttftdoctor.measure.ledger import bin_width
from ttftdoctor.measure.lines import Prefill, tpot
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Index, Mask, Rows
from ttftdoctor.stats import median, quantile

#: Groups shown of one split; the rest are folded into none, the largest come first.
MOST_GROUPS = 60
#: Edges of input length, tokens: doubling from 500.
LENGTH_EDGES = (0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 10**9)
#: Above the number of any length: what a first number is multiplied by to append a second.
WIDTH = 16
#: Cells of the density chart, a side.
DENSITY_CELLS = 60


def split(rows: Rows) -> Splits:
    """All splits of the log; a column that is not logged gives an empty one."""
    figures = {
        "input": rows.inputs, "uncached": rows.uncached, "ttft": rows.ttft, "tpot": tpot(rows)
    }  # fmt: skip
    frame = pl.DataFrame(figures).fill_nan(None)
    length = np.searchsorted(LENGTH_EDGES[1:-1], rows.inputs, side="right")
    length[np.isnan(rows.inputs)] = -1
    turn = np.where(np.isnan(rows.turn), -1, rows.turn).astype(np.int64)
    # Groups are numbered in their order, -1 for none, and named only when they are few.
    groups = {"turn": turn, "length": length, "hour": _hours(rows)}
    for column in ("replica", "model"):
        scope = rows.scopes.get(column)
        groups[column] = np.full(rows.n, -1) if scope is None else scope.codes

    def by(*columns: str) -> tuple[Slice, ...]:
        number = groups[columns[0]]
        for column in columns[1:]:
            both = (number >= 0) & (groups[column] >= 0)
            number = np.where(both, number * WIDTH + groups[column], -1)
        return _slices(rows, frame, number, columns)

    return Splits(
        by_turn=by("turn"),
        by_input_length=by("length"),
        turn_by_length=by("turn", "length"),
        by_hour=by("hour"),
        by_replica=by("replica"),
        by_model=by("model"),
    )


def _slices(
    rows: Rows, frame: pl.DataFrame, number: Index, columns: tuple[str, ...]
) -> tuple[Slice, ...]:
    if not len(number) or number.max() < 0:
        return ()
    frame = frame.with_columns(pl.Series("group", number))
    grouped = (
        frame.filter(pl.col("group") >= 0)
        .group_by("group")
        .agg(
            pl.len().alias("n"),
            pl.col("input").median().alias("input_p50"),
            pl.col("uncached").median().alias("uncached_p50"),
            pl.col("ttft").median().alias("ttft_p50_s"),
            pl.col("ttft").quantile(0.95, interpolation="linear").alias("ttft_p95_s"),
            pl.col("tpot").median().alias("tpot_p50_s"),
        )
        .sort("n", "group", descending=[True, False])
        .head(MOST_GROUPS)
        .sort("group")
    )
    out = []
    for row in grouped.iter_rows(named=True):
        code = row.pop("group")
        out.append(Slice(key=key_of(rows, columns, code), **row))
    return tuple(out)


def key_of(rows: Rows, columns: tuple[str, ...], code: int) -> dict[str, str | int | float | None]:
    """What a group is called, by its number; see ``WIDTH`` for that of several columns."""
    key: dict[str, str | int | float | None] = {}
    for column in reversed(columns):
        code, own = divmod(code, WIDTH) if column != columns[0] else (0, code)
        key = {**_key(rows, column, own), **key}
    return key


def _key(rows: Rows, column: str, code: int) -> dict[str, str | int | float | None]:
    """What a group is called in the report."""
    if column == "length":
        upper = LENGTH_EDGES[code + 1]
        return {
            "input_tokens_from": LENGTH_EDGES[code],
            "input_tokens_to": upper if upper < 10**9 else None,
        }
    if column == "turn":
        return {"turn": code}
    if column == "hour":
        if rows.epoch_us is None:
            return {"hour": code}
        return {"hour": datetime.fromtimestamp(code * 3600, UTC).strftime("%Y-%m-%dT%H:00Z")}
    return {column: rows.scopes[column].names[code]}


def _hours(rows: Rows) -> Index:
    """Hours since 1970, or since the start of a relative clock."""
    if not rows.order_known:
        return np.full(rows.n, -1)
    known = np.isfinite(rows.start)
    start = np.where(known, rows.start, 0.0)
    if rows.epoch_us is None:
        hours = np.floor(start / 3600).astype(np.int64)
    else:
        hours = (np.rint(start * 1e6).astype(np.int64) + rows.epoch_us) // 3_600_000_000
    return np.where(known, hours, -1)


def charts(rows: Rows, line: Prefill | None, load: Load, peak: Mask | None) -> Charts:
    """Tables that only the drawings need: density, line with interval, load through the day."""
    bins, above = _density(rows)
    return Charts(
        ttft_by_uncached=bins,
        ttft_above=above,
        line_points=_line(rows, line),
        load=_load(rows, load, peak),
    )


def _density(rows: Rows) -> tuple[tuple[Bin, ...], tuple[int, float]]:
    """Requests by length and TTFT, but for the highest: one in 200 would squeeze all others."""
    known = rows.measured & np.isfinite(rows.inputs)
    if known.sum() < 2:
        return (), (0, 0.0)
    x, y = rows.uncached[known], rows.ttft[known]
    top = max(1.02 * quantile(y, 0.995), 1e-6)
    shown = y <= top
    above = int((~shown).sum()), top
    x, y = x[shown], y[shown]
    wide = max(float(x.max()), 1.0)
    i = np.minimum((x / wide * DENSITY_CELLS).astype(int), DENSITY_CELLS - 1)
    j = np.minimum((y / top * DENSITY_CELLS).astype(int), DENSITY_CELLS - 1)
    counts = np.bincount(i * DENSITY_CELLS + j)
    cells = np.flatnonzero(counts)
    bins = tuple(
        Bin(
            x=float((cell // DENSITY_CELLS + 0.5) * wide / DENSITY_CELLS),
            y=float((cell % DENSITY_CELLS + 0.5) * top / DENSITY_CELLS),
            n=int(count),
        )
        for cell, count in zip(cells, counts[cells], strict=True)
    )
    return bins, above


def _line(rows: Rows, line: Prefill | None) -> tuple[tuple[float, float, float, float], ...]:
    known = rows.measured & np.isfinite(rows.inputs)
    if line is None or not known.any() or not (line.per_1k > 0 or line.fixed > 0):
        return ()
    x = np.linspace(0, float(rows.uncached[known].max()), 25)
    # Drawn at the typical context, so that the line lies among the points.
    c = np.full_like(x, median(rows.context[known]))
    y = line.predict(x, c)
    if line.draws.shape[0] >= 20:
        draws = np.stack([line.with_draw(k).predict(x, c) for k in range(len(line.draws))])
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    else:
        low, high = y, y
    return tuple(
        (float(a), float(b), float(min(lo, b)), float(max(hi, b)))
        for a, b, lo, hi in zip(x, y, low, high, strict=True)
    )


def _load(
    rows: Rows, load: Load, peak: Mask | None
) -> tuple[dict[str, str | float | bool | None], ...]:
    width = bin_width(rows)
    if width is None or not np.isfinite(load.waiting).any():
        return ()
    span = float(np.nanmax(rows.start)) or 1.0
    while span / width < 40 and width > 5:
        width /= 2
    while span / width > 240:
        width *= 2
    frame = pl.DataFrame(
        {
            "bin": np.floor(rows.start / width),
            "running": load.running,
            "ttft": rows.ttft,
            "peak": np.zeros(rows.n, dtype=bool) if peak is None else peak,
        }
    ).with_columns(pl.col("running", "ttft", "bin").fill_nan(None))
    grouped = (
        frame.drop_nulls("bin")
        .group_by("bin")
        .agg(
            pl.col("running").mean(), pl.col("ttft").median(), pl.col("peak").mean() > 0.5,
            pl.len().alias("n"),
        )
        .sort("bin")
    )  # fmt: skip
    # A stretch without requests is drawn as one, not bridged by a line.
    bins = grouped["bin"].to_numpy()
    every = pl.DataFrame({"bin": np.arange(bins.min(), bins.max() + 1)})
    grouped = every.join(grouped, on="bin", how="left", maintain_order="left").with_columns(
        pl.col("running").fill_null(0.0), pl.col("peak").fill_null(False)
    )
    empty = pl.col("n").is_null()
    beside = empty.shift(1).fill_null(False) | empty.shift(-1).fill_null(False)
    grouped = grouped.filter(~empty | beside)
    out = []
    for row in grouped.iter_rows(named=True):
        at = row["bin"] * width
        stamp: str | float = at
        if rows.epoch_us is not None:
            stamp = datetime.fromtimestamp(rows.epoch_us / 1e6 + at, UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            )
        out.append(
            {
                "t": stamp,
                "running": row["running"],
                "ttft_p50_s": row["ttft"],
                "peak": bool(row["peak"]),
            }
        )
    return tuple(out)
