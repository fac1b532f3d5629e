"""The noise table that all candidates share, weighted sums of its slices, and the window of parameters that a pair perturbs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from fastes import _core
from fastes.number_array import Float32, Int64
from fastes.system.limits import available_cpus, check_memory

MIN_TABLE_SIZE = 1 << 20
MAX_TABLE_SIZE = 250_000_000
GRAIN = 1 << 14  # each thread's part is a multiple of this many values
WORTH_A_THREAD = 1 << 20  # values to draw, or to read, that repay starting a thread


def default_table_size(num_params: int) -> int:
    """Return the default number of values: 1024 policies long, from 1M (4 MB) to 250M (1 GB), more if one policy needs more."""
    return max(MIN_TABLE_SIZE, min(1024 * num_params, MAX_TABLE_SIZE), 2 * num_params)


class NoiseTable:
    """Standard normals shared by all candidates: a perturbation is the slice that starts at its noise_index.

    The values are drawn at first use in its own memory, or by `place` in a buffer.

    Args:
        size: Number of values.
        seed: Key of the stream; value k depends on (seed, k) alone.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._values: Float32 | None = None
        self._buffer: Float32 | None = None  # that `share` was given

    @property
    def values(self) -> Float32:
        """The table, float32 (size,), read-only."""
        if self._values is None:
            check_memory({f"a noise table of {self.size:,} values": 4 * self.size}, "use a smaller one (noise_table_size)")
            self.place(np.empty(self.size, dtype=np.float32))
        assert self._values is not None
        return self._values

    def place(self, buffer: Float32) -> None:
        """Draw the table into buffer (size,) float32, on several threads, and keep it there."""
        _in_threads(self.size, self.size, lambda a, b: _core.normal_fill(buffer[a:b], self.seed, a))
        self.share(buffer)

    def share(self, buffer: Float32) -> None:
        """Keep the table in a buffer (size,) float32 into which a table of the same seed has drawn its values."""
        self._buffer, self._values = buffer, buffer.view()
        self._values.flags.writeable = False

    def is_in(self, buffer: Float32) -> bool:
        """Whether the table is in this buffer, the very array."""
        return self._buffer is buffer

    def release(self) -> None:
        """Free the memory; the next use draws the same values again."""
        self._values = self._buffer = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the values: a copy draws the same ones."""
        return {"size": self.size, "seed": self.seed, "_values": None, "_buffer": None}

    def weighted_sum(
        self, noise_index: Int64, weights: Float32, num_params: int, windows: Windows | None = None, squares: bool = False
    ) -> Float32:
        """Return sum_j weights[j] * eps_j. Pairs of weight zero are not read.

        Args:
            noise_index: Begin of each eps_j, int64 (num_pairs,).
            weights: float32 (num_pairs,).
            num_params: Length of the sum.
            windows: The parameters that eps_j belongs to; None for all.
            squares: Whether to sum eps_j^2 - 1 in place of eps_j.

        Returns:
            float32 (num_params,).
        """
        (used,) = weights.nonzero()
        weight = weights[used]
        total, table = np.empty(num_params, dtype=np.float32), self.values
        if windows is None:
            index, kernel = noise_index[used], _core.noise_square_sum if squares else _core.noise_sum
            _in_threads(num_params, num_params * len(used), lambda a, b: kernel(total[a:b], table, index + a, weight))
            return total
        index, begin, end = windows.pieces(used, noise_index, num_params)
        weight = np.repeat(weight, 2)

        def add(a: int, b: int) -> None:
            first, past = np.clip(begin, a, b), np.clip(end, a, b)
            met = past > first
            where, first, past = (index + first - begin)[met], (first - a)[met], (past - a)[met]
            _core.noise_sum_pieces(total[a:b], table, where, first, past, weight[met], squares)

        _in_threads(num_params, windows.size * len(used), add)
        return total


def _in_threads(size: int, work: int, function: Callable[[int, int], None]) -> None:
    """Call function(start, end) on parts of range(size), on as many threads as are worth starting; kernels release the GIL."""
    threads = min(work // WORTH_A_THREAD, size // GRAIN)
    if threads > 1:  # asking for CPUs costs more than little work
        threads = min(threads, available_cpus())
    if threads < 2:
        function(0, size)
        return
    part = -(-size // (threads * GRAIN)) * GRAIN
    starts = range(0, size, part)
    try:
        with ThreadPoolExecutor(len(starts)) as executor:
            list(executor.map(lambda start: function(start, min(start + part, size)), starts))
    except RuntimeError:  # the system gives no more threads
        function(0, size)


# --- windows, if perturbed_fraction is less than 1 ------------------------------------------------------------------


def window_size(fraction: float, num_params: int) -> int:
    """Return how many parameters a pair perturbs: the fraction of all, rounded up; 0, for no window, if that is all."""
    size = max(1, math.ceil(fraction * num_params - 1e-9))
    return size if size < num_params else 0


class Windows(NamedTuple):
    """The parameters that each pair of a generation perturbs; a window continues at the first parameter after the last.

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
