"""Gateways and observability: exact values, every trap, one request in all formats."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reading import REQUEST, SAMPLES, START_S, account, read, rows, table, write

from ttftdoctor.errors import InputError

pytestmark = pytest.mark.usefixtures("every_row")

# --- samples ------------------------------------------------------------------------------------

#: Sample: rows, why some are rejected, why first tokens are set aside.
ACCOUNTS: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "apisix.jsonl": (
        17, {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1},
        {"not_streamed": 1, "ttft_missing": 1},
    ),
    "azure-openai.jsonl": (
        17,
        {"another_category": 1, "failed_request": 1, "not_a_chat_call": 1, "rate_limited": 1},
        {"not_streamed": 1, "ttft_missing": 12},
    ),
    "bedrock.jsonl": (
        17, {"failed_request": 1, "rate_limited": 1}, {"not_streamed": 1, "ttft_missing": 2}
    ),
    "braintrust.jsonl": (
        17, {"failed_request": 1, "not_a_model_call": 2, "repeated_row": 1}, {"ttft_missing": 1}
    ),
    "cloudflare.json": (
        17,
        {"failed_request": 1, "not_a_chat_call": 1, "rate_limited": 1, "response_cache_hit": 1},
        {"ttft_missing": 13},
    ),
    "datadog.json": (
        16, {"failed_request": 1, "not_a_model_call": 1}, {"not_streamed": 1, "ttft_missing": 1}
    ),
    "envoy.jsonl": (
        17,
        {"aborted_request": 1, "failed_request": 1, "not_a_model_call": 1, "rate_limited": 1},
        {"ttft_missing": 1},
    ),
    "helicone.jsonl": (
        17, {"failed_request": 1, "rate_limited": 1, "response_cache_hit": 1}, {"ttft_missing": 1}
    ),
    "higress.jsonl": (
        16, {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1}, {"not_streamed": 1}
    ),
    "jaeger.json": (
        19, {"not_a_model_call": 3, "rate_limited": 1, "wraps_another_call": 1},
        {"ttft_missing": 1},
    ),
    "kong.jsonl": (
        18,
        {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1, "response_cache_hit": 1},
        {"not_streamed": 1, "ttft_missing": 1},
    ),
    "langfuse.jsonl": (
        19,
        {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1, "repeated_row": 1,
         "wraps_another_call": 1},
        {"not_streamed": 1, "ttft_missing": 1},
    ),
    "langsmith.jsonl": (
        18, {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1, "repeated_row": 1},
        {"ttft_missing": 1},
    ),
    "mlflow.jsonl": (
        19, {"failed_request": 1, "no_span": 1, "not_a_model_call": 2, "wraps_another_call": 2},
        {"ttft_missing": 1},
    ),
    "openrouter.csv": (15, {"aborted_request": 1}, {"not_streamed": 1, "ttft_missing": 1}),
    "opik.json": (
        18,
        {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1, "wraps_another_call": 1},
        {"ttft_missing": 1},
    ),
    "phoenix.json": (
        17, {"not_a_model_call": 1, "rate_limited": 1, "wraps_another_call": 1},
        {"ttft_missing": 1},
    ),
    "portkey.jsonl": (
        16, {"failed_request": 1, "rate_limited": 1, "response_cache_hit": 1},
        {"not_streamed": 1, "ttft_missing": 12},
    ),
    "weave.jsonl": (
        17,
        {"failed_request": 1, "not_a_model_call": 1, "rate_limited": 1, "wraps_another_call": 1},
        {"not_streamed": 1, "ttft_missing": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ACCOUNTS))
def test_every_row_of_a_sample_is_used_or_named(name: str) -> None:
    assert account(name) == ACCOUNTS[name]


# --- one request in every format ----------------------------------------------------------------

START, FIRST, END = (f"2026-08-01T10:00:0{s}Z" for s in ("0.000", "0.840", "3.240"))
TRACE, SPAN = "7d3f0a1c5e9b42684c2a91e0b8d6f735", "a41c9be20d57f638"
MODEL = "claude-sonnet-4-5"
ALL = tuple(REQUEST)
NO_SESSION = tuple(c for c in REQUEST if c != "session_id")
NO_WRITE = tuple(c for c in REQUEST if c != "cache_write_tokens")
NO_ID = tuple(c for c in REQUEST if c != "request_id")
NO_TTFT = tuple(c for c in REQUEST if c != "ttft_us")

LANGFUSE: dict[str, Any] = {
    "id": "req-001", "traceId": TRACE, "parentObservationId": "a1", "type": "GENERATION",
    "startTime": START, "completionStartTime": FIRST, "endTime": END, "model": MODEL,
    "latency": 3.24, "timeToFirstToken": 0.84,
    "usageDetails": {"input": 2000, "input_cached_tokens": 9000, "input_cache_creation": 1000,
                     "output": 160, "total": 12160},
    "inputUsage": 12000, "outputUsage": 160, "totalUsage": 12160, "level": "DEFAULT",
}  # fmt: skip
BLOB = {
    "id": "req-001", "trace_id": TRACE, "type": "GENERATION",
    "start_time": "2026-08-01 10:00:00.000", "completion_start_time": "2026-08-01 10:00:00.840",
    "end_time": "2026-08-01 10:00:03.240", "provided_model_name": MODEL,
    "usage_details": json.dumps({"input": 2000, "cache_read_input_tokens": 9000,
                                 "cache_creation_input_tokens": 1000, "output": 160}),
}  # fmt: skip
LANGSMITH: dict[str, Any] = {
    "id": "req-001", "trace_id": "t", "parent_run_id": "t", "run_type": "llm",
    "start_time": "2026-08-01T10:00:00.000000", "first_token_time": "2026-08-01T10:00:00.840000",
    "end_time": "2026-08-01T10:00:03.240000", "prompt_tokens": 12000,
    "prompt_token_details": {"cache_read": 9000, "cache_creation": 1000},
    "completion_tokens": 160, "total_tokens": 12160, "status": "success",
    "session_id": "project", "dotted_order": "20260801T100000000000Zt.20260801T100000000000Zr",
    "extra": {"metadata": {"thread_id": "sess-7f", "ls_model_name": MODEL}},
}  # fmt: skip
HELICONE: dict[str, Any] = {
    "request_id": "req-001", "response_id": "resp-1", "request_created_at": START,
    "response_created_at": END, "response_status": 200, "request_model": MODEL,
    "provider": "ANTHROPIC", "delay_ms": 3240, "time_to_first_token": 840, "prompt_tokens": 2000,
    "prompt_cache_read_tokens": 9000, "prompt_cache_write_tokens": 1000, "completion_tokens": 160,
    "cache_enabled": False, "cache_reference_id": "00000000-0000-0000-0000-000000000000",
    "request_properties": {"Helicone-Session-Id": "sess-7f", "Helicone-Session-Path": "/chat"},
}  # fmt: skip
OPENROUTER = {
    "generation_id": "gen-1785578400-abc123", "created_at": "2026-08-01 10:00:00.000",
    "model_permaslug": f"anthropic/{MODEL}", "provider_name": "Anthropic", "tokens_prompt": 12000,
    "tokens_completion": 160, "tokens_reasoning": 0, "tokens_cached": 9000, "cost_total": 0.01485,
    "generation_time_ms": 3240, "streamed": "true", "cancelled": "false",
    "time_to_first_token_ms": 840,
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "id": "gen-1785578400-abc123", "session_id": "sess-7f", "created_at": START, "model": MODEL,
    "provider_name": "Anthropic", "streamed": True, "cancelled": False, "latency": 840,
    "generation_time": 3240, "tokens_prompt": 11000, "tokens_completion": 150,
    "native_tokens_prompt": 12000, "native_tokens_completion": 160, "native_tokens_cached": 9000,
    "response_cache_source_id": None, "finish_reason": "stop",
}  # fmt: skip
TAGS = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": MODEL, "gen_ai.request.stream": True,
    "gen_ai.response.id": "req-001", "gen_ai.conversation.id": "sess-7f",
    "gen_ai.response.time_to_first_chunk": 0.84, "gen_ai.usage.input_tokens": 12000,
    "gen_ai.usage.cache_read.input_tokens": 9000,
    "gen_ai.usage.cache_creation.input_tokens": "1000", "gen_ai.usage.output_tokens": 160,
}  # fmt: skip


def jaeger(tags: dict[str, Any], *logs: dict[str, Any], **more: Any) -> dict[str, Any]:
    span = {
        "traceID": TRACE, "spanID": SPAN, "operationName": "chat", "references": [],
        "startTime": START_S * 10**6, "duration": 3_240_000, "processID": "p1",
        "tags": [{"key": k, "type": "string", "value": v} for k, v in tags.items()],
        "logs": list(logs),
    }  # fmt: skip
    return {"data": [{"traceID": TRACE, "spans": [span | more], "processes": {"p1": {}}}]}


MLFLOW_SPAN: dict[str, Any] = {
    "trace_id": "fT8K", "span_id": "req-001", "parent_span_id": None,
    "start_time_unix_nano": START_S * 10**9, "end_time_unix_nano": START_S * 10**9 + 3_240_000_000,
    "events": [{"name": "mlflow.chunk.item.0", "attributes": {},
                "time_unix_nano": START_S * 10**9 + 840_000_000}],
    "status": {"code": "STATUS_CODE_OK", "message": ""},
    "attributes": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.chat.tokenUsage": json.dumps({
            "input_tokens": 12000, "output_tokens": 160, "cache_read_input_tokens": 9000,
            "cache_creation_input_tokens": 1000}),
    },
}  # fmt: skip
MLFLOW = {
    "info": {"trace_id": "tr-1", "trace_metadata": {"mlflow.trace.session": "sess-7f"}},
    "data": {"spans": [MLFLOW_SPAN]},
}
PHOENIX: dict[str, Any] = {
    "id": "U3Bhbjo0Mg==", "name": "ChatCompletion",
    "context": {"trace_id": TRACE, "span_id": "req-001"}, "span_kind": "LLM", "parent_id": None,
    "start_time": "2026-08-01T10:00:00+00:00", "end_time": "2026-08-01T10:00:03.240000+00:00",
    "status_code": "OK",
    "attributes": {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-5",
        "llm.token_count.prompt": 12000, "llm.token_count.prompt_details.cache_read": 9000,
        "llm.token_count.prompt_details.cache_write": 1000, "llm.token_count.completion": 160,
        "session.id": "sess-7f",
    },
    "events": [{"name": "First Token Stream Event", "attributes": {},
                "timestamp": "2026-08-01T10:00:00.840000+00:00"}],
}  # fmt: skip
FRAME = {
    "name": "ChatCompletion", "span_kind": "LLM", "parent_id": "", "status_code": "OK",
    "start_time": "2026-08-01 10:00:00+00:00", "end_time": "2026-08-01 10:00:03.240000+00:00",
    "events": "[{'name': 'First Token Stream Event', 'timestamp': "
              "'2026-08-01T10:00:00.840000+00:00', 'attributes': {}}]",
    "context.span_id": "req-001", "context.trace_id": TRACE,
    "attributes.llm.token_count.prompt": "12000.0",
    "attributes.llm.token_count.prompt_details.cache_read": "9000.0",
    "attributes.llm.token_count.prompt_details.cache_write": "1000.0",
    "attributes.llm.token_count.completion": "160.0", "attributes.session.id": "sess-7f",
}  # fmt: skip
DATADOG: dict[str, Any] = {
    "span_id": "req-001", "trace_id": TRACE, "parent_id": "undefined", "span_kind": "llm",
    "ml_app": "shop-bot", "model_name": MODEL, "status": "ok", "start_ns": START_S * 10**9,
    "duration": 3240000000.0,
    "metrics": {"input_tokens": 12000, "cache_read_input_tokens": 9000,
                "cache_write_input_tokens": 1000, "output_tokens": 160,
                "time_to_first_token": 0.84},
    "tags": ["session_id:sess-7f"],
}  # fmt: skip
BEDROCK: dict[str, Any] = {
    "schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": "2026-08-01T10:00:00Z",
    "region": "us-east-1", "requestId": "req-001", "operation": "InvokeModelWithResponseStream",
    "modelId": "anthropic.claude", "requestMetadata": {"session_id": "sess-7f"},
    "input": {"inputTokenCount": 2000, "cacheReadInputTokenCount": 9000,
              "cacheWriteInputTokenCount": 1000, "inputBodyJson": {}},
    "output": {"outputTokenCount": 160, "outputBodyJson": [
        {"type": "message_start"},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {
            "inputTokenCount": 2000, "outputTokenCount": 160, "invocationLatency": 3240,
            "firstByteLatency": 840}}]},
}  # fmt: skip
PORTKEY: dict[str, Any] = {
    "id": "req-001", "trace_id": "sess-7f", "created_at": START, "ai_org": "anthropic",
    "ai_model": MODEL, "req_units": 12000, "res_units": 160, "cost": 1.485, "response_time": 3240,
    "response_status_code": 200,
    "response": {"usage": {
        "prompt_tokens": 12000, "completion_tokens": 160,
        "prompt_tokens_details": {"cached_tokens": 9000, "cache_write_tokens": 1000}}},
}  # fmt: skip
CLOUDFLARE: dict[str, Any] = {
    "id": "req-001", "created_at": END, "provider": "anthropic", "model": MODEL, "cached": False,
    "duration": 3240, "tokens_in": 12000, "tokens_out": 160, "success": True, "status_code": 200,
    "step": 0, "metadata": '{"session":"sess-7f"}',
}  # fmt: skip
WEAVE: dict[str, Any] = {
    "id": "req-001", "op_name": "openai.chat.completions.create", "trace_id": "t-1",
    "parent_id": None, "thread_id": "sess-7f", "started_at": START, "ended_at": END,
    "output": {"time_to_first_token": 0.84},
    "summary": {"usage": {"gpt-5": {
        "prompt_tokens": 12000, "completion_tokens": 160, "requests": 1,
        "prompt_tokens_details": {"cached_tokens": 9000, "cache_write_tokens": 1000}}}},
}  # fmt: skip
OPIK: dict[str, Any] = {
    "id": "req-001", "trace_id": TRACE, "parent_span_id": None, "type": "llm", "model": MODEL,
    "start_time": START, "end_time": END, "ttft": 840.0, "thread_id": "sess-7f",
    "usage": {"prompt_tokens": 12000, "completion_tokens": 160, "total_tokens": 12160,
              "original_usage.input_tokens": 2000,
              "original_usage.cache_read_input_tokens": 9000,
              "original_usage.cache_creation_input_tokens": 1000},
}  # fmt: skip
BRAINTRUST: dict[str, Any] = {
    "id": "row", "span_id": "req-001", "root_span_id": "root", "span_parents": ["root"],
    "span_attributes": {"type": "llm"}, "metadata": {"session_id": "sess-7f", "model": "gpt-5"},
    "metrics": {"start": START_S, "end": START_S + 3.24, "time_to_first_token": 0.84,
                "prompt_tokens": 12000, "completion_tokens": 160, "prompt_cached_tokens": 9000,
                "prompt_cache_creation_tokens": 1000},
}  # fmt: skip
AZURE: dict[str, Any] = {
    "TimeGenerated": "2026-08-01T10:00:04Z", "Category": "RequestResponse",
    "OperationName": "ChatCompletions_Create", "ResultSignature": "200", "DurationMs": 3240,
    "CorrelationId": "req-001",
    "properties_s": '{"requestTime":639211752000000000,"responseTime":639211752032400000,'
                    '"streamType":"Streaming","modelDeploymentName":"gpt5","modelName":"gpt-5"}',
}  # fmt: skip
KONG: dict[str, Any] = {
    "started_at": START_S * 1000,
    "latencies": {"request": 3240, "proxy": 610, "kong": 14, "receive": 2616},
    "request": {"id": "req-001"}, "response": {"status": 200},
    "tries": [{"balancer_latency": 0, "ip": "10.0.0.7"}],
    "ai": {"proxy": {
        "meta": {"provider_name": "openai", "response_model": "gpt-5", "llm_latency": 3240,
                 "request_mode": "stream"},
        "usage": {"prompt_tokens": 12000, "prompt_tokens_details": {"cached_tokens": 9000},
                  "completion_tokens": 160, "total_tokens": 12160, "time_to_first_token": 840}}},
}  # fmt: skip
HIGRESS: dict[str, Any] = {
    "start_time": START, "duration": 3240, "response_code": 200, "request_id": "req-001",
    "ai_log": json.dumps({
        "model": "qwen-plus", "input_token": 12000, "output_token": 160, "cached_tokens": 9000,
        "llm_first_token_duration": 840, "llm_service_duration": 3238, "session_id": "sess-7f",
        "response_type": "stream"}),
}  # fmt: skip
APISIX: dict[str, Any] = {
    "start_time": START_S * 1000, "latency": 3240, "upstream_latency": 3226,
    "request": {"headers": {"x-request-id": "req-001"}}, "response": {"status": 200},
    "llm_summary": {
        "request_model": "sonnet", "model": MODEL, "duration": "840", "prompt_tokens": "2000",
        "cache_read_input_tokens": "9000", "cache_creation_input_tokens": "1000",
        "completion_tokens": "160", "stream": "true", "upstream_response_time": "3226"},
}  # fmt: skip
ENVOY: dict[str, Any] = {
    "start_time": START, "duration": 3240, "response_code": 200, "response_flags": "-",
    "x-request-id": "req-001", "x-session-id": "sess-7f", "upstream_host": "10.0.0.7:8000",
    "gen_ai.request.model": "qwen3-32b", "gen_ai.usage.input_tokens": 12000,
    "gen_ai.usage.cached_input_tokens": 9000, "gen_ai.usage.output_tokens": 160,
    "x-envoy-upstream-service-time": "61", "token_latency_ttft": 840,
}  # fmt: skip

#: A case: format, a log that holds the request, and the columns of it that the format can hold.
REFERENCE: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "langfuse lines": ("langfuse", [LANGFUSE], NO_SESSION),
    "langfuse page": ("langfuse", {"data": [LANGFUSE | {"sessionId": "sess-7f"}]}, ALL),
    "langfuse blob": ("langfuse", [BLOB], NO_SESSION),
    "langfuse csv": ("langfuse", table(BLOB), NO_SESSION),
    "langsmith": ("langsmith", [LANGSMITH], ALL),
    "langsmith page": ("langsmith", {"runs": [LANGSMITH]}, ALL),
    "helicone": ("helicone", [HELICONE], ALL),
    "helicone page": ("helicone", {"data": [HELICONE]}, ALL),
    "openrouter": (
        "openrouter", table(OPENROUTER),
        ("start", "ttft_us", "e2e_us", "input_tokens", "cached_tokens", "output_tokens"),
    ),
    "openrouter api": (
        "openrouter", {"data": GENERATION},
        ("session_id", "start", "e2e_us", "input_tokens", "cached_tokens", "output_tokens"),
    ),
    "jaeger": ("jaeger", jaeger(TAGS), ALL),
    "mlflow": ("mlflow", [MLFLOW], ALL),
    "mlflow page": ("mlflow", {"traces": [MLFLOW]}, ALL),
    "phoenix page": ("phoenix", {"data": [PHOENIX]}, ALL),
    "phoenix lines": ("phoenix", [PHOENIX], ALL),
    "phoenix frame": ("phoenix", table(FRAME), ALL),
    "datadog page": ("datadog", {"data": [{"id": "x", "attributes": DATADOG}]}, ALL),
    "datadog spans": ("datadog", [DATADOG], ALL),
    "bedrock": ("bedrock", [BEDROCK], ALL),
    "portkey": ("portkey", [PORTKEY], NO_TTFT),
    "cloudflare": (
        "cloudflare", {"result": [CLOUDFLARE]},
        ("request_id", "session_id", "start", "e2e_us", "input_tokens", "output_tokens", "status"),
    ),
    "weave": ("weave", [WEAVE], ALL),
    "opik": ("opik", {"content": [OPIK]}, ALL),
    "braintrust": ("braintrust", [BRAINTRUST], ALL),
    "azure workspace": ("azure-openai", [AZURE], ("request_id", "start", "e2e_us", "status")),
    "azure blob": (
        "azure-openai",
        {"records": [{
            "category": "RequestResponse", "operationName": "ChatCompletions_Create",
            "resultSignature": "200", "durationMs": 3240, "correlationId": "req-001",
            "properties": json.loads(AZURE["properties_s"])}]},
        ("request_id", "start", "e2e_us", "status"),
    ),
    "kong": ("kong", [KONG], tuple(c for c in NO_WRITE if c != "session_id")),
    "higress": ("higress", [HIGRESS], NO_WRITE),
    "apisix": ("apisix", [APISIX], NO_SESSION),
    "envoy": ("envoy", [ENVOY], NO_WRITE),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(REFERENCE))
def test_one_request_is_the_same_row_in_every_format(case: str, tmp_path: Path) -> None:
    format_, value, columns = REFERENCE[case]
    log = read(write(tmp_path, value))
    assert [one.format for one in log.inputs] == [format_]
    (row,) = log.requests.rows(named=True)
    assert {c: row[c] for c in columns} == {c: REQUEST[c] for c in columns}
    for column in set(REQUEST) - set(columns) - {"request_id", "session_id", "status"}:
        assert row[column] is None, column
    # Every value has a source.
    told = {c for c in log.requests.columns if c in log.fields}
    assert set(columns) <= told


@pytest.mark.parametrize("case", sorted(REFERENCE))
def test_a_large_log_is_read_like_a_small_one(case: str, tmp_path: Path) -> None:
    """From some thousand rows on, columns are read in another way."""
    format_, value, columns = REFERENCE[case]
    count = 2500
    if isinstance(value, str):
        header, line = value.splitlines()
        value = "\n".join([header, *(line.replace("req-001", f"r-{n}") for n in range(count))])
    else:
        key, one = None, value
        if isinstance(value, dict):
            ((key, one),) = value.items()
        record = json.dumps(one[0] if isinstance(one, list) else value)
        made = [json.loads(record.replace("req-001", f"r-{n}")) for n in range(count)]
        value = {key: made} if key is not None and isinstance(one, list) else made
    log = read(write(tmp_path, value))
    assert [one.format for one in log.inputs] == [format_]
    assert log.requests.height == count
    for column in set(columns) - {"request_id"}:
        assert log.requests[column].unique().to_list() == [REQUEST[column]], column


def test_no_format_of_this_file_is_left_out() -> None:
    assert {case[0] for case in REFERENCE.values()} == {n.partition(".")[0] for n in ACCOUNTS}


# --- traps, format by format --------------------------------------------------------------------


def changed(record: dict[str, Any], **more: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(record))) | more


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        # Buckets apart; a map as a client posted it; no total to tell; no cache at all.
        ({"input": 100, "input_cached_tokens": 900, "output": 50, "total": 1050}, (1000, 900, 50)),
        ({"input": 1000, "cache_read_input_tokens": 900, "output": 50, "total": 1050},
         (1000, 900, 50)),
        ({"input": 100, "input_cache_read": 900, "output": 50}, (1000, 900, 50)),
        ({"input": 1000, "output": 50, "total": 1050}, (1000, None, 50)),
        ({"input": 1000, "output": 40, "output_reasoning_tokens": 10, "total": 1050},
         (1000, None, 50)),
        ({"input": 700, "input_cache_creation_5m": 200, "input_cache_creation_1h": 100,
          "output": 50, "total": 1050}, (1000, None, 50)),
    ],
)  # fmt: skip
def test_langfuse_buckets_are_added_where_they_are_apart(
    usage: dict[str, int], tokens: tuple[Any, ...], tmp_path: Path
) -> None:
    record = changed(LANGFUSE, usageDetails=usage)
    log = read(write(tmp_path, [record]))
    assert rows(log, "input_tokens", "cached_tokens", "output_tokens") == [tokens]


def test_langfuse_finds_a_first_token_in_the_attributes(tmp_path: Path) -> None:
    attributes = {"attributes": {"gen_ai.response.time_to_first_chunk": "0.84"}}
    record = changed(LANGFUSE, completionStartTime=None, metadata=attributes)
    assert rows(read(write(tmp_path, [record])), "ttft_us") == [(840_000,)]


def test_langfuse_keeps_the_latest_of_one_id(tmp_path: Path) -> None:
    early = changed(LANGFUSE, endTime="2026-08-01T10:00:02Z")
    log = read(write(tmp_path, [early, LANGFUSE, early]))
    assert rows(log, "line", "e2e_us") == [(2, 3_240_000)]
    assert log.inputs[0].rows_rejected == {"repeated_row": 2}


@pytest.mark.parametrize("kind", ["pairs", "struct"])
def test_langfuse_reads_parquet(kind: str, tmp_path: Path) -> None:
    """A map is a list of pairs, as databases write it, or an object."""
    usage = json.loads(str(BLOB["usage_details"]))
    value = usage if kind == "struct" else [{"key": k, "value": v} for k, v in usage.items()]
    frame = pl.DataFrame([BLOB | {"usage_details": value}]).with_columns(
        pl.col(c).str.to_datetime("%Y-%m-%d %H:%M:%S%.f")
        for c in ("start_time", "completion_start_time", "end_time")
    )
    frame.write_parquet(tmp_path / "rows")
    (row,) = read(tmp_path / "rows").requests.rows(named=True)
    assert {c: row[c] for c in NO_SESSION} == {c: REQUEST[c] for c in NO_SESSION}


def test_langsmith_reads_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame([LANGSMITH | {"extra": json.dumps(LANGSMITH["extra"])}]).with_columns(
        pl.col(c).str.to_datetime("%Y-%m-%dT%H:%M:%S%.f")
        for c in ("start_time", "first_token_time", "end_time")
    )
    frame.write_parquet(tmp_path / "rows")
    (row,) = read(tmp_path / "rows").requests.rows(named=True)
    assert {c: row[c] for c in ALL} == REQUEST


def test_langsmith_events_and_provider_counts(tmp_path: Path) -> None:
    event = changed(
        LANGSMITH,
        first_token_time=None,
        prompt_tokens=2000,
        events=[
            {"name": "start", "time": LANGSMITH["start_time"]},
            {"name": "new_token", "time": "2026-08-01T10:00:00.840000"},
            {"name": "new_token", "time": "2026-08-01T10:00:00.900000"},
        ],
    )
    wrapped = changed(
        LANGSMITH, id="b", prompt_token_details={"raw": {"cache_read": 9000}}, run_type="LLM"
    )
    log = read(write(tmp_path, [event, wrapped]))
    assert rows(log, "ttft_us", "input_tokens", "cached_tokens", "tenant") == [
        (840_000, 12_000, 9000, "project"),
        (840_000, 12_000, 9000, "project"),
    ]


def test_langsmith_chains_and_wrappers_are_not_counted_twice(tmp_path: Path) -> None:
    chain = changed(LANGSMITH, id="t", run_type="chain", parent_run_id=None)
    outer = changed(LANGSMITH, id="outer", parent_run_id="t")
    inner = changed(LANGSMITH, parent_run_id="outer")
    log = read(write(tmp_path, [chain, outer, inner]))
    assert rows(log, "request_id") == [("req-001",)]
    assert log.inputs[0].rows_rejected == {"not_a_model_call": 1, "wraps_another_call": 1}


def test_helicone_counts_by_provider_and_by_row(tmp_path: Path) -> None:
    openai = {"provider": "OPENAI", "prompt_cache_write_tokens": None}
    records = [
        changed(HELICONE, **openai, prompt_tokens=12_000),
        changed(HELICONE, **openai, prompt_tokens=3000),
        changed(HELICONE, prompt_tokens=-1, completion_tokens=-1),
    ]
    log = read(write(tmp_path, records))
    assert rows(log, "input_tokens", "output_tokens") == [
        (12_000, 160), (12_000, 160), (None, None),
    ]  # fmt: skip


def test_helicone_csv_has_no_first_token(tmp_path: Path) -> None:
    record = {
        "response_id": "resp-1", "response_created_at": END, "response_status": 200,
        "request_created_at": START, "request_body": "", "model": MODEL, "prompt_tokens": 12000,
        "completion_tokens": 160, "latency": "", "cost_usd": "",
    }  # fmt: skip
    log = read(write(tmp_path, table(record)))
    assert log.inputs[0].format == "helicone"
    assert rows(log, "request_id", "ttft_us", "e2e_us", "output_tokens") == [
        ("resp-1", None, None, 160)
    ]
    assert "--format jsonl" in str(log.lacks)


def test_openrouter_latency_is_never_a_first_token(tmp_path: Path) -> None:
    log = read(write(tmp_path, [GENERATION]))
    assert rows(log, "ttft_us", "e2e_us", "replica") == [(None, 3_240_000, "Anthropic")]


def test_openrouter_starts_where_the_id_says(tmp_path: Path) -> None:
    """A stamp of the end differs from the second in the id; one within it is finer."""
    late = OPENROUTER | {"created_at": "2026-08-01 10:00:03.240"}
    finer = OPENROUTER | {"created_at": "2026-08-01 10:00:00.250"}
    log = read(write(tmp_path, table(late, finer)))
    assert rows(log, "start") == [(START_S * 10**6,), (START_S * 10**6 + 250_000,)]


def test_openrouter_sums_of_a_day_are_refused(tmp_path: Path) -> None:
    record = {"date": "2026-08-01", "model_permaslug": MODEL, "requests": 12, "usage": 0.5}
    with pytest.raises(InputError, match="sums of a day"):
        read(write(tmp_path, {"data": [record, record]}))
    with pytest.raises(InputError, match="sums of a day"):
        read(write(tmp_path, [record, record]))


def test_jaeger_first_tokens_from_logs_and_in_ms(tmp_path: Path) -> None:
    bare = {k: v for k, v in TAGS.items() if "first_chunk" not in k}
    log_ = {
        "timestamp": START_S * 10**6 + 840_000,
        "fields": [{"key": "event", "type": "string", "value": "ai.stream.firstChunk"}],
    }
    other = {"timestamp": START_S * 10**6 + 5, "fields": [{"key": "event", "value": "x"}]}
    for value in (
        jaeger(bare, other, log_),
        jaeger(bare | {"ai.response.msToFirstChunk": 840}),
    ):
        assert rows(read(write(tmp_path, value)), "ttft_us") == [(840_000,)]


def test_jaeger_claude_code_counts_fresh_tokens_only(tmp_path: Path) -> None:
    tags = {"span.type": "llm_request", "input_tokens": "2000", "cache_read_tokens": "100",
            "cache_creation_tokens": "0", "ttft_ms": 840}  # fmt: skip
    log = read(write(tmp_path, jaeger(tags, operationName="claude_code.llm_request")))
    assert rows(log, "input_tokens", "cached_tokens", "ttft_us") == [(2100, 100, 840_000)]


VLLM_TAGS = {
    "gen_ai.request.id": "req-001", "gen_ai.usage.prompt_tokens": 12000,
    "gen_ai.usage.completion_tokens": 160, "gen_ai.latency.time_to_first_token": 0.84,
    "gen_ai.latency.time_in_model_prefill": 0.7, "gen_ai.latency.time_in_model_decode": 2.4,
}  # fmt: skip


def test_jaeger_spans_of_engines_are_the_servers(tmp_path: Path) -> None:
    vllm = jaeger(VLLM_TAGS | {"gen_ai.latency.time_in_queue": 0.12}, operationName="llm_request")
    inner = vllm["data"][0]["spans"][0] | {
        "spanID": "e1", "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": SPAN}],
    }  # fmt: skip
    # Never scheduled: the engine's clock began with the machine.
    never = jaeger(VLLM_TAGS | {"gen_ai.latency.time_in_queue": -81234.5}, spanID="e2",
                   operationName="llm_request")["data"][0]["spans"][0]  # fmt: skip
    tags = VLLM_TAGS | {"rid": "9f0c", "module": "sglang::request"}
    del tags["gen_ai.request.id"]
    sglang = jaeger(tags, spanID="e3", operationName="Req 9f0c")["data"][0]["spans"][0]
    gone = jaeger(tags | {"gen_ai.response.finish_reasons": '["abort"]'}, spanID="e4",
                  operationName="Req 9f0d")["data"][0]["spans"][0]  # fmt: skip
    both = jaeger(TAGS)
    both["data"][0]["spans"] += [inner, never, sglang, gone]
    log = read(write(tmp_path, both))
    columns = ("request_id", "vantage", "queue_us", "prefill_us", "decode_us", "ttft_us")
    assert rows(log, *columns) == [
        ("req-001", "client", None, None, None, 840_000),
        ("req-001", "server", 120_000, 700_000, 2_400_000, 840_000),
        ("req-001", "server", None, 700_000, 2_400_000, 840_000),
        ("9f0c", "server", None, None, 2_400_000, 840_000),
    ]
    assert log.inputs[0].rows_rejected == {"aborted_request": 1}


def test_phoenix_reads_parquet(tmp_path: Path) -> None:
    events = [{k: v for k, v in PHOENIX["events"][0].items() if k != "attributes"}]
    frame = pl.DataFrame([FRAME | {"events": events, "parent_id": None}])
    frame = frame.with_columns(
        pl.col(c).str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z").dt.convert_time_zone("UTC")
        for c in ("start_time", "end_time")
    )
    frame.write_parquet(tmp_path / "spans")
    log = read(tmp_path / "spans")
    (row,) = log.requests.rows(named=True)
    assert {c: row[c] for c in REQUEST} == REQUEST


def test_datadog_takes_queue_and_prefill_of_vllm(tmp_path: Path) -> None:
    metrics = DATADOG["metrics"] | {"time_in_queue": 0.2, "time_in_model_prefill": 0.6}
    log = read(write(tmp_path, [changed(DATADOG, metrics=metrics)]))
    assert rows(log, "queue_us", "prefill_us", "vantage") == [(200_000, 600_000, "server")]


def test_bedrock_first_byte_of_a_whole_answer_is_set_aside(tmp_path: Path) -> None:
    log = read(write(tmp_path, [changed(BEDROCK, operation="InvokeModel")]))
    assert rows(log, "ttft_us", "e2e_us", "streamed") == [(None, 3_240_000, False)]
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}


def test_cloudflare_logpush(tmp_path: Path) -> None:
    record = {
        "Timestamp": START_S + 3, "Cached": False, "Provider": "openai", "Model": "gpt-5",
        "Metrics": {"cost": 0.01, "durationMs": 3000}, "StatusCode": 200, "RateLimited": False,
        "RequestBody": {"type": "encrypted", "data": "SECRET"},
    }  # fmt: skip
    log = read(write(tmp_path, [record, record | {"RateLimited": True}]))
    assert rows(log, "start", "e2e_us", "model") == [(START_S * 10**6, 3_000_000, "gpt-5")]
    assert log.inputs[0].rows_rejected == {"rate_limited": 1}


def test_weave_adds_up_what_anthropic_counts_apart(tmp_path: Path) -> None:
    usage = {"input_tokens": 2000, "cache_read_input_tokens": 900, "output_tokens": 160,
             "cache_creation_input_tokens": 100}  # fmt: skip
    record = changed(WEAVE, summary={"usage": {"claude.4-5": usage}}, output=None)
    log = read(write(tmp_path, [record]))
    assert rows(log, "model", "input_tokens", "cached_tokens", "cache_write_tokens") == [
        ("claude.4-5", 3000, 900, 100)
    ]


def test_opik_keeps_first_tokens_of_data_imported_again(tmp_path: Path) -> None:
    record = changed(OPIK, ttft=None, metadata={"_import_ttft": 840})
    assert rows(read(write(tmp_path, [record])), "ttft_us") == [(840_000,)]


def test_azure_ticks_are_read_exactly(tmp_path: Path) -> None:
    inside = AZURE["properties_s"].replace("639211752000000000", "639211752000000010")
    log = read(write(tmp_path, [changed(AZURE, properties_s=inside)]))
    assert rows(log, "start") == [(START_S * 10**6 + 1,)]


@pytest.mark.parametrize("name", ["kong", "envoy", "higress"])
def test_a_time_of_headers_is_never_a_first_token(name: str, tmp_path: Path) -> None:
    kong = changed(KONG)
    del kong["ai"]["proxy"]["usage"]["time_to_first_token"]
    envoy = ENVOY | {"token_latency_ttft": "-"}
    inside = json.loads(HIGRESS["ai_log"])
    del inside["llm_first_token_duration"]
    higress = HIGRESS | {"ai_log": json.dumps(inside), "upstream_service_time": "61"}
    record = {"kong": kong, "envoy": envoy, "higress": higress}[name]
    log = read(write(tmp_path, [record]))
    assert [one.format for one in log.inputs] == [name]
    assert rows(log, "ttft_us", "e2e_us") == [(None, 3_240_000)]


def test_kong_reads_the_namespace_of_older_releases(tmp_path: Path) -> None:
    old = changed(KONG, ai={"ai-proxy": KONG["ai"]["proxy"]})
    log = read(write(tmp_path, [old]))
    assert rows(log, "ttft_us", "input_tokens", "replica") == [(840_000, 12_000, "10.0.0.7")]


def test_apisix_duration_of_a_whole_answer_is_no_first_token(tmp_path: Path) -> None:
    summary = APISIX["llm_summary"] | {"stream": "false", "duration": "3226"}
    log = read(write(tmp_path, [changed(APISIX, llm_summary=summary)]))
    assert rows(log, "ttft_us", "e2e_us") == [(None, 3_240_000)]
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}


# --- a first token that is the end --------------------------------------------------------------

BACK_FILLED = {
    "langfuse": changed(LANGFUSE, completionStartTime=END),
    "langsmith": changed(LANGSMITH, first_token_time=LANGSMITH["end_time"]),
    "helicone": changed(HELICONE, time_to_first_token=3240),
    "opik": changed(OPIK, ttft=3240),
    "weave": changed(WEAVE, output={"time_to_first_token": 3.24}),
    "braintrust": changed(
        BRAINTRUST, metrics=BRAINTRUST["metrics"] | {"time_to_first_token": 3.24}
    ),
    "datadog": changed(DATADOG, metrics=DATADOG["metrics"] | {"time_to_first_token": 3.24}),
    "envoy": changed(ENVOY, token_latency_ttft=3240),
}


@pytest.mark.parametrize("name", sorted(BACK_FILLED))
def test_a_first_token_filled_in_from_the_end_is_set_aside(name: str, tmp_path: Path) -> None:
    log = read(write(tmp_path, [BACK_FILLED[name]]))
    assert log.inputs[0].format == name
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}
    assert rows(log, "ttft_us") == [(None,)]


# --- prompts ------------------------------------------------------------------------------------

CHAT = [
    {"role": "system", "content": "SECRET rules " * 1200},
    {"role": "user", "content": "SECRET question " * 2000},
]
WITH_PROMPT = {
    "langfuse": changed(LANGFUSE, input=CHAT),
    "langsmith": changed(LANGSMITH, inputs={"messages": CHAT}),
    "helicone": changed(HELICONE, request_body={"messages": CHAT}),
    "bedrock": changed(BEDROCK, input=BEDROCK["input"] | {"inputBodyJson": {"messages": CHAT}}),
    "portkey": changed(PORTKEY, request={"body": {"messages": CHAT}}),
    "weave": changed(WEAVE, inputs={"messages": CHAT}),
    "opik": changed(OPIK, input={"messages": CHAT}),
    "braintrust": changed(BRAINTRUST, input=CHAT),
}


@pytest.mark.parametrize("name", sorted(WITH_PROMPT))
def test_prompts_become_blocks_and_no_text(name: str, tmp_path: Path) -> None:
    log = read(write(tmp_path, [WITH_PROMPT[name]]))
    (blocks, size) = rows(log, "prefix_blocks", "block_tokens")[0]
    assert size == 16
    assert 700 < len(blocks) <= 12_000 // 16
    assert "SECRET" not in str(log.requests.to_dicts())


def otlp(attributes: dict[str, str]) -> dict[str, Any]:
    span = {
        "name": "chat", "spanId": SPAN, "startTimeUnixNano": str(START_S * 10**9),
        "endTimeUnixNano": str(START_S * 10**9 + 3_240_000_000),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }  # fmt: skip
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}


def test_otlp_numbered_messages_are_one_prompt_in_their_order(tmp_path: Path) -> None:
    """Both conventions and an array of messages make the same blocks; the tenth comes last."""
    chat = [{"role": "user", "content": f"question {n} " * 100} for n in range(11)]
    base = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "3000"}
    forms: list[dict[str, str]] = [
        {"gen_ai.input.messages": json.dumps(chat)},
        {f"gen_ai.prompt.{n}.{k}": v for n, m in reversed(list(enumerate(chat)))
         for k, v in m.items()},
        {f"llm.input_messages.{n}.message.{k}": v for n, m in enumerate(chat)
         for k, v in m.items()},
    ]  # fmt: skip
    log = read(write(tmp_path, [otlp(base | form) for form in forms]))
    assert [one.format for one in log.inputs] == ["otlp"]
    blocks = log.requests["prefix_blocks"].to_list()
    assert len(blocks[0]) > 100
    assert blocks[0] == blocks[1] == blocks[2]
    assert "question" not in str(log.requests.to_dicts())


def test_otlp_a_framework_around_a_call_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the two are read in different parts of a file; an engine's span stays."""
    monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", 256)
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 600)
    tokens = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "3000"}
    records = []
    for name, own, parent in (
        ("llm_request", "e1", "c1"), ("chat", "c1", "f1"), ("chat", "f1", ""), ("chat", "x1", "?"),
    ):  # fmt: skip
        record = otlp(tokens)
        record["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= {
            "name": name, "spanId": own, "parentSpanId": parent,
        }  # fmt: skip
        records.append(record)
    log = read(write(tmp_path, records))
    assert rows(log, "request_id", "vantage") == [
        ("e1", "server"), ("c1", "client"), ("x1", "client"),
    ]  # fmt: skip
    assert log.inputs[0].rows_rejected == {"wraps_another_call": 1}


