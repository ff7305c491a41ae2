"""Exported traces: what is kept, to the token, and what must not be in them."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.measure.rows import prepare
from ttftdoctor.prefixes import export as module
from ttftdoctor.prefixes.export import BLOCK_TOKENS, Export, export
from ttftdoctor.table import check, conform

ROOT = Path(__file__).parent.parent
TRACE = ROOT.parent / "shared" / "real" / "trace_mooncake" / "conversation_trace.jsonl"

#: What lies after what, piece by piece: two prompts are alike as far as their pieces are.
Prompt = tuple[tuple[int, int], ...]

#: Two files in one folder would be enough for a property test; Hypothesis warns of any.
FILES = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def length(prompt: Prompt) -> int:
    return sum(n for _, n in prompt)


def head(prompt: Prompt, tokens: int) -> Prompt:
    """The first tokens of a prompt."""
    out: list[tuple[int, int]] = []
    for piece, n in prompt:
        if tokens > 0:
            out.append((piece, min(n, tokens)))
        tokens -= n
    return tuple(out)


def blocks_of(prompt: Prompt, size: int, *, last: bool) -> list[int]:
    """A hash of all that lies before the end of each block; with ``last`` of a part block, too."""
    n = length(prompt)
    count = -(-n // size) if last else n // size
    texts = (repr(head(prompt, min((k + 1) * size, n))) for k in range(count))
    return [int.from_bytes(blake2b(t.encode(), digest_size=8).digest(), "big") for t in texts]


def log_of(rows: list[dict[str, Any]]) -> Log:
    """A log of canonical rows, as intake makes it."""
    frame = pl.DataFrame([{"line": k + 1, **row} for k, row in enumerate(rows)])
    requests = check(conform(frame)).with_columns(pl.lit(0, dtype=pl.Int32).alias("source"))
    return Log(requests, requests.clear(), (), {}, ())


def prompts_log(prompts: list[Prompt], size: int, *, last: bool, **more: list[Any]) -> Log:
    return log_of(
        [
            {
                "start": 1_790_000_000_000_000 + 1_500 * k, "input_tokens": length(prompt),
                "output_tokens": 7 + k, "prefix_blocks": blocks_of(prompt, size, last=last),
                "block_tokens": size, **{name: values[k] for name, values in more.items()},
            }
            for k, prompt in enumerate(prompts)
        ]
    )  # fmt: skip


def reusable(requests: pl.DataFrame) -> list[int]:
    """Tokens of each prompt that an endless cache holds, block by block."""
    seen: set[tuple[int, int]] = set()
    out = []
    columns = requests.select("prefix_blocks", "block_tokens", "input_tokens")
    for blocks, size, n in columns.iter_rows():
        found = 0
        for one in blocks:
            if (size, one) not in seen:
                break
            found += 1
        seen.update((size, one) for one in blocks)
        out.append(min(found * size, n))
    return out


def again(trace: Export, folder: Path) -> pl.DataFrame:
    """What is read of the written trace."""
    path = folder / "trace.jsonl"
    path.write_text("".join(trace.text()), encoding="utf-8")
    return read_log([str(path)], format="mooncake").requests


def parsed(trace: Export) -> list[dict[str, Any]]:
    return [json.loads(line) for line in "".join(trace.text()).splitlines()]


@st.composite
def conversations(draw: st.DrawFn) -> list[Prompt]:
    """Prompts that begin alike: new ones, longer ones, the same once more, and cut ones."""
    pieces = st.integers(0, 3)
    lengths = st.one_of(st.integers(1, 40), st.integers(1, 1600), st.sampled_from([16, 512, 1024]))
    prompts: list[Prompt] = []
    for _ in range(draw(st.integers(1, 8))):
        base: Prompt = draw(st.sampled_from([(), *prompts]))
        if base and draw(st.integers(0, 3)) == 0:
            base = head(base, draw(st.integers(1, length(base))))
        grown = st.lists(st.tuples(pieces, lengths), min_size=0 if base else 1, max_size=3)
        prompts.append((*base, *draw(grown)))
    return prompts


# ------------------------------------------------------------- what prompts share


@FILES
@given(
    conversations(), st.sampled_from(["mooncake", "bailian"]),
    st.sampled_from([16, 24, 32, 100, 512, 1024]), st.booleans(),
)  # fmt: skip
def test_reuse_is_kept(
    tmp_path: Path, prompts: list[Prompt], format_: str, size: int, last: bool
) -> None:
    """To the token where blocks are multiples; else less than a block of the trace is lost.

    Where the log has no id for a last part block, a prompt that recurs whole does so in the trace.
    """
    log = prompts_log(prompts, size, last=last)
    trace = export(log, format_)
    kept = trace.table.height
    assert kept + sum(trace.left_out.values()) == len(prompts)
    if trace.left_out:  # more than an end of the prompt is without a block
        assert set(trace.left_out) == {"few_blocks"}
        assert not last
        covered = log.requests.filter(
            pl.col("input_tokens") - pl.col("prefix_blocks").list.len() * size
            <= pl.max_horizontal(pl.col("input_tokens") // 2, 512)
        )
        log = Log(covered, log.failed, (), {}, ())
        assert covered.height == kept
    read = again(trace, tmp_path)
    assert read["input_tokens"].to_list() == log.requests["input_tokens"].to_list()
    assert read["output_tokens"].to_list() == log.requests["output_tokens"].to_list()
    block = BLOCK_TOKENS[format_]
    ceilings = [-(-n // block) for n in read["input_tokens"].to_list()]
    assert read["prefix_blocks"].list.len().to_list() == ceilings
    before = reusable(log.requests)
    after = [min(k, n) for k, n in zip(_tokens(trace, block), read["input_tokens"], strict=True)]
    ends = log.requests.select(
        pl.col("prefix_blocks").list.last(), "input_tokens", "block_tokens"
    ).rows()
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        recurs = ends[k][0] is not None and ends[k] in ends[:k]
        n = ends[k][1]
        if recurs and n - len(log.requests["prefix_blocks"][k]) * size < size:
            assert new == n  # a whole prompt once more
        elif size % block == 0:
            assert new == old
        else:
            assert old - block < new <= old


def _tokens(trace: Export, block: int) -> list[int]:
    """Leading blocks that were in an earlier row, in tokens; by the numbers as written."""
    seen: set[int] = set()
    out = []
    for row in parsed(trace):
        ids = row["hash_ids"]
        known = next((k for k, one in enumerate(ids) if one not in seen), len(ids))
        seen.update(ids)
        out.append(known * block)
    return out


@FILES
@given(conversations(), st.sampled_from(["mooncake", "bailian"]), st.sampled_from([16, 512, 24]))
def test_numbers_are_small_and_in_order(
    tmp_path: Path, prompts: list[Prompt], format_: str, size: int
) -> None:
    trace = export(prompts_log(prompts, size, last=True), format_)
    flat = [one for row in parsed(trace) for one in row["hash_ids"]]
    assert list(dict.fromkeys(flat)) == list(range(trace.blocks))
    # They chain: read again they are taken as they are.
    path = tmp_path / "a.jsonl"
    path.write_text("".join(trace.text()), encoding="utf-8")
    log = read_log([str(path)], format="mooncake")
    assert log.fields["prefix_blocks"].kind == "logged"
    assert log.requests["prefix_blocks"].explode().to_list() == flat


@FILES
@given(conversations(), st.sampled_from(["mooncake", "bailian"]))
def test_a_trace_of_a_trace_is_itself(tmp_path: Path, prompts: list[Prompt], format_: str) -> None:
    once = export(prompts_log(prompts, 16, last=True), format_)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(once.text()), encoding="utf-8")
    read = read_log([str(path)], format="mooncake")
    if (read.requests["block_tokens"] == BLOCK_TOKENS[format_]).all():
        assert "".join(export(read, format_).text()) == "".join(once.text())


@pytest.mark.skipif(not TRACE.exists(), reason="the published trace is not here")
def test_the_published_trace_is_written_as_it_was() -> None:
    """Mooncake's own numbers are consecutive and in order: byte for byte, but for the spaces."""
    trace = export(read_log([str(TRACE)]))
    assert "".join(trace.text()) == TRACE.read_text(encoding="utf-8").replace(" ", "")
    assert trace.blocks == 182_790
    assert trace.left_out == {}
    assert trace.notes == ()


