"""Chooses the pool from the user's arguments: worker processes, this process, a vector environment, or a Ray cluster."""

from __future__ import annotations

from fastes.envs.source import EnvSource
from fastes.errors import check_int
from fastes.pools.pool import LocalPool, Pool, PoolChoice
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.serial_pool import SerialPool
from fastes.pools.vector_pool import VectorPool
from fastes.system.limits import available_cpus

_MOST_WORKERS = 4096


def make_pool(source: EnvSource, choice: PoolChoice) -> Pool:
    """Make a model's pool. Nothing starts before `Pool.open`.

    Args:
        source: Builds the environment, or is the vector environment that the user gave.
        choice: The user's arguments.

    Returns:
        The pool of a Ray cluster, of a vector environment, of this process (0 workers), or of worker processes.

    Raises:
        ValueError: If the arguments do not fit each other, or n_workers is out of range.
        TypeError: If an argument has another type.
        ImportError: If a cluster is wanted and Ray cannot be imported.
    """
    n_workers, vector_env = choice.n_workers, source.vector_env
    if n_workers is not None:
        if vector_env is not None and n_workers:
            raise ValueError(
                f"n_workers = {n_workers!r} cannot be used with {vector_env}, which is driven as it is: leave it out, or "
                "pass the environment's id, or a function that builds one, as env"
            )
        check_int("n_workers", n_workers, 0, _MOST_WORKERS)
    if choice.cluster is not None:
        from fastes.pools.cluster.connection import check_cluster
        from fastes.pools.cluster.ray_pool import RayPool

        return RayPool(check_cluster(choice.cluster, source, n_workers))
    if vector_env is not None or n_workers == 0:
        return make_local_pool(source)
    return ProcessPool(available_cpus() if n_workers is None else n_workers)


def make_local_pool(source: EnvSource) -> LocalPool:
    """Make the pool that plays in this process, on the user's vector environment or on one that it builds."""
    return SerialPool() if source.vector_env is None else VectorPool(source.vector_env)
