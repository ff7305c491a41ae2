"""A diagnosis as people read it who live by another clock: its times in their zone, and named so.

The document for programs keeps UTC; this is for the reports.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from ttftdoctor.diagnosis import Diagnosis, Finding, Slice, Statement, WorstRow
from ttftdoctor.language import tr
from ttftdoctor.zones import local

# Where a word ends is not asked: a stamp may stand among Chinese characters.
_STAMP = re.compile(r"(?<![A-Za-z0-9_])\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z")


def in_zone(diagnosis: Diagnosis, zone: str | None) -> Diagnosis:
    """The diagnosis with its times in a zone (IANA name); as it is without one.

    Hours of a split are those of UTC: where a zone is off by half an hour, they begin at half past.
    """
    if zone is None:
        return diagnosis

    def text(said: str) -> str:
        return _STAMP.sub(lambda found: _moved(found[0], zone), said)

    def maybe(said: str | None) -> str | None:
        return None if said is None else text(said)

    def statement(said: Statement) -> Statement:
        return replace(said, text=text(said.text))

    def row(one: WorstRow) -> WorstRow:
        return replace(one, start=maybe(one.start))

    def finding(one: Finding) -> Finding:
        return replace(
            one,
            evidence=tuple(map(statement, one.evidence)),
            ruled_out_because=maybe(one.ruled_out_because),
            rows=tuple(map(row, one.rows)),
            worked_example=None if one.worked_example is None else statement(one.worked_example),
        )

    def hour(one: Slice) -> Slice:
        said = one.key.get("hour")
        return replace(one, key={**one.key, "hour": text(said)}) if isinstance(said, str) else one

    d = diagnosis
    return replace(
        d,
        population=replace(
            d.population, start=maybe(d.population.start), end=maybe(d.population.end)
        ),
        evidence=replace(
            d.evidence, notes=(*d.evidence.notes, tr("times are shown in {zone}", zone=zone))
        ),
        verdict=replace(
            d.verdict,
            headline=text(d.verdict.headline),
            next_steps=tuple(map(text, d.verdict.next_steps)),
            amplifiers=tuple(replace(a, text=text(a.text)) for a in d.verdict.amplifiers),
        ),
        causes=tuple(map(finding, d.causes)),
        splits=replace(d.splits, by_hour=tuple(map(hour, d.splits.by_hour))),
    )


def _moved(stamp: str, zone: str) -> str:
    """``2026-03-10T09:00Z`` as ``2026-03-10T10:00+01:00``; what is no date stays as it is."""
    try:
        moment = datetime.fromisoformat(stamp)
        shown = local(moment, zone)
    except (ValueError, OverflowError):
        return stamp
    return shown.isoformat(timespec="seconds" if stamp.count(":") > 1 else "minutes")
