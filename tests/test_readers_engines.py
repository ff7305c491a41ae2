"""Readers of engines' own logs: one known request from each, and every trap of each format."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import REAL, REQUEST, SAMPLES, START_S, claims, only, read_objects, rejected
from reading import read_data as read

from ttftdoctor.errors import InputError, TTFTDoctorError
from ttftdoctor.intake import Log, read_log

pytestmark = pytest.mark.usefixtures("every_row")

START = START_S * 10**6
#: What of the known request these formats can hold.
EXPECTED = {k: v for k, v in REQUEST.items() if k not in ("cache_write_tokens", "status")}
#: What the format cannot hold (None), or holds in its own way.
OTHERWISE: dict[str, dict[str, Any]] = {
    "dynamo": {},
    "lightllm": {},
    "lmdeploy": {
        "ttft_us": None, "cached_tokens": None, "session_id": None, "request_id": "7",
    },
    # An access line is of the end, in whole seconds.
    "ollama-log": {"start": START - 240_000, "session_id": None, "request_id": None},
    "sglang-log": {},
    "tgi": {
        "ttft_us": None, "input_tokens": None, "cached_tokens": None, "session_id": None,
        "request_id": None,
    },
    # A steady clock, blocks for tokens, a number for an id.
    "trtllm": {
        "start": 81_234_500_000, "input_tokens": None, "cached_tokens": None,
        "output_tokens": None, "session_id": None, "request_id": "41",
    },
    "vllm-engine": {},
    # Whole seconds at both ends.
    "vllm-log": {
        "ttft_us": None, "e2e_us": 3_000_000, "output_tokens": None, "session_id": None,
        "request_id": "chatcmpl-req-001",
    },
}  # fmt: skip
NAMES = sorted(OTHERWISE)
PATHS = {path.stem: path for path in SAMPLES.iterdir() if path.stem in OTHERWISE}


def aside(log: Log) -> dict[str, int]:
    return dict(log.inputs[0].ttft_set_aside)


# ------------------------------------------------------------------------- all


@pytest.mark.parametrize("name", NAMES)
def test_the_known_request_comes_out_of_every_format(name: str) -> None:
    log = read_log([str(PATHS[name])])
    assert [one.format for one in log.inputs] == [name]
    (row,) = log.requests.filter(
        (pl.col("e2e_us") // 1_000_000 == 3) & (pl.col("start") // 1_000_000)
        .is_in([START // 1_000_000 - 1, START // 1_000_000, 81_234])
    ).rows(named=True)  # fmt: skip
    expected = EXPECTED | OTHERWISE[name]
    assert {k: row[k] for k in expected} == expected
    assert row["status"] in ("ok", None)
    assert row["vantage"] == ("gateway" if name == "dynamo" else "server")


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_where_it_came_from(name: str) -> None:
    log = read_log([str(PATHS[name])])
    told = {c for c in log.requests.columns if log.requests[c].count()}
    assert set(log.fields) <= told | {"ttft_us"}
    measures = {"ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "input_tokens",
                "cached_tokens", "output_tokens", "start"}  # fmt: skip
    assert measures & told <= set(log.fields)
    assert not [w for w in log.warnings if "could not be read" in w]


def test_no_other_log_is_claimed() -> None:
    assert claims(NAMES, but="more") == {
        "real/lightllm_log/server_finished_lines.log": ["lightllm"],
        "real/vllm_engine_timestamps/rtxpro6000_llama31_8b.requests.jsonl": ["vllm-engine"],
    }


AVERAGES = {
    "vllm-log": "INFO 08-01 10:00:05 [loggers.py:123] Engine 000: Avg prompt throughput: 812.4 "
    "tokens/s, Avg generation throughput: 340.0 tokens/s, Running: 12 reqs, Waiting: 3 reqs, "
    "GPU KV cache usage: 71.3%, Prefix cache hit rate: 38.2%",
    "sglang-log": "[2026-08-01 10:00:02 TP0] Prefill batch, #new-seq: 1, #new-token: 2048, "
    "#cached-token: 4096, token usage: 0.41, #running-req: 11, #queue-req: 3",
    "lmdeploy": "[2026-08-01 10:00:05 DP0] Avg thr (in/out): 812.4 / 340.0 tokens/s, Server "
    "(succeeded/failed/routed/waiting): 10 / 0 / 12 / 0, Engine (running/waiting): 12 / 3, ",
    "ollama-log": "time=2026-08-01T10:00:00.120Z level=INFO source=server.go:1362 "
    'msg="llama runner started in 2.19 seconds"',
}
SWITCH = {
    "vllm-log": "--enable-log-requests",
    "sglang-log": "--log-requests",
    "lmdeploy": "--log-level INFO",
    "ollama-log": "/api/chat",
}


@pytest.mark.parametrize("name", sorted(AVERAGES))
def test_a_log_without_a_request_is_told_what_to_switch_on(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "a.log", f"{AVERAGES[name]}\n" * 3)
    assert name in str(caught.value.why)
    assert SWITCH[name] in str(caught.value.help)


def test_older_batch_lines_and_two_engines_are_averages_too(tmp_path: Path) -> None:
    old = AVERAGES["sglang-log"].replace("batch,", "batch.")
    plain = AVERAGES["vllm-log"].replace("Engine 000: ", "")
    for text in (old, plain):
        with pytest.raises(InputError):
            read(tmp_path / "a.log", f"{text}\n" * 3)


WRAPS: dict[str, Callable[[str], str]] = {
    "kubernetes": lambda line: f"2026-08-01T10:00:04.118220611Z stderr F {line}",
    "journal": lambda line: f"Aug 01 10:00:04 node7 server[1234]: {line}",
    "colours": lambda line: f"\x1b[0;36m{line}\x1b[0m",
    "windows": lambda line: line + "\r",
}


@pytest.mark.parametrize("wrap", sorted(WRAPS))
@pytest.mark.parametrize("name", [n for n in NAMES if PATHS[n].suffix == ".log"])
def test_what_a_container_or_terminal_adds_changes_nothing(
    name: str, wrap: str, tmp_path: Path
) -> None:
    plain = read_log([str(PATHS[name])])
    lines = PATHS[name].read_text().splitlines()
    other = read(tmp_path / "a.log", "\n".join(map(WRAPS[wrap], lines)) + "\n")
    assert other.inputs[0].rows_rejected == plain.inputs[0].rows_rejected
    # The journal names the host, which is the replica where the engine names none.
    host = "node7" if wrap == "journal" else None
    assert other.requests.equals(
        plain.requests.with_columns(pl.col("replica").fill_null(pl.lit(host, dtype=pl.String)))
    )


PIECES = [
    b"null", b"-1", b"1e400", b"NaN", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b"\xff", b"9" * 30,
    b"0.0", b"\x1b[31m", b"|", b"\t", b",", b" ", b"1e308", b"\xc2\xb5s", b"99999999999999999999",
]  # fmt: skip


def mutated(rng: random.Random, line: bytes, lines: list[bytes]) -> bytes:
    """The line with a few cuts, strange values, other numbers or the end of another line."""
    out = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        numbers = list(re.finditer(rb"\d+(\.\d+)?", bytes(out)))
        if kind == 0:
            del out[at : at + rng.randint(1, 40)]
        elif kind == 1:
            out[at:at] = rng.choice(PIECES)
        elif kind == 2 and numbers:
            one = rng.choice(numbers)
            out[one.start() : one.end()] = rng.choice([*PIECES, b"0", b"-5", b"123456789012"])
        elif kind == 3:
            del out[at:]
        else:
            other = rng.choice(lines)
            out[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(out).replace(b"\n", b" ").replace(b"\x00", b"")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutated_lines_are_read_or_rejected(name: str, seed: int) -> None:
    """The sample, with as many lines of damage again: nothing raises, and nothing is lost."""
    rng = random.Random(seed)
    lines = PATHS[name].read_bytes().splitlines()
    more = [mutated(rng, rng.choice(lines), lines) for _ in range(150)]
    with tempfile.TemporaryDirectory() as folder:
        log = read(Path(folder) / PATHS[name].name, b"\n".join(lines + more), name)
        assert log.requests.height >= 1
        with contextlib.suppress(TTFTDoctorError):  # where nothing that is left is of ours
            read(Path(folder) / PATHS[name].name, b"\n".join(more), name)


# -------------------------------------------------------------------- lightllm


def finished(first: str = "840.0", total: str = "3240.0", **other: str) -> str:
    told = {"X-Request-Id": "a", "X-Session-Id": "s", "start_time": "2026-08-01 10:00:00",
            "lightllm_req_id": "8"} | other  # fmt: skip
    head = " ".join(f"{k}:{v}" for k, v in told.items())
    return (
        f"INFO 08-01 10:00:03 [manager.py:539] {head} first_token_cost:{first}ms "
        f"total_cost_time:{total}ms,out_token_counter:160 mean_per_token_cost_time: 15.0ms "
        "prompt_token_num:12000 prompt_cache_len:9000 prompt_cache_ratio:0.75 \n"
    )


def test_lightllm_has_a_time_zone_of_the_user(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", finished(), timezone="Europe/Berlin")
    assert only(log)["start"] == START - 2 * 3600 * 1_000_000


def test_lightllm_without_a_token_has_no_first_one(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", finished("1.7976931348623157e+308"))
    assert only(log)["ttft_us"] is None
    assert aside(log) == {"ttft_missing": 1}


def test_lightllm_of_an_older_version_says_nothing_of_a_cache(tmp_path: Path) -> None:
    old = re.sub(r"prompt_cache_len:\S+ prompt_cache_ratio:\S+ ", "", finished())
    assert only(read(tmp_path / "a.log", old))["cached_tokens"] is None


def test_lightllm_ids_of_the_client_cannot_pose_as_figures(tmp_path: Path) -> None:
    forged = finished(**{"X-Session-Id": "first_token_cost:1ms"})
    row = only(read(tmp_path / "a.log", forged))
    assert (row["ttft_us"], row["session_id"]) == (840_000, "first_token_cost:1ms")


def test_the_real_lightllm_log() -> None:
    path = REAL / "lightllm_log" / "server_finished_lines.log"
    if not path.exists():
        pytest.skip("the folder of real logs is not here")
    log = read_log([str(path)])
    assert (log.inputs[0].rows_read, log.inputs[0].rows_used) == (1001, 1001)
    ttft = log.requests["ttft_us"].sort()
    # The collection's README: min 0.6144, median 1.165, max 2.066 s.
    assert [ttft[0], ttft[500], ttft[1000]] == pytest.approx([614_400, 1.165e6, 2.066e6], rel=1e-3)
    assert log.requests.row(0, named=True)["request_id"] == "8"


# ----------------------------------------------------------------- vllm-engine


def state(**other: Any) -> dict[str, Any]:
    return {
        "request_id": "req-001", "input_toks": 12_000, "output_toks": 160,
        "arrival_time": 1_785_578_400.0, "queued_ts": 100.0, "scheduled_ts": 100.12,
        "first_token_ts": 100.84, "last_token_ts": 103.24,
    } | other  # fmt: skip


def test_vllm_stamps_of_two_clocks_are_never_mixed(tmp_path: Path) -> None:
    row = only(read_objects(tmp_path / "a.jsonl", state()))
    want = {"start": START, "ttft_us": 840_000, "e2e_us": 3_240_000, "queue_us": 120_000,
            "prefill_us": 720_000, "decode_us": 2_400_000, "input_tokens": 12_000}  # fmt: skip
    assert {k: row[k] for k in want} == want


def test_vllm_first_token_latency_counts_from_the_arrival(tmp_path: Path) -> None:
    nested = {"request_id": "a", "num_prompt_tokens": 5, "metrics": state(first_token_latency=0.9)}
    row = only(read_objects(tmp_path / "a.jsonl", nested))
    assert (row["ttft_us"], row["e2e_us"]) == (900_000, 3_300_000)


def test_vllm_zero_stands_for_never(tmp_path: Path) -> None:
    gone = state(scheduled_ts=0.0, first_token_ts=0.0, last_token_ts=0.0)
    log = read_objects(tmp_path / "a.jsonl", state(), gone)
    assert rejected(log) == {"aborted_request": 1}


def test_vllm_stamps_in_an_array_a_table_and_a_document(tmp_path: Path) -> None:
    rows = [state(), state(request_id="b")]
    array = read(tmp_path / "a.json", json.dumps(rows))
    document = read(tmp_path / "b.json", json.dumps({"model": "m", "requests": rows}))
    pl.DataFrame(rows).write_csv(tmp_path / "c.csv")
    pl.DataFrame([{"metrics": rows[0]}, {"metrics": rows[1]}]).write_parquet(tmp_path / "d.parquet")
    table = read_log([str(tmp_path / "c.csv")])
    struct = read_log([str(tmp_path / "d.parquet")])
    for log in (array, document, table, struct):
        assert log.inputs[0].format == "vllm-engine"
        assert log.requests["ttft_us"].to_list() == [840_000] * 2
        assert log.requests["start"].to_list() == [START] * 2


def test_vllm_metrics_of_the_older_engine_are_all_epoch(tmp_path: Path) -> None:
    t = 1_785_578_400.0
    old = {"request_id": "req-001", "metrics": {
        "arrival_time": t, "first_scheduled_time": t + 0.12, "first_token_time": t + 0.84,
        "last_token_time": t + 3.24, "finished_time": t + 3.25, "time_in_queue": 0.12,
        "scheduler_time": None}}  # fmt: skip
    gone = {"request_id": "b", "metrics": old["metrics"] | {  # type: ignore[operator]
        "first_token_time": None, "last_token_time": None}}  # fmt: skip
    log = read_objects(tmp_path / "a.jsonl", old, gone)
    row = only(log)
    assert [row[k] for k in ("start", "ttft_us", "e2e_us", "queue_us", "prefill_us")] == [
        START, 840_000, 3_240_000, 120_000, 720_000,
    ]  # fmt: skip
    assert rejected(log) == {"aborted_request": 1}


def response(**other: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-req-001", "object": "chat.completion.chunk", "created": 1_785_578_400,
        "model": "m", "choices": [],
        "usage": {"prompt_tokens": 12_000, "completion_tokens": 160,
                  "prompt_tokens_details": {"cached_tokens": 9_000}},
        "metrics": {"time_to_first_token_ms": 720.0, "generation_time_ms": 2400.0,
                    "queue_time_ms": 120.0, "mean_itl_ms": 15.1, "tokens_per_second": 51.3,
                    "speculative_decoding": None},
    } | other  # fmt: skip


def test_vllm_sent_metrics_have_the_queue_on_top(tmp_path: Path) -> None:
    row = only(read_objects(tmp_path / "a.jsonl", response()))
    want = {"start": START, "ttft_us": 840_000, "e2e_us": 3_240_000, "queue_us": 120_000,
            "prefill_us": 720_000, "input_tokens": 12_000, "cached_tokens": 9_000,
            "output_tokens": 160, "streamed": True}  # fmt: skip
    assert {k: row[k] for k in want} == want


def test_vllm_pieces_of_a_stream_and_answers_without_figures(tmp_path: Path) -> None:
    piece = response(usage=None, metrics=None)
    samples = response(metrics=None, object="chat.completion")
    failed = response(usage=None, metrics=None, error={"message": "no"})
    whole = response(object="chat.completion")
    log = read_objects(tmp_path / "a.jsonl", response(), piece, samples, failed, whole)
    assert rejected(log) == {"failed_request": 1, "not_final": 1}
    assert aside(log) == {"ttft_missing": 1}
    assert log.requests["streamed"].to_list() == [True, None, None]


def test_vllm_dumps_with_the_token_ids_of_the_prompt(tmp_path: Path) -> None:
    stamps = {"arrival_time": START_S, "queued_ts": 8.0, "scheduled_ts": 8.1,
              "first_token_ts": 8.84, "last_token_ts": 11.24}  # fmt: skip
    dumps = [
        {"request_id": str(at), "prompt_token_ids": [*range(64), at], "metrics": stamps}
        for at in range(2)
    ]
    log = read_objects(tmp_path / "a.jsonl", *dumps)
    assert log.requests["input_tokens"].to_list() == [65, 65]
    one, two = log.requests["prefix_blocks"].to_list()
    assert one == two
    assert len(one) == 4


# ------------------------------------------------------------------ sglang-log


def finish(meta: str, obj: str = "rid='a', stream=True", line: str = "Finish") -> str:
    out = f", out={{'text': 'hi', 'meta_info': {{{meta}}}}}" if line == "Finish" else ""
    return f"[2026-08-01 10:00:03] {line}: obj=GenerateReqInput({obj}){out}\n"


BASE = (
    "'id': 'a', 'finish_reason': {'type': 'stop', 'matched': 2}, 'prompt_tokens': 12000, "
    "'completion_tokens': 160, 'cached_tokens': 9000, 'e2e_latency': 3.24"
)


def test_sglang_without_metrics_has_no_first_token_and_a_coarse_start(tmp_path: Path) -> None:
    log = read(tmp_path / "a.log", finish(BASE))
    row = only(log)
    assert row["start"] == START + 3_000_000 - 3_240_000
    assert row["ttft_us"] is None
    assert any("--enable-metrics" in note for note in log.notes)


@pytest.mark.parametrize(
    "text",
    [
        """'it\\'s \\'meta_info\\': {\\'prompt_tokens\\': 1}'""",
        """"it's 'meta_info': {'prompt_tokens': 1}, rid='z', session_id='z', stream=False\"""",
        """'say "'""",
        "'" + "x" * 1024 + "' ... '" + 'y"' * 512 + "'",
        "'" + "\\\\" * 300 + "'",
        """'a, out={ b'""",
    ],
)
def test_no_prompt_of_sglang_can_pose_as_a_figure(text: str, tmp_path: Path) -> None:
    obj = f"text={text}, rid='a', stream=True, session_id='s'"
    row = only(read(tmp_path / "a.log", finish(BASE.replace("'id': 'a', ", ""), obj)))
    assert (row["request_id"], row["session_id"]) == ("a", "s")
    assert (row["input_tokens"], row["output_tokens"], row["streamed"]) == (12_000, 160, True)


