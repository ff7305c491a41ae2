"""The watch itself: what has come is read, kept, and diagnosed now and then."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from time import monotonic, process_time, time
from typing import Any

import polars as pl

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.errors import InputError
from ttftdoctor.experiment import arguments
from ttftdoctor.guide import in_manner
from ttftdoctor.intake import Log, joined
from ttftdoctor.language import spoken, tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.readers import Options
from ttftdoctor.remedies import Settings
from ttftdoctor.sources import HEAD_RECORDS
from ttftdoctor.study import study
from ttftdoctor.table import REJECT, check, conform
from ttftdoctor.version import tool_version
from ttftdoctor.watching.follow import PATIENCE_S, Follower, Generation
from ttftdoctor.watching.minutes import Figures, Lately, Minutes
from ttftdoctor.watching.store import Store
from ttftdoctor.watching.taken import SETTLED_BYTES, Rows, Taken, record_of, resumed

#: Work on all rows rests for so many times as long as it took.
REST = 40
#: ... and work on the beginning of a log, which is at most a megabyte, for so many.
REST_OF_BEGINNING = 10
#: ... and reading what has come, but never for more intervals than this.
MOST_INTERVALS = 6
#: Stamps above are since 1970, so that the newest row has an age.
EPOCH_US = 10**14
#: As ``diagnose`` has it.
COMPACT_TO = 8000


@dataclass(frozen=True)
class View:
    """What there is to be seen at a moment.

    ``age_s`` is how old the newest row is, ``old_s`` how old the diagnosis.
    """

    now: float
    paths: tuple[str, ...]
    files: int
    read: int
    used: int
    age_s: float | None
    lately: Figures
    before: Figures
    drawn: tuple[float | None, ...]
    diagnosis: Diagnosis | None
    old_s: float | None
    next_s: float | None
    remarks: tuple[str, ...] = ()


@dataclass
class Counts:
    """Rows of one generation; ``made`` are those that a reader made, used or not."""

    read: int = 0
    used: int = 0
    made: int = 0


class Watch:
    """Follows logs, keeps what they came to, and diagnoses it.

    Parameters
    ----------
    state
        A folder to go on from, and to keep everything in.
    patience
        How long a log that was rotated away must be still to be done with.
    """

    def __init__(
        self,
        paths: list[str],
        *,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        state: str | None = None,
        patience: float = PATIENCE_S,
    ) -> None:
        self.paths = paths
        self.format = format
        self.options = in_manner(Options(columns=columns or {}, units=units or {}))
        self.named = arguments(paths, format, columns, units, manner().arguments())
        self.taken: dict[int, Taken] = {}
        self.counts: dict[int, Counts] = {}
        #: All rows that are read piece by piece, and for each log that is read anew its own.
        self.pieces = Minutes()
        self.minutes: dict[int, Minutes] = {}
        self.diagnosis: Diagnosis | None = None
        self._records: dict[int, dict[str, Any]] = {}
        self._due: dict[int, float] = {}
        self._made_at: float | None = None
        self._next_at = 0.0
        self._of = -1
        self._bytes = 0
        self.store: Store | None = None
        if state is not None:
            self.store = Store(state, tool_version(), self._asked())
        known = self.store.generations if self.store is not None else []
        self.follower = Follower(
            paths, records=[one["generation"] for one in known], patience=patience
        )
        for generation, record in zip(self.follower.generations, known, strict=True):
            self._resume(generation, record)

    def close(self) -> None:
        """Let go of all files."""
        self.follower.close()
        if self.store is not None:
            self.store.close()

    def step(self, *, last: bool = False) -> None:
        """Read what has come; with ``last`` all that can be read.

        Raises
        ------
        InputError
            If nothing of it can be read, though enough is there.
        """
        changed: set[int] = set()
        ended: list[Taken] = []
        for piece in self.follower.poll():
            number = piece.of.number
            taken = self._taken(piece.of)
            frame = taken.add(piece.data)
            self.follower.taken(piece)
            self._bytes += len(piece.data)
            changed.add(number)
            if frame is not None:
                self._count(number, frame)
            if taken.ready:  # what comes next of a long log need not be held as text
                self._refresh(changed, every=False, now=[taken])
                self._complain()
            if piece.last:
                ended.append(taken)
        gone = {one.number for one in self.follower.generations}
        for number in [number for number in self.taken if number not in gone]:
            del self.taken[number], self.counts[number]
            self.minutes.pop(number, None)
        self._refresh(changed, every=last, now=ended)
        if self.store is not None and (changed or self.store.generations == []):
            self._commit(changed)
        for taken in ended:
            taken.finish()
        self._complain()

    def due(self) -> bool:
        """Whether to diagnose: there are new rows, and the last diagnosis is long enough ago."""
        return self.changed and monotonic() >= self._next_at

    @property
    def changed(self) -> bool:
        """Whether there is anything that the last diagnosis does not know."""
        return self._bytes != self._of

    def log(self) -> Log | None:
        """All that was read so far as one log; None if that is nothing."""
        self._refresh(set(), every=True)
        logs = []
        warnings = list(self.follower.remarks)
        for taken in self.taken.values():
            log = taken.whole()
            if log is not None:
                logs.append(log)
            elif taken.problem is not None:
                why = taken.problem.what
                warnings.append(tr("skipped {path}: {why}", path=taken.path, why=why))
        return joined(logs, warnings) if logs else None

    def diagnose(self) -> Diagnosis | None:
        """Diagnose all that was read so far; None if that is nothing."""
        began, used = monotonic(), process_time()
        of = self._bytes
        log = self.log()
        if log is not None:
            self.diagnosis, _ = study(log, self.named, Settings(COMPACT_TO), draw=False)
            self._made_at = monotonic()
        cost = max(monotonic() - began, process_time() - used)
        self._of, self._next_at = of, monotonic() + REST * cost
        return self.diagnosis

    def view(self) -> View:
        """What there is to be seen now."""
        lately = Lately([self.pieces, *self.minutes.values()])
        newest = lately.newest_us
        now = time()
        dated = newest is not None and newest >= EPOCH_US
        problems = [
            tr("{path}: not read yet: {why}", path=taken.path, why=taken.problem.what)
            for taken in self.taken.values()
            if taken.problem is not None
        ]
        made = self._made_at
        return View(
            now=now,
            paths=tuple(self.paths),
            files=sum(not one.ended for one in self.follower.generations),
            read=sum(one.read for one in self.counts.values()),
            used=sum(one.used for one in self.counts.values()),
            age_s=now - newest / 1e6 if newest is not None and dated else None,
            lately=lately.lately(),
            before=lately.before(),
            drawn=tuple(lately.drawn()),
            diagnosis=self.diagnosis,
            old_s=None if made is None else monotonic() - made,
            next_s=None if made is None else max(self._next_at - monotonic(), 0.0),
            remarks=(*self.follower.remarks, *problems),
        )

    # --- reading

    def _taken(self, one: Generation) -> Taken:
        if one.number not in self.taken:
            self.taken[one.number] = Taken(one.path, self.format, self.options)
            self.counts[one.number] = Counts()
        return self.taken[one.number]

    def _measure(self, but: int) -> float | None:
        """By which measure text was cut in the logs before this one."""
        found = None
        for number, taken in self.taken.items():
            if number >= but:
                break
            whole = taken.rows or taken.log
            if whole is not None and whole.bytes_per_token is not None:
                found = whole.bytes_per_token
        return found

    def _refresh(self, changed: set[int], *, every: bool, now: list[Taken] | None = None) -> None:
        """Read anew what is read so, and was not for long enough."""
        for one in self.follower.generations:
            taken = self.taken.get(one.number)
            if taken is None:
                continue
            asked = every or taken in (now or ()) or monotonic() >= self._due.get(one.number, 0.0)
            if not asked or not taken.refresh(self._measure(one.number)):
                continue
            rest = REST if taken.spread else REST_OF_BEGINNING
            # The first time loads what is needed for it.
            first = one.number not in self._due
            self._due[one.number] = 0.0 if first else monotonic() + rest * taken.cost
            self._recount(one.number, taken)
            if taken.problem is None:
                self._records.pop(one.number, None)
                changed.add(one.number)
                if taken.rows is None and self.store is not None:
                    self._records[one.number] = self._record(one, taken)

    def _count(self, number: int, frame: pl.DataFrame) -> None:
        """Count rows that a reader made of a piece."""
        rows, counts = self.taken[number].rows, self.counts[number]
        if frame.width:
            good = _good(frame)
            self.pieces.add(good)
            counts.used += good.height
            counts.made += frame.height
        if rows is not None:
            counts.read = counts.made + rows.rejects.total()

    def _recount(self, number: int, taken: Taken) -> None:
        """Count all rows of a log that was read anew."""
        self.counts[number] = Counts()
        self.minutes.pop(number, None)
        if taken.rows is not None:
            for block in taken.rows.blocks:
                self._count(number, block.frame)
        elif (log := taken.whole()) is not None:
            minutes = self.minutes[number] = Minutes()
            minutes.add(log.requests)
            self.counts[number].used = sum(one.rows_used for one in log.inputs)
            self.counts[number].read = sum(one.rows_read for one in log.inputs)

    def _complain(self) -> None:
        """Say why nothing can be read, once enough is there that it could be."""
        takens = list(self.taken.values())
        if any(one.rows is not None or one.log is not None for one in takens):
            return
        for taken in takens:
            enough = len(taken.raw) >= SETTLED_BYTES or taken.raw.count(b"\n") >= HEAD_RECORDS
            if taken.problem is not None and enough:
                raise taken.problem

    # --- the state

    def _asked(self) -> dict[str, Any]:
        """All that decides what rows come to."""
        mapping = self.options.mapping
        return {
            "LOG": [os.path.abspath(path) for path in self.paths],
            "--format": self.format,
            "--map": dict(self.options.columns),
            "--unit": dict(self.options.units),
            "--mapping": None if mapping is None else repr(mapping),
            "--timezone": self.options.timezone,
            "--lang": spoken(),
        }

    def _resume(self, one: Generation, record: Mapping[str, Any]) -> None:
        assert self.store is not None
        number = one.number
        reading = record["reading"]
        self._records[number] = dict(record)
        if reading["kind"] == "none":
            taken = Taken(one.path, self.format, self.options)
        else:
            head = None if one.file is None else os.pread(one.file, SETTLED_BYTES, 0)
            names = record["parts"]
            frames = [(part, self.store.frame(name)) for part, name in names.items()]
            if reading["kind"] == "rows":
                frames = [(names[part], frame) for part, frame in frames]
            taken = resumed(one.path, self.format, self.options, reading, frames, head)
        self.taken[number] = taken
        if taken.rows is None and not one.ended:
            self.follower.again(one)
        self._recount(number, taken)
        self._bytes += one.offset
        if one.ended and taken.rows is not None:
            taken.finish()

    def _record(self, one: Generation, taken: Taken) -> dict[str, Any]:
        """A generation as the state has it; its new rows are written."""
        assert self.store is not None
        parts: dict[str, str] = {}
        reading, frames = record_of(taken)
        for name, frame in frames.items():
            parts[name] = self.store.write(frame)
        if taken.rows is not None:
            parts = self._parts(taken.rows)
        generation = one.record()
        if reading["kind"] == "none" and not one.ended:
            generation = self.follower.unread(one)
        return {"generation": generation, "reading": reading, "parts": parts}

    def _parts(self, rows: Rows) -> dict[str, str]:
        assert self.store is not None
        for block in rows.blocks:
            if block.file is None:
                block.file = self.store.write(block.frame)
        return {str(at): block.file or "" for at, block in enumerate(rows.blocks)}

    def _commit(self, changed: set[int]) -> None:
        assert self.store is not None
        told = []
        for one in self.follower.generations:
            taken = self._taken(one)
            if taken.rows is not None and (
                one.number in changed or one.number not in self._records
            ):
                taken.rows.compact()
                self._records[one.number] = self._record(one, taken)
            elif one.number not in self._records:
                self._records[one.number] = self._record(one, taken)
            self._records[one.number]["generation"]["ended"] = one.ended
            told.append(self._records[one.number])
        self.store.commit(told)


def _good(frame: pl.DataFrame) -> pl.DataFrame:
    return check(conform(frame)).filter(pl.col(REJECT).is_null())


def run(
    watch: Watch,
    show: Callable[[View], None],
    diagnosed: Callable[[Diagnosis], None],
    *,
    interval: float,
    seconds: float | None,
    stopped: Event,
) -> Diagnosis | None:
    """Watch until it is ``stopped`` or so many ``seconds`` are over; the diagnosis of all of it.

    ``show`` is called once an interval, and ``diagnosed`` with each diagnosis.
    """
    until = None if seconds is None else monotonic() + seconds
    costs = [0.0]
    read_at = 0.0
    while True:
        began, used = monotonic(), process_time()
        # The lesser of two: the first time loads what is needed.
        if began >= read_at + min(REST * min(costs[-2:]), MOST_INTERVALS * interval):
            read_at = began
            watch.step()
            costs.append(process_time() - used)
        if watch.due() and not stopped.is_set():
            if watch.diagnosis is None:
                show(watch.view())  # the first one loads what is needed for it
            with suppress(InputError):  # it is shown why
                found = watch.diagnose()
                if found is not None:
                    diagnosed(found)
        show(watch.view())
        waits = max(began + interval - monotonic(), 0.0)
        if until is not None:
            waits = min(waits, until - monotonic())
        if stopped.wait(max(waits, 0.0)) or (until is not None and monotonic() >= until):
            break
    watch.step(last=True)
    if watch.changed:
        found = watch.diagnose()
        if found is not None:
            diagnosed(found)
    return watch.diagnosis
