"""The command line: arguments in, text and an exit code out. Nothing heavy is imported here."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

try:
    import typer
except KeyboardInterrupt:
    raise SystemExit(130) from None

from ttftdoctor.errors import TTFTDoctorError, UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from ttftdoctor.choose import Only

EXIT_CODES = """Exit codes: 0 the work was done (whatever the verdict); 2 wrong usage, or a log that
could not be read, or a report that could not be written; 3 something went wrong inside ttftdoctor;
130 interrupted."""

GATE_CODES = """Exit codes: 0 pass (or inconclusive, unless the policy is strict); 1 regression; 2
wrong usage, or a log, baseline or policy that could not be read, or a report that could not be
written; 3 inconclusive under a strict policy; 4 invalid: the two sides cannot be compared; 70
something went wrong inside ttftdoctor; 130 interrupted."""

app = typer.Typer(
    name="ttftdoctor",
    help="Says why the first token of an LLM service is late, from its request log.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Logs = Annotated[
    list[str],
    typer.Argument(
        help="Files, globs, folders, addresses (s3://, https://, postgresql://, ...), or - for "
        "standard input.",
        metavar="LOG...",
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Name of the log's format (see: formats).")
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="COLUMN=FIELD: which field holds a column, e.g. ttft_us=first."),
]
Unit = Annotated[
    list[str] | None,
    typer.Option("--unit", help="FIELD=UNIT: unit of a duration (ns, us, ms, s), e.g. first=ms."),
]
MapFile = Annotated[
    str | None,
    typer.Option("--mapping", help="A mapping file: fields, units and stamps of a flat log."),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        help="Zone of stamps that carry none, such as Europe/Berlin; reports show times in it.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only rows from then on: a date, a time (UTC or --timezone), 14:00 on the last day, "
        "or 2h before the end.",
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Only rows before then, as --since.")]
Where = Annotated[
    str | None,
    typer.Option("--where", help="Only rows such as 'model == \"x\" and input > 4000'."),
]
Query = Annotated[
    str | None, typer.Option("--query", help="What a database is asked: 'select ...'.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ToHtml = Annotated[
    str | None, typer.Option("--html", help="Write one page that opens offline, or - .")
]
ToJson = Annotated[
    str | None, typer.Option("--json", help="Write the answer as JSON to a file, or - .")
]
ToMarkdown = Annotated[
    str | None, typer.Option("--markdown", help="Write Markdown to a file, or - .")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="A local tokenizer.json, for exact blocks.")
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress; no report on screen if a file is written."),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text without colour.")]
Params = Annotated[
    float | None, typer.Option("--params", help="Parameters of the model, e.g. 7e9.")
]
Flops = Annotated[float | None, typer.Option("--flops", help="Peak FLOP/s, e.g. 312e12.")]
Bandwidth = Annotated[
    float | None, typer.Option("--bandwidth", help="Memory bandwidth in bytes/s, e.g. 2e12.")
]
BytesPerParam = Annotated[float, typer.Option("--bytes-per-param", help="Bytes a parameter.")]
Prices = Annotated[
    bool, typer.Option("--prices", help="Put waste and gains in money, by list prices.")
]
Provider = Annotated[
    str | None, typer.Option("--provider", help="Whose list prices, e.g. anthropic.")
]
GpuHourPrice = Annotated[
    float | None, typer.Option("--gpu-hour-price", help="Or by what a GPU costs an hour.")
]
Gpus = Annotated[float | None, typer.Option("--gpus", help="GPUs of a replica; 1 if not given.")]
Currency = Annotated[
    str | None, typer.Option("--currency", help="Label of the money; USD if not given.")
]


def _page_names(incomplete: str) -> list[tuple[str, str]]:
    """The manual's pages for the shell: what begins with what was typed, with titles."""
    from ttftdoctor.manual import pages

    return [(page.id, page.title) for page in pages() if page.id.startswith(incomplete)]


