"""Logs that are tables of PostgreSQL or ClickHouse, as streams of JSON lines.

The server writes each row as JSON, so that its types arrive exactly (numbers with all digits,
instants in UTC) and rows are recognised as those of any JSON log. Rows come in batches through a
cursor of the server; nothing is written: a transaction that can only read, one statement that only
selects. Who may see which tables is the server's business.

Passwords come from the address, or better from where the drivers look themselves (``PGPASSWORD``,
``~/.pgpass``; ``CLICKHOUSE_PASSWORD``). They are in no message.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, unquote

from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.sources.addresses import lacking, scheme_of, shown, split

#: Rows of the first batch, and bytes that later ones should have.
FIRST_ROWS = 50
BATCH_BYTES = 4 * 2**20
MOST_ROWS = 20_000
#: Seconds to wait for a connection.
PATIENCE_S = 10
#: Characters of a query; more was not written by a person.
LONGEST = 100_000

#: Tables of requests that are known, and columns of them that no reader needs; answers are large.
LITELLM = "LiteLLM_SpendLogs"
LANGFUSE = "observations"
_NOT_NEEDED = {LITELLM: ("response", "proxy_server_request"), LANGFUSE: ("output",)}

_COMMENT = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?\*/|\(", re.DOTALL)


def statement(query: str) -> str:
    """The query, without a semicolon at its end.

    Raises
    ------
    UsageError
        If it does not begin as a query that only reads.
    """
    at = 0
    while match := _COMMENT.match(query, at):
        at = match.end()
    word = re.match(r"\w*", query[at:])
    if word is None or word[0].lower() not in ("select", "with"):
        raise UsageError(
            "--query must begin with SELECT or WITH",
            why="databases are only read" if word and word[0] else "there is no statement",
        )
    if len(query) > LONGEST:
        raise UsageError(f"--query is longer than {LONGEST:,} characters")
    return query.strip().rstrip(";").rstrip()


def open_rows(address: str, query: str | None = None) -> io.BufferedReader:
    """The rows of a query, or of the table of requests that is known, as JSON lines.

    Parameters
    ----------
    address
        ``postgresql://USER@HOST/DATABASE`` or ``clickhouse://USER@HOST:8123/DATABASE``.
    query
        One statement that selects.

    Raises
    ------
    InputError
        If the driver is missing, the server does not answer or refuses, or there are no rows.
    UsageError
        If the query does not only read.
    """
    if query is not None:
        query = statement(query)
    rows = _clickhouse if scheme_of(address) == "clickhouse" else _postgres
    stream = _Stream(rows(address, query))
    if not stream.begin():
        stream.close()
        raise InputError(
            "the query gave no rows" if query else "the table has no rows", where=shown(address)
        )
    return io.BufferedReader(stream, 2**20)


class _Stream(io.RawIOBase):
    """Pieces of bytes as a file; the pieces are closed with it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = memoryview(b"")

    def begin(self) -> bool:
        """Fetch the first piece; whether there is one."""
        self._left = memoryview(next(self._pieces, b""))
        return bool(self._left)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self.begin()
        n = min(len(buffer), len(self._left))
        memoryview(buffer).cast("B")[:n] = self._left[:n]
        self._left = self._left[n:]
        return n

    def close(self) -> None:
        if not self.closed:
            with suppress(Exception):  # the connection may be gone already
                self._pieces.close()  # type: ignore[attr-defined]
        super().close()


def _secret_free(error: BaseException, address: str) -> str:
    """The first lines of an error in one, without any part of the address that is secret."""
    text = " ".join(line.strip() for line in str(error).splitlines()[:2] if line.strip())
    parts = split(address)
    secrets = [value for name, value in parse_qsl(parts.query) if "pass" in name.lower()]
    for secret in {parts.password, unquote(parts.password or ""), *secrets, parts.query}:
        if secret:
            text = text.replace(secret, "***")
    return text[:400] or type(error).__name__


def _options(address: str) -> dict[str, str]:
    """What stands behind the question mark of an address."""
    return dict(parse_qsl(split(address).query, keep_blank_values=True))


