"""The diagnosis as one page that opens offline: a first screen, and the case in five parts.

The parts are made in :mod:`ttftdoctor.pages`; here they become one page.
"""

from __future__ import annotations

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import tr
from ttftdoctor.pages.opening import opening
from ttftdoctor.pages.review import review
from ttftdoctor.pages.shell import page
from ttftdoctor.report import Renderer, badge


def render(diagnosis: Diagnosis) -> str:
    """The whole page."""
    parts, drawings = review(diagnosis)
    found = badge(diagnosis.verdict)
    found = found.capitalize() if found.isascii() else found  # where letters have two sizes
    title = tr("{found}: why TTFT is what it is", found=found)
    return page(title, f"{opening(diagnosis)}\n{parts}", drawings)


RENDERER = Renderer(
    name="html",
    title="one HTML page with charts, opens offline",
    suffixes=(".html", ".htm"),
    render=render,
)