@pytest.mark.skipif(not TRACE.exists(), reason="the published trace is not here")
def test_the_published_trace_in_small_blocks(tmp_path: Path) -> None:
    log = read_log([str(TRACE)])
    log = Log(log.requests.head(1500), log.failed, log.inputs, log.fields, ())
    read = again(export(log, "bailian"), tmp_path)
    assert reusable(read) == reusable(log.requests)
    assert read["block_tokens"].unique().to_list() == [16]
    back = again(export(Log(read, read.clear(), (), {}, ()), "mooncake"), tmp_path)
    assert reusable(back) == reusable(log.requests)


def test_by_hand() -> None:
    """Blocks of 256 tokens in a trace of 512, and of 32 in one of 16."""
    rows = [
        {"start": 0, "input_tokens": 1300, "output_tokens": 1, "block_tokens": 256,
         "prefix_blocks": [11, 12, 13, 14, 15, 16]},  # the last one is a part
        {"start": 1, "input_tokens": 1536, "output_tokens": 1, "block_tokens": 256,
         "prefix_blocks": [11, 12, 13, 14, 15, 99]},
        {"start": 2, "input_tokens": 1300, "output_tokens": 1, "block_tokens": 256,
         "prefix_blocks": [11, 12, 13, 14, 15, 16]},
        {"start": 3, "input_tokens": 700, "output_tokens": 1, "block_tokens": 256,
         "prefix_blocks": [11, 55, 56]},
    ]  # fmt: skip
    trace = export(log_of(rows))
    assert [row["hash_ids"] for row in parsed(trace)] == [
        [0, 1, 2], [0, 1, 3], [0, 1, 2], [4, 5],
    ]  # fmt: skip
    rows = [
        {"start": 0, "input_tokens": 70, "output_tokens": 1, "block_tokens": 32,
         "prefix_blocks": [7, 8, 9]},
        {"start": 1, "input_tokens": 96, "output_tokens": 1, "block_tokens": 32,
         "prefix_blocks": [7, 8, 3]},
        {"start": 2, "input_tokens": 40, "output_tokens": 1, "block_tokens": 32,
         "prefix_blocks": [7]},
        {"start": 3, "input_tokens": 40, "output_tokens": 1, "block_tokens": 32,
         "prefix_blocks": [7]},
        {"start": 4, "input_tokens": 41, "output_tokens": 1, "block_tokens": 32,
         "prefix_blocks": [7]},
    ]  # fmt: skip
    trace = export(log_of(rows), "bailian")
    assert [row["hash_ids"] for row in parsed(trace)] == [
        [0, 1, 2, 3, 4], [0, 1, 2, 3, 5, 6], [0, 1, 7], [0, 1, 7], [0, 1, 8],
    ]  # fmt: skip


