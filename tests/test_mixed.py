"""Wrapped lines, lines of several writers and files of several formats: each record is read once,
by the reader that claims it, and nothing is lost without a name."""

from __future__ import annotations

import gzip
import io
import json
import resource
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ttftdoctor.errors import InputError, UnknownFormat
from ttftdoctor.intake import Log, read_log
from ttftdoctor.sources import Shape, Source
from ttftdoctor.sources.piles import Pile, Spool, together
from ttftdoctor.sources.wrappings import replica_of_path, wrapping_of

SAMPLES = Path(__file__).parents[1] / "sample_logs"
FLAT_TOO = ("eight_turns", "healthy", "peak_hour")


def lines_of(name: str) -> list[str]:
    (path,) = SAMPLES.glob(f"{name}.*")
    return path.read_text(encoding="utf-8").splitlines()


def records_of(name: str) -> list[str]:
    """The lines of a sample that are whole: a broken one could be any format's."""

    def whole(line: str) -> bool:
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False

    return [line for line in lines_of(name) if whole(line)]


def _dumps(**members: object) -> str:
    return json.dumps(members, ensure_ascii=False)


STAMP = "2026-08-01T10:00:00.123456789Z"
#: A line, wrapped as each of them does it.
WRAPS: dict[str, Callable[[str], str]] = {
    "docker": lambda t: _dumps(log=t + "\n", stream="stdout", time=STAMP),
    "kubernetes": lambda t: _dumps(
        log=t, stream="stdout", logtag="F",
        kubernetes={"pod_name": "vllm-0", "container_name": "vllm"},
    ),
    "filebeat": lambda t: _dumps(
        **{"@timestamp": STAMP, "message": t, "kubernetes": {"pod": {"name": "vllm-0"}}}
    ),
    "journald": lambda t: _dumps(
        MESSAGE=t, __REALTIME_TIMESTAMP="1785578400123456", _HOSTNAME="gpu1",
        CONTAINER_NAME="vllm-0",
    ),
    "loki": lambda t: _dumps(labels={"pod": "vllm-0"}, line=t, timestamp=STAMP),
    "gcp": lambda t: _dumps(
        textPayload=t, timestamp=STAMP,
        resource={"type": "k8s_container", "labels": {"pod_name": "vllm-0"}},
    ),
    "cri": lambda t: f"{STAMP} stdout F {t}",
    "kubectl": lambda t: f"[pod/vllm-0/vllm] {t}",
    "compose": lambda t: f"vllm-0  | {t}",
    "rfc5424": lambda t: f"<14>1 2026-08-01T10:00:00.123Z vllm-0 vllm 12 - - {t}",
    "rfc3164": lambda t: f"<14>Aug  1 10:00:00 vllm-0 vllm[12]: {t}",
    "journal": lambda t: f"2026-08-01T10:00:00+0000 vllm-0 vllm[12]: {t}",
    "stamped": lambda t: f"{STAMP} {t}",
    "coloured": lambda t: f"\x1b[36m{t}\x1b[0m",
    "compose, coloured": lambda t: f"\x1b[36mvllm-0  | \x1b[0m{t}",
    "kubectl, stamped": lambda t: f"[pod/vllm-0/vllm] {STAMP} {t}",
    "cri in docker": lambda t: _dumps(
        log=f"{STAMP} stderr F {t}\n", stream="stdout", time=STAMP
    ),
}  # fmt: skip
#: Those that do not say who wrote a line.
NAMELESS = {"docker", "cri", "stamped", "coloured", "cri in docker"}
TEXTS = ("vllm-log", "sglang-log", "lightllm", "lmdeploy", "llamacpp", "ollama-log", "tgi")
RECORDS = ("litellm", "otlp", "flat", "claude-code", "kong", "mooncake", "aiperf", "dynamo")


def accounted(log: Log) -> Log:
    for one in log.inputs:
        assert one.rows_read == one.rows_used + sum(one.rows_rejected.values()), one
    assert log.requests.height == sum(one.rows_used for one in log.inputs)
    return log


def read(path: Path, text: str | list[str] | bytes) -> Log:
    if isinstance(text, list):
        text = "".join(line + "\n" for line in text)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return accounted(read_log([str(path)]))


