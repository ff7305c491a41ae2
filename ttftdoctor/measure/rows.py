"""The table in order: sessions, turns, what each request repeats, and arrays to compute with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ttftdoctor.language import tr
from ttftdoctor.measure import links
from ttftdoctor.measure.turns import grows, growth, steps_back
from ttftdoctor.stats import in_order, or_zero
from ttftdoctor.table import COVERED, FACTS, MOST_SINGLE, PROMPT_FACTS, SCOPE_COLUMNS, ended_at

if TYPE_CHECKING:
    from ttftdoctor.measure.caches import Shared

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Prompts that changed within their history are a habit of the log if they are this part of later
#: turns.
MANY_TORN = 0.2
#: A column with more different texts than this does not group the rows.
MOST_NAMES = 500
#: More different texts than this are numbered, but not put in order.
MOST_ORDERED = 20_000
#: With more different replicas than this, the column does not name servers.
MOST_SERVERS = 2000

#: What is needed of the request table; the rest is left behind.
_NEEDED = (
    "session_id", "turn", "start", *SCOPE_COLUMNS, "input_tokens", "cached_tokens",
    "cache_write_tokens", "output_tokens", "reasoning_tokens", "ttft_us", "ttft_logged_us",
    "e2e_us", "queue_us", "prefill_us", "decode_us", "load_us", "attempts", "prefix_blocks",
    "block_tokens", "line", "source",
)  # fmt: skip


#: Names of the token counts in :class:`Rows`, and in the table.
_NAMES = {
    "inputs": "input_tokens",
    "cached": "cached_tokens",
    "written": "cache_write_tokens",
    "outputs": "output_tokens",
    "reasoning": "reasoning_tokens",
}


@dataclass(frozen=True)
class Around:
    """What is known of a log of which only some rows are at hand.

    ``single_share`` of its sessions have one request.
    """

    single_share: float


@dataclass(frozen=True)
class Scope:
    """One grouping column: a code per row (-1 unknown) and the names of the codes."""

    codes: Index
    names: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """The requests as arrays in order of start, seconds and tokens, NaN where unknown.

    ``repeated`` counts prompt tokens an earlier request had computed (best estimate), with bounds
    ``repeated_low`` and ``repeated_high``; ``cached`` is what was served from a cache, logged or
    (``cached_basis``) inferred; ``uncached`` is input less cached. ``broken`` is 1 where the blocks
    show that a prompt changed within its history, 0 where they show that it did not. ``unrelated``:
    no session is named, and the lengths show no conversations. ``place`` is the row of the request
    table that each was made from. ``one_clock`` is false for several files whose clocks each begin
    at a zero of their own: what is early in one is not early in another. ``shared`` is what the
    prompts have in common, where the log has their blocks. Columns that are not in
    the log share one array: no array may be written to.
    """

    n: int
    line: Index
    start: Array
    epoch_us: int | None
    ttft: Array
    ttft_logged: Array
    e2e: Array
    queue: Array
    prefill: Array
    decode: Array
    load: Array
    inputs: Array
    cached: Array
    written: Array
    outputs: Array
    reasoning: Array
    attempts: Array
    turn: Array
    session: Index
    server: Index
    previous_input: Array
    previous_output: Array
    gap: Array
    moved: Array
    broken: Array
    repeated: Array
    repeated_low: Array
    repeated_high: Array
    scopes: dict[str, Scope] = field(default_factory=dict)
    session_grade: Literal["logged", "linked", "none"] = "none"
    reuse_grade: Literal["content", "reported", "inferred", "none"] = "none"
    cached_logged: bool = False
    cached_basis: str = "unknown"
    cached_sure: float = 1.0
    unrelated: bool = False
    order_known: bool = True
    one_clock: bool = True
    notes: tuple[str, ...] = ()
    place: NDArray[np.uint32] | None = None
    shared: Shared | None = None

    @cached_property
    def uncached(self) -> Array:
        """Tokens that prefill had to compute; the input where nothing is known of a cache."""
        return self.inputs - or_zero(self.cached)

    @cached_property
    def context(self) -> Array:
        """Tokens that were there already when prefill began."""
        return or_zero(self.cached)

    @cached_property
    def recomputed(self) -> Array:
        """Repeated tokens that were computed again (0 where unknown)."""
        again: Array = or_zero(self.repeated) - or_zero(self.cached)
        return np.clip(again, 0.0, None)

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Rows with a usable TTFT."""
        return np.isfinite(self.ttft)

    @cached_property
    def arrivals(self) -> tuple[Index, ...]:
        """All rows of each server in order of arrival."""
        if self.n == 0:
            return ()
        at = np.arange(self.n)
        if (self.start[1:] < self.start[:-1]).any():
            at = np.argsort(self.start, kind="stable")
        server = self.server[at]
        if (server == server[0]).all():
            return (at,)
        order = in_order(server)
        edges = np.flatnonzero(np.diff(server[order])) + 1
        return tuple(np.split(at[order], edges))

    def take(self, index: NDArray[np.bool_] | Index) -> Rows:
        """The same for some of the rows."""
        if index.dtype == bool:
            index = np.flatnonzero(index)
            if len(index) == self.n:
                return self
        taken: dict[int, Any] = {}  # by identity: a shared array is taken once
        arrays = {}
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self)):
            if isinstance(value, np.ndarray):
                if id(value) not in taken:
                    taken[id(value)] = value[index]
                arrays[name] = taken[id(value)]
        scopes = {k: Scope(s.codes[index], s.names) for k, s in self.scopes.items()}
        changed: dict[str, Any] = {**arrays, "scopes": scopes, "shared": None}
        return replace(self, n=len(index), **changed)


