"""The pages in a real browser: nothing is fetched or refused, charts answer, everybody can use it.

These need Playwright and a Chromium on the path (Debian's ``chromium``), and skip without them.
Set ``TTFTDOCTOR_SCREENSHOTS`` to a folder to keep pictures of what was tested.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checks
import diagnoses
import pytest
from test_compare import by_hand
from test_page import crowded

import ttftdoctor
from ttftdoctor.comparisons import page as compare_page
from ttftdoctor.errors import UsageError
from ttftdoctor.gate import page as check_page
from ttftdoctor.pages import images, png
from ttftdoctor.report import html

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path")

SAMPLES = Path(__file__).parent.parent / "sample_logs"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic",
]  # fmt: skip


def of(log: str) -> str:
    return ttftdoctor.to_html(ttftdoctor.diagnose(str(SAMPLES / log)))


PAGES: dict[str, Callable[[], str]] = {
    "peak": lambda: of("peak_hour.jsonl"),
    "healthy": lambda: of("healthy.jsonl"),
    "prefix": lambda: of("mooncake.jsonl"),
    "transcript": lambda: of("claude-code.jsonl"),
    "load test": lambda: of("guidellm.json"),
    "insufficient": lambda: html.render(diagnoses.insufficient()),
    "hostile": lambda: html.render(diagnoses.hostile()),
    "ladder": lambda: html.render(diagnoses.ALL["ladder"]()),
    "crowded": lambda: html.render(crowded()),
    "check": lambda: check_page.render(checks.FAIL),
    "compare": lambda: compare_page.render(by_hand()),
}
EVERY = pytest.mark.parametrize("name", PAGES)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each page as a file, made once."""
    folder = tmp_path_factory.mktemp("pages")
    out = {}
    for name, build in PAGES.items():
        out[name] = folder / f"{name.replace(' ', '_')}.html"
        out[name].write_text(build(), encoding="utf-8", errors="replace")
    return out


@dataclass
class Opened:
    """A page, what it complained of, and what it asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def drawn(self) -> list[str]:
        """The charts, once all of them are drawn."""
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.plot')]"
            ".every(p => p.querySelector('.main-svg'))",
            timeout=20_000,
        )
        return list(self.page.eval_on_selector_all(".plot", "ps => ps.map(p => p.id)"))

    def style(self, selector: str, name: str) -> str:
        return str(
            self.page.eval_on_selector(
                selector, f"e => getComputedStyle(e).getPropertyValue('{name}')"
            )
        )

    def keep(self, name: str) -> None:
        folder = os.environ.get("TTFTDOCTOR_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def visit(name: str, *, width: int = 1280, scheme: str = "light", **more: Any) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **more
        )
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda m: found.complaints.append(f"{m.type}: {m.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(files[name].as_uri())
        return found

    yield visit
    for context in contexts:
        context.close()


def found_by_axe(page: Any) -> list[str]:
    """What axe-core finds, of any impact.

    What Plotly draws is left out: it is hidden from readers aloud, and slow to look through.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = {"exclude": [[".main-svg"]]}
    found = axe.Axe().run(page, context=context).response["violations"]
    return [f"{v['impact']} {v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]


# --- every page -----------------------------------------------------------------------------------


@EVERY
def test_a_page_opens_without_a_request_or_a_complaint(
    opened: Callable[..., Opened], files: dict[str, Path], name: str
) -> None:
    """Offline, under its own policy: only the file itself is asked for, and nothing is refused."""
    found = opened(name, offline=True)
    charts = found.drawn()
    assert charts or name == "insufficient"
    assert found.asked == [files[name].as_uri()]
    assert found.complaints == []
    found.keep(name)


@EVERY
def test_a_page_fits_a_telephone(opened: Callable[..., Opened], name: str) -> None:
    found = opened(name, width=360, scheme="dark")
    found.page.eval_on_selector_all("details", "all => all.forEach(d => { d.open = true; })")
    found.drawn()
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert found.complaints == []
    found.keep(f"{name}-narrow")


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("peak", 1280, "light"), ("insufficient", 1280, "dark"), ("hostile", 360, "light"),
        ("prefix", 360, "dark"), ("check", 1280, "dark"), ("compare", 360, "light"),
    ],
)  # fmt: skip
def test_everybody_can_use_it(
    opened: Callable[..., Opened], name: str, width: int, scheme: str
) -> None:
    """axe-core finds nothing, wide and narrow, light and dark, with everything unfolded."""
    found = opened(name, width=width, scheme=scheme)
    found.page.eval_on_selector_all("details", "all => all.forEach(d => { d.open = true; })")
    found.drawn()
    assert found_by_axe(found.page) == []


