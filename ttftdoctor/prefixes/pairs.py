"""Which two prompts should share a beginning: turns of one conversation, prompts of one template.

Conversations are found by their messages (an earlier request's messages, all of them, begin this
one's, whatever stands before them), so that a broken head does not hide them. Each request is
judged once, against one earlier request.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.prefixes.kinds import LONGEST, agree
from ttftdoctor.prefixes.texts import (
    CHANGING,
    MESSAGES,
    Book,
    Hash,
    Index,
    Mask,
    cut,
    first_difference,
    keyed,
    last_difference,
    latest_before,
    masked,
    mix,
    piece,
    whole,
)

#: What a pair rests on: messages that go on; messages that moved; one template; one opening; one
#: text behind another that is always new.
TURN, MOVED, TEMPLATE, OPENING, CONTEXT = 0, 1, 2, 3, 4
#: Characters at the end of a head by which prompts of one template are found, of what is left of
#: so many bytes when spacing and what changes by itself is taken out.
ANCHOR, ANCHOR_BYTES = 96, 256
#: Bytes at the start of a message in which a stamp stands.
STAMP = 160
#: Heads are of one template where this part of the longer one is common to both.
ALIKE = 0.5
#: ... or, if every value is new, where so many bytes after the change are.
FOLLOWS = 200
#: ... and may be where their lengths differ by no more than this.
SAME_LENGTH = 0.05
#: Fewer bytes behind a change are not worth naming.
WORTH = 64
#: An opening message is read so far beyond its first difference, to see if it is one template.
OPENING_BYTES = 512
#: Openings are looked into in so many pairs of distinct texts.
OPENING_PAIRS = 80_000
#: Bytes around a change in which its begin and end are looked for; changes followed in a text.
CHANGE_BEFORE, CHANGE_BYTES, CHANGES = 48, 240, 12
#: Of prompts that begin alike so many are held against each other, and their first messages.
CONTEXT_SAMPLE, CONTEXT_MESSAGES = 48, 3
#: ... in so many groups; what is common is looked for at so many places, by so many characters.
CONTEXT_GROUPS, PROBES, PROBE = 8, 16, 48
#: ... must stand in this part of them, and be lost by half of all.
CONTEXT_SHARE, CONTEXT_FEWEST = 0.8, 4
#: Bytes by which prompts are found that begin alike.
OPENING_LENGTHS = (64, 256, 1024, 4096)
#: What stands between messages that are joined, so that nothing is found across them.
BETWEEN = "\x00"
#: A message that one prompt has more often than this says nothing of where it moved.
MOST_TIMES = 4
#: A message that moved must have so many bytes to be recognised by itself.
TELLING = 24


@dataclass(frozen=True)
class Pairs:
    """Pairs that should share more than they do.

    Arrays have one value a broken pair: ``earlier`` and ``later`` rows; ``basis`` (TURN ...);
    ``place`` of the first part that differs and ``section`` it is in; ``at`` bytes that its two
    texts have in common; ``shared`` bytes that the two prompts have in common, ``ideal`` bytes of
    the later one that some earlier prompt begins with, ``should`` bytes that it should have in
    common with the earlier one, all from its start; ``head`` and ``after`` bytes of the later head,
    and of its end that is common to both. ``seen`` tells if the later prompt's value at
    this place was there before; ``shift`` by how many messages history moved up. ``anchor`` numbers
    the later one's template, ``alike`` tells how much of the heads is common; pairs that are not
    ``sure`` have heads of one length only, and may be of two templates. ``gap`` bytes of the later
    one stand between the difference and what is common again, where that was looked for (CONTEXT).
    """

    earlier: Index
    later: Index
    basis: Index
    place: Index
    section: Index
    at: Index
    shared: Index
    ideal: Index
    should: Index
    head: Index
    after: Index
    seen: Mask
    shift: Index
    anchor: Index
    same_anchor: Mask
    sure: Mask
    alike: NDArray[np.float64]
    gap: Index

    def of(self, chosen: Mask) -> Pairs:
        """Some of the pairs."""
        return Pairs(**{name: column[chosen] for name, column in self.columns()})

    def with_should(self, should: Index) -> Pairs:
        """The same pairs with another expectation."""
        return replace(self, should=should)

    def columns(self) -> list[tuple[str, Any]]:
        """All arrays by name."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


