"""Seeded damage to the sample logs: files of thousands of records, most of them broken somewhere.

A file is made of copies of a format's sample, so that what belongs together (spans of a trace,
lines of a request) is there again and again, under other ids in each copy. ``Maker.file`` makes
the same file from the same seed and number, on any machine.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Of the records of a file so many are damaged; the others keep the file recognisable.
DAMAGED = 0.75
#: Where the records lie in a sample that is one document: keys, ``*`` for each element.
LISTS = {
    "burstgpt-replay": (),
    "cloudflare": ("result",),
    "datadog": ("data",),
    "fmperf": ("results",),
    "genai-bench": ("individual_request_metrics",),
    "genai-perf": ("experiments", "*", "requests"),
    "guidellm": ("benchmarks", "*", "requests", "*"),
    "inference-perf": (),
    "jaeger": ("data",),
    "llm-load-test": ("results",),
    "llmperf": (),
    "mlperf-loadgen": ("traceEvents",),
    "opik": ("content",),
    "phoenix": ("data",),
    "vllm-multiturn": (),
    "weka": ("requests",),
}  # fmt: skip
#: Samples whose records lie across arrays of one length: so many in each run.
ACROSS = {"vllm-bench": 250}

#: Raw texts from here on are no JSON, or none that Python reads.
_GOOD_RAW = 17
#: ... and so is what is nested deeper than this.
_GOOD_DEPTH = 300

# Texts that are put in place of a whole JSON string, quotes included, once it is written.
_RAW = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "-0", "-0.0", "9" * 400,
    "-" + "9" * 25, "1" + "0" * 18, "18446744073709551616", "0.1e+308", '"\\ud800"',
    '"\\udfff\\ud800"', '"\\u0000"', '{"a":1,"a":[2],"":{}}', "9" * 5000, "01", "+1", "1.", ".5",
    "0x10", "tru", "None", "undefined", "'x'", "1_000", '"\\x41"', "",
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -0.0, 0.5, -0.5, 1e-9, 1e18, -1e18, 1e300, -1e300, 2**31, 2**32,
    2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400, 86_400_000_001,
    10**8, 10**8 + 1, "", " ", "null", "None", "NaN", "nan", "inf", "-inf", "1e999", "-1", "0",
    "12", "12.5", "1,5", "1 000", "12ms", "3 s", "-5ms", "1e400s", "9" * 30, "0x1F", "१२", "１２",
    "true", "yes", "ok", "error", "499", "429", "\x00", "\x1b[31mred\x1b[0m", "\ud800", "\ufeff",
    "\u2028", "\r", "a\nb", "'", '"', "\\", "{", "[", "{}", "[]", '{"a":', "[1,2", "$", "$.a",
    "../../etc/passwd", "<script>", "=1+1", "🦊" * 20, "e\u0301", "\u202eabc",
    "0000-00-00T00:00:00Z", "9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00", "2026-02-30T10:00:00Z", "2026-08-01T25:61:61Z",
    "2026-08-01T10:00:00.123456789123Z", "2026-08-01", "2026-08-01T10:00:00+99:99",
    "2026-08-01 10:00:00", "1785578400", "-1785578400", "1785578400000000000", [], {}, [1, 2],
    ["a"], [None], [[1]], [{}], [[]], [-1, -2], [1e300] * 3, {"a": 1}, {"value": None}, {"": ""},
    {"intValue": "x"}, {"stringValue": None}, [{"key": 1, "value": 2}], [{"key": "a"}],
    [0.1, "b", None],
)  # fmt: skip
_BYTES = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf",
    b"\r", b"\t", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xe2\x80\xa8", b"\x1b[0m", b"\x1b[", b'"',
    b"'", b"\\", b",", b"{", b"}", b"[", b"]", b":", b"|", b"=", b"-", b"99999999999999999999",
    b"1e999", b"NaN", b"null", b"%s", b"()", b"\xf0\x9f\xa6\x8a",
)  # fmt: skip
_ID = re.compile(r"(?i)(?:id|uuid|span|trace|parent|session|conversation|thread|request)s?$")
_HEX = re.compile(r"[0-9a-f]{16,32}$")
_NAMED = re.compile(rb"\b((?:req|sess|conv|chatcmpl|cmpl|call|msg)-[\w-]*?\d+\w*)")
_NUMBERED = re.compile(rb"((?:task|session|req_id:|trace_id:|id=)[ =:]*\|?[ ]*)(\d{1,6})(?![\d.])")


@dataclass(frozen=True)
class Made:
    """A file: how it is written, how many of its records are damaged, and its name's ending."""

    variant: str
    damaged: int
    suffix: str


