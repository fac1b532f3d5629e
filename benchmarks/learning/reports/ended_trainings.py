"""What reports of trainings by `fastes train` share: the command that reads run folders, and what they ran on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.learning.runs.run_folder import Ended, read_ended
from benchmarks.machine import cpu_model
from fastes.errors import FastESError


def report_parser(module: str, doc: str | None, example: str, files: str) -> argparse.ArgumentParser:
    """Of a command with run folders and --out. example: a run folder; files: which it writes."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    which = f"run folders of trainings on this machine, such as {example}"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=which)
    where = f"where {files} go; other trainings in its files stay, those of the same seed are replaced"
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=where)
    return parser


def read_trainings(folders: Sequence[Path]) -> list[Ended]:
    """Ends the program where a folder cannot be reported, or where two are of one environment and seed."""
    runs = []
    for folder in folders:
        try:
            runs.append(read_ended(folder))
        except FastESError as error:
            raise SystemExit(str(error)) from None
    first: dict[tuple[str, int], Ended] = {}
    for run in runs:
        other = first.setdefault((run.env, run.seed), run)
        if other is not run:
            raise SystemExit(f"{other.folder} and {run.folder} are both {run.env}, seed {run.seed}: expected one run of a seed")
    return runs


def machine_of(run: Ended) -> str:
    """This machine's processor, and the versions that the run folder notes."""
    return f"{cpu_model()}; {run.versions}"


def machine_lines(machines: Iterable[str]) -> str:
    return "\n".join(f"- {machine}" for machine in sorted(set(machines)))
