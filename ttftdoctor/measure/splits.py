"""The same figures for every turn, length, hour, replica and model."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import Bin, Charts, Slice, Splits
from ttftdoctor.measure.ledger import bin_width
from ttftdoctor.measure.lines import Prefill, tpot
from ttftdoctor.measure.load import Load
from ttftdoctor.measure.rows import Mask, Rows

#: Groups shown of one split; the rest are folded into none, the largest come first.
MOST_GROUPS = 60
#: Edges of input length, tokens: doubling from 500.
LENGTH_EDGES = (0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 10**9)
#: Cells of the density chart, a side.
DENSITY_CELLS = 60


def split(rows: Rows) -> Splits:
    """All splits of the log; a column that is not logged gives an empty one."""
    frame = pl.DataFrame(
        {
            "ttft": rows.ttft,
            "tpot": tpot(rows),
            "input": rows.inputs,
            "uncached": rows.uncached,
            "turn": rows.turn,
            "hour": _hours(rows),
            "replica": _names(rows, "replica"),
            "model": _names(rows, "model"),
        },
        strict=False,
    ).with_columns(pl.col("ttft", "tpot", "input", "uncached", "turn").fill_nan(None))
    places = np.searchsorted(LENGTH_EDGES[1:-1], np.nan_to_num(rows.inputs), side="right")
    lengths = pl.Series(np.array(LENGTH_EDGES)[places], dtype=pl.Int64)
    frame = frame.with_columns(pl.when(pl.col("input").is_not_null()).then(lengths).alias("length"))

    def by(*columns: str) -> tuple[Slice, ...]:
        return _slices(frame, columns)

    return Splits(
        by_turn=by("turn"),
        by_input_length=by("length"),
        turn_by_length=by("turn", "length"),
        by_hour=by("hour"),
        by_replica=by("replica"),
        by_model=by("model"),
    )


def _slices(frame: pl.DataFrame, columns: tuple[str, ...]) -> tuple[Slice, ...]:
    grouped = (
        frame.drop_nulls(list(columns))
        .group_by(columns)
        .agg(
            pl.len().alias("n"),
            pl.col("input").median().alias("input_p50"),
            pl.col("uncached").median().alias("uncached_p50"),
            pl.col("ttft").median().alias("ttft_p50_s"),
            pl.col("ttft").quantile(0.95, interpolation="linear").alias("ttft_p95_s"),
            pl.col("tpot").median().alias("tpot_p50_s"),
        )
        .sort("n", *columns, descending=[True, *[False] * len(columns)])
        .head(MOST_GROUPS)
        .sort(columns)
    )
    out = []
    for row in grouped.iter_rows(named=True):
        key: dict[str, str | int | float | None] = {}
        for column in columns:
            value = row.pop(column)
            if column == "length":
                key["input_tokens_from"] = value
                upper = LENGTH_EDGES[LENGTH_EDGES.index(value) + 1]
                key["input_tokens_to"] = upper if upper < 10**9 else None
            elif column == "turn":
                key["turn"] = int(value)
            else:
                key[column] = value
        out.append(Slice(key=key, **row))
    return tuple(out)


def _hours(rows: Rows) -> list[str | None] | pl.Series:
    if not rows.order_known:
        return [None] * rows.n
    if rows.epoch_us is None:
        return pl.Series(np.floor(rows.start / 3600)).fill_nan(None).cast(pl.Int64)
    micro = pl.Series(rows.start * 1e6).fill_nan(None).round(0).cast(pl.Int64) + rows.epoch_us
    return micro.cast(pl.Datetime("us")).dt.truncate("1h").dt.strftime("%Y-%m-%dT%H:00Z")


def _names(rows: Rows, column: str) -> pl.Series | list[None]:
    scope = rows.scopes.get(column)
    if scope is None:
        return [None] * rows.n
    codes = pl.Series(scope.codes)
    return codes.replace_strict(
        list(range(len(scope.names))), list(scope.names), default=None, return_dtype=pl.String
    )


def charts(rows: Rows, line: Prefill | None, load: Load, peak: Mask | None) -> Charts:
    """Tables that only the drawings need: density, line with interval, load through the day."""
    return Charts(
        ttft_by_uncached=_density(rows), line_points=_line(rows, line), load=_load(rows, load, peak)
    )


def _density(rows: Rows) -> tuple[Bin, ...]:
    known = rows.measured & np.isfinite(rows.inputs)
    if known.sum() < 2:
        return ()
    x, y = rows.uncached[known], rows.ttft[known]
    top = max(float(np.quantile(y, 0.995)), 1e-6)
    wide = max(float(x.max()), 1.0)
    i = np.minimum((x / wide * DENSITY_CELLS).astype(int), DENSITY_CELLS - 1)
    j = np.minimum((y / top * DENSITY_CELLS).astype(int), DENSITY_CELLS - 1)
    cells, counts = np.unique(i * DENSITY_CELLS + j, return_counts=True)
    return tuple(
        Bin(
            x=float((cell // DENSITY_CELLS + 0.5) * wide / DENSITY_CELLS),
            y=float((cell % DENSITY_CELLS + 0.5) * top / DENSITY_CELLS),
            n=int(count),
        )
        for cell, count in zip(cells, counts, strict=True)
    )


def _line(rows: Rows, line: Prefill | None) -> tuple[tuple[float, float, float, float], ...]:
    known = rows.measured & np.isfinite(rows.inputs)
    if line is None or not known.any() or not (line.per_1k > 0 or line.fixed > 0):
        return ()
    x = np.linspace(0, float(rows.uncached[known].max()), 25)
    # Drawn at the typical context, so that the line lies among the points.
    c = np.full_like(x, float(np.median(rows.context[known])))
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
