"""What each row owes to the turn before it, for sessions that are not looked at as a whole.

The rows of a session may come in several pieces, in order: what the next piece needs of those
before it is the last row of each session (``carry``). So neither one giant session nor a part of
a cluster needs more memory than a piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ttftdoctor.table import FACTS, LINE, ended_at

#: The order of a session's turns; without known starts that of the log.
IN_TIME = ("start", "source", LINE)
AS_READ = ("source", LINE)

#: What is carried: the last row of a session, as the facts of the next one.
CARRY_TYPES = pl.Schema({"session_id": pl.String, **FACTS})
FACT_TYPES = pl.Schema(FACTS)


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
        The last row of each session that earlier pieces had.
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
    turns = (
        rows.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
            "session_id",
            pl.col("session_id").hash(seed=0).alias("code"),
            "input_tokens",
            pl.col("output_tokens").fill_null(0),
            ended_at().alias("end"),
            "replica",
        )
        .filter(pl.col("session_id").is_not_null())
        .sort("code", maintain_order=True)
    )
    new = (pl.col("session_id") != pl.col("session_id").shift(1)).fill_null(True)
    at = pl.int_range(pl.len(), dtype=pl.Int64)
    before = dict(zip(list(FACTS)[1:], turns.columns[3:], strict=True))
    turns = turns.with_columns(
        (at - pl.when(new).then(at).forward_fill() + 1).alias("place_in_session"),
        *(pl.when(~new).then(pl.col(c).shift(1)).alias(name) for name, c in before.items()),
    )
    if carry.height:
        turns = _carried_on(turns, carry)
    last = (
        turns.filter(new.shift(-1).fill_null(True))
        .select("session_id", "place_in_session", *(pl.col(c).alias(n) for n, c in before.items()))
        .cast(CARRY_TYPES)
    )
    older = carry.join(last, on="session_id", how="anti", maintain_order="left")
    facts = turns.sort("row").select("row", *FACTS).cast(FACT_TYPES)
    if facts.height == rows.height:
        return rows.hstack(facts.drop("row")), pl.concat([older, last])
    rows = (
        rows.with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .join(facts, on="row", how="left", maintain_order="left")
        .drop("row")
    )
    return rows, pl.concat([older, last])


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


def _carried_on(rows: pl.DataFrame, carry: pl.DataFrame) -> pl.DataFrame:
    """The rows of sessions that began in earlier pieces, placed behind those."""
    both = rows.join(carry, on="session_id", how="left", maintain_order="left", suffix="_carried")
    first = pl.col("place_in_session") == 1
    place = pl.col("place_in_session") + pl.col("place_in_session_carried").fill_null(0)
    return both.with_columns(
        *(
            pl.when(first).then(pl.col(f"{name}_carried")).otherwise(name).alias(name)
            for name in FACTS
            if name != "place_in_session"
        ),
        place.alias("place_in_session"),
    ).drop(f"{name}_carried" for name in FACTS)
