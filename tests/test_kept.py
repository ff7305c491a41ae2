"""Logs that are kept: parts that were read on other days add up to the very same diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import SAMPLES
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.intake import keep, kept, read_log

PEAK = SAMPLES / "peak_hour.jsonl"
RUNNER = CliRunner()


def document(*logs: str) -> dict[str, Any]:
    return ttftdoctor.diagnose(read_log(list(logs))).to_dict()


def dealt(folder: Path, hands: list[int]) -> list[str]:
    """The sessions of the sample, each dealt whole into one of several files."""
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()]
    names = sorted({row["session_id"] for row in rows})
    of = {name: hands[at % len(hands)] for at, name in enumerate(names)}
    files = []
    for hand in sorted(set(hands)):
        path = folder / f"part{hand}.jsonl"
        some = [json.dumps(row) for row in rows if of[row["session_id"]] == hand]
        path.write_text("\n".join(some) + "\n")
        files.append(str(path))
    return files


@settings(max_examples=6)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=40))
def test_parts_that_were_kept_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, hands: list[int]
) -> None:
    """For any dealing of whole sessions into parts, and whichever of them were read before."""
    folder = tmp_path_factory.mktemp("parts")
    files = dealt(folder, hands)
    states = []
    for at, path in enumerate(files):
        state = str(folder / f"{at}.state")
        keep(read_log([path]), state)
        states.append(state if at % 2 == 0 else path)
    assert document(*states) == document(*files)


def test_a_state_may_be_cut_anywhere_and_kept_again(tmp_path: Path) -> None:
    lines = PEAK.read_text().splitlines(keepends=True)
    parts = [tmp_path / f"{at}.jsonl" for at in range(3)]
    for path, some in zip(parts, (lines[:700], lines[700:701], lines[701:]), strict=True):
        path.write_text("".join(some))
    whole = document(*map(str, parts))
    first, both = tmp_path / "first.state", tmp_path / "both.state"
    keep(read_log([str(parts[0])]), str(first))
    keep(read_log([str(first), str(parts[1])]), str(both))
    assert document(str(both), str(parts[2])) == whole
    assert first.stat().st_size < parts[0].stat().st_size / 3


@pytest.mark.parametrize("name", ["litellm.jsonl", "vllm-log.log", "mooncake.jsonl", "otlp.jsonl"])
def test_what_was_rejected_failed_or_set_aside_is_kept(name: str, tmp_path: Path) -> None:
    state = str(tmp_path / "one.state")
    log = read_log([str(SAMPLES / name)])
    keep(log, state)
    again = read_log([state])
    assert again.requests.equals(log.requests, null_equal=True)
    assert again.failed.equals(log.failed, null_equal=True)
    assert again.inputs == log.inputs
    assert again.fields == log.fields
    assert (again.notes, again.warnings, again.recognised, again.lacks) == (
        log.notes, log.warnings, log.recognised, log.lacks
    )  # fmt: skip
    assert document(state) == document(str(SAMPLES / name))


def test_a_request_of_two_parts_counts_once(tmp_path: Path) -> None:
    state = str(tmp_path / "one.state")
    keep(read_log([str(PEAK)]), state)
    twice = read_log([state, str(PEAK)])
    alone = read_log([str(PEAK)])
    assert twice.requests.height == alone.requests.height


def test_no_text_of_a_prompt_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"session_id": f"s{n % 9}", "timestamp": 1_773_100_800 + n, "input_tokens": 900 + n,
         "output_tokens": 20, "ttft_ms": 300 + n, "e2e_ms": 900,
         "messages": [{"role": "user", "content": f"a very secret thing {n % 9} " * 200}]}
        for n in range(90)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log([str(path)])
    assert log.requests["prefix_blocks"].null_count() == 0
    state = tmp_path / "one.state"
    keep(log, str(state))
    assert b"secret" not in state.read_bytes()
    assert "secret" not in str(pl.read_parquet(state).to_dicts())
    assert document(str(state)) == document(str(path))


def test_the_command_keeps_and_reads_states(tmp_path: Path) -> None:
    lines = PEAK.read_text().splitlines(keepends=True)
    monday, tuesday, state = (tmp_path / name for name in ("mon.jsonl", "tue.jsonl", "mon.state"))
    monday.write_text("".join(lines[:1500]))
    tuesday.write_text("".join(lines[1500:]))
    out = [str(tmp_path / name) for name in ("a.json", "b.json", "c.json")]
    runs = (
        [str(monday), "--save-state", str(state), "--json", out[0]],
        [str(state), str(tuesday), "--json", out[1]],
        ["--state", str(state), str(tuesday), "--json", out[2]],
    )
    for run in runs:
        done = RUNNER.invoke(app, ["diagnose", *run, "--quiet"])
        assert done.exit_code == 0, done.output
    both = json.loads(json.dumps(document(str(monday), str(tuesday))))
    for path in out[1:]:
        found = json.loads(Path(path).read_text())
        # What to try next names the logs as they were given.
        found["verdict"]["experiment"]["command"] = both["verdict"]["experiment"]["command"]
        assert found == both
    refused = RUNNER.invoke(app, ["diagnose", str(monday), "--save-state", str(monday)])
    assert refused.exit_code == 2
    assert monday.read_text() == "".join(lines[:1500])


@pytest.mark.parametrize("damage", ["cut", "version", "rows", "text", "column"])
def test_a_state_that_is_not_what_it_says_is_an_error(damage: str, tmp_path: Path) -> None:
    state = tmp_path / "one.state"
    keep(read_log([str(SAMPLES / "healthy.jsonl")]), str(state))
    told = json.loads(pl.read_parquet_metadata(state)[kept.KEY])
    rows = pl.read_parquet(state)
    if damage == "cut":
        # What cannot even be opened as Parquet is no state, and no log either.
        state.write_bytes(state.read_bytes()[:-300])
    else:
        if damage == "version":
            told["version"] = 99
        if damage == "rows":
            rows = rows.head(3)
        if damage == "column":
            rows = rows.drop("ttft_us")
        meta = "[" if damage == "text" else json.dumps(told)
        rows.write_parquet(state, metadata={kept.KEY: meta})
    with pytest.raises(InputError) as caught:
        read_log([str(state)])
    assert "state" in str(caught.value) or "Parquet" in str(caught.value)


def test_a_state_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    log = read_log([str(SAMPLES / "healthy.jsonl")])
    with pytest.raises(UsageError):
        keep(log, str(tmp_path / "nowhere" / "one.state"))
    assert list(tmp_path.iterdir()) == []
