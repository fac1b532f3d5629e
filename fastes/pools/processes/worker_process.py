"""A worker process as the parent sees it: started in a fresh interpreter, spoken to over a socket, watched, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import cache
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from socket import socketpair
from typing import Any, NamedTuple

import cloudpickle

from fastes import _core
from fastes.envs.worker_imports import own_registrations
from fastes.envs.worker_number import WORKER_INDEX
from fastes.pools.processes.worker_messages import LEAVE_SIGNAL, MARK, READY_MARK
from fastes.pools.unsendable import cannot_be_sent
from fastes.rollout.job import PoolSpec
from fastes.rollout.shared_block import (
    CLAIMING,
    CLOSED,
    JOB,
    LEAVE,
    OPEN,
    READY,
    STAGE,
    BlockLayout,
    SharedBlock,
    anonymous_file,
)
from fastes.system.console import fill_standard_descriptors
from fastes.system.forks import TOLD
from fastes.system.interrupts import born_blocked

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_SINGLE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")
# sys.path comes from the parent: with `-m`, a folder named fastes in the working directory would be taken for the package.
_BOOT = """\
import sys; sys.path[:] = {path!r}
from fastes.pools.processes.worker_messages import report_errors_to_parent
with report_errors_to_parent({fd}): from fastes.pools.processes.worker import main
main({arguments!r})
"""
OFFER_BYTES = 8
_OFFER_HEAD = OFFER_BYTES.to_bytes(4, "big")  # a message's length: how multiprocessing's connections begin one
_MAX_LINE = 1 << 16  # bytes of a worker's unfinished line that are kept
_READS = 16  # chunks of output taken at a time: whoever writes without end must not hold the parent up
CLOSE_SECONDS = 10.0  # for env.close, and to finish building what is to be closed, on a busy machine too
SHORT_SECONDS = 1.0  # the same, for a worker that hung already
END_SECONDS = 1.0  # for a process to end once its environment is closed: one with threads left behind never does
_TICK = 0.05
_TICK_WITHOUT_PIDFD = 0.005
_DEATH_SECONDS = 2.0  # for a killed process to end; one in the kernel's hands (a lost network disk) may not


class Arguments(NamedTuple):
    """A worker process's arguments.

    Attributes:
        connection_fd: Its end of the connection.
        parent_pid: Its parent.
        worker: Its row of the block's `workers`.
        start_fd, start_size: The file that its Start is in, and the pickle's bytes.
    """

    connection_fd: int
    parent_pid: int
    worker: int
    start_fd: int
    start_size: int


class Start(NamedTuple):
    """The spec, the shared memory, the kernels to use, and what the parent has registered in Gymnasium.

    n_workers: rows of the block from this one on belong to workers that play noise-free episodes alone.
    """

    spec: PoolSpec
    layout: BlockLayout
    memory_fd: int
    kernels: str
    registrations: bytes
    n_workers: int


class Payload:
    """Every worker's Start, pickled once, in a file without a name: no pipe can fill up with it."""

    def __init__(self, spec: PoolSpec, block: SharedBlock, n_workers: int) -> None:
        own = spec.without_references()
        try:
            content = cloudpickle.dumps(Start(own, block.layout, block.fd, _core.variant(), own_registrations(), n_workers))
        except Exception as error:
            raise cannot_be_sent(spec.source, error) from error
        self.size = len(content)
        self.fd = anonymous_file(self.size)
        with open(self.fd, "wb", closefd=False) as file:
            file.write(content)
        block.calls.write_to(self.fd, self.size)  # behind it

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Worker:
    """A worker process. index: its row of the block's `workers`."""

    def __init__(self, index: int, spec: PoolSpec, block: SharedBlock, payload: Payload) -> None:
        self.index, self.row = index, block.workers[index]
        self.row[[JOB, CLAIMING, READY, LEAVE, STAGE]] = -1, 0, 0, 0, 0
        self._show_lines = not spec.env_shown
        self.sent_offer = self.idle_after = 0  # the last offer it was told of, and the last after which it found nothing left
        self.killed_for = ""  # why the parent killed it
        self.stderr_tail: deque[str] = deque(maxlen=30)
        self._partial = b""
        fill_standard_descriptors()  # an environment, or a callback, may have closed them since
        ours, theirs = socketpair()
        self.connection = Connection(ours.detach())
        self._poll = select.poll()
        self._poll.register(self.connection.fileno(), select.POLLIN)
        arguments = Arguments(theirs.fileno(), os.getpid(), index, payload.fd, payload.size)
        boot = _BOOT.format(path=[os.fspath(p) for p in sys.path], fd=theirs.fileno(), arguments=tuple(arguments))
        try:
            with theirs:
                fds = theirs.fileno(), block.fd, payload.fd
                self.process = _popen([sys.executable, "-c", boot], fds, spec.source.folder, spec.first_worker + index)
        except BaseException:
            self.connection.close()
            raise
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        os.set_blocking(self.stderr.fileno(), False)
        self.pidfd = _open_pidfd(self.process.pid)

    @property
    def ready(self) -> bool:
        """Whether it has built its environment."""
        return _core.committed(self.row, READY) != 0

    @property
    def stage(self) -> int:
        """Its environment's stage: 0 before it is built, OPEN or CLOSED."""
        return int(_core.committed(self.row, STAGE))

    @property
    def owes_an_answer(self) -> bool:
        """Whether it has not answered the last offer that it was sent: it plays, or should begin to."""
        return self.idle_after < self.sent_offer

    def offer(self, number: int) -> bool:
        """Send it word that there are jobs, unless it has not answered the last offer: messages must not pile up.

        Returns:
            Whether the message was sent.
        """
        if self.owes_an_answer or number <= self.sent_offer:
            return False
        self.sent_offer = number
        try:
            # as send_bytes does, in a third of its time; it comes back when nothing is left
            os.write(self.connection.fileno(), _OFFER_HEAD + number.to_bytes(OFFER_BYTES, "little"))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def has_sent(self) -> bool:
        """Whether a message waits, or the end of all messages. Connection.poll takes a selector for each call."""
        return bool(self._poll.poll(0))

    def is_stopped(self) -> bool:
        """Whether SIGSTOP or the like has stopped it; a debugger does not count."""
        if not hasattr(os, "waitid"):
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def how_it_died(self) -> str:
        """In words, once it is dead."""
        if self.killed_for:
            return self.killed_for
        status = self.process.returncode
        if status is None:
            return "hung up and does not end"
        if status >= 0:
            return f"died by exit status {status}"
        with contextlib.suppress(ValueError):  # real-time signals have no name
            return f"died by signal {signal.Signals(-status).name}"
        return f"died by signal {-status}"

    def read_stderr(self) -> tuple[list[str], bool]:
        """The lines that came since the last call, without those of a start whose output the parent has shown itself.

        But with what is said of copies that the start has forked.

        And whether more may come: an environment may close or redirect it.
        """
        lines, open_ = [], True
        with contextlib.suppress(BlockingIOError):
            for _ in range(_READS):
                chunk = os.read(self.stderr.fileno(), 1 << 16)
                open_ = bool(chunk)
                if not chunk:
                    break
                *whole, partial = (self._partial + chunk).replace(b"\r", b"\n").split(b"\n")
                self._partial = partial[-_MAX_LINE:]
                lines += [line.decode(errors="replace") for line in whole]
        self.stderr_tail.extend(line for line in lines if line not in ("", READY_MARK))
        if self._show_lines:
            return [line for line in lines if line != READY_MARK], open_
        self._show_lines = READY_MARK in lines
        shown_from = lines.index(READY_MARK) + 1 if self._show_lines else len(lines)
        return [line for line in lines[:shown_from] if line.startswith(TOLD)] + lines[shown_from:], open_

    def last_output(self) -> str:
        """The end of what it wrote to stderr, an unfinished line too."""
        return "\n".join([*self.stderr_tail, self._partial.decode(errors="replace")])

    def ask_to_leave(self) -> None:
        """Whatever it does: to close its environment and end. One that has none yet is killed."""
        _core.commit(self.row, LEAVE, 1)
        self.connection.close()
        if self.stage:
            self.process.send_signal(LEAVE_SIGNAL)
        else:
            self.kill()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, seconds: float) -> None:
        """Until it has ended, or for so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """End it at once; `reap` has to follow."""
        self.process.kill()

    def reap(self) -> None:
        """Wait for a killed worker's end and close its descriptors."""
        self.wait(_DEATH_SECONDS)
        self._close_descriptors()

    def reset_after_fork(self) -> None:
        """See forks.Owner: a forked copy is not its parent, and has neither to wait for it nor to kill it."""
        self.process.returncode = 0
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        self.connection.close()
        self.stderr.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def see_off(workers: Sequence[Worker], show: Callable[[Worker], None]) -> list[Worker]:
    """Wait, for all of them together, until workers that were asked to leave have ended, or kill them.

    show: passes on what a worker writes meanwhile. Returns those whose environment was not closed in time, without those that
    hung before. `reap` has to follow.
    """
    asked_at = time.monotonic()
    limits = {worker: asked_at + (CLOSE_SECONDS if _is_well(worker) else SHORT_SECONDS) for worker in workers}
    closed: set[Worker] = set()
    late: list[Worker] = []
    while limits:
        for worker in list(limits):
            show(worker)
            if worker.stage == CLOSED and worker not in closed:
                limits[worker] = min(limits[worker], time.monotonic() + END_SECONDS)
                closed.add(worker)
            too_late = time.monotonic() > limits[worker]
            if worker.has_ended():
                del limits[worker]
            elif too_late or worker.is_stopped():
                worker.kill()
                del limits[worker]
                late += [worker] * (too_late and worker.stage == OPEN and _is_well(worker))
        if limits:
            _wait_for_any(limits)
    return late


