"""Which request of its session each one goes on from, held against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor.measure.turns import (
    FACTOR,
    SIDE_CALLS,
    Array,
    Index,
    grows,
    growth,
    steps_back,
    steps_open,
)

LENGTHS = st.lists(st.one_of(st.integers(0, 40), st.none()), min_size=1, max_size=30)


def back_of(*inputs: float | None) -> list[int]:
    """Steps back of the rows of one session."""
    return steps_back(np.arange(1, len(inputs) + 1), np.array(inputs, dtype=float)).tolist()


def slowly(inputs: list[float], i: int) -> int:
    """Steps back of row ``i``, by the definition."""
    far = [
        back
        for back in range(2, min(i, SIDE_CALLS + 1) + 1)
        if FACTOR * max(inputs[i - back + 1 : i]) < min(inputs[i - back], inputs[i])
        and inputs[i - back] <= FACTOR * inputs[i]
        and not any(np.isnan(inputs[i - back : i + 1]))
    ]
    return max(far, default=min(i, 1))


@given(st.lists(LENGTHS, min_size=1, max_size=4))
def test_steps_are_those_of_the_definition(sessions: list[list[int | None]]) -> None:
    nth: Index = np.concatenate([np.arange(1, len(one) + 1) for one in sessions])
    values: list[Array] = [np.array(one, dtype=float) for one in sessions]
    want = [slowly(one.tolist(), i) for one in values for i in range(len(one))]
    assert steps_back(nth, np.concatenate(values)).tolist() == want


@given(LENGTHS, LENGTHS)
def test_what_is_carried_is_all_that_later_rows_need(
    earlier: list[int | None], later: list[int | None]
) -> None:
    whole = np.array([*earlier, *later], dtype=float)
    want = steps_back(np.arange(1, len(whole) + 1), whole)[len(earlier) :]
    end = np.array([len(earlier) - 1])
    (reach,) = steps_open(np.arange(1, len(earlier) + 1), end, whole[: len(earlier)])
    assert 1 <= reach <= SIDE_CALLS + 1
    part = whole[len(earlier) - reach :]
    found = steps_back(np.arange(1, len(part) + 1), part)[reach:]
    assert found.tolist() == want.tolist()


def test_a_side_call_is_passed_over() -> None:
    assert back_of(14000, 1400, 15900, 17500) == [0, 1, 2, 1]
    assert back_of(14000, 1400, 1500, 600, 15900, 900, 17500) == [0, 1, 1, 1, 4, 1, 2]


def test_a_turn_is_passed_no_more_calls_than_that() -> None:
    calls = [900.0] * SIDE_CALLS
    assert back_of(9000, *calls, 9500)[-1] == SIDE_CALLS + 1
    assert back_of(9000, *calls, 900, 9500)[-1] == 1


@pytest.mark.parametrize(
    "inputs",
    [
        (3000, 6000, 9000, 12000),  # grows
        (3000, 4500, 500, 900, 1300, 1700, 2100),  # was compacted
        (40000, 8000, 17000, 30000, 41000),  # was compacted, and grows fast
        (8000, 7600, 7900, 8100, 7700),  # a window that slides
        (5000, 4600, 5300, 5300, 6000),  # an edit and a retry
        (500, 3000, 20000),  # long messages
        (9000, None, 9500),  # nobody knows
    ],
)
def test_other_turns_go_on_from_the_one_before(inputs: tuple[float | None, ...]) -> None:
    assert back_of(*inputs) == [0] + [1] * (len(inputs) - 1)


def test_branches_side_by_side_are_told_apart_by_their_length() -> None:
    assert back_of(10000, 3000, 11000, 4000, 12000) == [0, 1, 2, 1, 2]


# --- whether they are conversations -------------------------------------------------------------


def conversations(inputs: list[list[float]], cached: int | None = None) -> bool:
    """Whether sessions of such inputs are taken for conversations."""
    parts = []
    for one in inputs:
        back = np.array(back_of(*one))
        before = [None if not b else one[i - b] for i, b in enumerate(back)]
        parts.append(
            pl.DataFrame(
                {
                    "input_tokens": one,
                    "previous_input": before,
                    "passed_over": np.maximum(back - 1, 0),
                },
                schema={
                    "input_tokens": pl.Int64,
                    "previous_input": pl.Int64,
                    "passed_over": pl.Int64,
                },
                strict=False,
            )
        )
    frame = pl.concat(parts).with_columns(pl.lit(cached, dtype=pl.Int64).alias("cached_tokens"))
    return grows(frame.select(**growth()).row(0, named=True))


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_histories_grow_whatever_comes_between(calls: int) -> None:
    rng = np.random.default_rng(calls)
    chats = []
    for _ in range(6):
        turns = np.cumsum(rng.integers(300, 900, 8)) + 3000
        sides = [rng.integers(200, 1400, calls).tolist() for _ in turns]
        chats.append(
            list(itertools.chain(*([int(t), *s] for t, s in zip(turns, sides, strict=True))))
        )
    assert conversations(chats)


@pytest.mark.parametrize("kind", ["one", "wide", "two", "in turn"])
def test_lengths_drawn_at_random_do_not(kind: str) -> None:
    rng = np.random.default_rng(7)
    short, long = rng.normal(500, 40, 300), rng.normal(9000, 900, 300)
    inputs = {
        "one": rng.integers(200, 8000, 300),
        "wide": np.exp(rng.normal(6, 2, 300)),
        "two": np.where(rng.random(300) < 0.5, short, long),
        "in turn": np.where(np.arange(300) % 2 == 0, short, long),
    }[kind].astype(int)
    assert not conversations(np.split(inputs, 5))
    assert conversations(np.split(inputs, 5), cached=2048)


def test_steps_of_fixed_lengths_are_no_conversations() -> None:
    """A step that is always the shortest falls and never comes back."""
    rng = np.random.default_rng(8)
    jobs = [[2000 + int(rng.integers(50)), 3000, 900] for _ in range(40)]
    assert not conversations(jobs)
