"""Order statistics: the fast ways give what NumPy gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor import stats

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
