"""Blocks from content: where a log holds its prompts, their parts, and ids of their blocks.

A prompt may be logged as messages (OpenAI, Anthropic), as one text, or as token ids; beside
messages may stand tools and system text. Token ids give exact blocks. Text is cut by its bytes:
how many a token has is the median over the rows that log both, taken once for the whole log, so
that equal text has equal ids in all rows; a local tokenizer file replaces this by exact tokens.
A block that is not full has no id. An image or a file counts by its JSON, so that blocks after one
are not where the engine has them; but no row has more blocks than its tokens fill. Ids are sums of
the text: of the text itself nothing is kept, unless parts are asked for.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.errors import InputError
from ttftdoctor.language import tr
from ttftdoctor.table import LINE, UNREAD, Field

if TYPE_CHECKING:
    from ttftdoctor.rendering import Bytes, Ids, Ints

#: Tokens a block stands for, as in most engines.
BLOCK_TOKENS = 16
#: What a token has where no row logs both text and tokens.
USUAL_BYTES = 4.0
#: Text that has fewer or more bytes a token than these is not the text of its tokens.
PLAUSIBLE_BYTES = (1.0, 16.0)
#: Shorter prompts are mostly what the template adds, and say little of text.
_ENOUGH_TOKENS = 64
#: Raw text rendered at a time; bounds memory for any log.
_SLICE_BYTES = 32 * 2**20

#: Parts of a prompt as a Polars type: ``section`` is tools, system or messages.
PARTS = pl.List(pl.Struct({"section": pl.String, "text": pl.String}))

#: Names (without case and separators) of what makes up a prompt, best first.
_NAMES: dict[str, tuple[str, ...]] = {
    "ids": ("prompttokenids", "inputtokenids", "inputids", "tokenids", "prompt"),
    "messages": ("messages", "inputmessages", "requestmessages", "chatmessages", "input",
                 "contents"),
    "prompt": ("prompt", "prompttext", "inputtext", "fullprompt"),
    "system": ("system", "systemprompt", "instructions", "systeminstruction",
               "systeminstructions"),
    "tools": ("tools", "tooldefinitions", "functions"),
}  # fmt: skip
#: Objects in which a request's body, or a part of it, is logged.
_CONTAINERS = frozenset({
    "request", "body", "requestbody", "payload", "requestpayload", "kwargs", "input", "inputs",
    "params", "parameters", "data", "optionalparams", "modelparameters", "invocationparams",
    "proxyserverrequest", "requestdata", "attributes",
})  # fmt: skip
_MAX_DEPTH = 4


@dataclass(frozen=True)
class Place:
    """A raw field, or a member of the JSON in it by the keys that lead there."""

    column: str
    path: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """As a reader would write it: ``request.body.messages``."""
        return ".".join((self.column, *self.path))

    @property
    def home(self) -> tuple[str, ...]:
        """The keys of the object it is a member of."""
        return (self.column, *self.path)[:-1]


@dataclass(frozen=True)
class Where:
    """The places of a log's prompts: token ids, and messages or bare prompts. Ids win."""

    ids: Place | None = None
    messages: Place | None = None
    prompt: Place | None = None
    system: Place | None = None
    tools: Place | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """Those there are, in rendering order."""
        every = (self.ids, self.tools, self.system, self.messages, self.prompt)
        return tuple(place for place in every if place is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw fields that are needed; a reader asks for them as text."""
        return tuple(dict.fromkeys(place.column for place in self.places))

    @property
    def label(self) -> str:
        """All of them, for a report."""
        return ", ".join(place.label for place in self.places)


#: What a user may say the field of: ``--map messages=conversation.turns``.
PARTS_NAMED = ("token_ids", "messages", "prompt", "system", "tools")


def find(
    records: Sequence[Mapping[str, Any]], named: Mapping[str, str] | None = None
) -> Where | None:
    """Where the first records of a log hold prompts; None if they hold none.

    Token ids win over text. Tools and system text are taken from beside the messages; tools, as
    some gateways keep them apart, else from any object of parameters.

    Parameters
    ----------
    named
        The fields of some parts (:data:`PARTS_NAMED`), as the user says; keys apart by points.
    """
    if named:
        places = {
            "ids" if part == "token_ids" else part: Place(*_split(label))
            for part, label in named.items()
        }
        found = find(records)
        if "ids" in places or "messages" in places or "prompt" in places or found is None:
            return Where(**places)
        return replace(found, **places)
    seen: dict[str, Counter[Place]] = {kind: Counter() for kind in _NAMES}
    for record in records:
        for place, kind in _walk(record):
            seen[kind][place] += 1
    rank = {kind: {name: at for at, name in enumerate(names)} for kind, names in _NAMES.items()}

    def best(kind: str, home: tuple[str, ...] | None = None) -> Place | None:
        def order(place: Place) -> tuple[int, int, int, int]:
            name = _plain((place.column, *place.path)[-1])
            # Of two copies of a prompt, the one with tools and system text is the whole.
            friends = sum(p.home == place.home for k in ("system", "tools") for p in seen[k])
            return -seen[kind][place], -friends, rank[kind][name], len(place.path)

        places = (p for p in seen[kind] if home is None or p.home == home)
        return min(places, key=order, default=None)

    ids, messages = best("ids"), best("messages")
    if ids is not None and messages is not None and seen["ids"][ids] < seen["messages"][messages]:
        ids = None
    anchor = messages or best("prompt")
    if anchor is None:
        return Where(ids=ids) if ids is not None else None

    home = anchor.home
    return Where(
        ids=ids,
        messages=messages,
        prompt=best("prompt", home),
        system=best("system", home) if messages is not None else None,
        tools=(best("tools", home) or best("tools")) if messages is not None else None,
    )


def _split(label: str) -> tuple[str, tuple[str, ...]]:
    column, *path = label.split(".")
    return column, tuple(path)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _walk(record: Mapping[str, Any], home: tuple[str, ...] = ()) -> Iterator[tuple[Place, str]]:
    """Places of a record that look like a part of a prompt, each with its kind."""
    for key, value in record.items():
        if not isinstance(key, str) or not key.isascii() or value is None:
            continue
        name = _plain(key)
        column, *path = (*home, key)
        if name in _CONTAINERS and len(home) < _MAX_DEPTH:
            inner = _parsed(value, "{")
            if isinstance(inner, Mapping) and (not home or isinstance(value, Mapping)):
                yield from _walk(inner, (*home, key))
                continue
        for kind, names in _NAMES.items():
            if name in names and _LOOKS[kind](value):
                yield Place(column, tuple(path)), kind
                break


def _parsed(value: Any, opening: str) -> Any:
    """A text that begins like JSON, parsed; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] == opening:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _are_ids(value: Any) -> bool:
    value = _parsed(value, "[")
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _are_messages(value: Any) -> bool:
    value = _parsed(value, "[")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and _MESSAGE & item.keys() for item in value)
    )


