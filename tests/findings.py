"""Prefix findings made by hand, for the forms they are written in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ttftdoctor.diagnosis import Input
from ttftdoctor.prefixes.document import PrefixReport
from ttftdoctor.prefixes.records import (
    AlsoRecord,
    Ancestry,
    BreakerRecord,
    Capacity,
    Definition,
    Expiry,
    Gap,
    Generation,
    Group,
    Ladder,
    Leaders,
    Lifetime,
    Limits,
    Prefix,
    PrefixFindings,
    Reconciled,
    Routed,
    Routing,
    Rung,
    Size,
    TtlPrice,
)

TOTAL = 10_000_000
IDS = ("ideal", "expiry", "capacity", "routing", "rounding", "actual")


def rungs() -> tuple[Rung, ...]:
    """80 % could be kept and 21 % is: routing takes most, rounding gives a little back."""
    return (
        Rung("ideal", "shared content", "application: what prompts have in common", "exact",
             "one endless cache for all requests, empty at the start", 8_000_000, 0.8, 0, 0.0,
             0.0, 0.0),
        Rung("expiry", "after expiry", "cache lifetime (provider or engine setting)", "given",
             "blocks live 5.0 min after they were last used", 7_000_000, 0.7, 1_000_000, 0.1,
             60.0, 0.30),
        Rung("capacity", "after capacity", "size of the cache", "unknown",
             "the cache is endless here (--cache-tokens)", 7_000_000, 0.7, 0, 0.0, 0.0, 0.0),
        Rung("routing", "after routing", "router or load balancer", "logged",
             "4 replicas, each with a cache of its own", 2_500_000, 0.25, 4_500_000, 0.45, 270.0,
             1.35),
        Rung("rounding", "after block rounding", "engine: block size and least length",
             "inferred", "hits are multiples of 64 tokens, as all counts are", 2_510_000, 0.251,
             -10_000, -0.001, -0.6, -0.003),
        Rung("actual", "actually cached", "engine: what no limit above explains", "logged",
             "as the log counts", 2_100_000, 0.21, 410_000, 0.041, 24.6, 0.123),
    )  # fmt: skip


def ladder() -> Ladder:
    """The rungs with three tenants and four turns."""
    steps = rungs()

    def group(name: str, part: float, lost: int) -> Group:
        return Group(
            name, round(1_000 * part), round(TOTAL * part),
            {rung.id: round(rung.hit_tokens * part) for rung in steps},
            lost, lost * 6e-5, lost * 3e-7,
        )  # fmt: skip

    return Ladder(
        rungs=steps,
        limits=Limits(300.0, None, 4, "logged", 64, 64, {rung.id: rung.says for rung in steps}),
        seconds_basis="the cost line fitted to this log",
        money_basis="list prices of a list: a computed token against a cached one",
        currency="USD",
        groups={
            "turn": (
                group("1", 0.1, 200_000), group("2", 0.4, 2_300_000),
                group("3 and later", 0.5, 3_400_000),
            ),
            "tenant": (
                group("beta", 0.2, 900_000), group("acme", 0.5, 4_000_000),
                group("gamma", 0.3, 1_000_000),
            ),
        },
    )  # fmt: skip


def breakers() -> tuple[BreakerRecord, ...]:
    """A clock at the head of the system prompt, and tools that change places."""
    return (
        BreakerRecord(
            kind="reordered_tools",
            section="tools",
            path="tools/2",
            position_tokens=310,
            position_interval=(310, 310),
            habit="thrashing",
            requests=120,
            of_requests=1_000,
            within_session=0,
            sessions=40,
            tokens_lost=300_000,
            tokens_apart=700_000,
            seconds_lost=18.0,
            money_lost=0.09,
            examples=("logs/log.jsonl:77",),
            says="the same tools in another order, a few by turns: sort them",
        ),
        BreakerRecord(
            kind="time",
            section="system",
            path="system/0",
            position_tokens=42,
            position_interval=(40, 55),
            habit="unique",
            requests=900,
            of_requests=1_000,
            within_session=700,
            sessions=200,
            tokens_lost=2_000_000,
            tokens_apart=2_000_000,
            seconds_lost=120.0,
            money_lost=0.6,
            examples=("logs/log.jsonl:3", "logs/log.jsonl:9"),
            says="a date, a clock or a time stamp, new nearly each time: put it at the end",
            also=(AlsoRecord("id", 61),),
        ),
    )


def full() -> PrefixFindings:
    """Everything that can be known, is."""
    sizes = tuple(
        Size(1_000 * 4**n, 0.1 * 4**n, 0.8 * f, f, 0.8 * g, g)
        for n, (f, g) in enumerate(
            ((0.05, 0.1), (0.1, 0.3), (0.2, 0.6), (0.5, 0.8), (0.9, 0.97), (1.0, 1.0))
        )
    )
    return PrefixFindings(
        grade="content",
        requests=1_010,
        looked_at=1_000,
        left_out={"no blocks or no length": 10},
        input_tokens=TOTAL,
        block_tokens=16,
        sessions="logged",
        headline="80 % of the prompt tokens could come from a cache; 21 % do; most is lost "
        "because requests go to other replicas (45 % of the prompt tokens, 4,500,000, 4.5 min of "
        "prefill)",
        definitions=(
            Definition("token_share", 0.8, "prompt tokens found / all prompt tokens"),
            Definition("mean_token_ratio", 0.7, "mean over requests of found / prompt"),
        ),
        ladder=ladder(),
        capacity=Capacity(sizes, 900_000, 250_000, 25.0, 0.95, 327_680.0, "llama-3.1-70b"),
        expiry=Expiry(
            tuple(
                Lifetime(ttl, 0.8 * part, part)
                for ttl, part in ((60.0, 0.3), (300.0, 0.875), (3_600.0, 1.0))
            ),
            20.0, 200.0, 400.0, 2_000.0,
            (TtlPrice(300.0, 1.25, 0.1, 0.445, True), TtlPrice(3_600.0, 2.0, 0.1, 0.48, False)),
            1.83,
            "living 1.0 h instead of 5.0 min keeps 10 % more of the prompt tokens",
        ),
        routing=Routing(
            tuple(
                Routed(policy, n, 0.8 * kept, kept, 1 / n)
                for policy, at in (("round_robin", (0.5, 0.3)), ("prefix_affinity", (1.0, 0.98)))
                for n, kept in zip((2, 4), at, strict=True)
            ),
            Routed("logged", 4, 0.28, 0.35, 0.4),
            "the log's 4 replicas kept 35 % of what can be reused with endless caches",
        ),
        leaders=Leaders(
            (Prefix("P0", 2_000, 900, 200, 1_798_000, 1, "logs/log.jsonl"),),
            (
                Prefix("P7", 60_000, 40, 3, 2_300_000, 12, "logs/log.jsonl"),
                Prefix("P0", 2_000, 900, 200, 1_798_000, 1, "logs/log.jsonl"),
            ),
            6_000_000, 2_000_000, 0.6, 0.4,
        ),
        ancestry=Ancestry(
            0.2, 5, 0.9, 0.85,
            (Generation(1, 200, 1_000_000, 0.3), Generation(2, 800, 9_000_000, 0.85)),
        ),
        breakers=breakers(),
        breakers_says="",
        reconciled=(
            Reconciled(
                "cached tokens of each request", 0.21, 0.251, "rounding", -4.1, 6.0, 50_000,
                460_000, (Gap("replica", "r3", 240, 800_000, 390_000),),
                "the engine found 21 % of the tokens; the model after rounding says 25 %",
            ),
        ),
        notes=("blocks were cut from text, 4.1 bytes a token",),
        lacks=("no size is known or to be seen: the cache is endless (--cache-tokens)",),
    )  # fmt: skip


def coarse() -> PrefixFindings:
    """A log that counts cached tokens and nothing else."""
    steps = tuple(
        dataclasses.replace(rung, basis="inferred" if rung.id == "ideal" else rung.basis)
        for rung in rungs()
        if rung.id in ("ideal", "expiry", "routing", "actual")
    )
    whole = full()
    return PrefixFindings(
        grade="reported",
        requests=1_000,
        looked_at=1_000,
        left_out={},
        input_tokens=TOTAL,
        block_tokens=None,
        sessions="linked",
        headline="at most 80 % of the prompt tokens could come from a cache; 21 % do",
        ladder=dataclasses.replace(
            ladder(), rungs=steps, groups={}, currency=None, money_basis=None, seconds_basis=None
        ),
        lacks=whole.lacks,
    )


def silent() -> PrefixFindings:
    """Blocks, but no limit that is known: nothing tells what is lost."""
    steps = tuple(
        dataclasses.replace(
            rung, basis="exact" if rung.id == "ideal" else "unknown", hit_tokens=8_000_000,
            share=0.8, lost_tokens=0, lost_share=0.0, lost_seconds=None, lost_money=None,
        )
        for rung in rungs()[:-1]
    )  # fmt: skip
    return dataclasses.replace(
        full(),
        headline="80 % of the prompt tokens could come from a cache, if it were endless and "
        "shared by all; what the engine kept is not logged",
        ladder=dataclasses.replace(
            ladder(), rungs=steps, groups={}, seconds_basis=None, money_basis=None, currency=None
        ),
        breakers=(),
        breakers_says="no prompt breaks off where it should go on, of 900 pairs looked at",
        reconciled=(),
    )


def nothing() -> PrefixFindings:
    """A log that tells nothing of what prompts share."""
    return PrefixFindings(
        grade="none",
        requests=5,
        looked_at=0,
        left_out={"nothing tells what prompts share": 5},
        input_tokens=0,
        block_tokens=None,
        sessions="none",
        headline="the log does not tell what its prompts share",
        lacks=("prompts (messages, prompt), token ids or block hashes would tell exactly",),
    )


def hostile(bad: Sequence[str]) -> PrefixFindings:
    """Everything again, with every name and text in the log chosen by an enemy."""
    base = full()
    assert base.ladder is not None
    assert base.capacity is not None
    assert base.expiry is not None
    assert base.routing is not None
    assert base.leaders is not None
    whole = " ".join(bad)
    first = base.ladder.groups["tenant"][0]
    return dataclasses.replace(
        base,
        left_out=dict.fromkeys(bad, 1),
        headline=whole,
        definitions=tuple(Definition(text, 0.5, text) for text in bad),
        ladder=dataclasses.replace(
            base.ladder,
            rungs=tuple(
                dataclasses.replace(rung, says=f"{bad[at]} {whole}", owner=bad[at])
                for at, rung in enumerate(base.ladder.rungs)
            ),
            seconds_basis=bad[1],
            money_basis=bad[4],
            currency=bad[0],
            groups={
                name: tuple(dataclasses.replace(first, name=text) for text in bad)
                for name in ("tenant", "route", "model", bad[3])
            },
        ),
        capacity=dataclasses.replace(base.capacity, kv_shape=bad[3]),
        expiry=dataclasses.replace(base.expiry, says=bad[5]),
        routing=dataclasses.replace(
            base.routing,
            policies=(*base.routing.policies, Routed(bad[1], 2, 0.1, 0.1, 0.5)),
            says=bad[2],
        ),
        leaders=dataclasses.replace(
            base.leaders,
            by_tokens=tuple(Prefix(text, 10, 2, 1, 10, 1, f"logs/{text}") for text in bad),
        ),
        breakers=tuple(
            dataclasses.replace(
                base.breakers[0], kind=text, section=text, path=text, says=text, before=text,
                after=text, examples=(text, text), also=(AlsoRecord(text, 1),),
            )
            for text in bad
        ),
        breakers_says=whole,
        reconciled=tuple(
            Reconciled(text, 0.1, 0.2, text, -10.0, 1.0, 1, 2, (Gap(text, text, 1, 2, 3),), text)
            for text in bad
        ),
        notes=tuple(bad),
        lacks=tuple(bad),
    )  # fmt: skip


def report(found: PrefixFindings, path: str = "logs/log.jsonl") -> PrefixReport:
    """The findings in a report of one file of which one row was not read."""
    inputs = (Input(path, "flat", 1_011, 1_010, {"not_json": 1}, ((7, "not_json"),), {}),)
    return PrefixReport("0.0.0", inputs, found, ("a warning",))


ALL = {"full": full, "coarse": coarse, "silent": silent, "nothing": nothing}
