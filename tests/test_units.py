"""How numbers are printed."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttftdoctor.units import count, figure, milliseconds, seconds, share, signed_share, tokens

PRINTERS = (seconds, milliseconds, figure, count, tokens, share)


@pytest.mark.parametrize("printer", [*PRINTERS, signed_share])
def test_the_unknown_is_a_dash(printer) -> None:
    for value in (None, math.nan, math.inf, -math.inf):
        if printer is not figure or value is not None:
            assert printer(value) == "-"


@pytest.mark.parametrize(
    ("said", "want"),
    [
        (seconds(-0.0025), "−2.5 ms"),
        (seconds(-2.1), "−2.10 s"),
        (seconds(-1e-9), "0"),
        (milliseconds(8.74e-08), "0 ms"),
        (milliseconds(-0.00005), "0 ms"),
        (milliseconds(0.0123), "0.0123 ms"),
        (share(-0.0004), "0.0 %"),
        (share(-0.21), "−21 %"),
        (share(0.004), "0.4 %"),
        (figure(-1330.0), "−1,330"),
        (figure(0.0000512), "0.0000512"),
        (count(-0.4), "0"),
        (tokens(-14.2e6), "−14.2 M"),
    ],
)
def test_signs(said: str, want: str) -> None:
    assert said == want


@given(st.floats(-1e12, 1e12), st.sampled_from(PRINTERS))
def test_a_number_and_its_negative_differ_by_a_true_minus(value: float, printer) -> None:
    one, other = printer(abs(value)), printer(-abs(value))
    assert not set("-e") & set(one + other)
    assert other in (one, f"−{one}")
    assert (other == one) == (not re.search(r"[1-9]", one))
