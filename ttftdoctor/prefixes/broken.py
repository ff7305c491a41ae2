"""What breaks shared beginnings, priced and in words."""

from __future__ import annotations

import numpy as np
import polars as pl

from ttftdoctor.intake import Log
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.rows import Index, Rows
from ttftdoctor.prefixes.breakers import FIXES, KINDS, Breaker, look
from ttftdoctor.prefixes.ladder import Costs
from ttftdoctor.prefixes.records import AlsoRecord, BreakerRecord
from ttftdoctor.stats import Array
from ttftdoctor.units import count

HABITS = {
    "unique": mark("a new value nearly each time"),
    "thrashing": mark("a few values by turns"),
    "once": mark("changed once, or now and then"),
}


def broken(
    log: Log, rows: Rows, at: Index, ideal: Array, costs: Costs, *, show_text: bool
) -> tuple[tuple[BreakerRecord, ...], str]:
    """The breakers of a log, the most costly first, and what was looked at.

    Parameters
    ----------
    at
        The rows that are priced.
    ideal
        Tokens that an endless cache gives each of them: what a breaker takes comes on top.
    """
    assert rows.place is not None
    # Linked sessions are made of prompts that do go on: they cannot show one that does not.
    session = rows.session if rows.session_grade == "logged" else np.full(rows.n, -1)
    frame = log.requests[rows.place].select(
        "source", "line", "model", "tenant", "input_tokens", "prefix_blocks", "block_tokens"
    )
    frame = frame.with_columns(
        pl.Series("row", np.arange(rows.n)), pl.Series("session", session, dtype=pl.Int64)
    )
    parts = None
    if log.prompts is not None:
        parts = frame.select("row", "source", "line").join(
            log.prompts.with_columns(pl.col("source").cast(frame.schema["source"])),
            on=["source", "line"],
            maintain_order="left",
        )
    found = look(frame, parts, show_text=show_text)
    place = np.full(rows.n, -1)
    place[at] = np.arange(len(at))
    paths = [record.path for record in log.inputs]
    records = tuple(
        _record(one, place, rows.inputs[at], ideal, costs, paths) for one in found.breakers
    )
    if not found.pairs:
        return records, tr(
            "no two requests are known that should share a beginning: nothing is known of breakers "
            "(session ids, or the text of prompts, would tell)"
        )
    says = tr(
        "{n} requests were held against an earlier one that they should go on from, by {what}",
        n=count(found.pairs), what=tr("their text") if found.with_text else tr("their blocks"),
    )  # fmt: skip
    if not records:
        says = tr("{looked}: nothing breaks their beginnings", looked=says)
    elif not found.with_text and log.bytes_per_token is not None:
        says = tr(
            "{looked}; what differs there, the text of this log tells (ttftdoctor prefix)",
            looked=says,
        )
    return records, says


def _record(
    one: Breaker, place: Index, inputs: Array, ideal: Array, costs: Costs, paths: list[str]
) -> BreakerRecord:
    lost = np.zeros(len(inputs))
    where = place[one.lost["row"].to_numpy()]
    inside = where >= 0
    lost[where[inside]] = one.lost["tokens"].to_numpy()[inside]
    lost = np.minimum(lost, np.clip(inputs - ideal, 0.0, None))
    now, better = costs.spent_s(inputs, ideal), costs.spent_s(inputs, ideal + lost)
    slower = None if now is None or better is None else now - better
    money = costs.lost(lost, slower)
    return BreakerRecord(
        kind=one.kind,
        section=one.section,
        path=one.path,
        position_tokens=one.position_tokens,
        position_interval=one.position_interval,
        habit=one.habit,
        requests=one.requests,
        of_requests=one.of_requests,
        within_session=one.within_session,
        sessions=one.sessions,
        tokens_lost=one.tokens_lost,
        tokens_apart=one.tokens_apart,
        seconds_lost=None if slower is None else float(slower.sum()),
        money_lost=None if money is None else float(money.sum()),
        examples=tuple(f"{paths[source]}:{line}" for source, line in one.examples),
        says=tr("{kind}, {habit}: {fix}", kind=tr(KINDS[one.kind]), habit=tr(HABITS[one.habit]),
                fix=tr(FIXES[one.kind])),
        also=tuple(AlsoRecord(other.kind, other.position_tokens) for other in one.also),
        before=one.sample_before,
        after=one.sample_after,
    )  # fmt: skip
