"""What kind of thing differs between two texts: a clock, an id, a number, keys in another order.

Looks at one pair of texts at a time; which pairs are worth it is decided elsewhere.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

#: ``number`` is for the caller to decide, who sees a series: a counter or an id.
Kind = Literal[
    "time", "id", "number", "reordered_keys", "reordered_tools", "tools_changed", "user_field",
    "changing_context", "whitespace", "other",
]  # fmt: skip

#: Characters looked at before and after a difference.
BEFORE, AFTER = 96, 160
#: Longer texts are not parsed, only looked at around the difference.
LONGEST = 200_000
#: ... and of these only so much behind the difference is held against each other.
HELD = 20_000
#: A field of a user is no longer than this; what is longer is context.
FIELD_CHARS = 300
#: ... and has no more lines than this.
FIELD_LINES = 6
#: Openings of JSON before a difference that are tried.
OPENINGS = 12
#: Less text than this that agrees behind a value that changes does not frame it: the value is the
#: beginning of something longer.
FRAME_CHARS = 64
#: So many further places are named.
MOST_ALSO = 4
#: JSON within strings of JSON is looked into so deep.
INNER = 3
#: Names of tool definitions that say nothing of their content.
PLAIN_KEYS: Final = frozenset(
    (
        "type", "function", "name", "description", "parameters", "input_schema", "inputSchema",
        "properties", "required", "items", "enum", "default", "anyOf", "oneOf", "allOf",
        "additionalProperties", "format", "title", "strict", "cache_control", "examples",
        "minimum", "maximum", "$defs",
    )
)  # fmt: skip

_DAY = r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_ZONE = r"(?:\s?(?:z|utc|gmt|[a-z]{2,4}t)\b|\s?(?:utc|gmt)?[+\-]\d{2}:?\d{2}\b)"
_CLOCK = rf"\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?:\s?[ap]\.?m\.?(?![a-z]))?{_ZONE}?"
_NTH = r"\d{1,2}(?:st|nd|rd|th|\.)?"
_WORDED = (
    rf"(?:{_DAY}\b[,.]?\s+)?(?:the\s+)?(?:{_NTH}\s+(?:of\s+)?{_MONTH}\b|{_MONTH}\b\.?\s+{_NTH}\b)"
    r"(?:,?\s+\d{4})?"
    r"|(?:[^\W\d]{2,12}\.?,?\s+)?\d{1,2}\.?\s(?:de\s)?[^\W\d]{3,10}\.?\s(?:de\s)?(?:19|20)\d{2}\b"
)
_NUMBERED = (
    r"(?:19|20)\d{2}(?:[\-/.](?:0?[1-9]|1[0-2])[\-/.](?:0?[1-9]|[12]\d|3[01])(?!\d)"
    r"|年\d{1,2}月\d{1,2}日|-?w\d{2}(?:-\d)?)"
    r"|(?<![\d.])\d{1,2}([/.\-])\d{1,2}\1(?:19|20)?\d{2}(?!\.?\d)"
)
_COMPACT = r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:t?\d{4,6}(?:\.\d+)?z?)?"
_EPOCH = r"1\d{9}(?:\.\d+)?|1\d{12}|1\d{15}|1\d{18}"
_TIME = re.compile(
    rf"(?<![\w])(?:(?:{_NUMBERED}|{_WORDED})(?:[t,]?\s?(?:at\s+)?{_CLOCK})?|{_CLOCK}"
    rf"|\d{{1,2}}h\d{{2}}(?:m\d{{2}}s?)?\b|\d+\s?(?:second|minute|min|hour|day|week)s?\sago\b"
    rf"|(?:{_COMPACT}|{_EPOCH})(?!\w)|{_DAY}\b|{_MONTH}\b(?:\s+\d{{4}})?)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z0-9_+/\-]+={0,2}")
_NUMBER = re.compile(r"[+\-]?\d+(?:[.,]\d+)*")
_UUID = re.compile(r"\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?", re.IGNORECASE)
_HEX = re.compile(r"(?:0x)?[0-9a-f]{6,}", re.IGNORECASE)
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_PREFIXED = re.compile(r"(?:[A-Za-z]{2,12}[_\-]){1,2}(?=.*\d|.*[a-z][A-Z])[A-Za-z0-9]{6,}")
_USER = re.compile(
    r"\b(?:user|customer|client|tenant|account|org|organi[sz]ation|company|team|member|name|"
    r"locale|language|lang|e-?mail|plan|time\s?zone|country|city|profile|employee|role)s?\b",
    re.IGNORECASE,
)
_USER_WORD = re.compile(
    r"(?:user|customer|client|tenant|account|org|company|member|employee)[\W_]*(?:id|no)?[\W_]*$",
    re.IGNORECASE,
)
_ID = re.compile(
    r"(?:\b|_)(?:id|uuid|guid|nonce|trace|hash|salt|seed|correlation|fingerprint|digest)"
    r"[\s\"'=:\(\[]*(?:is\b|no\.?|number)?[\s\"'=:\(\[]*$|#\s?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Spot:
    """A place that changes by itself: characters ``start:stop`` of a text."""

    kind: Literal["time", "id", "number"]
    start: int
    stop: int


@dataclass(frozen=True)
class Difference:
    """The first difference of two texts, named.

    ``at`` is its place in the earlier text in characters, ``values`` what stands there in each,
    ``hint`` tells if what stands before it in its line names a user's field or an id. ``also`` are
    later places that change by themselves. ``same_but`` is true where the texts are the same in all
    but what changes by itself (or in order), as far as the earlier one goes; ``own`` characters of
    the later one then stand in such places.
    """

    kind: Kind
    at: int
    values: tuple[str, str] = ("", "")
    hint: Literal["user", "id", ""] = ""
    path: str | None = None
    also: tuple[Spot, ...] = ()
    same_but: bool = False
    own: int = 0


def differ(a: str, b: str, at: int) -> Difference:
    """Name the first difference of two texts.

    Parameters
    ----------
    a, b
        The earlier and the later text, or as much of them as there is around the difference.
    at
        Characters that they have in common at their beginning.
    """
    if _same_json(a, b, at):
        return Difference("reordered_keys", at, same_but=True)
    x, y = _spot(a, at), _spot(b, at)
    if x and y and x.kind == y.kind and x.start == y.start:
        found = _later(a, b, x, y)
        if found.same or found.frame >= FRAME_CHARS or _is_field(_values(a, b, at)):
            label = _label(a, x.start)
            hint: Literal["user", "id", ""] = ""
            if x.kind != "time":
                hint = "user" if _USER_WORD.search(label) else "id" if _ID.search(label) else ""
            values = a[x.start : x.stop], b[y.start : y.stop]
            return Difference(
                x.kind, x.start, values, hint, also=found.also, same_but=found.same, own=found.own
            )
    if _spacing(a, b, at):
        return Difference("whitespace", at, same_but=True)
    values = _values(a, b, at)
    start = at
    while start and not a[start - 1].isspace() and a[start - 1] not in "\"'=:<>[](){},":
        start -= 1
    field = _is_field(values)
    added = _added(values) if field else None
    if added:
        return Difference(added, start, values, same_but=True, own=len(values[1]))
    hint = "user" if _USER.search(_label(a, start)) else ""
    return Difference("other" if field else "changing_context", start, values, hint)


def _is_field(values: tuple[str, str]) -> bool:
    """Whether values are short enough for a field; what is longer is context."""
    return all(len(v) <= FIELD_CHARS and v.count("\n") < FIELD_LINES for v in values)


def _added(values: tuple[str, str]) -> Literal["time", "id"] | None:
    """The kind of a line that only one of two texts has, if it holds a time or an id."""
    one, other = sorted(values, key=len)
    if one.strip():
        return None
    # The common beginning may have taken the line's first letters, and left those of the next.
    found = {spot.kind for spot in spots(other)}
    return "time" if "time" in found else "id" if "id" in found else None


def differ_tools(a: Sequence[str], b: Sequence[str]) -> Difference | None:
    """Name the first difference of two lists of tools; None where they do not differ.

    Parameters
    ----------
    a, b
        A text for each tool, or one text that holds them all as a JSON array.
    """
    one, two = _tools(a), _tools(b)
    if one is None or two is None:
        return None
    first = next((i for i, (p, q) in enumerate(zip(one, two, strict=False)) if not same(p, q)), -1)
    if first < 0:
        if len(one) == len(two):
            text = _texts_differ(a, b)
            return text and Difference("whitespace", text[0], path="tools", same_but=True)
        return Difference("tools_changed", 0, path=f"tools/{min(len(one), len(two))}")
    plain = [[_canonical(t) for t in tools] for tools in (one, two)]
    path = f"tools/{first}"
    if plain[0] == plain[1]:
        place = _walk(one[first], two[first])[0]
        return Difference("reordered_keys", 0, path="/".join((path, *place)), same_but=True)
    if sorted(plain[0]) == sorted(plain[1]):
        return Difference("reordered_tools", 0, path=path, same_but=True)
    names = [[_name(t) for t in tools] for tools in (one, two)]
    if names[0] != names[1]:
        moved = sorted(names[0]) == sorted(names[1])
        return Difference("reordered_tools" if moved else "tools_changed", 0, path=path)
    # The first tool whose content differs, not only the order of its keys.
    first = next(i for i, (p, q) in enumerate(zip(*plain, strict=True)) if p != q)
    place, left, right = _walk(one[first], two[first])
    path = "/".join((f"tools/{first}", *place))
    if isinstance(left, str) and isinstance(right, str):
        inner = differ(left, right, agree(left, right))
        if inner.kind in ("time", "id", "number", "whitespace"):
            own = max(inner.own, len(inner.values[1]))
            return Difference(inner.kind, 0, inner.values, inner.hint, path, same_but=True, own=own)
    if _is_number(left) and _is_number(right):
        values = str(left), str(right)
        return Difference("number", 0, values, path=path, same_but=True, own=len(values[1]))
    return Difference("tools_changed", 0, path=path)


def agree(a: str, b: str) -> int:
    """Characters that two texts have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def spots(text: str) -> Iterator[Spot]:
    """Everything in a text that looks as if it changed by itself, in order."""
    end = 0
    times = list(_TIME.finditer(text))
    words = [Spot(kind, *span) for span, kind in _ids(text)]
    found = [Spot("time", *m.span()) for m in times] + words
    for spot in sorted(found, key=lambda s: (s.start, s.kind != "time", -s.stop)):
        if spot.start >= end:
            end = spot.stop
            yield spot


