"""From paths to one request table, with every row accounted for."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import polars as pl

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Input
from ttftdoctor.errors import InputError
from ttftdoctor.readers import Options, Raw
from ttftdoctor.sources import Source, ahead, expand
from ttftdoctor.table import DOUBTS, LINE, REJECT, SET_ASIDE, UNREAD, Field, check, conform

#: How many rejects are shown with their line.
FIRST_REJECTS = 10

#: Rows that failed or were refused by the service: no requests to measure, but worth counting.
FAILED = ("failed_request", "aborted_request", "rate_limited")


@dataclass(frozen=True)
class Log:
    """What was read: usable rows, failed rows, and where each column came from.

    ``requests`` has the canonical columns plus ``line``, ``source`` (index into ``inputs``),
    ``ttft_set_aside`` and ``ttft_logged_us`` (the TTFT as logged, even where it must not be used).
    ``prompts`` has ``line``, ``source`` and ``parts`` where ``Options.text`` asked for them and
    the log has text. ``bytes_per_token`` is the measure by which text was cut into blocks.
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


def read_log(
    paths: list[str],
    *,
    format: str | None = None,
    options: Options | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Log:
    """Read every path into one request table.

    Parameters
    ----------
    paths
        Files, globs, folders, or ``-``.
    format
        Name of a reader; by default the log is recognised from its first records.
    progress
        Called with the path and the rows read so far.

    Raises
    ------
    InputError
        If a file cannot be read or nothing in it is a request.
    """
    options = options or Options()
    files, repeated = _once(expand(paths))
    frames: list[pl.DataFrame] = []
    failed: list[pl.DataFrame] = []
    inputs: list[Input] = []
    fields: dict[str, Field] = {}
    recognised: list[str] = []
    lacks: dict[str, None] = {}
    notes: dict[str, None] = {}
    warnings: dict[str, None] = {
        f"{path}: given more than once; it is read once": None for path in repeated
    }
    prompts: list[pl.DataFrame] = []
    problems: list[InputError] = []
    for path in files:
        try:
            one = _read_one(path, format, options, len(inputs), progress)
        except InputError as error:
            # In a folder or glob, one foreign file must not hide the logs beside it.
            if len(files) == 1:
                raise
            problems.append(error)
            warnings[f"skipped {path}: {error.what}"] = None
            continue
        if one.bytes_per_token is not None:
            # Text is cut alike in all files, or equal prompts would not be seen to be equal.
            options = replace(options, bytes_per_token=one.bytes_per_token)
        if one.prompts is not None:
            prompts.append(one.prompts)
        frames.append(one.requests)
        failed.append(one.failed)
        inputs.extend(one.inputs)
        for name, found in one.fields.items():
            fields.setdefault(name, found)
        recognised.extend(one.recognised)
        lacks.update(dict.fromkeys(one.lacks))
        notes.update(dict.fromkeys(one.notes))
        warnings.update(dict.fromkeys(one.warnings))
    if not frames:
        raise problems[0] if problems else InputError("there is nothing to read")
    return Log(
        requests=_stack(frames),
        failed=_stack(failed),
        inputs=tuple(inputs),
        fields=fields,
        recognised=tuple(recognised),
        lacks=tuple(lacks),
        notes=tuple(notes),
        warnings=tuple(warnings),
        prompts=pl.concat(prompts) if prompts else None,
        bytes_per_token=options.bytes_per_token,
    )


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
    index: int,
    progress: Callable[[str, int], None] | None,
) -> Log:
    table = format == "flat" or bool(options.columns)
    with closing(Source(path, table=table)) as source:
        return _read_source(source, format, options, index, progress)


