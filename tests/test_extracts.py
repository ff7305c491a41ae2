"""Logs larger than memory: parts add up to the whole, and the extract is like the log."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import SAMPLES
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.engines import Asked, Taken
from ttftdoctor.engines.local import memory_bytes, take
from ttftdoctor.extracts import LEAST_BYTES, Budget
from ttftdoctor.extracts.facts import facts_of, nothing_carried
from ttftdoctor.extracts.gather import gather
from ttftdoctor.extracts.stretches import Choice, belonging, choose
from ttftdoctor.extracts.survey import MOST_BINS, Survey, survey_of, surveyed
from ttftdoctor.extracts.tally import (
    STEP,
    Manner,
    Tally,
    class_of,
    quantiles,
    tallied,
    tally_of,
    value_of,
)
from ttftdoctor.intake import read_log
from ttftdoctor.measure.rows import Around, prepare
from ttftdoctor.measure.turns import SIDE_CALLS
from ttftdoctor.prices import Pricing
from ttftdoctor.remedies import Settings
from ttftdoctor.study import study
from ttftdoctor.table import FACTS, LINE
from ttftdoctor.units import seconds as ttftdoctor_seconds

PEAK = SAMPLES / "peak_hour.jsonl"
MIB = 2**20
ROOMY = 8 * 2**30
REQUESTS = read_log([str(PEAK)]).requests


def some_rows() -> pl.DataFrame:
    """The sample with what real logs have: rows of no session, no start, no counts."""
    hit = pl.int_range(pl.len()) % 17
    return REQUESTS.with_columns(
        pl.when(hit != 3).then("session_id").alias("session_id"),
        pl.when(hit != 5).then("start").alias("start"),
        pl.when(hit != 7).then("output_tokens").alias("output_tokens"),
        pl.when(hit != 11).then("input_tokens").alias("input_tokens"),
        pl.when(hit != 13).then("ttft_us").alias("ttft_us"),
        (hit.cast(pl.String) + "x").alias("replica"),
    )


def with_side_calls(rows: pl.DataFrame) -> pl.DataFrame:
    """The same with short calls between the turns: after most turns one, after some a few."""
    parts = [rows]
    for k in range(1, 4):
        calls = rows.filter(pl.int_range(pl.len()) * 7 % 5 >= k).with_columns(
            pl.col("start") + k * 300_000,
            pl.col("input_tokens") // (6 - k),
            pl.lit(20, dtype=rows.schema["output_tokens"]).alias("output_tokens"),
            pl.col(LINE) + k * 10**6,
        )
        parts.append(calls)
    return pl.concat(parts)


def small(rows: int) -> Budget:
    return Budget(ROOMY, most_rows=rows)


def extracted(*logs: Path | str, rows: int) -> tuple[dict[str, Any], Taken]:
    """The document of logs of which only so many rows may be looked at."""
    taken = take(Asked(tuple(map(str, logs)), budget=small(rows)))
    made, _ = study(taken.log, "log", Settings(), draw=False, whole=taken.whole)
    return made.to_dict(), taken


def facts_by_line(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(LINE).select(LINE, *FACTS)


# ------------------------------------------------------------------- facts


@pytest.mark.parametrize("order_known", [True, False])
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 60_000), max_size=6))
def test_facts_do_not_depend_on_the_pieces(order_known: bool, cuts: list[int]) -> None:
    """However the rows of sessions are cut into pieces of their order."""
    rows = with_side_calls(some_rows())
    whole, _ = facts_of(rows, nothing_carried(), order_known)
    assert not order_known or whole["passed_over"].max() >= 3
    by = ["start", "source", LINE] if order_known else ["source", LINE]
    rows = rows.sort(by, nulls_last=True)
    edges = sorted({0, rows.height, *(cut * rows.height // 60_000 for cut in cuts)})
    carry, parts = nothing_carried(), []
    for low, high in itertools.pairwise(edges):
        part, carry = facts_of(rows[low:high], carry, order_known)
        parts.append(part)
    assert facts_by_line(pl.concat(parts)).equals(facts_by_line(whole), null_equal=True)


def test_little_is_carried() -> None:
    """One row of a session without side calls; of others as many as a turn may pass over."""
    _, carry = facts_of(REQUESTS, nothing_carried(), True)
    assert carry.height == REQUESTS["session_id"].n_unique()
    rows = with_side_calls(REQUESTS)
    _, carry = facts_of(rows, nothing_carried(), True)
    most = carry.group_by("session_id").len()["len"]
    assert 1 < most.max() <= SIDE_CALLS + 1
    assert len(most) == REQUESTS["session_id"].n_unique()
    _, again = facts_of(rows.clear(), carry, True)
    assert again.equals(carry)


@pytest.mark.parametrize("calls", [False, True])
def test_facts_are_what_the_whole_log_shows(calls: bool) -> None:
    rows = some_rows().filter(pl.col("start").is_not_null())
    rows = with_side_calls(rows) if calls else rows
    with_facts, _ = facts_of(rows, nothing_carried(), True)
    whole, part = prepare(rows), prepare(with_facts, Around(0.0))
    assert (whole.line == part.line).all()
    for name in ("turn", "previous_input", "previous_output", "gap", "moved", "repeated",
                 "repeated_low", "repeated_high"):  # fmt: skip
        one, other = getattr(whole, name), getattr(part, name)
        assert ((one == other) | ((one != one) & (other != other))).all(), name


def test_an_extract_keeps_what_its_rows_owe_to_rows_that_are_not_there() -> None:
    with_facts, _ = facts_of(REQUESTS, nothing_carried(), True)
    late = with_facts.filter(pl.col("place_in_session") >= 4)
    rows = prepare(late, Around(0.0))
    whole = prepare(REQUESTS)
    before = dict(zip(whole.line.tolist(), whole.previous_input.tolist(), strict=True))
    assert rows.session_grade == "logged"
    assert [before[line] for line in rows.line.tolist()] == rows.previous_input.tolist()
    assert rows.turn.min() == 4


# ------------------------------------------------------------------- sums


def as_data(tally: Tally) -> tuple[Any, ...]:
    one = tallied([tally])
    return dict(one.sums), one.turns_most, one.cells.rows(), one.names, one.crowded


def as_facts(survey: Survey) -> tuple[Any, ...]:
    return (
        survey.rows, survey.failed, {k: v for k, v in survey.known.items() if v},
        survey.least_turn, survey.first_start, survey.last_start, survey.lasting, survey.width,
        survey.starts.rows(),
    )  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_parts_add_up_to_the_whole(hands: list[int]) -> None:
    """For any dealing of whole sessions into parts: survey, tally and extract."""
    rows = some_rows()
    whole = survey_of(rows)
    choice, manner = choose(whole, 900), Manner.of(whole)
    everything, _ = gather(rows, nothing_carried(), manner, choice)
    lot = pl.coalesce(pl.col("session_id").hash(), pl.col(LINE).hash()) % len(hands)
    hand = rows.select(lot).to_series().to_list()
    dealt = rows.with_columns(pl.Series("hand", [hands[at] for at in hand]))
    parts = [part.drop("hand") for part in dealt.partition_by("hand")]
    assert as_facts(surveyed(map(survey_of, parts))) == as_facts(whole)
    gathered = [gather(part, nothing_carried(), manner, choice)[0] for part in parts]
    assert as_data(tallied(one.tally for one in gathered)) == as_data(everything.tally)
    requests = pl.concat([one.requests for one in gathered]).sort(LINE)
    assert requests.equals(everything.requests.sort(LINE), null_equal=True)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40_000), max_size=50), min_size=1, max_size=5))
def test_stretches_of_time_are_as_wide_for_parts_as_for_the_whole(parts: list[list[int]]) -> None:
    """Though parts alone may have few enough seconds to count each of them."""
    from ttftdoctor.extracts import survey

    def made(starts: list[int]) -> Survey:
        stamps = pl.Series("start", [s * 1_000_000 for s in starts], dtype=pl.Int64)
        return survey_of(frame_of(stamps))

    few = survey.MOST_BINS
    survey.MOST_BINS = 20
    try:
        whole = made([start for part in parts for start in part])
        assert as_facts(surveyed(map(made, parts))) == as_facts(surveyed([whole]))
    finally:
        survey.MOST_BINS = few


def frame_of(starts: pl.Series) -> pl.DataFrame:
    """Rows that have a start and nothing else."""
    none = {name: pl.Series([None] * len(starts), dtype=kind)
            for name, kind in REQUESTS.schema.items()}  # fmt: skip
    return pl.DataFrame({**none, "start": starts})


def test_the_tally_has_the_figures_of_the_diagnosis() -> None:
    made = ttftdoctor.diagnose(str(PEAK))
    survey = survey_of(REQUESTS)
    with_facts, _ = facts_of(REQUESTS, nothing_carried(), True)
    tally = tally_of(with_facts, Manner.of(survey))
    repeated = made.repeated_prefix
    assert tally.sessions == made.population.sessions
    assert tally.turns_most == made.population.turns_max
    assert tally.sums["input_tokens"] == repeated.input_tokens
    grade = repeated.grade
    assert tally.sums[grade] == repeated.repeated_tokens
    assert (tally.sums[f"{grade}_low"], tally.sums[f"{grade}_high"]) == repeated.bounds


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_quantiles_are_right_to_half_a_percent(values: list[int], q: float) -> None:
    bins = pl.DataFrame({"v": values}).select(class_of(pl.col("v")).alias("bin"), n=pl.lit(1))
    (found,) = quantiles(bins, [q])
    true = sorted(values)[int((len(values) - 1) * q)]
    assert found is not None
    assert true / STEP**0.5 * 0.999 <= found <= true * STEP**0.5 * 1.001


def test_nothing_and_less_are_a_class_of_their_own() -> None:
    bins = pl.DataFrame({"v": [0, -5, None, 1]}).select(class_of(pl.col("v"))).to_series().to_list()
    assert bins == [-1, -1, None, 0]
    assert value_of(-1) == 0


# ------------------------------------------------------------------- which rows


@pytest.mark.parametrize("fits", [300, 1000, 2000])
def test_stretches_hold_about_as_many_rows_as_fit(fits: int) -> None:
    survey = survey_of(REQUESTS)
    choice = choose(survey, fits)
    assert choice == choose(survey, fits)
    assert all(a < b for one in choice.stretches for a, b in [one])
    assert all(a[1] < b[0] for a, b in zip(choice.stretches, choice.stretches[1:], strict=False))
    held = belonging(REQUESTS, choice).height
    assert 0.5 * fits <= held <= 1.2 * fits


def test_requests_in_flight_when_a_stretch_begins_belong_to_it() -> None:
    starts = pl.Series("start", [0, 5_000_000, 12_000_000, 20_000_000])
    rows = frame_of(starts).with_columns(pl.Series("e2e_us", [1, 6_000_000, 1, 1]))
    kept = belonging(rows, Choice(((10_000_000, 15_000_000),), 0.0))
    assert kept["start"].to_list() == [5_000_000, 12_000_000]


def test_without_times_rows_are_drawn() -> None:
    """Whatever their sessions are: one, many, or none that is named."""
    rows = REQUESTS.with_columns(pl.lit(None, dtype=pl.Int64).alias("start"))
    for session in (pl.col("session_id"), pl.lit("one"), pl.lit(None, dtype=pl.String)):
        some = rows.with_columns(session.alias("session_id"))
        choice = choose(survey_of(some), 800)
        assert choice.stretches == ()
        assert 600 <= belonging(some, choice).height <= 840


def test_what_lasts_for_long_does_not_fill_the_extract() -> None:
    rows = REQUESTS.with_columns(pl.lit(12 * 3600 * 10**6).alias("e2e_us"))
    assert belonging(rows, choose(survey_of(rows), 700)).height <= 840


def test_long_rows_leave_room_for_fewer() -> None:
    budget = Budget(2**30)
    assert budget.room(200 * 10**6, 10**6) == budget.fits
    assert budget.room(1500 * 10**6, 10**6) == budget.fits // 4


def test_failures_are_a_share_of_the_rows_that_were_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "failing.jsonl"
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()]
    for row in rows[::4]:
        row["status"] = "error"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made, _ = extracted(path, rows=700)
    (said,) = [text for text in made["warnings"] if "failed or were refused" in text]
    assert 20 <= int(said.split()[0]) <= 30


def test_a_log_of_one_second_is_drawn_from_instead() -> None:
    survey = survey_of(frame_of(pl.Series("start", [7] * 5000)))
    assert choose(survey, 500).stretches == ()


# ------------------------------------------------------------------- the whole way


def test_the_extract_of_the_modelled_case_says_what_the_log_says() -> None:
    whole = ttftdoctor.diagnose(str(PEAK)).to_dict()
    some, taken = extracted(PEAK, rows=1200)
    assert some["verdict"]["primary_cause"] == whole["verdict"]["primary_cause"]
    assert some["extract"]["requests"] == taken.log.requests.height <= 1200
    assert some["extract"]["of"] == whole["population"]["requests"]
    assert some["inputs"] == whole["inputs"]
    for name in ("requests", "sessions", "turns_max", "start", "end", "with_ttft"):
        assert some["population"][name] == whole["population"][name], name
    for name in ("ttft_mean_s", "ttft_p50_s", "ttft_p95_s"):
        assert some["population"][name] == pytest.approx(whole["population"][name], rel=0.01)
    for name in ("input_tokens", "repeated_tokens", "bounds", "grade"):
        assert some["repeated_prefix"][name] == whole["repeated_prefix"][name], name
    for name, slices in whole["splits"].items():
        keys = [{k: v for k, v in one.items() if not k.endswith(("p50", "_s"))} for one in slices]
        mine = [
            {k: v for k, v in one.items() if not k.endswith(("p50", "_s"))}
            for one in some["splits"][name]
        ]
        assert mine == keys, name
        for one, other in zip(some["splits"][name], slices, strict=True):
            if other["n"] > 100 and other["ttft_p50_s"]:
                assert one["ttft_p50_s"] == pytest.approx(other["ttft_p50_s"], rel=0.03)
    line, mine = whole["cost_lines"]["prefill"], some["cost_lines"]["prefill"]
    assert mine["ms_per_1k_tokens"] == pytest.approx(line["ms_per_1k_tokens"], rel=0.1)
    assert any("larger than the memory" in text for text in some["warnings"])


def test_gains_are_of_the_mean_that_is_shown() -> None:
    """Whatever the extract's own mean is."""
    some, _ = extracted(PEAK, rows=900)
    mean = some["population"]["ttft_mean_s"]
    assert some["remedies"]
    for gain in some["remedies"]:
        assert gain["ttft_mean_s"] == pytest.approx(mean * (1 - gain["gain_share"]), rel=0.02)
    for one in some["splits"]["by_turn"]:
        assert one["uncached_p50"] <= one["input_p50"] * 1.001


