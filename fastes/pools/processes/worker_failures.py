"""Failures of a pool's workers: hanging ones are found, lost ones counted, and at some number the pool gives up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fastes.envs.native.native_env import is_native
from fastes.errors import WorkerCrashed, WorkerTimeout
from fastes.pools.processes.worker_process import Worker
from fastes.rollout.job import EpisodeDescription
from fastes.rollout.shared_block import EVALUATION_STEPS, JOB, STEPS, RequestSlot

TICK = 0.25  # seconds between looks
_PAUSE = 1.0  # the most that a look counts: if more time has passed since the last, the parent itself was stopped or starved
_FACTOR = 20.0
_FLOOR = 60.0
_UNLEARNED = 600.0  # for the first episodes, and for building an environment
HUNG = "hung"
_MAX_CRASHES = 3  # of one job, or of a worker's row while it builds its environment
_MAX_FRUITLESS = 6  # per worker, if no episode was ever finished
_TOLD = 2  # of these losses: further ones are only counted, in the error
MAX_IDLE = 6  # of a worker's row, outside any episode, while no worker finishes one


class _Seen(NamedTuple):
    """A worker at the last look: (job, steps, ready), the seconds since that changed, and whether it was stopped."""

    state: tuple[int, int, bool]
    waited: float
    stopped: bool


class HangDetector:
    """Finds workers that are alive and do not work: stopped by a signal, in an env.step that never returns, or silent.

    Time is counted as this process sees it, so that no worker is blamed if the whole training was suspended or starved.

    Args:
        timeout: Seconds without an env.step after which a worker in an episode is hung. None learns it: 20 times the longest
            job so far, at least 60 s, and 600 s before the first.
        clock: Returns seconds.
    """

    def __init__(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout, self.clock = timeout, clock
        self._longest = 0.0
        self._looked_at = clock()
        self._counted = 0.0  # seconds until then
        self._seen: dict[Worker, _Seen] = {}

    @property
    def counted(self) -> float:
        """Seconds that this process has seen pass."""
        return self._counted + min(self.clock() - self._looked_at, _PAUSE)

    def learn(self, seconds: float, begun: float) -> None:
        """Note the seconds of a job; at most those counted since its request.

        Args:
            seconds: By the wall clock.
            begun: `counted` at the time of the request.
        """
        self._longest = max(self._longest, min(seconds, self.counted - begun))

    def forget(self) -> None:
        """Drop all workers, and with them the pool's memory."""
        self._seen = {}

    @property
    def is_due(self) -> bool:
        """Whether the last look is at least TICK ago, so that `check` looks again."""
        return self.clock() - self._looked_at >= TICK

    @property
    def limit(self) -> float:
        """Seconds without a step after which a worker in an episode is hung."""
        if self.timeout is not None:
            return self.timeout
        return max(_FLOOR, _FACTOR * self._longest) if self._longest else _UNLEARNED

    def check(self, workers: Collection[Worker], awaited: bool = True) -> list[tuple[Worker, str]]:
        """Look at the workers, at most once per TICK.

        Args:
            workers: The pool's.
            awaited: Whether a request has jobs that are not done. If no worker is at one of them, all workers are late.

        Returns:
            The workers that have to be replaced, each with its fault.
        """
        if not self.is_due:
            return []
        now = self.clock()
        passed = min(now - self._looked_at, _PAUSE)
        self._looked_at = now
        self._counted += passed
        before, self._seen = self._seen, {}
        all_late = awaited and not any(map(_is_busy, workers))
        return [(worker, fault) for worker in workers if (fault := self._fault(worker, before.get(worker), passed, all_late))]

    def _fault(self, worker: Worker, before: _Seen | None, passed: float, all_late: bool) -> str:
        stopped = worker.is_stopped()
        state = int(worker.row[JOB]), int(worker.row[[STEPS, EVALUATION_STEPS]].sum()), worker.ready
        busy = all_late or _is_busy(worker)
        waited = before.waited + passed if before is not None and before.state == state and busy else 0.0
        self._seen[worker] = _Seen(state, waited, stopped)
        if stopped and before is not None and before.stopped:  # after Ctrl-Z and `fg`, a parent may wake before its workers
            return "was stopped by a signal"
        limit = self.limit if worker.ready else max(self.limit, _UNLEARNED)
        if waited <= limit:
            return ""
        what = "without a step of its environment" if worker.ready else "while it built its environment"
        return f"{HUNG}: {limit:.3g} s {what} (setting step_timeout)"


def _is_busy(worker: Worker) -> bool:
    """Whether it has something to do: a job, or an environment to build."""
    return int(worker.row[JOB]) >= 0 or not worker.ready


