"""Timing that alternates between what is compared."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def interleaved_seconds(
    calls: Mapping[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Wall seconds of each call, (repeats,) per name, taken in turn: A B A B. Each is called once before, off the clock.

    clock: time.process_time gives CPU seconds, which other programs do not move.
    """
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            started = clock()
            call()
            seconds[name].append(clock() - started)
    return seconds


def repeated(call: Callable[[], Any], calls: int) -> Callable[[], None]:
    """Calls often enough to be timed as one."""

    def loop() -> None:
        for _ in itertools.repeat(None, calls):
            call()

    return loop


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median of the ratios of neighbours: what slows the machine for a while slows both of a pair."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))
