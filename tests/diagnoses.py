"""Diagnoses to render: sick, healthy, insufficient, prefix only, and one from a hostile log."""

from __future__ import annotations

import dataclasses

import findings

from ttftdoctor.diagnosis import (
    Amplifier,
    Bin,
    Charts,
    CostLines,
    DecodeLine,
    Diagnosis,
    Experiment,
    Finding,
    Floor,
    Gain,
    Grades,
    Input,
    LedgerRow,
    Money,
    Population,
    PrefillLine,
    PricedModel,
    RepeatedPrefix,
    Slice,
    Slo,
    Splits,
    Statement,
    Verdict,
    WorstRow,
)

VERSION = "0.0.0"
CAUSES = (
    ("repeated_prefix_no_reuse", "prefix"),
    ("cache_eviction", "prefix"),
    ("cache_busting_prefix", "prefix"),
    ("affinity_loss", "prefix"),
    ("queueing_saturation", "load"),
    ("decode_contention", "load"),
    ("organic_long_input", "input"),
    ("cold_start", "service"),
    ("fixed_overhead", "service"),
    ("deploy_regression", "service"),
    ("retry_or_ratelimit", "service"),
    ("measurement_artifact", "data"),
    ("insufficient_data", "data"),
    ("healthy", "none"),
)


def _prefill(tokens: float) -> float:
    """Seconds of prefill for new tokens in thousands, of the server retold here."""
    return 0.06 + 0.073 * tokens + 0.0005 * tokens * tokens / 2


def _by_turn(*, cached: bool = False) -> tuple[Slice, ...]:
    out = []
    for turn in range(1, 9):
        length = 1_900 + 2_900 * (turn - 1)
        fresh = length if not cached or turn == 1 else 1_150
        wait = 0.004 if cached else 0.05 + 0.03 * turn
        ttft = _prefill(fresh / 1000) + wait + (0.0006 * length / 1000 if cached else 0)
        out.append(
            Slice(
                key={"turn": turn},
                n=480 - 27 * (turn - 1),
                input_p50=float(length),
                uncached_p50=float(fresh),
                ttft_p50_s=round(ttft, 4),
                ttft_p95_s=round(ttft * (1.35 if cached else 1.9), 4),
                tpot_p50_s=round(0.0302 + 0.00002 * turn, 6),
            )
        )
    return tuple(out)


_BANDS = ((0, 2_000), (2_000, 5_000), (5_000, 10_000), (10_000, 20_000), (20_000, 40_000))


def _by_length(*, cached: bool = False) -> tuple[Slice, ...]:
    out = []
    for (low, high), n in zip(_BANDS, (377, 512, 768, 1_021, 403), strict=True):
        middle = (low + high) / 2
        fresh = min(middle, 1_200) if cached else middle
        ttft = _prefill(fresh / 1000) + (0.01 if cached else 0.12)
        out.append(
            Slice(
                key={"input_tokens_from": low, "input_tokens_to": high},
                n=n,
                input_p50=middle,
                uncached_p50=fresh,
                ttft_p50_s=round(ttft, 4),
                ttft_p95_s=round(1.8 * ttft, 4),
                tpot_p50_s=0.0303,
            )
        )
    return tuple(out)


def _turn_by_length() -> tuple[Slice, ...]:
    out = []
    for turn in range(1, 9):
        for at, (low, high) in enumerate(_BANDS):
            if abs(at - (turn - 1) / 1.6) > 1.6:
                continue
            middle = (low + high) / 2
            out.append(
                Slice(
                    key={"turn": turn, "input_tokens_from": low, "input_tokens_to": high},
                    n=40 + 7 * turn,
                    input_p50=middle,
                    uncached_p50=middle,
                    ttft_p50_s=round(_prefill(middle / 1000) + 0.01 * turn, 4),
                    ttft_p95_s=None,
                    tpot_p50_s=0.0303,
                )
            )
    return tuple(out)


