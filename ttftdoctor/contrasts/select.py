"""Which rows an expression means: a small language of its own, read by hand, nothing evaluated.

::

    any:        all ("or" all)*
    all:        term ("and" term)*
    term:       "not" term | "(" any ")" | column | column "is" ["not"] "null"
                | column ["not"] "in" "(" value ("," value)* ")" | side (op side)+
    side:       column | value
    value:      12300  12_300  12.3k  80%  800ms  2 s  p95  p99.5  median  "text"  true  false

What the log does not say makes a comparison neither true nor false (Kleene's logic); a text that
is not there differs from every text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol

from ttftdoctor.errors import UsageError
from ttftdoctor.language import tr
from ttftdoctor.mapping.manner import manner
from ttftdoctor.report import clean
from ttftdoctor.units import UNIT_WORDS, US_PER, figure, seconds, share
from ttftdoctor.zones import local, moment_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

LONGEST = 4000
DEEPEST = 60

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d][\w.]*)
    |(?P<op><=|>=|==|!=|<>|&&|\|\||[<>=!(),%&|-])""",
    re.VERBOSE,
)
_WORDS = {"&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}
_OPS = {"=": "==", "<>": "!="}
_COMPARE = ("<", "<=", ">", ">=", "==", "!=")
_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_TOKENS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "tokens": 1.0, "tok": 1.0}


class Named(Protocol):
    """What a column must tell: its unit (``s``, ``tokens``, ``share``, ``count``, ``instant`` or
    ``text``), and its values as numbers (NaN for unknown) or as a test for texts.
    """

    @property
    def unit(self) -> str:
        """The unit."""

    def numbers(self) -> Array:
        """Values, (n,)."""

    def is_any(self, texts: Sequence[str]) -> Mask:
        """Which rows have one of these texts, (n,)."""

    def known(self) -> Mask:
        """Which rows have a value, (n,)."""


@dataclass(frozen=True)
class Rows:
    """What an expression is held against.

    ``aliases`` gives further names; ``lacking`` columns exist, but not in this log. Percentiles
    are those of the ``counted`` rows, (n,), by default of all.
    """

    n: int
    columns: Mapping[str, Named]
    aliases: Mapping[str, str]
    lacking: Sequence[str]
    epoch_us: int | None
    counted: Mask | None = None


@dataclass(frozen=True)
class Chosen:
    """The rows meant, those that cannot be told, the columns named, and the meaning in words.

    The words are those of the expression itself, and not translated.
    """

    rows: Mask
    unsure: Mask
    named: tuple[str, ...]
    means: str


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    end: int


@dataclass(frozen=True)
class _Column:
    name: str
    token: _Token


@dataclass(frozen=True)
class _Value:
    kind: str  # number, text, percentile
    number: float
    text: str
    unit: str
    token: _Token


def select(expression: str, rows: Rows, option: str = "--select") -> Chosen:
    """Read an expression and say which rows it means.

    Raises
    ------
    UsageError
        With the place in the expression, and what there was to choose from.
    """
    return _Parser(expression, rows, option).whole()


