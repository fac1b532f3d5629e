"""The noise tables of a pool's trainings: each is drawn once, by the first training that uses it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastes.es.noise_table import NoiseTable
from fastes.rollout.job import PoolSpec


class NoiseTables:
    """Places trainings' noise tables in a pool's memory.

    Args:
        spec: The pool's.
        memory: A buffer for each of `spec.tables`, float32 (size,).
    """

    def __init__(self, spec: PoolSpec, memory: Sequence[npt.NDArray[np.float32]]) -> None:
        self._tables, self._memory = spec.tables, memory
        self._numbers = [spec.table_of(training) for training in range(len(spec.trainings))]
        self._drawn: set[int] = set()

    def place(self, table: NoiseTable, training: int) -> None:
        """See `Pool.place_table`."""
        number = self._numbers[training]
        if number < 0 or (table.size, table.seed) != self._tables[number]:
            expected = "none" if number < 0 else "{} values of seed {}".format(*self._tables[number])
            raise ValueError(
                f"a noise table of {table.size} values of seed {table.seed} for training {training}, expected {expected}: "
                "table_size and table_seed of TrainingNeeds say which"
            )
        memory = self._memory[number]
        if number not in self._drawn:
            table.place(memory)
            self._drawn.add(number)
        elif not table.is_in(memory):
            table.share(memory)
