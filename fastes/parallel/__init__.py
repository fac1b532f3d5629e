"""Where candidates are evaluated: in this process, or in worker processes over shared memory. Knows no optimiser."""

from __future__ import annotations

from fastes.parallel.jobs import Batch, PoolSpec
from fastes.parallel.pool import ProcessPool
from fastes.parallel.serial import SerialPool

Pool = ProcessPool | SerialPool


def make_pool(spec: PoolSpec, n_workers: int) -> Pool:
    """A pool of n_workers processes, or one that works in this process for n_workers = 0."""
    return ProcessPool(spec, n_workers) if n_workers else SerialPool(spec)


__all__ = ["Batch", "Pool", "PoolSpec", "ProcessPool", "SerialPool", "make_pool"]
