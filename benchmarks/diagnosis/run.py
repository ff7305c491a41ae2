"""How often the named cause is right, and how far predicted gains are from what really happens.

Run ``python benchmarks/diagnosis/run.py``; ``--help`` lists the options. Every shipped scenario is
served with 20 seeds, its log is written at every level of detail and diagnosed, and each remedy
that the diagnosis predicts is really tried: the same people ask the same things again with it in
place. What comes out is compared by ``score.py``; results are kept, so that a run may be resumed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from score import report

#: Levels of detail at which predicted gains are held against the truth.
GAINS_AT = ("full", "client")


def job(scenario: str, seed: int, details: tuple[str, ...], gains: bool) -> list[dict[str, Any]]:
    """Serve one scenario with one seed; diagnose its log at each level of detail."""
    from ttftdoctor import simulator

    begin = time.perf_counter()
    planned = simulator.load(scenario)
    run = simulator.serve(planned, seed)
    truth = run.truth()
    out = []
    tried: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for detail in details:
            path = Path(folder) / f"{detail}.jsonl"
            simulator.write_log(run, path, detail)
            said = diagnosed(path)
            if gains and detail in GAINS_AT:
                wanted = {served_as(gain) for gain in said["remedies"]} - tried.keys() - {""}
                tried |= simulator.remedies_truth(planned, seed, sorted(wanted))
            out.append({"scenario": scenario, "seed": seed, "detail": detail, **said})
    taken = round(time.perf_counter() - begin, 2)
    for record in out:
        record.update(truth=truth, served=tried if record["detail"] in GAINS_AT else {})
        record["seconds"] = taken
    return out


def diagnosed(path: Path) -> dict[str, Any]:
    """What the doctor says, as far as it is held against the truth; a crash is an answer too."""
    from ttftdoctor import diagnose

    try:
        document = diagnose(str(path)).to_dict()
    except Exception as error:  # noqa: BLE001
        return {
            "said": f"crash: {type(error).__name__}: {error}",
            "confidence": 0.0,
            "remedies": [],
        }
    verdict = document["verdict"]
    return {
        "said": verdict["primary_cause"],
        "family": verdict["family"],
        "confidence": verdict["confidence"],
        "contributing": verdict["contributing"],
        "scope": verdict["scope"],
        "accounts": (document["ledger"].get("all") or {}).get("accounts"),
        "line": document["cost_lines"]["prefill"],
        "remedies": [
            {
                name: gain[name]
                for name in ("id", "ttft_mean_s", "ttft_p95_s", "gain_share", "interval")
            }
            | {"served": served_as(gain)}
            for gain in document["remedies"]
        ],
    }


def served_as(gain: dict[str, Any]) -> str:
    """The treatment of the simulator that a predicted remedy stands for; empty if there is none."""
    from ttftdoctor import simulator

    name = gain["id"]
    if name == "all_together":
        for text in gain.get("assumptions", ()):
            if "all of: " in text:
                name = "+".join(part.strip() for part in text.split("all of: ")[1].split(","))
    return name if all(part in simulator.REMEDIES for part in name.split("+")) else ""


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def results(
    path: Path, scenarios: Iterable[str], seeds: Iterable[int], details: tuple[str, ...],
    gains: bool, workers: int,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """All results, those of an earlier run first; new ones are added to the file as they come."""
    kept = read(path)
    done = {(r["scenario"], r["seed"]) for r in kept}
    yield from kept
    todo = [(s, n) for n in seeds for s in scenarios if (s, n) not in done]
    with ProcessPoolExecutor(workers) as pool, path.open("a", encoding="utf-8") as file:
        waiting = [pool.submit(job, s, n, details, gains) for s, n in todo]
        for count, future in enumerate(waiting, start=1):
            for record in future.result():
                file.write(json.dumps(record) + "\n")
                yield record
            file.flush()
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{count} of {len(waiting)} logs")


def main() -> None:
    from ttftdoctor import simulator

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--scenario", nargs="+", default=list(simulator.names()), metavar="NAME")
    parser.add_argument("--detail", nargs="+", default=list(simulator.DETAILS), metavar="LEVEL")
    parser.add_argument("--no-gains", action="store_true", help="do not serve remedies")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--results", type=Path, default=Path(tempfile.gettempdir()) / "ttftdoctor-judgement.jsonl",
        help="where results are kept; what is there already is not run again",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--misses", action="store_true", help="list every wrong verdict")
    options = parser.parse_args()
    if options.fresh:
        options.results.unlink(missing_ok=True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    wanted = set(options.scenario)
    records = [
        record
        for record in results(
            options.results, options.scenario, seeds, tuple(options.detail),
            not options.no_gains, options.workers,
        )
        if record["scenario"] in wanted
    ]  # fmt: skip
    print(report(records, misses=options.misses))


if __name__ == "__main__":
    main()
