"""A log as a file for others: a trace to replay, a table of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import (
    Format,
    Logs,
    Map,
    MapFile,
    Query,
    Quiet,
    Since,
    Timezone,
    Tokenizer,
    Unit,
    Until,
    Where,
)
from ttftdoctor.cli.output import clear_progress, distinct, note, progress, put_lines
from ttftdoctor.cli.values import manner, only_of, pairs_of, there, units_of
from ttftdoctor.errors import UsageError


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
    with guard(), manner(mapping, timezone):
        there("--tokenizer", tokenizer)
        from ttftdoctor.prefixes.export import export as run
        from ttftdoctor.readers import Options
        from ttftdoctor.run import read_by

        options = Options(pairs_of(map_, "--map"), units_of(unit), tokenizer=tokenizer)
        log = read_by(
            options, *logs, format=log_format, only=only_of(since, until, where, query),
            progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        made = run(log, format, keep_times=not even_times)
        if output != "-" and any(_same_file(output, item.path) for item in log.inputs):
            raise UsageError("the trace would be written over the log", where=output)
        put_lines(made.text(), output)
        if quiet:
            return
        left = sum(made.left_out.values())
        written = f"{made.table.height:,} requests, {made.blocks:,} different blocks"
        written += f" of {made.block_tokens} tokens"
        note(f"written: {output} ({written})" if output != "-" else f"written: {written}")
        if left:
            reasons = ", ".join(f"{n:,} {name}" for name, n in made.left_out.items())
            note(f"left out: {left:,} requests ({reasons})")
        for text in made.notes:
            note(f"note: {text}")


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
    with guard(), manner(mapping, timezone):
        there("--tokenizer", tokenizer)
        from ttftdoctor.conversion import convert as run
        from ttftdoctor.conversion import form_of
        from ttftdoctor.readers import Options
        from ttftdoctor.run import read_by

        form_of(output)
        distinct({"--output": output}, logs)
        options = Options(pairs_of(map_, "--map"), units_of(unit), tokenizer=tokenizer)
        log = read_by(
            options, *logs, format=format, only=only_of(since, until, where, query),
            progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        made = run(
            log, output=output, anonymize=anonymize, keep_models=keep_models,
            shift_times=shift_times,
        )  # fmt: skip
        if quiet:
            return
        failed = f", {made.failed:,} of them failed" if made.failed else ""
        note(f"written: {output} ({made.rows:,} requests{failed})")
        left = sum(made.rejected.values())
        reasons = ", ".join(f"{n:,} {name}" for name, n in made.rejected.items())
        note(
            f"rows read {made.read:,} = written {made.rows:,} + rejected {left:,}"
            + (f" ({reasons})" if reasons else "")
        )
        for text in (*made.notes, *log.warnings):
            note(f"note: {text}")


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False
