"""Which pool a training gets: of processes, of this process, of a vector environment, or of a cluster."""

from __future__ import annotations

from fastes.pools.pool import LocalPool, Pool
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.processes.workforce import spare_workers
from fastes.pools.serial_pool import SerialPool
from fastes.pools.vector_pool import VectorPool
from fastes.rollout.job import PoolSpec
from fastes.system.memory import check_memory

_ADVICE = "use fewer candidates, a smaller noise_table_size, fewer workers, or smaller observations (such as resized frames)"


def make_pool(spec: PoolSpec, n_workers: int, cluster: str | None = None) -> Pool:
    """A pool that drives a vector environment, one of n_workers processes, or for n_workers = 0 one that works in this process.

    cluster: the address of a Ray cluster, whose nodes play instead. OSError when a generation takes more memory than there is.
    """
    if cluster is not None:
        from fastes.pools.cluster.ray_pool import RayPool

        return RayPool(spec, cluster)
    if not n_workers:
        return make_pool_here(spec)
    spare = spare_workers(spec, n_workers)
    check_memory(spec.layout(n_workers + spare).memory(n_workers + spare), _ADVICE)
    return ProcessPool(spec, n_workers, spare)


def make_pool_here(spec: PoolSpec) -> LocalPool:
    """The pool for a vector environment, or the one that builds an environment in this process. OSError as make_pool."""
    actors = 1 if spec.source.vector_env is None else spec.source.vector_env.num_envs
    check_memory(spec.layout(0).memory(actors), _ADVICE)
    return SerialPool(spec) if spec.source.vector_env is None else VectorPool(spec, spec.source.vector_env)
