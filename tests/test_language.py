"""Reports in another language: no sentence is missing, no figure differs, no value is touched."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any

import diagnoses
import plant
import pytest
from babel.messages.pofile import read_po
from hypothesis import example, given
from hypothesis import strategies as st
from reading import ROOT, SAMPLES
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import catalog, language
from ttftdoctor.cli import app
from ttftdoctor.comparisons import report as comparing
from ttftdoctor.contrasts import terminal as contrasting
from ttftdoctor.language import LANGUAGES, carry, listed, speaking, spoken, tr, tr_n
from ttftdoctor.report.terminal import print_to
from ttftdoctor.units import count, seconds, share, signed_share, tokens

PACKAGE = Path(ttftdoctor.__file__).parent
OTHERS = tuple(name for name in LANGUAGES if name != "en")
HAN = re.compile(r"[\u4e00-\u9fff]")


@cache
def tool() -> ModuleType:
    """``tools/messages.py``, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("messages", ROOT / "tools" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def messages(name: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each message of a catalogue, as the English forms and those of the language."""
    with language.catalogue(name).open("rb") as file:
        found = [message for message in read_po(file, locale=name) if message.id]
    return [
        (
            (message.id,) if isinstance(message.id, str) else tuple(message.id),
            (message.string,) if isinstance(message.string, str) else tuple(message.string),
        )
        for message in found
    ]


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


# ------------------------------------------------------------------- the catalogue


def test_every_language_has_its_catalogue() -> None:
    assert [path.parent.parent.name for path in tool().catalogues()] == sorted(OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_no_sentence_is_missing_in_either_language(name: str) -> None:
    """What the code says is what the catalogue holds, each with a translation, and no more."""
    said = {(m,) if isinstance(m, str) else m for m, _ in tool().said()}
    assert len(said) > 2000
    held = messages(name)
    assert {ours for ours, _ in held} == said
    assert [ours for ours, theirs in held if not theirs or not all(theirs)] == []


@pytest.mark.parametrize("name", OTHERS)
def test_the_catalogue_is_as_the_tool_writes_it(name: str) -> None:
    path = PACKAGE / "locale" / name / "LC_MESSAGES" / "ttftdoctor.po"
    assert tool().text_of(tool().updated(path)) == path.read_bytes(), "run tools/messages.py"


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_has_the_places_of_its_sentence(name: str) -> None:
    wrong = []
    for ours, theirs in messages(name):
        # A text without a place is said without values: its braces are its own.
        wanted = places(ours[-1]) if "{" in ours[-1] and _is_template(ours[-1]) else set()
        for text in theirs:
            got = places(text) if wanted else set()
            if got != wanted and not (len(ours) == 2 and got == places(ours[0])):
                wrong.append((ours, text))
    assert wrong == []


def _is_template(text: str) -> bool:
    try:
        return all(name.isidentifier() for name in places(text))
    except ValueError:
        return False


def test_chinese_is_set_as_chinese() -> None:
    """Full-width marks beside characters, and what has words is translated."""
    wrong = []
    for ours, theirs in messages("zh"):
        for text in theirs:
            half = re.search(
                r"[\u4e00-\u9fff][,;:!?](?!//)|[\u4e00-\u9fff]\. |  +[\u4e00-\u9fff]", text
            )
            if half is not None and not text.startswith("  "):
                wrong.append(text)
            words = re.findall(r"[a-z]{3,}(?: [a-z]{2,}){2,}", ours[0])
            if words and not HAN.search(text):
                wrong.append(text)
    assert wrong == []


def test_what_is_said_is_a_plain_text() -> None:
    """Only a plain text can be looked up: no f-string, no sum of texts."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for one in node.args[: tool().SAYING.get(node.func.id, 0)]:
                    where = f"{path.name} line {node.lineno}"
                    assert not isinstance(one, (ast.JoinedStr, ast.BinOp)), where


# ---------------------------------------------------------------------- saying it

TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)


def test_english_is_as_it_stands() -> None:
    assert spoken() == "en"
    assert tr("{n} of {all}", n=3, all=10) == "3 of 10"
    assert tr("a {brace} that stays") == "a {brace} that stays"
    assert tr_n("{n} request", "{n} requests", 1, n=1) == "1 request"
    assert tr_n("{n} request", "{n} requests", 2, n=2) == "2 requests"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"


@given(TEXTS, TEXTS)
@example("{n}", "{0.__class__}")
@example("", "中")
def test_a_value_is_never_changed_nor_read(one: str, other: str) -> None:
    """What is filled in may come from a log: it is neither a template nor set otherwise."""
    assert tr("from {a} to {b}", a=one, b=other) == f"from {one} to {other}"
    with speaking("zh"):
        text = tr("{words} and {last}", words=one, last=other)
    assert text.startswith(one)
    assert text.endswith(other)
    assert text[len(one) : len(text) - len(other)].strip() == "和"


def test_values_stand_apart_from_chinese_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {
        "a {x} b": "由 {x} 得出",
        "a{x}b": "由{x}得出",
        "{x} {y}": "{x}（{y}）",
        "{x}.": "{x}。",
    }
    monkeypatch.setattr(language, "_translations", lambda name: words)
    with speaking("zh"):
        assert tr("a {x} b", x="缓存") == "由缓存得出"
        assert tr("a {x} b", x="p95") == "由 p95 得出"
        assert tr("a{x}b", x="p95") == "由 p95 得出"
        assert tr("a{x}b", x="81%") == "由 81% 得出"
        assert tr("a{x}b", x="（无）") == "由（无）得出"
        assert tr("{x} {y}", x="表", y=3) == "表（3）"
        assert tr("{x}.", x="name with  blanks 中文a") == "name with  blanks 中文a。"
        assert tr("not in it {x}", x=1) == "not in it 1"


def test_numbers_are_written_as_the_language_writes_them() -> None:
    values = (count(12345), share(0.745), share(0.0123), tokens(31_784_227), seconds(2.1))
    assert values == ("12,345", "74 %", "1.2 %", "31.8 M", "2.10 s")
    with speaking("zh"):
        values = (count(12345), share(0.745), share(0.0123), tokens(31_784_227), seconds(2.1))
        assert values == ("12,345", "74%", "1.2%", "3,178.4 万", "2.10 s")
        assert (signed_share(-0.3), signed_share(0.0), share(None)) == ("−30%", "0%", "-")
        assert signed_share(12.0) == "13 倍"


def test_a_language_ends_where_its_block_ends() -> None:
    with speaking("zh"), speaking("en"):
        assert spoken() == "en"
    assert spoken() == "en"
    with pytest.raises(ValueError, match="here"), speaking("zh"):
        raise ValueError("here")
    assert spoken() == "en"


def test_another_thread_speaks_the_language_of_who_sent_it() -> None:
    with ThreadPoolExecutor(1) as pool:
        with speaking("zh"):
            carried = pool.submit(carry(spoken)).result()
            assert pool.submit(spoken).result() == "en"
        assert carried == "zh"
        assert pool.submit(carry(spoken)).result() == "en"


# ------------------------------------------------------------------------ reports

#: Three English words in a row are a sentence that nobody translated.
ENGLISH = re.compile(r"[A-Za-z][a-z']+(?: [a-z']+){2,}")
#: What stays as it is: commands and their options, code, and names between back-ticks.
KEPT = re.compile(
    r"ttftdoctor [a-z]+[^\n。；，]*|--[\w-]+(?: [\w./-]+)?|`[^`]*`|[a-z]+(?:-[a-z]+){2,}"
)


def english_in(text: str) -> list[str]:
    return ENGLISH.findall(KEPT.sub(" ", text))


def visible(html: str) -> str:
    """What a reader sees of a page, and what its marks are called."""
    html = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", html)
    labels = re.findall(r'(?:aria-label|title|alt)="([^"]*)"', html)
    return re.sub(r"<[^>]+>", " ", html) + "\n".join(labels)


def shape(value: Any) -> Any:
    """A document without its sentences: keys, figures, and how long each list is."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape(one) for one in value]
    return "text" if isinstance(value, str) else value


def codes(document: dict[str, Any]) -> list[Any]:
    """What machines read by name."""
    return [
        document["verdict"]["primary_cause"],
        [(one["id"], one["status"], one["needs"]) for one in document["causes"]],
        [one["id"] for one in document["remedies"]],
        [(one["format"], one["rows_rejected"]) for one in document["inputs"]],
    ]


def renderings(d: ttftdoctor.Diagnosis) -> dict[str, str]:
    forms = {name: form.render(d) for name, form in catalog.renderers().items() if name != "json"}
    return {**forms, "html": visible(forms["html"])}


def same_in_chinese(path: str, **options: Any) -> None:
    english = ttftdoctor.diagnose(path, **options).to_dict()
    with speaking("zh"):
        found = ttftdoctor.diagnose(path, **options)
        shown = renderings(found)
    chinese = found.to_dict()
    assert shape(chinese) == shape(english)
    assert codes(chinese) == codes(english)
    for form, text in shown.items():
        assert HAN.search(text), form
        assert english_in(text) == [], form


@pytest.mark.parametrize("cause", sorted(plant.PLANTS))
def test_every_cause_is_told_in_chinese_with_the_same_figures(cause: str, tmp_path: Path) -> None:
    same_in_chinese(plant.plant(cause).write(tmp_path / "log.jsonl"), slo_ttft_s=1.0)


@pytest.mark.parametrize(
    "name",
    sorted(p.name for p in SAMPLES.iterdir() if p.is_file() and p.suffix not in (".py", ".md")),
)
def test_every_format_is_told_in_chinese(name: str) -> None:
    same_in_chinese(str(SAMPLES / name))


@pytest.mark.parametrize("name", sorted(diagnoses.ALL))
@pytest.mark.parametrize("width", [60, 80, 140])
def test_chinese_fits_the_terminal(name: str, width: int) -> None:
    out = io.StringIO()
    with speaking("zh"):
        print_to(Console(file=out, width=width, color_system=None), diagnoses.ALL[name]())
    assert max(cell_len(line) for line in out.getvalue().splitlines()) <= width


def test_inspection_prefix_contrast_and_comparison_speak_chinese() -> None:
    log = str(SAMPLES / "peak_hour.jsonl")
    with speaking("zh"):
        compared = ttftdoctor.compare(log, log)
        out = io.StringIO()
        console = Console(file=out, width=100, color_system=None)
        comparing.print_to(console, compared)
        contrasting.print_to(console, ttftdoctor.contrast(log, select="ttft > p95"))
        text = out.getvalue() + comparing.render_markdown(compared)
    runner = CliRunner()
    for command in (["inspect", log], ["prefix", log], ["check", log, "--baseline", log]):
        done = runner.invoke(app, [*command, "--lang", "zh", "--no-color"])
        assert done.exit_code == 0, done.output
        text += done.stdout
    assert HAN.search(text)
    assert english_in(text) == []


# ------------------------------------------------------------------ on the command line


def test_the_language_is_an_option_or_a_variable() -> None:
    runner = CliRunner()
    log = str(SAMPLES / "healthy.jsonl")
    asked = runner.invoke(app, ["diagnose", log, "--lang", "zh", "--no-color"])
    assert asked.exit_code == 0
    set_ = runner.invoke(app, ["diagnose", log, "--no-color"], env={"TTFTDOCTOR_LANG": "zh"})
    assert set_.stdout == asked.stdout
    assert HAN.search(asked.stdout)
    unknown = runner.invoke(app, ["diagnose", log, "--lang", "xx"])
    assert unknown.exit_code == 2
    assert "Traceback" not in unknown.output


def test_a_page_says_which_language_it_is_in(tmp_path: Path) -> None:
    runner = CliRunner()
    for name, lang in (("en", "en"), ("zh", "zh-CN")):
        page = tmp_path / f"{name}.html"
        args = ["diagnose", str(SAMPLES / "healthy.jsonl"), "--html", str(page), "--lang", name]
        assert runner.invoke(app, [*args, "--quiet"]).exit_code == 0
        assert f'<html lang="{lang}"' in page.read_text(encoding="utf-8")


def test_a_baseline_is_the_same_in_every_language(tmp_path: Path) -> None:
    runner = CliRunner()
    log = str(SAMPLES / "healthy.jsonl")
    kept = []
    for name in LANGUAGES:
        target = tmp_path / f"{name}.json"
        args = ["baseline", log, "--output", str(target)]
        done = runner.invoke(app, args, env={"TTFTDOCTOR_LANG": name})
        assert done.exit_code == 0, done.output
        kept.append(json.loads(target.read_text(encoding="utf-8")))
    assert kept[0] == kept[1]