class Maker:
    """Makes files of one format out of its sample; ``shapes`` are those that its reader takes."""

    def __init__(self, name: str, sample: Path, shapes: frozenset[str], seed: int) -> None:
        self.name = name
        self.data = sample.read_bytes()
        self.suffix = sample.suffix
        self.shapes = shapes
        self.seed = seed
        self.bare = False
        self.document: Any = None
        self.records: list[Any] = []
        self.lines: list[bytes] = []
        self.rows: list[list[str]] = []
        if name in ACROSS:
            self.native = "arrays"
            self.records = [json.loads(line) for line in self.data.splitlines()]
        elif sample.suffix == ".json":
            self.native = "document"
            self.document = json.loads(self.data)
            self.records = [one for _, some in self._places(self.document) for one in some]
        elif sample.suffix == ".csv":
            self.native = "csv"
            self.rows = list(csv.reader(io.StringIO(self.data.decode())))
            header = self.rows[0]
            self.records = [dict(zip(header, row, strict=False)) for row in self.rows[1:]]
        else:
            self.native = "lines" if sample.suffix == ".jsonl" else "text"
            self.lines = self.data.splitlines()
            for line in self.lines:
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    self.records.append(value)

    # ------------------------------------------------------------------ files

    def variants(self) -> list[str]:
        """The ways in which files are written, in turns; the sample's own way most often."""
        other = []
        if self.native == "lines":
            other.append("array")
        if self.native == "document":
            other.append("lines of it")
        if "csv" in self.shapes and self.native != "csv" and self.records:
            other.append("csv of it")
        if "parquet" in self.shapes:
            other.append("parquet")
        if "json" in self.shapes and self.records and self.native != "arrays":
            other.append("sqlite")
        if "json" in self.shapes and self.native in ("text", "csv"):
            other.append("lines of it")
        out: list[str] = []
        for one in other:
            out += [self.native, self.native, one]
        return out or [self.native]

    def file(self, number: int, damaged: int, path: Path, *, bare: bool = False) -> Made:
        """Write the file of this number with so many damaged records.

        ``bare`` files do not begin with the sample as it is.
        """
        rng = random.Random(f"{self.seed} {self.name} {number}")
        self.bare = bare
        turns = self.variants()
        variant = turns[number % len(turns)]
        if variant == "parquet":
            _parquet(rng, self._fresh(rng, damaged), path)
        elif variant == "sqlite":
            damaged = min(damaged, 2500)
            _sqlite(rng, self._fresh(rng, damaged), path)
        else:
            work: Mapping[str, Callable[..., tuple[bytes, int]]] = {
                "lines": self._lines, "text": self._text, "csv": self._csv,
                "document": self._document, "arrays": self._arrays, "array": self._array,
                "lines of it": self._lines_of_it, "csv of it": self._csv_of_it,
            }  # fmt: skip
            data, damaged = work[variant](rng, damaged)
            # Some files begin with a mark, some end early.
            if rng.random() < 0.1:
                data = b"\xef\xbb\xbf" + data
            if variant not in ("document", "array", "arrays") and rng.random() < 0.2:
                data = data[: -rng.randrange(1, 60)]
            path.write_bytes(data)
        suffix = {"parquet": ".parquet", "sqlite": ".db", "array": ".json"}.get(variant)
        suffix = suffix or (
            ".csv" if "csv" in variant else ".log" if variant == "text" else ".jsonl"
        )
        return Made(variant, damaged, suffix)

    def _lines(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        out: list[bytes] = [] if self.bare or rng.random() < 0.15 else list(self.lines)
        done = 0
        for copy, at in _copies(len(self.lines)):
            line = self.lines[at]
            if rng.random() < DAMAGED:
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if value is None:
                    line = _broken(rng, line)
                else:
                    line = _written(rng, _harmed(rng, renamed(value, copy)), self.lines)
                done += 1
            else:
                line = _other_ids(line, copy)
            out.append(line)
            if done >= damaged:
                break
        return _joined(rng, out), done

    def _text(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        out: list[bytes] = [] if self.bare or rng.random() < 0.15 else list(self.lines)
        done = 0
        for copy, at in _copies(len(self.lines)):
            line = _other_ids(self.lines[at], copy)
            if rng.random() < DAMAGED * 0.6:
                line = _broken(rng, line, self.lines)
                done += 1
            out.append(line)
            if done >= damaged:
                break
        return _joined(rng, out), done

    def _csv(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        return _table(rng, self.rows[0], self.rows[1:], damaged)

    def _csv_of_it(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        names = list(dict.fromkeys(name for one in self.records for name in one))
        rows = [[_cell(one.get(name)) for name in names] for one in self.records]
        return _table(rng, names, rows, damaged)

    def _array(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        sound = rng.random() < 0.96
        made = [_dumped(rng, one, sound=sound) for one in self._fresh(rng, damaged)]
        return b"[" + b",\n".join(made) + b"]", damaged

    def _lines_of_it(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        records = self.records or [
            {"message": line.decode("utf-8", "replace")} for line in self.lines
        ]
        whole = [json.dumps(one).encode() for one in records]
        made = [_written(rng, one, whole) for one in self._fresh(rng, damaged, records)]
        return _joined(rng, made), damaged

    def _document(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        document = json.loads(json.dumps(self.document))
        places = self._places(document)
        total = sum(len(some) for _, some in places)
        done = 0
        for put, some in places:
            mine = max(1, round(damaged * len(some) / max(total, 1)))
            grown = [] if self.bare or rng.random() < 0.15 else list(some)
            for copy, at in _copies(len(some)):
                one = renamed(some[at], copy)
                if rng.random() < DAMAGED:
                    one, done, mine = _harmed(rng, one), done + 1, mine - 1
                grown.append(one)
                if mine <= 0:
                    break
            put(grown)
        if isinstance(document, dict) and rng.random() < 0.3 and self.name != "burstgpt-replay":
            # What stands around the records.
            key = rng.choice(list(document))
            if not isinstance(document[key], (list, dict)) or not document[key]:
                document[key] = _copied(rng.choice(_ODD))
        data = _dumped(rng, document, sound=rng.random() < 0.96)
        if rng.random() < 0.03:
            data = _broken(rng, data[:-200]) + data[-200:]
        return data, done

    def _arrays(self, rng: random.Random, damaged: int) -> tuple[bytes, int]:
        size = ACROSS[self.name]
        out: list[bytes] = [] if self.bare or rng.random() < 0.2 else self.data.splitlines()
        done = 0
        while done < damaged:
            run = json.loads(json.dumps(rng.choice(self.records)))
            across = [name for name, value in run.items() if isinstance(value, list)]
            for name in across:
                values = run[name] or [0]
                run[name] = [values[at % len(values)] for at in range(size)]
            # A value of another type makes a whole run another one: most have few.
            odd = rng.choice((0.0, 0.0, 0.01, 0.3))
            for at in range(size):
                name = rng.choice(across)
                if rng.random() < odd:
                    run[name][at] = _odd(rng, run[name][at])
                elif rng.random() < 0.1:
                    run[name][at] = None
                elif isinstance(run[name][at], (int, float)):
                    run[name][at] = _scaled(rng, run[name][at])
            if rng.random() < 0.3:
                name = rng.choice(across)
                run[name] = rng.choice(
                    (run[name][: rng.randrange(size)], _odd(rng, run[name]), None)
                )
            if rng.random() < 0.15:
                run = _harmed(rng, run)
            line = _dumped(rng, run, sound=rng.random() < 0.96)
            out.append(_broken(rng, line, out) if rng.random() < 0.05 else line)
            done += size
        return _joined(rng, out), done

    def _fresh(self, rng: random.Random, n: int, records: list[Any] | None = None) -> Iterator[Any]:
        """So many damaged records."""
        records = records or self.records
        for copy, at in _copies(len(records)):
            if n <= 0:
                return
            n -= 1
            yield _harmed(rng, renamed(records[at], copy))

    def _places(self, document: Any) -> list[tuple[Callable[[list[Any]], None], list[Any]]]:
        """The lists of records of the document, each with a way to replace it."""
        found: list[tuple[Callable[[list[Any]], None], list[Any]]] = []

        def walk(value: Any, keys: tuple[str, ...]) -> None:
            if not keys:
                if isinstance(value, dict):  # a mapping of records
                    records = list(value.values())
                    found.append((lambda new: _number(value, new), records))
                else:
                    found.append((lambda new: _replace(value, new), list(value)))
            elif keys[0] == "*":
                for one in value.values() if isinstance(value, dict) else value:
                    if one:
                        walk(one, keys[1:])
            else:
                walk(value[keys[0]], keys[1:])

        walk(document, LISTS.get(self.name, ()))
        return [place for place in found if place[1]]


def _copies(size: int) -> Iterator[tuple[int, int]]:
    """One copy of the sample behind another, record by record, without an end."""
    copy = 1
    while True:
        yield from ((copy, at) for at in range(size))
        copy += 1


def _replace(old: list[Any], new: list[Any]) -> None:
    old[:] = new


def _number(old: dict[str, Any], new: list[Any]) -> None:
    old.clear()
    old.update((str(at), one) for at, one in enumerate(new))


# ------------------------------------------------------------------------ ids


def renamed(value: Any, copy: int, key: str = "") -> Any:
    """A copy of a record under other ids, the same for all records of one copy of the sample."""
    if isinstance(value, dict):
        return {name: renamed(one, copy, name) for name, one in value.items()}
    if isinstance(value, list):
        return [renamed(one, copy, key) for one in value]
    if isinstance(value, str) and value and _ID.search(key):
        if _HEX.match(value):
            return f"{value[:-6]}{copy % 2**24:06x}"
        return f"{value}-{copy}"
    return value


def _other_ids(line: bytes, copy: int) -> bytes:
    mark = b"%d" % copy
    line = _NAMED.sub(lambda m: m.group(1) + b"x" + mark, line)
    return _NUMBERED.sub(lambda m: m.group(1) + m.group(2) + mark, line)


# ----------------------------------------------------------------------- JSON


def _odd(rng: random.Random, value: Any) -> Any:
    """Something else in place of a value; raw texts are marked until they are written."""
    pick = rng.random()
    if pick < 0.5:
        return _copied(rng.choice(_ODD))
    if pick < 0.75:
        return f"@raw{rng.randrange(len(_RAW))}@"
    if pick < 0.85:
        return rng.choice(
            (str(value), [value], {"value": value}, [value, value], json.dumps(value))
        )
    if pick < 0.88:
        return f"@deep{rng.choice((3, 10, 40, 130, 130, 500, 1200, 5000))}@"
    if pick < 0.886:
        return rng.choice(("x", "9", "🦊", "[", "\\")) * rng.choice((300, 5000, 40_000))
    return _scaled(rng, value)


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value)) if isinstance(value, (dict, list)) else value


def _scaled(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (-value, value * 1000, value // 1000, value * 10**12, value + 1, value - 10**6)
        )
    if isinstance(value, float):
        return rng.choice((-value, value * 1000, value / 1000, value * 1e15, round(value, 1)))
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return rng.choice(
            (value[:at], value[at:], value * 2, value[::-1], value.upper(), f" {value} ")
        )
    return None


def _harmed(rng: random.Random, record: Any) -> Any:
    """The record with one to four things wrong, anywhere inside it."""
    if not isinstance(record, dict):
        return _odd(rng, record)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        at: Any = record
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = rng.choice(keys)
            inner = at[key]
            if isinstance(inner, (dict, list)) and inner and rng.random() < 0.8:
                at = inner
                continue
            pick = rng.random()
            if isinstance(inner, str) and inner[:1] in "{[" and len(inner) > 2 and pick < 0.6:
                try:  # JSON within JSON
                    at[key] = json.dumps(_harmed(rng, json.loads(inner)))
                except (ValueError, RecursionError):
                    at[key] = inner[: rng.randrange(len(inner))]
            elif pick < 0.6:
                at[key] = _odd(rng, inner)
            elif pick < 0.75 and not isinstance(inner, (dict, list)):
                at[key] = _scaled(rng, inner)
            elif pick < 0.87:
                del at[key]
            elif isinstance(at, dict):
                if pick < 0.92:
                    at[f"@twice@{key}"] = _odd(rng, inner)
                elif pick < 0.96:
                    at[
                        rng.choice((key.upper(), f"{key} ", f"{key}\x00", "", "$", "a.b", "line"))
                    ] = inner
                else:
                    at[key] = _copied(rng.choice(list(record.values()))) if record else None
            else:
                at.append(_odd(rng, inner))
            break
    return record


_MARK = re.compile(rb'"@raw(\d+)@"|"@deep(\d+)@"|@twice@')


def _dumped(rng: random.Random, value: Any, *, sound: bool = False) -> bytes:
    """The value as JSON with its raw texts; ``sound``: only those that can be read."""

    def raw(match: re.Match[bytes]) -> bytes:
        if match.group(1):
            number = int(match.group(1))
            return _RAW[number % _GOOD_RAW if sound else number].encode()
        if match.group(2):
            depth = int(match.group(2))
            depth = min(depth, _GOOD_DEPTH) if sound else depth
            return rng.choice((b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth))
        return b""

    return _MARK.sub(
        raw, json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    )


def _written(rng: random.Random, value: Any, others: list[bytes]) -> bytes:
    line = _dumped(rng, value)
    return _broken(rng, line, others) if rng.random() < 0.15 else line


# ---------------------------------------------------------------------- lines


def _broken(rng: random.Random, line: bytes, others: list[bytes] | None = None) -> bytes:
    """A line cut, spliced, repeated or with other bytes in it; it stays one line."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        a, b = sorted((rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)))
        pick = rng.randrange(12)
        if pick == 0:
            line = line[:a]
        elif pick == 1:
            line = line[a:]
        elif pick == 2:
            line = line[:a] + line[b:]
        elif pick == 3:
            line = line[:b] + line[a:]
        elif pick == 4 and others:
            other = rng.choice(others)
            line = line[:a] + other[rng.randrange(len(other) + 1) :]
        elif pick in (5, 6):
            line = re.sub(rb"\d", lambda _: b"%d" % rng.randrange(10), line)
        elif pick == 7:
            numbers = list(re.finditer(rb"\d+(?:\.\d+)?", line))
            if numbers:
                one = rng.choice(numbers)
                new = rng.choice(
                    (b"-1", b"9" * 25, b"9" * 400, b"0", b"1e999", b"nan", b"", b"1.2.3", b"12,5")
                )
                line = line[: one.start()] + new + line[one.end() :]
        elif pick == 8:
            words = line.split(b" ")
            rng.shuffle(words)
            line = b" ".join(words)
        elif pick == 9 and rng.random() < 0.1:
            line = line[:a] + rng.choice(_BYTES) * rng.choice((500, 3000)) + line[a:]
        else:
            line = line[:a] + rng.choice(_BYTES) + line[a:]
    return line.replace(b"\n", b" ")


def _joined(rng: random.Random, lines: list[bytes]) -> bytes:
    end = rng.choice((b"\n", b"\n", b"\n", b"\r\n"))
    return end.join(lines) + end


# --------------------------------------------------------------------- tables


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _table(
    rng: random.Random, header: list[str], rows: list[list[str]], damaged: int
) -> tuple[bytes, int]:
    out = io.StringIO()
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(out, lineterminator=rng.choice(("\n", "\n", "\r\n")), quoting=quoting,
                        delimiter=rng.choice((",", ",", ",", ";", "\t")))  # fmt: skip
    names = list(header)
    if rng.random() < 0.15:
        names[rng.randrange(len(names))] = rng.choice(
            ("", "x", names[0], '"', "line", names[-1] + " ")
        )
    writer.writerow(names)
    ids = [at for at, name in enumerate(header) if _ID.search(name)]
    left = damaged
    for copy, at in _copies(len(rows)):
        row = list(rows[at])
        for place in ids:
            if place < len(row) and row[place]:
                row[place] += f"-{copy}"
        if rng.random() < DAMAGED:
            left, row = left - 1, _bad_row(rng, row)
        writer.writerow(row)
        if left <= 0:
            break
    data = out.getvalue().replace("\x00", "\x01").encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:  # bytes anywhere, so that quotes and lines break as well
        cells = bytearray(data)
        for _ in range(rng.choice((1, 5, 200))):
            at = rng.randrange(len(names) * 10, len(cells))
            cells[at : at + rng.randrange(2)] = rng.choice(_BYTES[1:])
        data = bytes(cells)
    return data, damaged


def _bad_row(rng: random.Random, row: list[str]) -> list[str]:
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(row)) if row else 0
        pick = rng.random()
        if not row or pick < 0.03:
            row.insert(at, rng.choice(("", "1", "x,y")))
        elif pick < 0.06:
            del row[at]
        elif pick < 0.5:
            odd = rng.choice(_ODD)
            row[at] = _cell(odd)[:5000]
        elif pick < 0.7:
            row[at] = str(_scaled(rng, row[at]))
        else:
            row[at] = _broken(rng, row[at].encode("utf-8", "replace")).decode("utf-8", "replace")
    return row


def _parquet(rng: random.Random, records: Iterator[Any], path: Path) -> None:
    """Columns of one type each, as Parquet has it; most of them of another one than usual."""
    import polars as pl

    kinds: list[Any] = [
        pl.String, pl.String, pl.Int8, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Float64,
        pl.Boolean, pl.Date, pl.Time, pl.Datetime("ms"), pl.Datetime("us", "UTC"),
        pl.Datetime("ns"), pl.Duration("us"), pl.Duration("ns"), pl.Decimal(38, 3), pl.Binary,
        pl.List(pl.Float64), pl.List(pl.String), pl.Struct({"value": pl.Float64, "a": pl.String}),
        pl.Categorical, pl.Null,
    ]  # fmt: skip
    rows = list(records)
    names = list(dict.fromkeys(name for one in rows for name in one if "@" not in name and name))
    columns: list[Any] = []
    for name in names[:60]:
        values = [one.get(name) for one in rows]
        numbers = sum(isinstance(value, (int, float)) for value in values) > len(values) / 2
        kind = (pl.Float64 if numbers else pl.String) if rng.random() < 0.6 else rng.choice(kinds)
        columns.append(_column(rng, name, values, kind))
    pl.DataFrame(columns).write_parquet(path)


def _column(rng: random.Random, name: str, values: list[Any], kind: Any) -> Any:
    import polars as pl

    if kind == pl.String:
        texts = [
            None if v is None else _cell(v)[:2000].encode("utf-8", "replace").decode()
            for v in values
        ]
        return pl.Series(name, texts, dtype=pl.String)
    if kind == pl.Binary:
        return pl.Series(name, [None if v is None else rng.choice(_BYTES) for v in values])
    numbers = [float(v) if isinstance(v, (int, float)) and abs(v) < 1e300 else None for v in values]
    floats = pl.Series(name, numbers, dtype=pl.Float64)
    if kind == pl.Float64 and rng.random() < 0.7:
        odd = [
            rng.choice((v, v, v, v, float("nan"), float("inf"), float("-inf"), -1.0, 1e300))
            for v in numbers
        ]
        return pl.Series(name, odd, dtype=pl.Float64)
    if isinstance(kind, pl.List):
        inner = floats.cast(kind.inner, strict=False).to_list()
        return pl.Series(
            name, [rng.choice(([v], [], None, [v, v], [None])) for v in inner], dtype=kind
        )
    if isinstance(kind, pl.Struct):
        return pl.Series(name, [{"value": v, "a": "x"} for v in numbers], dtype=kind)
    if kind == pl.Categorical:
        return pl.Series(name, [rng.choice(("a", "", "7", None)) for _ in values]).cast(kind)
    if kind in (pl.Date, pl.Time) or isinstance(kind, (pl.Datetime, pl.Duration)):
        whole = [
            rng.choice((0, 1, -1, 2**62, -(2**62), 1_785_578_400_000_000, None)) for _ in values
        ]
        if kind == pl.Time:
            whole = [None if v is None else abs(v) % 86_400_000_000_000 for v in whole]
        if kind == pl.Date:
            return pl.Series(
                name, [None if v is None else v % 2**31 - 2**30 for v in whole], dtype=pl.Int32
            ).cast(kind)
        return pl.Series(name, whole, dtype=pl.Int64).cast(kind)
    return floats.cast(kind, strict=False)


def _sqlite(rng: random.Random, records: Iterator[Any], path: Path) -> None:
    """One table, its cells of any type."""
    rows = [one for one in records if isinstance(one, dict)]
    names = list(dict.fromkeys(name for one in rows for name in one if name and "@" not in name))
    unique = list({name.lower().replace("\x00", ""): name for name in names}.values())[:60]

    def cell(value: Any) -> Any:
        if value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            return (
                value
                if abs(value) < 2**63
                else float(value)
                if abs(value) < 1e300
                else str(value)[:50]
            )
        if rng.random() < 0.02:
            return rng.choice(_BYTES)
        return _cell(value)[:5000].encode("utf-8", "replace").decode()

    with closing(sqlite3.connect(path)) as link:
        columns = ", ".join(
            '"' + name.replace('"', '""').replace("\x00", "") + '"' for name in unique
        )
        link.execute(f"CREATE TABLE requests ({columns})")
        marks = ", ".join("?" * len(unique))
        link.executemany(
            f"INSERT INTO requests VALUES ({marks})",
            ([cell(one.get(name)) for name in unique] for one in rows),
        )
        link.commit()
