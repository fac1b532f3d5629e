"""The adaptive cap on training episodes: both rules of Salimans et al. 2017 (section 2.1 and the released code), and growth."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastes.rollout.batch import Batch
from fastes.rollout.episode import STEP_GUARD
from fastes.settings.settings import Settings

_SHARE = 0.5  # of a generation's episodes: from so many at the cap on, the rule 'share' grows it, as in the released code


class EpisodeCap(NamedTuple):
    """Steps after which a training episode is cut; follows the lengths of each generation's episodes.

    Rule 'mean': factor x mean length, so that half-idle CPUs are the worst case. Rule 'share': grow by the factor if at
    least half of the episodes were cut. Rule 'grow': grow by the factor each generation: a horizon that lengthens, so that
    early generations are cheap. `steps` never exceeds max_episode_steps.
    """

    rule: str
    factor: float
    limit: int
    steps: int

    @classmethod
    def start(cls, settings: Settings) -> EpisodeCap | None:
        """The cap before the first generation; None if the setting is off."""
        if settings.episode_cap == "none":
            return None
        limit = settings.longest_episode() or STEP_GUARD
        return cls(settings.episode_cap, settings.episode_cap_factor, limit, min(settings.episode_cap_start, limit))

    def after(self, batch: Batch) -> EpisodeCap:
        """The cap after a generation's candidates."""
        episodes = batch.returns.size * batch.per_candidate
        if self.rule == "mean":
            return self._with(self.factor * batch.steps / episodes)
        if self.rule == "grow" or int(batch.cuts.sum()) >= _SHARE * episodes:
            return self._with(self.factor * self.steps)
        return self

    def _with(self, steps: float) -> EpisodeCap:
        return self._replace(steps=max(1, math.ceil(min(steps, self.limit))))  # factors may be of any size

    def to_fields(self) -> int:
        """The JSON value for a checkpoint."""
        return self.steps

    def from_fields(self, fields: int) -> EpisodeCap:
        """The cap of a checkpoint, within the limit of today's settings."""
        return self._with(fields)
