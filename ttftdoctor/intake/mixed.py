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
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from ttftdoctor import catalog
from ttftdoctor.errors import InputError
from ttftdoctor.language import tr
from ttftdoctor.readers import Options, Reader
from ttftdoctor.sources import (
    HEAD_RECORDS,
    MAX_LINE_BYTES,
    Head,
    Shape,
    Source,
    parse_block,
    plain_text,
)
from ttftdoctor.sources.piles import Pile, Spool, together
from ttftdoctor.sources.wrappings import Wrapping, replica_of_path, wrapping_of
from ttftdoctor.table import LINE
from ttftdoctor.units import count

#: Writers told apart in one file; the lines of more are laid together.
MOST_WRITERS = 20_000
#: So many are read one by one, each as a log of its own; of more, those whose lines are alike are
#: read together. Those that cannot be are read one by one up to the most.
FEW_WRITERS, MOST_ALONE = 16, 200
#: What is looked at of each of many writers to see whose lines are alike.
FEW_LINES, PEEK_BYTES = 20, 2**16
#: By what the pieces of one line are told.
STREAM = ("writer", "origin", "stream")
#: Why lines of a writer that none of our readers knows are not used.
UNKNOWN = "no_reader_knows_it"
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

    def add(self, numbers: Sequence[int], reason: str, count: int | None = None) -> None:
        """Count lines with these numbers; ``count`` of them, where only the first are named.

        A reason without a line stays out.
        """
        if numbers:
            self.counts[reason] += len(numbers) if count is None else count
            self.first = sorted([*self.first, *((n, reason) for n in numbers[:FIRST])])[:FIRST]

    def take(self, other: Rejects) -> None:
        """Count those of another as well."""
        self.counts.update(other.counts)
        self.first = sorted([*self.first, *other.first])[:FIRST]


@dataclass(frozen=True)
class Part:
    """Lines of one file that one reader reads.

    ``pile`` knows for each line of ``source`` that of the file and its writer; None where the
    lines are those of the file, all of the first writer. ``writers`` are their names.
    """

    source: Source
    reader: Reader
    evidence: str
    writers: Sequence[str | None]
    pile: Pile | None = None

    def place(self, line: pl.Series) -> pl.Series:
        """The lines of the file for lines of this part."""
        if self.pile is None:
            return line
        numbers, _ = self.pile.rows_at(line.to_numpy())
        return pl.Series(line.name, numbers, dtype=pl.Int64)

    def replica(self, line: pl.Series) -> pl.Series:
        """Who wrote these lines of this part; null where that is not known."""
        if self.pile is None:
            return pl.Series("replica", [self.writers[0]], dtype=pl.String).new_from_index(
                0, len(line)
            )
        _, whose = self.pile.rows_at(line.to_numpy())
        kinds, at = np.unique(whose, return_inverse=True)
        names = pl.Series("replica", [self.writers[one] for one in kinds], dtype=pl.String)
        return names.gather(at)


@dataclass(frozen=True)
class Parts:
    """All that a file was taken apart into."""

    parts: list[Part]
    rejects: Rejects = field(default_factory=Rejects)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class _Work:
    """What is common to all levels of one file: where lines are laid, who wrote them."""

    def __init__(self, path: str, name: str | None, stack: contextlib.ExitStack) -> None:
        self.name = name
        self.stack = stack
        #: The first is whoever wrote the file.
        self.writers: list[str | None] = [replica_of_path(path)]
        self._numbers: dict[tuple[int, str], int] = {}
        self._spool: Spool | None = None

    @property
    def spool(self) -> Spool:
        if self._spool is None:
            self._spool = self.stack.enter_context(contextlib.closing(Spool()))
        return self._spool

    def number(self, outer: int, origin: str | None, replica: str | None) -> int:
        """The number of a writer within another; that of the other where none is told."""
        if origin is None:
            return outer
        key = (outer, origin)
        if key not in self._numbers:
            if len(self.writers) >= MOST_WRITERS:
                return outer
            self._numbers[key] = len(self.writers)
            self.writers.append(self.writers[outer] if replica is None else replica)
        return self._numbers[key]

    def opened(self, path: str, pile: Pile, *, lines: bool = False) -> Source:
        """A pile as a log of its own."""
        source = Source(path, given=pile.opened(), table=self.name == "flat", lines=lines)
        return self.stack.enter_context(contextlib.closing(source))


def _in_file(number: int, outer: Pile | None) -> int:
    return number if outer is None else int(outer.rows(number - 1, 1)[0][0])