def test_otlp_strange_numbers_are_no_messages(tmp_path: Path) -> None:
    base = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "3000"}
    odd = {"gen_ai.prompt.x.content": "a", "gen_ai.prompt.1": "b", "gen_ai.prompt.-1.role": "c",
           f"gen_ai.prompt.{'9' * 40}.content": "d"}  # fmt: skip
    log = read(write(tmp_path, [otlp(base | odd)]))
    assert rows(log, "input_tokens", "prefix_blocks") == [(3000, None)]


# --- what other versions of the same software write ----------------------------------------------

NS = START_S * 10**9


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": {"stringValue": str(v)}} for k, v in attributes.items()]


def spans(*made: dict[str, Any], scope: str = "", service: str = "shop") -> dict[str, Any]:
    """A request of an exporter; of each span its name, attributes and what else it has."""
    whole = [
        {"spanId": SPAN, "startTimeUnixNano": str(NS), "endTimeUnixNano": str(NS + 3_240_000_000)}
        | span | {"attributes": pairs(span["attributes"])}
        for span in made
    ]  # fmt: skip
    about = {"attributes": pairs({"service.name": service})}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [
        {"scope": {"name": scope}, "spans": whole}]}]}  # fmt: skip


def logged(body: str, attributes: dict[str, Any]) -> dict[str, Any]:
    record = {"timeUnixNano": "0", "observedTimeUnixNano": str(NS + 3_240_000_000),
              "body": {"stringValue": body}, "attributes": pairs(attributes)}  # fmt: skip
    return {"resourceLogs": [{"scopeLogs": [{"scope": {}, "logRecords": [record]}]}]}


