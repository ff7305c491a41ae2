"""Sessions by arithmetic: chats are linked, and rightly so; unrelated requests are not."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from ttftdoctor import simulator
from ttftdoctor.measure.links import Links, by_arithmetic

CHATS = ("healthy_chat", "repeated_prefix_no_reuse", "busting_each_turn", "affinity_random",
         "healthy_reasoning", "repeated_prefix_agents")  # fmt: skip
SINGLE = ("organic_rag", "healthy_single_shot", "queueing_bursts", "decode_long_outputs")


def served(scenario: str, seed: int) -> tuple[dict[str, Any], list[str]]:
    """What :func:`by_arithmetic` gets to see of a served scenario, and whose each row is."""
    run = simulator.serve(simulator.load(scenario), seed)
    rows = [json.loads(line) for line in simulator.log_bytes(run, "full").splitlines()]
    rows.sort(key=lambda r: r["start"])

    def floats(name: str) -> np.ndarray:
        return np.array([np.nan if r.get(name) is None else float(r[name]) for r in rows])

    def codes(*names: str) -> np.ndarray:
        texts = ["\t".join(str(r.get(n)) for n in names) for r in rows]
        return np.unique(texts, return_inverse=True)[1].astype(np.int64)

    start = np.array([datetime.fromisoformat(r["start"]).timestamp() for r in rows])
    log = {
        "start_s": start - start.min(), "end_s": start - start.min() + floats("e2e_ms") / 1e3,
        "inputs": floats("input_tokens"), "outputs": floats("output_tokens"),
        "cached": floats("cached_tokens"), "group": codes("model", "tenant", "route"),
        "replica": codes("replica"), "reasoning": floats("reasoning_tokens"),
    }  # fmt: skip
    return log, [str(r["session_id"]) for r in rows]


def right(found: Links, true: list[str]) -> tuple[int, int]:
    """Links that join requests of one true session, of all links."""
    before: dict[int, int] = {}
    good = made = 0
    for row in np.flatnonzero(found.session >= 0):
        session = int(found.session[row])
        if session in before:
            made += 1
            good += true[row] == true[before[session]]
        before[session] = int(row)
    return good, made


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("scenario", CHATS)
def test_chats_are_linked_and_rightly_so(scenario: str, seed: int) -> None:
    log, true = served(scenario, seed)
    found = by_arithmetic(**log)
    assert found is not None
    assert found.loose is not None
    good, made = right(found, true)
    assert made == found.linked
    assert good >= 0.95 * made
    # It knows its errors: roughly, and rather doubts what is right than the other way round.
    assert -0.15 <= found.sure - good / made <= 0.1
    assert np.nanmax(found.loose.repeated, initial=0.0) <= log["inputs"].max()


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("scenario", SINGLE)
def test_single_shots_are_not_linked_at_all(scenario: str, seed: int) -> None:
    log, _ = served(scenario, seed)
    found = by_arithmetic(**log)
    assert found is None or found.linked == 0


@pytest.mark.parametrize("scenario", CHATS[:2])
def test_a_chat_log_turned_back_in_time_is_not_linked(scenario: str) -> None:
    log, _ = served(scenario, 6)
    back = np.argsort(-log["end_s"], kind="stable")
    turned = {name: values[back] for name, values in log.items()}
    turned["start_s"], turned["end_s"] = -log["end_s"][back], -log["start_s"][back]
    found = by_arithmetic(**turned)
    assert found is None or found.linked == 0


def test_a_batch_sorted_by_length_is_not_linked() -> None:
    """Its lengths grow as those of a chat do, but fall short of earlier totals as often."""
    rng = np.random.default_rng(8)
    n = 600
    inputs = np.sort(np.exp(rng.normal(8, 0.8, n)).round())
    outputs = rng.integers(50, 400, n).astype(float)
    start = np.cumsum(rng.exponential(3.0, n))
    nothing = np.full(n, np.nan)
    zero = np.zeros(n, dtype=np.int64)
    found = by_arithmetic(start, start + 4, inputs, outputs, nothing, zero)
    assert found is None or found.linked == 0
