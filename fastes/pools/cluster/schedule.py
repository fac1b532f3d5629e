"""Which jobs of a request wait, are out on a node, and are done; and how many a node is given at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from fastes.pools.cluster.messages import Int64

_AT_ONCE = 64  # jobs for each worker that one range has at most: who joins later should find some
_SINGLE = 64  # jobs at the end for which a message each costs little
_COPIES = 3  # of one job that are out at the same time


class Load(NamedTuple):
    """A node's load.

    Attributes:
        workers: Its processes.
        ranges, jobs: The ranges that it has, and their jobs.
        max_ranges: Ranges that it takes at a time.
    """

    workers: int
    ranges: int
    jobs: int
    max_ranges: int


def sizes(waiting: int, load: Load, all_workers: int) -> list[int]:
    """How many jobs the next ranges of a node have, so that its workers never idle and all nodes end together.

    Guided self-scheduling (Polychronopoulos and Kuck 1987): half of a node's share of what waits, so ranges get smaller. They
    are whole rounds of the node's workers, since a range is answered when its last job has ended, and a part of a round would
    leave workers idle until then. Two are out at a time: one is played while the answer for the other is under way. The last
    jobs go to idle nodes, one per range, up to max_ranges: half a round of all workers, but at least 64 jobs or
    two rounds, whichever is less.
    """
    free = load.max_ranges - load.ranges
    if not waiting or free <= 0:
        return []
    most = _AT_ONCE * load.workers
    if load.workers == all_workers:  # there is nobody to leave anything to
        return [] if load.jobs >= most else [min(waiting, most)]
    ahead = waiting - max(all_workers // 2, min(2 * all_workers, _SINGLE))
    if ahead > 0:
        rounds = -(-ahead // (2 * all_workers))
        busy = load.ranges >= 2 and load.jobs >= 2 * load.workers
        return [] if busy else [min(rounds * load.workers, most, waiting)]
    count = min(waiting, max(0, load.workers - load.jobs))
    parts = min(free, count)
    return [count // parts + (number < count % parts) for number in range(parts)]


class InFlight(NamedTuple):
    """A range that a node has. late: the time from which on others may play its jobs, too."""

    node: Hashable
    jobs: Int64
    late: float


class Schedule:
    """The jobs of one request. A job's first result counts; a later one, or one of a node that was given up, does not.

    jobs: their numbers, int64 (n,), in the order in which they are given out.
    done: which of them have a result, (n,).
    owner: which node's result that is.
    """

    def __init__(self, jobs: Int64) -> None:
        self.jobs = jobs
        self.done = np.zeros(len(jobs), dtype=bool)
        self.owner: list[Hashable] = [None] * len(jobs)
        self.rerun = 0  # jobs given out again because their node was lost
        self._at = {job: at for at, job in enumerate(jobs.tolist())}
        self._waiting = deque(jobs.tolist())
        self._out: dict[int, InFlight] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def all_done(self) -> bool:
        return bool(self.done.all())

    def positions(self, jobs: Int64) -> Int64:
        """The positions of these jobs in `jobs`."""
        return np.array([self._at[job] for job in jobs.tolist()], dtype=np.int64)

    def take(self, count: int) -> Int64:
        """The next jobs that wait."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        return np.array(taken, dtype=np.int64)

    def give(self, number: int, out: InFlight) -> None:
        """A node has a range of jobs now."""
        self._out[number] = out

    def finish(self, number: int) -> tuple[Int64, Int64] | None:
        """A range is answered: which of its jobs had no result, and where these are in `jobs`. None for unknown ones."""
        out = self._out.pop(number, None)
        if out is None:
            return None
        at = self.positions(out.jobs)
        fresh = np.flatnonzero(~self.done[at])
        self.done[at[fresh]] = True
        for position in at[fresh].tolist():
            self.owner[position] = out.node
        return fresh, at[fresh]

    def give_up(self, number: int) -> None:
        """A range will not be answered: its jobs wait again, unless another node has them."""
        out = self._out.pop(number, None)
        if out is not None:
            self._wait_again(out.jobs[~self.done[self.positions(out.jobs)]])

    def lose(self, node: Hashable) -> None:
        """A node is gone, with all that it had."""
        before = len(self._waiting)
        for number in [number for number, out in self._out.items() if out.node == node]:
            self.give_up(number)
        self.rerun += len(self._waiting) - before

    def undo(self, at: Int64) -> None:
        """Mark the results of these jobs (positions in `jobs`) as lost after all."""
        self.done[at] = False
        self.rerun += len(at)
        self._wait_again(self.jobs[at])

    def _wait_again(self, jobs: Int64) -> None:
        elsewhere = {job for out in self._out.values() for job in out.jobs.tolist()}
        known = {*elsewhere, *self._waiting}
        self._waiting.extendleft(job for job in reversed(jobs.tolist()) if job not in known)

    def late(self, node: Hashable, now: float) -> list[int]:
        """Jobs that wait for a node that is much slower than others, the latest first, for one that has none of them."""
        copies: dict[int, int] = {}
        mine: set[int] = set()
        for out in self._out.values():
            for job in out.jobs.tolist():
                copies[job] = copies.get(job, 0) + 1
            if out.node == node:
                mine.update(out.jobs.tolist())
        overdue = sorted((out for out in self._out.values() if out.late < now), key=lambda out: out.late)
        found = (job for out in overdue for job in out.jobs.tolist() if not self.done[self._at[job]])
        return [job for job in dict.fromkeys(found) if job not in mine and copies[job] < _COPIES]

    def by_owner(self, at: Iterable[int]) -> dict[Hashable, list[int]]:
        """Places in `jobs`, by the node whose result counts."""
        found: dict[Hashable, list[int]] = {}
        for position in at:
            found.setdefault(self.owner[position], []).append(position)
        return found
