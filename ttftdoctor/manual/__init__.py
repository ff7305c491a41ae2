"""The manual: one Markdown page for each cause, remedy, metric, account and rung.

A page is ``manual/KIND/ID.md``: a heading ``# ID: TITLE``, a sentence, and the sections of its
kind. The same files are printed by ``ttftdoctor explain`` and are pages of the site.

To add a page: write the file with all sections of its kind. A cause, a remedy, an account or a
rung has to have one (``tests/test_manual.py``); a metric also goes into ``METRICS``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ttftdoctor.errors import UsageError
from ttftdoctor.report import TITLES

#: Kinds of pages: folder to what one page of it is called.
KINDS: Mapping[str, str] = {
    "causes": "cause",
    "remedies": "remedy",
    "metrics": "metric",
    "accounts": "account of the ledger",
    "rungs": "rung of the prefix ladder",
}

#: Where the last section of a page says what to set: every engine and provider, in this order.
ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "Anthropic", "OpenAI")

_WHY = "Why the first token waits"
_TOLD = "How it is told from its neighbours"
_UNTOLD = "When it cannot be told"

#: The sections of each kind, in order.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "causes": ("What it is", _WHY, _TOLD, _UNTOLD, "What helps", "Where it is set"),
    "remedies": (
        "What it is",
        "Why the first token waits less",
        _TOLD,
        "When its gain cannot be told",
        "What it costs",
        "Where it is set",
    ),
    "metrics": (
        "What it is",
        "What it says of the first token",
        _TOLD,
        _UNTOLD,
        "What helps",
        "Where it is found",
    ),
    "accounts": ("What it is", _WHY, _TOLD, _UNTOLD, "What helps"),
    "rungs": ("What it is", _WHY, _TOLD, _UNTOLD, "What helps", "Where it is set"),
}

#: The metrics and the rungs, in the order in which they are listed.
METRICS = (
    "ttft",
    "tpot",
    "itl",
    "e2e",
    "uncached_tokens",
    "prefix_reuse",
    "queue_time",
    "backlog",
    "goodput",
    "cost_line",
    "confidence",
)
RUNGS = ("ideal", "expiry", "capacity", "routing", "rounding", "actual")

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True)
class Page:
    """One page. ``kind`` is its folder; ``text`` is the whole of the Markdown.

    ``sections`` are (heading, Markdown) in order; links in them are relative to the page's folder.
    """

    kind: str
    id: str
    title: str
    summary: str
    sections: tuple[tuple[str, str], ...]
    text: str


@cache
def pages() -> tuple[Page, ...]:
    """Every page: kinds in their order, and in each the order of the vocabulary."""
    order = {name: at for at, name in enumerate((*TITLES, *METRICS, *RUNGS))}
    found = []
    for kind in KINDS:
        folder = resources.files(__name__) / kind
        files = [file for file in folder.iterdir() if file.name.endswith(".md")]
        some = [_page(kind, file.name[:-3], file.read_text(encoding="utf-8")) for file in files]
        found += sorted(some, key=lambda page: (order.get(page.id, len(order)), page.id))
    return tuple(found)


def _page(kind: str, ident: str, text: str) -> Page:
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    first, _, summary = head.strip().partition("\n")
    sections = []
    for part in parts:
        heading, _, body = part.partition("\n")
        sections.append((heading.strip(), body.strip()))
    title = first.removeprefix("# ").partition(": ")[2]
    return Page(kind, ident, title, summary.strip(), tuple(sections), text)


def plain_links(text: str) -> str:
    """The Markdown with each link as its words only: a terminal cannot follow a relative one."""
    return _LINK.sub(r"\1", text)


def find(word: str) -> Page:
    """The page of a word: an id or a title, however it is spelled.

    Raises
    ------
    UsageError
        If there is none; the nearest are named.
    """
    asked = _bare(word)
    for page in pages():
        if asked in (_bare(page.id), _bare(page.title)):
            return page
    near = nearest(word)
    raise UsageError(
        f"the manual has no page {word[:80]!r}",
        available=", ".join(near) or None,
        help="ttftdoctor explain lists all pages",
    )


def nearest(word: str, most: int = 6) -> list[str]:
    """Ids of pages whose id, title or summary has the word in it, or whose id is spelled alike."""
    asked = _bare(word)[:80]
    all_ids = {_bare(page.id): page.id for page in pages()}
    found = [page.id for page in pages() if len(asked) > 2 and asked in _bare(page.id)]
    found += [
        page.id for page in pages() if len(asked) > 2 and asked in _bare(page.title + page.summary)
    ]
    found += [all_ids[name] for name in difflib.get_close_matches(asked, all_ids, most, 0.6)]
    return list(dict.fromkeys(found))[:most]


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold())
