"""Worker processes that share one block of memory. No locks: workers claim jobs with an atomic counter."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from socket import socketpair

import cloudpickle
import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs import own_registrations
from fastes.errors import WorkerCrashed, WorkerError
from fastes.interrupts import interrupts_wait
from fastes.noise import Perturbations
from fastes.normalizer import ObsNormalizer
from fastes.parallel.jobs import Batch, PoolSpec, Round, collect, describe_job, publish
from fastes.parallel.shm import Block
from fastes.parallel.worker import READY_MARK, Done, Failed, Start
from fastes.rollout import EpisodeSettings

_MAX_CRASHES = 3
_SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
# sys.path comes from the parent: with `-m`, a folder named fastes in the working directory would be taken for the package.
_BOOT = "import sys; sys.path[:] = {path!r}; from fastes.parallel.worker import main; main({fd}, {pid})"


class Worker:
    """A worker process as the parent sees it."""

    def __init__(self, index: int, spec: PoolSpec, block: Block) -> None:
        self.index = index
        self.ready, self.show_start = False, not spec.env_shown
        self.stderr_tail: deque[str] = deque(maxlen=30)
        self._partial = b""
        ours, theirs = socketpair()
        self.connection = Connection(ours.detach())
        boot = _BOOT.format(path=[os.fspath(p) for p in sys.path], fd=theirs.fileno(), pid=os.getpid())
        try:
            with theirs:
                self.process = _popen([sys.executable, "-c", boot], (theirs.fileno(), block.fd))
        except BaseException:
            self.connection.close()
            raise
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        os.set_blocking(self.stderr.fileno(), False)
        self.pidfd = _open_pidfd(self.process.pid)
        start = Start(index, spec, block.layout, block.fd, _core.variant(), own_registrations())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a worker that died already is met in the wait
            self.connection.send_bytes(cloudpickle.dumps(start))

    def send(self, round_: Round) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(round_)

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
        self._release()

    def stop(self) -> None:
        """Hang up; a worker that does not leave within a second is killed."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1.0)
        self.kill()

    def _release(self) -> None:
        self.process.wait()
        self.connection.close()
        self.stderr.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, -1 where the system has none: its pipe tells, too."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _popen(command: list[str], fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start a worker from a thread that lives as long as this process: Linux counts the end of its thread as its parent's."""

    def start() -> subprocess.Popen[bytes]:
        with interrupts_wait():  # until it has said that it ignores them
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                env={**os.environ, **_SINGLE_THREAD},
            )

    if threading.current_thread() is threading.main_thread():
        return start()
    return _spawner().submit(start).result()


@cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "fastes-spawner")