GEN_AI = {k: str(v) for k, v in TAGS.items()}
CLAUDE = {"event.name": "api_request", "session.id": "sess-7f", "request_id": "req-001",
          "model": MODEL, "duration_ms": 3240, "input_tokens": 2000, "cache_read_tokens": 9000,
          "cache_creation_tokens": 1000, "output_tokens": 160}  # fmt: skip
QWEN = {"event.name": "qwen-code.api_response", "session.id": "sess-7f", "request_id": "req-001",
        "model": "qwen3", "duration_ms": 3240, "ttft_ms": 840, "input_token_count": 12000,
        "cached_content_token_count": 9000, "output_token_count": 100, "thoughts_token_count": 60,
        "total_token_count": 12160}  # fmt: skip
BUCKETS = {"input": 2000, "input_cached_tokens": 9000, "input_cache_creation": 1000, "output": 160}
GENERATED = {
    "langfuse.observation.type": "generation", "session.id": "sess-7f", "request_id": "req-001",
    "langfuse.observation.completion_start_time": f'"{FIRST}"',
    "langfuse.observation.usage_details": json.dumps(BUCKETS),
}  # fmt: skip
PRINTED = {
    "name": "chat", "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}"},
    "kind": "SpanKind.CLIENT", "parent_id": None, "start_time": "2026-08-01T10:00:00.000000Z",
    "end_time": "2026-08-01T10:00:03.240000Z", "status": {"status_code": "UNSET"},
    "attributes": TAGS, "events": [], "links": [], "resource": {"attributes": {"a": "b"}},
}  # fmt: skip
SNAKE = {
    "name": "chat", "span_id": SPAN, "trace_id": TRACE, "start_time_unix_nano": NS,
    "end_time_unix_nano": NS + 3_240_000_000, "status": {"code": 1},
    "attributes": [{"key": k, "value": {"string_value": v}} for k, v in GEN_AI.items()],
}  # fmt: skip
LITELLM = {k: v for k, v in GEN_AI.items() if "cache" not in k} | {
    "llm.request.type": "acompletion", "gen_ai.operation.name": "acompletion",
}  # fmt: skip
STRANDS = {
    "gen_ai.operation.name": "chat", "gen_ai.response.id": "req-001",
    "gen_ai.server.time_to_first_token": 840, "gen_ai.usage.input_tokens": 11000,
    "gen_ai.usage.cache_read_input_tokens": 800, "gen_ai.usage.cache_write_input_tokens": 200,
    "gen_ai.usage.output_tokens": 160, "gen_ai.usage.total_tokens": 12160,
}  # fmt: skip
KIT = {
    "ai.model.provider": "anthropic.messages", "ai.usage.inputTokens": 2000,
    "ai.usage.outputTokens": 160, "ai.response.msToFirstChunk": 840,
    "ai.telemetry.metadata.sessionId": "sess-7f",
    "ai.response.providerMetadata": json.dumps({"anthropic": {
        "usage": {"input_tokens": 2000, "cache_read_input_tokens": 9000},
        "cacheCreationInputTokens": 1000}}),
}  # fmt: skip
NO_CACHE = tuple(c for c in NO_SESSION if not c.startswith("cache"))

