"""The log of a modelled service."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import NoColor
from ttftdoctor.cli.output import emit, note, put, screen
from ttftdoctor.cli.screens import print_run, print_scenarios
from ttftdoctor.errors import UsageError


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
    with guard():
        from ttftdoctor import simulator

        if list_:
            with screen(no_color) as console:
                print_scenarios(console)
            return
        if show is not None:
            emit(simulator.load(show).text)
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
            emit(simulator.log_bytes(run, detail).decode())
        else:
            simulator.write_log(run, output, detail)
        if truth is not None:
            put(json.dumps(document, indent=2, allow_nan=False) + "\n", truth)
        if "-" not in targets:
            with screen(no_color) as console:
                print_run(console, document)
        for target in targets:
            if target != "-":
                note(f"written: {target}")
