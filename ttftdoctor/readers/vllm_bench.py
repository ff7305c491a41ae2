"""Results of ``vllm bench serve``, SGLang ``bench_serving`` and the TensorRT-LLM serving benchmark.

One JSON object a run, in one file or appended one after another, with an array a measurement: one
request is one place in all arrays. The arrays are written only with ``--save-detailed`` (vLLM,
TensorRT-LLM) or ``--output-details`` (SGLang); a file with the averages alone is refused.

The clock stood at the client and started when the request was really sent: a wait for one of
``--max-concurrency`` places is not in it. The result has no session, no request id and no prompt;
``start_times`` (newer vLLM) count from an unknown origin, and ``date`` is the local time at the end
of a run, so nothing is placed in wall time. The first prompt of a run was sent once before the run
to see whether the server is ready: with a prefix cache, request 0 is a hit. ``server_info``
(SGLang) is a dump of server arguments and is never read.
"""

from __future__ import annotations

import polars as pl

from ttftdoctor.errors import InputError
from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader, status_of
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field

_REALS = (
    "input_lens", "output_lens", "ttfts", "start_times", "latencies", "e2els", "cached_tokens",
    "queue_times", "server_queue_times", "server_ttfts",
)  # fmt: skip
_ARRAYS = (*_REALS, "itls", "errors")
#: Averages and settings that every run has; what is left are keys the user added.
_RESULTS = (
    "date", "duration", "completed", "failed", "num_prompts", "endpoint_type", "backend", "label",
    "model_id", "tokenizer_id", "burstiness", "total_input_tokens", "total_output_tokens",
    "total_output_tokens_retokenized", "total_input_text_tokens", "total_input_vision_tokens",
    "request_goodput", "request_goodput:", "max_output_tokens_per_s", "max_concurrent_requests",
    "server_info", "cache_report", "accept_length", "concurrency", "generated_texts",
    "cached_tokens_details", "rps_change_events", "rtfx",
)  # fmt: skip
_RESULT_ENDS = ("_ms", "_throughput", "_retokenized", "_token", "_tokens")
#: Settings by which runs of one file differ.
_SETTINGS = ("request_rate", "max_concurrency")
_WARM_KEYS = ("type", "phase", "label", "tag")
_WARM = ("warmup", "warm-up", "warm_up")


def _is_detailed(head: Head) -> bool:
    return any(
        isinstance(r.get("ttfts"), list) and isinstance(r.get("input_lens"), list)
        for r in head.records
    )


def _is_sglang(head: Head) -> bool:
    signs = ("server_info", "random_range_ratio", "total_output_tokens_retokenized")
    return any(sign in head.columns for sign in signs)


def _recognise(head: Head) -> str | None:
    if _is_detailed(head):
        return tr("runs with the arrays ttfts and input_lens")
    averages = {"mean_ttft_ms", "median_ttft_ms"} & set(head.columns)
    if averages and {"completed", "duration"} <= set(head.columns):
        return tr("benchmark runs with averages only")
    return None


def _plan(head: Head, options: Options) -> Plan:
    del options
    if not _is_detailed(head):
        switch = "--output-details" if _is_sglang(head) else "--save-detailed"
        raise InputError(
            "the file holds the averages of benchmark runs, and no single request",
            where=head.path,
            why="there are keys such as median_ttft_ms, but no array ttfts",
            help=f"run the benchmark again with {switch}",
        )
    added = tuple(
        key
        for key in head.columns
        if key not in _RESULTS
        and key not in _ARRAYS
        and not key.endswith(_RESULT_ENDS)
        and not key.startswith(("probe_", "spec_decode_"))
        and not any(isinstance(r.get(key), (list, dict)) for r in head.records)
    )
    settings = tuple(dict.fromkeys((*_SETTINGS, *added)))
    warm = tuple(k for k in _WARM_KEYS if k in head.columns)
    names = ("model_id", *settings, *warm)
    schema = {
        **dict.fromkeys(names, pl.String),
        **dict.fromkeys(_REALS, pl.List(pl.Float64)),
        "itls": pl.List(pl.List(pl.Float64)),
        "errors": pl.List(pl.String),
    }
    sglang = _is_sglang(head)

    def convert(raw: Raw) -> Batch:
        return _convert(raw, settings, warm, sglang)

    return Plan(schema, convert, whole=True)


