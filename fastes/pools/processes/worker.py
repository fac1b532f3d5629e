"""A worker process: builds the environment once, then claims and runs jobs until the parent hangs up.

worker_process.py starts it in a fresh interpreter, so scripts need no `__main__` guard, notebooks work, and no lock is forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs.native.mujoco import leave_untimed
from fastes.envs.worker_imports import register
from fastes.pools.processes.offers import Sleep
from fastes.pools.processes.worker_messages import (
    BUILDING,
    LEAVE_SIGNAL,
    LOOK,
    READY_MARK,
    WORN,
    Failed,
    Notice,
    close_before_end,
    failure,
    report_errors_to_parent,
)
from fastes.pools.processes.worker_process import Arguments, Start
from fastes.rollout.job import PoolSpec
from fastes.rollout.job_runner import JobRunner
from fastes.rollout.shared_block import (
    CLAIMING,
    CLOSED,
    EPISODE,
    JOB,
    LEAVE,
    OPEN,
    READY,
    SLOT,
    STAGE,
    TICKET,
    UNCLAIMED,
    SharedBlock,
)
from fastes.system.console import output_errors_tolerated
from fastes.system.forks import CopiesEndHere
from fastes.system.interrupts import STOP_SIGNALS

_STAY_SECONDS = 0.001  # on each core


class Leave(BaseException):
    """The parent has asked this process to leave."""


def main(arguments: tuple[int, ...]) -> None:
    """Entry point of the process."""
    given = Arguments(*arguments)
    die_with_parent(given.parent_pid)
    leave_signals_to_parent(lambda *_: None)
    watch_forks()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # it was born with these blocked
    die_first_when_memory_is_short()
    for fd in (given.connection_fd, given.offers_fd):
        os.set_inheritable(fd, False)
    connection = Connection(given.connection_fd)
    os.register_at_fork(after_in_child=connection.close)  # a process that an environment forks must not use it
    with report_errors_to_parent(given.connection_fd), CopiesEndHere("the import of what builds the environment"):
        start: Start = cloudpickle.loads(os.pread(given.start_fd, given.start_size, 0))
    os.set_inheritable(given.start_fd, False)
    hung_up = contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError)
    with output_errors_tolerated(), hung_up, CopiesEndHere(f"the environment {start.spec.source.name}"):
        serve(connection, start, given)
    signal.signal(LEAVE_SIGNAL, signal.SIG_IGN)  # it may still come while Python restores its handlers


def die_with_parent(parent_pid: int) -> None:
    """Let Linux kill this process when its parent ends; on other systems the closed pipe ends it."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def leave_signals_to_parent(handler: Callable[[int, object], None]) -> None:
    """Do not end by Ctrl-C, SIGTERM and SIGHUP, which reach the whole process group: the parent commits its generation first.

    SIGTERM and SIGHUP get a handler: programs that an environment starts would inherit that they are ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


_TO_END = (signal.SIGTERM, signal.SIGHUP)


def watch_forks() -> None:
    """Let processes that an environment forks handle SIGTERM and SIGHUP in the default way."""
    os.register_at_fork(before=hold_signals, after_in_parent=let_signals_come, after_in_child=take_signals_back)


def hold_signals() -> None:
    """Block signals during a fork: Python drops one that reaches the copy before it runs, and env.close would wait for ever."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_END)


def let_signals_come() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_END)


def take_signals_back() -> None:
    """Let a forked process end by these signals, as a started process does: env.close may rely on it."""
    for number in _TO_END:
        signal.signal(number, signal.SIG_DFL)
    let_signals_come()