def test_blocks_of_two_sizes_are_never_the_same() -> None:
    row = {"start": 0, "output_tokens": 1}
    trace = export(
        log_of(
            [
                {**row, "input_tokens": 512, "block_tokens": 512, "prefix_blocks": [5]},
                {**row, "input_tokens": 512, "block_tokens": 256, "prefix_blocks": [4, 5]},
                {**row, "input_tokens": 512, "block_tokens": 512, "prefix_blocks": [5]},
                {**row, "input_tokens": 512, "block_tokens": 256, "prefix_blocks": [4, 5]},
            ]
        )
    )
    assert [row["hash_ids"] for row in parsed(trace)] == [[0], [1], [0], [1]]


def test_what_the_log_does_not_know_is_new() -> None:
    """A long rest is not shared, a short one is; blocks behind the end are not written."""
    row = {"start": 0, "output_tokens": 1, "block_tokens": 16}
    one = list(range(100, 140))
    trace = export(
        log_of(
            [
                {**row, "input_tokens": 1000, "prefix_blocks": one},  # knows 640 of 1000
                {**row, "input_tokens": 1000, "prefix_blocks": one},
                {**row, "input_tokens": 700, "prefix_blocks": one},  # knows all but 60
                {**row, "input_tokens": 700, "prefix_blocks": one},
                {**row, "input_tokens": 30, "prefix_blocks": one},
                {**row, "input_tokens": 10, "prefix_blocks": []},
                {**row, "input_tokens": 10, "prefix_blocks": []},
            ]
        ),
        "bailian",
    )
    ids = [row["hash_ids"] for row in parsed(trace)]
    assert [len(row) for row in ids] == [63, 63, 44, 44, 2, 1, 1]
    assert ids[0][:40] == ids[1][:40] == ids[2][:40]
    assert not set(ids[0][40:]) & set(ids[1][40:])
    assert ids[2] == ids[3]
    assert ids[4] == ids[0][:2]
    assert ids[5] != ids[6]


