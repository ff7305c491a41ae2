"""The irreducible spread: what any model could explain, on logs where that is known."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import ttftdoctor
from ttftdoctor import catalog
from ttftdoctor.diagnosis import Spread
from ttftdoctor.examine import examine
from ttftdoctor.report import spread_sentence

ROOT = Path(__file__).parents[1]
PEAK = str(ROOT / "sample_logs" / "peak_hour.jsonl")
HEALTHY = str(ROOT / "sample_logs" / "healthy.jsonl")

Cost = Callable[[dict[str, float]], float]


def spread(
    path: Path, cost: Cost, noise: float, *, n: int = 1500, seed: int = 1
) -> tuple[Spread | None, float]:
    """The spread of a log without load, and the share of the variance that is no noise."""
    rng = np.random.default_rng(seed)
    lines, known, ttft = [], [], []
    for at in range(n):
        row = {"input": float(rng.integers(200, 8000)), "replica": float(rng.integers(0, 3))}
        known.append(cost(row))
        ttft.append(known[-1] + noise * (rng.gamma(4.0) - 4.0) / 2)
        lines.append(
            json.dumps(
                {
                    "timestamp": 1_767_261_600 + at * 60,
                    "replica": f"node-{row['replica']:.0f}",
                    "input_tokens": int(row["input"]),
                    "output_tokens": int(rng.integers(10, 300)),
                    "ttft_ms": round(1e3 * ttft[-1], 4),
                }
            )
        )
    path.write_text("\n".join(lines) + "\n")
    found = examine(ttftdoctor.read(str(path))).evidence.spread
    return found, float(np.var(known) / max(np.var(ttft), 1e-12))


def linear(row: dict[str, float]) -> float:
    return 0.3 + row["input"] / 10_000


def test_where_the_line_is_the_truth_it_explains_all_that_can_be(tmp_path: Path) -> None:
    found, truth = spread(tmp_path / "log.jsonl", linear, 0.12)
    assert found is not None
    assert 0.6 < truth < 0.9
    assert found.explained_by_model == pytest.approx(truth, abs=0.03)
    assert found.explainable == pytest.approx(truth, abs=0.03)
    assert found.interval[0] < truth < found.interval[1]
    assert found.explained_by_model <= found.explainable
    assert found.deviation_by_model <= found.deviation_explainable
    assert 0 < found.interval[1] - found.interval[0] < 0.15
    assert {"input", "replica"} <= set(found.columns)


def test_what_the_line_does_not_know_is_found(tmp_path: Path) -> None:
    """A step in the length and a replica slow for long prompts: no line, but in the columns."""

    def odd(row: dict[str, float]) -> float:
        long = row["input"] > 5000
        return 0.6 + 0.8 * long * (row["replica"] == 1) - 0.3 * (row["input"] < 1500)

    found, truth = spread(tmp_path / "log.jsonl", odd, 0.12)
    assert found is not None
    assert truth > 0.8
    assert found.explained_by_model < 0.6
    assert truth - 0.08 < found.explainable < truth + 0.04


def test_noise_cannot_be_explained(tmp_path: Path) -> None:
    found, _ = spread(tmp_path / "log.jsonl", lambda row: 1.0, 0.1)
    assert found is not None
    assert found.explainable < 0.03
    assert found.explained_by_model < 0.03
    assert found.interval[0] == 0.0


def test_units_and_a_constant_change_nothing(tmp_path: Path) -> None:
    one, _ = spread(tmp_path / "log.jsonl", linear, 0.12)
    ten, _ = spread(tmp_path / "ten.jsonl", lambda row: 10 * linear(row), 1.2)
    more, _ = spread(tmp_path / "more.jsonl", lambda row: 0.5 + linear(row), 0.12)
    assert one is not None
    for other in (ten, more):
        assert other is not None
        assert other.explainable == pytest.approx(one.explainable, abs=0.01)
        assert other.explained_by_model == pytest.approx(one.explained_by_model, abs=0.02)


def test_too_few_rows_or_none_that_differ_say_nothing(tmp_path: Path) -> None:
    assert spread(tmp_path / "few.jsonl", linear, 0.12, n=80)[0] is None
    assert spread(tmp_path / "same.jsonl", lambda row: 1.0, 0.0)[0] is None


def test_the_same_log_gives_the_same_answer() -> None:
    one, other = (examine(ttftdoctor.read(PEAK)).evidence.spread for _ in range(2))
    assert one is not None
    assert one == other
    assert 0.7 < one.explainable < 0.8
    assert one.n == 2000
    assert "2,000 of them" in one.method


def test_the_document_has_it_and_follows_the_schema() -> None:
    schema = json.loads(
        (Path(ttftdoctor.__file__).parent / "schema" / "diagnosis-1.schema.json").read_text()
    )
    diagnosis = ttftdoctor.diagnose(HEALTHY)
    document = json.loads(ttftdoctor.to_json(diagnosis))
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["spread"]["explainable"] > 0.95
    assert document["spread"]["n"] == 326


def test_every_report_says_it() -> None:
    diagnosis = ttftdoctor.diagnose(HEALTHY)
    said = spread_sentence(diagnosis)
    assert "about as much as any model of these columns could explain" in said
    for name, renderer in catalog.renderers().items():
        if name != "json":
            text = " ".join(renderer.render(diagnosis).split())
            assert "Of the spread of TTFT" in text, name
    without = dataclasses.replace(diagnosis, spread=None)
    assert spread_sentence(without) == ""
    assert "Of the spread" not in ttftdoctor.to_text(without)
    assert diagnosis.spread is not None
    less = dataclasses.replace(diagnosis.spread, explained_by_model=0.5, explainable=0.75)
    said = spread_sentence(dataclasses.replace(diagnosis, spread=less))
    assert "50 % is explained" in said
    assert "any model of these columns could explain about 75 %" in said


def test_a_number_that_is_no_ttft_has_no_spread(tmp_path: Path) -> None:
    rows = [
        {"input_tokens": 100 + i, "output_tokens": 50 + i % 90, "timestamp": 1_767_261_600 + 60 * i,
         "ttft_ms": 1000.0 + 20 * (i % 90), "e2e_ms": 1000.0 + 20 * (i % 90)}
        for i in range(300)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    diagnosis = ttftdoctor.diagnose(str(path))
    assert diagnosis.verdict.primary_cause == "measurement_artifact"
    assert diagnosis.spread is None


def test_a_few_very_late_requests_do_not_rule_the_deviation(tmp_path: Path) -> None:
    """Outliers that no column foretells take the variance, and leave the deviation explained."""
    rng = np.random.default_rng(4)

    def rare(row: dict[str, float]) -> float:
        return linear(row) + (30.0 if rng.random() < 0.004 else 0.0)

    found, _ = spread(tmp_path / "log.jsonl", rare, 0.02)
    assert found is not None
    assert found.explainable < 0.2
    assert found.deviation_explainable > 0.3
    assert not math.isnan(found.interval[1])
