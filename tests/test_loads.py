"""Models that are loaded again, and why: silence, options, or another model in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plant
import pytest

Row = dict[str, Any]


def answers(
    loads: Any, *, pause: tuple[float, float], models: tuple[str, ...] = ("a",), ollama: bool = True
) -> list[Row]:
    """One request after the other; ``loads(pause, changed)`` is the seconds that loading takes."""
    rng = np.random.default_rng(1)
    now, before, rows = 0.0, "", []
    for i in range(90):
        waited = float(rng.uniform(*pause)) if i % 4 else 20.0
        model = models[int(rng.integers(len(models)))]
        load = loads(waited, model != before) * float(np.exp(rng.normal(0, 0.06)))
        now, before = now + waited, model
        inputs, outputs = int(rng.integers(300, 3000)), int(rng.integers(40, 200))
        prefill, decode = 0.0005 * inputs, 0.02 * outputs
        whole = load + prefill + decode
        if ollama:
            stamp = np.datetime64(int((plant.EPOCH_S + now + whole) * 1e3), "ms")
            rows.append(
                {
                    "model": model, "created_at": f"{stamp}Z", "done": True,
                    "total_duration": int(1e9 * whole), "load_duration": int(1e9 * load),
                    "prompt_eval_count": inputs, "prompt_eval_duration": int(1e9 * prefill),
                    "eval_count": outputs, "eval_duration": int(1e9 * decode),
                }
            )  # fmt: skip
        else:
            rows.append(plant.row(now, inputs, outputs, load + prefill, model=model))
        now += whole
    return rows


def test_a_model_that_every_request_loads_is_reloaded_and_not_silent(tmp_path: Path) -> None:
    found = plant.diagnosed(tmp_path, answers(lambda waited, changed: 14.0, pause=(20, 140)))
    assert found.verdict.primary_cause == "cold_start"
    assert "loaded again" in found.verdict.headline
    assert "instead of 0" not in found.verdict.headline
    assert "num_ctx" in found.verdict.next_steps[0]
    assert "warm" not in found.verdict.next_steps[0]
    assert found.verdict.experiment is not None
    assert "warm" not in found.verdict.experiment.command
    gain = next(r for r in found.remedies if r.id == "warm_pool")
    assert gain.gain_share == pytest.approx(0)


@pytest.mark.parametrize("ollama", [True, False])
def test_models_that_take_turns(tmp_path: Path, ollama: bool) -> None:
    rows = answers(
        lambda waited, changed: 9.0 if changed else 0.04,
        pause=(8, 60), models=("a", "b"), ollama=ollama,
    )  # fmt: skip
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "cold_start"
    assert "takes the place of another" in found.verdict.headline
    assert "OLLAMA_MAX_LOADED_MODELS" in found.verdict.next_steps[0]


@pytest.mark.parametrize("ollama", [True, False])
def test_silence_still_calls_for_a_warm_replica(tmp_path: Path, ollama: bool) -> None:
    rows = answers(
        lambda waited, changed: 9.0 if waited > 300 else 0.04,
        pause=(100, 360), models=("a", "b") if ollama else ("a",), ollama=ollama,
    )  # fmt: skip
    found = plant.diagnosed(tmp_path, rows)
    assert found.verdict.primary_cause == "cold_start"
    assert "Keep one replica warm" in found.verdict.next_steps[0]
