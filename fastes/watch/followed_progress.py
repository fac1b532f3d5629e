"""A progress.csv that is read while it grows: each time the rows that are new."""

from __future__ import annotations

import io
import math
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastes.watch.thinned import Cursor, Numbers, Thinned

EVALUATION = ("eval_return",)
GENERATION = ("return_mean", "steps_per_second", "utilisation")
_READ = ("generation", "timesteps", "seconds", "eval_generation", "eval_at", "trial", *EVALUATION, *GENERATION)
_AT = {name: number for number, name in enumerate(_READ)}
_POSITIONS = 2  # timesteps, seconds
_PIECE = 2**22  # bytes at a time
_MOST_TRIALS = 64  # that a page shows
_TAIL = 512  # bytes before the unread ones, by which a file that was written anew is recognised


class TrialCurve:
    """The rows of one trial, in bounded memory.

    Attributes:
        evaluations: (timesteps, seconds) and EVALUATION of each row with an evaluation; timesteps are those that the evaluated
            parameters had been trained with.
        generations: (timesteps, seconds) and GENERATION of each row.
        seconds: Sum of the rows' seconds so far.
    """

    def __init__(self) -> None:
        self.evaluations, self.generations = Thinned(_POSITIONS, len(EVALUATION)), Thinned(_POSITIONS, len(GENERATION))
        self.seconds = 0.0

    def add(self, rows: Numbers) -> None:
        """Add rows of the columns _READ, float64 (rows, columns)."""
        seconds = self.seconds + np.cumsum(np.nan_to_num(rows[:, _AT["seconds"]]))
        self.seconds = float(seconds[-1])
        steps = np.nan_to_num(rows[:, _AT["timesteps"]])
        values = rows[:, _AT[GENERATION[0]] : _AT[GENERATION[-1]] + 1]
        self.generations.add(np.column_stack([steps, seconds, values]))
        returns = rows[:, _AT["eval_return"]]
        told = np.isfinite(returns)
        at = np.where(rows[:, _AT["eval_generation"]] > 0, np.nan_to_num(rows[:, _AT["eval_at"]]), steps)
        if told.any():
            self.evaluations.add(np.column_stack([at, seconds, returns])[told])


class FollowedProgress:
    """Follows a progress.csv. `update` reads what is new; a file that was replaced, as on resuming, is read from its start.

    Attributes:
        trials: Number of each trial, from 1 -> its curve.
        reading: Differs if the file was read from its start again, also by another server.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self.trials: dict[int, TrialCurve] = {}
        self._columns: list[int] | None = None  # of _READ in the file, -1 for those that it lacks
        self._width, self._offset, self._tail, self.reading = 0, 0, b"", secrets.token_hex(8)

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
        if not self._path.is_file():  # a folder, or a pipe, on which reading would wait
            raise FileNotFoundError(f"{self._path} is no file")
        with open(self._path, "rb") as file:
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:  # a training that was resumed, or another one
                self._begin()
                file.seek(0)
            while self._read_piece(file):
                if time.monotonic() > until:
                    return False
        return True

    def _read_piece(self, file: BinaryIO) -> bool:
        """Read whole lines; False at the end of the file."""
        piece = file.read(_PIECE)
        whole = piece.rfind(b"\n") + 1
        if not whole:  # a line that is being written, or one that never ends
            return False
        file.seek(whole - len(piece), os.SEEK_CUR)
        lines = piece[:whole]
        self._offset += whole
        self._tail = (self._tail + lines[-_TAIL:])[-_TAIL:]
        self._take(lines)
        return True

    def _take(self, lines: bytes) -> None:
        """Add whole lines; the file's first one has the names of its columns."""
        if self._columns is None:
            header, _, lines = lines.partition(b"\n")
            names = header.decode(errors="replace").strip().split(",")
            self._width, self._columns = len(names), [names.index(name) if name in names else -1 for name in _READ]
        table = _table(lines, self._width, self._columns)
        table = table[(table[:, 0] > 0) & np.isfinite(table[:, 0])]
        trials = np.nan_to_num(table[:, _AT["trial"]], nan=1.0)
        for trial in np.unique(trials):
            number = int(trial)
            if number in self.trials or len(self.trials) < _MOST_TRIALS:
                self.trials.setdefault(number, TrialCurve()).add(table[trials == trial])

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
        raise ValueError(f"{str(found)[:100]} is no cursor")
    for parts in trials.values():
        pairs = parts if isinstance(parts, list) and len(parts) == 2 else [None]
        if not all(isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair) for pair in pairs):
            raise ValueError(f"{str(parts)[:100]} is no part of a cursor")
    return found


def _part(table: Thinned, cursor: Cursor) -> dict[str, Any]:
    first, rows = table.since(cursor)
    return {"first": first, "width": table.width, "rows": rows}


def _table(lines: bytes, width: int, columns: list[int]) -> Numbers:
    """The numbers of whole rows in these columns, float64 (rows, columns); NaN for a column of -1."""
    found = [column for column in columns if column >= 0]
    table = np.full((0, len(found)), np.nan)
    if found and lines:
        try:
            if lines.count(b",") != (width - 1) * lines.count(b"\n") or b"#" in lines:
                raise ValueError
            table = np.loadtxt(io.BytesIO(lines), delimiter=",", usecols=found, ndmin=2)
        except ValueError:  # a damaged row is among them
            rows = [row for line in lines.split(b"\n") if (row := _numbers(line, width, found))]
            table = np.array(rows).reshape(-1, len(found))
    full = np.full((len(table), len(columns)), np.nan)
    full[:, [number for number, column in enumerate(columns) if column >= 0]] = table
    return full


def _numbers(line: bytes, width: int, columns: list[int]) -> list[float]:
    """The numbers of a row in these columns; [] for a row that is not whole."""
    cells = line.split(b",")
    if len(cells) != width:
        return []
    try:
        return [float(cells[column]) for column in columns]
    except ValueError:
        return []
