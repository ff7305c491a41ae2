"""How often the gate cries wolf, what it sees, and whether its intervals hold.

Run ``python benchmarks/gate/run.py``; ``--quick`` takes a few minutes, ``--help`` lists the
options. Of each service (``service.py``), size of log and condition a pool of runs is served once,
and summed up as the gate does; then many comparisons are drawn: the same number of runs a side,
no run and no seed on both sides. Comparisons share runs, so they are more alike than as many
independent ones: the intervals that ``score.py`` prints allow for that, and it names the number of
runs as well as of comparisons.

Pools and results are kept as they come, so that a run may be resumed. What other code has made is
made anew: pools after a change of how a log is summed up, results after any change of the gate.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from score import report
from service import CONDITIONS, SERVICES, Served, serve

QUANTILES = {"ttft_p50": 0.5, "ttft_p95": 0.95, "ttft_p99": 0.99}
#: Comparisons that are also made through a baseline file.
THROUGH_FILE = 4

#: What a pool depends on, and what a result depends on besides.
SUMMED_BY = ("gate/sketch.py", "gate/warmup.py", "measure", "simulator", "examine.py")
JUDGED_BY = (*SUMMED_BY, "gate")

Record = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How many runs of each size are served, and how many comparisons are drawn, for conditions
    under which nothing may be found, and for the others.
    """

    services: tuple[str, ...]
    runs: dict[int, tuple[int, int]]
    pairs: dict[int, tuple[int, int]]


FULL = Scale(
    ("chat", "busy"),
    {500: (60, 30), 2000: (40, 24), 10_000: (20, 10)},
    {500: (120, 40), 2000: (120, 40), 10_000: (50, 20)},
)
QUICK = Scale(
    ("chat",), {500: (16, 8), 2000: (14, 7)}, {500: (16, 8), 2000: (16, 8)}
)  # fmt: skip


@lru_cache
def code_of(parts: tuple[str, ...]) -> str:
    """A mark of the code in some files and folders of the package, and of what is served."""
    import ttftdoctor

    root = Path(ttftdoctor.__file__).parent
    files = [Path(__file__).with_name("service.py")]
    for part in parts:
        files += sorted((root / part).rglob("*.py")) if (root / part).is_dir() else [root / part]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


# --- serving --------------------------------------------------------------------------------------


def pool_path(folder: Path, service: str, size: int, condition: str) -> Path:
    return folder / f"{service}-{size}-{condition}-{code_of(SUMMED_BY)}.pool"


def make_pool(folder: Path, service: str, size: int, condition: str, runs: int) -> float:
    """Serve what is not there yet; gives the seconds it took."""
    begin = time.perf_counter()
    path = pool_path(folder, service, size, condition)
    had = load_pool(path) if path.exists() else ()
    if len(had) < runs:
        new = [serve(service, condition, size, seed) for seed in range(len(had), runs)]
        packed = zlib.compress(pickle.dumps((*had, *new), 5), 1)
        part = path.with_suffix(".part")
        part.write_bytes(packed)
        for old in folder.glob(f"{service}-{size}-{condition}-*.pool"):
            old.unlink()
        part.replace(path)
    return time.perf_counter() - begin


@lru_cache(maxsize=1)
def base_pool(path: Path) -> tuple[Served, ...]:
    return load_pool(path)


def load_pool(path: Path) -> tuple[Served, ...]:
    found: tuple[Served, ...] = pickle.loads(zlib.decompress(path.read_bytes()))
    return found


# --- judging --------------------------------------------------------------------------------------


def sides(
    before: Sequence[Served], after: Sequence[Served], runs: int, pairs: int, key: str
) -> Iterable[tuple[list[Served], list[Served]]]:
    """Comparisons at random, with different seeds on both sides."""
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    for _ in range(pairs):
        late = rng.permutation(len(after))[:runs]
        early = [at for at in rng.permutation(len(before)) if at not in set(late)][:runs]
        yield [before[at] for at in early], [after[at] for at in late]


def judged(
    folder: Path, service: str, size: int, condition: str, runs: int, pairs: int
) -> list[Record]:
    """All comparisons of one condition: what the gate says of each."""
    from ttftdoctor.gate.baseline import Baseline
    from ttftdoctor.gate.judge import judge
    from ttftdoctor.gate.rules import default_policy

    kind = CONDITIONS[condition].kind
    after = load_pool(pool_path(folder, service, size, condition))
    before = after
    if kind != "same":
        before = base_pool(pool_path(folder, service, size, "same"))
    what: Record = {"service": service, "size": size, "condition": condition, "runs": runs}
    policy = default_policy()
    key = "/".join(map(str, what.values()))
    what["code"] = code_of(JUDGED_BY)
    out: list[Record] = [{"what": "pool", **what, **_pool_facts(before, after)}]
    for number, (early, late) in enumerate(sides(before, after, runs, pairs, key)):
        b, a = (
            Baseline(name, tuple(run.sketch for run in side))
            for name, side in (("before", early), ("after", late))
        )
        begin = time.perf_counter()
        check = judge(b, a, policy)
        record = {
            "what": "pair", **what, "seeds": [[r.seed for r in side] for side in (early, late)],
            **_said(check), "seconds": round(time.perf_counter() - begin, 3),
        }  # fmt: skip
        out.append(record)
        if number < THROUGH_FILE and condition in ("same", "slope"):
            text = b.fit_in().to_text()
            other = _said(judge(Baseline.from_text(text), a, policy))
            out.append(
                {"what": "file", **what, "bytes": len(text.encode()),
                 "outcomes": [record["outcome"], other["outcome"]],
                 "metrics": [record["metrics"], other["metrics"]]}
            )  # fmt: skip
    return out


