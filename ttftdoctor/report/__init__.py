"""The contract of a renderer: one form a diagnosis can be written in, one file.

To add a form:

1. ``report/NAME.py`` with ``RENDERER = Renderer("NAME", ...)``. ``render`` gets a
   :class:`~ttftdoctor.diagnosis.Diagnosis` and gives the whole text; it never sees a frame, and
   imports no cause, no remedy and no other renderer.
2. Every text that may come from a log (names, paths, reasons, headlines, warnings) passes
   :func:`clean` and then the escaping of that form, also where it looks harmless.
3. A line in ``FORMS`` of ``tests/test_report.py``, and a golden in ``tests/golden/report/`` by
   ``pytest --update-golden``, read by a person.

Below the contract stand the words and tables that several forms share.
"""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ttftdoctor.diagnosis import (
    ACCOUNTS,
    NOT_CHOSEN,
    Diagnosis,
    Finding,
    Gain,
    Interval,
    LedgerRow,
    Slice,
    Verdict,
    WorstRow,
)
from ttftdoctor.switches import OPEN, sentence, switch_for
from ttftdoctor.units import count, figure, milliseconds, minus, seconds, share, tokens

if TYPE_CHECKING:
    from rich.console import Console

Severity = Literal["good", "warn", "bad", "unknown"]


@dataclass(frozen=True)
class Renderer:
    """One form a diagnosis can be written in.

    ``suffixes`` are the file endings that stand for this form (``.html``); ``render`` gives the
    whole document as text.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    render: Callable[[Diagnosis], str]


# --- text that may be hostile ---------------------------------------------------------------------

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: object, limit: int = 2000) -> str:
    r"""The text on one line, with everything visible that a terminal or a reader could not see.

    Control characters (so ANSI escapes), direction overrides, zero-width characters, lone
    surrogates and line breaks become ``\x1b``, ``\u202e`` and the like; ``limit`` cuts.

    Examples
    --------
    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    raw = str(text)
    cut = len(raw) > limit
    shown = "".join(_visible(ch) for ch in (raw[: limit - 1] if cut else raw))
    return shown + "…" if cut else shown


def _visible(ch: str) -> str:
    if ch in _SHORT:
        return _SHORT[ch]
    if unicodedata.category(ch) not in _INVISIBLE:
        return " " if ch == "\xa0" else ch
    code = ord(ch)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# --- words ----------------------------------------------------------------------------------------

#: What people call the causes, accounts, remedies, statuses and groups.
TITLES: dict[str, str] = {
    # causes
    "repeated_prefix_no_reuse": "history prefilled again every turn, no reuse",
    "cache_eviction": "cached prefixes gone before the next turn",
    "cache_busting_prefix": "prompt changes near its head",
    "affinity_loss": "next turn lands on another replica",
    "queueing_saturation": "requests wait for prefill capacity",
    "decode_contention": "decoding takes slots or steps",
    "organic_long_input": "long prompts with new content",
    "cold_start": "cold start",
    "fixed_overhead": "a constant paid by every request",
    "deploy_regression": "same work costs more since a moment in time",
    "retry_or_ratelimit": "retries, back-off or limits",
    "measurement_artifact": "the number is not a TTFT",
    "insufficient_data": "the log cannot tell",
    "healthy": "nothing is wrong",
    # accounts of the ledger
    "fixed": "fixed overhead",
    "queue_behind_repeated": "queue behind repeated prefill",
    "queue_behind_new": "queue behind new prefill",
    "queue_other": "other queueing",
    "prefill_repeated": "prefill of repeated tokens",
    "prefill_new": "prefill of new tokens",
    "unexplained": "unexplained",
    # remedies
    "prefix_cache": "prefix cache",
    "more_cache": "larger or longer-lived cache",
    "stable_prefix": "stable prompt head",
    "session_affinity": "session affinity",
    "history_compaction": "history compaction",
    "chunked_prefill": "chunked prefill",
    "disaggregated_prefill": "prefill on machines of its own",
    "double_capacity": "twice the capacity",
    "more_seqs": "more sequences at once",
    "shed_peak": "move or shed the peak",
    "faster_gateway": "faster gateway",
    "warm_pool": "warm pool",
    "rollback": "roll back the change",
    "backoff_fix": "fix the back-off",
    # statuses
    "primary": "primary",
    "contributing": "contributing",
    "minor": "minor",
    "ruled_out": "ruled out",
    "unjudged": "not judged",
    # groups of the ledger
    "all": "all",
    "early_turns": "early turns",
    "late_turns": "late turns",
    "off_peak": "off-peak",
    "peak": "peak",
}

