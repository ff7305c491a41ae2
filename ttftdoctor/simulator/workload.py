"""Who sends what and when: sessions with every draw that they need, and the prompts they build.

All draws are made before anything is served, from a stream of their own for each session, so that
serving the same plan under a remedy meets the same people with the same words, think times and
luck on the way (common random numbers).

Instants and durations are integer picoseconds: sums are exact, in whatever order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from ttftdoctor.simulator.scenario import Scenario, Server, Service, Traffic, stream

PS = 10**12
#: Tokens of the shortest summary that a compaction leaves.
LEAST_SUMMARY = 64
#: A history is compacted once it exceeds its target by this factor: not at every turn anew.
SLACK = 1.25


def ps(seconds: float) -> int:
    """Seconds as picoseconds."""
    return round(seconds * PS)


@dataclass(frozen=True, slots=True)
class Turn:
    """One planned turn: tokens in their parts, the think time before it, and its luck.

    ``way``, ``extra_way`` are standard exponential draws for jitter; ``extra``, ``failing``,
    ``retry``, ``routing``, ``fault`` are even draws from 0 to 1.
    """

    user_tokens: int
    document_tokens: int
    output_tokens: int
    thinking_tokens: int
    think: int
    way: float
    extra_way: float
    extra: float
    failing: float
    retry: float
    routing: float
    fault: float

    @property
    def new_tokens(self) -> int:
        """Tokens that were in no earlier prompt of the session."""
        return self.user_tokens + self.document_tokens


@dataclass(frozen=True, slots=True)
class Session:
    """One planned session. ``spare`` is an even draw that remedies may use."""

    number: int
    id: str
    traffic: Traffic
    kind: int
    start: int
    turns: tuple[Turn, ...]
    spare: float


@dataclass(frozen=True)
class Plan:
    """Everything that is served: the service, its sessions, and sizes that follow from them.

    ``capacity`` is each server's cache room in tokens a replica (0: no bound); ``rate`` each
    tenant's mean requests a second; ``compact_input`` cuts the inputs of later turns (0: never).
    ``mended`` clients wait as long as a limit says and meet no failing upstream;
    ``disaggregated`` replicas prefill, as many others decode.
    """

    name: str
    seed: int
    service: Service
    sessions: tuple[Session, ...]
    end: int
    capacity: tuple[int, ...]
    rate: dict[str, float]
    compact_input: int = 0
    mended: bool = False
    disaggregated: bool = False


class _Draft(NamedTuple):
    """A session before it is known how long the log will be."""

    traffic: Traffic
    kind: int
    id: str
    turns: tuple[Turn, ...]
    rng: Random


def plan(scenario: Scenario, seed: int) -> Plan:
    """Draw the service of this seed, its sessions and the length of the log."""
    service = scenario.settle(seed)
    drafts: list[_Draft] = []
    for kind, traffic in enumerate(service.traffic):
        for number in range(traffic.sessions):
            rng = stream("session", scenario.name, seed, kind, number)
            mark = int(stream("id", seed, kind, number).random() * 16**10)
            turns = _turns(traffic, rng)
            drafts.append(_Draft(traffic, kind, f"{traffic.name}-{mark:010x}", turns, rng))
    end_s = _span(service, drafts)
    sessions = []
    for number, draft in enumerate(drafts):
        traffic, rng = draft.traffic, draft.rng
        part = _when(service, traffic, rng.random())
        place = rng.random()
        spare = rng.random()
        start = ps(part * end_s)
        if traffic.burst:
            wave = stream("wave", scenario.name, seed, draft.kind, number // traffic.burst)
            start = ps(_when(service, traffic, wave.random()) * end_s + place * traffic.burst_s)
        sessions.append(Session(number, draft.id, traffic, draft.kind, start, draft.turns, spare))
    capacity = tuple(_capacity(server, drafts, end_s) for server in service.server)
    rate: dict[str, float] = {}
    for draft in drafts:
        tenant = draft.traffic.tenant
        rate[tenant] = rate.get(tenant, 0.0) + len(draft.turns) / end_s
    return Plan(scenario.name, seed, service, tuple(sessions), ps(end_s), capacity, rate)


def _turns(traffic: Traffic, rng: Random) -> tuple[Turn, ...]:
    out = []
    for index in range(max(1, round(traffic.turns.draw(rng)))):
        tool = index > 0 and rng.random() < traffic.tool_share
        words = (traffic.tool_tokens if tool else traffic.user_tokens).draw(rng)
        think = (traffic.tool_think_s if tool else traffic.think_s).draw(rng)
        has_document = rng.random() < (traffic.document_later if index else traffic.document_first)
        document = traffic.document_tokens.draw(rng)
        visible = max(1, round(traffic.output_tokens.draw(rng)))
        thinking = round(traffic.thinking_tokens.draw(rng))
        out.append(
            Turn(
                user_tokens=max(1, round(words)),
                document_tokens=round(document) if has_document else 0,
                output_tokens=visible + thinking,
                thinking_tokens=thinking,
                think=ps(think),
                way=-math.log(1.0 - rng.random()),
                extra_way=-math.log(1.0 - rng.random()),
                extra=rng.random(),
                failing=rng.random(),
                retry=rng.random(),
                routing=rng.random(),
                fault=rng.random(),
            )
        )
    return tuple(out)


def _when(service: Service, traffic: Traffic, draw: float) -> float:
    """When a session begins, as a share of the log, by the profile of the day."""
    load = service.load
    if not traffic.peak or load.peak_factor <= 1:
        return draw
    width = load.peak_to - load.peak_from
    whole = 1 - width + load.peak_factor * width
    left = draw * whole
    if left <= load.peak_from:
        return left
    left -= load.peak_from
    if left <= load.peak_factor * width:
        return load.peak_from + left / load.peak_factor
    return load.peak_to + left - load.peak_factor * width


def lengths_of(traffic: Traffic, turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Input and repeated tokens of each turn, roughly: what the length of the log is set by."""
    out: list[tuple[int, int]] = []
    history = 0
    for turn in turns:
        if traffic.compact_at and history > traffic.compact_at:
            history = traffic.compact_to
        total = traffic.system_tokens + history + turn.new_tokens + traffic.changing_tokens
        out.append((total, total - turn.new_tokens if len(out) else traffic.system_tokens))
        history += turn.new_tokens + turn.output_tokens - turn.thinking_tokens
    return out


