"""What each row owes to the turn before it, for sessions that are not looked at as a whole.

The rows of a session may come in several pieces, in order: what the next piece needs of those
before it is the last row of each session, and where that may be a side call the few before it
(``carry``). So neither one giant session nor a part of a cluster needs more memory than a piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ttftdoctor.measure.turns import steps_back, steps_open
from ttftdoctor.table import FACTS, LINE, ended_at

#: The order of a session's turns; without known starts that of the log.
IN_TIME = ("start", "source", LINE)
AS_READ = ("source", LINE)

#: What is carried of the last rows of a session, in order: their places, and what a later row owes
#: to them.
CARRY_TYPES = pl.Schema(
    {
        "session_id": pl.String,
        "place_in_session": pl.Int64,
        "input_tokens": pl.Int64,
        "output_tokens": pl.Int64,
        "end": pl.Int64,
        "replica": pl.String,
    }
)
FACT_TYPES = pl.Schema(FACTS)
#: What a later row owes, and the fact that it becomes.
OWED = {
    "input_tokens": "before_input",
    "output_tokens": "before_output",
    "end": "before_end",
    "replica": "before_replica",
}


def nothing_carried() -> pl.DataFrame:
    """The carry before the first piece."""
    return pl.DataFrame(schema=CARRY_TYPES)


def of_session(carry: pl.DataFrame, session: str | None) -> pl.DataFrame:
    """What is needed of a carry where only this session may go on."""
    return carry.filter(pl.col("session_id") == session)


def turn_order(order_known: bool) -> tuple[str, ...]:
    """The columns by which the turns of a session are in order."""
    return IN_TIME if order_known else AS_READ


def facts_of(
    rows: pl.DataFrame, carry: pl.DataFrame, order_known: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add the columns of ``FACTS`` to rows.

    Parameters
    ----------
    rows
        Canonical columns; of each session all rows that come after those of earlier pieces and
        before those of later ones, in any order.
    carry
        The last rows of each session that earlier pieces had.
    order_known
        Whether the log tells when requests came.

    Returns
    -------
    rows, carry
        In order of time, and the carry for the next piece.
    """
    by = turn_order(order_known)
    if not _ordered(rows, by):
        rows = rows.sort(by, nulls_last=True, maintain_order=True)
    # Only what is needed of the turn before is put in order, not all that is known of the rows.
    turns = rows.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        "session_id",
        pl.lit(1, dtype=pl.Int64).alias("place_in_session"),
        "input_tokens",
        pl.col("output_tokens").fill_null(0),
        ended_at().alias("end"),
        "replica",
    ).filter(pl.col("session_id").is_not_null())
    older = carry
    if carry.height:
        named = turns.select("session_id").unique()
        older = carry.join(named, on="session_id", how="anti", maintain_order="left")
        going_on = carry.join(named, on="session_id", how="semi", maintain_order="left")
        alone = pl.lit(None, dtype=pl.Int64).alias("row")
        turns = pl.concat([going_on.select(alone, pl.all()).cast(turns.schema), turns])
    turns, last = _told(turns)
    facts = turns.filter(pl.col("row").is_not_null()).sort("row").cast(FACT_TYPES)
    if facts.height == rows.height:
        return rows.hstack(facts.drop("row")), pl.concat([older, last])
    rows = (
        rows.with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .join(facts, on="row", how="left", maintain_order="left")
        .drop("row")
    )
    return rows, pl.concat([older, last])


def _told(turns: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The facts of rows of sessions, in order of time, by ``row``; and what is carried of them.

    What was carried comes first and has no ``row``; the place of a session's first row is known.
    """
    turns = turns.with_columns(pl.col("session_id").hash(seed=0).alias("code"))
    turns = turns.sort("code", maintain_order=True).drop("code")
    new = turns.select((pl.col("session_id") != pl.col("session_id").shift(1)).fill_null(True))
    first = np.flatnonzero(new.to_series().to_numpy())
    size = np.diff(np.append(first, turns.height))
    nth = np.arange(1, turns.height + 1) - np.repeat(first, size)
    place = nth - 1 + np.repeat(turns["place_in_session"].to_numpy()[first], size)
    inputs = turns["input_tokens"].cast(pl.Float64).to_numpy()
    back = steps_back(nth, inputs)
    before = pl.Series(np.arange(turns.height) - back).set(pl.Series(back == 0), None)
    turns = turns.with_columns(pl.Series("place_in_session", place))
    facts = turns.select(
        "row",
        "place_in_session",
        *(pl.col(name).gather(before).alias(fact) for name, fact in OWED.items()),
        pl.Series("passed_over", np.maximum(back - 1, 0)),
    )
    ends = first + size - 1
    reach = steps_open(nth, ends, inputs)
    kept = np.repeat(ends - reach + 1, size) <= np.arange(turns.height)
    return facts, turns.filter(pl.Series(kept, dtype=pl.Boolean)).drop("row").cast(CARRY_TYPES)


def _ordered(rows: pl.DataFrame, by: Sequence[str]) -> bool:
    """Whether the rows are in order already; nulls last."""
    if by[0] == "start":
        if rows["start"].null_count() or not rows["start"].is_sorted():
            return False
        # Of one start they must be in the order of the log as well.
        same = pl.col("start") == pl.col("start").shift(1)
    else:
        same = pl.lit(True)
    source, line = pl.col("source"), pl.col(LINE)
    behind = (source < source.shift(1)) | ((source == source.shift(1)) & (line < line.shift(1)))
    return not rows.select((same & behind).any()).item()
