"""progress.csv: a line a generation, written through at once, and read again."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path

from fastes.system.atomic_files import append_whole, keep_aside, write_text
from fastes.system.interrupts import interrupts_wait
from fastes.training.record import Record

_MAX_GENERATION = 2**32


class CsvLog:
    """Appends records to a CSV file, a line each, written through at once.

    Raises OSError when it cannot; no torn line stays then, and the next write brings what is owed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owed: list[Record] = []
        self._last = -1  # generation that was given last
        if not path.exists():
            self._append([])

    def write(self, record: Record) -> None:
        """Write a record; one that was given before is not written twice."""
        with interrupts_wait():  # else a row may be written twice, or never
            if record.generation > self._last:
                self._last = record.generation
                self._owed.append(record)
            self.flush()

    def flush(self) -> None:
        """Write what is owed."""
        with interrupts_wait():
            if self._owed:
                self._append(self._owed)
                self._owed.clear()

    def truncate(self, generation: int) -> None:
        """Drop the records after a generation: those of a run that went on past its last checkpoint.

        A file in which others are missing, or are no figures, is kept under another name.
        """
        kept = [row for row in _whole_rows(self.path) if int(row[0]) <= generation]
        if [int(row[0]) for row in kept] != list(range(1, generation + 1)):
            only_head = self.path.read_bytes() == self._head()
            kept_aside = "" if only_head else f", the file as it was is {keep_aside(self.path)}"
            warnings.warn(
                f"{self.path} has {len(kept)} whole rows for {generation} generations of the checkpoint: some are lost"
                f"{kept_aside}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._last = generation
        write_text(self.path, _csv_lines([Record._fields, *kept]))

    def _append(self, rows: Sequence[Record]) -> None:
        append_whole(self.path, _csv_lines(rows).encode(), self._head())

    def _head(self) -> bytes:
        return _csv_lines([Record._fields]).encode()


def _csv_lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_progress(path: Path) -> dict[str, list[float]]:
    """progress.csv as columns, without what is no whole row."""
    rows = _whole_rows(path)
    return {name: [float(row[number]) for row in rows] for number, name in enumerate(Record._fields)}


def _whole_rows(path: Path) -> list[list[str]]:
    """The rows that have a number for each column, in the order of Record; a figure that the file does not have is nan.

    So a file of another version keeps its rows. Nothing in the file needs quotes, so the csv module is not asked.
    """
    if not path.is_file():  # a folder, or a pipe that would be waited for
        return []
    header, *lines = [line.split(",") for line in path.read_text(encoding="utf-8", errors="replace").splitlines()] or [[]]
    if "generation" not in header or len(set(header)) < len(header):
        return []
    rows = [dict(zip(header, row, strict=True)) for row in lines if len(row) == len(header) and _are_numbers(row)]
    whole = [row for row in rows if row["generation"].isdecimal() and 0 < int(row["generation"]) <= _MAX_GENERATION]
    return [[row.get(name, "nan") for name in Record._fields] for row in whole]


def _are_numbers(row: list[str]) -> bool:
    try:
        return all(isinstance(float(value), float) for value in row)
    except ValueError:
        return False
