"""The open requests of a pool, and their slots in its block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import FastESError
from fastes.rollout.job import Batch, Request, collect, publish
from fastes.rollout.shared_block import RequestSlot


@dataclass
class OpenRequest:
    """A request that was submitted and is not collected.

    number: of its slot.
    slot: its arrays.
    request: what was asked.
    jobs: in the order of claiming, int64 (n,).
    first_ticket: a commit flag of at least this is of this request.
    ticket: under which its jobs are claimed; later ones run what a lost worker has left.
    rerun: jobs run again.
    penalised: see Batch.
    error: what `collect` will raise.
    finished: whether all jobs are done, or there is an error.
    crashes: how often a job has lost its worker.
    submitted: the pool's time then.
    missing: a job that had no result at the last look.
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

    def still_waiting_for_last_missing(self) -> bool:
        """Whether the job that had no result at the last look still has none. If so, the other jobs need no look."""
        return self.missing is not None and _core.committed(self.slot.committed, self.missing) < self.first_ticket

    def uncommitted(self) -> npt.NDArray[np.int64]:
        """The jobs without a result, in the order of claiming."""
        return _core.uncommitted(self.slot.committed, self.jobs, self.first_ticket)


class OpenRequests:
    """The requests of a pool, by ticket. Tickets grow: the oldest request has the smallest."""

    def __init__(self) -> None:
        self._open: dict[int, OpenRequest] = {}
        self._last_ticket = 0

    def new_ticket(self) -> int:
        """One above all before."""
        self._last_ticket += 1
        return self._last_ticket

    def add(self, request: Request, slots: Sequence[RequestSlot]) -> OpenRequest:
        """Publish a request in a free slot of its training and kind.

        Raises:
            FastESError: If there is none.
        """
        taken = {open_.number for open_ in self._open.values()}
        candidates, training = request.perturbations is not None, request.training
        for number, slot in enumerate(slots):
            if number not in taken and slot.training == training and bool(slot.layout.num_pairs) == candidates:
                jobs, ticket = publish(slot, request), self.new_ticket()
                self._open[ticket] = open_ = OpenRequest(number, slot, request, jobs, ticket, ticket)
                return open_
        kind = "candidates" if candidates else "noise-free episodes"
        whose = f" of training {training}" if training or slots[-1].training else ""
        raise FastESError(f"no slot is free for another request of {kind}{whose}: collect an earlier one first")

    def __getitem__(self, ticket: int) -> OpenRequest:
        return self._open[ticket]

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._open

    def tickets(self) -> Set[int]:
        """The tickets of all requests."""
        return self._open.keys()

    def unfinished(self) -> list[OpenRequest]:
        """The oldest first."""
        return [open_ for open_ in self._open.values() if not open_.finished]

    def at(self, number: int, ticket: int) -> OpenRequest | None:
        """The request that has a slot, and gave out a ticket."""
        found = (open_ for open_ in self._open.values() if open_.number == number and open_.first_ticket <= ticket)
        return next(found, None)

    def collect(self, ticket: int) -> Batch:
        """Close a finished request: its results, or its error raised."""
        open_ = self._open.pop(ticket)
        if open_.error is not None:
            raise open_.error
        return collect(open_.slot, open_.request, open_.jobs, open_.rerun, open_.penalised)

    def forget(self) -> None:
        """All of them."""
        self._open.clear()
