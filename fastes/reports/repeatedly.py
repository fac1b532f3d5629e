"""A function that is called again and again while the training waits for episodes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Repeatedly:
    """Calls a function every so many seconds, in a thread of its own, until `end`. A forked copy has no such thread."""

    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        self.seconds, self.function = seconds, function
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastes-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self.seconds):
            with contextlib.suppress(Exception):  # a stream that is closed, say: showing progress must end no training
                self.function()

    def end(self) -> None:
        """The function is not called any more once this returns."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