def test_sglang_first_tokens_that_are_whole_answers(tmp_path: Path) -> None:
    meta = BASE + ", 'first_token_latency': 3.24"
    log = read(tmp_path / "a.log", finish(meta, "rid='a', stream=False"))
    assert aside(log) == {"not_streamed": 1}
    stamps = ", 'request_received_ts': 1785578400.0, 'prefill_finished_time': 1785578400.84"
    log = read(tmp_path / "a.log", finish(meta + stamps, "rid='a', stream=False"))
    assert only(log)["ttft_us"] == 840_000


def test_sglang_receipts_aborts_and_health_checks(tmp_path: Path) -> None:
    aborted = "'id': 'b', 'finish_reason': {'type': 'abort', 'message': 'x'}, 'e2e_latency': 1.0"
    text = (
        finish("", line="Receive") + finish(BASE) + finish(aborted, "rid='b'")
        + finish(BASE, "rid='HEALTH_CHECK_1'") + "[2026-08-01 10:00:03] Finish: obj=Gener\n"
    )  # fmt: skip
    log = read(tmp_path / "a.log", text)
    assert rejected(log) == {
        "aborted_request": 1, "health_check": 1, "not_a_finish_line": 1, "torn_line": 1,
    }  # fmt: skip


TIMES = (
    "[2026-08-01 10:00:03] ReqTimeStats(rid={}, input_len=12000, cached_input_len=9000, "
    "output_len=160, attempts=1, type={}): queue_duration=120.00ms, forward_duration=3120.00ms, "
    "entry_time={}\n"
)