#: Documents or lines, and the columns in which they are the known request.
OTHER_SPANS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "printed by the console exporter": (json.dumps(PRINTED, indent=2) * 2, ALL),
    "of a page of Phoenix": ({"data": [SNAKE], "next_cursor": None}, ALL),
    "of Tempo's second API": ({"trace": spans({"name": "c", "attributes": GEN_AI})}, ALL),
    "of LiteLLM": (
        [spans({"name": "litellm_request", "attributes": LITELLM}, scope="litellm")], NO_CACHE
    ),
    "of Strands, in ms": (
        [spans({"name": "chat", "attributes": STRANDS}, scope="strands.telemetry.tracer")],
        ("request_id", "ttft_us", "input_tokens", "output_tokens"),
    ),
    "of Vercel's kit before it counted parts": (
        [spans({"name": "ai.streamText.doStream", "attributes": KIT})], NO_ID
    ),
    "of Langfuse's SDK": ([spans({"name": "g", "attributes": GENERATED})], ALL),
    "logged by Claude Code": ([logged("claude_code.api_request", CLAUDE)], NO_TTFT),
    "logged by Qwen Code": (
        [logged("API response from qwen3. Status: 200.", QWEN)],
        tuple(c for c in ALL if c != "cache_write_tokens"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OTHER_SPANS))
