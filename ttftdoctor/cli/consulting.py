"""What can be looked up without a log: formats, the manual, what hardware allows."""

from __future__ import annotations

from typing import Annotated

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import AsJson, BytesPerParam, NoColor
from ttftdoctor.cli.output import emit_json, screen
from ttftdoctor.cli.screens import print_formats, print_roofline


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
    with guard():
        from ttftdoctor.catalog import formats_in_markdown, readers

        if markdown:
            typer.echo(formats_in_markdown(), nl=False)
            return
        if json_:
            rows = [{"name": r.name, "title": r.title, "lacks": r.lacks} for r in readers()]
            emit_json(rows)
            return
        with screen(no_color) as console:
            print_formats(console, readers())


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
    with guard():
        from ttftdoctor.manual import find
        from ttftdoctor.manual.terminal import print_list, print_page

        page = None if name is None else find(name)
        with screen(no_color) as console:
            if page is None:
                print_list(console)
            else:
                print_page(console, page)


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
    with guard():
        from ttftdoctor.hardware import Machine
        from ttftdoctor.hardware import roofline as work_out

        machine = Machine(params, bytes_per_param, flops, bandwidth, kv_bytes_per_token)
        r = work_out(machine, input_, output)
        if json_:
            emit_json(r.to_dict())
            return
        with screen(no_color) as console:
            print_roofline(console, r, input_, output)


def _page_names(incomplete: str) -> list[tuple[str, str]]:
    """The manual's pages for the shell: what begins with what was typed, with titles."""
    from ttftdoctor.manual import pages

    return [(page.id, page.title) for page in pages() if page.id.startswith(incomplete)]
