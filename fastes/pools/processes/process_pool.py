"""Worker processes that share one block of memory. No locks: workers claim jobs with an atomic counter."""

from __future__ import annotations

import contextlib
import pickle
import selectors
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import WorkerError, warn_user
from fastes.pools.block_pool import BlockPool, OpenRequest, episode_error
from fastes.pools.processes.nested_training import refuse_workers
from fastes.pools.processes.offers import Offers
from fastes.pools.processes.worker_failures import TICK, HangDetector, WorkerFailures
from fastes.pools.processes.worker_messages import BUILDING, LOADING, LOOK, WORN, Failed, Notice
from fastes.pools.processes.worker_process import END_SECONDS, Payload, Worker, end_gracefully, warn_of_killed
from fastes.rollout.job import PENALISE, PoolSpec, Request, describe_episode, warn_of_penalty
from fastes.rollout.shared_block import (
    CLAIMING,
    EPISODE,
    GENERATION,
    JOB,
    SLOT,
    TICKET,
    TICKET_SHIFT,
    UNCLAIMED,
)
from fastes.system.console import tolerant
from fastes.system.interrupts import interrupts_deferred
from fastes.system.limits import explained

_Made = TypeVar("_Made")
_SEVERAL = 4  # workers
_MANY = 8  # candidates per worker: the last ones of a generation are a small part of it then
_NO_JOBS = np.zeros(0, dtype=np.int64)


def spare_workers(spec: PoolSpec, n_workers: int) -> int:
    """Return the number of further workers that play noise-free episodes alone.

    If a generation gives each worker few episodes, a worker in a long evaluation delays the whole generation. A spare process
    plays that evaluation instead, and takes a little time from every core. Few workers need no spare ones: evaluations fill the
    time at the end of their generations.
    """
    candidates = sum(2 * each.num_pairs * each.num_generations for each in spec.trainings)
    if n_workers < _SEVERAL or not candidates or candidates >= _MANY * n_workers:
        return 0
    return min(sum(each.num_evaluations - each.num_generations for each in spec.trainings), n_workers)


def _some_more(jobs: int) -> int:
    """Return how many workers to wake for jobs: one may be slow to wake."""
    return jobs + jobs // 4 + 1 if jobs else 0


