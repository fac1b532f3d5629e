"""The pool: plays requests, and lets trainings that wait for them share one thread."""

#     training                       pool                                 where jobs are played
#
#     ask() --> Request -- submit --> jobs in a slot ---- claim ------->  worker processes       (processes/)
#                                          |                              this process           (serial_pool.py)
#                                          |                              a vector environment   (vector_pool.py)
#                                          |                              nodes of a Ray cluster (cluster/)
#     tell() <-- Batch -- collect <-- results in job order <-- commit --  an episode, or its failure
#
# A request is a generation's candidates, or noise-free episodes of theta (an evaluation). A job is one candidate's episodes, or
# one noise-free episode. `await pool.play(request)` submits and collects, and suspends its training in between. `run_to_end`
# calls `wait` and resumes the training. Of several, `side_by_side` makes one, which is suspended once all of them are.

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shlex
from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.es.noise_table import NoiseTable
from fastes.rollout.batch import Batch, StepsPlayed
from fastes.rollout.episode import Episode
from fastes.rollout.job import PoolSpec, Request

_Result = TypeVar("_Result")


class PoolChoice(NamedTuple):
    """The user's arguments that choose a pool, unchecked.

    Attributes:
        n_workers: Worker processes; 0 to play in this process, None for one per usable core.
        cluster: The address of a Ray cluster whose nodes play; None for this machine.
    """

    n_workers: int | None = None
    cluster: str | None = None

    def flags(self) -> str:
        """Return the flags for a command that plays on the same cluster; '' without one."""
        return "" if self.cluster is None else f" --cluster {shlex.quote(self.cluster)}"

    def for_run_folder(self) -> dict[str, str]:
        """Return the entries for a run folder's configuration."""
        return {} if self.cluster is None else {"cluster": self.cluster}


class Pool(Protocol):
    """Plays the jobs of several requests at once.

    `make_pool` makes a model's pool, once. `open` prepares it for the trainings of a spec, and `close` ends that; it can be
    opened again for another spec. Trainings may differ in policy, population and most settings; a request names its training,
    and its results depend on no other request.

    A request is submitted, waited for, and collected. As many may be open as its training has room for. The oldest request's
    candidates are played first, and noise-free episodes when no candidate is left; or these first, if the spec says so. Worker
    processes play them first also while candidates of several requests wait. After an error the pool can be used again.

    Attributes:
        spec: The environment, and the needs of each training.
        is_remote: Whether other machines play, which may come and go.
    """

    spec: PoolSpec
    is_remote: bool

    @property
    @abstractmethod
    def n_workers(self) -> int:
        """Processes that play candidates now; 0 if this process plays them."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """The place that plays episodes, for the console."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether requests can be submitted."""

    @abstractmethod
    def open(self, spec: PoolSpec) -> None:
        """Start everything that takes time to start. The pool has to be closed.

        Raises:
            OSError: If a generation needs more memory than the machine has left.
            ClusterError: If no cluster answers.
        """

    @abstractmethod
    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        """Place a training's noise table in the pool's memory, from which its candidates are drawn.

        The first call draws the values; further ones, and other trainings that share the table, cost nothing.

        Args:
            table: The training's. Its values stay in the pool's memory until it is released.
            training: The training's number.

        Raises:
            ValueError: If the table's size or seed is not what `TrainingNeeds` said.
        """

    @abstractmethod
    def submit(self, request: Request) -> int:
        """Queue a request's jobs for the workers.

        Returns:
            The request's ticket.

        Raises:
            FastESError: If no slot is free.
        """

    def submit_all(self, requests: Sequence[Request]) -> list[int]:
        """Submit several requests in this order. Returns their tickets."""
        return [self.submit(request) for request in requests]

    def knows(self, ticket: int) -> bool:
        """Whether a request waits to be collected. After an exception in `wait` a pool knows no request."""
        return ticket in self.tickets()

    @abstractmethod
    def tickets(self) -> Set[int]:
        """Return the tickets of all requests that wait to be collected."""

    @abstractmethod
    def training_of(self, ticket: int) -> int:
        """Return the number of the training of a request that waits to be collected."""

    @abstractmethod
    def forget(self) -> None:
        """Drop all requests, finished or not."""

    @abstractmethod
    def is_finished(self, ticket: int) -> bool:
        """Whether `collect` can be called."""

    @abstractmethod
    def wait(self, tickets: Collection[int]) -> None:
        """Return once one of these requests is finished.

        Raises:
            FastESError: For a failure of the pool itself. `collect` raises the failures of jobs.
        """

    @abstractmethod
    def collect(self, ticket: int) -> Batch:
        """Return a finished request's results, and free its slot.

        Raises:
            WorkerError: For an environment's exception.
        """

    def result(self, ticket: int) -> Unfinished:
        """Return an awaitable that suspends the training until a request is finished, then `collect`s it."""
        return Unfinished(self, ticket)

    async def play(self, request: Request) -> Batch:
        """Submit a request and await its `result`."""
        return await self.result(self.submit(request))

    @abstractmethod
    def steps_played(self) -> StepsPlayed:
        """Return the environment steps so far, with those of running and of lost episodes. Any thread may call this."""

    @abstractmethod
    def close(self) -> None:
        """End the workers, close environments that are the pool's own, and release the memory. Does nothing if closed."""


