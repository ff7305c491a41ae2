"""Where baselines of a history are kept: files, folders of them, and JSON lines.

In JSON lines each line is one baseline document, so that a history is one file that grows by a
line a run. What is broken is named and skipped: one bad line must not cost the other hundred.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.gate.baseline import Baseline
from ttftdoctor.gate.flow import read_baseline
from ttftdoctor.gate.history import Entry, History, SetAside, earliest, history_of
from ttftdoctor.language import speaking, tr
from ttftdoctor.units import count
from ttftdoctor.version import tool_version

LINES = (".jsonl", ".ndjson")
#: A line that is longer than this was not written by us.
MOST_LINE_BYTES = 5_000_000
#: More baselines than this are no history that anybody reads.
MOST_ENTRIES = 5_000
#: Lines of a file that are named where they are no baselines.
MOST_BROKEN = 5


def history(*sources: str | Path | Baseline, slo_ttft_s: float | None = None) -> History:
    """Say how a service went over many baselines, and where it changed.

    Parameters
    ----------
    sources
        Baseline files, folders of them, JSON lines files, or baselines.
    slo_ttft_s
        Target for TTFT in seconds; adds attainment and goodput.

    Raises
    ------
    InputError
        If no baseline is left that can be read and compared.

    Examples
    --------
    >>> found = history("baselines/")  # doctest: +SKIP
    >>> found.headline  # doctest: +SKIP
    'Worse since v1.4 (2026-03-12): mean TTFT +12 % at equal mix (and 2 more metrics)'
    """
    entries: list[Entry] = []
    broken: list[SetAside] = []
    for source in sources:
        if isinstance(source, Baseline):
            entries.append(Entry(source.label, source))
        else:
            found, bad = read_entries(Path(source))
            entries += found
            broken += bad
    return history_of(entries, slo_s=slo_ttft_s, version=tool_version(), set_aside=broken)


def read_entries(path: Path) -> tuple[list[Entry], list[SetAside]]:
    """The baselines of a file or a folder, and what there could not be read.

    Of a folder the files that end in ``.json`` or the ending of JSON lines are read, not those of
    folders in it.

    Raises
    ------
    InputError
        If there is no such file or folder.
    """
    entries: list[Entry] = []
    broken: list[SetAside] = []
    for file in _files(path):
        if file.suffix.lower() in LINES:
            found, bad = _lines(file)
            entries += found
            broken += _summed_up(file, bad, any_good=bool(found))
        else:
            try:
                entries.append(Entry(str(file), read_baseline(file)))
            except InputError as error:
                broken.append(SetAside(str(file), _why(error)))
    if len(entries) > MOST_ENTRIES:
        raise InputError(f"more than {MOST_ENTRIES:,} baselines", where=str(path))
    return entries, broken


def _summed_up(file: Path, bad: list[SetAside], *, any_good: bool) -> list[SetAside]:
    """The lines that are no baselines; of many, as of a log among baselines, the first few."""
    if not any_good and len(bad) > 1:
        return [SetAside(str(file), tr("none of its {n} lines is a baseline", n=count(len(bad))))]
    more = len(bad) - MOST_BROKEN
    if more <= 0:
        return bad
    why = tr("{n} more lines are no baselines", n=count(more))
    return [*bad[:MOST_BROKEN], SetAside(str(file), why)]


def append(path: Path, baseline: Baseline) -> bool:
    """Add a baseline to a JSON lines file as its last line.

    The file is written anew beside the old one and takes its place at once: who reads meanwhile
    sees the old one or the new one, and a crash leaves the old one. Two who append at the same
    time wait for each other, where the system has locks.

    Returns
    -------
    bool
        False if a baseline of the same label and the same start is there already: then nothing is
        written.

    Raises
    ------
    UsageError
        If the file cannot be written, or its name does not say JSON lines.
    """
    if path.suffix.lower() not in LINES:
        raise UsageError(
            "a history is kept in JSON lines", where=str(path), help="let its name end in .jsonl"
        )
    target = path.resolve()
    line = json.dumps(baseline.fit_in().to_dict(), separators=(",", ":"), allow_nan=False)
    try:
        with _alone(target):
            before = target.read_bytes() if target.exists() else b""
            if _has(target, baseline):
                return False
            if before and not before.endswith(b"\n"):
                before += b"\n"  # a line that was cut off stays one line
            _replace(target, before + line.encode() + b"\n")
    except OSError as error:
        raise UsageError("cannot write the history", where=str(path), why=error.strerror) from None
    return True


def append_all(path: str | Path, sources: Sequence[str | Path]) -> list[tuple[str, bool]]:
    """Add every baseline of some files to a JSON lines file: its name, and whether it was added.

    Raises
    ------
    InputError
        If any of them cannot be read: then nothing is added.
    UsageError
        As :func:`append`.
    """
    entries: list[Entry] = []
    for source in sources:
        with speaking("en"):  # as all errors are
            found, broken = read_entries(Path(source))
        if broken:
            raise InputError(broken[0].why, where=broken[0].name)
        entries += found
    return [(entry.name, append(Path(path), entry.baseline)) for entry in entries]


# --- parts of it ----------------------------------------------------------------------------------


def _files(path: Path) -> Sequence[Path]:
    try:
        if path.is_dir():
            return sorted(
                file
                for file in path.iterdir()
                if file.suffix.lower() in (".json", *LINES) and file.is_file()
            )
    except OSError as error:
        raise InputError("cannot be read", where=str(path), why=error.strerror) from None
    if not path.exists():
        raise InputError("no such file or folder", where=str(path))
    return [path]


def _lines(path: Path) -> tuple[list[Entry], list[SetAside]]:
    entries: list[Entry] = []
    broken: list[SetAside] = []
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE_BYTES + 1):
                number += 1
                name = f"{path} line {number}"
                if len(line) > MOST_LINE_BYTES:
                    broken.append(SetAside(name, tr("the line is too long to be a baseline")))
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MOST_LINE_BYTES)  # the rest of it
                    continue
                if not line.strip():
                    continue
                try:
                    entries.append(Entry(name, Baseline.from_text(line.decode("utf-8"), name)))
                except UnicodeDecodeError:
                    broken.append(SetAside(name, tr("this is no UTF-8 text")))
                except InputError as error:
                    broken.append(SetAside(name, _why(error)))
    except OSError as error:
        broken.append(SetAside(str(path), error.strerror or tr("cannot be read")))
    return entries, broken


def _why(error: InputError) -> str:
    what = tr(error.what)
    return what if not error.why else tr("{what} ({why})", what=what, why=error.why)


def _has(path: Path, baseline: Baseline) -> bool:
    """Whether one of the same label and start is in the file; broken lines are none."""
    if not path.exists():
        return False
    key = baseline.label, earliest(s.facts.start for s in baseline.sketches)
    with path.open("rb") as file:
        return any(_key(line) == key for line in file)


def _key(line: bytes) -> tuple[str, str | None] | None:
    """Label and start of a line, without reading all of what it sums."""
    try:
        document = json.loads(line)
        label = document["label"]
        return label, earliest(run["facts"]["start"] for run in document["runs"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _replace(path: Path, content: bytes) -> None:
    """Put a file in the place of another at once."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # As an ordinary new file, or as the one that it replaces.
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else appends meanwhile: a lock on the folder, which stays where files are replaced."""
    try:
        import fcntl
    except ImportError:  # Windows: the file is still replaced at once
        yield
        return
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
