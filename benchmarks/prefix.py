"""Time and memory of the prefix report on a large trace with block ids, beside others.

Side by side: ``ttftdoctor prefix`` (everything in it: ladder, curves of size, lifetime and routing,
leaders, breakers), reading alone, a bare Polars pass that reads and explodes the blocks, and, where
it is installed (``python -m pip install kvcache-simulator``, and a C++ compiler), its compiled core
with least recently used and optimal eviction at its default sizes.

Run ``python benchmarks/prefix.py TRACE``, where ``TRACE`` is a Mooncake trace (JSON lines with
``timestamp``, ``input_length``, ``output_length`` and ``hash_ids``). It is repeated copy after
copy: each copy begins when the one before has ended, and has block ids of its own, so that the
large trace repeats within itself exactly what the small one does. Every figure is that of a whole
process; the contenders take turns within each repeat.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from speed import Run, middle, run

# The parent must stay small: the system counts its memory into that of a child until the child
# has become another program. So whatever needs NumPy or Polars is a child of its own.

COPIES = 40
#: Part of the cached file's name: raise it when the written trace changes.
EDITION = 1

TARGET_SECONDS = 15.0
TARGET_MIB = 1.5e9 / 2**20
#: Times that the other simulator must take at least.
TARGET_TIMES = 5.0

POLARS_PASS = """
import sys
import polars as pl
types = {"timestamp": pl.Float64, "input_length": pl.Int64, "output_length": pl.Int64,
         "hash_ids": pl.List(pl.UInt64)}
frame = pl.read_ndjson(sys.argv[1], schema=types)
blocks = frame.select(pl.col("hash_ids").explode(keep_nulls=False, empty_as_null=False))
print(frame.height, blocks.height, blocks["hash_ids"].max())
"""

READ = """
import sys
import ttftdoctor
log = ttftdoctor.read(sys.argv[1])
print(log.requests.height, log.fields["prefix_blocks"].kind)
"""


def write_copies(trace: Path, path: Path, copies: int) -> None:
    """Write the trace ``copies`` times over, each copy later and with ids of its own."""
    import polars as pl

    types = {
        "timestamp": pl.Int64, "input_length": pl.Int64, "output_length": pl.Int64,
        "hash_ids": pl.List(pl.Int64),
    }  # fmt: skip
    one = pl.read_ndjson(trace, schema=types)
    ids = one["hash_ids"].list.max().max() + 1
    lasts = one["timestamp"].max() + 1000
    half = path.with_suffix(".part")
    with half.open("wb") as file:
        for copy in range(copies):
            numbers = (pl.element() + copy * ids).cast(pl.String)
            lines = one.select(
                pl.concat_str(
                    pl.lit('{"timestamp": '), pl.col("timestamp") + copy * lasts,
                    pl.lit(', "input_length": '), "input_length",
                    pl.lit(', "output_length": '), "output_length",
                    pl.lit(', "hash_ids": ['),
                    pl.col("hash_ids").list.eval(numbers).list.join(", "),
                    pl.lit("]}\n"),
                )
            ).to_series()  # fmt: skip
            file.write("".join(lines).encode())
    half.replace(path)


def copies_of(trace: Path, folder: Path, copies: int) -> Path:
    """The large trace, written unless an earlier run has left it in the folder."""
    mark = hashlib.sha256(trace.read_bytes()).hexdigest()[:12]
    path = folder / f"trace-{mark}-x{copies}-v{EDITION}.jsonl"
    if not path.exists():
        write = [sys.executable, __file__, "--write", str(path), "--copies", str(copies)]
        subprocess.run([*write, str(trace)], check=True)
    return path


def contenders(path: Path, folder: Path) -> dict[str, list[str]]:
    """The commands to run, by name."""
    out = {
        "polars pass": [sys.executable, "-c", POLARS_PASS, str(path)],
        "read": [sys.executable, "-c", READ, str(path)],
        "prefix": [
            sys.executable, "-m", "ttftdoctor", "prefix", str(path), "--quiet", "--json",
            str(folder / "prefix.json"),
        ],
    }  # fmt: skip
    other = shutil.which("kvcache-simulator", path=str(Path(sys.executable).parent))
    if other is not None:
        out["kvcache-sim"] = [
            other, "run", "--trace", str(path), "--model", "llama-3.1-70b", "--block-size", "512",
            "--policies", "lru,optimal", "--no-progress",
        ]  # fmt: skip
    return out


def measure(path: Path, folder: Path, repeats: int) -> list[str]:
    """Run all, print the table, and return the targets that were missed."""
    commands = contenders(path, folder)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    small = path.with_suffix(".head.jsonl")
    with path.open("rb") as lines, small.open("wb") as head:
        head.writelines(itertools.islice(lines, 2000))
    for command in contenders(small, folder).values():  # what is compiled is compiled before
        run(command, folder)
    small.unlink()
    for repeat in range(repeats):
        names = list(commands)
        at = repeat % len(names)
        for name in names[at:] + names[:at]:
            runs[name].append(run(commands[name], folder))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{p} {metadata.version(p)}" for p in ("ttftdoctor", "polars", "numba"))
    )
    print(f"{path.stat().st_size / 2**20:.0f} MiB, {repeats} repeats; median (min-max)\n")
    print(f"{'':12} {'seconds':>20} {'CPU s':>6} {'peak MiB':>9}")
    for name, some in runs.items():
        print(
            f"{name:12} {middle([r.seconds for r in some]):>20} "
            f"{statistics.median(r.busy for r in some):6.2f} {max(r.mib for r in some):9.0f}"
        )
    missed = []
    seconds = {name: statistics.median(r.seconds for r in some) for name, some in runs.items()}
    peak = max(r.mib for r in runs["prefix"])
    if seconds["prefix"] > TARGET_SECONDS:
        missed.append(f"the report takes {seconds['prefix']:.2f} s")
    if peak > TARGET_MIB:
        missed.append(f"the report needs {peak:.0f} MiB")
    if "kvcache-sim" in seconds:
        times = seconds["kvcache-sim"] / seconds["prefix"]
        print(f"\nkvcache-sim takes {times:.1f} times as long as the report")
        if times < TARGET_TIMES:
            missed.append(f"only {times:.1f} times as fast as kvcache-sim")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "ttftdoctor-benchmark",
        help="where the large trace is kept",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--write", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_copies(options.trace, options.write, options.copies)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    path = copies_of(options.trace, options.folder, options.copies)
    missed = measure(path, options.folder, options.repeats)
    print("\n" + ("\n".join("missed: " + m for m in missed) if missed else "all targets met"))
    if missed and options.strict:
        sys.exit(1)


if __name__ == "__main__":
    main()
