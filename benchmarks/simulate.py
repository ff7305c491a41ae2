"""Requests a second of ``ttftdoctor simulate``, on one core.

Run ``python benchmarks/simulate.py``. For each scenario: planning, serving and writing the log are
timed in this process, several seeds in turn, and the median is printed, with how many simulated
tokens a second that is. The aim is 1,000 requests a second, served and written, in a chat
scenario.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

from ttftdoctor import simulator

USUAL = (
    "healthy_chat", "repeated_prefix_no_reuse", "repeated_prefix_agents", "queueing_new_content",
    "decode_steps", "affinity_random", "healthy_fleet",
)  # fmt: skip
TARGET = 1000


def measure(name: str, seeds: int, detail: str) -> tuple[int, float, float, float]:
    """Requests in all, and medians of requests a second: served, served and written; tokens a s."""
    scenario = simulator.load(name)
    count, served, written, tokens = 0, [], [], []
    for seed in range(seeds):
        begin = time.process_time()
        run = simulator.serve(scenario, seed)
        middle = time.process_time()
        simulator.log_bytes(run, detail)
        end = time.process_time()
        count += len(run.jobs)
        served.append(len(run.jobs) / (middle - begin))
        written.append(len(run.jobs) / (end - begin))
        decoded = sum(job.input + job.turn.output_tokens for job in run.jobs)
        tokens.append(decoded / (middle - begin))
    return count, statistics.median(served), statistics.median(written), statistics.median(tokens)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", default=USUAL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--detail", default="full", choices=simulator.DETAILS)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, CPU seconds of one core")
    print(f"{'scenario':28}{'requests':>10}{'served/s':>10}{'written/s':>11}{'Mtokens/s':>11}")
    worst = float("inf")
    for name in options.scenarios:
        count, served, written, tokens = measure(name, options.seeds, options.detail)
        worst = min(worst, written)
        print(f"{name:28}{count:>10,}{served:>10,.0f}{written:>11,.0f}{tokens / 1e6:>11.1f}")
    print(f"slowest {worst:,.0f}/s, aim {TARGET:,}: {'met' if worst >= TARGET else 'missed'}")


if __name__ == "__main__":
    main()