#: The accounts in few characters, for narrow tables.
SHORT_ACCOUNTS: dict[str, str] = {
    "fixed": "fixed",
    "queue_behind_repeated": "queue: repeated",
    "queue_behind_new": "queue: new",
    "queue_other": "queue: other",
    "prefill_repeated": "prefill: repeated",
    "prefill_new": "prefill: new",
    "unexplained": "unexplained",
}

_GRADES: dict[str, dict[str, str]] = {
    "session": {
        "logged": "sessions are logged",
        "linked": "sessions were linked by content or timing",
        "none": "sessions are unknown",
    },
    "reuse": {
        "content": "reuse is known from prompt content",
        "reported": "reuse is as the server reports it",
        "inferred": "reuse is inferred from session arithmetic",
        "none": "reuse is unknown",
    },
    "queue": {
        "logged": "queue time is logged",
        "inferred": "queue time is inferred",
        "none": "queue time is unknown",
    },
}

STATUS_ORDER = ("primary", "contributing", "minor", "unjudged", "ruled_out")
GROUP_ORDER = ("all", "early_turns", "late_turns", "off_peak", "peak")


def title(ident: str) -> str:
    """The human name of a cause, account, remedy, status or group; an unknown one in words."""
    return TITLES.get(ident) or clean(ident).replace("_", " ")


def severity(verdict: Verdict) -> Severity:
    """How a verdict is coloured."""
    if verdict.primary_cause == "healthy":
        return "good"
    if verdict.family == "data":
        return "unknown"
    return "bad" if verdict.confidence >= 0.6 else "warn"


def badge(verdict: Verdict) -> str:
    """The verdict in one or two words, so that it does not depend on colour."""
    if verdict.primary_cause in ("healthy", "insufficient_data", "measurement_artifact"):
        return {"healthy": "HEALTHY", "insufficient_data": "CANNOT TELL"}.get(
            verdict.primary_cause, "NOT A TTFT"
        )
    return "FOUND" if verdict.confidence >= 0.6 else "LIKELY"


def confidence(value: float) -> str:
    """Confidence in words and per cent: ``high confidence (94 %)``."""
    word = "high" if value >= 0.8 else "fair" if value >= 0.6 else "low"
    return f"{word} confidence ({share(value)})"


def scope(diagnosis: Diagnosis) -> str:
    """Where it is: ``only tenant acme, model m1``, or all of what was asked for."""
    found = diagnosis.verdict.scope
    if found:
        return "only " + ", ".join(f"{clean(k)} {clean(v, 120)}" for k, v in found.items())
    if any(reason in one.rows_rejected for one in diagnosis.inputs for reason in NOT_CHOSEN):
        used = sum(one.rows_used for one in diagnosis.inputs)
        read = sum(one.rows_read for one in diagnosis.inputs)
        return f"the rows that were asked for ({count(used)} of {count(read)})"
    return "all of the log"


def grades(diagnosis: Diagnosis) -> str:
    """How the evidence was come by, as a sentence."""
    e = diagnosis.evidence
    parts = (
        _GRADES["session"].get(e.session, e.session),
        _GRADES["reuse"].get(e.reuse, e.reuse),
        _GRADES["queue"].get(e.queue, e.queue),
    )
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."


def span(low_high: Interval | None, show: Callable[[float | None], str]) -> str:
    """An interval: ``70 % to 77 %``; empty where there is none."""
    return "" if low_high is None else f"{show(low_high[0])} to {show(low_high[1])}"


