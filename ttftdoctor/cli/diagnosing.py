"""What a log says: the diagnosis, and what was recognised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import (
    AsJson,
    Bandwidth,
    BytesPerParam,
    CompactTo,
    Currency,
    EngineName,
    Flops,
    Format,
    GpuHourPrice,
    Gpus,
    Lang,
    Logs,
    Map,
    MapFile,
    Memory,
    NoColor,
    Params,
    Prices,
    Provider,
    Query,
    Quiet,
    Since,
    SloTtft,
    SparkMaster,
    Timezone,
    ToHtml,
    ToJson,
    ToMarkdown,
    Unit,
    Until,
    Where,
)
from ttftdoctor.cli.output import (
    clear_progress,
    distinct,
    emit_json,
    hand_out,
    note,
    progress,
    put,
    put_at_once,
    screen,
)
from ttftdoctor.cli.values import (
    bytes_of,
    machine_of,
    manner,
    only_of,
    pairs_of,
    pricing_of,
    seconds_of,
    units_of,
)
from ttftdoctor.errors import UsageError
from ttftdoctor.language import speaking


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
    save_state: Annotated[
        str | None,
        typer.Option("--save-state", help="Keep the rows in this file, to be given as a log."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="FILE", help="A kept log (as LOG may be); repeatable."),
    ] = None,
    memory: Memory = None,
    engine: EngineName = "local",
    spark_master: SparkMaster = None,
    compact_to: CompactTo = 8000,
    slo_ttft: SloTtft = None,
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
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say why TTFT is what it is: cause, evidence, certainty, and what each remedy would gain.

    For example: ttftdoctor diagnose requests.jsonl --html report.html

    Or, from a pipe: zcat requests.jsonl.gz | ttftdoctor diagnose - --json -

    Or, for a spreadsheet: ttftdoctor diagnose requests.jsonl --csv tables

    Or, so that no day is read twice: ttftdoctor diagnose monday.jsonl --save-state monday.state
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        distinct(
            {"--json": json_, "--markdown": markdown, "--html": html, "--openmetrics": openmetrics,
             "--save-state": save_state, **_csv_targets(csv), **_png_targets(png)},
            logs,
        )  # fmt: skip
        from ttftdoctor.run import diagnose as run

        targets = {"json": json_, "markdown": markdown, "html": html}
        written = [name for name, target in targets.items() if target is not None]
        unseen = "-" in (*targets.values(), openmetrics) or (quiet and written)
        told = _loading_beside(written if unseen else [*written, "terminal"], progress(quiet))
        diagnosis = run(
            *(state or ()),
            *logs,
            format=format,
            columns=pairs_of(map_, "--map"),
            units=units_of(unit),
            compact_to=compact_to,
            slo_ttft_s=seconds_of(slo_ttft, "--slo-ttft", "800ms or 1.5s"),
            machine=machine_of(params, flops, bandwidth, bytes_per_param),
            pricing=pricing_of(prices, provider, gpu_hour_price, gpus, currency),
            only=only_of(since, until, where, query),
            progress=told,
            draw=any(target is not None for target in (html, csv, png)),
            save_state=save_state,
            memory=bytes_of(memory, "--memory"),
            engine="spark" if spark_master is not None else engine,
            spark_master=spark_master,
        )
        clear_progress(quiet)
        from ttftdoctor.catalog import renderer
        from ttftdoctor.local_time import in_zone

        def show(console: Any) -> None:
            from ttftdoctor.report.terminal import print_to

            print_to(console, seen)

        seen = in_zone(diagnosis, timezone)
        hand_out(
            targets,
            lambda name: renderer(name).render(diagnosis if name == "json" else seen),
            show,
            quiet=quiet, no_color=no_color,
            beside=[*_write_beside(diagnosis, csv, openmetrics), *_write_images(diagnosis, png)],
        )  # fmt: skip


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
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say what was recognised: each column's field, unit and why, coverage, and what is lacking.

    For example: ttftdoctor inspect requests.jsonl
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        distinct({"--propose": propose}, logs)
        from ttftdoctor.errors import InputError
        from ttftdoctor.inspection import inspect_log, proposal_of
        from ttftdoctor.inspection.screen import print_proposal, print_to
        from ttftdoctor.run import read

        try:
            log = read(
                *logs, format=format, columns=pairs_of(map_, "--map"), units=units_of(unit),
                only=only_of(since, until, where, query), progress=progress(quiet),
            )  # fmt: skip
        except InputError as error:
            # What cannot be read yet may be, once somebody says which field is which.
            if error.proposal is None or not error.proposal.usable or json_:
                raise
            clear_progress(quiet)
            note(f"{error.where}: {error.what}; by names and values it may be read like this:")
            if propose is not None:
                _put_proposal(error.proposal, propose)
                return
            with screen(no_color) as console:
                print_proposal(console, error.proposal)
            return
        clear_progress(quiet)
        if propose is not None:
            proposal = proposal_of(log)
            if proposal is None:
                raise UsageError("there is nothing to map: this is no flat log", where=logs[0])
            _put_proposal(proposal, propose)
            return
        found = inspect_log(log)
        if json_:
            emit_json(found.to_dict())
            return
        with screen(no_color) as console:
            print_to(console, found)


def _loading_beside(
    forms: Sequence[str], shown: Callable[[str, int], None] | None
) -> Callable[[str, int], None]:
    """Progress, as ``shown``, with whose first rows a thread begins to load what comes after.

    Who needs it earlier waits for it. Before there are rows the thread would only take turns with
    this one, and the first rows come later; then Polars is at work, which needs no turns.
    """
    import threading
    from contextlib import suppress

    def load() -> None:
        with suppress(Exception):  # it is raised where the module is used
            import ttftdoctor.measure.worst
            import ttftdoctor.study  # noqa: F401
            from ttftdoctor import catalog

            catalog.causes()
            catalog.remedies()
            for name in forms:
                catalog.renderer(name)

    loader = threading.Thread(target=load, daemon=True)

    def told(path: str, rows: int) -> None:
        if loader.ident is None:
            loader.start()
        if shown is not None:
            shown(path, rows)

    return told


def _named(option: str, folder: str) -> None:
    if folder in ("", "-"):
        raise UsageError(f"{option} wants the name of a folder", where=folder or None)


def _csv_targets(folder: str | None) -> dict[str, str | None]:
    """The files that ``--csv`` writes, by what to call them in an error."""
    if folder is None:
        return {}
    _named("--csv", folder)
    from ttftdoctor.outputs.csv_tables import COLUMNS

    return {f"--csv ({name})": str(Path(folder) / name) for name in COLUMNS}


def _png_targets(folder: str | None) -> dict[str, str | None]:
    """The files that ``--png`` may write, by what to call them in an error."""
    if folder is None:
        return {}
    _named("--png", folder)
    from ttftdoctor.pages.images import NAMES
    from ttftdoctor.pages.png import ready

    ready()  # before anything else is written

    return {f"--png ({name}.png)": str(Path(folder) / f"{name}.png") for name in NAMES}


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

        put_at_once(render(diagnosis), openmetrics)
    return [target for target in (csv, openmetrics) if target is not None]


def _write_images(diagnosis: Any, folder: str | None) -> list[str]:
    """Draw the charts into a folder, where that was asked for; where they went."""
    if folder is None:
        return []
    from ttftdoctor.pages.images import images
    from ttftdoctor.pages.png import write

    write(images(diagnosis), Path(folder))
    return [folder]


def _holds_more(path: Path) -> bool:
    """Whether there is a file already, and it is not a mapping alone."""
    import tomllib

    from ttftdoctor.mapping import TABLES

    try:
        return not set(tomllib.loads(path.read_text(encoding="utf-8"))) <= set(TABLES)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):
        return True


def _put_proposal(proposal: Any, target: str) -> None:
    """Write a mapping file that was made for a log; never over a file that holds more."""
    if target != "-" and _holds_more(Path(target)):
        raise UsageError(
            "this file holds more than a mapping", where=target,
            help="write the proposal to a file of its own and put its tables in by hand",
        )  # fmt: skip
    put(proposal.text, target)
    if target == "-":
        return
    doubts = sum("# perhaps:" in line for line in proposal.text.splitlines())
    also = f" (lines that may be right are comments in it: {doubts})" if doubts else ""
    note(f"written: {target}; check it{also}, then give it with --mapping {target}")
