"""What only the page's charts need beyond the tables of the measuring: spreads, waste by session.

The requests are served once more with each remedy whose gain was predicted, this time to see how
far apart they lie; and the sessions that computed most again are looked up, with their requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Charts, Gain, SessionWaste
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.replay import Replay
from ttftdoctor.measure.rows import Array, Rows
from ttftdoctor.measure.worst import Blame, worst
from ttftdoctor.stats import or_zero

#: Sessions shown of those that computed something again.
SESSIONS = 15
#: Quantiles of a spread, beside the median and the 95 % of a prediction.
LEVELS = (0.05, 0.25, 0.75)
#: Waste of less than this part of all TTFT is not worth a chart.
LEAST = 0.01

Spread = tuple[float, float, float]


def complete(
    charts: Charts,
    rows: Rows,
    ledger: Ledger | None,
    served: Replay | None,
    remedies: Sequence[Gain],
    requests: pl.DataFrame,
    paths: Sequence[str],
) -> Charts:
    """The tables of the measuring with what else the page draws.

    Parameters
    ----------
    requests, paths
        The request table that the rows were made from, and the files by its column ``source``.
    """
    sessions, many, seconds = (
        waste(rows, ledger, requests, paths) if ledger is not None else ((), 0, 0.0)
    )
    return replace(
        charts,
        spreads=spreads(served, remedies) if served is not None else {},
        acts_on={remedy.id: remedy.acts_on for remedy in catalog.remedies()},
        waste=sessions,
        waste_sessions=many,
        waste_s=seconds,
    )


def spreads(served: Replay, remedies: Sequence[Gain]) -> Mapping[str, Spread]:
    """Quantiles of TTFT today and with each remedy, in seconds, by its id.

    Where stretches of a huge log were served, they are scaled as its median is.
    """
    today = _quantiles(served.rows.ttft, served.scale[1])
    if today is None or not remedies:
        return {}
    out = {"today": today}
    for gain in remedies:
        # The treatment is the one that this outcome came of.
        treatment = next(
            (t for t, o in served.tried.items()
             if o.gain_share == gain.gain_share and o.mean == gain.ttft_mean_s),
            None,
        )  # fmt: skip
        if treatment is None:
            continue
        then = _quantiles(served.serve(treatment), served.scale[1])
        if then is not None:
            out[gain.id] = then
    return out


def _quantiles(seconds: Array, scale: float) -> Spread | None:
    known = seconds[np.isfinite(seconds)]
    if not len(known):
        return None
    low, middle, high = (float(v) * scale for v in np.quantile(known, LEVELS))
    return low, middle, high


def waste(
    rows: Rows, ledger: Ledger, requests: pl.DataFrame, paths: Sequence[str]
) -> tuple[tuple[SessionWaste, ...], int, float]:
    """Sessions by their seconds of prefill for repeated tokens, how many have some, and the sum."""
    session = rows.session
    named = session >= 0
    again = np.where(named, or_zero(ledger.accounts["prefill_repeated"]), 0.0)
    total = float(again.sum())
    if rows.session_grade == "none" or total < LEAST * float(np.nansum(rows.ttft)) or total <= 0:
        return (), 0, 0.0
    codes = np.where(named, session, 0)
    size = int(codes.max()) + 1
    seconds = np.bincount(codes, again, size)
    tokens = np.bincount(codes, np.where(named, or_zero(rows.recomputed), 0.0), size)
    counted = np.bincount(session[named], minlength=size)
    order = np.argsort(-seconds, kind="stable")[:SESSIONS]
    found = []
    for code in order[seconds[order] > 0]:
        own = {"session": np.where(session == code, again, 0.0)}
        worst_rows, _ = worst(Blame(rows, ledger, own), "session", requests, paths)
        name = worst_rows[0].session_id if worst_rows else None
        found.append(
            SessionWaste(
                session_id=name,
                requests=int(counted[code]),
                tokens=float(tokens[code]),
                seconds=float(seconds[code]),
                rows=worst_rows,
            )
        )
    return tuple(found), int((seconds > 0).sum()), total
