"""The manual: a page for every word of the registries, whole, in the terminal and in the shell."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import catalog, manual
from ttftdoctor.cli import app
from ttftdoctor.diagnosis import ACCOUNTS
from ttftdoctor.errors import UsageError
from ttftdoctor.manual.terminal import print_list, print_page
from ttftdoctor.prefixes.ladder import RUNGS
from ttftdoctor.report import TITLES

ROOT = Path(__file__).parents[1]
EVERY = pytest.mark.parametrize("page", manual.pages(), ids=lambda page: f"{page.kind}/{page.id}")
LINK = re.compile(r"\[[^\]]+\]\(([^)]*)\)")


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ids(kind: str) -> list[str]:
    return [page.id for page in manual.pages() if page.kind == kind]


# --- whole --------------------------------------------------------------------------------------


def test_every_word_of_the_registries_has_a_page_and_no_page_is_left_over() -> None:
    assert sorted(ids("causes")) == sorted(cause.id for cause in catalog.causes())
    assert sorted(ids("remedies")) == sorted(remedy.id for remedy in catalog.remedies())
    assert ids("accounts") == list(ACCOUNTS)
    assert ids("rungs") == list(RUNGS) == list(manual.RUNGS)
    assert ids("metrics") == list(manual.METRICS)
    assert {page.kind for page in manual.pages()} == set(manual.KINDS)
    folder = Path(manual.__file__).parent
    assert len(list(folder.rglob("*.md"))) == len(manual.pages())


def test_a_word_has_one_page() -> None:
    names = [page.id for page in manual.pages()]
    assert len(names) == len(set(names))


@EVERY
def test_a_page_has_all_its_sections(page: manual.Page) -> None:
    assert page.text.startswith(f"# {page.id}: {page.title}\n")
    assert page.text.endswith("\n")
    assert page.title
    assert page.summary.endswith(".")
    assert [heading for heading, _ in page.sections] == list(manual.SECTIONS[page.kind])
    for heading, text in page.sections:
        assert re.search(r"\w.*[.)]$", text, re.DOTALL), heading
    assert max(len(line) for line in page.text.splitlines()) <= 104


@EVERY
def test_a_page_names_every_engine_and_provider(page: manual.Page) -> None:
    heading, text = page.sections[-1]
    if heading not in ("Where it is set", "Where it is found"):
        assert page.kind == "accounts"
        return
    assert tuple(re.findall(r"^- \*\*([^*]+)\*\*: \S", text, re.MULTILINE)) == manual.ENGINES
    assert text.startswith("- **")


@EVERY
def test_titles_are_those_of_the_reports(page: manual.Page) -> None:
    if page.kind == "rungs":
        assert page.title == RUNGS[page.id][0]
    elif page.kind != "metrics":
        assert page.title == TITLES[page.id]


@EVERY
def test_links_lead_to_pages(page: manual.Page) -> None:
    known = {f"{other.kind}/{other.id}.md" for other in manual.pages()}
    for target in LINK.findall(page.text):
        assert os.path.normpath(f"{page.kind}/{target}") in known, target


def test_a_cause_names_the_remedies_that_help_it() -> None:
    """What the registry prescribes is on the page, and the page of a remedy says for what."""
    texts = {page.id: page.text for page in manual.pages()}
    for cause in catalog.causes():
        for remedy in cause.remedies:
            assert f"[{remedy}]" in texts[cause.id], (cause.id, remedy)


def test_commands_in_pages_are_commands() -> None:
    group: Any = get_command(app)
    for page in manual.pages():
        for name in re.findall(r"`ttftdoctor (\w+)", page.text):
            assert name in group.commands, page.id


def test_options_of_our_own_that_pages_name_exist() -> None:
    group: Any = get_command(app)
    ours = {
        opt for command in group.commands.values() for param in command.params for opt in param.opts
    }
    for page in manual.pages():
        for _, text in page.sections[:-1]:
            # Sections before the last one speak of this program only.
            for option in re.findall(r"(?<!`ttftdoctor )`(--[a-z][a-z-]+)", text):
                assert option in ours, (page.id, option)


# --- in the terminal ----------------------------------------------------------------------------


def printed(page: manual.Page, width: int, *, encoding: str = "utf-8") -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    print_page(console, page)
    return out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


@EVERY
@pytest.mark.parametrize("width", [80, 140])
def test_a_page_fits_the_terminal_and_says_everything(page: manual.Page, width: int) -> None:
    text = printed(page, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= min(width, 100)
    squeezed = " ".join(text.split())
    for heading, _ in page.sections:
        assert heading in text
    assert "](" not in squeezed
    assert "**" not in squeezed
    assert "`" not in squeezed
    words = re.findall(r"\w+", LINK.sub("", manual.plain_links(page.text)))
    assert set(words) <= set(re.findall(r"\w+", text)) | {""}, set(words)


def test_a_page_prints_where_there_is_ascii_only() -> None:
    # The text has signs beyond ASCII; what draws is not among them.
    page = manual.find("cache_eviction")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace", write_through=True)
    print_page(Console(file=out, width=80, color_system=None, legacy_windows=False), page)
    text = out.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "What it is ---" in text


def test_the_list_has_every_page_with_its_title() -> None:
    out = io.StringIO()
    print_list(Console(file=out, width=80, color_system=None))
    text = out.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for page in manual.pages():
        assert re.search(rf"^{page.id} +{re.escape(page.title)}\s*$", text, re.MULTILINE), page.id


def test_explain() -> None:
    result = run("explain", "cache_eviction")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("cache_eviction: cached prefixes gone before the next turn\n")
    for heading in manual.SECTIONS["causes"]:
        assert heading in result.stdout
    assert "\x1b" not in result.stdout
    listed = run("explain")
    assert listed.exit_code == 0
    assert all(page.id in listed.stdout for page in manual.pages())


@pytest.mark.parametrize(
    ("word", "page"),
    [("TTFT", "ttft"), ("Cache-Eviction", "cache_eviction"), ("time to first token", "ttft"),
     ("after expiry", "expiry"), ("cold start", "cold_start"), ("  unexplained ", "unexplained")],
)  # fmt: skip
def test_a_word_is_found_however_it_is_spelled(word: str, page: str) -> None:
    assert manual.find(word).id == page


@pytest.mark.parametrize(
    ("word", "near"),
    [("queue", "queueing_saturation"), ("cold_strat", "cold_start"), ("evicton", "cache_eviction"),
     ("gateway", "faster_gateway"), ("prefixcach", "prefix_cache"),
     ("affinity", "affinity_loss")],
)  # fmt: skip
def test_an_unknown_word_is_answered_with_the_nearest(word: str, near: str) -> None:
    result = run("explain", word)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: the manual has no page ")
    assert near in result.stderr
    assert "ttftdoctor explain lists all pages" in result.stderr


@given(st.text(max_size=300))
def test_any_word_is_found_or_refused(word: str) -> None:
    try:
        found: object = manual.find(word)
    except UsageError as error:
        found = str(error)
    assert found in manual.pages() or len(str(found)) < 1000


def test_a_hostile_word_commands_no_terminal() -> None:
    result = run("explain", "\x1b[31mred\x07\n\u202e")
    assert result.exit_code == 2
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.stderr)


def test_explain_from_python() -> None:
    assert ttftdoctor.explain("TTFT") == manual.find("ttft").text
    with pytest.raises(UsageError, match="no page"):
        ttftdoctor.explain("nothing of the kind")


def test_explain_loads_nothing_heavy() -> None:
    code = (
        "import sys; from ttftdoctor.manual import find; from ttftdoctor.manual import terminal;"
        "find('ttft'); print(sorted({'polars', 'plotly', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# --- the shell ----------------------------------------------------------------------------------


def complete(line: str, **env: str) -> str:
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'ttftdoctor'; "
         "from ttftdoctor.cli import main; main()"],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
             "_TYPER_COMPLETE_ARGS": line, **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_shell_completes_commands_options_and_words_of_the_manual() -> None:
    bash = {"_TTFTDOCTOR_COMPLETE": "complete_bash"}
    assert complete("ttftdoctor dia", **bash).split() == ["diagnose"]
    assert complete("ttftdoctor diagnose --openm", **bash).split() == ["--openmetrics"]
    assert set(complete("ttftdoctor explain cache_", **bash).split()) == {
        "cache_eviction", "cache_busting_prefix",
    }  # fmt: skip
    zsh = complete("ttftdoctor explain cache_e", _TTFTDOCTOR_COMPLETE="complete_zsh")
    assert '"cache_eviction":"cached prefixes gone before the next turn"' in zsh
    fish = complete(
        "ttftdoctor exp", _TTFTDOCTOR_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )  # fmt: skip
    assert {line.split("\t")[0] for line in fish.splitlines()} >= {"explain", "export"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_can_be_shown(shell: str) -> None:
    if shutil.which(shell) is None and shell != "bash":
        pytest.skip(f"no {shell}")
    script = complete("", _TTFTDOCTOR_COMPLETE=f"source_{shell}")
    assert "ttftdoctor" in script
    done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_has_an_example_and_its_exit_codes_in_its_help() -> None:
    group: Any = get_command(app)
    for name, command in group.commands.items():
        result = run(name, "--help")
        assert result.exit_code == 0
        text = " ".join(result.stdout.split())
        assert f"ttftdoctor {name}" in text.split("Options:")[0].partition("Usage:")[2][20:], name
        assert "For example: ttftdoctor" in text, name
        assert "Exit codes:" in text
        assert command.epilog


# --- the man page -------------------------------------------------------------------------------


def man_page() -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_man.py")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def test_the_man_page_is_that_of_this_command_line(golden: Callable[[Path, str], None]) -> None:
    # ``--update-golden`` makes it anew, as ``python docs/make_man.py > docs/ttftdoctor.1`` does.
    golden(ROOT / "docs" / "ttftdoctor.1", man_page())


def test_the_man_page_has_every_command_and_option() -> None:
    page = (ROOT / "docs" / "ttftdoctor.1").read_text(encoding="utf-8").replace("\\-", "-")
    group: Any = get_command(app)
    for name, command in group.commands.items():
        part = page.partition(f".SS {name} ")[2].partition(".SS ")[0]
        assert command.epilog.split(";")[0].replace("\n", " ") in part
        for param in command.params:
            for opt in param.opts:
                if opt.startswith("-"):
                    assert re.search(rf"^\.B .*{re.escape(opt)}\b", part, re.MULTILINE), (name, opt)


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_man_page_is_good_roff() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-c", str(ROOT / "docs" / "ttftdoctor.1")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    text = re.sub(r".\x08", "", done.stdout)
    assert "--openmetrics" in text
    assert "explain" in text
