"""A diagnosis as a page of metrics, for the textfile collector of Prometheus' node exporter.

The page is OpenMetrics and the older text format at once, since that collector reads the older
one: gauges only, no time stamps, nothing that only one of the two knows. Units are in the names,
shares of one are called ratios. What a log calls itself stands only in values of labels, which
the exposition library escapes; the number of series does not grow with the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ttftdoctor.diagnosis import Diagnosis
from ttftdoctor.language import speaking
from ttftdoctor.report import clean, ledger_groups, scope

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

#: So many reasons of rejected rows are named; what the others have together is ``other``.
MOST_REASONS = 30

#: Label values and a number.
Series = tuple[tuple[str, ...], float | int | None]


def render(diagnosis: Diagnosis) -> str:
    """The whole page, ending with ``# EOF``. Figures that are not known are left out."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.registry import Collector

    class Page(Collector):
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return _families(diagnosis)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    with speaking("en"):  # labels name a series, whatever language people read
        page: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return page.decode("utf-8")


def _gauge(
    name: str, says: str, series: Iterable[Series], labels: tuple[str, ...] = (), unit: str = ""
) -> Iterator[GaugeMetricFamily]:
    """One family, if any of its figures is known."""
    from prometheus_client.core import GaugeMetricFamily

    known = [(keys, v) for keys, v in series if v is not None and math.isfinite(v)]
    if known:
        family = GaugeMetricFamily(f"ttftdoctor_{name}", says, labels=labels, unit=unit)
        for keys, value in known:
            family.add_metric([clean(key, 200) for key in keys], value)
        yield family


