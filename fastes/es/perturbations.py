"""A generation's perturbations: draws that depend on (seed, generation, pair) alone, and the candidates made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.es.noise_table import NoiseTable, Windows, parts
from fastes.number_array import Float32, Int64
from fastes.system.limits import check_memory

# draws of `draw_eval_seeds` that are no generation's: none is made twice before generation 2^30
RUNG_DRAWS = 2**31  # less a rung's number: scores its trials
FINAL_SELECTION_DRAWS = 2**31 + 1  # plus a generation's: a final selection after it
REFERENCE_DRAWS = 3 * 2**30  # observations of a random policy
CONFIRMATION_DRAWS = 2**32 - 1  # less a generation's: confirms a target after it

Draws = tuple[Int64, Int64, npt.NDArray[np.uint64]]  # noise_index, env_seed and action_key of pairs


def write_candidate(
    out: Float32,
    theta: Float32,
    table: Float32,
    at: int,
    sigma: float | Float32,
    side: int,
    window: tuple[int, int] | None = None,
) -> None:
    """Write out = theta + sigma * eps for side 0, theta - sigma * eps for side 1, eps = table[at : at + num_params].

    Args:
        out, theta: float32 (num_params,).
        table: Noise, float32.
        at: Noise index of the pair.
        sigma: One for all parameters, or one for each.
        side: 0 or 1.
        window: The first parameter that is perturbed, and how many are; out is theta elsewhere, and eps begins with the
            window.
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