def test_sglang_time_stats_alone_and_beside(tmp_path: Path) -> None:
    alone = TIMES.format("a", "unified", "1785578400.0") + TIMES.format("a", "decode", "1.0")
    log = read(tmp_path / "a.log", alone)
    row = only(log)
    want = {"start": START, "ttft_us": None, "e2e_us": 3_240_000, "queue_us": 120_000,
            "input_tokens": 12_000, "cached_tokens": 9_000, "output_tokens": 160}  # fmt: skip
    assert {k: row[k] for k in want} == want
    assert rejected(log) == {"decode_stage": 1}
    both = finish(BASE) + TIMES.format("a", "unified", "8123.5") + finish(BASE, "rid='b'")
    log = read(tmp_path / "b.log", both)
    assert log.requests["queue_us"].to_list() == [120_000, None]
    monotonic = read(tmp_path / "c.log", TIMES.format("a", "unified", "8123.5"))
    assert only(monotonic)["start"] is None
    # The prefill stage of a split service does not know when the answer ended.
    stage = only(read(tmp_path / "d.log", TIMES.format("a", "prefill", "1785578400.0")))
    assert (stage["queue_us"], stage["e2e_us"]) == (120_000, None)


def test_sglang_requests_may_come_after_many_lines_of_batches(tmp_path: Path) -> None:
    """The first 4,000 lines, by which a log is recognised, name no request."""
    many = f"{AVERAGES['sglang-log']}\n" * 4_500
    finished = read(tmp_path / "a.log", many + finish(BASE))
    timed = read(tmp_path / "b.log", many + TIMES.format("a", "unified", "1785578400.0"))
    both = read(tmp_path / "c.log", many + finish(BASE) + TIMES.format("a", "unified", "8.5"))
    assert [only(log)["e2e_us"] for log in (finished, timed, both)] == [3_240_000] * 3
    assert [only(log)["queue_us"] for log in (finished, timed, both)] == [None, 120_000, 120_000]


