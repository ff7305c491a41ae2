"""The sentences of the prefix report: the headline, and what would let more be told."""

from __future__ import annotations

from collections.abc import Sequence

from ttftdoctor.prefixes.records import BreakerRecord, Ladder, Rung
from ttftdoctor.units import seconds, share, tokens

#: A smaller part of the prompt tokens is not worth a word.
WORTH = 0.005
#: What stands where prompts break, for a headline.
BROKEN = {
    "time": "a time stamp",
    "id": "an id made anew",
    "counter": "a counter",
    "reordered_keys": "keys in another order",
    "reordered_tools": "tools in another order",
    "tools_changed": "changing tools",
    "user_field": "a field of the user",
    "changing_context": "changing context",
    "whitespace": "spacing",
    "trimmed_history": "history that is trimmed",
    "edited_history": "history that is edited",
}


def headline(
    found: Ladder, breakers: Sequence[BreakerRecord] = (), *, inputs: int = 0, exact: bool
) -> str:
    """What could be reused, what is, and where most of the rest is lost."""
    worst = max(breakers, key=lambda one: one.tokens_lost, default=None)
    lost = max((rung.lost_tokens for rung in found.rungs[1:]), default=0)
    if worst is None or worst.tokens_lost < max(lost, WORTH * inputs, 1):
        return _of_ladder(found, exact=exact)
    more = sum(one.tokens_lost for one in breakers) / max(inputs, 1)
    what = BROKEN.get(worst.kind, "something that differs")
    return (
        f"{share(more)} more of the prompt tokens would be shared but for {what} at token "
        f"{worst.position_tokens:,} ({worst.section}); as it is, {share(found.rungs[0].share)} "
        "could come from a cache"
    )


def _of_ladder(found: Ladder, *, exact: bool) -> str:
    ideal, last = found.rungs[0], found.rungs[-1]
    most = "" if exact else "at most "
    text = f"{most}{share(ideal.share)} of the prompt tokens could come from a cache"
    if ideal.hit_tokens == 0:
        return "no prompt begins like an earlier one: a prefix cache has nothing to keep"
    if last.id == "actual" and last.share > ideal.share + WORTH:
        return (
            f"{share(last.share)} of the prompt tokens came from a cache, more than the "
            f"{share(ideal.share)} that this log shows to be shared"
        )
    worst = max(found.rungs[1:], key=lambda rung: rung.lost_tokens)
    known = [rung for rung in found.rungs[1:] if rung.basis != "unknown"]
    if last.id == "actual":
        text += f"; {share(last.share)} do"
    elif not known:
        return f"{text}, if it were endless and shared by all; what the engine kept is not logged"
    else:
        text += f"; under the limits that are known {share(last.share)} do"
    if ideal.share - last.share < WORTH:
        return text + ", so hardly anything is lost"
    if worst.id == "actual" and last.hit_tokens == 0:
        return f"{text}: no cache is at work, or none is counted"
    return f"{text}; most is lost {_at(worst, ideal.hit_tokens - last.hit_tokens)}"


def _at(rung: Rung, whole: int) -> str:
    """Where a rung loses, and what: no more than is lost in all, if others give some back."""
    where = {
        "expiry": "because entries expire",
        "capacity": "because the cache is too small",
        "routing": "because requests go to other replicas",
        "rounding": "by rounding to blocks",
        "actual": "for a reason that no known limit explains",
    }[rung.id]
    if rung.lost_tokens > whole:
        return f"{where} ({tokens(whole)} tokens)"
    cost = f"{share(rung.lost_share)} of the prompt tokens, {tokens(rung.lost_tokens)}"
    if rung.lost_seconds is not None:
        cost += f", {seconds(rung.lost_seconds)} of prefill"
    return f"{where} ({cost})"


def lacking(found: Ladder, *, has_lines: bool, exact: bool, sessions: bool) -> tuple[str, ...]:
    """What is missing, and what would let it be told."""
    rungs = {rung.id: rung for rung in found.rungs}
    out = []
    if not exact:
        out.append(
            "prompts, token ids or block hashes are not in the log: what is shared across "
            "sessions, what a larger cache would keep and where prompts break cannot be told"
        )
    if "actual" not in rungs:
        out.append(
            "cached tokens are not in the log: what the engine really found cannot be told "
            "(usage.prompt_tokens_details.cached_tokens; vLLM: --enable-prompt-tokens-details)"
        )
    if rungs["routing"].basis == "unknown":
        out.append("replicas are not in the log: what routing takes cannot be told (--replicas)")
    if rungs["expiry"].basis == "unknown":
        out.append("no lifetime is known or to be seen: nothing is counted as expired (--ttl)")
    if exact and rungs["capacity"].basis == "unknown":
        out.append("no size is known or to be seen: the cache is endless (--cache-tokens)")
    if not has_lines:
        out.append(
            "no TTFT is in the log, so lost tokens have no price in seconds (--ms-per-1k-tokens, "
            "or --params and --flops)"
        )
    if exact and not sessions:
        out.append("no session is known: reuse within and across sessions cannot be told apart")
    return tuple(out)
