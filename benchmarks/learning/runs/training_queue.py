"""A queue of trainings, each of one core: it can be stopped at any time, and the same command resumes it."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import Child
from benchmarks.csv_records import Record, append_record, read_records
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT, COUNT_OR_0
from fastes.cli.main import build_parser

_LONGEST = 100  # characters of the name of a log
_OWN_FLAGS = "seed", "seeds", "runs", "resume", "total_timesteps", "target_return", "workers", "max_minutes"


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
        name = self.name.replace("/", "-")
        if len(name) > _LONGEST:
            name = f"{name[:_LONGEST]} {hashlib.sha256(name.encode()).hexdigest()[:12]}"
        log = self.runs / f"{name}.log"
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
    """Train one after the other on each core. A failure stops no other training.

    Raises:
        SystemExit: There are fewer cores; or the program was interrupted.
    """
    try:
        places = [[cpu] for cpu in usable_cpus(cores)]
    except ValueError as error:
        raise SystemExit(str(error)) from None
    with resumable():
        run_jobs(jobs, places)


def read_results(path: Path, kind: type[Record]) -> list[Record]:
    """The results that there are. SystemExit if the file has other columns."""
    try:
        return read_records(path, kind)
    except ValueError as error:
        raise SystemExit(str(error)) from None


def add_queue_options(parser: argparse.ArgumentParser, seeds: Sequence[int], out: Path) -> None:
    """The options --seeds, --flags, --cores and --out. seeds, out: defaults."""
    shown = " ".join(map(str, seeds))
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=list(seeds), metavar="K", help=f"default: {shown}")
    parser.add_argument(
        "--flags", type=checked_flags, default="", help="of fastes train, as --flags='--sigma 0.03' (default: none)"
    )
    parser.add_argument("--cores", type=COUNT, metavar="N", help="trainings side by side (default: a core each)")
    parser.add_argument(
        "--out", type=csv_file, default=out, metavar="CSV", help=f"results; what it has is not trained again (default: {out})"
    )


def checked_flags(text: str) -> str:
    """Flags of fastes train, as --flags has them.

    Raises:
        argparse.ArgumentTypeError: They cannot be read, or the queue sets one of them.
        SystemExit: `fastes train` does not have them, as it has told.
    """
    try:
        given = parsed_flags(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if own := [name for name in _OWN_FLAGS if getattr(given, name) is not None]:
        raise argparse.ArgumentTypeError(f"{text!r}: the queue sets --{own[0].replace('_', '-')} itself")
    return text


def parsed_flags(text: str) -> argparse.Namespace:
    """Flags as `fastes train` reads them; what is not given is None."""
    return build_parser().parse_args(["train", "an-environment", *shlex.split(text)])


def csv_file(text: str) -> Path:
    """A file for lines, next to which a folder of its stem has room."""
    if not Path(text).suffix or Path(text).is_dir() or Path(text).with_suffix("").is_file():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a CSV file, such as {Path(text) / 'scores.csv'}")
    return Path(text)
