"""Turns linked without ids, held against the ids that were taken away: right links, and how many.

Each case prints its line (``pytest -rP``): links made, precision (links within one conversation),
how many of them go to the very turn before, and recall (turns for which that was found).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ttftdoctor import simulator
from ttftdoctor.intake import read_log
from ttftdoctor.measure.rows import prepare

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
WEKA = ROOT.parent / "shared" / "real" / "agentic_traces_weka"


@dataclass(frozen=True)
class Measured:
    """How many links there are, were made, and are right."""

    grade: str
    true: int
    made: int
    right: int
    exact: int
    note: str

    @property
    def precision(self) -> float:
        return self.right / self.made if self.made else 1.0

    @property
    def recall(self) -> float:
        return self.exact / self.true if self.true else 1.0

    def __str__(self) -> str:
        return (
            f"{self.grade}: {self.made} links of {self.true}, precision {self.precision:.3f} "
            f"({self.exact} to the turn before), recall {self.recall:.3f} ({self.note})"
        )


def before(session: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The row before each in its session; -1 where there is none."""
    out = np.full(len(session), -1)
    last: dict[Any, int] = {}
    for row, name in enumerate(session.tolist()):
        if name is None or name == -1:
            continue
        out[row] = last.get(name, -1)
        last[name] = row
    return out


def measured(
    requests: pl.DataFrame, true: list[str] | None = None, *, blocks: bool = True
) -> Measured:
    """Links of a log whose sessions and turns are taken away; ``true`` where it has none itself."""
    if true is not None:
        requests = requests.with_columns(pl.Series("session_id", true))
    # In the order in which rows are measured, so that places say which request it is.
    requests = requests.sort("start", "source", "line", nulls_last=True)
    names = np.array(requests["session_id"].to_list(), dtype=object)
    hidden = [pl.lit(None, requests.schema[c]).alias(c) for c in ("session_id", "turn")]
    if not blocks:
        hidden.append(pl.lit(None, requests.schema["prefix_blocks"]).alias("prefix_blocks"))
    found = prepare(requests.with_columns(hidden))
    links, truth = before(found.session), before(names)
    made = links >= 0
    return Measured(
        found.session_grade,
        int((truth >= 0).sum()),
        int(made.sum()),
        int((made & (names == names[links])).sum()),
        int((made & (links == truth)).sum()),
        "; ".join(found.notes)[:90],
    )


def hold(what: str, found: Measured, precision: float, recall: float) -> None:
    print(f"{what}: {found}")
    assert found.precision >= precision, str(found)
    assert found.recall >= recall, str(found)


def served(scenario: str, seed: int, detail: str, tmp_path: Path) -> pl.DataFrame:
    path = tmp_path / f"{scenario}-{seed}-{detail}.jsonl"
    path.write_bytes(simulator.log_bytes(simulator.serve(simulator.load(scenario), seed), detail))
    return read_log([str(path)]).requests


# --- arithmetic ---------------------------------------------------------------------------------


def test_by_arithmetic_on_the_sample_log() -> None:
    found = measured(read_log([str(SAMPLES / "peak_hour.jsonl")]).requests)
    hold("peak_hour by arithmetic", found, 0.95, 0.0)


@pytest.mark.parametrize(
    ("scenario", "precision", "recall"),
    [
        ("healthy_chat", 0.97, 0.8),
        ("repeated_prefix_agents", 0.97, 0.9),
        # Many chats at once, of lengths alike: few links are sure, and only these are made.
        ("repeated_prefix_no_reuse", 0.95, 0.05),
        ("affinity_random", 0.95, 0.1),
    ],
)
def test_by_arithmetic_on_served_scenarios(
    scenario: str, precision: float, recall: float, tmp_path: Path
) -> None:
    hold(f"{scenario} by arithmetic", measured(served(scenario, 4, "full", tmp_path)),
         precision, recall)  # fmt: skip


# --- block hashes -------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["healthy_chat", "repeated_prefix_no_reuse"])
def test_by_blocks_on_served_scenarios(scenario: str, tmp_path: Path) -> None:
    hold(f"{scenario} by blocks", measured(served(scenario, 4, "blocks", tmp_path)), 0.99, 0.9)


def test_by_blocks_on_traces_of_agents() -> None:
    if not WEKA.is_dir():
        pytest.skip("the folder of real logs is not here")
    log = read_log([str(WEKA)])
    hold("agentic traces by blocks", measured(log.requests), 0.9, 0.6)


# --- messages and text --------------------------------------------------------------------------

WORDS = [f"word{n}" for n in range(4000)]
SYSTEM = " ".join(random.Random(99).choices(WORDS, k=1500))

Shape = Callable[[list[dict[str, str]]], dict[str, Any]]
SHAPES: dict[str, Shape] = {
    "messages": lambda said: {"messages": said},
    "text": lambda said: {"prompt": "\n".join(f"{m['role']}: {m['content']}" for m in said)},
}