def _is_well(worker: Worker) -> bool:
    """Whether it was not found to hang."""
    return not worker.killed_for


def _wait_for_any(workers: Iterable[Worker]) -> None:
    """Until one of them has ended, or for a moment."""
    ends = [worker.pidfd for worker in workers]
    if min(ends, default=0) >= 0:
        wait(ends, _TICK)
    else:
        time.sleep(_TICK_WITHOUT_PIDFD)


def warn_of_late(name: str, late: Sequence[Worker]) -> None:
    """One warning for all of an environment's workers that had to be killed. name: the environment's."""
    if late:
        warnings.warn(
            f"env.close of {name} did not return within {CLOSE_SECONDS:g} s in {len(late)} of the workers, or the environment "
            "was still being built; they were killed: what it has started may go on",
            RuntimeWarning,
            stacklevel=3,
        )


def _open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, -1 where the system has none: its pipe tells, too."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _popen(command: list[str], fds: tuple[int, ...], folder: str | None, index: int) -> subprocess.Popen[bytes]:
    """Start a worker from a thread that lives as long as this process: Linux counts the end of its thread as its parent's."""

    def start() -> subprocess.Popen[bytes]:
        with born_blocked():  # until it has said that it leaves them to its parent
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                cwd=folder if folder and os.path.isdir(folder) else None,
                env={**os.environ, **_SINGLE_THREAD, MARK: str(os.getpid()), WORKER_INDEX: str(index)},
            )

    if threading.current_thread() is threading.main_thread():
        return start()
    started: Future[subprocess.Popen[bytes]] = Future()
    _spawner().put((start, started))
    return started.result()


@cache
def _spawner() -> SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """A queue of functions for a thread that outlives the interpreter's exit handlers, which close environments.

    That of an executor ends before, and its workers with it.
    """
    asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
    threading.Thread(target=_serve, args=(asked,), name="fastes-spawner", daemon=True).start()
    return asked


def _serve(asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        _answer(*asked.get())


def _answer(do: Callable[[], Any], answer: Future[Any]) -> None:
    try:
        answer.set_result(do())
    except BaseException as error:
        answer.set_exception(error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spawner.cache_clear)  # its thread is not there in a copy
