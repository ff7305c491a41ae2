"""The HTTP interface of ClickHouse, as far as a reader needs it, before its engine (chdb).

Run as a program: prints its port, then serves until it is ended. Answers from a database whose name
ends in ``_broken`` break off. The tables are those of Langfuse, as far as they matter.
"""

from __future__ import annotations

import base64
import http.server
import json
import re
import threading
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

TABLES = """
CREATE DATABASE langfuse;
CREATE DATABASE other;
CREATE TABLE other.notes (a String) ENGINE = MergeTree ORDER BY a;
CREATE TABLE langfuse.traces (
  id String, timestamp DateTime64(3), project_id String, session_id Nullable(String),
  event_ts DateTime64(3), is_deleted UInt8
) ENGINE = ReplacingMergeTree(event_ts, is_deleted) ORDER BY (project_id, id);
CREATE TABLE langfuse.observations (
  id String, trace_id String, project_id String, type LowCardinality(String),
  parent_observation_id Nullable(String), start_time DateTime64(3),
  end_time Nullable(DateTime64(3)), name String, metadata Map(LowCardinality(String), String),
  level LowCardinality(String), status_message Nullable(String), version Nullable(String),
  input Nullable(String), output Nullable(String), provided_model_name Nullable(String),
  provided_usage_details Map(LowCardinality(String), UInt64),
  usage_details Map(LowCardinality(String), UInt64), total_cost Nullable(Decimal64(12)),
  completion_start_time Nullable(DateTime64(3)), created_at DateTime64(3) DEFAULT now(),
  event_ts DateTime64(3), is_deleted UInt8
) ENGINE = ReplacingMergeTree(event_ts, is_deleted) ORDER BY (project_id, id);
INSERT INTO langfuse.traces SELECT concat('t', toString(number)),
  toDateTime64('2026-08-01 10:00:00', 3, 'UTC'), 'p', 'sess-7f', now64(3), 0 FROM numbers(500);
INSERT INTO langfuse.observations SELECT concat('req-', leftPad(toString(number), 4, '0')),
  concat('t', toString(number % 500)), 'p', 'GENERATION', NULL,
  toDateTime64('2026-08-01 10:00:00', 3, 'UTC') + toIntervalMinute(number) AS s,
  s + toIntervalMillisecond(3240), 'chat', map(), 'DEFAULT', NULL, NULL, 'hello', 'never needed',
  'claude-sonnet-4-5', map(), map('input', 2000, 'input_cached_tokens', 9000,
  'input_cache_creation', 1000, 'output', 160, 'total', 12160), 0.01,
  s + toIntervalMillisecond(840), now64(3), toDateTime64('2026-08-02 00:00:00', 3), 0
  FROM numbers(1000);
INSERT INTO langfuse.observations (id, trace_id, project_id, type, start_time, level, event_ts,
  is_deleted) SELECT concat('span-', toString(number)), 't1', 'p', 'SPAN',
  toDateTime64('2026-08-01 10:00:00', 3, 'UTC'), 'DEFAULT', now64(3), 0 FROM numbers(50);
INSERT INTO langfuse.observations (id, trace_id, project_id, type, start_time, level, event_ts,
  is_deleted) SELECT concat('req-', leftPad(toString(number), 4, '0')), 't1', 'p', 'GENERATION',
  toDateTime64('2026-08-01 10:00:00', 3, 'UTC'), 'DEFAULT',
  toDateTime64('2026-08-03 00:00:00', 3), 1 FROM numbers(900, 100)
"""
LOGIN = base64.b64encode(b"reader:s3cr3t").decode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers queries; ``/seen`` tells which settings came with those that look at data."""

    protocol_version = "HTTP/1.1"
    session = Session()
    alone = threading.Lock()
    seen: ClassVar[list[dict[str, str]]] = []

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/seen":
            self._send(200, json.dumps(self.seen).encode())
        else:
            self.do_POST()

    def do_POST(self) -> None:
        given = dict(parse_qsl(urlsplit(self.path).query))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        query = f"{given.get('query', '')}\n{body}".strip()
        if self.headers.get("Authorization") != f"Basic {LOGIN}":
            self._send(403, b"Code: 516. DB::Exception: reader: Authentication failed")
            return
        form = re.search(r"\sFORMAT (\w+)\s*$", query)
        text = query[: form.start()] if form else query
        if "system.settings" not in text and "version()" not in text and "AS check" not in text:
            self.seen.append(given)
        name = given.get("database", "default")
        try:
            with self.alone:
                self.session.query(f"USE {name.removesuffix('_broken')}")
                found = self.session.query(text, form[1] if form else "TabSeparated").bytes()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the answer)
            self._send(500, str(error).encode())
            return
        if name.endswith("_broken") and len(found) > 100_000:
            found = found[:50_000] + b"Code: 241. DB::Exception: Memory limit exceeded\n"
        self._send(200, found)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header("X-ClickHouse-Exception-Code", "1")
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    for statement in TABLES.split(";"):
        Handler.session.query(statement)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
