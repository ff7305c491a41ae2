"""What ``ttftdoctor watch`` costs beside a log that is being written.

Run ``python benchmarks/watch.py``; ``--help`` lists the options. A thread writes rows at an even
rate into a file that is rotated on the way; the watch is a process of its own, whose processor time
and memory are read from ``/proc`` as the system counts them, minute by minute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
TARGET_SHARE = 0.05


def row(at: float, number: int, r: random.Random) -> str:
    """A turn of a chat, as a gateway logs it once it is over."""
    turn = number % 8 + 1
    size = turn * 900 + r.randint(50, 600)
    cached = r.choice((0, 0, size // 2))
    ttft = 60 + (size - cached) * 0.08 + r.expovariate(1 / 80)
    output = r.randint(20, 300)
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "request_id": f"req-{number:09d}", "session_id": f"chat-{number // 8:08d}",
            "turn": turn, "timestamp": stamp.replace("+00:00", "Z"), "model": "chat-8b",
            "input_tokens": size, "cached_tokens": cached, "output_tokens": output,
            "ttft_ms": round(ttft, 1), "e2e_ms": round(ttft + 21 * output, 1), "status": "ok",
        }
    )  # fmt: skip


def write(log: Path, rate: int, seconds: float, rotations: int) -> None:
    """Write rows for so long, in twenty bursts a second; the file is renamed on the way."""
    r = random.Random(1)
    began = time.monotonic()
    written, turned = 0, 0
    file = log.open("a", encoding="utf-8")
    while (past := time.monotonic() - began) < seconds:
        upto = int(past * rate)
        now = time.time()
        file.write("".join(row(now, number, r) + "\n" for number in range(written, upto)))
        file.flush()
        written = upto
        if turned < rotations and past > seconds * (turned + 1) / (rotations + 1):
            turned += 1
            file.close()
            os.rename(log, f"{log}.{turned}")
            file = log.open("a", encoding="utf-8")
        time.sleep(0.05)
    file.close()


def used(process: int) -> tuple[float, float]:
    """Processor seconds of a process and its peak of memory in MiB."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{process}/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / TICKS, int(peak) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000, help="rows a second")
    parser.add_argument("--minutes", type=float, default=5, help="how long it is written")
    parser.add_argument("--interval", default="10s", help="of the watch")
    parser.add_argument("--rotations", type=int, default=2, help="how often the log is renamed")
    parser.add_argument("--no-state", action="store_true", help="keep nothing on disk")
    parser.add_argument("--strict", action="store_true", help="a missed target is an error")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "requests.jsonl"
        log.touch()
        command = [sys.executable, "-m", "ttftdoctor", "watch", str(log), "--interval",
                   asked.interval, "--openmetrics", str(Path(place) / "ttft.prom")]  # fmt: skip
        if not asked.no_state:
            command += ["--state", str(Path(place) / "state")]
        lines: list[str] = []
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watch.stdout is not None
        listening = threading.Thread(target=lambda: lines.extend(watch.stdout or ()))
        listening.start()
        writing = threading.Thread(
            target=write, args=(log, asked.rate, asked.minutes * 60, asked.rotations)
        )
        writing.start()
        print("| minute | processor, of a core | peak of memory |\n|---|---|---|", flush=True)
        first = before = used(watch.pid)[0]
        began = at = time.monotonic()
        minute = 0
        until = began + asked.minutes * 60 - 1
        while time.monotonic() < until:
            time.sleep(max(min(60, until - time.monotonic()), 0.1))
            cpu, peak = used(watch.pid)
            now = time.monotonic()
            minute += 1
            print(f"| {minute} | {(cpu - before) / (now - at):.1%} | {peak:,.0f} MiB |", flush=True)
            before, at = cpu, now
        whole = (before - first) / (at - began)
        writing.join()
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=300)
        listening.join()
        shown = [line for line in lines if " rows = " in line]
        print(f"\n{whole:.1%} of a core over {at - began:,.0f} s")
        print(f"{len(shown)} lines, the last: {shown[-1].strip()}" if shown else "no line")
    return int(asked.strict and whole > TARGET_SHARE)


if __name__ == "__main__":
    sys.exit(main())
