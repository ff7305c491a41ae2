"""Where prompts that should share a beginning first differ, what stands there, what it costs.

Pairs are found by :mod:`~ttftdoctor.prefixes.pairs`; a few hundred of their distinct differences
are looked into, and each other pair takes the name of the nearest one at the same place. Nothing
of a prompt's text is kept, unless it is asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from ttftdoctor.language import mark
from ttftdoctor.prefixes.kinds import (
    FIELD_CHARS,
    LONGEST,
    MOST_ALSO,
    Difference,
    agree,
    differ,
    differ_tools,
)
from ttftdoctor.prefixes.pairs import (
    CONTEXT,
    MOVED,
    OPENING,
    TEMPLATE,
    WORTH,
    Looked,
    Pairs,
    by_text,
    common_bytes,
    common_messages,
)
from ttftdoctor.prefixes.stuck import by_blocks
from ttftdoctor.prefixes.texts import (
    SECTIONS,
    TOOLS,
    Array,
    Book,
    Index,
    Mask,
    book,
    tokens_per_byte,
)
from ttftdoctor.report import clean

Kind = Literal[
    "time", "id", "counter", "reordered_keys", "reordered_tools", "tools_changed", "user_field",
    "changing_context", "whitespace", "trimmed_history", "edited_history", "other", "unknown",
]  # fmt: skip
Habit = Literal["unique", "thrashing", "once"]

#: What each kind is, in words.
KINDS: Final[dict[Kind, str]] = {
    "time": mark("a date, a clock or a time stamp"),
    "id": mark("an id made anew (uuid, hex, request id, nonce)"),
    "counter": mark("a number that counts"),
    "reordered_keys": mark("the same JSON with its keys in another order"),
    "reordered_tools": mark("the same tools in another order"),
    "tools_changed": mark("a tool added, removed or changed"),
    "user_field": mark("a field of the user or session (name, id, locale)"),
    "changing_context": mark("documents or other context that changes, before what stays"),
    "whitespace": mark("spacing or the form of characters"),
    "trimmed_history": mark("the oldest messages dropped or summed up"),
    "edited_history": mark("an earlier message changed"),
    "other": mark("text that differs"),
    "unknown": mark("unknown (the log tells blocks, not text)"),
}

#: What helps against each kind, in words.
FIXES: Final[dict[Kind, str]] = {
    "time": mark("move it behind the conversation, or round it to the day"),
    "id": mark("take it out of the prompt, or move it to the last message"),
    "counter": mark("move it to the last message"),
    "reordered_keys": mark("serialise with sorted keys"),
    "reordered_tools": mark("sort the tools by name"),
    "tools_changed": mark("keep one fixed list of tools and allow or forbid tools otherwise"),
    "user_field": mark("move it behind what all users share, to the first message"),
    "changing_context": mark(
        "move it behind the instructions and the history, to the last message"
    ),
    "whitespace": mark("render the prompt in one place, with one form of spacing and Unicode"),
    "trimmed_history": mark("trim seldom and by large steps, and not on every turn"),
    "edited_history": mark("only append; edit old messages seldom and many at once"),
    "other": mark("move what differs behind what stays"),
    "unknown": mark("log the prompts' text for once to see what differs there"),
}

#: Pairs of texts that are looked into, in all and of one place of a template.
MOST_SAMPLES, PLACE_SAMPLES = 400, 12
#: A change in no more than this part of the requests that could have it happened now and then.
RARE = 0.1
#: Where a value is not known to change by itself, this part of the conversations must have a new
#: one, and there must be so many: fewer are several templates.
OFTEN, FEWEST_VALUES = 0.3, 4
#: Kinds that are breakers across conversations however few values there are.
PLAIN: Final = frozenset(
    ("time", "id", "reordered_keys", "reordered_tools", "whitespace", "trimmed_history")
)
#: Numbers are counted, though their label says id, where so many of so many go one way.
SURELY, FEWEST_NUMBERS = 0.95, 4
#: ... and others where so many do.
MOSTLY = 0.9
#: Kinds of which a list of tools has one breaker, whichever tool differs first.
OF_TOOLS: Final = ("reordered_tools", "reordered_keys", "tools_changed")
#: Openings of single messages must be broken so often.
FEWEST_OPENINGS = 3
#: Characters of text shown before and after the place.
SHOWN = 60
EXAMPLES = 3
_DECIMAL = re.compile(
    r"[+\-]?(?:\d+[.,]\d+|\d{1,3}(?:,\d{3})*(?:\.\d+)?|\d{1,3}(?:\.\d{3})*(?:,\d+)?)"
)


@dataclass(frozen=True)
class Also:
    """A later place of the same part that changes too, and costs once the first is fixed."""

    kind: str
    position_tokens: int


@dataclass(frozen=True, eq=False)
class Breaker:
    """Something in prompts that keeps what stands behind it from being reused.

    Parameters
    ----------
    section
        ``tools``, ``system``, ``messages``, or ``unknown`` where only blocks are logged.
    path
        The place without its text: ``tools/3/function/parameters``, ``system/0``, ``messages/2``;
        keys that may say something of the content are ``*``.
    position_tokens, position_interval
        Where prompts first differ, tokens from their start: the median, the lowest and the highest.
    habit
        ``unique``: a new value nearly each time; ``thrashing``: a few values by turns; ``once``: it
        changed once, or now and then.
    requests, of_requests, sessions
        Requests that lose by it, requests that were looked at, sessions of the former (None if no
        session is known).
    within_session
        Of ``requests``, those that should have gone on from an earlier turn; the others should
        have shared a template with another conversation.
    tokens_lost
        Prompt tokens that the earlier request held already and that no cache could give back, not
        even an endless one. Each request is counted once.
    tokens_apart
        The same if only the earlier request itself is still cached: what thrashing costs at worst.
    lost
        ``row``, ``tokens`` (as ``tokens_lost``) and ``apart`` of each request.
    examples
        ``(source, line)`` of requests that lose most.
    also
        Other places that change, behind this one.
    sample_before, sample_after
        Text around the place in the earlier and later prompt, escaped; only if asked for.
    """

    kind: Kind
    section: str
    path: str | None
    position_tokens: int
    position_interval: tuple[int, int]
    habit: Habit
    requests: int
    of_requests: int
    sessions: int | None
    within_session: int
    tokens_lost: int
    tokens_apart: int
    lost: pl.DataFrame = field(repr=False)
    examples: tuple[tuple[int, int], ...] = ()
    also: tuple[Also, ...] = ()
    sample_before: str | None = field(default=None, repr=False)
    sample_after: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Found:
    """All breakers, the most costly first, and what was looked at.

    ``pairs`` is the number of requests that were held against an earlier one that they should
    share a beginning with; ``with_text`` and ``with_blocks`` the requests whose prompts are known
    so far.
    """

    breakers: tuple[Breaker, ...]
    pairs: int
    with_text: int
    with_blocks: int


@dataclass(frozen=True)
class _Sample:
    """One difference that was looked into: a pair's place in the arrays, its name, its texts."""

    pair: int
    difference: Difference | None
    before: str
    after: str