# ------------------------------------------------------------- order, times, sessions


@FILES
@given(conversations(), st.data())
def test_sessions_and_turns(tmp_path: Path, prompts: list[Prompt], data: st.DataObject) -> None:
    n = len(prompts)
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=n, max_size=n))
    starts = data.draw(st.lists(st.integers(0, 5 * 10**6), min_size=n, max_size=n))
    log = prompts_log(prompts, 16, last=True, session_id=names, start=starts)
    rows = prepare(log.requests)
    read = again(export(log, "bailian"), tmp_path)
    assert read["start"].to_list() == sorted(s - min(starts) for s in starts)
    assert read["input_tokens"].to_list() == rows.inputs.tolist()
    alone = [code if code >= 0 else -1 - k for k, code in enumerate(rows.session.tolist())]
    assert _partition(read["session_id"].to_list()) == _partition(alone)
    turns = [int(turn) if turn == turn else 1 for turn in rows.turn.tolist()]
    assert read["turn"].to_list() == turns


def _partition(labels: list[Any]) -> list[int]:
    first: dict[Any, int] = {}
    return [first.setdefault(label, k) for k, label in enumerate(labels)]


def test_bailian_by_hand() -> None:
    rows = [
        {"session_id": s, "start": start, "input_tokens": 20, "output_tokens": 3, "turn": turn,
         "prefix_blocks": [k], "block_tokens": 16}
        for k, (s, start, turn) in enumerate(
            [("x", 2_000_000, 1), ("y", 2_500_000, 1), ("x", 4_000_001, 2), ("x", 9_000_000, 3)]
        )
    ]  # fmt: skip
    trace = export(log_of(rows), "bailian")
    assert parsed(trace)[2] == {
        "chat_id": 2, "parent_chat_id": 0, "timestamp": 2.000001, "input_length": 20,
        "output_length": 3, "type": "text", "turn": 2, "hash_ids": [4, 5],
    }  # fmt: skip
    assert [row["parent_chat_id"] for row in parsed(trace)] == [-1, -1, 0, 2]
    assert list(parsed(trace)[0]) == [
        "chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "type", "turn",
        "hash_ids",
    ]  # fmt: skip


@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_rows_come_in_order_of_arrival(format_: str) -> None:
    row = {"output_tokens": 3, "block_tokens": 16, "prefix_blocks": [1]}
    starts = [5_000_900, 1_000_000, 3_000_000, 1_000_000]
    log = log_of([{**row, "start": s, "input_tokens": 10 + k} for k, s in enumerate(starts)])
    for keep in (True, False):
        written = parsed(export(log, format_, keep_times=keep))
        assert [one["input_length"] for one in written] == [11, 13, 12, 10]
        times = [one["timestamp"] for one in written]
        exact = [0, 0, 2000.0, 4000.9] if keep else [0, 1333.633, 2667.266, 4000.9]
        if format_ == "mooncake":
            assert times == [int(ms) for ms in exact]
        else:
            assert times == pytest.approx([ms / 1000 for ms in exact], abs=1e-6)