@dataclass(frozen=True)
class Looked:
    """What each row was looked at for, (n,): as a later turn, or as the first of a conversation.

    ``anchor`` numbers its template, -1 for rows without text.
    """

    turn: Mask
    first: Mask
    anchor: Index


def by_text(book: Book, session: Index, model: Index) -> tuple[Pairs, Looked]:
    """Pair each request with the earlier one whose beginning it should share.

    Parameters
    ----------
    book
        The prompts, in order of arrival.
    session, model
        Numbers, (n,); session -1 where it is not known.

    Returns
    -------
    The broken pairs, and what each row was looked at for.
    """
    rows = np.flatnonzero(book.counts > 0)
    anchors = _anchors(book, model)
    group = _alone_is_unknown(session)
    scope = keyed(np.zeros(book.n, np.uint64), group, model)
    full = keyed(book.chain(book.part_hash, np.zeros(book.n, np.int64)), model[book.row])
    seen = _seen(book, full)

    raw, raw_depth = _continued(book, book.part_hash, scope, anchors)
    moved, moved_depth, shift = _moved(book, scope, raw_depth, group >= 0)
    stamped, stamped_depth = _continued(book, _stamp_free(book), scope, anchors)
    fits = _still_goes_on(book, stamped, stamped_depth)
    by_move = (moved >= 0) & (moved_depth > raw_depth)
    by_stamp = ~by_move & fits & (stamped_depth > raw_depth)
    earlier = np.select([by_move, by_stamp], [moved, stamped], raw)
    depth = np.select([by_move, by_stamp], [moved_depth, stamped_depth], raw_depth)
    basis = np.where(by_move, MOVED, TURN)
    turns = rows[earlier[rows] >= 0]
    broken = (seen[turns] < book.head[turns] + depth[turns]) | (basis[turns] == MOVED)
    turns = turns[broken]
    going = _compared(
        book, earlier[turns], turns, basis[turns],
        book.bytes_before(turns, book.head[turns] + depth[turns]),
        seen, anchors, np.where(by_move, shift, 0)[turns],
    )  # fmt: skip
    good = _one_conversation(book, going, depth[turns])
    earlier[turns[~good]] = -1

    first = rows[earlier[rows] < 0]
    before = latest_before(
        anchors[first].astype(np.uint64), first, anchors[rows].astype(np.uint64), rows
    )
    paired = (book.head[first] > 0) & (before >= 0)
    heads = _head_key(book, full, np.arange(book.n))
    differ = paired & (heads[first] != heads[np.maximum(before, 0)])
    headed = _templates(book, before[differ], first[differ], seen, anchors, heads[first[differ]])
    opening, opened = _openings(book, first[~differ], full, group, model, seen, anchors)
    behind = _contexts(book, first[~differ], opening.later, full, model, seen, anchors)
    found = (going.of(good), headed, opening, behind)
    opened[first[paired]] = True
    opened[behind.later] = True
    columns = [name for name, _ in opening.columns()]
    together = {name: np.concatenate([getattr(p, name) for p in found]) for name in columns}
    return Pairs(**together), Looked(turn=earlier >= 0, first=opened, anchor=anchors)


def _alone_is_unknown(session: Index) -> Index:
    """A session of one request names a request, not a conversation."""
    known = session >= 0
    size = np.bincount(session[known]) if known.any() else np.zeros(1, np.int64)
    return np.where(known & (size[np.maximum(session, 0)] > 1), session, -1)


def _anchors(book: Book, model: Index) -> Index:
    """Number templates by the end of their head, what changes by itself taken out."""
    out = np.full(book.n, -1, dtype=np.int64)
    rows = np.flatnonzero(book.counts > 0)
    last = book.at(rows, book.head[rows] - 1)
    # Tools alone may stand in any order: one anchor for all of a model.
    place = book.offset[rows] + np.maximum(book.head[rows] - 1, 0)
    is_tool = (last >= 0) & (book.section[place] < 1)
    last = np.where(is_tool, -2, last)
    used = np.unique(last[last >= 0])
    code = np.zeros(len(book.texts) + 2, dtype=np.int64)
    if len(used):
        # Spacing is taken out before the end is taken: line ends make texts longer.
        tails = masked(cut(book.texts.gather(used), ANCHOR_BYTES, tail=True)).str.tail(ANCHOR)
        code[used] = np.unique(tails.hash(5).to_numpy(), return_inverse=True)[1] + 2
    key = np.where(last >= 0, code[np.maximum(last, 0)], last + 2)
    out[rows] = np.unique(keyed(key.astype(np.uint64), model[rows]), return_inverse=True)[1]
    return out


