"""A request on a cluster: its jobs that wait, are on a node or are done, and their results so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from fastes.number_array import Float64, Int64
from fastes.pools.cluster.messages import Played
from fastes.rollout.batch import Batch
from fastes.rollout.job import PoolSpec, Request
from fastes.rollout.last_infos import Info
from fastes.rollout.obs_normalizer import EXACT_ABOVE, MomentSums

_AT_ONCE = 64  # the most jobs of a range, per worker: a node that joins later should find some
_SINGLE = 64  # jobs at the end that may cost one message each
_COPIES = 3  # nodes that may play one job at the same time


class Load(NamedTuple):
    """A node's load.

    Attributes:
        workers: Its processes.
        ranges, jobs: The numbers of its ranges and of their jobs.
        max_ranges: Ranges that it takes at a time.
    """

    workers: int
    ranges: int
    jobs: int
    max_ranges: int


def sizes(waiting: int, load: Load, all_workers: int) -> list[int]:
    """Choose the sizes of a node's next ranges, so that its workers never idle and all nodes end together.

    Guided self-scheduling (Polychronopoulos and Kuck 1987): a range is half of the node's share of the waiting jobs, so ranges
    get smaller. It is a whole number of rounds of the node's workers: it is answered when its last job has ended, and a part of
    a round would leave workers idle until then. A node has two at a time: one is played while the answer to the other travels.
    The last jobs go to idle nodes, one per range, up to max_ranges. They are half a round of all workers, but at least 64 jobs
    or two rounds, whichever is less.

    Args:
        waiting: The request's jobs that wait.
        load: The node's.
        all_workers: Workers of all nodes.

    Returns:
        Jobs of each range; [] if the node should get none now.
    """
    free = load.max_ranges - load.ranges
    if not waiting or free <= 0:
        return []
    most = _AT_ONCE * load.workers
    if load.workers == all_workers:  # no other node needs any
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
    """A range that a node has. late: the time after which other nodes may play its jobs, too."""

    node: Hashable
    jobs: Int64
    late: float


class Schedule:
    """The jobs of one request. A job's first result counts; a later one, or one from a lost node, does not.

    Attributes:
        jobs: Their numbers, int64 (n,), in the order of playing.
        done: Whether each has a result, bool (n,).
        owner: The node of each result.
        rerun: Jobs given out again because their node was lost.
    """

    def __init__(self, jobs: Int64) -> None:
        self.jobs = jobs
        self.done = np.zeros(len(jobs), dtype=bool)
        self.owner: list[Hashable] = [None] * len(jobs)
        self.rerun = 0
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
        """Return the positions of these jobs in `jobs`."""
        return np.array([self._at[job] for job in jobs.tolist()], dtype=np.int64)

    def take(self, count: int) -> Int64:
        """Take the next waiting jobs out."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        return np.array(taken, dtype=np.int64)

    def give(self, number: int, out: InFlight) -> None:
        """Note that a node has a range of jobs."""
        self._out[number] = out

    def finish(self, number: int) -> tuple[Int64, Int64] | None:
        """Note that a range is answered.

        Returns:
            The indices in the range of jobs that had no result, and their positions in `jobs`; None for an unknown range.
        """
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
        """Note that a range will not be answered: its jobs wait again, unless another node has them."""
        out = self._out.pop(number, None)
        if out is not None:
            self._wait_again(out.jobs[~self.done[self.positions(out.jobs)]])

    def lose(self, node: Hashable) -> None:
        """Note that a node is gone: all its jobs wait again."""
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
        """Return jobs of nodes that are much slower than others, the latest first, which this node does not have."""
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
        """Group positions in `jobs` by the node whose result counts."""
        found: dict[Hashable, list[int]] = {}
        for position in at:
            found.setdefault(self.owner[position], []).append(position)
        return found


