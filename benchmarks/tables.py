"""Tables in markdown, and the statistics in their cells."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned in plain text too; the first column is text, the others are statistics."""
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


def median_and_range(values: Sequence[float], form: str = "{:.2f}") -> str:
    """'0.93 (0.90 to 0.96)'."""
    median, low, high = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high})"


def against_aim(value: float, aim: float, form: str = "{:.2f}") -> str:
    """'>= 0.85: met', or that it is missed."""
    return f">= {form.format(aim)}: {'met' if value >= aim else 'missed'}"


def below_aim(value: float, aim: float, unit: str) -> str:
    """'< 1.5 us: met', or that it is missed."""
    return f"< {aim:g} {unit}: {'met' if value < aim else 'missed'}"


def amount(steps: float) -> str:
    """Steps in words short enough for a table."""
    return f"{steps / 1e6:.3g}M" if steps >= 100_000 else f"{steps:,.0f}"
