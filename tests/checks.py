"""Answers of the gate made by hand: one of each outcome, and one in which every text is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ttftdoctor.diagnosis import Input
from ttftdoctor.gate.records import Check, Checked, Moved, Population, Scope

BASELINE = Population(
    label="main", inputs=(Input("logs/main.jsonl", "flat", 2010, 2000, {"no start": 10}),),
    requests=2000, sessions=410, runs=5, warm_up_requests=40, covered_share=0.97,
    models=("chat-70b",), start="2026-03-02T10:00:00Z", end="2026-03-02T11:00:00Z",
)  # fmt: skip
CURRENT = Population(
    label="pull request", inputs=(Input("logs/canary.jsonl", "flat", 1800, 1800),),
    requests=1800, sessions=380, runs=1, warm_up_requests=0, covered_share=0.94,
    models=("chat-70b",), start="2026-03-03T14:00:00Z", end="2026-03-03T15:00:00Z",
)  # fmt: skip
P95 = Checked(
    metric="ttft_p95", title="TTFT p95", unit="s", scope=Scope(), outcome="fail", worse="up",
    says="TTFT p95 2.10 s → 2.48 s at equal mix, +18 % (+12 % to +25 %), beyond 10 % and 20 ms",
    baseline=2.1, current=2.478, change=0.378, change_share=0.18, interval=(0.252, 0.525),
    raw_baseline=2.1, raw_current=2.751, raw_change=0.651, raw_change_share=0.31,
    p_value=0.0001, p_adjusted=0.0012, limit=0.02, limit_share=0.1, smallest=0.09,
)  # fmt: skip
SLOPE = Checked(
    metric="prefill_slope", title="prefill per 1,000 tokens", unit="ms_per_1k_tokens",
    scope=Scope(model="chat-70b"), outcome="pass", worse="up",
    says="prefill 72.1 ms → 72.4 ms per 1,000 tokens, +0.4 %", baseline=72.1, current=72.4,
    change=0.3, change_share=0.00416, interval=(-1.2, 1.8), raw_baseline=72.1, raw_current=72.4,
    raw_change=0.3, raw_change_share=0.00416, p_value=0.3, p_adjusted=1.0, limit=2.0,
    limit_share=0.05, smallest=2.2,
)  # fmt: skip
HITS = Checked(
    metric="hit_share", title="tokens served from a cache", unit="share",
    scope=Scope(route="/chat"), outcome="inconclusive", worse="down",
    says="the share may have fallen by 4 points; it takes 6,000 requests a side to tell",
    baseline=0.81, current=0.77, change=-0.04, interval=(-0.09, 0.01), raw_baseline=0.81,
    raw_current=0.72, raw_change=-0.09, p_value=0.06, p_adjusted=0.2, limit=0.05, smallest=0.07,
    requests_needed=6000,
)  # fmt: skip
BUDGET = Checked(
    metric="ttft_p95", title="TTFT p95", unit="s", scope=Scope(), outcome="pass", worse="up",
    says="TTFT p95 is 640 ms at input <= 8000, below 800 ms", current=0.64,
    budget="chat: ttft_p95 < 800ms at input <= 8000",
)  # fmt: skip
MOVED = (
    Moved(
        "hit_share",
        "cached share fell from 81 % to 3 % after 14:05 on route /chat; same content: the prefix "
        "changes at token 212",
        {"before": 0.81, "after": 0.03, "position_tokens": 212.0},
    ),
    Moved("decode_contention", "decode takes 33 ms a token instead of 30", {"after": 33.0}),
)

FAIL = Check(
    version="0.1.0", outcome="fail",
    headline="FAIL: TTFT p95 +18 % at equal mix (raw +31 %)",
    baseline=BASELINE, current=CURRENT, metrics=(SLOPE, P95, HITS, BUDGET), moved=MOVED,
    notes=("compared in 41 cells of like model, turn, uncached length and cached part",),
    warnings=("3.1 % of the requests failed",), policy="ttftdoctor.toml",
)  # fmt: skip
PASS = replace(
    FAIL, outcome="pass", headline="PASS: TTFT p95 +0.4 % at equal mix (raw +22 %)",
    metrics=(
        replace(
            P95, outcome="pass", says="TTFT p95 2.10 s → 2.11 s at equal mix, +0.4 %",
            current=2.1084, change=0.0084, change_share=0.004, interval=(-0.042, 0.063),
            raw_current=2.562, raw_change=0.462, raw_change_share=0.22, p_adjusted=1.0,
        ),
        SLOPE,
    ),
    moved=(), warnings=(), policy=None,
)  # fmt: skip
INCONCLUSIVE = replace(
    FAIL, outcome="inconclusive",
    headline="INCONCLUSIVE: a change of 9 points of the hit share would have gone unseen",
    metrics=(SLOPE, HITS), moved=(), warnings=(),
)  # fmt: skip
STRICT = replace(INCONCLUSIVE, inconclusive_fails=True)
INVALID = replace(
    FAIL, outcome="invalid", headline="INVALID: the two sides served different models",
    metrics=(), moved=(), reasons=("baseline served chat-70b, now chat-8b",), warnings=(),
)  # fmt: skip
ALL = {
    "fail": FAIL, "pass": PASS, "inconclusive": INCONCLUSIVE, "strict": STRICT, "invalid": INVALID,
}  # fmt: skip

#: What a log may hold: escapes, control characters, markup, commands of a runner, lone surrogates.
NASTY = (
    "/x\x1b[31m<b>|`*_\n::error::boo\r##[add-mask]x,:%0A]]>&\x00\x0b\u202e\ud800\uffff@all #1 "
    "https://a.example =1+1"
)


def hostile() -> Check:
    """A check in which every text that is free is :data:`NASTY`."""

    def soil(value: Any, name: str = "") -> Any:
        if name in ("outcome", "unit", "worse"):
            return value
        if isinstance(value, str):
            return NASTY
        if isinstance(value, tuple):
            return tuple(soil(v) for v in value)
        if isinstance(value, dict):
            return {NASTY if isinstance(k, str) else k: v for k, v in value.items()}
        if hasattr(value, "__dataclass_fields__"):
            return replace(value, **{k: soil(getattr(value, k), k) for k in value.__match_args__})
        return value

    found = soil(FAIL)
    assert isinstance(found, Check)
    return replace(found, metrics=(*found.metrics, replace(found.metrics[0], outcome="invalid")))


def many(n: int) -> Check:
    """A check of so many metrics, each with a long sentence and a long route."""
    metrics = tuple(
        replace(P95, scope=Scope(route=f"/{at}/" + "x" * 400), says="long " * 200)
        for at in range(n)
    )
    return replace(FAIL, metrics=metrics, warnings=("w" * 3000,) * 500, notes=("n" * 900,) * 300)
