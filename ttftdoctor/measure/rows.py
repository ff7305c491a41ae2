"""The table in order: sessions, turns, what each request repeats, and arrays to compute with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.measure import links
from ttftdoctor.table import SCOPE_COLUMNS

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: A column counts as logged when at least this share of the rows has it.
COVERED = 0.5


@dataclass(frozen=True)
class Scope:
    """One grouping column: a code per row (-1 unknown) and the names of the codes."""

    codes: Index
    names: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """The requests as arrays in order of start, seconds and tokens, NaN where unknown.

    ``repeated`` counts prompt tokens an earlier request had computed (best estimate), with bounds
    ``repeated_low`` and ``repeated_high``; ``cached`` is what was served from a cache, logged or
    (``cached_basis``) inferred; ``uncached`` is input less cached.
    """

    n: int
    line: Index
    request_id: tuple[str | None, ...] | None
    start: Array
    epoch_us: int | None
    ttft: Array
    ttft_logged: Array
    e2e: Array
    queue: Array
    prefill: Array
    decode: Array
    load: Array
    inputs: Array
    cached: Array
    written: Array
    outputs: Array
    reasoning: Array
    attempts: Array
    turn: Array
    session: Index
    server: Index
    previous_input: Array
    previous_output: Array
    gap: Array
    moved: Array
    repeated: Array
    repeated_low: Array
    repeated_high: Array
    scopes: dict[str, Scope] = field(default_factory=dict)
    session_grade: Literal["logged", "linked", "none"] = "none"
    reuse_grade: Literal["content", "reported", "inferred", "none"] = "none"
    cached_logged: bool = False
    cached_basis: str = "unknown"
    cached_sure: float = 1.0
    order_known: bool = True
    notes: tuple[str, ...] = ()

    @property
    def uncached(self) -> Array:
        """Tokens that prefill had to compute; the input where nothing is known of a cache."""
        return self.inputs - np.nan_to_num(self.cached)

    @property
    def context(self) -> Array:
        """Tokens that were there already when prefill began."""
        return np.nan_to_num(self.cached)

    @property
    def recomputed(self) -> Array:
        """Repeated tokens that were computed again (0 where unknown)."""
        again: Array = np.nan_to_num(self.repeated) - np.nan_to_num(self.cached)
        return np.clip(again, 0.0, None)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Rows with a usable TTFT."""
        return np.isfinite(self.ttft)

    def take(self, index: NDArray[np.bool_] | Index) -> Rows:
        """The same for some of the rows."""
        arrays = {}
        for name, value in self.__dict__.items():
            if isinstance(value, np.ndarray):
                arrays[name] = value[index]
        scopes = {k: Scope(s.codes[index], s.names) for k, s in self.scopes.items()}
        ids = None
        if self.request_id is not None:
            where = np.arange(self.n)[index]
            ids = tuple(self.request_id[i] for i in where)
        changed: dict[str, Any] = {**arrays, "request_id": ids, "scopes": scopes}
        return replace(self, n=len(arrays["ttft"]), **changed)


def prepare(requests: pl.DataFrame) -> Rows:
    """Order the request table and work out sessions, turns and repeated tokens.

    Parameters
    ----------
    requests
        Canonical columns plus ``line``, ``source`` and ``ttft_logged_us``.
    """
    frame = requests
    order_known = frame["start"].null_count() < (1 - COVERED) * frame.height
    if order_known:
        frame = frame.sort("start", "source", "line", nulls_last=True)
    frame = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    notes: list[str] = []
    frame, session_grade = _sessions(frame, notes)
    frame = _turns(frame, notes)
    frame = _previous(frame)
    frame, reuse_grade = _repeated(frame)
    return _arrays(frame, session_grade, reuse_grade, order_known, tuple(notes))


def _covered(frame: pl.DataFrame, column: str) -> bool:
    return frame.height > 0 and frame[column].null_count() <= (1 - COVERED) * frame.height


