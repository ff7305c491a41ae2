"""One request that several logs tell of is one request: found, and counted once.

A client, a gateway and an engine each log what passes through them, and their logs are often read
together. Rows are taken for one request

- where their ids agree, but for what each stack puts around an id (``chatcmpl-``, the number of the
  first choice, eight more digits of the engine), and nothing else they say speaks against it;
- without ids of one kind, where tokens and starts pair them off without a second candidate, enough
  of both logs pairs off so, and next to no pair is contradicted by what its rows say.

Two rows contradict each other by their model, session or ids, or where the inner one waited or
lasted longer than the outer one. A table does not know whether stamps had a time zone: that clocks
are whole zones apart, or have no common origin, is believed of ids only that cannot come up twice.

Where that is not sure they stay two: different requests are never made one. A row that is told
again with the same id and the same figures is counted once, too, where those are enough to tell
a row told again from a request that is made again. Of a request told by several the
TTFT, start and end are of one clock; what only the engine knows (queue, prefill, cached tokens,
replica) is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from ttftdoctor.language import listed, mark, tr
from ttftdoctor.table import LINE, SET_ASIDE
from ttftdoctor.units import count

#: Why a row is left out.
SEEN = "seen_by_another_layer"
REPEATED = "repeated_row"

#: The farther out a clock stands, the more of the wait it sees.
_OUTER = {"client": 0, "gateway": 1, "server": 3}
_UNKNOWN = 2
_WHOSE = {
    "client": mark("the client's"), "gateway": mark("the gateway's"), "server": mark("the server's")
}  # fmt: skip

_SECOND = 1_000_000
#: Clocks of two machines differ by this at most, but for a time zone.
CLOCKS_US = 120 * _SECOND
#: ... and a request passes from one layer to the next within this, give or take.
PASSING_US = 5 * _SECOND
#: A copy of a call in another transcript is placed within this of it.
COPIED_US = 3600 * _SECOND
_ZONE_US = 900 * _SECOND
_MOST_ZONE_US = 14 * 3600 * _SECOND
_DATED_US = 10**14

#: Pairs of equal tokens needed to know how two clocks differ: hardly, or by anything.
FEW_PAIRS, MANY_PAIRS = 5, 20
#: Pairs needed to believe ids that another service may count alike.
FEW_WEAK = 8
#: Without ids: the share of these pairs that must agree on the difference, and the share of the
#: smaller log that must pair off.
AGREE, PAIRED = 0.8, 0.5
#: ... the share of the pairs that may contradict each other, and the share of the time logged that
#: clocks may differ by: more may be the next run.
CONTRADICTED, OF_TIME = 0.1, 0.1
#: ... and the share of the pairs that chance may have made.
BY_CHANCE = 0.01
#: More rows than this with equal tokens tell nothing.
MOST_ALIKE = 50
#: Of the pairs whose ids agree, the share that nothing may speak against: ids that cannot come up
#: twice, and others.
STRONG_SHARE, WEAK_SHARE = 0.8, 0.9
#: An inner clock's TTFT and duration may be longer by this much and this share.
LONGER_TTFT, LONGER = (_SECOND // 20, 0.05), (_SECOND, 0.1)
#: An id that rows of more different figures share names a user, a session or nothing.
MOST_TRIES = 3
#: Logs of sessions: one that goes on from another holds its calls again.
TRANSCRIPTS = ("claude-code", "codex")

_HEX = r"[0-9a-fA-F]"
_UUID = (
    r"^(?:(\d+)_)?(?:(?:chatcmpl|cmpl|resp|msg|req|gen|embd|score)[-_])*"
    rf"({_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}})"
    rf"(?:-(\d{{1,3}}))?(?:-{_HEX}{{8}})?$"
)
_OPENAI = r"^(?:(\d+)_)?(?:chatcmpl|cmpl)-(.+)$"
#: What stands where an id is missing.
_NO_ID = (
    r"(?i)^\W*(?:none|null|nil|nan|n/?a|unknown|undefined|missing|empty|[0-]*|-1|f[f-]{7,})\W*$"
)
#: Parts of a model's name that not every layer writes.
_MODEL_DATE = r"[-:@](?:latest|\d{4}-?\d{2}-?\d{2})$"

#: What a row says of its request, to tell whether it is the same row again.
_FIGURES = ("start", "input_tokens", "cached_tokens", "output_tokens", "ttft_logged_us", "e2e_us")
#: Who says it, and of which model: a row told again says no other.
_TELLER = ("replica", "vantage", "model")
#: Taken from the engine where it says them, or from whoever stands nearest to it.
_INNER = ("queue_us", "prefill_us", "decode_us", "load_us", "replica", "version")
_BLOCKS = ("prefix_blocks", "block_tokens")
_PROMPT = ("input_tokens", "cached_tokens", "cache_write_tokens")
_SESSION = ("session_id", "turn")
#: Taken from the clock that was chosen, or from the next one outwards in.
_FILLED = ("model", "tenant", "route", "output_tokens", "reasoning_tokens", "attempts")


@dataclass(frozen=True)
class Once:
    """Requests, each counted once.

    ``left_out`` has ``source``, ``line`` and ``reason`` of the rows that are not; ``moved`` has
    ``source``, ``line``, ``to_source`` and ``to_line``: whose request each of them is.
    """

    requests: pl.DataFrame
    left_out: pl.DataFrame
    moved: pl.DataFrame
    notes: tuple[str, ...] = ()


def once(
    requests: pl.DataFrame, names: Sequence[str], formats: Sequence[str], *, again: bool = True
) -> Once:
    """Count each request once.

    Parameters
    ----------
    requests
        Canonical columns plus ``line``, ``source``, ``ttft_set_aside`` and ``ttft_logged_us``.
    names, formats
        What each source is called, and its format.
    again
        Whether to look for rows that are told again: tries that failed may look alike.
    """
    # Whether a row has to be looked at costs little to see; most logs have none.
    alone = len(formats) == 1
    rows = requests.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    pairs = _repeats(rows, formats) if again else _no_pairs()
    kept = rows.filter(~pl.col("row").is_in(pairs["row"].implode())) if pairs.height else rows
    kinds: list[_Kind] = []
    if not alone:
        kept, kinds = _kinds(kept, names, formats)
    edges = _edges(kept, kinds) if len(kinds) > 1 else _no_pairs()
    merged, seen, notes = _merged(kept, edges, kinds)
    if not pairs.height and not seen.height:
        return Once(requests, _left_out(rows, pairs, REPEATED), _moved(rows, pairs))
    if pairs.height:
        notes.insert(
            0,
            tr(
                "{n} rows were told again with the same id and figures: counted once",
                n=count(pairs.height),
            ),
        )
    out = merged.select(requests.columns)
    return Once(
        out,
        pl.concat([_left_out(rows, pairs, REPEATED), _left_out(rows, seen, SEEN)]),
        pl.concat([_moved(rows, pairs), _moved(rows, seen)]),
        tuple(notes),
    )


def _no_pairs() -> pl.DataFrame:
    return pl.DataFrame(schema={"row": pl.Int64, "of": pl.Int64})


def _left_out(rows: pl.DataFrame, pairs: pl.DataFrame, reason: str) -> pl.DataFrame:
    places = rows[pairs["row"]].select("source", LINE)
    return places.with_columns(pl.lit(reason).alias("reason"))


def _moved(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    to = rows[pairs["of"]].select(
        pl.col("source").alias("to_source"), pl.col(LINE).alias("to_line")
    )
    return pl.concat([rows[pairs["row"]].select("source", LINE), to], how="horizontal")


# ---------------------------------------------------------------------------- told again


def _repeats(rows: pl.DataFrame, formats: Sequence[str]) -> pl.DataFrame:
    """Rows that say what an earlier one of their format said (``row``), and that one (``of``)."""
    alone = len(formats) == 1
    all_placed = rows["start"].null_count() == 0
    if alone and rows["request_id"].null_count() == rows.height:
        return _no_pairs()
    # Whole numbers are compared several times as fast as texts: first the starts, then the ids.
    some = rows.filter(_recurs(rows["start"])) if alone and all_placed else rows
    if alone:
        some = some.filter(pl.col("request_id").is_duplicated())
    if not some.height:
        return _no_pairs()
    known = pl.sum_horizontal(pl.col(c).is_not_null().cast(pl.Int8) for c in _FIGURES)
    # Only in another file a session's call without an id is the same.
    dated = pl.col("start") >= _DATED_US
    whole = pl.all_horizontal(pl.col(c).is_not_null() for c in ("input_tokens", "output_tokens"))
    session = pl.when(dated & whole).then(pl.concat_str([pl.lit("session "), pl.col("session_id")]))
    name = _id(pl.col("request_id"))
    # What another format or replica tells is told by another layer, or of another request.
    form = pl.col("source").replace_strict(
        list(range(len(formats))), list(formats), return_dtype=pl.String
    )
    timed = pl.col("ttft_logged_us").is_not_null() | pl.col("e2e_us").is_not_null()
    fine = pl.col("source").is_in(_finely_stamped(rows).implode())
    some = some.select(
        "row",
        "source",
        pl.coalesce(name, session).alias("who"),
        name.is_not_null().alias("named"),
        form.alias("format"),
        # Requests that are made again have equal tokens, and in one second equal stamps.
        (timed & (_strong(name) | (dated & fine))).fill_null(False).alias("sure"),
        *_TELLER,
        *_FIGURES,
    )
    some = some.filter(pl.col("who").is_not_null() & (pl.col("start").is_not_null() | (known >= 3)))
    transcript = pl.col("format").is_in(TRANSCRIPTS)
    mine = ("who", "format", *_TELLER, *_FIGURES)
    found = _earlier(some, mine).filter(
        (pl.col("named") & pl.col("sure"))
        | (pl.col("elsewhere") & (pl.col("sure") | transcript))
    )  # fmt: skip
    found = _of_requests(found, rows)
    if alone:
        return found.select("row", "of").sort("row")
    # A transcript that goes on from another one has its calls, placed by fewer lines before them.
    ids = some.filter("named", _strong(pl.col("who")), transcript)
    copied = _earlier(ids, tuple(c for c in mine if c != "start")).filter(
        "elsewhere", (pl.col("start") - pl.col("its_start")).abs() <= COPIED_US
    )
    both = pl.concat([found.select("row", "of"), copied.select("row", "of")])
    return both.group_by("row").agg(pl.col("of").min()).sort("row")


def _recurs(stamps: pl.Series) -> pl.Series:
    """Whether each of the stamps is there more than once; few are, as a rule."""
    ordered = np.sort(stamps.to_numpy())
    recurring = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return stamps.is_in(pl.Series(recurring, dtype=stamps.dtype).implode())


def _finely_stamped(rows: pl.DataFrame) -> pl.Series:
    """The sources whose stamps have parts of a second."""
    parts = rows.group_by("source").agg((pl.col("start") % _SECOND != 0).mean().alias("parts"))
    return parts.filter(pl.col("parts") >= 0.5)["source"]


def _of_requests(found: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Those found whose id is one of a request, by how often it comes up with other figures."""
    if not found.height:
        return found
    some = rows.filter(pl.col("request_id").is_in(found["who"].unique().implode()))
    tries = some.group_by("source", "request_id").agg(pl.struct(_FIGURES).n_unique().alias("tries"))
    shared = tries.filter(pl.col("tries") > MOST_TRIES)["request_id"]
    return found.filter(~(pl.col("named") & pl.col("who").is_in(shared.implode())))