# --- what a reader does ---------------------------------------------------------------------------


def test_a_large_log_opens_in_under_two_seconds(
    opened: Callable[..., Opened], files: dict[str, Path]
) -> None:
    """With as much to draw as the largest log can have; the best of five, as others run beside."""
    assert files["crowded"].stat().st_size < 2_000_000
    times = []
    for _ in range(5):
        began = time.monotonic()
        found = opened("crowded")
        assert found.page.locator("h1").is_visible()
        times.append(time.monotonic() - began)
        if times[-1] < 2.0:
            break
    assert min(times) < 2.0
    assert found.drawn()


def test_charts_answer_the_mouse(opened: Callable[..., Opened]) -> None:
    found = opened("peak")
    found.drawn()
    for name, words in (("ledger", "of the mean TTFT"), ("by_turn", "requests")):
        plot = found.page.locator(f"#plot-{name}")
        plot.scroll_into_view_if_needed()
        marks = {"ledger": ".bars .point path", "by_turn": ".scatterlayer .point"}[name]
        box = plot.locator(marks).nth(3).bounding_box()
        found.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
        plot.locator(".hoverlayer .hovertext").first.wait_for(timeout=5_000)
        assert words in plot.locator(".hoverlayer").text_content()
    # A line can be taken away by its name in the legend.
    plot = found.page.locator("#plot-by_turn")
    before = plot.locator(".scatterlayer .trace").count()
    plot.locator(".legendtoggle").first.click()
    found.page.wait_for_function(
        "n => document.querySelectorAll('#plot-by_turn .scatterlayer .trace').length < n",
        arg=before, timeout=5_000,
    )  # fmt: skip
    assert found.complaints == []


def test_axes_settle_whatever_the_figures(opened: Callable[..., Opened]) -> None:
    """Room for labels and labels for the room do not chase each other: Plotly would complain."""
    found = opened("peak")
    found.drawn()
    for name in ("decode", "by_turn", "ledger"):
        found.page.evaluate(
            """name => {
                const place = document.getElementById('plot-' + name);
                const draw = name === 'ledger' ? 'x' : 'y';
                const logged = place.data.map(t => Array.from(t[draw]));
                for (let power = -3; power <= 5; power += 0.25) {
                    const data = place.data.map((t, at) => ({ ...t,
                        [draw]: logged[at].map(v => v * 10 ** power) }));
                    Plotly.react(place, data, { ...place.layout, datarevision: power });
                }
            }""",
            name,
        )
    assert found.complaints == []


def test_figures_unfold_by_keyboard(opened: Callable[..., Opened]) -> None:
    found = opened("peak")
    found.drawn()
    summary = found.page.locator("figure:has(#plot-by_turn) summary")
    table = found.page.locator("figure:has(#plot-by_turn) table")
    assert not table.is_visible()
    summary.focus()
    found.page.keyboard.press("Enter")
    sync_api.expect(table).to_be_visible()
    found.page.keyboard.press("Tab")  # the table scrolls by keyboard, too
    sync_api.expect(found.page.locator("figure:has(#plot-by_turn) .scroll")).to_be_focused()
    summary.focus()
    found.page.keyboard.press("Space")
    sync_api.expect(table).to_be_hidden()


