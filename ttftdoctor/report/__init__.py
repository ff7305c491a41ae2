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
    Input,
    Interval,
    LedgerRow,
    PricedModel,
    Slice,
    Verdict,
    WorstRow,
)
from ttftdoctor.language import mark, tr, tr_n
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
    "repeated_prefix_no_reuse": mark("history prefilled again every turn, no reuse"),
    "cache_eviction": mark("cached prefixes gone before the next turn"),
    "cache_busting_prefix": mark("prompt changes near its head"),
    "affinity_loss": mark("next turn lands on another replica"),
    "queueing_saturation": mark("requests wait for prefill capacity"),
    "decode_contention": mark("decoding takes slots or steps"),
    "organic_long_input": mark("long prompts with new content"),
    "cold_start": mark("cold start"),
    "fixed_overhead": mark("a constant, or a slow path"),
    "deploy_regression": mark("same work costs more since a moment in time"),
    "retry_or_ratelimit": mark("retries, back-off or limits"),
    "measurement_artifact": mark("the number is not a TTFT"),
    "insufficient_data": mark("the log cannot tell"),
    "healthy": mark("nothing is wrong"),
    # accounts of the ledger
    "fixed": mark("fixed overhead"),
    "queue_behind_repeated": mark("queue behind repeated prefill"),
    "queue_behind_new": mark("queue behind new prefill"),
    "queue_other": mark("other queueing"),
    "prefill_repeated": mark("prefill of repeated tokens"),
    "prefill_new": mark("prefill of new tokens"),
    "unexplained": mark("unexplained"),
    # remedies
    "prefix_cache": mark("prefix cache"),
    "more_cache": mark("larger or longer-lived cache"),
    "stable_prefix": mark("stable prompt head"),
    "session_affinity": mark("session affinity"),
    "history_compaction": mark("history compaction"),
    "chunked_prefill": mark("chunked prefill"),
    "disaggregated_prefill": mark("prefill on machines of its own"),
    "double_capacity": mark("twice the capacity"),
    "more_seqs": mark("more sequences at once"),
    "shed_peak": mark("move or shed the peak"),
    "faster_gateway": mark("faster gateway"),
    "warm_pool": mark("warm pool"),
    "rollback": mark("roll back the change"),
    "backoff_fix": mark("fix the back-off"),
    # statuses
    "primary": mark("primary"),
    "contributing": mark("contributing"),
    "minor": mark("minor"),
    "ruled_out": mark("ruled out"),
    "unjudged": mark("not judged"),
    # groups of the ledger
    "all": mark("all"),
    "early_turns": mark("early turns"),
    "late_turns": mark("late turns"),
    "off_peak": mark("off-peak"),
    "peak": mark("peak"),
}

#: The accounts in few characters, for narrow tables.
SHORT_ACCOUNTS: dict[str, str] = {
    "fixed": mark("fixed"),
    "queue_behind_repeated": mark("queue: repeated"),
    "queue_behind_new": mark("queue: new"),
    "queue_other": mark("queue: other"),
    "prefill_repeated": mark("prefill: repeated"),
    "prefill_new": mark("prefill: new"),
    "unexplained": mark("unexplained"),
}

#: Where the clock stood; a place that is not here is named as the log names it.
_CLOCKS: dict[str, str] = {
    "client": mark("clock at the client"),
    "gateway": mark("clock at the gateway"),
    "server": mark("clock at the server"),
}

_GRADES: dict[str, dict[str, str]] = {
    "session": {
        "logged": mark("sessions are logged"),
        "linked": mark("sessions were linked by content or timing"),
        "none": mark("sessions are unknown"),
    },
    "reuse": {
        "content": mark("reuse is known from prompt content"),
        "reported": mark("reuse is as the server reports it"),
        "inferred": mark("reuse is inferred from session arithmetic"),
        "none": mark("reuse is unknown"),
    },
    "queue": {
        "logged": mark("queue time is logged"),
        "inferred": mark("queue time is inferred"),
        "none": mark("queue time is unknown"),
    },
}

