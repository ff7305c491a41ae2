"""Was the prediction right? Remedies as they were predicted, beside what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ttftdoctor.comparisons.records import (
    Hindcast,
    Inside,
    Match,
    Mechanism,
    Prediction,
    Score,
    Side,
    View,
)
from ttftdoctor.diagnosis import SCHEMA, Diagnosis, Gain, Interval, Population
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.language import tr
from ttftdoctor.units import count, milliseconds, seconds, share, signed_share

#: The remedy that changes the length of prompts, so that length cannot be held equal.
COMPACTION = "history_compaction"
#: All remedies of a diagnosis at once.
TOGETHER = "all_together"

_REUSE = ("cached_share", "up")
_WAIT = ("wait", "down")

#: What each remedy works through, and which way it should move.
MECHANISMS: dict[str, tuple[str, str]] = {
    "prefix_cache": _REUSE,
    "more_cache": _REUSE,
    "stable_prefix": _REUSE,
    "session_affinity": _REUSE,
    "history_compaction": ("prefill_repeated", "down"),
    "chunked_prefill": _WAIT,
    "disaggregated_prefill": _WAIT,
    "double_capacity": _WAIT,
    "more_seqs": _WAIT,
    "shed_peak": _WAIT,
    "faster_gateway": ("prefill_fixed", "down"),
    "warm_pool": ("unexplained", "down"),
    "backoff_fix": ("unexplained", "down"),
    "rollback": ("prefill_per_1k", "down"),
}


@dataclass(frozen=True)
class Foreseen:
    """Predictions, and the TTFT that they start from."""

    source: Literal["document", "before"]
    population: Population
    remedies: tuple[Gain, ...]


def foreseen_by(diagnosis: Diagnosis) -> Foreseen:
    """The predictions of a diagnosis that was made just now."""
    return Foreseen("before", diagnosis.population, diagnosis.remedies)


def foreseen_in(document: Any, where: str | None = None) -> Foreseen:
    """The predictions of a document of ``diagnose --json``.

    Raises
    ------
    InputError
        If it is none, or lacks what is needed.
    """
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        got = document.get("schema") if isinstance(document, Mapping) else None
        raise InputError(
            "this is no diagnosis",
            where=where,
            why=f"its schema is {got!r}, not {SCHEMA!r}" if got else f"it has no schema {SCHEMA!r}",
            help="write one with: ttftdoctor diagnose before.jsonl --json diagnosis.json",
        )
    people = document.get("population")
    if not isinstance(people, Mapping):
        raise InputError("the diagnosis has no population", where=where)
    remedies = document.get("remedies")
    if not isinstance(remedies, list):
        raise InputError("the diagnosis has no list of remedies", where=where)
    numbers = {
        name: _number(people.get(name), f"population.{name}", where)
        for name in ("requests", "with_ttft", "ttft_mean_s", "ttft_p50_s", "ttft_p95_s")
    }
    if not numbers["ttft_mean_s"]:
        raise InputError("the diagnosis has no mean TTFT to start from", where=where)
    population = Population(
        requests=int(numbers["requests"] or 0),
        sessions=None,
        turns_max=None,
        start=None,
        end=None,
        with_ttft=int(numbers["with_ttft"] or 0),
        vantage=None,
        ttft_mean_s=numbers["ttft_mean_s"],
        ttft_p50_s=numbers["ttft_p50_s"],
        ttft_p95_s=numbers["ttft_p95_s"],
    )
    return Foreseen(
        "document", population, tuple(_gain(r, at, where) for at, r in enumerate(remedies))
    )


def _gain(record: Any, at: int, where: str | None) -> Gain:
    place = f"remedies[{at}]"
    if not isinstance(record, Mapping) or not isinstance(record.get("id"), str):
        raise InputError(f"{place} of the diagnosis has no id", where=where)
    title = record.get("title")
    span = record.get("interval")
    interval = None
    if span is not None:
        if not isinstance(span, list) or len(span) != 2:
            raise InputError(f"{place}.interval is no pair of numbers", where=where)
        low, high = (_number(v, f"{place}.interval", where) for v in span)
        if low is not None and high is not None:
            interval = min(low, high), max(low, high)
    values: dict[str, Any] = {
        name: _number(record.get(name), f"{place}.{name}", where)
        for name in ("ttft_mean_s", "ttft_p50_s", "ttft_p95_s", "gain_share")
    }
    return Gain(
        id=record["id"],
        title=title if isinstance(title, str) else record["id"],
        interval=interval,
        assumptions=(),
        cost="",
        applies_to=(),
        **values,
    )


def _number(value: Any, name: str, where: str | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} of the diagnosis is no number", where=where)
    return float(value)


def check_remedy(remedy: str | None, foreseen: Foreseen) -> None:
    """Refuse a remedy that nobody predicted.

    Raises
    ------
    UsageError
        With the predicted ones.
    """
    known = [r.id for r in foreseen.remedies]
    if remedy is not None and remedy not in known and remedy not in MECHANISMS:
        raise UsageError(
            f"there is no remedy {remedy!r}",
            available=", ".join(dict.fromkeys([*known, *MECHANISMS])),
        )


def score(
    foreseen: Foreseen,
    remedy: str | None,
    view: View,
    inside: Mapping[str, Inside],
    before: Side,
) -> Hindcast:
    """Set every prediction beside the measured change; without a remedy none is marked."""
    chosen = sorted(foreseen.remedies, key=lambda r: (r.id != remedy, -(r.gain_share or 0.0), r.id))
    notes = []
    if remedy is None and chosen:
        notes.append(tr("which of these was done is not said (--remedy): none is marked"))
    if remedy is not None and remedy not in {r.id for r in foreseen.remedies}:
        notes.append(tr("{remedy} was not predicted for this log", remedy=remedy))
    if not chosen:
        notes.append(
            tr("nothing was predicted: no remedy fits, or the log determines no cost line")
        )
    today = foreseen.population
    level = before.population.ttft_mean_s
    if foreseen.source == "document" and level and today.ttft_mean_s:
        off = today.ttft_mean_s / level - 1
        if abs(off) > 0.02 or today.with_ttft != before.population.with_ttft:
            notes.append(
                tr(
                    "the prediction starts from another log: {n} requests with a mean of {mean}, "
                    "here {here} with {level}; gains are compared as shares",
                    n=count(today.with_ttft), mean=seconds(today.ttft_mean_s),
                    here=count(before.population.with_ttft), level=seconds(level),
                )
            )  # fmt: skip
    return Hindcast(
        source=foreseen.source,
        remedy=remedy,
        basis=view.name,
        predictions=tuple(_prediction(r, r.id == remedy, today, view, inside) for r in chosen),
        notes=tuple(notes),
    )


def _prediction(
    gain: Gain, done: bool, today: Population, view: View, inside: Mapping[str, Inside]
) -> Prediction:
    mean = view.changes[0]
    measured = None if mean.interval is None else (-mean.interval[1], -mean.interval[0])
    scores = []
    starts = {"mean": today.ttft_mean_s, "p50": today.ttft_p50_s, "p95": today.ttft_p95_s}
    ends = {"mean": gain.ttft_mean_s, "p50": gain.ttft_p50_s, "p95": gain.ttft_p95_s}
    for metric in ("mean", "p50", "p95"):
        change, start, end = view.of(metric), starts[metric], ends[metric]
        if change is None or not start or end is None:
            continue
        predicted = change.before_s * end / start
        scores.append(
            Score(
                metric=metric,
                before_s=change.before_s,
                predicted_s=predicted,
                measured_s=change.after_s,
                error_share=(predicted - change.after_s) / mean.before_s,
            )
        )
    got = -mean.share
    match = _match(gain.interval, got, measured)
    return Prediction(
        id=gain.id,
        title=gain.title,
        done=done,
        gain_share=gain.gain_share,
        predicted=gain.interval,
        measured_share=got,
        measured=measured,
        match=match,
        scores=tuple(scores),
        mechanism=_mechanism(gain.id, inside) if done else None,
        text=_text(gain, got, measured, match),
    )


def _match(predicted: Interval | None, got: float, measured: Interval | None) -> Match:
    if predicted is None:
        return "unknown"
    if predicted[0] <= got <= predicted[1]:
        return "within"
    if measured is not None and measured[0] <= predicted[1] and predicted[0] <= measured[1]:
        return "overlaps"
    return "missed"


def _text(gain: Gain, got: float, measured: Interval | None, match: Match) -> str:
    if gain.gain_share is None:
        return tr("no gain was predicted")
    if match == "within":
        found = tr("what was measured lies within the prediction")
    elif match == "overlaps":
        found = tr("the two intervals overlap")
    elif match == "missed":
        off = share(abs(gain.gain_share - got))
        found = tr("missed by {off} of the mean before", off=off)
    else:
        found = tr("no interval was predicted")
    return tr(
        "predicted {predicted}, measured {measured}: {found}",
        predicted=_change(gain.gain_share, gain.interval), measured=_change(got, measured),
        found=found,
    )  # fmt: skip


def _change(gain: float, gains: Interval | None) -> str:
    """A gain and its interval as changes of TTFT."""
    change = signed_share(-gain)
    if gains is None:
        return change
    low, high = signed_share(-gains[1]), signed_share(-gains[0])
    return tr("{change} ({low} to {high})", change=change, low=low, high=high)


def _mechanism(remedy: str, inside: Mapping[str, Inside]) -> Mechanism | None:
    if remedy not in MECHANISMS:
        return None
    ident, way = MECHANISMS[remedy]
    found = inside.get(ident)
    if found is None or found.moved == "unknown":
        return Mechanism(None, tr("these logs do not show whether it worked the way it should"))
    show = {"share": share, "s": seconds}.get(found.unit, milliseconds)
    figures = f"{found.title} {show(found.before)} → {show(found.after)}"
    if found.moved == way:
        return Mechanism(True, tr("it worked the way it should: {figures}", figures=figures))
    text = tr("not the way it should: {figures}, which did not fall", figures=figures)
    if way == "up":
        text = tr("not the way it should: {figures}, which did not rise", figures=figures)
    return Mechanism(False, text)