def conversations(
    rng: random.Random, sessions: int, turns: int, shape: Shape
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of chats that begin with one system prompt and grow from turn to turn; no ids."""
    rows: list[tuple[float, dict[str, Any], str]] = []
    for session in range(sessions):
        said = [{"role": "system", "content": SYSTEM}]
        at = 1_785_578_400 + rng.random() * 3000
        for _ in range(rng.randint(1, 2 * turns - 1)):
            said.append({"role": "user", "content": " ".join(rng.choices(WORDS, k=120))})
            tokens = sum(len(m["content"]) for m in said) // 5
            row = {"ts": at, "prompt_tokens": tokens, "completion_tokens": 150, "ttft_ms": 300,
                   "e2e_ms": 4000, **shape(list(said))}  # fmt: skip
            rows.append((at, row, f"s{session}"))
            said.append({"role": "assistant", "content": " ".join(rng.choices(WORDS, k=150))})
            at += 5 + rng.random() * 60
    rows.sort(key=lambda one: one[0])
    return [row for _, row, _ in rows], [name for _, _, name in rows]


def read_rows(path: Path, rows: list[dict[str, Any]]) -> pl.DataFrame:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_log([str(path)]).requests


@pytest.mark.parametrize("shape", SHAPES)
def test_by_what_prompts_say(shape: str, tmp_path: Path) -> None:
    rows, true = conversations(random.Random(5), 60, 5, SHAPES[shape])
    found = measured(read_rows(tmp_path / "chats.jsonl", rows), true)
    hold(f"chats by {shape}", found, 0.99, 0.9)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shared_system_prompt_alone_links_nobody(shape: str, tmp_path: Path) -> None:
    """Requests of one turn that begin alike: nothing is a continuation of anything."""
    rows, true = conversations(random.Random(6), 150, 1, SHAPES[shape])
    found = measured(read_rows(tmp_path / "single.jsonl", rows), true)
    print(f"one system prompt, {shape}: {found}")
    assert found.true == 0
    assert found.made == 0


def test_nor_does_a_bare_system_prompt_that_is_sent_itself(tmp_path: Path) -> None:
    """As a warm-up does: prompts that go on from it are not its conversation."""
    rows, true = conversations(random.Random(7), 100, 1, SHAPES["messages"])
    for n in range(6):
        bare = rows[10 * n] | {"messages": [{"role": "system", "content": SYSTEM}],
                               "prompt_tokens": len(SYSTEM) // 5}  # fmt: skip
        rows.insert(10 * n, bare | {"ts": rows[10 * n]["ts"] - 0.001})
        true.insert(10 * n, f"warm-up {n}")
    found = measured(read_rows(tmp_path / "warm.jsonl", rows), true)
    print(f"a system prompt sent alone: {found}")
    assert found.made == 0


# --- ids of the answer before -------------------------------------------------------------------


def test_by_the_id_of_the_answer_before(tmp_path: Path) -> None:
    """A trace that names each chat's parent: exact, whatever the order of its rows."""
    rng = random.Random(8)
    rows, true = [], []
    for chat in range(400):
        parent = rng.choice(range(max(0, chat - 30), chat)) if chat and rng.random() < 0.7 else -1
        depth = 1 + (rows[parent]["turn"] if parent >= 0 else 0)
        rows.append(
            {"chat_id": chat, "parent_chat_id": parent, "timestamp": 2.0 * chat, "turn": depth,
             "input_length": 64 * depth, "output_length": 9, "type": "text",
             "hash_ids": [1000 * chat + n for n in range(4 * depth)]}
        )  # fmt: skip
        true.append(true[parent] if parent >= 0 else f"root {chat}")
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    requests = read_log([str(path)]).requests.sort("line")
    names = requests["session_id"].to_list()
    pairs = set(zip(names, true, strict=True))
    print(f"by parent ids: {len(names)} rows in {len(set(names))} sessions of {len(set(true))}")
    assert len(pairs) == len(set(names)) == len(set(true))


@pytest.mark.parametrize("parts", [False, True])
def test_by_the_previous_response(
    parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the Responses API names it; whatever stands between, and in which part it is read."""
    rng = random.Random(9)
    rows: list[tuple[float, dict[str, Any], str]] = []
    for chat in range(80):
        at, earlier, tokens = 1_785_578_400 + rng.random() * 2000, None, 900
        for turn in range(rng.randint(1, 8)):
            name = f"resp_{chat:03}{turn:02}"
            row = {"response_id": name, "previous_response_id": earlier, "ts": at, "ttft_ms": 300,
                   "prompt_tokens": tokens, "completion_tokens": 90, "e2e_ms": 2000}  # fmt: skip
            rows.append((at, row, f"chat {chat}"))
            at, earlier, tokens = at + 4 + rng.random() * 50, name, tokens + rng.randint(100, 900)
    rows.sort(key=lambda one: one[0])
    if parts:
        monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", 3000)
        monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 4000)
    requests = read_rows(tmp_path / "responses.jsonl", [row for _, row, _ in rows])
    names = requests.sort("line")["session_id"].to_list()
    true = [name for _, _, name in rows]
    print(f"by the previous response: {len(names)} rows in {len(set(names))} sessions of 80")
    assert len(set(zip(names, true, strict=True))) == len(set(names)) == len(set(true)) == 80
    found = prepare(requests)
    assert int((before(found.session) >= 0).sum()) == len(rows) - 80


def test_an_answer_that_the_log_does_not_have_names_its_conversation(tmp_path: Path) -> None:
    rows = [
        {"response_id": f"b{n}", "previous_response_id": "lost" if n < 2 else f"b{n - 2}",
         "ts": 1_785_578_400 + n, "ttft_ms": 300, "prompt_tokens": 50 + n, "e2e_ms": 900}
        for n in range(9)
    ]  # fmt: skip
    rows[8]["previous_response_id"] = "b8"  # its own
    requests = read_rows(tmp_path / "lost.jsonl", rows)
    assert requests["session_id"].to_list() == ["lost"] * 8 + ["b8"]
