"""Follows one stretch of a training from outside: disturbs it, starts it again after a kill, and takes its times."""

from __future__ import annotations

import math
import select
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.reliability.chaos.faults import KILL_TRAINING, Injector, kill_with_children
from benchmarks.reliability.chaos.training import Line, Plan, parse_line, start_training

_STALLED_SECONDS = 120.0
_SETTLE_SECONDS = 1.0  # in which the successor of a worker starts
_NEIGHBOURS = 7  # undisturbed generations that a disturbed one is compared with


class Failed(Exception):
    """The disturbed training ended, stood still, or came to other results."""


class Course(NamedTuple):
    """How a stretch went.

    seconds: from the end of its first generation to the end of its last.
    resume_seconds: of these, from the kill of the training process until it had done again what it had.
    redone: generations.
    delay: share by which the faults of workers made it longer, by comparing generations with their neighbours.
    """

    seconds: float
    generation: int
    generations: int
    job_seconds: float
    jobs_rerun: int
    redone: int
    resume_seconds: float
    delay: float


class Follower:
    """Runs a plan to its end, injects faults meanwhile, and starts the training again when it has killed it."""

    def __init__(self, plan: Plan, log: Path, injector: Injector | None = None, kill_after: float = math.inf) -> None:
        self.plan, self.log, self.injector, self.kill_after = plan, log, injector, kill_after
        self.segments: list[list[Line]] = [[]]  # one a process
        self.redone, self.resume_seconds = 0, 0.0
        self._killed_at: Line | None = None  # the last line before the kill, while the training catches up
        self._text = b""
        self._heard = time.monotonic()

    def run(self) -> Course:
        self.process = start_training(self.plan, self.log)
        try:
            while self._listen():
                self._disturb()
                if time.monotonic() - self._heard > _STALLED_SECONDS:
                    fault = self.injector.last if self.injector else "none"
                    raise Failed(f"no generation ended within {_STALLED_SECONDS:.0f} s; last fault: {fault}")
            if self.process.wait():
                tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
                raise Failed(f"the training ended with exit status {self.process.returncode}:\n{tail}")
        finally:
            self._reap()
            if self.injector is not None:
                self.injector.finish()
        lines = [line for segment in self.segments for line in segment]
        first, last = lines[0], lines[-1]
        return Course(
            last.at - first.at,
            last.generation,
            last.generation - first.generation,
            sum(line.busy_seconds for line in lines) / sum(line.jobs for line in lines),
            sum(line.jobs_rerun for line in lines),
            self.redone,
            self.resume_seconds,
            delay_by_neighbours(self.segments, self.injector.spans if self.injector else []),
        )

    def _listen(self) -> bool:
        """Read what the training said, waiting a little; False when it has ended."""
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], 0.02)[0]:
            data = self.process.stdout.read(1 << 16)
            *whole, self._text = (self._text + data).split(b"\n")
            for text in whole:
                line = parse_line(text.decode(errors="replace"))
                if line is not None:
                    self._take(line)
            return bool(data)
        return True

    def _reap(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def _take(self, line: Line) -> None:
        self._heard = time.monotonic()
        before = self._killed_at
        if before is not None:
            self.redone += line.generation <= before.generation
            if line.generation >= before.generation:
                gained = (line.generation - before.generation) * _typical_seconds(self.segments[0])
                self.resume_seconds += line.at - before.at - gained
                self._killed_at = None
        elif not self.segments[0] and self.injector is not None:
            self.injector.begin()
        self.segments[-1].append(line)

    def _disturb(self) -> None:
        if self.injector is None or not self.segments[0] or self._killed_at is not None:
            return  # starting up is off the clock, and catching up is counted as a whole
        if time.monotonic() - self.segments[0][0].at >= self.kill_after:
            self._kill_training(self.injector)
        else:
            self.injector.step(self.process.pid)

    def _kill_training(self, injector: Injector) -> None:
        orphans = kill_with_children(self.process.pid)
        if orphans:
            raise Failed(f"{orphans} workers outlived their training, which was killed")
        while self._listen():  # what it had said before
            pass
        self._reap()
        injector.note(KILL_TRAINING)
        injector.finish()
        self.kill_after = math.inf
        self._killed_at, self._text = self.segments[-1][-1], b""
        self.segments.append([])
        self.process = start_training(self.plan, self.log)


def _typical_seconds(lines: Sequence[Line]) -> float:
    """Median seconds of a generation; 0.0 if only one has ended."""
    return statistics.median([b.at - a.at for a, b in pairwise(lines)] or [0.0])


def delay_by_neighbours(segments: Sequence[Sequence[Line]], spans: Sequence[tuple[float, float]]) -> float:
    """Seconds by which disturbed generations exceed the undisturbed ones around them, over all other seconds.

    A generation is disturbed when it meets a fault's span or the second after, or when the one before it is.
    """
    seconds, disturbed = [], []
    for segment in segments:
        hit = False
        for before, line in pairwise(segment):
            hit_before, hit = hit, any(start <= line.at and end + _SETTLE_SECONDS >= before.at for start, end in spans)
            seconds.append(line.at - before.at)
            disturbed.append(hit or hit_before)
    calm = [k for k, hit in enumerate(disturbed) if not hit]
    if not calm:
        return math.nan
    excess = 0.0
    for k in (k for k, hit in enumerate(disturbed) if hit):
        nearest = sorted(calm, key=lambda other: abs(other - k))[:_NEIGHBOURS]
        excess += seconds[k] - statistics.median(seconds[other] for other in nearest)
    return excess / (sum(seconds) - excess)
