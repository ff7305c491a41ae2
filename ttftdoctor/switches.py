"""How each column comes into a log: the switch of the stack that writes it, format by format.

One table for all formats. What a format can say, but does not by itself, has its switch; what it
can never say is named as such, and where else to look stands once for all formats.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttftdoctor.language import mark, tr


@dataclass(frozen=True)
class Switch:
    """What to do for a column. ``possible``: this format can hold it."""

    column: str
    possible: bool
    text: str


#: Cached tokens that whoever writes the log takes over from the server's answer.
_SERVER = mark(
    "have the server report them (vLLM --enable-prompt-tokens-details, "
    "SGLang --enable-cache-report)"
)
_STREAMS = mark("only streamed calls have one: stream=True")
_SPAN = mark("only spans of an engine have it: vLLM with --otlp-traces-endpoint")
_TRT = mark("the request trace has it: TRTLLM_REQUEST_TRACE_DIR")

_THINKS = mark("only of models that think, where their usage counts it")
_PROVIDER = mark(
    "the provider's usage must count them; own servers: vLLM --enable-prompt-tokens-details"
)
_TEXT = mark("leave the prompts in the log: blocks are cut from their text")

#: Where else a column can be had, if this format cannot say it.
ELSEWHERE: dict[str, str] = {
    "request_id": mark("send one (X-Request-Id) and log it at the client or gateway"),
    "session_id": mark("have the client or a gateway log one with each request"),
    "turn": mark("nothing to switch on: turns are counted from session_id and start"),
    "start": mark("log when each request was sent, at the client, a gateway or the engine"),
    "model": mark("read one file a model, or log it at the client or gateway"),
    "replica": mark("log at the gateway or balancer which server answered (its upstream)"),
    "tenant": mark("log the customer, team or key at the gateway"),
    "route": mark("log the path at the gateway"),
    "version": mark("log the build with each request, or read one file a build"),
    "input_tokens": mark("log the usage of the answers (stream_options.include_usage for streams)"),
    "cached_tokens": mark(
        "log the usage of the answers; have the server report them "
        "(vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report)"
    ),
    "cache_write_tokens": mark(
        "log the usage of the answers, of providers that count what they write"
    ),
    "output_tokens": mark(
        "log the usage of the answers (stream_options.include_usage for streams)"
    ),
    "reasoning_tokens": mark("log the usage of the answers, of models that count hidden thinking"),
    "ttft_us": mark("measure it at the client or a gateway, on streamed answers"),
    "e2e_us": mark("log how long each request took, at the client or a gateway"),
    "queue_us": mark(
        "read the engine's own record: vLLM --otlp-traces-endpoint, SGLang --enable-metrics"
    ),
    "prefill_us": mark(
        "read the engine's own record: vLLM --otlp-traces-endpoint, SGLang --enable-metrics"
    ),
    "decode_us": mark("read the engine's own record: vLLM --otlp-traces-endpoint"),
    "load_us": mark("only Ollama logs how long it loaded a model (load_duration)"),
    "attempts": mark("log the number of tries at the client or gateway"),
    "status": mark("log the outcome at the client or gateway"),
    "streamed": mark("log at the client or gateway whether a stream was asked for"),
    "prefix_blocks": mark(
        "log prompts, token ids or block hashes: SGLang --log-requests --log-requests-level 3, "
        "Dynamo DYN_REQUEST_TRACE=1, or messages at the client or gateway"
    ),
    "block_tokens": mark("comes with prefix_blocks"),
    "vantage": mark('say where the clock stood in a mapping file: [constant] vantage = "client"'),
}

#: By format: columns (apart by spaces) to what makes the format hold them. A column that is in
#: neither this nor ``NEVER`` is in every usual log of the format.
SWITCHES: dict[str, dict[str, str]] = {
    "aibrix": {
        "ttft_us": mark("run the client with --streaming"),
        "prefix_blocks block_tokens": _TEXT,
    },
    "aiperf": {
        "cached_tokens": _SERVER,
        "reasoning_tokens": mark("the server's usage must count them"),
        "ttft_us streamed": mark("run aiperf with --streaming"),
        "cache_write_tokens": mark("the server's usage must count them"),
    },
    "apisix": {
        "ttft_us": mark("stream the answers, with logging.summaries: true on ai-proxy"),
        "tenant": mark("name consumers (an authentication plugin) or send an end-user id"),
        "reasoning_tokens": _THINKS,
        "cached_tokens": _PROVIDER,
    },
    "bedrock": {
        "ttft_us e2e_us": mark("call InvokeModelWithResponseStream, with text data delivery on"),
        "prefix_blocks block_tokens": mark(
            "turn text data delivery on: blocks are cut from prompts"
        ),
        "session_id": mark("attach requestMetadata with a session to each call"),
        "cached_tokens cache_write_tokens": mark(
            "only of models with prompt caching, in calls that ask for it"
        ),
    },
    "braintrust": {
        "ttft_us": mark("wrap the client and call it with stream=True"),
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("log a session in the metadata"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "cloudflare": {
        "session_id": mark("send cf-aig-metadata with a session"),
    },
    "datadog": {
        "ttft_us": mark(
            "run vLLM under ddtrace-run with DD_LLMOBS_ENABLED=1, or call through LiteLLM"
        ),
        "queue_us prefill_us decode_us": mark(
            "run vLLM under ddtrace-run with DD_LLMOBS_ENABLED=1"
        ),
        "reasoning_tokens": _THINKS,
        "session_id": mark("set session_id on the spans, or a tag of that name"),
        "cached_tokens": _PROVIDER,
    },
    "dynamo": {
        "session_id ttft_us e2e_us queue_us cached_tokens": mark(
            "send X-Dynamo-Session-ID with each request: rows without have no times"
        ),
        "replica": mark("rows without the header X-Dynamo-Session-ID name no worker"),
        "route streamed": mark("the frontend's own log says it: DYN_LOGGING_JSONL=true"),
    },
    "envoy": {
        "ttft_us": mark(
            "stream the answers, and log token_latency_ttft: "
            "%DYNAMIC_METADATA(io.envoy.ai_gateway:token_latency_ttft)%"
        ),
        "cache_write_tokens reasoning_tokens": mark(
            "add the gateway's metadata of it to the format"
        ),
        "attempts": mark(
            "add upstream_request_attempt_count: %UPSTREAM_REQUEST_ATTEMPT_COUNT% to the format"
        ),
        "session_id": mark(
            "add a header that the client sends to the format: session_id: %REQ(X-SESSION-ID)%"
        ),
        "cached_tokens": _PROVIDER,
    },
    "evalscope": {"ttft_us": mark("run evalscope perf with --stream")},
    "genai-bench": {
        "ttft_us streamed": mark("failed requests have none"),
        "reasoning_tokens": _THINKS,
    },
    "genai-perf": {
        "cached_tokens": mark(
            "have the server report them (vLLM --enable-prompt-tokens-details, "
            "SGLang --enable-cache-report), and ask for usage: "
            "--extra-inputs stream_options:'{\"include_usage\":true}'"
        ),
        "ttft_us": mark("run genai-perf with --streaming"),
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("only multi-turn runs have sessions"),
    },
    "guidellm": {
        "cached_tokens": mark(
            "from 0.4 on: have the server report them (vLLM --enable-prompt-tokens-details, "
            "SGLang --enable-cache-report)"
        ),
        "ttft_us": mark("only streamed requests that ended well have one"),
        "session_id turn": mark("only newer reports of multi-turn data have conversations"),
    },
    "helicone": {
        "input_tokens output_tokens": mark("streams need stream_options.include_usage"),
        "cached_tokens cache_write_tokens ttft_us": mark(
            "export as JSON lines, not CSV: npx @helicone/export --format jsonl"
        ),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": mark("export the bodies: --format jsonl --include-body"),
        "session_id": mark("send the header Helicone-Session-Id"),
    },
    "higress": {
        "ttft_us": mark("ai-statistics plugin with use_default_attributes: true"),
        "reasoning_tokens": _THINKS,
        "session_id": mark(
            "ai-statistics plugin, with the header of the session that it is told to take"
        ),
        "cached_tokens": mark("ai-statistics plugin with use_default_attributes: true"),
    },
    "inference-perf": {
        "cached_tokens": _SERVER,
        "ttft_us": mark("only streamed requests that ended well have one"),
        "prefix_blocks block_tokens": _TEXT,
    },
    "jaeger": {
        "ttft_us": mark(
            "the instrumentation must set gen_ai.response.time_to_first_chunk, or a first-token "
            "event, on spans of streamed calls"
        ),
        "streamed": mark("the instrumentation must set gen_ai.request.stream"),
        "route": mark("set server.address on the spans"),
        "reasoning_tokens": mark("set gen_ai.usage.reasoning.output_tokens on the spans"),
        "queue_us": _SPAN,
        "session_id": mark("set gen_ai.conversation.id (or session.id) on the spans"),
        "cached_tokens": mark("set gen_ai.usage.cache_read.input_tokens on the spans"),
        "cache_write_tokens": mark("set gen_ai.usage.cache_creation.input_tokens on the spans"),
    },
    "k6": {
        "model": mark("tag the points of the test with model"),
        "cached_tokens": mark(
            "add a Trend named cached_tokens, with a tag request_id on its points"
        ),
    },
    "kong": {
        "ttft_us": mark("Kong 3.12 with logging.log_statistics=true on the AI plugin"),
        "reasoning_tokens": _THINKS,
        "cached_tokens": _PROVIDER,
    },
    "kv-cache-tester": {
        "ttft_us": mark("requests that failed have none"),
        "session_id turn streamed": mark("only a replayed trace has it"),
        "request_id": mark("only tests of single prompts and cache rates number their requests"),
    },
    "langfuse": {
        "ttft_us": mark("the integration must set completion_start_time on streamed generations"),
        "version": mark("set version or release on the trace"),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("set session_id, and export observations_v2 or the API, not the page"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "langsmith": {
        "ttft_us": mark("stream the calls (streaming=True): only then first_token_time is set"),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("set thread_id or session_id in the metadata of a run"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "length-traces": {
        "session_id model route e2e_us": mark("only BurstGPT's trace has it"),
        "request_id status": mark("only some of these traces have it"),
    },
    "lightllm": {
        "session_id": mark("send the header X-Session-Id"),
        "ttft_us": mark("requests without any token have none"),
    },
    "litellm": {
        "ttft_us streamed": _STREAMS,
        "route": mark("leave api_base in the payload"),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": mark(
            "leave messages in the log (no turn_off_message_logging)"
        ),
        "session_id": mark("send a session with each call; without, LiteLLM makes up one a call"),
        "cached_tokens": _SERVER,
        "cache_write_tokens": _PROVIDER,
    },
    "llamacpp": {
        "start input_tokens cached_tokens ttft_us prefill_us e2e_us": mark(
            "run llama-server with -lv 4 --log-timestamps --log-prefix"
        ),
        "streamed": mark("only chunks of a stream that were kept say so"),
    },
    "llm-load-test": {"ttft_us": mark("streaming: true in plugin_options")},
    "lmdeploy": {"start e2e_us": mark("run the server with --log-level INFO")},
    "locust": {
        "ttft_us output_tokens": mark("the test must stream"),
        "streamed": mark("the test must stream"),
    },
    "mlflow": {
        "ttft_us": mark("stream=True under autologging records mlflow.chunk.item.0"),
        "session_id": mark("set mlflow.trace.session in the metadata of the trace"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "mooncake": {
        "request_id session_id turn": mark("only traces that name a chat or a session have it"),
    },
    "ollama-log": {
        "input_tokens cached_tokens output_tokens ttft_us prefill_us decode_us": mark(
            "Ollama 0.30 or newer logs its engine's timings; before, OLLAMA_DEBUG=1 logs what of "
            "a prompt was cached"
        ),
    },
    "openrouter": {
        "ttft_us": mark("export the activity page as CSV, and stream the calls"),
        "session_id": mark("send session_id with each request"),
        "cached_tokens": _PROVIDER,
    },
    "opik": {
        "ttft_us": mark("the integration must set ttft on spans of streamed calls"),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("set thread_id on the trace"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "otlp": {
        "session_id": mark("set gen_ai.conversation.id (or session.id) on the spans"),
        "model": mark("set gen_ai.request.model: vLLM's own spans name no model"),
        "replica": mark("set service.instance.id on the resource (OTEL_RESOURCE_ATTRIBUTES)"),
        "version": mark("set service.version on the resource (OTEL_RESOURCE_ATTRIBUTES)"),
        "route": mark("set server.address on the spans"),
        "reasoning_tokens": mark("set gen_ai.usage.reasoning.output_tokens on the spans"),
        "prefix_blocks block_tokens": mark(
            "record what was sent (gen_ai.input.messages): "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true in many instrumentations"
        ),
        "cached_tokens": mark(
            "set gen_ai.usage.cache_read.input_tokens; vLLM's spans never have it: log the usage "
            "at the client, with vLLM --enable-prompt-tokens-details"
        ),
        "cache_write_tokens": mark("set gen_ai.usage.cache_creation.input_tokens"),
        "queue_us prefill_us decode_us": _SPAN,
        "attempts": mark("set http.request.resend_count on the spans"),
        "streamed": mark("set gen_ai.request.stream on the spans"),
        "ttft_us": mark("set gen_ai.response.time_to_first_chunk on spans of streamed calls"),
    },
    "phoenix": {
        "ttft_us": mark(
            "stream=True, with an instrumentation that sends First Token Stream Event (OpenAI, "
            "Mistral, LlamaIndex)"
        ),
        "reasoning_tokens": _THINKS,
        "session_id": mark("set session.id on the spans"),
        "cached_tokens cache_write_tokens": _PROVIDER,
    },
    "portkey": {
        "cache_write_tokens": mark("export the field response, whose usage counts them"),
        "prefix_blocks block_tokens": mark(
            "export the field request: blocks are cut from its text"
        ),
        "session_id": mark("send metadata with a session"),
        "cached_tokens": mark("export the field response, whose usage counts them"),
    },
    "sglang-log": {
        "session_id": mark("send session_id, conversation_id or the header X-SMG-Routing-Key"),
        "ttft_us queue_us prefill_us": mark(
            "start SGLang with --enable-metrics beside --log-requests"
        ),
        "streamed": mark("the engine's own lines do not say; --log-requests does"),
        "cached_tokens": mark("start SGLang with --log-requests"),
        "prefix_blocks block_tokens": mark(
            "--log-requests --log-requests-level 3 logs whole prompts"
        ),
    },
    "sglang-metrics": {
        "session_id": mark("send session_id, conversation_id or the header X-SMG-Routing-Key"),
        "ttft_us queue_us prefill_us": mark(
            "start SGLang with --enable-metrics beside --export-metrics-to-file"
        ),
        "prefix_blocks block_tokens": mark(
            "leave prompts in request_parameters: no --log-requests"
        ),
    },
    "tgi": {
        "streamed": mark("only chat routes say it"),
        "e2e_us queue_us": mark("run the router at log level INFO"),
    },
    "trtllm": {
        "replica": mark("only servers that prefill for others name themselves (ctx_server)"),
        "ttft_us queue_us prefill_us e2e_us": mark(
            "return_perf_metrics: true and perf_metrics_max_requests above 0 in the YAML"
        ),
    },
    "vllm-bench": {
        "cached_tokens": mark("only SGLang's bench has them: --output-details --cache-report"),
        "queue_us prefill_us": mark(
            "from vLLM 0.33 on: start the server with --enable-per-request-metrics"
        ),
    },
    "vllm-engine": {
        "session_id": mark("log the client's own id beside vLLM's figures"),
        "cached_tokens": mark("start vLLM with --enable-prompt-tokens-details"),
        "ttft_us queue_us prefill_us decode_us": mark(
            "start vLLM with --enable-per-request-metrics, and ask for stream_options.include_usage"
        ),
        "streamed": mark("only the chunks of a stream say so"),
    },
    "vllm-log": {
        "input_tokens cached_tokens": mark(
            "LMCache's lines have them; else only the ids of a prompt"
        ),
        "e2e_us": mark("start vLLM with --enable-log-requests --enable-log-outputs"),
        "prefix_blocks block_tokens": mark(
            "start vLLM with --enable-log-requests (from 0.33 on with VLLM_LOGGING_LEVEL=DEBUG)"
        ),
        "session_id": mark("send session_id in the body, with VLLM_REQUEST_BODY_LOG_LEVEL=INFO"),
    },
    "vllm-multiturn": {"ttft_us": mark("stream: without, the first token is the whole answer")},
    "weave": {
        "ttft_us": mark(
            "only streamed OpenAI calls have one: stream=True with stream_options.include_usage"
        ),
        "cache_write_tokens": mark("only some providers count what they write"),
        "reasoning_tokens": _THINKS,
        "prefix_blocks block_tokens": _TEXT,
        "session_id": mark("set a thread (weave.thread) around the calls"),
        "cached_tokens": _PROVIDER,
    },
    "weka": {
        "ttft_us": mark(
            "replay the trace (kv-cache-tester trace_replay_tester.py): only some have one"
        ),
    },
}

#: By format: the columns that it can never have.
NEVER: dict[str, str] = {
    "aibrix": (
        "model tenant route version cached_tokens cache_write_tokens reasoning_tokens queue_us "
        "prefill_us decode_us load_us attempts streamed"
    ),
    "aiperf": (
        "model replica tenant route version queue_us prefill_us decode_us load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "apisix": (
        "session_id version queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "azure-openai": (
        "session_id replica tenant input_tokens cached_tokens cache_write_tokens output_tokens "
        "reasoning_tokens ttft_us queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "bedrock": "tenant version reasoning_tokens queue_us prefill_us decode_us load_us attempts",
    "braintrust": (
        "replica tenant route version queue_us prefill_us decode_us load_us attempts streamed"
    ),
    "burstgpt-replay": (
        "session_id model replica tenant route version cached_tokens cache_write_tokens "
        "output_tokens reasoning_tokens queue_us prefill_us decode_us load_us attempts status "
        "streamed prefix_blocks block_tokens"
    ),
    "claude-code": (
        "replica tenant route reasoning_tokens ttft_us e2e_us queue_us prefill_us decode_us "
        "load_us attempts streamed prefix_blocks block_tokens"
    ),
    "cloudflare": (
        "replica tenant version cached_tokens cache_write_tokens reasoning_tokens ttft_us "
        "queue_us prefill_us decode_us load_us streamed prefix_blocks block_tokens"
    ),
    "codex": (
        "request_id replica tenant cache_write_tokens ttft_us e2e_us queue_us prefill_us "
        "decode_us load_us attempts streamed prefix_blocks block_tokens"
    ),
    "datadog": "replica route version load_us attempts streamed prefix_blocks block_tokens",
    "dynamo": (
        "tenant version cache_write_tokens reasoning_tokens prefill_us decode_us load_us attempts"
    ),
    "envoy": (
        "tenant version queue_us prefill_us decode_us load_us streamed prefix_blocks block_tokens"
    ),
    "evalscope": (
        "session_id model replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "fmperf": (
        "session_id model replica tenant route version input_tokens cached_tokens "
        "cache_write_tokens reasoning_tokens queue_us prefill_us decode_us load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "genai-bench": (
        "request_id session_id start model replica tenant route version cached_tokens "
        "cache_write_tokens queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "genai-perf": (
        "request_id replica tenant route version cache_write_tokens reasoning_tokens queue_us "
        "prefill_us decode_us load_us attempts"
    ),
    "guidellm": (
        "replica tenant route version cache_write_tokens reasoning_tokens queue_us prefill_us "
        "decode_us load_us attempts streamed prefix_blocks block_tokens"
    ),
    "helicone": "replica tenant version queue_us prefill_us decode_us load_us attempts streamed",
    "higress": (
        "tenant version cache_write_tokens queue_us prefill_us decode_us load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "inference-perf": (
        "request_id session_id model replica tenant route version cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts streamed"
    ),
    "jaeger": (
        "replica tenant version prefill_us decode_us load_us attempts prefix_blocks block_tokens"
    ),
    "k6": (
        "session_id replica tenant route version cache_write_tokens reasoning_tokens queue_us "
        "prefill_us decode_us load_us attempts streamed prefix_blocks block_tokens"
    ),
    "kong": (
        "session_id version cache_write_tokens queue_us prefill_us decode_us load_us "
        "prefix_blocks block_tokens"
    ),
    "kv-cache-tester": (
        "model replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "langfuse": "replica tenant route queue_us prefill_us decode_us load_us attempts streamed",
    "langsmith": "replica route version queue_us prefill_us decode_us load_us attempts streamed",
    "length-traces": (
        "replica tenant version cached_tokens cache_write_tokens reasoning_tokens "
        "ttft_us queue_us prefill_us decode_us load_us attempts streamed prefix_blocks "
        "block_tokens vantage"
    ),
    "lightllm": (
        "model replica tenant route version cache_write_tokens reasoning_tokens queue_us "
        "prefill_us decode_us load_us attempts streamed prefix_blocks block_tokens"
    ),
    "litellm": "version queue_us prefill_us decode_us load_us attempts",
    "llamacpp": (
        "session_id replica tenant route cache_write_tokens reasoning_tokens load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "llm-load-test": (
        "request_id session_id model replica tenant route version cached_tokens "
        "cache_write_tokens reasoning_tokens queue_us prefill_us decode_us load_us attempts "
        "streamed prefix_blocks block_tokens"
    ),
    "llmperf": (
        "request_id session_id start model replica tenant route version cached_tokens "
        "cache_write_tokens reasoning_tokens queue_us prefill_us decode_us load_us attempts "
        "streamed prefix_blocks block_tokens"
    ),
    "lmdeploy": (
        "session_id model replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens ttft_us queue_us prefill_us decode_us load_us attempts streamed "
        "prefix_blocks block_tokens"
    ),
    "locust": (
        "request_id session_id start model replica tenant route version input_tokens "
        "cached_tokens cache_write_tokens reasoning_tokens queue_us prefill_us decode_us load_us "
        "attempts status prefix_blocks block_tokens"
    ),
    "mlflow": (
        "replica tenant route version reasoning_tokens queue_us prefill_us decode_us load_us "
        "attempts streamed prefix_blocks block_tokens"
    ),
    "mlperf-loadgen": (
        "session_id model replica tenant route version input_tokens cached_tokens "
        "cache_write_tokens output_tokens reasoning_tokens queue_us prefill_us decode_us load_us "
        "attempts status streamed prefix_blocks block_tokens"
    ),
    "mooncake": (
        "model replica tenant route version cached_tokens cache_write_tokens reasoning_tokens "
        "ttft_us e2e_us queue_us prefill_us decode_us load_us attempts status streamed vantage"
    ),
    "multi-round-qa": (
        "request_id model replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts prefix_blocks "
        "block_tokens"
    ),
    "ollama": (
        "request_id session_id replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us attempts streamed prefix_blocks block_tokens"
    ),
    "ollama-log": (
        "request_id session_id model replica tenant version cache_write_tokens reasoning_tokens "
        "queue_us load_us attempts streamed prefix_blocks block_tokens"
    ),
    "openrouter": (
        "route version cache_write_tokens queue_us prefill_us decode_us load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "opik": "replica version queue_us prefill_us decode_us load_us attempts streamed",
    "otlp": "tenant load_us",
    "phoenix": (
        "replica tenant route version queue_us prefill_us decode_us load_us attempts streamed "
        "prefix_blocks block_tokens"
    ),
    "portkey": "replica version reasoning_tokens ttft_us queue_us prefill_us decode_us load_us",
    "sglang-log": "model tenant route version cache_write_tokens decode_us load_us attempts",
    "sglang-metrics": "model tenant route version cache_write_tokens decode_us load_us attempts",
    "tgi": (
        "request_id session_id model replica tenant version input_tokens cached_tokens "
        "cache_write_tokens reasoning_tokens ttft_us prefill_us decode_us load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "trtllm": (
        "session_id model tenant route version input_tokens cached_tokens cache_write_tokens "
        "output_tokens reasoning_tokens load_us attempts streamed prefix_blocks block_tokens"
    ),
    "vllm-bench": (
        "request_id session_id replica tenant route version cache_write_tokens reasoning_tokens "
        "decode_us load_us attempts prefix_blocks block_tokens"
    ),
    "vllm-engine": (
        "replica tenant route version cache_write_tokens reasoning_tokens load_us attempts "
        "prefix_blocks block_tokens"
    ),
    "vllm-log": (
        "model replica tenant route version cache_write_tokens output_tokens reasoning_tokens "
        "ttft_us queue_us prefill_us decode_us load_us attempts"
    ),
    "vllm-multiturn": (
        "request_id model replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts status prefix_blocks "
        "block_tokens"
    ),
    "weave": "replica tenant version queue_us prefill_us decode_us load_us attempts streamed",
    "weka": (
        "request_id replica tenant route version cached_tokens cache_write_tokens "
        "reasoning_tokens queue_us prefill_us decode_us load_us attempts status"
    ),
}

#: By format: where to look instead for what it can never have, if there is a better place.
INSTEAD: dict[str, dict[str, str]] = {
    "claude-code": {
        "ttft_us e2e_us": mark(
            "CLAUDE_CODE_ENABLE_TELEMETRY=1 with OTEL_LOGS_EXPORTER=otlp and a collector that "
            "writes a file gives ttft_ms a request: read that one"
        ),
    },
    "codex": {
        "ttft_us e2e_us": mark(
            "set base_url of a [model_providers.NAME] in config.toml to a gateway that logs it"
        ),
    },
    "length-traces": {"ttft_us": mark("replay the trace against a server and read that log")},
    "mooncake": {
        "ttft_us e2e_us": mark(
            "replay the trace (aiperf profile --custom-dataset-type mooncake_trace) and read the "
            "result"
        ),
    },
    "ollama": {
        "cached_tokens": mark("OLLAMA_DEBUG=1 writes it into the server's log: read that one")
    },
    "trtllm": {"session_id input_tokens output_tokens": _TRT},
    "vllm-log": {
        "ttft_us queue_us prefill_us decode_us": mark(
            "send spans (--otlp-traces-endpoint), or keep the answers of a server with "
            "--enable-per-request-metrics"
        ),
    },
    "vllm-multiturn": {
        "cached_tokens": mark(
            "start vLLM with --enable-prompt-tokens-details and log the usage of the answers"
        ),
    },
}

#: Formats that name their fields as they like: whatever is written into them can be read.
OPEN = ("flat",)


def switch_for(format: str, column: str) -> Switch | None:
    """How a column comes into logs of a format; None if there is no such column.

    >>> switch_for("vllm-engine", "cached_tokens").text
    'start vLLM with --enable-prompt-tokens-details'
    >>> switch_for("tgi", "ttft_us").possible
    False
    """
    if column not in ELSEWHERE:
        return None
    told = _told(SWITCHES, format, column)
    if told is not None:
        return Switch(column, True, tr(told))
    if column in NEVER.get(format, "").split():
        return Switch(column, False, tr(_told(INSTEAD, format, column) or ELSEWHERE[column]))
    return Switch(column, True, tr(ELSEWHERE[column]))


def _told(table: dict[str, dict[str, str]], format: str, column: str) -> str | None:
    for columns, text in table.get(format, {}).items():
        if column in columns.split():
            return text
    return None


def sentence(format: str, switch: Switch) -> str:
    """What to do, with what the format cannot say before it."""
    if switch.possible:
        return switch.text
    return tr("{format} cannot say; {text}", format=format, text=switch.text)