def test_vllm_requests_may_come_after_many_averages(tmp_path: Path) -> None:
    many = f"{AVERAGES['vllm-log']}\n" * 4_500
    log = read(tmp_path / "a.log", many + received("08-01 10:00:00", "a"))
    assert only(log)["line"] == 4_501


def test_sglang_token_ids_give_blocks_unless_they_are_cut(tmp_path: Path) -> None:
    meta = BASE.replace("12000", "50").replace("9000", "32")
    head = [*range(100, 148)]
    ids = [str([*head, 1, 2]), str([*head, 3, 4]), "[100, 101, '...', 9]", f"{head} ... [5, 6]"]
    text = "".join(
        finish(meta, f"rid='{i}', input_ids={i_ids}, stream=True") for i, i_ids in enumerate(ids)
    )
    log = read(tmp_path / "a.log", text)
    one, two, *cut = log.requests["prefix_blocks"].to_list()
    assert one == two
    assert len(one) == 3
    assert cut == [None, None]
    assert not log.warnings


def test_a_log_with_json_events_is_for_the_other_reader(tmp_path: Path) -> None:
    event = {"event": "request.finished", "rid": "a", "obj": {"stream": True},
             "out": {"meta_info": {"id": "a", "prompt_tokens": 5, "e2e_latency": 1.0}}}  # fmt: skip
    text = f"{AVERAGES['sglang-log']}\n[2026-08-01 10:00:03] {json.dumps(event)}\n"
    assert read(tmp_path / "a.log", text).inputs[0].format == "sglang-metrics"


# ------------------------------------------------------------------------- tgi


def test_tgi_text_lines(tmp_path: Path) -> None:
    """The last value of a field counts; embeddings log alike and are not meant."""
    text = (
        "2026-08-01T10:00:03.240000Z  INFO compat_generate{a=1}:generate_stream{parameters="
        'GenerateParameters { stop: [] } total_time="9s" total_time="3.24s" '
        'validation_time="4.758µs" queue_time="120.0ms" inference_time="3.2s" '
        'time_per_token="20ms" seed="None"}: text_generation_router::server: '
        "router/src/server.rs:432: Success\n"
        "2026-08-01T10:00:04.0Z ERROR chat_completions{parameters=x}: text_generation_router"
        "::infer: router/src/infer/mod.rs:102: Model is overloaded\n"
        '2026-08-01T10:00:05.0Z  INFO embed{total_time="1s" queue_time="1ms" inference_time='
        '"1s"}: text_embeddings_router::http::server: router/src/http/server.rs:1: Success\n'
    )
    log = read(tmp_path / "a.log", text)
    row = only(log)
    want = {"start": START, "ttft_us": None, "e2e_us": 3_240_000, "queue_us": 120_000,
            "output_tokens": 160, "route": "generate_stream", "streamed": True}  # fmt: skip
    assert {k: row[k] for k in want} == want
    assert rejected(log) == {"rate_limited": 1}


@pytest.mark.parametrize(
    "spans",
    [
        "chat_completions:generate:generate_stream",
        'generate_stream{parameters=X { stop: ["chat_completions{"] }}:schedule',
        "sagemaker_compatibility:compat_generate{a=true}:generate{b=X}:generate",
        "batch{batch_size=1}:prefill{id=6 size=1}:generate",
    ],
)
def test_tgi_failures_inside_a_call(spans: str, tmp_path: Path) -> None:
    # What fails for a whole batch fails again for each of its calls.
    want = "not_a_request_line" if spans.startswith("batch") else "failed_request"
    times = ("total", "validation", "queue", "inference")
    fields = " ".join(f'{name}_time="1s"' for name in times) + ' time_per_token="1s"'
    line = "2026-08-01T10:00:04.0Z {:>5} {}: text_generation_router::infer: router/src/i.rs:1: {}\n"
    done = line.format("INFO", f"generate{{{fields}}}", "Success")
    log = read(tmp_path / "a.log", done + line.format("ERROR", spans, "Server error: x"))
    assert rejected(log) == {want: 1}
    stack = [{"name": name} for name in re.findall(r"(?:^|:)(\w+)", spans)]
    event = {"timestamp": "2026-08-01T10:00:04Z", "message": "x",
             "target": "text_generation_router::infer"}  # fmt: skip
    span = {"name": "generate"} | {f"{n}_time": "1s" for n in times} | {"time_per_token": "1s"}
    bad = event | {"level": "ERROR", "span": {"name": "send_error"}, "spans": stack}
    good = event | {"level": "INFO", "message": "Success", "span": span, "spans": [span]}
    log = read_objects(tmp_path / "b.jsonl", good, bad)
    assert only(log)["route"] == "generate"
    assert rejected(log) == {want: 1}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("15.60201ms", 200), ("3.120402117s", 1), ("0ns", None), ("15602.01µs", 200)],
)
def test_tgi_counts_tokens_by_time(text: str, tokens: int | None, tmp_path: Path) -> None:
    span = {"inference_time": "3.120402117s", "queue_time": "1µs", "validation_time": "1ns",
            "total_time": "3.13s", "time_per_token": text, "name": "generate_stream"}  # fmt: skip
    event = {"timestamp": "2026-08-01T10:00:03Z", "level": "INFO", "message": "Success",
             "target": "text_generation_router::server", "span": span}  # fmt: skip
    log = read_objects(tmp_path / "a.jsonl", event, event)
    assert log.requests["output_tokens"].to_list() == [tokens] * 2


# ------------------------------------------------------------------ ollama-log


def access(end: str, took: str, path: str = "/api/chat", code: int = 200) -> str:
    return f'[GIN] 2026/08/01 - {end} | {code} | {took:>13} |  10.0.0.5 | POST     "{path}"\n'


def task(number: int, total: int, processed: int, ms: float, made: int, decode: float) -> str:
    tag = f"slot {{:>12}}: id  0 | task {number} | "
    return (
        tag.format("update_slots") + f"new prompt, n_ctx_slot = 4096, task.n_tokens = {total}\n"
        + tag.format("print_timing") + f"prompt eval time = {ms:9.2f} ms / {processed:5} tokens\n"
        + tag.format("print_timing") + f"       eval time = {decode:9.2f} ms / {made:5} tokens\n"
        + tag.format("release") + f"stop processing: n_tokens = {total + made - 1}, truncated = 0\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("took", "micros"),
    [
        ("52.504µs", 53), ("18.8ms", 18_800), ("204ms", 204_000), ("6.203911042s", 6_203_911),
        ("1m3s", 63_000_000), ("29m59s", 1_799_000_000), ("1h2m3s", 3_723_000_000),
        ("30m0s", 1_800_000_000), ("999ns", 1),
    ],
)  # fmt: skip
def test_ollama_durations_are_those_of_go(took: str, micros: int, tmp_path: Path) -> None:
    row = only(read(tmp_path / "a.log", access("10:00:03", took)))
    assert row["e2e_us"] == micros
    assert row["start"] == START + 3_000_000 - micros


