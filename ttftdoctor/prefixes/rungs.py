"""The rungs before they are priced: hit tokens per request under one limit after the other.

A limit is given by the user, logged, read off the engine's own counts, or not known; one that is
not known takes nothing, and its rung says how to give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from ttftdoctor.language import mark, tr
from ttftdoctor.measure.rows import Index, Rows
from ttftdoctor.prefixes.kv import KvShape
from ttftdoctor.prefixes.ladder import Step
from ttftdoctor.prefixes.limits import Inferred, threshold
from ttftdoctor.prefixes.records import Limits
from ttftdoctor.stats import Array, or_zero, thin
from ttftdoctor.table import COVERED
from ttftdoctor.units import count, seconds, share

#: Ways to choose a replica, and in words.
POLICIES: Mapping[str, str] = {
    "round_robin": "each replica in turn",
    "random": "any replica",
    "session_affinity": "all turns of a session at one replica, drawn by its id",
    "prefix_affinity": "where most of the prompt was last, but for what most prompts begin with",
    "prefix_affinity_balanced": "the same if half of the prompt was there; else least work",
}
#: What they are called in a sentence.
POLICY_NAMES: Mapping[str, str] = {
    "round_robin": mark("round robin"),
    "random": mark("random"),
    "session_affinity": mark("session affinity"),
    "prefix_affinity": mark("prefix affinity"),
    "prefix_affinity_balanced": mark("prefix affinity balanced"),
}
#: A step in which the engine's counts go must be at least this to be one.
LEAST_STEP = 16
#: ... and so many different counts must agree on it.
FEWEST_COUNTS = 5
#: Part of the requests that could have found the least count and did.
MOSTLY = 0.9


@dataclass(frozen=True)
class Asked:
    """What the user said of the caches, and wants to see."""

    ttl_s: float | None = None
    capacity_tokens: int | None = None
    replicas: int | None = None
    policy: str | None = None
    round_to_tokens: int | None = None
    round_from_tokens: int | None = None
    shape: KvShape | None = None
    ms_per_1k_tokens: float | None = None
    ms_per_1k_basis: str = "given"
    show_text: bool = False
    top: int = 10


@dataclass(frozen=True)
class Walk:
    """The rungs from the ideal down, and the limits they stand for."""

    steps: tuple[Step, ...]
    limits: Limits

    def modelled(self) -> Array:
        """Tokens found by each request under all limits that are known."""
        return next(step.hits for step in self.steps if step.id == "rounding")


@dataclass(frozen=True)
class Limit:
    """One limit, where it comes from, and in words."""

    value: float | None
    basis: str
    says: str


def by_counts(rows: Rows, at: Index, asked: Asked) -> Walk:
    """The rungs where no block is known: what turns repeat at most, and what limits take of it.

    A turn finds what the turn before left, unless it came too late or went to another replica.
    """
    actual = actual_of(rows, at)
    ideal = np.minimum(or_zero(rows.repeated[at]), rows.inputs[at])
    gap = np.where(np.isfinite(rows.gap[at]), rows.gap[at], 0.0)
    seen = None
    if actual is not None and rows.cached_logged:
        some = thin(len(at))
        got = np.minimum(or_zero(actual), ideal)[some]
        seen = threshold(gap[some], got, ideal[some] - got, np.arange(len(some)))
    ttl = lifetime(asked, Inferred(seen, None))
    if ttl.basis == "inferred":
        # The longer a pause, the more of others comes in between.
        says = tr("{limit}; whether entries expire or others need their room, blocks would tell",
                  limit=ttl.says)  # fmt: skip
        ttl = Limit(ttl.value, ttl.basis, says)
    alive = ideal if ttl.value is None else np.where(gap <= ttl.value, ideal, 0.0)
    named = "replica" in rows.scopes and bool(np.isfinite(rows.moved[at]).any())
    stayed = alive
    if named:
        held, rest = (values[at] for values in _at_same_replica(rows))
        near = np.minimum(ideal, held)
        if ttl.value is not None:
            near = np.where(rest <= ttl.value, near, 0.0)
        # Only who came from another replica loses by it; what a first turn found, others left.
        stayed = np.where(rows.moved[at] == 1, near, alive)
    step, least, how_rounded = rounding(asked, actual if rows.cached_logged else None, stayed)
    steps = [
        Step("ideal", ideal, "inferred",
             tr("what the turn before left: its prompt and its answer, an upper bound")),
        Step("expiry", alive, ttl.basis, ttl.says),
        Step("capacity", alive, "unknown",
             tr("what else was cached is not known without blocks")),
        Step("routing", stayed, "logged" if named else "unknown",
             tr("a turn finds what the last turn at its own replica left") if named else
             tr("the log names no replicas")),
    ]  # fmt: skip
    steps += ends(stayed, step, least, how_rounded, actual, rows.cached_logged)
    replicas = len(rows.scopes["replica"].names) if named else 1
    limits = Limits(
        ttl.value, None, replicas, "logged" if named else "none", step, least,
        {s.id: s.says for s in steps},
    )  # fmt: skip
    return Walk(tuple(steps), limits)


def _at_same_replica(rows: Rows) -> tuple[Array, Array]:
    """Tokens that the last turn of the session at the same replica left, and seconds since then."""
    replica = rows.scopes["replica"].codes
    order = np.lexsort((np.arange(rows.n), replica, rows.session))
    same = (rows.session[order][1:] == rows.session[order][:-1]) & (rows.session[order][1:] >= 0)
    same &= replica[order][1:] == replica[order][:-1]
    now, before = order[1:][same], order[:-1][same]
    held, rest = np.zeros(rows.n), np.full(rows.n, np.inf)
    held[now] = or_zero(rows.inputs[before]) + or_zero(rows.outputs[before])
    ended = rows.start[before] + or_zero(rows.e2e[before])
    rest[now] = or_zero(rows.start[now] - ended)
    return held, rest


def actual_of(rows: Rows, at: Index) -> Array | None:
    """Cached tokens per request, where the log (or the timing) tells for most."""
    actual = rows.cached[at]
    return actual if np.isfinite(actual).mean() >= COVERED else None


def lifetime(asked: Asked, seen: Inferred) -> Limit:
    """Seconds that a block lives: as given, as seen, or not known."""
    if asked.ttl_s is not None:
        says = tr("blocks live {time} after they were last used", time=seconds(asked.ttl_s))
        return Limit(asked.ttl_s, "given", says)
    if seen.ttl is not None:
        says = tr(
            "after {time} of rest hardly anything was found: that explains {part} of what was "
            "missed",
            time=seconds(seen.ttl.limit), part=share(seen.ttl.explains),
        )  # fmt: skip
        return Limit(seen.ttl.limit, "inferred", says)
    return Limit(None, "unknown", tr("nothing expires here (--ttl)"))


def room_of(asked: Asked, seen: Inferred) -> Limit:
    """Tokens that the cache of a replica holds: as given, as seen, or not known."""
    if asked.capacity_tokens is not None:
        says = tr("{n} tokens a replica; the least recently used leave first",
                  n=count(asked.capacity_tokens))  # fmt: skip
        return Limit(asked.capacity_tokens, "given", says)
    if seen.capacity is not None:
        says = tr(
            "after {n} tokens of others hardly anything was found: that explains {part} of what "
            "was missed",
            n=count(seen.capacity.limit), part=share(seen.capacity.explains),
        )  # fmt: skip
        return Limit(seen.capacity.limit, "inferred", says)
    return Limit(None, "unknown", tr("the cache is endless here (--cache-tokens)"))


def rounding(asked: Asked, counts: Array | None, below: Array) -> tuple[int | None, int, Limit]:
    """Tokens that a hit is a multiple of, tokens that it has at least, and in words.

    ``below`` is what the limits above leave of each request.
    """
    given = asked.round_to_tokens is not None or asked.round_from_tokens is not None
    step, least, basis = asked.round_to_tokens, asked.round_from_tokens or 0, "given"
    if not given:
        step, least = (None, 0) if counts is None else _steps_of(counts, below)
        basis = "unknown" if step is None else "inferred"
    if basis == "unknown":
        return None, 0, Limit(None, basis, tr("whole blocks of the log (--block-tokens)"))
    if least > (step or 1):
        says = tr("hits are multiples of {n} tokens, and at least {least}",
                  n=step or 1, least=count(least))  # fmt: skip
    else:
        says = tr("hits are multiples of {n} tokens", n=step or 1)
    if not given:
        says = tr("{hits}, as all counts are", hits=says)
    return step, least, Limit(step, basis, says)


def _steps_of(counts: Array, below: Array) -> tuple[int | None, int]:
    """The number that all counts of cached tokens are multiples of, and the least count.

    There is a least one only if requests that could have found fewer found nothing, and those that
    could have found as many mostly did.
    """
    found = np.unique(counts[np.isfinite(counts) & (counts > 0)].astype(np.int64))
    if len(found) < FEWEST_COUNTS:
        return None, 0
    step = reduce(gcd, (int(c) for c in found[:1000]))
    if step < LEAST_STEP or np.any(found % step):
        return None, 0
    least = int(found[0])
    known = np.isfinite(counts)
    fewer = known & (below >= step) & (below < least)
    others = known & (below >= least)
    held = (
        fewer.sum() >= FEWEST_COUNTS
        and (counts[fewer] == 0).all()
        and (counts[others] > 0).mean() >= MOSTLY
    )
    return step, least if held else 0


def ends(
    below: Array, step: int | None, least: int, how: Limit, actual: Array | None, logged: bool
) -> list[Step]:
    """The last two rungs: what rounding leaves, and what was really found."""
    rounded = below if step is None else np.floor(below / step) * step
    rounded = np.where(rounded >= least, rounded, 0.0)
    out = [Step("rounding", rounded, how.basis, how.says)]
    if actual is None:
        return out
    known = np.isfinite(actual)
    says = tr("as the log counts") if logged else tr("as the timing of the turns says")
    if not known.all():
        says = tr("{counted}; {n} requests without a count are taken as modelled",
                  counted=says, n=count(int((~known).sum())))  # fmt: skip
    out.append(
        Step("actual", np.where(known, actual, rounded), "logged" if logged else "inferred", says)
    )
    return out


def keys_of(rows: Rows, at: Index) -> Mapping[str, tuple[Index, tuple[str, ...]]]:
    """The columns by which the ladder is split: a number per request and the names."""
    keys: dict[str, tuple[Index, tuple[str, ...]]] = {
        column: (rows.scopes[column].codes[at], rows.scopes[column].names)
        for column in ("tenant", "route", "model", "replica")
        if column in rows.scopes
    }
    if rows.session_grade != "none":
        turn = rows.turn[at]
        codes = np.where(np.isfinite(turn), np.minimum(or_zero(turn), LATE_TURN), -1.0)
        names = (*(str(n) for n in range(LATE_TURN)), f"{LATE_TURN} and later")
        keys["turn"] = codes.astype(np.int64), names
    return keys


#: Turns from here on are one group.
LATE_TURN = 12
