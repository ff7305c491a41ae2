"""All formats by one law: a row in the README, a sample, and the one known request.

The known request is held against most formats beside their other tests; the rest stand here, and
nothing is forgotten.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import test_readers_engines as engines
import test_readers_gateways as gateways
import test_readers_loadtools as loadtools
from reading import REQUEST, SAMPLES, START_S, only, read, table, write
from typer.testing import CliRunner

from ttftdoctor import catalog
from ttftdoctor.cli import app
from ttftdoctor.table import SET_ASIDE

ROOT = Path(__file__).parents[1]

FLAT = {
    "id": "req-001", "session": "sess-7f", "ts": "2026-08-01T10:00:00Z", "ttft_ms": 840,
    "latency_ms": 3240, "prompt_tokens": 12_000, "cached_tokens": 9_000,
    "cache_write_tokens": 1_000, "completion_tokens": 160, "status": "ok",
}  # fmt: skip
BENCH = {
    "date": "20260801-100000", "backend": "vllm", "model_id": "m", "tokenizer_id": "m",
    "num_prompts": 1, "request_rate": 1.0, "burstiness": 1.0, "duration": 3.3, "completed": 1,
    "failed": 0, "input_lens": [12_000], "output_lens": [160], "ttfts": [0.84],
    "itls": [[2.4 / 159] * 159], "start_times": [100.0], "generated_texts": [""], "errors": [""],
}  # fmt: skip
LLAMA = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": START_S + 3,
    "usage": {"prompt_tokens": 12_000, "completion_tokens": 160, "total_tokens": 12_160},
    "timings": {"cache_n": 9_000, "prompt_n": 3_000, "prompt_ms": 840.0, "predicted_n": 160,
                "predicted_ms": 2_400.0},
}  # fmt: skip
TRACE = {"timestamp": 0, "input_length": 12_000, "output_length": 160,
         "hash_ids": list(range(24))}  # fmt: skip
SESSION = {
    "id": "sess-7f", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [{"t": 0.0, "type": "s", "model": "m", "in": 12_000, "out": 160, "ttft": 0.84,
                  "hash_ids": list(range(187)), "api_time": 3.24, "think_time": 0.0}],
}  # fmt: skip
TOKENS = ("input_tokens", "output_tokens")
TIMES = ("ttft_us", "e2e_us")
#: What a format's file of the known request is, and what of it must come out.
HERE: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "flat": ("flat", [FLAT], tuple(REQUEST)),
    "flat csv": ("flat", table(FLAT), tuple(REQUEST)),
    "vllm-bench": ("vllm-bench", BENCH, (*TOKENS, *TIMES)),
    # Prefill and decode of the engine: its TTFT has no queue and is none of a client's.
    "llamacpp": ("llamacpp", [LLAMA], (*TOKENS, "cached_tokens")),
    "mooncake": ("mooncake", [TRACE] * 3, TOKENS),
    "weka": ("weka", SESSION, (*TOKENS, *TIMES)),
}
#: Formats that are held against it elsewhere.
ELSEWHERE = {
    *(name for name, _, _ in gateways.REFERENCE.values()),
    *loadtools.REFERENCE,
    *engines.NAMES,
    # By their samples: test_readers_a.py, test_readers_agents.py.
    "litellm", "ollama", "otlp", "sglang-metrics", "claude-code", "codex",
}  # fmt: skip


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("case", HERE)
def test_the_known_request_comes_out_the_same(case: str, tmp_path: Path) -> None:
    name, value, columns = HERE[case]
    log = read(write(tmp_path, value))
    assert [one.format for one in log.inputs] == [name]
    row = log.requests.row(0, named=True)
    for column in columns:
        expected = REQUEST[column]
        if column == "e2e_us":
            assert abs(row[column] - expected) <= 1, column
        else:
            assert row[column] == expected, column


def test_no_format_is_left_out() -> None:
    names = {reader.name for reader in catalog.readers()}
    assert {name for name, _, _ in HERE.values()} | ELSEWHERE == names


def test_samples_of_litellm_and_otlp_hold_it() -> None:
    """Whole, in the first row."""
    for name in ("litellm", "otlp"):
        row = read(SAMPLES / f"{name}.jsonl").requests.row(0, named=True)
        for column in set(REQUEST) - {"request_id"}:
            assert row[column] == REQUEST[column], (name, column)


def test_the_table_in_the_readme_is_what_formats_prints() -> None:
    """To renew it: ``ttftdoctor formats --markdown``."""
    printed = CliRunner().invoke(app, ["formats", "--markdown"]).output
    assert printed == catalog.formats_in_markdown()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme.index("| format | what it is |")
    assert readme[start : readme.index("\n\n", start) + 1] == printed


def test_each_row_has_a_title_of_its_own_and_a_sample() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", catalog.formats_in_markdown(), re.MULTILINE)
    assert [name for name, _ in rows] == [reader.name for reader in catalog.readers()]
    assert len({title for _, title in rows}) == len(rows)
    for name, _ in rows:
        assert list((ROOT / "sample_logs").glob(f"{name}.*"))


@pytest.mark.parametrize(
    "row",
    [
        FLAT | {"stream": False},
        FLAT | {"ttft_ms": 3_241.5, "latency_ms": 3_000},
        FLAT | {"ttft_ms": 0},
    ],
)
def test_what_is_no_first_token_is_never_used_as_one(row: dict[str, Any], tmp_path: Path) -> None:
    one = only(read(write(tmp_path, json.dumps(row) + "\n" + json.dumps(row)[:0])))
    assert one["ttft_us"] is None
    assert one[SET_ASIDE] is not None


NO_FIRST_TOKEN = {
    "aibrix": {"request_id": "r", "status": "success", "target_pod": "p", "start_time": 5.0,
               "prompt_tokens": 9, "output_tokens": 16, "ttft": 3.24, "latency": 3.24},
    "llmperf": [{"error_code": None, "ttft_s": 3.24, "end_to_end_latency_s": 3.24,
                 "number_input_tokens": 9, "number_output_tokens": 16}],
}  # fmt: skip


@pytest.mark.parametrize("name", NO_FIRST_TOKEN)
def test_an_answer_that_came_whole_has_no_first_token(name: str, tmp_path: Path) -> None:
    value = NO_FIRST_TOKEN[name]
    text = json.dumps(value)
    log = read(write(tmp_path, f"{text}\n{text}\n" if isinstance(value, dict) else text))
    assert log.inputs[0].format == name
    assert set(log.inputs[0].ttft_set_aside) == {"not_streamed"}
    assert log.requests["ttft_us"].count() == 0
