"""A training on the console: a line a generation, and a bar."""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.repeatedly import Repeatedly
from fastes.settings.settings import Settings
from fastes.system.console import in_notebook, lasting
from fastes.system.forks import tell_of_forks
from fastes.training.archive.race import Race
from fastes.training.record import Record

_SECONDS = 0.5  # between looks at the steps of the running generation


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
        self._write(judged_line(model, start, eval_return))

    def on_raced(self, model: Model, race: Race) -> None:
        winner, of = race.winner.last, race.winner.snapshot
        who = "the last parameters win" if of.generation == model.generation else f"those after {of.timesteps} steps win"
        self._write(f"race of {len(race.entrants)}: {who}, {winner.in_words()} over {len(winner.returns)} episodes")

    def _write(self, line: str) -> None:
        from tqdm import tqdm

        file = lasting(self.file or sys.stdout)
        tqdm.write(line, file=file)
        file.flush()  # a reader sees it at once, and a reader that is gone is noticed


@contextlib.contextmanager
def line_meanwhile(text: str) -> Iterator[None]:
    """Shows text on a terminal for as long as the block takes; elsewhere nothing."""
    stream = lasting(sys.stderr)
    watched = stream.isatty()
    if watched:
        print(text, end="\r", file=stream, flush=True)
    try:
        yield
    finally:
        if watched:
            print(" " * len(text), end="\r", file=stream, flush=True)


def judged_line(model: Model, start: int, eval_return: float) -> str:
    """How a start did, and what follows."""
    settings, rounds, verdict = model.settings, model.starts.rounds, model.starts.verdict
    in_round = f", round {verdict.round} of {rounds}" if rounds > 1 else ""
    line = f"start {start} of {settings.starts}{in_round}{_differences(settings, start)}: return {eval_return:.1f}"
    if rounds > 1:
        line += "".join(f"; start {number} is dropped" for number in verdict.dropped)
    if model.starts.has_unjudged_starts:
        return line
    if verdict.chosen and (rounds > 1 or settings.starts_alternatives):
        return f"{line}; start {verdict.chosen}{_differences(settings, verdict.chosen)} goes on"
    return f"{line}; the best one is kept"


def _differences(settings: Settings, start: int) -> str:
    """The values of those settings in which starts differ, in brackets; nothing where there are none."""
    own = settings.of_start(start - 1).alternatives()
    return f" ({', '.join(f'{name} = {value}' for name, value in own.items())})" if own else ""


