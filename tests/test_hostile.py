"""Logs and surroundings that are broken on purpose: nothing may raise, and nothing be lost."""

from __future__ import annotations

import bz2
import contextlib
import datetime as dt
import gc
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path

import polars as pl
import pytest
import zstandard
from typer.testing import CliRunner

from ttftdoctor import sources
from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.hardware import Machine, roofline
from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options

SAMPLE = Path(__file__).parent.parent / "sample_logs" / "peak_hour.jsonl"


def _rows(n: int = 50) -> list[dict[str, object]]:
    return [
        {"ttft_ms": 100.0 + i, "input_tokens": 1000 + i, "output_tokens": 20,
         "timestamp": 1_700_000_000 + i}
        for i in range(n)
    ]  # fmt: skip


def _lines(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _read(path: Path, data: bytes | None = None, **options: object) -> Log:
    if data is not None:
        path.write_bytes(data)
    return read_log([str(path)], **options)  # type: ignore[arg-type]


def _parquet(path: Path, **columns: object) -> Log:
    frame = pl.DataFrame(_rows()).with_columns(**columns)
    frame.write_parquet(path)
    return _read(path)


# --------------------------------------------------------------------- Parquet


def test_a_struct_is_read_by_its_fields(tmp_path):
    rows = [{"ttft_ms": 100, "usage": {"prompt_tokens": 7 + i, "completion_tokens": 3}}
            for i in range(20)]  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    log = _read(tmp_path / "a.parquet")
    assert log.requests["input_tokens"].to_list() == [7 + i for i in range(20)]
    assert log.requests["output_tokens"].to_list() == [3] * 20


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_a_duration_knows_its_unit(tmp_path, unit):
    span = pl.Series([dt.timedelta(milliseconds=250)] * 50, dtype=pl.Duration(unit))
    rows = pl.DataFrame(_rows()).drop("ttft_ms").with_columns(ttft=span)
    rows.write_parquet(tmp_path / "a.parquet")
    assert set(_read(tmp_path / "a.parquet").requests["ttft_us"]) == {250_000}


@pytest.mark.parametrize(
    "value",
    [
        pl.Series([[1.0, 2.0]] * 50),
        pl.Series([[1, 2]] * 50, dtype=pl.Array(pl.Int64, 2)),
        pl.Series([b"\xff\x00"] * 50),
        pl.Series([[b"\xff"]] * 50),
        pl.Series([{"a": b"\xff"}] * 50),
    ],
)
def test_a_nested_value_where_a_number_belongs_is_a_reject(tmp_path, value):
    log = _parquet(tmp_path / "a.parquet", input_tokens=value)
    assert log.inputs[0].rows_rejected == {"wrong_type:input_tokens": 50}


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_a_date_outside_the_calendar_is_counted(tmp_path, unit, value):
    stamps = pl.Series([value] + [1_700_000_000_000] * 49).cast(pl.Datetime(unit))
    log = _parquet(tmp_path / "a.parquet", timestamp=stamps)
    assert log.requests["start"].null_count() >= 1
    assert any("1 values of `timestamp` could not be read" in w for w in log.warnings)


def test_a_packed_parquet_is_named(tmp_path):
    pl.DataFrame(_rows()).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError) as caught:
        _read(tmp_path / "b.gz", gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert "unpack it first" in str(caught.value)


# ------------------------------------------------------------------------ JSON


def test_numbers_of_any_length(tmp_path):
    rows = _lines(_rows()) + b'{"ttft": 5, "input_tokens": ' + b"9" * 400 + b', "timestamp": 1}\n'
    rows = rows.replace(b"ttft_ms", b"ttft")
    log = _read(tmp_path / "a.jsonl", rows)
    assert log.inputs[0].rows_rejected == {"wrong_shape": 1}
    log = _read(tmp_path / "a.jsonl", rows.replace(b"9" * 400, b"9" * 25))
    assert log.inputs[0].rows_rejected == {"wrong_type:input_tokens": 1}


def test_a_deep_element_of_a_document_is_a_reject(tmp_path):
    deep = b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    good = b",\n".join(json.dumps(row).encode() for row in _rows())
    log = _read(tmp_path / "a.json", b"[" + good + b",\n" + deep + b"]")
    assert log.inputs[0].rows_read == 51
    assert log.inputs[0].rows_used == 50
    assert len(log.inputs[0].rows_rejected) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"itls": [0.1, 0.2]},
        {"itls": "no"},
        {"ttfts": ["a", "b"]},
        {"ttfts": [[1], [2]]},
        {"ttfts": [], "input_lens": []},
        {"errors": [1, {}]},
        {"ttfts": {"a": 1}},
        {"input_lens": [1e300, 1e300]},
        {"output_lens": None, "model_id": [1]},
    ],
)
def test_a_benchmark_result_with_wrong_types(tmp_path, change):
    run = {"ttfts": [0.1, 0.2], "input_lens": [10, 20], "output_lens": [2, 3],
           "itls": [[0.1], [0.1, 0.1]], "errors": ["", ""], "model_id": "m"}  # fmt: skip
    good, bad = json.dumps(run), json.dumps({**run, **change})
    log = _read(tmp_path / "a.json", f"{good}\n{bad}\n".encode(), format="vllm-bench")
    assert log.inputs[0].rows_used >= 2
    with contextlib.suppress(InputError):
        _read(tmp_path / "b.json", bad.encode(), format="vllm-bench")