class ProcessPool(BlockPool):
    """Plays requests on worker processes, which are replaced when they die.

    Args:
        n_workers: Processes that play candidates and noise-free episodes.
        spare: Further processes that play noise-free episodes alone; None for the number of `spare_workers`.

    Attributes:
        workers: Number of a row in the block's `workers` -> the running worker that has it.
    """

    spec: PoolSpec
    _selector: selectors.BaseSelector
    _hang_detector: HangDetector
    _failures: WorkerFailures

    def __init__(self, n_workers: int, spare: int | None = None) -> None:
        super().__init__()
        self.n_workers, self._spare = n_workers, spare
        self.n_processes = n_workers + (spare or 0)
        self.workers: dict[int, Worker] = {}
        self._payload: Payload | None = None
        self._offers: tuple[Offers, ...] = ()  # two: to ordinary workers, to spare ones

    def open(self, spec: PoolSpec) -> None:
        """Allocate the memory and start the workers, which build their environments while the caller continues.

        Raises:
            OSError: If memory, descriptors or processes run out.
            NestedTraining: If this process is a worker.
        """
        self.n_processes = self.n_workers + (spare_workers(spec, self.n_workers) if self._spare is None else self._spare)
        self.check_memory(spec, self.n_processes, actors=self.n_processes)
        refuse_workers()
        self._printed, self._warned = set[str](), set[str]()
        self._interrupted = False  # whether an exception came before workers and requests were released
        self._orphans = False  # whether a lost worker may have left a claimed job in an open request
        self._lost_at = 0  # only requests up to this ticket can have such a job
        self._hang_detector = HangDetector(spec.step_timeout)
        self._failures = WorkerFailures(self.n_processes, spec.source.name, spec.source.make_kwargs)
        self._selector = self._with_limits_named(selectors.DefaultSelector)
        try:
            self._use(spec, self._with_limits_named(lambda: spec.block(self.n_processes)))
        except BaseException:
            self._selector.close()
            raise
        try:
            for _ in range(2):
                with interrupts_deferred():
                    self._offers += (self._with_limits_named(Offers),)
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers and release the memory."""
        if not self.is_open:
            return
        with interrupts_deferred():
            for worker in self.workers.values():
                self._show(worker)
            late = self._end_gracefully(list(self.workers.values()))
            self._selector.close()
            self._hang_detector.forget()
            super().close()
            self._close_files()
            warn_of_killed(self.spec.source.name, late)

    def reset_after_fork(self) -> None:
        """Release the workers in a forked copy.

        The copy closes its ends of the sockets, or workers would not see their parent hang up. The epoll set is shared with the
        parent, so nothing is removed from it.
        """
        workers = list(self.workers.values())
        self.workers.clear()
        for worker in workers:
            worker.reset_after_fork()
        if self.is_open:
            self._selector.close()
            self._hang_detector.forget()
        super().reset_after_fork()
        self._close_files()

    def _close_files(self) -> None:
        offers, self._offers = self._offers, ()
        for each in offers:
            each.close()
        if self._payload is not None:
            self._payload.close()
            self._payload = None

    # --- requests ---------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> int:
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[Request]) -> list[int]:
        """Submit several requests in this order: sleeping workers are woken once for all of them. Returns their tickets."""
        if self._interrupted:
            self.forget()
        opened = self._requests.add(requests, self.block.slots)
        self._interrupted = True
        try:
            for open_ in opened:
                open_.submitted = self._hang_detector.counted
                _core.commit(open_.slot.unfinished, 0, open_.ticket << TICKET_SHIFT | len(open_.jobs))
                self._open_jobs(open_, open_.jobs)
            self._wake(opened)
            self.start()
        except BaseException:
            self.forget()
            raise
        self._interrupted = False
        return [open_.first_ticket for open_ in opened]

    def _open_jobs(self, open_: OpenRequest, jobs: npt.NDArray[np.int64]) -> None:
        """Let workers that look for jobs claim those of a request."""
        open_.slot.todo[: len(jobs)] = jobs[::-1]
        _core.commit(open_.slot.unclaimed, 0, open_.ticket << TICKET_SHIFT | len(jobs))  # from here on they can be claimed

    def _wake(self, opened: Sequence[OpenRequest]) -> None:
        """Let workers that sleep look for the jobs of these requests."""
        workers, spare = self._offers
        jobs = sum(len(open_.jobs) for open_ in opened)
        workers.wake(min(_some_more(jobs), self.n_workers))
        if self.n_processes > self.n_workers:
            noise_free = sum(len(open_.jobs) for open_ in opened if not open_.slot.layout.num_pairs)
            spare.wake(min(_some_more(noise_free), self.n_processes - self.n_workers))

    def wait(self, tickets: Collection[int]) -> None:
        """Return once one of these requests is finished. After an exception all requests are forgotten.

        Raises:
            WorkerError: If a worker cannot build its environment.
            WorkerCrashed: If workers are lost again and again outside any episode, and none is finished.
            WorkerTimeout: The same, if the last one hung.
        """
        self._interrupted = True
        self._failures.begin_waiting()
        try:
            timeout = 0.0  # workers that have died since the last call are handled first
            while timeout == 0.0 or not self._is_any_finished(tickets):
                self.start()  # an error may have ended some
                if self._handle_events(timeout):
                    break
                timeout = TICK
            notices = self.block.notices
            if self.spec.on_env_error == PENALISE or notices[0]:
                notices[0] = 0
                for worker in list(self.workers.values()):
                    self._receive(worker)  # messages that were sent before the last job was done
        except BaseException:
            self.forget()
            raise
        self._interrupted = False

    def forget(self) -> None:
        """Drop all requests, and end all workers, even during an episode: none may write to the slot of a later one."""
        if self._block is None:  # in a forked copy
            self._requests.forget()
            return
        self._interrupted = True
        for slot in self._block.slots:  # so that no job is claimed any more
            _core.commit(slot.unclaimed, 0, 0)
        self._requests.forget()
        self._failures.forget()
        self.kill()
        self._interrupted = False

    def _is_any_finished(self, tickets: Collection[int]) -> bool:
        """Look at the open requests, and reopen jobs that lost workers have left."""
        for open_ in self._requests.unfinished():
            if open_.count_is_reliable and _core.committed(open_.slot.unfinished, 0) & UNCLAIMED:
                continue  # a count that comes later would count for the slot's next request
            if self._is_each_flag_set(open_):  # a count of the slot's last request may have come late
                open_.finished = True
                self._hang_detector.learn(float(open_.slot.seconds[open_.jobs].max()), open_.submitted)
        self._orphans = self._orphans and any(open_.ticket <= self._lost_at for open_ in self._requests.unfinished())
        return any(self.is_finished(ticket) for ticket in tickets)

    def _is_each_flag_set(self, open_: OpenRequest) -> bool:
        """Whether all jobs of a request have a result; reopen those that lost workers have left."""
        if _core.committed(open_.slot.unclaimed, 0) & UNCLAIMED or (
            not self._orphans and open_.still_waiting_for_last_missing()
        ):
            return False
        left = open_.uncommitted()
        open_.missing = int(left[-1]) if len(left) else None
        if self._orphans and len(left):
            orphans = self._orphans_among(open_)
            if len(orphans):
                self._open_again(open_, orphans)
        return not len(left)

    def _orphans_among(self, open_: OpenRequest) -> npt.NDArray[np.int64]:
        """Return the jobs that have no result and that no worker plays; none while a worker is about to claim one.

        Rows are read before flags: a worker that has finished a job sets the flag before it clears its row.
        """
        held = set()
        for worker in self.workers.values():
            if _core.committed(worker.row, CLAIMING):
                return _NO_JOBS
            job, number, ticket = (_core.committed(worker.row, column) for column in (JOB, SLOT, TICKET))
            if job >= 0 and number == open_.number and ticket >= open_.first_ticket:
                held.add(job)
        return np.array([job for job in open_.uncommitted().tolist() if job not in held], dtype=np.int64)

    def _open_again(self, open_: OpenRequest, jobs: npt.NDArray[np.int64]) -> None:
        """Reopen jobs under a new ticket."""
        open_.rerun += len(jobs) - (_core.committed(open_.slot.unclaimed, 0) & UNCLAIMED)  # those were never begun
        open_.ticket = self._requests.new_ticket()
        self._open_jobs(open_, jobs)
        self._wake([open_])

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers that are not running. They build their environments while the caller continues."""
        if len(self.workers) == self.n_processes:
            return
        if self._payload is None:
            self._payload = self._with_limits_named(lambda: Payload(self.spec, self.block, self.n_workers))
        for index in range(self.n_processes):
            if index not in self.workers:
                self._start_worker(index, self._payload)

    def _start_worker(self, index: int, payload: Payload) -> None:
        offers = self._offers[index >= self.n_workers]
        with interrupts_deferred():
            worker = self._with_limits_named(lambda: Worker(index, self.spec, self.block, payload, offers.fd))
            self.workers[index] = worker
            self._selector.register(worker.connection, selectors.EVENT_READ, (worker, "message"))
            self._selector.register(worker.stderr, selectors.EVENT_READ, (worker, "stderr"))
            if worker.pidfd >= 0:
                self._selector.register(worker.pidfd, selectors.EVENT_READ, (worker, "exit"))

    def _with_limits_named(self, make: Callable[[], _Made]) -> _Made:
        """Return make(). If descriptors or processes run out, the error names the limit."""
        try:
            return make()
        except (OSError, RuntimeError) as error:
            raise explained(error, self.n_processes, len(self.workers)) from error

    def _has(self, worker: Worker) -> bool:
        """Whether a worker is still the pool's: an error in another's message may have ended it."""
        return self.workers.get(worker.index) is worker

    def _show(self, worker: Worker) -> None:
        """Show what a worker wrote to stderr; a line that many workers write appears once."""
        lines, open_ = worker.read_stderr()
        for line in lines:
            if line and line not in self._printed:
                if len(self._printed) < 1000:
                    self._printed.add(line)
                print(line, file=tolerant(sys.stderr))
        if not open_:
            self._release(worker.stderr)

    def _release(self, channel: Any) -> None:
        with contextlib.suppress(KeyError, ValueError, OSError):  # already released or closed
            self._selector.unregister(channel)

    def _end(self, worker: Worker) -> None:
        """Reap a worker that has hung up, hangs or is stopped. If it ends by itself, its exit status tells the cause."""
        if worker.killed_for:
            self._end_gracefully([worker])
            return
        worker.wait(END_SECONDS)
        if not worker.has_ended():
            worker.killed_for = "hung up and did not end"
            worker.kill()
        self._remove(worker)

    def _remove(self, worker: Worker) -> None:
        """Reap a worker that was killed or is dead."""
        for channel in (worker.connection, worker.stderr, worker.pidfd):
            if channel != -1:
                self._release(channel)
        self.workers.pop(worker.index, None)
        worker.reap()
        if not worker.is_worn:  # a worn one has counted its last job
            for open_ in self._requests.unfinished():
                open_.count_is_reliable = False

    def _end_gracefully(self, workers: list[Worker]) -> list[Worker]:
        """Ask workers to close their environments and to end, and reap them. Returns those that had to be killed."""
        for worker in workers:
            self._release(worker.connection)
            worker.ask_to_leave()
        late = end_gracefully(workers, self._show)
        for worker in workers:
            self._show(worker)
            self._remove(worker)
        return late

    def kill(self) -> None:
        """End all workers, even during an episode; the next request starts new ones."""
        with interrupts_deferred():
            late = self._end_gracefully(list(self.workers.values()))
            warn_of_killed(self.spec.source.name, late)  # before an interrupt that waits is raised

    # --- what workers do --------------------------------------------------------------------------------------------

    def wake_by(self, fd: int) -> None:
        """Let `wait` return also if this descriptor can be read, for a caller that has something else to do then."""
        self._selector.register(fd, selectors.EVENT_READ)

    def _handle_events(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for events, and handle them. Returns whether `wake_by`'s was one."""
        is_woken = False
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                is_woken = True
                continue
            worker: Worker = key.data[0]
            channel: str = key.data[1]
            if not self._has(worker):
                continue  # replaced earlier in this batch of events
            if channel == "stderr":
                self._show(worker)
            elif (not self._receive(worker, channel == "message") or channel == "exit") and self._has(worker):
                self._replace(worker)
        if self._hang_detector.is_due:
            for unwell, fault in self._hang_detector.check(list(self.workers.values()), bool(self._requests.unfinished())):
                if self._has(unwell):
                    unwell.killed_for = fault
                    self._replace(unwell)
        return is_woken

    def _receive(self, worker: Worker, is_there: bool = False) -> bool:
        """Handle the messages of a worker.

        Args:
            worker: The worker.
            is_there: Whether a message, or the end of the connection, is known to be there.

        Returns:
            False if the worker has hung up.
        """
        try:
            while self._has(worker) and (is_there or worker.has_sent()):
                is_there, message = False, worker.connection.recv_bytes()
                if message == WORN:
                    self._renew(worker)
                elif message != LOOK:
                    self._handle_message(worker, pickle.loads(message))
        except (EOFError, OSError):
            return False
        return True

    def _handle_message(self, worker: Worker, message: Failed | Notice) -> None:
        if isinstance(message, Failed):
            self._handle_failure(worker, message)
        elif message.kind not in self._warned:
            self._warned.add(message.kind)
            warn_user(message.text)

    def _handle_failure(self, worker: Worker, failed: Failed) -> None:
        cause = None
        with contextlib.suppress(Exception):  # its class may exist in the worker only
            cause = pickle.loads(failed.exception) if failed.exception else None
        if failed.job in (BUILDING, LOADING):
            doing = "while it was built" if failed.job == BUILDING else "while a worker imported what builds it"
            self._show(worker)
            trace = failed.trace
            if output := worker.last_output():  # lines from before the environment is built are not shown
                trace = f"{trace}\nThe worker's last output:\n{output}"
            where = f"{self.spec.source.name}, {doing}"
            raise WorkerError(
                f"{failed.summary}\n[in the {failed.origin}: {where}]\n\n{trace}", self._generation() + 1, None, None
            ) from cause
        open_ = self._requests.at(failed.slot, failed.ticket)
        if open_ is None or open_.error is not None:
            return  # its request has another error
        episode = describe_episode(self.spec, open_.slot, failed.job, failed.episode)
        if failed.penalised:
            open_.penalised = failed.summary
            warn_of_penalty(self._warned, failed.summary, episode.text, failed.trace)
            return
        if open_.finished:
            return  # another worker was found to have done the job
        error = episode_error(episode, failed.summary, failed.origin, failed.trace)
        error.__cause__ = cause
        self._fail(open_, error)

    def _fail(self, open_: OpenRequest, error: WorkerError) -> None:
        """End a request with an error; the others continue, with new workers: environments may be in any state."""
        open_.error, open_.finished = error, True
        _core.commit(open_.slot.unclaimed, 0, 0)
        self.kill()
        for other in self._requests.unfinished():
            self._open_again(other, other.uncommitted())

    def _generation(self) -> int:
        """Return the newest generation among the requests, from 0; -1 for none."""
        return max((int(open_.slot.words[GENERATION]) for open_ in self._requests.unfinished()), default=-1)

    def _replace(self, worker: Worker) -> None:
        """Reap a worker that is dead or has to die, and start a new one."""
        self._show(worker)
        with interrupts_deferred():
            self._end(worker)
        self._orphans, self._lost_at = True, self._requests.new_ticket()
        open_, job = self._unfinished_job(worker)
        episode, crashes = None, 0
        if open_ is not None:
            open_.crashes[job] += 1
            episode, crashes = describe_episode(self.spec, open_.slot, job, int(worker.row[EPISODE])), open_.crashes[job]
        failure = self._failures.record(worker, episode, crashes, self._generation() + 1, self.block.slots)
        if failure.error is None:
            if failure.message:
                warn_user(failure.message)
            self.start()
        elif open_ is None or failure.ends_all:
            raise failure.error
        else:
            self._fail(open_, failure.error)

    def _renew(self, worker: Worker) -> None:
        """Let a worker without a job close its environment and end, and start a new one."""
        with interrupts_deferred():
            worker.is_worn = True
            late = self._end_gracefully([worker])
        warn_of_killed(self.spec.source.name, late)
        self.start()

    def _unfinished_job(self, worker: Worker) -> tuple[OpenRequest | None, int]:
        """Return the job that a dead worker had claimed and not committed, with its request; (None, -1) for none."""
        job, number, ticket = (int(worker.row[column]) for column in (JOB, SLOT, TICKET))
        open_ = self._requests.at(number, ticket) if job >= 0 else None
        if open_ is not None and not open_.finished and open_.slot.committed[job] < open_.first_ticket:
            return open_, job
        return None, -1
