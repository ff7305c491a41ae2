"""Bring the catalogues of translations up to date with the sentences of the source.

``python tools/messages.py`` puts new sentences into ``ttftdoctor/locale/*/LC_MESSAGES/*.po`` with
an empty translation, and takes out those that are said no more; what is translated stays as it is.
``--check`` changes nothing and fails if there is something to do.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ttftdoctor"
#: What says a sentence, and how many of its arguments are texts.
SAYING = {"tr": 1, "mark": 1, "tr_n": 2}


def catalogues() -> list[Path]:
    """The files of all languages."""
    return sorted(PACKAGE.glob("locale/*/LC_MESSAGES/*.po"))


def said(package: Path = PACKAGE) -> Iterator[tuple[str | tuple[str, str], str]]:
    """Every sentence that the source says, with the file that says it; plurals as a pair."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            count = SAYING.get(node.func.id, 0)
            texts = [
                one.value
                for one in node.args[:count]
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            if count and len(texts) == count:
                message = texts[0] if count == 1 else (texts[0], texts[1])
                yield message, path.relative_to(ROOT).as_posix()


def updated(path: Path) -> Catalog:
    """The catalogue with all that is said, and nothing else."""
    with path.open("rb") as file:
        old = read_po(file, locale=path.parent.parent.name)
    new = Catalog(
        locale=old.locale, project="ttftdoctor", version="0", fuzzy=False,
        header_comment="# Translations of ttftdoctor's reports.",
        msgid_bugs_address="none", last_translator="the authors of ttftdoctor",
        language_team="the authors of ttftdoctor", charset="utf-8",
        creation_date=old.creation_date, revision_date=old.creation_date,
    )  # fmt: skip
    for message, where in said():
        known = old.get(message if isinstance(message, str) else message[0])
        # Only the file: with line numbers, each change of code would change the catalogue.
        new.add(message, None if known is None else known.string, locations=[(where, None)])
    return new


def text_of(catalogue: Catalog) -> bytes:
    """The catalogue as it stands in its file."""
    out = io.BytesIO()
    write_po(out, catalogue, width=96, sort_by_file=True, omit_header=False)
    return out.getvalue()


def main() -> int:
    """Write the catalogues, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, but fail if needed")
    check = parser.parse_args().check
    stale = False
    for path in catalogues():
        catalogue = updated(path)
        lacking = [message.id for message in catalogue if message.id and not message.string]
        text = text_of(catalogue)
        same = text == path.read_bytes()
        stale |= not same or bool(lacking)
        state = "as it was" if same else "out of date" if check else "brought up to date"
        print(f"{path.relative_to(ROOT)}: {state}, {len(lacking)} sentences to be translated")
        if not check and not same:
            path.write_bytes(text)
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
