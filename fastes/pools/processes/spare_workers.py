"""How many workers there are beside one a core: they play noise-free episodes, and the system shares the cores."""

from __future__ import annotations

from fastes.rollout.job import PoolSpec

_MANY = 8  # candidates a worker: the last ones of a generation are a small part of it then


def spare_workers(spec: PoolSpec, n_workers: int) -> int:
    """Workers beside n_workers that play noise-free episodes alone.

    Where a generation gives each worker few episodes, one that is at a long evaluation makes the others wait for a second
    turn. A process more does that evaluation instead, while the system takes a little time from everybody.
    """
    candidates = 2 * spec.num_pairs * spec.num_generations
    if n_workers < 2 or not candidates or candidates >= _MANY * n_workers:
        return 0
    return spec.num_evaluations - spec.num_generations
