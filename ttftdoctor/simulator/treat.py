"""Remedies, carried out: a plan with one of them in place, same people, same words, same luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ttftdoctor.errors import UsageError
from ttftdoctor.simulator.scenario import Server
from ttftdoctor.simulator.workload import Plan

#: Tokens that ``history_compaction`` cuts inputs of later turns to, unless told otherwise.
COMPACT_TO = 8000
#: Token budget of a step where chunked prefill is switched on.
CHUNK_TOKENS = 2048


def _servers(plan: Plan, change: Callable[[Server], Server]) -> Plan:
    servers = tuple(change(server) for server in plan.service.server)
    return replace(plan, service=replace(plan.service, server=servers))


def _prefix_cache(plan: Plan) -> Plan:
    """Every server keeps what it computed, for as long and as much as it takes."""
    plan = _servers(plan, lambda s: replace(s, cache=True))
    return _more_cache(plan)


def _more_cache(plan: Plan) -> Plan:
    """No entry is lost for want of room or by expiry; a server without a cache gets none."""
    plan = _servers(plan, lambda s: replace(s, ttl_s=0.0, cache_share=0.0, cache_tokens=0))
    return replace(plan, capacity=tuple(0 for _ in plan.capacity))


def _stable_prefix(plan: Plan) -> Plan:
    """What changed in the head is still sent, but stays the same from turn to turn."""
    kinds = tuple(
        replace(t, changing_every=10**9, changing_every_s=0.0) for t in plan.service.traffic
    )
    sessions = tuple(replace(s, traffic=kinds[s.kind]) for s in plan.sessions)
    return replace(plan, service=replace(plan.service, traffic=kinds), sessions=sessions)


def _session_affinity(plan: Plan) -> Plan:
    return _servers(plan, lambda s: replace(s, routing="session"))


def _history_compaction(plan: Plan) -> Plan:
    """Later turns are cut to ``COMPACT_TO`` tokens once they exceed it by a quarter."""
    return replace(plan, compact_input=COMPACT_TO)


def _chunked_prefill(plan: Plan) -> Plan:
    """Steps have a budget, and all prompts in the batch get equal parts of it."""
    return _servers(
        plan,
        lambda s: replace(s, chunk_tokens=s.chunk_tokens or CHUNK_TOKENS, sharing="fair"),
    )


def _disaggregated_prefill(plan: Plan) -> Plan:
    """As many replicas as before prefill; as many others decode."""
    return replace(plan, disaggregated=True)


def _double_capacity(plan: Plan) -> Plan:
    """Twice the replicas, each like the ones there are."""

    def twice(server: Server) -> Server:
        starts = tuple(replace(s, replica=s.replica + server.replicas) for s in server.start)
        again = tuple(replace(s, replica=s.replica + server.replicas) for s in server.restart)
        return replace(
            server,
            replicas=2 * server.replicas,
            start=(*server.start, *starts),
            restart=(*server.restart, *again),
        )

    return _servers(plan, twice)


def _more_seqs(plan: Plan) -> Plan:
    return _servers(plan, lambda s: replace(s, slots=2 * s.slots))


def _shed_peak(plan: Plan) -> Plan:
    """What the peak has beyond the usual rate of new sessions begins before or after it."""
    load = plan.service.load
    if load.peak_factor <= 1:
        return plan
    first, last = load.peak_from * plan.end, load.peak_to * plan.end
    excess = 1 - 1 / load.peak_factor
    rest = plan.end - (last - first)
    if rest <= 0:
        return plan
    sessions = []
    for session in plan.sessions:
        start = session.start
        if session.traffic.peak and first <= start < last and session.spare < excess:
            moved = round(session.spare / excess * rest)
            start = moved if moved < first else moved + round(last - first)
        sessions.append(replace(session, start=start))
    return replace(plan, sessions=tuple(sessions))


def _faster_gateway(plan: Plan) -> Plan:
    """The slow way costs what the usual one does; where there is one way, it costs nothing."""
    gateway = plan.service.gateway
    if gateway.extra:
        gateway = replace(gateway, extra=())
    else:
        gateway = replace(gateway, ms=0.0, jitter_ms=0.0)
    return replace(plan, service=replace(plan.service, gateway=gateway))


def _warm_pool(plan: Plan) -> Plan:
    """Nobody meets a server that is loading; a restart still empties its cache."""
    return _servers(
        plan,
        lambda s: replace(s, load_s=0.0, unload_after_s=0.0, compile_requests=0, compile_s=0.0),
    )


def _rollback(plan: Plan) -> Plan:
    release = replace(plan.service.release, factor=1.0, decode_factor=1.0)
    return replace(plan, service=replace(plan.service, release=release))


def _backoff_fix(plan: Plan) -> Plan:
    """Clients wait just as long as a limit says; upstreams that fail are not asked."""
    return replace(plan, mended=True)


TREATMENTS: dict[str, Callable[[Plan], Plan]] = {
    "prefix_cache": _prefix_cache,
    "more_cache": _more_cache,
    "stable_prefix": _stable_prefix,
    "session_affinity": _session_affinity,
    "history_compaction": _history_compaction,
    "chunked_prefill": _chunked_prefill,
    "disaggregated_prefill": _disaggregated_prefill,
    "double_capacity": _double_capacity,
    "more_seqs": _more_seqs,
    "shed_peak": _shed_peak,
    "faster_gateway": _faster_gateway,
    "warm_pool": _warm_pool,
    "rollback": _rollback,
    "backoff_fix": _backoff_fix,
}


def treat(plan: Plan, treatment: str | None) -> Plan:
    """The plan with a remedy, or several joined by ``+``.

    Raises
    ------
    UsageError
        If there is no such remedy.
    """
    for name in (treatment or "").split("+"):
        if not name:
            continue
        if name not in TREATMENTS:
            raise UsageError(f"no remedy {name!r}", available=", ".join(TREATMENTS))
        plan = TREATMENTS[name](plan)
    return plan
