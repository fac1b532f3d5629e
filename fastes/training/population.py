"""How many candidates a generation has: one block, or whole blocks until their steps reach a budget."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastes.settings.settings import Settings


class Population:
    """Adds whole blocks of population_size candidates while a generation has made fewer than generation_timesteps steps.

    A generation begins with `first` blocks: as many as its budget asks for at the mean length that the last one had. While
    the steps of the candidates so far are below the budget, as many are added as their own mean length asks for; never are
    there more than max_population_size candidates. What is decided depends on finished blocks and on `first` alone, which
    checkpoints hold: no number of workers changes it. A generation may so have more blocks than it needed, if its episodes
    were longer than the last one's, and workers wait for each other where a guess was too low, and not after each block.

    Source: Toklu, Liskowski, Srivastava 2020 (arXiv 2008.02387), PGPE's adaptive population; the guesses are ours.
    """

    def __init__(self, settings: Settings) -> None:
        self.block, self.budget_at = settings.population_size, settings.generation_timesteps_at
        self.most = settings.largest_population() // self.block
        self.first = 1

    @property
    def num_pairs(self) -> int:
        """Pairs with which the running generation begins."""
        return self.first * self.block // 2

    def resume(self, first: int) -> None:
        """Go on from a checkpoint's value, within the limit of today's settings."""
        self.first = min(first, self.most)

    def move(self, before: float, after: float) -> None:
        """The progress that remains jumps, as where `learn` gets another budget: `first` follows its schedule."""
        old, new = self.budget_at(before), self.budget_at(after)
        if new != old:  # a budget that is a schedule is never 0
            self.first = min(-(-self.first * new // old), self.most)

    def missing_pairs(self, lengths: npt.NDArray[np.int64], progress_remaining: float) -> int:
        """Pairs to add, 0 when there are enough.

        lengths: steps of the generation's candidates so far, any shape.
        progress_remaining: when it began, from 1 (start) to 0 (end of the training), for a budget that is a schedule.
        """
        budget = self.budget_at(progress_remaining)
        if int(lengths.sum()) >= budget:
            return 0
        return self._needed(lengths, budget) * self.block // 2 - lengths.size // 2

    def update(self, lengths: npt.NDArray[np.int64], progress_remaining: float) -> None:
        """lengths: steps of a whole generation's candidates, any shape. progress_remaining: when the next one begins."""
        self.first = self._needed(lengths, self.budget_at(progress_remaining))

    def _needed(self, lengths: npt.NDArray[np.int64], budget: int) -> int:
        """Blocks that make these steps when episodes are as long as these are on average."""
        steps, blocks = int(lengths.sum()), lengths.size // self.block
        needed = -(-budget * blocks // steps) if steps else self.most
        return min(max(needed, 1), self.most)
