"""Tallies of a training."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fastes.checkpoints.field_checks import check_record, is_count, is_number_or_none
from fastes.rollout.batch import Batch


class Counters(NamedTuple):
    """Tallies of a training; timesteps are environment steps.

    Attributes:
        num_timesteps: Those of candidates.
        eval_timesteps: Those of noise-free episodes.
        num_episodes: Episodes of candidates.
        confirm_after: num_timesteps from which a target that was missed may be confirmed again.
        budget: num_timesteps at which the training ends; schedules run towards it. 0 before the first `learn`.
        best_eval_return: The highest noise-free return so far.
        warm_up_timesteps: Those of num_timesteps that only began the statistics of observations; no generation has them.
    """

    num_timesteps: int = 0
    eval_timesteps: int = 0
    num_episodes: int = 0
    confirm_after: int = 0
    budget: int = 0
    best_eval_return: float = -math.inf
    warm_up_timesteps: int = 0

    def with_candidates(self, batch: Batch) -> Counters:
        """The tallies after a generation's candidates."""
        return self._replace(
            num_timesteps=self.num_timesteps + batch.steps,
            num_episodes=self.num_episodes + batch.returns.size * batch.per_candidate,
        )

    def with_warm_up(self, batch: Batch) -> Counters:
        """The tallies after candidates from which nothing was learned."""
        return self.with_candidates(batch)._replace(warm_up_timesteps=self.warm_up_timesteps + batch.steps)

    def with_evaluation(self, timesteps: int) -> Counters:
        """The tallies after noise-free episodes of this many steps."""
        return self._replace(eval_timesteps=self.eval_timesteps + timesteps)

    def plus(self, other: Counters) -> Counters:
        """The tallies of both, and the higher of the best returns; budget and confirm_after stay this one's."""
        return self._replace(
            num_timesteps=self.num_timesteps + other.num_timesteps,
            eval_timesteps=self.eval_timesteps + other.eval_timesteps,
            num_episodes=self.num_episodes + other.num_episodes,
            best_eval_return=max(self.best_eval_return, other.best_eval_return),
            warm_up_timesteps=self.warm_up_timesteps + other.warm_up_timesteps,
        )

    def to_fields(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        best = self.best_eval_return
        return {**self._asdict(), "best_eval_return": best if math.isfinite(best) else None}

    @classmethod
    def from_fields(cls, place: str, fields: object) -> Counters:
        """The tallies of `to_fields`.

        Args:
            place: The fields' place in the checkpoint, for messages.
            fields: JSON values.

        Raises:
            CheckpointError: If the fields cannot be tallies.
        """
        values = check_record(place, fields, {**dict.fromkeys(cls._fields, is_count), "best_eval_return": is_number_or_none})
        best = values["best_eval_return"]
        return cls(**{**values, "best_eval_return": -math.inf if best is None else best})