# -------------------------------------------------------------------- PostgreSQL

#: What an address may say of the connection, beside who connects to what: nothing by which more
#: than reading could be allowed.
_SAFE = frozenset({
    "host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "options",
    "application_name", "fallback_application_name", "connect_timeout", "target_session_attrs",
    "load_balance_hosts", "sslmode", "sslnegotiation", "sslcompression", "sslcert", "sslkey",
    "sslpassword", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version",
    "ssl_max_protocol_version", "requirepeer", "require_auth", "channel_binding", "gssencmode",
    "gsslib", "krbsrvname", "keepalives", "keepalives_idle", "keepalives_interval",
    "keepalives_count", "tcp_user_timeout",
})  # fmt: skip

#: Types that JSON writes in a way that no reader takes for what it is, by their number.
_DATE, _INTERVAL = 1082, 1186


def _postgres(address: str, query: str | None) -> Iterator[bytes]:
    try:
        import psycopg
    except ImportError:
        raise lacking("psycopg", "sql", shown(address)) from None
    parts = split(address)
    host = parts.netloc.rpartition("@")[2]
    folder = host.partition(":")[0] if host.upper().startswith("%2F") else ""  # of a socket
    given: dict[str, Any] = {
        "host": unquote(folder or parts.hostname or "") or None,
        "port": parts.port,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "dbname": unquote(parts.path.lstrip("/")) or None,
        "connect_timeout": PATIENCE_S,
        "application_name": "ttftdoctor",
    }
    given = {name: value for name, value in given.items() if value is not None}
    options = _options(address)
    unknown = sorted(options.keys() - _SAFE)
    if unknown or "read_only" in options.get("options", "").lower():
        raise InputError(
            "the address has settings that are not known: " + ", ".join(unknown)
            if unknown else "the address says what may be written",
            where=shown(address),
            why="databases are only read",
            available=", ".join(sorted(_SAFE)),
        )  # fmt: skip
    try:
        link = psycopg.connect(**{**given, **options})
    except psycopg.Error as error:
        raise InputError(
            "the database cannot be reached", where=shown(address),
            why=_secret_free(error, address),
            help="a password is taken from PGPASSWORD or ~/.pgpass",
        ) from None  # fmt: skip
    try:
        # Stamps without a zone stay as they are; those with one are written in UTC.
        link.read_only = True
        link.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        link.autocommit = False
        link.execute("SET LOCAL TIME ZONE 'UTC'")
        if link.execute("SHOW transaction_read_only").fetchall() != [("on",)]:
            raise InputError(
                "this connection cannot be kept from writing", where=shown(address),
                help="name a user that may only read, and the server itself instead of a proxy",
            )  # fmt: skip
        yield from _fetched(link, query or _spend_table(link, address))
    except psycopg.Error as error:
        raise InputError(
            "the query failed", where=shown(address), why=_secret_free(error, address)
        ) from None
    finally:
        link.close()


