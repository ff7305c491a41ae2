"""What caches behind a router keep, by the way in which it chooses a replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ttftdoctor.language import tr
from ttftdoctor.measure import kernels
from ttftdoctor.measure.caches import Cached, caches
from ttftdoctor.measure.trie import Index, Trie
from ttftdoctor.prefixes.records import Routed, Routing
from ttftdoctor.prefixes.rungs import POLICIES
from ttftdoctor.units import share

#: Numbers of replicas that are tried where the log does not say how many there are.
REPLICAS = (2, 4, 8, 16)
#: A prompt of which less was there before goes to the replica with the least work.
LEAST_MATCH = 0.5
SEED = 20260310


def assign(policy: str, trie: Trie, replicas: int, session: Index) -> Index:
    """A replica for each request; ``session`` is -1 where none is known (each its own then)."""
    if policy == "round_robin":
        return np.arange(trie.n) % replicas
    if policy == "random":
        return np.random.default_rng(SEED).integers(0, replicas, trie.n)
    if policy == "session_affinity":
        alone = session.max(initial=-1) + 1 + np.arange(trie.n)
        key = np.where(session >= 0, session, alone)
        return np.random.default_rng(SEED).integers(0, replicas, int(key.max(initial=0)) + 1)[key]
    least = LEAST_MATCH if policy == "prefix_affinity_balanced" else 0.0
    found: Index = kernels.nearest(
        trie.offsets,
        trie.nodes,
        trie.tokens,
        trie.inputs,
        trie.common(1 / replicas),
        replicas,
        least,
    )
    return found


def routing(
    trie: Trie,
    one: Cached,
    session: Index,
    logged: Index | None,
    replicas: tuple[int, ...],
) -> Routing | None:
    """Hit share by policy and number of replicas, caches endless; None where nothing is reused.

    Parameters
    ----------
    one
        One cache for all requests: the ideal.
    logged
        The replica (a number) of each request in the log; None where it names none.
    """
    ideal = float(one.hits().sum())
    if ideal <= 0:
        return None

    def routed(policy: str, count: int, where: Index) -> Routed:
        hits = caches(trie, where).hits()
        left = np.bincount(where, weights=trie.inputs - hits, minlength=count)
        return Routed(
            policy, count, trie.share(hits), float(hits.sum()) / ideal,
            float(left.max() / max(left.sum(), 1.0)),
        )  # fmt: skip

    def one_of(task: tuple[str, int]) -> Routed:
        policy, count = task
        return routed(policy, count, assign(policy, trie, count, session))

    has_sessions = bool((session >= 0).any())
    tasks = [
        (policy, count)
        for policy in POLICIES
        for count in replicas
        if policy != "session_affinity" or has_sessions
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = tuple(pool.map(one_of, tasks))
    real = None
    if logged is not None:
        count = int(logged.max()) + 1
        real = routed("logged", count, logged)
    return Routing(found, real, _said(found, real))


def _said(found: tuple[Routed, ...], real: Routed | None) -> str:
    by = {(r.policy, r.replicas): r for r in found}
    most = max(r.replicas for r in found)
    robin, near = by["round_robin", most], by["prefix_affinity", most]
    text = tr(
        "over {n} replicas round robin would keep {robin} of what can be reused, going where the "
        "prefix is {near}",
        n=most, robin=share(robin.of_ideal), near=share(near.of_ideal),
    )  # fmt: skip
    if real is not None:
        text = tr(
            "the log's {n} replicas kept {part} of what can be reused with endless caches; "
            "{others}",
            n=real.replicas, part=share(real.of_ideal), others=text,
        )  # fmt: skip
    return text
