"""Running statistics of the observations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import check_int
from fastes.number_array import Float64, Int64, number_array

State = dict[str, Float64 | Int64]
PREFIX = "normalizer."  # of its arrays' names in a checkpoint
EXACT_ABOVE = 1024  # candidates of a generation: up to so many are summed in job order, more exactly and in any order
_BITS = 32  # of a digit
_LOWEST, _HIGHEST = -1088 // _BITS, 992 // _BITS  # digits of the smallest and of the largest float64
_ROWS = 256  # jobs that are split into digits at a time: more would only take memory


@dataclass(frozen=True)
class MomentSums:
    """Sums of episodes' moments without any rounding, so that parts can be added in any order and on any machine.

    Attributes:
        digits: Each value's sum is sum_k digits[k] * 2^(32 k), int64 (2, obs_size) for each k that occurs.
        observations: The number of observations.
        episodes: The number of their episodes.
        skipped: Episodes left out because an observation was not finite.
    """

    digits: Mapping[int, Int64]
    observations: int
    episodes: int
    skipped: int

    @classmethod
    def of(cls, moments: Float64, counts: Int64) -> MomentSums:
        """Sum the moments (jobs, 2, obs_size) and the numbers of observations (jobs,) of at most 2^30 jobs."""
        total = cls({}, 0, 0, 0)
        for at in range(0, len(counts), _ROWS):
            part, observed = moments[at : at + _ROWS], counts[at : at + _ROWS]
            usable, skipped = _usable(part, observed)
            added, episodes = int(observed[usable].sum()), int(np.count_nonzero(usable))
            total += cls(_digits_of(part[usable]), added, episodes, skipped)
        return total

    def __add__(self, other: MomentSums) -> MomentSums:
        """Return the sums over the episodes of both."""
        digits = dict(self.digits)
        for k, values in other.digits.items():
            digits[k] = digits[k] + values if k in digits else values
        observations, episodes = self.observations + other.observations, self.episodes + other.episodes
        return MomentSums(digits, observations, episodes, self.skipped + other.skipped)

    def rounded(self, shape: tuple[int, ...]) -> Float64:
        """Return the sums as float64 of this shape, each rounded once; infinite beyond the largest float."""
        if not self.digits:
            return np.zeros(shape)
        parts = []
        for k, values in self.digits.items():  # of both halves, which float64 holds exactly
            parts += [(values >> _BITS, k + 1), (values & (2**_BITS - 1), k)]
        columns = np.stack([half.ravel() for half, _ in parts], axis=1).tolist()
        places = [_BITS * k for _, k in parts]
        return np.array([_rounded(column, places) for column in columns]).reshape(shape)


def _digits_of(values: Float64) -> dict[int, Int64]:
    """Return k -> the digits of 2^(32 k), summed over the first axis. Each value's digit is a whole number below 2^32."""
    digits = {}
    top = math.frexp(float(np.abs(values).max(initial=0.0)))[1]
    for k in range(min(top // _BITS, _HIGHEST), _LOWEST - 1, -1):
        if not values.any():
            break
        digit = np.trunc(np.ldexp(values, -_BITS * k))
        values = values - np.ldexp(digit, _BITS * k)  # exact: the digits that are left
        if digit.any():
            digits[k] = digit.astype(np.int64).sum(axis=0)
    return digits


def _rounded(digits: list[int], places: list[int]) -> float:
    """Return sum_j digits[j] * 2^places[j] of whole numbers, rounded once."""
    lowest = min(places)
    total = sum(digit << (place - lowest) for digit, place in zip(digits, places, strict=True))
    try:
        return float(total << lowest) if lowest >= 0 else total / (1 << -lowest)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _usable(moments: Float64, counts: Int64) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which jobs have finite observations only, (jobs,), and how many have others."""
    seen, finite = counts > 0, np.isfinite(moments)
    if finite.all():
        return seen, 0
    usable = finite.all(axis=(1, 2)) & seen
    return usable, int(np.count_nonzero(seen & ~usable))


def number_skipped(moments: Float64 | MomentSums, counts: Int64) -> int:
    """Return how many jobs `merge` leaves out, as an observation was not finite."""
    return moments.skipped if isinstance(moments, MomentSums) else _usable(moments, counts)[1]


class ObsNormalizer:
    """Mean, std and count of all observations of candidates. Workers get a snapshot per generation.

    Attributes:
        mean, std: float64 (obs_size,), read-only. Without data the mean is 0 and the std 1. `given` sets them.
        count: The number of observations.
        skipped: Episodes left out because an observation was not finite.
        clip: Normalised observations are clipped to +-clip.
        std_floor: The smallest std, so that a nearly constant component is not blown up.
    """

    def __init__(self, obs_size: int, clip: float = 5.0, std_floor: float = 1e-2) -> None:
        self.obs_size, self.clip, self.std_floor = obs_size, clip, std_floor
        self.count = 0
        self._mean: Float64 = _read_only(np.zeros(obs_size))
        self._squares: Float64 = _read_only(np.zeros(obs_size))
        self.skipped = 0

    @property
    def mean(self) -> Float64:
        return self._mean

    @property
    def squares(self) -> Float64:
        """Sums of squared deviations from the mean, float64 (obs_size,), read-only."""
        return self._squares

    @property
    def std(self) -> Float64:
        if self.count == 0:
            return _read_only(np.ones(self.obs_size))
        return _read_only(np.maximum(np.sqrt(self.squares / self.count), self.std_floor))

    def given(self, mean: npt.ArrayLike, std: npt.ArrayLike, count: int) -> ObsNormalizer:
        """Return a normaliser with the same limits and these statistics.

        Args:
            mean: (obs_size,).
            std: (obs_size,).
            count: The number of observations that they are taken to be of.

        Raises:
            ValueError: For another shape, a value that is not finite, or a std below std_floor, which would be raised to it.
        """
        given = (("mean", mean), ("std", std))
        values = [number_array(f"the values of {name}", value, "numbers, (n,)") for name, value in given]
        for name, array in zip(("mean", "std"), values, strict=True):
            if array.shape != (self.obs_size,):
                raise ValueError(f"{name} has shape {array.shape}: expected ({self.obs_size},), a number per observed value")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite: expected finite numbers only")
        if (low := np.flatnonzero(~(values[1] >= self.std_floor))).size:
            raise ValueError(
                f"std[{low[0]}] = {values[1][low[0]]:g} is below obs_std_floor = {self.std_floor:g}, to which it would be "
                "raised: expected at least that, or a model with a smaller obs_std_floor"
            )
        count = check_int("count", count, 1, 10**15)
        with np.errstate(over="ignore", under="ignore"):
            squares = values[1] * values[1] * count
            odd = np.flatnonzero(~np.isclose(np.sqrt(squares / count), values[1], rtol=1e-9, atol=0.0) | np.isinf(squares))
        if odd.size:
            raise ValueError(
                f"std[{odd[0]}] = {values[1][odd[0]]:g}: expected numbers from 1e-140 to 1e+140, whose squares float64 can hold"
            )
        counts = np.array([count, self.skipped], dtype=np.int64)
        return self.like({"mean": values[0], "squares": squares, "counts": counts})

    def merge(self, moments: Float64 | MomentSums, counts: Int64) -> None:
        """Add episodes.

        Args:
            moments: Sums of obs - mean and of its square, float64 (jobs, 2, obs_size), or the sums over all jobs.
            counts: Observations of each job, int64 (jobs,).
        """
        mean, squares, self.count, self.skipped = self.merged(moments, counts)
        self._mean, self._squares = _read_only(mean), _read_only(squares)

    def merged(self, moments: Float64 | MomentSums, counts: Int64) -> tuple[Float64, Float64, int, int]:
        """Return mean, squares, count and skipped after `merge`, without changing this normaliser.

        Up to EXACT_ABOVE episodes are summed in job order; more are summed exactly, possibly in parts. The sums are joined with
        the earlier statistics (Chan et al. 1979, equation 2.1). An episode with a non-finite observation is left out.
        """
        if not isinstance(moments, MomentSums) and len(moments) > EXACT_ABOVE:
            moments = MomentSums.of(moments, counts)
        if isinstance(moments, MomentSums):
            sums = moments.rounded((2, self.obs_size))
            added, episodes, skipped = moments.observations, moments.episodes, moments.skipped
        else:
            sums, added, episodes, skipped = _core.sum_moments(moments, counts)
        skipped += self.skipped
        if added == 0:
            return self.mean, self.squares, self.count, skipped
        joined = _core.join_moments(self.mean, self.squares, self.count, sums, added)
        if joined is None:
            return self.mean, self.squares, self.count, skipped + episodes
        return *joined, self.count + added, skipped

    def like(self, state: Mapping[str, npt.NDArray[Any]]) -> ObsNormalizer:
        """Return a normaliser with the same limits that continues from a `state()`."""
        new = ObsNormalizer(self.obs_size, self.clip, self.std_floor)
        new.load_state(state)
        return new

    def named_state(self) -> State:
        """Return the state under the names that it has in a checkpoint."""
        return {f"{PREFIX}{name}": array for name, array in self.state().items()}

    def state(self) -> State:
        """Return copies of the statistics."""
        counts = np.array([self.count, self.skipped], dtype=np.int64)
        return {"mean": self.mean.copy(), "squares": self.squares.copy(), "counts": counts}

    def load_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from a `state()`."""
        self._mean = _read_only(np.array(state["mean"], dtype=np.float64))
        self._squares = _read_only(np.array(state["squares"], dtype=np.float64))
        self.count, self.skipped = (int(n) for n in state["counts"])


def _read_only(array: Float64) -> Float64:
    """Protect an array: records of a training share it, and a write to std, which is computed, would be lost."""
    array.flags.writeable = False
    return array
