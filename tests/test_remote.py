"""Logs at addresses: a real S3 server and a web server on this machine's loopback interface."""

from __future__ import annotations

import bz2
import gzip
import http.server
import json
import lzma
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from reading import ROOT, SAMPLES

import ttftdoctor
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.intake import read_log
from ttftdoctor.sources import Source, expand
from ttftdoctor.sources.addresses import is_address, label, shown, split

LOG = (SAMPLES / "eight_turns.jsonl").read_bytes()
LINES = LOG.splitlines(keepends=True)
PACKERS = {
    "plain": bytes, "gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress,
    "bz2": bz2.compress, "xz": lzma.compress,
}  # fmt: skip


# ----------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://u:pw@h:5432/db?sslmode=require&password=pw", "postgresql://u@h:5432/db"),
        ("postgresql://u:p@w/p?w#p:w@h/db", "postgresql://u@h/db"),
        ("postgresql://:pw@h/db", "postgresql://@h/db"),
        ("clickhouse://u:pw%40@h:8123/db", "clickhouse://u@h:8123/db"),
        ("POSTGRESQL://u:pw@h/db", "POSTGRESQL://u@h/db"),
        ("https://u:pw@h/a/b.jsonl", "https://h/a/b.jsonl"),
        ("https://h/a/b.jsonl?X-Amz-Signature=pw#pw", "https://h/a/b.jsonl?…"),
        ("https://h:8080/a@b.jsonl", "https://h:8080/a@b.jsonl"),
        ("https://u:1/pw@127.0.0.1:1/x", "https://127.0.0.1:1/x"),
        ("https://h/x;token=pw", "https://h/x;…"),
        ("https://pw@h/x", "https://h/x"),
        ("az://c/b.jsonl?sv=2022&sig=pw", "az://c/b.jsonl?…"),
        (
            "abfss://c@acc.dfs.core.windows.net/a.jsonl?sig=pw",
            "abfss://c@acc.dfs.core.windows.net/a.jsonl?…",
        ),
        ("s3://b/k?X-Amz-Signature=pw", "s3://b/k?…"),
        ("s3://AKIA:pw/pw@bucket/k", "s3://AKIA@bucket/k"),
        ("gs://b/k?token=pw", "gs://b/k?…"),
        ("s3://b/day=2026-0?-01/log-?.jsonl", "s3://b/day=2026-0?-01/log-?.jsonl"),
        ("https://u:pw/pw@h/a.jsonl", "https://h/a.jsonl"),
        ("https://u:p?w#pw@h/a.jsonl", "https://h/a.jsonl"),
        ("s3://bucket/a b/c.jsonl", "s3://bucket/a b/c.jsonl"),
        ("logs/a.jsonl", "logs/a.jsonl"),
        ("-", "-"),
    ],
)
def test_what_is_secret_is_not_shown(address: str, name: str) -> None:
    assert shown(address) == name
    assert "pw" not in shown(address)
    assert "pw" not in label(address)


@pytest.mark.parametrize(
    "text",
    [
        "https:/u:pw@h/x", " https://u:pw@h/x", "https:u:pw@h/x", "jdbc:postgresql://u:pw@h/db",
        "postgresql+psycopg2://u:pw@h/db", "https://u:1/pw@127.0.0.1:1/x", "https://h/x;token=pw",
        "https://u:p pw@h/x", "http://127.0.0.1:1\\@u:pw@h/x", "https://h/x\ny?pw",
    ],
)  # fmt: skip
def test_errors_tell_no_secret_of_any_address(text: str) -> None:
    error = InputError("no such file", where=text)
    assert "pw" not in str(error)
    assert "pw" not in str(error.where)
    word = text.strip()
    if " " not in word and "\n" not in word:
        said = UsageError(f"{word!r} is no file", why=f"of {word}, none", help=word, available=word)
        assert "pw" not in str(said)
        assert "is no file" not in str(said) or "none" in str(said)


@pytest.mark.parametrize(
    "text",
    [
        "logs/a@b:c.jsonl", "C:/logs/u:x@h", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        "write postgresql://USER@HOST/DATABASE", "s3://b/log-?.jsonl", "https://h:80/a/b.jsonl",
        "why: not a=b; c@d", "-",
    ],
)  # fmt: skip
def test_errors_leave_other_text_as_it_is(text: str) -> None:
    assert InputError(text, where=text).what == text
    assert InputError(text, where=text).where == text