def _seen(book: Book, full: Hash) -> Index:
    """How many of its first parts each prompt shares with some earlier prompt, (n,)."""
    _, first, code = np.unique(full, return_index=True, return_inverse=True)
    earlier = book.row[first[code]] < book.row
    out = np.zeros(book.n, dtype=np.int64)
    np.add.at(out, book.row[earlier], 1)
    return out


def _ends(book: Book) -> tuple[Index, Index]:
    """The rows that have messages, and their last flat part."""
    rows = np.flatnonzero(book.messages > 0)
    return rows, book.offset[rows + 1] - 1


def _continued(book: Book, hashes: Hash, scope: Hash, anchors: Index) -> tuple[Index, Index]:
    """The earlier request all of whose messages begin this one's, the longest and latest such.

    Of two, one of the same template is preferred. Returns rows (-1: none) and messages, (n,).
    """
    chain = keyed(book.chain(hashes, book.head), scope[book.row])
    rows, ends = _ends(book)
    inner = np.flatnonzero(book.section == MESSAGES)
    here = book.row[inner]
    depth = book.place[inner] - book.head[here] + 1
    alike = latest_before(
        keyed(chain[inner], anchors[here]), here, keyed(chain[ends], anchors[rows]), rows
    )
    found = np.where(alike >= 0, alike, latest_before(chain[inner], here, chain[ends], rows))
    parent = np.full(book.n, -1, dtype=np.int64)
    deepest = np.zeros(book.n, dtype=np.int64)
    hit = found >= 0
    # Flat parts run from the first message to the last: later writes are deeper.
    parent[here[hit]] = found[hit]
    deepest[here[hit]] = depth[hit]
    return parent, deepest


def _stamp_free(book: Book) -> Hash:
    """Hashes of texts that do not see what changes by itself in their first bytes."""
    out = book.part_hash.copy()
    used = np.unique(book.part[book.section == MESSAGES])
    if len(used):
        texts = book.texts.gather(used)
        size = texts.str.len_bytes().cast(pl.Int64).to_numpy()
        head = cut(texts, STAMP)
        after = piece(texts, head.str.len_bytes().cast(pl.Int64).to_numpy(), size)
        out[used] = mix(masked(head).hash(1).to_numpy()) ^ after.fill_null("").hash(5).to_numpy()
    return out


def _still_goes_on(book: Book, parent: Index, depth: Index) -> Mask:
    """Where messages go on but for their stamps: the change is before the last, enough follows."""
    rows = np.flatnonzero(parent >= 0)
    out = np.zeros(book.n, dtype=bool)
    kept = common_messages(book, parent[rows], rows)
    behind = book.bytes_before(rows, book.head[rows] + depth[rows]) - book.bytes_before(
        rows, book.head[rows] + kept
    )
    out[rows] = (kept < depth[rows] - 1) & (behind >= WORTH)
    return out


def common_messages(book: Book, a: Index, b: Index) -> Index:
    """How many first messages two prompts have in common, whatever stands before them."""
    inner = Book(
        book.n, np.concatenate(([0], np.cumsum(book.messages))),
        book.part[book.section == MESSAGES], book.section[book.section == MESSAGES],
        book.texts, book.part_bytes, book.part_hash, np.zeros(book.n, np.int64),
    )  # fmt: skip
    return inner.common(a, b)