def _bins(*, cached: bool = False) -> tuple[Bin, ...]:
    out = []
    for at in range(1, 13 if cached else 27):
        tokens = (120 if cached else 900) * at
        base = _prefill(tokens / 1000)
        for step, part in enumerate((0.40, 0.28, 0.16, 0.08)):
            n = int((150 if cached else 130) * part * (1.2 - at / 30))
            if n:
                out.append(Bin(x=float(tokens), y=round(base + 0.09 * step * step, 4), n=n))
    return tuple(out)


def _line(top: float) -> tuple[tuple[float, float, float, float], ...]:
    points = []
    for at in range(13):
        tokens = top * at / 12
        y = _prefill(tokens / 1000)
        points.append((tokens, round(y, 4), round(0.97 * y - 0.005, 4), round(1.03 * y + 0.005, 4)))
    return tuple(points)


def _load() -> tuple[dict[str, object], ...]:
    out: list[dict[str, object]] = []
    for at in range(32):
        hour, minute = 9 + at // 4, 15 * (at % 4)
        peak = 15 <= hour < 17
        running = (9.5 if peak else 2.1) + (at % 4) * 0.4
        out.append(
            {
                "t": f"2026-03-10T{hour:02d}:{minute:02d}:00Z",
                "running": running,
                "ttft_p50_s": round((1.23 if peak else 1.07) + 0.02 * (at % 3), 3),
                "peak": peak,
            }
        )
    return tuple(out)


def _ledger(*rows: tuple[str, int, tuple[float, ...]]) -> tuple[LedgerRow, ...]:
    names = (
        "fixed",
        "queue_behind_repeated",
        "queue_behind_new",
        "queue_other",
        "prefill_repeated",
        "prefill_new",
        "unexplained",
    )
    return tuple(
        LedgerRow(
            group=group,
            n=n,
            ttft_mean_s=round(sum(figures), 6),
            accounts=dict(zip(names, figures, strict=True)),
        )
        for group, n, figures in rows
    )


def _gain(
    ident: str,
    title: str,
    mean: float | None,
    today: float,
    applies: tuple[str, ...],
    cost: str,
    *assumptions: str,
) -> Gain:
    cut = None if mean is None else round(1 - mean / today, 4)
    return Gain(
        id=ident,
        title=title,
        ttft_mean_s=mean,
        ttft_p50_s=None if mean is None else round(0.95 * mean, 4),
        ttft_p95_s=None if mean is None else round(1.9 * mean, 4),
        gain_share=cut,
        interval=None if cut is None else (round(cut - 0.03, 4), round(cut + 0.02, 4)),
        assumptions=assumptions,
        cost=cost,
        applies_to=applies,
    )


def _worst(
    ident: str | None, session: str, turn: int, start: str, ttft: float, seconds: float
) -> WorstRow:
    return WorstRow(
        request_id=ident, path="logs/2026-03-10.jsonl.gz", line=1_904, session_id=session,
        turn=turn, start=start, ttft_s=ttft, seconds=seconds,
    )  # fmt: skip


