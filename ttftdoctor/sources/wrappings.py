"""What others put around the lines of a log: containers, the journal, shippers, syslog.

A wrapping is told by the first lines and taken off by whole columns. What it says of where a line
came from is kept: ``origin`` tells apart the writers whose lines stand between one another, and
``replica`` is the container, pod or host as a person would name it. Wrappings lie around one
another (a pod's prefix around a stamp around colours); each call takes off the outermost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ttftdoctor.language import mark

#: The share of the first lines that must be wrapped alike.
MOST = 0.8

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_CRI = rf"{_STAMP} (stdout|stderr) ([FP])(?::\S*)?(?: |$)"
_KUBECTL = r"\[pod/([^/\]\s]{1,253})/([^/\]\s]{1,253})\] ?"
_COMPOSE = r"([A-Za-z0-9][\w.@-]{0,99}) *\| ?"
_COMPOSE_NAMED = r"[A-Za-z][\w.-]{0,99}[-_]\d+ *\| ?"
_LEVELS = frozenset({"TRACE", "DEBUG", "INFO", "NOTICE", "SUCCESS", "WARN", "WARNING", "ERROR",
                     "CRITICAL", "FATAL"})  # fmt: skip
_COMPOSE_BAR = re.compile(r"([A-Za-z0-9][\w.@-]{0,99} *)\| ?")
#: A prefix is no longer than this.
_PREFIX = 2000
_RFC5424 = rf"<\d{{1,3}}>1 {_STAMP} (\S+) (\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: |$)"
_TAG = r"([^\s\[\]:]{1,99})(?:\[\d+\])?: ?"
_RFC3164 = r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (\S+) " + _TAG
_SHORT_ISO = rf"{_STAMP} ([^\s:]+) ([^\s\[\]:]{{1,99}})\[\d+\]: ?"
#: Docker and Kubernetes stamp in nanoseconds; logs of engines and gateways never do.
_NANOS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) "


@dataclass(frozen=True)
class Wrapping:
    """One kind of wrapping.

    ``wraps`` tells whether a line is wrapped so; ``take_off`` makes of lines (a column of text) a
    frame with ``text`` (null: not wrapped, or broken), ``origin`` and ``replica`` (null: not
    said), ``stream`` (pieces of one line have it in common) and ``piece`` (the line goes on in
    the next of its stream). ``strict`` wrappings are around each line: one without is broken.
    ``members`` of a JSON object are the shipper's; what else it has is the log's own.
    """

    name: str
    wraps: Callable[[str], bool]
    take_off: Callable[[pl.Expr], Mapping[str, pl.Expr]]
    strict: bool = False
    members: frozenset[str] = frozenset()

    def beside(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """What a wrapped line has that is not the shipper's, and its stamps; or nothing."""
        journal = "MESSAGE" in record
        own = {
            name: value
            for name, value in record.items()
            if name.partition(".")[0] not in self.members
            and not (journal and _FIELD_OF_JOURNAL.match(name))
        }
        return own and {**{name: record[name] for name in _STAMPS if name in record}, **own}


#: Fields of the journal are written in capitals.
_FIELD_OF_JOURNAL = re.compile(r"[A-Z_][A-Z0-9_]*$")
#: Members that shippers write, whoever they are.
_SHIPPED = frozenset({
    "log", "stream", "logtag", "time", "date", "timestamp", "@timestamp", "@version", "message",
    "docker", "container", "kubernetes", "host", "agent", "ecs", "input", "cloud", "fields", "tags",
    "tag", "event", "orchestrator", "service", "offset", "source", "filename", "file", "line",
    "labels", "ts", "tsNs", "id", "attrs",
})  # fmt: skip
#: Those that a record may have itself.
_STAMPS = ("timestamp", "@timestamp", "time", "ts", "date")
#: ... and those of Google's cloud.
_CLOUD = frozenset({
    "textPayload", "jsonPayload", "protoPayload", "insertId", "logName", "resource", "timestamp",
    "receiveTimestamp", "severity", "labels", "trace", "traceSampled", "spanId", "operation",
    "sourceLocation", "httpRequest", "split",
})  # fmt: skip


_NOTHING = pl.lit(None, pl.String)


