"""Pools of a spec, as a training opens them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastes.pools.pool import Pool, run_to_end
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.serial_pool import SerialPool
from fastes.rollout.batch import Batch
from fastes.rollout.job import PoolSpec, Request


def with_needs(spec: PoolSpec, **changes: Any) -> PoolSpec:
    """The spec of one training with other needs."""
    (needs,) = spec.trainings
    return replace(spec, trainings=(replace(needs, **changes),))


def opened(spec: PoolSpec, n_workers: int = 0, spare: int | None = None) -> Pool:
    """A pool of worker processes, or of this process without workers."""
    pool = ProcessPool(n_workers, spare) if n_workers else SerialPool()
    pool.open(spec)
    return pool


def played(pool: Pool, request: Request) -> Batch:
    """The results of a request alone."""
    return run_to_end(pool.play(request))
