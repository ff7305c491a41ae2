"""One request that several logs tell of is one request: found, and counted once.

A client, a gateway and an engine each log what passes through them, and their logs are often read
together. Rows are taken for one request

- where their ids agree, but for what each stack puts around an id (``chatcmpl-``, the number of a
  choice, eight more digits of the engine), and times and tokens do not speak against it;
- without ids of one kind, where tokens and starts pair them off without a second candidate, and
  enough of both logs pairs off so.

Where that is not sure they stay two: different requests are never made one. A row that is told
again with the same id and the same figures is counted once, too. Of a request told by several the
TTFT, start and end are of one clock; what only the engine knows (queue, prefill, cached tokens,
replica) is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from ttftdoctor.table import LINE, SET_ASIDE

#: Why a row is left out.
SEEN = "seen_by_another_layer"
REPEATED = "repeated_row"

#: The farther out a clock stands, the more of the wait it sees.
_OUTER = {"client": 0, "gateway": 1, "server": 3}
_UNKNOWN = 2

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
#: ... and the share of the pairs that chance may have made.
BY_CHANCE = 0.01
#: More rows than this with equal tokens tell nothing.
MOST_ALIKE = 50

_HEX = r"[0-9a-fA-F]"
_PREFIX = r"^(?:\d+_)?(?:(?:chatcmpl|cmpl|resp|msg|req|gen|embd|score)[-_])*"
_UUID = (
    rf"{_PREFIX}({_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}})"
    rf"(?:-\d{{1,3}})?(?:-{_HEX}{{8}})?$"
)
_OPENAI = r"^(?:\d+_)?(?:chatcmpl|cmpl)-(.+)$"

#: What a row says of its request, to tell whether it is the same row again.
_FIGURES = ("start", "input_tokens", "cached_tokens", "output_tokens", "ttft_logged_us", "e2e_us")
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
            0, f"{pairs.height:,} rows were told again with the same id and figures: counted once"
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
    dated = rows["start"].null_count() == 0
    if alone and rows["request_id"].null_count() == rows.height:
        return _no_pairs()
    # Whole numbers are compared several times as fast as texts: first the starts, then the ids.
    first = "start" if dated and alone else "request_id"
    some = rows.filter(pl.col(first).is_duplicated()) if alone else rows
    if not some.height:
        return _no_pairs()
    known = pl.sum_horizontal(pl.col(c).is_not_null().cast(pl.Int8) for c in _FIGURES)
    # Only in another file a session's call without an id is the same.
    dated_call = (pl.col("start") >= _DATED_US) & pl.col("input_tokens").is_not_null()
    session = pl.when(dated_call & pl.col("output_tokens").is_not_null()).then(
        pl.concat_str([pl.lit("session "), pl.col("session_id")])
    )
    named = pl.col("request_id").is_not_null()
    some = some.select(
        "row",
        "source",
        pl.coalesce("request_id", session).alias("who"),
        named.alias("named"),
        # What another format or replica tells is told by another layer, or of another request.
        pl.col("source")
        .replace_strict(list(range(len(formats))), list(formats), return_dtype=pl.String)
        .alias("format"),
        "replica",
        *_FIGURES,
    )
    some = some.filter(pl.col("who").is_not_null() & (pl.col("start").is_not_null() | (known >= 3)))
    mine = ("who", "format", "replica", *_FIGURES)
    found = _earlier(some, mine).filter(pl.col("named") | pl.col("elsewhere"))
    if alone:
        return found.select("row", "of").sort("row")
    # A transcript that goes on from another one has its calls, placed by fewer lines before them.
    ids = some.filter("named", _strong(pl.col("who")))
    copied = _earlier(ids, tuple(c for c in mine if c != "start")).filter(
        "elsewhere", (pl.col("start") - pl.col("its_start")).abs() <= COPIED_US
    )
    both = pl.concat([found.select("row", "of"), copied.select("row", "of")])
    return both.group_by("row").agg(pl.col("of").min()).sort("row")


def _earlier(some: pl.DataFrame, same: tuple[str, ...]) -> pl.DataFrame:
    """Rows before which another one has the same in these columns; ``of`` is the first such."""
    alike = some.filter(pl.struct(same).is_duplicated()).sort("row")
    return alike.with_columns(
        pl.col("row").first().over(same).alias("of"),
        pl.col("start").first().over(same).alias("its_start"),
        (pl.col("source") != pl.col("source").first().over(same)).alias("elsewhere"),
    ).filter(pl.col("row") > pl.col("of"))


def _strong(name: pl.Expr) -> pl.Expr:
    """Whether an id cannot come up twice by chance."""
    return (name.str.len_chars() >= 16) & (name.str.count_matches(r"\d") >= 4)


# ---------------------------------------------------------------------------- who is whom


def _key(name: pl.Expr) -> pl.Expr:
    """The id without what a stack puts around it."""
    core = name.str.extract(_UUID, 1).str.replace_all("-", "", literal=True).str.to_lowercase()
    return pl.coalesce(core, name.str.extract(_OPENAI, 1), name)


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
        _Kind(*key, names[own[0]] if len(own) == 1 else f"{len(own)} logs of {key[0]}")
        for key, own in members.items()
    ]
    of = {source: at for at, own in enumerate(members.values()) for source in own}
    column = pl.col("source").replace_strict(of, return_dtype=pl.Int64, default=None)
    return rows.with_columns(column.alias("kind")), kinds


def _edges(rows: pl.DataFrame, kinds: Sequence[_Kind]) -> pl.DataFrame:
    """Pairs of rows of logs of different kinds that are one request: ``row``, ``of``."""
    sides: list[pl.DataFrame] = []
    columns = ("row", "start", "input_tokens", "output_tokens", "e2e_us")
    for kind in range(len(kinds)):
        side = rows.filter(pl.col("kind") == kind)
        side = side.select(*columns, _key(pl.col("request_id")).alias("key"))
        # An id that two rows of one layer have is that of neither: choices, tries, or a counter.
        lone = pl.col("key").is_not_null() & pl.col("key").is_unique()
        sides.append(side.with_columns(pl.when(lone).then("key").alias("key")))
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


def _offset_known(delta: pl.Series, dated: bool) -> bool:
    """Whether two clocks may differ by the median of these (us): a little, or by a time zone."""
    if not dated:
        return True
    middle = delta.median()
    assert isinstance(middle, (int, float))
    rest = abs(middle - round(middle / _ZONE_US) * _ZONE_US)
    return abs(middle) <= CLOCKS_US or (abs(middle) <= _MOST_ZONE_US and rest <= PASSING_US)


def _by_id(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Pairs whose ids agree and whose figures do not speak against it."""
    pairs = one.drop_nulls("key").join(other.drop_nulls("key"), on="key", suffix="_2")
    if not pairs.height:
        return _no_pairs()
    # An id that cannot come up twice by chance needs less beside it than a counter.
    pairs = pairs.with_columns(
        _strong(pl.col("key")).alias("strong"),
        (pl.col("start_2") - pl.col("start")).alias("delta"),
    )

    def alike(name: str, least: int, share: float) -> pl.Expr:
        a, b = pl.col(name), pl.col(f"{name}_2")
        return (a - b).abs() <= pl.max_horizontal(
            pl.lit(float(least)), share * pl.max_horizontal(a, b)
        )

    near = pl.lit(True)
    timed = pairs["delta"].drop_nulls()
    if len(timed):
        dated = pairs.select(
            (pl.min_horizontal("start", "start_2") >= _DATED_US).fill_null(True).all()
        ).item()
        near = (pl.col("delta") - timed.median()).abs() <= PASSING_US
        if not _offset_known(timed, bool(dated)):
            near = pl.lit(False)
    tokens = alike("input_tokens", 16, 0.1).fill_null(True) & alike(
        "output_tokens", 4, 0.1
    ).fill_null(True)
    exact = (pl.col("input_tokens") == pl.col("input_tokens_2")) & (
        pl.col("output_tokens") == pl.col("output_tokens_2")
    )
    judged = pairs.with_columns(
        pl.when("strong").then(near.fill_null(True) & tokens)
        .otherwise(near & exact).fill_null(False).alias("same")
    )  # fmt: skip
    # Counters of two runs agree in all their ids, and in few of the figures.
    found = judged.with_columns(pl.col("same").mean().over("strong").alias("share")).filter(
        "same", pl.col("share") >= pl.when("strong").then(0.5).otherwise(0.9)
    )
    # A few small numbers agree by chance.
    weak = found.filter(~pl.col("strong"))
    kinds = weak.select(pl.struct("input_tokens", "output_tokens").n_unique()).item()
    if weak.height and (weak.height < FEW_WEAK or kinds < max(FEW_PAIRS, weak.height / 2)):
        found = found.filter("strong")
    return found.select("row", pl.col("row_2").alias("of"))


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
    dated = all(bool((side["start"] >= _DATED_US).all()) for side in (a, b))
    middle = float(np.median(delta.to_numpy()))
    hardly = dated and abs(middle) <= PASSING_US
    if not hardly and (len(delta) < MANY_PAIRS or not _offset_known(delta, dated)):
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
        return f"that of {one.name}" if one.vantage is None else f"the {one.vantage}'s"

    def listed(words: Sequence[str]) -> str:
        return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)

    places = sorted(some["kind"].unique())
    clocks = base.group_by("kind").len().sort("len", descending=True)["kind"].to_list()
    lent = {
        "queue_us": "queue times", "prefill_us": "prefill times", "cached_tokens": "cached tokens",
        "replica": "replicas",
    }  # fmt: skip
    before = base.select(list(lent)).null_count().row(0, named=True)
    after = whole.select(list(lent)).null_count().row(0, named=True)
    taken = [word for column, word in lent.items() if after[column] < before[column]]
    text = (
        f"{base.height:,} requests were seen by several layers "
        f"({', '.join(kinds[k].name for k in places)}) and are counted once: the TTFT is "
        + listed(list(dict.fromkeys(map(side, clocks))))
    )
    if taken:
        others = dict.fromkeys(side(k) for k in places if k != clocks[0])
        text += f"; {listed(taken)} are {listed(list(others))}"
    notes = [text]
    alone = rest.filter(pl.col("kind").is_in(places))["kind"].value_counts().sort("kind")
    for kind, count in alone.iter_rows():
        notes.append(
            f"{count:,} requests of {kinds[kind].name} were found in no other log and stand for "
            "themselves"
        )
    return notes