def test_ollama_task_belongs_to_the_line_after_it(tmp_path: Path) -> None:
    text = task(0, 12_000, 3_000, 700.0, 160, 2_400.0) + access("10:00:03", "3.24s")
    row = only(read(tmp_path / "a.log", text))
    want = {"ttft_us": 840_000, "prefill_us": 700_000, "decode_us": 2_400_000,
            "input_tokens": 12_000, "cached_tokens": 9_000, "output_tokens": 160}  # fmt: skip
    assert {k: row[k] for k in want} == want


def test_ollama_tasks_that_could_be_of_another_request_are_left(tmp_path: Path) -> None:
    two = task(0, 90, 90, 70.0, 6, 240.0) + task(7, 80, 80, 60.0, 5, 200.0)
    log = read(tmp_path / "a.log", two + access("10:00:03", "1s") + access("10:00:03", "2s"))
    assert log.requests["ttft_us"].to_list() == [None, None]
    assert any("2 engine tasks" in note for note in log.notes)
    long = task(0, 90, 90, 7_000.0, 6, 240.0) + access("10:00:03", "1s")
    assert only(read(tmp_path / "b.log", long))["prefill_us"] is None
    twice = task(0, 90, 90, 70.0, 6, 240.0) * 2 + access("10:00:03", "1s")
    assert only(read(tmp_path / "c.log", twice))["prefill_us"] is None


def test_ollama_cut_durations_never_undercut_the_prefill(tmp_path: Path) -> None:
    text = task(0, 12_000, 3_000, 10_900.0, 160, 50_800.0) + access("10:00:03", "1m1s")
    assert only(read(tmp_path / "a.log", text))["ttft_us"] == 10_900_000


def test_ollama_cache_slots_of_a_lone_request(tmp_path: Path) -> None:
    def slot(time: str) -> str:
        return (
            f"time=2026-08-01T{time}+02:00 level=DEBUG source=cache.go:151 "
            'msg="loading cache slot" id=0 cache=3100 prompt=3200 used=3050 remaining=150\n'
        )

    alone = slot("10:00:10.5") + access("10:00:12", "2s") + access("10:00:40", "2s")
    log = read(tmp_path / "a.log", alone)
    assert log.requests["input_tokens"].to_list() == [3200, None]
    assert log.requests["cached_tokens"].to_list() == [3050, None]
    crowded = slot("10:00:10.5") + access("10:00:12", "2s") + access("10:00:13", "4s")
    log = read(tmp_path / "b.log", crowded)
    assert log.requests["cached_tokens"].to_list() == [None, None]


@pytest.mark.parametrize(("zone", "shift"), [("Z", 0), ("+02:00", -2), ("-07:00", 7)])
def test_ollama_access_lines_are_in_the_zone_of_its_other_lines(
    zone: str, shift: int, tmp_path: Path
) -> None:
    other = f'time=2026-08-01T09:59:30.5{zone} level=INFO source=server.go:1 msg="x"\n'
    text = access("10:00:03", "3s") + other + access("10:00:03", "3s")
    starts = read(tmp_path / "a.log", text).requests["start"].to_list()
    assert starts == [START + shift * 3_600_000_000] * 2
    named = read(tmp_path / "a.log", text, timezone="Asia/Shanghai").requests["start"].to_list()
    assert named == [START - 8 * 3_600_000_000] * 2


def test_ollama_other_routes_are_no_requests(tmp_path: Path) -> None:
    text = (
        access("10:00:03", "2s") + access("10:00:03", "2s", "/api/embed")
        + access("10:00:03", "2s").replace("POST", "GET") + access("10:00:04", "1s", code=429)
        + access("10:00:05", "29.5s", code=500)
    )  # fmt: skip
    log = read(tmp_path / "a.log", text)
    assert log.requests.height == 1
    assert rejected(log) == {"failed_request": 1, "rate_limited": 1}


def test_a_gateway_of_the_same_framework_is_not_ollama(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read(tmp_path / "a.log", access("10:00:03", "2s", "/v1/chat/completions"))


# ---------------------------------------------------------------------- trtllm


def perf(number: int = 41, **times: float | None) -> dict[str, Any]:
    stamps: dict[str, float | None] = {
        "server_arrival_time": 10.0, "arrival_time": 10.02, "first_scheduled_time": 10.14,
        "first_token_time": 10.83, "server_first_token_time": 10.84, "last_token_time": 13.24,
    }  # fmt: skip
    return {"request_id": number, "perf_metrics": {"timing_metrics": stamps | times}}


def test_trtllm_first_token_of_the_server_and_of_the_engine(tmp_path: Path) -> None:
    unstreamed = perf(2, server_first_token_time=13.25)
    engine_only = perf(3, server_arrival_time=None, server_first_token_time=None)
    one_token = perf(4, last_token_time=10.83)
    log = read_objects(tmp_path / "a.jsonl", perf(1), unstreamed, engine_only, one_token)
    assert log.requests["ttft_us"].to_list() == [840_000, 830_000, 810_000, 840_000]
    assert log.requests["e2e_us"].to_list() == [3_240_000, 3_240_000, 3_220_000, 840_000]
    assert log.requests["queue_us"].to_list() == [120_000] * 4
    assert log.requests["prefill_us"].to_list() == [690_000] * 4


@pytest.mark.parametrize("never", [0.0, None, -1.0])
def test_trtllm_moments_that_were_not_reached(never: float | None, tmp_path: Path) -> None:
    gone = perf(2, first_token_time=never, last_token_time=never, server_first_token_time=never)
    log = read_objects(tmp_path / "a.jsonl", perf(1), gone)
    assert rejected(log) == {"aborted_request": 1}


def test_trtllm_stages_have_clocks_of_their_own(tmp_path: Path) -> None:
    """The second stage's clock is an hour ahead; no span crosses from one to the other."""
    second = {f"{k}": v + 3600.0 for k, v in {
        "server_arrival_time": 10.85, "arrival_time": 10.86, "first_scheduled_time": 10.87,
        "first_token_time": 10.88, "last_token_time": 13.28}.items()}  # fmt: skip
    split = {
        "ctx_server": "c:1", "gen_server": "g:2", "disagg_server_arrival_time": 500.0,
        "disagg_server_first_token_time": 500.84, "ctx_perf_metrics": perf(9),
        "gen_perf_metrics": {"request_id": 9, "perf_metrics": {"timing_metrics": second}},
    }  # fmt: skip
    row = only(read_objects(tmp_path / "a.jsonl", split))
    want = {"request_id": "9", "replica": "c:1", "start": 500_000_000, "ttft_us": 840_000,
            "e2e_us": 3_240_000, "queue_us": 120_000, "decode_us": 2_400_000}  # fmt: skip
    assert {k: row[k] for k in want} == want


def test_trtllm_array_of_the_endpoint_and_its_blocks(tmp_path: Path) -> None:
    blocks = perf()
    blocks["perf_metrics"]["kv_cache_metrics"] = {"num_reused_blocks": 3, "num_missed_blocks": 1}
    log = read(tmp_path / "a.json", json.dumps([blocks, perf(42)]))
    assert log.requests.height == 2
    assert any("3 of 4 cache blocks" in note and "75.0%" in note for note in log.notes)
    assert log.requests["cached_tokens"].null_count() == 2


# ---------------------------------------------------------------------- dynamo


def ended(**request: Any) -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1", "event_type": "request_end",
        "event_time_unix_ms": 1_785_578_403_240, "agent_context": {"session_id": "sess-7f"},
        "request": {
            "request_id": "d1", "input_tokens": 12_000, "output_tokens": 160,
            "cached_tokens": 9_000, "request_received_ms": 1_785_578_400_000, "ttft_ms": 840.0,
            "prefill_wait_time_ms": 12.4, "prefill_time_ms": 827.6, "total_time_ms": 3240.0,
            "replay": {"trace_block_size": 64, "input_length": 12_000,
                       "input_sequence_hashes": [2**64 - 1, 2**63 + 1]},
        } | request,
    }  # fmt: skip


