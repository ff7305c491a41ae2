"""What the results say: false alarms, power, cover of the intervals, sizes of the files.

Pure: records in, text out. Comparisons of one pool share runs, so that their number says too little
of how well a share is known. How many independent ones they are worth is estimated from the
jackknife over seeds (Miller 1974, Biometrika 61:1), less what it owes to the comparisons being few
(as Wager, Hastie and Efron 2014, JMLR 15:1625, have it for resampled trees), over all conditions
together; intervals of shares are Wilson's (1927, J. Am. Stat. Assoc. 22:209) with that number.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Record = dict[str, Any]
#: Title, kind and target metric of each condition.
Titles = Mapping[str, tuple[str, str, str]]

TTFT = ("ttft_mean", "ttft_p50", "ttft_p95", "ttft_p99")
#: What the parameters of the server say of these is known where nothing else is changed.
LINE = ("prefill_slope", "prefill_fixed")
#: Targets of changes that decode does not feel.
UNTOUCHED = ("prefill_fixed", "error_rate")
#: With fewer comparisons of a pool nothing is said of how alike they are.
LEAST_PAIRS = 15
ALPHA = 0.05


# --- questions to one comparison ------------------------------------------------------------------


def failed(r: Record) -> bool:
    return bool(r["outcome"] == "fail")


def failing(r: Record) -> list[str]:
    """The metrics that failed, the surest first."""
    found = [(m["p_adjusted"], name) for name, m in r["metrics"].items() if m["outcome"] == "fail"]
    return [name for _, name in sorted(found)]


def certain(r: Record) -> bool:
    """Whether any p-value says so, however small the change: what the tests alone would do."""
    return any(m["p_adjusted"] is not None and m["p_adjusted"] <= ALPHA
               for m in r["metrics"].values())  # fmt: skip


def plainly(r: Record) -> bool:
    """Whether comparing percentiles of the two logs by the same limits would have failed."""
    for name in TTFT:
        m = r["metrics"].get(name)
        if m is None or None in m["raw"]:
            continue
        before, after = m["raw"]
        if after - before > max(m["limit"], (m["limit_share"] or 0.0) * before):
            return True
    return False


# --- shares and how well they are known -----------------------------------------------------------


def alike(groups: Iterable[Sequence[Record]], test: Callable[[Record], bool]) -> float:
    """Comparisons that one independent one is worth; at least 1."""
    excess = plain = 0.0
    for some in groups:
        x = np.array([test(r) for r in some], dtype=float)
        p, m = x.mean(), len(x)
        if m < LEAST_PAIRS or not 0 < p < 1:
            continue
        seeds = sorted({s for r in some for side in r["seeds"] for s in side})
        inside = np.array([[any(s in side for side in r["seeds"]) for r in some] for s in seeds])
        inside = inside[inside.sum(axis=1) < m]
        n = len(inside)
        left = np.array([x[~row].mean() for row in inside])
        jack = (n - 1) / n * float(((left - p) ** 2).sum())
        part = inside.mean()
        noise = n * part / (1 - part) * p * (1 - p) / m
        excess += jack - noise
        plain += p * (1 - p) / m
    return 1.0 + (max(excess, 0.0) / plain if plain else 0.0)


def wilson(share: float, n: float) -> tuple[float, float]:
    z = 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def share(some: Sequence[Record], test: Callable[[Record], bool], worth: float = 1.0) -> str:
    """A share in percent with its interval."""
    if not some:
        return "-"
    found = sum(map(test, some)) / len(some)
    low, high = wilson(found, max(len(some) / worth, 1.0))
    return f"{percent(found)} ({number(100 * low)} to {number(100 * high)})"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 or value == 0 else f"{value:.1f}"


def percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{number(100 * value)} %"


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


# --- tables ---------------------------------------------------------------------------------------

Pairs = dict[tuple[str, int], list[Record]]


def by_place(records: Iterable[Record]) -> Pairs:
    out: Pairs = defaultdict(list)
    for r in records:
        out[r["condition"], r["size"]].append(r)
    return out


def by_pool(records: Iterable[Record]) -> list[list[Record]]:
    out: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for r in records:
        out[r["service"], r["size"], r["condition"], r["runs"]].append(r)
    return list(out.values())


def false_alarms(places: Pairs, titles: Titles, worth: float) -> str:
    """Conditions under which nothing may be found, and all of one kind together."""
    rows = []

    def row(title: str, size: int, some: Sequence[Record]) -> None:
        named = Counter(name for r in some for name in failing(r))
        most = ", ".join(f"{name} {n}" for name, n in named.most_common(3))
        rows.append(
            (
                title, f"{size:,}", str(len(some)), share(some, failed, worth),
                percent(mean(some, certain)),
                percent(mean(some, lambda r: r["outcome"] == "inconclusive")),
                percent(mean(some, lambda r: r["outcome"] == "invalid")),
                percent(mean(some, plainly)), most or "-",
            )
        )  # fmt: skip

    for kind in ("same", "mix"):
        mine = [c for c, (_, k, _) in titles.items() if k == kind]
        for condition in mine:
            for size in sizes_of(places):
                if (condition, size) in places:
                    row(titles[condition][0], size, places[condition, size])
        for size in sizes_of(places):
            together = [r for c in mine for r in places.get((c, size), ())]
            if together and kind == "mix":
                row("**any change of the traffic**", size, together)
    head = ("what differs", "requests", "comparisons", "FAIL", "a p-value alone", "inconclusive",
            "invalid", "plain percentiles fail", "which metrics failed")  # fmt: skip
    return table(head, rows)


def power(places: Pairs, titles: Titles, facts: Mapping[tuple[str, int], Record],
          worth: float) -> str:  # fmt: skip
    rows = []
    for condition, (title, kind, target) in titles.items():
        if kind != "worse":
            continue
        for size in sizes_of(places):
            some = places.get((condition, size))
            if not some:
                continue
            first = Counter(names[0] for r in some if (names := failing(r)))
            rows.append(
                (
                    title, f"{size:,}", str(len(some)), really(facts[condition, size], target),
                    share(some, failed, worth), percent(mean(some, sees(target))),
                    percent(mean(some, lambda r: r["outcome"] == "inconclusive")),
                    percent(mean(some, plainly)),
                    ", ".join(f"{name} {n}" for name, n in first.most_common(2)) or "-",
                )
            )  # fmt: skip
    head = ("what is worse", "requests", "comparisons", "really", "FAIL", "by its own metric",
            "inconclusive", "plain percentiles fail", "surest metric")  # fmt: skip
    return table(head, rows)


def summary(places: Pairs, titles: Titles) -> str:
    """One line a condition: how often the gate fails, by size; beside it what percentiles say."""
    sizes = sizes_of(places)
    rows = []
    for condition, (title, kind, _) in titles.items():
        mine = [places.get((condition, size), []) for size in sizes]
        if not any(mine):
            continue
        each = [percent(mean(some, failed)) for some in mine]
        every = [r for some in mine for r in some]
        rows.append((WANTED[kind], title, *each, percent(mean(every, plainly))))
    head = ("", "what differs", *(f"{n:,} requests" for n in sizes), "plain percentiles")
    return table(head, rows)


WANTED = {"same": "must pass", "mix": "must pass", "worse": "must fail"}


def really(truth: Mapping[str, Sequence[float]], metric: str) -> str:
    """What the change did to its metric, request by request."""
    if metric not in truth:
        return "-"
    before, after = truth[metric]
    moved = after - before
    if metric.endswith(("share", "rate")):
        return f"{100 * moved:+.1f} points"
    if metric in ("prefill_fixed", "queue") or metric in TTFT:
        return f"{1e3 * moved:+.0f} ms"
    return f"{100 * moved / before:+.1f} %"


def sees(metric: str) -> Callable[[Record], bool]:
    return lambda r: r["metrics"].get(metric, {}).get("outcome") == "fail"


def mean(some: Sequence[Record], test: Callable[[Record], bool]) -> float:
    return sum(map(test, some)) / len(some) if some else float("nan")


def expected(r: Record, metric: str, m: Record, facts: Mapping[Any, Record], titles: Titles) -> (
    float | None
):  # fmt: skip
    """The true change in the unit of the metric; None where it is not known exactly."""
    kind, target = titles[r["condition"]][1:]
    if kind == "same":
        return 0.0
    if kind == "mix":
        # Longer prompts and more arrivals make others wait; the server's own costs stay.
        return 0.0 if metric in LINE else None
    truth = facts[r["service"], r["size"], r["condition"]]
    if metric not in truth:
        return None
    if metric in LINE and target not in LINE:
        return None
    if metric == "decode_per_token" and target not in UNTOUCHED:
        # At equal concurrency it is another figure than the one of all requests together.
        return None
    before, after = truth[metric]
    if metric in TTFT or metric == "decode_per_token":
        # The traffic of a comparison is a draw: what is compared is a share of its level.
        return float(m["baseline"] * (after / before - 1))
    return float(after - before)


def cover(records: Sequence[Record], facts: Mapping[Any, Record], titles: Titles) -> str:
    """How often the 95 % interval of each metric's change holds the true one."""
    found: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    bias: dict[tuple[str, str], list[float]] = defaultdict(list)
    sizes = sorted({r["size"] for r in records})
    for r in records:
        kind = titles[r["condition"]][1]
        for name, m in r["metrics"].items():
            if m["interval"] is None:
                continue
            true = expected(r, name, m, facts, titles)
            if true is None:
                continue
            low, high = m["interval"]
            slack = 1e-9 + 1e-9 * abs(true)
            found[name, kind].append((low - slack <= true <= high + slack, r["size"]))
            scale = m["baseline"] if not name.endswith(("share", "rate")) else 1.0
            if scale:
                bias[name, kind].append((m["change"] - true) / scale)
    rows = []
    for name in dict.fromkeys(n for n, _ in found):
        for kind in ("same", "mix", "worse"):
            mine = found.get((name, kind))
            if not mine:
                continue
            each = [
                percent(float(np.mean(inside))) if (inside := [i for i, n in mine if n == size])
                else "-"
                for size in sizes
            ]  # fmt: skip
            off = np.array(bias[name, kind]) if bias[name, kind] else np.array([np.nan])
            rows.append((name, KINDS[kind], *each, f"{100 * np.median(off):+.2f} %",
                         f"{100 * np.std(off):.1f} %"))  # fmt: skip
    head = ("metric", "what differs", *(f"{n:,} requests" for n in sizes), "bias",
            "spread of the estimate")  # fmt: skip
    return table(head, rows)