def _fetched(link: Any, query: str) -> Iterator[bytes]:
    from psycopg import sql

    # The names and types of what it selects; a comment at its end must not reach our own text.
    inner = sql.SQL("({}\n) AS q").format(sql.SQL(query))
    # Prepared, a text of several statements is refused by the server, whatever it looks like.
    look = link.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(inner), prepare=True)
    columns = [(column.name, column.type_code) for column in look.description]
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"--query names a column more than once: {', '.join(twice)}",
            help="give each a name of its own (AS)",
        )

    def written(name: str, kind: int) -> Any:
        column: sql.Composable = sql.Identifier("q", name)
        if kind == _INTERVAL:
            column = sql.SQL("round(extract(epoch FROM {})::numeric, 6) || 's' AS {}").format(
                column, sql.Identifier(name)
            )
        elif kind == _DATE:
            column = sql.SQL("{}::timestamp AS {}").format(column, sql.Identifier(name))
        return column

    wanted = sql.SQL("SELECT row_to_json(r)::text FROM (SELECT {} FROM {}) AS r").format(
        sql.SQL(", ").join(written(name, kind) for name, kind in columns), inner
    )
    with link.cursor(name="ttftdoctor") as cursor:
        cursor.execute(wanted)
        count = FIRST_ROWS
        while rows := cursor.fetchmany(count):
            # JSON that was stored as text may be spread over lines; none breaks inside a string.
            text = "\n".join([row[0].replace("\n", " ") for row in rows]) + "\n"
            data = text.encode()
            yield data
            count = max(1, min(MOST_ROWS, 4 * count, count * BATCH_BYTES // len(data) + 1))


def _spend_table(link: Any, address: str) -> str:
    """A query for LiteLLM's table of requests, in whichever schema it lies."""
    found = link.execute(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE lower(table_name) = lower(%s) ORDER BY "
        "table_schema <> ALL (current_schemas(false)), table_schema, ordinal_position",
        [LITELLM],
    ).fetchall()
    if not found:
        tables = link.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN "
            "('pg_catalog', 'information_schema') ORDER BY 1 LIMIT 12"
        ).fetchall()
        raise _no_table(LITELLM, [name for (name,) in tables], address)
    from psycopg import sql

    schema, table, _ = found[0]
    columns = [
        c for s, t, c in found if (s, t) == (schema, table) and c not in _NOT_NEEDED[LITELLM]
    ]
    query: str = (
        sql.SQL("SELECT {} FROM {}")
        .format(
            sql.SQL(", ").join(sql.Identifier(name) for name in columns),
            sql.Identifier(schema, table),
        )
        .as_string(link)
    )
    return query


def _no_table(wanted: str, there: list[str], address: str) -> InputError:
    return InputError(
        f"there is no table {wanted} that this user may read",
        where=shown(address),
        available=", ".join(there) or "no tables",
        help="say which rows with --query 'select ...'",
    )


# -------------------------------------------------------------------- ClickHouse


def _clickhouse(address: str, query: str | None) -> Iterator[bytes]:
    try:
        import clickhouse_connect
        from clickhouse_connect.driver.exceptions import ClickHouseError
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise lacking("clickhouse-connect", "sql", shown(address)) from None
    parts, options = split(address), _options(address)
    unknown = sorted(options.keys() - {"secure", "verify"})
    if unknown:
        raise InputError(
            f"the address has settings that are not known: {', '.join(unknown)}",
            where=shown(address),
            available="secure, verify",
        )
    secure = options.get("secure", "").lower() in ("1", "true", "yes", "on")
    verify = options.get("verify", "").lower() not in ("0", "false", "no", "off")
    user = unquote(parts.username) if parts.username else os.environ.get("CLICKHOUSE_USER")
    password = unquote(parts.password) if parts.password else os.environ.get("CLICKHOUSE_PASSWORD")
    try:
        link = clickhouse_connect.get_client(
            host=unquote(parts.hostname or "localhost"), port=parts.port, username=user,
            password=password or "", database=unquote(parts.path.lstrip("/")) or None,
            secure=secure, verify=verify, connect_timeout=PATIENCE_S, client_name="ttftdoctor",
            autogenerate_session_id=False, compress=False,
        )  # fmt: skip
    except (ClickHouseError, HTTPError, OSError, ValueError) as error:
        raise InputError(
            "the database cannot be reached", where=shown(address),
            why=_secret_free(error, address),
            help="the port is that of HTTP, 8123 or 8443; a password is taken from "
            "CLICKHOUSE_PASSWORD",
        ) from None  # fmt: skip
    try:
        # A user who may only read may not say so again.
        limited = link.server_settings.get("readonly")
        free = limited is None or str(limited.value) == "0"
        settings = {"readonly": "2"} if free else {}
        wanted = query or _observations(link, address, settings)
        yield from _streamed(link, wanted, settings)
    except _Broken as error:
        raise InputError(
            "the answer broke off", where=shown(address), why=_secret_free(error, address)
        ) from None
    except (ClickHouseError, HTTPError, OSError) as error:
        raise InputError(
            "the query failed", where=shown(address), why=_secret_free(error, address)
        ) from None
    finally:
        link.close()


class _Broken(Exception):
    """The server gave up in the middle of its answer."""


def _rows_of(link: Any, query: str, settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """A short answer."""
    with link.raw_stream(query, settings=dict(settings), fmt="JSONEachRow") as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def _streamed(link: Any, query: str, settings: Mapping[str, str]) -> Iterator[bytes]:
    columns = _rows_of(link, f"DESCRIBE TABLE ({query}\n)", settings)
    wanted = []
    for column in columns:
        name, kind = f"`{_escaped(column['name'], '`')}`", column["type"]
        bare = re.sub(r"(?:LowCardinality|Nullable)\(|\)+$", "", kind)
        # Written with the zone of the column or of the server otherwise, and without its name.
        if bare.startswith("DateTime64"):
            name = f"formatDateTime({name}, '%Y-%m-%dT%H:%i:%S.%fZ', 'UTC') AS {name}"
        elif bare.startswith("DateTime"):
            name = f"formatDateTime({name}, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS {name}"
        elif bare in ("Date", "Date32"):
            name = f"concat(toString({name}), 'T00:00:00Z') AS {name}"
        wanted.append(name)
    text = f"SELECT {', '.join(wanted)} FROM ({query}\n)"  # noqa: S608
    last = before = b""
    with link.raw_stream(text, settings=dict(settings), fmt="JSONEachRow") as stream:
        while piece := stream.read(BATCH_BYTES):
            data = last + piece
            # The last line is held back until another follows, whole or not.
            cut = data.rfind(b"\n", 0, len(data) - 1) + 1
            whole, last = data[:cut], data[cut:]
            if whole:
                before = whole[-2000:]
                yield whole
    if not last:
        return
    # What goes wrong half-way is written behind the rows: then the last line is none.
    try:
        json.loads(last)
    except ValueError:
        said = re.search(rb"DB::Exception: ([^\r\n]*)", before + last)
        why = said[1].decode(errors="replace")[:300] if said else None
        raise _Broken(why) from None
    yield last


def _escaped(name: str, quote: str) -> str:
    return name.replace("\\", "\\\\").replace(quote, "\\" + quote)


def _observations(link: Any, address: str, settings: Mapping[str, str]) -> str:
    """A query for Langfuse's table of observations."""

    def names(table: str) -> list[str]:
        rows = _rows_of(
            link,
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND "  # noqa: S608
            f"table = '{table}' ORDER BY position",
            settings,
        )
        return [row["name"] for row in rows]

    columns = names(LANGFUSE)
    engines = {
        row["name"]: row["engine"]
        for row in _rows_of(
            link,
            "SELECT name, engine FROM system.tables WHERE database = currentDatabase() "
            "ORDER BY name LIMIT 200",
            settings,
        )
    }
    if not columns:
        raise _no_table(LANGFUSE, list(engines)[:12], address)

    def latest(table: str) -> str:
        # A row that was written again counts once.
        return "FINAL" if "Replacing" in engines.get(table, "") else ""

    # Only calls of a model have a prompt that matters here.
    listed = ", ".join(
        "if(o.type = 'GENERATION', o.input, NULL) AS input"
        if name == "input"
        else f"o.`{_escaped(name, '`')}`"
        for name in columns
        if name not in _NOT_NEEDED[LANGFUSE]
    )
    sessions = names("traces") if "session_id" not in columns else []
    if {"id", "project_id", "session_id"} <= set(sessions) and "project_id" in columns:
        return (
            f"SELECT {listed}, t.session_id AS session_id "  # noqa: S608
            f"FROM {LANGFUSE} AS o {latest(LANGFUSE)} LEFT ANY JOIN "
            f"(SELECT id, project_id, session_id FROM traces {latest('traces')}) AS t "
            "ON o.trace_id = t.id AND o.project_id = t.project_id"
        )
    return f"SELECT {listed} FROM {LANGFUSE} AS o {latest(LANGFUSE)}"  # noqa: S608