def test_dynamo_wrapped_bare_packed_and_older_records(tmp_path: Path) -> None:
    older = ended() | {
        "schema": "dynamo.agent.trace.v1", "agent_context": {"trajectory_id": "sess-7f"},
    }  # fmt: skip
    records = [{"timestamp": 5, "event": ended()}, ended(), {"timestamp": 6, "event": older}]
    lines = [json.dumps(r).encode() + b"\n" for r in records]
    # Segments are members of one gzip file after another.
    log = read(tmp_path / "a.jsonl.gz", b"".join(gzip.compress(line) for line in lines))
    assert log.requests.height == 3
    for row in log.requests.rows(named=True):
        want = EXPECTED | {"request_id": "d1", "queue_us": 12_400, "block_tokens": 64,
                          "prefix_blocks": [2**64 - 1, 2**63 + 1]}  # fmt: skip
        assert {k: row[k] for k in want} == want
        assert row["prefill_us"] is None  # the worker's queue is inside


def test_dynamo_other_records_and_rows_without_a_session(tmp_path: Path) -> None:
    payload = {"schema": "dynamo.request.trace.v1", "event_type": "request_payload",
               "payload": {"request_id": "d1", "request": {"messages": []}}}  # fmt: skip
    bare = ended(ttft_ms=None, total_time_ms=None, input_tokens=None, cached_tokens=None)
    log = read_objects(tmp_path / "a.jsonl", ended(), payload, bare, {"event": {"a": 1}})
    assert rejected(log) == {"not_a_request_end": 1, "not_a_trace_record": 1}
    assert log.requests["input_tokens"].to_list() == [12_000, 12_000]
    assert log.requests["cached_tokens"].to_list() == [9_000, None]
    assert any("only for requests with a session" in note for note in log.notes)


def test_dynamo_hashes_that_are_none_are_dropped(tmp_path: Path) -> None:
    replay = {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [5, -1]}
    log = read_objects(tmp_path / "a.jsonl", ended(), ended(replay=replay))
    assert log.requests["prefix_blocks"].to_list()[1] is None


def test_dynamo_frontend_log(tmp_path: Path) -> None:
    done = {"time": "2026-08-01T10:00:03.240Z", "level": "INFO", "message": "request completed",
            "request_id": "d1", "model": "m", "endpoint": "chat_completions",
            "request_type": "stream", "status": "success", "elapsed_ms": 3240,
            "input_tokens": 12_000, "output_tokens": 160, "ttft_ms": "840.00"}  # fmt: skip
    nothing = done | {"status": "error", "input_tokens": 0, "output_tokens": 0, "ttft_ms": None}
    gone = done | {"status": "cancelled"}
    unary = done | {"request_type": "unary", "ttft_ms": "3239.00"}
    log = read_objects(tmp_path / "a.jsonl", done, nothing, gone, unary, {"message": "other"})
    first = log.requests.row(0, named=True)
    want = {"start": START, "ttft_us": 840_000, "e2e_us": 3_240_000, "input_tokens": 12_000,
            "route": "chat_completions", "streamed": True, "vantage": "gateway"}  # fmt: skip
    assert {k: first[k] for k in want} == want
    assert rejected(log) == {"aborted_request": 1, "failed_request": 1, "not_a_request_line": 1}
    assert aside(log) == {"not_streamed": 1}


@pytest.mark.parametrize(
    "line",
    [
        "2026-08-01T10:00:03.240000Z  INFO http-request:http: dynamo_llm::metrics: request "
        "completed request_id=d1 model=m endpoint=chat_completions request_type={} status=success "
        'elapsed_ms=3240 input_tokens=12000 output_tokens=160 ttft_ms="840.00" method=POST',
        "2026-08-01T18:00:03.240000+08:00  INFO http-request{{method=POST input_tokens=12000 "
        'output_tokens=160 ttft_ms="840.00" avg_itl_ms="15.00"}}: dynamo_llm::metrics: request '
        'completed request_id="d1" model="m" endpoint="chat_completions" request_type="{}" '
        'status="success" elapsed_ms=3240',
    ],
)
def test_dynamo_frontend_log_as_text(line: str, tmp_path: Path) -> None:
    gone = line.format("unary").replace("success", "cancelled")
    text = f"2026-08-01T09:00:00Z  INFO dynamo: started\n{line.format('stream')}\n{gone}\n"
    log = read(tmp_path / "a.log", text)
    row = only(log)
    want = {"request_id": "d1", "start": START, "ttft_us": 840_000, "e2e_us": 3_240_000,
            "input_tokens": 12_000, "output_tokens": 160, "model": "m", "streamed": True,
            "route": "chat_completions", "vantage": "gateway"}  # fmt: skip
    assert log.inputs[0].format == "dynamo"
    assert {k: row[k] for k in want} == want
    assert rejected(log) == {"aborted_request": 1}


def test_dynamo_answers_with_their_timing(tmp_path: Path) -> None:
    timing = {"request_received_ms": START_S * 1000, "prefill_wait_time_ms": 12.4,
              "prefill_time_ms": 827.6, "ttft_ms": 840.0, "total_time_ms": 3240.0}  # fmt: skip
    usage = {"prompt_tokens": 12_000, "completion_tokens": 160,
             "prompt_tokens_details": {"cached_tokens": 9_000}}  # fmt: skip
    piece = {"id": "d1", "object": "chat.completion.chunk", "model": "m"}
    timed = {"nvext": {"timing": timing}}
    whole = {"id": "d2", "object": "chat.completion", "model": "m", "usage": usage} | timed
    log = read_objects(tmp_path / "a.jsonl", piece, piece | timed, piece | {"usage": usage}, whole)
    want = {"start": START, "ttft_us": 840_000, "e2e_us": 3_240_000, "queue_us": 12_400,
            "prefill_us": None, "input_tokens": 12_000, "cached_tokens": 9_000,
            "output_tokens": 160, "vantage": "gateway"}  # fmt: skip
    assert [{k: row[k] for k in want} for row in log.requests.rows(named=True)] == [want] * 2
    assert log.requests["streamed"].to_list() == [True, None]
    assert rejected(log) == {"not_final": 2}