def test_the_first_tab_stops_are_the_switch_and_the_parts(opened: Callable[..., Opened]) -> None:
    found = opened("peak")
    stops = []
    for _ in range(3):
        found.page.keyboard.press("Tab")
        stops.append(found.page.evaluate("document.activeElement.textContent"))
    assert stops == ["Dark colours", "Background", "Operation"]
    found.page.keyboard.press("Enter")
    found.page.wait_for_url("**#operation", timeout=5_000)


def test_colours_follow_the_system_and_the_switch(opened: Callable[..., Opened]) -> None:
    found = opened("peak")
    found.drawn()
    text = "#plot-ledger .xtick text"
    light, ink = found.style("body", "background-color"), found.style(text, "fill")
    found.page.emulate_media(color_scheme="dark")
    assert found.style("body", "background-color") != light
    found.page.wait_for_function(
        "ink => getComputedStyle(document.querySelector('#plot-ledger .xtick text')).fill !== ink",
        arg=ink, timeout=5_000,
    )  # fmt: skip
    switch = found.page.locator("#theme")
    sync_api.expect(switch).to_have_text("Light colours")
    switch.focus()
    found.page.keyboard.press("Enter")
    sync_api.expect(switch).to_have_text("Dark colours")
    assert found.style("body", "background-color") == light
    assert found.style(text, "fill") == ink
    assert found.complaints == []


def test_a_session_leads_to_its_requests(opened: Callable[..., Opened]) -> None:
    found = opened("peak")
    found.drawn()
    found.page.locator("figure:has(#plot-waste) summary").first.click()
    found.page.locator("figure:has(#plot-waste) a").nth(2).click()
    rows = found.page.locator("#session-3 tbody tr")
    rows.first.wait_for(timeout=5_000)
    sync_api.expect(rows).to_have_count(5)
    assert "line" in rows.first.inner_text()


def test_on_paper_everything_is_light_and_unfolded(
    opened: Callable[..., Opened], tmp_path: Path
) -> None:
    found = opened("peak", scheme="dark")
    found.drawn()
    found.page.evaluate(
        """() => addEventListener('beforeprint', () => { window.seen = {
            theme: document.documentElement.dataset.theme,
            closed: document.querySelectorAll('details:not([open]):not(.linked *)').length,
            wide: Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth)),
        }; })"""
    )
    found.page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    seen = found.page.evaluate("window.seen")
    assert seen["theme"] == "light"
    assert seen["closed"] == 0
    assert 0 < seen["wide"] <= 660
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    sync_api.expect(found.page.locator("details[open]")).to_have_count(0)
    assert found.page.evaluate("document.documentElement.dataset.theme") is None
    assert found.complaints == []


def test_without_scripts_the_words_and_figures_are_all_there(opened: Callable[..., Opened]) -> None:
    found = opened("peak", java_script_enabled=False)
    text = found.page.locator("main").inner_text()
    for words in ("History is prefilled again", "Do first", "Ruled out", "Leaves as it is"):
        assert words in text
    found.page.locator("figure:has(#plot-ledger) summary").click()
    sync_api.expect(found.page.locator("figure:has(#plot-ledger) table")).to_be_visible()


def test_charts_become_images(tmp_path: Path) -> None:
    """By the bundle that is shipped, at twice the size; one that cannot be drawn is an error."""
    pytest.importorskip("kaleido")
    made = images.images(diagnoses.sick())
    some = {name: made[name] for name in ("ledger", "remedies")}
    paths = png.write(some, tmp_path / "images")
    assert [path.name for path in paths] == ["ledger.png", "remedies.png"]
    for path, figure in zip(paths, some.values(), strict=True):
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        size = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
        assert size == (2 * images.WIDTH, 2 * figure["layout"]["height"])
        assert len(data) > 10_000
    with pytest.raises(UsageError):
        png.write({"x": {"data": "no figure"}}, tmp_path / "images")