def test_the_page_of_an_extract_has_its_charts_and_one_mean_a_sentence() -> None:
    taken = take(Asked((str(PEAK),), budget=small(900)))
    made, _ = study(taken.log, "log", Settings(), whole=taken.whole)
    assert set(made.charts.spreads) >= {"today", *(gain.id for gain in made.remedies)}
    (primary,) = [one for one in made.causes if one.status == "primary"]
    assert primary.seconds is not None
    assert primary.share_of_ttft is not None
    page = ttftdoctor.to_html(made)
    shown = ttftdoctor_seconds(primary.seconds / primary.share_of_ttft)
    assert f"of {shown}" in page


def test_rows_add_up_and_the_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    lines = PEAK.read_text().splitlines(keepends=True)
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("".join([*lines[:1000], "{torn\n", '{"status": "error"}\n']))
    second.write_text("".join([*lines[1000:], '{"ttft_ms": -4, "input_tokens": 5}\n']))
    made, taken = extracted(first, second, rows=700)
    used = Counter[str]()
    for record in made["inputs"]:
        rejected = sum(record["rows_rejected"].values())
        assert record["rows_read"] == record["rows_used"] + rejected
        used.update(read=record["rows_read"], used=record["rows_used"])
    assert used["read"] == len(lines) + 3
    assert made["population"]["requests"] == used["used"]
    assert set(taken.log.requests["source"].unique()) == {0, 1}
    assert not list((tmp_path / "spool").iterdir())


