"""Blocks from content: what is rendered, where blocks end, and that equal text has equal ids."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ttftdoctor
from ttftdoctor import prompts as module
from ttftdoctor import rendering, sources
from ttftdoctor.errors import InputError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.prompts import (
    Place,
    Prompts,
    Rendered,
    Where,
    calibrate,
    find,
    load_tokenizer,
    render,
    text_blocks,
    token_blocks,
    token_ids,
)
from ttftdoctor.readers import Options
from ttftdoctor.run import diagnose
from ttftdoctor.table import LINE, UNREAD

TOP = Where(
    messages=Place("messages"),
    prompt=Place("prompt"),
    system=Place("system"),
    tools=Place("tools"),
)
BODY = Where(
    **{
        name: Place("log", ("request", "body", name))
        for name in ("messages", "prompt", "system", "tools")
    }
)

BUSTING = "cache_busting_prefix"

Parts = list[tuple[str, str]]


# -------------------------------------------------------------------- the slow, obvious renderer

PRINTED = (
    "name", "tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning",
    "thinking", "refusal", "tool_name", "images",
)  # fmt: skip
END = "\x03"


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def dumped(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def said(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(piece(one) for one in content)
    return piece(content)


def piece(one: Any) -> str:
    if isinstance(one, str):
        return one
    if (
        isinstance(one, dict)
        and isinstance(one.get("text", one.get("content")), str)
        and one.get("type", "text") in ("text", "input_text", "output_text")
    ):
        return str(one.get("text", one.get("content")))
    return dumped(one)


def message(one: dict[str, Any]) -> tuple[str, bool]:
    filled = {key: value for key, value in one.items() if value is not None}
    content = filled.get("content")
    if "role" not in filled and content is None:
        item = {key: value for key, value in one.items() if key not in ("id", "status")}
        return dumped(item) + "\n", False
    role = filled.get("role", filled.get("type", ""))
    beside = [
        f'\n"{key}":{dumped(value)}'
        for key, value in filled.items()
        if key in PRINTED and value not in ("", [], {})
    ]
    return f"{role}\n{said(content)}{''.join(beside)}{END}", role in ("system", "developer")


def reference(
    tools: Any = None, system: Any = None, messages: Any = None, prompt: Any = None
) -> Parts:
    parts: Parts = [("tools", dumped(tool) + "\n") for tool in tools or ()]
    if system:
        parts.append(("system", f"system\n{said(system)}{END}"))
    leading = True
    for one in messages or ():
        text, heads = message(one)
        leading = leading and heads
        parts.append(("system" if leading else "messages", text))
    if prompt and not messages:
        texts = [prompt] if isinstance(prompt, str) else [one + END for one in prompt]
        parts += [("messages", one) for one in texts]
    return parts if messages or prompt else []


# ------------------------------------------------------------------------------------ strategies

words = st.text(st.characters(codec="utf-8"), max_size=12)
leaves = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | words
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(words | st.just("cache_control"), inner, max_size=3)
    ),
    max_leaves=8,
)
texts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "input_text", "output_text"]), "text": words},
    optional={"cache_control": trees, "annotations": trees},
)
others = st.fixed_dictionaries(
    {"type": st.sampled_from(["image_url", "tool_use", "tool_result"])},
    optional={"text": words, "input": trees, "cache_control": trees, "id": words},
)
spoken = st.fixed_dictionaries({"content": words}, optional={"type": st.just("text")})
contents = st.none() | words | st.lists(words | texts | spoken | others, max_size=3)


@st.composite
def shuffled(draw: st.DrawFn, records: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    record = draw(records)
    return {key: record[key] for key in draw(st.permutations(list(record)))}


messages_ = shuffled(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "Käfer"]),
            "content": contents,
        },
        optional={
            "name": words,
            "tool_calls": st.lists(trees, max_size=2),
            "id": words,
            "timestamp": st.integers(0, 10),
            "cache_control": trees,
            "reasoning_content": st.none() | words,
        },
    )
)
items = shuffled(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function_call", "reasoning"])},
        optional={"id": words, "status": words, "arguments": words, "summary": trees},
    )
)
tools_ = st.fixed_dictionaries(
    {"name": words}, optional={"input_schema": trees, "cache_control": trees}
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.lists(tools_, max_size=3),
        "system": words.filter(lambda t: t.strip() and t.strip()[0] not in "[{n")
        | st.lists(texts | others, min_size=1, max_size=2),
        "messages": st.lists(messages_ | items, max_size=4),
        "prompt": words.filter(lambda t: t.strip() and t.strip()[0] not in "[{n")
        | st.lists(words, min_size=1, max_size=2),
    },
)


def cell(value: Any, **style: Any) -> str | None:
    """As a JSON log's field arrives: text as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, **style)


