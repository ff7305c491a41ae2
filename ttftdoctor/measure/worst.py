"""The requests that have the most of a cause, and the arithmetic of the worst of them.

A mean convinces nobody; a request that can be looked up does. Its TTFT is spelled out by the
accounts of the ledger, which add up to it, in figures that still add up when they are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ttftdoctor.diagnosis import ACCOUNTS, Statement, WorstRow
from ttftdoctor.language import mark, tr
from ttftdoctor.measure.ledger import Ledger
from ttftdoctor.measure.rows import Array, Rows
from ttftdoctor.measure.signs import moment
from ttftdoctor.units import count

#: Rows shown of each cause.
MOST = 5
#: Rows looked at together.
BLOCK_ROWS = 65_536
#: Causes whose seconds lie in what tokens and waiting do not explain.
BEYOND = ("cold_start", "retry_or_ratelimit", "deploy_regression")
#: Characters of an id in a sentence.
LONGEST_ID = 60

Figure = float | int | str | None


@dataclass(frozen=True)
class Blame:
    """What each row was charged with: ``seconds`` (n,) by cause, NaN or 0 for nothing.

    ``ledger`` is None where the log does not say enough to split a TTFT.
    """

    rows: Rows
    ledger: Ledger | None
    seconds: Mapping[str, Array]

    def of(self, cause: str) -> Array | None:
        """Seconds of a cause, by row; None where nothing can be laid to rows."""
        if cause == "measurement_artifact":
            return self.rows.ttft_logged
        if cause == "healthy":
            return self.rows.ttft
        if cause == "insufficient_data":
            return self.rows.ttft if self.ledger is None else self.ledger.accounts["unexplained"]
        return self.seconds.get(cause)


def worst(
    blame: Blame, cause: str, requests: pl.DataFrame, paths: Sequence[str]
) -> tuple[tuple[WorstRow, ...], Statement | None]:
    """The worst rows of a cause, most seconds first, and the first one spelled out.

    Parameters
    ----------
    requests
        The request table that the rows were made from, for what they are called.
    paths
        The files, by the number in its column ``source``.
    """
    seconds = blame.of(cause)
    if seconds is None:
        return (), None
    ttft = blame.rows.ttft_logged if cause == "measurement_artifact" else blame.rows.ttft
    at = _most(seconds, ttft)
    if not at:
        return (), None
    charged = cause != "healthy"
    found = tuple(
        _row(blame.rows, i, float(seconds[i]), requests, paths, cause=cause, charged=charged)
        for i in at
    )
    return found, _spelled_out(blame, at[0], found[0], cause)


def _most(seconds: Array, ttft: Array) -> list[int]:
    """Rows with the most seconds of their TTFT, first the largest; only those above zero."""
    best: list[tuple[float, int]] = []
    for first in range(0, len(seconds), BLOCK_ROWS):  # small pieces stay in the processor's cache
        charged, whole = seconds[first : first + BLOCK_ROWS], ttft[first : first + BLOCK_ROWS]
        # Of rows that are charged the same, the slower: a millionth of its TTFT tips the scales.
        value = np.minimum(charged, whole) + 1e-6 * whole
        floor = -best[-1][0] if len(best) == MOST else 0.0
        some = np.flatnonzero((value > floor) & (charged > 0))  # never where either is unknown
        if len(some) > MOST:
            some = some[np.argpartition(value[some], -MOST)[-MOST:]]
        best += [(-float(value[k]), first + int(k)) for k in some]
        best = sorted(best)[:MOST]
    return [row for _, row in best]


def _row(
    rows: Rows, i: int, seconds: float, requests: pl.DataFrame, paths: Sequence[str], *,
    cause: str, charged: bool,
) -> WorstRow:  # fmt: skip
    called = requests.row(i if rows.place is None else int(rows.place[i]), named=True)
    source, line = called["source"], called["line"]
    turn = rows.turn[i]
    ttft = float((rows.ttft_logged if cause == "measurement_artifact" else rows.ttft)[i])
    return WorstRow(
        request_id=called["request_id"],
        path=paths[source] if source is not None and 0 <= source < len(paths) else None,
        line=line,
        session_id=called["session_id"],
        turn=int(turn) if math.isfinite(turn) else None,
        start=moment(rows, i),
        ttft_s=ttft,
        seconds=min(seconds, ttft) if charged else None,
    )


# --- the arithmetic -------------------------------------------------------------------------------


def _spelled_out(blame: Blame, i: int, row: WorstRow, cause: str) -> Statement:
    """One TTFT as a sum, with real figures; what is in brackets is a part of what stands before."""
    if cause == "measurement_artifact":
        return _no_ttft(blame.rows, i, row)
    rows, ledger = blame.rows, blame.ledger
    parts = dict.fromkeys(ACCOUNTS, 0.0)
    if ledger is None or not math.isfinite(ledger.accounts["unexplained"][i]):
        parts["unexplained"] = row.ttft_s
    else:
        parts = {name: float(ledger.accounts[name][i]) for name in ACCOUNTS}
    decoding = 0.0 if ledger is None else _known(ledger.decoding[i]) or 0.0
    figures: dict[str, Figure] = {"ttft_s": row.ttft_s}
    figures |= {f"{name}_s": value for name, value in parts.items()}
    figures |= {
        "input_tokens": _known(rows.inputs[i]),
        "computed_tokens": _known(rows.uncached[i]),
        "cached_tokens": _known(rows.cached[i]),
        "repeated_tokens": _known(rows.recomputed[i]),
        "laid_to_the_cause_s": row.seconds,
    }
    prefill = parts["prefill_repeated"] + parts["prefill_new"]
    waiting = sum(parts[name] for name in ACCOUNTS if name.startswith("queue"))
    rest = row.ttft_s - parts["fixed"] - prefill - waiting
    terms = [parts["fixed"], prefill, waiting, rest]
    scale = Scale.of(row.ttft_s)
    fixed, own, wait, left = scale.shares(terms, row.ttft_s)
    said = []
    if fixed:
        said.append(tr("{time} fixed", time=scale.show(fixed)))
    said += _prefill(rows, i, scale, own, parts["prefill_repeated"])
    if wait:
        said.append(_waiting(scale, wait, parts, decoding))
    laid = ""
    if row.seconds is not None and cause != "insufficient_data":  # "unexplained" says that already
        time = scale.show(scale.units(row.seconds))
        laid = tr("{time} of it laid to {cause}", time=time, cause=cause)
    charge = row.seconds or 0.0
    # A timer's seconds lie there too; those of a constant that all pay are in the fixed part.
    timer = cause == "fixed_overhead" and charge > parts["fixed"]
    beyond = (cause in BEYOND or timer) and 0 < scale.units(charge) <= left
    if beyond:
        said.append(tr("{time} beyond that ({laid})", time=scale.show(left), laid=laid))
    elif left > 0 or not said:
        said.append(tr("{time} unexplained", time=scale.show(left)))
    whole = scale.show(scale.units(row.ttft_s))
    text = tr("{request}: {whole} = {sum}", request=name_of(row), whole=whole, sum=" + ".join(said))
    if left < 0:
        text += tr(" - {time} that it was faster than this", time=scale.show(-left))
    if laid and not beyond:
        text += tr("; {laid}", laid=laid)
    return Statement(text, figures)


def _prefill(rows: Rows, i: int, scale: Scale, own: int, repeated: float) -> list[str]:
    """The term of the request's own prefill, with its tokens."""
    computed, again = _known(rows.uncached[i]), _known(rows.recomputed[i])
    cached = _known(rows.cached[i])
    if not own and not computed:
        return []
    time = scale.show(own)
    if computed is None:
        return [tr("{time} of prefill", time=time)]
    inside = []
    if again:
        part = min(max(scale.units(repeated), 0), own)
        inside.append(tr("{n} of them repeated: {time}", n=count(again), time=scale.show(part)))
    if cached:
        inside.append(tr("{n} more came from the cache", n=count(cached)))
    if not inside:
        return [tr("{time} of prefill for {n} tokens", time=time, n=count(computed))]
    return [
        tr("{time} of prefill for {n} tokens ({of_these})", time=time, n=count(computed),
           of_these=tr("; ").join(inside))
    ]  # fmt: skip


