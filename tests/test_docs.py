"""Every console block of the README and the manual is run, and what it prints is what it says.

In a block, ``$ `` begins a command and what follows is its output, compared line by line. A line
``…`` (or ``...``) stands for any number of lines, ``…`` within a line for anything, and
``[exit code N]`` for a command that does not end with 0. Commands of a page share a folder, which
has ``sample_logs``, ``docs`` and a ``requests.jsonl``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])


@dataclass(frozen=True)
class Command:
    """One command of a page, the line it stands in, and the output that is shown."""

    line: int
    text: str
    shown: tuple[str, ...]


def commands(page: str) -> Iterator[Command]:
    """The commands of all console blocks of a page."""
    block: list[str] | None = None
    for number, line in enumerate(page.splitlines(), 1):
        if block is None:
            block, start = ([], number) if line.strip() == "```console" else (None, 0)
        elif line.strip() == "```":
            yield from _split(block, start)
            block = None
        else:
            block.append(line)


def _split(block: list[str], start: int) -> Iterator[Command]:
    assert block[0].startswith("$ "), f"line {start + 1}: a console block begins with a command"
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(block, start + 1):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        else:
            found[-1][2].append(line)
    for number, text, shown in found:
        yield Command(number, text, tuple(shown))


def pattern(shown: tuple[str, ...]) -> str:
    """What the output must match: trailing blanks and empty lines at the ends do not count."""
    parts = []
    for line in _stripped(list(shown)):
        if line.strip() in ("…", "..."):
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(part) for part in line.split("…")) + r"\n")
    return "".join(parts)


def _stripped(lines: list[str]) -> list[str]:
    lines = [line.rstrip() for line in lines]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def matches(command: Command, output: str) -> bool:
    """Whether the output is as shown; a command that is shown without output may print some."""
    if not command.shown:
        return "[exit code" not in output
    text = "\n".join(_stripped(output.splitlines())) + "\n"
    return re.fullmatch(pattern(command.shown), text) is not None


def test_a_wrong_line_is_seen() -> None:
    command = Command(1, "x", ("a 1", "…", "b …", "c"))
    assert matches(command, "a 1  \nmore\n\nb 2\nc\n")
    assert matches(command, "a 1\nb x\nc")
    assert not matches(command, "a 2\nb 2\nc\n")
    assert not matches(command, "a 1\nb 2\nc\nd\n")
    assert not matches(Command(1, "x", ()), "oh\n[exit code 2]\n")


def run(text: str, folder: Path) -> str:
    """What a command prints at 80 columns, to both streams."""
    where = str(Path(sys.executable).parent)
    env = {
        **{name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"},
        "PATH": where + os.pathsep + os.environ["PATH"],
        "COLUMNS": "80",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=300, check=False,
    )  # fmt: skip
    end = f"\n[exit code {done.returncode}]" if done.returncode else ""
    return done.stdout.decode("utf-8").rstrip("\n") + end + "\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_shown_is_what_is_printed(page: Path, tmp_path: Path) -> None:
    for name in ("sample_logs", "docs", "examples", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "sample_logs" / "peak_hour.jsonl", tmp_path / "requests.jsonl")
    printed: dict[str, str] = {}
    for command in commands(page.read_text(encoding="utf-8")):
        if command.text not in printed:
            printed[command.text] = run(command.text, tmp_path)
        output = printed[command.text]
        assert matches(command, output), (
            f"{page.name} line {command.line}: $ {command.text}\n--- shown\n"
            + "\n".join(command.shown) + f"\n--- printed\n{output}"
        )  # fmt: skip


# --- the site -----------------------------------------------------------------------------------


class _Page(HTMLParser):
    """What a page loads, and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.loads.append(found.get("src") or "")
        if tag == "link" and found.get("rel") != "canonical":
            self.loads.append(found.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="MkDocs Material is not installed")
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    from ttftdoctor.manual import pages

    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {f"{page.kind}/{page.id}.html" for page in pages()} <= built
    assert {"index.html", "tutorial.html", "outputs.html", "shell.html"} <= built
    assert not [path for path in site.rglob("*") if path.suffix in (".py", ".1")]
    for name in sorted(built):
        page = _Page()
        page.feed((site / name).read_text(encoding="utf-8"))
        assert not [url for url in page.loads if re.match(r"(?:[a-z]+:)?//", url)], name
        for url in page.loads:
            if url and not url.startswith("data:"):
                local = url.partition("?")[0]
                start = site if local.startswith("/") else (site / name).parent
                assert (start / local.lstrip("/")).resolve().exists(), url
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8"))


def test_a_page_of_the_manual_reads_the_same_on_the_site(site: Path) -> None:
    page = _Page()
    page.feed((site / "causes" / "cache_eviction.html").read_text(encoding="utf-8"))
    text = " ".join("".join(page.text).split())
    assert "A prefix cache keeps blocks until others need the room" in text
    assert "Where it is set" in text
