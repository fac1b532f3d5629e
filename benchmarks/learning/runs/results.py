"""results.csv: a row an evaluation. Rows are only ever added; a run counts once its last row is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.csv_records import append_record, read_records

POINT, FINAL, FAILED = "point", "final", "failed"
MEASURES = ("wall", "cpu", "steps")
Float64 = npt.NDArray[np.float64]
Key = tuple[str, str, int, str]


class Row(NamedTuple):
    """One evaluation, or a failure.

    budget: as text.
    attempt: counts runs of the same (env, algo, seed, budget) from 1.
    kind: point, final or failed.
    steps: environment steps of training.
    wall, cpu: seconds of training.
    score, std: of the returns of `episodes` noise-free episodes.
    machine: key of machine.json.
    note: settings on a final row, or what failed.
    """

    env: str
    algo: str
    seed: int
    budget: str
    attempt: int
    kind: str
    steps: int
    wall: float
    cpu: float
    score: float
    std: float
    episodes: int
    machine: str
    note: str

    @property
    def key(self) -> Key:
        return self.env, self.algo, self.seed, self.budget


class Run(NamedTuple):
    """A finished run, its evaluations in order: wall, cpu, steps, scores float64 (points,). final: the last row."""

    final: Row
    wall: Float64
    cpu: Float64
    steps: Float64
    scores: Float64

    def along(self, measure: str) -> Float64:
        return {"wall": self.wall, "cpu": self.cpu, "steps": self.steps}[measure]


def read_rows(path: Path) -> list[Row]:
    return read_records(path, Row)


def append_row(path: Path, row: Row) -> None:
    """As one line, its note, too: a torn one is then the last."""
    append_record(path, row._replace(note=" ".join(row.note.split())))


def finished_runs(*folders: Iterable[Row]) -> list[Run]:
    """The last finished attempt of each (env, algo, seed, budget); where several folders have one, the first folder's."""
    found: dict[Key, Run] = {}
    for rows in folders:
        attempts: dict[tuple[Key, int], list[Row]] = {}
        for row in rows:
            attempts.setdefault((row.key, row.attempt), []).append(row)
        finished = {key: evaluations for (key, _), evaluations in attempts.items() if evaluations[-1].kind == FINAL}
        for key, evaluations in finished.items():
            found.setdefault(key, _run(evaluations))
    return list(found.values())


def runs_of(algo: str, env: str, budget: object, folders: Iterable[Sequence[Row]]) -> list[Run]:
    """The finished runs of one contestant in one environment with one budget, a seed each."""
    wanted = (env, algo, str(budget))
    return [run for run in finished_runs(*folders) if (run.final.env, run.final.algo, run.final.budget) == wanted]


def machines_of(runs: Iterable[Run]) -> set[str]:
    """Their names; times of several do not compare."""
    return {run.final.machine for run in runs}


def _run(evaluations: Sequence[Row]) -> Run:
    columns = (np.array([getattr(row, name) for row in evaluations], dtype=np.float64) for name in (*MEASURES, "score"))
    return Run(evaluations[-1], *columns)


def failures(*folders: Iterable[Row]) -> list[Row]:
    """The last failure of each key that has no finished run in any folder."""
    rows = [list(folder) for folder in folders]
    done = {run.final.key for run in finished_runs(*rows)}
    return list({row.key: row for folder in rows for row in folder if row.kind == FAILED and row.key not in done}.values())


def next_attempt(rows: Iterable[Row], key: Key) -> int:
    return 1 + max((row.attempt for row in rows if row.key == key), default=0)


def failed_row(key: Key, attempt: int, machine: str, note: str) -> Row:
    env, algo, seed, budget = key
    return Row(env, algo, seed, budget, attempt, FAILED, 0, math.nan, math.nan, math.nan, math.nan, 0, machine, note)
