"""From paths to one request table, with every row accounted for."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import AskUser, InputError, TTFTDoctorError, UnknownFormat, UsageError
from ttftdoctor.guide import (
    Beside,
    clock_warnings,
    for_part,
    for_path,
    format_of,
    in_manner,
    is_table,
    together,
    zone_notes,
)
from ttftdoctor.intake import kept
from ttftdoctor.intake.account import FIRST_REJECTS, Account, known, source_of, tagged
from ttftdoctor.intake.layers import Once, once
from ttftdoctor.intake.mixed import Part, Parts, parts_of
from ttftdoctor.language import tr
from ttftdoctor.mapping.proposal import propose, unused_fields
from ttftdoctor.readers import Options, Plan
from ttftdoctor.sources import Shape, Source, ahead, expand
from ttftdoctor.sources.addresses import is_database, shown
from ttftdoctor.table import DOUBTS, LINE, REJECT, SET_ASIDE, Field, check, conform
from ttftdoctor.units import count

if TYPE_CHECKING:
    from ttftdoctor.extracts.spool import Spool

#: Of rows that are counted elsewhere, which are nothing to be mended.
FIRST_ELSEWHERE = 3


def _writer() -> Field:
    """Where a replica comes from that no record names."""
    return Field(
        tr("around the lines"), "", tr("the container, pod or host that wrote them"), "derived"
    )


#: What is said of a log in sentences.
_SAID = ("recognised", "lacks", "notes", "warnings")


@dataclass(frozen=True)
class Log:
    """What was read: usable rows, failed rows, and where each column came from.

    ``requests`` has the canonical columns plus ``line``, ``source`` (index into ``inputs``),
    ``ttft_set_aside`` and ``ttft_logged_us`` (the TTFT as logged, even where it must not be used).
    ``prompts`` has ``line``, ``source`` and ``parts`` where ``Options.text`` asked for them and
    the log has text. ``bytes_per_token`` is the measure by which text was cut into blocks.
    ``linked``: the sessions are not named by the log, but were found before rows were left out.
    """

    requests: pl.DataFrame
    failed: pl.DataFrame
    inputs: tuple[Input, ...]
    fields: Mapping[str, Field]
    recognised: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    prompts: pl.DataFrame | None = None
    bytes_per_token: float | None = None
    beside: Beside = field(default_factory=Beside)
    linked: bool = False


def read_log(
    paths: list[str],
    *,
    format: str | None = None,
    options: Options | None = None,
    progress: Callable[[str, int], None] | None = None,
    spool: Spool | None = None,
) -> Log:
    """Read every path into one request table.

    Parameters
    ----------
    paths
        Files, globs, folders, addresses, or ``-``.
    format
        Name of a reader; by default the log is recognised from its first records.
    progress
        Called with the path and the rows read so far.
    spool
        Takes all rows once they are more than it says can be held; the log has none then.

    Raises
    ------
    InputError
        If a file cannot be read or nothing in it is a request.
    """
    options = in_manner(options or Options())
    if options.query is not None and not any(is_database(path) for path in paths):
        raise UsageError("--query asks a database, and no LOG is the address of one")
    reading = Reading(paths)
    for path in reading.files:
        if spool is not None:
            spool.before = sum(len(log.inputs) for log in reading.logs)
        try:
            one = _read_one(path, format, options, progress, spool)
        except InputError as error:
            reading.refuse(path, error)
            continue
        if one.bytes_per_token is not None:
            # Text is cut alike in all files, or equal prompts would not be seen to be equal.
            options = replace(options, bytes_per_token=one.bytes_per_token)
        reading.take(one)
        if spool is not None and spool.spilling:
            reading.logs = _spilled(reading.logs, spool)
    return reading.log()


class Reading:
    """The files that are meant by paths, and the logs that were read of them, in their order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.files, repeated = _once(expand(list(paths)))
        self.logs: list[Log] = []
        self._problems: list[InputError] = []
        self._warnings: dict[str, None] = {
            tr("{path}: given more than once; it is read once", path=shown(path)): None
            for path in repeated
        }

    def take(self, log: Log) -> None:
        """Take in the log of the next file."""
        self._warnings.update(dict.fromkeys(log.warnings))
        self.logs.append(log)

    def refuse(self, path: str, error: InputError) -> None:
        """Tell of a file that cannot be read: among others it must not hide these.

        Raises
        ------
        InputError
            The error, where there is no other file.
        """
        # What was read of the file is held by the error's traceback, and must not be any longer.
        if len(self.files) == 1:
            try:
                raise error
            finally:
                del error
        self._problems.append(error.with_traceback(None))
        self._warnings[tr("skipped {path}: {why}", path=shown(path), why=error.what)] = None

    def log(self) -> Log:
        """All of them as one log.

        Raises
        ------
        InputError
            If there is none.
        """
        if not self.logs:
            raise self._problems[0] if self._problems else InputError("there is nothing to read")
        return joined(self.logs, tuple(self._warnings))