def sick() -> Diagnosis:
    """A chat service without prefix caching, at its worst in the afternoon peak."""
    judged: dict[str, Finding] = {
        "repeated_prefix_no_reuse": Finding(
            id="repeated_prefix_no_reuse",
            family="prefix",
            status="primary",
            seconds=1.0042,
            share_of_ttft=0.741,
            share_of_growth=0.93,
            interval=(0.955, 1.048),
            evidence=(
                Statement(
                    "74 % of the 41.3 M prompt tokens had been computed by an earlier turn of the "
                    "same session, and none of them came from a cache.",
                    {"repeated_share": 0.741, "cached_tokens": 0},
                ),
                Statement(
                    "The median TTFT grows from 279 ms at turn 1 to 2.08 s at turn 8 while the new "
                    "text of a turn stays near 1,150 tokens.",
                    {"ttft_turn_1_s": 0.279, "ttft_turn_8_s": 2.08},
                ),
                Statement(
                    "At equal prompt length, turn 2 costs what turn 1 costs (1.00 times, 0.97 to "
                    "1.04): nothing is reused.",
                    {"ratio": 1.0},
                ),
                Statement(
                    "77 % of the waiting is waiting behind prefill of repeated tokens.",
                    {"queue_behind_repeated_share": 0.773},
                ),
                Statement(
                    "Decode stays at 30.3 ms per token at every turn, so the server is not slower "
                    "in general.",
                    {"tpot_p50_s": 0.0303},
                ),
                Statement(
                    "New input explains 7 % of the growth from early to late turns.",
                    {"share_of_growth": 0.07},
                ),
            ),
            confidence=0.94,
            rows=(
                _worst("r-0815", "s12", 6, "2026-03-10T15:04:05Z", 2.41, 1.77),
                _worst(None, "s31", 8, "2026-03-10T15:40:11Z", 2.2, 1.7),
            ),
            worked_example=Statement(
                "request r-0815 (session s12, turn 6): 2.41 s = 60 ms fixed + 1.83 s of prefill "
                "for 25,120 tokens (24,300 of them repeated: 1.77 s) + 480 ms waiting (390 ms "
                "behind repeated prefill) + 40 ms unexplained; 1.77 s of it laid to "
                "repeated_prefix_no_reuse",
                {"ttft_s": 2.41, "fixed_s": 0.06},
            ),
        ),
        "queueing_saturation": Finding(
            id="queueing_saturation",
            family="load",
            status="contributing",
            seconds=0.2493,
            share_of_ttft=0.184,
            share_of_growth=0.11,
            interval=(0.21, 0.29),
            evidence=(
                Statement(
                    "In the peak a request waits 372 ms, off-peak 34 ms.",
                    {"peak_s": 0.372, "off_peak_s": 0.034},
                ),
            ),
            confidence=0.88,
        ),
        "organic_long_input": Finding(
            id="organic_long_input",
            family="input",
            status="minor",
            seconds=0.093,
            share_of_ttft=0.069,
            share_of_growth=0.03,
            evidence=(Statement("A turn brings 1,150 new tokens at the median.", {"p50": 1150}),),
            confidence=0.8,
        ),
        "deploy_regression": Finding(
            id="deploy_regression",
            family="service",
            status="ruled_out",
            seconds=0.0,
            share_of_ttft=0.0,
            evidence=(Statement("The cost per token is the same all day (within 2 %).", {}),),
            confidence=0.9,
            ruled_out_because="the cost per token is the same all day (within 2 %)",
        ),
        "retry_or_ratelimit": Finding(
            id="retry_or_ratelimit",
            family="service",
            status="unjudged",
            needs=("attempts", "status"),
        ),
        "affinity_loss": Finding(
            id="affinity_loss", family="prefix", status="unjudged", needs=("replica",)
        ),
    }
    today = 1.356
    prefix = ("repeated_prefix_no_reuse", "cache_eviction", "cache_busting_prefix")
    return Diagnosis(
        version=VERSION,
        inputs=(
            Input(
                path="logs/2026-03-10.jsonl.gz",
                format="flat",
                rows_read=3_087,
                rows_used=3_081,
                rows_rejected={"wrong_type:ttft_ms": 4, "no_start": 2},
                first_rejects=((118, "wrong_type:ttft_ms"), (740, "no_start")),
                ttft_set_aside={"not_streamed": 12, "status_error": 9},
            ),
        ),
        population=Population(
            requests=3_081,
            sessions=480,
            turns_max=8,
            start="2026-03-10T09:00:04Z",
            end="2026-03-10T16:59:41Z",
            with_ttft=3_060,
            vantage="server",
            ttft_mean_s=today,
            ttft_p50_s=1.181,
            ttft_p95_s=3.321,
        ),
        evidence=Grades(
            session="logged",
            reuse="inferred",
            queue="inferred",
            notes=(
                "Reuse is inferred from session arithmetic, which gives an upper bound.",
                "The first log line says the unit of ttft_ms is milliseconds; kept.",
            ),
        ),
        verdict=Verdict(
            primary_cause="repeated_prefix_no_reuse",
            family="prefix",
            confidence=0.94,
            headline="Every turn prefills the whole conversation again: 74 % of the mean TTFT is "
            "work already done, and the queue in the peak is mostly that same work.",
            contributing=("queueing_saturation",),
            amplifiers=(
                Amplifier(
                    id="queueing_saturation",
                    share_of_ttft=0.184,
                    text="requests wait behind repeated prefill; most of the wait goes with it",
                ),
            ),
            next_steps=(
                "Switch on automatic prefix caching in the server; log its cached-token counter.",
                "Log the replica of each request, so that lost affinity can be judged.",
            ),
            experiment=Experiment(
                "Serve an hour with prefix caching on and log it as after.jsonl.",
                "ttftdoctor compare logs/2026-03-10.jsonl.gz after.jsonl --remedy prefix_cache",
            ),
        ),
        causes=tuple(
            judged.get(ident)
            or Finding(
                id=ident,
                family=family,
                status="ruled_out",
                seconds=0.0,
                share_of_ttft=0.0,
                confidence=0.8,
            )
            for ident, family in CAUSES
        ),
        ledger=_ledger(
            ("all", 3_060, (0.060, 0.193, 0.056, 0.0, 0.811, 0.211, 0.025)),
            ("early_turns", 907, (0.060, 0.104, 0.042, 0.0, 0.083, 0.178, 0.012)),
            ("late_turns", 1_120, (0.060, 0.251, 0.066, 0.0, 1.402, 0.224, 0.038)),
            ("off_peak", 1_108, (0.060, 0.026, 0.008, 0.0, 0.828, 0.214, 0.021)),
            ("peak", 1_952, (0.060, 0.287, 0.084, 0.0, 0.802, 0.209, 0.027)),
        ),
        splits=Splits(
            by_turn=_by_turn(),
            by_input_length=_by_length(),
            turn_by_length=_turn_by_length(),
            by_hour=tuple(
                Slice(
                    key={"hour": f"2026-03-10T{hour:02d}:00Z"},
                    n=278 if hour < 13 else 490,
                    input_p50=13_390.0,
                    uncached_p50=13_390.0,
                    ttft_p50_s=1.07 if hour < 15 else 1.23,
                    ttft_p95_s=2.55 if hour < 15 else 3.72,
                    tpot_p50_s=0.0303,
                )
                for hour in range(9, 17)
            ),
            by_model=(
                Slice({"model": "chat-large"}, 3_081, 13_390.0, 13_390.0, 1.181, 3.321, 0.0303),
            ),
        ),
        cost_lines=CostLines(
            prefill=PrefillLine(
                fixed_ms=61.2,
                ms_per_1k_tokens=73.4,
                fixed_ms_interval=(55.0, 68.1),
                ms_per_1k_tokens_interval=(72.0, 74.6),
                ms_per_1k_tokens_per_1k_context=0.49,
                ms_per_1k_tokens_per_1k_context_interval=(0.38, 0.6),
                ms_per_1k_context=None,
                n=1_108,
                method="25 % quantile of requests that found no backlog",
                residual_p50_ms=4.1,
            ),
            decode=DecodeLine(
                ms_per_token=30.3,
                ms_per_token_interval=(30.1, 30.5),
                slope_per_1k_context_ms=0.011,
                slope_per_running_ms=0.05,
                n=3_055,
                method="median of (E2E - TTFT) / (output - 1)",
            ),
        ),
        repeated_prefix=RepeatedPrefix(
            grade="inferred",
            input_tokens=41_254_786,
            repeated_tokens=30_559_898,
            cached_tokens=0,
            recomputed_tokens=30_559_898,
            recomputed_share=0.7408,
            bounds=(29_100_000, 30_559_898),
            prefill_seconds_wasted=2_480.0,
            money=Money(
                currency="USD",
                amount=15.28,
                price_source="genai-prices 0.0.0",
                price_date="2026-03-10",
                interval=(14.55, 15.28),
                per_day=45.84,
                input_spent=20.63,
                output_spent=3.11,
                tokens_priced_share=0.97,
                models=(
                    PricedModel(
                        "chat-large",
                        "example/chat-large",
                        40_000_000,
                        0.55,
                        0.05,
                        None,
                        2.2,
                        None,
                        "2026-01-01",
                    ),
                ),
                refused=("chat-small",),
                assumed=("list prices for single requests: no discount, batch or other tier",),
            ),
            basis="this turn's input less the input and output of the turn before",
        ),
        remedies=(
            _gain(
                "prefix_cache",
                "Keep computed prefixes (prefix cache)",
                0.352,
                today,
                prefix,
                "GPU memory for about 1.1 M tokens of live context",
                "a session returns to the replica that holds its prefix",
                "the prompt template keeps its head unchanged",
            ),
            _gain(
                "history_compaction",
                "Compact the history from turn 4 on",
                0.742,
                today,
                ("repeated_prefix_no_reuse", "organic_long_input"),
                "an inference of its own per compaction, and loss of detail",
                "a summary of 1,200 tokens stands for the turns before",
            ),
            _gain(
                "double_capacity",
                "Twice the replicas",
                1.131,
                today,
                ("queueing_saturation",),
                "twice the hardware; the repeated work stays",
                "arrivals spread evenly",
            ),
            _gain(
                "chunked_prefill",
                "Chunked prefill",
                1.371,
                today,
                ("decode_contention",),
                "changes who waits, not the work",
            ),
            _gain(
                "shed_peak",
                "Move or shed the peak",
                None,
                today,
                ("queueing_saturation",),
                "requests refused or late",
                "not predicted: the log does not say which requests can wait",
            ),
        ),
        slo=Slo(target_s=1.0, attainment=0.431, goodput_per_s=0.046),
        floor=Floor(
            prefill_ms_per_1k_tokens=41.0,
            decode_ms_per_token=17.9,
            prefill_times_floor=1.79,
            decode_times_floor=1.69,
            text="From 70 B parameters at 8 bits on the hardware given.",
        ),
        warnings=(
            "Turn and prompt length rise together in this log; they are told apart by 61 late "
            "turns with short prompts.",
            "6 of 3,087 rows were rejected.",
        ),
        charts=Charts(ttft_by_uncached=_bins(), line_points=_line(24_000), load=_load()),
    )


