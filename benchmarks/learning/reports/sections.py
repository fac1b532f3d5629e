"""Sections that reports share: machines and failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.learning.runs.results import Row, Run, machines_of


def write_sections(path: Path, sections: Sequence[str]) -> Path:
    """Write the sections that are not empty, separated by blank lines."""
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


def machines(sources: Sequence[Path], runs: Sequence[Run]) -> str:
    """The machines of the runs, with a warning if the runs of an environment are of several machines."""
    known = described_machines(sources)
    used = sorted(machines_of(runs))
    lines = [f"- {name}: {known.get(name, 'no machine.json describes it')}" for name in used]
    groups: dict[str, set[str]] = {}
    for run in runs:
        groups.setdefault(run.final.env, set()).add(run.final.machine)
    mixed = [name for name, of_group in groups.items() if len(of_group) > 1]
    if mixed:
        lines.append(f"\nTimes of {', '.join(mixed)} were taken on different machines: there only steps and scores compare.")
    return "Machines:\n\n" + "\n".join(lines)


def failure_lines(failed: Sequence[Row]) -> list[str]:
    if not failed:
        return []
    return ["## Failures", "\n".join(f"- {row.env} {row.algo} seed {row.seed}, {row.budget}: {row.note}" for row in failed)]