def _spilled(logs: Sequence[Log], spool: Spool) -> list[Log]:
    """The logs without their rows, which are put where there is room for them."""
    before = 0
    for log in logs:
        spool.put(log.requests, before)
        spool.put(log.failed, before)
        before += len(log.inputs)
    return [replace(log, requests=log.requests.clear(), failed=log.failed.clear()) for log in logs]


def keep(log: Log, path: str, pieces: Iterable[pl.DataFrame] | None = None) -> None:
    """Keep a log that was read in a file, which is read like any log, and at once.

    ``pieces`` are its rows, where it has none itself since they are more than can be held.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    said = {name: getattr(log, name) for name in _SAID}
    kept.write(
        kept.Kept(
            log.requests, log.failed, log.inputs, log.fields, said, log.bytes_per_token,
            log.linked, log.beside.unused, log.beside.doubts, log.beside.rows,
        ),
        path,
        pieces,
    )  # fmt: skip


def _again(path: str, spool: Spool | None) -> Log:
    """A log that was kept."""
    one = kept.read(path) if spool is None else _spooled(path, spool)
    recognised, lacks, notes, warnings = (one.said[name] for name in _SAID)
    beside = Beside(one.unused, None, one.doubts, one.rows)
    return Log(
        one.requests, one.failed, one.inputs, one.fields, recognised, lacks, notes, warnings, None,
        one.bytes_per_token, beside, one.linked,
    )  # fmt: skip


def _spooled(path: str, spool: Spool) -> kept.Kept:
    """A log that was kept; its rows go to the spool, if they are more than can be held."""
    one, pieces = kept.opened(path)
    used = pl.col(REJECT).is_null()
    taken = requests, failed = [one.requests], [one.failed]
    try:
        for piece in pieces:
            requests.append(piece.filter(used))
            failed.append(piece.filter(~used))
            if spool.full(requests[-1]):
                for some in taken:
                    while len(some) > 1:
                        spool.put(some.pop(1))
    except InputError as error:
        if not spool.spilling:
            raise
        # It cannot be skipped: the spool has rows of it.
        raise TTFTDoctorError(
            error.what, where=error.where, why=error.why, help=error.help
        ) from None
    return replace(one, requests=pl.concat(requests), failed=pl.concat(failed))


def joined(logs: Sequence[Log], warnings: Sequence[str] = ()) -> Log:
    """One log of several that were read by themselves, each request counted once.

    ``warnings`` come before those of the logs.
    """
    inputs: list[Input] = []
    fields: dict[str, Field] = {}
    placed: list[Log] = []
    for log in logs:
        placed.append(_behind(log, len(inputs)))
        inputs.extend(log.inputs)
        for name, found in log.fields.items():
            fields.setdefault(name, found)
    prompts = [log.prompts for log in placed if log.prompts is not None]
    whose = [i.path for i in inputs], [i.format for i in inputs]
    counted = once(_stack([log.requests for log in placed]), *whose)
    broken = _stack([log.failed for log in placed])
    lost = once(broken, *whose, again=False)
    if counted.left_out.height:
        inputs = [_without(record, at, counted) for at, record in enumerate(inputs)]
        prompts = [_whose(pl.concat(prompts), counted)] if prompts else []
    if lost.left_out.height:
        inputs = [_failed_once(record, at, broken, lost) for at, record in enumerate(inputs)]
    measures = [log.bytes_per_token for log in logs if log.bytes_per_token is not None]
    return Log(
        requests=counted.requests,
        failed=lost.requests,
        inputs=tuple(inputs),
        fields=fields,
        recognised=tuple(text for log in logs for text in log.recognised),
        lacks=tuple(dict.fromkeys(text for log in logs for text in log.lacks)),
        notes=tuple(dict.fromkeys((*(t for log in logs for t in log.notes), *counted.notes))),
        warnings=tuple(dict.fromkeys((*warnings, *(t for log in logs for t in log.warnings)))),
        prompts=pl.concat(prompts) if prompts else None,
        bytes_per_token=measures[-1] if measures else None,
        beside=together(log.beside for log in placed),
        linked=any(log.linked for log in logs),
    )


def _behind(log: Log, before: int) -> Log:
    """The log with the places of its rows in a list of inputs that has so many before its own."""
    if not before:
        return log
    moved = (pl.col("source") + before).cast(log.requests.schema["source"])
    doubts = {
        name: (n, tuple((source + before, line) for source, line in places))
        for name, (n, places) in log.beside.doubts.items()
    }
    return replace(
        log,
        requests=log.requests.with_columns(moved),
        failed=log.failed.with_columns(moved),
        prompts=None if log.prompts is None else log.prompts.with_columns(moved),
        beside=replace(log.beside, doubts=doubts),
    )


def _without(record: Input, at: int, found: Once) -> Input:
    """The record of an input less the rows that are counted elsewhere."""
    gone = found.left_out.filter(pl.col("source") == at)
    if not gone.height:
        return record
    rejected = Counter(record.rows_rejected)
    for reason, n in gone.group_by("reason").len().iter_rows():
        rejected[reason] += n
    few = gone.sort(LINE).select(LINE, "reason").head(FIRST_ELSEWHERE)
    told = [*record.first_rejects, *few.rows()]
    left = found.requests.filter(pl.col("source") == at)
    aside = known(left, SET_ASIDE).group_by(SET_ASIDE).len().sort(SET_ASIDE)
    return replace(
        record,
        rows_used=record.rows_used - gone.height,
        rows_rejected=dict(sorted(rejected.items())),
        first_rejects=tuple(sorted(told)[:FIRST_REJECTS]),
        ttft_set_aside=dict(aside.iter_rows()),
    )


def _failed_once(record: Input, at: int, failed: pl.DataFrame, found: Once) -> Input:
    """The record of an input of whose failed rows some are told by another layer as well."""
    gone = found.left_out.filter(pl.col("source") == at)
    if not gone.height:
        return record
    before = failed.filter(pl.col("source") == at).join(gone.select(LINE), on=LINE, how="semi")
    rejected = Counter(record.rows_rejected)
    rejected.subtract(before[REJECT].to_list())
    for reason, n in gone.group_by("reason").len().iter_rows():
        rejected[reason] += n
    now = dict(gone.select(LINE, "reason").iter_rows())
    return replace(
        record,
        rows_rejected={reason: n for reason, n in sorted(rejected.items()) if n},
        first_rejects=tuple((n, now.get(n, why)) for n, why in record.first_rejects),
    )


def _whose(prompts: pl.DataFrame, found: Once) -> pl.DataFrame:
    """The prompts, each at the row that its request is counted as; one a request."""
    places = ["source", LINE]
    moved = prompts.join(
        found.moved, on=places, how="left", maintain_order="left"
    ).with_columns(
        pl.col("to_source").is_not_null().alias("lent"),
        pl.coalesce("to_source", "source").alias("source"),
        pl.coalesce("to_line", LINE).alias(LINE),
    )  # fmt: skip
    own = pl.col("lent").any().over(places) & pl.col("lent").not_().any().over(places)
    kept = moved.filter(~(own & pl.col("lent")))
    first = kept.filter(~pl.col("lent") | pl.struct(places).is_first_distinct())
    return first.select(prompts.columns)


def _once(files: list[str]) -> tuple[list[str], list[str]]:
    """The files without those met before under any name, and the latter."""
    seen: set[tuple[int, int] | str] = set()
    kept: list[str] = []
    repeated: list[str] = []
    for path in files:
        try:
            status = os.stat(path) if path != "-" else None
        except OSError:
            status = None  # told when it is opened
        key = path if status is None or not status.st_ino else (status.st_dev, status.st_ino)
        (repeated if key in seen else kept).append(path)
        seen.add(key)
    return kept, repeated


def _read_one(
    path: str,
    format: str | None,
    options: Options,
    progress: Callable[[str, int], None] | None,
    spool: Spool | None,
) -> Log:
    if kept.is_kept(path):
        return _again(path, spool)
    options = for_path(path, format, options)
    table = is_table(format, options)
    with closing(Source(path, table=table, query=options.query)) as source:
        try:
            with parts_of(source, format_of(source.head, format, options)) as found:
                return read_parts(found, options, progress, spool)
        except (UnknownFormat, AskUser) as error:
            error.proposal = error.proposal or propose(source.head)
            raise


def read_parts(
    found: Parts,
    options: Options,
    progress: Callable[[str, int], None] | None,
    spool: Spool | None = None,
) -> Log:
    """All that one file holds: one input a format."""
    logs: list[Log] = []
    inputs: dict[str, Input] = {}
    problems: list[InputError] = []
    seen = 0
    for part in found.parts:
        name = part.reader.name
        at = list(inputs).index(name) if name in inputs else len(inputs)
        before = seen

        def told(path: str, rows: int, before: int = before) -> None:
            if progress is not None:
                progress(path, before + rows)

        try:
            one = read_part(part, options, at, told, spool)
        except InputError as error:
            # One writer that served nothing must not hide the others.
            if len(found.parts) == 1:
                raise
            problems.append(error)
            continue
        if one.bytes_per_token is not None:
            options = replace(options, bytes_per_token=one.bytes_per_token)
        logs.append(one)
        (record,) = one.inputs
        seen += record.rows_read
        inputs[name] = _added(inputs[name], record) if name in inputs else record
    if not logs:
        raise problems[0]
    _no_line_twice(found, logs)
    if len(logs) == 1 and not (found.rejects.counts or found.notes or found.warnings):
        return logs[0]
    if found.rejects.counts:
        first = next(iter(inputs))
        refused = Input(
            path=inputs[first].path,
            format=first,
            rows_read=found.rejects.counts.total(),
            rows_used=0,
            rows_rejected=dict(found.rejects.counts),
            first_rejects=tuple(found.rejects.first),
        )
        inputs[first] = _added(inputs[first], refused)
    fields: dict[str, Field] = {}
    for one in logs:
        for column, field_ in one.fields.items():
            fields.setdefault(column, field_)
    prompts = [one.prompts for one in logs if one.prompts is not None]
    return Log(
        requests=_stack([one.requests for one in logs]),
        failed=_stack([one.failed for one in logs]),
        inputs=tuple(inputs.values()),
        fields=fields,
        recognised=tuple(dict.fromkeys(text for one in logs for text in one.recognised)),
        lacks=tuple(dict.fromkeys(text for one in logs for text in one.lacks)),
        notes=tuple(dict.fromkeys((*found.notes, *(t for one in logs for t in one.notes)))),
        warnings=tuple(
            dict.fromkeys((*found.warnings, *(t for one in logs for t in one.warnings)))
        ),
        prompts=pl.concat(prompts) if prompts else None,
        bytes_per_token=options.bytes_per_token,
        beside=together(one.beside for one in logs),
    )


def _no_line_twice(found: Parts, logs: list[Log]) -> None:
    """Readers of one text must not take the same lines for requests: then which is right?"""
    texts = {part.reader.name for part in found.parts if part.source.head.shape is Shape.TEXT}
    told = [log for log in logs if log.inputs[0].format in texts]
    if len(texts) < 2 or len(told) < 2:
        return
    lines = pl.concat(
        [one.requests.select(LINE, pl.lit(one.inputs[0].format).alias("format")) for one in told]
    )
    both = lines.filter(pl.col("format").n_unique().over(LINE) > 1)
    if both.height:
        raise UnknownFormat(
            "several formats claim the same lines of this log",
            where=told[0].inputs[0].path,
            why=f"line {both[LINE].sort()[0]}",
            available=", ".join(sorted(texts)),
            help="say which with --format",
        )


def _added(one: Input, other: Input) -> Input:
    """Two parts of a file in one record."""

    def both(name: str) -> dict[str, int]:
        sums = Counter(getattr(one, name)) + Counter(getattr(other, name))
        return dict(sorted(sums.items()))

    return replace(
        one,
        rows_read=one.rows_read + other.rows_read,
        rows_used=one.rows_used + other.rows_used,
        rows_rejected=both("rows_rejected"),
        first_rejects=tuple(sorted([*one.first_rejects, *other.first_rejects])[:FIRST_REJECTS]),
        ttft_set_aside=both("ttft_set_aside"),
    )


def read_part(
    part: Part,
    options: Options,
    index: int,
    progress: Callable[[str, int], None] | None,
    spool: Spool | None = None,
) -> Log:
    """What one reader reads of a file; ``index`` is the place of its input in the file's list."""
    source, reader = part.source, part.reader
    options, evidence = for_part(reader, source.head, part.evidence, options)
    path = source.path
    if source.head.shape not in reader.shapes:
        shapes = " or ".join(shape.value for shape in reader.shapes)
        raise InputError(
            f"{reader.name} is read from {shapes}",
            where=path,
            why=f"this is {source.head.shape.value}",
            help="leave --format out, or name another one",
        )
    plan = reader.plan(source.head, options)
    frames: list[pl.DataFrame] = []
    failed: list[pl.DataFrame] = []
    prompts: list[pl.DataFrame] = []
    account = Account()
    chunks = source.chunks(plan.schema, whole=plan.whole, unwrap=plan.unwrap, numbers=plan.numbers)
    for chunk in ahead(chunks):
        if spool is not None and plan.whole and chunk.frame.estimated_size() > spool.budget.held:
            source.warnings.append(
                tr(
                    "{format} tells of a request in several records: each file of it was held as "
                    "a whole, whatever --memory says",
                    format=reader.name,
                )
            )
        found = account.take(chunk, plan, options, part)
        frames.append(tagged(found.good, index))
        failed.append(tagged(found.failed, index))
        if found.prompts is not None:
            prompts.append(found.prompts.with_columns(source_of(index)))
        if spool is not None and spool.full(frames[-1]):
            none = frames[-1].clear()
            for taken in (frames, failed):
                while taken:  # one after the other, so that none is held for long
                    spool.put(taken.pop(0))
                taken.append(none)
        if progress is not None:
            progress(path, account.rows)
    return log_of(
        account, part, plan, options, evidence, index, _stack(frames or [_none()]),
        _stack(failed or [_none()]), pl.concat(prompts) if prompts else None,
    )  # fmt: skip