def _convert(raw: Raw, settings: tuple[str, ...], warm: tuple[str, ...], sglang: bool) -> Batch:
    runs = raw.frame
    have = [c for c in _ARRAYS if runs[c].list.len().fill_null(0).sum() > 0]
    size = pl.col("ttfts").list.len()
    alike = pl.all_horizontal(
        pl.lit(True),
        *(
            pl.col(c).is_null() | (pl.col(c).list.len() == 0) | (pl.col(c).list.len() == size)
            for c in have
        ),
    )
    warming = pl.any_horizontal(
        pl.lit(False), *(pl.col(c).str.to_lowercase().is_in(_WARM).fill_null(False) for c in warm)
    )
    needed = pl.col("ttfts").is_not_null() & pl.col("input_lens").is_not_null()
    runs = runs.with_columns(
        pl.when(~needed)
        .then(pl.lit("no_arrays"))
        .when(~alike | (pl.col("input_lens").list.len() != size))
        .then(pl.lit("arrays_differ"))
        .alias("run_reject"),
        warming.alias("warming"),
        # With several tokens a request and no gap between any, nothing was streamed.
        (
            (pl.col("itls").list.eval(pl.element().list.len()).list.sum() == 0)
            & (pl.col("output_lens").list.max() > 1)
        ).alias("unstreamed"),
    )
    whole = runs.filter(pl.col("run_reject").is_null()).with_columns(
        *(
            pl.when(pl.col(c).list.len() > 0)
            .then(pl.col(c))
            .otherwise(pl.lit(None, runs.schema[c].inner).repeat_by(size))  # type: ignore[attr-defined]
            .alias(c)
            for c in _ARRAYS
        )
    )
    single = whole.select(LINE, "model_id", "warming", "unstreamed", *_ARRAYS).explode(*_ARRAYS)
    # A run without requests explodes into one row of nulls.
    single = single.filter(pl.col("ttfts").is_not_null() | pl.col("input_lens").is_not_null())
    rows = Raw(single, raw.options)
    error = rows.text("errors")
    failed = (
        error.is_not_null()
        | (pl.col("ttfts") <= 0).fill_null(True)
        | (pl.col("output_lens") <= 0).fill_null(False)
    )
    named = status_of(error)
    chunks = pl.col("itls").list.len()
    ttft = rows.duration("ttfts", "s")
    gaps = (pl.col("itls").list.sum() * 1e6).round(0).cast(pl.Int64, strict=False)
    ends = [
        pl.when(pl.col(c) > 0).then(rows.duration(c, "s", strict=False))
        for c in ("latencies", "e2els")
    ]
    columns = {
        "start": rows.instant("start_times", "s"),
        "model": rows.text("model_id"),
        "input_tokens": rows.count("input_lens"),
        "cached_tokens": rows.count("cached_tokens", strict=False),
        "output_tokens": rows.count("output_lens"),
        "ttft_us": ttft,
        "e2e_us": pl.coalesce(*ends, ttft + gaps),
        "queue_us": rows.duration("server_queue_times", "s", strict=False),
        "prefill_us": rows.duration("server_ttfts", "s", strict=False),
        "status": pl.when(~failed)
        .then(pl.lit("ok"))
        .when(named.is_in(["rate_limited", "aborted"]))
        .then(named)
        .otherwise(pl.lit("error")),
        "streamed": pl.when("unstreamed").then(False).when(chunks > 0).then(True),
        "vantage": pl.lit("client"),
    }
    reject = pl.when("warming").then(pl.lit("warmup_run"))
    frame = rows.select(columns, reject=reject)
    refused = runs.filter(pl.col("run_reject").is_not_null()).select(
        LINE, pl.col("run_reject").alias("reject")
    )
    frame = pl.concat([frame, refused], how="diagonal").sort(LINE, maintain_order=True)
    return Batch(frame, _fields(have, sglang), _notes(runs, have, settings))


def _fields(have: list[str], sglang: bool) -> dict[str, Field]:
    why = mark("from sending to the first chunk; a wait for a place at the client is not in it")
    fields = {
        "ttft_us": Field("ttfts", "s", why),
        "input_tokens": Field("input_lens", "tokens", mark("the server's count where it sent one")),
        "output_tokens": Field("output_lens", "tokens", mark("the first token is counted")),
        "model": Field("model_id", "", mark("one model a run")),
        "status": Field(
            "errors, ttfts, output_lens", "", mark("failures keep their place"), "derived"
        ),
        "streamed": Field("itls", "", mark("a gap between chunks shows a stream"), "inferred"),
    }
    ends = [c for c in ("latencies", "e2els") if c in have]
    if ends:
        fields["e2e_us"] = Field(ends[0], "s", mark("from sending to the last chunk"))
    else:
        fields["e2e_us"] = Field(
            "ttfts + itls", "s", mark("first chunk and the gaps after"), "derived"
        )
    if "start_times" in have:
        fields["start"] = Field("start_times", "s", mark("a clock of unknown origin: no date"))
    if "cached_tokens" in have:
        because = mark("from --cache-report") if sglang else mark("as the server reported")
        fields["cached_tokens"] = Field("cached_tokens", "tokens", because)
    if "server_queue_times" in have:
        fields["queue_us"] = Field("server_queue_times", "s", mark("as the server reported"))
    if "server_ttfts" in have:
        fields["prefill_us"] = Field("server_ttfts", "s", mark("without the server's queue"))
    return fields


def _notes(runs: pl.DataFrame, have: list[str], settings: tuple[str, ...]) -> tuple[str, ...]:
    measured = runs.filter(~pl.col("warming") & pl.col("run_reject").is_null())
    notes = []
    if measured.height > 1:
        varied = [
            tr("{setting} ({n} values)", setting=key, n=measured[key].n_unique())
            for key in settings
            if measured[key].n_unique() > 1
        ]
        notes.append(
            tr(
                "the file holds {n} benchmark runs, which differ in {settings}; all are read as "
                "one log",
                n=measured.height,
                settings=tr(", ").join(varied) or tr("no setting that was saved"),
            )
        )
    if "queue_times" in have:
        notes.append(
            tr(
                "queue_times is the wait for a place at the benchmark client, not at the server; "
                "it is not used"
            )
        )
    if "start_times" not in have:
        notes.append(tr("the benchmark result has no start times: load at arrival cannot be told"))
    elif measured.height > 1:
        notes.append(
            tr("start_times of different runs lie on one clock only if one machine ran them")
        )
    return tuple(notes)


READER = Reader(
    "vllm-bench",
    "vllm bench serve, SGLang bench_serving and TensorRT-LLM benchmark results",
    (Shape.JSON,),
    _recognise,
    _plan,
    lacks=mark(
        "a benchmark result has no sessions and no prompts; single requests are in it only with "
        "--save-detailed (SGLang: --output-details, and --cache-report for cached tokens)"
    ),
)
