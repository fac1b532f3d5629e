"""The comparison of two results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same_bits(name: str, actual: Any, expected: Any) -> None:
    """Raise AssertionError unless both have the same type, shape and bits. Any NaN equals any NaN, +0 is not -0."""
    a, e = np.ascontiguousarray(actual), np.ascontiguousarray(expected)
    if a.dtype != e.dtype or np.shape(actual) != np.shape(expected):
        raise AssertionError(f"{name} is {a.dtype} {np.shape(actual)}, expected {e.dtype} {np.shape(expected)}")
    width = np.dtype(f"u{a.dtype.itemsize}")
    wrong = np.flatnonzero((a.view(width) != e.view(width)) & ~((a != a) & (e != e)))
    if len(wrong):
        got, wanted = a.ravel()[wrong[0]], e.ravel()[wrong[0]]
        raise AssertionError(f"{name}.flat[{wrong[0]}] = {got!r}, expected {wanted!r}; {len(wrong)} of {a.size} differ")