STATUS_ORDER = ("primary", "contributing", "minor", "unjudged", "ruled_out")
GROUP_ORDER = ("all", "early_turns", "late_turns", "off_peak", "peak")


def title(ident: str) -> str:
    """The human name of a cause, account, remedy, status or group; an unknown one in words."""
    known = TITLES.get(ident)
    return tr(known) if known else clean(ident).replace("_", " ")


def short_title(account: str) -> str:
    """The name of an account for a narrow table."""
    known = SHORT_ACCOUNTS.get(account)
    return tr(known) if known else title(account)


def of_repeated(name: str) -> bool:
    """Whether a row of a table is called as an account of repeated work is."""
    return any(
        name in (title(account), short_title(account))
        for account in ("queue_behind_repeated", "prefill_repeated")
    )


def severity(verdict: Verdict) -> Severity:
    """How a verdict is coloured."""
    if verdict.primary_cause == "healthy":
        return "good"
    if verdict.family == "data":
        return "unknown"
    return "bad" if verdict.confidence >= 0.6 else "warn"


def badge(verdict: Verdict) -> str:
    """The verdict in one or two words, so that it does not depend on colour."""
    if verdict.primary_cause == "healthy":
        return tr("HEALTHY")
    if verdict.primary_cause == "insufficient_data":
        return tr("CANNOT TELL")
    if verdict.primary_cause == "measurement_artifact":
        return tr("NOT A TTFT")
    return tr("FOUND") if verdict.confidence >= 0.6 else tr("LIKELY")


def confidence(value: float) -> str:
    """Confidence in words and per cent: ``high confidence (94 %)``."""
    if value >= 0.8:
        return tr("high confidence ({part})", part=share(value))
    if value >= 0.6:
        return tr("fair confidence ({part})", part=share(value))
    return tr("low confidence ({part})", part=share(value))


def scope(diagnosis: Diagnosis) -> str:
    """Where it is: ``only tenant acme, model m1``, or all of what was asked for."""
    found = diagnosis.verdict.scope
    if found:
        return tr(
            "only {what}",
            what=tr(", ").join(f"{clean(k)} {clean(v, 120)}" for k, v in found.items()),
        )
    if any(reason in one.rows_rejected for one in diagnosis.inputs for reason in NOT_CHOSEN):
        used = sum(one.rows_used for one in diagnosis.inputs)
        read = sum(one.rows_read for one in diagnosis.inputs)
        return tr(
            "the rows that were asked for ({used} of {read})", used=count(used), read=count(read)
        )
    return tr("all of the log")


def grades(diagnosis: Diagnosis) -> str:
    """How the evidence was come by, as a sentence."""
    e = diagnosis.evidence
    parts = (
        tr(_GRADES["session"].get(e.session, e.session)),
        tr(_GRADES["reuse"].get(e.reuse, e.reuse)),
        tr(_GRADES["queue"].get(e.queue, e.queue)),
    )
    text = tr("; ").join(parts)
    return tr("{sentence}.", sentence=text[:1].upper() + text[1:])


def span(low_high: Interval | None, show: Callable[[float | None], str]) -> str:
    """An interval: ``70 % to 77 %``; empty where there is none."""
    return "" if low_high is None else _from_to(show(low_high[0]), show(low_high[1]))


def _from_to(low: str, high: str) -> str:
    return tr("{low} to {high}", low=low, high=high)


def _between(low_high: Interval | None, show: Callable[[float], str]) -> str:
    """An interval behind the figure that it bounds; empty where there is none."""
    if low_high is None:
        return ""
    return tr(" ({low} to {high})", low=show(low_high[0]), high=show(low_high[1]))


#: What a sentence ends with.
STOPS = (".", "!", "?", "…", "。", "！", "？")

#: How parts of a text follow on each other, for :func:`joined`.
CLAUSES = mark("{first}, {then}")
SENTENCES = mark("{first} {then}")


def joined(parts: Iterable[str], by: str = SENTENCES) -> str:
    """Sentences, or clauses, as one text; not every language sets a blank between them."""
    text = ""
    for part in parts:
        text = tr(by, first=text, then=part) if text else part
    return text


