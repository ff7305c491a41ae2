"""The box at the top of every page: the answer in one word and one sentence, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ttftdoctor.pages.markup import esc
from ttftdoctor.report import Severity


class Proof(NamedTuple):
    """One number, and what it is."""

    value: str
    name: str


def heading(
    badge: str,
    severity: Severity,
    headline: str,
    facts: Sequence[str],
    proofs: Sequence[Proof],
    below: str = "",
) -> str:
    """The box as HTML. ``facts`` are HTML already, everything else is text."""
    items = "".join(
        f"<div><dt>{esc(one.name)}</dt><dd>{esc(one.value)}</dd></div>" for one in proofs
    )
    told = "".join(f"<li>{fact}</li>" for fact in facts if fact)
    return (
        f'<header class="verdict {severity}"><p class="badge">{esc(badge)}</p>'
        f"<h1>{esc(headline)}</h1>"
        + (f'<ul class="facts">{told}</ul>' if told else "")
        + (f'<dl class="tiles">{items}</dl>' if items else "")
        + (f'<p class="quiet">{esc(below)}</p>' if below else "")
        + "</header>"
    )
