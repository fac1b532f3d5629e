"""Worker processes that share one block of memory. No locks: workers claim jobs with an atomic counter."""

from __future__ import annotations

import contextlib
import pickle
import selectors
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import WorkerCrashed, WorkerError, WorkerTimeout
from fastes.pools.at_exit import close_at_exit
from fastes.pools.processes.nested_training import refuse_workers
from fastes.pools.processes.shutdown import END_SECONDS, see_off, warn_of_late
from fastes.pools.processes.watchdog import HUNG, TICK, Watch
from fastes.pools.processes.worker import Done
from fastes.pools.processes.worker_messages import BUILDING, LOADING, Failed
from fastes.pools.processes.worker_process import Payload, Worker
from fastes.rollout.job import (
    PENALISE,
    Batch,
    PoolSpec,
    Request,
    Round,
    Where,
    collect,
    describe_episode,
    publish,
    warn_of_penalty,
)
from fastes.rollout.shared_block import ENTERED, EPISODE, JOB, Block
from fastes.system.console import lasting
from fastes.system.forks import tell_of_forks
from fastes.system.interrupts import interrupts_wait
from fastes.system.limits import explained

_Made = TypeVar("_Made")
_MAX_CRASHES = 3  # of one job
_MAX_FRUITLESS = 6  # for each worker, where no episode was ever finished
_OUTSIDE = -1  # stands for the job of a worker that died outside any


