"""A log of a chat service with any number of rows, made in bounded memory and the same for a seed.

Run ``python benchmarks/scale/make.py 1000000 --jsonl log.jsonl --parquet log.parquet``.

The service: a fleet of replicas, each of which prefills one prompt at a time in the order of
arrival, and a daily course of load with its peak in the afternoon. People hold conversations: each
turn sends what was said before and some more; some begin with a long document, others are short
to the end, so that the length of a prompt and its turn are two different things. Nothing is reused
(``repeated_prefix_no_reuse``), or with ``--reuse`` what the same replica has seen ten minutes ago.
With ``--blocks`` each row has the ids of its prompt's blocks, of which all have the first one.

A log that is larger is one of more days, of the same fleet: so do logs grow, and all figures by row
stay the same. A log of less than a day is one of fewer replicas, down to two. So that every log
holds whole courses of load, a day of it is stretched or squeezed where its rows fill no whole day.

The work is done over whole columns, by pieces of about 300,000 rows. A session begins in one piece
and goes on in later ones: rows that start after the next session to come are carried there, and so
is the time until which each replica is busy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from logs import FIELDS, SEED

Array = NDArray[Any]
Columns = dict[str, Array]

#: A day of this many replicas is a million rows.
FLEET = 24
ROWS_A_DAY = 1_000_000 / FLEET
FEWEST = 2
DAY = 86_400.0
#: The load swings by this share of its mean around it; the peak is at 15:00.
SWING = 0.6
PEAK = 15 / 24
BEGIN_MS = 1_785_715_200_000  # Monday, 3 August 2026, 00:00 UTC

#: Seconds: prefill = FIXED + LINEAR U + SQUARE U (C + U / 2), for U and C thousand tokens.
FIXED = 0.060
LINEAR = 0.130
SQUARE = 0.0015
PREFILL_NOISE = 0.03
DECODE = 0.030
DECODE_NOISE = 0.04

LAST_TURN = 24
MEAN_TURNS = 6.0
LONGEST = 60_000
KEPT = 600.0
BLOCK = 16
#: Tokens of a block whose id is logged: only full ones are.
LOGGED_BLOCK = 512
MOVED = 0.1
FAILED = 0.003
PIECE = 300_000


@dataclass
class Truth:
    """What was put into a log: sums over all its rows, seconds and tokens."""

    rows: int = 0
    failed: int = 0
    sessions: int = 0
    days: float = 0.0
    replicas: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    history_tokens: int = 0
    content_tokens: int = 0
    ttft: float = 0.0
    wait: float = 0.0
    busiest: float = 0.0
    line: dict[str, float] = field(
        default_factory=lambda: {"fixed": FIXED, "linear": LINEAR, "square": SQUARE}
    )

    def add(self, c: Columns) -> None:
        """Count the rows of a piece."""
        good = ~c["failed"]
        self.rows += good.size
        self.failed += int((~good).sum())
        self.sessions += int((c["turn"] == 1).sum())
        for name in ("input_tokens", "cached_tokens", "output_tokens"):
            setattr(self, name, getattr(self, name) + int(c[name][good].sum()))
        self.history_tokens += int(c["history"][good].sum())
        self.content_tokens += int(c["known_blocks"][good].sum()) * LOGGED_BLOCK
        self.ttft += float((c["wait"] + c["prefill"])[good].sum())
        self.wait += float(c["wait"][good].sum())
        self.busiest = max(self.busiest, float(c["wait"].max()))

    def document(self) -> dict[str, Any]:
        """As JSON: means of the rows that did not fail instead of sums of seconds."""
        good = max(self.rows - self.failed, 1)
        out = asdict(self)
        out["mean_ttft"] = out.pop("ttft") / good
        out["mean_wait"] = out.pop("wait") / good
        out["longest_wait"] = out.pop("busiest")
        out["repeated_share"] = self.history_tokens / max(self.input_tokens, 1)
        return out


# --------------------------------------------------------------------- names


def mixed(numbers: Array, salt: int) -> Array:
    """Numbers of 64 bits that look random; different ones for different numbers."""
    x = numbers.astype(np.uint64) + np.uint64(salt)
    x = x * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def hexadecimal(numbers: Array) -> pl.Series:
    """Each number as 16 hexadecimal digits."""
    text = numbers.astype(">u8").tobytes().hex()
    return pl.Series(np.frombuffer(text.encode(), "S16").astype("U16").tolist())


# ------------------------------------------------------------------- service


@dataclass(frozen=True)
class Fleet:
    """Size of the service, seconds of its log, and whether it reuses what it has seen."""

    replicas: int
    length: float
    seed: int
    reuse: bool

    @property
    def courses(self) -> int:
        """How often the load goes up and down: once a day."""
        return max(round(self.length / DAY), 1)

    def begins(self, order: Array) -> Array:
        """Seconds at which sessions begin, from their even places in the order of beginning."""
        u = np.linspace(0.0, 1.0, 1441)
        # The integral of 1 + SWING cos(2 pi (u - PEAK)), which is 1 over the whole period.
        done = u + SWING / (2 * np.pi) * (
            np.sin(2 * np.pi * (u - PEAK)) - np.sin(2 * np.pi * (0.0 - PEAK))
        )
        whole, part = np.divmod(order, 1.0)
        result: Array = (whole + np.interp(part, done, u)) * self.length / self.courses
        return result


def fleet_of(rows: int, replicas: int | None, seed: int, reuse: bool) -> Fleet:
    """The fleet for so many rows: more replicas up to FLEET, from there on more days."""
    most = FLEET if replicas is None else replicas
    own = round(rows / ROWS_A_DAY / 2) * 2
    some = most if replicas else min(max(own, FEWEST), most)
    return Fleet(some, rows / (some * ROWS_A_DAY) * DAY, seed, reuse)


def mean_turns() -> float:
    """Turns of a session on average, cut at LAST_TURN."""
    return MEAN_TURNS * (1 - (1 - 1 / MEAN_TURNS) ** LAST_TURN)


def conversations(fleet: Fleet, first: int, begin: Array, rng: np.random.Generator) -> Columns:
    """All turns of sessions that begin at these seconds; ``first`` is the number of the first."""
    count = begin.size
    turns = np.minimum(rng.geometric(1 / MEAN_TURNS, count), LAST_TURN)
    session = np.repeat(np.arange(count), turns)
    rows = session.size
    head = np.concatenate([[0], np.cumsum(turns)[:-1]])
    turn = np.arange(rows) - head[session] + 1

    def running(values: Array) -> Array:  # sum over the earlier turns of the session
        total = np.concatenate([[0.0], np.cumsum(values)])
        result: Array = total[:-1] - total[head[session]]
        return result

    def before(values: Array, at_first: float) -> Array:  # that of the previous turn
        return np.where(turn > 1, np.roll(values, 1), at_first)

    document = np.where(
        rng.random(count) < 0.2,
        rng.lognormal(9.0, 0.6, count),
        rng.choice([60, 250, 900], count),
    ).round()
    talk = rng.lognormal(0.0, 0.9, count)[session]  # some people write pages, others a line
    new = np.clip(rng.lognormal(5.3, 0.7, rows) * talk, 8, 8_000).round()
    output = np.clip(rng.lognormal(5.2, 0.6, rows) * np.sqrt(talk), 4, 2_000).round()
    failed = rng.random(rows) < FAILED
    output[failed] = 0
    history = np.minimum(document[session] * (turn > 1) + running(new + output), LONGEST)
    inputs = np.minimum(history + new + document[session] * (turn == 1), LONGEST)
    history = np.minimum(history, inputs)

    full = inputs // LOGGED_BLOCK
    # Prompts grow until they are cut, so what is known of one is what was in the one before.
    known_blocks = np.maximum(np.minimum(before(full, 0.0), full), np.minimum(full, 1))

    # The service has two models of one size, each on half of the replicas.
    model = rng.integers(0, 2, count)
    half = fleet.replicas // 2
    home = rng.integers(0, half, count)[session]
    home = np.where(rng.random(rows) < MOVED, rng.integers(0, half, rows), home)
    replica = home * 2 + model[session]

    pause = 15 + rng.lognormal(3.8, 1.0, rows)
    cached = np.zeros(rows)
    if fleet.reuse:
        same = (before(replica, -1) == replica) & (before(pause, np.inf) < KEPT)
        same &= ~before(failed, 1.0).astype(bool)
        cached = np.where(same, history // BLOCK * BLOCK, 0.0)
    computed = (inputs - cached) / 1e3
    prefill = FIXED + LINEAR * computed + SQUARE * computed * (cached / 1e3 + computed / 2)
    prefill *= rng.normal(1.0, PREFILL_NOISE, rows).clip(0.8, 1.2)
    decode = output * DECODE * rng.normal(1.0, DECODE_NOISE, rows).clip(0.7, 1.3)
    # A failed request is refused at the door: it keeps no replica busy and has no first token.
    prefill[failed] = 0.0
    refused = rng.uniform(0.005, 0.05, rows)
    start = begin[session] + running(prefill + decode + pause)
    return {
        "session": session + first, "turn": turn, "start": start, "replica": replica,
        "input_tokens": inputs.astype(np.int64), "cached_tokens": cached.astype(np.int64),
        "output_tokens": output.astype(np.int64), "history": history.astype(np.int64),
        "known_blocks": known_blocks.astype(np.int64),
        "prefill": prefill, "decode": np.where(failed, refused, decode), "failed": failed,
    }  # fmt: skip


def waits(c: Columns, free: Array) -> Array:
    """Seconds each row waits for the prefills ahead of it; ``free`` is when each replica is.

    By Lindley's recursion as a running maximum: the end of a prefill is the work up to it plus the
    latest moment at which the replica was idle. Rows come by start; ``free`` is moved on.
    """
    out = np.zeros(c["start"].size)
    order = np.argsort(c["replica"], kind="stable")
    bounds = np.searchsorted(c["replica"][order], np.arange(free.size + 1))
    for which, (low, high) in enumerate(pairwise(bounds)):
        at = order[low:high]
        if at.size == 0:
            continue
        work = np.cumsum(c["prefill"][at])
        idle = np.maximum.accumulate(c["start"][at] - (work - c["prefill"][at]))
        end = work + np.maximum(idle, free[which])
        out[at] = np.maximum(end - c["prefill"][at] - c["start"][at], 0.0)
        free[which] = end[-1]
    out[c["failed"]] = 0.0
    return out


def pieces(fleet: Fleet, rows: int) -> Iterator[Columns]:
    """The log in pieces, rows by start: columns of one length, ``wait`` among them."""
    at_once = int(min(PIECE, max(rows / 4, 500)) / mean_turns())
    a_course = rows / fleet.courses / mean_turns()
    free = np.zeros(fleet.replicas)
    carried: Columns | None = None
    place, number, done, step = 0.0, 0, 0, 0
    while done < rows:
        rng = np.random.default_rng([fleet.seed, step])
        order = place + np.cumsum(rng.exponential(1.0, at_once))
        begin = fleet.begins(order / a_course)
        some = conversations(fleet, number, begin, rng)
        if carried is not None:
            some = {name: np.concatenate([carried[name], some[name]]) for name in some}
        by_start = np.argsort(some["start"], kind="stable")
        # Whoever comes later begins after the last of these.
        final = int(np.searchsorted(some["start"][by_start], begin[-1], side="right"))
        carried = {name: values[by_start[final:]] for name, values in some.items()}
        piece = {name: values[by_start[: min(final, rows - done)]] for name, values in some.items()}
        piece["wait"] = waits(piece, free)
        piece["number"] = np.arange(done, done + piece["turn"].size)
        yield piece
        done += piece["turn"].size
        place, number, step = float(order[-1]), number + at_once, step + 1


def blocks_of(c: Columns, seed: int) -> pl.Series:
    """Ids of the full blocks of each prompt: the head of all prompts, then those of its session."""
    many = c["input_tokens"] // LOGGED_BLOCK
    ends = np.cumsum(many)
    place = np.arange(ends[-1]) - np.repeat(ends - many, many)
    session = np.repeat(c["session"], many)
    ids = mixed(np.where(place == 0, 0, (session + 1) * 1000 + place), seed + 2**41)
    offsets = np.concatenate([[0], ends])
    return pl.Series(pa.LargeListArray.from_arrays(offsets, ids))


def frame_of(c: Columns, seed: int, blocks: bool = False) -> pl.DataFrame:
    """A piece as a table, with a moment as ``timestamp`` and milliseconds, as a gateway logs it."""
    replicas = int(c["replica"].max()) + 1
    ttft = (c["wait"] + c["prefill"]) * 1e3
    stamp = BEGIN_MS + (c["start"] * 1e3).astype(np.int64)
    frame = pl.DataFrame(
        {
            "request_id": "req-" + hexadecimal(mixed(c["number"], seed)),
            "session_id": "chat-" + hexadecimal(mixed(c["session"], seed + 2**40)),
            "turn": c["turn"].astype(np.int64),
            "timestamp": pl.Series(stamp).cast(pl.Datetime("ms", "UTC")),
            "model": pl.Series(["chat-32b", "chat-32b-code"]).gather(c["replica"] % 2),
            "replica": pl.Series([f"llm-{i:03d}" for i in range(replicas)]).gather(c["replica"]),
            "input_tokens": c["input_tokens"],
            "cached_tokens": c["cached_tokens"],
            "output_tokens": c["output_tokens"],
            "ttft_ms": pl.Series(ttft.round(2)).set(pl.Series(c["failed"]), None),
            "e2e_ms": (ttft + c["decode"] * 1e3).round(2),
            "status": pl.Series(["ok", "error"]).gather(c["failed"].astype(np.int64)),
        }
    )
    assert tuple(frame.columns) == FIELDS
    if blocks:
        frame = frame.with_columns(
            blocks_of(c, seed).alias("prefix_blocks"), pl.lit(LOGGED_BLOCK).alias("block_tokens")
        )
    return frame


# ------------------------------------------------------------------- writing


def room(folder: Path, rows: int, jsonl: bool, parquet: bool) -> None:
    """Exit with a message if the disk has not twice the room that the files will take."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = rows * (300 * jsonl + 2 * 80 * parquet)
    free = shutil.disk_usage(folder).free
    if free < 2 * wanted:
        sys.exit(f"{folder} has {free / 2**30:.1f} GiB free; {2 * wanted / 2**30:.1f} are wanted")


