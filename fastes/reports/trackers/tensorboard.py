"""Reports to TensorBoard's event files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fastes.reports.event_files import EventFile, HParam, check_tensorboard, load_tensorboard
from fastes.reports.trackers.courier import Run
from fastes.reports.trackers.reporter import Reporter


class TensorBoard(Reporter):
    """Writes an event file into the run folder, or into folder/<name of the run>. TensorBoard or tensorboardX is enough.

    Args:
        folder: Parent of the runs' folders; None for the run folder, or 'tensorboard' without one.
    """

    name = "tensorboard"
    _file: EventFile

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        load_tensorboard()
        self._parent = None if folder is None else Path(folder).absolute()

    @classmethod
    def check_installed(cls) -> None:
        check_tensorboard()

    def start(self, run: Run) -> None:
        parent = self._parent or Path("tensorboard").absolute()
        folder = run.folder if run.folder and not self._parent else parent / run.name
        self._file = EventFile(str(folder))
        if run.resumed_at:
            self._file.restart(run.resumed_at + 1)
        plain = {key: value if isinstance(value, (bool, int, float)) else str(value) for key, value in run.config.items()}
        self._file.write({"settings": HParam(plain, {"result/best_return": 0.0})}, run.resumed_at)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self._file.write(row, step)

    def note(self, step: int, values: Mapping[str, float]) -> None:
        self.log(step, values)

    def end(self) -> None:
        self._file.close()
