"""The adaptive population: whole blocks of candidates until a generation's steps reach a budget."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.settings.settings import Settings


class AdaptivePopulation(NamedTuple):
    """Adds whole blocks of population_size candidates while a generation has made fewer than generation_timesteps steps.

    A generation begins with `first` blocks: as many as its budget asks for at the mean length of the last generation. While
    the steps of the candidates so far are below the budget, as many are added as their own mean length asks for, up to
    max_population_size candidates. The decision depends on finished blocks and on `first` alone, so the number of workers
    does not change it. A generation may have more blocks than it needed, if its episodes were longer than the last one's.

    Source: Toklu, Liskowski, Srivastava 2020 (arXiv 2008.02387), PGPE's adaptive population; the guesses are ours.
    """

    settings: Settings
    first: int = 1

    @classmethod
    def start(cls, settings: Settings) -> AdaptivePopulation | None:
        """The population before the first generation; None if the setting is off."""
        return cls(settings) if settings.generation_timesteps else None

    @property
    def most(self) -> int:
        """Upper bound of a generation's blocks."""
        return self.settings.largest_population() // self.settings.population_size

    @property
    def num_pairs(self) -> int:
        """Pairs with which the running generation begins."""
        return self.first * self.settings.population_size // 2

    def moved(self, before: float, after: float) -> AdaptivePopulation:
        """The population when the remaining progress jumps, as `learn` with another budget makes it: `first` follows."""
        old, new = map(self.settings.generation_timesteps_at, (before, after))
        return self if new == old else self._replace(first=min(-(-self.first * new // old), self.most))  # old is never 0

    def missing_pairs(self, lengths: npt.NDArray[np.int64], progress_remaining: float) -> int:
        """Pairs to add, 0 if there are enough.

        Args:
            lengths: Steps of the generation's candidates so far, any shape.
            progress_remaining: When it began, from 1 (start) to 0 (end of the training), for a budget that is a schedule.
        """
        budget = self.settings.generation_timesteps_at(progress_remaining)
        if int(lengths.sum()) >= budget:
            return 0
        return self._needed(lengths, budget) * self.settings.population_size // 2 - lengths.size // 2

    def after(self, lengths: npt.NDArray[np.int64], progress_remaining: float) -> AdaptivePopulation:
        """The population after a whole generation.

        Args:
            lengths: Steps of its candidates, any shape.
            progress_remaining: When the next generation begins.
        """
        return self._replace(first=self._needed(lengths, self.settings.generation_timesteps_at(progress_remaining)))

    def _needed(self, lengths: npt.NDArray[np.int64], budget: int) -> int:
        """Blocks that make these steps if episodes are as long as these are on average."""
        steps, blocks = int(lengths.sum()), lengths.size // self.settings.population_size
        needed = -(-budget * blocks // steps) if steps else self.most
        return min(max(needed, 1), self.most)

    def to_fields(self) -> int:
        """The JSON value for a checkpoint."""
        return self.first

    def from_fields(self, fields: int) -> AdaptivePopulation:
        """The population of a checkpoint, within the limit of today's settings."""
        return self._replace(first=min(fields, self.most))
