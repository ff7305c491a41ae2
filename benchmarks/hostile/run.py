"""Hostile logs for every reader: nothing may raise, no row be lost, memory stay bounded.

Run ``python benchmarks/hostile/run.py``; ``--help`` lists the options. Of each format's sample,
files with thousands of damaged records are made (``mutate.py``) and read, and so is a fixed set:
empty files, lines of 50 MB, wrong names, packed files that unpack to more than 1 GiB. Each format
is read in a process of its own with a limit of memory; where that dies, another goes on with the
next file. What is a fault:

* any exception but the package's own errors; a warning of Python; a process that dies or hangs;
* rows read that are not rows used plus rows rejected by reason;
* a used row with a negative or absurd duration or number of tokens, or a start outside 2000 to
  2100;
* one file that takes more than a minute of processor time;
* a fixed file that is read otherwise than it must be: a log under a wrong name has the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mutate import Maker

SEED = 20260310
RECORDS = 100_000
#: Damaged records a file.
A_FILE = 10_000
#: Small files, and damaged records in each of them.
HEADS, HEAD_RECORDS = 25, 40
#: Address space of a process that reads, and how long it may take for one file.
MEMORY = 6 * 2**30
PATIENCE_S = 600
SLOW_S = 60.0
#: Damaged samples, and of the fixed set the files of little and of much content.
PARTS = ("mutated", "small", "large")
#: How many processes one format gets.
LIVES = 12
LINE_BYTES = 50 * 10**6
#: What a small packed file unpacks to.
BOMB_BYTES = 17 * 2**26
BOMBS = ("a long line", "blank lines", "zeros", "brackets")
WRONG = (".csv", ".json", ".parquet", ".gz", ".zip", ".db", ".txt", ".log", "")

HEADER = (
    "format", "mutated", "files", "refused", "read", "used", "rejected", "reasons", "MiB",
    "MiB fixed", "seconds", "faults",
)  # fmt: skip
WIDTHS = (16, 8, 5, 7, 8, 8, 8, 7, 6, 9, 7, 6)


@dataclass
class Row:
    """What became of one format."""

    name: str
    mutated: int = 0
    files: int = 0
    refused: int = 0
    read: int = 0
    used: int = 0
    rejected: int = 0
    reasons: set[str] = field(default_factory=set)
    mib: float = 0.0
    mib_fixed: float = 0.0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)

    def cells(self) -> tuple[Any, ...]:
        return (
            self.name, self.mutated, self.files, self.refused, self.read, self.used, self.rejected,
            len(self.reasons), round(self.mib), round(self.mib_fixed), round(self.seconds),
            len(self.faults),
        )  # fmt: skip


# --------------------------------------------------------------------- parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=RECORDS, help="damaged records a format")
    parser.add_argument("--a-file", type=int, default=A_FILE, help="damaged records a file")
    parser.add_argument("--formats", help="only these, with commas between")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", choices=PARTS, help="leave the other parts out")
    parser.add_argument("--keep", type=Path, help="a folder for the files at fault")
    parser.add_argument("--refusals", action="store_true", help="say why files were refused")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    names = args.formats.split(",") if args.formats else _formats()
    print(_line(HEADER), flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        if args.only in (None, "large"):
            _make_bombs(Path(folder))
        for name in names:
            row = _measure(name, Path(folder), args)
            rows.append(row)
            print(_line(row.cells()), flush=True)
            alike = Counter(fault.partition(": ")[2] for fault in row.faults)
            for what, times in alike.items():
                first = next(fault for fault in row.faults if fault.endswith(f": {what}"))
                print(f"    {first}" + (f"  ({times} times)" if times > 1 else ""), flush=True)
            if args.refusals:
                for why, times in row.refusals.items():
                    print(f"    refused {times} times: {why}", flush=True)
    print(_line(_sums(rows).cells()))
    return int(any(row.faults for row in rows))


def _formats() -> list[str]:
    code = "from ttftdoctor import catalog; print(*(r.name for r in catalog.readers()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()


def _line(cells: tuple[Any, ...]) -> str:
    texts = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
    first, *others = zip(texts, WIDTHS, strict=True)
    return "  ".join((first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)))


def _sums(rows: list[Row]) -> Row:
    out = Row("all")
    for row in rows:
        out.mutated += row.mutated
        out.files += row.files
        out.refused += row.refused
        out.read += row.read
        out.used += row.used
        out.rejected += row.rejected
        out.reasons |= row.reasons
        out.mib = max(out.mib, row.mib)
        out.mib_fixed = max(out.mib_fixed, row.mib_fixed)
        out.seconds += row.seconds
        out.faults += row.faults
    return out


def _measure(name: str, folder: Path, args: argparse.Namespace) -> Row:
    row = Row(name)
    begun = time.monotonic()
    at, lives = args.start, LIVES
    while at >= 0 and lives:
        at = _one_life(row, at, folder, args)
        lives -= 1
    if at >= 0:
        row.faults.append(f"file {at}: given up")
    row.seconds = time.monotonic() - begun
    return row


def _one_life(row: Row, start: int, folder: Path, args: argparse.Namespace) -> int:
    """Let a process read from this file on; where to go on if it died, or -1."""
    command = [
        sys.executable, str(Path(__file__).resolve()), "--child", row.name, "--start", str(start),
        "--folder", str(folder), "--records", str(args.records), "--seed", str(args.seed),
        "--a-file", str(args.a_file),
    ]  # fmt: skip
    if args.only:
        command += ["--only", args.only]
    if args.keep:
        command += ["--keep", str(args.keep)]
    log = folder / "errors"
    at, what = start, "the start"
    with log.open("wb") as errors, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True,
        env={**os.environ, "PYTHONDEVMODE": "", "POLARS_MAX_THREADS": "2"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if "begin" in event:
                at, what = event["begin"], event["what"]
            else:
                _count(row, event)
        code = process.wait()
    if code == 0:
        return -1
    said = log.read_text(errors="replace").strip().splitlines()[-1:] or [""]
    row.faults.append(f"file {at} ({what}): the process died ({code}) {said[0][:200]}")
    if args.keep:
        for path in folder.glob(f"{row.name}-{at}.*"):
            args.keep.mkdir(parents=True, exist_ok=True)
            path.rename(args.keep / path.name)
    return at + 1


def _count(row: Row, event: dict[str, Any]) -> None:
    row.faults += event["faults"]
    row.reasons.update(event["reasons"])
    if event["fixed"]:
        row.mib_fixed = max(row.mib_fixed, event["mib"])
        return
    row.mib = max(row.mib, event["mib"])
    row.mutated += event["mutated"]
    row.files += 1
    row.refused += len(event["refused"])
    row.refusals.update(event["refused"])
    row.read += event["read"]
    row.used += event["used"]
    row.rejected += event["rejected"]


def _make_bombs(folder: Path) -> None:
    """The packed parts that all formats share."""
    import zstandard

    piece = 2**20
    packer = zlib.compressobj(9, wbits=31)
    with (folder / "a long line").open("wb") as out:
        out.write(packer.compress(b'{"id": "'))
        for _ in range(BOMB_BYTES // piece):
            out.write(packer.compress(b"a" * piece))
        out.write(packer.flush())
    for name, byte in (("blank lines", b"\n"), ("zeros", b"\x00")):
        with (
            (folder / name).open("wb") as out,
            zstandard.ZstdCompressor(3).stream_writer(out) as to,
        ):
            for _ in range(BOMB_BYTES // piece):
                to.write(byte * piece)
    with (
        zipfile.ZipFile(folder / "brackets", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("log.jsonl", "w", force_zip64=True) as to,
    ):
        for _ in range(BOMB_BYTES // piece):
            to.write(b"[" * piece)


# ---------------------------------------------------------------------- child


def child(args: argparse.Namespace) -> None:
    """Read the files of one format from ``--start`` on, and say of each what became of it."""
    import faulthandler
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from ttftdoctor import catalog

    reader = catalog.reader_named(args.child)
    samples = Path(__file__).parents[2] / "sample_logs"
    (sample,) = samples.glob(f"{reader.name}.*")
    maker = Maker(reader.name, sample, frozenset(s.value for s in reader.shapes), args.seed)
    made = 0
    tasks: list[tuple[str, Callable[[int], dict[str, Any]]]] = []
    if args.only in (None, "mutated"):
        # Small files that do not begin well: they are told, and planned, by damaged records.
        number = min(HEADS, args.records // HEAD_RECORDS)
        made = number * HEAD_RECORDS
        small = partial(_mutated, maker, size=HEAD_RECORDS, args=args, bare=True)
        tasks += [("mutated", small)] * number
        while made < args.records:
            size = min(args.a_file, args.records - made)
            turns = maker.variants()
            if turns[number % len(turns)] == "sqlite":
                size = min(size, 2500)
            made += size
            tasks.append(("mutated", partial(_mutated, maker, size=size, args=args)))
            number += 1
    for part, files in (("small", _small), ("large", _large)):
        if args.only in (None, part):
            tasks += [
                (what, partial(_fixed, maker.name, make=make, args=args))
                for what, make in files(sample, args.folder)
            ]
    for at in range(args.start, len(tasks)):
        what, work = tasks[at]
        print(json.dumps({"begin": at, "what": what}), flush=True)
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        event = work(at)
        event["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        event["fixed"] = what != "mutated"
        event["faults"] = [f"file {at} ({what}): {fault}" for fault in event["faults"]]
        print(json.dumps(event), flush=True)
        faulthandler.cancel_dump_traceback_later()


def _event() -> dict[str, Any]:
    return {
        "mutated": 0,
        "refused": [],
        "read": 0,
        "used": 0,
        "rejected": 0,
        "reasons": [],
        "faults": [],
    }


def _mutated(
    maker: Maker, at: int, size: int, args: argparse.Namespace, *, bare: bool = False
) -> dict[str, Any]:
    path = args.folder / f"{maker.name}-{at}"
    made = maker.file(at, size, path, bare=bare)
    path = path.rename(path.with_name(path.name + made.suffix))
    event = _event()
    event["mutated"] = made.damaged
    log = _read(path, maker.name, event)
    if log is not None:
        _account(log, event)
    event["refused"] = [f"{made.variant}: {why}" for why in event["refused"]]
    if bare or at % 4 == 0:  # as a log that nobody named
        more = _event()
        log = _read(path, None, more)
        if log is not None:
            _account(log, more)
        event["faults"] += [f"unnamed: {fault}" for fault in more["faults"]]
    event["faults"] = [f"{made.variant}: {fault}" for fault in event["faults"]]
    _done(path, event, args)
    return event


def _done(path: Path, event: dict[str, Any], args: argparse.Namespace) -> None:
    if event["faults"] and args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        path.rename(args.keep / path.name)
    else:
        path.unlink()


def _read(path: Path, name: str | None, event: dict[str, Any]) -> Any:
    """The log; None where the package says clearly why not. What else happens is a fault."""
    import warnings

    from ttftdoctor.errors import TTFTDoctorError
    from ttftdoctor.intake import read_log

    begun = time.process_time()
    log = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            log = read_log([str(path)], format=name)
        except TTFTDoctorError as error:
            event["refused"].append(f"{error.what} ({error.why})"[:200])
            if not str(error).strip() or len(str(error)) > 100_000:
                event["faults"].append(
                    f"an error that says nothing or too much: {str(error)[:80]!r}"
                )
        except BaseException as error:  # noqa: BLE001  (a panic of Polars is no Exception)
            event["faults"].append(_where(error))
    event["faults"] += sorted(
        {f"warning: {one.category.__name__}: {one.message}"[:300] for one in caught}
    )
    spent = time.process_time() - begun
    if spent > SLOW_S:
        event["faults"].append(f"slow: {spent:.0f} s of processor time")
    return log


def _where(error: BaseException) -> str:
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if "ttftdoctor" in f.filename]
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-5:-1])
    what = (str(error).splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {what} [{places}]"


def _account(log: Any, event: dict[str, Any]) -> None:
    """Count the rows of a log, and look for what must not be among the used ones."""
    used = 0
    for one in log.inputs:
        rejected = sum(one.rows_rejected.values())
        if (
            one.rows_read != one.rows_used + rejected
            or min(one.rows_rejected.values(), default=1) < 1
        ):
            event["faults"].append(
                f"{one.rows_read} rows read, {one.rows_used} used, {rejected} rejected"
            )
        used += one.rows_used
        event["read"] += one.rows_read
        event["rejected"] += rejected
        event["reasons"] += [
            reason for reason in one.rows_rejected if reason not in event["reasons"]
        ]
    event["used"] += used
    if log.requests.height != used:
        event["faults"].append(f"{used} rows said to be used, {log.requests.height} there")
    event["faults"] += absurd(log.requests)


def absurd(frame: Any) -> Iterator[str]:
    """What is negative or beyond belief in the used rows."""
    import polars as pl

    from ttftdoctor.table import ABSURD_TOKENS, ABSURD_US

    def col(name: str) -> Any:
        return pl.col(name)

    tests = {}
    for name in ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "load_us"):
        tests[f"{name} < 0"] = col(name) < 0
        tests[f"{name} > a day"] = col(name) > ABSURD_US
    for name in (
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
    ):
        tests[f"{name} < 0"] = col(name) < 0
        tests[f"{name} > 100 million"] = col(name) > ABSURD_TOKENS
    tests["cached > input"] = col("cached_tokens") > col("input_tokens")
    tests["reasoning > output"] = col("reasoning_tokens") > col("output_tokens")
    tests["ttft > e2e"] = col("ttft_us") > col("e2e_us") * 1.01 + 1000
    start = col("start")
    tests["start outside 2000 to 2100"] = (
        (start < -(10**14))
        | start.is_between(10**14, 946_684_799_999_999)
        | (start > 4_102_444_800_000_000)
    )
    tests["status not ok"] = col("status") != "ok"
    found = frame.select(test.sum().alias(name) for name, test in tests.items())
    for name in found.columns:
        if found[name][0]:
            yield f"used rows with {name}"


# ------------------------------------------------------------------ fixed set

Check = Callable[[Any], str | None]
Fixed = tuple[Path, Check]


def _no_rows(log: Any) -> str | None:
    used = log.requests.height if log is not None else 0
    return f"{used} rows used of a file without any" if used else None


def _any(log: Any) -> str | None:
    return None


def _put(path: Path, content: bytes, check: Check) -> Fixed:
    path.write_bytes(content)
    return path, check


def _small(sample: Path, folder: Path) -> Iterator[tuple[str, Callable[[], Fixed]]]:
    """Names of the small fixed files, and what makes each of them."""
    data = sample.read_bytes()
    known: list[tuple[int, int]] = []

    def like_the_sample(log: Any) -> str | None:
        if not known:
            from ttftdoctor.intake import read_log

            (one,) = read_log([str(sample)], format=sample.stem).inputs
            known.append((one.rows_read, one.rows_used))
        got = None if log is None else (log.inputs[0].rows_read, log.inputs[0].rows_used)
        return None if got == known[0] else f"rows read and used: {got}, not {known[0]}"

    for what, content in (
        ("empty", b""),
        ("a byte order mark", b"\xef\xbb\xbf"),
        ("blank", b" \r\n\t\n" * 1000),
        ("zeros", bytes(100_000)),
        ("invalid bytes", b"\xff\xfe\xc3" * 30_000),
    ):
        yield what, partial(_put, folder / f"small{sample.suffix}", content, _no_rows)
    tail = partial(_put, folder / f"tail{sample.suffix}", _ended(data) + bytes(100_000), _any)
    yield "zeros behind the sample", tail
    for suffix in WRONG:
        if suffix != sample.suffix:
            what = f"named {suffix or 'without an ending'}"
            yield what, partial(_put, folder / f"wrong{suffix}", data, like_the_sample)


def _large(sample: Path, folder: Path) -> Iterator[tuple[str, Callable[[], Fixed]]]:
    """Names of the large fixed files, and what makes each of them."""
    data = sample.read_bytes()
    before = _ended(data)

    def long(*pieces: bytes | tuple[bytes, int]) -> Callable[[], Fixed]:
        def make() -> Fixed:
            content = b"".join(p if isinstance(p, bytes) else p[0] * p[1] for p in pieces)
            return _put(folder / f"long{sample.suffix}", content, _any)

        return make

    letters = (b"a", LINE_BYTES)
    yield "50 MB in one line", long(letters)
    yield "50 MB in a line between", long(before, b'{"id": "', letters, b'"}\n', data)
    yield "50 MB of digits in a line", long(before, b'{"id": ', (b"9", LINE_BYTES), b"}\n")
    yield "50 MB of brackets", long((b"[", LINE_BYTES))
    yield "50 MB of an open quote", long(before, b'"', letters)
    for kind in BOMBS:
        yield f"a bomb of {kind}", _bomb(kind, folder, before)


def _ended(data: bytes) -> bytes:
    return data if data.endswith(b"\n") else data + b"\n"


def _bomb(kind: str, folder: Path, before: bytes) -> Callable[[], Fixed]:
    """A small file that unpacks to more than 1 GiB, behind the sample where it is gzip or zstd."""

    def make() -> Fixed:
        packed = (folder / kind).read_bytes()
        if kind == "a long line":
            import gzip

            path, packed = folder / "bomb.gz", gzip.compress(before) + packed
        elif kind == "brackets":
            path = folder / "bomb.zip"
        else:
            import zstandard

            path, packed = folder / "bomb.zst", zstandard.ZstdCompressor().compress(before) + packed
        path.write_bytes(packed)
        return path, _any

    return make


def _fixed(
    name: str, at: int, make: Callable[[], Fixed], args: argparse.Namespace
) -> dict[str, Any]:
    path, check = make()
    event = _event()
    log = _read(path, name, event)
    if log is not None:
        _account(log, event)
    wrong = None if event["faults"] else check(log)
    if wrong:
        event["faults"].append(wrong)
    _done(path, event, args)
    return event


if __name__ == "__main__":
    sys.exit(main())