class WorkerFailure(NamedTuple):
    """The loss of a worker.

    Attributes:
        message: The loss in words; '' if it is only counted.
        error: The error to give up with; None if a new worker replaces the lost one.
        ends_all: Whether the error ends all requests, and not only the job's.
    """

    message: str
    error: WorkerCrashed | None = None
    ends_all: bool = False


class WorkerFailures:
    """Counts the losses of a pool's workers.

    Args:
        n_processes: The number of its workers.
        env: Name of the environment that they play.
        options: Its arguments.
    """

    def __init__(self, n_processes: int, env: str, options: Mapping[str, Any]) -> None:
        self.n_processes, self._env, self._options = n_processes, env, options
        self._unbuilt: Counter[int] = Counter()  # of a worker's row, while it built its environment
        self._idle: Counter[int] = Counter()  # of a worker's row, outside any episode, since one was finished
        self._done_then = 0  # `_commits` at the last of these
        self._fruitless = 0  # episodes that lost their worker before any was finished

    def begin_waiting(self) -> None:
        """Forget losses during building: a training waits again, and their cause may be over."""
        self._unbuilt.clear()

    def forget(self) -> None:
        """Forget losses outside any episode: all requests are over, and all workers will be new."""
        self._idle.clear()

    def record(
        self, worker: Worker, episode: EpisodeDescription | None, crashes: int, generation: int, slots: Sequence[RequestSlot]
    ) -> WorkerFailure:
        """Record the death of a worker.

        Args:
            worker: The dead worker.
            episode: The episode that it played; None if it played none.
            crashes: How often that episode's job has lost its worker.
            generation: The running generation, from 1; 0 for none.
            slots: Those of all requests.
        """
        how, again, done = worker.how_it_died(), "", _commits(slots)
        if episode is None:
            what = "outside any episode" if worker.ready else "while it built its environment"
            what += f", in generation {generation}" if generation else ""
            losses, most = self._outside(worker, done)
        else:
            what, again = f"in {episode.text}", " and its unfinished episode is played again"
            self._fruitless += 1
            losses, most = crashes, _MAX_CRASHES
        message = f"worker {worker.index} {how} {what}; it is replaced{again}, results do not change"
        if episode is not None and not done and self._fruitless >= _TOLD:
            is_told = self._fruitless == _TOLD
            message = f"{message}; until an episode is finished, further losses are only counted" if is_told else ""
        if self._fruitless >= _MAX_FRUITLESS * self.n_processes and not done:
            lost = f"{self._fruitless} workers were lost before any episode was finished, the last one {what}; it {how}."
            return WorkerFailure(message, self._error(worker, lost, episode, generation), True)
        if losses < most:
            return WorkerFailure(message)
        lost = f"{most} workers were lost {what}; the last one {how}."
        return WorkerFailure(message, self._error(worker, lost, episode, generation), episode is None)

    def _outside(self, worker: Worker, done: int) -> tuple[int, int]:
        """Return how often its row has lost a worker outside any episode, and how often it may.

        A worker that is ready may be killed at any time, and no job is at fault. But if that happens again and again, and no
        worker finishes an episode in between, the pool gives up.
        """
        if not worker.ready:
            self._unbuilt[worker.index] += 1
            return self._unbuilt[worker.index], _MAX_CRASHES
        if done != self._done_then:
            self._idle.clear()
            self._done_then = done
        self._idle[worker.index] += 1
        return self._idle[worker.index], MAX_IDLE

    def _error(self, worker: Worker, lost: str, episode: EpisodeDescription | None, generation: int) -> WorkerCrashed:
        """Return the error for workers that are lost again and again. lost: a sentence."""
        kind = WorkerTimeout if worker.killed_for.startswith(HUNG) else WorkerCrashed
        again = f"\nTo play this episode again in one process: {episode.replay}" if episode else ""
        if episode and is_native(self._env) and kind is WorkerCrashed:
            options = "".join(f" {name}={value}" for name, value in self._options.items())
            flags = f" --env-kwargs{options}" if options else ""
            again = f"\nTo find the step, and then the line, that crashes: fastes check-env {self._env}{flags}"
        output = worker.last_output()
        return kind(
            f"{lost}{again}{output and f'{chr(10)}Its last output:{chr(10)}{output}'}",
            episode.generation if episode else generation,
            episode.job if episode else None,
            episode.env_seed if episode else None,
            episode.trial if episode else None,
        )


def _commits(slots: Sequence[RequestSlot]) -> int:
    """Return a number that grows with every finished job, whose flag is set to a ticket above those before."""
    return sum(int(slot.committed.sum()) for slot in slots)
