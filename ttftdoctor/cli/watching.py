"""What logs say while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import Format, Lang, Map, MapFile, NoColor, Timezone, Unit
from ttftdoctor.cli.output import distinct, emit, note, put_at_once, screen
from ttftdoctor.cli.values import manner, pairs_of, seconds_of, units_of
from ttftdoctor.errors import UsageError
from ttftdoctor.language import speaking

if TYPE_CHECKING:
    from threading import Event

    from ttftdoctor.watching.flow import View

#: Looking more often would only cost more.
LEAST_S = 0.1


def watch(
    logs: Annotated[
        list[str],
        typer.Argument(
            help="Files that grow, and globs, to which new files may come.", metavar="LOG..."
        ),
    ],
    state: Annotated[
        str | None,
        typer.Option("--state", help="Keep what was read in this folder, and go on from it."),
    ] = None,
    interval: Annotated[
        str, typer.Option("--interval", help="How often the logs are looked at.")
    ] = "10s",
    for_: Annotated[
        str | None, typer.Option("--for", help="End after so long, e.g. 10min.")
    ] = None,
    openmetrics: Annotated[
        str | None,
        typer.Option(
            "--openmetrics", help="Write metrics for Prometheus to a .prom file, again and again."
        ),
    ] = None,
    format: Format = None,
    map_: Map = None,
    unit: Unit = None,
    mapping: MapFile = None,
    timezone: Timezone = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on the screen, and no report at the end.")
    ] = False,
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Follow logs as they grow: the verdict so far, and the last minutes against the hour before.

    Ctrl-C ends it with the report of diagnose. Rotation by rename or by copy and truncate is
    followed. Memory grows with the rows, as that of diagnose does; the diagnosis is made again only
    after forty times as long as the last one took.

    For example: ttftdoctor watch /var/log/llm/requests.jsonl --state watch-state
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        every = seconds_of(interval, "--interval", "10s or 1min")
        seconds = seconds_of(for_, "--for", "10min or 1h")
        distinct({"--openmetrics": openmetrics}, logs)
        if openmetrics == "-":
            raise UsageError("--openmetrics wants the name of a file")
        from ttftdoctor.outputs.openmetrics import render
        from ttftdoctor.watching.flow import Watch, run

        def diagnosed(found: Any) -> None:
            if openmetrics is not None:
                put_at_once(render(found), openmetrics)

        with _until_interrupted() as stopped:
            watched = Watch(
                logs, format=format, columns=pairs_of(map_, "--map"), units=units_of(unit),
                state=state,
            )  # fmt: skip
            try:
                with _shown(quiet, no_color) as show:
                    found = run(
                        watched, show, diagnosed, interval=max(every or LEAST_S, LEAST_S),
                        seconds=seconds, stopped=stopped,
                    )  # fmt: skip
            finally:
                watched.close()
        if quiet:
            return
        if found is None:
            note("no request was seen")
            return
        from ttftdoctor.local_time import in_zone
        from ttftdoctor.report.terminal import print_to

        with screen(no_color) as console:
            print_to(console, in_zone(found, timezone))


@contextmanager
def _until_interrupted() -> Iterator[Event]:
    """What is set by Ctrl-C, or by being asked to end; a second Ctrl-C ends at once."""
    import signal
    from threading import Event

    stopped = Event()
    before = {}

    def stop(number: int, _: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(quiet: bool, no_color: bool) -> Iterator[Callable[[View], None]]:
    """What shows how things are: a page on a terminal, else one line each time."""
    from rich.console import Console

    from ttftdoctor.watching.screen import Page, line

    if quiet:
        yield lambda _: None
        return
    console = Console(no_color=no_color or None, highlight=False, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda view: emit(line(view) + "\n")
        return
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(view: View) -> None:
            size = console.size
            page = Page(size.width, size.height, plain=console.options.ascii_only)
            live.update(page.page(view), refresh=True)

        yield show
