"""Fields of a flat log that no column uses, what they look like, and a mapping file to start from.

A field is proposed for a column by its name, by the kind of its values and by their range; what
the names alone tell (:mod:`ttftdoctor.readers.flat`) is kept. A proposal is only ever that: it
says of each line why, and what it is less sure of is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttftdoctor.errors import AskUser, TTFTDoctorError
from ttftdoctor.language import speaking
from ttftdoctor.mapping import HELPERS, STAMPS
from ttftdoctor.mapping.fields import Place, Trait, leaves, number_of, trait
from ttftdoctor.prompts import find
from ttftdoctor.readers import Options, Plan
from ttftdoctor.readers.flat import matched, normal, records_of, units_of
from ttftdoctor.sources import Head
from ttftdoctor.table import COLUMNS

#: Unused fields that are looked at; a log may name fields by their values.
MOST_UNUSED = 300
#: Guesses of at least this weight are lines of the mapping, lighter ones are comments.
SURE = 3
_DURATIONS = ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us")
_GROUPS = ("replica", "tenant", "route", "version", "model")

#: Words that tell the times of a pair apart.
_FIRST = re.compile(r"_?(?:first|1st|initial)_?")
_WHOLE = re.compile(r"_?(?:total|whole|all|full|last|overall)_?")

_QUEUED = r"queu|wait|pend(ing)?|sched_?delay"

#: What names say: a pattern in the words of a name, and its weight for the column.
_HINTS: dict[str, tuple[tuple[str, int], ...]] = {
    "ttft_us": (
        (r"ttf[tb]|first_?(tok|chunk|byte|word|out)|tok(en)?_?1st|1st_?tok|fst_?tok|tfft", 4),
        (r"(first|1st)_?(laten|time|resp)|(laten|time|resp)\w*_?(first|1st)", 3),
        (r"first|1st|initial", 2),
    ),
    "e2e_us": (
        (r"e2e|end_?to_?end|ttlt|last_?tok", 4),
        (r"total|whole|wall|dur|elaps|laten|took|overall|roundtrip|rtt|resp_?(time|ms)", 3),
        (r"time|finish|full|all|ms$", 1),
    ),
    "queue_us": ((_QUEUED, 3),),
    "prefill_us": ((r"prefill|prompt_?(time|ms|eval)", 3),),
    "decode_us": ((r"decod|gen(eration)?_?(time|ms)|predict", 3),),
    "input_tokens": (
        (r"(^|_)(in|inp|input|p|pr|prompt|ctx|context|req|request|src|query)_?tok|isl"
         r"|tok\w*_?in$", 4),
        (r"prompt_?(len|size|n|count)?$|input|ctx|context_?(len|size)|in_?len|^n_?(in|prompt)$", 3),
        (r"^tok(en)?s?$|n_?tok", 1),
    ),
    "output_tokens": (
        (r"(^|_)(out|output|o|g|gen|generated|comp|completion|resp|response|reply|answer|new)_?tok"
         r"|osl|tok\w*_?out$", 4),
        (r"output|generated|completion|(reply|out|answer)_?len|^n_?(out|gen|answer)$", 3),
    ),
    "cached_tokens": ((r"cach|reus|kv_?hit|hit_?tok|prefix_?(hit|tok)", 3), (r"hit|warm", 1)),
    "reasoning_tokens": ((r"reason|think|thought", 3),),
    "session_id": (
        (r"sess|conv|chat|dialog|thread", 4),
        (r"user|visitor|client_?id|ctx_?id|talk|convo", 2),
    ),
    "turn": (
        (r"turn|round|nth|exchange", 4), (r"step|msg_?(no|num|idx|index)|position|ordinal", 3),
        (r"seq|idx|index|no$|num$", 1),
    ),
    "start": (
        (r"beg[aiu]n|start|arriv|sent|received|recv|launch|request_?(time|ts|at)", 4),
        (r"time|stamp|^ts$|_ts$|date|when|^at$|_at$|created|epoch|clock", 3),
    ),
    "end": ((r"(^|_)(end|ended|finish|finished|done|complete|completed)(_|$)|last_?tok", 4),),
    "first_token": (
        (r"(first|1st)_?\w*_?(at|ts|time|stamp)$|first_?tok", 4), (r"^(first|1st)$", 3),
    ),
    "request_id": (
        (r"^r?id$|req(uest)?_?(id|no|key)|uuid|guid|rid", 4), (r"id$|trace|call|key", 1),
    ),
    "model": ((r"model|llm|checkpoint", 4), (r"engine|deploy", 1)),
    "replica": (
        (r"replica|pod|host|node|server|instance|backend|worker|gpu|upstream", 4),
        (r"box|machine|shard|rank|slot|cell", 3),
    ),
    "tenant": ((r"tenant|org|team|customer|account|project|api_?key|workspace", 4),),
    "route": ((r"route|endpoint|path|url|uri|operation", 4), (r"method|api|kind", 1)),
    "version": ((r"version|build|release|revision|commit|image", 4), (r"^ver$|^tag$|^rev$", 3)),
    "status": (
        (r"status|outcome|state|result|http|code", 4), (r"success|succeed|^ok$|fail|err", 3),
    ),
    "streamed": ((r"stream|sse", 4),),
    "attempts": ((r"attempt|tries|try_?(no|count)", 4),),
    "retries": ((r"retr(y|ies)|resend|redo", 4),),
}  # fmt: skip
#: What is no duration and no count of a request, whatever else its name says.
_NEITHER = re.compile(
    r"(^|_)(pct|percent|ratio|share|rate|throughput|per_s|per_second|tps|qps|cost|price|usd|score)"
    r"(_|$)|^(avg|mean|max|min)_"
)
#: What is no duration: a count of something. That of a first token names it.
_COUNTED = re.compile(r"tok|^n(um)?_|count|requests|bytes|chars")
#: What is no duration in any column: a place in a row, or how many there are.
_UNTIMED = re.compile(
    r"(^|_)(count|counts|num|number|position|pos|index|idx|place|rank|depth|size|len|length|ahead"
    r"|bytes|chars|requests)(_|$)"
)
#: The order in which two columns that want a field equally get it.
_ORDER = tuple(_HINTS)


@dataclass(frozen=True)
class Unused:
    """A field that no column uses; ``guess`` is the column it looks like, if any.

    ``low`` and ``high`` are of the numbers in the first records; texts are never shown.
    """

    name: str
    kind: str
    filled: float
    low: float | None = None
    high: float | None = None
    guess: str | None = None


@dataclass(frozen=True)
class Guess:
    """A field for a column, how sure that is, and why."""

    column: str
    label: str
    weight: int
    why: str


@dataclass(frozen=True)
class Proposal:
    """A mapping file for a log.

    ``text`` is the whole TOML, in plain ASCII. ``columns`` has the guesses that are lines of it,
    without what the usual names tell; ``usable`` says whether the log can be read by it.
    """

    text: str
    columns: Mapping[str, str]
    usable: bool


def unused_fields(head: Head, plan: Plan, sources: Iterable[str]) -> tuple[Unused, ...]:
    """The fields of the first records that no column uses.

    Parameters
    ----------
    plan
        How the log is read.
    sources
        Where the columns came from, in words (``Field.source``).
    """
    records: Sequence[Mapping[str, Any]] = head.records
    if plan.unwrap is not None and plan.unwrap in head.inner:
        records = head.inner[plan.unwrap]
    if not records:
        return ()
    every = leaves(records, dict.fromkeys(key for record in records for key in record))
    said = set(re.findall(r"[\w.@]+", " ".join(sources)))
    free = [place for place in every if not _used(place, plan, said)][:MOST_UNUSED]
    guesses = {}
    if plan.used is not None:
        # Only where fields are read by their names can one stand under a name of its own.
        found = _guesses(records, free, _taken(records, plan))
        guesses = {g.label: g.column for g in found if g.weight >= SURE}
    out = []
    for place in free:
        t = trait(place, records)
        if t.kind != "nothing":
            guess = guesses.get(place.label)
            out.append(Unused(place.label, t.kind, t.filled, t.low, t.high, guess))
    return tuple(out)


def _used(place: Place, plan: Plan, said: set[str]) -> bool:
    if plan.used is not None:
        return place.label in plan.used or place.column in plan.used
    if place.column not in plan.schema:
        return place.label not in said
    if place.path is None or "Struct" not in str(plan.schema[place.column]):
        return True  # read as JSON text: what of it is used cannot be told
    kind: Any = plan.schema[place.column]
    for key in place.path[2:].split("."):
        names = {field.name: field.dtype for field in getattr(kind, "fields", ())}
        if key not in names:
            return not names
        kind = names[key]
    return True


def _taken(records: Sequence[Mapping[str, Any]], plan: Plan) -> dict[str, Place]:
    """The columns that have a field by its usual name, as far as that field is read."""
    names = {_word(column): place for column, place in matched(records).items()}
    return {name: place for name, place in names.items() if place.label in (plan.used or ())}


def _word(column: str) -> str:
    """A column as a mapping names it: ``first_token`` for what is ``_first`` inside."""
    return next((word for word, inner in HELPERS.items() if inner == column), column)


def propose(head: Head) -> Proposal | None:
    """A mapping file for a flat log; None if its records hold nothing that could be mapped."""
    unwrap, records = records_of(head)
    if not records or (unwrap is None and head.outer is not None):
        # One object is a document of something else, or a log of one request: either way too few.
        inner = max(head.inner.values(), key=len, default=())
        records = records or inner
    if len(records) < 2:
        return None
    usual = {_word(column): place for column, place in matched(records).items()}
    usual = {column: place for column, place in usual.items() if not column.startswith("_")}
    known = {place.label for place in usual.values()}
    texts = find(tuple(records))
    inside = set(texts.columns) if texts is not None else set()
    free = [
        place
        for place in leaves(records, dict.fromkeys(key for record in records for key in record))
        if place.label not in known and place.column not in inside
    ][:MOST_UNUSED]
    guesses = _guesses(records, free, usual)
    sure = {g.column: g.label for g in guesses if g.weight >= SURE and _sayable(g.label)}
    lines = dict(sure)
    for column, place in usual.items():
        if _sayable(place.label):
            lines.setdefault(column, place.label)
    units = _units(head, lines)
    if not lines or units is None:
        return None
    why = {g.column: g.why for g in guesses}
    doubtful = [
        g for g in guesses
        if g.weight < SURE and g.column not in lines and _sayable(g.label)
    ]  # fmt: skip
    measured = {"ttft_us", "first_token"} & set(lines)
    prompted = "input_tokens" in lines and {"start", "e2e_us"} & set(lines)
    text = "\n".join(_written(head, lines, why, doubtful, units, records))
    return Proposal(text + "\n", sure, bool(measured or prompted))


def _guesses(
    records: Sequence[Mapping[str, Any]], free: Sequence[Place], known: Mapping[str, Place]
) -> list[Guess]:
    """The columns that the free fields look like, each at most once, the surest first."""
    traits = {place: trait(place, records) for place in free}
    offers: list[tuple[int, int, Guess, Place]] = []
    for place in free:
        name = _spelled(place)
        for column in _ORDER:
            if column in known:
                continue
            weight = _weight(column, name)
            if weight and _fits(column, traits[place], len(records)):
                why = _because(traits[place])
                offers.append(
                    (-weight, _ORDER.index(column), Guess(column, place.label, weight, why), place)
                )
    offers.sort(key=lambda offer: offer[:2])
    pair = _pair(free, traits, known, records)
    out = [guess for guess, _ in pair]
    places = dict(known) | {guess.column: place for guess, place in pair}
    given = {place for _, place in pair}
    for _, _, guess, place in offers:
        if guess.column in places or place in given:
            continue
        if not _agrees(guess.column, place, places, records):
            continue
        places[guess.column] = place
        given.add(place)
        out.append(guess)
    moments = [place for place in free if traits[place].kind == "moment"]
    if "start" not in places and len(moments) == 1 and moments[0] not in given:
        out.append(Guess("start", moments[0].label, SURE, "the only moments"))
    return out


def _pair(
    free: Sequence[Place],
    traits: Mapping[Place, Trait],
    known: Mapping[str, Place],
    records: Sequence[Mapping[str, Any]],
) -> list[tuple[Guess, Place]]:
    """Two times of one name, the first and the whole, of which the first is never the longer."""
    if "ttft_us" in known:
        return []
    rows = len(records)
    timed = [p for p in free if _fits("ttft_us", traits[p], rows)]
    named = {p: _spelled(p).partition(" ")[0] for p in (*timed, *known.values())}
    whole_ones = [known["e2e_us"]] if "e2e_us" in known else timed
    for first in timed:
        for whole in whole_ones:
            if not (_FIRST.search(named[first]) and _WHOLE.search(named[whole])):
                continue
            alike = _FIRST.sub("", named[first]) == _WHOLE.sub("", named[whole])
            if alike and _agrees("ttft_us", first, {"e2e_us": whole}, records):
                why = "of a pair: the first and the whole"
                pair = [(Guess("ttft_us", first.label, SURE, why), first)]
                if "e2e_us" not in known:
                    pair.append((Guess("e2e_us", whole.label, SURE, why), whole))
                return pair
    return []


def _spelled(place: Place) -> str:
    """The words of a field's name; the innermost key says most."""
    words = normal(place.column if place.path is None else place.path.rpartition(".")[2])[0]
    outer = normal(place.label)[0]
    return f"{words} {outer}" if outer != words else words


