"""The version of this tool."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tool_version() -> str:
    """The installed version, or 0 from a bare checkout."""
    try:
        return version("ttftdoctor")
    except PackageNotFoundError:
        return "0"
