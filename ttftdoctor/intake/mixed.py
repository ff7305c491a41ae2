"""A file that holds more than one log: taken apart, so that each reader gets the lines it claims.

Lines may be wrapped (containers, the journal, syslog: :mod:`ttftdoctor.sources.wrappings`), come
from several writers at once, or be of several formats: text between JSON records, or JSON records
of two shapes. Such a file is read through once and its lines are laid into files of their own, one
for each writer and reader, which are then read as any other log. Memory stays bounded; the numbers
of lines stay those of the file. A file that is one log of one format, as nearly all are, is handed
on as it is.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from ttftdoctor import catalog
from ttftdoctor.errors import InputError
from ttftdoctor.readers import Reader
from ttftdoctor.sources import MAX_LINE_BYTES, Head, Lines, Pile, Shape, Source, parse_block
from ttftdoctor.sources.wrappings import Wrapping, replica_of_path
from ttftdoctor.table import LINE

#: Writers told apart in one file; the lines of more are laid together.
MOST_WRITERS = 200
#: Wrappings around one another.
DEEPEST = 4
#: Records that have fewer than this share of their fields in common with those of a reader may
#: be another's.
ALIKE = 0.5
#: Fields by which the records of two readers are told apart, at most.
MOST_FIELDS = 400
#: Lines behind the head that are looked at: the first of each kind, and every so many.
FEW_ALIKE, EVERY = 4, 16
#: How many of the rejected lines are shown.
FIRST = 10

#: Which fields of a record hold something.
Signature = frozenset[str]


class Rejects:
    """Lines that no part has: how many for which reason, and the first of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: list[tuple[int, str]] = []

    def add(self, numbers: Sequence[int], reason: str) -> None:
        """Count lines with these numbers; a reason without a line stays out."""
        if numbers:
            self.counts[reason] += len(numbers)
            self.first = sorted([*self.first, *((n, reason) for n in numbers[:FIRST])])[:FIRST]


@dataclass(frozen=True)
class Part:
    """Lines of one file that one reader reads.

    ``lines`` gives for each line of ``source`` (from 1) that of the file; None where they are the
    same. ``replica`` is the writer's name.
    """

    source: Source
    reader: Reader
    evidence: str
    lines: Lines | None = None
    replica: str | None = None

    def place(self, line: pl.Series) -> pl.Series:
        """The lines of the file for lines of this part."""
        if self.lines is None or not len(self.lines):
            return line
        at = np.clip(line.to_numpy() - 1, 0, len(self.lines) - 1)
        return pl.Series(line.name, np.asarray(self.lines[at]), dtype=pl.Int64)


@dataclass(frozen=True)
class Parts:
    """All that a file was taken apart into."""

    parts: list[Part]
    rejects: Rejects = field(default_factory=Rejects)
    notes: tuple[str, ...] = ()


def _in_file(number: int, outer: Lines | None) -> int:
    return number if outer is None else int(outer[min(number, len(outer)) - 1])


@contextlib.contextmanager
def parts_of(source: Source, name: str | None) -> Iterator[Parts]:
    """The parts of an opened log, each with its reader; ``name`` is that of a format to be used.

    Raises
    ------
    UnknownFormat
        If no reader claims any of it, or several claim the same records.
    UsageError
        If there is no format of that name.
    """
    with contextlib.ExitStack() as stack:
        yield _parts(source, name, None, replica_of_path(source.path), stack, 0)


def _parts(
    source: Source,
    name: str | None,
    lines: Lines | None,
    replica: str | None,
    stack: contextlib.ExitStack,
    depth: int,
) -> Parts:
    if source.wrapping is not None and depth < DEEPEST:
        return _unwrapped(source, source.wrapping, name, lines, replica, stack, depth)
    if name is not None:
        reader = catalog.reader_named(name)
        return Parts([Part(source, reader, "named with --format", lines, replica)])
    mix = _mix_of(source)
    if mix is not None:
        return _sorted_out(source, mix, lines, replica, stack)
    reader, evidence = catalog.reader_for(source.head)
    return Parts([Part(source, reader, evidence, lines, replica)])


# ---------------------------------------------------------------------------- wrapped lines


