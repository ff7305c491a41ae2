"""Charts as PNG files, by Kaleido and a Chromium that is there; nothing is fetched."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttftdoctor.errors import UsageError

#: Pixels of the image for each of the figure's.
SCALE = 2
HELP = (
    'python -m pip install "ttftdoctor[png]", and a Chromium or Chrome on the path (or named by '
    "BROWSER_PATH)"
)


def ready() -> None:
    """Raise UsageError where Kaleido is not installed; whether it finds a browser shows later."""
    if find_spec("kaleido") is None:
        raise UsageError("--png needs Kaleido", why="it is not installed", help=HELP)


def write(figures: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write each figure as ``NAME.png`` into the folder, which is made if need be.

    Raises
    ------
    UsageError
        Kaleido is not installed, no browser is found, or the folder cannot be written.
    """
    try:
        kaleido = importlib.import_module("kaleido")
    except ModuleNotFoundError as error:
        raise UsageError("--png needs Kaleido", why=str(error), help=HELP) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("cannot write the images", where=str(folder), why=error.strerror) from None
    paths = [folder / f"{name}.png" for name in figures]
    wanted = [
        {"fig": figure, "path": str(path), "opts": {"format": "png", "scale": SCALE}}
        for figure, path in zip(figures.values(), paths, strict=True)
    ]
    bundle = resources.files("ttftdoctor") / "pages" / "assets" / "plotly-basic.min.js"
    try:
        with resources.as_file(bundle) as library:
            kaleido.write_fig_from_object_sync(
                wanted,
                cancel_on_error=True,
                kopts={"plotlyjs": str(library), "mathjax": False},
            )
    except Exception as error:
        raise UsageError("the images could not be drawn", why=_first(error), help=HELP) from error
    return paths


def _first(error: Exception) -> str:
    """The first line of what a browser's failure says, which may be one text or several."""
    said = error.args[0] if error.args else ""
    text = said[0] if isinstance(said, tuple) and said else said
    lines = str(text).strip().splitlines()
    return lines[0] if lines else type(error).__name__