@pytest.mark.parametrize("block", ["null", "12 ms", "64", None, -1, 2**80, [1]])
def test_a_weka_session_with_odd_values(tmp_path, block):
    requests = [{"t": 1.0 * i, "type": "s", "model": "m", "in": 100, "out": 5, "hash_ids": [1],
                 "ttft": [0.5, 1e300, -1][i % 3], "api_time": 1.0} for i in range(9)]  # fmt: skip
    document = {"id": "x", "block_size": block, "requests": requests}
    log = _read(tmp_path / "a.json", json.dumps(document).encode())
    assert log.inputs[0].rows_read == 9


def test_llamacpp_times_of_any_length(tmp_path):
    sample = next((SAMPLE.parent).glob("llamacpp*.log"), None)
    if sample is None:
        pytest.skip("no sample")
    import re

    text = re.sub(r"= +\d+\.\d+ ms", "= " + "9" * 25 + ".00 ms", sample.read_text())
    assert text != sample.read_text()
    assert _read(tmp_path / "a.log", text.encode()).inputs[0].rows_read > 0


# --------------------------------------------------------------- lost in silence


def test_values_that_cannot_be_read_are_counted(tmp_path):
    rows = _rows()
    for row in rows[:7]:
        row["timestamp"] = "yesterday"
    for row in rows[:3]:
        row["output_tokens"] = 9_999_999_999_999_999_999
    log = _read(tmp_path / "a.jsonl", _lines(rows))
    text = "\n".join(log.warnings)
    assert "start: 7 values of `timestamp` could not be read" in text
    assert "output_tokens: 3 values of `output_tokens` could not be read" in text


def test_figures_that_contradict_each_other_are_not_used(tmp_path):
    rows = _rows()
    rows[0]["queue_ms"] = 5000
    rows[1]["queue_ms"] = 50
    rows[2]["prefill_ms"] = 5000
    rows[3]["reasoning_tokens"] = 21
    rows[4]["output_tokens"] = 200_000_000
    rows[5]["timestamp"] = 800_000_000
    rows[6]["timestamp"] = 5_000_000_000
    rows[7]["input_tokens"] = 200_000_000
    log = _read(tmp_path / "a.jsonl", _lines(rows))
    text = "\n".join(log.warnings)
    for said in ("1 rows say they queued", "1 rows say their prefill", "1 rows say more reasoning",
                 "1 rows say more than 100 million", "2 rows start before 2000"):  # fmt: skip
        assert said in text
    assert log.requests["queue_us"].drop_nulls().to_list() == [50_000]
    assert log.requests["prefill_us"].null_count() == 49
    assert log.requests["start"].null_count() == 2
    assert log.inputs[0].rows_rejected == {"absurd_tokens": 1}