def frame_of(rows: Sequence[dict[str, Any]], **style: Any) -> pl.DataFrame:
    names = ("tools", "system", "messages", "prompt")
    return pl.DataFrame(
        {name: [cell(row.get(name), **style) for row in rows] for name in names},
        schema=dict.fromkeys(names, pl.String),
    )


def parts_of(rendered: Rendered) -> list[Parts]:
    return [[(p["section"], p["text"]) for p in row or ()] for row in rendered.parts().to_list()]


# ------------------------------------------------------------------------------------- rendering


@given(
    st.lists(requests, min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([None, (",", ":"), (" , ", "\t:\n")]),
)
@example([{"messages": [{"role": "system", "content": None, "name": " "}]}], False, None)
@settings(max_examples=300, deadline=None)
def test_what_is_rendered_is_what_the_obvious_way_renders(
    rows: list[dict[str, Any]], ascii: bool, separators: tuple[str, str] | None
) -> None:
    wanted = [reference(**row) for row in rows]
    style: dict[str, Any] = {"ensure_ascii": ascii, "separators": separators}
    rendered = render(TOP, frame_of(rows, **style))
    assert parts_of(rendered) == wanted
    whole = [{"request": {"x": [1, "}"], "body": row, "messages": 3}} for row in rows]
    nested = pl.DataFrame({"log": [json.dumps(row, **style) for row in whole]})
    dug = render(BODY, nested)
    assert parts_of(dug) == wanted
    for one in (rendered, dug):
        assert one.texts().to_list() == ["".join(t for _, t in p) if p else None for p in wanted]
        assert one.states.tolist() == [
            rendering.READ if parts else rendering.ABSENT for parts in wanted
        ]


def test_a_request_by_hand() -> None:
    tools = '[{"name":"find", "cache_control":{"type":"ephemeral"}, "schema":{"b":1,"a":[ ]}}]'
    messages = (
        '[{"content":"Be brief.","role":"system"},'
        '{"role":"user","content":[{"type":"text","text":"Caf\\u00e9 \\ud83d\\ude00?",'
        '"cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"x"}}]},'
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}],"refusal":null},'
        '{"role":"system","content":"late"}]'
    )
    rendered = render(TOP, pl.DataFrame({"tools": [tools], "messages": [messages]}))
    assert parts_of(rendered) == [
        [
            ("tools", '{"name":"find","schema":{"b":1,"a":[]}}\n'),
            ("system", "system\nBe brief.\x03"),
            ("messages", 'user\nCafé 😀?{"type":"image_url","image_url":{"url":"x"}}\x03'),
            ("messages", 'assistant\n\n"tool_calls":[{"id":"c1"}]\x03'),
            ("messages", "system\nlate\x03"),
        ]
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "[INST] do [/INST]"}, "[INST] do [/INST]"),
        ({"prompt": "  two\n\n"}, "  two\n\n"),
        ({"prompt": '{"a": 1}'}, '{"a": 1}'),
        ({"prompt": '["a","b"]'}, "a\x03b\x03"),
        ({"messages": "what is it"}, "user\nwhat is it\x03"),
        ({"messages": '{"role":"user","content":"x"} '}, "user\nx\x03"),
        ({"messages": '[{"type":"human","content":"x"}]'}, "human\nx\x03"),
        ({"messages": '[{"role":"user","parts":[{"text":"x"}]}]'}, "user\nx\x03"),
        ({"messages": '[{"role":"user","content":"\\ud800x"}]'}, "user\n�x\x03"),
        ({"messages": '[{"role":"user","content":7}]'}, "user\n7\x03"),
        ({"messages": "[]", "prompt": "p q"}, "p q"),
        ({"messages": "null", "prompt": "p q"}, "p q"),
        ({"tools": "a tool", "prompt": "p q"}, "a tool\np q"),
        ({"system": "{braces}", "prompt": "p"}, "system\n{braces}\x03p"),
    ],
)
def test_odd_ways_to_log_a_prompt(row: dict[str, str], text: str) -> None:
    rendered = render(TOP, frame_of([row]))
    assert rendered.texts().to_list() == [text]