_MESSAGE = {"role", "content", "parts", "type"}


def _is_prompt(value: Any) -> bool:
    """Text of several words: a single one is the name of a prompt rather than its text."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str) and len(value.split()) > 1


def _are_tools(value: Any) -> bool:
    value = _parsed(value, "[")
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)


_LOOKS: dict[str, Callable[[Any], bool]] = {
    "ids": _are_ids,
    "messages": _are_messages,
    "prompt": _is_prompt,
    "system": lambda value: _is_prompt(value) or _are_messages(value),
    "tools": _are_tools,
}


def load_tokenizer(path: str) -> Any:
    """A tokenizer from its local file (``tokenizer.json``); nothing is ever downloaded.

    Raises
    ------
    InputError
        If the file or the library that reads it is missing, or the file is of another kind.
    """
    if not Path(path).is_file():
        raise InputError("there is no such tokenizer file", where=path)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "a tokenizer file needs the tokenizers library, which is not installed",
            where=path,
            help="pip install 'ttftdoctor[tokenizer]', or leave --tokenizer out",
        ) from None
    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001  (the library raises no class of its own)
        raise InputError(
            "this is no tokenizer file",
            where=path,
            why=str(error).splitlines()[0][:200],
            available="the tokenizer.json that comes with a model",
        ) from None


@dataclass(frozen=True)
class Rendered:
    """The prompts of some rows, rendered into one buffer (:func:`ttftdoctor.rendering.render`).

    ``ends`` (rows + 1, from 0) cuts ``text`` into rows; ``part_ends`` and ``sections`` are of all
    parts, which ``row_parts`` (rows + 1, from 0) deals to rows. ``states`` are ``ABSENT``,
    ``READ`` or ``UNREAD``.
    """

    text: Bytes
    ends: Ints
    states: NDArray[np.int8]
    part_ends: Ints
    sections: Bytes
    row_parts: Ints

    @property
    def sizes(self) -> Ints:
        """Bytes of each row."""
        return np.diff(self.ends)

    def texts(self) -> pl.Series:
        """The text of each row; null where there is none."""
        texts = _cut(self.text, self.ends)
        return pl.select(pl.when(pl.lit(self.states == 1)).then(pl.lit(texts))).to_series()

    def parts(self) -> pl.Series:
        """The parts of each row (:data:`PARTS`); null where there are none.

        The texts of a row's parts, one after another, are the text its blocks are cut from.
        """
        from ttftdoctor.rendering import SECTIONS

        names = pl.Series(self.sections).cast(pl.Int64)
        frame = pl.select(
            pl.lit(names).replace_strict(dict(enumerate(SECTIONS)), return_dtype=pl.String)
            .alias("section"),
            pl.lit(_cut(self.text, np.concatenate([[0], self.part_ends]))).alias("text"),
        )  # fmt: skip
        return _lists(frame.to_struct(), np.diff(self.row_parts), self.states == 1, PARTS)


def _cut(text: Bytes, ends: Ints) -> pl.Series:
    """A buffer of UTF-8 cut into texts at ``ends`` (texts + 1, from 0)."""
    spans = pl.DataFrame({"start": ends[:-1], "size": np.diff(ends)})
    return spans.select(
        pl.lit(text.tobytes()).bin.slice(pl.col("start"), pl.col("size")).cast(pl.String)
    ).to_series()


def _lists(values: pl.Series, counts: Ints, known: NDArray[np.bool_], dtype: Any) -> pl.Series:
    """Values dealt to rows by their counts; null where a row is not ``known``."""
    if not len(counts):
        return pl.Series([], dtype=dtype)
    spans = pl.DataFrame({"start": np.cumsum(counts) - counts, "size": counts, "known": known})
    whole = values.implode().cast(dtype)
    return spans.select(
        pl.when("known").then(pl.lit(whole).list.slice(pl.col("start"), pl.col("size")))
    ).to_series()


def render(where: Where, frame: pl.DataFrame) -> Rendered:
    """Render the prompts of a raw frame that has the fields of ``where`` as text."""
    from ttftdoctor import rendering

    places = (where.tools, where.system, where.messages, where.prompt)
    text, starts, stops = _spans(places, frame)
    dug = np.array([place is not None and bool(place.path) for place in places])
    parts = int(np.count_nonzero(text == ord(","))) + 4 * frame.height
    return Rendered(*rendering.render(text, starts, stops, dug, parts))


def token_ids(where: Where, frame: pl.DataFrame) -> tuple[Ints, Ints, NDArray[np.int8]]:
    """Token ids of a raw frame: all of them, where each row's end, and the state of each row."""
    from ttftdoctor import rendering

    text, starts, stops = _spans((where.ids,), frame)
    return rendering.numbers(text, starts[0], stops[0])