class Signals:
    """Handles signals: raises Leave if the parent has asked for that in this worker's row, and does nothing otherwise.

    Attributes:
        masked: Whether Leave is held back, because building and closing an environment must not be interrupted.
    """

    def __init__(self, row: npt.NDArray[np.int64]) -> None:
        self.row, self.pid, self.masked = row, os.getpid(), True

    def listen(self) -> None:
        """Install the handlers."""
        leave_signals_to_parent(self._handle)
        signal.signal(LEAVE_SIGNAL, self._handle)

    @contextlib.contextmanager
    def uninterruptible(self) -> Iterator[None]:
        """Hold Leave back meanwhile. The row's flag keeps the parent's request."""
        before, self.masked = self.masked, True
        try:
            yield
        finally:
            self.masked = before

    def _handle(self, *_: object) -> None:
        if not self.masked and self.row[LEAVE] and os.getpid() == self.pid:
            self.masked = True
            raise Leave


def die_first_when_memory_is_short() -> None:
    """Make the system end this process before its parent, which cannot be replaced."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        adjustment = min(int(file.read()) + 500, 1000)
        file.seek(0)
        file.write(str(adjustment))


def serve(connection: Connection, start: Start, given: Arguments) -> None:
    """Build the environment and run jobs until the parent hangs up or asks this process to leave; then close it."""
    _core.use_variant(start.kernels)
    block, index = SharedBlock(start.layout, start.memory_fd), given.worker
    block.close()
    block.calls.read_from(given.start_fd, given.start_size)
    row, runner = block.workers[index], None
    signals = Signals(row)
    try:
        try:
            signals.listen()
            _core.commit(row, STAGE, OPEN)
            runner = build(connection, start.spec, start.registrations, block, index, signals)
            if runner is not None:
                if index >= start.n_workers and len(available()) <= start.n_workers:
                    runner.wrap_evaluation_env = Roaming
                signals.masked = False  # the environment is whole now, and can be closed
                sleep = Sleep(given.offers_fd, given.connection_fd)
                work(connection, sleep, runner, row, signals, kinds_of(start, index))
        finally:
            signals.masked = True
    except Leave:
        pass
    finally:
        if os.getpid() == signals.pid:  # this is no process that the environment has forked
            signals.listen()
            try:
                if runner is not None:
                    runner.close()
            finally:
                _core.commit(row, STAGE, CLOSED)
                connection.close()  # a thread that is left behind must not keep it


def available() -> list[int]:
    """Return the cores that this process may run on; [] if the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class Roaming:
    """An environment whose process moves from core to core while it plays.

    Each core has a worker. The system would leave this process on one core, and the whole generation would wait for the
    candidates there. So it takes a little time from every core.
    """

    def __init__(self, env: Any) -> None:
        self._env, self._cores = env, available()
        self._moves = itertools.cycle(self._cores)
        self._stays_until = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, action: Any) -> Any:
        if (now := time.perf_counter()) >= self._stays_until and self._cores:
            self._stays_until = now + _STAY_SECONDS
            with contextlib.suppress(OSError):  # the cores that it may use have changed
                os.sched_setaffinity(0, {next(self._moves)})
        return self._env.step(action)

    def __del__(self) -> None:
        """Allow all cores again: the episode is over."""
        with contextlib.suppress(OSError):
            if self._cores:
                os.sched_setaffinity(0, self._cores)


def kinds_of(start: Start, index: int) -> list[range]:
    """Return the slots whose jobs a worker plays, in the order of claiming. Spare workers play noise-free episodes alone."""
    number, all_slots = start.layout.num_generations, len(start.layout.slots())
    candidates, evaluations = range(number), range(number, all_slots)
    if index >= start.n_workers:
        return [evaluations]
    return [evaluations, candidates] if start.spec.evaluations_first else [candidates, evaluations]


def build(
    connection: Connection, spec: PoolSpec, registrations: bytes, block: SharedBlock, index: int, signals: Signals
) -> JobRunner | None:
    """Build the environment and the actors. If that raises, report the exception to the parent and return None."""

    def notify(kind: str, text: str) -> None:
        if os.getpid() == signals.pid:  # a process that the environment has forked must not send
            connection.send(Notice(kind, text))
            _core.commit(block.notices, 0, 1)

    try:
        register(registrations)
        with warnings.catch_warnings():
            if spec.env_shown:
                warnings.simplefilter("ignore")
            runner = JobRunner(spec, block, index, signals.uninterruptible, notify, is_process=True)
        limit_threads()
        leave_untimed()
        close_before_end(signals.uninterruptible()(runner.close))
    except Exception as error:
        connection.send(failure(BUILDING, 0, error))
        return None
    with contextlib.suppress(OSError):  # the environment may have closed it
        os.write(2, f"\n{READY_MARK}\n".encode())
    _core.commit(block.workers[index], READY, 1)
    return runner


