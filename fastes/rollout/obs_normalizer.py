"""Running statistics of the observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
State = dict[str, Float64 | npt.NDArray[np.int64]]


class ObsNormalizer:
    """Mean, std and count of every observation that candidates saw; workers get a snapshot each generation.

    mean, std: float64 (obs_size,). Without data the mean is 0 and the std 1.
    clip: normalised observations are clipped to +-clip.
    std_floor: no std is smaller, so that a nearly constant component is not blown up.
    """

    def __init__(self, obs_size: int, clip: float = 5.0, std_floor: float = 1e-2) -> None:
        self.obs_size, self.clip, self.std_floor = obs_size, clip, std_floor
        self.count = 0
        self.mean: Float64 = np.zeros(obs_size)
        self.squares: Float64 = np.zeros(obs_size)  # sum of squared deviations from the mean
        self.skipped = 0  # episodes left out because an observation was not finite

    @property
    def std(self) -> Float64:
        if self.count == 0:
            return np.ones(self.obs_size)
        return np.maximum(np.sqrt(self.squares / self.count), self.std_floor)

    def merge(self, moments: Float64, counts: npt.NDArray[np.int64]) -> None:
        """Add episodes: moments (jobs, 2, obs_size), sums of obs - mean and of its square; counts (jobs,), observations."""
        self.load_state(self.merged(moments, counts))

    def merged(self, moments: Float64, counts: npt.NDArray[np.int64]) -> State:
        """The state that `merge` leads to; changes nothing.

        Summed in job order, then joined with what was known (Chan et al. 1979, equation 2.1). An episode with a
        non-finite observation is left out.
        """
        usable = np.isfinite(moments).all(axis=(1, 2)) & (counts > 0)
        skipped = self.skipped + int(np.count_nonzero(~usable & (counts > 0)))
        sums, squares, added = np.zeros(self.obs_size), np.zeros(self.obs_size), 0
        for job in np.flatnonzero(usable):
            sums += moments[job, 0]
            squares += moments[job, 1]
            added += int(counts[job])
        if added == 0:
            return _state(self.mean, self.squares, self.count, skipped)
        total = self.count + added
        shift = sums / added  # mean of the new observations, less self.mean
        spread = np.maximum(squares - sums * shift, 0.0)
        mean = self.mean + shift * (added / total)
        together = self.squares + spread + shift * shift * (self.count * (added / total))
        if np.isfinite(mean).all() and np.isfinite(together).all():
            return _state(mean, together, total, skipped)
        return _state(self.mean, self.squares, self.count, skipped + int(np.count_nonzero(usable)))

    def like(self, state: Mapping[str, npt.NDArray[Any]]) -> ObsNormalizer:
        """One with this one's limits that goes on from a `state()`."""
        new = ObsNormalizer(self.obs_size, self.clip, self.std_floor)
        new.load_state(state)
        return new

    def state(self) -> State:
        return _state(self.mean, self.squares, self.count, self.skipped)

    def load_state(self, state: Mapping[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]]) -> None:
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.squares = np.array(state["squares"], dtype=np.float64)
        self.count, self.skipped = (int(n) for n in state["counts"])


def _state(mean: Float64, squares: Float64, count: int, skipped: int) -> State:
    return {"mean": mean.copy(), "squares": squares.copy(), "counts": np.array([count, skipped], dtype=np.int64)}