def _told(source: Source, lines: int) -> tuple[str, ...]:
    """What is to be said of a log that was taken apart, beside what is said of its parts."""
    warnings = [f"{source.path}: {text}" for text in source.warnings]
    if source.damage is not None:
        warnings.append(
            tr(
                "{path}: the packed file is damaged after line {line} ({why}); what came before "
                "was read",
                path=source.path,
                line=count(lines),
                why=source.damage,
            )
        )
    return tuple(warnings)


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
        yield _parts(source, None, _Work(source.path, name, stack), 0)


def _parts(source: Source, pile: Pile | None, work: _Work, depth: int) -> Parts:
    if source.wrapping is not None and depth < DEEPEST:
        if not _is_record(source, source.wrapping, work.name):
            return _unwrapped(source, source.wrapping, pile, work, depth)
        source.as_it_is()
    if work.name is not None:
        reader = catalog.reader_named(work.name)
        return Parts([Part(source, reader, "named with --format", work.writers, pile)])
    mix = _mix_of(source)
    if mix is not None:
        return _sorted_out(source, mix, pile, work)
    reader, evidence = catalog.reader_for(source.head)
    return Parts([Part(source, reader, evidence, work.writers, pile)])


# ---------------------------------------------------------------------------- wrapped lines


def _is_record(source: Source, wrapping: Wrapping, name: str | None) -> bool:
    """Whether lines that look wrapped are records, to which a shipper has added its fields.

    Then a reader claims what stands beside these, and the text inside is no log.
    """
    if not wrapping.members:
        return False
    lines = list(source.head.lines[:HEAD_RECORDS])
    records, _ = _objects(lines)
    beside = [own for own in map(wrapping.beside, records) if own]
    if not beside or len(beside) < ALIKE * len(records):
        return False
    text = pl.Series("whole", lines).to_frame().select(wrapping.take_off(pl.col("whole"))["text"])
    inside = [line for line in text.to_series().drop_nulls() if line.strip()]
    within, _ = _objects(inside)
    if inside and len(within) >= ALIKE * len(inside):
        return False
    if name is not None:
        reader = catalog.reader_named(name)
        keys = tuple(dict.fromkeys(key for own in beside for key in own))
        head = Head(source.path, Shape.JSON, keys, tuple(beside))
        return reader.generic or reader.recognise(head) is not None
    if catalog.claimants(Head(source.path, Shape.TEXT, lines=tuple(inside))):
        return False
    return bool(_claims(source.path, beside))


def _unwrapped(
    source: Source, wrapping: Wrapping, outer: Pile | None, work: _Work, depth: int
) -> Parts:
    """One pile for each writer; each is looked at again, for it may be wrapped or mixed itself."""
    rejects = Rejects()
    piles: dict[int, Pile] = {}
    seen = [0]
    for laid in _taken_off(source, wrapping, outer, work, rejects, seen):
        for number, pile in work.spool.lay(laid, laid["writer"].to_numpy()):
            if number in piles:
                piles[number].add(pile)
            else:
                piles[number] = pile
    found: list[Part] = []
    said = tr(
        "{path}: {wrapping}: what is in them was read", path=source.path, wrapping=tr(wrapping.name)
    )
    notes = {said: None}
    warnings = dict.fromkeys(_told(source, seen[0]))
    problems: list[tuple[Pile, InputError]] = []
    queue = _grouped(source.path, piles)
    while queue:
        group = queue.pop(0)
        pile = together(group)
        try:
            inner = work.opened(source.path, pile)
            some = _parts(inner, pile, work, depth + 1)
        except InputError as error:
            problems.append((pile, error))
            continue
        if len(group) > 1 and inner.wrapping is None and not _line_by_line(some):
            # What is said in several lines is said by one writer.
            queue = _alone(group) + queue
            continue
        found += some.parts
        notes.update(dict.fromkeys(some.notes))
        warnings.update(dict.fromkeys(some.warnings))
        rejects.take(some.rejects)
    if not found:
        if problems:
            raise max(problems, key=lambda one: one[0].count)[1]
        raise InputError("no line holds anything", where=source.path, why=wrapping.name)
    for pile, _ in problems:
        rejects.add(pile.rows(0, min(pile.count, FIRST))[0].tolist(), UNKNOWN, pile.count)
    return Parts(found, rejects, tuple(notes), tuple(warnings))