def _none() -> pl.DataFrame:
    """Rows of a log, of which there are none."""
    return tagged(check(conform(pl.DataFrame(schema={LINE: pl.Int64}))), 0)


def log_of(
    account: Account,
    part: Part,
    plan: Plan,
    options: Options,
    evidence: str,
    index: int,
    requests: pl.DataFrame,
    failed: pl.DataFrame,
    prompts: pl.DataFrame | None = None,
) -> Log:
    """What was read of one input as a log, with all that is to be said of it.

    Raises
    ------
    InputError
        If it has no row.
    """
    source, reader, path = part.source, part.reader, part.source.path
    rows, used = account.rows, account.used
    rejected, doubts, unread = account.rejected, account.doubts, account.unread
    fields = account.fields
    if rows == 0:
        raise InputError(
            "no request was found in the log",
            where=path,
            why=f"it was read as {reader.name} ({evidence})",
            help=reader.lacks or "name another format with --format",
        )
    if any(part.writers) and account.placed:
        fields.setdefault("replica", _writer())
    warnings = []
    if source.damage is not None:
        warnings.append(
            tr(
                "{path}: the packed file is damaged after row {row} ({why}); what came before was "
                "read",
                path=path,
                row=rows,
                why=source.damage,
            )
        )
    warnings += [f"{path}: {text}" for text in (*source.warnings, *clock_warnings(options))]
    warnings += [
        tr("{path}: {n} rows {doubt}", path=path, n=count(doubts[name]), doubt=tr(text))
        for name, text in DOUBTS.items()
        if doubts[name]
    ]
    columns = {found.source: name for name, found in fields.items()}
    for label, n in sorted(unread.items(), key=lambda item: (-item[1], item[0])):
        where = f"{path}: {columns[label]}" if label in columns else path
        warnings.append(
            tr(
                "{where}: {n} values of `{field}` could not be read",
                where=where, n=count(n), field=label,
            )
        )  # fmt: skip
    wrong = {reason.partition(":")[2] for reason in rejected if reason.startswith("wrong_type:")}
    for label in sorted(wrong | set(unread)):
        texts = [record.get(label) for record in source.head.records]
        comma = [t for t in texts if isinstance(t, str) and re.fullmatch(r"\s*\d+,\d+\s*", t)]
        if comma:
            warnings.append(
                tr(
                    "{path}: `{field}` has decimal commas ({example}); write them as points",
                    path=path,
                    field=label,
                    example=comma[0].strip(),
                )
            )
    if rows > used and used == 0:
        reasons = tr(", ").join(f"{n} {r}" for r, n in sorted(rejected.items()))
        warnings.append(tr("{path}: no row could be used ({reasons})", path=path, reasons=reasons))
    unused = unused_fields(source.head, plan, [found.source for found in fields.values()])
    record = Input(
        path=path,
        format=reader.name,
        rows_read=rows,
        rows_used=used,
        rows_rejected=dict(sorted(rejected.items())),
        first_rejects=tuple(account.first),
        ttft_set_aside=dict(sorted(account.aside.items())),
    )
    return Log(
        requests=requests,
        failed=failed,
        inputs=(record,),
        fields=fields,
        recognised=(
            tr(
                "{path}: {format} ({evidence})",
                path=path,
                format=reader.name,
                evidence=evidence,
            ),
        ),
        lacks=(reader.lacks,) if reader.lacks else (),
        notes=(
            *account.notes,
            *(f"{path}: {text}" for text in (*source.notes, *zone_notes(options))),
        ),
        warnings=tuple(warnings),
        prompts=prompts,
        bytes_per_token=account.bytes_per_token,
        beside=Beside(
            unused,
            source.head if reader.generic else None,
            {
                name: (doubts[name], tuple((index, line) for line in lines))
                for name, lines in account.doubtful.items()
            },
            used,
        ),
    )


def _stack(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Put frames of the same columns on top of each other; what is null in all is not copied."""
    frames = [frame for frame in frames if frame.height] or frames[:1]
    if len(frames) == 1:
        return frames[0]
    empty = [
        name for name in frames[0].columns if all(f[name].null_count() == f.height for f in frames)
    ]
    stacked = pl.concat([frame.drop(empty) for frame in frames])
    nothing = (pl.lit(None, dtype=frames[0].schema[name]).alias(name) for name in empty)
    return stacked.with_columns(*nothing).select(frames[0].columns)