def _version(value: bool) -> None:
    if value:
        from ttftdoctor.run import tool_version

        typer.echo(f"ttftdoctor {tool_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Says why the first token of an LLM service is late, from its request log."""


@app.command(epilog=EXIT_CODES)
def diagnose(
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
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    html: ToHtml = None,
    png: Annotated[
        str | None, typer.Option("--png", help="Write the charts as images into this folder.")
    ] = None,
    csv: Annotated[
        str | None, typer.Option("--csv", help="Write each table as CSV into this folder.")
    ] = None,
    openmetrics: Annotated[
        str | None,
        typer.Option("--openmetrics", help="Write metrics for Prometheus to a .prom file, or - ."),
    ] = None,
    compact_to: Annotated[
        int, typer.Option("--compact-to", min=1, help="Tokens a compacted history is cut to.")
    ] = 8000,
    slo_ttft: Annotated[
        str | None, typer.Option("--slo-ttft", help="Target for TTFT, e.g. 800ms or 1.5s.")
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
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Say why TTFT is what it is: cause, evidence, certainty, and what each remedy would gain.

    For example: ttftdoctor diagnose requests.jsonl --html report.html

    Or, from a pipe: zcat requests.jsonl.gz | ttftdoctor diagnose - --json -

    Or, for a spreadsheet: ttftdoctor diagnose requests.jsonl --csv tables
    """
    with _guard(), _manner(mapping, timezone):
        _distinct(
            {"--json": json_, "--markdown": markdown, "--html": html, "--openmetrics": openmetrics,
             **_csv_targets(csv), **_png_targets(png)},
            logs,
        )  # fmt: skip
        from ttftdoctor.run import diagnose as run

        _load_beside()
        diagnosis = run(
            *logs,
            format=format,
            columns=_pairs(map_, "--map"),
            units=_units(unit),
            compact_to=compact_to,
            slo_ttft_s=_seconds(slo_ttft, "--slo-ttft", "800ms or 1.5s"),
            machine=_machine(params, flops, bandwidth, bytes_per_param),
            pricing=_pricing(prices, provider, gpu_hour_price, gpus, currency),
            only=_only(since, until, where, query),
            progress=_progress(quiet),
            draw=any(target is not None for target in (html, csv, png)),
        )
        _clear_progress(quiet)
        from ttftdoctor.catalog import renderers
        from ttftdoctor.local_time import in_zone
        from ttftdoctor.report.terminal import print_to

        seen = in_zone(diagnosis, timezone)
        _hand_out(
            {"json": json_, "markdown": markdown, "html": html},
            lambda name: renderers()[name].render(diagnosis if name == "json" else seen),
            lambda console: print_to(console, seen),
            quiet=quiet, no_color=no_color,
            beside=[*_write_beside(diagnosis, csv, openmetrics), *_write_images(diagnosis, png)],
        )  # fmt: skip


@app.command(epilog=EXIT_CODES)
def inspect(
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
    propose: Annotated[
        str | None,
        typer.Option("--propose", help="Write a mapping file to start from, or - ."),
    ] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Say what was recognised: each column's field, unit and why, coverage, and what is lacking.

    For example: ttftdoctor inspect requests.jsonl
    """
    with _guard(), _manner(mapping, timezone):
        _distinct({"--propose": propose}, logs)
        from ttftdoctor.errors import InputError
        from ttftdoctor.inspection import inspect_log, proposal_of
        from ttftdoctor.inspection.screen import print_proposal, print_to
        from ttftdoctor.run import read

        try:
            log = read(
                *logs, format=format, columns=_pairs(map_, "--map"), units=_units(unit),
                only=_only(since, until, where, query), progress=_progress(quiet),
            )  # fmt: skip
        except InputError as error:
            # What cannot be read yet may be, once somebody says which field is which.
            if error.proposal is None or not error.proposal.usable or json_:
                raise
            _clear_progress(quiet)
            _note(f"{error.where}: {error.what}; by names and values it may be read like this:")
            if propose is not None:
                _put_proposal(error.proposal, propose)
                return
            with _screen(no_color) as console:
                print_proposal(console, error.proposal)
            return
        _clear_progress(quiet)
        if propose is not None:
            proposal = proposal_of(log)
            if proposal is None:
                raise UsageError("there is nothing to map: this is no flat log", where=logs[0])
            _put_proposal(proposal, propose)
            return
        found = inspect_log(log)
        if json_:
            _emit_json(found.to_dict())
            return
        with _screen(no_color) as console:
            print_to(console, found)


@app.command(epilog=EXIT_CODES)
def contrast(
    logs: Logs,
    select: Annotated[
        str, typer.Option("--select", help="Which rows, e.g. 'ttft > p95 and turn >= 3'.")
    ],
    against: Annotated[
        str | None, typer.Option("--against", help="Compared with which; all others by default.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Columns to show.")] = 12,
    min_rows: Annotated[
        int, typer.Option("--min-rows", min=2, help="Fewest rows on a side, and of a value.")
    ] = 10,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    json_: AsJson = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Say why some rows are different from the rest: every column ranked, with effect sizes.

    For example: ttftdoctor contrast requests.jsonl --select 'ttft > p95'

    Expressions join comparisons by and, or, not and parentheses: ttft > 800ms, turn >= 3,
    model in ("a", "b"), input > median, start >= "2026-01-01 10:00", replica is null. A name
    that is not there is answered with the names that are.
    """
    with _guard(), _manner(mapping, timezone):
        from ttftdoctor.contrasts.flow import contrast as run

        found = run(
            *logs, select=select, against=against, top=top, min_rows=min_rows, format=format,
            columns=_pairs(map_, "--map"), units=_units(unit),
            only=_only(since, until, where, query), progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        if json_:
            _emit_json(found.to_dict())
            return
        from ttftdoctor.contrasts.terminal import print_to

        with _screen(no_color) as console:
            print_to(console, found)


@app.command(epilog=EXIT_CODES)
def compare(
    before: Annotated[str, typer.Argument(help="Log before the change.", metavar="BEFORE")],
    after: Annotated[str, typer.Argument(help="Log after the change.", metavar="AFTER")],
    prediction: Annotated[
        str | None,
        typer.Option("--prediction", help="An earlier diagnosis (diagnose --json F) to be scored."),
    ] = None,
    remedy: Annotated[
        str | None, typer.Option("--remedy", help="What was done, e.g. prefix_cache.")
    ] = None,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    html: ToHtml = None,
    compact_to: Annotated[
        int, typer.Option("--compact-to", min=1, help="Tokens a compacted history is cut to.")
    ] = 8000,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Say whether a change helped at equal traffic, and whether it was predicted.

    For example: ttftdoctor compare monday.jsonl tuesday.jsonl --remedy prefix_cache
    """
    with _guard(), _manner(mapping, timezone):
        _distinct(
            {"--json": json_, "--markdown": markdown, "--html": html}, [before, after, prediction]
        )
        from ttftdoctor.comparisons.flow import compare as run

        found = run(
            before, after, prediction=prediction, remedy=remedy, format=format,
            columns=_pairs(map_, "--map"), units=_units(unit), compact_to=compact_to,
            only=_only(since, until, where, query), progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        from ttftdoctor.comparisons.page import render as render_page
        from ttftdoctor.comparisons.report import FORMS, print_to

        forms = {**FORMS, "html": render_page}
        _hand_out(
            {"json": json_, "markdown": markdown, "html": html},
            lambda name: forms[name](found),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip


@app.command(epilog=EXIT_CODES)
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
    no_color: NoColor = False,
) -> None:
    """Say where reusable work is lost, rung by rung: expiry, capacity, routing, rounding.

    For example: ttftdoctor prefix requests.jsonl --ttl 5min --cache-tokens 3M

    What the log does not tell can be given: limits of the cache, replicas, what a token costs.
    """
    with _guard(), _manner(mapping, timezone):
        _distinct({"--json": json_, "--markdown": markdown}, logs, [metrics, metrics_before])
        if cache_tokens is not None and cache_gb is not None:
            raise UsageError("--cache-tokens and --cache-gb: give one of them")
        if cache_gb is not None and not 0 < cache_gb < 1e9:
            raise UsageError("--cache-gb must be above zero")
        if metrics_before is not None and metrics is None:
            raise UsageError("--metrics-before needs --metrics")
        _there("--tokenizer", tokenizer)
        machine = _machine(params, flops, bandwidth, bytes_per_param)
        if machine is not None and ms_per_1k_tokens is not None:
            raise UsageError("--ms-per-1k-tokens and --params: give one of them")
        ttl_s, room = (
            _seconds(ttl, "--ttl", "5min or 300s"),
            _tokens(cache_tokens, "--cache-tokens"),
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
            pricing=_pricing(prices, provider, gpu_hour_price, gpus, currency),
            metrics=metrics,
            metrics_before=metrics_before,
            show_text=show_text,
            top=top,
            format=format,
            columns=_pairs(map_, "--map"),
            units=_units(unit),
            tokenizer=tokenizer,
            only=_only(since, until, where, query),
            progress=_progress(quiet),
        )
        _clear_progress(quiet)
        from ttftdoctor.prefixes import markdown as in_markdown
        from ttftdoctor.prefixes.terminal import print_to
        from ttftdoctor.report import json_report

        forms: dict[str, Callable[[], str]] = {
            "json": lambda: json_report.text_of(found.to_dict()),
            "markdown": lambda: in_markdown.render(found),
        }
        _hand_out(
            {"json": json_, "markdown": markdown},
            lambda name: forms[name](),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip


@app.command(epilog=EXIT_CODES)
def export(
    logs: Logs,
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="Where the trace goes: JSON lines, .gz packs; or - ."),
    ],
    format: Annotated[
        str, typer.Option("--format", help="Layout of the trace: mooncake or bailian.")
    ] = "mooncake",
    even_times: Annotated[
        bool, typer.Option("--even-times", help="Space arrivals evenly: hide the load's shape.")
    ] = False,
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="Name of the log's format (see: formats).")
    ] = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    tokenizer: Tokenizer = None,
    quiet: Quiet = False,
) -> None:
    """Write an anonymised trace of a log that can be replayed: when, how long, what is shared.

    For example: ttftdoctor export requests.jsonl --format bailian -o trace.jsonl

    No id, name, model, text or hash of the log is in it.
    """
    with _guard(), _manner(mapping, timezone):
        _there("--tokenizer", tokenizer)
        from ttftdoctor.prefixes.export import export as run
        from ttftdoctor.readers import Options
        from ttftdoctor.run import read_by

        options = Options(_pairs(map_, "--map"), _units(unit), tokenizer=tokenizer)
        log = read_by(
            options, *logs, format=log_format, only=_only(since, until, where, query),
            progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        made = run(log, format, keep_times=not even_times)
        if output != "-" and any(_same_file(output, item.path) for item in log.inputs):
            raise UsageError("the trace would be written over the log", where=output)
        _put_lines(made.text(), output)
        if quiet:
            return
        left = sum(made.left_out.values())
        written = f"{made.table.height:,} requests, {made.blocks:,} different blocks"
        written += f" of {made.block_tokens} tokens"
        _note(f"written: {output} ({written})" if output != "-" else f"written: {written}")
        if left:
            reasons = ", ".join(f"{n:,} {name}" for name, n in made.left_out.items())
            _note(f"left out: {left:,} requests ({reasons})")
        for text in made.notes:
            _note(f"note: {text}")


@app.command(epilog=EXIT_CODES)
def formats(
    json_: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the names and titles as a Markdown table.")
    ] = False,
    no_color: NoColor = False,
) -> None:
    """List the log formats that can be read, and what each cannot tell.

    For example: ttftdoctor formats --json
    """
    with _guard():
        from ttftdoctor.catalog import formats_in_markdown, readers

        if markdown:
            typer.echo(formats_in_markdown(), nl=False)
            return
        if json_:
            rows = [{"name": r.name, "title": r.title, "lacks": r.lacks} for r in readers()]
            _emit_json(rows)
            return
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("format", "what it is", "what it lacks"):
            table.add_column(title, overflow="fold")
        for reader in readers():
            table.add_row(reader.name, reader.title, reader.lacks)
        with _screen(no_color) as console:
            console.print(table)


@app.command(epilog=EXIT_CODES)
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A cause, remedy, metric, account or rung; without one, all are listed.",
            metavar="NAME",
            autocompletion=_page_names,
        ),
    ] = None,
    no_color: NoColor = False,
) -> None:
    """Print the manual's page of a cause, remedy, metric, account of the ledger or rung.

    For example: ttftdoctor explain cache_eviction

    What it is, why the first token waits, how it is told from its neighbours, when it cannot be
    told, what helps, and where it is set.
    """
    with _guard():
        from ttftdoctor.manual import find
        from ttftdoctor.manual.terminal import print_list, print_page

        page = None if name is None else find(name)
        with _screen(no_color) as console:
            if page is None:
                print_list(console)
            else:
                print_page(console, page)


