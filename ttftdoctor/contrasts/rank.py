"""What distinguishes the selected rows: effects, intervals and tests, column by column.

All of it is ranks and counts, so that units and outliers change nothing, and whole columns, so
that a million rows take seconds. Turns of one session are not independent: errors are summed by
session before they are squared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ttftdoctor.contrasts.columns import MOST_VALUES, ROWS_A_VALUE, Number, Table, Text
from ttftdoctor.contrasts.records import Column, Cut, Held, Value
from ttftdoctor.language import tr
from ttftdoctor.measure.rows import Array, Index, Mask
from ttftdoctor.stats import SEED, rank_correlation, thin
from ttftdoctor.units import count

#: Selected rows, and others, that ranks are taken from; of more an even sample.
MOST_ROWS = 100_000
#: An effect below this is negligible (Romano and others 2006, for Cliff's delta).
LEAST_EFFECT = 0.147
#: A value of a category is a finding from this share of the selected rows and this lift on.
LEAST_SHARE, LEAST_LIFT = 0.05, 1.5
#: A rarer one from this lift on.
LIFT_OF_RARE = 3.0
LEVEL = 0.05
#: Sessions on either side below which no interval and no test is given.
FEWEST_CLUSTERS = 5
#: Strata of the columns held equal, first to last.
HELD_PARTS = (16, 12, 4)
FOLDS = 5
#: Rank correlation from which two columns say the same.
TWINS = 0.9
TIMES = ("start", "hour", "weekday")
#: Values of a category that are kept in the document.
MOST_KEPT = 50
#: Of more values, those are worked out whose shares differ most; all count as tested.
MOST_TESTED = 1000


@dataclass(frozen=True)
class Sides:
    """Row numbers of the selected rows and of those they are set against."""

    selected: Index
    rest: Index

    @property
    def n(self) -> int:
        """Rows on both sides."""
        return len(self.selected) + len(self.rest)


@dataclass(frozen=True)
class Ranked:
    """All columns, strongest first, and what was found over all of them."""

    columns: tuple[Column, ...]
    cut: Cut | None
    held: Held | None
    tests: int
    left_out: dict[str, str]
    sampled: bool


@dataclass(frozen=True)
class Superiority:
    """Chance that a selected row has more than another one, with its error by session.

    ``design`` is by how much sessions raise the variance; ``clusters`` the sessions on the side
    with fewer; ``null`` the error if there were no difference (Mann-Whitney, ties corrected);
    ``alone`` tells that no session has two rows.
    """

    chance: float
    error: float
    design: float
    null: float
    clusters: int
    selected: int
    rest: int
    alone: bool

    @property
    def effect(self) -> float:
        """Cliff's delta."""
        return 2 * self.chance - 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of Cliff's delta, 95 %; None from too few sessions."""
        if self.clusters < FEWEST_CLUSTERS:
            return None
        g = self.clusters
        centre = (self.chance * g + 0.5) / (g + 1)  # away from 0 and 1, where nothing has errors
        error = max(self.error, 0.5 / (g + 1) if self.chance in (0.0, 1.0) else 0.0)
        half = _quantile(g - 1) * error / (centre * (1 - centre))
        middle = math.log(centre / (1 - centre))
        low, high = (1 / (1 + math.exp(-max(min(x, 500), -500))) for x in
                     (middle - half, middle + half))  # fmt: skip
        return min(2 * low - 1, self.effect), max(2 * high - 1, self.effect)

    @property
    def p_value(self) -> float | None:
        """Two-sided; None from too few sessions."""
        if self.clusters < FEWEST_CLUSTERS or self.null <= 0:
            return None
        z = abs(self.chance - 0.5) / (self.null * math.sqrt(max(self.design, 1.0)))
        # The error without a difference is known; only what sessions add to it is estimated.
        return _two_sided(z, math.inf if self.alone else self.clusters - 1)


def _quantile(df: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.975))


def _two_sided(z: float, df: float) -> float:
    from scipy.special import ndtr, stdtr

    tail = ndtr(-abs(z)) if math.isinf(df) else stdtr(df, -abs(z))
    return float(min(2 * tail, 1.0))