def _ids(text: str) -> Iterator[tuple[tuple[int, int], Literal["id", "number"]]]:
    for word in _WORD.finditer(text):
        if is_id(word.group()):
            yield word.span(), "id"
        else:
            # A number goes on behind its point, where the word ends.
            for number in _NUMBER.finditer(text, word.start()):
                if number.start() >= word.end():
                    break
                yield number.span(), "number"


def is_id(word: str) -> bool:
    """Whether a word is made by a machine: uuid, ULID, hex, ``req_8fK2…``, base64 and so on."""
    bare = word.strip("=-_+/")
    if len(bare) < 6 or bare.isdigit():
        return False
    bare = bare if _UUID.fullmatch(bare) else bare.removeprefix("0x")
    digits = sum(c.isdigit() for c in bare)
    if _UUID.fullmatch(bare) or (_HEX.fullmatch(bare) and digits and digits < len(bare)):
        return True
    if _ULID.fullmatch(bare) or _PREFIXED.fullmatch(bare):
        return True
    upper, lower = (sum(f(c) for c in bare) for f in (str.isupper, str.islower))
    letters = "".join(c for c in bare if c.isalnum())
    turns = sum(_class(p) != _class(q) for p, q in pairwise(letters))
    if len(bare) >= 8 and digits >= 2 and upper + lower and turns >= 4:
        return True
    # Few digits: capitals in the midst of small letters more often than words have them.
    often = 0.3 if digits else 0.45
    return len(bare) >= 12 and min(upper, lower) >= 3 and turns >= often * len(bare)