def _earlier(some: pl.DataFrame, same: tuple[str, ...]) -> pl.DataFrame:
    """Rows before which another one has the same in these columns; ``of`` is the first such."""
    alike = some.filter(pl.struct(same).is_duplicated()).sort("row")
    return alike.with_columns(
        pl.col("row").first().over(same).alias("of"),
        pl.col("start").first().over(same).alias("its_start"),
        (pl.col("source") != pl.col("source").first().over(same)).alias("elsewhere"),
    ).filter(pl.col("row") > pl.col("of"))


def _id(name: pl.Expr) -> pl.Expr:
    """The id, or null where it only stands for a missing one."""
    return pl.when(~name.str.contains(_NO_ID)).then(name)


def _strong(name: pl.Expr) -> pl.Expr:
    """Whether an id cannot come up twice by chance."""
    counted = name.str.contains(r"0{8}|(?i:f{8})")  # a counter, filled up
    return (name.str.len_chars() >= 16) & (name.str.count_matches(r"\d") >= 4) & ~counted


# ---------------------------------------------------------------------------- who is whom


def _key(name: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """The id without what a stack puts around it, its choice, and whether it names a choice.

    An id without a choice is that of the first.
    """
    core = name.str.extract(_UUID, 2).str.replace_all("-", "", literal=True).str.to_lowercase()
    choices = (
        pl.coalesce(name.str.extract(_UUID, 1), name.str.extract(_OPENAI, 1)),
        name.str.extract(_UUID, 3),
    )
    numbers = [choice.cast(pl.Int64, strict=False).fill_null(0) for choice in choices]
    return (
        pl.coalesce(core, name.str.extract(_OPENAI, 2), name),
        pl.when(name.is_not_null()).then(pl.concat_str(numbers, separator="/")),
        pl.any_horizontal(choice.is_not_null() for choice in choices),
    )


def _model(name: pl.Expr) -> pl.Expr:
    """A model's name without who serves it and its date."""
    return name.str.to_lowercase().str.extract(r"([^/]+)/*$", 1).str.replace(_MODEL_DATE, "")


@dataclass(frozen=True)
class _Kind:
    """Logs of one format whose clocks stand at one place: replicas, hours or runs of one layer."""

    format: str
    vantage: str | None
    name: str


def _kinds(
    rows: pl.DataFrame, names: Sequence[str], formats: Sequence[str]
) -> tuple[pl.DataFrame, list[_Kind]]:
    """The rows with ``kind``, and what kinds there are.

    The vantage is None where it is not known, or where one log has several.
    """
    told = rows.select("source", "vantage").unique().group_by("source").agg("vantage")
    places = {s: v[0] if len(v) == 1 else None for s, v in told.iter_rows()}
    members: dict[tuple[str, str | None], list[int]] = {}
    for source in sorted(places):
        members.setdefault((formats[source], places[source]), []).append(source)
    kinds = [
        _Kind(
            *key,
            names[own[0]]
            if len(own) == 1
            else tr("{n} logs of {format}", n=len(own), format=key[0]),
        )
        for key, own in members.items()
    ]
    of = {source: at for at, own in enumerate(members.values()) for source in own}
    column = pl.col("source").replace_strict(of, return_dtype=pl.Int64, default=None)
    return rows.with_columns(column.alias("kind")), kinds


def _edges(rows: pl.DataFrame, kinds: Sequence[_Kind]) -> pl.DataFrame:
    """Pairs of rows of logs of different kinds that are one request: ``row``, ``of``."""
    sides: list[pl.DataFrame] = []
    core, choice, chosen = _key(pl.col("request_id"))
    for kind in range(len(kinds)):
        side = rows.filter(pl.col("kind") == kind)
        side = side.select(
            "row", "start", "input_tokens", "output_tokens", "ttft_us", "e2e_us", "session_id",
            _model(pl.col("model")).alias("model"),
            pl.col("vantage").replace_strict(_OUTER, default=None, return_dtype=pl.Int64)
            .alias("outer"),
            core.alias("key"), choice.alias("choice"), chosen.alias("chosen"),
        )  # fmt: skip
        some_chosen = bool(side["chosen"].any())
        side = side.with_columns(
            _strong(pl.col("key")).alias("strong"),
            # An id that two rows of one layer have is that of neither: tries, or a counter.
            (pl.col("key").is_not_null() & pl.col("key").is_unique()).alias("lone"),
            (
                (pl.col("chosen") & pl.struct("key", "choice").is_unique())
                if some_chosen
                else pl.lit(False)
            ).alias("lone_choice"),
        )
        sides.append(_stamped(side))
    found = [_no_pairs()]
    for (one, mine), (other, its) in combinations(zip(kinds, sides, strict=True), 2):
        places = {one.vantage, other.vantage}
        if one.format == other.format and None in places:
            continue  # maybe two of a kind
        by_id = _by_id(mine, its)
        found.append(by_id)
        if len(places) == 2 and None not in places:
            left = mine.filter(~pl.col("row").is_in(by_id["row"].implode()))
            right = its.filter(~pl.col("row").is_in(by_id["of"].implode()))
            found.append(_by_figures(left, right))
    return pl.concat(found)


def _stamped(side: pl.DataFrame) -> pl.DataFrame:
    """The rows less those whose clock is not that of most: ``dated`` tells whether that has dates.

    One stamp that is broken says nothing of the others.
    """
    dated = pl.col("start") >= _DATED_US
    most = pl.lit(bool(side.select(dated.mean().fill_null(0.0) > 0.5).item()))
    return side.filter((dated == most).fill_null(True)).with_columns(most.alias("dated"))


def _dated(pairs: pl.DataFrame) -> bool:
    """Whether both sides have dates."""
    return bool(pairs.select((pl.col("dated") & pl.col("dated_2")).all()).item())


def _same_id(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Rows with one id that no other row of their side has."""
    alone = one.filter("lone").join(other.filter("lone"), on="key", suffix="_2", coalesce=False)
    alone = alone.filter(pl.col("choice") == pl.col("choice_2"))
    a, b = one.filter("lone_choice"), other.filter("lone_choice")
    by_choice = a.join(b, on=["key", "choice"], suffix="_2", coalesce=False)
    return pl.concat([alone, by_choice.select(alone.columns)]).unique(["row", "row_2"])


def _differ(name: str) -> pl.Expr:
    """Whether both rows say something, and not the same."""
    return (pl.col(name) != pl.col(f"{name}_2")).fill_null(False)


def _too_long(name: str, allowed: tuple[int, float]) -> pl.Expr:
    """Whether the inner of two clocks saw more of a request than the outer one."""
    a, b = pl.col(name), pl.col(f"{name}_2")
    first = pl.col("outer") < pl.col("outer_2")
    outer, inner = pl.when(first).then(a).otherwise(b), pl.when(first).then(b).otherwise(a)
    least, share = allowed
    # Of a clock that shows whole seconds, one is nothing.
    slack = pl.when(inner % _SECOND == 0).then(pl.max_horizontal(least, _SECOND)).otherwise(least)
    return (_differ("outer") & (inner > outer * (1 + share) + slack)).fill_null(False)


def _not_nested() -> pl.Expr:
    return _too_long("ttft_us", LONGER_TTFT) | _too_long("e2e_us", LONGER)


def _by_id(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Pairs whose ids agree and that nothing else speaks against."""
    pairs = _same_id(one, other)
    if not pairs.height:
        return _no_pairs()
    pairs = pairs.with_columns((pl.col("start_2") - pl.col("start")).alias("delta"))
    strong, weak = (
        _strong_pairs(pairs.filter("strong")),
        _weak_pairs(pairs.filter(~pl.col("strong"))),
    )
    return pl.concat([strong, weak]).select("row", pl.col("row_2").alias("of")).sort("row")


_EXACT = (pl.col("input_tokens") == pl.col("input_tokens_2")) & (
    pl.col("output_tokens") == pl.col("output_tokens_2")
)


def _strong_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Those of the pairs that are one request, their ids being such as cannot come up twice."""

    def alike(name: str, least: int, share: float) -> pl.Expr:
        a, b = pl.col(name), pl.col(f"{name}_2")
        slack = pl.max_horizontal(pl.lit(float(least)), share * pl.max_horizontal(a, b))
        return ((a - b).abs() <= slack).fill_null(True)

    if not pairs.height:
        return pairs
    near = pl.lit(True)
    undated = not _dated(pairs)
    middle = pairs["delta"].median()
    if isinstance(middle, (int, float)):
        near = ((pl.col("delta") - middle).abs() <= PASSING_US).fill_null(True)
        zone_off = abs(middle - round(middle / _ZONE_US) * _ZONE_US)
        zones = abs(middle) <= _MOST_ZONE_US and zone_off <= PASSING_US
        if not undated and not zones and abs(middle) > CLOCKS_US:
            return pairs.clear()
    # Layers may call a model or a session otherwise, but then they should agree in the rest.
    doubtful = _differ("model") | _differ("session_id") | pl.lit(undated)
    other = _differ("model") & _differ("session_id")
    counts = [pl.col(c) == pl.col(f"{c}_2") for c in ("input_tokens", "output_tokens")]
    agreed = pl.all_horizontal(c.fill_null(True) for c in counts) & pl.any_horizontal(
        c.fill_null(False) for c in counts
    )
    tokens = alike("input_tokens", 16, 0.1) & alike("output_tokens", 4, 0.1)
    same = near & tokens & ~_not_nested() & ~other & (~doubtful | agreed)
    judged = pairs.with_columns(same.alias("same"))
    return _enough(judged, STRONG_SHARE)


def _weak_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Those of the pairs that are one request, their ids being such as another service may give."""
    middle = pairs["delta"].median()
    if not isinstance(middle, (int, float)) or not _dated(pairs) or abs(middle) > CLOCKS_US:
        return pairs.clear()
    near = (pl.col("delta") - middle).abs() <= PASSING_US
    same = near & _EXACT & ~_not_nested() & ~_differ("model") & ~_differ("session_id")
    # Counters of two runs agree in all their ids, and in few of the figures.
    found = _enough(pairs.with_columns(same.fill_null(False).alias("same")), WEAK_SHARE)
    # A few small numbers agree by chance.
    kinds = found.select(pl.struct("input_tokens", "output_tokens").n_unique()).item()
    few = found.height < FEW_WEAK or kinds < max(FEW_PAIRS, found.height / 2)
    return found.clear() if few else found


def _enough(judged: pl.DataFrame, share: float) -> pl.DataFrame:
    """The pairs that are the ``same``, or none where too few are; without that column."""
    found = judged.filter("same")
    return (found if found.height >= share * judged.height else found.clear()).drop("same")


def _by_figures(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Pairs that tokens and starts leave no choice about."""
    figures = ("input_tokens", "output_tokens")
    a, b = (side.drop_nulls(["start", *figures]) for side in (one, other))
    few = pl.len().over(figures) <= MOST_ALIKE
    sure = a.filter(pl.len().over(figures) == 1).join(
        b.filter(pl.len().over(figures) == 1), on=figures, suffix="_2"
    )
    delta = (sure["start_2"] - sure["start"]).cast(pl.Float64)
    if len(delta) < FEW_PAIRS:
        return _no_pairs()
    if not _dated(sure):
        return _no_pairs()
    middle = float(np.median(delta.to_numpy()))
    if abs(middle) > PASSING_US:
        longest = min(CLOCKS_US, OF_TIME * min(_span(a), _span(b)))
        if len(delta) < MANY_PAIRS or abs(middle) > longest:
            return _no_pairs()
    off = (delta - middle).abs()
    if float((off <= 2 * _SECOND).mean()) < AGREE:  # type: ignore[arg-type]
        return _no_pairs()
    width = float(np.clip(6 * np.median(off.to_numpy()), _SECOND / 4, 2 * _SECOND))
    near = a.filter(few).join(b.filter(few), on=figures, suffix="_2").with_columns(
        ((pl.col("start_2") - pl.col("start")) - middle).abs().alias("off")
    )  # fmt: skip
    # A second one not much farther off is a second candidate.
    near = near.filter(pl.col("off") <= 2 * width)
    ends = ("start", "e2e_us")
    last, last_2 = (
        pl.sum_horizontal(*(pl.col(f"{c}{suffix}") for c in ends), ignore_nulls=False)
        for suffix in ("", "_2")
    )
    # Whichever layer is inside the other, they end about when they began to differ.
    apart = (last_2 - last - middle).abs() > PASSING_US
    found = near.filter(
        (pl.len().over("row") == 1) & (pl.len().over("row_2") == 1) & (pl.col("off") <= width)
    ).filter(~apart.fill_null(False))
    contradicted = (
        _differ("model")
        | _differ("session_id")
        | _not_nested()
        | pl.col("strong") & pl.col("strong_2")
    ).fill_null(False)
    told = found.filter(~contradicted)
    if found.height - told.height > CONTRADICTED * found.height:
        return _no_pairs()
    found = told
    kinds = found.select(pl.struct(figures).n_unique()).item() if found.height else 0
    smaller = min(_within(a, b, middle), _within(b, a, -middle))
    if found.height < PAIRED * smaller or kinds < max(FEW_PAIRS, found.height / 2):
        return _no_pairs()
    if _by_chance(a, b, middle, width, found.height) > BY_CHANCE * found.height:
        return _no_pairs()
    return found.select("row", pl.col("row_2").alias("of"))


def _by_chance(
    one: pl.DataFrame, other: pl.DataFrame, offset: float, width: float, found: int
) -> float:
    """How many rows would pair off if the two logs had nothing to do with each other.

    As many as begin near to one another, times the share of any two rows that have equal tokens:
    by both counts as they come together, less the pairs found, or as if they came apart.
    """
    starts, others = (np.sort(side["start"].to_numpy()) for side in (one, other))
    low = np.searchsorted(others, starts + (offset - width), side="left")
    high = np.searchsorted(others, starts + (offset + width), side="right")
    near = float((high - low).sum())
    every = one.height * other.height

    def alike(*names: str) -> int:
        counts = (side.group_by(names).len() for side in (one, other))
        left, right = counts
        both = left.join(right, on=names, suffix="_2")
        return int((both["len"].cast(pl.Int64) * both["len_2"].cast(pl.Int64)).sum())

    together = (alike("input_tokens", "output_tokens") - found) / every
    apart = alike("input_tokens") / every * alike("output_tokens") / every
    return near * max(together, apart)


def _span(side: pl.DataFrame) -> int:
    """How long a side was logged (us)."""
    low, high = side["start"].min(), side["start"].max()
    assert isinstance(low, int)
    assert isinstance(high, int)
    return high - low


def _within(side: pl.DataFrame, other: pl.DataFrame, offset: float) -> int:
    """How many rows of a side began while the other was logged."""
    low, high = other["start"].min(), other["start"].max()
    assert isinstance(low, int)
    assert isinstance(high, int)
    shifted = pl.col("start") + offset
    return side.filter(shifted.is_between(low - PASSING_US, high + PASSING_US)).height


# ---------------------------------------------------------------------------- one row of several


def _groups(rows: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Rows that are one request: ``row``, ``group``; of each kind of log at most one in a group."""
    ends = edges.select("row", "of").unique()
    members = pl.concat([ends["row"], ends["of"].alias("row")]).unique().sort()
    at = {name: members.search_sorted(ends[name]).to_numpy() for name in ("row", "of")}
    label = np.arange(len(members))
    while True:  # as often as the longest chain of layers
        low = np.minimum(label[at["row"]], label[at["of"]])
        before = label.copy()
        np.minimum.at(label, at["row"], low)
        np.minimum.at(label, at["of"], low)
        if np.array_equal(before, label):
            break
    found = pl.DataFrame({"row": members, "group": label})
    kinds = rows.select("row", "kind")
    found = found.join(kinds, on="row", how="left", maintain_order="left")
    return found.filter(~pl.struct("group", "kind").is_duplicated().any().over("group"))


def _merged(
    rows: pl.DataFrame, edges: pl.DataFrame, kinds: Sequence[_Kind]
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """The rows with one for each group, those left out (``row``, ``of``), and what to say."""
    if not edges.height:
        return rows, _no_pairs(), []
    groups = _groups(rows, edges)
    if not groups.height:
        return rows, _no_pairs(), []
    some = groups.drop("kind").join(rows, on="row", how="left")
    some = some.with_columns(
        pl.col("kind").replace_strict(_ranks(some), return_dtype=pl.Int64).alias("clock"),
        pl.col("vantage").replace_strict(_OUTER, default=_UNKNOWN, return_dtype=pl.Int64)
        .alias("outer"),
    ).sort("group", "clock")  # fmt: skip
    inside = some.sort("group", pl.col("outer"), "clock", descending=[False, True, False])
    base = some.group_by("group", maintain_order=True).first()
    by_group: list[pl.DataFrame] = []
    by_group.append(
        some.group_by("group", maintain_order=True).agg(
            *(pl.col(c).drop_nulls().first() for c in _FILLED),
            *_together(_SESSION, "session_id"),
        )
    )
    by_group.append(
        inside.group_by("group", maintain_order=True).agg(
            *(pl.col(c).drop_nulls().first() for c in _INNER),
            *_together(_BLOCKS, "prefix_blocks"),
            # Tokens found in a cache are some of the tokens of the same count.
            *(
                pl.coalesce(
                    pl.col(c).filter(pl.col("cached_tokens").is_not_null()
                                     & pl.col("input_tokens").is_not_null()).first(),
                    pl.col(c).drop_nulls().first(),
                ).alias(c)
                for c in _PROMPT
            ),
        )
    )  # fmt: skip
    filled = base.select("group", "row")
    for told in by_group:
        filled = filled.join(told, on="group", how="left", maintain_order="left")
    taken = [c for c in filled.columns if c not in ("group", "row")]
    late = {c: pl.col(c) > pl.col("ttft_us") * 1.05 + 1000 for c in ("queue_us", "prefill_us")}
    whole = (
        base.drop(taken)
        .join(filled.drop("row"), on="group", how="left", maintain_order="left")
        # Of another clock, and longer than the whole wait of this one: not to be set beside it.
        .with_columns(
            pl.when(~test.fill_null(False)).then(pl.col(c)).alias(c) for c, test in late.items()
        )
        .select(rows.columns)
    )
    seen = some.join(base.select("group", pl.col("row").alias("of")), on="group").filter(
        pl.col("row") != pl.col("of")
    ).select("row", "of").sort("row")  # fmt: skip
    rest = rows.filter(~pl.col("row").is_in(some["row"].implode()))
    out = pl.concat([rest, whole]).sort("row")
    return out, seen, _said(some, base, whole, rest, kinds)


def _together(columns: Sequence[str], needed: str) -> list[pl.Expr]:
    """The columns of the first row that has the needed one."""
    return [pl.col(c).filter(pl.col(needed).is_not_null()).first().alias(c) for c in columns]


def _ranks(some: pl.DataFrame) -> dict[int, int]:
    """The order in which the clocks of kinds are taken: the outermost that saw first tokens.

    One clock for all that two layers have in common, or its TTFTs would not be of one kind.
    """
    told = some.group_by("kind").agg(
        pl.col("vantage").replace_strict(_OUTER, default=_UNKNOWN).min().alias("outer"),
        (pl.col(SET_ASIDE).is_null() & pl.col("ttft_us").is_not_null()).mean().alias("share"),
    )
    best = told["share"].max()
    assert isinstance(best, float)
    ordered = told.sort(pl.col("share") < 0.8 * best, "outer", "kind")["kind"]
    return {kind: at for at, kind in enumerate(ordered)}


def _said(
    some: pl.DataFrame,
    base: pl.DataFrame,
    whole: pl.DataFrame,
    rest: pl.DataFrame,
    kinds: Sequence[_Kind],
) -> list[str]:
    """Whose clock it is, whose the rest, and what found no partner."""

    def side(kind: int) -> str:
        one = kinds[kind]
        return tr("that of {log}", log=one.name) if one.vantage is None else tr(_WHOSE[one.vantage])

    places = sorted(some["kind"].unique())
    clocks = base.group_by("kind").len().sort("len", descending=True)["kind"].to_list()
    lent = {
        "queue_us": tr("queue times"), "prefill_us": tr("prefill times"),
        "cached_tokens": tr("cached tokens"), "replica": tr("replicas"),
    }  # fmt: skip
    before = base.select(list(lent)).null_count().row(0, named=True)
    after = whole.select(list(lent)).null_count().row(0, named=True)
    taken = [word for column, word in lent.items() if after[column] < before[column]]
    text = tr(
        "{n} requests were seen by several layers ({layers}) and are counted once: the TTFT is "
        "{whose}",
        n=count(base.height), layers=tr(", ").join(kinds[k].name for k in places),
        whose=listed(list(dict.fromkeys(map(side, clocks)))),
    )  # fmt: skip
    if taken:
        others = dict.fromkeys(side(k) for k in places if k != clocks[0])
        text = tr(
            "{sentence}; {figures} are {whose}",
            sentence=text, figures=listed(taken), whose=listed(list(others)),
        )  # fmt: skip
    notes = [text]
    alone = rest.filter(pl.col("kind").is_in(places))["kind"].value_counts().sort("kind")
    for kind, n in alone.iter_rows():
        notes.append(
            tr(
                "{n} requests of {log} were found in no other log and stand for themselves",
                n=count(n), log=kinds[kind].name,
            )
        )  # fmt: skip
    return notes
