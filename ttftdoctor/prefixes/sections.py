"""The prefix findings as sections, tables and sentences that every form of a report shares.

Cells and sentences are clean (nothing from a log in them is invisible or a control character) but
not escaped for any form.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ttftdoctor.diagnosis import Input
from ttftdoctor.language import mark, spoken, tr, tr_n
from ttftdoctor.prefixes.records import (
    Ancestry,
    BreakerRecord,
    Capacity,
    Expiry,
    Group,
    Ladder,
    Leaders,
    Prefix,
    PrefixFindings,
    Reconciled,
    Routing,
    Rung,
    Size,
)
from ttftdoctor.prefixes.words import column_of, kind_of, section_of, value_of
from ttftdoctor.report import Severity, Table, clean, money, table
from ttftdoctor.units import count, figure, seconds, share, tokens

#: What the bases of a rung are called.
BASIS = {
    "exact": mark("counted"),
    "logged": mark("logged"),
    "given": mark("given"),
    "inferred": mark("inferred"),
    "unknown": mark("not known"),
}
#: A part of the prompt tokens from which on their loss is bad, and worth a warning.
BAD, WARN = 0.10, 0.02
#: Rows of a table of sizes, and of one group of requests.
SIZES, GROUPS = 9, 8
#: What rows are split by, in the order in which that is shown.
SPLITS = ("tenant", "route", "turn", "model", "replica")

_LIMITS = {
    "expiry": mark("expiry"),
    "capacity": mark("capacity"),
    "routing": mark("routing"),
    "rounding": mark("rounding to blocks"),
}
_POLICIES = {
    "round_robin": mark("round robin"),
    "random": mark("random"),
    "session_affinity": mark("session affinity"),
    "prefix_affinity": mark("prefix affinity"),
    "prefix_affinity_balanced": mark("prefix affinity, balanced"),
    "logged": mark("as logged"),
}
#: What follows the name of an owner: what it does there, or where.
_OF_OWNER = re.compile("[:：].", re.DOTALL)
_OWNER = re.compile(r":|：| \(|（")
_RUNGS = {
    "ideal": mark("ideal"),
    "expiry": mark("expiry"),
    "capacity": mark("capacity"),
    "routing": mark("routing"),
    "rounding": mark("rounding"),
    "actual": mark("actual"),
}
_HABITS = {
    "unique": mark("unique"),
    "thrashing": mark("thrashing"),
    "once": mark("once"),
}
_DEFINITIONS = {
    "token_share": mark("token share"),
    "block_share": mark("block share"),
    "mean_token_ratio": mark("mean token ratio"),
    "mean_block_ratio": mark("mean block ratio"),
    "second_half_token_share": mark("second half token share"),
    "second_half_block_share": mark("second half block share"),
}


@dataclass(frozen=True)
class Section:
    """A heading with a table, or sentences, or both; at most ``limit`` rows are shown.

    ``first``: of those that are never folded away.
    """

    title: str
    table: Table | None = None
    said: tuple[str, ...] = ()
    limit: int = 100
    first: bool = False


# --- words ----------------------------------------------------------------------------------------


def lost(found: PrefixFindings) -> float | None:
    """Part of the prompt tokens that is lost between the first rung and the last known one.

    None where no limit is known: then nothing tells what is lost.
    """
    ladder = found.ladder  # breakers are not counted: they lie above its first rung
    if ladder is None or all(rung.basis == "unknown" for rung in ladder.rungs[1:]):
        return None
    return ladder.rungs[0].share - ladder.rungs[-1].share


def broken_tokens(found: PrefixFindings) -> int:
    """What prompts would share as well if nothing broke them."""
    ideal = found.ladder.rungs[0].hit_tokens if found.ladder is not None else 0
    return min(sum(b.tokens_lost for b in found.breakers), max(0, found.input_tokens - ideal))


def shown(found: PrefixFindings) -> Ladder | None:
    """The ladder as it is drawn: where prompts break, with a rung above what they do share."""
    ladder, lost_ = found.ladder, broken_tokens(found)
    if ladder is None or not lost_:
        return ladder
    ideal, *rest = ladder.rungs
    whole = max(found.input_tokens, 1)
    top = dataclasses.replace(
        ideal,
        title=tr("could be shared"),
        basis="inferred",
        says=tr("what prompts would share if nothing broke their beginnings"),
        hit_tokens=ideal.hit_tokens + lost_,
        share=(ideal.hit_tokens + lost_) / whole,
    )
    spent = [b.seconds_lost for b in found.breakers if b.seconds_lost is not None]
    paid = [b.money_lost for b in found.breakers if b.money_lost is not None]
    first = dataclasses.replace(
        ideal,
        lost_tokens=lost_,
        lost_share=lost_ / whole,
        lost_seconds=sum(spent) if spent else None,
        lost_money=sum(paid) if paid else None,
    )
    return dataclasses.replace(ladder, rungs=(top, first, *rest))


def badge(found: PrefixFindings) -> tuple[str, Severity]:
    """The answer in two words, and how it is coloured."""
    if found.ladder is None:
        return tr("CANNOT TELL"), "unknown"
    broken = broken_tokens(found) / max(found.input_tokens, 1)
    if broken >= BAD and broken > (lost(found) or 0.0):
        return tr("BROKEN {part}", part=share(broken)), "bad"
    if found.ladder.rungs[0].hit_tokens == 0:
        return tr("NOTHING SHARED"), "unknown"
    part = lost(found)
    if part is None:
        return tr("UP TO {part}", part=share(found.ladder.rungs[0].share)), "unknown"
    if part < WARN:
        return tr("KEPT"), "good"
    return tr("LOST {part}", part=share(part)), "bad" if part >= BAD else "warn"


def headline(found: PrefixFindings) -> str:
    """The headline as a sentence."""
    return _sentence(clean(found.headline))


def who(found: PrefixFindings) -> str:
    """What was looked at: requests, prompt tokens, size of a block."""
    n, seen = found.requests, found.looked_at
    parts = [
        tr_n("{n} request", "{n} requests", n, n=count(n)) if seen == n
        else tr_n("{seen} of {n} request", "{seen} of {n} requests", n, seen=count(seen),
                  n=count(n)),
        tr("{n} prompt tokens", n=tokens(found.input_tokens)),
    ]  # fmt: skip
    if found.block_tokens is not None:
        parts.append(tr("blocks of {n}", n=count(found.block_tokens)))
    return " · ".join(parts)


def owner(rung: Rung) -> str:
    """Who can do something about a rung, in short."""
    if rung.id == "actual" and _OF_OWNER.search(rung.owner):
        return clean(rung.owner, 60)
    return clean(_OWNER.split(rung.owner, maxsplit=1)[0], 60)


def points(rung: Rung) -> str:
    """What a rung takes, in points of the prompt tokens: ``−23.5``; what it gives back: ``+0.1``.

    A dash where nothing is known, or nothing could be taken.
    """
    if _takes_nothing(rung):
        return "-"
    value = 100 * rung.lost_share
    if abs(value) < 0.05:
        return "0"
    return f"−{value:.1f}" if value > 0 else f"+{-value:.1f}"


def basis_of(rung: Rung, other: str = "-") -> str:
    """What the basis of a rung is called, or something else."""
    return tr(BASIS[rung.basis]) if rung.basis in BASIS else other


def _takes_nothing(rung: Rung) -> bool:
    """Whether it is the top of the ladder, or its limit is not known."""
    return rung.basis == "unknown" or (rung.id == "ideal" and rung.lost_tokens == 0)


def loss_cells(rung: Rung) -> tuple[str, str | None, str | None]:
    """Tokens, seconds and money that a rung takes; with a plus what it gives back."""
    if _takes_nothing(rung):
        return "-", "-", "-"
    return (
        _back(tokens(rung.lost_tokens)),
        None if rung.lost_seconds is None else _back(seconds(rung.lost_seconds)),
        None if rung.lost_money is None else _back(money(rung.lost_money)),
    )


def bar(rung: Rung, before: Rung | None, top: float, room: int) -> tuple[int, int]:
    """How many of ``room`` cells a rung fills, and how many more the one before it did.

    Parameters
    ----------
    top
        The share that fills all cells.
    """
    if top <= 0 or room <= 0:
        return 0, 0
    ends = [round(room * max(0.0, r.share) / top) for r in (rung, before or rung)]
    full = max(ends[0], 1) if rung.share > 0 else 0
    return full, max(0, ends[1] - full)


def limit_rows(ladder: Ladder) -> list[tuple[str, str, str, str]]:
    """Rung, basis, where it comes from, and who can act: one row a rung."""
    return [
        (
            clean(rung.title, 40),
            basis_of(rung, clean(rung.basis, 20)),
            clean(rung.says, 400),
            owner(rung),
        )
        for rung in ladder.rungs
    ]


def basis_sentences(ladder: Ladder) -> list[str]:
    """Where seconds and money come from."""
    out = []
    if ladder.seconds_basis:
        basis = _lower(clean(ladder.seconds_basis, 300))
        out.append(tr("Seconds are of prefill, by {basis}.", basis=basis))
    if ladder.money_basis:
        basis = clean(ladder.money_basis, 300)
        out.append(
            tr("Money is in {currency}, by {basis}.",
               currency=clean(ladder.currency, 40), basis=basis) if ladder.currency
            else tr("Money is in {basis}.", basis=basis)
        )  # fmt: skip
    return out


def currency(ladder: Ladder) -> str:
    """The heading of a column of money."""
    return clean(ladder.currency or tr("money"), 12)


def ladder_table(
    ladder: Ladder, *, room: int = 20, wide: bool = True, known: bool = False
) -> Table:
    """The ladder: a row a rung; the bar is what is left of the prompt tokens.

    Parameters
    ----------
    room
        Cells of a bar drawn into the table; none if 0 (``values`` hold the shares for one).
    wide
        With basis and owner.
    known
        Without the rungs whose limit is not known: they take nothing.
    """
    rungs = [r for r in ladder.rungs if not known or r.basis != "unknown"]
    top = max((rung.share for rung in rungs), default=0.0)
    rows = []
    for place, rung in enumerate(rungs):
        full, gone = bar(rung, rungs[place - 1] if place else None, top, room)
        row: list[str | None] = [
            clean(rung.title, 40), "█" * full + "░" * gone if room else None, share(rung.share),
            points(rung), *loss_cells(rung),
        ]  # fmt: skip
        tail = [basis_of(rung), clean(rung.owner, 60)]
        rows.append([*row, *(tail if wide else [None, None])])
    return table(
        "ladder",
        tr("Where reusable work is lost"),
        (
            tr("rung"), "", tr("left"), tr("points lost"), tr("tokens lost"), tr("time lost"),
            currency(ladder), tr("limit is"), tr("who can act"),
        ),
        rows,
        left=(0, 1, 7, 8),
        values=tuple(rung.share for rung in rungs),
    )  # fmt: skip


# --- sections -------------------------------------------------------------------------------------


def short(found: PrefixFindings) -> list[str]:
    """The findings in a few sentences, for a report on something else."""
    out, worst = [headline(found)], worst_break(found)
    if worst:
        out.append(tr("Prompts break: {worst}", worst=worst))
    rungs = found.ladder.rungs if found.ladder is not None else ()
    open_ = [
        tr(_LIMITS[rung.id]) if rung.id in _LIMITS else rung.id
        for rung in rungs
        if rung.basis == "unknown"
    ]
    if open_:
        out.append(
            tr(
                "Not known, so nothing is counted there: {limits}; ttftdoctor prefix says how to "
                "give them.",
                limits=tr(", ").join(open_),
            )
        )
    return out


def worst_break(found: PrefixFindings) -> str:
    """What costs most of what breaks prompts, in a sentence; empty if nothing does."""
    if not found.breakers:
        return ""
    worst = max(found.breakers, key=lambda b: b.tokens_lost)
    kind = tr("something") if worst.kind == "unknown" else kind_of(worst.kind)
    place = tr("{kind} at token {n}", kind=kind, n=count(worst.position_tokens))
    if worst.section != "unknown":
        place = tr("{place} ({section})", place=place, section=clean(worst.section, 40))
    cost = tr("{n} tokens", n=tokens(worst.tokens_lost))
    if worst.seconds_lost is not None:
        cost = tr("{n} tokens, {time}",
                  n=tokens(worst.tokens_lost), time=seconds(worst.seconds_lost))  # fmt: skip
    text = tr("{place} costs {cost}", place=place, cost=cost)
    more = len(found.breakers) - 1
    return tr("{said}; {n} more.", said=text, n=more) if more else tr("{sentence}.", sentence=text)


def sections(found: PrefixFindings) -> list[Section]:
    """Everything below the ladder, in order; parts that are not known are left out."""
    out: list[Section] = []
    out += _breakers(found)
    if found.ladder is not None:
        out += _groups(found.ladder)
    out += [_reconciled(found.reconciled)] if found.reconciled else []
    out += [_gaps(one) for one in found.reconciled if one.where]
    if found.capacity is not None:
        asked = found.ladder.limits.capacity_tokens if found.ladder is not None else None
        out.append(_capacity(found.capacity, asked))
    if found.expiry is not None:
        out += _expiry(found.expiry)
    if found.routing is not None:
        out.append(_routing(found.routing))
    if found.leaders is not None:
        out += _leaders(found.leaders)
    if found.ancestry is not None and found.ancestry.deepest > 1:
        out.append(_ancestry(found.ancestry))
    if found.definitions:
        out.append(_definitions(found))
    return out


def closing(found: PrefixFindings) -> list[Section]:
    """What would let more be told, and what qualifies the rest."""
    out = []
    if found.lacks:
        out.append(Section(tr("What would let more be told"), said=sentences(found.lacks)))
    notes = [
        tr_n("{n} request left out: {reason}", "{n} requests left out: {reason}", n,
             n=count(n), reason=tr(clean(reason, 200)))
        for reason, n in found.left_out.items()
    ]  # fmt: skip
    if notes or found.notes:
        out.append(Section(tr("Notes"), said=sentences([*notes, *found.notes])))
    return out


def _definitions(found: PrefixFindings) -> Section:
    title = tr("The hit rate, by every common definition")
    return Section(
        title,
        table(
            "definitions",
            title,
            (tr("of an endless cache"), tr("is"), tr("which means")),
            (
                (_word(d.id, _DEFINITIONS, 60), share(d.value), clean(d.says, 300))
                for d in found.definitions
            ),
            left=(0, 2),
        ),
    )


def _capacity(c: Capacity, asked: int | None) -> Section:
    shown = _chosen(c.sizes, asked)
    said = []
    if c.flat_tokens is not None:
        size = tr("{n} tokens", n=tokens(c.flat_tokens))
        if c.flat_gb is not None:
            size = tr("{n} tokens ({gb} GB)", n=tokens(c.flat_tokens), gb=gigabytes(c.flat_gb))
        said.append(
            tr(
                "The curve flattens at {size}: there LRU keeps {part} of what an endless cache "
                "does. All distinct blocks hold {n} tokens.",
                size=size, part=share(c.flat_of_ideal), n=tokens(c.working_set_tokens),
            )
        )  # fmt: skip
    if c.kv_bytes_per_token is not None:
        shape = clean(c.kv_shape or tr("the given shape"), 60)
        said.append(
            tr("GB are of {shape}, {n} bytes a token.", shape=shape, n=count(c.kv_bytes_per_token))
        )
    else:
        said.append(tr("--kv-shape MODEL puts sizes in GB."))
    return Section(
        tr("Capacity: what one cache of each size keeps of all prompt tokens"),
        table(
            "capacity",
            tr("Capacity"),
            (tr("tokens"), "GB", "LRU", tr("optimal"), tr("LRU of ideal")),
            (
                (
                    tokens(s.capacity_tokens) + (" *" if s.capacity_tokens == asked else ""),
                    None if s.capacity_gb is None else gigabytes(s.capacity_gb),
                    share(s.lru_share),
                    share(s.optimal_share),
                    share(s.lru_of_ideal),
                )
                for s in shown
            ),
            left=(),
            values=tuple(s.lru_of_ideal for s in shown),
            note=tr("* the size that the ladder has")
            if any(s.capacity_tokens == asked for s in shown)
            else "",
        ),
        said=tuple(said),
    )


def _chosen(sizes: Sequence[Size], asked: int | None) -> list[Size]:
    """Some of the sizes, evenly; the last, and the one that was asked for, always."""
    step = max(1, -(-len(sizes) // SIZES))
    last = len(sizes) - 1
    return [
        size
        for place, size in enumerate(sizes)
        if (last - place) % step == 0 or size.capacity_tokens == asked
    ]


def _expiry(e: Expiry) -> list[Section]:
    idle = ((tr("half"), e.idle_p50_s), (share(0.8), e.idle_p80_s), (share(0.9), e.idle_p90_s),
            (share(0.99), e.idle_p99_s))  # fmt: skip
    known = [
        tr("{part} within {time}", part=part, time=seconds(value))
        for part, value in idle
        if value is not None
    ]
    again = tr("Reused tokens were used again: {times}.", times=tr(", ").join(known))
    out = [
        Section(
            tr("Expiry: what is kept if blocks are let go that long after their last use"),
            table(
                "expiry",
                tr("Expiry"),
                (tr("lifetime"), tr("kept"), tr("of ideal")),
                ((seconds(t.ttl_s), share(t.share), share(t.of_ideal)) for t in e.lifetimes),
                left=(),
                values=tuple(t.of_ideal for t in e.lifetimes),
            ),
            said=(again,) if known else (),
        )
    ]
    if e.prices:
        out.append(
            Section(
                tr("What a longer life costs where it is sold, in prices of a plain input token"),
                table(
                    "prices",
                    tr("What a longer life costs"),
                    (tr("lifetime"), tr("written"), tr("read"), tr("mean of a token"), ""),
                    (
                        (
                            seconds(p.ttl_s), f"{p.write:g}", f"{p.read:g}", f"{p.cost:.3f}",
                            tr("cheapest") if p.cheapest else "",
                        )
                        for p in e.prices
                    ),
                    left=(4,),
                ),
                said=sentences([e.says]) if e.says else (),
            )
        )  # fmt: skip
    elif e.says:
        out[0] = Section(out[0].title, out[0].table, (*out[0].said, *sentences([e.says])))
    return out


def _routing(r: Routing) -> Section:
    counts = sorted({one.replicas for one in r.policies})
    most = counts[-1] if counts else 0
    by = {(one.policy, one.replicas): one for one in r.policies}
    names = list(dict.fromkeys(one.policy for one in r.policies))
    rows: list[list[str | None]] = [
        [
            _word(name, _POLICIES, 40),
            *(share(by[name, n].of_ideal) if (name, n) in by else None for n in counts),
            share(by[name, most].busiest_share) if (name, most) in by else None,
        ]
        for name in names
    ]
    if r.logged is not None:
        one = r.logged
        cells = [share(one.of_ideal) if n == one.replicas else None for n in counts]
        rows.insert(0, [tr(_POLICIES["logged"]), *cells, share(one.busiest_share)])
    return Section(
        tr("Routing: what each way to choose a replica keeps of the ideal"),
        table(
            "routing",
            tr("Routing"),
            (tr("policy"), *(tr_n("{n} replica", "{n} replicas", n, n=n) for n in counts),
             tr("busiest of {n}", n=most)),
            rows,
            note=tr(
                "Every replica with an endless cache of its own. Busiest: its part of the tokens "
                "left to compute; even would be {part}.",
                part=share(1 / most) if most else "-",
            ),
        ),
        said=sentences([r.says]) if r.says else (),
    )  # fmt: skip


def _breakers(found: PrefixFindings) -> list[Section]:
    said = list(sentences([found.breakers_says])) if found.breakers_says else []
    if not found.breakers:
        return [Section(tr("Where prompts break"), said=tuple(said))] if said else []
    unit = currency(found.ladder) if found.ladder is not None else tr("money")
    said.insert(
        0,
        tr(
            "Not even an endless cache gives these tokens back: they are the first loss of the "
            "ladder."
        ),
    )
    ordered = sorted(found.breakers, key=lambda b: -b.tokens_lost)
    for one in ordered:
        said += _about(one)
    return [
        Section(
            tr("Where prompts break that should share a beginning"),
            table(
                "breakers",
                tr("Where prompts break"),
                (tr("what"), tr("section"), tr("at token"), tr("habit"), tr("requests"),
                 tr("tokens lost"), tr("time lost"), unit),
                (
                    (
                        kind_of(b.kind),
                        section_of(b.section),
                        count(b.position_tokens),
                        tr(_HABITS[b.habit]) if b.habit in _HABITS else clean(b.habit, 20),
                        tr("{n} of {all}", n=count(b.requests), all=count(b.of_requests)),
                        tokens(b.tokens_lost),
                        None if b.seconds_lost is None else seconds(b.seconds_lost),
                        None if b.money_lost is None else money(b.money_lost),
                    )
                    for b in ordered
                ),
                left=(0, 1, 3),
            ),
            said=tuple(said),
            limit=12,
            first=True,
        )
    ]  # fmt: skip


def _about(b: BreakerRecord) -> list[str]:
    """A breaker in sentences: what it is, where to look; its text only if it was asked for."""
    text = tr("{kind}: {says}", kind=kind_of(b.kind), says=clean(b.says, 600))
    low, high = b.position_interval
    place = [clean(b.path, 120)] if b.path else []
    place += [tr("token {low} to {high}", low=count(low), high=count(high))] if low != high else []
    parts = [tr("{text} ({place})", text=text, place=tr(", ").join(place)) if place else text]
    if b.habit == "thrashing" and b.tokens_apart > b.tokens_lost:
        apart = tokens(b.tokens_apart)
        parts.append(tr("if only the request before is still cached, {n} tokens", n=apart))
    if b.also:
        behind = (
            tr("{kind} at token {n}", kind=kind_of(one.kind), n=count(one.position_tokens))
            for one in b.also[:3]
        )
        parts.append(tr("once that is mended: {places}", places=tr(", ").join(behind)))
    if b.examples:
        where = (clean(e, 300).rpartition("/")[2] for e in b.examples[:3])
        parts.append(tr("see {places}", places=tr(", ").join(where)))
    out = [_stop(tr("; ").join(parts))]
    if b.before is not None or b.after is not None:
        out.append("  " + tr("before: {text}", text=_quoted(b.before)))
        out.append("  " + tr("after: {text}", text=_quoted(b.after)))
    return out


def _quoted(text: str | None) -> str:
    return "-" if text is None else f"“{clean(text, 400)}”"


def _leaders(leaders: Leaders) -> list[Section]:
    said = []
    within, across = leaders.within_session_tokens, leaders.across_sessions_tokens
    if within is not None and across is not None and within + across > 0:
        whole = within + across
        said.append(
            tr(
                "Of the tokens that can be reused {own} ({own_tokens}) were left by the same "
                "session and {others} ({other_tokens}) by others.",
                own=share(within / whole), own_tokens=tokens(within),
                others=share(across / whole), other_tokens=tokens(across),
            )
        )  # fmt: skip
    if leaders.top_tenth_of_reuse is not None:
        said.append(
            tr(
                "The most used tenth of the blocks gets {part} of the reuse; {never} of the blocks "
                "are never used again.",
                part=share(leaders.top_tenth_of_reuse), never=share(leaders.never_reused_share),
            )
        )  # fmt: skip
    out = [
        _prefixes(title, name, rows)
        for title, name, rows in (
            (tr("Shared beginnings that save most"), "by_tokens", leaders.by_tokens),
            (tr("Shared beginnings that most requests have"), "by_requests", leaders.by_requests),
        )
        if rows
    ]
    if said and out:
        out[0] = Section(out[0].title, out[0].table, tuple(said), out[0].limit)
    elif said:
        out = [Section(tr("Shared beginnings"), said=tuple(said))]
    return out


def _prefixes(title: str, name: str, rows: Sequence[Prefix]) -> Section:
    several = len({p.first_path for p in rows}) > 1
    return Section(
        title,
        table(
            name,
            title,
            ("", tr("tokens long"), tr("requests"), tr("sessions"), tr("saves tokens"),
             tr("first seen at")),
            (
                (
                    clean(p.id, 20),
                    count(p.tokens),
                    count(p.requests),
                    None if p.sessions is None else count(p.sessions),
                    tokens(p.reusable_tokens),
                    tr("line {n} of {file}", n=p.first_line,
                       file=clean(p.first_path.rpartition("/")[2], 60)) if several
                    else tr("line {n}", n=p.first_line),
                )
                for p in rows
            ),
            left=(0, 5),
        ),
    )  # fmt: skip


def _ancestry(a: Ancestry) -> Section:
    rows = [
        (
            tr("{n} and later", n=g.turn) if g is a.generations[-1] and g.turn < a.deepest
            else str(g.turn),
            count(g.requests), tokens(g.input_tokens), share(g.hit_share),
        )
        for g in a.generations
    ]  # fmt: skip
    first = tr(
        "{part} of the requests follow none before them; the longest line has {n} turns.",
        part=share(a.first_share), n=count(a.deepest),
    )  # fmt: skip
    held = share(a.later_input_share)
    later = (
        tr("Later turns hold {held} of the prompt tokens.", held=held)
        if a.later_hit_share is None
        else tr("Later turns hold {held} of the prompt tokens and find {found} of theirs.",
                held=held, found=share(a.later_hit_share))
    )  # fmt: skip
    title = tr("Turns by content")
    return Section(
        title,
        table(
            "ancestry", title, (tr("turn"), tr("requests"), tr("prompt tokens"), tr("shared")),
            rows, values=tuple(g.hit_share for g in a.generations),
        ),
        said=(together([first, later]),),
    )  # fmt: skip


def _groups(ladder: Ladder) -> list[Section]:
    names = [name for name in SPLITS if name in ladder.groups]
    names += [name for name in ladder.groups if name not in SPLITS]
    last = ladder.rungs[-1]
    known = any(rung.basis != "unknown" for rung in ladder.rungs[1:])
    out: list[Section] = []
    for name in names:
        groups = list(ladder.groups[name])
        if name != "turn":
            groups.sort(key=lambda g: -g.lost_tokens)
        title = tr("By {column}", column=column_of(name))
        out.append(
            Section(
                title,
                table(
                    f"by_{clean(name, 40)}",
                    title,
                    (
                        column_of(name), tr("requests"), tr("prompt tokens"), tr("could be"),
                        tr("is"), tr("tokens lost"), tr("time lost"), currency(ladder),
                    ),
                    (_group_row(name, g, ladder.rungs[0], last, known=known) for g in groups),
                    note=tr("Could be, is: part of the prompt tokens that a cache holds.")
                    if not out and known
                    else "",
                ),
                limit=100 if name == "turn" else GROUPS,
            )
        )  # fmt: skip
    return out


def _group_row(
    column: str, g: Group, first: Rung, last: Rung, *, known: bool
) -> tuple[str | None, ...]:
    whole = max(g.input_tokens, 1)
    cells: tuple[str | None, ...] = (None, None, None, None)
    if known:
        cells = (
            share(g.hit_tokens.get(last.id, 0) / whole),
            tokens(g.lost_tokens),
            None if g.lost_seconds is None else seconds(g.lost_seconds),
            None if g.lost_money is None else money(g.lost_money),
        )
    return (
        value_of(column, g.name, 40) or tr("(empty)"),
        count(g.requests),
        tokens(g.input_tokens),
        share(g.hit_tokens.get(first.id, 0) / whole),
        *cells,
    )


def _reconciled(many: Sequence[Reconciled]) -> Section:
    title = tr("Beside the engine's own counters")
    return Section(
        title,
        table(
            "reconciled",
            title,
            (tr("counted by"), tr("engine"), tr("model"), tr("at rung"), tr("points"),
             tr("off by"), tr("engine more"), tr("engine less")),
            (
                (
                    clean(r.source, 120),
                    share(r.engine_share),
                    share(r.model_share),
                    tr(_RUNGS[r.model_rung]) if r.model_rung in _RUNGS else clean(r.model_rung, 40),
                    _signed(r.difference_points),
                    None if r.mean_error_points is None else f"{r.mean_error_points:.1f}",
                    None if r.over_tokens is None else tokens(r.over_tokens),
                    None if r.under_tokens is None else tokens(r.under_tokens),
                )
                for r in many
            ),
            left=(0, 3),
        ),
        said=sentences(r.says for r in many),
    )  # fmt: skip


def _gaps(one: Reconciled) -> Section:
    title = tr("Where the engine differs from the model")
    return Section(
        title,
        table(
            "gaps",
            title,
            (tr("of"), "", tr("requests"), tr("model"), tr("engine"), tr("engine less model")),
            (
                (
                    column_of(g.column),
                    value_of(g.column, g.value, 60) or tr("(empty)"),
                    count(g.requests),
                    tokens(g.model_tokens),
                    tokens(g.engine_tokens),
                    _plus(g.engine_tokens - g.model_tokens),
                )
                for g in one.where
            ),
            left=(0, 1),
        ),
    )


def read_sentences(inputs: Sequence[Input]) -> list[str]:
    """What was read of each file, and what became of it."""
    out = []
    for item in inputs:
        rejected = sum(item.rows_rejected.values())
        text = tr(
            "{path} ({format}): {read} rows read = {used} used + {rejected} rejected",
            path=clean(item.path, 300), format=clean(item.format, 60), read=count(item.rows_read),
            used=count(item.rows_used), rejected=count(rejected),
        )  # fmt: skip
        if rejected:
            reasons = (f"{clean(why, 120)} {count(n)}" for why, n in item.rows_rejected.items())
            text = tr("{rows} ({reasons})", rows=text, reasons=tr(", ").join(reasons))
        out.append(tr("{sentence}.", sentence=text))
    return out


# --- small helpers --------------------------------------------------------------------------------


def gigabytes(value: float | None) -> str:
    """A size in GB with three figures."""
    return "-" if value is None else figure(value)


def _back(text: str) -> str:
    return f"+{text[1:]}" if text.startswith("−") else text


def _plus(value: int) -> str:
    return "0" if value == 0 else f"{'+' if value > 0 else '−'}{tokens(abs(value))}"


def _signed(points_: float) -> str:
    if abs(points_) < 0.05:
        return "0"
    return f"{'+' if points_ > 0 else '−'}{abs(points_):.1f}"


def _lower(text: str) -> str:
    return text.removeprefix("by ")


def _word(name: str, words: Mapping[str, str], limit: int) -> str:
    """What something is called, or its own name."""
    return tr(words[name]) if name in words else clean(name, limit).replace("_", " ")


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    return _stop(text[:1].upper() + text[1:])


def _stop(text: str) -> str:
    ended = text.endswith((".", "!", "?", "…", "。", "！", "？"))
    return text if ended else tr("{sentence}.", sentence=text)


def together(lines: Sequence[str]) -> str:
    """Sentences one after the other; full-width stops need no blank behind them."""
    return ("" if spoken() == "zh" else " ").join(lines)


def sentences(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines as sentences: with a capital and a full stop."""
    return tuple(_sentence(clean(line, 1_000)) for line in lines)
