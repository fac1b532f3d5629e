"""Hard starts: part of the training episodes begins where the policy has failed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastes.checkpoints.field_checks import is_count, is_number_or_none
from fastes.es.perturbations import Perturbations, Starts
from fastes.settings.settings import Settings
from fastes.training.evaluation import Evaluation

WINDOW = 300  # noise-free episodes
_HARDEST = 0.08  # of these
_LEAST = 3  # starts
_FROM = 0.5  # of the budget on: before that the policy changes too fast


class HardStarts(NamedTuple):
    """The last noise-free episodes; pairs begin at the environment seeds of those that returned least.

    A policy that falls in one episode of twenty shows it to one pair of twenty, whose fall may be chance. Prioritised level
    replay does the same for other algorithms (Jiang, Grefenstette, Rocktäschel 2021, arXiv 2010.03934).

    Attributes:
        share: Share of the pairs.
        episodes: (environment seed, return) of at most WINDOW episodes, the oldest first.
    """

    share: float
    episodes: tuple[tuple[int, float], ...] = ()

    @classmethod
    def start(cls, settings: Settings) -> HardStarts | None:
        """The record before the first generation; None if the setting is off."""
        return cls(settings.hard_starts) if settings.hard_starts else None

    def after(self, evaluation: Evaluation) -> HardStarts:
        """The record after an evaluation, in the order of the generations. Returns that are not finite are left out."""
        played = zip(evaluation.env_seeds.tolist(), evaluation.returns.tolist(), strict=True)
        new = tuple((seed, value) for seed, value in played if math.isfinite(value))
        return self._replace(episodes=(*self.episodes, *new)[-WINDOW:])

    def emptied(self) -> HardStarts:
        """The record for another environment, or for parameters that were not learned here."""
        return self._replace(episodes=())

    def applied(self, perturbations: Perturbations, progress_remaining: float) -> Perturbations:
        """A generation whose pairs begin in part at hard starts.

        Args:
            perturbations: The generation as it was drawn.
            progress_remaining: When it begins, from 1 (start) to 0 (end of the budget).
        """
        count = int(_HARDEST * len(self.episodes))
        if count < _LEAST or progress_remaining > _FROM:
            return perturbations
        hardest = sorted(self.episodes, key=lambda episode: episode[1])[:count]
        seeds = np.array([seed for seed, _ in hardest], dtype=np.int64)
        return perturbations.beginning_at(Starts(seeds, self.share))

    def to_fields(self) -> list[list[float]]:
        """The JSON value for a checkpoint."""
        return [list(episode) for episode in self.episodes]

    def from_fields(self, fields: list[list[float]]) -> HardStarts:
        """The record of a checkpoint."""
        return self._replace(episodes=tuple((int(seed), float(value)) for seed, value in fields))


def are_fields(value: object) -> bool:
    """Whether a JSON value can be one of `to_fields`."""
    return (
        isinstance(value, list)
        and len(value) <= WINDOW
        and all(isinstance(each, list) and len(each) == 2 for each in value)
        and all(is_count(seed) and seed < 2**31 for seed, _ in value)
        and all(score is not None and is_number_or_none(score) for _, score in value)
    )