@pytest.mark.parametrize(
    "text",
    [
        '[{"role":"user","content":"cut of', '[{"role":"user"', "[", "[1]", '["a"', "[{}]",
        '[{"role":"user","content":"x"}] tail', '[{"role":"user","content":"x"}]]', "[,]",
        '[{"role":"user","content":"\\x"}]', '[{"role":"user","content":"\\u12g4"}]',
        '[{"role":"user","content":[{"type":"image","x":tru}]}]', "{" * 5, "[" * 100_000,
        '[{"role":"user","content":' + "[" * 1000 + "]" * 1000 + "}]", '{"a":1}',
        '[{"role":"user" "content"}]', '[{"role":"user","content":"a\nb"}]', "[{'role':'user'}]",
    ],
)  # fmt: skip
def test_damaged_messages_are_unread_and_nothing_else_suffers(text: str) -> None:
    good = '[{"role":"user","content":"x"}]'
    rendered = render(TOP, pl.DataFrame({"messages": [good, text, good, None]}))
    read, unread, absent = rendering.READ, rendering.UNREAD, rendering.ABSENT
    assert rendered.states.tolist() == [read, unread, read, absent]
    assert rendered.texts().to_list() == ["user\nx\x03", None, "user\nx\x03", None]
    nested = json.dumps({"request": {"body": {"messages": 5}}})
    assert render(BODY, pl.DataFrame({"log": [nested]})).states.tolist() == [unread]


@given(st.lists(st.text(st.sampled_from('[]{}",:\\u0ntrole1e-é \x01'), max_size=40), max_size=5))
@settings(max_examples=300, deadline=None)
def test_noise_is_read_or_unread_but_never_breaks(cells: list[str]) -> None:
    frame = pl.DataFrame(
        dict.fromkeys(("messages", "system", "tools", "prompt", "log"), cells),
        schema=dict.fromkeys(("messages", "system", "tools", "prompt", "log"), pl.String),
    )
    for where in (TOP, BODY):
        rendered = render(where, frame)
        joined = ["".join(text for _, text in row) or None for row in parts_of(rendered)]
        assert [text or None for text in rendered.texts()] == joined
    token_ids(Where(ids=Place("log")), frame)


def test_the_order_of_keys_counts_in_tools_and_not_in_messages() -> None:
    rows = [
        {"tools": [{"a": 1, "b": 2}], "messages": [{"role": "user", "content": "x"}]},
        {"tools": [{"a": 1, "b": 2}], "messages": [{"content": "x", "role": "user"}]},
        {"tools": [{"b": 2, "a": 1}], "messages": [{"role": "user", "content": "x"}]},
    ]
    one, same, other = render(TOP, frame_of(rows)).texts()
    assert one == same != other


# ---------------------------------------------------------------------------------------- blocks

LOW = 2**64 - 1


def mix(h: int) -> int:
    h ^= h >> 30
    h = h * 0xBF58476D1CE4E5B9 & LOW
    h ^= h >> 27
    h = h * 0x94D049BB133111EB & LOW
    return h ^ h >> 31


def slow_text_ids(text: bytes, most: int, block_bytes: float) -> list[int]:
    ids: list[int] = []
    h, at = 0x9E3779B97F4A7C15, 0
    while len(ids) < most:
        cut = int(np.floor((len(ids) + 1) * block_bytes + 0.5))
        if cut > len(text):
            break
        block, at = text[at:cut], cut
        whole = len(block) // 8 * 8
        for i in range(0, whole, 8):
            h = mix(h ^ int.from_bytes(block[i : i + 8], "little"))
        h = mix(mix(h ^ int.from_bytes(block[whole:], "little")) + len(block) & LOW)
        ids.append(h)
    return ids


def slow_token_ids(tokens: list[int], block: int) -> list[int]:
    ids: list[int] = []
    h = 0x9E3779B97F4A7C15
    for start in range(0, len(tokens) - block + 1, block):
        for token in tokens[start : start + block]:
            h = mix(h ^ token)
        h = mix(h + block & LOW)
        ids.append(h)
    return ids


def dealt(values: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, np.cumsum(counts)[:-1])]


