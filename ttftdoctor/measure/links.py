"""Sessions for logs that name none: by prompt blocks, or by the arithmetic of growing inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ttftdoctor.language import mark, tr
from ttftdoctor.stats import or_zero, thin

if TYPE_CHECKING:
    from ttftdoctor.measure.caches import Shared

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Fewer rows show no habit.
FEWEST_ROWS = 6
#: Habits are learned from so many rows; of a longer log, from its middle.
LEARNED_ROWS = 4_000
#: ... in so many rounds.
ROUNDS = 8
#: So many nearest totals are looked at for each request, in each of three windows of time ...
CANDIDATES = 64
#: ... or of a log that is longer than the part that was learned from ...
CANDIDATES_WIDE = 4
#: ... and so many that are just what was cached.
CANDIDATES_CACHED = 4
#: A window holds about so many requests of a group, within limits, seconds.
WINDOW_ROWS = 200
WINDOW_S = (300.0, 7200.0)
#: A turn brings at most so many tokens.
MOST_SURPLUS = 131_072.0
#: Fewer cached tokens tell nothing.
LEAST_CACHED = 32
#: Standard errors by which surpluses must outnumber shortfalls.
EDGE = 3.0
#: A pair is worth no more than so many usual ones.
MOST_LIKE = 3.0
#: So often links are made anew, given those that are clear.
SETTLED = 3
#: Nats of log-likelihood a row by which a reading of the log is clear.
CLEAR = 0.5
#: ... and under which it holds no conversations, if it has so many rows.
NOTHING, ENOUGH_ROWS = 0.05, 100
UNRELATED = mark("no session is named, and no request continues an earlier one by their lengths")
#: A pair this likely is a link.
SURE = 0.8


@dataclass(frozen=True)
class Loose:
    """What is known of rows that were not linked; NaN for those that were.

    ``repeated`` and ``repeated_high`` count the tokens that they repeat on average over all that
    they may continue, and at most. Where they do continue somebody, ``pause_s`` and ``moved`` say
    how long after the likeliest, and whether at another replica than most (NaN: either may be).
    ``headless`` are rows of conversations whose first turn is not known: turns cannot be counted.
    """

    repeated: Array
    repeated_high: Array
    pause_s: Array
    moved: Array
    headless: Mask


@dataclass(frozen=True)
class Links:
    """A session number per row (row order; -1: one of several), and how it was come by.

    ``sure`` is the part of the links that are right, by what was learned.
    """

    session: Index
    linked: int
    note: str
    sure: float = 1.0
    loose: Loose | None = None


def by_blocks(shared: Shared, n: int) -> Links | None:
    """Link a request to the earlier one whose whole prompt it begins with.

    Parameters
    ----------
    shared
        What the prompts share; blocks are chained, so that one stands for all before it.
    n
        Requests of the log, with and without blocks.

    Returns
    -------
    Links or None
        None if no request has a block. A parent's last *full* block must occur in the child; of
        several parents the deepest and latest is taken. A prefix that ends many prompts (a bare
        system prompt) links nobody.
    """
    from ttftdoctor.measure import kernels  # compiled code: loaded where there are blocks

    trie = shared.trie
    if not len(trie.nodes):
        return None
    sizes = (trie.tokens // trie.block)[trie.nodes]
    # The last block has an id even where it is not full: then the prompt ends one block before.
    block = np.maximum(trie.block[trie.nodes[trie.offsets[1:] - 1]], 1)
    partial = (trie.blocks > 0) & (trie.inputs // block < trie.blocks)
    last = trie.offsets[1:] - 1
    last = np.where(partial & (sizes[last] == 1), last - 1, last)
    has = (trie.blocks > 0) & (last >= trie.offsets[:-1])
    heads = np.where(has, trie.nodes[last], -1).astype(np.int64)
    # A block that ends many prompts is shared text, not one conversation's history.
    common = np.bincount(heads[has], minlength=len(trie.tokens)) > 3
    heads = np.where(has & common[heads], -1, heads)
    parent = kernels.parents(trie.offsets, trie.nodes, heads, len(trie.tokens))
    found = np.flatnonzero(parent >= 0)
    session = _chains(n, shared.at[found], shared.at[parent[found]])
    note = tr("{links} of {n} requests continue an earlier one by blocks", links=len(found), n=n)
    return Links(session, len(found), note)


def by_arithmetic(
    start_s: Array,
    end_s: Array,
    inputs: Array,
    outputs: Array,
    cached: Array,
    group: Index,
    replica: Index | None = None,
    reasoning: Array | None = None,
) -> Links | None:
    """Link turns because inputs grow by what was said: input >= last input + last output.

    Arrivals are taken for a mixture: every request that has ended may bring forth one more, a
    pause later and by a message longer, and conversations begin by themselves. How long pauses and
    messages are, and how many requests are continuations, is learned from the log itself
    (expectation-maximisation; for point processes: Veen and Schoenberg 2008), and so is how much
    cached tokens that equal what an earlier request held, or staying at one replica, tell. A link
    is made where one request is the likely parent by far; where several are alike, what is
    repeated is still told by all of them, weighed.

    Nothing is linked unless the log reads better than the same log with time reversed (a log of
    unrelated requests reads the same both ways) and lengths that exceed an earlier total by little
    are more frequent than those that fall short of one by little (a mere trend has both).

    Parameters
    ----------
    start_s, end_s, inputs, outputs, cached, reasoning
        In order of start, shape (n,); seconds and tokens. ``outputs``, ``cached`` and
        ``reasoning`` may be NaN; thinking that ``reasoning`` counts may be left out of histories.
    group
        Number of the model, tenant and route: a conversation stays within one.
    replica
        Number of the replica, -1 unknown.

    Returns
    -------
    Links or None
        None if the log cannot be linked. Where it clearly holds no conversations nobody is linked
        and ``loose`` is None.
    """
    n = len(inputs)
    if n < FEWEST_ROWS or not np.isfinite(start_s).all() or not np.isfinite(end_s).all():
        return None
    known = np.isfinite(inputs)
    sample = np.flatnonzero(known)[thin(int(known.sum()), 2000)]
    if known.mean() < 0.9 or len(np.unique(inputs[sample])) < 0.7 * len(sample):
        return None  # repeated lengths are the mark of a synthetic load, not of chats
    whole = _Sorted(
        start_s, np.maximum(end_s, start_s), np.where(known, inputs, 0.0), or_zero(outputs),
        cached, np.unique(group, return_inverse=True)[1].astype(np.int64),
        np.zeros(n, dtype=np.int64) if replica is None else replica,
    )  # fmt: skip
    # Habits are learned from a stretch of the log: neighbours in time must not be torn apart.
    first = max(0, (n - LEARNED_ROWS) // 2)
    part = whole.stretch(first, min(n, first + LEARNED_ROWS))
    learned: tuple[_Found, _Sorted, Array] | None = None
    for less in _left_out(or_zero(outputs), reasoning):
        tried = part.without(less[first : first + part.n])
        found = _lengths(tried)
        if learned is None or found.gain > 1.2 * learned[0].gain + 0.03:
            learned = found, tried, less
        if found.gain >= CLEAR:
            break
    assert learned is not None
    found, part, less = learned
    found = _cached(part, found)
    if found.gain < NOTHING and n >= ENOUGH_ROWS and np.isfinite(outputs).mean() >= 0.9:
        return Links(np.full(n, -1), 0, tr(UNRELATED))
    if found.gain < 0.1:
        return None
    turned = part.mirrored()
    mirrored = _cached(turned, _lengths(turned))
    if found.gain < 2.5 * max(mirrored.gain, 0.0) + 0.03:
        return None
    chance = _mutual(mirrored, part.n)[0].sum() / part.n
    if not _has_edge(part, found):
        return None
    if part.n < n and _mutual(found, part.n)[0].sum() < 0.03 * part.n:
        return None  # so few are told apart that the rest need not be weighed
    if part.n < n:
        whole = whole.without(less)
        found = _weigh(whole, candidates(whole, CANDIDATES_WIDE), found.habits, 3, learn=False)
    else:
        whole = part
    found = _settled(found, n)
    child, parent, sure = _mutual(found, n)
    links = int(child.sum())
    if links < max(4, 0.02 * n) or chance > 0.4 * links / n:
        return None
    likely = 1.0 - found.alone
    rows = np.flatnonzero(child)
    session = _chains(n, rows, parent[rows])
    told = child.copy()
    told[parent[rows]] = True
    # Who continues one of several conversations that look alike belongs to none for certain.
    session[~told & (likely >= 0.5)] = -1
    pairs = found.pairs
    repeats = np.bincount(pairs.child, found.chance * whole.total[pairs.parent], minlength=n)
    high = np.zeros(n)
    possible = found.chance >= 0.05
    np.maximum.at(high, pairs.child[possible], whole.total[pairs.parent[possible]])
    loose = ~child & (likely >= 0.05)
    order = np.argsort(found.chance, kind="stable")
    pause = np.full(n, np.nan)
    pause[pairs.child[order]] = pairs.pause[order]
    changed = whole.replica[pairs.child] != whole.replica[pairs.parent]
    changed &= (whole.replica[pairs.child] >= 0) & (whole.replica[pairs.parent] >= 0)
    most = np.bincount(pairs.child, found.chance * changed, minlength=n) / np.maximum(likely, 1e-12)
    moved = np.where(most >= 0.8, 1.0, np.where(most <= 0.2, 0.0, np.nan))
    if (whole.replica < 0).all() or replica is None:
        moved = np.full(n, np.nan)
    unsure = ~child & (likely >= 0.5)
    note = tr(
        "{links} of {n} requests continue an earlier one by the arithmetic of their lengths and "
        "pauses (about {sure} of these links are right)",
        links=links, n=n, sure=format(sure, ".0%"),
    )  # fmt: skip
    alike = float(likely[~child].sum())
    if alike >= 0.02 * n:
        note += tr(
            "; about {n} more continue one of several that look alike", n=format(alike, ".0f")
        )
    if (found.matched & child[pairs.child] & (parent[pairs.child] == pairs.parent)).any():
        settled = int((found.matched & (parent[pairs.child] == pairs.parent)).sum())
        note += tr("; {n} were settled by their cached tokens", n=settled)
    details = Loose(
        repeated=np.where(loose, np.minimum(repeats, whole.inputs), np.nan),
        repeated_high=np.where(loose, np.minimum(np.maximum(high, repeats), whole.inputs), np.nan),
        pause_s=np.where(unsure, pause, np.nan),
        moved=np.where(unsure, moved, np.nan),
        headless=(session >= 0) & unsure[np.maximum(session, 0)],
    )
    return Links(session, links, note, float(sure), details)


@dataclass(frozen=True)
class _Sorted:
    """A log in order of start; ``total`` is what the next turn of a conversation would hold."""

    start: Array
    end: Array
    inputs: Array
    outputs: Array
    cached: Array
    group: Index
    replica: Index

    @property
    def n(self) -> int:
        return len(self.inputs)

    @cached_property
    def total(self) -> Array:
        return self.inputs + self.outputs

    @cached_property
    def block(self) -> int:
        """Tokens of a cache block, as the cached tokens of the log are multiples of it."""
        some = self.cached[self.cached > 0]
        for tokens in (2048, 1024, 512, 256, 128, 64, 32) if len(some) >= 4 else ():
            if np.mean(some % tokens == 0) >= 0.95:
                return tokens
        return 16

    @cached_property
    def window_s(self) -> float:
        """Within this time (and the same again) the next turn is looked for."""
        span = max(float(np.ptp(self.start)), 1e-9)
        each = self.n / max(len(np.unique(self.group)), 1)
        return float(np.clip(span * WINDOW_ROWS / each, *WINDOW_S))

    def cell(self, at: Array) -> Index:
        """A number for each group and window; neighbouring windows of a group are neighbours."""
        origin = float(self.start.min()) - 3 * self.window_s
        place = np.floor((at - origin) / self.window_s).astype(np.int64)
        return self.group * (int((self.end.max() - origin) / self.window_s) + 5) + place

    def stretch(self, first: int, last: int) -> _Sorted:
        return _Sorted(*(getattr(self, f.name)[first:last] for f in fields(self)))

    def without(self, less: Array) -> _Sorted:
        """The same, with that many tokens of each output left out of the history."""
        return replace(self, outputs=self.outputs - less) if less.any() else self

    def mirrored(self) -> _Sorted:
        """The same log with time reversed, in order again."""
        back = np.argsort(-self.end, kind="stable")
        turned = _Sorted(*(getattr(self, f.name)[back] for f in fields(self)))
        return replace(turned, start=-self.end[back], end=-self.start[back])


@dataclass(frozen=True)
class _Pairs:
    """Who may continue whom: row numbers, tokens more than the total, seconds after the end."""

    child: Index
    parent: Index
    surplus: Array
    pause: Array


@dataclass(frozen=True)
class _Habits:
    """What was learned: densities by bins, and shares.

    ``going_on`` and ``beginning`` by group: the part of requests that are continued, and that
    continue nothing. ``reused`` by group: the part of continuations whose cached tokens tell the
    parent; ``pause_reused`` their pauses. ``stays`` and ``stays_reused``: how many times as often
    as chance they stay at the replica.
    """

    surplus: Array
    pause: Array
    pause_reused: Array
    going_on: Array
    beginning: Array
    reused: Array
    stays: float
    stays_reused: float


@dataclass(frozen=True)
class _Found:
    """``chance`` of each pair, of each row to continue nothing (``alone``), and the mean gain of
    the log-likelihood of a row over a log without conversations.
    """

    pairs: _Pairs
    chance: Array
    alone: Array
    gain: float
    matched: Mask
    habits: _Habits
    weight: Array
    new: Array


def _left_out(outputs: Array, reasoning: Array | None) -> Iterator[Array]:
    """Tokens of the outputs that histories may lack: nothing, thinking, or all of them."""
    yield np.zeros(len(outputs))
    if reasoning is not None and np.nansum(reasoning) > 0:
        yield np.minimum(or_zero(reasoning), outputs)
    yield outputs


def candidates(log: _Sorted, most: int, below: bool = False) -> _Pairs:
    """The nearest totals below each input among requests that ended within two windows before.

    With ``below`` the nearest above it instead: those that the input falls short of. Where cached
    tokens say more than nothing, requests of just that total or input as well.
    """
    n, top = log.n, 1 << 24
    ended = log.cell(log.end)
    begun = log.cell(log.start)
    everyone = np.arange(n)
    found: list[tuple[Index, Index]] = []

    def look(values: Array, wanted: Array, who: Index, up: bool, count: int, widest: float) -> None:
        key = ended * top + np.clip(values, 0, top - 1).astype(np.int64)
        order = np.argsort(key, kind="stable")
        key = key[order]
        for back in (0, 1, 2):
            cell = begun[who] - back
            want = cell * top + np.clip(wanted, 0, top - 1).astype(np.int64)
            place = np.searchsorted(key, want, side="left" if up else "right")
            for step in range(count):
                at = place + step if up else place - 1 - step
                inside = (at >= 0) & (at < n)
                at = np.clip(at, 0, n - 1)
                inside &= key[at] // top == cell
                other = order[at]
                inside &= np.abs(values[other] - wanted) <= widest
                inside &= (log.end[other] <= log.start[who] + 1e-3) & (other != who)
                found.append((who[inside], other[inside]))

    if below:
        look(log.total, log.inputs + 3, everyone, True, most, MOST_SURPLUS)
    else:
        look(log.total, log.inputs + 2, everyone, False, most, MOST_SURPLUS)
        served = np.flatnonzero(log.cached > LEAST_CACHED)
        if len(served):
            wide = log.block + 2.0
            for values in (log.total, log.inputs):
                look(values, log.cached[served] - 2, served, True, CANDIDATES_CACHED, wide)
    pair = np.unique(np.concatenate([child * n + parent for child, parent in found]))
    child, parent = pair // n, pair % n
    surplus = log.inputs[child] - log.total[parent]
    if not below:
        fits = (surplus >= -2) & (log.inputs[child] > log.inputs[parent])
        child, parent, surplus = child[fits], parent[fits], surplus[fits]
    return _Pairs(child, parent, surplus, np.maximum(log.start[child] - log.end[parent], 0.0))


#: Edges of the bins of a surplus (tokens) and of a pause (seconds): half-octaves.
_TOKENS = np.concatenate([[-2.0, 1.0], 2 ** (np.arange(1, 36) / 2)])
_PAUSES = np.concatenate([[0.0], 2 ** (np.arange(-19, 40) / 2)])


def _lengths(log: _Sorted) -> _Found:
    """Learn the habits of a log from lengths and pauses alone."""
    pairs = candidates(log, CANDIDATES)
    half = np.full(int(log.group.max()) + 1, 0.5)
    tokens, seconds = _broad()
    begun = _Habits(tokens, seconds, seconds, half, half, 0.0 * half, 1.0, 1.0)
    return _weigh(log, pairs, begun, ROUNDS, learn=True)


def _cached(log: _Sorted, found: _Found) -> _Found:
    """Learn them with cached tokens as well, where these ever match."""
    if not found.matched.any():
        return found
    h = found.habits
    half = np.full(len(h.reused), 0.5)
    begun = replace(h, reused=half, stays_reused=h.stays, pause_reused=h.pause)
    return _weigh(log, found.pairs, begun, ROUNDS, learn=True)


def _broad() -> tuple[Array, Array]:
    """Densities of surplus and pause before anything was learned."""
    middle = 0.5 * (_TOKENS[1:] + _TOKENS[:-1])
    tokens = np.where(middle > 8192, 0.2, 1.0) / (middle + 30)
    seconds = 1 / (0.5 * (_PAUSES[1:] + _PAUSES[:-1]) + 5)
    return (
        tokens / np.sum(tokens * np.diff(_TOKENS)), seconds / np.sum(seconds * np.diff(_PAUSES))
    )  # fmt: skip


def _weigh(log: _Sorted, pairs: _Pairs, habits: _Habits, rounds: int, learn: bool) -> _Found:
    """Weigh every pair by the habits, ``rounds`` times, and ``learn`` them anew each time.

    A request is continued once at most: one that several claim is shared among them.
    """
    n, groups = log.n, len(habits.going_on)
    child, parent = pairs.child, pairs.parent
    token_bin, pause_bin = _bin(_TOKENS, pairs.surplus), _bin(_PAUSES, pairs.pause)
    token_width, pause_width = np.diff(_TOKENS), np.diff(_PAUSES)
    sizes = np.maximum(np.bincount(log.group, minlength=groups), 1)
    cell = np.unique(log.cell(log.start), return_inverse=True)[1]
    rate = np.bincount(cell)[cell] / log.window_s
    bins = np.floor(4 * np.log2(np.maximum(log.inputs, 1.0))).astype(np.int64)
    width = 2 ** ((bins + 1) / 4) - 2 ** (bins / 4)
    many = int(bins.max()) + 1

    def spread(weight: Array | None) -> Array:
        """How many rows (or how much weight) of its group have the length of each row."""
        flat = np.bincount(log.group * many + bins, weight, minlength=groups * many)
        counts = flat.reshape(groups, many).astype(float)
        smooth = 0.5 * counts
        smooth[:, 1:] += 0.25 * counts[:, :-1]
        smooth[:, :-1] += 0.25 * counts[:, 1:]
        out: Array = smooth[log.group, bins]
        return out

    nobody = np.maximum(spread(None), 0.5) / sizes[log.group] / width * rate
    fresh = nobody
    served = log.cached > LEAST_CACHED
    held = log.cached[child]
    wide = log.block + 2.0
    matched = served[child] & (
        _within(log.total[parent] - held, wide) | _within(log.inputs[parent] - held, wide)
    )
    _, value, count = np.unique(
        np.round(or_zero(log.cached) / log.block), return_inverse=True, return_counts=True
    )
    common = np.where(served, count[value] / n, 1.0)
    same = (log.replica[child] == log.replica[parent]) & (log.replica[child] >= 0)
    usual = float(np.clip(same.mean() if len(same) else 0.5, 0.02, 0.98))

    def moves(times: float) -> Array:
        stays = float(np.clip(times * usual, 0.02, 0.98))
        out: Array = np.where(same, stays / usual, (1 - stays) / (1 - usual))
        return out

    open_ = np.ones(n)
    h = habits
    reads = bool(h.reused.any())
    # Cached tokens may tell a forefather, of which lengths and pauses say less.
    broad = _broad()
    far = 0.3 * broad[0][token_bin] * broad[1][pause_bin]
    for turn in range(rounds + 1):
        weight = h.surplus[token_bin] * h.pause[pause_bin]
        if reads:
            reused = h.reused[log.group[child]]
            told = h.surplus[token_bin] * h.pause_reused[pause_bin]
            told = np.maximum(told, far) * moves(h.stays_reused) / common[child]
            weight = np.where(matched, reused * told, (1 - reused) * weight * moves(h.stays))
        else:
            weight = weight * moves(h.stays)
        weight = weight * h.going_on[log.group[child]] * open_[parent]
        new = h.beginning[log.group] * fresh
        density = np.bincount(child, weight, minlength=n) + new
        chance = weight / density[child]
        claimed = np.bincount(parent, chance, minlength=n)
        open_ = np.minimum(1.0, open_ / np.maximum(claimed, 1e-12))
        alone = new / density
        if turn == rounds:
            break
        shared = chance / np.maximum(claimed, 1.0)[parent]
        links = float(shared.sum())
        by_group = np.bincount(log.group[child], shared, minlength=groups)
        alone_in = np.bincount(log.group, alone, minlength=groups)
        h = replace(
            h,
            going_on=np.clip((by_group + 4 * links / n) / (sizes + 4), 0.01, 0.98),
            beginning=np.clip((alone_in + 4 * alone.mean()) / (sizes + 4), 0.02, 1.0),
        )
        if learn and not reads:
            h = replace(
                h,
                surplus=_density(token_bin, shared, token_width),
                pause=_density(pause_bin, shared, pause_width),
            )
        elif learn:
            # A forefather is longer ago than the parent; only where all hit is it one and the same.
            if float(shared[matched].sum()) > 0.8 * links:
                h = replace(h, surplus=_density(token_bin, shared, token_width))
            hit, missed = shared * matched, shared * ~matched
            h = replace(
                h,
                pause=_density(pause_bin, missed, pause_width, h.pause),
                pause_reused=_density(pause_bin, hit, pause_width, h.pause_reused),
            )
        if learn:
            apart = shared * ~matched if reads else shared
            stays = (float(apart[same].sum()) + 2 * usual) / (float(apart.sum()) + 2) / usual
            h = replace(h, stays=stays)
        if learn and reads:
            by_cache = float(shared[matched].sum())
            stayed = (float(shared[matched & same].sum()) + 2 * usual) / (by_cache + 2) / usual
            hits = np.bincount(log.group[child], shared * matched, minlength=groups)
            usually = by_cache / max(links, 1.0)
            reused = np.clip((hits + 3 * usually) / (by_group + 3), 0.01, 0.99)
            h = replace(h, reused=reused, stays_reused=stayed)
        begun = np.bincount(log.group, alone, minlength=groups)[log.group]
        fresh = np.maximum(spread(alone), 0.05) / np.maximum(begun, 1.0) / width * rate
    gain = float(np.mean(np.log(np.maximum(density, 1e-300) / nobody)))
    return _Found(pairs, chance, alone, gain, matched, h, weight, new)


def _within(excess: Array, wide: float) -> Mask:
    """Whether a cache holds just that: all but a part of a block, give or take a token or two."""
    out: Mask = (excess >= -2) & (excess < wide)
    return out


def _density(bins: Index, weight: Array, width: Array, before: Array | None = None) -> Array:
    """A density over bins, a little smoothed, that is nowhere quite zero.

    What was believed ``before`` counts as much as a dozen observations.
    """
    sums = np.bincount(bins, weight, minlength=len(width)) + 5e-4 * (float(weight.sum()) + 1.0)
    if before is not None:
        sums += 12 * before * width
    smooth = sums.copy()
    smooth[1:] += 0.5 * sums[:-1]
    smooth[:-1] += 0.5 * sums[1:]
    out: Array = smooth / smooth.sum() / width
    return out


def _mutual(found: _Found, n: int) -> tuple[Mask, Index, float]:
    """Pairs that are each other's likeliest: which rows are children, of whom, and how sure."""
    pairs, chance = found.pairs, found.chance
    order = np.argsort(chance, kind="stable")
    best, kid = np.full(n, -1), np.full(n, -1)
    best[pairs.child[order]] = order
    kid[pairs.parent[order]] = order
    # Several turns may be served from one forefather: there the parent's choice does not count.
    at = best[best >= 0]
    at = at[(chance[at] >= SURE) & ((kid[pairs.parent[at]] == at) | found.matched[at])]
    parent = np.full(n, -1)
    parent[pairs.child[at]] = pairs.parent[at]
    return parent >= 0, parent, float(chance[at].mean()) if len(at) else 0.0


