"""What reports of trainings by `fastes train` share: the command that reads run folders, and the line of what they ran on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.learning.runs.run_folder import Ended, read_ended
from benchmarks.machine import cpu_model
from fastes.errors import FastESError


def parser(module: str, doc: str | None, example: str, written: str) -> argparse.ArgumentParser:
    """Of a command with run folders and --out. example: a run folder; written: files that it writes."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    made.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=f"run folders, such as {example}")
    made.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help=f"where {written} go; trainings that are in its files stay"
    )
    return made


def read_all(folders: Iterable[Path]) -> list[Ended]:
    """Ends the program where a training has not ended, or where two are of one environment and seed."""
    try:
        runs = [read_ended(folder) for folder in folders]
    except FastESError as error:
        raise SystemExit(str(error)) from None
    if len({(run.env, run.seed) for run in runs}) < len(runs):
        raise SystemExit("expected one run of each environment and seed: the curve of a seed is one line")
    return runs


def machine_of(run: Ended) -> str:
    """This machine's processor, and the versions that the run folder notes."""
    return f"{cpu_model()}; {run.versions}"


def machine_lines(machines: Iterable[str]) -> str:
    return "\n".join(f"- {machine}" for machine in sorted(set(machines)))