def test_otlp_the_known_request_in_other_shapes(name: str, tmp_path: Path) -> None:
    value, columns = OTHER_SPANS[name]
    log = read(write(tmp_path, value))
    assert log.inputs[0].format == "otlp"
    assert set(rows(log, *columns)) == {tuple(REQUEST[c] for c in columns)}


def test_otlp_a_log_record_of_a_call_with_a_span_is_not_counted_again(tmp_path: Path) -> None:
    span = spans({"name": "claude_code.llm_request", "attributes": CLAUDE | {"ttft_ms": 840}})
    other = logged("claude_code.api_request", CLAUDE | {"session.id": "b", "request_id": "r2"})
    failed = logged("claude_code.api_error", {"session.id": "b", "model": MODEL, "error": "500"})
    prompt = logged("claude_code.user_prompt", {"session.id": "b"})
    records = [span, logged("claude_code.api_request", CLAUDE), other, failed, prompt]
    log = read(write(tmp_path, records))
    assert rows(log, "request_id", "ttft_us", "input_tokens") == [
        ("req-001", 840_000, 12_000), ("r2", None, 12_000),
    ]  # fmt: skip
    assert log.inputs[0].rows_rejected == {"failed_request": 1, "no_span": 1, "repeated_row": 1}


def test_otlp_the_providers_own_span_is_not_counted_beside_its_clients(tmp_path: Path) -> None:
    client = spans({"name": "anthropic.messages.create", "attributes": GEN_AI})
    usage = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "12000"}
    inside = {"name": "messages", "spanId": "b1", "parentSpanId": SPAN, "attributes": usage}
    log = read(write(tmp_path, [spans(inside, service="claude-platform"), client]))
    assert rows(log, "request_id", "ttft_us") == [("req-001", 840_000)]
    assert log.inputs[0].rows_rejected == {"repeated_row": 1}