def work(
    connection: Connection,
    sleep: Sleep,
    runner: JobRunner,
    row: npt.NDArray[np.int64],
    signals: Signals,
    kinds: list[range],
) -> None:
    """Run jobs, and sleep until the next offer if there are none.

    Args:
        connection: To the parent.
        sleep: Waits for offers.
        runner: Plays the jobs.
        row: This worker's, of the block's `workers`.
        signals: This worker's.
        kinds: Ranges of slots, in the order in which the worker looks for jobs.
    """
    block = runner.block
    while not row[LEAVE]:
        while (claimed := claim(block, row, kinds)) is not None:
            number, ticket, job = claimed

            def report(error: Exception, claimed: tuple[int, int, int] = claimed) -> None:
                connection.send(_failed(claimed, row, error)._replace(penalised=True))

            try:
                runner.run(block.slots[number], ticket, job, report)
            except Exception as error:
                connection.send(_failed(claimed, row, error))
                return  # the environment may be in any state, and the next job of another request
            if is_last_done(block, number):
                connection.send_bytes(LOOK)
            if row[LEAVE]:
                return  # the environment has swallowed the exception, or taken over the signal
            if runner.is_worn:
                connection.send_bytes(WORN)
                connection.recv_bytes()  # until the parent hangs up
                return
        signals.listen()  # the environment may have installed handlers
        if not sleep.until_offer():
            return  # the parent has hung up


def is_last_done(block: SharedBlock, number: int) -> bool:
    """Count a job of a slot as done. Returns whether no other one is left."""
    counted = _core.claim(block.unfinished, number, number + 1)
    return counted is not None and counted[2] == 0


def claim(block: SharedBlock, row: npt.NDArray[np.int64], kinds: list[range]) -> tuple[int, int, int] | None:
    """Claim a job and note it in the worker's row.

    CLAIMING is set before the claim and cleared once the row names the job, so that the parent can distinguish jobs that a
    dead worker has left from those that other workers hold.

    Returns:
        The number of the job's slot, its ticket, and the job; None if no job is left.
    """
    _core.commit(row, CLAIMING, 1)
    claimed = None
    for kind in _in_order(block, kinds):
        if (claimed := _core.claim(block.unclaimed, kind.start, kind.stop)) is not None:
            break
    if claimed is not None:
        number, ticket, position = claimed
        job = int(block.slots[number].todo[position])
        for column, value in (SLOT, number), (TICKET, ticket), (JOB, job):
            _core.commit(row, column, value)
        claimed = number, ticket, job
    _core.commit(row, CLAIMING, 0)
    return claimed


def _in_order(block: SharedBlock, kinds: list[range]) -> list[range]:
    """Put noise-free episodes first if candidates of several requests wait, as while trials play side by side.

    There is always a candidate then, until each training waits for its evaluation and no candidate is left for the others.
    """
    first = kinds[0]
    if len(kinds) < 2 or len(first) < 2 or first.start:  # one kind, or one request, or they are first already
        return kinds
    waiting = np.count_nonzero(block.unclaimed[first.start : first.stop, 0] & UNCLAIMED)
    return kinds[::-1] if waiting > 1 else kinds


def _failed(claimed: tuple[int, int, int], row: npt.NDArray[np.int64], error: Exception) -> Failed:
    number, ticket, job = claimed
    return failure(job, int(row[EPISODE]), error)._replace(slot=number, ticket=ticket)


def limit_threads() -> None:
    """Limit libraries that ignore environment variables to one thread per worker."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
