"""Where reusable work is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import (
    Bandwidth,
    BytesPerParam,
    Currency,
    Flops,
    Format,
    GpuHourPrice,
    Gpus,
    Lang,
    Logs,
    Map,
    MapFile,
    NoColor,
    Params,
    Prices,
    Provider,
    Query,
    Quiet,
    Since,
    Timezone,
    ToJson,
    Tokenizer,
    ToMarkdown,
    Unit,
    Until,
    Where,
)
from ttftdoctor.cli.output import clear_progress, distinct, hand_out, progress
from ttftdoctor.cli.values import (
    machine_of,
    manner,
    only_of,
    pairs_of,
    pricing_of,
    seconds_of,
    there,
    tokens_of,
    units_of,
)
from ttftdoctor.errors import UsageError
from ttftdoctor.language import speaking


def prefix(
    logs: Logs,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="Cached blocks live so long after use: 5min, 300s.")
    ] = None,
    cache_tokens: Annotated[
        str | None, typer.Option("--cache-tokens", help="Cache of a replica in tokens: 3M, 500k.")
    ] = None,
    cache_gb: Annotated[
        float | None, typer.Option("--cache-gb", help="Or in GB, with --kv-shape.")
    ] = None,
    kv_shape: Annotated[
        str | None,
        typer.Option(
            "--kv-shape", help="Model, or LAYERSxKV_HEADSxHEAD_SIZE[xBYTES]: 80x8x128, 80x8x128x1."
        ),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="Replicas, where the log names none.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="How one is chosen: round_robin, random, session_affinity, prefix_affinity or "
            "prefix_affinity_balanced.",
        ),
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option("--block-tokens", min=1, help="A hit is a multiple of so many.")
    ] = None,
    least_tokens: Annotated[
        int | None, typer.Option("--least-tokens", min=0, help="A hit is at least so many: 1024.")
    ] = None,
    ms_per_1k_tokens: Annotated[
        float | None,
        typer.Option("--ms-per-1k-tokens", help="What 1,000 computed tokens take, if no TTFT is."),
    ] = None,
    params: Params = None,
    flops: Flops = None,
    bandwidth: Bandwidth = None,
    bytes_per_param: BytesPerParam = 2.0,
    prices: Prices = False,
    provider: Provider = None,
    gpu_hour_price: GpuHourPrice = None,
    gpus: Gpus = None,
    currency: Currency = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="A saved /metrics page of the engine, to hold beside."),
    ] = None,
    metrics_before: Annotated[
        str | None,
        typer.Option("--metrics-before", help="The same page from when the log begins."),
    ] = None,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Quote the prompts' text where they break.")
    ] = False,
    tokenizer: Tokenizer = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Shared beginnings to show.")] = 10,
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    quiet: Quiet = False,
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say where reusable work is lost, rung by rung: expiry, capacity, routing, rounding.

    For example: ttftdoctor prefix requests.jsonl --ttl 5min --cache-tokens 3M

    What the log does not tell can be given: limits of the cache, replicas, what a token costs.
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        distinct({"--json": json_, "--markdown": markdown}, logs, [metrics, metrics_before])
        if cache_tokens is not None and cache_gb is not None:
            raise UsageError("--cache-tokens and --cache-gb: give one of them")
        if cache_gb is not None and not 0 < cache_gb < 1e9:
            raise UsageError("--cache-gb must be above zero")
        if metrics_before is not None and metrics is None:
            raise UsageError("--metrics-before needs --metrics")
        there("--tokenizer", tokenizer)
        machine = machine_of(params, flops, bandwidth, bytes_per_param)
        if machine is not None and ms_per_1k_tokens is not None:
            raise UsageError("--ms-per-1k-tokens and --params: give one of them")
        ttl_s, room = (
            seconds_of(ttl, "--ttl", "5min or 300s"),
            tokens_of(cache_tokens, "--cache-tokens"),
        )
        from ttftdoctor.prefixes.flow import prefix as run

        found = run(
            *logs,
            ttl_s=ttl_s,
            cache_tokens=room,
            cache_gb=cache_gb,
            kv=kv_shape,
            replicas=replicas,
            policy=policy,
            block_tokens=block_tokens,
            least_tokens=least_tokens,
            ms_per_1k_tokens=ms_per_1k_tokens,
            machine=machine,
            pricing=pricing_of(prices, provider, gpu_hour_price, gpus, currency),
            metrics=metrics,
            metrics_before=metrics_before,
            show_text=show_text,
            top=top,
            format=format,
            columns=pairs_of(map_, "--map"),
            units=units_of(unit),
            tokenizer=tokenizer,
            only=only_of(since, until, where, query),
            progress=progress(quiet),
        )
        clear_progress(quiet)
        from ttftdoctor.prefixes import markdown as in_markdown
        from ttftdoctor.prefixes.terminal import print_to
        from ttftdoctor.report import json_report

        forms: dict[str, Callable[[], str]] = {
            "json": lambda: json_report.text_of(found.to_dict()),
            "markdown": lambda: in_markdown.render(found),
        }
        hand_out(
            {"json": json_, "markdown": markdown},
            lambda name: forms[name](),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip
