"""Runs contestants one at a time on the same cores; what is finished in the folder is skipped."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import ChildFailed, records_of
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import FINAL, POINT, Row, append_row, failed_row, finished_runs, next_attempt, read_rows
from benchmarks.machine import cpu_model, describe
from benchmarks.peers.calibration import fastest_way
from benchmarks.peers.zoo import PEERS, algorithm_of

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


def is_finished(rows: Iterable[Row], task: Task) -> bool:
    return any(run.final.key == task.key for run in finished_runs(rows))


def run_all(tasks: Iterable[Task], place: Place, done: Callable[[Iterable[Row], Task], bool] = is_finished) -> None:
    """Run what is not done, in order. A failure is a row, and the next task follows."""
    (place.folder / "logs").mkdir(parents=True, exist_ok=True)
    note_machine(place)
    for task in tasks:
        if not done(read_rows(place.results), task):
            run_one(task, place)


def run_one(task: Task, place: Place) -> None:
    """Run a task from scratch and append its rows as they come."""
    attempt = next_attempt(read_rows(place.results), task.key)
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
                    append_row(place.results, Row(*task.key, attempt, machine=place.machine, **record))
                    print(f"{task.name}: {_told(record)}", file=sys.stderr, flush=True)
        if not is_finished(read_rows(place.results), task):
            raise ChildFailed("it ended before its last evaluation")
    except ChildFailed as failure:
        append_row(place.results, failed_row(task.key, attempt, place.machine, str(failure)))
        print(f"{task.name} failed: {failure}", file=sys.stderr, flush=True)


def _told(record: dict[str, float]) -> str:
    return f"{record['score']:.1f} at {record['wall']:.1f} s, {record['cpu']:.1f} CPU s, {record['steps']:,} steps"


def note_machine(place: Place) -> None:
    """machine.json: what each machine that worked in this folder is, by the name that rows have for it."""
    path = place.folder / "machine.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[place.machine] = describe()
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
