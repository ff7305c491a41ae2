"""How time and memory of ``ttftdoctor diagnose`` grow with the rows of a log, and what Spark costs.

Run ``python benchmarks/scale/run.py``; ``--help`` lists the options. Every figure is that of a
whole process, from its start to its end. Beside each diagnosis stand two bare streaming scans of
the same file by Polars; the contenders take turns within each repeat, so that whatever else the
machine does meets all of them alike. Each diagnosis is held against what was put into the log.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from logs import BLOCKS, FIELDS, PACKED, PLAIN, PLANTED, log_of, truth_of
from processes import Run, run
from spark import answers, masters, settings, shuffled
from speed import exponent, middle

SIZES = (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
#: JSON lines of 5 GB, which is read beside the sizes above.
FIVE_GIGABYTES = 18_500_000
PACKED_ROWS = 1_000_000
#: Rows of logs with the blocks of their prompts.
BLOCK_ROWS = (300_000, 1_000_000, 3_000_000)
SPARK_ROWS = (1_000_000, 10_000_000)
#: Below, the start of a process is most of its time: the power is fitted with and without it,
FROM_ROWS = 100_000
#: and the ratio to a scan is a target only from here on, where the rows are most of the time.
RATIO_ROWS = 1_000_000

TARGET_EXPONENT = 1.05
TARGET_RATIO = 3.0

POLARS = f"""
import sys
import polars as pl
path, every = sys.argv[1], sys.argv[2] == "every"
whole = {{"turn", "input_tokens", "cached_tokens", "output_tokens"}}
types = {{name: pl.Int64 if name in whole else pl.Float64 if name.endswith("_ms") else pl.String
         for name in {FIELDS!r}}}
frame = (pl.scan_parquet(path) if path.endswith(".parquet")
         else pl.scan_ndjson(path, schema=types))
found = [pl.col("ttft_ms").mean().alias("mean"), pl.col("ttft_ms").quantile(0.95).alias("p95"),
         pl.len()]
if every:  # one number of all other values, so that each has to be read and none is kept
    kinds = frame.collect_schema()
    sizes = [pl.col(name).str.len_bytes() if kinds[name] == pl.String
             else pl.col(name).cast(pl.Int64) for name in kinds if name not in ("turn", "ttft_ms")]
    frame = frame.select("turn", "ttft_ms", sum=pl.sum_horizontal(sizes))
    found.append(pl.col("sum").sum())
print(frame.group_by("turn").agg(found).sort("turn").collect(engine="streaming"))
"""

Command = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Case:
    """One log that everyone reads."""

    form: str
    rows: int
    path: Path

    @property
    def mib(self) -> float:
        return self.path.stat().st_size / 2**20


# ----------------------------------------------------------------- contenders


def accepts(option: str) -> bool:
    """Whether this version of ``diagnose`` has an option."""
    command = [sys.executable, "-m", "ttftdoctor", "diagnose", "--help"]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return f" {option} " in told.stdout


def diagnose(path: Path, *options: str) -> list[str]:
    """The whole document, and no other report."""
    return [sys.executable, "-m", "ttftdoctor", "diagnose", str(path), *options, "--json", "-"]


def contenders(memory: str | None) -> dict[str, Command]:
    """Name to the command for a log."""
    bound = ["--memory", memory] if memory else []
    return {
        "diagnose": lambda p: diagnose(p, *bound),
        "polars scan": lambda p: [sys.executable, "-c", POLARS, str(p), "two"],
        "polars read": lambda p: [sys.executable, "-c", POLARS, str(p), "every"],
    }  # fmt: skip


def spark_contenders(memory: str | None) -> dict[str, Command]:
    """The same diagnosis by the local engine and by Spark; all that is known of Spark's options."""
    bound = ["--memory", memory] if memory else []
    out: dict[str, Command] = {"local": lambda p: diagnose(p, *bound)}

    def on(master: str) -> Command:
        return lambda p: diagnose(p, *bound, "--engine", "spark", "--spark-master", master)

    for name, master in masters().items():
        out[name] = on(master)
    return out


# ------------------------------------------------------------------- answers