def assert_same_rows(plain: Log, other: Log, replica: str | None) -> None:
    """Equal but for the replica, which is the writer's name where a server's log had none."""
    want = plain.requests
    if replica is not None:
        server = pl.col("replica").is_null() & (pl.col("vantage") == "server")
        want = want.with_columns(
            pl.when(server.fill_null(False)).then(pl.lit(replica)).otherwise("replica")
            .alias("replica")
        )  # fmt: skip
    assert_frame_equal(other.requests, want)
    for one, two in zip(plain.inputs, other.inputs, strict=True):
        assert (one.format, one.rows_used, one.rows_rejected, one.first_rejects) == (
            two.format, two.rows_used, two.rows_rejected, two.first_rejects,
        )  # fmt: skip


# --- wrapped lines ------------------------------------------------------------------------------


def test_records_that_a_cloud_has_parsed_are_records(tmp_path: Path) -> None:
    bare = records_of("litellm")
    cloud = [
        f'{{"jsonPayload": {line}, "timestamp": "{STAMP}", "resource": {{"labels": {{}}}}}}'
        for line in bare
    ]
    cloud.insert(3, _dumps(textPayload="starting", timestamp=STAMP, resource={}))
    log = read(tmp_path / "cloud.json", cloud)
    plain = read(tmp_path / "plain.jsonl", bare)
    assert_frame_equal(log.requests.drop("line"), plain.requests.drop("line"))


def test_members_of_these_names_may_be_a_logs_own() -> None:
    own = [_dumps(log="a", stream=True, time=n, ttft_ms=3) for n in range(9)]
    assert wrapping_of(own) is None
    assert wrapping_of([_dumps(line=n, labels="x", ttft_ms=3) for n in range(9)]) is None


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("sample", ["vllm-log", "litellm"])
def test_what_is_in_wrapped_lines_is_read_as_if_it_were_bare(
    sample: str, wrap: str, tmp_path: Path
) -> None:
    bare = lines_of(sample)
    plain = read(tmp_path / "plain.log", bare)
    other = read(tmp_path / "wrapped.log", [WRAPS[wrap](line) for line in bare])
    assert_same_rows(plain, other, None if wrap in NAMELESS else "vllm-0")
    named = {"replica"} if sample == "vllm-log" and wrap not in NAMELESS else set()
    assert set(other.fields) == set(plain.fields) | named
    layers = {"coloured": 0, "kubectl, stamped": 2, "cri in docker": 2}.get(wrap, 1)
    assert len(other.notes) == len(plain.notes) + layers


@pytest.mark.parametrize("sample", [*TEXTS, *RECORDS])
def test_each_kind_of_log_is_read_from_containers(sample: str, tmp_path: Path) -> None:
    """By one wrapping of text and one of JSON."""
    bare = lines_of(sample)
    plain = read(tmp_path / "plain.log", bare)
    for wrap in ("docker", "compose"):
        other = read(tmp_path / "wrapped.log", [WRAPS[wrap](line) for line in bare])
        assert_same_rows(plain, other, None if wrap in NAMELESS else "vllm-0")


def test_no_sample_is_taken_for_a_wrapped_or_mixed_one() -> None:
    for path in sorted(p for p in SAMPLES.iterdir() if p.is_file() and p.suffix != ".py"):
        source = Source(str(path))
        assert source.wrapping is None, path
        source.close()


def test_long_lines_that_were_cut_are_put_together(tmp_path: Path) -> None:
    """Docker and the CRI cut at 16 KiB; pieces of two streams stand between one another."""
    bare = lines_of("vllm-log")
    plain = read(tmp_path / "plain.log", bare)
    docker, cri, where = [], [], []
    for number, line in enumerate(bare):
        cut = [line[at : at + 60] for at in range(0, len(line), 60)] or [""]
        where.append(len(docker) + 1)
        for at, piece in enumerate(cut):
            end = at == len(cut) - 1
            docker.append(_dumps(log=piece + "\n" * end, stream="stdout", time=STAMP))
            cri.append(f"{STAMP} stdout {'F' if end else 'P'} {piece}")
            # Another stream in the middle of the line, cut itself.
            half = "\n" if at % 2 or end else ""
            docker.append(_dumps(log=f"noise {number} {half}", stream="stderr", time=STAMP))
            cri.append(f"{STAMP} stderr {'F' if half else 'P'} noise {number}")
    for cut_lines in (docker, cri):
        other = read(tmp_path / "cut.log", cut_lines)
        assert_frame_equal(other.requests.drop("line"), plain.requests.drop("line"))
        placed = [where[line - 1] for line in plain.requests["line"]]
        assert other.requests["line"].to_list() == placed


