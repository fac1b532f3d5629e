"""A worker process as the parent sees it: started in a fresh interpreter, spoken to over a socket, watched, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from socket import socketpair

import cloudpickle

from fastes import _core
from fastes.envs import own_registrations
from fastes.interrupts import interrupts_wait
from fastes.parallel.jobs import PoolSpec, Round
from fastes.parallel.shm import Block
from fastes.parallel.worker import READY_MARK, Start

_SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
# sys.path comes from the parent: with `-m`, a folder named fastes in the working directory would be taken for the package.
_BOOT = "import sys; sys.path[:] = {path!r}; from fastes.parallel.worker import main; main({fd}, {pid})"


class Worker:
    """A worker process. slot: its row of the block's `workers`."""

    def __init__(self, slot: int, spec: PoolSpec, block: Block) -> None:
        self.slot, self.row = slot, block.workers[slot]
        self.ready, self.show_start = False, not spec.env_shown
        self.sent_round = self.done_round = 0  # the last round it was told of, and the last that it said it is done with
        self.killed_for = ""  # why the parent killed it
        self.stderr_tail: deque[str] = deque(maxlen=30)
        self._partial = b""
        ours, theirs = socketpair()
        self.connection = Connection(ours.detach())
        boot = _BOOT.format(path=[os.fspath(p) for p in sys.path], fd=theirs.fileno(), pid=os.getpid())
        try:
            with theirs:
                self.process = _popen([sys.executable, "-c", boot], (theirs.fileno(), block.fd), spec.source.folder)
        except BaseException:
            self.connection.close()
            raise
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        os.set_blocking(self.stderr.fileno(), False)
        self.pidfd = _open_pidfd(self.process.pid)
        start = Start(slot, spec, block.layout, block.fd, _core.variant(), own_registrations())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a worker that died already is met in the wait
            self.connection.send_bytes(cloudpickle.dumps(start))

    def offer(self, round_: Round) -> None:
        """Tell it of a round, unless it has not answered the one before: messages to a slow starter must not pile up."""
        if self.done_round < self.sent_round:
            return
        self.sent_round = round_.number
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(round_)

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
        return f"died by signal {signal.Signals(-status).name}" if status < 0 else f"died by exit status {status}"

    def read_stderr(self) -> list[str]:
        """The lines that came since the last call, without those of a start whose output the parent has shown itself."""
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.stderr.fileno(), 1 << 16):
                *whole, self._partial = (self._partial + chunk).split(b"\n")
                lines += [line.decode(errors="replace") for line in whole]
        self.stderr_tail.extend(line for line in lines if line not in ("", READY_MARK))
        if self.ready or READY_MARK not in lines:
            return lines if self.ready or self.show_start else []
        self.ready = True
        mark = lines.index(READY_MARK)
        return [*(lines[:mark] if self.show_start else []), *lines[mark + 1 :]]

    def last_output(self) -> str:
        """The end of what it wrote to stderr, an unfinished line too."""
        return "\n".join([*self.stderr_tail, self._partial.decode(errors="replace")])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.stderr.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def stop(self) -> None:
        """Hang up; a worker that does not leave within a second is killed."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1.0)
        self.kill()


def _open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, -1 where the system has none: its pipe tells, too."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _popen(command: list[str], fds: tuple[int, ...], folder: str | None) -> subprocess.Popen[bytes]:
    """Start a worker from a thread that lives as long as this process: Linux counts the end of its thread as its parent's."""

    def start() -> subprocess.Popen[bytes]:
        with interrupts_wait():  # until it has said that it leaves them to its parent
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                cwd=folder if folder and os.path.isdir(folder) else None,
                env={**os.environ, **_SINGLE_THREAD},
            )

    if threading.current_thread() is threading.main_thread():
        return start()
    return _spawner().submit(start).result()


@cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "fastes-spawner")
