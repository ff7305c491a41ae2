"""Servers that start in mid-log: a stretch of silence, and then first tokens for all in line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np

from ttftdoctor.evidence import Cold
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.load import by_server
from ttftdoctor.measure.rows import Array, Index, Mask, Rows
from ttftdoctor.stats import median, or_zero

#: When a server is back, this part of those in line gets its tokens at once.
TOGETHER = 0.8
#: ... or nearly all of many within this part of the silence.
MANY, SOON, NEARLY_ALL = 10, 0.3, 0.9
#: So many starts of a server, or one every so many seconds, are believed by its silence alone.
FEW_STARTS, START_EVERY_S = 3, 1800.0
#: ... or any number that all take this long or more, as long as each other to this part.
LOAD_S, ALIKE = 10.0, 0.15


def outage_of(
    rows: Rows, ledger: Ledger, predicted: Array, reset: Mask, emptied: bool
) -> tuple[Cold, Array] | None:
    """A stretch in which a server gave nobody a token though some waited, and then gave all one.

    A server that restarts, loads or compiles in mid-log is not idle: its clients stand in line.
    The stretch ends when the first of them is served; those who came later waited less, one for
    one. A single long prefill looks alike for as long as that prefill takes, which is taken off.
    A lone request that waits in silence counts only where caches were emptied at that moment.

    Whoever decodes meanwhile shows that the server runs. Those in line are served together, but
    for their own work: who come back one by one were held elsewhere, as by a limit. Servers start
    seldom, and take as long each time; silences of all lengths that recur every few minutes are
    something else, unless caches were emptied, and so are a few of them among as many long waits
    that no start explains.

    Parameters
    ----------
    reset
        Turns that found every cache emptied at one moment.
    emptied
        Whether the slow turns of the log are just those that find their cache gone.
    """
    waits = np.zeros(rows.n)
    known = rows.measured & np.isfinite(rows.start) & np.isfinite(predicted)
    lengths: list[float] = []
    unproven = 0
    opened = float(rows.start[known].min()) if known.any() else 0.0
    span = float(np.ptp(rows.start[known])) if known.any() else 0.0
    flowing = cache(partial(_streams, rows))
    work = predicted - or_zero(ledger.accounts["fixed"])
    resets = np.sort(rows.start[reset])
    for arrived in by_server(rows, known):
        if len(arrived) < 12:
            continue
        at = arrived[np.argsort(rows.start[arrived] + rows.ttft[arrived], kind="stable")]
        line = _Line(
            rows.start[at], rows.ttft[at], predicted[at], work[at], partial(_sorted, flowing, at),
            resets, opened,
            emptied,
        )  # fmt: skip
        held = np.zeros(len(at))
        starts = list(_starts(line, held))
        doubtful = sum(not sure for _, sure in starts)
        took = np.array([length for length, _ in starts])
        if doubtful <= max(FEW_STARTS, span / START_EVERY_S) or _loads(took):
            unproven += doubtful
            waits[at] = held
            lengths += [length for length, _ in starts]
    # A server whose slots decoding holds gives no first tokens either, and is not silent.
    left = ledger.accounts["unexplained"] + ledger.wait - ledger.decoding
    hit = (waits > 0.25) & (or_zero(left) > 0.25)
    if hit.sum() < (2 if emptied else 3) or len(lengths) > max(6, 0.05 * known.sum()):
        return None
    seconds = np.where(hit, np.minimum(waits, np.clip(or_zero(left), 0, None)), 0.0)
    if unproven and seconds.sum() < _strays(rows, ledger, predicted, hit):
        return None
    whole = np.isfinite(left)
    rest = whole & ~hit
    return Cold(
        kind="restart", n=int(hit.sum()), seconds=float(seconds[whole].mean()),
        cold_p50_s=median(rows.ttft[hit]),
        warm_p50_s=median(rows.ttft[rest]) if rest.any() else 0.0,
        idle_s=max(lengths), separation=0.9 if reset.any() else 0.6,
        worst_s=float(rows.ttft[hit].max()), resets=int(reset.sum()),
    ), seconds  # fmt: skip


def _loads(took: Array) -> bool:
    """Whether all silences are as long as each other, as the loads of one model are."""
    return bool(took.min() >= LOAD_S and np.std(took) <= ALIKE * np.mean(took))


def _strays(rows: Rows, ledger: Ledger, predicted: Array, hit: Mask) -> float:
    """Seconds of long waits that neither a start nor anything else explains."""
    left = or_zero(ledger.accounts["unexplained"])
    long = left > np.maximum(1.0, 1.5 * or_zero(predicted))
    return float(left[rows.measured & long & ~hit].sum())


@dataclass(frozen=True)
class _Line:
    """The requests of one server in order of their first tokens; seconds.

    ``own`` is what each would have taken alone, ``work`` the part of it that others wait for.
    ``flows`` gives when answers began and ended to flow, ``resets`` are when caches were found
    empty.
    """

    arrive: Array
    ttft: Array
    own: Array
    work: Array
    flows: Callable[[], tuple[Array, Array]]
    resets: Array
    opened: float
    emptied: bool

    def cleared(self, finish: float, late: float) -> bool:
        """Whether caches were found empty about that time."""
        near = max(30.0, 2 * late)
        some, more = np.searchsorted(self.resets, [finish - near, finish + near])
        return self.emptied or bool(more > some)

    def decoding(self, begin: float, finish: float) -> bool:
        """Whether anybody decoded in the middle or at the end of a stretch."""
        at = begin + np.array([0.5, 0.9]) * (finish - begin)
        begun, ended = (np.searchsorted(edge, at, side="right") for edge in self.streams)
        return bool((begun > ended).any())

    @cached_property
    def streams(self) -> tuple[Array, Array]:
        """When answers began and ended to flow, each in order; asked for by few servers."""
        return self.flows()


def _starts(line: _Line, waits: Array) -> Iterator[tuple[float, bool]]:
    """Each start of one server: how long it took, and whether it emptied caches.

    What each request waited for them is put into ``waits``.
    """
    arrive, ttft, own = line.arrive, line.ttft, line.own
    first = arrive + ttft
    # A server that joins a log already running was silent until its first token; what was
    # before the first token of the log itself is not known.
    joined = arrive.min() > line.opened + 1.0
    silence = np.diff(first, prepend=min(arrive.min(), first[0]) if joined else first[0])
    excess = np.minimum(silence, ttft) - own
    late = ttft - own
    longest = float(ttft.max())
    for end in np.flatnonzero((late > np.maximum(1.0, 1.5 * own)) & (excess > 0.1 * late)):
        if waits[end] > 0.25:
            continue  # stood in a line that was seen already
        finish = float(first[end])
        begin = max(finish - float(silence[end]), float(arrive[end]))
        lined, all_at_once = _lined(line, first, finish, longest, float(silence[end]))
        cleared = line.cleared(finish, float(late[end]))
        # Prompts that are computed together get their tokens together, after the work of all.
        beside = float(line.work[lined].sum() - line.work[end])
        crowd = all_at_once and excess[end] - beside > max(1.0, 0.5 * silence[end])
        if not (crowd or cleared) or line.decoding(begin, finish):
            continue
        waited = np.clip(finish - np.maximum(arrive[lined], begin) - own[lined], 0, None)
        if cleared:
            waited = np.maximum(waited, np.where(lined == end, late[end], 0.0))
        waits[lined] = np.maximum(waits[lined], np.minimum(waited, ttft[lined]))
        yield finish - begin, cleared


def _lined(
    line: _Line, first: Array, finish: float, longest: float, silence: float
) -> tuple[Index, bool]:
    """Who stood in line and was served when the first of them was; and whether that is all.

    Of a long line the last ones may take a part of the silence.
    """
    # Whoever had arrived by then was served within the longest TTFT of all.
    from_, to = np.searchsorted(first, [finish - 1e-9, finish + longest + 1e-6])
    every = from_ + np.flatnonzero(line.arrive[from_:to] < finish)
    lined = every[first[every] <= finish + 2.0 + 2 * float(line.work[every].sum())]
    if len(every) >= MANY and (first[every] <= finish + SOON * silence).mean() >= NEARLY_ALL:
        return lined, len(lined) >= 3
    return lined, len(lined) >= max(3, TOGETHER * len(every))


def _sorted(flowing: Callable[[], tuple[Array, Array]], at: Index) -> tuple[Array, Array]:
    """When the answers to some requests began and ended, each in order."""
    begun, ended = (np.sort(edge[at[np.isfinite(edge[at])]]) for edge in flowing())
    return begun, ended


def _streams(rows: Rows) -> tuple[Array, Array]:
    """When each answer began and ended to be decoded; unknown (NaN) where it did not flow.

    A stream that stood still while its server did shows nothing: it takes far longer a token than
    others do.
    """
    begin = rows.start + rows.ttft
    end = rows.start + rows.e2e
    per_token = (end - begin) / np.maximum(rows.outputs, 1.0)
    known = np.isfinite(per_token)
    flows = end > begin
    if known.any():
        flows &= ~(per_token > 2 * median(per_token[known]))
    return np.where(flows, begin, np.nan), np.where(flows, end, np.nan)