def prepare(requests: pl.DataFrame, around: Around | None = None) -> Rows:
    """Order the request table and work out sessions, turns and repeated tokens.

    Parameters
    ----------
    requests
        Canonical columns plus ``line``, ``source`` and ``ttft_logged_us``; with ``around`` also
        those of ``FACTS``, which stand for the rows of the sessions that are not there, and those
        of ``PROMPT_FACTS``, if the log has blocks of its prompts.
    """
    facts = () if around is None else (*FACTS, *(c for c in PROMPT_FACTS if c in requests.columns))
    frame = requests.select(*_NEEDED, *facts)
    nulls = frame.null_count().row(0, named=True)
    nothing = [name for name, missing in nulls.items() if missing == frame.height]
    # A column without a value costs nothing as one null for all rows.
    empty = [pl.lit(None, dtype=frame.schema[name]).alias(name) for name in nothing]
    frame = frame.drop(nothing).rechunk().with_columns(empty)
    order_known = frame["start"].null_count() < (1 - COVERED) * frame.height
    frame = frame.with_row_index("place")
    if order_known:
        frame = _in_order(frame)
    frame = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    notes: list[str] = []
    shared = None
    with ThreadPoolExecutor(max_workers=1) as beside:
        logged = beside.submit(_logged, frame, order_known)
        if frame["prefix_blocks"].null_count() < frame.height:
            shared = _shared(frame)
        if shared is not None and not shared.chained:
            notes.append(
                tr("the ids of prompt blocks do not chain; ids that do were made from them")
            )
        frame, session_grade = _sessions(frame, shared, notes, around)
        if around is not None and session_grade != "logged":
            frame = frame.drop(FACTS)
        if around is not None:
            shared = None  # what the prompts of all requests share is not seen in some of them
        elif shared is not None:
            frame = frame.with_columns(_seen(frame, shared))
        frame = _turns(frame, notes)
        frame = _previous(frame)
        frame, reuse_grade = _repeated(frame)
    if reuse_grade == "none" and session_grade != "none":
        text = tr(
            "inputs do not grow from turn to turn: the session ids do not look like conversations, "
            "and nothing is taken for repeated"
        )
        notes.append(text)
    found = _floats_of(
        frame, "turn", "previous_input", "previous_output", "gap_us", "moved", "broken", "repeated",
        "repeated_low", "repeated_high",
    )  # fmt: skip
    return Rows(
        n=frame.height,
        session=frame["session"].fill_null(-1).to_numpy(),
        session_grade=session_grade,
        reuse_grade=reuse_grade,
        unrelated=tr(links.UNRELATED) in notes,
        order_known=order_known,
        notes=tuple(notes),
        shared=shared,
        **found,
        **logged.result(),
    )


