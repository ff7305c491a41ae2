"""What would prove the verdict or disprove it: a command to run, and what must come out."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from ttftdoctor.diagnosis import Experiment, Gain
from ttftdoctor.language import tr
from ttftdoctor.units import seconds

#: A moment with a date, and such a moment in an expression.
_DATED = re.compile(r"^\s*\d{4}-")
_DATE = re.compile(r"""["']\s*\d{4}-\d\d-\d\d""")
#: Paths named in a command.
MOST_PATHS = 8
#: A gain below this share of the mean TTFT is too small to tell whether it came.
LEAST_GAIN = 0.03


def arguments(
    paths: Sequence[str],
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
) -> str:
    """The log as arguments of a command, quoted for a shell: its paths, and how it is read.

    ``more`` are further arguments that name its rows.
    """
    if len(paths) > MOST_PATHS:
        paths = [_folder(paths)]
    # A name that begins with a dash must not be taken for an option.
    words = [f"./{path}" if path.startswith("-") and path != "-" else path for path in paths]
    if format is not None:
        words += ["--format", format]
    for option, pairs in (("--map", columns), ("--unit", units)):
        for name, value in (pairs or {}).items():
            words += [option, f"{name}={value}"]
    return shlex.join([*words, *more])


def _folder(paths: Sequence[str]) -> str:
    """The folder that all of these are in."""
    if any("://" in path for path in paths):
        return os.path.commonpath(paths).replace(":/", "://", 1) + "/"
    return os.path.commonpath([os.path.abspath(path) for path in paths])


def _lasting(words: Sequence[str]) -> list[str]:
    """Arguments without those that name rows by a date, which no later log would have."""
    out: list[str] = []
    rest = iter(words)
    for word in rest:
        if word not in ("--since", "--until", "--where"):
            out.append(word)
            continue
        value = next(rest, "")
        if not (_DATE if word == "--where" else _DATED).search(value):
            out += [word, value]
    return out


def filled(experiment: Experiment | None, log: str) -> Experiment | None:
    """The experiment with the log's own :func:`arguments` in its command."""
    if experiment is None or experiment.command is None:
        return experiment
    words = shlex.split(log)
    paths = list(takewhile(lambda word: not word.startswith("--"), words))
    text = experiment.text
    if paths and experiment.command.startswith("ttftdoctor compare "):
        more = _lasting(words[len(paths) :])
        if len(more) < len(words) - len(paths):
            text += tr(" Its rows are those of all times: a date would hold for both logs.")
        # A comparison takes one path for each side.
        log = shlex.join([_folder(paths) if len(paths) > 1 else paths[0], *more])
    if "-" in paths:
        text += tr(" The log came from standard input: pipe it in again.")
    return replace(experiment, text=text, command=experiment.command.replace("{log}", log))


def expecting(
    experiment: Experiment | None, remedies: Sequence[Gain], mean_s: float | None
) -> Experiment | None:
    """The experiment with the mean TTFT that its remedy must bring if the verdict is right."""
    if experiment is None or experiment.command is None or mean_s is None:
        return experiment
    _, option, remedy = experiment.command.rpartition(" --remedy ")
    gain = next((g for g in remedies if option and g.id == remedy), None)
    if gain is None or gain.ttft_mean_s is None or gain.interval is None:
        return experiment
    if (gain.gain_share or 0.0) < LEAST_GAIN:
        return experiment
    most, least = (mean_s * (1 - part) for part in gain.interval)
    text = experiment.text + tr(
        " If this is the cause, the mean TTFT falls from {was} to about {now} ({least} to {most}); "
        "if it stays, it is not.",
        was=seconds(mean_s), now=seconds(gain.ttft_mean_s), least=seconds(least),
        most=seconds(most),
    )  # fmt: skip
    return replace(experiment, text=text)
