"""Where candidates are evaluated: in this process, or in worker processes over shared memory. Knows no optimiser."""

from __future__ import annotations

from fastes.parallel.jobs import Batch, PoolSpec, Request
from fastes.parallel.lanes import LanePool
from fastes.parallel.pool import ProcessPool
from fastes.parallel.serial import SerialPool

Pool = ProcessPool | SerialPool | LanePool


def make_pool(spec: PoolSpec, n_workers: int) -> Pool:
    """A pool on a vector environment's lanes, of n_workers processes, or for n_workers = 0 one that works in this process."""
    if spec.source.lanes is not None:
        return LanePool(spec, spec.source.lanes)
    return ProcessPool(spec, n_workers) if n_workers else SerialPool(spec)


__all__ = ["Batch", "LanePool", "Pool", "PoolSpec", "ProcessPool", "Request", "SerialPool", "make_pool"]