def _shared(frame: pl.DataFrame) -> Shared | None:
    from ttftdoctor.measure.caches import shared_of  # compiled code: loaded where there are blocks

    return shared_of(frame)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by start, then by place in the log; unknown starts come last."""
    start = frame["start"].fill_null(np.iinfo(np.int64).max).to_numpy()
    source, line = frame["source"].to_numpy(), frame["line"].to_numpy()
    as_read = (source[1:] > source[:-1]) | ((source[1:] == source[:-1]) & (line[1:] >= line[:-1]))
    if not as_read.all():
        return frame.sort("start", "source", "line", nulls_last=True)
    if (start[1:] >= start[:-1]).all():
        return frame
    return frame[np.argsort(start, kind="stable")]


def _codes(values: pl.Series) -> tuple[Index, tuple[str, ...]]:
    """A number for each text, -1 where there is none; the texts by number, unless too many.

    The numbers are in the order of the texts, or, of more than ``MOST_ORDERED`` texts, in that of
    their hashes (of 64 bits: two of a million texts share one with a chance of 1 in 10 million).
    """
    if values.null_count() == len(values):
        return np.full(len(values), -1), ()
    hashes, codes = _numbered(values.hash(seed=0).to_numpy())
    names: tuple[str, ...] = ()
    if len(hashes) <= MOST_ORDERED:
        rows = np.zeros(len(hashes), dtype=np.int64)  # for each number a row that holds the text
        rows[codes] = np.arange(len(values))
        texts = values.gather(rows)
        order = texts.arg_sort(nulls_last=True).to_numpy()
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        codes = place[codes]
        if len(hashes) <= MOST_NAMES + 1:
            names = tuple(texts.drop_nulls().sort().to_list())
    if values.null_count():
        codes[values.is_null().to_numpy()] = -1
    return codes, names if len(names) <= MOST_NAMES else ()


def _numbered(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Index]:
    """The different hashes in their order, and the number of each row's: ``np.unique``.

    A few that recur are looked up; of many, the upper halves are put in order by counting, and
    the few rows whose halves agree by chance are sorted.
    """
    few = np.unique(hashes[:1000])
    if len(few) <= 16:
        codes = np.searchsorted(few[1:], hashes, side="right")
        if (few[codes] == hashes).all():
            return few, codes
    upper = (hashes >> np.uint64(32)).astype(np.int64)
    order = in_order(upper)
    ordered = hashes[order]
    new = ordered[1:] != ordered[:-1]
    beside = np.flatnonzero(new & (upper[order[1:]] == upper[order[:-1]]))
    if len(beside):
        at = np.flatnonzero(np.isin(upper[order], upper[order[beside]]))
        mixed = order[at]
        order[at] = mixed[np.argsort(hashes[mixed], kind="stable")]
        ordered = hashes[order]
        new = ordered[1:] != ordered[:-1]
    first = np.concatenate([[True], new])
    found = np.empty(len(hashes), dtype=np.int64)
    found[order] = np.cumsum(first) - 1
    return ordered[first], found


def clusters_of(session: Index, fewest: int) -> Index | None:
    """The sessions as clusters; None where a row has none, or there are fewer than ``fewest``."""
    if len(session) == 0 or session.min() < 0:
        return None
    return session if np.count_nonzero(np.bincount(session)) >= fewest else None


def _or_null(name: str, codes: Index) -> pl.Series:
    """The numbers as a column, null for -1."""
    values = pl.Series(name, codes)
    return values.set(values < 0, None)


def _covered(frame: pl.DataFrame, column: str) -> bool:
    return frame.height > 0 and frame[column].null_count() <= (1 - COVERED) * frame.height


def _sessions(
    frame: pl.DataFrame, shared: Shared | None, notes: list[str], around: Around | None
) -> tuple[pl.DataFrame, Literal["logged", "linked", "none"]]:
    """Add ``session``, a number per conversation (null: alone), and say where it comes from."""
    turns = frame["turn"]
    if _covered(frame, "session_id"):
        codes, _ = _codes(frame["session_id"])
        sizes = np.bincount(codes + 1)
        sizes = sizes[sizes > 0]
        single = float((sizes == 1).sum()) / max(len(sizes), 1)
        single = single if around is None else around.single_share
        numbered = turns.null_count() < frame.height
        if single <= MOST_SINGLE or numbered:
            return frame.with_columns(_or_null("session", codes)), "logged"
        text = tr(
            "{part} of the session ids occur once: they look like ids of requests, and were not "
            "used",
            part=format(single, ".0%"),
        )
        notes.append(text)
    by_blocks = None if shared is None else links.by_blocks(shared, frame.height)
    if by_blocks is not None:
        notes.append(by_blocks.note)
        return frame.with_columns(pl.Series("session", by_blocks.session)), "linked"
    if turns.null_count() == frame.height and _covered(frame, "input_tokens"):
        start = _seconds(frame, "start")
        lasting = or_zero(_seconds(frame, "e2e_us"))
        lasting = np.maximum(lasting, or_zero(_seconds(frame, "ttft_us")))
        group = (
            frame.select(
                pl.concat_str(["model", "tenant", "route"], separator="\t", ignore_nulls=True)
                .fill_null("")
                .rank("dense")
            )
            .to_series()
            .cast(pl.Int64)
            .to_numpy()
        )
        found = links.by_arithmetic(
            start, start + lasting, _floats(frame, "input_tokens"),
            _floats(frame, "output_tokens"), _floats(frame, "cached_tokens"), group,
            _codes(frame["replica"])[0], _floats(frame, "reasoning_tokens"),
        )  # fmt: skip
        if found is not None:
            notes.append(found.note)
        if found is not None and found.loose is not None:
            return frame.with_columns(
                _or_null("session", found.session),
                pl.Series("likely", found.loose.repeated, nan_to_null=True),
                pl.Series("likely_high", found.loose.repeated_high, nan_to_null=True),
                pl.Series("likely_pause_us", found.loose.pause_s * 1e6, nan_to_null=True),
                pl.Series("likely_moved", found.loose.moved, nan_to_null=True),
                pl.Series("headless", found.loose.headless),
            ), "linked"
    return frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("session")), "none"


def _turns(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Fill ``turn``: as logged, from 1; else the place in the session by start.

    Adds ``before``, the row of the request that each goes on from (the place decides which that
    is, even where turns are logged), and ``passed_over``, how many are between.
    """
    if "place_in_session" in frame.columns:  # all is known of rows that may not be there
        place = frame["place_in_session"].fill_null(-1).to_numpy()
    else:
        session = frame["session"].fill_null(-1).to_numpy()
        place, before, over = _places(session, _floats(frame, "input_tokens"))
        frame = frame.with_columns(_or_null("before", before), pl.Series("passed_over", over))
    if "headless" in frame.columns:
        turn = pl.when(~pl.col("headless")).then(_or_null("turn", place))
        return frame.with_columns(turn.alias("turn"))
    if not _covered(frame, "turn"):
        return frame.with_columns(_or_null("turn", place))
    shift = 1 if frame["turn"].min() == 0 else 0
    if shift:
        notes.append(tr("turns are counted from 0 in the log; shown from 1"))
    return frame.with_columns(pl.col("turn").cast(pl.Int64) + shift)


