"""k6: the points of ``--out json`` or ``csv``, where a test measures first tokens on its own.

k6 itself cannot see the pieces of a stream: ``http_req_waiting`` ends with the first byte, which is
the headers or a chunk that names the role, and is never used. A test must add a ``Trend`` whose
name has ``ttft`` or ``first_token`` in it. Each of its points is one request; others belong to it
by a tag ``request_id``, or by ``vu`` and ``iter``, which are tags or, in newer versions, metadata.
Points of one metric with the same tags are told apart by their order. In CSV, tags without a column
of their own are in ``extra_tags`` (``a=1&b=2``).

A point is stamped when it was added, at the end of an answer, so a request started its duration
before (CSV has whole seconds, if it is not told otherwise). A metric declared as time is in ms; for
another, the unit is that of its name (``ttft_seconds``), or ms. The clock is the client's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from ttftdoctor.language import mark, tr
from ttftdoctor.readers import Batch, Options, Plan, Raw, Reader
from ttftdoctor.sources import Head, Shape
from ttftdoctor.table import LINE, Field
from ttftdoctor.units import UNIT_WORDS

_TEXTS = ("type", "metric", "data")
_TAGS = ("request_id", "vu", "iter", "status", "expected_response", "model")
_COLUMNS = ("metric_name", "timestamp", "metric_value")
#: Canonical column to the pattern of metrics that mean it.
_MEANT = {
    "ttft_us": r"(?i)ttft|first_?token",
    "e2e_us": r"(?i)e2e|end_?to_?end|(total|llm|request)_?(duration|latency|time)"
    r"|^http_req_duration$",
    "input_tokens": r"(?i)(prompt|input)_?tokens",
    "output_tokens": r"(?i)(completion|output|generated)_?tokens",
    "cached_tokens": r"(?i)cached?_(read_)?(input_|prompt_)?tokens",
}
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens")


def _is_row(record: Mapping[str, Any]) -> bool:
    kind = record.get("type") in ("Metric", "Point")
    return kind and "metric" in record and isinstance(record.get("data"), dict)


def _recognise(head: Head) -> str | None:
    if set(head.columns) >= set(_COLUMNS):
        return tr("metric_name, timestamp and metric_value of points")
    if head.records and 2 * sum(map(_is_row, head.records)) >= len(head.records):
        return tr("lines of type Metric and Point")
    return None


def _unit(metric: str, declared: set[str], options: Options) -> tuple[str, str]:
    """The unit of a metric and why."""
    given = options.units.get(metric)
    last = re.split(r"[^a-z]+", metric.lower())[-1]
    if given is not None:
        return UNIT_WORDS[given], mark("given with --unit")
    if metric in declared or metric == "http_req_duration":
        return "ms", mark("declared as time, which k6 keeps in ms")
    if last in UNIT_WORDS and len(metric) > len(last):
        return UNIT_WORDS[last], tr("the name ends in {unit}", unit=last)
    return "ms", mark("as k6 keeps its own times")


#: What k6 measures of each call, of a model or not.
_OWN = "http_req_duration"


def _points(raw: Raw) -> pl.DataFrame:
    """One row a point, with what tells requests apart."""
    columns = _from_columns(raw) if raw.has("metric_name") else _from_objects(raw)
    walk = pl.concat_str([columns["vu"], columns["iter"]], separator="/")
    points = raw.frame.select(
        LINE,
        pl.coalesce(columns["request_id"], walk).alias("key"),
        *(column.alias(name) for name, column in columns.items()),
    )
    if raw.has("type"):
        points = points.filter(raw.frame["type"] == "Point")
    return points.with_columns(pl.int_range(pl.len()).over("metric", "key").alias("nth"))


def _from_objects(raw: Raw) -> dict[str, pl.Expr]:
    return {
        "metric": raw.text("metric"),
        "value": raw.text("data", "$.value"),
        "time": raw.text("data", "$.time"),
        **{
            name: pl.coalesce(
                raw.text("data", f"$.{place}.{name}") for place in ("tags", "metadata")
            )
            for name in _TAGS
        },
    }


def _from_columns(raw: Raw) -> dict[str, pl.Expr]:
    return {
        "metric": raw.text("metric_name"),
        "value": raw.text("metric_value"),
        "time": raw.text("timestamp"),
        **{
            name: pl.coalesce(
                raw.text(name),
                *(
                    raw.text(place).str.extract(rf"(?:^|&){name}=([^&]+)", 1)
                    for place in ("extra_tags", "metadata")
                ),
            )
            for name in _TAGS
        },
    }


def _declared(raw: Raw) -> set[str]:
    """Metrics that are said to be times."""
    if not (raw.has("type") and raw.has("data")):
        return set()
    said = raw.frame.filter(raw.frame["type"] == "Metric")
    times = said.filter(pl.col("data").str.json_path_match("$.contains") == "time")
    return set(times["metric"].drop_nulls().to_list())


def _pick(points: pl.DataFrame, pattern: str) -> str | None:
    """The metric that is meant: of several, the one with the shortest name."""
    found = points.filter(pl.col("metric").str.contains(pattern))["metric"]
    counts = dict(found.value_counts().iter_rows())
    most = max((n for name, n in counts.items() if name != _OWN), default=0)
    # A name that hardly occurs is that of a damaged line.
    least = max(most / 10, counts.get(_OWN, 0) / 1000)
    names = [name for name, n in counts.items() if n >= least]
    # k6's own duration counts only where the test measures none.
    return min(names, key=lambda n: (n == _OWN, len(n), n), default=None)


def _convert(raw: Raw, options: Options) -> Batch:
    points = _points(raw)
    declared = _declared(raw)
    metrics = {name: _pick(points, pattern) for name, pattern in _MEANT.items()}
    rows = points.filter(pl.col("metric") == (metrics["ttft_us"] or ""))
    for name, metric in metrics.items():
        if name == "ttft_us":
            continue
        others = points.filter((pl.col("metric") == (metric or "")) & pl.col("key").is_not_null())
        rows = rows.join(
            others.select("key", "nth", pl.col("value").alias(name)),
            on=["key", "nth"], how="left", maintain_order="left",
        )  # fmt: skip
    made = Raw(rows, raw.options)
    units = {n: _unit(metrics[n] or "", declared, options) for n in ("ttft_us", "e2e_us")}
    e2e = made.duration("e2e_us", units["e2e_us"][0], strict=False)
    code = made.text("status").cast(pl.Int64, strict=False)
    bad = (code >= 400) | (code == 0) | ~made.boolean("expected_response")
    frame = made.select(
        {
            "request_id": made.text("request_id"),
            "start": made.instant("time", strict=False) - e2e,
            "model": made.text("model"),
            **{name: made.count(name, strict=False) for name in _COUNTS},
            "ttft_us": made.duration("value", units["ttft_us"][0]),
            "e2e_us": e2e,
            "status": pl.when(code == 429)
            .then(pl.lit("rate_limited"))
            .when(bad.fill_null(False))
            .then(pl.lit("error"))
            .otherwise(pl.lit("ok")),
            "vantage": pl.lit("client"),
        }
    )
    fields = {
        "request_id": Field("tags.request_id", "", mark("a tag of the test")),
        "start": Field(
            "time - " + (metrics["e2e_us"] or ""), "", mark("added at the end"), "derived"
        ),
        "model": Field("tags.model", "", mark("a tag of the test")),
        **{name: Field(metrics[name] or "", "tokens", mark("by its name")) for name in _COUNTS},
        **{name: Field(metrics[name] or "", *units[name]) for name in units},
        "status": Field("tags.status, tags.expected_response", "", mark("k6's tags")),
        "vantage": Field("", "", mark("the load generator's own clock"), "assumed"),
    }
    notes = []
    if rows.height and rows["key"].null_count():
        notes.append(
            tr(
                "points of a request cannot be brought together: tag them with request_id, or run "
                "k6 with --system-tags vu,iter and its usual ones"
            )
        )
    return Batch(frame, {k: v for k, v in fields.items() if frame[k].count()}, tuple(notes))


def _plan(head: Head, options: Options) -> Plan:
    table = (*_COLUMNS, "extra_tags", "metadata", *_TAGS)
    names = _TEXTS if head.shape is Shape.JSON else table
    convert = partial(_convert, options=options)
    return Plan(dict.fromkeys(names, pl.String), convert, whole=True)


READER = Reader(
    "k6",
    "k6 points (--out json or csv) with a first-token metric",
    (Shape.JSON, Shape.CSV),
    _recognise,
    _plan,
    lacks=mark(
        "k6 sees no first token by itself: add a Trend named ttft_ms to the test, with a tag "
        "request_id on each of its points and on those of tokens and duration"
    ),
)
