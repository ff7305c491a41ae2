"""One request that a client, a gateway and an engine log is counted once; different ones never."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttftdoctor.intake import Log, read_log
from ttftdoctor.intake.layers import REPEATED, SEEN, Once, once
from ttftdoctor.table import LINE, SCHEMA, SET_ASIDE

SAMPLES = Path(__file__).parents[1] / "sample_logs"
START_US = 1_785_578_400 * 10**6


def accounted(log: Log) -> Log:
    for at, one in enumerate(log.inputs):
        assert one.rows_read == one.rows_used + sum(one.rows_rejected.values()), one
        mine = log.requests.filter(pl.col("source") == at)
        assert mine.height == one.rows_used
        assert sum(one.ttft_set_aside.values()) == mine[SET_ASIDE].is_not_null().sum()
    return log


# --- rows of requests whose truth is known --------------------------------------------------------


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = {**SCHEMA, LINE: pl.Int64, "source": pl.Int32, SET_ASIDE: pl.String,
               "ttft_logged_us": pl.Int64, "truth": pl.Int64}  # fmt: skip
    filled = [{name: row.get(name) for name in columns} for row in rows]
    out = pl.DataFrame(filled, schema=columns)
    return out.with_columns(pl.col("ttft_us").alias("ttft_logged_us"))


def request(rng: random.Random, truth: int, at_us: int) -> dict[str, Any]:
    return {
        "truth": truth, "start": at_us, "input_tokens": rng.randint(20, 30_000),
        "output_tokens": rng.randint(1, 2_000), "id": uuid.UUID(int=rng.getrandbits(128)),
    }  # fmt: skip


def seen(
    one: dict[str, Any], source: int, line: int, vantage: str, rng: random.Random, **more: Any
) -> dict[str, Any]:
    """The row that a layer writes of a request."""
    inside = {"client": 0, "gateway": 4_000, "server": 9_000}[vantage]
    e2e = 200_000 + one["output_tokens"] * 20_000
    return {
        "truth": one["truth"], "source": source, LINE: line, "vantage": vantage,
        "start": one["start"] + inside + rng.randint(0, 800),
        "input_tokens": one["input_tokens"], "output_tokens": one["output_tokens"],
        "ttft_us": 150_000 - inside, "e2e_us": e2e - 2 * inside,
    } | more  # fmt: skip


def requests(rng: random.Random, count: int, gap_us: int = 400_000) -> list[dict[str, Any]]:
    at = START_US
    out = []
    for truth in range(count):
        at += rng.randint(1, 2 * gap_us)
        out.append(request(rng, truth, at))
    return out


def names(found: pl.DataFrame) -> tuple[list[str], list[str]]:
    sources = int(found["source"].max() or 0) + 1  # type: ignore[arg-type]
    return [f"log-{n}" for n in range(sources)], [f"format-{n}" for n in range(sources)]


def counted(rows: list[dict[str, Any]]) -> Once:
    made = frame(rows)
    return once(made, *names(made))


def wrongly(found: Once, rows: list[dict[str, Any]]) -> int:
    """How many rows were laid to another request than theirs."""
    truth = {(row["source"], row[LINE]): row["truth"] for row in rows}
    moved = found.moved.select("source", LINE, "to_source", "to_line")
    return sum(truth[a, b] != truth[c, d] for a, b, c, d in moved.iter_rows())


ID_FORMS = [
    lambda u: (str(u), f"chatcmpl-{u}"),
    lambda u: (f"chatcmpl-{u.hex}", f"chatcmpl-{u.hex}-0a1b2c3d"),
    lambda u: (f"chatcmpl-{u.hex}", u.hex),
    lambda u: (f"cmpl-{u.hex}", f"cmpl-{u.hex}-0"),
    lambda u: (str(u).upper(), f"0_chatcmpl-{u}-0a1b2c3d"),
    lambda u: (f"chatcmpl-req-{u.int % 10**6}", f"req-{u.int % 10**6}"),
]


@pytest.mark.parametrize("form", ID_FORMS)
def test_ids_agree_but_for_what_a_stack_puts_around_them(form: Any) -> None:
    rng = random.Random(1)
    rows = []
    for line, one in enumerate(requests(rng, 40), start=1):
        outer, inner = form(one["id"])
        rows.append(seen(one, 0, line, "gateway", rng, request_id=outer))
        rows.append(seen(one, 1, line, "server", rng, request_id=inner, queue_us=700,
                         cached_tokens=5, replica="r1"))  # fmt: skip
    found = counted(rows)
    assert found.requests.height == 40
    assert wrongly(found, rows) == 0
    assert set(found.left_out["reason"]) == {SEEN}
    assert set(found.left_out["source"]) == {1}
    kept = found.requests
    assert kept["vantage"].unique().to_list() == ["gateway"]
    assert kept["ttft_us"].unique().to_list() == [146_000]
    assert kept["queue_us"].unique().to_list() == [700]
    assert kept["cached_tokens"].unique().to_list() == [5]
    assert kept["replica"].unique().to_list() == ["r1"]
    assert found.notes == (
        "40 requests were seen by several layers (log-0, log-1) and are counted once: the TTFT is "
        "the gateway's; queue times, cached tokens and replicas are the server's",
    )


def test_without_ids_tokens_and_starts_decide() -> None:
    rng = random.Random(2)
    rows = []
    for line, one in enumerate(requests(rng, 120), start=1):
        rows.append(seen(one, 0, line, "client", rng))
        rows.append(seen(one, 1, line, "server", rng, request_id=one["id"].hex))
    found = counted(rows)
    assert found.requests.height == 120
    assert wrongly(found, rows) == 0


@pytest.mark.parametrize("offset_s", [0, 3600, -5 * 3600 - 1800])
def test_a_clock_in_another_time_zone_is_seen_through(offset_s: int) -> None:
    """By ids that cannot come up twice: a run that is made again an hour later looks alike."""
    rng = random.Random(3)
    for ids in (True, False):
        rows = []
        for line, one in enumerate(requests(rng, 60), start=1):
            name = str(one["id"]) if ids else None
            rows.append(seen(one, 0, line, "gateway", rng, request_id=name))
            inner = seen(one, 1, line, "server", rng, request_id=name)
            inner["start"] += offset_s * 10**6
            rows.append(inner)
        found = counted(rows)
        assert found.requests.height == (60 if ids or not offset_s else 120)
        assert wrongly(found, rows) == 0


@pytest.mark.parametrize("offset_s", [0, -90, 90])
def test_a_clock_that_is_set_wrong_is_seen_through_in_a_long_log(offset_s: int) -> None:
    """In a short one it may be the next run of the same trace."""
    for gap_us, height in ((30_000_000, 60), (400_000, 60 if not offset_s else 120)):
        rng = random.Random(18)
        rows = []
        for line, one in enumerate(requests(rng, 60, gap_us), start=1):
            rows.append(seen(one, 0, line, "client", rng))
            inner = seen(one, 1, line, "server", rng)
            inner["start"] += offset_s * 10**6
            rows.append(inner)
        found = counted(rows)
        assert found.requests.height == height
        assert wrongly(found, rows) == 0


def test_three_layers_are_one_request_by_the_outermost_clock_that_saw_first_tokens() -> None:
    rng = random.Random(4)
    rows = []
    for line, one in enumerate(requests(rng, 30), start=1):
        base = str(one["id"])
        rows.append(seen(one, 0, line, "client", rng, request_id=base, ttft_us=None,
                         session_id="s"))  # fmt: skip
        rows.append(seen(one, 1, line, "gateway", rng, request_id=base, tenant="t"))
        rows.append(seen(one, 2, line, "server", rng, request_id=f"chatcmpl-{base}", queue_us=9))
    made = frame(rows).with_columns(
        pl.when(pl.col("ttft_us").is_null()).then(pl.lit("ttft_missing")).alias(SET_ASIDE)
    )
    found = once(made, *names(made))
    kept = found.requests
    assert kept.height == 30
    assert set(kept["vantage"]) == {"gateway"}
    assert set(kept["session_id"]) == {"s"}
    assert set(kept["tenant"]) == {"t"}
    assert set(kept["queue_us"]) == {9}
    assert kept[SET_ASIDE].null_count() == 30


def test_a_queue_longer_than_the_whole_wait_of_the_other_clock_is_left_out() -> None:
    rng = random.Random(5)
    (one,) = requests(rng, 1)
    rows = [
        seen(one, 0, 1, "gateway", rng, request_id=str(one["id"])),
        seen(one, 1, 1, "server", rng, request_id=str(one["id"]), queue_us=10**7),
    ]
    found = counted(rows)
    assert found.requests.height == 1
    assert found.requests["queue_us"].item() is None


# --- what must stay two ---------------------------------------------------------------------------


def test_replicas_and_runs_of_one_kind_are_no_layers() -> None:
    """Two runs of one trace have the same ids, tokens and arrivals, and are two runs."""
    rng = random.Random(6)
    rows = []
    for line, one in enumerate(requests(rng, 50), start=1):
        for source in (0, 1):
            rows.append(seen(one, source, line, "client", rng, request_id=f"req-{line:05}"))
    made = frame(rows)
    assert once(made, ["a", "b"], ["flat", "flat"]).requests.height == 100


def test_counters_of_two_services_are_no_ids() -> None:
    rng = random.Random(7)
    rows = []
    for source, vantage in enumerate(("gateway", "server")):
        for line, one in enumerate(requests(rng, 200), start=1):
            row = seen(one, source, line, vantage, rng, request_id=str(line))
            rows.append(row | {"truth": source * 1000 + line})
    found = counted(rows)
    assert found.requests.height == 400


def test_a_load_of_one_length_stays_as_it_is() -> None:
    """All tokens are equal: which is which cannot be known without ids."""
    rng = random.Random(8)
    rows = []
    for line, one in enumerate(requests(rng, 50, gap_us=20_000_000), start=1):
        fixed = one | {"input_tokens": 512, "output_tokens": 128}
        rows.append(seen(fixed, 0, line, "client", rng))
        rows.append(seen(fixed, 1, line, "server", rng))
    assert counted(rows).requests.height == 100


def test_choices_of_one_id_are_not_guessed_at() -> None:
    rng = random.Random(9)
    rows = []
    for line, one in enumerate(requests(rng, 20), start=1):
        rows.append(seen(one, 0, line, "gateway", rng, request_id=f"cmpl-{one['id'].hex}"))
        for choice in (0, 1):
            rows.append(seen(one, 1, 2 * line + choice, "server", rng, output_tokens=7 + choice,
                             request_id=f"cmpl-{one['id'].hex}-{choice}"))  # fmt: skip
    assert counted(rows).requests.height == 60


def test_the_same_ids_on_another_day_are_another_run() -> None:
    rng = random.Random(10)
    rows = []
    for line, one in enumerate(requests(rng, 50), start=1):
        rows.append(seen(one, 0, line, "client", rng, request_id=str(one["id"])))
        later = one | {"start": one["start"] + 3 * 86_400 * 10**6 + 7 * 10**6}
        rows.append(seen(later, 1, line, "server", rng, request_id=str(one["id"])))
    assert counted(rows).requests.height == 100


def two_runs(change: Any = dict, ids: Any = None, count: int = 60) -> Once:
    """A client's log and a server's of requests that are alike but for the change."""
    rng = random.Random(19)
    rows = []
    for line, one in enumerate(requests(rng, count), start=1):
        about = {"session_id": f"s{line % 7}", "model": "m1"}
        name = ids(one, line) if ids else None
        outer = seen(one, 0, line, "client", rng, request_id=name, **about)
        rows.append(outer)
        rows.append(change(seen(one, 1, line, "server", rng, request_id=name, **about)))
    return counted(rows)


def weak_id(one: dict[str, Any], line: int) -> str:
    return f"req-{line:05}"


def strong_id(one: dict[str, Any], line: int) -> str:
    return str(one["id"])


@pytest.mark.parametrize("ids", [None, weak_id, strong_id])
def test_what_nothing_speaks_against_is_one(ids: Any) -> None:
    assert two_runs(ids=ids).requests.height == 60
    named = two_runs(lambda row: row | {"model": "vendor/M1-2026-03-10", "session_id": None}, ids)
    assert named.requests.height == 60


@pytest.mark.parametrize("ids", [None, weak_id, strong_id])
@pytest.mark.parametrize("days", [3, 1 / 24])
def test_one_broken_stamp_does_not_make_two_days_one(ids: Any, days: float) -> None:
    def later(row: dict[str, Any]) -> dict[str, Any]:
        later_us = 0 if row[LINE] == 8 else row["start"] + int(days * 86_400 * 10**6)
        return row | {"start": later_us, "ttft_us": row["ttft_us"] * 3}

    assert two_runs(later, ids).requests.height == 120


def test_a_row_with_a_broken_stamp_takes_no_part() -> None:
    for ids in (None, weak_id, strong_id):
        found = two_runs(lambda row: row | {"start": 0} if row[LINE] == 8 else row, ids)
        assert found.requests.height == 61


@pytest.mark.parametrize("ids", [None, weak_id])
def test_clocks_without_a_date_need_ids_that_cannot_come_up_twice(ids: Any) -> None:
    """One trace that is replayed on two services has its own arrivals in both logs."""

    def runs(name: Any) -> int:
        rng = random.Random(20)
        rows = []
        for line, one in enumerate(requests(rng, 60), start=1):
            since = one | {"start": one["start"] - START_US}
            for source, vantage in enumerate(("client", "server")):
                row = seen(since, source, line, vantage, rng)
                rows.append(row | {"request_id": name(one, line) if name else None})
        return counted(rows).requests.height

    assert runs(ids) == 120
    assert runs(strong_id) == 60


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "waited longer inside": {"ttft_us": 400_000},
    "took longer inside": {"e2e_us": 90_000_000},
    "another model and session": {"model": "other", "session_id": "t"},
    "another session, about as many tokens": {"session_id": "t", "more": 9},
    "another model, about as many tokens": {"model": "m2", "more": 9},
    "another session, tokens unknown": {"session_id": "t", "input_tokens": None,
                                        "output_tokens": None},
}  # fmt: skip


@pytest.mark.parametrize("ids", [None, weak_id, strong_id])
@pytest.mark.parametrize("said", CONTRADICTIONS)
def test_rows_that_contradict_each_other_are_two(said: str, ids: Any) -> None:
    what = CONTRADICTIONS[said]

    def change(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"input_tokens": row["input_tokens"] + what.get("more", 0)} | what

    assert two_runs(change, ids).requests.height == 120


@pytest.mark.parametrize("what", ["model", "session_id"])
def test_another_name_of_the_model_or_session_counts_without_ids(what: str) -> None:
    for ids, height in ((None, 120), (weak_id, 120), (strong_id, 60)):
        assert two_runs(lambda row: row | {what: "other"}, ids).requests.height == height


def test_ids_that_cannot_come_up_twice_and_differ_are_of_two_requests() -> None:
    other = random.Random(21)
    found = two_runs(
        lambda row: row | {"request_id": str(uuid.UUID(int=other.getrandbits(128)))}, strong_id
    )
    assert found.requests.height == 120


def test_choices_of_one_id_are_different_requests() -> None:
    """What a trace does first and then has one id, and a number behind it."""

    def named(step: int) -> Any:
        return lambda one, line: f"{one['id']}-{step}"

    def second(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"request_id": row["request_id"][:-1] + "1"}

    assert two_runs(ids=named(0)).requests.height == 60
    assert two_runs(second, named(0)).requests.height == 120
    assert two_runs(lambda row: row | {"request_id": row["request_id"] + "-1"}, strong_id
                    ).requests.height == 120  # fmt: skip

    rng = random.Random(22)
    every = [uuid.UUID(int=rng.getrandbits(128)) for _ in range(31)]
    rows = []
    for line, one in enumerate(requests(rng, 60), start=1):
        # Both layers tell of both steps.
        name = f"{every[line // 2]}-{line % 2}"
        for source, vantage in enumerate(("client", "server")):
            rows.append(seen(one, source, line, vantage, rng, request_id=name))
    found = counted(rows)
    assert found.requests.height == 60
    assert wrongly(found, rows) == 0


@settings(max_examples=100)
@given(data=st.data())
def test_a_trace_that_is_run_again_is_another_run(data: st.DataObject) -> None:
    """Logged elsewhere, later or on another model; some stamps may be broken, some figures gone."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    form = data.draw(st.sampled_from(["none", "counter", "own"]))
    offset_s = data.draw(st.sampled_from([300, 3600, 5 * 3600 + 1800, 86_400, 10**6]))
    mirrored = data.draw(st.booleans())
    broken = data.draw(st.integers(0, 5))
    rows = []
    for line, one in enumerate(requests(rng, data.draw(st.integers(1, 80))), start=1):
        for source, vantage in enumerate(("client", "server")):
            name = {
                "none": None, "counter": f"req-{line:05}",
                "own": str(uuid.UUID(int=rng.getrandbits(128))),
            }[form]  # fmt: skip
            row = seen(one, source, line, vantage, rng, request_id=name, model="m1")
            row["truth"] = 1000 * source + line
            if source:
                row |= {"model": "m2"} if mirrored else {"start": row["start"] + offset_s * 10**6}
            if line <= broken:
                row["start"] = 5
            rows.append(row)
    found = counted(rows)
    assert found.requests.height == len(rows)


