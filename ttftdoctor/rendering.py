"""Prompts as a model sees them: one run of text a request, cut into blocks whose ids chain.

Compiled, because text is read letter by letter. Two requests share a rendered prefix where a chat
template would give them one: tools, then system text, then messages; of a message its role, its
text, and what templates print beside it (calls of tools, names). Members that no template prints
(ids, times, ``cache_control``) are left out; the order of ``role`` and ``content`` does not
matter, while that inside a tool does, as templates dump tools as JSON. JSON is written without
spaces between its tokens and with no needless escape, so that the way a log was written does not
show.

A *span* is a pair of byte offsets into a buffer of UTF-8; a start of -1 says there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Ids = NDArray[np.uint64]

#: Sections of a rendered prompt, in rendering order; parts name them by their index.
SECTIONS = ("tools", "system", "messages")
TOOLS, SYSTEM, MESSAGES = range(3)

#: What became of a row: no prompt logged, rendered, or something that makes no sense.
ABSENT, READ, UNREAD = range(3)

#: Ends a message as the end-of-turn token of a template does ("end of text" in ASCII).
END_OF_TEXT = 3

#: JSON nested deeper than this is taken for damaged.
MAX_DEPTH = 256

#: At most so many members of one message are printed beside role and content.
_MAX_EXTRAS = 16

Work = TypeVar("Work", bound=Callable[..., Any])


def _outer(work: Work) -> Work:
    """Compile a function; kept on disk, so that only its first use ever waits for that."""
    jit: Any = numba.njit
    return cast("Work", jit(cache=True, nogil=True)(work))


def _inner(work: Work) -> Work:
    """As :func:`_outer`, for what only compiled functions call: half the time to compile."""
    wrapped = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    jit: Any = numba.njit
    return cast("Work", jit(cache=True, nogil=True, **wrapped)(work))


def _word(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


_ROLE, _CONTENT, _PARTS, _TYPE, _TEXT = (
    _word(key) for key in ("role", "content", "parts", "type", "text")
)
_CACHE, _ID, _STATUS = (_word(key) for key in ("cache_control", "id", "status"))
_SYSTEM, _DEVELOPER, _USER = (_word(role) for role in ("system", "developer", "user"))
_INPUT_TEXT, _OUTPUT_TEXT = (_word(kind) for kind in ("input_text", "output_text"))
_TRUE, _FALSE, _NULL, _NAN = (_word(value) for value in ("true", "false", "null", "NaN"))


def _names(*words: str) -> tuple[Bytes, Ints]:
    return _word("".join(words)), np.cumsum([0, *map(len, words)])


#: Members of a message that templates print beside its content.
_PRINTED, _PRINTED_ENDS = _names(
    "name", "tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning",
    "thinking", "refusal", "tool_name", "images",
)  # fmt: skip


# ------------------------------------------------------------------------------------- JSON


@_inner
def _whole(number: int) -> int:
    """The number, handed on as any number: a literal would have all it meets compiled for it."""
    return number + 0


@_inner
def _flag(value: bool) -> bool:
    """As :func:`_whole`, for true and false."""
    return value | False


@_inner
def _same(text: Bytes, start: int, stop: int, word: Bytes) -> bool:
    if stop - start != len(word):
        return False
    same = True
    for i in range(len(word)):
        same &= text[start + i] == word[i]
    return same


@_inner
def _printed(text: Bytes, start: int, stop: int) -> bool:
    for i in range(len(_PRINTED_ENDS) - 1):
        if _same(text, start, stop, _PRINTED[_PRINTED_ENDS[i] : _PRINTED_ENDS[i + 1]]):
            return True
    return False


@_inner
def _space(text: Bytes, at: int, end: int) -> int:
    """The first byte from ``at`` on that is no white space of JSON."""
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += 1
    return at


@_inner
def _quote(text: Bytes, at: int, end: int) -> int:
    """Where the string that opens at ``at`` closes; -1 if it never does."""
    at += 1
    while at < end:
        c = text[at]
        if c == 34:
            return at
        at += 2 if c == 92 else 1
    return -1


@_inner
def _skip(text: Bytes, at: int, end: int) -> int:
    """The byte after the value at ``at``, looking at its brackets and strings only; -1: torn."""
    depth = 0
    while at < end:
        c = text[at]
        if c == 34:
            at = _quote(text, at, end)
            if at < 0:
                return -1
        elif c == 123 or c == 91:
            depth += 1
        elif c == 125 or c == 93:
            if depth == 0:
                return at  # the end of what the value lies in
            depth -= 1
            if depth == 0:
                return at + 1
        elif depth == 0 and (c == 44 or c == 32 or c == 10 or c == 13 or c == 9):
            return at
        at += 1
        if depth == 0 and c == 34:
            return at
    return -1 if depth else at


@_inner
def _member(text: Bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    """The next member of an object: start and stop of its key and value, and where to go on.

    ``at`` is behind the opening brace or behind the member before. The last number is -1 where
    the object is torn, and the first is -1 where it ends.
    """
    at = _space(text, at, end)
    if at < end and text[at] == 44:
        at = _space(text, at + 1, end)
    if at >= end:
        return -1, -1, -1, -1, -1
    if text[at] == 125:
        return -1, -1, -1, -1, at + 1
    if text[at] != 34:
        return -1, -1, -1, -1, -1
    close = _quote(text, at, end)
    if close < 0:
        return -1, -1, -1, -1, -1
    start = _space(text, close + 1, end)
    if start >= end or text[start] != 58:
        return -1, -1, -1, -1, -1
    start = _space(text, start + 1, end)
    stop = _skip(text, start, end)
    if stop <= start:
        return -1, -1, -1, -1, -1
    return at + 1, close, start, stop, stop


@_inner
def _hex(text: Bytes, at: int, end: int) -> int:
    """The number that four hexadecimal digits name; -1 if they are none."""
    if at + 4 > end:
        return -1
    code = 0
    for i in range(at, at + 4):
        c = int(text[i])
        if 48 <= c <= 57:
            digit = c - 48
        elif 65 <= c <= 70:
            digit = c - 55
        elif 97 <= c <= 102:
            digit = c - 87
        else:
            return -1
        code = code * 16 + digit
    return code


@_inner
def _letter(code: int, out: Bytes, o: int) -> int:
    """Write a code point as UTF-8."""
    if code < 0x80:
        out[o] = code
        return o + 1
    if code < 0x800:
        out[o] = 0xC0 | code >> 6
        out[o + 1] = 0x80 | code & 63
        return o + 2
    if code < 0x10000:
        out[o] = 0xE0 | code >> 12
        out[o + 1] = 0x80 | code >> 6 & 63
        out[o + 2] = 0x80 | code & 63
        return o + 3
    out[o] = 0xF0 | code >> 18
    out[o + 1] = 0x80 | code >> 12 & 63
    out[o + 2] = 0x80 | code >> 6 & 63
    out[o + 3] = 0x80 | code & 63
    return o + 4


@_inner
def _string(text: Bytes, at: int, stop: int, out: Bytes, o: int, json: bool) -> int:
    """Copy what is between two quotes, decoded, or, with ``json``, as JSON with least escapes.

    Never longer than it was. Half a surrogate pair becomes U+FFFD. -1 if an escape is none.
    """
    while at < stop:
        c = text[at]
        if c < 32:
            return -1
        if c != 92:
            out[o] = c
            o += 1
            at += 1
            continue
        c = text[at + 1]
        if c == 117:
            code = _hex(text, at + 2, stop)
            if code < 0:
                return -1
            at += 6
            if 0xD800 <= code < 0xE000:
                low = -1
                if code < 0xDC00 and at + 6 <= stop and text[at] == 92 and text[at + 1] == 117:
                    low = _hex(text, at + 2, stop)
                if 0xDC00 <= low < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    at += 6
                else:
                    code = 0xFFFD
        else:
            if c == 34 or c == 92 or c == 47:
                code = int(c)
            elif c == 98:
                code = 8
            elif c == 102:
                code = 12
            elif c == 110:
                code = 10
            elif c == 114:
                code = 13
            elif c == 116:
                code = 9
            else:
                return -1
            at += 2
        if json and (code < 32 or code == 34 or code == 92):
            out[o] = 92
            short = 0
            if code == 34 or code == 92:
                short = code
            elif code == 8:
                short = 98
            elif code == 12:
                short = 102
            elif code == 10:
                short = 110
            elif code == 13:
                short = 114
            elif code == 9:
                short = 116
            if short:
                out[o + 1] = short
                o += 2
            else:
                out[o + 1] = 117
                out[o + 2] = 48
                out[o + 3] = 48
                out[o + 4] = 48 + (code >> 4)
                digit = code & 15
                out[o + 5] = 48 + digit if digit < 10 else 87 + digit
                o += 6
        else:
            o = _letter(code, out, o)
    return o


@_inner
def _scalar(text: Bytes, at: int, end: int) -> int:
    """The byte after a number or a word of JSON; -1 if it is neither."""
    start = at
    number = text[at] == 45 or 48 <= text[at] <= 57
    while at < end:
        c = text[at]
        digit = 48 <= c <= 57 or c == 43 or c == 45 or c == 46 or c == 101 or c == 69
        if number and not digit:
            break
        if not number and not (65 <= c <= 90 or 97 <= c <= 122):
            break
        at += 1
    if number:
        return at
    if (
        _same(text, start, at, _NULL) or _same(text, start, at, _TRUE)
        or _same(text, start, at, _FALSE) or _same(text, start, at, _NAN)
    ):  # fmt: skip
        return at
    return -1


@_inner
def _json(text: Bytes, at: int, end: int, out: Bytes, o: int, item: bool) -> tuple[int, int]:
    """Copy one value as plain JSON, less ``cache_control`` (and ``id``, ``status`` of an item).

    Returns
    -------
    The byte after the value (-1 if it is no JSON), and the end of what was written, which is no
    longer than the value was.
    """
    array = np.zeros(MAX_DEPTH + 1, np.bool_)
    filled = np.zeros(MAX_DEPTH + 1, np.bool_)
    depth = 0
    mute, mute_o, mute_filled = -1, 0, False
    state = 0  # 0: a value comes, 1: a key, 2: a comma or the end
    while True:
        at = _space(text, at, end)
        if at >= end:
            return -1, o
        c = text[at]
        if state == 2:
            if mute == depth:  # what must not show was just written: take it back
                o, mute = mute_o, -1
                filled[depth] = mute_filled
            if c == 44:
                at += 1
                state = 0 if array[depth] else 1
            elif c == (93 if array[depth] else 125):
                out[o] = c
                o += 1
                at += 1
                depth -= 1
                if depth == 0:
                    return at, o
            else:
                return -1, o
            continue
        if state == 1:
            close = _quote(text, at, end) if c == 34 else -1
            if close < 0:
                return -1, o
            hidden = _same(text, at + 1, close, _CACHE)
            if item and depth == 1:
                hidden |= _same(text, at + 1, close, _ID) or _same(text, at + 1, close, _STATUS)
            if hidden and mute < 0:
                mute, mute_o, mute_filled = depth, o, filled[depth]
        if depth > 0 and (state == 1 or array[depth]):
            if filled[depth]:
                out[o] = 44
                o += 1
            filled[depth] = True
        if c == 34:
            close = _quote(text, at, end)
            if close < 0:
                return -1, o
            out[o] = 34
            o = _string(text, at + 1, close, out, o + 1, _flag(True))
            if o < 0:
                return -1, 0
            out[o] = 34
            o += 1
            at = close + 1
            if state == 1:
                at = _space(text, at, end)
                if at >= end or text[at] != 58:
                    return -1, o
                out[o] = 58
                o += 1
                at += 1
                state = 0
                continue
        elif c == 123 or c == 91:
            out[o] = c
            o += 1
            at = _space(text, at + 1, end)
            if at < end and text[at] == c + 2:
                out[o] = c + 2
                o += 1
                at += 1
            else:
                depth += 1
                if depth > MAX_DEPTH:
                    return -1, o
                array[depth] = c == 91
                filled[depth] = False
                state = 0 if c == 91 else 1
                continue
        else:
            stop = _scalar(text, at, end)
            if stop < 0:
                return -1, o
            for i in range(at, stop):
                out[o] = text[i]
                o += 1
            at = stop
        if depth == 0:
            return at, o
        state = 2


@_inner
def _blank(text: Bytes, start: int, stop: int) -> bool:
    """Whether a value is null, or nothing but space between its quotes or brackets."""
    c = text[start]
    if c == 34 or c == 91 or c == 123:
        return _space(text, start + 1, stop) >= stop - 1
    return _same(text, start, stop, _NULL)


@_inner
def _empty(text: Bytes, start: int, stop: int) -> bool:
    """Whether a value is null or holds nothing; a text of blanks is a text."""
    if text[start] == 34:
        return stop - start == 2
    return _blank(text, start, stop)


# --------------------------------------------------------------------------------- messages


@_inner
def _bare(text: Bytes, start: int, stop: int, out: Bytes, o: int) -> int:
    for i in range(start, stop):
        out[o] = text[i]
        o += 1
    return o


@_inner
def _piece(text: Bytes, start: int, stop: int, out: Bytes, o: int) -> int:
    """A piece of content: its text, or its JSON where it is of another type; -1 if torn."""
    if text[start] == 34:
        return _string(text, start + 1, stop - 1, out, o, _flag(False))
    if text[start] == 123:
        words, words_stop, plain, named = _whole(-1), _whole(-1), True, False
        at = start + 1
        while True:
            key, key_stop, value, value_stop, at = _member(text, at, stop)
            if at < 0:
                return -1
            if key < 0:
                break
            if _same(text, key, key_stop, _TEXT) and text[value] == 34:
                words, words_stop, named = value, value_stop, True
            elif _same(text, key, key_stop, _CONTENT) and text[value] == 34 and not named:
                words, words_stop = value, value_stop
            elif _same(text, key, key_stop, _TYPE):
                plain = (
                    _same(text, value + 1, value_stop - 1, _TEXT)
                    or _same(text, value + 1, value_stop - 1, _INPUT_TEXT)
                    or _same(text, value + 1, value_stop - 1, _OUTPUT_TEXT)
                )
        if words >= 0 and plain:
            return _string(text, words + 1, words_stop - 1, out, o, _flag(False))
    at, o = _json(text, start, stop, out, o, _flag(False))
    return -1 if at < 0 else o


@_inner
def _content(text: Bytes, start: int, stop: int, out: Bytes, o: int) -> int:
    """The text of a content: a string, or a list of pieces one after another; -1 if torn."""
    if _same(text, start, stop, _NULL):
        return o
    if text[start] != 91:
        return _piece(text, start, stop, out, o)
    at = _space(text, start + 1, stop)
    if at < stop and text[at] == 93:
        return o
    while True:
        at = _space(text, at, stop)
        end = _skip(text, at, stop)
        if end <= at:
            return -1
        o = _piece(text, at, end, out, o)
        if o < 0:
            return -1
        at = _space(text, end, stop)
        if at >= stop:
            return -1
        if text[at] == 93:
            return o
        if text[at] != 44:
            return -1
        at += 1


@_inner
def _message(
    text: Bytes, start: int, stop: int, out: Bytes, o: int, extras: Ints
) -> tuple[int, bool]:
    """One message; the end of what was written (-1 if torn), and whether it is a system's."""
    role = kind = said = role_stop = kind_stop = said_stop = _whole(-1)
    count = 0
    at = start + 1
    while True:
        key, key_stop, value, value_stop, at = _member(text, at, stop)
        if at < 0:
            return -1, False
        if key < 0:
            break
        if _same(text, value, value_stop, _NULL):
            continue
        if _same(text, key, key_stop, _ROLE) and text[value] == 34:
            role, role_stop = value, value_stop
        elif _same(text, key, key_stop, _TYPE) and text[value] == 34:
            kind, kind_stop = value, value_stop
        elif _same(text, key, key_stop, _CONTENT) or _same(text, key, key_stop, _PARTS):
            said, said_stop = value, value_stop
        elif (
            count < _MAX_EXTRAS
            and _printed(text, key, key_stop)
            and not _empty(text, value, value_stop)
        ):
            extras[count, 0], extras[count, 1] = key, key_stop
            extras[count, 2], extras[count, 3] = value, value_stop
            count += 1
    if role < 0 and said < 0:
        if kind < 0:
            return -1, False
        at, o = _json(text, start, stop, out, o, _flag(True))
        if at < 0:
            return -1, False
        out[o] = 10
        return o + 1, False
    if role < 0:
        role, role_stop = kind, kind_stop
    first = o
    if role >= 0:
        o = _string(text, role + 1, role_stop - 1, out, o, _flag(False))
        if o < 0:
            return -1, False
    system = _same(out, first, o, _SYSTEM) or _same(out, first, o, _DEVELOPER)
    out[o] = 10
    o += 1
    if said >= 0:
        o = _content(text, said, said_stop, out, o)
        if o < 0:
            return -1, False
    for i in range(count):
        out[o] = 10
        out[o + 1] = 34
        o = _bare(text, extras[i, 0], extras[i, 1], out, o + 2)
        out[o] = 34
        out[o + 1] = 58
        at, o = _json(text, extras[i, 2], extras[i, 3], out, o + 2, _flag(False))
        if at < 0:
            return -1, False
    out[o] = END_OF_TEXT
    return o + 1, system