def _joined(*parts: pl.Expr) -> pl.Expr:
    """Names in one, null where there are none."""
    return pl.concat_str(parts, separator="/", ignore_nulls=True).replace("", None)


def _by_pattern(
    pattern: str,
    *,
    origin: tuple[int, ...] = (),
    replica: int | None = None,
    stream: int | None = None,
    piece: int | None = None,
) -> Callable[[pl.Expr], Mapping[str, pl.Expr]]:
    """Take off a prefix by the groups of its pattern; ``piece`` is the group that is P for one."""

    def take_off(line: pl.Expr) -> Mapping[str, pl.Expr]:
        # Of a long line only the beginning is looked at.
        found = line.str.head(_PREFIX).str.extract_groups(f"^({pattern})").struct

        def of(number: int | None) -> pl.Expr:
            return _NOTHING if number is None else found.field(str(number + 1))

        prefix = found.field("1")
        return {
            "text": pl.when(prefix.is_not_null()).then(line.str.strip_prefix(prefix)),
            "origin": _joined(*(of(n) for n in origin)) if origin else _NOTHING,
            "replica": of(replica),
            "stream": of(stream),
            "piece": pl.lit(False) if piece is None else (of(piece) == "P").fill_null(False),
        }

    return take_off


def _by_members(
    *texts: str,
    origin: Sequence[str] = (),
    replica: Sequence[str] = (),
    stream: str | None = None,
    piece: Callable[[pl.Expr], pl.Expr] | None = None,
) -> Callable[[pl.Expr], Mapping[str, pl.Expr]]:
    """Take off by members of a JSON object (JSONPaths below ``$``); the first text that is there.

    A text that is an object itself is taken as its JSON.
    """

    def take_off(line: pl.Expr) -> Mapping[str, pl.Expr]:
        def of(path: str) -> pl.Expr:
            return line.str.json_path_match(f"$.{path}")

        inner = pl.coalesce(of(text) for text in texts)
        return {
            "text": inner.str.strip_suffix("\n"),
            "origin": _joined(*(of(p) for p in origin)) if origin else _NOTHING,
            "replica": pl.coalesce(*(of(p) for p in replica)) if replica else _NOTHING,
            "stream": _NOTHING if stream is None else of(stream),
            "piece": pl.lit(False) if piece is None else piece(line).fill_null(False),
        }

    return take_off


def _holds(
    *names: str, one_of: Sequence[str] = (), but: Callable[[dict[str, Any]], bool] | None = None
) -> Callable[[str], bool]:
    """A test for lines that are JSON objects with all of these members (and one of those).

    ``but`` looks at what they hold, where other logs have members of these names.
    """

    def wraps(line: str) -> bool:
        if not line.lstrip().startswith("{"):
            return False
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return (
            isinstance(value, dict)
            and all(name in value for name in names)
            and (not one_of or any(name in value for name in one_of))
            and (but is None or but(value))
        )

    return wraps


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda line: compiled.match(line[:_PREFIX]) is not None


#: The only one whose lines may look like those of a table.
SERVICE = Wrapping(
    mark("lines with the prefix of their service"),
    _matches(_COMPOSE_NAMED),
    _by_pattern(_COMPOSE, origin=(1,), replica=1),
)

