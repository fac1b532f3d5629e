"""A simulated machine: worker processes that claim jobs, and a parent, on cores that they share."""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any

import simpy

Steps = Generator[simpy.Event, Any, None]  # a SimPy process


class Kind(Enum):
    """The kind of a request's jobs. Workers claim candidates before evaluations."""

    CANDIDATES = 0
    EVALUATIONS = 1


class FairCores:
    """Cores on which every running process advances alike: each has a core, or an equal share of all cores.

    Attributes:
        busy: CPU seconds given so far.
    """

    def __init__(self, env: simpy.Environment, count: int) -> None:
        self.env, self.count, self.busy = env, count, 0.0
        self._clock = self._moment = 0.0  # CPU seconds that a process which always ran has had, at this moment of wall time
        self._running: list[tuple[float, int, simpy.Event]] = []  # by the clock's reading at their end
        self._order, self._alarm = itertools.count(), 0

    def run(self, seconds: float) -> simpy.Event:
        """Return an event that happens once the calling process has had these CPU seconds."""
        self._advance()
        ended = self.env.event()
        bisect.insort(self._running, (self._clock + seconds, next(self._order), ended))
        self._set_alarm()
        return ended

    def _advance(self) -> None:
        elapsed, self._moment = self.env.now - self._moment, self.env.now
        self._clock += elapsed * self._rate()
        self.busy += elapsed * min(self.count, len(self._running))

    def _rate(self) -> float:
        return min(1.0, self.count / len(self._running)) if self._running else 0.0

    def _set_alarm(self) -> None:
        """Wake at the next end. An older alarm is ignored: the number of running processes has changed since."""
        self._alarm += 1
        if self._running:
            wait = max(0.0, self._running[0][0] - self._clock) / self._rate()
            alarm = self.env.timeout(wait, value=self._alarm)
            assert alarm.callbacks is not None
            alarm.callbacks.append(self._end_first)

    def _end_first(self, alarm: simpy.Event) -> None:
        if alarm.value == self._alarm:
            self._advance()
            self._clock, _, ended = self._running.pop(0)  # not what rounding made of it
            ended.succeed()
            self._set_alarm()


class Request:
    """Jobs that were asked for together. ended: happens when all of them have."""

    def __init__(self, env: simpy.Environment, count: int) -> None:
        self.ended, self.unfinished = env.event(), count

    def end_one(self) -> None:
        self.unfinished -= 1
        if not self.unfinished:
            self.ended.succeed()


class Workers:
    """Worker processes of one sort. claims: the kinds of jobs they take, first things first."""

    def __init__(self, count: int, *claims: Kind) -> None:
        self.idle, self.claims = count, claims


class Machine:
    """Worker processes and their parent on shared cores. Among jobs of one kind, the one that was asked for first comes first.

    spares: workers that claim evaluations alone. While one of them is idle, the other workers leave evaluations to it.
    """

    def __init__(self, cores: int, workers: int, spares: int = 0) -> None:
        self.env = simpy.Environment()
        self.cores = FairCores(self.env, cores)
        self._all = Workers(spares, Kind.EVALUATIONS), Workers(workers, Kind.CANDIDATES, Kind.EVALUATIONS)
        self._open: dict[Kind, deque[tuple[float, Request]]] = {kind: deque() for kind in Kind}
        self._parent = simpy.Resource(self.env, capacity=1)

    def play(self, kind: Kind, seconds: Sequence[float]) -> simpy.Event:
        """Ask for jobs of these CPU seconds; the event happens when all have ended."""
        request = Request(self.env, len(seconds))
        if not seconds:
            request.ended.succeed()
        self._open[kind].extend((each, request) for each in seconds)
        self._claim()
        return request.ended

    def in_parent(self, seconds: float) -> Steps:
        """Let the parent work for these CPU seconds, after what it has to do already."""
        with self._parent.request() as turn:
            yield turn
            yield self.cores.run(seconds)

    def _claim(self) -> None:
        for workers in self._all:
            for kind in workers.claims:
                while workers.idle and self._open[kind]:
                    workers.idle -= 1
                    self.env.process(self._work(workers, *self._open[kind].popleft()))

    def _work(self, workers: Workers, seconds: float, request: Request) -> Steps:
        yield self.cores.run(seconds)
        workers.idle += 1
        request.end_one()
        self._claim()
