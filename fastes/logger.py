"""The figures of one generation, and how they are written."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fastes.descriptors import fill_standard_descriptors
from fastes.interrupts import interrupts_wait
from fastes.whole_files import keep_aside, replace_file

_MAX_GENERATION = 2**32


class Record(NamedTuple):
    """Figures of one generation, in the order of progress.csv. Returns are plain sums of rewards.

    eval_return: mean of the noise-free episodes of theta as it was before the update. eval_rank: theta's place among the
    candidates, 1 is above all. elite_share: share of candidates above the candidates' mean. update_ratio: |step|/|theta|.
    episode_length: mean steps of a training episode. timesteps: steps of candidates so far; evaluation is counted in
    eval_timesteps. utilisation: share of the generation's wall time that workers spent in episodes.
    """

    generation: int
    timesteps: int
    return_mean: float
    return_max: float
    return_std: float
    eval_return: float
    eval_std: float
    eval_rank: int
    elite_share: float
    theta_norm: float
    gradient_norm: float
    update_ratio: float
    learning_rate: float
    sigma: float
    episode_length: float
    episode_cap: int
    num_nonfinite: int
    episodes: int
    eval_timesteps: int
    jobs_rerun: int
    seconds: float
    steps_per_second: float
    utilisation: float


_COLUMNS = (
    ("gen", "generation", "{:d}"),
    ("steps", "timesteps", "{:d}"),
    ("ret mean", "return_mean", "{:.1f}"),
    ("ret max", "return_max", "{:.1f}"),
    ("eval", "eval_return", "{:.1f}"),
    ("rank", "eval_rank", "{:d}"),
    ("elite", "elite_share", "{:.0%}"),
    ("|theta|", "theta_norm", "{:.3g}"),
    ("|grad|", "gradient_norm", "{:.3g}"),
    ("upd ratio", "update_ratio", "{:.2g}"),
    ("ep len", "episode_length", "{:.0f}"),
    ("steps/s", "steps_per_second", "{:.0f}"),
    ("util", "utilisation", "{:.0%}"),
)
_WIDTHS = (5, 9, 9, 9, 9, 5, 6, 8, 8, 9, 7, 8, 5)


def console_header() -> str:
    return " ".join(f"{title:>{width}}" for (title, _, _), width in zip(_COLUMNS, _WIDTHS, strict=True))


def console_line(record: Record) -> str:
    values = (form.format(getattr(record, name)) for _, name, form in _COLUMNS)
    return " ".join(f"{value:>{width}}" for value, width in zip(values, _WIDTHS, strict=True))


def write_text(path: Path, text: str) -> None:
    """Replace a file's text: a crash leaves the old one or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file's content: a crash leaves the old one or the new one."""
    replace_file(path, lambda file: file.write(content))


def append_whole(path: Path, content: bytes, start: bytes = b"") -> None:
    """Append to a file. start: what comes before, in a new one. Raises OSError when it cannot; nothing of it stays then."""
    fill_standard_descriptors()
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        left = content if size else start + content
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(size)
            raise


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
    """The rows that have a number for each figure. Nothing in the file needs quotes, so the csv module is not asked."""
    if not path.is_file():  # a folder, or a pipe that would be waited for
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [row for line in lines[1:] if _is_whole(row := line.split(","))]


def _is_whole(row: list[str]) -> bool:
    try:
        numbers = [float(value) for value in row]
        return len(numbers) == len(Record._fields) and 0 < int(row[0]) <= _MAX_GENERATION
    except ValueError:
        return False
