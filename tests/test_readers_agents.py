"""Transcripts of coding agents: each call once, each session its own, nothing of what was said."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options
from ttftdoctor.readers.claude_code import _roots
from ttftdoctor.run import diagnose

pytestmark = pytest.mark.usefixtures("every_row")

SAMPLES = Path(__file__).parents[1] / "sample_logs"
CLAUDE, CODEX = SAMPLES / "claude-code.jsonl", SAMPLES / "codex.jsonl"
BOTH = pytest.mark.parametrize("path", [CLAUDE, CODEX], ids=lambda p: p.stem)
#: 2026-08-01T10:00:00Z
TEN = 1_785_578_400_000_000


def read(path: Path, **options: Any) -> Log:
    log = read_log([str(path)], **options)
    (one,) = log.inputs
    assert one.rows_read == one.rows_used + sum(one.rows_rejected.values())
    assert log.requests.height == one.rows_used
    return log


def write(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def rows(log: Log, *columns: str) -> list[tuple[Any, ...]]:
    return log.requests.select(columns).rows()


def stamp(seconds: float) -> str:
    return f"2026-08-01T10:{int(seconds // 60):02d}:{seconds % 60:06.3f}Z"


# --- both ---------------------------------------------------------------------------------------


def test_every_line_of_the_samples_is_accounted_for() -> None:
    one = read(CLAUDE).inputs[0]
    assert (one.rows_read, one.rows_used) == (35, 12)
    assert one.rows_rejected == {
        "failed_request": 1, "made_by_client": 1, "not_a_request": 17, "rate_limited": 1,
        "repeated_usage": 3,
    }  # fmt: skip
    assert one.ttft_set_aside == {"ttft_missing": 12}
    two = read(CODEX).inputs[0]
    assert (two.rows_read, two.rows_used) == (71, 12)
    assert two.rows_rejected == {
        "copied_history": 1, "no_usage": 1, "not_a_request": 55, "repeated_usage": 2
    }  # fmt: skip
    assert two.ttft_set_aside == {"ttft_missing": 8, "turn_level": 4}


REFERENCE = {
    "session_id": "sess-7f", "start": TEN, "model": "claude-sonnet-4-5", "input_tokens": 12_000,
    "cached_tokens": 9_000, "output_tokens": 160, "ttft_us": None, "e2e_us": None,
    "queue_us": None, "prefix_blocks": None, "vantage": "client",
}  # fmt: skip


@BOTH
def test_the_reference_request_is_the_same_in_both(path: Path) -> None:
    row = read(path).requests.row(0, named=True)
    assert {name: row[name] for name in REFERENCE} == REFERENCE


def test_what_only_one_of_them_holds_of_it() -> None:
    assert rows(read(CLAUDE), "request_id", "cache_write_tokens", "version")[0] == (
        "req-001", 1_000, "2.1.300"
    )  # fmt: skip
    assert rows(read(CODEX), "request_id", "cache_write_tokens", "reasoning_tokens")[0] == (
        None, None, 0
    )  # fmt: skip


@BOTH
def test_no_first_token_is_used(path: Path) -> None:
    assert read(path).requests["ttft_us"].count() == 0
    assert diagnose(str(path)).verdict.primary_cause == "insufficient_data"


@BOTH
def test_nothing_that_was_said_is_kept(path: Path) -> None:
    """Also where texts are asked for: a transcript is not the prompt, so there is none to give."""
    log = read(path, options=Options(text=True))
    assert log.prompts is None
    kept = log.requests.drop("prefix_blocks").write_csv() + log.failed.drop(
        "prefix_blocks"
    ).write_csv()  # fmt: skip
    for word in ("worker", "drained", "SUM(1)", "Step", "/srv/app", "API Error", "waits"):
        assert word in path.read_text() or word in CLAUDE.read_text() + CODEX.read_text()
        assert word not in kept


@BOTH
def test_damage_by_the_thousand_is_accounted_for(path: Path, tmp_path: Path) -> None:
    """Lines cut, doubled, or with values of other types: enough that whole columns are read."""
    draw = random.Random(7)
    source = path.read_text().splitlines()
    junk = (
        '"x"',
        "null",
        "-1",
        "1e400",
        "[1]",
        "{}",
        "true",
        '"2026-13-99"',
        "9" * 30,
        '"\\u0000"',
    )
    lines = list(source)
    for _ in range(9_000):
        line = draw.choice(source)
        kind = draw.randrange(6)
        if kind == 0:
            at = draw.randrange(len(line))
            line = line[:at] + line[at + draw.randrange(1, 30) :]
        elif kind == 1:
            colons = [i for i, c in enumerate(line) if c == ":"]
            at = draw.choice(colons)
            end = min((i for i in (line.find(",", at), line.find("}", at)) if i > 0), default=at)
            line = line[: at + 1] + draw.choice(junk) + line[end:]
        elif kind == 2:
            line = line[: draw.randrange(len(line))]
        lines.append(line)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = read(damaged, format=path.stem)
    assert log.inputs[0].rows_read == sum(bool(line.strip()) for line in lines)
    assert log.requests.height >= 12
    assert log.inputs[0].rows_rejected["not_a_request"] > 2_500


# --- Claude Code --------------------------------------------------------------------------------


def said(kind: str, uuid: str, parent: str | None, at: float, **more: Any) -> dict[str, Any]:
    line: dict[str, Any] = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s",
            "timestamp": stamp(at), "isSidechain": False, "version": "2.0.0"}  # fmt: skip
    if kind == "user":
        line["message"] = {"role": "user", "content": "?"}
    return line | more


def answer(
    uuid: str, parent: str | None, at: float, output: int, *, message: str | None = "m",
    request: str | None = "r", usage: dict[str, Any] | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    told = {"input_tokens": 10, "cache_read_input_tokens": 200,
            "cache_creation_input_tokens": 30, "output_tokens": output}  # fmt: skip
    body: dict[str, Any] = {"id": message, "model": "m-1", "role": "assistant", "content": [],
            "usage": told if usage is None else usage}  # fmt: skip
    line = said("assistant", uuid, parent, at, message=body, **more)
    return line if request is None else line | {"requestId": request}


def test_cached_tokens_are_added_to_the_input_and_the_largest_output_counts(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path,
        [
            said("user", "a", None, 1),
            answer("b", "a", 3, 2),
            answer("c", "b", 4, 77),
            said("user", "d", "b", 4.5),  # the result of a tool, while the answer goes on
            answer("e", "c", 5, 70),
        ],
    )
    log = read(path)
    assert rows(log, "line", "start", "input_tokens", "output_tokens") == [
        (3, TEN + 1_000_000, 240, 77)
    ]
    assert log.inputs[0].rows_rejected == {"not_a_request": 2, "repeated_usage": 2}
    assert log.fields["input_tokens"].kind == "derived"


@settings(max_examples=30, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["r1", "r2", None]), st.integers(0, 900)),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_each_pair_of_ids_counts_once(
    calls: list[tuple[int, str | None, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(
        tmp_path_factory.mktemp("log"),
        [
            answer(f"u{k}", None, k, output, message=f"m{message}", request=request)
            for k, (message, request, output) in enumerate(calls)
        ],
    )
    largest: dict[tuple[int, str | None], int] = {}
    for message, request, output in calls:
        key = message, request
        largest[key] = max(output, largest.get(key, 0))
    log = read(path, format="claude-code")
    assert sorted(log.requests["output_tokens"]) == sorted(largest.values())


def test_without_ids_each_line_is_a_call(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            answer("a", None, 1, 5, message=None, request=None),
            answer("b", "a", 2, 5, message=None, request=None),
        ],
    )
    assert read(path).requests.height == 2


def test_writes_may_be_told_by_how_long_they_are_kept(tmp_path: Path) -> None:
    kept = {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 2}
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation": kept}
    log = read(write(tmp_path, [answer("a", None, 1, 0, usage=usage)]))
    assert rows(log, "input_tokens", "cached_tokens", "cache_write_tokens") == [(43, None, 42)]


def test_sub_agents_are_sessions_of_their_own() -> None:
    found = read(CLAUDE).requests.group_by("session_id", maintain_order=True).len().rows()
    assert found == [("sess-7f", 8), ("sess-7f/a1b2c3", 2), ("sess-7f/u-14", 2)]


def test_a_question_to_a_sub_agent_is_none_to_the_session(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            said("user", "a", None, 1),
            said("user", "b", None, 2, isSidechain=True, agentId="x"),
            answer("c", "a", 5, 1),
            answer("d", "b", 6, 1, message="n", isSidechain=True, agentId="x"),
        ],
    )
    assert rows(read(path), "session_id", "start") == [
        ("s", TEN + 1_000_000), ("s/x", TEN + 2_000_000)
    ]  # fmt: skip


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_roots_are_where_going_back_ends(parents: list[int]) -> None:
    """Line k is u<k>; a parent that is not there ends the chain; circles end anywhere in them."""
    uuids = [f"u{k}" for k in range(len(parents))]
    up = [f"u{p}" for p in parents]
    found = _roots(pl.Series(uuids), pl.Series(up)).to_list()
    for k, root in enumerate(found):
        seen: list[int] = []
        at = k
        while at not in seen:
            seen.append(at)
            if parents[at] >= len(parents):
                break
            at = parents[at]
        circle = seen[seen.index(at) :]
        assert root in {uuids[i] for i in circle}


def test_failed_calls_keep_their_status() -> None:
    failed = read(CLAUDE).failed
    assert failed.select("status", "model", "input_tokens").rows() == [
        ("rate_limited", None, None), ("error", None, None)
    ]  # fmt: skip


def test_a_call_is_never_placed_after_its_answer(tmp_path: Path) -> None:
    """A clock that was set back, and an answer with no question before it."""
    path = write(
        tmp_path, [answer("a", None, 4, 1), said("user", "b", "a", 30), answer("c", "b", 9, 1,
                                                                            message="n")]
    )  # fmt: skip
    assert rows(read(path), "start") == [(TEN + 4_000_000,), (TEN + 9_000_000,)]


# --- Codex --------------------------------------------------------------------------------------


def event(at: float, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": stamp(at), "type": kind, "payload": payload}


def counted(at: float, given: int, total: int | None, cached: int = 0) -> dict[str, Any]:
    last = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": 9,
            "reasoning_output_tokens": 4, "total_tokens": given + 9}  # fmt: skip
    info = {"last_token_usage": last}
    if total is not None:
        info["total_token_usage"] = {"input_tokens": total, "output_tokens": 9}
    return event(at, "event_msg", type="token_count", info=info, rate_limits=None)


def header(at: float, name: str, **more: Any) -> dict[str, Any]:
    return event(at, "session_meta", id=name, cli_version="1", model_provider="p", **more)


def test_input_counts_cached_tokens_and_output_counts_reasoning(tmp_path: Path) -> None:
    log = read(write(tmp_path, [header(0, "s"), counted(3, 100, 100, cached=60)]))
    assert rows(log, "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens") == [
        (100, 60, 9, 4)
    ]


def test_a_count_that_is_written_again_is_no_call(tmp_path: Path) -> None:
    """Two calls of equal size are two; the running total tells."""
    path = write(
        tmp_path,
        [
            header(0, "s"), counted(3, 100, 100), counted(4, 100, 100),
            event(5, "event_msg", type="token_count", info=None), counted(6, 100, 100),
            counted(9, 100, 200),
        ],
    )  # fmt: skip
    log = read(path)
    assert rows(log, "line") == [(2,), (6,)]
    assert log.inputs[0].rows_rejected == {
        "no_usage": 1, "not_a_request": 1, "repeated_usage": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "parent"),
    [
        (header(0, "child", forked_from_id="mother"), None),
        (header(0, "child", source={"subagent": {"thread_spawn": {"depth": 1}}}), None),
        (header(0, "child"), header(0.01, "mother")),
    ],
)
def test_the_copied_beginning_of_a_fork_is_not_counted_again(
    own: dict[str, Any], parent: dict[str, Any] | None, tmp_path: Path
) -> None:
    lines = [own, *([parent] if parent else []), counted(0.2, 70, 70), counted(0.3, 80, 150)]
    log = read(write(tmp_path, [*lines, counted(5, 90, 240)]))
    assert rows(log, "session_id", "input_tokens") == [("child", 90)]
    assert log.inputs[0].rows_rejected["copied_history"] == 2


def test_a_quick_call_of_a_session_that_is_no_fork_counts(tmp_path: Path) -> None:
    assert rows(read(write(tmp_path, [header(0, "s"), counted(0.8, 70, 70)])), "line") == [(2,)]


def test_rollouts_one_after_another_are_sessions_of_their_own(tmp_path: Path) -> None:
    lines = [
        header(0, "one"), event(1, "turn_context", model="a"), counted(3, 70, 70),
        header(60, "two"), counted(63, 70, 70), event(64, "turn_context", model="b"),
        counted(66, 80, 150),
    ]  # fmt: skip
    assert rows(read(write(tmp_path, lines)), "session_id", "model") == [
        ("one", "a"), ("two", None), ("two", "b")
    ]  # fmt: skip


def test_the_time_of_a_turn_stands_beside_its_first_call_and_is_not_used() -> None:
    frame = read(CODEX).requests.filter(pl.col("ttft_logged_us").is_not_null())
    assert frame.select("line", "ttft_logged_us", "ttft_us", "ttft_set_aside").rows() == [
        (13, 840_000, None, "turn_level"), (28, 1_400_000, None, "turn_level"),
        (43, 1_500_000, None, "turn_level"), (58, 1_600_000, None, "turn_level"),
    ]  # fmt: skip


def test_calls_are_placed_at_what_went_into_them(tmp_path: Path) -> None:
    """The result of a quick tool comes before the count of the call that asked for it.

    The next call still begins when that one has ended; so does one that nothing new went into.
    """
    item = "response_item"
    lines = [
        header(0, "s"),
        event(2, item, type="message", role="user", content=[]),
        event(4, item, type="function_call", name="sh"),
        event(5, item, type="function_call_output", output="x"),
        counted(6, 70, 70),
        event(8, item, type="message", role="assistant", content=[]),
        counted(9, 80, 150),
        event(20, item, type="custom_tool_call_output", output="y"),
        counted(25, 90, 240),
        counted(28, 95, 335),
    ]
    assert [(start - TEN) / 1e6 for (start,) in rows(read(write(tmp_path, lines)), "start")] == [
        2, 6, 20, 25
    ]  # fmt: skip
