"""A progress.csv that is read while it grows: each time the rows that are new."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastes.reports.progress_rows import Clock, Columns, ProgressRows, evaluated_at
from fastes.runs.run_config import LastEvaluation
from fastes.watch.thinned import Cursor, Thinned

EVALUATION = ("eval_return",)
GENERATION = ("return_mean", "steps_per_second", "utilisation")
_READ = (*Clock.COLUMNS, "eval_generation", "eval_at", *EVALUATION, *GENERATION)
_POSITIONS = 3  # of the clock
_MOST_TRIALS = 64  # that a page shows
_REMEMBERED = 2**14  # rows; an evaluation is told a few rows after its parameters


class TrialCurve:
    """The rows of one trial, in bounded memory.

    Attributes:
        evaluations: The clock's row and EVALUATION for each evaluation.
        generations: The clock's row and GENERATION for each generation.
    """

    def __init__(self) -> None:
        self.evaluations, self.generations = Thinned(_POSITIONS, len(EVALUATION)), Thinned(_POSITIONS, len(GENERATION))


class FollowedProgress:
    """Follows a progress.csv. `update` reads what is new; a file that was replaced, as on resuming, is read from its start.

    Attributes:
        trials: Number of each trial, from 1 -> its curve.
    """

    def __init__(self, path: Path) -> None:
        self._rows = ProgressRows(path, _READ)
        self._begin()

    def _begin(self) -> None:
        self.trials: dict[int, TrialCurve] = {}
        self._clock, self._reading = Clock(_REMEMBERED), self._rows.reading

    @property
    def reading(self) -> str:
        """Differs if the file was read from its start again, also by another server."""
        return self._rows.reading

    def update(self, most_seconds: float = math.inf) -> bool:
        """Read the rows that were added.

        Args:
            most_seconds: After about so long it stops, and the next update continues.

        Returns:
            Whether all were read.

        Raises:
            OSError: If the file cannot be read.
        """
        until = time.monotonic() + most_seconds
        for rows in self._rows.added():
            self._notice_another_file()
            self._add(rows)
            if time.monotonic() > until:
                return False
        self._notice_another_file()
        return True

    def _notice_another_file(self) -> None:
        if self._reading != self.reading:
            self._begin()

    def _add(self, rows: Columns) -> None:
        at = evaluated_at(rows)
        generations = self._clock.add(rows)
        evaluations = np.column_stack([self._clock.at(at), *(rows[name] for name in EVALUATION)])
        generations = np.column_stack([generations, *(rows[name] for name in GENERATION)])
        for trial in np.unique(rows["trial"]):
            number, own = int(trial), rows["trial"] == trial
            if number in self.trials or len(self.trials) < _MOST_TRIALS:
                curve = self.trials.setdefault(number, TrialCurve())
                curve.generations.add(generations[own])
                curve.evaluations.add(evaluations[own & np.isfinite(at)])

    def place_of(self, last: LastEvaluation | None) -> dict[str, Any] | None:
        """Return an evaluation that no row has, as JSON values: its trial, and its row among `evaluations`."""
        if last is None or last.trial not in self.trials:
            return None
        place = self._clock.at(np.array([last.at], np.float64))[0].tolist()
        return {"trial": last.trial, "row": [*(value if math.isfinite(value) else None for value in place), last.mean]}

    def since(self, cursor: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rows that a reader lacks, as JSON values, with the cursor of a reader that has them."""
        known = cursor.get("trials", {}) if cursor.get("reading") == self.reading else {}
        trials = {}
        for number, curve in self.trials.items():
            before = known.get(str(number), ((0, 0), (0, 0)))
            parts = zip(("evaluations", "generations"), (curve.evaluations, curve.generations), before, strict=True)
            trials[str(number)] = {name: _part(table, Cursor(*own)) for name, table, own in parts}
        now = {str(number): (curve.evaluations.cursor, curve.generations.cursor) for number, curve in self.trials.items()}
        return {"trials": trials, "cursor": {"reading": self.reading, "trials": now}}


def checked_cursor(found: object) -> dict[str, Any]:
    """Return JSON values as a cursor for `since`; ValueError for anything else."""
    trials = found.get("trials", {}) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(trials, dict):
        raise ValueError(f"{str(found)[:100]} is not a cursor")
    for parts in trials.values():
        pairs = parts if isinstance(parts, list) and len(parts) == 2 else [None]
        if not all(isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair) for pair in pairs):
            raise ValueError(f"{str(parts)[:100]} is not part of a cursor")
    return found


def _part(table: Thinned, cursor: Cursor) -> dict[str, Any]:
    first, rows = table.since(cursor)
    return {"first": first, "width": table.width, "rows": rows}
