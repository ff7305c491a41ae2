"""The errors a user can meet; each one says what, where, why, what was available and what to do.

TTFTDoctorError
├── InputError          the log cannot be read, or read as what it was said to be
│   ├── UnknownFormat   no reader, or several, claim the log
│   └── AskUser         something only the user can decide (a unit, a column)
└── UsageError          an option is wrong
"""

from __future__ import annotations

import re
from typing import Any

#: How an address begins, also one that is misspelt or another program's.
_SCHEME = (
    r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]+:[/\\]+|(?:https?|postgres(?:ql)?|clickhouse):)"
)
_ADDRESS = re.compile(rf"({_SCHEME})(\S+)")
_ONLY_ADDRESS = re.compile(rf"({_SCHEME})(.+)", re.DOTALL)
#: What begins a query, a fragment, or parameters: any sign of the web, else only with a name.
_QUERY_OF_WEB = re.compile(r"[?#]|;[^/]*=")
_QUERY = re.compile(r"[?#;][\w.~%-]+=")


def hidden(text: str, *, whole: bool = False) -> str:
    """The text with its addresses without passwords, tokens and the values of queries.

    With ``whole`` an address goes on to the end of the text, whatever signs are in it.
    """
    return (_ONLY_ADDRESS if whole else _ADDRESS).sub(_bare, text)


def _bare(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    web = scheme.lower().startswith(("http:", "https:"))
    before, at, after = rest.rpartition("@")
    user, colon, secret = before.partition(":")
    if at and not re.search(r"[/?#]", user):
        # A port may stand there instead, and the sign in the name of a file.
        port = re.match(r"\d*[/?#]", secret) and "/" not in after
        if not colon or not port:
            rest = after if web else f"{user}@{after}"
    query = (_QUERY_OF_WEB if web else _QUERY).search(rest)
    if query is not None and not rest.startswith("…", query.start() + 1):
        rest = rest[: query.start() + 1] + "…"
    return scheme + rest


class TTFTDoctorError(Exception):
    """Base of all errors this package raises on purpose.

    Addresses in it lose what is secret in them.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence.
    where, why, available, help : str, optional
        The place, the reason, what there was to choose from, and the way out.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        available: str | None = None,
        help: str | None = None,
    ) -> None:
        self.what = hidden(what)
        self.where = where and hidden(where, whole=True)
        self.why = why and hidden(why)
        self.available = available and hidden(available)
        self.help = help and hidden(help)
        super().__init__(self.what)

    def __str__(self) -> str:
        parts = [self.what if self.where is None else f"{self.where}: {self.what}"]
        for label, text in (
            ("why", self.why),
            ("available", self.available),
            ("help", self.help),
        ):
            if text:
                parts.append(f"  {label}: {text}")
        return "\n".join(parts)


class InputError(TTFTDoctorError):
    """The log cannot be read.

    ``proposal`` is a mapping file by which it could be, where one can be made.
    """

    proposal: Any = None


class UnknownFormat(InputError):
    """No reader claims the log, or several do."""


class AskUser(InputError):
    """The log leaves open something that must not be guessed in silence.

    ``about`` is the field in question.
    """

    def __init__(self, what: str, *, about: str | None = None, **more: str | None) -> None:
        super().__init__(what, **more)
        self.about = about


class UsageError(TTFTDoctorError):
    """An option is wrong."""