def _waiting(scale: Scale, wait: int, parts: Mapping[str, float], decoding: float) -> str:
    """The term of the wait, and whom the request waited for."""
    inside = []
    for seconds, text in (
        (parts["queue_behind_repeated"], mark("behind repeated prefill")),
        (parts["queue_behind_new"], mark("behind new prefill")),
        (decoding, mark("for slots that decoding held")),
    ):
        units = min(scale.units(seconds), wait)
        if units > 0:
            inside.append((units, tr(text)))
    time = scale.show(wait)
    if not inside:
        return tr("{time} waiting", time=time)
    if len(inside) == 1 and inside[0][0] == wait:
        return tr("{time} waiting {behind}", time=time, behind=inside[0][1])
    each = [tr("{time} {behind}", time=scale.show(units), behind=text) for units, text in inside]
    return tr("{time} waiting ({of_these})", time=time, of_these=tr(", ").join(each))


def _no_ttft(rows: Rows, i: int, row: WorstRow) -> Statement:
    """Why the number of this row is none of a first token: what stands beside it."""
    scale = Scale.of(row.ttft_s)
    ttft = scale.show(scale.units(row.ttft_s))
    e2e, outputs = _known(rows.e2e[i]), _known(rows.outputs[i])
    thinking = _known(rows.reasoning[i])
    beside = []
    if e2e is not None:
        beside.append(tr("its last token after {time}", time=scale.show(scale.units(e2e))))
    if outputs is not None:
        beside.append(tr("{n} tokens of output", n=count(outputs)))
        if thinking:
            beside.append(tr("{n} of them thinking", n=count(thinking)))
    text = tr(
        "{request}: {ttft} logged = {ttft} that is no time to first token",
        request=name_of(row), ttft=ttft,
    )  # fmt: skip
    if beside:
        text = tr("{sentence} ({beside})", sentence=text, beside=tr(", ").join(beside))
    figures: dict[str, Figure] = {
        "ttft_s": row.ttft_s, "not_a_ttft_s": row.ttft_s, "e2e_s": e2e, "output_tokens": outputs,
        "reasoning_tokens": thinking,
    }  # fmt: skip
    return Statement(text, figures)


