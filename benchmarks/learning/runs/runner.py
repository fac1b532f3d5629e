"""Runs contestants one at a time on the same cores; what is finished in the folder is skipped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import Child
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import FINAL, POINT, Row, append_row, failed_row, finished_runs, next_attempt, read_rows
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import cpu_model, describe
from benchmarks.peers.calibration import fastest_way
from benchmarks.peers.zoo import PEERS

_CONTESTANT = "benchmarks.learning.runs.contestant"
_SILENCE_SECONDS = 1800.0  # a cycle may be long: 512 episodes of Humanoid


class Place(NamedTuple):
    """The folder of the results, and the CPUs of every contestant."""

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
    run_jobs((Contestant(task, place) for task in tasks if not done(read_rows(place.results), task)), [place.cpus])


class Contestant:
    """A task from scratch; its rows are appended as they come."""

    def __init__(self, task: Task, place: Place) -> None:
        self.task, self.place = task, place
        self.attempt = next_attempt(read_rows(place.results), task.key)

    def start(self, cpus: Sequence[int]) -> Child:
        task, folder = self.task, self.place.folder
        given: dict[str, Any] = {"task": task._asdict(), "cores": len(cpus), "way": None}
        threads = 1
        if task.algo in PEERS:
            given["way"] = way = fastest_way(task.algo, task.env, cpus, self.place.calibration_seconds, folder)
            threads = way.threads
        log = folder / "logs" / f"{task.name.replace(',', '').replace('/', '-').replace(' ', '-')}.log"
        return Child(_CONTESTANT, given, cpus, threads, folder, log, _SILENCE_SECONDS)

    def note(self, record: dict[str, Any]) -> None:
        if record["kind"] in (POINT, FINAL):
            append_row(self.place.results, Row(*self.task.key, self.attempt, machine=self.place.machine, **record))
            print(f"{self.task.name}: {_told(record)}", file=sys.stderr, flush=True)

    def end(self, failure: str | None) -> None:
        mine = (row for row in read_rows(self.place.results) if (row.key, row.attempt) == (self.task.key, self.attempt))
        finished = any(row.kind == FINAL for row in mine)
        if failure is not None and finished:
            print(f"{self.task.name} failed after its last evaluation, which counts: {failure}", file=sys.stderr, flush=True)
        elif not finished:
            failure = failure or "it ended before its last evaluation"
            append_row(self.place.results, failed_row(self.task.key, self.attempt, self.place.machine, failure))
            print(f"{self.task.name} failed: {failure}", file=sys.stderr, flush=True)


def _told(record: dict[str, float]) -> str:
    return f"{record['score']:.1f} at {record['wall']:.1f} s, {record['cpu']:.1f} CPU s, {record['steps']:,} steps"


def note_machine(place: Place) -> None:
    """machine.json: what each machine that worked in this folder is, by the name that rows have for it."""
    path = place.folder / "machine.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[place.machine] = describe()
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
