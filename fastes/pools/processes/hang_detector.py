"""Noticing workers that neither work nor die: stopped by a signal, in an env.step that never returns, or silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from fastes.pools.processes.worker_process import Worker
from fastes.rollout.shared_block import EVALUATION_STEPS, JOB, STEPS

TICK = 0.25  # seconds between looks
_PAUSE = 1.0  # a look that comes later than this after the last one counts as this: the parent itself was stopped or starved
_FACTOR = 20.0
_FLOOR = 60.0
_UNLEARNED = 600.0  # for the first episodes, and for building an environment
HUNG = "hung"


class _Seen(NamedTuple):
    """How a worker was when it was last looked at: (job, steps, ready), how long it has been so, and whether stopped."""

    state: tuple[int, int, bool]
    waited: float
    stopped: bool


class HangDetector:
    """Finds workers that are alive and do not work.

    timeout: seconds that a worker in an episode may go without an env.step; None learns it: 20 times the longest job so
    far, at least 60 s, and 600 s before the first. Time is counted as this process sees it, so that a training that was
    suspended as a whole, or starved, blames no worker.
    """

    def __init__(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout, self.clock = timeout, clock
        self._longest = 0.0
        self._looked_at = clock()
        self._counted = 0.0  # seconds until then
        self._seen: dict[Worker, _Seen] = {}

    @property
    def counted(self) -> float:
        """Seconds that this process has seen pass, until now."""
        return self._counted + min(self.clock() - self._looked_at, _PAUSE)

    def learn(self, seconds: float, begun: float) -> None:
        """A job took so long by the wall clock; no longer than what was counted since it was asked for.

        begun: what was counted then.
        """
        self._longest = max(self._longest, min(seconds, self.counted - begun))

    def forget(self) -> None:
        """Hold no worker, and so no part of the pool's memory."""
        self._seen = {}

    @property
    def limit(self) -> float:
        """Seconds without a step after which a worker in an episode is hung."""
        if self.timeout is not None:
            return self.timeout
        return max(_FLOOR, _FACTOR * self._longest) if self._longest else _UNLEARNED

    def check(self, workers: Collection[Worker], awaited: bool = True) -> list[tuple[Worker, str]]:
        """(worker, what is wrong with it) of each that has to be replaced; looks at most once a TICK.

        awaited: whether a request has jobs that are not done. If no worker is at one of them, all workers are late.
        """
        now = self.clock()
        passed = min(now - self._looked_at, _PAUSE)
        if passed < TICK:
            return []
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
    """Whether it has something to do: a job, its environment to build, or an offer of jobs that it has not answered."""
    return int(worker.row[JOB]) >= 0 or not worker.ready or worker.owes_an_answer
