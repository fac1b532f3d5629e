"""The adaptive cap on training episodes: both rules of Salimans et al. 2017 (section 2.1 and the released code), and growth."""

from __future__ import annotations

import math

from fastes.rollout.episode import STEP_GUARD
from fastes.settings.settings import Settings

_CUT_FRACTION = 0.5  # of the episodes: incr_tslimit_threshold in the released code of Salimans et al.


class EpisodeCap:
    """Steps after which a training episode is cut; learns from the lengths of each generation.

    Rule 'mean': factor x mean length, so that half-idle CPUs are the worst case. Rule 'share': grow by the factor when at
    least half of the episodes were cut. Rule 'grow': grow by the factor each generation, whatever the episodes
    did: a horizon that lengthens, so that early generations are cheap. `steps` never exceeds max_episode_steps.
    """

    def __init__(self, settings: Settings) -> None:
        self.rule, self.factor = settings.episode_cap, settings.episode_cap_factor
        self.limit = settings.longest_episode() or STEP_GUARD
        self.steps = self.limit if self.rule == "none" else min(settings.episode_cap_start, self.limit)

    def resume(self, steps: int) -> None:
        """Go on from a checkpoint's value, within the limit of today's settings."""
        if self.rule != "none":
            self.steps = min(steps, self.limit)

    def update(self, steps: int, cut: int, episodes: int) -> None:
        """A generation had so many episodes, of so many steps together; so many of them were cut."""
        if self.rule == "mean":
            self._set(self.factor * steps / episodes)
        elif self.rule == "grow" or (self.rule == "share" and cut >= _CUT_FRACTION * episodes):
            self._set(self.factor * self.steps)
        elif self.rule not in ("none", "share"):
            raise ValueError(f"unknown episode_cap {self.rule!r}")

    def _set(self, steps: float) -> None:
        self.steps = max(1, math.ceil(min(steps, self.limit)))  # steps may be infinite: factors may be of any size
