"""Errors in, one message and an exit code out."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from ttftdoctor.cli.output import drop_stdout, fail
from ttftdoctor.errors import TTFTDoctorError

if TYPE_CHECKING:
    from types import TracebackType


def _ended(number: int, _: object) -> None:
    raise SystemExit(128 + number)


class guard:  # noqa: N801  (reads as a word where it is used)
    """Turn our errors into one message on stderr and an exit code; never a traceback.

    ``inside`` is the code of an error of our own.
    """

    def __init__(self, inside: int = 3) -> None:
        self.inside = inside

    def __enter__(self) -> None:
        # Whoever ends us gently finds no files left behind, as after Ctrl-C.
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                with suppress(ValueError):  # only the main thread may say so
                    signal.signal(number, _ended)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (typer.Exit, typer.Abort, SystemExit)):
            return
        if isinstance(error, TTFTDoctorError):
            fail(str(error))
        if isinstance(error, BrokenPipeError):
            # The reader of our output went away: that is its business.
            drop_stdout()
            raise typer.Exit(0)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130)
        if isinstance(error, MemoryError):
            fail("not enough memory for this log", 2)
        # Anything else is our mistake; a panic inside Polars is no Exception, but comes here too.
        first = (str(error).splitlines() or ["no message"])[0]
        fail(
            f"something went wrong inside ttftdoctor ({type(error).__name__}: {first})\n"
            "  help: please report this, with --format and the first lines of the log",
            self.inside,
        )
