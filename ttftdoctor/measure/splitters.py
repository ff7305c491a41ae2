"""Which field that no column uses tells the requests apart that take longer than is explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from ttftdoctor.evidence import Splitter
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.rows import Array, Index, Mask, Rows, Scope
from ttftdoctor.stats import auc, median, or_zero, quantile, quantile_fit, rank_correlation, thin

#: What a request met says how it was served, and is no path that it took.
_MET = re.compile(
    r"cach|hit|miss|cold|warm|retr|attempt|tries|queue|wait|batch|concurr|running|load"
)
#: Fields with more different values name no group; of more, the first use of each may still tell.
MOST_VALUES, MOST_FIRSTS = 20, 200
#: So many values used last may be kept at hand (adapters, grammars): who needs another waits.
KEPT = (1, 2, 3, 4, 6, 8)
#: Requests compared at most.
MOST_COMPARED = 10_000
#: A part of the mean TTFT that must be left over before fields are looked at.
LEFT_OVER = 0.25
#: A field must tell at least this part of what is left over,
TELLS = 0.5
#: ... by this many seconds a request,
FEWEST_S = 0.15
#: ... in at least so many requests that have it, and that have it not,
FEWEST = 6
#: ... of which one that has it takes longer than one that has it not with this probability,
ABOVE = 0.8
#: ... by so many standard deviations more than by chance (some hundred groups are tried).
SURE = 4.2
#: A duration is part of TTFT if TTFT grows by about its own seconds with each second of it.
INSIDE = (0.7, 1.4)
#: ... and follows it so well, by ranks.
FOLLOWS = 0.6


@dataclass(frozen=True)
class _Group:
    """Some requests by one field: those of a value, the first of each, or of one long unused."""

    field: str
    kind: str  # value, above, first or gone
    value: str
    mask: Mask


def splitters(
    rows: Rows, ledger: Ledger, fields: pl.DataFrame, seen: Mask, left_s: float
) -> list[Splitter]:
    """The fields that tell much of what is left over, the one first that tells it best.

    Parameters
    ----------
    fields
        Values of unused fields, one row for each row of ``rows``: Float64 or text.
    seen
        The rows whose values are known, or known to be none.
    left_s
        Seconds of the mean TTFT that are unexplained.
    """
    a = ledger.accounts
    took = rows.ttft - a["prefill_new"] - a["prefill_repeated"] - or_zero(ledger.wait)
    known = np.isfinite(took) & seen
    if known.sum() > MOST_COMPARED:
        some = np.zeros(rows.n, dtype=bool)
        some[np.flatnonzero(known)[thin(int(known.sum()), MOST_COMPARED)]] = True
        known = some
    found = [_judged(group, took, known) for series in fields for group in _groups(rows, series)]
    found += [
        _inside(series, rows.ttft, took, known) for series in fields if series.dtype == pl.Float64
    ]
    telling = [one for one in found if one is not None and one.seconds >= TELLS * left_s]
    return sorted(telling, key=lambda one: -one.gain)


#: A path explains a constant if it tells the requests apart nearly as well as the best field.
NEARLY = 0.5


def path_of(found: list[Splitter]) -> Splitter | None:
    """The best of the fields that may stand for a path, on which a constant is paid."""
    paths = (one for one in found if is_path(one) and one.gain >= NEARLY * found[0].gain)
    return next(paths, None)


def is_path(found: Splitter) -> bool:
    """Whether the field may stand for a path, on which a constant is paid."""
    return found.kind == "value" and not _MET.search(found.field.lower())


def scope_of(fields: pl.DataFrame, name: str) -> Scope:
    """A field as a grouping column."""
    texts = _texts(fields[name])
    names = texts.drop_nulls().unique().sort()
    codes = texts.replace_strict(names, pl.Series(range(len(names)), dtype=pl.Int64), default=-1)
    return Scope(codes.cast(pl.Int64).to_numpy(), tuple(names.to_list()))


def _texts(values: pl.Series) -> pl.Series:
    if values.dtype == pl.String:
        return values
    whole = (values == values.round(0)).all()
    return (values.cast(pl.Int64) if whole else values).cast(pl.String)


def _groups(rows: Rows, values: pl.Series) -> Iterator[_Group]:
    texts = _texts(values)
    n = texts.n_unique()
    if n < 2 or n > MOST_FIRSTS:
        return
    _, codes = np.unique(texts.fill_null("").to_numpy().astype(str), return_inverse=True)
    given = texts.is_not_null().to_numpy()
    if n <= MOST_VALUES:
        for value in texts.drop_nulls().unique().sort().to_list():
            yield _Group(values.name, "value", value, (texts == value).fill_null(False).to_numpy())
        if values.dtype == pl.Float64:
            for low in values.drop_nulls().unique().sort().to_list()[:-2]:
                above = (values > low).fill_null(False).to_numpy()
                yield _Group(values.name, "above", f"{low:g}", above)
    if values.dtype == pl.String and rows.order_known:
        since = _others_since(rows, codes, np.flatnonzero(given))
        yield _Group(values.name, "first", "", np.isinf(since) & given)
        for k in (k for k in KEPT if k < n):
            yield _Group(values.name, "gone", str(k), (since >= k) & given)


def _others_since(rows: Rows, codes: Index, at: Index) -> Array:
    """How many other values came at a server since it last had this one; infinite for its first.

    Worked out for the rows ``at``; 0 for all others.
    """
    at = at[np.argsort(rows.start[at], kind="stable")]
    since: list[float] = []
    latest: dict[int, list[int]] = {}
    met: set[int] = set()
    for code, server in zip(codes[at].tolist(), rows.server[at].tolist(), strict=True):
        stack = latest.setdefault(server, [])
        if code in stack:
            since.append(stack.index(code))
            stack.remove(code)
        else:  # elsewhere at most, but never at this server
            since.append(len(stack) + 1.0 if code in met else np.inf)
        stack.insert(0, code)
        met.add(code)
    out = np.zeros(rows.n)
    out[at] = since
    return out


def _judged(group: _Group, took: Array, known: Mask) -> Splitter | None:
    """A group held to chance; the seconds it takes beyond the others are a mean of all requests."""
    there, rest = took[known & group.mask], took[known & ~group.mask]
    if min(len(there), len(rest)) < FEWEST:
        return None
    level, usual = median(there), median(rest)
    more = level - usual
    above = auc(there, rest)
    spread = ((len(there) + len(rest) + 1) / (12 * len(there) * len(rest))) ** 0.5
    if more < FEWEST_S or above is None or above < max(ABOVE, 0.5 + SURE * spread):
        return None
    n, whole = len(there), len(there) + len(rest)
    gain = _scatter(took[known]) - (_scatter(there) * n + _scatter(rest) * len(rest)) / whole
    return Splitter(group.field, group.kind, group.value, n, whole, more, more * n / whole, gain)


def _scatter(values: Array) -> float:
    """How far values lie from their middle, on average."""
    return float(np.abs(values - median(values)).mean())


def _inside(values: pl.Series, ttft: Array, took: Array, known: Mask) -> Splitter | None:
    """A duration in seconds that TTFT holds all of."""
    seconds = values.to_numpy()
    both = known & np.isfinite(seconds)
    if both.sum() < 20 or (seconds[both] < 0).any() or np.ptp(seconds[both]) < FEWEST_S:
        return None
    x, y = np.where(both, seconds, 0.0)[known], took[known]
    ranked = rank_correlation(x, y)
    if ranked is None or ranked < FOLLOWS or quantile(x - ttft[known], 0.95) > 0:
        return None  # what is longer than the TTFT is no part of it
    fit = quantile_fit(np.column_stack([np.ones(len(x)), x]), y, tau=0.5)
    slope, gain = float(fit.coef[1]), _scatter(y) - float(np.abs(fit.residual).mean())
    if not INSIDE[0] <= slope <= INSIDE[1]:
        return None
    mean = float(x.mean())
    return Splitter(
        values.name, "inside", "", int((x > 0).sum()), len(x), slope, slope * mean, gain
    )
