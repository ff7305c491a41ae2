"""llamacpp, vllm-bench, mooncake and weka: exact values, and each trap of these logs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reading import REAL, SAMPLES, SHARED, read, rows

from ttftdoctor.catalog import claimants
from ttftdoctor.errors import InputError
from ttftdoctor.intake import read_log
from ttftdoctor.sources import Source

pytestmark = pytest.mark.usefixtures("every_row")

ENGINE = SHARED / "real_engine"

MINE = ("llamacpp", "vllm-bench", "mooncake", "weka")


def write(folder: Path, text: str, name: str = "a.log") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(r) + "\n" for r in records)


def need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return path


# ----------------------------------------------------------------------- llama.cpp, text


G3 = """\
0.00.001.000 I srv  llama_server: initializing ...
0.00.002.000 I srv    load_model: loading model '/models/m.gguf'
0.00.003.000 I srv  llama_server: model loaded
0.42.100.000 I srv  server_strea: conv_id= (empty=1)
0.42.101.000 I srv    operator(): chat format: peg-native
0.42.101.900 I slot launch_slot_: id  1 | task 0 | processing task, is_child = 0
0.42.101.950 I slot   operator(): id  1 | task 0 | new prompt, n_ctx_slot = 8192, n_keep = 0, \
task.n_tokens = 4200
0.42.101.960 I slot   operator(): id  1 | task 0 | cached n_tokens = 2800, memory_seq_rm [2800, end)
0.42.500.000 I srv  server_strea: conv_id= (empty=1)
0.44.101.960 I slot   operator(): id  1 | task 0 | cached n_tokens = 3312, memory_seq_rm [3312, end)
0.47.802.771 I slot print_timing: id  1 | task 0 | prompt eval time =    4200.11 ms /  1400 tokens \
(    3.00 ms per token,   333.32 tokens per second)
0.47.802.790 I slot print_timing: id  1 | task 0 |        eval time =    1500.00 ms /    51 tokens \
(   30.00 ms per token,    33.33 tokens per second)
0.47.802.902 I slot      release: id  1 | task 0 | stop processing: n_tokens = 4250, truncated = 0
0.47.803.000 I slot launch_slot_: id  1 | task 7 | processing task, is_child = 0
0.47.803.010 I slot   operator(): id  1 | task 7 | new prompt, n_ctx_slot = 8192, n_keep = 0, \
task.n_tokens = 9
0.47.803.020 I slot   operator(): id  1 | task 7 | cached n_tokens = 8, memory_seq_rm [8, end)
0.47.823.000 I slot print_timing: id  1 | task 7 | prompt eval time =      10.00 ms /     1 tokens \
(   10.00 ms per token,   100.00 tokens per second)
0.47.823.000 I slot print_timing: id  1 | task 7 |        eval time =       0.00 ms /     1 tokens \
(    0.00 ms per token,     0.00 tokens per second)
0.47.823.100 I slot      release: id  1 | task 7 | stop processing: n_tokens = 9, truncated = 0
"""


def test_g3_adds_the_wait_before_the_slot(tmp_path: Path) -> None:
    log = read(write(tmp_path, G3))
    assert rows(log, "request_id", "line", "start", "queue_us", "prefill_us", "ttft_us") == [
        ("0", 6, 42_100_000, 1_950, 4_200_110, 4_202_060),
        ("7", 14, 42_500_000, 5_303_010, 10_000, 5_313_010),
    ]
    assert rows(log, "input_tokens", "cached_tokens", "output_tokens", "decode_us", "e2e_us") == [
        (4200, 2800, 51, 1_500_000, 5_702_060),
        (9, 8, 1, 0, 5_313_010),
    ]
    assert (
        rows(log, "model", "replica", "session_id", "vantage") == [("m", None, None, "server")] * 2
    )
    assert "arrivals are paired" in log.fields["ttft_us"].why


def test_g3_with_a_spawn_line_has_wall_time(tmp_path: Path) -> None:
    log = read(write(tmp_path, "# spawn epoch=1790000000.25 args=-np 2\n" + G3))
    assert log.requests["start"].to_list() == [1790000042350000, 1790000042750000]


def test_a_request_that_gave_up_in_the_queue_does_not_shift_the_others(tmp_path: Path) -> None:
    orphan = "0.41.000.000 I srv  server_strea: conv_id= (empty=1)\n"
    known = orphan + "0.41.500.000 W srv          stop: cancel task, id_task = 0\n"
    for lost, rejected in ((orphan, {}), (known, {"aborted_request": 1})):
        first, rest = G3.split("0.42.100.000", 1)
        text = first + lost + "0.42.100.000" + rest.replace("task 0 ", "task 3 ")
        log = read(write(tmp_path, text))
        assert log.requests["queue_us"].to_list() == [1_950, 5_303_010]
        assert log.inputs[0].rows_rejected == rejected


def test_a_task_without_an_arrival_is_set_aside(tmp_path: Path) -> None:
    # The log begins after the first arrival; the idle line shows that nothing else is missing.
    head, rest = G3.split("0.42.100.000", 1)
    body = rest.split("\n", 2)[2]
    first = body.replace("0.42.500.000 I srv  server_strea: conv_id= (empty=1)\n", "")
    idle = "0.48.000.000 I srv  update_slots: all slots are idle\n"
    later = "".join(
        f"{line.replace('0.4', '1.4').replace('task ', 'task 1')}\n"
        for line in G3.split("model loaded\n")[1].splitlines()
    )
    log = read(write(tmp_path, head + first + idle + later))
    assert log.requests["queue_us"].to_list() == [None, None, 1_950, 5_303_010]
    assert log.inputs[0].ttft_set_aside == {"arrival_unknown": 2}


def test_g3_at_info_takes_lengths_from_the_end(tmp_path: Path) -> None:
    info = "\n".join(
        line for line in G3.splitlines() if "operator()" not in line and "conv_id" not in line
    )
    log = read(write(tmp_path, info))
    assert rows(log, "input_tokens", "cached_tokens", "ttft_us", "queue_us") == [
        (4200, 2800, 4_200_110, None),
        (9, 8, 10_000, None),
    ]
    assert "queueing for a slot is not in it" in log.fields["ttft_us"].why
    assert log.fields["ttft_us"].kind == "derived"


def test_g3_after_a_context_shift_takes_lengths_from_the_likeness(tmp_path: Path) -> None:
    text = """\
