"""The tables of a diagnosis as CSV: plain numbers in seconds and tokens, one file a table.

Every table is there for every log, with its header, so that whoever reads them need not look
first. Columns are named as in the ``--json`` document; an interval is two columns, ``_low`` and
``_high``; several sentences stand in one cell, with a semicolon between them. Unknown is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, Finding, Interval, Slice
from ttftdoctor.report import clean, findings, ledger_groups, remedies_by_gain

Value = str | int | float | bool | None
Row = Mapping[str, Value]

#: A cell that begins like this is a formula to a spreadsheet, in wide letters too; the apostrophe
#: before it makes it text, and is itself guarded, so that taking one away gives the text back.
_FORMULA = "=+-@'\t\r＝＋－＠"

#: The longest text of a cell.
LONGEST = 4000

_POPULATION = (
    "requests", "sessions", "turns_max", "start", "end", "with_ttft", "vantage", "ttft_mean_s",
    "ttft_p50_s", "ttft_p95_s",
)  # fmt: skip
_SLICE = ("n", "input_p50", "uncached_p50", "ttft_p50_s", "ttft_p95_s", "tpot_p50_s")
_WORST = ("request_id", "path", "line", "session_id", "turn", "start", "ttft_s", "seconds")
_BAND = ("input_tokens_from", "input_tokens_to")

#: File to its columns, in the order in which they are written.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "summary.csv": (
        "version", "primary_cause", "family", "confidence", "scope", "headline", *_POPULATION,
        "slo_target_s", "slo_attainment", "slo_goodput_per_s",
    ),
    "inputs.csv": ("path", "format", "rows_read", "rows_used", "rows_rejected"),
    "rejected.csv": ("path", "what", "reason", "rows"),
    "causes.csv": (
        "id", "family", "status", "seconds", "share_of_ttft", "share_of_growth", "interval_low",
        "interval_high", "confidence", "evidence", "needs", "ruled_out_because",
    ),
    "ledger.csv": ("group", "n", "ttft_mean_s", *ACCOUNTS),
    "remedies.csv": (
        "id", "title", "ttft_mean_s", "ttft_p50_s", "ttft_p95_s", "gain_share", "interval_low",
        "interval_high", "applies_to", "assumptions", "cost", "gpu_seconds_saved", "money_saved",
        "money_saved_per_day", "note",
    ),
    "by_turn.csv": ("turn", *_SLICE),
    "by_input_length.csv": (*_BAND, *_SLICE),
    "turn_by_length.csv": ("turn", *_BAND, *_SLICE),
    "by_hour.csv": ("hour", *_SLICE),
    "by_replica.csv": ("replica", *_SLICE),
    "by_model.csv": ("model", *_SLICE),
    "cost_lines.csv": ("phase", "model", "figure", "value", "low", "high", "n", "method"),
    "worst_requests.csv": ("cause", *_WORST),
    "worst_sessions.csv": ("session_id", "requests", "recomputed_tokens", "prefill_s"),
    "prefix_ladder.csv": (
        "id", "title", "owner", "basis", "hit_tokens", "share", "lost_tokens", "lost_share",
        "lost_seconds", "lost_money", "says",
    ),
    "prefix_groups.csv": (
        "column", "name", "requests", "input_tokens", "lost_tokens", "lost_seconds", "lost_money",
    ),
    "notes.csv": ("kind", "text"),
}  # fmt: skip


def tables(diagnosis: Diagnosis) -> dict[str, str]:
    """File name to the text of the table, in the order of :data:`COLUMNS`.

    ``worst_sessions.csv`` has rows only for a diagnosis that was made with its drawings.
    """
    rows = {
        "summary.csv": _summary(diagnosis),
        "inputs.csv": _inputs(diagnosis),
        "rejected.csv": _rejected(diagnosis),
        "causes.csv": [_cause(finding) for finding in findings(diagnosis)],
        "ledger.csv": _ledger(diagnosis),
        "remedies.csv": _remedies(diagnosis),
        **_splits(diagnosis),
        "cost_lines.csv": _cost_lines(diagnosis),
        "worst_requests.csv": _worst(diagnosis),
        "worst_sessions.csv": _sessions(diagnosis),
        "prefix_ladder.csv": _ladder(diagnosis),
        "prefix_groups.csv": _groups(diagnosis),
        "notes.csv": _notes(diagnosis),
    }
    return {name: _text(columns, rows[name]) for name, columns in COLUMNS.items()}


def guarded(text: object) -> str:
    """A text for a cell that no spreadsheet runs and no terminal obeys.

    Examples
    --------
    >>> guarded("=1+1")
    "'=1+1"
    """
    shown = clean(text, LONGEST)
    return f"'{shown}" if shown.lstrip()[:1] in _FORMULA and shown.strip() else shown


def _text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: Value) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return value if value == value and abs(value) != float("inf") else ""
    return guarded(value)


def _fields(record: object, names: Iterable[str]) -> dict[str, Value]:
    return {name: getattr(record, name) for name in names}


def _bounds(interval: Interval | None) -> dict[str, Value]:
    low, high = interval or (None, None)
    return {"interval_low": low, "interval_high": high}


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(texts)


def _pairs(mapping: Mapping[str, object] | None) -> str:
    return _joined(f"{name}={value}" for name, value in (mapping or {}).items())


def _summary(d: Diagnosis) -> list[Row]:
    row: dict[str, Value] = {"version": d.version, "scope": _pairs(d.verdict.scope)}
    row |= _fields(d.verdict, ("primary_cause", "family", "confidence", "headline"))
    row |= _fields(d.population, _POPULATION)
    if d.slo is not None:
        row |= {
            f"slo_{name}": getattr(d.slo, name)
            for name in ("target_s", "attainment", "goodput_per_s")
        }
    return [row]


def _inputs(d: Diagnosis) -> list[Row]:
    return [
        {**_fields(item, ("path", "format", "rows_read", "rows_used")),
         "rows_rejected": sum(item.rows_rejected.values())}
        for item in d.inputs
    ]  # fmt: skip


def _rejected(d: Diagnosis) -> list[Row]:
    return [
        {"path": item.path, "what": what, "reason": reason, "rows": n}
        for item in d.inputs
        for what, tally in (("row", item.rows_rejected), ("ttft", item.ttft_set_aside))
        for reason, n in sorted(tally.items())
    ]


def _cause(finding: Finding) -> Row:
    names = ("id", "family", "status", "seconds", "share_of_ttft", "share_of_growth", "confidence")
    return {
        **_fields(finding, (*names, "ruled_out_because")),
        **_bounds(finding.interval),
        "evidence": _joined(statement.text for statement in finding.evidence),
        "needs": _joined(finding.needs),
    }


def _ledger(d: Diagnosis) -> list[Row]:
    return [
        {**_fields(row, ("group", "n", "ttft_mean_s")),
         **{name: row.accounts.get(name) for name in ACCOUNTS}}
        for row in ledger_groups(d)
    ]  # fmt: skip


def _remedies(d: Diagnosis) -> list[Row]:
    plain = [
        name
        for name in COLUMNS["remedies.csv"]
        if not name.startswith("interval_") and name not in ("applies_to", "assumptions")
    ]
    return [
        {**_fields(gain, plain), **_bounds(gain.interval),
         "applies_to": _joined(gain.applies_to), "assumptions": _joined(gain.assumptions)}
        for gain in remedies_by_gain(d)
    ]  # fmt: skip


def _splits(d: Diagnosis) -> dict[str, list[Row]]:
    def rows(slices: Sequence[Slice], keys: Sequence[str]) -> list[Row]:
        return [
            {**{key: one.key.get(key) for key in keys}, **_fields(one, _SLICE)} for one in slices
        ]

    s = d.splits
    return {
        "by_turn.csv": rows(s.by_turn, ("turn",)),
        "by_input_length.csv": rows(s.by_input_length, _BAND),
        "turn_by_length.csv": rows(s.turn_by_length, ("turn", *_BAND)),
        "by_hour.csv": rows(s.by_hour, ("hour",)),
        "by_replica.csv": rows(s.by_replica, ("replica",)),
        "by_model.csv": rows(s.by_model, ("model",)),
    }


def _cost_lines(d: Diagnosis) -> list[Row]:
    found: list[Row] = []

    def add(phase: str, line: object, model: str | None, *names: str) -> None:
        for name in names:
            value = getattr(line, name)
            if value is None:
                continue
            low, high = getattr(line, f"{name}_interval", None) or (None, None)
            found.append(
                {"phase": phase, "model": model, "figure": name, "value": value, "low": low,
                 "high": high, "n": getattr(line, "n", None) or getattr(line, "requests", None),
                 "method": getattr(line, "method", None)}
            )  # fmt: skip

    lines = d.cost_lines
    if lines.prefill is not None:
        add(
            "prefill", lines.prefill, None, "fixed_ms", "ms_per_1k_tokens",
            "ms_per_1k_tokens_per_1k_context", "ms_per_1k_context", "residual_p50_ms",
        )  # fmt: skip
    for one in lines.by_model:
        add("prefill", one, one.model, "fixed_ms", "ms_per_1k_tokens", "ms_per_1k_context")
    if lines.decode is not None:
        slopes = ("slope_per_1k_context_ms", "slope_per_running_ms")
        add("decode", lines.decode, None, "ms_per_token", *slopes)
    return found


def _worst(d: Diagnosis) -> list[Row]:
    return [
        {"cause": finding.id, **_fields(row, _WORST)}
        for finding in findings(d)
        for row in finding.rows
    ]


def _sessions(d: Diagnosis) -> list[Row]:
    return [
        {"session_id": one.session_id, "requests": one.requests,
         "recomputed_tokens": one.tokens, "prefill_s": one.seconds}
        for one in d.charts.waste
    ]  # fmt: skip


def _ladder(d: Diagnosis) -> list[Row]:
    ladder = d.prefix.ladder if d.prefix is not None else None
    return [_fields(rung, COLUMNS["prefix_ladder.csv"]) for rung in ladder.rungs] if ladder else []


def _groups(d: Diagnosis) -> list[Row]:
    ladder = d.prefix.ladder if d.prefix is not None else None
    if ladder is None:
        return []
    return [
        {"column": column, **_fields(group, COLUMNS["prefix_groups.csv"][1:])}
        for column, groups in ladder.groups.items()
        for group in groups
    ]


def _notes(d: Diagnosis) -> list[Row]:
    kinds = (
        ("warning", d.warnings),
        ("evidence", d.evidence.notes),
        ("next_step", d.verdict.next_steps),
    )
    return [{"kind": kind, "text": text} for kind, texts in kinds for text in texts]
