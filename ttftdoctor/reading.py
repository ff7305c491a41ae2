"""What readers of many formats do alike: find the records, plan their columns, hand them over.

Records stand in the log itself or, as the answer of an API, on a page: a list inside a single
document. A prompt may stand anywhere in a record; its columns are asked for beside the reader's
own, and its blocks are added to the finished rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from ttftdoctor.language import tr
from ttftdoctor.prompts import Prompts, Where, find
from ttftdoctor.readers import Batch, Options, Plan, Raw
from ttftdoctor.sources import Head
from ttftdoctor.table import Field


def pages(head: Head, *keys: str) -> Iterator[tuple[str, tuple[Mapping[str, Any], ...]]]:
    """The first records of the log and of each page, after the words for where they stand."""
    yield "", tuple(head.records)
    for key in keys:
        yield tr(" in {key}", key=key), tuple(head.inner.get(key, ()))


def page_of(head: Head, *keys: str, unless: str | None = None) -> str | None:
    """The key of the page that holds the records (:attr:`Plan.unwrap`), the first that is there.

    None without one, and where the log has the column ``unless``: the records are then its own.
    """
    if unless is not None and unless in head.columns:
        return None
    return next((key for key in keys if key in head.inner), None)


class Threads:
    """Conversations by the id of the answer before, of a log that is read part by part.

    A conversation is named after its first answer that is known; one that goes on from an answer
    that the log does not have, after that.
    """

    def __init__(self) -> None:
        self._known = pl.DataFrame(schema={"id": pl.String, "root": pl.String})

    def sessions(self, answers: pl.Series, before: pl.Series) -> pl.Series:
        """For each row the name of its conversation; null where neither id is known.

        Parameters
        ----------
        answers, before
            Ids of a row's own answer and of the one that it goes on from; null without one.
        """
        rows = pl.DataFrame(
            {"id": answers.cast(pl.String), "root": before.cast(pl.String)}
        ).with_columns(pl.coalesce("root", "id").alias("root"))
        # An answer has one place: where it is told again, the first one counts.
        own = rows.drop_nulls("id").unique("id", keep="first", maintain_order=True)
        every = pl.concat([self._known, own]).unique("id", keep="first", maintain_order=True)
        for _ in range(64):  # a chain of 2**64 answers, or a circle, has no end
            above = every.select(pl.col("id").alias("root"), pl.col("root").alias("above"))
            step = every.join(above, on="root", how="left", maintain_order="left")
            step = step.with_columns(pl.coalesce("above", "root").alias("above"))
            done = (step["above"] == step["root"]).all()
            every = step.select("id", pl.col("above").alias("root"))
            if done:
                break
        self._known = every
        above = every.select(pl.col("id").alias("root"), pl.col("root").alias("above"))
        found = rows.join(above, on="root", how="left", maintain_order="left")
        return found.select(pl.coalesce("above", "root").alias("session")).to_series()


def complete(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with those of the columns that it lacks, as text that is null."""
    lacking = [name for name in names if name not in frame.columns]
    return frame.with_columns(pl.lit(None, pl.String).alias(name) for name in lacking)


def prompts_of(where: Where | None, options: Options) -> Prompts | None:
    """The prompts at these places, measured and kept as the user says; None without a place."""
    if where is None:
        return None
    return Prompts(
        where, bytes_per_token=options.bytes_per_token, tokenizer=options.tokenizer,
        parts=options.text,
    )  # fmt: skip


def plan_of(
    head: Head,
    options: Options,
    texts: Iterable[str],
    convert: Callable[[Raw, Prompts | None], Batch],
    *,
    unwrap: str | None = None,
    whole: bool = False,
) -> Plan:
    """Columns of text and whatever prompts the first records hold (``unwrap``: on that page).

    ``convert`` gets the prompts, or None, beside the raw rows.
    """
    prompts = prompts_of(find(head.inner[unwrap] if unwrap else head.records), options)
    names = (*texts, *(prompts.where.columns if prompts else ()))
    return Plan(
        dict.fromkeys(names, pl.String),
        lambda raw: convert(raw, prompts),
        whole=whole,
        unwrap=unwrap,
    )


def batch_of(
    frame: pl.DataFrame,
    fields: Mapping[str, Field],
    notes: tuple[str, ...] = (),
    *,
    raw: Raw,
    prompts: Prompts | None = None,
) -> Batch:
    """The batch of a canonical frame: the fields of columns that hold anything, and the prompts.

    Parameters
    ----------
    fields
        All that the format can fill; ``frame`` has a column for each.
    raw
        The rows that ``frame`` was made of, in the same order, with the prompts' columns.
    """
    filled = {name: field for name, field in fields.items() if frame[name].count()}
    if prompts is None:
        return Batch(frame, filled, notes)
    told = prompts.read(frame, raw.frame)
    return Batch(
        told.frame, filled | told.fields, (*notes, *told.notes), told.parts,
        prompts.bytes_per_token,
    )  # fmt: skip
