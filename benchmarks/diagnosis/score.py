"""What the results say: confusion, precision and recall, calibration, and errors of the figures.

Pure: records in, text out. A record holds what the doctor ``said`` of one log at one level of
``detail`` and the ``truth`` of the simulator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Record = dict[str, Any]

FAMILY = {
    "repeated_prefix_no_reuse": "prefix",
    "cache_eviction": "prefix",
    "cache_busting_prefix": "prefix",
    "affinity_loss": "prefix",
    "queueing_saturation": "load",
    "decode_contention": "load",
    "organic_long_input": "input",
    "cold_start": "service",
    "fixed_overhead": "service",
    "deploy_regression": "service",
    "retry_or_ratelimit": "service",
    "measurement_artifact": "data",
    "insufficient_data": "data",
    "healthy": "none",
}
#: Account of the ledger to those of the simulator.
ACCOUNTS = {
    "fixed": ("true_fixed_s",),
    "queue_behind_repeated": ("true_wait_behind_repeated_s",),
    "queue_behind_new": ("true_wait_behind_new_s",),
    "queue_other": ("true_wait_other_s",),
    "prefill_repeated": ("true_prefill_repeated_s",),
    "prefill_new": ("true_prefill_new_s",),
    "unexplained": ("true_gate_s", "true_retry_s", "true_cold_s", "true_hold_s"),
}
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def planted(r: Record) -> str:
    return str(r["truth"]["causes"]["primary"])


def right(r: Record) -> bool:
    """The planted primary cause, by its own name."""
    return bool(r["said"] == planted(r))


def accepted(r: Record) -> bool:
    """The planted cause, or one that the scenario names as looking alike."""
    return bool(right(r) or r["said"] in r["truth"]["causes"]["alternatives"])


def family(r: Record) -> bool:
    """A cause of the planted one's family."""
    return FAMILY.get(r["said"]) == FAMILY[planted(r)] or accepted(r)


