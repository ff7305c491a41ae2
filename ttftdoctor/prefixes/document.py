"""The document ``ttftdoctor.prefix/1``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttftdoctor.diagnosis import Input, plain
from ttftdoctor.prefixes.records import PrefixFindings

SCHEMA = "ttftdoctor.prefix/1"


@dataclass(frozen=True)
class PrefixReport:
    """What was read, and what was found about shared prefixes in it."""

    version: str
    inputs: tuple[Input, ...]
    found: PrefixFindings
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON, in the order of the document."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "ttftdoctor", "version": self.version},
            "inputs": plain(self.inputs),
            **plain(self.found),
            "warnings": plain(self.warnings),
        }