def _weight(column: str, name: str) -> int:
    inner, _, outer = name.partition(" ")
    timed = column in _DURATIONS
    if (timed or column.endswith("_tokens")) and _NEITHER.search(inner):
        return 0
    if timed and (_UNTIMED.search(inner) or (column != "ttft_us" and _COUNTED.search(inner))):
        return 0
    if column == "turn" and re.search(_QUEUED, inner):
        return 0
    if column == "e2e_us" and _FIRST.search(inner):
        return 0
    best = 0
    for pattern, weight in _HINTS[column]:
        if re.search(pattern, inner):
            best = max(best, weight)
        elif outer and re.search(pattern, outer):
            best = max(best, weight - 1)
    # Counters of a whole server are named so.
    return min(best, 1) if column.endswith("_tokens") and inner.endswith("_total") else best


def _fits(column: str, t: Trait, rows: int) -> bool:
    """Whether values of this kind and range can be those of the column."""
    number = t.kind in ("whole number", "number")
    low, high = t.low or 0.0, t.high or 0.0
    if column in _DURATIONS:
        # Beyond this it would be a date in any unit but nanoseconds; so are seconds since 1970.
        dates = low > 1e9 and high < 1.2 * low
        return number and low >= 0 and 0 < high < 1e12 and not dates
    if column.endswith("_tokens"):
        return t.kind == "whole number" and low >= 0 and high < 1e8
    if column in ("start", "end", "first_token"):
        return t.kind == "moment" or (number and low > 1e8 and t.distinct > 1)
    if column == "turn":
        return t.kind == "whole number" and 0 <= low <= 1 and 1 <= high < 10_000
    if column in ("attempts", "retries"):
        return t.kind == "whole number" and low >= 0 and high < 100
    if column == "streamed":
        return t.kind in ("true or false", "text") and t.distinct <= 2
    if column == "request_id":
        return t.kind in ("text", "whole number") and t.distinct == max(1, round(t.filled * rows))
    if column == "session_id":
        return t.kind in ("text", "whole number") and t.distinct >= 1
    if column in _GROUPS:
        return t.kind in ("text", "whole number") and t.distinct <= max(20, rows // 3)
    if column == "status":
        return t.kind in ("text", "whole number", "true or false") and t.distinct <= 20
    return False


def _agrees(
    column: str, place: Place, places: Mapping[str, Place], records: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether the values do not speak against it beside those of the other columns."""
    for low, high in (("ttft_us", "e2e_us"), ("cached_tokens", "input_tokens"),
                      ("queue_us", "e2e_us"), ("reasoning_tokens", "output_tokens")):  # fmt: skip
        if column not in (low, high):
            continue
        one, other = (place if column == c else places.get(c) for c in (low, high))
        if one is None or other is None or _differ_in_unit(one, other):
            continue
        pairs = [(number_of(one.of(r)), number_of(other.of(r))) for r in records]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if sum(a > b * 1.01 for a, b in known) > 0.2 * len(known):
            return False
    return True


def _differ_in_unit(one: Place, other: Place) -> bool:
    units = normal(one.label)[1], normal(other.label)[1]
    return units[0] != units[1]


def _because(t: Trait) -> str:
    """What speaks for a guess beside its name, without any text of the log."""
    if t.low is not None and t.high is not None:
        return f"a name like it, {t.low:,.10g} to {t.high:,.10g}"
    if t.kind == "text":
        return f"a name like it, {t.distinct:,} different texts"
    return f"a name like it, {'moments' if t.kind == 'moment' else t.kind}"


def _units(head: Head, lines: Mapping[str, str]) -> dict[str, tuple[str, str]] | None:
    """The unit of each duration and why; what stays open is guessed by the size of the numbers."""
    units: dict[str, str] = {}
    for _ in range(len(_DURATIONS) + 2):
        try:
            with speaking("en"):  # a mapping is plain ASCII in any language
                found = units_of(head, Options(columns=lines, units=units))
        except AskUser as asked:
            label = asked.about
            if label is None or label in units:
                return None
            units[label] = "ms" if _usual_size(head, label) >= 20 else "s"
        except TTFTDoctorError:
            return None
        else:
            return {
                _word(column): (unit, "a guess by its size" if label in units else why)
                for column, (label, unit, why) in found.items()
            }
    return None


def _usual_size(head: Head, label: str) -> float:
    from statistics import median

    _, records = records_of(head)
    places = [p for p in leaves(records, head.columns) if p.label == label]
    values = [number_of(places[0].of(r)) for r in records] if places else []
    known = [v for v in values if v is not None and v > 0]
    return median(known) if known else 0.0


def _written(
    head: Head,
    lines: Mapping[str, str],
    why: Mapping[str, str],
    doubtful: Sequence[Guess],
    units: Mapping[str, tuple[str, str]],
    records: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    yield f"# How to read this log; proposed from its first {len(records):,} records. Check it."
    yield "# ttftdoctor diagnose LOG --mapping THIS_FILE; or keep it as ttftdoctor.toml by the log."
    yield ""
    yield "[map]"
    order = [*COLUMNS, *HELPERS]
    wide = 34
    for column in sorted(lines, key=order.index):
        line = f"{column} = {quoted(lines[column])}"
        yield f"{line:<{wide}}  # {why.get(column, 'a usual name')}"
    for guess in doubtful:
        line = f"# {guess.column} = {quoted(guess.label)}"
        yield f"{line:<{wide}}  # perhaps: {guess.why}"
    if units:
        yield ""
        yield "[unit]"
        for column, (unit, reason) in units.items():
            line = f'{column} = "{unit}"'
            yield f"{line:<{wide}}  # {reason}"
    stamps = [column for column in (_word(s) for s in STAMPS) if column in lines]
    labels = {lines[column] for column in stamps}
    naive = [
        place
        for place in leaves(records, head.columns)
        if place.label in labels and _without_zone(place, records)
    ]
    if naive:
        yield ""
        yield "[time]"
        yield 'timezone = "UTC"                    # the stamps carry no zone: name it'
    if "vantage" not in lines:
        yield ""
        yield "# [constant]"
        yield '# vantage = "client"   # where the clock stood: client, gateway or server'


def _without_zone(place: Place, records: Sequence[Mapping[str, Any]]) -> bool:
    texts = [str(v) for v in (place.of(r) for r in records) if isinstance(v, str)]
    stamps = [text for text in texts if number_of(text) is None]
    return bool(stamps) and not any(re.search(r"(Z|UTC|[+-]\d\d:?\d\d)\s*$", t) for t in stamps)


def _sayable(label: str) -> bool:
    """Whether TOML can hold the name: half of a pair of surrogates is no character."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in label)


def quoted(text: str) -> str:
    r"""A text as a TOML string of printable ASCII, whatever is in it.

    >>> print(quoted('a"b'), quoted("naïve\x1b"))
    "a\"b" "na\u00efve\u001b"
    """
    out = []
    for letter in text:
        code = ord(letter)
        if letter in '"\\':
            out.append(f"\\{letter}")
        elif 32 <= code < 127:
            out.append(letter)
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'