class OpenTicket:
    """A request that was submitted and not yet collected.

    Attributes:
        number: Its ticket.
        request: The request.
        schedule: Its jobs.
        is_candidates: Whether it has candidates, and not noise-free episodes.
        error: The exception that `collect` will raise.
        down, up: Bytes of traffic.
        obs_size: Values of an observation.
        sends_rows: Whether nodes return each candidate's moments; otherwise they are asked for sums.
    """

    def __init__(self, number: int, request: Request, spec: PoolSpec) -> None:
        self.number, self.request = number, request
        jobs = request.job_numbers()
        self.schedule = Schedule(jobs)
        self.is_candidates = request.perturbations is not None
        self.error: BaseException | None = None
        self.down = self.up = 0
        needs = spec.trainings[request.training]
        self.obs_size = needs.policy.obs_size
        has_moments = self.is_candidates and needs.normalize_obs
        few = request.perturbations is None or len(request.perturbations) <= EXACT_ABOVE
        self.sends_rows = has_moments and few
        self._sums: MomentSums | None = MomentSums({}, 0, 0, 0) if has_moments and not few else None
        self._unsummed = np.full(len(jobs), self._sums is not None)
        self._asked: dict[Hashable, Int64] = {}  # node -> positions of the jobs whose sum it was asked for
        self._returns, self._successes = np.zeros(len(jobs)), np.zeros(len(jobs))
        self._lengths, self._cuts = (np.zeros(len(jobs), dtype=np.int64) for _ in range(2))
        self._rows = np.zeros((len(jobs) if self.sends_rows else 0, 2, self.obs_size))
        self._infos: list[tuple[Info, ...]] = [()] * len(jobs) if self.is_candidates and spec.info_bytes else []
        self._busy_seconds, self._cpu_seconds = 0.0, 0.0
        self._rerun, self._penalised, self._has_masks, self._differs = 0, "", False, False

    @property
    def is_finished(self) -> bool:
        return self.error is not None or (self.schedule.all_done and not self._unsummed.any())

    def book(self, played: Played) -> bool:
        """Store results that are the first of their jobs. Returns False if the range was given up."""
        finished = self.schedule.finish(played.number)
        if finished is None:
            return False
        fresh, at = finished
        self._returns[at], self._lengths[at] = played.returns[fresh], played.lengths[fresh]
        self._successes[at], self._cuts[at] = played.successes[fresh], played.cuts[fresh]
        if self.sends_rows and played.rows is not None:
            self._rows[at] = played.rows[fresh]
        if self._infos:
            for position, job in zip(at.tolist(), fresh.tolist(), strict=True):
                self._infos[position] = played.infos[job]
        if len(fresh):
            share = len(fresh) / len(played.returns)
            self._busy_seconds += played.busy_seconds * share
            self._cpu_seconds += played.cpu_seconds * share
            self._rerun += played.rerun
            self._penalised = played.penalised or self._penalised
            self._has_masks |= played.has_masks
            self._differs |= played.differs
        return True

    def sums_to_ask_for(self) -> dict[Hashable, Int64]:
        """Return node -> jobs whose moments it has, once all jobs are done. Each sum is asked for once."""
        if not self.schedule.all_done or self._sums is None:
            return {}
        open_ = set(np.flatnonzero(self._unsummed).tolist()).difference(*(at.tolist() for at in self._asked.values()))
        found = {node: np.array(sorted(at)) for node, at in self.schedule.by_owner(open_).items()}
        self._asked.update(found)
        return {node: self.schedule.jobs[at] for node, at in found.items()}

    def add_sums(self, node: Hashable, sums: MomentSums) -> None:
        """Add the sums of a node that was asked for them."""
        at = self._asked.pop(node, None)
        if at is not None and self._sums is not None:
            self._sums += sums
            self._unsummed[at] = False

    def lose(self, node: Hashable) -> None:
        """Note that a node is gone: its jobs, and those whose moments only it has, wait again."""
        self.schedule.lose(node)
        self._asked.pop(node, None)
        unsummed = np.flatnonzero(self._unsummed & self.schedule.done)
        if lost := self.schedule.by_owner(unsummed.tolist()).get(node):
            self.schedule.undo(np.array(lost, dtype=np.int64))

    def batch(self) -> Batch:
        """Return all results as a local pool does."""
        shape = self.request.shape_of_results(self.schedule.jobs)
        return Batch(
            returns=self._returns.reshape(shape),
            lengths=self._lengths.reshape(shape),
            successes=self._successes.reshape(shape),
            cuts=self._cuts.reshape(shape),
            moments=self._moments(),
            busy_seconds=self._busy_seconds,
            rerun=self._rerun + self.schedule.rerun,
            penalised=self._penalised,
            per_candidate=self.request.episodes.per_candidate,
            infos=tuple(self._infos),
            has_masks=self._has_masks,
            cpu_seconds=self._cpu_seconds,
            differs=self._differs,
        )

    def _moments(self) -> Float64 | MomentSums:
        if self._sums is not None:
            return self._sums
        if self.sends_rows or not self.is_candidates:
            return self._rows
        return np.broadcast_to(0.0, (len(self.schedule.jobs), 2, self.obs_size))
