"""What moved: a fall of the cached share is found in time, on its route and in the prompt."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttftdoctor
from ttftdoctor import simulator
from ttftdoctor.gate import seen as module
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.moved import accounts_beside, moved, route_of_loss
from ttftdoctor.gate.records import Check, Checked, Scope
from ttftdoctor.gate.rules import default_policy
from ttftdoctor.gate.seen import Seen

START = datetime(2026, 3, 2, 14, 0, tzinfo=UTC).timestamp()
BROKEN_AT = START + 1620.0  # 14:27
WORDS = (
    "order", "invoice", "parcel", "refund", "account", "address", "courier", "payment", "status",
    "answer", "product",
)  # fmt: skip


def text(n: int, rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


HEAD, TOOLS = text(200, random.Random(1)), text(160, random.Random(2))


def plant(path: Path, seed: int, *, broken: bool = False, dearer: float = 1.0, late: float = 0.0,
          decode: float = 0.02, prompts: bool = True, dead: str = "") -> str:  # fmt: skip
    """Chats and searches of 90 sessions; from ``BROKEN_AT`` on a clock stands in chat prompts.

    With ``dead`` there are four pods, and that one's cache finds nothing.
    """
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for session in range(90):
        route = "/chat" if session % 3 else "/search"
        at = START + rng.uniform(0, 3300)
        messages: list[dict[str, str]] = []
        before = ""
        for turn in range(1, 7):
            messages = [*messages, {"role": "user", "content": text(rng.randint(40, 160), rng)}]
            lost = broken and route == "/chat" and at > BROKEN_AT
            stamp = f"It is {at:.3f} now. " if lost else ""
            system = f"{HEAD} {stamp}{TOOLS} {route}"
            whole = system + "".join(m["content"] for m in messages)
            tokens = len(whole) // 4
            same = len(HEAD) if lost else len(before or system)
            cached = min(same // 4 // 16 * 16, tokens - 1)
            pod = f"pod-{'abcd'[session % 4]}"
            cached = 0 if dead == pod else cached
            ttft = 0.04 + late + dearer * 0.00012 * (tokens - cached) + rng.gauss(0, 0.002)
            output = rng.randint(40, 120)
            row: dict[str, Any] = {
                "request_id": f"{session}-{turn}", "session_id": f"s{session}", "turn": turn,
                "timestamp": at, "model": "m", "route": route, "input_tokens": tokens,
                "cached_tokens": cached, "output_tokens": output, "ttft_ms": 1e3 * ttft,
                "e2e_ms": 1e3 * (ttft + decode * output),
            }  # fmt: skip
            if dead:
                row["replica"] = pod
            if prompts:
                row["messages"] = [{"role": "system", "content": system}, *messages]
            rows.append(row)
            reply = {"role": "assistant", "content": text(output // 2, rng)}
            messages = [*messages, reply]
            before = "" if lost else whole
            at += ttft + decode * output + rng.uniform(5, 40)
    rows.sort(key=lambda row: row["timestamp"])
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plant(tmp_path_factory.mktemp("moved") / "good.jsonl", 1)


def against(good: str, tmp_path: Path, seed: int = 3, **planted: float | bool | str) -> Check:
    log = plant(tmp_path / "now.jsonl", seed, **planted)  # type: ignore[arg-type]
    return ttftdoctor.check(log, good, policy=default_policy())


# --- whole logs -----------------------------------------------------------------------------------


def test_a_prefix_that_breaks_is_named_with_time_route_and_place(good: str, tmp_path: Path) -> None:
    found = against(good, tmp_path, broken=True)
    assert found.outcome == "fail"
    first = found.moved[0]
    assert first.cause == "cache_busting_prefix"
    assert "after 14:27Z on route /chat" in first.says
    assert "(time, in system)" in first.says
    figures = first.figures
    assert figures["step_before"] > 0.7
    assert figures["step_after"] < 0.35
    # The clock stands behind the head, four characters a token.
    assert figures["position_tokens"] == pytest.approx(len(HEAD) / 4, rel=0.15)
    # What is lost is worth what was planted: 0.12 ms a token.
    lost = figures["before"] - figures["after"]
    inputs = float(ttftdoctor.read(good).requests["input_tokens"].to_numpy().mean())
    assert figures["ttft_s"] == pytest.approx(lost * inputs * 0.00012, rel=0.1)


@pytest.mark.parametrize("prompts", [True, False])
def test_a_replica_that_lost_its_cache_is_named_and_no_prompt_is_blamed(
    good: str, tmp_path: Path, prompts: bool
) -> None:
    found = against(good, tmp_path, dead="pod-c", prompts=prompts)
    lost = next(m for m in found.moved if "cached share fell" in m.says)
    assert "; 0 % on replica pod-c, 8" in lost.says
    assert "changes at token" not in lost.says
    assert lost.figures["replica"] == 0
    assert lost.figures["replica_rest"] > 0.8
    whole = against(good, tmp_path, dead="none of them", prompts=prompts)
    assert not any("replica" in m.says for m in whole.moved)


def test_without_prompts_the_moment_and_the_route_are_still_there(
    good: str, tmp_path: Path
) -> None:
    found = against(good, tmp_path, broken=True, prompts=False)
    says = found.moved[0].says
    assert "after 14:27Z on route /chat" in says
    assert "token" not in says.partition("worth")[0]


def test_a_baseline_file_alone_knows_the_route_and_no_moment(good: str, tmp_path: Path) -> None:
    sums = ttftdoctor.baseline(plant(tmp_path / "now.jsonl", 3, broken=True)).fit_in()
    found = ttftdoctor.check(sums, good, policy=default_policy())
    assert found.outcome == "fail"
    assert "on route /chat" in found.moved[0].says
    assert "after" not in found.moved[0].says


def test_dearer_prefill_is_named_by_its_cost(good: str, tmp_path: Path) -> None:
    found = against(good, tmp_path, dearer=1.5)
    first = found.moved[0]
    assert first.cause == "prefill_slope"
    assert first.figures["before"] == pytest.approx(120, rel=0.1)
    assert first.figures["after"] == pytest.approx(180, rel=0.1)
    assert not [m for m in found.moved if m.cause in ("hit_share", "decode_per_token")]


def test_a_constant_is_named(good: str, tmp_path: Path) -> None:
    found = against(good, tmp_path, late=0.05)
    (fixed,) = [m for m in found.moved if m.cause == "fixed_overhead"]
    assert found.moved[0] is fixed
    assert fixed.figures["change"] == pytest.approx(0.05, rel=0.2)
    assert "every request pays" in fixed.says


def test_slower_decode_is_named_and_comes_last(good: str, tmp_path: Path) -> None:
    found = against(good, tmp_path, decode=0.023, late=0.05)
    assert found.moved[-1].cause == "decode_per_token"
    assert re_ms(found.moved[-1].says) == pytest.approx([23.0, 20.0], rel=0.05)


def re_ms(says: str) -> list[float]:
    return [float(word) for word in says.split() if word.replace(".", "").isdigit()]


def test_nothing_moved_where_nothing_failed(good: str, tmp_path: Path) -> None:
    found = against(good, tmp_path)
    assert found.outcome in ("pass", "inconclusive")
    assert found.moved == ()


def test_hostile_routes_are_not_obeyed(good: str, tmp_path: Path) -> None:
    now = plant(tmp_path / "now.jsonl", 3, broken=True)
    bad = "/chat\\u001b[31m\\n::error::x"
    for path in (good, now):
        raw = Path(path).read_text().replace('"/chat"', f'"{bad}"')
        (tmp_path / Path(path).name).write_text(raw)
    found = ttftdoctor.check(
        str(tmp_path / "now.jsonl"), str(tmp_path / "good.jsonl"),
        policy=default_policy(),
    )  # fmt: skip
    says = found.moved[0].says
    assert "on route /chat" in says
    assert "\x1b" not in says
    assert "\n" not in says


# --- the step -------------------------------------------------------------------------------------


def split_slowly(ratio: np.ndarray, weight: np.ndarray) -> int:
    """The split that leaves the smallest sum of squares, by trying all."""

    def left(k: int) -> float:
        total = 0.0
        for part in (slice(0, k), slice(k, None)):
            mean = np.average(ratio[part], weights=weight[part])
            total += float((weight[part] * (ratio[part] - mean) ** 2).sum())
        return total

    side = module.LEAST_SIDE
    return min(range(side, len(ratio) - side + 1), key=left)


@given(
    st.lists(st.floats(0, 1), min_size=12, max_size=48),
    st.integers(0, 10**6),
)
def test_the_split_is_the_best_there_is(values: list[float], seed: int) -> None:
    ratio = np.array(values)
    weight = np.random.default_rng(seed).uniform(1, 5, len(ratio))
    found = module._split(ratio, weight)
    if found is None:
        return
    before, after = ratio[:found], ratio[found:]
    drop = np.average(before, weights=weight[:found]) - np.average(after, weights=weight[found:])
    assert drop >= module.LEAST_STEP - 1e-9
    best = split_slowly(ratio, weight)
    spread = [
        sum(
            float((weight[p] * (ratio[p] - np.average(ratio[p], weights=weight[p])) ** 2).sum())
            for p in (slice(0, k), slice(k, None))
        )
        for k in (found, best)
    ]
    assert spread[0] == pytest.approx(spread[1], abs=1e-9)


def test_noise_a_rise_and_a_slope_are_no_step() -> None:
    rng = np.random.default_rng(1)
    weight = np.ones(48)
    noise = 0.8 + rng.normal(0, 0.05, 48)
    assert module._split(noise, weight) is None
    assert module._split(np.r_[np.full(24, 0.1), np.full(24, 0.8)], weight) is None
    assert module._split(np.r_[np.full(24, 0.8), np.full(24, 0.1)], weight) == 24
    assert module._split(np.full(48, 0.5), weight) is None
    assert module._split(np.r_[np.full(46, 0.8), np.full(2, 0.1)], weight) is None


# --- where it lies --------------------------------------------------------------------------------


def reference_route(before: Baseline, after: Baseline) -> dict[str, tuple[float, float]]:
    out = {}
    for name in ("/chat", "/search"):
        shares = []
        for side in (before, after):
            tally = side.tally("hits")
            assert tally is not None
            cells = [n for n, cell in enumerate(tally.cells) if cell.route == name]
            sums = tally.by_session.moments[:, cells].sum(axis=(0, 1))
            shares.append(float(sums[1] / sums[2]))
        out[name] = (shares[0], shares[1])
    return out


def test_the_route_of_a_loss(good: str, tmp_path: Path) -> None:
    before = ttftdoctor.baseline(good)
    after = ttftdoctor.baseline(plant(tmp_path / "now.jsonl", 3, broken=True))
    found = route_of_loss(before.tally("hits"), after.tally("hits"))
    assert found is not None
    was, now = reference_route(before, after)["/chat"]
    assert found[0] == "/chat"
    assert found[1:] == pytest.approx((was, now))
    assert route_of_loss(before.tally("hits"), None) is None
    # Where both lose, none is named.
    both = ttftdoctor.baseline(good)
    assert route_of_loss(before.tally("hits"), both.tally("hits")) is None


def test_accounts_of_the_same_log_are_the_same(good: str) -> None:
    side = ttftdoctor.baseline(good)
    accounts = accounts_beside(side, side)
    assert set(accounts) >= {"fixed", "prefill_new", "queue_other"}
    for was, now in accounts.values():
        assert now == pytest.approx(was)
    tally = side.tally("ttft")
    assert tally is not None
    assert tally.ttft is not None
    # Accounts add up to the mean TTFT, here of nearly all requests.
    assert sum(was for was, _ in accounts.values()) == pytest.approx(tally.ttft[0], rel=0.05)


def test_waiting_is_told_by_the_ledger_or_by_the_logged_queue(
    good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = ttftdoctor.baseline(good)
    pairs = {"queue_behind_repeated": (0.03, 0.30), "queue_other": (0.01, 0.01), "fixed": (1, 1)}
    monkeypatch.setattr("ttftdoctor.gate.moved.accounts_beside", lambda *_: pairs)
    late = Checked("ttft_mean", "mean TTFT", "s", Scope(), "fail", "up", "")
    assert moved(side, side, (replace(late, outcome="pass"),), None) == ()
    (waiting,) = moved(side, side, (late,), None)
    assert waiting.says == "waiting rose from 40 ms to 310 ms a request behind repeated prefill"
    assert waiting.figures["ttft_s"] == pytest.approx(0.27)
    small = {"queue_other": (0.03, 0.034), "fixed": (1, 1)}
    monkeypatch.setattr("ttftdoctor.gate.moved.accounts_beside", lambda *_: small)
    assert moved(side, side, (late,), None) == ()
    monkeypatch.setattr("ttftdoctor.gate.moved.accounts_beside", lambda *_: {})
    queue = Checked(
        "queue", "logged queueing", "s", Scope(), "fail", "up", "", baseline=0.04, current=0.31,
        change=0.27, p_value=0.0,
    )  # fmt: skip
    (waiting,) = moved(side, side, (queue,), None)
    assert waiting.says == "time in the queue rose from 40 ms to 310 ms a request"
    better = replace(queue, outcome="pass", change=-0.27)
    assert moved(side, side, (late, better), None) == ()


def test_a_release_within_the_log_is_named(tmp_path: Path) -> None:
    """A slope over both sides of the moment is that of neither: the moment is told instead."""
    loaded = simulator.load("release_slower")
    logs = []
    for name, treatment in (("before", "rollback"), ("after", None)):
        logs.append(str(tmp_path / f"{name}.jsonl"))
        simulator.write_log(simulator.serve(loaded, 3, treatment), logs[-1], "full")
    found = ttftdoctor.check(logs[1], logs[0], policy=default_policy())
    assert found.outcome == "fail"
    first = found.moved[0]
    assert first.cause == "deploy_regression"
    assert re.match(
        r"since \d\d:\d\dZ \(version \S+ to \S+\) the same work takes \d\.\d\d times as long",
        first.says,
    )
    assert 1.5 < first.figures["ratio"] < 4.5


def test_failures_are_told(good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side = ttftdoctor.baseline(good)
    monkeypatch.setattr("ttftdoctor.gate.moved.accounts_beside", lambda *_: {})
    errors = Checked(
        "error_rate", "requests failed", "share", Scope(), "fail", "up", "", baseline=0.01,
        current=0.2, change=0.19, p_value=0.0,
    )  # fmt: skip
    nobody = Seen((), None, {}, None, None)
    (found,) = moved(side, side, (errors,), nobody)
    assert found.says == "requests that fail: 20 % instead of 1.0 %"
