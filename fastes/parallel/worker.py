"""A worker process: build the environment once, then claim and run jobs until the parent hangs up.

Started by pool.py in a fresh interpreter, so scripts need no `__main__` guard, notebooks work, and no lock is forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import NamedTuple

import cloudpickle

from fastes import _core
from fastes.envs import register
from fastes.parallel.jobs import JobRunner, PoolSpec, Round
from fastes.parallel.shm import Block, Layout

READY_MARK = "fastes: the environment of this worker is built"  # a line on stderr, not shown


class Start(NamedTuple):
    """The first message: which slot this worker has, what to build, and the kernels to use."""

    slot: int
    spec: PoolSpec
    layout: Layout
    memory_fd: int
    kernels: str
    registrations: bytes


class Done(NamedTuple):
    """No job of this round is left to claim."""

    round_number: int


class Failed(NamedTuple):
    """An exception in the environment; job is None while it was built. exception is pickled, b'' if it cannot be."""

    job: int | None
    env_seed: int | None
    summary: str
    trace: str
    exception: bytes


def main(connection_fd: int, parent_pid: int) -> None:
    """Entry point of the process."""
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends the generation first
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.set_inheritable(connection_fd, False)
    connection = Connection(connection_fd)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(connection)


def die_with_parent(parent_pid: int) -> None:
    """Linux kills this process when its parent ends; elsewhere the closed pipe does."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def serve(connection: Connection) -> None:
    start: Start = cloudpickle.loads(connection.recv_bytes())
    _core.use_variant(start.kernels)
    block = Block(start.layout, start.memory_fd)
    block.close()
    current = block.current_job[start.slot]
    try:
        with warnings.catch_warnings():
            if start.spec.env_shown:
                warnings.simplefilter("ignore")
            register(start.registrations)
            env = start.spec.make_env()
        limit_threads()
    except Exception as error:
        connection.send(failure(None, None, error))
        return
    runner = JobRunner(env, start.spec, block)
    os.write(2, f"\n{READY_MARK}\n".encode())
    while True:
        round_: Round = connection.recv()
        runner.begin(round_)
        while (position := _core.claim(block.next_todo)) < round_.num_todo:
            job = int(block.todo[position])
            current[0] = job
            try:
                runner.run(job, round_)
            except Exception as error:
                connection.send(failure(job, runner.running_seed, error))
            current[0] = -1
        connection.send(Done(round_.number))


def limit_threads() -> None:
    """One thread a worker for libraries that cannot be told by environment variables."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def failure(job: int | None, env_seed: int | None, error: Exception) -> Failed:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return Failed(job, env_seed, f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), pickled)
