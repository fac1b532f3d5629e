"""The part of the parameters that each pair perturbs: a window, which continues at the first parameter after the last."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def window_size(fraction: float, num_params: int) -> int:
    """Return how many parameters a pair perturbs: the fraction of all, rounded up; 0, for no window, if that is all."""
    size = max(1, math.ceil(fraction * num_params - 1e-9))
    return size if size < num_params else 0


class Windows(NamedTuple):
    """The windows of a generation's pairs.

    The k-th parameter of a window takes the k-th value of the pair's slice of the noise table.

    Attributes:
        first: The first parameter of each pair's window, int64 (num_pairs,).
        size: Parameters in each.
    """

    first: Int64
    size: int

    def pieces(self, pairs: Int64, noise_index: Int64, num_params: int) -> tuple[Int64, Int64, Int64]:
        """Return both parts of these pairs' windows; the second is empty if a window does not reach the last parameter.

        Args:
            pairs: Numbers of the pairs, int64 (n,).
            noise_index: Begin of each pair's slice of the noise, int64 (num_pairs,).
            num_params: Length of theta.

        Returns:
            Index of the noise, first parameter and the one after the last of each part, int64 (2 n,) each.
        """
        first, index = self.first[pairs], noise_index[pairs]
        past = first + self.size
        where = np.stack([index, index + (num_params - first)], axis=1)
        begin = np.stack([first, np.zeros_like(first)], axis=1)
        end = np.stack([np.minimum(past, num_params), np.maximum(past - num_params, 0)], axis=1)
        return where.ravel(), begin.ravel(), end.ravel()


def parts(first: int, size: int, num_params: int) -> Iterator[tuple[int, slice]]:
    """Yield the parts of a window, as (values of its noise that come before, parameters)."""
    yield 0, slice(first, min(first + size, num_params))
    if first + size > num_params:
        yield num_params - first, slice(first + size - num_params)
