"""The whole comparison: read both sides, measure them, set them beside each other, score."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ttftdoctor.choose import Only, kept
from ttftdoctor.comparisons.hindcast import check_remedy, foreseen_by, foreseen_in
from ttftdoctor.comparisons.judge import judge
from ttftdoctor.comparisons.portrait import portrait_of
from ttftdoctor.comparisons.records import Comparison
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.errors import InputError
from ttftdoctor.intake import Log
from ttftdoctor.language import tr
from ttftdoctor.remedies import Settings
from ttftdoctor.run import read
from ttftdoctor.study import study
from ttftdoctor.version import tool_version


def compare(
    before: str | Path | Sequence[str | Path] | Log,
    after: str | Path | Sequence[str | Path] | Log,
    *,
    prediction: str | Path | Mapping[str, Any] | Diagnosis | None = None,
    remedy: str | None = None,
    format: str | None = None,
    columns: dict[str, str] | None = None,
    units: dict[str, str] | None = None,
    compact_to: int = 8000,
    only: Only | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Say whether a change helped, once the traffic mix is held equal.

    Parameters
    ----------
    before, after
        Paths, globs or folders, or logs from :func:`ttftdoctor.read`.
    prediction
        An earlier diagnosis: a record, its ``--json`` document, or the path of one. By default
        the prediction is made now, from ``before``.
    remedy
        Id of the remedy that was applied.
    only
        Which rows of either side are compared; all by default. A time of day and a length of time
        are by the end of each log.

    Raises
    ------
    InputError
        If a log or the prediction cannot be read.
    UsageError
        If nobody knows the remedy.
    """
    given = None
    if isinstance(prediction, Diagnosis):
        given = foreseen_in(prediction.to_dict())
    elif isinstance(prediction, Mapping):
        given = foreseen_in(prediction)
    elif prediction is not None:
        given = foreseen_in(_document(Path(prediction)), str(prediction))
    sides, warnings, first = [], [], None
    for name, source in (("before", before), ("after", after)):
        if isinstance(source, Log):
            log = kept(source, only)
        else:
            paths = [source] if isinstance(source, (str, Path)) else source
            log = read(
                *[str(path) for path in paths], format=format, columns=columns, units=units,
                only=only, progress=progress,
            )  # fmt: skip
        found, examined = study(log, name, Settings(compact_to), draw=False)
        first = first or found
        sides.append(portrait_of(log, found, examined))
        which = tr("before") if name == "before" else tr("after")
        warnings += [tr("{side}: {text}", side=which, text=text) for text in found.warnings]
    assert first is not None
    # What nobody did and nobody foretold is not held against what happened.
    foreseen = given or (None if remedy is None else foreseen_by(first))
    if foreseen is not None:
        check_remedy(remedy, foreseen)
    return judge(
        *sides, version=tool_version(), foreseen=foreseen, remedy=remedy, warnings=warnings
    )


def _document(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("cannot be read", where=str(path), why=error.strerror) from None
    except (ValueError, RecursionError):
        raise InputError("this is no JSON document", where=str(path)) from None
