"""The base of the pools of one machine: requests and results are in one block of memory."""

from __future__ import annotations

from collections.abc import Set

from fastes.errors import FastESError
from fastes.es.noise_table import NoiseTable
from fastes.pools.at_exit import close_at_exit
from fastes.pools.noise_tables import NoiseTables
from fastes.pools.open_requests import OpenRequests
from fastes.pools.pool import Pool
from fastes.rollout.job import Batch, PoolSpec, Request, StepsPlayed
from fastes.rollout.shared_block import EVALUATION_STEPS, STEPS, SharedBlock
from fastes.system.forks import tell_of_forks
from fastes.system.memory import check_memory

_ADVICE = "use fewer candidates, a smaller noise_table_size, fewer workers, or smaller observations (such as resized frames)"


class BlockPool(Pool):
    """A pool whose requests are in a block of memory of this machine. By itself it keeps them until one is waited for."""

    n_workers = 0
    is_remote = False

    def __init__(self) -> None:
        self._block: SharedBlock | None = None
        self._tables: NoiseTables | None = None
        self._requests = OpenRequests()
        tell_of_forks(self)
        close_at_exit(self)

    @property
    def is_open(self) -> bool:
        return self._block is not None

    @property
    def in_words(self) -> str:
        return f"{self.n_workers} worker{'' if self.n_workers == 1 else 's'}"

    @property
    def block(self) -> SharedBlock:
        """The memory of requests and results.

        Raises:
            FastESError: If the pool is not open.
        """
        if self._block is None:
            raise _closed()
        return self._block

    def _use(self, spec: PoolSpec, block: SharedBlock) -> None:
        """Be open. A forked copy may still have requests of its parent."""
        self._requests.forget()
        self.spec, self._block, self._tables = spec, block, NoiseTables(spec, block.tables)

    def check_memory(self, spec: PoolSpec, n_processes: int, actors: int) -> None:
        """Compare what a spec needs with the machine's free memory, before anything is allocated.

        Raises:
            OSError: If there is too little.
        """
        check_memory(spec.layout(n_processes).memory(actors), _ADVICE)

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        if self._tables is None:
            raise _closed()
        self._tables.place(table, training)

    def submit(self, request: Request) -> int:
        return self._requests.add(request, self.block.slots).ticket

    def tickets(self) -> Set[int]:
        return self._requests.tickets()

    def forget(self) -> None:
        self._requests.forget()

    def is_finished(self, ticket: int) -> bool:
        return self._requests[ticket].finished

    def collect(self, ticket: int) -> Batch:
        return self._requests.collect(ticket)

    def steps_played(self) -> StepsPlayed:
        block = self._block
        if block is None:
            return StepsPlayed()
        candidates, evaluations = block.workers[:, [STEPS, EVALUATION_STEPS]].sum(axis=0).tolist()
        return StepsPlayed(candidates, evaluations)

    def close(self) -> None:
        block, self._block, self._tables = self._block, None, None
        self._requests.forget()
        if block is not None:
            block.close()

    def reset_after_fork(self) -> None:
        """In a forked copy of this process: release what belongs to the parent. The copy can open the pool again."""
        block, self._block, self._tables = self._block, None, None
        if block is not None:
            block.close()


def _closed() -> FastESError:
    return FastESError("this pool is closed: open it before it is used")
