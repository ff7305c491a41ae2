"""The rungs of prompts whose blocks are known: every limit served, none estimated."""

from __future__ import annotations

from ttftdoctor.language import tr
from ttftdoctor.measure.caches import Cached, caches
from ttftdoctor.measure.rows import Index, Rows
from ttftdoctor.measure.trie import Trie
from ttftdoctor.prefixes.ladder import Step
from ttftdoctor.prefixes.limits import Inferred, infer
from ttftdoctor.prefixes.records import Limits
from ttftdoctor.prefixes.routing import assign
from ttftdoctor.prefixes.rungs import (
    POLICY_NAMES,
    Asked,
    Walk,
    actual_of,
    ends,
    lifetime,
    room_of,
    rounding,
)


def by_content(
    rows: Rows,
    at: Index,
    trie: Trie,
    one: Cached,
    replica: Index | None,
    asked: Asked,
    bytes_per_token: float | None = None,
) -> Walk:
    """The rungs of prompts whose blocks are known.

    Parameters
    ----------
    at
        The rows that the tree was made of.
    one
        One cache for all requests.
    replica
        The logged replica of each, as a number; None where the log names none.
    bytes_per_token
        The measure by which text was cut into blocks; None where blocks or tokens are logged.
    """
    actual = actual_of(rows, at)
    where, how, count = replica, "logged", 1 if replica is None else int(replica.max()) + 1
    if replica is None and asked.replicas is not None:
        how, count = asked.policy or "round_robin", asked.replicas
        where = assign(how, trie, count, rows.session[at])
    apart = one if where is None else caches(trie, where)
    seen = Inferred(None, None)
    if actual is not None and rows.cached_logged:
        seen = infer(apart, actual)
    ttl, room = lifetime(asked, seen), room_of(asked, seen)
    size = None if room.value is None else int(room.value)
    below = apart.hits(ttl.value, size).astype(float)
    step, least, how_rounded = rounding(asked, actual if rows.cached_logged else None, below)
    if where is None:
        routed = tr("the log names no replicas (--replicas)")
    else:
        routed = tr("{n} replicas, each with a cache of its own", n=count)
        if how != "logged":
            policy = tr(POLICY_NAMES.get(how, how.replace("_", " ")))
            routed = tr("{replicas}, {policy}", replicas=routed, policy=policy)
    ideal = tr("one endless cache for all requests, empty at the start")
    if bytes_per_token is not None:
        ideal = tr("{cache}; text is cut into blocks at {n} bytes a token",
                   cache=ideal, n=format(bytes_per_token, ".2f"))  # fmt: skip
    steps = [
        Step("ideal", one.hits().astype(float),
             "exact" if bytes_per_token is None else "inferred", ideal),
        Step("expiry", one.hits(ttl.value).astype(float), ttl.basis, ttl.says),
        Step("capacity", one.hits(ttl.value, None if size is None else size * count).astype(float),
             room.basis, room.says),
        Step("routing", below, "unknown" if where is None else
             "logged" if how == "logged" else "given", routed),
    ]  # fmt: skip
    steps += ends(below, step, least, how_rounded, actual, rows.cached_logged)
    limits = Limits(
        ttl.value, size, count, "none" if where is None else how, step, least,
        {s.id: s.says for s in steps},
    )  # fmt: skip
    return Walk(tuple(steps), limits)
