"""The flat reader: usual names, units, stamps, shapes, and when it asks instead of guessing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ttftdoctor.errors import AskUser, InputError, UnknownFormat
from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options
from ttftdoctor.readers.flat import normal
from ttftdoctor.table import COLUMNS

START = 1_777_629_600_000_000  # 2026-05-01T10:00:00Z


def read(path: Path, *records: dict[str, Any], **options: Any) -> Log:
    """Write records as JSON lines (a lone one twice, so that it is no document) and read them."""
    rows = records * 2 if len(records) == 1 else records
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    return read_log([str(path)], options=Options(**options))


def first(log: Log) -> dict[str, Any]:
    assert log.requests.height, log.inputs
    return log.requests.row(0, named=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft_ms", ("ttft", "ms")),
        ("TTFT", ("ttft", None)),
        ("timeToFirstToken", ("time_to_first_token", None)),
        ("firstTokenLatency_ms", ("first_token_latency", "ms")),
        ("time-to-first-token.seconds", ("time_to_first_token", "s")),
        ("e2e latency (ms)", ("e2e_latency", "ms")),
        ("queue_time_us", ("queue_time", "us")),
        ("latency_ns", ("latency", "ns")),
        ("ttft_s", ("ttft", "s")),
        ("ms", ("ms", None)),
    ],
)
def test_a_name_is_its_words_and_a_unit(name: str, expected: tuple[str, str | None]) -> None:
    assert normal(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "ttft_ms", "TTFT_ms", "ttftMs", "time_to_first_token_ms", "timeToFirstTokenMs",
        "first_token_latency_ms", "firstTokenLatency_ms", "time_to_first_chunk_ms",
        "first_token_ms", "first-token-latency-ms", "client_ttft_ms", "metrics.ttft_ms",
        "gen_ai.server.time_to_first_token_ms",
    ],
)  # fmt: skip
def test_names_of_the_first_token_time(log: Path, name: str) -> None:
    found = read(log, {name: 180.5, "prompt_tokens": 1200})
    assert first(found)["ttft_us"] == 180_500
    assert found.fields["ttft_us"].source == name
    assert found.fields["ttft_us"].kind == "logged"


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("input_tokens", ["prompt_tokens", "input_tokens", "promptTokens", "isl", "prompt_len"]),
        ("cached_tokens", ["cached_tokens", "cache_read_input_tokens", "num_cached_tokens"]),
        ("output_tokens", ["completion_tokens", "output_tokens", "osl", "generated_tokens"]),
        ("session_id", ["session_id", "session", "conversationId", "chat_id", "thread_id"]),
        ("turn", ["turn", "turn_index", "round"]),
        ("replica", ["replica", "pod", "upstream_addr", "server", "instance_id"]),
        ("tenant", ["tenant", "org_id", "customer"]),
        ("route", ["route", "path", "endpoint"]),
        ("version", ["version", "build", "image_tag"]),
        ("attempts", ["attempts", "num_attempts"]),
    ],
)
def test_other_usual_names(log: Path, column: str, names: list[str]) -> None:
    for name in names:
        value = 7 if "tokens" in column or column in ("turn", "attempts") else "x7"
        found = read(log, {"ttft_ms": 20, "latency_ms": 90, name: value})
        assert first(found)[column] == value, name
        assert found.fields[column].source == name


def test_nested_fields_are_found_by_their_path(log: Path) -> None:
    found = read(
        log,
        {
            "timing": {"ttft_ms": 31.25, "e2e_ms": 800},
            "usage": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 512}},
        },
    )
    row = first(found)
    assert (row["ttft_us"], row["e2e_us"]) == (31_250, 800_000)
    assert (row["input_tokens"], row["cached_tokens"]) == (900, 512)
    assert found.fields["cached_tokens"].source == "usage.prompt_tokens_details.cached_tokens"


def test_retries_are_attempts_less_one(log: Path) -> None:
    assert first(read(log, {"ttft_ms": 20, "retries": 2}))["attempts"] == 3


def test_messages_become_turns(log: Path) -> None:
    rows = [{"ttft_ms": 20, "num_messages": n} for n in (1, 3, 5)]
    assert read(log, *rows).requests["turn"].to_list() == [1, 2, 3]


def test_an_unknown_record_is_refused_with_its_names(log: Path) -> None:
    with pytest.raises(UnknownFormat, match="it holds: colour, size") as caught:
        read(log, {"colour": 1, "size": 2})
    assert "--map" in str(caught.value)


# --- units --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "value"),
    [
        ("s", 0.0495), ("sec", 0.0495), ("seconds", 0.0495), ("ms", 49.5), ("msec", 49.5),
        ("millis", 49.5), ("us", 49500), ("micros", 49500), ("ns", 49_500_000), ("nanos", 49.5e6),
    ],
)  # fmt: skip
def test_a_unit_at_the_end_of_the_name_decides(log: Path, suffix: str, value: float) -> None:
    found = read(log, {f"ttft_{suffix}": value, "prompt_tokens": 10})
    assert first(found)["ttft_us"] == 49_500
    assert found.fields["ttft_us"].why.startswith("the name ends in")


@pytest.mark.parametrize(
    ("text", "us"),
    [("49.3s", 49_300_000), ("49.3 ms", 49_300), ("812us", 812), ("812 µs", 812),
     ("3000ns", 3), ("1.5e3ms", 1_500_000), ("2min", 120_000_000)],
)  # fmt: skip
def test_a_value_may_carry_its_own_unit(log: Path, text: str, us: int) -> None:
    found = read(log, {"ttft": text, "prompt_tokens": 10})
    assert first(found)["ttft_us"] == us
    assert found.fields["ttft_us"].why == "each value carries its unit"


def test_a_value_with_a_unit_beats_the_name(log: Path) -> None:
    rows = [{"ttft_ms": 80.0}, {"ttft_ms": "0.081s"}, {"ttft_ms": "82"}]
    assert read(log, *rows).requests["ttft_us"].to_list() == [80_000, 81_000, 82_000]


def chat(ttft: float, e2e: float, output: int = 100) -> list[dict[str, Any]]:
    """Rows without units whose times scale together."""
    return [
        {"ttft": ttft * f, "latency": e2e * f, "completion_tokens": output, "prompt_tokens": 500}
        for f in (1.0, 1.25, 1.5, 0.75)
    ]


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")])
def test_the_only_unit_that_agrees_is_taken_and_said(log: Path, factor: float, unit: str) -> None:
    """0.62 s to the first token, then 100 tokens in 3 s: no other unit makes a decode rate."""
    found = read(log, *chat(0.62 * factor, 3.62 * factor))
    assert first(found)["ttft_us"] == 620_000
    assert first(found)["e2e_us"] == 3_620_000
    field = found.fields["ttft_us"]
    assert (field.unit, field.kind) == (unit, "inferred")
    assert any(f"read as {unit}" in note for note in found.notes)


def test_two_units_in_one_record_are_detected(log: Path) -> None:
    """First token in milliseconds, whole request in seconds, and neither name says so."""
    rows = [
        {"ttft": t, "duration": d, "completion_tokens": 200, "prompt_tokens": 400}
        for t, d in ((310, 4.31), (420, 4.52), (280, 4.2), (505, 4.61), (390, 4.41))
    ]
    found = read(log, *rows)
    assert first(found)["ttft_us"] == 310_000
    assert first(found)["e2e_us"] == 4_310_000
    assert (found.fields["ttft_us"].unit, found.fields["e2e_us"].unit) == ("ms", "s")


@pytest.mark.parametrize("values", [[25.0, 31.0, 44.0, 38.0], [20, 21, 50, 59]])
def test_an_ambiguous_unit_asks(log: Path, values: list[float]) -> None:
    """Whole numbers between 20 and 60 could be a fast service in ms or a drowned one in s."""
    with pytest.raises(AskUser, match="unit of 'ttft' cannot be decided") as caught:
        read(log, *[{"ttft": v, "prompt_tokens": 100} for v in values])
    assert "--unit ttft=ms" in str(caught.value)
    assert str(log) in str(caught.value)
    found = read(log, *[{"ttft": v, "prompt_tokens": 100} for v in values], units={"ttft": "s"})
    assert first(found)["ttft_us"] == values[0] * 1_000_000
    assert found.fields["ttft_us"].why == "given with --unit"


@pytest.mark.parametrize("key", ["ttft", "ttft_us"])
def test_unit_may_name_the_field_or_the_column(log: Path, key: str) -> None:
    found = read(log, {"ttft": 30, "prompt_tokens": 100}, units={key: "ms"})
    assert first(found)["ttft_us"] == 30_000


def test_unit_beats_the_name(log: Path) -> None:
    """Whoever knows better may say so."""
    assert first(read(log, {"ttft_ms": 2.5}, units={"ttft_ms": "s"}))["ttft_us"] == 2_500_000


def test_map_names_a_field(log: Path) -> None:
    rows = [{"zeta": 40.0, "eta": 7, "omega_ms": 900} for _ in range(3)]
    found = read(
        log, *rows, columns={"ttft_us": "zeta", "input_tokens": "eta", "e2e": "omega_ms"},
        units={"zeta": "ms"},
    )  # fmt: skip
    row = first(found)
    assert (row["ttft_us"], row["input_tokens"], row["e2e_us"]) == (40_000, 7, 900_000)


def test_map_names_a_nested_field_and_overrides_a_usual_one(log: Path) -> None:
    found = read(log, {"ttft_ms": 1.0, "x": {"real_ms": 55}}, columns={"ttft_us": "x.real_ms"})
    assert first(found)["ttft_us"] == 55_000


@pytest.mark.parametrize(
    ("columns", "what", "choice"),
    [
        ({"ttft_us": "nowhere"}, "no field 'nowhere'", "ttft_ms"),
        ({"colour": "ttft_ms"}, "names no column 'colour'", "input_tokens"),
    ],
)
def test_a_wrong_map_says_what_there_is(
    log: Path, columns: dict[str, str], what: str, choice: str
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read(log, {"ttft_ms": 1.0}, columns=columns)
    assert choice in str(caught.value)


# --- tokens -------------------------------------------------------------------------------------


def test_cached_tokens_inside_the_input_stay_inside(log: Path) -> None:
    rows = [{"ttft_ms": 9, "prompt_tokens": 1000 + i, "cached_tokens": 900} for i in range(4)]
    found = read(log, *rows)
    assert found.requests["input_tokens"].to_list() == [1000, 1001, 1002, 1003]
    assert found.fields["input_tokens"].kind == "logged"


def test_cached_tokens_beside_the_input_are_added(log: Path) -> None:
    """A row with more cached than input proves that the input excludes them, for every row."""
    rows = [
        {"ttft_ms": 9, "input_tokens": 120, "cache_read_input_tokens": 4000,
         "cache_creation_input_tokens": 80},
        {"ttft_ms": 9, "input_tokens": 500, "cache_read_input_tokens": 0,
         "cache_creation_input_tokens": 0},
    ]  # fmt: skip
    found = read(log, *rows)
    assert found.requests["input_tokens"].to_list() == [4200, 500]
    assert found.requests["cached_tokens"].to_list() == [4000, 0]
    assert found.fields["input_tokens"].kind == "derived"
    assert "prove" in found.fields["input_tokens"].why


def test_prompt_n_is_what_was_computed(log: Path) -> None:
    """As llama.cpp counts: ``cache_n`` were kept and ``prompt_n`` computed, whichever is more."""
    rows = [{"ttft_ms": 300, "total_ms": 900, "prompt_n": 900, "cache_n": n} for n in (0, 400)]
    for row in rows:
        read_row = first(read(log, row))
        assert read_row["input_tokens"] == 900 + row["cache_n"]
        assert read_row["cached_tokens"] == row["cache_n"]
    alone = first(read(log, {"ttft_ms": 300, "total_ms": 900, "prompt_n": 900}))
    assert (alone["input_tokens"], alone["cached_tokens"]) == (900, None)


def test_null_is_not_zero(log: Path) -> None:
    rows = [{"ttft_ms": 9, "prompt_tokens": 100, "cached_tokens": c} for c in (0, None, "-", "")]
    assert read(log, *rows).requests["cached_tokens"].to_list() == [0, None, None, None]


def minutes(step_s: float, count: int, rows: int = 12) -> list[dict[str, Any]]:
    """Rows of a log with a field ``requests``, so many seconds apart."""
    return [
        {"timestamp": 1_777_629_600 + n * step_s, "ttft_ms": 400 + n, "prompt_tokens": 900,
         "requests": count + n % 2}
        for n in range(rows)
    ]  # fmt: skip


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_averages_of_a_minute_are_no_requests(log: Path, unit: int) -> None:
    rows = [{**row, "timestamp": row["timestamp"] * unit} for row in minutes(60, 120)]
    found = read(log, *rows)
    assert found.inputs[0].ttft_set_aside == {"average_of_several": 12}
    assert found.requests["ttft_us"].null_count() == 12
    assert any("averages" in note for note in found.notes)


@pytest.mark.parametrize("rows", [minutes(61.7, 120), minutes(1, 120), minutes(60, 1)])
def test_a_count_beside_requests_is_no_sign_of_averages(
    log: Path, rows: list[dict[str, Any]]
) -> None:
    """Not without even steps, which stamps of whole seconds are not, nor where it counts one."""
    if rows[0]["requests"] == 1:
        rows = [{**row, "requests": 1} for row in rows]
    assert read(log, *rows).requests["ttft_us"].null_count() == 0


# --- stamps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stamp",
    [
        1777629600, 1777629600.0, 1777629600000, 1777629600000000, 1777629600000000000,
        "1777629600", "1777629600000", "1777629600000000000",
        "2026-05-01T10:00:00Z", "2026-05-01T10:00:00", "2026-05-01 10:00:00",
        "2026-05-01 10:00:00 UTC", "2026-05-01T12:00:00+02:00", "2026-05-01T12:00:00.000+0200",
        "2026-05-01 03:00:00-07", "2026-05-01T10:00:00.0000000Z", "2026-05-01T10:00Z",
    ],
)  # fmt: skip
def test_stamps_of_every_size_and_form(log: Path, stamp: float | str) -> None:
    assert first(read(log, {"timestamp": stamp, "ttft_ms": 9}))["start"] == START


def test_nanosecond_stamps_lose_nothing(log: Path) -> None:
    """Seventeen digits do not fit a float; whole microseconds must come out exact."""
    found = read(log, {"timestamp": 1777629600123457999, "ttft_ms": 9})
    assert first(found)["start"] == 1_777_629_600_123_457


def test_a_stamp_without_a_zone_is_read_in_the_zone_given(log: Path) -> None:
    rows = [{"timestamp": "2026-05-01T10:00:00", "ttft_ms": 9}] * 2
    berlin = read(log, *rows, timezone="Europe/Berlin")
    assert first(berlin)["start"] == START - 2 * 3_600_000_000
    zoned = [{"timestamp": "2026-05-01T10:00:00Z", "ttft_ms": 9}] * 2
    assert first(read(log, *zoned, timezone="Europe/Berlin"))["start"] == START


def test_two_stamps_give_the_first_token_time(log: Path) -> None:
    found = read(
        log,
        {"start_time": "2026-05-01T10:00:00Z", "first_token_at": "2026-05-01T10:00:00.250Z",
         "end_time": "2026-05-01T10:00:03Z", "prompt_tokens": 10},
    )  # fmt: skip
    row = first(found)
    assert (row["ttft_us"], row["e2e_us"]) == (250_000, 3_000_000)
    assert found.fields["ttft_us"].kind == "derived"


# --- shapes -------------------------------------------------------------------------------------

ROWS = [
    {"id": f"r{i}", "session": "s1", "turn": i + 1, "timestamp": 1777629600 + i,
     "prompt_tokens": 100 * i + 80, "completion_tokens": 40, "ttft_ms": 50.5 + i,
     "latency_ms": 900.0 + i, "status": "ok"}
    for i in range(5)
]  # fmt: skip


def table(path: Path) -> pl.DataFrame:
    log = read_log([str(path)])
    assert log.inputs[0].format == "flat"
    assert log.inputs[0].rows_read == log.inputs[0].rows_used == len(ROWS)
    return log.requests.select(list(COLUMNS))


def test_every_shape_gives_the_same_table(tmp_path: Path) -> None:
    """JSON lines, an array, objects one after another, a list or a mapping in a document, CSV
    with three separators, TSV, Parquet; the name of the file says nothing.
    """
    texts = {
        "lines": "\n".join(map(json.dumps, ROWS)),
        "array": json.dumps(ROWS),
        "pretty": json.dumps(ROWS, indent=2),
        "concatenated": "".join(json.dumps(r, indent=1) for r in ROWS),
        "results": json.dumps({"name": "run", "results": ROWS}),
        "requests": json.dumps({"meta": {"n": 5}, "requests": ROWS}, indent=2),
        "mapping": json.dumps({f"k{i}": row for i, row in enumerate(ROWS)}),
    }
    for name, separator in (("csv", ","), ("tsv", "\t"), ("semicolons", ";")):
        texts[name] = pl.DataFrame(ROWS).write_csv(separator=separator)
    texts["bom"] = "\ufeff" + texts["csv"]
    texts["crlf"] = texts["csv"].replace("\n", "\r\n")
    want = None
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        got = table(path)
        want = got if want is None else want
        assert_frame_equal(got, want)
    pl.DataFrame(ROWS).write_parquet(tmp_path / "parquet")
    assert want is not None
    assert_frame_equal(table(tmp_path / "parquet"), want)
    assert want["ttft_us"].to_list() == [50_500, 51_500, 52_500, 53_500, 54_500]
    assert want["start"].to_list() == [START + i * 1_000_000 for i in range(5)]


def test_parquet_with_types_of_its_own(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS).with_columns(
        pl.from_epoch("timestamp", time_unit="s").dt.replace_time_zone("UTC"),
        pl.lit([1, 2**64 - 1], dtype=pl.List(pl.UInt64)).alias("prefix_blocks"),
        pl.lit(16).alias("block_tokens"),
        pl.lit(True).alias("stream"),
    )
    frame.write_parquet(tmp_path / "log.parquet")
    log = read_log([str(tmp_path / "log.parquet")])
    row = first(log)
    assert (row["start"], row["ttft_us"], row["streamed"]) == (START, 50_500, True)
    assert (row["prefix_blocks"], row["block_tokens"]) == ([1, 2**64 - 1], 16)


# --- outcome ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("ok", None), ("success", None), (200, None), ("200", None), ("200.0", None),
        (204, None), ("stop", None), ("completed", None), (None, None), (True, None),
        (500, "failed_request"), ("503", "failed_request"), ("error", "failed_request"),
        ("timeout", "failed_request"), (404, "failed_request"),
        (429, "rate_limited"), ("rate_limited", "rate_limited"), ("Rate limit hit", "rate_limited"),
        ("throttled", "rate_limited"),
        (499, "aborted_request"), ("cancelled", "aborted_request"), ("aborted", "aborted_request"),
    ],
)  # fmt: skip
def test_words_and_codes_of_status(log: Path, status: Any, reason: str | None) -> None:
    rows = [{"ttft_ms": 30, "prompt_tokens": 9, "status": s} for s in ("ok", status)]
    found = read(log, *rows)
    assert dict(found.inputs[0].rows_rejected) == ({} if reason is None else {reason: 1})
    assert found.failed.height == (reason is not None)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"success": False}, "failed_request"),
        ({"success": True}, None),
        ({"error": "connection reset"}, "failed_request"),
        ({"error": ""}, None),
        ({"error": None}, None),
        ({"error_code": 429}, "rate_limited"),
        ({"error_code": "0"}, None),
        ({"status": 200, "error": "upstream said 429"}, "rate_limited"),
    ],
)
def test_other_signs_of_failure(log: Path, extra: dict[str, Any], reason: str | None) -> None:
    found = read(log, {"ttft_ms": 30, "prompt_tokens": 9}, {"ttft_ms": 30, **extra})
    assert dict(found.inputs[0].rows_rejected) == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ttft_ms": -1}, "negative_duration"),
        ({"latency_ms": -1}, "negative_duration"),
        ({"ttft_ms": float("nan")}, "not_a_number:ttft_ms"),
        ({"ttft_ms": float("inf")}, "not_a_number:ttft_ms"),
        ({"ttft_ms": "fast"}, "wrong_type:ttft_ms"),
        ({"ttft_ms": [1]}, "wrong_type:ttft_ms"),
        ({"prompt_tokens": "many"}, "wrong_type:prompt_tokens"),
        ({"prompt_tokens": -5}, "negative_tokens"),
        ({"prompt_tokens": 10**11}, "absurd_tokens"),
        ({"ttft_ms": 1e9, "latency_ms": 2e9}, "absurd_duration"),
    ],
)
def test_values_that_cannot_be_reject_their_row_by_name(
    log: Path, change: dict[str, Any], reason: str
) -> None:
    good = {"ttft_ms": 30, "latency_ms": 400, "prompt_tokens": 9}
    found = read(log, good, good, {**good, **change})
    assert dict(found.inputs[0].rows_rejected) == {reason: 1}
    assert found.inputs[0].first_rejects == ((3, reason),)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stream": False}, "not_streamed"),
        ({"ttft_ms": 0}, "ttft_zero"),
        ({"ttft_ms": None}, "ttft_missing"),
        ({"ttft_ms": 500}, "ttft_after_e2e"),
    ],
)
def test_a_time_that_is_no_ttft_is_set_aside_and_the_row_kept(
    log: Path, change: dict[str, Any], reason: str
) -> None:
    good = {"ttft_ms": 30, "latency_ms": 400, "prompt_tokens": 9, "stream": True}
    found = read(log, good, {**good, **change})
    assert found.requests.height == 2
    assert dict(found.inputs[0].ttft_set_aside) == {reason: 1}
    assert found.requests["ttft_us"].to_list() == [30_000, None]


# --- round trip ---------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(st.integers(2_000, 30_000_000), st.integers(1, 60_000_000), st.integers(1, 5000)),
    min_size=2, max_size=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[
    HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(REQUESTS)
def test_the_unit_of_a_log_changes_nothing(
    tmp_path: Path, requests: list[tuple[int, int, int]]
) -> None:
    """The same requests written in s, ms, us and ns, with and without the stamp's unit in the
    name, give the same table.
    """
    tables = []
    for unit, factor in (("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3)):
        rows = [
            {
                f"ttft_{unit}": ttft / factor,
                f"latency_{unit}": (ttft + rest) / factor,
                f"start_time_{unit}": START // 1000 * 1000 / factor
                if unit != "ns"
                else START * 1000,
                "prompt_tokens": tokens,
            }
            for ttft, rest, tokens in requests
        ]
        tables.append(read(tmp_path / f"{unit}.jsonl", *rows).requests)
    assert tables[0]["ttft_us"].to_list() == [ttft for ttft, _, _ in requests]
    assert tables[0]["e2e_us"].to_list() == [ttft + rest for ttft, rest, _ in requests]
    for other in tables[1:]:
        assert_frame_equal(tables[0], other)


def test_a_stamp_that_was_never_set_is_no_start(log: Path) -> None:
    """One zero among dates would make the clock of the log a relative one; one of many zeros is."""
    rows = [{"timestamp": 1_777_629_600 + n, "ttft_ms": 90 + n} for n in range(30)]
    found = read(log, *rows, {"timestamp": 0, "ttft_ms": 90})
    assert found.requests.height == 31
    assert found.requests["start"].null_count() == 1
    assert found.requests["start"].min() == START
    assert any("1 rows start before 2000" in text for text in found.warnings)
    moved = [{**row, "timestamp": row["timestamp"] - 1_777_629_600} for row in rows]
    assert read(log, *moved).requests["start"].null_count() == 0
    assert read(log, *moved, *rows).requests["start"].null_count() == 0
