"""The ladder: what each limit takes of the reusable tokens, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ttftdoctor.language import mark, tr
from ttftdoctor.measure.rows import Index
from ttftdoctor.prefixes.records import Group, Ladder, Limits, Rung
from ttftdoctor.stats import Array

#: Groups that are shown of each column, those that lose most first.
TOP = 20

Basis = str


@dataclass(frozen=True)
class Step:
    """One rung before it is priced: hit tokens per request, and where the limit comes from."""

    id: str
    hits: Array
    basis: Basis
    says: str


@dataclass(frozen=True)
class Costs:
    """What tokens cost: seconds of prefill of (new, cached) tokens per request, money per token.

    ``money`` is what computing a token costs beyond reading it from a cache, per request;
    ``money_per_s`` the price of a second of prefill. One of them, or neither.
    """

    seconds: Callable[[Array, Array], Array] | None = None
    seconds_basis: str | None = None
    money: Array | None = None
    money_per_s: float | None = None
    money_basis: str | None = None
    currency: str | None = None

    def spent_s(self, inputs: Array, hits: Array) -> Array | None:
        """Seconds of prefill of each request if so many of its tokens are cached."""
        if self.seconds is None:
            return None
        return self.seconds(np.clip(inputs - hits, 0.0, None), hits)

    def lost(self, tokens: Array, slower_s: Array | None) -> Array | None:
        """Money that each request costs more for tokens that were not found, and took so long."""
        if self.money is not None:
            return np.nan_to_num(tokens * self.money)
        if self.money_per_s is not None and slower_s is not None:
            return slower_s * self.money_per_s
        return None


#: Titles and owners of the rungs: who can do something about what is lost there.
RUNGS: Mapping[str, tuple[str, str]] = {
    "ideal": (mark("shared content"), mark("application: what prompts have in common")),
    "expiry": (mark("after expiry"), mark("cache lifetime (provider or engine setting)")),
    "capacity": (mark("after capacity"), mark("size of the cache")),
    "routing": (mark("after routing"), mark("router or load balancer")),
    "rounding": (mark("after block rounding"), mark("engine: block size and least length")),
    "actual": (mark("actually cached"), mark("engine: what no limit above explains")),
}


def ladder(
    inputs: Array,
    steps: Sequence[Step],
    limits: Limits,
    costs: Costs,
    keys: Mapping[str, tuple[Index, Sequence[str]]],
) -> Ladder:
    """Price every rung, for all requests and for each group.

    Parameters
    ----------
    inputs
        Prompt tokens per request.
    steps
        From the ideal down; each with its hit tokens per request.
    keys
        Column to (a number per request, -1 unknown; the names of the numbers).
    """
    total = max(float(inputs.sum()), 1.0)
    # A limit that is not known takes nothing: its rung has the very hits of the one above.
    priced = {id(step.hits): step.hits for step in steps}
    prices = {key: costs.spent_s(inputs, hits) for key, hits in priced.items()}
    spent = [prices[id(step.hits)] for step in steps]
    rungs = []
    for place, step in enumerate(steps):
        title, owner = RUNGS[step.id]
        lost = np.zeros(len(inputs)) if place == 0 else steps[place - 1].hits - step.hits
        now, was = spent[place], spent[max(place - 1, 0)]
        slower = None if now is None or was is None else now - was
        money = costs.lost(lost, slower)
        rungs.append(
            Rung(
                id=step.id,  # type: ignore[arg-type]
                title=tr(title),
                owner=tr(owner),
                basis=step.basis,  # type: ignore[arg-type]
                says=step.says,
                hit_tokens=round(float(step.hits.sum())),
                share=float(step.hits.sum()) / total,
                lost_tokens=round(float(lost.sum())),
                lost_share=float(lost.sum()) / total,
                lost_seconds=None if slower is None else float(slower.sum()),
                lost_money=None if money is None else float(money.sum()),
            )
        )
    groups = {
        column: _groups(inputs, steps, spent, costs, codes, names)
        for column, (codes, names) in keys.items()
    }
    return Ladder(
        rungs=tuple(rungs),
        limits=limits,
        seconds_basis=costs.seconds_basis,
        money_basis=costs.money_basis,
        currency=costs.currency,
        groups={column: found for column, found in groups.items() if found},
    )


def _groups(
    inputs: Array,
    steps: Sequence[Step],
    spent: Sequence[Array | None],
    costs: Costs,
    codes: Index,
    names: Sequence[str],
) -> tuple[Group, ...]:
    """The rungs of each group with a name; none if there is only one."""
    lost = steps[0].hits - steps[-1].hits
    columns = {"n": np.ones(len(inputs)), "input": inputs, "lost": lost}
    columns |= {step.id: step.hits for step in steps}
    first, last = spent[0], spent[-1]
    slower = None
    if first is not None and last is not None:
        slower = columns["slower"] = last - first
    money = costs.lost(lost, slower)
    if money is not None:
        columns["money"] = money
    known = codes >= 0
    if not known.all():
        codes, columns = codes[known], {name: values[known] for name, values in columns.items()}
    # Sums in the order of the log: the same to the last digit each time.
    sums = {name: np.bincount(codes, values) for name, values in columns.items()}
    there = np.flatnonzero(sums["n"] > 0) if len(codes) else np.empty(0, dtype=np.int64)
    if len(there) < 2:
        return ()
    if len(there) > TOP:
        there = there[np.argsort(-sums["lost"][there], kind="stable")[:TOP]]
    return tuple(
        Group(
            name=names[at],
            requests=int(sums["n"][at]),
            input_tokens=int(sums["input"][at]),
            hit_tokens={step.id: round(float(sums[step.id][at])) for step in steps},
            lost_tokens=round(float(sums["lost"][at])),
            lost_seconds=float(sums["slower"][at]) if "slower" in sums else None,
            lost_money=float(sums["money"][at]) if "money" in sums else None,
        )
        for at in there.tolist()
    )