def healthy() -> Diagnosis:
    """The same service with reuse: flat in turns."""
    return Diagnosis(
        version=VERSION,
        inputs=(Input("logs/healthy.csv", "flat", 2_904, 2_904),),
        population=Population(
            2_904,
            450,
            8,
            "2026-03-11T09:00:00Z",
            "2026-03-11T17:00:00Z",
            2_904,
            "client",
            0.171,
            0.152,
            0.322,
        ),
        evidence=Grades("logged", "reported", "inferred", ("Reuse is as the server reports it.",)),
        verdict=Verdict(
            primary_cause="healthy",
            family="none",
            confidence=0.91,
            headline="Nothing is wrong: TTFT follows the new tokens of a turn, and 91 % of "
            "repeated tokens come from the cache.",
        ),
        causes=tuple(
            Finding(
                id=ident,
                family=family,
                status="primary" if ident == "healthy" else "ruled_out",
                evidence=(
                    (
                        Statement("The median TTFT is 200 ms at turn 1, 153 ms at turn 8.", {}),
                        Statement("A request waits 4 ms on average, in the peak 9 ms.", {}),
                        Statement("91 % of repeated prompt tokens come from the cache.", {}),
                    )
                    if ident == "healthy"
                    else ()
                ),
                confidence=0.91 if ident == "healthy" else 0.85,
            )
            for ident, family in CAUSES
        ),
        ledger=_ledger(
            ("all", 2_904, (0.060, 0.002, 0.002, 0.0, 0.011, 0.090, 0.006)),
            ("early_turns", 905, (0.060, 0.002, 0.002, 0.0, 0.002, 0.101, 0.006)),
            ("late_turns", 1_010, (0.060, 0.002, 0.002, 0.0, 0.016, 0.085, 0.006)),
        ),
        splits=Splits(by_turn=_by_turn(cached=True), by_input_length=_by_length(cached=True)),
        cost_lines=CostLines(
            prefill=PrefillLine(
                60.4,
                72.9,
                (58.0, 63.0),
                (71.5, 74.4),
                None,
                None,
                0.6,
                2_100,
                "25 % quantile of requests that found no backlog",
                3.0,
            ),
            decode=DecodeLine(
                30.2, (30.1, 30.3), 0.01, None, 2_900, "median of (E2E - TTFT) / (output - 1)"
            ),
        ),
        repeated_prefix=RepeatedPrefix(
            "reported",
            38_100_000,
            28_000_000,
            25_500_000,
            2_500_000,
            0.0656,
            None,
            190.0,
            None,
            "cached-token counter of the server",
        ),
        charts=Charts(ttft_by_uncached=_bins(cached=True), line_points=_line(1_600)),
    )


