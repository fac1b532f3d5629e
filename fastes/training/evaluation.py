"""What noise-free episodes gave."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.es.fitness_shaping import mean_and_std


class Evaluation(NamedTuple):
    """Noise-free episodes: returns float64 (episodes,), lengths int64 (episodes,), env_seeds int64 (episodes,)."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    env_seeds: npt.NDArray[np.int64]

    @property
    def timesteps(self) -> int:
        """Environment steps of all of them."""
        return int(self.lengths.sum())

    @property
    def mean(self) -> float:
        """Mean return; -inf when one is not finite."""
        return mean_and_std(self.returns.tolist())[0] if np.isfinite(self.returns).all() else -math.inf

    @property
    def std(self) -> float:
        """Population standard deviation of the returns; NaN when one is not finite."""
        return mean_and_std(self.returns.tolist())[1] if np.isfinite(self.returns).all() else math.nan

    def __repr__(self) -> str:
        low, high = (self.returns.min(), self.returns.max()) if len(self.returns) else (math.nan, math.nan)
        return (
            f"Evaluation(mean={self.mean:.2f}, std={self.std:.2f}, min={low:.2f}, max={high:.2f}, episodes={len(self.returns)})"
        )
