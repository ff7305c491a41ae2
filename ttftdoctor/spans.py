"""What traced calls and gateways' rows say alike: which are calls of a model, and how they went.

A trace holds more than calls of a model, and one call at times twice: as the span of a framework
around that of a client library, or as a row that was exported again. A frame here holds whole
traces; expressions are over its rows.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.readers import status_of

#: A first token this close to the end of an answer is the answer itself.
SAME_US = 1000


def turned_away(
    frame: pl.DataFrame,
    calls: pl.Expr,
    name: pl.Expr,
    parent: pl.Expr,
    again: pl.Expr | None = None,
) -> pl.Expr:
    """Why a span is no request: no call of a model, a call around another one, or told before.

    Parameters
    ----------
    calls
        Which rows are calls of a model; never null.
    name, parent
        The span's own name and that of the span it is part of. Of nested calls, however many,
        only the innermost is left.
    again
        Which rows repeat another one; None where that cannot be.
    """
    inner = frame.select(parent.filter(calls)).to_series().drop_nulls()
    reason = (
        pl.when(~calls)
        .then(pl.lit("not_a_model_call"))
        .when(name.is_in(inner.implode()).fill_null(False))
        .then(pl.lit("wraps_another_call"))
    )
    return reason if again is None else reason.when(again).then(pl.lit("repeated_row"))


def told_before(name: pl.Expr) -> pl.Expr:
    """Whether a row above has the same name; rows without a name are all different."""
    return name.is_not_null() & ~name.is_first_distinct()


def outdated(frame: pl.DataFrame, name: pl.Expr, stamp: pl.Expr) -> pl.Series:
    """Whether another row of the same name has a later stamp; of equal ones the first stays."""
    named = frame.select(name.alias("name"), stamp.alias("stamp"))
    nth = pl.col("stamp").rank("ordinal", descending=True).over("name")
    later = (pl.col("name").is_not_null() & (nth > 1)).fill_null(False)
    return named.select(later.alias("outdated")).to_series()


def not_streamed(ttft: pl.Expr, e2e: pl.Expr) -> pl.Expr:
    """``not_streamed`` where the first token (us) came with the end of the answer, else null."""
    return pl.when(ttft >= e2e - SAME_US).then(pl.lit("not_streamed"))


def no_first_token(ttft: pl.Expr, e2e: pl.Expr) -> pl.Expr:
    """:func:`not_streamed`, or that a first token worked out from stamps lies before the start."""
    early = pl.when(ttft < 0).then(pl.lit("first_token_before_start"))
    return pl.coalesce(not_streamed(ttft, e2e), early)


def whole_prompt(
    said: pl.Expr, read: pl.Expr, write: pl.Expr | None = None, apart: pl.Expr | None = None
) -> pl.Expr:
    """Input tokens with the cached ones; null for none at all, which stands for "not counted".

    Parameters
    ----------
    said, read, write
        Input tokens as logged, and those read from and written to a cache.
    apart
        Rows of which it is known that ``said`` leaves out the others. Of any row, more of these
        than ``said`` prove it.
    """
    cache = read.fill_null(0) if write is None else read.fill_null(0) + write.fill_null(0)
    proved = cache > said
    tokens = pl.when(proved if apart is None else apart | proved).then(said + cache).otherwise(said)
    return pl.when(tokens != 0).then(tokens)


def failure(text: pl.Expr) -> pl.Expr:
    """The status of a call that failed, by the text of its error; ``error`` without a better."""
    why = status_of(text)
    return pl.when(why.is_in(["rate_limited", "aborted"])).then(why).otherwise(pl.lit("error"))


def status_by_error(text: pl.Expr) -> pl.Expr:
    """``ok`` without the text of an error, else its :func:`failure`."""
    return pl.when(text.is_null()).then(pl.lit("ok")).otherwise(failure(text))
