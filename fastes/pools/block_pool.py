"""The base of the pools of one machine, whose requests and results are in one block of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import FastESError, WorkerError
from fastes.es.noise_table import NoiseTable
from fastes.pools.pool import NoiseTables, Pool, close_at_exit
from fastes.rollout.batch import Batch, StepsPlayed
from fastes.rollout.job import EpisodeDescription, PoolSpec, Request, collect, publish
from fastes.rollout.shared_block import EVALUATION_STEPS, STEPS, RequestSlot, SharedBlock
from fastes.system.forks import register_for_forks
from fastes.system.limits import check_memory

_ADVICE = "use fewer candidates, a smaller noise_table_size, fewer workers, or smaller observations (such as resized frames)"


@dataclass
class OpenRequest:
    """A request that was submitted and not yet collected.

    Attributes:
        number: The number of its slot.
        slot: Its arrays.
        request: The request.
        jobs: Its jobs in the order of claiming, int64 (n,).
        first_ticket: The ticket that `submit` returned. A commit flag of at least this value is this request's.
        ticket: The ticket under which jobs are claimed now: a new one for the jobs of a lost worker.
        rerun: Jobs run again.
        penalised: See Batch.
        error: The exception that `collect` will raise.
        finished: Whether all jobs are done, or there is an error.
        crashes: Job -> how often its worker was lost.
        submitted: The pool's time of submission.
        missing: A job that had no result at the last look.
        count_is_reliable: False once a worker may have died between a job's end and its count in the slot's `unfinished`.
    """

    number: int
    slot: RequestSlot
    request: Request
    jobs: npt.NDArray[np.int64]
    first_ticket: int
    ticket: int
    rerun: int = 0
    penalised: str = ""
    error: Exception | None = None
    finished: bool = False
    crashes: Counter[int] = field(default_factory=Counter)
    submitted: float = 0.0
    missing: int | None = None
    count_is_reliable: bool = True

    def still_waiting_for_last_missing(self) -> bool:
        """Whether the job that had no result at the last look still has none, so that the others need no look."""
        return self.missing is not None and _core.committed(self.slot.committed, self.missing) < self.first_ticket

    def uncommitted(self) -> npt.NDArray[np.int64]:
        """Return the jobs without a result, in the order of claiming."""
        return _core.uncommitted(self.slot.committed, self.jobs, self.first_ticket)


class OpenRequests:
    """The requests of a pool, by ticket. Tickets grow: the oldest request has the smallest."""

    def __init__(self) -> None:
        self._open: dict[int, OpenRequest] = {}
        self._last_ticket = 0

    def new_ticket(self) -> int:
        """Return a ticket above all earlier ones."""
        self._last_ticket += 1
        return self._last_ticket

    def add(self, requests: Sequence[Request], slots: Sequence[RequestSlot]) -> list[OpenRequest]:
        """Publish requests, each in a free slot of its training and kind.

        Raises:
            FastESError: If there are not enough free slots. No request is added then.
        """
        taken, places = {open_.number for open_ in self._open.values()}, list[int]()
        for request in requests:
            places.append(_free(request, slots, taken))
            taken.add(places[-1])
        opened = []
        for request, number in zip(requests, places, strict=True):
            jobs, ticket = publish(slots[number], request), self.new_ticket()
            opened.append(OpenRequest(number, slots[number], request, jobs, ticket, ticket))
        self._open.update({open_.ticket: open_ for open_ in opened})
        return opened

    def __getitem__(self, ticket: int) -> OpenRequest:
        return self._open[ticket]

    def tickets(self) -> Set[int]:
        """Return the tickets of all requests."""
        return self._open.keys()

    def unfinished(self) -> list[OpenRequest]:
        """Return the requests that are not finished, the oldest first."""
        return [open_ for open_ in self._open.values() if not open_.finished]

    def at(self, number: int, ticket: int) -> OpenRequest | None:
        """Return the request that has a slot and issued a ticket; None if it is gone."""
        found = (open_ for open_ in self._open.values() if open_.number == number and open_.first_ticket <= ticket)
        return next(found, None)

    def pop(self, ticket: int) -> OpenRequest:
        """Remove a request, and return it."""
        return self._open.pop(ticket)

    def forget(self) -> None:
        """Remove all requests."""
        self._open.clear()


def _free(request: Request, slots: Sequence[RequestSlot], taken: Set[int]) -> int:
    """Return the number of a slot for a request; FastESError if all of its training and kind are taken."""
    candidates, training = request.perturbations is not None, request.training
    for number, slot in enumerate(slots):
        if number not in taken and slot.training == training and bool(slot.layout.num_pairs) == candidates:
            return number
    kind = "candidates" if candidates else "noise-free episodes"
    whose = f" of training {training}" if training or slots[-1].training else ""
    raise FastESError(f"no slot is free for another request of {kind}{whose}: collect an earlier one first")


def episode_error(episode: EpisodeDescription, summary: str, origin: str, trace: str) -> WorkerError:
    """Return the error for an exception in an episode.

    Args:
        episode: The episode.
        summary: The exception's type and message.
        origin: 'environment' or 'policy'.
        trace: The exception's traceback.
    """
    return WorkerError(
        f"{summary}\n[in the {origin}: {episode.text}; to play this episode again in one process: {episode.replay}]\n\n{trace}",
        episode.generation,
        episode.job,
        episode.env_seed,
        episode.trial,
    )


class BlockPool(Pool):
    """A pool whose requests are in a block of memory of this machine. This base stores them; a subclass plays them."""

    n_workers = 0
    is_remote = False

    def __init__(self) -> None:
        self._block: SharedBlock | None = None
        self._tables: NoiseTables | None = None
        self._requests = OpenRequests()
        register_for_forks(self)
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
        """Open with a block. Requests that a forked copy still has of its parent are dropped."""
        self._requests.forget()
        self.spec, self._block, self._tables = spec, block, NoiseTables(spec, block.tables)

    def check_memory(self, spec: PoolSpec, n_processes: int, actors: int) -> None:
        """Compare the memory that a spec needs with the machine's free memory, before anything is allocated.

        Raises:
            OSError: If there is too little.
        """
        check_memory(spec.layout(n_processes).memory(actors), _ADVICE)

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        if self._tables is None:
            raise _closed()
        self._tables.place(table, training)

    def submit(self, request: Request) -> int:
        return self._requests.add([request], self.block.slots)[0].ticket

    def tickets(self) -> Set[int]:
        return self._requests.tickets()

    def training_of(self, ticket: int) -> int:
        return self._requests[ticket].request.training

    def forget(self) -> None:
        self._requests.forget()

    def is_finished(self, ticket: int) -> bool:
        return self._requests[ticket].finished

    def collect(self, ticket: int) -> Batch:
        """Return a finished request's results, and free its slot.

        Raises:
            WorkerError: For an environment's exception.
            WorkerCrashed: If one job has lost its worker three times.
            WorkerTimeout: The same, if the last one hung.
        """
        open_ = self._requests.pop(ticket)
        if open_.error is not None:
            raise open_.error
        return collect(open_.slot, open_.request, open_.jobs, open_.rerun, open_.penalised)

    def steps_played(self) -> StepsPlayed:
        block = self._block
        if block is None:
            return StepsPlayed()
        totals = block.workers.sum(axis=0)
        return StepsPlayed(int(totals[STEPS]), int(totals[EVALUATION_STEPS]))

    def close(self) -> None:
        block, self._block, self._tables = self._block, None, None
        self._requests.forget()
        if block is not None:
            block.close()

    def reset_after_fork(self) -> None:
        """Release the parent's memory in a forked copy, which can open the pool again."""
        block, self._block, self._tables = self._block, None, None
        if block is not None:
            block.close()


def _closed() -> FastESError:
    return FastESError("this pool is closed: open it before it is used")
