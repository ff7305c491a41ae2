"""The prefix findings as sections, tables and sentences that every form of a report shares.

Cells and sentences are clean (nothing from a log in them is invisible or a control character) but
not escaped for any form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ttftdoctor.diagnosis import Input
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
from ttftdoctor.report import Severity, Table, clean, money, table
from ttftdoctor.units import count, figure, seconds, share, tokens

#: What the bases of a rung are called.
BASIS = {
    "exact": "counted",
    "logged": "logged",
    "given": "given",
    "inferred": "inferred",
    "unknown": "not known",
}
#: A part of the prompt tokens from which on their loss is bad, and worth a warning.
BAD, WARN = 0.10, 0.02
#: Rows of a table of sizes, and of one group of requests.
SIZES, GROUPS = 9, 8
#: What rows are split by, in the order in which that is shown.
SPLITS = ("tenant", "route", "turn", "model", "replica")

_LIMITS = {
    "expiry": "expiry",
    "capacity": "capacity",
    "routing": "routing",
    "rounding": "rounding to blocks",
}
_POLICIES = {
    "round_robin": "round robin",
    "session_affinity": "session affinity",
    "prefix_affinity": "prefix affinity",
    "prefix_affinity_balanced": "prefix affinity, balanced",
    "logged": "as logged",
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
        title="could be shared",
        basis="inferred",
        says="what prompts would share if nothing broke their beginnings",
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
        return "CANNOT TELL", "unknown"
    broken = broken_tokens(found) / max(found.input_tokens, 1)
    if broken >= BAD and broken > (lost(found) or 0.0):
        return f"BROKEN {share(broken)}", "bad"
    if found.ladder.rungs[0].hit_tokens == 0:
        return "NOTHING SHARED", "unknown"
    part = lost(found)
    if part is None:
        return f"UP TO {share(found.ladder.rungs[0].share)}", "unknown"
    if part < WARN:
        return "KEPT", "good"
    return f"LOST {share(part)}", "bad" if part >= BAD else "warn"


def headline(found: PrefixFindings) -> str:
    """The headline as a sentence."""
    text = clean(found.headline)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def who(found: PrefixFindings) -> str:
    """What was looked at: requests, prompt tokens, size of a block."""
    n, seen = found.requests, found.looked_at
    some = "" if seen == n else f"{count(seen)} of "
    parts = [f"{some}{count(n)} request{'' if n == 1 else 's'}"]
    parts.append(f"{tokens(found.input_tokens)} prompt tokens")
    if found.block_tokens is not None:
        parts.append(f"blocks of {count(found.block_tokens)}")
    return " · ".join(parts)


def owner(rung: Rung) -> str:
    """Who can do something about a rung, in short."""
    name, _, rest = rung.owner.partition(":")
    short = name.partition(" (")[0] if not rest or rung.id != "actual" else rung.owner
    return clean(short, 60)


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
            BASIS.get(rung.basis, clean(rung.basis, 20)),
            clean(rung.says, 400),
            owner(rung),
        )
        for rung in ladder.rungs
    ]


def basis_sentences(ladder: Ladder) -> list[str]:
    """Where seconds and money come from."""
    out = []
    if ladder.seconds_basis:
        out.append(f"Seconds are of prefill, by {_lower(clean(ladder.seconds_basis, 300))}.")
    if ladder.money_basis:
        unit = f"{clean(ladder.currency, 40)}, by " if ladder.currency else ""
        out.append(f"Money is in {unit}{clean(ladder.money_basis, 300)}.")
    return out


def currency(ladder: Ladder) -> str:
    """The heading of a column of money."""
    return clean(ladder.currency or "money", 12)


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
        tail = [BASIS.get(rung.basis, "-"), clean(rung.owner, 60)]
        rows.append([*row, *(tail if wide else [None, None])])
    return table(
        "ladder",
        "Where reusable work is lost",
        (
            "rung", "", "left", "points lost", "tokens lost", "time lost", currency(ladder),
            "limit is", "who can act",
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
        out.append(f"Prompts break: {worst}")
    rungs = found.ladder.rungs if found.ladder is not None else ()
    open_ = [_LIMITS.get(rung.id, rung.id) for rung in rungs if rung.basis == "unknown"]
    if open_:
        out.append(f"Not known, so nothing is counted there: {', '.join(open_)}; ttftdoctor prefix")
        out[-1] += " says how to give them."
    return out


def worst_break(found: PrefixFindings) -> str:
    """What costs most of what breaks prompts, in a sentence; empty if nothing does."""
    if not found.breakers:
        return ""
    worst = max(found.breakers, key=lambda b: b.tokens_lost)
    kind = "something" if worst.kind == "unknown" else clean(worst.kind, 40).replace("_", " ")
    section = "" if worst.section == "unknown" else f" ({clean(worst.section, 40)})"
    text = f"{kind} at token {count(worst.position_tokens)}{section} costs "
    text += f"{tokens(worst.tokens_lost)} tokens"
    if worst.seconds_lost is not None:
        text += f", {seconds(worst.seconds_lost)}"
    more = len(found.breakers) - 1
    return text + (f"; {more} more." if more else ".")


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
        out.append(Section("What would let more be told", said=sentences(found.lacks)))
    notes = [
        f"{count(n)} request{'' if n == 1 else 's'} left out: {clean(reason, 200)}"
        for reason, n in found.left_out.items()
    ]
    if notes or found.notes:
        out.append(Section("Notes", said=sentences([*notes, *found.notes])))
    return out


def _definitions(found: PrefixFindings) -> Section:
    return Section(
        "The hit rate, by every common definition",
        table(
            "definitions",
            "The hit rate, by every common definition",
            ("of an endless cache", "is", "which means"),
            (
                (clean(d.id, 60).replace("_", " "), share(d.value), clean(d.says, 300))
                for d in found.definitions
            ),
            left=(0, 2),
        ),
    )


def _capacity(c: Capacity, asked: int | None) -> Section:
    shown = _chosen(c.sizes, asked)
    said = []
    if c.flat_tokens is not None:
        size = tokens(c.flat_tokens) + " tokens"
        size += f" ({gigabytes(c.flat_gb)} GB)" if c.flat_gb is not None else ""
        said.append(
            f"The curve flattens at {size}: there LRU keeps {share(c.flat_of_ideal)} of what an "
            f"endless cache does. All distinct blocks hold {tokens(c.working_set_tokens)} tokens."
        )
    if c.kv_bytes_per_token is not None:
        said.append(
            f"GB are of {clean(c.kv_shape or 'the given shape', 60)}, "
            f"{count(c.kv_bytes_per_token)} bytes a token."
        )
    else:
        said.append("--kv-shape MODEL puts sizes in GB.")
    return Section(
        "Capacity: what one cache of each size keeps of all prompt tokens",
        table(
            "capacity",
            "Capacity",
            ("tokens", "GB", "LRU", "optimal", "LRU of ideal"),
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
            note="* the size that the ladder has"
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
    idle = (("half", e.idle_p50_s), ("80 %", e.idle_p80_s), ("90 %", e.idle_p90_s),
            ("99 %", e.idle_p99_s))  # fmt: skip
    known = [f"{name} within {seconds(value)}" for name, value in idle if value is not None]
    out = [
        Section(
            "Expiry: what is kept if blocks are let go that long after their last use",
            table(
                "expiry",
                "Expiry",
                ("lifetime", "kept", "of ideal"),
                ((seconds(t.ttl_s), share(t.share), share(t.of_ideal)) for t in e.lifetimes),
                left=(),
                values=tuple(t.of_ideal for t in e.lifetimes),
            ),
            said=(f"Reused tokens were used again: {', '.join(known)}.",) if known else (),
        )
    ]
    if e.prices:
        out.append(
            Section(
                "What a longer life costs where it is sold, in prices of a plain input token",
                table(
                    "prices",
                    "What a longer life costs",
                    ("lifetime", "written", "read", "mean of a token", ""),
                    (
                        (
                            seconds(p.ttl_s), f"{p.write:g}", f"{p.read:g}", f"{p.cost:.3f}",
                            "cheapest" if p.cheapest else "",
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
            _POLICIES.get(name, clean(name, 40).replace("_", " ")),
            *(share(by[name, n].of_ideal) if (name, n) in by else None for n in counts),
            share(by[name, most].busiest_share) if (name, most) in by else None,
        ]
        for name in names
    ]
    if r.logged is not None:
        one = r.logged
        cells = [share(one.of_ideal) if n == one.replicas else None for n in counts]
        rows.insert(0, [_POLICIES["logged"], *cells, share(one.busiest_share)])
    return Section(
        "Routing: what each way to choose a replica keeps of the ideal",
        table(
            "routing",
            "Routing",
            ("policy", *(f"{n} replicas" for n in counts), f"busiest of {most}"),
            rows,
            note="Every replica with an endless cache of its own. Busiest: its part of the tokens "
            f"left to compute; even would be {share(1 / most) if most else '-'}.",
        ),
        said=sentences([r.says]) if r.says else (),
    )


def _breakers(found: PrefixFindings) -> list[Section]:
    said = list(sentences([found.breakers_says])) if found.breakers_says else []
    if not found.breakers:
        return [Section("Where prompts break", said=tuple(said))] if said else []
    unit = currency(found.ladder) if found.ladder is not None else "money"
    said.insert(
        0,
        "Not even an endless cache gives these tokens back: they are the first loss of the ladder.",
    )
    ordered = sorted(found.breakers, key=lambda b: -b.tokens_lost)
    for one in ordered:
        said += _about(one)
    return [
        Section(
            "Where prompts break that should share a beginning",
            table(
                "breakers",
                "Where prompts break",
                ("what", "section", "at token", "habit", "requests", "tokens lost", "time lost",
                 unit),
                (
                    (
                        clean(b.kind, 40).replace("_", " "),
                        clean(b.section, 40),
                        count(b.position_tokens),
                        clean(b.habit, 20),
                        f"{count(b.requests)} of {count(b.of_requests)}",
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
    text = f"{clean(b.kind, 40).replace('_', ' ')}: {clean(b.says, 600)}"
    low, high = b.position_interval
    place = [clean(b.path, 120)] if b.path else []
    place += [f"token {count(low)} to {count(high)}"] if low != high else []
    text += f" ({', '.join(place)})" if place else ""
    if b.habit == "thrashing" and b.tokens_apart > b.tokens_lost:
        text += f"; if only the request before is still cached, {tokens(b.tokens_apart)} tokens"
    if b.also:
        behind = (
            f"{clean(one.kind, 40).replace('_', ' ')} at token {count(one.position_tokens)}"
            for one in b.also[:3]
        )
        text += f"; once that is mended: {', '.join(behind)}"
    if b.examples:
        where = (clean(e, 300).rpartition("/")[2] for e in b.examples[:3])
        text += f"; see {', '.join(where)}"
    out = [_stop(text)]
    if b.before is not None or b.after is not None:
        out.append(f"  before: {_quoted(b.before)}")
        out.append(f"  after: {_quoted(b.after)}")
    return out


def _quoted(text: str | None) -> str:
    return "-" if text is None else f"“{clean(text, 400)}”"


def _leaders(leaders: Leaders) -> list[Section]:
    said = []
    within, across = leaders.within_session_tokens, leaders.across_sessions_tokens
    if within is not None and across is not None and within + across > 0:
        whole = within + across
        said.append(
            f"Of the tokens that can be reused {share(within / whole)} ({tokens(within)}) were "
            f"left by the same session and {share(across / whole)} ({tokens(across)}) by others."
        )
    if leaders.top_tenth_of_reuse is not None:
        said.append(
            f"The most used tenth of the blocks gets {share(leaders.top_tenth_of_reuse)} of the "
            f"reuse; {share(leaders.never_reused_share)} of the blocks are never used again."
        )
    out = [
        _prefixes(f"Shared beginnings {how}", name, rows)
        for how, name, rows in (
            ("that save most", "by_tokens", leaders.by_tokens),
            ("that most requests have", "by_requests", leaders.by_requests),
        )
        if rows
    ]
    if said and out:
        out[0] = Section(out[0].title, out[0].table, tuple(said), out[0].limit)
    elif said:
        out = [Section("Shared beginnings", said=tuple(said))]
    return out


def _prefixes(title: str, name: str, rows: Sequence[Prefix]) -> Section:
    several = len({p.first_path for p in rows}) > 1
    return Section(
        title,
        table(
            name,
            title,
            ("", "tokens long", "requests", "sessions", "saves tokens", "first seen at"),
            (
                (
                    clean(p.id, 20),
                    count(p.tokens),
                    count(p.requests),
                    None if p.sessions is None else count(p.sessions),
                    tokens(p.reusable_tokens),
                    f"line {p.first_line}"
                    + (f" of {clean(p.first_path.rpartition('/')[2], 60)}" if several else ""),
                )
                for p in rows
            ),
            left=(0, 5),
        ),
    )


def _ancestry(a: Ancestry) -> Section:
    rows = [
        (
            f"{g.turn} and later" if g is a.generations[-1] and g.turn < a.deepest
            else str(g.turn),
            count(g.requests), tokens(g.input_tokens), share(g.hit_share),
        )
        for g in a.generations
    ]  # fmt: skip
    text = (
        f"{share(a.first_share)} of the requests follow none before them; the longest line has "
        f"{count(a.deepest)} turns. Later turns hold {share(a.later_input_share)} of the prompt "
        "tokens"
    )
    if a.later_hit_share is not None:
        text += f" and find {share(a.later_hit_share)} of theirs"
    return Section(
        "Turns by content",
        table(
            "ancestry", "Turns by content", ("turn", "requests", "prompt tokens", "shared"), rows,
            values=tuple(g.hit_share for g in a.generations),
        ),
        said=(text + ".",),
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
        title = f"By {clean(name, 40)}"
        out.append(
            Section(
                title,
                table(
                    f"by_{clean(name, 40)}",
                    title,
                    (
                        clean(name, 40), "requests", "prompt tokens", "could be", "is",
                        "tokens lost", "time lost", currency(ladder),
                    ),
                    (_group_row(g, ladder.rungs[0], last, known=known) for g in groups),
                    note="Could be, is: part of the prompt tokens that a cache holds."
                    if not out and known
                    else "",
                ),
                limit=100 if name == "turn" else GROUPS,
            )
        )  # fmt: skip
    return out


def _group_row(g: Group, first: Rung, last: Rung, *, known: bool) -> tuple[str | None, ...]:
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
        clean(g.name, 40) or "(empty)",
        count(g.requests),
        tokens(g.input_tokens),
        share(g.hit_tokens.get(first.id, 0) / whole),
        *cells,
    )


def _reconciled(many: Sequence[Reconciled]) -> Section:
    return Section(
        "Beside the engine's own counters",
        table(
            "reconciled",
            "Beside the engine's own counters",
            ("counted by", "engine", "model", "at rung", "points", "off by",
             "engine more", "engine less"),
            (
                (
                    clean(r.source, 120),
                    share(r.engine_share),
                    share(r.model_share),
                    clean(r.model_rung, 40),
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
    title = "Where the engine differs from the model"
    return Section(
        title,
        table(
            "gaps",
            title,
            ("of", "", "requests", "model", "engine", "engine less model"),
            (
                (
                    clean(g.column, 40),
                    clean(g.value, 60) or "(empty)",
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
        text = (
            f"{clean(item.path, 300)} ({clean(item.format, 60)}): {count(item.rows_read)} rows "
            f"read = {count(item.rows_used)} used + {count(rejected)} rejected"
        )
        if rejected:
            reasons = (f"{clean(why, 120)} {count(n)}" for why, n in item.rows_rejected.items())
            text += f" ({', '.join(reasons)})"
        out.append(text + ".")
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


def _stop(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def sentences(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines as sentences: with a capital and a full stop."""
    out = []
    for line in lines:
        text = clean(line, 1_000)
        out.append(_stop(text[:1].upper() + text[1:]))
    return tuple(out)
