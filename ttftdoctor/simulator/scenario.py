"""Scenarios: one TOML file says who sends what to which servers, and what is wrong with them.

A number may be given as ``[low, high]``: then each seed draws its own, so that one scenario stands
for many services of one kind. The draw is even, or even in the logarithm where the ends are a
factor of four or more apart. What varies from request to request is a table
``{median, sigma, min, max}``: lognormal about ``median``, kept within the ends.

Unknown keys, wrong types and values out of range are :class:`UsageError` with the place.
"""

# ruff: noqa: RUF009  (defaults made by a function here are fields, not values)

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from ttftdoctor.errors import UsageError

SUFFIX = ".toml"

CAUSES = (
    "repeated_prefix_no_reuse", "cache_eviction", "cache_busting_prefix", "affinity_loss",
    "queueing_saturation", "decode_contention", "organic_long_input", "cold_start",
    "fixed_overhead", "deploy_regression", "retry_or_ratelimit", "measurement_artifact",
    "insufficient_data", "healthy",
)  # fmt: skip
ROUTINGS = ("session", "random", "round_robin", "least_load", "prefix_aware")
SHARINGS = ("fcfs", "fair")
SHARED = ("all", "tenant", "session")
SCOPES = ("model", "tenant", "route", "replica", "version")
#: Columns that ``log.drop`` may take away whatever the level of detail.
DROPPABLE = ("session_id", "turn", "start", "model", "replica", "tenant", "route", "version",
             "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "ttft_ms",
             "e2e_ms", "queue_ms", "prefill_ms", "decode_ms", "load_ms", "attempts", "status",
             "streamed", "vantage")  # fmt: skip

Record = TypeVar("Record")