def _unwrapped(
    source: Source,
    wrapping: Wrapping,
    name: str | None,
    lines: Lines | None,
    replica: str | None,
    stack: contextlib.ExitStack,
    depth: int,
) -> Parts:
    """One pile for each writer; each is looked at again, for it may be wrapped or mixed itself."""
    rejects = Rejects()
    piles: dict[str | None, Pile] = {}
    for laid in _taken_off(source, wrapping, lines, rejects):
        for (origin,), some in laid.group_by("origin", maintain_order=True):
            key = str(origin) if origin is not None else None
            if key not in piles and len(piles) >= MOST_WRITERS:
                key = None
            if key not in piles:
                named = some["replica"].drop_nulls()
                piles[key] = Pile(
                    str(named[0]) if len(named) and key is not None else replica, stack
                )
            piles[key].add(some["text"], some[LINE])
    found: list[Part] = []
    notes = {f"{source.path}: {wrapping.name}: what is in them was read": None}
    problems: list[tuple[int, InputError, Pile, Source | None]] = []
    for pile in piles.values():
        inner: Source | None = None
        try:
            opened = Source(source.path, given=pile.opened(), table=name == "flat")
            inner = stack.enter_context(contextlib.closing(opened))
            some_parts = _parts(inner, name, pile.lines(lines), pile.replica, stack, depth + 1)
        except InputError as error:
            problems.append((pile.count, error, pile, inner))
            continue
        found += some_parts.parts
        notes.update(dict.fromkeys(some_parts.notes))
        for reason, count in some_parts.rejects.counts.items():
            rejects.counts[reason] += count
        rejects.first = sorted([*rejects.first, *some_parts.rejects.first])[:FIRST]
    if not found:
        if problems:
            raise max(problems, key=lambda one: one[0])[1]
        raise InputError("no line holds anything", where=source.path, why=wrapping.name)
    for _, _, pile, inner in problems:
        # Text of a program beside the engine is no request; a record that no reader knows is told.
        if inner is not None and inner.head.shape is Shape.JSON:
            numbers = pile.lines(lines)
            rejects.add([int(n) for n in numbers[:FIRST]], "no_reader_knows_it")
            rejects.counts["no_reader_knows_it"] += max(len(numbers) - FIRST, 0)
    return Parts(found, rejects, tuple(notes))


def _taken_off(
    source: Source, wrapping: Wrapping, outer: Lines | None, rejects: Rejects
) -> Iterator[pl.DataFrame]:
    """Blocks of what was wrapped: ``line``, ``text``, ``origin``, ``replica``; none is empty."""
    waiting: pl.DataFrame | None = None
    for data, number, _, bad in source.blocks():
        for at, reason in bad:
            rejects.add([_in_file(at, outer)], reason)
        texts = pl.Series("line_text", data.decode("utf-8", "replace").split("\n"))
        frame = pl.DataFrame({LINE: np.arange(number, number + len(texts)), "whole": texts})
        whole = pl.col("whole").str.strip_chars_end("\r")
        frame = frame.with_columns(whole).filter(pl.col("whole").str.strip_chars() != "")
        # Lazily, so that what several columns share is worked out once.
        frame = (
            frame.lazy()
            .with_columns(e.alias(n) for n, e in wrapping.take_off(pl.col("whole")).items())
            .collect()
        )
        if wrapping.strict:
            broken = frame.filter(pl.col("text").is_null())[LINE]
            if len(broken):
                rejects.add([_in_file(n, outer) for n in broken[:FIRST]], "broken_wrapping")
                rejects.counts["broken_wrapping"] += max(len(broken) - FIRST, 0)
            frame = frame.filter(pl.col("text").is_not_null())
        else:
            # A line without the prefix is one as it is: the second of a trace, or of a shell.
            frame = frame.with_columns(pl.coalesce("text", "whole").alias("text"))
        frame = frame.drop("whole")
        if waiting is not None:
            frame = pl.concat([waiting, frame])
        frame, waiting = _put_together(frame)
        if waiting is not None and waiting["text"].str.len_bytes().sum() > MAX_LINE_BYTES:
            firsts = waiting.group_by("origin", "stream").agg(pl.col(LINE).min())[LINE]
            rejects.add([_in_file(n, outer) for n in firsts.sort()], "line_too_long")
            waiting = None
        yield from _of_lines(frame)
    if waiting is not None:  # the log ends in the middle of a line
        yield from _of_lines(_joined(waiting, pl.lit(0)))