class _Parser:
    """Reads and answers at once: every part gives (true, unknown) masks and its words."""

    def __init__(self, expression: str, rows: Rows, option: str) -> None:
        self.source, self.rows, self.option = expression, rows, option
        self.named: dict[str, None] = {}
        self.depth = 0
        if len(expression) > LONGEST:
            raise UsageError(f"{option}: the expression is longer than {LONGEST:,} characters")
        self.tokens = list(self._cut())
        self.at = 0

    def whole(self) -> Chosen:
        if self.peek.kind == "end":
            self.fail("there is no condition", self.peek, help="for example: 'ttft > p95'")
        true, unsure, means = self.any()
        if self.peek.kind != "end":
            digits = self.peek.text == "," and self.tokens[self.at - 1].kind == "number"
            self.fail(
                f"this was not expected here: {clean(self.peek.text, 40)}", self.peek,
                help="write 12300 or 12_300 without a comma" if digits
                else "join conditions with and, or",
            )  # fmt: skip
        return Chosen(true, unsure & ~true, tuple(self.named), means)

    # words

    def _cut(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.source):
            match = _TOKEN.match(self.source, at)
            if match is None:
                bad = _Token("bad", self.source[at], at, at + 1)
                what = "this quotation mark is never closed" if bad.text in "\"'" else (
                    f"this is no part of an expression: {clean(bad.text)}"
                )  # fmt: skip
                self.fail(what, bad)
            kind, text = str(match.lastgroup), match[0]
            if kind == "op":
                text = _OPS.get(text, text)
                if text in _WORDS:
                    kind, text = "name", _WORDS[text]
            if kind != "space":
                yield _Token(kind, text, at, match.end())
            at = match.end()
        yield _Token("end", "", at, at + 1)

    @property
    def peek(self) -> _Token:
        return self.tokens[self.at]

    def next(self) -> _Token:
        token = self.peek
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def word(self, *words: str) -> bool:
        """Take the next token if it is one of these words or signs."""
        token = self.peek
        if token.kind in ("name", "op") and token.text.lower() in words:
            self.next()
            return True
        return False

    def fail(
        self, what: str, token: _Token, *, available: str | None = None, help: str | None = None
    ) -> NoReturn:
        end = min(token.end + 30, token.at + 100)
        shown = clean(self.source[max(0, token.at - 60) : end], 1000)
        before = len(clean(self.source[max(0, token.at - 60) : token.at], 400))
        marks = "^" * max(1, min(len(clean(self.source[token.at : token.end], 200)), 60))
        raise UsageError(
            f"{self.option}: {what}\n    {shown}\n    {' ' * before}{marks}",
            available=available, help=help,
        )  # fmt: skip

    # logic

    def any(self) -> tuple[Mask, Mask, str]:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail("too many parentheses inside each other", self.peek)
        true, unsure, means = self.all()
        while self.word("or"):
            other, doubt, words = self.all()
            true, unsure = true | other, (unsure | doubt) & ~(true | other)
            means = f"{means} or {words}"
        self.depth -= 1
        return true, unsure, means

    def all(self) -> tuple[Mask, Mask, str]:
        true, unsure, means = self.term()
        while self.word("and"):
            other, doubt, words = self.term()
            false = ~(true | unsure) | ~(other | doubt)
            true, means = true & other, f"{means} and {words}"
            unsure = ~true & ~false
        return true, unsure, means

    def term(self) -> tuple[Mask, Mask, str]:
        if self.word("not"):
            self.depth += 1
            if self.depth > DEEPEST:
                self.fail("too many negations inside each other", self.peek)
            true, unsure, means = self.term()
            self.depth -= 1
            return ~true & ~unsure, unsure, f"not {means}"
        if self.word("("):
            true, unsure, means = self.any()
            if not self.word(")"):
                self.fail("a closing parenthesis is missing", self.peek)
            return true, unsure, f"({means})"
        return self.comparison()

    def comparison(self) -> tuple[Mask, Mask, str]:
        left = self.side()
        if isinstance(left, _Column):
            if self.word("is"):
                return self.null(left)
            if self.word("in"):
                return self.among(left, negate=False)
            if self.peek.text.lower() == "not" and self.peek.kind == "name":
                self.next()
                if not self.word("in"):
                    self.fail("`in` was expected after `not`", self.peek)
                return self.among(left, negate=True)
        if self.peek.text not in _COMPARE or self.peek.kind != "op":
            if isinstance(left, _Column) and self.rows.columns[left.name].unit == "text":
                return self.flag(left)
            self.fail(
                "a comparison was expected here", self.peek,
                available="<, <=, >, >=, ==, !=, in (..), is null",
            )  # fmt: skip
        true = unsure = None
        words: list[str] = []
        while self.peek.text in _COMPARE and self.peek.kind == "op":
            op = self.next()
            right = self.side()
            one, doubt, said = self.compare(left, op, right)
            if true is None or unsure is None:
                true, unsure = one, doubt
            else:
                false = ~(true | unsure) | ~(one | doubt)
                true = true & one
                unsure = ~true & ~false
            words.append(said)
            left = right
        assert true is not None
        assert unsure is not None
        return true, unsure, " and ".join(words)

    def flag(self, column: _Column) -> tuple[Mask, Mask, str]:
        held = self.rows.columns[column.name]
        yes, no = held.is_any(["yes"]), held.is_any(["no"])
        if not (yes | no)[held.known()].all():
            self.fail(
                "a comparison was expected here", self.peek,
                help=f'for example: {column.name} == "..."',
            )  # fmt: skip
        return yes, ~held.known(), column.name

    def null(self, column: _Column) -> tuple[Mask, Mask, str]:
        negate = self.word("not")
        if not self.word("null", "none"):
            self.fail("`null` was expected after `is`", self.peek)
        known = self.rows.columns[column.name].known()
        return (
            known if negate else ~known,
            known & ~known,
            f"{column.name} is {'not ' if negate else ''}null",
        )

    def among(self, column: _Column, *, negate: bool) -> tuple[Mask, Mask, str]:
        if not self.word("("):
            self.fail("an opening parenthesis was expected after `in`", self.peek)
        values: list[_Value] = []
        while True:
            token = self.peek
            value = self.side()
            if isinstance(value, _Column):
                self.fail("values are listed here, not columns", token)
            values.append(value)
            if not self.word(","):
                break
        if not self.word(")"):
            self.fail("a closing parenthesis is missing", self.peek)
        found = [self.test(column, "==", value, value.token) for value in values]
        true, unsure, _ = found[0]
        for one, doubt, _ in found[1:]:
            true, unsure = true | one, unsure | doubt
        unsure = unsure & ~true
        words = ", ".join(said.partition(" == ")[2] for _, _, said in found)
        if negate:
            true = ~true & ~unsure
        return true, unsure, f"{column.name} {'not ' if negate else ''}in ({words})"

    # sides

    def side(self) -> _Column | _Value:  # noqa: RET503  (fail never returns)
        token = self.next()
        if token.text == "-" and self.peek.kind == "number":
            value = self.number(self.next())
            return _Value(value.kind, -value.number, "-" + value.text, value.unit, value.token)
        if token.kind == "number":
            return self.number(token)
        if token.kind == "text":
            return _Value("text", 0.0, re.sub(r"\\(.)", r"\1", token.text[1:-1]), "", token)
        if token.kind == "name":
            return self.name(token)
        self.fail("a column or a value was expected here", token)

    def number(self, token: _Token) -> _Value:
        raw = token.text.replace("_", "")
        unit, last = "", token
        follow = self.peek
        if follow.text == "%" or (
            follow.kind == "name" and (follow.text in UNIT_WORDS or follow.text in _TOKENS)
        ):
            unit, last = follow.text, self.next()
        elif follow.kind == "name" and follow.at == token.end and not self.sign(follow):
            self.fail(
                f"there is no unit {clean(follow.text, 40)}", follow,
                available="ns, us, ms, s, min, h, %, k, M",
            )  # fmt: skip
        number = float(raw)
        if number in (float("inf"), float("-inf")):
            self.fail("this number is too large", token)
        return _Value("number", number, token.text, unit, _Token("number", "", token.at, last.end))

    def sign(self, token: _Token) -> bool:
        """Whether a word was written as a sign: ``&`` for ``and``."""
        return self.source[token.at] in "&|!"

    def name(self, token: _Token) -> _Column | _Value:  # noqa: RET503  (fail never returns)
        word = token.text
        if word in ("true", "false"):
            return _Value("text", 0.0, "yes" if word == "true" else "no", "", token)
        if word == "median":
            return _Value("percentile", 50.0, "median", "", token)
        match = re.fullmatch(r"p(\d+(?:\.\d+)?)", word)
        if match and word not in self.rows.columns:
            if not 0 <= float(match[1]) <= 100:
                self.fail("a percentile lies between p0 and p100", token)
            return _Value("percentile", float(match[1]), word, "", token)
        name = self.rows.aliases.get(word, word)
        if name in self.rows.columns:
            self.named[name] = None
            return _Column(name, token)
        there = ", ".join(self.rows.columns)
        if name in self.rows.lacking:
            self.fail(f"this log does not say `{name}`", token, available=there)
        near = difflib.get_close_matches(word, [*self.rows.columns, *self.rows.aliases], n=1)
        self.fail(
            f"there is no column `{clean(word, 40)}`", token, available=there,
            help=f"did you mean {near[0]}?" if near
            else f'a text is written in quotes: "{clean(word, 40)}"',
        )  # fmt: skip

    # comparing

    def compare(
        self, left: _Column | _Value, op: _Token, right: _Column | _Value
    ) -> tuple[Mask, Mask, str]:
        if isinstance(left, _Value):
            if isinstance(right, _Value):
                self.fail("one side of a comparison must be a column", left.token)
            return self.test(right, _FLIP[op.text], left, op)
        if isinstance(right, _Value):
            return self.test(left, op.text, right, op)
        one, other = self.rows.columns[left.name], self.rows.columns[right.name]
        if one.unit != other.unit or one.unit == "text":
            self.fail(
                f"{left.name} ({one.unit}) and {right.name} ({other.unit}) cannot be compared",
                right.token,
            )
        true, unsure = _ordered(one.numbers(), op.text, other.numbers())
        return true, unsure, f"{left.name} {op.text} {right.name}"

    def test(
        self, column: _Column, op: str, value: _Value, place: _Token
    ) -> tuple[Mask, Mask, str]:
        held = self.rows.columns[column.name]
        if held.unit == "text":
            if op not in ("==", "!="):
                self.fail(
                    f"{column.name} is a text: it has no order", place, available="==, !=, in"
                )
            if value.kind == "percentile":
                self.fail(f"{column.name} is a text: it has no percentiles", value.token)
            text = value.text
            if value.kind == "number" and value.unit:
                text = self.source[value.token.at : value.token.end]
            same = held.is_any([text])
            said = f'{column.name} {op} "{text}"'
            return same if op == "==" else ~same, same & ~same, said
        bound, shown = self.bound(column, held, value)
        true, unsure = _ordered(held.numbers(), op, bound)
        return true, unsure, f"{column.name} {op} {shown}"

    def bound(self, column: _Column, held: Named, value: _Value) -> tuple[float, str]:
        """The value in the unit of the column, and in words."""
        import numpy as np

        unit = held.unit
        if value.kind == "percentile":
            known = held.numbers()
            if self.rows.counted is not None:
                known = known[self.rows.counted]
            known = known[np.isfinite(known)]
            if not len(known):
                self.fail(f"no row has `{column.name}`", column.token)
            at = float(np.quantile(known, value.number / 100))
            return at, f"{worded(at, unit, self.rows.epoch_us)} ({value.text})"
        if value.kind == "text":
            if unit != "instant":
                self.fail(f"{column.name} is a number, not a text", value.token)
            at = self.instant(value)
            return at, f'"{value.text}"'
        number = self.scaled(column, unit, value)
        return number, worded(number, unit, None)

    def scaled(self, column: _Column, unit: str, value: _Value) -> float:
        scale: Callable[[str], float | None]
        if unit in ("s", "instant"):
            if not value.unit and value.number == 0:
                return 0.0
            scale = lambda word: US_PER[UNIT_WORDS[word]] / 1e6 if word in UNIT_WORDS else None  # noqa: E731
            wanted = f"say {value.text}s or {value.text}ms"
            if unit == "instant":
                wanted = 'a time in quotes, "2026-01-01 10:00", or since the first row, 90min'
        elif unit == "share":
            scale = {"": 1.0, "%": 0.01}.get
            wanted = "say 0.8 or 80%"
        else:
            scale = (_TOKENS if unit == "tokens" else {"": 1.0, "k": 1e3, "M": 1e6}).get
            wanted = "a bare number, or with k or M"
        factor = scale(value.unit)
        if factor is None:
            what = "needs another unit" if value.unit else "needs a unit"
            self.fail(f"{column.name} {what}", value.token, help=wanted)
        return value.number * factor

    def instant(self, value: _Value) -> float:
        """Seconds since the first row."""
        if self.rows.epoch_us is None:
            self.fail(
                "the clock of this log is relative: it has no dates", value.token,
                help="say how long after the first row, for example start > 30min",
            )  # fmt: skip
        try:
            moment = datetime.fromisoformat(value.text.strip())
        except ValueError:
            self.fail(
                "this is no time", value.token,
                help='write "2026-01-01", "2026-01-01 10:00" or "2026-01-01T10:00:00+02:00"; '
                f"{manner().timezone or 'UTC'} where nothing else is said",
            )  # fmt: skip
        if moment.tzinfo is None:
            zone = manner().timezone or "UTC"
            known = moment_of(moment, zone)
            if known is None:
                self.fail(f"the clocks of {zone} never show this", value.token)
            moment = known
        return moment.timestamp() - self.rows.epoch_us / 1e6


