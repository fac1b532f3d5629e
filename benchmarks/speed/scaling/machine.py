"""A simulated machine: processes that claim jobs, and a parent that does one thing at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from benchmarks.speed.scaling.cores import Cores


class Kind(Enum):
    """What the jobs of a request are. Candidates are claimed before evaluations."""

    CANDIDATES = 0
    EVALUATIONS = 1


class Request:
    """Jobs that were asked for together, claimed in their order. seconds: CPU time of each. told: when all have ended."""

    def __init__(self, kind: Kind, seconds: Iterable[float], told: Callable[[], None]) -> None:
        self.kind, self.told = kind, told
        self.unclaimed = deque(seconds)
        self.unfinished = len(self.unclaimed)

    def end_one(self) -> None:
        self.unfinished -= 1
        if not self.unfinished:
            self.told()


class Processes:
    """Worker processes of one sort. claims: what they take, first things first."""

    def __init__(self, count: int, claims: tuple[Kind, ...]) -> None:
        self.idle, self.claims = count, claims


class Machine:
    """Worker processes and their parent on shared cores. Of one kind, the oldest open request comes first.

    spares: processes beside the workers that claim evaluations alone. While one is idle, workers leave evaluations to it.
    now: wall seconds so far.
    """

    def __init__(self, cores: Cores, workers: int, spares: int = 0) -> None:
        self.cores, self.now = cores, 0.0
        self.spares = Processes(spares, (Kind.EVALUATIONS,))
        self.workers = Processes(workers, (Kind.CANDIDATES, Kind.EVALUATIONS))
        self._open: dict[Kind, deque[Request]] = {kind: deque() for kind in Kind}
        self._parent: deque[tuple[float, Callable[[], None]]] = deque()
        self._parent_works = False

    def ask(self, request: Request) -> None:
        """Put a request of at least one job behind those that are open."""
        self._open[request.kind].append(request)

    def in_parent(self, seconds: float, then: Callable[[], None]) -> None:
        """Let the parent work for so many CPU seconds, after what it has to do already."""
        self._parent.append((seconds, then))

    def run(self) -> float:
        """Until nothing is left to do. The wall seconds that it took."""
        while True:
            self._begin()
            end = self.cores.advance()
            if end is None:
                return self.now
            self.now += end.seconds
            end.tell()  # who is told asks for more, which the next turn begins

    def _begin(self) -> None:
        if self._parent and not self._parent_works:
            seconds, then = self._parent.popleft()
            self._parent_works = True
            self.cores.start(seconds, lambda: self._end_in_parent(then))
        for processes in (self.spares, self.workers):
            while processes.idle and (request := self._next(processes)):
                processes.idle -= 1
                self._claim(processes, request)

    def _end_in_parent(self, then: Callable[[], None]) -> None:
        self._parent_works = False
        then()

    def _next(self, processes: Processes) -> Request | None:
        for kind in processes.claims:
            requests = self._open[kind]
            while requests and not requests[0].unclaimed:
                requests.popleft()
            if requests:
                return requests[0]
        return None

    def _claim(self, processes: Processes, request: Request) -> None:
        def ended() -> None:
            processes.idle += 1
            request.end_one()

        self.cores.start(request.unclaimed.popleft(), ended)