@app.command(epilog=EXIT_CODES)
def roofline(
    params: Annotated[float, typer.Option("--params", help="Parameters of the model, e.g. 7e9.")],
    flops: Annotated[float, typer.Option("--flops", help="Peak FLOP/s, e.g. 312e12.")],
    bandwidth: Annotated[
        float, typer.Option("--bandwidth", help="Memory bandwidth in bytes/s, e.g. 2e12.")
    ],
    bytes_per_param: BytesPerParam = 2.0,
    input_: Annotated[float, typer.Option("--input", help="Prompt tokens.")] = 2000,
    output: Annotated[float, typer.Option("--output", help="Answer tokens.")] = 500,
    kv_bytes_per_token: Annotated[
        float | None, typer.Option("--kv-bytes-per-token", help="KV-cache bytes a token.")
    ] = None,
    json_: AsJson = False,
    no_color: NoColor = False,
) -> None:
    """Say what the hardware allows: prefill and decode times, and where the two meet.

    For example: ttftdoctor roofline --params 7e9 --flops 312e12 --bandwidth 2e12
    """
    with _guard():
        from ttftdoctor.hardware import Machine
        from ttftdoctor.hardware import roofline as work_out

        machine = Machine(params, bytes_per_param, flops, bandwidth, kv_bytes_per_token)
        r = work_out(machine, input_, output)
        if json_:
            _emit_json(r.to_dict())
            return
        with _screen(no_color) as console:
            _print_roofline(console, r, input_, output)


