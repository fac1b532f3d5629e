"""The part of the parameters that each pair perturbs: a window, which continues at the first parameter after the last."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def window_size(share: float, num_params: int) -> int:
    """Parameters that a pair perturbs: the share of all, rounded up. 0 where that is all of them: there is no window then."""
    size = max(1, math.ceil(share * num_params - 1e-9))
    return size if size < num_params else 0


class Windows(NamedTuple):
    """The windows of a generation's pairs.

    first: int64 (num_pairs,), where each pair's window begins.
    size: parameters in each.

    The k-th parameter of a window takes the k-th value of the pair's slice of the noise table.
    """

    first: Int64
    size: int

    def pieces(self, pairs: Int64, noise_index: Int64, num_params: int) -> tuple[Int64, Int64, Int64]:
        """Both parts of these pairs' windows: where the noise lies, and the parameters begin to end (2 * len(pairs),).

        The part after the turn is empty where a window does not reach the end.
        """
        first, index = self.first[pairs], noise_index[pairs]
        past = first + self.size
        where = np.stack([index, index + (num_params - first)], axis=1)
        begin = np.stack([first, np.zeros_like(first)], axis=1)
        end = np.stack([np.minimum(past, num_params), np.maximum(past - num_params, 0)], axis=1)
        return where.ravel(), begin.ravel(), end.ravel()


def parts(first: int, size: int, num_params: int) -> Iterator[tuple[int, slice]]:
    """One window's parts, as (values of its noise that come before, parameters)."""
    yield 0, slice(first, min(first + size, num_params))
    if first + size > num_params:
        yield num_params - first, slice(first + size - num_params)