class ProcessPool:
    """n_workers processes that evaluate candidates. They start with the first `evaluate` and are replaced when they die."""

    def __init__(self, spec: PoolSpec, n_workers: int) -> None:
        self.spec, self.n_workers = spec, n_workers
        self.block = Block(spec.layout(n_workers))
        self._workers: list[Worker | None] = [None] * n_workers
        self._selector = selectors.DefaultSelector()
        self._crashes: Counter[int | None] = Counter()
        self._printed: set[str] = set()
        self._round = 0

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """Memory for the noise table, float32 (table_size,)."""
        return self.block.noise

    def start(self) -> None:
        """Start the workers that are not running, so that they build their environments while the caller goes on."""
        for index, worker in enumerate(self._workers):
            if worker is None:
                self.block.current_job[index, 0] = -1
                worker = Worker(index, self.spec, self.block)
                self._workers[index] = worker
                self._register(worker)

    def evaluate(
        self,
        theta: npt.NDArray[np.float32],
        perturbations: Perturbations | None,
        normalizer: ObsNormalizer,
        eval_seeds: npt.NDArray[np.int64],
        training: EpisodeSettings,
        evaluation: EpisodeSettings,
    ) -> Batch:
        """Run a generation's candidates and, beside them, noise-free episodes of theta on eval_seeds.

        perturbations: None for evaluation only. At most spec.num_evals seeds. Raises WorkerError for an exception in an
        environment, WorkerCrashed when one job kills its worker three times; the pool can be used again after both.
        """
        jobs = publish(self.block, perturbations, theta, normalizer, eval_seeds)
        sigma, generation = (perturbations.sigma, perturbations.generation) if perturbations else (0.0, -1)
        first, todo, rerun = self._round + 1, jobs, 0
        self._crashes.clear()
        try:
            while len(todo):
                self._round += 1
                round_ = Round(self._round, len(todo), generation, sigma, normalizer.clip, training, evaluation)
                self._run_round(round_, todo)
                todo = todo[self.block.committed[todo] < first]
                rerun += len(todo)
        except BaseException:
            self.kill()
            raise
        return collect(self.block, jobs, rerun)

    def _run_round(self, round_: Round, todo: npt.NDArray[np.int64]) -> None:
        """Wake every worker for the jobs in todo; return when each has finished or died."""
        self.block.todo[: len(todo)] = todo
        self.block.next_todo[0] = 0
        self.start()
        running = set()
        for worker in self._workers:
            assert worker is not None
            worker.send(round_)
            running.add(worker.index)
        while running:
            for key, _ in self._selector.select():
                worker, channel = key.data
                if self._workers[worker.index] is not worker:
                    continue  # removed earlier in this batch of events
                if channel == "stderr":
                    self._show(worker)
                elif channel == "exit" or not self._receive(worker, round_, running):
                    self._bury(worker, round_)
                    running.discard(worker.index)

    def _receive(self, worker: Worker, round_: Round, running: set[int]) -> bool:
        """Take one message; False when the worker hung up."""
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            return False
        if isinstance(message, Failed):
            self._raise_failure(message, round_)
        if isinstance(message, Done) and message.round_number == round_.number:
            running.discard(worker.index)
        return True

    def _raise_failure(self, failed: Failed, round_: Round) -> None:
        if failed.job is None:
            message, seed = "while it was built", None
        else:
            seed = failed.env_seed
            job = describe_job(failed.job, self.spec.num_pairs)
            message = f"generation {round_.generation}, {job}, env seed {seed}"
        cause = pickle.loads(failed.exception) if failed.exception else None
        raise WorkerError(
            f"{failed.summary}\n[in the environment, {message}]\n\n{failed.trace}", round_.generation, failed.job, seed
        ) from cause

    def _env_seed(self, job: int) -> int:
        candidates = 2 * self.spec.num_pairs
        return int(self.block.env_seed[job // 2, 0] if job < candidates else self.block.eval_seed[job - candidates])

    def _bury(self, worker: Worker, round_: Round) -> None:
        """Remove a dead worker and count what it died of; `start` replaces it in the next round."""
        self._show(worker)
        job: int | None = int(self.block.current_job[worker.index, 0])
        job = None if job == -1 else job
        self._remove(worker)
        worker.kill()
        status = worker.process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        what = "outside any episode" if job is None else f"in {describe_job(job, self.spec.num_pairs)}"
        self._crashes[job] += not (job is None and worker.ready)  # killed while idle: nobody's fault
        if self._crashes[job] >= _MAX_CRASHES:
            seed = None if job is None else self._env_seed(job)
            output = worker.last_output()
            raise WorkerCrashed(
                f"worker processes died {_MAX_CRASHES} times {what} of generation {round_.generation} (env seed {seed}), "
                f"the last one by {how}. Its last output:\n{output}",
                round_.generation,
                job,
                seed,
            )
        warnings.warn(
            f"worker {worker.index} died by {how} {what} of generation {round_.generation}; it is replaced and the job runs "
            "again, results do not change",
            RuntimeWarning,
            stacklevel=4,
        )

    def _show(self, worker: Worker) -> None:
        """Pass on what a worker wrote to stderr; a line that many workers write appears once."""
        for line in worker.read_stderr():
            if line and line not in self._printed:
                if len(self._printed) < 1000:
                    self._printed.add(line)
                print(line, file=sys.stderr)

    def _register(self, worker: Worker) -> None:
        self._selector.register(worker.connection, selectors.EVENT_READ, (worker, "message"))
        self._selector.register(worker.stderr, selectors.EVENT_READ, (worker, "stderr"))
        if worker.pidfd >= 0:
            self._selector.register(worker.pidfd, selectors.EVENT_READ, (worker, "exit"))

    def _remove(self, worker: Worker) -> None:
        self._selector.unregister(worker.connection)
        self._selector.unregister(worker.stderr)
        if worker.pidfd >= 0:
            self._selector.unregister(worker.pidfd)
        self._workers[worker.index] = None

    def kill(self) -> None:
        """End every worker at once; the next `evaluate` starts new ones."""
        for worker in [w for w in self._workers if w is not None]:
            self._remove(worker)
            worker.kill()

    def close(self) -> None:
        """End the workers and let go of the memory."""
        workers = [w for w in self._workers if w is not None]
        for worker in workers:
            self._show(worker)
            self._remove(worker)
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.stop()
        self._selector.close()
        self.block.close()