def mistakes(answer: Path, truth: dict[str, Any], form: str) -> list[str]:
    """Where a diagnosis differs from what was put into the log; a name and figures for each."""
    found = json.loads(answer.read_text())
    out = []
    if found["verdict"]["primary_cause"] != PLANTED:
        out.append(f"cause {found['verdict']['primary_cause']}")
    requests = truth["rows"] - truth["failed"]
    if found["population"]["requests"] != requests:
        out.append(f"{found['population']['requests']} of {requests} requests")
    mean = found["population"]["ttft_mean_s"]
    if abs(mean / truth["mean_ttft"] - 1) > 1e-4:
        out.append(f"mean TTFT {mean:.3f} s instead of {truth['mean_ttft']:.3f} s")
    repeated = found["repeated_prefix"]
    if form == BLOCKS and abs(repeated["repeated_tokens"] / truth["content_tokens"] - 1) > 0.01:
        out.append(f"{repeated['repeated_tokens']} tokens by {repeated['grade']}")
    line = found["cost_lines"]["prefill"]
    for name, planted in (("fixed_ms", "fixed"), ("ms_per_1k_tokens", "linear")):
        low, high = line[f"{name}_interval"]
        if not low <= truth["line"][planted] * 1e3 <= high:
            out.append(f"{name} {low:.1f} to {high:.1f}, not {truth['line'][planted] * 1e3:g}")
    return out


def mib_of(memory: str) -> float:
    """MiB of a size such as 1GiB."""
    for unit, factor in (("GiB", 1024), ("MiB", 1)):
        if memory.endswith(unit):
            return float(memory.removesuffix(unit)) * factor
    sys.exit(f"--memory {memory}: give it in MiB or GiB, e.g. 1GiB")