def _moved(book: Book, scope: Hash, depth: Index, known: Mask) -> tuple[Index, Index, Index]:
    """The earlier request whose messages stand in this one at another place, or among others.

    A message that was there before, but not as the continuation of the same ones, points to the
    latest request that had it. Of that request the end must be found here again, in order; what
    differs must not be its last message (a branch, or a document that is sent only once).

    Returns
    -------
    The rows, the messages of this one up to the last that was there, and by how many messages it
    moved up (0: the history before it was edited), (n,); -1, 0 and 0 where there is none.
    """
    nothing = np.full(book.n, -1, dtype=np.int64)
    zero = np.zeros(book.n, dtype=np.int64)
    flat = np.flatnonzero(book.section == MESSAGES)
    key = keyed(mix(book.part[flat].astype(np.uint64)), scope[book.row[flat]])
    asked = flat[book.place[flat] - book.head[book.row[flat]] >= depth[book.row[flat]]]
    # Of each prompt's new messages the very last cannot have moved: it is what is asked now.
    asked = asked[asked < book.offset[book.row[asked] + 1] - 1]
    before = latest_before(
        keyed(mix(book.part[asked].astype(np.uint64)), scope[book.row[asked]]),
        book.row[asked], key, book.row[flat],
    )  # fmt: skip
    votes = (
        pl.DataFrame({"row": book.row[asked], "earlier": before})
        .filter(pl.col("earlier") >= 0)
        .group_by("row", "earlier")
        .len()
        .sort("row", "len", "earlier")
        .group_by("row", maintain_order=True)
        .last()
    )
    if not votes.height:
        return nothing, zero, zero
    later, earlier = votes["row"].to_numpy(), votes["earlier"].to_numpy()
    kept = common_messages(book, earlier, later)
    sides = [_listed(book, rows, name) for rows, name in ((earlier, "was"), (later, "now"))]
    together = (
        sides[0]
        .join(sides[1], on=["pair", "part"])
        .join(pl.DataFrame({"pair": np.arange(len(kept)), "kept": kept}), on="pair")
        .filter(pl.col("was") >= pl.col("kept"), pl.col("now") >= pl.col("kept"))
        .with_columns(shift=pl.col("was") - pl.col("now"))
    )
    # The last message of the earlier prompt that is found again, at its first place after.
    ended = (
        together.sort("pair", "was", "now")
        .group_by("pair", maintain_order=True)
        .agg(pl.col("was").last(), pl.col("now").last(), pl.col("shift").last())
    )
    along = (
        together.join(ended.select("pair", aligned="shift"), on="pair")
        .filter(pl.col("shift") == pl.col("aligned"))
        .group_by("pair")
        .agg(run=pl.len(), run_bytes=pl.col("bytes").sum())
    )
    ended = ended.join(along, on="pair")
    pair = ended["pair"].to_numpy()
    was, now, run = (ended[c].to_numpy().astype(np.int64) for c in ("was", "now", "run"))
    late, early, common = later[pair], earlier[pair], kept[pair]
    short = np.where(known[late], 1, 0)
    good = (
        (common < book.messages[early] - 1)
        & (was >= book.messages[early] - 1 - short)
        & (run >= 0.4 * (now + 1 - common))
        & (run >= np.where(known[late], 1, 2))
        & ((run > 1) | (ended["run_bytes"].to_numpy() >= TELLING))
        & (now < book.messages[late] - 1)
    )
    out, far, shift = nothing, zero, zero.copy()
    out[late[good]] = early[good]
    far[late[good]] = now[good] + 1
    shift[late[good]] = ended["shift"].to_numpy()[good]
    return out, far, shift


def _listed(book: Book, rows: Index, name: str) -> pl.DataFrame:
    """The messages of prompts: ``pair``, ``part``, the place in the conversation, ``bytes``."""
    lengths = book.messages[rows]
    inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    part = book.part[np.repeat(book.offset[rows] + book.head[rows], lengths) + inner]
    columns = {"pair": np.repeat(np.arange(len(rows)), lengths), "part": part, name: inner}
    if name == "was":
        columns["bytes"] = book.part_bytes[part]
    # The same word said over and over would be paired with itself each time.
    return pl.DataFrame(columns).filter(pl.len().over("pair", "part") <= MOST_TIMES)


