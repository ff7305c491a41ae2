"""Orders, ranks and counts: the fast ways give what the plain ones give, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor import stats
from ttftdoctor.measure.lines import all_follow, follows
from ttftdoctor.measure.rows import _numbered
from ttftdoctor.measure.signs import _across

NUMBERS = st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=60)


@pytest.mark.parametrize("many", [1, 10**9], ids=["large", "small"])
class TestOrder:
    """Both ways on the same values, whatever their number."""

    @given(values=NUMBERS, q=st.floats(0, 1))
    def test_any_numbers(self, many: int, values: list[float], q: float) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stats, "MANY", many)
            array = np.array(values)
            assert stats.quantile(array, q) == np.quantile(array, q)
            assert stats.median(array) == np.median(array)

    @pytest.mark.parametrize("size", [9_999, 10_000, 10_001, 123_457])
    def test_many_numbers(self, many: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stats, "MANY", many)
        rng = np.random.default_rng(size)
        for values in (rng.lognormal(size=size), rng.integers(0, 4, size).astype(float)):
            assert stats.median(values) == np.median(values)
            for q in (0.02, 0.25, 0.5, 0.9, 0.95, 0.995, *rng.random(5)):
                assert stats.quantile(values, float(q)) == np.quantile(values, q)

    def test_unknown(self, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stats, "MANY", many)
        assert np.isnan(stats.median(np.array([1.0, np.nan, 3.0])))
        assert np.isnan(stats.quantile(np.empty(0), 0.5))

    def test_order_of_values_is_left_alone(
        self, many: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stats, "MANY", many)
        values = np.array([3.0, 1.0, 2.0])
        stats.median(values)
        assert values.tolist() == [3.0, 1.0, 2.0]


# --- orders and numbers -------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(-1, 3), st.integers(-1, 2**33)), max_size=60))
def test_stable_order(codes: list[int]) -> None:
    array = np.array(codes, dtype=np.int64)
    assert stats.in_order(array).tolist() == np.argsort(array, kind="stable").tolist()


#: Few, so that some are the same; many with one upper half, as if by chance.
HASHES = st.lists(
    st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 40), st.integers(2**40, 2**40 + 40)),
    min_size=1, max_size=80,
)  # fmt: skip


@given(HASHES)
def test_numbers_of_hashes(hashes: list[int]) -> None:
    array = np.array(hashes, dtype=np.uint64)
    kinds, codes = _numbered(array)
    expected, numbers = np.unique(array, return_inverse=True)
    assert kinds.tolist() == expected.tolist()
    assert codes.tolist() == numbers.tolist()


def test_a_rare_hash_after_many_of_few_kinds() -> None:
    array = np.array([7, 9] * 1000 + [8], dtype=np.uint64)
    kinds, codes = _numbered(array)
    assert kinds.tolist() == [7, 8, 9]
    assert codes[-3:].tolist() == [0, 2, 1]


# --- counts -------------------------------------------------------------------------------------

MOMENTS = st.lists(st.integers(0, 12).map(float), max_size=30)


@given(moments=MOMENTS, until=MOMENTS)
def test_moments_passed(moments: list[float], until: list[float]) -> None:
    found = stats.passed(np.array(moments, dtype=float), np.array(sorted(until), dtype=float))
    assert found.tolist() == [sum(m <= u for m in moments) for u in sorted(until)]


@given(spans=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30),
       moments=MOMENTS)  # fmt: skip
def test_spans_across(spans: list[tuple[int, int]], moments: list[float]) -> None:
    begin, end = (np.array([span[i] for span in spans], dtype=float) for i in (0, 1))
    found = _across(begin, end, np.array(sorted(moments), dtype=float))
    assert found.tolist() == [sum(b < m <= e for b, e in spans) for m in sorted(moments)]


# --- ranks --------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(0, 5).map(float), st.floats(-4, 40)), max_size=40))
def test_ranks(values: list[float]) -> None:
    expected = [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]
    assert stats.rank(np.array(values, dtype=float)).tolist() == expected


@given(st.integers(0, 2**32), st.integers(0, 40), st.booleans())
def test_all_follow_as_each_does(seed: int, n: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    columns = [y + rng.normal(size=n), rng.integers(0, 4, n).astype(float), np.ones(n)]
    if gaps:
        columns.append(np.where(rng.random(n) < 0.2, np.nan, y))
        columns.append(np.where(rng.random(n) < 0.2, np.inf, y))
    assert all_follow(columns, y) == [follows(x, y) for x in columns]
    holed = np.where(np.arange(n) == 3, np.nan, y)
    assert all_follow(columns, holed) == [follows(x, holed) for x in columns]
