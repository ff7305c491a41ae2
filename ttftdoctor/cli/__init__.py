"""The command line: arguments in, text and an exit code out. Nothing heavy is imported here."""

from __future__ import annotations

import os
import sys
from typing import Annotated

try:
    import typer
except KeyboardInterrupt:
    raise SystemExit(130) from None

from ttftdoctor.cli.comparing import compare, contrast
from ttftdoctor.cli.consulting import explain, formats, roofline
from ttftdoctor.cli.diagnosing import diagnose, inspect
from ttftdoctor.cli.gating import baseline, check, history
from ttftdoctor.cli.handing_on import convert, export
from ttftdoctor.cli.options import EXIT_CODES, GATE_CODES
from ttftdoctor.cli.output import drop_stdout
from ttftdoctor.cli.prefixing import prefix
from ttftdoctor.cli.simulating import simulate
from ttftdoctor.cli.watching import watch

app = typer.Typer(
    name="ttftdoctor",
    help="Says why the first token of an LLM service is late, from its request log.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


#: Options of ``mallopt`` by number: one arena for all threads (-8), no block below 32 MiB by itself
#: (-3), and nothing given back from the end of the heap (-1), which grows by 64 MiB (-2).
_HEAP = ((-8, 1), (-3, 2**25), (-1, 2**31 - 1), (-2, 2**26))


def _version(value: bool) -> None:
    if value:
        from ttftdoctor.version import tool_version

        typer.echo(f"ttftdoctor {tool_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Says why the first token of an LLM service is late, from its request log."""


# In the order of ``--help``.
app.command(epilog=EXIT_CODES)(diagnose)
app.command(epilog=EXIT_CODES)(watch)
app.command(epilog=EXIT_CODES)(inspect)
app.command(epilog=EXIT_CODES)(contrast)
app.command(epilog=EXIT_CODES)(compare)
app.command(epilog=EXIT_CODES)(prefix)
app.command(epilog=EXIT_CODES)(export)
app.command(epilog=EXIT_CODES)(formats)
app.command(epilog=EXIT_CODES)(explain)
app.command(epilog=EXIT_CODES)(roofline)
app.command(epilog=EXIT_CODES)(simulate)
app.command(epilog=EXIT_CODES)(baseline)
app.command(epilog=GATE_CODES)(check)
app.command(epilog=EXIT_CODES)(history)
app.command(epilog=EXIT_CODES)(convert)


def _keep_freed() -> None:
    """Have the C library of Linux keep what is freed, in one heap, for what is asked for next.

    Arrays of some megabytes come and go all the time. Each would be given back to the system, and
    another one taken of it in pages that must be zeroed first: a twentieth of all processor time.
    """
    if sys.platform != "linux":
        return
    import ctypes

    try:
        set_ = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a C library of another kind
        return
    for option, value in _HEAP:
        set_(option, value)


def main() -> None:
    """Entry point of the ``ttftdoctor`` command.

    Leaves without taking the interpreter apart: giving back the memory of a large log piece by
    piece would cost a tenth of a second, and the system does it at once.
    """
    import gc

    gc.set_threshold(1_000_000)  # nearly all that is made here lives to the end
    if sys.argv[1:2] != ["watch"]:  # which goes on for days, and should give back what it can
        _keep_freed()
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
        drop_stdout()
    os._exit(code or 0)