def stream(*key: object) -> Random:
    """A stream of random numbers of its own for each key; the same on every machine.

    Only :meth:`random.Random.random` is drawn from, whose numbers are promised never to change.
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return Random(int.from_bytes(digest[:16], "big"))  # noqa: S311  (nothing secret)


def normal(rng: Random) -> float:
    """A standard normal number (Box and Muller 1958), from two even ones."""
    first = 1.0 - rng.random()
    return math.sqrt(-2.0 * math.log(first)) * math.cos(math.tau * rng.random())


@dataclass(frozen=True)
class Spread:
    """What varies from request to request: lognormal about ``median`` between the ends.

    ``sigma`` 0 means always ``median``.
    """

    median: float
    sigma: float = 0.0
    low: float = 0.0
    high: float = math.inf

    def draw(self, rng: Random) -> float:
        """One value. Always takes two numbers from the stream, so that streams stay in step."""
        value = self.median * math.exp(self.sigma * normal(rng))
        return min(max(value, self.low), self.high)


def _number(default: float | None, low: float = 0.0, high: float = math.inf) -> Any:
    meta = {"kind": "number", "low": low, "high": high}
    return field(metadata=meta) if default is None else field(default=default, metadata=meta)


def _whole(default: int | None, low: int = 0, high: float = math.inf) -> Any:
    meta = {"kind": "whole", "low": low, "high": high}
    return field(metadata=meta) if default is None else field(default=default, metadata=meta)


def _spread(default: float | None) -> Any:
    meta = {"kind": "spread", "low": 0.0, "high": math.inf}
    if default is None:
        return field(metadata=meta)
    return field(default=Spread(default), metadata=meta)


def _text(default: str = "", choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"kind": "text", "choices": choices})


def _flag(default: bool) -> Any:
    return field(default=default, metadata={"kind": "flag"})


def _texts(choices: tuple[str, ...]) -> Any:
    return field(default=(), metadata={"kind": "texts", "choices": choices})


def _table() -> Any:
    return field(metadata={"kind": "table"})


def _tables() -> Any:
    return field(default=(), metadata={"kind": "tables"})


@dataclass(frozen=True, kw_only=True)
class Causes:
    """What is planted.

    ``alternatives`` are verdicts that an honest reader may reach instead where the log lacks what
    would separate them; ``contributing`` causes are planted beside the primary one;
    ``amplifiers`` only grow with another's work. ``scope`` names the sick part, if it is a part:
    of several columns each names it by itself.
    """

    primary: str = field(metadata={"kind": "text", "choices": CAUSES})
    alternatives: tuple[str, ...] = _texts(CAUSES)
    contributing: tuple[str, ...] = _texts(CAUSES)
    amplifiers: tuple[str, ...] = _texts(CAUSES)
    scope: Mapping[str, str] = field(default_factory=dict, metadata={"kind": "scope"})


@dataclass(frozen=True, kw_only=True)
class Load:
    """How busy the servers are, from which the length of the log follows.

    ``utilisation`` is prefill work over server time outside the peak; ``slots_busy`` the share of
    the slots that decoding holds (0: not aimed at). The log becomes long enough that neither is
    exceeded, and never shorter than ``spans`` mean sessions. ``reuse`` is the share of repeated
    tokens that the cache is expected to serve in this sum. In the peak, ``peak_from`` to
    ``peak_to`` of the log, ``peak_factor`` times as many sessions begin.
    """

    utilisation: float = _number(0.2, 1e-6, 3.0)
    slots_busy: float = _number(0.0, 0.0, 3.0)
    reuse: float = _number(1.0, 0.0, 1.0)
    spans: float = _number(3.0, 0.0, 1000.0)
    peak_factor: float = _number(1.0, 1.0, 100.0)
    peak_from: float = _number(0.4, 0.0, 1.0)
    peak_to: float = _number(0.6, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Start:
    """Replica number ``replica`` takes requests only from ``at`` on (and loads first)."""

    replica: int = _whole(None)
    at: float = _number(None, 0.0, 1.0)
    until: float = _number(1e9, 0.0)


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Replica number ``replica`` goes down at ``at``, loads, and has lost its cache."""

    replica: int = _whole(None)
    at: float = _number(None, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Server:
    """The replicas that serve one model.

    A step takes ``step_overhead_ms`` if it prefills, plus for U new tokens behind C cached ones
    ``ms_per_1k * U + ms_per_1k_per_1k * U * (C + U / 2) + hit_ms_per_1k * (C + U)`` (tokens in
    thousands), plus, if anybody decodes, ``decode_ms`` and what each running request and each
    1,000 tokens of their contexts add. ``chunk_tokens`` is a step's token budget; 0 prefills
    whole prompts, one a step. ``cache_share`` sizes the cache relative to the contexts of the
    sessions alive at a time, 0 for no bound.
    """

    model: str = _text("chat-70b")
    replicas: int = _whole(1, 1, 256)
    routing: str = _text("session", ROUTINGS)
    slots: int = _whole(32, 1, 100_000)
    chunk_tokens: int = _whole(2048, 0)
    sharing: str = _text("fcfs", SHARINGS)
    step_overhead_ms: float = _number(4.0)
    ms_per_1k: float = _number(100.0, 1e-6)
    ms_per_1k_per_1k: float = _number(0.5)
    hit_ms_per_1k: float = _number(0.5)
    decode_ms: float = _number(18.0, 1e-6)
    decode_ms_per_running: float = _number(0.2)
    decode_ms_per_1k_context: float = _number(0.01)
    cache: bool = _flag(True)
    block_tokens: int = _whole(16, 1, 4096)
    cache_share: float = _number(0.0)
    cache_tokens: int = _whole(0)
    ttl_s: float = _number(0.0)
    unload_after_s: float = _number(0.0)
    load_s: float = _number(0.0)
    compile_requests: int = _whole(0)
    compile_s: float = _number(0.0)
    start: tuple[Start, ...] = _tables()
    restart: tuple[Restart, ...] = _tables()


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Sessions of one kind.

    Each turn sends the system prompt, the history and the new tokens: a user's words, or (with
    probability ``tool_share``) tool output, and in the first or a later turn a document. A
    history of more than ``compact_at`` tokens is replaced by a summary of ``compact_to`` (0:
    never). With ``changing_tokens`` above 0 that many tokens, ``changing_at`` tokens from the
    head, change every ``changing_every`` turns or every ``changing_every_s`` seconds. Sessions
    begin by themselves, or ``burst`` at a time within ``burst_s`` seconds.
    """

    name: str = _text("chat")
    sessions: int = _whole(None, 1, 1_000_000)
    model: str = _text("chat-70b")
    tenant: str = _text("acme")
    route: str = _text("/v1/chat")
    turns: Spread = _spread(1.0)
    system_tokens: int = _whole(400)
    system_shared: str = _text("all", SHARED)
    user_tokens: Spread = _spread(120.0)
    document_tokens: Spread = _spread(0.0)
    document_first: float = _number(0.0, 0.0, 1.0)
    document_later: float = _number(0.0, 0.0, 1.0)
    tool_tokens: Spread = _spread(0.0)
    tool_share: float = _number(0.0, 0.0, 1.0)
    tool_think_s: Spread = _spread(2.0)
    output_tokens: Spread = _spread(200.0)
    thinking_tokens: Spread = _spread(0.0)
    think_s: Spread = _spread(30.0)
    compact_at: int = _whole(0)
    compact_to: int = _whole(0)
    changing_tokens: int = _whole(0)
    changing_at: int = _whole(0)
    changing_every: int = _whole(1, 1)
    changing_every_s: float = _number(0.0)
    peak: bool = _flag(True)
    burst: int = _whole(0)
    burst_s: float = _number(1.0)


@dataclass(frozen=True, kw_only=True)
class Extra:
    """A longer way for some requests: those of a tenant, route or model, or a share of all."""

    tenant: str = _text()
    route: str = _text()
    model: str = _text()
    share: float = _number(1.0, 0.0, 1.0)
    ms: float = _number(None)
    jitter_ms: float = _number(0.0)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Time that every request spends on the way, there and back: constant plus exponential."""

    ms: float = _number(20.0)
    jitter_ms: float = _number(4.0)
    extra: tuple[Extra, ...] = _tables()


