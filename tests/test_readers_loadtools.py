"""Load-test tools and traces of requests: exact values, every trap, one request in all of them."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reading import REAL, REQUEST, SAMPLES, START_S, account, read, rows, table, write

from ttftdoctor.errors import InputError
from ttftdoctor.readers import Options

pytestmark = pytest.mark.usefixtures("every_row")

# --- samples ------------------------------------------------------------------------------------

#: Sample: rows, why some are rejected, why first tokens are set aside.
ACCOUNTS: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "aibrix.jsonl": (13, {"rate_limited": 1}, {"ttft_missing": 1}),
    "aiperf.jsonl": (
        14, {"aborted_request": 1, "rate_limited": 1}, {"ttft_missing": 1, "warmup": 1}
    ),
    "burstgpt-replay.json": (12, {}, {}),
    "evalscope.csv": (13, {"failed_request": 1}, {"not_streamed": 1}),
    "fmperf.json": (12, {"after_grace_window": 1, "failed_request": 1}, {}),
    "genai-bench.json": (14, {"failed_request": 1, "rate_limited": 1}, {"not_streamed": 1}),
    "genai-perf.json": (
        18, {"answer_without_text": 1, "failed_request": 2}, {"not_streamed": 1}
    ),
    "guidellm.json": (
        20, {"aborted_request": 2, "rate_limited": 2}, {"outside_measured_window": 1}
    ),
    "inference-perf.json": (12, {"failed_request": 1, "rate_limited": 1}, {"not_streamed": 1}),
    "k6.jsonl": (12, {"failed_request": 1}, {}),
    "kv-cache-tester.csv": (13, {"failed_request": 2}, {"not_streamed": 1}),
    "length-traces.csv": (12, {}, {"ttft_missing": 12}),
    "llm-load-test.json": (13, {"failed_request": 1, "rate_limited": 1}, {"ttft_missing": 1}),
    "llmperf.json": (15, {"failed_request": 1, "not_an_object": 1, "rate_limited": 1}, {}),
    "locust.log": (18, {"not_a_request_line": 4, "torn_line": 1}, {"not_streamed": 1}),
    "mlperf-loadgen.json": (12, {}, {}),
    "multi-round-qa.csv": (15, {"failed_request": 1}, {}),
    "vllm-multiturn.json": (14, {}, {"ttft_clamped": 1}),
}  # fmt: skip
NAMES = sorted(name.partition(".")[0] for name in ACCOUNTS)
SAMPLE = {name.partition(".")[0]: SAMPLES / name for name in ACCOUNTS}


@pytest.mark.parametrize("name", sorted(ACCOUNTS))
def test_every_row_of_a_sample_is_used_or_named(name: str) -> None:
    assert account(name) == ACCOUNTS[name]


# --- one request in every format ----------------------------------------------------------------

#: Load generators know that they asked for a stream.
R = REQUEST | {"streamed": True}
TIMES = ("ttft_us", "e2e_us")
TOKENS = ("input_tokens", "output_tokens")


def nanos(seconds: float) -> int:
    return START_S * 10**9 + round(seconds * 1e9)


def metric(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def frame(value: dict[str, Any]) -> dict[str, str]:
    return {"response": f"data: {json.dumps(value)}\n\n"}


AIPERF: dict[str, Any] = {
    "metadata": {
        "session_num": 0, "x_request_id": "req-001", "x_correlation_id": "sess-7f",
        "conversation_id": "c", "turn_index": 0, "credit_issued_ns": nanos(-0.001),
        "request_start_ns": nanos(0), "request_ack_ns": nanos(0.02), "request_end_ns": nanos(3.24),
        "worker_id": "w", "record_processor_id": "p", "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "time_to_first_token": metric(840.0, "ms"), "request_latency": metric(3240.0, "ms"),
        "input_sequence_length": metric(11_988, "tokens"),
        "output_sequence_length": metric(160, "tokens"),
        "usage_prompt_tokens": metric(12_000, "tokens"),
        "usage_prompt_cache_read_tokens": metric(9_000, "tokens"),
        "usage_prompt_cache_write_tokens": metric(1_000, "tokens"),
    },
    "error": None,
}  # fmt: skip
GUIDELLM: dict[str, Any] = {
    "type_": "generative_request_stats", "request_id": "req-001", "request_args": "SECRET",
    "output": "SECRET",
    "info": {"status": "completed", "conversation_id": "sess-7f", "turn_index": 0,
             "timings": {"request_start": START_S, "request_end": START_S + 3.24}},
    "request_start_time": START_S, "request_end_time": START_S + 3.24, "request_latency": 3.24,
    "prompt_tokens": 12_000, "cached_tokens": 9_000, "output_tokens": 160,
    "time_to_first_token_ms": 840.0,
}  # fmt: skip
GENAI_PERF: dict[str, Any] = {
    "timestamp": nanos(0),
    "request_inputs": {
        "payload": json.dumps({"model": "m", "stream": True}), "session_id": "sess-7f"
    },
    "response_timestamps": [nanos(0.05), nanos(0.84), nanos(3.24), nanos(3.25), nanos(3.251)],
    "response_outputs": [
        frame({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
        frame({"choices": [{"delta": {"content": "SECRET"}}]}),
        frame({"choices": [{"delta": {"content": "SECRET"}}]}),
        frame({"choices": [], "usage": {
            "prompt_tokens": 12_000, "completion_tokens": 160,
            "prompt_tokens_details": {"cached_tokens": 9_000}}}),
        {"response": "data: [DONE]\n\n"},
    ],
}  # fmt: skip
INFERENCE_PERF: dict[str, Any] = {
    "start_time": START_S, "end_time": START_S + 3.24, "request": "{}", "response": "SECRET",
    "info": {
        "request_metrics": {"text": {"input_tokens": 11_990}},
        "response_metrics": {
            "output_tokens": 159,
            "server_usage": {"prompt_tokens": 12_000, "completion_tokens": 160,
                             "prompt_tokens_details": {"cached_tokens": 9_000}},
            "response_chunks": [],
            "chunk_times": [START_S + 0.05, START_S + 0.84],
            "output_token_times": [START_S + 0.84, START_S + 3.238],
        },
    },
    "error": None,
}  # fmt: skip
REPLAY: dict[str, Any] = {
    "user_id": "sess", "request_idx": 0, "trace_id": "7f", "request_type": "streaming",
    "input_tokens": 12_000, "output_tokens_actual": 160, "cache_hit_blocks": 140, "ttft": 0.84,
    "ttlt": 3.24, "success": True, "error_message": "", "request_start_time": START_S,
}  # fmt: skip
K6 = [
    {"type": "Metric", "metric": name, "data": {"name": name, "contains": kind}}
    for name, kind in (("ttft", "time"), ("http_req_duration", "time"))
] + [
    {"type": "Point", "metric": name,
     "data": {"time": "2026-08-01T10:00:03.24Z", "value": value, "tags": {"request_id": "req-001"}}}
    for name, value in (("ttft", 840), ("http_req_duration", 3240), ("http_req_waiting", 5),
                        ("prompt_tokens", 12_000), ("output_tokens", 160), ("cached_tokens", 9000))
]  # fmt: skip
FMPERF = [
    {"response": "SECRET", "ok": True, "timestamp": nanos(0.84) + n * 15_000_000,
     "duration_ms": 840.0 if n == 0 else 15.0, "worker_idx": 0, "request_idx": 1,
     "response_idx": n, "exclude": False}
    for n in range(160)
]  # fmt: skip

#: Format: a log that holds the request, and the columns of it that the format can hold.
REFERENCE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "aibrix": (
        [{"request_id": "req-001", "status": "success", "input": [], "output": "SECRET",
          "prompt_tokens": 12_000, "output_tokens": 160, "latency": 3.24, "start_time": START_S,
          "end_time": START_S + 3.24, "ttft": 0.84, "tpot": 0.015, "target_pod": "pod-1",
          "session_id": "sess-7f"}],
        ("request_id", "session_id", "start", *TIMES, *TOKENS, "status"),
    ),
    "aiperf": ([AIPERF], tuple(R)),
    "burstgpt-replay": (
        {"1": {"event_id": "req-001", "in_len": 12_000, "out_len": 700, "first_chunk_time": 0.84,
               "total_chunk_time": 3.24, "record_time": START_S + 3.24},
         "2": {"event_id": "b", "in_len": 1, "out_len": 7, "first_chunk_time": 0.1,
               "total_chunk_time": 0.2, "record_time": START_S + 3.5}},
        ("request_id", "start", *TIMES, "input_tokens"),
    ),
    "evalscope": (
        table({"request_id": "req-001", "start_time": START_S, "success": 1, "latency": 3.24,
               "first_chunk_latency": 0.84, "completed_time": START_S + 3.24,
               "prompt_tokens": 12_000, "completion_tokens": 160, "is_stream": 1}),
        ("request_id", "start", *TIMES, *TOKENS, "streamed", "status"),
    ),
    "fmperf": ({"results": FMPERF}, ("start", "ttft_us", "output_tokens", "streamed", "status")),
    "genai-bench": (
        {"aggregated_metrics": {}, "individual_request_metrics": [
            {"ttft": 0.84, "e2e_latency": 3.24, "num_input_tokens": 12_000,
             "num_output_tokens": 160, "error_code": None}]},
        (*TIMES, *TOKENS, "status"),
    ),
    "genai-perf": (
        {"experiments": [{"experiment": {}, "requests": [GENAI_PERF]}]},
        ("session_id", "start", *TIMES, *TOKENS, "cached_tokens", "streamed", "status"),
    ),
    "guidellm": (
        {"metadata": {"version": 2}, "benchmarks": [
            {"requests": {"successful": [GUIDELLM], "errored": [], "incomplete": []}}]},
        ("request_id", "session_id", "start", *TIMES, *TOKENS, "cached_tokens", "status"),
    ),
    "inference-perf": (
        json.dumps([INFERENCE_PERF]),
        ("start", *TIMES, *TOKENS, "cached_tokens", "status"),
    ),
    "k6": (K6, ("request_id", "start", *TIMES, *TOKENS, "cached_tokens", "status")),
    "kv-cache-tester": (
        table(REPLAY),
        ("start", *TIMES, *TOKENS, "streamed", "status"),
    ),
    "length-traces": (
        table({"TIMESTAMP": "2026-08-01 10:00:00.0000000", "ContextTokens": 12_000,
               "GeneratedTokens": 160}),
        ("start", *TOKENS),
    ),
    "llm-load-test": (
        {"results": [{"user_id": 1, "start_time": START_S, "end_time": START_S + 3.24,
                      "tt_ack": 20.0, "ttft": 840.0, "response_time": 3240.0, "error_code": None,
                      "input_tokens": 12_000, "output_tokens": 160, "output_text": "SECRET"}],
         "config": {}},
        ("start", *TIMES, *TOKENS, "status"),
    ),
    "llmperf": (
        json.dumps([{"error_code": None, "error_msg": "", "ttft_s": 0.84, "number_total_tokens": 1,
                     "end_to_end_latency_s": 3.24, "number_input_tokens": 12_000,
                     "number_output_tokens": 160}]),
        (*TIMES, *TOKENS, "status"),
    ),
    "locust": (
        "host/INFO: Response received: total 3240.00 ms, first token 840.00 ms, 700 chars, "
        "160 tokens\n",
        (*TIMES, "output_tokens"),
    ),
    "mlperf-loadgen": (
        {"traceEvents": [
            {"name": "Token_Latency", "ph": "C", "ts": 1.5, "args":
                {"issue_delay": 40_000_000, "issue_to_done": 800_000_000}},
            {"name": "Sample", "ph": "b", "id": 0, "ts": 1.5, "args":
                {"sample_seq": "req-001", "issue_start_ns": 40_000_000,
                 "complete_ns": 3_240_000_000}},
            {"name": "Sample", "ph": "e", "id": 0, "ts": 3_240_001.5}]},
        ("request_id", *TIMES),
    ),
    "multi-round-qa": (
        table({"prompt_tokens": 12_000.0, "generation_tokens": 160.0, "ttft": 0.84,
               "generation_time": 2.4, "user_id": "sess-7f", "question_id": 1,
               "launch_time": START_S, "finish_time": START_S + 3.24}),
        ("session_id", "start", *TIMES, *TOKENS, "streamed", "status"),
    ),
    "vllm-multiturn": (
        json.dumps([{"ttft_ms": 840.0, "latency_ms": 3240.0, "start_time_ms": START_S * 1000,
                     "input_num_turns": 1, "input_num_tokens": 12_000, "output_num_tokens": 160,
                     "approx_cached_percent": 75.0, "conversation_id": "sess-7f"}]),
        ("session_id", "start", *TIMES, *TOKENS, "streamed"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_request_is_the_same_row_from_every_format(name: str, tmp_path: Path) -> None:
    value, columns = REFERENCE[name]
    log = read(write(tmp_path, value))
    assert log.inputs[0].format == name
    row = log.requests.row(0, named=True)
    assert {column: row[column] for column in columns} == {column: R[column] for column in columns}
    # What the format cannot hold stays unknown; nothing is made up.
    known = {c for c in R if row[c] is not None}
    own = {"mlperf-loadgen": {"start"}, "kv-cache-tester": {"session_id"}, "fmperf": {"e2e_us"}}
    assert known <= {*columns, "status", "streamed", "request_id", *own.get(name, ())}
    assert row["vantage"] == (None if name == "length-traces" else "client")
    assert "SECRET" not in str(log.requests.rows())


def test_every_format_is_in_the_tables() -> None:
    assert set(NAMES) == set(REFERENCE) == set(SAMPLE)


# --- AIPerf -------------------------------------------------------------------------------------


def changed(record: dict[str, Any], **parts: dict[str, Any]) -> dict[str, Any]:
    """A record with members of its objects replaced, or taken out (None)."""
    out = dict(record)
    for part, members in parts.items():
        inner = {**out[part], **members}
        out[part] = {key: value for key, value in inner.items() if value is not None}
    return out


def test_aiperf_units_are_read_from_the_record(tmp_path: Path) -> None:
    other = {"time_to_first_token": metric(0.84, "s"), "request_latency": metric(3.24e9, "ns")}
    log = read(write(tmp_path, [AIPERF, changed(AIPERF, metrics=other)]))
    assert rows(log, *TIMES) == [(840_000, 3_240_000)] * 2


def test_aiperf_names_before_october_2025(tmp_path: Path) -> None:
    old = changed(
        AIPERF,
        metadata={
            "request_start_ns": None, "benchmark_phase": None, "timestamp_ns": nanos(0),
            "credit_phase": "profiling",
        },
        metrics={"time_to_first_token": None, "ttft": metric(840.0, "ms")},
    )  # fmt: skip
    log = read(write(tmp_path, [old]))
    assert rows(log, "start", "ttft_us") == [(R["start"], 840_000)]


def test_aiperf_headers_are_no_first_token(tmp_path: Path) -> None:
    silent = changed(AIPERF, metrics={"time_to_first_token": None})
    log = read(write(tmp_path, [silent]))
    assert rows(log, "ttft_us", "streamed") == [(None, None)]
    assert log.inputs[0].ttft_set_aside == {"ttft_missing": 1}


def test_aiperf_warm_up_is_load_but_not_measured(tmp_path: Path) -> None:
    warm = changed(AIPERF, metadata={"benchmark_phase": "warmup"})
    log = read(write(tmp_path, [warm, AIPERF]))
    assert rows(log, "ttft_us", "ttft_set_aside", "input_tokens") == [
        (None, "warmup", 12_000), (840_000, None, 12_000)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"error": {"code": 500, "type": "x", "message": "y"}}, "failed_request"),
        ({"error": {"code": None, "type": "TimeoutError", "message": ""}}, "failed_request"),
        ({"error": {"code": 429, "type": "x", "message": 'say \\"no\\"'}}, "rate_limited"),
        ({"error": {"code": 499, "type": "x", "message": "y"}}, "aborted_request"),
        ({"metadata": {**AIPERF["metadata"], "was_cancelled": True}}, "aborted_request"),
        ({"metadata": {**AIPERF["metadata"], "context_overflow_skip": True}}, "skipped_by_client"),
        ({"metadata": None}, "no_record"),
    ],
)
def test_aiperf_failures_by_name(parts: dict[str, Any], reason: str, tmp_path: Path) -> None:
    log = read(write(tmp_path, [AIPERF, AIPERF, {**AIPERF, **parts}]))
    assert log.inputs[0].rows_rejected == {reason: 1}


def test_aiperf_says_when_the_client_was_late(tmp_path: Path) -> None:
    late = changed(AIPERF, metadata={"credit_issued_ns": nanos(-0.5)})
    assert any("sent over 0.1 s after" in note for note in read(write(tmp_path, [late])).notes)
    assert not any("sent over 0.1 s" in note for note in read(write(tmp_path, [AIPERF])).notes)


# --- GuideLLM -----------------------------------------------------------------------------------

LAYOUT_A: dict[str, Any] = {"benchmarks": [{"args": {"model": "m"}, "benchmarks": [
    {"mode": "synchronous", "rate": None, "errors": [], "concurrencies": [], "results": [
        {"request": {"id": "q1", "prompt": "SECRET", "prompt_token_count": 1500}, "output": "",
         "prompt_token_count": 1510, "output_token_count": 200, "start_time": 1_790_000_000.0,
         "end_time": 1_790_000_010.5, "first_token_time": 0.346, "decode_times": {"data": [1]}}]},
    {"mode": "throughput", "rate": None, "concurrencies": [],
     "errors": [{"request": {"id": "q3"}, "error": "timed out"}], "results": [
        {"request": {"id": "q2", "prompt_token_count": 1502}, "output_token_count": 9,
         "start_time": 1_790_000_011.0, "end_time": 1_790_000_012.0, "first_token_time": 0.25}]},
]}]}  # fmt: skip
LAYOUT_B: dict[str, Any] = {"benchmarks": [{
    "type_": "generative_benchmark", "worker": {"backend_model": "m"}, "args": {},
    "start_time": 1_790_000_000.0, "end_time": 1_790_000_060.0,
    "requests": {
        "successful": [
            {"type_": "generative_text_response", "request_id": "q1", "prompt_tokens": 124,
             "output_tokens": 128, "start_time": 1_790_000_001.0, "end_time": 1_790_000_003.5,
             "first_token_time": 1_790_000_002.0, "request_latency": 2.5,
             "time_to_first_token_ms": 1000.0, "scheduler_info": {"queued_time": 1_789_999_990.0}}],
        "errored": [],
        "incomplete": [
            {"type_": "generative_text_error", "request_id": "q2", "prompt_tokens": 128,
             "output_tokens": 128, "start_time": 1_790_000_059.9, "end_time": 1_790_000_060.0,
             "first_token_time": None, "request_latency": 0.1, "time_to_first_token_ms": None,
             "error": "TimeoutError: The request timed out before completing."}],
        "total": None}}]}  # fmt: skip


def test_guidellm_first_layout_has_durations(tmp_path: Path) -> None:
    log = read(write(tmp_path, LAYOUT_A))
    assert rows(log, "request_id", "start", "model", *TOKENS, *TIMES) == [
        ("q1", 1_790_000_000_000_000, "m", 1510, 200, 346_000, 10_500_000),
        ("q2", 1_790_000_011_000_000, "m", 1502, 9, 250_000, 1_000_000),
    ]
    assert log.inputs[0].rows_rejected == {"failed_request": 1}
    assert log.notes[0].startswith("the report holds 2 benchmarks")
    assert log.fields["ttft_us"].unit == "s"


def test_guidellm_second_layout_has_stamps(tmp_path: Path) -> None:
    log = read(write(tmp_path, LAYOUT_B))
    assert rows(log, "request_id", "start", "model", *TOKENS, *TIMES) == [
        ("q1", 1_790_000_001_000_000, "m", 124, 128, 1_000_000, 2_500_000)
    ]
    # Cut off at the end: tokens asked for, not tokens that came.
    assert log.inputs[0].rows_rejected == {"aborted_request": 1}
    assert log.notes == ()


def guidellm(requests: list[Any], **benchmark: Any) -> dict[str, Any]:
    lists = {"successful": requests, "errored": [], "incomplete": []}
    return {"args": {"model": "m"}, "benchmarks": [{**benchmark, "requests": lists}]}


def test_guidellm_counts_what_the_report_counts(tmp_path: Path) -> None:
    window = {"start_time": START_S + 4, "end_time": START_S + 60}
    later = {**GUIDELLM, "request_start_time": START_S + 3, "request_end_time": START_S + 6.24}
    trimmed = guidellm([GUIDELLM, later], **window, warmup_duration=4.0)
    log = read(write(tmp_path, trimmed))
    assert rows(log, "ttft_us", "ttft_set_aside") == [
        (None, "outside_measured_window"), (840_000, None)
    ]  # fmt: skip
    assert log.notes[0].startswith("1 of 2 requests ended in the warm-up")
    # Without a warm-up the window says nothing about requests.
    whole = read(write(tmp_path, guidellm([GUIDELLM, later], **window, warmup_duration=0.0)))
    assert whole.requests["ttft_us"].to_list() == [840_000] * 2
    assert whole.requests["model"].to_list() == ["m"] * 2


def test_guidellm_without_a_word_of_a_warm_up_is_about_its_window(tmp_path: Path) -> None:
    window = {"start_time": START_S + 4, "end_time": START_S + 60}
    report = {**guidellm([GUIDELLM], **window), "metadata": {"version": 2}}
    assert rows(read(write(tmp_path, report)), "ttft_set_aside") == [("outside_measured_window",)]


def test_guidellm_an_answer_in_one_piece_has_no_first_token(tmp_path: Path) -> None:
    whole = {**GUIDELLM, "time_to_first_token_ms": 3240.0}
    one = {**whole, "output_tokens": 1}
    log = read(write(tmp_path, guidellm([whole, one])))
    assert rows(log, "ttft_us", "ttft_set_aside") == [(None, "not_streamed"), (3_240_000, None)]


@pytest.mark.parametrize(
    "odd", ["text", 3, [1], {"prompt_tokens": "many"}, {"time_to_first_token_ms": {"a": 1}}]
)
def test_guidellm_one_odd_element_costs_no_other(odd: Any, tmp_path: Path) -> None:
    log = read(write(tmp_path, guidellm([GUIDELLM, odd, GUIDELLM])))
    assert log.requests["ttft_us"].to_list() == [840_000] * 2
    assert sum(log.inputs[0].rows_rejected.values()) == 1


def test_odd_characters_of_answers_cost_nothing(tmp_path: Path) -> None:
    """Tabs, quotes, and whatever else a model may write, stand beside the figures."""
    text = 'a\tb\x00\x1b[0m\x07\n\r\x0c\\ \\" ]}'
    response = {**INFERENCE_PERF["info"]["response_metrics"], "response_chunks": [text]}
    frames = [*GENAI_PERF["response_outputs"]]
    frames[1] = frame({"choices": [{"delta": {"content": text}}]})
    frames[1]["odd"] = text
    logs = (
        guidellm([{**GUIDELLM, "output": text, "request_args": text}]),
        json.dumps([changed(INFERENCE_PERF, info={"response_metrics": response})]),
        genai_perf({**GENAI_PERF, "response_outputs": frames}),
    )
    for value in logs:
        log = read(write(tmp_path, value))
        assert rows(log, *TIMES, *TOKENS) == [(840_000, 3_240_000, 12_000, 160)]


# --- arrays of metrics --------------------------------------------------------------------------


def test_genai_bench_time_unit_decides(tmp_path: Path) -> None:
    element = {"ttft": 840.0, "e2e_latency": 3240.0, "num_input_tokens": 5, "num_output_tokens": 9}
    value = {"aggregated_metrics": {}, "individual_request_metrics": [element]}
    assert rows(read(write(tmp_path, {**value, "_time_unit": "ms"})), *TIMES) == [
        (840_000, 3_240_000)
    ]
    assert rows(read(write(tmp_path, value)), *TIMES) == [(840_000_000, 3_240_000_000)]


def test_llmperf_a_complaint_about_length_keeps_its_times(tmp_path: Path) -> None:
    element = {
        "error_msg": "", "ttft_s": 0.84, "end_to_end_latency_s": 3.24, "number_input_tokens": 5,
        "number_output_tokens": 9,
    }  # fmt: skip
    zero = {**element, "ttft_s": 0, "end_to_end_latency_s": 0, "error_code": None}
    codes = [None, -100, -1, 500, 429, 499]
    elements = [*({**element, "error_code": code} for code in codes), zero]
    log = read(write(tmp_path, json.dumps(elements)))
    assert log.requests["ttft_us"].to_list() == [840_000] * 2
    assert log.inputs[0].rows_rejected == {
        "aborted_request": 1, "failed_request": 3, "rate_limited": 1
    }  # fmt: skip


def test_inference_perf_knows_no_first_token_without_token_times(tmp_path: Path) -> None:
    response = {**INFERENCE_PERF["info"]["response_metrics"], "output_token_times": []}
    silent = changed(INFERENCE_PERF, info={"response_metrics": response})
    lines = json.dumps([silent, INFERENCE_PERF])
    assert read(write(tmp_path, lines)).requests["ttft_us"].to_list() == [None, 840_000]


def test_inference_perf_older_versions_keep_their_counts_in_info(tmp_path: Path) -> None:
    info = {
        "input_tokens": 256, "output_tokens": 3, "output_token_times": [100.3, 100.7, 101.1]
    }  # fmt: skip
    old = {"start_time": 100.0, "end_time": 101.2, "request": "{}", "response": "", "info": info}
    log = read(write(tmp_path, json.dumps([old])))
    assert rows(log, *TOKENS, *TIMES) == [(256, 3, 300_000, 1_200_000)]


def test_prompts_in_results_make_blocks_and_are_not_kept(tmp_path: Path) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 1100
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "m", "stream": True, "messages": messages})
    perf = {**GENAI_PERF, "request_inputs": {"payload": body}}
    logs = (
        [{**REFERENCE["aibrix"][0][0], "input": messages}] * 2,
        json.dumps([{**INFERENCE_PERF, "request": body}] * 2),
        {"experiments": [{"requests": [perf, perf]}]},
    )
    for value in logs:
        path = write(tmp_path, value)
        blocks = read(path).requests["prefix_blocks"]
        assert blocks.list.len().min() > 600  # type: ignore[operator]
        assert blocks[0].to_list() == blocks[1].to_list()
        assert "quick brown" not in str(read(path).requests.rows())
        asked = read(path, options=Options(text=True)).prompts
        assert asked is not None
        assert asked["line"].to_list() == [1, 2]
        assert "quick brown" in str(asked["parts"].to_list())


# --- GenAI-Perf ---------------------------------------------------------------------------------


def genai_perf(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"experiments": [{"experiment": {}, "requests": list(requests)}], "version": "1"}


def test_genai_perf_empty_responses_count_at_neither_end(tmp_path: Path) -> None:
    """The first response names the role, the last two hold usage and the end."""
    log = read(write(tmp_path, genai_perf(GENAI_PERF)))
    assert rows(log, *TIMES) == [(840_000, 3_240_000)]


def test_genai_perf_a_response_may_be_anything(tmp_path: Path) -> None:
    for odd in (10**400, -(10**30), 1.5, True, [], {"response": "x"}, ["x"], "\ud800"):
        for key in ("response", "text_output"):
            frames = [*GENAI_PERF["response_outputs"][:-1], {key: odd, "more": 10**400}]
            log = read(write(tmp_path, genai_perf({**GENAI_PERF, "response_outputs": frames})))
            assert log.requests.height == 1, (key, odd)


def test_genai_perf_reasoning_is_content(tmp_path: Path) -> None:
    outputs = list(GENAI_PERF["response_outputs"])
    outputs[0] = frame({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    log = read(write(tmp_path, genai_perf({**GENAI_PERF, "response_outputs": outputs})))
    assert log.requests["ttft_us"].to_list() == [50_000]


def test_genai_perf_without_usage_has_no_counts(tmp_path: Path) -> None:
    cut = {
        **GENAI_PERF,
        "response_outputs": GENAI_PERF["response_outputs"][:3],
        "response_timestamps": GENAI_PERF["response_timestamps"][:3],
    }
    log = read(write(tmp_path, genai_perf(cut)))
    assert rows(log, *TIMES, *TOKENS) == [(840_000, 3_240_000, None, None)]
    assert any("no token counts" in note for note in log.notes)


def test_genai_perf_responses_that_were_not_kept_are_taken_for_tokens(tmp_path: Path) -> None:
    bare = {key: GENAI_PERF[key] for key in ("timestamp", "response_timestamps")}
    assert read(write(tmp_path, genai_perf(bare))).requests["ttft_us"].to_list() == [50_000]


def test_genai_perf_requests_of_all_experiments_are_numbered_through(tmp_path: Path) -> None:
    two = {"experiments": [{"requests": [GENAI_PERF] * 2}, {"requests": [GENAI_PERF]}]}
    log = read(write(tmp_path, two))
    assert log.requests["line"].to_list() == [1, 2, 3]
    assert any("2 experiments" in note for note in log.notes)


# --- tables -------------------------------------------------------------------------------------


def test_kv_cache_tester_never_takes_a_setting_for_a_count(tmp_path: Path) -> None:
    rate = {
        "request_id": "P1_r0", "phase_id": "P1", "cache_hit_rate": 95, "context_size": 32_000,
        "cached_tokens": 30_208, "unique_tokens": 1792, "output_tokens": 1, "ttft": 0.24,
        "ttlt": 0.24, "generation_time": 0.0005, "total_time": 0.2405, "launch_time": START_S,
        "finish_time": START_S + 0.2405, "concurrency_level": 2,
    }  # fmt: skip
    log = read(write(tmp_path, table(rate)))
    assert rows(log, "request_id", *TOKENS, "cached_tokens", *TIMES, "start") == [
        ("P1_r0", 32_000, 1, None, 240_000, 240_000, R["start"])
    ]
    assert "set up to repeat" in log.notes[0]
    single = {
        "context_size": 64_000, "iteration": 0, "prompt_type": "cached_r1", "prompt_tokens": 64_014,
        "completion_tokens": 256, "ttft": 0.3, "generation_time": 2.5, "total_time": 2.8,
    }  # fmt: skip
    log = read(write(tmp_path, table(single)))
    assert rows(log, *TOKENS, "cached_tokens", *TIMES, "start") == [
        (64_014, 256, None, 300_000, 2_800_000, None)
    ]


def test_kv_cache_tester_a_success_without_a_first_token_failed(tmp_path: Path) -> None:
    empty = {**REPLAY, "ttft": 0.0, "ttlt": 0.0, "output_tokens_actual": 0}
    failed = {**REPLAY, "success": False, "error_message": "HTTP 429"}
    log = read(write(tmp_path, table(REPLAY, empty, failed)))
    assert log.inputs[0].rows_rejected == {"failed_request": 2}
    assert rows(log, "session_id", "turn") == [("sess/7f", 1)]


def test_kv_cache_tester_wide_cells_do_not_matter(tmp_path: Path) -> None:
    wide = {**REPLAY, "token_timestamps": str([1_776_751_591.815577] * 20_000)}
    assert len(str(wide)) > 2**17
    log = read(write(tmp_path, table(wide, wide)))
    assert log.requests["ttft_us"].to_list() == [840_000] * 2


def test_multi_round_qa_of_sharegpt_has_no_sessions(tmp_path: Path) -> None:
    row = {
        "prompt_tokens": 689, "generation_tokens": 275, "ttft": 0.25, "generation_time": 31.0,
        "launch_time": START_S, "finish_time": START_S + 31.25,
    }  # fmt: skip
    log = read(write(tmp_path, table(row)))
    assert log.inputs[0].format == "multi-round-qa"
    assert rows(log, "session_id", "turn", *TIMES) == [(None, None, 250_000, 31_250_000)]


def test_vllm_multiturn_turns_are_pairs_of_messages(tmp_path: Path) -> None:
    row = json.loads(REFERENCE["vllm-multiturn"][0])[0]
    text = table(*({**row, "input_num_turns": n} for n in (1, 3, 15)))
    log = read(write(tmp_path, text))
    assert log.inputs[0].format == "vllm-multiturn"
    assert log.requests["turn"].to_list() == [1, 2, 8]


def test_vllm_multiturn_unstreamed_and_unknown_first_tokens(tmp_path: Path) -> None:
    row = json.loads(REFERENCE["vllm-multiturn"][0])[0]
    whole = row | {"ttft_ms": row["latency_ms"], "conversation_id": "b"}
    short = whole | {"output_num_tokens": 1, "conversation_id": "c"}
    unknown = row | {"ttft_ms": -1.0, "conversation_id": "d"}
    log = read(write(tmp_path, [row, whole, short, unknown]))
    assert log.requests["streamed"].to_list() == [True, False, True, True]
    assert log.requests["ttft_us"].to_list() == [840_000, None, 3_240_000, None]
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1, "ttft_missing": 1}


@pytest.mark.parametrize(
    ("row", "want"),
    [
        (
            {"Timestamp": 61.0, "Session ID": "s-3", "Elapsed time": 4.2, "Model": "GPT-4",
             "Request tokens": 480, "Response tokens": 120, "Total tokens": 600,
             "Log Type": "Conversation log"},
            {"start": 61_000_000, "session_id": "s-3", "e2e_us": 4_200_000, "model": "GPT-4",
             "input_tokens": 480, "output_tokens": 120, "route": "Conversation log"},
        ),
        (
            {"Timestamp": 5, "Model": "ChatGPT", "Request tokens": 472, "Response tokens": 18,
             "Total tokens": 490, "Log Type": "API log"},
            {"start": 5_000_000, "session_id": None, "e2e_us": None, "input_tokens": 472},
        ),
        (
            {"arrived_at": 0.25, "num_prefill_tokens": 374, "num_decode_tokens": 44},
            {"start": 250_000, "input_tokens": 374, "output_tokens": 44},
        ),
        (
            {"request_id": 7, "request_type": 1, "application_id": 0, "arrival_timestamp": 1.5,
             "batch_size": 1, "prompt_size": 900, "token_size": 30},
            {"request_id": "7", "start": 1_500_000, "input_tokens": 900, "output_tokens": 30},
        ),
        (
            {"TIMESTAMP": "2027-01-05 09:00:01.1234567", "NumImages": 2, "ContextTokens": 900,
             "GeneratedTokens": 25},
            {"start": 1_799_139_601_123_456, "input_tokens": 900, "output_tokens": 25},
        ),
    ],
)  # fmt: skip
def test_traces_of_lengths(row: dict[str, Any], want: dict[str, Any], tmp_path: Path) -> None:
    log = read(write(tmp_path, table(row, row)))
    assert log.inputs[0].format == "length-traces"
    got = log.requests.row(0, named=True)
    assert {column: got[column] for column in want} == want
    assert got["ttft_us"] is None


def test_a_burstgpt_request_without_an_answer_failed(tmp_path: Path) -> None:
    row = {"Timestamp": 5, "Model": "m", "Request tokens": 472, "Response tokens": 0}
    log = read(write(tmp_path, table(row, {**row, "Response tokens": 3})))
    assert log.inputs[0].rows_rejected == {"failed_request": 1}


def test_azure_stamps_are_in_the_zone_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, REFERENCE["length-traces"][0])
    log = read(path, options=Options(timezone="America/New_York"))
    assert log.requests["start"].to_list() == [(START_S + 4 * 3600) * 10**6]


def test_burstgpt_replay_starts_before_its_record(tmp_path: Path) -> None:
    """The stamp is read when the answer has ended, so the order of the rows is not that of
    arrival."""
    log = read(SAMPLE["burstgpt-replay"])
    starts = log.requests.sort(pl.col("request_id").cast(pl.Int64))["start"].to_list()
    assert not log.requests["start"].is_sorted()
    assert starts == [9_100_500_000 + 400_000 * n for n in range(12)]
    assert log.requests["output_tokens"].null_count() == 12


def test_evalscope_old_tables_say_it_by_equal_times(tmp_path: Path) -> None:
    row = {
        "start_time": 5.0, "chunk_times": "[]", "success": 1, "completed_time": 8.24,
        "latency": 3.24, "first_chunk_latency": 3.24, "prompt_tokens": 9, "completion_tokens": 16,
        "response_messages": "gASV", "n_chunks": 1,
    }  # fmt: skip
    log = read(write(tmp_path, table(row, {**row, "first_chunk_latency": 0.84})))
    assert rows(log, "ttft_us", "ttft_set_aside") == [(None, "not_streamed"), (840_000, None)]


def test_llm_load_test_of_2023_had_seconds_and_capitals(tmp_path: Path) -> None:
    old = {
        "start": START_S, "end": START_S + 3.24, "TT_ack": 41.5, "TTFT": 840.0, "TPOT": 27.3,
        "response_time": 3.24, "output_tokens": 160, "worker_id": 0, "input_tokens": 12_000,
        "response_string": "SECRET", "input_string": "SECRET",
    }  # fmt: skip
    log = read(write(tmp_path, {"results": [old], "config": {}}))
    assert rows(log, "start", *TIMES, *TOKENS) == [(R["start"], 840_000, 3_240_000, 12_000, 160)]
    assert "SECRET" not in str(log.requests.rows())


# --- events -------------------------------------------------------------------------------------


def sample_event(number: int, ts: float, end_ns: int) -> dict[str, Any]:
    args = {"sample_seq": number, "query_seq": 0, "issue_start_ns": 5, "complete_ns": end_ns}
    return {"name": "Sample", "cat": "default", "ph": "b", "id": number, "ts": ts, "args": args}


def test_mlperf_tokens_of_other_scenarios_carry_their_sample(tmp_path: Path) -> None:
    def token(number: int, ns: int) -> dict[str, Any]:
        args = {"sample_seq": number, "query_seq": 0, "complete_ns": ns}
        return {"name": "Token", "ph": "b", "id": number, "ts": 2.0, "args": args}

    # One query of two samples: both were due at the same moment.
    events = [token(1, 9_000_000), token(0, 7_000_000), sample_event(0, 2.0, 90_000_000),
              sample_event(1, 2.0, 95_000_000), {"name": "LastTrace"}]  # fmt: skip
    log = read(write(tmp_path, {"traceEvents": events}))
    assert rows(log, "request_id", *TIMES) == [("0", 7000, 90_000), ("1", 9000, 95_000)]


def test_mlperf_without_token_latencies_has_ends_only(tmp_path: Path) -> None:
    log = read(write(tmp_path, {"traceEvents": [sample_event(n, n, 10**8) for n in range(3)]}))
    assert rows(log, "ttft_us", "e2e_us") == [(None, 100_000)] * 3


def test_k6_first_byte_is_no_first_token(tmp_path: Path) -> None:
    without = [line for line in K6 if line["metric"] != "ttft"]
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, without))
    assert "Trend" in str(caught.value)


def test_k6_points_are_joined_by_walk_and_order(tmp_path: Path) -> None:
    def point(name: str, value: float, **tags: str) -> dict[str, Any]:
        data = {"time": "2026-08-01T10:00:05Z", "value": value, "tags": tags}
        return {"type": "Point", "metric": name, "data": data}

    walk = {"vu": "1", "iter": "0"}
    lines = [
        point("llm_ttft_seconds", 0.84, **walk), point("http_req_duration", 3240, **walk),
        point("llm_ttft_seconds", 0.5, **walk), point("http_req_duration", 1000, **walk),
        point("llm_ttft_seconds", 0.25),
    ]  # fmt: skip
    log = read(write(tmp_path, lines))
    assert rows(log, *TIMES) == [(840_000, 3_240_000), (500_000, 1_000_000), (250_000, None)]
    assert any("cannot be brought together" in note for note in log.notes)


@pytest.mark.parametrize(
    "tags",
    [
        {"tags": {"model": "m"}, "metadata": {"vu": "1", "iter": "0"}},
        {"tags": {"vu": "1", "iter": "0", "model": "m"}},
    ],
)
def test_k6_walks_are_tags_or_metadata(tags: dict[str, Any], tmp_path: Path) -> None:
    lines = [
        {"type": "Point", "metric": name,
         "data": {"time": "2026-08-01T10:00:03.24Z", "value": value, **tags}}
        for name, value in (("ttft", 840), ("http_req_duration", 3240))
    ]  # fmt: skip
    log = read(write(tmp_path, lines))
    assert rows(log, "start", "model", *TIMES) == [(R["start"], "m", 840_000, 3_240_000)]


def test_k6_points_as_csv(tmp_path: Path) -> None:
    end = START_S + 4
    text = (
        "metric_name,timestamp,metric_value,expected_response,status,extra_tags,metadata\n"
        f"ttft,{end},840.0,,,model=m&request_id=a,vu=1&iter=0\n"
        f"http_req_duration,{end},4000.0,true,200,request_id=a,vu=1&iter=0\n"
        f"ttft,{end},500.0,,,,vu=1&iter=1\nhttp_req_duration,{end},1000.0,,,,vu=1&iter=1\n"
        f"ttft,{end},1.0,,429,request_id=b,\n"
    )
    log = read(write(tmp_path, text))
    assert log.inputs[0].format == "k6"
    assert rows(log, "request_id", "start", "model", *TIMES) == [
        ("a", R["start"], "m", 840_000, 4_000_000),
        (None, R["start"] + 3_000_000, None, 500_000, 1_000_000),
    ]
    assert log.inputs[0].rows_rejected == {"rate_limited": 1}


def test_fmperf_first_tokens_before_the_end_of_the_window_count(tmp_path: Path) -> None:
    late = [{**FMPERF[n], "request_idx": r, "exclude": n >= r - 1} for r in (1, 2) for n in (0, 1)]
    log = read(write(tmp_path, json.dumps(late)))  # as one worker writes them
    assert rows(log, "request_id", *TIMES) == [("0/2", 840_000, 855_000)]
    assert log.inputs[0].rows_rejected == {"after_grace_window": 1}


def test_fmperf_a_chunk_of_several_tokens_is_several_elements(tmp_path: Path) -> None:
    gaps = [200.0, 30.0, 0.0, 30.0]
    at = [200.0, 230.0, 230.0, 260.0]
    tokens = [
        {"ok": True, "timestamp": nanos(at[n] / 1e3), "duration_ms": gaps[n], "worker_idx": w,
         "request_idx": 0, "response_idx": n}
        for n in (2, 0, 1, 3) for w in (0, 1)
    ]  # fmt: skip
    log = read(write(tmp_path, {"results": tokens}))
    assert rows(log, "request_id", "start", *TIMES, "output_tokens") == [
        (f"{w}/0", R["start"], 200_000, 260_000, 4) for w in (0, 1)
    ]


def test_locust_prefixes_and_colours_do_not_matter(tmp_path: Path) -> None:
    line = "Response received: total 3240.50 ms, first token 840.25 ms, 700 chars, 160 tokens"
    text = f"\x1b[32m[2026-08-01 10:00:00,1] h/INFO/x: {line}\x1b[0m\n\nType  Name\n{line}\n"
    log = read(write(tmp_path, text))
    assert rows(log, *TIMES, "output_tokens") == [(840_250, 3_240_500, 160)] * 2


# --- averages are refused with what to do instead -----------------------------------------------


@pytest.mark.parametrize(
    ("value", "help_"),
    [
        ({"time_to_first_token": {"unit": "ms", "avg": 1.0}, "input_config": {}}, "profile_export"),
        ({"results_ttft_s_mean": 0.5, "model": "m"}, "_individual_responses.json"),
        ([{"tag": "", "summary": {"average_ttft": 1}, "round": {}}] * 2, "--log-requests"),
        ({"load_summary": {}, "successes": {}, "failures": {}}, "per_request"),
        ({"benchmarks": [{"type_": "generative_benchmark", "metrics": {}}]}, "benchmarks.json"),
        ({"aggregated_metrics": {}, "individual_request_metrics": None}, "one scenario"),
        (':::MLLOG {"key": "loadgen_version"}\n:::MLLOG {"key": "x"}\n', "enable_trace"),
        ("Type,Name,Request Count,Failure Count,Median Response Time\nPOST,x,9,0,180\n", "console"),
        ("Type,Name,Request Count,Failure Count,50%,99.9%\nPOST,x,9,0,180,190\n", "console"),
        ([{"Percentiles": "10%", "TTFT (ms)": 100.0, "Latency (s)": 1.0}] * 3, "benchmark_data.db"),
        ({"Time taken for tests (s)": 3.0, "Number of concurrency": 1}, "benchmark_data.db"),
        ("=====\nMLPerf Results Summary\n=====\nSUT name : x\n", "enable_trace"),
        ([{"seq_id": 0, "qsl_idx": 1, "data": "AB", "token_count": 3}] * 3, "enable_trace"),
        (
            [
                {
                    "metadata": AIPERF["metadata"],
                    "start_perf_ns": 1,
                    "payload": {},
                    "status": 200,
                    "responses": [{"perf_ns": 5, "text": "SECRET"}],
                }
            ],
            "profile_export.jsonl",
        ),
        ("Type,Run Id,Id,Name,Duration\ngenerative_benchmark,1,2,x,60\n", "benchmarks.json"),
        ("Run Info,Run Info,Timings\nRun ID,Profile,Duration\n,,Sec\na,b,60\n", "benchmarks.json"),
        ("benchmarks:\n- type_: generative_benchmark\n  start_time: 1.0\n", "benchmarks.json"),
    ],
)
def test_averages_are_refused_clearly(value: Any, help_: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, value))
    assert caught.value.why
    assert help_ in (caught.value.help or "")


# --- real files ---------------------------------------------------------------------------------

#: File: format, rows, rows with a first token that may be used, median of these in seconds.
FILES: dict[str, tuple[str, int, int, float | None]] = {
    # One of 196 warms the server up.
    "aiperf/agentic_kimi_conc1.profile_export.jsonl": ("aiperf", 196, 195, 2.148),
    "aiperf/qwen_conc2.profile_export.jsonl": ("aiperf", 10, 10, 0.03712),
    "burstgpt_replay/detail_log_scale1000_prompt500.json": ("burstgpt-replay", 500, 500, 1.847),
    "genai_bench/n2000_200_conc32.json": ("genai-bench", 64, 64, 0.9272),
    "genai_bench/trtllm_gptoss120b_conc4.json": ("genai-bench", 128, 105, 0.001),
    "guidellm/v0.1_std_8b.guidellm_report.json": ("guidellm", 66, 66, 0.9574),
    "guidellm/v0.3_constant_rate.benchmarks.json": ("guidellm", 586 + 23, 586, 1.006),
    # Four of 30 end outside the window that was measured.
    "guidellm/v0.5_qwen3_4b_tp2.benchmarks.json": ("guidellm", 30, 26, 0.03705),
    "inference_perf/per_request_lifecycle_metrics.fixture.json": ("inference-perf", 6, 5, 0.1111),
    "kv_cache_tester/cache_rate_ctx32000_hit95.detailed.csv": (
        "kv-cache-tester", 1645, 1645, 3.296,
    ),
    "kv_cache_tester/single_prompt_cold_vs_cached.csv": ("kv-cache-tester", 48, 48, 0.6227),
    "kv_cache_tester/tp8_conc16_offload_on.trace_replay.detailed.csv": (
        "kv-cache-tester", 47, 43, 0.6102,
    ),
    "kv_cache_tester/tp8_conc256_offload_off.trace_replay.detailed.csv": (
        "kv-cache-tester", 429, 105, 264.6,
    ),
    "llm_load_test/output_2023_tgis.json": ("llm-load-test", 107, 107, 0.2777),
    "llmperf/lepton_7b_errors.json": ("llmperf", 150, 20, 1.135),
    "llmperf/replicate_70b.json": ("llmperf", 145, 145, 1.188),
    "llmperf/yi34b_tgi_conc64_errors.individual_responses.json": ("llmperf", 128, 42, 9.517),
    "llmperf/yi34b_vllm_conc64.individual_responses.json": ("llmperf", 128, 128, 17.22),
    "multi_round_qa/llmd70b_2rep_short_qps5.csv": ("multi-round-qa", 526, 526, 0.104),
    "multi_round_qa/vllm70b_2rep_sharegpt_qps8.csv": ("multi-round-qa", 252, 252, 14.52),
    "multi_round_qa/vllm70b_2rep_short_qps5.csv": ("multi-round-qa", 526, 526, 0.09153),
    "trace_azure/AzureLLMInferenceTrace_code.csv": ("length-traces", 8819, 0, None),
    "vllm_multiturn/tp1_conc256_offload_off.client.csv": ("vllm-multiturn", 5255, 5255, 3.069),
    # One first token is clamped to 0.1 ms.
    "vllm_multiturn/tp4_conc32_offload_off.client.csv": ("vllm-multiturn", 723, 722, 0.6522),
}  # fmt: skip


def need(name: str) -> Path:
    path = REAL / name
    if not path.exists():
        pytest.skip("the folder of real logs is not here")
    return path


@pytest.mark.parametrize("name", FILES)
def test_every_row_of_a_real_file_is_read(name: str) -> None:
    format_, count, known, median = FILES[name]
    log = read(need(name))
    (one,) = log.inputs
    assert (one.format, one.rows_read) == (format_, count)
    ttft = log.requests["ttft_us"].drop_nulls().sort()
    assert len(ttft) == known
    if median is not None:
        assert ttft[len(ttft) // 2] / 1e6 == pytest.approx(median, rel=0.002)
    assert log.warnings == ()


def test_guidellm_means_are_those_of_the_report() -> None:
    """The report's own mean leaves out warm-up and cool-down: 44.1 and not 51.5 ms."""
    path = need("guidellm/v0.5_qwen3_4b_tp2.benchmarks.json")
    metrics = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    told = metrics["time_to_first_token_ms"]["successful"]["mean"]
    assert read(path).requests["ttft_us"].mean() == pytest.approx(told * 1e3, abs=1)