def _spans(places: Sequence[Place | None], frame: pl.DataFrame) -> tuple[Bytes, Ints, Ints]:
    """The fields in one buffer, and the span of each place in each row (-1: none)."""
    from ttftdoctor import rendering

    rows = frame.height
    pieces: list[bytes] = []
    columns: dict[str, tuple[Ints, Ints]] = {}
    filled = 0
    for name in dict.fromkeys(place.column for place in places if place is not None):
        if name not in frame.columns:
            continue
        texts = frame[name].cast(pl.String, strict=False)
        sizes = texts.str.len_bytes().fill_null(0).cast(pl.Int64).to_numpy()
        stops = filled + np.cumsum(sizes)
        starts = np.where(texts.is_null().to_numpy(), -1, stops - sizes)
        columns[name] = (starts, stops)
        if sizes.any():
            piece = texts.str.join("").cast(pl.Binary).item()
            pieces.append(piece)
            filled += len(piece)
    text = np.frombuffer(b"".join(pieces) or b" ", np.uint8)
    starts = np.full((len(places), rows), -1, np.int64)
    stops = np.full((len(places), rows), -1, np.int64)
    for at, place in enumerate(places):
        if place is None or place.column not in columns:
            continue
        starts[at], stops[at] = columns[place.column]
        for key in place.path:
            word = np.frombuffer(json.dumps(key, ensure_ascii=False)[1:-1].encode(), np.uint8)
            starts[at], stops[at] = rendering.dig(text, starts[at], stops[at], word)
    return text, starts, stops


