"""Prompts as numbers: distinct parts, chains of parts, and where two texts begin to differ.

The same part (a system prompt, a message) stands in thousands of requests. It is told apart by a
hash once; everything after works on numbers, and only distinct texts are ever looked into.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Hash = NDArray[np.uint64]
Mask = NDArray[np.bool_]

TOOLS, SYSTEM, MESSAGES = 0, 1, 2
SECTIONS = ("tools", "system", "messages")
#: Bytes a token stands for, where no request logs its tokens.
BYTES_PER_TOKEN = 4.0
#: The first comparison of two texts; each later one is twice as long.
FIRST_STRIDE = 64
#: What changes by itself, coarsely: enough to see that two texts are of one template. A word with
#: a digit in it (dates, clocks, ids, numbers) and the names of days and months.
_DAYS = (
    r"(?i)\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b|\b[ap]m\b"
)
_DIGITS = r"[\w+/=:.\-]*[0-9][\w+/=:.\-]*"
#: Several of them in a row: a date in words is more than one.
CHANGING = rf"(?:{_DIGITS}|{_DAYS})(?:[\s,]+(?:{_DIGITS}|{_DAYS}))*"


@dataclass(frozen=True)
class Book:
    """All parts of all prompts, flat: prompt r has the parts ``offset[r]:offset[r + 1]``.

    ``part`` numbers the distinct texts; ``section`` is TOOLS, SYSTEM or MESSAGES, and never falls
    within a prompt (what stands after a message is part of the conversation). ``head`` counts the
    parts before the first message. A row without parts has none: ``offset`` stands still.
    """

    n: int
    offset: Index
    part: Index
    section: Index
    texts: pl.Series
    part_bytes: Index
    part_hash: Hash
    head: Index

    @cached_property
    def counts(self) -> Index:
        """Parts of each prompt, (n,)."""
        out: Index = np.diff(self.offset)
        return out

    @cached_property
    def row(self) -> Index:
        """The row of each flat part."""
        return np.repeat(np.arange(self.n), self.counts)

    @cached_property
    def place(self) -> Index:
        """The 0-based place of each flat part in its prompt."""
        return np.arange(len(self.part)) - np.repeat(self.offset[:-1], self.counts)

    @cached_property
    def messages(self) -> Index:
        """Messages of each prompt, (n,)."""
        return self.counts - self.head

    @cached_property
    def ends(self) -> Index:
        """Bytes before each boundary: ``ends[offset[r] + r + k]`` stand before part k of row r."""
        total = np.concatenate(([0], np.cumsum(self.part_bytes[self.part])))
        places = np.arange(self.offset[-1] + self.n) - np.repeat(np.arange(self.n), self.counts + 1)
        out: Index = total[places] - np.repeat(total[self.offset[:-1]], self.counts + 1)
        return out

    def bytes_before(self, rows: Index, place: Index) -> Index:
        """Bytes of the prompt before its part ``place`` (all of them, if it has no such part)."""
        stop = np.minimum(place, self.counts[rows])
        out: Index = self.ends[self.offset[rows] + rows + stop]
        return out

    def size(self, rows: Index) -> Index:
        """Bytes of whole prompts."""
        return self.bytes_before(rows, self.counts[rows])

    def at(self, rows: Index, place: Index) -> Index:
        """The distinct part at a place, -1 where the prompt has none there."""
        inside = (place >= 0) & (place < self.counts[rows])
        flat = np.where(inside, self.offset[rows] + place, 0)
        out: Index = np.where(inside, self.part[flat] if len(self.part) else -1, -1)
        return out

    def chain(self, hashes: Hash, start: Index) -> Hash:
        """One hash for each flat part that stands for all parts from ``start`` of its prompt on.

        Sums of hashes that know their place: equal for equal beginnings, and by chance else
        (2 ** -64 a pair).
        """
        place = (self.place - np.repeat(start, self.counts)).astype(np.uint64)
        with np.errstate(over="ignore"):
            mixed = mix(hashes[self.part] ^ mix(place + np.uint64(1)))
            mixed = np.where(self.place >= np.repeat(start, self.counts), mixed, np.uint64(0))
            total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
            out: Hash = total[1:] - np.repeat(total[self.offset[:-1]], self.counts)
        return out

    def section_at(self, rows: Index, place: Index) -> Index:
        """The section of a place; past the end it is that of the messages."""
        if not len(self.part):
            return np.full(len(rows), MESSAGES, dtype=np.int64)
        flat = np.minimum(self.offset[rows] + place, len(self.part) - 1)
        out: Index = np.where(place < self.counts[rows], self.section[flat], MESSAGES)
        return out

    def first_of_section(self, rows: Index, section: Index) -> Index:
        """The place of the first part of a section, or where it would stand."""
        counts = [
            np.bincount(self.row[self.section < s], minlength=self.n) for s in range(MESSAGES + 1)
        ]
        out: Index = np.stack(counts)[section, rows]
        return out

    def common(self, a: Index, b: Index) -> Index:
        """How many parts two prompts have in common at their beginning, (pairs,)."""
        shorter = np.minimum(self.counts[a], self.counts[b])
        first, inner = _spread(shorter)
        same = (
            self.part[np.repeat(self.offset[a], shorter) + inner]
            == self.part[np.repeat(self.offset[b], shorter) + inner]
        )
        return _run(same, first, shorter)

    def common_tail(self, a: Index, b: Index) -> Index:
        """How many parts two heads have in common at their end, (pairs,)."""
        shorter = np.minimum(self.head[a], self.head[b])
        first, inner = _spread(shorter)
        last_a = self.offset[a] + self.head[a] - 1
        last_b = self.offset[b] + self.head[b] - 1
        same = (
            self.part[np.repeat(last_a, shorter) - inner]
            == self.part[np.repeat(last_b, shorter) - inner]
        )
        return _run(same, first, shorter)

    def text(self, part: int) -> str:
        """A distinct text."""
        return str(self.texts[part])


def _spread(lengths: Index) -> tuple[Index, Index]:
    """Where each run begins when runs of these lengths are laid end to end; the place in it."""
    first = np.cumsum(lengths) - lengths
    return first, np.arange(int(lengths.sum())) - np.repeat(first, lengths)


def _run(same: Mask, first: Index, lengths: Index) -> Index:
    """Length of the leading stretch of True in each run."""
    out = np.zeros(len(lengths), dtype=np.int64)
    filled = lengths > 0
    if filled.any():
        total = int(lengths.sum())
        inner = np.arange(total) - np.repeat(first, lengths)
        stop = np.where(same, np.repeat(lengths, lengths), inner)
        out[filled] = np.minimum.reduceat(stop, first[filled])
    return out


def book(n: int, parts: pl.DataFrame) -> Book:
    """Number the parts of all prompts.

    Parameters
    ----------
    n
        Rows of the log.
    parts
        ``row`` and ``parts`` (List[Struct{section, text}]) in rendering order; null and empty
        parts, and rows outside the log, take no tokens and are left out.
    """
    flat = (
        parts.select(pl.col("row").cast(pl.Int64), "parts")
        .filter(pl.col("row").is_between(0, n - 1))
        .unique("row", keep="first", maintain_order=True)
        .sort("row")
        .explode("parts")
        .select(
            "row",
            pl.col("parts").struct.field("section").alias("section"),
            pl.col("parts").struct.field("text").cast(pl.String).alias("text"),
        )
        .filter(pl.col("text").str.len_bytes() > 0)
        .with_columns(
            pl.col("text").hash(1).alias("hash"),
            pl.col("section")
            .replace_strict({"tools": TOOLS, "system": SYSTEM}, default=MESSAGES)
            .cast(pl.Int64)
            .cum_max()
            .over("row")
            .alias("section"),
        )
    )
    distinct = flat.group_by("hash", maintain_order=True).agg(pl.col("text").first())
    hashes = distinct["hash"].to_numpy()
    order = np.argsort(hashes)
    part = order[np.searchsorted(hashes[order], flat["hash"].to_numpy())]
    row = flat["row"].to_numpy()
    section = flat["section"].to_numpy()
    return Book(
        n=n,
        offset=np.searchsorted(row, np.arange(n + 1)),
        part=part.astype(np.int64),
        section=section,
        texts=distinct["text"],
        part_bytes=distinct["text"].str.len_bytes().cast(pl.Int64).to_numpy(),
        part_hash=hashes,
        head=np.bincount(row[section < MESSAGES], minlength=n).astype(np.int64),
    )


def mix(values: Hash) -> Hash:
    """Scatter the bits (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: Hash = z ^ (z >> np.uint64(31))
    return out


def keyed(chain: Hash, *scopes: NDArray[np.int64] | Hash) -> Hash:
    """The chain within a scope: equal only where all scopes are equal as well."""
    out = chain
    for scope in scopes:
        out = mix(out ^ mix(scope.astype(np.uint64)))
    return out


def latest_before(keys: Hash, rows: Index, given: Hash, given_rows: Index) -> Index:
    """For each (key, row) the greatest ``given_rows`` below it that has the key; -1 if none."""
    if not len(given) or not len(keys):
        return np.full(len(keys), -1, dtype=np.int64)
    distinct, code = np.unique(given, return_inverse=True)
    width = np.int64(max(int(rows.max()), int(given_rows.max())) + 1)
    place = np.sort(code.astype(np.int64) * width + given_rows)
    mine = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    known = distinct[mine] == keys
    before = np.searchsorted(place, mine * width + rows) - 1
    found = place[np.maximum(before, 0)]
    good = known & (before >= 0) & (found // width == mine)
    out: Index = np.where(good, found % width, -1)
    return out


def first_difference(a: pl.Series, b: pl.Series, start: tuple[Index, Index] | None = None) -> Index:
    """Bytes that two texts have in common at their beginning, row by row, or from places in each.

    Strides double while the texts agree and halve when they do not, all rows at once; a slice is
    a view, so nothing is copied. A character is never cut: the place is that of its first byte.
    """
    size_a, size_b = sizes(a), sizes(b)
    first, other = start or (np.zeros_like(size_a), np.zeros_like(size_b))
    a, b = a.cast(pl.Binary), b.cast(pl.Binary)
    shared = _gallop(a, b, (first, other), (size_a, size_b), from_end=False)
    return whole(a, first + shared) - first


def last_difference(a: pl.Series, b: pl.Series, stop: tuple[Index, Index] | None = None) -> Index:
    """Bytes that two texts have in common at their end, row by row, or before places in each."""
    last, other = stop or (sizes(a), sizes(b))
    nothing = np.zeros_like(last)
    return _gallop(
        a.cast(pl.Binary), b.cast(pl.Binary), (nothing, nothing), (last, other), from_end=True
    )


def sizes(text: pl.Series) -> Index:
    """Bytes of each text."""
    out: Index = text.cast(pl.Binary).bin.size().cast(pl.Int64).to_numpy()
    return out


def _gallop(
    a: pl.Series, b: pl.Series, start: tuple[Index, Index], stop: tuple[Index, Index], *,
    from_end: bool,
) -> Index:  # fmt: skip
    """Bytes that ``start:stop`` of two texts have in common, row by row."""
    limit = np.maximum(np.minimum(stop[0] - start[0], stop[1] - start[1]), 0)
    done = np.zeros(len(a), dtype=np.int64)
    stride = np.full(len(a), FIRST_STRIDE, dtype=np.int64)
    growing = np.ones(len(a), dtype=bool)
    open_ = limit > 0
    while open_.any():
        width = np.where(open_, np.minimum(stride, limit - done), 0)
        # All rows take part in each round, most with nothing: to gather some would copy texts.
        x, y = (
            _slices(text, end - done - width if from_end else begin + done, width)
            for text, begin, end in zip((a, b), start, stop, strict=True)
        )
        same = (x == y).to_numpy()
        done += np.where(same, width, 0)
        growing &= same
        stride = np.where(growing, stride * 2, np.maximum((width + 1) // 2, 1))
        # A single byte that differs is the place; so is the end of a text.
        open_ &= (same | (width > 1)) & (done < limit)
    return done


def _slices(text: pl.Series, start: Index, width: Index) -> pl.Series:
    return text.to_frame("text").select(
        pl.col("text").bin.slice(pl.Series("start", start), pl.Series("width", width))
    )["text"]


def whole(text: pl.Series, place: Index) -> Index:
    """Move places that stand inside a character (of at most four bytes) to its first byte."""
    out = place.copy()
    text = text.cast(pl.Binary)
    for _ in range(3):
        byte = _slices(text, out, np.ones(len(out), dtype=np.int64)).bin.encode("hex")
        inside = byte.str.contains("^[89ab]").fill_null(False).to_numpy()
        if not inside.any():
            break
        out = out - inside
    return out


def piece(text: pl.Series, start: Index, stop: Index) -> pl.Series:
    """The bytes ``start:stop`` of each text, as text; null where a character would be cut."""
    start = np.maximum(start, 0)
    raw = _slices(text.cast(pl.Binary), start, np.maximum(stop - start, 0))
    return raw.cast(pl.String, strict=False)


def cut(text: pl.Series, limit: int, *, tail: bool = False) -> pl.Series:
    """The first (or last) ``limit`` bytes of each text, fewer where a character would be cut."""
    size = text.str.len_bytes().cast(pl.Int64).to_numpy()
    if tail:
        return piece(text, whole(text, np.maximum(size - limit, 0)), size)
    return piece(text, np.zeros(len(size), np.int64), whole(text, np.minimum(size, limit)))


def masked(text: pl.Series) -> pl.Series:
    """Short texts with what changes by itself taken out: digits, days, months, spacing."""
    return (
        text.fill_null("")
        .str.normalize("NFKC")
        .str.replace_all(_DAYS, "0")
        .str.replace_all(_DIGITS, "0")
        .str.replace_all(r"\s+", " ")
    )


def tokens_per_byte(book: Book, input_tokens: Array) -> Array:
    """Tokens that a byte of each prompt stands for, (n,).

    The prompt's own count over its bytes; the log's median where a prompt has no count; a quarter
    where no prompt has one.
    """
    size = book.size(np.arange(book.n)).astype(np.float64)
    known = np.isfinite(input_tokens) & (input_tokens > 0) & (size > 0)
    ratio = np.divide(input_tokens, size, out=np.full(book.n, np.nan), where=known)
    usual = float(np.median(ratio[known])) if known.any() else 1 / BYTES_PER_TOKEN
    return np.where(known, ratio, usual)