@app.command(epilog=EXIT_CODES)
def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A shipped scenario, or a TOML file.", metavar="SCENARIO"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Where the log goes: JSON lines, .gz packs; or - ."),
    ] = None,
    detail: Annotated[
        str,
        typer.Option("--detail", help="full, no_queue, no_cached, client, no_sessions or blocks."),
    ] = "full",
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Another seed is another service of its kind.")
    ] = 0,
    truth: Annotated[
        str | None, typer.Option("--truth", help="Write what was planted and measured as JSON.")
    ] = None,
    remedies: Annotated[
        bool, typer.Option("--remedies", help="Serve again with each remedy, for the truth.")
    ] = False,
    treatment: Annotated[
        str | None, typer.Option("--treatment", help="A remedy in place already, or several: a+b.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
    show: Annotated[
        str | None, typer.Option("--show", help="Print a scenario's TOML, to start one's own.")
    ] = None,
    no_color: NoColor = False,
) -> None:
    """Write the log of a modelled service whose causes are known, and the truth beside it.

    For example: ttftdoctor simulate repeated_prefix_no_reuse -o log.jsonl --truth truth.json
    """
    with _guard():
        from ttftdoctor import simulator

        if list_:
            _print_scenarios(no_color)
            return
        if show is not None:
            _emit(simulator.load(show).text)
            return
        if scenario is None or output is None:
            raise UsageError(
                "simulate wants a SCENARIO and -o LOG",
                help="ttftdoctor simulate --list names the scenarios that come with it",
            )
        targets = [target for target in (output, truth) if target is not None]
        if len(set(targets)) < len(targets) or scenario in targets:
            raise UsageError("scenario, log and truth must be different files", where=output)
        loaded = simulator.load(scenario)
        run = simulator.serve(loaded, seed, treatment)
        document = run.truth()
        if remedies:
            document["remedies"] = simulator.remedies_truth(loaded, seed, simulator.REMEDIES)
        if output == "-":
            _emit(simulator.log_bytes(run, detail).decode())
        else:
            simulator.write_log(run, output, detail)
        if truth is not None:
            _put(json.dumps(document, indent=2, allow_nan=False) + "\n", truth)
        if "-" not in targets:
            with _screen(no_color) as console:
                _print_run(console, document)
        for target in targets:
            if target != "-":
                _note(f"written: {target}")


@app.command(epilog=EXIT_CODES)
def baseline(
    logs: Logs,
    output: Annotated[
        str, typer.Option("-o", "--output", help="Where the baseline goes; or - .")
    ] = "ttft-baseline.json",
    runs: Annotated[
        bool, typer.Option("--runs", help="Each LOG is a run by itself, not a part of one.")
    ] = False,
    label: Annotated[
        str | None, typer.Option("--label", help="A name for reports, e.g. a release.")
    ] = None,
    warm_up: Annotated[
        str, typer.Option("--warm-up", help="What to set aside: auto, a time such as 30s, or 0.")
    ] = "auto",
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Keep what a good run was like in a small file, to hold later ones against it.

    For example: ttftdoctor baseline run1.jsonl run2.jsonl run3.jsonl --runs -o ttft-baseline.json

    The file has sums and names of models and routes, no prompt and no request; baselines that are
    given among the logs are taken over, so that runs add up.
    """
    with _guard(), _manner(mapping, timezone):
        from ttftdoctor.gate.flow import baseline as run
        from ttftdoctor.gate.flow import is_baseline

        # A baseline that is taken over may be written anew, with what was added to it.
        _distinct({"--output": output}, [log for log in logs if not is_baseline(Path(log))])
        whole = run(
            *logs, runs=runs, label=label, warm_up=_warm_up(warm_up), format=format,
            columns=_pairs(map_, "--map"), units=_units(unit),
            only=_only(since, until, where, query), progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        kept = whole.fit_in()
        text = kept.to_text()
        _put(text, output)
        if quiet or output == "-":
            return
        with _screen(no_color) as console:
            _print_baseline(console, kept, len(text.encode()))
        _note(f"written: {output}")


@app.command(epilog=GATE_CODES)
def check(
    logs: Logs,
    baseline: Annotated[
        list[str],
        typer.Option(
            "--baseline",
            metavar="FILE|LOG",
            help="What to hold it against: a baseline file, or logs; may be given more than once.",
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="A policy; by default ttftdoctor.toml or pyproject.toml."),
    ] = None,
    slo_ttft: Annotated[
        str | None, typer.Option("--slo-ttft", help="Target for TTFT, e.g. 800ms or 1.5s.")
    ] = None,
    runs: Annotated[
        bool, typer.Option("--runs", help="Each log is a run by itself, not a part of one.")
    ] = False,
    warm_up: Annotated[
        str | None,
        typer.Option("--warm-up", help="What to set aside: auto, a time such as 30s, or 0."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="A name for reports.")] = None,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    html: ToHtml = None,
    junit: Annotated[
        str | None, typer.Option("--junit", help="Write JUnit XML to a file, or - .")
    ] = None,
    sarif: Annotated[
        str | None, typer.Option("--sarif", help="Write SARIF 2.1.0 to a file, or - .")
    ] = None,
    codequality: Annotated[
        str | None, typer.Option("--codequality", help="Write GitLab code quality, or - .")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print annotations, and write the job's summary.")
    ] = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Fail if the first token got later than the baseline at equal traffic, and say what moved.

    For example: ttftdoctor check canary.jsonl --baseline ttft-baseline.json --junit ttft.xml

    Longer prompts, later turns or more requests are no regression: like is compared with like.
    """
    with _guard(inside=70), _manner(mapping, timezone):
        targets = {"json": json_, "markdown": markdown, "html": html, "junit": junit,
                   "sarif": sarif, "codequality": codequality}  # fmt: skip
        _distinct({f"--{name}": target for name, target in targets.items()}, logs, baseline)
        if github and "-" in targets.values():
            raise UsageError("--github prints to standard output: give the report a file")
        from ttftdoctor.gate.flow import check as run

        found = run(
            logs, baseline, policy=policy, slo_ttft_s=_seconds(slo_ttft, "--slo-ttft", "800ms"),
            runs=runs, warm_up=None if warm_up is None else _warm_up(warm_up), label=label,
            format=format, columns=_pairs(map_, "--map"), units=_units(unit),
            only=_only(since, until, where, query), progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        try:
            _show_check(found, targets, github=github, quiet=quiet, no_color=no_color)
        except BrokenPipeError:
            # Whoever read our output has seen enough; the answer is the exit code.
            _drop_stdout()
        raise typer.Exit(found.exit_code)


@app.command(epilog=EXIT_CODES)
def history(
    baselines: Annotated[
        list[str],
        typer.Argument(
            help="Baseline files, folders of them, or JSON lines.", metavar="BASELINE..."
        ),
    ],
    append: Annotated[
        str | None,
        typer.Option("--append", help="Add the baselines to this .jsonl file, once each."),
    ] = None,
    slo_ttft: Annotated[
        str | None, typer.Option("--slo-ttft", help="Target for TTFT, e.g. 800ms or 1.5s.")
    ] = None,
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Say how a service went over many baselines, and where it changed, at equal traffic.

    For example: ttftdoctor history baselines/

    Keep one line a run with: ttftdoctor history --append history.jsonl ttft-baseline.json
    """
    with _guard():
        from ttftdoctor.gate import shelf

        if append is not None:
            if json_ is not None or markdown is not None or slo_ttft is not None:
                raise UsageError("--append only adds to a file: ask for a report without it")
            for name, added in shelf.append_all(append, baselines):
                if not quiet or not added:
                    text = f"added to {append}" if added else f"is in {append} already"
                    _note(f"{name} {text}")
            return
        targets = {"json": json_, "markdown": markdown}
        _distinct({f"--{name}": target for name, target in targets.items()}, baselines)
        found = shelf.history(*baselines, slo_ttft_s=_seconds(slo_ttft, "--slo-ttft", "800ms"))
        from ttftdoctor.gate.history_report import FORMS, print_to

        for one in found.set_aside:
            _note(f"warning: {one.name}: {one.why}")
        _hand_out(
            targets,
            lambda name: FORMS[name](found),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip


@app.command(epilog=EXIT_CODES)
def convert(
    logs: Logs,
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="Where it goes: a name in .parquet, .csv or .jsonl."),
    ],
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Other ids, names and hashes; no way back.")
    ] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Leave the names of models as they are.")
    ] = False,
    shift_times: Annotated[
        bool, typer.Option("--shift-times", help="Move all times by a random number of days.")
    ] = False,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    query: Query = None,
    tokenizer: Tokenizer = None,
    quiet: Quiet = False,
) -> None:
    """Write any log as one table of requests, with the same columns and units for all formats.

    For example: ttftdoctor convert requests.jsonl --anonymize -o requests.parquet

    Anonymised, it can be handed on: no id, name, text or hash of the log is in it.
    """
    with _guard(), _manner(mapping, timezone):
        _there("--tokenizer", tokenizer)
        from ttftdoctor.conversion import convert as run
        from ttftdoctor.conversion import form_of
        from ttftdoctor.readers import Options
        from ttftdoctor.run import read_by

        form_of(output)
        _distinct({"--output": output}, logs)
        options = Options(_pairs(map_, "--map"), _units(unit), tokenizer=tokenizer)
        log = read_by(
            options, *logs, format=format, only=_only(since, until, where, query),
            progress=_progress(quiet),
        )  # fmt: skip
        _clear_progress(quiet)
        made = run(
            log, output=output, anonymize=anonymize, keep_models=keep_models,
            shift_times=shift_times,
        )  # fmt: skip
        if quiet:
            return
        failed = f", {made.failed:,} of them failed" if made.failed else ""
        _note(f"written: {output} ({made.rows:,} requests{failed})")
        left = sum(made.rejected.values())
        reasons = ", ".join(f"{n:,} {name}" for name, n in made.rejected.items())
        _note(
            f"rows read {made.read:,} = written {made.rows:,} + rejected {left:,}"
            + (f" ({reasons})" if reasons else "")
        )
        for text in (*made.notes, *log.warnings):
            _note(f"note: {text}")


# -------------------------------------------------------------------- helpers


class _guard:  # noqa: N801  (reads as a word where it is used)
    """Turn our errors into one message on stderr and an exit code; never a traceback.

    ``inside`` is the code of an error of our own.
    """

    def __init__(self, inside: int = 3) -> None:
        self.inside = inside

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (typer.Exit, typer.Abort, SystemExit)):
            return
        if isinstance(error, TTFTDoctorError):
            _fail(str(error))
        if isinstance(error, BrokenPipeError):
            # The reader of our output went away: that is its business.
            _drop_stdout()
            raise typer.Exit(0)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130)
        if isinstance(error, MemoryError):
            _fail("not enough memory for this log", 2)
        # Anything else is our mistake; a panic inside Polars is no Exception, but comes here too.
        first = (str(error).splitlines() or ["no message"])[0]
        _fail(
            f"something went wrong inside ttftdoctor ({type(error).__name__}: {first})\n"
            "  help: please report this, with --format and the first lines of the log",
            self.inside,
        )


def _load_beside() -> None:
    """Load what comes after reading in a thread meanwhile; who needs it earlier waits for it."""
    import threading
    from contextlib import suppress

    def load() -> None:
        with suppress(Exception):  # it is raised where the module is used
            import ttftdoctor.examine
            import ttftdoctor.measure.worst
            import ttftdoctor.report.terminal  # noqa: F401
            from ttftdoctor import catalog

            catalog.causes()
            catalog.remedies()
            catalog.renderers()

    threading.Thread(target=load, daemon=True).start()


def _fail(message: str, code: int = 2) -> NoReturn:
    from ttftdoctor.report import clean

    lines = [clean(line) for line in message.splitlines()]
    sys.stderr.write("error: " + "\n".join(lines) + "\n")
    raise typer.Exit(code)


def _note(message: str) -> None:
    from ttftdoctor.report import clean

    sys.stderr.write(clean(message) + "\n")


def _drop_stdout() -> None:
    """Send what is left in the buffers of standard output nowhere, so that exit is quiet."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _emit(text: str, encoding: str = "utf-8") -> None:
    """Write to standard output at once; characters that cannot be encoded become ``?``."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise UsageError("cannot write to standard output", why=error.strerror) from None


def _emit_json(document: Any) -> None:
    _emit(json.dumps(document, indent=2, allow_nan=False) + "\n")


class _Sheet(io.StringIO):
    """Text in memory that looks like standard output to whoever writes it."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "utf-8"

    def isatty(self) -> bool:
        return sys.stdout.isatty()


@contextmanager
def _screen(no_color: bool) -> Iterator[Console]:
    """A console whose text is written to standard output in one go at the end."""
    sheet = _Sheet()
    yield _console(no_color, sheet)
    _emit(sheet.getvalue(), sys.stdout.encoding or "utf-8")


def _distinct(targets: dict[str, str | None], *sources: Sequence[str | None]) -> None:
    """Refuse documents that would be written into each other, or over what is read."""
    import glob

    given = [path for some in sources for path in some if path is not None and path != "-"]
    read = {os.path.realpath(path) for pattern in given for path in (pattern, *glob.iglob(pattern))}
    seen: dict[str, str] = {}
    for option, target in targets.items():
        if target is None:
            continue
        if target in seen:
            place = "standard output" if target == "-" else "the same file"
            raise UsageError(f"{seen[target]} and {option} both go to {place}", where=target)
        if target != "-" and os.path.realpath(target) in read:
            raise UsageError(f"{option} would be written over what is read", where=target)
        seen[target] = option


def _show_check(
    found: Any, targets: dict[str, str | None], *, github: bool, quiet: bool, no_color: bool
) -> None:
    """Write and print a check; on GitHub what is printed cannot command the runner."""
    from ttftdoctor.gate.forms import FORMS
    from ttftdoctor.gate.page import render as render_page
    from ttftdoctor.gate.reports.terminal import print_to

    guard = ""
    if github:
        import secrets

        # Between these lines the runner takes nothing as a command, whatever a log calls itself.
        guard = secrets.token_hex(16)
        _emit(f"::stop-commands::{guard}\n")
    _hand_out(
        targets,
        lambda name: render_page(found) if name == "html" else FORMS[name].render(found),
        lambda console: print_to(console, found),
        quiet=quiet, no_color=no_color,
    )  # fmt: skip
    if not github:
        return
    _emit(f"::{guard}::\n" + FORMS["github"].render(found))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8", errors="replace") as file:
                file.write(FORMS["summary"].render(found) + "\n")
        except OSError as error:
            _note(f"cannot write the summary of the job: {error.strerror}")


def _warm_up(text: str) -> bool | float:
    """What to set aside of a run: found by itself, nothing, or so many seconds."""
    if text == "auto":
        return True
    if text in ("0", "0s", "none"):
        return False
    return _seconds(text, "--warm-up", "30s (or auto, or 0)") or False


def _print_baseline(console: Console, kept: Any, size: int) -> None:
    """A few lines about what a baseline holds."""
    from rich.text import Text

    from ttftdoctor.report import clean
    from ttftdoctor.units import count

    facts = [sketch.facts for sketch in kept.sketches]
    one = len(facts) == 1
    lines = [
        f"baseline {clean(kept.label, 80)}: {count(sum(f.requests for f in facts))} requests, "
        f"{len(facts)} run{'' if one else 's'}, {size / 1000:,.0f} kB"
    ]
    aside = sum(f.warm_up for f in facts)
    if aside:
        lines.append(f"set aside as warm-up: {count(aside)} requests")
    for number, f in enumerate(facts[:10], 1):
        name = "" if one else f"run {number}: "
        lines.append(f"  {name}diagnosed as {clean(f.cause, 60)}: {clean(f.headline, 300)}")
    lines += [f"to keep it small: {clean(text, 200)}" for text in kept.lost]
    if len(facts) < 3:
        lines.append("with three runs or more (--runs) the spread from run to run is known too")
    for line in lines:
        console.print(Text(line))


def _console(no_color: bool, file: _Sheet) -> Console:
    from rich.console import Console

    return Console(
        file=file, no_color=no_color or None, highlight=False, markup=False, emoji=False,
        soft_wrap=False, force_terminal=False if no_color else None,
    )  # fmt: skip


def _progress(quiet: bool) -> Any:
    if quiet or not sys.stderr.isatty():
        return None

    def show(path: str, rows: int) -> None:
        from ttftdoctor.report import clean

        text = f"reading {clean(Path(path).name)[:45]}: {rows:,} rows"
        sys.stderr.write(f"\r{text:<79}")
        sys.stderr.flush()

    return show


def _clear_progress(quiet: bool) -> None:
    if not quiet and sys.stderr.isatty():
        sys.stderr.write(f"\r{'':<79}\r")
        sys.stderr.flush()


def _manner(mapping: str | None, timezone: str | None) -> AbstractContextManager[Any]:
    """How all logs of the command are read, beside what it hands down itself."""
    from ttftdoctor.mapping.manner import reading_as

    return reading_as(mapping=mapping, timezone=timezone)


def _pairs(values: list[str] | None, option: str) -> dict[str, str]:
    out = {}
    for value in values or ():
        name, sign, rest = value.partition("=")
        if not sign or not name or not rest:
            raise UsageError(f"{option} wants NAME=VALUE, not {value!r}")
        out[name] = rest
    return out


def _only(
    since: str | None, until: str | None, where: str | None, query: str | None
) -> Only | None:
    """Which rows are wanted; None for all."""
    if since is None and until is None and where is None and query is None:
        return None
    from ttftdoctor.choose import Only

    return Only(since, until, where, query)


def _units(values: list[str] | None) -> dict[str, str]:
    from ttftdoctor.units import UNIT_WORDS

    out = _pairs(values, "--unit")
    for name, word in out.items():
        if word not in UNIT_WORDS:
            raise UsageError(f"--unit {name}: {word!r} is no unit", available="ns, us, ms, s")
    return out


def _seconds(text: str | None, option: str, example: str) -> float | None:
    if text is None:
        return None
    import re

    from ttftdoctor.units import UNIT_WORDS, US_PER

    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµμ]*)\s*", text)
    if match is None or (match[2] and match[2] not in UNIT_WORDS):
        raise UsageError(f"{option} wants a time such as {example}, not {text!r}")
    if not match[2]:
        raise UsageError(f"{option} wants a unit", help=f"say {text}ms or {text}s")
    if float(match[1]) == 0:
        raise UsageError(f"{option} must be above zero")
    return float(match[1]) * US_PER[UNIT_WORDS[match[2]]] / 1e6


def _tokens(text: str | None, option: str) -> int | None:
    """A number of tokens as people write it: ``3M``, ``500k``, ``1.5G``, ``2_000_000``."""
    if text is None:
        return None
    import re

    match = re.fullmatch(r"\s*(\d[\d_,]*\.?\d*|\.\d+)\s*([kKmMgG]?)\s*", text)
    if match is None:
        raise UsageError(f"{option} wants a number such as 500k or 3M, not {text!r}")
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}[match[2].lower()]
    value = float(match[1].replace("_", "").replace(",", "")) * scale
    if not 1 <= value < 1e15:
        raise UsageError(f"{option} must be at least one token, and less than 1e15")
    return round(value)


def _there(option: str, path: str | None) -> None:
    """Refuse a file that is not there before a log is read for nothing."""
    if path is not None and not Path(path).is_file():
        raise UsageError(f"{option}: no such file", where=path)


def _machine(
    params: float | None, flops: float | None, bandwidth: float | None, bytes_per_param: float
) -> Any:
    given = (params, flops, bandwidth)
    if all(v is None for v in given):
        return None
    if params is None or flops is None or bandwidth is None:
        raise UsageError("--params, --flops and --bandwidth belong together")
    from ttftdoctor.hardware import Machine

    return Machine(params, bytes_per_param, flops, bandwidth)


def _pricing(
    listed: bool,
    provider: str | None,
    gpu_hour: float | None,
    gpus: float | None,
    currency: str | None,
) -> Any:
    if not listed and provider is None and gpu_hour is None and gpus is None and currency is None:
        return None
    from ttftdoctor.prices import Pricing

    return Pricing(listed, provider, gpu_hour, gpus, currency)


def _hand_out(
    targets: dict[str, str | None],
    render: Callable[[str], str],
    show: Callable[[Console], None],
    *,
    quiet: bool,
    no_color: bool,
    beside: Sequence[str] = (),
) -> None:
    """Write the forms that were asked for; print a report unless one went to standard output.

    ``beside`` are targets that are written already.
    """
    given = {name: target for name, target in targets.items() if target is not None}
    for name, target in given.items():
        _put(render(name), target)
    written = [*given.values(), *beside]
    if "-" in written or (quiet and written):
        return
    with _screen(no_color) as console:
        show(console)
    for target in written:
        _note(f"written: {target}")


def _csv_targets(folder: str | None) -> dict[str, str | None]:
    """The files that ``--csv`` writes, by what to call them in an error."""
    if folder is None:
        return {}
    from ttftdoctor.outputs.csv_tables import COLUMNS

    return {f"--csv ({name})": str(Path(folder) / name) for name in COLUMNS}


def _png_targets(folder: str | None) -> dict[str, str | None]:
    """The files that ``--png`` may write, by what to call them in an error."""
    if folder is None:
        return {}
    from ttftdoctor.pages.images import NAMES

    return {f"--png ({name}.png)": str(Path(folder) / f"{name}.png") for name in NAMES}


def _write_images(diagnosis: Any, folder: str | None) -> list[str]:
    """Draw the charts into a folder, where that was asked for; where they went."""
    if folder is None:
        return []
    from ttftdoctor.pages.images import images
    from ttftdoctor.pages.png import write

    write(images(diagnosis), Path(folder))
    return [folder]


def _write_beside(diagnosis: Any, csv: str | None, openmetrics: str | None) -> list[str]:
    """Write the tables and the page of metrics, where they were asked for; where they went."""
    if csv is not None:
        from ttftdoctor.outputs.csv_tables import tables

        try:
            Path(csv).mkdir(parents=True, exist_ok=True)
            for name, text in tables(diagnosis).items():
                (Path(csv) / name).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise UsageError("cannot write the tables", where=csv, why=error.strerror) from None
    if openmetrics is not None:
        from ttftdoctor.outputs.openmetrics import render

        _put_at_once(render(diagnosis), openmetrics)
    return [target for target in (csv, openmetrics) if target is not None]


def _put_at_once(text: str, target: str) -> None:
    """As :func:`_put`, but whoever reads the file meanwhile sees the old one or the new one."""
    path = Path(os.path.realpath(target))
    if target == "-" or (path.exists() and not path.is_file()):
        _put(text, target)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        try:
            new.write_text(text, encoding="utf-8", errors="replace")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError("cannot write the report", where=target, why=error.strerror) from None


def _put(text: str, target: str) -> None:
    """Write a document to a file, or to standard output for ``-``."""
    if target == "-":
        _emit(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError("cannot write the report", where=target, why=error.strerror) from None


def _put_proposal(proposal: Any, target: str) -> None:
    """Write a mapping file that was made for a log."""
    _put(proposal.text, target)
    if target != "-":
        _note(f"written: {target}; check it, then give it with --mapping {target}")


def _put_lines(parts: Iterator[str], target: str) -> None:
    """Write a long text piece by piece; a name that ends in ``.gz`` is packed."""
    if target == "-":
        for part in parts:
            _emit(part)
        return
    import gzip

    try:
        with (
            gzip.GzipFile(target, "wb", mtime=0)
            if target.endswith(".gz")
            else Path(target).open("wb")
        ) as file:
            for part in parts:
                file.write(part.encode("utf-8"))
    except OSError as error:
        raise UsageError("cannot write the trace", where=target, why=error.strerror) from None


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _print_scenarios(no_color: bool) -> None:
    from rich.table import Table

    from ttftdoctor import simulator

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("scenario", "planted", "what it is"):
        table.add_column(title, overflow="fold", no_wrap=title == "scenario")
    for name in simulator.names():
        found = simulator.load(name)
        table.add_row(name, found.causes.primary, found.title)
    with _screen(no_color) as console:
        console.print(table)


def _print_run(console: Console, truth: dict[str, Any]) -> None:
    """A few lines about what was served; with remedies, what each of them gains."""
    from rich.table import Table
    from rich.text import Text

    from ttftdoctor.report import clean
    from ttftdoctor.units import seconds, share

    causes, today = truth["causes"], truth["today"]
    planted = ", ".join([causes["primary"], *causes["contributing"]])
    scope = ", ".join(f"{k} {v}" for k, v in (truth["scope"] or {}).items())
    lines = [
        truth["title"],
        f"{truth['requests']:,} requests of {truth['sessions']:,} sessions, seed {truth['seed']}",
        f"planted: {planted}" + (f", on {scope}" if scope else ""),
    ]
    if truth["treatment"]:
        lines.append(f"treated with: {truth['treatment']}")
    if today["mean"] is not None:
        lines.append(f"TTFT mean {seconds(today['mean'])}, p50 {seconds(today['p50'])}, "
                     f"p95 {seconds(today['p95'])}")  # fmt: skip
    for line in lines:
        console.print(Text(clean(line)))
    if "remedies" not in truth:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("remedy", "mean", "p50", "p95", "gain"):
        table.add_column(title, justify="left" if title == "remedy" else "right")
    for name, level in truth["remedies"].items():
        if level["gain_share"] is not None:
            table.add_row(
                name, *(seconds(level[f"ttft_{k}_s"]) for k in ("mean", "p50", "p95")),
                share(level["gain_share"]),
            )  # fmt: skip
    console.print(table)


def _print_roofline(console: Console, r: Any, input_: float, output: float) -> None:
    from ttftdoctor.units import seconds, share

    low, high = r.prefill_usual_s
    per_low, per_high = r.ms_per_1k_tokens_usual
    lines = [
        f"Prefill of {input_:,.0f} tokens: {r.prefill_flop:.2g} FLOP",
        f"  at full arithmetic  {seconds(r.prefill_ideal_s)}",
        f"  at 40-50 % of it    {seconds(low)} to {seconds(high)}"
        f"  ({per_low:.3g} to {per_high:.3g} ms per 1,000 tokens)",
        f"  memory bandwidth in use: {share(r.prefill_bandwidth_use)}  -> bound by arithmetic"
        if r.prefill_bandwidth_use < 1
        else "  memory bandwidth in use: 100 %  -> bound by bandwidth (a short prompt)",
        f"Decode, one token a step at {input_ + output / 2:,.0f} tokens of context: "
        f"{r.decode_flop_per_token / 1e9:.3g} GFLOP and {r.decode_bytes_per_token / 1e9:.3g} GB "
        f"({r.decode_kv_bytes / 1e9:.2g} GB of it KV)",
        f"  {r.decode_ideal_s * 1e3:.3g} ms a token, {seconds(r.decode_total_s)} for "
        f"{output:,.0f} tokens",
        f"  FLOP/s in use: {share(r.decode_flops_use)}  -> bound by bandwidth",
        f"Both take equally long at {r.balance_tokens_per_step:,.0f} tokens a step.",
    ]
    for line in lines:
        console.print(line)


def main() -> None:
    """Entry point of the ``ttftdoctor`` command.

    Leaves without taking the interpreter apart: giving back the memory of a large log piece by
    piece would cost a tenth of a second, and the system does it at once.
    """
    import gc

    gc.set_threshold(1_000_000)  # nearly all that is made here lives to the end
    # The products of matrices here are small: threads of the library would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code: object = 0
    try:
        app()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:
        code = end.code
    if not (code is None or isinstance(code, int)):
        raise SystemExit(code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        _drop_stdout()
    os._exit(code or 0)
