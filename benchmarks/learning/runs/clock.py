"""Budgets, and what a contestant has used of them: wall and CPU seconds of all its processes, without evaluation."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_UTIME, _CSTIME = 11, 14  # fields of /proc/<pid>/stat after the name: utime, stime, cutime, cstime
_PARENT = 1


def tree_cpu_seconds(proc: Path = Path("/proc")) -> float:
    """CPU seconds of this process and of all its descendants, living or waited for. Resolution: a tick, 10 ms, a process.

    Without /proc, only this process and children that have ended count.
    """
    if not (proc / "self" / "stat").exists():
        return ended_cpu_seconds()
    stats = {int(entry): fields for entry in os.listdir(proc) if entry.isdigit() and (fields := _stat(proc / entry))}
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        ticks += sum(map(int, stats[pid][_UTIME : _CSTIME + 1])) if pid in stats else 0
        waiting += children.get(pid, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def ended_cpu_seconds() -> float:
    """CPU seconds of this process and of its descendants that have ended and were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def _stat(folder: Path) -> list[str]:
    """Fields after the process's name, which may hold anything; none for a process that has just ended."""
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


class Budget(NamedTuple):
    """Wall seconds or environment steps: one of them, the other is 0."""

    seconds: float = 0.0
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.steps} steps" if self.steps else f"{self.seconds:g} s"


class Used(NamedTuple):
    """Wall seconds and CPU seconds."""

    wall: float
    cpu: float


class Clock:
    """Runs from `start` on, and stands still inside `paused`."""

    def __init__(
        self,
        budget: Budget,
        wall_seconds: Callable[[], float] = time.perf_counter,
        cpu_seconds: Callable[[], float] = tree_cpu_seconds,
    ) -> None:
        self.budget, self._wall, self._cpu = budget, wall_seconds, cpu_seconds
        self._wall_before = self._cpu_before = 0.0  # readings that count as zero; later by what evaluation took
        self._standing: Used | None = Used(0.0, 0.0)

    def start(self) -> None:
        self._wall_before, self._cpu_before, self._standing = self._wall(), self._cpu(), None

    @property
    def wall(self) -> float:
        return self._wall() - self._wall_before if self._standing is None else self._standing.wall

    def used(self) -> Used:
        """Reads every process of the tree: milliseconds."""
        if self._standing is not None:
            return self._standing
        return Used(self._wall() - self._wall_before, self._cpu() - self._cpu_before)

    def share(self, steps: int) -> float:
        """The share of the budget that is used after `steps` environment steps; may exceed 1."""
        return steps / self.budget.steps if self.budget.steps else self.wall / self.budget.seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[Used]:
        """Stop the clock, wall and CPU, of all processes; gives what was used before."""
        self._standing = standing = self.used()
        try:
            yield standing
        finally:
            self._wall_before, self._cpu_before = self._wall() - standing.wall, self._cpu() - standing.cpu
            self._standing = None
