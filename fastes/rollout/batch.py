"""The results of a request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.rollout.last_infos import Info
from fastes.rollout.obs_normalizer import MomentSums


class StepsPlayed(NamedTuple):
    """Environment steps of candidates and of noise-free episodes."""

    candidates: int = 0
    evaluations: int = 0

    def plus(self, candidates: int = 0, evaluations: int = 0) -> StepsPlayed:
        return StepsPlayed(self.candidates + candidates, self.evaluations + evaluations)


@dataclass(frozen=True)
class Batch:
    """The results of a request's jobs, in job order: n pairs of candidates, or n noise-free episodes.

    Attributes:
        returns: Means over a candidate's episodes, float64 (n, 2); of noise-free episodes, float64 (n,).
        lengths: Total steps of a candidate's episodes, int64 of the same shape.
        successes: Fractions of a candidate's episodes, float64 of that shape, NaN if the environment reports none.
        cuts: Episodes that were cut (see `Episode`), int64 of that shape.
        moments: Moments of a candidate's observations, float64 (2 * n, 2, obs_size); (0, 2, obs_size) for noise-free
            episodes; or their sums.
        busy_seconds: Seconds of playing, summed over workers.
        rerun: Jobs run again because their worker died.
        penalised: The text of an exception that was made a return of NaN, or ''.
        per_candidate: Episodes of each candidate.
        infos: The last step's info of each episode of each candidate, in job order; () if no callback reads them.
        has_masks: Whether one of the last infos of candidates had an action mask.
        cpu_seconds: CPU time of the worker processes for these jobs; 0 if this process plays.
        differs: Whether the job that played in C and in Python had other numbers in C, so that these results do not count.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]
    cuts: npt.NDArray[np.int64]
    moments: npt.NDArray[np.float64] | MomentSums
    busy_seconds: float
    rerun: int
    penalised: str
    per_candidate: int = 1
    infos: tuple[tuple[Info, ...], ...] = ()
    has_masks: bool = False
    cpu_seconds: float = 0.0
    differs: bool = False

    @cached_property
    def steps(self) -> int:
        """Environment steps of all jobs."""
        return int(self.lengths.sum())

    @cached_property
    def finite_returns(self) -> npt.NDArray[np.float64]:
        """The returns that are finite, float64 (at most returns.size,), in job order."""
        return self.returns[np.isfinite(self.returns)]

    def moment_sums(self) -> MomentSums:
        """Return the sums of `moments`."""
        return self.moments if isinstance(self.moments, MomentSums) else MomentSums.of(self.moments, self.lengths.ravel())

    def joined(self, later: Batch) -> Batch:
        """Append the results of a later request of the same generation."""
        return Batch(
            returns=np.concatenate([self.returns, later.returns]),
            lengths=np.concatenate([self.lengths, later.lengths]),
            successes=np.concatenate([self.successes, later.successes]),
            cuts=np.concatenate([self.cuts, later.cuts]),
            moments=_moments_together(self, later),
            busy_seconds=self.busy_seconds + later.busy_seconds,
            rerun=self.rerun + later.rerun,
            penalised=self.penalised or later.penalised,
            per_candidate=self.per_candidate,
            infos=self.infos + later.infos,
            has_masks=self.has_masks or later.has_masks,
            cpu_seconds=self.cpu_seconds + later.cpu_seconds,
            differs=self.differs or later.differs,
        )


def _moments_together(first: Batch, second: Batch) -> npt.NDArray[np.float64] | MomentSums:
    """Join the moments of two batches; as sums if one of them has sums."""
    if isinstance(first.moments, np.ndarray) and isinstance(second.moments, np.ndarray):
        return np.concatenate([first.moments, second.moments])
    return first.moment_sums() + second.moment_sums()
