"""Time and memory of ``ttftdoctor diagnose`` on large logs, beside a bare scan of the same file.

Run ``python benchmarks/speed.py``; ``--help`` lists the options. Every figure is that of a whole
process, from its start to its end, with peak memory as the system counts it. The contenders take
turns within each repeat, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

# The parent must stay small: the system counts its memory into that of a child until the child
# has become another program. So whatever needs NumPy or Polars is a child of its own.

SIZES = (50_000, 100_000, 200_000, 500_000, 1_000_000)
SEED = 20260310
#: Part of the cached file's name: raise it when the generated log changes.
EDITION = 2

TARGET_ROWS = 500_000
TARGET_SECONDS = 3.0
TARGET_MIB = 1024
TARGET_RATIO = 4.0
TARGET_EXPONENT = 1.1
TARGET_HELP_SECONDS = 0.5

FIELDS = (
    "request_id", "session_id", "turn", "timestamp", "model", "input_tokens", "cached_tokens",
    "output_tokens", "ttft_ms", "e2e_ms", "status",
)  # fmt: skip

POLARS_SCAN = """
import sys
import polars as pl
text = ("request_id", "session_id", "timestamp", "model", "status")
whole = ("turn", "input_tokens", "cached_tokens", "output_tokens")
types = {**dict.fromkeys(text, pl.String), **dict.fromkeys(whole, pl.Int64),
         "ttft_ms": pl.Float64, "e2e_ms": pl.Float64}
frame = pl.scan_ndjson(sys.argv[1], schema=types)
print(frame.group_by("turn").agg(
    pl.col("ttft_ms").mean().alias("mean"), pl.col("ttft_ms").quantile(0.95).alias("p95"),
    pl.len()).sort("turn").collect())
"""

# The same, but with every column read, as the doctor does; the scan reads the two it needs.
POLARS_READ = POLARS_SCAN.replace("schema=types)", "schema=types).collect().lazy()")

DUCKDB_SCAN = """
import sys
import duckdb
print(duckdb.sql(
    "select turn, avg(ttft_ms), quantile_cont(ttft_ms, 0.95), count(*) "
    "from read_json_auto($path, format='newline_delimited') group by turn order by turn",
    params={"path": sys.argv[1]}).fetchall())
