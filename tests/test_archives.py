"""Zip archives: every log in them is a log of its own."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from ttftdoctor.cli import app
from ttftdoctor.errors import InputError
from ttftdoctor.intake import Log, read_log

SAMPLES = Path(__file__).parents[1] / "sample_logs"
PLAIN = (SAMPLES / "healthy.jsonl").read_bytes()


def zipped(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return str(path)


def same(log: Log, other: Log) -> None:
    assert_frame_equal(log.requests.drop("source"), other.requests.drop("source"))


@pytest.fixture(scope="module")
def bare() -> Log:
    return read_log([str(SAMPLES / "healthy.jsonl")])


def test_one_log_in_an_archive_is_that_log(tmp_path: Path, bare: Log) -> None:
    """By content: the name of the archive says nothing."""
    log = read_log([zipped(tmp_path / "logs.of.today", **{"day/healthy.jsonl": PLAIN})])
    same(log, bare)
    assert log.inputs[0].path.endswith("logs.of.today!/day/healthy.jsonl")


def test_members_may_be_packed_again_or_be_tables(tmp_path: Path, bare: Log) -> None:
    table = io.BytesIO()
    pl.read_ndjson(PLAIN).write_parquet(table)
    for name, data in (("a.jsonl.gz", gzip.compress(PLAIN)), ("a.parquet", table.getvalue())):
        same(read_log([zipped(tmp_path / "x.zip", **{name: data})]), bare)


def test_every_log_of_an_archive_is_read_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    lines = PLAIN.splitlines(keepends=True)
    path = zipped(
        tmp_path / "two.zip",
        **{"a.jsonl": b"".join(lines[:100]), "b/b.jsonl": b"".join(lines[100:]),
           "README": b"how to read this", "__MACOSX/a.jsonl": b"x", "b/.hidden.jsonl": b"x"},
    )  # fmt: skip
    log = read_log([path])
    assert log.requests.height == len(lines)
    assert [one.rows_read for one in log.inputs] == [100, len(lines) - 100]
    one = read_log([f"{path}!/b/b.jsonl"])
    assert one.requests.height == len(lines) - 100
    (tmp_path / "more").mkdir()
    (tmp_path / "two.zip").rename(tmp_path / "more" / "two.jsonl.zip")
    assert read_log([str(tmp_path / "more")]).requests.height == len(lines)


def damaged(tmp_path: Path) -> list[tuple[bytes, str]]:
    good = Path(zipped(tmp_path / "good.zip", **{"a.jsonl": PLAIN})).read_bytes()
    inside = bytearray(good)
    inside[200:260] = bytes(60)
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w"):
        pass
    return [
        (good[: len(good) // 2], "the archive is damaged"),
        (bytes(inside), "the archive is damaged"),
        (empty.getvalue(), "the archive holds no file"),
        (b"PK\x03\x04", "the archive is damaged"),
    ]


def test_a_damaged_archive_is_a_clear_error(tmp_path: Path) -> None:
    for data, said in damaged(tmp_path):
        path = tmp_path / "bad.zip"
        path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            read_log([str(path)])


def test_a_member_that_is_not_there(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", **{"a.jsonl": PLAIN})
    with pytest.raises(InputError, match="no such file in the archive"):
        read_log([f"{path}!/b.jsonl"])


def test_an_archive_is_not_read_from_a_pipe(tmp_path: Path) -> None:
    data = Path(zipped(tmp_path / "x.zip", **{"a.jsonl": PLAIN})).read_bytes()
    done = CliRunner().invoke(app, ["inspect", "-"], input=data)
    assert done.exit_code == 2
    assert "an archive of files is read from a file only" in done.stderr


def test_a_bomb_is_read_in_parts(tmp_path: Path) -> None:
    """One line of 200 MB of blanks in an archive of 200 kB: refused, not held."""
    import tracemalloc

    row = json.dumps({"ttft_ms": 100, "input_tokens": 10}).encode() + b"\n"
    path = zipped(tmp_path / "bomb.zip", **{"a.jsonl": row * 50 + b" " * 200_000_000 + b"\n"})
    assert Path(path).stat().st_size < 1_000_000
    tracemalloc.start()
    log = read_log([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.requests.height == 50
    assert peak < 150 * 2**20


def test_hostile_names_of_members_stay_text(tmp_path: Path) -> None:
    names: dict[str, Any] = {"\x1b[31m<script>.jsonl": PLAIN, "../../etc/passwd.jsonl": PLAIN}
    path = zipped(tmp_path / "x.zip", **names)
    done = CliRunner().invoke(app, ["inspect", path])
    assert "\x1b" not in done.stdout
    assert not (tmp_path.parent.parent / "etc").exists()