def test_pieces_are_put_together_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = lines_of("litellm")
    plain = read(tmp_path / "plain.log", bare)
    cut = [
        f"{STAMP} stdout {'P' if at + 100 < len(line) else 'F'} {line[at : at + 100]}"
        for line in bare
        for at in range(0, len(line), 100)
    ]
    monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", 700)
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 6000)
    other = read(tmp_path / "cut.log", cut)
    assert_frame_equal(other.requests.drop("line"), plain.requests.drop("line"))


@pytest.mark.usefixtures("every_row")
def test_a_line_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [WRAPS["cri"](line) for line in lines_of("litellm")]
    endless = [f"{STAMP} stderr P {'x' * 500}" for _ in range(200)]
    monkeypatch.setattr("ttftdoctor.intake.mixed.MAX_LINE_BYTES", 20_000)
    monkeypatch.setattr("ttftdoctor.sources.CHUNK_BYTES", 4096)
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 40_000)
    log = read(tmp_path / "endless.log", good + endless + good)
    assert log.inputs[0].rows_rejected["line_too_long"] >= 1
    assert log.requests["request_id"].n_unique() * 2 == log.requests.height


def test_broken_wrappings_are_rejected_by_name(tmp_path: Path) -> None:
    wrapped = [WRAPS["docker"](line) for line in lines_of("litellm")]
    plain = read(tmp_path / "plain.log", lines_of("litellm"))
    log = read(tmp_path / "wrapped.log", [wrapped[0], wrapped[1][:40], *wrapped[2:], "not json"])
    broken = [line for line, why in log.inputs[0].first_rejects if why == "broken_wrapping"]
    assert broken == [2, len(wrapped) + 1]
    assert log.inputs[0].rows_read == plain.inputs[0].rows_read + 1


def test_bytes_of_the_journal_that_are_no_text(tmp_path: Path) -> None:
    """journalctl writes a message that is no UTF-8 as a list of numbers: not our log, and named."""
    lines = [WRAPS["journald"](line) for line in lines_of("flat")]
    lines.insert(1, _dumps(MESSAGE=[27, 91, 255], __REALTIME_TIMESTAMP="1", CONTAINER_NAME="x"))
    log = read(tmp_path / "journal.json", lines)
    assert log.inputs[0].rows_used == read(tmp_path / "p", lines_of("flat")).inputs[0].rows_used


def test_standard_input_is_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    data = "".join(WRAPS["kubectl"](line) + "\n" for line in lines_of("tgi")).encode()
    stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data)))
    monkeypatch.setattr(sys, "stdin", stdin)
    log = accounted(read_log(["-"]))
    assert [one.format for one in log.inputs] == ["tgi"]
    assert log.requests["replica"].unique().to_list() == ["vllm-0"]


@pytest.mark.parametrize(
    ("path", "pod"),
    [
        ("/var/log/containers/vllm-7d9f_prod_engine-" + "0af1" * 16 + ".log", "vllm-7d9f"),
        ("/var/log/pods/prod_vllm-0_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/engine/0.log", "vllm-0"),
        ("/logs/vllm.log", None),
        ("requests.jsonl", None),
    ],
)  # fmt: skip
def test_the_place_of_a_file_names_the_pod(path: str, pod: str | None) -> None:
    assert replica_of_path(path) == pod


def test_tables_and_levels_with_bars_are_no_services() -> None:
    assert wrapping_of(["id  | ttft"] + [f"r{n:02} | {n}" for n in range(40)]) is None
    assert wrapping_of(["INFO     | started", "WARNING  | slow"] * 20) is None
    found = wrapping_of(["vllm     | a", "litellm  | b"] * 20)
    assert found is not None
    assert "service" in found.name


# --- several writers ----------------------------------------------------------------------------


def test_replicas_whose_lines_alternate_are_told_apart(tmp_path: Path) -> None:
    """The engines count their requests alike: lines of one mean nothing to those of the other."""
    bare = lines_of("llamacpp")
    plain = read(tmp_path / "plain.log", bare)
    both = [f"[pod/llama-{n}/server] {line}" for line in bare for n in (0, 1)]
    log = read(tmp_path / "both.log", both)
    assert log.inputs[0].rows_used == 2 * plain.inputs[0].rows_used
    for n in (0, 1):
        of_one = log.requests.filter(pl.col("replica") == f"llama-{n}").drop("replica", "line")
        assert_frame_equal(of_one, plain.requests.drop("replica", "line"))
    assert (log.requests["line"] <= len(both)).all()


