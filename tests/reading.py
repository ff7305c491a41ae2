"""What the tests of readers share: logs written and read, with every row accounted for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ttftdoctor import catalog
from ttftdoctor.errors import InputError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options
from ttftdoctor.sources import Source

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_logs"
SHARED = ROOT.parent / "shared"
REAL = SHARED / "real"

#: When the known request came: 2026-08-01T10:00:00Z.
START_S = 1_785_578_400
#: One request, known in every format; a format holds some of it.
REQUEST: dict[str, Any] = {
    "request_id": "req-001",
    "session_id": "sess-7f",
    "start": START_S * 10**6,
    "ttft_us": 840_000,
    "e2e_us": 3_240_000,
    "input_tokens": 12_000,
    "cached_tokens": 9_000,
    "cache_write_tokens": 1_000,
    "output_tokens": 160,
    "status": "ok",
}


def read(path: Path, **options: Any) -> Log:
    """A log of one file; its rows are used, or rejected by name."""
    log = read_log([str(path)], **options)
    (one,) = log.inputs
    assert one.rows_read == one.rows_used + sum(one.rows_rejected.values())
    assert log.requests.height == one.rows_used
    return log


def read_data(path: Path, data: str | bytes, name: str | None = None, **options: Any) -> Log:
    """The same of a file that is written first; ``name`` is the format's."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read(path, format=name, options=Options(**options))


def read_objects(path: Path, *objects: Any, name: str | None = None) -> Log:
    """The same of JSON lines."""
    return read_data(path, "\n".join(json.dumps(o) for o in objects) + "\n", name)


def write(folder: Path, value: Any, name: str = "log") -> Path:
    """A file of text, of a JSON document, or (from a list of objects) of JSON lines."""
    path = folder / name
    if isinstance(value, list):
        value = "".join(json.dumps(one) + "\n" for one in value)
    elif isinstance(value, dict):
        value = json.dumps(value)
    path.write_text(value, encoding="utf-8")
    return path


def table(*records: dict[str, Any]) -> str:
    """Records as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, records[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def rows(log: Log, *columns: str) -> list[tuple[Any, ...]]:
    return log.requests.select(columns).rows()


def only(log: Log) -> dict[str, Any]:
    assert log.requests.height == 1, log.inputs
    return log.requests.row(0, named=True)


def rejected(log: Log) -> dict[str, int]:
    return dict(log.inputs[0].rows_rejected)


def account(sample: str) -> tuple[int, dict[str, int], dict[str, int]]:
    """Of a sample log: rows, why some are rejected, why first tokens are set aside."""
    (one,) = read(SAMPLES / sample).inputs
    assert one.format == sample.partition(".")[0]
    return one.rows_read, dict(one.rows_rejected), dict(one.ttft_set_aside)


def claims(names: Iterable[str], *, but: str | None = None) -> dict[str, list[str]]:
    """Which real logs these readers claim as theirs, but those in folders of the name ``but``."""
    if not SHARED.is_dir():
        pytest.skip("the folder of real logs is not here")
    readers = [catalog.reader_named(name) for name in names]
    found = {}
    for folder in ("real", "cases", "real_engine"):
        for path in sorted((SHARED / folder).rglob("*")):
            if not path.is_file() or path.suffix == ".md" or path.parent.name == but:
                continue
            try:
                with closing(Source(str(path))) as source:
                    head = source.head
            except InputError:
                continue
            said = [r.name for r in readers if head.shape in r.shapes and r.recognise(head)]
            if said:
                found[path.relative_to(SHARED).as_posix()] = said
    return found
