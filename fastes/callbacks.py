"""What runs beside the loop: a protocol of five calls, and the callbacks that the command line uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from fastes.console import lasting
from fastes.forks import tell_of_forks
from fastes.logger import Record, console_header, console_line
from fastes.model import Model


class Callback:
    """Subclass and override what you need. model is the FastES that trains.

    on_generation may return False to stop training at once. on_new_best is called while the model still holds the
    parameters whose evaluation was the best so far, before they move on. on_start_judged is called for each of several
    `starts`, numbered from 1, when the model holds what goes on: the next start, or the best one.
    """

    def on_start(self, model: Any, total_timesteps: int) -> None: ...

    def on_new_best(self, model: Any, eval_return: float) -> None: ...

    def on_start_judged(self, model: Any, start: int, eval_return: float) -> None: ...

    def on_generation(self, model: Any, record: Record) -> bool | None: ...

    def on_end(self, model: Any) -> None: ...


class FunctionCallback(Callback):
    """A plain function of (model, record), called once a generation; a false result other than None stops training."""

    def __init__(self, function: Callable[[Any, Record], bool | None]) -> None:
        self.function = function

    def on_generation(self, model: Any, record: Record) -> bool | None:
        return self.function(model, record)


class CallbackList(Callback):
    """Several callbacks as one; all are called, any may stop."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = list(callbacks)

    def on_start(self, model: Any, total_timesteps: int) -> None:
        for callback in self.callbacks:
            callback.on_start(model, total_timesteps)

    def on_new_best(self, model: Any, eval_return: float) -> None:
        for callback in self.callbacks:
            callback.on_new_best(model, eval_return)

    def on_start_judged(self, model: Any, start: int, eval_return: float) -> None:
        for callback in self.callbacks:
            callback.on_start_judged(model, start, eval_return)

    def on_generation(self, model: Any, record: Record) -> bool:
        answers = [callback.on_generation(model, record) for callback in self.callbacks]
        return all(answer is None or bool(answer) for answer in answers)

    def on_end(self, model: Any) -> None:
        for callback in self.callbacks:
            callback.on_end(model)


class ConsoleLog(Callback):
    """One line of figures a generation, under a header that is repeated now and then; above the progress bar if any."""

    def __init__(self, file: TextIO | None = None, repeat_header: int = 40) -> None:
        self.file, self.repeat_header, self.lines = file, repeat_header, 0

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        self._write(console_header())
        self.lines = 0

    def on_generation(self, model: Model, record: Record) -> None:  # noqa: ARG002
        if self.lines and self.lines % self.repeat_header == 0:
            self._write(console_header())
        self._write(console_line(record))
        self.lines += 1

    def on_start_judged(self, model: Model, start: int, eval_return: float) -> None:
        follows = "" if model.starts.going else "; the best one is kept"
        self._write(f"start {start} of {model.settings.starts}: return {eval_return:.1f}{follows}")

    def _write(self, line: str) -> None:
        from tqdm import tqdm

        file = lasting(self.file or sys.stdout)
        tqdm.write(line, file=file)
        file.flush()  # a reader sees it at once, and a reader that is gone is noticed


class ProgressBar(Callback):
    """tqdm over timesteps."""

    def __init__(self) -> None:
        self._bar: Any = None
        tell_of_forks(self)

    def leave_to_parent(self) -> None:
        """See forks.Owner: two bars would share a terminal's line."""
        if self._bar is not None:
            self._bar.disable = True

    def on_start(self, model: Model, total_timesteps: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=total_timesteps,
            initial=model.num_timesteps,
            unit="step",
            unit_scale=True,
            dynamic_ncols=True,
            disable=None if sys.stderr is not None else True,  # not where nobody watches: a file, a pipe, or nothing
        )

    def on_generation(self, model: Model, record: Record) -> None:
        self._bar.set_postfix_str(f"eval {record.eval_return:.1f}", refresh=False)
        self._bar.update(model.num_timesteps - self._bar.n)

    def on_end(self, model: Model) -> None:  # noqa: ARG002
        self._bar.close()
