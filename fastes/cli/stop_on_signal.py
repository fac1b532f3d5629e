"""Signals that end a training: after the running generation, or at once."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.system.console import say
from fastes.system.interrupts import Terminated
from fastes.training.record import Record

INTERRUPTED = 130


class StopOnSignal(Callback):
    """Ends training after the running generation at the first Ctrl-C, and at once at the second one, or after training.

    SIGTERM and SIGHUP raise Terminated at once: their sender does not wait for long.
    """

    def __init__(self) -> None:
        self.requested, self.terminated = False, 0  # the number of the signal that came
        self._trains, self._may_select = True, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignal:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                self._before[number] = signal.signal(number, self._terminate)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.terminated else handler)  # a second one must not change the status

    def training_has_ended(self) -> None:
        """Let the next Ctrl-C take effect at once."""
        self._trains = False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.terminated:
            return
        if self.requested or not self._trains:
            raise KeyboardInterrupt
        self.requested = True
        after = ", or after the final selection" if self._may_select else ""
        say(f"\nCtrl-C: ending after this generation{after}; again to stop at once", file=sys.stderr)

    def _terminate(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self.terminated:  # otherwise the checkpoint is being written
            self.terminated = number
            raise Terminated(number)

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        self._may_select = self._may_select or model.settings.archive_size > 0 or model.selection.is_open

    def on_generation(self, model: Model, record: Record) -> bool:  # noqa: ARG002
        if self.terminated:  # a callback has caught the exception
            raise Terminated(self.terminated)
        return not self.requested