def test_otlp_metrics_alone_ask_for_traces(tmp_path: Path) -> None:
    log = read(write(tmp_path, [{"resourceMetrics": [{"scopeMetrics": []}]}] * 2))
    assert log.inputs[0].rows_rejected == {"no_span": 2}
    assert any("turn on traces" in note for note in log.notes)


def test_otlp_a_first_token_at_the_end_is_set_aside(tmp_path: Path) -> None:
    late = GEN_AI | {"gen_ai.response.time_to_first_chunk": "3.24"}
    log = read(write(tmp_path, [spans({"name": "chat", "attributes": late})]))
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}


VERCEL = {
    "ai.model.id": MODEL, "ai.usage.inputTokens": 12000, "ai.usage.outputTokens": 160,
    "ai.usage.inputTokenDetails.noCacheTokens": 2000, "ai.response.msToFirstChunk": 840,
    "ai.usage.inputTokenDetails.cacheReadTokens": 9000,
    "ai.usage.inputTokenDetails.cacheWriteTokens": 1000,
}  # fmt: skip
CONVERSE = {
    "llm.request.type": "chat", "gen_ai.usage.input_tokens": 11000,
    "gen_ai.usage.cache_read_input_tokens": 1000, "http.request.resend_count": 1,
    "otel.scope.name": "opentelemetry.instrumentation.bedrock",
}  # fmt: skip


