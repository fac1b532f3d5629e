"""How simulated cores are shared by processes that may be more than they are: fairly, or as Linux's run queues do it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

Ended = Callable[[], None]


class End(NamedTuple):
    """seconds: of wall time since the moment before. tell: who waits for it."""

    seconds: float
    tell: Ended


class Cores(Protocol):
    """Processes run on them until each has had the CPU seconds that it needs."""

    busy: float  # CPU seconds that were given

    def start(self, seconds: float, ended: Ended) -> None:
        """A process begins something that needs so many CPU seconds."""

    def advance(self) -> End | None:
        """To the next end, which is not told yet; None where nothing runs."""


class _Running(NamedTuple):
    done_at: float  # on the clock of all
    order: int
    ended: Ended


class FairCores:
    """Every running process advances alike: a core for each, or an equal share of all cores."""

    def __init__(self, count: int) -> None:
        self.count, self.busy = count, 0.0
        self._clock, self._order = 0.0, 0  # the clock: CPU seconds that a process which always ran has had
        self._running: list[_Running] = []

    def start(self, seconds: float, ended: Ended) -> None:
        self._order += 1
        heapq.heappush(self._running, _Running(self._clock + seconds, self._order, ended))

    def advance(self) -> End | None:
        if not self._running:
            return None
        running = len(self._running)
        first = heapq.heappop(self._running)
        given = first.done_at - self._clock
        self._clock = first.done_at
        self.busy += given * running
        return End(given * max(1.0, running / self.count), first.ended)


class _Process:
    def __init__(self, left: float, ended: Ended) -> None:
        self.left, self.ended = left, ended


class RunQueues:
    """A process stays on its core and shares it with those that are there, until a core falls idle and takes one over.

    Linux balances busy cores against each other within tenths of seconds, which is many generations, so that is left out.
    A process begins on an idle core, or on the one with the shortest queue.
    """

    def __init__(self, count: int) -> None:
        self.busy = 0.0
        self._queues: list[list[_Process]] = [[] for _ in range(count)]

    def start(self, seconds: float, ended: Ended) -> None:
        min(self._queues, key=len).append(_Process(seconds, ended))

    def advance(self) -> End | None:
        self._take_over()
        busy = [queue for queue in self._queues if queue]
        if not busy:
            return None
        ends = [(min(process.left for process in queue) * len(queue), number) for number, queue in enumerate(busy)]
        seconds, number = min(ends)
        for queue in busy:
            for process in queue:
                process.left -= seconds / len(queue)
        self.busy += seconds * len(busy)
        first = min(busy[number], key=lambda process: process.left)
        busy[number].remove(first)
        return End(seconds, first.ended)

    def _take_over(self) -> None:
        for idle in self._queues:
            if not idle:
                longest = max(self._queues, key=len)
                if len(longest) < 2:
                    return
                idle.append(longest.pop())