def find(
    requests: pl.DataFrame, parts: pl.DataFrame | None, *, show_text: bool = False
) -> tuple[Breaker, ...]:
    """Breakers of a log, the most costly first; see :func:`look`."""
    return look(requests, parts, show_text=show_text).breakers


def look(requests: pl.DataFrame, parts: pl.DataFrame | None, *, show_text: bool = False) -> Found:
    """Find what breaks shared beginnings.

    Parameters
    ----------
    requests
        In order of arrival: ``row`` (0..n-1), ``source``, ``line``, ``session`` (a number, null or
        -1 unknown), ``model``, ``tenant``, ``input_tokens``, ``prefix_blocks``, ``block_tokens``.
    parts
        ``row`` and ``parts`` (List[Struct{section, text}]) in rendering order, or None where the
        log has no text. Rows without parts are judged by their blocks.
    show_text
        Keep a little of the text around each place, escaped.
    """
    n = requests.height
    session = requests["session"].cast(pl.Int64).fill_null(-1).to_numpy()
    model = requests["model"].cast(pl.String).fill_null("").rank("dense").cast(pl.Int64).to_numpy()
    inputs = requests["input_tokens"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    texts = book(n, parts) if parts is not None else None
    with_text = texts.counts > 0 if texts is not None else np.zeros(n, dtype=bool)
    out: list[Breaker] = []
    looked = np.zeros(n, dtype=bool)
    if texts is not None and with_text.any():
        pairs, rows = by_text(texts, session, model)
        looked |= rows.turn | rows.first
        out += _of_text(texts, pairs, rows, requests, inputs, show_text=show_text)
    blocks = requests["prefix_blocks"].cast(pl.List(pl.UInt64))
    has_blocks = (blocks.list.len().fill_null(0) > 0).to_numpy() & ~with_text
    if has_blocks.any():
        stuck, more = _of_blocks(requests, blocks, np.where(has_blocks, session, -1), model, inputs)
        looked |= more
        out += stuck
    pairs_looked = int(looked.sum())
    out = [replace(b, of_requests=pairs_looked) for b in out if b.tokens_apart > 0]
    out.sort(key=lambda b: (-b.tokens_lost, -b.tokens_apart, b.kind, b.path or ""))
    return Found(tuple(out), pairs_looked, int(with_text.sum()), int(has_blocks.sum()))


# --- logs with text -------------------------------------------------------------------------------


def _of_text(
    texts: Book,
    pairs: Pairs,
    rows: Looked,
    requests: pl.DataFrame,
    inputs: Array,
    *,
    show_text: bool,
) -> list[Breaker]:
    """Name the pairs' differences, and put together what is one breaker."""
    if not len(pairs.later):
        return []
    per = tokens_per_byte(texts, inputs)
    samples, nearest = _samples(texts, pairs)
    whole = _same_but(samples, nearest)
    pairs = pairs.with_should(_expected(texts, pairs, whole, _own(samples, nearest)))
    kinds, paths = _names(pairs, samples, nearest)
    kinds[(pairs.should - pairs.shared < WORTH) | ~(pairs.sure | whole)] = ""
    _as_one_list(pairs, kinds, paths)
    values = _values(texts, pairs)
    out = []
    section = np.array(SECTIONS)[pairs.section]
    groups = sorted({(k, str(s), p) for k, s, p in zip(kinds, section, paths, strict=True) if k})
    for kind, where, path in groups:
        chosen = np.flatnonzero((kinds == kind) & (section == where) & (paths == path))
        part, moves = pairs.of(_mask(chosen, len(kinds))), values.of(chosen)
        mine = [s for s in samples if nearest[s.pair] == s.pair and s.pair in set(chosen.tolist())]
        habit = _habit(moves, part, rows)
        if not _stands(kind, habit, part, moves, rows, mine, requests["tenant"]):
            continue
        later = part.later
        ratio = per[later]
        hinted = any(s.difference is not None and s.difference.hint == "user" for s in mine)
        # What changed once is no field of a user, and counts nothing: a new version of the prompt.
        changed_once = habit == "once" and (
            kind == "counter" or (kind == "user_field" and not hinted)
        )
        breaker = _breaker(
            "other" if changed_once else kind, where,
            _place(path, part, texts), habit, requests, later, part.shared * ratio,
            np.maximum(part.should - part.ideal, 0) * ratio, (part.should - part.shared) * ratio,
        )  # fmt: skip
        breaker = replace(
            breaker,
            within_session=int((~_is_across(part.basis)).sum()),
            also=_also(texts, pairs, mine, per),
        )
        if show_text and mine:
            best = max(mine, key=lambda s: int(pairs.should[s.pair] - pairs.shared[s.pair]))
            breaker = replace(
                breaker,
                sample_before=clean(best.before, 2 * SHOWN),
                sample_after=clean(best.after, 2 * SHOWN),
            )
        out.append(breaker)
    return out


def _is_across(basis: Index) -> Mask:
    """Whether a pair is of two conversations."""
    return np.isin(basis, (TEMPLATE, OPENING, CONTEXT))


def _beginning(paths: Sequence[Sequence[str]]) -> list[str]:
    """The first steps that all paths have in common."""
    same = takewhile(lambda steps: len(set(steps)) == 1, zip(*paths, strict=False))
    return [steps[0] for steps in same]


def _as_one_list(pairs: Pairs, kinds: np.ndarray[Any, Any], paths: np.ndarray[Any, Any]) -> None:
    """Name a list of tools by what the places of one kind have in common."""
    for kind in OF_TOOLS:
        chosen = (pairs.section == TOOLS) & (kinds == kind)
        if chosen.any():
            split = [str(p).split("/") for p in np.unique(paths[chosen].astype(str))]
            paths[chosen] = "/".join(_beginning(split))


@dataclass(frozen=True)
class _Values:
    """What stands at the place in the earlier and the later prompt, as numbers, and whether the
    latter was there before; (pairs,). Of tools it is the whole list.
    """

    before: Index
    after: Index
    seen: Mask

    def of(self, chosen: Index) -> _Values:
        return _Values(self.before[chosen], self.after[chosen], self.seen[chosen])


def _values(texts: Book, pairs: Pairs) -> _Values:
    """The values of all pairs."""
    before, after = (texts.at(side, pairs.place) for side in (pairs.earlier, pairs.later))
    seen, tools = pairs.seen.copy(), pairs.section == TOOLS
    if tools.any():
        count = np.bincount(texts.row[texts.section == TOOLS], minlength=texts.n)
        rows = np.flatnonzero(count > 0)
        chain = texts.chain(texts.part_hash, np.zeros(texts.n, np.int64))
        _, first, code = np.unique(
            chain[texts.offset[rows] + count[rows] - 1], return_index=True, return_inverse=True
        )
        listed = np.full(texts.n, -1, dtype=np.int64)
        listed[rows] = code
        # Rows are in order, so the first place of a list is that of its first request.
        new = np.ones(texts.n, dtype=bool)
        new[rows] = rows[first[code]] == rows
        before[tools], after[tools] = listed[pairs.earlier[tools]], listed[pairs.later[tools]]
        seen[tools] = ~new[pairs.later[tools]]
    return _Values(before, after, seen)


def _mask(chosen: Index, n: int) -> Mask:
    out = np.zeros(n, dtype=bool)
    out[chosen] = True
    return out


def _samples(texts: Book, pairs: Pairs) -> tuple[list[_Sample], Index]:
    """Look into a bounded number of pairs; for each pair the one that speaks for it, (pairs,).

    Of each place of a template, samples are spread over the positions of the difference. A pair of
    a place that was not looked into is spoken for by none (-1).
    """
    head = pairs.place < texts.head[pairs.later]
    slot = np.where(head, pairs.place, -1)
    key = pl.DataFrame(
        {
            "section": pairs.section, "slot": slot, "moved": pairs.basis == MOVED,
            "opening": pairs.basis == OPENING, "context": pairs.basis == CONTEXT,
            "anchor": np.where(head, pairs.anchor, -1),
        }
    )  # fmt: skip
    group = key.select(pl.struct(pl.all()).rank("dense"))["section"].cast(pl.Int64).to_numpy() - 1
    gain = (pairs.should - pairs.shared + pairs.after).astype(np.float64)
    weight = np.bincount(group, weights=gain)
    size = np.bincount(group)
    order = np.lexsort((pairs.later, pairs.shared, group))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    quota = np.minimum(size, PLACE_SAMPLES)
    by_weight = np.argsort(-weight, kind="stable")
    quota[by_weight[np.cumsum(quota[by_weight]) > MOST_SAMPLES]] = 0
    total, wanted = np.repeat(size, size), np.repeat(quota, size)
    chosen = (rank * wanted) // total != ((rank - 1) * wanted) // total
    chosen &= wanted > 0
    picked = order[chosen]
    samples = [_look_into(texts, pairs, int(i)) for i in picked]
    nearest = np.full(len(order), -1, dtype=np.int64)
    if len(picked):
        # In order of position, the one at or before: all of a place begin with the same text.
        index = np.maximum(np.cumsum(chosen) - 1, 0)
        spoken = picked[index]
        nearest[order] = np.where(group[spoken] == group[order], spoken, -1)
    return samples, nearest


def _look_into(texts: Book, pairs: Pairs, i: int) -> _Sample:
    """Name one pair's difference."""
    earlier, later, place = int(pairs.earlier[i]), int(pairs.later[i]), int(pairs.place[i])
    rows = np.array([earlier, later])
    a, b = (int(p) for p in texts.at(rows, np.array([place, place])))
    at = int(pairs.at[i])
    if a < 0 or b < 0:
        x = y = ""
        chars = 0
    else:
        x, y, chars = _cut(texts.text(a), texts.text(b), at)
    shown = tuple(t[max(0, chars - SHOWN) : chars + SHOWN] for t in (x, y))
    found: Difference | None = None
    if pairs.section[i] == TOOLS:
        found = differ_tools(_tools(texts, earlier), _tools(texts, later))
    if found is None:
        found = _named(texts, pairs, i, a, b, x, y, chars)
    return _Sample(i, found, shown[0], shown[1])


def _named(
    texts: Book, pairs: Pairs, i: int, a: int, b: int, x: str, y: str, at: int
) -> Difference | None:
    if (
        pairs.basis[i] == MOVED
        and pairs.shift[i] > 0
        and pairs.place[i] >= texts.head[pairs.later[i]]
    ):
        return Difference("other", at, path="trimmed_history")
    if a < 0 or b < 0:
        size = int(texts.part_bytes[max(a, b)]) if max(a, b) >= 0 else 0
        return Difference("changing_context" if size > FIELD_CHARS else "other", 0)
    if pairs.basis[i] == CONTEXT:
        # What is new is known by its length alone.
        return Difference("changing_context" if pairs.gap[i] > FIELD_CHARS else "other", at)
    found = differ(x, y, at)
    if pairs.place[i] < texts.head[pairs.later[i]]:
        return found
    if pairs.basis[i] == OPENING:
        # A text that changes all over is no template (a log, a table).
        plain = found.kind not in ("other", "changing_context") and len(found.also) < MOST_ALSO
        return found if plain else None
    if found.kind in ("other", "changing_context"):
        return replace(found, kind="other", path="edited_history")
    return found


def _cut(x: str, y: str, at: int) -> tuple[str, str, int]:
    """Two texts, or as much of long ones as is around the difference; its place in characters."""
    if max(len(x), len(y)) > LONGEST:
        common = agree(x, y)
        first = max(0, common - SHOWN * 20)
        return x[first : first + LONGEST // 4], y[first : first + LONGEST // 4], common - first
    return x, y, len(x.encode()[:at].decode(errors="ignore"))


def _tools(texts: Book, row: int) -> list[str]:
    flat = slice(int(texts.offset[row]), int(texts.offset[row + 1]))
    return [
        texts.text(int(p))
        for p, s in zip(texts.part[flat], texts.section[flat], strict=True)
        if s == TOOLS
    ]


def _same_but(samples: Sequence[_Sample], nearest: Index) -> Mask:
    """Whether the differing parts are the same in all but what changes by itself, (pairs,)."""
    same = np.zeros(len(nearest), dtype=bool)
    for sample in samples:
        same[sample.pair] = sample.difference is not None and sample.difference.same_but
    out: Mask = np.where(nearest >= 0, same[nearest], False)
    return out


def _own(samples: Sequence[_Sample], nearest: Index) -> Index:
    """Bytes of each later prompt that are values of its own, where all else is the same."""
    own = np.zeros(len(nearest), dtype=np.int64)
    for sample in samples:
        own[sample.pair] = sample.difference.own if sample.difference is not None else 0
    out: Index = np.where(nearest >= 0, own[nearest], 0)
    return out


def _expected(texts: Book, pairs: Pairs, same: Mask, own: Index) -> Index:
    """What pairs should share, (pairs,): all that is there in both, without what differs.

    Turns should share what they were paired for, less what is not the same in the heads. Pairs of
    one template should share all of the head, and first messages, where only values of their own
    differ.
    """
    tail = texts.common_tail(pairs.earlier, pairs.later)
    head = texts.head[pairs.later]
    tools = texts.first_of_section(pairs.later, np.ones_like(pairs.later))
    next_ = np.where(pairs.section == TOOLS, tools, pairs.place + 1)
    to_the_end = same & (tail >= head - next_)
    whole = to_the_end & (pairs.basis == TEMPLATE)
    begun = head + common_messages(texts, pairs.earlier, pairs.later)
    should = np.maximum(texts.bytes_before(pairs.later, begun) - own, pairs.should)
    out = np.where(whole, should, pairs.should)

    in_head = pairs.place < head
    turns = ~_is_across(pairs.basis) & in_head
    apart = np.maximum(pairs.head - pairs.shared - pairs.after, 0)
    # Of a part that is the same but for its values only these differ; then the next part's.
    further = same & ~to_the_end & in_head
    if further.any():
        rows, place = pairs.later[further], next_[further]
        a, b = texts.at(pairs.earlier[further], place), texts.at(rows, place)
        begin = texts.bytes_before(rows, place)
        begin += common_bytes(texts, a, b, (a >= 0) & (b >= 0), from_end=False)
        apart[further] = own[further] + np.maximum(
            pairs.head[further] - pairs.after[further] - begin, 0
        )
    apart = np.where(to_the_end, np.minimum(own, apart), apart)
    out = np.where(turns, np.maximum(out - apart, pairs.shared), out)
    headed = further & (pairs.basis == TEMPLATE)
    result: Index = np.where(headed, np.maximum(out, pairs.head - apart), out)
    return result


def _names(
    pairs: Pairs, samples: Sequence[_Sample], nearest: Index
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Kind and path of each pair, "" where it is no breaker; (pairs,)."""
    kinds = np.full(len(nearest), "other", dtype=object)
    paths = np.full(len(nearest), "", dtype=object)
    head_paths = np.array([f"{SECTIONS[s]}" for s in range(3)], dtype=object)
    series: dict[tuple[int, str], list[_Sample]] = {}
    for sample in samples:
        d, i = sample.difference, sample.pair
        if d is None:
            kinds[i] = ""
            continue
        history = d.path in ("trimmed_history", "edited_history")
        kinds[i] = d.path if history else d.kind
        paths[i] = d.path if d.path and not history else head_paths[pairs.section[i]]
        series.setdefault((int(pairs.section[i]), paths[i]), []).append(sample)
    for members in series.values():
        _settle(pairs, members, kinds)
    # A pair at a place nobody looked into keeps "other".
    spoken = nearest >= 0
    kinds[spoken] = kinds[nearest[spoken]]
    paths[spoken] = paths[nearest[spoken]]
    paths[~spoken] = head_paths[pairs.section[~spoken]]
    return kinds, paths


def _settle(pairs: Pairs, members: Sequence[_Sample], kinds: np.ndarray[Any, Any]) -> None:
    """Decide, over all samples of a place, what numbers and short texts are."""
    _agree(members, kinds)
    numbers = [s for s in members if s.difference and kinds[s.pair] == "number"]
    values = [s.difference.values for s in numbers if s.difference]
    one_way = _one_way(values)
    # A price, a temperature, a score: no id has a point in it.
    points = sum(_is_amount(value) for _, value in values)
    amounts = 2 * points >= len(values)
    surely = one_way >= SURELY and len(values) >= FEWEST_NUMBERS
    plainly = one_way >= MOSTLY and not amounts
    turning = any(kinds[s.pair] == "other" and pairs.basis[s.pair] != TEMPLATE for s in members)
    for sample in members:
        d, i = sample.difference, sample.pair
        assert d is not None
        across = pairs.basis[i] == TEMPLATE
        if kinds[i] in ("number", "id") and d.hint == "user" and across:
            kinds[i] = "user_field"
        elif kinds[i] == "number" and (surely or (plainly and d.hint != "id")):
            kinds[i] = "counter"
        elif kinds[i] == "number":
            kinds[i] = "other" if amounts else "id"
        elif kinds[i] == "other" and across and (d.hint == "user" or not turning):
            kinds[i] = "user_field"


def _agree(members: Sequence[_Sample], kinds: np.ndarray[Any, Any]) -> None:
    """Where most values at one place are times or ids, those that do not look it are as well."""
    places: dict[int, list[_Sample]] = {}
    for sample in members:
        assert sample.difference is not None
        places.setdefault(sample.difference.at, []).append(sample)
    for same in places.values():
        kind, times = Counter(kinds[s.pair] for s in same).most_common(1)[0]
        if kind in ("time", "id") and times >= 0.6 * len(same):
            for sample in same:
                if kinds[sample.pair] in ("time", "id", "number", "other"):
                    kinds[sample.pair] = kind


def _is_amount(number: str) -> bool:
    return bool({".", ","} & set(number)) and bool(_DECIMAL.fullmatch(number))


def _one_way(values: Sequence[tuple[str, str]]) -> float:
    """The part of the numbers that go the way that most go."""
    steps = []
    for before, after in values:
        try:
            steps.append(float(after.replace(",", "")) - float(before.replace(",", "")))
        except ValueError:
            continue
    up, down = sum(s > 0 for s in steps), sum(s < 0 for s in steps)
    return max(up, down) / len(steps) if steps else 0.0


def _habit(values: _Values, part: Pairs, rows: Looked) -> Habit:
    """Whether values are new each time, come back, or changed once."""
    across = _is_across(part.basis)
    mine = np.isin(rows.anchor, np.unique(part.anchor))
    could = int((mine & rows.turn).sum()) * bool((~across).any())
    could += int((mine & rows.first).sum()) * bool(across.any())
    moves = np.unique(np.stack([values.before, values.after]), axis=1)
    width = int(moves.max()) + 2
    back = np.isin(moves[0] * width + moves[1], moves[1] * width + moves[0])
    if not back.any() and (moves.shape[1] == 1 or len(part.later) <= RARE * could):
        return "once"
    return "thrashing" if values.seen.mean() >= 0.5 else "unique"


def _stands(
    kind: str, habit: Habit, part: Pairs, moves: _Values, rows: Looked, mine: Sequence[_Sample],
    tenant: pl.Series,
) -> bool:  # fmt: skip
    """Whether it is a breaker at all: across conversations, a few values are several templates."""
    if (part.basis == OPENING).all() and len(part.later) < FEWEST_OPENINGS:
        return False
    if kind in PLAIN or not (part.basis == TEMPLATE).all() or habit == "once":
        return True
    named = sum(s.difference is not None and s.difference.hint == "user" for s in mine)
    if kind == "user_field" and mine and 2 * named >= len(mine):
        return True
    if kind == "user_field" and _one_each(tenant.gather(part.later), moves):
        return True
    values = len(np.unique(moves.after))
    could = int((np.isin(rows.anchor, np.unique(part.anchor)) & rows.first).sum())
    return habit == "unique" and values >= FEWEST_VALUES and values >= OFTEN * could


def _one_each(tenant: pl.Series, moves: _Values) -> bool:
    """Whether each tenant has one value of its own."""
    values = pl.DataFrame({"tenant": tenant, "value": moves.after}).drop_nulls()
    tenants, pairs = values["tenant"].n_unique(), values.n_unique()
    return values.height == len(moves.after) and tenants > 1 and pairs == tenants


def _place(path: str, part: Pairs, texts: Book) -> str:
    """The path with its number, where it is the same in all pairs."""
    if "/" in path:
        return path
    number = np.unique(part.place - texts.first_of_section(part.later, part.section))
    return f"{path}/{number[0]}" if len(number) == 1 and number[0] >= 0 else path


def _also(texts: Book, pairs: Pairs, mine: Sequence[_Sample], per: Array) -> tuple[Also, ...]:
    """Later places of the same part that change in at least half of the samples."""
    seen: Counter[tuple[str, int]] = Counter()
    where: dict[tuple[str, int], list[float]] = {}
    for sample in mine:
        if sample.difference is None:
            continue
        for number, spot in enumerate(sample.difference.also):
            key = spot.kind, number
            seen[key] += 1
            beyond = spot.start - sample.difference.at
            ratio = per[pairs.later[sample.pair]]
            where.setdefault(key, []).append((pairs.shared[sample.pair] + beyond) * ratio)
    return tuple(
        Also("counter" if kind == "number" else kind, round(float(np.median(where[kind, number]))))
        for (kind, number), times in sorted(seen.items(), key=lambda item: item[0][1])
        if 2 * times >= len(mine)
    )


# --- logs with blocks -----------------------------------------------------------------------------


def _of_blocks(
    requests: pl.DataFrame, blocks: pl.Series, session: Index, model: Index, inputs: Array
) -> tuple[list[Breaker], Mask]:
    """Breakers by blocks alone: where, how often, and whether history was cut."""
    stuck = by_blocks(blocks, session, model, inputs)
    size = requests["block_tokens"].cast(pl.Int64).fill_null(0).to_numpy()
    out = []
    for kind, chosen in (
        ("unknown", stuck.grew | (stuck.shared == 0)),
        ("trimmed_history", ~stuck.grew & (stuck.shared > 0)),
    ):
        if not chosen.any():
            continue
        later = stuck.later[chosen]
        shared, ideal, should = (
            x[chosen] * size[later] for x in (stuck.shared, stuck.ideal, stuck.should)
        )
        breaker = _breaker(
            kind, "unknown" if kind == "unknown" else "messages", None,
            "thrashing" if stuck.seen[chosen].mean() >= 0.5 else "unique", requests, later,
            shared.astype(np.float64), np.maximum(should - ideal, 0).astype(np.float64),
            (should - shared).astype(np.float64),
        )  # fmt: skip
        out.append(replace(breaker, within_session=len(later)))
    return out, stuck.looked


def _breaker(
    kind: str, section: str, path: str | None, habit: Habit, requests: pl.DataFrame, later: Index,
    position: Array, lost: Array, apart: Array,
) -> Breaker:  # fmt: skip
    """Put one breaker together from its requests; tokens of each, (requests,)."""
    frame = pl.DataFrame(
        {
            "row": later,
            "tokens": np.round(lost).astype(np.int64),
            "apart": np.round(apart).astype(np.int64),
        }
    ).sort("row")
    shown = frame.sort("tokens", "apart", "row", descending=[True, True, False]).head(EXAMPLES)
    places = requests.select("source", "line")[shown["row"].to_numpy()]
    known = requests["session"].gather(later).fill_null(-1)
    known = known.filter(known >= 0)
    return Breaker(
        kind=kind,  # type: ignore[arg-type]
        section=section,
        path=path,
        position_tokens=round(float(np.median(position))),
        position_interval=(round(float(position.min())), round(float(position.max()))),
        habit=habit,
        requests=len(later),
        of_requests=0,
        sessions=known.n_unique() if len(known) else None,
        within_session=0,
        tokens_lost=int(frame["tokens"].sum()),
        tokens_apart=int(frame["apart"].sum()),
        lost=frame,
        examples=tuple((int(s or 0), int(line or 0)) for s, line in places.iter_rows()),
    )