class ProcessPool:
    """n_workers processes that evaluate candidates. They start with the first `evaluate` and are replaced when they die."""

    def __init__(self, spec: PoolSpec, n_workers: int) -> None:
        refuse_workers()
        self.spec, self.n_workers = spec, n_workers
        self._workers: dict[int, Worker] = {}
        self._selector = self._with_limits_named(selectors.DefaultSelector)
        try:
            self.block = self._with_limits_named(lambda: Block(spec.layout(n_workers)))
        except BaseException:
            self._selector.close()
            raise
        self._watch = Watch(spec.step_timeout)
        self._crashes: Counter[int] = Counter()
        self._payload: Payload | None = None
        self._printed: set[str] = set()
        self._warned: set[str] = set()
        self._penalised = ""
        self._unfinished = False
        self._fruitless = 0  # episodes that lost their worker before any was finished
        self._round = 0
        self._first = 1  # the generation's first round: a commit flag of at least this is one of this generation
        tell_of_forks(self)
        close_at_exit(self)

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """Memory for the noise table, float32 (table_size,)."""
        return self.block.noise

    def start(self) -> None:
        """Start the workers that are not running, so that they build their environments while the caller goes on."""
        if self._payload is None:
            self._payload = self._with_limits_named(lambda: Payload(self.spec, self.block))
        for slot in range(self.n_workers):
            if slot not in self._workers:
                self._start_worker(slot, self._payload)

    def _start_worker(self, slot: int, payload: Payload) -> Worker:
        with interrupts_wait():
            worker = self._with_limits_named(lambda: Worker(slot, self.spec, self.block, payload))
            self._workers[slot] = worker
            self._selector.register(worker.connection, selectors.EVENT_READ, (worker, "message"))
            self._selector.register(worker.stderr, selectors.EVENT_READ, (worker, "stderr"))
            if worker.pidfd >= 0:
                self._selector.register(worker.pidfd, selectors.EVENT_READ, (worker, "exit"))
        return worker

    def _with_limits_named(self, make: Callable[[], _Made]) -> _Made:
        """What make() gives; when descriptors or processes run out, the error names the limit."""
        try:
            return make()
        except (OSError, RuntimeError) as error:
            raise explained(error, self.n_workers, len(self._workers)) from error

    def evaluate(self, request: Request) -> Batch:
        """Run a request's jobs.

        Raises WorkerError for an exception in an environment, WorkerCrashed (WorkerTimeout when it hung) when one job loses
        its worker three times; the pool can be used again after both.
        """
        if self._unfinished:  # an interrupt came before the workers of the last call could be ended
            self.kill()
        self._unfinished = True
        jobs = publish(self.block, request)
        self._first, todo, rerun = self._round + 1, jobs, 0
        self._crashes.clear()
        self._penalised = ""
        self._watch.begin()
        try:
            self.start()
            while len(todo):
                self._round += 1
                round_ = Round.of(self._round, len(todo), request)
                self._run_round(round_, todo)
                todo = todo[self.block.committed[todo] < self._first]
                rerun += len(todo)
        except BaseException:
            self.kill()
            raise
        self._unfinished = False
        self._watch.learn(float(self.block.seconds[jobs].max()))
        return collect(self.block, jobs, rerun, self._penalised)

    def _run_round(self, round_: Round, todo: npt.NDArray[np.int64]) -> None:
        """Wake every worker for the jobs in todo; return when all are done, or when nobody is left who could do them."""
        block = self.block
        block.todo[: len(todo)] = todo
        _core.commit(block.next_todo, 0, round_.number << 32)  # from here on jobs can be claimed
        for worker in self._workers.values():
            worker.offer(round_)
        timeout = 0.0  # whoever died while nobody watched is met first
        while timeout == 0.0 or not self._is_over(round_, todo):
            events, timeout = self._selector.select(timeout), TICK
            for key, _ in events:
                worker, channel = key.data
                if self._workers.get(worker.slot) is not worker:
                    continue  # replaced earlier in this batch of events
                if channel == "stderr":
                    self._show(worker)
                elif not self._receive(worker, round_) or channel == "exit":
                    self._replace(worker, round_)
            for worker, fault in self._watch.check(self._workers.values()):
                worker.killed_for = fault
                self._replace(worker, round_)
        if self.spec.on_env_error == PENALISE:
            for worker in list(self._workers.values()):
                self._receive(worker, round_)  # penalties were sent before their jobs counted as done

    def _is_over(self, round_: Round, todo: npt.NDArray[np.int64]) -> bool:
        """Every job is done, or all are claimed and no living worker that claimed any goes on.

        A worker that is still building has claimed nothing: it says that it enters a round before its first claim.
        """
        claimed = _core.committed(self.block.next_todo, 0) & 0xFFFFFFFF
        if claimed < len(todo):
            return False
        number = round_.number
        if all(w.done_round == number or _core.committed(w.row, ENTERED) != number for w in self._workers.values()):
            return True
        return bool((self.block.committed[todo] >= self._first).all())

    def _receive(self, worker: Worker, round_: Round) -> bool:
        """Take what it has sent; False when it hung up."""
        try:
            while worker.connection.poll():
                self._take(worker, worker.connection.recv(), round_)
        except (EOFError, OSError):
            return False
        return True

    def _take(self, worker: Worker, message: Done | Failed, round_: Round) -> None:
        if isinstance(message, Done):
            worker.done_round = message.round_number
            if worker.done_round < round_.number:  # it was late: the others have begun another round
                worker.offer(round_)
        else:
            self._meet_failure(worker, message, round_)

    def _meet_failure(self, worker: Worker, failed: Failed, round_: Round) -> None:
        if failed.job in (BUILDING, LOADING):
            doing = "while it was built" if failed.job == BUILDING else "while a worker imported what builds it"
            where, generation, job, env_seed = f"{self.spec.source.name}, {doing}", round_.generation + 1, None, None
            replay = ""
            self._show(worker)
            if output := worker.last_output():  # what comes before the environment is built is not shown
                failed = failed._replace(trace=f"{failed.trace}\nThe worker's last output:\n{output}")
        else:
            episode = describe_episode(self.spec, self.block, round_, failed.job, failed.episode)
            where, generation, job, env_seed = episode[:4]
            replay = f"; to play this episode again in one process: {episode.replay}"
        if failed.penalised:
            self._penalised = failed.summary
            warn_of_penalty(self._warned, failed.summary, where, failed.trace)
            return
        cause = None
        with contextlib.suppress(Exception):  # it may load in the worker alone
            cause = pickle.loads(failed.exception) if failed.exception else None
        raise WorkerError(
            f"{failed.summary}\n[in the {failed.origin}: {where}{replay}]\n\n{failed.trace}", generation, job, env_seed
        ) from cause

    def _replace(self, worker: Worker, round_: Round) -> None:
        """Reap a worker that is dead or has to die, and start another in its place, which helps with this round."""
        self._show(worker)
        with interrupts_wait():
            self._end(worker)
        job = self._unfinished_job(worker)
        how = worker.how_it_died()
        if job == _OUTSIDE:
            episode, what = None, "outside any episode" if worker.ready else "while it built its environment"
            what += f", in generation {round_.generation + 1}" if round_.generation >= 0 else ""
        else:
            episode = describe_episode(self.spec, self.block, round_, job, int(worker.row[EPISODE]))
            what = f"in {episode.text}"
        blamed = job if job != _OUTSIDE else -1 - worker.slot  # several that are killed while they start prove nothing
        self._crashes[blamed] += not (job == _OUTSIDE and worker.ready)  # killed while idle: nobody's fault
        self._fruitless += job != _OUTSIDE
        never = self._fruitless >= _MAX_FRUITLESS * self.n_workers and not self.block.committed.any()
        if self._crashes[blamed] >= _MAX_CRASHES or never:
            raise self._too_many_lost(worker, f"{what};", how, round_, episode, never)
        again = "" if episode is None else " and its unfinished episode is played again"
        warnings.warn(
            f"worker {worker.slot} {how} {what}; it is replaced{again}, results do not change",
            RuntimeWarning,
            stacklevel=5,
        )
        assert self._payload is not None
        self._start_worker(worker.slot, self._payload).offer(round_)

    def _too_many_lost(
        self, worker: Worker, what: str, how: str, round_: Round, episode: Where | None, never: bool
    ) -> WorkerCrashed:
        """The error of a round that is given up. never: no episode was finished at all."""
        kind = WorkerTimeout if worker.killed_for.startswith(HUNG) else WorkerCrashed
        if never:
            lost = f"{self._fruitless} workers were lost before any episode was finished, the last one {what} it {how}."
        else:
            lost = f"{_MAX_CRASHES} workers were lost {what} the last one {how}."
        again = f"\nTo play this episode again in one process: {episode.replay}" if episode else ""
        output = worker.last_output()
        return kind(
            f"{lost}{again}{output and f'{chr(10)}Its last output:{chr(10)}{output}'}",
            round_.generation + 1,
            episode.job if episode else None,
            episode.env_seed if episode else None,
        )

    def _unfinished_job(self, worker: Worker) -> int:
        """What a dead worker was at; _OUTSIDE when it had finished that, in this generation or an earlier one."""
        job = int(worker.row[JOB])
        finished = worker.row[ENTERED] < self._first or (job >= 0 and self.block.committed[job] >= self._first)
        return _OUTSIDE if finished else job

    def _show(self, worker: Worker) -> None:
        """Pass on what a worker wrote to stderr; a line that many workers write appears once."""
        lines, open_ = worker.read_stderr()
        for line in lines:
            if line and line not in self._printed:
                if len(self._printed) < 1000:
                    self._printed.add(line)
                print(line, file=lasting(sys.stderr))
        if not open_:
            self._release(worker.stderr)

    def _release(self, channel: Any) -> None:
        with contextlib.suppress(KeyError, ValueError, OSError):  # it is released or closed already
            self._selector.unregister(channel)

    def _end(self, worker: Worker) -> None:
        """Reap one that has hung up, hangs or is stopped; how it died is its own exit status, where it has one."""
        if worker.killed_for:
            self._see_off([worker])
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
        self._workers.pop(worker.slot, None)
        worker.reap()

    def _see_off(self, workers: list[Worker]) -> list[Worker]:
        """Ask workers to close their environments and to leave, and reap them; returns those that had to be killed."""
        for worker in workers:
            self._release(worker.connection)
            worker.ask_to_leave()
        late = see_off(workers, self._show)
        for worker in workers:
            self._show(worker)
            self._remove(worker)
        return late

    def kill(self) -> None:
        """End every worker, whatever it does; the next `evaluate` starts new ones."""
        with interrupts_wait():
            late = self._see_off(list(self._workers.values()))
            warn_of_late(self.spec.source.name, late)  # before an interrupt that waits is raised

    def close(self) -> None:
        """End the workers and let go of the memory."""
        with interrupts_wait():
            for worker in self._workers.values():
                self._show(worker)
            late = self._see_off(list(self._workers.values()))
            self._selector.close()
            self.block.close()
            if self._payload is not None:
                self._payload.close()
            warn_of_late(self.spec.source.name, late)

    def leave_to_parent(self) -> None:
        """See forks.Owner. The epoll set is shared: nothing is taken out of it. Workers must see when their parent hangs up."""
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            worker.leave_to_parent()
        self._selector.close()
        self.block.close()
        if self._payload is not None:
            self._payload.close()