def _operator(of: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: of(np.asarray(self), other)


def _reflected(of: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: of(other, np.asarray(self))


@dataclass(frozen=True, eq=False)
class Perturbations:
    """One generation's draws. Iterating gives the candidates' parameter vectors in job order, rebuilt one by one in C.

    Job 2 * pair is theta + sigma * eps, job 2 * pair + 1 is theta - sigma * eps, eps = the slice at noise_index[pair].

    It reads as an array (candidates, num_params) of float32 without holding one: a candidate is rebuilt each time it is
    used. An int gives one candidate; a slice, a list or a mask gives some. `np.asarray(perturbations)`, arithmetic and an
    index of two axes rebuild all of them each time, and need 4 * candidates * num_params bytes.

    Attributes:
        generation: Its number, from 0.
        sigma: Standard deviation of the noise; the mean of sigma_each if that is given.
        theta: float32 (num_params,).
        table: The noise.
        noise_index: Begin of each pair's slice, int64 (num_pairs,).
        env_seed: int64 (num_pairs, episodes), shared by both sides of a pair.
        action_key: Key of the episode's action noise, uint64 (num_pairs, episodes).
        sigma_each: A sigma for each parameter, float32 (num_params,), or None.
        windows: The parameters that each pair perturbs, None for all.
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
    def inverse_fraction(self) -> float:
        """The factor that makes a sum over pairs unbiased: all parameters over those that a pair perturbs."""
        return 1.0 if self.windows is None else len(self.theta) / self.windows.size

    @property
    def num_pairs(self) -> int:
        return len(self.noise_index)

    @property
    def shape(self) -> tuple[int, int]:
        """(candidates, num_params)."""
        return len(self), len(self.theta)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def size(self) -> int:
        return len(self) * len(self.theta)

    @property
    def dtype(self) -> np.dtype[np.float32]:
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return 2 * self.num_pairs

    @overload
    def __getitem__(self, job: int) -> Float32: ...

    @overload
    def __getitem__(self, job: Any) -> Any: ...

    def __getitem__(self, job: Any) -> Any:
        """Return candidate number `job`, a new float32 (num_params,); for a slice, a list or a mask float32 (n, num_params).

        A tuple indexes the array of all candidates. IndexError for a number out of range.
        """
        if isinstance(job, tuple):
            return np.asarray(self)[job]
        if type(job) is not int and (isinstance(job, (bool, np.bool_)) or not hasattr(job, "__index__") or np.ndim(job)):
            return self._rows(np.arange(len(self))[job])
        number = index(job)
        if not -len(self) <= number < len(self):
            raise IndexError(f"candidate {number} is out of range: this generation has {len(self)}")
        return self._candidate(number % len(self))

    def _candidate(self, job: int) -> Float32:
        candidate = np.empty_like(self.theta)
        self._write(candidate, job)
        return candidate

    def _rows(self, jobs: Int64) -> Float32:
        """Return candidates, float32 (*jobs.shape, num_params)."""
        check_memory({f"{jobs.size:,} candidates as an array": 4 * jobs.size * len(self.theta)}, "take fewer of them at a time")
        rows = np.empty((*jobs.shape, len(self.theta)), dtype=np.float32)
        for candidate, job in zip(rows.reshape(-1, len(self.theta)), jobs.ravel(), strict=True):
            self._write(candidate, int(job))
        return rows

    def _write(self, out: Float32, job: int) -> None:
        """Write candidate number `job` into out (num_params,)."""
        window = None if self.windows is None else (int(self.windows.first[job // 2]), self.windows.size)
        write_candidate(out, self.theta, self.table.values, int(self.noise_index[job // 2]), self.sigmas, job % 2, window)

    @property
    def sigmas(self) -> float | Float32:
        """The sigma of each parameter, float32 (num_params,), or the one of all."""
        return self.sigma if self.sigma_each is None else self.sigma_each

    def __iter__(self) -> Iterator[Float32]:
        return map(self._candidate, range(len(self)))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all candidates, rebuilt, (candidates, num_params); OSError if they do not fit into memory."""
        if copy is False:
            raise ValueError("the candidates are rebuilt for each array, so copy=False cannot be: leave it out")
        return self._rows(np.arange(len(self))).astype(dtype or np.float32, copy=False)

    __add__, __radd__ = _operator(np.add), _reflected(np.add)
    __sub__, __rsub__ = _operator(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _operator(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.divide), _reflected(np.divide)
    __pow__, __matmul__, __rmatmul__ = _operator(pow), _operator(np.matmul), _reflected(np.matmul)

    def __neg__(self) -> Float32:
        return -np.asarray(self)

    if not TYPE_CHECKING:  # so that type checkers report unknown names

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or not hasattr(np.ndarray, name):
                return object.__getattribute__(self, name)
            raise AttributeError(
                f"what ask() gives has no {name!r}, since it rebuilds its candidates one by one: np.asarray(es.ask()).{name} "
                f"is that of all of them, an array of {4 * self.size:,} bytes"
            )


def draw_pairs(seed: int, generation: int, num_pairs: int, episodes: int, num_params: int, table_size: int) -> Draws:
    """Draw noise_index (num_pairs,), env_seed and action_key (num_pairs, episodes): functions of (seed, generation, pair)."""
    drawn = f"what {num_pairs:,} pairs x {episodes:,} episodes draw"
    check_memory({drawn: num_pairs * (80 + 16 * episodes)}, "use fewer (population_size, episodes_per_candidate)")
    return _core.draw_pairs(seed, generation, num_pairs, episodes, table_size - num_params + 1)


def draw_windows(seed: int, generation: int, num_pairs: int, num_params: int, size: int) -> Windows:
    """Draw windows of `size` parameters that begin anywhere, from words that the draw of the noise index leaves unused."""
    words = _core.draw_words(seed, generation, num_pairs, 0, _core.STREAM_PAIR).astype(np.uint64)
    return Windows(((words[:, 2] << np.uint64(32) | words[:, 3]) % np.uint64(num_params)).astype(np.int64), size)


def check_episodes(episodes: int) -> None:
    """Raise OSError if seeds and results of this many noise-free episodes take more memory than there is."""
    check_memory({f"seeds and results of {episodes:,} episodes": 64 * episodes}, "play fewer (episodes, target_episodes)")


def draw_eval_seeds(seed: int, draw: int, episodes: int) -> Int64:
    """Draw environment seeds below 2^31, int64 (episodes,), of noise-free episodes. Candidates' come from other words.

    draw: The number of a generation, of its own evaluation; or one that is reckoned from RUNG_DRAWS, FINAL_SELECTION_DRAWS,
        REFERENCE_DRAWS or CONFIRMATION_DRAWS. Below 2^32.
    """
    check_episodes(episodes)
    return (_core.draw_words(seed, draw, episodes, 1, _core.STREAM_EVAL)[:, 0] >> 1).astype(np.int64)