def _sessions(
    frame: pl.DataFrame, notes: list[str]
) -> tuple[pl.DataFrame, Literal["logged", "linked", "none"]]:
    """Add ``session``, a number per conversation (null: alone), and say where it comes from."""
    turns = frame["turn"]
    if _covered(frame, "session_id"):
        sizes = frame.group_by("session_id").len()["len"]
        single = float((sizes == 1).sum()) / max(len(sizes), 1)
        numbered = turns.null_count() < frame.height
        if single <= 0.9 or numbered:
            coded = frame.with_columns(
                pl.col("session_id").rank("dense").cast(pl.Int64).alias("session")
            )
            return coded, "logged"
        notes.append(
            f"{single:.0%} of the session ids occur once: they look like ids of requests, "
            "and were not used"
        )
    by_blocks = links.by_blocks(frame)
    if by_blocks is not None:
        notes.append(by_blocks.note)
        return frame.with_columns(pl.Series("session", by_blocks.session)), "linked"
    if turns.null_count() == frame.height and _covered(frame, "input_tokens"):
        start = _seconds(frame, "start")
        lasting = np.nan_to_num(_seconds(frame, "e2e_us"))
        lasting = np.maximum(lasting, np.nan_to_num(_seconds(frame, "ttft_us")))
        group = (
            frame.select(
                pl.concat_str(["model", "tenant"], separator="\t", ignore_nulls=True)
                .fill_null("")
                .rank("dense")
            )
            .to_series()
            .cast(pl.Int64)
            .to_numpy()
        )
        found = links.by_arithmetic(
            start, start + lasting, _floats(frame, "input_tokens"),
            _floats(frame, "output_tokens"), _floats(frame, "cached_tokens"), group,
        )  # fmt: skip
        if found is not None:
            notes.append(found.note)
            return frame.with_columns(pl.Series("session", found.session)), "linked"
    return frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("session")), "none"