def _class(c: str) -> int:
    return 0 if c.isdigit() else 1 if c.isupper() else 2


def _spot(text: str, at: int) -> Spot | None:
    """What changes by itself at a place: a time before an id before a number."""
    first = max(0, at - BEFORE)
    window = text[first : at + AFTER]
    for match in _TIME.finditer(window):
        if match.start() <= at - first <= match.end():
            return Spot("time", first + match.start(), first + match.end())
    for (start, stop), kind in _ids(window):
        if start <= at - first <= stop:
            return Spot(kind, first + start, first + stop)
    return None


def _label(text: str, start: int) -> str:
    return text[max(0, start - 40) : start].rpartition("\n")[2]


@dataclass(frozen=True)
class _Later:
    """Further places that change; whether the texts agree in all but such places; characters of the
    later text in them; characters that agree behind the first.
    """

    also: tuple[Spot, ...]
    same: bool
    own: int
    frame: int


def _later(a: str, b: str, x: Spot, y: Spot) -> _Later:
    """Follow two texts from one place that changes to the next."""
    also: list[Spot] = []
    i, j = x.stop, y.stop
    own, frame = y.stop - y.start, 0

    def ended(same: bool) -> _Later:
        return _Later(tuple(also[:MOST_ALSO]), same, own, frame)

    while True:
        step = agree(a[i:], b[j:])
        i, j, frame = i + step, j + step, frame + step
        if i >= len(a) or j >= len(b):
            return ended(i >= len(a))
        p, q = _spot(a, i), _spot(b, j)
        # As far as the texts agreed, both spots began equally far back.
        if p is None or q is None or p.kind != q.kind or i - p.start != j - q.start:
            return ended(False)
        if p.stop <= i and q.stop <= j:
            return ended(False)
        if len(also) < MOST_ALSO:
            also.append(p)
        own += q.stop - q.start
        i, j = max(p.stop, i), max(q.stop, j)


