"""All readers by one law: each has a sample and claims it alone, and every row is accounted for."""

from __future__ import annotations

import copy
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ttftdoctor import catalog
from ttftdoctor.errors import TTFTDoctorError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.sources import Head, Source
from ttftdoctor.table import COLUMNS

SAMPLES = Path(__file__).parents[1] / "sample_logs"
#: Larger samples for the diagnosis, in the flat format.
FLAT_TOO = ("eight_turns", "healthy", "peak_hour")
GOLDEN_ROWS = 40

PATHS = sorted(p for p in SAMPLES.iterdir() if p.is_file() and p.suffix != ".py")
READERS = {reader.name: reader for reader in catalog.readers()}
OWN = {path.stem: path for path in PATHS if path.stem not in FLAT_TOO}
EVERY_SAMPLE = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.name)
ONE_EACH = pytest.mark.parametrize("path", OWN.values(), ids=lambda p: p.name)


def home(path: Path) -> str:
    """The name of the reader a sample belongs to."""
    return "flat" if path.stem in FLAT_TOO else path.stem


def head_of(path: Path) -> Head:
    with closing(Source(str(path))) as source:
        return source.head


def accounted(log: Log) -> Log:
    """Every row is used or rejected by name, and the tables hold just the rows they say."""
    for one in log.inputs:
        assert one.rows_read == one.rows_used + sum(one.rows_rejected.values()), one
        assert all(count > 0 for count in one.rows_rejected.values())
        assert len(one.first_rejects) <= sum(one.rows_rejected.values())
        assert {reason for _, reason in one.first_rejects} <= set(one.rows_rejected)
    assert log.requests.height == sum(one.rows_used for one in log.inputs)
    return log


def assert_same(one: Log, other: Log) -> None:
    """Equal but for the path."""
    assert_frame_equal(one.requests, other.requests)
    assert_frame_equal(one.failed, other.failed)
    for a, b in zip(one.inputs, other.inputs, strict=True):
        assert (a.rows_read, a.rows_used, a.rows_rejected, a.first_rejects, a.ttft_set_aside) == (
            b.rows_read, b.rows_used, b.rows_rejected, b.first_rejects, b.ttft_set_aside,
        )  # fmt: skip
    assert (set(one.fields), one.notes, one.lacks) == (set(other.fields), other.notes, other.lacks)


# --- samples ----------------------------------------------------------------------------------


def test_every_reader_has_a_sample_of_its_name() -> None:
    assert set(OWN) == set(READERS)
    assert len(OWN) == len([p for p in PATHS if p.stem not in FLAT_TOO])


@EVERY_SAMPLE
def test_a_sample_is_claimed_by_its_reader_alone(path: Path) -> None:
    """The whole matrix: each reader that is no generic one is asked about each sample."""
    head = head_of(path)
    claims = [reader.name for reader, _ in catalog.claimants(head)]
    assert claims == [home(path)]
    special = [
        r.name
        for r in READERS.values()
        if not r.generic and head.shape in r.shapes and r.recognise(head) is not None
    ]
    assert special == [name for name in claims if not READERS[name].generic]


@EVERY_SAMPLE
def test_every_row_of_a_sample_is_accounted_for(path: Path) -> None:
    log = accounted(read_log([str(path)]))
    assert [one.format for one in log.inputs] == [home(path)]
    assert log.requests.height >= 10
    assert log.requests["line"].is_sorted() or log.requests["line"].n_unique() < log.requests.height
    assert {name for name in log.fields if name in COLUMNS} == set(log.fields)


@ONE_EACH
def test_a_sample_equals_its_golden(path: Path, golden: Callable[[str | Path, str], None]) -> None:
    """The golden was read by a person; columns the log does not have are left out."""
    frame = read_log([str(path)]).requests.select(list(COLUMNS)).head(GOLDEN_ROWS)
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    frame = frame.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists
    )
    told = [name for name in frame.columns if frame[name].null_count() < frame.height]
    golden(f"readers/{path.stem}.csv", frame.select(told).write_csv())


# --- the same bytes, however they come ----------------------------------------------------------


