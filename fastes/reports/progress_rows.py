"""The rows of a progress.csv as numbers, also while it grows. Rows that are damaged, torn or not yet whole are left out."""

from __future__ import annotations

import io
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.training.record import Record

Numbers = npt.NDArray[np.float64]
Columns = dict[str, Numbers]  # column name -> its values, float64 (rows,); NaN for a column that the file lacks

_NEEDED = ("generation", "trial")  # by which a row is known
_PIECE = 2**22  # bytes at a time
_TAIL = 512  # bytes before the unread ones, by which a file that was written anew is recognised
_HEAD_BYTES = 4096  # more than the column names take


# --- from text to numbers -----------------------------------------------------------------------------------------------


class _Table:
    """Reads some columns of rows below a line of column names.

    Args:
        header: That line.
        names: The columns.
    """

    def __init__(self, header: bytes, names: Sequence[str]) -> None:
        found = header.decode(errors="replace").strip().split(",")
        self._names, self._width = tuple(dict.fromkeys((*_NEEDED, *names))), len(found)
        is_progress = "generation" in found and len(set(found)) == len(found)
        self._at = [found.index(name) for name in self._names if name in found] if is_progress else []
        self._has = [name in found for name in self._names]

    def read(self, lines: bytes) -> Columns:
        """Return the columns of lines that have their ends."""
        known = self._numbers(lines)
        table = np.full((len(known), len(self._names)), np.nan)
        if self._at:
            table[:, self._has] = known
        columns = dict(zip(self._names, table.T, strict=True))
        columns["trial"] = np.nan_to_num(columns["trial"], nan=1.0)
        numbered = np.logical_and.reduce([(columns[name] >= 1.0) & (columns[name] < 2**32) for name in _NEEDED])
        return {name: values[numbered] for name, values in columns.items()}

    def _numbers(self, lines: bytes) -> Numbers:
        """Return the numbers of the whole rows in the columns that there are."""
        if not self._at or not lines:
            return np.zeros((0, len(self._at)))
        try:
            if lines.count(b",") != (self._width - 1) * lines.count(b"\n") or b"#" in lines:
                raise ValueError
            return np.loadtxt(io.BytesIO(lines), delimiter=",", usecols=self._at, ndmin=2)
        except ValueError:  # a damaged row is among them
            rows = [row for line in lines.split(b"\n") if (row := self._row(line))]
            return np.array(rows).reshape(-1, len(self._at))

    def _row(self, line: bytes) -> list[float]:
        cells = line.split(b",")
        if len(cells) != self._width:
            return []
        try:
            return [float(cells[at]) for at in self._at]
        except ValueError:
            return []


# --- from a file --------------------------------------------------------------------------------------------------------