def superiority(
    values: Array, selected: Mask, cluster: Index, strata: Index | None = None
) -> Superiority | None:
    """Compare the selected values with the others, within strata where there are any.

    Parameters
    ----------
    values
        (n,), none of them NaN.
    selected
        (n,), which rows are selected.
    cluster
        (n,), numbers of the sessions.
    strata
        (n,), small numbers; rows are only compared with rows of their stratum, and strata count
        by m*k/(m+k), with m selected and k other rows.

    Returns
    -------
    Superiority or None
        None where there is nothing to compare.

    Notes
    -----
    A placement value is the share of the other side that a row exceeds (ties half). Their spread
    is the error of the mean of them (DeLong and others 1988, Biometrics 44:837); summed by session
    first, it is so for sessions (Obuchowski 1997, Biometrics 53:567).
    """
    n = len(values)
    if n == 0:
        return None
    layer = np.zeros(n, dtype=np.int64) if strata is None else strata
    order = np.argsort(values)
    if strata is not None:
        order = order[np.argsort(layer[order], kind="stable")]
    v, sel, lay = values[order], selected[order], layer[order]
    size = int(lay.max()) + 1
    m = np.bincount(lay[sel], minlength=size).astype(float)
    k = np.bincount(lay[~sel], minlength=size).astype(float)
    both = (m > 0) & (k > 0)
    if not both.any():
        return None
    new = np.ones(n, dtype=bool)
    new[1:] = (v[1:] != v[:-1]) | (lay[1:] != lay[:-1])
    first = np.flatnonzero(new)
    tie = np.cumsum(new) - 1
    ones = np.concatenate([[0], np.cumsum(sel)])
    last = np.append(first[1:], n)
    # Counts before the ties, and among them, within the stratum.
    start = np.concatenate([[0], np.cumsum(np.bincount(lay, minlength=size))])[:-1]
    below = (ones[first] - ones[start[lay[first]]]).astype(float)
    among = (ones[last] - ones[first]).astype(float)
    ties = (last - first).astype(float)
    below_rest = (first - start[lay[first]]) - below
    among_rest = ties - among
    with np.errstate(invalid="ignore", divide="ignore"):
        place = np.where(
            sel,
            (below_rest + among_rest / 2)[tie] / k[lay],
            1 - (below + among / 2)[tie] / m[lay],
        )
    weight = np.where(both, m * k / np.maximum(m + k, 1), 0.0)
    weight /= weight.sum()
    chance_of = np.bincount(lay[sel], weights=place[sel], minlength=size) / np.maximum(m, 1)
    chance = float((weight * chance_of)[both].sum())
    share = np.where(sel, (weight / np.maximum(m, 1))[lay], (weight / np.maximum(k, 1))[lay])
    used = both[lay]
    pull = np.where(used, share * (place - chance_of[lay]), 0.0)
    whose = cluster[order]
    summed = np.bincount(whose, weights=pull)
    inside = np.bincount(whose[used & sel], minlength=len(summed)) > 0
    outside = np.bincount(whose[used & ~sel], minlength=len(summed)) > 0
    clusters = int((inside | outside).sum())
    variance = float((summed**2).sum()) * clusters / max(clusters - 1, 1)
    rows = int(used.sum())
    plain = float((pull**2).sum()) * rows / max(rows - 1, 1)
    return Superiority(
        chance=min(max(chance, 0.0), 1.0),
        error=math.sqrt(variance),
        design=variance / plain if plain > 0 else 1.0,
        null=math.sqrt(_null_variance(m, k, weight, both, lay[first], ties)),
        clusters=min(int(inside.sum()), int(outside.sum())),
        selected=int(m[both].sum()),
        rest=int(k[both].sum()),
        alone=clusters == rows,
    )


def _null_variance(m: Array, k: Array, weight: Array, both: Mask, lay: Index, ties: Array) -> float:
    """Variance of the chance if selected and others were alike, with correction for ties."""
    total = m + k
    tied = np.bincount(lay, weights=ties**3 - ties, minlength=len(m))
    with np.errstate(invalid="ignore", divide="ignore"):
        each = (total + 1 - tied / (total * np.maximum(total - 1, 1))) / (12 * m * k)
    return float((weight[both] ** 2 * np.maximum(each[both], 0.0)).sum())