def test_jaeger_documents_of_elasticsearch(tmp_path: Path) -> None:
    (trace,) = jaeger(TAGS)["data"]
    (span,) = trace["spans"]
    for record in (span | {"process": {}}, {"_index": "jaeger-span", "_source": span}):
        assert rows(read(write(tmp_path, [record])), *ALL) == [tuple(REQUEST.values())]


def test_jaeger_counts_of_vercel_and_bedrock(tmp_path: Path) -> None:
    made = jaeger(VERCEL, operationName="ai.streamText.doStream")
    for number, (name, tags) in enumerate((
        ("bedrock.converse", CONVERSE), ("ai.streamText", VERCEL),
        ("ai.generateText.doGenerate", VERCEL),
    )):  # fmt: skip
        (span,) = jaeger(tags, operationName=name, spanID=f"s{number}")["data"][0]["spans"]
        made["data"][0]["spans"].append(span)
    log = read(write(tmp_path, made))
    columns = ("input_tokens", "cached_tokens", "cache_write_tokens", "attempts", "streamed")
    assert rows(log, *columns) == [
        (12_000, 9_000, 1_000, None, None), (12_000, 1_000, None, 2, None),
        (12_000, 9_000, 1_000, None, False),
    ]  # fmt: skip
    assert log.inputs[0].rows_rejected == {"not_a_model_call": 1}


OLD_MLFLOW = {
    "info": {"request_id": "tr-1", "request_metadata": {"mlflow.trace.session": "sess-7f"}},
    "data": {"spans": [{
        "name": "chat", "context": {"span_id": "req-001", "trace_id": "0x1"}, "parent_id": None,
        "start_time": NS, "end_time": NS + 3_240_000_000, "status_code": "OK",
        "attributes": MLFLOW_SPAN["attributes"] | {"mlflow.spanInputs": '{"model": "gpt-5"}'},
        "events": [{"name": "mlflow.chunk.item.0", "timestamp": NS + 840_000_000}],
    }]},
}  # fmt: skip
USAGE = {"input_tokens": 12000, "output_tokens": 160, "total_tokens": 12160,
         "input_tokens_details": {"cached_tokens": 9000}}  # fmt: skip
BESIDE = {"prompt_tokens": 11000, "completion_tokens": 160, "total_tokens": 12160,
          "prompt_tokens_details": {"cached_tokens": 1000}}  # fmt: skip
GEMINI = {"prompt_token_count": 12000, "cached_content_token_count": 9000, "requests": 1,
          "candidates_token_count": 100, "thoughts_token_count": 60}  # fmt: skip
HIDDEN = {k: v for k, v in DATADOG["metrics"].items() if k not in (
    "time_to_first_token", "cache_write_input_tokens")}  # fmt: skip
