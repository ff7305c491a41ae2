"""The sentences of the prefix report: the headline, and what would let more be told."""

from __future__ import annotations

from collections.abc import Sequence

from ttftdoctor.language import mark, tr
from ttftdoctor.prefixes.records import BreakerRecord, Ladder, Rung
from ttftdoctor.report import clean
from ttftdoctor.units import count, seconds, share, tokens

#: A smaller part of the prompt tokens is not worth a word.
WORTH = 0.005
#: What stands where prompts break, for a headline.
BROKEN = {
    "time": mark("a time stamp"),
    "id": mark("an id made anew"),
    "counter": mark("a counter"),
    "reordered_keys": mark("keys in another order"),
    "reordered_tools": mark("tools in another order"),
    "tools_changed": mark("changing tools"),
    "user_field": mark("a field of the user"),
    "changing_context": mark("changing context"),
    "whitespace": mark("spacing"),
    "trimmed_history": mark("history that is trimmed"),
    "edited_history": mark("history that is edited"),
}
DIFFERS = mark("something that differs")
#: What the kinds of breakers are called.
KINDS = {
    "time": mark("time"),
    "id": mark("id"),
    "counter": mark("counter"),
    "reordered_keys": mark("reordered keys"),
    "reordered_tools": mark("reordered tools"),
    "tools_changed": mark("tools changed"),
    "user_field": mark("user field"),
    "changing_context": mark("changing context"),
    "whitespace": mark("whitespace"),
    "trimmed_history": mark("trimmed history"),
    "edited_history": mark("edited history"),
    "other": mark("other"),
    "unknown": mark("unknown"),
}
#: What the columns are called by which the ladder is split.
COLUMNS = {
    "tenant": mark("tenant"),
    "route": mark("route"),
    "turn": mark("turn"),
    "model": mark("model"),
    "replica": mark("replica"),
}


def kind_of(kind: str) -> str:
    """What a kind of breaker is called."""
    return tr(KINDS[kind]) if kind in KINDS else clean(kind, 40).replace("_", " ")


def section_of(section: str) -> str:
    """What a section of a prompt is called: by the name of its field."""
    return tr("unknown") if section == "unknown" else clean(section, 40)


def column_of(column: str, limit: int = 40) -> str:
    """What a column is called."""
    return tr(COLUMNS[column]) if column in COLUMNS else clean(column, limit)


def value_of(column: str, value: str, limit: int) -> str:
    """A value of a column; the last turn stands for all later ones."""
    turn = value.removesuffix(" and later")
    if column == "turn" and turn != value:
        return tr("{n} and later", n=clean(turn, limit))
    return clean(value, limit)


def headline(
    found: Ladder, breakers: Sequence[BreakerRecord] = (), *, inputs: int = 0, exact: bool
) -> str:
    """What could be reused, what is, and where most of the rest is lost."""
    worst = max(breakers, key=lambda one: one.tokens_lost, default=None)
    lost = max((rung.lost_tokens for rung in found.rungs[1:]), default=0)
    if worst is None or worst.tokens_lost < max(lost, WORTH * inputs, 1):
        return _of_ladder(found, exact=exact)
    more = sum(one.tokens_lost for one in breakers) / max(inputs, 1)
    return tr(
        "{more} more of the prompt tokens would be shared but for {what} at token {place} "
        "({section}); as it is, {part} could come from a cache",
        more=share(more), what=tr(BROKEN.get(worst.kind, DIFFERS)),
        place=count(worst.position_tokens), section=section_of(worst.section),
        part=share(found.rungs[0].share),
    )  # fmt: skip


def _of_ladder(found: Ladder, *, exact: bool) -> str:
    ideal, last = found.rungs[0], found.rungs[-1]
    if ideal.hit_tokens == 0:
        return tr("no prompt begins like an earlier one: a prefix cache has nothing to keep")
    if last.id == "actual" and last.share > ideal.share + WORTH:
        return tr(
            "{part} of the prompt tokens came from a cache, more than the {shared} that this log "
            "shows to be shared",
            part=share(last.share), shared=share(ideal.share),
        )  # fmt: skip
    most = share(ideal.share)
    text = (
        tr("{part} of the prompt tokens could come from a cache", part=most) if exact
        else tr("at most {part} of the prompt tokens could come from a cache", part=most)
    )  # fmt: skip
    worst = max(found.rungs[1:], key=lambda rung: rung.lost_tokens)
    known = [rung for rung in found.rungs[1:] if rung.basis != "unknown"]
    if last.id == "actual":
        text = tr("{possible}; {part} do", possible=text, part=share(last.share))
    elif not known:
        return tr(
            "{possible}, if it were endless and shared by all; what the engine kept is not logged",
            possible=text,
        )
    else:
        text = tr("{possible}; under the limits that are known {part} do",
                  possible=text, part=share(last.share))  # fmt: skip
    if ideal.share - last.share < WORTH:
        return tr("{found}, so hardly anything is lost", found=text)
    if worst.id == "actual" and last.hit_tokens == 0:
        return tr("{found}: no cache is at work, or none is counted", found=text)
    where = _at(worst, ideal.hit_tokens - last.hit_tokens)
    return tr("{found}; most is lost {where}", found=text, where=where)


def _at(rung: Rung, whole: int) -> str:
    """Where a rung loses, and what: no more than is lost in all, if others give some back."""
    where = {
        "expiry": tr("because entries expire"),
        "capacity": tr("because the cache is too small"),
        "routing": tr("because requests go to other replicas"),
        "rounding": tr("by rounding to blocks"),
        "actual": tr("for a reason that no known limit explains"),
    }[rung.id]
    part = share(rung.lost_share)
    if rung.lost_tokens > whole:
        cost = tr("{n} tokens", n=tokens(whole))
    elif rung.lost_seconds is None:
        cost = tr("{part} of the prompt tokens, {n}", part=part, n=tokens(rung.lost_tokens))
    else:
        cost = tr("{part} of the prompt tokens, {n}, {time} of prefill",
                  part=part, n=tokens(rung.lost_tokens),
                  time=seconds(rung.lost_seconds))  # fmt: skip
    return tr("{where} ({cost})", where=where, cost=cost)


def lacking(found: Ladder, *, has_lines: bool, exact: bool, sessions: bool) -> tuple[str, ...]:
    """What is missing, and what would let it be told."""
    rungs = {rung.id: rung for rung in found.rungs}
    out = []
    if not exact:
        out.append(
            tr(
                "prompts, token ids or block hashes are not in the log: what is shared across "
                "sessions, what a larger cache would keep and where prompts break cannot be told"
            )
        )
    if "actual" not in rungs:
        out.append(
            tr(
                "cached tokens are not in the log: what the engine really found cannot be told "
                "(usage.prompt_tokens_details.cached_tokens; vLLM: --enable-prompt-tokens-details)"
            )
        )
    if rungs["routing"].basis == "unknown":
        out.append(
            tr("replicas are not in the log: what routing takes cannot be told (--replicas)")
        )
    if rungs["expiry"].basis == "unknown":
        out.append(tr("no lifetime is known or to be seen: nothing is counted as expired (--ttl)"))
    if exact and rungs["capacity"].basis == "unknown":
        out.append(tr("no size is known or to be seen: the cache is endless (--cache-tokens)"))
    if not has_lines:
        out.append(
            tr(
                "no TTFT is in the log, so lost tokens have no price in seconds "
                "(--ms-per-1k-tokens, or --params and --flops)"
            )
        )
    if exact and not sessions:
        out.append(tr("no session is known: reuse within and across sessions cannot be told apart"))
    return tuple(out)