def _families(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    yield from _gauge("version", "The version of ttftdoctor.", [((d.version,), 1)], ("version",))
    yield from _verdict(d)
    yield from _population(d)
    yield from _rows(d)
    yield from _prefix(d)
    yield from _costs(d)
    yield from _remedies(d)


def _verdict(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    v = d.verdict
    yield from _gauge(
        "verdict", "The verdict, in the labels; always 1.",
        [((v.primary_cause, v.family, scope(d)), 1)], ("cause", "family", "scope"),
    )  # fmt: skip
    yield from _gauge(
        "verdict_confidence", "How sure the verdict is, from 0 to 1.",
        [((), v.confidence)], unit="ratio",
    )  # fmt: skip
    yield from _gauge(
        "primary_cause", "1 for the cause that the verdict names, 0 for the others.",
        [((f.id,), int(f.id == v.primary_cause)) for f in d.causes], ("cause",),
    )  # fmt: skip
    yield from _gauge(
        "cause", "What a cause accounts for, per request with a TTFT on average.",
        [((f.id, f.status), f.seconds) for f in d.causes], ("cause", "status"), "seconds",
    )  # fmt: skip
    yield from _gauge(
        "cause_confidence", "How sure it is that a cause is at work, from 0 to 1.",
        [((f.id,), f.confidence) for f in d.causes if f.status != "unjudged"], ("cause",), "ratio",
    )  # fmt: skip


def _population(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    p = d.population
    yield from _gauge(
        "ttft", "Time to first token by quantile.",
        [(("0.5",), p.ttft_p50_s), (("0.95",), p.ttft_p95_s)], ("quantile",), "seconds",
    )  # fmt: skip
    yield from _gauge(
        "ttft_mean", "Time to first token on average.", [((), p.ttft_mean_s)], unit="seconds"
    )
    yield from _gauge("requests", "Requests that were used.", [((), p.requests)])
    yield from _gauge("requests_with_ttft", "Requests with a usable TTFT.", [((), p.with_ttft)])
    yield from _gauge("sessions", "Sessions, where they are known.", [((), p.sessions)])
    for name, stamp in (("log_start_timestamp", p.start), ("log_end_timestamp", p.end)):
        yield from _gauge(
            name, "When the log begins or ends, in Unix time.", [((), _unix(stamp))],
            unit="seconds",
        )  # fmt: skip
    if d.slo is not None:
        yield from _gauge(
            "slo_target", "The target for TTFT.", [((), d.slo.target_s)], unit="seconds"
        )
        yield from _gauge(
            "slo_attainment", "Share of requests that met the target.",
            [((), d.slo.attainment)], unit="ratio",
        )  # fmt: skip
        yield from _gauge(
            "goodput_requests_per_second", "Requests a second that met the target.",
            [((), d.slo.goodput_per_s)],
        )  # fmt: skip
    rows = ledger_groups(d)
    yield from _gauge(
        "ledger", "The mean TTFT of a group, by account: they add up to it.",
        [((row.group, name), value) for row in rows for name, value in row.accounts.items()],
        ("group", "account"), "seconds",
    )  # fmt: skip
    yield from _gauge(
        "ledger_share", "The part of a group's mean TTFT that an account is.",
        [((row.group, name), value / row.ttft_mean_s) for row in rows if row.ttft_mean_s > 0
         for name, value in row.accounts.items()],
        ("group", "account"), "ratio",
    )  # fmt: skip


def _rows(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    yield from _gauge(
        "rows_read", "Rows of the log that were read: used and rejected.",
        [((), sum(item.rows_read for item in d.inputs))],
    )  # fmt: skip
    yield from _gauge(
        "rows_used", "Rows that were used.", [((), sum(item.rows_used for item in d.inputs))]
    )
    for name, says, tallies in (
        ("rows_rejected", "Rows that were not used, by reason.",
         [item.rows_rejected for item in d.inputs]),
        ("rows_ttft_set_aside", "Used rows whose TTFT is missing or no TTFT, by reason.",
         [item.ttft_set_aside for item in d.inputs]),
    ):  # fmt: skip
        found = _tally(tallies)
        yield from _gauge(name, says, [((reason,), n) for reason, n in found], ("reason",))


def _tally(tallies: Iterable[Mapping[str, int]]) -> list[tuple[str, int]]:
    """The sums by reason, most first, and what is left of them as one; unlike as labels."""
    whole: dict[str, int] = {}
    for tally in tallies:
        for reason, n in tally.items():
            name = clean(reason, 200)
            whole[name] = whole.get(name, 0) + n
    ordered = sorted(whole.items(), key=lambda item: (-item[1], item[0]))
    named = dict(ordered[:MOST_REASONS])
    rest = sum(n for _, n in ordered[MOST_REASONS:])
    if rest:
        named["other"] = named.get("other", 0) + rest
    return list(named.items())


def _prefix(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    r = d.repeated_prefix
    yield from _gauge(
        "prompt_tokens", "Prompt tokens: all, those an earlier request had computed, those from a "
        "cache, and those computed again.",
        [((kind,), value) for kind, value in (
            ("input", r.input_tokens), ("repeated", r.repeated_tokens),
            ("cached", r.cached_tokens), ("recomputed", r.recomputed_tokens))],
        ("kind",),
    )  # fmt: skip
    yield from _gauge(
        "prefill_wasted", "Prefill of tokens that were computed again, over the log.",
        [((), r.prefill_seconds_wasted)], unit="seconds",
    )  # fmt: skip
    if d.prefix is not None and d.prefix.ladder is not None:
        yield from _gauge(
            "prefix_hit_share", "Share of the prompt tokens that each rung of the ladder leaves.",
            [((rung.id, rung.basis), rung.share) for rung in d.prefix.ladder.rungs],
            ("rung", "basis"), "ratio",
        )  # fmt: skip


def _costs(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    prefill, decode = d.cost_lines.prefill, d.cost_lines.decode
    if prefill is not None:
        yield from _gauge(
            "prefill_fixed", "The constant of the prefill line.",
            [((), prefill.fixed_ms / 1e3)], unit="seconds",
        )  # fmt: skip
        yield from _gauge(
            "prefill_per_1k_tokens", "Prefill of 1,000 uncached tokens.",
            [((), prefill.ms_per_1k_tokens / 1e3)], unit="seconds",
        )  # fmt: skip
    if decode is not None:
        yield from _gauge(
            "decode_per_token", "Decoding of one token.",
            [((), decode.ms_per_token / 1e3)], unit="seconds",
        )  # fmt: skip


def _remedies(d: Diagnosis) -> Iterator[GaugeMetricFamily]:
    yield from _gauge(
        "remedy_ttft_mean", "The mean TTFT that is predicted with a remedy.",
        [((r.id,), r.ttft_mean_s) for r in d.remedies], ("remedy",), "seconds",
    )  # fmt: skip
    yield from _gauge(
        "remedy_gain", "The part of the mean TTFT that a remedy is predicted to take away.",
        # What is less than one in a million is the arithmetic's.
        [((r.id,), None if r.gain_share is None else round(r.gain_share, 6)) for r in d.remedies],
        ("remedy",), "ratio",
    )  # fmt: skip


def _unix(stamp: str | None) -> float | None:
    if stamp is None:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