def test_aiperf_ends_are_those_of_its_stamps() -> None:
    path = need("aiperf/agentic_kimi_conc1.profile_export.jsonl")
    told = [json.loads(line)["metadata"] for line in path.read_text().splitlines()]
    ends = [(m["request_end_ns"] - m["request_start_ns"]) / 1e3 for m in told]
    assert read(path).requests["e2e_us"].to_list() == pytest.approx(ends, abs=1)


# --- damage -------------------------------------------------------------------------------------

_JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 2**70, 1e-320, "", "NaN", "-inf", "x", "12", "3.5s",
    [], {}, [1, [2]], {"value": [1]}, "\x00\x1b[31m", "é" * 50, "9" * 400, [None], "[1,", "{",
    "'\"",
)  # fmt: skip


def _damage(value: Any, draw: random.Random) -> Any:
    """The value with one of those inside it replaced, lost or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _damage(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        at = draw.randrange(len(value))
        return [*value[:at], _damage(value[at], draw), *value[at + draw.randrange(2) :]]
    return draw.choice(_JUNK)


def _records(name: str) -> tuple[list[Any], Callable[[list[Any]], str]]:
    """The records of a sample, and how to put as many as one likes into one file."""
    text = SAMPLE[name].read_text(encoding="utf-8")
    if SAMPLE[name].suffix == ".log":
        return text.splitlines(), "\n".join
    if SAMPLE[name].suffix == ".csv":
        header, *lines = csv.reader(io.StringIO(text))

        def as_table(records: list[Any]) -> str:
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows([header, *records])
            return out.getvalue()

        return list(lines), as_table
    if SAMPLE[name].suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()], lambda records: "\n".join(
            one if isinstance(one, str) else json.dumps(one) for one in records
        )
    document = json.loads(text)
    if isinstance(document, list):
        return document, json.dumps
    if name == "guidellm":
        lists = document["benchmarks"][0]["requests"]

        def as_report(records: list[Any]) -> str:
            requests = {**lists, "successful": records}
            first = {**document["benchmarks"][0], "requests": requests}
            return json.dumps({**document, "benchmarks": [first]})

        return lists["successful"], as_report
    if name == "genai-perf":
        first = document["experiments"][0]
        return first["requests"], lambda records: json.dumps(
            {**document, "experiments": [{**first, "requests": records}]}
        )
    keys = ("individual_request_metrics", "results", "traceEvents")
    key = next((key for key in keys if key in document), None)
    if key is None:
        return list(document.values()), lambda records: json.dumps(
            {str(n): record for n, record in enumerate(records)}
        )
    return document[key], lambda records: json.dumps({**document, key: records})


def damaged(name: str, count: int, seed: int) -> str:
    """A log of ``count`` records, each with something wrong."""
    records, whole = _records(name)
    draw = random.Random(seed)

    def one() -> Iterator[Any]:
        for _ in range(count):
            record = draw.choice(records)
            if isinstance(record, str):
                at = draw.randrange(len(record) + 1)
                junk = str(draw.choice(_JUNK)).replace("\x00", "")
                yield record[:at] + junk + record[at + draw.randrange(9) :]
            elif SAMPLE[name].suffix == ".jsonl" and draw.random() < 0.1:
                yield json.dumps(record)[: draw.randrange(1, 80)]
            elif isinstance(record, list):
                at = draw.randrange(len(record))
                cells = [str(draw.choice(_JUNK)).replace("\x00", "") for _ in range(2)]
                yield [*record[:at], *cells[: draw.randrange(3)], *record[at + 1 :]]
            elif name == "burstgpt-replay":
                # Entries with other keys are no such log; what is in them may be anything.
                key = draw.choice(list(record))
                yield {**record, key: draw.choice(_JUNK)}
            else:
                yield _damage(record, draw)

    return whole([*records, *one()])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_damaged_records_are_used_or_named(name: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / SAMPLE[name].name
    path.write_text(damaged(name, 1500, seed), encoding="utf-8")
    log = read(path, format=name)
    (one,) = log.inputs
    assert one.rows_used > 0
    if name not in ("k6", "mlperf-loadgen", "fmperf"):  # a request there is several records
        assert one.rows_read >= 1500
    ttft = log.requests["ttft_us"].drop_nulls()
    assert ttft.is_empty() or 0 < ttft.min() <= ttft.max() < 86_400 * 10**6  # type: ignore[operator]