def test_a_file_given_twice_is_read_once(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(_lines(_rows()))
    (tmp_path / "b.jsonl").symlink_to(path)
    log = read_log([str(path), str(path), str(tmp_path / "b.jsonl")])
    assert log.requests.height == 50
    assert sum("more than once" in w for w in log.warnings) == 2


# ----------------------------------------------------------------- command line


def _run(*args: str, env: dict[str, str] | None = None, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "ttftdoctor", *args],
        stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, check=False, **kwargs,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_clear_error():
    with Path("/dev/full").open("wb") as full:
        for args in ((), ("--json", "-")):
            done = _run("diagnose", str(SAMPLE), "-q", *args, stdout=full)
            assert done.returncode == 2
            assert done.stderr.decode().startswith("error: cannot write")
            assert "Traceback" not in done.stderr.decode()
            assert "Exception ignored" not in done.stderr.decode()


def test_a_terminal_without_unicode():
    ascii_ = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for args in ((), ("--markdown", "-"), ("--html", "-")):
        done = _run("diagnose", str(SAMPLE), "-q", *args, env=ascii_, stdout=subprocess.PIPE)
        assert done.returncode == 0, done.stderr
        done.stdout.decode("utf-8" if args else "ascii")


def test_a_reader_that_goes_away():
    command = f"'{sys.executable}' -m ttftdoctor diagnose '{SAMPLE}' -q"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | (exec 0<&-; sleep 0.1)"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_mistake_of_ours_is_no_traceback(monkeypatch):
    import ttftdoctor.run

    for error in (KeyError("boom"), pl.exceptions.PanicException("boom\nmore")):

        def fail(*_a, _error=error, **_k):
            raise _error

        monkeypatch.setattr(ttftdoctor.run, "diagnose", fail)
        result = CliRunner().invoke(app, ["diagnose", str(SAMPLE)])
        assert result.exit_code == 3
        assert "something went wrong inside ttftdoctor" in result.stderr
        assert "please report this" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--json", "-", "--html", "-"),
        ("--slo-ttft", "0s"),
        ("--unit", "nosuch=ms"),
    ],
)
def test_wrong_usage(args):
    result = CliRunner().invoke(app, ["diagnose", str(SAMPLE), *args])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_unit_of_no_field_lists_the_fields(tmp_path):
    with pytest.raises(InputError) as caught:
        _read(tmp_path / "a.jsonl", _lines(_rows()), options=Options(units={"nosuch": "ms"}))
    assert "timestamp" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e19, 1e-300])
def test_a_machine_beyond_reason(value):
    with pytest.raises(UsageError):
        roofline(Machine(value, 2, 1e15, 1e12), 10, 10)
    with pytest.raises(UsageError):
        roofline(Machine(7e9, 2, 1e15, 1e12), value, 10)


def test_inspect_shows_times_as_people_read_them():
    result = CliRunner().invoke(app, ["inspect", str(SAMPLE), "-q"])
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.startswith("ttft_us"))
    assert " s" in row or " ms" in row


# ---------------------------------------------------------------- packed files

_PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def _noise(n: int) -> bytes:
    """Lines that pack badly, so that what is cut off is a part of them."""
    import random

    rng = random.Random(1)
    return _lines([{**row, "id": f"{rng.getrandbits(400):x}"} for row in _rows(n)])


@pytest.mark.parametrize("kind", _PACK)
def test_a_packed_file_that_is_whole(tmp_path, kind):
    data = _noise(3000)
    log = _read(tmp_path / "a", _PACK[kind](data[:50_000]) + _PACK[kind](data[50_000:]))
    assert log.requests.height == 3000
    assert log.warnings == ()


