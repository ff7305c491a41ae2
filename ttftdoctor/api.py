"""The report functions and ``inspect``, for use from Python."""

from __future__ import annotations

from pathlib import Path

from ttftdoctor import catalog
from ttftdoctor.choose import Only, kept
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.inspection import Inspection, inspect_log
from ttftdoctor.intake import Log
from ttftdoctor.run import read


def inspect(
    *logs: str | Path | Log, format: str | None = None, only: Only | None = None
) -> Inspection:
    """Say what was recognised: which column became what, in which unit and why.

    Parameters
    ----------
    logs
        Paths, or one log from :func:`ttftdoctor.read`.
    only
        Which rows are looked at; all by default.
    """
    if len(logs) == 1 and isinstance(logs[0], Log):
        return inspect_log(kept(logs[0], only))
    return inspect_log(read(*[str(path) for path in logs], format=format, only=only))


def render(diagnosis: Diagnosis, name: str) -> str:
    """Write a diagnosis in one of the forms of ``catalog.renderers()``."""
    return catalog.renderer(name).render(diagnosis)


def to_json(diagnosis: Diagnosis) -> str:
    """The ``ttftdoctor.diagnosis/1`` document."""
    return render(diagnosis, "json")


def to_markdown(diagnosis: Diagnosis) -> str:
    """Markdown that fits a comment on a pull request."""
    return render(diagnosis, "markdown")


def to_html(diagnosis: Diagnosis) -> str:
    """One page that opens offline."""
    return render(diagnosis, "html")


def to_csv(diagnosis: Diagnosis) -> dict[str, str]:
    """Every table as CSV, by file name."""
    from ttftdoctor.outputs.csv_tables import tables

    return tables(diagnosis)


def to_openmetrics(diagnosis: Diagnosis) -> str:
    """A page of metrics for Prometheus."""
    from ttftdoctor.outputs import openmetrics

    return openmetrics.render(diagnosis)


def explain(word: str) -> str:
    """The manual's page of a cause, remedy, metric, account or rung, as Markdown.

    Raises
    ------
    UsageError
        If there is no such page; the nearest are named.
    """
    from ttftdoctor.manual import find

    return find(word).text


def to_text(diagnosis: Diagnosis) -> str:
    """The terminal report, 80 columns, without colour."""
    return render(diagnosis, "terminal")
