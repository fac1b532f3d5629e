"""How workers leave: each is asked to close its environment and to end; one that does not is killed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait

from fastes.pools.processes.worker_process import Worker
from fastes.rollout.shared_block import CLOSED, OPEN

CLOSE_SECONDS = 10.0  # for env.close, and to finish building what is to be closed, on a busy machine too
SHORT_SECONDS = 1.0  # the same, for a worker that hung already
END_SECONDS = 1.0  # for a process to end once its environment is closed: one with threads left behind never does
_TICK = 0.05
_TICK_WITHOUT_PIDFD = 0.005


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
