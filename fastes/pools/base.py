"""What every pool can do, and which one a training gets: of processes, of this process, or of a vector environment."""

from __future__ import annotations

from collections.abc import Collection, Generator, Set
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.processes.workforce import spare_workers
from fastes.pools.serial_pool import SerialPool
from fastes.pools.vector_pool import VectorPool
from fastes.rollout.episode import Episode
from fastes.rollout.job import Batch, PoolSpec, Request, StepsPlayed
from fastes.system.memory import check_memory

_ADVICE = "use fewer candidates, a smaller noise_table_size, fewer workers, or smaller observations (such as resized frames)"


_Result = TypeVar("_Result")
Steps = Generator[int, None, _Result]  # work that yields the ticket of the request it waits for: others may work meanwhile


class Pool(Protocol):
    """Runs the jobs of several requests at once. It starts when it is first needed, and can be used again after an error.

    A request is submitted, waited for, and collected. There may be as many at a time as its spec has places for. The oldest
    one's candidates are played first, and noise-free episodes when no candidate is left; these first where the spec says so.
    """

    spec: PoolSpec

    @property
    def n_workers(self) -> int:
        """Processes that play candidates at this moment, 0 where this one does."""

    def noise_table(self, number: int = 0) -> npt.NDArray[np.float32]:
        """Memory for one of its noise tables, float32 (table_size,)."""

    def start(self) -> None:
        """Start what takes time to start, so that it is ready when it is needed."""

    def submit(self, request: Request) -> int:
        """Begin with a request's jobs, where workers are free; returns its ticket. FastESError where no place is free."""

    def knows(self, ticket: int) -> bool:
        """Whether a request waits to be collected. An exception in `wait` makes a pool forget them all."""

    def tickets(self) -> Set[int]:
        """Of all requests that wait to be collected."""

    def forget(self) -> None:
        """Let go of all requests, whatever they are at."""

    def is_finished(self, ticket: int) -> bool:
        """Whether `collect` would not wait."""

    def wait(self, tickets: Collection[int]) -> None:
        """Return when one of these requests is finished. Raises what is wrong with the pool; `collect` raises jobs' errors."""

    def collect(self, ticket: int) -> Batch:
        """What a finished request's jobs gave; its place is free then. Raises WorkerError for an environment's exception."""

    def steps_played(self) -> StepsPlayed:
        """So far, with those of episodes that go on at this moment; any thread may ask. Steps of lost episodes count, too."""

    def close(self) -> None:
        """End what was started, and close environments that are the pool's own."""


class LocalPool(Pool, Protocol):
    """A pool that works in this process, so that it can play a single job where a debugger sees it."""

    def play(self, job: int, request: Request) -> Episode:
        """One job of a request: the mean return of its episodes, and their total length.

        Raises what goes wrong in the environment: a single one's exception as it is, that of a vector environment as a
        WorkerError, since it belongs to none of its environments.
        """


def evaluate(pool: Pool, request: Request) -> Batch:
    """Submit a request, wait for it, and collect it."""
    ticket = pool.submit(request)
    pool.wait((ticket,))
    return pool.collect(ticket)


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
