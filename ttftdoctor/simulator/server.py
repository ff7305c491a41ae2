"""The event loop: clients, gateway, routing, and replicas that serve in steps.

A replica works in steps (continuous batching: Yu et al. 2022, "Orca"). Each step gives every
decoding request one token and spends the rest of its token budget on prefill, in order of arrival
(chunked prefill: Agrawal et al. 2024, "Sarathi-Serve") or in equal parts. While nobody prefills
and nobody new may join, all steps up to the next answer's end are taken at once: their durations
grow by the same amount from one to the next, so their sum is exact, and an arrival in their midst
cuts them off at the boundary where it would have been let in.

Where the time of a request goes is kept by running sums: each replica adds up the seconds it has
spent on prefill of repeated tokens, of new ones, and on loading. What a request waited behind is
the difference of these sums between its arrival and its first token, less its own part. Of a step
that is running when it arrives, it waits for the part that is left.

All times are integer picoseconds.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ttftdoctor.simulator.cache import PrefixCache
from ttftdoctor.simulator.scenario import Extra, Server
from ttftdoctor.simulator.workload import Plan, Prompts, Session, Turn, ps

FOREVER = 1 << 62
#: A prompt always leaves this many tokens to compute: the last one gives the first new token.
LEAST_COMPUTED = 1
#: With ``prefix_aware`` routing, a replica this many requests busier than the idlest is avoided.
MOST_UNEVEN = 4
#: Even when decoding fills a step's budget, this part of it stays for prefill.
LEAST_PREFILL_SHARE = 8


@dataclass(slots=True)
class Job:
    """One request: its plan, where it is, and where its time went."""

    session: Session
    index: int
    turn: Turn
    wanted: int
    pool: int
    path: list[int] = field(default_factory=list)
    twin: list[int] = field(default_factory=list)  # the same, had its head not changed
    input: int = 0
    way_in: int = 0
    way_out: int = 0
    attempts: int = 1
    status: str = "ok"
    version: str = ""
    replica: int = -1
    # Instants: sent past the gate, at the server, first scheduled, first token, last token.
    sent: int = -1
    accepted: int = -1
    arrived: int = -1
    scheduled: int = -1
    first: int = -1
    visible: int = -1
    last: int = -1
    # Tokens: from the cache, seen before by any replica, still to prefill.
    cached: int = 0
    repeated: int = 0
    left: int = 0
    running: int = 0
    # Sums of the replica at arrival, and own parts.
    sum_repeated: int = 0
    sum_new: int = 0
    sum_cold: int = 0
    own_repeated: int = 0
    own_new: int = 0
    own_overhead: int = 0
    behind_repeated: int = 0
    behind_new: int = 0
    cold: int = 0
    loading: int = 0  # the part of it before being scheduled
    hold: int = 0  # tokens gathered on the way before the first is seen


class Costs:
    """Integer costs in ps of one version of a server."""

    def __init__(self, server: Server, factor: float, decode_factor: float) -> None:
        self.overhead = round(server.step_overhead_ms * factor * 1e9)
        self.token = round((server.ms_per_1k + server.hit_ms_per_1k) * factor * 1e6)
        self.again = round(server.ms_per_1k * factor * 1e6)
        self.hit = round(server.hit_ms_per_1k * factor * 1e6)
        self.half = round(server.ms_per_1k_per_1k * factor * 1e3 / 2)
        self.decode = round(server.decode_ms * decode_factor * 1e9)
        self.running = round(server.decode_ms_per_running * decode_factor * 1e9)
        self.context = round(server.decode_ms_per_1k_context * decode_factor * 1e6)

    def prefill(self, at: int, tokens: int) -> int:
        """Picoseconds for ``tokens`` new tokens behind ``at`` others, without overhead."""
        end = at + tokens
        return self.token * tokens + self.half * (end * end - at * at)

    def repeated(self, at: int, tokens: int) -> int:
        """The part that a hit on these tokens would have saved."""
        end = at + tokens
        return self.again * tokens + self.half * (end * end - at * at)


class Replica:
    """One server instance."""

    def __init__(self, number: int, pool: int, server: Server, capacity: int) -> None:
        self.number = number
        self.pool = pool
        self.server = server
        self.cache = PrefixCache(server.block_tokens, capacity, ps(server.ttl_s))
        self.salt = zlib.crc32(f"{server.model}/{number}".encode())
        self.queue: deque[Job] = deque()
        self.prefilling: list[Job] = []
        self.running = 0  # jobs that decode
        self.taken = 0  # slots held by prefilling and decoding jobs
        self.most_taken = 0
        self.context = 0  # tokens in the contexts of decoding jobs
        self.steps = 0
        self.marks: list[tuple[int, int, int, Job]] = []  # step, order, 1 = end, job
        self.from_, self.until = 0, FOREVER
        self.down_until = 0
        self.loaded = 0  # since when; for compilation
        self.compiled = 0
        self.idle_since = 0
        # The stretch that is being worked on.
        self.busy = False
        self.epoch = 0
        self.began = self.ends = 0
        self.in_repeated = self.in_new = self.in_cold = 0
        self.work: list[tuple[Job, int]] = []
        self.run = 0  # decode steps in this stretch; 0 if it holds prefill
        self.first_step = self.growth = 0
        # Sums over finished stretches.
        self.sum_repeated = self.sum_new = self.sum_cold = 0
        self.decode_to: Replica | None = None

    def load(self) -> int:
        """Requests here that are not finished."""
        return len(self.queue) + self.taken


class Loop:
    """Serves a plan; :meth:`serve` gives the jobs in the order in which they were wanted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        service = plan.service
        self.service = service
        self.prompts = Prompts(plan)
        self.seen = PrefixCache(1)  # every token that any replica has ever computed
        self.jobs: list[Job] = []
        self.events: list[tuple[int, int, Callable[[int, Any], None], Any]] = []
        self.order = 0
        self.pools: list[list[Replica]] = []
        self.all: list[Replica] = []
        self.costs: list[tuple[Costs, str]] = []
        self.after: list[tuple[Costs, str]] = []
        self.turns_taken = [0] * len(service.server)
        self.in_flight: dict[str, int] = {}
        self.gated: dict[str, deque[Job]] = {}
        self.buckets: dict[str, tuple[float, int]] = {}
        release = service.release
        for pool, server in enumerate(service.server):
            changed = release.model in ("", server.model)
            old = Costs(server, 1.0, 1.0)
            new = Costs(server, release.factor, release.decode_factor)
            self.costs.append((old, release.before))
            self.after.append((new, release.after) if changed else (old, release.before))
            self.pools.append(self._replicas(pool, server))
        self.pool_of = {server.model: n for n, server in enumerate(service.server)}
        if release.at <= 1:
            self._at(round(release.at * plan.end), self._release, None)
        for session in plan.sessions:
            self._at(session.start, self._want, (session, 0))

    def _replicas(self, pool: int, server: Server) -> list[Replica]:
        out = []
        for number in range(server.replicas):
            replica = Replica(number, pool, server, self.plan.capacity[pool])
            if self.plan.disaggregated:
                replica.decode_to = Replica(number, pool, server, 0)
                self.all.append(replica.decode_to)
            out.append(replica)
        self.all.extend(out)
        for start in server.start:
            replica = out[start.replica]
            at = round(start.at * self.plan.end)
            if start.at > 0:
                replica.from_ = at if replica.from_ == 0 else min(replica.from_, at)
            replica.until = min(round(min(start.until, 1e6) * self.plan.end), FOREVER)
            self._at(at, self._restart, replica)
        for restart in server.restart:
            self._at(round(restart.at * self.plan.end), self._restart, out[restart.replica])
        return out

    def serve(self) -> list[Job]:
        """Run until the last answer has ended."""
        events = self.events
        pop = heapq.heappop
        while events:
            now, _, act, what = pop(events)
            act(now, what)
        return self.jobs

    def _at(self, when: int, act: Callable[[int, Any], None], what: Any) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, act, what))

    # ---------------------------------------------------------------- clients

    def _want(self, now: int, what: tuple[Session, int]) -> None:
        """Somebody wants an answer: here the clock starts."""
        session, index = what
        turn = session.turns[index]
        job = Job(session, index, turn, now, self.pool_of[session.traffic.model])
        self.jobs.append(job)
        way, back = self._way(session, turn)
        job.way_in, job.way_out = way, back
        faults = self.service.faults
        if faults.gate:
            tenant = session.traffic.tenant
            if self.in_flight.get(tenant, 0) >= faults.gate:
                self.gated.setdefault(tenant, deque()).append(job)
                return
            self.in_flight[tenant] = self.in_flight.get(tenant, 0) + 1
        self._send(now, job)

    def _way(self, session: Session, turn: Turn) -> tuple[int, int]:
        """Picoseconds on the way there and back."""
        gateway = self.service.gateway
        ms = gateway.ms + gateway.jitter_ms * turn.way
        for extra in gateway.extra:
            if turn.extra < extra.share and _on(extra, session):
                ms += extra.ms + extra.jitter_ms * turn.extra_way
        whole = round(ms * 1e9)
        return whole // 2, whole - whole // 2

    def _send(self, now: int, job: Job) -> None:
        job.sent = now
        upstream = self.service.upstream
        if (
            not self.plan.mended
            and job.turn.failing < upstream.failing_share
            and upstream.route in ("", job.session.traffic.route)
            and upstream.start * self.plan.end <= job.wanted <= upstream.end * self.plan.end
        ):
            job.attempts += upstream.tries
            self._at(now + upstream.tries * ps(upstream.timeout_s), self._try, job)
        else:
            self._try(now, job)

    def _try(self, now: int, job: Job) -> None:
        """Ask the limit; back off if it refuses."""
        limit = self.service.limit
        tenant = job.session.traffic.tenant
        if limit.allowed and limit.tenant in ("", tenant):
            rate = limit.allowed * self.plan.rate[tenant] / 1e12
            left, since = self.buckets.get(tenant, (float(limit.burst), 0))
            left = min(float(limit.burst), left + (now - since) * rate)
            if self.plan.mended:
                self.buckets[tenant] = (left - 1, now)
                wait = 0 if left >= 1 else math.ceil((1 - left) / rate)
                self._at(now + wait, self._accept, job)
                return
            if left < 1:
                self.buckets[tenant] = (left, now)
                if job.attempts >= limit.tries:
                    self._give_up(now, job)
                    return
                luck = math.modf(job.turn.retry + 0.6180339887 * job.attempts)[0]
                pause = limit.backoff_s * limit.backoff_factor ** (job.attempts - 1)
                job.attempts += 1
                self._at(now + ps(pause * (0.75 + 0.5 * luck)), self._try, job)
                return
            self.buckets[tenant] = (left - 1, now)
        self._accept(now, job)

    def _accept(self, now: int, job: Job) -> None:
        job.accepted = now
        self._at(now + job.way_in, self._arrive, job)

    def _give_up(self, now: int, job: Job) -> None:
        job.status = "rate_limited"
        job.last = now
        job.path, job.twin = self.prompts.build(job.session, job.index, now)
        job.input = self.prompts.tokens(job.path)
        self._leave(now, job)

    def _ended(self, now: int, job: Job) -> None:
        """The last token is at the client: think, and ask on."""
        self._leave(now, job)
        if job.index + 1 < len(job.session.turns):
            think = job.session.turns[job.index + 1].think
            self._at(now + think, self._want, (job.session, job.index + 1))

    def _leave(self, now: int, job: Job) -> None:
        if self.service.faults.gate:
            tenant = job.session.traffic.tenant
            waiting = self.gated.get(tenant)
            if waiting:
                self._send(now, waiting.popleft())
            else:
                self.in_flight[tenant] -= 1

    # ---------------------------------------------------------------- servers

    def _arrive(self, now: int, job: Job) -> None:
        job.arrived = now
        job.path, job.twin = self.prompts.build(job.session, job.index, now)
        job.input = self.prompts.tokens(job.path)
        job.left = -1
        faults = self.service.faults
        if faults.thinking_counted:
            job.hold = job.turn.thinking_tokens
        if job.turn.fault < faults.not_streamed + faults.buffered:
            most = job.turn.output_tokens - 1
            whole = job.turn.fault < faults.not_streamed or not faults.hold_tokens
            job.hold = most if whole else min(most, max(job.hold, faults.hold_tokens))
        replica = self._route(now, job)
        job.replica = replica.number
        self._join(now, replica, job)

    def _route(self, now: int, job: Job) -> Replica:
        pool = self.pools[job.pool]
        here = [r for r in pool if r.from_ <= now < r.until] or pool[:1]
        if len(here) == 1:
            return here[0]
        routing = here[0].server.routing
        if routing == "random":
            return here[int(job.turn.routing * len(here))]
        if routing == "round_robin":
            self.turns_taken[job.pool] += 1
            return here[self.turns_taken[job.pool] % len(here)]
        if routing == "session":
            # The highest of one number per replica: when replicas come or go, few sessions move.
            key = job.session.id.encode()
            return max(here, key=lambda r: (zlib.crc32(key, r.salt), r.number))
        idlest = min(r.load() for r in here)
        if routing == "least_load":
            return next(r for r in here if r.load() == idlest)
        able = [r for r in here if r.load() <= idlest + MOST_UNEVEN]
        lengths = self.prompts.lengths
        return max(able, key=lambda r: (r.cache.match(job.path, lengths, now), -r.load()))

    def _join(self, now: int, replica: Replica, job: Job) -> None:
        """Stand in line at a replica; wake it, or cut its decoding short, if that matters."""
        self._note_sums(now, replica, job)
        replica.queue.append(job)
        if not replica.busy:
            server = replica.server
            if server.unload_after_s and now - replica.idle_since > ps(server.unload_after_s):
                self._go_down(now, replica)
            self._next(now, replica)
        elif replica.run and replica.taken < replica.server.slots:
            self._cut(now, replica)

    def _note_sums(self, now: int, replica: Replica, job: Job) -> None:
        repeated, new, cold = replica.sum_repeated, replica.sum_new, replica.sum_cold
        if replica.busy and now > replica.began:
            gone, whole = now - replica.began, replica.ends - replica.began
            repeated += replica.in_repeated * gone // whole
            new += replica.in_new * gone // whole
            cold += replica.in_cold * gone // whole
        job.sum_repeated, job.sum_new, job.sum_cold = repeated, new, cold

    def _cut(self, now: int, replica: Replica) -> None:
        """End a stretch of decode steps at the first boundary from now on."""
        gone = now - replica.began
        first, growth = replica.first_step, replica.growth
        steps = _steps_by(gone, first, growth)
        if steps < replica.run:
            replica.run = steps
            replica.ends = replica.began + _duration(steps, first, growth)
            replica.epoch += 1
            self._at(replica.ends, self._end, (replica, replica.epoch))

    def _go_down(self, now: int, replica: Replica) -> None:
        replica.cache.clear()
        replica.compiled = 0
        replica.down_until = now + ps(replica.server.load_s)

    def _restart(self, now: int, replica: Replica) -> None:
        """Load anew; requests that are being served go on after that."""
        self._go_down(now, replica)
        if replica.busy and replica.run:
            self._cut(now, replica)

    def _release(self, now: int, _: None) -> None:
        self.costs = self.after
        for replica in self.all:
            if replica.busy and replica.run:
                self._cut(now, replica)

    def _begin(
        self, now: int, replica: Replica, repeated: int, new: int, cold: int, whole: int
    ) -> None:
        replica.busy = True
        replica.began, replica.ends = now, now + whole
        replica.in_repeated, replica.in_new, replica.in_cold = repeated, new, cold
        replica.epoch += 1
        self._at(replica.ends, self._end, (replica, replica.epoch))

    def _next(self, now: int, replica: Replica) -> None:
        """Decide what a replica does next."""
        if not replica.queue and not replica.taken:
            replica.busy = False
            replica.idle_since = now
            return
        replica.work = []
        replica.run = 0
        if now < replica.down_until:
            wait = replica.down_until - now
            self._begin(now, replica, 0, 0, wait, wait)
            return
        costs, version = self.costs[replica.pool]
        self._choose(now, replica, version)
        decode = 0
        if replica.running:
            decode = costs.decode + costs.running * replica.running
            decode += costs.context * replica.context
        if not replica.work:
            steps = replica.marks[0][0] - replica.steps
            replica.run = steps
            replica.first_step = decode
            replica.growth = costs.context * replica.running
            self._begin(now, replica, 0, 0, 0, _duration(steps, decode, replica.growth))
            return
        repeated = new = cold = 0
        for job, tokens in replica.work:
            at = job.input - job.left
            cost = costs.prefill(at, tokens)
            if at == job.cached:
                cost += costs.hit * at
            again = min(at + tokens, job.repeated) - at
            saved = costs.repeated(at, again) if again > 0 else 0
            job.own_repeated += saved
            job.own_new += cost - saved
            job.own_overhead += costs.overhead
            repeated += saved
            new += cost - saved
            if job.left == tokens and replica.compiled < replica.server.compile_requests:
                part = 1 - replica.compiled / replica.server.compile_requests
                replica.compiled += 1
                cold += ps(replica.server.compile_s * part)
        whole = costs.overhead + decode + repeated + new + cold
        self._begin(now, replica, repeated, new, cold, whole)

    def _choose(self, now: int, replica: Replica, version: str) -> None:
        """Fill the next step with prefill: who gets how many tokens."""
        server = replica.server
        pending, queue, work = replica.prefilling, replica.queue, replica.work
        if not server.chunk_tokens:
            while not pending and queue and replica.taken < server.slots:
                self._admit(now, replica, version)
            if pending:
                work.append((pending[0], pending[0].left))
            return
        budget = server.chunk_tokens - replica.running
        budget = max(budget, server.chunk_tokens // LEAST_PREFILL_SHARE, 1)
        if server.sharing == "fair":
            while queue and replica.taken < server.slots:
                self._admit(now, replica, version)
            work.extend(_shared_out(pending, budget))
            return
        for job in pending:
            if budget <= 0:
                break
            tokens = min(job.left, budget)
            work.append((job, tokens))
            budget -= tokens
        while budget > 0 and queue and replica.taken < server.slots:
            admitted = self._admit(now, replica, version)
            if admitted is not None:
                tokens = min(admitted.left, budget)
                work.append((admitted, tokens))
                budget -= tokens

    def _admit(self, now: int, replica: Replica, version: str) -> Job | None:
        """Give the first in line a slot; None if it comes to decode only."""
        job = replica.queue.popleft()
        replica.taken += 1
        replica.most_taken = max(replica.most_taken, replica.taken)
        if job.left == 0:
            self._decode(replica, job)
            return None
        lengths = self.prompts.lengths
        most = job.input - LEAST_COMPUTED
        job.repeated = min(self.seen.match(job.twin, lengths, now), most)
        if replica.server.cache:
            block = replica.server.block_tokens
            cached = min(replica.cache.use(job.path, lengths, now), most)
            job.cached = cached // block * block
        job.left = job.input - job.cached
        job.scheduled = now
        job.loading = replica.sum_cold - job.sum_cold
        job.version = version
        job.running = replica.running
        replica.prefilling.append(job)
        return job

    def _end(self, now: int, what: tuple[Replica, int]) -> None:
        """A stretch is over."""
        replica, epoch = what
        if epoch != replica.epoch:
            return
        replica.sum_repeated += replica.in_repeated
        replica.sum_new += replica.in_new
        replica.sum_cold += replica.in_cold
        steps = replica.run or (1 if replica.work and replica.running else 0)
        if steps:
            replica.steps += steps
            replica.context += steps * replica.running
            marks = replica.marks
            while marks and marks[0][0] <= replica.steps:
                _, _, kind, job = heapq.heappop(marks)
                self._mark(now, replica, job, ends=kind == 1)
        for job, tokens in replica.work:
            job.left -= tokens
            if not job.left:
                self._first_token(now, replica, job)
        self._next(now, replica)

    def _first_token(self, now: int, replica: Replica, job: Job) -> None:
        job.first = job.visible = now
        job.behind_repeated = replica.sum_repeated - job.sum_repeated - job.own_repeated
        job.behind_new = replica.sum_new - job.sum_new - job.own_new
        job.cold = replica.sum_cold - job.sum_cold
        replica.prefilling.remove(job)
        lengths = self.prompts.lengths
        if replica.server.cache:
            replica.cache.add(job.path, lengths, now)
        self.seen.add(job.twin, lengths, now)
        if job.turn.output_tokens == 1:
            replica.taken -= 1
            self._last_token(now, job)
        elif replica.decode_to is not None:
            replica.taken -= 1
            self._at(now, self._hand_over, (replica.decode_to, job))
        else:
            self._decode(replica, job)

    def _hand_over(self, now: int, what: tuple[Replica, Job]) -> None:
        replica, job = what
        replica.queue.append(job)
        if not replica.busy:
            self._next(now, replica)
        elif replica.run and replica.taken < replica.server.slots:
            self._cut(now, replica)

    def _decode(self, replica: Replica, job: Job) -> None:
        """From the next step on a token a step."""
        replica.running += 1
        replica.context += job.input + 1
        self.order += 1
        last = replica.steps + job.turn.output_tokens - 1
        heapq.heappush(replica.marks, (last, self.order, 1, job))
        if 0 < job.hold < job.turn.output_tokens - 1:
            self.order += 1
            heapq.heappush(replica.marks, (replica.steps + job.hold, self.order, 0, job))

    def _mark(self, now: int, replica: Replica, job: Job, *, ends: bool) -> None:
        if not ends:
            job.visible = now
            return
        replica.running -= 1
        replica.taken -= 1
        replica.context -= job.input + job.turn.output_tokens
        if job.hold >= job.turn.output_tokens - 1:
            job.visible = now
        self._last_token(now, job)

    def _last_token(self, now: int, job: Job) -> None:
        job.last = now
        done = self.prompts.answer(job.session, job.index)
        if done is not None:
            lengths = self.prompts.lengths
            home = self.pools[job.pool][job.replica]
            if home.server.cache:
                home.cache.add(done[0], lengths, now)
            self.seen.add(done[1], lengths, now)
        self._at(now + job.way_out, self._ended, job)


def _on(extra: Extra, session: Session) -> bool:
    traffic = session.traffic
    return (
        extra.tenant in ("", traffic.tenant)
        and extra.route in ("", traffic.route)
        and extra.model in ("", traffic.model)
    )


def _duration(steps: int, first: int, growth: int) -> int:
    """Of steps whose first takes ``first`` and each other ``growth`` more than the one before."""
    return steps * first + growth * (steps * (steps - 1) // 2)


def _steps_by(gone: int, first: int, growth: int) -> int:
    """The least number of steps (one or more) that take ``gone`` or longer."""
    if growth:
        # Roots of growth/2 * n^2 + (first - growth/2) * n = gone, by whole numbers.
        middle = 2 * first - growth
        steps = (math.isqrt(middle * middle + 8 * growth * gone) - middle) // (2 * growth)
    else:
        steps = gone // first
    steps = max(steps, 1)  # so many take no longer than ``gone``
    while _duration(steps, first, growth) < gone:
        steps += 1
    return steps


def _shared_out(pending: list[Job], budget: int) -> list[tuple[Job, int]]:
    """Equal parts of the budget; what one does not need goes to the others."""
    parts: dict[int, int] = {}
    left = len(pending)
    for at in sorted(range(left), key=lambda n: pending[n].left):
        tokens = min(pending[at].left, max(budget // left, 1), budget)
        parts[at] = tokens
        budget -= tokens
        left -= 1
    return [(job, parts[at]) for at, job in enumerate(pending) if parts[at]]