def _read_source(
    source: Source,
    format: str | None,
    options: Options,
    index: int,
    progress: Callable[[str, int], None] | None,
) -> Log:
    path = source.path
    # Columns named by the user: whatever it is, it is read by them.
    named = "flat" if format is None and options.columns else format
    if named is None:
        reader, evidence = catalog.reader_for(source.head)
    else:
        reader, evidence = catalog.reader_named(named), "named with --format"
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
    rejected: dict[str, int] = {}
    aside: dict[str, int] = {}
    first: list[tuple[int, str]] = []
    fields: dict[str, Field] = {}
    notes: dict[str, None] = {}
    prompts: list[pl.DataFrame] = []
    bytes_per_token: float | None = None
    rows = 0
    doubts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    for chunk in ahead(
        source.chunks(plan.schema, whole=plan.whole, unwrap=plan.unwrap, numbers=plan.numbers)
    ):
        batch = plan.convert(Raw(chunk.frame, options))
        fields.update({k: v for k, v in batch.fields.items() if k not in fields})
        notes.update(dict.fromkeys(batch.notes))
        bytes_per_token = batch.bytes_per_token or bytes_per_token
        if batch.prompts is not None:
            prompts.append(batch.prompts.with_columns(_source(index)))
        frame = check(conform(batch.frame))
        rows += frame.height + len(chunk.rejects)
        for line, reason in chunk.rejects:
            rejected[reason] = rejected.get(reason, 0) + 1
            first.append((line, reason))
        bad = _known(frame, REJECT)
        for reason, n in bad.group_by(REJECT).len().iter_rows():
            rejected[reason] = rejected.get(reason, 0) + n
        first.extend(bad.select(LINE, REJECT).head(FIRST_REJECTS).iter_rows())
        failed.append(_tag(bad.filter(pl.col(REJECT).is_in(FAILED)), index))
        for labels, n in _known(frame, UNREAD).group_by(UNREAD).len().iter_rows():
            unread.update(dict.fromkeys(labels.split("\n"), n))
        good = frame.filter(pl.col(REJECT).is_null()) if bad.height else frame
        doubts.update({name: int(good[name].sum()) for name in DOUBTS})
        for reason, n in _known(good, SET_ASIDE).group_by(SET_ASIDE).len().iter_rows():
            aside[reason] = aside.get(reason, 0) + n
        frames.append(_tag(good, index))
        if progress is not None:
            progress(path, rows)
    if rows == 0:
        raise InputError(
            "no request was found in the log",
            where=path,
            why=f"it was read as {reader.name} ({evidence})",
            help=reader.lacks or "name another format with --format",
        )
    used = sum(f.height for f in frames)
    warnings = []
    if source.damage is not None:
        warnings.append(
            f"{path}: the packed file is damaged after row {rows} ({source.damage}); what came "
            "before was read"
        )
    warnings += [f"{path}: {text}" for text in source.warnings]
    warnings += [
        f"{path}: {doubts[name]:,} rows {text}" for name, text in DOUBTS.items() if doubts[name]
    ]
    columns = {found.source: name for name, found in fields.items()}
    for label, n in unread.most_common():
        column = f"{columns[label]}: " if label in columns else ""
        warnings.append(f"{path}: {column}{n:,} values of `{label}` could not be read")
    wrong = {reason.partition(":")[2] for reason in rejected if reason.startswith("wrong_type:")}
    for label in sorted(wrong | set(unread)):
        texts = [record.get(label) for record in source.head.records]
        comma = [t for t in texts if isinstance(t, str) and re.fullmatch(r"\s*\d+,\d+\s*", t)]
        if comma:
            warnings.append(
                f"{path}: `{label}` has decimal commas ({comma[0].strip()}); write them as points"
            )
    if rows > used and used == 0:
        reasons = ", ".join(f"{n} {r}" for r, n in sorted(rejected.items()))
        warnings.append(f"{path}: no row could be used ({reasons})")
    record = Input(
        path=path,
        format=reader.name,
        rows_read=rows,
        rows_used=used,
        rows_rejected=dict(sorted(rejected.items())),
        first_rejects=tuple(sorted(first)[:FIRST_REJECTS]),
        ttft_set_aside=dict(sorted(aside.items())),
    )
    return Log(
        requests=_stack(frames),
        failed=_stack(failed),
        inputs=(record,),
        fields=fields,
        recognised=(f"{path}: {reader.name} ({evidence})",),
        lacks=(reader.lacks,) if reader.lacks else (),
        notes=(*notes, *(f"{path}: {text}" for text in source.notes)),
        warnings=tuple(warnings),
        prompts=pl.concat(prompts) if prompts else None,
        bytes_per_token=bytes_per_token,
    )


def _known(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows that have a value in the column; often none, which costs nothing to see."""
    if frame[column].null_count() == frame.height:
        return frame.clear()
    return frame.filter(pl.col(column).is_not_null())


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


def _tag(frame: pl.DataFrame, index: int) -> pl.DataFrame:
    return frame.drop(UNREAD, *DOUBTS).with_columns(_source(index))


def _source(index: int) -> pl.Expr:
    return pl.lit(index, dtype=pl.Int32).alias("source")
