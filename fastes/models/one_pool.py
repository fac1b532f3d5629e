"""Several models on the pool of the first one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from fastes.envs.source import EnvSource
from fastes.pools.pool import Pool
from fastes.training.evaluator import Evaluator, PoolShare
from fastes.training.selection import Selection


class PoolUser(Protocol):
    """A model, as far as it uses a pool."""

    evaluator: Evaluator
    pool: Pool

    @property
    def selection(self) -> Selection: ...


@contextlib.contextmanager
def one_pool(models: Sequence[PoolUser]) -> Iterator[None]:
    """Let the models share the pool of the first one within the block."""
    needs = tuple(each for model in models for each in model.evaluator.needs())
    pool, first = models[0].pool, 0
    try:
        for model in models:
            model.evaluator.share(pool, PoolShare(first, needs, len(models)))
            first += len(model.selection.trials)
        yield
    finally:
        for model in models:
            model.evaluator.unshare()
        pool.close()


def check_shared(source: EnvSource) -> None:
    """Raise ValueError for a vector environment, which exists once and cannot play for several trainings."""
    if source.vector_env is not None:
        raise ValueError(
            f"{source.vector_env} cannot be shared by several trainings: pass the environment's id, or a "
            "function that builds one, as env"
        )
