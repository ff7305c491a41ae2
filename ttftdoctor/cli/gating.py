"""Runs held against baselines: keeping one, checking against it, and how they went."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ttftdoctor.cli.guard import guard
from ttftdoctor.cli.options import (
    Format,
    Lang,
    Logs,
    Map,
    MapFile,
    NoColor,
    Query,
    Quiet,
    Since,
    SloTtft,
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
    drop_stdout,
    emit,
    hand_out,
    note,
    progress,
    put,
    screen,
)
from ttftdoctor.cli.screens import print_baseline
from ttftdoctor.cli.values import manner, only_of, pairs_of, seconds_of, units_of, warm_up_of
from ttftdoctor.errors import UsageError
from ttftdoctor.language import speaking


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
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Keep what a good run was like in a small file, to hold later ones against it.

    For example: ttftdoctor baseline run1.jsonl run2.jsonl run3.jsonl --runs -o ttft-baseline.json

    The file has sums and names of models and routes, no prompt and no request; baselines that are
    given among the logs are taken over, so that runs add up.
    """
    with guard(), manner(mapping, timezone), speaking(lang):
        from ttftdoctor.gate.flow import baseline as run
        from ttftdoctor.gate.flow import is_baseline

        # A baseline that is taken over may be written anew, with what was added to it.
        distinct({"--output": output}, [log for log in logs if not is_baseline(Path(log))])
        whole = run(
            *logs, runs=runs, label=label, warm_up=warm_up_of(warm_up), format=format,
            columns=pairs_of(map_, "--map"), units=units_of(unit),
            only=only_of(since, until, where, query), progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        kept = whole.fit_in()
        text = kept.to_text()
        put(text, output)
        if quiet or output == "-":
            return
        with screen(no_color) as console:
            print_baseline(console, kept, len(text.encode()))
        note(f"written: {output}")


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
    slo_ttft: SloTtft = None,
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
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Fail if the first token got later than the baseline at equal traffic, and say what moved.

    For example: ttftdoctor check canary.jsonl --baseline ttft-baseline.json --junit ttft.xml

    Longer prompts, later turns or more requests are no regression: like is compared with like.
    """
    with guard(inside=70), manner(mapping, timezone), speaking(lang):
        targets = {"json": json_, "markdown": markdown, "html": html, "junit": junit,
                   "sarif": sarif, "codequality": codequality}  # fmt: skip
        distinct({f"--{name}": target for name, target in targets.items()}, logs, baseline)
        if github and "-" in targets.values():
            raise UsageError("--github prints to standard output: give the report a file")
        from ttftdoctor.gate.flow import check as run

        found = run(
            logs, baseline, policy=policy, slo_ttft_s=seconds_of(slo_ttft, "--slo-ttft", "800ms"),
            runs=runs, warm_up=None if warm_up is None else warm_up_of(warm_up), label=label,
            format=format, columns=pairs_of(map_, "--map"), units=units_of(unit),
            only=only_of(since, until, where, query), progress=progress(quiet),
        )  # fmt: skip
        clear_progress(quiet)
        try:
            _show_check(found, targets, github=github, quiet=quiet, no_color=no_color)
        except BrokenPipeError:
            # Whoever read our output has seen enough; the answer is the exit code.
            drop_stdout()
        raise typer.Exit(found.exit_code)


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
    slo_ttft: SloTtft = None,
    json_: ToJson = None,
    markdown: ToMarkdown = None,
    quiet: Quiet = False,
    lang: Lang = "en",
    no_color: NoColor = False,
) -> None:
    """Say how a service went over many baselines, and where it changed, at equal traffic.

    For example: ttftdoctor history baselines/

    Keep one line a run with: ttftdoctor history --append history.jsonl ttft-baseline.json
    """
    with guard(), speaking(lang):
        from ttftdoctor.gate import shelf

        if append is not None:
            if json_ is not None or markdown is not None or slo_ttft is not None:
                raise UsageError("--append only adds to a file: ask for a report without it")
            for name, added in shelf.append_all(append, baselines):
                if not quiet or not added:
                    text = f"added to {append}" if added else f"is in {append} already"
                    note(f"{name} {text}")
            return
        targets = {"json": json_, "markdown": markdown}
        distinct({f"--{name}": target for name, target in targets.items()}, baselines)
        found = shelf.history(*baselines, slo_ttft_s=seconds_of(slo_ttft, "--slo-ttft", "800ms"))
        from ttftdoctor.gate.history_report import FORMS, print_to

        for one in found.set_aside:
            note(f"warning: {one.name}: {one.why}")
        hand_out(
            targets,
            lambda name: FORMS[name](found),
            lambda console: print_to(console, found),
            quiet=quiet, no_color=no_color,
        )  # fmt: skip


def _show_check(
    found: Any, targets: dict[str, str | None], *, github: bool, quiet: bool, no_color: bool
) -> None:
    """Write and print a check; on GitHub what is printed cannot command the runner."""
    from ttftdoctor.gate.forms import FORMS
    from ttftdoctor.gate.page import render as render_page
    from ttftdoctor.gate.reports.terminal import print_to

    fence = ""
    if github:
        import secrets

        # Between these lines the runner takes nothing as a command, whatever a log calls itself.
        fence = secrets.token_hex(16)
        emit(f"::stop-commands::{fence}\n")
    hand_out(
        targets,
        lambda name: render_page(found) if name == "html" else FORMS[name].render(found),
        lambda console: print_to(console, found),
        quiet=quiet, no_color=no_color,
    )  # fmt: skip
    if not github:
        return
    emit(f"::{fence}::\n" + FORMS["github"].render(found))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8", errors="replace") as file:
                file.write(FORMS["summary"].render(found) + "\n")
        except OSError as error:
            note(f"cannot write the summary of the job: {error.strerror}")
