"""The weighted noise sum over the bandwidth of this machine's memory and over NumPy."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.speed.kernel_checks import check_large_sum
from benchmarks.speed.timing import interleaved_seconds, median_ratio
from benchmarks.tables import against_aim, markdown_table
from fastes import _core
from fastes.es.noise_table import NoiseTable

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Ways = dict[str, Callable[[], Any]]

SHARE_AIM, NUMPY_AIM = 0.75, 4.0
ONE, TWO, COPIES = "noise_sum, 1 thread", "NoiseTable.weighted_sum, 2 threads", "NumPy, slices copied"
_BATCH = 32  # slices the NumPy way copies at a time: all 512 at once would need 3.5 GB


def reading_ways(table: Float32) -> Ways:
    """Ways to read the whole table in order on one thread; the fastest is the bandwidth. No BLAS: it starts threads."""
    whole = table[: len(table) // 2 * 2]
    as_float, as_int = whole.view(np.float64), whole.view(np.int64)
    return {
        "read: sum of int64": as_int.sum,
        "read: or of int64": lambda: np.bitwise_or.reduce(as_int),
        "read: sum of float64": as_float.sum,
        "read: max of float32": whole.max,
        "read: sum_squares in C": lambda: _core.sum_squares(whole),
    }


def read_on_two_threads(table: Float32, threads: ThreadPoolExecutor) -> None:
    halves = np.array_split(table[: len(table) // 4 * 4].view(np.int64), 2)
    list(threads.map(np.bitwise_or.reduce, halves))


def copied_sum(out: Float32, table: Float32, noise_index: Int64, weights: Float32) -> None:
    """The NumPy way: slices are copied into rows, then multiplied by the weights."""
    out[:] = 0.0
    for at in range(0, len(noise_index), _BATCH):
        rows = np.stack([table[i : i + len(out)] for i in noise_index[at : at + _BATCH]])
        out += weights[at : at + _BATCH] @ rows


def added_sum(out: Float32, table: Float32, noise_index: Int64, weights: Float32) -> None:
    """NumPy without copies: each product is made and added."""
    out[:] = 0.0
    for i, weight in zip(noise_index, weights, strict=True):
        out += table[i : i + len(out)] * weight


def time_noise_sum(table_size: int, num_params: int, slices: int, repeats: int) -> str:
    """A markdown table: milliseconds, GB/s read, share of the reading bandwidth, ratio over NumPy."""
    table, rng = NoiseTable(table_size, 1), np.random.default_rng(0)
    noise_index = rng.integers(0, table_size - num_params + 1, slices)
    arrays = table.values, noise_index, rng.standard_normal(slices, dtype=np.float32)
    check_large_sum(*arrays, num_params)
    out = np.empty(num_params, dtype=np.float32)
    reading = reading_ways(table.values)
    summing: Ways = {
        ONE: lambda: _core.noise_sum(out, *arrays),
        TWO: lambda: table.weighted_sum(*arrays[1:], num_params),
        COPIES: lambda: copied_sum(out, *arrays),
        "NumPy, products added": lambda: added_sum(out, *arrays),
    }
    with ThreadPoolExecutor(2) as threads:
        both: Ways = {"read: or of int64, 2 threads": lambda: read_on_two_threads(table.values, threads)}
        seconds = interleaved_seconds({**reading, **both, **summing}, repeats)
    fastest = min(reading, key=lambda name: statistics.median(seconds[name]))
    rows = []
    for name, times in seconds.items():
        volume = 4e-9 * (slices * num_params if name in summing else table_size)
        share = median_ratio([volume / s for s in times], [4e-9 * table_size / s for s in seconds[fastest]])
        over = median_ratio(seconds[COPIES], times) if name in summing else 0.0
        aims = f"share {against_aim(share, SHARE_AIM)}, over NumPy {against_aim(over, NUMPY_AIM)}" if name == ONE else ""
        label = f"{name} (the bandwidth)" if name == fastest else name
        median = statistics.median(times)
        rows.append(
            (label, f"{1e3 * median:.1f}", f"{volume / median:.1f}", f"{share:.2f}", f"{over:.1f}" if over else "", aims)
        )
    title = f"### Weighted noise sum: {slices} slices of {num_params:,} from a table of {table_size:,} floats\n\n"
    return title + markdown_table(("what", "ms", "GB/s", "share of bandwidth", "over slices copied", "aims"), rows)
