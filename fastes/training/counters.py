"""Tallies of a training."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastes.rollout.job import Batch


class Counters(NamedTuple):
    """Tallies of a training; timesteps are environment steps.

    num_timesteps: of candidates.
    eval_timesteps: of noise-free episodes.
    num_episodes: of candidates.
    confirm_after: num_timesteps from which on a target that was missed is confirmed again.
    budget: num_timesteps at which the last `learn` was to end; schedules run towards it.
    best_eval_return: the highest noise-free return so far.
    warm_up_timesteps: those of num_timesteps that only began statistics: no generation has them.
    draws_ahead: how far the numbers that generations are drawn with are ahead of them, since there were several starts.
    """

    num_timesteps: int = 0
    eval_timesteps: int = 0
    num_episodes: int = 0
    confirm_after: int = 0
    budget: int = 0
    best_eval_return: float = -math.inf
    warm_up_timesteps: int = 0
    draws_ahead: int = 0

    def with_candidates(self, batch: Batch) -> Counters:
        """And those of a generation's candidates."""
        return self._replace(
            num_timesteps=self.num_timesteps + int(batch.lengths.sum()),
            num_episodes=self.num_episodes + batch.returns.size * batch.per_candidate,
        )

    def with_warm_up(self, batch: Batch) -> Counters:
        """And those of candidates that nothing was learned from."""
        return self.with_candidates(batch)._replace(warm_up_timesteps=self.warm_up_timesteps + int(batch.lengths.sum()))