@ONE_EACH
def test_packed_copies_and_standard_input_give_equal_tables(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacking goes by content, so the copies may be called anything."""
    data = path.read_bytes()
    plain = read_log([str(path)])
    packed = {
        f"{path.name}.gz": gzip.compress(data),
        f"{path.name}.zst": zstandard.ZstdCompressor().compress(data),
        "gz_by_another_name": gzip.compress(data),
    }
    for name, content in packed.items():
        copied = tmp_path / name
        copied.write_bytes(content)
        other = read_log([str(copied)])
        assert_same(plain, other)
        assert other.fields == plain.fields
    for content in (data, gzip.compress(data)):
        stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr("sys.stdin", stdin)
        assert_same(plain, read_log(["-"]))


@ONE_EACH
@pytest.mark.parametrize("chunk", [256, 4096])
def test_rows_are_equal_in_parts_and_whole(
    path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines longer than a part, and requests spread over several parts, change nothing."""
    whole = read_log([str(path)])
    monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", chunk)
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 6000)
    assert_same(whole, read_log([str(path)]))


def test_a_large_log_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before is not empty: there is more than one part, and numbering goes on."""
    monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", 2**16)
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 2**16)
    seen: list[int] = []
    log = read_log([str(SAMPLES / "peak_hour.jsonl")], progress=lambda _, rows: seen.append(rows))
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == log.inputs[0].rows_read == 3075
    assert log.requests["line"].to_list() == list(range(1, 3076))


def test_a_folder_is_all_its_logs_and_a_foreign_file_is_named(tmp_path: Path) -> None:
    for stem in ("flat", "ollama"):
        (tmp_path / OWN[stem].name).write_bytes(OWN[stem].read_bytes())
    (tmp_path / "notes.txt").write_text("nothing to see here\nat all\n")
    log = accounted(read_log([str(tmp_path)]))
    assert [one.format for one in log.inputs] == ["flat", "ollama"]
    assert log.requests["source"].unique().sort().to_list() == [0, 1]
    assert any("notes.txt" in warning for warning in log.warnings)


# --- what a log may hold ------------------------------------------------------------------------

WELL = {
    "id": "a", "session": "s", "ts": "2026-05-01T10:00:00Z", "prompt_tokens": 1200,
    "cached_tokens": 0, "completion_tokens": 90, "ttft_ms": 180.5, "latency_ms": 2500.0,
    "stream": True, "status": "ok", "usage": {"reasoning_tokens": 3},
}  # fmt: skip
WELL_LINE = json.dumps(WELL).encode()

JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.sampled_from([0, -1, 1e308, 10**400, 1e-320, "", "NaN", "1e999", "12", "3.5s", "-7 ms"]),
        st.text(max_size=12),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORD = st.fixed_dictionaries({}, optional=dict.fromkeys(WELL, JUNK)).map(lambda d: WELL | d)
LOSES = st.sets(st.sampled_from(sorted(WELL)), max_size=4)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


GOOD_OR_BAD_LINE = st.one_of(
    RECORD.map(dumped),
    st.tuples(RECORD, LOSES).map(
        lambda pair: dumped({k: v for k, v in pair[0].items() if k not in pair[1]})
    ),
    st.tuples(RECORD.map(dumped), st.integers(1, 60)).map(lambda pair: pair[0][: -pair[1]]),
    st.dictionaries(st.text(max_size=6), JUNK, max_size=3).map(dumped),
    JUNK.map(dumped),
    st.sampled_from(
        [b"", b"  ", b"\t", b"{}", b"[]", b"null", b"\xff\xfe{", b'{"ttft_ms": \xff}', b"{" * 300]
    ),
    st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\x00", b"")),
)
SLOW_OK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_bytes(data: bytes, name: str, format: str | None = None) -> Log:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return accounted(read_log([str(path)], format=format))


def read_or_refused(data: bytes, name: str, format: str | None = None) -> Log | None:
    """Any error but our own is a crash."""
    try:
        return read_bytes(data, name, format)
    except TTFTDoctorError:
        return None


@pytest.mark.usefixtures("every_row")
@SLOW_OK
@given(st.lists(GOOD_OR_BAD_LINE, max_size=12), st.booleans())
@example([b"[" * 3000], False)
@example([b'{"a":' * 3000], True)
@example([b'{"ttft_ms": 1' + b"0" * 400 + b"}"], True)
def test_no_line_is_lost_and_none_is_fatal(lines: list[bytes], crlf: bool) -> None:
    """Torn lines, other types, NaN, huge numbers, nulls, nested junk, bytes that are no text."""
    all_lines = [WELL_LINE] * (len(lines) + 3) + lines + [WELL_LINE]
    log = read_bytes((b"\r\n" if crlf else b"\n").join(all_lines) + b"\n", "log.jsonl")
    assert log.inputs[0].format == "flat"
    assert log.inputs[0].rows_read == sum(bool(line.strip()) for line in all_lines)
    assert log.requests.height >= len(lines) + 4


@SLOW_OK
@given(st.lists(GOOD_OR_BAD_LINE, max_size=6))
def test_a_log_of_nothing_but_junk_is_read_or_refused(lines: list[bytes]) -> None:
    read_or_refused(b"\n".join(lines), "log.jsonl")


CELL = st.one_of(
    st.sampled_from(
        ["", "12", "0.5", "NaN", "inf", "-3", "1e400", "true", "200", "429", '"', "null"]
    ),
    st.text(max_size=8),
    st.text(max_size=8).map(lambda text: '"' + text.replace('"', '""') + '"'),
)
CSV_HEAD = "id,session,ts,prompt_tokens,completion_tokens,ttft_ms,latency_ms,status"
CSV_ROW = "a,s,2026-05-01T10:00:00Z,1200,90,180.5,2500,ok"


@SLOW_OK
@given(st.lists(st.lists(CELL, max_size=11).map(",".join), max_size=8), st.booleans())
@example(["a,s"], True)
@example(["a,s,t,1,2,3,4,ok,more,and,more"], True)
def test_ragged_csv_is_accounted_for_or_refused(rows: list[str], more: bool) -> None:
    text = "\n".join([CSV_HEAD, *[CSV_ROW] * (21 if more else 1), *rows, CSV_ROW]) + "\n"
    log = read_or_refused(text.encode("utf-8", "surrogatepass"), "log.csv")
    assert log is None or log.inputs[0].rows_read >= 1


@pytest.mark.usefixtures("every_row")
def test_short_and_long_csv_rows_count_as_rows() -> None:
    text = "\n".join([CSV_HEAD, CSV_ROW, "b,s", CSV_ROW + ",x,y", "", CSV_ROW]) + "\n"
    log = read_bytes(text.encode(), "log.csv")
    assert log.requests["request_id"].to_list() == ["a", "a"]
    assert log.requests["ttft_us"].to_list() == [180_500] * 2
    assert log.inputs[0].rows_rejected["too_many_fields"] == 1
    assert sum(log.inputs[0].rows_rejected.values()) == log.inputs[0].rows_read - 2 == 2


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = list(enumerate(value))[:4]
    for key, inner in items:
        found.extend(places(inner, (*at, key)))
    return found


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    out = copy.deepcopy(value)
    inside = out
    for key in at[:-1]:
        inside = inside[key]
    inside[at[-1]] = new
    return out


@pytest.mark.parametrize("name", sorted(READERS))
@settings(
    max_examples=15, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(data=st.data())
def test_a_damaged_sample_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """One or two values of each sample become something else; for text a stretch is cut out."""
    raw = OWN[name].read_bytes()
    if OWN[name].suffix in (".log", ".csv"):
        at = data.draw(st.integers(0, len(raw) - 1))
        put = data.draw(st.binary(max_size=20))
        damaged = raw[:at] + put.replace(b"\x00", b"") + raw[at + data.draw(st.integers(0, 400)) :]
    else:
        lines = []
        for line in raw.splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        for _ in range(data.draw(st.integers(1, 2))):
            index = data.draw(st.integers(0, min(len(lines), 4) - 1))
            inside = places(lines[index])
            if inside:
                where = inside[data.draw(st.integers(0, len(inside) - 1))]
                lines[index] = replaced(lines[index], where, data.draw(JUNK))
        damaged = "\n".join(json.dumps(line) for line in lines).encode()
    read_or_refused(damaged, OWN[name].name, format=name)
