"""The diagnosis as the ``ttftdoctor.diagnosis/1`` document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.report import Renderer

# What JSON lets through raw but a terminal or a reader should not meet raw: DEL and the second
# control block, zero-width and direction marks, line separators, lone surrogates.
UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def render(diagnosis: Diagnosis) -> str:
    """The document as text; unknown is null, and no invisible character stands in it raw."""
    return text_of(diagnosis.to_dict())


def text_of(document: Mapping[str, Any]) -> str:
    """A document of plain types as text, in which no invisible character stands raw."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=2)
    return UNSEEN.sub(lambda m: f"\\u{ord(m.group()):04x}", text) + "\n"


def schema(name: str = "diagnosis-1") -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, or of another one by its name and version."""
    place = resources.files("ttftdoctor") / "schema" / f"{name}.schema.json"
    loaded: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return loaded


RENDERER = Renderer(
    name="json",
    title="JSON document, ttftdoctor.diagnosis/1",
    suffixes=(".json",),
    render=render,
)
