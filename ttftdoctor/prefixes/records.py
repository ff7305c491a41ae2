"""What is found about shared prefixes, as frozen records.

Tokens are prompt tokens. ``share`` is always of all prompt tokens of the requests that were looked
at, unless its name says otherwise. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Definition:
    """One of the numbers that people call the hit rate, and what exactly it is."""

    id: str
    value: float
    says: str


@dataclass(frozen=True)
class Rung:
    """What is left of the reusable tokens under one more limit, and what the limit takes.

    ``basis``: ``exact`` (counted), ``logged``, ``given`` (by the user), ``inferred`` (from the
    log), ``unknown`` (the limit is not known and takes nothing here). ``lost_seconds`` are seconds
    of prefill by the cost line; a limit may give back a little of what one before it took.
    """

    id: Literal["ideal", "expiry", "capacity", "routing", "rounding", "actual"]
    title: str
    owner: str
    basis: Literal["exact", "logged", "given", "inferred", "unknown"]
    says: str
    hit_tokens: int
    share: float
    lost_tokens: int
    lost_share: float
    lost_seconds: float | None = None
    lost_money: float | None = None


@dataclass(frozen=True)
class Group:
    """The ladder of one tenant, route, turn, model or replica: hit tokens after each rung."""

    name: str
    requests: int
    input_tokens: int
    hit_tokens: Mapping[str, int]
    lost_tokens: int
    lost_seconds: float | None
    lost_money: float | None


@dataclass(frozen=True)
class Limits:
    """The limits that the ladder was made with; ``why`` says where each comes from."""

    ttl_s: float | None
    capacity_tokens: int | None
    replicas: int
    routing: str
    round_to_tokens: int | None
    round_from_tokens: int
    why: Mapping[str, str]


@dataclass(frozen=True)
class Ladder:
    """The rungs of the whole log, and of its parts."""

    rungs: tuple[Rung, ...]
    limits: Limits
    seconds_basis: str | None
    money_basis: str | None
    currency: str | None
    groups: Mapping[str, tuple[Group, ...]]


@dataclass(frozen=True)
class Size:
    """What caches of one size keep: hit tokens as a share of all prompt tokens."""

    capacity_tokens: int
    capacity_gb: float | None
    lru_share: float
    lru_of_ideal: float
    optimal_share: float
    optimal_of_ideal: float


@dataclass(frozen=True)
class Capacity:
    """Hit share by size of one cache that all requests share.

    ``working_set_tokens`` is what all distinct blocks of the log hold; ``flat_tokens`` the least
    size at which LRU keeps ``flat_of_ideal`` of what an endless cache does.
    """

    sizes: tuple[Size, ...]
    working_set_tokens: int
    flat_tokens: int | None
    flat_gb: float | None
    flat_of_ideal: float
    kv_bytes_per_token: float | None
    kv_shape: str | None


@dataclass(frozen=True)
class Lifetime:
    """What is kept if blocks are let go this long after they were last used."""

    ttl_s: float
    share: float
    of_ideal: float


@dataclass(frozen=True)
class TtlPrice:
    """What a lifetime costs where a provider sells it: in units of the plain input price."""

    ttl_s: float
    write: float
    read: float
    cost: float
    cheapest: bool


@dataclass(frozen=True)
class Expiry:
    """Hit share by time to live, how long reused blocks lay idle, and what longer lives pay."""

    lifetimes: tuple[Lifetime, ...]
    idle_p50_s: float | None
    idle_p80_s: float | None
    idle_p90_s: float | None
    idle_p99_s: float | None
    prices: tuple[TtlPrice, ...]
    break_even_write: float | None
    says: str


@dataclass(frozen=True)
class Routed:
    """What caches behind a router keep; ``busiest_share`` is of the tokens left to compute."""

    policy: str
    replicas: int
    share: float
    of_ideal: float
    busiest_share: float


@dataclass(frozen=True)
class Routing:
    """What each way to choose a replica would keep with endless caches, and what the log's did."""

    policies: tuple[Routed, ...]
    logged: Routed | None
    says: str