@pytest.mark.parametrize("kind", ["gz", "zst", "xz"])
def test_a_packed_file_that_ends_early(tmp_path, kind):
    packed = _PACK[kind](_noise(3000))
    log = _read(tmp_path / "a", packed[: len(packed) * 9 // 10])
    assert 1500 < log.requests.height < 3000
    assert any("it ends too early" in w for w in log.warnings)


def test_bzip2_that_ends_early(tmp_path):
    packed = bz2.compress(_noise(3000), compresslevel=1)
    log = _read(tmp_path / "a", packed[: len(packed) * 9 // 10])
    assert 0 < log.requests.height < 3000
    assert any("it ends too early" in w for w in log.warnings)


@pytest.mark.parametrize("kind", _PACK)
def test_something_after_the_packed_data(tmp_path, kind):
    log = _read(tmp_path / "a", _PACK[kind](_noise(300)) + b"rubbish at the end")
    assert log.requests.height == 300
    assert any("something else follows" in w for w in log.warnings)
    log = _read(tmp_path / "a", _PACK[kind](_noise(300)) + bytes(512))
    assert (log.requests.height, log.warnings) == (300, ())


def test_a_gzip_that_is_still_written(tmp_path):
    import zlib

    packer = zlib.compressobj(wbits=31)
    data = packer.compress(_noise(300)) + packer.flush(zlib.Z_SYNC_FLUSH)
    log = _read(tmp_path / "a.gz", data)
    assert log.requests.height == 300
    assert any("it ends too early" in w for w in log.warnings)


def test_a_bomb_of_blank_lines(tmp_path):
    head = _lines(_rows())
    log = _read(tmp_path / "a.gz", gzip.compress(head + b"\n" * 200_000_000 + head))
    assert log.requests.height == 100
    assert log.requests["line"].max() == 200_000_100


@pytest.mark.parametrize("kind", _PACK)
def test_a_packed_file_read_in_steps_of_any_size(kind):
    data = _noise(3000)
    for size in (1, 1000, len(data) - 1, len(data), len(data) + 1):
        file = io.BytesIO(_PACK[kind](data))
        ((begins, make),) = [
            one for one in sources._UNPACKERS.items() if file.getvalue().startswith(one[0])
        ]
        packed = sources._Packed(file, begins, make)
        parts = [packed.read(size) for _ in range(min(3, len(data) // size + 1))]
        assert b"".join(parts) == data[: 3 * size]
        assert packed.given == len(data[: 3 * size])


def test_a_document_too_large_is_not_held_twice(tmp_path, monkeypatch):
    size = 2**27
    monkeypatch.setattr("ttftdoctor.sources.MAX_DOCUMENT_BYTES", size)
    packed = gzip.compress(b"[" + b"\n" * (size + size // 8))
    tracemalloc.start()
    with pytest.raises(InputError, match="a JSON document of more than"):
        _read(tmp_path / "a.gz", packed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * size


def test_what_was_refused_is_held_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("ttftdoctor.sources.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("ttftdoctor.sources.MAX_DOCUMENT_BYTES", 2**21)
    table, document, good = tmp_path / "a.csv", tmp_path / "b.json", tmp_path / "c.jsonl"
    table.write_bytes(_csv().encode() + b"a" * 2000)
    document.write_bytes(b"[" * 2**22)
    good.write_bytes(_lines(_rows()))
    there: weakref.WeakSet[sources.Source] = weakref.WeakSet()
    held: list[int] = []
    begin = sources.Source.__init__

    def begun(self, *args, **options):
        held.append(len(there))
        there.add(self)
        begin(self, *args, **options)

    monkeypatch.setattr(sources.Source, "__init__", begun)
    gc.disable()
    try:
        for paths in ([table], [document], [table, document, good]):
            with contextlib.suppress(InputError):
                read_log([str(path) for path in paths])
    finally:
        gc.enable()
    assert held == [0] * 5


@pytest.mark.parametrize("name", ["sglang-log.log", "locust.log"])
def test_lines_that_begin_with_a_bracket_are_no_document(tmp_path, monkeypatch, name):
    monkeypatch.setattr("ttftdoctor.sources.MAX_DOCUMENT_BYTES", 2**21)
    data = (LOGS / name).read_bytes()
    times = 2**22 // len(data)
    one = read_log([str(LOGS / name)]).inputs[0]
    log = _read(tmp_path / "a.log", data * times)
    assert log.inputs[0].format == one.format
    assert log.inputs[0].rows_read >= one.rows_read * times // 2


@pytest.mark.parametrize("head", ["[1234] ", "[    1.234567] ", "[2026-08-01 10:00:00] ", "[a] "])
def test_what_stands_in_brackets_before_a_line_is_no_array(head):
    assert not sources._ARRAY.match(head + "(Engine) INFO: Avg prompt throughput: 0.0 tokens/s")


@pytest.mark.parametrize("first", ["1", "-1.5e3", "null", "NaN", '"x"', "[]", "", " \n"])
def test_an_array_may_begin_with_anything(tmp_path, first):
    text = f"[{first}{',' if first.strip() else ''}{json.dumps(_rows())[1:]}"
    assert _read(tmp_path / "a.json", text.encode()).requests.height == 50


# ------------------------------------------------------------------------- CSV


def _csv(separator: str = ",", header: str | None = None) -> str:
    rows = [[str(v) for v in row.values()] for row in _rows()]
    lines = [header or separator.join(_rows(1)[0]), *(separator.join(row) for row in rows)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_separators(tmp_path, separator):
    assert _read(tmp_path / "a.csv", _csv(separator).encode()).requests.height == 50


def test_odd_headers(tmp_path):
    for header in (
        "ttft_ms,input_tokens,output_tokens,timestamp=utc",
        "ttft_ms,input_tokens,output_tokens,the time of the call|utc",
    ):
        assert _read(tmp_path / "a.csv", _csv(header=header).encode()).requests.height == 50


def test_comment_lines_above(tmp_path):
    text = "# made by us\n# again\n" + _csv()
    assert _read(tmp_path / "a.csv", text.encode()).requests.height == 50


def test_a_single_column(tmp_path):
    log = _read(tmp_path / "a.csv", b"ttft_ms\n" + b"".join(b"%d\n" % n for n in range(1, 40)))
    assert log.requests.height == 39


def test_map_makes_a_table(tmp_path):
    text = "how long did it take until the first,x\n" + "".join(f"{n},a b\n" for n in range(1, 40))
    options = Options(columns={"ttft": "how long did it take until the first"},
                      units={"ttft": "ms"})  # fmt: skip
    log = _read(tmp_path / "a.csv", text.encode(), options=options)
    assert log.requests.height == 39


def test_cells_with_line_breaks(tmp_path):
    text = "note," + _csv().replace("\n", '\n"a\nb",', 50)
    log = _read(tmp_path / "a.csv", text.encode())
    assert log.requests.height == 50
    assert any("line numbers count the rows" in note for note in log.notes)


def test_rows_with_too_many_fields_and_blank_lines(tmp_path):
    lines = _csv().splitlines()
    lines[5] += ",1"
    lines.insert(3, "")
    log = _read(tmp_path / "a.csv", "\n".join(lines).encode())
    assert log.inputs[0].rows_read == 50
    assert log.inputs[0].rows_rejected == {"too_many_fields": 1}
    assert log.inputs[0].first_rejects == ((7, "too_many_fields"),)


def test_a_name_given_twice(tmp_path):
    log = _read(tmp_path / "a.csv", _csv(header="ttft_ms,input_tokens,ttft_ms,timestamp").encode())
    assert log.requests["ttft_us"][0] == 100_000
    assert any("more than once" in note for note in log.notes)


def test_lines_that_end_in_a_carriage_return(tmp_path):
    log = _read(tmp_path / "a.csv", _csv().replace("\n", "\r").encode())
    assert log.requests.height == 50
    log = _read(tmp_path / "a.jsonl", _lines(_rows()).replace(b"\n", b"\r"))
    assert log.requests.height == 50


def test_decimal_commas_are_named(tmp_path):
    text = "ttft_s;input_tokens\n" + "".join(f"0,{n};100\n" for n in range(1, 40))
    log = _read(tmp_path / "a.csv", text.encode())
    assert log.inputs[0].rows_rejected == {"wrong_type:ttft_s": 39}
    assert any("decimal commas" in w for w in log.warnings)


def test_a_table_too_large_to_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("ttftdoctor.sources.MAX_TABLE_BYTES", 1000)
    with pytest.raises(InputError, match="cannot be held"):
        _read(tmp_path / "a.csv.gz", gzip.compress(_csv().encode()))


def test_a_table_with_a_line_too_long_to_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("ttftdoctor.sources.MAX_LINE_BYTES", 1000)
    text = _csv().encode()
    assert _read(tmp_path / "a.csv", text + b"a" * 1000).inputs[0].rows_read == 51
    for data in (text + b"a" * 1001, text + b"a" * 1001 + b"\n" + text):
        with pytest.raises(InputError, match="a line of CSV of more than"):
            _read(tmp_path / "a.csv", data)


def test_an_open_quote_is_not_printed_whole(tmp_path):
    with pytest.raises(InputError, match="cannot be read") as caught:
        _read(tmp_path / "a.csv", _csv().encode() + b'"' + b"a" * 100_000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("data", [b"\x1c", b'"', b"#\n", b"a" * 200_000, b'"' + b"a" * 200_000])
def test_a_table_that_is_none(tmp_path, data):
    with pytest.raises(InputError):
        _read(tmp_path / "a.csv", data)
    with contextlib.suppress(InputError):
        assert _read(tmp_path / "a.csv", data, format="flat").requests.height == 0


# ------------------------------------- found by benchmarks/hostile: damaged samples of all formats

LOGS = SAMPLE.parent


@pytest.mark.parametrize(
    ("name", "text", "odd"),
    [
        ("guidellm", '"sample-8b"', '"\\ud800"'),
        ("guidellm", '"conv-11"', '"\\udfff\\ud800 \\ud83e\\udd8a"'),
        ("genai-perf", '\\"content\\":\\"a\\"', '\\"content\\":\\"\\ud800\\"'),
    ],
)
def test_half_a_character_in_a_document(tmp_path, name, text, odd):
    sample = (LOGS / f"{name}.json").read_text()
    assert text in sample
    for long in (0, 2**20):  # a document that fits the head, and one that does not
        data = sample.replace(text, odd).replace("{", "{" + " " * long, 1)
        (one,) = _read(tmp_path / "a.json", data.encode(), format=name).inputs
        (whole,) = read_log([str(LOGS / f"{name}.json")]).inputs
        assert (one.rows_read, one.rows_used) == (whole.rows_read, whole.rows_used)


@pytest.mark.parametrize("kind", [["session_meta"], {}, None, 5])
def test_a_record_whose_type_is_no_text(tmp_path, kind):
    lines = (LOGS / "codex.jsonl").read_text().splitlines()
    odd = json.dumps({**json.loads(lines[0]), "type": kind})
    log = _read(tmp_path / "a.jsonl", "\n".join([odd, *lines]).encode())
    assert [one.format for one in log.inputs] == ["codex"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"reasoning_tokens": -5}, "negative_tokens"),
        ({"cache_write_tokens": -5}, "negative_tokens"),
        ({"cache_write_tokens": 200_000_000}, "absurd_tokens"),
        ({"prefill_ms": 1e9, "ttft_ms": None}, "absurd_duration"),
    ],
)
def test_every_count_and_duration_is_judged(tmp_path, row, reason):
    log = _read(tmp_path / "a.jsonl", _lines([*_rows(), {**_rows(1)[0], **row}]))
    assert log.inputs[0].rows_rejected == {reason: 1}


def test_absurd_parts_of_an_unknown_whole_are_not_used(tmp_path):
    rows = [{**row, "cached_tokens": 5, "reasoning_tokens": 5} for row in _rows()]
    rows[0] |= {"cached_tokens": 200_000_000, "input_tokens": None}
    rows[1] |= {"reasoning_tokens": 200_000_000, "output_tokens": None}
    log = _read(tmp_path / "a.jsonl", _lines(rows))
    assert log.requests.height == 50
    assert set(log.requests["cached_tokens"]) == {5, None}
    assert set(log.requests["reasoning_tokens"]) == {5, None}


def test_records_of_several_formats_with_a_field_called_line(tmp_path):
    lines = []
    for name in ("litellm", "braintrust"):
        for line in (LOGS / f"{name}.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                lines += [record, {**record, "line": "12", "id": f"{record['id']}-b"}]
    log = _read(tmp_path / "a.jsonl", _lines(lines))
    assert {one.format for one in log.inputs} == {"litellm", "braintrust"}
    assert sum(one.rows_read for one in log.inputs) == len(lines)


def test_a_field_called_line_cannot_be_named(tmp_path):
    rows = [{**row, "line": "x"} for row in _rows()]
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_bytes(_lines(rows))
    for name in ("a.parquet", "a.jsonl"):
        with pytest.raises(InputError, match="a field named `line` cannot be read"):
            _read(tmp_path / name, options=Options(columns={"tenant": "line"}))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_a_date_outside_the_calendar_where_text_belongs(tmp_path, unit):
    stamps = pl.Series([2**62] + [1_700_000_000_000] * 49).cast(pl.Datetime(unit))
    log = _parquet(tmp_path / "a.parquet", session_id=stamps)
    assert log.requests.height == 50
    assert log.requests["session_id"].null_count() == 1


@pytest.mark.parametrize(
    "value",
    [
        pl.Series([7] * 14),
        pl.Series([dt.datetime(2026, 8, 1, tzinfo=dt.UTC)] * 14),
        pl.Series([b"x"] * 14),
    ],
)
def test_a_value_of_another_type_where_members_are_asked_for(tmp_path, value):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()[:14]]
    texts = [
        {k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()} for row in rows
    ]
    frame = pl.DataFrame(texts, infer_schema_length=None)
    columns = {name for name in frame.columns if frame[name].str.contains("^[{]").any()}
    columns |= {"prompt_token_details", "completion_token_details"}
    frame.with_columns(value.alias(name) for name in columns).write_parquet(tmp_path / "a.parquet")
    log = _read(tmp_path / "a.parquet", format="langsmith")
    assert log.inputs[0].rows_read == 14


@pytest.mark.parametrize("name", ["dynamo", "vllm-log", "llamacpp", "tgi", "sglang-metrics"])
def test_text_without_a_request_in_it(tmp_path, name):
    with contextlib.suppress(InputError):
        log = _read(tmp_path / "a.log", b"\xff\xfe\xc3" * 1000, format=name)
        assert log.requests.height == 0


def test_a_table_with_none_of_the_columns_of_a_format(tmp_path):
    table = b"type,data,metric\n" + b"Point,1,llm_ttft\nMetric,2,llm_ttft\n" * 20
    with pytest.raises(InputError, match="no request was found"):
        _read(tmp_path / "a.csv", table, format="k6")


@pytest.mark.parametrize("metric", ["ttft", "m_ttft"])
def test_a_damaged_name_of_a_metric_hides_no_others(tmp_path, metric):
    sample = (LOGS / "k6.jsonl").read_text()
    line = next(line for line in sample.splitlines() if '"Point"' in line and "llm_ttft" in line)
    odd = line.replace("llm_ttft", metric)
    log = _read(tmp_path / "a.jsonl", f"{odd}\n{sample}".encode())
    whole = read_log([str(LOGS / "k6.jsonl")])
    assert log.inputs[0].rows_used == whole.inputs[0].rows_used
    assert log.requests["e2e_us"].equals(whole.requests["e2e_us"])


@pytest.mark.parametrize("value", [pl.Series([7.5] * 17), pl.Series([[1]] * 17)])
def test_a_parent_that_is_no_text(tmp_path, value):
    spans = json.loads((LOGS / "phoenix.json").read_text())["data"]
    flat = [{name: v if isinstance(v, str) else json.dumps(v) for name, v in span.items()}
            for span in spans]  # fmt: skip
    frame = pl.DataFrame(flat, infer_schema_length=None).with_columns(parent_id=value)
    frame.write_parquet(tmp_path / "a.parquet")
    assert _read(tmp_path / "a.parquet", format="phoenix").inputs[0].rows_read == 17


@pytest.mark.parametrize("value", ["[1, 2]", 5, {"a": 1}, [[1]], dt.date(2026, 8, 1)])
def test_block_ids_that_are_no_list(tmp_path, value):
    rows = [{"timestamp": n, "input_length": 1024, "output_length": 5, "hash_ids": value}
            for n in range(20)]  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    log = _read(tmp_path / "a.parquet", format="mooncake")
    assert log.inputs[0].rows_read == 20
    assert log.inputs[0].rows_rejected == {"wrong_shape": 20}


def test_a_bomb_of_blank_lines_in_text_is_not_held(tmp_path):
    sample = (LOGS / "vllm-log.log").read_bytes()
    bomb = zstandard.ZstdCompressor().compress(sample + b"\n" * 60_000_000)
    log = _read(tmp_path / "a.zst", bomb, format="vllm-log")
    assert log.inputs[0].rows_read == read_log([str(LOGS / "vllm-log.log")]).inputs[0].rows_read


@pytest.mark.parametrize("name", ["vllm-log.log", "claude-code.jsonl"])
def test_a_log_too_large_to_hold(monkeypatch, name):
    monkeypatch.setattr("ttftdoctor.sources.MAX_TABLE_BYTES", 1000)
    with pytest.raises(InputError, match="spread over several lines cannot be held"):
        read_log([str(LOGS / name)])


def test_a_table_of_too_many_cells(tmp_path, monkeypatch):
    monkeypatch.setattr("ttftdoctor.sources.MAX_CELLS", 1000)
    _read(tmp_path / "a.csv", _csv().encode())
    with pytest.raises(InputError, match="more than 1,000 cells of CSV cannot be held"):
        _read(tmp_path / "a.csv", _csv().encode() + b"\n" * 1000)


def test_only_the_first_rejects_are_kept(tmp_path):
    log = _read(tmp_path / "a.jsonl", _lines(_rows()) + b"no\n" * 2000 + _lines(_rows()))
    assert log.inputs[0].rows_rejected == {"not_json": 2000}
    assert log.inputs[0].first_rejects == tuple((51 + n, "not_json") for n in range(10))


# --------------------------------------------------------------- shapes of records

_NESTED = {
    "call": pl.Struct(
        {"name": pl.String(), "n": pl.Int64(), "of": pl.Struct({"name": pl.String()}),
         "parts": pl.List(pl.Struct({"name": pl.String()})), "words": pl.List(pl.String())}
    ),
    "calls": pl.List(pl.Struct({"name": pl.String()})),
}  # fmt: skip
_VALUES = (
    None, True, 0, -1, 1.5, -0.0, 1e300, 10**18, 10**30, 10**400, "", "x", "12", "null", "{}", "[]",
    '{"name": "a"}', '[{"name": "a"}]', "{'name': 1}", "a\tb", "\ud800", [], {}, [None], [1], ["a"],
    [{}], [[]], [[{}]], {"name": "a"}, {"name": {}}, {"name": [1]}, [{"name": "a"}], [{"name": {}}],
    [{"name": "a"}, 1], [{"name": "a"}, None], {"of": 1}, {"of": {"name": []}}, {"parts": {}},
    {"parts": ["a"]}, {"words": "a"}, {"words": [[1]]}, {"n": "a"}, {"n": 1}, {"n": True},
)  # fmt: skip


def _odd_lines() -> list[tuple[int, bytes]]:
    fields = ("call", "calls")
    places = [lambda v, name=name: {name: v} for name in fields]
    places += [
        lambda v, key=key: {"call": {key: v}} for key in ("name", "n", "of", "parts", "words")
    ]
    records = [place(value) for place in places for value in _VALUES]
    return list(enumerate((json.dumps(one).encode() for one in records), start=1))


def _read_alone(line: bytes) -> pl.DataFrame | None:
    try:
        return sources._read_lines(line, (_NESTED,))
    except pl.exceptions.PolarsError:
        return None


def test_a_record_looks_wrong_only_where_it_cannot_be_read():
    looks = [(line, sources._look(line, (_NESTED,))) for _, line in _odd_lines()]
    wrong = [line for line, look in looks if look is False]
    assert len(wrong) > 80
    assert [line for line in wrong if _read_alone(line) is not None] == []
    for line in (line for line, look in looks if look):
        assert sources._decoded(line, _NESTED).height == 1


def test_a_record_is_read_or_not_whatever_stands_beside_it():
    lines = _odd_lines()
    good = [number for number, line in lines if _read_alone(line) is not None]
    frame, rejects = sources._frame_of(lines, (_NESTED,))
    assert frame["line"].to_list() == good
    assert rejects == [(n, "wrong_shape") for n, _ in lines if n not in set(good)]
    assert 100 < len(good) < len(lines) - 100


def test_a_block_without_a_record_has_no_rows():
    frame, rejects = sources.parse_block(b"x\n[1]\n\n", 1, 3, (_NESTED,))
    assert (frame.height, rejects) == (0, [(1, "not_json"), (2, "not_an_object")])
