"""A worker process from the parent's side: starts it in a fresh interpreter, sends and receives messages, and ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
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
from fastes.errors import warn_user
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
from fastes.system.child_python import python_command
from fastes.system.console import fill_standard_descriptors
from fastes.system.forks import END_OF_COPY
from fastes.system.interrupts import signals_blocked_for_child

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
from fastes.pools.processes.worker_messages import report_errors_to_parent
with report_errors_to_parent({fd}): from fastes.pools.processes.worker import main
main({arguments!r})
"""
_MAX_LINE = 1 << 16  # bytes of a worker's unfinished line that are kept
_READS = 16  # chunks of output read at a time: a worker that writes without end must not block the parent
CLOSE_SECONDS = 10.0  # for env.close, after building is finished, on a busy machine too
_SHORT_SECONDS = 1.0  # the same for a worker that was found to hang
END_SECONDS = 1.0  # for a process to end once its environment is closed: one with threads left behind never does
_TICK = 0.05
_TICK_WITHOUT_PIDFD = 0.005
_DEATH_SECONDS = 2.0  # for a killed process to end; one that waits in the kernel (for a lost network disk) may not


class Arguments(NamedTuple):
    """A worker process's arguments.

    Attributes:
        connection_fd: Its end of the connection.
        parent_pid: Its parent.
        worker: Its row of the block's `workers`.
        offers_fd: The end that it reads of the pipe of offers.
        start_fd, start_size: The file that its Start is in, and the pickle's bytes.
    """

    connection_fd: int
    parent_pid: int
    worker: int
    offers_fd: int
    start_fd: int
    start_size: int


class Start(NamedTuple):
    """The data that all workers of a pool start with.

    Attributes:
        spec: The pool's, without reference batches.
        layout: The layout of the shared memory.
        memory_fd: Its descriptor.
        kernels: The kernels' variant.
        registrations: The environments that the parent has registered in Gymnasium, pickled.
        n_workers: Workers whose index is not below this play noise-free episodes alone.
    """

    spec: PoolSpec
    layout: BlockLayout
    memory_fd: int
    kernels: str
    registrations: bytes
    n_workers: int


class Payload:
    """The pickled Start of all workers, in a file without a name, since a pipe could fill up."""

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
        block.calls.write_to(self.fd, self.size)  # after the Start

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Worker:
    """A worker process.

    Args:
        index: Its row of the block's `workers`.
        spec: The pool's.
        block: The shared memory.
        payload: The data that it starts with.
        offers_fd: The end that it reads of the pipe of offers.

    Attributes:
        killed_for: The reason why the parent killed it; '' if it did not.
        is_worn: Whether it ends because it has played as many episodes as a worker may.
        stderr_tail: The last lines that it wrote to stderr.
    """

    def __init__(self, index: int, spec: PoolSpec, block: SharedBlock, payload: Payload, offers_fd: int) -> None:
        self.index, self.row = index, block.workers[index]
        self.row[[JOB, CLAIMING, READY, LEAVE, STAGE]] = -1, 0, 0, 0, 0
        self._show_lines = not spec.env_shown
        self.killed_for, self.is_worn = "", False
        self.stderr_tail: deque[str] = deque(maxlen=30)
        self._partial = b""
        fill_standard_descriptors()  # an environment, or a callback, may have closed them since
        ours, theirs = socketpair()
        self.connection = Connection(ours.detach())
        self._poll = select.poll()
        self._poll.register(self.connection.fileno(), select.POLLIN)
        arguments = Arguments(theirs.fileno(), os.getpid(), index, offers_fd, payload.fd, payload.size)
        boot = _BOOT.format(fd=theirs.fileno(), arguments=tuple(arguments))
        try:
            with theirs:
                fds = theirs.fileno(), block.fd, payload.fd, offers_fd
                self.process = _popen(python_command(boot), fds, spec.source.folder, spec.first_worker + index)
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
        """The stage of its environment: 0 before it is built, OPEN or CLOSED."""
        return int(_core.committed(self.row, STAGE))

    def has_sent(self) -> bool:
        """Whether a message, or the end of the connection, can be received. Connection.poll would make a selector per call."""
        return bool(self._poll.poll(0))

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it; a debugger does not count."""
        if not hasattr(os, "waitid"):
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def how_it_died(self) -> str:
        """Describe its end, once it is dead."""
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
        """Read what it wrote to stderr since the last call.

        Returns:
            The lines to show, and whether more may come: an environment may close or redirect stderr. Lines from before the
            environment was built are left out if the parent has built one itself, except those about forked copies.
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
        return [line for line in lines[:shown_from] if line.startswith(END_OF_COPY)] + lines[shown_from:], open_

    def last_output(self) -> str:
        """Return the last lines that it wrote to stderr, with an unfinished one."""
        return "\n".join([*self.stderr_tail, self._partial.decode(errors="replace")])

    def ask_to_leave(self) -> None:
        """Ask it to close its environment and to end, even during an episode. Kill it if it has no environment yet."""
        _core.commit(self.row, LEAVE, 1)
        self.connection.close()
        if self.stage:
            self.process.send_signal(LEAVE_SIGNAL)
        else:
            self.kill()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, for at most this long."""
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
        """Release it in a forked copy, which is not its parent, and must neither wait for it nor kill it."""
        self.process.returncode = 0
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        self.connection.close()
        self.stderr.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def end_gracefully(workers: Sequence[Worker], show: Callable[[Worker], None]) -> list[Worker]:
    """Wait until workers that were asked to leave have ended, or kill them. `reap` has to follow.

    Args:
        workers: They share one time limit.
        show: Shows what a worker writes meanwhile.

    Returns:
        Workers that were killed because closing their environment took too long, without those that hung before.
    """
    asked_at = time.monotonic()
    limits = {worker: asked_at + (CLOSE_SECONDS if _is_well(worker) else _SHORT_SECONDS) for worker in workers}
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
    """Wait until one of them has ended, or for a moment."""
    ends = [worker.pidfd for worker in workers]
    if min(ends, default=0) >= 0:
        wait(ends, _TICK)
    else:
        time.sleep(_TICK_WITHOUT_PIDFD)


def warn_of_killed(name: str, late: Sequence[Worker]) -> None:
    """Warn once about all workers that had to be killed.

    Args:
        name: The environment's.
        late: The workers.
    """
    if late:
        warn_user(
            f"env.close of {name} did not return within {CLOSE_SECONDS:g} s in {len(late)} of the workers, or the environment "
            "was still in a step or being built; they were killed: what it has started may still run",
        )


def _open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends; -1 if the system has none, since its pipe tells, too."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _popen(command: list[str], fds: tuple[int, ...], folder: str | None, index: int) -> subprocess.Popen[bytes]:
    """Start a worker from a thread that lives as long as this process: Linux counts the end of its thread as its parent's."""

    def start() -> subprocess.Popen[bytes]:
        with signals_blocked_for_child():  # until it has installed its handlers
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
    spawner().put((start, started))
    return started.result()


@cache
def spawner() -> SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """Return the queue of a thread that runs functions, and that outlives the interpreter's exit handlers.

    These close environments. An executor's thread would end before, and its workers with it.
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
    os.register_at_fork(after_in_child=spawner.cache_clear)  # its thread is not there in a copy