class ProgressBar(Callback):
    """tqdm over timesteps: on a terminal, and in a notebook as its widget.

    line_seconds: elsewhere, in a file or a pipe, a line on stderr so often; None for nothing.
    """

    def __init__(self, line_seconds: float | None = None) -> None:
        self.line_seconds = line_seconds
        self._bar: Any = None
        self._moving = threading.Lock()
        self._meanwhile: Repeatedly | None = None
        tell_of_forks(self)

    def leave_to_parent(self) -> None:
        """See forks.Owner: two bars would share a terminal's line."""
        if self._bar is not None:
            self._bar.disable = True

    def on_start(self, model: Model, total_timesteps: int) -> None:
        self._begin(total_timesteps, model.num_timesteps)
        self._move_meanwhile(lambda: model.steps_played().candidates)

    def _move_meanwhile(self, steps: Callable[[], int]) -> None:
        """The bar follows the steps of the running generation, too."""
        if not self._bar.disable:
            self._meanwhile = Repeatedly(_SECONDS, lambda: self._move(min(steps(), self._bar.total)))

    def _move(self, steps: int) -> None:
        with self._moving:
            if steps > self._bar.n:
                self._bar.update(steps - self._bar.n)
                self._bar.refresh()

    def _stay(self) -> None:
        """The bar is about to end."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile.end()

    def _begin(self, total: int, initial: int) -> None:
        if sys.stderr is not None and self.line_seconds is not None and not (in_notebook() or sys.stderr.isatty()):
            self._bar = ProgressLines(total, initial, self.line_seconds)
            return
        self._bar = _tqdm_class()(
            total=total,
            initial=initial,
            unit="step",
            unit_scale=True,
            dynamic_ncols=True,
            disable=False if in_notebook() else None if sys.stderr is not None else True,  # not where nobody watches
        )

    def on_generation(self, model: Model, record: Record) -> None:
        if record.eval_generation:
            self._bar.set_postfix_str(f"eval {record.eval_return:.1f}", refresh=False)
        with self._moving:
            self._bar.update(model.num_timesteps - self._bar.n)

    def on_end(self, model: Model) -> None:  # noqa: ARG002
        self._stay()
        self._bar.close()


class SeedsBar(ProgressBar):
    """A bar over the timesteps of several trainings, which go on at once.

    trainings: how many; one that is solved early leaves the others less to do.
    line_seconds: see ProgressBar.
    """

    def __init__(self, trainings: int, line_seconds: float | None = 10.0) -> None:
        super().__init__(line_seconds)
        self.trainings, self._open, self._ended = trainings, 0, 0
        self._totals: dict[int, int] = {}  # seed -> timesteps that it will have
        self._made: dict[int, int] = {}  # seed -> that it has
        self._returns: dict[int, float] = {}  # seed -> of its last evaluation

    def on_start(self, model: Model, total_timesteps: int) -> None:
        if self._bar is None:
            self._begin(self.trainings * total_timesteps, 0)
            self._move_meanwhile(lambda: model.evaluator.steps_played().candidates)  # of all trainings: they share a pool
        self._totals[model.seed], self._open = total_timesteps, self._open + 1

    def on_generation(self, model: Model, record: Record) -> None:
        if record.eval_generation:
            self._returns[model.seed] = record.eval_return
        self._show(model)

    def on_end(self, model: Model) -> None:
        self._open -= 1
        total = self._totals[model.seed]
        if model.solved or model.num_timesteps >= total:
            self._ended += 1
            self._bar.total += model.num_timesteps - total
        self._show(model)
        if not self._open:
            self._stay()
            self._bar.close()

    def _show(self, model: Model) -> None:
        self._made[model.seed] = model.num_timesteps
        median = f"median eval {statistics.median(self._returns.values()):.1f}, " if self._returns else ""
        self._bar.set_postfix_str(f"{median}{self._ended} of {self.trainings} ended", refresh=False)
        with self._moving:
            self._bar.update(sum(self._made.values()) - self._bar.n)


def _tqdm_class() -> Any:
    if not in_notebook():
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it is a bar of text, which does
        from tqdm.autonotebook import tqdm as notebook_tqdm
    return notebook_tqdm


class ProgressLines:
    """What a ProgressBar needs of tqdm, as lines for a stream that keeps them: one every `seconds`, and one at the end."""

    def __init__(self, total: int, initial: int, seconds: float) -> None:
        self.total, self.initial, self.n, self.seconds = total, initial, initial, seconds
        self.disable, self._postfix, self._shown = False, "", -1
        self._begun = self._said = time.monotonic()

    def set_postfix_str(self, text: str, refresh: bool = False) -> None:  # noqa: ARG002
        self._postfix = text

    def update(self, steps: int) -> None:
        self.n += steps
        if time.monotonic() - self._said >= self.seconds:
            self._say()

    def refresh(self) -> None:
        """The next line is said when its time has come."""

    def close(self) -> None:
        if self._shown < self.n:
            self._say()

    def _say(self) -> None:
        from tqdm import tqdm

        if self.disable:
            return
        self._said, self._shown = time.monotonic(), self.n
        counts = (self.n, max(self.n, self.total), self._said - self._begun)
        form = "{percentage:3.0f}% of {total_fmt} steps: {n_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
        how = {"unit": "step", "unit_scale": True, "initial": self.initial, "bar_format": form, "postfix": self._postfix}
        print(tqdm.format_meter(*counts, **how), file=lasting(sys.stderr), flush=True)


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
    untold = () if record.eval_generation else ("eval_return", "eval_rank")
    values = ("-" if name in untold else form.format(getattr(record, name)) for _, name, form in _COLUMNS)
    return " ".join(f"{value:>{width}}" for value, width in zip(values, _WIDTHS, strict=True))
