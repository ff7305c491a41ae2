"""The report functions and ``inspect``, for use from Python."""

from __future__ import annotations

from pathlib import Path

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.inspection import Inspection, inspect_log
from ttftdoctor.intake import Log
from ttftdoctor.run import read


def inspect(*logs: str | Path | Log, format: str | None = None) -> Inspection:
    """Say what was recognised: which column became what, in which unit and why.

    Parameters
    ----------
    logs
        Paths, or one log from :func:`ttftdoctor.read`.
    """
    if len(logs) == 1 and isinstance(logs[0], Log):
        return inspect_log(logs[0])
    return inspect_log(read(*[str(path) for path in logs], format=format))


def render(diagnosis: Diagnosis, name: str) -> str:
    """Write a diagnosis in one of the forms of ``catalog.renderers()``."""
    return catalog.renderers()[name].render(diagnosis)


def to_json(diagnosis: Diagnosis) -> str:
    """The ``ttftdoctor.diagnosis/1`` document."""
    return render(diagnosis, "json")


def to_markdown(diagnosis: Diagnosis) -> str:
    """Markdown that fits a comment on a pull request."""
    return render(diagnosis, "markdown")


def to_html(diagnosis: Diagnosis) -> str:
    """One page that opens offline."""
    return render(diagnosis, "html")


def to_text(diagnosis: Diagnosis) -> str:
    """The terminal report, 80 columns, without colour."""
    return render(diagnosis, "terminal")