def tell(text: str) -> None:
    """Progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- rows, bytes


class Growth:
    """Rows against seconds and memory."""

    def __init__(self, folder: Path, memory: str | None) -> None:
        self.folder = folder
        self.memory = memory
        self.commands = contenders(memory)
        self.runs: dict[tuple[str, int, str], list[Run]] = {}
        self.wrong: dict[tuple[str, int], list[str]] = {}

    def measure(self, cases: list[Case], repeats: int) -> None:
        """Run everyone on each log, in turns that begin with another one each time."""
        names = list(self.commands)
        for name in names:  # what is compiled is compiled, for everyone
            run(self.commands[name](cases[0].path), self.folder)
        answer = self.folder / "answer.json"
        for repeat in range(repeats):
            for case in cases:
                run(["cat", str(case.path)], self.folder)  # into the file cache, for everyone
                for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                    one = run(self.commands[name](case.path), self.folder, out=answer)
                    self.runs.setdefault((case.form, case.rows, name), []).append(one)
                    tell(
                        f"{repeat + 1}/{repeats} {case.rows:,} {case.form} {name}: "
                        f"{one.seconds:.2f} s, {one.mib:.0f} MiB"
                    )
                    if name == "diagnose":
                        wrong = mistakes(answer, truth_of(case.path), case.form)
                        self.wrong[case.form, case.rows] = wrong

    def report(self, cases: list[Case]) -> list[str]:
        """Print the table; the targets that were missed."""
        missed = []
        print(
            f"{'rows':>10} {'form':9} {'MiB':>6}  {'':11} {'seconds':>24} {'CPU s':>7} "
            f"{'peak MiB':>8} {'x scan':>6} {'x read':>6}"
        )
        for case in cases:
            for name in self.commands:
                some = self.runs[case.form, case.rows, name]
                scan, read = (self._beside(case, name, f"polars {o}") for o in ("scan", "read"))
                print(
                    f"{case.rows:10,} {case.form:9} {case.mib:6.0f}  {name:11} "
                    f"{middle([r.seconds for r in some]):>24} "
                    f"{statistics.median(r.busy for r in some):7.2f} "
                    f"{max(r.mib for r in some):8.0f} {scan:6.2f} {read:6.2f}"
                )
            missed += self._missed(case)
        print()
        for case in cases:
            wrong = self.wrong[case.form, case.rows]
            if wrong:
                print(f"{case.rows:,} {case.form}: {'; '.join(wrong)}")
        if not any(self.wrong.values()):
            print("every diagnosis names the planted cause, counts and prefill line")
        for form in dict.fromkeys(case.form for case in cases):
            missed += self._growth(form)
        return missed

    def _beside(self, case: Case, name: str, other: str) -> float:
        """Seconds as a multiple, taken repeat by repeat: both sides met the same machine."""
        pairs = zip(
            self.runs[case.form, case.rows, name],
            self.runs[case.form, case.rows, other],
            strict=True,
        )
        return statistics.median(a.seconds / b.seconds for a, b in pairs)

    def _missed(self, case: Case) -> list[str]:
        out = []
        peak = max(r.mib for r in self.runs[case.form, case.rows, "diagnose"])
        if self.memory and peak > mib_of(self.memory):
            out.append(f"{case.rows:,} {case.form}: {peak:.0f} MiB, more than {self.memory}")
        ratio = self._beside(case, "diagnose", "polars scan")
        if case.rows >= RATIO_ROWS and ratio > TARGET_RATIO:
            out.append(f"{case.rows:,} {case.form}: {ratio:.2f} times the bare scan")
        return out

    def _growth(self, form: str) -> list[str]:
        """Print the powers of rows that seconds grow with; those above the target."""
        missed = []
        for name in self.commands:
            medians = {
                rows: statistics.median(r.seconds for r in some)
                for (f, rows, n), some in sorted(self.runs.items())
                if (f, n) == (form, name)
            }
            whole = exponent(medians)
            above = exponent({n: s for n, s in medians.items() if n >= FROM_ROWS})
            if whole is None:
                continue
            end = exponent(dict([*medians.items()][-2:])) or 0.0
            steep = "" if above is None else f"{above:.3f} from {FROM_ROWS:,} rows up, "
            print(
                f"{form}, {name}: seconds grow as rows to the power {whole:.3f}, {steep}"
                f"{end:.3f} between the two largest"
            )
            worst = max(whole, above or 0.0)
            if name == "diagnose" and worst > TARGET_EXPONENT:
                missed.append(f"{form}: seconds grow as rows to the power {worst:.3f}")
        return missed


# --------------------------------------------------------------------- Spark


class Spread:
    """The local engine beside Spark on one and two workers."""

    def __init__(self, folder: Path, memory: str | None) -> None:
        self.folder = folder
        self.commands = spark_contenders(memory)
        self.runs: dict[tuple[int, str], list[Run]] = {}
        self.moved: dict[tuple[int, str], list[int]] = {}
        self.same: dict[tuple[int, str], bool] = {}

    def measure(self, cases: list[Case], repeats: int) -> None:
        """Run everyone on each log, and read from Spark's own event log what was shuffled."""
        names = list(self.commands)
        for repeat in range(repeats):
            for case in cases:
                run(["cat", str(case.path)], self.folder)
                documents = {}
                for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                    answer = self.folder / f"answer-{names.index(name)}.json"
                    with tempfile.TemporaryDirectory(dir=self.folder) as place:
                        one = run(
                            self.commands[name](case.path), self.folder,
                            out=answer, more=settings(Path(place)), tree=True,
                        )  # fmt: skip
                        self.moved.setdefault((case.rows, name), []).append(shuffled(Path(place)))
                    self.runs.setdefault((case.rows, name), []).append(one)
                    documents[name] = answers(answer)
                    tell(f"{repeat + 1}/{repeats} {case.rows:,} {name}: {one.seconds:.2f} s")
                for name in names:
                    self.same[case.rows, name] = documents[name] == documents["local"]

    def report(self, cases: list[Case]) -> list[str]:
        """Print the table; what went wrong."""
        missed = []
        print(
            f"\n{'rows':>10} {'form':9} {'':17} {'seconds':>24} {'x local':>7} {'tree MiB':>8} "
            f"{'MB shuffled a million rows':>26}  same answer"
        )
        for case in cases:
            for name in self.commands:
                some = self.runs[case.rows, name]
                local = self.runs[case.rows, "local"]
                pairs = zip(some, local, strict=True)
                ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
                moved = statistics.median(self.moved[case.rows, name]) / case.rows
                same = self.same[case.rows, name]
                print(
                    f"{case.rows:10,} {case.form:9} {name:17} "
                    f"{middle([r.seconds for r in some]):>24} {ratio:7.2f} "
                    f"{max(r.tree or r.mib for r in some):8.0f} {moved:26.2f}  "
                    f"{'yes' if same else 'NO'}"
                )
                if not same:
                    missed.append(f"{case.rows:,}: {name} answers otherwise than local")
        return missed


