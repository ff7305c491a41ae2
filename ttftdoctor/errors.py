"""The errors a user can meet; each one says what, where, why, what was available and what to do.

TTFTDoctorError
├── InputError          the log cannot be read, or read as what it was said to be
│   ├── UnknownFormat   no reader, or several, claim the log
│   └── AskUser         something only the user can decide (a unit, a column)
└── UsageError          an option is wrong
"""

from __future__ import annotations

from typing import Any


class TTFTDoctorError(Exception):
    """Base of all errors this package raises on purpose.

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
        self.what = what
        self.where = where
        self.why = why
        self.available = available
        self.help = help
        super().__init__(what)

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
