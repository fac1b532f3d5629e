"""A training on the console: lines of statistics."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.settings.settings import Settings
from fastes.system.console import columns_of, fitted, lasting
from fastes.training.archive.race import Race
from fastes.training.evaluation import Evaluation, Told
from fastes.training.record import Record


class ConsoleLog(Callback):
    """Rows of statistics of generations, under a header that is repeated now and then; above the progress bar if any.

    seconds: that lie between two rows; the first and the last generation always have one. 0 for a row a generation.

    A row shows the evaluation that was told last since the row before. On a narrow terminal some columns are left out.
    """

    def __init__(self, file: TextIO | None = None, repeat_header: int = 40, seconds: float = 0.0) -> None:
        self.file, self.repeat_header, self.seconds, self.lines = file, repeat_header, seconds, 0
        self._begin()

    def _begin(self) -> None:
        self.lines, self._written_at = 0, -math.inf
        self._judged_at = 0  # the generation after which a start was judged
        self._waiting: Record | None = None  # of the last generation that has no row yet

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        self._begin()
        if model.state.cuts_endless_episodes:
            self._write(limit_line(model))

    def on_generation(self, model: Model, record: Record) -> None:
        if model.solved:  # no step was made in it
            self._write_waiting()
            of = _evaluation_in_words(record.eval_return, record.eval_at)
            self._write(f"confirmed: {of} holds over {_fresh(model.settings.target_episodes)} (target {model.target_return:g})")
            return
        if record.eval_generation <= self._judged_at:  # of the start before
            record = record._replace(eval_generation=0)
        before = self._waiting
        if before is not None and not record.eval_generation:
            told = {name: getattr(before, name) for name in ("eval_generation", "eval_return", "eval_rank")}
            record = record._replace(**told)
        self._waiting = record
        if time.monotonic() - self._written_at >= self.seconds:
            self._write_waiting()

    def on_end(self, model: Model) -> None:  # noqa: ARG002
        self._write_waiting()

    def _write_waiting(self) -> None:
        record, self._waiting = self._waiting, None
        if record is None:
            return
        columns = self._columns()
        if self.lines % self.repeat_header == 0:
            self._write(console_header(columns))
        self._write(console_line(record, columns))
        self.lines, self._written_at = self.lines + 1, time.monotonic()

    def on_start_judged(self, model: Model, start: int, eval_return: float) -> None:
        self._write_waiting()
        self._judged_at = model.generation
        self._write(judged_line(model, start, eval_return))

    def on_raced(self, model: Model, race: Race) -> None:
        self._write_waiting()
        winner, of = race.winner.last, race.winner.snapshot
        who = (
            "the last parameters win" if of.generation == model.generation else f"the parameters after {of.timesteps} steps win"
        )
        self._write(f"race of {len(race.entrants)}: {who}, {winner.in_words()} over {len(winner.returns)} episodes")

    def on_not_confirmed(self, model: Model, told: Told, confirmation: Evaluation) -> None:
        """Above the row of the generation that it is told with."""
        self._write_waiting()
        of = _evaluation_in_words(told.evaluation.mean, told.pending.timesteps)
        number = len(confirmation.returns)
        fresh = f"{_fresh(number)} {'gives' if number == 1 else 'give'} {confirmation.mean:.1f}"
        self._write(f"not confirmed: {of}; {fresh} (target {model.target_return:g})")

    def _write(self, line: str) -> None:
        stream = lasting(self.file or sys.stdout)
        print(fitted(line, stream), file=stream, flush=True)  # a reader sees it at once; one that is gone is noticed

    def _columns(self) -> int | None:
        """Of the terminal; None for a file or a pipe, which has room for all."""
        stream = lasting(self.file or sys.stdout)
        return columns_of(stream) if stream.isatty() else None


def _fresh(episodes: int) -> str:
    return "1 fresh episode" if episodes == 1 else f"{episodes} fresh episodes"


def _evaluation_in_words(mean: float, timesteps: int) -> str:
    return f"the evaluation of {mean:.1f} after {timesteps} steps"


def limit_line(model: Model) -> str:
    """The limit of episodes that have no other."""
    limit = model.state.longest_episode()
    return (
        f"{model.source.name} has no limit of steps that is known: an episode is cut after {limit:,}; max_episode_steps sets "
        "another limit, -1 none"
    )


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


class _Column(NamedTuple):
    """Of the table. rank: a narrow terminal has the columns of the lowest ranks."""

    title: str
    field: str
    form: str
    width: int
    rank: int


_COLUMNS = (
    _Column("gen", "generation", "{:d}", 5, 0),
    _Column("steps", "timesteps", "{:d}", 9, 1),
    _Column("ret mean", "return_mean", "{:.1f}", 9, 3),
    _Column("ret max", "return_max", "{:.1f}", 9, 4),
    _Column("eval", "eval_return", "{:.1f}", 9, 2),
    _Column("rank", "eval_rank", "{:d}", 5, 12),
    _Column("elite", "elite_fraction", "{:.0%}", 6, 9),
    _Column("|theta|", "theta_norm", "{:.3g}", 8, 11),
    _Column("|grad|", "gradient_norm", "{:.3g}", 8, 10),
    _Column("upd ratio", "update_ratio", "{:.2g}", 9, 8),
    _Column("ep len", "episode_length", "{:.0f}", 7, 5),
    _Column("steps/s", "steps_per_second", "{:.0f}", 8, 6),
    _Column("util", "utilisation", "{:.0%}", 5, 7),
)


def console_header(columns: int | None = None) -> str:
    """columns: of the terminal; None for room enough."""
    return " ".join(f"{column.title:>{column.width}}" for column in _fitting(columns))


def console_line(record: Record, columns: int | None = None) -> str:
    untold = () if record.eval_generation else ("eval_return", "eval_rank")
    shown = _fitting(columns)
    values = ("-" if each.field in untold else each.form.format(getattr(record, each.field)) for each in shown)
    return " ".join(f"{value:>{each.width}}" for value, each in zip(values, shown, strict=True))


def _fitting(columns: int | None) -> Sequence[_Column]:
    """What there is room for."""
    room, ranks = sys.maxsize if columns is None else columns, set[int]()
    for each in sorted(_COLUMNS, key=lambda column: column.rank):
        room -= each.width + bool(ranks)
        if room < 0:
            break
        ranks.add(each.rank)
    return [each for each in _COLUMNS if each.rank in ranks]