@given(
    st.lists(st.binary(max_size=150), min_size=1, max_size=5),
    st.floats(1.0, 6.0),
    st.integers(1, 20),
    st.integers(0, 8),
)
@settings(max_examples=200, deadline=None)
def test_ids_of_text_are_those_of_the_obvious_way(
    rows: list[bytes], each: float, block: int, most: int
) -> None:
    text = np.frombuffer(b"".join(rows), np.uint8).copy()
    ends = np.cumsum([0, *map(len, rows)])
    caps = np.full(len(rows), most)
    found = text_blocks(text, ends, caps, bytes_per_token=each, block_tokens=block)
    assert dealt(*found) == [slow_text_ids(row, most, block * each) for row in rows]


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=40), min_size=1, max_size=5),
       st.integers(1, 20))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_ids_of_tokens_are_those_of_the_obvious_way(rows: list[list[int]], block: int) -> None:
    frame = pl.DataFrame({"ids": [json.dumps(row) for row in rows]})
    tokens, ends, states = token_ids(Where(ids=Place("ids")), frame)
    assert dealt(tokens, np.diff(ends)) == rows
    assert states.tolist() == [rendering.READ if row else rendering.ABSENT for row in rows]
    found = token_blocks(tokens, ends, block_tokens=block)
    assert dealt(*found) == [slow_token_ids(row, block) for row in rows]