def _values(a: str, b: str, at: int) -> tuple[str, str]:
    """What stands between the common beginning and the common end of two texts."""
    x, y = a[at:], b[at:]
    tail = agree(x[::-1], y[::-1])
    return x[: len(x) - tail], y[: len(y) - tail]


def _spacing(a: str, b: str, at: int) -> bool:
    """Whether two texts say the same but for spacing, line ends and forms of Unicode."""
    if max(len(a), len(b)) <= HELD and _flat(a) == _flat(b):
        return True
    # Where one text goes on, the shorter must be a beginning of the longer, and differ here only
    # in a space or in the form of one character.
    x, y = _flat(a[at : at + HELD]), _flat(b[at : at + HELD])
    short = min(len(x), len(y))
    return short >= AFTER and x[:short] == y[:short]


def _flat(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).replace("\u200b", "").split())


def _same_json(a: str, b: str, at: int) -> bool:
    """Whether the difference lies in a JSON value that is the same with its keys in order."""
    decoder = json.JSONDecoder()
    start = at + 1
    for _ in range(OPENINGS):
        start = max(a.rfind("{", 0, start), a.rfind("[", 0, start))
        if start < 0 or len(a) > LONGEST or len(b) > LONGEST:
            return False
        try:
            x, end = decoder.raw_decode(a, start)
            y, _ = decoder.raw_decode(b, start)
        except (ValueError, RecursionError):
            continue
        if end > at and x and _canonical(x) == _canonical(y):
            return True
    return False


def _tools(texts: Sequence[str]) -> list[Any] | None:
    """The tools as values; what is no JSON is a tool as it stands."""
    if sum(map(len, texts)) > LONGEST:
        return None
    out: list[Any] = []
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        out.extend(value if isinstance(value, list) else [value])
    return out


def _texts_differ(a: Sequence[str], b: Sequence[str]) -> tuple[int] | None:
    x, y = "".join(a), "".join(b)
    return None if x == y else (agree(x, y),)


def _canonical(value: Any) -> str:
    try:
        return json.dumps(_opened(value, INNER), sort_keys=True)
    except RecursionError:
        return repr(type(value))


def _opened(value: Any, levels: int) -> Any:
    """A value with JSON objects in its strings opened, as arguments of tool calls are."""
    if isinstance(value, dict):
        return {k: _opened(v, levels) for k, v in value.items()}
    if isinstance(value, list):
        return [_opened(v, levels) for v in value]
    if isinstance(value, str) and levels and value[:1] == "{" and value[-1:] == "}":
        try:
            return _opened(json.loads(value), levels - 1)
        except (ValueError, RecursionError):
            return value
    return value


def same(p: Any, q: Any) -> bool:
    """Whether two values are the same and in the same order."""
    try:
        return json.dumps(p) == json.dumps(q)
    except RecursionError:
        return False


def _name(tool: Any) -> str:
    if isinstance(tool, dict):
        inner = tool.get("function")
        named = inner if isinstance(inner, dict) and "name" in inner else tool
        return str(named.get("name", ""))
    return str(tool)[:200]


def _walk(p: Any, q: Any) -> tuple[tuple[str, ...], Any, Any]:
    """Down to the first value that differs; keys that could say something are starred."""
    path: list[str] = []
    while True:
        step: Any = None
        if isinstance(p, dict) and isinstance(q, dict):
            if sorted(p) == sorted(q):
                order = [k for k in p if _canonical(p[k]) != _canonical(q[k])]
                moved = [k for k in p if not same(p[k], q[k])]
                step = (order or moved or [None])[0] if list(p) == list(q) or order else None
        elif isinstance(p, list) and isinstance(q, list) and len(p) == len(q):
            step = next((i for i, (x, y) in enumerate(zip(p, q, strict=True)) if not same(x, y)), 0)
        if step is None or (isinstance(p, list) and not p):
            return tuple(path), p, q
        path.append(str(step) if isinstance(step, int) or step in PLAIN_KEYS else "*")
        p, q = p[step], q[step]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