# -------------------------------------------------------------------- lmdeploy


def lm(time: str, message: str, level: str = "INFO") -> str:
    return f"2026-08-01 {time} - lmdeploy - {level} - async_engine.py:598 - {message}\n"


def lm_begin(time: str, session: int = 7) -> str:
    return lm(time, f"session={session}, input_tokens=12000, max_new_tokens=512, prep=True")


def lm_end(time: str, session: int = 7, reason: str = "stop") -> str:
    return lm(
        time,
        f'session {session} finished, reason "{reason}", input_tokens 12000, output_tokens 160',
    )


def test_lmdeploy_sessions_that_come_again(tmp_path: Path) -> None:
    text = (
        lm_end("09:59:00,000") + lm_begin("09:59:30,000") + lm_begin("10:00:00,000")
        + lm_end("10:00:03,240") + lm_begin("10:00:05,000")
        + lm_end("10:00:06,500", reason="length")
    )  # fmt: skip
    log = read(tmp_path / "a.log", text)
    assert log.requests["e2e_us"].to_list() == [None, 3_240_000, 1_500_000]
    assert log.requests["start"].to_list() == [None, START, START + 5_000_000]
    assert rejected(log) == {"unfinished_request": 1}


def test_lmdeploy_older_lines_and_interactive_sessions(tmp_path: Path) -> None:
    asked = "session=7, history_tokens={}, input_tokens={}, max_new_tokens=512, seq_start=True"
    ends = 'session 7 finished, reason "stop", input_tokens {}, {}_tokens 160'
    text = (
        lm("10:00:00,000", asked.format(0, 12_000))
        + lm("10:00:03,240", ends.format(12_000, "outupt"))
        + lm("10:00:05,000", asked.format(9_000, 3_000))
        + lm("10:00:06,500", ends.format(3_000, "output"))
    )
    rows = read(tmp_path / "a.log", text).requests
    assert rows["e2e_us"].to_list() == [3_240_000, 1_500_000]
    assert rows["input_tokens"].to_list() == [12_000, 12_000]
    assert rows["cached_tokens"].to_list() == [None, 9_000]
    assert rows["output_tokens"].to_list() == [160, 160]


def test_lmdeploy_errors_and_prompts_that_say_they_finished(tmp_path: Path) -> None:
    failed = lm("10:00:01,000", 'session 8 finished, ResponseType.X, reason "error"', "ERROR")
    prompt = lm(
        "10:00:00,500", "session=Session(id=7), prompt='session 7 finished, reason \"stop\"'"
    )
    text = lm_begin("10:00:00,000") + prompt + lm_begin("10:00:00,900", 8) + failed
    log = read(tmp_path / "a.log", text + lm_end("10:00:03,240"))
    assert only(log)["e2e_us"] == 3_240_000
    assert rejected(log) == {"failed_request": 1}


# -------------------------------------------------------------------- vllm-log


def vl(stamp: str, message: str) -> str:
    return f"(APIServer pid=41) INFO {stamp} [logger.py:39] {message}\n"


def received(stamp: str, name: str, prompt: str = "'hi there'", ids: str = "None") -> str:
    params = "SamplingParams(n=1, stop=['prompt_token_ids: [9]'])"
    return vl(
        stamp, f"Received request {name}: prompt: {prompt}, params: {params}, "
        f"prompt_token_ids: {ids}, lora_request: None.",
    )  # fmt: skip


def generated(stamp: str, name: str) -> str:
    return vl(
        stamp, f"Generated response {name} (streaming complete): output: 'x', finish_reason: s"
    )


def test_vllm_lines_have_no_year_and_may_cross_one(tmp_path: Path) -> None:
    text = received("12-31 23:59:58", "a") + generated("01-01 00:00:02", "a")
    text += received("01-01 00:00:03", "b") + generated("01-01 00:00:09", "b")
    log = read(tmp_path / "a.log", text)
    assert log.requests["e2e_us"].to_list() == [4_000_000, 6_000_000]
    a, b = log.requests["start"].to_list()
    assert b - a == 5_000_000
    assert 0 <= a < 366 * 86_400 * 10**6  # a clock of unknown origin
    assert any("without a year" in note for note in log.notes)


def lookup(
    name: str, total: int, computed: int | None, hit: int, load: int, end: str = "", at: str = ""
) -> str:
    engine = "" if computed is None else f" Inference Engine computed tokens: {computed},"
    stamp = at or "2026-08-01 10:00:00,250"
    return (
        f"[{stamp}] LMCache INFO: Reqid: {name}, Total tokens {total},{engine} LMCache hit tokens: "
        f"{hit}, need to load: {load}{end} (vllm_v1_adapter.py:1142:lmcache)\n"
    )


@pytest.mark.parametrize(
    ("line", "cached"),
    [
        (lookup("a", 12_000, 8_000, 9_000, 1_000), 9_000),
        (lookup("a", 12_000, 9_000, 8_000, 0), 9_000),
        # Found, but too little to be worth loading.
        (lookup("a", 12_000, 8_000, 9_000, 1_000, " < min_retrieve 4096, skip retrieve"), 8_000),
        # A full hit leaves the last token to compute.
        (lookup("a", 12_000, 8_000, 12_000, 3_999), 11_999),
        # Older lines: what the engine had follows from what is left to load.
        (lookup("a", 12_000, None, 8_000, -1_000), 9_000),
        (lookup("a", 12_000, None, 9_000, 1_000), 9_000),
        # Scheduled again, with its own answer as part of the prompt.
        (lookup("a", 12_000, 0, 9_000, 9_000) + lookup("a", 12_100, 12_096, 9_000, 0), 9_000),
    ],
)
def test_lmcache_and_the_engine_hold_the_same_prefix(
    line: str, cached: int, tmp_path: Path
) -> None:
    text = received("08-01 10:00:00", "a") + line + generated("08-01 10:00:03", "a")
    row = only(read(tmp_path / "a.log", text))
    assert (row["input_tokens"], row["cached_tokens"], row["start"]) == (12_000, cached, START)
    alone = only(read(tmp_path / "b.log", line))
    assert (alone["cached_tokens"], alone["start"]) == (cached, START + 250_000)


def test_vllm_ids_of_engines_and_samples_are_the_request(tmp_path: Path) -> None:
    text = (
        received("08-01 10:00:00", "chatcmpl-a") + vl("08-01 10:00:00", "Added request chatcmpl-a.")
        + vl("08-01 10:00:00", "Added request 0_chatcmpl-a.")
        + lookup("chatcmpl-a-0a1b2c3d", 12_000, 0, 9_000, 9_000)
        + received("08-01 10:00:01", "chatcmpl-deadbeef")
        + generated("08-01 10:00:04", "chatcmpl-deadbeef")
        + generated("08-01 10:00:03", "chatcmpl-a")
    )  # fmt: skip
    log = read(tmp_path / "a.log", text)
    assert log.requests["request_id"].to_list() == ["chatcmpl-a", "chatcmpl-deadbeef"]
    assert log.requests["cached_tokens"].to_list() == [9_000, None]
    assert log.requests["e2e_us"].to_list() == [3_000_000, 3_000_000]