@dataclass(frozen=True, kw_only=True)
class Release:
    """From ``at`` (share of the log; never by default) on, one model, or all, is a new version."""

    at: float = _number(1e9, 0.0, 1e9)
    factor: float = _number(1.0, 0.01, 100.0)
    decode_factor: float = _number(1.0, 0.01, 100.0)
    model: str = _text()
    before: str = _text("1.8.2")
    after: str = _text("1.9.0")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A rate limit per tenant, and how its clients retry.

    ``allowed`` is the permitted rate as a multiple of the tenant's mean rate (0: no limit).
    """

    allowed: float = _number(0.0)
    tenant: str = _text()
    burst: int = _whole(5, 1)
    backoff_s: float = _number(1.0)
    backoff_factor: float = _number(2.0, 1.0, 10.0)
    tries: int = _whole(6, 1, 50)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A share of the requests first meets an upstream that fails, and falls back after that."""

    failing_share: float = _number(0.0, 0.0, 1.0)
    timeout_s: float = _number(5.0)
    tries: int = _whole(1, 1, 20)
    route: str = _text()
    start: float = _number(0.0, 0.0, 1.0)
    end: float = _number(1.0, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is wrong with the measurement.

    ``hold_tokens`` is how many tokens a buffer on the way gathers before it lets them through (0:
    all). ``thinking_counted`` takes the first visible token for the first. ``unit_mixed`` is the
    share of rows whose TTFT is in seconds under a name that says ms. ``gate`` lets a tenant's
    client send only so many requests at a time, while the clock runs already. ``dead_cached``
    writes zero for all cached tokens.
    """

    not_streamed: float = _number(0.0, 0.0, 1.0)
    streamed_logged: bool = _flag(True)
    buffered: float = _number(0.0, 0.0, 1.0)
    hold_tokens: int = _whole(0)
    thinking_counted: bool = _flag(False)
    unit_mixed: float = _number(0.0, 0.0, 1.0)
    gate: int = _whole(0)
    dead_cached: bool = _flag(False)


@dataclass(frozen=True, kw_only=True)
class LogShape:
    """How much is logged: only the first ``rows`` (0: all), and never the columns ``drop``."""

    rows: int = _whole(0)
    drop: tuple[str, ...] = _texts(DROPPABLE)
    vantage: str = _text("client", ("client", "gateway", "server"))


@dataclass(frozen=True, kw_only=True)
class Service:
    """A scenario whose ranges have been drawn: everything is a number."""

    title: str = _text()
    causes: Causes = _table()
    load: Load = field(default_factory=Load, metadata={"kind": "table"})
    server: tuple[Server, ...] = _tables()
    traffic: tuple[Traffic, ...] = _tables()
    gateway: Gateway = field(default_factory=Gateway, metadata={"kind": "table"})
    release: Release = field(default_factory=Release, metadata={"kind": "table"})
    limit: Limit = field(default_factory=Limit, metadata={"kind": "table"})
    upstream: Upstream = field(default_factory=Upstream, metadata={"kind": "table"})
    faults: Faults = field(default_factory=Faults, metadata={"kind": "table"})
    log: LogShape = field(default_factory=LogShape, metadata={"kind": "table"})


#: Records of the nested tables, by the field that holds them.
_RECORDS: dict[str, type] = {
    "causes": Causes, "load": Load, "server": Server, "traffic": Traffic, "gateway": Gateway,
    "release": Release, "limit": Limit, "upstream": Upstream, "faults": Faults, "log": LogShape,
    "start": Start, "restart": Restart, "extra": Extra,
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """One scenario: its name, what it plants, and its table, in which ranges are still open."""

    name: str
    title: str
    causes: Causes
    table: Mapping[str, Any]
    text: str

    def settle(self, seed: int) -> Service:
        """The service that this seed stands for."""
        rng = stream("settle", self.name, seed)
        return _build(Service, self.table, self.name, rng.random)


def names() -> tuple[str, ...]:
    """The scenarios that come with the package."""
    folder = resources.files("ttftdoctor.simulator") / "scenarios"
    found = (item.name for item in folder.iterdir() if item.name.endswith(SUFFIX))
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by its name, or a TOML file by its path.

    Raises
    ------
    UsageError
        If there is none, or if it is no valid scenario.
    """
    shipped = resources.files("ttftdoctor.simulator") / "scenarios" / f"{name_or_path}{SUFFIX}"
    if name_or_path in names():
        return parse(shipped.read_text(encoding="utf-8"), name_or_path)
    path = Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"no scenario {name_or_path!r}, and no such file",
            available=", ".join(names()),
            help="write one by starting from: ttftdoctor simulate --show healthy_chat",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the scenario", where=name_or_path, why=str(error)) from None
    return parse(text, path.stem)


def parse(text: str, name: str) -> Scenario:
    """Check a scenario's text at both ends of its ranges."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError("this is not TOML", where=name, why=str(error)) from None
    low = _build(Service, table, name, lambda: 0.0)
    high = _build(Service, table, name, lambda: 1.0)
    for service in (low, high):
        _check(service, name)
    return Scenario(name, low.title, low.causes, table, text)


def _check(service: Service, name: str) -> None:
    """What no single value can tell."""
    if not service.server or not service.traffic:
        raise UsageError("a scenario needs [[server]] and [[traffic]]", where=name)
    models = [server.model for server in service.server]
    if len(set(models)) < len(models):
        raise UsageError("two [[server]] tables serve the same model", where=name)
    for traffic in service.traffic:
        if traffic.model not in models:
            raise UsageError(
                f"traffic.model: nobody serves {traffic.model!r}",
                where=name, available=", ".join(models),
            )  # fmt: skip
        if traffic.compact_at and not 0 < traffic.compact_to < traffic.compact_at:
            raise UsageError("traffic.compact_to must lie between 0 and compact_at", where=name)
    for server in service.server:
        numbers = [start.replica for start in server.start]
        numbers += [restart.replica for restart in server.restart]
        if any(number >= server.replicas for number in numbers):
            raise UsageError(
                f"server.start, server.restart: replicas count from 0 to {server.replicas - 1}",
                where=name,
            )
        late = {start.replica for start in server.start if start.at > 0}
        if len(late) >= server.replicas:
            raise UsageError("server.start: one replica must be there from the start", where=name)
    if service.load.peak_to <= service.load.peak_from:
        raise UsageError("load.peak_to must be later than load.peak_from", where=name)


def _build(record: type[Record], table: Any, where: str, draw: Any) -> Record:
    """Make a record of a table; ``draw`` gives an even number from 0 to 1 for each range."""
    if not isinstance(table, Mapping):
        raise UsageError("a table is wanted here", where=where)
    known: dict[str, Field[Any]] = {f.name: f for f in fields(record)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise UsageError(f"unknown key {key!r}", where=where, available=", ".join(known))
    values: dict[str, Any] = {}
    for key, spec in known.items():
        place = f"{where}: {key}" if record is Service else f"{where}.{key}"
        if key in table:
            values[key] = _value(spec, table[key], place, draw)
        elif spec.default is MISSING and spec.default_factory is MISSING:
            raise UsageError(f"{key} is missing", where=where)
    return record(**values)


def _value(spec: Field[Any], value: Any, where: str, draw: Any) -> Any:
    kind = spec.metadata["kind"]
    if kind == "table":
        return _build(_RECORDS[spec.name], value, where, draw)
    if kind == "tables":
        if not isinstance(value, list):
            raise UsageError("a list of tables is wanted here ([[...]])", where=where)
        record = _RECORDS[spec.name]
        return tuple(_build(record, v, f"{where}[{i}]", draw) for i, v in enumerate(value))
    if kind in ("number", "whole"):
        return _drawn(spec, value, where, draw, whole=kind == "whole")
    if kind == "spread":
        return _spread_of(spec, value, where, draw)
    if kind == "flag":
        if not isinstance(value, bool):
            raise UsageError(f"true or false is wanted, not {value!r}", where=where)
        return value
    if kind == "scope":
        if not isinstance(value, Mapping) or not all(
            k in SCOPES and isinstance(v, str) for k, v in value.items()
        ):
            raise UsageError("a table COLUMN = VALUE is wanted", where=where,
                             available=", ".join(SCOPES))  # fmt: skip
        return dict(value)
    if kind == "texts":
        if not isinstance(value, list):
            raise UsageError("a list of words is wanted", where=where)
        return tuple(_word(spec, v, where) for v in value)
    return _word(spec, value, where)


def _word(spec: Field[Any], value: Any, where: str) -> str:
    choices = spec.metadata["choices"]
    if not isinstance(value, str) or (choices and value not in choices):
        raise UsageError(
            f"{value!r} is not wanted here", where=where, available=", ".join(choices) or "a text"
        )
    return value


def _drawn(spec: Field[Any], value: Any, where: str, draw: Any, *, whole: bool) -> float | int:
    """A number, or one drawn between two."""
    ends = value if isinstance(value, list) else [value]
    if len(ends) not in (1, 2) or not all(_is_number(v) for v in ends):
        raise UsageError(f"a number or a range [low, high] is wanted, not {value!r}", where=where)
    low, high = spec.metadata["low"], spec.metadata["high"]
    for end in ends:
        if not low <= end <= high:
            raise UsageError(f"{end:g} is out of range", where=where,
                             why=f"it must lie between {low:g} and {high:g}")  # fmt: skip
        if whole and end != int(end):
            raise UsageError(f"{end:g} is no whole number", where=where)
    if len(ends) == 1:
        return int(ends[0]) if whole else float(ends[0])
    first, last = float(ends[0]), float(ends[1])
    if first > last:
        raise UsageError(f"the range {value!r} is upside down", where=where)
    part: float = draw()
    drawn: float
    if first > 0 and last >= 4 * first:
        drawn = first * (last / first) ** part
    else:
        drawn = first + (last - first) * part
    return round(drawn) if whole else drawn


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _spread_of(spec: Field[Any], value: Any, where: str, draw: Any) -> Spread:
    if not isinstance(value, Mapping):
        return Spread(float(_drawn(spec, value, where, draw, whole=False)))
    names_ = {"median": "median", "sigma": "sigma", "min": "low", "max": "high"}
    for key in value:
        if key not in names_:
            raise UsageError(f"unknown key {key!r}", where=where, available=", ".join(names_))
    if "median" not in value:
        raise UsageError("median is missing", where=where)
    given = {
        names_[key]: float(_drawn(spec, v, f"{where}.{key}", draw, whole=False))
        for key, v in value.items()
    }
    if given.get("low", 0.0) > given.get("high", math.inf):
        raise UsageError("min is above max", where=where)
    return Spread(**given)