def insufficient() -> Diagnosis:
    """Forty rows with a TTFT and nothing else."""
    return Diagnosis(
        version=VERSION,
        inputs=(
            Input("ttft.csv", "flat", 41, 40, {"wrong_type:ttft": 1}, ((1, "wrong_type:ttft"),)),
        ),
        population=Population(40, None, None, None, None, 40, None, 4.1, 3.2, 9.9),
        evidence=Grades("none", "none", "none"),
        verdict=Verdict(
            primary_cause="insufficient_data",
            family="data",
            confidence=1.0,
            headline="The log has a TTFT but neither prompt tokens nor start times, so nothing can "
            "be told apart.",
            next_steps=(
                "Log prompt tokens, cached tokens and the start of each request.",
                "Log a session id, or the prompt's block hashes.",
            ),
        ),
        causes=tuple(
            Finding(
                id=ident,
                family=family,
                status="primary" if ident == "insufficient_data" else "unjudged",
                evidence=(
                    (Statement("Of 17 columns the log has 1: ttft_us.", {"columns": 1}),)
                    if ident == "insufficient_data"
                    else ()
                ),
                needs=() if ident == "insufficient_data" else ("input_tokens", "start"),
                confidence=1.0 if ident == "insufficient_data" else 0.0,
            )
            for ident, family in CAUSES
            if ident != "healthy"
        ),
        ledger=_ledger(("all", 40, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.1))),
        splits=Splits(),
        cost_lines=CostLines(),
        repeated_prefix=RepeatedPrefix("none", 0, None, None, None, None, None, None),
        warnings=("The TTFT column has no unit; seconds were assumed from its size.",),
    )