@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_a_log_without_times(format_: str) -> None:
    row = {"output_tokens": 3, "block_tokens": 16, "prefix_blocks": [1]}
    trace = export(log_of([{**row, "input_tokens": 10 + k} for k in range(3)]), format_)
    assert [(one["timestamp"], one["input_length"]) for one in parsed(trace)] == [
        (0, 10), (0, 11), (0, 12),
    ]  # fmt: skip
    assert any("no times" in note for note in trace.notes)


# ------------------------------------------------------------- what must not be there


@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_nothing_of_the_log_is_told(format_: str) -> None:
    """Every text and every hash of the log is looked for in the bytes of the trace."""
    prompts: list[Prompt] = [((1, 700), (k % 3, 90 + k)) for k in range(40)]
    secret = "kq7-{}-\x1b[31m<script>"
    columns = ("request_id", "model", "tenant", "route", "replica", "version")
    more: dict[str, list[Any]] = {c: [secret.format(f"{c}{k}") for k in range(40)] for c in columns}
    more["session_id"] = [f"ses-{k % 7}-zz" for k in range(40)]
    more["line"] = [918_273_000 + k for k in range(40)]
    log = prompts_log(prompts, 16, last=True, **more)
    text = "".join(export(log, format_).text())
    assert "kq7" not in text
    assert "script" not in text
    assert "ses-" not in text
    assert "918273" not in text
    assert "1790000" not in text  # the date
    for one in log.requests["prefix_blocks"].explode().to_list():
        assert str(one) not in text
        assert f"{one:x}" not in text
    names = set(re.findall(r'"(\w+)":', text))
    shared = {"timestamp", "input_length", "output_length", "hash_ids"}
    chats = {"chat_id", "parent_chat_id", "type", "turn"}
    assert names == (shared if format_ == "mooncake" else shared | chats)
    assert set(re.findall(r':"(.*?)"', text)) <= {"text"}


@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_no_word_of_the_prompts_is_told(format_: str, tmp_path: Path) -> None:
    """A log with text: blocks are cut from it, turns share them, and no word of it is left."""
    said = [f"Zebra{k} quarks the {'very ' * 60}Fjord{k}" for k in range(12)]
    lines = []
    for k in range(12):
        talk = [{"role": "system", "content": "Gazpacho " * 300}]
        talk += [{"role": "user", "content": text} for text in said[: k + 1]]
        lines.append(
            {"request_id": f"Ocelot{k}", "timestamp": f"2026-03-01T10:00:{k:02}Z", "ttft_ms": 300,
             "input_tokens": sum(len(one["content"]) for one in talk) // 4, "output_tokens": 9,
             "model": "Tapir", "messages": talk}
        )  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    log = read_log([str(path)])
    trace = export(log, format_)
    text = "".join(trace.text())
    assert trace.table.height == 12
    for word in ("Zebra", "quark", "very", "Fjord", "Gazpacho", "Ocelot", "Tapir", "user", "2026"):
        assert word not in text
    ids = [one["hash_ids"] for one in parsed(trace)]
    before = zip(ids, reusable(log.requests), strict=True)
    block = BLOCK_TOKENS[format_]
    for k, (row, tokens) in enumerate(before):
        old = {one for earlier in ids[:k] for one in earlier}
        assert tokens - block < block * sum(one in old for one in row) <= tokens
    assert reusable(log.requests)[-1] > 700


