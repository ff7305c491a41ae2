"""Each cause is found where it was planted, and is not acquitted where the log cannot tell."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import plant
import pytest

from ttftdoctor import catalog
from ttftdoctor.diagnosis import Diagnosis, Finding
from ttftdoctor.intake import read_log
from ttftdoctor.report import TITLES
from ttftdoctor.run import diagnose

SEEDS = (0, 1)
IDS = tuple(cause.id for cause in catalog.causes())
DATA = ("measurement_artifact", "insufficient_data")
EACH = pytest.mark.parametrize("cause", IDS)

#: Found by the shape of the wait alone, the seconds of these are known more roughly.
ROUGH = {"queueing_saturation": 0.25, "deploy_regression": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@cache
def found(folder: Path, cause: str, seed: int) -> Diagnosis:
    return diagnose(plant.plant(cause, seed).write(folder / f"{cause}-{seed}.jsonl"))


def finding(d: Diagnosis, cause: str) -> Finding:
    return next(f for f in d.causes if f.id == cause)


def test_the_vocabulary() -> None:
    """Fourteen causes in five families, each with a plant, a title and a page of the manual."""
    assert len(IDS) == 14
    assert set(IDS) == set(plant.PLANTS)
    assert {c.family for c in catalog.causes()} == {
        "prefix", "load", "input", "service", "data", "none",
    }  # fmt: skip
    known = {remedy.id for remedy in catalog.remedies()}
    for cause in catalog.causes():
        assert cause.id in TITLES
        assert cause.next_steps
        assert set(cause.remedies) <= known


#: What a step that asks for a column says, and the column.
ASKED = {
    "Log cached tokens": "cached_tokens",
    "Log the engine's queue time": "queue_us",
    "Log the replica": "replica",
    "log session ids": "session_id",
}


@EACH
def test_no_step_asks_for_what_the_log_has(folder: Path, cause: str) -> None:
    steps = found(folder, cause, SEEDS[0]).verdict.next_steps
    assert steps
    log = read_log([str(folder / f"{cause}-{SEEDS[0]}.jsonl")]).requests
    for text, column in ASKED.items():
        known = log[column].null_count() < 0.5 * log.height
        assert not (known and any(text in step for step in steps))


@pytest.mark.parametrize("seed", SEEDS)
@EACH
def test_a_planted_cause_is_the_primary_one(folder: Path, cause: str, seed: int) -> None:
    d = found(folder, cause, seed)
    assert d.verdict.primary_cause == cause, d.verdict.headline
    assert finding(d, cause).status == "primary"
    assert d.verdict.confidence >= 0.5
    assert [f.id for f in d.causes if f.status == "primary"] == [cause]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", [c for c in IDS if plant.plant(c).seconds is not None])
def test_it_accounts_for_the_seconds_that_were_planted(folder: Path, cause: str, seed: int) -> None:
    seconds = finding(found(folder, cause, seed), cause).seconds
    assert seconds == pytest.approx(plant.plant(cause, seed).seconds, rel=ROUGH.get(cause, 0.15))


@pytest.mark.parametrize("seed", SEEDS)
@EACH
def test_every_cause_is_in_every_diagnosis(folder: Path, cause: str, seed: int) -> None:
    d = found(folder, cause, seed)
    assert tuple(f.id for f in d.causes) == IDS
    families = {c.id: c.family for c in catalog.causes()}
    for f in d.causes:
        assert f.family == families[f.id]
        assert 0 <= f.confidence <= 1
        if f.status == "unjudged":
            assert f.seconds is None, f.id
            assert f.needs, f.id
        elif f.id != "healthy":
            assert f.evidence, f.id
        if f.interval is not None:
            assert f.interval[0] <= f.interval[1]
    contributing = tuple(f.id for f in d.causes if f.status == "contributing")
    assert d.verdict.contributing == contributing


@pytest.mark.parametrize("seed", SEEDS)
@EACH
def test_no_second_is_blamed_twice(folder: Path, cause: str, seed: int) -> None:
    """What is laid to the causes at work is together no more than the TTFT."""
    d = found(folder, cause, seed)
    mean = d.population.ttft_mean_s
    assert mean is not None
    at_work = [f for f in d.causes if f.status in ("primary", "contributing", "minor")]
    assert sum(f.seconds or 0.0 for f in at_work) <= 1.02 * mean, [
        (f.id, f.seconds) for f in at_work
    ]
    for f in d.causes:
        assert (f.seconds or 0.0) <= 1.001 * mean
        if f.share_of_ttft is not None:
            assert f.share_of_ttft == pytest.approx((f.seconds or 0.0) / mean)


@EACH
def test_the_ledger_adds_up(folder: Path, cause: str) -> None:
    for row in found(folder, cause, 0).ledger:
        assert sum(row.accounts.values()) == pytest.approx(row.ttft_mean_s, abs=1e-6)


@pytest.mark.parametrize("cause", [c for c in IDS if plant.plant(c).needs])
def test_without_the_column_it_needs_a_cause_is_not_judged(tmp_path: Path, cause: str) -> None:
    """Not acquitted either: the log cannot tell, and the finding names what is lacking.

    Lengths that grow by what was said tell sessions too, so these are taken out as well.
    """
    planted = plant.plant(cause)
    without = [*planted.needs]
    if "session_id" in without:
        without += ["completion_tokens", "timestamp"]
    blind = diagnose(planted.write(tmp_path / "blind.jsonl", without=without))
    judged = finding(blind, cause)
    assert judged.status == "unjudged"
    assert judged.seconds is None
    assert judged.needs
    assert blind.verdict.primary_cause != cause


@pytest.mark.parametrize("cause", [c for c in IDS if c not in DATA])
def test_without_a_ttft_nothing_is_judged(tmp_path: Path, cause: str) -> None:
    blind = diagnose(plant.plant(cause).write(tmp_path / "blind.jsonl", without=["ttft_ms"]))
    assert blind.verdict.primary_cause == "insufficient_data"
    assert {f.status for f in blind.causes if f.id not in DATA} == {"unjudged"}


@EACH
def test_a_plant_is_written_the_same_twice(tmp_path: Path, cause: str) -> None:
    """The generators are seeded, and the logs hold what they need to."""
    one, other = (Path(plant.plant(cause).write(tmp_path / name)) for name in "ab")
    assert one.read_bytes() == other.read_bytes()
    log = read_log([str(one)])
    assert log.requests.height == log.inputs[0].rows_read == len(plant.plant(cause).rows)


@pytest.mark.parametrize("cause", [c.id for c in catalog.causes() if c.remedies])
def test_a_remedy_for_the_cause_is_among_the_gains(folder: Path, cause: str) -> None:
    d = found(folder, cause, 0)
    helps = next(c for c in catalog.causes() if c.id == cause).remedies
    gains = {g.id: g.gain_share or 0.0 for g in d.remedies}
    assert set(helps) & set(gains)
    # New text of single turns is nothing that could be cached, compacted or taken out of turn.
    if cause != "organic_long_input":
        assert max(gains.get(remedy, 0.0) for remedy in helps) > 0.1