def calibrate(sizes: Ints, tokens: Ints) -> tuple[float, int]:
    """Bytes a token, to two decimals: the median over rows, and how many rows it is of.

    Parameters
    ----------
    sizes, tokens
        Bytes of the rendered text and logged input tokens of each row; 0 where not known. Rows
        where the two cannot belong together (text cut short or blanked) do not count, and short
        prompts only where there are no others.
    """
    known = (sizes > 0) & (tokens > 0)
    ratios = sizes / np.maximum(tokens, 1)
    known &= (ratios >= PLAUSIBLE_BYTES[0]) & (ratios <= PLAUSIBLE_BYTES[1])
    long = known & (tokens >= _ENOUGH_TOKENS)
    known = long if long.any() else known
    if not known.any():
        return USUAL_BYTES, 0
    return round(float(np.median(ratios[known])), 2), int(known.sum())


def text_blocks(
    text: Bytes, ends: Ints, most: Ints, *, bytes_per_token: float, block_tokens: int = BLOCK_TOKENS
) -> tuple[Ids, Ints]:
    """Chained ids of the full blocks of some texts, and how many each has.

    Block k (from 1) ends at byte ``k * block_tokens * bytes_per_token``, rounded half up.
    ``text`` and ``ends`` as in :class:`Rendered`; ``most`` is the largest number of each.
    """
    from ttftdoctor import rendering

    return rendering.hash_text(text, ends, most, block_tokens * bytes_per_token)


def token_blocks(tokens: Ints, ends: Ints, *, block_tokens: int = BLOCK_TOKENS) -> tuple[Ids, Ints]:
    """Chained ids of the full blocks of some lists of token ids, and how many each has."""
    from ttftdoctor import rendering

    return rendering.hash_tokens(tokens, ends, block_tokens)


@dataclass(frozen=True)
class Made:
    """A canonical frame with what its prompts say, and where that came from.

    ``parts`` has ``line`` and ``parts`` (:data:`PARTS`); None unless they were asked for.
    """

    frame: pl.DataFrame
    fields: dict[str, Field]
    notes: tuple[str, ...] = ()
    parts: pl.DataFrame | None = None