CALLED = "datetime.datetime(2026, 8, 1, 10, 0, 0, 840000, tzinfo=datetime.timezone.utc)"

#: The format, what it writes, and the columns that hold the known values or others.
OTHERS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "langfuse: the attribute of a client": (
        "langfuse",
        [changed(LANGFUSE, completionStartTime=None, metadata={"attributes": {
            "gen_ai.client.operation.time_to_first_chunk": 0.84}})],
        {"ttft_us": 840_000},
    ),
    "langsmith: writes by age, model of the call": (
        "langsmith",
        [changed(LANGSMITH, prompt_token_details={
            "cache_read": 9000, "cache_creation": 0, "ephemeral_5m_input_tokens": 600,
            "ephemeral_1h_input_tokens": 400}, extra={"invocation_params": {"model": "gpt-5"}})],
        {"cache_write_tokens": 1_000, "input_tokens": 12_000, "model": "gpt-5"},
    ),
    "helicone: an array that ends with a comma": (
        "helicone", "[\n" + json.dumps(HELICONE, indent=2) + ",\n]\n", {"input_tokens": 12_000}
    ),
    "openrouter: providers that were tried": (
        "openrouter",
        {"data": GENERATION | {"provider_responses": [{"status": 429}, {"status": 200}]}},
        {"attempts": 2, "input_tokens": 12_000},
    ),
    "portkey: usage of OpenAI's Responses": (
        "portkey", [changed(PORTKEY, response={"usage": USAGE})],
        {"input_tokens": 12_000, "cached_tokens": 9_000},
    ),
    "portkey: cached tokens beside the prompt": (
        "portkey", [changed(PORTKEY, req_units=11000, response={"usage": BESIDE})],
        {"input_tokens": 12_000, "cached_tokens": 1_000},
    ),
    "weave: usage of Gemini": (
        "weave", [changed(WEAVE, summary={"usage": {"gemini": GEMINI}})],
        {"input_tokens": 12_000, "cached_tokens": 9_000, "output_tokens": 160,
         "reasoning_tokens": 60},
    ),
    "datadog: LiteLLM's metadata, writes by age": (
        "datadog",
        [changed(DATADOG, metadata={"time_to_first_token_ms": 840.0}, metrics=HIDDEN | {
            "ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 400})],
        {"ttft_us": 840_000, "cache_write_tokens": 1_000},
    ),
    "higress: details are JSON in text": (
        "higress",
        [HIGRESS | {"ai_log": json.dumps({
            "model": "qwen-plus", "input_token": "12000", "output_token": 160,
            "input_token_details": '{"cached_tokens": 9000}',
            "output_token_details": '{"reasoning_tokens": 60}'})}],
        {"cached_tokens": 9_000, "reasoning_tokens": 60},
    ),
    "bedrock: usage inside the stream": (
        "bedrock",
        [changed(BEDROCK, input={"inputTokenCount": 2000}, output={"outputBodyJson": [
            {"type": "message_start", "message": {"usage": {
                "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 1000}}}]})],
        {"input_tokens": 12_000, "cached_tokens": 9_000, "cache_write_tokens": 1_000},
    ),
    "bedrock: events of CloudWatch": (
        "bedrock", {"events": [{"timestamp": 1, "message": json.dumps(BEDROCK)}]},
        {c: REQUEST[c] for c in ALL},
    ),
    "bedrock: answers of a query": (
        "bedrock", [{"@timestamp": "2026-08-01 10:00:00", "@message": json.dumps(BEDROCK)}],
        {c: REQUEST[c] for c in ALL},
    ),
    "phoenix: a frame with Python's dates": (
        "phoenix", table(FRAME | {"events": FRAME["events"].replace(
            "'2026-08-01T10:00:00.840000+00:00'", CALLED)}),
        {"ttft_us": 840_000},
    ),
    "phoenix: Converse": (
        "phoenix",
        [changed(PHOENIX, name="bedrock.converse", attributes={
            "llm.token_count.prompt": 11000, "llm.token_count.prompt_details.cache_read": 1000})],
        {"input_tokens": 12_000},
    ),
    "mlflow: spans before release 3.2": (
        "mlflow", OLD_MLFLOW, {c: REQUEST[c] for c in ALL} | {"model": "gpt-5"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_other_versions_write(name: str, tmp_path: Path) -> None:
    kind, value, expected = OTHERS[name]
    log = read(write(tmp_path, value))
    assert log.inputs[0].format == kind
    assert rows(log, *expected) == [tuple(expected.values())]


def test_bedrock_models_without_text_are_no_calls(tmp_path: Path) -> None:
    names = ("amazon.titan-embed-text-v2:0", "cohere.rerank-v3-5:0", "amazon.nova-canvas-v1:0")
    records = [changed(BEDROCK, requestId=name, modelId=name) for name in names]
    log = read(write(tmp_path, records), format="bedrock")
    assert log.inputs[0].rows_rejected == {"not_a_model_call": 3}


# --- hostile input ------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(10**30), 1e308, 0.5, "", "NaN", "1e999", "-", "x" * 40, "\x1b[31m",
    [], {}, [1], {"a": 1}, [[None]], "2026-13-45T99:00:00Z", "9999-12-31T23:59:59Z",
)  # fmt: skip


def mutate(record: Any, draw: random.Random) -> Any:
    """The record with one value, at any depth, taken away or made into something else."""
    record = json.loads(json.dumps(record))
    inside, deep = record, draw.randint(0, 3)
    while isinstance(inside, (dict, list)) and inside:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = draw.choice(keys)
        if deep == 0 or not isinstance(inside[key], (dict, list)) or not inside[key]:
            if isinstance(inside, dict) and draw.random() < 0.2:
                del inside[key]
            else:
                inside[key] = draw.choice(JUNK)
            break
        inside, deep = inside[key], deep - 1
    return record


#: Where the id is by which a row that comes again is known.
IDS = {
    "braintrust": ("span_id",), "datadog": ("attributes", "span_id"), "langfuse": ("id",),
    "langsmith": ("id",), "opik": ("id",), "phoenix": ("context", "span_id"), "weave": ("id",),
}  # fmt: skip


def renamed(record: dict[str, Any], path: tuple[str, ...], number: int) -> dict[str, Any]:
    record = json.loads(json.dumps(record))
    inside = record
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = f"id-{number}"
    return record


def many(records: list[dict[str, Any]], stem: str, draw: random.Random) -> list[Any]:
    """The records and 5000 damaged copies of them, each with an id of its own."""
    made: list[Any] = list(records)
    for number in range(5000):
        record = draw.choice(records)
        if stem in IDS:
            record = renamed(record, IDS[stem], number)
        made.append(mutate(record, draw))
    return made


@pytest.mark.parametrize("name", sorted(ACCOUNTS))
def test_5000_mutated_records_are_all_accounted_for(name: str, tmp_path: Path) -> None:
    draw = random.Random(name)
    stem = name.partition(".")[0]
    text = (SAMPLES / name).read_text(encoding="utf-8")
    made: list[Any]
    value: Any
    if name.endswith(".csv"):
        cells = list(csv.DictReader(io.StringIO(text)))
        made = [row | {draw.choice(list(row)): draw.choice(JUNK[5:])} for row in cells * 400]
        value = table(*made)
    else:
        records = [json.loads(line) for line in text.splitlines()]
        if len(records) == 1:  # a document with its records inside
            (key,) = (k for k, v in records[0].items() if isinstance(v, list) and v)
            made = many(records[0][key], stem, draw)
            value = {key: made}
        else:
            value = made = many(records, stem, draw)
    (one,) = read(write(tmp_path, value), format=stem).inputs
    if stem in ("jaeger", "mlflow"):  # several spans in some records
        assert one.rows_read >= len(made)
    else:
        assert one.rows_read == len(made)
    assert one.rows_used > len(made) / 3