def write(fleet: Fleet, rows: int, jsonl: Path | None, parquet: Path | None, blocks: bool) -> Truth:
    """Write the log as JSON lines, as Parquet or as both; files appear once they are whole."""
    truth = Truth(replicas=fleet.replicas, days=fleet.length / DAY)
    place = (parquet or jsonl or Path()).parent
    with tempfile.TemporaryDirectory(dir=place, prefix="making-") as folder:
        lines, table = Path(folder) / "log.jsonl", Path(folder) / "log.parquet"
        parts: list[Path] = []
        with lines.open("wb") as file:
            for piece in pieces(fleet, rows):
                truth.add(piece)
                frame = frame_of(piece, fleet.seed, blocks)
                if parquet is not None:
                    parts.append(Path(folder) / f"{len(parts):05d}.parquet")
                    frame.write_parquet(parts[-1], compression="lz4")
                if jsonl is not None:
                    write_lines(frame, file)
        if parquet is not None:
            pl.scan_parquet(parts).sink_parquet(table, row_group_size=200_000, maintain_order=True)
            table.replace(parquet)
        if jsonl is not None:
            lines.replace(jsonl)
    return truth


def write_lines(frame: pl.DataFrame, file: IO[bytes]) -> None:
    """Append JSON lines, with the moment in the form that most gateways write."""
    frame.with_columns(
        pl.col("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"),
    ).write_ndjson(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int)
    parser.add_argument("--jsonl", type=Path)
    parser.add_argument("--parquet", type=Path)
    parser.add_argument("--truth", type=Path, help="what was put into the log, as JSON")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--replicas", type=int, help="a larger fleet instead of more days")
    parser.add_argument("--blocks", action="store_true", help="with ids of the prompts' blocks")
    parser.add_argument("--reuse", action="store_true", help="with a working prefix cache")
    options = parser.parse_args()
    if not options.jsonl and not options.parquet:
        parser.error("--jsonl FILE, --parquet FILE or both are wanted")
    if options.rows < 1 or (options.replicas or 2) % 2:
        parser.error("at least one row, and an even number of replicas")
    fleet = fleet_of(options.rows, options.replicas, options.seed, options.reuse)
    for path in (options.jsonl, options.parquet):
        if path:
            room(path.absolute().parent, options.rows, bool(options.jsonl), bool(options.parquet))
    truth = write(fleet, options.rows, options.jsonl, options.parquet, options.blocks)
    text = json.dumps(truth.document(), indent=1)
    if options.truth:
        options.truth.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
