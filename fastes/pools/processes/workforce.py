"""The worker processes of a pool: started, heard, and ended."""

from __future__ import annotations

import contextlib
import selectors
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from fastes.pools.at_exit import close_at_exit
from fastes.pools.processes.nested_training import refuse_workers
from fastes.pools.processes.shutdown import END_SECONDS, see_off, warn_of_late
from fastes.pools.processes.worker_process import Payload, Worker
from fastes.rollout.job import PoolSpec
from fastes.system.console import lasting
from fastes.system.forks import tell_of_forks
from fastes.system.interrupts import interrupts_wait
from fastes.system.limits import explained

_Made = TypeVar("_Made")
_SEVERAL = 4  # workers
_MANY = 8  # candidates a worker: the last ones of a generation are a small part of it then


def spare_workers(spec: PoolSpec, n_workers: int) -> int:
    """Workers beside n_workers that play noise-free episodes alone.

    Where a generation gives each worker few episodes, one that is at a long evaluation makes the others wait for a second
    turn. A process more does that evaluation instead, while the system takes a little time from everybody. Few workers need
    none: evaluations fill the time at the end of their generations.
    """
    candidates = 2 * spec.num_pairs * spec.num_generations
    if n_workers < _SEVERAL or not candidates or candidates >= _MANY * n_workers:
        return 0
    return min(spec.num_evaluations - spec.num_generations, n_workers)


class Workforce:
    """Processes over one block of shared memory, which they know by a row in it.

    n_workers: that play anything. spare: further ones that play noise-free episodes alone.
    """

    n_workers = 0

    def __init__(self, spec: PoolSpec, n_workers: int, spare: int = 0) -> None:
        refuse_workers()
        self.spec, self.n_workers, self.n_processes = spec, n_workers, n_workers + spare
        self._workers: dict[int, Worker] = {}
        self._selector = self._with_limits_named(selectors.DefaultSelector)
        try:
            self.block = self._with_limits_named(lambda: spec.block(self.n_processes))
        except BaseException:
            self._selector.close()
            raise
        self._payload: Payload | None = None
        self._printed: set[str] = set()
        self._offer = 0  # number of the last one
        tell_of_forks(self)
        close_at_exit(self)

    def start(self) -> None:
        """Start the workers that are not running, so that they build their environments while the caller goes on."""
        if self._payload is None:
            self._payload = self._with_limits_named(lambda: Payload(self.spec, self.block, self.n_workers))
        for slot in range(self.n_processes):
            if slot not in self._workers:
                self._start_worker(slot, self._payload).offer(self._offer)

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
            raise explained(error, self.n_processes, len(self._workers)) from error

    def _has(self, worker: Worker) -> bool:
        """Whether it was not ended meanwhile, as by an error in what another has sent."""
        return self._workers.get(worker.slot) is worker

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
        """End every worker, whatever it does; the next request starts new ones."""
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
