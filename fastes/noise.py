"""The shared noise table, and what is drawn from (seed, generation, pair) alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.cpus import available_cpus
from fastes.memory import check_memory
from fastes.windows import Windows, parts

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

MIN_TABLE_SIZE = 1 << 20
MAX_TABLE_SIZE = 250_000_000
_GRAIN = 1 << 14  # parts of threads are multiples of this many values
_WORTH_A_THREAD = 1 << 20  # values to draw, or to read, that repay starting a thread


def default_table_size(num_params: int) -> int:
    """Values a table needs: 1024 policies long, at least 1M (4 MB), at most 250M (1 GB) unless one policy needs more."""
    return max(MIN_TABLE_SIZE, min(1024 * num_params, MAX_TABLE_SIZE), 2 * num_params)


class NoiseTable:
    """Standard normals shared by all candidates: a perturbation is the slice that starts at its noise_index.

    size: number of values. seed: key of the stream; value k depends on (seed, k) alone. The values are drawn at first
    use, in memory of its own or, after `place`, in the given buffer.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._values: Float32 | None = None

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
        self._values = buffer.view()
        self._values.flags.writeable = False

    def place_once(self, buffer: Float32) -> None:
        """`place`, unless the table is in this very buffer already."""
        if self._values is None or self._values.base is not buffer.base or self._values.ctypes.data != buffer.ctypes.data:
            self.place(buffer)

    def forget(self) -> None:
        """Let go of the memory; the next use draws the same values again."""
        self._values = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the values: a copy draws the same ones."""
        return {"size": self.size, "seed": self.seed, "_values": None}

    def weighted_sum(
        self, noise_index: Int64, weights: Float32, num_params: int, windows: Windows | None = None, squares: bool = False
    ) -> Float32:
        """sum_j weights[j] * eps_j as float32 (num_params,); pairs of weight zero are not read, nor is what no window covers.

        windows: the parameters that eps_j belongs to; None for all. squares: of eps_j^2 - 1 in place of eps_j.
        """
        used = np.flatnonzero(weights)
        weight = np.ascontiguousarray(weights[used])
        total, table = np.empty(num_params, dtype=np.float32), self.values
        if windows is None:
            index, kernel = np.ascontiguousarray(noise_index[used]), _core.noise_square_sum if squares else _core.noise_sum
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
    """Call function(start, end) on parts of range(size), on as many threads as the work repays; kernels release the GIL."""
    threads = min(work // _WORTH_A_THREAD, size // _GRAIN)
    threads = min(threads, available_cpus()) if threads > 1 else 1  # asking costs more than little work
    part = -(-size // (threads * _GRAIN)) * _GRAIN
    starts = range(0, size, part)
    if len(starts) < 2:
        function(0, size)
        return
    try:
        with ThreadPoolExecutor(len(starts)) as executor:
            list(executor.map(lambda start: function(start, min(start + part, size)), starts))
    except RuntimeError:  # the system gives no thread more
        function(0, size)


def write_candidate(
    out: Float32,
    theta: Float32,
    table: Float32,
    at: int,
    sigma: float | Float32,
    side: int,
    window: tuple[int, int] | None = None,
) -> None:
    """out = theta + sigma * eps for side 0, theta - sigma * eps for side 1, eps = table[at : at + num_params].

    sigma: one for all parameters, or one for each. window: the first parameter that is perturbed, and how many are; out is
    theta elsewhere, and eps begins with the window.
    """
    if window is not None:
        out[:] = theta
        for skip, part in parts(*window, len(theta)):
            own = sigma if isinstance(sigma, float) else sigma[part]
            write_candidate(out[part], theta[part], table, at + skip, own, side)
    elif isinstance(sigma, float):
        _core.perturb(out, theta, table, at, sigma if side == 0 else -sigma)
    else:
        _core.perturb_each(out, theta, table, at, sigma, side)


@dataclass(frozen=True)
class Perturbations:
    """One generation's draws. Iterating gives the candidates' parameter vectors in job order, rebuilt one by one in C.

    Job 2 * pair is theta + sigma * eps, job 2 * pair + 1 is theta - sigma * eps, eps = the slice at noise_index[pair].

    Attributes: noise_index int64 (num_pairs,); env_seed int64 (num_pairs, episodes), shared by both sides of a pair;
    action_key uint64 (num_pairs, episodes), the key of the episode's action noise; sigma_each: a sigma for each parameter,
    float32 (num_params,), of which `sigma` is the mean then, or None; windows: what each pair perturbs, None for all.
    """

    generation: int
    sigma: float
    theta: Float32
    table: NoiseTable
    noise_index: Int64
    env_seed: Int64
    action_key: npt.NDArray[np.uint64]
    sigma_each: Float32 | None = None
    windows: Windows | None = None

    @property
    def inverse_share(self) -> float:
        """What makes a sum over pairs unbiased for each parameter: so many times more are there than a pair perturbs."""
        return 1.0 if self.windows is None else len(self.theta) / self.windows.size

    @property
    def num_pairs(self) -> int:
        return len(self.noise_index)

    def __len__(self) -> int:
        return 2 * self.num_pairs

    def __getitem__(self, job: int) -> Float32:
        """Candidate number job: float32 (num_params,), a new array."""
        if not 0 <= job < len(self):
            raise IndexError(f"candidate {job} is out of range: this generation has {len(self)}")
        candidate, sigma = np.empty_like(self.theta), self.sigma if self.sigma_each is None else self.sigma_each
        window = None if self.windows is None else (int(self.windows.first[job // 2]), self.windows.size)
        write_candidate(candidate, self.theta, self.table.values, int(self.noise_index[job // 2]), sigma, job % 2, window)
        return candidate

    def __iter__(self) -> Iterator[Float32]:
        return (self[job] for job in range(len(self)))


def _words(seed: int, generation: int, count: int, episode: int, stream: int) -> npt.NDArray[np.uint32]:
    counters = np.empty((count, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(count)
    counters[:, 1] = generation
    counters[:, 2] = episode
    counters[:, 3] = stream
    return _core.philox(counters, seed)


def _episode_seeds(seed: int, generation: int, count: int, episodes: int, stream: int) -> tuple[Int64, npt.NDArray[np.uint64]]:
    """env seeds in [0, 2^31) and action keys, each (count, episodes)."""
    env_seed = np.empty((count, episodes), dtype=np.int64)
    action_key = np.empty((count, episodes), dtype=np.uint64)
    for episode in range(episodes):
        words = _words(seed, generation, count, episode + 1, stream)
        env_seed[:, episode] = words[:, 0] >> 1
        action_key[:, episode] = (words[:, 1].astype(np.uint64) << np.uint64(32)) | words[:, 2]
    return env_seed, action_key


def draw_pairs(
    seed: int, generation: int, num_pairs: int, episodes: int, num_params: int, table_size: int
) -> tuple[Int64, Int64, npt.NDArray[np.uint64]]:
    """noise_index (num_pairs,), env_seed and action_key (num_pairs, episodes): functions of (seed, generation, pair)."""
    drawn = f"what {num_pairs:,} pairs x {episodes:,} episodes draw"
    check_memory({drawn: num_pairs * (80 + 16 * episodes)}, "use fewer (population_size, episodes_per_candidate)")
    words = _words(seed, generation, num_pairs, 0, _core.STREAM_PAIR).astype(np.uint64)
    draw = (words[:, 0] << np.uint64(32)) | words[:, 1]
    noise_index = (draw % np.uint64(table_size - num_params + 1)).astype(np.int64)
    env_seed, action_key = _episode_seeds(seed, generation, num_pairs, episodes, _core.STREAM_PAIR)
    return noise_index, env_seed, action_key


def draw_windows(seed: int, generation: int, num_pairs: int, num_params: int, size: int) -> Windows:
    """Windows of so many parameters that begin anywhere; from the words that the draw of the noise index leaves."""
    words = _words(seed, generation, num_pairs, 0, _core.STREAM_PAIR).astype(np.uint64)
    draw = (words[:, 2] << np.uint64(32)) | words[:, 3]
    return Windows((draw % np.uint64(num_params)).astype(np.int64), size)


def draw_eval_seeds(seed: int, generation: int, episodes: int) -> Int64:
    """Environment seeds int64 (episodes,) of a generation's noise-free evaluation, apart from every candidate's."""
    check_memory({f"seeds and results of {episodes:,} episodes": 64 * episodes}, "play fewer (episodes, target_episodes)")
    return _episode_seeds(seed, generation, episodes, 1, _core.STREAM_EVAL)[0][:, 0]
