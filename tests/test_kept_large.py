"""States of logs that are larger than memory: written and read piece by piece."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reading import SAMPLES

from ttftdoctor.choose import Only, kept
from ttftdoctor.engines import Asked
from ttftdoctor.engines.local import take
from ttftdoctor.errors import InputError, TTFTDoctorError, UsageError
from ttftdoctor.extracts import Budget
from ttftdoctor.extracts import spool as spools
from ttftdoctor.intake import keep, read_log
from ttftdoctor.intake import kept as states
from ttftdoctor.remedies import Settings
from ttftdoctor.study import study
from ttftdoctor.table import LINE, REJECT

PEAK = SAMPLES / "peak_hour.jsonl"
ROOMY = 8 * 2**30


def small(*logs: str, rows: int = 400) -> Asked:
    return Asked(logs, budget=Budget(ROOMY, most_rows=rows))


def document(*logs: str, rows: int = 400) -> dict[str, Any]:
    taken = take(small(*logs, rows=rows))
    assert taken.whole is not None
    return study(taken.log, "log", Settings(), draw=False, whole=taken.whole)[0].to_dict()


def said(path: Path) -> Any:
    return json.loads(pl.read_parquet_metadata(path)[states.KEY])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Parts of a log, with rows that failed and lines that are torn, and pieces that are small."""
    monkeypatch.setattr(spools, "FILE_ROWS", 300)
    monkeypatch.setattr(spools, "SAMPLED", 7)
    monkeypatch.setattr(states, "PIECE_ROWS", 100)
    lines = PEAK.read_text().splitlines()
    for n in range(0, len(lines), 23):
        lines[n] = json.dumps({**json.loads(lines[n]), "status": "error"})
    paths = []
    for name, low, high in (("a", 0, 250), ("b", 250, 900), ("c", 900, 901), ("d", 901, 3000)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join([*lines[low:high], "{torn"]) + "\n")
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("only", [None, Only("11:00", None, "turn > 1")])
def test_a_state_holds_what_one_of_memory_would(
    files: list[str], tmp_path: Path, only: Only | None
) -> None:
    mine, wanted = tmp_path / "mine.state", tmp_path / "wanted.state"
    taken = take(small(*files), only, str(mine))
    assert taken.whole is not None
    keep(kept(read_log(files), only), str(wanted))
    assert said(mine) == said(wanted)
    found, rows = pl.read_parquet(mine), pl.read_parquet(wanted)
    assert found.schema == rows.schema
    assert_frame_equal(found, found.sort("source", LINE))
    assert_frame_equal(found, rows.sort("source", LINE))
    assert found[REJECT].null_count() < found.height
    assert not list(tmp_path.glob("*.new"))
    again, once = read_log([str(mine)]), read_log([str(wanted)])
    assert_frame_equal(again.requests, once.requests)
    assert_frame_equal(again.failed, once.failed)


@pytest.mark.parametrize("which", [(), (0,), (1, 3), (0, 1, 2, 3), "all"])
def test_whichever_parts_were_kept_before(files: list[str], tmp_path: Path, which: Any) -> None:
    """With the same memory the diagnosis is the same."""
    parts = list(files)
    if which == "all":
        state = tmp_path / "all.state"
        take(small(*files), None, str(state))
        parts = [str(state)]
    else:
        for at in which:
            parts[at] = str(tmp_path / f"{at}.state")
            keep(read_log([files[at]]), parts[at])
    assert document(*parts) == document(*files)


def test_a_log_that_fits_is_kept_by_whoever_asked(tmp_path: Path) -> None:
    state = tmp_path / "one.state"
    assert take(Asked((str(PEAK),)), None, str(state)).whole is None
    assert not state.exists()


def test_a_state_has_the_blocks_of_prompts(tmp_path: Path) -> None:
    state, path = tmp_path / "one.state", str(SAMPLES / "mooncake.jsonl")
    take(small(path, rows=20), None, str(state))
    assert_frame_equal(read_log([str(state)]).requests, read_log([path]).requests)


def test_a_state_that_cannot_be_written_says_so(files: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        take(small(*files), None, str(tmp_path / "nowhere" / "one.state"))


@pytest.mark.parametrize("damage", ["version", "rows", "text", "column", "inside"])
def test_a_damaged_state_is_told_before_its_rows_are_taken(
    files: list[str], tmp_path: Path, damage: str
) -> None:
    state = tmp_path / "one.state"
    keep(read_log(files), str(state))
    told, rows = said(state), pl.read_parquet(state)
    if damage == "version":
        told["version"] = 99
    if damage == "rows":
        rows = rows.head(3)
    if damage == "column":
        rows = rows.drop("ttft_us")
    meta = "[" if damage == "text" else json.dumps(told)
    rows.write_parquet(
        state, metadata={states.KEY: meta}, row_group_size=200, compression="uncompressed"
    )
    if damage == "inside":
        data = bytearray(state.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 20_000] = b"\xff" * 20_000
        state.write_bytes(bytes(data))
    with pytest.raises(TTFTDoctorError, match="state") as caught:
        take(small(str(state)))
    assert damage == "inside" or isinstance(caught.value, InputError)


def test_a_state_of_which_rows_were_taken_is_not_skipped(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike other files beside a log that cannot be read: its rows would be counted nowhere."""
    state = tmp_path / "one.state"
    keep(read_log(files), str(state))
    true = states._pieces

    def torn(path: str, rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
        yield from itertools.islice(true(path, rows), 8)
        raise InputError("the state is damaged", where=path)

    monkeypatch.setattr(states, "_pieces", torn)
    with pytest.raises(TTFTDoctorError, match="damaged") as caught:
        take(small(str(state), files[0]))
    assert not isinstance(caught.value, InputError)
