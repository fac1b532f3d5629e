"""Reports to trackio, which keeps runs in a database on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fastes.reports.trackers.courier import Run
from fastes.reports.trackers.reporter import Reporter

PROJECT = "fastes"
_LOOKED_AT = ("matplotlib.figure", "matplotlib.animation")  # for classes, in each log, even if they are half imported


class Trackio(Reporter):
    """Logs to a run of trackio, of the project 'fastes'; `trackio show` shows it.

    The environment variables of trackio count, such as TRACKIO_DIR and TRACKIO_SPACE_ID.

    Args:
        init: Arguments for trackio.init, such as project or space_id.
    """

    name = package = "trackio"

    def __init__(self, **init: Any) -> None:
        super().__init__()
        self._init = init
        self._run: Any = None

    def start(self, run: Run) -> None:
        import trackio

        ours = {"project": PROJECT, "name": run.name, "resume": "allow", "config": dict(run.config), "embed": False}
        self._run = trackio.init(**{**ours, **self._init})

    def log(self, step: int, row: Mapping[str, float]) -> None:
        for name in _LOOKED_AT:
            if name in sys.modules:
                import_module(name)  # waits for another thread that is about to import it
        self._run.log(dict(row), step=step)

    def note(self, step: int, values: Mapping[str, float]) -> None:
        self.log(step, values)

    def end(self) -> None:
        self._run.finish()
