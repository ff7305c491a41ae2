"""Writing a run down as a flat log, at a level of detail."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ttftdoctor.errors import UsageError
from ttftdoctor.simulator.faults import Columns, logged
from ttftdoctor.simulator.truth import Run

#: Level of detail to the columns that it lacks.
LACKS: dict[str, tuple[str, ...]] = {
    "full": (),
    "no_queue": ("queue_ms", "prefill_ms"),
    "no_cached": ("cached_tokens",),
    "client": ("cached_tokens", "queue_ms", "prefill_ms", "decode_ms", "load_ms"),
    "no_sessions": ("session_id", "turn"),
    "blocks": (),
}
DETAILS = tuple(LACKS)

#: Blocks in the log have at least this many tokens, so that long prompts stay readable.
LEAST_BLOCK = 64


def write_log(run: Run, path: str | Path, detail: str = "full") -> None:
    """Write JSON lines, packed if the name ends in ``.gz``; the same run gives the same bytes.

    Raises
    ------
    UsageError
        If there is no such level of detail, or the file cannot be written.
    """
    data = log_bytes(run, detail)
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError("cannot write the log", where=str(path), why=error.strerror) from None


def log_bytes(run: Run, detail: str = "full") -> bytes:
    """The log as JSON lines in UTF-8."""
    if detail not in LACKS:
        raise UsageError(f"no level of detail {detail!r}", available=", ".join(DETAILS))
    columns = logged(run.plan, run.columns())
    columns = {name: v for name, v in columns.items() if name not in LACKS[detail]}
    if detail == "blocks":
        block = block_tokens(run)
        rows = len(next(iter(columns.values())))
        columns["prefix_blocks"] = list(prefix_blocks(run, block))[:rows]
        columns["block_tokens"] = [block] * rows
    return "".join(_lines(columns)).encode()


def _lines(columns: Columns) -> Iterator[str]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        row: dict[str, Any] = dict(zip(names, values, strict=True))
        yield json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n"


def block_tokens(run: Run) -> int:
    """Tokens of a logged block: those of the engine's block, doubled until it is long enough."""
    size = max(server.block_tokens for server in run.plan.service.server)
    while size < LEAST_BLOCK:
        size *= 2
    return size


def prefix_blocks(run: Run, block: int) -> Iterator[list[int]]:
    """A number for each whole block of each prompt; equal numbers mean equal heads up to there.

    A part's number stands for all that is before it, so part and place within it name the whole
    head; they are mixed (the finaliser of SplitMix64, Steele et al. 2014) so as to look like
    hashes.
    """
    lengths = np.array(run.lengths, dtype=np.int64)
    for job in run.jobs:
        path = np.array(job.path, dtype=np.int64)
        ends = np.cumsum(lengths[path])
        last = np.arange(block, int(ends[-1]) + 1, block, dtype=np.int64)
        at = np.searchsorted(ends, last, side="left")
        inside = last - (ends[at] - lengths[path[at]])
        key = (path[at].astype(np.uint64) << np.uint64(32)) | inside.astype(np.uint64)
        yield _mixed(key).tolist()


def _mixed(key: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    z = key + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(1)