@settings(max_examples=150)
@given(data=st.data())
def test_different_requests_are_never_made_one(data: st.DataObject) -> None:
    """Two or three layers see some of the requests each, with or without ids of their own.

    However many there are, how dense, how alike in length, or how far their clocks are apart.
    """
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    count = data.draw(st.integers(1, 120))
    gap = data.draw(st.sampled_from([1_000, 50_000, 2_000_000]))
    every = requests(rng, count, gap)
    lengths = data.draw(st.sampled_from([None, 3, 40]))
    if lengths is not None:
        for one in every:
            one["input_tokens"] = 100 * rng.randint(1, lengths)
            one["output_tokens"] = 10 * rng.randint(1, lengths)
    rows: list[dict[str, Any]] = []
    layers = data.draw(st.sampled_from([("client", "server"), ("gateway", "server"),
                                        ("client", "gateway", "server")]))  # fmt: skip
    for source, vantage in enumerate(layers):
        ids = data.draw(st.sampled_from(["own", "shared", "none", "counter"]))
        share = data.draw(st.sampled_from([0.1, 0.6, 1.0]))
        offset = data.draw(st.sampled_from([0, 0, 30_000, 3_600_000_000, 400_000_000]))
        line = 0
        for one in every:
            if rng.random() > share:
                continue
            line += 1
            name = {
                "own": uuid.UUID(int=rng.getrandbits(128)).hex, "shared": f"chatcmpl-{one['id']}",
                "none": None, "counter": str(line),
            }[ids]  # fmt: skip
            row = seen(one, source, line, vantage, rng, request_id=name)
            row["start"] += offset
            rows.append(row)
    if not rows:
        return
    made = frame(rows)
    found = once(made, [str(n) for n in range(3)], [f"format-{n}" for n in range(3)])
    assert wrongly(found, rows) == 0
    assert found.requests.height + found.left_out.height == len(rows)
    # Every request that was logged is still there, once or as often as it could not be known.
    kept = {(a, b) for a, b in found.requests.select("source", LINE).iter_rows()}
    assert {row["truth"] for row in rows} == {
        row["truth"] for row in rows if (row["source"], row[LINE]) in kept
    }


