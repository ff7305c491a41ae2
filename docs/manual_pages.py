"""A hook of MkDocs: the pages that ``ttftdoctor explain`` prints, as pages of the site."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ttftdoctor.manual import KINDS, Page, pages

_HEADS = {
    "causes": "Causes",
    "remedies": "Remedies",
    "metrics": "Metrics",
    "accounts": "Accounts of the ledger",
    "rungs": "Rungs of the ladder",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of each kind below the others in the navigation."""
    for kind in KINDS:
        entries: list[object] = [f"{kind}/index.md"]
        entries += [{page.id: f"{kind}/{page.id}.md"} for page in pages() if page.kind == kind]
        config.nav.append({_HEADS[kind]: entries})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and a list of them for each kind."""
    for kind in KINDS:
        some = [page for page in pages() if page.kind == kind]
        files.append(File.generated(config, f"{kind}/index.md", content=_index(kind, some)))
        for page in some:
            path = f"{kind}/{page.id}.md"
            files.append(File.generated(config, path, content=page.text))
    return files


def _index(kind: str, some: list[Page]) -> str:
    lines = [f"# {_HEADS[kind]}", "", "| page | |", "|---|---|"]
    lines += [f"| [`{page.id}`]({page.id}.md) | {page.title} |" for page in some]
    return "\n".join([*lines, "", "In a terminal: `ttftdoctor explain NAME`.", ""])