0.42.101.330 I slot get_availabl: id  1 | task -1 | selected slot by LCP similarity, \
f_sim_best = 0.667 (> 0.100 thold), f_keep = 0.952
0.42.101.900 I slot launch_slot_: id  1 | task 57 | processing task, is_child = 0
0.47.802.771 I slot print_timing: id  1 | task 57 | prompt eval time =    4200.11 ms /  1400 tokens
0.47.802.790 I slot print_timing: id  1 | task 57 |        eval time =    1500.00 ms /    51 tokens
0.47.802.902 I slot      release: id  1 | task 57 | stop processing: n_tokens = 4250, truncated = 1
"""
    assert rows(read(write(tmp_path, text)), "input_tokens", "cached_tokens") == [(4204, 2804)]


def test_g3_refusals_and_cancellations(tmp_path: Path) -> None:
    text = """\
0.01.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0
0.01.001.000 E srv    send_error: task id = 1, error: request (17009 tokens) exceeds the context
0.01.001.100 I slot      release: id  0 | task 1 | stop processing: n_tokens = 0, truncated = 0
0.01.001.200 W srv          stop: cancel task, id_task = 1
0.02.000.000 I slot launch_slot_: id  0 | task 2 | processing task, is_child = 0
0.02.500.000 W srv          stop: cancel task, id_task = 2
0.02.600.000 I slot      release: id  0 | task 2 | stop processing: n_tokens = 5, truncated = 0
0.03.000.000 I slot launch_slot_: id  0 | task 3 | processing task, is_child = 0
0.03.600.000 I slot      release: id  0 | task 3 | stop processing: n_tokens = 5, truncated = 0
0.04.000.000 I slot launch_slot_: id  0 | task 4 | processing task, is_child = 0
"""
    (one,) = read(write(tmp_path, text)).inputs
    assert one.rows_rejected == {
        "failed_request": 1, "aborted_request": 1, "no_timing_lines": 1, "unfinished_task": 1,
    }  # fmt: skip
    assert one.first_rejects[0] == (1, "failed_request")


def test_server_starts_do_not_mix_tasks(tmp_path: Path) -> None:
    log = read(write(tmp_path, G3 + G3.replace("4200.11 ms", " 200.11 ms")))
    assert rows(log, "request_id", "prefill_us") == [
        ("1/0", 4_200_110), ("1/7", 10_000), ("2/0", 200_110), ("2/7", 10_000),
    ]  # fmt: skip
    starts = log.requests["start"].to_list()
    assert starts == sorted(starts)
    assert any("2 server starts" in note for note in log.notes)
    assert any("laid end to end" in note for note in log.notes)


def test_children_of_one_prompt_have_no_ttft(tmp_path: Path) -> None:
    child = G3.replace("is_child = 0", "is_child = 1")
    log = read(write(tmp_path, child))
    assert log.inputs[0].ttft_set_aside == {"child_of_another_task": 2}


def test_g3_as_json_records(tmp_path: Path) -> None:
    records = [
        {"type": "log", "time": 1000 * i, "level": 3, "msg": text.split(" I ", 1)[1] + "\n"}
        for i, text in enumerate(G3.splitlines())
    ]
    log = read(write(tmp_path, lines(*records)))
    assert rows(log, "start", "input_tokens", "prefill_us") == [
        (3000, 4200, 4_200_110), (8000, 9, 10_000),
    ]  # fmt: skip


G2 = """\
build: 4215 (abc1234) with cc (GCC) 12.2.0 for x86_64-linux-gnu
main: loading model
srv    load_model: loading model '/models/m.gguf'
srv          init: initializing slots, n_slots = 2
main: model loaded
slot launch_slot_: id  0 | task 0 | processing task
slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 4096, n_keep = 0, \
n_prompt_tokens = 3000
slot update_slots: id  0 | task 0 | kv cache rm [1000, end)
slot update_slots: id  0 | task 0 | kv cache rm [2048, end)
slot launch_slot_: id  1 | task 1 | processing task
slot update_slots: id  1 | task 1 | new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 1
slot update_slots: id  1 | task 1 | kv cache rm [0, end)
slot      release: id  0 | task 0 | stop processing: n_past = 3009, truncated = 0
slot print_timing: id  0 | task 0 |\x20
\rprompt eval time =    4000.50 ms /  2000 tokens (    2.00 ms per token)
\r       eval time =     450.00 ms /    10 tokens (   45.00 ms per token)
\r      total time =    4450.50 ms /  2010 tokens
slot print_timing: id  1 | task 1 |\x20
prompt eval time =       5.00 ms /     1 tokens (     inf tokens per second)
       eval time =      -nan(ind) ms /     1 tokens (     nan ms per token)
      total time =       5.00 ms /     2 tokens