def gain(value: float | None) -> str:
    """The part of today's TTFT that goes away, with its sign: ``−74 %``."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"−{share(value)}" if value > 0 else f"+{share(-value)}" if value < 0 else share(0.0)


def gain_sentence(remedy: Gain, today: float | None) -> str:
    """What a remedy is predicted to do: ``mean TTFT 1.36 s → 352 ms, −74 % (−76 % to −71 %)``."""
    if remedy.ttft_mean_s is None and remedy.gain_share is None:
        return tr("gain not predicted from this log")
    before = f"{seconds(today)} → " if today is not None else ""
    parts: list[str] = []
    if remedy.ttft_mean_s:
        change = f"{before}{seconds(remedy.ttft_mean_s)}"
        parts.append(tr("mean TTFT {change}", change=change))
    if remedy.gain_share is not None:
        less = gain(remedy.gain_share)
        parts.append(less if parts else tr("{gain} of mean TTFT", gain=less))
    bounds = None if remedy.interval is None else (remedy.interval[1], remedy.interval[0])
    return joined(parts, CLAUSES) + _between(bounds, gain)


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
    return [
        tr("{columns}: {text}", columns=tr(", ").join(columns), text=text)
        for text, columns in said.items()
    ]


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
    parts = [_requests(p.requests)]
    if p.sessions is not None:
        parts.append(tr_n("{n} session", "{n} sessions", p.sessions, n=count(p.sessions)))
    if p.turns_max is not None and p.turns_max > 1:
        parts.append(tr("up to {n} turns", n=count(p.turns_max)))
    if p.start and p.end:
        parts.append(_from_to(_clock(p.start), _clock(p.end)))
    if p.vantage in _CLOCKS:
        parts.append(tr(_CLOCKS[p.vantage]))
    elif p.vantage:
        parts.append(tr("clock at the {place}", place=clean(p.vantage, 40)))
    return parts


def ttft_figures(diagnosis: Diagnosis, *, short: bool = False) -> str:
    """Today's TTFT: ``TTFT mean 1.36 s, p50 1.18 s, p95 3.32 s``, or that there is none.

    ``short`` leaves out what stands between the mean and the p95.
    """
    p = diagnosis.population
    mean = None if p.ttft_mean_s is None else tr("mean {ttft}", ttft=seconds(p.ttft_mean_s))
    p50 = None if p.ttft_p50_s is None else f"p50 {seconds(p.ttft_p50_s)}"
    p95 = None if p.ttft_p95_s is None else f"p95 {seconds(p.ttft_p95_s)}"
    known = [text for text in (mean, None if short and mean else p50, p95) if text is not None]
    if not known:
        return tr("no TTFT in this log")
    return tr("TTFT {figures}", figures=joined(known, CLAUSES))


def _requests(n: int) -> str:
    return tr_n("{n} request", "{n} requests", n, n=count(n))


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
            tr("{ms} fixed{within}",
               ms=milliseconds(line.fixed_ms), within=_within(line.fixed_ms_interval)),
            tr("{ms} per 1,000 uncached tokens{within}",
               ms=milliseconds(line.ms_per_1k_tokens),
               within=_within(line.ms_per_1k_tokens_interval)),
        ]  # fmt: skip
        if line.ms_per_1k_tokens_per_1k_context is not None:
            terms.append(
                tr("{ms} per 1,000 tokens and 1,000 of context{within}",
                   ms=milliseconds(line.ms_per_1k_tokens_per_1k_context),
                   within=_within(line.ms_per_1k_tokens_per_1k_context_interval))
            )  # fmt: skip
        if line.ms_per_1k_context is not None:
            terms.append(
                tr("{ms} per 1,000 tokens, cached or not", ms=milliseconds(line.ms_per_1k_context))
            )
        tail = [_requests(line.n), clean(line.method)]
        if line.residual_p50_ms is not None:
            tail.append(tr("median miss {ms}", ms=milliseconds(line.residual_p50_ms)))
        said.append(
            tr("Prefill: {terms} ({tail}).", terms=" + ".join(terms), tail=joined(tail, CLAUSES))
        )
    for model in diagnosis.cost_lines.by_model:
        said.append(
            tr(
                "{model}: {says} ({requests}, median TTFT {ttft}: {fixed} fixed + {slope} per "
                "1,000 uncached tokens).",
                model=clean(model.model), says=clean(model.says),
                requests=_requests(model.requests), ttft=seconds(model.ttft_p50_s),
                fixed=milliseconds(model.fixed_ms), slope=milliseconds(model.ms_per_1k_tokens),
            )
        )  # fmt: skip
    decode = diagnosis.cost_lines.decode
    if decode is not None:
        terms = [
            tr("{ms} per token{within}",
               ms=milliseconds(decode.ms_per_token), within=_within(decode.ms_per_token_interval))
        ]  # fmt: skip
        for slope, nothing, some in (
            (
                decode.slope_per_1k_context_ms,
                mark("nothing per 1,000 tokens of context"),
                mark("{ms} per 1,000 tokens of context"),
            ),
            (
                decode.slope_per_running_ms,
                mark("nothing per request in flight"),
                mark("{ms} per request in flight"),
            ),
        ):
            if slope is None:
                continue
            level = abs(slope) < 0.002 * decode.ms_per_token
            terms.append(tr(nothing) if level else tr(some, ms=_signed(slope)))
        said.append(
            tr("Decode: {terms} ({tail}).", terms=joined(terms, CLAUSES),
               tail=joined([_requests(decode.n), clean(decode.method)], CLAUSES))
        )  # fmt: skip
    if not said:
        said.append(tr("The log does not determine a cost per token."))
    if diagnosis.floor is not None:
        floor = diagnosis.floor
        prefill, decoding = floor.prefill_ms_per_1k_tokens, floor.decode_ms_per_token
        per_1k = tr("{ms} per 1,000 tokens of prefill", ms=milliseconds(prefill))
        per_token = tr("{ms} per decoded token", ms=milliseconds(decoding))
        said.append(
            tr(
                "Hardware floor: {prefill}, {decode}. {text}",
                prefill=_measured(per_1k, floor.prefill_times_floor),
                decode=_measured(per_token, floor.decode_times_floor),
                text=clean(floor.text),
            ).strip()
        )
    return said


def _measured(floor: str, times: float | None) -> str:
    if times is None:
        return floor
    return tr("{floor} (measured {n} times that)", floor=floor, n=f"{times:.3g}")


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
        said.append(tr("The log does not say how long the prompts are."))
    elif p.repeated_tokens is None:
        said.append(
            tr("Of {n} prompt tokens, it is unknown how many had been computed before.",
               n=tokens(total))
        )  # fmt: skip
    else:
        said.append(
            tr(
                "Of {n} prompt tokens, {repeated} ({part}) had been computed by an earlier "
                "request.",
                n=tokens(total), repeated=tokens(p.repeated_tokens),
                part=share(p.repeated_tokens / total),
            )
        )  # fmt: skip
    if p.cached_tokens is not None:
        said.append(tr("{n} came from a cache.", n=tokens(p.cached_tokens)))
    if p.recomputed_tokens is not None:
        part = ""
        if p.recomputed_share is not None:
            part = tr(", {part} of all", part=share(p.recomputed_share))
        bounds = ""
        if p.bounds:
            bounds = tr(
                "; between {low} and {high}", low=tokens(p.bounds[0]), high=tokens(p.bounds[1])
            )
        said.append(
            tr("{n} were computed again{part}{bounds}.",
               n=tokens(p.recomputed_tokens), part=part, bounds=bounds)
        )  # fmt: skip
    if p.prefill_seconds_wasted is not None:
        said.append(tr("That took {time} of prefill.", time=seconds(p.prefill_seconds_wasted)))
    said += money_sentences(diagnosis)
    if p.basis:
        said.append(tr("Basis: {basis}.", basis=clean(p.basis).rstrip(".。")))
    return said


def money_sentences(diagnosis: Diagnosis) -> list[str]:
    """What computing again costs, by which prices and of which day; empty if nobody asked."""
    p, said = diagnosis.repeated_prefix, list[str]()
    bill = p.money
    if p.gpu_seconds_wasted is not None:
        gpus = bill.gpus_per_replica if bill is not None else None
        wasted = count(p.gpu_seconds_wasted)
        said.append(
            tr("That is {n} GPU-seconds.", n=wasted)
            if gpus is None
            else tr_n(
                "That is {n} GPU-seconds at {gpus} GPU a replica.",
                "That is {n} GPU-seconds at {gpus} GPUs a replica.",
                gpus, n=wasted, gpus=figure(gpus),
            )
        )  # fmt: skip
    if bill is None:
        return said
    source = clean(bill.price_source or tr("source not given"), 120)
    if bill.basis == "tokens":
        day = clean(bill.price_date or tr("no known day"), 40)
        source = tr("{source}, prices of {day}", source=source, day=day)
    unit = clean(bill.currency, 40)
    if bill.amount is None:
        why = tr("no model has a price")
        if bill.basis != "tokens" or bill.models:
            why = tr("the log does not tell what was computed again")
        unknown = tr("What that costs is unknown: {why} ({source}).", why=why, source=source)
        return [*said, unknown]
    amount, bounds = money(bill.amount), _between(bill.interval, money)
    parts = [
        tr("It costs {amount} {unit} more than reading it from a cache{bounds}",
           amount=amount, unit=unit, bounds=bounds)
        if bill.basis == "tokens"
        else tr("It costs {amount} {unit}{bounds}", amount=amount, unit=unit, bounds=bounds)
    ]  # fmt: skip
    if bill.per_day is not None:
        parts.append(tr("{amount} a day", amount=money(bill.per_day)))
    if bill.input_spent is not None:
        parts.append(tr("of {amount} for all prompts", amount=money(bill.input_spent)))
    said.append(tr("{text} ({source}).", text=joined(parts, CLAUSES), source=source))
    said += [_priced(one, unit) for one in bill.models[:3]]
    if bill.assumed:
        texts = tr("; ").join(clean(text, 200) for text in bill.assumed)
        said.append(tr("Assumed: {texts}.", texts=texts))
    return said


def _priced(model: PricedModel, unit: str) -> str:
    """The prices of a model, and from when on they hold."""
    prices = [tr("{price} computed", price=figure(model.input_per_m))]
    for price, word in (
        (model.cached_per_m, mark("{price} cached")),
        (model.write_per_m, mark("{price} written")),
        (model.output_per_m, mark("{price} output")),
    ):
        if price is not None:
            prices.append(tr(word, price=figure(price)))
    parts = [
        tr(
            "{model} is priced as {listed}: {unit} {prices} for a million tokens",
            model=clean(model.model, 80), listed=clean(model.priced_as, 80), unit=unit,
            prices=tr(", ").join(prices),
        )
    ]  # fmt: skip
    if model.since:
        parts.append(tr("since {day}", day=clean(model.since, 20)))
    if model.dearer_from_tokens is not None:
        parts.append(tr("more from {n} tokens on", n=count(model.dearer_from_tokens)))
    return tr("{sentence}.", sentence=joined(parts, CLAUSES))


def money(amount: float) -> str:
    """Print an amount: ``1,234.50``; below one with three figures: ``0.0412``."""
    size = abs(amount)
    if size >= 0.995 or amount == 0:
        return minus(f"{amount:,.2f}")
    return minus(f"{amount:.3g}") if size >= 1e-4 else tr("less than 0.0001")


def saving_sentence(diagnosis: Diagnosis, remedy: Gain) -> str:
    """What a remedy saves, or costs, over the span of the log; empty if nobody asked."""
    parts = []
    if remedy.gpu_seconds_saved is not None:
        parts.append(tr("{n} GPU-seconds", n=count(abs(remedy.gpu_seconds_saved))))
    amount = remedy.money_saved
    bill = diagnosis.repeated_prefix.money
    if amount is not None:
        unit = clean(bill.currency, 40) if bill is not None else ""
        text = f"{money(abs(amount))} {unit}".rstrip()
        if remedy.money_saved_per_day is not None:
            day = money(abs(remedy.money_saved_per_day))
            text = tr("{amount} ({day} a day)", amount=text, day=day)
        parts.append(text)
    if not parts:
        return ""
    lead = amount if amount is not None else remedy.gpu_seconds_saved or 0.0
    if lead == 0:
        return tr("saves no money") if amount is not None else tr("saves no GPU time")
    what = joined(parts, CLAUSES)
    return tr("saves {what}", what=what) if lead > 0 else tr("costs more: {what}", what=what)


def slo_sentence(diagnosis: Diagnosis) -> str:
    """How many requests met the target; empty without one."""
    if diagnosis.slo is None:
        return ""
    slo = diagnosis.slo
    target, met = seconds(slo.target_s), share(slo.attainment)
    if slo.goodput_per_s is None:
        return tr("TTFT of {target} or less: met by {met} of requests.", target=target, met=met)
    return tr(
        "TTFT of {target} or less: met by {met} of requests, {n} good requests a second.",
        target=target, met=met, n=f"{slo.goodput_per_s:.3g}",
    )  # fmt: skip


def read_sentences(diagnosis: Diagnosis) -> list[str]:
    """What was read and what became of it, with the first rejects and their lines.

    What belongs to the sentence before it is indented.
    """
    said: list[str] = []
    for item in diagnosis.inputs:
        rejected = sum(item.rows_rejected.values())
        said.append(
            tr(
                "{path} ({format}): {rows} read = {used} used + {rejected} rejected{why}.",
                path=clean(item.path, 300), format=clean(item.format, 60),
                rows=tr_n("{n} row", "{n} rows", item.rows_read, n=count(item.rows_read)),
                used=count(item.rows_used), rejected=count(rejected),
                why=tr(" ({why})", why=_tally(item.rows_rejected)) if rejected else "",
            )
        )  # fmt: skip
        said += [f"  {text}" for text in reject_sentences(item)]
        if item.ttft_set_aside:
            said.append("  " + tr("TTFT set aside: {why}", why=_tally(item.ttft_set_aside)))
    p = diagnosis.population
    said.append(
        tr_n("TTFT usable in {usable} of {n} request.", "TTFT usable in {usable} of {n} requests.",
             p.requests, usable=count(p.with_ttft), n=count(p.requests))
    )  # fmt: skip
    said.append(grades(diagnosis))
    return said


def reject_sentences(item: Input) -> list[str]:
    """The first rows of an input that were rejected, and why."""
    return [
        tr("line {line}: {why}", line=line, why=clean(reason, 300))
        for line, reason in item.first_rejects
    ]


def spread_sentence(diagnosis: Diagnosis) -> str:
    """How much of the spread is explained, and could be; empty where that is not known."""
    s = diagnosis.spread
    if s is None:
        return ""
    part, whole = share(s.explained_by_model), span(s.interval, share)
    if s.explainable - s.explained_by_model < 0.03:
        return tr(
            "Of the spread of TTFT {part} is explained by the cost line and the work ahead, about "
            "as much as any model of these columns could explain ({whole}): the rest is not in "
            "this log.",
            part=part, whole=whole,
        )  # fmt: skip
    return tr(
        "Of the spread of TTFT {part} is explained by the cost line and the work ahead; any model "
        "of these columns could explain about {most} ({whole}): the rest is not in this log.",
        part=part, most=share(s.explainable), whole=whole,
    )  # fmt: skip


def _tally(numbers: Mapping[str, int]) -> str:
    ordered = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return tr(", ").join(f"{clean(reason, 120)} {count(n)}" for reason, n in ordered)


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
        label = short_title(name) if short else title(name)
        rows.append([label, share(part), *(seconds(g.accounts.get(name)) for g in groups)])
    rows.append([tr("mean TTFT"), share(1.0), *(seconds(g.ttft_mean_s) for g in groups)])
    rows.append([tr("requests"), "", *(count(g.n) for g in groups)])
    head = [tr("account"), tr("of {group}", group=title(first.group if first else "all"))]
    return Table(
        "ledger",
        tr("Where the mean TTFT goes"),
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
            parts.append(_clock(value) if isinstance(value, str) else tr("hour {n}", n=value))
        else:
            parts.append(tr("(none)") if value is None else clean(value, 60))
    return joined(parts, CLAUSES)


def slice_table(name: str, heading: str, first: str, slices: Sequence[Slice]) -> Table:
    """One split as a table; the bar is the median TTFT, or the median input without one."""
    values = [s.ttft_p50_s if s.ttft_p50_s is not None else None for s in slices]
    if not any(v is not None for v in values):
        values = [s.input_p50 for s in slices]
    return table(
        name,
        heading,
        (first, tr("requests"), tr("input"), tr("uncached"), "TTFT p50", "p95", tr("per token")),
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
        ("by_turn", tr("By turn"), tr("turn"), s.by_turn, 1),
        ("by_input_length", tr("By prompt length"), tr("prompt tokens"), s.by_input_length, 1),
        ("by_hour", tr("By hour"), tr("hour"), s.by_hour, 2),
        ("by_replica", tr("By replica"), tr("replica"), s.by_replica, 2),
        ("by_model", tr("By model"), tr("model"), s.by_model, 2),
    )
    tables = [
        slice_table(name, heading, first, slices)
        for name, heading, first, slices, least in made
        if len(slices) >= least
    ]
    if tables:
        tables[0] = dataclasses.replace(
            tables[0], note=tr("Tokens, and time per output token, are medians.")
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
        tr("Median TTFT by turn and prompt length"),
        (
            tr("turn"),
            *(
                length_band({"input_tokens_from": low, "input_tokens_to": high})
                for low, high in bands
            ),
        ),
        tuple(
            (clean(turn, 40), *(seconds(found.get((turn, band))) for band in bands))
            for turn in turns
        ),
        note=tr(
            "Down a column prompts are about as long and the turn differs; along a row the "
            "other way round."
        ),
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
            tr("today"),
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
                None if r.interval is None else _from_to(gain(r.interval[1]), gain(r.interval[0])),
            ]
        )
        values.append(r.ttft_mean_s)
    return table(
        "remedies",
        tr("What would help"),
        (tr("remedy"), tr("mean"), "p50", "p95", tr("gain"), tr("interval")),
        rows,
        values=values,
        note=tr("Predicted by serving the arrivals of this log again; gains must not be added up."),
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
        tr("Causes considered"),
        (
            tr("status"), tr("cause"), tr("seconds"), tr("of TTFT"), tr("of growth"),
            tr("confidence"),
        ),
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
    )  # fmt: skip


def worst_table(diagnosis: Diagnosis) -> Table | None:
    """The requests with the most of the primary cause, for looking them up."""
    finding = primary(diagnosis)
    if finding is None or not finding.rows:
        return None
    several = len({row.path for row in finding.rows}) > 1 or len(diagnosis.inputs) > 1
    charged = any(row.seconds is not None for row in finding.rows)
    note = tr("Of it: seconds laid to {cause}.", cause=clean(finding.id, 60))
    if finding.id == "insufficient_data":
        note = tr("Of it: what nothing in the log explains.")
    return table(
        "worst",
        tr("Requests it costs most") if charged else tr("The slowest requests"),
        (tr("request"), tr("session"), tr("turn"), tr("start"), "TTFT", tr("of it")),
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
    if several and row.path:
        name = clean(row.path.rpartition("/")[2], 60)
        return tr("line {line} of {file}", line=row.line, file=name)
    return tr("line {line}", line=row.line)


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
        (
            clean(f.id, 60),
            clean(f.ruled_out_because or tr("nothing in the log speaks for it"), 300),
        )
        for f in findings(diagnosis)
        if f.status == "ruled_out"
    ]


def about(finding: Finding) -> list[str]:
    """What is known about a finding, as sentences: evidence, interval, and what is needed."""
    said = [clean(s.text) for s in finding.evidence]
    if finding.interval is not None:
        interval = span(finding.interval, seconds)
        said.append(tr("Interval: {interval} per request.", interval=interval))
    if finding.needs:
        columns = tr(", ").join(clean(n, 60) for n in finding.needs)
        said.append(
            tr("Needs {columns} to be judged.", columns=columns)
            if finding.status == "unjudged"
            else tr("With {columns} in the log it could be told more surely.", columns=columns)
        )
    return said
