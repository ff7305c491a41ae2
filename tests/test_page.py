"""The HTML pages as text: what is in them, what binds them, and what no log can change.

How they behave in a browser is in ``test_browser.py``.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import checks
import diagnoses
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compare import by_hand
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor import pages
from ttftdoctor.cli import app
from ttftdoctor.comparisons import page as compare_page
from ttftdoctor.diagnosis import ACCOUNTS, Bin, Charts, Diagnosis, SessionWaste, WorstRow
from ttftdoctor.errors import UsageError
from ttftdoctor.gate import page as check_page
from ttftdoctor.pages import images, png
from ttftdoctor.pages.gains import unchanged
from ttftdoctor.pages.markup import data_text, esc, label, listed
from ttftdoctor.pages.proof import proof
from ttftdoctor.pages.review import PARTS
from ttftdoctor.pages.shell import page
from ttftdoctor.pages.waste import by_session
from ttftdoctor.report import html

ROOT = Path(__file__).parent.parent
ASSETS = Path(pages.__file__).parent / "assets"
PEAK = str(ROOT / "sample_logs" / "peak_hour.jsonl")
HEALTHY = str(ROOT / "sample_logs" / "healthy.jsonl")
LIMIT = 2_000_000
EVIL = "<img src=x onerror=alert(1)>\"'&\x1b[31m</script><!--\u202e"

runner = CliRunner()


class Elements(HTMLParser):
    """Every element with its attributes' names, in order; values and texts by themselves."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str, str]] = []
        self.held: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]
        if tag in ("script", "style"):
            kind = dict(attrs).get("type") or ""
            self.held.append((f"{tag}:{kind}", ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            name, text = self.held[-1]
            self.held[-1] = (name, text + data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    found.close()
    return found


def figures_of(text: str) -> dict[str, Any]:
    (data,) = (inner for name, inner in read(text).held if name == "script:application/json")
    loaded: dict[str, Any] = json.loads(data)
    return loaded


def crowded() -> Diagnosis:
    """A diagnosis with as much to draw as the largest log can have."""
    rng = np.random.default_rng(1)
    sick = diagnoses.sick()
    row = WorstRow("r" * 36, "log.jsonl", 10**9, "s" * 36, 8, "2026-03-10T15:07:04Z", 4.02, 3.26)
    return dataclasses.replace(
        sick,
        splits=dataclasses.replace(
            sick.splits,
            by_replica=sick.splits.by_turn * 8,
            by_model=sick.splits.by_turn * 8,
            by_hour=sick.splits.by_turn * 8,
        ),
        charts=dataclasses.replace(
            sick.charts,
            ttft_by_uncached=tuple(
                Bin(float(x), float(y), int(n))
                for x, y, n in zip(
                    rng.uniform(0, 1e5, 3600), rng.uniform(0, 9, 3600),
                    rng.integers(1, 10**6, 3600), strict=True,
                )
            ),
            load=sick.charts.load[:1] * 480,
            waste=tuple(
                SessionWaste(f"session-{k:020d}", 100, 1e6, 13.0, (row,) * 5) for k in range(15)
            ),
            waste_sessions=10**5,
            waste_s=1e6,
        ),
    )  # fmt: skip


PAGES = {
    **{name: lambda build=build: html.render(build()) for name, build in diagnoses.ALL.items()},
    "crowded": lambda: html.render(crowded()),
    **{f"check {name}": lambda c=check: check_page.render(c) for name, check in checks.ALL.items()},
    "check many": lambda: check_page.render(checks.many(300)),
    "check hostile": lambda: check_page.render(checks.hostile()),
    "compare": lambda: compare_page.render(by_hand()),
}
EVERY = pytest.mark.parametrize("name", PAGES)


# --- what binds a page ----------------------------------------------------------------------------


@EVERY
def test_a_page_is_small_and_bound_by_its_policy(name: str) -> None:
    """Under 2 MB; scripts and styles are those that the policy names, and nothing is inline."""
    text = PAGES[name]()
    assert len(text.encode()) < LIMIT
    found = read(text)
    policy = next(v for _, a, v in found.values if a == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    for kind, rule in (("script:", "script-src"), ("style:", "style-src")):
        held = [inner for where, inner in found.held if where == kind]
        wanted = [
            f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'"
            for t in held
        ]
        assert held
        assert rules[rule].split() == wanted
    assert not [a for _, a, _ in found.values if a == "style" or a.startswith("on")]
    assert not [v for _, a, v in found.values if a in ("src", "srcset", "action", "data")]
    styles = "".join(inner for where, inner in found.held if where == "style:")
    assert not re.search(r"url\(|@import", styles)


@EVERY
def test_links_lead_to_places_of_the_page(name: str) -> None:
    found = read(PAGES[name]())
    ids = [v for _, a, v in found.values if a == "id"]
    assert len(ids) == len(set(ids))
    for _, attribute, value in found.values:
        if attribute == "href":
            assert value.removeprefix("#") in ids
            assert value.startswith("#")
        if attribute in ("aria-labelledby", "aria-describedby"):
            assert value in ids


@EVERY
def test_headings_have_no_gaps(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in read(PAGES[name]()).found if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    for above, below in pairwise(levels):
        assert below <= above + 1


def test_the_bundle_is_the_one_that_was_recorded() -> None:
    record = json.loads((ASSETS / "plotly-basic.json").read_text(encoding="utf-8"))
    assert set(record["sha256"]) == {"plotly-basic.min.js", "plotly-basic.LICENSE.txt"}
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == digest, name
    head = (ASSETS / "plotly-basic.min.js").read_text(encoding="utf-8")[:300]
    assert f"v{record['version']}" in head
    assert "MIT" in (ASSETS / "plotly-basic.LICENSE.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"sha512-[\w+/]{86}==", record["integrity"])


def test_the_bundle_speaks_the_language_of_the_figures() -> None:
    """Of the same major version as the library that checks them."""
    offline = pytest.importorskip("plotly.offline")
    record = json.loads((ASSETS / "plotly-basic.json").read_text(encoding="utf-8"))
    assert record["version"].split(".")[0] == offline.get_plotlyjs_version().split(".")[0]


def painted(value: Any) -> Any:
    """A figure with a colour in the place of each name."""
    if isinstance(value, dict):
        return {k: painted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [painted(v) for v in value]
    return "#123456" if isinstance(value, str) and value.startswith("@") else value


@EVERY
def test_figures_are_valid_and_the_bundle_can_draw_them(name: str) -> None:
    """Every property and value is one that Plotly knows; every colour is in the style sheet."""
    figures = figures_of(PAGES[name]())
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    for colour in set(re.findall(r'"@([\w-]+)"', json.dumps(figures))):
        assert css.count(f"--{colour}:") == 3, colour  # light, dark by the system, dark by choice
    objects = pytest.importorskip("plotly.graph_objects")
    for figure in figures.values():
        assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar"}
        objects.Figure(painted(figure))


def test_a_page_without_charts_has_no_library() -> None:
    text = page("Nothing", "<p>nothing</p>")
    assert len(text) < 40_000
    assert [name for name, _ in read(text).held if name == "script:"] == ["script:"]


# --- escaping -------------------------------------------------------------------------------------


@given(st.text())
def test_no_text_leaves_its_element(text: str) -> None:
    found = read(f'<p title="{esc(text)}">{esc(text)}</p>{listed([text])}')
    assert [tag for tag, _ in found.found] == ["p", "ul", "li"]
    assert not set("<>") & set(label(text))
    inner = data_text({"t": text})
    assert not set("<>&\u2028\u2029") & set(inner)
    assert json.loads(inner) == {"t": text}


@given(st.floats() | st.integers())
def test_data_holds_no_number_that_is_none(value: float) -> None:
    back = json.loads(data_text([value]))[0]
    assert back is None if isinstance(value, float) and not math.isfinite(value) else back == value


def test_a_hostile_check_gives_the_same_elements() -> None:
    soiled = checks.hostile()
    clean = dataclasses.replace(
        checks.FAIL,
        metrics=(
            *checks.FAIL.metrics, dataclasses.replace(checks.FAIL.metrics[0], outcome="invalid")
        ),
    )  # fmt: skip
    mine = read(check_page.render(soiled))
    text = "".join(inner for name, inner in mine.held if name == "script:application/json")
    assert "\x1b" not in check_page.render(soiled)
    assert "\u202e" not in text
    twin = read(check_page.render(clean))
    assert {tag for tag, _ in mine.found} == {tag for tag, _ in twin.found}


def test_a_hostile_session_stays_text() -> None:
    row = WorstRow(EVIL, EVIL, 7, EVIL, 3, EVIL, 2.0, 1.5)

    def text(name: str, one: WorstRow) -> str:
        charts = Charts(
            waste=(SessionWaste(name, 3, 100.0, 4.5, (one,)),), waste_sessions=1, waste_s=4.5
        )
        return html.render(dataclasses.replace(diagnoses.sick(), charts=charts))

    plain = WorstRow("a", "b", 7, "c", 3, "d", 2.0, 1.5)
    mine, twin = read(text(EVIL, row)), read(text("name", plain))
    assert mine.found == twin.found
    shown = json.dumps(figures_of(text(EVIL, row))["waste"])
    assert "<img" not in shown
    assert "&lt;img" in shown


# --- the first screen -----------------------------------------------------------------------------


def test_three_numbers_prove_a_verdict() -> None:
    told = {name: proof(build()) for name, build in diagnoses.ALL.items()}
    for name, found in told.items():
        assert 1 <= len(found) <= 3, name
        assert all(one.value not in ("", "-") and one.name for one in found), name
    sick = [one.value for one in told["sick"]]
    finding = diagnoses.sick().causes[0]
    assert finding.share_of_ttft is not None
    assert sick[0] == f"{100 * finding.share_of_ttft:.0f} %"
    assert told["prefix_only"][0].value == "0"


@pytest.mark.parametrize(
    ("log", "numbers"),
    [(PEAK, ["57 %", "297 ms → 2.38 s", "74 %"]), (HEALTHY, ["343 ms", "100 %", "100 %"])],
)
def test_the_numbers_of_the_sample_logs(log: str, numbers: list[str]) -> None:
    assert [one.value for one in proof(ttftdoctor.diagnose(log))] == numbers


def test_the_first_screen_says_what_to_do_and_how_sure_it_is() -> None:
    text = html.render(diagnoses.sick())
    screen = text[text.index("<main>") : text.index('<nav class="parts"')]
    for words in ("FOUND", "high confidence", "Do first", "prefix cache", "−74 %", "Warnings"):
        assert words.lower() in screen.lower()
    healthy = html.render(diagnoses.healthy())
    assert "Nothing needs to be done." in healthy
    blind = html.render(diagnoses.prefix_only())
    assert "What it tells all the same" in blind
    assert "Missing in the log" in blind


# --- the five parts -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(diagnoses.ALL))
def test_the_case_is_told_in_five_parts(name: str) -> None:
    found = read(html.render(diagnoses.ALL[name]()))
    parts = [v for t, a, v in found.values if t == "section" and a == "id"]
    order = [ident for ident, _, _ in PARTS]
    assert parts == [ident for ident in order if ident in parts]
    assert {"background", "operation", "reading"} <= set(parts)
    links = [v for t, a, v in found.values if t == "a" and a == "href" and "session" not in v]
    assert links == [f"#{ident}" for ident in parts]


def test_every_chart_has_a_reading_and_its_figures() -> None:
    d = ttftdoctor.diagnose(PEAK)
    text = html.render(d)
    figures = figures_of(text)
    assert list(figures) == [
        "ledger", "by_turn", "uncached", "decode", "decode_context", "load", "waste", "remedies",
    ]  # fmt: skip
    for name in figures:
        part = text.split(f'id="plot-{name}"')[1].split("</figure>")[0]
        reading = re.search(r"<figcaption[^>]*>(.*?)</figcaption>", part)
        assert reading is not None
        assert len(reading[1]) > 30
        assert "<summary>The figures</summary>" in part
        assert "<table>" in part
    assert '<table class="heat">' in text


def test_a_remedy_says_what_it_leaves_as_it_is() -> None:
    d = ttftdoctor.diagnose(PEAK)
    (cache,) = (r for r in d.remedies if r.id == "prefix_cache")
    left = unchanged(d, cache)
    (whole,) = (row for row in d.ledger if row.group == "all")
    acts = d.charts.acts_on["prefix_cache"]
    kept = {a for a in ACCOUNTS if a not in acts and not a.startswith("queue")}
    assert "prefill of new tokens" in left
    assert "queue" not in left
    assert "repeated" not in left
    share = float(re.search(r"\((\d+) % of the mean", left)[1])  # type: ignore[index]
    parts = [whole.accounts[a] for a in kept if whole.accounts[a] > 0.02 * whole.ttft_mean_s]
    assert share == pytest.approx(100 * sum(parts) / whole.ttft_mean_s, abs=0.6)
    assert unchanged(diagnoses.sick(), diagnoses.sick().remedies[0]) == ""


# --- what only the charts need --------------------------------------------------------------------


def test_waste_by_session_adds_up() -> None:
    """All sessions together wasted what the ledger says; the worst come first."""
    d = ttftdoctor.diagnose(PEAK)
    (whole,) = (row for row in d.ledger if row.group == "all")
    assert d.charts.waste_s == pytest.approx(whole.accounts["prefill_repeated"] * whole.n, rel=1e-6)
    assert d.repeated_prefix.prefill_seconds_wasted == pytest.approx(d.charts.waste_s, rel=1e-6)
    found = d.charts.waste
    assert [one.seconds for one in found] == sorted((s.seconds for s in found), reverse=True)
    for one in found:
        assert {row.session_id for row in one.rows} == {one.session_id}
        spent = [row.seconds for row in one.rows]
        assert spent == sorted(spent, reverse=True)
        assert sum(v for v in spent if v is not None) <= one.seconds + 1e-9
    everything = [json.loads(line) for line in Path(PEAK).read_text(encoding="utf-8").splitlines()]
    counted = sum(row["session_id"] == found[0].session_id for row in everything)
    assert found[0].requests == counted
    assert by_session(ttftdoctor.diagnose(HEALTHY)) is None


def test_spreads_are_of_the_same_requests() -> None:
    d = ttftdoctor.diagnose(PEAK)
    rows = [json.loads(line) for line in Path(PEAK).read_text(encoding="utf-8").splitlines()]
    logged = np.quantile([row["ttft_ms"] / 1e3 for row in rows], [0.05, 0.25, 0.75])
    spreads = d.charts.spreads
    assert spreads["today"] == pytest.approx(tuple(logged), rel=1e-6)
    assert set(spreads) == {"today", *(r.id for r in d.remedies)}
    for low, middle, high in spreads.values():
        assert 0 <= low <= middle <= high
    for gain in d.remedies:
        assert gain.ttft_p50_s is not None
        assert spreads[gain.id][1] <= gain.ttft_p50_s <= spreads[gain.id][2]
    assert spreads["prefix_cache"][2] < spreads["today"][2]


def test_nothing_is_drawn_that_nobody_asked_for() -> None:
    assert ttftdoctor.diagnose(HEALTHY, draw=False).charts == Charts()
    with_charts = ttftdoctor.diagnose(HEALTHY)
    without = ttftdoctor.diagnose(HEALTHY, draw=False)
    assert with_charts.to_dict() == without.to_dict()


# --- the command line -----------------------------------------------------------------------------


def test_compare_and_check_write_pages(tmp_path: Path) -> None:
    compared, checked = tmp_path / "compare.html", tmp_path / "check.html"
    done = runner.invoke(app, ["compare", HEALTHY, HEALTHY, "--html", str(compared), "-q"])
    assert done.exit_code == 0, done.output
    done = runner.invoke(
        app, ["check", HEALTHY, "--baseline", HEALTHY, "--html", str(checked), "--quiet"]
    )
    assert done.exit_code in (0, 3), done.output
    for path in (compared, checked):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>")
        assert figures_of(text)
    log = tmp_path / "log.jsonl"
    log.write_text(Path(HEALTHY).read_text(encoding="utf-8"), encoding="utf-8")
    for command in (
        ["compare", str(log), HEALTHY, "--html", str(log)],
        ["check", str(log), "--baseline", HEALTHY, "--html", str(log)],
    ):
        done = runner.invoke(app, command)
        assert done.exit_code == 2
        assert "written over" in done.output


# --- images ---------------------------------------------------------------------------------------


def test_images_are_the_figures_of_the_page() -> None:
    """The same traces with colours filled in; every one has a name that the command line knows."""
    for d in (ttftdoctor.diagnose(PEAK), crowded(), diagnoses.ALL["ladder"]()):
        made = images.images(d)
        assert set(made) <= set(images.NAMES)
        assert list(made) == list(figures_of(html.render(d)))
        assert '"@' not in json.dumps(made)
        assert all(figure["layout"]["title"]["text"] for figure in made.values())
    assert images.light()["card"] == "#ffffff"


def test_without_kaleido_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(UsageError, match="needs Kaleido") as refused:
        png.write({}, tmp_path / "images")
    assert "ttftdoctor[png]" in str(refused.value)
    done = runner.invoke(app, ["diagnose", HEALTHY, "--png", str(tmp_path / "images"), "-q"])
    assert done.exit_code == 2
    assert not (tmp_path / "images").exists()


def test_no_image_is_written_over_the_log(tmp_path: Path) -> None:
    log = tmp_path / "ledger.png"
    log.write_text(Path(HEALTHY).read_text(encoding="utf-8"), encoding="utf-8")
    done = runner.invoke(app, ["diagnose", str(log), "--png", str(tmp_path)])
    assert done.exit_code == 2
    assert "written over" in done.output


def test_the_rounding_of_sums_is_no_value() -> None:
    from ttftdoctor.pages.figures import rounded

    assert rounded([1e-16, -3e-12, 0.1234567, None, float("nan"), 2e-6]) == [
        0.0, 0.0, 0.12346, None, None, 2e-6,
    ]  # fmt: skip
