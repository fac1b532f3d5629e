"""A thread that hands a training's figures to a tracker, so that one that is slow, hangs or fails holds no training up."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fastes.reports.logged_names import row_of
from fastes.training.record import Record

AT_ONCE = 200  # records of a session that are handed over however fast they come
SECONDS = 0.5  # between the others, at least
_MOST_WAITING = 1000  # for a tracker that is slower than that
_OF_AN_EVALUATION = tuple(name for name in Record._fields if name.startswith("eval_") and name != "eval_timesteps")


class Run(NamedTuple):
    """A training as a tracker gets it.

    Attributes:
        name: Unique, with letters, digits and '-_.+' alone: the tracker's id of the run, too.
        config: Settings by name.
        folder: The run folder, if there is one.
        resumed_at: Timesteps from which the training continues; 0 for a new one.
    """

    name: str
    config: Mapping[str, Any]
    folder: Path | None
    resumed_at: int


class Tracker(Protocol):
    """The methods of a reporter; all calls come from one thread, in this order. An exception ends the reports of a training."""

    def start(self, run: Run) -> None:
        """Begin a run, or continue the one of that name."""

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Add numbers at a step, in timesteps. No step is smaller than the one before."""

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Set figures of the whole run, such as its best return."""

    def end(self) -> None:
        """End the run and keep all of it."""


class Courier:
    """Calls a tracker from a thread of its own. Records that come too fast are thinned: the newest ones count.

    Attributes:
        error: The exception that ended the reports; None for none.
    """

    def __init__(self, tracker: Tracker, run: Run) -> None:
        self.error: BaseException | None = None
        self._tracker, self._run = tracker, run
        self._lock, self._news, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._waiting: list[Record] = []
        self._held: Record | None = None  # came too soon after the one before
        self._at_once, self._handed_at = AT_ONCE, 0.0
        self._step, self._values = 0, dict[str, float]()
        self._thread = threading.Thread(target=self._work, name=f"fastes-report-{run.name}", daemon=True)
        self._thread.start()

    def send(self, record: Record) -> None:
        """Hand over a record. The evaluation of one that it replaces is kept."""
        now = time.monotonic()
        with self._lock:
            self._held = _with_evaluation_of(self._held, record)
            if not self._at_once and now - self._handed_at < SECONDS:
                return
            self._at_once, self._handed_at = max(self._at_once - 1, 0), now
            self._hand_over()
        self._news.set()

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over figures of the whole run."""
        with self._lock:
            self._step = step
            self._values.update(values)
        self._news.set()

    def end(self, seconds: float = 0.0) -> bool:
        """Let the tracker end its run, and wait for it. Returns whether it has ended in time."""
        with self._lock:
            self._hand_over()
        self._ended.set()
        self._news.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _hand_over(self) -> None:
        if self._held is not None:
            self._waiting.append(self._held)
            self._held = None
        if len(self._waiting) > _MOST_WAITING:
            *others, last = self._waiting
            pairs = zip(others[::2], others[1::2], strict=False)
            self._waiting = [*(_with_evaluation_of(*pair) for pair in pairs), last]

    def _work(self) -> None:
        try:
            self._tracker.start(self._run)
            while not self._ended.is_set():
                self._news.wait()
                self._deliver()
            self._deliver()
            self._tracker.end()
        except BaseException as error:  # also SystemExit of a package: it must be told
            self.error = error

    def _deliver(self) -> None:
        self._news.clear()
        while self._waiting:
            with self._lock:
                record = self._waiting.pop(0)
            self._tracker.log(record.timesteps, row_of(record))
        with self._lock:
            step, values, self._values = self._step, self._values, {}
        if values:
            self._tracker.note(step, values)


def _with_evaluation_of(before: Record | None, record: Record) -> Record:
    if before is None or record.eval_generation or not before.eval_generation:
        return record
    return record._replace(**{name: getattr(before, name) for name in _OF_AN_EVALUATION})