def _settled(found: _Found, n: int) -> _Found:
    """Weigh again when the clearest links are made: who is taken can be nobody else's parent."""
    pairs, weight = found.pairs, found.weight
    for _ in range(SETTLED):
        child, parent, _ = _mutual(found, n)
        mine = child[pairs.child] & (parent[pairs.child] == pairs.parent)
        taken = np.zeros(n, dtype=bool)
        taken[pairs.parent[mine & ~found.matched]] = True
        weight = np.where(taken[pairs.parent] & ~mine & ~found.matched, 0.0, weight)
        density = np.bincount(pairs.child, weight, minlength=n) + found.new
        found = replace(found, chance=weight / density[pairs.child], alone=found.new / density)
    return found


def _has_edge(log: _Sorted, found: _Found) -> bool:
    """Whether inputs exceed earlier totals by little more often than they fall short by little."""
    pairs = found.pairs
    child, _, _ = _mutual(found, log.n)
    by_cache = np.zeros(log.n, dtype=bool)
    by_cache[pairs.child[found.matched & (found.chance >= SURE)]] = True
    if child.any() and by_cache[child].mean() >= 0.5:
        return True
    short = candidates(log, CANDIDATES, below=True)
    above = _likeness(pairs.surplus, pairs.pause, found.habits)
    under = _likeness(-short.surplus, short.pause, found.habits)
    clear = child[pairs.child] & (found.chance >= SURE)
    if clear.any():
        # One pair without any pause must not outweigh all others: it would be most of the spread.
        most = MOST_LIKE * float(np.median(above[clear]))
        above, under = np.minimum(above, most), np.minimum(under, most)
    spread = float(np.sum(above**2) + np.sum(under**2)) ** 0.5
    return bool(above.sum() - under.sum() >= EDGE * spread > 0)


def _likeness(surplus: Array, pause: Array, habits: _Habits) -> Array:
    """How dense the learned surplus and pause are, by pair."""
    out: Array = habits.surplus[_bin(_TOKENS, surplus)] * habits.pause[_bin(_PAUSES, pause)]
    return out


def _bin(edges: Array, values: Array) -> Index:
    out: Index = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    return out


def _chains(n: int, rows: NDArray[np.int64], parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the conversations: every row takes the number of its first ancestor."""
    root = np.arange(n, dtype=np.int64)
    root[rows] = parents
    while True:  # halves every path; logarithmic in the longest conversation
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    return root
