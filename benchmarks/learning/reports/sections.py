"""Sections that reports share: machines, failures, final scores of several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.learning.runs.results import Row, Run, machines_of
from benchmarks.tables import median_and_range


def write_sections(path: Path, sections: Sequence[str]) -> Path:
    """Those that are not empty, a blank line between two."""
    path.write_text("\n\n".join(section for section in sections if section) + "\n", encoding="utf-8")
    return path


def print_report(write: Callable[[], Path]) -> None:
    """Print what `write` has written; a ValueError of its ends the program with its message."""
    try:
        print(write().read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(str(error)) from None


def described_machines(sources: Sequence[Path]) -> dict[str, str]:
    """Machine and versions by the name that rows have for a machine."""
    found: dict[str, str] = {}
    for source in sources:
        path = source / "machine.json"
        found |= json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def env_of(run: Run) -> str:
    return run.final.env


def machines(sources: Sequence[Path], runs: Sequence[Run], compared: Callable[[Run], str] = env_of) -> str:
    """What the runs ran on; a warning where runs that are compared are of different machines.

    compared: a name for what a run is compared in, its environment unless told.
    """
    known = described_machines(sources)
    used = sorted(machines_of(runs))
    lines = [f"- {name}: {known.get(name, 'no machine.json describes it')}" for name in used]
    groups: dict[str, set[str]] = {}
    for run in runs:
        groups.setdefault(compared(run), set()).add(run.final.machine)
    mixed = [name for name, of_group in groups.items() if len(of_group) > 1]
    if mixed:
        lines.append(f"\nTimes of {', '.join(mixed)} were taken on different machines: there only steps and scores compare.")
    return "Machines:\n\n" + "\n".join(lines)


def failure_lines(failed: Sequence[Row]) -> list[str]:
    if not failed:
        return []
    return ["## Failures", "\n".join(f"- {row.env} {row.algo} seed {row.seed}, {row.budget}: {row.note}" for row in failed)]


def final_scores(runs: Sequence[Run]) -> str:
    """'357.0 (340.1 to 360.2)': median and range over seeds; '' without runs."""
    return median_and_range([run.final.score for run in runs], "{:.1f}") if runs else ""


def cpu_minutes(runs: Sequence[Run]) -> str:
    return f"Training took {sum(run.final.cpu for run in runs) / 60:.1f} CPU minutes, evaluation left out."
