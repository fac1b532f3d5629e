"""A training on the console: a line a generation, and a bar."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.system.console import lasting
from fastes.system.forks import tell_of_forks
from fastes.training.record import Record


class ConsoleLog(Callback):
    """One line of statistics a generation, under a header that is repeated now and then; above the progress bar if any."""

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
        follows = "" if model.starts.has_unjudged_starts else "; the best one is kept"
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
