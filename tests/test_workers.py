"""What the workers of a cluster do, without one: pieces of a log are the log, however it is cut."""

from __future__ import annotations

import gzip
import itertools
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import SAMPLES

pa = pytest.importorskip("pyarrow")

from ttftdoctor.engines import workers  # noqa: E402
from ttftdoctor.engines.workers import Job, Plain, Report  # noqa: E402
from ttftdoctor.extracts.gather import in_order, with_facts  # noqa: E402
from ttftdoctor.extracts.stretches import choose  # noqa: E402
from ttftdoctor.extracts.survey import survey_of  # noqa: E402
from ttftdoctor.extracts.tally import Manner, tallied  # noqa: E402
from ttftdoctor.intake import Log, log_of, read_log  # noqa: E402
from ttftdoctor.intake.account import Account  # noqa: E402
from ttftdoctor.intake.kept import COLUMNS  # noqa: E402
from ttftdoctor.intake.mixed import Part, parts_of  # noqa: E402
from ttftdoctor.mapping.manner import manner  # noqa: E402
from ttftdoctor.readers import Options  # noqa: E402
from ttftdoctor.sources import Source  # noqa: E402
from ttftdoctor.sources.known import Known, bytes_between  # noqa: E402
from ttftdoctor.table import LINE, REJECT  # noqa: E402

PEAK = SAMPLES / "peak_hour.jsonl"
#: Formats with one record a line.
LINES = ("litellm.jsonl", "lightllm.log", "sglang-metrics.jsonl", "peak_hour.jsonl", "flat.jsonl")


def cuts(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    edges = st.lists(st.integers(0, size), max_size=8).map(lambda e: sorted({0, size, *e}))
    return edges.map(lambda e: list(itertools.pairwise(e)))


@given(st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\n")), st.data())
def test_ranges_of_bytes_hold_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "log"
    path.write_bytes(content)
    ranges = data.draw(cuts(len(content)))
    assert b"".join(bytes_between(str(path), *one) for one in ranges) == content


@cache
def plain_of(path: Path) -> Plain:
    with closing(Source(str(path))) as source, parts_of(source, None) as found:
        (part,) = found.parts
        return Plain(str(path), source.head, part.reader.name, part.evidence, Options())


def job_of(plain: Plain) -> Job:
    return Job({0: plain}, {0: plain.path}, None, Options(), manner(), "en")


def read_in(path: Path, ranges: list[tuple[int, int]]) -> tuple[Any, dict[int, Report]]:
    """Rows and reports of a file that is read in ranges of bytes, each by a worker of its own."""
    plain = plain_of(path)
    tables = []
    for low, high in ranges:
        item = pa.RecordBatch.from_pylist([{"file": 0, "block": low, "end": high}])
        tables += list(workers.read([item], job_of(plain)))
    table = pa.Table.from_batches(tables)
    return table, {block: note for _, block, note in workers.notes_in(table)}


def log_from(path: Path, table: Any, reports: dict[int, Report]) -> Log:
    plain = plain_of(path)
    account, before, lines = Account(), 0, {}
    for block, report in sorted(reports.items()):
        account.add(report.account, before)
        lines[0, block] = before
        before += report.lines
    rows = workers.rows_in(table).sort("block", "at")
    placed = workers.placed(rows, {0: 0}, lines)
    good = pl.col(REJECT).is_null()
    with closing(Known(plain.path, plain.head, b"")) as source:
        part = Part(source, workers.catalog.reader_named(plain.reader), plain.evidence, [None])
        plan = part.reader.plan(plain.head, plain.options)
        return log_of(
            account, part, plan, plain.options, plain.evidence, 0, placed.filter(good),
            placed.filter(~good),
        )  # fmt: skip


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_log_is_the_same_in_pieces(name: str, data: st.DataObject) -> None:
    """Rows, places, counts, and all that is said of it."""
    path = SAMPLES / name
    ranges = data.draw(cuts(path.stat().st_size))
    found, whole = log_from(path, *read_in(path, ranges)), read_log([str(path)])
    assert found.requests.equals(whole.requests, null_equal=True)
    assert found.failed.equals(whole.failed, null_equal=True)
    assert found.inputs == whole.inputs
    assert (found.fields, found.notes, found.warnings) == (
        whole.fields, whole.notes, whole.warnings
    )  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 40_000, 10**9])
