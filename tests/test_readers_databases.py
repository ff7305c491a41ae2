"""Logs that are tables of an SQLite file: evalscope's, and any with one table of requests."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reading import SAMPLES, read
from typer.testing import CliRunner

from ttftdoctor.cli import app
from ttftdoctor.errors import InputError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.table import COLUMNS

DDL = """create table result (request TEXT, start_time REAL, inter_token_latencies TEXT,
 success INTEGER, response_messages TEXT, completed_time REAL, latency REAL,
 first_chunk_latency REAL, prompt_tokens INTEGER, completion_tokens INTEGER,
 max_gpu_memory_cost REAL, time_per_output_token REAL, request_id TEXT, is_stream INTEGER)"""


class Bomb:
    """Unpickling it would be seen."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return sys.exit, ("unpickled",)


def database(path: Path, *, ddl: str = DDL, table: str = "result") -> Path:
    """The sample's rows as evalscope keeps them, with pickles where it puts them."""
    with (SAMPLES / "evalscope.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with closing(sqlite3.connect(path)) as link:
        link.execute(ddl)
        for row in rows:
            values = [None if cell == "" else cell for cell in row.values()]
            values[list(row).index("response_messages")] = pickle.dumps(Bomb())
            marks = ", ".join("?" * len(values))
            link.execute(f"insert into {table} values ({marks})", values)
        link.commit()
    return path


def told(log: Log) -> str:
    frame = log.requests.select(list(COLUMNS))
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    frame = frame.drop(lists)
    return frame.select(c for c in frame.columns if frame[c].count()).write_csv()


def test_the_database_of_evalscope_is_read_as_its_export(
    tmp_path: Path, golden: Callable[[str | Path, str], None]
) -> None:
    path = database(tmp_path / "benchmark_data.db")
    before = path.read_bytes()
    log = read(path)
    exported = read(SAMPLES / "evalscope.csv")
    assert_frame_equal(log.requests.drop("line"), exported.requests.drop("line"))
    assert [one.format for one in log.inputs] == ["evalscope"]
    assert log.inputs[0].rows_rejected == exported.inputs[0].rows_rejected
    golden("readers/evalscope-database.csv", told(log))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["benchmark_data.db"]


def test_it_is_told_by_content_and_found_in_a_folder(tmp_path: Path) -> None:
    database(tmp_path / "benchmark_data.db")
    assert [one.format for one in read_log([str(tmp_path)]).inputs] == ["evalscope"]
    odd = (tmp_path / "benchmark_data.db").rename(tmp_path / "requests.jsonl")
    assert [one.format for one in read(odd).inputs] == ["evalscope"]
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(odd.read_bytes()))
    assert_frame_equal(read(packed).requests, read(odd).requests)


def test_it_is_read_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = database(tmp_path / "a.db").read_bytes()
    stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert_frame_equal(read_log(["-"]).requests, read(tmp_path / "a.db").requests)


def test_a_database_with_one_table_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    with closing(sqlite3.connect(path)) as link:
        link.execute(
            'create table "my ""log" (id TEXT, ttft_ms REAL, prompt_tokens INT, blob BLOB)'
        )
        for n in range(20):
            link.execute(
                'insert into "my ""log" values (?, ?, ?, ?)',
                (f"r{n}", 100 + n, 50 * n + 1, b"\xff"),
            )
        link.commit()
    log = read(path)
    assert log.requests.height == 20
    assert log.requests["ttft_us"][3] == 103_000


@pytest.mark.parametrize("keep", [100, 2000, 5000, -200])
def test_a_damaged_database_is_a_clear_error(keep: int, tmp_path: Path) -> None:
    path = database(tmp_path / "a.db")
    data = path.read_bytes()
    path.write_bytes(data[:keep] if keep > 0 else data[:4096] + bytes(400) + data[4496:])
    ran = CliRunner().invoke(app, ["diagnose", str(path)])
    assert ran.exit_code == 2
    assert "SQLite" in ran.output
    assert "Traceback" not in ran.output


@pytest.mark.parametrize(
    "ddl",
    [
        ["create table a (x)", "create table b (y)"],
        [],
        ["create view result as select 1 as first_chunk_latency, 1 as success"],
    ],
)
def test_other_databases_are_named_as_such(ddl: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as link:
        for statement in ddl or ["create table a (x)", "drop table a"]:
            link.execute(statement)
        link.commit()
    with pytest.raises(InputError, match="no table of this SQLite database"):
        read_log([str(path)])


def test_no_damage_of_a_database_is_fatal(tmp_path: Path) -> None:
    """Names of columns may be no text any more, pages may point anywhere."""
    data = database(tmp_path / "a.db").read_bytes()
    rng = random.Random(3)
    path = tmp_path / "b.db"
    refused = 0
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(16, len(bad))
            bad[at : at + rng.randint(0, 40)] = rng.randbytes(rng.randint(1, 40))
        path.write_bytes(bad)
        try:
            read(path)
        except InputError:
            refused += 1
    assert refused > 50


def test_names_that_are_no_text_are_damage(tmp_path: Path) -> None:
    data = database(tmp_path / "a.db").read_bytes()
    (tmp_path / "b.db").write_bytes(
        data.replace(b"max_gpu_memory_cost", b"max_gpu\xeb\xb0mory_cost")
    )
    with pytest.raises(InputError, match="SQLite"):
        read_log([str(tmp_path / "b.db")])
