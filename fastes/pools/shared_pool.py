"""One pool for several trainings: each has places for its requests, and a noise table of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from fastes.pools.base import make_pool
from fastes.pools.pool import Pool
from fastes.rollout.job import PoolSpec, StepsPlayed


class SharedPool:
    """Started by the first training that needs it, and used by all.

    trainings: how many there are at most.
    n_workers: processes, 0 for none.
    cluster: the address of a Ray cluster that plays instead.
    references: the reference batch of each training, where their policy needs one.
    """

    def __init__(
        self, trainings: int, n_workers: int, cluster: str | None = None, references: tuple[npt.NDArray[Any], ...] = ()
    ) -> None:
        self.trainings, self.n_workers, self.cluster, self.references = trainings, n_workers, cluster, references
        self._pool: Pool | None = None

    def start(self, spec: PoolSpec) -> Pool:
        """The pool. spec: what one of the trainings needs; all of them need the same."""
        if self._pool is None:
            count = self.trainings
            generations, evaluations = count * spec.num_generations, count * spec.num_evaluations
            whole = replace(
                spec, num_tables=count, num_generations=generations, num_evaluations=evaluations, references=self.references
            )
            pool = make_pool(whole, self.n_workers, self.cluster)
            try:
                pool.start()
            except BaseException:
                pool.close()
                raise
            self._pool = pool
        return self._pool

    def steps_played(self) -> StepsPlayed:
        """Of all trainings together: see Pool."""
        pool = self._pool
        return StepsPlayed() if pool is None else pool.steps_played()

    def close(self) -> None:
        """End the pool; the next training that needs one starts it anew."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