# ---------------------------------------------------------------------- main


def cases_of(options: argparse.Namespace) -> list[Case]:
    """The logs to be read, made where an earlier run has not left them."""
    wanted: list[tuple[str, int]] = []
    for form in options.forms:
        wanted += [(form, rows) for rows in sorted(options.sizes or SIZES)]
        if form == "jsonl" and not options.sizes:
            wanted.append((form, FIVE_GIGABYTES))
    if "jsonl" in options.forms and options.packed_rows:
        wanted += [(form, options.packed_rows) for form in PACKED]
    wanted += [(BLOCKS, rows) for rows in sorted(options.block_rows)]
    return made(options.folder, wanted)


def made(folder: Path, wanted: Iterable[tuple[str, int]]) -> list[Case]:
    out = []
    for form, rows in wanted:
        tell(f"log of {rows:,} rows, {form}")
        out.append(Case(form, rows, log_of(folder, rows, form)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", metavar="ROWS")
    parser.add_argument("--forms", nargs="+", choices=PLAIN, default=list(PLAIN))
    parser.add_argument("--packed-rows", type=int, default=PACKED_ROWS,
                        help="rows of the logs that are read packed too; 0 for none")  # fmt: skip
    parser.add_argument("--block-rows", type=int, nargs="*", default=list(BLOCK_ROWS),
                        help="rows of the logs that have the blocks of their prompts")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="1GiB", help="the bound that diagnose is given")
    parser.add_argument("--no-memory", action="store_true", help="give it no bound")
    parser.add_argument("--spark-rows", type=int, nargs="*", default=list(SPARK_ROWS),
                        help="sizes of the table of Spark; nothing for no such table")  # fmt: skip
    parser.add_argument("--only-spark", action="store_true", help="leave the first table out")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "ttftdoctor-benchmark-scale",
        help="where the logs are kept (about 9 GB of JSON lines, 1 GB of Parquet)",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, help="every single run, as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    memory = None if options.no_memory else options.memory
    if memory and not accepts("--memory"):
        print("diagnose has no --memory: it is given no bound")
        memory = None
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{p} {metadata.version(p)}" for p in ("ttftdoctor", "polars", "numpy"))
        + f", --memory {memory or 'not given'}"
    )
    print(f"{options.repeats} repeats, interleaved; median (min-max) of whole processes\n")
    missed: list[str] = []
    kept: list[dict[str, Any]] = []
    if not options.only_spark:
        growth = Growth(options.folder, memory)
        cases = cases_of(options)
        growth.measure(cases, options.repeats)
        missed += growth.report(cases)
        for (form, rows, name), some in growth.runs.items():
            kept += [{"form": form, "rows": rows, "name": name, **asdict(r)} for r in some]
    if options.spark_rows:
        if not accepts("--engine") or find_spec("pyspark") is None:
            print("\nno Spark: diagnose has no --engine, or pyspark is not installed")
        else:
            spread = Spread(options.folder, memory)
            cases = made(options.folder, [("parquet", n) for n in sorted(options.spark_rows)])
            spread.measure(cases, options.repeats)
            missed += spread.report(cases)
            for (rows, name), some in spread.runs.items():
                moved = spread.moved[rows, name]
                kept += [
                    {"form": "parquet", "rows": rows, "name": name, "shuffled": m, **asdict(r)}
                    for r, m in zip(some, moved, strict=True)
                ]
    if options.results:
        options.results.write_text(json.dumps(kept, indent=0) + "\n")
    print("\n" + ("\n".join("missed: " + m for m in missed) if missed else "all targets met"))
    if missed and options.strict:
        sys.exit(1)


if __name__ == "__main__":
    main()
