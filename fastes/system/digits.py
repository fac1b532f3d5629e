"""Numbers as people read them: returns, counts, steps and durations."""

from __future__ import annotations

import math

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
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


def digits_of(value: float) -> str:
    """Return one return as a text; see `in_digits`."""
    return in_digits(value)[0]


def number_in_words(value: float) -> str:
    """Return a number with four digits; one of 10,000 to 1e12 with all before the point."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def short(number: float) -> str:
    """Format a number with at most five characters: 960, 1.23k, 400k, 12.3M."""
    from tqdm import tqdm

    return f"{number:.0f}" if number < 999.5 else str(tqdm.format_sizeof(number))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration_in_words(seconds: float) -> str:
    """Return seconds as one number with a fitting unit."""
    for size, unit in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"