def share(records: Sequence[Record], test: Callable[[Record], bool]) -> float:
    return sum(map(test, records)) / len(records) if records else float("nan")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown with columns as wide as they need to be."""
    lines = [list(head), *(list(row) for row in rows)]
    wide = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)) + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in wide) + "|")
    return "\n".join(text)


def percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.1f} %"


def verdicts(by_detail: dict[str, list[Record]]) -> str:
    rows = []
    for detail, some in by_detail.items():
        healthy = [r for r in some if planted(r) == "healthy"]
        accused = [r for r in healthy if r["said"] not in ("healthy", "insufficient_data")]
        rows.append(
            (
                detail, str(len(some)), percent(share(some, right)), percent(share(some, accepted)),
                percent(share(some, family)),
                percent(len(accused) / len(healthy)) if healthy else "-",
            )
        )  # fmt: skip
    head = ("detail", "logs", "cause right", "or one alike", "family right", "healthy accused")
    return table(head, rows)


def causes(some: Sequence[Record]) -> str:
    """Recall and precision of each cause."""
    rows = []
    for cause in FAMILY:
        mine = [r for r in some if planted(r) == cause]
        named = [r for r in some if r["said"] == cause]
        rows.append(
            (cause, str(len(mine)), percent(share(mine, right)), percent(share(mine, family)),
             str(len(named)), percent(share(named, right)), percent(share(named, accepted)))
        )  # fmt: skip
    head = ("cause", "planted", "recall", "family", "named", "precision", "or alike")
    return table(head, rows)


def confusion(some: Sequence[Record]) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for r in some:
        counts[planted(r)][r["said"].split(":")[0]] += 1
    named = [c for c in (*FAMILY, "crash") if any(counts[p][c] for p in counts)]
    short = {c: "".join(word[:4] for word in c.split("_")[:2]) for c in named}
    rows = [
        (cause, *(str(counts[cause][c] or ".") for c in named))
        for cause in FAMILY
        if cause in counts
    ]
    return table(("planted \\ named", *(short[c] for c in named)), rows)


def calibration(some: Sequence[Record]) -> str:
    rows = []
    for low, high in pairwise(BINS):
        here = [r for r in some if low <= r["confidence"] < high or r["confidence"] == high == 1.0]
        if not here:
            continue
        mean = float(np.mean([r["confidence"] for r in here]))
        rows.append(
            (f"{low:.0%} to {high:.0%}", str(len(here)), percent(mean),
             percent(share(here, right)), percent(share(here, accepted)))
        )  # fmt: skip
    return table(("confidence", "verdicts", "mean", "right", "or one alike"), rows)


def ledger(some: Sequence[Record]) -> str:
    """Error of each account of the mean TTFT, as a share of it."""
    rows = []
    sound = [r for r in some if r.get("accounts") and planted(r) != "measurement_artifact"]
    for account, parts in ACCOUNTS.items():
        errors = np.array(
            [
                (r["accounts"][account] - sum(r["truth"]["accounts_mean_s"][p] for p in parts))
                / r["truth"]["today"]["mean"]
                for r in sound
            ]
        )
        if errors.size:
            size = np.abs(errors)
            rows.append(
                (account, str(errors.size), percent(float(np.median(errors))),
                 percent(float(np.median(size))), percent(float(np.quantile(size, 0.9))))
            )  # fmt: skip
    return table(("account", "logs", "median", "median size", "90th percentile"), rows)


def gains(some: Sequence[Record]) -> str:
    """Error of each remedy's predicted mean and 95th percentile, and cover of its interval."""
    errors: dict[str, list[tuple[float, float, float, bool]]] = defaultdict(list)
    for r in some:
        if planted(r) == "measurement_artifact":
            continue
        today = r["truth"]["today"]
        for gain in r["remedies"]:
            real = r["served"].get(gain["served"])
            if not real or real["ttft_mean_s"] is None or gain["ttft_mean_s"] is None:
                continue
            low, high = gain["interval"] or (np.nan, np.nan)
            errors[gain["id"]].append(
                (
                    (gain["ttft_mean_s"] - real["ttft_mean_s"]) / today["mean"],
                    (gain["ttft_p95_s"] - real["ttft_p95_s"]) / today["p95"],
                    real["gain_share"],
                    bool(low - 0.005 <= real["gain_share"] <= high + 0.005),
                )
            )
    rows = []
    for remedy, found in errors.items():
        mean, p95, real_gain, inside = (np.array(v) for v in zip(*found, strict=True))
        rows.append(
            (
                remedy, str(len(found)), percent(float(np.median(real_gain))),
                percent(float(np.median(mean))), percent(float(np.median(np.abs(mean)))),
                percent(float(np.quantile(np.abs(mean), 0.9))),
                percent(float(np.median(np.abs(p95)))),
                percent(float(np.quantile(np.abs(p95), 0.9))), percent(float(inside.mean())),
            )
        )  # fmt: skip
    head = ("remedy", "logs", "real gain", "mean: bias", "error", "at 90 %", "p95: error",
            "at 90 %", "in interval")  # fmt: skip
    return table(head, rows)


def wrong(some: Sequence[Record]) -> str:
    rows = [
        (r["detail"], r["scenario"], str(r["seed"]), planted(r), r["said"][:60],
         f"{r['confidence']:.2f}", "alike" if accepted(r) else "family" if family(r) else "WRONG")
        for r in some if not right(r)
    ]  # fmt: skip
    return table(("detail", "scenario", "seed", "planted", "named", "conf", ""), sorted(rows))


def report(records: Sequence[Record], *, misses: bool = False) -> str:
    """The whole report in Markdown."""
    by_detail: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        by_detail[r["detail"]].append(r)
    parts = ["## Verdicts by level of detail", verdicts(by_detail)]
    for detail, some in by_detail.items():
        parts += [f"## Causes, {detail}", causes(some), confusion(some)]
    parts += ["## Calibration, all levels", calibration(records)]
    for detail in ("full", "client"):
        some = by_detail.get(detail, [])
        if some:
            parts += [f"## Calibration, {detail}", calibration(some)]
            parts += [
                f"## Accounts of the ledger, {detail}: error as a share of the mean TTFT",
                ledger(some),
            ]
            if any(r["served"] for r in some):
                parts += [
                    f"## Gains, {detail}: error as a share of today's TTFT", gains(some),
                ]  # fmt: skip
    if misses:
        parts += ["## Wrong verdicts", wrong(records)]
    return "\n\n".join(parts)
