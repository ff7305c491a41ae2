"""The figures of a whole log in place of those of the extract that was looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import Extract, Population, RepeatedPrefix, Slice, Splits
from ttftdoctor.evidence import Evidence
from ttftdoctor.extracts.prompts import Way
from ttftdoctor.extracts.stretches import Choice
from ttftdoctor.extracts.survey import Survey
from ttftdoctor.extracts.tally import FIGURES, NAMED, Tally, quantiles
from ttftdoctor.language import tr
from ttftdoctor.measure.replay import Replay
from ttftdoctor.measure.rows import MANY_TORN, Around, Rows
from ttftdoctor.measure.splits import MOST_GROUPS, WIDTH, key_of
from ttftdoctor.units import count, seconds

_LEVELS = ("ttft_mean_s", "ttft_p50_s", "ttft_p95_s")

Key = str | int | float | None

#: Where a table goes, by what it is by.
_TABLES: dict[tuple[str, ...], str] = {
    ("length",): "by_input_length",
    ("hour",): "by_hour",
    ("turn",): "by_turn",
    ("turn", "length"): "turn_by_length",
}

#: An extract whose mean TTFT is off by more than this is said not to be like the whole.
ALIKE = 0.1


@dataclass(frozen=True)
class Whole:
    """What is known of all rows of a log, of which ``looked_at`` are at hand.

    ``way`` is what the ids of its prompts' blocks stand for, None if it has none.
    """

    survey: Survey
    tally: Tally
    choice: Choice
    looked_at: int
    way: Way | None = None

    @property
    def around(self) -> Around:
        """What the rows at hand must be told of the others."""
        return Around(self.tally.single_share)

    @property
    def span_s(self) -> float | None:
        """First to last arrival of all requests, seconds; None where the log has no times."""
        first, last = self.survey.first_start, self.survey.last_start
        if not self.survey.order_known or first is None or last is None:
            return None
        return (last - first) / 1e6

    def times(self, rows: Rows) -> float:
        """How many times as many prompt tokens all requests have as those looked at."""
        some = float(np.nansum(rows.inputs))
        return self.tally.sums["input_tokens"] / some if some else 1.0

    def extract(self) -> Extract:
        """Which part was looked at, as it is reported."""
        dated = (self.survey.first_start or 0) > 10**14
        return Extract(
            requests=self.looked_at,
            of=self.tally.sums["requests"],
            stretches=tuple(
                (_moment(low, dated), _moment(high, dated)) for low, high in self.choice.stretches
            ),
        )

    def warnings(self, e: Evidence) -> tuple[str, ...]:
        """What must be said of the extract; ``e`` is its own evidence."""
        said = [] if self.looked_at == self.tally.sums["requests"] else [self._part()]
        if said and e.grades.session == "linked" and not self.survey.covered("turn"):
            said.append(
                tr(
                    "sessions are not named in the log, and were looked for among the requests "
                    "looked at: what is said by turn is of these"
                )
            )
        if self.way is not None and e.repeated.grade == "content":
            said.append(
                tr(
                    "what the prompts repeat was counted over the whole log; what caches of other "
                    "sizes would keep of them was not: `ttftdoctor prefix` says so of a part that "
                    "fits in memory"
                )
            )
        if self.way == "made":
            said.append(
                tr("the ids of prompt blocks do not chain; ids that do were made from them")
            )
        of_all, of_some = self._mean(), e.mean
        if of_all and of_some is not None and abs(of_some / of_all - 1) > ALIKE:
            said.append(
                tr(
                    "the mean TTFT of the requests looked at is {some}, that of all is {all}: what "
                    "happened between the stretches may have another cause; --since and --until "
                    "look at a part",
                    some=seconds(of_some), all=seconds(of_all),
                )
            )  # fmt: skip
        return tuple(said)

    def _part(self) -> str:
        """What was looked at."""
        total = self.tally.sums["requests"]
        if self.choice.stretches:
            return tr(
                "the log is larger than the memory given: causes, lines, ledger and gains are of "
                "{n} requests, all that came in {stretches} stretches of its time; counts, tables "
                "and tokens are of all {total}; rows that are told twice were not looked for",
                n=count(self.looked_at), stretches=count(len(self.choice.stretches)),
                total=count(total),
            )  # fmt: skip
        return tr(
            "the log is larger than the memory given: causes, lines, ledger and gains are of {n} "
            "requests, drawn at random; counts, tables and tokens are of all {total}; rows that "
            "are told twice were not looked for",
            n=count(self.looked_at), total=count(total),
        )  # fmt: skip

    def evidence(self, e: Evidence, rows: Rows) -> Evidence:
        """The evidence with tables and tokens of the whole log.

        Its mean TTFT stays that of the extract, of which the seconds are that causes are held by.
        """
        return replace(
            e,
            splits=self._splits(e.splits, rows),
            repeated=self._alike(e.repeated, rows.cached_logged)
            if rows.session_grade == "linked" and e.repeated.grade != "content"
            else self._repeated(e.repeated, rows.cached_logged),
        )

    @staticmethod
    def served(some: Replay | None, part: Population, all_: Population) -> Replay | None:
        """The model of the servers, its figures scaled from the part looked at to all requests."""
        if some is None:
            return None
        ratios = (_ratio(all_, part, name) for name in _LEVELS)
        mean, p50, p95 = (one * ratio for one, ratio in zip(some.scale, ratios, strict=True))
        return replace(some, scale=(mean, p50, p95), tried={})

    def _mean(self) -> float | None:
        with_ttft = self.tally.sums["with_ttft"]
        return self.tally.sums["ttft_us"] / with_ttft / 1e6 if with_ttft else None

    def population(self, one: Population, rows: Rows) -> Population:
        """Who was measured, of the whole log; ``one`` is that of the extract."""
        sums, dated = self.tally.sums, (self.survey.first_start or 0) > 10**14
        first, last = self.survey.first_start, self.survey.last_start
        logged = rows.session_grade == "logged"
        every = quantiles(self.tally.by("all"), (0.5, 0.95))
        p50, p95 = (_seconds(value) for value in every)
        stamped = dated and self.survey.order_known and first is not None and last is not None
        return replace(
            one,
            requests=sums["requests"],
            sessions=self.tally.sessions if logged else None,
            turns_max=self.tally.turns_most if logged else one.turns_max,
            start=_moment(first, dated) if stamped and first is not None else None,
            end=_moment(last, dated) if stamped and last is not None else None,
            with_ttft=sums["with_ttft"],
            ttft_mean_s=self._mean(),
            ttft_p50_s=p50,
            ttft_p95_s=p95,
        )

    def _splits(self, some: Splits, rows: Rows) -> Splits:
        both = self.tally.by("turn_by_length")
        turn, length = pl.col("group") // WIDTH - 1, pl.col("group") % WIDTH - 1
        pairs = both.filter(turn >= 0, length >= 0)
        tables: dict[tuple[str, ...], pl.DataFrame] = {
            ("length",): both.with_columns(group=length),
            ("hour",): self.tally.by("hour"),
        }
        if rows.session_grade == "logged" or self.survey.covered("turn"):
            tables["turn",] = both.with_columns(group=turn)
            tables["turn", "length"] = pairs.with_columns(group=turn * WIDTH + length)
        found = {
            _TABLES[columns]: _slices(cells, partial(key_of, rows, columns))
            for columns, cells in tables.items()
        }
        for split in NAMED:
            names = self.tally.names.get(split, {})
            found[f"by_{split}"] = _slices(self.tally.by(split), partial(_named, split, names))
        if not rows.cached_logged:
            total = float(np.nansum(rows.inputs))
            usual = float(np.nansum(rows.uncached)) / total if total else 1.0
            found = {
                name: _uncached(slices, getattr(some, name), usual)
                for name, slices in found.items()
            }
        return replace(some, **found)

    def _alike(self, some: RepeatedPrefix, cached_logged: bool) -> RepeatedPrefix:
        """The tokens of the extract as many times as all prompts have those of its own.

        Where no session is named, what repeats is known among the rows that were looked at only.
        """
        total = self.tally.sums["input_tokens"]
        part = total / some.input_tokens if some.input_tokens else 1.0
        wasted, bounds = some.prefill_seconds_wasted, some.bounds
        return replace(
            some,
            input_tokens=total,
            repeated_tokens=_scaled(some.repeated_tokens, part),
            cached_tokens=self.tally.sums["cached_tokens"]
            if cached_logged
            else _scaled(some.cached_tokens, part),
            recomputed_tokens=_scaled(some.recomputed_tokens, part),
            bounds=None if bounds is None else (round(bounds[0] * part), round(bounds[1] * part)),
            prefill_seconds_wasted=None if wasted is None else wasted * part,
        )

    def _repeated(self, some: RepeatedPrefix, cached_logged: bool) -> RepeatedPrefix:
        """Tokens of all rows; seconds as many times those of the extract as tokens."""
        sums = self.tally.sums
        total = sums["input_tokens"]
        if some.grade == "none":
            return replace(some, input_tokens=total)
        kind = some.grade
        repeated, cached, again = sums[kind], some.cached_tokens, some.recomputed_tokens
        low, high = sums.get(f"{kind}_low", repeated), sums.get(f"{kind}_high", repeated)
        broken = 0
        if kind == "content":
            broken = self._broken(some)
            repeated = high = repeated + broken
        if cached_logged:
            cached = sums["cached_tokens"]
            again = (sums["content_again"] if kind == "content" else sums["again"]) + broken
        elif some.repeated_tokens:  # by timing, of the extract: the same parts of all
            part = repeated / some.repeated_tokens
            cached = None if cached is None else round(cached * part)
            again = None if again is None else round(again * part)
        wasted = some.prefill_seconds_wasted
        if wasted is not None and some.recomputed_tokens:
            wasted *= (again or 0) / some.recomputed_tokens
        return replace(
            some,
            input_tokens=total,
            repeated_tokens=repeated,
            cached_tokens=cached,
            recomputed_tokens=again,
            recomputed_share=again / total if again is not None and total else None,
            bounds=(low, high),
            prefill_seconds_wasted=wasted,
        )

    def _broken(self, some: RepeatedPrefix) -> int:
        """Tokens that were computed before, of prompts that changed within their history."""
        sums = self.tally.sums
        if sums["later"] and sums["torn"] >= MANY_TORN * sums["later"]:
            return sums["torn_tokens"]
        if not some.repeated_tokens or not some.bounds or not some.bounds[0]:
            return 0
        # A habit of some sessions, which are known in the part only.
        return round(sums["content"] * (some.repeated_tokens / some.bounds[0] - 1))


def _scaled(value: int | None, part: float) -> int | None:
    return None if value is None else round(value * part)


def _named(split: str, names: Mapping[int, str], number: int) -> dict[str, Key]:
    return {split: names[number]}


def _slices(cells: pl.DataFrame, said: Callable[[int], Mapping[str, Key]]) -> tuple[Slice, ...]:
    """The largest groups of a table, by number or name; ``said`` is what each is called."""

    def order(row: tuple[int, int]) -> tuple[str | int, ...]:
        names = [name for name in said(row[0]).values() if isinstance(name, str)]
        return (*names, row[0])

    counts = (
        cells.filter(pl.col("figure") == FIGURES.index("rows"), pl.col("group") >= 0)
        .group_by("group")
        .agg(pl.col("n").sum())
        .sort("n", "group", descending=[True, False])
        .head(MOST_GROUPS)
    )
    parts = cells.filter(pl.col("group").is_in(counts["group"].implode())).partition_by(
        "group", "figure", as_dict=True
    )

    def of(group: int, figure: str) -> list[float | None]:
        bins = parts.get((group, FIGURES.index(figure)))
        return [None, None] if bins is None else quantiles(bins, (0.5, 0.95))

    out = []
    for group, n in sorted(counts.rows(), key=order):
        ttft = [_seconds(value) for value in of(group, "ttft")]
        out.append(
            Slice(
                key=said(group),
                n=n,
                input_p50=of(group, "input")[0],
                uncached_p50=of(group, "uncached")[0],
                ttft_p50_s=ttft[0],
                ttft_p95_s=ttft[1],
                tpot_p50_s=_seconds(of(group, "tpot")[0]),
            )
        )
    return tuple(out)


def _ratio(all_: Population, some: Population, name: str) -> float:
    """How many times as large a level of TTFT is in the whole log as in its extract."""
    return (getattr(all_, name) or 0.0) / (getattr(some, name) or 1.0) or 1.0


def _uncached(
    slices: tuple[Slice, ...], some: tuple[Slice, ...], usual: float
) -> tuple[Slice, ...]:
    """The slices with the part of the input uncached that it is in the extract, where the log
    does not count cached tokens; the ``usual`` part, where the extract has no such rows.
    """
    part = {
        tuple(one.key.items()): one.uncached_p50 / one.input_p50
        for one in some
        if one.uncached_p50 is not None and one.input_p50
    }
    return tuple(
        replace(one, uncached_p50=part.get(tuple(one.key.items()), usual) * one.input_p50)
        if one.input_p50 is not None
        else one
        for one in slices
    )


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _moment(us: int, dated: bool) -> str:
    """ISO 8601 UTC, or seconds from the zero of a relative clock."""
    if not dated:
        return f"{us / 1e6:.0f} s"
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