def _alone(piles: list[Pile]) -> list[list[Pile]]:
    """Each pile by itself; those beyond the most together, as one that is not divided again."""
    alone = [[pile] for pile in piles[:MOST_ALONE]]
    rest = piles[MOST_ALONE:]
    return [*alone, [together(rest)]] if rest else alone


def _grouped(path: str, piles: Mapping[int, Pile]) -> list[list[Pile]]:
    """Piles that are read together: of many writers, those whose lines are alike.

    Few are read one by one, so that each is understood by itself. Of many the cost must be that
    of their lines: those that are wrapped alike, and those of records with which the same readers
    begin, are one log whose lines keep their writers.
    """
    if len(piles) <= FEW_WRITERS:
        return [[pile] for pile in piles.values()]
    kinds: dict[Any, list[Pile]] = {}
    claims: dict[frozenset[str], Any] = {}
    for number, pile in piles.items():
        text = plain_text(pile.begin(PEEK_BYTES).decode("utf-8", "replace"))
        lines = [line for line in text.split("\n") if line.strip()][:FEW_LINES]
        wrapping = wrapping_of(lines)
        records, _ = _objects(lines)
        kind: Any = number
        if wrapping is not None:
            kind = wrapping.name
        elif len(records) > ALIKE * len(lines):
            names = frozenset(name for record in records for name in record)
            if names not in claims:
                readers = [reader for reader, _ in _claims(path, records)]
                known = tuple(reader.name for reader in readers)
                # What a flat log means is told by the names that it has.
                generic = any(reader.generic for reader in readers)
                claims[names] = (known, names if generic else None)
            kind = claims[names]
        kinds.setdefault(kind, []).append(pile)
    # Text last, and the shortest of it: that of programs beside the engines.
    order = sorted(
        kinds, key=lambda kind: -piles[kind].count if isinstance(kind, int) else -math.inf
    )
    groups = [kinds[kind] for kind in order]
    rest = [pile for group in groups[MOST_ALONE:] for pile in group]
    return [*groups[:MOST_ALONE], [together(rest)]] if rest else groups


def _line_by_line(parts: Parts) -> bool:
    """Whether each line says all of a request, so that it is the same beside those of others."""
    for part in parts.parts:
        if part.source.head.shape is not Shape.JSON or part.source.is_document:
            return False
        # A question about it is asked when it is read.
        with contextlib.suppress(InputError):
            if part.reader.plan(part.source.head, Options()).whole:
                return False
    return True


def _taken_off(
    source: Source,
    wrapping: Wrapping,
    outer: Pile | None,
    work: _Work,
    rejects: Rejects,
    seen: list[int],
) -> Iterator[pl.DataFrame]:
    """Blocks of what was wrapped: ``line`` (of the file), ``text``, ``writer``; none is empty.

    ``seen`` is told how many lines there were.
    """
    waiting: pl.DataFrame | None = None
    for data, number, size, bad in source.blocks():
        seen[0] = number + size - 1
        for at, reason in bad:
            rejects.add([_in_file(at, outer)], reason)
        frame = _lines(data, number, outer)
        # Lazily, so that what several columns share is worked out once.
        frame = (
            frame.lazy()
            .with_columns(e.alias(n) for n, e in wrapping.take_off(pl.col("whole")).items())
            .collect()
        )
        if wrapping.strict:
            broken = frame.filter(pl.col("text").is_null())[LINE]
            rejects.add(broken[:FIRST].to_list(), "broken_wrapping", len(broken))
            frame = frame.filter(pl.col("text").is_not_null())
        else:
            # A line without the prefix is one as it is: the second of a trace, or of a shell.
            frame = frame.with_columns(pl.coalesce("text", "whole").alias("text"))
        frame = frame.drop("whole")
        if waiting is not None:
            frame = pl.concat([waiting, frame])
        frame, waiting = _put_together(frame)
        if waiting is not None and waiting["text"].str.len_bytes().sum() > MAX_LINE_BYTES:
            firsts = waiting.group_by(STREAM).agg(pl.col(LINE).min())[LINE]
            rejects.add(firsts.sort().to_list(), "line_too_long")
            waiting = None
        yield from _of_lines(frame, work)
    if waiting is not None:  # the log ends in the middle of a line
        yield from _of_lines(_joined(waiting, pl.lit(0)), work)