def _put_together(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Pieces of one line in one row, and those whose end is still to come."""
    if not frame["piece"].any():
        return frame, None
    ends = (~pl.col("piece")).cast(pl.Int64)
    key = ("origin", "stream")
    frame = frame.with_columns((ends.cum_sum() - ends).over(key).alias("nth")).with_columns(
        pl.col("piece").all().over(*key, "nth").alias("open")
    )
    open_ones = frame.filter("open").drop("nth", "open")
    done = _joined(frame.filter(~pl.col("open")).drop("open"), pl.col("nth"))
    return done, open_ones if open_ones.height else None


def _joined(frame: pl.DataFrame, nth: pl.Expr) -> pl.DataFrame:
    """One row for the pieces of each line, in the order in which the lines begin."""
    return (
        frame.with_columns(nth.alias("nth"))
        .group_by("origin", "stream", "nth", maintain_order=True)
        .agg(
            pl.col(LINE).first(), pl.col("text").str.join(""), pl.col("replica").first(),
            pl.lit(False).alias("piece"),
        )
        .drop("nth")
        .sort(LINE, maintain_order=True)
        .select(LINE, "text", "origin", "replica", "stream", "piece")
    )  # fmt: skip


def _of_lines(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Rows of one line each, without empty ones; nothing where there is none."""
    frame = frame.select(LINE, "text", "origin", "replica")
    if frame["text"].str.contains("\n", literal=True).any():
        frame = frame.with_columns(pl.col("text").str.split("\n")).explode("text")
    frame = frame.filter(pl.col("text").str.strip_chars() != "")
    if frame.height:
        yield frame


# ---------------------------------------------------------------------------- several formats


@dataclass(frozen=True)
class _Mix:
    """Whose the lines of a file are: readers of its text, and of its records by their fields."""

    text: tuple[tuple[Reader, str], ...]
    records: tuple[tuple[Reader, str], ...]
    of: Mapping[Signature, int]  # to a place in ``records``


def _signature(record: Mapping[str, Any]) -> Signature:
    return frozenset(name for name, value in record.items() if value is not None)


def _objects(lines: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines that are JSON objects, and those that do not even begin as one."""
    records: list[dict[str, Any]] = []
    texts: list[str] = []
    for line in lines:
        if line.lstrip()[:1] not in ("{", "["):
            texts.append(line)
            continue
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                records.append(value)
    return records, texts


def _thin(lines: Sequence[str]) -> Iterator[str]:
    """Some of the lines: all of the first ones that begin with another field, and every few."""
    seen: Counter[str] = Counter()
    for at, line in enumerate(lines):
        begin = line[: line.find('"', 3)] if line[:1] == "{" else line[:12]
        seen[begin] += 1
        if seen[begin] <= FEW_ALIKE or at % EVERY == 0:
            yield line


def _claims(path: str, records: Sequence[Mapping[str, Any]]) -> list[tuple[Reader, str]]:
    names = dict.fromkeys(name for record in records for name in record)
    return catalog.claimants(Head(path, Shape.JSON, tuple(names), tuple(records)))


def _mix_of(source: Source) -> _Mix | None:
    """How the lines of a file divide among readers; None where one reader has them all."""
    head = source.head
    if head.shape not in (Shape.JSON, Shape.TEXT) or source.is_document:
        return None
    more = list(_thin(source.elsewhere()))
    records, texts = _objects([*head.lines, *more])
    claimed = catalog.claimants(head)
    of: dict[Signature, int] = {}
    readers: list[tuple[Reader, str]] = []
    if records:
        readers, of = _by_fields(source.path, records, claimed if head.shape is Shape.JSON else [])
    said = {reader.name: (reader, why) for reader, why in claimed if head.shape is Shape.TEXT}
    # Text between records, or behind other text, is another log only where a reader says so.
    behind = texts if head.shape is Shape.JSON else _objects(more)[1]
    if behind:
        for claim in catalog.claimants(Head(source.path, Shape.TEXT, lines=tuple(behind))):
            said.setdefault(claim[0].name, claim)
    found = len(said) + len(readers)
    if found == 0 or (found == 1 and claimed):
        return None
    return _Mix(tuple(said.values()), tuple(readers), of)


def _by_fields(
    path: str, records: Sequence[Mapping[str, Any]], claimed: Sequence[tuple[Reader, str]]
) -> tuple[list[tuple[Reader, str]], dict[Signature, int]]:
    """The readers of some records, and whose each signature is.

    A log's own reader has all records that are alike to its own, whoever else would take them one
    by one.
    """
    kinds: dict[Signature, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(_signature(record), []).append(record)
    claims: dict[Signature, list[tuple[Reader, str]]] = {}
    if len(claimed) == 1:
        ((own, why),) = claimed
        strange = _strangers(kinds, own, path)
        if not strange:
            return [(own, why)], {}
        claims = {kind: [(own, why)] for kind in kinds}
        claims |= {kind: found for kind, found in strange.items() if len(found) == 1}
    else:
        claims = {kind: _claims(path, some) for kind, some in kinds.items()}
    readers: dict[str, tuple[Reader, str]] = {}
    places: dict[str, int] = {}
    of: dict[Signature, int] = {}
    for kind, found in claims.items():
        if len(found) != 1:
            continue
        reader = found[0][0]
        readers.setdefault(reader.name, found[0])
        of[kind] = places.setdefault(reader.name, len(places))
    return list(readers.values()), of


def _strangers(
    kinds: Mapping[Signature, Sequence[Mapping[str, Any]]], own: Reader, path: str
) -> dict[Signature, list[tuple[Reader, str]]]:
    """Signatures with little in common with those that the log's reader claims, and who does."""
    if len(kinds) == 1:
        return {}
    fields = [kind for kind in kinds if kind]
    if all(len(kind & fields[0]) >= ALIKE * len(kind) for kind in fields):
        return {}
    mine: list[Signature] = []
    others: list[Signature] = []
    for kind in fields:
        near = any(len(kind & known) >= ALIKE * len(kind) for known in mine)
        if near or any(reader is own for reader, _ in _claims(path, kinds[kind])):
            mine.append(kind)
        else:
            others.append(kind)
    found = {}
    for kind in others:
        if not any(len(kind & known) >= ALIKE * len(kind) for known in mine):
            claims = _claims(path, kinds[kind])
            if claims:
                found[kind] = claims
    return found


def _sorted_out(
    source: Source, mix: _Mix, lines: Lines | None, replica: str | None, stack: contextlib.ExitStack
) -> Parts:
    """One pile for each reader: all text to readers of text, to each of the others its records."""
    rejects = Rejects()
    texts = [Pile(replica, stack) for _ in mix.text]
    piles = [Pile(replica, stack) for _ in mix.records]
    sorter = _Sorter(mix)
    for data, number, _, bad in source.blocks():
        for at, reason in bad:
            rejects.add([_in_file(at, lines)], reason)
        whole = pl.Series("text", data.decode("utf-8", "replace").split("\n"))
        frame = pl.DataFrame({LINE: np.arange(number, number + len(whole)), "text": whole})
        frame = frame.with_columns(pl.col("text").str.strip_chars_end("\r"))
        begin = pl.col("text").str.strip_chars_start().str.slice(0, 1)
        frame = frame.filter(begin != "")
        record = frame.select(begin == "{").to_series()
        other = frame.filter(~record)
        for pile in texts if other.height else ():
            pile.add(other["text"], other[LINE])
        if other.height and not texts:
            rejects.add([_in_file(n, lines) for n in other[LINE][:FIRST]], "not_json")
            rejects.counts["not_json"] += max(other.height - FIRST, 0)
        some = frame.filter(record)
        if not piles or not some.height:
            continue
        whose = sorter.whose(some)
        for place, pile in enumerate(piles):
            its = some.filter(whose == place)
            if its.height:
                pile.add(its["text"], its[LINE])
    found: list[Part] = []
    claims = (*mix.text, *mix.records)
    for at, (pile, (reader, why)) in enumerate(zip((*texts, *piles), claims, strict=True)):
        if pile.count:
            inner = Source(source.path, given=pile.opened(), lines=at < len(texts))
            stack.enter_context(contextlib.closing(inner))
            found.append(Part(inner, reader, why, pile.lines(lines), pile.replica))
    names = ", ".join(dict.fromkeys(part.reader.name for part in found))
    note = f"{source.path}: holds logs of several formats ({names}); each was read as what it is"
    return Parts(found, rejects, (note,) if len(found) > 1 else ())


class _Sorter:
    """Says of records whose they are, by which of the known fields they fill."""

    def __init__(self, mix: _Mix) -> None:
        every = Counter(name for kind in mix.of for name in kind)
        telling = [name for name, n in every.items() if n < len(mix.of)] or list(every)
        self._names = telling[:MOST_FIELDS]
        self._readers = len(mix.records)
        self._known = [(kind & set(self._names), place) for kind, place in mix.of.items()]
        self._found: dict[str, int] = {}

    def whose(self, frame: pl.DataFrame) -> pl.Series:
        """For rows of ``line`` and ``text`` (JSON records) the place of the reader."""
        if self._readers == 1:
            return pl.Series("whose", np.zeros(frame.height, np.int64))
        data = "\n".join(frame["text"].to_list()).encode()
        schema = dict.fromkeys(self._names, pl.String)
        parsed, _ = parse_block(data, 1, frame.height, (schema,))
        marks = pl.concat_str(
            pl.when(pl.col(name).is_not_null()).then(pl.lit("1")).otherwise(pl.lit("0"))
            for name in self._names
        )
        told = parsed.select(LINE, marks.alias("marks"))
        kinds = told["marks"].unique()
        places = pl.Series([self._nearest(kind) for kind in kinds], dtype=pl.Int64)
        told = told.with_columns(
            pl.col("marks").replace_strict(kinds, places, return_dtype=pl.Int64).alias("whose")
        )
        rows = pl.DataFrame({LINE: np.arange(1, frame.height + 1)})
        joined = rows.join(told, on=LINE, how="left", maintain_order="left")
        # What is no JSON goes to the first reader, which says so.
        return joined["whose"].fill_null(0)

    def _nearest(self, marks: str) -> int:
        if marks not in self._found:
            kind = {name for name, mark in zip(self._names, marks, strict=True) if mark == "1"}
            near = [
                (len(kind & known) / max(len(kind | known), 1), -place)
                for known, place in self._known
            ]
            self._found[marks] = -max(near)[1]
        return self._found[marks]
