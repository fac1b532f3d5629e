"""A queue of trainings, each of one core: it can be stopped at any time, and the same command resumes it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import Child
from benchmarks.csv_records import append_record
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT, COUNT_OR_0

_OWN_FLAGS = {"--seed", "--seeds", "--runs", "--resume", "--total-timesteps", "--target-return", "--workers"}


class QueuedTraining(NamedTuple):
    """A job of `run_queue`.

    Attributes:
        task: Environment or game.
        module: `python -m module JSON` trains, and writes one record.
        given: Its argument, with "flags" and "seed"; "runs" is added.
        record: Makes a line of the CSV file of what it writes.
        out: The CSV file.
        failures: Gets what went wrong.
    """

    task: str
    module: str
    given: dict[str, Any]
    record: Callable[..., Any]
    out: Path
    failures: list[str]

    @property
    def name(self) -> str:
        """In messages, and of its log."""
        return " ".join(filter(None, (self.task, self.given["flags"], f"seed {self.given['seed']}")))

    @property
    def runs(self) -> Path:
        """Folder of run folders and logs, next to the CSV file."""
        return self.out.with_suffix("").absolute()

    def start(self, cpus: Sequence[int]) -> Child:
        self.runs.mkdir(parents=True, exist_ok=True)
        log = self.runs / f"{self.name.replace('/', '-')}.log"
        return Child(self.module, {**self.given, "runs": str(self.runs)}, cpus, 1, self.runs, log)

    def note(self, record: dict[str, Any]) -> None:
        done = self.record(**record)
        append_record(self.out, done)
        print(f"{self.name}: {done.told}", file=sys.stderr)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"{self.name} failed, see the logs in {self.runs}: {failure}")
            print(self.failures[-1], file=sys.stderr)


def run_queue(jobs: Iterable[QueuedTraining], cores: int | None) -> None:
    """Train one after the other on each core. A failure stops no other training."""
    run_jobs(jobs, [[cpu] for cpu in usable_cpus(cores)])


def add_queue_options(parser: argparse.ArgumentParser, seeds: Sequence[int], out: Path) -> None:
    """The options --seeds, --flags, --cores and --out. seeds, out: defaults."""
    shown = " ".join(map(str, seeds))
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=list(seeds), metavar="K", help=f"default: {shown}")
    parser.add_argument(
        "--flags", type=checked_flags, default="", help="of fastes train, as --flags='--sigma 0.03' (default: none)"
    )
    parser.add_argument("--cores", type=COUNT, metavar="N", help="trainings side by side (default: a core each)")
    parser.add_argument(
        "--out", type=csv_file, default=out, metavar="CSV", help=f"lines; those in it are skipped (default: {out})"
    )


def checked_flags(text: str) -> str:
    """Flags of fastes train, as --flags has them.

    Raises:
        argparse.ArgumentTypeError: They cannot be read, or the queue sets one of them.
    """
    try:
        names = {flag.partition("=")[0] for flag in shlex.split(text)}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if own := sorted(names & _OWN_FLAGS):
        raise argparse.ArgumentTypeError(f"{text!r}: the queue sets {own[0]} itself")
    return text


def csv_file(text: str) -> Path:
    """A file for lines, next to which a folder of its stem has room."""
    if not Path(text).suffix or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a CSV file, such as {Path(text) / 'scores.csv'}")
    return Path(text)