def _ordered(values: Array, op: str, bound: Array | float) -> tuple[Mask, Mask]:
    """Which values meet the bound, and for which that is unknown; NaN is unknown."""
    import numpy as np

    unsure = np.isnan(values) | np.isnan(bound)
    with np.errstate(invalid="ignore"):
        if op in ("==", "!="):
            # Logged seconds carry the dust of a division: a microsecond is what can be told apart.
            same = np.abs(values - bound) <= 5e-7 + 1e-12 * np.abs(bound)
            true = same if op == "==" else ~same
        elif op == "<":
            true = values < bound
        elif op == "<=":
            true = values <= bound
        elif op == ">":
            true = values > bound
        else:
            true = values >= bound
    return true & ~unsure, unsure


def worded(value: float, unit: str, epoch_us: int | None) -> str:
    """A value of a column as people read it; instants as dates where the clock has them.

    Dates are those of the zone of this run.
    """
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return share(value)
    if unit == "instant":
        if epoch_us is None:
            return tr("{time} after the first row", time=seconds(value))
        stamp = datetime.fromtimestamp(epoch_us / 1e6 + value, UTC)
        zone = manner().timezone
        if zone is not None:
            stamp = local(stamp, zone)
        return stamp.strftime("%Y-%m-%d %H:%M:%S")
    if unit == "tokens" or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else figure(value)