def _span(service: Service, drafts: Sequence[_Draft]) -> float:
    """Seconds from the first session's start to the last one's."""
    load = service.load
    width = load.peak_to - load.peak_from
    peak = 1 - width + load.peak_factor * width
    needed = 1.0
    spans = []
    for server in service.server:
        work = held = 0.0
        busy_ms = server.decode_ms + server.decode_ms_per_running * max(
            2.0, load.slots_busy * server.slots
        )
        for traffic, _, _, turns, _ in drafts:
            if traffic.model != server.model:
                continue
            span = 0.0
            for turn, (total, repeated) in zip(turns, lengths_of(traffic, turns), strict=True):
                cached = repeated * load.reuse if server.cache else 0.0
                cost = prefill_s(server, total - cached, cached)
                work += cost
                held += turn.output_tokens * busy_ms / 1e3
                span += cost + turn.output_tokens * busy_ms / 1e3 + turn.think / PS
            spans.append(span)
        needed = max(needed, work / (server.replicas * load.utilisation * peak))
        if load.slots_busy:
            slots = server.replicas * server.slots
            needed = max(needed, held / (slots * load.slots_busy * peak))
    return max(needed, load.spans * sum(spans) / len(spans))


def prefill_s(server: Server, uncached: float, cached: float) -> float:
    """Seconds of prefill in one step, by the cost line."""
    u, c = uncached / 1000, cached / 1000
    ms = server.step_overhead_ms + server.ms_per_1k * u + server.hit_ms_per_1k * (c + u)
    return (ms + server.ms_per_1k_per_1k * u * (c + u / 2)) / 1000


def _capacity(server: Server, drafts: Sequence[_Draft], end_s: float) -> int:
    """Room of a replica's cache in tokens."""
    if not server.cache_share:
        return server.cache_tokens
    alive = 0.0
    for traffic, _, _, turns, _ in drafts:
        if traffic.model == server.model:
            span = sum(t.think / PS + t.output_tokens * server.decode_ms / 1e3 for t in turns)
            lengths = [total for total, _ in lengths_of(traffic, turns)]
            alive += span * sum(lengths) / len(lengths)
    room = server.cache_share * alive / end_s / server.replicas
    return max(round(room), 4 * server.block_tokens)


