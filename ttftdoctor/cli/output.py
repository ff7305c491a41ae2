"""Where words go: standard output and error, the screen, and the files that were asked for."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ttftdoctor.errors import UsageError, hidden

if TYPE_CHECKING:
    from rich.console import Console


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong on standard error, and leave with an exit code."""
    from ttftdoctor.report import clean

    lines = [clean(line) for line in message.splitlines()]
    sys.stderr.write("error: " + "\n".join(lines) + "\n")
    raise typer.Exit(code)


def note(message: str) -> None:
    """Say something beside the report: a line on standard error."""
    from ttftdoctor.report import clean

    sys.stderr.write(clean(hidden(message)) + "\n")


def progress(quiet: bool) -> Any:
    """What shows on a terminal how far the reading is; None where nobody looks."""
    if quiet or not sys.stderr.isatty():
        return None

    def show(path: str, rows: int) -> None:
        from ttftdoctor.report import clean

        text = f"reading {clean(Path(path).name)[:45]}: {rows:,} rows"
        sys.stderr.write(f"\r{text:<79}")
        sys.stderr.flush()

    return show


def clear_progress(quiet: bool) -> None:
    """Take the line of :func:`progress` away again."""
    if not quiet and sys.stderr.isatty():
        sys.stderr.write(f"\r{'':<79}\r")
        sys.stderr.flush()


def drop_stdout() -> None:
    """Send what is left in the buffers of standard output nowhere, so that exit is quiet."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def emit(text: str, encoding: str = "utf-8") -> None:
    """Write to standard output at once; characters that cannot be encoded become ``?``."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise UsageError("cannot write to standard output", why=error.strerror) from None


def emit_json(document: Any) -> None:
    """Write a document as JSON to standard output."""
    emit(json.dumps(document, indent=2, allow_nan=False) + "\n")


class _Sheet(io.StringIO):
    """Text in memory that looks like standard output to whoever writes it."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "utf-8"

    def isatty(self) -> bool:
        return sys.stdout.isatty()


@contextmanager
def screen(no_color: bool) -> Iterator[Console]:
    """A console whose text is written to standard output in one go at the end."""
    sheet = _Sheet()
    yield _console(no_color, sheet)
    emit(sheet.getvalue(), sys.stdout.encoding or "utf-8")


def _console(no_color: bool, file: _Sheet) -> Console:
    from rich.console import Console

    return Console(
        file=file, no_color=no_color or None, highlight=False, markup=False, emoji=False,
        soft_wrap=False, force_terminal=False if no_color else None,
    )  # fmt: skip


def distinct(targets: dict[str, str | None], *sources: Sequence[str | None]) -> None:
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


def hand_out(
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
        put(render(name), target)
    written = [*given.values(), *beside]
    if "-" in written or (quiet and written):
        return
    with screen(no_color) as console:
        show(console)
    for target in written:
        note(f"written: {target}")


def put(text: str, target: str) -> None:
    """Write a document to a file, or to standard output for ``-``."""
    if target == "-":
        emit(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError("cannot write the report", where=target, why=error.strerror) from None


def put_at_once(text: str, target: str) -> None:
    """As :func:`put`, but whoever reads the file meanwhile sees the old one or the new one."""
    path = Path(os.path.realpath(target))
    if target == "-" or (path.exists() and not path.is_file()):
        put(text, target)
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


def put_lines(parts: Iterator[str], target: str) -> None:
    """Write a long text piece by piece; a name that ends in ``.gz`` is packed."""
    if target == "-":
        for part in parts:
            emit(part)
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