def prefix_only() -> Diagnosis:
    """A trace of prompt blocks without any TTFT: only the repeated prefix can be told."""
    return Diagnosis(
        version=VERSION,
        inputs=(Input("trace.jsonl", "mooncake", 12_031, 12_031),),
        population=Population(12_031, 3_402, 12, None, None, 0, None),
        evidence=Grades(
            "linked", "content", "none", ("Sessions were linked by shared prompt blocks.",)
        ),
        verdict=Verdict(
            primary_cause="insufficient_data",
            family="data",
            confidence=1.0,
            headline="The log has no TTFT. Its prompts show that 52 % of their tokens had been "
            "computed before.",
            next_steps=(
                "Run `ttftdoctor prefix` on this log for the cache size that would keep them.",
            ),
        ),
        causes=tuple(
            Finding(
                id=ident,
                family=family,
                status="primary" if ident == "insufficient_data" else "unjudged",
                needs=() if ident == "insufficient_data" else ("ttft_us",),
                confidence=1.0 if ident == "insufficient_data" else 0.0,
            )
            for ident, family in CAUSES
            if ident != "healthy"
        ),
        ledger=(),
        splits=Splits(
            by_turn=tuple(
                Slice({"turn": turn}, 3_402 // turn, 2_000.0 * turn, None, None, None, None)
                for turn in range(1, 13)
            ),
            by_hour=tuple(
                Slice({"hour": hour}, 4_000 + hour, 9_000.0, None, None, None, None)
                for hour in range(3)
            ),
        ),
        cost_lines=CostLines(),
        repeated_prefix=RepeatedPrefix(
            "content",
            144_000_000,
            74_900_000,
            None,
            None,
            None,
            None,
            None,
            None,
            "chained hashes of 512-token blocks, any replica",
        ),
        warnings=("No row has a TTFT: causes of slowness cannot be judged.",),
    )


#: What a log can hold where a name is expected.
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "\x9b2J",
    "[click](http://evil.example) ![x](javascript:alert(1)) <http://evil.example>",
    "http://evil.example/path www.evil.example a@evil.example @everyone #1",
    "</script><img src=x onerror=alert(1)>",
    "abc\u202etxt.exe\u2066\u200b\u2028\u2029",
    "a|b|c\n\n# heading\n- item\r\n```\n~~~",
    "`code` *bold* __bold__ ~~gone~~ $x$ \\",
    "' onmouseover='alert(1)' \" onfocus=\"alert(1)",
    "%{x} <b>bold</b><br><a href='http://evil.example'>link</a> &lt;i&gt; &amp;",
    "[bold red]markup[/bold red] :smile: {{7*7}} ${7*7}",
    "\ud800 lone",
    "1. one",
    "x" * 3000,
)