def gain(value: float | None) -> str:
    """The part of today's TTFT that goes away, with its sign: ``−74 %``."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"−{share(value)}" if value > 0 else f"+{share(-value)}" if value < 0 else "0 %"


def gain_sentence(remedy: Gain, today: float | None) -> str:
    """What a remedy is predicted to do: ``mean TTFT 1.36 s → 352 ms, −74 % (−76 % to −71 %)``."""
    if remedy.ttft_mean_s is None and remedy.gain_share is None:
        return "gain not predicted from this log"
    before = f"{seconds(today)} → " if today is not None else ""
    parts = [f"mean TTFT {before}{seconds(remedy.ttft_mean_s)}"] if remedy.ttft_mean_s else []
    if remedy.gain_share is not None:
        parts.append(gain(remedy.gain_share) + (" of mean TTFT" if not parts else ""))
    text = ", ".join(parts)
    if remedy.interval is not None:
        text += f" ({gain(remedy.interval[1])} to {gain(remedy.interval[0])})"
    return text


def best_remedy(diagnosis: Diagnosis) -> Gain | None:
    """The remedy with the largest predicted gain that applies to the primary cause."""
    cause = diagnosis.verdict.primary_cause
    able = [r for r in diagnosis.remedies if cause in r.applies_to]
    judged = [r for r in able if r.gain_share is not None and r.gain_share > 0]
    if judged:
        return max(judged, key=lambda r: r.gain_share or 0.0)
    return next((r for r in able if r.gain_share is None), None)


def primary(diagnosis: Diagnosis) -> Finding | None:
    """The finding of the primary cause."""
    ident = diagnosis.verdict.primary_cause
    return next((f for f in diagnosis.causes if f.id == ident), None)


def missing(diagnosis: Diagnosis) -> list[str]:
    """The columns that would let unjudged causes be judged, most wanted first."""
    wanted: dict[str, int] = {}
    for finding in diagnosis.causes:
        if finding.status == "unjudged":
            for name in finding.needs:
                wanted[name] = wanted.get(name, 0) + 1
    return [clean(name, 60) for name in sorted(wanted, key=lambda name: -wanted[name])]


def how_to_log(diagnosis: Diagnosis, most: int = 4) -> list[str]:
    """How the formats that were read come to hold the columns that are most wanted.

    Logs that name their fields as they like have no switch: ``inspect`` says what to write.
    """
    formats = dict.fromkeys(i.format for i in diagnosis.inputs if i.format not in OPEN)
    said: dict[str, list[str]] = {}
    for column in missing(diagnosis)[:most]:
        for name in formats:
            switch = switch_for(name, column)
            if switch is not None:
                several = f" ({clean(name, 60)})" if len(formats) > 1 else ""
                said.setdefault(sentence(name, switch), []).append(f"{column}{several}")
    return [f"{', '.join(columns)}: {text}" for text, columns in said.items()]


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """All findings: primary first, what is ruled out last."""
    return sorted(diagnosis.causes, key=lambda f: STATUS_ORDER.index(f.status))


def ledger_groups(diagnosis: Diagnosis) -> list[LedgerRow]:
    """The groups of the ledger in the order in which they are shown."""
    known = {name: at for at, name in enumerate(GROUP_ORDER)}
    return sorted(diagnosis.ledger, key=lambda row: known.get(row.group, len(known)))


def who(diagnosis: Diagnosis) -> list[str]:
    """Who was measured, in short pieces: requests, sessions, turns, clock."""
    p = diagnosis.population
    parts = [_many(p.requests, "request")]
    if p.sessions is not None:
        parts.append(_many(p.sessions, "session"))
    if p.turns_max is not None and p.turns_max > 1:
        parts.append(f"up to {count(p.turns_max)} turns")
    if p.start and p.end:
        parts.append(f"{_clock(p.start)} to {_clock(p.end)}")
    if p.vantage:
        parts.append(f"clock at the {clean(p.vantage, 40)}")
    return parts


def ttft_figures(diagnosis: Diagnosis) -> str:
    """Today's TTFT: ``TTFT mean 1.36 s, p50 1.18 s, p95 3.32 s``, or that there is none."""
    p = diagnosis.population
    figures = (("mean", p.ttft_mean_s), ("p50", p.ttft_p50_s), ("p95", p.ttft_p95_s))
    known = [f"{name} {seconds(v)}" for name, v in figures if v is not None]
    return "TTFT " + ", ".join(known) if known else "no TTFT in this log"


def _many(n: int, word: str) -> str:
    return f"{count(n)} {word}" if n == 1 else f"{count(n)} {word}s"


def _clock(stamp: str) -> str:
    text = clean(stamp, 40)
    if len(text) > 16 and text[10] == "T":
        zone = re.search(r"[+-]\d\d:\d\d$", text)
        shown = "Z" if text.endswith(("Z", "+00:00")) else zone[0] if zone is not None else ""
        return text[:10] + " " + text[11:16] + shown
    return text.replace("T", " ")