_DATABASE = "db-1       | LOG:  checkpoint complete: wrote 3 buffers"


def test_a_gateway_and_an_engine_in_one_compose_log(tmp_path: Path) -> None:
    """Each by its reader; lines of the database beside them are counted, and shown as unread."""
    gateway, engine = lines_of("litellm"), lines_of("vllm-log")
    lines = []
    for at in range(max(len(gateway), len(engine))):
        lines += [f"litellm-1  | {line}" for line in gateway[at : at + 1]]
        lines += [f"vllm-1     | {line}" for line in engine[at : at + 1]]
        lines.append(_DATABASE)
    log = read(tmp_path / "compose.log", lines)
    by_format = {one.format: one for one in log.inputs}
    assert set(by_format) == {"litellm", "vllm-log"}
    for name in by_format:
        alone = read(tmp_path / f"{name}.log", lines_of(name)).inputs[0]
        assert by_format[name].rows_used == alone.rows_used
        unread = {"no_reader_knows_it": lines.count(_DATABASE)} if name == "litellm" else {}
        assert by_format[name].rows_rejected == {**alone.rows_rejected, **unread}
    # A gateway's container does no prefill.
    whose = log.requests.filter(pl.col("vantage") == "gateway")["replica"]
    assert "litellm-1" not in whose.to_list()


def test_records_of_a_writer_that_no_reader_knows_are_told(tmp_path: Path) -> None:
    lines = [f"[pod/app-1/app] {_dumps(event='login', user=n)}" for n in range(7)]
    lines += [f"[pod/vllm-1/vllm] {line}" for line in lines_of("tgi")]
    log = read(tmp_path / "pods.log", lines)
    assert log.inputs[0].rows_rejected["no_reader_knows_it"] == 7
    assert log.inputs[0].first_rejects[0] == (1, "no_reader_knows_it")


def test_text_of_a_writer_that_no_reader_knows_is_counted(tmp_path: Path) -> None:
    lines = []
    for n, line in enumerate(lines_of("flat")):
        lines += [f"[pod/a/c] {line}", f"[pod/b/c] req={n} ttft={n}ms in=500 out=20"]
    log = read(tmp_path / "pods.log", lines)
    assert log.inputs[0].rows_rejected["no_reader_knows_it"] == len(lines) // 2
    assert (2, "no_reader_knows_it") in log.inputs[0].first_rejects


# --- many writers -------------------------------------------------------------------------------


def _plain(log: Log) -> pl.DataFrame:
    return log.requests.drop("replica").sort("line")


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("wrap", ["bare", "stamped", "cri", "compose"])
def test_records_of_many_writers_are_those_of_one_log(wrap: str, tmp_path: Path) -> None:
    """Whatever the number of writers: the same rows, each with its writer, and few files."""
    bare = (SAMPLES / "peak_hour.jsonl").read_text(encoding="utf-8").splitlines()[:600]
    plain = read(tmp_path / "plain.log", bare)
    inner: Callable[[str], str] = WRAPS[wrap] if wrap != "bare" else str
    pods = [n * 7 % 150 for n in range(len(bare))]
    lines = [f"[pod/vllm-{n}/c] {inner(line)}" for n, line in zip(pods, bare, strict=True)]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
    try:
        log = read(tmp_path / "pods.log", lines)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert_frame_equal(_plain(log), _plain(plain))
    assert log.inputs[0].rows_rejected == plain.inputs[0].rows_rejected
    if plain.requests["replica"].null_count() == plain.requests.height and wrap != "compose":
        server = log.requests.filter(pl.col("vantage") == "server")
        wanted = [f"vllm-{pods[line - 1]}" for line in server["line"]]
        assert server["replica"].to_list() == wanted


def test_the_cost_of_many_writers_is_that_of_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttftdoctor import intake

    read_of: list[int] = []
    one = intake.read_part

    def counted(*args: Any) -> Log:
        read_of.append(1)
        return one(*args)

    monkeypatch.setattr(intake, "read_part", counted)
    bare = lines_of("peak_hour")[:600]
    lines = [f"[pod/p{n % 60}/c] {line}" for n, line in enumerate(bare)]
    lines += [f"[pod/p{n}/c] the launcher says hello" for n in range(60)]
    log = read(tmp_path / "pods.log", lines)
    assert log.inputs[0].rows_used == 600
    assert log.inputs[0].rows_rejected["not_json"] == 60
    assert len(read_of) == 1