def _said(check: Any) -> Record:
    """What is kept of an answer. ``raw``: both levels of a plain comparison."""
    return {
        "outcome": check.outcome,
        "reasons": [check.headline][: check.outcome == "invalid"],
        "covered": check.baseline.covered_share,
        "metrics": {
            m.metric: {
                "outcome": m.outcome, "baseline": m.baseline, "change": m.change,
                "interval": m.interval, "p": m.p_value, "p_adjusted": m.p_adjusted,
                "limit": m.limit, "limit_share": m.limit_share, "worse": m.worse,
                "raw": [m.raw_baseline, m.raw_current], "smallest": m.smallest,
            }
            for m in check.metrics
        },
    }  # fmt: skip


def _pool_facts(before: Sequence[Served], after: Sequence[Served]) -> Record:
    """What the condition really does: the same people, with and without it."""
    with_it = {run.seed: run for run in after}
    both = [(run, with_it[run.seed]) for run in before if run.seed in with_it]
    levels: dict[str, list[float]] = {}
    for at in (0, 1):
        runs = [pair[at] for pair in both]
        ttft = np.concatenate([run.ttft_s for run in runs]).astype(np.float64)
        named = {"ttft_mean": float(ttft.mean())}
        named |= {name: float(np.quantile(ttft, q)) for name, q in QUANTILES.items()}
        for source in ("levels", "line"):
            for name in getattr(runs[0], source):
                named[name] = float(np.mean([getattr(run, source)[name] for run in runs]))
        for name, value in named.items():
            levels.setdefault(name, []).append(value)
    return {
        "runs_served": [len(before), len(after)],
        "requests": float(np.mean([run.requests for run in after])),
        "truth": levels,
    }


# --- all of it ------------------------------------------------------------------------------------


def results(
    path: Path, pools: Path, scale: Scale, conditions: Sequence[str], sizes: Sequence[int],
    workers: int,
) -> list[Record]:  # fmt: skip
    """All results, those of an earlier run first; new ones are added to the file as they come."""
    kept = read(path)
    done = {_key(r) for r in kept if r["what"] == "pool"}
    # Small logs first: what is wrong shows early.
    places = [(s, n, c) for n in sizes for s in scale.services for c in conditions]
    todo = [
        (service, size, condition, runs)
        for service, size, condition in places
        for runs in (5, 1)
        if (service, size, condition, runs) not in done
    ]
    with ProcessPoolExecutor(workers) as pool, path.open("a", encoding="utf-8") as file:
        file.write("\n")  # after what may have been cut off

        def all_of(jobs: Sequence[Callable[[], Any]], what: str) -> Iterable[Any]:
            waiting = [pool.submit(job) for job in jobs]
            for count, future in enumerate(as_completed(waiting), start=1):
                yield future.result()
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{what}: {count} of {len(waiting)}   ")

        for size in sizes:
            mine = [job for job in todo if job[1] == size]
            wanted = {(s, c) for s, _, c, _ in mine} | {(s, "same") for s, _, _, _ in mine}
            serving = [
                partial(
                    make_pool, pools, s, size, c, scale.runs[size][CONDITIONS[c].kind != "same"]
                )
                for s, c in sorted(wanted)
            ]
            for _ in all_of(serving, f"pools of {size}"):
                pass
            judging = [
                partial(judged, pools, *job, scale.pairs[size][CONDITIONS[job[2]].kind != "same"])
                for job in mine
            ]
            for records in all_of(judging, f"comparisons at {size}"):
                # One line for all of a condition: what was cut off in writing is made anew.
                file.write(json.dumps(records) + "\n")
                file.flush()
                kept += records
    return kept


def _key(r: Record) -> tuple[Any, ...]:
    return r["service"], r["size"], r["condition"], r["runs"]


def read(path: Path) -> list[Record]:
    """The results of earlier runs of the same code, whole conditions only."""
    out: list[Record] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                out += [r for r in json.loads(line) if r["code"] == code_of(JUDGED_BY)]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one service, short logs, few runs")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="requests of a run")
    parser.add_argument("--services", nargs="+", choices=list(SERVICES), metavar="NAME")
    parser.add_argument("--condition", nargs="+", choices=list(CONDITIONS),
                        default=list(CONDITIONS), metavar="NAME")  # fmt: skip
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "ttftdoctor-gate",
        help="where pools of runs and results are kept; what is there already is not run again",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="forget pools and results")
    parser.add_argument("--alarms", action="store_true", help="list every false alarm")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    if options.services:
        scale = Scale(tuple(options.services), scale.runs, scale.pairs)
    sizes = options.sizes or list(scale.runs)
    if set(sizes) - set(scale.runs):
        parser.error(f"sizes are {', '.join(map(str, scale.runs))}")
    for parts in (SUMMED_BY, JUDGED_BY):
        code_of(parts)  # as it is now, for all workers
    folder = options.folder / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    if options.fresh:
        for old in folder.glob("*.pool"):
            old.unlink()
        path.unlink(missing_ok=True)
    records = results(path, folder, scale, options.condition, sizes, options.workers)
    wanted = [
        r for r in records
        if r["condition"] in options.condition and r["service"] in scale.services
        and r["size"] in sizes
    ]  # fmt: skip
    titles = {name: (c.title, c.kind, c.target) for name, c in CONDITIONS.items()}
    print(report(wanted, titles, alarms=options.alarms))


if __name__ == "__main__":
    main()