def as_text(print_to: Callable[[Console], None], width: int = 80) -> str:
    """What is printed to a console, as plain text without colour and without trailing blanks."""
    import io

    from rich.console import Console

    out = io.StringIO()
    print_to(
        Console(
            file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False,
            legacy_windows=False,
        )
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


# --- sentences ------------------------------------------------------------------------------------


def cost_sentences(diagnosis: Diagnosis) -> list[str]:
    """The cost of prefill and decode as sentences with their intervals."""
    said: list[str] = []
    line = diagnosis.cost_lines.prefill
    if line is not None:
        terms = [
            f"{milliseconds(line.fixed_ms)} fixed{_within(line.fixed_ms_interval)}",
            f"{milliseconds(line.ms_per_1k_tokens)} per 1,000 uncached tokens"
            + _within(line.ms_per_1k_tokens_interval),
        ]
        if line.ms_per_1k_tokens_per_1k_context is not None:
            terms.append(
                f"{milliseconds(line.ms_per_1k_tokens_per_1k_context)} per 1,000 tokens and 1,000 "
                f"of context{_within(line.ms_per_1k_tokens_per_1k_context_interval)}"
            )
        if line.ms_per_1k_context is not None:
            terms.append(f"{milliseconds(line.ms_per_1k_context)} per 1,000 tokens, cached or not")
        tail = f"{_many(line.n, 'request')}, {clean(line.method)}"
        if line.residual_p50_ms is not None:
            tail += f", median miss {milliseconds(line.residual_p50_ms)}"
        said.append("Prefill: " + " + ".join(terms) + f" ({tail}).")
    for model in diagnosis.cost_lines.by_model:
        said.append(
            f"{clean(model.model)}: {clean(model.says)} ({_many(model.requests, 'request')}, "
            f"median TTFT {seconds(model.ttft_p50_s)}: {milliseconds(model.fixed_ms)} fixed + "
            f"{milliseconds(model.ms_per_1k_tokens)} per 1,000 uncached tokens)."
        )
    decode = diagnosis.cost_lines.decode
    if decode is not None:
        text = (
            f"Decode: {milliseconds(decode.ms_per_token)} per token"
            f"{_within(decode.ms_per_token_interval)}"
        )
        for slope, of in (
            (decode.slope_per_1k_context_ms, "per 1,000 tokens of context"),
            (decode.slope_per_running_ms, "per request in flight"),
        ):
            if slope is None:
                continue
            level = abs(slope) < 0.002 * decode.ms_per_token
            text += f", nothing {of}" if level else f", {_signed(slope)} {of}"
        said.append(f"{text} ({_many(decode.n, 'request')}, {clean(decode.method)}).")
    if not said:
        said.append("The log does not determine a cost per token.")
    if diagnosis.floor is not None:
        floor = diagnosis.floor
        text = (
            f"Hardware floor: {milliseconds(floor.prefill_ms_per_1k_tokens)} per 1,000 tokens of "
            f"prefill"
        )
        if floor.prefill_times_floor is not None:
            text += f" (measured {floor.prefill_times_floor:.3g} times that)"
        text += f", {milliseconds(floor.decode_ms_per_token)} per decoded token"
        if floor.decode_times_floor is not None:
            text += f" (measured {floor.decode_times_floor:.3g} times that)"
        said.append(f"{text}. {clean(floor.text)}".strip())
    return said


def _within(low_high: Interval | None) -> str:
    return "" if low_high is None else f" [{figure(low_high[0])}, {figure(low_high[1])}]"


def _signed(ms: float) -> str:
    return ("+" if ms >= 0 else "−") + milliseconds(abs(ms))


def prefix_sentences(diagnosis: Diagnosis) -> list[str]:
    """What became of the prompt tokens that had been computed before."""
    p = diagnosis.repeated_prefix
    said: list[str] = []
    total = p.input_tokens
    if not total:
        said.append("The log does not say how long the prompts are.")
    elif p.repeated_tokens is None:
        said.append(
            f"Of {tokens(total)} prompt tokens, it is unknown how many had been computed before."
        )
    else:
        said.append(
            f"Of {tokens(total)} prompt tokens, {tokens(p.repeated_tokens)} "
            f"({share(p.repeated_tokens / total)}) had been computed by an earlier request."
        )
    if p.cached_tokens is not None:
        said.append(f"{tokens(p.cached_tokens)} came from a cache.")
    if p.recomputed_tokens is not None:
        part = f", {share(p.recomputed_share)} of all" if p.recomputed_share is not None else ""
        bounds = f"; between {tokens(p.bounds[0])} and {tokens(p.bounds[1])}" if p.bounds else ""
        said.append(f"{tokens(p.recomputed_tokens)} were computed again{part}{bounds}.")
    if p.prefill_seconds_wasted is not None:
        said.append(f"That took {seconds(p.prefill_seconds_wasted)} of prefill.")
    said += money_sentences(diagnosis)
    if p.basis:
        said.append(f"Basis: {clean(p.basis).rstrip('.')}.")
    return said


def money_sentences(diagnosis: Diagnosis) -> list[str]:
    """What computing again costs, by which prices and of which day; empty if nobody asked."""
    p, said = diagnosis.repeated_prefix, list[str]()
    bill = p.money
    if p.gpu_seconds_wasted is not None:
        gpus = bill.gpus_per_replica if bill is not None else None
        of = f" at {_many_gpus(gpus)} a replica" if gpus is not None else ""
        said.append(f"That is {count(p.gpu_seconds_wasted)} GPU-seconds{of}.")
    if bill is None:
        return said
    source = clean(bill.price_source or "source not given", 120)
    if bill.basis == "tokens":
        source += f", prices of {clean(bill.price_date or 'no known day', 40)}"
    unit = clean(bill.currency, 40)
    if bill.amount is None:
        priced = bill.basis != "tokens" or bill.models
        why = "the log does not tell what was computed again" if priced else "no model has a price"
        return [*said, f"What that costs is unknown: {why} ({source})."]
    text = f"It costs {money(bill.amount)} {unit}"
    text += " more than reading it from a cache" if bill.basis == "tokens" else ""
    if bill.interval is not None:
        text += f" ({money(bill.interval[0])} to {money(bill.interval[1])})"
    if bill.per_day is not None:
        text += f", {money(bill.per_day)} a day"
    if bill.input_spent is not None:
        text += f", of {money(bill.input_spent)} for all prompts"
    said.append(f"{text} ({source}).")
    for one in bill.models[:3]:
        prices = [f"{figure(one.input_per_m)} computed"]
        for price, word in (
            (one.cached_per_m, "cached"),
            (one.write_per_m, "written"),
            (one.output_per_m, "output"),
        ):
            if price is not None:
                prices.append(f"{figure(price)} {word}")
        since = f", since {clean(one.since, 20)}" if one.since else ""
        if one.dearer_from_tokens is not None:
            since += f", more from {count(one.dearer_from_tokens)} tokens on"
        said.append(
            f"{clean(one.model, 80)} is priced as {clean(one.priced_as, 80)}: {unit} "
            f"{', '.join(prices)} for a million tokens{since}."
        )
    if bill.assumed:
        said.append(f"Assumed: {'; '.join(clean(text, 200) for text in bill.assumed)}.")
    return said


def _many_gpus(n: float) -> str:
    return f"{figure(n)} GPU" if n == 1 else f"{figure(n)} GPUs"


def money(amount: float) -> str:
    """Print an amount: ``1,234.50``; below one with three figures: ``0.0412``."""
    size = abs(amount)
    if size >= 0.995 or amount == 0:
        return minus(f"{amount:,.2f}")
    return minus(f"{amount:.3g}") if size >= 1e-4 else "less than 0.0001"


def saving_sentence(diagnosis: Diagnosis, remedy: Gain) -> str:
    """What a remedy saves, or costs, over the span of the log; empty if nobody asked."""
    parts = []
    if remedy.gpu_seconds_saved is not None:
        parts.append(f"{count(abs(remedy.gpu_seconds_saved))} GPU-seconds")
    amount = remedy.money_saved
    bill = diagnosis.repeated_prefix.money
    if amount is not None:
        unit = clean(bill.currency, 40) if bill is not None else ""
        text = f"{money(abs(amount))} {unit}".rstrip()
        if remedy.money_saved_per_day is not None:
            text += f" ({money(abs(remedy.money_saved_per_day))} a day)"
        parts.append(text)
    if not parts:
        return ""
    lead = amount if amount is not None else remedy.gpu_seconds_saved or 0.0
    if lead == 0:
        return "saves no money" if amount is not None else "saves no GPU time"
    return ("saves " if lead > 0 else "costs more: ") + ", ".join(parts)


def slo_sentence(diagnosis: Diagnosis) -> str:
    """How many requests met the target; empty without one."""
    if diagnosis.slo is None:
        return ""
    slo = diagnosis.slo
    text = f"TTFT of {seconds(slo.target_s)} or less: met by {share(slo.attainment)} of requests"
    if slo.goodput_per_s is not None:
        text += f", {slo.goodput_per_s:.3g} good requests a second"
    return text + "."


def read_sentences(diagnosis: Diagnosis) -> list[str]:
    """What was read and what became of it, with the first rejects and their lines."""
    said: list[str] = []
    for item in diagnosis.inputs:
        rejected = sum(item.rows_rejected.values())
        said.append(
            f"{clean(item.path, 300)} ({clean(item.format, 60)}): {_many(item.rows_read, 'row')} "
            f"read = {count(item.rows_used)} used + {count(rejected)} rejected"
            + (f" ({_tally(item.rows_rejected)})" if rejected else "")
            + "."
        )
        for line, reason in item.first_rejects:
            said.append(f"  line {line}: {clean(reason, 300)}")
        if item.ttft_set_aside:
            said.append(f"  TTFT set aside: {_tally(item.ttft_set_aside)}")
    p = diagnosis.population
    said.append(f"TTFT usable in {count(p.with_ttft)} of {_many(p.requests, 'request')}.")
    said.append(grades(diagnosis))
    return said


def spread_sentence(diagnosis: Diagnosis) -> str:
    """How much of the spread is explained, and could be; empty where that is not known."""
    s = diagnosis.spread
    if s is None:
        return ""
    whole = span(s.interval, share)
    text = (
        f"Of the spread of TTFT {share(s.explained_by_model)} is explained by the cost line and "
        "the work ahead"
    )
    if s.explainable - s.explained_by_model < 0.03:
        text += f", about as much as any model of these columns could explain ({whole})"
    else:
        text += f"; any model of these columns could explain about {share(s.explainable)} ({whole})"
    return f"{text}: the rest is not in this log."


def _tally(numbers: Mapping[str, int]) -> str:
    ordered = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{clean(reason, 120)} {count(n)}" for reason, n in ordered)


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of text cells. ``left`` holds the columns that are words rather than figures.

    Cells are clean but not escaped for any form. ``values`` is one number a row for a small bar.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})
    values: tuple[float | None, ...] = ()
    note: str = ""