def test_vllm_ends_without_an_answer(tmp_path: Path) -> None:
    text = "".join(received("08-01 10:00:00", name) for name in "abcd")
    text += vl("08-01 10:00:01", "Aborted request(s) a,b.") + vl(
        "08-01 10:00:01", "Request c failed"
    )
    log = read(tmp_path / "a.log", text + generated("08-01 10:00:05", "never-came"))
    assert rejected(log) == {"aborted_request": 2, "failed_request": 1, "no_arrival": 1}
    assert only(log)["status"] is None  # nothing tells that it ended


def test_vllm_token_ids_give_length_and_blocks(tmp_path: Path) -> None:
    shared = list(range(100, 148))
    text = received("08-01 10:00:00", "a", repr("x" * 300), str([*shared, 1, 2]))
    text += received("08-01 10:00:01", "b", repr("x" * 300), str([*shared, 3]))
    log = read(tmp_path / "a.log", text)
    assert log.requests["input_tokens"].to_list() == [50, 49]
    one, two = log.requests["prefix_blocks"].to_list()
    assert one == two
    assert len(one) == 3
    assert log.requests["block_tokens"].to_list() == [16, 16]


def test_vllm_ids_that_were_cut_are_no_length(tmp_path: Path) -> None:
    """``--max-log-len 40`` leaves 40 letters and 40 ids."""
    cut = received("08-01 10:00:00", "a", repr("it's\n" * 8), str(list(range(40))))
    log = read(tmp_path / "a.log", cut + received("08-01 10:00:01", "b", "'short'", "[1, 2]"))
    assert log.requests["input_tokens"].to_list() == [None, 2]
    assert any("--max-log-len" in note for note in log.notes)


def test_vllm_text_gives_blocks_where_there_are_no_ids(tmp_path: Path) -> None:
    head = "Be brief. " * 40
    text = received("08-01 10:00:00", "a", repr(head + "What?"))
    text += received("08-01 10:00:01", "b", repr(head + 'It\'s "why", I said'))
    log = read(tmp_path / "a.log", text)
    one, two = log.requests["prefix_blocks"].to_list()
    assert len(one) >= 6
    assert one[:6] == two[:6]
    shown = read(tmp_path / "a.log", text, text=True)
    assert shown.prompts is not None
    assert shown.prompts["parts"][0][0]["text"].startswith("Be brief.")


def test_vllm_json_lines_and_newer_detail_lines(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "session_id": "sess-7f", "messages": []})
    rows = [
        "Received request a: params: SamplingParams(n=1), lora_request: None.",
        "Request a details: prompt: 'hi', prompt_token_ids: [5, 6, 7], prompt_embeds shape: None.",
        f"Request a JSON body: {body}",
        "Generated response a: output: 'x', output_token_ids: [1], finish_reason: stop",
    ]
    objects = [
        {"asctime": f"08-01 10:00:0{at}", "levelname": "INFO", "message": row, "process": 7}
        for at, row in enumerate(rows)
    ]
    log = read_objects(tmp_path / "a.jsonl", *objects)
    row = only(log)
    assert log.inputs[0].format == "vllm-log"
    assert (row["session_id"], row["input_tokens"]) == ("sess-7f", 3)
    assert (row["e2e_us"], row["streamed"]) == (3_000_000, False)


@pytest.mark.parametrize("name", ["chatcmpl-{}", "cmpl-{}", "cmpl-{}-0", "{}", None])
def test_vllm_bodies_are_logged_under_the_bare_id(name: str | None, tmp_path: Path) -> None:
    body = {"model": "m", "stream": True, "vllm_xargs": {"session_id": "sess-7f"}}
    asked = (name or "chatcmpl-{}-other").format("a1")
    text = vl("08-01 10:00:00", f"Request a1 JSON body: {json.dumps(body)}")
    text += vl("08-01 10:00:00", f"Received request {asked}: params: X(), lora_request: None.")
    row = only(read(tmp_path / "a.log", text + vl("08-01 10:00:01", f"Added request {asked}.")))
    known = (asked, "m", "sess-7f", True) if name else (asked, None, None, None)
    assert tuple(row[c] for c in ("request_id", "model", "session_id", "streamed")) == known


@pytest.mark.parametrize(
    "middle", ["params: X(), prompt_token_ids", "sampling params: X(), prompt token ids",
               "prefix_pos: None,sampling_params: X(), prompt_token_ids"],
)  # fmt: skip
@pytest.mark.parametrize("stamp", ["INFO 08-01 10:00:0{} e.py:9] ", "2026-08-01 10:00:0{}.000 7 "])
def test_vllm_lines_of_older_versions(middle: str, stamp: str, tmp_path: Path) -> None:
    text = (
        f"{stamp.format(0)}Received request cmpl-a: prompt: 'it', {middle}: [5, 6, 7], lora: X.\n"
        f"{stamp.format(2)}Finished request cmpl-a.\n"
    )
    row = only(read(tmp_path / "a.log", text))
    assert (row["request_id"], row["input_tokens"], row["e2e_us"]) == ("cmpl-a", 3, 2_000_000)
    assert (row["start"] == START) == stamp.startswith("2026")


def test_an_id_that_comes_again_is_another_request(tmp_path: Path) -> None:
    text = received("08-01 10:00:00", "a") + generated("08-01 10:00:02", "a")
    log = read(tmp_path / "a.log", text + text.replace("10:00", "11:00"))
    assert log.requests["e2e_us"].to_list() == [2_000_000, 2_000_000]


# --------------------------------------------------------- sglang bench_serving


def test_a_run_of_sglang_bench_serving(tmp_path: Path) -> None:
    """``request_rate`` may be a bare Infinity; figures come with ``--output-details``."""
    run = (
        '{"tag": null, "backend": "sglang", "dataset_name": "random", "request_rate": Infinity, '
        '"duration": 6.1, "completed": 2, "mean_ttft_ms": 1.0, "server_info": {"secret": 1}, '
        '"total_output_tokens_retokenized": 9, "input_lens": [12000, 900, 50], '
        '"output_lens": [160, 0, 4], "ttfts": [0.84, 0.0, 0.1], '
        '"itls": [[1.2, 1.2], [], [0.1, 0.1, 0.1]], "generated_texts": ["", "", ""], '
        '"errors": ["", "Bad Gateway", ""], "cached_tokens": [9000, 0, 0]}\n'
    )
    log = read(tmp_path / "a.jsonl", run * 2)
    assert log.inputs[0].format == "vllm-bench"
    assert rejected(log) == {"failed_request": 2}
    assert log.requests["ttft_us"].to_list() == [840_000, 100_000] * 2
    assert log.requests["cached_tokens"].to_list() == [9_000, 0] * 2
    assert log.requests["e2e_us"].to_list()[0] == 3_240_000
