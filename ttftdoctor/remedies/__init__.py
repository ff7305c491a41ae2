"""The contract of a remedy: one thing one can turn on or do, one file.

To add a remedy:

1. ``remedies/NAME.py`` with ``REMEDY = Remedy("NAME", ...)``: how it treats the log, what it
   assumes and costs, and which causes it helps.
2. Its page in ``manual/remedies/NAME.md``.
3. A case in ``tests/test_remedies.py`` that checks its gain against a server that has it.
4. Its title in ``report.TITLES``.

A remedy never computes a gain itself: it changes the :class:`Treatment`, and the log is served
again with it, so that several remedies compose and their joint gain is computed, never summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ttftdoctor.evidence import Evidence
from ttftdoctor.language import listed, mark, tr
from ttftdoctor.treatment import Treatment
from ttftdoctor.units import share


@dataclass(frozen=True)
class Settings:
    """What the user chose: the length that history is compacted to."""

    compact_to: int = 8000


@dataclass(frozen=True)
class Remedy:
    """One remedy.

    ``always`` remedies are predicted for every log; the others only where one of ``helps`` is
    present. ``fits`` says whether the log knows enough to predict it. ``acts_on`` names the
    accounts of the ledger that it can shrink: where they are small, there is little to gain, and
    :func:`why_little` says so. ``doubt`` says why the gain may not come at all, or None;
    ``spoilt`` why, with this primary cause, nothing comes of it. ``title``, ``assumptions`` and
    ``cost`` are marked, and translated where a gain is told.
    """

    id: str
    order: int
    title: str
    treat: Callable[[Settings], Treatment]
    assumptions: tuple[str, ...]
    cost: str
    helps: tuple[str, ...]
    acts_on: tuple[str, ...] = ()
    doubt: Callable[[Evidence], str | None] | None = None
    spoilt: Callable[[Evidence, str], str | None] | None = None
    always: bool = False
    fits: Callable[[Evidence], bool] | None = None


#: Below this gain it is said why there is so little.
LITTLE = 0.02

_WORDS = {
    "fixed": mark("the constant part"),
    "queue_behind_repeated": mark("waiting behind repeated prefill"),
    "queue_behind_new": mark("waiting behind new prefill"),
    "queue_other": mark("waiting for slots and steps"),
    "prefill_repeated": mark("prefill of repeated tokens"),
    "prefill_new": mark("prefill of new tokens"),
    "unexplained": mark("what nothing explains"),
}


def why_little(remedy: Remedy, evidence: Evidence, gain: float) -> str | None:
    """A sentence where there is nothing, or less than nothing, to gain; None where there is."""
    row = next((row for row in evidence.ledger if row.group == "all"), None)
    if gain >= LITTLE or row is None or row.ttft_mean_s <= 0:
        return None
    if gain <= -LITTLE:
        return tr(
            "it would make things slower: what it moves or adds weighs more than what it saves"
        )
    parts = {name: max(row.accounts[name], 0.0) / row.ttft_mean_s for name in row.accounts}
    words = listed([tr(_WORDS[name]) for name in remedy.acts_on])
    acted = sum(parts[name] for name in remedy.acts_on)
    most = max(parts, key=lambda name: parts[name])
    if acted < 0.1 and most not in remedy.acts_on:
        return tr(
            "no gain: it acts on {accounts}, {acted} of the mean TTFT; most is {most} ({part})",
            accounts=words, acted=share(acted), most=tr(_WORDS[most]), part=share(parts[most]),
        )  # fmt: skip
    return tr(
        "no gain: {accounts} make up {acted} of the mean TTFT, but it would not shrink them",
        accounts=words, acted=share(acted),
    )  # fmt: skip
