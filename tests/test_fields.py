"""What a diagnosis says of fields that no column uses, where the columns leave much unexplained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

import ttftdoctor

Rng = np.random.Generator
Row = dict[str, Any]


def logged(rng: Rng, n: int, more: Callable[[int], tuple[float, Row]]) -> list[Row]:
    """Quiet requests; ``more(i)`` gives the seconds that one takes longer, and its fields."""
    rows = []
    for i in range(n):
        inputs = int(rng.integers(300, 3000))
        ttft = 0.06 + 0.00009 * inputs * float(rng.lognormal(0, 0.05))
        extra, fields = more(i)
        rows.append(plant.row(12.0 * i, inputs, int(rng.integers(40, 160)), ttft + extra, **fields))
    return rows


def why(found: ttftdoctor.Diagnosis) -> str:
    cause = next(f for f in found.causes if f.id == found.verdict.primary_cause)
    return " ".join((found.verdict.headline, *(s.text for s in cause.evidence)))


@pytest.mark.parametrize("seed", range(3))
def test_a_value_that_pays_a_constant_is_a_path(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def more(i: int) -> tuple[float, Row]:
        bound = rng.random() < 0.4
        noise = {"colour": str(rng.choice(["red", "green", "blue"])), "shard": int(rng.integers(5))}
        return 3.4 * float(rng.lognormal(0, 0.1)) * bound, {
            "response_format": "json_schema" if bound else "text", **noise
        }  # fmt: skip

    found = plant.diagnosed(tmp_path, logged(rng, 160, more))
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"response_format": "json_schema"}
    whole = next(r for r in found.ledger if r.group == "all")
    assert abs(whole.accounts["unexplained"]) < 0.1 * whole.ttft_mean_s


def test_a_duration_inside_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)

    def more(i: int) -> tuple[float, Row]:
        took = float(rng.lognormal(0, 0.8)) if rng.random() < 0.7 else 0.0
        return took, {"retrieval_ms": round(1e3 * took)}

    found = plant.diagnosed(tmp_path, logged(rng, 200, more))
    assert "retrieval_ms" in why(found)
    assert any("retrieval_ms" in step for step in found.verdict.next_steps)


def test_the_first_use_of_each_value_is_named(tmp_path: Path) -> None:
    rng, seen = np.random.default_rng(5), set()

    def more(i: int) -> tuple[float, Row]:
        schema = f"schema_{int(rng.pareto(0.8)) % 40}"
        first = schema not in seen
        seen.add(schema)
        return 5.0 * float(rng.lognormal(0, 0.15)) * first, {"schema": schema}

    found = plant.diagnosed(tmp_path, logged(rng, 200, more))
    assert "the first request of each schema" in why(found)


def test_values_of_which_few_are_kept_are_named(tmp_path: Path) -> None:
    """Adapters are loaded when another is asked for than the two used last."""
    rng, kept = np.random.default_rng(6), list[str]()

    def more(i: int) -> tuple[float, Row]:
        adapter = f"adapter-{int(rng.integers(4))}"
        loads = adapter not in kept[:2]
        kept[:] = [adapter, *(a for a in kept if a != adapter)]
        return 1.4 * float(rng.lognormal(0, 0.2)) * loads, {"adapter": adapter}

    found = plant.diagnosed(tmp_path, logged(rng, 220, more))
    assert "whose adapter is not among the 2 used last" in why(found)


@pytest.mark.parametrize("seed", range(4))
def test_fields_that_tell_nothing_are_not_named(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([seed, 7])

    def more(i: int) -> tuple[float, Row]:
        late = 4.0 * float(rng.lognormal(0, 0.8)) * (rng.random() < 0.3)
        fields = {f"f{k}": f"v{int(rng.integers(2 + k))}" for k in range(20)}
        return late, fields

    found = plant.diagnosed(tmp_path, logged(rng, 200, more))
    assert found.verdict.primary_cause == "insufficient_data"
    assert "explained by nothing in the log" in found.verdict.headline


@pytest.mark.parametrize("name", ["finish_reason", "is_slow", "api_key", "user_name", "question"])
def test_outcomes_people_and_keys_are_not_named(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(8)

    def more(i: int) -> tuple[float, Row]:
        late = rng.random() < 0.4
        took = 4.0 * float(rng.lognormal(0, 0.8)) * late
        return took, {name: "sk-yes" if late else "sk-no"}

    found = plant.diagnosed(tmp_path, logged(rng, 160, more))
    assert "sk-" not in json.dumps(found.to_dict() if hasattr(found, "to_dict") else str(found))


def test_a_prompt_is_not_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)

    def more(i: int) -> tuple[float, Row]:
        late = rng.random() < 0.4
        ask = "tell me my balance now" if late else "what is the weather like"
        return 3.0 * late, {"ask": ask, "evil": "\x1b[31mred" if late else "plain"}

    found = str(plant.diagnosed(tmp_path, logged(rng, 160, more)))
    assert "balance" not in found
    assert "\x1b" not in found


def test_what_a_request_met_is_no_path(tmp_path: Path) -> None:
    """A cache that is missed is named, and not judged as a way that the request took."""
    rng = np.random.default_rng(10)

    def more(i: int) -> tuple[float, Row]:
        hit = rng.random() < 0.6
        return 0.0 if hit else 2.5 * float(rng.lognormal(0, 0.3)), {"kv_hit": bool(hit)}

    found = plant.diagnosed(tmp_path, logged(rng, 160, more))
    assert found.verdict.scope is None
    assert "kv_hit=false" in why(found)


def test_a_log_that_changed_since_is_not_looked_into(tmp_path: Path) -> None:
    from ttftdoctor.intake import read_log
    from ttftdoctor.intake.again import values_of

    rng = np.random.default_rng(11)
    rows = logged(rng, 100, lambda i: (0.0, {"colour": "red" if i % 2 else "blue"}))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    log = read_log([str(path)])
    values = values_of(log)
    assert values is not None
    assert values[1].all()
    assert values[0]["colour"].to_list()[:2] == ["blue", "red"]
    path.write_text("\n".join(map(json.dumps, rows[1:] + rows[:1])) + "\n")
    assert values_of(log) is None
    path.unlink()
    assert values_of(log) is None


def test_a_region_is_a_route(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)

    def more(i: int) -> tuple[float, Row]:
        far = rng.random() < 0.2
        return 1.2 * far, {"region": "ap-south-1" if far else "us-east-1"}

    found = plant.diagnosed(tmp_path, logged(rng, 200, more))
    assert found.verdict.primary_cause == "fixed_overhead"
    assert found.verdict.scope == {"route": "ap-south-1"}


def test_prose_among_words_is_not_shown(tmp_path: Path) -> None:
    """A few texts in a field of words, and just these are slow."""
    rng = np.random.default_rng(13)

    def more(i: int) -> tuple[float, Row]:
        late = i % 60 == 0
        return 60.0 * late, {"label": "my pin is 1234" if late else f"v{i % 3}"}

    assert "1234" not in str(plant.diagnosed(tmp_path, logged(rng, 600, more)))
