"""Returns as texts with digits that tell them apart: those of some tasks are thousands, those of others lie between 0 and 1."""

from __future__ import annotations

import math

_LEAST, _MOST = 1e-3, 1e12  # sizes from which on, and up to which, a return has no exponent


def in_digits(*returns: float, separator: str = "") -> tuple[str, ...]:
    """Return returns as texts, all with the same number of decimals.

    They have one decimal. If all lie between -1 and 1, the largest has two digits that count, as in 0.94 or 0.052. If the
    largest is below 0.001, or 1e12 or more, they have an exponent.

    Args:
        returns: Returns of one task, and what is compared with them, such as their standard deviation.
        separator: Stands between thousands: "" or ",".
    """
    largest = max((abs(value) for value in returns if math.isfinite(value)), default=0.0)
    if largest and not _LEAST <= largest < _MOST:
        return tuple(f"{value:.2e}" for value in returns)
    decimals = 1 - math.floor(math.log10(largest)) if 0.0 < largest < 1.0 else 1
    return tuple(f"{value:{separator}.{decimals}f}" for value in returns)
