"""Where candidates are evaluated: in this process, or in worker processes over shared memory. Knows no optimiser."""

from __future__ import annotations

from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.serial_pool import SerialPool
from fastes.pools.vector_pool import LanePool
from fastes.rollout.job import Batch, PoolSpec, Request
from fastes.system.memory import check_memory

_ADVICE = "use fewer candidates, a smaller noise_table_size, fewer workers, or smaller observations (such as resized frames)"

Pool = ProcessPool | SerialPool | LanePool


def make_pool(spec: PoolSpec, n_workers: int) -> Pool:
    """A pool on a vector environment's lanes, of n_workers processes, or for n_workers = 0 one that works in this process.

    OSError when a generation takes more memory than there is.
    """
    actors = n_workers or (1 if spec.source.lanes is None else spec.source.lanes.num_envs)
    check_memory(spec.layout(n_workers).memory(actors), _ADVICE)
    if spec.source.lanes is not None:
        return LanePool(spec, spec.source.lanes)
    return ProcessPool(spec, n_workers) if n_workers else SerialPool(spec)


__all__ = ["Batch", "LanePool", "Pool", "PoolSpec", "ProcessPool", "Request", "SerialPool", "make_pool"]
