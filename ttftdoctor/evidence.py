"""What was measured, small and frozen: all that causes and remedies get to see.

Durations are seconds per request with a TTFT, on average, unless the name says otherwise; shares
are of one. ``None`` stands for "the log does not say".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ttftdoctor.diagnosis import (
    CostLines,
    Grades,
    LedgerRow,
    Population,
    RepeatedPrefix,
    Splits,
    Spread,
)

#: New prefill shorter than this at the 95th percentile is not what people complain about.
SLOW_S = 1.5
#: New tokens are few where the 95th percentile of them is below this.
FEW_TOKENS = 1500.0
#: A line is asked what it tells of the spread where it lays this part of TTFT to new tokens ...
MOSTLY = 0.6
#: ... and where the log tells at least this part of the spread; of less, nobody can tell much.
TELLABLE = 0.3
#: It tells enough with this part of what can be told.
ENOUGH = 0.7


@dataclass(frozen=True)
class Gate:
    """Requests held back before the server: ``seconds`` of the mean TTFT, a ``share`` of it.

    ``queue_s`` is the engine's own queue time; at most ``most`` requests were there at once.
    """

    seconds: float
    share: float
    queue_s: float
    most: int
    n: int


@dataclass(frozen=True)
class Early:
    """Signs that something before the first token was stamped, or in another unit.

    ``ttft_s`` at the median, for so many new ``tokens`` at the median, where each further token
    takes ``step_s``; ``quick_share`` of those with many took a small part of that.
    ``after_per_1k_s``: by so much does the time after the stamp grow with 1,000 new tokens, and
    that before it does not; None if it is not so.
    """

    ttft_s: float
    tokens: float
    step_s: float
    quick_share: float
    after_per_1k_s: float | None


@dataclass(frozen=True)
class Held:
    """Tokens that a buffer on the way gives out together, once it has so many or the answer ends.

    ``seconds`` of the mean TTFT, a ``share`` of it, are the making of ``tokens``; ``n`` requests
    were looked at. ``seen``: shorter answers, or another path, show it too, and not only the line
    of the long ones.
    """

    tokens: float
    seconds: float
    share: float
    n: int
    seen: bool


#: So many rows at least, and this part of them, whose first token comes before the request was
#: sent, are no slips: their clocks differ, and so do those of the rows that do not show it.
CLOCKS_N = 5
CLOCKS_SHARE = 0.05


@dataclass(frozen=True)
class Artifact:
    """Signs that the number is not a TTFT.

    ``equal_share``: part of the rows whose first token comes with the last, although several
    tokens were made. ``after_share``: first token after the end. ``constant_share``: part of rows
    with one and the same TTFT. ``unit_mixed``: two unlabelled columns need different units.
    ``thinking_share``: part of the TTFT that hidden thinking at the decode rate explains.
    ``negative_n`` rows, ``negative_share`` of those that could be used but for this, were turned
    away because their first token came before the request: the clocks differ. ``scope``: the
    column and the value where this is so, if only there.
    """

    n: int = 0
    negative_n: int = 0
    negative_share: float = 0.0
    equal_share: float = 0.0
    not_streamed_share: float = 0.0
    after_share: float = 0.0
    after_factor: float | None = None
    constant_share: float = 0.0
    constant_s: float | None = None
    unit_mixed: str | None = None
    thinking_share: float = 0.0
    thinking_ms_per_token: float | None = None
    thinking_basis: str = ""
    scope: tuple[str, str] | None = None
    gate: Gate | None = None
    held: Held | None = None
    early: Early | None = None
    ttft_logged_p50_s: float | None = None
    e2e_p50_s: float | None = None

    @property
    def two_clocks(self) -> bool:
        """Whether the rows whose first token comes before the request are too many for slips."""
        return self.negative_n >= CLOCKS_N and self.negative_share >= CLOCKS_SHARE


@dataclass(frozen=True)
class Wait:
    """Signs of waiting. ``per_backlog`` is seconds waited per second of prefill ahead.

    ``behind_change`` is the part that would not be but for a change of the service.
    ``steps_mean`` is the part of ``decoding_mean`` in which steps decode for others, ``steps`` of
    them a request at ``step_s`` each, where a step with few others takes ``step_alone_s``.
    ``after_end``: where first tokens lie in the time since
    another request's end, of ``ended_n`` that waited for one (0 right after, 0.5 by chance);
    ``slots_held``: they lie there because a slot was given back. At most ``slots_most`` decoded at
    once at a server; ``slots_capped`` is the part of those waits that ended with so many beside
    them.
    """

    mean: float
    behind_repeated: float
    behind_new: float
    other: float
    logged_mean: float | None
    per_backlog: float | None
    follows_backlog: float | None
    follows_decoding: float | None
    follows_running: float | None
    decoding_mean: float
    running_p50: float | None
    running_p95: float | None
    utilisation: float | None
    idle_level_s: float | None
    busy_level_s: float | None
    rows_with_wait: int
    interval: tuple[float, float] | None
    behind_change: float = 0.0
    steps_mean: float = 0.0
    steps: float | None = None
    step_s: float | None = None
    step_alone_s: float | None = None
    after_end: float | None = None
    ended_n: int = 0
    slots_held: bool = False
    slots_most: int = 0
    slots_capped: float = 0.0


@dataclass(frozen=True)
class Rhythm:
    """Misses that keep time: with ticks of a wall clock, or with every so manieth turn.

    ``told`` is the mean of the parts of misses and of hits that the rhythm foretells.
    """

    kind: str  # clock or turns
    period: float  # seconds, or turns
    told: float


@dataclass(frozen=True)
class Switched:
    """A moment at which the cache stopped to work (``lost``), or began to, for everybody.

    ``at`` is its time and ``row`` the line of the first turn after it. ``n_working`` turns could
    hit while it worked, ``n_idle`` while it did not; ``write_share`` of the latters' prompts was
    written to the cache all the same. ``version`` names the release that came with the moment.
    """

    lost: bool
    at: str | None
    row: int
    n_working: int
    n_idle: int
    hits_working: float
    hits_idle: float
    write_share: float | None = None
    version: str | None = None


@dataclass(frozen=True)
class ReusePattern:
    """How later turns were served. Shares are of the ``n`` turns that could have reused.

    ``stuck_at``: cached tokens that stay the same while prompts grow; ``stuck_share`` of turns.
    ``stuck_sessions``: part of the recomputed tokens in sessions that never get past one place;
    ``mixed_sessions``: part of the sessions with both a deep hit and a miss. ``trimmed_*``: part
    of the misses and hits whose prompt did not grow by what was said before.
    ``gap_auc`` and ``between_auc``: how well the idle gap, and the tokens of other sessions in
    between, tell misses from hits (0.5 is not at all). ``expiry_s``: gap beyond which turns miss.
    ``broken_share``: part of the misses whose prompt changed within its history, by its blocks.
    ``switched``: hits and misses lie on the two sides of one moment.
    """

    n: int
    hit_share: float
    miss_share: float
    partial_share: float
    cached_share: float
    stuck_at: float | None
    stuck_share: float
    stuck_sessions: float
    mixed_sessions: float
    trimmed_misses: float
    trimmed_hits: float
    write_share: float | None
    gap_p50_s: float | None
    gap_auc: float | None
    expiry_s: float | None
    miss_after_expiry: float | None
    miss_before_expiry: float | None
    between_auc: float | None
    between_p50: float | None
    miss_when_moved: float | None
    miss_when_stayed: float | None
    moved_share: float | None
    basis: str
    basis_sure: float
    ever_hit: bool
    first_turn_cached_share: float
    broken_share: float | None = None
    rhythm: Rhythm | None = None
    switched: Switched | None = None


@dataclass(frozen=True)
class Cold:
    """Slow first requests: after ``idle_s`` of nothing to do, at the head of the log, or in line
    for a server that starts (``restart``; ``resets`` turns then found every cache empty). ``why``
    a model was loaded: after a ``silence``, because models take turns (``swap``), or again and
    again without either (``reload``); empty where it is not known.
    """

    kind: str  # idle, start, restart, load or swap
    n: int
    seconds: float
    cold_p50_s: float
    warm_p50_s: float
    idle_s: float | None
    separation: float
    worst_s: float
    resets: int = 0
    why: str = ""


@dataclass(frozen=True)
class Change:
    """A moment since which the same work costs more."""

    at: str | None
    row: int
    ratio: float
    p_value: float
    before_p50_s: float
    after_p50_s: float
    n_before: int
    n_after: int
    seconds: float
    version: str | None
    load_ratio: float | None
    scope: str | None = None

    @property
    def of_service(self) -> bool:
        """Whether the service changed, and not only the load upon it."""
        return self.version is not None or (self.load_ratio or 1.0) <= 1.6


@dataclass(frozen=True)
class Attempts:
    """Requests that were tried more than once, and refusals.

    ``near_*``: slow requests during which others beside them (same session, tenant or server)
    were refused or failed, their seconds, and how often chance alone would bring that about, or,
    with ``near_arrival``, how many of the other requests arrived beside a refusal. Tries that the
    log has as rows of their own count as attempts.
    """

    n_retried: int
    share: float
    once_p50_s: float | None
    retried_p50_s: float | None
    seconds: float
    rate_limited: int
    failed: int
    failed_share: float
    near_n: int = 0
    near_s: float = 0.0
    near_share: float = 0.0
    near_chance: float = 0.0
    near_arrival: bool = False


@dataclass(frozen=True)
class Timer:
    """Slow requests that are late by one constant, or by whole multiples of it."""

    step_s: float
    n: int
    share: float
    seconds: float


@dataclass(frozen=True)
class Contrast:
    """A group of one column that costs more than another for the same work.

    A constant more, or (``ratio``) so many times as much as all others; ``constant_s`` is then
    what that comes to for one of its requests, and ``seconds`` holds the waits behind it too.
    """

    column: str
    value: str
    n: int
    level_s: float
    best: str
    best_level_s: float
    constant_s: float
    seconds: float
    ratio: float | None = None


@dataclass(frozen=True)
class Splitter:
    """A field that no column uses, which tells the requests apart that take longer.

    ``kind``: those with one ``value``, with more than it (``above``), the ``first`` of each value,
    those whose value was not among so many used last (``gone``); or the field is a duration
    ``inside`` TTFT. ``n`` of ``of`` requests take ``more_s`` seconds more each (of a duration: TTFT
    grows by so many seconds for each of its), which is ``seconds`` of the mean TTFT. ``gain`` is
    how much nearer the TTFTs lie to their middles when told apart so, seconds a request.
    """

    field: str
    kind: str
    value: str
    n: int
    of: int
    more_s: float
    seconds: float
    gain: float


@dataclass(frozen=True)
class Scoped:
    """How much of one cause lies in one value of a grouping column.

    ``affected_share``: part of the rows with a good deal of it that lie there; ``chance``: by how
    many standard deviations that is more than their number would bring there by chance.
    """

    cause: str
    column: str
    value: str
    n: int
    seconds_in_scope: float
    share_in_scope: float
    share_of_cause: float
    share_of_rows: float
    share_elsewhere: float
    affected_share: float
    chance: float


@dataclass(frozen=True)
class Evidence:
    """Everything measured on one log."""

    population: Population
    grades: Grades
    lines: CostLines
    repeated: RepeatedPrefix
    ledger: tuple[LedgerRow, ...]
    splits: Splits
    coverage: Mapping[str, float]
    artifact: Artifact
    wait: Wait | None = None
    reuse: ReusePattern | None = None
    cold: Cold | None = None
    change: Change | None = None
    attempts: Attempts | None = None
    contrast: Contrast | None = None
    timer: Timer | None = None
    scoped: tuple[Scoped, ...] = ()
    splitter: Splitter | None = None
    fixed_s: float | None = None
    fixed_separable: bool = True
    prefill_repeated_s: float = 0.0
    prefill_repeated_interval: tuple[float, float] | None = None
    prefill_new_s: float = 0.0
    prefill_new_p95_s: float = 0.0
    context_s: float = 0.0  # of prefill_new_s: what cached context costs
    uncached_p95: float | None = None  # tokens to compute
    inside_s: float | None = None  # queue and prefill as the engine's own times tell them, and ...
    outside_s: float | None = None  # ... what of the TTFT of those requests passes elsewhere
    unexplained_s: float = 0.0
    growth_s: float | None = None
    growth_accounts: Mapping[str, float] = field(default_factory=dict)
    growth_kind: str = ""
    tail: Mapping[str, float] = field(default_factory=dict)
    spread: Spread | None = None
    unrelated: bool = False  # no session named, and lengths that show no conversations

    @property
    def mean(self) -> float | None:
        """Mean TTFT in seconds."""
        return self.population.ttft_mean_s

    @property
    def unknown_ancestry(self) -> float:
        """Part of the prompt tokens of which nothing tells whether earlier requests had them.

        None of them where prompt blocks or session ids are logged. Of a linked log, what more may
        repeat than is counted as repeated; without sessions, all that no cache served.
        """
        r = self.repeated
        if r.grade == "content" or self.grades.session == "logged" or not r.input_tokens:
            return 0.0
        if self.grades.session == "linked" and r.bounds is not None:
            return min(max((r.bounds[1] - (r.repeated_tokens or 0)) / r.input_tokens, 0.0), 1.0)
        return 1.0 - min((r.cached_tokens or 0) / r.input_tokens, 1.0)

    @property
    def longest_prompts(self) -> float:
        """Median input tokens of the longest class of prompts; 0 where unknown."""
        return max((s.input_p50 or 0.0 for s in self.splits.by_input_length), default=0.0)

    @property
    def few_new(self) -> bool:
        """Whether new tokens are too few to be waited for, but by a slow server."""
        return self.uncached_p95 is not None and self.uncached_p95 < FEW_TOKENS

    @property
    def told(self) -> float | None:
        """What the ledger tells of the spread of TTFT, as a part of what the log's columns tell.

        None where that says nothing of the prefill line: most of TTFT is something else, or hardly
        anything can be told.
        """
        part = self.share(self.prefill_new_s) or 0.0
        if self.spread is None or part < MOSTLY or self.spread.explainable < TELLABLE:
            return None
        return self.spread.explained_by_model / self.spread.explainable

    @property
    def untold_s(self) -> float:
        """Seconds that are laid to few new tokens, which do not tell slow requests from others."""
        if not self.few_new or self.prefill_new_p95_s < SLOW_S:
            return 0.0
        if self.told is None or self.told >= ENOUGH:
            return 0.0
        return self.prefill_new_s * (1 - self.told / ENOUGH)

    def share(self, seconds: float | None) -> float | None:
        """Seconds as a share of the mean TTFT."""
        if seconds is None or not self.mean:
            return None
        return seconds / self.mean

    def has(self, *columns: str) -> bool:
        """Whether the log holds all these columns for at least half of the rows."""
        return all(self.coverage.get(c, 0.0) >= 0.5 for c in columns)