def test_equal_logs_under_other_hashes_give_one_trace() -> None:
    """Nothing of the hashes is left: salted in another way, the trace is the same."""
    prompts: list[Prompt] = [((1, 700), (k % 3, 90 + k), (k % 2, 600)) for k in range(30)]
    log = prompts_log(prompts, 16, last=False)
    other = log.requests.with_columns(
        pl.col("prefix_blocks").list.eval(pl.element() * pl.lit(0x9E3779B97F4A7C15, pl.UInt64) + 5)
    )
    for format_ in BLOCK_TOKENS:
        one, two = export(log, format_), export(Log(other, other.clear(), (), {}, ()), format_)
        assert "".join(one.text()) == "".join(two.text())


# ------------------------------------------------------------- what cannot be written


def test_rows_that_are_left_out_are_counted() -> None:
    row = {"start": 5, "input_tokens": 20, "output_tokens": 3, "block_tokens": 16,
           "prefix_blocks": [1]}  # fmt: skip
    bad: list[dict[str, Any]] = [
        {"prefix_blocks": None}, {"block_tokens": None}, {"block_tokens": 0},
        {"input_tokens": None}, {"input_tokens": 0}, {"output_tokens": None}, {"start": None},
        {"input_tokens": 100_000_000}, {"input_tokens": 600, "prefix_blocks": []},
        {"prefix_blocks": None, "input_tokens": None},
    ]  # fmt: skip
    log = log_of([row, *({**row, **one} for one in bad), row])
    assert log.requests.height == 12
    for format_ in BLOCK_TOKENS:
        trace = export(log, format_)
        assert trace.table.height == 2
        assert trace.left_out == {
            "no_blocks": 4, "no_input_tokens": 2, "no_output_tokens": 1, "no_start": 1,
            "few_blocks": 2,
        }  # fmt: skip
        assert list(trace.left_out) == [name for name in module.NEEDS if name in trace.left_out]


@pytest.mark.parametrize(
    ("missing", "word"),
    [
        ({"prefix_blocks": None}, "prefix_blocks"),
        ({"input_tokens": None}, "input_tokens"),
        ({"output_tokens": None}, "output_tokens"),
        ({"prefix_blocks": [], "input_tokens": 10_000}, "prefix_blocks"),
    ],
)
@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_a_log_of_which_nothing_can_be_written(
    missing: dict[str, Any], word: str, format_: str
) -> None:
    row = {"start": 5, "input_tokens": 20, "output_tokens": 3, "block_tokens": 16,
           "prefix_blocks": [1]}  # fmt: skip
    with pytest.raises(InputError, match="no request of the log can be exported") as caught:
        export(log_of([{**row, **missing}, {**row, **missing}]), format_)
    assert word in (caught.value.help or "")
    assert caught.value.why is not None


def test_an_empty_log() -> None:
    log = log_of([{"start": 1, "input_tokens": 1}])
    empty = Log(log.requests.clear(), log.failed, (), {}, ())
    for format_ in BLOCK_TOKENS:
        with pytest.raises(InputError, match="no request"):
            export(empty, format_)


def test_an_unknown_format() -> None:
    with pytest.raises(UsageError) as caught:
        export(log_of([{"start": 1, "input_tokens": 1}]), "har")
    assert "bailian" in str(caught.value)


# ------------------------------------------------------------- in parts


@pytest.mark.parametrize("format_", ["mooncake", "bailian"])
def test_parts_are_bounded_and_make_the_whole(
    format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[Prompt] = [((1, 700), (k % 5, 90 * k + 1)) for k in range(25)]
    log = prompts_log(prompts, 16, last=False)
    whole = "".join(export(log, format_).text())
    monkeypatch.setattr(module, "STEP", 40)
    monkeypatch.setattr(module, "ROWS", 4)
    trace = export(log, format_)
    parts = list(trace.text())
    assert "".join(parts) == whole
    assert len(parts) > 1
    assert all(part.endswith("\n") for part in parts)
    for frame in trace.frames():
        assert frame.height == 1 or frame["hash_ids"].list.len().sum() <= 40
        assert frame.schema["hash_ids"] == pl.List(pl.Int64)
