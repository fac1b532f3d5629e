"""The learning curve of a training while it runs, below its progress bar in a notebook."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.system.console import in_notebook
from fastes.training.record import Record

SECONDS = 1.0  # between two pictures, at least
_LEAST_REST = 10.0  # times that a picture took: drawing gets a tenth of the time at most


def live_curve(draw: Callable[[], Any]) -> LiveCurve | None:
    """Return the callback that shows the curve; None outside of a notebook and without Matplotlib."""
    return LiveCurve(draw) if in_notebook() and importlib.util.find_spec("matplotlib") is not None else None


class LiveCurve(Callback):
    """Shows a picture after evaluations, about once per second, and after the end, always in the same place.

    Args:
        draw: Returns the picture, an object that IPython can show.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw, self._due_at = draw, 0.0
        self._output: Any = None

    def on_generation(self, model: Model, record: Record) -> None:  # noqa: ARG002
        if record.eval_generation and time.monotonic() >= self._due_at:
            self._show()

    def on_end(self, model: Model) -> None:  # noqa: ARG002
        self._show()

    def _show(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(Exception):  # no training must end because of a picture
            self._display(self._draw())
        now = time.monotonic()
        self._due_at = now + max(SECONDS, _LEAST_REST * (now - began))

    def _display(self, picture: Any) -> None:
        if self._output is None:
            from IPython.display import display

            self._output = display(picture, display_id=True)
        else:
            self._output.update(picture)
