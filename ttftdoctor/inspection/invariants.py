"""What must hold in any log of requests, and how often it does not: for ``inspect``.

Each check looks at whole columns. A check that cannot be made, because a column is missing, says
so; one that fails says in how many rows, which share that is, and where it does first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from ttftdoctor.intake import Log
from ttftdoctor.language import mark, tr
from ttftdoctor.table import LINE, SET_ASIDE
from ttftdoctor.units import count, figure, seconds

#: Places that are named for each check.
FIRST = 3
#: Fewest rows from which "all alike" says anything.
FEW = 10
#: A clock may be off by so much before anybody says so.
TOLERANCE_US = 1_000_000
#: Milliseconds taken for seconds, and the like, are off by a factor about here.
THOUSAND = (250.0, 4000.0)
#: Decode of a token outside of this (us) is no decode.
DECODE_US = (50.0, 10_000_000.0)

Outcome = Literal["holds", "broken", "noted", "not_checked"]
_COUNTERS = (
    "input_tokens", "cached_tokens", "output_tokens", "queue_us", "prefill_us", "decode_us",
)  # fmt: skip
_VARIED = ("input_tokens", "output_tokens", "ttft_us", "e2e_us", "queue_us", "prefill_us")


@dataclass(frozen=True)
class Check:
    """One check: ``rows`` are those in which it does not hold, out of ``of``.

    ``first`` has the first places (path, line). ``outcome`` is ``noted`` where the finding may be
    as it should, such as a counter that is always zero.
    """

    id: str
    title: str
    outcome: Outcome
    rows: int = 0
    of: int = 0
    text: str = ""
    first: tuple[tuple[str, int], ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of the rows that could be checked in which it does not hold."""
        return self.rows / self.of if self.of else 0.0


def check_log(log: Log) -> tuple[Check, ...]:
    """Make every check on a log that was read."""
    return tuple(found for make in _CHECKS for found in make(log))


def _have(log: Log, *columns: str) -> tuple[str, ...]:
    """Those of the columns that no row has."""
    frame = log.requests
    return tuple(c for c in columns if frame[c].null_count() == frame.height)