def _lines(data: bytes, number: int, outer: Pile | None) -> pl.DataFrame:
    """The lines of a block that hold anything: ``line`` (of the file), ``writer``, ``whole``."""
    texts = pl.Series("whole", data.decode("utf-8", "replace").split("\n"))
    if outer is None:
        numbers = np.arange(number, number + len(texts))
        writers = np.zeros(len(texts), np.int64)
    else:
        numbers, writers = outer.rows(number - 1, len(texts))
    frame = pl.DataFrame({LINE: numbers, "writer": writers, "whole": texts})
    whole = pl.col("whole").str.strip_chars_end("\r")
    return frame.with_columns(whole).filter(pl.col("whole").str.strip_chars() != "")


def _put_together(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Pieces of one line in one row, and those whose end is still to come."""
    if not frame["piece"].any():
        return frame, None
    ends = (~pl.col("piece")).cast(pl.Int64)
    frame = frame.with_columns((ends.cum_sum() - ends).over(STREAM).alias("nth")).with_columns(
        pl.col("piece").all().over(*STREAM, "nth").alias("open")
    )
    open_ones = frame.filter("open").drop("nth", "open")
    done = _joined(frame.filter(~pl.col("open")).drop("open"), pl.col("nth"))
    return done, open_ones if open_ones.height else None


def _joined(frame: pl.DataFrame, nth: pl.Expr) -> pl.DataFrame:
    """One row for the pieces of each line, in the order in which the lines begin."""
    return (
        frame.with_columns(nth.alias("nth"))
        .group_by(*STREAM, "nth", maintain_order=True)
        .agg(
            pl.col(LINE).first(), pl.col("text").str.join(""), pl.col("replica").first(),
            pl.lit(False).alias("piece"),
        )
        .drop("nth")
        .sort(LINE, maintain_order=True)
        .select(LINE, "writer", "text", "origin", "replica", "stream", "piece")
    )  # fmt: skip


def _of_lines(frame: pl.DataFrame, work: _Work) -> Iterator[pl.DataFrame]:
    """Rows of one line each with its writer, without empty ones; nothing where there is none."""
    if frame["origin"].null_count() < frame.height:
        told = frame.group_by("writer", "origin", maintain_order=True).agg(
            pl.col("replica").drop_nulls().first()
        )
        numbers = [work.number(*row) for row in told.iter_rows()]
        told = told.select("writer", "origin", pl.Series("own", numbers, dtype=pl.Int64))
        frame = frame.join(
            told, on=["writer", "origin"], how="left", nulls_equal=True, maintain_order="left"
        ).with_columns(pl.col("own").alias("writer"))
    frame = frame.select(LINE, "text", "writer")
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


def _sorted_out(source: Source, mix: _Mix, outer: Pile | None, work: _Work) -> Parts:
    """One pile for each reader: all text to readers of text, to each of the others its records."""
    rejects = Rejects()
    spool = work.spool
    text = Pile(spool)
    piles = [Pile(spool) for _ in mix.records]
    sorter = _Sorter(mix)
    lines = 0
    for data, number, size, bad in source.blocks():
        lines = number + size - 1
        for at, reason in bad:
            rejects.add([_in_file(at, outer)], reason)
        frame = _lines(data, number, outer).rename({"whole": "text"})
        record = frame.select(pl.col("text").str.strip_chars_start().str.starts_with("{"))
        other = frame.filter(~record.to_series())
        if mix.text:
            for _, pile in spool.lay(other, np.zeros(other.height, np.int64)):
                text.add(pile)
        else:
            rejects.add(other[LINE][:FIRST].to_list(), "not_json", other.height)
        some = frame.filter(record.to_series())
        if piles and some.height:
            for place, pile in spool.lay(some, sorter.whose(some).to_numpy()):
                piles[place].add(pile)
    found: list[Part] = []
    claims = (*mix.text, *mix.records)
    several = (*(text for _ in mix.text), *piles)
    for at, (pile, (reader, why)) in enumerate(zip(several, claims, strict=True)):
        if pile.count:
            inner = work.opened(source.path, pile, lines=at < len(mix.text))
            found.append(Part(inner, reader, why, work.writers, pile))
    names = tr(", ").join(dict.fromkeys(part.reader.name for part in found))
    note = tr(
        "{path}: holds logs of several formats ({formats}); each was read as what it is",
        path=source.path, formats=names,
    )  # fmt: skip
    return Parts(found, rejects, (note,) if len(found) > 1 else (), _told(source, lines))


class _Sorter:
    """Says of records whose they are, by which of the known fields they fill."""

    def __init__(self, mix: _Mix) -> None:
        every = Counter(name for kind in mix.of for name in kind if name != LINE)
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
