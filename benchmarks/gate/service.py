"""What is served: two services, the traffic that they meet, and what is changed in either.

The service stays the same from run to run and only who asks what differs by seed. The same seed
under a change of the server meets the same people with the same words (common random numbers), so
that what a change really does is known request by request.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

#: Two replicas, a tenth of their time in prefill, long chats that repeat most of what they send.
CHAT = """
title = "chat"
[causes]
primary = "healthy"
[[server]]
replicas = 2
slots = 64
ms_per_1k = 100
ms_per_1k_per_1k = 0.8
decode_ms = 18
[[traffic]]
sessions = {chat}
turns = {{ median = {turns}, sigma = 0.4, min = 2, max = 30 }}
system_tokens = {system}
user_tokens = {{ median = {user}, sigma = 0.8, min = 5, max = 5000 }}
document_tokens = {{ median = {document}, sigma = 0.6, min = 100, max = 25000 }}
document_first = {first}
output_tokens = {{ median = 200, sigma = 0.6, min = 5, max = 1500 }}
think_s = {{ median = 6, sigma = 0.8, min = 0.5, max = 120 }}
[gateway]
ms = 40
jitter_ms = 6
"""

#: One replica, a third of its time in prefill: chats and single questions on two routes.
BUSY = """
title = "busy"
[causes]
primary = "healthy"
[[server]]
replicas = 1
slots = 64
ms_per_1k = 60
ms_per_1k_per_1k = 0.5
decode_ms = 12
decode_ms_per_running = 0.1
[[traffic]]
sessions = {chat}
turns = {{ median = {turns}, sigma = 0.4, min = 2, max = 30 }}
system_tokens = {system}
user_tokens = {{ median = {user}, sigma = 0.8, min = 5, max = 5000 }}
document_tokens = {{ median = {document}, sigma = 0.6, min = 100, max = 25000 }}
document_first = {first}
output_tokens = {{ median = 150, sigma = 0.6, min = 5, max = 1500 }}
think_s = {{ median = 6, sigma = 0.8, min = 0.5, max = 120 }}
[[traffic]]
name = "ask"
route = "/v1/ask"
tenant = "initech"
sessions = {ask}
system_tokens = {ask_system}
user_tokens = {{ median = {question}, sigma = 0.7, min = 20, max = 15000 }}
output_tokens = {{ median = 100, sigma = 0.6, min = 1, max = 1200 }}
[gateway]
ms = 30
jitter_ms = 8
"""


@dataclass(frozen=True)
class Service:
    """A service: its scenario, what its traffic usually is, and requests a second.

    ``asks`` is the share of the requests that are single questions. ``keep_s`` and ``slots`` (by
    size: short runs end before all slots are taken) are found by trying, so that the cache loses
    about 10 points and queueing grows by about 50 ms; what they really do is measured and printed.
    """

    text: str
    usual: Mapping[str, float]
    per_s: float
    asks: float
    keep_s: float
    slots: Mapping[int, int]


SERVICES: dict[str, Service] = {
    "chat": Service(
        CHAT,
        {"turns": 6, "system": 800, "user": 150, "document": 2000, "first": 0.5},
        per_s=4.0, asks=0.0, keep_s=14.0, slots={500: 14, 2000: 17, 10_000: 18},
    ),
    "busy": Service(
        BUSY,
        {"turns": 5, "system": 600, "user": 200, "document": 2500, "first": 0.3,
         "ask_system": 400, "question": 900},
        per_s=4.5, asks=0.4, keep_s=11.0, slots={500: 16, 2000: 20, 10_000: 20},
    ),
}  # fmt: skip

LENGTHS = ("system", "user", "document", "ask_system", "question")


@dataclass(frozen=True)
class Condition:
    """What is changed on the current side.

    ``kind``: ``same`` (nothing is), ``mix`` (only the traffic), ``worse`` (the server). ``target``
    is the metric that ought to see it. ``times`` and ``plus`` change numbers of the server and the
    gateway; ``uneven`` is how far runs of one service differ in speed, on both sides.
    """

    title: str
    kind: str
    target: str = ""
    lengths: float = 1.0
    turns: float = 1.0
    rate: float = 1.0
    others: bool = False
    times: Mapping[str, float] = field(default_factory=dict)
    plus_ms: float = 0.0
    forgets: bool = False
    few_slots: bool = False
    errors: float = 0.002
    uneven: float = 0.0


_PREFILL = ("ms_per_1k", "ms_per_1k_per_1k", "hit_ms_per_1k")
_DECODE = ("decode_ms", "decode_ms_per_running", "decode_ms_per_1k_context")

CONDITIONS: dict[str, Condition] = {
    "same": Condition("nothing", "same"),
    "uneven": Condition("nothing; runs of one service differ by 2 % in speed", "same", uneven=0.02),
    "longer": Condition("input lengths +25 %", "mix", lengths=1.25),
    "later": Condition("half again as many turns a session", "mix", turns=1.5),
    "half": Condition("half the arrivals", "mix", rate=0.5),
    "more": Condition("1.3 times the arrivals", "mix", rate=1.3),
    "others": Condition("other shares of the kinds of prompts", "mix", others=True),
    "slope": Condition("prefill per token +10 %", "worse", "prefill_slope",
                       times=dict.fromkeys(_PREFILL, 1.1)),
    "fixed": Condition("constant part +20 ms", "worse", "prefill_fixed", plus_ms=20.0),
    "hits": Condition("cache keeps less: hit share -10 points", "worse", "hit_share",
                      forgets=True),
    "decode": Condition("decode per token +5 %", "worse", "decode_per_token",
                        times=dict.fromkeys(_DECODE, 1.05)),
    "slots": Condition("fewer slots: +50 ms of queueing", "worse", "queue", few_slots=True),
    "errors": Condition("2 % of the requests fail", "worse", "error_rate", errors=0.022),
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    """One run: its sketch, and what really happened, by metric.

    ``ttft_s`` are the TTFTs of all requests in order; ``levels`` means and shares; ``line`` what
    one more token and no token at all cost by the parameters of the server.
    """

    seed: int
    requests: int
    sketch: Any
    ttft_s: np.ndarray
    levels: dict[str, float]
    line: dict[str, float]


def serve(service: str, condition: str, requests: int, seed: int) -> Served:
    """Serve one run, write its log, and sum it up as the gate does."""
    from ttftdoctor import simulator
    from ttftdoctor.gate.sketch import sketch_of
    from ttftdoctor.remedies import Settings
    from ttftdoctor.run import read
    from ttftdoctor.study import study

    run = _run(SERVICES[service], CONDITIONS[condition], service, requests, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        simulator.write_log(run, path, "full")
        log = read(str(path))
        sketch = sketch_of(log, *study(log, "LOG", Settings()))
    server = run.plan.service.server[0]
    _, _, _, context = sketch.lines[0].points if sketch.lines else (0, 0, 0, 0)
    return Served(
        seed, len(run.jobs), sketch, *_truth(run.jobs), _line(server, run, sketch, context)
    )


def _run(service: Service, condition: Condition, name: str, requests: int, seed: int) -> Any:
    from ttftdoctor import simulator
    from ttftdoctor.simulator.scenario import stream
    from ttftdoctor.simulator.server import Loop
    from ttftdoctor.simulator.truth import Run
    from ttftdoctor.simulator.workload import PS, plan

    usual = dict(service.usual)
    for key in LENGTHS:
        if key in usual:
            usual[key] = round(usual[key] * condition.lengths)
    usual["turns"] *= condition.turns
    asks = service.asks
    if condition.others:
        usual["first"] = 0.8
        asks = 0.65 if asks else 0.0
    wanted = {"chat": requests - round(asks * requests), "ask": round(asks * requests)}
    text = service.text.format(
        chat=math.ceil(wanted["chat"] / 3) + 2, ask=max(wanted["ask"], 1), **usual
    )
    scenario = simulator.parse(text, name)
    drawn = plan(scenario, seed)
    span = requests / (service.per_s * condition.rate) * PS
    kept, left = [], dict(wanted)
    for session in drawn.sessions:
        kind = "ask" if session.traffic.name == "ask" else "chat"
        if left[kind] > 0:
            turns = session.turns[: left[kind]]
            left[kind] -= len(turns)
            start = round(session.start / drawn.end * span)
            kept.append(replace(session, start=start, turns=turns))
    luck = stream("uneven", name, seed)
    factor = {which: 1 + condition.uneven * _normal(luck) for which in ("prefill", "decode")}
    servers = tuple(
        replace(
            server,
            **{
                key: getattr(server, key)
                * condition.times.get(key, 1.0)
                * factor["prefill" if key in _PREFILL else "decode"]
                for key in (*_PREFILL, *_DECODE)
            },
            ttl_s=service.keep_s if condition.forgets else 0.0,
            slots=service.slots[requests] if condition.few_slots else server.slots,
        )
        for server in drawn.service.server
    )
    gateway = drawn.service.gateway
    whole = replace(
        drawn.service, server=servers, gateway=replace(gateway, ms=gateway.ms + condition.plus_ms)
    )
    planned = replace(drawn, service=whole, sessions=tuple(kept), end=round(span))
    loop = Loop(planned)
    jobs = tuple(loop.serve())
    failing = stream("failing", name, seed)
    for job in jobs:
        if failing.random() < condition.errors:
            job.status = "error"
    return Run(scenario, seed, None, planned, jobs, tuple(loop.prompts.lengths), {})


def _normal(rng: Any) -> float:
    return math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(math.tau * rng.random())


def _truth(jobs: Sequence[Any]) -> tuple[np.ndarray, dict[str, float]]:
    """TTFT of each request that was answered, and the level of all else."""
    from ttftdoctor.simulator.truth import ttft_ps
    from ttftdoctor.simulator.workload import PS

    ok = [job for job in jobs if job.status == "ok"]
    ttft = np.array([ttft_ps(job) for job in ok]) / PS
    pace = [
        (job.last - job.first) / (job.turn.output_tokens - 1) / PS * 1e3
        for job in ok
        if job.turn.output_tokens > 15
    ]
    tokens = sum(job.input for job in ok)
    return ttft.astype(np.float32), {
        "decode_per_token": float(np.mean(pace)),
        "hit_share": sum(job.cached for job in ok) / tokens,
        "recomputed_share": sum(max(job.repeated - job.cached, 0) for job in ok) / tokens,
        "queue": float(np.mean([job.scheduled - job.arrived for job in ok])) / PS,
        "error_rate": 1 - len(ok) / len(jobs),
        "abort_rate": 0.0,
    }


def _line(server: Any, run: Any, sketch: Any, context: float) -> dict[str, float]:
    """Both parts of the prefill line by the parameters, at the work of this run."""
    gateway = run.plan.service.gateway
    low, _, high, _ = sketch.lines[0].points if sketch.lines else (0, 0, 0, 0)
    return {
        "prefill_slope": server.ms_per_1k + server.hit_ms_per_1k
        + server.ms_per_1k_per_1k * (context + (low + high) / 2),
        "prefill_fixed": (gateway.ms + gateway.jitter_ms + server.step_overhead_ms
                          + server.hit_ms_per_1k * context) / 1e3,
    }  # fmt: skip
