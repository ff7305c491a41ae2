"""Every form of the report, on every kind of diagnosis."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html as html_words
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path

import diagnoses
import jsonschema
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

from ttftdoctor import diagnosis as records
from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.report import (
    TITLES,
    Renderer,
    best_remedy,
    clean,
    gain,
    html,
    json_report,
    markdown,
    severity,
    terminal,
    title,
)

FORMS: dict[str, Renderer] = {
    "terminal": terminal.RENDERER,
    "markdown": markdown.RENDERER,
    "json": json_report.RENDERER,
    "html": html.RENDERER,
}
EVERY = pytest.mark.parametrize("name", sorted(diagnoses.ALL))
TAGS = (
    "html head body meta title style main header section div p h1 h2 h3 ul ol li dl dt dd code b i "
    "span details summary table caption thead tbody tr th td script nav a button figure figcaption "
    "svg rect"
)


@pytest.fixture(scope="module")
def rendered() -> dict[tuple[str, str], str]:
    return {
        (form, name): renderer.render(build())
        for form, renderer in FORMS.items()
        for name, build in diagnoses.ALL.items()
    }


def squeezed(text: str) -> str:
    """Without blanks and zero-width signs, so that wrapping does not matter."""
    return re.sub(r"[\s\u200b]+", "", text)


def must_appear(d: Diagnosis) -> list[str]:
    """What no form may leave out."""
    texts = [*d.warnings, *d.evidence.notes, d.verdict.headline]
    texts += [reason for item in d.inputs for _, reason in item.first_rejects]
    if len(d.inputs) == 1:
        texts.append(d.inputs[0].path)
    return texts


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", diagnoses.HOSTILE)
def test_clean_leaves_nothing_invisible(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    assert len(shown) <= 2_200
    shown.encode("utf-8")


def test_clean_shows_what_it_removed() -> None:
    assert clean("a\x1b[31m\n\u202e\U000e0041") == "a\\x1b[31m\\n\\u202e\\U000e0041"
    assert clean("naïve 日本語 µs", 100) == "naïve 日本語 µs"
    assert clean("abcdef", 4) == "abc…"


def test_every_cause_and_account_has_a_title() -> None:
    for ident, _ in diagnoses.CAUSES:
        assert ident in TITLES
    for account in records.ACCOUNTS:
        assert account in TITLES
    assert title("some_new_thing") == "some new thing"


def test_severity() -> None:
    levels = {name: severity(build().verdict) for name, build in diagnoses.ALL.items()}
    assert levels["sick"] == "bad"
    assert levels["healthy"] == "good"
    assert levels["insufficient"] == levels["prefix_only"] == "unknown"
    doubtful = dataclasses.replace(diagnoses.sick().verdict, confidence=0.4)
    assert severity(doubtful) == "warn"


def test_gain_has_a_sign() -> None:
    assert gain(0.74) == "−74 %"
    assert gain(-0.011) == "+1.1 %"
    assert gain(0.0) == "0 %"
    assert gain(None) == gain(math.nan) == "-"


def test_best_remedy_fits_the_cause_and_gains_most() -> None:
    d = diagnoses.sick()
    best = best_remedy(d)
    assert best is not None
    assert best.id == "prefix_cache"
    queue = dataclasses.replace(
        d, verdict=dataclasses.replace(d.verdict, primary_cause="queueing_saturation")
    )
    best = best_remedy(queue)
    assert best is not None
    assert best.id == "double_capacity"
    assert best_remedy(diagnoses.healthy()) is None


# --- all forms ------------------------------------------------------------------------------------


def test_names_and_suffixes_are_unique() -> None:
    assert all(name == form.name for name, form in FORMS.items())
    suffixes = [s for form in FORMS.values() for s in form.suffixes]
    assert len(suffixes) == len(set(suffixes))


@EVERY
@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_says_what_it_must(
    rendered: dict[tuple[str, str], str], form: str, name: str
) -> None:
    raw = rendered[form, name]
    d = diagnoses.ALL[name]()
    raw.encode("utf-8")
    assert raw.endswith("\n")
    if form == "json":
        said = json.loads(raw)
        assert said["warnings"] == list(d.warnings)
        assert said["evidence"]["notes"] == list(d.evidence.notes)
        return
    if form == "html":
        raw = read_html(raw).text
    if form == "markdown":
        raw = markdown_text(raw)
    text = squeezed(raw)
    for sentence in must_appear(d):
        if form == "terminal" and sentence == d.verdict.headline:
            sentence = sentence[:150]
        assert squeezed(clean(sentence, 300)).rstrip("…") in text, sentence


@EVERY
@pytest.mark.parametrize("form", sorted(FORMS))
def test_same_text_twice(rendered: dict[tuple[str, str], str], form: str, name: str) -> None:
    assert FORMS[form].render(diagnoses.ALL[name]()) == rendered[form, name]


@pytest.mark.parametrize("form", sorted(FORMS))
def test_bare_and_unfinite_diagnoses_render(form: str) -> None:
    base = diagnoses.insufficient()
    bare = dataclasses.replace(base, inputs=(), causes=(), ledger=(), warnings=())
    assert FORMS[form].render(bare)
    sick = diagnoses.sick()
    odd = dataclasses.replace(
        sick,
        population=dataclasses.replace(sick.population, ttft_mean_s=math.nan, ttft_p95_s=math.inf),
        remedies=tuple(
            dataclasses.replace(r, gain_share=math.nan, ttft_mean_s=math.nan) for r in sick.remedies
        ),
        splits=dataclasses.replace(
            sick.splits,
            by_turn=tuple(
                dataclasses.replace(s, ttft_p50_s=math.nan, tpot_p50_s=math.inf)
                for s in sick.splits.by_turn
            ),
        ),
    )
    text = FORMS[form].render(odd)
    if form == "html":
        page = read_html(text)
        text = page.text + "".join(s for kind, s in page.scripts if kind)
    assert not {"nan", "inf", "infinity"} & set(re.findall(r"[a-z_]+", text.lower()))


# --- terminal -------------------------------------------------------------------------------------


@EVERY
def test_terminal_fits_80_columns_and_has_no_control(
    rendered: dict[tuple[str, str], str], name: str
) -> None:
    text = rendered["terminal", name]
    assert all(line.isprintable() for line in text.splitlines())
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("name", sorted(set(diagnoses.ALL) - {"hostile"}))
def test_first_screen_holds_the_answer(rendered: dict[tuple[str, str], str], name: str) -> None:
    screen = "\n".join(rendered["terminal", name].splitlines()[:24])
    d = diagnoses.ALL[name]()
    assert squeezed(d.verdict.headline) in squeezed(screen)
    assert d.verdict.primary_cause in screen
    assert "Why" in screen
    best = best_remedy(d)
    if best is not None:
        assert f"Do first  {best.id}" in screen
        assert "−74 %" in screen
    if d.verdict.next_steps:
        assert "Next" in screen
    if d.warnings:
        assert "Beware" in screen


@EVERY
@pytest.mark.parametrize("width", [40, 80, 140, 240])
def test_terminal_colours_come_from_us_alone(name: str, width: int) -> None:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False
    )
    terminal.print_to(console, diagnoses.ALL[name]())
    text = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert all(line.isprintable() for line in text.split("\n"))
    assert max(len(line) for line in text.split("\n")) <= width


def hours(
    levels: Mapping[int, float | None], *, stamp: str = "2026-03-10T{:02d}:00Z", n: int = 100
) -> Diagnosis:
    """A diagnosis with these medians by hour."""
    d = diagnoses.sick()
    by_hour = tuple(
        records.Slice({"hour": stamp.format(hour) if stamp else hour}, n, 1.0, 1.0, level, level, 0)
        for hour, level in levels.items()
    )
    return dataclasses.replace(d, splits=dataclasses.replace(d.splits, by_hour=by_hour))


def through_hours(d: Diagnosis) -> list[str]:
    """What stands below the table of hours."""
    lines = terminal.render(d).split("By hour ─")[1].partition("\n\n")[0].splitlines()
    return lines[2 + min(len(d.splits.by_hour), terminal.ROWS) :]


def test_hours_are_drawn_from_zero_to_the_highest() -> None:
    d = hours({9: 0.5, 10: 1.0, 11: 1.5, 12: 2.0, 13: 3.0, 14: 4.0})
    assert through_hours(d) == [
        "TTFT p50  ▁▂▃▄▆█  500 ms to 4.00 s",
        "requests  ██████  100 to 100",
    ]


def test_a_few_hours_are_not_drawn() -> None:
    assert through_hours(hours({9: 0.5, 10: 1.0, 11: 1.5, 12: 2.0, 13: 3.0})) == []
    some = hours({9: 0.5, 10: None, 11: 1.5, 12: 2.0, 13: math.nan, 14: 1.0})
    assert through_hours(some) == ["requests  ██████  100 to 100"]
    named = hours(dict.fromkeys(range(8), 1.0), stamp="hour {} of an odd clock")
    assert through_hours(named) == []


def test_hours_that_are_left_out_leave_gaps() -> None:
    d = hours({9: 1.0, 10: 1.0, 11: None, 14: 1.0, 15: 2.0, 16: 2.0, 17: 2.0})
    assert through_hours(d) == [
        "TTFT p50  ▄▄···▄███  1.00 s to 2.00 s",
        "requests  ███··████  100 to 100",
        "· marks hours without a figure.",
    ]


@pytest.mark.parametrize("stamp", ["2026-03-10T{:02d}:00Z", "2026-03-10T{:02d}:30+05:30", ""])
def test_hours_of_every_clock_follow_on_each_other(stamp: str) -> None:
    drawn = through_hours(hours(dict.fromkeys(range(2, 10), 1.0), stamp=stamp))
    assert drawn[0] == "TTFT p50  ████████  1.00 s to 1.00 s"


def test_hours_of_a_long_log_are_drawn_together() -> None:
    d = hours({hour: 2.0 if hour < 120 else 1.0 for hour in range(240)}, stamp="")
    first, second, note = through_hours(d)[-3:]
    assert first == f"TTFT p50  {'█' * 24}{'▄' * 24}  1.00 s to 2.00 s"
    assert second.startswith("requests  " + "█" * 48)
    assert note == "Each bar is the mean of up to 5 hours."
    far = hours({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 87_000_000: 2.0}, stamp="")
    assert all(len(line) <= 80 for line in through_hours(far))
    assert re.search("▄·+█", through_hours(far)[0])


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_hours_fit_the_terminal(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    terminal.print_to(console, hours(dict.fromkeys(range(300), 1.0), stamp=""))
    assert max(len(line) for line in out.getvalue().splitlines()) <= width
    assert "TTFT p50  █████" in out.getvalue()


def test_text_in_chinese_wraps_by_cells() -> None:
    text = "前缀缓存（prefix cache）未开启，平均 TTFT 为 1.36 s，其中 74% 是重复预填充。" * 4
    for width in (10, 40, 80):
        lines = terminal.wrap(text, width, 2).splitlines()
        assert max(map(cell_len, lines)) <= width
        assert all(line.startswith("  ") for line in lines[1:])
        assert not any(line.strip()[0] in "，。）%" for line in lines)
        assert not any(line[-1] == "（" for line in lines)
        assert squeezed("".join(lines)) == squeezed(text)
        assert all("1.36" not in line or "1.36 s" in line for line in lines)
    assert min(map(cell_len, terminal.wrap(text, 40).splitlines()[:-1])) >= 34
    assert terminal.cut("重复预填充", 6) == "重复…"
    assert terminal.cut("重复预填充", 10) == "重复预填充"


def test_ascii_terminals_get_ascii_bars() -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    out = Ascii()
    terminal.print_to(Console(file=out, width=80), diagnoses.sick())
    assert "█" not in out.getvalue()
    assert "•" not in out.getvalue()
    assert "TTFT p50  ######@@" in out.getvalue()


# --- markdown -------------------------------------------------------------------------------------


def tokens_of(text: str) -> list[object]:
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [t for block in parsed for t in [block, *(block.children or [])]]


def markdown_text(text: str) -> str:
    parts = []
    for token in tokens_of(text):
        if getattr(token, "type", "") in ("text", "code_inline", "text_special"):
            parts.append(token.content)  # type: ignore[attr-defined]
        if getattr(token, "type", "") in ("softbreak", "inline"):
            parts.append(" ")
    return "".join(parts)


@EVERY
def test_markdown_holds_no_markup_of_the_log(
    rendered: dict[tuple[str, str], str], name: str
) -> None:
    text = rendered["markdown", name]
    assert len(text.encode()) < 65_536
    plain = re.sub(r"</?(details|summary)>", "", text)
    assert "<" not in plain
    assert ">" not in plain
    kinds = {getattr(t, "type", "") for t in tokens_of(text)}
    assert not kinds & {"link_open", "image", "html_inline", "em_open", "s_open", "fence"}
    assert "://" not in text
    assert not re.search(r"(?i)\bwww\.", text)
    assert not re.search(r"@\w", text)
    assert not re.search(r"#\d", text.replace("&#36;", ""))
    headings = [t for t in tokens_of(text) if getattr(t, "type", "") == "heading_open"]
    assert len(headings) == 1
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_markdown_stays_under_the_limit() -> None:
    d = diagnoses.hostile()
    many = dataclasses.replace(
        d,
        splits=dataclasses.replace(d.splits, by_model=d.splits.by_model * 50),
        causes=tuple(dataclasses.replace(f, evidence=d.causes[0].evidence * 20) for f in d.causes),
    )
    text = markdown.render(many)
    assert len(text.encode()) < 65_536
    assert "Left out here for size" in text
    flood = dataclasses.replace(d, warnings=tuple("<&" * 1000 for _ in range(500)))
    assert len(markdown.render(flood).encode()) < 65_536


# --- json -----------------------------------------------------------------------------------------


@EVERY
def test_json_keeps_to_the_schema(rendered: dict[tuple[str, str], str], name: str) -> None:
    text = rendered["json", name]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\u200b\ud800]", text)
    said = json.loads(text)
    schema = json_report.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(said, schema, cls=jsonschema.Draft202012Validator)
    assert said == diagnoses.ALL[name]().to_dict()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("surprise",), 1),
        (("verdict", "primary_cause"), "gremlins"),
        (("causes", 0, "status"), "maybe"),
        (("ledger", "all", "accounts", "magic"), 1.0),
        (("splits", "by_turn", 0, "colour"), "red"),
        (("schema",), "ttftdoctor.diagnosis/2"),
    ],
)
def test_schema_is_strict(place: tuple[str | int, ...], value: object) -> None:
    said = diagnoses.sick().to_dict()
    inner = said
    for step in place[:-1]:
        inner = inner[step]  # type: ignore[index]
    inner[place[-1]] = value  # type: ignore[index]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said, json_report.schema())


def test_schema_knows_every_field() -> None:
    properties = json_report.schema()["properties"]
    fields = {f.name for f in dataclasses.fields(Diagnosis)} - {"version", "charts"}
    assert set(properties) == fields | {"schema", "tool"}


# --- html -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page holds: its elements, attributes, texts and scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self._in: str | None = None
        self._type = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in ("script", "style"):
            self._in, self._type = tag, dict(attrs).get("type") or ""
            self.scripts += [(self._type, "")] if tag == "script" else []

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = None

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self._in is None:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def read_html(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page


@EVERY
def test_html_has_no_element_of_the_log(rendered: dict[tuple[str, str], str], name: str) -> None:
    page = read_html(rendered["html", name])
    assert page.tags <= set(TAGS.split())
    for _, attribute, value in page.attributes:
        assert attribute in {
            "lang", "charset", "http-equiv", "content", "name", "class", "id", "type", "role",
            "aria-label", "aria-hidden", "aria-labelledby", "aria-describedby", "aria-pressed",
            "scope", "tabindex", "open", "href", "viewbox", "preserveaspectratio", "width",
            "height",
        }  # fmt: skip
        assert not re.search(r"evil|alert|script[^-]|javascript", value) or "sha256" in value
        if attribute == "href":
            assert re.fullmatch(r"#[a-z]+(-\d+)?", value)


def test_html_elements_do_not_depend_on_the_log(rendered: dict[tuple[str, str], str]) -> None:
    hostile = {(t, a) for t, a, _ in read_html(rendered["html", "hostile"]).attributes}
    sick = {(t, a) for t, a, _ in read_html(rendered["html", "sick"]).attributes}
    assert hostile == sick


@EVERY
def test_html_scripts_are_those_of_the_policy(
    rendered: dict[tuple[str, str], str], name: str
) -> None:
    page = read_html(rendered["html", name])
    policy = next(v for _, a, v in page.attributes if a == "content" and "default-src" in v)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    script_src = next(p for p in policy.split("; ") if p.startswith("script-src"))
    assert "unsafe-inline" not in script_src
    running = [text for kind, text in page.scripts if kind == ""]
    assert len(script_src.split()) - 1 == len(running)
    for text in running:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in script_src
    data = [text for kind, text in page.scripts if kind == "application/json"]
    assert len(data) == 1
    assert len(page.scripts) == len(running) + 1
    assert not set("<>&\u2028\u2029") & set(data[0])
    json.loads(data[0])


@EVERY
def test_html_asks_for_nothing_outside(rendered: dict[tuple[str, str], str], name: str) -> None:
    page = read_html(rendered["html", name])
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & page.tags
    assert "src" not in {a for _, a, _ in page.attributes}
    own = [text for kind, text in page.scripts if kind == ""][-1]
    assert "showSendToCloud: false" in own


def strings_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for v in value.values() for s in strings_in(v)]
    if isinstance(value, list):
        return [s for v in value for s in strings_in(v)]
    return []


def test_plotly_gets_no_markup_of_the_log(rendered: dict[tuple[str, str], str]) -> None:
    page = read_html(rendered["html", "hostile"])
    data = json.loads(next(text for kind, text in page.scripts if kind == "application/json"))
    shown = [s for s in strings_in(data) if "bold" in s or "evil" in s or "alert" in s]
    assert shown
    for text in shown:
        assert "<" not in text.replace("<br>", "")
        assert html_words.unescape(text) != text


def test_html_charts_and_their_readings(rendered: dict[tuple[str, str], str]) -> None:
    page = read_html(rendered["html", "sick"])
    data = json.loads(next(text for kind, text in page.scripts if kind == "application/json"))
    assert list(data) == [
        "ledger", "by_turn", "uncached", "decode", "decode_context", "load", "remedies",
    ]  # fmt: skip
    places = {v for t, a, v in page.attributes if a == "id" and v.startswith("plot-")}
    assert places == {f"plot-{name}" for name in data}
    for sentence in (
        "The median TTFT grows 7.5 times, from 280 ms at turn 1 to 2.09 s at turn 8",
        "Each 1,000 uncached tokens cost 73.4 ms, on top of 61.2 ms",
        "Of the mean 1.36 s, 811 ms (60 %) is prefill of repeated tokens.",
        "84 % of that in prefill of repeated tokens",
        "Decode is level: 30.2 ms at turn 1, 30.4 ms at turn 8.",
        "In the peak (shaded)",
    ):
        assert sentence in page.text
    bars = {trace["name"]: trace["x"] for trace in data["ledger"]["data"]}
    assert [round(sum(column), 6) for column in zip(*bars.values(), strict=True)] == [
        row.ttft_mean_s for row in diagnoses.sick().ledger
    ]
    none = read_html(rendered["html", "prefix_only"])
    assert not [v for _, a, v in none.attributes if a == "id" and v.startswith("plot-")]


# --- goldens --------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize(("form", "suffix"), [("terminal", "txt"), ("markdown", "md")])
def test_golden(
    rendered: dict[tuple[str, str], str],
    golden: Callable[[str | Path, str], None],
    form: str,
    suffix: str,
    name: str,
) -> None:
    golden(f"report/{name}.{suffix}", rendered[form, name])
