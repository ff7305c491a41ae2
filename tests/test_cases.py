"""Incidents retold from public reports: the cause that was found in the end must be named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.run import diagnose

CASES = Path(__file__).parents[2] / "shared" / "cases"
NAMES = sorted(path.name.removesuffix(".expect.json") for path in CASES.glob("*.expect.json"))

pytestmark = pytest.mark.skipif(not NAMES, reason="the folder of cases is not here")


@cache
def expected(name: str) -> dict[str, Any]:
    return json.loads((CASES / f"{name}.expect.json").read_text())


@cache
def found(name: str) -> Diagnosis:
    return diagnose(str(CASES / f"{name}.jsonl"))


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the whole table once (shown with -s, or beside a failure)."""
    yield
    if not NAMES:
        return
    lines = ["", f"{'case':34} {'found':26} {'sure':>5}  expected"]
    for name in NAMES:
        d, e = found(name), expected(name)
        mark = " " if d.verdict.primary_cause == e["expected_primary"] else "~"
        if d.verdict.primary_cause in e["must_not_be_primary"]:
            mark = "!"
        lines.append(
            f"{name:34} {d.verdict.primary_cause:26} {d.verdict.confidence:5.2f} {mark}"
            f"{e['expected_primary']}"
        )
    print("\n".join(lines))


@pytest.mark.parametrize("name", NAMES)
def test_the_cause_is_the_one_that_was_found(name: str) -> None:
    e, d = expected(name), found(name)
    cause = d.verdict.primary_cause
    assert cause not in e["must_not_be_primary"], d.verdict.headline
    assert cause in (e["expected_primary"], *e["acceptable_alternates"]), d.verdict.headline


def test_at_most_two_are_only_acceptable() -> None:
    """An acceptable answer is not the best one."""
    second = [n for n in NAMES if found(n).verdict.primary_cause != expected(n)["expected_primary"]]
    assert len(second) <= 2, second


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_accounted_for(name: str) -> None:
    (one,) = found(name).inputs
    assert one.rows_read == expected(name)["rows"]
    assert one.rows_read == one.rows_used + sum(one.rows_rejected.values())


@pytest.mark.parametrize("name", [n for n in NAMES if expected(n).get("scope")])
def test_the_sick_part_is_named(name: str) -> None:
    """The values of the scope are those of the report; the columns have our names."""
    scope = found(name).verdict.scope
    sick = {v for k, v in expected(name)["scope"].items() if not k.startswith("healthy")}
    assert scope is not None
    assert set(scope.values()) <= sick