def test_the_same_extract_however_the_log_is_cut(tmp_path: Path) -> None:
    lines = PEAK.read_text().splitlines(keepends=True)
    many = []
    for at in range(0, len(lines), 500):
        path = tmp_path / f"{at:06}.jsonl"
        path.write_text("".join(lines[at : at + 500]))
        many.append(path)
    one, other = extracted(PEAK, rows=900)[0], extracted(*many, rows=900)[0]
    for document in (one, other):
        for finding in document["causes"]:
            for row in finding["rows"]:
                row.pop("path"), row.pop("line")
        document.pop("inputs")
        document["verdict"].pop("experiment")
    assert one == other


def test_a_bucket_larger_than_memory_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One session has all the rows: it is worked on in the order of its turns."""
    from ttftdoctor.extracts import spool as spools

    monkeypatch.setattr(spools, "FILE_ROWS", 500)
    rows = REQUESTS.with_columns(pl.lit("one").alias("session_id"))
    whole, _ = facts_of(rows, nothing_carried(), True)
    with spools.Spool(small(300)) as spool:
        assert spool.full(rows)
        for at in range(0, rows.height, 100):
            spool.put(rows[at : at + 100])
        carry, parts, sizes = nothing_carried(), [], []
        for pieces in spool.buckets(300):
            for piece in pieces:
                part, carry = facts_of(piece, carry, True)
                parts.append(part)
                sizes.append(piece.height)
    assert max(sizes) < 600
    assert facts_by_line(pl.concat(parts)).equals(facts_by_line(whole), null_equal=True)


def test_without_names_of_sessions_it_is_said_whose_turns_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "nameless.jsonl"
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()]
    for row in rows:
        row.pop("session_id"), row.pop("turn", None)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made, _ = extracted(path, rows=2000)
    assert made["population"]["requests"] == len(rows)
    assert made["population"]["sessions"] is None
    told = any("what is said by turn" in text for text in made["warnings"])
    assert told == (made["evidence"]["session"] == "linked")
    whole = ttftdoctor.diagnose(str(path)).to_dict()
    assert made["verdict"]["primary_cause"] == whole["verdict"]["primary_cause"]
    one, other = made["repeated_prefix"], whole["repeated_prefix"]
    assert one["grade"] == other["grade"]
    if other["repeated_tokens"] is not None:
        assert one["repeated_tokens"] == pytest.approx(other["repeated_tokens"], rel=0.3)


def test_repeated_tokens_of_nameless_sessions_are_not_nothing(tmp_path: Path) -> None:
    """They are those of the extract, as many times as all prompts have its tokens."""
    path = tmp_path / "nameless.jsonl"
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()]
    for row in rows:
        row.pop("session_id"), row.pop("turn", None)
        row["cached_tokens"] = 16
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = ttftdoctor.diagnose(str(path)).to_dict()["repeated_prefix"]
    made, _ = extracted(path, rows=2000)
    for name in ("repeated_tokens", "recomputed_tokens"):
        if whole[name]:
            assert made["repeated_prefix"][name] == pytest.approx(whole[name], rel=0.4), name
    assert sum(one["n"] for one in made["splits"]["by_input_length"]) == len(rows)


def test_a_log_that_fits_is_diagnosed_as_ever() -> None:
    taken = take(Asked((str(PEAK),), budget=Budget(ROOMY)))
    assert taken.whole is None
    assert "extract" not in ttftdoctor.diagnose(str(PEAK), memory=ROOMY).to_dict()


def test_memory_is_asked_for_and_checked(tmp_path: Path) -> None:
    runner = CliRunner()
    for wrong in ("1", "much", "12 apples", "-1GiB"):
        done = runner.invoke(app, ["diagnose", str(PEAK), "--memory", wrong])
        assert done.exit_code == 2, wrong
        assert "--memory wants an amount" in done.output
    done = runner.invoke(app, ["diagnose", str(PEAK), "--memory", "10MiB"])
    assert done.exit_code == 2
    assert "not enough" in done.output
    out = tmp_path / "out.json"
    done = runner.invoke(app, ["diagnose", str(PEAK), "--memory", "2G", "--json", str(out), "-q"])
    assert done.exit_code == 0
    assert "extract" not in json.loads(out.read_text())


@pytest.mark.parametrize("pricing", [Pricing(listed=True), Pricing(gpu_hour=2.5, gpus=8)])
def test_money_is_that_of_all_rows(tmp_path: Path, pricing: Pricing) -> None:
    """What waste costs and remedies save, for all requests though some were looked at."""
    log = tmp_path / "log.jsonl"
    log.write_text(PEAK.read_text().replace('"chat-70b"', '"gpt-4o"'))
    taken = take(Asked((str(log),), budget=small(2400)))
    assert taken.whole is not None
    assert taken.log.requests["model"].unique().to_list() == ["gpt-4o"]
    part, _ = study(taken.log, "log", Settings(), pricing=pricing, draw=False, whole=taken.whole)
    whole, _ = study(read_log([str(log)]), "log", Settings(), pricing=pricing, draw=False)
    mine, all_ = part.repeated_prefix.money, whole.repeated_prefix.money
    assert mine is not None
    assert all_ is not None
    for name in ("amount", "per_day", *(("input_spent", "output_spent") if pricing.listed else ())):
        assert getattr(mine, name) == pytest.approx(getattr(all_, name), rel=0.1), name
    assert ("counted on the requests looked at" in " ".join(mine.assumed)) == pricing.listed
    saved = {gain.id: gain.money_saved for gain in whole.remedies}
    assert saved["prefix_cache"]
    for gain in part.remedies:
        if saved[gain.id] is None:
            assert gain.money_saved is None
        else:
            assert gain.money_saved == pytest.approx(saved[gain.id], rel=0.15), gain.id


def test_the_machine_has_memory() -> None:
    assert memory_bytes() > LEAST_BYTES
    assert MOST_BINS > 86_400
