"""The ledger as stacked bars: early and late turns, off-peak and peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttftdoctor.diagnosis import ACCOUNTS, Diagnosis, LedgerRow
from ttftdoctor.language import tr
from ttftdoctor.pages.figures import Drawing, figure
from ttftdoctor.pages.markup import esc, label, paragraph, table_of
from ttftdoctor.report import ledger_groups, ledger_table, spread_sentence, title
from ttftdoctor.units import seconds, share

# One hue for repeated work, one for new work; waiting is hatched, so that print tells them apart.
_COLOUR = {
    "fixed": "@fixed",
    "queue_behind_repeated": "@repeated-soft",
    "queue_behind_new": "@new-soft",
    "queue_other": "@other",
    "prefill_repeated": "@repeated",
    "prefill_new": "@new",
    "unexplained": "@unexplained",
}
#: The part of the longest bar that is too short to be seen.
UNSEEN = 0.01
_HATCH = {"fillmode": "overlay", "size": 5, "solidity": 0.25}


def accounts(d: Diagnosis) -> Drawing | None:
    """The chart; None where the TTFT could not be split."""
    groups = ledger_groups(d)
    if not groups:
        return None
    names = [a for a in ACCOUNTS if any(abs(g.accounts.get(a, 0.0)) > 0 for g in groups)]
    labels = [label(title(g.group)) for g in groups]
    made = figure(
        [_bar(name, groups, labels) for name in names],
        tr("mean TTFT, seconds"),
        "",
        height=96 + 46 * len(groups),
        barmode="relative",
        bargap=0.35,
        showlegend=False,
        yaxis={"autorange": "reversed", "title": {"text": ""}},
        **_reach(groups),
    )
    return Drawing(
        "ledger",
        tr("Where the mean TTFT goes"),
        paragraph([reading(groups), spread_sentence(d)]),
        made,
        table_of(ledger_table(d), named=False),
        _legend(names),
        wide=True,
    )


def _reach(groups: Sequence[LedgerRow]) -> dict[str, Any]:
    """The axis from nothing on, where what lies below it is too little to be seen."""
    low = min(sum(min(v, 0.0) for v in g.accounts.values()) for g in groups)
    high = max(sum(max(v, 0.0) for v in g.accounts.values()) for g in groups)
    return {"xaxis": {"range": [low, 1.05 * high]}} if 0 > low > -UNSEEN * high else {}


def _bar(name: str, groups: Sequence[LedgerRow], labels: list[str]) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": _COLOUR[name], "line": {"color": "@card", "width": 1}}
    if name.startswith("queue"):
        marker["pattern"] = {**_HATCH, "shape": "/", "fgcolor": "@card"}
    if name == "unexplained":
        marker["pattern"] = {**_HATCH, "shape": ".", "fgcolor": "@text"}
    values = [g.accounts.get(name, 0.0) for g in groups]
    told = label(title(name))
    return {
        "type": "bar",
        "orientation": "h",
        "name": told,
        "y": labels,
        "x": values,
        "marker": marker,
        "customdata": [
            [told, seconds(v), share(v / g.ttft_mean_s) if g.ttft_mean_s else "-"]
            for v, g in zip(values, groups, strict=True)
        ],
        "hovertemplate": tr(
            "%{y}: %{customdata[0]}<br>%{customdata[1]}, %{customdata[2]} of "
            "the mean TTFT<extra></extra>"
        ),
    }


def _legend(names: Sequence[str]) -> str:
    items = "".join(f'<li><i class="k-{esc(name)}"></i>{esc(title(name))}</li>' for name in names)
    return f'<ul class="legend">{items}</ul>'


def reading(groups: Sequence[LedgerRow]) -> str:
    """What the largest account is, and what grows from early to late turns and in the peak."""
    by_name = {g.group: g for g in groups}
    whole = by_name.get("all") or groups[0]
    top = max(whole.accounts, key=lambda a: whole.accounts[a], default="")
    said = [tr("Of the mean {mean}.", mean=seconds(whole.ttft_mean_s))]
    if top and whole.ttft_mean_s:
        said = [
            tr(
                "Of the mean {mean}, {value} ({part}) is {account}.",
                mean=seconds(whole.ttft_mean_s), value=seconds(whole.accounts[top]),
                part=share(whole.accounts[top] / whole.ttft_mean_s), account=title(top),
            )
        ]  # fmt: skip
    for low, high in (("early_turns", "late_turns"), ("off_peak", "peak")):
        a, b = by_name.get(low), by_name.get(high)
        if a is not None and b is not None:
            said.append(_growth(a, b))
    text = paragraph(said)
    return text.replace("In peak", "In the peak").replace("in off-peak", "off-peak")


def _growth(a: LedgerRow, b: LedgerRow) -> str:
    """How the mean moves from one group to another, and by which account."""
    low, high, more = title(a.group), title(b.group), b.ttft_mean_s - a.ttft_mean_s
    if a.ttft_mean_s > 0 and more / a.ttft_mean_s <= -0.1:
        return tr(
            "In {group} the mean is {less} less than in {other}.",
            group=high, less=seconds(-more), other=low,
        )  # fmt: skip
    if a.ttft_mean_s <= 0 or more / a.ttft_mean_s < 0.1:
        return tr("In {group} the mean is about what it is in {other}.", group=high, other=low)
    grown = {n: b.accounts.get(n, 0.0) - a.accounts.get(n, 0.0) for n in b.accounts}
    most = max(grown, key=lambda n: grown[n])
    return tr(
        "In {group} the mean is {more} more than in {other}, {part} of that in {account}.",
        group=high, more=seconds(more), other=low, part=share(grown[most] / more),
        account=title(most),
    )  # fmt: skip