def table(
    name: str,
    heading: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    *,
    left: Iterable[int] = (0,),
    values: Sequence[float | None] = (),
    note: str = "",
) -> Table:
    """A table without the columns in which no row has anything."""
    body = [list(row) for row in rows]
    keep = [i for i in range(len(columns)) if any(row[i] not in (None, "-") for row in body)]
    return Table(
        name,
        heading,
        tuple(columns[i] for i in keep),
        tuple(tuple("-" if row[i] is None else str(row[i]) for i in keep) for row in body),
        frozenset(keep.index(i) for i in left if i in keep),
        tuple(values),
        note,
    )


def ledger_table(diagnosis: Diagnosis, *, short: bool = False) -> Table:
    """The ledger: a row an account, a column a group; the columns add up."""
    groups = ledger_groups(diagnosis)
    names = [a for a in ACCOUNTS if any(a in g.accounts for g in groups)]
    names += sorted({a for g in groups for a in g.accounts} - set(names))
    first = groups[0] if groups else None
    rows: list[list[str]] = []
    values: list[float | None] = []
    for name in names:
        whole = first.accounts.get(name) if first else None
        part = None
        if first and whole is not None and first.ttft_mean_s:
            part = whole / first.ttft_mean_s
        values.append(part)
        label = SHORT_ACCOUNTS.get(name, title(name)) if short else title(name)
        rows.append([label, share(part), *(seconds(g.accounts.get(name)) for g in groups)])
    rows.append(["mean TTFT", "100 %", *(seconds(g.ttft_mean_s) for g in groups)])
    rows.append(["requests", "", *(count(g.n) for g in groups)])
    head = ["account", f"of {title(first.group) if first else 'all'}"]
    return Table(
        "ledger",
        "Where the mean TTFT goes",
        (*head, *(title(g.group) for g in groups)),
        tuple(tuple(row) for row in rows),
        values=(*values, None, None),
    )