class LocalPool(Pool, Protocol):
    """A pool that plays in this process, so that a debugger can follow a job."""

    @abstractmethod
    def play_job(self, job: int, request: Request) -> Episode:
        """Play one job of a request.

        Returns:
            The mean return of the job's episodes, and their total length.

        Raises:
            Exception: The environment's own exception, as it is. A vector environment's becomes a WorkerError, since it
                belongs to none of its environments.
        """


class Waiting(Protocol):
    """An event that a suspended training waits for."""

    def is_over(self) -> bool:
        """Whether the training can continue."""

    def requests(self) -> Iterator[tuple[Pool, int]]:
        """Yield the unfinished requests; nothing changes before one of them finishes."""


class Unfinished:
    """Awaitable: suspends a training until a request is finished, and returns its results."""

    __slots__ = ("pool", "ticket")

    def __init__(self, pool: Pool, ticket: int) -> None:
        self.pool, self.ticket = pool, ticket

    def is_over(self) -> bool:
        return self.pool.is_finished(self.ticket)

    def requests(self) -> Iterator[tuple[Pool, int]]:
        yield self.pool, self.ticket

    def __await__(self) -> Generator[Waiting, None, Batch]:
        while not self.is_over():
            yield self
        return self.pool.collect(self.ticket)


class Condition:
    """Awaitable: suspends a training until a function returns True because of trainings that run side by side with it."""

    __slots__ = ("is_over",)

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self.is_over = is_over

    def requests(self) -> Iterator[tuple[Pool, int]]:
        return iter(())

    def __await__(self) -> Generator[Waiting, None, None]:
        if not self.is_over():
            yield self


class _Any:
    """Suspends trainings that run side by side until one of them can continue."""

    __slots__ = ("waiting",)

    def __init__(self, waiting: Iterable[Waiting]) -> None:
        self.waiting = tuple(waiting)

    def is_over(self) -> bool:
        return any(each.is_over() for each in self.waiting)

    def requests(self) -> Iterator[tuple[Pool, int]]:
        return itertools.chain.from_iterable(each.requests() for each in self.waiting)

    def __await__(self) -> Generator[Waiting, None, None]:
        yield self


async def side_by_side(*trainings: Coroutine[Any, Any, _Result]) -> list[_Result]:
    """Run coroutines side by side: while one waits for its request, the others continue.

    Args:
        trainings: Coroutines that await requests, conditions, and each other in this way.

    Returns:
        Their results, in their order.

    Raises:
        BaseException: The first exception of a training or of the pool. It ends all of them.
    """
    results: dict[int, _Result] = {}
    waiting: dict[int, Waiting] = {}
    ready = list(range(len(trainings)))
    with contextlib.ExitStack() as at_the_end:
        for training in trainings:
            at_the_end.callback(training.close)
        while ready or waiting:
            for number in ready:
                waiting.pop(number, None)
                try:
                    waiting[number] = trainings[number].send(None)
                except StopIteration as end:
                    results[number] = end.value
            ready = [number for number, each in waiting.items() if each.is_over()]
            if waiting and not ready:
                await _Any(waiting.values())
                ready = [number for number, each in waiting.items() if each.is_over()]
    return [results[number] for number in range(len(trainings))]


def run_to_end(training: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a training, or several `side_by_side`, to the end: this drives the coroutine and waits on the pool for it.

    Returns:
        The coroutine's result.

    Raises:
        BaseException: An exception of the training or of the pool. It ends the training.
    """
    with contextlib.closing(training), _core.UsualFloats():  # the calling script may have set another mode
        while True:
            try:
                waiting: Waiting = training.send(None)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            while not waiting.is_over():
                requests = list(waiting.requests())
                pool = requests[0][0]
                pool.wait([ticket for its_pool, ticket in requests if its_pool is pool])


class NoiseTables:
    """Places the noise tables of trainings in a pool's memory; equal tables share it.

    Args:
        spec: The pool's.
        memory: A buffer for each of `spec.tables`, float32 (size,).
    """

    def __init__(self, spec: PoolSpec, memory: Sequence[npt.NDArray[np.float32]]) -> None:
        self._tables, self._memory = spec.tables, memory
        self._numbers = [spec.table_of(training) for training in range(len(spec.trainings))]
        self._drawn: set[int] = set()

    def place(self, table: NoiseTable, training: int) -> None:
        """See `Pool.place_table`."""
        number = self._numbers[training]
        if number < 0 or (table.size, table.seed) != self._tables[number]:
            expected = "none" if number < 0 else "{} values of seed {}".format(*self._tables[number])
            raise ValueError(
                f"a noise table of {table.size} values of seed {table.seed} for training {training}, expected {expected}: "
                "table_size and table_seed of TrainingNeeds say which"
            )
        memory = self._memory[number]
        if number not in self._drawn:
            table.place(memory)
            self._drawn.add(number)
        elif not table.is_in(memory):
            table.share(memory)


_made_by: WeakKeyDictionary[Pool, int] = WeakKeyDictionary()  # pool -> process: a forked copy closes none of its parent's


def close_at_exit(pool: Pool) -> None:
    """Close a pool's environments when this process's interpreter ends, unless the pool is gone by then."""
    _made_by[pool] = os.getpid()


@atexit.register
def _close_all() -> None:
    for pool, pid in list(_made_by.items()):
        if pid == os.getpid():
            with contextlib.suppress(Exception):
                pool.close()