#: In the order in which they are tried; the first that fits is taken off.
WRAPPINGS = (
    Wrapping(
        mark("lines of Docker's JSON log"),
        _holds("log", "stream", "time", but=lambda one: one["stream"] in ("stdout", "stderr")),
        _by_members(
            "log", stream="stream",
            # A line of more than 16 KiB is cut; only its last piece has the line end.
            piece=lambda line: ~line.str.json_path_match("$.log").str.ends_with("\n"),
        ),
        strict=True, members=_SHIPPED,
    ),
    Wrapping(
        mark("lines of a log shipper with Kubernetes' names"),
        _holds("log", "kubernetes"),
        _by_members(
            "log", origin=("kubernetes.pod_name", "kubernetes.container_name"),
            replica=("kubernetes.pod_name",), stream="stream",
            piece=lambda line: line.str.json_path_match("$.logtag") == "P",
        ),
        strict=True, members=_SHIPPED,
    ),
    Wrapping(
        mark("lines of Filebeat"),
        _holds("@timestamp", "message", one_of=("kubernetes", "container", "agent")),
        _by_members(
            "message", origin=("kubernetes.pod.name", "kubernetes.container.name", "container.name",
                               "log.file.path"),
            replica=("kubernetes.pod.name", "container.name"),
        ),
        strict=True, members=_SHIPPED,
    ),
    Wrapping(
        mark("entries of the journal"),
        _holds("MESSAGE", "__REALTIME_TIMESTAMP"),
        _by_members(
            "MESSAGE",
            origin=("_HOSTNAME", "CONTAINER_NAME", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER"),
            replica=("CONTAINER_NAME", "_HOSTNAME"),
            piece=lambda line: line.str.json_path_match("$.CONTAINER_PARTIAL_MESSAGE") == "true",
        ),
        strict=True, members=_SHIPPED,
    ),
    Wrapping(
        mark("lines out of Loki"),
        _holds("line", "labels", but=lambda one: isinstance(one["labels"], dict)),
        _by_members(
            "line", origin=("labels.pod", "labels.container"),
            replica=("labels.pod", "labels.container"),
        ),
        strict=True, members=_SHIPPED,
    ),
    Wrapping(
        mark("entries of Google Cloud Logging"),
        _holds("resource", "timestamp", one_of=("textPayload", "jsonPayload")),
        _by_members(
            "textPayload", "jsonPayload",
            origin=("resource.labels.pod_name", "resource.labels.container_name"),
            replica=("resource.labels.pod_name",),
        ),
        strict=True, members=_CLOUD,
    ),
    Wrapping(
        mark("lines of a container runtime (CRI)"),
        _matches(_CRI),
        _by_pattern(_CRI, stream=1, piece=2),
    ),
    Wrapping(
        mark("lines with the prefix of their pod"),
        _matches(_KUBECTL),
        _by_pattern(_KUBECTL, origin=(1, 2), replica=1),
    ),
    SERVICE,
    Wrapping(
        mark("lines of syslog (RFC 5424)"),
        _matches(_RFC5424),
        _by_pattern(_RFC5424, origin=(1, 2), replica=1),
    ),
    Wrapping(
        mark("lines of syslog"),
        _matches(_RFC3164),
        _by_pattern(_RFC3164, origin=(1, 2), replica=1),
    ),
    Wrapping(
        mark("lines of the journal"),
        _matches(_SHORT_ISO),
        _by_pattern(_SHORT_ISO, origin=(1, 2), replica=1),
    ),
    Wrapping(
        mark("lines with a container's time stamp"),
        _matches(_NANOS),
        _by_pattern(_NANOS),
    ),
)  # fmt: skip


def wrapping_of(lines: Sequence[str]) -> Wrapping | None:
    """The wrapping that most of these lines have, the outermost one; None without."""
    if not lines:
        return None
    for wrapping in WRAPPINGS:
        # Most logs are told by a few lines; the others are looked at only where these are wrapped.
        few = lines[:8]
        if not any(map(wrapping.wraps, few)):
            continue
        if sum(map(wrapping.wraps, lines)) >= MOST * len(lines):
            return wrapping
    return SERVICE if _has_bar(lines) else None


#: Where a file of the runtime lies says whose it is: in ``containers``, or in ``pods``.
_IN_CONTAINERS = re.compile(r"([a-z0-9.-]{1,253})_[a-z0-9-]+_[a-z0-9.-]+-[0-9a-f]{64}\.log\b")
_IN_PODS = re.compile(
    r"[\\/][a-z0-9-]+_([a-z0-9.-]{1,253})_[0-9a-f-]{32,36}[\\/][^\\/]+[\\/]\d+\.log\b"
)


def replica_of_path(path: str) -> str | None:
    """The pod whose log this is by the place of the file; None where it does not say."""
    found = _IN_CONTAINERS.search(path) or _IN_PODS.search(path)
    return found.group(1) if found else None


def _has_bar(lines: Sequence[str]) -> bool:
    """Whether all lines have a bar at one place behind a few names, as Compose aligns them."""
    found = [match for match in map(_COMPOSE_BAR.match, lines) if match is not None]
    names = {match.group(1) for match in found}
    return (
        len(found) >= MOST * len(lines)
        and len({len(name) for name in names}) == 1
        and len(lines) >= 3 * len(names)
        and all(name[0].isalpha() and name.strip().upper() not in _LEVELS for name in names)
    )