def test_text_of_many_writers_is_told_apart(tmp_path: Path) -> None:
    """Engines count their requests alike: lines of one mean nothing to those of the others."""
    bare = lines_of("llamacpp")
    plain = read(tmp_path / "plain.log", bare)
    lines = [f"[pod/llama-{n}/server] {line}" for line in bare for n in range(20)]
    log = read(tmp_path / "pods.log", lines)
    assert log.inputs[0].rows_used == 20 * plain.inputs[0].rows_used
    assert log.requests["replica"].n_unique() == 20
    for n in (0, 7, 19):
        of_one = log.requests.filter(pl.col("replica") == f"llama-{n}").drop("replica", "line")
        assert_frame_equal(of_one, plain.requests.drop("replica", "line"))


def test_requests_of_several_lines_are_told_apart_among_many_writers(tmp_path: Path) -> None:
    bare = lines_of("claude-code")
    plain = read(tmp_path / "plain.log", bare)
    lines = [f"[pod/c{n}/c] {line}" for n in range(18) for line in bare]
    log = read(tmp_path / "pods.log", lines)
    assert sum(one.rows_read for one in log.inputs) == 18 * plain.inputs[0].rows_read


@settings(max_examples=40)
@given(data=st.data())
def test_piles_give_back_what_was_laid_aside(data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=9)
    with closing(Spool()) as spool:
        piles: dict[int, Pile] = {}
        want: dict[int, list[tuple[str, int, int]]] = {}
        number = 0
        for block in data.draw(st.lists(st.lists(st.tuples(text, st.integers(0, 5)), max_size=9))):
            numbers = list(range(number, number + len(block)))
            number += len(block)
            whose = np.array([writer % 3 for _, writer in block], np.int64)
            frame = pl.DataFrame(
                {"line": numbers, "text": [t for t, _ in block], "writer": [w for _, w in block]},
                schema={"line": pl.Int64, "text": pl.String, "writer": pl.Int64},
            )
            for (line, writer), at in zip(block, numbers, strict=True):
                want.setdefault(writer % 3, []).append((line, at, writer))
            for key, pile in spool.lay(frame, whose):
                if key in piles:
                    piles[key].add(pile)
                else:
                    piles[key] = pile
        assert piles.keys() == want.keys()
        for key, pile in piles.items():
            assert pile.count == len(want[key])
            with pile.opened() as file:
                assert file.read().decode() == "".join(f"{line}\n" for line, _, _ in want[key])
            first = data.draw(st.integers(0, pile.count - 1))
            numbers_, writers = pile.rows(first, 3)
            rows = [*want[key], *[want[key][-1]] * 3][first : first + 3]
            assert numbers_.tolist() == [at for _, at, _ in rows]
            assert writers.tolist() == [writer for _, _, writer in rows]
        if piles:
            both = together(piles.values())
            assert both.count == number
            with both.opened() as file:
                assert len(file.read()) == sum(
                    len(t.encode()) + 1 for w in want.values() for t, _, _ in w
                )


# --- damage, records and tables that look wrapped -----------------------------------------------