def _places(session: Index, inputs: Array) -> tuple[Index, Index, Index]:
    """Place of each row in its session, from 1, and the row that it goes on from; -1 for none.

    And how many rows it passes over for that.
    """
    n = len(session)
    order = in_order(session)
    order = order[int(np.count_nonzero(session < 0)) :]
    ordered = session[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    nth = np.arange(1, len(order) + 1) - np.repeat(first, np.diff(np.append(first, len(order))))
    back = steps_back(nth, inputs[order])
    place, before, over = np.full(n, -1), np.full(n, -1), np.zeros(n, dtype=np.int64)
    place[order] = nth
    later = np.flatnonzero(~new)
    before[order[later]] = order[later - back[later]]
    over[order[later]] = back[later] - 1
    return place, before, over


def _previous(frame: pl.DataFrame) -> pl.DataFrame:
    """Add what is known of the request that each goes on from: input, output, end and replica."""
    if "place_in_session" in frame.columns:
        return frame.with_columns(
            pl.col("before_input").alias("previous_input"),
            pl.col("before_output").alias("previous_output"),
            (pl.col("start") - pl.col("before_end")).alias("gap_us"),
            (pl.col("replica") != pl.col("before_replica")).alias("moved"),
        )
    ended = ended_at()

    def before(expr: pl.Expr) -> pl.Expr:
        return expr.gather(pl.col("before"))

    # Lazily, so that what several columns share is worked out once.
    frame = (
        frame.lazy()
        .with_columns(
            before(pl.col("input_tokens")).alias("previous_input"),
            before(pl.col("output_tokens").fill_null(0)).alias("previous_output"),
            (pl.col("start") - before(ended)).alias("gap_us"),
            (pl.col("replica") != before(pl.col("replica"))).alias("moved"),
        )
        .collect()
    )
    if "likely" not in frame.columns:
        return frame
    # Of those that may continue several, what holds for the likeliest, or for most of these.
    return frame.with_columns(
        pl.coalesce("gap_us", pl.col("likely_pause_us").cast(pl.Int64)).alias("gap_us"),
        pl.coalesce(pl.col("moved"), pl.col("likely_moved").cast(pl.Boolean)).alias("moved"),
    )


def _seen(frame: pl.DataFrame, shared: Shared) -> pl.Series:
    """Tokens in blocks that an earlier request had; null where the log has no blocks."""
    seen = np.zeros(frame.height, dtype=np.int64)
    seen[shared.at] = shared.one.hits()
    return pl.Series("seen_tokens", seen).set(frame["prefix_blocks"].is_null(), None)


def _repeated(
    frame: pl.DataFrame,
) -> tuple[pl.DataFrame, Literal["content", "reported", "inferred", "none"]]:
    """Add ``repeated`` and its bounds by the best evidence there is."""
    total = pl.col("input_tokens")
    cached = pl.col("cached_tokens").fill_null(0)
    frame = frame.with_columns(pl.lit(None, dtype=pl.Boolean).alias("broken"))
    by_content = (
        "seen_tokens" in frame.columns
        and _covered(frame, "seen_tokens")
        and frame["block_tokens"].null_count() < frame.height
    )
    if not by_content and not grows(frame.select(**growth()).row(0, named=True)):
        nothing = (
            pl.min_horizontal(cached, total)
            if _covered(frame, "cached_tokens")
            else pl.lit(None, dtype=pl.Int64)
        )
        known = frame.with_columns(
            nothing.alias("repeated"), nothing.alias("repeated_low"), total.alias("repeated_high")
        )
        return known, "none"
    first = pl.col("session").is_not_null() & pl.col("previous_input").is_null()
    best, low, high = history(first)
    if "likely" in frame.columns:  # who may continue several repeats what these hold, weighed
        loose = pl.col("likely").is_not_null()
        best = pl.when(loose).then(pl.col("likely").cast(pl.Int64)).otherwise(best)
        low = pl.when(loose).then(0).otherwise(low)
        high = pl.when(loose).then(pl.col("likely_high").cast(pl.Int64)).otherwise(high)
    if by_content:
        return _by_content(frame, best), "content"
    reported = _covered(frame, "cached_tokens")
    has_sessions = frame["session"].null_count() < frame.height
    if reported:
        floor = pl.min_horizontal(cached, total)
        frame = (
            frame.lazy()
            .with_columns(
                pl.max_horizontal(best.fill_null(0), floor).alias("repeated"),
                pl.max_horizontal(low.fill_null(0), floor).alias("repeated_low"),
                pl.max_horizontal(high.fill_null(0), floor).alias("repeated_high"),
            )
            .collect()
        )
        return frame, "reported"
    frame = frame.with_columns(
        best.alias("repeated"), low.alias("repeated_low"), high.alias("repeated_high")
    )
    return frame, "inferred" if has_sessions else "none"


def history(first: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Tokens of a turn that the one before it had: the best estimate, least and most.

    Of columns ``input_tokens``, ``previous_input`` and ``previous_output`` (0 where unknown); null
    where it cannot be told. ``first`` are the first turns of sessions.
    """
    total, previous = pl.col("input_tokens"), pl.col("previous_input") + pl.col("previous_output")
    # An input clearly shorter than the last one was compacted: what is left of it is unknown.
    grown = total >= (pl.col("previous_input") * 0.98).cast(pl.Int64)
    high: pl.Expr = (
        pl.when(first).then(0)
        .when(pl.col("previous_input").is_not_null()).then(pl.min_horizontal(total, previous))
    )  # fmt: skip
    low: pl.Expr = (
        pl.when(first).then(0)
        .when(grown).then(pl.min_horizontal(total, pl.col("previous_input")))
        .when(pl.col("previous_input").is_not_null()).then(0)
    )  # fmt: skip
    # An input shorter than all that was said so far left the last answer (or its thinking) out.
    kept = pl.when(total >= previous).then(high).otherwise(low)
    best: pl.Expr = pl.when(first).then(0).when(grown).then(kept)
    return best, low, high


def _by_content(frame: pl.DataFrame, history: pl.Expr) -> pl.DataFrame:
    """Repeated tokens as the blocks say, but for prompts that changed within their history.

    ``broken`` are turns that are longer than the one before by what was said, and yet have no
    more than a part of it in common: something near the head changed. Their ``history`` was
    computed before, as text; what it could have reused as it stands is ``repeated_low``. One such
    turn may be an edit or another agent; two in a session, or a fifth of all, are a habit.
    """
    frame = frame.with_columns(known_before().alias("exact"), history.alias("history"))
    torn = is_torn(pl.col("history"), pl.col("exact"))
    later = (pl.col("history") > 0).fill_null(False)
    habit = (torn.sum().over("session") >= 2) | (torn.sum() >= MANY_TORN * later.sum())
    broken = torn & habit & pl.col("session").is_not_null()
    frame = frame.with_columns(
        broken.alias("broken"),
        pl.when(broken).then(pl.col("history")).otherwise(pl.col("exact")).alias("repeated"),
        pl.col("exact").alias("repeated_low"),
    )
    return frame.with_columns(pl.col("repeated").alias("repeated_high"))


def known_before() -> pl.Expr:
    """Tokens of a prompt that an earlier one had, by its blocks (``seen_tokens``) or its cache."""
    total, cached = pl.col("input_tokens"), pl.col("cached_tokens").fill_null(0)
    return pl.max_horizontal(
        pl.min_horizontal(pl.col("seen_tokens").fill_null(0), total),
        pl.min_horizontal(cached, total),
    )


def is_torn(history: pl.Expr, known: pl.Expr) -> pl.Expr:
    """Whether a prompt has much less in common with those before it than its history is long."""
    torn: pl.Expr = (
        (history > 0)
        & (known < 0.7 * history)
        & (history - known > pl.max_horizontal(128, "block_tokens"))
    )
    return torn.fill_null(False)


def _seconds(frame: pl.DataFrame, column: str) -> Array:
    if frame[column].null_count():
        return _floats(frame, column) / 1e6
    seconds: Array = frame[column].to_numpy() / 1e6
    return seconds


def _floats(frame: pl.DataFrame, column: str) -> Array:
    values = frame[column]
    if values.null_count() or not values.dtype.is_integer():
        return values.cast(pl.Float64).to_numpy()
    return values.to_numpy().astype(np.float64)


def _floats_of(frame: pl.DataFrame, *columns: str) -> dict[str, Any]:
    """Columns as arrays, NaN for null; those in microseconds as seconds, without ``_us``."""
    nothing: Array | None = None
    out = {}
    for column in columns:
        if frame[column].null_count() == frame.height:
            nothing = np.full(frame.height, np.nan) if nothing is None else nothing
            values = nothing
        else:
            values = (_seconds if column.endswith("_us") else _floats)(frame, column)
        out[column.removesuffix("_us")] = values
    return out


def _logged(frame: pl.DataFrame, order_known: bool) -> dict[str, Any]:
    """The fields of :class:`Rows` that are in the table as logged."""
    first = frame["start"].min() if order_known else None
    origin = int(first) if isinstance(first, int) else 0
    coded = {column: _codes(frame[column]) for column in SCOPE_COLUMNS}
    # Prompts of one head (a system prompt, a template) share their first block.
    if "first_block" in frame.columns:
        coded["prefix_group"] = _codes(frame["first_block"].cast(pl.String))
    elif frame["prefix_blocks"].null_count() < frame.height:
        coded["prefix_group"] = _codes(frame["prefix_blocks"].list.first().cast(pl.String))
    arrays = _floats_of(
        frame, "ttft_us", "ttft_logged_us", "e2e_us", "queue_us", "prefill_us", "decode_us",
        "load_us", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
        "reasoning_tokens", "attempts",
    )  # fmt: skip
    for name, column in _NAMES.items():
        arrays[name] = arrays.pop(column)
    return {
        **arrays,
        "line": frame["line"].to_numpy(),
        "start": _seconds(frame.select(pl.col("start") - origin), "start"),
        # A clock that starts near 1970 is relative: monotonic, or from the log's own zero.
        "epoch_us": origin if order_known and origin > 10**14 else None,
        "server": _servers(frame, {column: codes for column, (codes, _) in coded.items()}),
        "scopes": {column: Scope(*pair) for column, pair in coded.items() if pair[1]},
        "cached_logged": _covered(frame, "cached_tokens"),
        "cached_basis": "logged" if _covered(frame, "cached_tokens") else "unknown",
        "one_clock": origin > 10**14 or frame["source"].n_unique() < 2,
        "place": frame["place"].to_numpy(),
    }


def _servers(frame: pl.DataFrame, codes: dict[str, Index]) -> Index:
    """Who competes with whom: the replica, or, where none is named, the model."""
    names = codes["replica" if _covered(frame, "replica") else "model"]
    if len(names) and int(names.max()) >= MOST_SERVERS:
        names = np.zeros(len(names), dtype=np.int64)  # no fleet has so many: they are other ids
    # Relative clocks of different files must not be set beside each other.
    relative = (pl.col("start") < 10**14).fill_null(True)
    clock = frame.select(
        pl.when(relative).then(pl.col("source").cast(pl.Int64) + 1).otherwise(0)
    ).to_series().to_numpy()  # fmt: skip
    if not clock.any() and (names >= 0).all():
        return names
    _, found = np.unique((names + 1) * (int(clock.max()) + 1) + clock, return_inverse=True)
    return found.astype(np.int64)
