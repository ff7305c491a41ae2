"""Logs that are tables of PostgreSQL (a real server, started here) and of ClickHouse.

A server of ClickHouse is in no package index: its engine is real here (``chdb``), its HTTP
interface is a stub (``clickhouse_server.py``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from reading import START_S

import ttftdoctor
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.intake import Log, read_log
from ttftdoctor.readers import Options
from ttftdoctor.sources.databases import open_rows, statement

try:
    import psycopg
except ImportError:
    psycopg = None

PASSWORD = "s3cr3t/with@signs#"
IN_ADDRESS = "s3cr3t%2Fwith%40signs%23"


def _program(name: str) -> str | None:
    """A program of the server, on the path or where Debian puts it."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next((str(place) for place in places), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A throw-away cluster that listens at a socket in its own folder; gives the folder."""
    pytest.importorskip("psycopg")
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed")
    as_other: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        if shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no runuser")
        as_other = ["runuser", "-u", "postgres", "--"]
    # A short name: the path of a socket holds a hundred characters.
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        if as_other:
            shutil.chown(folder, "postgres")
        secret, data = Path(folder, "password"), Path(folder, "data")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [*as_other, initdb, "-D", str(data), "-U", "owner", f"--pwfile={secret}",
             "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"],
            check=True, capture_output=True, cwd="/", timeout=120,
        )  # fmt: skip
        running = subprocess.Popen(
            [*as_other, postgres, "-D", str(data), "-k", folder, "-c", "listen_addresses=",
             "-c", "fsync=off", "-c", "timezone=Asia/Tokyo"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        try:
            _wait_for(folder, running)
            yield folder
        finally:
            # The program that was started may be runuser: the server's own id is in its folder.
            lines = data.joinpath("postmaster.pid").read_text().splitlines()
            os.kill(int(lines[0]), 2)
            running.wait(timeout=60)


def _connect(folder: str, **more: Any) -> Any:
    return psycopg.connect(
        host=folder, user="owner", password=PASSWORD, dbname="postgres", autocommit=True, **more
    )


def _wait_for(folder: str, running: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert running.poll() is None, "the server ended"
        try:
            _connect(folder, connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server does not answer")


SPEND = """
CREATE TABLE "LiteLLM_SpendLogs" (
  request_id text PRIMARY KEY, call_type text NOT NULL, api_key text DEFAULT '' NOT NULL,
  spend double precision DEFAULT 0.0 NOT NULL, total_tokens int DEFAULT 0 NOT NULL,
  prompt_tokens int DEFAULT 0 NOT NULL, completion_tokens int DEFAULT 0 NOT NULL,
  "startTime" timestamp(3) NOT NULL, "endTime" timestamp(3) NOT NULL,
  "completionStartTime" timestamp(3), model text DEFAULT '' NOT NULL, model_id text,
  model_group text, api_base text, "user" text, metadata jsonb, cache_hit text, request_tags jsonb,
  team_id text, end_user text, messages jsonb, response jsonb, session_id text, status text
)"""
ROW = """
INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, spend, total_tokens, prompt_tokens,
  completion_tokens, "startTime", "endTime", "completionStartTime", model, cache_hit, session_id,
  status, metadata, response)
SELECT 'req-' || to_char(n, 'FM0000'), 'acompletion', 0.01485, 12160, 12000, 160,
  t, t + interval '3.24 s', t + interval '0.84 s', 'claude-sonnet-4-5', 'False', 'sess-7f',
  CASE WHEN n %% 100 = 0 THEN 'failure' ELSE 'success' END,
  '{"usage_object": {"cache_read_input_tokens": 9000, "cache_creation_input_tokens": 1000}}',
  json_build_object('text', repeat('never needed ', 100))
FROM (SELECT n, timestamp '2026-08-01 10:00:00' + (n - 1) * interval '1 min' AS t
      FROM generate_series(1, %s) AS n) AS s"""


@pytest.fixture(scope="module")
def spend(server: str) -> str:
    """The address of a database with LiteLLM's table, in a schema of its own."""
    with _connect(server) as link:
        link.execute("CREATE SCHEMA litellm")
        link.execute("SET search_path TO litellm")
        link.execute(SPEND)
        link.execute(ROW, [1000])
    return f"postgresql://owner:{IN_ADDRESS}@/postgres?host={server}"


def _read(address: str, query: str | None = None) -> Log:
    return read_log([address], options=Options(query=query))


def test_the_spend_table_is_found_and_read(spend: str) -> None:
    log = _read(spend)
    (one,) = log.inputs
    assert one.format == "litellm"
    assert one.rows_read == 1000
    assert one.rows_used == 990
    assert one.rows_rejected == {"failed_request": 10}
    row = log.requests.row(0, named=True)
    assert row["request_id"] == "req-0001"
    assert row["session_id"] == "sess-7f"
    assert row["start"] == START_S * 10**6
    assert row["ttft_us"] == 840_000
    assert row["e2e_us"] == 3_240_000
    assert row["input_tokens"] == 12_000
    assert row["cached_tokens"] == 9_000
    assert row["cache_write_tokens"] == 1_000
    assert row["output_tokens"] == 160


def test_no_password_is_told(spend: str, capfd: pytest.CaptureFixture[str]) -> None:
    diagnosis = ttftdoctor.diagnose(spend)
    said = [
        ttftdoctor.to_json(diagnosis), ttftdoctor.to_html(diagnosis), ttftdoctor.to_text(diagnosis),
        ttftdoctor.to_markdown(diagnosis),
    ]  # fmt: skip
    assert json.loads(said[0])["inputs"][0]["path"] == "postgresql://owner@/postgres"
    for bad in (
        spend.replace("/postgres?", "/nowhere?"),
        spend.replace(":", ":x", 2).replace("x//", "//"),
        spend.replace("%40", "@").replace("%2F", "/"),
        spend + "&wrong=1",
        spend + "&port=x",
    ):
        with pytest.raises(InputError) as caught:
            _read(bad)
        said.append(str(caught.value))
    with pytest.raises(InputError) as caught:
        _read(spend, "select nothing from nowhere")
    said.append(str(caught.value))
    assert 'relation "nowhere" does not exist' in said[-1]
    for text in (*said, *capfd.readouterr()):
        assert "s3cr3t" not in text
        assert "with@signs" not in text
        assert "signs%23" not in text


def test_types_arrive_as_they_are(server: str) -> None:
    """Zones, days, spans of time, decimals, nested values and signs of all kinds."""
    query = """
    SELECT 'a' || chr(10) || 'b\\"c' || chr(9) || 'é' AS request_id,
      timestamptz '2026-08-01 19:00:00.123456+09' AS start_time,
      timestamp '2026-08-01 10:00:00.5' AS naive, date '2026-08-01' AS day,
      interval '0.84 s' AS ttft, interval '-1 day 1.5 s' AS other,
      12000.000::numeric AS input_tokens, 9007199254740993::bigint AS big,
      'NaN'::numeric AS nothing, ARRAY[1, 2] AS list, 'infinity'::timestamp AS never,
      '{"a": "x\\ny",
        "b": [1]}'::json AS spread, NULL::int AS missing
    """
    address = f"postgresql://owner:{IN_ADDRESS}@/postgres?host={server}"
    with closing(open_rows(address, query)) as stream:
        (line,) = stream.read().splitlines()
    assert json.loads(line) == {
        "request_id": 'a\nb\\"c\té',
        "start_time": "2026-08-01T10:00:00.123456+00:00",
        "naive": "2026-08-01T10:00:00.5",
        "day": "2026-08-01T00:00:00",
        "ttft": "0.840000s",
        "other": "-86398.500000s",
        "input_tokens": 12000,
        "big": 9007199254740993,
        "nothing": "NaN",
        "list": [1, 2],
        "never": "infinity",
        "spread": {"a": "x\ny", "b": [1]},
        "missing": None,
    }
    log = _read(address, query)
    row = log.requests.row(0, named=True)
    assert row["start"] == START_S * 10**6 + 123_456
    assert row["ttft_us"] == 840_000
    assert row["input_tokens"] == 12_000


def test_a_query_is_read_in_batches(spend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at a time follows the bytes of the rows, not their number."""
    monkeypatch.setattr("ttftdoctor.sources.databases.BATCH_BYTES", 2**18)
    query = """SELECT n AS id, timestamp '2026-08-01' + n * interval '1 s' AS start_time,
      0.5 AS ttft_s, n AS input_tokens, repeat('x', 2000) AS text
      FROM generate_series(1, 20000) AS n -- a comment at the end"""
    with closing(open_rows(spend, query)) as stream:
        pieces = list(stream.raw._pieces)
    assert max(map(len, pieces)) < 2**20
    assert 50 + sum(piece.count(b"\n") for piece in pieces) == 20_000
    log = _read(spend, query)
    assert log.requests.height == 20_000
    assert log.requests["input_tokens"].sum() == 20_000 * 20_001 // 2
    assert log.requests["line"].to_list() == list(range(1, 20_001))


@pytest.mark.parametrize(
    "query",
    [
        "drop table x", "update x set a = 1", "", "  ; ", "-- select\ncopy x to program 'id'",
        "explain analyze select 1", "/* select */ delete from x",
    ],
)  # fmt: skip
def test_what_does_not_read_is_refused(query: str) -> None:
    with pytest.raises(UsageError):
        statement(query)


def test_what_reads_is_taken() -> None:
    assert statement(" select 1 ; ") == "select 1"
    assert statement("-- c\n/* d */ (WITH a AS (SELECT 1) SELECT * FROM a)").endswith(")")


def test_the_database_is_only_read(spend: str, server: str) -> None:
    """What begins like a query and writes all the same is refused by the server itself."""
    for query in (
        'WITH gone AS (DELETE FROM litellm."LiteLLM_SpendLogs" RETURNING *) SELECT * FROM gone',
        'SELECT 1) AS q; COMMIT; DROP TABLE litellm."LiteLLM_SpendLogs"; --',
        "SELECT set_config('transaction_read_only', 'off', true), nextval('s')",
        "SELECT lo_create(1)",
    ):
        with pytest.raises(InputError):
            _read(spend, query)
    with _connect(server) as link:
        count = link.execute('SELECT count(*) FROM litellm."LiteLLM_SpendLogs"').fetchone()
    assert count == (1000,)


@pytest.mark.parametrize(
    "setting",
    ["autocommit=1", "row_factory=x", "cursor_factory=x", "context=x", "prepare_threshold=1",
     "options=-c%20default_transaction_read_only%3Doff"],
)  # fmt: skip
def test_no_setting_of_an_address_allows_writing(spend: str, setting: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(f"{spend}&{setting}")
    assert caught.value.why == "databases are only read"


def test_harmless_settings_of_an_address_are_used(spend: str) -> None:
    log = _read(f"{spend}&sslmode=prefer&connect_timeout=5&options=-c%20search_path%3Dpublic")
    assert log.requests.height == _read(spend).requests.height


def test_a_connection_that_could_write_is_given_up(
    spend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As through a proxy that takes the wish to read only, and does not grant it."""
    ignored = property(lambda link: None, lambda link, value: None)
    monkeypatch.setattr(psycopg.Connection, "read_only", ignored)
    with pytest.raises(InputError, match="cannot be kept from writing"):
        _read(spend)


def test_errors_say_what_to_do(spend: str) -> None:
    with pytest.raises(UsageError, match="more than once: a"):
        _read(spend, "select 1 as a, 2 as a")
    with pytest.raises(InputError, match="gave no rows"):
        _read(spend, "select 1 as a where false")
    with pytest.raises(InputError) as caught:
        _read(spend.replace("/postgres?", "/template1?"))
    assert "LiteLLM_SpendLogs" in caught.value.what
    assert "--query" in str(caught.value.help)
    with pytest.raises(UsageError, match="no LOG is the address"):
        read_log([__file__], options=Options(query="select 1"))
    with pytest.raises(InputError, match="cannot be reached"):
        _read("postgresql://u@127.0.0.1:9/x")


# ------------------------------------------------------------------ ClickHouse


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[str]:
    """Where it listens: ``127.0.0.1:PORT``."""
    pytest.importorskip("clickhouse_connect")
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("ClickHouse's engine is not installed")
    program = Path(__file__).with_name("clickhouse_server.py")
    running = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert running.stdout is not None
        yield f"127.0.0.1:{int(running.stdout.readline())}"
    finally:
        running.terminate()
        running.wait(timeout=30)
        if running.stdout is not None:
            running.stdout.close()


def test_the_table_of_observations_is_found_and_read(clickhouse: str) -> None:
    log = _read(f"clickhouse://reader:s3cr3t@{clickhouse}/langfuse")
    (one,) = log.inputs
    assert one.path == f"clickhouse://reader@{clickhouse}/langfuse"
    assert one.format == "langfuse"
    # A hundred observations were deleted later, and fifty are no calls of a model.
    assert one.rows_read == 950
    assert one.rows_used == 900
    row = log.requests.sort("start").row(0, named=True)
    assert row["request_id"] == "req-0000"
    assert row["session_id"] == "sess-7f"
    assert row["start"] == START_S * 10**6
    assert row["ttft_us"] == 840_000
    assert row["e2e_us"] == 3_240_000
    assert row["input_tokens"] == 12_000
    assert row["cached_tokens"] == 9_000
    assert row["cache_write_tokens"] == 1_000
    assert row["output_tokens"] == 160


def test_it_is_asked_to_read_only(clickhouse: str) -> None:
    _read(f"clickhouse://reader:s3cr3t@{clickhouse}/langfuse", "select 1 as a, 1.5 as ttft_s")
    with urllib.request.urlopen(f"http://{clickhouse}/seen", timeout=30) as answer:
        seen = json.load(answer)
    assert seen
    assert all(settings["readonly"] == "2" for settings in seen)


def test_its_types_arrive_as_they_are(clickhouse: str) -> None:
    query = """SELECT toDateTime64('2026-08-01 12:00:00.123456', 6, 'Europe/Berlin')
        AS `start time`,
      toDateTime('2026-08-01 10:00:00', 'UTC') AS plain, CAST(NULL AS Nullable(DateTime)) AS never,
      toDate('2026-08-01') AS day, toDecimal64(12000.5, 4) AS input,
      toUInt64(18446744073709551615) AS big, map('a', 1) AS pairs, 'a\n"b' AS text -- the end"""
    address = f"clickhouse://reader:s3cr3t@{clickhouse}/default"
    with closing(open_rows(address, query)) as stream:
        (line,) = stream.read().splitlines()
    assert json.loads(line) == {
        "start time": "2026-08-01T10:00:00.123456Z",
        "plain": "2026-08-01T10:00:00Z",
        "never": None,
        "day": "2026-08-01T00:00:00Z",
        "input": 12000.5,
        "big": 18446744073709551615,
        "pairs": {"a": 1},
        "text": 'a\n"b',
    }


def test_many_rows_come_in_pieces(clickhouse: str) -> None:
    query = "SELECT number AS n, repeat('x y  ', 100) AS text FROM numbers(50000)"
    address = f"clickhouse://reader:s3cr3t@{clickhouse}/default"
    with closing(open_rows(address, query)) as stream:
        lines = stream.read().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(50_000))
    broken = address.replace("/default", "/default_broken")
    with pytest.raises(InputError, match="the answer broke off") as caught:
        _read(broken, query)
    assert caught.value.why == "Memory limit exceeded"


def test_its_errors_say_what_to_do(clickhouse: str) -> None:
    address = f"clickhouse://reader:s3cr3t@{clickhouse}/langfuse"
    for bad, query, message in (
        (address.replace("/langfuse", "/other"), None, "no table observations"),
        (address, "select 1 from nowhere", "the query failed"),
        (address, "select 1 as a where 0", "gave no rows"),
        (address.replace("s3cr3t", "s3cr3t2"), None, "cannot be reached"),
        (address + "?color=red", None, "not known: color"),
        ("clickhouse://reader:s3cr3t@127.0.0.1:9/x", None, "cannot be reached"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            _read(bad, query)
        assert "s3cr3t" not in str(caught.value)