# --- the whole --------------------------------------------------------------------------------


def rank(table: Table, sides: Sides, restated: dict[str, str], min_rows: int) -> Ranked:
    """Compare every column.

    Parameters
    ----------
    restated
        Columns that are part of the selection, with why.
    min_rows
        Fewest rows of a side that have a value of the column, and of a value of a category.
    """
    some = Sides(
        sides.selected[thin(len(sides.selected), MOST_ROWS)],
        sides.rest[thin(len(sides.rest), MOST_ROWS)],
    )
    ranked = _Ranking(table, sides, some, min_rows)
    left_out: dict[str, str] = {}
    found: list[Column] = []
    for number in table.numbers.values():
        if number.ranked:
            why = ranked.unfit_number(number)
            if why is not None:
                left_out[number.name] = why
                continue
            found.append(ranked.number(number))
    for text in table.texts.values():
        why = ranked.unfit_text(text)
        if why is not None:
            left_out[text.name] = why
            continue
        found.append(ranked.category(text))
    found = [
        replace(c, role="selection", why=restated[c.column]) if c.column in restated else c
        for c in found
    ]
    found, tests = _adjust(found, ranked.unseen)
    found = [_judge(c, sides) for c in found]
    found.sort(key=_strength)
    held, found = ranked.hold_equal(found)
    return Ranked(
        columns=tuple(found),
        cut=ranked.best_cut(found),
        held=held,
        tests=tests,
        left_out=left_out,
        sampled=some.n < sides.n,
    )


def _strength(column: Column) -> tuple[int, float]:
    place = ("finding", "same", "selection", "unjudged").index(column.role)
    return place, -abs(column.effect or 0.0)


def _adjust(columns: list[Column], unseen: int) -> tuple[list[Column], int]:
    """Holm's correction (1979, Scand. J. Stat. 6:65) over all columns and values tested."""
    places: list[tuple[int, int, float]] = []
    for at, column in enumerate(columns):
        if column.role == "selection":
            continue
        if column.p_value is not None:
            places.append((at, -1, column.p_value))
        for inner, value in enumerate(column.values):
            if value.p_value is not None:
                places.append((at, inner, value.p_value))
    tests = len(places) + unseen
    running = 0.0
    changed = list(columns)
    adjusted: dict[int, dict[int, float]] = {}
    for rank_, (at, inner, p) in enumerate(sorted(places, key=lambda place: place[2])):
        running = max(running, min(1.0, p * (tests - rank_)))
        adjusted.setdefault(at, {})[inner] = running
    for at, of in adjusted.items():
        column = changed[at]
        values = tuple(
            replace(value, p_adjusted=of.get(inner)) for inner, value in enumerate(column.values)
        )
        changed[at] = replace(column, p_adjusted=of.get(-1), values=values)
    return changed, tests


def _judge(column: Column, sides: Sides) -> Column:
    """Say whether a column differs; keep the telling values of a category."""
    values = tuple(
        replace(
            v,
            found=v.p_adjusted is not None
            and v.p_adjusted <= LEVEL
            and v.lift >= (LEAST_LIFT if v.share_selected >= LEAST_SHARE else LIFT_OF_RARE),
        )
        for v in column.values
    )
    values = tuple(
        sorted(values, key=lambda v: (not v.found, v.share_rest - v.share_selected, -v.n))
    )[:MOST_KEPT]
    column = replace(column, values=values)
    if column.role == "selection" or column.effect is None:
        return column
    differs = (
        column.p_adjusted is not None
        and column.p_adjusted <= LEVEL
        and abs(column.effect) >= LEAST_EFFECT
    )
    told = any(v.found for v in values)
    if column.p_value is None and not told:
        return replace(column, role="unjudged")
    return replace(column, role="finding" if differs or told else "same")