@dataclass(frozen=True)
class Prefix:
    """A beginning that several prompts share; ``id`` is of this report, not of the log."""

    id: str
    tokens: int
    requests: int
    sessions: int | None
    reusable_tokens: int
    first_line: int
    first_path: str


@dataclass(frozen=True)
class Generation:
    """Requests that are so many turns into a line of descent, and what they find of their input."""

    turn: int
    requests: int
    input_tokens: int
    hit_share: float


@dataclass(frozen=True)
class Ancestry:
    """Turns by content: a request that shares more than a common head with one before follows it.

    ``first_share`` of the requests follow none; ``generations`` are the turns, the last of them
    ``or_later``.
    """

    first_share: float
    deepest: int
    later_input_share: float
    later_hit_share: float | None
    generations: tuple[Generation, ...]


@dataclass(frozen=True)
class Leaders:
    """Shared beginnings by requests and by the tokens they would save; where reuse comes from."""

    by_requests: tuple[Prefix, ...]
    by_tokens: tuple[Prefix, ...]
    within_session_tokens: int | None
    across_sessions_tokens: int | None
    top_tenth_of_reuse: float | None
    never_reused_share: float


@dataclass(frozen=True)
class AlsoRecord:
    """A later place that changes too, and costs once the first is mended."""

    kind: str
    position_tokens: int


@dataclass(frozen=True)
class BreakerRecord:
    """Where prompts that should share a beginning first differ, and what that costs.

    ``tokens_lost`` is what not even an endless cache could give back, so it lies above the first
    rung of the ladder; ``tokens_apart`` the same if only the request before is still cached (what
    values that come by turns cost at worst). ``within_session`` of the ``requests`` go on from an
    earlier turn, the others share a template with other conversations. ``before`` and ``after`` are
    text, only if it was asked for.
    """

    kind: str
    section: str
    path: str | None
    position_tokens: int
    position_interval: tuple[int, int]
    habit: Literal["unique", "thrashing", "once"]
    requests: int
    of_requests: int
    within_session: int
    sessions: int | None
    tokens_lost: int
    tokens_apart: int
    seconds_lost: float | None
    money_lost: float | None
    examples: tuple[str, ...]
    says: str
    also: tuple[AlsoRecord, ...] = ()
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Gap:
    """How far the model is from what the engine did, in one part of the log."""

    column: str
    value: str
    requests: int
    model_tokens: int
    engine_tokens: int


@dataclass(frozen=True)
class Reconciled:
    """The model beside an engine's own counters."""

    source: str
    engine_share: float
    model_share: float
    model_rung: str
    difference_points: float
    mean_error_points: float | None
    over_tokens: int | None
    under_tokens: int | None
    where: tuple[Gap, ...]
    says: str


@dataclass(frozen=True)
class PrefixFindings:
    """Where reusable work is lost, of ``looked_at`` requests out of ``requests``.

    ``grade``: the prompts' blocks were compared (``content``), or only what the log reports or what
    follows from the lengths of turns is known (``reported``, ``inferred``), or nothing (``none``).
    ``left_out`` counts the other requests by reason; ``lacks`` are sentences on what would let more
    be told.
    """

    grade: Literal["content", "reported", "inferred", "none"]
    requests: int
    looked_at: int
    left_out: Mapping[str, int]
    input_tokens: int
    block_tokens: int | None
    sessions: Literal["logged", "linked", "none"]
    headline: str
    definitions: tuple[Definition, ...] = ()
    ladder: Ladder | None = None
    capacity: Capacity | None = None
    expiry: Expiry | None = None
    routing: Routing | None = None
    leaders: Leaders | None = None
    ancestry: Ancestry | None = None
    breakers: tuple[BreakerRecord, ...] = ()
    breakers_says: str = ""
    reconciled: tuple[Reconciled, ...] = ()
    notes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