def test_lines_that_were_sent_are_read_like_those_of_a_file(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of a block are read at once: a packed file is one block, of any size."""
    monkeypatch.setattr(workers, "CHUNK_BYTES", at_once)
    plain = plain_of(PEAK)
    values = PEAK.read_bytes().removesuffix(b"\n").split(b"\n")
    blocks = [0 if at < 1000 else 7 for at in range(len(values))]
    batches = pa.table(
        {"file": [0] * len(values), "block": blocks, "value": values}
    ).to_batches(max_chunksize=333)  # fmt: skip
    table = pa.Table.from_batches(list(workers.read(batches, job_of(plain))))
    reports = {block: note for _, block, note in workers.notes_in(table)}
    assert [reports[block].lines for block in (0, 7)] == [1000, len(values) - 1000]
    found, whole = log_from(PEAK, table, reports), read_log([str(PEAK)])
    assert found.requests.equals(whole.requests, null_equal=True)


def test_a_file_that_cannot_be_cut_is_read_whole(tmp_path: Path) -> None:
    packed, foreign = tmp_path / "log.gz", tmp_path / "foreign.jsonl"
    packed.write_bytes(gzip.compress(PEAK.read_bytes()))
    foreign.write_text('{"foo": 1}\n' * 9)
    job = Job({}, {0: str(packed), 1: str(foreign)}, None, Options(), manner(), "en")
    items = pa.RecordBatch.from_pylist([{"file": n, "block": 0, "end": -1} for n in (0, 1)])
    table = pa.Table.from_batches(list(workers.read([items], job)))
    notes = {file: note for file, _, note in workers.notes_in(table)}
    assert notes[0].log.inputs[0].rows_used == read_log([str(PEAK)]).requests.height
    assert "no reader knows" in str(notes[1].problem)


@settings(max_examples=6, deadline=None)
@given(
    parts=st.integers(1, 5), batch=st.integers(50, 4000), held=st.sampled_from([100, 700, 10**6])
)
def test_sessions_are_gathered_alike_by_any_number_of_tasks(
    parts: int, batch: int, held: int
) -> None:
    """Also where a session, or all of a task's rows, come in many batches."""
    table, reports = read_in(PEAK, [(0, 200_000), (200_000, PEAK.stat().st_size)])
    lines = {(0, 0): 0, (0, 200_000): reports[0].lines}
    rows = read_log([str(PEAK)]).requests
    survey = survey_of(rows)
    choice, turns = choose(survey, 900), Manner.of(survey)
    whole = list(workers.gathered(sorted_batches(table, 1, 10**6)[0], turns, choice, {0: 0}, lines))
    workers_rows, workers.GATHER_ROWS = workers.GATHER_ROWS, held
    try:
        some = [
            out
            for task in sorted_batches(table, parts, batch)
            for out in workers.gathered(task, turns, choice, {0: 0}, lines)
        ]
    finally:
        workers.GATHER_ROWS = workers_rows
    assert as_data(some) == as_data(whole)


def as_data(batches: list[Any]) -> tuple[Any, ...]:
    table = pa.Table.from_batches(batches)
    tally = tallied(workers.tallies_in(table))
    rows = in_order(
        workers.unpacked(table, "requests"), with_facts(pl.Schema(COLUMNS), content=False)
    )
    return dict(tally.sums), tally.cells.rows(), tally.names, rows.rows()


def sorted_batches(table: Any, parts: int, size: int) -> list[list[Any]]:
    """The rows as a cluster would hand them to so many tasks."""
    rows = pl.DataFrame(table).filter(pl.col("note").is_null()).drop("note")
    order = ["key", "start", "file", "source", "block", LINE]
    tasks = []
    for number in range(parts):
        mine = rows.filter(pl.col("key") % parts == number).sort(order, nulls_last=True)
        tasks.append(mine.to_arrow().to_batches(max_chunksize=size))
    return tasks


def test_ids_of_blocks_arrive_as_they_were_sent() -> None:
    blocks = [[2**64 - 1, 0, 5], [], None]
    rows = pl.DataFrame(
        {"prefix_blocks": blocks, "line": [1, 2, 3]},
        schema={"prefix_blocks": pl.List(pl.UInt64), "line": pl.Int64},
    )
    full = pl.DataFrame(schema=COLUMNS).clear(3).with_columns(rows)
    make = partial(workers._placed, full, 3, 4, 0)
    (back,) = workers.unpacked(pa.Table.from_batches(list(workers.packed(make()))), "rows")
    assert back["prefix_blocks"].to_list() == blocks
    assert back.select("file", "block", "at").rows() == [(3, 4, 0), (3, 4, 1), (3, 4, 2)]