"""


# ----------------------------------------------------------------------- log


def write_log(path: Path, rows: int, seed: int = SEED) -> None:
    """Write a log of multi-turn chat: two models, a cache that forgets after five idle minutes.

    Each model prefills one prompt at a time; the load is the same for every size, so that a
    longer log covers a longer time.
    """
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    sessions = rows // 5
    turns = np.minimum(rng.geometric(1 / 6, sessions), 24)
    while turns.sum() < rows:
        turns = np.concatenate([turns, np.minimum(rng.geometric(1 / 6, sessions), 24)])
    count = int(np.searchsorted(np.cumsum(turns), rows)) + 1
    turns = turns[:count]
    session = np.repeat(np.arange(count), turns)[:rows]
    head = np.concatenate([[0], np.cumsum(turns)[:-1]])
    turn = np.arange(rows) - head[session] + 1

    def running(values):  # sum over the earlier turns of the session
        total = np.concatenate([[0.0], np.cumsum(values)])
        return total[:-1] - total[head[session]]

    new = rng.lognormal(6.0, 0.8, rows).round() + 40
    output = rng.lognormal(5.3, 0.6, rows).round() + 8
    system = rng.choice([300, 1200, 2500], count)[session]
    inputs = system + running(new + output) + new
    pause = rng.lognormal(4.2, 1.3, rows)
    model = rng.integers(0, 2, count)[session]
    begin = np.sort(rng.uniform(0, rows / 4.0, count))[session]
    start = begin + running(pause + output * 0.025)
    last = np.where(turn > 1, np.roll(pause, 1), np.inf)
    cached = np.where(last < 300, np.floor((inputs - new) / 16) * 16, 0.0)
    computed = (inputs - cached) / 1e3
    prefill = 0.05 + 0.07 * computed + 0.0005 * computed * (cached / 1e3 + computed / 2)
    prefill *= rng.normal(1.0, 0.03, rows).clip(0.8, 1.2)

    order = np.argsort(start, kind="stable")
    wait = np.zeros(rows)
    for which in (0, 1):
        at = order[model[order] == which]
        ahead = np.concatenate([[0.0], np.cumsum(prefill[at])[:-1]])
        slack = ahead - start[at]
        wait[at] = slack - np.minimum.accumulate(slack)
    ttft = wait + prefill
    e2e = ttft + output * 0.025 * rng.normal(1.0, 0.05, rows).clip(0.7, 1.3)
    numbers = rng.integers(0, 2**63, (rows, 2))
    names = rng.integers(0, 2**63, (count, 2))
    stamp = (1_773_100_800_000 + start * 1e3).astype("int64")
    frame = pl.DataFrame(
        {
            "request_id": [f"req-{a:016x}{b:016x}" for a, b in numbers.tolist()],
            "session_id": pl.Series([f"{a:016x}-{b:016x}" for a, b in names.tolist()])[session],
            "turn": turn,
            "timestamp": pl.Series(stamp).cast(pl.Datetime("ms")).dt.strftime(
                "%Y-%m-%dT%H:%M:%S%.3fZ"
            ),
            "model": pl.Series(["chat-8b", "chat-70b"])[model],
            "input_tokens": inputs.astype("int64"),
            "cached_tokens": cached.astype("int64"),
            "output_tokens": output.astype("int64"),
            "ttft_ms": (ttft * 1e3).round(2),
            "e2e_ms": (e2e * 1e3).round(2),
            "status": pl.Series(["ok", "error"])[(rng.random(rows) < 0.002).astype("int64")],
        }
    )  # fmt: skip
    assert tuple(frame.columns) == FIELDS
    half = path.with_suffix(".part")
    frame[order].write_ndjson(half)
    half.replace(path)


def log_of(folder: Path, rows: int) -> Path:
    """The log of this size, written unless an earlier run has left it in the folder."""
    path = folder / f"chat-{rows}-seed{SEED}-v{EDITION}.jsonl"
    if not path.exists():
        subprocess.run([sys.executable, __file__, "--write", str(path), str(rows)], check=True)
    return path


# -------------------------------------------------------------------- timing


@dataclass(frozen=True)
class Run:
    """One process: seconds by the clock, seconds of processor time, and peak memory."""

    seconds: float
    busy: float
    mib: float


def run(command: list[str], folder: Path) -> Run:
    """Run a command to its end; its output is thrown away, a failure is an error."""
    # Compiled modules are kept, as in any installation, but not beside the sources.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    errors = child.stderr.read()  # type: ignore[union-attr]
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()  # type: ignore[union-attr]
    if child.returncode:
        sys.exit(f"{' '.join(command[:4])} failed:\n{errors.decode(errors='replace')}")
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / per_mib)


def contenders(duckdb: bool) -> dict[str, Callable[[Path], list[str]]]:
    """Name to the command for a log."""
    python = sys.executable
    out: dict[str, Callable[[Path], list[str]]] = {
        "diagnose": lambda p: [python, "-m", "ttftdoctor", "diagnose", str(p), "--json", "-"],
        "polars scan": lambda p: [python, "-c", POLARS_SCAN, str(p)],
        "polars read": lambda p: [python, "-c", POLARS_READ, str(p)],
    }  # fmt: skip
    if duckdb:
        out["duckdb scan"] = lambda p: [python, "-c", DUCKDB_SCAN, str(p)]
    return out


def middle(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} ({min(values):.2f}-{max(values):.2f})"


def exponent(seconds: dict[int, float]) -> float | None:
    """Slope of log seconds against log rows by least squares: 1 where time grows as rows do."""
    points = [(math.log(n), math.log(s)) for n, s in seconds.items()]
    if len(points) < 2:
        return None
    x, y = statistics.fmean(a for a, _ in points), statistics.fmean(b for _, b in points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def measure(folder: Path, sizes: list[int], repeats: int) -> list[str]:
    """Run everything, print the table, and return the targets that were missed."""
    duckdb = find_spec("duckdb") is not None
    if not duckdb:
        print("duckdb is not installed: its scan is left out")
    commands = contenders(duckdb)
    help_runs: list[Run] = []
    runs: dict[tuple[int, str], list[Run]] = {}
    logs = {rows: log_of(folder, rows) for rows in sizes}
    help_ = [sys.executable, "-m", "ttftdoctor", "--help"]
    for command in commands.values():  # what is compiled is compiled, for everyone
        run(command(logs[sizes[0]]), folder)
    for path in logs.values():  # what is in the file cache is there, for everyone
        run(["cat", str(path)], folder)
    for repeat in range(repeats):
        help_runs.append(run(help_, folder))
        for rows, path in logs.items():
            names = list(commands)
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                runs.setdefault((rows, name), []).append(run(commands[name](path), folder))
    return report(logs, list(commands), runs, help_runs)


def report(
    logs: dict[int, Path],
    names: list[str],
    runs: dict[tuple[int, str], list[Run]],
    help_runs: list[Run],
) -> list[str]:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{p} {metadata.version(p)}" for p in ("ttftdoctor", "polars", "numpy"))
    )
    print(f"{len(help_runs)} repeats, interleaved; median (min-max) of whole processes\n")
    print(
        f"{'rows':>9} {'MiB':>5}  {'':12} {'seconds':>20} {'CPU s':>6} {'peak MiB':>9} "
        f"{'x scan':>7}"
    )
    medians: dict[str, dict[int, float]] = {}
    peaks: dict[int, float] = {}
    ratios: dict[int, float] = {}
    for rows, path in logs.items():
        size = path.stat().st_size / 2**20
        for name in names:
            some = runs[rows, name]
            # Ratios are taken repeat by repeat: both sides met the same machine.
            beside = [
                a.seconds / b.seconds for a, b in zip(some, runs[rows, "polars scan"], strict=True)
            ]
            ratio = statistics.median(beside)
            medians.setdefault(name, {})[rows] = statistics.median(r.seconds for r in some)
            if name == "diagnose":
                ratios[rows] = ratio
                peaks[rows] = max(r.mib for r in some)
            print(
                f"{rows:9,} {size:5.0f}  {name:12} {middle([r.seconds for r in some]):>20} "
                f"{statistics.median(r.busy for r in some):6.2f} "
                f"{max(r.mib for r in some):9.0f} {ratio:7.2f}"
            )
    ground = statistics.median(r.seconds for r in help_runs)
    print(
        f"\n--help: {middle([r.seconds for r in help_runs]).strip()} s, "
        f"{max(r.mib for r in help_runs):.0f} MiB"
    )
    steepest = 0.0
    for name in names:
        # The fixed cost of a start flattens the whole curve; its end shows what rows cost.
        whole, end = exponent(medians[name]), exponent(dict([*medians[name].items()][-2:]))
        if whole is not None and end is not None:
            print(f"{name}: seconds grow as rows to the power {whole:.2f}, {end:.2f} at the end")
            steepest = max(whole, end) if name == "diagnose" else steepest
    missed = []
    if TARGET_ROWS in logs:
        if ratios[TARGET_ROWS] > TARGET_RATIO:
            missed.append(
                f"{TARGET_ROWS:,} rows take {ratios[TARGET_ROWS]:.2f} times the bare scan"
            )
        if medians["diagnose"][TARGET_ROWS] > TARGET_SECONDS:
            missed.append(f"{TARGET_ROWS:,} rows take {medians['diagnose'][TARGET_ROWS]:.2f} s")
        if peaks[TARGET_ROWS] > TARGET_MIB:
            missed.append(f"{TARGET_ROWS:,} rows need {peaks[TARGET_ROWS]:.0f} MiB")
    if steepest > TARGET_EXPONENT:
        missed.append(f"seconds grow as rows to the power {steepest:.2f}")
    if ground > TARGET_HELP_SECONDS:
        missed.append(f"--help takes {ground:.2f} s")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="ROWS")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "ttftdoctor-benchmark",
        help="where the logs are kept (about 300 bytes a row)",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--write", nargs=2, metavar=("FILE", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_log(Path(options.write[0]), int(options.write[1]))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    missed = measure(options.folder, sorted(options.sizes), options.repeats)
    print("\n" + ("\n".join("missed: " + m for m in missed) if missed else "all targets met"))
    if missed and options.strict:
        sys.exit(1)


if __name__ == "__main__":
    main()
