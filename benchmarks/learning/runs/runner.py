"""Runs contestants one at a time on the same cores; what is finished in the folder is skipped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.calibration import fastest_way
from benchmarks.learning.runs.evaluation import Task
from benchmarks.child_process import ContestantFailed, records_of
from benchmarks.learning.runs.results import FINAL, POINT, Row, append_row, failed_row, finished_runs, next_attempt, read_rows
from benchmarks.peers.zoo import PEERS, algorithm_of
from benchmarks.machine import cpu_model, describe
from fastes.cpus import available_cpus
from fastes.interrupts import Terminated

_CONTESTANT = "benchmarks.learning.runs.contestant"
_SILENCE_SECONDS = 1800.0  # a cycle may be long: 512 episodes of Humanoid


class Place(NamedTuple):
    """Where results go, and what every contestant may use."""

    folder: Path
    cpus: tuple[int, ...]
    calibration_seconds: float

    @property
    def results(self) -> Path:
        return self.folder / "results.csv"

    @property
    def machine(self) -> str:
        return f"{cpu_model()}, {len(self.cpus)} core" + ("s" if len(self.cpus) > 1 else "")


def usable_cpus(cores: int | None) -> tuple[int, ...]:
    """The first `cores` CPUs that this process may use, None for as many as it is allowed at once.

    Raises ValueError for more than there are.
    """
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    allowed = available_cpus()
    if cores is not None and not 1 <= cores <= allowed:
        raise ValueError(f"--cores {cores}: this process may use 1 to {allowed}")
    return tuple(found[: cores or allowed])


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP inside end the program, and with it the contestant that runs; what is finished stays.

    The exit status is that of shells: 130, 143, 129. What nohup ignores stays ignored. After SIGTERM or SIGHUP both are: the
    program is about to end.
    """
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _terminate)
        yield
    except (KeyboardInterrupt, Terminated) as stop:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("interrupted: the same command goes on where it was", file=sys.stderr)
        raise SystemExit(stop.exit_status if isinstance(stop, Terminated) else 130) from None
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _terminate:
                signal.signal(number, handler)


def _terminate(number: int, _: object) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):  # a terminal that closes may send two
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(number)


def is_finished(rows: Iterable[Row], task: Task) -> bool:
    key = (task.env, task.algo, task.seed, str(task.budget))
    return any(run.final.key == key for run in finished_runs(rows))


def run_all(
    tasks: Iterable[Task],
    place: Place,
    done: Callable[[Iterable[Row], Task], bool] = is_finished,
) -> None:
    """Run what is not done, in order. A failure is a row, and the next task follows."""
    (place.folder / "logs").mkdir(parents=True, exist_ok=True)
    note_machine(place)
    for task in tasks:
        if not done(read_rows(place.results), task):
            run_one(task, place)


def run_one(task: Task, place: Place) -> None:
    """Run a task from scratch and append its rows as they come."""
    key = (task.env, task.algo, task.seed, str(task.budget))
    attempt = next_attempt(read_rows(place.results), key)
    given: dict[str, Any] = {"task": task._asdict(), "cores": len(place.cpus), "way": None}
    threads = 1
    if algorithm_of(task.algo) in PEERS:
        given["way"] = way = fastest_way(task.algo, task.env, place.cpus, place.calibration_seconds, place.folder)
        threads = way.threads
    log = place.folder / "logs" / f"{task.name.replace(',', '').replace('/', '-').replace(' ', '-')}.log"
    records = records_of(_CONTESTANT, given, place.cpus, threads, place.folder, log, _SILENCE_SECONDS)
    try:
        with contextlib.closing(records):
            for record in records:
                if record["kind"] in (POINT, FINAL):
                    append_row(place.results, Row(*key, attempt, machine=place.machine, **record))
                    print(f"{task.name}: {_told(record)}", file=sys.stderr, flush=True)
        if not is_finished(read_rows(place.results), task):
            raise ContestantFailed("it ended before its last evaluation")
    except ContestantFailed as failure:
        append_row(place.results, failed_row(key, attempt, place.machine, str(failure)))
        print(f"{task.name} failed: {failure}", file=sys.stderr, flush=True)


def _told(record: dict[str, float]) -> str:
    return f"{record['score']:.1f} at {record['wall']:.1f} s, {record['cpu']:.1f} CPU s, {record['steps']:,} steps"


def note_machine(place: Place) -> None:
    """machine.json: what each machine that worked in this folder is, by the name that rows have for it."""
    path = place.folder / "machine.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[place.machine] = describe()
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
