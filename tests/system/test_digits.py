"""Risk: a return is shown without the digits that matter, as 0.9 for 0.85 and 0.94 alike."""

from __future__ import annotations

import math

import pytest

from fastes.system.digits import in_digits


@pytest.mark.parametrize(
    ("returns", "texts"),
    [
        ((4913.24, 12.3, -1.0), ("4913.2", "12.3", "-1.0")),
        ((0.944, 0.021, 0.9), ("0.94", "0.02", "0.90")),
        ((0.0517,), ("0.052",)),
        ((0.999,), ("1.00",)),
        ((1.0, 0.25), ("1.0", "0.2")),
        ((0.0, 0.0), ("0.0", "0.0")),
        ((0.04, 7.0), ("0.0", "7.0")),
        ((3.1e-320, 1e-5), ("3.10e-320", "1.00e-05")),
        ((1e306,), ("1.00e+306",)),
        ((-math.inf, math.nan, 0.5), ("-inf", "nan", "0.50")),
    ],
)
def test_returns_have_the_digits_that_tell_them_apart(returns: tuple[float, ...], texts: tuple[str, ...]) -> None:
    assert in_digits(*returns) == texts
