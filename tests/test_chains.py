"""Ids that chain: whether they do, and sums that do, beside what a person would write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttftdoctor import chains
from ttftdoctor.chains import chain, chained, sums
from ttftdoctor.intake import read_log

Lists = Sequence[Sequence[int | None] | None]

WRAP = 2**64
ODD, ODDER = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9


def frame_of(lists: Lists, kind: pl.DataType | type[pl.DataType] = pl.UInt64) -> pl.DataFrame:
    return pl.DataFrame({"ids": lists}, schema={"ids": pl.List(kind)})


def slow_chain(lists: Lists) -> bool:
    """Every id at one place and after one id (or none), by a dictionary."""
    seen: dict[int, tuple[int, int | None]] = {}
    for row in lists:
        before = None
        for place, one in enumerate([i for i in row or [] if i is not None]):
            if seen.setdefault(one, (place, before)) != (place, before):
                return False
            before = one
    return True


def clean(lists: Lists) -> list[Any]:
    """Without nulls in lists; a list of nothing else is none."""
    return [row if not row else [one for one in row if one is not None] or None for row in lists]


def slow_sums(lists: Lists) -> list[list[int] | None]:
    """The sums in Python's own integers."""

    def spread(one: int, place: int) -> int:
        value = (one * ODD + place * ODDER) % WRAP
        value = (value ^ value >> 32) * ODDER % WRAP
        return (value ^ value >> 32) * ODD % WRAP

    out: list[list[int] | None] = []
    for row in lists:
        if not row:
            out.append(None if row is None else [])
            continue
        total, made = 0, []
        for place, one in enumerate([i for i in row if i is not None]):
            total = (total + spread(one, place)) % WRAP
            made.append(total)
        out.append(made or None)
    return out


#: Ids of all sizes: few, so that they recur, small, and large ones that no table could hold.
IDS = st.one_of(
    st.integers(0, 4),
    st.integers(0, 200),
    st.sampled_from([2**32 - 1, 2**32, 2**63, 2**64 - 1, ODD]),
    st.integers(0, 2**64 - 1),
)
ROWS = st.lists(st.none() | st.lists(st.none() | IDS, max_size=6), max_size=9)


@st.composite
def prompts(draw: st.DrawFn) -> Lists:
    """Lists that chain, as walks down a tree, and often one id that spoils it."""
    large = draw(st.booleans())
    tree: dict[tuple[int, ...], int] = {}
    lists: list[list[int | None] | None] = []
    for _ in range(draw(st.integers(0, 12))):
        path: tuple[int, ...] = ()
        row: list[int | None] = []
        for step in draw(st.lists(st.integers(0, 2), max_size=5)):
            path = (*path, step)
            number = len(tree)
            row.append(tree.setdefault(path, number * ODD % WRAP if large else number))
        empty = draw(st.booleans())
        lists.append(row if row or empty else None)
    filled = [row for row in lists if row]
    if draw(st.booleans()) and filled:
        spoilt = draw(st.sampled_from(filled))
        place = draw(st.integers(0, len(spoilt) - 1))
        spoilt[place] = draw(st.sampled_from(sorted(tree.values())))
    return lists


@pytest.fixture(params=[3, 2**18], ids=["small steps", "one step"])
def _step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "STEP", request.param)
    monkeypatch.setattr(chains, "SMALL", 300)


@pytest.mark.usefixtures("_step")
@settings(deadline=None, max_examples=150)
@given(st.one_of(ROWS, prompts()))
def test_as_the_slow_way(lists: Lists) -> None:
    frame, kept = chained(frame_of(lists).with_row_index("row"), "ids")
    assert frame.columns == ["row", "ids", "prefix_blocks"]
    assert frame.schema["prefix_blocks"] == pl.List(pl.UInt64)
    assert kept == slow_chain(lists)
    assert frame["prefix_blocks"].to_list() == (clean(lists) if kept else slow_sums(lists))
    assert sums(frame["ids"]).to_list() == slow_sums(lists)


@pytest.mark.usefixtures("_step")
@settings(deadline=None, max_examples=80)
@given(st.one_of(ROWS, prompts()), st.integers(0, 9), st.integers(1, 4))
def test_sums_do_not_know_the_other_rows(lists: Lists, first: int, parts: int) -> None:
    """Cut anywhere, held in several pieces: the same sums, and sums chain themselves."""
    whole = frame_of(lists)["ids"]
    made = sums(whole)
    assert chain(made)
    assert sums(whole.slice(first)).to_list() == made.to_list()[first:]
    pieces = pl.concat([whole.slice(i, 1) for i in range(len(whole))] or [whole], rechunk=False)
    assert sums(pieces).to_list() == made.to_list()
    assert chain(pieces) == chain(whole)
    many = pl.concat([whole] * parts, rechunk=False)
    assert sums(many).to_list() == made.to_list() * parts
    assert chain(many) == chain(whole)


@pytest.mark.usefixtures("_step")
@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(IDS, min_size=1, max_size=6), max_size=9))
def test_equal_sums_are_equal_beginnings(lists: list[list[int]]) -> None:
    made = sums(frame_of(lists)["ids"]).to_list()
    heads: dict[int, list[int]] = {}
    for row, ids in zip(lists, made, strict=True):
        for place, one in enumerate(ids):
            assert heads.setdefault(one, row[: place + 1]) == row[: place + 1]