def length_band(key: Mapping[str, str | int | float | None]) -> str:
    """A range of prompt lengths: ``1,000–2,000``, ``64,000 +``."""
    low, high = key.get("input_tokens_from"), key.get("input_tokens_to")
    start = count(low) if isinstance(low, (int, float)) else "0"
    if not isinstance(high, (int, float)):
        return f"{start} +"
    return f"{start}–{count(high)}"


def slice_label(key: Mapping[str, str | int | float | None]) -> str:
    """What the rows of a slice have in common, in words."""
    parts = []
    if "turn" in key:
        parts.append(clean(key["turn"], 40))
    if "input_tokens_from" in key or "input_tokens_to" in key:
        parts.append(length_band(key))
    for name, value in key.items():
        if name in ("turn", "input_tokens_from", "input_tokens_to"):
            continue
        if name == "hour":
            parts.append(_clock(value) if isinstance(value, str) else f"hour {value}")
        else:
            parts.append("(none)" if value is None else clean(value, 60))
    return ", ".join(parts)


def slice_table(name: str, heading: str, first: str, slices: Sequence[Slice]) -> Table:
    """One split as a table; the bar is the median TTFT, or the median input without one."""
    values = [s.ttft_p50_s if s.ttft_p50_s is not None else None for s in slices]
    if not any(v is not None for v in values):
        values = [s.input_p50 for s in slices]
    return table(
        name,
        heading,
        (first, "requests", "input", "uncached", "TTFT p50", "p95", "per token"),
        (
            (
                slice_label(s.key),
                count(s.n),
                None if s.input_p50 is None else count(s.input_p50),
                None if s.uncached_p50 is None else count(s.uncached_p50),
                None if s.ttft_p50_s is None else seconds(s.ttft_p50_s),
                None if s.ttft_p95_s is None else seconds(s.ttft_p95_s),
                None if s.tpot_p50_s is None else milliseconds(s.tpot_p50_s * 1e3),
            )
            for s in slices
        ),
        values=values,
    )