class _Ranking:
    """The two sides, whole and thinned, and what is asked of every column."""

    def __init__(self, table: Table, sides: Sides, some: Sides, min_rows: int) -> None:
        self.table, self.sides, self.some, self.min_rows = table, sides, some, min_rows
        self.at = np.concatenate([some.selected, some.rest])
        self.selected = np.zeros(len(self.at), dtype=bool)
        self.selected[: len(some.selected)] = True
        self.cluster = table.cluster[self.at]
        self.whole = np.concatenate([sides.selected, sides.rest])
        self.whole_selected = np.zeros(sides.n, dtype=bool)
        self.whole_selected[: len(sides.selected)] = True
        self.whole_cluster = table.cluster[self.whole]
        self.scores: dict[str, Array] = {}
        self.unseen = 0  # values that count as tested, though only larger ones were worked out

    # numbers

    def unfit_number(self, column: Number) -> str | None:
        values = column.values[self.at]
        known = np.isfinite(values)
        if not known.any():
            return tr("not logged for these rows")
        kept = values[known]
        if kept.min() == kept.max():
            return tr("the same in all rows")
        return None

    def number(self, column: Number) -> Column:
        values = column.values[self.at]
        known = np.isfinite(values)
        m, k = self.selected & known, ~self.selected & known
        base = Column(
            column=column.name,
            kind="number",
            unit=column.unit,
            meaning=column.meaning,
            role="unjudged",
            after_first_token=column.after,
            known_selected=float(m.sum() / max(self.selected.sum(), 1)),
            known_rest=float(k.sum() / max((~self.selected).sum(), 1)),
            median_selected=float(np.median(values[m])) if m.any() else None,
            median_rest=float(np.median(values[k])) if k.any() else None,
        )
        self.scores[column.name] = values
        if min(m.sum(), k.sum()) < self.min_rows:
            return replace(base, why=tr("too few rows with a value"))
        return self._told(base, superiority(values[known], m[known], self.cluster[known]))

    def _told(self, base: Column, found: Superiority | None) -> Column:
        if found is None:
            return base
        return replace(
            base,
            superiority=found.chance,
            effect=found.effect,
            interval=found.interval,
            p_value=found.p_value,
            why=tr("from fewer than five sessions") if found.p_value is None else "",
        )

    # categories

    def unfit_text(self, column: Text) -> str | None:
        if not column.ranked:
            return tr("ids: told apart by nothing else")
        used, _ = self._used(column)
        if len(used) < 2:
            return tr("the same in all rows")
        if len(used) > MOST_VALUES and len(used) * ROWS_A_VALUE > len(self.whole):
            return tr("{n} different values: ids", n=count(len(used)))
        return None

    def category(self, column: Text) -> Column:
        names = column.coded[1]
        used, inner = self._used(column)
        score = self._risk_scores(inner, len(used))
        score_at = np.full(self.table.n, np.nan)
        score_at[self.whole] = score
        self.scores[column.name] = score_at[self.at]
        known = column.series.is_not_null().to_numpy()[self.whole]
        base = Column(
            column=column.name,
            kind="category",
            unit="text",
            meaning=column.meaning,
            role="unjudged",
            after_first_token=column.after,
            known_selected=float(known[self.whole_selected].mean()),
            known_rest=float(known[~self.whole_selected].mean()),
            values=self._values(inner, names.gather(used).to_list()),
        )
        found = superiority(self.scores[column.name], self.selected, self.cluster)
        told = self._told(base, found)
        if found is not None and found.effect < 0:
            # Risks of some sessions that do not hold for the others: no difference at all.
            told = replace(told, effect=0.0, superiority=0.5, p_value=1.0,
                           interval=None if told.interval is None
                           else (0.0, max(told.interval[1], 0.0)))  # fmt: skip
        return told

    def _used(self, column: Text) -> tuple[Index, Index]:
        """The codes that occur on either side, and the place of each row's among them."""
        codes = column.coded[0][self.whole]
        there = np.bincount(codes) > 0
        place = np.cumsum(there) - 1
        return np.flatnonzero(there), place[codes]

    def _risk_scores(self, codes: Index, size: int) -> Array:
        """Each row's value by the risk it has in the sessions of the other folds, as a rank."""
        shuffled = np.random.default_rng(SEED).permutation(int(self.whole_cluster.max()) + 1)
        fold = shuffled[self.whole_cluster] % FOLDS
        both = np.bincount(fold * size + codes, minlength=FOLDS * size).reshape(FOLDS, size)
        hit = np.bincount(
            (fold * size + codes)[self.whole_selected], minlength=FOLDS * size
        ).reshape(FOLDS, size)
        n, h = both.sum(0) - both, hit.sum(0) - hit
        base = h.sum(1, keepdims=True) / np.maximum(n.sum(1, keepdims=True), 1)
        risk = (h + 5 * base) / (n + 5)
        total = both.sum(0).astype(float)
        scores = np.empty((FOLDS, size))
        for at in range(FOLDS):
            order = np.argsort(risk[at], kind="stable")
            ordered = risk[at][order]
            new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
            group = np.cumsum(new) - 1
            weight = np.bincount(group, weights=total[order])
            middle = np.cumsum(weight) - weight / 2
            scores[at, order] = middle[group]
        result: Array = scores[fold, codes]
        return result

    def _values(self, codes: Index, names: Sequence[str | None]) -> tuple[Value, ...]:
        """Every value with enough rows, tested by session."""
        size = len(names)
        sel = self.whole_selected
        m, k = float(sel.sum()), float((~sel).sum())
        n = np.bincount(codes, minlength=size).astype(float)
        hit = np.bincount(codes[sel], minlength=size).astype(float)
        p_in, p_out, risk = hit / m, (n - hit) / k, hit / n
        # Pulls of each session on the difference of the shares, summed over (value, session).
        groups = int(self.whole_cluster.max()) + 1
        pair, inverse = np.unique(codes * groups + self.whole_cluster, return_inverse=True)
        value, whose = pair // groups, pair % groups
        rows = np.bincount(inverse).astype(float)
        hits = np.bincount(inverse, weights=sel)
        a = hits / m - (rows - hits) / k
        b = np.bincount(self.whole_cluster, weights=sel, minlength=groups) / m
        d = np.bincount(self.whole_cluster, weights=~sel, minlength=groups) / k
        variance = (
            np.bincount(value, weights=a * a)
            - 2 * p_in * np.bincount(value, weights=a * b[whose])
            + 2 * p_out * np.bincount(value, weights=a * d[whose])
            + p_in**2 * (b @ b) - 2 * p_in * p_out * (b @ d) + p_out**2 * (d @ d)
        )  # fmt: skip
        plain = p_in * (1 - p_in) / m + p_out * (1 - p_out) / k
        within = (hits - risk[value] * rows) / n[value]
        spread = np.bincount(value, weights=within**2)
        alone = risk * (1 - risk) / n
        sessions_in = int((b > 0).sum())
        judged = min(sessions_in, int((d > 0).sum())) >= FEWEST_CLUSTERS
        sessions = np.bincount(value)
        single = int(((b > 0) | (d > 0)).sum()) == len(codes)
        pooled = n / (m + k)
        null = pooled * (1 - pooled) * (1 / m + 1 / k)
        out = []
        # Of many values, those that are most often selected, and the largest, are worked out.
        worth = np.flatnonzero(n >= self.min_rows)
        self.unseen += max(len(worth) - MOST_TESTED, 0) if judged else 0
        for at in worth[np.argsort(-(p_in - p_out)[worth], kind="stable")][:MOST_TESTED]:
            design = max(variance[at] / plain[at], 1.0) if plain[at] > 0 else 1.0
            p = None
            if judged and null[at] > 0:
                z = (p_in[at] - p_out[at]) / math.sqrt(null[at] * design)
                p = _two_sided(z, math.inf if single else sessions_in - 1)
            own = max(spread[at] / alone[at], 1.0) if alone[at] > 0 else 1.0
            few = sessions[at] < FEWEST_CLUSTERS
            out.append(
                Value(
                    value=names[at],
                    n=int(n[at]),
                    selected=int(hit[at]),
                    share_selected=float(p_in[at]),
                    share_rest=float(p_out[at]),
                    lift=float(p_in[at] / pooled[at]),
                    risk=float(risk[at]),
                    risk_interval=None if few else _wilson(risk[at], n[at] / own),
                    p_value=None if few else p,
                    p_adjusted=None,
                )
            )
        return tuple(out)

    # over columns

    def hold_equal(self, columns: list[Column]) -> tuple[Held | None, list[Column]]:
        """What is left of each effect among rows that are alike in the strongest columns.

        The strongest column is held equal first; then the one of which most is left; then perhaps
        a third. What has little left after a step goes back to the column held in it.
        """
        chain: list[Column] = []
        strata: list[Index] = []
        through: dict[str, str] = {}
        left: dict[str, Superiority] = {}
        while len(chain) < len(HELD_PARTS):
            pick = self._strongest(columns, chain, left, through)
            if pick is None:
                break
            strata.append(self._strata(pick, HELD_PARTS[len(chain)]))
            chain.append(pick)
            left = {}
            for column in columns:
                if column.effect is None or column.role == "selection" or column in chain:
                    continue
                found = self._within(column.column, _joined(strata))
                if found is None:
                    continue
                left[column.column] = found
                if column.role != "finding":
                    continue
                half = abs(found.effect) < 0.5 * abs(column.effect)
                if _little(column, found) or (half and self._twins(column.column, pick.column)):
                    through.setdefault(column.column, pick.column)
        if not chain:
            return None, columns
        for at, column in enumerate(chain):
            others = [layer for place, layer in enumerate(strata) if place != at]
            found = self._within(column.column, _joined(others)) if others else None
            if found is not None:
                left[column.column] = found
        out = [_with_own(c, left.get(c.column), through.get(c.column)) for c in columns]
        return Held(tuple(c.column for c in chain), int(_joined(strata).max()) + 1), out

    def _strongest(
        self,
        columns: list[Column],
        chain: list[Column],
        left: dict[str, Superiority],
        through: dict[str, str],
    ) -> Column | None:
        """The next column to hold equal; of several that say the same, the first."""
        able = {}
        for column in columns:
            if column.role != "finding" or column.after_first_token or column in chain:
                continue
            if column.effect is None or column.column in through:
                continue
            if any(self._twins(column.column, other.column) for other in chain):
                continue
            effect = abs(column.effect)
            if chain:
                found = left.get(column.column)
                # Most of the selected must still have somebody to be compared with.
                if found is None or 2 * found.selected < len(self.some.selected):
                    continue
                interval = found.interval
                if interval is None or interval[0] <= 0 <= interval[1]:
                    continue
                effect = abs(found.effect)
            if effect >= LEAST_EFFECT:
                able[column.column] = effect
        if not able:
            return None
        top = max(able, key=lambda name: able[name])
        # Time itself does nothing: what changed with it goes first.
        order = sorted([*self.table.numbers, *self.table.texts], key=TIMES.__contains__)
        like = {n for n in able if able[n] >= (0.8 if self._twins(n, top) else 0.95) * able[top]}
        name = next(n for n in order if n in like)
        return next(c for c in columns if c.column == name)

    def _twins(self, one: str, other: str) -> bool:
        """Whether two columns put the rows in the same order, nearly."""
        if one == other:
            return True
        a, b = self.scores[one], self.scores[other]
        both = np.isfinite(a) & np.isfinite(b)
        rho = rank_correlation(a[both], b[both]) if both.any() else None
        return rho is not None and abs(rho) >= TWINS

    def _strata(self, column: Column, most: int) -> Index:
        """Rows alike in one column: equal parts of selected and others, counted half each."""
        if column.kind == "category":
            codes = self.table.texts[column.column].coded[0][self.at]
            used, inner, n = np.unique(codes, return_inverse=True, return_counts=True)
            large = np.argsort(-n, kind="stable")[: most * 4]
            place = np.full(len(used), len(large))
            place[large] = np.arange(len(large))
            return place[inner].astype(np.int64)
        values = self.scores[column.column]
        known = np.isfinite(values)
        m = max(int((known & self.selected).sum()), 1)
        k = max(int((known & ~self.selected).sum()), 1)
        order = np.argsort(np.where(known, values, np.inf))[: m + k]
        weight = np.where(self.selected[order], 0.5 / m, 0.5 / k)
        parts = int(np.clip(min(m, k) // 5, 2, most))
        mass = np.cumsum(weight)
        edges = values[order][np.searchsorted(mass, np.arange(1, parts) / parts)]
        layer = np.searchsorted(np.unique(edges), values, side="left")
        layer[~known] = parts
        _, inner = np.unique(layer, return_inverse=True)
        return inner.astype(np.int64)

    def _within(self, name: str, strata: Index) -> Superiority | None:
        values = self.scores[name]
        known = np.isfinite(values)
        return superiority(values[known], self.selected[known], self.cluster[known], strata[known])

    def best_cut(self, columns: list[Column]) -> Cut | None:
        """The condition on one column that most of the selected and fewest others meet."""
        best: Cut | None = None
        for column in columns:
            if column.role != "finding" or column.after_first_token:
                continue
            found = self._cut(column)
            if found is not None and (best is None or _gain(found) > _gain(best)):
                best = found
        return best

    def _cut(self, column: Column) -> Cut | None:
        if column.kind == "category":
            value = max(column.values, key=lambda v: v.share_selected - v.share_rest, default=None)
            if value is None:
                return None
            return Cut(
                column.column, "==", None, value.value, "text", value.share_selected,
                value.share_rest, value.risk, value.n,
            )  # fmt: skip
        values = self.scores[column.column]
        known = np.isfinite(values)
        v, sel = values[known], self.selected[known]
        order = np.argsort(v)
        v, sel = v[order], sel[order]
        edge = np.flatnonzero(v[1:] > v[:-1])
        if not len(edge):
            return None
        inside = np.cumsum(sel)[edge] / max(self.selected.sum(), 1)
        outside = np.cumsum(~sel)[edge] / max((~self.selected).sum(), 1)
        all_in = sel.sum() / max(self.selected.sum(), 1)
        all_out = (~sel).sum() / max((~self.selected).sum(), 1)
        above = (all_in - inside) - (all_out - outside)
        below = inside - outside
        upper = above.max() >= below.max()
        at = edge[int(np.argmax(above if upper else below))]
        whole = float(v[at + 1]).is_integer() and column.unit in ("tokens", "count")
        bound = _round_between(float(v[at]), float(v[at + 1]), whole=whole)
        every = self.table.numbers[column.column].values[self.whole]
        with np.errstate(invalid="ignore"):
            meets = every >= bound if upper else every < bound
        meets &= np.isfinite(every)
        n = int(meets.sum())
        if n < self.min_rows:
            return None
        hit = int((meets & self.whole_selected).sum())
        return Cut(
            column=column.column,
            op=">=" if upper else "<",
            bound=bound,
            value=None,
            unit=column.unit,
            share_selected=hit / max(len(self.sides.selected), 1),
            share_rest=(n - hit) / max(len(self.sides.rest), 1),
            risk=hit / n,
            n=n,
        )


def _joined(strata: Sequence[Index]) -> Index:
    """Strata of several columns at once, numbered without gaps."""
    joined = strata[0]
    for layer in strata[1:]:
        joined = joined * (int(layer.max()) + 1) + layer
    _, inner = np.unique(joined, return_inverse=True)
    return inner.astype(np.int64, copy=False)


def _little(column: Column, found: Superiority) -> bool:
    """Whether hardly anything is left of an effect, or what is left points the other way."""
    effect = column.effect or 0.0
    turned = column.kind == "number" and found.effect * effect < 0
    if abs(effect) < LEAST_EFFECT:  # a finding for one of its values
        return turned or abs(found.effect) < 0.5 * abs(effect)
    return turned or abs(found.effect) < max(LEAST_EFFECT, 0.3 * abs(effect))


def _with_own(column: Column, found: Superiority | None, through: str | None) -> Column:
    if found is None:
        return column
    own, interval = found.effect, found.interval
    if column.kind == "category" and own < 0:
        own, interval = 0.0, None if interval is None else (0.0, max(interval[1], 0.0))
    return replace(column, own=own, own_interval=interval, through=through)


def _gain(cut: Cut) -> float:
    return cut.share_selected - cut.share_rest


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Interval of a share of ``n`` independent rows (Wilson 1927)."""
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))


def _round_between(low: float, high: float, *, whole: bool) -> float:
    """The roundest number above ``low`` and not above ``high``."""
    for digits in range(1, 16):
        size = max(abs(low), abs(high))
        unit = 10.0 ** (math.floor(math.log10(size)) + 1 - digits) if size else 1.0
        if whole and unit < 1:
            break
        value = math.floor(high / unit) * unit
        value = float(f"{value:.12g}")
        if low < value <= high:
            return value
    return high