def hostile() -> Diagnosis:
    """The sick service again, with every name in the log chosen by an enemy."""
    base = sick()
    bad = HOSTILE
    whole = " ".join(bad[:13])
    first = base.causes[0]
    return dataclasses.replace(
        base,
        inputs=tuple(
            Input(
                path=f"logs/{text}.jsonl",
                format="flat",
                rows_read=10,
                rows_used=8,
                rows_rejected={f"wrong_type:{text}": 2},
                first_rejects=((3, f"wrong_type:{text}"),),
                ttft_set_aside={text: 1},
            )
            for text in bad
        ),
        population=dataclasses.replace(base.population, vantage=bad[0], start=bad[1], end=bad[6]),
        evidence=dataclasses.replace(base.evidence, notes=bad[:13]),
        verdict=dataclasses.replace(
            base.verdict,
            headline=f"Slow: {whole}",
            scope={"model": bad[0], "route": bad[3], "tenant": bad[7], "replica": bad[1]},
            amplifiers=(Amplifier(id="queueing_saturation", share_of_ttft=0.2, text=whole),),
            next_steps=bad[:13],
            experiment=Experiment(whole, f"ttftdoctor compare {whole}"),
        ),
        causes=(
            dataclasses.replace(
                first,
                evidence=tuple(Statement(text, {"name": text}) for text in bad),
                needs=bad[:6],
                rows=tuple(
                    WorstRow(text, text, 1, text, 1, text, 2.0, 1.0) for text in (*bad[:4], bad[14])
                ),
                worked_example=Statement(f"request {whole}: 2.00 s = 2.00 s unexplained", {}),
            ),
            *(
                dataclasses.replace(f, ruled_out_because=bad[at % len(bad)])
                if f.status == "ruled_out"
                else f
                for at, f in enumerate(base.causes[1:])
            ),
        ),
        splits=dataclasses.replace(
            base.splits,
            by_replica=tuple(
                Slice({"replica": text}, 10, 100.0, 100.0, 0.1, 0.2, 0.03) for text in bad
            ),
            by_model=tuple(
                Slice({"model": text}, 10, 100.0, 100.0, 0.1, 0.2, 0.03) for text in bad
            ),
        ),
        repeated_prefix=dataclasses.replace(
            base.repeated_prefix,
            basis=bad[3],
            money=Money(
                currency=bad[0],
                amount=1.0,
                price_source=bad[4],
                price_date=bad[1],
                models=(PricedModel(bad[2], bad[3], 10, 1.0, None, None, None, None, bad[6]),),
                refused=bad[:6],
                assumed=(bad[5],),
            ),
        ),
        remedies=(
            dataclasses.replace(
                base.remedies[0], title=bad[10], cost=bad[7], assumptions=(bad[0], bad[3])
            ),
            *base.remedies[1:],
        ),
        warnings=bad[:13],
        prefix=findings.hostile(bad[:13]),
        charts=dataclasses.replace(
            base.charts,
            load=tuple({**point, "t": bad[10]} for point in base.charts.load[:3])
            + base.charts.load[3:],
        ),
    )


def ladder() -> Diagnosis:
    """The sick service with the prefix ladder that its blocks tell."""
    return dataclasses.replace(sick(), prefix=findings.full())


ALL = {
    "sick": sick,
    "ladder": ladder,
    "healthy": healthy,
    "insufficient": insufficient,
    "prefix_only": prefix_only,
    "hostile": hostile,
}