class Prompts:
    """The prompts of one log, read chunk by chunk by one measure.

    Parameters
    ----------
    where
        Places of the prompts. Its attribute of this name has only those that are needed.
    bytes_per_token
        The measure of another part of the same log; by default taken from the first rows.
    tokenizer
        Path of a local tokenizer file.
    blocks
        Whether blocks are wanted: not where the log has ids of its own.
    parts
        Whether the rendered text itself is wanted.
    """

    def __init__(
        self,
        where: Where,
        *,
        bytes_per_token: float | None = None,
        tokenizer: str | None = None,
        blocks: bool = True,
        parts: bool = False,
    ) -> None:
        self.where = where if parts or where.ids is None else Where(ids=where.ids)
        self._source = Where(ids=where.ids) if where.ids is not None else where
        self.bytes_per_token = bytes_per_token
        self._basis = tr("as in the rest of the log") if bytes_per_token is not None else ""
        textual = where.ids is None and blocks
        self._tokenizer = load_tokenizer(tokenizer) if tokenizer and textual else None
        self._blocks = blocks
        self._parts = parts

    def read(self, frame: pl.DataFrame, raw: pl.DataFrame) -> Made:
        """Add ``prefix_blocks`` and ``block_tokens`` to a canonical frame.

        Parameters
        ----------
        frame
            Has ``line``, the field of unread values, and ``input_tokens`` where logged; filled
            in from token ids where not.
        raw
            The raw rows it was made of, in the same order.
        """
        pieces = [self._some(frame[a:b], raw[a:b]) for a, b in _slices(raw, self.where.columns)]
        parts = [piece.parts for piece in pieces if piece.parts is not None]
        return Made(
            pl.concat([piece.frame for piece in pieces]),
            pieces[0].fields,
            pieces[0].notes,
            pl.concat(parts) if parts else None,
        )

    def _some(self, frame: pl.DataFrame, raw: pl.DataFrame) -> Made:
        logged = np.zeros(frame.height, np.int64)
        if "input_tokens" in frame.columns:
            counts = frame["input_tokens"].cast(pl.Int64, strict=False)
            logged = np.maximum(counts.fill_null(0).to_numpy(), 0)
        parts = None
        exact = self.where.ids is not None
        if not exact or self._parts:
            rendered = render(self.where, raw)
        if self._parts:
            parts = frame.select(LINE).with_columns(rendered.parts().alias("parts"))
        if not self._blocks:
            return Made(frame, {}, (), parts)
        if exact:
            made = self._of_tokens(frame, logged, *token_ids(self.where, raw))
        elif self._tokenizer is not None:
            texts = rendered.texts().fill_null("").to_list()
            coded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            lists = [np.asarray(one.ids, np.int64) for one in coded]
            ends = np.cumsum([0, *map(len, lists)])
            ids = np.concatenate([np.empty(0, np.int64), *lists])
            made = self._of_tokens(frame, logged, ids, ends, rendered.states)
        else:
            made = self._of_text(frame, logged, rendered)
        return Made(made.frame, made.fields, made.notes, parts)

    def _of_text(self, frame: pl.DataFrame, logged: Ints, rendered: Rendered) -> Made:
        if self.bytes_per_token is None:
            self.bytes_per_token, rows = calibrate(rendered.sizes, logged)
            self._basis = tr("calibrated on {n} rows", n=format(rows, ",")) if rows else ""
        each = self.bytes_per_token
        short = (logged >= _ENOUGH_TOKENS) & (rendered.sizes < 0.5 * each * logged)
        most = np.where(logged > 0, logged // BLOCK_TOKENS, 2**40)
        ids, counts = text_blocks(rendered.text, rendered.ends, most, bytes_per_token=each)
        why = tr(
            "text in blocks of {n} tokens, {bytes} bytes a token ({basis})",
            n=BLOCK_TOKENS, bytes=format(each, "g"),
            basis=self._basis or tr("assumed: no row logs both text and tokens"),
        )  # fmt: skip
        fields = self._fields(why, "derived" if self._basis else "assumed")
        lost = tr("shorter than its tokens")
        frame = self._add(frame, ids, counts, rendered.states, short, lost)
        if self._basis:
            return Made(frame, fields)
        note = tr(
            "no row logs both a prompt and its tokens: {n} bytes a token were assumed for blocks "
            "of text",
            n=format(USUAL_BYTES, "g"),
        )
        return Made(frame, fields, (note,))

    def _of_tokens(
        self, frame: pl.DataFrame, logged: Ints, ids: Ints, ends: Ints, states: NDArray[np.int8]
    ) -> Made:
        sizes = np.diff(ends)
        blocks, counts = token_blocks(ids, ends)
        exact = self._tokenizer is None
        lost = tr("not as many as input_tokens") if exact else tr("shorter than its tokens")
        wrong = (logged >= _ENOUGH_TOKENS) & (2 * sizes < logged)
        if exact:
            wrong |= (logged > 0) & (sizes > 2 * logged + _ENOUGH_TOKENS)
        if exact:
            why = tr("token ids in blocks of {n}", n=BLOCK_TOKENS)
        else:
            why = tr("text, by the tokenizer, in blocks of {n}", n=BLOCK_TOKENS)
        fields = self._fields(why, "derived")
        if not exact:
            most = np.where(logged > 0, logged // BLOCK_TOKENS, counts)
            blocks, counts = _trimmed(blocks, counts, np.minimum(counts, most))
        frame = self._add(frame, blocks, counts, states, wrong, lost)
        known = states == 1
        if known.any() and (logged[known] == 0).any():
            told = frame["input_tokens"] if "input_tokens" in frame.columns else None
            count = pl.select(pl.when(pl.lit(known)).then(pl.lit(sizes))).to_series()
            filled = count if told is None else told.cast(pl.Int64).fill_null(count)
            frame = frame.with_columns(filled.alias("input_tokens"))
            if told is None or told.null_count() == frame.height:
                fields["input_tokens"] = Field(
                    self._source.label, "tokens",
                    tr("counted") if exact else
                    tr("counted by the tokenizer, less what a template adds"),
                    "derived" if exact else "inferred",
                )  # fmt: skip
        return Made(frame, fields)

    def _fields(self, why: str, kind: Any) -> dict[str, Field]:
        return {
            "prefix_blocks": Field(self._source.label, "", why, kind),
            "block_tokens": Field("", "tokens", tr("the usual size"), "assumed"),
        }

    def _add(
        self, frame: pl.DataFrame, ids: Ids, counts: Ints, states: NDArray[np.int8],
        wrong: NDArray[np.bool_], lost: str,
    ) -> pl.DataFrame:  # fmt: skip
        """The blocks as columns; rows without them by fault of the log are named as unread."""
        known = (states == 1) & ~wrong
        if UNREAD not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias(UNREAD))
        main = self._source.ids or self._source.messages or self._source.prompt
        label = main.label if main is not None else ""
        faulty = tr("{field} ({fault})", field=label, fault=lost)
        fault = (
            pl.when(pl.lit(states == 2)).then(pl.lit(label))
            .when(pl.lit((states == 1) & wrong)).then(pl.lit(faulty))
        )  # fmt: skip
        named = pl.concat_str([pl.col(UNREAD), fault], separator="\n", ignore_nulls=True)
        bad = bool((~known & (states != 0)).any())
        return frame.with_columns(
            _lists(pl.Series(ids), counts, known, pl.List(pl.UInt64)).alias("prefix_blocks"),
            pl.when(pl.lit(known)).then(pl.lit(BLOCK_TOKENS)).cast(pl.UInt32).alias("block_tokens"),
            *(
                [pl.when(fault.is_null()).then(UNREAD).otherwise(named).alias(UNREAD)]
                if bad
                else []
            ),
        )


def _trimmed(ids: Ids, counts: Ints, fewer: Ints) -> tuple[Ids, Ints]:
    """Only the first ``fewer`` ids of each row."""
    place = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ids[place < np.repeat(fewer, counts)], fewer


def _slices(raw: pl.DataFrame, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Runs of rows that hold about as much text as may be rendered at a time; at least one."""
    size = np.zeros(raw.height, np.int64)
    for name in columns:
        if name in raw.columns and raw.schema[name] == pl.String:
            size += raw[name].str.len_bytes().fill_null(0).cast(pl.Int64).to_numpy()
    number = np.cumsum(size) // _SLICE_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), raw.height]
    return list(itertools.pairwise(cuts))