@_inner
def _headed(role: Bytes, out: Bytes, o: int) -> int:
    o = _bare(role, _whole(0), len(role), out, o)
    out[o] = 10
    return o + 1


@_inner
def _source(
    text: Bytes, start: int, stop: int, dug: bool, part: int, out: Bytes, o: int,
    ends: Ints, sections: Bytes, n: int, extras: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Render one field of a request: tools, system text, messages or (3) a bare prompt.

    Returns
    -------
    The ends of what was written into ``out`` and of the list of parts; the first is -1 where the
    field makes no sense.
    """
    whole, whole_stop = start, stop
    start = _space(text, start, stop)
    while stop > start and _space(text, stop - 1, stop) == stop:
        stop -= 1
    if start >= stop or _same(text, start, stop, _NULL):
        return o, n
    section = MESSAGES if part == 3 else part
    c = text[start]
    if c != 91 and (part in (MESSAGES, TOOLS) or dug) and _blank(text, start, stop):
        return o, n
    if c == 91:
        first_o, first_n, leading = o, n, True
        at = _space(text, start + 1, stop)
        more = at < stop and text[at] != 93
        torn = not more and at + 1 != stop
        if part == SYSTEM and more:
            o = _headed(_SYSTEM, out, o)
        while more:
            at = _space(text, at, stop)
            end = _skip(text, at, stop)
            if end <= at:
                torn = True
                break
            here = section
            if part == TOOLS:
                done, o = _json(text, at, end, out, o, _flag(False))
                if done < 0:
                    torn = True
                    break
                out[o] = 10
                o += 1
            elif part == SYSTEM:
                o = _piece(text, at, end, out, o)
            elif text[at] == 34:
                o = _string(text, at + 1, end - 1, out, o, _flag(False))
                if o >= 0:
                    out[o] = END_OF_TEXT
                    o += 1
                leading = False
            elif text[at] == 123 and part == MESSAGES:
                o, system = _message(text, at, end, out, o, extras)
                leading = leading and system
                if leading:
                    here = SYSTEM
            else:
                o = -1
            if o < 0:
                torn = True
                break
            if part != SYSTEM:
                ends[n] = o
                sections[n] = here
                n += 1
            at = _space(text, end, stop)
            if at < stop and text[at] == 44:
                at += 1
                continue
            more = False
            torn = at + 1 != stop or text[at] != 93
        if not torn:
            if part == SYSTEM and o > first_o:
                out[o] = END_OF_TEXT
                o += 1
                ends[n] = o
                sections[n] = SYSTEM
                n += 1
            return o, n
        # "[INST] do this" begins like a list, but is text; a torn list of messages is not.
        if dug or part in (MESSAGES, TOOLS):
            return -1, n
        o, n = first_o, first_n
    elif c == 123 and part != 3 and (dug or part != SYSTEM):
        if part in (TOOLS, SYSTEM):
            if part == SYSTEM:
                o = _content(text, start, stop, out, _headed(_SYSTEM, out, o))
            else:
                done, o = _json(text, start, stop, out, o, _flag(False))
                o = o if done == stop else -1
            if o < 0:
                return -1, n
            out[o] = END_OF_TEXT if part == SYSTEM else 10
            o += 1
        else:
            if _skip(text, start, stop) == stop:
                o, _ = _message(text, start, stop, out, o, extras)
            else:
                o = -1
            if o < 0:
                return -1, n
        ends[n] = o
        sections[n] = section
        return o, n + 1
    if part == SYSTEM:
        o = _headed(_SYSTEM, out, o)
    elif part == MESSAGES:
        o = _headed(_USER, out, o)
    if dug:
        if c != 34:
            return -1, n
        o = _string(text, start + 1, stop - 1, out, o, _flag(False))
        if o < 0:
            return -1, n
    else:
        o = _bare(text, whole, whole_stop, out, o)
    if part == TOOLS:
        out[o] = 10
        o += 1
    elif part != 3:
        out[o] = END_OF_TEXT
        o += 1
    ends[n] = o
    sections[n] = section
    return o, n + 1


@_outer
def render(
    text: Bytes, starts: Ints, stops: Ints, dug: NDArray[np.bool_], parts: int
) -> tuple[Bytes, Ints, NDArray[np.int8], Ints, Bytes, Ints]:
    """Render the prompts of some requests, one after another, into one buffer.

    Parameters
    ----------
    text
        UTF-8 of all fields.
    starts, stops
        Spans (4, requests) of tools, system, messages and bare prompt. The last is used only
        where there are no messages.
    dug
        Whether each of the four is JSON cut from JSON, and so a text stands in quotes; otherwise
        a text stands as it is.
    parts
        No fewer than there are messages, tools and texts in all.

    Returns
    -------
    The rendered text; where the text of each request ends (requests + 1, from 0); ``ABSENT``,
    ``READ`` or ``UNREAD`` for each; where each part ends; its section; and the part at which each
    request ends (requests + 1, from 0). A request that is not ``READ`` has no text.
    """
    rows = starts.shape[1]
    size = 16 * rows
    for source in range(4):
        for row in range(rows):
            if starts[source, row] >= 0:
                size += stops[source, row] - starts[source, row]
    out = np.empty(size, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    states = np.zeros(rows, np.int8)
    part_ends = np.empty(parts, np.int64)
    sections = np.empty(parts, np.uint8)
    row_parts = np.zeros(rows + 1, np.int64)
    extras = np.empty((_MAX_EXTRAS, 4), np.int64)
    o, n = _whole(0), _whole(0)
    for row in range(rows):
        first_o, first_n = o, n
        asked = False
        for source in range(4):
            start = starts[source, row]
            if start < 0 or (source == 3 and asked):
                continue
            before = o
            o, n = _source(
                text, start, stops[source, row], dug[source], source, out, o,
                part_ends, sections, n, extras,
            )  # fmt: skip
            if o < 0:
                states[row] = UNREAD
                break
            if source >= 2 and o > before:
                asked = True
        if states[row] != UNREAD and asked:
            states[row] = READ
        else:
            o, n = first_o, first_n
        ends[row + 1] = o
        row_parts[row + 1] = n
    return out[:o].copy(), ends, states, part_ends[:n].copy(), sections[:n].copy(), row_parts


@_outer
def dig(text: Bytes, starts: Ints, stops: Ints, key: Bytes) -> tuple[Ints, Ints]:
    """Spans of one member of the objects at some spans; none where there is no such member."""
    found, found_stops = np.full(len(starts), -1), np.full(len(starts), -1)
    for row in range(len(starts)):
        if starts[row] < 0:
            continue
        stop = stops[row]
        at = _space(text, starts[row], stop)
        if at >= stop or text[at] != 123:
            continue
        at += 1
        while at >= 0:
            start, end, value, value_stop, at = _member(text, at, stop)
            if start < 0:
                break
            if _same(text, start, end, key):
                found[row], found_stops[row] = value, value_stop
    return found, found_stops


# ----------------------------------------------------------------------------------- blocks


@_outer
def numbers(text: Bytes, starts: Ints, stops: Ints) -> tuple[Ints, Ints, NDArray[np.int8]]:
    """Token ids of lists written as JSON, one list a request.

    Returns
    -------
    All ids; where those of each request end (requests + 1, from 0); and its state. An id is a
    whole number from 0 to 2^53.
    """
    rows = len(starts)
    size = 0
    for row in range(rows):
        if starts[row] >= 0:
            size += (stops[row] - starts[row]) // 2 + 1
    ids = np.empty(size, np.int64)
    ends = np.zeros(rows + 1, np.int64)
    states = np.zeros(rows, np.int8)
    n = 0
    for row in range(rows):
        first = n
        if starts[row] >= 0:
            stop = stops[row]
            at = _space(text, starts[row], stop)
            if at < stop and not _same(text, at, stop, _NULL):
                states[row] = UNREAD
                if text[at] == 91:
                    at = _space(text, at + 1, stop)
                    good = True
                    if at < stop and text[at] == 93:
                        states[row] = ABSENT
                        good = False
                    while good:
                        at = _space(text, at, stop)
                        begin, value = at, 0
                        while at < stop and 48 <= text[at] <= 57 and at < begin + 16:
                            value = value * 10 + int(text[at]) - 48
                            at += 1
                        if at == begin or value > 1 << 53:
                            break
                        ids[n] = value
                        n += 1
                        at = _space(text, at, stop)
                        if at < stop and text[at] == 93:
                            at = _space(text, at + 1, stop)
                            if at == stop:
                                states[row] = READ
                            break
                        good = at < stop and text[at] == 44
                        at += 1
        if states[row] != READ:
            n = first
        ends[row + 1] = n
    return ids[:n].copy(), ends, states


@_inner
def _mix(h: np.uint64) -> np.uint64:
    """A bijection of 64 bits in which each bit of the input moves half of the output."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


_SEED = np.uint64(0x9E3779B97F4A7C15)


@_outer
def hash_text(text: Bytes, ends: Ints, most: Ints, block_bytes: float) -> tuple[Ids, Ints]:
    """Chained ids of the full blocks of each text.

    Block k (from 1) ends at byte k times ``block_bytes``, rounded half up; its id mixes all bytes
    up to there. What is left after the last full block has no id.

    Parameters
    ----------
    text, ends
        Texts one after another and where each ends (texts + 1, from 0).
    most
        The largest number of blocks of each.
    block_bytes
        At least 1.

    Returns
    -------
    All ids, and how many each text has.
    """
    rows = len(most)
    counts = np.zeros(rows, np.int64)
    size = 0
    for row in range(rows):
        length = ends[row + 1] - ends[row]
        size += min(most[row], np.int64(length / block_bytes) + 1)
    ids = np.empty(size, np.uint64)
    n = 0
    for row in range(rows):
        start = ends[row]
        length = ends[row + 1] - start
        h, at, k = _SEED, start, 0
        while k < most[row]:
            cut = np.int64(np.floor((k + 1) * block_bytes + 0.5))
            if cut > length:
                break
            stop = start + cut
            taken = np.uint64(stop - at)
            while at + 8 <= stop:
                word = (
                    np.uint64(text[at])
                    | np.uint64(text[at + 1]) << np.uint64(8)
                    | np.uint64(text[at + 2]) << np.uint64(16)
                    | np.uint64(text[at + 3]) << np.uint64(24)
                    | np.uint64(text[at + 4]) << np.uint64(32)
                    | np.uint64(text[at + 5]) << np.uint64(40)
                    | np.uint64(text[at + 6]) << np.uint64(48)
                    | np.uint64(text[at + 7]) << np.uint64(56)
                )
                h = _mix(h ^ word)
                at += 8
            word = np.uint64(0)
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(text[at]) << shift
                shift += np.uint64(8)
                at += 1
            h = _mix(_mix(h ^ word) + taken)
            ids[n] = h
            n += 1
            k += 1
        counts[row] = k
    return ids[:n].copy(), counts


@_outer
def hash_tokens(tokens: Ints, ends: Ints, block: int) -> tuple[Ids, Ints]:
    """Chained ids of the full blocks of ``block`` tokens of each list.

    Parameters
    ----------
    tokens, ends
        Lists one after another and where each ends (lists + 1, from 0).

    Returns
    -------
    All ids, and how many each list has.
    """
    rows = len(ends) - 1
    counts = np.zeros(rows, np.int64)
    ids = np.empty(len(tokens) // block + 1, np.uint64)
    n = 0
    for row in range(rows):
        h = _SEED
        counts[row] = (ends[row + 1] - ends[row]) // block
        at = ends[row]
        for _ in range(counts[row]):
            for i in range(at, at + block):
                h = _mix(h ^ np.uint64(tokens[i]))
            h = _mix(h + np.uint64(block))
            at += block
            ids[n] = h
            n += 1
    return ids[:n].copy(), counts
