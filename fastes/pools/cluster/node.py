"""The actor of a node: it plays a driver's jobs on an ordinary pool of worker processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import threading
import warnings
from dataclasses import replace
from typing import NamedTuple

import cloudpickle
import numpy as np

from fastes.envs.closing import close_env
from fastes.envs.worker_imports import register
from fastes.errors import shorten, summary_of
from fastes.number_array import Float64, Int64
from fastes.pools.cluster.messages import (
    Failed,
    Joined,
    Played,
    Range,
    Reply,
    StateMismatch,
    Work,
    jobs_of,
    pack,
    unpack,
)
from fastes.pools.cluster.node_report import differences, versions_of
from fastes.pools.cluster.replica import KnownRequests
from fastes.pools.processes.process_pool import ProcessPool, spare_workers
from fastes.rollout.batch import Batch
from fastes.rollout.job import PoolSpec
from fastes.rollout.obs_normalizer import MomentSums
from fastes.system.limits import check_memory

_ADVICE = "use a node with more, a smaller noise_table_size, or fewer candidates"
_ROOM = 1 << 29  # bytes that ranges beyond the second may take


class _Rows(NamedTuple):
    """Moments of jobs that were played here and are summed at the end: job numbers, moments, numbers of observations."""

    jobs: Int64
    moments: Float64
    counts: Int64


class Node:
    """One node of a cluster. `join` is called first; then `work` and `sums`, in any order and concurrently.

    Each call of an actor costs CPU time on both sides, which the workers lack if all cores play. So a call of `work` brings
    several ranges, and returns answers once the driver can use them. One thread owns the pool.

    Args:
        name: Its name in messages.
        workers: Its processes.
    """

    def __init__(self, name: str, workers: int) -> None:
        self.name, self.workers = name, workers
        self._rows: dict[int, list[_Rows]] = {}
        self._open: dict[int, Range] = {}  # the pool's ticket -> the range
        self._inbox: dict[int, Work] = {}  # by number: calls in several threads come in any order
        self._taken = 0  # the next number to take out
        self._last = -1  # the newest number
        self._outbox: list[Played | Failed | StateMismatch] = []
        self._wanted: frozenset[int] = frozenset()  # tickets that the driver had open at the last message
        self._can_wait: dict[int, tuple[int, int]] = {}  # range -> training and generation whose answers it may wait for
        self._is_due = False  # whether the driver can use an answer now
        self._warned: list[str] = []
        self._changed = threading.Condition()
        self._bell, self._rope = -1, -1  # a pipe: a byte in it wakes the pool's thread
        self._is_leaving = False
        self._served = threading.Event()  # the pool's thread has ended

    # --- what a driver calls ----------------------------------------------------------------------------------------

    def join(self, wanted: dict[str, str], content: bytes, registrations: bytes, first_worker: int = 0) -> bytes:
        """Make the pool.

        Args:
            wanted: The driver's versions.
            content: Its PoolSpec, pickled.
            registrations: The environments that it has registered in Gymnasium, pickled.
            first_worker: The number of the first environment here.

        Returns:
            A packed Joined.
        """
        found = versions_of(wanted)
        refusal, max_ranges = differences(wanted, found, self.name), 0
        if not refusal:
            try:
                max_ranges = self._begin(content, registrations, first_worker)
            except ImportError as error:
                refusal = f"{summary_of(error)}: install it there, or send it along (runtime_env)"
            except Exception as error:
                refusal = shorten(error) if isinstance(error, OSError) else summary_of(error)
        return pack(Joined(found, refusal, max_ranges))

    def _begin(self, content: bytes, registrations: bytes, first_worker: int) -> int:
        register(registrations)
        spec: PoolSpec = replace(cloudpickle.loads(content), first_worker=first_worker)
        env = spec.source(first_worker)
        try:
            spec.check_spaces(env)
        finally:
            close_env(env, spec.source.name)
        max_ranges = max_ranges_for(spec, self.workers)
        spare = spare_workers(spec, self.workers)  # by the driver's requests, and not by the ranges of jobs that come here
        room = tuple(replace(each, num_generations=max_ranges, num_evaluations=max_ranges) for each in spec.trainings)
        spec = replace(spec, trainings=room)
        check_memory(spec.layout(self.workers + spare).memory(self.workers + spare), _ADVICE)
        self.pool = ProcessPool(self.workers, spare)
        self._known = KnownRequests(spec, self.pool.place_table)
        self.pool.open(spec)
        self._bell, self._rope = os.pipe()
        self.pool.wake_by(self._bell)
        threading.Thread(target=self._serve, name="fastes-node", daemon=True).start()
        return max_ranges

    def work(self, message: bytes) -> bytes:
        """Take in a packed Work, and wait for a Reply. Once a newer Work has come, this call ends, and that one waits."""
        work: Work = unpack(message)
        with self._changed:
            self._inbox[work.number] = work
            self._last = max(self._last, work.number)
            self._changed.notify_all()
            os.write(self._rope, b".")
            while not self._is_due and self._last == work.number and not self._is_leaving:
                self._changed.wait()
            reply = Reply(tuple(self._outbox), tuple(self._warned))
            self._outbox.clear()
            self._warned.clear()
            self._can_wait.clear()
            self._is_due = False
        return pack(reply)

    def sums(self, ticket: int, runs: Int64) -> bytes:
        """Return the packed MomentSums of jobs that were played here."""
        wanted = np.unique(jobs_of(runs))
        with self._changed:
            kept = list(self._rows.get(ticket, ()))
        total, left = MomentSums({}, 0, 0, 0), wanted
        for rows in kept:  # a job that was played twice counts once
            _, mine, _ = np.intersect1d(rows.jobs, left, return_indices=True)
            total += MomentSums.of(rows.moments[mine], rows.counts[mine])
            left = np.setdiff1d(left, rows.jobs)
        if len(left):
            raise KeyError(f"jobs {left.tolist()[:5]} of request {ticket} were not played here")
        return pack(total)

    def leave(self) -> None:
        """Close environments and end the workers."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            if self._rope >= 0:
                os.write(self._rope, b".")
        pool = getattr(self, "pool", None)
        if pool is not None:
            self._served.wait(5.0)
            pool.close()

    # --- the thread that owns the pool ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while not self._is_leaving:
                try:
                    answers = self._turn()
                except Exception as error:  # the driver must not wait for ranges that are not played
                    failed, self._open = self._open, {}
                    answers = [Failed(range_.number, _pickled(error)) for range_ in failed.values()]
                with self._changed:
                    self._outbox += answers
                    self._warned += [str(warning.message) for warning in caught]
                    caught.clear()
                    self._is_due = not self._all_can_wait()
                    if self._is_due:
                        self._changed.notify_all()
        self._served.set()

    def _all_can_wait(self) -> bool:
        """Whether all answers in the outbox can wait for candidates that are played here.

        The driver uses a generation's noise-free episodes when the next generation's candidates are done; without a lag, before
        these begin. Candidates that other nodes have played meanwhile do not count.
        """
        asked = [self._known.message(range_.ticket) for range_ in self._open.values() if range_.ticket in self._wanted]
        playing = {(each.training, each.generation) for each in asked if each.draws is not None}
        return all(self._can_wait.get(answer.number) in playing for answer in self._outbox)

    def _turn(self) -> list[Played | Failed | StateMismatch]:
        """Begin the ranges that have come, wait, and collect the finished ones."""
        inbox = []
        with self._changed:
            while self._taken not in self._inbox and not self._open and not self._is_leaving:
                self._changed.wait()
            while self._taken in self._inbox:
                inbox.append(self._inbox.pop(self._taken))
                self._taken += 1
            if select.select([self._bell], [], [], 0.0)[0]:
                os.read(self._bell, 1 << 12)
        answers: list[Played | Failed | StateMismatch] = []
        try:
            for work in inbox:
                self._take(work, answers)
            if inbox or not self._open:  # answers that were held back may be due now
                return answers
            self.pool.wait(tuple(self._open))
            done = [ticket for ticket in self._open if self.pool.is_finished(ticket)]
        except Exception as error:  # the pool has forgotten all requests, and some may not have reached it
            asked = {range_.number for range_ in (*self._open.values(), *(each for work in inbox for each in work.ranges))}
            failed = sorted(asked - {answer.number for answer in answers})
            self._open = {}
            return [*answers, *(Failed(number, _pickled(error)) for number in failed)]
        return [self._collect(ticket) for ticket in done]

    def _take(self, work: Work, answers: list[Played | Failed | StateMismatch]) -> None:
        """Begin a message's ranges. Those whose parameters are not here are answered at once, in `answers`."""
        self._forget(work)
        for message in work.requests:
            self._known.learn(message)
        self._known.drop(work.dropped)  # only now: states of this message may follow from them
        for range_ in work.ranges:
            request = self._known.find(range_.ticket)
            if isinstance(request, StateMismatch):
                answers.append(request._replace(number=range_.number))
            elif isinstance(request, Exception):
                answers.append(Failed(range_.number, _pickled(request)))
            else:
                self._open[self.pool.submit(request._replace(jobs=jobs_of(range_.runs)))] = range_

    def _forget(self, work: Work) -> None:
        """Drop requests that are over, unless they are still played."""
        self._wanted = frozenset(work.open_tickets)
        needed = {*self._wanted, *(range_.ticket for range_ in self._open.values())}
        self._known.forget(needed)
        with self._changed:
            for ticket in self._rows.keys() - needed:
                del self._rows[ticket]

    def _collect(self, ticket: int) -> Played | Failed:
        range_ = self._open.pop(ticket)
        try:
            batch = self.pool.collect(ticket)
        except Exception as error:
            return Failed(range_.number, _pickled(error))
        message = self._known.message(range_.ticket)
        if message.draws is None:
            self._can_wait[range_.number] = message.training, message.generation + 1
        keeps = message.draws is not None and self.pool.spec.trainings[message.training].normalize_obs
        if keeps and not message.sends_rows:
            assert isinstance(batch.moments, np.ndarray), "a local pool's"
            rows = _Rows(jobs_of(range_.runs), batch.moments, batch.lengths.ravel())
            with self._changed:
                self._rows.setdefault(range_.ticket, []).append(rows)
        return _played(range_.number, batch, keeps and message.sends_rows)


