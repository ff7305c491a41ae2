"""Blocks of lines: parsed side by side, in order, and cut at line ends wherever these are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor import diagnose, sources
from ttftdoctor.intake import read_log
from ttftdoctor.sources import Source, side_by_side

SAMPLES = Path(__file__).parent.parent / "sample_logs"


# --- side by side -------------------------------------------------------------------------------


@given(items=st.lists(st.integers(), max_size=12), most=st.integers(1, 4))
def test_results_in_the_order_of_the_items(items: list[int], most: int) -> None:
    assert list(side_by_side(lambda item: item * 2, iter(items), most)) == [2 * i for i in items]


def test_as_many_at_a_time_and_no_more() -> None:
    both = threading.Barrier(2, timeout=10)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1, 7):
            taken.append(item)
            yield item

    def work(item: int) -> int:
        both.wait()  # passes only if two are worked on at the same time
        return item

    found = side_by_side(work, items(), 2)
    assert next(found) == 1
    assert taken == [1, 2]
    assert list(found) == [2, 3, 4, 5, 6]


def test_what_goes_wrong_is_told_in_its_turn() -> None:
    def work(item: int) -> float:
        return 1 / item

    found = side_by_side(work, iter([1, 0, 2]), 2)
    assert next(found) == 1.0
    with pytest.raises(ZeroDivisionError):
        next(found)


# --- line ends ----------------------------------------------------------------------------------


def record(at: int, pad: int) -> str:
    return json.dumps(
        {"request_id": f"r{at}", "timestamp": 1_773_100_800 + at, "input_tokens": 100 + at,
         "output_tokens": 20, "ttft_ms": 100 + at, "e2e_ms": 900 + at, "model": "m" * pad}
    )  # fmt: skip


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("tail", [8, 64, 512])
def test_every_line_once_whatever_the_size_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int, end: str
) -> None:
    # Lines shorter and longer than what is looked at for their end, and than a block.
    lines = [record(at, pad) for at, pad in enumerate([1, 3, 40, 700, 5, 1, 2, 300] * 9)]
    lines.insert(5, "")
    lines.insert(11, "no JSON")
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + end)
    monkeypatch.setattr(sources, "HEAD_BYTES", 600)
    monkeypatch.setattr(sources, "TAIL_BYTES", tail)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 1000)
    source = Source(str(path))
    read = b"".join(block for block, *_ in source._line_blocks())
    source.close()
    assert read == path.read_bytes()
    log = read_log([str(path)])
    found = log.requests.select("line", "request_id").rows()
    assert found == [
        (number, f"r{json.loads(line)['input_tokens'] - 100}")
        for number, line in enumerate(lines, start=1)
        if line.startswith("{")
    ]
    assert log.inputs[0].rows_rejected == {"not_json": 1}


# --- drawings -----------------------------------------------------------------------------------


def test_without_drawings_the_answer_is_the_same() -> None:
    path = str(SAMPLES / "peak_hour.jsonl")
    drawn, plain = diagnose(path), diagnose(path, draw=False)
    assert drawn.charts.ttft_by_uncached
    assert drawn.charts.line_points
    assert drawn.charts.load
    assert plain.charts == type(plain.charts)()
    assert plain.to_dict() == drawn.to_dict()
    assert "charts" not in drawn.to_dict()


ODD = [
    "tab\there",
    "back\\slash",
    'quote"d',
    "line\nend",
    "\r",
    "\x01",
    "\x7f",
    "中文",
    "\\n",
    "/",
    "\\u0041",
]


@pytest.mark.parametrize("shape", ["list", "object"])
def test_what_is_escaped_in_a_nested_value_stays_json(tmp_path: Path, shape: str) -> None:
    """Prompts hold code: tabs and backslashes must not tear the JSON around them."""
    rows = []
    for text in ODD:
        nested: Any = [{"role": "user", "content": text}]
        rows.append({"n": 1, "body": nested if shape == "list" else {"messages": nested}})
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with closing(Source(str(log))) as source:
        frames = [chunk.frame for chunk in source.chunks({"n": pl.String, "body": pl.String})]
    texts = pl.concat(frames)["body"].to_list()
    assert [json.loads(text) for text in texts] == [row["body"] for row in rows]