def name_of(row: WorstRow) -> str:
    """``request r-815 (session s12, turn 6)``, or by its place in the file."""
    if row.request_id:
        text = tr("request {id}", id=_short(row.request_id))
    elif row.line is not None:
        file = (row.path or "").rpartition("/")[2]
        text = tr("line {line}", line=row.line)
        if file:
            text = tr("line {line} of {file}", line=row.line, file=_short(file))
    else:
        text = tr("one request")
    of = []
    if row.session_id:
        of.append(tr("session {id}", id=_short(row.session_id)))
    if row.turn is not None:
        of.append(tr("turn {n}", n=row.turn))
    return tr("{request} ({of})", request=text, of=tr(", ").join(of)) if of else text


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_ID else text[: LONGEST_ID - 1] + "…"


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Scale:
    """Whole units in which a sum is shown: ``step`` seconds each, ``digits`` after the point."""

    step: float
    milliseconds: bool
    digits: int

    @classmethod
    def of(cls, seconds: float) -> Scale:
        """The scale that shows about three figures of a duration."""
        if seconds >= 100:
            return cls(0.1, False, 1)
        if seconds >= 1:
            return cls(0.01, True, 0)
        if seconds >= 0.1:
            return cls(0.001, True, 0)
        return cls(0.0001, True, 1) if seconds >= 0.01 else cls(0.00001, True, 2)

    def units(self, seconds: float) -> int:
        """A duration in whole units."""
        return round(seconds / self.step)

    def shares(self, parts: Sequence[float], whole: float) -> list[int]:
        """The parts in whole units that add up to the units of the whole (largest remainder)."""
        exact = [part / self.step for part in parts]
        units = [math.floor(value) for value in exact]
        spare = self.units(whole) - sum(units)
        order = sorted(range(len(parts)), key=lambda k: units[k] - exact[k])
        for k in order[: max(spare, 0)]:
            units[k] += 1
        return units

    def show(self, units: int) -> str:
        """Whole units as people read them: ``60 ms``, ``1.83 s``."""
        seconds = units * self.step
        if self.milliseconds and abs(seconds) < 0.9995:
            return f"{seconds * 1e3:.{self.digits}f} ms"
        return f"{seconds:.{1 if self.step == 0.1 else 2}f} s"