KINDS = {"same": "nothing", "mix": "traffic", "worse": "the server"}


def files(some: Sequence[Record]) -> str:
    rows = []
    for (size, runs), mine in sorted(group(some, "size", "runs").items()):
        bytes_ = [r["bytes"] for r in mine]
        same = [r["outcomes"][0] == r["outcomes"][1] for r in mine]
        off = [
            abs(b["change"] - a["change"]) / a["baseline"]
            for r in mine
            for name, a in r["metrics"][0].items()
            for b in [r["metrics"][1].get(name, {})]
            if name in TTFT and None not in (a.get("change"), b.get("change"))
        ]
        rows.append((f"{size:,}", str(runs), str(len(mine)), f"{np.median(bytes_) / 1e3:.0f} kB",
                     f"{max(bytes_) / 1e3:.0f} kB", percent(float(np.mean(same))),
                     f"{100 * np.median(off):.2f} %" if off else "-"))  # fmt: skip
    head = ("requests a run", "runs", "files", "median size", "largest", "same answer",
            "TTFT change differs by")  # fmt: skip
    return table(head, rows)


def group(some: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    out: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for r in some:
        out[tuple(r[key] for key in keys)].append(r)
    return out


def sizes_of(places: Pairs) -> list[int]:
    return sorted({size for _, size in places})


def listed(some: Sequence[Record], titles: Titles) -> str:
    """Every false alarm."""
    rows = []
    for r in some:
        if titles[r["condition"]][1] == "worse" or not failed(r):
            continue
        for name in failing(r):
            m = r["metrics"][name]
            rows.append(
                (r["service"], f"{r['size']:,}", r["condition"], str(r["runs"]), name,
                 f"{m['baseline']:.4g}", f"{m['change']:+.4g}", f"{m['p_adjusted']:.2g}",
                 str(r["seeds"]))
            )  # fmt: skip
    head = ("service", "requests", "condition", "runs", "metric", "baseline", "change",
            "adjusted p", "seeds")  # fmt: skip
    return table(head, rows)


def report(records: Sequence[Record], titles: Titles, *, alarms: bool = False) -> str:
    """The whole report in Markdown."""
    pairs = [r for r in records if r["what"] == "pair"]
    pools = [r for r in records if r["what"] == "pool"]
    facts = {(r["service"], r["size"], r["condition"]): r["truth"] for r in pools}
    parts: list[str] = []
    for runs in sorted({r["runs"] for r in pairs}, reverse=True):
        some = [r for r in pairs if r["runs"] == runs]
        places = by_place(some)
        # Where nothing fails, what the p-values say tells how alike comparisons are.
        worth = max(alike(by_pool(some), test) for test in (failed, certain))
        # Shown for the first service; the others are alike by design.
        really_ = {(r["condition"], r["size"]): r["truth"] for r in reversed(pools)}
        served = sum(r["runs_served"][1] for r in pools if r["runs"] == runs)
        many = f"{runs} runs a side" if runs > 1 else "one run a side"
        parts += [
            f"## How often the gate fails, {many}", summary(places, titles),
            f"## False alarms, {many}", false_alarms(places, titles, worth),
            f"## Power, {many}", power(places, titles, really_, worth),
            f"## Cover of the 95 % intervals, {many}", cover(some, facts, titles),
            f"{len(some)} comparisons among {served} runs; intervals of shares take "
            f"{worth:.1f} comparisons that share runs for one.",
        ]  # fmt: skip
    through = [r for r in records if r["what"] == "file"]
    if through:
        parts += ["## Size of the baseline file", files(through)]
    if alarms:
        parts += ["## False alarms one by one", listed(pairs, titles)]
    return "\n\n".join(parts)
