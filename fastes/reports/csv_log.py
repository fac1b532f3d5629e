"""progress.csv, with a line per generation, and final_selection.csv, with a line per finalist."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fastes.errors import warn_user
from fastes.reports.progress_rows import Clock
from fastes.system.atomic_files import append_whole, keep_aside, write_text
from fastes.system.interrupts import interrupts_deferred
from fastes.training.archive import FINAL_EPISODES, SCREENING_EPISODES
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record

_OF_A_SELECTION = (
    *("place", "generation", "timesteps", "evaluation", "segment_mean", f"mean_{SCREENING_EPISODES}"),
    *(f"{name}_{FINAL_EPISODES}" for name in ("mean", "std", "worst")),
)
_TRIAL = Record._fields.index("trial")
_QUICK, _WAIT = 0.05, 1.0  # seconds of a quick generation, and that its record may wait
_MAX_DIGITS = 10  # of a generation, which is a number of 32 bits


class CsvLog:
    """Appends records to a CSV file, one line each.

    A slow generation's is written at once, and with it all before. Those of quick ones wait for the first that ends a second
    after the last write. After an OSError no torn line stays in the file, and the next write includes the records that failed.

    Args:
        path: The file.
        check_folder: Raises OSError if nothing may be written there.
    """

    def __init__(self, path: Path, check_folder: Callable[[], None] = lambda: None) -> None:
        self.path, self._check_folder = path, check_folder
        self._owed: list[Record] = []
        self._last: dict[int, int] = {}  # trial -> its last generation
        self._elapsed: dict[int, float] = {}  # trial -> its seconds until then
        self._flushed_at = -math.inf
        self.cpu_seconds = 0.0  # CPU time of the training until its last generation; NaN if it is not known
        if not path.exists():
            self._append([])

    @property
    def seconds(self) -> float:
        """Wall time of the training until its last generation."""
        return max(self._elapsed.values(), default=0.0)

    def write(self, record: Record) -> None:
        """Take a record, unless it was taken before, and write it if it is time. OSError if that fails."""
        with interrupts_deferred():  # otherwise a row may be written twice, or never
            if record.generation > self._last.get(record.trial, -1):
                self._last[record.trial] = record.generation
                self._owed.append(record)
                passed = record.seconds if math.isfinite(record.seconds) else 0.0
                self._elapsed[record.trial] = self._elapsed.get(record.trial, 0.0) + passed
                self.cpu_seconds = record.cpu_seconds
            if not record.seconds < _QUICK or time.monotonic() - self._flushed_at >= _WAIT:
                self.flush()

    def flush(self) -> None:
        """Write the records that are not in the file yet."""
        with interrupts_deferred():
            if self._owed:
                self._append(self._owed)
                self._owed.clear()
            self._flushed_at = time.monotonic()

    def truncate(self, generations: Mapping[int, int]) -> None:
        """Drop the records after the last checkpoint.

        If other records are missing or damaged, a copy of the file is kept under another name.

        Args:
            generations: Trial that is left, from 1 -> its generations in the checkpoint.
        """
        kept, found = list[list[str]](), dict[int, list[int]]()
        for row in _whole_rows(self.path):
            trial, generation = int(row[_TRIAL]), int(row[0])
            if generation <= generations.get(trial, generation):
                kept.append(row)
                found.setdefault(trial, []).append(generation)
        if not any(generations.values()):  # a new training
            kept, found = [], {}
        expected = {**{trial: len(its) for trial, its in found.items()}, **generations}
        whole = all(found.get(trial, []) == list(range(1, count + 1)) for trial, count in expected.items())
        if not whole or self._has_more_columns():
            only_head = self.path.read_bytes() == self._head()
            aside = "" if only_head else f", the file as it was is {keep_aside(self.path)}"
            warn_user(
                f"{self.path} has {len(kept)} whole rows for {sum(expected.values())} generations of the checkpoint, or "
                f"columns that are not known: some are lost{aside}"
            )
        self._last = dict(generations)
        write_text(self.path, _csv_lines([Record._fields, *kept]))
        told = [(at, name) for at, name in enumerate(Record._fields) if name in Clock.COLUMNS]
        clock = Clock.of({name: np.array([float(row[at]) for row in kept]) for at, name in told})
        self._elapsed, self.cpu_seconds = {int(trial): until for trial, until in clock.until.items()}, clock.cpu_seconds

    def _has_more_columns(self) -> bool:
        return not set(_read(self.path)[0]) <= set(Record._fields)

    def _append(self, rows: Sequence[Record]) -> None:
        self._check_folder()
        append_whole(self.path, _csv_lines(rows).encode(), self._head())

    def _head(self) -> bytes:
        return _csv_lines([Record._fields]).encode()


def _csv_lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_final_selection(path: Path, result: FinalSelection) -> None:
    """Write final_selection.csv, a line per finalist, the winner first."""
    rows: list[Sequence[object]] = [_OF_A_SELECTION]
    for place, (of, screening, final) in enumerate(result.finalists, start=1):
        shown = (math.nan, math.nan, math.nan) if final is None else (final.mean, final.std, final.worst)
        kept_for = (of.evaluation, of.score) if of.evaluations else (math.nan, math.nan)
        rows.append((place, of.generation + 1, of.timesteps, *kept_for, screening.mean, *shown))
    write_text(path, _csv_lines(rows))


def _cells(text: str) -> list[list[str]]:
    """Split lines into cells. No cell has quotes, so the csv module is not needed."""
    return [line.split(",") for line in text.splitlines()]


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return a file's column names and its rows as cells."""
    if not path.is_file():  # a folder, or a pipe, on which reading would wait
        return [], []
    header, *lines = _cells(path.read_text(encoding="utf-8", errors="replace")) or [[]]
    return header, lines


def _whole_rows(path: Path) -> list[list[str]]:
    """Return the rows that have a number in each column, in the order of Record.

    A column that the file lacks is nan, so that a file of another version keeps its rows.
    """
    header, lines = _read(path)
    if "generation" not in header or len(set(header)) < len(header):
        return []
    rows = [dict(zip(header, row, strict=True)) for row in lines if len(row) == len(header) and _are_numbers(row)]
    rows = [{"trial": "1", **row} for row in rows]
    return [[row.get(name, "nan") for name in Record._fields] for row in rows if _are_counts(row["generation"], row["trial"])]


def _are_counts(*texts: str) -> bool:
    return all(len(text) <= _MAX_DIGITS and text.isdecimal() and int(text) > 0 for text in texts)


def _are_numbers(row: list[str]) -> bool:
    try:
        return all(isinstance(float(value), float) for value in row)
    except ValueError:
        return False