class ProgressRows:
    """Follows a progress.csv. A file that was replaced, as on resuming, is read from its start.

    Args:
        path: The file.
        names: The columns to read; `generation` and `trial` are read in any case.

    Attributes:
        reading: Differs if the file was read from its start again, also by another process.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._names = path, names
        self._begin()

    def _begin(self) -> None:
        self._table: _Table | None = None
        self._offset, self._tail, self.reading = 0, b"", secrets.token_hex(8)

    def added(self) -> Iterator[Columns]:
        """Yield the rows that were added since the last call, in pieces; OSError if the file cannot be read."""
        if not self._path.is_file():  # a folder, or a pipe, on which reading would wait
            raise FileNotFoundError(f"{self._path} is not a file")
        with open(self._path, "rb") as file:
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:  # a training that was resumed, or another one
                self._begin()
                file.seek(0)
            while lines := self._whole_lines(file):
                if self._table is None:
                    header, _, lines = lines.partition(b"\n")
                    self._table = _Table(header, self._names)
                yield self._table.read(lines)

    def _whole_lines(self, file: BinaryIO) -> bytes:
        """Read whole lines; none at the end of the file."""
        piece = file.read(_PIECE)
        whole = piece.rfind(b"\n") + 1  # 0 for a line that is being written, or one that never ends
        file.seek(whole - len(piece), os.SEEK_CUR)
        self._offset += whole
        self._tail = (self._tail + piece[:whole][-_TAIL:])[-_TAIL:]
        return piece[:whole]


def read_progress(path: Path, names: Sequence[str] = Record._fields) -> Columns:
    """Return columns of a progress.csv. A file that is missing, or no regular file, has no rows."""
    pieces = list(ProgressRows(path, names).added()) if path.is_file() else []
    return {name: np.concatenate([np.zeros(0), *(piece[name] for piece in pieces)]) for name in names}


class LastRows(NamedTuple):
    """The end of a progress.csv.

    Attributes:
        columns: Column name -> its values in these rows, the oldest first.
        are_all: Whether the file has no other rows.
    """

    columns: Columns
    are_all: bool


def read_last_rows(path: Path, names: Sequence[str], most_bytes: int) -> LastRows:
    """Return the last rows of a progress.csv without reading the others. A row that is being written is left out.

    Args:
        path: The file. One that is missing or no regular file has no rows.
        names: The columns to read.
        most_bytes: Bytes of rows to read.

    Raises:
        OSError: If the file cannot be read.
    """
    if not path.is_file():
        return LastRows(_Table(b"", names).read(b""), True)
    with open(path, "rb") as file:
        header = file.readline(_HEAD_BYTES)
        if not header.endswith(b"\n"):
            return LastRows(_Table(b"", names).read(b""), True)
        begin = max(len(header), file.seek(0, 2) - most_bytes)
        file.seek(begin - 1)  # the byte before tells whether a row begins there
        lines = file.read(most_bytes + 1)
    lines = lines[lines.find(b"\n") + 1 : lines.rfind(b"\n") + 1]
    return LastRows(_Table(header, names).read(lines), begin == len(header))


# --- what the rows tell -------------------------------------------------------------------------------------------------


def evaluated_at(rows: Mapping[str, Numbers]) -> Numbers:
    """Return the timesteps that the parameters of each row's evaluation had been trained with; NaN without an evaluation."""
    at = np.where(rows["eval_generation"] > 0, np.nan_to_num(rows["eval_at"]), np.nan_to_num(rows["timesteps"]))
    return np.where(np.isfinite(rows["eval_return"]), at, np.nan)


class Clock:
    """How long a training took for how many timesteps. Its rows are (timesteps, seconds, CPU seconds), which never fall.

    A row tells where its generation ended. An evaluation is reported generations later: it stands where its parameters were, at
    the timesteps of `evaluated_at` and at the time of the row that ended there, or between two rows.

    Args:
        most: Number of rows to keep, the newest ones; None for all.

    Attributes:
        until: Trial -> seconds of its rows so far.
        rows: float64 (rows, 3), from the beginning, which is (0, 0, 0). CPU seconds are NaN if the file does not tell them.
    """

    COLUMNS = ("timesteps", "seconds", "cpu_seconds", "trial")  # that it reads

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.until = dict[float, float]()
        self.rows = np.zeros((1, 3))

    @classmethod
    def of(cls, rows: Mapping[str, Numbers]) -> Clock:
        """Return the clock of all rows of a file."""
        clock = cls()
        clock.add(rows)
        return clock

    def add(self, rows: Mapping[str, Numbers]) -> Numbers:
        """Add rows of a progress.csv, and return what they are on the clock, float64 (rows, 3)."""
        seconds = np.zeros(len(rows["seconds"]))
        for trial in np.unique(rows["trial"]).tolist():  # trials train at the same time
            own = rows["trial"] == trial
            with np.errstate(over="ignore"):
                seconds[own] = self.until.get(trial, 0.0) + np.cumsum(np.nan_to_num(rows["seconds"][own]))
            self.until[trial] = float(seconds[own][-1])
        new = np.column_stack([np.nan_to_num(rows["timesteps"]), seconds, rows["cpu_seconds"]])
        new = np.maximum.accumulate(np.concatenate([self.rows[-1:], new]))[1:]
        self.rows = np.concatenate([self.rows, new])
        if self._most is not None:
            self.rows = self.rows[-self._most :]
        return new

    def at(self, timesteps: Numbers) -> Numbers:
        """Return the rows at some timesteps, float64 (n, 3), also between those that there are."""
        known = self.rows.T
        return np.column_stack([timesteps, *(np.interp(timesteps, known[0], values) for values in known[1:])])

    @property
    def seconds(self) -> float:
        """Wall time of the training so far."""
        return max(self.until.values(), default=0.0)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the training so far; NaN if it is not known."""
        return float(self.rows[-1, 2])

    @property
    def knows_cpu(self) -> bool:
        """Whether the file tells the CPU time."""
        return math.isfinite(self.cpu_seconds)
