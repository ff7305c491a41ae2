"""Readers of spans, LiteLLM, SGLang and Ollama: one known request from each, and every trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import REAL, REQUEST, SAMPLES, START_S, claims, only, read_objects, rejected
from reading import read_data as read

from ttftdoctor.intake import read_log

pytestmark = pytest.mark.usefixtures("every_row")

NAMES = ("litellm", "ollama", "otlp", "sglang-metrics")

START = START_S * 10**6
#: What of the known request these formats can hold.
EXPECTED = {k: v for k, v in REQUEST.items() if k not in ("request_id", "status")} | {
    "streamed": True
}


def holds(row: dict[str, Any], *but: str, **other: Any) -> None:
    """Check a row against the known request; ``but`` names what the format cannot hold."""
    expected = {k: None if k in but else v for k, v in EXPECTED.items()} | other
    assert {k: row[k] for k in expected} == expected


# ------------------------------------------------------------------- all four


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_claimed_and_accounted(name: str) -> None:
    path = SAMPLES / f"{name}.jsonl"
    log = read_log([str(path)])
    source = log.inputs[0]
    assert source.format == name
    assert source.rows_read == source.rows_used + sum(source.rows_rejected.values())
    assert source.rows_rejected["not_json"] == 1
    assert log.failed.height >= 1
    assert 10 <= source.rows_used <= 20
    assert set(log.fields) <= set(log.requests.columns)
    first = log.requests.sort("start").row(0, named=True)
    gone = {
        "otlp": (),
        "litellm": (),
        "sglang-metrics": ("cache_write_tokens",),
        "ollama": ("cached_tokens", "cache_write_tokens", "session_id", "streamed"),
    }[name]
    holds(first, *gone)


def test_no_other_log_is_claimed() -> None:
    assert claims(NAMES) == {
        "real/sglang_request_log/request_finished.jsonl": ["sglang-metrics"],
        "real/ollama/generate_response.jsonl": ["ollama"],
    }


# ----------------------------------------------------------------------- spans


def value(given: Any) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    return {"doubleValue": given} if isinstance(given, float) else {"stringValue": given}


def span(name: str, attributes: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {
        "name": name,
        "spanId": "a41c9be20d57f638",
        "startTimeUnixNano": "1785578400000000000",
        "endTimeUnixNano": "1785578403240000000",
        "attributes": [
            {"key": k, "value": v if isinstance(v, dict) else value(v)}
            for k, v in attributes.items()
        ],
        **other,
    }


def export(*spans: dict[str, Any], scope: str = "demo", about: dict[str, Any] | None = None) -> Any:
    resource = {"attributes": [{"key": k, "value": value(v)} for k, v in (about or {}).items()]}
    scopes = [{"scope": {"name": scope}, "spans": list(spans)}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}


CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "gen_ai.request.stream": True,
    "gen_ai.response.time_to_first_chunk": 0.84,
    "gen_ai.usage.input_tokens": 12000,
    "gen_ai.usage.cache_read.input_tokens": 9000,
    "gen_ai.usage.cache_creation.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 160,
    "gen_ai.conversation.id": "sess-7f",
}
GENERATIONS: dict[str, dict[str, Any]] = {
    "current": CHAT,
    "older": {
        "llm.request.type": "chat",
        "gen_ai.is_streaming": True,
        "gen_ai.client.operation.time_to_first_chunk": 0.84,
        "gen_ai.usage.prompt_tokens": 12000,
        "gen_ai.usage.cache_read_input_tokens": 9000,
        "gen_ai.usage.cache_creation_input_tokens": 1000,
        "gen_ai.usage.completion_tokens": 160,
        "traceloop.association.properties.session_id": "sess-7f",
    },
    "details": {
        "gen_ai.operation.name": "chat",
        "llm.is_streaming": True,
        "gen_ai.client.operation.time_to_first_chunk": 0.84,
        "llm.usage.prompt_tokens": 12000,
        "gen_ai.usage.details.cache_read_tokens": 9000,
        "gen_ai.usage.details.cache_write_tokens": 1000,
        "llm.usage.completion_tokens": 160,
        "langfuse.session.id": "sess-7f",
    },
    "newest": {
        **{k: v for k, v in CHAT.items() if "cache_creation" not in k},
        "gen_ai.usage.cache_write.input_tokens": 1000,
    },
}


@pytest.mark.parametrize("names", GENERATIONS)
def test_all_generations_of_genai_names(names: str, tmp_path: Path) -> None:
    row = only(read_objects(tmp_path / "a.jsonl", export(span("chat", GENERATIONS[names]))))
    holds(row, vantage="client", status="ok")


def test_every_spelling_of_a_value(tmp_path: Path) -> None:
    spellings: dict[str, Any] = {
        **CHAT,
        "gen_ai.usage.input_tokens": {"intValue": 12000},
        "gen_ai.usage.cache_read.input_tokens": {"stringValue": "9000"},
        "gen_ai.usage.cache_creation.input_tokens": {"doubleValue": 1000.0},
        "gen_ai.usage.output_tokens": {"stringValue": "160.0"},
        "gen_ai.response.time_to_first_chunk": {"stringValue": "0.84"},
        "gen_ai.request.stream": {"stringValue": "true"},
        "gen_ai.response.finish_reasons": {"arrayValue": {"values": [{"stringValue": "stop"}]}},
    }
    numbered = span("chat", spellings, startTimeUnixNano=1785578400000000000)
    holds(only(read_objects(tmp_path / "a.jsonl", export(numbered))))


def test_a_document_and_the_snake_case_spelling(tmp_path: Path) -> None:
    record = export(span("chat", CHAT))
    text = json.dumps(record, indent=2)
    holds(only(read(tmp_path / "a.json", text)))
    for camel, snake in (
        ("resourceSpans", "resource_spans"),
        ("scopeSpans", "scope_spans"),
        ("startTimeUnixNano", "start_time_unix_nano"),
        ("endTimeUnixNano", "end_time_unix_nano"),
        ("spanId", "span_id"),
        ("intValue", "int_value"),
        ("stringValue", "string_value"),
        ("doubleValue", "double_value"),
        ("boolValue", "bool_value"),
    ):
        text = text.replace(camel, snake)
    row = only(read(tmp_path / "b.json", text))
    holds(row, request_id="a41c9be20d57f638")
    text = json.dumps(record).replace("scopeSpans", "instrumentationLibrarySpans")
    holds(only(read(tmp_path / "c.json", text)))


def vllm(**other: Any) -> dict[str, Any]:
    return {
        "gen_ai.request.id": "chatcmpl-a1",
        "gen_ai.usage.prompt_tokens": 12000,
        "gen_ai.usage.completion_tokens": 160,
        "gen_ai.latency.time_to_first_token": 0.84,
        "gen_ai.latency.time_in_queue": 0.12,
        "gen_ai.latency.time_in_model_prefill": 0.7,
        "gen_ai.latency.time_in_model_decode": 2.4,
        "gen_ai.latency.e2e": 3.24,
        **other,
    }


def test_a_vllm_span(tmp_path: Path) -> None:
    about = {"service.instance.id": "engine-0"}
    record = export(span("llm_request", vllm()), scope="vllm.llm_engine", about=about)
    row = only(read_objects(tmp_path / "a.jsonl", record))
    holds(
        row, "cached_tokens", "cache_write_tokens", "session_id", "streamed",
        queue_us=120_000, prefill_us=700_000, decode_us=2_400_000, model=None,
        request_id="chatcmpl-a1", replica="engine-0", vantage="server",
    )  # fmt: skip


@pytest.mark.parametrize("queue", [-86400.25, 86400.25])
def test_the_nonsense_of_an_unscheduled_vllm_request_is_unknown(
    queue: float, tmp_path: Path
) -> None:
    attributes = vllm(**{"gen_ai.latency.time_in_queue": queue})
    row = only(read_objects(tmp_path / "a.jsonl", export(span("llm_request", attributes))))
    assert row["queue_us"] is None
    assert row["ttft_us"] == 840_000


def test_a_vllm_span_of_another_name_is_none(tmp_path: Path) -> None:
    start_up = span("load_model", {"code.function": "load"})
    log = read_objects(tmp_path / "a.jsonl", export(start_up, span("llm_request", vllm())))
    assert rejected(log) == {"not_an_llm_span": 1}


def test_sglang_prefill_holds_the_queue_and_is_not_used(tmp_path: Path) -> None:
    attributes = {
        "rid": "9f0c4d11-2",
        "module": "sglang::request",
        "gen_ai.usage.prompt_tokens": 12000,
        "gen_ai.usage.cached_tokens": 9000,
        "gen_ai.usage.completion_tokens": 160,
        "gen_ai.response.model": "chat-8b",
        "gen_ai.latency.time_to_first_token": 0.84,
        "gen_ai.latency.time_in_model_prefill": 0.82,
        "gen_ai.latency.time_in_model_decode": 2.4,
        "gen_ai.latency.e2e": 3.24,
    }
    stage = span("prefill_waiting", {"module": "sglang::request"})
    record = export(span("Req 9f0c4d11", attributes), stage, scope="sglang")
    log = read_objects(tmp_path / "a.jsonl", record)
    holds(
        only(log), "cache_write_tokens", "session_id", "streamed",
        prefill_us=None, queue_us=None, decode_us=2_400_000, vantage="server", model="chat-8b",
    )  # fmt: skip
    assert rejected(log) == {"not_an_llm_span": 1}


def test_openinference_takes_the_first_token_from_an_event(tmp_path: Path) -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-5",
        "llm.token_count.prompt": 12000,
        "llm.token_count.prompt_details.cache_read": 9000,
        "llm.token_count.prompt_details.cache_write": 1000,
        "llm.token_count.completion": 160,
        "session.id": "sess-7f",
    }
    events = [
        {"name": "other", "timeUnixNano": "1785578400100000000"},
        {"name": "First Token Stream Event", "timeUnixNano": "1785578400840000000"},
    ]
    chain = span("run", {**attributes, "openinference.span.kind": "CHAIN"})
    record = export(span("ChatCompletion", attributes, events=events), chain)
    log = read_objects(tmp_path / "a.jsonl", record)
    holds(only(log), "streamed", model="gpt-5")
    assert rejected(log) == {"not_an_llm_span": 1}
    assert log.fields["ttft_us"].kind == "derived"


def test_vercel_leaves_count_and_wrappers_do_not(tmp_path: Path) -> None:
    usage = {
        "ai.model.id": "gpt-5",
        "ai.telemetry.metadata.sessionId": "sess-7f",
        "ai.usage.inputTokenDetails.noCacheTokens": 2000,
        "ai.usage.inputTokenDetails.cacheReadTokens": 9000,
        "ai.usage.inputTokenDetails.cacheWriteTokens": 1000,
        "ai.usage.inputTokens": 2000,
        "ai.usage.outputTokens": 160,
    }
    leaf = {**usage, "ai.response.msToFirstChunk": 840.0}
    record = export(span("ai.streamText", usage), span("ai.streamText.doStream", leaf))
    log = read_objects(tmp_path / "a.jsonl", record)
    holds(only(log), "streamed", model="gpt-5")
    assert rejected(log) == {"not_an_llm_span": 1}
    whole = export(span("ai.generateText.doGenerate", usage))
    log = read_objects(tmp_path / "b.jsonl", whole)
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}


def claude(**other: Any) -> dict[str, Any]:
    return {
        "session.id": "sess-7f",
        "input_tokens": "2000",
        "cache_read_tokens": "9000",
        "cache_creation_tokens": "1000",
        "output_tokens": 160,
        "ttft_ms": 840.0,
        "attempt": 2,
        **other,
    }


def test_claude_code_input_excludes_the_cached(tmp_path: Path) -> None:
    log = read_objects(tmp_path / "a.jsonl", export(span("claude_code.llm_request", claude())))
    holds(only(log), "streamed", attempts=2)
    assert any("added" in note for note in log.notes)
    little = claude(input_tokens="11000", cache_read_tokens="500", cache_creation_tokens="500")
    log = read_objects(tmp_path / "b.jsonl", export(span("claude_code.llm_request", little)))
    assert only(log)["input_tokens"] == 12_000
    failed = claude(success=False)
    log = read_objects(tmp_path / "c.jsonl", export(span("claude_code.llm_request", failed)))
    assert rejected(log) == {"failed_request": 1}


def test_more_cached_than_input_proves_that_input_excludes_it(tmp_path: Path) -> None:
    fresh = {**CHAT, "gen_ai.usage.input_tokens": 2000}
    holds(only(read_objects(tmp_path / "a.jsonl", export(span("chat", fresh)))))
    converse = {
        **CHAT,
        "gen_ai.usage.input_tokens": 11000,
        "gen_ai.usage.cache_read.input_tokens": 500,
        "gen_ai.usage.cache_creation.input_tokens": 500,
    }
    record = export(
        span("bedrock.converse", converse), scope="opentelemetry.instrumentation.bedrock"
    )
    assert only(read_objects(tmp_path / "b.jsonl", record))["input_tokens"] == 12_000
    other = export(span("openai.chat", converse))
    log = read_objects(tmp_path / "c.jsonl", other)
    assert only(log)["input_tokens"] == 11_000
    assert log.notes == ()


def test_input_of_zero_is_unknown_and_cached_of_zero_is_a_miss(tmp_path: Path) -> None:
    none = {
        **CHAT,
        "gen_ai.usage.input_tokens": 0,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
    }
    row = only(read_objects(tmp_path / "a.jsonl", export(span("chat", none))))
    assert row["input_tokens"] is None
    assert row["cached_tokens"] == 0


@pytest.mark.parametrize("code", [2, "2", "STATUS_CODE_ERROR"])
def test_failed_spans(code: Any, tmp_path: Path) -> None:
    fine = span("chat", CHAT, status={"code": 1})
    failed = span("chat", CHAT, status={"code": code, "message": "no"})
    limited = span("chat", {**CHAT, "error.type": "429"}, status={"code": code})
    log = read_objects(tmp_path / "a.jsonl", export(fine, failed, limited))
    assert rejected(log) == {"failed_request": 1, "rate_limited": 1}
    assert log.failed.height == 2


def test_resent_calls_count_as_attempts(tmp_path: Path) -> None:
    again = {**CHAT, "http.request.resend_count": 2}
    row = only(read_objects(tmp_path / "a.jsonl", export(span("chat", again))))
    assert row["attempts"] == 3


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("GET /", {"http.route": "/"}),
        ("embeddings", {**CHAT, "gen_ai.operation.name": "embeddings"}),
        ("invoke_agent", {**CHAT, "gen_ai.operation.name": "invoke_agent"}),
        ("execute_tool", {"gen_ai.operation.name": "execute_tool"}),
        ("task", {**CHAT, "traceloop.span.kind": "task"}),
        ("embed", {"openinference.span.kind": "EMBEDDING", "llm.token_count.prompt": 3}),
        ("ai.embed.doEmbed", {"ai.usage.inputTokens": 3}),
    ],
)
def test_spans_that_are_no_call_of_a_model(
    name: str, attributes: dict[str, Any], tmp_path: Path
) -> None:
    log = read_objects(tmp_path / "a.jsonl", export(span(name, attributes), span("chat", CHAT)))
    holds(only(log))
    assert rejected(log) == {"not_an_llm_span": 1}


def test_rows_carry_the_line_of_their_export(tmp_path: Path) -> None:
    record = export(span("chat", CHAT), span("chat", CHAT))
    figures: Any = {"resourceMetrics": [{"scopeMetrics": []}]}
    empty: Any = {"resourceSpans": [{"scopeSpans": [{"spans": []}, {"spans": []}]}, {}]}
    bad = {"resourceSpans": {"scopeSpans": 1}}
    log = read_objects(tmp_path / "a.jsonl", figures, record, empty, bad, record)
    assert log.requests["line"].to_list() == [2, 2, 5, 5]
    assert rejected(log) == {"no_span": 2, "wrong_shape": 1}


def test_a_measure_that_is_no_number_rejects_its_span(tmp_path: Path) -> None:
    odd = {**CHAT, "gen_ai.usage.input_tokens": "many"}
    log = read_objects(tmp_path / "a.jsonl", export(span("chat", odd), span("chat", CHAT)))
    assert rejected(log) == {"wrong_type:gen_ai.usage.input_tokens": 1}


def test_langfuse_spans_give_an_instant(tmp_path: Path) -> None:
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.completion_start_time": '"2026-08-01T10:00:00.840Z"',
        "langfuse.observation.model.name": "gpt-5",
        "langfuse.session.id": "sess-7f",
    }
    row = only(read_objects(tmp_path / "a.jsonl", export(span("answer", attributes))))
    assert (row["ttft_us"], row["model"], row["session_id"]) == (840_000, "gpt-5", "sess-7f")


# --------------------------------------------------------------------- LiteLLM


def payload(**other: Any) -> dict[str, Any]:
    return {
        "id": "req-001",
        "litellm_call_id": "c-001",
        "trace_id": "sess-7f",
        "session_id": "sess-7f",
        "call_type": "acompletion",
        "stream": True,
        "status": "success",
        "model": "claude-sonnet-4-5",
        "model_group": "sonnet",
        "model_id": "dep-a",
        "startTime": 1785578400.0,
        "completionStartTime": 1785578400.84,
        "endTime": 1785578403.24,
        "response_time": 0.84,
        "prompt_tokens": 12000,
        "completion_tokens": 160,
        "cache_hit": False,
        "metadata": {
            "user_api_key_team_alias": "shop",
            "usage_object": {
                "prompt_tokens_details": {"cached_tokens": 9000},
                "cache_read_input_tokens": 9000,
                "cache_creation_input_tokens": 1000,
            },
        },
        **other,
    }


def test_a_litellm_payload(tmp_path: Path) -> None:
    known = {
        "request_id": "req-001", "model": "sonnet", "replica": "dep-a", "tenant": "shop",
        "vantage": "gateway", "attempts": None, "status": "ok",
    }  # fmt: skip
    holds(only(read_objects(tmp_path / "a.jsonl", payload())), **known)
    array = [payload(), payload(id="req-002")]
    log = read(tmp_path / "b.json", json.dumps(array))
    assert log.requests["request_id"].to_list() == ["req-001", "req-002"]
    log = read(tmp_path / "c.jsonl", json.dumps(array) + "\n" + json.dumps(array) + "\n")
    assert log.requests.height == 4
    old = payload(session_id="")
    assert only(read_objects(tmp_path / "d.jsonl", old))["session_id"] == "sess-7f"


def test_spend_logs_as_csv_json_and_page(tmp_path: Path) -> None:
    csv = (
        "request_id,call_type,spend,prompt_tokens,completion_tokens,startTime,endTime,"
        "completionStartTime,model,cache_hit,session_id,status,metadata\n"
        "req-001,acompletion,0.01,12000,160,2026-08-01 10:00:00,2026-08-01 10:00:03.24,"
        "2026-08-01 10:00:00.84,claude-sonnet-4-5,False,sess-7f,success,"
        '"{""usage_object"":{""cache_read_input_tokens"":9000,'
        '""cache_creation_input_tokens"":1000}}"\n'
        "req-002,acompletion,0.01,12000,160,2026-08-01 10:00:00+00,2026-08-01 10:00:03.24+00,"
        "2026-08-01 10:00:00.84+00,claude-sonnet-4-5,True,sess-7f,success,{}\n"
        "req-003,acompletion,0.01,12000,160,2026-08-01 10:00:00+00,2026-08-01 10:00:03.24+00,"
        ",claude-sonnet-4-5,None,sess-7f,success,{}\n"
    )
    log = read(tmp_path / "a.csv", csv)
    assert rejected(log) == {"response_cache_hit": 1}
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}
    first, second = log.requests.to_dicts()
    holds(first, "streamed", request_id="req-001", model="claude-sonnet-4-5")
    assert (second["start"], second["e2e_us"]) == (START, 3_240_000)
    usage = {"prompt_tokens_details": {"cached_tokens": 9000}, "cache_creation_input_tokens": 1000}
    row = payload(
        request_id="req-001", spend=0.01, startTime="2026-08-01T10:00:00.000Z",
        endTime="2026-08-01T10:00:03.240Z", completionStartTime="2026-08-01T10:00:00.840Z",
        metadata=json.dumps({"additional_usage_values": usage}),
    )  # fmt: skip
    holds(only(read_objects(tmp_path / "b.jsonl", row)))
    page = {"data": [row, row], "total": 2, "page": 1, "page_size": 100, "total_pages": 1}
    log = read(tmp_path / "c.json", json.dumps(page))
    assert log.requests.height == 2
    holds(log.requests.row(0, named=True))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"cache_hit": True}, "response_cache_hit"),
        ({"cache_hit": "True"}, "response_cache_hit"),
        ({"call_type": "aembedding"}, "not_a_chat_call"),
        ({"call_type": "call_mcp_tool"}, "not_a_chat_call"),
        ({"call_type": "pass_through_endpoint", "completion_tokens": 0}, "not_a_chat_call"),
        ({"api_key": "litellm-internal-health-check"}, "health_check"),
        ({"metadata": {"user_api_key_hash": "litellm-internal-health-check"}}, "health_check"),
        ({"status": "failure", "prompt_tokens": 0}, "failed_request"),
        ({"status": "failure", "error_information": {"error_code": "429"}}, "rate_limited"),
        ({"prompt_tokens": "many"}, "wrong_type:prompt_tokens"),
    ],
)
def test_litellm_rows_that_are_no_requests(other: dict[str, Any], why: str, tmp_path: Path) -> None:
    log = read_objects(tmp_path / "a.jsonl", payload(**other), payload())
    assert rejected(log) == {why: 1}
    holds(only(log))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"completionStartTime": 1785578403.24, "stream": None}, "not_streamed"),
        ({"completionStartTime": None}, "not_streamed"),
        ({"stream": False}, "not_streamed"),
        ({"completionStartTime": 1785578399.0}, "first_token_before_start"),
    ],
)
def test_litellm_first_tokens_that_are_none(
    other: dict[str, Any], why: str, tmp_path: Path
) -> None:
    log = read_objects(tmp_path / "a.jsonl", payload(**other))
    assert log.inputs[0].ttft_set_aside == {why: 1}
    row = only(log)
    assert row["ttft_us"] is None
    assert (row["input_tokens"], row["e2e_us"]) == (12_000, 3_240_000)


@pytest.mark.parametrize(
    "call", ["completion", "aresponses", "anthropic_messages", "pass_through_endpoint", None]
)
def test_litellm_calls_that_count(call: str | None, tmp_path: Path) -> None:
    log = read_objects(tmp_path / "a.jsonl", payload(call_type=call))
    assert log.requests.height == 1


# ---------------------------------------------------------------------- SGLang


def meta(**other: Any) -> dict[str, Any]:
    return {
        "id": "9f0c",
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": 12000,
        "completion_tokens": 160,
        "cached_tokens": 9000,
        "e2e_latency": 3.24,
        "queue_time": 0.12,
        "first_token_latency": 0.84,
        "request_received_ts": 1785578400.0,
        "forward_entry_time": 1785578400.13,
        "prefill_finished_time": 1785578400.83,
        **other,
    }


def metrics(obj: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {**meta(**other), "request_parameters": json.dumps(obj)}


def finished(obj: dict[str, Any], event: str = "request.finished", **other: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-08-01T18:00:03.240000",
        "event": event,
        "rid": "9f0c",
        "obj": {"rid": "9f0c", **obj},
        "out": {"text": "an {answer}", "meta_info": meta(**other)},
    }


KNOWN: dict[str, Any] = {
    "request_id": "9f0c", "queue_us": 120_000, "prefill_us": 700_000, "vantage": "server",
}  # fmt: skip


@pytest.mark.parametrize("key", ["session_id", "conversation_id", "routing_key"])
def test_sglang_metrics_events_and_bracketed_lines(key: str, tmp_path: Path) -> None:
    obj = {"stream": True, key: "sess-7f"}
    row = only(read_objects(tmp_path / "a.log", metrics(obj)))
    holds(row, "cache_write_tokens", **KNOWN)
    received = {"event": "request.received", "rid": "9f0c", "obj": obj}
    log = read_objects(tmp_path / "b.log", received, finished(obj))
    holds(only(log), "cache_write_tokens", **KNOWN)
    assert rejected(log) == {"not_a_finish_event": 1}
    text = (
        "[2026-08-01 18:00:00] server_args=ServerArgs(x={})\n"
        f"[2026-08-01 18:00:00] {json.dumps(received)}\n"
        f"[2026-08-01 18:00:03] {json.dumps(finished(obj))}\n"
        "[2026-08-01 18:00:04 TP0] Decode batch, #running-req: 1\n"
        f"[2026-08-01 18:00:05] {json.dumps(finished(obj))[:200]}\n"
    )
    log = read(tmp_path / "c.log", text)
    row = only(log)
    holds(row, "cache_write_tokens", **KNOWN)
    assert row["line"] == 3
    assert rejected(log) == {"not_a_finish_event": 1, "not_a_request_line": 2, "not_json": 1}


def test_sglang_session_from_the_routing_header(tmp_path: Path) -> None:
    event = finished({"stream": True}) | {"headers": {"x-smg-routing-key": "sess-7f"}}
    holds(only(read_objects(tmp_path / "a.jsonl", event)), "cache_write_tokens")


def test_sglang_first_token_from_the_end_of_prefill(tmp_path: Path) -> None:
    for name in ("prefill_finished_ts", "prefill_finished_time"):
        times: dict[str, Any] = {
            "first_token_latency": None,
            "prefill_finished_time": None,
            name: 1785578400.84,
        }
        log = read_objects(tmp_path / "a.jsonl", finished({"stream": False}, **times))
        row = only(log)
        assert (row["ttft_us"], row["streamed"]) == (840_000, None)
        assert log.fields["ttft_us"].kind == "derived"


def test_sglang_first_token_that_is_the_whole_answer(tmp_path: Path) -> None:
    end: dict[str, Any] = {"first_token_latency": 3.24, "prefill_finished_time": None}
    log = read_objects(tmp_path / "a.jsonl", finished({"stream": False}, **end))
    assert log.inputs[0].ttft_set_aside == {"not_streamed": 1}
    better: dict[str, Any] = {"first_token_latency": 3.24, "prefill_finished_time": 1785578400.84}
    row = only(read_objects(tmp_path / "b.jsonl", finished({"stream": False}, **better)))
    assert row["ttft_us"] == 840_000


def test_sglang_answers_of_its_own_route(tmp_path: Path) -> None:
    whole = {"text": "hi", "meta_info": meta()}
    piece = {"text": "h", "meta_info": meta(finish_reason=None)}
    late = {"meta_info": meta(id="b", first_token_latency=3.24, prefill_finished_time=None)}
    log = read_objects(tmp_path / "a.jsonl", piece, whole, late)
    first, second = log.requests.rows(named=True)
    holds(first, "cache_write_tokens", "session_id", streamed=None)
    assert (second["ttft_us"], second["streamed"]) == (None, False)
    assert rejected(log) == {"not_final": 1}


@pytest.mark.parametrize("field", ["input_ids", "text"])
def test_sglang_prompts_that_are_whole_give_blocks(field: str, tmp_path: Path) -> None:
    ids, text = [*range(100)], "Ten words of one prompt that are all alike here. " * 8
    cut_ids, cut_text = [*range(1024), "...", *range(1024)], "a" * 1024 + " ... " + "b" * 1024
    prompts = [ids, ids + [1] * 20, cut_ids] if field == "input_ids" else [text, text * 2, cut_text]
    each = 1 if field == "input_ids" else 4
    events = [
        finished({field: prompt}, id=str(at), prompt_tokens=len(prompt) // each, cached_tokens=0)
        | {"rid": str(at)}
        for at, prompt in enumerate(prompts)
    ]
    received = {"event": "request.received", "rid": "0", "obj": {field: prompts[0]}}
    log = read_objects(tmp_path / "a.jsonl", received, *events)
    one, two, cut = log.requests["prefix_blocks"].to_list()
    assert len(one) == len(prompts[0]) // each // 16
    assert two[: len(one)] == one
    assert len(two) > len(one)
    assert cut is None
    assert not log.warnings


def test_sglang_without_metrics_has_no_first_token(tmp_path: Path) -> None:
    lean: dict[str, Any] = {
        k: None for k in meta() if k.endswith(("_ts", "_time", "first_token_latency"))
    }
    log = read_objects(tmp_path / "a.jsonl", finished({"stream": True}, **lean))
    row = only(log)
    assert log.inputs[0].ttft_set_aside == {"ttft_missing": 1}
    assert (row["e2e_us"], row["queue_us"]) == (3_240_000, None)
    # The event's own stamp has no zone; the reader's option gives it one.
    assert row["start"] == START + 8 * 3_600_000_000


def test_sglang_aborts_and_health_checks(tmp_path: Path) -> None:
    abort = {"finish_reason": {"type": "abort", "message": "gone"}, "prompt_tokens": None}
    stop = {"finish_reason": {"type": "stop", "matched": "abort"}}
    probe = metrics({"stream": False}, id="HEALTH_CHECK_17")
    obj = {"stream": True, "session_id": "sess-7f"}
    log = read_objects(tmp_path / "a.jsonl", metrics(obj, **abort), probe, metrics(obj, **stop))
    holds(only(log), "cache_write_tokens")
    assert rejected(log) == {"aborted_request": 1, "health_check": 1}


def test_the_real_sglang_log() -> None:
    path = REAL / "sglang_request_log" / "request_finished.jsonl"
    if not path.exists():
        pytest.skip("the folder of real logs is not here")
    log = read_log([str(path)])
    ttft = log.requests["ttft_us"].sort()
    assert (log.inputs[0].format, ttft.len(), ttft.null_count()) == ("sglang-metrics", 12, 0)
    assert (ttft[0], ttft[-1]) == (18_438, 299_233)
    assert ttft[5] <= 34_771 <= ttft[6] + 1
    assert log.requests["start"].min() == 1_778_044_319_041_562
    assert log.requests["cached_tokens"].sum() == 1772


# ---------------------------------------------------------------------- Ollama


def final(**other: Any) -> dict[str, Any]:
    return {
        "model": "chat-8b",
        "created_at": "2026-08-01T10:00:03.240Z",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "total_duration": 3_240_000_000,
        "load_duration": 41_000_000,
        "prompt_eval_count": 12000,
        "prompt_eval_duration": 700_000_000,
        "eval_count": 160,
        "eval_duration": 2_400_000_000,
        **other,
    }


UNKNOWN = ("cached_tokens", "cache_write_tokens", "session_id", "streamed")


def test_an_ollama_stream(tmp_path: Path) -> None:
    chunk: dict[str, Any] = {
        "model": "chat-8b",
        "created_at": "2026-08-01T10:00:00.84Z",
        "done": False,
    }
    chunk["message"] = {"content": "Sure"}
    log = read_objects(tmp_path / "a.jsonl", chunk, chunk, final())
    holds(
        only(log), *UNKNOWN, load_us=41_000, prefill_us=700_000, decode_us=2_400_000,
        vantage="server", model="chat-8b",
    )  # fmt: skip
    assert rejected(log) == {"not_final": 2}
    assert any("version" in note for note in log.notes)


def test_ollama_loads_and_failures(tmp_path: Path) -> None:
    load = {k: v for k, v in final().items() if not k.startswith(("total", "load", "eval"))}
    log = read_objects(
        tmp_path / "a.jsonl",
        load | {"done_reason": "load"},
        load | {"done_reason": "unload"},
        {"error": "model runner has unexpectedly stopped"},
        final(),
    )
    assert rejected(log) == {"load_call": 2, "failed_request": 1}


def test_ollama_leaves_out_what_is_zero(tmp_path: Path) -> None:
    absent = ("load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_duration")
    lean = {k: v for k, v in final().items() if k not in absent}
    log = read_objects(tmp_path / "a.jsonl", lean)
    row = only(log)
    assert [row[c] for c in ("load_us", "input_tokens", "prefill_us", "ttft_us")] == [None] * 4
    assert row["e2e_us"] == 3_240_000
    assert log.inputs[0].ttft_set_aside == {"ttft_missing": 1}


def test_the_real_ollama_response() -> None:
    path = REAL / "ollama" / "generate_response.jsonl"
    if not path.exists():
        pytest.skip("the folder of real logs is not here")
    log = read_log([str(path)])
    row = only(log)
    assert log.inputs[0].format == "ollama"
    assert row["ttft_us"] == (80_692_099_539 - 73_121_885_091) // 1000
    assert row["ttft_us"] > 7_200_000
    assert (row["load_us"], row["prefill_us"]) == (6_913_711, 315_556)
    assert row["input_tokens"] == 33