@given(st.binary(min_size=64, max_size=400), st.data())
@settings(max_examples=200, deadline=None)
def test_two_texts_share_ids_as_far_as_they_share_bytes(text: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    other = text[:at] + bytes([text[at] ^ data.draw(st.integers(1, 255))]) + text[at + 1 :]
    both = np.frombuffer(text + other, np.uint8).copy()
    ends = np.array([0, len(text), 2 * len(text)])
    a, b = dealt(*text_blocks(both, ends, np.full(2, 99), bytes_per_token=1.3, block_tokens=16))
    shared = [int(np.floor((k + 1) * 20.8 + 0.5)) <= at for k in range(len(a))]
    assert [x == y for x, y in zip(a, b, strict=True)] == shared
    assert len(set(a) | set(b)) == len(a) + shared.count(False)


GOLDEN_TEXT = [14276668667714078636, 963866203272774246]
GOLDEN_TOKENS = [7974987940956642721, 6305309605071313210]


def test_ids_are_the_same_on_every_machine() -> None:
    text = b"The quick brown fox jumps over the lazy dog, and does so again and again. "
    found = text_blocks(
        np.frombuffer(text, np.uint8).copy(), np.array([0, len(text)]), np.array([9]),
        bytes_per_token=2.0, block_tokens=16,
    )  # fmt: skip
    assert dealt(*found) == [GOLDEN_TEXT]
    tokens = np.arange(40)
    assert dealt(*token_blocks(tokens, np.array([0, 40]))) == [GOLDEN_TOKENS]


@pytest.mark.parametrize(
    "text", ["7", "[1,", "[1,2", "[1 2]", "[1.5]", "[-1]", '["a"]', "[1]]", "[null]", "[,1]",
             "[99999999999999999999]", "[1,]", "text", "{}"],
)  # fmt: skip
def test_what_is_no_list_of_token_ids_is_unread(text: str) -> None:
    frame = pl.DataFrame({"ids": [text, "[3, 4]", None, " [5 ] "]})
    tokens, ends, states = token_ids(Where(ids=Place("ids")), frame)
    read, unread, absent = rendering.READ, rendering.UNREAD, rendering.ABSENT
    assert states.tolist() == [unread, read, absent, read]
    assert (tokens.tolist(), ends.tolist()) == ([3, 4, 5], [0, 0, 2, 2, 3])


def test_the_measure_is_the_median_of_the_rows_that_can_be_believed() -> None:
    sizes = np.array([400, 420, 500, 40, 10**6, 0, 700])
    tokens = np.array([100, 100, 100, 10**4, 100, 500, 0])
    # 4.00, 4.20 and 5.00; a blanked text, an image and two unknown ones say nothing.
    assert calibrate(sizes, tokens) == (4.2, 3)
    # Short prompts count where there are no longer ones.
    assert calibrate(np.array([30, 60]), np.array([10, 10])) == (4.5, 2)
    assert calibrate(np.array([30, 640]), np.array([10, 100])) == (6.4, 1)
    assert calibrate(np.array([30]), np.array([0])) == (4.0, 0)
    assert calibrate(np.array([], np.int64), np.array([], np.int64)) == (4.0, 0)


# ------------------------------------------------------------------------- where prompts are kept

CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("record", "label"),
    [
        ({"messages": CHAT}, "messages"),
        ({"messages": json.dumps(CHAT)}, "messages"),
        ({"inputMessages": CHAT, "tools": [{"name": "a"}]}, "tools, inputMessages"),
        ({"request": {"body": {"messages": CHAT, "system": "be good"}}},
         "request.body.system, request.body.messages"),
        ({"request_body": json.dumps({"messages": CHAT})}, "request_body.messages"),
        ({"body": {"input": CHAT, "instructions": "be good"}}, "body.instructions, body.input"),
        ({"messages": CHAT, "payload": {"messages": CHAT, "tools": [{}]}},
         "payload.tools, payload.messages"),
        ({"messages": CHAT, "model_parameters": {"tools": [{}]}},
         "model_parameters.tools, messages"),
        ({"prompt": "tell me more"}, "prompt"),
        ({"prompt": ["tell me", "more"]}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt_token_ids": [1, 2], "messages": CHAT}, "prompt_token_ids, messages"),
        ({"kwargs": {"input_ids": [1, 2]}}, "kwargs.input_ids"),
        ({"messages": CHAT, "system": "vllm"}, "messages"),
        ({"prompt": "summarize_v2"}, None),
        ({"prompt": 12, "messages": 3, "tools": 2, "input": "text", "token_ids": 5}, None),
        ({"messages": [], "prompt": ""}, None),
        ({"tools": [{"name": "a"}], "system": "be good"}, None),
        ({"body": "{broken", "request": None}, None),
        ({"result": {"messages": CHAT}}, None),
        ({"mess\ud800ages": CHAT, "größe": CHAT}, None),
        ({"request": {"body": {"payload": {"data": {"params": {"messages": CHAT}}}}}}, None),
    ],
)  # fmt: skip
def test_where_prompts_are_kept(record: dict[str, Any], label: str | None) -> None:
    where = find([record, {}])
    assert (where.label if where is not None else None) == label


def test_a_prompt_of_token_ids_is_no_text() -> None:
    where = find([{"prompt": [1, 2, 3]}])
    assert where is not None
    assert where.ids == Place("prompt")
    where = find([{"prompt": "tell me more"}])
    assert where is not None
    assert (where.ids, where.prompt) == (None, Place("prompt"))


# ------------------------------------------------------------------------------------- whole logs


def write(path: Path, rows: Sequence[dict[str, Any] | str]) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def turn(i: int, text: str, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": 1_785_578_400 + i, "ttft_ms": 200, "input_tokens": len(text) // 4,
        "messages": [{"role": "user", "content": text}],
    } | more  # fmt: skip


def blocks_of(log: Log) -> list[list[int] | None]:
    return log.requests.sort("source", LINE)["prefix_blocks"].to_list()


LONG = "".join(f"word {i} of a long prompt, " for i in range(200))


def test_a_log_of_messages_has_blocks(tmp_path: Path) -> None:
    rows = [turn(i, LONG[: 800 + 100 * i]) for i in range(12)]
    log = read_log([write(tmp_path / "a.jsonl", rows)])
    found = blocks_of(log)
    assert log.requests["block_tokens"].unique().to_list() == [16]
    for row, (a, b) in zip(rows, itertools.pairwise(found), strict=False):
        assert a is not None
        assert b is not None
        # The end of a message is not what the next one has there: at most one block differs.
        assert a[:-1] == b[: len(a) - 1]
        assert row["input_tokens"] // 16 - 1 <= len(a) <= row["input_tokens"] // 16
    field = log.fields["prefix_blocks"]
    # (800 + 100 i + 6) / (200 + 25 i) bytes a token, the median between i = 5 and 6.
    assert field.why == "text in blocks of 16 tokens, 4.02 bytes a token (calibrated on 12 rows)"
    assert (field.source, field.kind) == ("messages", "derived")
    assert log.bytes_per_token == 4.02
    assert log.prompts is None
    assert not log.notes


def test_nothing_of_the_text_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [turn(i, LONG + "secret") for i in range(3)])
    log = read_log([path, write(tmp_path / "b.jsonl", [turn(9, "hello you there " * 20)])])
    assert "secret" not in log.requests.write_json() + repr(log)
    asked = read_log([path, str(tmp_path / "b.jsonl")], options=Options(text=True))
    assert asked.requests.equals(log.requests)
    assert asked.prompts is not None
    assert asked.prompts.schema == {LINE: pl.Int64, "parts": module.PARTS, "source": pl.Int32}
    assert asked.prompts.rows() == [
        (line, [{"section": "messages", "text": f"user\n{text}\x03"}], source)
        for line, text, source in [
            *((n, LONG + "secret", 0) for n in (1, 2, 3)),
            (1, "hello you there " * 20, 1),
        ]
    ]


