"""The engine of a cluster, on a real one: the answer is that of one machine, figure for figure.

Run by ``test_spark.py``, or by its own name.
"""

from __future__ import annotations

import copy
import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prompting import numbered
from reading import SAMPLES
from spark_cluster import Cluster, available, cluster
from typer.testing import CliRunner

if (why := available()) is not None:
    pytest.skip(why, allow_module_level=True)

from pyspark.sql import SparkSession

import ttftdoctor
from ttftdoctor import simulator
from ttftdoctor.choose import Only
from ttftdoctor.cli import app
from ttftdoctor.engines import Asked, local, shuffles, spark
from ttftdoctor.errors import InputError, TTFTDoctorError, UnknownFormat, UsageError
from ttftdoctor.extracts import Budget
from ttftdoctor.intake import keep, read_log
from ttftdoctor.remedies import Settings
from ttftdoctor.study import study

pytestmark = pytest.mark.filterwarnings("ignore:.*pandas:FutureWarning")

PEAK = SAMPLES / "peak_hour.jsonl"
ROOMY = 8 * 2**30
#: Both workers must be there before the first task, or one of them is lost for nothing.
SESSION = {
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Cluster]:
    with cluster(workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def session(machines: Cluster) -> Iterator[SparkSession]:
    builder: Any = SparkSession.builder.master(machines.master).appName("tests")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    yield made
    made.stop()


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut though they are small."""
    monkeypatch.setattr(spark, "RANGE_BYTES", 120_000)
    monkeypatch.setattr(spark, "RANGE_ROWS", 700)
    monkeypatch.setattr(shuffles, "TASK_ROWS", 800)


def document(
    engine: Any,
    *logs: Any,
    rows: int | None = None,
    format: str | None = None,
    only: Only | None = None,
) -> Any:
    taken = engine.take(Asked(logs, format, budget=Budget(ROOMY, most_rows=rows)), only)
    made, _ = study(taken.log, "log", Settings(), draw=False, whole=taken.whole)
    return json.loads(json.dumps(made.to_dict()))


def as_on_one_machine(
    *logs: Path | str, rows: int | None = None, only: Only | None = None
) -> dict[str, Any]:
    named = tuple(map(str, logs))
    found: dict[str, Any] = document(spark, *named, rows=rows, only=only)
    assert found == document(local, *named, rows=rows, only=only)
    return found


@pytest.mark.usefixtures("session", "in_pieces")
def test_a_log_in_pieces() -> None:
    found = as_on_one_machine(PEAK)
    assert found["verdict"]["primary_cause"] == "repeated_prefix_no_reuse"


@pytest.mark.usefixtures("session", "in_pieces")
def test_a_log_larger_than_memory() -> None:
    """Sessions meet in the shuffle; counts, tables and the extract are those of one machine."""
    found = as_on_one_machine(PEAK, rows=900)
    assert found["extract"]["requests"] < found["extract"]["of"]


@pytest.mark.usefixtures("session", "in_pieces")
@pytest.mark.parametrize(
    ("only", "all_held"),
    [
        (Only("11:00", "14:00"), False),
        (Only(where="turn > 2 and input > p40"), False),
        (Only("12:00", None, "input > p95"), True),
    ],
)
def test_rows_that_are_chosen(tmp_path: Path, only: Only, all_held: bool) -> None:
    """Of a log larger than memory, whether what is wanted of it fits or not."""
    files = [tmp_path / f"{n}.jsonl" for n in range(2)]
    lines = PEAK.read_bytes().splitlines(keepends=True)
    for n, path in enumerate(files):
        path.write_bytes(b"".join(lines[n::2]) + b'{"torn\n')
    found = as_on_one_machine(*files, rows=500, only=only)
    assert ("extract" not in found) == all_held
    for record in found["inputs"]:
        assert record["rows_read"] == record["rows_used"] + sum(record["rows_rejected"].values())


@pytest.mark.usefixtures("session", "in_pieces")
@pytest.mark.parametrize("where", ["nonsense > 3", "backlog > 3", "turn > 900"])
def test_what_cannot_be_chosen_is_said_as_ever(where: str) -> None:
    errors = []
    for engine in (spark, local):
        with pytest.raises(UsageError) as caught:
            document(engine, str(PEAK), rows=700, only=Only(where=where))
        errors.append((caught.value.what, caught.value.why, caught.value.help))
    assert errors[0] == errors[1]


@pytest.mark.usefixtures("session", "in_pieces")
@pytest.mark.parametrize("kind", ["kept", "by_source", "made", "sessions"])
def test_blocks_of_prompts(tmp_path: Path, kind: Any) -> None:
    """Each block was first seen by one request, whichever worker read it; a head by all of them."""
    if kind == "sessions":
        logs = [tmp_path / "log.jsonl"]
        run = simulator.serve(simulator.load("eviction_expiry"), seed=0)
        simulator.write_log(run, str(logs[0]), "blocks")
    else:
        logs = numbered(tmp_path, kind, 2, 500)
    found = as_on_one_machine(*logs, rows=400)
    assert found["extract"]["requests"] < found["extract"]["of"]
    whole = document(local, *map(str, logs))["repeated_prefix"]
    mine = found["repeated_prefix"]
    assert mine["grade"] == "content"
    assert [mine[name] for name in FIGURES] == [whole[name] for name in FIGURES]


FIGURES = ("input_tokens", "repeated_tokens", "cached_tokens", "recomputed_tokens", "bounds")


@pytest.mark.usefixtures("session", "in_pieces")
@pytest.mark.parametrize("rows", [None, 900])
def test_many_files_of_many_kinds(tmp_path: Path, rows: int | None) -> None:
    """In pieces, as a whole, damaged, packed, and of no format at all."""
    damaged, packed, foreign = (tmp_path / n for n in ("damaged.jsonl", "packed.gz", "x.jsonl"))
    lines = PEAK.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(b"".join(lines[:40]) + b'{"torn\n\n\xff\xfe{}\n{"ttft_ms": "much"}\n' * 9)
    packed.write_bytes(gzip.compress(b"".join(lines[40:300])))
    foreign.write_text('{"foo": 1}\n' * 5)
    found = as_on_one_machine(
        damaged, PEAK, packed, foreign, SAMPLES / "vllm-log.log", SAMPLES / "otlp.jsonl",
        SAMPLES / "evalscope.csv", SAMPLES / "litellm.jsonl", rows=rows,
    )  # fmt: skip
    for record in found["inputs"]:
        assert record["rows_read"] == record["rows_used"] + sum(record["rows_rejected"].values())
    assert any("skipped" in text for text in found["warnings"])


@pytest.mark.usefixtures("session", "in_pieces")
@pytest.mark.parametrize("rows", [None, 900])
def test_a_table_in_a_file(tmp_path: Path, rows: int | None) -> None:
    path = tmp_path / "log.parquet"
    pl.read_ndjson(PEAK).write_parquet(path, row_group_size=512)
    as_on_one_machine(path, rows=rows)


@pytest.mark.usefixtures("session")
def test_files_that_only_spark_opens(tmp_path: Path) -> None:
    """Lines come by Spark's own connectors, as those of ``hdfs://`` and ``s3a://`` do."""
    packed = tmp_path / "log [1].jsonl.gz"
    packed.write_bytes(gzip.compress(PEAK.read_bytes()))
    whole = document(local, str(PEAK))
    for path in (PEAK, packed):
        found = document(spark, f"file:{path}")
        assert bare(found) == bare(whole)
    with pytest.raises(InputError, match="no such file"):
        document(spark, "file:/nowhere/at/all.jsonl")


def bare(found: dict[str, Any]) -> dict[str, Any]:
    """A document without what files are called."""
    found = copy.deepcopy(found)
    for record in found["inputs"]:
        record.pop("path")
    for finding in found["causes"]:
        for row in finding["rows"]:
            row.pop("path"), row.pop("line")
    return found


def test_a_table_of_the_session(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    rows = pl.read_ndjson(PEAK)
    rows.write_parquet(path)
    table = session.read.parquet(str(path))
    whole = document(local, str(path))
    assert bare(document(spark, table)) == bare(whole)
    table.createOrReplaceTempView("requests")
    assert bare(document(spark, "table:requests")) == bare(whole)
    found = ttftdoctor.diagnose(table.repartition(5))
    assert found.verdict.primary_cause == whole["verdict"]["primary_cause"]
    assert found.population.requests == whole["population"]["requests"]
    some = document(spark, table.repartition(5), rows=900)
    assert some["repeated_prefix"]["repeated_tokens"] == whole["repeated_prefix"]["repeated_tokens"]
    with pytest.raises(InputError, match="cannot read this"):
        document(spark, "table:nowhere")


@pytest.mark.usefixtures("session")
def test_what_is_wrong_is_said_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"foo": 1}\n' * 5)
    with pytest.raises(UnknownFormat) as here:
        document(local, str(path))
    with pytest.raises(UnknownFormat) as there:
        document(spark, str(path))
    assert str(there.value) == str(here.value)
    with pytest.raises(InputError, match="no such file"):
        document(spark, str(tmp_path / "none.jsonl"))


@pytest.mark.usefixtures("session", "in_pieces")
def test_one_session_has_all_the_rows(tmp_path: Path) -> None:
    """It is one task's, which takes it batch by batch."""
    path = tmp_path / "one.jsonl"
    rows = [json.loads(line) for line in PEAK.read_text().splitlines()]
    for row in rows:
        row["session_id"] = "one"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    as_on_one_machine(path, rows=900)


@pytest.mark.usefixtures("session")
def test_a_state_is_a_log_here_too(tmp_path: Path) -> None:
    state = tmp_path / "one.state"
    keep(read_log([str(PEAK)]), str(state))
    as_on_one_machine(state, rows=900)


@pytest.mark.usefixtures("session")
def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["diagnose", str(PEAK), "--engine", "spark", "--json", str(out), "-q"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    refused = CliRunner().invoke(app, [*arguments, "--memory", "much"])
    assert refused.exit_code == 2
    whole = ttftdoctor.diagnose(str(PEAK)).to_dict()
    assert found == json.loads(json.dumps(whole))


def test_a_machine_is_lost_in_the_middle(
    session: SparkSession,
    machines: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it had read and sorted is made again by the one that is left. (The last test here.)"""
    monkeypatch.setattr(spark, "RANGE_BYTES", 300_000)
    monkeypatch.setattr(shuffles, "TASK_ROWS", 2000)
    path = tmp_path / "long.jsonl"
    lines = PEAK.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    with path.open("w") as file:
        for copy in range(12):
            for row in rows:
                row = {**row, "session_id": f"{row['session_id']}-{copy}"}
                file.write(json.dumps(row) + "\n")
    expected = document(local, str(path), rows=9000)
    killed: list[tuple[int, int]] = []

    def kill() -> None:
        status = session.sparkContext.statusTracker()
        while not killed:
            for stage in status.getActiveStageIds():
                one = status.getStageInfo(stage)
                if one is not None and one.numTasks > 5 and one.numCompletedTasks > 3:
                    killed.append((one.numCompletedTasks, one.numTasks))
                    machines.kill(0)
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = document(spark, str(path), rows=9000)
    killer.join(timeout=1)
    assert killed, "the run was over before a machine could be lost"
    assert killed[0][0] < killed[0][1]
    assert found == expected


def test_without_spark_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_spec", lambda _: None)
    with pytest.raises(TTFTDoctorError, match="PySpark is not installed"):
        spark.take(Asked((str(PEAK),)))
