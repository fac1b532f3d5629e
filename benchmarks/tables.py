"""Timing that alternates between what is compared, and tables in markdown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def interleaved_seconds(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Wall seconds of each call, (repeats,) a name, taken in turn: A B A B. Each is called once before, off the clock."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median of the ratios of neighbours: what slows the machine for a while slows both of a pair."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned in plain text too; the first column is text, the others are figures."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"row {row!r} has {len(row)} cells, the header has {len(header)}")
    widths = [max(len(line[k]) for line in (header, *rows)) for k in range(len(header))]
    lines = [
        [cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(zip(line, widths, strict=True))]
        for line in (header, *rows)
    ]
    rule = ["-" * width if k == 0 else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def against_aim(value: float, aim: float, form: str = "{:.2f}") -> str:
    """'>= 0.85: met', or by how much it is missed."""
    return f">= {form.format(aim)}: {'met' if value >= aim else 'missed'}"
