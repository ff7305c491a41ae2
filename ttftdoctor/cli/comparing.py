"""Some rows beside the rest, and a log from before a change beside one from after it."""

from __future__ import annotations

from typing import Annotated

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import (
    AsJson,
    CompactTo,
    Format,
    Lang,
    Logs,
    Map,
    MapFile,
    NoColor,
    Query,
    Quiet,
    Since,
    Timezone,
    ToHtml,
    ToJson,
    ToMarkdown,
    Unit,
    Until,
    Where,
)
from ttftdoctor.cli.output import clear_progress, distinct, emit_json, hand_out, progress, screen
from ttftdoctor.cli.values import manner, only_of, pairs_of, units_of
from ttftdoctor.language import speaking


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
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say why some rows are different from the rest: every column ranked, with effect sizes.

    For example: ttftdoctor contrast requests.jsonl --select 'ttft > p95'

    Expressions join comparisons by and, or, not and parentheses: ttft > 800ms, turn >= 3,
    model in ("a", "b"), input > median, start >= "2026-01-01 10:00", replica is null. A name
    that is not there is answered with the names that are.
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        from ttftdoctor.contrasts.flow import contrast as run

        found = run(
            *logs, select=select, against=against, top=top, min_rows=min_rows, format=format,
            columns=pairs_of(map_, "--map"), units=units_of(unit),
            only=only_of(since, until, where, query), progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        if json_:
            emit_json(found.to_dict())
            return
        from ttftdoctor.contrasts.terminal import print_to

        with screen(no_color) as console:
            print_to(console, found)


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
    compact_to: CompactTo = 8000,
    quiet: Quiet = False,
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say whether a change helped at equal traffic, and whether it was predicted.

    For example: ttftdoctor compare monday.jsonl tuesday.jsonl --remedy prefix_cache
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        distinct(
            {"--json": json_, "--markdown": markdown, "--html": html}, [before, after, prediction]
        )
        from ttftdoctor.comparisons.flow import compare as run

        found = run(
            before, after, prediction=prediction, remedy=remedy, format=format,
            columns=pairs_of(map_, "--map"), units=units_of(unit), compact_to=compact_to,
            only=only_of(since, until, where, query), progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        from ttftdoctor.comparisons.page import render as render_page
        from ttftdoctor.comparisons.report import FORMS, print_to

        forms = {**FORMS, "html": render_page}
        hand_out(
            {"json": json_, "markdown": markdown, "html": html},
            lambda name: forms[name](found),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip
