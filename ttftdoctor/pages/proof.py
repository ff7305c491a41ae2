"""The three numbers that prove a verdict, from the figures of its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ttftdoctor.diagnosis import Diagnosis, Finding
from ttftdoctor.language import mark, tr
from ttftdoctor.pages.heading import Proof
from ttftdoctor.report import missing, primary
from ttftdoctor.units import count, seconds, share

Figures = Mapping[str, float | int | str | None]


#: Figures of evidence that tell most: two that stand against each other, or one alone. What comes
#: first here is shown first, so that what is particular to a cause stands before what many have.
_PAIRS: tuple[tuple[str, str, str], ...] = (
    ("before_p50_s", "after_p50_s", mark("median TTFT before and since the change")),
    ("warm_p50_s", "cold_p50_s", mark("median TTFT of warm requests and of cold ones")),
    ("once_p50_s", "retried_p50_s", mark("median TTFT of requests tried once and of retried ones")),
    ("best_level_s", "level_s", mark("TTFT for the same tokens elsewhere and here")),
    (
        "alone_p50_s",
        "busy_p50_s",
        mark("median TTFT of who finds the server free and who must wait"),
    ),
    (
        "miss_when_stayed",
        "miss_when_moved",
        mark("of turns miss on the same replica and on another"),
    ),
    ("miss_before", "miss_after", mark("of turns miss before and after the cache's lifetime")),
    ("first_ttft_p50_s", "last_ttft_p50_s", mark("median TTFT at turn 1 and at late turns")),
)
_ONES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("ratio", mark("times as long for the same work"), lambda v: f"{v:.2g}×"),
    ("recomputed_share", mark("of all prompt tokens were computed again"), share),
    ("equal_share", mark("of first tokens come with the last one"), share),
    ("not_streamed_share", mark("of the requests were not streamed"), share),
    ("after_share", mark("of first tokens would come after the end"), share),
    ("constant_share", mark("of the requests have the very same TTFT"), share),
    ("thinking_share", mark("of the TTFT is thinking"), share),
    ("gate_share", mark("of the TTFT passes before the server has the request"), share),
    ("hit_share", mark("of the turns that could reuse a prefix did"), share),
    ("wait_share", mark("of the mean TTFT is waiting"), share),
    ("prefill_new_p95_s", mark("prefill of new tokens at the 95th percentile"), seconds),
    ("longest_p50", mark("tokens in the longest class of prompts"), count),
    ("constant_s", mark("constant part of the TTFT"), seconds),
    ("slots_most", mark("requests decode at once at most"), count),
    ("queue_logged_s", mark("mean queue time that the engine logs"), seconds),
    ("unexplained_share", mark("of the mean TTFT is explained by nothing in the log"), share),
)


def proof(d: Diagnosis) -> list[Proof]:
    """Three numbers, or fewer where the log has no more."""
    finding = primary(d)
    cause = d.verdict.primary_cause
    if cause == "healthy":
        found = _healthy(d, finding)
    elif d.population.with_ttft == 0 or cause == "insufficient_data":
        found = _too_little(d, finding)
    else:
        found = [*_size(d, finding), *_told(finding), *_growth(d, finding)]
    return [*found, *_levels(d)][:3]


def _size(d: Diagnosis, finding: Finding | None) -> list[Proof]:
    """What the cause takes of the mean TTFT."""
    if finding is None or not finding.seconds or not finding.share_of_ttft:
        return []
    if finding.share_of_ttft >= 0.995:
        return []  # the number itself is wrong: its share says nothing
    # That of which it is this share: an extract has a mean of its own.
    mean = seconds(finding.seconds / finding.share_of_ttft)
    part = tr("of the mean TTFT: {value} of {mean}", value=seconds(finding.seconds), mean=mean)
    return [Proof(share(finding.share_of_ttft), part)]


def _told(finding: Finding | None) -> list[Proof]:
    figures: dict[str, float] = {}
    for statement in finding.evidence if finding is not None else ():
        for name, value in statement.figures.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                figures.setdefault(name, float(value))
    out = []
    for low, high, name in _PAIRS:
        if low in figures and high in figures:
            show = share if name.startswith("of ") else seconds
            out.append(Proof(f"{show(figures[low])} → {show(figures[high])}", tr(name)))
    for key, name, show_one in _ONES:
        if key in figures:
            out.append(Proof(show_one(figures[key]), tr(name)))
    # One that compares and one that counts tell more than two of a kind.
    pairs = [p for p in out if "→" in p.value]
    ones = [p for p in out if "→" not in p.value]
    return [*pairs[:1], *ones[:1], *pairs[1:], *ones[1:]]


def _growth(d: Diagnosis, finding: Finding | None) -> list[Proof]:
    if finding is None or finding.share_of_growth is None or finding.share_of_growth < 0.3:
        return []
    name = tr("of the growth from early turns to late ones")
    return [Proof(share(finding.share_of_growth), name)]


def _healthy(d: Diagnosis, finding: Finding | None) -> list[Proof]:
    p = d.population
    out = []
    if p.ttft_p50_s is not None and p.ttft_p95_s is not None:
        out.append(
            Proof(
                seconds(p.ttft_p95_s),
                tr("p95 of TTFT; the median is {median}", median=seconds(p.ttft_p50_s)),
            )
        )
    for statement in finding.evidence if finding is not None else ():
        lost = statement.figures.get("lost_share")
        if isinstance(lost, (int, float)):
            name = tr("of TTFT is a constant and prefill of new tokens")
            out.append(Proof(share(1 - lost), name))
        hits = statement.figures.get("hit_share")
        if isinstance(hits, (int, float)):
            out.append(Proof(share(hits), tr("of the turns that could reuse a prefix did")))
    return out


def _too_little(d: Diagnosis, finding: Finding | None) -> list[Proof]:
    """What there is, and what is missing."""
    p, r = d.population, d.repeated_prefix
    name = tr("of {n} requests have a usable TTFT", n=count(p.requests))
    out = [Proof(count(p.with_ttft), name)]
    if r.repeated_tokens is not None and r.input_tokens:
        part = r.repeated_tokens / r.input_tokens
        out.append(Proof(share(part), tr("of the prompt tokens had been sent before")))
        if r.cached_tokens is not None:
            out.append(
                Proof(
                    share(r.cached_tokens / r.input_tokens),
                    tr("of the prompt tokens came from a cache"),
                )
            )
    elif p.with_ttft:
        out += _told(finding)
    want = missing(d)
    if want:
        name = tr("columns are missing that would let causes be judged")
        out.append(Proof(count(len(want)), name))
    return out


def _levels(d: Diagnosis) -> list[Proof]:
    """What every log with a TTFT has."""
    p = d.population
    known = [
        (p.ttft_mean_s, tr("mean TTFT")), (p.ttft_p95_s, tr("p95 of TTFT")),
        (p.ttft_p50_s, tr("median TTFT")),
    ]  # fmt: skip
    out = [Proof(seconds(value), name) for value, name in known if value is not None]
    return [*out, Proof(count(p.requests), tr("requests"))]