@pytest.mark.parametrize(
    ("lists", "kept"),
    [
        ([], True),
        ([None, None], True),
        ([[], None, []], True),
        ([[None], [1, None, 2], [1, 2]], True),
        ([[7, 7]], False),  # the same block twice, one after the other
        ([[7, 8, 7]], False),
        ([[7, 8], [8]], False),  # once second, once first
        ([[1, 2, 3], [4, 2]], False),  # the same place, after another
        ([[1, 2], [1, 2], [1, 3]], True),
        ([[1], [1], [1]], True),
        ([[2**64 - 1, 0], [2**64 - 1, 1]], True),
        ([[2**64 - 1, 0], [0]], False),
    ],
)
@pytest.mark.usefixtures("_step")
def test_by_hand(lists: Lists, kept: bool) -> None:
    assert slow_chain(lists) == kept
    assert chain(frame_of(lists)["ids"]) == kept


@pytest.mark.parametrize("spread", [1, ODD], ids=["a table", "sorted parts"])
def test_large(spread: int) -> None:
    """More than one step of rows; one wrong id among a million is found, wherever it is."""
    rng = np.random.default_rng(4)
    rows, width, shared = 30_000, 36, 12
    ids = np.arange(rows * width, dtype=np.uint64).reshape(rows, width) + np.uint64(shared)
    ids[:, :shared] = np.arange(shared, dtype=np.uint64)
    ids *= np.uint64(spread)

    def lists(array: np.ndarray) -> pl.Series:
        return pl.Series(array, dtype=pl.Array(pl.UInt64, width)).arr.to_list()

    assert rows * width > 4 * chains.STEP
    assert chain(lists(ids))
    for row in (0, rows // 2, rows - 1):
        wrong = ids.copy()
        place = int(rng.integers(shared, width))
        wrong[row, place] = wrong[(row + 17_000) % rows, place]
        assert not chain(lists(wrong))
    # A row of one id more than all others, at the end of the last step.
    wrong = ids.copy()
    wrong[-1, -1] = ids[0, 0]
    assert not chain(lists(wrong))


@pytest.mark.parametrize("spread", [1, ODD], ids=["a table", "sorted parts"])
def test_one_giant_request(spread: int) -> None:
    n = 3 * chains.STEP + 5
    ids = pl.Series(np.arange(n, dtype=np.uint64) * np.uint64(spread)).implode()
    few = pl.concat([ids, ids.list.head(3), ids])
    assert chain(few)
    assert not chain(pl.concat([few, few.list.tail(1)]))
    made = sums(few)
    assert made.list.len().to_list() == [n, 3, n]
    assert made[0].n_unique() == n
    assert made[0].equals(made[2])
    assert made[1].to_list() == slow_sums([few[1].to_list()])[0]


def test_equal_rows() -> None:
    lists: Lists = [[5, 6, 7]] * 10_000
    frame, kept = chained(frame_of(lists), "ids")
    assert kept
    assert frame["prefix_blocks"].to_list() == lists
    assert sums(frame["ids"]).n_unique() == 1


@pytest.mark.parametrize("kind", [pl.Int64, pl.Int32, pl.UInt32, pl.Int8])
def test_other_integers(kind: type[pl.DataType]) -> None:
    """Negative ids are 64 bits like any other; small types hold the same numbers."""
    signed = kind in (pl.Int64, pl.Int32, pl.Int8)
    first = -1 if signed else 9
    lists: Lists = [[first, 2], [first, 3], None, []]
    frame, kept = chained(frame_of(lists, kind), "ids")
    assert kept
    assert frame["prefix_blocks"].to_list() == [
        [first % WRAP, 2], [first % WRAP, 3], None, [],
    ]  # fmt: skip
    assert not chained(frame_of([*lists, [2]], kind), "ids")[1]


def test_texts_and_nonsense_as_ids() -> None:
    texts = pl.DataFrame({"ids": [["a", "b"], ["a", "c", None], None, []]})
    frame, kept = chained(texts, "ids")
    assert kept
    blocks = frame["prefix_blocks"].to_list()
    assert blocks[0][0] == blocks[1][0]
    assert len({blocks[0][0], blocks[0][1], blocks[1][1]}) == 3
    assert len(blocks[1]) == 2
    assert not chained(pl.DataFrame({"ids": [["a", "b"], ["b"]]}), "ids")[1]
    floats = pl.DataFrame({"ids": [[1.0, float("nan"), -2.5], [float("inf")]]})
    assert chained(floats, "ids")[0]["prefix_blocks"].to_list() == [[1], None]
    assert chained(pl.DataFrame({"ids": [None, None]}), "ids")[1]


def test_a_reader_says_which_of_the_two_it_is(tmp_path: Path) -> None:
    row = '{{"timestamp":{},"input_length":1000,"output_length":1,"hash_ids":{}}}\n'
    path = tmp_path / "a.jsonl"
    path.write_text(row.format(0, [0, 1]) + row.format(1, [0, 2]) + row.format(2, []))
    log = read_log([str(path)])
    assert log.requests["prefix_blocks"].to_list() == [[0, 1], [0, 2], []]
    assert log.fields["prefix_blocks"].kind == "logged"
    path.write_text(row.format(0, [0, 1]) + row.format(1, [1, 0]) + row.format(2, []))
    log = read_log([str(path)])
    assert log.requests["prefix_blocks"].to_list() == slow_sums([[0, 1], [1, 0], []])
    assert log.fields["prefix_blocks"].kind == "derived"