def _compared(
    book: Book, earlier: Index, later: Index, basis: Index, should: Index, seen: Index,
    anchors: Index, shift: Index,
) -> Pairs:  # fmt: skip
    """Find the first difference of each pair, and what the heads have in common."""
    place = book.common(earlier, later)
    a, b = book.at(earlier, place), book.at(later, place)
    section_a, section_b = book.section_at(earlier, place), book.section_at(later, place)
    # Where one has a tool or a message more, sections differ, and nothing of the parts is common.
    at = common_bytes(book, a, b, (a >= 0) & (b >= 0) & (section_a == section_b), from_end=False)
    shared = book.bytes_before(later, place) + at
    tail = book.common_tail(earlier, later)
    head_a = book.bytes_before(earlier, book.head[earlier])
    head_b = book.bytes_before(later, book.head[later])
    last_a, last_b = book.head[earlier] - tail - 1, book.head[later] - tail - 1
    within = (last_a >= place) & (last_b >= place)
    after = head_b - book.bytes_before(later, np.maximum(book.head[later] - tail, 0))
    after += common_bytes(
        book, book.at(earlier, last_a), book.at(later, last_b), within, from_end=True
    )
    shorter, longer = np.minimum(head_a, head_b), np.maximum(head_a, head_b)
    after = np.minimum(after, np.maximum(shorter - shared, 0))
    common = np.minimum(shared, shorter) + after
    return Pairs(
        earlier=earlier, later=later, basis=basis, place=place,
        section=np.minimum(section_a, section_b), at=at, shared=shared,
        ideal=np.maximum(shared, book.bytes_before(later, seen[later])),
        should=np.where(basis == TEMPLATE, common, should), head=head_b, after=after,
        seen=seen[later] > place, shift=shift, anchor=anchors[later],
        same_anchor=anchors[earlier] == anchors[later], sure=np.ones(len(later), dtype=bool),
        alike=np.where(longer > 0, common / np.maximum(longer, 1), 1.0),
        gap=np.zeros_like(shared),
    )  # fmt: skip


