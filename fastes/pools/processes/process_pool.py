"""Worker processes that share one block of memory. No locks: workers claim jobs with an atomic counter."""

from __future__ import annotations

import contextlib
import pickle
import selectors
import warnings
from collections.abc import Collection, Set

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import WorkerError
from fastes.pools.open_requests import OpenRequest, OpenRequests, steps_in
from fastes.pools.pool import Pool
from fastes.pools.processes.losses import Losses
from fastes.pools.processes.shutdown import warn_of_late
from fastes.pools.processes.watchdog import TICK, Watch
from fastes.pools.processes.worker import LOOK, WORN
from fastes.pools.processes.worker_messages import BUILDING, LOADING, Failed, Said
from fastes.pools.processes.worker_process import OFFER_BYTES, Worker
from fastes.pools.processes.workforce import Workforce
from fastes.rollout.job import PENALISE, Batch, PoolSpec, Request, StepsPlayed, describe_episode, warn_of_penalty
from fastes.rollout.shared_block import (
    CLAIMING,
    GENERATION,
    JOB,
    PLACE,
    SAID,
    TICKET,
    TICKET_SHIFT,
    UNCLAIMED,
)
from fastes.system.interrupts import interrupts_wait


class ProcessPool(Workforce, Pool):
    """Runs requests on processes, which start with the first one and are replaced when they die.

    n_workers: that play anything. spare: further ones that play noise-free episodes alone.
    """

    def __init__(self, spec: PoolSpec, n_workers: int, spare: int = 0) -> None:
        super().__init__(spec, n_workers, spare)
        self._requests = OpenRequests(self.block)
        self._watch = Watch(spec.step_timeout)
        self._warned: set[str] = set()
        self._interrupted = False  # by an exception, before workers and requests could be let go of
        self._orphans = False  # whether a lost worker may have left a job that it had claimed
        self._lost_at = 0  # a ticket of that moment
        self._losses = Losses(spec, self.block, self.n_processes)

    def noise_table(self, number: int = 0) -> npt.NDArray[np.float32]:
        """Memory for one of its noise tables, float32 (table_size,)."""
        table: npt.NDArray[np.float32] = self.block.noise[number]
        return table

    def steps_played(self) -> StepsPlayed:
        return steps_in(self.block)

    def close(self) -> None:
        """End the workers and let go of the memory."""
        self._requests.forget()
        super().close()

    # --- requests ---------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> int:
        if self._interrupted:
            self.forget()
        open_ = self._requests.add(request)
        self._interrupted = True
        open_.submitted = self._watch.counted
        try:
            self._open_jobs(open_, open_.jobs)
            self.start()
        except BaseException:
            self.forget()
            raise
        self._interrupted = False
        return open_.first_ticket

    def _open_jobs(self, open_: OpenRequest, jobs: npt.NDArray[np.int64]) -> None:
        """Let workers claim them."""
        open_.place.todo[: len(jobs)] = jobs[::-1]
        _core.commit(open_.place.unclaimed, 0, open_.ticket << TICKET_SHIFT | len(jobs))  # from here on they can be claimed
        self._offer += 1
        wanted = len(jobs) + len(jobs) // 4 + 1  # some more: one that is slow to wake should not be waited for
        for worker in self._workers.values():
            plays_them = worker.slot < self.n_workers or not open_.place.layout.num_pairs
            if plays_them and wanted and worker.offer(self._offer):
                wanted -= worker.ready

    def knows(self, ticket: int) -> bool:
        return ticket in self._requests

    def tickets(self) -> Set[int]:
        return self._requests.tickets()

    def is_finished(self, ticket: int) -> bool:
        return self._requests[ticket].finished

    def wait(self, tickets: Collection[int]) -> None:
        """Also raises WorkerError where a worker cannot build its environment, WorkerCrashed (WorkerTimeout when it hung) where
        workers are lost again and again outside any episode, and none is finished; requests are forgotten then.
        """
        self._interrupted = True
        self._losses.begin_waiting()
        try:
            timeout = 0.0  # whoever died while nobody watched is met first
            while timeout == 0.0 or not self._is_any_finished(tickets):
                if len(self._workers) < self.n_processes:  # an error has ended them
                    self.start()
                if self._meet_events(timeout):
                    break
                timeout = TICK
            if self.spec.on_env_error == PENALISE or self.block.workers[:, SAID].any():
                self.block.workers[:, SAID] = 0
                for worker in list(self._workers.values()):
                    self._receive(worker)  # what was sent before its job counted as done
        except BaseException:
            self.forget()
            raise
        self._interrupted = False

    def collect(self, ticket: int) -> Batch:
        """Also raises WorkerCrashed (WorkerTimeout when it hung) when one job loses its worker three times."""
        open_ = self._requests[ticket]
        if open_.error is None:
            self._watch.learn(float(open_.place.seconds[open_.jobs].max()), open_.submitted)
        return self._requests.collect(ticket)

    def forget(self) -> None:
        """Every request, and end every worker, whatever it does: none may write into a place that is given to another."""
        self._interrupted = True
        if self.block.fd >= 0:  # it is no forked copy, to which the block does not belong
            for place in self.block.places:  # a job that is claimed later would be played in the place of another request
                _core.commit(place.unclaimed, 0, 0)
        self._requests.forget()
        self._losses.forget()
        self.kill()
        self._interrupted = False

    def _is_any_finished(self, tickets: Collection[int]) -> bool:
        """Look at the open requests, and open again what lost workers have left."""
        for open_ in self._requests.unfinished():
            if _core.committed(open_.place.unclaimed, 0) & UNCLAIMED or (not self._orphans and open_.misses_the_same()):
                continue
            left = open_.uncommitted()
            open_.finished, open_.missing = not len(left), int(left[-1]) if len(left) else None
            if len(left) and self._orphans and (orphans := self._orphans_among(open_, left)) is not None and len(orphans):
                self._open_again(open_, orphans)
        self._orphans = self._orphans and any(map(self._may_have_orphans, self._requests.unfinished()))
        return any(self.is_finished(ticket) for ticket in tickets)

    def _may_have_orphans(self, open_: OpenRequest) -> bool:
        """A request of which a lost worker had claimed a job; which one shows when none is unclaimed."""
        return open_.ticket <= self._lost_at

    def _orphans_among(self, open_: OpenRequest, jobs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The jobs that no worker is at; None while one is about to claim a job.

        Rows are read before flags: who has finished a job takes it out of its row after it has set the flag.
        """
        held = set()
        for worker in self._workers.values():
            if _core.committed(worker.row, CLAIMING):
                return None
            job, number, ticket = (_core.committed(worker.row, column) for column in (JOB, PLACE, TICKET))
            if job >= 0 and number == open_.number and ticket >= open_.first_ticket:
                held.add(job)
        left = set(open_.uncommitted().tolist()) - held
        return np.array([job for job in jobs.tolist() if job in left], dtype=np.int64)

    def _open_again(self, open_: OpenRequest, jobs: npt.NDArray[np.int64]) -> None:
        """Under a new ticket."""
        open_.rerun += len(jobs) - (_core.committed(open_.place.unclaimed, 0) & UNCLAIMED)  # those were never begun
        open_.ticket = self._requests.new_ticket()
        self._open_jobs(open_, jobs)

    # --- what workers do --------------------------------------------------------------------------------------------

    def wake_by(self, fd: int) -> None:
        """`wait` returns, too, while this descriptor can be read: whoever waits has something else to do then."""
        self._selector.register(fd, selectors.EVENT_READ)

    def _meet_events(self, timeout: float) -> bool:
        """Wait for one of them, for so many seconds at most, and look after the workers. Whether `wake_by`'s was one."""
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
        for unwell, fault in self._watch.check(list(self._workers.values()), bool(self._requests.unfinished())):
            if self._has(unwell):
                unwell.killed_for = fault
                self._replace(unwell)
        return is_woken

    def _receive(self, worker: Worker, is_there: bool = False) -> bool:
        """Take what it has sent; False when it hung up. is_there: something has come, or its end."""
        try:
            while self._has(worker) and (is_there or worker.has_sent()):
                is_there, message = False, worker.connection.recv_bytes()
                if len(message) == OFFER_BYTES:
                    worker.idle_after = int.from_bytes(message, "little")
                    worker.offer(self._offer)  # it was late where there is a newer one
                elif message == WORN:
                    self._renew(worker)
                elif message != LOOK:
                    self._meet_message(worker, pickle.loads(message))
        except (EOFError, OSError):
            return False
        return True

    def _meet_message(self, worker: Worker, message: Failed | Said) -> None:
        if isinstance(message, Failed):
            self._meet_failure(worker, message)
        elif message.kind not in self._warned:
            self._warned.add(message.kind)
            warnings.warn(message.text, RuntimeWarning, stacklevel=7)

    def _meet_failure(self, worker: Worker, failed: Failed) -> None:
        cause = None
        with contextlib.suppress(Exception):  # it may load in the worker alone
            cause = pickle.loads(failed.exception) if failed.exception else None
        if failed.job in (BUILDING, LOADING):
            doing = "while it was built" if failed.job == BUILDING else "while a worker imported what builds it"
            self._show(worker)
            trace = failed.trace
            if output := worker.last_output():  # what comes before the environment is built is not shown
                trace = f"{trace}\nThe worker's last output:\n{output}"
            where = f"{self.spec.source.name}, {doing}"
            raise WorkerError(
                f"{failed.summary}\n[in the {failed.origin}: {where}]\n\n{trace}", self._generation() + 1, None, None
            ) from cause
        open_ = self._requests.at(failed.place, failed.ticket)
        if open_ is None or open_.error is not None:
            return  # its request has met another error
        episode = describe_episode(self.spec, open_.place, failed.job, failed.episode)
        if failed.penalised:
            open_.penalised = failed.summary
            warn_of_penalty(self._warned, failed.summary, episode.text, failed.trace)
            return
        if open_.finished:
            return  # another worker was found to have done the job
        error = WorkerError(
            f"{failed.summary}\n[in the {failed.origin}: {episode.text}; to play this episode again in one process: "
            f"{episode.replay}]\n\n{failed.trace}",
            episode.generation,
            episode.job,
            episode.env_seed,
        )
        error.__cause__ = cause
        self._fail(open_, error)

    def _fail(self, open_: OpenRequest, error: WorkerError) -> None:
        """End a request with an error. Workers start anew: who knows what state theirs are in. Other requests go on."""
        open_.error, open_.finished = error, True
        _core.commit(open_.place.unclaimed, 0, 0)
        self.kill()
        for other in self._requests.unfinished():
            self._open_again(other, other.uncommitted())

    def _generation(self) -> int:
        """The last one that a request is of."""
        return max((int(open_.place.words[GENERATION]) for open_ in self._requests.unfinished()), default=-1)

    def _replace(self, worker: Worker) -> None:
        """Reap a worker that is dead or has to die, and start another in its place."""
        self._show(worker)
        with interrupts_wait():
            self._end(worker)
        self._note_orphans()
        open_, job = self._unfinished_job(worker)
        loss = self._losses.note(worker, open_, job, self._generation() + 1)
        if loss.error is None:
            warnings.warn(loss.told, RuntimeWarning, stacklevel=6)
            self.start()
        elif open_ is None or loss.ends_all:
            raise loss.error
        else:
            self._fail(open_, loss.error)

    def _renew(self, worker: Worker) -> None:
        """Let one that holds no job close its environment and end, and start another in its place."""
        with interrupts_wait():
            late = self._see_off([worker])
        warn_of_late(self.spec.source.name, late)
        self.start()

    def _note_orphans(self) -> None:
        """A lost worker may have claimed a job of any request that is open now."""
        self._orphans, self._lost_at = True, self._requests.new_ticket()

    def _unfinished_job(self, worker: Worker) -> tuple[OpenRequest | None, int]:
        """What a dead worker was at; no request when it had finished that."""
        job, number, ticket = (int(worker.row[column]) for column in (JOB, PLACE, TICKET))
        open_ = self._requests.at(number, ticket) if job >= 0 else None
        if open_ is not None and not open_.finished and open_.place.committed[job] < open_.first_ticket:
            return open_, job
        return None, -1
