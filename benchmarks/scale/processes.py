"""Whole processes, timed from their start to their end, with their peak of memory.

The parent must stay small: the system counts its memory into that of a child until the child has
become another program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two looks at the memory of a tree of processes.
LOOK = 0.05


@dataclass(frozen=True)
class Run:
    """One process: seconds by the clock, seconds of processor time of it and all it waited for,
    MiB at its peak, and, if asked for, MiB at the peak of it and all its descendants together.
    """

    seconds: float
    busy: float
    mib: float
    tree: float | None = None


def run(
    command: list[str],
    folder: Path,
    *,
    out: Path | None = None,
    more: dict[str, str] | None = None,
    tree: bool = False,
) -> Run:
    """Run a command to its end; a failure ends the benchmark with what the command said.

    Args:
        command: Program and arguments.
        folder: Where compiled modules are kept, so that none lie beside the sources.
        out: Where standard output goes; thrown away by default.
        more: Variables for its environment.
        tree: Whether to look at descendants too (Linux; pages that they share count once each).
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), **(more or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with (
        tempfile.TemporaryFile() as errors,
        (out or Path(os.devnull)).open("wb") as answer,
    ):
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=answer, stderr=errors, env=environment)
        looks = Looks(child.pid) if tree and Path("/proc/self/statm").exists() else None
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        together = looks.peak() if looks else None
        if child.returncode:
            errors.seek(0)
            said = errors.read()[-4000:].decode(errors="replace")
            sys.exit(f"{' '.join(command[:4])} ended with {child.returncode}:\n{said}")
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / per_mib, together)


class Looks:
    """Looks again and again at the memory of a process and its descendants."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._most = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def peak(self) -> float:
        """Stop looking; the most that was seen, in MiB."""
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            self._most = max(self._most, resident(self._root))


def resident(root: int) -> float:
    """MiB of a process and its descendants at this moment."""
    page = os.sysconf("SC_PAGE_SIZE")
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name of a program may hold spaces and brackets; numbers follow the last one.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        pages[int(entry.name)] = int(fields[21])
    total, ahead = 0, [root]
    while ahead:
        one = ahead.pop()
        total += pages.get(one, 0)
        ahead += children.get(one, [])
    return total * page / 2**20