def common_bytes(book: Book, a: Index, b: Index, both: Mask, *, from_end: bool) -> Index:
    """Bytes that the texts of parts have in common; each pair of distinct texts only once."""
    out = np.zeros(len(a), dtype=np.int64)
    chosen = np.flatnonzero(both)
    if not len(chosen):
        return out
    width = len(book.texts)
    pairs, code = np.unique(a[chosen] * width + b[chosen], return_inverse=True)
    x, y = book.texts.gather(pairs // width), book.texts.gather(pairs % width)
    out[chosen] = (last_difference if from_end else first_difference)(x, y)[code]
    return out


def _one_conversation(book: Book, pairs: Pairs, depth: Index) -> Mask:
    """Whether heads that differ head one conversation, and not two uses of its messages.

    A title is asked for, or a summary, with another system prompt and the same messages. A first
    message alone, which many say, proves less than an exchange.
    """
    in_messages = pairs.place >= np.maximum(book.head[pairs.earlier], book.head[pairs.later])
    some = np.minimum(pairs.shared, pairs.head) + pairs.after >= WORTH
    out: Mask = in_messages | pairs.same_anchor | (pairs.alike >= ALIKE) | ((depth > 1) & some)
    return out


def _head_key(book: Book, full: Hash, rows: Index) -> Hash:
    """What stands for the whole head of a prompt; 0 for none."""
    flat = book.offset[rows] + book.head[rows] - 1
    out: Hash = np.where(
        book.head[rows] > 0, full[np.clip(flat, 0, max(len(full) - 1, 0))], np.uint64(0)
    )
    return out


def _templates(
    book: Book, earlier: Index, later: Index, seen: Index, anchors: Index, heads: Hash
) -> Pairs:
    """Pairs of conversations with heads that end alike: one template, or two.

    It is one where most of the head is common, or much behind the change while every value is new
    (documents before the instructions). Where only the lengths are alike (things may stand in
    another order, or be spaced otherwise) it is left open.
    """
    basis = np.full(len(later), TEMPLATE)
    pairs = _compared(book, earlier, later, basis, basis, seen, anchors, np.zeros_like(basis))
    values = (
        pl.DataFrame({"anchor": anchors[later], "head": heads})
        .group_by("anchor")
        .agg(pl.len(), pl.col("head").n_unique().alias("values"))
        .filter(pl.col("len") >= 4, pl.col("values") >= ALIKE * pl.col("len"))
    )
    always_new = np.isin(pairs.anchor, values["anchor"].to_numpy())
    head_a = book.bytes_before(earlier, book.head[earlier])
    sure = (pairs.alike >= ALIKE) | (always_new & (pairs.after >= FOLLOWS))
    pairs = replace(pairs, sure=sure)
    return pairs.of(sure | (np.abs(head_a - pairs.head) <= SAME_LENGTH * pairs.head))


def _openings(
    book: Book, first: Index, full: Hash, group: Index, model: Index, seen: Index, anchors: Index
) -> tuple[Pairs, Mask]:
    """Pairs whose heads agree and whose next message begins as one template.

    Of a session the request before is taken, else the latest with the same first bytes but for
    what changes by itself. Prompts that come as one text are judged here as well.
    """
    rows, _ = _ends(book)
    first = first[book.messages[first] > 0]
    opening = book.at(rows, book.head[rows])
    used, code = np.unique(opening, return_inverse=True)
    starts = masked(cut(book.texts.gather(used), STAMP // 2)).hash(1).to_numpy()
    by_head = keyed(_head_key(book, full, np.arange(book.n)), model)
    by_start = np.zeros(book.n, np.uint64)
    by_start[rows] = keyed(starts[code], by_head[rows])
    by_session = keyed(by_head, group, anchors)
    in_session = rows[group[rows] >= 0]
    same_session = latest_before(by_session[first], first, by_session[in_session], in_session)
    same_start = latest_before(by_start[first], first, by_start[rows], rows)
    before = np.where((group[first] >= 0) & (same_session >= 0), same_session, same_start)
    later, earlier = first[before >= 0], before[before >= 0]
    looked = np.zeros(book.n, dtype=bool)
    looked[later] = True
    basis = np.full(len(later), OPENING)
    nothing = np.zeros_like(basis)
    pairs = _compared(book, earlier, later, basis, nothing, seen, anchors, nothing)
    a, b = book.at(earlier, pairs.place), book.at(later, pairs.place)
    good = (pairs.section == MESSAGES) & (a >= 0) & (b >= 0)
    good &= pairs.at < np.where(a >= 0, book.part_bytes[a], 0)
    pairs, a, b = pairs.of(good), a[good], b[good]
    one_template = _letters_behind(book, a, b, pairs.at) >= WORTH
    pairs, a, b = pairs.of(one_template), a[one_template], b[one_template]
    gain = _kept_behind(book, a, b, pairs.at)
    pairs = pairs.with_should(pairs.shared + gain).of(gain >= WORTH)
    return _with_rivals(book, pairs, first, by_head, seen, anchors), looked


def _with_rivals(
    book: Book, pairs: Pairs, rows: Index, scope: Hash, seen: Index, anchors: Index
) -> Pairs:
    """The same pairs with what another prompt, whose value is the same, holds of the later one."""
    rival = _same_opening(book, pairs.later, rows, scope)
    other = np.flatnonzero((rival >= 0) & (rival != pairs.earlier))
    basis = pairs.basis[other]
    held = _compared(
        book, rival[other], pairs.later[other], basis, basis, seen, anchors, np.zeros_like(basis)
    ).shared
    ideal = pairs.ideal.copy()
    ideal[other] = np.maximum(ideal[other], held)
    known = pairs.seen.copy()
    known[other] |= held > pairs.shared[other]
    return replace(pairs, ideal=ideal, seen=known)


def _letters_behind(book: Book, a: Index, b: Index, at: Index) -> Index:
    """Letters soon behind the first difference that two texts have in common but for what changes.

    Only letters between such places count, so that tables of numbers are not taken for one text.
    """
    key, where, code = _distinct(book, a, b)
    chosen = np.arange(len(key))[:: max(1, -(-len(key) // OPENING_PAIRS))]
    sides = []
    for part in (a[where][chosen], b[where][chosen]):
        text = book.texts.gather(part)
        size = text.str.len_bytes().cast(pl.Int64).to_numpy()
        start = whole(text, np.maximum(at[where][chosen] - 32, 0))
        stop = whole(text, np.minimum(at[where][chosen] + OPENING_BYTES, size))
        sides.append(masked(piece(text, start, stop)))
    agreed = first_difference(sides[0], sides[1])
    kept = piece(sides[0], np.zeros_like(agreed), agreed).str.replace_all(r"[0\W_]+", "")
    found = kept.str.len_bytes().fill_null(0).cast(pl.Int64).to_numpy()
    out = np.zeros(len(key), dtype=np.int64)
    out[chosen] = np.maximum(found - 32, 0)
    result: Index = out[code]
    return result


def _distinct(book: Book, a: Index, b: Index) -> tuple[Index, Index, Index]:
    """Pairs of distinct texts, where each stands first, and the number of each pair's."""
    key, where, code = np.unique(a * len(book.texts) + b, return_index=True, return_inverse=True)
    return key, where, code


def _kept_behind(book: Book, a: Index, b: Index, at: Index) -> Index:
    """Bytes behind the first difference that two texts have in common, (pairs,).

    From each difference both texts are read to the end of what changes by itself there, and from
    there on compared again, all pairs at once, until they agree in nothing.
    """
    key, where, code = _distinct(book, a, b)
    kept = np.zeros(len(key), dtype=np.int64)
    live = np.arange(len(key))
    sides = (a[where], b[where])
    place = [at[where].copy(), at[where].copy()]
    for _ in range(CHANGES):
        if not len(live):
            break
        texts = [book.texts.gather(side[live]) for side in sides]
        ends = [_change_ends(text, p[live]) for text, p in zip(texts, place, strict=True)]
        step = first_difference(texts[0], texts[1], (ends[0], ends[1]))
        kept[live] += step
        for p, end in zip(place, ends, strict=True):
            p[live] = end + step
        live = live[step > 0]
    out: Index = kept[code]
    return out


def _change_ends(text: pl.Series, place: Index) -> Index:
    """The end of what changes by itself at a place (a date, an id, numbers, spacing), in bytes."""
    size = text.str.len_bytes().cast(pl.Int64).to_numpy()
    before = piece(text, whole(text, np.maximum(place - CHANGE_BEFORE, 0)), place).fill_null("")
    back = before.str.extract(r"([\w+/=:.\-]*|\s*)$").str.len_bytes().fill_null(0)
    start = place - back.cast(pl.Int64).to_numpy()
    stop = whole(text, np.minimum(start + CHANGE_BYTES, size))
    run = (
        piece(text, start, stop).str.extract(rf"^(\s*(?:{CHANGING})?)").str.len_bytes().fill_null(0)
    )
    out: Index = np.maximum(start + run.cast(pl.Int64).to_numpy(), place)
    return out


# --- what is common behind what is always new -----------------------------------------------------


def _contexts(
    book: Book, first: Index, known: Index, full: Hash, model: Index, seen: Index, anchors: Index
) -> Pairs:
    """Pairs of prompts that say the same behind something that is new in each.

    Documents before the instructions, in messages or in prompts of one text. Of prompts whose heads
    agree a few are searched for a text that most of them have; then all are looked at. Rows that
    are ``known`` have been paired already.
    """
    nothing = np.zeros(0, dtype=np.int64)
    empty = _compared(book, nothing, nothing, nothing, nothing, seen, anchors, nothing)
    first = first[book.messages[first] > 0]
    if len(first) < CONTEXT_FEWEST:
        return empty
    key = keyed(_head_key(book, full, first), model[first])
    _, code, count = np.unique(key, return_inverse=True, return_counts=True)
    weight = np.bincount(code, weights=book.size(first))
    found = [empty]
    for group in np.argsort(-weight, kind="stable")[:CONTEXT_GROUPS]:
        if count[group] < CONTEXT_FEWEST:
            continue
        rows = first[code == group]
        if np.isin(rows, known).mean() >= ALIKE:
            continue
        probe = _common_body(_sampled(book, rows))
        if probe is not None:
            found.append(_behind(book, rows, known, probe, seen, anchors))
    names = [name for name, _ in empty.columns()]
    return Pairs(**{name: np.concatenate([getattr(p, name) for p in found]) for name in names})


def _sampled(book: Book, rows: Index) -> list[str]:
    """The first messages of some prompts, evenly spread, each as one text."""
    step = max(1, len(rows) // CONTEXT_SAMPLE)
    out = []
    for row in rows[::step][:CONTEXT_SAMPLE]:
        begin = int(book.offset[row] + book.head[row])
        stop = min(begin + CONTEXT_MESSAGES, int(book.offset[row + 1]))
        out.append(BETWEEN.join(book.text(int(p))[:LONGEST] for p in book.part[begin:stop]))
    return out


def _common_body(texts: list[str]) -> str | None:
    """A piece of the longest text that most texts have behind their beginnings; None for none."""
    best, longest = None, FOLLOWS - 1
    for a, b in list(pairwise(texts))[:: max(1, len(texts) // 8)]:
        block = max(_longest_common(a, b).split(BETWEEN), key=len)
        if len(block) <= longest:
            continue
        middle = len(block) // 2
        probe = block[max(0, middle - PROBE // 2) : middle + PROBE // 2]
        if sum(probe in text for text in texts) >= CONTEXT_SHARE * len(texts):
            best, longest = probe, len(block)
    return best


def _longest_common(a: str, b: str) -> str:
    """The longest text that stands in both, of those that begin at some places of the second."""
    shared, best = agree(a, b), ""
    for k in range(PROBES):
        place = shared + (len(b) - shared) * k // PROBES
        there = a.find(b[place : place + PROBE], shared)
        if there < 0 or place + PROBE > len(b):
            continue
        ahead = agree(a[there:], b[place:])
        back = agree(a[shared:there][::-1], b[shared:place][::-1])
        if back + ahead > len(best):
            best = b[place - back : place + ahead]
    return best


def _behind(
    book: Book, rows: Index, known: Index, probe: str, seen: Index, anchors: Index
) -> Pairs:
    """Pair the prompts that have a text with the one before that has it, and see what is lost."""
    inner = np.concatenate(
        [book.offset[rows] + book.head[rows] + k for k in range(CONTEXT_MESSAGES)]
    )
    row = np.tile(rows, CONTEXT_MESSAGES)
    inside = inner < book.offset[row + 1]
    inner, row = inner[inside], row[inside]
    parts, code = np.unique(book.part[inner], return_inverse=True)
    place = book.texts.gather(parts).str.find(probe, literal=True)
    start = place.cast(pl.Int64).fill_null(-1).to_numpy()[code]
    hit = np.flatnonzero(start >= 0)
    # The first message that has it; later writes win.
    at = np.full(book.n, -1, dtype=np.int64)
    at[row[hit[::-1]]] = hit[::-1]
    having = rows[at[rows] >= 0]
    later, earlier = having[1:], having[:-1]
    # All are of one group, so that their heads are the same.
    alike = _same_opening(book, later, having, np.zeros(book.n, np.uint64))
    earlier = np.where(alike >= 0, alike, earlier)
    basis = np.full(len(later), CONTEXT)
    zero = np.zeros_like(basis)
    pairs = _compared(book, earlier, later, basis, zero, seen, anchors, zero)
    x, y = (book.texts.gather(book.part[inner[at[side]]]) for side in (earlier, later))
    in_x, in_y = start[at[earlier]], start[at[later]]
    back = last_difference(x, y, (in_x, in_y))
    ahead = first_difference(x, y, (in_x, in_y))
    begin = book.bytes_before(later, book.place[inner[at[later]]]) + in_y
    end, begin = begin + ahead, np.maximum(begin - back, pairs.ideal)
    good = (end - begin >= FOLLOWS) & (begin > pairs.ideal)
    # Of those that no other pair speaks for, half must be broken, and so of all.
    free = ~np.isin(later, known) & (pairs.section == MESSAGES)
    if (
        not len(good)
        or min(good.mean(), (good & free).sum() / max(free.sum(), CONTEXT_FEWEST)) < ALIKE
    ):
        good[:] = False
    good &= free
    pairs = replace(pairs, should=pairs.ideal + end - begin, gap=begin - pairs.shared)
    return pairs.of(good)


def _same_opening(book: Book, later: Index, having: Index, scope: Hash) -> Index:
    """The latest of some rows before each whose first message begins alike, by as many bytes as
    any does; of one scope, (n,).
    """
    parts, code = np.unique(book.at(having, book.head[having]), return_inverse=True)
    out = np.full(len(later), -1, dtype=np.int64)
    for limit in OPENING_LENGTHS:
        key = cut(book.texts.gather(parts), limit).hash(1).to_numpy()[code]
        key = keyed(key, scope[having])
        found = latest_before(key[np.searchsorted(having, later)], later, key, having)
        out = np.where(found >= 0, found, out)
    return out
