"""Real logs: every file that is claimed is read to the last row, and the rest is refused clearly.

The numbers of rows are those of the collection's own README; where that counts something else, a
comment says what.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.errors import InputError
from ttftdoctor.intake import read_log
from ttftdoctor.run import diagnose

SHARED = Path(__file__).parents[2] / "shared"
REAL = SHARED / "real"
ENGINE = SHARED / "real_engine"

#: File: format, rows, rows with a TTFT that may be used.
ROWS = {
    "agentic_traces_weka/trace_0455.json": ("weka", 51, 43),
    "agentic_traces_weka/trace_0532.json": ("weka", 114, 77),
    # 127 entries, of which 5 are nests that hold 40 requests of sub-agents.
    "agentic_traces_weka/trace_0254_subagents.json": ("weka", 127 - 5 + 40, 0),
    "burstgpt_replay/detail_log_scale1000_prompt500.json": ("burstgpt-replay", 500, 500),
    "genai_bench/n2000_200_conc32.json": ("genai-bench", 64, 64),
    # 23 of 128 failed; the others hold a placeholder, which is for the diagnosis to say.
    "genai_bench/trtllm_gptoss120b_conc4.json": ("genai-bench", 128, 105),
    "inference_perf/per_request_lifecycle_metrics.fixture.json": ("inference-perf", 6, 5),
    "kv_cache_tester/cache_rate_ctx32000_hit95.detailed.csv": ("kv-cache-tester", 1645, 1645),
    "kv_cache_tester/single_prompt_cold_vs_cached.csv": ("kv-cache-tester", 48, 48),
    "kv_cache_tester/tp8_conc16_offload_on.trace_replay.detailed.csv": ("kv-cache-tester", 47, 43),
    "kv_cache_tester/tp8_conc256_offload_off.trace_replay.detailed.csv": (
        "kv-cache-tester",
        429,
        105,
    ),
    "llm_load_test/output_2023_tgis.json": ("llm-load-test", 107, 107),
    "llmperf/lepton_7b_errors.json": ("llmperf", 150, 20),
    "llmperf/replicate_70b.json": ("llmperf", 145, 145),
    "llmperf/yi34b_tgi_conc64_errors.individual_responses.json": ("llmperf", 128, 42),
    "llmperf/yi34b_vllm_conc64.individual_responses.json": ("llmperf", 128, 128),
    "multi_round_qa/llmd70b_2rep_short_qps5.csv": ("multi-round-qa", 526, 526),
    "multi_round_qa/vllm70b_2rep_sharegpt_qps8.csv": ("multi-round-qa", 252, 252),
    "multi_round_qa/vllm70b_2rep_short_qps5.csv": ("multi-round-qa", 526, 526),
    "ollama/generate_response.jsonl": ("ollama", 1, 1),
    "sglang_request_log/request_finished.jsonl": ("sglang-metrics", 12, 12),
    "trace_aiperf_sessions/inference_day_2026.excerpt.jsonl": ("mooncake", 32, 0),
    "trace_azure/AzureLLMInferenceTrace_code.csv": ("length-traces", 8819, 0),
    "trace_mooncake/conversation_trace.jsonl": ("mooncake", 12_031, 0),
    # 305 requests, of which 5 warm the server up.
    "vllm_bench_serve/dsr1_lmcache_cpu.append.jsonl": ("vllm-bench", 305, 300),
    "vllm_bench_serve/dsr1_no_kvcache.append.jsonl": ("vllm-bench", 305, 300),
    "vllm_engine_timestamps/rtxpro6000_llama31_8b.requests.jsonl": ("vllm-engine", 300, 300),
    "lightllm_log/server_finished_lines.log": ("lightllm", 1001, 1001),
    "vllm_multiturn/tp1_conc256_offload_off.client.csv": ("vllm-multiturn", 5255, 5255),
    # One TTFT is clamped to 0.1 ms, because the first chunk held several tokens.
    "vllm_multiturn/tp4_conc32_offload_off.client.csv": ("vllm-multiturn", 723, 722),
    "aiperf/agentic_kimi_conc1.profile_export.jsonl": ("aiperf", 196, 195),
    "aiperf/qwen_conc2.profile_export.jsonl": ("aiperf", 10, 10),
    "guidellm/v0.1_std_8b.guidellm_report.json": ("guidellm", 66, 66),
    "guidellm/v0.3_constant_rate.benchmarks.json": ("guidellm", 609, 586),
    "guidellm/v0.5_qwen3_4b_tp2.benchmarks.json": ("guidellm", 30, 26),
}

#: Medians of TTFT in seconds, by the same README; all rows with a TTFT.
MEDIANS = {
    "agentic_traces_weka/trace_0455.json": 1.54,
    "agentic_traces_weka/trace_0532.json": 1.66,
    "burstgpt_replay/detail_log_scale1000_prompt500.json": 1.847,
    "genai_bench/n2000_200_conc32.json": 0.9272,
    "kv_cache_tester/cache_rate_ctx32000_hit95.detailed.csv": 3.296,
    "kv_cache_tester/tp8_conc16_offload_on.trace_replay.detailed.csv": 0.6102,
    "kv_cache_tester/tp8_conc256_offload_off.trace_replay.detailed.csv": 264.6,
    "llm_load_test/output_2023_tgis.json": 0.2777,
    "llmperf/lepton_7b_errors.json": 1.135,
    "llmperf/replicate_70b.json": 1.188,
    "llmperf/yi34b_tgi_conc64_errors.individual_responses.json": 9.517,
    "llmperf/yi34b_vllm_conc64.individual_responses.json": 17.22,
    "multi_round_qa/llmd70b_2rep_short_qps5.csv": 0.104,
    "multi_round_qa/vllm70b_2rep_sharegpt_qps8.csv": 14.52,
    "sglang_request_log/request_finished.jsonl": 0.03477,
    "vllm_engine_timestamps/rtxpro6000_llama31_8b.requests.jsonl": 9.498,
    "vllm_multiturn/tp1_conc256_offload_off.client.csv": 3.069,
}

#: Files without a single request of their own.
SUMMARIES = (
    "inference_perf/stage_0_lifecycle_metrics.json",
    "sglang_bench_serving/lmdeploy_summary_only.jsonl",
    "vllm_bench_serve/pd_summary_only.jsonl",
    "mlperf_loadgen/mlperf_log_detail.txt",
    "vllm_engine_timestamps/rtxpro6000_llama31_8b.meta.json",
    "vllm_engine_timestamps/rtxpro6000_llama31_8b.timeseries.csv",
    "vllm_multiturn/tp1_conc256_offload_off.server.csv",
)


def need(path: Path) -> Path:
    if not path.exists():
        pytest.skip("the folder of real logs is not here")
    return path


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_read(name: str) -> None:
    format_, count, with_ttft = ROWS[name]
    log = read_log([str(need(REAL / name))])
    (one,) = log.inputs
    assert (one.format, one.rows_read) == (format_, count)
    assert one.rows_read == one.rows_used + sum(one.rows_rejected.values())
    assert log.requests["ttft_us"].count() == with_ttft


@pytest.mark.parametrize("name", MEDIANS)
def test_first_token_times_are_in_the_right_unit(name: str) -> None:
    known = read_log([str(need(REAL / name))]).requests["ttft_us"].drop_nulls().sort()
    # The README rounds, and takes the upper of two middle values.
    assert known[len(known) // 2] / 1e6 == pytest.approx(MEDIANS[name], rel=0.002)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_file_of_averages_is_refused_clearly(name: str) -> None:
    path = need(REAL / name)
    with pytest.raises(InputError) as caught:
        read_log([str(path)])
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "why:" in text
    assert caught.value.why


def test_no_file_of_the_collection_is_left_out() -> None:
    """Each file is read, or on a list of those that are refused."""
    need(REAL)
    seen = {
        path.relative_to(REAL).as_posix()
        for path in REAL.rglob("*")
        if path.is_file() and path.suffix != ".md" and path.parent.name != "more"
    }
    assert seen == {*ROWS, *SUMMARIES}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[1] < 2000])
def test_real_logs_get_a_diagnosis(name: str) -> None:
    """No warning of a library, no crash, and an account for every second."""
    d = diagnose(str(need(REAL / name)))
    for row in d.ledger:
        assert sum(row.accounts.values()) == pytest.approx(row.ttft_mean_s, abs=1e-6)
    if ROWS[name][2] == 0:
        assert d.verdict.primary_cause == "insufficient_data"
    json.dumps(d.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        # 0.001 s in every row: a placeholder.
        ("genai_bench/trtllm_gptoss120b_conc4.json", {"measurement_artifact"}),
        # Median queue time 9.3 s of a median TTFT of 9.5 s, as the engine says.
        ("vllm_engine_timestamps/rtxpro6000_llama31_8b.requests.jsonl", {"queueing_saturation"}),
    ],
)
def test_what_the_collection_knows_of_a_log_is_found(name: str, cause: set[str]) -> None:
    assert diagnose(str(need(REAL / name))).verdict.primary_cause in cause


@pytest.mark.parametrize("name", ["trace_0455.json", "trace_0532.json"])
def test_a_working_provider_cache_is_not_blamed(name: str) -> None:
    """Nearly all tokens repeat and the cache works: whoever blames repeated prefill is wrong."""
    d = diagnose(str(need(REAL / "agentic_traces_weka" / name)))
    assert d.verdict.primary_cause not in ("repeated_prefix_no_reuse", "cache_busting_prefix")


# --- a real engine with the truth beside it -----------------------------------------------------


@cache
def engine(name: str, file: str) -> Diagnosis:
    return diagnose(str(need(ENGINE / name / file)))


def ground(name: str) -> dict[str, Any]:
    return json.loads(need(ENGINE / name / "ground_truth.json").read_text())


def starting(data: dict[str, Any], start: str) -> Any:
    return next(value for key, value in data.items() if key.startswith(start))


FILES = pytest.mark.parametrize("file", ["requests.jsonl", "server.log"])


@FILES
@pytest.mark.parametrize(
    ("name", "cause"), [("F_long_input", "organic_long_input"), ("D_evicted", "cache_eviction")]
)
def test_the_cause_that_was_staged(name: str, cause: str, file: str) -> None:
    verdict = engine(name, file).verdict
    assert verdict.primary_cause == cause
    assert verdict.confidence >= 0.6


@FILES
@pytest.mark.parametrize("name", ["F_long_input", "D_evicted", "G_decode"])
def test_prefill_costs_what_the_idle_engine_needed(name: str, file: str) -> None:
    """Per token and attention within ten per cent; the client also pays for each prompt token."""
    truth = ground(name)
    _, per_1k, attention = starting(truth["isolated_prefill"], "engine_prompt_ms")
    if file == "requests.jsonl":
        per_1k += starting(truth, "idle_overhead_ms")[1]
    line = engine(name, file).cost_lines.prefill
    assert line is not None
    assert line.ms_per_1k_tokens == pytest.approx(per_1k, rel=0.1)
    assert line.ms_per_1k_tokens_per_1k_context == pytest.approx(attention, rel=0.1)
    assert line.fixed_ms < 40


@FILES
@pytest.mark.parametrize("name", ["F_long_input", "D_evicted"])
def test_decode_costs_what_was_measured(name: str, file: str) -> None:
    line = engine(name, file).cost_lines.decode
    assert line is not None
    assert line.ms_per_token == pytest.approx(
        ground(name)["decode"]["ms_per_token"]["p50"], rel=0.1
    )


def test_the_evicted_sessions_were_repeating() -> None:
    """Tokens repeated and tokens served from the cache, as the harness counted them."""
    truth = ground("D_evicted")["tokens"]
    found = engine("D_evicted", "requests.jsonl").repeated_prefix
    assert found.grade == "reported"
    assert found.input_tokens == truth["prompt_tokens"]
    assert found.cached_tokens == truth["engine_cached_tokens"]
    assert found.repeated_tokens == pytest.approx(truth["true_repeat_tokens"], rel=0.05)
