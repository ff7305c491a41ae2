"""Where the logs of this benchmark lie, and their making by a process of its own.

Imports neither NumPy nor Polars, so that whoever times other processes stays small.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SEED = 20260730
#: Part of a cached file's name: raise it when the generated log changes.
EDITION = 1

FIELDS = (
    "request_id", "session_id", "turn", "timestamp", "model", "replica", "input_tokens",
    "cached_tokens", "output_tokens", "ttft_ms", "e2e_ms", "status",
)  # fmt: skip

#: The cause that ``make.py`` puts into a log without reuse.
PLANTED = "repeated_prefix_no_reuse"

PLAIN = ("jsonl", "parquet")
PACKED = ("jsonl.gz", "jsonl.zst")
#: JSON lines that have the ids of the prompts' blocks.
BLOCKS = "blocks"

PACK = """
import gzip, shutil, sys
import zstandard
source, half = sys.argv[1:]
with open(source, "rb") as lines:
    packed = (gzip.open(half, "wb", 6) if ".gz" in half
              else zstandard.ZstdCompressor(3).stream_writer(open(half, "wb")))
    with packed:
        shutil.copyfileobj(lines, packed, 2**20)
"""


def log_of(folder: Path, rows: int, form: str) -> Path:
    """The log of this size and form, made unless an earlier run has left it in the folder."""
    stem = folder / f"chat-{rows}-seed{SEED}-v{EDITION}"
    if form == BLOCKS:
        stem = stem.with_name(f"{stem.name}-{BLOCKS}")
    path = Path(f"{stem}.{'jsonl' if form == BLOCKS else form}")
    if path.exists():
        return path
    if form in PACKED:
        half = path.with_suffix(f".part{path.suffix}")
        lines = log_of(folder, rows, "jsonl")
        subprocess.run([sys.executable, "-c", PACK, str(lines), str(half)], check=True)
        half.replace(path)
        return path
    make = [sys.executable, str(Path(__file__).with_name("make.py")), str(rows)]
    make += ["--blocks", "--jsonl"] if form == BLOCKS else [f"--{form}"]
    make += [str(path), "--truth", f"{stem}.truth.json"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return path


def truth_of(path: Path) -> dict[str, Any]:
    """What was put into a log: see ``Truth`` in ``make.py``."""
    stem = path.name.partition(".")[0]
    found: dict[str, Any] = json.loads(path.with_name(f"{stem}.truth.json").read_text())
    return found