def _places(log: Log, rows: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    first = rows.select("source", LINE).head(FIRST)
    return tuple((log.inputs[source].path, line) for source, line in first.iter_rows())


def _of_doubts(log: Log, id: str, title: str, text: str, *columns: str) -> Check:
    """A check that was made as the rows were read, for the values are gone since."""
    n, places = log.beside.doubts.get(id, (0, ()))
    missing = () if n else _have(log, *columns)
    if missing:
        return Check(id, title, "not_checked", needs=missing)
    of = log.beside.rows
    if not n:
        return Check(id, title, "holds", of=of)
    first = tuple((log.inputs[source].path, line) for source, line in places[:FIRST])
    return Check(id, title, "broken", n, of, text, first)


def _bounds(log: Log) -> list[Check]:
    out = [
        _of_doubts(log, "cached_dropped", tr("cached tokens are at most the input"),
                   tr("their cached count was not used"), "cached_tokens", "input_tokens"),
    ]  # fmt: skip
    late = log.requests.filter(pl.col(SET_ASIDE) == "ttft_after_e2e")
    missing = () if late.height else _have(log, "ttft_us", "e2e_us")
    title = tr("TTFT is at most E2E")
    if missing:
        out.append(Check("ttft_after_e2e", title, "not_checked", needs=missing))
    else:
        out.append(
            Check(
                "ttft_after_e2e", title, "broken" if late.height else "holds", late.height,
                log.requests.height, tr("their TTFT was not used") if late.height else "",
                _places(log, late),
            )
        )  # fmt: skip
    return [
        *out,
        _of_doubts(log, "queue_dropped", tr("the queue time is at most TTFT"),
                   tr("their queue time was not used"), "queue_us", "ttft_us"),
        _of_doubts(log, "prefill_dropped", tr("the prefill time is at most TTFT"),
                   tr("their prefill time was not used"), "prefill_us", "ttft_us"),
        _of_doubts(log, "reasoning_dropped", tr("reasoning tokens are at most the output"),
                   tr("their reasoning count was not used"), "reasoning_tokens", "output_tokens"),
        _of_doubts(log, "start_dropped", tr("starts lie between 2000 and 2100"),
                   tr("their start was not used"), "start"),
    ]  # fmt: skip


def _order(log: Log) -> list[Check]:
    """Rows come in the order of their starts or, written at the end, of their ends."""
    title = tr("time runs forward through each file")
    if _have(log, "start"):
        return [Check("time_goes_back", title, "not_checked", needs=("start",))]
    rows = log.requests.filter(pl.col("start").is_not_null())
    before = pl.col("start").cum_max().shift(1).over("source")
    back = rows.with_columns(
        (before - pl.col("start") - pl.col("e2e_us").fill_null(0)).alias("back")
    ).filter(pl.col("back") > TOLERANCE_US)
    if not back.height:
        return [Check("time_goes_back", title, "holds", of=rows.height)]
    most = back["back"].max()
    text = tr(
        "neither starts nor ends come in order; up to {most} back: sorted otherwise, put together "
        "from parts, or a clock that was set back",
        most=seconds(_number(most) / 1e6),
    )
    return [
        Check("time_goes_back", title, "broken", back.height, rows.height, text, _places(log, back))
    ]


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _ids(log: Log) -> list[Check]:
    title = tr("each request has an id of its own")
    if _have(log, "request_id"):
        return [Check("duplicate_ids", title, "not_checked", needs=("request_id",))]
    rows = log.requests.filter(pl.col("request_id").is_not_null())
    again = rows.filter(~pl.col("request_id").is_first_distinct())
    if not again.height:
        return [Check("duplicate_ids", title, "holds", of=rows.height)]
    files = again["source"].n_unique() if len(log.inputs) > 1 else 1
    if files > 1:
        text = tr(
            "an id that an earlier row has, in {n} files: tries of one request, or a request that "
            "was logged more than once",
            n=files,
        )
    else:
        text = tr(
            "an id that an earlier row has: tries of one request, or a request that was logged "
            "more than once"
        )
    return [
        Check("duplicate_ids", title, "broken", again.height, rows.height, text,
              _places(log, again))
    ]  # fmt: skip


def _skew(log: Log) -> list[Check]:
    """A turn cannot start before the one ahead of it did: else two clocks disagree."""
    title = tr("the clocks of replicas and files agree")
    missing = _have(log, "session_id", "turn", "start")
    if missing:
        return [Check("clock_skew", title, "not_checked", needs=missing)]
    if "turn" in log.fields and log.fields["turn"].kind != "logged":
        return [Check("clock_skew", title, "not_checked", needs=("turn",))]
    needed = ("session_id", "turn", "start", "replica", "source", LINE)
    known = log.requests.select(needed).filter(
        pl.col("session_id").is_not_null() & pl.col("turn").is_not_null()
        & pl.col("start").is_not_null()
    ).sort("session_id", "turn", maintain_order=True)  # fmt: skip
    # Neighbours of the sorted table: many times as fast as a window for each session.
    pairs = known.with_columns(
        (pl.col("start").shift(1) - pl.col("start")).alias("early"),
        (pl.col("replica") != pl.col("replica").shift(1)).alias("moved"),
        (pl.col("source") != pl.col("source").shift(1)).alias("other"),
    ).filter(
        pl.col("session_id") == pl.col("session_id").shift(1),
        pl.col("turn") == pl.col("turn").shift(1) + 1,
    )
    early = pairs.filter(pl.col("early") > 0).sort("source", LINE)
    if not early.height:
        return [Check("clock_skew", title, "holds", of=pairs.height)]
    moved = early.filter(pl.col("moved").fill_null(False))
    other = early.filter(pl.col("other").fill_null(False))
    most = seconds(_number(early["early"].max()) / 1e6)
    if moved.height > early.height // 2:
        text = tr(
            "a turn starts up to {most} before the turn ahead of it, {n} of them where the replica "
            "changed: clocks are apart",
            most=most, n=count(moved.height),
        )  # fmt: skip
    elif other.height > early.height // 2:
        text = tr(
            "a turn starts up to {most} before the turn ahead of it, {n} of them where the file "
            "changed: clocks are apart",
            most=most, n=count(other.height),
        )  # fmt: skip
    else:
        text = tr(
            "a turn starts up to {most} before the turn ahead of it: turns are numbered otherwise, "
            "or a clock was set back",
            most=most,
        )
    return [
        Check("clock_skew", title, "broken", early.height, pairs.height, text, _places(log, early))
    ]


def _units(log: Log) -> list[Check]:
    """Durations that add up, or answer for a rate, only in another unit."""
    title = tr("units agree")
    frame = log.requests
    found: list[Check] = []
    checked = False
    parts = [c for c in ("queue_us", "prefill_us", "decode_us") if c not in _have(log, c)]
    if "decode_us" in parts and not _have(log, "e2e_us"):
        checked = True
        rows = frame.filter(pl.col("decode_us") > 0, pl.col("e2e_us") > 0)
        found += _ratio(rows, pl.sum_horizontal(parts), pl.col("e2e_us"),
                        " + ".join(parts), "e2e_us")  # fmt: skip
    if not _have(log, "prefill_us", "ttft_us"):
        checked = True
        rows = frame.filter(pl.col("prefill_us") > 0, pl.col("ttft_us") > 0)
        found += _ratio(rows, pl.col("prefill_us"), pl.col("ttft_us"), "prefill_us", "ttft_us")
    if not _have(log, "ttft_us", "e2e_us", "output_tokens"):
        checked = True
        rows = frame.filter(pl.col("output_tokens") > 8)
        each = (pl.col("e2e_us") - pl.col("ttft_us")) / (pl.col("output_tokens") - 1)
        pace = rows.select(each.median()).item() if rows.height >= FEW else None
        if pace is not None and pace > 0 and not DECODE_US[0] <= pace <= DECODE_US[1]:
            text = tr(
                "decode takes {pace} a token: the unit of ttft_us or e2e_us",
                pace=seconds(pace / 1e6),
            )
            found.append(Check("units_disagree", title, "broken", rows.height, frame.height, text))
    if len(log.inputs) > 1 and not _have(log, "ttft_us"):
        checked = True
        found += _between_files(log)
    if found:
        return found
    if not checked:
        return [Check("units_disagree", title, "not_checked", needs=("e2e_us", "output_tokens"))]
    return [Check("units_disagree", title, "holds", of=frame.height)]


def _ratio(rows: pl.DataFrame, one: pl.Expr, other: pl.Expr, a: str, b: str) -> list[Check]:
    if rows.height < FEW:
        return []
    ratio = _number(rows.select((one / other).median()).item())
    low, high = THOUSAND
    if not (low <= ratio <= high or 1 / high <= ratio <= 1 / low):
        return []
    if ratio > 1:
        text = tr(
            "{a} is {n} times {b} in the median: one of them is in another unit",
            a=a, b=b, n=figure(ratio),
        )  # fmt: skip
    else:
        text = tr(
            "{a} is 1/{n} of {b} in the median: one of them is in another unit",
            a=a, b=b, n=figure(1 / ratio),
        )  # fmt: skip
    return [Check("units_disagree", tr("units agree"), "broken", rows.height, rows.height, text)]


def _between_files(log: Log) -> list[Check]:
    by = (
        log.requests.group_by("source", maintain_order=True)
        .agg(pl.col("ttft_us").median().alias("ttft"), pl.len().alias("n"))
        .filter(pl.col("ttft") > 0, pl.col("n") >= FEW)
        .sort("ttft")
    )
    if by.height < 2:
        return []
    least, most = by.row(0, named=True), by.row(-1, named=True)
    if most["ttft"] / least["ttft"] < THOUSAND[0]:
        return []
    text = tr(
        "the median TTFT of {file} is {n} times that of {other}: one of them may be in another "
        "unit",
        file=log.inputs[most["source"]].path, other=log.inputs[least["source"]].path,
        n=figure(most["ttft"] / least["ttft"]),
    )  # fmt: skip
    rows = int(most["n"])
    return [Check("units_disagree", tr("units agree"), "broken", rows, log.requests.height, text)]


def _zeros(log: Log) -> list[Check]:
    out = []
    for name in _COUNTERS:
        values = log.requests[name].drop_nulls()
        if len(values) >= FEW and (values == 0).all():
            if name == "cached_tokens":
                text = tr(
                    "{column} is 0 in every row: no cache, or not reported: the two cannot be told "
                    "apart",
                    column=name,
                )
            else:
                text = tr(
                    "{column} is 0 in every row: switched off, or not counted, rather than none",
                    column=name,
                )
            title = tr("{column} is not always zero", column=name)
            out.append(Check(f"always_zero:{name}", title, "noted", len(values), len(values), text))
    return out


def _constants(log: Log) -> list[Check]:
    out = []
    for name in (*_VARIED, "session_id", "request_id"):
        values = log.requests[name].drop_nulls()
        if len(values) < FEW or values.n_unique() != 1 or values[0] == 0:
            continue
        if name in ("session_id", "request_id"):
            text = mark("{column} has one value in every row: it tells no two requests apart")
        elif name.endswith("_us"):
            text = mark("{column} has one value in every row: a placeholder?")
        else:
            text = mark("{column} has one value in every row: a load test, or a placeholder?")
        out.append(
            Check(f"constant:{name}", tr("{column} varies", column=name), "noted", len(values),
                  len(values), tr(text, column=name))
        )  # fmt: skip
    return out


_CHECKS: tuple[Callable[[Log], list[Check]], ...] = (
    _bounds, _order, _ids, _skew, _units, _zeros, _constants,
)  # fmt: skip