llama_perf_context_print: prompt eval time =      99.00 ms /     9 tokens
"""


def test_g2_block_of_several_lines(tmp_path: Path) -> None:
    log = read(write(tmp_path, G2))
    names = ("line", "input_tokens", "cached_tokens", "output_tokens", "ttft_us", "decode_us")
    assert rows(log, *names) == [
        (6, 3000, 1000, 10, 4_000_500, 450_000),
        (10, 1, 0, 1, 5_000, None),
    ]
    assert rows(log, "start", "version") == [(None, "b4215")] * 2


OLD: list[dict[str, Any]] = [
    {"timestamp": 1709000000, "function": "main", "msg": "build info", "build": 2234},
    {"timestamp": 1709000001, "function": "initialize", "msg": "initializing slots"},
    {"timestamp": 1709000005, "function": "launch_slot_with_data", "msg": "slot is processing task",
     "slot_id": 0, "task_id": 4},
    {"timestamp": 1709000005, "function": "update_slots", "msg": "kv cache rm [p0, end)",
     "slot_id": 0, "task_id": 4, "p0": 100},
    {"timestamp": 1709000005, "function": "update_slots", "msg": "kv cache rm [p0, end)",
     "slot_id": 0, "task_id": 4, "p0": 400},
    {"timestamp": 1709000006, "function": "print_timings", "slot_id": 0, "task_id": 4,
     "msg": "prompt eval time     =     812.40 ms /   512 tokens (    1.59 ms per token)",
     "t_prompt_processing": 812.4, "n_prompt_tokens_processed": 512},
    {"timestamp": 1709000006, "function": "print_timings", "slot_id": 0, "task_id": 4,
     "msg": "generation eval time =     500.00 ms /    16 runs   (   31.25 ms per token)",
     "t_token_generation": 500.0, "n_decoded": 16},
    {"timestamp": 1709000006, "function": "update_slots", "msg": "slot released", "slot_id": 0,
     "task_id": 4, "n_past": 627, "truncated": False},
]  # fmt: skip


def old_text(record: dict[str, Any], renamed: bool) -> str:
    names = {"slot_id": "id_slot", "task_id": "id_task"} if renamed else {}
    pairs = " ".join(
        f"{names.get(k, k)}={v}" for k, v in record.items() if k not in ("function", "msg")
    )
    return f'INFO [{record["function"]:>26}] {record["msg"]} | tid="1" {pairs}\n'


@pytest.mark.parametrize("form", ["json", "text", "renamed"])
def test_g1(tmp_path: Path, form: str) -> None:
    text = lines(*OLD) if form == "json" else "".join(old_text(r, form == "renamed") for r in OLD)
    log = read(write(tmp_path, text))
    names = ("start", "input_tokens", "cached_tokens", "output_tokens", "ttft_us", "e2e_us")
    assert rows(log, *names) == [(1709000005000000, 612, 100, 16, 812_400, 1_312_400)]
    assert log.requests["version"].to_list() == ["b2234"]


# ----------------------------------------------------------------------- llama.cpp, responses


def test_timings_of_responses(tmp_path: Path) -> None:
    timings = {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.958, "predicted_n": 35,
               "predicted_ms": 661.064}  # fmt: skip
    text = lines(
        {"id": "a", "model": "m", "created": 1790000000, "timings": timings,
         "usage": {"prompt_tokens": 237, "completion_tokens": 35}},
        {"id": "b", "timings": {k: v for k, v in timings.items() if k != "cache_n"},
         "usage": {"prompt_tokens": 300}},
        {"id": "c", "timings": {**timings, "prompt_n": -1}},
        {"id_slot": 0, "timings": {"save_ms": 49.8}},
        {"tokens_evaluated": 7, "tokens_cached": 41,
         "timings": {**timings, "cache_n": None, "prompt_n": 5}},
    )  # fmt: skip
    log = read(write(tmp_path, text, "a.jsonl"))
    assert rows(log, "request_id", "input_tokens", "cached_tokens", "ttft_us", "e2e_us") == [
        ("a", 237, 236, 30_958, 692_022),
        ("b", 300, 299, 30_958, 692_022),
        (None, 7, 2, 30_958, 692_022),
    ]
    assert log.requests["start"][0] == 1790000000000000 - 692_022
    assert log.inputs[0].rows_rejected == {"no_timings": 1, "nothing_to_use": 1}


def test_timings_on_every_piece_of_a_stream_without_chunks(tmp_path: Path) -> None:
    timings = {"prompt_n": 9, "prompt_ms": 5.0, "predicted_n": 2, "predicted_ms": 9.0}
    piece = {"content": "a", "stop": False, "tokens_evaluated": 12, "timings": timings}
    text = {"object": "text_completion", "id": "t", "timings": timings | {"cache_n": 3}}
    last = {"timings": timings | {"cache_n": 3, "predicted_n": 3}}
    answers = [piece, piece, piece | {"stop": True} | last, text, text | last]
    log = read(write(tmp_path, json.dumps(answers)))
    assert rows(log, "request_id", "input_tokens", "output_tokens") == [(None, 12, 3), ("t", 12, 3)]
    assert log.inputs[0].rows_rejected == {"not_final": 2}


@pytest.mark.parametrize(
    "between", ["", "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"]
)
def test_server_starts_that_the_log_does_not_show(between: str, tmp_path: Path) -> None:
    lines = "".join(one for one in G2.splitlines(True) if "listening" not in one)
    log = read(write(tmp_path, lines + between + lines))
    once = read(write(tmp_path, lines)).requests["prefill_us"].to_list()
    assert log.requests["prefill_us"].to_list() == once * 2
    assert any("2 server starts" in note for note in log.notes)


def test_timings_on_every_chunk_are_one_request(tmp_path: Path) -> None:
    chunk = {"id": "a", "object": "chat.completion.chunk"}
    parts = [
        {**chunk, "timings": {"cache_n": 0, "prompt_n": 9, "prompt_ms": 5.0, "predicted_n": n,
                              "predicted_ms": 2.0 * n}}
        for n in (1, 2, 3)
    ]  # fmt: skip
    log = read(write(tmp_path, lines(*parts, chunk, *({**p, "id": "b"} for p in parts)), "a.jsonl"))
    assert rows(log, "line", "request_id", "output_tokens") == [(3, "a", 3), (7, "b", 3)]


# ----------------------------------------------------------------------- benchmarks


RUN: dict[str, Any] = {
    "date": "20260901-101500", "backend": "openai-chat", "model_id": "m", "num_prompts": 3,
    "request_rate": "inf", "max_concurrency": 2, "duration": 6.1, "completed": 2, "failed": 1,
    "input_lens": [1024, 1030, 900], "output_lens": [3, 3, 0], "ttfts": [0.31, 0.74, 0.0],
    "itls": [[0.02, 0.021], [0.02, 0.05], []], "errors": ["", "", "Bad Gateway"],
    "mean_ttft_ms": 525.0,
}  # fmt: skip


def test_bench_arrays_become_rows(tmp_path: Path) -> None:
    log = read(write(tmp_path, json.dumps(RUN, indent=1), "a.json"))
    assert rows(log, "line", "start", "input_tokens", "output_tokens", "ttft_us", "e2e_us") == [
        (1, None, 1024, 3, 310_000, 351_000),
        (1, None, 1030, 3, 740_000, 810_000),
    ]
    assert rows(log, "vantage", "streamed", "queue_us") == [("client", True, None)] * 2
    assert log.inputs[0].rows_rejected == {"failed_request": 1}
    assert log.fields["e2e_us"].kind == "derived"


def test_bench_takes_what_newer_versions_add(tmp_path: Path) -> None:
    run = {
        **RUN, "latencies": [1.6, 2.2, 0.0], "start_times": [5021.1, 5021.1, 5022.71],
        "queue_times": [0.0, 0.0, 1.61], "server_queue_times": [0.1, None, None],
        "server_ttfts": [0.2, None, None],
    }  # fmt: skip
    log = read(write(tmp_path, lines(run), "a.json"))
    assert rows(log, "start", "e2e_us", "queue_us", "prefill_us") == [
        (5_021_100_000, 1_600_000, 100_000, 200_000),
        (5_021_100_000, 2_200_000, None, None),
    ]
    assert any(note.startswith("queue_times is the wait") for note in log.notes)


def test_bench_runs_warm_ups_and_unequal_arrays(tmp_path: Path) -> None:
    text = lines(
        {**RUN, "type": "warmup"},
        {**RUN, "iteration": "1"},
        {**RUN, "iteration": "2", "ttfts": [0.1]},
        {**RUN, "iteration": "3", "max_concurrency": 9, "errors": ["", "", "Too Many Requests"]},
        {k: v for k, v in RUN.items() if k not in ("ttfts", "itls", "input_lens")},
    )
    log = read(write(tmp_path, text, "a.json"))
    assert log.inputs[0].rows_rejected == {
        "warmup_run": 3, "failed_request": 1, "arrays_differ": 1, "rate_limited": 1, "no_arrays": 1,
    }  # fmt: skip
    assert log.requests["line"].to_list() == [2, 2, 4, 4]
    (note,) = (n for n in log.notes if "benchmark runs" in n)
    assert "max_concurrency (2 values)" in note
    assert "iteration (2 values)" in note


def test_bench_failures_without_words_are_failures(tmp_path: Path) -> None:
    run = {**RUN, "errors": ["", "", ""], "output_lens": [3, 0, 3]}
    assert read(write(tmp_path, lines(run), "a.json")).inputs[0].rows_rejected == {
        "failed_request": 2
    }


def test_sglang_bench(tmp_path: Path) -> None:
    run = {
        "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "server_info": {"api_key": "secret"}, "duration": 3.1, "completed": 2,
        "input_lens": [256, 256], "output_lens": [2, 2], "ttfts": [0.1, 0.14],
        "itls": [[0.02], [0.02]], "errors": ["", ""], "cached_tokens": [0, 240],
    }  # fmt: skip
    text = lines(run, {**run, "request_rate": 4.0, "itls": [[], []]})
    assert "Infinity" in text
    log = read(write(tmp_path, text, "a.jsonl"))
    assert rows(log, "cached_tokens", "ttft_us", "e2e_us", "streamed") == [
        (0, 100_000, 120_000, True), (240, 140_000, 160_000, True),
        (0, None, 100_000, False), (240, None, 140_000, False),
    ]  # fmt: skip
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 2}
    assert "secret" not in repr((log.notes, log.fields))
    assert any("request_rate (2 values)" in note for note in log.notes)


def test_tensorrt_bench(tmp_path: Path) -> None:
    log = read(write(tmp_path, lines({**RUN, "e2els": [0.4, 0.9, 0.0]}), "a.json"))
    assert log.requests["e2e_us"].to_list() == [400_000, 900_000]


@pytest.mark.parametrize("switch", ["--save-detailed", "--output-details"])
def test_bench_averages_are_refused(tmp_path: Path, switch: str) -> None:
    run = {k: v for k, v in RUN.items() if not isinstance(v, list)}
    if switch == "--output-details":
        run["random_range_ratio"] = 0.0
    run["latencies"] = [1.0]  # the newest vLLM leaves these even without details
    with pytest.raises(InputError, match="averages of benchmark runs") as caught:
        read_log([str(write(tmp_path, lines(run), "a.json"))])
    assert switch in (caught.value.help or "")


# ----------------------------------------------------------------------- traces


def test_mooncake(tmp_path: Path) -> None:
    text = lines(
        {"timestamp": 0, "input_length": 1300, "output_length": 80, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 1100, "output_length": 8, "hash_ids": [0, 1, 57]},
        {"timestamp": 3000, "input_length": "x", "output_length": 8, "hash_ids": [0]},
    )
    log = read(write(tmp_path, text, "a.jsonl"))
    names = ("start", "input_tokens", "output_tokens", "prefix_blocks", "block_tokens")
    assert rows(log, *names) == [
        (0, 1300, 80, [0, 1, 2], 512), (3_000_000, 1100, 8, [0, 1, 57], 512),
    ]  # fmt: skip
    assert log.inputs[0].rows_rejected == {"wrong_type:input_length": 1}
    assert "no time to first token" in log.lacks[0]


def test_bailian_sessions_are_the_roots(tmp_path: Path) -> None:
    chats = [(3, -1, 1), (7, 3, 2), (12, 7, 3), (13, 12, 4), (14, 13, 5), (20, 99, 2), (21, -1, 1)]
    text = lines(
        *(
            {"chat_id": c, "parent_chat_id": p, "timestamp": 1.5 * turn, "input_length": 40,
             "output_length": 20, "type": "text", "turn": turn, "hash_ids": [0, 1, 10 + c]}
            for c, p, turn in chats
        )
    )  # fmt: skip
    log = read(write(tmp_path, text, "a.jsonl"))
    assert log.requests["session_id"].to_list() == ["3", "3", "3", "3", "3", "99", "21"]
    assert log.requests["turn"].to_list() == [1, 2, 3, 4, 5, 2, 1]
    assert rows(log, "start", "block_tokens")[:2] == [(1_500_000, 16), (3_000_000, 16)]


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    text = lines(
        *(
            {"chat_id": c, "parent_chat_id": p, "timestamp": 1, "input_length": 16,
             "output_length": 1, "turn": 1, "hash_ids": [c]}
            for c, p in ((1, 2), (2, 3), (3, 1))
        )
    )  # fmt: skip
    assert read(write(tmp_path, text, "a.jsonl")).requests.height == 3


@pytest.mark.parametrize("stamp", ["1700000000123456789", 1700000000123456789])
def test_gmi_ids_are_chained_by_us(stamp: str | int, tmp_path: Path) -> None:
    ids = [[4000000000, 2, 3], [4000000000, 2, 9], [4000000000, 3, 2], [2, 4000000000, 3]]
    text = lines(
        *({"timestamp": stamp, "input_length": 100, "output_length": 5, "hash_ids": i} for i in ids)
    )
    log = read(write(tmp_path, text, "a.jsonl"))
    assert log.requests["start"].to_list() == [1700000000123456] * 4
    blocks = log.requests["prefix_blocks"].to_list()
    assert blocks[0][:2] == blocks[1][:2]
    assert blocks[0][2] != blocks[1][2]
    assert blocks[0][0] == blocks[2][0]
    # The same ids in another order are another prompt from the first difference on.
    assert len({*blocks[0][1:], *blocks[2][1:], *blocks[3]}) == 7
    assert log.fields["prefix_blocks"].kind == "derived"


def test_aiperf_turns_are_made_whole(tmp_path: Path) -> None:
    first = {"session_id": "a", "timestamp": 1000, "input_length": 1000, "output_length": 10}
    later = {"session_id": "a", "input_length": 100, "output_length": 20}
    text = lines(
        {**first, "hash_ids": [0, 1]},
        {**first, "session_id": "b", "hash_ids": [0, 9]},
        {**later, "delay": 500.5, "hash_ids": [2]},
        {**later, "delay": 100, "hash_ids": [3]},
    )
    log = read(write(tmp_path, text, "a.jsonl"))
    assert rows(log, "session_id", "turn", "start", "input_tokens", "prefix_blocks") == [
        ("a", 1, 1_000_000, 1000, [0, 1]),
        ("b", 1, 1_000_000, 1000, [0, 9]),
        ("a", 2, 1_500_500, 1110, [0, 1, 2]),
        ("a", 3, 1_600_500, 1230, [0, 1, 2, 3]),
    ]
    assert log.fields["start"].kind == log.fields["input_tokens"].kind == "derived"
    assert any("too early" in note for note in log.notes)


def test_aiperf_rows_that_are_whole_stay_so(tmp_path: Path) -> None:
    row = {"session_id": "a", "output_length": 10}
    text = lines(
        {**row, "timestamp": 0, "input_length": 600, "hash_ids": [0, 1]},
        {**row, "delay": 10, "input_length": 1200, "hash_ids": [0, 1, 2]},
    )
    log = read(write(tmp_path, text, "a.jsonl"))
    assert rows(log, "input_tokens", "prefix_blocks") == [(600, [0, 1]), (1200, [0, 1, 2])]


def weka(name: str) -> str:
    request = {"model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 4.2}
    nest = {"t": 50.0, "type": "subagent", "agent_id": "x", "requests": [
        {**request, "t": 0.0, "type": "s", "ttft": 1.1, "hash_ids": [1, 7]},
        {**request, "t": 2.5, "type": "n"},
    ]}  # fmt: skip
    entries = [
        {**request, "t": 0.0, "type": "s", "ttft": 1.4},
        {**request, "t": 9.0, "type": "n", "ttft": 4.2},
        nest,
        {**request, "t": 60.0, "type": "s"},
    ]
    document = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": entries}
    return json.dumps(document)


def test_weka(tmp_path: Path) -> None:
    log = read(write(tmp_path, weka("one"), "a.json"))
    assert rows(log, "line", "session_id", "turn", "start", "ttft_us", "e2e_us", "streamed") == [
        (1, "one", 1, 0, 1_400_000, 4_200_000, True),
        (2, "one", 2, 9_000_000, None, 4_200_000, False),
        (3, "one/x", 1, 50_000_000, 1_100_000, 4_200_000, True),
        (3, "one/x", 2, 52_500_000, None, 4_200_000, False),
        (4, "one", 3, 60_000_000, None, 4_200_000, True),
    ]
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 2, "ttft_missing": 1}
    first, *_ = blocks = log.requests["prefix_blocks"].to_list()
    assert blocks[2][0] == first[0] != blocks[2][1]
    other = read(write(tmp_path, weka("two"), "b.json")).requests["prefix_blocks"][0]
    assert not set(first) & set(other)


def test_weka_sub_agents_of_any_depth_and_clock(tmp_path: Path) -> None:
    document = json.loads(weka("one"))
    request, *_, nest, _ = document["requests"]
    inner = {**nest, "t": 3.0, "agent_id": "y", "requests": [{**request, "t": 0.5}]}
    on = {**nest, "agent_id": "z", "requests": [{**request, "t": 50.0}, {**request, "t": 52.0}]}
    nest["requests"].append(inner)
    empty = [{**nest, "requests": []}, {**nest, "requests": None}, {"t": 7.0, "type": "subagent"}]
    document["requests"] += [on, *empty]
    log = read(write(tmp_path, json.dumps(document), "a.json"))
    assert rows(log, "session_id", "turn", "start")[2:] == [
        ("one/x", 1, 50_000_000), ("one/x", 2, 52_500_000), ("one/x/y", 1, 53_500_000),
        ("one", 3, 60_000_000), ("one/z", 1, 50_000_000), ("one/z", 2, 52_000_000),
    ]  # fmt: skip
    assert any("sub-agent entries: 6;" in note for note in log.notes)


def test_weka_sessions_as_lines_and_as_parquet(tmp_path: Path) -> None:
    shared = {**json.loads(weka("three")), "hash_id_scope": "global", "block_size": 32}
    many = [json.loads(weka("one")), json.loads(weka("two")), shared]
    log = read(write(tmp_path, lines(*many), "traces.jsonl"))
    assert log.requests["line"].to_list() == [n for n in (1, 2, 3) for _ in range(5)]
    alone = read(write(tmp_path, weka("two"), "two.json")).requests.sort("session_id", "turn")
    second = log.requests.filter(pl.col("line") == 2).sort("session_id", "turn")
    assert second.drop("line").equals(alone.drop("line"))
    third = log.requests.filter(pl.col("line") == 3)
    assert third["prefix_blocks"][0].to_list() == [1, 2]
    assert third["block_tokens"].unique().to_list() == [32]
    pl.DataFrame(many).write_parquet(tmp_path / "traces.parquet")
    assert read(tmp_path / "traces.parquet").requests.equals(log.requests)


def test_weka_one_odd_session_costs_no_other(tmp_path: Path) -> None:
    odd = [{"id": "x", "requests": 3}, {"id": "y", "requests": None}, {"id": "z", "requests": []}]
    text = lines(json.loads(weka("one")), *odd, json.loads(weka("two")))
    log = read(write(tmp_path, text, "traces.jsonl"))
    assert log.requests["line"].unique().sort().to_list() == [1, 5]
    assert log.inputs[0].rows_rejected == {"wrong_shape": 1}


# ----------------------------------------------------------------------- samples and real files


SAMPLE_ROWS = {
    "llamacpp.log": ("llamacpp", 20, {"aborted_request": 1}),
    "vllm-bench.json": ("vllm-bench", 23, {"failed_request": 2, "warmup_run": 3}),
    "mooncake.jsonl": ("mooncake", 25, {"not_json": 1}),
    "weka.json": ("weka", 14, {}),
}


@pytest.mark.parametrize("name", SAMPLE_ROWS)
def test_samples(name: str) -> None:
    format_name, count, rejected = SAMPLE_ROWS[name]
    (one,) = read(SAMPLES / name).inputs
    assert (one.format, one.rows_read, one.rows_rejected) == (format_name, count, rejected)


def test_the_llamacpp_sample_has_a_wait() -> None:
    log = read(SAMPLES / "llamacpp.log")
    assert rows(log, "start", "queue_us", "prefill_us", "ttft_us")[3] == (
        1790000001270000, 110_400, 143_110, 253_510,
    )  # fmt: skip


def test_llamacpp_waits_for_room_in_a_batch_too(tmp_path: Path) -> None:
    """A prompt that has its slot is begun once those of other slots leave room for it."""
    text = (SAMPLES / "llamacpp.log").read_text()
    began = "0.00.592.315 I slot   operator(): id  1 | task 14 | new prompt"
    assert text.count(began) == 1
    path = tmp_path / "server.log"
    path.write_text(text.replace(began, began.replace("0.00.592", "0.00.892")))
    before, after = (
        {row[0]: row[1:] for row in rows(read(p), "request_id", "queue_us", "ttft_us")}
        for p in (SAMPLES / "llamacpp.log", path)
    )
    for name, (queue, ttft) in before.items():
        late = 300_000 if name == "14" else 0
        assert after[name] == (queue and queue + late, ttft and ttft + late)


REAL_ROWS = {
    "vllm_bench_serve/dsr1_lmcache_cpu.append.jsonl": (305, {"warmup_run": 5}, 300),
    "vllm_bench_serve/dsr1_no_kvcache.append.jsonl": (305, {"warmup_run": 5}, 300),
    "trace_mooncake/conversation_trace.jsonl": (12031, {}, 0),
    "trace_aiperf_sessions/inference_day_2026.excerpt.jsonl": (32, {}, 0),
    "agentic_traces_weka/trace_0455.json": (51, {}, 43),
    "agentic_traces_weka/trace_0532.json": (114, {}, 77),
    # 127 entries, of which 5 are sub-agents with 40 requests.
    "agentic_traces_weka/trace_0254_subagents.json": (162, {}, 0),
}


@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_files(name: str) -> None:
    count, rejected, with_ttft = REAL_ROWS[name]
    log = read(need(REAL / name))
    assert (log.inputs[0].rows_read, log.inputs[0].rows_rejected) == (count, rejected)
    assert log.requests["ttft_us"].count() == with_ttft


def test_real_mooncake_ids_chain() -> None:
    log = read(need(REAL / "trace_mooncake" / "conversation_trace.jsonl"))
    assert log.fields["prefix_blocks"].kind == "logged"
    sizes = log.requests.select(
        (pl.col("prefix_blocks").list.len() == (pl.col("input_tokens") / 512).ceil()).all()
    )
    assert sizes.item()


def test_more_real_weka_files() -> None:
    known = (need(REAL / "README.md")).read_text()
    paths = sorted(need(REAL / "agentic_traces_weka" / "more").glob("*.json"))
    for path in paths:
        log = read(path)
        found = f"{path.name} {log.inputs[0].rows_read} ({log.requests['ttft_us'].count()})"
        assert found in known


@pytest.mark.parametrize(
    "name",
    ["vllm_bench_serve/pd_summary_only.jsonl", "sglang_bench_serving/lmdeploy_summary_only.jsonl"],
)
def test_real_averages_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="averages of benchmark runs"):
        read_log([str(need(REAL / name))])


@pytest.mark.parametrize(
    ("name", "count", "rejected"),
    [
        ("D_evicted", 114, {}),
        ("F_long_input", 111, {"failed_request": 1}),
        ("G_decode", 231, {}),
    ],
)
def test_real_server_log_agrees_with_its_client(
    name: str, count: int, rejected: dict[str, int]
) -> None:
    """The client's figures for the same requests, joined by the task the harness noted."""
    folder = need(ENGINE / name)
    log = read(folder / "server.log")
    assert (log.inputs[0].rows_read, log.inputs[0].rows_rejected) == (count, rejected)
    client = pl.read_ndjson(folder / "requests.jsonl", infer_schema_length=None)
    truth = pl.read_ndjson(folder / "truth.jsonl", infer_schema_length=None).select("id", "task")
    both = (
        client.filter(pl.col("status") == "ok")
        .join(truth, on="id")
        .with_columns(pl.col("task").cast(pl.String).alias("request_id"))
        .drop("cached_tokens", "start")
        .join(client.select("id", "cached_tokens", "start"), on="id")
        .join(log.requests, on="request_id", suffix="_server")
    )
    assert both.height == (client["status"] == "ok").sum()
    assert (both["prompt_tokens"] == both["input_tokens"]).all()
    assert (both["cached_tokens"] == both["cached_tokens_server"]).all()
    assert (both["completion_tokens"] == both["output_tokens"]).all()
    for name_ms, name_us in (("ttft_ms", "ttft_us"), ("e2e_ms", "e2e_us")):
        late = (both[name_ms] - both[name_us] / 1000).to_list()
        assert min(late) > 0
        assert sorted(late)[len(late) // 2] < 9
        assert max(late) < 60
    apart = (both["start"] * 1e6 - both["start_server"]).abs().to_list()
    assert max(apart) < 30_000
    assert both.select(pl.corr("ttft_ms", "ttft_us")).item() > 0.9999


def test_these_readers_claim_no_foreign_log() -> None:
    own = (
        "server.log", "agentic_traces_weka", "vllm_bench_serve", "sglang_bench_serving",
        "trace_mooncake", "trace_aiperf_sessions",
    )  # fmt: skip
    need(SHARED)
    for path in sorted(p for p in SHARED.rglob("*") if p.is_file() and p.suffix != ".md"):
        if any(part in path.parts for part in own) or not {"real", "cases", "real_engine"} & set(
            path.relative_to(SHARED).parts
        ):
            continue
        try:
            with closing(Source(str(path))) as source:
                head = source.head
        except InputError:
            continue
        assert not {reader.name for reader, _ in claimants(head)} & set(MINE), path


def test_whole_prompts_of_an_endless_session_stop_at_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They grow with the square of its turns; short sessions beside it keep theirs."""
    monkeypatch.setattr("ttftdoctor.readers.mooncake._MOST_BLOCKS", 2_000)
    monkeypatch.setattr("ttftdoctor.readers.mooncake._STEP", 64)
    lines = []
    for n in range(300):
        for session in ("long", f"short-{n // 3}"):
            first = {"timestamp": 10 * n} if (session, n % 3) != ("long", n) else {"delay": 5.0}
            lines.append(
                {"session_id": session, "input_length": 512, "output_length": 9,
                 "hash_ids": [7000 * (session == "long") + n]} | first
            )  # fmt: skip
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = read(path)
    blocks = log.requests["prefix_blocks"]
    assert 1_900 <= int(blocks.list.len().sum()) <= 2_000
    assert any("rows have none" in note for note in log.notes)
    told = log.requests.filter(pl.col("prefix_blocks").is_not_null())
    assert (told["prefix_blocks"].list.len() == told["turn"]).all()