def split_tables(diagnosis: Diagnosis) -> list[Table]:
    """The splits that have something to compare."""
    s = diagnosis.splits
    made = (
        ("by_turn", "By turn", "turn", s.by_turn, 1),
        ("by_input_length", "By prompt length", "prompt tokens", s.by_input_length, 1),
        ("by_hour", "By hour", "hour", s.by_hour, 2),
        ("by_replica", "By replica", "replica", s.by_replica, 2),
        ("by_model", "By model", "model", s.by_model, 2),
    )
    tables = [
        slice_table(name, heading, first, slices)
        for name, heading, first, slices, least in made
        if len(slices) >= least
    ]
    if tables:
        tables[0] = dataclasses.replace(
            tables[0], note="Tokens, and time per output token, are medians."
        )
    return tables


def turn_by_length(diagnosis: Diagnosis) -> Table | None:
    """Median TTFT with a row a turn and a column a range of prompt lengths."""
    cells = [c for c in diagnosis.splits.turn_by_length if c.ttft_p50_s is not None]
    turns = sorted({c.key.get("turn") for c in cells}, key=_number)
    bands = sorted({_band(c.key) for c in cells}, key=lambda b: (_number(b[0]), _number(b[1])))
    if len(turns) < 2 or len(bands) < 2:
        return None
    found = {(c.key.get("turn"), _band(c.key)): c.ttft_p50_s for c in cells}
    return Table(
        "turn_by_length",
        "Median TTFT by turn and prompt length",
        (
            "turn",
            *(
                length_band({"input_tokens_from": low, "input_tokens_to": high})
                for low, high in bands
            ),
        ),
        tuple(
            (clean(turn, 40), *(seconds(found.get((turn, band))) for band in bands))
            for turn in turns
        ),
        note="Down a column prompts are about as long and the turn differs; along a row the "
        "other way round.",
    )


_Key = str | int | float | None


def _band(key: Mapping[str, _Key]) -> tuple[_Key, _Key]:
    return key.get("input_tokens_from"), key.get("input_tokens_to")


def _number(value: _Key) -> float:
    return float(value) if isinstance(value, (int, float)) else float("inf")


def remedy_table(diagnosis: Diagnosis) -> Table:
    """Today and each remedy, by predicted mean TTFT."""
    p = diagnosis.population
    rows: list[list[str | None]] = [
        [
            "today",
            None if p.ttft_mean_s is None else seconds(p.ttft_mean_s),
            None if p.ttft_p50_s is None else seconds(p.ttft_p50_s),
            None if p.ttft_p95_s is None else seconds(p.ttft_p95_s),
            None,
            None,
        ]
    ]
    values = [p.ttft_mean_s]
    for r in remedies_by_gain(diagnosis):
        rows.append(
            [
                remedy_name(r),
                None if r.ttft_mean_s is None else seconds(r.ttft_mean_s),
                None if r.ttft_p50_s is None else seconds(r.ttft_p50_s),
                None if r.ttft_p95_s is None else seconds(r.ttft_p95_s),
                None if r.gain_share is None else gain(r.gain_share),
                None if r.interval is None else f"{gain(r.interval[1])} to {gain(r.interval[0])}",
            ]
        )
        values.append(r.ttft_mean_s)
    return table(
        "remedies",
        "What would help",
        ("remedy", "mean", "p50", "p95", "gain", "interval"),
        rows,
        values=values,
        note="Predicted by serving the arrivals of this log again; gains must not be added up.",
    )


