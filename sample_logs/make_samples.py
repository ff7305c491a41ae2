"""Regenerate the sample request logs, and the truth the tests hold them against.

Run ``python sample_logs/make_samples.py``. It writes three logs next to itself and one truth
file for each under ``tests/data/``. All draws are seeded: a second run writes the same bytes.

The server is a small discrete-event model. Each session sticks to one replica (by a hash of
its id), a replica prefills one prompt at a time in order of arrival, and decoding runs beside
the prefills at a steady rate. A client sends its next turn once the previous answer has ended
and a think time has passed, so a slower server also spreads a session out (a closed loop).

Each turn sends the whole history: its input is the previous input, the previous output, and
some new tokens. With U uncached and C cached tokens, both in thousands, a prefill takes
``fixed + a*U + b*U*(C + U/2)`` milliseconds.

* ``peak_hour.jsonl``: no prefix cache; long chats grow slow, and an afternoon peak, in which
  many sessions begin together every 40 minutes, adds queueing.
* ``eight_turns.jsonl``: no prefix cache and no queueing; turn 8 repeats 99,760 of its 99,840
  tokens.
* ``healthy.jsonl``: a working prefix cache on a quiet server.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
TRUTH_DIR = HERE.parent / "tests" / "data"
MIDNIGHT = np.datetime64("2026-03-10T00:00:00.000")
MODEL = "chat-70b"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
CACHE_BLOCK_TOKENS = 16
DECODE_MS_PER_TOKEN = 30.0

PEAK_HOUR_REPLICAS = 3
OFF_PEAK_HOURS = (9, 13)
PEAK_HOURS = (15, 17)
OFF_PEAK_SESSIONS = 184
PEAK_SESSIONS = 300
WAVE_EVERY_MS = 40 * MINUTE_MS
WAVE_SHARE = 0.7


@dataclass(frozen=True)
class Cost:
    """What a prefill costs."""

    fixed_ms: float
    ms_per_1k_tokens: float
    ms_per_1k_tokens_per_1k_context: float

    def prefill_ms(self, uncached_tokens: int, cached_tokens: int) -> float:
        """Return the noiseless prefill time of a prompt."""
        uncached = uncached_tokens / 1000
        context = cached_tokens / 1000 + uncached / 2
        attention = self.ms_per_1k_tokens_per_1k_context * context
        return self.fixed_ms + uncached * (self.ms_per_1k_tokens + attention)


PEAK_HOUR_COST = Cost(60.0, 72.0, 0.5)
TWICE_AS_FAST_COST = Cost(60.0, 36.0, 0.25)
EIGHT_TURNS_COST = Cost(40.0, 100.0, 0.0)
HEALTHY_COST = Cost(110.0, 75.0, 0.5)


@dataclass(frozen=True)
class Turn:
    """One planned turn, with every random draw that it needs."""

    new_tokens: int
    output_tokens: int
    think_ms: int
    noise_factor: float
    noise_ms: float
    decode_ms: float


Turns = tuple[Turn, ...]


@dataclass(frozen=True)
class Session:
    """A planned chat: when it starts and what each turn adds."""

    session_id: str
    start_ms: int
    turns: Turns


@dataclass(frozen=True)
class Served:
    """One request as the model served it."""

    session_id: str
    turn: int
    plan: Turn
    arrival_ms: int
    input_tokens: int
    repeated_tokens: int
    cached_tokens: int
    queue_ms: float
    queue_behind_repeated_ms: float
    prefill_ms: float

    @property
    def ttft_ms(self) -> float:
        """Time from sending the request to its first token."""
        return self.queue_ms + self.prefill_ms

    @property
    def e2e_ms(self) -> float:
        """Time from sending the request to its last token."""
        return self.ttft_ms + self.plan.decode_ms * (self.plan.output_tokens - 1)


class Work(NamedTuple):
    """One prefill on a replica: when it ran, and which share of its tokens was repeated."""

    start_ms: float
    end_ms: float
    repeated_share: float


def serve(
    sessions: Sequence[Session], cost: Cost, replicas: int, cache_block: int = 0
) -> list[Served]:
    """Serve the sessions and return the requests in order of arrival.

    `cache_block` is the size of a prefix cache's blocks in tokens; 0 means no cache. A wait is
    split over the prefills that it overlaps, and each overlap by the share of repeated tokens
    among the tokens which that prefill computes.
    """
    arrivals = [(session.start_ms, number, 0, 0) for number, session in enumerate(sessions)]
    heapq.heapify(arrivals)
    done: list[list[Work]] = [[] for _ in range(replicas)]
    served: list[Served] = []
    while arrivals:
        arrival_ms, number, index, repeated = heapq.heappop(arrivals)
        session = sessions[number]
        turn = session.turns[index]
        tokens = repeated + turn.new_tokens
        cached = repeated // cache_block * cache_block if cache_block else 0

        replica = done[zlib.crc32(session.session_id.encode()) % replicas]
        start_ms = max(float(arrival_ms), replica[-1].end_ms if replica else 0.0)
        behind_repeated_ms = 0.0
        for work in reversed(replica):
            if work.end_ms <= arrival_ms:
                break
            overlap_ms = work.end_ms - max(work.start_ms, float(arrival_ms))
            behind_repeated_ms += overlap_ms * work.repeated_share

        prefill_ms = cost.prefill_ms(tokens - cached, cached) * turn.noise_factor + turn.noise_ms
        share = (repeated - cached) / (tokens - cached)
        replica.append(Work(start_ms, start_ms + prefill_ms, share))
        request = Served(
            session_id=session.session_id,
            turn=index + 1,
            plan=turn,
            arrival_ms=arrival_ms,
            input_tokens=tokens,
            repeated_tokens=repeated,
            cached_tokens=cached,
            queue_ms=start_ms - arrival_ms,
            queue_behind_repeated_ms=behind_repeated_ms,
            prefill_ms=prefill_ms,
        )
        served.append(request)
        if index + 1 < len(session.turns):
            next_ms = arrival_ms + round(request.e2e_ms + session.turns[index + 1].think_ms)
            heapq.heappush(arrivals, (next_ms, number, index + 1, tokens + turn.output_tokens))
    return served


def lognormal(rng: np.random.Generator, median: float, sigma: float, low: int, high: int) -> int:
    """Draw a whole number, lognormal about `median`, within `low` to `high`."""
    return int(np.clip(round(median * float(np.exp(sigma * rng.standard_normal()))), low, high))


def draw_turn(rng: np.random.Generator, new_tokens: int, output_tokens: int) -> Turn:
    """Draw the think time before a turn of the given size, and its noise."""
    return Turn(
        new_tokens=new_tokens,
        output_tokens=output_tokens,
        think_ms=lognormal(rng, 40_000, 0.6, 4_000, 240_000),
        noise_factor=1 + 0.02 * float(rng.standard_normal()),
        noise_ms=2 * float(rng.standard_normal()),
        decode_ms=DECODE_MS_PER_TOKEN + 0.25 * float(rng.standard_normal()),
    )


def draw_chat(rng: np.random.Generator, number: int) -> Turns:
    """Draw a chat of the peak-hour log; of 25, two have a short history, two a long document."""
    if number % 25 < 2:  # a short history: many turns, few tokens
        return tuple(
            draw_turn(rng, int(rng.integers(50, 201)), lognormal(rng, 95, 0.4, 20, 800))
            for _ in range(10)
        )
    if number % 25 < 4:  # a long document first, then questions about it
        first = int(rng.integers(10_000, 25_001))
        later, turns = 1_500, int(rng.integers(3, 7))
    else:  # tool results and documents add up
        first = lognormal(rng, 3_250, 0.25, 1_200, 7_000)
        later, turns = 4_080, 3 + int(rng.choice(6, p=[0.05, 0.07, 0.13, 0.3, 0.25, 0.2]))
    new = [first] + [lognormal(rng, later, 0.3, 300, 12_000) for _ in range(turns - 1)]
    return tuple(draw_turn(rng, tokens, lognormal(rng, 200, 0.5, 20, 800)) for tokens in new)


def span_ms(turns: Sequence[Turn], cost: Cost) -> int:
    """Return a generous bound on how long a chat lasts, with room for some queueing."""
    total, tokens = 0.0, 0
    for turn in turns:
        tokens += turn.new_tokens
        total += turn.think_ms + 2 * cost.prefill_ms(tokens, 0) + 32 * turn.output_tokens
        tokens += turn.output_tokens
    return round(total)


def name_sessions(prefix: str, chats: Sequence[tuple[int, Turns]]) -> list[Session]:
    """Turn (start, turns) pairs into sessions, numbered in order of their start."""
    ordered = sorted(chats, key=lambda chat: chat[0])
    return [Session(f"{prefix}-{n:04d}", *chat) for n, chat in enumerate(ordered, start=1)]


def peak_hour_sessions(rng: np.random.Generator) -> list[Session]:
    """Plan the off-peak and the peak sessions, each to end before its part of the day does."""
    chats: list[tuple[int, Turns]] = []
    parts = [(OFF_PEAK_HOURS, OFF_PEAK_SESSIONS, 0.0), (PEAK_HOURS, PEAK_SESSIONS, WAVE_SHARE)]
    for hours, sessions, wave_share in parts:
        opens, closes = (hour * HOUR_MS for hour in hours)
        for number in range(sessions):
            turns = draw_chat(rng, number)
            latest = closes - span_ms(turns, PEAK_HOUR_COST)
            start = int(rng.integers(opens, latest))
            if rng.random() < wave_share:
                wave = opens + (start - opens) // WAVE_EVERY_MS * WAVE_EVERY_MS
                start = min(latest, wave + round(MINUTE_MS * float(rng.standard_exponential())))
            chats.append((start, turns))
    return name_sessions("chat", chats)


def eight_turns_sessions(rng: np.random.Generator) -> list[Session]:
    """Plan twelve sessions, one after another, that all end on the same eighth turn."""
    chats: list[tuple[int, Turns]] = []
    for number in range(12):
        outputs = [lognormal(rng, 200, 0.5, 20, 800) for _ in range(8)]
        first = int(rng.integers(7_600, 8_401))
        to_share = 99_760 - first - sum(outputs[:7])
        weights = rng.uniform(0.85, 1.15, 6)
        cuts = np.floor(np.cumsum(weights) / weights.sum() * to_share + 0.5).astype(int)
        new = [first, *np.diff(cuts, prepend=0).tolist(), 80]
        turns = tuple(draw_turn(rng, *sizes) for sizes in zip(new, outputs, strict=True))
        chats.append((9 * HOUR_MS + number * 25 * MINUTE_MS, turns))
    return name_sessions("long", chats)


def healthy_sessions(rng: np.random.Generator) -> list[Session]:
    """Plan a quiet day of chats whose turns add little to a cached history."""
    chats: list[tuple[int, Turns]] = []
    for _ in range(60):
        first = lognormal(rng, 2_600, 0.2, 1_500, 3_600)
        count = int(rng.integers(3, 10))
        new = [first] + [lognormal(rng, 1_500, 0.35, 700, 3_000) for _ in range(count - 1)]
        turns = tuple(draw_turn(rng, n, lognormal(rng, 200, 0.5, 20, 800)) for n in new)
        chats.append((int(rng.integers(9 * HOUR_MS, 15 * HOUR_MS)), turns))
    return name_sessions("well", chats)


def timestamp(since_midnight_ms: int) -> str:
    """Return a time of the sample day in ISO 8601."""
    return f"{MIDNIGHT + np.timedelta64(since_midnight_ms, 'ms')}Z"


def write_log(name: str, served: Sequence[Served], *, with_cached: bool = False) -> None:
    """Write one JSON object a line for each request, in order of arrival."""
    lines: list[str] = []
    for number, request in enumerate(served, start=1):
        row: dict[str, Any] = {
            "request_id": f"req-{number:05d}",
            "session_id": request.session_id,
            "turn": request.turn,
            "timestamp": timestamp(request.arrival_ms),
            "model": MODEL,
            "input_tokens": request.input_tokens,
            "output_tokens": request.plan.output_tokens,
        }
        if with_cached:
            row["cached_tokens"] = request.cached_tokens
        ttft_ms, e2e_ms = round(request.ttft_ms, 1), round(request.e2e_ms, 1)
        row |= {"ttft_ms": ttft_ms, "e2e_ms": e2e_ms, "status": "ok"}
        lines.append(json.dumps(row))
    (HERE / f"{name}.jsonl").write_bytes(("\n".join(lines) + "\n").encode())


def write_truth(name: str, truth: dict[str, Any]) -> None:
    """Write the truth file of a log."""
    (TRUTH_DIR / f"{name}.truth.json").write_bytes((json.dumps(truth, indent=2) + "\n").encode())


def mean(served: Sequence[Served], value: Callable[[Served], float]) -> float:
    """Return the mean of a value over the requests, to three decimals."""
    return round(float(np.mean([value(request) for request in served])), 3)


def describe_ttft(served: Sequence[Served]) -> dict[str, float]:
    """Return the mean, the median and the 95th percentile of TTFT."""
    ttft = [request.ttft_ms for request in served]
    p50, p95 = (round(float(np.percentile(ttft, q)), 3) for q in (50, 95))
    return {"mean": round(float(np.mean(ttft)), 3), "p50": p50, "p95": p95}


def describe(served: Sequence[Served]) -> dict[str, Any]:
    """Return what really made up the TTFT of these requests."""
    ttft = describe_ttft(served)
    queue_ms = mean(served, lambda r: r.queue_ms)
    behind_repeated_ms = mean(served, lambda r: r.queue_behind_repeated_ms)
    return {
        "requests": len(served),
        "ttft_ms": ttft,
        "mean_queue_ms": queue_ms,
        "mean_prefill_ms": mean(served, lambda r: r.prefill_ms),
        "queue_share_of_ttft": round(queue_ms / ttft["mean"], 4),
        "mean_queue_behind_repeated_ms": behind_repeated_ms,
        "mean_queue_behind_new_ms": round(queue_ms - behind_repeated_ms, 3),
        "input_tokens": sum(request.input_tokens for request in served),
        "repeated_tokens": sum(request.repeated_tokens for request in served),
    }


def by_part(
    served: Sequence[Served], describe_part: Callable[[Sequence[Served]], dict[str, Any]]
) -> dict[str, Any]:
    """Describe the requests overall, off-peak and at peak."""
    described = {"overall": describe_part(served)}
    for name, (opens, closes) in {"off_peak": OFF_PEAK_HOURS, "peak": PEAK_HOURS}.items():
        inside = [r for r in served if opens * HOUR_MS <= r.arrival_ms < closes * HOUR_MS]
        described[name] = describe_part(inside)
    return described


def make_peak_hour() -> None:
    """Write the peak-hour log, and its truth with the two remedies played through."""
    sessions = peak_hour_sessions(np.random.default_rng(20260310))
    served = serve(sessions, PEAK_HOUR_COST, PEAK_HOUR_REPLICAS)
    cached = serve(sessions, PEAK_HOUR_COST, PEAK_HOUR_REPLICAS, cache_block=1)
    faster = serve(sessions, TWICE_AS_FAST_COST, PEAK_HOUR_REPLICAS)
    write_log("peak_hour", served)
    truth = {
        "cost": asdict(PEAK_HOUR_COST),
        "decode_ms_per_token": DECODE_MS_PER_TOKEN,
        "replicas": PEAK_HOUR_REPLICAS,
        "sessions": len(sessions),
        "off_peak_from_to": [timestamp(hour * HOUR_MS) for hour in OFF_PEAK_HOURS],
        "peak_from_to": [timestamp(hour * HOUR_MS) for hour in PEAK_HOURS],
        "as_served": by_part(served, describe),
        "ttft_ms_if_repeated_cached": by_part(cached, describe_ttft),
        "ttft_ms_if_prefill_twice_as_fast": by_part(faster, describe_ttft),
    }
    write_truth("peak_hour", truth)


def make_quiet_log(
    name: str, sessions: Sequence[Session], cost: Cost, replicas: int, cache_block: int = 0
) -> None:
    """Write a log without queueing to speak of, and its truth."""
    served = serve(sessions, cost, replicas, cache_block)
    write_log(name, served, with_cached=cache_block > 0)
    truth = {
        "cost": asdict(cost),
        "decode_ms_per_token": DECODE_MS_PER_TOKEN,
        "replicas": replicas,
        "sessions": len(sessions),
        "cached_tokens": sum(request.cached_tokens for request in served),
        "as_served": {"overall": describe(served)},
    }
    write_truth(name, truth)


def main() -> None:
    """Write all the logs and their truth files."""
    TRUTH_DIR.mkdir(parents=True, exist_ok=True)
    make_peak_hour()
    eight = eight_turns_sessions(np.random.default_rng(8))
    make_quiet_log("eight_turns", eight, EIGHT_TURNS_COST, replicas=1)
    healthy = healthy_sessions(np.random.default_rng(150))
    make_quiet_log("healthy", healthy, HEALTHY_COST, replicas=2, cache_block=CACHE_BLOCK_TOKENS)


if __name__ == "__main__":
    main()