def max_ranges_for(spec: PoolSpec, workers: int) -> int:
    """Return the ranges that a node takes at a time: one per worker at the end of a generation, if memory allows; at least 2.

    Each training has room for all of them, since all may be of one training.
    """
    one = sum(training.candidates.size() for training in spec.layout(0).trainings)
    return max(2, min(workers + 2, _ROOM // max(one, 1)))


def _played(number: int, batch: Batch, with_rows: bool) -> Played:
    rows = batch.moments if with_rows and isinstance(batch.moments, np.ndarray) else None
    return Played(
        number=number,
        returns=batch.returns.ravel(),
        lengths=batch.lengths.ravel().astype(np.int32),
        successes=batch.successes.ravel(),
        cuts=batch.cuts.ravel().astype(np.int32),
        rows=rows,
        busy_seconds=batch.busy_seconds,
        rerun=batch.rerun,
        penalised=batch.penalised,
        infos=batch.infos,
        has_masks=batch.has_masks,
        cpu_seconds=batch.cpu_seconds,
        differs=batch.differs,
    )


def _pickled(error: Exception) -> bytes:
    """Pickle an exception, with its cause apart, which the driver may be unable to load."""
    cause: bytes = b""
    with contextlib.suppress(Exception):
        cause = cloudpickle.dumps(error.__cause__)
    return pickle.dumps((cloudpickle.dumps(error), cause))
