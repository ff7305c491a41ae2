"""The contract of a form of the gate's answer, and the words that several forms share.

To add a form:

1. ``gate/reports/NAME.py`` with ``FORM = Form("NAME", ...)``. ``render`` gets a
   :class:`~ttftdoctor.gate.records.Check` and gives the whole text; it imports no other form.
2. Every text that may come from a log or a policy (routes, models, paths, sentences) passes
   :func:`ttftdoctor.report.clean` and then the escaping of that form, also where it looks harmless.
3. A line in ``gate/forms.py``, and a golden in ``tests/golden/gate/`` that a person has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ttftdoctor.diagnosis import Interval
from ttftdoctor.gate.metrics import METRICS
from ttftdoctor.gate.records import Check, Checked, Outcome, Population
from ttftdoctor.gate.words import moment_of, shown
from ttftdoctor.language import mark, speaking, spoken, tr, tr_n
from ttftdoctor.report import Severity, Table, clean, table
from ttftdoctor.units import count, share, signed_share


@dataclass(frozen=True)
class Form:
    """One form a check can be written in; ``render`` gives the whole document as text."""

    name: str
    title: str
    render: Callable[[Check], str]


_BADGES: dict[Outcome, tuple[str, Severity]] = {
    "pass": (mark("PASS"), "good"),
    "fail": (mark("FAIL"), "bad"),
    "inconclusive": (mark("INCONCLUSIVE"), "warn"),
    "invalid": (mark("INVALID"), "unknown"),
}
SIGNS: dict[Outcome, str] = {"pass": "✅", "fail": "🔴", "inconclusive": "⚠️", "invalid": "❔"}
_VERDICTS: dict[Outcome, str] = {
    "pass": mark("pass"), "fail": mark("FAIL"), "inconclusive": mark("unclear"),
    "invalid": mark("invalid"),
}  # fmt: skip
#: What a headline begins with that the word before it says already.
_HEADS = frozenset(
    {"fail", "pass", "inconclusive", "invalid", "regression", "no regression", "cannot tell",
     "not compared"}
)  # fmt: skip
#: The same as the judge says it, in any language.
_LEADS = (
    mark("Regression: {says}"), mark("No regression: {says}"), mark("Cannot tell: {why}"),
    mark("Not compared: {why}"),
)  # fmt: skip
#: What is looked at first stands first.
_ORDER: dict[Outcome, int] = {"fail": 0, "invalid": 1, "inconclusive": 2, "pass": 3}


def badge(check: Check) -> tuple[str, Severity]:
    """The answer in one word, and how it is coloured."""
    word, severity = _BADGES[check.outcome]
    return tr(word), severity


def verdict(outcome: Outcome) -> str:
    """The answer about one metric, in a table."""
    return tr(_VERDICTS[outcome])


# --- figures --------------------------------------------------------------------------------------


def moved_by(change: float | None, change_share: float | None, unit: str) -> str:
    """A change: per cent of the baseline where that is known, else in points or in the unit."""
    if change_share is not None:
        return signed_share(change_share)
    if change is None:
        return "-"
    if unit == "share":
        return points(change)
    sign = "+" if change > 0 else "−" if change < 0 else ""
    return sign + shown(abs(change), unit)


def points(change: float) -> str:
    """A change of a share in points of per cent: ``−10 pt``, ``+0.4 pt``."""
    size = abs(100 * change)
    if size < 0.05:
        return tr("{n} pt", n=0)
    sign = "+" if change > 0 else "−"
    return tr("{n} pt", n=f"{sign}{size:.0f}" if size >= 9.95 else f"{sign}{size:.1f}")


def span(metric: Checked) -> str:
    """The interval of the change, in the measure in which the change is given."""
    if metric.interval is None:
        return "-"
    low, high = _scaled(metric, metric.interval)
    by_share = metric.change_share is not None and bool(metric.baseline)
    ends = [
        moved_by(None, end, metric.unit) if by_share else moved_by(end, None, metric.unit)
        for end in (low, high)
    ]
    for unit in (" %", tr("{n} pt", n=""), " ms"):
        if all(end.endswith(unit) for end in ends):
            ends[0] = ends[0].removesuffix(unit)
    return tr("{low} to {high}", low=ends[0], high=ends[1])


def _scaled(metric: Checked, interval: Interval) -> Interval:
    if metric.change_share is None or not metric.baseline:
        return interval
    return interval[0] / metric.baseline, interval[1] / metric.baseline


def limit_of(metric: Checked) -> str:
    """What may be lost: ``10 % and 20 ms``, ``5 pt``; a budget is its own limit."""
    parts = []
    if metric.limit_share is not None:
        parts.append(tr("{n} %", n=f"{100 * metric.limit_share:.3g}"))
    if metric.limit is not None:
        if metric.unit == "share":
            parts.append(tr("{n} pt", n=f"{100 * metric.limit:.3g}"))
        else:
            parts.append(shown(metric.limit, metric.unit))
    if len(parts) == 2:
        return tr("{share} and {amount}", share=parts[0], amount=parts[1])
    return parts[0] if parts else "-"


# --- words ----------------------------------------------------------------------------------------


def called(metric: Checked) -> str:
    """What is checked, and where: ``TTFT p95, route /chat``."""
    where = str(metric.scope)
    name = clean(metric.title, 80)
    if where == "all":
        return name
    return tr("{metric}, {scope}", metric=name, scope=clean(where, 120))


def named(metric: Checked) -> str:
    """The same in English, whatever is spoken: the name by which a machine knows it again."""
    known = METRICS.get(metric.metric)
    english = metric if known is None or spoken() == "en" else replace(metric, title=known.title)
    with speaking("en"):
        return called(english)


def in_order(metrics: Sequence[Checked]) -> list[Checked]:
    """What failed first, what passed last; else as the policy has it."""
    return sorted(metrics, key=lambda m: _ORDER[m.outcome])


def without_word(check: Check) -> str:
    """The headline without the answer, which stands before it already."""
    head, colon, rest = check.headline.partition(": ")
    text = rest if colon and head.lower() in _HEADS else check.headline
    for lead in _LEADS:
        text = text.removeprefix(tr(lead, says="", why=""))
    return clean(text[:1].upper() + text[1:])


def who(side: Population) -> str:
    """One side in a few words: ``2,000 requests of 410 sessions, 5 runs``."""
    text = tr_n("{n} request", "{n} requests", side.requests, n=count(side.requests))
    if side.sessions is not None:
        sessions = tr_n("{n} session", "{n} sessions", side.sessions, n=count(side.sessions))
        text = tr("{requests} of {sessions}", requests=text, sessions=sessions)
    if side.runs > 1:
        text = tr("{requests}, {n} runs", requests=text, n=count(side.runs))
    return text


def both(check: Check) -> str:
    """Who is held against whom."""
    return tr("{current}, against {baseline}",
              current=who(check.current), baseline=who(check.baseline))  # fmt: skip


def policy_of(check: Check) -> str:
    """Which policy was used."""
    name = clean(check.policy, 300) if check.policy else tr("built-in limits")
    if check.inconclusive_fails:
        return tr("{policy}; an inconclusive answer fails", policy=name)
    return name


def policy_sentence(check: Check) -> str:
    """The same as a sentence."""
    return tr("Policy: {policy}.", policy=policy_of(check))


def asked(check: Check) -> list[Checked]:
    """What is compared with the baseline, in the order in which it is shown."""
    return in_order([m for m in check.metrics if m.budget is None])


def budgets(check: Check) -> list[Checked]:
    """What is held against a fixed budget, in the order in which it is shown."""
    return in_order([m for m in check.metrics if m.budget is not None])


def said(metric: Checked) -> str:
    """The sentence about one metric, with where it holds."""
    text = clean(metric.says, 600)
    where = str(metric.scope)
    if where != "all" and where not in metric.says:
        text = tr("{scope}: {says}", scope=clean(where, 120), says=text)
    return text


def place(check: Check) -> str:
    """The file that a finding is pinned to: the policy, else the first log that was checked.

    A finding of a gate is about no line of a source; CI systems want a file nevertheless.
    """
    if check.policy:
        return check.policy
    paths = [record.path for record in check.current.inputs if record.path not in ("", "-")]
    return paths[0] if paths else "ttftdoctor.toml"


def fingerprint(metric: Checked) -> str:
    """Equal for the same question in two runs, whatever the figures: 64 hex digits."""
    key = "\0".join(("ttftdoctor", metric.metric, str(metric.scope), metric.budget or ""))
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


# --- tables ---------------------------------------------------------------------------------------


def metric_table(check: Check, *, wide: bool = True) -> Table | None:
    """Every metric: baseline and now at equal mix, the raw change and the change at equal mix."""
    metrics = asked(check)
    if not metrics:
        return None
    columns = [tr("metric"), tr("baseline"), tr("now"), tr("raw"), tr("equal mix"),
               tr("95 % interval")]  # fmt: skip
    rows = [
        [
            called(m),
            shown(m.baseline, m.unit),
            shown(m.current, m.unit),
            moved_by(m.raw_change, m.raw_change_share, m.unit),
            moved_by(m.change, m.change_share, m.unit),
            span(m),
            *([limit_of(m)] if wide else []),
            verdict(m.outcome),
        ]
        for m in metrics
    ]
    columns += [*([tr("limit")] if wide else []), tr("verdict")]
    return table("metrics", tr("Metrics"), columns, rows, left=(0, len(columns) - 1))


def budget_table(check: Check) -> Table | None:
    """Every budget: what was asked for, and what was measured."""
    metrics = budgets(check)
    if not metrics:
        return None
    return table(
        "budgets",
        tr("Budgets"),
        (tr("budget"), tr("measured"), tr("verdict")),
        ((_budget(m), shown(m.current, m.unit), verdict(m.outcome)) for m in metrics),
        left=(0, 2),
    )


def _budget(metric: Checked) -> str:
    where = str(metric.scope)
    text = clean(metric.budget or "", 120)
    if where == "all" or where in text:
        return text
    return tr("{budget}, {scope}", budget=text, scope=clean(where, 120))


def side_table(check: Check) -> Table:
    """Who was measured on each side, and what part of them has a counterpart on the other."""
    a, b = check.baseline, check.current
    rows: list[tuple[str, str | None, str | None]] = [
        (tr("label"), clean(a.label, 40), clean(b.label, 40)),
        (tr("requests"), count(a.requests), count(b.requests)),
        (tr("sessions"), _known(a.sessions), _known(b.sessions)),
        (tr("runs"), count(a.runs), count(b.runs)),
        (tr("set aside as warm-up"), count(a.warm_up_requests), count(b.warm_up_requests)),
        (tr("with a counterpart"), _part(a.covered_share), _part(b.covered_share)),
        (tr("models"), _few(a.models), _few(b.models)),
        (tr("from"), _clock(a.start), _clock(b.start)),
        (tr("to"), _clock(a.end), _clock(b.end)),
    ]
    heads = ("", tr("baseline"), tr("now"))
    return table("sides", tr("What was compared"), heads, rows, left=(0,))


def _known(n: int | None) -> str | None:
    return None if n is None else count(n)


def _part(value: float | None) -> str | None:
    return None if value is None else share(value)


def _few(names: tuple[str, ...]) -> str | None:
    if not names:
        return None
    return _first([clean(name, 32) for name in names[:2]], len(names) - 2)


def _first(names: Sequence[str], more: int) -> str:
    """Some names, and how many more there are."""
    text = tr(", ").join(names)
    return text if more <= 0 else tr("{names} and {n} more", names=text, n=more)


def _clock(stamp: str | None) -> str | None:
    return None if stamp is None else clean(moment_of(stamp), 40).replace("T", " ")[:16]


def read_sentences(check: Check) -> list[str]:
    """Where each side came from, and rows that were not used."""
    out = []
    for name, side in ((tr("Baseline"), check.baseline), (tr("Now"), check.current)):
        if not side.inputs:
            continue
        where = _first([clean(r.path, 200) for r in side.inputs[:3]], len(side.inputs) - 3)
        read = sum(record.rows_read for record in side.inputs)
        used = sum(record.rows_used for record in side.inputs)
        values = {"side": name, "files": where, "read": count(read), "used": count(used)}
        if read <= used:
            out.append(tr("{side}: {files}: {read} rows read, {used} used.", **values))
            continue
        rejected = count(read - used)
        reasons: dict[str, int] = {}
        for record in side.inputs:
            for reason, n in record.rows_rejected.items():
                reasons[reason] = reasons.get(reason, 0) + n
        if reasons:
            why = tr(", ").join(f"{clean(reason, 80)} {count(n)}" for reason, n in reasons.items())
            rejected = tr("{n} rejected ({why})", n=rejected, why=why)
        else:
            rejected = tr("{n} rejected", n=rejected)
        out.append(
            tr("{side}: {files}: {read} rows read, {used} used, {rejected}.", **values,
               rejected=rejected)
        )  # fmt: skip
    return out


def open_questions(check: Check) -> list[str]:
    """The sentence of every metric that failed or could not be decided."""
    return [said(m) for m in in_order(check.metrics) if m.outcome != "pass"]