def _turns(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Fill ``turn``: as logged, from 1; else the place in the session by start."""
    place = pl.int_range(1, pl.len() + 1).over("session").cast(pl.Int64)
    derived = pl.when(pl.col("session").is_not_null()).then(place)
    if _covered(frame, "turn"):
        lowest = frame["turn"].min()
        shift = 1 if lowest == 0 else 0
        if shift:
            notes.append("turns are counted from 0 in the log; shown from 1")
        turn = pl.col("turn").cast(pl.Int64) + shift
    else:
        turn = derived
    # The place decides which request came before, even where turns are logged.
    return frame.with_columns(turn.alias("turn"), derived.alias("place"))


def _previous(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the previous request of the session: its input, output, end and replica."""
    ended = pl.col("start") + pl.coalesce("e2e_us", "ttft_us", pl.lit(0))
    inside = pl.col("session").is_not_null()

    def before(expr: pl.Expr) -> pl.Expr:
        return pl.when(inside).then(expr.shift(1).over("session"))

    return frame.with_columns(
        before(pl.col("input_tokens")).alias("previous_input"),
        before(pl.col("output_tokens").fill_null(0)).alias("previous_output"),
        (pl.col("start") - before(ended)).alias("gap_us"),
        (pl.col("replica") != before(pl.col("replica"))).alias("moved"),
    )


def _repeated(
    frame: pl.DataFrame,
) -> tuple[pl.DataFrame, Literal["content", "reported", "inferred", "none"]]:
    """Add ``repeated`` and its bounds by the best evidence there is."""
    total = pl.col("input_tokens")
    cached = pl.col("cached_tokens").fill_null(0)
    if _covered(frame, "prefix_blocks") and frame["block_tokens"].null_count() < frame.height:
        seen = _seen_blocks(frame)
        frame = frame.join(seen, on="row", how="left", maintain_order="left")
        tokens = pl.min_horizontal(
            pl.col("seen").fill_null(0) * pl.col("block_tokens").cast(pl.Int64), total
        )
        exact = pl.max_horizontal(tokens, pl.min_horizontal(cached, total))
        return frame.with_columns(
            exact.alias("repeated"), exact.alias("repeated_low"), exact.alias("repeated_high")
        ), "content"
    previous = pl.col("previous_input") + pl.col("previous_output")
    # An input clearly shorter than the last one was compacted: what is left of it is unknown.
    grown = total >= (pl.col("previous_input") * 0.98).cast(pl.Int64)
    first = pl.col("session").is_not_null() & pl.col("previous_input").is_null()
    high = (
        pl.when(first).then(0)
        .when(pl.col("previous_input").is_not_null()).then(pl.min_horizontal(total, previous))
    )  # fmt: skip
    low = (
        pl.when(first).then(0)
        .when(grown).then(pl.min_horizontal(total, pl.col("previous_input")))
        .when(pl.col("previous_input").is_not_null()).then(0)
    )  # fmt: skip
    best = pl.when(first).then(0).when(grown).then(high)
    reported = _covered(frame, "cached_tokens")
    has_sessions = frame["session"].null_count() < frame.height
    if reported:
        floor = pl.min_horizontal(cached, total)
        frame = frame.with_columns(
            pl.max_horizontal(best.fill_null(0), floor).alias("repeated"),
            pl.max_horizontal(low.fill_null(0), floor).alias("repeated_low"),
            pl.max_horizontal(high.fill_null(0), floor).alias("repeated_high"),
        )
        return frame, "reported"
    frame = frame.with_columns(
        best.alias("repeated"), low.alias("repeated_low"), high.alias("repeated_high")
    )
    return frame, "inferred" if has_sessions else "none"


def _seen_blocks(frame: pl.DataFrame) -> pl.DataFrame:
    """Blocks of each row that an earlier row had; chained hashes make them a leading run."""
    refs = frame.select("row", pl.col("prefix_blocks").alias("block")).explode("block").drop_nulls()
    first = refs.group_by("block").agg(pl.col("row").min().alias("first"))
    return (
        refs.join(first, on="block")
        .group_by("row")
        .agg((pl.col("first") < pl.col("row")).sum().cast(pl.Int64).alias("seen"))
    )


def _seconds(frame: pl.DataFrame, column: str) -> Array:
    return frame[column].cast(pl.Float64).to_numpy() / 1e6


def _floats(frame: pl.DataFrame, column: str) -> Array:
    values: Array = frame[column].cast(pl.Float64).to_numpy()
    return values


def _arrays(
    frame: pl.DataFrame,
    session_grade: Literal["logged", "linked", "none"],
    reuse_grade: Literal["content", "reported", "inferred", "none"],
    order_known: bool,
    notes: tuple[str, ...],
) -> Rows:
    first = frame["start"].min() if order_known else None
    origin = int(first) if isinstance(first, int) else 0
    start = (frame["start"] - origin).cast(pl.Float64).to_numpy() / 1e6
    scopes = {}
    for column in SCOPE_COLUMNS:
        names = frame[column].drop_nulls().unique().sort()
        if 1 <= len(names) <= 500:
            codes = frame[column].replace_strict(
                names, pl.Series(range(len(names)), dtype=pl.Int64), default=-1
            )
            scopes[column] = Scope(codes.fill_null(-1).to_numpy(), tuple(names.to_list()))
    return Rows(
        n=frame.height,
        line=frame["line"].to_numpy(),
        request_id=tuple(frame["request_id"].to_list())
        if frame["request_id"].null_count() < frame.height and frame.height <= 2_000_000
        else None,
        start=start,
        # A clock that starts near 1970 is relative: monotonic, or from the log's own zero.
        epoch_us=origin if order_known and origin > 10**14 else None,
        ttft=_seconds(frame, "ttft_us"),
        ttft_logged=_seconds(frame, "ttft_logged_us"),
        e2e=_seconds(frame, "e2e_us"),
        queue=_seconds(frame, "queue_us"),
        prefill=_seconds(frame, "prefill_us"),
        decode=_seconds(frame, "decode_us"),
        load=_seconds(frame, "load_us"),
        inputs=_floats(frame, "input_tokens"),
        cached=_floats(frame, "cached_tokens"),
        written=_floats(frame, "cache_write_tokens"),
        outputs=_floats(frame, "output_tokens"),
        reasoning=_floats(frame, "reasoning_tokens"),
        attempts=_floats(frame, "attempts"),
        turn=_floats(frame, "turn"),
        session=frame["session"].fill_null(-1).to_numpy(),
        server=_servers(frame),
        previous_input=_floats(frame, "previous_input"),
        previous_output=_floats(frame, "previous_output"),
        gap=_seconds(frame, "gap_us"),
        moved=_floats(frame, "moved"),
        repeated=_floats(frame, "repeated"),
        repeated_low=_floats(frame, "repeated_low"),
        repeated_high=_floats(frame, "repeated_high"),
        scopes=scopes,
        session_grade=session_grade,
        reuse_grade=reuse_grade,
        cached_logged=_covered(frame, "cached_tokens"),
        cached_basis="logged" if _covered(frame, "cached_tokens") else "unknown",
        order_known=order_known,
        notes=notes,
    )


def _servers(frame: pl.DataFrame) -> Index:
    """Who competes with whom: the replica, or, where none is named, the model."""
    column = "replica" if _covered(frame, "replica") else "model"
    # Relative clocks of different files must not be set beside each other.
    relative = (pl.col("start") < 10**14).fill_null(True)
    clock = pl.when(relative).then(pl.col("source").cast(pl.String)).otherwise(pl.lit(""))
    codes: Index = (
        frame.select(
            pl.concat_str([pl.col(column).fill_null(""), clock], separator="\t")
            .rank("dense").cast(pl.Int64) - 1
        ).to_series().to_numpy()
    )  # fmt: skip
    return codes