def test_equal_text_has_equal_ids_in_all_chunks_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the first rows say of bytes a token holds for all; what later ones say must not count.
    rows = [turn(i, LONG) for i in range(40)] + [turn(50, LONG, input_tokens=900)] * 40
    first = write(tmp_path / "a.jsonl", rows)
    second = write(tmp_path / "b.jsonl", [turn(60, LONG, input_tokens=1000)] * 3)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(sources, "HEAD_BYTES", 10_000)
    log = read_log([first, second])
    assert log.bytes_per_token == round((len(LONG) + 6) / (len(LONG) // 4), 2)
    found = blocks_of(log)
    longest = max(filter(None, found), key=len)
    assert len(longest) > 60
    assert all(blocks and longest[: len(blocks)] == blocks for blocks in found)
    # No more blocks than the row has tokens for.
    assert [len(blocks or ()) for blocks in found[40:]] == [900 // 16] * 40 + [1000 // 16] * 3


def test_rows_are_rendered_in_slices_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"messages": [{"role": "user", "content": LONG[: 30 * i]}]} for i in range(50)]
    raw = frame_of(rows)
    frame = pl.DataFrame(
        {LINE: range(50), UNREAD: [None] * 50}, schema_overrides={UNREAD: pl.String}
    )
    one = Prompts(TOP, parts=True).read(frame, raw)
    monkeypatch.setattr(module, "_SLICE_BYTES", 3000)
    assert len(module._slices(raw, ["messages"])) > 5
    many = Prompts(TOP, parts=True).read(frame, raw)
    assert many.frame.equals(one.frame)
    assert one.parts is not None
    assert many.parts is not None
    assert many.parts.equals(one.parts)
    nothing = Prompts(TOP, parts=True).read(frame.clear(), raw.clear())
    assert nothing.frame.schema == one.frame.schema
    assert nothing.frame.height == 0


def test_damaged_and_blanked_messages_are_told_and_the_rows_kept(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [turn(i, LONG) for i in range(10)]
    rows[3]["messages"] = '[{"role":"user","cont'
    rows[5]["messages"] = [{"role": "user", "content": "redacted-by-litellm"}]
    rows[7]["messages"] = None
    log = read_log([write(tmp_path / "a.jsonl", rows)])
    assert log.inputs[0].rows_used == 10
    assert [blocks is None for blocks in blocks_of(log)] == [i in (3, 5, 7) for i in range(10)]
    assert sorted(warning.partition(": ")[2] for warning in log.warnings) == [
        "1 values of `messages (shorter than its tokens)` could not be read",
        "prefix_blocks: 1 values of `messages` could not be read",
    ]


def test_where_no_tokens_are_logged_the_measure_is_assumed(tmp_path: Path) -> None:
    rows = [turn(i, LONG) for i in range(10)]
    for row in rows:
        del row["input_tokens"]
    log = read_log([write(tmp_path / "a.jsonl", rows)])
    assert log.requests["input_tokens"].null_count() == 10  # text is no count of tokens
    assert {len(blocks or ()) for blocks in blocks_of(log)} == {(len(LONG) + 6) // 64}
    assert log.fields["prefix_blocks"].kind == "assumed"
    assert any("4 bytes a token were assumed" in note for note in log.notes)


def test_token_ids_are_exact_and_count_the_input(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1_785_578_400 + i, "prompt_token_ids": list(range(100 + i)), "ttft_ms": 200}
        for i in range(20)
    ]
    rows[4]["prompt_token_ids"] = "none of these"
    log = read_log([write(tmp_path / "a.jsonl", rows)])
    wanted = slow_token_ids(list(range(112)), 16)
    found = blocks_of(log)
    assert found[4] is None
    assert found[0] == wanted[:6]
    assert found[12] == wanted
    tokens = log.requests["input_tokens"].to_list()
    assert tokens == [None if i == 4 else 100 + i for i in range(20)]
    assert log.fields["input_tokens"].kind == "derived"
    # Ids of the answer are not ids of the prompt.
    rows = [row | {"input_tokens": 5000} for row in rows]
    log = read_log([write(tmp_path / "b.jsonl", rows)])
    assert blocks_of(log) == [None] * 20
    assert any("not as many as input_tokens" in warning for warning in log.warnings)


def test_ids_of_the_log_win_over_text(tmp_path: Path) -> None:
    rows = [turn(i, LONG, block_hashes=[1, 2, 3 + i], block_tokens=512) for i in range(5)]
    path = write(tmp_path / "a.jsonl", rows)
    log = read_log([path], options=Options(text=True))
    assert blocks_of(log) == [[1, 2, 3 + i] for i in range(5)]
    assert log.requests["block_tokens"].to_list() == [512] * 5
    assert log.prompts is not None
    assert log.prompts["parts"].list.len().to_list() == [1] * 5


def test_token_ids_win_over_text_which_is_read_if_asked_for(tmp_path: Path) -> None:
    rows = [turn(i, LONG, input_tokens=50, input_ids=list(range(50))) for i in range(5)]
    path = write(tmp_path / "a.jsonl", rows)
    log, asked = read_log([path]), read_log([path], options=Options(text=True))
    assert blocks_of(log) == blocks_of(asked) == [slow_token_ids(list(range(50)), 16)] * 5
    assert log.fields["prefix_blocks"].source == asked.fields["prefix_blocks"].source == "input_ids"
    assert log.prompts is None
    assert asked.prompts is not None
    assert asked.prompts["parts"].list.len().to_list() == [1] * 5
    # Ids of blocks win over both.
    rows = [row | {"block_hashes": [7, 8], "block_tokens": 16} for row in rows]
    path = write(tmp_path / "b.jsonl", rows)
    for text in (False, True):
        assert blocks_of(read_log([path], options=Options(text=text))) == [[7, 8]] * 5


def test_csv_and_parquet_hold_prompts_as_well(tmp_path: Path) -> None:
    rows = [turn(i, LONG) for i in range(10)]
    wanted = blocks_of(read_log([write(tmp_path / "a.jsonl", rows)]))
    table = pl.DataFrame([row | {"messages": json.dumps(row["messages"])} for row in rows])
    table.write_csv(tmp_path / "a.csv")
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        assert blocks_of(read_log([str(tmp_path / name)])) == wanted


@pytest.mark.parametrize("body", ["body", "bare"])
def test_litellm_keeps_messages_and_bodies(tmp_path: Path, body: str) -> None:
    rows = []
    for i in range(12):
        row: dict[str, Any] = {
            "id": f"r{i}", "call_type": "acompletion", "stream": True, "status": "success",
            "startTime": 1785578400.0 + i, "completionStartTime": 1785578400.5 + i,
            "endTime": 1785578402.0 + i, "prompt_tokens": (len(LONG) + 40) // 4,
            "completion_tokens": 9, "model": "m", "metadata": {},
            "messages": [{"role": "user", "content": LONG}],
        }  # fmt: skip
        if body == "body":
            row["proxy_server_request"] = {
                "url": "u", "body": {"messages": row["messages"], "tools": [{"name": "a"}]}
            }  # fmt: skip
        rows.append(row)
    rows[2]["messages"] = "redacted-by-litellm"
    log = read_log([write(tmp_path / "a.jsonl", rows)], options=Options(text=True))
    assert log.inputs[0].format == "litellm"
    found = blocks_of(log)
    assert [blocks is None for blocks in found] == [body == "bare" and i == 2 for i in range(12)]
    assert len({tuple(blocks) for blocks in found if blocks}) == 1
    assert log.prompts is not None
    first = [part["section"] for part in log.prompts["parts"][0]]
    assert first == (["tools", "messages"] if body == "body" else ["messages"])
    label = "proxy_server_request.body.tools, proxy_server_request.body.messages"
    assert log.fields["prefix_blocks"].source == (label if body == "body" else "messages")


def test_spans_carry_messages_as_json(tmp_path: Path) -> None:
    def span(i: int, **attributes: Any) -> dict[str, Any]:
        values = {"gen_ai.operation.name": "chat", **attributes}
        return {
            "name": "chat", "spanId": f"{i:016x}",
            "startTimeUnixNano": str((1_785_578_400 + i) * 10**9),
            "endTimeUnixNano": str((1_785_578_402 + i) * 10**9),
            "attributes": [
                {"key": key, "value": {"intValue" if isinstance(v, int) else "stringValue": v}}
                for key, v in values.items()
            ],
        }  # fmt: skip

    said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": LONG}]}])
    more = {"gen_ai.input.messages": said, "gen_ai.usage.input_tokens": len(LONG) // 4}
    system = {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be good"}])}
    spans = [span(0, **more), span(1, **more, **system), span(2), span(3, **more, **system)]
    rows = [{"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]} for one in spans]
    log = read_log([write(tmp_path / "a.jsonl", rows)], options=Options(text=True))
    a, b, none, c = blocks_of(log)
    assert a is not None
    assert len(a) == len(LONG) // 4 // 16
    assert none is None
    assert b == c != a
    assert log.prompts is not None
    assert log.prompts["parts"].to_list()[1] == [
        {"section": "system", "text": "system\nbe good\x03"},
        {"section": "messages", "text": f"user\n{LONG}\x03"},
    ]
    assert log.fields["prefix_blocks"].source.startswith("gen_ai.input.messages")


@pytest.mark.parametrize(
    ("head", "cause"),
    [("You are an agent.", "repeated_prefix_no_reuse"), ("Request {} of today.", BUSTING)],
)
def test_what_prompts_say_is_used_by_the_diagnosis(tmp_path: Path, head: str, cause: str) -> None:
    """Eight turns without a cache: why, only the text can tell."""
    sample = Path(__file__).parents[1] / "sample_logs" / "eight_turns.jsonl"
    rows = [json.loads(line) for line in sample.read_text().splitlines()]
    assert diagnose(str(sample)).verdict.primary_cause == "repeated_prefix_no_reuse"
    for i, row in enumerate(rows):
        words = random.Random(row["session_id"])
        said = "".join(f"{words.randrange(10**7):08} " for _ in range(row["input_tokens"] // 2))
        row["messages"] = [
            {"role": "system", "content": head.format(i)},
            {"role": "user", "content": said[: 4 * row["input_tokens"]]},
        ]
    found = diagnose(write(tmp_path / "a.jsonl", rows))
    assert found.verdict.primary_cause == cause


# -------------------------------------------------------------------------------------- tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    library = pytest.importorskip("tokenizers")
    words = {word: at for at, word in enumerate(["?", "user", "word", "of", "a", "prompt"])}
    made = library.Tokenizer(library.models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return str(path)


def test_a_tokenizer_makes_blocks_exact(tmp_path: Path, tokenizer: str) -> None:
    text = "word of a prompt " * 50
    rows = [turn(0, text), turn(1, text, input_tokens=None), turn(2, text, input_tokens=80)]
    path = write(tmp_path / "a.jsonl", rows)
    log = read_log([path], options=Options(tokenizer=tokenizer, text=True))
    tokens = [1, *[2, 3, 4, 5] * 50, 0]
    wanted = slow_token_ids(tokens, 16)
    assert blocks_of(log) == [wanted, wanted, wanted[:5]]
    assert log.requests["input_tokens"].to_list() == [len(text) // 4, len(tokens), 80]
    assert "by the tokenizer" in log.fields["prefix_blocks"].why
    assert log.prompts is not None


def test_a_tokenizer_that_cannot_be_used_is_told(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"a": 1}')
    with pytest.raises(InputError, match="no tokenizer file"):
        load_tokenizer(str(wrong))
    with pytest.raises(InputError, match="no such tokenizer file"):
        load_tokenizer(str(tmp_path / "none.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="not installed"):
        load_tokenizer(tokenizer)


# ------------------------------------------------------------------------------------------- cost


def test_a_log_without_prompts_loads_no_compiler(tmp_path: Path) -> None:
    rows = [{k: v for k, v in turn(i, LONG).items() if k != "messages"} for i in range(5)]
    path = write(tmp_path / "a.jsonl", rows)
    code = (
        "import sys; from ttftdoctor.intake import read_log; read_log([sys.argv[1]]);"
        "print(sorted({'numba', 'tokenizers', 'ttftdoctor.rendering'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_text_under_a_name_of_its_own_is_read_where_the_user_says(tmp_path: Path) -> None:
    rows = [
        {"start": 1_700_000_000 + i, "ttft_ms": 100, "input_tokens": 100,
         "talk": {"said": [{"role": "user", "content": "word " * 100}]}, "rules": "be kind " * 20}
        for i in range(8)
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert ttftdoctor.read(str(log)).requests["prefix_blocks"].null_count() == 8
    named = ttftdoctor.read(str(log), columns={"messages": "talk.said", "system": "rules"})
    assert named.requests["prefix_blocks"].null_count() == 0
    with pytest.raises(InputError, match="no field"):
        ttftdoctor.read(str(log), columns={"messages": "nowhere"})


@pytest.mark.parametrize("size", ["block_size", "block_tokens"])
def test_hash_ids_beside_measured_times_are_blocks(tmp_path: Path, size: str) -> None:
    rows = [
        {"start": 1_700_000_000 + i, "ttft_ms": 100, "prompt_tokens": 100, "cached_tokens": 0,
         "hash_ids": [1, 2, 3, 4, 5, 6], size: 16}
        for i in range(8)
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    frame = ttftdoctor.read(str(log)).requests
    assert frame["prefix_blocks"].to_list()[0] == [1, 2, 3, 4, 5, 6]
    assert frame["block_tokens"].to_list()[0] == 16