@settings(max_examples=100)
@given(data=st.data())
def test_the_logs_of_unrelated_services_are_left_alone(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    alike = data.draw(st.sampled_from([2, 10, 5_000]))
    rows = []
    truth = 0
    for source, vantage in enumerate(("gateway", "server")):
        ids = data.draw(st.sampled_from(["own", "none", "counter"]))
        for line, one in enumerate(
            requests(rng, data.draw(st.integers(1, 100)), data.draw(st.integers(1, 10**6))), 1
        ):
            truth += 1
            one |= {"input_tokens": 7 * rng.randint(1, alike), "truth": truth,
                    "output_tokens": rng.randint(1, alike)}  # fmt: skip
            name = {"own": one["id"].hex, "none": None, "counter": f"req-{line}"}[ids]
            rows.append(seen(one, source, line, vantage, rng, request_id=name))
    assert wrongly(counted(rows), rows) == 0


# --- whole files ----------------------------------------------------------------------------------


def gateway_row(one: dict[str, Any]) -> dict[str, Any]:
    start = one["start"] / 1e6
    return {
        "id": f"chatcmpl-{one['id']}", "call_type": "acompletion", "stream": True,
        "startTime": start, "completionStartTime": start + 0.8, "endTime": start + 3,
        "model": "m", "model_map_information": {}, "hidden_params": {}, "status": "success",
        "prompt_tokens": one["input_tokens"], "completion_tokens": one["output_tokens"],
    }  # fmt: skip


def engine_row(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "request_id": str(one["id"]), "start": (one["start"] + 5000) / 1e6, "vantage": "server",
        "prompt_tokens": one["input_tokens"], "completion_tokens": one["output_tokens"],
        "cached_tokens": 16, "ttft_ms": 700, "queue_ms": 120, "latency_ms": 2900,
        "replica": "gpu-1",
    }  # fmt: skip


def jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_folder_of_two_layers_is_counted_once(tmp_path: Path) -> None:
    every = requests(random.Random(11), 40)
    jsonl(tmp_path / "gateway.jsonl", [gateway_row(one) for one in every])
    jsonl(tmp_path / "server.jsonl", [engine_row(one) for one in every[:30]])
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests.height == 40
    by_format = {one.format: one for one in log.inputs}
    assert by_format["litellm"].rows_used == 40
    assert dict(by_format["flat"].rows_rejected) == {SEEN: 30}
    assert by_format["flat"].first_rejects[0] == (1, SEEN)
    assert log.requests["ttft_us"].unique().to_list() == [800_000]
    assert log.requests["queue_us"].count() == 30
    assert any("seen by several layers" in note for note in log.notes)
    assert any("10 requests of" in note for note in log.notes)


def test_a_request_that_fails_in_two_layers_fails_once(tmp_path: Path) -> None:
    every = requests(random.Random(16), 30)
    bad = {one["id"] for one in every[::3]}
    error = {"status": "failure", "error_information": {"error_code": "500"}}
    for name, row, how in (
        ("gateway", gateway_row, error), ("server", engine_row, {"status": "error"})
    ):  # fmt: skip
        rows = [row(one) | (how if one["id"] in bad else {}) for one in every]
        jsonl(tmp_path / f"{name}.jsonl", rows)
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests.height == 20
    assert log.failed.height == 10
    assert [dict(one.rows_rejected) for one in log.inputs] == [{"failed_request": 10}, {SEEN: 30}]
    assert {why for _, why in log.inputs[1].first_rejects} == {SEEN}


def test_layers_of_several_files_each(tmp_path: Path) -> None:
    """Hours or replicas of one layer are one layer; a clock is not chosen by the hour."""
    every = requests(random.Random(17), 60)
    for n in range(3):
        jsonl(tmp_path / f"gateway-{n}.jsonl", [gateway_row(one) for one in every[20 * n :][:20]])
    for n in range(2):
        jsonl(tmp_path / f"server-{n}.jsonl", [engine_row(one) for one in every[n::2]])
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests.height == 60
    assert set(log.requests["vantage"]) == {"gateway"}
    assert log.requests["queue_us"].null_count() == 0
    (note,) = [note for note in log.notes if "several layers" in note]
    assert "60 requests" in note
    assert "(3 logs of litellm, 2 logs of flat)" in note


def test_two_layers_in_one_file_are_counted_once(tmp_path: Path) -> None:
    every = requests(random.Random(12), 30)
    both = [row(one) for one in every for row in (gateway_row, engine_row)]
    jsonl(tmp_path / "both.jsonl", both)
    log = accounted(read_log([str(tmp_path / "both.jsonl")]))
    assert log.requests.height == 30
    assert {one.format for one in log.inputs} == {"litellm", "flat"}


def test_rows_told_again_are_counted_once(tmp_path: Path) -> None:
    """In one file or in another; the same id with other figures is another try."""
    every = [engine_row(one) for one in requests(random.Random(13), 12)]
    jsonl(tmp_path / "a.jsonl", [*every, *every[:3], every[4] | {"ttft_ms": 900}])
    jsonl(tmp_path / "b.jsonl", every[6:])
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests.height == 13
    assert [dict(one.rows_rejected) for one in log.inputs] == [{REPEATED: 3}, {REPEATED: 6}]
    assert log.inputs[0].first_rejects == ((13, REPEATED), (14, REPEATED), (15, REPEATED))


PLACEHOLDERS = ["unknown", "0", "-1", "<none>", "N/A", "-", str(uuid.UUID(int=0))]


@pytest.mark.parametrize("name", [*PLACEHOLDERS, "chat", "42", "trace-0"])
@pytest.mark.parametrize("known", [{"ttft_ms": 80}, {"ttft_ms": 80, "latency_ms": 300}, {}])
def test_equal_rows_whose_id_names_no_request_are_as_many(
    name: str, known: dict[str, int], tmp_path: Path
) -> None:
    """A user, a route or nothing, with stamps of whole seconds or without any."""
    rows = [
        {"request_id": name, "timestamp": f"2026-03-10T09:00:{n // 3:02}Z", "prompt_tokens": 512,
         "completion_tokens": 16} | known
        for n in range(60)
    ]  # fmt: skip
    jsonl(tmp_path / "a.jsonl", rows)
    assert accounted(read_log([str(tmp_path / "a.jsonl")])).requests.height == 60
    if known:
        without = [{k: v for k, v in row.items() if k != "timestamp"} for row in rows]
        jsonl(tmp_path / "b.jsonl", without)
        assert accounted(read_log([str(tmp_path / "b.jsonl")])).requests.height == 60


@pytest.mark.parametrize("name", ["req-00007", str(uuid.UUID(int=7 << 99 | 0xABC123456789))])
def test_an_id_of_many_different_rows_names_no_request(name: str, tmp_path: Path) -> None:
    """Nor does it make its equal rows one, which it would do if it came up only with them."""
    every = [engine_row(one) | {"request_id": name} for one in requests(random.Random(23), 12)]
    jsonl(tmp_path / "a.jsonl", [*every, every[0]])
    assert accounted(read_log([str(tmp_path / "a.jsonl")])).requests.height == 13
    jsonl(tmp_path / "a.jsonl", [every[0], every[1], every[0]])
    assert accounted(read_log([str(tmp_path / "a.jsonl")])).requests.height == 2


def test_probes_of_two_replicas_are_two_probes(tmp_path: Path) -> None:
    rows = [
        {"session_id": "probe", "timestamp": f"2026-03-10T09:00:{n:02}Z", "input_tokens": 10,
         "output_tokens": 1, "ttft_ms": 50}
        for n in range(60)
    ]  # fmt: skip
    for name in ("a", "b"):
        jsonl(tmp_path / f"{name}.jsonl", rows)
    assert accounted(read_log([str(tmp_path)])).requests.height == 120


def test_a_log_that_is_given_twice_is_counted_once_by_its_sessions(tmp_path: Path) -> None:
    rows = [engine_row(one) | {"session_id": f"s{one['truth'] % 5}"}
            for one in requests(random.Random(24), 30)]  # fmt: skip
    for row in rows:
        del row["request_id"]
    for name in ("a", "b"):
        jsonl(tmp_path / f"{name}.jsonl", rows)
    assert accounted(read_log([str(tmp_path)])).requests.height == 30


def test_a_replay_with_the_ids_of_the_first_run_is_another_run(tmp_path: Path) -> None:
    rows = [
        {k: v for k, v in engine_row(one).items() if k not in ("ttft_ms", "latency_ms", "queue_ms")}
        for one in requests(random.Random(25), 30)
    ]
    jsonl(tmp_path / "a.jsonl", rows)
    jsonl(tmp_path / "b.jsonl", [row | {"start": row["start"] + 1800} for row in rows])
    assert accounted(read_log([str(tmp_path)])).requests.height == 60


def test_equal_rows_without_an_id_are_as_many_requests(tmp_path: Path) -> None:
    one = engine_row(requests(random.Random(14), 1)[0])
    del one["request_id"]
    jsonl(tmp_path / "a.jsonl", [one] * 5)
    assert accounted(read_log([str(tmp_path / "a.jsonl")])).requests.height == 5


@pytest.mark.parametrize("sample", ["claude-code", "codex"])
def test_a_session_that_goes_on_in_another_file_repeats_its_calls(
    sample: str, tmp_path: Path
) -> None:
    lines = (SAMPLES / f"{sample}.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(lines))
    alone = accounted(read_log([str(tmp_path / "a.jsonl")]))
    (tmp_path / "b.jsonl").write_text("".join(lines))
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests.height == alone.requests.height
    assert log.inputs[1].rows_rejected[REPEATED] == alone.requests.height


def test_a_forked_transcript_whose_first_lines_are_gone(tmp_path: Path) -> None:
    """The copy of the first call has no question before it any more, so it begins later."""
    lines = (SAMPLES / "claude-code.jsonl").read_text().splitlines(keepends=True)
    alone = accounted(read_log([str(SAMPLES / "claude-code.jsonl")]))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (tmp_path / "b.jsonl").write_text("".join(lines[2:]))
    log = accounted(read_log([str(tmp_path)]))
    assert log.requests["request_id"].drop_nulls().is_duplicated().sum() == (
        alone.requests["request_id"].drop_nulls().is_duplicated().sum()
    )


def test_prompts_follow_their_requests(tmp_path: Path) -> None:
    from ttftdoctor.readers import Options

    every = [one | {"input_tokens": 180} for one in requests(random.Random(15), 20)]
    engine = [engine_row(one) | {"messages": [{"role": "user", "content": f"hello {n} " * 90}]}
              for n, one in enumerate(every)]  # fmt: skip
    jsonl(tmp_path / "gateway.jsonl", [gateway_row(one) for one in every])
    jsonl(tmp_path / "server.jsonl", engine)
    log = accounted(read_log([str(tmp_path)], options=Options(text=True)))
    assert log.requests.height == 20
    assert log.prompts is not None
    joined = log.requests.join(log.prompts, on=["source", LINE])
    assert joined.height == 20
    assert log.requests["prefix_blocks"].null_count() == 0


def test_samples_of_all_formats_are_of_one_request(tmp_path: Path) -> None:
    """The request that every sample knows is one, in a gateway's log and an engine's."""
    for name in ("litellm.jsonl", "vllm-log.log"):
        (tmp_path / name).write_bytes((SAMPLES / name).read_bytes())
    log = accounted(read_log([str(tmp_path)]))
    apart = sum(read_log([str(path)]).requests.height for path in tmp_path.iterdir())
    rejected = sum(one.rows_rejected.get(SEEN, 0) for one in log.inputs)
    assert log.requests.height == apart - rejected