class Prompts:
    """The prompts of all sessions as chains of parts, each part a number (see ``cache``)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lengths: list[int] = [0]
        self._numbers: dict[tuple[int, object, int], int] = {}
        self._history: dict[int, list[tuple[object, int]]] = {}
        self._paths: dict[int, list[int]] = {}
        self._twins: dict[int, list[int]] = {}

    def build(self, session: Session, index: int, now: int) -> tuple[list[int], list[int]]:
        """The chain of parts that turn ``index`` sends; its tokens are the sum of their lengths.

        The second chain is the same prompt as it would be if nothing in its head had changed: by
        it one can tell which tokens were computed before, reusable or not.
        """
        traffic, turn = session.traffic, session.turns[index]
        key = session.number
        history = self._history.setdefault(key, [])
        cut = self._compact(session, index, history)
        fresh = not index or cut or bool(traffic.changing_tokens)
        new = self._new(session, index, turn)
        history.extend(new)
        if fresh:
            self._paths[key] = self._chain([], (*self._head(session, index, now), *history))
        else:
            self._chain(self._paths[key], new)
        path = list(self._paths[key])
        if not traffic.changing_tokens:
            return path, path
        if not index or cut:
            head = self._head(session, index, now, still=True)
            self._twins[key] = self._chain([], (*head, *history))
        else:
            self._chain(self._twins[key], new)
        return path, list(self._twins[key])

    def _chain(self, path: list[int], parts: Sequence[tuple[object, int]]) -> list[int]:
        """Append parts to a chain."""
        for content, length in parts:
            path.append(self._number(path[-1] if path else 0, content, length))
        return path

    def answer(self, session: Session, index: int) -> tuple[list[int], list[int]] | None:
        """Append the answer; gives both chains with it.

        Hidden thinking stands before the answer and is not sent again, so an answer after it is
        no prefix of the next prompt: None.
        """
        turn = session.turns[index]
        visible = turn.output_tokens - turn.thinking_tokens
        content = ("answer", session.number, index)
        self._history[session.number].append((content, visible))
        path = self._chain(self._paths[session.number], [(content, visible)])
        twin = path
        if session.traffic.changing_tokens:
            twin = self._chain(self._twins[session.number], [(content, visible)])
        return None if turn.thinking_tokens else (path, twin)

    def tokens(self, path: Sequence[int]) -> int:
        """Tokens of a chain."""
        lengths = self.lengths
        return sum([lengths[part] for part in path])

    def _number(self, before: int, content: object, length: int) -> int:
        key = (before, content, length)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.lengths)
            self.lengths.append(length)
        return number

    def _head(
        self, session: Session, index: int, now: int, *, still: bool = False
    ) -> list[tuple[object, int]]:
        """The system prompt, and in it what changes (or, if ``still``, would)."""
        traffic = session.traffic
        owner: object = {
            "all": "", "tenant": traffic.tenant, "session": session.number
        }[traffic.system_shared]  # fmt: skip
        if not traffic.changing_tokens:
            return [(("system", owner), traffic.system_tokens)] if traffic.system_tokens else []
        change: object = ("still",)
        if still:
            pass
        elif traffic.changing_every_s:
            change = ("since", now // ps(traffic.changing_every_s))
        else:
            change = ("turn", session.number, index // traffic.changing_every)
        at = min(traffic.changing_at, traffic.system_tokens)
        parts: list[tuple[object, int]] = [
            (("system", owner), at), (change, traffic.changing_tokens),
            (("rest", owner), traffic.system_tokens - at),
        ]  # fmt: skip
        return [part for part in parts if part[1]]

    def _new(self, session: Session, index: int, turn: Turn) -> list[tuple[object, int]]:
        parts: list[tuple[object, int]] = []
        if turn.document_tokens:
            parts.append((("document", session.number, index), turn.document_tokens))
        parts.append((("user", session.number, index), turn.user_tokens))
        return parts

    def _compact(self, session: Session, index: int, history: list[tuple[object, int]]) -> bool:
        """Replace a long history by a summary; says whether it did."""
        traffic = session.traffic
        held = sum(length for _, length in history)
        target = held
        if traffic.compact_at and held > traffic.compact_at:
            target = traffic.compact_to
        most = self.plan.compact_input
        if most:
            rest = traffic.system_tokens + traffic.changing_tokens + session.turns[index].new_tokens
            if target + rest > SLACK * most:
                target = max(most - rest, LEAST_SUMMARY)
        if target >= held:
            return False
        history[:] = [(("summary", session.number, index), target)]
        return True
