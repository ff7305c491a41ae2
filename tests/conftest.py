"""What tests have in common: their order, and goldens, which a person has read once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Nothing here is about time: a slow machine, or code compiled on first use, is no failure. Where a
# change is judged the examples are the same each time; new ones are looked for by whoever works.
settings.register_profile("untimed", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("untimed")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the goldens instead of comparing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes minutes, or one of the workers would do it at the end, alone."""
    items.sort(key=lambda item: item.path.name != "test_spark.py")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """Compare a text with ``tests/golden/PATH``; what differs is written to ``PATH.got``."""

    def compare(path: str | Path, text: str) -> None:
        place = GOLDEN / path
        got = place.with_name(place.name + ".got")
        if request.config.getoption("--update-golden"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="\n")
            got.unlink(missing_ok=True)
            return
        want = place.read_text(encoding="utf-8") if place.exists() else None
        if text != want:
            got.parent.mkdir(parents=True, exist_ok=True)
            got.write_text(text, encoding="utf-8", newline="\n")
        assert text == want, f"differs from {place}; see {got.name}, or pytest --update-golden"
        got.unlink(missing_ok=True)

    return compare


@pytest.fixture
def every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that say the same stay as many as they are: tests of readers write one several times."""

    def as_they_are(requests: Any, *_: Any, **__: Any) -> Any:
        from ttftdoctor.intake.layers import Once

        none = requests.head(0).select("source", "line")
        return Once(requests, none.with_columns(reason=None), none)

    monkeypatch.setattr("ttftdoctor.intake.once", as_they_are)
