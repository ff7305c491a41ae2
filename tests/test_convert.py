"""The canonical table: read again as it was, and, anonymised, without a trace of whose it is."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import ttftdoctor
from ttftdoctor.cli import app
from ttftdoctor.conversion import (
    IDS,
    NAMES,
    VANTAGES,
    anonymous,
    convert,
    form_of,
    shifted,
    table,
)
from ttftdoctor.errors import UsageError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.run import diagnose
from ttftdoctor.table import COLUMNS, SCHEMA, check, conform

SAMPLES = Path(__file__).parents[1] / "sample_logs"
FORMS = pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
FILES = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DAY = 86_400_000_000


def log_of(*rows: dict[str, Any]) -> Log:
    """A log of canonical rows, all of them usable, as intake makes it."""
    frame = pl.DataFrame(
        [{"line": k + 1, **row} for k, row in enumerate(rows)], infer_schema_length=None
    )
    requests = check(conform(frame)).with_columns(pl.lit(0, dtype=pl.Int32).alias("source"))
    assert requests["reject"].null_count() == requests.height
    return Log(requests, requests.clear(), (), {}, ())


def again(log: Log, path: Path, **options: Any) -> Log:
    convert(log, output=path, **options)
    found = read_log([str(path)])
    assert found.inputs[0].format == "flat"
    return found


def assert_judged_alike(one: Log, other: Log) -> None:
    """The same verdict, as sure of it, and the same account to the microsecond."""
    a, b = diagnose(one), diagnose(other)
    assert a.verdict.primary_cause == b.verdict.primary_cause
    assert a.verdict.confidence == pytest.approx(b.verdict.confidence, abs=0.005)
    assert len(a.ledger) == len(b.ledger)
    for row, same in zip(a.ledger, b.ledger, strict=True):
        assert row.accounts == pytest.approx(same.accounts, abs=1e-6)


#: Logs of many kinds: queues, cached tokens, failed and unstreamed rows, clocks without a date.
LOGS = [
    "peak_hour.jsonl", "eight_turns.jsonl", "healthy.jsonl", "litellm.jsonl", "llamacpp.log",
    "vllm-bench.json", "sglang-metrics.jsonl", "guidellm.json", "claude-code.jsonl", "codex.jsonl",
    "ollama.jsonl",
]  # fmt: skip
#: Logs with hashes of blocks, which CSV holds as text.
BLOCKS = ["weka.json", "mooncake.jsonl", "dynamo.jsonl"]


# --- read again ---------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("name", [*LOGS, *BLOCKS])
def test_the_table_is_read_again_as_it_was(name: str, form: str, tmp_path: Path) -> None:
    log = read_log([str(SAMPLES / name)])
    found = again(log, tmp_path / f"table.{form}")
    left = ["line", "source", "ttft_set_aside", "ttft_logged_us"]
    assert_frame_equal(found.requests.drop(left), log.requests.drop(left))
    assert found.failed.height == log.failed.height
    assert sorted(found.failed["reject"]) == sorted(log.failed["reject"])


@pytest.mark.parametrize("name", BLOCKS)
def test_hashes_in_cells_are_lists_in_json(name: str, tmp_path: Path) -> None:
    log = read_log([str(SAMPLES / name)])
    convert(log, output=tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["prefix_blocks"] for row in csv.DictReader(file)]
    assert [json.loads(cell) if cell else None for cell in cells] == table(log)[
        "prefix_blocks"
    ].to_list()
    assert any(cells)


@FORMS
@pytest.mark.parametrize("name", LOGS)
def test_the_diagnosis_is_the_same(name: str, form: str, tmp_path: Path) -> None:
    log = read_log([str(SAMPLES / name)])
    found = again(log, tmp_path / f"table.{form}", anonymize=True, shift_times=True)
    assert_judged_alike(found, log)


@FORMS
@pytest.mark.parametrize("name", BLOCKS)
def test_what_prompts_share_is_the_same(name: str, form: str, tmp_path: Path) -> None:
    log = read_log([str(SAMPLES / name)])
    found = again(log, tmp_path / f"table.{form}", anonymize=True)
    assert_judged_alike(found, log)
    old, new = log.requests["prefix_blocks"], found.requests["prefix_blocks"]
    pairs = pl.DataFrame({"old": old.explode(), "new": new.explode()}).drop_nulls().unique()
    assert pairs.height == pairs["old"].n_unique() == pairs["new"].n_unique() > 5
    assert new.list.len().to_list() == old.list.len().to_list()
    assert not set(pairs["old"]) & set(pairs["new"])


def test_columns_and_their_order(tmp_path: Path) -> None:
    convert(SAMPLES / "healthy.jsonl", output=tmp_path / "t.parquet")
    frame = pl.read_parquet(tmp_path / "t.parquet")
    assert dict(frame.schema) == SCHEMA
    assert (tmp_path / "t.parquet").read_bytes()[:4] == b"PAR1"
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_clock_without_a_date_says_its_unit(tmp_path: Path) -> None:
    log = log_of({"start": 5_000_000, "ttft_us": 90_000}, {"start": 42_000_001, "ttft_us": 80_000})
    found = again(log, tmp_path / "t.jsonl")
    assert found.requests["start"].to_list() == [5_000_000, 42_000_001]
    assert "start_us" in json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])


@FORMS
def test_a_first_token_that_was_set_aside_stays_so(form: str, tmp_path: Path) -> None:
    """It is written only where the row itself says why it must not be used."""
    rows = [
        {"request_id": "whole", "streamed": False, "ttft_us": 900, "e2e_us": 900},
        {"request_id": "late", "ttft_us": 9_000_000, "e2e_us": 1_000_000},
        {"request_id": "turn", "ttft_us": 70_000, "ttft_set_aside": "turn_level"},
        {"request_id": "good", "ttft_us": 50_000, "e2e_us": 60_000},
    ]
    found = again(log_of(*({"input_tokens": 10} | row for row in rows)), tmp_path / f"t.{form}")
    assert found.requests.select("request_id", "ttft_us", "ttft_logged_us", "ttft_set_aside")[
        :, :
    ].rows() == [
        ("whole", None, 900, "not_streamed"), ("late", None, 9_000_000, "ttft_after_e2e"),
        ("turn", None, None, "ttft_missing"), ("good", 50_000, 50_000, None),
    ]  # fmt: skip


@FORMS
def test_failed_rows_keep_their_status_and_others_are_counted(form: str, tmp_path: Path) -> None:
    made = convert(SAMPLES / "claude-code.jsonl", output=tmp_path / f"t.{form}")
    assert (made.read, made.rows, made.failed) == (35, 14, 2)
    assert made.rejected == {"made_by_client": 1, "not_a_request": 17, "repeated_usage": 3}
    assert made.read == made.rows + sum(made.rejected.values())
    failed = read_log([str(tmp_path / f"t.{form}")]).failed
    assert failed["status"].to_list() == ["rate_limited", "error"]


def test_rows_of_several_logs_stand_in_their_order(tmp_path: Path) -> None:
    logs = [str(SAMPLES / name) for name in ("healthy.jsonl", "eight_turns.jsonl")]
    log = read_log(logs)
    found = again(log, tmp_path / "t.parquet")
    assert found.requests["request_id"].to_list() == log.requests["request_id"].to_list()


# --- CSV and what a spreadsheet makes of it -----------------------------------------------------

ODD = st.text(
    st.one_of(
        st.sampled_from("=+-@'\",;\t\r\n\x00\x1b\u202e\u2028#[] 0"), st.characters(codec="utf-8")
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@pytest.mark.usefixtures("every_row")
@FILES
@given(ids=st.lists(ODD, min_size=2, max_size=8))
@example(ids=["=cmd|' /C calc'!A0", "+1", "-1", "@x", "'=1", "''"])
@example(ids=["#", "a"])
def test_no_cell_is_a_formula_and_each_is_read_back(ids: list[str], tmp_path: Path) -> None:
    # Readers take space off texts, and take some words for none.
    ids = ["q" + text if not text.strip() else text.strip() for text in ids]
    log = log_of(*({"request_id": one, "tenant": one, "ttft_us": 1000, "input_tokens": 5,
                    "start": 1_790_000_000_000_000} for one in ids))  # fmt: skip
    convert(log, output=tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["request_id"] for row in csv.DictReader(file)]
    controls = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
    plain = [controls.sub("\ufffd", one) for one in ids]
    for cell, text in zip(cells, plain, strict=True):
        assert cell[:1] not in tuple("=+-@\t\r\n")
        assert not controls.search(cell)
        assert cell.removeprefix("'") == text
    found = read_log([str(tmp_path / "t.csv")]).requests["request_id"].to_list()
    none = ("-", "null", "none", "nil", "n/a", "na", "undefined")
    for got, cell in zip(found, cells, strict=True):
        assert got == cell.strip() or (got is None and cell.strip().lower() in none)


@FILES
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@given(ids=st.lists(ODD.map(lambda text: f"q{text}q"), min_size=2, max_size=8))
def test_other_forms_keep_ids_to_the_letter(form: str, ids: list[str], tmp_path: Path) -> None:
    log = log_of(*({"request_id": one, "ttft_us": 1000, "input_tokens": 5} for one in ids))
    assert again(log, tmp_path / f"t.{form}").requests["request_id"].to_list() == ids


# --- anonymised ---------------------------------------------------------------------------------


def test_every_text_of_the_table_is_looked_after() -> None:
    """A new column of text must be given other names, or be known to name nobody."""
    texts = {name for name, column in COLUMNS.items() if column.dtype == pl.String}
    assert texts == {*IDS, *NAMES, "status", "vantage"}


SECRET = "Zanzibar quarterly numbers"


def private(folder: Path) -> Path:
    """A log in which everything that can name or quote somebody does."""
    lines = []
    for k in range(24):
        text = f"{SECRET}: " + "the same long beginning " * 40 + f"question {k % 5}"
        lines.append({
            "request_id": f"rq-alpha-{k}", "session_id": f"sn-beta-{k % 6}",
            "tenant": f"Umbrella-{k % 2}", "route": "/v1/hidden-route", "model": "falcon-custom",
            "replica": f"gpu-host-{k % 3}.corp", "version": "rel-gamma", "vantage": "edge-delta",
            "start": f"2026-05-04T10:{k:02d}:00Z", "messages": [{"role": "user", "content": text}],
            "prompt_tokens": 260, "completion_tokens": 20, "ttft_ms": 210.5 + k,
            "latency_ms": 900.0 + k, "status": 500 if k == 7 else 200,
        })  # fmt: skip
    path = folder / "private-log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@FORMS
def test_nothing_of_the_log_is_in_the_bytes(form: str, tmp_path: Path) -> None:
    path = private(tmp_path)
    log = read_log([str(path)])
    assert (log.requests["prefix_blocks"].list.len() > 10).all()
    words = (
        "Zanzibar", "quarterly", "beginning", "question", "rq-alpha", "sn-beta", "Umbrella",
        "hidden-route", "falcon", "gpu-host", "corp", "rel-gamma", "edge-delta", "private-log",
        *map(str, log.requests["prefix_blocks"].explode().drop_nulls().unique()),
    )  # fmt: skip

    def written(**options: Any) -> str:
        target = tmp_path / f"t.{form}"
        convert(log, output=target, **options)
        text = target.read_bytes().decode("utf-8", "replace")
        if form == "parquet":  # packed: also as it is unpacked
            text += pl.read_parquet(target).write_json()
        return text

    plain, other = written(), written(anonymize=True)
    assert "rq-alpha-3" in plain
    assert words[-1] in plain
    assert not [word for word in words if word in other]
    kept = written(anonymize=True, keep_models=True)
    assert [word for word in words if word in kept] == ["falcon"]


def test_names_are_equal_where_they_were_equal(tmp_path: Path) -> None:
    log = read_log([str(private(tmp_path))])
    old = table(log)
    new = anonymous(old)
    for name in (*IDS, *NAMES):
        pairs = pl.DataFrame({"old": old[name], "new": new[name]}).unique()
        assert pairs.height == pairs["old"].n_unique() == pairs["new"].n_unique()
    assert new["tenant"].head(3).to_list() == ["tenant-01", "tenant-02", "tenant-01"]
    assert new["model"].unique().to_list() == ["model-01"]
    assert new["vantage"].null_count() == new.height
    assert new.drop(*IDS, *NAMES, "vantage", "prefix_blocks").equals(
        old.drop(*IDS, *NAMES, "vantage", "prefix_blocks")
    )


def test_each_run_draws_other_names(tmp_path: Path) -> None:
    """No table of names made of one file tells anything of another."""
    old = table(read_log([str(private(tmp_path))]))
    one, other = anonymous(old), anonymous(old)
    for name in IDS:
        assert not set(one[name]) & set(other[name])
    shared = set(one["prefix_blocks"].explode()) & set(other["prefix_blocks"].explode())
    assert not shared - {None}


@FILES
@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.integers(0, 2**64 - 1), max_size=6), st.just([1, 2, 1])),
        min_size=1, max_size=9,
    )
)  # fmt: skip
def test_hashes_are_renamed_one_to_one(lists: list[list[int] | None]) -> None:
    frame = conform(pl.DataFrame({"line": range(len(lists))})).with_columns(
        pl.Series("prefix_blocks", lists, dtype=pl.List(pl.UInt64))
    )
    new = anonymous(frame)["prefix_blocks"].to_list()
    names: dict[int, int] = {}
    for old, now in zip(lists, new, strict=True):
        if old is None:
            assert now is None
            continue
        assert [names.setdefault(a, b) for a, b in zip(old, now, strict=True)] == now
    assert len(set(names.values())) == len(names)


def test_known_vantages_stay() -> None:
    frame = table(log_of(*({"vantage": one, "ttft_us": 9} for one in (*VANTAGES, "moon"))))
    assert anonymous(frame)["vantage"].to_list() == [*VANTAGES, None]


def test_times_move_by_whole_days_together() -> None:
    first = 1_790_000_123_456_789
    log = log_of(*({"start": first + k * 7_000_001, "ttft_us": 9} for k in range(5)),
                 {"start": None, "ttft_us": 9})  # fmt: skip
    frame = table(log)
    moves = set()
    for _ in range(5):
        moved, _ = shifted(frame)
        gaps = (moved["start"] - frame["start"]).drop_nulls().unique().to_list()
        assert len(gaps) == 1
        assert gaps[0] % DAY == 0
        assert moved["start"].null_count() == 1
        assert check(conform(moved.with_columns(line=0)))["start_dropped"].any() is False
        moves.add(gaps[0])
    assert len(moves) > 1
    bare = table(log_of({"start": 5_000_000, "ttft_us": 9}))
    assert shifted(bare)[0].equals(bare)


def test_a_row_without_a_date_does_not_keep_the_dates_of_others() -> None:
    frame = table(log_of({"start": 5, "ttft_us": 9}, {"start": 1_790_000_000_000_000,
                                                      "ttft_us": 9}))  # fmt: skip
    moved = shifted(frame)[0]["start"].to_list()
    assert moved[0] == 5
    assert moved[1] != 1_790_000_000_000_000


# --- what is refused, and the command -----------------------------------------------------------


@pytest.mark.parametrize("name", ["table", "table.xlsx", "-", "table.parquet.gz"])
def test_a_form_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="end of the file's name"):
        form_of(name)


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    path = private(tmp_path)
    before = path.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(UsageError, match="over the log"):
            convert(path, output=target)
    assert path.read_bytes() == before


def test_a_place_that_is_not_there_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        convert(SAMPLES / "healthy.jsonl", output=tmp_path / "no" / "t.csv")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        convert(SAMPLES / "healthy.jsonl", output=tmp_path / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_it_is_exported() -> None:
    assert ttftdoctor.convert is convert


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["convert", *arguments])


def test_the_command_accounts_for_every_row(tmp_path: Path) -> None:
    target = tmp_path / "t.parquet"
    done = run(str(SAMPLES / "claude-code.jsonl"), "-o", str(target), "--anonymize")
    assert done.exit_code == 0
    assert "(14 requests, 2 of them failed)" in done.stderr
    assert "rows read 35 = written 14 + rejected 21" in done.stderr
    assert "17 not_a_request" in done.stderr
    assert pl.read_parquet(target)["session_id"].str.contains("sess-7f").any() is False
    assert run(str(target), "-o", str(tmp_path / "u.csv"), "--quiet").stderr == ""


def test_the_command_refuses_in_words(tmp_path: Path) -> None:
    log = str(SAMPLES / "healthy.jsonl")
    for arguments, words in [
        ((log, "-o", str(tmp_path / "t.txt")), "end of the file's name"),
        ((log, "-o", str(tmp_path / "t.csv"), "--keep-models"), "--keep-models"),
        ((log, "-o", log), "over what is read"),
        ((str(tmp_path / "no.jsonl"), "-o", str(tmp_path / "t.csv")), "no such file"),
    ]:
        done = run(*arguments)
        assert done.exit_code == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
