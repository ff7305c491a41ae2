"""From all rows of a log to its tally and its extract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from ttftdoctor.extracts.facts import facts_of
from ttftdoctor.extracts.stretches import Choice, belonging
from ttftdoctor.extracts.tally import Manner, Tally, tally_of
from ttftdoctor.table import FACTS, LINE, PROMPT_FACTS, REJECT


@dataclass(frozen=True)
class Gathered:
    """What some whole sessions came to: their tally, and of their rows those looked at."""

    tally: Tally
    requests: pl.DataFrame
    failed: pl.DataFrame


def gather(
    rows: pl.DataFrame, carry: pl.DataFrame, manner: Manner, choice: Choice
) -> tuple[Gathered, pl.DataFrame]:
    """Work on a piece of the rows of some sessions; see :func:`facts_of` for pieces and carry."""
    failed = rows.drop(PROMPT_FACTS, strict=False).clear()
    if rows[REJECT].null_count() < rows.height:
        good = pl.col(REJECT).is_null()
        failed = rows.drop(PROMPT_FACTS, strict=False).filter(~good)
        rows = rows.filter(good)
    requests, carry = facts_of(rows, carry, manner.order_known)
    return Gathered(
        tally_of(requests, manner),
        belonging(requests, choice),
        belonging(failed, choice),
    ), carry


def in_order(frames: Iterable[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """Rows of an extract in the order in which they were read, with all columns of the schema."""
    some = [frame for frame in frames if frame.height]
    if not some:
        return pl.DataFrame(schema=schema)
    rows = pl.concat(some)
    del some
    order = pl.Series(np.lexsort((rows[LINE].to_numpy(), rows["source"].to_numpy())))
    none = pl.Series([None], dtype=pl.Int8)
    columns = {}
    for name, kind in schema.items():  # one after the other, since an extract fills the memory
        known = name in rows.columns and rows[name].null_count() < rows.height
        if known:  # in one piece first: of many, each value would be looked for
            columns[name] = rows[name].rechunk().gather(order)
        else:
            columns[name] = none.cast(kind).new_from_index(0, len(order))
        rows = rows.drop(name, strict=False)
    return pl.DataFrame(columns)


def with_facts(schema: pl.Schema, *, content: bool) -> pl.Schema:
    """The columns of rows that have their facts, and those of their prompts with ``content``."""
    return pl.Schema({**schema, **FACTS, **(PROMPT_FACTS if content else {})})
