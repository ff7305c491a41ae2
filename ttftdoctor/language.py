"""The language reports are written in: English as it stands in the code, others by a catalogue.

A sentence is written once, in English, where it is said: ``tr("{n} turns wait", n=count(n))``. Its
translation is looked up by that text in ``locale/LANG/LC_MESSAGES/ttftdoctor.po``, and the figures
go in afterwards, so that a translation may put them in another order. What is declared when a
module is loaded is only marked (:func:`mark`) and translated where it is said.

What is said in a language holds for all inside ``with speaking(...)``; work handed to another
thread takes the language along by :func:`carry`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar, get_args

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from babel.messages.catalog import Catalog

#: A Chinese character or mark, beside which another one stands without a blank.
_HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uff60]")
#: A Chinese character and a letter or digit, which stand apart.
_APART = re.compile(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9%][\u4e00-\u9fff]")

P = ParamSpec("P")
T = TypeVar("T")

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

_SPOKEN: ContextVar[Language] = ContextVar("language", default="en")


def spoken() -> Language:
    """The language of what is said now."""
    return _SPOKEN.get()


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Say all inside in this language."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def carry(work: Callable[P, T]) -> Callable[P, T]:
    """The work, in the language of whoever hands it to another thread."""
    return partial(copy_context().run, work)


def mark(text: str) -> str:
    """Put a text into the catalogue that is translated later, by :func:`tr`; give it unchanged."""
    return text


def tr(text: str, /, **values: object) -> str:
    """The text in the language spoken, with its ``{values}`` filled in.

    A text without values is given as it is: its braces need no doubling.

    Examples
    --------
    >>> tr("{n} of {all} turns", n=3, all=10)
    '3 of 10 turns'
    """
    if spoken() != "en":
        return _filled(_translations(spoken()).get(text, text), values)
    return text.format(**values) if values else text


def tr_n(one: str, many: str, number: float, /, **values: object) -> str:
    """The text for one thing or for many, in the language spoken.

    Raises
    ------
    KeyError
        If a text holds a place without a value.

    Examples
    --------
    >>> tr_n("{n} request", "{n} requests", 1, n="1")
    '1 request'
    """
    if spoken() != "en":
        return _filled(_plural(spoken(), one, many, number), values)
    text = one if number == 1 else many
    return text.format(**values) if values else text


def listed(words: Sequence[str]) -> str:
    """Words as one list: ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return tr("{words} and {last}", words=tr(", ").join(words[:-1]), last=words[-1])


def _filled(text: str, values: Mapping[str, object]) -> str:
    """The text with its values, set apart from it as Chinese is set.

    Between a Chinese character and a letter or digit there is a blank, between two Chinese ones
    there is none. A template cannot know which of them a value begins and ends with; inside a
    value, which may be a name from a log, nothing is changed.
    """
    if not values:
        return text
    from string import Formatter

    out = ""
    inside = False  # whether the last piece was a value
    for literal, name, form, _ in Formatter().parse(text):
        pieces = [(literal, False)] if literal else []
        if name is not None:
            pieces.append((format(values[name], form or ""), True))
        for piece, is_value in pieces:
            out = out + piece if is_value == inside else _beside(out, piece, inside)
            inside = is_value
    return out


def _beside(left: str, right: str, value_left: bool) -> str:
    """A value beside a piece of the template, with or without a blank between them."""
    if not left or not right:
        return left + right
    if not value_left and left[-1] == " " and _HAN.match(left[-2:-1]) and _HAN.match(right):
        return left[:-1] + right
    if value_left and right[0] == " " and _HAN.match(left[-1]) and _HAN.match(right[1:2]):
        return left + right[1:]
    pair = left[-1] + right[0]
    return f"{left} {right}" if _APART.match(pair) else left + right


def catalogue(language: str) -> Traversable:
    """The file of the translations into a language."""
    from importlib.resources import files

    return files("ttftdoctor") / "locale" / language / "LC_MESSAGES" / "ttftdoctor.po"


@cache
def _catalogue(language: str) -> Catalog:
    from babel.messages.pofile import read_po

    with catalogue(language).open("rb") as file:
        return read_po(file, locale=language)


@cache
def _translations(language: str) -> dict[str, str]:
    """English to the language, of all that stands for itself."""
    return {
        message.id: message.string
        for message in _catalogue(language)
        if isinstance(message.id, str) and isinstance(message.string, str) and message.string
    }


def _plural(language: str, one: str, many: str, number: float) -> str:
    from gettext import c2py

    whole = _catalogue(language)
    message = whole.get(one)
    forms = () if message is None else message.string
    if isinstance(forms, str) or not forms or not all(forms):
        return one if number == 1 else many
    return forms[c2py(whole.plural_expr)(int(number))]
