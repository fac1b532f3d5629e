"""A table of any length in bounded memory: rows join in buckets, which get wider as the table grows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

MOST_BUCKETS = 1024


class Cursor(NamedTuple):
    """How much of a table a reader has: buckets of this many rows, and how many of them."""

    width: int = 0
    buckets: int = 0


class Thinned:
    """Rows in buckets of equal width: while all fit, one row each; then 2, 4, 8, ... rows. No row is left out.

    Args:
        positions: Columns of which a bucket has the last value, such as steps; it has the mean of the others, without NaN.
        values: Number of the others.
    """

    def __init__(self, positions: int, values: int) -> None:
        self._positions, self.width, self.rows = positions, 1, 0
        self._last = np.zeros((MOST_BUCKETS, positions))
        self._sum, self._count = np.zeros((MOST_BUCKETS, values)), np.zeros((MOST_BUCKETS, values))

    @property
    def buckets(self) -> int:
        """Number of buckets in use."""
        return -(-self.rows // self.width)

    def add(self, rows: Numbers) -> None:
        """Add rows, float64 (rows, positions + values)."""
        while self.rows + len(rows) > MOST_BUCKETS * self.width:
            self._widen()
        if not len(rows):
            return
        into = (self.rows + np.arange(len(rows))) // self.width
        firsts = np.flatnonzero(np.diff(into, prepend=-1))  # of each bucket's rows
        buckets, lasts = into[firsts], np.append(firsts[1:], len(rows)) - 1
        values, known = rows[:, self._positions :], np.isfinite(rows[:, self._positions :])
        self._last[buckets] = rows[lasts, : self._positions]
        self._sum[buckets] += np.add.reduceat(np.where(known, values, 0.0), firsts)
        self._count[buckets] += np.add.reduceat(known, firsts, dtype=np.float64)
        self.rows += len(rows)

    def _widen(self) -> None:
        """Join each pair of buckets."""
        used, half = self.buckets, MOST_BUCKETS // 2
        odd = np.minimum(2 * np.arange(half) + 1, max(used - 1, 0))  # the last one may have no partner
        self._last[:half] = self._last[odd]
        self._sum[:half], self._count[:half] = self._sum[::2] + self._sum[1::2], self._count[::2] + self._count[1::2]
        self._sum[half:] = self._count[half:] = 0.0
        self.width *= 2

    def since(self, cursor: Cursor) -> tuple[int, list[list[float | None]]]:
        """The buckets that a reader lacks.

        Returns:
            The first one's number, and a row for each: positions, then means, None if unknown.
        """
        first = max(0, cursor.buckets - 1) if cursor.width == self.width else 0  # the last one may have grown
        part = slice(first, self.buckets)
        count, known = self._count[part], self._count[part] > 0
        mean = np.divide(self._sum[part], count, out=np.full(count.shape, np.nan), where=known)
        rows = zip(self._last[part].tolist(), mean.tolist(), strict=True)
        return first, [[*map(_finite, at), *map(_rounded, values)] for at, values in rows]

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has all."""
        return Cursor(self.width, self.buckets)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(value: float) -> float | None:
    """Seven digits are more than a screen shows."""
    return float(f"{value:.7g}") if math.isfinite(value) else None