def test_keys_in_the_address_of_an_object_are_refused() -> None:
    for address in (
        "s3://AKIA:pw@bucket/k.jsonl", "az://c/k.jsonl?sv=1&sig=pw", "gs://b/k.jsonl?token=pw",
        "s3://b/k.jsonl?X-Amz-Signature=pw", "abfss://c@a.dfs.core.windows.net/k?sig=pw",
    ):  # fmt: skip
        with pytest.raises(InputError, match="not used") as caught:
            read_log([address])
        assert "pw" not in str(caught.value)


def test_a_torn_address_is_told_without_its_password() -> None:
    for address in (
        "postgresql://u:p/w1234@h/db", "postgresql://u:p#w1234@h/db", "postgresql://u:12/w1234@h/d",
        "https://u:p/w1234@h/x", "postgresql://u@h:port1234w/db",
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            split(address)
        assert "w1234" not in str(caught.value)


def test_an_address_of_another_kind_is_told() -> None:
    assert not is_address("C:/logs/a.jsonl")
    for address in ("ftp://h/a", "hdfs://h/a", "mysql://u:secret@h/db"):
        with pytest.raises(InputError, match="cannot be read") as caught:
            expand([address])
        assert "available" in str(caught.value)


# ------------------------------------------------------------------------- web


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the path; what it was asked with is kept."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str]]]
    files: dict[str, Any]

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.seen.append((self.path, dict(self.headers)))
        answer = self.files.get(self.path.partition("?")[0])
        if answer is None:
            self._send(404, b"<html>not here</html>", "text/html")
        elif callable(answer):
            answer(self)
        else:
            self._send(200, answer, "application/octet-stream")

    def _send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def chunked(self, pieces: list[bytes], *, end: bool = True) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if end:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


@contextmanager
def _serving(files: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    seen: list[tuple[str, dict[str, str]]] = []
    handler = type("Handler", (_Handler,), {"files": files, "seen": seen})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_file_of_a_web_server(kind: str) -> None:
    """Unpacked by content, whatever it is called."""
    with _serving({"/log": PACKERS[kind](LOG)}) as (base, _):
        log = read_log([f"{base}/log?token=secret"])
    (one,) = log.inputs
    assert one.path == f"{base}/log?…"
    assert one.rows_read == len(LINES)
    assert log.requests.equals(read_log([str(SAMPLES / "eight_turns.jsonl")]).requests)


def test_tables_of_a_web_server(tmp_path: Path) -> None:
    frame = pl.read_ndjson(LOG)
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    files = {f"/{p.name}": p.read_bytes() for p in tmp_path.iterdir()}
    with _serving(files) as (base, _):
        for name in files:
            assert read_log([base + name]).requests.height == len(LINES)


def test_pieces_and_their_end() -> None:
    pieces = [LOG[at : at + 777] for at in range(0, len(LOG), 777)]
    with _serving({
        "/whole": lambda h: h.chunked(pieces), "/torn": lambda h: h.chunked(pieces[:5], end=False),
    }) as (base, _):  # fmt: skip
        assert read_log([f"{base}/whole"]).requests.height == len(LINES)
        with pytest.raises(InputError, match="broke off"):
            read_log([f"{base}/torn"])


def test_a_download_that_breaks_off_is_no_log() -> None:
    """Half a log would give an answer, and it would be wrong."""

    def torn(body: bytes) -> Any:
        def answer(handler: _Handler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: len(body) // 2])
            handler.close_connection = True

        return answer

    with _serving({"/plain": torn(LOG), "/gz": torn(gzip.compress(LOG))}) as (base, _):
        for name in ("plain", "gz"):
            with pytest.raises(InputError, match="broke off") as caught:
                read_log([f"{base}/{name}?key=secret"])
            assert "secret" not in str(caught.value)
            assert "bytes came" in str(caught.value.why)


def test_a_baseline_may_lie_at_an_address() -> None:
    log = str(SAMPLES / "healthy.jsonl")
    kept = ttftdoctor.baseline(log).fit_in().to_text().encode()
    files = {"/base.json": kept, "/log.json": LOG, "/bad.json": kept[:5000]}
    with _serving(files) as (host, _):
        found = ttftdoctor.check(log, f"{host}/base.json?token=secret")
        assert found.outcome == "pass"
        assert found.baseline.requests == found.current.requests
        other = ttftdoctor.check(log, f"{host}/log.json")  # a log that ends as a baseline does
        assert other.baseline.requests == len(LINES)
        with pytest.raises(InputError) as caught:
            ttftdoctor.check(log, f"{host}/bad.json?token=secret")
        assert "secret" not in str(caught.value)
        with pytest.raises(InputError):
            ttftdoctor.check(log, f"{host}/nothing.json")


def test_errors_of_a_web_server_are_no_logs() -> None:
    def status(code: int, body: bytes = LOG, kind: str = "text/plain", **headers: str) -> Any:
        return lambda handler: handler._send(code, body, kind, **headers)

    files = {
        "/403": status(403), "/500": status(500), "/204": status(204, b""), "/206": status(206),
        "/login": status(200, b"<html>who are you?</html>", "text/html; charset=utf-8"),
        "/plain-login": status(200, b"\n <!DOCTYPE html><html>who?</html>"),
        "/comment": status(200, b"<!-- x --><html>login</html>"),
        "/xml": status(200, b"<?xml version='1.0'?>\n<HTML>login</HTML>"),
        "/to-login": status(302, b"moved", Location="/login"),
        "/round": status(302, b"moved", Location="/round"),
        "/to-file": status(302, b"moved", Location="file:///etc/passwd"),
        "/to-ftp": status(302, b"moved", Location="ftp://127.0.0.1/log"),
        "/nowhere": status(302, b"moved"), "/empty": b"",
    }  # fmt: skip
    messages = {
        "/403": "access is refused", "/404": "no such file", "/500": "did not send",
        "/204": "did not send", "/206": "did not send", "/login": "a web page",
        "/plain-login": "a web page", "/comment": "a web page",
        "/xml": "a web page", "/to-login": "a web page", "/round": "did not send",
        "/to-file": "did not send", "/to-ftp": "not safe", "/nowhere": "did not send",
        "/empty": "empty",
    }  # fmt: skip
    with _serving(files) as (base, _):
        for path, message in messages.items():
            with pytest.raises(InputError, match=message):
                read_log([base + path])


def test_redirects_are_followed_without_the_password() -> None:
    with _serving({"/log": LOG}) as (other, elsewhere):

        def moved(handler: _Handler) -> None:
            handler._send(302, b"moved", "text/plain", Location=f"{other}/log")

        with _serving({"/moved": moved}) as (base, here):
            address = f"{base}/moved".replace("//", "//me:s%40cret@")
            log = read_log([address])
    assert log.requests.height == len(LINES)
    assert here[0][1]["Authorization"] == "Basic bWU6c0BjcmV0"
    assert "Authorization" not in elsewhere[0][1]
    assert log.inputs[0].path == f"{base}/moved"


def test_an_encrypted_connection_is_not_left() -> None:
    import urllib.request

    from ttftdoctor.sources.web import _Redirect

    request = urllib.request.Request("https://127.0.0.1/log")
    with pytest.raises(InputError, match="not safe"):
        _Redirect().redirect_request(request, None, 302, "", {}, "http://127.0.0.1/log?key=secret")


def test_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttftdoctor.sources.web.PATIENCE_S", 0.3)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(InputError, match="cannot be read") as caught:
            read_log([f"http://127.0.0.1:{port}/log"])
        assert "no answer within" in str(caught.value.why)
    with pytest.raises(InputError, match="cannot be read"):
        read_log([f"http://127.0.0.1:{port}/log"])  # nobody listens any more


def test_a_foreign_page_does_not_hide_the_logs_beside_it() -> None:
    with _serving({"/log": LOG}) as (base, _):
        log = read_log([f"{base}/log", f"{base}/none?key=secret"])
    assert log.requests.height == len(LINES)
    assert log.warnings == (f"skipped {base}/none?…: there is no such file",)


def test_a_large_log_is_not_held() -> None:
    """Read as it comes: 200 MB from the web in a tenth of the memory."""
    piece = LOG * (2**20 // len(LOG))

    def large(handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(200 * len(piece)))
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(piece)

    with _serving({"/log": large}) as (base, _), closing(Source(f"{base}/log")) as source:
        tracemalloc.start()
        read = sum(lines for _, _, lines, _ in source.blocks())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert read == 200 * piece.count(b"\n")
    assert peak < 80 * 2**20


# -------------------------------------------------------------------------- S3


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, Any]]:
    """A server that speaks S3, and a client that fills it."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    import boto3

    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    running = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(300):
            assert running.poll() is None, "the server ended"
            with closing(socket.socket()) as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="id",
            aws_secret_access_key="topsecret",
        )  # fmt: skip
        client.create_bucket(Bucket="logs")
        for n, (kind, pack) in enumerate(PACKERS.items()):
            part = b"".join(LINES[n * 10 : n * 10 + 10])
            client.put_object(Bucket="logs", Key=f"day=0{n}/part.{kind}.jsonl", Body=pack(part))
        client.put_object(Bucket="logs", Key="day=00/readme.md", Body=b"# no log")
        client.put_object(Bucket="logs", Key="day=00/.hidden.jsonl", Body=b"{}")
        client.put_object(Bucket="logs", Key="day=00/deep/er/part.jsonl", Body=LINES[60])
        client.put_object(Bucket="logs", Key="empty.jsonl", Body=b"")
        client.put_object(Bucket="logs", Key="a b+c%20d é.jsonl", Body=LOG)
        yield endpoint, client
    finally:
        running.terminate()
        running.wait(timeout=30)


@pytest.fixture
def aws(s3: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The environment that leads to it."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3[0])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return s3[1]


def test_objects_are_unpacked_by_content(aws: Any) -> None:
    for n, kind in enumerate(PACKERS):
        address = f"s3://logs/day=0{n}/part.{kind}.jsonl"
        log = read_log([address])
        assert log.inputs[0].path == address
        assert log.requests.height == 10, kind


@pytest.mark.parametrize(
    ("address", "files"),
    [
        ("s3://logs/day=00/", ["day=00/deep/er/part.jsonl", "day=00/part.plain.jsonl"]),
        ("s3://logs/day=00", ["day=00/deep/er/part.jsonl", "day=00/part.plain.jsonl"]),
        ("s3://logs/day=00/*", ["day=00/.hidden.jsonl", "day=00/part.plain.jsonl",
                                "day=00/readme.md"]),
        ("s3://logs/day=*/part.[gz]*.jsonl", ["day=01/part.gz.jsonl", "day=02/part.zst.jsonl"]),
        ("s3://logs/day=0?/part.[!pxz]*.jsonl", ["day=01/part.gz.jsonl", "day=03/part.bz2.jsonl"]),
        ("s3://logs/day=00/**/*.jsonl", ["day=00/.hidden.jsonl", "day=00/deep/er/part.jsonl",
                                         "day=00/part.plain.jsonl"]),
        ("s3://logs/empty.jsonl", ["empty.jsonl"]),
    ],
)  # fmt: skip
def test_globs_and_prefixes(aws: Any, address: str, files: list[str]) -> None:
    assert expand([address]) == [f"s3://logs/{name}" for name in files]


def test_a_prefix_is_one_log(aws: Any) -> None:
    log = read_log(["s3://logs/day=*/part.*"])
    assert log.requests.height == 50
    assert len(log.inputs) == 5


def test_names_with_odd_signs(aws: Any) -> None:
    assert read_log(["s3://logs/a b+c%20d é.jsonl"]).requests.height == len(LINES)


def test_parquet_is_scanned_where_it_lies(aws: Any, tmp_path: Path) -> None:
    pl.read_ndjson(LOG).write_parquet(tmp_path / "log")
    aws.put_object(Bucket="logs", Key="table", Body=(tmp_path / "log").read_bytes())
    log = read_log(["s3://logs/table"])
    assert log.requests.height == len(LINES)


def test_credentials_of_a_profile(
    aws: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_REGION")
    (tmp_path / "credentials").write_text(
        "[work]\naws_access_key_id = id\naws_secret_access_key = topsecret\n"
    )
    (tmp_path / "config").write_text("[profile work]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert read_log(["s3://logs/day=00/part.plain.jsonl"]).requests.height == 10
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(InputError, match="profile cannot be used"):
        read_log(["s3://logs/day=00/part.plain.jsonl"])


def test_errors_of_a_store_say_what_to_do(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, message in {
        "s3://logs/none.jsonl": "no such object, and no log below it",
        "s3://logs/none/*.jsonl": "no object matches",
        "s3://nobucket/a/*.jsonl": "no such bucket",
        "s3://nobucket/a.jsonl": "no such bucket",
        "s3://logs/[z-a]*": "makes no sense",
        "s3:///a.jsonl": "names no bucket",
        "s3://logs/empty.jsonl": "empty",
    }.items():
        with pytest.raises(InputError, match=message) as caught:
            read_log([address])
        assert "topsecret" not in str(caught.value)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr("ttftdoctor.sources.stores.PATIENCE_S", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", nobody)
    with pytest.raises(InputError, match="does not answer"):
        read_log(["s3://logs/day=00/part.plain.jsonl"])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="names no account") as caught:
        read_log(["az://logs/a.jsonl"])
    assert "AZURE_STORAGE_ACCOUNT_NAME" in str(caught.value.help)


def test_a_store_that_is_silent(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttftdoctor.sources.stores.PATIENCE_S", 0.2)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(InputError, match="does not answer"):
            read_log(["s3://logs/a.jsonl"])


def test_who_may_not_read_is_told(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handler: _Handler) -> None:
        body = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"
        handler._send(403, body, "application/xml")

    files = {"/logs/a.jsonl": refuse, "/logs": refuse}
    with _serving(files) as (base, _):
        handler_head = _Handler.do_GET
        monkeypatch.setattr(_Handler, "do_HEAD", handler_head, raising=False)
        monkeypatch.setenv("AWS_ENDPOINT_URL", base)
        for address in ("s3://logs/a.jsonl", "s3://logs/*.jsonl"):
            with pytest.raises(InputError, match="access is refused") as caught:
                read_log([address])
            assert "credentials" in str(caught.value.help)


def test_an_object_that_changes_is_not_mixed(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttftdoctor.sources.stores.PART_BYTES", 2**20)
    aws.put_object(Bucket="logs", Key="grows.jsonl", Body=LOG * 300)
    with closing(Source("s3://logs/grows.jsonl")) as source:
        aws.put_object(Bucket="logs", Key="grows.jsonl", Body=LOG * 301)
        with pytest.raises(InputError, match="written anew"):
            list(source.blocks())


def test_the_command_reads_an_object(aws: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ttftdoctor", "diagnose", "s3://logs/a b+c%20d é.jsonl",
         "--json", "-"],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["inputs"][0]["path"] == "s3://logs/a b+c%20d é.jsonl"
    assert "topsecret" not in done.stdout + done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "ttftdoctor", "inspect", "s3://logs/none.jsonl"],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: s3://logs/none.jsonl: no such object")


def test_the_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's and Azure's differ in how they are named and asked; a store in memory is read."""
    obstore = pytest.importorskip("obstore")
    from obstore.store import MemoryStore

    from ttftdoctor.sources import stores

    memory = MemoryStore()
    obstore.put(memory, "a/log.jsonl", LOG)
    seen = []

    def opened(path: str, place: Any) -> Any:
        seen.append((place.kind, place.bucket, place.account))
        return memory

    monkeypatch.setattr(stores, "_store", opened)
    for address in (
        "gs://b/a/log.jsonl",
        "az://b/a/",
        "abfss://b@acc.dfs.core.windows.net/a/*.jsonl",
    ):
        assert read_log([address]).requests.height == len(LINES)
    assert dict.fromkeys(seen) == dict.fromkeys(
        [("gs", "b", None), ("az", "b", None), ("az", "b", "acc")]
    )


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "clickhouse_connect", None)
    for address, extra in {
        "s3://logs/a.jsonl": "cloud", "s3://logs/*": "cloud", "postgresql://u@h/d": "sql",
        "clickhouse://u@h/d": "sql",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match="is needed to read this") as caught:
            ttftdoctor.read(address)
        assert str(caught.value.help) == f"pip install 'ttftdoctor[{extra}]'"