@pytest.mark.parametrize("wrap", ["bare", "docker", "kubectl", "mixed"])
def test_a_log_that_was_cut_off_is_told_however_it_is_wrapped(wrap: str, tmp_path: Path) -> None:
    bare = (SAMPLES / "peak_hour.jsonl").read_text(encoding="utf-8").splitlines()
    lines = bare if wrap in ("bare", "mixed") else [WRAPS[wrap](line) for line in bare]
    if wrap == "mixed":
        lines = lines_of("vllm-log") + lines
    data = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    log = read(tmp_path / "log.gz", data[: len(data) // 2])
    assert any("the packed file is damaged" in text for text in log.warnings)


SHIPPED: dict[str, dict[str, object]] = {
    "filebeat": {"@timestamp": STAMP, "message": "done", "agent": {"type": "filebeat"},
                 "container": {"name": "gw"}},
    "kubernetes": {"log": "done", "kubernetes": {"pod_name": "p"}},
    "journal": {"MESSAGE": "done", "__REALTIME_TIMESTAMP": "1", "_HOSTNAME": "h"},
    "loki": {"line": 12, "labels": {"env": "prod"}},
    "docker": {"log": "x", "stream": "stdout", "time": STAMP},
    "gcp": {"resource": "/v1/chat", "textPayload": "x"},
}  # fmt: skip


@pytest.mark.parametrize("format_", [None, "flat"])
@pytest.mark.parametrize("shipper", SHIPPED)
def test_records_with_the_fields_of_a_shipper_are_records(
    shipper: str, format_: str | None, tmp_path: Path
) -> None:
    records = [json.loads(line) for line in lines_of("peak_hour")[:60]]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(_dumps(**SHIPPED[shipper], **one) + "\n" for one in records))
    log = accounted(read_log([str(path)], format=format_))
    assert [one.format for one in log.inputs] == ["flat"]
    assert log.inputs[0].rows_used == 60
    assert log.requests["ttft_us"].null_count() == 0


def test_records_beside_their_own_text_stay_wrapped(tmp_path: Path) -> None:
    """A shipper that parses a line and keeps it as well: it is read with its writer."""
    bare = records_of("tgi")
    both = [
        _dumps(log=line, kubernetes={"pod_name": "vllm-0"}, **json.loads(line)) for line in bare
    ]
    assert_same_rows(read(tmp_path / "p", bare), read(tmp_path / "both.log", both), "vllm-0")


@pytest.mark.parametrize("separator", ["|", ","])
@pytest.mark.parametrize("first", ["session_id", "model", "col_1"])
def test_a_table_whose_first_column_looks_like_a_service_is_a_table(
    separator: str, first: str, tmp_path: Path
) -> None:
    names = [first, "request_id", "timestamp", "input_tokens", "output_tokens", "ttft_ms", "e2e_ms"]
    tail = " | x" if separator == "," else ""
    rows = [
        [
            f"chat-{n % 9}{tail}",
            f"r{n}",
            f"2026-03-10T09:00:{n:02}.5Z",
            "900",
            "80",
            f"{n}.5",
            "900",
        ]
        for n in range(40)
    ]
    log = read(tmp_path / "t.csv", [separator.join(row) for row in [names, *rows]])
    assert log.inputs[0].rows_used == 40
    assert log.requests["replica"].null_count() == 40
    if first == "session_id":
        assert log.requests["session_id"].n_unique() == 9


def test_wrapped_lines_that_no_reader_knows_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        read(tmp_path / "app.log", [WRAPS["docker"](f"hello {n}") for n in range(9)])
    with pytest.raises(InputError):
        read(tmp_path / "none.log", [WRAPS["docker"]("") for n in range(9)])


# --- several formats ----------------------------------------------------------------------------


def test_engine_lines_between_access_records(tmp_path: Path) -> None:
    access, engine = lines_of("envoy"), lines_of("vllm-log")
    alone = {n: read(tmp_path / f"{n}.log", lines_of(n)).inputs[0] for n in ("envoy", "vllm-log")}
    few = [line for pair in zip(access, engine[: len(access)], strict=False) for line in pair]
    for lines in (few + engine[len(access) :], engine + access, access + engine):
        log = read(tmp_path / "both.log", lines)
        assert {one.format for one in log.inputs} == {"envoy", "vllm-log"}
        for one in log.inputs:
            assert one.rows_used == alone[one.format].rows_used
            assert one.rows_rejected == alone[one.format].rows_rejected
        for line, request in log.requests.select("line", "request_id").iter_rows():
            assert request.removeprefix("chatcmpl-")[:7] in lines[line - 1]


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("order", ["after", "between"])
def test_text_of_two_engines_in_one_file(order: str, tmp_path: Path) -> None:
    """Each reader of text gets all of it and knows its lines."""
    one, two = lines_of("lmdeploy"), lines_of("llamacpp")
    lines = two + one
    if order == "between":
        lines = [line for at, line in enumerate(two) for line in (line, *one[at : at + 1])]
    log = read(tmp_path / "both.log", lines)
    assert {record.format for record in log.inputs} == {"lmdeploy", "llamacpp"}
    for record in log.inputs:
        alone = read(tmp_path / "one.log", lines_of(record.format))
        assert record.rows_used == alone.inputs[0].rows_used
        of_one = log.requests.filter(pl.col("source") == log.inputs.index(record))
        assert_frame_equal(of_one.drop("line", "source"), alone.requests.drop("line", "source"))


PAIRS = [
    ("litellm", "flat"), ("flat", "litellm"), ("kong", "envoy"), ("langfuse", "helicone"),
    ("tgi", "trtllm"), ("aiperf", "sglang-metrics"), ("otlp", "flat"),
]  # fmt: skip


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
@pytest.mark.parametrize("order", ["after", "between"])
def test_records_of_two_formats_in_one_file(
    pair: tuple[str, str], order: str, tmp_path: Path
) -> None:
    one, two = (records_of(name) for name in pair)
    if order == "after":
        lines = one + two
    else:
        long, short = (one, two) if len(one) > len(two) else (two, one)
        lines = [line for at, line in enumerate(long) for line in (line, *short[at : at + 1])]
    log = read(tmp_path / "both.jsonl", lines)
    assert {record.format for record in log.inputs} == set(pair)
    for record in log.inputs:
        alone = read(tmp_path / "one.jsonl", records_of(record.format))
        assert record.rows_read == alone.inputs[0].rows_read
        assert record.rows_used == alone.inputs[0].rows_used
        assert record.rows_rejected == alone.inputs[0].rows_rejected
        of_one = log.requests.filter(pl.col("source") == log.inputs.index(record))
        assert_frame_equal(of_one.drop("line", "source"), alone.requests.drop("line", "source"))


def test_a_format_that_begins_far_behind_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is looked at, and pieces all over a plain file."""
    monkeypatch.setattr("ttftdoctor.sources.HEAD_BYTES", 8000)
    monkeypatch.setattr("ttftdoctor.sources.PROBE_BYTES", 4000)
    flat = (SAMPLES / "peak_hour.jsonl").read_text().splitlines()
    log = read(tmp_path / "both.jsonl", flat + lines_of("kong"))
    assert {one.format: one.rows_read for one in log.inputs} == {"flat": 3075, "kong": 18}


def test_text_that_no_reader_claims_stays_a_reject(tmp_path: Path) -> None:
    lines = records_of("litellm")
    log = read(tmp_path / "some.jsonl", [*lines[:3], "starting up ...", *lines[3:]])
    assert log.inputs[0].rows_rejected["not_json"] == 1
    assert len(log.inputs) == 1


def test_one_format_with_records_of_several_kinds_stays_one(tmp_path: Path) -> None:
    """Its own reader has them all, and says itself what is none."""
    for name in ("claude-code", "codex", "k6", "ollama", "apisix", "trtllm"):
        log = read(tmp_path / f"{name}.jsonl", lines_of(name))
        assert [one.format for one in log.inputs] == [name]


@settings(max_examples=25)
@given(data=st.data())
def test_any_order_of_lines_of_writers_and_formats_is_accounted_for(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows are all there whatever stands between them; the lines of a writer keep their order."""
    pool = [
        ("litellm", lines_of("litellm")[:8]),
        ("flat", lines_of("flat")[:8]),
        ("junk", ["", "hello", '{"half":', "[1, 2]", '{"a": 1}', "\x1b[31m", "a | b", "é\x00"]),
    ]
    order = data.draw(st.lists(st.sampled_from([0, 1, 2]), min_size=3, max_size=24))
    at = [0, 0, 0]
    lines = []
    for which in order:
        _, its = pool[which]
        lines.append(its[at[which] % len(its)])
        at[which] += 1
    path = tmp_path_factory.mktemp("any") / "any.log"
    try:
        log = read(path, lines)
    except InputError:
        return
    assert len(log.inputs) <= 2
    assert (log.requests["line"] <= len(lines)).all()
    for one in log.inputs:
        assert one.format in ("litellm", "flat")


def test_a_named_format_is_read_from_wrapped_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrapped.log"
    path.write_text("".join(WRAPS["docker"](line) + "\n" for line in lines_of("litellm")))
    log = accounted(read_log([str(path)], format="litellm"))
    assert log.requests.height == read(tmp_path / "p", lines_of("litellm")).requests.height


def test_the_head_of_coloured_records_is_json(tmp_path: Path) -> None:
    path = tmp_path / "coloured.jsonl"
    path.write_text("".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines_of("flat")))
    source = Source(str(path))
    assert source.head.shape is Shape.JSON
    source.close()