def remedies_by_gain(diagnosis: Diagnosis) -> list[Gain]:
    """The remedies, largest predicted gain first, unpredicted ones last."""
    return sorted(
        diagnosis.remedies,
        key=lambda r: -r.gain_share if r.gain_share is not None else float("inf"),
    )


def remedy_name(remedy: Gain) -> str:
    """The title a remedy gives itself, or the known name of its id."""
    return clean(remedy.title, 120) or title(remedy.id)


def cause_table(diagnosis: Diagnosis) -> Table:
    """Every cause with its status and figures."""
    # Where TTFT hardly grows, parts of its growth are many times the whole: they say nothing.
    growths = [f.share_of_growth for f in diagnosis.causes if f.share_of_growth is not None]
    told = all(-0.25 <= growth <= 1.25 for growth in growths)
    return table(
        "causes",
        "Causes considered",
        ("status", "cause", "seconds", "of TTFT", "of growth", "confidence"),
        (
            (
                title(f.status),
                clean(f.id, 60),
                None if f.seconds is None else seconds(f.seconds),
                None if f.share_of_ttft is None else share(f.share_of_ttft),
                share(f.share_of_growth) if told and f.share_of_growth is not None else None,
                share(f.confidence) if f.status != "unjudged" else None,
            )
            for f in findings(diagnosis)
        ),
        left=(0, 1),
    )


def worst_table(diagnosis: Diagnosis) -> Table | None:
    """The requests with the most of the primary cause, for looking them up."""
    finding = primary(diagnosis)
    if finding is None or not finding.rows:
        return None
    several = len({row.path for row in finding.rows}) > 1 or len(diagnosis.inputs) > 1
    charged = any(row.seconds is not None for row in finding.rows)
    note = f"Of it: seconds laid to {clean(finding.id, 60)}."
    if finding.id == "insufficient_data":
        note = "Of it: what nothing in the log explains."
    return table(
        "worst",
        "Requests it costs most" if charged else "The slowest requests",
        ("request", "session", "turn", "start", "TTFT", "of it"),
        (
            (
                _called(row, several=several),
                None if row.session_id is None else clean(row.session_id, 36),
                None if row.turn is None else count(row.turn),
                None if row.start is None else clean(row.start, 25),
                seconds(row.ttft_s),
                None if row.seconds is None else seconds(row.seconds),
            )
            for row in finding.rows
        ),
        left=(0, 1, 3),
        note=note if charged else "",
    )


def _called(row: WorstRow, *, several: bool) -> str:
    if row.request_id:
        return clean(row.request_id, 36)
    if row.line is None:
        return "-"
    of = f" of {clean(row.path.rpartition('/')[2], 60)}" if several and row.path else ""
    return f"line {row.line}{of}"


def worked_examples(diagnosis: Diagnosis) -> list[str]:
    """The worst request of each cause at work, spelled out as a sum."""
    return [
        clean(f.worked_example.text, 600)
        for f in findings(diagnosis)
        if f.worked_example is not None
    ]


def ruled_out(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Each cause that was ruled out, and why."""
    return [
        (clean(f.id, 60), clean(f.ruled_out_because or "nothing in the log speaks for it", 300))
        for f in findings(diagnosis)
        if f.status == "ruled_out"
    ]


def about(finding: Finding) -> list[str]:
    """What is known about a finding, as sentences: evidence, interval, and what is needed."""
    said = [clean(s.text) for s in finding.evidence]
    if finding.interval is not None:
        said.append(f"Interval: {span(finding.interval, seconds)} per request.")
    if finding.needs:
        columns = ", ".join(clean(n, 60) for n in finding.needs)
        said.append(
            f"Needs {columns} to be judged."
            if finding.status == "unjudged"
            else f"With {columns} in the log it could be told more surely."
        )
    return said
